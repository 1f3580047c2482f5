/*
 * Hop: decode, add, encode, group by group, so that the sums stay in the cache. The bytes are those of the
 * three calls one after the other, because a group of sums is complete before its codebook is chosen.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_sum.h"

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
    gw_gcomp_frame_info info;
    status = gw_gcomp_frame_parse(codec, frame, &info);
    if (status != GW_OK) {
        return status;
    }
    if (info.len != source->len || dst->data == NULL) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }
    if (gw_is_overlapping(dst->data, bound, frame->data, (size_t)info.frame_size) ||
        gw_is_overlapping(dst->data, bound, source->values,
                          (size_t)source->len * gw_dtype_size(info.dtype))) {
        return GW_ERR_ARG;
    }
    gw_sum sum = {.codec = e.codec,
                  .frames = frame,
                  .map = frame->map,
                  .count = 2,
                  .own = 1,
                  .values = (const uint8_t *)source->values,
                  .len = info.len,
                  .chunk_log2 = info.chunk_log2,
                  .dtype = (uint32_t)info.dtype};
    gw_sum_begin(&sum);
    status = gw_sum_encode(&sum, &e, dst, workspace);
    *bad_chunk = sum.bad_chunk;
    return status;
}
