/*
 * Precision, first stage of an encode: flush, look up how many mantissa bits a value may lose, round; 32
 * values at a time.
 *
 * The drop is found on bytes: exponents of 32 values in one register, map bytes in another, saturating sums.
 * Rounding itself is done on words, 16-bit types being widened to the upper halves of them: the zeros below
 * do not affect rounding.
 *
 * Bound: instructions. Measured on Zen 4 in cycles a value: drops 0.40, words 0.42, bytes 0.47; on digits
 * 1.04 for all three. Random words: 51 operations for 32 values, 0.40 at four a cycle.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "avx2/byte_orders_avx2.h"
#include "avx2/round_groups_avx2.h"
#include "core/philox.h"
#include "gcomp/bins.h"

static inline __m256i bytes(unsigned x)
{
    return _mm256_set1_epi8((char)x);
}

/* x << n and x >> n in every byte; of the result only the bits of mask. */
GW_TEMPLATE __m256i up(__m256i x, int n, unsigned mask)
{
    return _mm256_and_si256(_mm256_slli_epi16(x, n), bytes(mask));
}

GW_TEMPLATE __m256i down(__m256i x, int n, unsigned mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, n), bytes(mask));
}

/* ---- random words ------------------------------------------------------------------------------------- */

/*
 * Words 0 and 2 of four counters are in one register, two counters (a and b) in each half, in an order that
 * changes from round to round:
 *
 *     0: c0a c2a c0b c2b    1: c2a c2b c0a c0b    2: c2a c0a c2b c0b    3: c0a c0b c2a c2b
 *
 * One shuffle then takes the upper halves of all products to their places. The lower halves, which the round
 * after the next one reads, come from a multiplication of their own: in the order of its factors they are
 * what that round needs, because words 0 and 2 have changed places by then. So a round takes seven
 * operations, and a chain two registers.
 */
typedef struct philox_chain {
    __m256i word; /* words 0 and 2 */
    __m256i low;  /* lower halves of the products before */
} philox_chain;

enum { CHAINS = 4 };

/* The order after round r; after the last one it is 0. */
GW_TEMPLATE unsigned order_after(unsigned r)
{
    return (r + 4 - (GW_RANDOM_ROUNDS - 1) % 4) % 4;
}

/* x where an order has word 0 of a counter, y where it has word 2. */
GW_TEMPLATE __m256i by_order(uint32_t x, uint32_t y, unsigned order)
{
    const int first = (int)(order == 0 || order == 3 ? x : y),
              other = (int)(order == 0 || order == 3 ? y : x);
    return order % 2 == 0 ? _mm256_setr_epi32(first, other, first, other, first, other, first, other)
                          : _mm256_setr_epi32(first, first, other, other, first, first, other, other);
}

static void philox_keys_fill(gw_philox_keys *keys, uint32_t c1, const gw_round_params *params)
{
    uint64_t key[GW_RANDOM_ROUNDS][2];
    gw_random_rounds_fill(key, params->seed, c1, params->step_index, params->rank_hop);
    keys->first = _mm256_set1_epi64x((long long)key[0][1]);
    for (unsigned r = 1; r < GW_RANDOM_ROUNDS; r++) {
        keys->key[r] = by_order((uint32_t)key[r][0], (uint32_t)key[r][1], order_after(r));
    }
}

#define SHUFFLE(x, y, order) _mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), (order))

/* Two rounds, of which word 0 is given, one counter per 64 bits: a, b, a, b. Leaves order 2. */
static inline philox_chain philox_begin(__m256i counter, const gw_philox_keys *keys)
{
    const __m256i m0 = _mm256_set1_epi64x(GW_PHILOX_MUL0), m1 = _mm256_set1_epi64x(GW_PHILOX_MUL1);
    const __m256i p0 = _mm256_mul_epu32(counter, m0);
    const __m256i p1 = _mm256_mul_epu32(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), keys->first), m1);
    philox_chain c;
    c.word = _mm256_xor_si256(_mm256_blend_epi32(p0, p1, 0xaa), keys->key[1]);
    /* Word 3 is in the keys. */
    c.low = _mm256_castps_si256(SHUFFLE(p1, _mm256_setzero_si256(), _MM_SHUFFLE(2, 0, 2, 0)));
    return c;
}

GW_TEMPLATE void philox_round(philox_chain *c, __m256i key, unsigned order, int is_last)
{
    /* The multipliers of odd places are those of even places of the opposite order, if `order` is even. */
    const __m256i multiplier = by_order(GW_PHILOX_MUL0, GW_PHILOX_MUL1, order);
    const __m256i other = order % 2 == 0 ? by_order(GW_PHILOX_MUL0, GW_PHILOX_MUL1, 2 - order) : multiplier;
    const __m256i even = _mm256_mul_epu32(c->word, multiplier);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(c->word, 32), other);
    const __m256i low = is_last ? _mm256_castps_si256(SHUFFLE(even, odd, _MM_SHUFFLE(0, 2, 0, 2)))
                                : _mm256_mullo_epi32(c->word, multiplier);
    const __m256 high = order % 2 == 0 ? SHUFFLE(even, odd, _MM_SHUFFLE(3, 1, 3, 1))
                                       : SHUFFLE(even, odd, _MM_SHUFFLE(1, 3, 1, 3));
    /* The key is off the critical path: gcc does not reorder this kind of XOR. */
    c->word = _mm256_castps_si256(_mm256_xor_ps(high, _mm256_castsi256_ps(_mm256_xor_si256(c->low, key))));
    c->low = low;
}

GW_TEMPLATE void philox_rounds(philox_chain chain[CHAINS], const gw_philox_keys *keys, unsigned r)
{
    for (unsigned i = 0; i < CHAINS; i++) {
        philox_round(&chain[i], keys->key[r], order_after(r - 1), r == GW_RANDOM_ROUNDS - 1);
    }
}

/* Words of 16 values from those of two counters: behind those of each, the same with their halves swapped. */
static inline void store_shared(uint32_t *random, __m256i words)
{
    const __m256i order = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, //
                                           2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    const __m256i swapped = _mm256_shuffle_epi8(words, order);
    _mm256_storeu_si256((__m256i *)(void *)random, _mm256_permute2x128_si256(words, swapped, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(random + 8), _mm256_permute2x128_si256(words, swapped, 0x31));
}

/* Random words of 4 * CHAINS counters. A round has a latency of six cycles, its operations on four chains
 * take seven. */
static inline void fill_chains(uint32_t *random, __m256i counter, const gw_philox_keys *keys)
{
    philox_chain chain[CHAINS];
    for (unsigned i = 0; i < CHAINS; i++) {
        chain[i] = philox_begin(_mm256_add_epi64(counter, _mm256_set1_epi64x(4 * i)), keys);
    }
    philox_rounds(chain, keys, 2);
    philox_rounds(chain, keys, 3);
    philox_rounds(chain, keys, 4);
    philox_rounds(chain, keys, 5);
    philox_rounds(chain, keys, 6);
    philox_rounds(chain, keys, 7);
    for (unsigned i = 0; i < CHAINS; i++) {
        store_shared(random + 32 * i, _mm256_unpacklo_epi32(chain[i].word, chain[i].low));
        store_shared(random + 32 * i + 16, _mm256_unpackhi_epi32(chain[i].word, chain[i].low));
    }
}

uint32_t *gw_random_fill(uint32_t words[GW_RANDOM_LEN], uint64_t element, size_t len,
                         const gw_round_params *params)
{
    const size_t step = 4 * CHAINS;
    /* Elements are counted modulo 2^64, so counters modulo 2^61. */
    const uint64_t first = element >> GW_RANDOM_SHARED_LOG2;
    const unsigned offset = element % GW_RANDOM_SHARED;
    const size_t counters = (len + offset + GW_RANDOM_SHARED - 1) / GW_RANDOM_SHARED;
    if ((first + counters + step) >> 32 != first >> 32) { /* word 1 of the counter changes, or may */
        for (uint64_t i = 0; i < counters; i++) {
            const uint64_t counter = (first + i) & (UINT64_MAX >> GW_RANDOM_SHARED_LOG2);
            gw_random_eight(words + GW_RANDOM_SHARED * i, params->seed, counter, params->step_index,
                            params->rank_hop);
        }
        return words + offset;
    }
    gw_philox_keys other;
    const gw_philox_keys *keys = &params->keys;
    if (first >> 32 != 0) {
        philox_keys_fill(&other, (uint32_t)(first >> 32), params);
        keys = &other;
    }
    /* Unpacking the words restores the order of the counters. */
    __m256i counter = _mm256_add_epi64(_mm256_set1_epi64x((long long)first), _mm256_setr_epi64x(0, 2, 1, 3));
    for (size_t i = 0; i < counters; i += step) {
        fill_chains(words + GW_RANDOM_SHARED * i, counter, keys);
        counter = _mm256_add_epi64(counter, _mm256_set1_epi64x((long long)step));
    }
    return words + offset;
}

/* ---- parameters -------------------------------------------------------------------------------------------
 */

void gw_round_params_fill(gw_round_params *params, const gw_round_rule *rule)
{
    const gw_traits *t = gw_traits_of(rule->dtype);
    uint8_t drop[32], has[32];
    params->dtype = rule->dtype;
    params->derived = rule->derived;
    params->constant = rule->constant;
    params->strict = rule->strict;
    params->rounding = rule->rounding;
    params->dead_zone = rule->dead_zone;
    params->relative = rule->relative;
    params->needs_words = 0;
    gw_room_rule_fill(&params->room, rule->drop_offset, rule->derived, t);
    params->cap = bytes(rule->cap);
    for (uint32_t n = 0; n < 32; n++) {
        const uint32_t capped = gw_min_u32(n, rule->cap);
        const uint32_t drop_steps = rule->derived ? 0 : capped / t->explicit_step;
        /* The constant drop of a derived frame is no multiple of a step. */
        drop[n] = (uint8_t)(!rule->derived   ? drop_steps * t->explicit_step
                            : rule->constant ? capped
                                             : rule->floor[capped]);
        has[n] = gw_has_of_kept(t->mantissa_bits + 1u - drop[n], t);
        has[n] = (uint8_t)(rule->derived ? has[n] : (has[n] & 0xf0) | drop_steps);
    }
    for (uint32_t n = 0; n < 32; n++) {
        drop[n] = (uint8_t)(drop[n] + (t->size == 2 ? 16 : 0));
    }
    gw_table32_fill(&params->drop, drop);
    gw_table32_fill(&params->has, has);
    params->seed = rule->seed;
    params->step_index = rule->step_index;
    params->rank_hop = rule->rank_hop;
    params->drop_offset = rule->drop_offset;
    if (rule->rounding == GW_GCOMP_STOCHASTIC) {
        philox_keys_fill(&params->keys, 0, params);
    }
}

/* ---- a group ------------------------------------------------------------------------------------------ */

/* Words of 32 values in the order of gw_rounded_groups. */
GW_TEMPLATE void load_words(__m256i v[4], const uint8_t *values, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        for (unsigned j = 0; j < 4; j++) {
            v[j] = gw_load_halves(values + 16 * j, values + 64 + 16 * j);
        }
        return;
    }
    const __m256i zero = _mm256_setzero_si256();
    for (unsigned j = 0; j < 4; j += 2) {
        const __m256i x = gw_load_halves(values + 8 * j, values + 32 + 8 * j);
        v[j] = _mm256_unpacklo_epi16(zero, x);
        v[j + 1] = _mm256_unpackhi_epi16(zero, x);
    }
}

/* Bytes n of four words each together: byte 0 first. */
static inline __m256i by_byte(__m256i words)
{
    return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2,
                                                                                6, 10, 14, 3, 7, 11, 15)));
}

/* Byte 2 and 3 of all words, in the order of values. */
static inline void upper_bytes(__m256i b[4], const __m256i v[4])
{
    const __m256i x = _mm256_unpackhi_epi32(by_byte(v[0]), by_byte(v[1]));
    const __m256i y = _mm256_unpackhi_epi32(by_byte(v[2]), by_byte(v[3]));
    b[2] = _mm256_unpacklo_epi64(x, y);
    b[3] = _mm256_unpackhi_epi64(x, y);
}

static inline void all_bytes(__m256i b[4], const __m256i v[4])
{
    const __m256i g[4] = {by_byte(v[0]), by_byte(v[1]), by_byte(v[2]), by_byte(v[3])};
    const __m256i x = _mm256_unpacklo_epi32(g[0], g[1]), y = _mm256_unpacklo_epi32(g[2], g[3]);
    const __m256i z = _mm256_unpackhi_epi32(g[0], g[1]), w = _mm256_unpackhi_epi32(g[2], g[3]);
    b[0] = _mm256_unpacklo_epi64(x, y);
    b[1] = _mm256_unpackhi_epi64(x, y);
    b[2] = _mm256_unpacklo_epi64(z, w);
    b[3] = _mm256_unpackhi_epi64(z, w);
}

GW_TEMPLATE __m256i exponent_of(const __m256i b[4], uint32_t dtype)
{
    if (dtype == GW_FP16) {
        return down(b[3], 2, 0x1f);
    }
    return _mm256_sub_epi8(_mm256_add_epi8(b[3], b[3]), _mm256_cmpgt_epi8(_mm256_setzero_si256(), b[2]));
}

/* Byte 4 * j + n of each half to word n. */
GW_TEMPLATE __m256i widen(__m256i x, unsigned j)
{
    const int i = (int)(4 * j);
    return _mm256_shuffle_epi8(
        x, _mm256_broadcastsi128_si256(_mm_setr_epi8((char)i, -1, -1, -1, (char)(i + 1), -1, -1, -1,
                                                     (char)(i + 2), -1, -1, -1, (char)(i + 3), -1, -1, -1)));
}

GW_TEMPLATE void digits_of(__m256i d[4], const __m256i b[4], uint32_t dtype)
{
    if (dtype == GW_FP32) {
        d[0] = _mm256_or_si256(down(b[3], 2, 0x20), down(b[2], 2, 0x1f));
        d[1] = _mm256_or_si256(up(b[2], 4, 0x30), down(b[1], 4, 0x0f));
        d[2] = _mm256_or_si256(up(b[1], 2, 0x3c), down(b[0], 6, 0x03));
        d[3] = _mm256_and_si256(b[0], bytes(0x3f));
    } else if (dtype == GW_BF16) {
        d[0] = _mm256_or_si256(down(b[3], 6, 0x02), down(b[2], 6, 0x01));
        d[1] = down(b[2], 4, 0x03);
        d[2] = down(b[2], 2, 0x03);
        d[3] = _mm256_and_si256(b[2], bytes(0x03));
    } else {
        d[0] = _mm256_or_si256(down(b[3], 6, 0x02), down(b[3], 1, 0x01));
        d[1] = _mm256_or_si256(up(b[3], 2, 0x04), down(b[2], 6, 0x03));
        d[2] = down(b[2], 3, 0x07);
        d[3] = _mm256_and_si256(b[2], bytes(0x07));
    }
}

static inline void store(uint8_t *dst, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, x);
}

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

/*
 * Explicit frames of fp32 to nearest, the most frequent case, without words: what is dropped is whole digits,
 * and carries go from digit to digit as masks. Of n dropped digits the first, T, decides: up if T > 32, or if
 * T = 32 and there is a bit below or the last kept bit is odd. That is T + (bit below or odd) > 32.
 */
static inline __m256i is_up(__m256i t, __m256i is_exact, __m256i kept)
{
    const __m256i one = bytes(1);
    const __m256i odd = _mm256_or_si256(_mm256_andnot_si256(is_exact, one), _mm256_and_si256(kept, one));
    return _mm256_cmpgt_epi8(_mm256_add_epi8(t, odd), bytes(32));
}

static void cut_digits(gw_rounded_groups *rounded, const uint8_t *values, const uint8_t *map_bytes,
                       size_t groups, const gw_round_params *params)
{
    const __m256i zero = _mm256_setzero_si256();
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        __m256i v[4], b[4], d[4];
        load_words(v, values + 4 * at, GW_FP32);
        all_bytes(b, v);
        const __m256i e = exponent_of(b, GW_FP32), k = load(map_bytes + at);
        __m256i is_zero = _mm256_cmpeq_epi8(e, zero);
        /* Nothing is dropped of infinity and NaN, of values that are flushed or strict subnormals, and if K
         * is 0. */
        const __m256i none = _mm256_or_si256(_mm256_or_si256(is_zero, _mm256_cmpeq_epi8(k, zero)),
                                             _mm256_cmpeq_epi8(e, bytes(255)));
        const __m256i room = _mm256_andnot_si256(none, gw_room(k, e, down(b[2], 5, 0x03), &params->room));
        if (params->strict) {
            const __m256i any = _mm256_or_si256(_mm256_or_si256(b[0], b[1]), _mm256_or_si256(b[2], b[3]));
            is_zero = _mm256_cmpeq_epi8(any, zero);
        }
        digits_of(d, b, GW_FP32);
        store(rounded->has + at, gw_look_up32(_mm256_min_epu8(room, params->cap), &params->has));
        store(rounded->exponent + at, e);
        store(rounded->is_zero + at, is_zero);
        for (unsigned p = 0; p < GW_DIGIT_PLANES; p++) {
            store(rounded->digit[p] + at, d[p]);
        }
    }
}

static void round_digits(gw_rounded_groups *rounded, size_t groups)
{
    const __m256i zero = _mm256_setzero_si256();
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        __m256i d1 = load(rounded->digit[0] + at), d2 = load(rounded->digit[1] + at),
                d3 = load(rounded->digit[2] + at);
        const __m256i d4 = load(rounded->digit[3] + at);
        const __m256i drop_steps = _mm256_and_si256(load(rounded->has + at), bytes(3));
        __m256i e = load(rounded->exponent + at);
        const __m256i up1 =
            _mm256_and_si256(is_up(d4, bytes(255), d3), _mm256_cmpeq_epi8(drop_steps, bytes(1)));
        const __m256i up2 = _mm256_and_si256(is_up(d3, _mm256_cmpeq_epi8(d4, zero), d2),
                                             _mm256_cmpeq_epi8(drop_steps, bytes(2)));
        const __m256i up3 = _mm256_and_si256(is_up(d2, _mm256_cmpeq_epi8(_mm256_or_si256(d3, d4), zero), d1),
                                             _mm256_cmpeq_epi8(drop_steps, bytes(3)));
        d3 = _mm256_sub_epi8(d3, up1);
        const __m256i over3 = _mm256_cmpeq_epi8(d3, bytes(64));
        d2 = _mm256_sub_epi8(d2, _mm256_or_si256(over3, up2));
        const __m256i over2 = _mm256_cmpeq_epi8(d2, bytes(64));
        const __m256i up = _mm256_or_si256(over2, up3);
        d3 = _mm256_andnot_si256(over3, d3);
        d2 = _mm256_andnot_si256(over2, d2);
        /* The first digit is the sign and five bits. */
        d1 = _mm256_sub_epi8(d1, up);
        const __m256i over1 = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(d1, bytes(31)), zero), up);
        d1 = _mm256_sub_epi8(d1, _mm256_and_si256(over1, bytes(32)));
        e = _mm256_sub_epi8(e, over1);
        const __m256i carried = _mm256_and_si256(_mm256_cmpeq_epi8(e, bytes(255)), over1);
        if (!_mm256_testz_si256(carried, carried)) {
            /* A carry out of the largest finite exponent truncates instead: all kept bits were ones. */
            e = _mm256_add_epi8(e, carried);
            d1 = _mm256_or_si256(d1, _mm256_and_si256(carried, bytes(31)));
            d2 = _mm256_or_si256(d2, _mm256_and_si256(carried, bytes(63)));
            d3 = _mm256_or_si256(d3, _mm256_and_si256(carried, bytes(63)));
        }
        store(rounded->exponent + at, e);
        store(rounded->digit[0] + at, d1);
        store(rounded->digit[1] + at, d2);
        store(rounded->digit[2] + at, d3);
    }
}

/*
 * Three loops over the groups, because the dependency chain from a value to its digits is longer than what
 * out-of-order execution overlaps: drops; rounded words; their bytes.
 */
typedef struct group_drops {
    _Alignas(64) uint8_t room[GW_GROUPS_MAX * GW_GROUP_LEN];
    uint8_t drop[GW_GROUPS_MAX * GW_GROUP_LEN]; /* of words: 16 more for 16-bit types */
    uint8_t exponent[GW_GROUPS_MAX * GW_GROUP_LEN];
    /* Only for rules with a dead zone or relative exponents. */
    uint8_t turn[GW_GROUPS_MAX * GW_GROUP_LEN];
    uint8_t below[GW_GROUPS_MAX * GW_GROUP_LEN]; /* octaves below the quantum, if it is to be cut; else 0 */
} group_drops;

GW_TEMPLATE void find_drops(group_drops *drops, const uint8_t *values, const uint8_t *map_bytes,
                            size_t groups, const gw_round_params *params, uint32_t dtype, uint32_t derived,
                            uint32_t constant, uint32_t turned)
{
    const unsigned special = gw_traits_of(dtype)->exponent_mask;
    const int fp16 = dtype == GW_FP16;
    const __m256i zero = _mm256_setzero_si256();
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * GW_GROUP_LEN;
        __m256i v[4], b[4];
        load_words(v, values + at * (dtype == GW_FP32 ? 4 : 2), dtype);
        upper_bytes(b, v);
        const __m256i e = exponent_of(b, dtype);
        __m256i room = params->cap;
        __m256i none = _mm256_cmpeq_epi8(e, bytes(special)); /* where nothing is dropped */
        if (!constant) {
            const __m256i k = load(map_bytes + at);
            const __m256i m = derived ? zero : fp16 ? _mm256_and_si256(b[3], bytes(3)) : down(b[2], 5, 0x03);
            room = gw_room(k, fp16 ? _mm256_max_epu8(e, bytes(1)) : e, m, &params->room);
            none = _mm256_or_si256(none, _mm256_cmpeq_epi8(k, zero));
        }
        if (!fp16) {
            none = _mm256_or_si256(none, _mm256_cmpeq_epi8(e, zero));
        }
        room = _mm256_andnot_si256(none, room);
        if (turned) {
            const __m256i turn = gw_turn(load(map_bytes + at), &params->room);
            if (fp16) {
                const __m256i magnitude = _mm256_or_si256(b[2], _mm256_and_si256(b[3], bytes(0x7f)));
                none = _mm256_or_si256(none, _mm256_cmpeq_epi8(magnitude, zero));
            }
            /* The quantum is the turn plus the first exponent: 0 for fp16, else 1. */
            const __m256i below = fp16 ? _mm256_subs_epu8(turn, _mm256_max_epu8(e, bytes(1)))
                                       : _mm256_subs_epu8(_mm256_add_epi8(turn, bytes(1)), e);
            store(drops->turn + at, turn);
            store(drops->below + at, _mm256_andnot_si256(none, below));
        }
        store(drops->room + at, room);
        store(drops->drop + at, gw_look_up32(_mm256_min_epu8(room, params->cap), &params->drop));
        store(drops->exponent + at, e);
    }
}

/* The words `rounded`, but those that are below their quantum, by `below` octaves, become it or 0
 * (docs/numerics.md section 3, step 3). v: before rounding. */
GW_TEMPLATE __m256i cut_dead_zone(__m256i rounded, __m256i v, __m256i below, __m256i random, uint32_t dtype,
                                  uint32_t rounding)
{
    const unsigned exponent_bits = dtype == GW_FP16 ? 5 : 8;
    const __m256i top = _mm256_set1_epi32(INT32_MIN), zero = _mm256_setzero_si256();
    const __m256i is_below = _mm256_cmpgt_epi32(below, zero);
    if (rounding == GW_GCOMP_TRUNCATE) {
        return _mm256_andnot_si256(is_below, rounded);
    }
    /* Sign and exponent, and the significand from bit 31 down. */
    __m256i quantum = _mm256_and_si256(v, _mm256_set1_epi32((int32_t)(0xffffffffu << (31 - exponent_bits))));
    __m256i significand = _mm256_slli_epi32(v, (int)exponent_bits);
    if (dtype == GW_FP16) {
        /* Subnormals have no leading one, and exponent 1. */
        const __m256i none = _mm256_cmpeq_epi32(_mm256_add_epi32(quantum, quantum), zero);
        significand = _mm256_or_si256(significand, _mm256_andnot_si256(none, top));
        quantum = _mm256_add_epi32(quantum, _mm256_and_si256(none, _mm256_set1_epi32(1 << 26)));
    } else {
        significand = _mm256_or_si256(significand, top);
    }
    quantum = _mm256_add_epi32(quantum, _mm256_slli_epi32(below, 31 - (int)exponent_bits));
    /* Shifts of 32 and more give 0; where `below` is 0 the result is not used. Signed comparisons of unsigned
     * numbers: with the top bits inverted. */
    const __m256i threshold =
        _mm256_xor_si256(_mm256_srlv_epi32(significand, _mm256_sub_epi32(below, _mm256_set1_epi32(1))), top);
    const __m256i is_up = rounding == GW_GCOMP_STOCHASTIC
                              ? _mm256_cmpgt_epi32(threshold, _mm256_xor_si256(random, top))
                              : _mm256_cmpgt_epi32(threshold, zero); /* ties go to 0 */
    return _mm256_blendv_epi8(rounded, _mm256_and_si256(quantum, is_up), is_below);
}

GW_TEMPLATE void round_words(gw_rounded_groups *rounded, const group_drops *drops, const uint8_t *values,
                             size_t groups, const uint32_t *random, uint32_t dtype, uint32_t rounding,
                             uint32_t dead_zone)
{
    const __m256i one = _mm256_set1_epi32(1);
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * GW_GROUP_LEN;
        __m256i v[4];
        load_words(v, values + at * (dtype == GW_FP32 ? 4 : 2), dtype);
        const __m256i drop = load(drops->drop + at);
        for (unsigned j = 0; j < 4; j++) {
            const __m256i n = widen(drop, j);
            const __m256i cut = _mm256_sub_epi32(_mm256_sllv_epi32(one, n), one);
            __m256i sum = v[j], r = v[j];
            if (rounding == GW_GCOMP_NEAREST) {
                /* Half an ulp less one, plus the last kept bit: ties go to even. Both vanish when nothing
                 * is dropped. */
                const __m256i odd = _mm256_and_si256(_mm256_and_si256(_mm256_srlv_epi32(v[j], n), cut), one);
                sum = _mm256_add_epi32(_mm256_add_epi32(sum, _mm256_srli_epi32(cut, 1)), odd);
            } else if (rounding == GW_GCOMP_STOCHASTIC) {
                const uint8_t *four = (const uint8_t *)(const void *)(random + at + 4 * j);
                r = gw_load_halves(four, four + 64);
                /* Its top bits, as many as are cut; 16-bit types, whose values are in the upper halves: and
                 * what is cut anyway. */
                sum = _mm256_add_epi32(sum, _mm256_srlv_epi32(r, _mm256_sub_epi32(_mm256_set1_epi32(32), n)));
            }
            __m256i word = _mm256_andnot_si256(cut, sum);
            if (dead_zone) {
                word = cut_dead_zone(word, v[j], widen(load(drops->below + at), j), r, dtype, rounding);
            }
            _mm256_storeu_si256((__m256i *)(void *)(rounded->word + at + 8 * j), word);
        }
    }
}

/* A carry out of the largest finite exponent truncates instead: the set bits of mask tell for which values
 * of a group. */
static void truncate_words(uint32_t *word, const uint8_t *values, const uint8_t *drop, uint32_t mask,
                           uint32_t dtype)
{
    for (; mask != 0; mask &= mask - 1) {
        const unsigned i = (unsigned)_tzcnt_u32(mask);
        const uint32_t value =
            dtype == GW_FP32 ? gw_load32(values + 4 * i) : (uint32_t)gw_load16(values + 2 * i) << 16;
        word[gw_word_of_value(i)] = value >> drop[i] << drop[i];
    }
}

/* gw_exponent_turn() of bins.h; other exponents than those of ordinary values stay. */
GW_TEMPLATE __m256i turn_exponent(__m256i e, __m256i turn, uint32_t dtype)
{
    const int fp16 = dtype == GW_FP16;
    const __m256i from_first = fp16 ? e : _mm256_sub_epi8(e, bytes(1)); /* of exponent 0: 255 */
    const __m256i count = bytes(fp16 ? 31 : 254);
    const __m256i is_ordinary =
        _mm256_cmpgt_epi8(_mm256_xor_si256(count, bytes(128)), _mm256_xor_si256(from_first, bytes(128)));
    turn = _mm256_and_si256(turn, is_ordinary);
    const __m256i is_after = _mm256_cmpeq_epi8(_mm256_max_epu8(from_first, turn), from_first);
    return _mm256_add_epi8(_mm256_sub_epi8(e, turn), _mm256_andnot_si256(is_after, count));
}

GW_TEMPLATE void find_bytes(gw_rounded_groups *rounded, const group_drops *drops, const uint8_t *values,
                            size_t groups, const gw_round_params *params, uint32_t dtype, uint32_t derived,
                            uint32_t turned)
{
    const unsigned special = gw_traits_of(dtype)->exponent_mask;
    const int fp16 = dtype == GW_FP16;
    const __m256i zero = _mm256_setzero_si256();
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * GW_GROUP_LEN;
        const __m256i e = load(drops->exponent + at);
        __m256i b[4], d[4], e_rounded, is_zero;
        for (;;) {
            __m256i x[4];
            for (unsigned j = 0; j < 4; j++) {
                x[j] = _mm256_loadu_si256((const __m256i *)(const void *)(rounded->word + at + 8 * j));
            }
            all_bytes(b, x);
            e_rounded = exponent_of(b, dtype);
            const __m256i carried = _mm256_andnot_si256(_mm256_cmpeq_epi8(e, bytes(special)),
                                                        _mm256_cmpeq_epi8(e_rounded, bytes(special)));
            const uint32_t mask = (uint32_t)_mm256_movemask_epi8(carried);
            if (mask == 0) {
                break;
            }
            truncate_words(rounded->word + at, values + at * (dtype == GW_FP32 ? 4 : 2), drops->drop + at,
                           mask, dtype);
        }
        __m256i room = load(drops->room + at);
        if (derived && !params->constant) {
            /* The receiver derives the drop from the rounded exponent: a carry reduces the room by an
             * octave. */
            const __m256i is_same =
                _mm256_cmpeq_epi8(fp16 ? _mm256_max_epu8(e, bytes(1)) : e,
                                  fp16 ? _mm256_max_epu8(e_rounded, bytes(1)) : e_rounded);
            room = _mm256_subs_epu8(room, _mm256_andnot_si256(is_same, bytes(1)));
        }
        if (fp16 || params->strict) {
            __m256i magnitude = _mm256_or_si256(b[2], _mm256_and_si256(b[3], bytes(0x7f)));
            magnitude =
                dtype == GW_FP32 ? _mm256_or_si256(magnitude, _mm256_or_si256(b[0], b[1])) : magnitude;
            is_zero = _mm256_cmpeq_epi8(magnitude, zero);
            if (params->strict) {
                const __m256i is_minus_zero = _mm256_and_si256(is_zero, _mm256_cmpgt_epi8(zero, b[3]));
                is_zero = _mm256_andnot_si256(is_minus_zero, is_zero);
                /* Exponent 0, like subnormals, which have labels if fp16. */
                e_rounded = fp16 ? _mm256_blendv_epi8(e_rounded, bytes(special), is_minus_zero) : e_rounded;
            }
        } else {
            is_zero = _mm256_cmpeq_epi8(turned ? e_rounded : e, zero); /* a dead zone makes zeros */
        }
        if (turned && params->relative) {
            e_rounded = turn_exponent(e_rounded, load(drops->turn + at), dtype);
        }
        digits_of(d, b, dtype);
        store(rounded->exponent + at, e_rounded);
        store(rounded->has + at, gw_look_up32(_mm256_min_epu8(room, params->cap), &params->has));
        store(rounded->is_zero + at, is_zero);
        for (unsigned p = 0; p < GW_DIGIT_PLANES; p++) {
            store(rounded->digit[p] + at, d[p]);
        }
    }
}

/* From drops to words. */
GW_TEMPLATE void round_by(gw_rounded_groups *rounded, const group_drops *drops, const uint8_t *values,
                          size_t groups, uint64_t element, const gw_round_params *params, uint32_t dtype,
                          uint32_t dead_zone)
{
    if (params->rounding == GW_GCOMP_NEAREST) {
        round_words(rounded, drops, values, groups, NULL, dtype, GW_GCOMP_NEAREST, dead_zone);
    } else if (params->rounding == GW_GCOMP_STOCHASTIC) {
        _Alignas(64) uint32_t words[GW_RANDOM_LEN];
        const uint32_t *random = gw_random_fill(words, element, groups * GW_GROUP_LEN, params);
        round_words(rounded, drops, values, groups, random, dtype, GW_GCOMP_STOCHASTIC, dead_zone);
    } else {
        round_words(rounded, drops, values, groups, NULL, dtype, GW_GCOMP_TRUNCATE, dead_zone);
    }
}

GW_TEMPLATE void round_groups(gw_rounded_groups *rounded, const uint8_t *values, const uint8_t *map_bytes,
                              size_t groups, uint64_t element, const gw_round_params *params, uint32_t dtype,
                              uint32_t derived)
{
    group_drops drops;
    if (gw_is_rounded_by_digits(params)) {
        cut_digits(rounded, values, map_bytes, groups, params);
        round_digits(rounded, groups);
        return;
    }
    if (params->constant) {
        find_drops(&drops, values, NULL, groups, params, dtype, derived, 1, 0);
    } else {
        find_drops(&drops, values, map_bytes, groups, params, dtype, derived, 0, 0);
    }
    round_by(rounded, &drops, values, groups, element, params, dtype, 0);
    find_bytes(rounded, &drops, values, groups, params, dtype, derived, 0);
}

/* The same for rules with a dead zone or relative exponents. */
GW_TEMPLATE void round_turned_groups(gw_rounded_groups *rounded, const uint8_t *values,
                                     const uint8_t *map_bytes, size_t groups, uint64_t element,
                                     const gw_round_params *params, uint32_t dtype)
{
    group_drops drops;
    find_drops(&drops, values, map_bytes, groups, params, dtype, 1, 0, 1);
    if (params->dead_zone) {
        round_by(rounded, &drops, values, groups, element, params, dtype, 1);
    } else {
        round_by(rounded, &drops, values, groups, element, params, dtype, 0);
    }
    find_bytes(rounded, &drops, values, groups, params, dtype, 1, 1);
}

#define TURNED_CASE(dtype)                                                                                   \
    case (dtype):                                                                                            \
        round_turned_groups(rounded, values, map_bytes, groups, element, params, (dtype));                   \
        break

static void round_whole_turned_groups(gw_rounded_groups *rounded, const uint8_t *values,
                                      const uint8_t *map_bytes, size_t groups, uint64_t element,
                                      const gw_round_params *params)
{
    switch (params->dtype) {
        TURNED_CASE(GW_FP32);
        TURNED_CASE(GW_BF16);
        TURNED_CASE(GW_FP16);
    default:
        break;
    }
}

#define GROUPS_CASE(dtype, derived)                                                                          \
    case (dtype)*2 + (derived):                                                                              \
        round_groups(rounded, values, map_bytes, groups, element, params, (dtype), (derived));               \
        break

static void round_whole_groups(gw_rounded_groups *rounded, const uint8_t *values, const uint8_t *map_bytes,
                               size_t groups, uint64_t element, const gw_round_params *params)
{
    if (params->dead_zone || params->relative) {
        round_whole_turned_groups(rounded, values, map_bytes, groups, element, params);
        return;
    }
    switch (params->dtype * 2 + params->derived) {
        GROUPS_CASE(GW_FP32, 0);
        GROUPS_CASE(GW_FP32, 1);
        GROUPS_CASE(GW_BF16, 0);
        GROUPS_CASE(GW_BF16, 1);
        GROUPS_CASE(GW_FP16, 0);
        GROUPS_CASE(GW_FP16, 1);
    default:
        break;
    }
}

void gw_round_groups(gw_rounded_groups *rounded, const gw_span *span, size_t at, size_t len,
                     const gw_round_params *params)
{
    const size_t size = gw_traits_of(params->dtype)->size;
    const uint8_t *values = (const uint8_t *)span->values + at * size;
    const uint8_t *map_bytes = params->constant ? NULL : span->map_bytes + at;
    const uint64_t element = span->element + at;
    if (len % GW_GROUP_LEN == 0) {
        round_whole_groups(rounded, values, map_bytes, len / GW_GROUP_LEN, element, params);
        return;
    }
    uint8_t filled[4 * GW_GROUPS_MAX * GW_GROUP_LEN] = {0},
                                       filled_map_bytes[GW_GROUPS_MAX * GW_GROUP_LEN] = {0};
    GW_MEMCPY(filled, values, len * size);
    if (map_bytes != NULL) {
        GW_MEMCPY(filled_map_bytes, map_bytes, len);
    }
    round_whole_groups(rounded, filled, filled_map_bytes, len / GW_GROUP_LEN + 1, element, params);
}

/* ---- stochastic with a dead zone ------------------------------------------------------------------------
 */

/*
 * Four loops over the groups of a block, because the dependency chain from a value to its place is longer
 * than what out-of-order execution overlaps: quanta; words, in the places of their random ones; labels and
 * masks; places.
 */
typedef struct dead_zone_groups {
    _Alignas(64) uint8_t quantum[GW_GROUPS_MAX * GW_GROUP_LEN]; /* its exponent; 1 where K is 0 */
    uint8_t exact[GW_GROUPS_MAX * GW_GROUP_LEN];                /* 255 where K is 0 */
    uint8_t above[GW_GROUPS_MAX * GW_GROUP_LEN];
    uint32_t some[GW_GROUPS_MAX]; /* what does not become 0 */
} dead_zone_groups;

/* Returns 0 if no value is exact. */
static int find_quanta(dead_zone_groups *dead_zone, const uint8_t *map_bytes, size_t groups,
                       const gw_round_params *params)
{
    __m256i any = _mm256_setzero_si256();
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        const __m256i k = load(map_bytes + at);
        const __m256i is_exact = _mm256_cmpeq_epi8(k, _mm256_setzero_si256());
        store(dead_zone->quantum + at, _mm256_add_epi8(gw_turn(k, &params->room), bytes(1)));
        store(dead_zone->exact + at, is_exact);
        any = _mm256_or_si256(any, is_exact);
    }
    return !_mm256_testz_si256(any, any);
}

/* Eight bytes, in both halves. */
static inline __m256i eight_bytes(const uint8_t *src)
{
    return _mm256_set1_epi64x((long long)gw_load64(src));
}

/* Eight bytes as numbers: a load and a shuffle are fewer operations than to widen them. */
static inline __m256i numbers(const uint8_t *src)
{
    const __m256i order = _mm256_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1, //
                                           4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1, -1, -1);
    return _mm256_shuffle_epi8(eight_bytes(src), order);
}

/* Rounds eight values, to words with exponent 0 where they become 0. */
GW_TEMPLATE __m256i dead_zone_round8(__m256i x, __m256i random, const uint8_t *quantum, const uint8_t *exact,
                                     int may_be_exact)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i e = _mm256_srli_epi32(_mm256_add_epi32(x, x), 24);
    __m256i above = _mm256_sub_epi32(e, numbers(quantum));
    if (may_be_exact) {
        const __m256i is_inexact = _mm256_cmpeq_epi32(numbers(exact), zero);
        above = _mm256_blendv_epi8(_mm256_set1_epi32(127), above, is_inexact);
    }
    /* Shifts by 32 and more give 0, and below the quantum a count is a large number; above it, its complement
     * is. */
    const __m256i cut = _mm256_srlv_epi32(_mm256_set1_epi32(0x7fffff), above);
    const __m256i significand = _mm256_or_si256(_mm256_slli_epi32(x, 8), _mm256_set1_epi32(INT32_MIN));
    const __m256i share = _mm256_srlv_epi32(significand, _mm256_xor_si256(above, _mm256_set1_epi32(-1)));
    const __m256i is_down = _mm256_cmpeq_epi32(_mm256_max_epu32(random, share), random);
    /* Where `above` is not negative, 23 - above bits are cut. They are cleared, because a carry into the
     * exponent makes the drop smaller. */
    const __m256i add = _mm256_srlv_epi32(_mm256_srli_epi32(random, 9), above);
    const __m256i word = _mm256_andnot_si256(cut, _mm256_add_epi32(x, add));
    const __m256i is_zero = _mm256_and_si256(above, is_down); /* the sign bits */
    return _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(word), _mm256_castsi256_ps(zero), _mm256_castsi256_ps(is_zero)));
}

/* words: random ones, which the rounded ones overwrite. */
GW_TEMPLATE void dead_zone_round_words(const dead_zone_groups *dead_zone, uint32_t *words,
                                       const uint8_t *values, size_t len, int may_be_exact)
{
    for (size_t i = 0; i < len; i += 8) {
        uint8_t *const place = (uint8_t *)(void *)(words + i);
        store(place, dead_zone_round8(load(values + 4 * i), load(place), dead_zone->quantum + i,
                                      dead_zone->exact + i, may_be_exact));
    }
}

/* Exponents of a group of words. */
static inline __m256i exponents_of(const uint32_t *words)
{
    __m256i e[4];
    for (unsigned j = 0; j < 4; j++) {
        const __m256i word = load((const uint8_t *)(const void *)(words + 8 * j));
        e[j] = _mm256_srli_epi32(_mm256_add_epi32(word, word), 24);
    }
    const __m256i packed =
        _mm256_packus_epi16(_mm256_packs_epi32(e[0], e[1]), _mm256_packs_epi32(e[2], e[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Returns the largest exponent of every place in a group. */
static __m256i find_dead_zone_labels(uint8_t *labels, dead_zone_groups *dead_zone, const uint32_t *words,
                                     size_t groups, uint32_t relative)
{
    const __m256i add = bytes(relative ? 2 : 1); /* of relative exponents the quantum's is 1 */
    __m256i largest = _mm256_setzero_si256();
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * GW_GROUP_LEN;
        const __m256i e = exponents_of(words + at), q = load(dead_zone->quantum + at);
        const __m256i is_zero = _mm256_cmpeq_epi8(e, _mm256_setzero_si256());
        const __m256i above = _mm256_subs_epu8(e, q);
        const __m256i label = _mm256_add_epi8(relative ? above : _mm256_max_epu8(e, q), add);
        dead_zone->some[g] = ~(uint32_t)_mm256_movemask_epi8(is_zero);
        store(labels + at, _mm256_andnot_si256(is_zero, label));
        store(dead_zone->above + at,
              _mm256_min_epu8(_mm256_or_si256(above, load(dead_zone->exact + at)), bytes(127)));
        largest = _mm256_max_epu8(largest, e);
    }
    return largest;
}

/* A store a step: a second array for `above` would take as long as the words. */
static void keep_words(gw_dead_zone_values *kept, const dead_zone_groups *dead_zone, const uint32_t *words,
                       size_t groups)
{
    const __m256i top = _mm256_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, //
                                         -1, -1, -1, 4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7);
    const __m256i others = _mm256_set1_epi32((int32_t)0x80ffffffu);
    size_t len = kept->len; /* not in memory, where every store might change it */
    for (size_t i = 0; i < groups * GW_GROUP_LEN; i += 8) {
        const unsigned bits = ((const uint8_t *)(const void *)dead_zone->some)[i / 8];
        const __m256i order = numbers((const uint8_t *)(const void *)&gw_orders_set_avx2[bits]);
        const __m256i above = _mm256_shuffle_epi8(eight_bytes(dead_zone->above + i), top);
        const __m256i word = _mm256_and_si256(load((const uint8_t *)(const void *)(words + i)), others);
        store((uint8_t *)(void *)(kept->word + len),
              _mm256_permutevar8x32_epi32(_mm256_or_si256(word, above), order));
        len += (size_t)_mm_popcnt_u32(bits);
    }
    kept->len = len;
}

int gw_dead_zone_round(uint8_t labels[GW_GROUPS_MAX * GW_GROUP_LEN], gw_dead_zone_values *kept,
                       const gw_span *span, size_t at, size_t groups, const gw_round_params *params)
{
    _Alignas(64) uint32_t room[GW_RANDOM_LEN];
    dead_zone_groups dead_zone;
    const uint8_t *values = (const uint8_t *)span->values + 4 * at;
    const size_t len = groups * GW_GROUP_LEN;
    uint32_t *const words = gw_random_fill(room, span->element + at, len, params);
    if (find_quanta(&dead_zone, span->map_bytes + at, groups, params)) {
        dead_zone_round_words(&dead_zone, words, values, len, 1);
    } else {
        dead_zone_round_words(&dead_zone, words, values, len, 0);
    }
    const __m256i largest = find_dead_zone_labels(labels, &dead_zone, words, groups, params->relative);
    const __m256i is_special = _mm256_cmpeq_epi8(largest, bytes(255));
    if (!_mm256_testz_si256(is_special, is_special)) {
        return 0;
    }
    keep_words(kept, &dead_zone, words, groups);
    return 1;
}

void gw_dead_zone_digits(gw_rounded_groups *rounded, const gw_dead_zone_values *kept, size_t groups,
                         const gw_round_params *params)
{
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        __m256i v[4], b[4], d[4];
        load_words(v, (const uint8_t *)(const void *)(kept->word + at), GW_FP32);
        all_bytes(b, v);
        digits_of(d, b, GW_FP32);
        const __m256i above = _mm256_and_si256(b[3], bytes(127));
        store(rounded->has + at, gw_look_up32(_mm256_subs_epu8(bytes(23), above), &params->has));
        for (unsigned p = 0; p < GW_DIGIT_PLANES; p++) {
            store(rounded->digit[p] + at, d[p]);
        }
    }
}

/* The elements of a group. */
GW_TEMPLATE void store_elements(uint8_t *dst, const gw_rounded_groups *rounded, size_t at, uint32_t dtype)
{
    const __m256i is_zero = load(rounded->is_zero + at);
    __m256i x[4];
    for (unsigned j = 0; j < 4; j++) {
        const __m256i word = _mm256_loadu_si256((const __m256i *)(const void *)(rounded->word + at + 8 * j));
        x[j] = _mm256_andnot_si256(_mm256_cmpgt_epi32(widen(is_zero, j), _mm256_setzero_si256()), word);
    }
    if (dtype != GW_FP32) {
        for (unsigned j = 0; j < 2; j++) {
            x[j] = _mm256_packus_epi32(_mm256_srli_epi32(x[2 * j], 16), _mm256_srli_epi32(x[2 * j + 1], 16));
        }
    }
    const unsigned vectors = dtype == GW_FP32 ? 4 : 2;
    for (unsigned j = 0; j < vectors; j++) {
        _mm_storeu_si128((__m128i *)(void *)(dst + 16 * j), _mm256_castsi256_si128(x[j]));
        _mm_storeu_si128((__m128i *)(void *)(dst + 16 * (vectors + j)), _mm256_extracti128_si256(x[j], 1));
    }
}

void gw_round_avx2(void *out, const gw_span *span, const gw_round_rule *rule)
{
    const size_t size = gw_traits_of(rule->dtype)->size;
    const size_t block_len = GW_GROUPS_MAX * GW_GROUP_LEN;
    uint8_t *dst = (uint8_t *)out;
    gw_round_params params;
    gw_rounded_groups rounded;
    gw_round_params_fill(&params, rule);
    params.needs_words = 1;
    for (size_t at = 0; at < span->len; at += block_len) {
        const size_t len = span->len - at < block_len ? span->len - at : block_len;
        gw_round_groups(&rounded, span, at, len, &params);
        for (size_t i = 0; i < len; i += GW_GROUP_LEN, dst += GW_GROUP_LEN * size) {
            uint8_t last[4 * GW_GROUP_LEN];
            uint8_t *const to = len - i >= GW_GROUP_LEN ? dst : last;
            if (size == 4) {
                store_elements(to, &rounded, i, GW_FP32);
            } else {
                store_elements(to, &rounded, i, GW_BF16);
            }
            if (to == last) {
                GW_MEMCPY(dst, last, (len - i) * size);
            }
        }
    }
}

#else
typedef int gw_round_avx2_not_built; /* a translation unit must not be empty */
#endif
