/*
 * Stage aggregate: 32 indices through a table of 16 bytes, added to lanes of one, two or four bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

/* Values 32 * half .. 32 * half + 31 of a group: one, two or four bits of each byte, one after the other. */
GW_TEMPLATE __m256i spread1(const uint8_t *group, unsigned half)
{
    const __m256i all = _mm256_set1_epi64x((long long)gw_load64(group));
    const __m256i shift = half == 0 ? _mm256_set_epi64x(3, 2, 1, 0) : _mm256_set_epi64x(7, 6, 5, 4);
    return _mm256_and_si256(_mm256_srlv_epi64(all, shift), _mm256_set1_epi8(1));
}

GW_TEMPLATE __m256i spread2(const uint8_t *group, unsigned half)
{
    const __m256i all = _mm256_broadcastsi128_si256(gw_load128(group));
    const __m256i shift = half == 0 ? _mm256_set_epi64x(2, 2, 0, 0) : _mm256_set_epi64x(6, 6, 4, 4);
    return _mm256_and_si256(_mm256_srlv_epi64(all, shift), _mm256_set1_epi8(3));
}

GW_TEMPLATE __m256i spread4(const uint8_t *group, unsigned half)
{
    const __m256i all = gw_load256(group);
    return _mm256_and_si256(half == 0 ? all : _mm256_srli_epi16(all, 4), _mm256_set1_epi8(15));
}

GW_TEMPLATE __m256i group_values(const uint8_t *group, unsigned half, unsigned bits, __m256i table)
{
    __m256i index;
    if (bits == 4) {
        index = spread4(group, half);
    } else if (bits == 1) {
        index = spread1(group, half);
    } else {
        index = spread2(group, half);
    }
    if (bits == 3) {
        index = _mm256_or_si256(index, _mm256_slli_epi16(spread1(group + 16, half), 2));
    }
    return _mm256_shuffle_epi8(table, index);
}

GW_TEMPLATE void add_to_lanes(uint8_t *lanes, __m256i x, unsigned lane_bits)
{
    if (lane_bits == 8) {
        x = _mm256_add_epi8(x, gw_load256(lanes));
    } else if (lane_bits == 16) {
        x = _mm256_add_epi16(x, gw_load256(lanes));
    } else {
        x = _mm256_add_epi32(x, gw_load256(lanes));
    }
    gw_store256(lanes, x);
}

/* 32 values. */
GW_TEMPLATE void add_values(uint8_t *lanes, __m256i v, unsigned lane_bits)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    if (lane_bits == 8) {
        add_to_lanes(lanes, v, 8);
    } else if (lane_bits == 16) {
        add_to_lanes(lanes, _mm256_cvtepu8_epi16(low), 16);
        add_to_lanes(lanes + 32, _mm256_cvtepu8_epi16(high), 16);
    } else {
        add_to_lanes(lanes, _mm256_cvtepu8_epi32(low), 32);
        add_to_lanes(lanes + 32, _mm256_cvtepu8_epi32(_mm_srli_si128(low, 8)), 32);
        add_to_lanes(lanes + 64, _mm256_cvtepu8_epi32(high), 32);
        add_to_lanes(lanes + 96, _mm256_cvtepu8_epi32(_mm_srli_si128(high, 8)), 32);
    }
}

GW_TEMPLATE void add_all(uint8_t *lanes, const uint8_t *indices, size_t len, __m256i table,
                         unsigned lane_bits, unsigned bits)
{
    for (size_t i = 0; i < len; i += 64, indices += 8 * bits, lanes += 8 * lane_bits) {
        add_values(lanes, group_values(indices, 0, bits, table), lane_bits);
        add_values(lanes + 4 * lane_bits, group_values(indices, 1, bits, table), lane_bits);
    }
}

GW_TEMPLATE void add_width(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits, __m256i table,
                           unsigned lane_bits)
{
    GW_BY_INDEX_BITS(add_all, bits, lanes, indices, len, table, lane_bits);
}

void gw_thc_add_indices_avx2(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                             const uint8_t *table, unsigned lane_bits)
{
    const __m256i values = _mm256_broadcastsi128_si256(gw_load128(table));

    GW_BY_LANE_BITS(add_width, lane_bits, lanes, indices, len, bits, values);
}

void gw_thc_add_lanes_avx2(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits;

    for (size_t i = 0; i < size; i += 32) {
        const __m256i x = gw_load256(src + i);
        if (lane_bits == 8) {
            add_to_lanes(lanes + i, x, 8);
        } else if (lane_bits == 16) {
            add_to_lanes(lanes + i, x, 16);
        } else {
            add_to_lanes(lanes + i, x, 32);
        }
    }
}

static inline __m256i max_of(__m256i a, __m256i b, unsigned lane_bits)
{
    return lane_bits == 8    ? _mm256_max_epu8(a, b)
           : lane_bits == 16 ? _mm256_max_epu16(a, b)
                             : _mm256_max_epu32(a, b);
}

/* Neighbouring lanes are combined at the end. */
GW_TEMPLATE uint32_t max_all(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits; /* a multiple of 64 */
    __m256i a = _mm256_setzero_si256(), b = a;

    for (size_t i = 0; i < size; i += 64) {
        a = max_of(a, gw_load256(lanes + i), lane_bits);
        b = max_of(b, gw_load256(lanes + i + 32), lane_bits);
    }
    a = max_of(a, b, lane_bits);
    __m128i y = _mm256_castsi256_si128(a);
    const __m128i other = _mm256_extracti128_si256(a, 1);
    if (lane_bits == 8) {
        y = _mm_max_epu8(y, other);
        y = _mm_max_epu8(y, _mm_srli_epi16(y, 8)); /* upper bytes: leftovers */
        y = _mm_and_si128(y, _mm_set1_epi16(0xff));
    } else if (lane_bits == 16) {
        y = _mm_max_epu16(y, other);
    }
    if (lane_bits <= 16) {
        y = _mm_max_epu16(y, _mm_srli_epi32(y, 16));
        y = _mm_and_si128(y, _mm_set1_epi32(0xffff));
    } else {
        y = _mm_max_epu32(y, other);
    }
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1)));
}

uint32_t gw_thc_lane_max_avx2(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    return GW_BY_LANE_BITS(max_all, lane_bits, lanes, len);
}

#else
typedef int gw_thc_aggregate_avx2_not_built; /* a translation unit must not be empty */
#endif
