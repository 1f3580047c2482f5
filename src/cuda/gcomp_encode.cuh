/*
 * Encode of one chunk by a block of 256 threads: docs/format.md sections 3, 5 and 6.
 *
 *   1  A warp takes consecutive values, 512 at a time: a lane rounds 16 of them and looks up what each
 *      becomes, rank, digits and whether it is an escape, in one word. The digits go into strings of bits in
 *      shared memory, one for each plane and warp, so that a warp needs no other to know their places.
 *   2  Ranks move down the tree level by level, in two byte arrays that alternate. A thread compares 32 ranks
 *      of a node with its pivot, which makes a word of the node's bitmap; sums of set bits say where its
 *      ranks go. A node lies in its array behind the values of smaller ranks, so what a leaf holds stays
 *      there.
 *   3  Now all sizes are known, and the place of the chunk follows from those of the chunks before (the
 *      caller's business).
 *   4  The strings are joined on their way out, bitmaps and packed leaves put together where the strings
 *      were, both in writes of 16 bytes.
 *
 * Derived frames, and devices with little shared memory, have no strings: digits are only counted in the
 * first step, and at last values are rounded once more and their digits put together 4096 (fp32) or 8192
 * values at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ENCODE_CUH
#define GW_CUDA_GCOMP_ENCODE_CUH

#include "cuda/gcomp_round.cuh"

enum {
    GW_ENCODE_WORDS_MAX = 1024, /* of 32 values, in a chunk of 2^15 */
    GW_ENCODE_TASKS_MAX = 32 * 11 + 32 + GW_TREE_NODES,
    GW_LEVEL_TASKS_MAX = 128,      /* of one level: 32 full ones and one more of each inner node */
    GW_ROUND_LEN = 32 * GW_THREADS /* values that are handled between two barriers */
};

/* In one load of 16 bytes. */
struct alignas(16) gw_encode_node {
    uint16_t len, at;            /* values, values of smaller ranks */
    uint16_t first_task, bitmap; /* while its level is handled; word of its bitmap */
    uint16_t run;                /* word of its run in the chunk, counted from the header's first */
    uint8_t left_at, right_at;   /* leaves before its children */
    uint8_t pivot, keeps; /* first rank of the right child; 1: the left one's are needed, 2: the right */
};

struct alignas(128) gw_encode_state {
    uint32_t entry[1024]; /* explicit fp32 and bf16: gw_entry_of() by 4 * exponent field + level */
    uint32_t flags[32];   /* derived: gw_digit_flags() by kept bits */
    uint32_t factor[4];   /* of gw_round_fast() by level */
    uint32_t string_start[33];
    uint32_t shared_size, has_strings; /* bytes; the chunk's digits lie in their strings */
    uint4 warp_sum[GW_WARPS];
    uint32_t sums[GW_WARPS];
    gw_cuda_tree tree;
    alignas(16) uint8_t book[GW_CUDA_BOOK_SIZE_MAX + 12]; /* of the group, serialised */
    uint32_t book_size, book_crc;
    gw_encode_node node[GW_TREE_NODES];
    uint16_t task[GW_ENCODE_TASKS_MAX]; /* 32 words of a node: node | word / 32 << 8 */
    uint16_t task_ones[2 * GW_LEVEL_TASKS_MAX];
    uint32_t task_count[2];
    uint16_t right_len[GW_TREE_LEAVES];        /* by inner index */
    uint32_t escape_mask[GW_ENCODE_WORDS_MAX]; /* bit i of word w: value 32 w + i is an escape */
    uint32_t carry[8];                         /* planes: the word that the next values go on with */
    uint32_t done[4]; /* digits of the values before: planes 1 | 2, 3 | 4, R4 | R2, R1 | escapes */

    /* Of the chunk. */
    uint32_t plane_len[8], plane_word[8]; /* digits; first word in the chunk */
    uint32_t escape_len, escape_word, header_words, run_words;
    uint32_t size; /* bytes without codebook and padding */
    uint32_t any;  /* a value is not +0 */
    uint64_t unit, offset, owner;
    uint64_t units;       /* of the whole call */
    gw_frame_front front; /* these two are here rather than in registers */
    gw_cuda_source source;
    uint32_t item, status, is_last, is_owner;

    /* Two level arrays, which the exchange of values and the planes of 8192 values share; then the
     * bitmaps; to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

enum { GW_ENCODE_FIXED = offsetof(gw_encode_state, arrays) };
static_assert(GW_ENCODE_FIXED <= GW_CUDA_ENCODE_FIXED_MAX, "the host reserves enough");
static_assert(GW_CUDA_ENCODE_LEVEL_SIZE(14) >= GW_CUDA_LEVEL_SIZE(14) &&
                  GW_CUDA_ENCODE_LEVEL_SIZE(15) >= GW_CUDA_LEVEL_SIZE(15),
              "the ranks of a level fit");

GW_DEVICE uint32_t gw_encode_level_size(uint32_t chunk_log2)
{
    return GW_CUDA_ENCODE_LEVEL_SIZE(chunk_log2);
}

/* Place of ranks in a level array: behind all smaller ranks, a gap for every leaf, so that nodes begin at
 * multiples of 32 and never meet. */
GW_DEVICE uint32_t gw_place_behind(uint32_t ranks, uint32_t leaves)
{
    return ((ranks + 31) & ~31u) + 32 * leaves;
}

/* That of node n. */
GW_DEVICE uint32_t gw_encode_place(const gw_encode_state &s, uint32_t n)
{
    return gw_place_behind(s.node[n].at, s.tree.node[n].first_leaf);
}

/* ---- one thread's values ------------------------------------------------------------------------------- */

/* Rank and digits of a rounded value: nibbles as gw_digit_flags(), escapes in nibble 7. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_rank_of(const gw_encode_state &s, const gw_rounded &x, uint32_t ranks,
                              uint32_t escape_rank, uint32_t *rank)
{
    *rank = gw_shared_load8(ranks + x.label);
    const bool is_escape = *rank == escape_rank;
    const uint32_t digits = DERIVED ? s.flags[x.keep] : 0x1111u >> 4 * (x.label & 3);
    return is_escape ? 1u << 28 : x.label == 0 ? 0 : digits;
}

/*
 * Rounds the VALUES (16 or 32) values of a thread from `first` of the frame on, of which `valid` exist, and
 * calls f(quad, bits[4], ranks[4], flags[4]) for every four of them. All lanes of the warp call it; first -
 * VALUES * lane is the same for them.
 */
template <uint32_t DTYPE, bool DERIVED, uint32_t VALUES, typename F>
GW_DEVICE void gw_round_word(const gw_encode_state &s, const gw_cuda_rounder &r, uint32_t stage,
                             uint64_t first, uint32_t valid, F f)
{
    constexpr uint32_t BATCH = 64 / gw_type<DTYPE>::SIZE, QUADS = 4 / gw_type<DTYPE>::SIZE;
    const uint32_t ranks = gw_place_of(s.tree.rank_of_label), base = s.tree.base;
    const uint32_t escape_rank = s.tree.escape_rank;
    const int32_t drop_base = r.from.drop_base;
    const uint64_t warp_first = first - VALUES * gw_lane();
    const uint32_t mine = gw_exchange_mine(stage, gw_lane());
    uint32_t k[4] = {0, 0, 0, 0}; /* map bytes of 16 values: those of all would not fit registers */
    gw_cuda_random random = gw_random_begin(r, first);
    GW_UNROLL
    for (uint32_t batch = 0; batch < VALUES / BATCH; batch++) {
        gw_stage_batch<DTYPE>(stage, r.from.values, r.from.len, batch, [=](uint32_t lane) {
            return warp_first + VALUES * lane;
        });
        uint4 v = gw_staged(mine, 0), next = v; /* one quarter ahead: the whole would not fit registers */
        GW_UNROLL
        for (uint32_t j = 0; j < BATCH / 4; j++) {
            const uint32_t quad = batch * (BATCH / 4) + j;
            uint32_t words[4], bits[4], rank[4], flags[4];
            if (j % QUADS == 0) {
                v = next;
                if (j / QUADS < 3) {
                    next = gw_staged(mine, j / QUADS + 1);
                }
            }
            if (quad % 4 == 0 && r.rule.has_map && valid > 4 * quad) {
                gw_load_levels(k, r.from.levels + first + 4 * quad, valid - 4 * quad);
            }
            gw_random_next(words, r, random);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const gw_rounded x =
                    gw_round_value<DTYPE, DERIVED>(r, drop_base, gw_quad_value<DTYPE>(v, j % QUADS, i),
                                                   k[quad % 4] >> 8 * i & 255, words[i], base);
                bits[i] = x.bits;
                flags[i] = gw_rank_of<DTYPE, DERIVED>(s, x, ranks, escape_rank, &rank[i]);
                if (4 * quad + i >= valid) {
                    bits[i] = 0;
                    flags[i] = 0;
                }
            }
            f(quad, bits, rank, flags);
        }
    }
}

/* ---- 1: ranks and digits of explicit frames ------------------------------------------------------------ */

/*
 * What a value becomes, in one word: its rank at bit 24; 1 at bit 5 p if it has a digit in plane p + 1, for
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
 * beyond are 0. Lanes load what lies next to each other. Quarter j (of 16 bytes; fp32 has 4, 16-bit types 2)
 * of a lane's values is then at (returned place) ^ 16 * j. Begins and ends with a barrier of the warp.
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
 * which truncates. n is 6, 12 or 18 for fp32, and 16 + 2 * level for bf16, whose lower half is zero; fp32
 * of level 0 adds 0. So that nothing overflows, exponents from 231 on are left to gw_round_value(), and with
 * them what is strict about exponent 0.
 */
enum { GW_FAST_SHIFT = 0x19000000, GW_FAST_QUARTERS = 0x19000000 >> 22 };

struct gw_fast_rule {
    uint32_t entries, factors; /* places of s.entry and s.factor, less 4 * GW_FLOAT_INTEGER */
    uint32_t limit;            /* twice a value and GW_FAST_SHIFT: below it the value is another's */
    float drop_base;           /* and what the shift adds to quarter-octaves, and a half */
    float scale, levels;       /* quarter-octaves of all levels, inverted; their number, a little less */
};

/* 2^23, the float whose lowest bits count from 0. */
enum { GW_FLOAT_INTEGER = 0x4b000000 };

/*
 * Rounds a value with map byte k: *rounded, its entry. Returns whether it is one of the others.
 *
 * The level, too, comes from the float unit: the quarter-octaves that may be lost and a half, an exact sum,
 * over those that all levels have, limited to 0 and 1, times the number of levels, rounded down. A half is
 * farther from a whole level than all rounding; what is limited to 1 comes to a little less than one level
 * too many.
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
    const float room = __fadd_rn(__fsub_rn(map, quarters), f.drop_base);
    const float most = __fmul_rn(gw_float_add_limit(map, -integer), f.levels); /* 0 if the byte is 0 */
    const float part = __fmul_rn(gw_float_multiply_limit(room, f.scale), most);
    const uint32_t level = __float_as_uint(gw_float_add_flush<false>(part, integer)); /* above 2^23 */
    float factor;
    if (DTYPE == GW_FP32) {
        factor = __uint_as_float(gw_shared_load32(f.factors + 4 * level));
    } else {
        factor = __uint_as_float(((127u + 16) << 23 | 1u << 22) + (level << 24));
    }
    const float big = __fmul_rn(__uint_as_float(value & 0xff800000u), factor);
    const float sum = gw_float_add_flush<NEAREST>(__uint_as_float(value), big);
    *rounded = __float_as_uint(__fsub_rn(sum, big));
    *entry = gw_shared_load32((*rounded >> 19 & 0xff0) + (f.entries + 4 * level));
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
        const gw_rounded x = gw_round_value<DTYPE, false>(r, r.from.drop_base, value[i] >> HALF,
                                                          k >> 8 * i & 255, random[i], s.tree.base);
        rounded[i] = x.bits << HALF;
        entry[i] = i < valid ? gw_entry_of(x.label, s.tree.rank_of_label[x.label], s.tree.escape_rank) : 0;
    }
}

/* Byte i of x below the upper bytes of GW_FLOAT_INTEGER. */
GW_DEVICE uint32_t gw_map_float(uint32_t x, uint32_t i)
{
    return gw_permute(x, GW_FLOAT_INTEGER, 0x7650 | i);
}

/* The 16 values of a lane, from their stage: rounded, and their entries. `valid` of them exist. */
template <uint32_t DTYPE>
GW_DEVICE void gw_round_16(const gw_encode_state &s, const gw_cuda_rounder &r, const gw_fast_rule &f,
                           uint32_t mine, const uint32_t k[4], uint64_t first, uint32_t valid,
                           uint32_t rounded[16], uint32_t entry[16])
{
    constexpr uint32_t QUADS = 4 / gw_type<DTYPE>::SIZE; /* in 16 bytes */
    bool others = DTYPE == GW_FP16 || r.rule.stochastic != 0 || valid != 16;
    if (DTYPE != GW_FP16 && !others) {
        if (r.rule.nearest != 0) {
            GW_UNROLL
            for (uint32_t i = 0; i < 16; i++) {
                const uint4 v = gw_staged(mine, i / 4 / QUADS);
                others |= gw_round_fast<DTYPE, true>(f, gw_high_value<DTYPE>(v, i / 4, i % 4),
                                                     gw_map_float(k[i / 4], i % 4), &rounded[i], &entry[i]);
            }
        } else {
            GW_UNROLL
            for (uint32_t i = 0; i < 16; i++) {
                const uint4 v = gw_staged(mine, i / 4 / QUADS);
                others |= gw_round_fast<DTYPE, false>(f, gw_high_value<DTYPE>(v, i / 4, i % 4),
                                                      gw_map_float(k[i / 4], i % 4), &rounded[i], &entry[i]);
            }
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
                                 rounded + 4 * quad, entry + 4 * quad);
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

/*
 * Ranks of the chunk's values into the first level array; digits into the strings, which lie from `strings`
 * on, those of a warp together, 4 * (string_words + 4) bytes each (strings = 0: there is no room, and digits
 * are only counted); counts into s. A warp takes consecutive values, 512 at a time, so that it knows by
 * itself where its digits go. Ends with a barrier.
 */
template <uint32_t DTYPE>
GW_DEVICE void gw_rank_explicit(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                                uint32_t chunk_len, uint32_t level_size, uint32_t strings,
                                uint32_t string_words)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t W1 = type::W1, W2 = type::W2;
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t level = gw_place_of(s.arrays), stage = level + level_size + 2048 * warp;
    const uint32_t blocks = (chunk_len + 511) >> 9, share = (blocks + 7) >> 3;
    const uint32_t last = (warp + 1) * share < blocks ? (warp + 1) * share : blocks;
    const uint32_t stride = 4 * (string_words + 4); /* of strings */
    const uint32_t own = strings + 4 * stride * warp;
    gw_fast_rule f;
    const float levels = (float)(r.rule.cap_level + 1);
    f.entries = gw_place_of(s.entry) - 4u * GW_FLOAT_INTEGER;
    f.factors = gw_place_of(s.factor) - 4u * GW_FLOAT_INTEGER;
    /* Without a map as much may be lost as the levels have. */
    f.drop_base = (float)(r.rule.has_map ? r.from.drop_base + GW_FAST_QUARTERS : 1 << 20) + 0.5f;
    const uint32_t cap = r.rule.cap_level;
    f.scale = __fmul_rn(1.0f / (4 * type::STEP), cap == 0   ? 1.0f
                                                 : cap == 1 ? 0.5f
                                                 : cap == 2 ? 1.0f / 3
                                                            : 0.25f);
    f.levels = __fmul_rn(levels, 1.0f - 1.0f / (1 << 20));
    f.limit = GW_FAST_SHIFT + (r.rule.strict ? 1u << 24 : 0);

    if (strings != 0) {
        /* Own strings and the zeros behind them, to which the last digits are ORed, too: an OR in shared
         * memory need not be atomic to another warp's store. */
        GW_NO_UNROLL
        for (uint32_t i = 16 * lane; i < 4 * stride; i += 512) {
            gw_shared_store128(own + 16 + i, make_uint4(0, 0, 0, 0));
        }
        if (warp == 0 && lane == 0) { /* before the first */
            gw_shared_store128(strings, make_uint4(0, 0, 0, 0));
        }
        __syncwarp();
    }
    /* Of the warp: the bits of shared memory where its strings go on, digits of planes 1 | 2 << 16, 3 | 4
     * << 16; of the lane: escapes. */
    uint32_t next[4], done[2] = {0, 0}, escapes = 0;
    GW_UNROLL
    for (uint32_t p = 0; p < 4; p++) {
        next[p] = 8 * (own + p * stride + 16);
    }
    GW_NO_UNROLL
    for (uint32_t block = warp * share; block < last; block++) {
        const uint32_t at = 512 * block + 16 * lane;
        const uint32_t valid = at >= chunk_len ? 0 : chunk_len - at < 16 ? chunk_len - at : 16;
        uint32_t k[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101}, x[16], e[16];
        if (r.rule.has_map && valid != 0) {
            gw_load_levels(k, r.from.levels + first + at, valid);
        }
        const uint32_t mine = gw_stage_512<DTYPE>(stage, r.from.values, first + 512 * block, r.from.len);
        gw_round_16<DTYPE>(s, r, f, mine, k, first + at, valid, x, e);

        uint32_t quad_sum[4], rank[4];
        GW_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            quad_sum[q] = e[4 * q] + e[4 * q + 1] + e[4 * q + 2] + e[4 * q + 3];
            rank[q] = gw_permute(gw_permute(e[4 * q], e[4 * q + 1], 0x0073),
                                 gw_permute(e[4 * q + 2], e[4 * q + 3], 0x0073), 0x5410);
        }
        gw_shared_store128(level + at, make_uint4(rank[0], rank[1], rank[2], rank[3]));
        const uint32_t sum = quad_sum[0] + quad_sum[1] + quad_sum[2] + quad_sum[3];
        /* 16 escapes are 0 modulo 16, but then the first value is one. */
        uint32_t mask = 0;
        if (((sum | e[0]) & 15 * GW_ENTRY_ESCAPE) != 0) {
            GW_UNROLL
            for (uint32_t i = 0; i < 16; i++) {
                mask |= (e[i] >> 20 & 1) << i;
            }
            escapes += __popc(mask);
        }
        ((uint16_t *)(void *)s.escape_mask)[at / 16] = (uint16_t)mask;

        const uint32_t count[2] = {(sum & 31) | (sum << 11 & 0x1f0000),
                                   (sum >> 10 & 31) | (sum << 1 & 0x1f0000)};
        uint32_t upto[2];
        GW_UNROLL
        for (uint32_t c = 0; c < 2; c++) {
            upto[c] = gw_warp_scan(count[c]);
        }
        if (strings != 0) {
            const uint32_t before[2] = {upto[0] - count[0], upto[1] - count[1]};
            gw_digit_string d[4] = {{next[0] + W1 * (before[0] & 0xffff), 0},
                                    {next[1] + W2 * (before[0] >> 16), 0},
                                    {next[2] + W2 * (before[1] & 0xffff), 0},
                                    {next[3] + W2 * (before[1] >> 16), 0}};
            gw_push_planes<DTYPE>(d, x, e, quad_sum);
        }
        GW_UNROLL
        for (uint32_t c = 0; c < 2; c++) {
            const uint32_t all = __shfl_sync(GW_FULL_MASK, upto[c], 31);
            next[2 * c] += (c == 0 ? W1 : W2) * (all & 0xffff);
            next[2 * c + 1] += W2 * (all >> 16);
            done[c] += all;
        }
    }
    escapes = __reduce_add_sync(GW_FULL_MASK, escapes);
    if (lane == 0) {
        s.warp_sum[warp] = make_uint4(done[0], done[1], escapes, 0);
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

/* ---- 1: ranks of derived frames ------------------------------------------------------------------------ */

/* Ranks of the chunk's values into the first level array; counts into s. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_rank_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                             uint32_t level_size)
{
    const uint32_t tid = threadIdx.x;
    const uint32_t level = gw_place_of(s.arrays), stage = level + level_size + 2048 * (tid >> 5);
    uint32_t even = 0, odd = 0, any = 0;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
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
            gw_shared_store128(level + 32 * word, make_uint4(x[0], x[1], x[2], x[3]));
            gw_shared_store128(level + 32 * word + 16, make_uint4(x[4], x[5], x[6], x[7]));
            s.escape_mask[word] = escapes;
        }
    }
    /* At most 128 of a kind a thread, so 2^15 a block. */
    const uint32_t counts[4] = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8,
                                (even >> 16 & 255) | (odd & 0xff0000), even >> 24 | odd >> 24 << 16};
    uint32_t all[4];
    GW_UNROLL
    for (int i = 0; i < 4; i++) {
        all[i] = __reduce_add_sync(GW_FULL_MASK, counts[i]);
    }
    any = __reduce_or_sync(GW_FULL_MASK, any);
    __syncthreads();
    if (gw_lane() == 0) {
        s.warp_sum[tid >> 5] = make_uint4(all[0], all[1], all[2], all[3]);
        s.sums[tid >> 5] = any;
    }
    __syncthreads();
    if (tid == 0) {
        uint4 sum = make_uint4(0, 0, 0, 0);
        any = 0;
        for (uint32_t w = 0; w < GW_WARPS; w++) {
            sum.x += s.warp_sum[w].x;
            sum.y += s.warp_sum[w].y;
            sum.z += s.warp_sum[w].z;
            sum.w += s.warp_sum[w].w;
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

/* ---- 2: tree ------------------------------------------------------------------------------------------- */

/* Bit i: byte i of x, eight words, is at least `pivot`. */
GW_DEVICE uint32_t gw_compare32(const uint32_t x[8], uint32_t pivot, bool small)
{
    const uint32_t four = pivot * 0x01010101u;
    uint32_t bits = 0;
    if (small) { /* all bytes are below 128 */
        GW_UNROLL
        for (int j = 7; j >= 0; j--) {
            /* The top bits of the four bytes to bits 28 to 31: no two of the shifted copies meet. */
            const uint32_t top = (x[j] + (0x80808080u - four)) & 0x80808080u;
            bits = __funnelshift_l(top * 0x00204081u, bits, 4);
        }
    } else {
        GW_UNROLL
        for (int j = 7; j >= 0; j--) {
            const uint32_t top = __vcmpgeu4(x[j], four) & 0x80808080u;
            bits = __funnelshift_l(top * 0x00204081u, bits, 4);
        }
    }
    return bits;
}

/* Byte i of x to the left or to the right, whose bit i says so. */
template <bool LEFT, bool RIGHT>
GW_DEVICE void gw_move_ranks(const uint32_t x[8], uint32_t left_bits, uint32_t right_bits, uint32_t left,
                             uint32_t right)
{
    GW_UNROLL
    for (uint32_t i = 0; i < 32; i++) {
        /* Once for both, without a condition. */
        const uint32_t rank = i % 4 == 0 ? x[i / 4] : gw_permute(x[i / 4], 0, 0x4440 | i % 4);
        if (LEFT && (left_bits >> i & 1) != 0) {
            gw_shared_store8(left, rank);
            left++;
        }
        if (RIGHT && (right_bits >> i & 1) != 0) {
            gw_shared_store8(right, rank);
            right++;
        }
    }
}

/*
 * The tasks of a level whose nodes' lengths are known, 32 words of an inner node each; bitmaps of its nodes
 * from word *bitmap on. By one warp; returns the number of tasks.
 */
GW_DEVICE uint32_t gw_plan_level(gw_encode_state &s, uint32_t depth, uint32_t *bitmap)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane();
    const uint32_t first = tree.level_start[tree.depth_max - depth];
    const uint32_t end = tree.level_start[tree.depth_max - depth + 1];
    uint16_t *list = s.task + GW_LEVEL_TASKS_MAX * (depth & 1);
    uint32_t task_count = 0;
    GW_NO_UNROLL
    for (uint32_t at = first; at < end; at += 32) {
        const uint32_t n = at + lane < end ? tree.by_depth[at + lane] : 0;
        const uint32_t right = tree.node[n].right;
        const bool inner = at + lane < end && right != 0;
        const uint32_t words = inner ? (s.node[n].len + 31u) >> 5 : 0, tasks = (words + 31) >> 5;
        const uint32_t upto = gw_warp_scan(words | tasks << 16);
        const uint32_t task = task_count + (upto >> 16) - tasks;
        if (inner) {
            s.node[n].first_task = (uint16_t)task;
            s.node[n].bitmap = (uint16_t)(*bitmap + (upto & 0xffff) - words);
            s.node[n].right_at = tree.node[right].first_leaf;
            s.node[n].left_at = tree.node[n].first_leaf;
            s.node[n].pivot = tree.node[right].first_rank;
            /* Of a leaf of a single label nobody needs the ranks. */
            s.node[n].keeps = (uint8_t)((tree.node[n + 1].right != 0 || tree.node[n + 1].width != 0) +
                                        2 * (tree.node[right].right != 0 || tree.node[right].width != 0));
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                list[task + k] = (uint16_t)(n | k << 8);
            }
        }
        const uint32_t all = __shfl_sync(GW_FULL_MASK, upto, 31);
        task_count += all >> 16;
        *bitmap += all & 0xffff;
    }
    return task_count;
}

/* Lengths of the children of a level's nodes, whose tasks have counted the ones. By one warp. */
GW_DEVICE void gw_split_level(gw_encode_state &s, uint32_t depth)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t first = tree.level_start[tree.depth_max - depth];
    const uint32_t end = tree.level_start[tree.depth_max - depth + 1];
    const uint16_t *ones = s.task_ones + GW_LEVEL_TASKS_MAX * (depth & 1);
    GW_NO_UNROLL
    for (uint32_t at = first + gw_lane(); at < end; at += 32) {
        const uint32_t n = tree.by_depth[at], right = tree.node[n].right;
        if (right != 0) {
            const gw_encode_node node = s.node[n];
            const uint32_t tasks = (node.len + 1023u) >> 10;
            uint32_t right_len = 0;
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                right_len += ones[node.first_task + k];
            }
            s.right_len[tree.node[n].inner_index] = (uint16_t)right_len;
            s.node[n + 1].len = (uint16_t)(node.len - right_len);
            s.node[n + 1].at = node.at;
            s.node[right].len = (uint16_t)right_len;
            s.node[right].at = (uint16_t)(node.at + node.len - right_len);
        }
    }
    __syncwarp();
}

/*
 * The levels of the tree from `depth` on, by the block to before the first level of a single task, or to the
 * end by its first warp ALONE; returns the level that comes next. A level takes two barriers: its tasks count
 * ones; then they move ranks, while the first warp, which gets the last of these tasks, plans the next level.
 */
template <bool ALONE>
GW_DEVICE uint32_t gw_partition_levels(gw_encode_state &s, uint32_t depth, uint32_t level_size,
                                       uint32_t bitmaps, uint32_t *bitmap)
{
    constexpr uint32_t STEP = ALONE ? 1 : GW_WARPS;
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t depth_max = s.tree.depth_max;
    const bool small = s.tree.label_count <= 128;
    GW_NO_UNROLL
    for (; depth < depth_max; depth++) {
        const uint32_t from = gw_place_of(s.arrays) + (depth & 1) * level_size;
        const uint32_t to = gw_place_of(s.arrays) + (1 - (depth & 1)) * level_size;
        const uint16_t *list = s.task + GW_LEVEL_TASKS_MAX * (depth & 1);
        uint16_t *all_ones = s.task_ones + GW_LEVEL_TASKS_MAX * (depth & 1);
        if (ALONE) {
            __syncwarp();
        } else {
            __syncthreads();
        }
        const uint32_t task_count = s.task_count[depth & 1];
        if (!ALONE && task_count <= 1) {
            break;
        }
        GW_NO_UNROLL
        for (uint32_t task = warp; task < task_count; task += STEP) {
            const uint32_t what = list[task], word = (what >> 8) * 32 + lane;
            const gw_encode_node node = s.node[what & 255];
            uint32_t bits = 0;
            if (32 * word < node.len) {
                const uint32_t place = from + gw_place_behind(node.at, node.left_at) + 32 * word;
                const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
                const uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
                const uint32_t valid = node.len - 32 * word;
                bits = gw_compare32(x, node.pivot, small) & (valid < 32 ? (1u << valid) - 1 : ~0u);
                gw_shared_store32(bitmaps + 4 * (node.bitmap + word), bits);
            }
            const uint32_t ones = __reduce_add_sync(GW_FULL_MASK, __popc(bits));
            if (lane == 0) {
                all_ones[task] = (uint16_t)ones;
            }
        }
        if (ALONE) {
            __syncwarp();
        } else {
            __syncthreads();
        }
        if (warp == 0) {
            gw_split_level(s, depth);
            const uint32_t tasks = depth + 1 < depth_max ? gw_plan_level(s, depth + 1, bitmap) : 0;
            if (lane == 0) {
                s.task_count[1 - (depth & 1)] = tasks;
            }
        }
        GW_NO_UNROLL
        for (uint32_t task = (warp - 1) & (STEP - 1); task < task_count; task += STEP) {
            const uint32_t what = list[task], k = what >> 8, word = k * 32 + lane;
            const gw_encode_node node = s.node[what & 255];
            const uint32_t tasks = (node.len + 1023u) >> 10;
            const uint32_t ones = lane < tasks ? all_ones[node.first_task + lane] : 0;
            const uint32_t right_len = __reduce_add_sync(GW_FULL_MASK, ones);
            const uint32_t before_task = __reduce_add_sync(GW_FULL_MASK, lane < k ? ones : 0);
            const bool active = 32 * word < node.len;
            const uint32_t bits = active ? gw_shared_load32(bitmaps + 4 * (node.bitmap + word)) : 0;
            const uint32_t mine = __popc(bits);
            const uint32_t before = before_task + gw_warp_scan(mine) - mine;
            if (active) {
                const uint32_t place = from + gw_place_behind(node.at, node.left_at) + 32 * word;
                const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
                const uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
                const uint32_t valid = node.len - 32 * word;
                const uint32_t left = to + gw_place_behind(node.at, node.left_at) + 32 * word - before;
                const uint32_t right =
                    to + gw_place_behind(node.at + node.len - right_len, node.right_at) + before;
                const uint32_t left_bits = ~bits & (valid < 32 ? (1u << valid) - 1 : ~0u);
                if (node.keeps == 3) {
                    gw_move_ranks<true, true>(x, left_bits, bits, left, right);
                } else if (node.keeps == 2) {
                    gw_move_ranks<false, true>(x, left_bits, bits, left, right);
                } else {
                    gw_move_ranks<true, false>(x, left_bits, bits, left, right);
                }
            }
        }
    }
    return depth;
}

/*
 * Partitions the ranks along the tree: lengths of all nodes, bitmaps at `bitmaps`, of which it returns the
 * words, to the first warp. After a level of a single task there are mostly only such: nobody but the first
 * warp would have work. Begins and ends with a barrier.
 */
GW_DEVICE uint32_t gw_partition_chunk(gw_encode_state &s, uint32_t chunk_len, uint32_t level_size,
                                      uint32_t bitmaps)
{
    const bool is_first = threadIdx.x < 32;
    uint32_t bitmap = 0; /* first warp: words of it so far */
    __syncthreads();
    if (is_first) {
        if (threadIdx.x == 0) {
            s.node[0].len = (uint16_t)chunk_len;
            s.node[0].at = 0;
        }
        __syncwarp();
        const uint32_t tasks = s.tree.depth_max == 0 ? 0 : gw_plan_level(s, 0, &bitmap);
        if (threadIdx.x == 0) {
            s.task_count[0] = tasks;
        }
    }
    const uint32_t depth = gw_partition_levels<false>(s, 0, level_size, bitmaps, &bitmap);
    __syncthreads(); /* everybody has read that there is a single task */
    if (is_first) {
        gw_partition_levels<true>(s, depth, level_size, bitmaps, &bitmap);
    }
    __syncthreads();
    return bitmap;
}

/* ---- 3: sizes ------------------------------------------------------------------------------------------ */

/* First bit in the chunk of each of the 32 strings, plane after plane; behind them where the planes end. By
 * one warp. */
template <uint32_t DTYPE> GW_DEVICE void gw_plan_strings(gw_encode_state &s)
{
    typedef gw_type<DTYPE> type;
    const uint32_t lane = gw_lane(), p = lane >> 3;
    const uint4 sums = s.warp_sum[lane & 7];
    const uint32_t two = p < 2 ? sums.x : sums.y;
    const uint32_t bits = (p == 0 ? type::W1 : type::W2) * ((p & 1) != 0 ? two >> 16 : two & 0xffff);
    uint32_t upto = bits;
    GW_UNROLL
    for (uint32_t d = 1; d < 8; d *= 2) {
        const uint32_t y = __shfl_up_sync(GW_FULL_MASK, upto, d);
        upto += (lane & 7) >= d ? y : 0;
    }
    s.string_start[lane] = 32 * s.plane_word[p] + upto - bits;
    if (lane == 0) {
        s.string_start[32] = 32 * s.escape_word;
    }
}

/* Places of all parts and the size of the chunk, into s; the tasks of gw_write_runs(). Begins and ends with a
 * barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_plan_chunk(gw_encode_state &s)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane();
    const uint32_t planes = DERIVED ? 7 : 4;
    if (threadIdx.x < 32) { /* there are about 30 nodes */
        const uint32_t header_words = (planes + 1 + tree.inner_count + 1) / 2;
        uint32_t words = header_words, task_count = 0;
        GW_NO_UNROLL
        for (uint32_t first = 0; first < tree.node_count; first += 32) {
            const bool exists = first + lane < tree.node_count;
            const uint32_t n = exists ? first + lane : 0;
            const uint32_t len = exists ? s.node[n].len : 0;
            const uint32_t width = tree.node[n].right != 0 ? 1 : tree.node[n].width;
            const uint32_t run_words = (len * width + 31) >> 5, tasks = width == 0 ? 0 : (len + 1023) >> 10;
            const uint32_t upto = gw_warp_scan(run_words | tasks << 16);
            const uint32_t task = task_count + (upto >> 16) - tasks;
            if (exists) {
                s.node[n].run = (uint16_t)(words + (upto & 0xffff) - run_words);
            }
            GW_NO_UNROLL
            for (uint32_t k = 0; k < tasks; k++) {
                s.task[task + k] = (uint16_t)(n | k << 8);
            }
            const uint32_t all = __shfl_sync(GW_FULL_MASK, upto, 31);
            words += all & 0xffff;
            task_count += all >> 16;
        }
        if (lane == 0) {
            s.task_count[0] = task_count;
            s.header_words = header_words;
            s.run_words = words - header_words;
            GW_UNROLL
            for (uint32_t p = 0; p < planes; p++) {
                s.plane_word[p] = words;
                words += (gw_plane_width<DTYPE>(p) * s.plane_len[p] + 31) >> 5;
            }
            s.escape_word = words;
            s.size = 4 * words + ((gw_type<DTYPE>::SIZE * s.escape_len + 3) & ~3u);
        }
        if (!DERIVED) {
            __syncwarp();
            gw_plan_strings<DTYPE>(s);
        }
    }
    __syncthreads();
}

/* ---- 4: bytes ------------------------------------------------------------------------------------------ */

/* 32 numbers of W bits, from bytes (the upper bits of each are zero), to W words. */
template <int W, typename TO>
GW_DEVICE void gw_pack32(const TO &to, uint32_t at, const uint32_t x[8], uint32_t words)
{
    uint32_t out[W + 1];
    GW_UNROLL
    for (int j = 0; j <= W; j++) {
        out[j] = 0;
    }
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        uint32_t four = (x[j] & 0x00ff00ffu) | (x[j] >> (8 - W) & 0x00ff00ffu << W);
        four = (four & 0xffffu) | (four >> (16 - 2 * W) & 0xffffu << 2 * W);
        const int bit = 4 * W * j;
        out[bit / 32] |= four << bit % 32;
        if (bit % 32 + 4 * W > 32) {
            out[bit / 32 + 1] |= four >> (32 - bit % 32);
        }
    }
    GW_UNROLL
    for (int j = 0; j < W; j++) {
        if ((uint32_t)j < words) {
            to.put(at + j, out[j]);
        }
    }
}

/* Where words go. */
struct gw_global_words {
    uint32_t *words;
    GW_DEVICE_MEMBER void put(uint32_t i, uint32_t x) const
    {
        words[i] = x;
    }
};

struct gw_shared_words {
    uint32_t place;
    GW_DEVICE_MEMBER void put(uint32_t i, uint32_t x) const
    {
        gw_shared_store32(place + 4 * i, x);
    }
};

/* Header and runs. Ends with a barrier. */
template <bool DERIVED, typename TO>
GW_DEVICE void gw_write_runs(gw_encode_state &s, const TO &to, uint32_t level_size, uint32_t bitmaps)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    const uint32_t planes = DERIVED ? 7 : 4;
    if (t < s.header_words) {
        uint32_t half[2];
        GW_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * t + h;
            half[h] = i < planes                          ? s.plane_len[i]
                      : i == planes                       ? s.escape_len
                      : i < planes + 1 + tree.inner_count ? s.right_len[i - planes - 1]
                                                          : 0;
        }
        to.put(t, half[0] | half[1] << 16);
    }

    const uint32_t task_count = s.task_count[0];
    GW_NO_UNROLL
    for (uint32_t task = warp; task < task_count; task += GW_WARPS) {
        const uint32_t what = s.task[task], n = what & 255, word = (what >> 8) * 32 + lane;
        const gw_tree_node node = tree.node[n];
        const uint32_t len = s.node[n].len;
        if (32 * word >= len) {
            continue;
        }
        if (node.right != 0) {
            to.put(s.node[n].run + word, gw_shared_load32(bitmaps + 4 * (s.node[n].bitmap + word)));
            continue;
        }
        const uint32_t place =
            gw_place_of(s.arrays) + (node.depth & 1) * level_size + gw_encode_place(s, n) + 32 * word;
        const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
        uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        const uint32_t valid = len - 32 * word, base = node.first_rank * 0x01010101u;
        GW_UNROLL
        for (int32_t j = 0; j < 8; j++) {
            /* Ranks are not below the first of their leaf, so no byte borrows from those after it; behind the
             * end is anything. */
            const int32_t left = 8 * (int32_t)valid - 32 * j;
            x[j] = (x[j] - base) & ~__funnelshift_lc(0, ~0u, left < 0 ? 0 : (uint32_t)left);
        }
        const uint32_t at = s.node[n].run + node.width * word;
        const uint32_t words = ((valid < 32 ? valid : 32) * node.width + 31) >> 5;
        switch (node.width) {
        case 1:
            gw_pack32<1>(to, at, x, words);
            break;
        case 2:
            gw_pack32<2>(to, at, x, words);
            break;
        case 3:
            gw_pack32<3>(to, at, x, words);
            break;
        case 4:
            gw_pack32<4>(to, at, x, words);
            break;
        case 5:
            gw_pack32<5>(to, at, x, words);
            break;
        case 6:
            gw_pack32<6>(to, at, x, words);
            break;
        default:
            gw_pack32<7>(to, at, x, words);
            break;
        }
    }
    __syncthreads();
}

/*
 * 16 bytes a lane of the planes, from the string n, in which they begin, on: number `quad` of those from base
 * on, and every 32nd before `last`. All begin WORD words and equally many bits behind 16 bytes of the string.
 */
template <uint32_t WORD>
GW_DEVICE void gw_copy_string(const gw_encode_state &s, uint32_t *base, uint32_t strings, uint32_t stride,
                              uint32_t n, uint32_t ahead, uint32_t quad, uint32_t last)
{
    const uint32_t start = s.string_start[n] + ahead, next = s.string_start[n + 1] + ahead;
    const uint32_t first_bit = s.string_start[0] + ahead, end_bit = s.string_start[32] + ahead;
    const uint32_t shift = (0u - start) & 31;
    const uint32_t string = strings + stride * (4 * (n & 7) + (n >> 3)) + 16;
    GW_NO_UNROLL
    for (; quad < last; quad += 32) {
        const uint32_t place = string + 4 * (uint32_t)((int32_t)(128 * quad - start) >> 5) - 4 * WORD;
        const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
        const uint32_t x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        uint32_t out[4];
        GW_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            out[j] = __funnelshift_r(x[WORD + j], x[WORD + j + 1], shift);
        }
        if (128 * quad + 128 > next) { /* other strings follow */
            GW_NO_UNROLL
            for (uint32_t m = n + 1; m < 32 && s.string_start[m] + ahead < 128 * quad + 128; m++) {
                const int32_t bit = (int32_t)(128 * quad - s.string_start[m] - ahead);
                const uint32_t other =
                    strings + stride * (4 * (m & 7) + (m >> 3)) + 16 + 4 * (uint32_t)(bit >> 5);
                GW_UNROLL
                for (uint32_t j = 0; j < 4; j++) {
                    out[j] |= __funnelshift_r(gw_shared_load32(other + 4 * j),
                                              gw_shared_load32(other + 4 * j + 4), (uint32_t)bit & 31);
                }
            }
        }
        if (128 * quad >= first_bit && 128 * quad + 128 <= end_bit) {
            *(uint4 *)(void *)(base + 4 * quad) = make_uint4(out[0], out[1], out[2], out[3]);
        } else {
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                if (128 * quad + 32 * j >= first_bit && 128 * quad + 32 * j < end_bit) {
                    base[4 * quad + j] = out[j];
                }
            }
        }
    }
}

/* Planes of the chunk to dst from the strings of digits, which have zeros before and behind them. */
GW_DEVICE void gw_copy_strings(const gw_encode_state &s, uint32_t *dst, uint32_t strings,
                               uint32_t string_words)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t stride = 4 * (string_words + 4);
    const uint32_t ahead = 8 * ((uint32_t)(uintptr_t)dst & 12); /* bits of the first 16 bytes before dst */
    uint32_t *base = dst - ahead / 32;
    GW_NO_UNROLL
    for (uint32_t n = warp; n < 32; n += GW_WARPS) {
        const uint32_t start = s.string_start[n] + ahead, next = s.string_start[n + 1] + ahead;
        const uint32_t quad = ((start + (n == 0 ? 0 : 127)) >> 7) + lane, last = (next + 127) >> 7;
        switch ((0u - start) >> 5 & 3) {
        case 0:
            gw_copy_string<0>(s, base, strings, stride, n, ahead, quad, last);
            break;
        case 1:
            gw_copy_string<1>(s, base, strings, stride, n, ahead, quad, last);
            break;
        case 2:
            gw_copy_string<2>(s, base, strings, stride, n, ahead, quad, last);
            break;
        default:
            gw_copy_string<3>(s, base, strings, stride, n, ahead, quad, last);
            break;
        }
    }
}

/* The first `words` words of dst, which lie from `place` on in shared memory, as far from a multiple of 16 as
 * in dst, 16 bytes at a time. */
GW_DEVICE void gw_copy_words(uint32_t *dst, uint32_t place, uint32_t words)
{
    const uint32_t ahead = (uint32_t)((uintptr_t)dst >> 2) & 3;
    uint32_t *base = dst - ahead;
    GW_NO_UNROLL
    for (uint32_t i = 4 * threadIdx.x; i < ahead + words; i += 4 * GW_THREADS) {
        const uint4 x = gw_shared_load128(place - 4 * ahead + 4 * i);
        if (i >= ahead && i + 4 <= ahead + words) {
            *(uint4 *)(void *)(base + i) = x;
        } else {
            const uint32_t four[4] = {x.x, x.y, x.z, x.w};
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                if (i + j >= ahead && i + j < ahead + words) {
                    base[i + j] = four[j];
                }
            }
        }
    }
}

/* Word i (0 or 1) of the first or second half of v. */
GW_DEVICE uint32_t gw_pick(const uint4 &v, bool second, uint32_t i)
{
    return i == 0 ? (second ? v.z : v.x) : second ? v.w : v.y;
}

/* ORs n <= 24 bits into the bit string at `place`, from bit `at` on. */
GW_DEVICE void gw_or_bits(uint32_t place, uint32_t at, uint32_t digits, uint32_t n)
{
    if (n != 0) {
        const uint32_t word = place + 4 * (at >> 5), shift = at & 31;
        gw_shared_or32(word, digits << shift);
        if (shift + n > 32) {
            gw_shared_or32(word + 4, digits >> (32 - shift));
        }
    }
}

/*
 * Planes of the chunk to dst: values are rounded again, 4096 or 8192 at a time. Digits are ORed together in
 * shared memory, which the level arrays have left; the last word of a plane waits for the next of them.
 * Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_planes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                               uint32_t chunk_len, uint32_t *dst)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t PLANES = DERIVED ? 7 : 4, M = type::M, W1 = type::W1, W2 = type::W2;
    constexpr uint32_t VALUES = type::SIZE == 4 ? 16 : 32; /* of a thread: they wait where they were staged */
    constexpr uint32_t ROUND = VALUES * GW_THREADS;
    constexpr uint32_t PLANE_WORDS = ROUND * W2 / 32 + 4; /* of one of the first four */
    constexpr uint32_t REST4 = 4 * PLANE_WORDS, REST2 = REST4 + ROUND * 4 / 32 + 4,
                       REST1 = REST2 + ROUND * 2 / 32 + 4;
    constexpr uint32_t STAGE_WORDS = DERIVED ? REST1 + ROUND / 32 + 4 : REST4;
    static_assert(4 * STAGE_WORDS + 128 + 2048 * GW_WARPS <= 2 * GW_CUDA_ENCODE_LEVEL_SIZE(12),
                  "planes and exchange fit");
    /* A value while it waits: field, from bit TAG on the number of its digits in planes 1 to 4 (at most
     * 4), above that the bits that remain (16-bit types: fewer than 4). The two of a word are 16 bits each
     * where that fits. */
    constexpr bool PACKED = type::SIZE == 2;
    constexpr uint32_t TAG = M + 1;
    static_assert(TAG + 3 + (PACKED ? 2 : 3) <= (PACKED ? 16 : 32), "a waiting value fits");
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t planes = gw_place_of(s.arrays);
    const uint32_t exchange = planes + ((4 * STAGE_WORDS + 127) & ~127u) + 2048 * warp;
    const uint32_t waiting = gw_exchange_mine(exchange, lane);
    __syncthreads();
    if (tid < 8) {
        s.carry[tid] = 0;
        s.done[tid & 3] = 0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += ROUND) {
        GW_NO_UNROLL
        for (uint32_t i = tid; i < STAGE_WORDS; i += GW_THREADS) {
            gw_shared_store32(planes + 4 * i, 0);
        }
        __syncthreads();
        const uint32_t mine_at = at + VALUES * tid; /* the first value of this thread */
        const uint32_t left = mine_at < chunk_len ? chunk_len - mine_at : 0;
        const uint32_t valid = left < VALUES ? left : VALUES;

        /* Counts first, to know where digits go. A thread's rounded values wait in place of the values that
         * it has read. */
        uint32_t even = 0, odd = 0, sum = 0, half[2] = {0, 0};
        gw_round_word<DTYPE, DERIVED, VALUES>(
            s, r, exchange, first + mine_at, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *flags) {
                uint32_t all[4];
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    /* Sign and mantissa; above them the number of digits in planes 1 to 4, and the bits
                     * that remain. */
                    const uint32_t field = bits[i] >> (8 * type::SIZE - 1) << M | (bits[i] & ((1u << M) - 1));
                    const uint32_t whole = __popc(flags[i] & 0x1111);
                    const uint32_t rest = (flags[i] >> 14 & 4) | (flags[i] >> 19 & 2) | (flags[i] >> 24 & 1);
                    all[i] = field | whole << TAG | rest << (TAG + 3);
                }
                if (!PACKED) {
                    gw_shared_store128(waiting ^ 16 * quad, make_uint4(all[0], all[1], all[2], all[3]));
                } else if ((quad & 1) == 0) {
                    half[0] = all[0] | all[1] << 16;
                    half[1] = all[2] | all[3] << 16;
                } else {
                    gw_shared_store128(
                        waiting ^ 16 * (quad / 2),
                        make_uint4(half[0], half[1], all[0] | all[1] << 16, all[2] | all[3] << 16));
                }
                sum += flags[0] + flags[1] + flags[2] + flags[3];
                if ((quad & 1) != 0) {
                    even += sum & 0x0f0f0f0f;
                    odd += sum >> 4 & 0x0f0f0f0f;
                    sum = 0;
                }
            });
        const uint32_t mine[4] = {(even & 255) | (odd & 255) << 16, (even >> 8 & 255) | (odd & 0xff00) << 8,
                                  (even >> 16 & 255) | (odd & 0xff0000), even >> 24 | odd >> 24 << 16};
        uint32_t upto[4];
        GW_UNROLL
        for (uint32_t c = 0; c < (DERIVED ? 4 : 2); c++) {
            upto[c] = gw_warp_scan(mine[c]);
        }
        if (lane == 31) {
            s.warp_sum[warp] = make_uint4(upto[0], upto[1], DERIVED ? upto[2] : 0, DERIVED ? upto[3] : 0);
        }
        __syncthreads();
        uint32_t before[4] = {upto[0] - mine[0], upto[1] - mine[1], DERIVED ? upto[2] - mine[2] : 0,
                              DERIVED ? upto[3] - mine[3] : 0};
        uint32_t total[4] = {0, 0, 0, 0};
        GW_UNROLL
        for (uint32_t v = 0; v < GW_WARPS; v++) {
            const uint4 w = s.warp_sum[v];
            const uint32_t part[4] = {w.x, w.y, w.z, w.w};
            GW_UNROLL
            for (uint32_t c = 0; c < 4; c++) {
                before[c] += v < warp ? part[c] : 0;
                total[c] += part[c];
            }
        }

        /* Bits of every plane before this thread's; the stage begins with the word that the values before
         * have begun. */
        uint32_t position[PLANES];
        GW_UNROLL
        for (uint32_t p = 0; p < PLANES; p++) {
            const uint32_t width = gw_plane_width<DTYPE>(p);
            const uint32_t already = (p & 1) != 0 ? s.done[p / 2] >> 16 : s.done[p / 2] & 0xffff;
            const uint32_t ahead = (p & 1) != 0 ? before[p / 2] >> 16 : before[p / 2] & 0xffff;
            position[p] = (width * already & 31) + width * ahead;
        }
        GW_NO_UNROLL
        for (uint32_t quad = 0; quad < VALUES / 4; quad++) {
            uint32_t q[4];
            const uint4 v = gw_staged(waiting, PACKED ? quad / 2 : quad);
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t low = PACKED ? gw_pick(v, (quad & 1) != 0, i / 2) : gw_pick(v, i >= 2, i & 1);
                q[i] = PACKED ? low >> 16 * (i & 1) & 0xffff : low;
            }
            GW_UNROLL
            for (uint32_t p = 0; p < 4; p++) {
                constexpr uint32_t TOP = M + 1 - W1;
                const uint32_t width = p == 0 ? W1 : W2;
                const uint32_t shift = p == 0 ? TOP : TOP - p * W2;
                uint32_t digits = 0, n = 0;
                GW_UNROLL
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t digit = q[i] >> shift & ((1u << width) - 1);
                    const bool has = (q[i] >> TAG & 7) > p;
                    digits |= has ? digit << n : 0;
                    n += has ? width : 0;
                }
                gw_or_bits(planes + 4 * PLANE_WORDS * p, position[p], digits, n);
                position[p] += n;
            }
            if (DERIVED) {
                GW_UNROLL
                for (uint32_t p = 4; p < PLANES; p++) {
                    const uint32_t width = 4u >> (p - 4);
                    const uint32_t place = planes + 4 * (p == 4 ? REST4 : p == 5 ? REST2 : REST1);
                    uint32_t digits = 0, n = 0;
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t whole = q[i] >> TAG & 7, rest = q[i] >> (TAG + 3);
                        /* Bits of the field up to this digit's end: those of the planes before it, and its
                         * own. */
                        const uint32_t above =
                            (whole == 0 ? 0 : W1 + (whole - 1) * W2) + (p == 4   ? 4
                                                                        : p == 5 ? (rest & 4) + 2
                                                                                 : rest);
                        const bool has = (rest & width) != 0;
                        const uint32_t digit = q[i] >> ((M + 1 - above) & 31) & ((1u << width) - 1);
                        digits |= has ? digit << n : 0;
                        n += has ? width : 0;
                    }
                    gw_or_bits(place, position[p], digits, n);
                    position[p] += n;
                }
            }
        }
        __syncthreads();

        /* Full words go out, and after the last values the one that is begun, too. */
        const bool is_end = at + ROUND >= chunk_len;
        uint32_t kept = 0;
        GW_UNROLL
        for (uint32_t p = 0; p < PLANES; p++) {
            const uint32_t width = gw_plane_width<DTYPE>(p);
            const uint32_t place = planes + 4 * (p < 4    ? PLANE_WORDS * p
                                                 : p == 4 ? REST4
                                                 : p == 5 ? REST2
                                                          : REST1);
            const uint32_t start = width * ((p & 1) != 0 ? s.done[p / 2] >> 16 : s.done[p / 2] & 0xffff);
            const uint32_t bits =
                (start & 31) + width * ((p & 1) != 0 ? total[p / 2] >> 16 : total[p / 2] & 0xffff);
            const uint32_t words = is_end ? (bits + 31) >> 5 : bits >> 5;
            uint32_t *to = dst + s.plane_word[p] + (start >> 5);
            GW_NO_UNROLL
            for (uint32_t i = tid; i < words; i += GW_THREADS) {
                to[i] = gw_shared_load32(place + 4 * i) | (i == 0 ? s.carry[p] : 0);
            }
            if (tid == p && !is_end) {
                kept = gw_shared_load32(place + 4 * words) | (words == 0 ? s.carry[p] : 0);
            }
        }
        __syncthreads();
        if (tid < PLANES) {
            s.carry[tid] = kept;
        }
        if (tid == 0) {
            GW_UNROLL
            for (uint32_t c = 0; c < 4; c++) {
                s.done[c] += total[c];
            }
        }
    }
    __syncthreads();
}

/*
 * Escapes of the chunk to dst. They are few: their places are listed where the level arrays were, and then
 * rounded one by one, again. Begins with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_escapes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                                uint32_t chunk_len, uint32_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t t = gw_thread_now(), words = (chunk_len + 31) >> 5, total = s.escape_len;
    if (total == 0) {
        return;
    }
    const uint32_t list = gw_place_of(s.arrays);
    const uint32_t share = (words + GW_THREADS - 1) / GW_THREADS; /* words of a thread */
    const uint32_t begin = share * t, end = begin + share < words ? begin + share : words;
    uint32_t count = 0, all;
    GW_NO_UNROLL
    for (uint32_t w = begin; w < end; w++) {
        count += __popc(s.escape_mask[w]);
    }
    uint32_t at = list + 2 * gw_block_scan(count, s.sums, &all);
    if (count != 0) {
        GW_NO_UNROLL
        for (uint32_t w = begin; w < end; w++) {
            uint32_t mask = s.escape_mask[w];
            GW_NO_UNROLL
            while (mask != 0) {
                gw_shared_store16(at, 32 * w + __ffs(mask) - 1);
                mask &= mask - 1;
                at += 2;
            }
        }
    }
    __syncthreads();
    uint8_t *to = (uint8_t *)(dst + s.escape_word);
    GW_NO_UNROLL
    for (uint32_t i = t; i < total; i += GW_THREADS) {
        const uint32_t bits =
            gw_round_at<DTYPE, DERIVED>(r, first + gw_shared_load16(list + 2 * i), s.tree.base).bits;
        if (SIZE == 4) {
            *(uint32_t *)(void *)(to + 4 * i) = bits;
        } else {
            *(uint16_t *)(void *)(to + 2 * i) = (uint16_t)bits;
        }
    }
    if (SIZE == 2 && t == 0 && (total & 1) != 0) {
        *(uint16_t *)(void *)(to + 2 * total) = 0;
    }
}

/* The chunk as RAW to dst, which is 16-byte aligned: rounded values and padding. Begins and ends with a
 * barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_raw(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                            uint8_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE, BATCH = 64 / SIZE;
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t stage = gw_place_of(s.arrays) + 2048 * warp, stage_out = stage + 2048 * GW_WARPS;
    const uint32_t mine = gw_exchange_mine(stage_out, lane), all = gw_exchange_all(stage_out, lane);
    const uint32_t raw_size = (chunk_len * SIZE + 15) & ~15u;
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
        uint32_t half[2] = {0, 0};
        gw_round_word<DTYPE, DERIVED, 32>(
            s, r, stage, first + 32 * (uint64_t)word, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *) {
                const uint32_t j = quad % (BATCH / 4);
                if (SIZE == 4) {
                    gw_shared_store128(mine ^ 16 * j, make_uint4(bits[0], bits[1], bits[2], bits[3]));
                } else if ((j & 1) == 0) {
                    half[0] = bits[0] | bits[1] << 16;
                    half[1] = bits[2] | bits[3] << 16;
                } else {
                    gw_shared_store128(
                        mine ^ 16 * (j / 2),
                        make_uint4(half[0], half[1], bits[0] | bits[1] << 16, bits[2] | bits[3] << 16));
                }
                if (j == BATCH / 4 - 1) {
                    __syncwarp();
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t owner = 8 * i + (lane >> 2);
                        const uint32_t byte =
                            SIZE * (at + 1024 * warp + 32 * owner + BATCH * (quad / (BATCH / 4))) +
                            16 * (lane & 3);
                        if (byte < raw_size) {
                            *(uint4 *)(void *)(dst + byte) = gw_shared_load128(all + 512 * i);
                        }
                    }
                    __syncwarp();
                }
            });
    }
    __syncthreads();
}

/* ---- chunk --------------------------------------------------------------------------------------------- */

/* Tables of the codebook whose tree is in s. Begins and ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_encode_tables(gw_encode_state &s)
{
    __syncthreads();
    /* Labels without a code have the rank of the escape. Without an escape every label that occurs has a
     * code. */
    const uint32_t t = gw_thread_now(); /* or its digits' flags would live all along */
    if ((s.tree.has_code[t >> 5] >> (t & 31) & 1) == 0) {
        s.tree.rank_of_label[t] = (uint8_t)s.tree.escape_rank;
    }
    if (DERIVED && t < 32) {
        s.flags[t] = t <= gw_type<DTYPE>::M + 1 ? gw_digit_flags<DTYPE>(t) : 0;
    }
    if (!DERIVED && DTYPE != GW_FP16) {
        /* Labels by exponent field: gw_round_value(). */
        __syncthreads();
        const uint32_t e = t - s.tree.base - 1;
        uint32_t entry[4];
        GW_UNROLL
        for (uint32_t level = 0; level < 4; level++) {
            const uint32_t label = t == 0                                  ? 0
                                   : e < 63 && t < gw_type<DTYPE>::SPECIAL ? 4 * (e + 1) + level
                                                                           : 1;
            entry[level] = gw_entry_of(label, s.tree.rank_of_label[label], s.tree.escape_rank);
        }
        gw_shared_store128(gw_place_of(s.entry) + 16 * t, make_uint4(entry[0], entry[1], entry[2], entry[3]));
        if (t < 4) {
            s.factor[t] = t == 0 ? 0 : (127 + 6 * t) << 23 | 1u << 22;
        }
    }
    __syncthreads();
}

/*
 * Reads an installed codebook into s.tree, its lengths and base. False, to all threads, if it breaks rule 20
 * or labels 0 and 1 lack codes. Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_encode_read_book(gw_encode_state &s, const gw_cuda_book &book)
{
    const uint32_t t = threadIdx.x;
    const uint32_t size = book.size_at != nullptr ? *book.size_at : book.size;
    __syncthreads();
    if (t < GW_CUDA_BOOK_SIZE_MAX && t < size) {
        s.book[t] = (book.bytes != nullptr ? book.bytes : book.inline_bytes)[t];
    }
    const uint32_t used = gw_cuda_book_read(s.tree, s.book, size, gw_type<DTYPE>::IS_FP16, DERIVED, s.sums);
    if (used == 0 || used != size || s.tree.length[0] == 0 || s.tree.length[1] == 0) {
        return false;
    }
    __syncthreads();
    if (t == 0) {
        s.book_size = 0; /* nothing of it goes into the frame */
        s.book_crc = 0;
    }
    __syncthreads();
    return true;
}

/* Where the strings of digits lie, or 0: there is no room for them. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_strings_place(const gw_encode_state &s, uint32_t chunk_log2)
{
    return DERIVED || s.shared_size < GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, DTYPE)
               ? 0
               : gw_place_of(&s) + GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, DTYPE) -
                     GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, DTYPE);
}

/* Measures a chunk with the codebook of s: s.size, s.any, and what gw_cuda_write_coded() needs. Ends with
 * a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_measure_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                     uint64_t first, uint32_t chunk_len)
{
    const uint32_t level_size = gw_encode_level_size(chunk_log2);
    const uint32_t bitmaps = gw_place_of(s.arrays) + 2 * level_size;
    const uint32_t strings = gw_strings_place<DTYPE, DERIVED>(s, chunk_log2);
    if (DERIVED) {
        gw_rank_chunk<DTYPE, DERIVED>(s, r, first, chunk_len, level_size);
    } else {
        gw_rank_explicit<DTYPE>(s, r, first, chunk_len, level_size, strings,
                                GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, DTYPE));
    }
    if (s.any != 0) {
        const uint32_t bitmap_words = gw_partition_chunk(s, chunk_len, level_size, bitmaps);
        if (threadIdx.x == 0) { /* who knows bitmap_words */
            s.has_strings = bitmaps + 4 * bitmap_words <= strings;
        }
        gw_plan_chunk<DTYPE, DERIVED>(s);
    }
}

/* Writes the chunk that was measured, s.size bytes (no codebook, no padding behind), to dst, which is
 * 4-byte aligned. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_write_coded(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                   uint64_t first, uint32_t chunk_len, uint32_t *dst)
{
    const uint32_t level_size = gw_encode_level_size(chunk_log2);
    const uint32_t bitmaps = gw_place_of(s.arrays) + 2 * level_size;
    const uint32_t strings = gw_strings_place<DTYPE, DERIVED>(s, chunk_log2);
    const uint32_t run_words = s.header_words + s.run_words;
    if (!DERIVED && s.has_strings) {
        gw_copy_strings(s, dst, strings, GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, DTYPE));
    }
    if (!DERIVED && s.has_strings && 4 * run_words + 16 <= GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, DTYPE)) {
        /* The strings are done with: runs are put together in their place. */
        __syncthreads();
        const gw_shared_words to = {strings + ((uint32_t)(uintptr_t)dst & 12)};
        gw_write_runs<DERIVED>(s, to, level_size, bitmaps);
        gw_copy_words(dst, to.place, run_words);
    } else {
        const gw_global_words to = {dst};
        gw_write_runs<DERIVED>(s, to, level_size, bitmaps);
    }
    if (DERIVED || !s.has_strings) {
        gw_write_planes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    }
    gw_write_escapes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    __syncthreads();
}

#endif
