/*
 * The scalar kernel table of THC: every slot, and the specification of all others.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/thc_kernels.h"

const gw_thc_kernels gw_thc_kernels_scalar = {
    .load = gw_thc_load_scalar,
    .store = gw_thc_store_scalar,
    .norm = gw_thc_norm_scalar,
    .extent = gw_thc_extent_scalar,
    .rotate = gw_thc_rotate_scalar,
    .shift = gw_thc_shift_scalar,
    .quantize = gw_thc_quantize_scalar,
    .pack = gw_thc_pack_scalar,
    .add_indices = gw_thc_add_indices_scalar,
    .add_lanes = gw_thc_add_lanes_scalar,
    .lane_max = gw_thc_lane_max_scalar,
    .unpack = gw_thc_unpack_scalar,
    .unpack_plain = gw_thc_unpack_plain_scalar,
    .rotate_back = gw_thc_rotate_back_scalar,
    .residual = gw_thc_residual_scalar,
};
