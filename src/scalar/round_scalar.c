/*
 * Precision, first stage of an encode: flush, look up how many mantissa bits a value may lose, round.
 *
 * One loop serves every dtype, rounding and kind of levels; the switch at the end instantiates it with those three as
 * constants so that no value pays for a choice that is the same for all of them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"
#include "core/philox.h"

/* Quarter-octave of a magnitude: the number that the map byte is compared with (docs/format.md section 3). */
static inline int32_t quarter_octave(uint32_t magnitude, const gw_traits *t, int fp16, int derived)
{
    uint32_t exponent = magnitude >> t->mantissa_bits;
    if (fp16) {
        exponent = (exponent == 0 ? 1 : exponent) + t->exponent_bias;
    }
    uint32_t quarter = derived ? 3 : (magnitude >> (t->mantissa_bits - 2)) & 3;
    return (int32_t)(4 * exponent + quarter);
}

static inline uint32_t drop_of(int32_t k, uint32_t magnitude, const gw_round_rule *rule, const gw_traits *t, int fp16,
                               int derived)
{
    int32_t room = k + rule->drop_base - quarter_octave(magnitude, t, fp16, derived);
    if (k == 0 || room < 4) {
        return 0;
    }
    return rule->floor[gw_min_u32((uint32_t)room >> 2, rule->cap)];
}

static inline uint32_t load_bits(const uint8_t *values, size_t i, int wide)
{
    return wide ? gw_load32(values + 4 * i) : gw_load16(values + 2 * i);
}

static inline uint32_t round_range(uint32_t *bits, uint8_t *keep, const uint8_t *values, const uint8_t *levels,
                                   size_t len, uint64_t element, const gw_round_rule *rule, uint32_t dtype,
                                   uint32_t rounding, int derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const int wide = dtype == GW_FP32;
    const int fp16 = dtype == GW_FP16;
    const unsigned m = t->mantissa_bits;
    const uint32_t sign_mask = wide ? 0x80000000u : 0x8000u;
    const int strict = rule->strict != 0;
    const int constant = rule->constant != 0;
    uint32_t any = 0;
    uint32_t random[4] = {0, 0, 0, 0};

    for (size_t i = 0; i < len; i++) {
        uint32_t value = load_bits(values, i, wide);
        uint32_t sign = value & sign_mask;
        uint32_t magnitude = value ^ sign;
        uint32_t exponent = magnitude >> m;

        if (!strict && exponent == 0 && (!fp16 || magnitude == 0)) {
            sign = 0;
            magnitude = 0;
        }

        uint32_t drop = 0;
        if (exponent != t->exponent_mask && (exponent != 0 || fp16)) {
            drop = constant ? rule->cap : drop_of(levels[i], magnitude, rule, t, fp16, derived);
        }
        uint32_t mask = (1u << drop) - 1;

        uint32_t add = 0;
        if (rounding == GW_GCOMP_NEAREST) {
            /* Half an ulp less one, plus the last kept bit: ties go to even. Both vanish when nothing is dropped. */
            add = (mask >> 1) + ((magnitude >> drop) & mask & 1);
        } else if (rounding == GW_GCOMP_STOCHASTIC) {
            if (i == 0 || ((element + i) & 3) == 0) {
                uint64_t quad = (element + i) >> 2;
                gw_philox4x32(random, rule->seed, (uint32_t)quad, (uint32_t)(quad >> 32), rule->step_index,
                              rule->rank_hop);
            }
            add = random[(element + i) & 3] & mask;
        }
        uint32_t rounded = (magnitude + add) & ~mask;
        if (drop != 0 && rounded >> m == t->exponent_mask) {
            rounded = magnitude & ~mask; /* a carry out of the largest finite exponent truncates instead */
        }
        if (fp16 && !strict && rounded == 0) {
            sign = 0; /* a subnormal that rounded to zero */
        }

        /* The receiver of a derived frame sees the rounded exponent. It is never smaller, so this drop is never larger,
         * and where it is smaller a carry has made the mantissa zero: nothing is lost. */
        if (derived && !constant && drop != 0) {
            drop = drop_of(levels[i], rounded, rule, t, fp16, 1);
        }

        bits[i] = sign | rounded;
        keep[i] = (uint8_t)(m + 1 - drop);
        any |= bits[i];
    }
    return any;
}

#define ROUND_CASE(dtype, rounding, derived)                                                                           \
    case (dtype) * 8 + (rounding) * 2 + (derived):                                                                     \
        return round_range(bits, keep, (const uint8_t *)values, levels, len, element, rule, (dtype), (rounding), (derived))

#define ROUND_CASES(dtype)                                                                                             \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, 0);                                                                           \
    ROUND_CASE(dtype, GW_GCOMP_TRUNCATE, 1);                                                                           \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, 0);                                                                            \
    ROUND_CASE(dtype, GW_GCOMP_NEAREST, 1);                                                                            \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, 0);                                                                         \
    ROUND_CASE(dtype, GW_GCOMP_STOCHASTIC, 1)

uint32_t gw_round_scalar(uint32_t *bits, uint8_t *keep, const void *values, const uint8_t *levels, size_t len,
                         uint64_t element, const gw_round_rule *rule)
{
    switch (rule->dtype * 8 + rule->rounding * 2 + rule->derived) {
        ROUND_CASES(GW_FP32);
        ROUND_CASES(GW_BF16);
        ROUND_CASES(GW_FP16);
    default:
        return 0;
    }
}
