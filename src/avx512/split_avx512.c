/*
 * Split: from values to ranks, digits and escapes, 64 values at a time, all in bytes (see
 * round_block_avx512.h).
 *
 * Ranks are two lookups in 128 bytes each, held in registers; a digit plane is a compress and a store.
 *
 * Bound on Zen 4, which starts two vector instructions of 512 bits a cycle: instructions of the two loops
 * that handle most blocks, counted in gcc 12's output, a compress as two. fp32, cycles a value:
 *
 *                          instructions   bound   measured
 *   explicit, truncate      32 + 26 + 4    0.48       0.81
 *   explicit, nearest       47 + 42 + 4    0.73       1.10
 *   explicit, stochastic   the same + 8 + 118 for random words (1.06 alone)
 *                                          1.71       2.36
 *   derived, nearest        51 + 62 + 7    0.94       1.59
 *
 * Not in the count, and not broken down further: 13 stores of 64 bytes and about as many loads. They are
 * those of the planes, whose stores mostly cross a line, and of what the first loop passes to the second in
 * memory. Dead zones with random words have a loop of their own, which finds digits only of what is not zero.
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

/* The remainder planes of derived frames, by drop. */
typedef struct rest_tables {
    uint8_t rest[64];     /* how many bits are left after whole digits */
    uint8_t last_bit[64]; /* and the last of them, in its digit */
} rest_tables;

static void rest_tables_fill(rest_tables *r, const gw_traits *t)
{
    GW_MEMSET(r, 0, sizeof *r);
    for (unsigned drop = 0; drop <= t->mantissa_bits; drop++) {
        unsigned left = t->mantissa_bits + 1u - drop, p = 0;
        while (p < 4 && left >= t->digit_width[p]) {
            left -= t->digit_width[p];
            p++;
        }
        r->rest[drop] = (uint8_t)left;
        r->last_bit[drop] = (uint8_t)(left == 0 ? 0 : 1u << (t->digit_width[p] - left));
    }
}

typedef struct splitter {
    gw_rounder rounder;
    gw_drop_tables tables;
    rest_tables rests;
    __m512i rank[4];  /* by label */
    __m512i quick[4]; /* explicit: by label - 4, 252 and up outside the window; derived: by exponent */
    __m512i window_start;
    __m512i zero_rank, escape_rank;
} splitter;

static void splitter_init(splitter *s, const gw_span *span, const gw_round_rule *rule,
                          const gw_ranker *ranker)
{
    uint8_t quick[GW_LABELS];
    gw_rounder_init(&s->rounder, &s->tables, span, rule);
    const unsigned shift = rule->derived ? 1 : 4; /* derived: the entry of exponent 0 is that of the escape */
    GW_MEMSET(quick, ranker->rank[GW_LABEL_ESCAPE], sizeof quick);
    GW_MEMCPY(quick, ranker->rank + shift, sizeof quick - shift);
    for (unsigned i = 0; i < 4; i++) {
        s->rank[i] = _mm512_loadu_si512(ranker->rank + 64 * i);
        s->quick[i] = _mm512_loadu_si512(quick + 64 * i);
    }
    s->window_start = _mm512_set1_epi8((char)ranker->window_start);
    s->zero_rank = _mm512_set1_epi8((char)ranker->rank[GW_LABEL_ZERO]);
    s->escape_rank = _mm512_set1_epi8((char)ranker->rank[GW_LABEL_ESCAPE]);
    rest_tables_fill(&s->rests, gw_traits_of(rule->dtype));
}

/* Where the next digits go; a register each. */
typedef struct cursors {
    uint8_t *p1, *p2, *p3, *p4, *r4, *r2, *r1, *escape;
} cursors;

static inline uint8_t *append(uint8_t *at, __mmask64 mask, __m512i digits)
{
    _mm512_storeu_si512(at, _mm512_mask_compress_epi8(digits, mask, digits));
    return at + _mm_popcnt_u64(_cvtmask64_u64(mask));
}

/* Escapes are rare: their bytes are compacted and widened to words. */
GW_TEMPLATE uint8_t *append_escapes(uint8_t *at, __mmask64 mask, const gw_bytes *v, uint32_t dtype)
{
    const size_t len = (size_t)_mm_popcnt_u64(_cvtmask64_u64(mask));
    __m512i e = _mm512_maskz_compress_epi8(mask, v->e), sign = _mm512_maskz_compress_epi8(mask, v->sign);
    __m512i d1 = _mm512_maskz_compress_epi8(mask, v->d1), d2 = _mm512_maskz_compress_epi8(mask, v->d2);
    __m512i d3 = _mm512_maskz_compress_epi8(mask, v->d3), d4 = _mm512_maskz_compress_epi8(mask, v->d4);
    const size_t size = gw_traits_of(dtype)->size;
    for (size_t i = 0; i < len; i += 16) {
        const __m512i x = gw_words16(e, sign, d1, d2, d3, d4, dtype);
        if (size == 4) {
            _mm512_storeu_si512(at + 4 * i, x);
        } else {
            _mm256_storeu_si256((__m256i *)(void *)(at + 2 * i), _mm512_cvtepi32_epi16(x));
        }
        e = _mm512_alignr_epi32(e, e, 4);
        sign = _mm512_alignr_epi32(sign, sign, 4);
        d1 = _mm512_alignr_epi32(d1, d1, 4);
        d2 = _mm512_alignr_epi32(d2, d2, 4);
        d3 = _mm512_alignr_epi32(d3, d3, 4);
        d4 = _mm512_alignr_epi32(d4, d4, 4);
    }
    return at + size * len;
}

/* Which values have digits at all, and which a first, second and third whole one. */
typedef struct presence {
    __mmask64 any, d1, d2, d3;
} presence;

/* The remainder planes of derived frames. */
GW_TEMPLATE void append_rests(cursors *c, const rest_tables *rests, const gw_block *b, __m512i d1,
                              const presence *has, uint32_t dtype)
{
    const __m512i rest = _mm512_permutexvar_epi8(b->drop, _mm512_loadu_si512(rests->rest));
    const __m512i last_bit = _mm512_permutexvar_epi8(b->drop, _mm512_loadu_si512(rests->last_bit));
    /* The digit that is not whole: the one after the last whole digit. */
    __m512i part = _mm512_mask_mov_epi8(d1, has->d1, b->v.d2);
    part = _mm512_mask_mov_epi8(part, has->d2, b->v.d3);
    part = _mm512_mask_mov_epi8(part, has->d3, b->v.d4);
    if (dtype == GW_FP32) {
        const __mmask64 has4 = _mm512_mask_test_epi8_mask(has->any, rest, GW_BYTE(4));
        c->r4 = append(c->r4, has4, _mm512_and_si512(GW_BYTE_RIGHT(part, 2), GW_BYTE(15)));
    }
    if (dtype != GW_BF16) {
        /* Two bits come first in their digit: a remainder of 4 + 2 would be a whole one. */
        const __mmask64 has_two = _mm512_mask_test_epi8_mask(has->any, rest, GW_BYTE(2));
        c->r2 = append(
            c->r2, has_two,
            _mm512_and_si512(dtype == GW_FP32 ? GW_BYTE_RIGHT(part, 4) : GW_BYTE_RIGHT(part, 1), GW_BYTE(3)));
    }
    const __mmask64 has_one = _mm512_mask_test_epi8_mask(has->any, rest, GW_BYTE(1));
    c->r1 = append(c->r1, has_one, _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(part, last_bit), GW_BYTE(1)));
}

static inline __m512i look_up(const __m512i table[4], __m512i index)
{
    const __m512i low = _mm512_permutex2var_epi8(table[0], index, table[1]);
    const __m512i high = _mm512_permutex2var_epi8(table[2], index, table[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high);
}

/* Escapes of a block, without digits that were cut and values that were flushed. */
GW_TEMPLATE void put_escapes(cursors *c, __mmask64 escapes, __mmask64 nonzero, const gw_block *b,
                             uint32_t dtype, uint32_t derived)
{
    const __mmask64 kept = escapes & nonzero;
    gw_bytes v;
    v.e = _mm512_maskz_mov_epi8(kept, b->v.e);
    v.sign = _mm512_maskz_mov_epi8(kept, b->v.sign);
    v.d1 = _mm512_maskz_mov_epi8(kept, b->v.d1);
    v.d2 = _mm512_maskz_mov_epi8(derived ? kept : kept & ~b->steps3, b->v.d2);
    v.d3 = _mm512_maskz_mov_epi8(derived ? kept : kept & ~b->steps2, b->v.d3);
    v.d4 = _mm512_maskz_mov_epi8(derived ? kept : kept & ~b->steps1, b->v.d4);
    c->escape = append_escapes(c->escape, escapes, &v, dtype);
}

/* The digits of the values in `has`. */
GW_TEMPLATE void put_digits(cursors *c, const rest_tables *rests, const gw_block *b, __mmask64 has,
                            uint32_t dtype, uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const __m512i sign = dtype == GW_FP32 ? GW_BYTE_RIGHT(b->v.sign, 2) : GW_BYTE_RIGHT(b->v.sign, 6);
    const __m512i d1 = _mm512_ternarylogic_epi32(b->v.d1, sign, GW_BYTE(1u << (t->digit_width[0] - 1)), 0xf8);
    if (derived) {
        /* The largest drops that leave one, two, three and four whole digits. */
        const unsigned drop3 = t->digit_width[3], drop2 = drop3 + t->digit_width[2],
                       drop1 = drop2 + t->digit_width[1];
        const __mmask64 has1 = _mm512_mask_cmple_epu8_mask(has, b->drop, GW_BYTE(drop1));
        const __mmask64 has2 = _mm512_mask_cmple_epu8_mask(has, b->drop, GW_BYTE(drop2));
        const __mmask64 has3 = _mm512_mask_cmple_epu8_mask(has, b->drop, GW_BYTE(drop3));
        const __mmask64 has4 = _mm512_mask_testn_epi8_mask(has, b->drop, b->drop);
        c->p1 = append(c->p1, has1, d1);
        c->p2 = append(c->p2, has2, b->v.d2);
        if (has3 != 0) { /* of 64 values of a low tolerance usually none has a third digit */
            c->p3 = append(c->p3, has3, b->v.d3);
            c->p4 = append(c->p4, has4, b->v.d4);
        }
        const presence whole = {has, has1, has2, has3};
        append_rests(c, rests, b, d1, &whole, dtype);
    } else {
        c->p1 = append(c->p1, has, d1);
        c->p2 = append(c->p2, _kandn_mask64(b->steps3, has), b->v.d2);
        c->p3 = append(c->p3, _kandn_mask64(b->steps2, has), b->v.d3);
        c->p4 = append(c->p4, _kandn_mask64(b->steps1, has), b->v.d4);
    }
}

/* ---- any 64 values ------------------------------------------------------------------------------------- */

/* Values [at, at + len), len <= 64. Returns whether one is not +0. */
GW_TEMPLATE uint32_t split_block(uint8_t *ranks, cursors *c, const splitter *s, const gw_span *span,
                                 size_t at, size_t len, uint32_t dtype, uint32_t derived, uint32_t turned)
{
    const __mmask64 valid = gw_low_mask(len);
    const gw_span part = gw_span_part(span, at, len, gw_traits_of(dtype)->size);
    const gw_bytes v = gw_load_bytes((const uint8_t *)part.values, len, dtype);
    const __m512i k = gw_load_map_bytes_part(&s->rounder, at, valid);
    gw_block b = gw_round64_any(&v, k, &part, &s->rounder, dtype, derived, turned);
    if (dtype == GW_FP16 && !derived) {
        gw_clear_cut(&b);
    }
    const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, s->rounder.strict);

    /* Labels, and which are in the window. */
    __m512i label;
    __mmask64 has;
    if (dtype == GW_FP16) {
        has = _mm512_mask_cmplt_epu8_mask(nonzero.magnitude, b.v.e, GW_BYTE(31));
        const __m512i e = turned ? gw_turned(b.v.e, k, has, &s->rounder, dtype) : b.v.e;
        label = _mm512_add_epi8(e, GW_BYTE(derived ? 2 : 1));
    } else if (derived) {
        has = _mm512_mask_cmplt_epu8_mask(nonzero.magnitude, b.v.e, GW_BYTE(255));
        const __m512i e = turned ? gw_turned(b.v.e, k, has, &s->rounder, dtype) : b.v.e;
        label = _mm512_add_epi8(e, GW_BYTE(1));
    } else {
        label = _mm512_sub_epi8(b.v.e, s->window_start);
        has = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(label, GW_BYTE(1)), GW_BYTE(63));
    }
    if (!derived) {
        label = _mm512_add_epi8(label, label);
        label = _mm512_add_epi8(label, label);
        label = _mm512_mask_sub_epi8(label, b.steps1, label, GW_BYTE(-1));
        label = _mm512_mask_sub_epi8(label, b.steps2, label, GW_BYTE(-1));
        label = _mm512_mask_sub_epi8(label, b.steps3, label, GW_BYTE(-1));
    }
    label = _mm512_mask_mov_epi8(_mm512_maskz_mov_epi8(nonzero.value, GW_BYTE(GW_LABEL_ESCAPE)), has, label);
    const __m512i rank = look_up(s->rank, label);
    _mm512_storeu_si512(ranks, rank);

    const __mmask64 escapes = _mm512_mask_cmpeq_epi8_mask(valid, rank, s->escape_rank);
    if (escapes != 0) {
        put_escapes(c, escapes, nonzero.value, &b, dtype, derived);
    }
    put_digits(c, &s->rests, &b, has & ~escapes, dtype, derived);
    return nonzero.value != 0;
}

#define SPLIT_BLOCK(name, dtype, derived, turned)                                                            \
    static GW_NOINLINE uint32_t name(uint8_t *ranks, cursors *c, const splitter *s, const gw_span *span,     \
                                     size_t at, size_t len)                                                  \
    {                                                                                                        \
        return split_block(ranks, c, s, span, at, len, (dtype), (derived), (turned));                        \
    }                                                                                                        \
    _Static_assert(1, "a semicolon follows")

SPLIT_BLOCK(split_block_fp32, GW_FP32, 0, 0);
SPLIT_BLOCK(split_block_fp32_derived, GW_FP32, 1, 0);
SPLIT_BLOCK(split_block_fp32_turned, GW_FP32, 1, 1);
SPLIT_BLOCK(split_block_bf16, GW_BF16, 0, 0);
SPLIT_BLOCK(split_block_bf16_derived, GW_BF16, 1, 0);
SPLIT_BLOCK(split_block_bf16_turned, GW_BF16, 1, 1);
SPLIT_BLOCK(split_block_fp16, GW_FP16, 0, 0);
SPLIT_BLOCK(split_block_fp16_derived, GW_FP16, 1, 0);
SPLIT_BLOCK(split_block_fp16_turned, GW_FP16, 1, 1);

typedef uint32_t split_block_fn(uint8_t *ranks, cursors *c, const splitter *s, const gw_span *span, size_t at,
                                size_t len);

/* turned: only if derived */
static split_block_fn *split_block_of(uint32_t dtype, uint32_t derived, uint32_t turned)
{
    switch (dtype) {
    case GW_FP32:
        return turned ? split_block_fp32_turned : derived ? split_block_fp32_derived : split_block_fp32;
    case GW_BF16:
        return turned ? split_block_bf16_turned : derived ? split_block_bf16_derived : split_block_bf16;
    default:
        return turned ? split_block_fp16_turned : derived ? split_block_fp16_derived : split_block_fp16;
    }
}

/* ---- 64 fp32 or bf16 values of default mode ------------------------------------------------------------ */

/* Prefetches 64 values and their map bytes as far after the span as i is after its start: the next chunk
 * is loaded into L2 while this one is computed. */
static inline void fetch_ahead(const gw_span *span, size_t i, size_t size)
{
    const char *values = (const char *)span->values + size * (span->len + i);
    for (size_t at = 0; at < 64 * size; at += 64) {
        _mm_prefetch(values + at, _MM_HINT_T1);
    }
    if (span->map_bytes != NULL) {
        _mm_prefetch((const char *)span->map_bytes + span->len + i, _MM_HINT_T1);
    }
}

enum { QUICK_BLOCKS = 8 }; /* blocks between the two parts of rounding */

/* Random words of `count` blocks from `element` on. Returns where the first is. params: NULL if none serves.
 */
static inline const uint32_t *fill_words(uint32_t words[64 * (QUICK_BLOCKS + 4)], uint64_t element,
                                         size_t count, const gw_random_params *params,
                                         const gw_round_rule *rule)
{
    const size_t offset = params != NULL ? element % GW_RANDOM_SHARED : 0; /* in the first counter */
    const size_t end = offset + 64 * count;
    for (size_t at = 0; params != NULL && at < end; at += 256) {
        const uint64_t first = element - offset + at;
        const uint64_t blocks[4] = {first, first + 64, first + 128, first + 192};
        if (end - at > 128) {
            gw_random_blocks(words + at, blocks, 4, params);
        } else {
            gw_random_blocks(words + at, blocks, 2, params);
        }
    }
    for (size_t at = 0; params == NULL && at < 64 * count; at += 64) {
        __m512i x[4];
        gw_random_words(x, element + at, rule);
        for (unsigned i = 0; i < 4; i++) {
            _mm512_store_si512(words + at + 16 * i, x[i]);
        }
    }
    return words + offset;
}

/* Where 64 rounded values from i on have their ranks in `quick`. */
GW_TEMPLATE __m512i quick_index(const splitter *s, const gw_block *b, size_t i, uint32_t dtype,
                                uint32_t derived, uint32_t turned)
{
    if (turned) {
        const __mmask64 ordinary = _mm512_cmpneq_epi8_mask(b->v.e, GW_BYTE(255));
        return gw_turned(b->v.e, gw_load_map_bytes(&s->rounder, i), ordinary, &s->rounder, dtype);
    }
    if (derived) {
        return b->v.e;
    }
    const __m512i window = _mm512_add_epi8(s->window_start, GW_BYTE(1));
    __m512i index = _mm512_min_epu8(_mm512_sub_epi8(b->v.e, window), GW_BYTE(63));
    index = _mm512_add_epi8(index, index);
    index = _mm512_add_epi8(index, index);
    index = _mm512_mask_add_epi8(index, b->steps1, index, GW_BYTE(1));
    index = _mm512_mask_add_epi8(index, b->steps2, index, GW_BYTE(1));
    return _mm512_mask_add_epi8(index, b->steps3, index, GW_BYTE(1));
}

/*
 * The usual case in fewer steps: values that it cannot handle (exponent 0, infinity, NaN, a carry into
 * infinity) are recognized by their exponents. Exponent 0 is zero; the others are outside the window, so they
 * are escapes, and then the block is done again. So there is no comparison between exponent and rank.
 */
GW_TEMPLATE size_t split_quick(uint8_t *ranks, cursors *c, const splitter *s, const gw_span *span,
                               uint32_t *any, uint32_t dtype, uint32_t derived, uint32_t turned,
                               uint32_t rounding)
{
    const size_t size = gw_traits_of(dtype)->size;
    const uint8_t *const values = (const uint8_t *)span->values;
    const size_t blocks = span->len / 64;
    const size_t fetch_end = span->ahead < span->len ? span->ahead & ~(size_t)63 : span->len;
    gw_sums sums[QUICK_BLOCKS];
    gw_cut cuts[QUICK_BLOCKS]; /* if `turned` */
    _Alignas(64) uint32_t memory[64 * (QUICK_BLOCKS + 4)];
    const uint32_t *words = memory;
    gw_random_params random;
    const int has_params = rounding == GW_GCOMP_STOCHASTIC &&
                           gw_random_params_fill(&random, span->element, span->len, s->rounder.rule);
    for (size_t first = 0; first < blocks; first += QUICK_BLOCKS) {
        const size_t count = blocks - first < QUICK_BLOCKS ? blocks - first : QUICK_BLOCKS;
        if (rounding == GW_GCOMP_STOCHASTIC) {
            words = fill_words(memory, span->element + 64 * first, count, has_params ? &random : NULL,
                               s->rounder.rule);
        }
        for (size_t j = 0; j < count; j++) {
            const size_t i = 64 * (first + j);
            const gw_bytes v = gw_load_bytes(values + size * i, 64, dtype);
            const __m512i k = gw_load_map_bytes(&s->rounder, i);
            if (i < fetch_end) {
                fetch_ahead(span, i, size);
            }
            __m512i word[4];
            for (unsigned n = 0; rounding == GW_GCOMP_STOCHASTIC && n < 4; n++) {
                word[n] = _mm512_loadu_si512(words + 64 * j + 16 * n);
            }
            sums[j] = gw_round_begin(v, k, word, &s->rounder, dtype, derived, rounding, 0);
            if (turned) {
                cuts[j] = gw_cut_begin(&v, k, word, values + size * i, 64, &s->rounder, dtype, rounding);
            }
        }
        for (size_t j = 0; j < count; j++) {
            const size_t i = 64 * (first + j);
            const __m512i e = sums[j].v.e;
            __mmask64 nonzero = _mm512_test_epi8_mask(e, e);
            gw_block b = gw_round_end(&sums[j], NULL, &s->rounder, dtype, derived, rounding, 0);
            if (turned) {
                gw_cut_end(&b, &cuts[j]);
                nonzero = _kandn_mask64(gw_cut_away(&cuts[j]), nonzero);
            }
            const __m512i index = quick_index(s, &b, i, dtype, derived, turned);
            const __m512i rank = _mm512_mask_mov_epi8(s->zero_rank, nonzero, look_up(s->quick, index));
            _mm512_storeu_si512(ranks + i, rank);

            __mmask64 has = nonzero;
            const __mmask64 escapes = _mm512_cmpeq_epi8_mask(rank, s->escape_rank);
            if (__builtin_expect(escapes != 0, 0)) {
                const __m512i special = GW_BYTE(255);
                if ((_mm512_cmpeq_epi8_mask(e, special) | _mm512_cmpeq_epi8_mask(b.v.e, special)) != 0) {
                    *any |= split_block_of(dtype, derived, turned)(ranks + i, c, s, span, i, 64);
                    continue;
                }
                put_escapes(c, escapes, nonzero, &b, dtype, derived);
                *any |= (escapes & nonzero) != 0;
                has &= ~escapes;
            }
            put_digits(c, &s->rests, &b, has, dtype, derived);
        }
    }
    return 64 * blocks;
}

#define SPLIT_CASE(dtype, derived, turned, rounding)                                                         \
    case (((dtype)*2 + (derived)) * 2 + (turned)) * 4 + (rounding):                                          \
        i = split_quick(ranks, c, &s, span, &any, (dtype), (derived), (turned), (rounding));                 \
        break

#define SPLIT_CASES(dtype)                                                                                   \
    SPLIT_CASE(dtype, 0, 0, GW_GCOMP_TRUNCATE);                                                              \
    SPLIT_CASE(dtype, 0, 0, GW_GCOMP_NEAREST);                                                               \
    SPLIT_CASE(dtype, 0, 0, GW_GCOMP_STOCHASTIC);                                                            \
    SPLIT_CASE(dtype, 1, 0, GW_GCOMP_TRUNCATE);                                                              \
    SPLIT_CASE(dtype, 1, 0, GW_GCOMP_NEAREST);                                                               \
    SPLIT_CASE(dtype, 1, 0, GW_GCOMP_STOCHASTIC);                                                            \
    SPLIT_CASE(dtype, 1, 1, GW_GCOMP_TRUNCATE);                                                              \
    SPLIT_CASE(dtype, 1, 1, GW_GCOMP_NEAREST);                                                               \
    SPLIT_CASE(dtype, 1, 1, GW_GCOMP_STOCHASTIC)

static uint32_t split_any(uint8_t *ranks, cursors *c, const gw_span *span, const gw_round_rule *rule,
                          const gw_ranker *ranker)
{
    const uint32_t turned = gw_is_turned(rule);
    splitter s;
    splitter_init(&s, span, rule, ranker);
    uint32_t any = 0;
    size_t i = 0;
    if (!rule->strict && s.rounder.is_quick) {
        switch (((rule->dtype * 2 + rule->derived) * 2 + turned) * 4 + rule->rounding) {
            SPLIT_CASES(GW_FP32);
            SPLIT_CASES(GW_BF16);
        default:
            break;
        }
    }
    split_block_fn *const block = split_block_of(rule->dtype, rule->derived, turned);
    for (; i < span->len; i += 64) {
        any |= block(ranks + i, c, &s, span, i, span->len - i < 64 ? span->len - i : 64);
    }
    return any;
}

/* ---- fp32, stochastic with a dead zone ------------------------------------------------------------------
 */

enum { DEAD_ZONE_BLOCKS = 4 }; /* digits are put when there are so many blocks of them */

/* Values that are not zero, until there are 64 of them. */
enum { KEPT_MAX = 64 * (DEAD_ZONE_BLOCKS + 2) };

typedef struct kept_values {
    _Alignas(64) uint8_t byte[3][KEPT_MAX + 64]; /* bits 0..7, 8..15, then 16..22 and the sign */
    _Alignas(64) uint8_t drop[KEPT_MAX + 64];
    size_t len;
} kept_values;

static inline void keep(kept_values *kept, const gw_dead_zone_block *b)
{
    const __mmask64 mask = b->nonzero;
    const __m512i top = gw_select(GW_BYTE(0x80), b->byte[3], b->byte[2]);
    _mm512_storeu_si512(kept->byte[0] + kept->len, _mm512_maskz_compress_epi8(mask, b->byte[0]));
    _mm512_storeu_si512(kept->byte[1] + kept->len, _mm512_maskz_compress_epi8(mask, b->byte[1]));
    _mm512_storeu_si512(kept->byte[2] + kept->len, _mm512_maskz_compress_epi8(mask, top));
    _mm512_storeu_si512(kept->drop + kept->len, _mm512_maskz_compress_epi8(mask, b->drop));
    kept->len += (size_t)_mm_popcnt_u64(_cvtmask64_u64(mask));
}

/* Puts the digits of whole blocks, or of all values if `all`; the others move to the front. */
static inline void put_kept(cursors *c, kept_values *kept, const rest_tables *rests, int all)
{
    const size_t end = all ? kept->len : kept->len & ~(size_t)63;
    for (size_t at = 0; at < end; at += 64) {
        gw_block b;
        gw_digits32(&b.v, _mm512_load_si512(kept->byte[0] + at), _mm512_load_si512(kept->byte[1] + at),
                    _mm512_load_si512(kept->byte[2] + at));
        b.v.sign = _mm512_load_si512(kept->byte[2] + at);
        b.drop = _mm512_load_si512(kept->drop + at);
        put_digits(c, rests, &b, gw_low_mask(end - at), GW_FP32, 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        _mm512_store_si512(kept->byte[i], _mm512_loadu_si512(kept->byte[i] + end));
    }
    _mm512_store_si512(kept->drop, _mm512_loadu_si512(kept->drop + end));
    kept->len -= end;
}

/* For blocks with escapes, infinity or NaN, and for the last values. */
typedef struct any_splitter {
    const gw_round_rule *rule;
    const gw_ranker *ranker;
    int is_filled; /* whether the splitter is */
    splitter splitter;
} any_splitter;

static GW_NOINLINE uint32_t split_part(any_splitter *any, uint8_t *ranks, cursors *c, const gw_span *span,
                                       size_t at, size_t len)
{
    if (!any->is_filled) {
        splitter_init(&any->splitter, span, any->rule, any->ranker);
        any->is_filled = 1;
    }
    return split_block_fp32_turned(ranks + at, c, &any->splitter, span, at, len);
}

/* Values [at, end), a multiple of 128; `at` begins a counter. Returns whether a value that was not kept is
 * not +0. */
GW_TEMPLATE uint32_t split_dead_zone(uint8_t *ranks, cursors *c, const gw_span *span, size_t at, size_t end,
                                     const gw_dead_zone_params *params, any_splitter *rare, uint32_t relative)
{
    const gw_ranker *const ranker = rare->ranker;
    const uint8_t *const values = (const uint8_t *)span->values, *const map_bytes = span->map_bytes;
    const size_t fetch_end = span->ahead < span->len ? span->ahead & ~(size_t)63 : span->len;
    /* By label less one. 255 is none: its blocks are special. */
    const __m512i rank_of[4] = {_mm512_loadu_si512(ranker->rank + 1), _mm512_loadu_si512(ranker->rank + 65),
                                _mm512_loadu_si512(ranker->rank + 129),
                                _mm512_maskz_loadu_epi8(gw_low_mask(63), ranker->rank + 193)};
    const __m512i zero_rank = GW_BYTE(ranker->rank[GW_LABEL_ZERO]),
                  escape_rank = GW_BYTE(ranker->rank[GW_LABEL_ESCAPE]);
    _Alignas(64) uint32_t words[2][128];
    kept_values kept;
    rest_tables rests;
    uint32_t any = 0;
    rest_tables_fill(&rests, gw_traits_of(GW_FP32));
    kept.len = 0;
    const uint64_t first[2] = {span->element + at, span->element + at + 64};
    gw_random_blocks(words[0], first, 2, &params->random);
    for (size_t two = 0; at < end; two++, at += 128) {
        gw_dead_zone_block b[2];
        gw_dead_zone_round_two(b, values + 4 * at, map_bytes + at, words[two & 1], words[~two & 1],
                               span->element + at + 128, params, relative);
        for (size_t j = 0; j < 2; j++) {
            const size_t i = at + 64 * j;
            if (i < fetch_end) {
                fetch_ahead(span, i, 4);
            }
            const __m512i rank = _mm512_mask_mov_epi8(zero_rank, b[j].nonzero, look_up(rank_of, b[j].index));
            _mm512_storeu_si512(ranks + i, rank);
            if (__builtin_expect((b[j].special | _mm512_cmpeq_epi8_mask(rank, escape_rank)) != 0, 0)) {
                put_kept(c, &kept, &rests, 1);
                any |= split_part(rare, ranks, c, span, i, 64);
            } else {
                keep(&kept, &b[j]);
            }
        }
        if (kept.len >= 64 * DEAD_ZONE_BLOCKS) {
            put_kept(c, &kept, &rests, 0);
        }
    }
    put_kept(c, &kept, &rests, 1);
    return any;
}

/* A span whose values the parameters can round. */
static uint32_t split_dead_zone_span(uint8_t *ranks, cursors *c, const gw_span *span,
                                     const gw_dead_zone_params *params, any_splitter *rare, uint32_t relative)
{
    const size_t first = (size_t)(-span->element % GW_RANDOM_SHARED);
    uint32_t any = 0;
    size_t at = 0;
    if (span->len >= first + 128) {
        const size_t end = first + ((span->len - first) & ~(size_t)127);
        any |= first != 0 ? split_part(rare, ranks, c, span, 0, first) : 0;
        any |= relative ? split_dead_zone(ranks, c, span, first, end, params, rare, 1)
                        : split_dead_zone(ranks, c, span, first, end, params, rare, 0);
        at = end;
    }
    for (; at < span->len; at += 64) {
        any |= split_part(rare, ranks, c, span, at, span->len - at < 64 ? span->len - at : 64);
    }
    return any;
}

uint32_t gw_split_avx512(uint8_t *ranks, gw_digits *digits, const gw_span *span, const gw_round_rule *rule,
                         const gw_ranker *ranker)
{
    const size_t size = gw_traits_of(rule->dtype)->size;
    uint8_t *const *plane = digits->plane;
    size_t *plane_len = digits->plane_len;
    gw_dead_zone_params params;
    cursors c = {plane[0] + plane_len[0], plane[1] + plane_len[1],
                 plane[2] + plane_len[2], plane[3] + plane_len[3],
                 plane[4] + plane_len[4], plane[5] + plane_len[5],
                 plane[6] + plane_len[6], digits->escape + size * digits->escape_len};
    const uint8_t *const at[7] = {c.p1, c.p2, c.p3, c.p4, c.r4, c.r2, c.r1};
    uint32_t any = 0;
    if (gw_dead_zone_params_fill(&params, span, rule)) {
        any_splitter rare;
        rare.rule = rule;
        rare.ranker = ranker;
        rare.is_filled = 0;
        any = split_dead_zone_span(ranks, &c, span, &params, &rare, rule->relative);
    } else {
        any = split_any(ranks, &c, span, rule, ranker);
    }
    const uint8_t *const end[7] = {c.p1, c.p2, c.p3, c.p4, c.r4, c.r2, c.r1};
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        /* Values that are neither zero nor an escape have a digit. */
        any |= end[p] != at[p];
        plane_len[p] += (size_t)(end[p] - at[p]);
    }
    digits->escape_len = (size_t)(c.escape - digits->escape) / size;
    return any;
}

#else
typedef int gw_split_avx512_not_built; /* a translation unit must not be empty */
#endif
