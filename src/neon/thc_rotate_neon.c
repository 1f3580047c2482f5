/*
 * Stages rotate and rotate back, and the shift of plain THC.
 *
 * Strides 1, 2 and 4 happen in pairs of registers: taking the even lanes and the odd lanes of both, adding
 * and subtracting, three times, makes the three butterflies of eight values and ends in their natural order.
 * Strides 8, 16 and 32 are between the sixteen registers of 64 values; longer ones go over memory, three at a
 * time as far as possible.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: blocks of 1024: rotate 12.6 (54.3), 3.2 and 1.6; rotate
 * back 12.1 (52.3), 3.0 and 1.5; shift 3.0 (13.0), 0.88 and 0.44.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "neon/philox_neon.h"

#define CHUNK_LEN 64u

typedef struct block_signs {
    uint32_t word[8192 / 32 + 16]; /* bit i % 32 of word i / 32: value i */
} block_signs;

/* Counters of 128 values each, four at a time; the last batch may run beyond the block. */
static void make_signs(block_signs *signs, size_t len, const gw_thc_stream *stream)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    for (size_t counter = 0; counter * 128 < len; counter += 4) {
        uint32x4_t word[4];
        word[0] = vaddq_u32(vdupq_n_u32((uint32_t)counter), vld1q_u32(lane));
        word[1] = vdupq_n_u32(stream->block);
        word[2] = vdupq_n_u32(stream->round);
        word[3] = vdupq_n_u32(GW_THC_DOMAIN_SIGNS);
        gw_philox4(word, stream->seed);
        const uint32x4_t a = vzip1q_u32(word[0], word[2]), b = vzip1q_u32(word[1], word[3]);
        const uint32x4_t c = vzip2q_u32(word[0], word[2]), d = vzip2q_u32(word[1], word[3]);
        uint32_t *to = signs->word + 4 * counter;
        vst1q_u32(to, vzip1q_u32(a, b));
        vst1q_u32(to + 4, vzip2q_u32(a, b));
        vst1q_u32(to + 8, vzip1q_u32(c, d));
        vst1q_u32(to + 12, vzip2q_u32(c, d));
    }
}

/* Register i of a piece whose first word of signs is words[0]: its four bits to the top of four lanes. */
static inline float32x4_t negate_some(float32x4_t x, const uint32_t *words, size_t i)
{
    static const int32_t up[4] = {31, 30, 29, 28};
    const uint32x4_t bits = vdupq_n_u32(words[i / 8] >> i % 8 * 4);
    const uint32x4_t signs = vandq_u32(vshlq_u32(bits, vld1q_s32(up)), vdupq_n_u32(0x80000000u));
    return gw_f32x4_bits(veorq_u32(gw_bits_f32x4(x), signs));
}

/* Conversion of values on load and store. */
typedef struct edges {
    int is_first, is_last; /* constants wherever this is inlined */
    uint32x4_t floor_bits;
    float32x4_t scale;
    const uint32_t *signs; /* of the first value of the piece */
} edges;

GW_TEMPLATE float32x4_t enter(const float *src, size_t i, const edges *e)
{
    const float32x4_t x = gw_load_f32x4(src + 4 * i);
    return e->is_first ? negate_some(gw_window_f32x4(x, e->floor_bits, e->scale), e->signs, i) : x;
}

/* rotate_back's last step: sign, then power of two, or +0 where the product would be too small. */
GW_TEMPLATE void leave(float *dst, float32x4_t x, size_t i, const edges *e)
{
    gw_store_f32x4(dst + 4 * i,
                   e->is_last ? gw_window_f32x4(negate_some(x, e->signs, i), e->floor_bits, e->scale) : x);
}

static inline void cross(float32x4_t *a, float32x4_t *b)
{
    const float32x4_t sum = vaddq_f32(*a, *b);
    *b = vsubq_f32(*a, *b);
    *a = sum;
}

/* Neighbours of two registers become even and odd lanes, and are crossed. */
static inline void cross_neighbours(float32x4_t *a, float32x4_t *b)
{
    const float32x4_t even = vuzp1q_f32(*a, *b), odd = vuzp2q_f32(*a, *b);
    *a = vaddq_f32(even, odd);
    *b = vsubq_f32(even, odd);
}

GW_TEMPLATE void chunk(float *dst, const float *src, const edges *e)
{
    float32x4_t v[16];
    for (unsigned i = 0; i < 16; i += 2) {
        v[i] = enter(src, i, e);
        v[i + 1] = enter(src, i + 1, e);
        cross_neighbours(&v[i], &v[i + 1]);
        cross_neighbours(&v[i], &v[i + 1]);
        cross_neighbours(&v[i], &v[i + 1]);
    }
    for (unsigned step = 2; step < 16; step *= 2) {
        for (unsigned i = 0; i < 16; i++) {
            if ((i & step) == 0) {
                cross(&v[i], &v[i + step]);
            }
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        leave(dst, v[i], i, e);
    }
}

/* The butterflies of `count` = 2, 4 or 8 values that are `stride` apart, over count * stride values. */
GW_TEMPLATE void strides(float *x, size_t stride, unsigned count, const edges *e)
{
    const size_t step = stride / 4;
    for (size_t i = 0; i < step; i++) {
        float32x4_t v[8];
        for (unsigned j = 0; j < count; j++) {
            v[j] = gw_load_f32x4(x + 4 * i + j * stride);
        }
        for (unsigned half = 1; half < count; half *= 2) {
            for (unsigned j = 0; j < count; j++) {
                if ((j & half) == 0) {
                    cross(&v[j], &v[j + half]);
                }
            }
        }
        for (unsigned j = 0; j < count; j++) {
            leave(x, v[j], i + j * step, e);
        }
    }
}

/* From CHUNK_LEN on; only the pass of the longest stride is the last one. */
GW_TEMPLATE void outer_strides(float *x, size_t len, const edges *last)
{
    const edges between = {0, 0, last->floor_bits, last->scale, last->signs};
    size_t stride = CHUNK_LEN;
    for (; 8 * stride < len; stride *= 8) {
        for (size_t start = 0; start < len; start += 8 * stride) {
            strides(x + start, stride, 8, &between);
        }
    }
    if (8 * stride == len) {
        strides(x, stride, 8, last);
    } else if (4 * stride == len) {
        strides(x, stride, 4, last);
    } else if (2 * stride == len) {
        strides(x, stride, 2, last);
    }
}

GW_TEMPLATE void transform(float *dst, const float *src, size_t len, int is_back, uint32x4_t floor_bits,
                           float32x4_t scale, const block_signs *signs)
{
    const edges whole = {!is_back, is_back, floor_bits, scale, signs->word};
    if (len == CHUNK_LEN) {
        chunk(dst, src, &whole);
        return;
    }
    for (size_t at = 0; at < len; at += CHUNK_LEN) {
        const edges piece = {!is_back, 0, floor_bits, scale, signs->word + at / 32};
        chunk(dst + at, src + at, &piece);
    }
    outer_strides(dst, len, &whole);
}

void gw_thc_rotate_neon(float *dst, const float *src, size_t len, uint32_t exponent,
                        const gw_thc_stream *stream)
{
    block_signs signs;
    make_signs(&signs, len, stream);
    transform(dst, src, len, 0, vdupq_n_u32(gw_thc_window_floor(exponent)),
              vdupq_n_f32(gw_thc_window_scale(exponent)), &signs);
}

void gw_thc_rotate_back_neon(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    const uint32_t floor_bits = gw_thc_back_floor(exponent);
    block_signs signs;
    make_signs(&signs, len, stream);
    transform(y, y, len, 1, vdupq_n_u32(floor_bits), vdupq_n_f32(gw_float_from_bits(exponent << 23)), &signs);
}

void gw_thc_shift_neon(float *dst, const float *src, size_t len, float minimum, uint32_t exponent)
{
    const uint32x4_t floor_bits = vdupq_n_u32(gw_thc_window_floor(exponent));
    const float32x4_t scale = vdupq_n_f32(gw_thc_window_scale(exponent)), least = vdupq_n_f32(minimum);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const float32x4_t above = gw_flush_f32x4(vsubq_f32(gw_load_f32x4(src + i), least));
        gw_store_f32x4(dst + i, gw_window_f32x4(above, floor_bits, scale));
    }
    gw_thc_shift_values(dst, src, i, len, minimum, exponent);
}

#else
typedef int gw_thc_rotate_neon_not_built; /* a translation unit must not be empty */
#endif
