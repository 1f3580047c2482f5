/*
 * The receiver's loop state, for lanes in arrays (thc_decode.c) and in frames (thc_frame_codec.c).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_DECODE_H
#define GW_THC_DECODE_H

#include "thc/thc_handle.h"

typedef struct gw_thc_receiver {
    gw_thc_span span;
    gw_thc_scratch scratch;
    gw_thc_mode mode;
    size_t element_size;
    uint8_t *values;
    gw_status status; /* of the lowest bad block */
} gw_thc_receiver;

/* Clears the results of a target; GW_ERR_ARG for NULL. */
gw_status gw_thc_target_clear(gw_thc_target *target);

/* Checks the arguments that all decoders share, but for r->span, which the caller has filled. GW_ERR_ARG for
 * src NULL. */
gw_status gw_thc_receiver_begin(gw_thc_receiver *r, const void *src, gw_thc_mode mode,
                                const gw_thc_target *target, const gw_workspace *workspace);

/* Block i of the range is bad: writes zeros and records the lowest one. Blocks come in ascending order. */
void gw_thc_receiver_fail(gw_thc_receiver *r, gw_thc_target *target, uint64_t i, gw_status status);

/* Block i from checked lanes. */
void gw_thc_receiver_put(gw_thc_receiver *r, gw_thc_target *target, uint64_t i, const gw_thc_block *block);

/* Block i from one worker's indices; GW_ERR_CORRUPT (nothing written) for bad patterns, or for non-zero
 * indices of a block that has none. */
gw_status gw_thc_receiver_put_indices(gw_thc_receiver *r, gw_thc_target *target, uint64_t i,
                                      const uint8_t *indices, const uint32_t *patterns);

/* The status of the call; target->len on success. */
gw_status gw_thc_receiver_end(const gw_thc_receiver *r, gw_thc_target *target);

#endif
