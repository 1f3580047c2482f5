/*
 * Merge: an inner node of the code tree, eight values at a time (docs/format.md section 5.2).
 *
 * The next eight left and the next eight right values fill a register; a byte of the bitmap picks the
 * shuffle that puts them in order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(__AVX2__)

#include <immintrin.h>

/* For a byte m of a bitmap: where each of 8 outputs comes from, left values being bytes 0..7 and right ones
 * 8..15. */
#define ONES(m)                                                                                              \
    (((m)&1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) + ((m) >> 5 & 1) +          \
     ((m) >> 6 & 1))
#define BELOW(m, j) ONES((m) & ((1 << (j)) - 1))
#define FROM(m, j)  ((uint64_t)(((m) >> (j)&1) != 0 ? 8 + BELOW(m, j) : (j)-BELOW(m, j)) << 8 * (j))
#define ENTRY(m)                                                                                             \
    (FROM(m, 0) | FROM(m, 1) | FROM(m, 2) | FROM(m, 3) | FROM(m, 4) | FROM(m, 5) | FROM(m, 6) | FROM(m, 7))
#define ENTRIES4(m)  ENTRY(m), ENTRY((m) + 1), ENTRY((m) + 2), ENTRY((m) + 3)
#define ENTRIES16(m) ENTRIES4(m), ENTRIES4((m) + 4), ENTRIES4((m) + 8), ENTRIES4((m) + 12)
#define ENTRIES64(m) ENTRIES16(m), ENTRIES16((m) + 16), ENTRIES16((m) + 32), ENTRIES16((m) + 48)
static const uint64_t order[256] = {ENTRIES64(0), ENTRIES64(64), ENTRIES64(128), ENTRIES64(192)};

/* The next eight values of a child. */
static inline __m128i next8(gw_child child, size_t at)
{
    return child.labels == NULL ? _mm_set1_epi8((char)child.label)
                               : _mm_loadl_epi64((const __m128i *)(const void *)(child.labels + at));
}

static inline void merge8(uint8_t *out, gw_child left, gw_child right, size_t l, size_t r, unsigned bits)
{
    const __m128i from = _mm_loadl_epi64((const __m128i *)(const void *)&order[bits]);
    const __m128i both = _mm_unpacklo_epi64(next8(left, l), next8(right, r));
    _mm_storel_epi64((__m128i *)(void *)out, _mm_shuffle_epi8(both, from));
}

static inline size_t merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                 size_t len)
{
    size_t r = 0;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        const uint32_t bits = gw_load32(bitmap + i / 8);
        /* Four positions at once, so that a step need not wait for the one before. */
        const size_t l = i - r;
        const unsigned n1 = (unsigned)_mm_popcnt_u32(bits & 0xff),
                       n2 = (unsigned)_mm_popcnt_u32(bits & 0xffff),
                       n3 = (unsigned)_mm_popcnt_u32(bits & 0xffffff);
        merge8(out + i, left, right, l, r, bits & 0xff);
        merge8(out + i + 8, left, right, l + 8 - n1, r + n1, bits >> 8 & 0xff);
        merge8(out + i + 16, left, right, l + 16 - n2, r + n2, bits >> 16 & 0xff);
        merge8(out + i + 24, left, right, l + 24 - n3, r + n3, bits >> 24);
        r += (size_t)_mm_popcnt_u32(bits);
    }
    if (i < len) {
        /* What is loaded and stored beyond the last value stays within the slop of the arrays. */
        uint32_t bits = gw_load32(bitmap + i / 8);
        if (bits >> (len - i) != 0) {
            return SIZE_MAX;
        }
        for (; i < len; i += 8, bits >>= 8) {
            merge8(out + i, left, right, i - r, r, bits & 0xff);
            r += (size_t)_mm_popcnt_u32(bits & 0xff);
        }
    }
    return r;
}

size_t gw_merge_avx2(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
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
typedef int gw_merge_avx2_not_built; /* a translation unit must not be empty */
#endif
