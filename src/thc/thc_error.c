/*
 * Error memory: contributions put back, and the memory as bytes, one piece per saved range, from which any
 * cut of the same numbering loads:
 *
 *    0  4  magic 'g','W','e',0x1a
 *    4  4  version 0
 *    8  8  first element
 *   16  8  elements
 *   24  4  CRC32C of bytes 0..23 and of the values
 *   28 12  zero
 *   40     fp32 values, 4 bytes each
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/float_bits.h"
#include "thc/thc_worker.h"

#define GW_ERROR_MAGIC       0x1a655767u
#define GW_ERROR_HEADER_SIZE 40u

size_t gw_thc_error_saved_size(uint64_t len)
{
    return len > (SIZE_MAX - GW_ERROR_HEADER_SIZE) / 4 ? SIZE_MAX : GW_ERROR_HEADER_SIZE + (size_t)len * 4;
}

gw_status gw_thc_error_save(const float *error, uint64_t element_first, uint64_t len, gw_buffer *dst)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    if (dst->data == NULL || (error == NULL && len > 0) || len > UINT64_MAX - element_first) {
        return GW_ERR_ARG;
    }
    size_t size = gw_thc_error_saved_size(len);
    if (size == SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    if (dst->capacity < size) {
        return GW_ERR_DST;
    }
    uint8_t *out = dst->data;
    GW_MEMSET(out, 0, GW_ERROR_HEADER_SIZE);
    gw_store32(out, GW_ERROR_MAGIC);
    gw_store64(out + 8, element_first);
    gw_store64(out + 16, len);
    for (size_t i = 0; i < (size_t)len; i++) {
        gw_store32(out + GW_ERROR_HEADER_SIZE + 4 * i, gw_bits_from_float(error[i]));
    }
    uint32_t crc = gw_crc32c(0, out, 24);
    gw_store32(out + 24, gw_crc32c(crc, out + GW_ERROR_HEADER_SIZE, (size_t)len * 4));
    dst->size = size;
    return GW_OK;
}

static gw_status check_saved(const uint8_t *src, size_t src_size, uint64_t *first, uint64_t *len)
{
    if (src_size < GW_ERROR_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    if (gw_load32(src) != GW_ERROR_MAGIC) {
        return GW_ERR_MAGIC;
    }
    if (gw_load32(src + 4) != 0) {
        return GW_ERR_VERSION;
    }
    *first = gw_load64(src + 8);
    *len = gw_load64(src + 16);
    if (*len > UINT64_MAX - *first || !gw_is_zero(src + 28, GW_ERROR_HEADER_SIZE - 28)) {
        return GW_ERR_HEADER;
    }
    size_t payload = src_size - GW_ERROR_HEADER_SIZE;
    if (payload / 4 < *len) {
        return GW_ERR_SHORT;
    }
    if (payload != *len * 4) {
        return GW_ERR_TRAILING;
    }
    uint32_t crc = gw_crc32c(0, src, 24);
    if (gw_crc32c(crc, src + GW_ERROR_HEADER_SIZE, payload) != gw_load32(src + 24)) {
        return GW_ERR_CHECKSUM;
    }
    for (size_t i = 0; i < (size_t)*len; i++) {
        if ((gw_load32(src + GW_ERROR_HEADER_SIZE + 4 * i) & GW_F32_ABS) >= GW_F32_INF) {
            return GW_ERR_NONFINITE;
        }
    }
    return GW_OK;
}

gw_status gw_thc_error_load(const void *src, size_t src_size, float *error, uint64_t element_first,
                            uint64_t len, uint64_t *loaded)
{
    const uint8_t *bytes = src;
    uint64_t saved_first;
    uint64_t saved_len;

    if (loaded != NULL) {
        *loaded = 0;
    }
    if (src == NULL || (error == NULL && len > 0) || len > UINT64_MAX - element_first) {
        return GW_ERR_ARG;
    }
    gw_status status = check_saved(bytes, src_size, &saved_first, &saved_len);
    if (status != GW_OK) {
        return status;
    }
    uint64_t begin = saved_first > element_first ? saved_first : element_first;
    uint64_t end = gw_min_u64(saved_first + saved_len, element_first + len);
    uint64_t shared = end > begin ? end - begin : 0;
    for (uint64_t i = 0; i < shared; i++) {
        const uint8_t *value = bytes + GW_ERROR_HEADER_SIZE + 4 * (size_t)(begin - saved_first + i);
        error[begin - element_first + i] = gw_float_from_bits(gw_load32(value));
    }
    if (loaded != NULL) {
        *loaded = shared;
    }
    return GW_OK;
}

/* Decodes the packed indices of coded block i and adds them to its error memory. */
static void restore_block(const gw_thc_worker *worker, uint64_t i, const uint8_t *packed,
                          const uint32_t *maxima)
{
    const gw_thc_state *thc = worker->thc;
    size_t lanes = gw_thc_span_lanes(&worker->span, i);
    size_t len = gw_thc_span_len(&worker->span, i);
    float *x = worker->scratch.x;
    float *y = worker->scratch.y;
    float *error = worker->error + (size_t)i * worker->span.block_len;
    gw_thc_stream stream = gw_thc_worker_stream(worker, i);
    gw_thc_block block = {worker->scratch.index, lanes, 8, 1, maxima};

    GW_MEMSET(worker->scratch.index, 0, lanes);
    thc->kernels.add_indices(worker->scratch.index, packed, lanes, thc->options.table.bits,
                             thc->options.table.value, 8);
    gw_thc_block_decode(thc, &block, GW_THC_SUM, &stream, y);
    /* load() reads little-endian values; where floats are little-endian this is a copy onto itself. */
    for (size_t j = 0; j < len; j++) {
        gw_store32(y + j, gw_bits_from_float(y[j]));
    }
    thc->kernels.load(x, y, GW_FP32, error, len, lanes);
    GW_MEMCPY(error, x, len * sizeof *x);
}

gw_status gw_thc_error_restore(const gw_thc *thc, const gw_thc_range *range, const gw_thc_indices *indices,
                               float *error, const gw_workspace *workspace)
{
    gw_thc_worker worker;
    gw_thc_source source = {.error = error};

    if (indices == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_worker_begin(&worker, thc, range, &source, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (worker.thc->options.error_feedback == 0) {
        return GW_ERR_OPTION;
    }
    if (worker.span.blocks > 0 && (error == NULL || indices->patterns == NULL || indices->data == NULL)) {
        return GW_ERR_ARG;
    }
    if (indices->size < gw_thc_span_indices_size(&worker.span)) {
        return GW_ERR_SHORT;
    }
    status = gw_thc_norms_check(thc, indices->patterns, worker.span.blocks, NULL);
    if (status != GW_OK) {
        return status;
    }
    const uint8_t *packed = indices->data;
    for (uint64_t i = 0; i < worker.span.blocks; i++) { /* options with error feedback: one pattern a block */
        const uint32_t *maxima = indices->patterns + i;
        if (gw_thc_block_read(worker.thc, maxima) == GW_THC_BLOCK_CODED) { /* else nothing was sent */
            restore_block(&worker, i, packed + gw_thc_span_indices_offset(&worker.span, i), maxima);
        }
    }
    return GW_OK;
}
