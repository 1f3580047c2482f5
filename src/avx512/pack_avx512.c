/*
 * Pack: numbers of 1 to 7 bits, 64 at a time.
 *
 * Multiplications with powers of two join neighbours, bytes to pairs and pairs to fours; a shift within 64
 * bits joins fours to eights. Eight numbers of w bits then are w bytes at the bottom of a word, and one
 * permute closes the gaps between the eight words. 6 bits need no last shift: four digits are three whole
 * bytes.
 *
 * Bound on Zen 4: load and store one cycle each, multiply-adds and permute one each: 4 cycles for 64 numbers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"
#include "gcomp/bit_runs.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

/* Position of byte j of the result: word j / w, byte j mod w; 6 bits: the lower three of four bytes. */
static __m512i gaps_of(unsigned w)
{
    uint8_t at[64];
    for (unsigned j = 0; j < 64; j++) {
        at[j] = (uint8_t)((w == 6 ? j / 3 * 4 + j % 3 : j / w * 8 + j % w) & 63);
    }
    return _mm512_loadu_si512(at);
}

/* 64 numbers to the low 8w bytes. */
GW_TEMPLATE __m512i pack64(__m512i x, __m512i gaps, unsigned w)
{
    if (w == 7) {
        /* 2^7 does not fit a signed byte. */
        x = _mm512_ternarylogic_epi32(_mm512_srli_epi16(x, 1), x, _mm512_set1_epi16(0x7f), 0xd8);
    } else {
        x = _mm512_maddubs_epi16(x, _mm512_set1_epi16((short)(1 | 1 << w << 8)));
    }
    x = _mm512_madd_epi16(x, _mm512_set1_epi32(1 | 1 << 2 * w << 16));
    if (w != 6) {
        x = _mm512_ternarylogic_epi64(_mm512_srli_epi64(x, 32 - 4 * w), x,
                                      _mm512_set1_epi64((1ll << 4 * w) - 1), 0xd8);
    }
    return _mm512_permutexvar_epi8(gaps, x);
}

GW_TEMPLATE void pack_width(uint8_t *dst, const uint8_t *digits, size_t len, unsigned w, uint8_t bias)
{
    const __m512i minus = _mm512_set1_epi8((char)bias);
    const __m512i gaps = gaps_of(w);
    const size_t size = gw_run_size(len, w);
    size_t i = 0;
    size_t at = 0;
    /* A vector is stored whole where it ends within the run: the next store overwrites the excess. */
    for (; i + 64 <= len && at + 64 <= size; i += 64, at += 8 * w) {
        const __m512i x = _mm512_sub_epi8(_mm512_loadu_si512(digits + i), minus);
        _mm512_storeu_si512(dst + at, pack64(x, gaps, w));
    }
    for (; i < len; i += 64, at += 8 * w) {
        const size_t left = len - i;
        const uint64_t valid = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
        const size_t bytes = size - at < 8 * w ? size - at : 8 * w;
        const __m512i x = _mm512_maskz_sub_epi8(valid, _mm512_loadu_si512(digits + i), minus);
        _mm512_mask_storeu_epi8(dst + at, ((uint64_t)1 << bytes) - 1, pack64(x, gaps, w));
    }
}

/* Single bits are a mask already. */
static void pack_bits(uint8_t *dst, const uint8_t *digits, size_t len, uint8_t bias)
{
    const __m512i zero = _mm512_set1_epi8((char)bias);
    for (size_t i = 0; i < len; i += 64) {
        const size_t left = len - i;
        const uint64_t bits = _mm512_cmpneq_epi8_mask(_mm512_loadu_si512(digits + i), zero);
        if (left >= 64) {
            GW_MEMCPY(dst + i / 8, &bits, 8);
        } else {
            const uint64_t kept = bits & (((uint64_t)1 << left) - 1);
            GW_MEMCPY(dst + i / 8, &kept, left <= 32 ? 4 : 8);
        }
    }
}

void gw_pack_avx512(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t bias)
{
    if (width == 1) {
        pack_bits(dst, digits, len, bias);
        return;
    }
#define PACK(w) pack_width(dst, digits, len, w, bias)
    GW_SWITCH_WIDTH(width, PACK)
}

#else
typedef int gw_pack_avx512_not_built; /* a translation unit must not be empty */
#endif
