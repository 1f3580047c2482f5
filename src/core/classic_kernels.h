/*
 * Kernels of the classic codecs: types, contracts, slots.
 *
 * Every backend gives the results of the scalar kernels bit for bit. Typed pointers are aligned for their
 * type and point to numbers in the machine's byte order. A kernel reads and writes exactly the ranges named.
 * Float arithmetic is IEEE fp32 or fp64 +, -, *, / in the order written, never contracted.
 * docs/numerics-classic.md derives the rules.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_KERNELS_H
#define GW_CLASSIC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* ---- level: QSGD, TERNGRAD ------------------------------------------------------------------------------
 */

/* What selects the random bits of a call. */
typedef struct gw_level_stream {
    uint64_t seed;
    uint32_t round;
    uint32_t rank;
} gw_level_stream;

/* Random bits come in groups of 128 elements. */
#define GW_LEVEL_GROUP_LEN 128u
/* Groups are numbered modulo 2^57. */
#define GW_LEVEL_GROUP_MASK (((uint64_t)1 << 57) - 1)
/* The top three bits of counter word 1: random bits of levels. */
#define GW_LEVEL_DOMAIN 0x20000000u

/* Counter words 0 (of the first of 16 counters) and 1 of a group. */
static inline uint32_t gw_level_counter_low(uint64_t group)
{
    return (uint32_t)(group << 4);
}

static inline uint32_t gw_level_counter_high(uint64_t group)
{
    return (uint32_t)((group & GW_LEVEL_GROUP_MASK) >> 28) | GW_LEVEL_DOMAIN;
}

/* level_random: sixteen random bits for each of 128 * group_count elements, from group `first` on; group
 * numbers wrap at 2^57. Element 32 w + 16 h + l of group g gets half h (0 low) of word w of Philox4x32-10
 * with the key `seed` and the counter {low 32 bits of c, the other 29 bits of c | GW_LEVEL_DOMAIN, round,
 * rank}, c = 16 g + l. */
typedef void gw_level_random_fn(uint16_t *random, uint64_t first, size_t group_count,
                                const gw_level_stream *stream);

/* What is known of the values of a block so far. */
typedef struct gw_level_moments {
    double sum;
    double squares;
    uint32_t largest; /* pattern of the largest magnitude */
} gw_level_moments;

/* level_largest: pattern of the largest magnitude of x[0..len); 0 for len 0. NaN and infinity have patterns,
 * too. */
typedef uint32_t gw_level_largest_fn(const float *x, size_t len);

/* level_moments: adds a piece of a block to *moments; x is flushed: neither subnormal nor -0. If the piece
 * has NaN or infinity, sum and squares stay. Else, in fp64: accumulator j of 16 adds x[j], x[j + 16], ... in
 * this order, another one their squares; then accumulator j adds accumulator j + h for h = 8, 4, 2, 1, j < h;
 * accumulator 0 is added to what *moments has. Nothing overflows: len <= 2^32, and there are at most 2^32
 * values in all. */
typedef void gw_level_moments_fn(gw_level_moments *moments, const float *x, size_t len);

/* How values become levels. */
typedef struct gw_level_rule {
    float scale;        /* positions, 1/65536 of a level, per unit of x; finite, not negative */
    uint32_t level_max; /* 1..127 */
} gw_level_rule;

/* level_quantize: with position = truncate(min(|x| * scale + 0.5, 65536 * level_max)), levels[i] has the
 * magnitude (position + random[i]) >> 16 and the sign of x. x is finite and flushed. */
typedef void gw_level_quantize_fn(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                                  const gw_level_rule *rule);

/* level_decode: dst[i] = (float)levels[i] * step, one rounding. step is 0 or at least 2^-110, so no result is
 * subnormal; -0 (step 0, a negative level) stays. */
typedef void gw_level_decode_fn(float *dst, const int8_t *levels, size_t len, float step);

typedef struct gw_classic_kernels {
    gw_level_random_fn *level_random;
    gw_level_largest_fn *level_largest;
    gw_level_moments_fn *level_moments;
    gw_level_quantize_fn *level_quantize;
    gw_level_decode_fn *level_decode;
} gw_classic_kernels;

/* For GW_DECLARE_KERNELS() of core/kernels.h. */
#define GW_DECLARE_CLASSIC_KERNELS(backend)                                                                  \
    gw_level_random_fn gw_level_random_##backend;                                                            \
    gw_level_largest_fn gw_level_largest_##backend;                                                          \
    gw_level_moments_fn gw_level_moments_##backend;                                                          \
    gw_level_quantize_fn gw_level_quantize_##backend;                                                        \
    gw_level_decode_fn gw_level_decode_##backend

#endif
