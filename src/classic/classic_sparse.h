/*
 * What the two halves of the sparse family share, and what sums of RANDK frames need of it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SPARSE_H
#define GW_CLASSIC_SPARSE_H

#include "classic/classic_handle.h"

size_t gw_sparse_decode_workspace_size(const gw_classic_frame_info *info);
gw_status gw_sparse_check(const gw_classic_payload *payload);
void gw_sparse_decode(const gw_classic_payload *payload, const gw_classic_sink *sink);

/* RANDK: lanes[i] = F(F(lanes[i]) + value i), for the payload's keep_len values as decode makes them, before a
 * scale. Follows a check. lanes: native floats at any alignment. */
void gw_randk_sum_add(void *lanes, const gw_classic_payload *payload);

/* RANDK: puts keep_len lanes at the positions of a frame: sink as in decode. payload->data is not read. */
void gw_randk_sum_decode(const void *lanes, const gw_classic_payload *payload, const gw_classic_sink *sink);

#endif
