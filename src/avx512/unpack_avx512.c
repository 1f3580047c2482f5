/*
 * Unpack: 64 numbers of w bits a step (docs/format.md section 3, planes, and 5.2, runs of leaves).
 *
 * Numbers 8q .. 8q + 7 lie in the w bytes from byte q * w. One byte shuffle moves these, and what follows
 * them, to the q-th 64 bits of a register; one multishift extracts eight numbers, with bits of their
 * neighbours above. A table lookup takes the low 6 (or 7) bits of an index only: smaller tables are repeated
 * to 64 entries, and no mask is needed.
 *
 * Bound: a load (across two lines three times of four), two shuffles and a store, a third shuffle instead of
 * the mask with a table: 2 to 3 cycles for 64 numbers on Zen 4, where shuffles have one port of 512 bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"
#include "gcomp/bit_runs.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* 64 / 2^width copies of the table. */
GW_TEMPLATE __m512i repeat(const uint8_t *table, unsigned width)
{
    switch (width) {
    case 1:
        return _mm512_set1_epi16((short)gw_load16(table));
    case 2:
        return _mm512_set1_epi32((int)gw_load32(table));
    case 3:
        return _mm512_set1_epi64((long long)gw_load64(table));
    case 4:
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    case 5:
        return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)table));
    default:
        return _mm512_loadu_si512(table);
    }
}

GW_TEMPLATE int unpack_width(uint8_t *out, const uint8_t *src, size_t len, unsigned width,
                             const uint8_t *table)
{
    const size_t size = gw_run_size(len, width);
    const __m512i bytes_up = _mm512_set1_epi64(0x0706050403020100);
    const __m512i ones = _mm512_set1_epi64(0x0101010101010101);
    const __m512i row = _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), ones);
    const __m512i w = _mm512_set1_epi64((long long)width);
    const __m512i pick = _mm512_add_epi8(bytes_up, _mm512_mullo_epi64(row, w));
    const __m512i shift = _mm512_mullo_epi64(bytes_up, w);
    const __m512i mask = _mm512_set1_epi8((char)((1u << width) - 1));
    __m512i low = mask, high = mask;
    if (table != NULL) {
        low = repeat(table, width);
        high = width == 7 ? _mm512_loadu_si512(table + 64) : low;
    }
    size_t at = 0;
    for (size_t i = 0; i < len; i += 64, at += 8 * (size_t)width) {
        const __m512i x = size - at >= 64 ? _mm512_loadu_si512(src + at)
                                          : _mm512_maskz_loadu_epi8(gw_low_mask(size - at), src + at);
        const __m512i y = _mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(pick, x));
        if (table == NULL) {
            _mm512_storeu_si512(out + i, _mm512_and_si512(y, mask));
        } else if (width < 7) {
            _mm512_storeu_si512(out + i, _mm512_permutexvar_epi8(y, low));
        } else {
            _mm512_storeu_si512(out + i, _mm512_permutex2var_epi8(low, y, high));
        }
    }
    const unsigned used = (unsigned)(len * width % 32);
    return used == 0 || gw_load32(src + size - 4) >> used == 0;
}

/* One bit chooses one of two bytes: a blend. */
GW_TEMPLATE int unpack_bits(uint8_t *out, const uint8_t *src, size_t len, uint8_t zero, uint8_t one)
{
    const __m512i zeros = _mm512_set1_epi8((char)zero), ones = _mm512_set1_epi8((char)one);
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        _mm512_storeu_si512(out + i, _mm512_mask_blend_epi8(gw_load64(src + i / 8), zeros, ones));
    }
    if (i == len) {
        return 1;
    }
    const uint64_t bits = len - i > 32 ? gw_load64(src + i / 8) : gw_load32(src + i / 8);
    _mm512_storeu_si512(out + i, _mm512_mask_blend_epi8(bits, zeros, ones));
    return bits >> (len - i) == 0;
}

int gw_unpack_avx512(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table)
{
    if (width == 1) {
        return table == NULL ? unpack_bits(out, src, len, 0, 1)
                             : unpack_bits(out, src, len, table[0], table[1]);
    }
#define UNPACK(w)                                                                                            \
    return table == NULL ? unpack_width(out, src, len, w, NULL) : unpack_width(out, src, len, w, table)
    GW_SWITCH_WIDTH(width, UNPACK)
    return 0;
}

#else
typedef int gw_unpack_avx512_not_built; /* a translation unit must not be empty */
#endif
