/*
 * Stage aggregate: the largest of lanes of one, two or four bytes. Sums are AVX2's: they are bound by stores
 * to L1, 32 bytes a cycle, which two registers of 256 bits reach and one of 512 does not.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

static inline __m512i max_of(__m512i a, __m512i b, unsigned lane_bits)
{
    return lane_bits == 8    ? _mm512_max_epu8(a, b)
           : lane_bits == 16 ? _mm512_max_epu16(a, b)
                             : _mm512_max_epu32(a, b);
}

/* Neighbouring lanes are combined at the end. */
GW_TEMPLATE uint32_t max_all(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits;
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;

    for (; i + 128 <= size; i += 128) {
        a = max_of(a, _mm512_loadu_si512(lanes + i), lane_bits);
        b = max_of(b, _mm512_loadu_si512(lanes + i + 64), lane_bits);
    }
    if (i < size) {
        a = max_of(a, _mm512_loadu_si512(lanes + i), lane_bits);
    }
    a = max_of(a, b, lane_bits);
    if (lane_bits == 8) {
        a = _mm512_max_epu16(_mm512_srli_epi16(a, 8), _mm512_and_si512(a, _mm512_set1_epi16(0xff)));
    }
    if (lane_bits <= 16) {
        a = _mm512_max_epu32(_mm512_srli_epi32(a, 16), _mm512_and_si512(a, _mm512_set1_epi32(0xffff)));
    }
    return _mm512_reduce_max_epu32(a);
}

uint32_t gw_thc_lane_max_avx512(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    return GW_BY_LANE_BITS(max_all, lane_bits, lanes, len);
}

#else
typedef int gw_thc_aggregate_avx512_not_built; /* a translation unit must not be empty */
#endif
