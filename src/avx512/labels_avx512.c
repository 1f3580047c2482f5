/*
 * Labels before their codebook is known: counted in pairs (core/label_pairs.h), and then made ranks by a
 * table of 256 bytes in four registers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"
#include "core/label_pairs.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

static uint32_t largest_of(const uint8_t *labels, size_t len)
{
    __m512i largest = _mm512_setzero_si512();
    for (size_t i = 0; i < len; i += 64) {
        largest = _mm512_max_epu8(largest, _mm512_maskz_loadu_epi8(gw_low_mask(len - i), labels + i));
    }
    uint8_t bytes[64];
    uint8_t result = 0;
    _mm512_storeu_si512(bytes, largest);
    for (size_t i = 0; i < 64; i++) {
        result = bytes[i] > result ? bytes[i] : result;
    }
    return result;
}

void gw_count_avx512(uint32_t *count, const uint8_t *labels, size_t len)
{
    const uint32_t floor_label = gw_class_floor(largest_of(labels, len));
    const __m512i class_floor = _mm512_set1_epi8((char)floor_label);
    const __m512i one = _mm512_set1_epi8(1);
    const __m512i weight = _mm512_set1_epi16(1 | GW_CLASSES << 8);
    gw_label_pairs table;
    uint16_t pair[GW_PAIR_BATCH];
    uint8_t few[2 * GW_PAIR_BATCH + GW_SLOP]; /* labels without a class that are not 0 */
    uint32_t others = 0;
    GW_MEMSET(&table, 0, sizeof table);
    for (size_t first = 0; first < len; first += 2 * GW_PAIR_BATCH) {
        const size_t end = len - first < 2 * GW_PAIR_BATCH ? len : first + 2 * GW_PAIR_BATCH;
        size_t pairs = 0;
        uint32_t few_len = 0;
        for (size_t i = first; i < end; i += 64, pairs += 32) {
            const __m512i label = _mm512_maskz_loadu_epi8(gw_low_mask(end - i), labels + i);
            const __m512i class = _mm512_subs_epu8(label, class_floor);
            const __mmask64 is_other = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(label, one), class_floor);
            _mm512_storeu_si512(pair + pairs, _mm512_maddubs_epi16(class, weight));
            _mm512_storeu_si512(few + few_len, _mm512_maskz_compress_epi8(is_other, label));
            few_len += (uint32_t)_mm_popcnt_u64(is_other);
        }
        gw_count_pairs(&table, pair, pairs);
        for (uint32_t i = 0; i < few_len; i++) {
            count[few[i]]++;
        }
        others += few_len;
    }
    others += gw_fold_pairs(count, &table, floor_label);
    count[0] += (uint32_t)len - others;
}

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
