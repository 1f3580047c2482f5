/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef GW_LEVEL_ENCODE_H
#define GW_LEVEL_ENCODE_H

#include "classic/level_layout.h"

/* Functions of gw_classic_level. */
gw_status gw_level_encode(gw_classic_encoding *encoding);
gw_status gw_level_norms(const gw_classic_encoding *encoding, float *norms);

#endif
