/*
 * The quanta of the blocks of a carried chunk, from a map, from the caller or from the values: the arithmetic
 * of src/gcomp/gcomp_encode_quanta.c and quanta_choice.c, sums in the same order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_QUANTA_CUH
#define GW_CUDA_GCOMP_QUANTA_CUH

#include "cuda/gcomp_round.cuh"
#include "cuda/gcomp_store.cuh"
#include "gcomp/quanta_weights.h"

/* Of the blocks of a chunk whose quanta come from the values. */
struct gw_quanta_choice {
    double squares[GW_THREADS / 4]; /* sums, until the target of the chunk has them */
    uint32_t weight[GW_BLOCKS_MAX][GW_QUANTA_RAISES + 1];
    uint16_t order[GW_BLOCKS_MAX]; /* those with a quantum, in the order of the quanta */
    uint8_t raises[GW_BLOCKS_MAX]; /* how often it may be raised, and from bit 4 how often it was */
};

struct gw_quanta_state {
    union {
        uint32_t count[GW_WARPS][256]; /* of map bytes */
        gw_quanta_choice choice;
    };
    uint8_t exponent[GW_BLOCKS_MAX];
    uint32_t sums[GW_WARPS];
};

/* The exponent field of a quantum as a frame stores it. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_quantum_stored(int32_t exponent)
{
    const int32_t most = (int32_t)(gw_type<DTYPE>::SPECIAL - 1 + gw_type<DTYPE>::BIAS);
    return (uint32_t)(exponent < 1 ? 0 : exponent > most ? most : exponent);
}

/* Quantum of the lower median of the map bytes of a block that are not 0. By one warp, to all lanes. */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_quantum_of_map(uint32_t *count, const uint8_t *map_bytes, uint32_t len,
                                     int32_t drop_offset)
{
    const uint32_t lane = gw_lane();
    __syncwarp();
    GW_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        count[32 * i + lane] = 0;
    }
    __syncwarp();
    GW_NO_UNROLL
    for (uint32_t i = lane; i < len; i += 32) {
        atomicAdd(&count[map_bytes[i]], 1u);
    }
    __syncwarp();
    const uint32_t coded = len - count[0];
    /* A lane has eight bytes in a row; 0 counts for none. */
    uint32_t own = 0;
    GW_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        own += lane == 0 && i == 0 ? 0 : count[8 * lane + i];
    }
    uint32_t below = gw_warp_scan(own) - own, k = 256;
    GW_NO_UNROLL
    for (uint32_t i = lane == 0; i < 8 && k == 256; i++) {
        below += count[8 * lane + i];
        k = 2 * below >= coded ? 8 * lane + i : k;
    }
    k = __reduce_min_sync(GW_FULL_MASK, k);
    return coded == 0 ? 0
                      : gw_quantum_stored<DTYPE>(gw_quantum_field<DTYPE>(k, drop_offset) +
                                                 (int32_t)gw_type<DTYPE>::BIAS);
}

/* Sum of squares of every fourth finite value of a block, from value `at` on. */
template <uint32_t DTYPE> GW_DEVICE double gw_sum_of_squares(const uint8_t *values, uint32_t at, uint32_t len)
{
    typedef gw_type<DTYPE> type;
    double sum = 0;
    GW_NO_UNROLL
    for (uint32_t i = at; i < len; i += 4) {
        const uint32_t bits = gw_element_load(values, DTYPE, i);
        const uint32_t exponent = bits >> type::M & type::SPECIAL;
        const bool is_number = exponent != type::SPECIAL && (exponent != 0 || type::IS_FP16);
        const float wide =
            type::IS_FP16 ? gw_float_from_fp16(bits) : __uint_as_float(DTYPE == GW_FP32 ? bits : bits << 16);
        const double value = is_number ? (double)wide : 0;
        sum += value * value;
    }
    return sum;
}

/* Floor of the exponent of the quantum whose square is `square`: a field as a frame stores it. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_quantum_of_square(double square)
{
    const uint32_t high = (uint32_t)((uint64_t)__double_as_longlong(square) >> 52);
    const int32_t exponent = (int32_t)(high & 2047) - 1023; /* floor(log2(square)) */
    return high == 0 ? 0 : gw_quantum_stored<DTYPE>((exponent + 2048) / 2 - 1024 + 127);
}

GW_DEVICE double gw_square_of_quantum(uint32_t exponent)
{
    return __longlong_as_double((long long)(1023 + 2 * ((int32_t)exponent - 127)) << 52);
}

struct gw_quanta_weights {
    uint16_t of[4][GW_QUANTA_NO_WEIGHT + GW_QUANTA_RAISES + 1];
};

GW_LOOKUP gw_quanta_weights gw_quanta_weight_lookup = {GW_QUANTA_WEIGHTS};

GW_DEVICE uint32_t gw_quanta_step_log2(uint32_t log2)
{
    return gw_at_most(log2 - 6, GW_QUANTA_STEP_LOG2_MAX);
}

GW_DEVICE uint32_t gw_quanta_block_len(uint32_t len, uint32_t log2, uint32_t b)
{
    return gw_at_most(len - (b << log2), 1u << log2);
}

/* Weights of the sample of block b, every fourth value of it from the one with number `at` on. */
template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_weigh(uint32_t *sum, const gw_cuda_codec &codec, const uint8_t *values, uint32_t b,
                               uint32_t at, uint32_t len, uint32_t quantum)
{
    typedef gw_type<DTYPE> type;
    const uint32_t step = gw_quanta_step_log2(codec.block_log2), last = (1u << step) - 1;
    const uint32_t before = b << (codec.block_log2 - step);
    const uint16_t *weights =
        gw_quanta_weight_lookup.of[codec.dead_zone != 0 ? codec.rounding : (uint32_t)GW_QUANTA_NO_DEAD_ZONE];
    GW_NO_UNROLL
    for (uint32_t j = at; j << step < len; j += 4) {
        const uint32_t start = j << step, place = start + (GW_QUANTA_JUMP(before + j) & last);
        const uint32_t i = place < len ? place : start;
        const uint32_t bits = gw_element_load(values, DTYPE, i);
        const uint32_t wide = type::IS_FP16      ? __float_as_uint(gw_float_from_fp16(bits))
                              : DTYPE == GW_FP32 ? bits
                                                 : bits << 16;
        const uint32_t field = wide >> 23 & 255;
        const int32_t below = (int32_t)quantum - (int32_t)field + 2;
        const int32_t from = field == 0 || field == 255 || below > GW_QUANTA_NO_WEIGHT ? GW_QUANTA_NO_WEIGHT
                             : below < 0                                               ? 0
                                                                                       : below;
        GW_UNROLL
        for (int32_t k = 0; k <= GW_QUANTA_RAISES; k++) {
            sum[k] += weights[from + k];
        }
    }
}

/* Expected error of a block with a quantum that is `raises` octaves above the first one. */
GW_DEVICE double gw_quanta_error(const gw_quanta_state &s, uint32_t len, uint32_t log2, uint32_t b,
                                 uint32_t raises)
{
    const uint32_t own = gw_quanta_block_len(len, log2, b);
    const uint32_t step = gw_quanta_step_log2(log2), samples = (own + (1u << step) - 1) >> step;
    const double all = (double)own * (double)s.choice.weight[b][raises];
    return all / (double)(samples << GW_QUANTA_WEIGHT_LOG2) * gw_square_of_quantum(s.exponent[b] + raises);
}

/* Places of the blocks in the order of their quanta. Ends with a barrier. */
GW_DEVICE void gw_quanta_sort(gw_quanta_state &s, uint32_t blocks)
{
    GW_NO_UNROLL
    for (uint32_t b = threadIdx.x; b < blocks; b += GW_THREADS) {
        const uint32_t x = s.exponent[b];
        uint32_t place = 0;
        GW_NO_UNROLL
        for (uint32_t i = 0; i < blocks; i++) {
            const uint32_t other = s.exponent[i];
            place += other != 0 && (other < x || (other == x && i < b));
        }
        if (x != 0) {
            s.choice.order[place] = (uint16_t)b;
        }
    }
    __syncthreads();
}

/* raise_blocks() of src/gcomp/quanta_choice.c, by one thread. */
GW_DEVICE void gw_quanta_raise(gw_quanta_state &s, uint32_t len, uint32_t log2, uint32_t count, double sum,
                               double target)
{
    gw_quanta_choice &c = s.choice;
    uint32_t last = GW_BLOCKS_MAX;
    double least = 0;
    GW_NO_UNROLL
    for (uint32_t round = 0; round < GW_QUANTA_RAISES; round++) {
        GW_NO_UNROLL
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t b = c.order[i];
            if (c.raises[b] >> 4 != round || (c.raises[b] & 15) == round) {
                continue;
            }
            const double more =
                gw_quanta_error(s, len, log2, b, round + 1) - gw_quanta_error(s, len, log2, b, round);
            if (sum + more <= target) {
                sum += more;
                c.raises[b] += 16;
            } else if (last == GW_BLOCKS_MAX || more < least) {
                last = b;
                least = more;
            }
        }
    }
    const double blocks = (double)((len + (1u << log2) - 1) >> log2);
    if (last != GW_BLOCKS_MAX && blocks * least <= 8 * target && sum + 0.5 * least <= target) {
        c.raises[last] += 16;
    }
    GW_NO_UNROLL
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t b = c.order[i];
        s.exponent[b] = (uint8_t)(s.exponent[b] + (c.raises[b] >> 4));
    }
}

/* The first quantum of block b, which has the sum of squares, its weights and how often it may be raised, by
 * four threads of which each has its own quarter of the sample. b >= blocks: nothing. */
template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_start(gw_quanta_state &s, const gw_cuda_codec &codec, const uint8_t *values,
                               uint32_t len, uint32_t b, uint32_t blocks, double squares, double factor)
{
    const uint32_t t = threadIdx.x, lane = gw_lane(), log2 = codec.block_log2;
    const uint32_t own = b < blocks ? gw_quanta_block_len(len, log2, b) : 0;
    const uint32_t quantum = own == 0 ? 0 : gw_quantum_of_square<DTYPE>(factor * (squares / (double)own));
    uint32_t sum[GW_QUANTA_RAISES + 1] = {};
    if (quantum != 0) {
        gw_quanta_weigh<DTYPE>(sum, codec, values + gw_type<DTYPE>::SIZE * (b << log2), b, t & 3, own,
                               quantum);
    }
    GW_UNROLL
    for (uint32_t k = 0; k <= GW_QUANTA_RAISES; k++) {
        sum[k] += __shfl_sync(GW_FULL_MASK, sum[k], lane ^ 1);
        sum[k] += __shfl_sync(GW_FULL_MASK, sum[k], lane ^ 2);
    }
    if (b >= blocks || (t & 3) != 0) {
        return;
    }
    s.choice.squares[t >> 2] = squares;
    s.exponent[b] = (uint8_t)quantum;
    GW_UNROLL
    for (uint32_t k = 0; k <= GW_QUANTA_RAISES; k++) {
        s.choice.weight[b][k] = sum[k];
    }
    const uint32_t most = gw_type<DTYPE>::SPECIAL - 1 + gw_type<DTYPE>::BIAS;
    uint32_t raises = 0;
    GW_NO_UNROLL
    while (raises < GW_QUANTA_RAISES && quantum + raises < most &&
           gw_quanta_error(s, len, log2, b, raises + 1) <= 4 * (factor * squares)) {
        raises++;
    }
    s.choice.raises[b] = (uint8_t)raises;
}

/* Quanta of len values from the values, four threads a block. */
template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_of_error(gw_quanta_state &s, const gw_cuda_codec &codec, const uint8_t *values,
                                  uint32_t len)
{
    const uint32_t t = threadIdx.x, log2 = codec.block_log2, block_len = 1u << log2;
    const uint32_t blocks = (len + block_len - 1) >> log2;
    const double quanta_squared = codec.rounding == GW_GCOMP_TRUNCATE  ? 3
                                  : codec.rounding == GW_GCOMP_NEAREST ? 12
                                                                       : 6;
    const double factor = quanta_squared * (double)codec.target_nmse;
    double sum = 0, target = 0; /* of the first thread */
    uint32_t count = 0;
    GW_NO_UNROLL
    for (uint32_t at = 0; at < 4 * blocks; at += GW_THREADS) {
        const uint32_t b = (at + t) >> 2, lane = gw_lane();
        const uint32_t from = b < blocks ? b << log2 : len;
        const uint32_t own = len - from < block_len ? len - from : block_len;
        const double part = gw_sum_of_squares<DTYPE>(values + gw_type<DTYPE>::SIZE * from, t & 3, own);
        double quarter[4];
        GW_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            quarter[i] = __shfl_sync(GW_FULL_MASK, part, (lane & 28) + i);
        }
        const double squares = (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
        gw_quanta_start<DTYPE>(s, codec, values, len, b, blocks, squares, factor);
        __syncthreads();
        const uint32_t first = at >> 2, left = blocks - first;
        GW_NO_UNROLL
        for (uint32_t i = 0; t == 0 && i < (left < GW_THREADS / 4 ? left : GW_THREADS / 4); i++) {
            target += factor * s.choice.squares[i];
            if (s.exponent[first + i] != 0) {
                sum += gw_quanta_error(s, len, log2, first + i, 0);
                count++;
            }
        }
        __syncthreads();
    }
    gw_quanta_sort(s, blocks);
    if (t == 0) {
        gw_quanta_raise(s, len, log2, count, sum, target);
    }
}

/* Quanta of the len values of a chunk of the item, from `first` on, into s.exponent. */
template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_find(gw_quanta_state &s, const gw_cuda_codec &codec, const gw_cuda_map &map,
                              const gw_cuda_gcomp_item &item, uint64_t first, uint32_t len)
{
    const uint32_t t = threadIdx.x, log2 = codec.block_log2, block_len = 1u << log2;
    const uint32_t blocks = (len + block_len - 1) >> log2;
    if (map.is_present) {
        const int32_t drop_offset = gw_cuda_drop_offset(codec, gw_map_base(map));
        GW_NO_UNROLL
        for (uint32_t b = t >> 5; b < blocks; b += GW_WARPS) {
            const uint32_t at = b << log2, left = len - at;
            const uint32_t e = gw_quantum_of_map<DTYPE>(s.count[t >> 5], item.map_bytes + first + at,
                                                        left < block_len ? left : block_len, drop_offset);
            if (gw_lane() == 0) {
                s.exponent[b] = (uint8_t)e;
            }
        }
        return;
    }
    if (item.map_bytes != nullptr) {
        GW_NO_UNROLL
        for (uint32_t b = t; b < blocks; b += GW_THREADS) {
            s.exponent[b] = (uint8_t)gw_quantum_stored<DTYPE>(item.map_bytes[(first >> log2) + b]);
        }
        return;
    }
    gw_quanta_of_error<DTYPE>(s, codec, (const uint8_t *)item.src + gw_type<DTYPE>::SIZE * first, len);
}

/* Quanta of the len values of a chunk of the item, from `first` on, as the frame stores them, to out. Returns
 * the drop_offset of the chunk to all threads. Begins and ends with a barrier. */
template <uint32_t DTYPE>
GW_DEVICE int32_t gw_quanta_chunk(gw_quanta_state &s, const gw_cuda_codec &codec, const gw_cuda_map &map,
                                  const gw_cuda_gcomp_item &item, uint64_t first, uint32_t len, uint8_t *out)
{
    const uint32_t t = threadIdx.x, log2 = codec.block_log2;
    const uint32_t blocks = (len + (1u << log2) - 1) >> log2;
    __syncthreads();
    gw_quanta_find<DTYPE>(s, codec, map, item, first, len);
    __syncthreads();
    uint32_t largest = 0;
    GW_NO_UNROLL
    for (uint32_t b = t; b < blocks; b += GW_THREADS) {
        largest = s.exponent[b] > largest ? s.exponent[b] : largest;
    }
    largest = gw_block_max(largest, s.sums);
    /* Nothing is cut in blocks whose quantum is too far below the largest of the chunk. */
    GW_NO_UNROLL
    for (uint32_t b = t; b < blocks; b += GW_THREADS) {
        const uint32_t e = s.exponent[b];
        out[b] = (uint8_t)(e + GW_QUANTA_WINDOW < largest ? 0 : e);
    }
    __syncthreads();
    return gw_drop_offset_of_quanta<DTYPE>(largest);
}

#endif
