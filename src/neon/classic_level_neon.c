/*
 * Levels of QSGD and TERNGRAD: 16 values at a time, the rest by classic/level_values.h; random bits 128 at a
 * time. Not timed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "classic/level_values.h"
#include "neon/philox_neon.h"

/* ---- random bits --------------------------------------------------------------------------------------- */

/* The low halves of eight words, or the high ones. */
static inline void store_halves(uint16_t *dst, uint32x4_t a, uint32x4_t b)
{
    const uint16x8_t low = vreinterpretq_u16_u32(a), high = vreinterpretq_u16_u32(b);
    vst1q_u16(dst, vuzp1q_u16(low, high));
    vst1q_u16(dst + 16, vuzp2q_u16(low, high));
}

void gw_level_random_neon(uint16_t *random, uint64_t first, size_t group_count, const gw_level_stream *stream)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    for (size_t g = 0; g < group_count; g++, random += GW_LEVEL_GROUP_LEN) {
        const uint32_t low = gw_level_counter_low(first + g);
        uint32x4_t words[4][4]; /* [counters 4j .. 4j + 3][word] */
        for (uint32_t j = 0; j < 4; j++) {
            words[j][0] = vaddq_u32(vdupq_n_u32(low + 4 * j), vld1q_u32(lane));
            words[j][1] = vdupq_n_u32(gw_level_counter_high(first + g));
            words[j][2] = vdupq_n_u32(stream->round);
            words[j][3] = vdupq_n_u32(stream->rank);
            gw_philox4(words[j], stream->seed);
        }
        for (unsigned w = 0; w < 4; w++) {
            store_halves(random + 32 * w, words[0][w], words[1][w]);
            store_halves(random + 32 * w + 8, words[2][w], words[3][w]);
        }
    }
}

/* ---- norms --------------------------------------------------------------------------------------------- */

static inline uint32x4_t magnitude4(const float *x)
{
    return vandq_u32(gw_load_u32x4(x), vdupq_n_u32(GW_LEVEL_ABS));
}

uint32_t gw_level_largest_neon(const float *x, size_t len)
{
    uint32x4_t a = vdupq_n_u32(0), b = a;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        a = vmaxq_u32(a, magnitude4(x + i));
        b = vmaxq_u32(b, magnitude4(x + i + 4));
    }
    return gw_level_largest_values(vmaxvq_u32(vmaxq_u32(a, b)), x, i, len);
}

/* Accumulators 2 j, 2 j + 1. */
typedef struct lanes16 {
    float64x2_t part[8];
} lanes16;

static inline double fold16(lanes16 *x)
{
    for (unsigned half = 4; half > 0; half /= 2) {
        for (unsigned j = 0; j < half; j++) {
            x->part[j] = vaddq_f64(x->part[j], x->part[j + half]);
        }
    }
    return vgetq_lane_f64(x->part[0], 0) + vgetq_lane_f64(x->part[0], 1);
}

static inline void add2(lanes16 *sum, lanes16 *squares, unsigned j, float64x2_t value)
{
    sum->part[j] = vaddq_f64(sum->part[j], value);
    squares->part[j] = vaddq_f64(squares->part[j], vmulq_f64(value, value));
}

static inline void add16(lanes16 *sum, lanes16 *squares, const float *x)
{
    for (unsigned j = 0; j < 4; j++) {
        const float32x4_t four = gw_load_f32x4(x + 4 * j);
        add2(sum, squares, 2 * j, vcvt_f64_f32(vget_low_f32(four)));
        add2(sum, squares, 2 * j + 1, vcvt_f64_f32(vget_high_f32(four)));
    }
}

void gw_level_moments_neon(gw_level_moments *moments, const float *x, size_t len)
{
    lanes16 sum, squares;
    size_t i = 0;
    for (unsigned j = 0; j < 8; j++) {
        sum.part[j] = vdupq_n_f64(0.0);
        squares.part[j] = vdupq_n_f64(0.0);
    }
    const uint32_t largest = gw_level_largest_neon(x, len);
    moments->largest = largest > moments->largest ? largest : moments->largest;
    if (largest >= GW_LEVEL_NONFINITE) {
        return;
    }
    for (; i + 16 <= len; i += 16) {
        add16(&sum, &squares, x + i);
    }
    if (i < len) { /* an accumulator is never -0: adding +0 changes nothing */
        float rest[16] = {0};
        GW_MEMCPY(rest, x + i, (len - i) * sizeof *x);
        add16(&sum, &squares, rest);
    }
    moments->sum += fold16(&sum);
    moments->squares += fold16(&squares);
}

/* ---- quantize and decode ------------------------------------------------------------------------------- */

/* Levels of 4 values with the sign of x. */
static inline int16x4_t quantize4(const float *x, uint16x4_t random, float32x4_t scale, float32x4_t limit)
{
    const float32x4_t value = gw_load_f32x4(x);
    const float32x4_t position = vaddq_f32(vmulq_f32(vabsq_f32(value), scale), vdupq_n_f32(0.5f));
    const uint32x4_t least = vcvtq_u32_f32(vminq_f32(position, limit));
    const int32x4_t level = vreinterpretq_s32_u32(vshrq_n_u32(vaddw_u16(least, random), 16));
    const int32x4_t sign = vshrq_n_s32(vreinterpretq_s32_f32(value), 31); /* 0 or -1 */
    return vmovn_s32(vsubq_s32(veorq_s32(level, sign), sign));
}

static inline int8x8_t quantize8(const float *x, const uint16_t *random, float32x4_t scale, float32x4_t limit)
{
    const uint16x8_t bits = gw_load_u16x8(random);
    return vmovn_s16(vcombine_s16(quantize4(x, vget_low_u16(bits), scale, limit),
                                  quantize4(x + 4, vget_high_u16(bits), scale, limit)));
}

void gw_level_quantize_neon(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                            const gw_level_rule *rule)
{
    const float32x4_t scale = vdupq_n_f32(rule->scale), limit = vdupq_n_f32((float)(rule->level_max << 16));
    size_t i = 0;
    for (; i + 16 <= len; i += 16) {
        vst1q_s8(levels + i, vcombine_s8(quantize8(x + i, random + i, scale, limit),
                                         quantize8(x + i + 8, random + i + 8, scale, limit)));
    }
    gw_level_quantize_values(levels, x, random, i, len, rule);
}

static inline void decode4(float *dst, int16x4_t levels, float32x4_t step)
{
    gw_store_f32x4(dst, vmulq_f32(vcvtq_f32_s32(vmovl_s16(levels)), step));
}

void gw_level_decode_neon(float *dst, const int8_t *levels, size_t len, float step)
{
    const float32x4_t factor = vdupq_n_f32(step);
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const int16x8_t eight = vmovl_s8(vld1_s8(levels + i));
        decode4(dst + i, vget_low_s16(eight), factor);
        decode4(dst + i + 4, vget_high_s16(eight), factor);
    }
    gw_level_decode_values(dst, levels, i, len, step);
}

#else
typedef int gw_classic_level_neon_not_built; /* a translation unit must not be empty */
#endif
