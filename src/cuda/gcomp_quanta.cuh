/*
 * The quanta of the blocks of a carried chunk, from a map, from the caller or from the values: the arithmetic
 * of src/gcomp/gcomp_encode_quanta.c, sums of squares in the same order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_QUANTA_CUH
#define GW_CUDA_GCOMP_QUANTA_CUH

#include "cuda/gcomp_round.cuh"
#include "cuda/gcomp_store.cuh"

struct gw_quanta_state {
    union {
        uint32_t count[GW_WARPS][256];  /* of map bytes */
        double squares[GW_THREADS / 4]; /* sums of blocks, until the target of the chunk has them */
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

/* raise_smallest() of src/gcomp/gcomp_encode_quanta.c, by one thread. */
template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_raise(gw_quanta_state &s, uint32_t len, uint32_t log2, double sum, double target)
{
    const uint32_t most = gw_type<DTYPE>::SPECIAL - 1 + gw_type<DTYPE>::BIAS;
    const uint32_t blocks = (len + (1u << log2) - 1) >> log2;
    uint32_t exponent = most, end = blocks;
    GW_NO_UNROLL
    for (uint32_t b = 0; b < blocks; b++) {
        exponent = s.exponent[b] != 0 && s.exponent[b] < exponent ? s.exponent[b] : exponent;
    }
    uint32_t next = exponent;
    GW_NO_UNROLL
    while (next < most && end == blocks) {
        exponent = next;
        next = most;
        const double square = gw_square_of_quantum(exponent);
        GW_NO_UNROLL
        for (uint32_t b = 0; b < blocks && end == blocks; b++) {
            if (s.exponent[b] == exponent) {
                const uint32_t left = len - (b << log2);
                const double own = (double)(left < 1u << log2 ? left : 1u << log2) * square;
                end = sum + 1.5 * own > target ? b : blocks;
                sum += 3 * own;
            } else if (s.exponent[b] > exponent) {
                next = s.exponent[b] < next ? s.exponent[b] : next;
            }
        }
    }
    GW_NO_UNROLL
    for (uint32_t b = 0; b < blocks; b++) {
        const uint32_t x = s.exponent[b];
        s.exponent[b] = (uint8_t)(x + (x != 0 && x < most && (x < exponent || (x == exponent && b < end))));
    }
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
        if (b < blocks && (t & 3) == 0) {
            const double squares = (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
            s.squares[t >> 2] = squares;
            s.exponent[b] = (uint8_t)gw_quantum_of_square<DTYPE>(factor * (squares / (double)own));
        }
        __syncthreads();
        const uint32_t first = at >> 2, left = blocks - first;
        GW_NO_UNROLL
        for (uint32_t i = 0; t == 0 && i < (left < GW_THREADS / 4 ? left : GW_THREADS / 4); i++) {
            const uint32_t x = s.exponent[first + i], rest = len - ((first + i) << log2);
            target += factor * s.squares[i];
            sum += x == 0 ? 0 : (double)(rest < block_len ? rest : block_len) * gw_square_of_quantum(x);
        }
        __syncthreads();
    }
    if (t == 0) {
        gw_quanta_raise<DTYPE>(s, len, log2, sum, target);
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
