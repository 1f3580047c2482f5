/*
 * Split: from values to ranks in the codebook, digits in the planes, and escapes; 16 groups of 32 values at a
 * time.
 *
 * Several loops, because the dependency chain from a value to the places of its digits is longer than what
 * out-of-order execution overlaps: values are rounded to bytes; exponents become labels; labels become ranks;
 * one mask per plane marks the values that have a digit there; digits are compacted, eight by eight, by a
 * shuffle that eight bits of the mask look up.
 *
 * Bound: instructions, at about 4 a cycle. Measured on Zen 4 in cycles a value, explicit fp32 to nearest:
 * rounding 1.0, labels 0.1, ranks 0.2 to 0.35 (three instructions for 16 labels that have codes), masks 0.25,
 * digits 0.25 a plane: 2.6; derived 3.3. On Zen 3 stochastic 4.7 to 5.1, of which the random words are 1.4 to
 * 1.5. Dead zones with random words find digits only of what is not zero: 3.7 to 4.1 where that is two
 * fifths.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "avx2/byte_orders_avx2.h"
#include "avx2/rank_table_avx2.h"
#include "avx2/round_groups_avx2.h"
#include "gcomp/bins.h"

/* ---- labels and masks --------------------------------------------------------------------------------- */

/* Outputs of the rounded groups of a block. */
typedef struct group_masks {
    _Alignas(64) uint32_t plane[GW_PLANES_MAX][GW_GROUPS_MAX];
    uint32_t escaped[GW_GROUPS_MAX];
    uint8_t label[GW_GROUPS_MAX * GW_GROUP_LEN];
    uint8_t rest[GW_PLANES_MAX - GW_DIGIT_PLANES][GW_GROUPS_MAX * GW_GROUP_LEN]; /* digits of R4, R2, R1 */
} group_masks;

typedef struct split_params {
    gw_round_params round;
    rank_table ranks;
    int is_identity;      /* ranks are labels */
    __m256i window_start; /* what makes the exponent a label, or label part x, by addition */
    __m256i escape_rank;
    uint32_t has_escape; /* all ones if there is an escape */
} split_params;

/* Labels of rounded values (docs/format.md section 3). */
GW_TEMPLATE __m256i labels_of(__m256i e, __m256i has, __m256i is_zero, const split_params *params,
                              uint32_t dtype, uint32_t derived)
{
    const unsigned special = gw_traits_of(dtype)->exponent_mask;
    __m256i label = _mm256_add_epi8(e, params->window_start);
    __m256i is_escape;
    if (!derived) {
        /* Only x = 1..63 have labels; infinity and NaN are outside, by the choice of base or by their
         * exponent. */
        const __m256i from_one = _mm256_sub_epi8(label, bytes(1));
        const __m256i has_label = _mm256_cmpeq_epi8(_mm256_min_epu8(from_one, bytes(62)), from_one);
        is_escape = _mm256_xor_si256(has_label, bytes(255));
        label = _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi16(label, 2), bytes(0xfc)),
                                _mm256_and_si256(has, bytes(3)));
        if (dtype == GW_FP16) {
            is_escape = _mm256_or_si256(is_escape, _mm256_cmpeq_epi8(e, bytes(special)));
        }
    } else {
        is_escape = _mm256_cmpeq_epi8(e, bytes(special));
        if (dtype != GW_FP16) {
            is_escape = _mm256_or_si256(is_escape, _mm256_cmpeq_epi8(e, _mm256_setzero_si256()));
        }
    }
    label = _mm256_blendv_epi8(label, bytes(GW_LABEL_ESCAPE), is_escape);
    return _mm256_andnot_si256(is_zero, label);
}

/* The digits of the planes R4, R2, R1: the top bits of the first digit that a value does not have whole. */
GW_TEMPLATE void store_rest(group_masks *masks, size_t g, const gw_rounded_groups *rounded, __m256i has,
                            uint32_t dtype)
{
    const size_t at = g * GW_GROUP_LEN;
    const __m256i has2 = _mm256_add_epi8(has, has), has3 = _mm256_add_epi8(has2, has2);
    __m256i part = _mm256_blendv_epi8(load(rounded->digit[0] + at), load(rounded->digit[1] + at), has);
    part = _mm256_blendv_epi8(part, load(rounded->digit[2] + at), has2);
    part = _mm256_blendv_epi8(part, load(rounded->digit[3] + at), has3);
    /* The last bit of a remainder of 1, 3 or 5 bits. The digit has 6 bits; fp16: 3, 2 if it is the first;
     * bf16: 2. */
    const __m128i last = dtype == GW_FP16 ? _mm_setr_epi8(0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                                          : _mm_setr_epi8(0, 0, 32, 32, 0, 0, 8, 8, 0, 0, 2, 2, 0, 0, 0, 0);
    const __m256i place = dtype == GW_BF16 ? bytes(2)
                                           : _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(last),
                                                                 _mm256_and_si256(has, bytes(15)));
    store(masks->rest[2] + at, _mm256_min_epu8(_mm256_and_si256(part, place), bytes(1)));
    if (dtype == GW_FP32) {
        store(masks->rest[0] + at, _mm256_and_si256(_mm256_srli_epi16(part, 2), bytes(15)));
        store(masks->rest[1] + at, _mm256_and_si256(_mm256_srli_epi16(part, 4), bytes(3)));
    } else if (dtype == GW_FP16) {
        store(masks->rest[1] + at, _mm256_and_si256(_mm256_srli_epi16(part, 1), bytes(3)));
    }
}

/* Labels of the groups. Returns 0 if all values are +0. */
GW_TEMPLATE uint32_t find_labels(group_masks *masks, const gw_rounded_groups *rounded, size_t groups,
                                 const split_params *params, uint32_t dtype, uint32_t derived)
{
    __m256i any = _mm256_setzero_si256();
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        const __m256i label = labels_of(load(rounded->exponent + at), load(rounded->has + at),
                                        load(rounded->is_zero + at), params, dtype, derived);
        store(masks->label + at, label);
        any = _mm256_or_si256(any, label);
    }
    return ~top_bits(_mm256_cmpeq_epi8(any, _mm256_setzero_si256()));
}

/* Masks of the groups. Returns 0 if there is no escape. */
GW_TEMPLATE uint32_t find_masks(group_masks *masks, const uint8_t *ranks, const gw_rounded_groups *rounded,
                                size_t groups, const split_params *params, uint32_t dtype, uint32_t derived)
{
    uint32_t escaped_any = 0;
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * GW_GROUP_LEN;
        const __m256i label = load(masks->label + at);
        __m256i has = load(rounded->has + at);
        const uint32_t escaped =
            top_bits(_mm256_cmpeq_epi8(load(ranks + at), params->escape_rank)) & params->has_escape;
        const uint32_t coded =
            ~top_bits(_mm256_cmpeq_epi8(_mm256_min_epu8(label, bytes(1)), label)) & ~escaped;
        masks->escaped[g] = escaped;
        escaped_any |= escaped;
        if (derived) {
            store_rest(masks, g, rounded, has, dtype);
        }
        for (unsigned p = 0; p < (derived ? GW_PLANES_MAX : GW_DIGIT_PLANES); p++) {
            masks->plane[p][g] = top_bits(has) & coded;
            has = _mm256_add_epi8(has, has);
        }
    }
    return escaped_any;
}

/* ---- digits ------------------------------------------------------------------------------------------- */

/* Appends the digits at the set bits of a group's mask. Returns the new end. */
static inline uint8_t *take(uint8_t *end, const uint8_t *digits, const uint32_t *mask)
{
    const uint8_t *bits = (const uint8_t *)(const void *)mask;
    for (unsigned j = 0; j < 4; j++) {
        const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)(digits + 8 * j));
        const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)&gw_orders_set_avx2[bits[j]]);
        _mm_storel_epi64((__m128i *)(void *)end, _mm_shuffle_epi8(x, order));
        end += _mm_popcnt_u32(bits[j]);
    }
    return end;
}

static inline void take_plane(gw_digits *digits, unsigned p, const uint8_t *from, const uint32_t *masks,
                              size_t groups, int is_rare)
{
    uint8_t *const start = digits->plane[p];
    uint8_t *end = start + digits->plane_len[p];
    for (size_t g = 0; g < groups; g++) {
        if (!is_rare || masks[g] != 0) {
            end = take(end, from + g * GW_GROUP_LEN, masks + g);
        }
    }
    digits->plane_len[p] = (size_t)(end - start);
}

static void take_escapes(gw_digits *digits, const gw_rounded_groups *rounded, const uint32_t *masks,
                         size_t groups, const gw_round_params *params)
{
    const size_t size = gw_traits_of(params->dtype)->size;
    for (size_t g = 0; g < groups; g++) {
        for (uint32_t bits = masks[g]; bits != 0; bits &= bits - 1, digits->escape_len++) {
            const uint32_t word = gw_rounded_word(rounded, g * GW_GROUP_LEN + _tzcnt_u32(bits), params);
            if (size == 4) {
                gw_store32(digits->escape + 4 * digits->escape_len, word);
            } else {
                gw_store16(digits->escape + 2 * digits->escape_len, (uint16_t)(word >> 16));
            }
        }
    }
}

/* ---- a span ------------------------------------------------------------------------------------------- */

static inline void rank_groups(uint8_t *ranks, const uint8_t *labels, size_t groups,
                               const split_params *params)
{
    if (params->is_identity) {
        GW_MEMCPY(ranks, labels, GW_GROUP_LEN * groups);
    } else {
        find_ranks(ranks, labels, groups, &params->ranks);
    }
}

/* Values [first, end) of a span. */
GW_TEMPLATE uint32_t split_range(uint8_t *ranks, gw_digits *digits, const gw_span *span, size_t first,
                                 size_t end, const split_params *params, uint32_t dtype, uint32_t derived)
{
    const size_t block_len = GW_GROUPS_MAX * GW_GROUP_LEN;
    uint32_t any = 0;
    gw_rounded_groups rounded;
    group_masks masks;
    for (size_t at = first; at < end; at += block_len) {
        const size_t len = end - at < block_len ? end - at : block_len;
        const size_t groups = (len + GW_GROUP_LEN - 1) / GW_GROUP_LEN;
        gw_round_groups(&rounded, span, at, len, &params->round);
        any |= find_labels(&masks, &rounded, groups, params, dtype, derived);
        rank_groups(ranks + at, masks.label, groups, params);
        const uint32_t escapes = find_masks(&masks, ranks + at, &rounded, groups, params, dtype, derived);
        if (len % GW_GROUP_LEN != 0) {
            /* The padding of the last group has no digits, but its zeros may be escapes. */
            masks.escaped[groups - 1] &= 0xffffffffu >> (GW_GROUP_LEN - len % GW_GROUP_LEN);
        }
        take_plane(digits, 0, rounded.digit[0], masks.plane[0], groups, 0);
        take_plane(digits, 1, rounded.digit[1], masks.plane[1], groups, 0);
        take_plane(digits, 2, rounded.digit[2], masks.plane[2], groups, derived != 0);
        take_plane(digits, 3, rounded.digit[3], masks.plane[3], groups, 1);
        for (unsigned p = GW_DIGIT_PLANES; derived && p < GW_PLANES_MAX; p++) {
            if (dtype == GW_FP32 || p == GW_PLANE_R1 || (dtype == GW_FP16 && p == 5)) {
                take_plane(digits, p, masks.rest[p - GW_DIGIT_PLANES], masks.plane[p], groups, 0);
            }
        }
        if (escapes != 0) {
            take_escapes(digits, &rounded, masks.escaped, groups, &params->round);
        }
    }
    return any != 0;
}

/* ---- stochastic with a dead zone ------------------------------------------------------------------------
 */

/* Puts the digits of whole groups, or of all values if `all`; the others move to the front. */
static void put_kept(gw_digits *digits, gw_dead_zone_values *kept, const split_params *params, int all)
{
    gw_rounded_groups rounded;
    group_masks masks;
    const size_t len = all ? kept->len : kept->len / GW_GROUP_LEN * GW_GROUP_LEN;
    const size_t groups = (len + GW_GROUP_LEN - 1) / GW_GROUP_LEN;
    gw_dead_zone_digits(&rounded, kept, groups, &params->round);
    for (size_t g = 0; g < groups; g++) {
        const size_t left = len - g * GW_GROUP_LEN;
        const uint32_t valid = left < GW_GROUP_LEN ? (1u << left) - 1 : 0xffffffffu;
        __m256i has = load(rounded.has + g * GW_GROUP_LEN);
        store_rest(&masks, g, &rounded, has, GW_FP32);
        for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
            masks.plane[p][g] = top_bits(has) & valid;
            has = _mm256_add_epi8(has, has);
        }
    }
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        const uint8_t *from = p < GW_DIGIT_PLANES ? rounded.digit[p] : masks.rest[p - GW_DIGIT_PLANES];
        take_plane(digits, p, from, masks.plane[p], groups, 1);
    }
    kept->len -= len;
    GW_MEMMOVE(kept->word, kept->word + len, kept->len * sizeof *kept->word);
}

static int has_escape(const uint8_t *ranks, size_t groups, const split_params *params)
{
    uint32_t escapes = 0;
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        escapes |= top_bits(_mm256_cmpeq_epi8(load(ranks + at), params->escape_rank));
    }
    return (escapes & params->has_escape) != 0;
}

/* Blocks with escapes, infinity or NaN and the last values go the other way. */
static uint32_t split_dead_zone(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                const split_params *params)
{
    const size_t block_len = GW_GROUPS_MAX * GW_GROUP_LEN;
    const size_t whole = span->len / GW_GROUP_LEN * GW_GROUP_LEN;
    uint8_t labels[GW_GROUPS_MAX * GW_GROUP_LEN];
    gw_dead_zone_values kept;
    uint32_t any = 0;
    kept.len = 0;
    for (size_t at = 0; at < whole; at += block_len) {
        const size_t len = whole - at < block_len ? whole - at : block_len;
        const size_t groups = len / GW_GROUP_LEN, kept_len = kept.len;
        const int is_rounded = gw_dead_zone_round(labels, &kept, span, at, groups, &params->round);
        if (is_rounded) {
            rank_groups(ranks + at, labels, groups, params);
        }
        if (is_rounded && !has_escape(ranks + at, groups, params)) {
            any |= (uint32_t)(kept.len != kept_len);
            put_kept(digits, &kept, params, 0);
        } else {
            kept.len = kept_len;
            put_kept(digits, &kept, params, 1);
            any |= split_range(ranks, digits, span, at, at + len, params, GW_FP32, 1);
        }
    }
    put_kept(digits, &kept, params, 1);
    any |= split_range(ranks, digits, span, whole, span->len, params, GW_FP32, 1);
    return any;
}

static int is_identity(const uint8_t *rank)
{
    unsigned other = 0;
    for (unsigned label = 0; label < GW_LABELS; label++) {
        other |= rank[label] ^ label;
    }
    return other == 0;
}

#define SPLIT_CASE(dtype, derived)                                                                           \
    case (dtype)*2 + (derived):                                                                              \
        return split_range(ranks, digits, span, 0, span->len, &params, (dtype), (derived))

uint32_t gw_split_avx2(uint8_t *ranks, gw_digits *digits, const gw_span *span, const gw_round_rule *rule,
                       const gw_ranker *ranker)
{
    split_params params;
    gw_round_params_fill(&params.round, rule);
    params.is_identity = is_identity(ranker->rank);
    if (!params.is_identity) {
        fill_rank_table(&params.ranks, ranker);
    }
    params.window_start = bytes(rule->dtype == GW_FP16 ? 1 + rule->derived
                                : rule->derived        ? 1
                                                       : 0u - ranker->window_start);
    params.escape_rank = bytes(ranker->escape_rank);
    params.has_escape = ranker->escape_rank < GW_LABELS ? 0xffffffffu : 0;
    if (gw_is_dead_zone_stochastic(rule)) {
        return split_dead_zone(ranks, digits, span, &params);
    }
    switch (rule->dtype * 2 + rule->derived) {
        SPLIT_CASE(GW_FP32, 0);
        SPLIT_CASE(GW_FP32, 1);
        SPLIT_CASE(GW_BF16, 0);
        SPLIT_CASE(GW_BF16, 1);
        SPLIT_CASE(GW_FP16, 0);
        SPLIT_CASE(GW_FP16, 1);
    default:
        return 0;
    }
}

#else
typedef int gw_split_avx2_not_built; /* a translation unit must not be empty */
#endif
