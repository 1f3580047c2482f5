/*
 * Sums of several frames and own values, in a given order, step by step in cache.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_SUM_H
#define GW_GCOMP_SUM_H

#include "gcomp/gcomp_codec.h"

/* What is added up: ((frame 0 + frame 1) + ...), the own values in place of frame `own`. Frames have been
 * checked, but their bytes may change meanwhile: each step reads and checks the headers again. */
typedef struct gw_sum {
    const gw_codec *codec;
    const gw_gcomp_frame *frames; /* `count` of them; that at `own`, and the field map of all, are not read */
    const gw_gcomp_map *map;      /* of derived frames */
    size_t count, own;
    const uint8_t *values; /* own: len of them */
    uint64_t len;
    uint32_t chunk_log2; /* of the frames */
    uint32_t dtype;
    /* The lowest bad chunk, UINT64_MAX if there is none, the first frame that is bad there, and its
     * status. */
    gw_status status;
    size_t bad_frame;
    uint64_t bad_chunk;
} gw_sum;

/* Marks the sum as without fault. The caller sets the fields before `status`. */
void gw_sum_begin(gw_sum *sum);

/* The sum of all, encoded with `encoding` into dst, which both have been checked: dst has room for
 * gw_gcomp_frame_bound(). The workspace is that of the encoding. On failure dst->size is unchanged. */
gw_status gw_sum_encode(gw_sum *sum, gw_encoding *encoding, gw_buffer *dst, const gw_workspace *workspace);

/* The sum of all, times scale, at out, which may be sum->values. Chunks that are bad in any frame keep what
 * they had. */
gw_status gw_sum_store(gw_sum *sum, uint8_t *out, float scale, const gw_workspace *workspace);

#endif
