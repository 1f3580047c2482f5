/*
 * Values of a magnitude of at least a bound: compressed in registers, then stored whole, because compressing
 * stores are slow on Zen 4. A whole store ends within the arrays: fewer values were found than read.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/sparse_value.h"

size_t gw_sparse_select_avx512(uint32_t *positions, float *values, const void *x, size_t len,
                               gw_sparse_scan *scan)
{
    const __m512i bound = _mm512_set1_epi32((int)scan->bound), abs = _mm512_set1_epi32((int)GW_F32_ABS);
    __m512i number = _mm512_add_epi32(_mm512_set1_epi32((int)scan->first),
                                      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    __m512i largest = _mm512_set1_epi32((int)scan->largest);
    const uint8_t *const src = (const uint8_t *)x;
    size_t i = 0, count = 0;
    for (; i + 16 <= len; i += 16) {
        const __m512i bits = _mm512_loadu_si512(src + 4 * i);
        const __m512i magnitude = _mm512_and_si512(bits, abs);
        const __mmask16 is_taken = _mm512_cmpge_epu32_mask(magnitude, bound);
        largest = _mm512_max_epu32(largest, magnitude);
        _mm512_storeu_si512(positions + count, _mm512_maskz_compress_epi32(is_taken, number));
        _mm512_storeu_si512(values + count, _mm512_maskz_compress_epi32(is_taken, gw_flush16(bits)));
        count += (size_t)_mm_popcnt_u32(is_taken);
        number = _mm512_add_epi32(number, _mm512_set1_epi32(16));
    }
    scan->largest = _mm512_reduce_max_epu32(largest);
    return gw_sparse_select_values(positions, values, x, i, len, scan, count);
}

#else
typedef int gw_classic_select_avx512_not_built; /* a translation unit must not be empty */
#endif
