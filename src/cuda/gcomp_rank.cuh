/*
 * Encode, first step: values are rounded and looked up: ranks to the first rank buffer, digits to strings or
 * only counted.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_RANK_CUH
#define GW_CUDA_GCOMP_RANK_CUH

#include "cuda/gcomp_encode_state.cuh"

/*
 * A value in one word: its rank at bit 24; 1 at bit 5 p if it has a digit in plane p + 1, for
 * p = 0..3; 1 at bit 20 if it is an escape. Sums of 16 of them count digits, and escapes modulo 16.
 */
enum { GW_ENTRY_ESCAPE = 1 << 20, GW_ENTRY_DIGITS = 0x8421 };

GW_DEVICE uint32_t gw_entry_of(uint32_t label, uint32_t rank, uint32_t escape_rank)
{
    const uint32_t digits = GW_ENTRY_DIGITS & ((1u << 5 * (4 - (label & 3))) - 1);
    return rank << 24 | (rank == escape_rank ? (uint32_t)GW_ENTRY_ESCAPE : label == 0 ? 0 : digits);
}

/*
 * 512 values of the frame from `first` on, 16 a lane, through the warp's 2 KiB at stage; those at `end` and
 * beyond are 0. Neighbouring lanes load neighbouring bytes. Quarter j (of 16 bytes; fp32 has 4, 16-bit types
 * 2) of a lane's values is then at (returned place) ^ 16 * j. Begins and ends with a barrier of the warp.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_stage_512(uint32_t stage, const uint8_t *values, uint64_t first, uint64_t end)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t lane = gw_lane();
    /* Quarters change places so that no lanes meet in a bank. */
    const uint32_t all = SIZE == 4 ? gw_exchange_all(stage, lane) : stage + 16 * (lane ^ (lane >> 3 & 1));
    const uint8_t *from = values + SIZE * first + 16 * lane;
    uint4 x[SIZE];
    if (first + 512 <= end && ((uintptr_t)values & 15) == 0) {
        GW_UNROLL
        for (uint32_t j = 0; j < SIZE; j++) {
            x[j] = *(const uint4 *)(const void *)(from + 512 * j);
        }
    } else {
        GW_UNROLL
        for (uint32_t j = 0; j < SIZE; j++) {
            x[j] = gw_load_values<DTYPE>(values, first + 16 / SIZE * (32 * j + lane), end);
        }
    }
    __syncwarp();
    GW_UNROLL
    for (uint32_t j = 0; j < SIZE; j++) {
        gw_shared_store128(all + 512 * j, x[j]);
    }
    __syncwarp();
    return SIZE == 4 ? gw_exchange_mine(stage, lane) : stage + 32 * lane + 16 * (lane >> 2 & 1);
}

/* Value 4 quad + i of a lane's 16, 16-bit types in the upper half; v: the quarter that it is in. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_high_value(const uint4 &v, uint32_t quad, uint32_t i)
{
    if (DTYPE == GW_FP32) {
        return i < 2 ? (i == 0 ? v.x : v.y) : i == 2 ? v.z : v.w;
    }
    const uint32_t word = (quad & 1) == 0 ? (i < 2 ? v.x : v.y) : i < 2 ? v.z : v.w;
    return (i & 1) == 0 ? word << 16 : word & 0xffff0000u;
}

/*
 * Rounding of fp32 and bf16 (in the upper half) with the float unit. A value of exponent e that loses n bits
 * is added to 1.5 * 2^(e + n), in whose binade both stay and one unit in the last place is what is kept of
 * the value, and that is subtracted again, exactly. The sum is rounded to nearest even, or towards zero,
 * which truncates. n is 6, 12 or 18 for fp32, and 16 + 2 * drop_steps for bf16, whose lower half is zero;
 * fp32 of drop_steps 0 adds 0. So that nothing overflows, exponents from 231 on are left to gw_round_value(),
 * and with them what is strict about exponent 0.
 */
enum { GW_FAST_SHIFT = 0x19000000, GW_FAST_QUARTERS = 0x19000000 >> 22 };

struct gw_fast_rule {
    uint32_t entries, factors; /* places of s.entry and s.factor, less 4 * GW_FLOAT_INTEGER */
    uint32_t limit;            /* twice a value and GW_FAST_SHIFT: below it the value is another's */
    float drop_offset;         /* and what the shift adds to quarter-octaves, and a half */
    float scale, step_count;   /* quarter-octaves of all drop steps, inverted; their number, a little less */
};

/* 2^23, the float whose lowest bits count from 0. */
enum { GW_FLOAT_INTEGER = 0x4b000000 };

/*
 * Rounds a value with map byte k: *rounded, its entry. Returns whether it is one of the others.
 *
 * The drop steps, too, come from the float unit: the quarter-octaves that may be lost and a half, an exact
 * sum, over those that all drop steps have, limited to 0 and 1, times the number of drop steps, rounded down.
 * A half is farther from a whole step than all rounding; what is limited to 1 comes to a little less than one
 * step too many.
 */
template <uint32_t DTYPE, bool NEAREST>
GW_DEVICE bool gw_round_fast(const gw_fast_rule &f, uint32_t value, uint32_t k, uint32_t *rounded,
                             uint32_t *entry)
{
    const float integer = __uint_as_float(GW_FLOAT_INTEGER);
    const uint32_t twice = 2 * value + GW_FAST_SHIFT;
    /* twice >> 22 and k as floats, both above 2^23 */
    const float quarters = __uint_as_float(__funnelshift_r(twice, GW_FLOAT_INTEGER >> 10, 22));
    const float map = __uint_as_float(k);
    const float room = __fadd_rn(__fsub_rn(map, quarters), f.drop_offset);
    const float most = __fmul_rn(gw_float_add_limit(map, -integer), f.step_count); /* 0 if the byte is 0 */
    const float part = __fmul_rn(gw_float_multiply_limit(room, f.scale), most);
    const uint32_t drop_steps = __float_as_uint(gw_float_add_flush<false>(part, integer)); /* above 2^23 */
    float factor;
    if (DTYPE == GW_FP32) {
        factor = __uint_as_float(gw_shared_load32(f.factors + 4 * drop_steps));
    } else {
        factor = __uint_as_float(((127u + 16) << 23 | 1u << 22) + (drop_steps << 24));
    }
    const float big = __fmul_rn(__uint_as_float(value & 0xff800000u), factor);
    const float sum = gw_float_add_flush<NEAREST>(__uint_as_float(value), big);
    *rounded = __float_as_uint(__fsub_rn(sum, big));
    *entry = gw_shared_load32((*rounded >> 19 & 0xff0) + (f.entries + 4 * drop_steps));
    return twice < f.limit;
}

/* Quad of a lane's 16 values, as gw_round_fast(), for all values. */
template <uint32_t DTYPE>
GW_DEVICE void gw_round_quad(const gw_encode_state &s, const gw_cuda_rounder &r, const uint32_t *value,
                             uint32_t k, const uint32_t *random, uint32_t valid, uint32_t *rounded,
                             uint32_t *entry)
{
    constexpr uint32_t HALF = gw_type<DTYPE>::SIZE == 4 ? 0 : 16;
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const gw_rounded x = gw_round_value<DTYPE, false>(r, r.from.drop_offset, value[i] >> HALF,
                                                          k >> 8 * i & 255, random[i], s.tree.window_start);
        rounded[i] = x.bits << HALF;
        entry[i] = i < valid ? gw_entry_of(x.label, s.tree.rank_of_label[x.label], s.tree.escape_rank) : 0;
    }
}

/* Byte i of x below the upper bytes of GW_FLOAT_INTEGER. */
GW_DEVICE uint32_t gw_map_float(uint32_t x, uint32_t i)
{
    return gw_permute(x, GW_FLOAT_INTEGER, 0x7650 | i);
}

/* 16 values of a lane: rounded (16-bit types in the upper half), and their entries. */
struct gw_sixteen {
    uint32_t rounded[16], entry[16];
};

/* gw_round_fast() of the 16 values of a lane that are staged at `mine`. */
template <uint32_t DTYPE, bool NEAREST>
GW_DEVICE bool gw_round_fast_16(const gw_fast_rule &f, uint32_t mine, const uint32_t k[4], gw_sixteen &x)
{
    bool others = false;
    GW_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        const uint4 v = gw_staged(mine, i / 4 * gw_type<DTYPE>::SIZE / 4);
        others |= gw_round_fast<DTYPE, NEAREST>(f, gw_high_value<DTYPE>(v, i / 4, i % 4),
                                                gw_map_float(k[i / 4], i % 4), &x.rounded[i], &x.entry[i]);
    }
    return others;
}

/* Rounds the 16 values of a lane that are staged at `mine`; k: their map bytes. `valid` of them exist. */
template <uint32_t DTYPE>
GW_DEVICE void gw_round_16(const gw_encode_state &s, const gw_cuda_rounder &r, const gw_fast_rule &f,
                           uint32_t mine, const uint32_t k[4], uint64_t first, uint32_t valid, gw_sixteen &x)
{
    constexpr uint32_t QUADS = 4 / gw_type<DTYPE>::SIZE; /* in 16 bytes */
    bool others = DTYPE == GW_FP16 || r.rule.stochastic != 0 || valid != 16;
    if (DTYPE != GW_FP16 && !others) {
        if (r.rule.nearest != 0) {
            others = gw_round_fast_16<DTYPE, true>(f, mine, k, x);
        } else {
            others = gw_round_fast_16<DTYPE, false>(f, mine, k, x);
        }
    }
    if (others) {
        gw_cuda_random random = gw_random_begin(r, first);
        GW_UNROLL
        for (uint32_t quad = 0; quad < 4; quad++) {
            const uint4 v = gw_staged(mine, quad / QUADS);
            uint32_t value[4], words[4];
            gw_random_next(words, r, random);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                value[i] = gw_high_value<DTYPE>(v, quad, i);
            }
            gw_round_quad<DTYPE>(s, r, value, k[quad], words, valid < 4 * quad ? 0 : valid - 4 * quad,
                                 x.rounded + 4 * quad, x.entry + 4 * quad);
        }
    }
}

/* Digits that wait in the lowest bits of a word, and the bit of shared memory that they go to. */
struct gw_digit_string {
    uint32_t bit, waiting;
};

/* The waiting digits, `count` of WIDTH bits, into the string. Two words change, one of them perhaps by
 * nothing: that costs less than a branch. */
template <uint32_t WIDTH> GW_DEVICE void gw_put_digits(gw_digit_string &d, uint32_t count)
{
    const uint32_t place = d.bit >> 3 & ~3u;
    gw_shared_or32(place, __funnelshift_l(0, d.waiting, d.bit));
    gw_shared_or32(place + 4, __funnelshift_l(d.waiting, 0, d.bit));
    d.bit += WIDTH * count;
    d.waiting = 0;
}

/* Digit p (0..3) of a rounded value (16-bit types in the upper half), in the top bits. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_digit_at(uint32_t rounded, uint32_t p)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t ABOVE = 31 - type::EXPONENT_SHIFT; /* bits above the mantissa but for one */
    if (p == 0) {
        return gw_select_bits<1u << 31>(rounded, rounded << ABOVE);
    }
    return rounded << (ABOVE + type::W1 + (p - 1) * type::W2);
}

/* Digits of values i to i + 3, the last value's first. */
template <uint32_t DTYPE, uint32_t FIRST, uint32_t PLANES>
GW_DEVICE void gw_push_quad(gw_digit_string d[4], const uint32_t x[16], const uint32_t e[16], uint32_t i)
{
    typedef gw_type<DTYPE> type;
    GW_UNROLL
    for (uint32_t k = i + 4; k-- > i;) {
        if (FIRST == 0) {
            gw_push_top<1u << 0, type::W1>(d[0].waiting, gw_digit_at<DTYPE>(x[k], 0), e[k]);
            gw_push_top<1u << 5, type::W2>(d[1].waiting, gw_digit_at<DTYPE>(x[k], 1), e[k]);
        }
        if (FIRST <= 2 && FIRST + PLANES > 2) {
            gw_push_top<1u << 10, type::W2>(d[2].waiting, gw_digit_at<DTYPE>(x[k], 2), e[k]);
        }
        if (FIRST + PLANES > 3) {
            gw_push_top<1u << 15, type::W2>(d[3].waiting, gw_digit_at<DTYPE>(x[k], 3), e[k]);
        }
    }
}

/* Digits of 16 values, with their sums by four, into the strings of the planes. */
template <uint32_t DTYPE>
GW_DEVICE void gw_push_planes(gw_digit_string d[4], const uint32_t x[16], const uint32_t e[16],
                              const uint32_t quad_sum[4])
{
    typedef gw_type<DTYPE> type;
    /* Digits of so many values fit a word. */
    constexpr uint32_t GROUP = DTYPE == GW_FP32 ? 4 : DTYPE == GW_BF16 ? 16 : 8;
    if constexpr (DTYPE != GW_FP32) {
        GW_UNROLL
        for (uint32_t group = 0; group < 16; group += GROUP) {
            uint32_t sum = 0;
            GW_UNROLL
            for (uint32_t i = group + GROUP; i > group; i -= 4) {
                gw_push_quad<DTYPE, 0, 4>(d, x, e, i - 4);
                sum += quad_sum[i / 4 - 1];
            }
            gw_put_digits<type::W1>(d[0], sum & 31);
            gw_put_digits<type::W2>(d[1], sum >> 5 & 31);
            gw_put_digits<type::W2>(d[2], sum >> 10 & 31);
            gw_put_digits<type::W2>(d[3], sum >> 15 & 31);
        }
    } else {
        GW_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            gw_push_quad<DTYPE, 0, 2>(d, x, e, 4 * q);
            gw_put_digits<type::W1>(d[0], quad_sum[q] & 31);
            gw_put_digits<type::W2>(d[1], quad_sum[q] >> 5 & 31);
        }
        /* Five digits fit a word. Those of plane 3 are few, of eight values mostly at most five. */
        GW_UNROLL
        for (uint32_t q = 0; q < 4; q += 2) {
            const uint32_t sum = quad_sum[q] + quad_sum[q + 1];
            if ((sum >> 10 & 31) > 5) {
                gw_push_quad<DTYPE, 2, 1>(d, x, e, 4 * q);
                gw_put_digits<type::W2>(d[2], quad_sum[q] >> 10 & 31);
                gw_push_quad<DTYPE, 2, 1>(d, x, e, 4 * q + 4);
                gw_put_digits<type::W2>(d[2], quad_sum[q + 1] >> 10 & 31);
            } else {
                gw_push_quad<DTYPE, 2, 1>(d, x, e, 4 * q + 4);
                gw_push_quad<DTYPE, 2, 1>(d, x, e, 4 * q);
                gw_put_digits<type::W2>(d[2], sum >> 10 & 31);
            }
        }
        /* Plane 4 has next to none. */
        GW_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            if ((quad_sum[q] >> 15 & 31) != 0) {
                gw_push_quad<DTYPE, 3, 1>(d, x, e, 4 * q);
                gw_put_digits<type::W2>(d[3], quad_sum[q] >> 15 & 31);
            }
        }
    }
}

/* What gw_rank_explicit() carries from one 512 values of a warp to the next. */
struct gw_rank_state {
    uint32_t next[4]; /* bits of shared memory where the warp's strings go on */
    uint32_t done[2]; /* digits of planes 1 | 2 << 16, 3 | 4 << 16, of the warp */
    uint32_t escapes; /* of the lane */
};

template <uint32_t DTYPE>
GW_DEVICE gw_fast_rule gw_fast_rule_of(const gw_encode_state &s, const gw_cuda_rounder &r)
{
    gw_fast_rule f;
    const uint32_t cap = r.rule.cap_steps;
    const float step_count = (float)(cap + 1);
    f.entries = gw_place_of(s.entry) - 4u * GW_FLOAT_INTEGER;
    f.factors = gw_place_of(s.factor) - 4u * GW_FLOAT_INTEGER;
    /* Without a map as much may be lost as the drop steps have. */
    f.drop_offset = (float)(r.rule.has_map ? r.from.drop_offset + GW_FAST_QUARTERS : 1 << 20) + 0.5f;
    f.scale = __fmul_rn(1.0f / (4 * gw_type<DTYPE>::STEP), cap == 0   ? 1.0f
                                                           : cap == 1 ? 0.5f
                                                           : cap == 2 ? 1.0f / 3
                                                                      : 0.25f);
    f.step_count = __fmul_rn(step_count, 1.0f - 1.0f / (1 << 20));
    f.limit = GW_FAST_SHIFT + (r.rule.strict ? 1u << 24 : 0);
    return f;
}

/* Clears the warp's strings at `own`, 4 * stride bytes, and the 16 bytes after them, to which the last digits
 * are ORed, too: an OR in shared memory need not be atomic with respect to another warp's store. */
GW_DEVICE void gw_clear_strings(uint32_t strings, uint32_t own, uint32_t stride)
{
    const uint32_t lane = gw_lane();
    GW_NO_UNROLL
    for (uint32_t i = 16 * lane; i < 4 * stride; i += 512) {
        gw_shared_store128(own + 16 + i, make_uint4(0, 0, 0, 0));
    }
    if (threadIdx.x >> 5 == 0 && lane == 0) { /* before the first */
        gw_shared_store128(strings, make_uint4(0, 0, 0, 0));
    }
    __syncwarp();
}

/* Ranks, escapes and digits of 16 values of the lane, from value `at` of the chunk on. */
template <uint32_t DTYPE>
GW_DEVICE void gw_rank_16(gw_encode_state &s, gw_rank_state &state, const gw_sixteen &x, uint32_t rank_buffer,
                          uint32_t at, bool has_strings)
{
    constexpr uint32_t W1 = gw_type<DTYPE>::W1, W2 = gw_type<DTYPE>::W2;
    const uint32_t *const e = x.entry;
    uint32_t quad_sum[4], rank[4];
    GW_UNROLL
    for (uint32_t q = 0; q < 4; q++) {
        quad_sum[q] = e[4 * q] + e[4 * q + 1] + e[4 * q + 2] + e[4 * q + 3];
        rank[q] = gw_permute(gw_permute(e[4 * q], e[4 * q + 1], 0x0073),
                             gw_permute(e[4 * q + 2], e[4 * q + 3], 0x0073), 0x5410);
    }
    gw_shared_store128(rank_buffer + at, gw_four_of(rank));
    const uint32_t sum = quad_sum[0] + quad_sum[1] + quad_sum[2] + quad_sum[3];
    /* 16 escapes are 0 modulo 16, but then the first value is one. */
    uint32_t mask = 0;
    if (((sum | e[0]) & 15 * GW_ENTRY_ESCAPE) != 0) {
        GW_UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            mask |= (e[i] >> 20 & 1) << i;
        }
        state.escapes += __popc(mask);
    }
    ((uint16_t *)(void *)s.escape_mask)[at / 16] = (uint16_t)mask;

    const uint32_t count[2] = {(sum & 31) | (sum << 11 & 0x1f0000), (sum >> 10 & 31) | (sum << 1 & 0x1f0000)};
    uint32_t upto[2];
    GW_UNROLL
    for (uint32_t c = 0; c < 2; c++) {
        upto[c] = gw_warp_scan(count[c]);
    }
    if (has_strings) {
        const uint32_t before[2] = {upto[0] - count[0], upto[1] - count[1]};
        gw_digit_string d[4] = {{state.next[0] + W1 * (before[0] & 0xffff), 0},
                                {state.next[1] + W2 * (before[0] >> 16), 0},
                                {state.next[2] + W2 * (before[1] & 0xffff), 0},
                                {state.next[3] + W2 * (before[1] >> 16), 0}};
        gw_push_planes<DTYPE>(d, x.rounded, e, quad_sum);
    }
    GW_UNROLL
    for (uint32_t c = 0; c < 2; c++) {
        const uint32_t all = __shfl_sync(GW_FULL_MASK, upto[c], 31);
        state.next[2 * c] += (c == 0 ? W1 : W2) * (all & 0xffff);
        state.next[2 * c + 1] += W2 * (all >> 16);
        state.done[c] += all;
    }
}

/* Lengths of the planes and of the escapes from what the warps have counted, s.any. Ends with a barrier. */
GW_DEVICE void gw_rank_totals(gw_encode_state &s, const gw_rank_state &state)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t escapes = __reduce_add_sync(GW_FULL_MASK, state.escapes);
    if (lane == 0) {
        s.warp_sum[warp] = make_uint4(state.done[0], state.done[1], escapes, 0);
    }
    __syncthreads();
    if (warp == 0) {
        const uint4 mine = lane < GW_WARPS ? s.warp_sum[lane] : make_uint4(0, 0, 0, 0);
        const uint32_t len[5] = {
            __reduce_add_sync(GW_FULL_MASK, mine.x & 0xffff), __reduce_add_sync(GW_FULL_MASK, mine.x >> 16),
            __reduce_add_sync(GW_FULL_MASK, mine.y & 0xffff), __reduce_add_sync(GW_FULL_MASK, mine.y >> 16),
            __reduce_add_sync(GW_FULL_MASK, mine.z)};
        if (lane == 0) {
            GW_UNROLL
            for (uint32_t p = 0; p < 4; p++) {
                s.plane_len[p] = len[p];
            }
            s.escape_len = len[4];
            /* All but +0 have a digit or are escapes. */
            s.any = len[0] | len[4];
        }
    }
    __syncthreads();
}

/*
 * Ranks of the chunk's values into the first rank buffer; digits into the strings, which start at `strings`,
 * those of a warp together, 4 * (string_words + 4) bytes each (strings = 0: there is no room, and digits are
 * only counted); counts into s. A warp takes consecutive values, 512 at a time, so that it needs no other
 * warp to find the places of its digits. Ends with a barrier.
 */
template <uint32_t DTYPE>
GW_DEVICE void gw_rank_explicit(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                                uint32_t chunk_len, uint32_t rank_buffer_size, uint32_t strings,
                                uint32_t string_words)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t rank_buffer = gw_place_of(s.arrays), stage = rank_buffer + rank_buffer_size + 2048 * warp;
    const uint32_t blocks = (chunk_len + 511) >> 9, share = (blocks + 7) >> 3;
    const uint32_t last = (warp + 1) * share < blocks ? (warp + 1) * share : blocks;
    const uint32_t stride = 4 * (string_words + 4); /* of strings */
    const uint32_t own = strings + 4 * stride * warp;
    const gw_fast_rule f = gw_fast_rule_of<DTYPE>(s, r);
    if (strings != 0) {
        gw_clear_strings(strings, own, stride);
    }
    gw_rank_state state = {};
    GW_UNROLL
    for (uint32_t p = 0; p < 4; p++) {
        state.next[p] = 8 * (own + p * stride + 16);
    }
    GW_NO_UNROLL
    for (uint32_t block = warp * share; block < last; block++) {
        const uint32_t at = 512 * block + 16 * lane;
        const uint32_t valid = gw_left_of(chunk_len, at, 16);
        uint32_t k[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
        gw_sixteen x;
        if (r.rule.has_map && valid != 0) {
            gw_load_map_bytes(k, r.from.map_bytes + first + at, valid);
        }
        const uint32_t mine = gw_stage_512<DTYPE>(stage, r.from.values, first + 512 * block, r.from.len);
        gw_round_16<DTYPE>(s, r, f, mine, k, first + at, valid, x);
        gw_rank_16<DTYPE>(s, state, x, rank_buffer, at, strings != 0);
    }
    gw_rank_totals(s, state);
}

/* Ranks of the chunk's values into the first rank buffer; counts into s. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_rank_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                             uint32_t rank_buffer_size)
{
    const uint32_t tid = threadIdx.x;
    const uint32_t rank_buffer = gw_place_of(s.arrays),
                   stage = rank_buffer + rank_buffer_size + 2048 * (tid >> 5);
    uint32_t even = 0, odd = 0, any = 0;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid = gw_left_of(chunk_len, 32 * word, 32);
        uint32_t x[8], sum = 0, escapes = 0;
        gw_round_word<DTYPE, DERIVED, 32>(
            s, r, stage, first + 32 * (uint64_t)word, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *rank, const uint32_t *flags) {
                x[quad] = rank[0] | rank[1] << 8 | rank[2] << 16 | rank[3] << 24;
                any |= bits[0] | bits[1] | bits[2] | bits[3];
                escapes |= (flags[0] >> 28 | flags[1] >> 28 << 1 | flags[2] >> 28 << 2 | flags[3] >> 28 << 3)
                           << 4 * quad;
                sum += flags[0] + flags[1] + flags[2] + flags[3];
                if ((quad & 1) != 0) {
                    even += sum & 0x0f0f0f0f;
                    odd += sum >> 4 & 0x0f0f0f0f;
                    sum = 0;
                }
            });
        if (valid != 0) {
            gw_shared_store128(rank_buffer + 32 * word, gw_four_of(x));
            gw_shared_store128(rank_buffer + 32 * word + 16, gw_four_of(x + 4));
            s.escape_mask[word] = escapes;
        }
    }
    /* At most 128 of a kind a thread, so 2^15 a block. */
    uint32_t counts[4], all[4];
    gw_counts_of_flags(counts, even, odd);
    GW_UNROLL
    for (int i = 0; i < 4; i++) {
        all[i] = __reduce_add_sync(GW_FULL_MASK, counts[i]);
    }
    any = __reduce_or_sync(GW_FULL_MASK, any);
    __syncthreads();
    if (gw_lane() == 0) {
        s.warp_sum[tid >> 5] = gw_four_of(all);
        s.sums[tid >> 5] = any;
    }
    __syncthreads();
    if (tid == 0) {
        uint4 sum = make_uint4(0, 0, 0, 0);
        any = 0;
        for (uint32_t w = 0; w < GW_WARPS; w++) {
            sum = gw_add_four(sum, s.warp_sum[w]);
            any |= s.sums[w];
        }
        s.any = any;
        s.plane_len[0] = sum.x & 0xffff;
        s.plane_len[1] = sum.x >> 16;
        s.plane_len[2] = sum.y & 0xffff;
        s.plane_len[3] = sum.y >> 16;
        s.plane_len[4] = sum.z & 0xffff;
        s.plane_len[5] = sum.z >> 16;
        s.plane_len[6] = sum.w & 0xffff;
        s.escape_len = sum.w >> 16;
    }
    __syncthreads();
}

#endif
