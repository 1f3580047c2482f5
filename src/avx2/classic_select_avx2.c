/*
 * Values of a magnitude of at least a bound, 8 at a time: a permutation by the bits of the comparison moves
 * them to the front, and whole registers are stored. Those end within the arrays: fewer values were found
 * than read.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "avx2/byte_orders_avx2.h"
#include "classic/sparse_value.h"

size_t gw_sparse_select_avx2(uint32_t *positions, float *values, const void *x, size_t len,
                             gw_sparse_scan *scan)
{
    /* Compared as signed numbers: a bound of 0 becomes -1, below all magnitudes, one of 2^31 and more the
     * largest. */
    const __m256i below = _mm256_set1_epi32((int)(gw_min_u32(scan->bound, 0x80000000u) - 1));
    const __m256i abs = _mm256_set1_epi32((int)GW_F32_ABS);
    __m256i number =
        _mm256_add_epi32(_mm256_set1_epi32((int)scan->first), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    __m256i largest = _mm256_setzero_si256();
    const uint8_t *const src = (const uint8_t *)x;
    size_t i = 0, count = 0;
    for (; i + 8 <= len; i += 8) {
        const __m256i bits = gw_load256(src + 4 * i);
        const __m256i magnitude = _mm256_and_si256(bits, abs);
        const __m256i is_taken = _mm256_cmpgt_epi32(magnitude, below);
        const uint32_t taken = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_taken));
        const __m128i order8 = _mm_loadl_epi64((const __m128i *)(const void *)&gw_orders_set_avx2[taken]);
        const __m256i order = _mm256_cvtepu8_epi32(order8); /* the low three bits of each count */
        largest = _mm256_max_epu32(largest, magnitude);
        gw_store256(positions + count, _mm256_permutevar8x32_epi32(number, order));
        gw_store256(values + count, _mm256_permutevar8x32_epi32(gw_flush8(bits), order));
        count += (size_t)_mm_popcnt_u32(taken);
        number = _mm256_add_epi32(number, _mm256_set1_epi32(8));
    }
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
    const uint32_t found = (uint32_t)_mm_cvtsi128_si32(four);
    scan->largest = found > scan->largest ? found : scan->largest;
    return gw_sparse_select_values(positions, values, x, i, len, scan, count);
}

#else
typedef int gw_classic_select_avx2_not_built; /* a translation unit must not be empty */
#endif
