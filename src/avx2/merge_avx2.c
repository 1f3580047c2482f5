/*
 * Merge: an inner node of the code tree on the way back, eight values at a time (docs/format.md section 5.2).
 *
 * The next eight left and the next eight right values fill a register; a byte of the bitmap picks the shuffle that puts them
 * in order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include "avx2/byte_orders_avx2.h"

/* Where the values of a side come from. */
enum { FROM_ARRAY, FROM_LABEL };

/* Eight values of out, from left[l..] at clear bits and right[r..] at set bits. Returns the number of set bits. */
GW_TEMPLATE size_t merge8(uint8_t *out, gw_child left, gw_child right, size_t l, size_t r, unsigned bits,
                          int left_from, int right_from)
{
    __m128i both = _mm_set1_epi8((char)left.label);
    if (left_from == FROM_ARRAY) {
        both = _mm_loadl_epi64((const __m128i *)(const void *)(left.labels + l));
    }
    if (right_from == FROM_ARRAY) {
        both = _mm_castpd_si128(
            _mm_loadh_pd(_mm_castsi128_pd(both), (const double *)(const void *)(right.labels + r)));
    } else {
        both = _mm_unpacklo_epi64(both, _mm_set1_epi8((char)right.label));
    }
    const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)&gw_orders_merge_avx2[bits]);
    _mm_storel_epi64((__m128i *)(void *)out, _mm_shuffle_epi8(both, order));
    return (size_t)_mm_popcnt_u32(bits);
}

GW_TEMPLATE size_t merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len,
                               int left_from, int right_from)
{
    size_t r = 0;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        const uint32_t bits = gw_load32(bitmap + i / 8);
        for (unsigned j = 0; j < 32; j += 8) {
            r += merge8(out + i + j, left, right, i + j - r, r, bits >> j & 255, left_from, right_from);
        }
    }
    if (i < len) {
        /* What is loaded and stored beyond the last value stays within the slop of the arrays. */
        const uint32_t bits = gw_load32(bitmap + i / 8);
        if (bits >> (len - i) != 0) {
            return SIZE_MAX;
        }
        for (unsigned j = 0; i + j < len; j += 8) {
            r += merge8(out + i + j, left, right, i + j - r, r, bits >> j & 255, left_from, right_from);
        }
    }
    return r;
}

/* Both sides are one label: 32 values at a time. */
static size_t merge_labels(uint8_t *out, uint8_t left, uint8_t right, const uint8_t *bitmap, size_t len)
{
    const __m256i clear = _mm256_set1_epi8((char)left), set = _mm256_set1_epi8((char)right);
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3,
                                             3, 3, 3, 3);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201u);
    size_t ones = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < len; i += 32) {
        bits = gw_load32(bitmap + i / 8);
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_blendv_epi8(clear, set, is_set));
        ones += (size_t)_mm_popcnt_u32(bits);
    }
    return len % 32 != 0 && bits >> len % 32 != 0 ? SIZE_MAX : ones;
}

size_t gw_merge_avx2(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    if (left.labels != NULL) {
        return right.labels != NULL ? merge_sides(out, left, right, bitmap, len, FROM_ARRAY, FROM_ARRAY)
                                    : merge_sides(out, left, right, bitmap, len, FROM_ARRAY, FROM_LABEL);
    }
    return right.labels != NULL ? merge_sides(out, left, right, bitmap, len, FROM_LABEL, FROM_ARRAY)
                                : merge_labels(out, left.label, right.label, bitmap, len);
}

#else
typedef int gw_merge_avx2_not_built; /* a translation unit must not be empty */
#endif
