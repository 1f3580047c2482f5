/*
 * Precision, first stage of an encode: flush, look up how many mantissa bits a value may lose, round. Survey
 * and split also round their values here, a block at a time.
 *
 * One loop serves every dtype, rounding and source of drops; the switch at the end instantiates it with those
 * three as constants, so that choices that are the same for all values cost nothing per value. What differs
 * from value to value is masked, not branched on: no branch predictor can learn the order of zeros and
 * drops. The explicit loop has neither table nor variable shift, so that compilers can vectorise it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "scalar/round_block.h"

#include "gcomp/bins.h"
#include "core/philox.h"

/* Where the drop of a value comes from. */
enum { FROM_CONSTANT, FROM_OWN_QUARTER, FROM_DERIVED_QUARTER, FROM_QUANTUM /* derived, dead zone */ };

/* Larger than every room that a map byte and base can give (at most 255 + 764 + 64 quarter-octaves), and a
 * power of two. */
enum { NO_ROOM = 1 << 20 };

/*
 * Conditions as masks, all ones or zero, by arithmetic: compilers may turn comparisons into branches, which
 * would be unpredictable here. x and y are below 2^24 in magnitude, a byte is below 256.
 */
static inline uint32_t mask_if_less(int32_t x, int32_t y)
{
    return 0u - ((uint32_t)(x - y) >> 31);
}

static inline uint32_t mask_if_byte_at_least(uint32_t byte, uint32_t bound)
{
    return 0u - ((byte + 256 - bound) >> 8);
}

/* 1 if x is not 0, for x up to 2^31. */
static inline uint32_t is_not_zero(uint32_t x)
{
    return (0u - x) >> 31 | x >> 31;
}

/* Quarter-octave of a magnitude in fp32's bias: the number that the map byte is compared with
 * (docs/format.md section 3). Exponent field and top two mantissa bits are adjacent already. */
GW_TEMPLATE int32_t quarter_octave(uint32_t magnitude, const gw_traits *t, int fp16, int source)
{
    uint32_t quarter = magnitude >> (t->mantissa_bits - 2);
    if (fp16) {
        quarter += (mask_if_less((int32_t)quarter, 4) & 4) + 4u * t->exponent_bias;
    }
    return (int32_t)(source >= FROM_DERIVED_QUARTER ? quarter | 3 : quarter);
}

GW_TEMPLATE uint32_t drop_of(uint32_t k, uint32_t magnitude, const uint8_t floor[32], int32_t drop_offset,
                             uint32_t cap, const gw_traits *t, int fp16)
{
    const int32_t room = (int32_t)k + drop_offset - quarter_octave(magnitude, t, fp16, FROM_DERIVED_QUARTER);
    const uint32_t octaves = (uint32_t)room >> 2 & ~mask_if_less(room, 0) & mask_if_byte_at_least(k, 1);
    return floor[gw_min_u32(octaves, cap)];
}

/* Constants of a call. */
typedef struct settings {
    uint32_t dtype, rounding;
    int source;
    uint32_t cap, strict; /* strict: a mask */
    uint32_t constant_steps;
    int32_t drop_offset;
    /* Explicit: drop_steps n needs room for n steps, in quarter-octaves, and a cap that allows it. */
    int32_t need1, need2, need3;
} settings;

GW_TEMPLATE settings settings_of(const gw_round_rule *rule, uint32_t dtype, uint32_t rounding, int source)
{
    const uint32_t step = gw_traits_of(dtype)->explicit_step, cap = rule->cap;
    settings s = {dtype, rounding, source, cap, 0u - (rule->strict != 0), 0, rule->drop_offset, 0, 0, 0};
    s.constant_steps = rule->derived ? 0 : gw_drop_steps_of(cap, dtype);
    s.need1 = cap >= step ? 4 * (int32_t)step : 2 * NO_ROOM;
    s.need2 = cap >= 2 * step ? 8 * (int32_t)step : 2 * NO_ROOM;
    s.need3 = cap >= 3 * step ? 12 * (int32_t)step : 2 * NO_ROOM;
    return s;
}

/* What a value loses. */
typedef struct loss {
    uint32_t cut;        /* the bits that go */
    uint32_t drop;       /* how many */
    uint32_t drop_steps; /* not FROM_DERIVED_QUARTER */
} loss;

/* `whole` is all ones for values of which nothing may be dropped, k the map byte. */
GW_TEMPLATE loss loss_of(uint32_t magnitude, uint32_t whole, uint32_t k, const uint8_t floor[32],
                         const settings *s)
{
    const gw_traits *t = gw_traits_of(s->dtype);
    const unsigned step = t->explicit_step;
    const int fp16 = s->dtype == GW_FP16;
    loss l = {0, 0, 0};
    if (s->source == FROM_OWN_QUARTER) {
        /* "Drop nothing" is a quarter-octave so high that no map byte leaves room. */
        const uint32_t none = whole | ~mask_if_byte_at_least(k, 1);
        const int32_t quarter = quarter_octave(magnitude, t, fp16, s->source) | (int32_t)(none & NO_ROOM);
        const int32_t room = (int32_t)k + s->drop_offset - quarter;
        const uint32_t one = ~mask_if_less(room, s->need1);
        const uint32_t two = ~mask_if_less(room, s->need2);
        const uint32_t three = ~mask_if_less(room, s->need3);
        l.cut =
            (one & ((1u << step) - 1)) | (two & ((1u << 2 * step) - 1)) | (three & ((1u << 3 * step) - 1));
        l.drop_steps = 0u - (one + two + three);
        l.drop = l.drop_steps * step;
    } else if (s->source == FROM_CONSTANT) {
        l.drop = s->cap & ~whole;
        l.drop_steps = s->constant_steps & ~whole;
        l.cut = ((1u << s->cap) - 1) & ~whole;
    } else {
        l.drop = drop_of(k, magnitude, floor, s->drop_offset, s->cap, t, fp16) & ~whole;
        l.cut = (1u << l.drop) - 1;
    }
    return l;
}

/* The rounded magnitude; `random` is read for stochastic rounding only. */
GW_TEMPLATE uint32_t round_magnitude(uint32_t magnitude, const loss *l, uint32_t random, const settings *s)
{
    const gw_traits *t = gw_traits_of(s->dtype);
    const uint32_t cut = l->cut;
    uint32_t add = 0;
    if (s->rounding == GW_GCOMP_NEAREST) {
        /* Half an ulp less one, plus the last kept bit: ties go to even. Both vanish when nothing is
         * dropped. */
        add = (cut >> 1) + (is_not_zero(magnitude & (cut + 1)) & cut);
    } else if (s->rounding == GW_GCOMP_STOCHASTIC) {
        add = gw_random_top(random, l->drop);
    }
    const uint32_t rounded = (magnitude + add) & ~cut;
    if (s->rounding == GW_GCOMP_TRUNCATE) {
        return rounded;
    }
    /* A carry out of the largest finite exponent truncates instead. (Infinity and NaN lose nothing either
     * way.) */
    const uint32_t carried = mask_if_byte_at_least(rounded >> t->mantissa_bits, t->exponent_mask);
    return (rounded & ~carried) | (magnitude & ~cut & carried);
}

/* A value below its quantum, which loses all its bits. */
typedef struct dead_zone {
    uint32_t is_below; /* mask: the rest holds */
    uint32_t rounded;  /* the quantum or 0 */
} dead_zone;

/* docs/numerics.md section 3, step 3. */
GW_TEMPLATE dead_zone dead_zone_of(uint32_t magnitude, uint32_t whole, uint32_t k, uint32_t random,
                                   const settings *s)
{
    const gw_traits *t = gw_traits_of(s->dtype);
    const unsigned m = t->mantissa_bits;
    const int32_t field = (int32_t)(magnitude >> m);
    const int32_t exponent = field == 0 ? 1 : field; /* of subnormals, which only fp16 has here */
    int32_t quantum = gw_quantum_exponent(k, s->drop_offset, s->dtype) - t->exponent_bias;
    quantum = quantum < t->exponent_mask ? quantum : t->exponent_mask - 1;
    const int32_t below = quantum - exponent; /* octaves */
    dead_zone cut = {0, 0};
    if (whole == 0 && k != 0 && magnitude != 0 && below > 0) {
        const uint32_t significand = (magnitude & ((1u << m) - 1)) | (uint32_t)(field != 0) << m;
        const uint32_t threshold = gw_share_of_quantum(significand, m, below);
        const int is_up = s->rounding == GW_GCOMP_STOCHASTIC ? random < threshold
                          : s->rounding == GW_GCOMP_NEAREST  ? threshold > 1u << 31 /* ties go to 0 */
                                                             : 0;
        cut.is_below = UINT32_MAX;
        cut.rounded = is_up ? (uint32_t)quantum << m : 0;
    }
    return cut;
}

/* Turns the exponents of ordinary values (docs/format.md section 3). */
static void make_bins_relative(gw_rounded *block, const uint8_t *map_bytes, size_t len,
                               const gw_round_rule *rule)
{
    const uint32_t first = rule->dtype == GW_FP16 ? 0 : 4,
                   end = 4u * gw_traits_of(rule->dtype)->exponent_mask;
    for (size_t i = 0; i < len; i++) {
        const uint32_t bin = block->bins[i];
        if (bin >= first && bin < end) {
            const uint32_t turn = gw_turn_of(map_bytes[i], rule->drop_offset, rule->dtype);
            block->bins[i] = (uint16_t)(4 * gw_exponent_turn(bin / 4, turn, rule->dtype));
        }
    }
}

/* The values of a block of the caller's memory; constants are inlined once per dtype, rounding and source. */
GW_TEMPLATE uint32_t round_range(gw_rounded *restrict out, const gw_span *restrict block,
                                 const gw_round_rule *restrict rule, uint32_t dtype, uint32_t rounding,
                                 int source)
{
    const settings s = settings_of(rule, dtype, rounding, source);
    const gw_traits *t = gw_traits_of(dtype);
    const int fp16 = dtype == GW_FP16;
    const unsigned m = t->mantissa_bits;
    const uint32_t sign_bit = 1u << (8 * t->size - 1);
    const uint8_t *restrict const values = (const uint8_t *)block->values;
    const uint8_t *restrict const map_bytes = block->map_bytes;
    const uint64_t element = block->element;
    const size_t len = block->len;
    uint32_t any = 0;
    uint32_t random[GW_RANDOM_SHARED] = {0};

    for (size_t i = 0; i < len; i++) {
        uint32_t value = dtype == GW_FP32 ? gw_load32(values + 4 * i) : gw_load16(values + 2 * i);
        const uint32_t exponent = (value & (sign_bit - 1)) >> m;
        if (!fp16) {
            value &= mask_if_byte_at_least(exponent, 1) | s.strict;
        }
        uint32_t sign = value & sign_bit;
        const uint32_t magnitude = value ^ sign;
        /* Infinity, NaN, and (strict) the subnormals of fp32 and bf16 */
        const uint32_t whole = mask_if_byte_at_least(exponent, t->exponent_mask) |
                               (fp16 ? 0 : ~mask_if_byte_at_least(exponent, 1));
        const uint32_t k = source == FROM_CONSTANT ? 0 : map_bytes[i];
        loss l = loss_of(magnitude, whole, k, rule->floor, &s);
        if (rounding == GW_GCOMP_STOCHASTIC && (i == 0 || (element + i) % GW_RANDOM_SHARED == 0)) {
            gw_random_eight(random, rule->seed, (element + i) >> GW_RANDOM_SHARED_LOG2, rule->step_index,
                            rule->rank_hop);
        }
        const uint32_t word = random[(element + i) % GW_RANDOM_SHARED];
        uint32_t rounded = round_magnitude(magnitude, &l, word, &s);
        if (source == FROM_QUANTUM) {
            const dead_zone cut = dead_zone_of(magnitude, whole, k, word, &s);
            rounded = (rounded & ~cut.is_below) | cut.rounded;
            sign &= ~cut.is_below | (0u - is_not_zero(rounded));
        }
        if (fp16) {
            sign &= (0u - is_not_zero(rounded)) | s.strict; /* -0, and subnormals that rounded to zero */
        }
        if (source >= FROM_DERIVED_QUARTER) {
            /* The receiver uses the rounded exponent. It is never smaller, so this drop is never larger,
             * and where it is smaller a carry has made the mantissa zero: nothing is lost. */
            l.drop =
                drop_of(k, rounded, rule->floor, s.drop_offset, s.cap, t, fp16) & (0u - is_not_zero(l.drop));
        }
        if (source != FROM_OWN_QUARTER) {
            out->keep[i] = (uint8_t)(m + 1 - l.drop);
        }
        out->bits[i] = sign | rounded;
        out->bins[i] = (uint16_t)gw_bin_of(sign | rounded, l.drop_steps, dtype);
        any |= sign | rounded;
    }
    if (!fp16 && s.strict != 0) {
        for (size_t i = 0; i < len; i++) {
            out->bins[i] = (uint16_t)(out->bins[i] | gw_bin_of_flushable(out->bits[i], dtype));
        }
    }
    return any;
}

#define ROUND_CASE(dtype, rounding, source)                                                                  \
    case ((dtype)*4 + (rounding)) * 4 + (source):                                                            \
        return round_range(rounded, span, rule, (dtype), (rounding), (source))

#define ROUND_CASES(dtype)                                                                                   \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, FROM_CONSTANT);                                                     \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, FROM_OWN_QUARTER);                                                  \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, FROM_DERIVED_QUARTER);                                              \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, FROM_QUANTUM);                                                      \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, FROM_CONSTANT);                                                      \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, FROM_OWN_QUARTER);                                                   \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, FROM_DERIVED_QUARTER);                                               \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, FROM_QUANTUM);                                                       \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, FROM_CONSTANT);                                                   \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, FROM_OWN_QUARTER);                                                \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, FROM_DERIVED_QUARTER);                                            \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, FROM_QUANTUM)

static uint32_t round_block_of(gw_rounded *rounded, const gw_span *span, const gw_round_rule *rule,
                               uint32_t source)
{
    switch ((rule->dtype * 4 + rule->rounding) * 4 + source) {
        ROUND_CASES(GW_FP32);
        ROUND_CASES(GW_BF16);
        ROUND_CASES(GW_FP16);
    default:
        return 0;
    }
}

uint32_t gw_round_block_scalar(gw_rounded *rounded, const gw_span *span, size_t at, size_t len,
                               const gw_round_rule *rule)
{
    const gw_span block = {(const uint8_t *)span->values + at * gw_traits_of(rule->dtype)->size,
                           rule->constant ? NULL : span->map_bytes + at, len, span->element + at, 0};
    const uint32_t source = rule->constant                     ? FROM_CONSTANT
                            : rule->derived && rule->dead_zone ? FROM_QUANTUM
                            : rule->derived                    ? FROM_DERIVED_QUARTER
                                                               : FROM_OWN_QUARTER;
    const uint32_t any = round_block_of(rounded, &block, rule, source);
    if (rule->relative) {
        make_bins_relative(rounded, block.map_bytes, len, rule);
    }
    return any;
}

void gw_round_scalar(void *out, const gw_span *span, const gw_round_rule *rule)
{
    const size_t size = gw_traits_of(rule->dtype)->size;
    uint8_t *dst = (uint8_t *)out;
    gw_rounded block;
    for (size_t at = 0; at < span->len; at += GW_BLOCK_LEN) {
        const size_t len = span->len - at < GW_BLOCK_LEN ? span->len - at : GW_BLOCK_LEN;
        gw_round_block_scalar(&block, span, at, len, rule);
        for (size_t i = 0; i < len; i++, dst += size) {
            if (size == 4) {
                gw_store32(dst, block.bits[i]);
            } else {
                gw_store16(dst, (uint16_t)block.bits[i]);
            }
        }
    }
}
