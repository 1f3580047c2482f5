/*
 * Hop: decode, add, encode, group by group, so that the sums stay in the cache. The bytes are those of the
 * three calls one after the other, because a group of sums is complete before its codebook is chosen.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"

/* Values per step of the loop: whole groups of the outgoing frame and whole chunks of the incoming one. Both
 * lengths are powers of two (a group is 2^17 values or one chunk, a chunk 2^12 to 2^15), so the larger is a
 * multiple of the smaller. */
static size_t step_len(const gw_encoding *e, const gw_decoding *d)
{
    const size_t group = (size_t)gw_group_chunks(e->codec) << e->info.chunk_log2;
    const size_t chunk = (size_t)1 << d->info.chunk_log2;
    return group > chunk ? group : chunk;
}

/* sums[0..len) = frame + local for the values from `first` on, which begins a chunk of the incoming frame. */
static gw_status sum_step(gw_decoding *d, uint64_t first, size_t len, const uint8_t *local, uint8_t *sums,
                          uint64_t *bad_chunk)
{
    const size_t size = gw_traits_of((uint32_t)d->info.dtype)->size;
    const size_t chunk_len = (size_t)1 << d->info.chunk_log2;
    for (size_t at = 0; at < len; at += chunk_len) {
        const uint64_t index = (first + at) >> d->info.chunk_log2;
        const size_t chunk_values = len - at < chunk_len ? len - at : chunk_len;
        d->addend = local + at * size;
        d->beside = d->addend;
        d->beside_size = chunk_values * size;
        gw_status status = gw_decode_chunk(d, index, sums + at * size);
        if (status != GW_OK) {
            *bad_chunk = index;
            return status;
        }
    }
    return GW_OK;
}

gw_status gw_gcomp_decode_add_encode(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                                     const gw_gcomp_source *source, gw_buffer *dst, uint64_t *bad_chunk,
                                     const gw_workspace *workspace)
{
    uint64_t ignored;
    bad_chunk = bad_chunk == NULL ? &ignored : bad_chunk;
    *bad_chunk = UINT64_MAX;
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    gw_gcomp_info info;
    status = gw_gcomp_check(codec, frame, &info);
    if (status != GW_OK) {
        return status;
    }
    if (info.len != source->len || dst->data == NULL) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_bound(codec, source->len);
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }
    if (gw_is_overlapping(dst->data, bound, frame->data, (size_t)info.frame_size) ||
        gw_is_overlapping(dst->data, bound, source->values,
                          (size_t)source->len * gw_dtype_size(info.dtype))) {
        return GW_ERR_ARG;
    }
    gw_decoding d;
    status = gw_decoding_begin(&d, e.codec, frame, &info, workspace);
    if (status != GW_OK) {
        return status;
    }

    gw_encoding_aim(&e, dst);
    const uint8_t *local = (const uint8_t *)source->values;
    const size_t size = gw_traits_of(e.rule.dtype)->size;
    const size_t step = step_len(&e, &d);
    const uint64_t group = (uint64_t)gw_group_chunks(e.codec) << e.info.chunk_log2;
    for (uint64_t first = 0; first < info.len; first += step) {
        const size_t len = (size_t)gw_min_u64(step, info.len - first);
        status = sum_step(&d, first, len, local + (size_t)first * size, e.scratch.sums, bad_chunk);
        if (status != GW_OK) {
            return status;
        }
        for (uint64_t at = 0; at < len; at += group) {
            gw_encode_group(&e, (first + at) >> e.info.chunk_log2, e.scratch.sums + (size_t)at * size);
        }
        d.book_owner = UINT64_MAX; /* the scratch is shared, and the encoder has replaced the tree */
    }
    e.info.frame_size = e.offset;
    gw_encoding_finish(&e, dst);
    return GW_OK;
}
