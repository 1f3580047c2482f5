/*
 * What the files of this folder know about layouts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_COLLECTIVE_LAYOUT_H
#define GW_COLLECTIVE_LAYOUT_H

#include "gradwire/collective.h"

/* 1 if gw_collective_layout_init() could have made the layout. NULL: 0. */
int gw_layout_is_valid(const gw_collective_layout *layout);

/* Values of the longest piece. The layout is valid. */
uint64_t gw_layout_piece_max(const gw_collective_layout *layout);

#endif
