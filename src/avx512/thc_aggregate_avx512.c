/*
 * Stage aggregate: 64 indices through a table of 16 bytes, added to lanes of one, two or four bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_kernels_avx512.h"

#if GW_THC_BUILD_AVX512

/*
 * 64 indices, one a byte, with other bits above them: the table repeats itself over the 64 entries that a
 * byte permutation can reach, so nothing needs to be masked off. Of one, two or four bits: each 64-bit lane
 * is shifted to its own part of the bytes.
 */
static inline __m512i spread1(const uint8_t *group)
{
    const __m512i all = _mm512_set1_epi64((long long)gw_load64(group));
    return _mm512_srlv_epi64(all, _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
}

static inline __m512i spread2(const uint8_t *group)
{
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)group));
    return _mm512_srlv_epi64(all, _mm512_set_epi64(6, 6, 4, 4, 2, 2, 0, 0));
}

static inline __m512i spread4(const uint8_t *group)
{
    const __m512i all = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)group));
    return _mm512_srlv_epi64(all, _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0));
}

GW_TEMPLATE __m512i group_values(const uint8_t *group, unsigned bits, __m512i table)
{
    __m512i index;
    if (bits == 4)
        index = spread4(group);
    else if (bits == 1)
        index = spread1(group);
    else
        index = spread2(group);
    if (bits == 3) {
        enum { SELECT = 0xca }; /* first ? second : third */
        index = _mm512_ternarylogic_epi64(_mm512_set1_epi8(3), index,
                                          _mm512_slli_epi64(spread1(group + 16), 2), SELECT);
    }
    return _mm512_permutexvar_epi8(index, table);
}

/* table[i % 2^bits] for 64 bytes. */
static inline __m512i repeat_table(const uint8_t *table, unsigned bits)
{
    const __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return _mm512_shuffle_epi8(values, _mm512_and_si512(order, _mm512_set1_epi8((char)((1u << bits) - 1u))));
}

GW_TEMPLATE void add_to_lanes(uint8_t *lanes, __m512i x, unsigned lane_bits)
{
    if (lane_bits == 8)
        x = _mm512_add_epi8(x, _mm512_loadu_si512(lanes));
    else if (lane_bits == 16)
        x = _mm512_add_epi16(x, _mm512_loadu_si512(lanes));
    else
        x = _mm512_add_epi32(x, _mm512_loadu_si512(lanes));
    _mm512_storeu_si512(lanes, x);
}

GW_TEMPLATE void add_group(uint8_t *lanes, const uint8_t *group, unsigned bits, __m512i table,
                           unsigned lane_bits)
{
    const __m512i v = group_values(group, bits, table);
    if (lane_bits == 8) {
        add_to_lanes(lanes, v, 8);
    } else if (lane_bits == 16) {
        add_to_lanes(lanes, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)), 16);
        add_to_lanes(lanes + 64, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1)), 16);
    } else {
        add_to_lanes(lanes, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(v)), 32);
        add_to_lanes(lanes + 64, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 1)), 32);
        add_to_lanes(lanes + 128, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 2)), 32);
        add_to_lanes(lanes + 192, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(v, 3)), 32);
    }
}

GW_TEMPLATE void add_all(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits, __m512i table,
                         unsigned lane_bits)
{
    const size_t groups = len / 64, group_size = 8 * bits, lanes_size = 8 * lane_bits;
    size_t i = 0;

    for (; i + 2 <= groups; i += 2) {
        add_group(lanes + i * lanes_size, indices + i * group_size, bits, table, lane_bits);
        add_group(lanes + (i + 1) * lanes_size, indices + (i + 1) * group_size, bits, table, lane_bits);
    }
    if (i < groups)
        add_group(lanes + i * lanes_size, indices + i * group_size, bits, table, lane_bits);
}

GW_TEMPLATE void add_width(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits, __m512i table,
                           unsigned lane_bits)
{
    switch (bits) {
    case 1:
        add_all(lanes, indices, len, 1, table, lane_bits);
        break;
    case 2:
        add_all(lanes, indices, len, 2, table, lane_bits);
        break;
    case 3:
        add_all(lanes, indices, len, 3, table, lane_bits);
        break;
    default:
        add_all(lanes, indices, len, 4, table, lane_bits);
        break;
    }
}

void gw_thc_add_indices_avx512(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                               const uint8_t *table, unsigned lane_bits)
{
    const __m512i values = repeat_table(table, bits);

    if (lane_bits == 8)
        add_width(lanes, indices, len, bits, values, 8);
    else if (lane_bits == 16)
        add_width(lanes, indices, len, bits, values, 16);
    else
        add_width(lanes, indices, len, bits, values, 32);
}

void gw_thc_add_lanes_avx512(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits;

    for (size_t i = 0; i < size; i += 64) {
        const __m512i x = _mm512_loadu_si512(src + i);
        if (lane_bits == 8)
            add_to_lanes(lanes + i, x, 8);
        else if (lane_bits == 16)
            add_to_lanes(lanes + i, x, 16);
        else
            add_to_lanes(lanes + i, x, 32);
    }
}

static inline __m512i max_of(__m512i a, __m512i b, unsigned lane_bits)
{
    return lane_bits == 8    ? _mm512_max_epu8(a, b)
           : lane_bits == 16 ? _mm512_max_epu16(a, b)
                             : _mm512_max_epu32(a, b);
}

/* Neighbouring lanes fall onto each other in the end. */
GW_TEMPLATE uint32_t max_all(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits;
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;

    for (; i + 128 <= size; i += 128) {
        a = max_of(a, _mm512_loadu_si512(lanes + i), lane_bits);
        b = max_of(b, _mm512_loadu_si512(lanes + i + 64), lane_bits);
    }
    if (i < size)
        a = max_of(a, _mm512_loadu_si512(lanes + i), lane_bits);
    a = max_of(a, b, lane_bits);
    if (lane_bits == 8)
        a = _mm512_max_epu16(_mm512_srli_epi16(a, 8), _mm512_and_si512(a, _mm512_set1_epi16(0xff)));
    if (lane_bits <= 16)
        a = _mm512_max_epu32(_mm512_srli_epi32(a, 16), _mm512_and_si512(a, _mm512_set1_epi32(0xffff)));
    return _mm512_reduce_max_epu32(a);
}

uint32_t gw_thc_lane_max_avx512(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    return lane_bits == 8    ? max_all(lanes, len, 8)
           : lane_bits == 16 ? max_all(lanes, len, 16)
                             : max_all(lanes, len, 32);
}

#else
typedef int gw_thc_aggregate_avx512_not_built; /* a translation unit must not be empty */
#endif
