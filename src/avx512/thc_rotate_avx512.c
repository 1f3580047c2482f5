/*
 * Stages rotate and rotate back: strides 1 to 8 inside a register, 16 to 128 between sixteen of them, longer
 * ones two at a time over memory.
 *
 * Inside a register a permutation gives the partner lane, and (a + b, a - b) is x * (+-1) + partner: a
 * product with 1 or -1 is exact, so the fused operation rounds once, as the sum does.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#define CHUNK_LEN 256u /* values of sixteen registers */

/* 16 sign bits for each register of a block. */
typedef struct block_signs {
    uint16_t mask[8192 / 16 + 64];
} block_signs;

/* Counters of 128 values each, eight at a time; the last batch may run beyond the block. */
static void make_signs(block_signs *signs, size_t len, const gw_thc_stream *stream)
{
    const __m512i first = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i second = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    gw_philox_plan plan;

    gw_philox_plan_make(&plan, stream, GW_THC_DOMAIN_SIGNS, 0);
    for (size_t counter = 0; counter * 128 < len; counter += 8) {
        gw_philox8 p = gw_philox8_start((uint32_t)counter, &plan);
        for (unsigned r = 2; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox8_round(&p, &plan, r);
        }
        const __m512i w01 = _mm512_or_si512(_mm512_and_si512(p.c0, low), _mm512_slli_epi64(p.c1, 32));
        const __m512i w23 = _mm512_or_si512(_mm512_and_si512(p.c2, low), _mm512_slli_epi64(p.c3, 32));
        _mm512_storeu_si512(&signs->mask[8 * counter], _mm512_permutex2var_epi64(w01, first, w23));
        _mm512_storeu_si512(&signs->mask[8 * counter + 32], _mm512_permutex2var_epi64(w01, second, w23));
    }
}

static inline __m512 negate_some(__m512 x, uint16_t signs)
{
    return _mm512_mask_xor_ps(x, signs, x, _mm512_set1_ps(-0.0f));
}

/* Strides 1, 2, 4, 8. */
static inline __m512 inner_strides(__m512 x)
{
    const __m512 even1 = _mm512_castsi512_ps(_mm512_set1_epi64((long long)0xbf8000003f800000u));
    const __m512 even2 = _mm512_set_ps(-1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1);
    const __m512 even4 = _mm512_set_ps(-1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1);
    const __m512 even8 = _mm512_set_ps(-1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1);
    x = _mm512_fmadd_ps(x, even1, _mm512_permute_ps(x, 0xb1));
    x = _mm512_fmadd_ps(x, even2, _mm512_permute_ps(x, 0x4e));
    x = _mm512_fmadd_ps(x, even4, _mm512_shuffle_f32x4(x, x, 0xb1));
    return _mm512_fmadd_ps(x, even8, _mm512_shuffle_f32x4(x, x, 0x4e));
}

/* Conversion of values on load and store. */
typedef struct edges {
    int is_first, is_last; /* constants wherever this is inlined */
    __m512i floor_bits;
    __m512 scale;
    const uint16_t *signs; /* of the first value of the piece */
} edges;

GW_TEMPLATE __m512 enter(const float *src, unsigned i, const edges *e)
{
    __m512 x = _mm512_loadu_ps(src + 16 * i);
    if (e->is_first) {
        x = negate_some(gw_window16(x, e->floor_bits, e->scale), e->signs[i]);
    }
    return inner_strides(x);
}

/* rotate_back's last step: sign, then power of two, or +0 where the product would be too small. */
GW_TEMPLATE void leave(float *dst, __m512 x, size_t i, const edges *e)
{
    if (e->is_last) {
        x = gw_window16(negate_some(x, e->signs[i]), e->floor_bits, e->scale);
    }
    _mm512_storeu_ps(dst + 16 * i, x);
}

#define CROSS(a, b)                                                                                          \
    do {                                                                                                     \
        const __m512 sum = _mm512_add_ps(a, b);                                                              \
        b = _mm512_sub_ps(a, b);                                                                             \
        a = sum;                                                                                             \
    } while (0)
#define CROSS4(a, b, c, d)                                                                                   \
    do {                                                                                                     \
        CROSS(a, b);                                                                                         \
        CROSS(c, d);                                                                                         \
        CROSS(a, c);                                                                                         \
        CROSS(b, d);                                                                                         \
    } while (0)

/* All strides within 16 * count values, count = 4, 8 or 16 registers. Unrolled by hand: an array indexed
 * by a loop would be in memory. */
GW_TEMPLATE void chunk(float *dst, const float *src, unsigned count, const edges *e)
{
    const __m512 none = _mm512_setzero_ps();
    __m512 v0 = enter(src, 0, e), v1 = enter(src, 1, e), v2 = enter(src, 2, e), v3 = enter(src, 3, e);
    __m512 v4 = none, v5 = none, v6 = none, v7 = none, v8 = none, v9 = none, v10 = none, v11 = none,
           v12 = none, v13 = none, v14 = none, v15 = none;
    CROSS4(v0, v1, v2, v3);
    if (count >= 8) {
        v4 = enter(src, 4, e), v5 = enter(src, 5, e), v6 = enter(src, 6, e), v7 = enter(src, 7, e);
        CROSS4(v4, v5, v6, v7);
        CROSS(v0, v4);
        CROSS(v1, v5);
        CROSS(v2, v6);
        CROSS(v3, v7);
    }
    if (count >= 16) {
        v8 = enter(src, 8, e), v9 = enter(src, 9, e), v10 = enter(src, 10, e), v11 = enter(src, 11, e);
        CROSS4(v8, v9, v10, v11);
        v12 = enter(src, 12, e), v13 = enter(src, 13, e), v14 = enter(src, 14, e), v15 = enter(src, 15, e);
        CROSS4(v12, v13, v14, v15);
        CROSS(v8, v12);
        CROSS(v9, v13);
        CROSS(v10, v14);
        CROSS(v11, v15);
        CROSS(v0, v8);
        CROSS(v1, v9);
        CROSS(v2, v10);
        CROSS(v3, v11);
        CROSS(v4, v12);
        CROSS(v5, v13);
        CROSS(v6, v14);
        CROSS(v7, v15);
    }
    leave(dst, v0, 0, e);
    leave(dst, v1, 1, e);
    leave(dst, v2, 2, e);
    leave(dst, v3, 3, e);
    if (count >= 8) {
        leave(dst, v4, 4, e);
        leave(dst, v5, 5, e);
        leave(dst, v6, 6, e);
        leave(dst, v7, 7, e);
    }
    if (count >= 16) {
        leave(dst, v8, 8, e);
        leave(dst, v9, 9, e);
        leave(dst, v10, 10, e);
        leave(dst, v11, 11, e);
        leave(dst, v12, 12, e);
        leave(dst, v13, 13, e);
        leave(dst, v14, 14, e);
        leave(dst, v15, 15, e);
    }
}

/* Strides `stride` and 2 * stride over 4 * stride values. */
GW_TEMPLATE void stride_pair(float *x, size_t stride, const edges *e)
{
    const size_t step = stride / 16;
    for (size_t i = 0; i < step; i++) {
        float *const at = x + 16 * i;
        __m512 a = _mm512_loadu_ps(at), b = _mm512_loadu_ps(at + stride);
        __m512 c = _mm512_loadu_ps(at + 2 * stride), d = _mm512_loadu_ps(at + 3 * stride);
        CROSS4(a, b, c, d);
        leave(x, a, i, e);
        leave(x, b, i + step, e);
        leave(x, c, i + 2 * step, e);
        leave(x, d, i + 3 * step, e);
    }
}

GW_TEMPLATE void one_stride(float *x, size_t stride, const edges *e)
{
    const size_t step = stride / 16;
    for (size_t i = 0; i < step; i++) {
        __m512 a = _mm512_loadu_ps(x + 16 * i), b = _mm512_loadu_ps(x + 16 * i + stride);
        CROSS(a, b);
        leave(x, a, i, e);
        leave(x, b, i + step, e);
    }
}

/* From CHUNK_LEN on; only the pass of the longest stride is the last one. */
GW_TEMPLATE void outer_strides(float *x, size_t len, const edges *last)
{
    const edges between = {0, 0, last->floor_bits, last->scale, last->signs};
    size_t stride = CHUNK_LEN;

    for (; 4 * stride < len; stride *= 4) {
        for (size_t start = 0; start < len; start += 4 * stride) {
            stride_pair(x + start, stride, &between);
        }
    }
    if (4 * stride == len) {
        stride_pair(x, stride, last);
    } else if (2 * stride == len) {
        one_stride(x, stride, last);
    }
}

GW_TEMPLATE void transform(float *dst, const float *src, size_t len, int is_back, __m512i floor_bits,
                           __m512 scale, const block_signs *signs)
{
    const edges whole = {!is_back, is_back, floor_bits, scale, signs->mask};

    if (len == 64) {
        chunk(dst, src, 4, &whole);
    } else if (len == 128) {
        chunk(dst, src, 8, &whole);
    } else if (len == CHUNK_LEN) {
        chunk(dst, src, 16, &whole);
    } else {
        for (size_t at = 0; at < len; at += CHUNK_LEN) {
            const edges piece = {!is_back, 0, floor_bits, scale, signs->mask + at / 16};
            chunk(dst + at, src + at, 16, &piece);
        }
        outer_strides(dst, len, &whole);
    }
}

void gw_thc_rotate_avx512(float *dst, const float *src, size_t len, uint32_t exponent,
                          const gw_thc_stream *stream)
{
    block_signs signs;

    make_signs(&signs, len, stream);
    transform(dst, src, len, 0, _mm512_set1_epi32((int)gw_thc_window_floor(exponent)),
              _mm512_set1_ps(gw_thc_window_scale(exponent)), &signs);
}

void gw_thc_rotate_back_avx512(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    const uint32_t floor_bits = gw_thc_back_floor(exponent);
    block_signs signs;

    make_signs(&signs, len, stream);
    transform(y, y, len, 1, _mm512_set1_epi32((int)floor_bits),
              _mm512_set1_ps(gw_float_from_bits(exponent << 23)), &signs);
}

#else
typedef int gw_thc_rotate_avx512_not_built; /* a translation unit must not be empty */
#endif
