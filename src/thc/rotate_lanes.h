/*
 * Stages rotate and rotate back of vector backends: strides within CHUNK_LEN values between registers, longer
 * ones COUNT_MAX values at a time over memory. A backend defines, before it includes this:
 *
 *   floats, floors, sign_word   a register of fp32; of what a window compares with; 16 or 32 sign bits
 *   LANES                  of a register
 *   CHUNK_LEN              values that fit into registers together, at least 64, the least block
 *   FIRST_STEP             registers that the first stride beyond inner_strides() spans: 1, or 2 with 16
 *                          registers
 *   COUNT_MAX              4 or 8
 *   LOAD STORE ADD SUB
 *   SCALE(x)               the number x in all lanes
 *   FLOORS(floor_bits), WINDOW(x, floors, scale)   gw_thc_window()
 *   negate_some(x, signs, i)   static functions: register i of values whose signs begin at signs[0], negated
 *                              where its bits are set
 *   inner_strides(v)       the strides within v[0], and within v[1] or both
 *   make_signs(word, len, stream)   fills the signs of a block, and at most 128 bytes after them
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROTATE_LANES_H
#define GW_ROTATE_LANES_H

#include "thc/thc_window.h"

enum { SIGN_WORD_BITS = 8 * sizeof(sign_word) };

typedef struct block_signs {
    sign_word word[8192 / SIGN_WORD_BITS + 128 / sizeof(sign_word)];
} block_signs;

/* Conversion of values on load and store. */
typedef struct edges {
    int is_first, is_last; /* constants wherever this is inlined */
    floors floor;
    floats scale;
    const sign_word *signs; /* of the first value of the piece */
} edges;

GW_TEMPLATE floats enter(const float *src, size_t i, const edges *e)
{
    const floats x = LOAD(src + LANES * i);
    return e->is_first ? negate_some(WINDOW(x, e->floor, e->scale), e->signs, i) : x;
}

/* rotate_back's last step: sign, then power of two, or +0 where the product would be too small. */
GW_TEMPLATE void leave(float *dst, floats x, size_t i, const edges *e)
{
    STORE(dst + LANES * i, e->is_last ? WINDOW(negate_some(x, e->signs, i), e->floor, e->scale) : x);
}

/* Butterflies of 2, 4 and 8 registers that are `step` apart. Without loops, and with constant indices: v
 * would be in memory else. */
GW_TEMPLATE void cross2(floats *v, unsigned a, unsigned b)
{
    const floats sum = ADD(v[a], v[b]);
    v[b] = SUB(v[a], v[b]);
    v[a] = sum;
}

/* Four pairs, `step` apart. */
GW_TEMPLATE void cross_pairs(floats *v, unsigned a, unsigned b, unsigned step)
{
    cross2(v, a, b);
    cross2(v, a + step, b + step);
    cross2(v, a + 2 * step, b + 2 * step);
    cross2(v, a + 3 * step, b + 3 * step);
}

GW_TEMPLATE void cross4(floats *v, unsigned at, unsigned step)
{
    cross2(v, at, at + step);
    cross2(v, at + 2 * step, at + 3 * step);
    cross2(v, at, at + 2 * step);
    cross2(v, at + step, at + 3 * step);
}

GW_TEMPLATE void cross8(floats *v, unsigned at, unsigned step)
{
    cross4(v, at, step);
    cross4(v, at + 4 * step, step);
    cross_pairs(v, at, at + 4 * step, step);
}

GW_TEMPLATE void enter4(floats *v, const float *src, unsigned at, const edges *e)
{
    v[at] = enter(src, at, e);
    v[at + 1] = enter(src, at + 1, e);
    inner_strides(v + at);
    v[at + 2] = enter(src, at + 2, e);
    v[at + 3] = enter(src, at + 3, e);
    inner_strides(v + at + 2);
    if (FIRST_STEP == 1) {
        cross4(v, at, 1);
    }
}

/* v[at] and the next three go to registers i, i + step, ... of dst. */
GW_TEMPLATE void leave4(float *dst, const floats *v, unsigned at, size_t i, size_t step, const edges *e)
{
    leave(dst, v[at], i, e);
    leave(dst, v[at + 1], i + step, e);
    leave(dst, v[at + 2], i + 2 * step, e);
    leave(dst, v[at + 3], i + 3 * step, e);
}

/* All strides within LANES * count values, count = 4, 8 or 16. */
GW_TEMPLATE void chunk(float *dst, const float *src, unsigned count, const edges *e)
{
    floats v[16];
    enter4(v, src, 0, e);
    if (count >= 8) {
        enter4(v, src, 4, e);
    }
    if (count >= 8 && FIRST_STEP == 1) {
        cross_pairs(v, 0, 4, 1);
    }
    if (count >= 16) {
        enter4(v, src, 8, e);
        enter4(v, src, 12, e);
    }
    if (FIRST_STEP == 2) {
        cross8(v, 0, 2);
        cross8(v, 1, 2);
    } else if (count >= 16) {
        cross_pairs(v, 8, 12, 1);
        cross_pairs(v, 0, 8, 1);
        cross_pairs(v, 4, 12, 1);
    }
    leave4(dst, v, 0, 0, 1, e);
    if (count >= 8) {
        leave4(dst, v, 4, 4, 1, e);
    }
    if (count >= 16) {
        leave4(dst, v, 8, 8, 1, e);
        leave4(dst, v, 12, 12, 1, e);
    }
}

GW_TEMPLATE void load4(floats *v, const float *x, unsigned at, size_t stride)
{
    v[at] = LOAD(x + at * stride);
    v[at + 1] = LOAD(x + (at + 1) * stride);
    v[at + 2] = LOAD(x + (at + 2) * stride);
    v[at + 3] = LOAD(x + (at + 3) * stride);
}

/* The butterflies of `count` = 2, 4 or 8 values that are `stride` apart, over count * stride values. */
GW_TEMPLATE void strides(float *x, size_t stride, unsigned count, const edges *e)
{
    const size_t step = stride / LANES;
    for (size_t i = 0; i < step; i++) {
        float *const at = x + LANES * i;
        floats v[8];
        if (count == 2) {
            v[0] = LOAD(at);
            v[1] = LOAD(at + stride);
            cross2(v, 0, 1);
            leave(x, v[0], i, e);
            leave(x, v[1], i + step, e);
            continue;
        }
        load4(v, at, 0, stride);
        if (count == 4) {
            cross4(v, 0, 1);
        } else {
            load4(v, at, 4, stride);
            cross8(v, 0, 1);
            leave4(x, v, 4, i + 4 * step, step, e);
        }
        leave4(x, v, 0, i, step, e);
    }
}

/* From CHUNK_LEN on; only the pass of the longest stride is the last one. */
GW_TEMPLATE void outer_strides(float *x, size_t len, const edges *last)
{
    const edges between = {0, 0, last->floor, last->scale, last->signs};
    size_t stride = CHUNK_LEN;
    for (; COUNT_MAX * stride < len; stride *= COUNT_MAX) {
        for (size_t start = 0; start < len; start += COUNT_MAX * stride) {
            strides(x + start, stride, COUNT_MAX, &between);
        }
    }
    if (COUNT_MAX == 8 && 8 * stride == len) {
        strides(x, stride, COUNT_MAX, last);
    } else if (4 * stride == len) {
        strides(x, stride, 4, last);
    } else if (2 * stride == len) {
        strides(x, stride, 2, last);
    }
}

GW_TEMPLATE void transform(float *dst, const float *src, size_t len, int is_back, uint32_t floor_bits,
                           float scale, const gw_thc_stream *stream)
{
    block_signs signs;
    make_signs(signs.word, len, stream);
    const edges whole = {!is_back, is_back, FLOORS(floor_bits), SCALE(scale), signs.word};
    if (CHUNK_LEN > 64 && len == 64) {
        chunk(dst, src, 64 / LANES, &whole);
    } else if (CHUNK_LEN > 128 && len == 128) {
        chunk(dst, src, 128 / LANES, &whole);
    } else if (len == CHUNK_LEN) {
        chunk(dst, src, CHUNK_LEN / LANES, &whole);
    } else {
        for (size_t at = 0; at < len; at += CHUNK_LEN) {
            const edges piece = {!is_back, 0, whole.floor, whole.scale, signs.word + at / SIGN_WORD_BITS};
            chunk(dst + at, src + at, CHUNK_LEN / LANES, &piece);
        }
        outer_strides(dst, len, &whole);
    }
}

/* The kernels. */
static void rotate(float *dst, const float *src, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    transform(dst, src, len, 0, gw_thc_window_floor(exponent), gw_thc_window_scale(exponent), stream);
}

static void rotate_back(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    transform(y, y, len, 1, gw_thc_back_floor(exponent), gw_float_from_bits(exponent << 23), stream);
}

#endif
