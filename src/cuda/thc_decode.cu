/*
 * THC receiver: lanes to values, by the number of contributors of every block (gw_thc_decode()).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_tile.cuh"

/* The 32 lanes of a row. */
template <uint32_t LANE_BITS>
GW_DEVICE void load_lanes(uint32_t lane[32], const uint8_t *lanes, uint64_t first)
{
    constexpr uint32_t IN_WORD = 32 / LANE_BITS;
    const uint4 *from = (const uint4 *)(const void *)(lanes + LANE_BITS / 8 * first);

    GW_UNROLL for (uint32_t i = 0; i < LANE_BITS / 4; i++)
    {
        uint32_t word[4];
        gw_words_of(word, from[i]);
        GW_UNROLL for (uint32_t j = 0; j < 4 * IN_WORD; j++)
        {
            lane[4 * IN_WORD * i + j] =
                word[j / IN_WORD] >> LANE_BITS * (j % IN_WORD) & (0xffffffffu >> (32 - LANE_BITS));
        }
    }
}

/* The same, for all widths; returns the largest. */
GW_DEVICE uint32_t load_row(uint32_t lane[32], const uint8_t *lanes, uint32_t lane_bits, uint64_t first)
{
    uint32_t largest = 0;

    if (lane_bits == 8) {
        load_lanes<8>(lane, lanes, first);
    } else if (lane_bits == 16) {
        load_lanes<16>(lane, lanes, first);
    } else {
        load_lanes<32>(lane, lanes, first);
    }
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        largest = lane[i] > largest ? lane[i] : largest;
    }
    return largest;
}

/* gw_thc_block_check() for the warp's blocks, the largest lane being in tile.own2: kind, members (in
 * tile.rescale), the first pattern (in tile.own) and the scale. */
GW_DEVICE void prepare_blocks(const thc_tile &tile, const gw_cuda_thc_decode_params &p,
                              const thc_share &share, uint64_t first_number)
{
    const gw_cuda_thc_span &span = p.span;
    const bool is_rotated = p.context.transform == GW_THC_ROTATED;

    for (uint32_t block = share.first + (threadIdx.x & 31); block < share.end; block += 32) {
        const uint64_t number = first_number + block;
        if (number >= span.block_count) {
            tile.kind[block] = THC_SKIP;
            continue;
        }
        const uint32_t members =
            p.members != nullptr ? p.members[number] : thc_load_count(p.counts, number, p.context.lane_bits);
        uint32_t patterns[2] = {p.patterns[is_rotated ? number : 2 * number], 0};
        if (!is_rotated) {
            patterns[1] = p.patterns[2 * number + 1];
        }
        const gw_thc_block_kind read = thc_read_block(p.context, patterns);
        uint32_t kind = THC_BAD;
        uint32_t status = GW_ERR_CORRUPT;
        if (members > p.context.worker_max) {
            status = GW_ERR_OVERFLOW;
        } else if (read != GW_THC_BLOCK_INVALID &&
                   tile.own2[block] <= (read == GW_THC_BLOCK_CODED ? members * p.context.granularity : 0)) {
            kind = members == 0                     ? THC_MISSING
                   : read == GW_THC_BLOCK_NONFINITE ? THC_NONFINITE
                   : is_rotated && patterns[0] == 0 ? THC_CONSTANT
                                                    : THC_CODED;
        }
        if (kind == THC_BAD) {
            thc_report(p.result, span.first_block + number, status);
        } else if (kind == THC_MISSING) {
            atomicAdd((unsigned long long *)(void *)&p.result->missing, (unsigned long long)1);
        } else if (kind == THC_CODED && is_rotated) {
            tile.scale[block] = __float_as_uint(
                thc_decode_scale(p.context, patterns[0], thc_block_lanes(span, number), members, p.is_mean));
        }
        tile.kind[block] = kind;
        tile.own[block] = patterns[0];
        tile.rescale[block] = members;
    }
}

/* Lanes of the thread's row to values, before the rotation. A row after the lanes of a short last block is
 * zeros. */
GW_DEVICE void unpack_rotated(const thc_tile &tile, const gw_cuda_thc_decode_params &p,
                              const uint32_t lane[32], bool has_lanes, float value[32])
{
    const uint32_t block = threadIdx.x * GW_THC_ROW >> p.span.block_log2;
    const bool is_coded = has_lanes && tile.kind[block] == THC_CODED;
    const float scale = __uint_as_float(is_coded ? tile.scale[block] : 0);
    const uint32_t center = is_coded ? tile.rescale[block] * p.context.granularity : 0;

    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const int32_t centred = (int32_t)(2 * lane[i]) - (int32_t)center;
        value[i] = is_coded ? __fmul_rn((float)centred, scale) : 0.0f;
    }
}

GW_DEVICE void unpack_plain(const thc_tile &tile, const gw_cuda_thc_decode_params &p, uint64_t first_number,
                            const uint32_t lane[32], float value[32])
{
    const uint32_t block = threadIdx.x * GW_THC_ROW >> p.span.block_log2;
    double step = 0.0;
    double base = 0.0;

    if (tile.kind[block] == THC_CODED) {
        const gw_thc_plain_extent extent = gw_thc_plain_extent_of(p.patterns + 2 * (first_number + block));
        const double members = (double)tile.rescale[block];
        step = (double)extent.width / (double)p.context.granularity;
        base = (double)extent.minimum;
        step = p.is_mean != 0 ? step / members : step;
        base = p.is_mean != 0 ? base : base * members;
    }
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = gw_narrow_double(__dadd_rn(__dmul_rn((double)lane[i], step), base));
    }
}

/* gw_thc_store_fn for one value. */
GW_DEVICE void store(uint8_t *dst, uint32_t dtype, uint64_t at, uint32_t bits)
{
    const bool is_nan = (bits & GW_F32_ABS) > GW_F32_INF;

    if (dtype == GW_FP32) {
        ((uint32_t *)(void *)dst)[at] = is_nan ? 0x7fc00000u : bits;
    } else if (dtype == GW_BF16) {
        ((uint16_t *)(void *)dst)[at] = (uint16_t)(is_nan ? 0x7fc0u : gw_narrow_bf16(bits));
    } else {
        const uint32_t half = is_nan ? 0x7e00u : gw_narrow_fp16(bits);
        ((uint16_t *)(void *)dst)[at] = (uint16_t)(half == 0x8000u ? 0 : half);
    }
}

/* Values by column to the destination, each by the kind of its block. */
GW_DEVICE void store_tile(const thc_tile &tile, const gw_cuda_thc_decode_params &p, const float value[32],
                          uint64_t tile_first)
{
    const gw_cuda_thc_span &span = p.span;
    const uint32_t row = threadIdx.x & ~31u;
    const bool is_rotated = p.context.transform == GW_THC_ROTATED;

    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint32_t block = (row + i) * GW_THC_ROW >> span.block_log2;
        const uint64_t at = tile_first + (row + i) * GW_THC_ROW + (threadIdx.x & 31);
        if (at < span.element_count) {
            const uint32_t kind = tile.kind[block];
            uint32_t bits = 0;
            if (kind == THC_CODED) {
                const uint32_t sign = is_rotated ? tile.sign[row + i] >> (threadIdx.x & 31) & 1 : 0;
                bits = __float_as_uint(is_rotated ? thc_unscale(value[i], sign, tile.own[block] >> 23)
                                                  : value[i]);
            } else if (kind == THC_NONFINITE) {
                bits = GW_THC_NORM_NONFINITE;
            }
            store(p.dst, p.context.dtype, at, bits);
        }
    }
}

GW_KERNEL(gw_device_thc_decode, gw_cuda_thc_decode_params, GW_THC_THREADS_MAX, 3)
{
    const thc_tile tile = thc_tile_of();
    const gw_cuda_thc_span &span = p.span;
    const gw_cuda_thc_key key = thc_key_of(p.context);
    const thc_share share = thc_blocks_of_warp(span.block_log2);
    const uint32_t block = threadIdx.x * GW_THC_ROW >> span.block_log2;

    for (uint64_t t = blockIdx.x; t < span.tile_count; t += gridDim.x) {
        const uint64_t tile_first = t * blockDim.x * GW_THC_ROW;
        const uint64_t first_number = tile_first >> span.block_log2;
        const uint64_t row_first = tile_first + threadIdx.x * GW_THC_ROW;
        uint32_t lane[32] = {0};
        uint32_t largest = 0;
        float value[32];

        for (uint32_t own = share.first + (threadIdx.x & 31); own < share.end; own += 32) {
            tile.own2[own] = 0;
        }
        if (row_first < span.lane_count) {
            largest = load_row(lane, p.lanes, p.context.lane_bits, row_first);
        }
        thc_sync(span.block_log2);
        atomicMax(&tile.own2[block], largest);
        thc_sync(span.block_log2);
        prepare_blocks(tile, p, share, first_number);
        thc_sync(span.block_log2);
        if (p.context.transform == GW_THC_ROTATED) {
            tile.sign[threadIdx.x] =
                thc_sign_word(key, (uint32_t)(span.first_block + first_number + block), span.block_log2);
            unpack_rotated(tile, p, lane, row_first < span.lane_count, value);
            thc_transform(tile, value, span.block_log2);
        } else {
            unpack_plain(tile, p, first_number, lane, value);
            thc_store_row(tile, value);
            __syncwarp();
            thc_load_column(tile, value);
        }
        store_tile(tile, p, value, tile_first);
        thc_sync(span.block_log2);
    }
    thc_finish(p.result, span.element_count);
}
