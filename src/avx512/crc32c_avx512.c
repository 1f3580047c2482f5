/*
 * CRC32C by folding with carry-less multiplications of 512 bits (VPCLMULQDQ, which not every processor of
 * this backend has: init_avx512.c tests for it).
 *
 * A CRC does not change when a part of the message is replaced by another with the same remainder. 16 bytes,
 * as polynomials lo * x^64 + hi (bits are reflected: the first byte has the highest powers), that are D bits
 * before others are lo * x^(D + 64) + hi * x^D there. With factors x^(D + 32) and x^(D - 32) modulo the
 * polynomial, reflected and shifted left by one, the products are of 96 bits and line up with the 16 bytes to
 * which they are added. Four registers move over the message, 256 bytes a step; at the end they are folded
 * into one, and the crc32 instruction processes its 64 bytes and the rest of the message.
 *
 * Bound: the multiplications, of which 64 bytes take two. Zen 4 has them at 8 bytes a cycle (measured 8.4,
 * with the rest: hardly more than three interleaved crc32 instructions give); where a 512-bit one takes a
 * cycle, memory is the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED) && defined(__VPCLMULQDQ__) && defined(__PCLMUL__)

#include <immintrin.h>

/* x^(D + 32) and x^(D - 32) modulo the polynomial, reflected, times two; D in bits. */
#define FOLD_2048_LOW  0xdcb17aa4
#define FOLD_2048_HIGH 0xb9e02b86
#define FOLD_512_LOW   0x740eef02
#define FOLD_512_HIGH  0x9e4addf8

static inline __m512i fold(__m512i x, __m512i factors, __m512i onto)
{
    const __m512i low = _mm512_clmulepi64_epi128(x, factors, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(x, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96);
}

static inline __m512i factors_of(int64_t low, int64_t high)
{
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

/* The CRC of the first size & ~255 bytes; at least 256. */
static uint64_t sum_blocks(uint32_t sum, const uint8_t *src, size_t size)
{
    const __m512i far = factors_of(FOLD_2048_LOW, FOLD_2048_HIGH),
                  near = factors_of(FOLD_512_LOW, FOLD_512_HIGH);
    __m512i x0 = _mm512_loadu_si512(src), x1 = _mm512_loadu_si512(src + 64);
    __m512i x2 = _mm512_loadu_si512(src + 128), x3 = _mm512_loadu_si512(src + 192);
    /* The CRC of what came before is added to the first four bytes. */
    x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)sum)));
    for (size_t at = 256; at + 256 <= size; at += 256) {
        x0 = fold(x0, far, _mm512_loadu_si512(src + at));
        x1 = fold(x1, far, _mm512_loadu_si512(src + at + 64));
        x2 = fold(x2, far, _mm512_loadu_si512(src + at + 128));
        x3 = fold(x3, far, _mm512_loadu_si512(src + at + 192));
    }
    x3 = fold(fold(fold(x0, near, x1), near, x2), near, x3);
    uint8_t rest[64];
    _mm512_storeu_si512(rest, x3);
    uint64_t out = 0;
    for (unsigned i = 0; i < 64; i += 8) {
        out = _mm_crc32_u64(out, gw_load64(rest + i));
    }
    return out;
}

uint32_t gw_crc32c_avx512(uint32_t crc, const uint8_t *src, size_t size)
{
    uint64_t sum = (uint32_t)~crc;
    if (size >= 512) { /* shorter ones are faster eight bytes at a time */
        sum = sum_blocks((uint32_t)sum, src, size);
        src += size & ~(size_t)255;
        size &= 255;
    }
    for (; size >= 8; size -= 8, src += 8) {
        sum = _mm_crc32_u64(sum, gw_load64(src));
    }
    for (; size > 0; size--, src++) {
        sum = _mm_crc32_u8((uint32_t)sum, *src);
    }
    return ~(uint32_t)sum;
}

#else
typedef int gw_crc32c_avx512_not_built; /* a translation unit must not be empty */
#endif
