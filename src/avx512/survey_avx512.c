/*
 * Survey: bins of values, 64 at a time as in split, then counted one by one.
 *
 * A byte of level and one of exponent form an index of 16 bits; the order of values does not matter. Four
 * tables are used in turn, so that equal bins in a row do not form one dependency chain. The lines of a
 * sample are too far apart for hardware prefetchers: they are prefetched some runs ahead.
 *
 * Bound: one store a cycle, so 1 cycle/value; rounding 0.5 more.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/round_block_avx512.h"

#if defined(GW_AVX512_COMPILED)

enum { RUNS = 8, RUN_LEN = 64 };

/* Index: 256 * level + exponent field. */
typedef struct tally {
    uint32_t count[4][4 * 256];
    uint32_t zero;  /* +0, where it is not counted as exponent 0 */
    uint32_t other; /* not +0, but with exponent 0: -0, subnormals of strict mode */
} tally;

static inline void count_indices(tally *t, __m512i level, __m512i e)
{
    uint64_t word[16];
    _mm512_storeu_si512(word, _mm512_unpacklo_epi8(e, level));
    _mm512_storeu_si512(word + 8, _mm512_unpackhi_epi8(e, level));
    for (unsigned i = 0; i < 16; i++) {
        const uint64_t four = word[i];
        t->count[0][four & 0xffff]++;
        t->count[1][four >> 16 & 0xffff]++;
        t->count[2][four >> 32 & 0xffff]++;
        t->count[3][four >> 48]++;
    }
}

static inline __m512i level_of(const gw_block *b, uint32_t derived)
{
    __m512i level = _mm512_setzero_si512();
    if (!derived) {
        level = _mm512_mask_add_epi8(level, b->level1, level, GW_BYTE(1));
        level = _mm512_mask_add_epi8(level, b->level2, level, GW_BYTE(1));
        level = _mm512_mask_add_epi8(level, b->level3, level, GW_BYTE(1));
    }
    return level;
}

/* Any values [at, at + len), len <= 64: values without a bin of their own, and lanes past the end, are
 * counted in the bins of exponent 0, and subtracted afterwards. */
GW_TEMPLATE void survey_block(tally *t, const gw_span *span, size_t at, size_t len, const gw_rounder *r,
                              uint32_t dtype, uint32_t derived)
{
    const __mmask64 valid = gw_low_mask(len);
    const gw_bytes v =
        gw_load_bytes((const uint8_t *)span->values + gw_traits_of(dtype)->size * at, len, dtype);
    const __m512i k = gw_load_levels_part(r, at, valid);
    gw_block b = gw_round64_any(v, k, span->element + at, r, dtype, derived);
    if (dtype == GW_FP16 && !derived) {
        gw_clear_cut(&b);
    }
    const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, r->strict);
    const __mmask64 ordinary = nonzero.magnitude & valid;
    t->zero += (uint32_t)_mm_popcnt_u64(~nonzero.value & valid);
    t->other += (uint32_t)_mm_popcnt_u64(nonzero.value & valid & ~ordinary);
    count_indices(t, _mm512_maskz_mov_epi8(ordinary, level_of(&b, derived)),
                  _mm512_maskz_mov_epi8(ordinary, b.v.e));
    /* Such values were counted at index 0, in any of the four tables: only their sum matters. */
    t->count[0][0] -= 64 - (uint32_t)_mm_popcnt_u64(ordinary);
}

GW_TEMPLATE gw_sums begin_any(gw_bytes v, __m512i k, uint64_t element, const gw_rounder *r, uint32_t dtype,
                              uint32_t derived)
{
    __m512i words[4];
    switch (r->rule->rounding) {
    case GW_GCOMP_NEAREST:
        return gw_round_begin(v, k, NULL, r, dtype, derived, GW_GCOMP_NEAREST, 0);
    case GW_GCOMP_STOCHASTIC:
        gw_random_words(words, element, r->rule);
        return gw_round_begin(v, k, words, r, dtype, derived, GW_GCOMP_STOCHASTIC, 0);
    default:
        return gw_round_begin(v, k, NULL, r, dtype, derived, GW_GCOMP_TRUNCATE, 0);
    }
}

/* The last byte, too: arrays seldom start at a line. */
static void fetch_bytes(const void *at, size_t size)
{
    const char *bytes = (const char *)at;
    for (size_t i = 0; i < size; i += 64) {
        _mm_prefetch(bytes + i, _MM_HINT_T0);
    }
    _mm_prefetch(bytes + size - 1, _MM_HINT_T0);
}

static void fetch_run(const gw_span *span, size_t at, size_t size)
{
    fetch_bytes((const uint8_t *)span->values + size * at, size * RUN_LEN);
    if (span->levels != NULL) {
        fetch_bytes(span->levels + at, RUN_LEN);
    }
}

/* Whole runs of fp32 or bf16 values in default mode: as in split, a block with infinity, NaN or a carry
 * into them is done again by survey_block(). Returns the index after the last of them. */
GW_TEMPLATE size_t survey_runs(tally *t, const gw_span *span, size_t period, const gw_rounder *r,
                               uint32_t dtype, uint32_t derived)
{
    const size_t size = gw_traits_of(dtype)->size;
    const uint8_t *values = (const uint8_t *)span->values;
    gw_sums sums[RUNS];
    size_t at = 0;
    while (at + RUN_LEN <= span->len) {
        const size_t first = at;
        size_t count = 0;
        for (; count < RUNS && at + RUN_LEN <= span->len; count++, at += period) {
            if (period > RUN_LEN && at + RUNS * period + RUN_LEN <= span->len) {
                fetch_run(span, at + RUNS * period, size);
            }
            const gw_bytes v = gw_load_bytes(values + size * at, RUN_LEN, dtype);
            sums[count] = begin_any(v, gw_load_levels(r, at), span->element + at, r, dtype, derived);
        }
        for (size_t j = 0; j < count; j++) {
            const __m512i e = sums[j].v.e;
            const __mmask64 nonzero = _mm512_test_epi8_mask(e, e);
            /* Without random bits or halves added there are no carries, and the second part changes
             * nothing. */
            const gw_block b = gw_round_end(sums[j], NULL, r, dtype, derived, GW_GCOMP_NEAREST, 0);
            const __m512i special = GW_BYTE(255);
            if (__builtin_expect(
                    (_mm512_cmpeq_epi8_mask(e, special) | _mm512_cmpeq_epi8_mask(b.v.e, special)) != 0, 0)) {
                survey_block(t, span, first + j * period, RUN_LEN, r, dtype, derived);
                continue;
            }
            /* Zero has index 0, which is its bin. */
            count_indices(t, _mm512_maskz_mov_epi8(nonzero, level_of(&b, derived)),
                          _mm512_maskz_mov_epi8(nonzero, b.v.e));
        }
    }
    return at;
}

/* Adds the tables to count, whose bins are 4 * exponent + level. */
static void add_tally(uint32_t *count, const tally *t, uint32_t dtype)
{
    for (size_t e = 0; e <= gw_traits_of(dtype)->exponent_mask; e++) {
        for (size_t level = 0; level < 4; level++) {
            const size_t i = 256 * level + e;
            count[4 * e + level] += t->count[0][i] + t->count[1][i] + t->count[2][i] + t->count[3][i];
        }
    }
    count[dtype == GW_FP16 ? (uint32_t)GW_BIN_FP16_ZERO : 0] += t->zero;
    count[dtype == GW_FP16 ? 4 * 31 : 1] += t->other;
}

GW_TEMPLATE void survey_span(uint32_t *count, const gw_span *span, size_t period, const gw_round_rule *rule,
                             uint32_t dtype, uint32_t derived)
{
    gw_rounder r;
    gw_drop_tables tables;
    tally t;
    size_t at = 0;
    gw_rounder_init(&r, &tables, span, rule);
    GW_MEMSET(&t, 0, sizeof t);
    if (dtype != GW_FP16 && !r.strict && r.is_quick) {
        at = survey_runs(&t, span, period, &r, dtype, derived);
    }
    for (; at < span->len; at += period) {
        const size_t left = span->len - at;
        survey_block(&t, span, at, left < RUN_LEN ? left : RUN_LEN, &r, dtype, derived);
    }
    add_tally(count, &t, dtype);
}

void gw_survey_avx512(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                      const gw_round_rule *rule)
{
    (void)mask_count;
    switch (rule->dtype * 2 + rule->derived) {
    case GW_FP32 * 2:
        survey_span(count, span, period, rule, GW_FP32, 0);
        break;
    case GW_FP32 * 2 + 1:
        survey_span(count, span, period, rule, GW_FP32, 1);
        break;
    case GW_BF16 * 2:
        survey_span(count, span, period, rule, GW_BF16, 0);
        break;
    case GW_BF16 * 2 + 1:
        survey_span(count, span, period, rule, GW_BF16, 1);
        break;
    case GW_FP16 * 2:
        survey_span(count, span, period, rule, GW_FP16, 0);
        break;
    case GW_FP16 * 2 + 1:
        survey_span(count, span, period, rule, GW_FP16, 1);
        break;
    default:
        break;
    }
}

#else
typedef int gw_survey_avx512_not_built; /* a translation unit must not be empty */
#endif
