/*
 * Merge: an inner node of the code tree, 64 values at a time (docs/format.md section 5.2).
 *
 * Two expands put the next left values where the bitmap has a 0 and the next right ones where it has a 1.
 * Both are merge-masked: the zero-masked form depends on its destination register on Zen 4 and 5.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* 64 values; a child of one label needs no expand. */
static inline void merge64(uint8_t *out, gw_child left, gw_child right, size_t l, size_t r, uint64_t bits)
{
    __m512i x = _mm512_set1_epi8((char)left.label);
    if (left.labels != NULL) {
        x = _mm512_loadu_si512(left.labels + l);
        x = _mm512_mask_expand_epi8(x, ~bits, x);
    }
    if (right.labels != NULL) {
        x = _mm512_mask_expand_epi8(x, bits, _mm512_loadu_si512(right.labels + r));
    } else {
        x = _mm512_mask_mov_epi8(x, bits, _mm512_set1_epi8((char)right.label));
    }
    _mm512_storeu_si512(out, x);
}

static inline size_t merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                 size_t len)
{
    size_t ones = 0;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        const uint64_t bits = gw_load64(bitmap + i / 8);
        merge64(out + i, left, right, i - ones, ones, bits);
        ones += (size_t)_mm_popcnt_u64(bits);
    }
    if (i < len) {
        /* What is loaded and stored beyond the last value stays within the slop of the arrays. */
        const uint64_t bits = len - i > 32 ? gw_load64(bitmap + i / 8) : gw_load32(bitmap + i / 8);
        if (bits >> (len - i) != 0) {
            return SIZE_MAX;
        }
        merge64(out + i, left, right, i - ones, ones, bits);
        ones += (size_t)_mm_popcnt_u64(bits);
    }
    return ones;
}

size_t gw_merge_avx512(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    /* The constants let the compiler make four loops without tests. */
    const gw_child left_one = {NULL, left.label}, right_one = {NULL, right.label};
    if (left.labels != NULL) {
        return right.labels != NULL ? merge_sides(out, left, right, bitmap, len)
                                    : merge_sides(out, left, right_one, bitmap, len);
    }
    return right.labels != NULL ? merge_sides(out, left_one, right, bitmap, len)
                                : merge_sides(out, left_one, right_one, bitmap, len);
}

#else
typedef int gw_merge_avx512_not_built; /* a translation unit must not be empty */
#endif
