/* The scalar kernels, by name. SPDX-License-Identifier: BSD-2-Clause */
#ifndef GW_KERNELS_SCALAR_H
#define GW_KERNELS_SCALAR_H

#include "core/kernels.h"

GW_DECLARE_KERNELS(scalar);

#endif
