/*
 * Split: from values to ranks, digits and escapes, 64 values at a time, all in bytes (see round_block_avx512.h).
 *
 * Ranks are two lookups in 128 bytes each, held in registers; a digit plane is a compress and a store.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/round_block_avx512.h"

#if defined(GW_AVX512_COMPILED)

typedef struct splitter {
    gw_rounder rounder;
    gw_drop_tables tables;
    uint8_t rest[64];     /* derived, by drop: how many bits are left after whole digits */
    uint8_t last_bit[64]; /* and the last of them, in its digit */
    __m512i rank[4];
    __m512i base;
    __m512i escape_rank;
} splitter;

static void splitter_init(splitter *s, const gw_round_rule *rule, const gw_ranker *ranker)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    gw_rounder_init(&s->rounder, &s->tables, rule);
    for (unsigned i = 0; i < 4; i++) {
        s->rank[i] = _mm512_loadu_si512(ranker->rank + 64 * i);
    }
    s->base = GW_BYTE(ranker->base);
    s->escape_rank = GW_BYTE(ranker->rank[GW_LABEL_ESCAPE]);
    for (unsigned drop = 0; drop < 64; drop++) {
        unsigned left = drop <= t->mantissa_bits ? t->mantissa_bits + 1u - drop : 0, p = 0;
        while (p < 4 && left >= t->digit_width[p]) {
            left -= t->digit_width[p];
            p++;
        }
        s->rest[drop] = (uint8_t)left;
        s->last_bit[drop] = (uint8_t)(left == 0 ? 0 : 1u << (t->digit_width[p] - left));
    }
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

/* Escapes are rare: their bytes are moved together and made words. */
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

/* The remainder planes of derived frames. `has` are the values with digits. */
GW_TEMPLATE void append_rests(cursors *c, const splitter *s, const gw_block *b, __m512i d1, __mmask64 has, uint32_t dtype,
                              __mmask64 has1, __mmask64 has2, __mmask64 has3)
{
    const __m512i rest = _mm512_permutexvar_epi8(b->drop, _mm512_loadu_si512(s->rest));
    const __m512i last_bit = _mm512_permutexvar_epi8(b->drop, _mm512_loadu_si512(s->last_bit));
    /* The digit that is not whole: the one behind the last whole digit. */
    __m512i part = _mm512_mask_mov_epi8(d1, has1, b->v.d2);
    part = _mm512_mask_mov_epi8(part, has2, b->v.d3);
    part = _mm512_mask_mov_epi8(part, has3, b->v.d4);
    if (dtype == GW_FP32) {
        const __mmask64 has4 = _mm512_mask_test_epi8_mask(has, rest, GW_BYTE(4));
        c->r4 = append(c->r4, has4, _mm512_and_si512(GW_BYTE_RIGHT(part, 2), GW_BYTE(15)));
    }
    if (dtype != GW_BF16) {
        /* Two bits come first in their digit: a remainder of 4 + 2 would be a whole one. */
        const __mmask64 has_two = _mm512_mask_test_epi8_mask(has, rest, GW_BYTE(2));
        c->r2 = append(c->r2, has_two, _mm512_and_si512(GW_BYTE_RIGHT(part, dtype == GW_FP32 ? 4 : 1), GW_BYTE(3)));
    }
    const __mmask64 has_one = _mm512_mask_test_epi8_mask(has, rest, GW_BYTE(1));
    c->r1 = append(c->r1, has_one, _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(part, last_bit), GW_BYTE(1)));
}

/* `valid`: which of the 64 values exist. Returns which are not +0. */
GW_TEMPLATE __mmask64 split64(uint8_t *ranks, cursors *c, const splitter *s, gw_bytes v, __m512i k, uint64_t element,
                              __mmask64 valid, uint32_t dtype, uint32_t derived, uint32_t rounding)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned w1 = t->digit_width[0];
    gw_block b = gw_round64(v, k, element, &s->rounder, dtype, derived, rounding);
    if (dtype == GW_FP16 && !derived) {
        gw_clear_cut(&b);
    }
    const uint32_t strict = s->rounder.rule->strict;
    const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, strict);

    /* Labels, and which are in the window. */
    __m512i label;
    __mmask64 has;
    if (dtype == GW_FP16) {
        has = _mm512_mask_cmplt_epu8_mask(nonzero.magnitude, b.v.e, GW_BYTE(31));
        label = _mm512_add_epi8(b.v.e, GW_BYTE(derived ? 2 : 1));
    } else if (derived) {
        has = _mm512_mask_cmplt_epu8_mask(nonzero.magnitude, b.v.e, GW_BYTE(255));
        label = _mm512_add_epi8(b.v.e, GW_BYTE(1));
    } else {
        label = _mm512_sub_epi8(b.v.e, s->base);
        has = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(label, GW_BYTE(1)), GW_BYTE(63));
    }
    if (!derived) {
        label = _mm512_add_epi8(label, label);
        label = _mm512_add_epi8(label, label);
        label = _mm512_mask_sub_epi8(label, b.level1, label, GW_BYTE(-1));
        label = _mm512_mask_sub_epi8(label, b.level2, label, GW_BYTE(-1));
        label = _mm512_mask_sub_epi8(label, b.level3, label, GW_BYTE(-1));
    }
    label = _mm512_mask_mov_epi8(_mm512_maskz_mov_epi8(nonzero.value, GW_BYTE(GW_LABEL_ESCAPE)), has, label);

    const __m512i low = _mm512_permutex2var_epi8(s->rank[0], label, s->rank[1]);
    const __m512i high = _mm512_permutex2var_epi8(s->rank[2], label, s->rank[3]);
    const __m512i rank = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(label), high);
    _mm512_storeu_si512(ranks, rank);

    const __mmask64 escapes = _mm512_mask_cmpeq_epi8_mask(valid, rank, s->escape_rank);
    const unsigned sign_at = w1 - 1;
    const __m512i sign = GW_BYTE_RIGHT(b.v.sign, (int)(7 - sign_at));
    const __m512i d1 = _mm512_ternarylogic_epi32(b.v.d1, sign, GW_BYTE(1u << sign_at), 0xf8);
    if (__builtin_expect(escapes != 0, 0)) {
        gw_block whole = b;
        if (!derived) {
            gw_clear_cut(&whole);
        }
        has &= ~escapes;
        const __mmask64 kept = escapes & nonzero.value;
        whole.v.e = _mm512_maskz_mov_epi8(kept, whole.v.e);
        whole.v.sign = _mm512_maskz_mov_epi8(kept, whole.v.sign);
        whole.v.d1 = _mm512_maskz_mov_epi8(kept, whole.v.d1);
        whole.v.d2 = _mm512_maskz_mov_epi8(kept, whole.v.d2);
        whole.v.d3 = _mm512_maskz_mov_epi8(kept, whole.v.d3);
        whole.v.d4 = _mm512_maskz_mov_epi8(kept, whole.v.d4);
        c->escape = append_escapes(c->escape, escapes, &whole.v, dtype);
    }
    if (derived) {
        /* The largest drops that leave one, two, three and four whole digits. */
        const unsigned drop3 = t->digit_width[3], drop2 = drop3 + t->digit_width[2], drop1 = drop2 + t->digit_width[1];
        const __mmask64 has1 = _mm512_mask_cmple_epu8_mask(has, b.drop, GW_BYTE(drop1));
        const __mmask64 has2 = _mm512_mask_cmple_epu8_mask(has, b.drop, GW_BYTE(drop2));
        const __mmask64 has3 = _mm512_mask_cmple_epu8_mask(has, b.drop, GW_BYTE(drop3));
        const __mmask64 has4 = _mm512_mask_testn_epi8_mask(has, b.drop, b.drop);
        c->p1 = append(c->p1, has1, d1);
        c->p2 = append(c->p2, has2, b.v.d2);
        c->p3 = append(c->p3, has3, b.v.d3);
        c->p4 = append(c->p4, has4, b.v.d4);
        append_rests(c, s, &b, d1, has, dtype, has1, has2, has3);
    } else {
        c->p1 = append(c->p1, has, d1);
        c->p2 = append(c->p2, _kandn_mask64(b.level3, has), b.v.d2);
        c->p3 = append(c->p3, _kandn_mask64(b.level2, has), b.v.d3);
        c->p4 = append(c->p4, _kandn_mask64(b.level1, has), b.v.d4);
    }
    return nonzero.value;
}

GW_TEMPLATE uint32_t split_span(uint8_t *ranks, gw_digits *digits, const gw_span *span, const splitter *s, uint32_t dtype,
                                uint32_t derived, uint32_t rounding)
{
    const size_t size = gw_traits_of(dtype)->size;
    const uint8_t *const values = (const uint8_t *)span->values;
    const uint8_t *const levels = span->levels;
    const uint32_t constant = s->rounder.rule->constant;
    const size_t len = span->len;
    __mmask64 any = 0;
    size_t i = 0;
    cursors c = {digits->plane[0] + digits->plane_len[0], digits->plane[1] + digits->plane_len[1],
                 digits->plane[2] + digits->plane_len[2], digits->plane[3] + digits->plane_len[3],
                 digits->plane[4] + digits->plane_len[4], digits->plane[5] + digits->plane_len[5],
                 digits->plane[6] + digits->plane_len[6], digits->escape + size * digits->escape_len};
    for (; i + 64 <= len; i += 64) {
        const gw_bytes v = gw_load_bytes(values + size * i, 64, dtype);
        const __m512i k = constant ? _mm512_setzero_si512() : _mm512_loadu_si512(levels + i);
        any |= split64(ranks + i, &c, s, v, k, span->element + i, UINT64_MAX, dtype, derived, rounding);
    }
    if (i < len) {
        const __mmask64 valid = gw_low_mask(len - i);
        const gw_bytes v = gw_load_bytes(values + size * i, len - i, dtype);
        const __m512i k = constant ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8(valid, levels + i);
        any |= split64(ranks + i, &c, s, v, k, span->element + i, valid, dtype, derived, rounding);
    }
    digits->plane_len[0] = (size_t)(c.p1 - digits->plane[0]);
    digits->plane_len[1] = (size_t)(c.p2 - digits->plane[1]);
    digits->plane_len[2] = (size_t)(c.p3 - digits->plane[2]);
    digits->plane_len[3] = (size_t)(c.p4 - digits->plane[3]);
    digits->plane_len[4] = (size_t)(c.r4 - digits->plane[4]);
    digits->plane_len[5] = (size_t)(c.r2 - digits->plane[5]);
    digits->plane_len[6] = (size_t)(c.r1 - digits->plane[6]);
    digits->escape_len = (size_t)(c.escape - digits->escape) / size;
    return any != 0;
}

#define SPLIT_CASE(dtype, derived, rounding)                                                                 \
    case ((dtype) * 2 + (derived)) * 4 + (rounding):                                                         \
        return split_span(ranks, digits, span, &s, (dtype), (derived), (rounding))

#define SPLIT_CASES(dtype)                                                                                   \
    SPLIT_CASE(dtype, 0, GW_GCOMP_TRUNCATE);                                                                 \
    SPLIT_CASE(dtype, 0, GW_GCOMP_NEAREST);                                                                  \
    SPLIT_CASE(dtype, 0, GW_GCOMP_STOCHASTIC);                                                               \
    SPLIT_CASE(dtype, 1, GW_GCOMP_TRUNCATE);                                                                 \
    SPLIT_CASE(dtype, 1, GW_GCOMP_NEAREST);                                                                  \
    SPLIT_CASE(dtype, 1, GW_GCOMP_STOCHASTIC)

uint32_t gw_split_avx512(uint8_t *ranks, gw_digits *digits, const gw_span *span, const gw_round_rule *rule,
                         const gw_ranker *ranker)
{
    splitter s;
    splitter_init(&s, rule, ranker);
    switch ((rule->dtype * 2 + rule->derived) * 4 + rule->rounding) {
        SPLIT_CASES(GW_FP32);
        SPLIT_CASES(GW_BF16);
        SPLIT_CASES(GW_FP16);
    default:
        return 0;
    }
}

#else
typedef int gw_split_avx512_not_built; /* a translation unit must not be empty */
#endif
