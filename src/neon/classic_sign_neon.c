/*
 * Signs and votes of the classic codecs: 64 bits at a time, the rest by classic/sign_values.h. Not timed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/bitmap_neon.h"
#include "neon/classic_neon.h"

#if defined(GW_NEON)

#include "gradwire/gradwire.h"

/* ---- pack -----------------------------------------------------------------------------------------------
 */

/* Four values of fp32: all ones where negative; *largest collects magnitudes, shifted left by one. */
static inline uint16x4_t negative4(const uint8_t *src, uint32x4_t *largest)
{
    const uint32x4_t x = gw_load_u32x4(src);
    const uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), 31));
    *largest = vmaxq_u32(*largest, vshlq_n_u32(x, 1));
    return vmovn_u32(vandq_u32(sign, vtstq_u32(x, vdupq_n_u32(GW_F32_INF))));
}

/* Eight values of a 16-bit type; what has no bit of `counted` is +0. */
static inline uint8x8_t negative8(const uint8_t *src, uint16x8_t counted, uint16x8_t *largest)
{
    const uint16x8_t x = gw_load_u16x8(src);
    const uint16x8_t sign = vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x), 15));
    *largest = vmaxq_u16(*largest, vshlq_n_u16(x, 1));
    return vmovn_u16(vandq_u16(sign, vtstq_u16(x, counted)));
}

static uint32_t pack_fp32(uint8_t *bits, const uint8_t *src, size_t len)
{
    uint32x4_t largest = vdupq_n_u32(0);
    size_t i = 0;

    for (; i + 64 <= len; i += 64) {
        uint8x16_t mask[4];
        for (unsigned j = 0; j < 4; j++) {
            const uint8_t *at = src + 4 * (i + 16 * j);
            const uint16x8_t low = vcombine_u16(negative4(at, &largest), negative4(at + 16, &largest));
            const uint16x8_t high = vcombine_u16(negative4(at + 32, &largest), negative4(at + 48, &largest));
            mask[j] = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
        }
        gw_store64(bits + i / 8, gw_bits_of_64(mask));
    }
    return (uint32_t)(vmaxvq_u32(largest) >= GW_F32_INF << 1) |
           gw_sign_pack_values(bits, src, GW_FP32, i, len);
}

GW_TEMPLATE uint32_t pack_half(uint8_t *bits, const uint8_t *src, unsigned dtype, size_t len)
{
    const uint16x8_t counted = vdupq_n_u16(dtype == GW_BF16 ? 0x7f80 : 0x7fff);
    const uint32_t infinity = dtype == GW_BF16 ? 0xff00 : 0xf800; /* shifted */
    uint16x8_t largest = vdupq_n_u16(0);
    size_t i = 0;

    for (; i + 64 <= len; i += 64) {
        uint8x16_t mask[4];
        for (unsigned j = 0; j < 4; j++) {
            const uint8_t *at = src + 2 * (i + 16 * j);
            mask[j] = vcombine_u8(negative8(at, counted, &largest), negative8(at + 16, counted, &largest));
        }
        gw_store64(bits + i / 8, gw_bits_of_64(mask));
    }
    return (uint32_t)(vmaxvq_u16(largest) >= infinity) | gw_sign_pack_values(bits, src, dtype, i, len);
}

uint32_t gw_sign_pack_neon(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    const uint8_t *elements = (const uint8_t *)src;

    if (dtype == GW_FP32) {
        return pack_fp32(bits, elements, len);
    }
    return dtype == GW_BF16 ? pack_half(bits, elements, GW_BF16, len)
                            : pack_half(bits, elements, GW_FP16, len);
}

/* ---- sums and state -------------------------------------------------------------------------------------
 */

static inline uint32x4_t sign_mask4(float32x4_t x)
{
    return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_f32(x), 31));
}

void gw_sign_sums_neon(gw_sign_sums *sums, const float *x, size_t len)
{
    float64x2_t negative[8], positive[8];
    double below[GW_SIGN_LANES], above[GW_SIGN_LANES];
    uint32x4_t count = vdupq_n_u32(0);
    size_t i = 0;

    for (unsigned j = 0; j < 8; j++) {
        negative[j] = positive[j] = vdupq_n_f64(0.0);
    }
    for (; i + 16 <= len; i += 16) {
        for (unsigned j = 0; j < 4; j++) {
            /* Zeros in the place of others change no sum. */
            const float32x4_t y = gw_load_f32x4(x + i + 4 * j);
            const uint32x4_t mask = sign_mask4(y);
            const float32x4_t low = gw_f32x4_bits(vandq_u32(gw_bits_f32x4(y), mask));
            const float32x4_t high = gw_f32x4_bits(vbicq_u32(gw_bits_f32x4(y), mask));
            negative[2 * j] = vaddq_f64(negative[2 * j], gw_low_f64x2(low));
            negative[2 * j + 1] = vaddq_f64(negative[2 * j + 1], gw_high_f64x2(low));
            positive[2 * j] = vaddq_f64(positive[2 * j], gw_low_f64x2(high));
            positive[2 * j + 1] = vaddq_f64(positive[2 * j + 1], gw_high_f64x2(high));
            count = vsubq_u32(count, mask);
        }
    }
    for (unsigned j = 0; j < 8; j++) {
        vst1q_f64(below + 2 * j, negative[j]);
        vst1q_f64(above + 2 * j, positive[j]);
    }
    sums->negative_count = vaddvq_u32(count) + gw_sign_sum_values(below, above, x, i, len);
    sums->negative = gw_sign_fold(below);
    sums->positive = gw_sign_fold(above);
}

void gw_sign_residual_neon(float *residual, const float *x, size_t len, float positive, float negative)
{
    const float32x4_t plus = vdupq_n_f32(positive), minus = vdupq_n_f32(negative);
    uint8_t *out = (uint8_t *)(void *)residual;
    size_t i = 0;

    for (; i + 4 <= len; i += 4) {
        const float32x4_t y = gw_load_f32x4(x + i);
        const float32x4_t rest = vsubq_f32(y, vbslq_f32(sign_mask4(y), minus, plus));
        gw_store_u32x4(out + 4 * i, gw_bits_f32x4(gw_flush_f32x4(rest)));
    }
    gw_sign_residual_values(residual, x, i, len, positive, negative);
}

void gw_sign_momentum_neon(float *dst, const float *momentum, const float *x, size_t len, float beta,
                           float rest)
{
    const float64x2_t b = vdupq_n_f64((double)beta), r = vdupq_n_f64((double)rest);
    const uint8_t *old = (const uint8_t *)(const void *)momentum;
    uint8_t *out = (uint8_t *)(void *)dst;
    size_t i = 0;

    for (; i + 4 <= len; i += 4) {
        const float32x4_t kept = gw_flush_f32x4(gw_f32x4_bits(gw_load_u32x4(old + 4 * i)));
        const float32x4_t y = gw_load_f32x4(x + i);
        const float64x2_t low = vaddq_f64(vmulq_f64(b, gw_low_f64x2(kept)), vmulq_f64(r, gw_low_f64x2(y)));
        const float64x2_t high = vaddq_f64(vmulq_f64(b, gw_high_f64x2(kept)), vmulq_f64(r, gw_high_f64x2(y)));
        gw_store_u32x4(out + 4 * i, gw_bits_f32x4(vcombine_f32(gw_narrow2(low), gw_narrow2(high))));
    }
    gw_sign_momentum_values(dst, momentum, x, i, len, beta, rest);
}

/* ---- decode ---------------------------------------------------------------------------------------------
 */

/* Values before the first whole byte. */
static inline size_t head_len(unsigned first, size_t len)
{
    return gw_min_size(len, (8 - first) % 8);
}

void gw_sign_unpack_neon(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                         uint32_t positive, uint32_t negative)
{
    static const uint16_t place[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint32_t values[2] = {positive, negative};
    const size_t head = head_len(first, len);
    uint8_t *out = (uint8_t *)dst + head * size;
    size_t i = 0;

    gw_sign_unpack_values((uint8_t *)dst, size, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    if (size == 4) {
        const uint32x4_t plus = vdupq_n_u32(positive), minus = vdupq_n_u32(negative);
        for (; i + 8 <= len; i += 8) {
            gw_store_u32x4(out + 4 * i, vbslq_u32(gw_mask4(bits[i / 8], 0), minus, plus));
            gw_store_u32x4(out + 4 * i + 16, vbslq_u32(gw_mask4(bits[i / 8], 4), minus, plus));
        }
    } else {
        const uint16x8_t plus = vdupq_n_u16((uint16_t)positive), minus = vdupq_n_u16((uint16_t)negative);
        for (; i + 8 <= len; i += 8) {
            const uint16x8_t mask = vtstq_u16(vdupq_n_u16(bits[i / 8]), vld1q_u16(place));
            gw_store_u16x8(out + 2 * i, vbslq_u16(mask, minus, plus));
        }
    }
    if (i < len) {
        gw_sign_unpack_values(out + size * i, size, bits, i, len, values);
    }
}

void gw_sign_add_neon(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                      float negative)
{
    const float values[2] = {positive, negative};
    const float32x4_t plus = vdupq_n_f32(positive), minus = vdupq_n_f32(negative);
    const size_t head = head_len(first, len);
    uint8_t *out = (uint8_t *)(void *)sum + 4 * head;
    size_t i = 0;

    gw_sign_add_values(sum, bits, first, first + head, values);
    bits += (first + head) / 8;
    len -= head;
    for (; i + 8 <= len; i += 8) {
        for (unsigned j = 0; j < 8; j += 4) {
            uint8_t *at = out + 4 * (i + j);
            const float32x4_t x = vbslq_f32(gw_mask4(bits[i / 8], j), minus, plus);
            gw_store_u32x4(at, gw_accumulate4(gw_load_u32x4(at), x));
        }
    }
    if (i < len) {
        gw_sign_add_values((float *)(void *)(out + 4 * i), bits, i, len, values);
    }
}

/* ---- votes ----------------------------------------------------------------------------------------------
 */

void gw_sign_votes_neon(int32_t *lanes, const uint8_t *bits, size_t len)
{
    const uint32x4_t one = vdupq_n_u32(1);
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        for (unsigned j = 0; j < 8; j += 4) {
            const uint32x4_t vote = vorrq_u32(gw_mask4(bits[i / 8], j), one);
            gw_store_u32x4(lanes + i + j, vaddq_u32(gw_load_u32x4(lanes + i + j), vote));
        }
    }
    gw_sign_vote_values(lanes, bits, i, len);
}

/* Four lanes: all ones where negative, or zero with the bit of ties. */
static inline uint16x4_t majority4(const int32_t *lanes, uint32_t ties, unsigned from)
{
    const uint32x4_t lane = gw_load_u32x4(lanes + from);
    const uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(lane), 31));
    const uint32x4_t is_tie = vceqq_u32(lane, vdupq_n_u32(0));
    return vmovn_u32(vorrq_u32(sign, vandq_u32(is_tie, gw_mask4(ties, from))));
}

void gw_sign_majority_neon(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len)
{
    size_t i = 0;

    for (; i + 64 <= len; i += 64) {
        uint8x16_t mask[4];
        for (unsigned j = 0; j < 4; j++) {
            const int32_t *at = lanes + i + 16 * j;
            const uint8_t *tie = ties + i / 8 + 2 * j;
            const uint16x8_t low = vcombine_u16(majority4(at, tie[0], 0), majority4(at, tie[0], 4));
            const uint16x8_t high = vcombine_u16(majority4(at + 8, tie[1], 0), majority4(at + 8, tie[1], 4));
            mask[j] = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
        }
        gw_store64(bits + i / 8, gw_bits_of_64(mask));
    }
    gw_sign_majority_values(bits, lanes, ties, i, len);
}

#else
typedef int gw_classic_sign_neon_not_built; /* a translation unit must not be empty */
#endif
