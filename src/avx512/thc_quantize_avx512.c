/*
 * Stage quantize: 128 values and their 16 counters at a time.
 *
 * The rule d (2u + 1) <= 2r, with r = P - L, L = 65536 table[z], is in integers d u <= r - ceil(d / 2). With
 * the random bits as signed numbers, u - 32768, it is (u - 32768) d + K <= P, K = L + ceil(d / 2) - (-32768 d):
 * one multiply-add of 16-bit halves, which also picks the half of a word by where d stands, and one addition.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_kernels_avx512.h"

#if GW_THC_BUILD_AVX512

typedef struct steps {
    __m512i bound;   /* K by index; above everything for the last, which stays */
    __m512i gap[2];  /* d by index in the low half, in the high half */
    __m512i cell[4]; /* index by grid cell, 64 each */
    __m512 scale, low, high;
    __m512i offset;
} steps;

static void prepare_steps(steps *s, const gw_thc_quantizer *q)
{
    uint32_t bound[16], gap[16];

    for (uint32_t z = 0; z < 16; z++) {
        const uint32_t is_inner = z < q->index_max;
        const uint32_t d = is_inner ? (uint32_t)q->table[z + 1] - q->table[z] : 0;
        gap[z] = d;
        bound[z] = is_inner ? ((uint32_t)q->table[z] << 16) + (d + 1) / 2 + 32768 * d : INT32_MAX;
    }
    s->bound = _mm512_loadu_si512(bound);
    s->gap[0] = _mm512_loadu_si512(gap);
    s->gap[1] = _mm512_slli_epi32(s->gap[0], 16);
    for (unsigned i = 0; i < 4; i++)
        s->cell[i] = _mm512_loadu_si512(q->cell + 64 * i);
    s->scale = _mm512_set1_ps(q->scale);
    s->low = _mm512_set1_ps(q->low);
    s->high = _mm512_set1_ps(q->high);
    s->offset = _mm512_set1_epi32(q->offset);
}

/* The index of each grid cell; the upper bytes of the lanes look up cell 0, whose index is 0. `quarters` of
 * 64 cells suffice, 1, 2 or 4. */
GW_TEMPLATE __m512i index_of_cell(const steps *s, __m512i cell, unsigned quarters)
{
    if (quarters == 1)
        return _mm512_permutexvar_epi8(cell, s->cell[0]);
    const __m512i lower = _mm512_permutex2var_epi8(s->cell[0], cell, s->cell[1]);
    if (quarters == 2)
        return lower;
    const __m512i upper = _mm512_permutex2var_epi8(s->cell[2], cell, s->cell[3]);
    return _mm512_mask_mov_epi8(lower, _mm512_movepi8_mask(cell), upper);
}

GW_TEMPLATE void quantize16(uint8_t *index, const float *x, __m512i random, unsigned half, const steps *s,
                            unsigned quarters)
{
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), s->scale);
    const __m512 clamped = _mm512_max_ps(_mm512_min_ps(scaled, s->high), s->low);
    const __m512i position = _mm512_add_epi32(_mm512_cvttps_epi32(clamped), s->offset);
    const __m512i z = index_of_cell(s, _mm512_srli_epi32(position, 16), quarters);
    const __m512i share = _mm512_madd_epi16(random, _mm512_permutexvar_epi32(z, s->gap[half]));
    const __m512i bound = _mm512_add_epi32(share, _mm512_permutexvar_epi32(z, s->bound));
    const __mmask16 up = _mm512_cmple_epi32_mask(bound, position);
    const __m512i result = _mm512_mask_add_epi32(z, up, z, _mm512_set1_epi32(1));
    _mm_storeu_si128((__m128i *)(void *)index, _mm512_cvtepi32_epi8(result));
}

/* Words of counters 0..7 and 8..15, one after the other, as signed halves. */
static inline __m512i sixteen_words(__m512i first, __m512i second)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_xor_si512(_mm512_permutex2var_epi32(first, even, second),
                            _mm512_set1_epi32((int)0x80008000u));
}

GW_TEMPLATE void quantize_all(uint8_t *index, const float *x, size_t len, const steps *s,
                              const gw_thc_stream *stream, unsigned quarters)
{
    const uint32_t last = GW_THC_DOMAIN_ROUNDING | stream->rank;
    gw_philox_keys keys;

    gw_philox_schedule(&keys, stream->seed);
    for (size_t i = 0; i < len; i += 128) {
        gw_philox8 a = gw_philox8_start((uint32_t)(i / 8), stream, last);
        gw_philox8 b = gw_philox8_start((uint32_t)(i / 8) + 8, stream, last);
        for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
            gw_philox8_round(&a, &keys, r);
            gw_philox8_round(&b, &keys, r);
        }
        const __m512i w0 = sixteen_words(a.c0, b.c0), w1 = sixteen_words(a.c1, b.c1);
        quantize16(index + i, x + i, w0, 0, s, quarters);
        quantize16(index + i + 16, x + i + 16, w0, 1, s, quarters);
        quantize16(index + i + 32, x + i + 32, w1, 0, s, quarters);
        quantize16(index + i + 48, x + i + 48, w1, 1, s, quarters);
        if (i + 64 == len)
            break;
        const __m512i w2 = sixteen_words(a.c2, b.c2), w3 = sixteen_words(a.c3, b.c3);
        quantize16(index + i + 64, x + i + 64, w2, 0, s, quarters);
        quantize16(index + i + 80, x + i + 80, w2, 1, s, quarters);
        quantize16(index + i + 96, x + i + 96, w3, 0, s, quarters);
        quantize16(index + i + 112, x + i + 112, w3, 1, s, quarters);
    }
}

void gw_thc_quantize_avx512(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                            const gw_thc_stream *stream)
{
    const unsigned granularity = quantizer->table[quantizer->index_max];
    steps s;

    prepare_steps(&s, quantizer);
    if (granularity < 64)
        quantize_all(index, x, len, &s, stream, 1);
    else if (granularity < 128)
        quantize_all(index, x, len, &s, stream, 2);
    else
        quantize_all(index, x, len, &s, stream, 4);
}

#else
typedef int gw_thc_quantize_avx512_not_built; /* a translation unit must not be empty */
#endif
