/*
 * Kernels of the classic codecs: types, contracts, slots. Three sections, one for each owner: cast and sign,
 * sparse, level.
 *
 * Every backend gives the results of the scalar kernels bit for bit. Byte and void pointers have any
 * alignment and point to little-endian data; float pointers are aligned for float unless the contract says
 * otherwise, and point to numbers in the machine's byte order. A kernel reads and writes exactly the ranges
 * named. Float arithmetic is IEEE fp32 or fp64 +, -, *, / in the order written, never contracted; magnitudes
 * are compared as bit patterns, so that flush-to-zero modes change nothing. `flush` makes +0 of zeros and
 * subnormals (core/float_bits.h). `narrow` rounds an fp64 number to fp32: magnitudes below 2^-126 are +0,
 * above the largest fp32 (after rounding to nearest even) infinite. docs/numerics-classic.md derives the
 * rules.
 *
 * Values come in by thc.load: flush(flush(value) + flush(residual)), of any dtype and alignment.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_KERNELS_H
#define GW_CLASSIC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Random bits: Philox4x32-10 with the key `seed` and the counter {low half of c, high half of c | domain,
 * round, rank or 0}. c is a number made from an element number, below 2^61; each use has a domain. */
#define GW_CLASSIC_DOMAIN_LEVELS    0x20000000u
#define GW_CLASSIC_DOMAIN_TIES      0x40000000u
#define GW_CLASSIC_DOMAIN_POSITIONS 0x60000000u

/* ---- all families ---------------------------------------------------------------------------------------
 */

/* multiply: x[i] = narrow((double)flush(x[i]) * scale). scale is a normal number. A NaN stays NaN with any
 * payload.
 */
typedef void gw_multiply_fn(float *x, size_t len, float scale);

/* accumulate: sum[i] = flush(flush(sum[i]) + flush(x[i])), NaN as 7fc00000; sum at any alignment. */
typedef void gw_accumulate_fn(float *sum, const float *x, size_t len);

/* ---- cast and sign --------------------------------------------------------------------------------------
 */

/* cast: dst[i] = src[i] in another or the same dtype (gw_dtype), rounded once to nearest even. Subnormals and
 * -0 stay, NaN becomes the canonical quiet NaN (7fc00000, 7fc0, 7e00), what is too large infinite. */
typedef void gw_cast_fn(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len);

/* sign_pack: bit i % 8 of bits[i / 8] = 1 where src[i] is negative: its sign bit is set, and flush(src[i] as
 * fp32) is not 0. Spare bits of the last byte are 0. Returns 1 if a value is NaN or infinite, else 0. */
typedef uint32_t gw_sign_pack_fn(uint8_t *bits, const void *src, unsigned dtype, size_t len);

typedef struct gw_sign_sums {
    double negative; /* sum of values below 0 */
    double positive; /* sum of the others */
    size_t negative_count;
} gw_sign_sums;

/* sign_sums: x is finite and flushed. In fp64, all of them +0 at first: accumulator j of 16 adds x[j], x[j +
 * 16], ... where they are below 0, in this order, another one the others; then accumulator j adds accumulator
 * j + h for h = 8, 4, 2, 1, j < h; accumulator 0 is the sum. len <= 4096. */
typedef void gw_sign_sums_fn(gw_sign_sums *sums, const float *x, size_t len);

/* sign_residual: residual[i] = flush(x[i] - (x[i] < 0 ? negative : positive)). x is flushed and finite;
 * residual at any alignment. */
typedef void gw_sign_residual_fn(float *residual, const float *x, size_t len, float positive, float negative);

/* sign_momentum: dst[i] = narrow((double)beta * flush(momentum[i]) + (double)rest * x[i]), two products that
 * are exact and one fp64 addition. x is flushed; dst and momentum at any alignment; dst may be momentum, or
 * x. NaN stays NaN with any payload. */
typedef void gw_sign_momentum_fn(float *dst, const float *momentum, const float *x, size_t len, float beta,
                                 float rest);

/* sign_unpack: dst[i] = bit first + i of bits ? negative : positive, first <= 7. Elements are the low `size`
 * bytes of the numbers given, 2 or 4. */
typedef void gw_sign_unpack_fn(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                               uint32_t positive, uint32_t negative);

/* sign_add: accumulate of what sign_unpack decodes; positive and negative are flushed. */
typedef void gw_sign_add_fn(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                            float negative);

/* sign_votes: lanes[i] += bit i of bits ? -1 : 1. lanes aligned to 4. Wraps around (only where the caller's
 * lanes are no sums). */
typedef void gw_sign_votes_fn(int32_t *lanes, const uint8_t *bits, size_t len);

/* sign_majority: bit i of bits = lanes[i] < 0, or bit i of ties where lanes[i] is 0. Spare bits are 0. */
typedef void gw_sign_majority_fn(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len);

/* ---- sparse: TOPK, DGC, RANDK ---------------------------------------------------------------------------
 */

/* Float pointers of this section have any alignment, but for x of sparse_momentum and sparse_squares. */

/* A range of values that is searched. */
typedef struct gw_sparse_scan {
    uint32_t first;   /* in: the number of x[0] */
    uint32_t bound;   /* in: the least magnitude that is taken, as a bit pattern: 0, or at least 2^-126's */
    uint32_t largest; /* in, out: maximum with the magnitudes of x[0..len) as bit patterns */
} gw_sparse_scan;

/* sparse_select: the values of a magnitude of at least scan->bound, in order: positions[j] = scan->first + i,
 * values[j] = flush(x[i]). Returns how many there are. All of positions[0..len) and values[0..len) may be
 * written, whatever is found; positions and values are aligned. x points to numbers in the machine's byte
 * order. */
typedef size_t gw_sparse_select_fn(uint32_t *positions, float *values, const void *x, size_t len,
                                   gw_sparse_scan *scan);

/* What a step of DGC does to a value. A floor is the bit pattern of the least magnitude whose product with
 * the factor is at least 2^-126, so that narrow((double)a * b) is a * b from there on and +0 below; 7f800000
 * if there is none. Made by gw_sparse_step_make() of classic/sparse_value.h. */
typedef struct gw_sparse_step {
    float momentum; /* 0 <= m < 1 */
    float factor;   /* 0..1, of clipping; 1: none */
    uint32_t momentum_floor, factor_floor;
    int nesterov;
} gw_sparse_step;

/* sparse_momentum: y = narrow((double)x[i] * factor), w = flush(narrow((double)m * flush(u[i])) + y),
 * u_next[i] = w, v_next[i] = flush(flush(v[i]) + w), or with Nesterov flush(flush(v[i]) +
 * flush(narrow((double)m * w) + y)). x is flushed. u_next may be u, and v_next v; else arrays do not overlap.
 * NaN stays NaN with any payload, and so does the product of 0 and infinity. */
typedef void gw_sparse_momentum_fn(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                                   size_t len, const gw_sparse_step *step);

enum { GW_SPARSE_SUMS = 16 };

/* sparse_squares: sums[i % 16] += x[i] * x[i] in fp64, in ascending order of i. x is flushed. */
typedef void gw_sparse_squares_fn(double sums[GW_SPARSE_SUMS], const float *x, size_t len);

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
/* Counter words 0 (of the first of 16 counters) and 1 of a group. */
static inline uint32_t gw_level_counter_low(uint64_t group)
{
    return (uint32_t)(group << 4);
}

static inline uint32_t gw_level_counter_high(uint64_t group)
{
    return (uint32_t)((group & GW_LEVEL_GROUP_MASK) >> 28) | GW_CLASSIC_DOMAIN_LEVELS;
}

/* level_random: sixteen random bits for each of 128 * group_count elements, from group `first` on; group
 * numbers wrap at 2^57. Element 32 w + 16 h + l of group g gets half h (0 low) of word w of Philox4x32-10
 * with the key `seed` and the counter {low 32 bits of c, the other 29 bits of c | GW_CLASSIC_DOMAIN_LEVELS,
 * round, rank}, c = 16 g + l. */
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

/* ---- the table ------------------------------------------------------------------------------------------
 */

typedef struct gw_classic_kernels {
    /* all families */
    gw_multiply_fn *multiply;
    gw_accumulate_fn *accumulate;
    /* cast and sign */
    gw_cast_fn *cast;
    gw_sign_pack_fn *sign_pack;
    gw_sign_sums_fn *sign_sums;
    gw_sign_residual_fn *sign_residual;
    gw_sign_momentum_fn *sign_momentum;
    gw_sign_unpack_fn *sign_unpack;
    gw_sign_add_fn *sign_add;
    gw_sign_votes_fn *sign_votes;
    gw_sign_majority_fn *sign_majority;
    /* sparse */
    gw_sparse_select_fn *sparse_select;
    gw_sparse_momentum_fn *sparse_momentum;
    gw_sparse_squares_fn *sparse_squares;
    /* level */
    gw_level_random_fn *level_random;
    gw_level_largest_fn *level_largest;
    gw_level_moments_fn *level_moments;
    gw_level_quantize_fn *level_quantize;
    gw_level_decode_fn *level_decode;
} gw_classic_kernels;

#define GW_DECLARE_SIGN_KERNELS(backend)                                                                     \
    gw_multiply_fn gw_multiply_##backend;                                                                    \
    gw_accumulate_fn gw_accumulate_##backend;                                                                \
    gw_cast_fn gw_cast_##backend;                                                                            \
    gw_sign_pack_fn gw_sign_pack_##backend;                                                                  \
    gw_sign_sums_fn gw_sign_sums_##backend;                                                                  \
    gw_sign_residual_fn gw_sign_residual_##backend;                                                          \
    gw_sign_momentum_fn gw_sign_momentum_##backend;                                                          \
    gw_sign_unpack_fn gw_sign_unpack_##backend;                                                              \
    gw_sign_add_fn gw_sign_add_##backend;                                                                    \
    gw_sign_votes_fn gw_sign_votes_##backend;                                                                \
    gw_sign_majority_fn gw_sign_majority_##backend

#define GW_DECLARE_SPARSE_KERNELS(backend)                                                                   \
    gw_sparse_select_fn gw_sparse_select_##backend;                                                          \
    gw_sparse_momentum_fn gw_sparse_momentum_##backend;                                                      \
    gw_sparse_squares_fn gw_sparse_squares_##backend

#define GW_DECLARE_LEVEL_KERNELS(backend)                                                                    \
    gw_level_random_fn gw_level_random_##backend;                                                            \
    gw_level_largest_fn gw_level_largest_##backend;                                                          \
    gw_level_moments_fn gw_level_moments_##backend;                                                          \
    gw_level_quantize_fn gw_level_quantize_##backend;                                                        \
    gw_level_decode_fn gw_level_decode_##backend

/* For GW_DECLARE_KERNELS() of core/kernels.h. */
#define GW_DECLARE_CLASSIC_KERNELS(backend)                                                                  \
    GW_DECLARE_SIGN_KERNELS(backend);                                                                        \
    GW_DECLARE_SPARSE_KERNELS(backend);                                                                      \
    GW_DECLARE_LEVEL_KERNELS(backend)

#endif
