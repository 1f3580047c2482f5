/*
 * Survey: bins of values, 64 at a time as in split, then counted one by one.
 *
 * A byte of drop_steps and one of exponent form an index of 16 bits; the order of values does not matter.
 * Four tables are used in turn, so that equal bins in a row do not form one dependency chain. The lines of a
 * sample are too far apart for hardware prefetchers: they are prefetched some runs ahead.
 *
 * Bound: one store a cycle, so 1 cycle/value; rounding 0.5 more.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/dead_zone_avx512.h"

#if defined(GW_AVX512_COMPILED)

#if defined(__GNUC__)
#define GW_NOINLINE __attribute__((noinline))
#else
#define GW_NOINLINE
#endif

enum { RUNS = 8, RUN_LEN = 64 };

enum { AHEAD = 16 };

/* Index: 256 * drop_steps + exponent field. */
typedef struct tally {
    uint32_t count[4][4 * 256];
    uint32_t zero;  /* +0, where it is not counted as exponent 0 */
    uint32_t other; /* not +0, but with exponent 0: -0, subnormals of strict mode */
} tally;

static inline void count_indices(tally *t, __m512i drop_steps, __m512i e)
{
    uint64_t word[16];
    _mm512_storeu_si512(word, _mm512_unpacklo_epi8(e, drop_steps));
    _mm512_storeu_si512(word + 8, _mm512_unpackhi_epi8(e, drop_steps));
    for (unsigned i = 0; i < 16; i++) {
        const uint64_t four = word[i];
        t->count[0][four & 0xffff]++;
        t->count[1][four >> 16 & 0xffff]++;
        t->count[2][four >> 32 & 0xffff]++;
        t->count[3][four >> 48]++;
    }
}

static inline __m512i steps_of(const gw_block *b, uint32_t derived)
{
    __m512i drop_steps = _mm512_setzero_si512();
    if (!derived) {
        drop_steps = _mm512_mask_add_epi8(drop_steps, b->steps1, drop_steps, GW_BYTE(1));
        drop_steps = _mm512_mask_add_epi8(drop_steps, b->steps2, drop_steps, GW_BYTE(1));
        drop_steps = _mm512_mask_add_epi8(drop_steps, b->steps3, drop_steps, GW_BYTE(1));
    }
    return drop_steps;
}

/* Adds the first `size` bytes of a zero mask. */
static inline void count_mask(uint32_t *mask_count, __mmask64 mask, size_t size)
{
    const uint64_t bits = _cvtmask64_u64(mask);
    for (size_t i = 0; i < size; i++) {
        mask_count[bits >> 8 * i & 255]++;
    }
}

/* Any values [at, at + len), len <= 64: values without a bin of their own, and lanes past the end, are
 * counted in the bins of exponent 0, and subtracted afterwards. */
GW_TEMPLATE void survey_block(tally *t, uint32_t *mask_count, const gw_span *span, size_t at, size_t len,
                              const gw_rounder *r, uint32_t dtype, uint32_t derived, uint32_t turned)
{
    const __mmask64 valid = gw_low_mask(len);
    const gw_span part = gw_span_part(span, at, len, gw_traits_of(dtype)->size);
    const gw_bytes v = gw_load_bytes((const uint8_t *)part.values, len, dtype);
    const __m512i k = gw_load_map_bytes_part(r, at, valid);
    gw_block b = gw_round64_any(&v, k, &part, r, dtype, derived, turned);
    if (dtype == GW_FP16 && !derived) {
        gw_clear_cut(&b);
    }
    const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, r->strict);
    const __mmask64 ordinary = nonzero.magnitude & valid;
    t->zero += (uint32_t)_mm_popcnt_u64(~nonzero.value & valid);
    t->other += (uint32_t)_mm_popcnt_u64(nonzero.value & valid & ~ordinary);
    __m512i e = b.v.e;
    if (turned) {
        const __m512i special = GW_BYTE(gw_traits_of(dtype)->exponent_mask);
        e = gw_turned(e, k, _mm512_mask_cmpneq_epi8_mask(ordinary, e, special), r, dtype);
    }
    count_indices(t, _mm512_maskz_mov_epi8(ordinary, steps_of(&b, derived)),
                  _mm512_maskz_mov_epi8(ordinary, e));
    if (mask_count != NULL) {
        count_mask(mask_count, nonzero.value & valid, (len + 7) / 8);
    }
    /* Such values were counted at index 0, in any of the four tables: only their sum matters. */
    t->count[0][0] -= 64 - (uint32_t)_mm_popcnt_u64(ordinary);
}

/* Values [at, end) of a span, a run every `period`. */
#define SURVEY_BLOCKS(name, dtype, derived, turned)                                                          \
    static GW_NOINLINE void name(tally *t, uint32_t *mask_count, const gw_span *span, size_t at, size_t end, \
                                 size_t period, const gw_rounder *r)                                         \
    {                                                                                                        \
        for (; at < end; at += period) {                                                                     \
            const size_t len = end - at < RUN_LEN ? end - at : RUN_LEN;                                      \
            survey_block(t, mask_count, span, at, len, r, (dtype), (derived), (turned));                     \
        }                                                                                                    \
    }                                                                                                        \
    _Static_assert(1, "a semicolon follows")

SURVEY_BLOCKS(survey_blocks_fp32, GW_FP32, 0, 0);
SURVEY_BLOCKS(survey_blocks_fp32_derived, GW_FP32, 1, 0);
SURVEY_BLOCKS(survey_blocks_fp32_turned, GW_FP32, 1, 1);
SURVEY_BLOCKS(survey_blocks_bf16, GW_BF16, 0, 0);
SURVEY_BLOCKS(survey_blocks_bf16_derived, GW_BF16, 1, 0);
SURVEY_BLOCKS(survey_blocks_bf16_turned, GW_BF16, 1, 1);
SURVEY_BLOCKS(survey_blocks_fp16, GW_FP16, 0, 0);
SURVEY_BLOCKS(survey_blocks_fp16_derived, GW_FP16, 1, 0);
SURVEY_BLOCKS(survey_blocks_fp16_turned, GW_FP16, 1, 1);

typedef void survey_blocks_fn(tally *t, uint32_t *mask_count, const gw_span *span, size_t at, size_t end,
                              size_t period, const gw_rounder *r);

/* turned: only if derived */
GW_TEMPLATE survey_blocks_fn *survey_blocks_of(uint32_t dtype, uint32_t derived, uint32_t turned)
{
    switch (dtype) {
    case GW_FP32:
        return turned ? survey_blocks_fp32_turned : derived ? survey_blocks_fp32_derived : survey_blocks_fp32;
    case GW_BF16:
        return turned ? survey_blocks_bf16_turned : derived ? survey_blocks_bf16_derived : survey_blocks_bf16;
    default:
        return turned ? survey_blocks_fp16_turned : derived ? survey_blocks_fp16_derived : survey_blocks_fp16;
    }
}

/* A run between the parts of rounding. */
typedef struct survey_sums {
    gw_sums sums;
    gw_cut cut; /* if `turned` */
} survey_sums;

GW_TEMPLATE void begin(survey_sums *s, const gw_bytes *v, __m512i k, const __m512i *words,
                       const uint8_t *values, const gw_rounder *r, uint32_t dtype, uint32_t derived,
                       uint32_t turned, uint32_t rounding)
{
    s->sums = gw_round_begin(*v, k, words, r, dtype, derived, rounding, 0);
    if (turned) {
        s->cut = gw_cut_begin(v, k, words, values, RUN_LEN, r, dtype, rounding);
    }
}

GW_TEMPLATE void begin_any(survey_sums *s, const gw_bytes *v, size_t at, const gw_span *span,
                           const gw_rounder *r, uint32_t dtype, uint32_t derived, uint32_t turned)
{
    const uint8_t *values = (const uint8_t *)span->values + gw_traits_of(dtype)->size * at;
    const __m512i k = gw_load_map_bytes(r, at);
    __m512i words[4];
    switch (r->rule->rounding) {
    case GW_GCOMP_NEAREST:
        begin(s, v, k, NULL, values, r, dtype, derived, turned, GW_GCOMP_NEAREST);
        break;
    case GW_GCOMP_STOCHASTIC:
        gw_random_words(words, span->element + at, r->rule);
        begin(s, v, k, words, values, r, dtype, derived, turned, GW_GCOMP_STOCHASTIC);
        break;
    default:
        begin(s, v, k, NULL, values, r, dtype, derived, turned, GW_GCOMP_TRUNCATE);
        break;
    }
}

/* The last byte, too: arrays seldom start at a line. */
static void fetch_bytes(const void *at, size_t size)
{
    const char *bytes = (const char *)at;
    for (size_t i = 0; i < size; i += 64) {
        _mm_prefetch(bytes + i, _MM_HINT_T1);
    }
    _mm_prefetch(bytes + size - 1, _MM_HINT_T1);
}

static void fetch_run(const gw_span *span, size_t at, size_t size)
{
    fetch_bytes((const uint8_t *)span->values + size * at, size * RUN_LEN);
    if (span->map_bytes != NULL) {
        fetch_bytes(span->map_bytes + at, RUN_LEN);
    }
}

/* Whole runs of fp32 or bf16 values in default mode: as in split, a block with infinity, NaN or a carry
 * into them is done again by survey_blocks_of(). Returns the index after the last of them. */
GW_TEMPLATE size_t survey_runs(tally *t, uint32_t *mask_count, const gw_span *span, size_t period,
                               const gw_rounder *r, uint32_t dtype, uint32_t derived, uint32_t turned)
{
    const size_t size = gw_traits_of(dtype)->size;
    const uint8_t *values = (const uint8_t *)span->values;
    survey_sums sums[RUNS];
    size_t at = 0;
    while (at + RUN_LEN <= span->len) {
        const size_t first = at;
        size_t count = 0;
        for (; count < RUNS && at + RUN_LEN <= span->len; count++, at += period) {
            if (period > RUN_LEN && at + RUNS * period + RUN_LEN <= span->len) {
                fetch_run(span, at + RUNS * period, size);
            }
            const gw_bytes v = gw_load_bytes(values + size * at, RUN_LEN, dtype);
            begin_any(&sums[count], &v, at, span, r, dtype, derived, turned);
        }
        for (size_t j = 0; j < count; j++) {
            const __m512i e = sums[j].sums.v.e;
            __mmask64 nonzero = _mm512_test_epi8_mask(e, e);
            /* Without random bits or halves added there are no carries, and the second part changes
             * nothing. */
            gw_block b = gw_round_end(&sums[j].sums, NULL, r, dtype, derived, GW_GCOMP_NEAREST, 0);
            if (turned) {
                gw_cut_end(&b, &sums[j].cut);
                nonzero = _kandn_mask64(gw_cut_away(&sums[j].cut), nonzero);
            }
            const __m512i special = GW_BYTE(255);
            if (__builtin_expect(
                    (_mm512_cmpeq_epi8_mask(e, special) | _mm512_cmpeq_epi8_mask(b.v.e, special)) != 0, 0)) {
                const size_t run = first + j * period;
                survey_blocks_of(dtype, derived, turned)(t, mask_count, span, run, run + RUN_LEN, RUN_LEN, r);
                continue;
            }
            if (turned) {
                b.v.e = gw_turned(b.v.e, gw_load_map_bytes(r, first + j * period), nonzero, r, dtype);
            }
            /* Zero has index 0, which is its bin. */
            count_indices(t, _mm512_maskz_mov_epi8(nonzero, steps_of(&b, derived)),
                          _mm512_maskz_mov_epi8(nonzero, b.v.e));
            if (mask_count != NULL) {
                count_mask(mask_count, nonzero, RUN_LEN / 8);
            }
        }
    }
    return at;
}

/* Counts 64 values by their exponents, which are bins of drop_steps 0. */
static inline void count_exponents(tally *t, __m512i e, __mmask64 nonzero)
{
    uint64_t word[8];
    const size_t len = (size_t)_mm_popcnt_u64(_cvtmask64_u64(nonzero));
    const size_t end = (len + 7) / 8;
    /* The others are zeros, of which those after the end are counted at once. */
    _mm512_storeu_si512(word, _mm512_maskz_compress_epi8(nonzero, e));
    t->count[0][0] += (uint32_t)(64 - 8 * end);
    for (size_t i = 0; i < end; i++) {
        const uint64_t eight = word[i];
        t->count[0][eight & 255]++;
        t->count[1][eight >> 8 & 255]++;
        t->count[2][eight >> 16 & 255]++;
        t->count[3][eight >> 24 & 255]++;
        t->count[0][eight >> 32 & 255]++;
        t->count[1][eight >> 40 & 255]++;
        t->count[2][eight >> 48 & 255]++;
        t->count[3][eight >> 56]++;
    }
}

/* As survey_runs(), for fp32 rounded with a dead zone and random words. */
GW_TEMPLATE size_t survey_dead_zone_runs(tally *t, uint32_t *mask_count, const gw_span *span, size_t period,
                                         const gw_dead_zone_params *params, const gw_rounder *r,
                                         uint32_t relative)
{
    const uint8_t *values = (const uint8_t *)span->values;
    const size_t offset = span->element % GW_RANDOM_SHARED;
    const size_t next = offset == 0 ? period : RUN_LEN; /* where the second 64 words are for */
    const size_t runs = offset == 0 ? 4 : 2;            /* that have their words together */
    _Alignas(64) uint32_t words[256];
    size_t at = 0;
    for (size_t i = 0; period > RUN_LEN && i < AHEAD * period && i + RUN_LEN <= span->len; i += period) {
        fetch_run(span, i, 4);
    }
    for (size_t run = 0; at + RUN_LEN <= span->len; run++, at += period) {
        if (period > RUN_LEN && at + AHEAD * period + RUN_LEN <= span->len) {
            fetch_run(span, at + AHEAD * period, 4);
        }
        if (run % runs == 0) {
            const uint64_t first = span->element - offset + at,
                           other = first + (offset == 0 ? 2 : 1) * period;
            const uint64_t element[4] = {first, first + next, other, other + next};
            gw_random_blocks(words, element, 4, &params->random);
        }
        const uint32_t *word = words + offset + sizeof words / sizeof *words / runs * (run % runs);
        const gw_dead_zone_block b =
            gw_dead_zone_round(values + 4 * at, span->map_bytes + at, word, params, relative);
        if (__builtin_expect(b.special != 0, 0)) {
            survey_blocks_of(GW_FP32, 1, 1)(t, mask_count, span, at, at + RUN_LEN, RUN_LEN, r);
            continue;
        }
        count_exponents(t, b.index, b.nonzero);
        if (mask_count != NULL) {
            count_mask(mask_count, b.nonzero, RUN_LEN / 8);
        }
    }
    return at;
}

/* Adds the tables to count, whose bins are 4 * exponent + drop steps. */
static void add_tally(uint32_t *count, const tally *t, uint32_t dtype)
{
    for (size_t e = 0; e <= gw_traits_of(dtype)->exponent_mask; e++) {
        for (size_t drop_steps = 0; drop_steps < 4; drop_steps++) {
            const size_t i = 256 * drop_steps + e;
            count[4 * e + drop_steps] += t->count[0][i] + t->count[1][i] + t->count[2][i] + t->count[3][i];
        }
    }
    count[dtype == GW_FP16 ? (uint32_t)GW_BIN_FP16_ZERO : 0] += t->zero;
    count[dtype == GW_FP16 ? 4 * 31 : 1] += t->other;
}

GW_TEMPLATE void survey_span(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                             const gw_round_rule *rule, uint32_t dtype, uint32_t derived, uint32_t turned)
{
    gw_rounder r;
    gw_drop_tables tables;
    gw_dead_zone_params params;
    tally t;
    size_t at = 0;
    gw_rounder_init(&r, &tables, span, rule);
    GW_MEMSET(&t, 0, sizeof t);
    if (turned && gw_dead_zone_params_fill(&params, span, rule)) {
        at = rule->relative ? survey_dead_zone_runs(&t, mask_count, span, period, &params, &r, 1)
                            : survey_dead_zone_runs(&t, mask_count, span, period, &params, &r, 0);
    } else if (dtype != GW_FP16 && !r.strict && r.is_quick) {
        at = mask_count == NULL ? survey_runs(&t, NULL, span, period, &r, dtype, derived, turned)
                                : survey_runs(&t, mask_count, span, period, &r, dtype, derived, turned);
    }
    survey_blocks_of(dtype, derived, turned)(&t, mask_count, span, at, span->len, period, &r);
    add_tally(count, &t, dtype);
}

#define SURVEY_CASE(dtype, derived, turned)                                                                  \
    case ((dtype)*2 + (derived)) * 2 + (turned):                                                             \
        survey_span(count, mask_count, span, period, rule, (dtype), (derived), (turned));                    \
        break

void gw_survey_avx512(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                      const gw_round_rule *rule)
{
    switch ((rule->dtype * 2 + rule->derived) * 2 + gw_is_turned(rule)) {
        SURVEY_CASE(GW_FP32, 0, 0);
        SURVEY_CASE(GW_FP32, 1, 0);
        SURVEY_CASE(GW_FP32, 1, 1);
        SURVEY_CASE(GW_BF16, 0, 0);
        SURVEY_CASE(GW_BF16, 1, 0);
        SURVEY_CASE(GW_BF16, 1, 1);
        SURVEY_CASE(GW_FP16, 0, 0);
        SURVEY_CASE(GW_FP16, 1, 0);
        SURVEY_CASE(GW_FP16, 1, 1);
    default:
        break;
    }
}

#else
typedef int gw_survey_avx512_not_built; /* a translation unit must not be empty */
#endif
