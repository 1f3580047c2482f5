/*
 * Casts, signs and sums, one value at a time. The scalar kernels do all values so, vector kernels those after
 * their last whole register: values [first, len) of the arrays. Contracts: core/classic_kernels.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SIGN_VALUES_H
#define GW_SIGN_VALUES_H

#include "core/wire_values.h"

#define GW_CANONICAL_NAN 0x7fc00000u

/* A float at any alignment, in the machine's byte order. */
static inline float gw_float_at(const float *array, size_t i)
{
    float x;
    GW_MEMCPY(&x, (const uint8_t *)(const void *)array + i * sizeof x, sizeof x);
    return x;
}

static inline void gw_put_float(float *array, size_t i, float x)
{
    GW_MEMCPY((uint8_t *)(void *)array + i * sizeof x, &x, sizeof x);
}

/* ---- all families -------------------------------------------------------------------------------------- */

static inline void gw_multiply_values(float *x, size_t first, size_t len, float scale)
{
    for (size_t i = first; i < len; i++) {
        x[i] = gw_narrow_double((double)gw_f32_flush(x[i]) * (double)scale);
    }
}

static inline float gw_accumulate_value(float sum, float x)
{
    const float result = gw_f32_flush(gw_f32_flush(sum) + x);
    return (gw_bits_from_float(result) & GW_F32_ABS) > GW_F32_INF ? gw_float_from_bits(GW_CANONICAL_NAN)
                                                                  : result;
}

static inline void gw_accumulate_values(float *sum, const float *x, size_t first, size_t len)
{
    for (size_t i = first; i < len; i++) {
        gw_put_float(sum, i, gw_accumulate_value(gw_float_at(sum, i), gw_f32_flush(x[i])));
    }
}

/* ---- cast ---------------------------------------------------------------------------------------------- */

/* Element i as fp32 bits; NaN canonical. */
static inline uint32_t gw_cast_load(const uint8_t *src, unsigned dtype, size_t i)
{
    uint32_t bits;
    if (dtype == GW_FP32) {
        bits = gw_load32(src + 4 * i);
    } else {
        const uint32_t half = gw_load16(src + 2 * i);
        bits = dtype == GW_BF16 ? half << 16 : gw_widen_fp16(half);
    }
    return (bits & GW_F32_ABS) > GW_F32_INF ? GW_CANONICAL_NAN : bits;
}

static inline void gw_cast_values(uint8_t *dst, unsigned dst_dtype, const uint8_t *src, unsigned src_dtype,
                                  size_t first, size_t len)
{
    for (size_t i = first; i < len; i++) {
        const uint32_t bits = gw_cast_load(src, src_dtype, i);
        if (dst_dtype == GW_FP32) {
            gw_store32(dst + 4 * i, bits);
        } else if (dst_dtype == GW_BF16) {
            gw_store16(dst + 2 * i, (uint16_t)gw_narrow_bf16(bits));
        } else {
            gw_store16(dst + 2 * i, (uint16_t)(bits == GW_CANONICAL_NAN ? 0x7e00u : gw_narrow_fp16(bits)));
        }
    }
}

/* ---- sign ---------------------------------------------------------------------------------------------- */

static inline uint32_t gw_bit_at(const uint8_t *bits, size_t i)
{
    return (uint32_t)bits[i / 8] >> (i % 8) & 1;
}

/* Values [first, len), first a multiple of 8. Returns 1 if one is not finite. */
static inline uint32_t gw_sign_pack_values(uint8_t *bits, const uint8_t *src, unsigned dtype, size_t first,
                                           size_t len)
{
    uint32_t is_bad = 0;
    for (size_t i = first; i < len; i += 8) {
        const size_t count = gw_min_size(len - i, 8);
        uint32_t byte = 0;
        for (size_t j = 0; j < count; j++) {
            const uint32_t x = gw_bits_from_float(gw_wire_load(src, dtype, i + j));
            is_bad |= (x & GW_F32_ABS) >= GW_F32_INF;
            byte |= (uint32_t)(x >> 31 != 0 && (x & GW_F32_ABS) >= GW_F32_MIN) << j;
        }
        bits[i / 8] = (uint8_t)byte;
    }
    return is_bad;
}

/* 0 for values that are not below 0, else all ones. Values are flushed: -0 does not occur. */
static inline uint32_t gw_sign_mask(float x)
{
    return 0u - (gw_bits_from_float(x) >> 31);
}

enum { GW_SIGN_LANES = 16 };

/* The end of sign_sums: accumulators to sums. */
static inline double gw_sign_fold(double lanes[GW_SIGN_LANES])
{
    for (size_t h = GW_SIGN_LANES / 2; h > 0; h /= 2) {
        for (size_t j = 0; j < h; j++) {
            lanes[j] += lanes[j + h];
        }
    }
    return lanes[0];
}

/* Values [first, len), first a multiple of 16. Returns how many are negative. */
static inline size_t gw_sign_sum_values(double negative[GW_SIGN_LANES], double positive[GW_SIGN_LANES],
                                        const float *x, size_t first, size_t len)
{
    size_t count = 0;
    for (size_t i = first; i < len; i++) {
        if (gw_sign_mask(x[i]) != 0) {
            negative[i % GW_SIGN_LANES] += (double)x[i];
            count++;
        } else {
            positive[i % GW_SIGN_LANES] += (double)x[i];
        }
    }
    return count;
}

static inline void gw_sign_residual_values(float *residual, const float *x, size_t first, size_t len,
                                           float positive, float negative)
{
    for (size_t i = first; i < len; i++) {
        gw_put_float(residual, i, gw_f32_flush(x[i] - (gw_sign_mask(x[i]) != 0 ? negative : positive)));
    }
}

static inline void gw_sign_momentum_values(float *dst, const float *momentum, const float *x, size_t first,
                                           size_t len, float beta, float rest)
{
    for (size_t i = first; i < len; i++) {
        const double kept = (double)beta * (double)gw_f32_flush(gw_float_at(momentum, i));
        gw_put_float(dst, i, gw_narrow_double(kept + (double)rest * (double)x[i]));
    }
}

/* Of len bits from bit `first` on: those before the first whole byte. */
static inline size_t gw_sign_head_len(unsigned first, size_t len)
{
    return gw_min_size(len, (8 - first) % 8);
}

/* Bits [first, end) of `bits` are those of elements 0, 1, ... of dst. */
static inline void gw_sign_unpack_values(uint8_t *dst, unsigned size, const uint8_t *bits, size_t first,
                                         size_t end, const uint32_t values[2])
{
    for (size_t i = first; i < end; i++) {
        const uint32_t value = values[gw_bit_at(bits, i)];
        if (size == 4) {
            gw_store32(dst + 4 * (i - first), value);
        } else {
            gw_store16(dst + 2 * (i - first), (uint16_t)value);
        }
    }
}

static inline void gw_sign_add_values(float *sum, const uint8_t *bits, size_t first, size_t end,
                                      const float values[2])
{
    for (size_t i = first; i < end; i++) {
        const float value = values[gw_bit_at(bits, i)];
        gw_put_float(sum, i - first, gw_accumulate_value(gw_float_at(sum, i - first), value));
    }
}

static inline void gw_sign_vote_values(int32_t *lanes, const uint8_t *bits, size_t first, size_t len)
{
    for (size_t i = first; i < len; i++) {
        lanes[i] = (int32_t)((uint32_t)lanes[i] + 1u - 2u * gw_bit_at(bits, i));
    }
}

/* Values [first, len), first a multiple of 8. */
static inline void gw_sign_majority_values(uint8_t *bits, const int32_t *lanes, const uint8_t *ties,
                                           size_t first, size_t len)
{
    for (size_t i = first; i < len; i += 8) {
        const size_t count = gw_min_size(len - i, 8);
        uint32_t byte = 0;
        for (size_t j = 0; j < count; j++) {
            const int32_t lane = lanes[i + j];
            byte |= (lane == 0 ? gw_bit_at(ties, i + j) : (uint32_t)(lane < 0)) << j;
        }
        bits[i / 8] = (uint8_t)byte;
    }
}

#endif
