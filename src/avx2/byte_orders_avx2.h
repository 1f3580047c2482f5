/*
 * Byte shuffles that depend on eight bits, one entry for each value of the eight: expand and compress by a
 * bitmap for machines that lack the instructions.
 *
 * Byte j of an order says where byte j of the result comes from, 128 or more meaning zero.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BYTE_ORDERS_AVX2_H
#define GW_BYTE_ORDERS_AVX2_H

#include "core/bytes.h"

/* Compact: the bytes at set, or at clear bits, in order. An order is loaded as 16 bytes, of which the
 * upper half is ignored; the last entry is padding for that. */
typedef uint64_t gw_gather_orders[256 + 1];
extern const gw_gather_orders gw_orders_set_avx2;
extern const gw_gather_orders gw_orders_clear_avx2;

/* Spread: at set bits the next byte, at clear bits zero. At clear bits the low seven bits, too, count the
 * set bits below. */
typedef struct gw_spread_order {
    uint64_t order;
    uint64_t next; /* number of set bits, in every byte: to be added to the order of the next eight bits */
} gw_spread_order;
extern const gw_spread_order gw_orders_spread_avx2[256];

#if defined(__AVX2__)

#include <immintrin.h>

/* The order of 16 bits, given as 16 times each byte of them. */
static inline __m128i gw_spread16(uint32_t low_times_16, uint32_t high_times_16)
{
    const uint8_t *table = (const uint8_t *)(const void *)gw_orders_spread_avx2;
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(table + low_times_16));
    const double *high = (const double *)(const void *)(table + high_times_16);
    return _mm_add_epi8(_mm_castpd_si128(_mm_loadh_pd(_mm_setzero_pd(), high)), low);
}

/* The orders of bits 0..15 and 16..31. */
static inline __m256i gw_spread32(uint32_t bits)
{
    /* Rotations copy and shift in one instruction. */
    const uint32_t b0 = (bits << 4 | bits >> 28) & 0xff0, b1 = (bits >> 4 | bits << 28) & 0xff0;
    const uint32_t b2 = (bits >> 12 | bits << 20) & 0xff0, b3 = (bits >> 20 | bits << 12) & 0xff0;
    return _mm256_set_m128i(gw_spread16(b2, b3), gw_spread16(b0, b1));
}

/* 16 bytes from low and 16 from high. */
static inline __m256i gw_load_halves(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low)),
        _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

#endif
#endif
