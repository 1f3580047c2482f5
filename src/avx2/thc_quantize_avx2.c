/*
 * Stage quantize: 128 values and their 16 counters at a time; look-ups on bytes, 32 values at a time.
 *
 * The rule d (2u + 1) <= 2r, with r = P - L, L = 65536 table[z], is in integers d u <= r - ceil(d / 2). With
 * the random bits as signed numbers, u - 32768, it is (u - 32768) d + K <= P, K = L + ceil(d / 2) + 32768 d:
 * one multiply-add of 16-bit halves, whose operand d also selects the half of a word, and one addition. d and
 * the four bytes of K come from tables of 16 bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

typedef struct steps {
    __m256i cell[16];    /* index by grid cell, 16 each, twice in a register */
    __m256i gap;         /* d by index; 0 for the last */
    __m256i bound[4];    /* bytes of K by index; for the last above every position, so that it stays */
    unsigned cell_count; /* registers of cell[] that matter */
    __m256 scale, low, high;
    __m256i offset;
} steps;

static inline __m256i twice(const uint8_t *bytes)
{
    return _mm256_broadcastsi128_si256(gw_load128(bytes));
}

static void prepare_steps(steps *s, const gw_thc_quantizer *q)
{
    uint8_t gap[16], bound[4][16];

    for (uint32_t z = 0; z < 16; z++) {
        const uint32_t is_inner = z < q->index_max;
        const uint32_t d = is_inner ? (uint32_t)q->table[z + 1] - q->table[z] : 0;
        const uint32_t k = is_inner ? ((uint32_t)q->table[z] << 16) + (d + 1) / 2 + 32768 * d : INT32_MAX;
        gap[z] = (uint8_t)d;
        for (unsigned b = 0; b < 4; b++) {
            bound[b][z] = (uint8_t)(k >> 8 * b);
        }
    }
    s->gap = twice(gap);
    for (unsigned b = 0; b < 4; b++) {
        s->bound[b] = twice(bound[b]);
    }
    s->cell_count = q->table[q->index_max] / 16u + 1;
    for (unsigned i = 0; i < 16; i++) {
        s->cell[i] = twice(q->cell + 16 * i);
    }
    s->scale = _mm256_set1_ps(q->scale);
    s->low = _mm256_set1_ps(q->low);
    s->high = _mm256_set1_ps(q->high);
    s->offset = _mm256_set1_epi32(q->offset);
}

/* A byte shuffle gives 0 where the top bit is set: cells outside the sixteen of one register give 0, since
 * only 0..15 plus 0x70, with saturation, stays below 0x80. */
static inline __m256i cells_of(const steps *s, __m256i cells, unsigned i)
{
    const __m256i inside = _mm256_sub_epi8(cells, _mm256_set1_epi8((char)(16 * i)));
    return _mm256_shuffle_epi8(s->cell[i], _mm256_adds_epu8(inside, _mm256_set1_epi8(0x70)));
}

static inline __m256i index_of_cells(const steps *s, __m256i cells)
{
    __m256i z = _mm256_or_si256(cells_of(s, cells, 0), cells_of(s, cells, 1));
    for (unsigned i = 2; i < s->cell_count; i++) {
        z = _mm256_or_si256(z, cells_of(s, cells, i));
    }
    return z;
}

static inline __m256i positions(const float *x, const steps *s)
{
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), s->scale);
    const __m256 clamped = _mm256_max_ps(_mm256_min_ps(scaled, s->high), s->low);
    return _mm256_add_epi32(_mm256_cvttps_epi32(clamped), s->offset);
}

/* Four registers of dwords to bytes: within each half of the result, four bytes of each. */
static inline __m256i bytes_of(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
}

/* 0 where the value goes up, else -1; `gap` in the half of the random bits. */
static inline __m256i stays(__m256i position, __m256i random, __m256i gap, __m256i bound)
{
    const __m256i least = _mm256_add_epi32(_mm256_madd_epi16(random, gap), bound);
    return _mm256_cmpgt_epi32(least, position);
}

/* 32 values: random[] holds words for 16 of each half. */
static inline void quantize32(uint8_t *index, const float *x, __m256i random0, __m256i random1,
                              const steps *s)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i p0 = positions(x, s), p1 = positions(x + 8, s), p2 = positions(x + 16, s),
                  p3 = positions(x + 24, s);
    const __m256i cells = bytes_of(_mm256_srli_epi32(p0, 16), _mm256_srli_epi32(p1, 16),
                                   _mm256_srli_epi32(p2, 16), _mm256_srli_epi32(p3, 16));
    const __m256i z = index_of_cells(s, cells);

    /* Interleaving inside halves gives back the four registers. */
    const __m256i gap = _mm256_shuffle_epi8(s->gap, z);
    const __m256i gap01 = _mm256_unpacklo_epi8(gap, zero), gap23 = _mm256_unpackhi_epi8(gap, zero);
    const __m256i b0 = _mm256_shuffle_epi8(s->bound[0], z), b1 = _mm256_shuffle_epi8(s->bound[1], z);
    const __m256i b2 = _mm256_shuffle_epi8(s->bound[2], z), b3 = _mm256_shuffle_epi8(s->bound[3], z);
    const __m256i low01 = _mm256_unpacklo_epi8(b0, b1), high01 = _mm256_unpacklo_epi8(b2, b3);
    const __m256i low23 = _mm256_unpackhi_epi8(b0, b1), high23 = _mm256_unpackhi_epi8(b2, b3);
    const __m256i stay0 =
        stays(p0, random0, _mm256_unpacklo_epi16(gap01, zero), _mm256_unpacklo_epi16(low01, high01));
    const __m256i stay1 =
        stays(p1, random1, _mm256_unpackhi_epi16(gap01, zero), _mm256_unpackhi_epi16(low01, high01));
    const __m256i stay2 =
        stays(p2, random0, _mm256_unpacklo_epi16(zero, gap23), _mm256_unpacklo_epi16(low23, high23));
    const __m256i stay3 =
        stays(p3, random1, _mm256_unpackhi_epi16(zero, gap23), _mm256_unpackhi_epi16(low23, high23));
    const __m256i stay =
        _mm256_packs_epi16(_mm256_packs_epi32(stay0, stay1), _mm256_packs_epi32(stay2, stay3));
    const __m256i result = _mm256_add_epi8(_mm256_add_epi8(z, _mm256_set1_epi8(1)), stay);
    gw_store256(index, _mm256_permutevar8x32_epi32(result, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0)));
}

/* Counters 0, 1, 4, 5 and 2, 3, 6, 7 become eight words in order, as signed halves. */
static inline __m256i eight_words(__m256i a, __m256i b)
{
    const __m256 words = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
    return _mm256_xor_si256(_mm256_castps_si256(words), _mm256_set1_epi32((int)0x80008000u));
}

/* Words of eight counters from `first` on. */
static inline void eight_counters(__m256i word[4], uint32_t first, const gw_thc_stream *stream,
                                  const gw_philox_keys *keys)
{
    const uint32_t last = GW_THC_DOMAIN_ROUNDING | stream->rank;
    const __m256i start = _mm256_set1_epi64x((long long)first);
    gw_philox4 a = gw_philox4_start(_mm256_add_epi64(start, _mm256_set_epi64x(5, 4, 1, 0)), stream, last);
    gw_philox4 b = gw_philox4_start(_mm256_add_epi64(start, _mm256_set_epi64x(7, 6, 3, 2)), stream, last);
    for (unsigned r = 0; r < GW_PHILOX_ROUNDS; r++) {
        gw_philox4_round(&a, keys, r);
        gw_philox4_round(&b, keys, r);
    }
    word[0] = eight_words(a.c0, b.c0);
    word[1] = eight_words(a.c1, b.c1);
    word[2] = eight_words(a.c2, b.c2);
    word[3] = eight_words(a.c3, b.c3);
}

void gw_thc_quantize_avx2(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                          const gw_thc_stream *stream)
{
    gw_philox_keys keys;
    steps s;

    prepare_steps(&s, quantizer);
    gw_philox_schedule(&keys, stream->seed);
    for (size_t i = 0; i < len; i += 128) {
        __m256i word0[4], word1[4]; /* of counters 0..7 and 8..15 */
        eight_counters(word0, (uint32_t)(i / 8), stream, &keys);
        eight_counters(word1, (uint32_t)(i / 8) + 8, stream, &keys);
        quantize32(index + i, x + i, word0[0], word1[0], &s);
        quantize32(index + i + 32, x + i + 32, word0[1], word1[1], &s);
        if (i + 64 == len) {
            break;
        }
        quantize32(index + i + 64, x + i + 64, word0[2], word1[2], &s);
        quantize32(index + i + 96, x + i + 96, word0[3], word1[3], &s);
    }
}

#else
typedef int gw_thc_quantize_avx2_not_built; /* a translation unit must not be empty */
#endif
