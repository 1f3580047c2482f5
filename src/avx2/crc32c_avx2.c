/*
 * CRC32C with SSE4.2's crc32 instruction.
 *
 * The instruction takes eight bytes, has a latency of three cycles and a throughput of one, so three
 * neighbouring stretches of a buffer are processed in parallel: 8 bytes a cycle is the bound (measured: 7.6),
 * and memory is slower. Their CRCs are combined by a carry-less multiplication with a power of x.
 *
 * Bits are reflected here: the lowest bit of a word is its highest power. With reflected factors the product
 * of two 32-bit words is short of one power of x, and crc32(0, product) multiplies by x^32 and reduces. Hence
 * a CRC that `size` bytes follow has to be multiplied by x^(8 * size - 33).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED) && defined(__PCLMUL__)

#include <immintrin.h>

/* Length of a stretch, and x^(8 * size - 33), x^(16 * size - 33) modulo the polynomial, reflected. */
#define LONG_SIZE  1024u
#define LONG_ONE   0x170076fau
#define LONG_TWO   0xa51b6135u
#define SHORT_SIZE 128u
#define SHORT_ONE  0x0d3b6092u
#define SHORT_TWO  0xb9e02b86u

static inline uint64_t multiply(uint64_t sum, uint32_t power)
{
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)sum), _mm_cvtsi32_si128((int)power), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* The CRC of 3 * size bytes; size is a multiple of 8. */
GW_TEMPLATE uint64_t sum_three(uint64_t sum, const uint8_t *src, size_t size, uint32_t one, uint32_t two)
{
    uint64_t a = sum, b = 0, c = 0;
    for (size_t i = 0; i < size; i += 8) {
        a = _mm_crc32_u64(a, gw_load64(src + i));
        b = _mm_crc32_u64(b, gw_load64(src + size + i));
        c = _mm_crc32_u64(c, gw_load64(src + 2 * size + i));
    }
    return c ^ _mm_crc32_u64(0, multiply(a, two) ^ multiply(b, one));
}

uint32_t gw_crc32c_avx2(uint32_t crc, const uint8_t *src, size_t size)
{
    uint64_t sum = ~crc;
    for (; size >= 3 * LONG_SIZE; size -= 3 * LONG_SIZE, src += 3 * LONG_SIZE) {
        sum = sum_three(sum, src, LONG_SIZE, LONG_ONE, LONG_TWO);
    }
    for (; size >= 3 * SHORT_SIZE; size -= 3 * SHORT_SIZE, src += 3 * SHORT_SIZE) {
        sum = sum_three(sum, src, SHORT_SIZE, SHORT_ONE, SHORT_TWO);
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
typedef int gw_crc32c_avx2_not_built; /* a translation unit must not be empty */
#endif
