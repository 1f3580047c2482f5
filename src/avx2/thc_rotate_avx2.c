/*
 * Stages rotate and rotate back: strides 1, 2, 4 inside a register, 8, 16, 32 between eight of them, longer
 * ones two at a time over memory.
 *
 * Inside a register a permutation gives the partner; (a + b, a - b) is the partner plus x with the sign of
 * its second half turned, and a + (-b) is a - b.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

#define CHUNK_LEN 64u /* values of eight registers */

typedef struct block_signs {
    uint32_t word[8192 / 32 + 16];
} block_signs;

/* Counters of 128 values each, four at a time; the last batch may run beyond the block. */
static void make_signs(block_signs *signs, size_t len, const gw_thc_stream *stream)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i counters = _mm256_set_epi64x(3, 2, 1, 0);
    gw_philox_keys keys;

    gw_philox_schedule(&keys, stream->seed);
    for (size_t counter = 0; counter * 128 < len; counter += 4) {
        gw_philox4 p = gw_philox4_start(counters, stream, GW_THC_DOMAIN_SIGNS);
        for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox4_round(&p, &keys, r);
        }
        const __m256i w01 = _mm256_or_si256(_mm256_and_si256(p.c0, low), _mm256_slli_epi64(p.c1, 32));
        const __m256i w23 = _mm256_or_si256(_mm256_and_si256(p.c2, low), _mm256_slli_epi64(p.c3, 32));
        const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);
        gw_store256(&signs->word[4 * counter], _mm256_permute2x128_si256(even, odd, 0x20));
        gw_store256(&signs->word[4 * counter + 8], _mm256_permute2x128_si256(even, odd, 0x31));
        counters = _mm256_add_epi64(counters, _mm256_set1_epi64x(4));
    }
}

/* Register i of a block: its eight sign bits at the top of eight lanes. */
static inline __m256 negate_some(__m256 x, const uint32_t *words, size_t i)
{
    const __m256i shift = _mm256_set_epi32(24, 25, 26, 27, 28, 29, 30, 31);
    const __m256i bits = _mm256_set1_epi32((int)(words[i / 4] >> i % 4 * 8));
    const __m256i signs =
        _mm256_and_si256(_mm256_sllv_epi32(bits, shift), _mm256_set1_epi32((int)0x80000000u));
    return _mm256_xor_ps(x, _mm256_castsi256_ps(signs));
}

/* Strides 1, 2, 4. */
static inline __m256 inner_strides(__m256 x)
{
    const __m256 odd1 = _mm256_set_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    const __m256 odd2 = _mm256_set_ps(-0.0f, -0.0f, 0, 0, -0.0f, -0.0f, 0, 0);
    const __m256 odd4 = _mm256_set_ps(-0.0f, -0.0f, -0.0f, -0.0f, 0, 0, 0, 0);
    x = _mm256_add_ps(_mm256_permute_ps(x, 0xb1), _mm256_xor_ps(x, odd1));
    x = _mm256_add_ps(_mm256_permute_ps(x, 0x4e), _mm256_xor_ps(x, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, odd4));
}

/* Conversion of values on load and store. */
typedef struct edges {
    int is_first, is_last; /* constants wherever this is inlined */
    __m256i below;
    __m256 scale;
    const uint32_t *signs; /* of the first value of the piece */
} edges;

GW_TEMPLATE __m256 enter(const float *src, unsigned i, const edges *e)
{
    __m256 x = _mm256_loadu_ps(src + 8 * i);
    if (e->is_first) {
        x = negate_some(gw_window8(x, e->below, e->scale), e->signs, i);
    }
    return inner_strides(x);
}

/* rotate_back's last step: sign, then power of two, or +0 where the product would be too small. */
GW_TEMPLATE void leave(float *dst, __m256 x, size_t i, const edges *e)
{
    if (e->is_last) {
        x = gw_window8(negate_some(x, e->signs, i), e->below, e->scale);
    }
    _mm256_storeu_ps(dst + 8 * i, x);
}

#define CROSS(a, b)                                                                                          \
    do {                                                                                                     \
        const __m256 sum = _mm256_add_ps(a, b);                                                              \
        b = _mm256_sub_ps(a, b);                                                                             \
        a = sum;                                                                                             \
    } while (0)
#define CROSS4(a, b, c, d)                                                                                   \
    do {                                                                                                     \
        CROSS(a, b);                                                                                         \
        CROSS(c, d);                                                                                         \
        CROSS(a, c);                                                                                         \
        CROSS(b, d);                                                                                         \
    } while (0)

GW_TEMPLATE void chunk(float *dst, const float *src, const edges *e)
{
    __m256 v0 = enter(src, 0, e), v1 = enter(src, 1, e), v2 = enter(src, 2, e), v3 = enter(src, 3, e);
    __m256 v4 = enter(src, 4, e), v5 = enter(src, 5, e), v6 = enter(src, 6, e), v7 = enter(src, 7, e);
    CROSS4(v0, v1, v2, v3);
    CROSS4(v4, v5, v6, v7);
    CROSS(v0, v4);
    CROSS(v1, v5);
    CROSS(v2, v6);
    CROSS(v3, v7);
    leave(dst, v0, 0, e);
    leave(dst, v1, 1, e);
    leave(dst, v2, 2, e);
    leave(dst, v3, 3, e);
    leave(dst, v4, 4, e);
    leave(dst, v5, 5, e);
    leave(dst, v6, 6, e);
    leave(dst, v7, 7, e);
}

/* Strides `stride` and 2 * stride over 4 * stride values. */
GW_TEMPLATE void stride_pair(float *x, size_t stride, const edges *e)
{
    const size_t step = stride / 8;
    for (size_t i = 0; i < step; i++) {
        float *const at = x + 8 * i;
        __m256 a = _mm256_loadu_ps(at), b = _mm256_loadu_ps(at + stride);
        __m256 c = _mm256_loadu_ps(at + 2 * stride), d = _mm256_loadu_ps(at + 3 * stride);
        CROSS4(a, b, c, d);
        leave(x, a, i, e);
        leave(x, b, i + step, e);
        leave(x, c, i + 2 * step, e);
        leave(x, d, i + 3 * step, e);
    }
}

GW_TEMPLATE void one_stride(float *x, size_t stride, const edges *e)
{
    const size_t step = stride / 8;
    for (size_t i = 0; i < step; i++) {
        __m256 a = _mm256_loadu_ps(x + 8 * i), b = _mm256_loadu_ps(x + 8 * i + stride);
        CROSS(a, b);
        leave(x, a, i, e);
        leave(x, b, i + step, e);
    }
}

/* From CHUNK_LEN on; only the pass of the longest stride is the last one. */
GW_TEMPLATE void outer_strides(float *x, size_t len, const edges *last)
{
    const edges between = {0, 0, last->below, last->scale, last->signs};
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

GW_TEMPLATE void transform(float *dst, const float *src, size_t len, int is_back, __m256i below, __m256 scale,
                           const block_signs *signs)
{
    const edges whole = {!is_back, is_back, below, scale, signs->word};

    if (len == CHUNK_LEN) {
        chunk(dst, src, &whole);
        return;
    }
    for (size_t at = 0; at < len; at += CHUNK_LEN) {
        const edges piece = {!is_back, 0, below, scale, signs->word + at / 32};
        chunk(dst + at, src + at, &piece);
    }
    outer_strides(dst, len, &whole);
}

void gw_thc_rotate_avx2(float *dst, const float *src, size_t len, uint32_t exponent,
                        const gw_thc_stream *stream)
{
    block_signs signs;

    make_signs(&signs, len, stream);
    transform(dst, src, len, 0, gw_window_below8(gw_thc_window_floor(exponent)),
              _mm256_set1_ps(gw_thc_window_scale(exponent)), &signs);
}

void gw_thc_rotate_back_avx2(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    const uint32_t floor_bits = gw_thc_back_floor(exponent);
    block_signs signs;

    make_signs(&signs, len, stream);
    transform(y, y, len, 1, gw_window_below8(floor_bits), _mm256_set1_ps(gw_float_from_bits(exponent << 23)),
              &signs);
}

#else
typedef int gw_thc_rotate_avx2_not_built; /* a translation unit must not be empty */
#endif
