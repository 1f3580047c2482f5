/*
 * Stage quantize: 128 values and their 16 counters at a time.
 *
 * The rule d (2u + 1) <= 2r, with r = P - L, L = 65536 table[z], is in integers d u <= r - ceil(d / 2). With
 * the random bits as signed numbers, u - 32768, it is (u - 32768) d + K <= P, K = L + ceil(d / 2) + 32768 d:
 * one multiply-add of 16-bit halves, whose operand d also selects the half of a word, and one addition.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

typedef struct steps {
    __m512i bound;   /* K by index; for the last above every position, so that it stays */
    __m512i gap[2];  /* d by index in the low half, in the high half */
    __m512i cell[4]; /* index by grid cell, 64 each */
    __m512 scale, low, high;
    __m512i offset;
} steps;

static void prepare_steps(steps *s, const gw_thc_quantizer *q)
{
    const __mmask16 inner = (__mmask16)((1u << q->index_max) - 1u); /* the last index has nothing above it */
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q->table);
    const __m512i low = _mm512_cvtepu8_epi32(bytes), above = _mm512_cvtepu8_epi32(_mm_srli_si128(bytes, 1));
    const __m512i d = _mm512_maskz_sub_epi32(inner, above, low);
    const __m512i half = _mm512_srli_epi32(_mm512_add_epi32(d, _mm512_set1_epi32(1)), 1);
    const __m512i k =
        _mm512_add_epi32(_mm512_slli_epi32(low, 16), _mm512_add_epi32(half, _mm512_slli_epi32(d, 15)));

    s->bound = _mm512_mask_mov_epi32(_mm512_set1_epi32(INT32_MAX), inner, k);
    s->gap[0] = d;
    s->gap[1] = _mm512_slli_epi32(d, 16);
    for (unsigned i = 0; i < 4; i++) {
        s->cell[i] = _mm512_loadu_si512(q->cell + 64 * i);
    }
    s->scale = _mm512_set1_ps(q->scale);
    s->low = _mm512_set1_ps(q->low);
    s->high = _mm512_set1_ps(q->high);
    s->offset = _mm512_set1_epi32(q->offset);
}

/* The index of each grid cell, byte by byte. `quarters` of 64 cells suffice, 1, 2 or 4. */
GW_TEMPLATE __m512i index_of_cell(const steps *s, __m512i cell, unsigned quarters)
{
    if (quarters == 1) {
        return _mm512_permutexvar_epi8(cell, s->cell[0]);
    }
    const __m512i lower = _mm512_permutex2var_epi8(s->cell[0], cell, s->cell[1]);
    if (quarters == 2) {
        return lower;
    }
    const __m512i upper = _mm512_permutex2var_epi8(s->cell[2], cell, s->cell[3]);
    return _mm512_mask_mov_epi8(lower, _mm512_movepi8_mask(cell), upper);
}

/* 16 values: the index in all four bytes of each lane, so that four results blend without shifts. Only the
 * low bits of a lane count where it selects from a table of sixteen. */
GW_TEMPLATE __m512i quantize16(const float *x, __m512i random, unsigned half, const steps *s,
                               unsigned quarters)
{
    const __m512i third_byte =
        _mm512_broadcast_i32x4(_mm_setr_epi8(2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14));
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), s->scale);
    const __m512 clamped = _mm512_max_ps(_mm512_min_ps(scaled, s->high), s->low);
    const __m512i position = _mm512_add_epi32(_mm512_cvttps_epi32(clamped), s->offset);
    const __m512i z = index_of_cell(s, _mm512_shuffle_epi8(position, third_byte), quarters);
    const __m512i share = _mm512_madd_epi16(random, _mm512_permutexvar_epi32(z, s->gap[half]));
    const __m512i bound = _mm512_add_epi32(share, _mm512_permutexvar_epi32(z, s->bound));
    const __mmask16 up = _mm512_cmple_epi32_mask(bound, position);
    return _mm512_mask_add_epi32(z, up, z, _mm512_set1_epi32(0x01010101));
}

/* 64 values of two random words: byte b of lane l is that of value 16 b + l. */
GW_TEMPLATE void quantize64(uint8_t *index, const float *x, __m512i word0, __m512i word1, const steps *s,
                            unsigned quarters)
{
    const __m512i a = quantize16(x, word0, 0, s, quarters), b = quantize16(x + 16, word0, 1, s, quarters);
    const __m512i c = quantize16(x + 32, word1, 0, s, quarters),
                  d = quantize16(x + 48, word1, 1, s, quarters);
    const __m512i ab = _mm512_mask_mov_epi8(a, 0x2222222222222222u, b);
    const __m512i cd = _mm512_mask_mov_epi8(c, 0x8888888888888888u, d);
    const __m512i bytes = _mm512_mask_mov_epi8(ab, 0xccccccccccccccccu, cd);
    /* Lanes to bytes: output 16 b + l takes byte 4 l + b. */
    const __m512i first =
        _mm512_set_epi8(63, 59, 55, 51, 47, 43, 39, 35, 31, 27, 23, 19, 15, 11, 7, 3, 62, 58, 54, 50, 46, 42,
                        38, 34, 30, 26, 22, 18, 14, 10, 6, 2, 61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17,
                        13, 9, 5, 1, 60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    _mm512_storeu_si512(index, _mm512_permutexvar_epi8(first, bytes));
}

#define RANDOM_SIGN 0x80008000u /* turns unsigned halves of words into signed ones, less 32768 */

/* Words of counters 0..7 and 8..15, one after the other. */
static inline __m512i sixteen_words(__m512i first, __m512i second)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi32(first, even, second);
}

typedef struct group_words {
    __m512i w0, w1, w2, w3;
} group_words;

/* The random bits of 128 values, as signed halves. */
static inline group_words words_of(size_t first_value, const gw_philox_params *params)
{
    const __m512i sign = _mm512_set1_epi32((int)RANDOM_SIGN);
    gw_philox8 a = gw_philox8_start((uint32_t)(first_value / 8), params);
    gw_philox8 b = gw_philox8_start((uint32_t)(first_value / 8) + 8, params);
    for (unsigned r = 2; r < GW_PHILOX_ROUNDS; r++) {
        gw_philox8_round(&a, params, r);
        gw_philox8_round(&b, params, r);
    }
    group_words w;
    w.w0 = sixteen_words(a.c0, b.c0);
    w.w1 = _mm512_xor_si512(sixteen_words(a.c1, b.c1), sign);
    w.w2 = sixteen_words(a.c2, b.c2);
    w.w3 = _mm512_xor_si512(sixteen_words(a.c3, b.c3), sign);
    return w;
}

/* The bits of the next 128 values are begun before the present ones are used: one chain of multiplications
 * and one of look-ups then run side by side. */
GW_TEMPLATE void quantize_all(uint8_t *index, const float *x, size_t len, const steps *s,
                              const gw_philox_params *params, unsigned quarters)
{
    group_words now = words_of(0, params);
    size_t i = 0;

    for (; i + 128 < len; i += 128) {
        const group_words next = words_of(i + 128, params);
        quantize64(index + i, x + i, now.w0, now.w1, s, quarters);
        quantize64(index + i + 64, x + i + 64, now.w2, now.w3, s, quarters);
        now = next;
    }
    if (i < len) {
        quantize64(index + i, x + i, now.w0, now.w1, s, quarters);
    }
    if (i + 64 < len) {
        quantize64(index + i + 64, x + i + 64, now.w2, now.w3, s, quarters);
    }
}

void gw_thc_quantize_avx512(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                            const gw_thc_stream *stream)
{
    const unsigned granularity = quantizer->table[quantizer->index_max];
    gw_philox_params params;
    steps s;

    prepare_steps(&s, quantizer);
    gw_philox_params_make(&params, stream, GW_THC_DOMAIN_ROUNDING | stream->rank, RANDOM_SIGN);
    if (granularity < 64) {
        quantize_all(index, x, len, &s, &params, 1);
    } else if (granularity < 128) {
        quantize_all(index, x, len, &s, &params, 2);
    } else {
        quantize_all(index, x, len, &s, &params, 4);
    }
}

#else
typedef int gw_thc_quantize_avx512_not_built; /* a translation unit must not be empty */
#endif
