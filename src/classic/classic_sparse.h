/*
 * The half of the sparse family that reads frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SPARSE_H
#define GW_CLASSIC_SPARSE_H

#include "classic/classic_handle.h"

size_t gw_sparse_decode_workspace_size(const gw_classic_frame_info *info);
gw_status gw_sparse_check_header(const gw_classic_frame_info *info);
gw_status gw_sparse_check(const gw_classic_payload *payload);
void gw_sparse_decode(const gw_classic_payload *payload, const gw_classic_sink *sink);

/* Sums of RANDK frames: the values of one position after the other. */
size_t gw_sparse_sum_size(const gw_classic_frame_info *info);
void gw_sparse_sum_add(void *lanes, const gw_classic_payload *payload);
void gw_sparse_sum_decode(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink);

#endif
