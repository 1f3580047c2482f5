/*
 * Kernels of THC: types, contracts, slots. Read this first to write a backend.
 *
 * Every backend gives the results of the scalar kernels bit for bit. `len` counts values or lanes; where a
 * contract says "lanes" it is a multiple of 64 and at most 8192. A kernel reads and writes exactly the ranges
 * named; float pointers are aligned for float except load's and residual's error; byte and void pointers have
 * any alignment. Typed pointers (float, uint32_t) point to numbers in the machine's byte order, including the
 * caller's error memory; void and byte pointers point to little-endian data (values in a dtype, lanes,
 * indices) on every machine. Float arithmetic is IEEE fp32 or fp64 +, -, *, / in the order written, never
 * contracted; comparisons of magnitudes are made on bit patterns, so flush-to-zero modes change nothing.
 * docs/numerics-thc.md derives the rules.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_KERNELS_H
#define GW_THC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* What selects the random bits of a block: T12 layout, docs/numerics-thc.md "Random bits". */
typedef struct gw_thc_stream {
    uint64_t seed;
    uint32_t block;
    uint32_t round;
    uint32_t rank;
} gw_thc_stream;

/* Word 3 of the counter: domain in the top bit, rank below. */
#define GW_THC_DOMAIN_SIGNS    0u
#define GW_THC_DOMAIN_ROUNDING 0x80000000u

/*
 * How values become indices. position = offset + truncate(min(max(value * scale, low), high)), in 1/65536 of
 * a grid step, 0 <= position <= 65536 * granularity.
 */
typedef struct gw_thc_quantizer {
    float scale;
    float low;
    float high;
    int32_t offset;
    const uint8_t *cell;  /* [256]: grid cell -> index z, table[z] <= cell < table[z + 1] */
    const uint8_t *table; /* [16], all readable; only the first index_max + 1 count */
    uint32_t index_max;   /* 2^bits - 1 */
} gw_thc_quantizer;

/* load: dst[i] = flush(flush(src[i] as fp32) + flush(error[i])), or flush(src[i] as fp32) where error is
 * NULL, for i < len; +0 for len <= i < padded_len. dtype is a gw_dtype; 16-bit types convert exactly (fp16
 * subnormals become normal fp32). flush: subnormals and zeros of fp32 become +0. Infinity stays, NaN stays
 * NaN with any payload. */
typedef void gw_thc_load_fn(float *dst, const void *src, unsigned dtype, const float *error, size_t len,
                            size_t padded_len);

/* store: dst[i] = src[i] in dtype, rounded to nearest even; NaN becomes the canonical quiet NaN of the type.
 * bf16 results are never subnormal or -0 because fp32 ones are not; fp16 results may be subnormal, and what
 * rounds to -0 becomes +0. */
typedef void gw_thc_store_fn(void *dst, const float *src, unsigned dtype, size_t len);

/* norm: pattern of the L2 norm of x[0..len), 1 <= len <= 8192, x flushed. 0 if all are +0;
 * GW_THC_NORM_NONFINITE if any is NaN or infinite or the norm exceeds fp32. Else: E = the largest biased
 * exponent, y[i] = window(x[i], E) as in thc_window.h, accumulator j of 64 adds y[j] * y[j], y[j + 64] * y[j
 * + 64], ... in this order, then accumulator j adds accumulator j + h for h = 32, 16, ..., 1, j < h; the
 * correctly rounded square root times 2^(E - 128). */
typedef uint32_t gw_thc_norm_fn(const float *x, size_t len);

/* extent: patterns[0] = code(max x), patterns[1] = code(-min x), code(f) = f < 0 ? ~bits : bits | 2^31, so
 * that codes order like numbers. Both 0xffffffff if any x is NaN or |x| >= 2^127. x flushed, len >= 1. */
typedef void gw_thc_extent_fn(uint32_t patterns[2], const float *x, size_t len);

/* rotate: dst = H(s .* window(src, exponent)): sign i of the block's stream (domain signs, rank 0), then the
 * unscaled Walsh-Hadamard butterfly over len lanes (a power of two, 64..8192) in ascending strides 1, 2, 4,
 * ...: (a, b) becomes (a + b, a - b). exponent = biased exponent of the worker's own norm pattern, 1..254.
 * dst == src allowed. Sign bit of value v: Philox word (v / 32) % 4, bit v % 32, of counter {v / 128, block,
 * round, 0}; 1 negates. */
typedef void gw_thc_rotate_fn(float *dst, const float *src, size_t len, uint32_t exponent,
                              const gw_thc_stream *stream);

/* shift: dst[i] = window(flush(src[i] - minimum), exponent), exponent the biased exponent of the block's
 * extent. For plain THC. dst == src allowed. */
typedef void gw_thc_shift_fn(float *dst, const float *src, size_t len, float minimum, uint32_t exponent);

/* quantize: index[i] of x[i], len lanes. With position P as above, z = cell[P >> 16], residue r = P - 65536 *
 * table[z], gap d = table[z + 1] - table[z], and u the value's 16 random bits (domain rounding, the stream's
 * rank), index = z + 1 if d * (2u + 1) <= 2r, else z: up with probability floor(65536 * r / (65536 * d) +
 * 1/2) / 65536. z = index_max has r = 0 and stays. Random bits of v = 128 b + 32 w + 16 h + l: half h (0 low)
 * of Philox word w of counter {16 b + l, block, round, 2^31 + rank}. */
typedef void gw_thc_quantize_fn(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                                const gw_thc_stream *stream);

/* pack: dst gets len * bits / 8 bytes, each group of 64 indices v separately. 4 bits: byte j = v[j] |
 * v[j+32] << 4. 2 bits: byte j = v[j] | v[j+16] << 2 | v[j+32] << 4 | v[j+48] << 6. 1 bit: byte j = sum of
 * v[j+8i] << i. 3 bits: the 16 bytes of the low two bits, then the 8 bytes of bit 2. */
typedef void gw_thc_pack_fn(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits);

/* add_indices: lane i += table[index i], lanes little-endian of lane_bits (8, 16, 32). 16 bytes of table
 * are readable. len is a multiple of 64 without an upper limit, here and in add_lanes and lane_max. The
 * caller has checked that nothing overflows. */
typedef void gw_thc_add_indices_fn(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                                   const uint8_t *table, unsigned lane_bits);

/* add_lanes: lane i += lane i of src. */
typedef void gw_thc_add_lanes_fn(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits);

/* lane_max: the largest lane, 0 for len 0. */
typedef uint32_t gw_thc_lane_max_fn(const uint8_t *lanes, size_t len, unsigned lane_bits);

/* unpack: dst[i] = (float)(2 * lane i - center) * scale; |2 * lane - center| <= 2^24 so the conversion is
 * exact. */
typedef void gw_thc_unpack_fn(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits,
                              uint32_t center, float scale);

/* rotate_back: y = s .* H(y) in the order of rotate, then y = |y| < 2^(1 - exponent) ? +0 : y * 2^(exponent -
 * 127), exponent the biased exponent of the block's maximal norm, 1..254: products that would be subnormal
 * are +0, and so is -0. Inputs come from unpack, so |y| < 2^35 throughout; the last product may be infinite.
 */
typedef void gw_thc_rotate_back_fn(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream);

/* unpack_plain: dst[i] = (double)lane i * step + base, in fp64, then to fp32: magnitudes below 2^-126 are +0,
 * above the largest fp32 (after rounding to nearest even) infinite. */
typedef void gw_thc_unpack_plain_fn(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits,
                                    double step, double base);

/* residual: error[i] = flush(x[i] - y[i]); error at any alignment of bytes. NaN stays NaN with any
 * payload. */
typedef void gw_thc_residual_fn(float *error, const float *x, const float *y, size_t len);

typedef struct gw_thc_kernels {
    gw_thc_load_fn *load;
    gw_thc_store_fn *store;
    gw_thc_norm_fn *norm;
    gw_thc_extent_fn *extent;
    gw_thc_rotate_fn *rotate;
    gw_thc_shift_fn *shift;
    gw_thc_quantize_fn *quantize;
    gw_thc_pack_fn *pack;
    gw_thc_add_indices_fn *add_indices;
    gw_thc_add_lanes_fn *add_lanes;
    gw_thc_lane_max_fn *lane_max;
    gw_thc_unpack_fn *unpack;
    gw_thc_unpack_plain_fn *unpack_plain;
    gw_thc_rotate_back_fn *rotate_back;
    gw_thc_residual_fn *residual;
} gw_thc_kernels;

/* f(..., bits) with the number as a constant, from which the compiler makes a loop for each. The firmware
 * profile has the general one, which is smallest. */
#if defined(GW_FIRMWARE)
#define GW_BY_LANE_BITS(f, bits, ...)  f(__VA_ARGS__, bits)
#define GW_BY_INDEX_BITS(f, bits, ...) f(__VA_ARGS__, bits)
#else
#define GW_BY_LANE_BITS(f, bits, ...)                                                                        \
    ((bits) == 8 ? f(__VA_ARGS__, 8) : (bits) == 16 ? f(__VA_ARGS__, 16) : f(__VA_ARGS__, 32))
#define GW_BY_INDEX_BITS(f, bits, ...)                                                                       \
    ((bits) == 1   ? f(__VA_ARGS__, 1)                                                                       \
     : (bits) == 2 ? f(__VA_ARGS__, 2)                                                                       \
     : (bits) == 3 ? f(__VA_ARGS__, 3)                                                                       \
                   : f(__VA_ARGS__, 4))
#endif

/* For GW_DECLARE_KERNELS() of core/kernels.h. */
#define GW_DECLARE_THC_KERNELS(backend)                                                                      \
    gw_thc_load_fn gw_thc_load_##backend;                                                                    \
    gw_thc_store_fn gw_thc_store_##backend;                                                                  \
    gw_thc_norm_fn gw_thc_norm_##backend;                                                                    \
    gw_thc_extent_fn gw_thc_extent_##backend;                                                                \
    gw_thc_rotate_fn gw_thc_rotate_##backend;                                                                \
    gw_thc_shift_fn gw_thc_shift_##backend;                                                                  \
    gw_thc_quantize_fn gw_thc_quantize_##backend;                                                            \
    gw_thc_pack_fn gw_thc_pack_##backend;                                                                    \
    gw_thc_add_indices_fn gw_thc_add_indices_##backend;                                                      \
    gw_thc_add_lanes_fn gw_thc_add_lanes_##backend;                                                          \
    gw_thc_lane_max_fn gw_thc_lane_max_##backend;                                                            \
    gw_thc_unpack_fn gw_thc_unpack_##backend;                                                                \
    gw_thc_unpack_plain_fn gw_thc_unpack_plain_##backend;                                                    \
    gw_thc_rotate_back_fn gw_thc_rotate_back_##backend;                                                      \
    gw_thc_residual_fn gw_thc_residual_##backend

#endif
