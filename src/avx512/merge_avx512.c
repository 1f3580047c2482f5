/*
 * Merge: an inner node of the code tree, 64 values at a time (docs/format.md section 5.2).
 *
 * Two expands put the next left values where the bitmap has a 0 and the next right ones where it has a 1.
 * Both are merge-masked: the zero-masked form waits for the last value of its destination register on Zen 4 and 5.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"

#if defined(__AVX512BW__) && defined(__AVX512VBMI2__)

#include <immintrin.h>

/* 64 values; a child of one rank needs no expand. */
static inline void merge64(uint8_t *out, gw_child left, gw_child right, size_t l, size_t r, uint64_t bits)
{
    __m512i x = _mm512_set1_epi8((char)left.rank);
    if (left.ranks != NULL) {
        x = _mm512_loadu_si512(left.ranks + l);
        x = _mm512_mask_expand_epi8(x, ~bits, x);
    }
    if (right.ranks != NULL) {
        x = _mm512_mask_expand_epi8(x, bits, _mm512_loadu_si512(right.ranks + r));
    } else {
        x = _mm512_mask_mov_epi8(x, bits, _mm512_set1_epi8((char)right.rank));
    }
    _mm512_storeu_si512(out, x);
}

static inline void merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    size_t ones = 0;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        uint64_t bits;
        GW_MEMCPY(&bits, bitmap + i / 8, 8);
        merge64(out + i, left, right, i - ones, ones, bits);
        ones += (size_t)_mm_popcnt_u64(bits);
    }
    if (i < len) {
        /* What is loaded and stored beyond the last value stays within the slop of the arrays. */
        uint64_t bits = 0;
        GW_MEMCPY(&bits, bitmap + i / 8, (len - i + 7) / 8);
        merge64(out + i, left, right, i - ones, ones, bits);
    }
}

void gw_merge_avx512(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    /* The constants let the compiler make four loops without tests. */
    const gw_child left_one = {NULL, left.rank}, right_one = {NULL, right.rank};
    if (left.ranks != NULL) {
        if (right.ranks != NULL) {
            merge_sides(out, left, right, bitmap, len);
        } else {
            merge_sides(out, left, right_one, bitmap, len);
        }
    } else if (right.ranks != NULL) {
        merge_sides(out, left_one, right, bitmap, len);
    } else {
        merge_sides(out, left_one, right_one, bitmap, len);
    }
}

#else
typedef int gw_merge_avx512_not_built; /* a translation unit must not be empty */
#endif
