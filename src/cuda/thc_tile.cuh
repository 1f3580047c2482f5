/*
 * A tile of THC: 32 values a thread, 1024 a warp, any number of whole blocks. Values change hands through
 * shared memory.
 *
 *   by row     thread t holds positions 32 t .. 32 t + 31 of the tile
 *   by column  lane l of warp w holds positions 1024 w + 32 i + l, i = 0..31
 *
 * Rows serve the butterflies of strides 1 to 16, columns those of 32 to 512; wider strides, of blocks above
 * 1024 values, work in shared memory. A row starts 33 words after the one before, so neither view has bank
 * conflicts. Blocks of up to 1024 values never leave their warp, and then barriers are barriers of the warp.
 *
 * The last block of a tensor may have fewer lanes than the others. It is treated as a full one whose upper
 * values are zero: an upper half of zeros changes the lower one by adding +0, which at most turns -0 into +0,
 * and no result depends on that sign.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_THC_TILE_CUH
#define GW_CUDA_THC_TILE_CUH

#include "cuda/device.cuh"

#include "core/wire_values.h"
#include "core/philox.h"
#include "thc/thc_window.h"
#include "thc/thc_plain.h"
#include "cuda/thc_params.h"

#define GW_ROW_PITCH   33u
#define GW_WARP_VALUES 1024u
#define GW_ALL_LANES   0xffffffffu

enum { GW_CELLS = 256, GW_ENTRIES = GW_CELLS + 16 };

/* Findings about the blocks of a tile. */
enum thc_kind {
    THC_SKIP, /* beyond the range */
    THC_BAD,  /* reported */
    THC_CODED,
    THC_CONSTANT,  /* norm 0, or width 0: indices and lanes are zero */
    THC_NONFINITE, /* marked */
    THC_MISSING    /* no contributor */
};

/* Dynamic shared memory: rows of 33 words, then arrays by row, then arrays by block. */
struct thc_tile {
    float *x;
    uint32_t *sign;    /* [threads]: a word of sign bits a row */
    uint32_t *kind;    /* [threads / 2]: the arrays by block */
    uint32_t *own;     /* pattern */
    uint32_t *own2;    /* second pattern of plain blocks; decode: the largest lane */
    uint32_t *scale;   /* bits of the quantizer's or the decoder's scale */
    uint32_t *rescale; /* of the decoder's, where the error is computed */
    uint32_t *entry;   /* [GW_CELLS] by grid cell: index, value << 8, gap << 16; then [16] the table */
};

/* Words of shared memory; thc_shared_size() of the host agrees. */
#define GW_THC_SHARED_WORDS(threads) ((threads) * (GW_ROW_PITCH + 1u) + (threads) / 2u * 5u + GW_ENTRIES)

GW_DEVICE thc_tile thc_tile_of(void)
{
    thc_tile tile;
    const uint32_t threads = blockDim.x;

    tile.x = &GW_SHARED(float);
    tile.sign = (uint32_t *)(void *)(tile.x + threads * GW_ROW_PITCH);
    tile.kind = tile.sign + threads;
    tile.own = tile.kind + threads / 2;
    tile.own2 = tile.own + threads / 2;
    tile.scale = tile.own2 + threads / 2;
    tile.rescale = tile.scale + threads / 2;
    tile.entry = tile.rescale + threads / 2;
    return tile;
}

GW_DEVICE uint32_t thc_place(uint32_t position)
{
    return position + (position >> 5);
}

/* Barrier of the threads that share blocks. */
GW_DEVICE void thc_sync(uint32_t block_log2)
{
    if (block_log2 > 10) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

/* Element `at`, or four of them, as gw_thc_load_fn has it. */
GW_DEVICE float thc_widen(uint32_t raw, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        return __uint_as_float(raw);
    }
    return __uint_as_float(dtype == GW_BF16 ? raw << 16 : gw_widen_fp16(raw));
}

GW_DEVICE float thc_join_error(float value, float error)
{
    return gw_f32_flush(value + gw_f32_flush(error));
}

GW_DEVICE float thc_load1(const uint8_t *src, const float *error, uint32_t dtype, uint64_t at)
{
    const float value = gw_f32_flush(thc_widen(gw_element_load(src, dtype, at), dtype));
    return error != nullptr ? thc_join_error(value, error[at]) : value;
}

GW_DEVICE void thc_load4(float value[4], const uint8_t *src, const float *error, uint32_t dtype, uint64_t at)
{
    uint32_t raw[4];
    if (dtype == GW_FP32) {
        gw_words_of(raw, *(const uint4 *)(const void *)(src + 4 * at));
    } else {
        const uint2 two = *(const uint2 *)(const void *)(src + 2 * at);
        raw[0] = two.x & 0xffffu;
        raw[1] = two.x >> 16;
        raw[2] = two.y & 0xffffu;
        raw[3] = two.y >> 16;
    }
    for (int c = 0; c < 4; c++) {
        value[c] = gw_f32_flush(thc_widen(raw[c], dtype));
    }
    if (error != nullptr) {
        const float4 four = *(const float4 *)(const void *)(error + at);
        value[0] = thc_join_error(value[0], four.x);
        value[1] = thc_join_error(value[1], four.y);
        value[2] = thc_join_error(value[2], four.z);
        value[3] = thc_join_error(value[3], four.w);
    }
}

/* The warp's 1024 values into the tile, elements beyond the range as +0. A quarter-warp reads 128 bytes at a
 * time. */
GW_DEVICE void thc_load_tile(const thc_tile &tile, const gw_cuda_thc_span &span, const uint8_t *src,
                             const float *error, uint32_t dtype, uint32_t is_aligned, uint64_t tile_first)
{
    const uint32_t warp_first = threadIdx.x / 32 * GW_WARP_VALUES;

    GW_UNROLL for (uint32_t k = 0; k < 8; k++)
    {
        const uint32_t position = warp_first + 128 * k + 4 * (threadIdx.x & 31);
        const uint64_t at = tile_first + position;
        float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (is_aligned != 0 && at + 4 <= span.element_count) {
            thc_load4(value, src, error, dtype, at);
        } else {
            for (uint32_t c = 0; c < 4; c++) {
                if (at + c < span.element_count) {
                    value[c] = thc_load1(src, error, dtype, at + c);
                }
            }
        }
        GW_UNROLL for (uint32_t c = 0; c < 4; c++)
        {
            tile.x[thc_place(position + c)] = value[c];
        }
    }
}

/* ---- blocks of a tile ---------------------------------------------------------------------------------- */

/* Blocks that a warp measures (is_first: and how far apart), and blocks whose scalars a thread works out.
 * Blocks wider than a warp are those of its first warp. */
struct thc_share {
    uint32_t first, end; /* blocks of the tile */
};

/* Blocks that start in the warp's 1024 values. */
GW_DEVICE thc_share thc_blocks_of_warp(uint32_t block_log2)
{
    const uint32_t warp_first = threadIdx.x / 32 * GW_WARP_VALUES;
    const uint32_t mask = (1u << block_log2) - 1;
    thc_share share;

    share.first = (warp_first + mask) >> block_log2;
    share.end = (warp_first + GW_WARP_VALUES + mask) >> block_log2;
    return share;
}

/* Elements of block `number` of the range. */
GW_DEVICE uint32_t thc_block_len(const gw_cuda_thc_span &span, uint64_t number)
{
    const uint64_t first = number << span.block_log2;
    const uint64_t rest = span.element_count - first;
    return rest < (1u << span.block_log2) ? (uint32_t)rest : 1u << span.block_log2;
}

/* Lanes of block `number` of the range. */
GW_DEVICE uint32_t thc_block_lanes(const gw_cuda_thc_span &span, uint64_t number)
{
    const uint64_t rest = span.lane_count - (number << span.block_log2);
    return rest < (1u << span.block_log2) ? (uint32_t)rest : 1u << span.block_log2;
}

/* gw_thc_norm_fn by one warp over a whole block, zeros after its elements included: they add +0 to sums that
 * are not negative. Two accumulators a lane are the 64 of the contract. */
GW_DEVICE uint32_t thc_norm_of(const thc_tile &tile, uint32_t first, uint32_t len)
{
    const uint32_t lane = threadIdx.x & 31;
    uint32_t largest = 0;

    for (uint32_t i = lane; i < len; i += 32) {
        const uint32_t magnitude = __float_as_uint(tile.x[thc_place(first + i)]) & GW_F32_ABS;
        largest = magnitude > largest ? magnitude : largest;
    }
    largest = __reduce_max_sync(GW_ALL_LANES, largest);
    if (largest >= GW_F32_INF) {
        return GW_THC_NORM_NONFINITE;
    }
    if (largest == 0) {
        return 0;
    }
    const uint32_t exponent = largest >> 23;
    const uint32_t floor_bits = gw_thc_window_floor(exponent);
    const float scale = gw_thc_window_scale(exponent);
    float low = 0.0f;
    float high = 0.0f;
    for (uint32_t i = lane; i < len; i += 64) {
        const float a = gw_thc_window(tile.x[thc_place(first + i)], floor_bits, scale);
        const float b = gw_thc_window(tile.x[thc_place(first + i + 32)], floor_bits, scale);
        low = __fadd_rn(low, __fmul_rn(a, a));
        high = __fadd_rn(high, __fmul_rn(b, b));
    }
    low = __fadd_rn(low, high);
    for (uint32_t half = 16; half > 0; half /= 2) {
        /* lanes from `half` on are done with */
        low = __fadd_rn(low, __shfl_down_sync(GW_ALL_LANES, low, half));
    }
    const uint32_t root = __float_as_uint(__fsqrt_rn(__shfl_sync(GW_ALL_LANES, low, 0)));
    const uint32_t result_exponent = (root >> 23) + exponent - 128u;
    return result_exponent >= 255u ? GW_THC_NORM_NONFINITE : (result_exponent << 23) | (root & 0x7fffffu);
}

GW_DEVICE uint32_t thc_order_code(uint32_t bits)
{
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

/* gw_thc_extent_fn by one warp over the len elements of a block. */
GW_DEVICE void thc_extent_of(uint32_t patterns[2], const thc_tile &tile, uint32_t first, uint32_t len)
{
    uint32_t above = 0;
    uint32_t below = 0;
    uint32_t is_marked = 0;

    for (uint32_t i = threadIdx.x & 31; i < len; i += 32) {
        const uint32_t bits = __float_as_uint(tile.x[thc_place(first + i)]);
        const uint32_t code = thc_order_code(bits);
        const uint32_t negated = thc_order_code(bits == 0 ? 0 : bits ^ 0x80000000u);
        is_marked |= (bits & GW_F32_ABS) >= GW_THC_EXTENT_LIMIT;
        above = code > above ? code : above;
        below = negated > below ? negated : below;
    }
    above = __reduce_max_sync(GW_ALL_LANES, above);
    below = __reduce_max_sync(GW_ALL_LANES, below);
    is_marked = __reduce_max_sync(GW_ALL_LANES, is_marked);
    patterns[0] = is_marked != 0 ? GW_THC_NONFINITE_CODE : above;
    patterns[1] = is_marked != 0 ? GW_THC_NONFINITE_CODE : below;
}

/* A block's own patterns by its policy, into the tile's arrays; the return value is 1 where the policy
 * refuses the block. */
GW_DEVICE uint32_t thc_measure(const thc_tile &tile, const gw_cuda_thc_context &context, uint32_t block,
                               uint32_t first, uint32_t len)
{
    uint32_t patterns[2] = {0, 0};
    const bool is_rotated = context.transform == GW_THC_ROTATED;
    uint32_t is_refused = 0;

    if (is_rotated) {
        patterns[0] = thc_norm_of(tile, first, (len + 63) / 64 * 64);
    } else {
        thc_extent_of(patterns, tile, first, len);
    }
    if (patterns[0] == (is_rotated ? GW_THC_NORM_NONFINITE : GW_THC_NONFINITE_CODE)) {
        is_refused = context.nonfinite == GW_THC_NONFINITE_ERROR;
        if (context.nonfinite == GW_THC_NONFINITE_ZERO) {
            patterns[0] = is_rotated ? 0 : 0x80000000u; /* the patterns of zeros */
            patterns[1] = is_rotated ? 0 : 0x80000000u;
        }
    }
    if ((threadIdx.x & 31) == 0) {
        tile.own[block] = patterns[0];
        tile.own2[block] = patterns[1];
    }
    return is_refused;
}

/* gw_thc_block_read(): what the reduced patterns mean for a block. */
GW_DEVICE gw_thc_block_kind thc_read_block(const gw_cuda_thc_context &context, const uint32_t patterns[2])
{
    const int marks_allowed = context.nonfinite == GW_THC_NONFINITE_PROPAGATE;

    if (context.transform == GW_THC_PLAIN) {
        return gw_thc_plain_read(patterns, marks_allowed);
    }
    const uint32_t norm = patterns[0];
    if (norm == 0) {
        return GW_THC_BLOCK_CONSTANT;
    }
    if (norm >= GW_F32_MIN && norm < GW_F32_INF) {
        return GW_THC_BLOCK_CODED;
    }
    return norm == GW_THC_NORM_NONFINITE && marks_allowed ? GW_THC_BLOCK_NONFINITE : GW_THC_BLOCK_INVALID;
}

/* The maxima of a block against its own patterns: what is to be done with it. */
GW_DEVICE uint32_t thc_block_kind(const gw_cuda_thc_encode_params &p, const uint32_t own[2],
                                  const uint32_t maxima[2], uint32_t *status)
{
    const gw_thc_block_kind kind = thc_read_block(p.context, maxima);
    const bool is_rotated = p.context.transform == GW_THC_ROTATED;

    if (is_rotated && p.own_patterns != nullptr && thc_read_block(p.context, own) == GW_THC_BLOCK_INVALID) {
        *status = own[0] == GW_THC_NORM_NONFINITE ? GW_ERR_NONFINITE : GW_ERR_ARG;
    } else if (kind == GW_THC_BLOCK_INVALID) {
        *status = GW_ERR_CORRUPT;
    } else if (own[0] > maxima[0] || (!is_rotated && own[1] > maxima[1])) {
        *status = GW_ERR_STATE;
    } else {
        return kind == GW_THC_BLOCK_CODED      ? THC_CODED
               : kind == GW_THC_BLOCK_CONSTANT ? THC_CONSTANT
                                               : THC_NONFINITE;
    }
    return THC_BAD;
}

/* rotated_quantizer() of thc/thc_encode.c: the scale, the only part that is computed. */
GW_DEVICE float thc_rotated_scale(const gw_cuda_thc_context &context, uint32_t own_norm, uint32_t max_norm)
{
    const double norm = (double)__uint_as_float(max_norm) * gw_f64_pow2(128 - (int)(own_norm >> 23));
    const double scale = context.range_scale / norm;
    return scale < 0x1p-126 ? 0.0f : (float)scale;
}

/* ---- rotation ------------------------------------------------------------------------------------------ */

/* Sign bits of the thread's row of block number `block` (in the tensor): word (v / 32) % 4 of counter v /
 * 128, v the row's first value within the block. */
GW_DEVICE uint32_t thc_sign_word(const gw_cuda_thc_key &key, uint32_t block, uint32_t block_log2)
{
    const uint32_t v = threadIdx.x * GW_THC_ROW & ((1u << block_log2) - 1);
    uint32_t word[4];

    gw_philox4x32(word, key.seed, v / 128, block, key.round, GW_THC_DOMAIN_SIGNS);
    const uint32_t low = (v & 32) != 0 ? word[1] : word[0];
    const uint32_t high = (v & 32) != 0 ? word[3] : word[2];
    return (v & 64) != 0 ? high : low;
}

/* Random words of a pair of lanes 16 apart, each of which has worked out those of one group of 128 values:
 * its lanes use halves of the same words. The lane's bits of the lower lane's group, two values a word, then
 * of the upper's. */
GW_DEVICE void thc_share_words(uint32_t out[4], const uint32_t word[4])
{
    const bool is_upper = (threadIdx.x & 16) != 0;
    const uint32_t keep = is_upper ? 0x7632 : 0x5410;
    const uint32_t give = is_upper ? 0x5410 : 0x7632;

    GW_UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const uint32_t mine = gw_permute(word[2 * i], word[2 * i + 1], keep);
        const uint32_t theirs =
            __shfl_xor_sync(GW_ALL_LANES, gw_permute(word[2 * i], word[2 * i + 1], give), 16);
        out[i] = is_upper ? theirs : mine;
        out[2 + i] = is_upper ? mine : theirs;
    }
}

/* Butterflies of strides 1, 2, 4, ... between the 32 values that a thread holds; `levels` strides. */
GW_DEVICE void thc_butterfly(float value[32], uint32_t quantum_mode)
{
    GW_UNROLL for (uint32_t level = 0; level < 5; level++)
    {
        if (level < quantum_mode) {
            GW_UNROLL for (uint32_t i = 0; i < 32; i++)
            {
                if ((i >> level & 1) == 0) {
                    const float a = value[i];
                    const float b = value[i + (1u << level)];
                    value[i] = __fadd_rn(a, b);
                    value[i + (1u << level)] = __fsub_rn(a, b);
                }
            }
        }
    }
}

GW_DEVICE void thc_clear(float value[32])
{
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = 0.0f;
    }
}

GW_DEVICE void thc_store_row(const thc_tile &tile, const float value[32])
{
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        tile.x[threadIdx.x * GW_ROW_PITCH + i] = value[i];
    }
}

GW_DEVICE void thc_load_row(const thc_tile &tile, float value[32])
{
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = tile.x[threadIdx.x * GW_ROW_PITCH + i];
    }
}

/* Column element i of the thread: row (threadIdx.x & ~31) + i, place threadIdx.x & 31. */
GW_DEVICE uint32_t thc_column_place(uint32_t i)
{
    return ((threadIdx.x & ~31u) + i) * GW_ROW_PITCH + (threadIdx.x & 31);
}

GW_DEVICE void thc_load_column(const thc_tile &tile, float value[32])
{
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = tile.x[thc_column_place(i)];
    }
}

/* The whole Walsh-Hadamard butterfly: values by row in, by column out. No thread may still read the tile. */
GW_DEVICE void thc_transform(const thc_tile &tile, float value[32], uint32_t block_log2)
{
    thc_butterfly(value, 5);
    thc_store_row(tile, value);
    __syncwarp();
    thc_load_column(tile, value);
    thc_butterfly(value, block_log2 < 10 ? block_log2 - 5 : 5);
    if (block_log2 > 10) {
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            tile.x[thc_column_place(i)] = value[i];
        }
        for (uint32_t level = 10; level < block_log2; level++) {
            const uint32_t stride = 1u << level;
            __syncthreads();
            for (uint32_t pair = threadIdx.x; pair < blockDim.x * (GW_THC_ROW / 2); pair += blockDim.x) {
                const uint32_t low = (pair >> level << (level + 1)) | (pair & (stride - 1));
                const float a = tile.x[thc_place(low)];
                const float b = tile.x[thc_place(low + stride)];
                tile.x[thc_place(low)] = __fadd_rn(a, b);
                tile.x[thc_place(low + stride)] = __fsub_rn(a, b);
            }
        }
        __syncthreads();
        thc_load_column(tile, value);
    }
}

/* The decoder's scale: gw_thc_block_decode(). */
GW_DEVICE float thc_decode_scale(const gw_cuda_thc_context &context, uint32_t norm, uint32_t lanes,
                                 uint32_t members, uint32_t is_mean)
{
    const double unit_norm = (double)__uint_as_float((norm & 0x7fffffu) | 0x3f800000u);
    double scale = context.step * (unit_norm / (double)lanes);

    if (is_mean != 0) {
        scale /= (double)members;
    }
    return (float)scale;
}

/* Last step of gw_thc_rotate_back_fn: sign bit, then the power of two of the norm's exponent. */
GW_DEVICE float thc_unscale(float value, uint32_t is_negated, uint32_t exponent)
{
    const uint32_t floor_bits = exponent < 128u ? (128u - exponent) << 23 : 1u;
    const uint32_t bits = __float_as_uint(value) ^ is_negated << 31;
    return (bits & GW_F32_ABS) < floor_bits
               ? 0.0f
               : __fmul_rn(__uint_as_float(bits), __uint_as_float(exponent << 23));
}

/* Count lane i. */
GW_DEVICE uint32_t thc_load_count(const uint8_t *counts, uint64_t i, uint32_t lane_bits)
{
    if (lane_bits == 8) {
        return counts[i];
    }
    return lane_bits == 16 ? ((const uint16_t *)(const void *)counts)[i]
                           : ((const uint32_t *)(const void *)counts)[i];
}

/* ---- results ------------------------------------------------------------------------------------------- */

/* A bad block. The result was cleared, so the largest complement is the lowest block. */
GW_DEVICE void thc_report(gw_cuda_result *result, uint64_t block, uint32_t status)
{
    atomicMax((unsigned long long *)(void *)&result->bad_index, ~(unsigned long long)(block << 8 | status));
}

/* At the end of a kernel, by all threads: the last block of the grid turns the report into a result. */
GW_DEVICE void thc_finish(gw_cuda_result *result, uint64_t len)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(&result->bad_frame, 1u) + 1 == gridDim.x) {
            __threadfence();
            const unsigned long long report =
                ~atomicMax((unsigned long long *)(void *)&result->bad_index, (unsigned long long)0);
            const bool is_bad = report != ~(unsigned long long)0;
            result->status = is_bad ? (uint32_t)(report & 255) : 0;
            result->bad_index = is_bad ? report >> 8 : UINT64_MAX;
            result->len = is_bad ? 0 : len;
            result->bad_frame = 0;
        }
    }
}

GW_DEVICE gw_cuda_thc_key thc_key_of(const gw_cuda_thc_context &context)
{
    return context.device_key != nullptr ? *context.device_key : context.key;
}

#endif
