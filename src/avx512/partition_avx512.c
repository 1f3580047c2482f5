/*
 * Partition: an inner node of the code tree, 64 values at a time (docs/format.md section 5.2).
 *
 * One comparison is the 64 bits of the bitmap; two compresses, in registers (the memory form is microcode on
 * Zen 4), compact the children. Stores are whole vectors: what they write after a child's last rank is
 * overwritten by the next store or is slop. In place, a store of the left child ends where the loaded vector
 * ends, at most.
 *
 * Bound on Zen 4: compress 1.33 cycles each, store 1 each (2 across a line), mask to register 2; about 6.5 of
 * 64 values, 0.1 cycles/value, with both children.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* Returns the bitmap of up to 64 ranks, those of `valid`. */
GW_TEMPLATE uint64_t partition64(uint8_t *left, uint8_t *right, const uint8_t *ranks, __m512i pivot,
                                 uint64_t valid, int has_left, int has_right)
{
    const __m512i x = _mm512_loadu_si512(ranks);
    const uint64_t bits = _mm512_cmpge_epu8_mask(x, pivot) & valid;
    if (has_left) {
        _mm512_storeu_si512(left, _mm512_mask_compress_epi8(x, ~bits, x));
    }
    if (has_right) {
        _mm512_storeu_si512(right, _mm512_mask_compress_epi8(x, bits, x));
    }
    return bits;
}

GW_TEMPLATE size_t partition_sides(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                   size_t len, uint8_t pivot, int has_left, int has_right)
{
    const __m512i least = _mm512_set1_epi8((char)pivot);
    size_t r = 0;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        const uint64_t bits = partition64(has_left ? left + (i - r) : NULL, has_right ? right + r : NULL,
                                          ranks + i, least, UINT64_MAX, has_left, has_right);
        GW_MEMCPY(bitmap + i / 8, &bits, 8);
        r += (size_t)_mm_popcnt_u64(bits);
    }
    if (i < len) {
        const uint64_t valid = ((uint64_t)1 << (len - i)) - 1;
        const uint64_t bits = partition64(has_left ? left + (i - r) : NULL, has_right ? right + r : NULL,
                                          ranks + i, least, valid, has_left, has_right);
        GW_MEMCPY(bitmap + i / 8, &bits, len - i <= 32 ? 4 : 8);
        r += (size_t)_mm_popcnt_u64(bits);
    }
    return r;
}

size_t gw_partition_avx512(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks, size_t len,
                           uint8_t pivot)
{
    return GW_BY_SIDES(partition_sides, left != NULL, right != NULL, left, right, bitmap, ranks, len, pivot);
}

#else
typedef int gw_partition_avx512_not_built; /* a translation unit must not be empty */
#endif
