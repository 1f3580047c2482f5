/*
 * Groups of 32 values: their drops, which join also needs; and rounding, which survey, split and round share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_ROUND_GROUPS_AVX2_H
#define GW_ROUND_GROUPS_AVX2_H

#include "core/gcomp_kernels.h"
#include "core/philox.h"

#if defined(__AVX2__)

#include <immintrin.h>

enum { GW_GROUP_LEN = 32, GW_GROUPS_MAX = 16 };

/* Flags of a value, in a byte: digits in planes, and the bits of its remainder; in explicit mode
 * the lowest two bits are the drop_steps instead. */
enum {
    GW_HAS_P1 = 0x80,
    GW_HAS_P2 = 0x40,
    GW_HAS_P3 = 0x20,
    GW_HAS_P4 = 0x10,
    GW_HAS_R4 = 8,
    GW_HAS_R2 = 4,
    GW_HAS_R1 = 2,
    GW_HAS_NO_DIGIT = 1
};

/* Flags by number of kept bits. */
static inline uint8_t gw_has_of_kept(unsigned kept, const gw_traits *t)
{
    unsigned has = 0, whole = 0;
    for (unsigned p = 0; p < GW_DIGIT_PLANES && whole + t->digit_width[p] <= kept; p++) {
        has |= (unsigned)GW_HAS_P1 >> p;
        whole += t->digit_width[p];
    }
    return (uint8_t)(has | (kept - whole) << 1 | (has == 0)); /* R4, R2, R1 are the bits of the remainder */
}

/*
 * How the map byte K and the exponent E (in the dtype's bias) become a room in octaves: floor((K + c - m) /
 * 4) - E, where m is the top two bits of the mantissa (derived: 3). With c = 4 * quarters + rest, the
 * rounded mean of K and rest + 3 - m is (K + rest - m + 4) / 2 rounded down, in bytes without overflow.
 */
typedef struct gw_room_rule {
    __m256i add;                              /* rest + 3 (derived: rest) */
    __m256i at, above, below;                 /* quarters - 1 = at + above - below, clamped to bytes */
    __m256i turn_above, turn_below, turn_max; /* derived: see gw_turn() */
} gw_room_rule;

static inline unsigned gw_clamp_byte(int32_t x)
{
    return x < 0 ? 0 : x > 255 ? 255 : (unsigned)x;
}

/* The first exponent of ordinary values, which have a label. */
static inline int32_t gw_first_exponent(const gw_traits *t)
{
    return t->keeps_subnormals ? 0 : 1;
}

static inline void gw_room_rule_fill(gw_room_rule *room, int32_t drop_offset, uint32_t derived,
                                     const gw_traits *t)
{
    const int32_t c = drop_offset - 4 * (int32_t)t->exponent_bias;
    const int32_t rest = (int32_t)((uint32_t)c & 3);
    const int32_t quarters = (c - rest) / 4 - 1;
    room->add = _mm256_set1_epi8((char)(rest + (derived ? 0 : 3)));
    room->at = _mm256_set1_epi8((char)gw_clamp_byte(quarters));
    room->above = _mm256_set1_epi8((char)gw_clamp_byte(quarters - 255));
    room->below = _mm256_set1_epi8((char)gw_clamp_byte(-quarters));
    const int32_t first = gw_first_exponent(t), turn = quarters - t->mantissa_bits - first;
    room->turn_above = _mm256_set1_epi8((char)gw_clamp_byte(turn));
    room->turn_below = _mm256_set1_epi8((char)gw_clamp_byte(-turn));
    room->turn_max = _mm256_set1_epi8((char)(t->exponent_mask - 1 - first));
}

/* The room, 0 where it is negative. Sums saturate at 255, far above every cap. m: see above; zero in
 * derived mode. */
static inline __m256i gw_room(__m256i k, __m256i e, __m256i m, const gw_room_rule *rule)
{
    const __m256i half = _mm256_avg_epu8(k, _mm256_sub_epi8(rule->add, m));
    const __m256i room = _mm256_and_si256(_mm256_srli_epi16(half, 1), _mm256_set1_epi8(0x7f));
    const __m256i plus = _mm256_adds_epu8(_mm256_subs_epu8(rule->at, e), rule->above);
    const __m256i minus = _mm256_adds_epu8(_mm256_subs_epu8(e, rule->at), rule->below);
    return _mm256_subs_epu8(_mm256_adds_epu8(room, plus), minus);
}

/* gw_turn_of() of bins.h, for a rule of derived mode. The exponent of the quantum is the room of exponent 0
 * less the mantissa bits; less the first exponent, and clamped, it is the turn. */
static inline __m256i gw_turn(__m256i k, const gw_room_rule *rule)
{
    const __m256i half = _mm256_avg_epu8(k, rule->add); /* as in gw_room() */
    const __m256i room = _mm256_and_si256(_mm256_srli_epi16(half, 1), _mm256_set1_epi8(0x7f));
    const __m256i turn = _mm256_subs_epu8(_mm256_adds_epu8(room, rule->turn_above), rule->turn_below);
    return _mm256_andnot_si256(_mm256_cmpeq_epi8(k, _mm256_setzero_si256()),
                               _mm256_min_epu8(turn, rule->turn_max));
}

/* A table of 32 bytes, and its entries at x, all below 32. */
typedef struct gw_table32 {
    __m256i low, high;
} gw_table32;

static inline void gw_table32_fill(gw_table32 *table, const uint8_t bytes[32])
{
    table->low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    table->high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(bytes + 16)));
}

static inline __m256i gw_look_up32(__m256i x, const gw_table32 *table)
{
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(table->low, x), _mm256_shuffle_epi8(table->high, x),
                              _mm256_slli_epi16(x, 3));
}

/* What the rounds of Philox add to words 0 and 2 of four counters, in the order that the round leaves them
 * in. Of round 0 only what it adds to word 2, in the lower halves of 64 bits. */
typedef struct gw_philox_keys {
    __m256i first;
    __m256i key[GW_RANDOM_ROUNDS];
} gw_philox_keys;

/* A round rule as vectors. */
typedef struct gw_round_params {
    uint32_t dtype, derived, constant, strict, rounding, dead_zone, relative;
    uint32_t needs_words; /* fill gw_rounded_groups.word in any case; gw_round_params_fill() sets it to 0 */
    gw_room_rule room;
    __m256i cap;
    gw_table32 drop; /* of words, by room, at most the cap: 16 more for 16-bit types */
    gw_table32 has;  /* by room, at most the cap */
    uint64_t seed;
    uint32_t step_index, rank_hop; /* counter words 2 and 3 */
    int32_t drop_offset;
    gw_philox_keys keys; /* if stochastic: of counters whose word 1 is 0 */
} gw_round_params;

/* Room for the random words of so many groups. */
enum { GW_RANDOM_LEN = GW_GROUPS_MAX * GW_GROUP_LEN + 128 };

/* Makes the random words of len values from `element` on, and some after them. Returns the place of the
 * first. */
uint32_t *gw_random_fill(uint32_t words[GW_RANDOM_LEN], uint64_t element, size_t len,
                         const gw_round_params *params);

/* Rounded values. In a group of 32, word 8 * j + 4 * h + n is value 16 * h + 4 * j + n; 16-bit types have
 * their values in the upper halves. Words of values that are flushed to +0 are garbage. */
typedef struct gw_rounded_groups {
    _Alignas(64) uint32_t word[GW_GROUPS_MAX * GW_GROUP_LEN];
    /* Relative if the rule says so. Of -0 of fp16 that of infinity and NaN: it has no label either. */
    uint8_t exponent[GW_GROUPS_MAX * GW_GROUP_LEN];
    uint8_t has[GW_GROUPS_MAX * GW_GROUP_LEN];     /* explicit: with the drop_steps in the low two bits */
    uint8_t is_zero[GW_GROUPS_MAX * GW_GROUP_LEN]; /* 255 where the value is +0 */
    uint8_t digit[GW_DIGIT_PLANES][GW_GROUPS_MAX * GW_GROUP_LEN]; /* all of a value's, dropped ones too */
} gw_rounded_groups;

static inline unsigned gw_word_of_value(unsigned i)
{
    return (i & 12) * 2 + (i >> 4) * 4 + (i & 3);
}

/* Whether words are not filled. */
static inline int gw_is_rounded_by_digits(const gw_round_params *params)
{
    return params->dtype == GW_FP32 && !params->derived && !params->constant &&
           params->rounding == GW_GCOMP_NEAREST && !params->needs_words;
}

/* Rounded value i of the groups as a word; 16-bit types in the upper half. */
static inline uint32_t gw_rounded_word(const gw_rounded_groups *rounded, size_t i,
                                       const gw_round_params *params)
{
    if (rounded->is_zero[i]) {
        return 0;
    }
    if (!gw_is_rounded_by_digits(params)) {
        const size_t first = i / GW_GROUP_LEN * GW_GROUP_LEN;
        return rounded->word[first + gw_word_of_value((unsigned)(i - first))];
    }
    const uint32_t z = (uint32_t)rounded->digit[0][i] << 18 | (uint32_t)rounded->digit[1][i] << 12 |
                       (uint32_t)rounded->digit[2][i] << 6 | rounded->digit[3][i];
    const uint32_t kept = 0xffffffffu << 6 * (rounded->has[i] & 3u);
    return z >> 23 << 31 | (uint32_t)rounded->exponent[i] << 23 | (z & 0x7fffff & kept);
}

void gw_round_params_fill(gw_round_params *params, const gw_round_rule *rule);

/* Rounds the values [at, at + len) of a span, at most GW_GROUPS_MAX groups; the last group is padded with
 * zeros. */
void gw_round_groups(gw_rounded_groups *rounded, const gw_span *span, size_t at, size_t len,
                     const gw_round_params *params);

/* ---- stochastic with a dead zone ------------------------------------------------------------------------
 */

/* Values that are not zero, in order: most become zero, so only labels are found for all. */
typedef struct gw_dead_zone_values {
    /* Sign and mantissa; from bit 24 seven bits: octaves above the quantum, 127 if more or exact. */
    _Alignas(64) uint32_t word[(GW_GROUPS_MAX + 2) * GW_GROUP_LEN];
    size_t len;
} gw_dead_zone_values;

/* Rounds the values [at, at + 32 * groups) of a span by a rule of gw_is_dead_zone_stochastic(), finds their
 * labels and appends those that are not zero to kept, which has fewer than 32. Returns 0 if there is infinity
 * or NaN, or a carry into them: they have to be rounded another way, and kept has its length before. */
int gw_dead_zone_round(uint8_t labels[GW_GROUPS_MAX * GW_GROUP_LEN], gw_dead_zone_values *kept,
                       const gw_span *span, size_t at, size_t groups, const gw_round_params *params);

/* Finds has and digits of the first groups of kept values. */
void gw_dead_zone_digits(gw_rounded_groups *rounded, const gw_dead_zone_values *kept, size_t groups,
                         const gw_round_params *params);

#endif
#endif
