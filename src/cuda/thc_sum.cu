/*
 * THC aggregation: any number of packed index arrays, or of partial sums, into one array of lanes, in one
 * pass.
 *
 * Indices of 4 bits: a thread takes 16 bytes of every source, 32 indices, and adds them as bytes, in the
 * order of nibbles, as many sources as a byte has room for; their two orders part at the end.
 *
 * Other indices, grids from 128 on, lanes of 32 bits: a thread makes 16 neighbouring lanes. They are a
 * quarter of a group of 64 values, whose bits are in the same 16 bytes (2 and 4 bits) or 8 bytes (1 bit, and
 * the third bit of 3) for all quarters: neighbouring threads read the same bytes and write neighbouring ones.
 *
 * No float, and no carry leaves a lane: n * g fits it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_tile.cuh"

enum { SUM_THREADS = 256, SUM_LEN = 16, NIBBLE_LEN = 32 };

/* Four indices, one a byte, of quarter `quarter`: word i of four. */
GW_DEVICE void load_indices(uint32_t index[4], const uint8_t *group, uint32_t bits, uint32_t quarter)
{
    if (bits == 4) {
        uint32_t word[4];
        gw_words_of(word, *(const uint4 *)(const void *)(group + 16 * (quarter & 1)));
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            index[i] = word[i] >> 4 * (quarter >> 1) & 0x0f0f0f0fu;
        }
        return;
    }
    GW_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        index[i] = 0;
    }
    if (bits >= 2) { /* groups of 16 or 24 bytes: multiples of 8 */
        const uint2 *from = (const uint2 *)(const void *)group;
        const uint2 a = from[0];
        const uint2 b = from[1];
        const uint32_t word[4] = {a.x, a.y, b.x, b.y};
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            index[i] = word[i] >> 2 * quarter & 0x03030303u;
        }
    }
    if (bits != 2) {
        const uint2 w = *(const uint2 *)(const void *)(group + (bits == 3 ? 16 : 0));
        const uint32_t shift = bits == 3 ? 2 : 0;
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            const uint32_t word = (i & 1) != 0 ? w.y : w.x;
            index[i] |= (word >> (2 * quarter + i / 2) & 0x01010101u) << shift;
        }
    }
}

/* table[index] for four bytes: the low nibbles of a selector pick bytes of half a table, the fourth bit picks
 * the half. */
GW_DEVICE uint32_t expand(uint32_t index, const uint32_t table[4], uint32_t bits)
{
    const uint32_t pairs = index | index >> 4; /* nibbles 0 and 1 of each half word */
    const uint32_t selector = (pairs & 0xffu) | (pairs >> 8 & 0xff00u);
    const uint32_t low = gw_permute(table[0], table[1], selector & 0x7777u);
    if (bits < 4) {
        return low;
    }
    const uint32_t high = gw_permute(table[2], table[3], selector & 0x7777u);
    const uint32_t is_high = (index >> 3 & 0x01010101u) * 0xffu;
    return (low & ~is_high) | (high & is_high);
}

/* Adds four bytes to four lanes of `lane_bits` in sum[0 .. lane_bits / 8). */
GW_DEVICE void add_four(uint32_t *sum, uint32_t four, uint32_t lane_bits)
{
    if (lane_bits == 8) {
        sum[0] += four;
    } else if (lane_bits == 16) {
        sum[0] += __byte_perm(four, 0, 0x4140);
        sum[1] += __byte_perm(four, 0, 0x4342);
    } else {
        sum[0] += four & 0xffu;
        sum[1] += four >> 8 & 0xffu;
        sum[2] += four >> 16 & 0xffu;
        sum[3] += four >> 24;
    }
}

/* 16 lanes of LANE_BITS: 4, 8 or 16 words. */
template <uint32_t LANE_BITS> GW_DEVICE void sum_indices_at(const gw_cuda_thc_sum_params &p, uint64_t first)
{
    constexpr uint32_t vectors = LANE_BITS / 8;
    uint4 *lanes = (uint4 *)(void *)(p.lanes + first * vectors);
    uint32_t sum[4 * vectors];

    GW_UNROLL for (uint32_t i = 0; i < vectors; i++)
    {
        gw_words_of(sum + 4 * i, p.accumulate != 0 ? lanes[i] : make_uint4(0, 0, 0, 0));
    }
    const uint32_t table[4] = {p.table[0], p.table[1], p.table[2], p.table[3]};
    const uint64_t group = first / 64 * 8 * p.bits;
    for (uint32_t s = 0; s < p.source_count; s++) {
        uint32_t index[4];
        load_indices(index, p.source[s] + group, p.bits, (uint32_t)(first / SUM_LEN & 3));
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            add_four(sum + vectors * i, expand(index[i], table, p.bits), LANE_BITS);
        }
    }
    GW_UNROLL for (uint32_t i = 0; i < vectors; i++)
    {
        lanes[i] = gw_four_of(sum + 4 * i);
    }
}

/* ---- indices of 4 bits --------------------------------------------------------------------------------- */

/*  Adds the values of 32 indices to sum[0..8) as bytes. A permutation takes its four digits from the lowest
 * 16 bits of a word of indices: a digit below 8 picks a byte of the table's half, one from 8 on gives the
 * sign of a byte four or eight times over, which is 0, values being below 128. With the highest bits of the
 * digits turned around, the other half. So sum[2 i] has the values of bytes 0 and 1 of word i, each the lower
 * digit first.
 */
GW_DEVICE void add_nibbles(uint32_t sum[8], const uint4 &indices, const uint32_t table[4])
{
    uint32_t word[4];

    gw_words_of(word, indices);
    GW_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const uint32_t turned = word[i] ^ 0x88888888u;
        sum[2 * i] += gw_permute(table[0], table[1], word[i]) + gw_permute(table[2], table[3], turned);
        sum[2 * i + 1] +=
            gw_permute(table[0], table[1], word[i] >> 16) + gw_permute(table[2], table[3], turned >> 16);
    }
}

GW_DEVICE uint4 nibbles_of(const gw_cuda_thc_sum_params &p, uint32_t source, uint64_t word)
{
    return ((const uint4 *)(const void *)p.source[source])[word];
}

/* Sixteen lanes at `to` from four words of bytes, and what they hold. */
template <uint32_t LANE_BITS>
GW_DEVICE void store_lanes(uint8_t *to, const uint32_t *sum, uint32_t accumulate)
{
    uint4 *lanes = (uint4 *)(void *)to;

    GW_UNROLL for (uint32_t i = 0; i < LANE_BITS / 8; i++)
    {
        uint4 four = gw_four_of(sum + 4 * i);
        if (accumulate != 0) {
            four = gw_add_four(four, lanes[i]);
        }
        lanes[i] = four;
    }
}

/* The 32 lanes of 16-byte word `word` of the indices: 16 of the lower digits, 32 lanes on 16 of the upper. */
template <uint32_t LANE_BITS> GW_DEVICE void sum_nibbles_at(const gw_cuda_thc_sum_params &p, uint64_t word)
{
    constexpr uint32_t WORDS = LANE_BITS / 2; /* of 16 lanes */
    const uint32_t table[4] = {p.table[0], p.table[1], p.table[2], p.table[3]};
    uint8_t *to = p.lanes + (word / 2 * 64 + word % 2 * 16) * (LANE_BITS / 8);
    uint32_t low[WORDS] = {0};
    uint32_t high[WORDS] = {0};

    for (uint32_t first = 0; first < p.source_count; first += p.byte_sources) {
        const uint32_t rest = p.source_count - first;
        const uint32_t end = first + (rest < p.byte_sources ? rest : p.byte_sources);
        uint32_t sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        uint32_t s = first;
        for (; s + 4 <= end; s += 4) { /* four loads on their way at a time */
            uint4 four[4];
            GW_UNROLL for (uint32_t i = 0; i < 4; i++)
            {
                four[i] = nibbles_of(p, s + i, word);
            }
            GW_UNROLL for (uint32_t i = 0; i < 4; i++)
            {
                add_nibbles(sum, four[i], table);
            }
        }
        for (; s < end; s++) {
            add_nibbles(sum, nibbles_of(p, s, word), table);
        }
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            add_four(low + LANE_BITS / 8 * i, gw_permute(sum[2 * i], sum[2 * i + 1], 0x6420), LANE_BITS);
            add_four(high + LANE_BITS / 8 * i, gw_permute(sum[2 * i], sum[2 * i + 1], 0x7531), LANE_BITS);
        }
    }
    store_lanes<LANE_BITS>(to, low, p.accumulate);
    store_lanes<LANE_BITS>(to + 32 * (LANE_BITS / 8), high, p.accumulate);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

/* Count lanes of value 1, little-endian, and the bytes after them. */
GW_DEVICE void write_counts(const gw_cuda_thc_sum_params &p, uint64_t thread, uint64_t threads)
{
    const uint32_t ones = p.lane_bits == 8 ? 0x01010101u : p.lane_bits == 16 ? 0x00010001u : 1;
    const uint64_t size = p.count_len * (p.lane_bits / 8);
    uint32_t *words = (uint32_t *)(void *)p.counts;

    for (uint64_t i = thread; 4 * i < size; i += threads) {
        const uint64_t rest = size - 4 * i;
        words[i] = rest >= 4 ? ones : ones & ((1u << 8 * rest) - 1);
    }
}

GW_KERNEL(gw_device_thc_sum_indices, gw_cuda_thc_sum_params, SUM_THREADS, 4)
{
    const uint64_t thread = (uint64_t)blockIdx.x * SUM_THREADS + threadIdx.x;
    const uint64_t threads = (uint64_t)gridDim.x * SUM_THREADS;

    if (p.byte_sources != 0) {
        for (uint64_t word = thread; word < p.len / NIBBLE_LEN; word += threads) {
            if (p.lane_bits == 8) {
                sum_nibbles_at<8>(p, word);
            } else {
                sum_nibbles_at<16>(p, word);
            }
        }
    } else {
        for (uint64_t first = thread * SUM_LEN; first < p.len; first += threads * SUM_LEN) {
            if (p.lane_bits == 8) {
                sum_indices_at<8>(p, first);
            } else if (p.lane_bits == 16) {
                sum_indices_at<16>(p, first);
            } else {
                sum_indices_at<32>(p, first);
            }
        }
    }
    if (p.counts != nullptr) {
        write_counts(p, thread, threads);
    }
}

/* 1 if a lane of the word is above the limit. */
GW_DEVICE uint32_t is_above(uint32_t word, uint32_t lane_bits, uint32_t limit)
{
    if (lane_bits == 32) {
        return word > limit;
    }
    if (lane_bits == 16) {
        return (word & 0xffffu) > limit || word >> 16 > limit;
    }
    return (word & 0xffu) > limit || (word >> 8 & 0xffu) > limit || (word >> 16 & 0xffu) > limit ||
           word >> 24 > limit;
}

/* Before any sum of lanes is changed: every lane of every source against what its contributors can make. */
GW_KERNEL(gw_device_thc_check_lanes, gw_cuda_thc_sum_params, SUM_THREADS, 4)
{
    const uint64_t vectors = p.len * (p.lane_bits / 8) / 16;
    const uint64_t thread = (uint64_t)blockIdx.x * SUM_THREADS + threadIdx.x;
    const uint64_t threads = (uint64_t)gridDim.x * SUM_THREADS;

    for (uint32_t s = 0; s < p.source_count; s++) {
        const uint4 *from = (const uint4 *)(const void *)p.source[s];
        uint32_t is_bad = 0;
        for (uint64_t i = thread; i < vectors; i += threads) {
            const uint4 w = from[i];
            is_bad |= is_above(w.x, p.lane_bits, p.limit[s]) | is_above(w.y, p.lane_bits, p.limit[s]) |
                      is_above(w.z, p.lane_bits, p.limit[s]) | is_above(w.w, p.lane_bits, p.limit[s]);
        }
        if (is_bad != 0) {
            thc_report(p.result, s, GW_ERR_CORRUPT);
        }
    }
    thc_finish(p.result, p.len);
}

GW_KERNEL(gw_device_thc_sum_lanes, gw_cuda_thc_sum_params, SUM_THREADS, 4)
{
    const uint64_t vectors = p.len * (p.lane_bits / 8) / 16;
    const uint64_t threads = (uint64_t)gridDim.x * SUM_THREADS;
    uint4 *lanes = (uint4 *)(void *)p.lanes;

    if (p.result->status != GW_OK) {
        return;
    }
    for (uint64_t i = (uint64_t)blockIdx.x * SUM_THREADS + threadIdx.x; i < vectors; i += threads) {
        uint4 sum = p.accumulate != 0 ? lanes[i] : make_uint4(0, 0, 0, 0);
        for (uint32_t s = 0; s < p.source_count; s++) {
            /* no carry leaves a lane */
            sum = gw_add_four(sum, ((const uint4 *)(const void *)p.source[s])[i]);
        }
        lanes[i] = sum;
    }
}
