/*
 * The receiver's loop state, for callers with their lanes in arrays (thc_decode.c) and in frames
 * (thc_frame_decode.c).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_DECODE_H
#define GW_THC_DECODE_H

#include "core/bytes.h"
#include "thc/thc_context.h"

typedef struct gw_thc_receiver {
    const gw_thc *thc;
    gw_thc_span span;
    gw_thc_scratch scratch;
    gw_thc_mode mode;
    uint32_t round;
    size_t element_size;
    uint8_t *dst;
    uint64_t missing;
    gw_status status; /* of the lowest bad block */
    uint64_t bad_block;
} gw_thc_receiver;

static inline uint32_t gw_thc_lane_load(const uint8_t *lane, unsigned lane_bits)
{
    return lane_bits == 8 ? lane[0] : lane_bits == 16 ? gw_load16(lane) : gw_load32(lane);
}

/* Checks the arguments that all decoders share; `src` only for being there. */
gw_status gw_thc_receiver_begin(gw_thc_receiver *r, const gw_thc *thc, const gw_thc_range *range,
                                const void *src, gw_thc_mode mode, void *dst, size_t dst_capacity,
                                void *workspace, size_t workspace_size);

/* Block i of the range is bad: zeros, and the lowest one is remembered. Blocks come in ascending order. */
void gw_thc_receiver_fail(gw_thc_receiver *r, uint64_t i, gw_status status);

/* Block i from checked lanes. */
void gw_thc_receiver_put(gw_thc_receiver *r, uint64_t i, const uint8_t *lanes, unsigned lane_bits,
                         uint32_t members, const uint32_t *patterns);

/* Block i from one worker's indices; GW_ERR_CORRUPT (nothing written) for bad patterns, or indices where none
 * can be. */
gw_status gw_thc_receiver_put_indices(gw_thc_receiver *r, uint64_t i, const uint8_t *indices,
                                      const uint32_t *patterns);

gw_status gw_thc_receiver_end(const gw_thc_receiver *r, uint64_t *missing, uint64_t *bad_block);

#endif
