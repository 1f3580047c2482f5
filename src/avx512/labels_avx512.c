/*
 * Labels before their codebook is known are replaced by ranks from a table of 256 bytes in four registers.
 * AVX2's kernel counts them: its increments are the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

void gw_rank_avx512(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS])
{
    const __m512i rank0 = _mm512_loadu_si512(rank), rank1 = _mm512_loadu_si512(rank + 64);
    const __m512i rank2 = _mm512_loadu_si512(rank + 128), rank3 = _mm512_loadu_si512(rank + 192);
    for (size_t i = 0; i < len; i += 64) {
        const __m512i label = _mm512_loadu_si512(labels + i);
        const __m512i low = _mm512_permutex2var_epi8(rank0, label, rank1);
        const __m512i high = _mm512_permutex2var_epi8(rank2, label, rank3);
        _mm512_storeu_si512(labels + i, _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(label), high));
    }
}

#else
typedef int gw_labels_avx512_not_built; /* a translation unit must not be empty */
#endif
