/*
 * Rounding as a slow model, for the kernels that round: it searches the neighbours on the coarser grid
 * instead of adding and masking.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck.h"

#include <string.h>

/* Philox4x32-8 from its paper: rounds of two products on a state and a key that are arrays. */
static void model_philox(uint32_t x[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 8; round++) {
        const uint64_t a = 0xd2511f53u * (uint64_t)x[0], b = 0xcd9e8d57u * (uint64_t)x[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ x[3] ^ k1, (uint32_t)a};
        memcpy(x, next, sizeof next);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* Element 8 n + 4 h + w takes word w of counter n, h times turned by 16 bits. */
static uint32_t model_random(const gw_round_rule *rule, uint64_t element)
{
    uint32_t x[4] = {(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), rule->step_index,
                     rule->rank_hop};
    model_philox(x, (uint32_t)rule->seed, (uint32_t)(rule->seed >> 32));
    const uint32_t word = x[element % 4];
    return element % 8 < 4 ? word : word % 65536 * 65536 + word / 65536;
}

static unsigned model_drop(const gw_round_rule *rule, unsigned k, uint32_t magnitude, int in_derived)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const unsigned m = t->mantissa_bits;
    unsigned e = magnitude >> m;
    if (rule->constant) {
        return rule->cap;
    }
    if (rule->dtype == GW_FP16) {
        e = (e > 1 ? e : 1) + 112;
    }
    const unsigned quarter = in_derived ? 3 : magnitude >> (m - 2) & 3;
    const long room = (long)k + rule->drop_offset - (long)(4 * e + quarter);
    if (k == 0 || room < 4) {
        return 0;
    }
    const unsigned drop = room / 4 > (long)rule->cap ? rule->cap : (unsigned)(room / 4);
    return rule->floor[drop];
}

/* Exponent field of the quantum of map byte k: the one from which on a value keeps mantissa bits. */
static long model_quantum(const gw_round_rule *rule, unsigned k)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const long quarters = (long)k + rule->drop_offset - 3;
    const long octaves = quarters >= 0 ? quarters / 4 : -((3 - quarters) / 4);
    return octaves - t->mantissa_bits - t->exponent_bias;
}

/* A value with exponent field e >= 1, k > 0 and a magnitude below the quantum: 2^32 times their quotient. */
static uint64_t model_share(uint64_t significand, long octaves_below, unsigned m)
{
    const long up = 32 - (long)m;
    for (long i = up; i < octaves_below; i++) {
        significand /= 2;
    }
    for (long i = octaves_below; i < up; i++) {
        significand *= 2;
    }
    return significand;
}

/* Value below its quantum: sets *rounded to the quantum or 0 and returns 1. */
static int model_dead_zone(uint32_t *rounded, const gw_round_rule *rule, unsigned k, uint32_t magnitude,
                           uint32_t random)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const unsigned m = t->mantissa_bits;
    const uint32_t e = magnitude >> m;
    long quantum = model_quantum(rule, k);
    if (quantum > t->exponent_mask - 1) {
        quantum = t->exponent_mask - 1;
    }
    const long below = quantum - (long)(e > 1 ? e : 1);
    if (!rule->dead_zone || k == 0 || magnitude == 0 || below <= 0) {
        return 0;
    }
    const uint64_t significand = (magnitude & ((1u << m) - 1)) + (e != 0 ? 1u << m : 0);
    const uint64_t share = model_share(significand, below, m);
    const int up = rule->rounding == GW_GCOMP_STOCHASTIC ? random < share
                   : rule->rounding == GW_GCOMP_NEAREST  ? share > (uint64_t)1 << 31
                                                         : 0;
    *rounded = up ? (uint32_t)quantum << m : 0;
    return 1;
}

/* The exponent field, counted from the quantum in a circle if the rule says so. */
static unsigned model_relative(const gw_round_rule *rule, unsigned e, unsigned k)
{
    const long first = rule->dtype == GW_FP16 ? 0 : 1, last = rule->dtype == GW_FP16 ? 30 : 254;
    const long quantum = model_quantum(rule, k);
    if (!rule->relative || k == 0 || (long)e < first || (long)e > last || quantum < first) {
        return e;
    }
    const long turn = (quantum > last ? last : quantum) - first;
    return (unsigned)(((long)e - first + (last - first + 1) - turn) % (last - first + 1) + first);
}

/* The bin as gcomp_kernels.h defines it. */
static uint16_t model_bin(const gw_round_rule *rule, uint32_t bits, unsigned drop, unsigned k)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    const uint32_t magnitude = rule->dtype == GW_FP32 ? bits & 0x7fffffff : bits & 0x7fff;
    const unsigned e = magnitude >> t->mantissa_bits;
    if (rule->dtype == GW_FP16 && magnitude == 0) {
        return (uint16_t)(bits == 0 ? 1023 : 4 * 31);
    }
    if (rule->dtype != GW_FP16 && e == 0) {
        return bits != 0;
    }
    return (uint16_t)(4 * model_relative(rule, e, k) + (rule->derived ? 0 : drop / t->explicit_step));
}

kc_rounded kc_model_round(const gw_round_rule *rule, const gw_span *span, size_t index)
{
    const uint8_t *values = (const uint8_t *)span->values;
    const uint32_t value =
        rule->dtype == GW_FP32 ? gw_load32(values + 4 * index) : gw_load16(values + 2 * index);
    const unsigned k = span->map_bytes == NULL ? 0 : span->map_bytes[index];
    const uint64_t element = span->element + index;
    const gw_traits *t = gw_traits_of(rule->dtype);
    const unsigned m = t->mantissa_bits;
    const uint32_t sign_bit = rule->dtype == GW_FP32 ? 0x80000000u : 0x8000u;
    const int is_fp16 = rule->dtype == GW_FP16;
    const uint32_t exponent = (value & (sign_bit - 1)) >> m;
    const int is_tiny = exponent == 0 && (!is_fp16 || (value & (sign_bit - 1)) == 0);
    kc_rounded out = {value, model_bin(rule, value, 0, k), (uint8_t)(m + 1)};
    if (exponent == t->exponent_mask) {
        return out;
    }
    if (is_tiny && !rule->strict) {
        out.bits = 0;
        out.bin = model_bin(rule, 0, 0, k);
    }
    if (is_tiny && !is_fp16) {
        return out;
    }
    const uint32_t magnitude = out.bits & (sign_bit - 1);
    uint32_t sign = out.bits & sign_bit;
    unsigned drop = model_drop(rule, k, magnitude, rule->derived != 0);
    const uint64_t unit = (uint64_t)1 << drop;
    const uint64_t down = magnitude / unit * unit, up = down + unit, rest = magnitude - down;
    uint64_t rounded = down;
    uint32_t dead_zone = 0;
    const uint32_t random = model_random(rule, element);
    if (rest != 0 && rule->rounding == GW_GCOMP_NEAREST) {
        const int is_odd = (down / unit) % 2 == 1;
        rounded = 2 * rest > unit || (2 * rest == unit && is_odd) ? up : down;
    } else if (rest != 0 && rule->rounding == GW_GCOMP_STOCHASTIC) {
        rounded = (uint64_t)random * unit / 4294967296u + rest >= unit ? up : down;
    }
    if (rounded >> m == t->exponent_mask) {
        rounded = down;
    }
    if (model_dead_zone(&dead_zone, rule, k, magnitude, random)) {
        rounded = dead_zone;
        sign = dead_zone == 0 ? 0 : sign;
    }
    if (is_fp16 && !rule->strict && rounded == 0) {
        sign = 0;
    }
    out.bin = model_bin(rule, sign | (uint32_t)rounded, drop, k);
    if (rule->derived && drop != 0) {
        drop = model_drop(rule, k, (uint32_t)rounded, 1);
    }
    out.bits = sign | (uint32_t)rounded;
    out.keep = (uint8_t)(m + 1 - drop);
    return out;
}
