/*
 * Error memory as bytes: one piece per saved range, any cut of the same numbering loads from it.
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
#include "core/bytes.h"
#include "thc/thc_float.h"
#include "gradwire/thc.h"

#define GW_ERROR_MAGIC       0x1a655767u
#define GW_ERROR_HEADER_SIZE 40u

size_t gw_thc_error_saved_size(uint64_t len)
{
    return len > (SIZE_MAX - GW_ERROR_HEADER_SIZE) / 4 ? SIZE_MAX : GW_ERROR_HEADER_SIZE + (size_t)len * 4;
}

gw_status gw_thc_error_save(const float *error, uint64_t first_element, uint64_t len, uint8_t *dst,
                            size_t dst_capacity)
{
    if (dst == NULL || (error == NULL && len > 0) || len > UINT64_MAX - first_element) {
        return GW_ERR_ARG;
    }
    size_t size = gw_thc_error_saved_size(len);
    if (size == SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    if (dst_capacity < size) {
        return GW_ERR_DST;
    }
    GW_MEMSET(dst, 0, GW_ERROR_HEADER_SIZE);
    gw_store32(dst, GW_ERROR_MAGIC);
    gw_store64(dst + 8, first_element);
    gw_store64(dst + 16, len);
    for (size_t i = 0; i < (size_t)len; i++) {
        gw_store32(dst + GW_ERROR_HEADER_SIZE + 4 * i, gw_bits_from_float(error[i]));
    }
    uint32_t crc = gw_crc32c(0, dst, 24);
    gw_store32(dst + 24, gw_crc32c(crc, dst + GW_ERROR_HEADER_SIZE, (size_t)len * 4));
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

gw_status gw_thc_error_load(float *error, uint64_t first_element, uint64_t len, const uint8_t *src,
                            size_t src_size, uint64_t *loaded)
{
    uint64_t saved_first;
    uint64_t saved_len;

    if (src == NULL || (error == NULL && len > 0) || len > UINT64_MAX - first_element) {
        return GW_ERR_ARG;
    }
    gw_status status = check_saved(src, src_size, &saved_first, &saved_len);
    if (status != GW_OK) {
        return status;
    }
    uint64_t begin = saved_first > first_element ? saved_first : first_element;
    uint64_t end = gw_min_u64(saved_first + saved_len, first_element + len);
    uint64_t shared = end > begin ? end - begin : 0;
    for (uint64_t i = 0; i < shared; i++) {
        const uint8_t *value = src + GW_ERROR_HEADER_SIZE + 4 * (size_t)(begin - saved_first + i);
        error[begin - first_element + i] = gw_float_from_bits(gw_load32(value));
    }
    if (loaded != NULL) {
        *loaded = shared;
    }
    return GW_OK;
}
