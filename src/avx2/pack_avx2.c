/*
 * Pack: numbers of 1 to 7 bits, 32 at a time.
 *
 * Neighbours are combined by multiplications with powers of two: bytes to pairs, pairs to fours, then fours
 * to eights by a shift. Eight numbers of w bits are w bytes at the bottom of 64 bits, and one shuffle closes
 * the gaps.
 *
 * Bound: 13 instructions for 32 numbers (0.09 cycles a number at 4.5 a cycle); measured on Zen 4: 0.11.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "gcomp/bit_runs.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

/* 16 numbers of w bits: the low w bytes of both halves of 128 bits together. Bytes beyond are zero. */
#define CLOSE(w, j) ((char)((j) < (w) ? (j) : (j) < 2 * (w) ? 8 + (j) - (w) : -1))

GW_TEMPLATE __m256i pack32(__m256i x, unsigned w)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    const __m256i close = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        CLOSE((int)w, 0), CLOSE((int)w, 1), CLOSE((int)w, 2), CLOSE((int)w, 3), CLOSE((int)w, 4),
        CLOSE((int)w, 5), CLOSE((int)w, 6), CLOSE((int)w, 7), CLOSE((int)w, 8), CLOSE((int)w, 9),
        CLOSE((int)w, 10), CLOSE((int)w, 11), CLOSE((int)w, 12), CLOSE((int)w, 13), -1, -1));
    if (w == 7) {
        /* 2^7 does not fit a signed byte. */
        x = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)),
                            _mm256_srli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f00)), 1));
    } else {
        x = _mm256_maddubs_epi16(x, _mm256_set1_epi16((short)(1 | 1 << w << 8)));
    }
    x = _mm256_madd_epi16(x, _mm256_set1_epi32(1 | 1 << 2 * w << 16));
    x = _mm256_or_si256(_mm256_and_si256(x, low),
                        _mm256_srli_epi64(_mm256_andnot_si256(low, x), (int)(32 - 4 * w)));
    return _mm256_shuffle_epi8(x, close);
}

/* 4 * w bytes to dst; up to 2 * w + 16 bytes may be written. */
GW_TEMPLATE void pack_block(uint8_t *dst, const uint8_t *digits, __m256i bias, unsigned w)
{
    const __m256i x = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)digits), bias);
    if (w == 1) {
        gw_store32(dst, (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(x, 7)));
        return;
    }
    const __m256i packed = pack32(x, w);
    _mm_storeu_si128((__m128i *)(void *)dst, _mm256_castsi256_si128(packed));
    _mm_storeu_si128((__m128i *)(void *)(dst + 2 * w), _mm256_extracti128_si256(packed, 1));
}

GW_TEMPLATE void pack_width(uint8_t *dst, const uint8_t *digits, size_t len, unsigned w, uint8_t bias)
{
    const __m256i minus = _mm256_set1_epi8((char)bias);
    const size_t size = gw_run_size(len, w);
    const size_t written = w == 1 ? 4 : 2 * w + 16;
    size_t i = 0;
    size_t at = 0;
    for (; i + 32 <= len && at + written <= size; i += 32, at += 4 * w) {
        pack_block(dst + at, digits + i, minus, w);
    }
    for (; i < len; i += 32, at += 4 * w) {
        uint8_t block[32], packed[32];
        const size_t rest = len - i < 32 ? len - i : 32;
        GW_MEMSET(block, bias, sizeof block);
        GW_MEMCPY(block, digits + i, rest);
        pack_block(packed, block, minus, w);
        GW_MEMCPY(dst + at, packed, gw_run_size(rest, w));
    }
}

void gw_pack_avx2(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t bias)
{
#define PACK(w) pack_width(dst, digits, len, w, bias)
    GW_SWITCH_WIDTH(width, PACK)
}

#else
typedef int gw_pack_avx2_not_built; /* a translation unit must not be empty */
#endif
