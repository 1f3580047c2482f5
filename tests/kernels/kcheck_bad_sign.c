/*
 * Bad kernels of casts, signs and votes, for the self-test.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_bad.h"

#include "classic/sign_values.h"

/* Rounds products below 2^-126 up to it. */
static void multiply_rounds_first(float *x, size_t len, float scale)
{
    for (size_t i = 0; i < len; i++) {
        const double product = (double)gw_f32_flush(x[i]) * (double)scale;
        const float rounded = (float)product;
        gw_multiply_scalar(x + i, 1, scale);
        if (rounded == 0x1p-126f) {
            x[i] = rounded;
        }
    }
}

static void accumulate_keeps_nan(float *sum, const float *x, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const float old = gw_float_at(sum, i);
        gw_accumulate_scalar((float *)(void *)((uint8_t *)(void *)sum + 4 * i), x + i, 1);
        if ((gw_bits_from_float(old) & GW_F32_ABS) > GW_F32_INF) {
            gw_put_float(sum, i, old);
        }
    }
}

static void cast_flushes(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len)
{
    uint8_t *out = (uint8_t *)dst;
    gw_cast_scalar(dst, dst_dtype, src, src_dtype, len);
    for (size_t i = 0; i < len && dst_dtype == GW_FP16; i++) {
        if ((gw_load16(out + 2 * i) & 0x7c00) == 0) {
            gw_store16(out + 2 * i, 0);
        }
    }
}

static uint32_t pack_minus_zero(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint8_t *elements = (const uint8_t *)src;
    const uint32_t is_bad = gw_sign_pack_scalar(bits, src, dtype, len);
    for (size_t i = 0; i < len && dtype == GW_FP32; i++) {
        bits[i / 8] = (uint8_t)(bits[i / 8] | (uint32_t)elements[4 * i + 3] >> 7 << i % 8);
    }
    return is_bad;
}

static uint32_t pack_misses_last(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint32_t all = gw_sign_pack_scalar(bits, src, dtype, len);
    if (len == 0) {
        return all;
    }
    const uint32_t others = gw_sign_pack_scalar(bits, src, dtype, len - 1);
    (void)gw_sign_pack_scalar(bits, src, dtype, len);
    return others;
}

static uint32_t pack_writes_words(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint32_t is_bad = gw_sign_pack_scalar(bits, src, dtype, len);
    spoil(bits + (len + 7) / 8);
    return is_bad;
}

/* In one accumulator. */
static void sums_in_order(gw_sign_sums *sums, const float *x, size_t len)
{
    gw_sign_sums_scalar(sums, x, len);
    sums->negative = 0.0;
    for (size_t i = 0; i < len; i++) {
        sums->negative += x[i] < 0 ? (double)x[i] : 0.0;
    }
}

static void residual_of_zero(float *residual, const float *x, size_t len, float positive, float negative)
{
    gw_sign_residual_scalar(residual, x, len, positive, negative);
    for (size_t i = 0; i < len; i++) {
        if (gw_bits_from_float(x[i]) == 0) {
            gw_put_float(residual, i, 0.0f);
        }
    }
}

/* Rounds the products to fp32 first. */
static void momentum_in_fp32(float *dst, const float *momentum, const float *x, size_t len, float beta,
                             float rest)
{
    for (size_t i = 0; i < len; i++) {
        const float kept = gw_f32_flush(beta * gw_f32_flush(gw_float_at(momentum, i)));
        gw_put_float(dst, i, gw_f32_flush(kept + gw_f32_flush(rest * x[i])));
    }
}

static void unpack_ignores_first(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                                 uint32_t positive, uint32_t negative)
{
    gw_sign_unpack_scalar(dst, size, bits, first > 6 ? 6 : first, len, positive, negative);
}

static void add_keeps_subnormals(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                                 float negative)
{
    const float values[2] = {positive, negative};
    for (size_t i = 0; i < len; i++) {
        const float old = gw_float_at(sum, i), value = values[gw_bit_at(bits, first + i)];
        gw_put_float(sum, i, gw_accumulate_value(old, value));
        if (value == 0.0f && gw_f32_flush(old) == 0.0f) {
            gw_put_float(sum, i, old);
        }
    }
}

static void votes_only_for(int32_t *lanes, const uint8_t *bits, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        lanes[i] = (int32_t)((uint32_t)lanes[i] + 1u - gw_bit_at(bits, i));
    }
}

static void majority_without_ties(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len)
{
    gw_sign_majority_scalar(bits, lanes, ties, len);
    for (size_t i = 0; i < len; i++) {
        if (lanes[i] == 0) {
            bits[i / 8] = (uint8_t)(bits[i / 8] & ~(1u << i % 8));
        }
    }
}

const bad_kernel bad_sign_kernels[] = {
    {"rounds before it flushes", "multiply", (kc_fn)multiply_rounds_first, KC_OUTPUT, 0},
    {"the same in scalar itself", "multiply", (kc_fn)multiply_rounds_first, KC_MODEL, 1},
    {"keeps NaN", "accumulate", (kc_fn)accumulate_keeps_nan, KC_OUTPUT, 0},
    {"flushes subnormals of fp16", "cast", (kc_fn)cast_flushes, KC_OUTPUT, 0},
    {"the same in scalar itself", "cast", (kc_fn)cast_flushes, KC_MODEL, 1},
    {"counts -0 as negative", "sign_pack", (kc_fn)pack_minus_zero, KC_OUTPUT, 0},
    {"does not look at the last value", "sign_pack", (kc_fn)pack_misses_last, KC_OUTPUT, 0},
    {"writes past the bits", "sign_pack", (kc_fn)pack_writes_words, KC_CANARY | KC_CRASH, 0},
    {"adds in another order", "sign_sums", (kc_fn)sums_in_order, KC_OUTPUT, 0},
    {"the same in scalar itself", "sign_sums", (kc_fn)sums_in_order, KC_MODEL, 1},
    {"sends nothing for 0", "sign_residual", (kc_fn)residual_of_zero, KC_OUTPUT, 0},
    {"rounds products", "sign_momentum", (kc_fn)momentum_in_fp32, KC_OUTPUT, 0},
    {"ignores the place of the first bit", "sign_unpack", (kc_fn)unpack_ignores_first, KC_OUTPUT, 0},
    {"keeps subnormals", "sign_add", (kc_fn)add_keeps_subnormals, KC_OUTPUT, 0},
    {"counts half of the votes", "sign_votes", (kc_fn)votes_only_for, KC_OUTPUT, 0},
    {"ties are positive", "sign_majority", (kc_fn)majority_without_ties, KC_OUTPUT, 0},
    {NULL, NULL, NULL, 0, 0},
};
