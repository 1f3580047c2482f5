/*
 * THC phase one at the usual shape: norms of rotated blocks of 1024 values (gw_thc_norms()).
 *
 * The contract has 64 accumulators: number j adds the squares of the values j, j + 64, ... in order. With 16
 * bytes a thread, V values, 64 / V lanes have them all, so a warp does V / 2 blocks at a time and holds them
 * in registers, for the largest magnitude and then for the squares. Shared memory is not needed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_warp.cuh"

enum { NORM_LOADS = 16 }; /* 16-byte words of a lane */

/* Four values from `at` on, and their error: two-byte elements by 8 bytes. */
template <uint32_t DTYPE, bool HAS_ERROR>
GW_DEVICE void load_vector(float *value, const uint8_t *src, const float *error, uint64_t at)
{
    if (DTYPE == GW_FP32) {
        warp_widen_vector<DTYPE>(value, *(const uint4 *)(const void *)(src + 4 * at));
    } else {
        const uint2 two = *(const uint2 *)(const void *)(src + 2 * at);
        value[0] = warp_widen<DTYPE>(two.x & 0xffffu);
        value[1] = warp_widen<DTYPE>(two.x >> 16);
        value[2] = warp_widen<DTYPE>(two.y & 0xffffu);
        value[3] = warp_widen<DTYPE>(two.y >> 16);
    }
    if (HAS_ERROR) {
        const float4 four = *(const float4 *)(const void *)(error + at);
        value[0] = gw_float_add_flush<true>(value[0], four.x);
        value[1] = gw_float_add_flush<true>(value[1], four.y);
        value[2] = gw_float_add_flush<true>(value[2], four.z);
        value[3] = gw_float_add_flush<true>(value[3], four.w);
    }
}

/* A lane's 16 times V values: in registers, or (not aligned, or after the end: zeros) read in place.
 * */
template <uint32_t DTYPE, bool HAS_ERROR> struct norm_lane {
    static constexpr bool IS_PACKED = DTYPE != GW_FP32 && !HAS_ERROR;
    static constexpr uint32_t V = IS_PACKED ? 8 : 4;
    static constexpr uint32_t LANES = 64 / V; /* of a block */
};

template <uint32_t DTYPE, bool HAS_ERROR> struct norm_registers : norm_lane<DTYPE, HAS_ERROR> {
    using base = norm_lane<DTYPE, HAS_ERROR>;
    static constexpr uint32_t UNROLL = NORM_LOADS;
    uint4 word[NORM_LOADS] = {}; /* V values, or four of them and their error */

    GW_DEVICE_MEMBER void load(const gw_cuda_thc_norm_params &p, uint64_t first)
    {
        GW_UNROLL for (uint32_t k = 0; k < NORM_LOADS; k++)
        {
            const uint64_t at = first + 64 * k;
            if (base::IS_PACKED) {
                word[k] = *(const uint4 *)(const void *)(p.src + 2 * at);
            } else {
                float value[4];
                if (HAS_ERROR && k >= NORM_LOADS / 2) {
                    __syncwarp(); /* which keeps loads from moving up: registers are scarce */
                }
                load_vector<DTYPE, HAS_ERROR>(value, p.src, p.error, at);
                word[k] = make_uint4(__float_as_uint(value[0]), __float_as_uint(value[1]),
                                     __float_as_uint(value[2]), __float_as_uint(value[3]));
            }
        }
    }

    /* Packed values are unpacked anew: twice as many registers are not there. */
    GW_DEVICE_MEMBER void forget(void)
    {
        if (base::IS_PACKED) {
            GW_UNROLL for (uint32_t k = 0; k < NORM_LOADS; k++)
            {
                word[k] = make_uint4(gw_word_now(word[k].x), gw_word_now(word[k].y), gw_word_now(word[k].z),
                                     gw_word_now(word[k].w));
            }
        }
    }

    GW_DEVICE_MEMBER void values(float *value, uint32_t k) const
    {
        if (base::IS_PACKED) {
            warp_widen_vector<DTYPE>(value, word[k]);
        } else {
            warp_widen_vector<GW_FP32>(value, word[k]);
        }
    }
};

template <uint32_t DTYPE, bool HAS_ERROR> struct norm_memory : norm_lane<DTYPE, HAS_ERROR> {
    using base = norm_lane<DTYPE, HAS_ERROR>;
    static constexpr uint32_t UNROLL = 1;
    const gw_cuda_thc_norm_params &p;
    uint64_t first;

    GW_DEVICE_MEMBER norm_memory(const gw_cuda_thc_norm_params &params, uint64_t own_first)
        : p(params), first(own_first)
    {
    }

    GW_DEVICE_MEMBER void values(float *value, uint32_t k) const
    {
        GW_UNROLL for (uint32_t c = 0; c < base::V; c++)
        {
            const uint64_t at = first + 64 * k + c;
            value[c] = at < p.span.element_count ? warp_load1<DTYPE, HAS_ERROR>(p.src, p.error, at) : 0.0f;
        }
    }
};

template <typename LANE> GW_DEVICE float top_of(const LANE &own)
{
    float value[8];
    float top = 0.0f;

    GW_UNROLL_BY(LANE::UNROLL) for (uint32_t k = 0; k < NORM_LOADS; k++)
    {
        own.values(value, k);
        GW_UNROLL for (uint32_t c = 0; c < LANE::V; c++)
        {
            top = gw_larger_magnitude(top, value[c]);
        }
    }
    return top;
}

/* The lane's accumulators. */
template <typename LANE> GW_DEVICE void add_squares(float *sum, const LANE &own, float least, float scale)
{
    float value[8];

    GW_UNROLL_BY(LANE::UNROLL) for (uint32_t k = 0; k < NORM_LOADS; k++)
    {
        own.values(value, k);
        GW_UNROLL for (uint32_t c = 0; c < LANE::V; c++)
        {
            const float x = __fmul_rn(fabsf(value[c]) < least ? 0.0f : value[c], scale);
            sum[c] = __fadd_rn(sum[c], __fmul_rn(x, x));
        }
    }
}

/* gw_thc_norm_fn by the lanes of a block. */
template <uint32_t DTYPE, bool HAS_ERROR>
GW_DEVICE uint32_t norm_of(const gw_cuda_thc_norm_params &p, uint64_t block_first, bool is_whole)
{
    constexpr uint32_t V = norm_lane<DTYPE, HAS_ERROR>::V;
    constexpr uint32_t LANES = norm_lane<DTYPE, HAS_ERROR>::LANES;
    const uint64_t first = block_first + V * (threadIdx.x & (LANES - 1));
    const norm_memory<DTYPE, HAS_ERROR> memory(p, first);
    norm_registers<DTYPE, HAS_ERROR> own;
    float top;

    if (is_whole) {
        own.load(p, first);
        top = top_of(own);
    } else {
        top = top_of(memory);
    }
    __syncwarp();
    GW_UNROLL for (uint32_t half = LANES / 2; half > 0; half /= 2)
    {
        top = gw_larger_magnitude(top, __shfl_xor_sync(GW_ALL_LANES, top, half));
    }
    const uint32_t largest = __float_as_uint(top) & GW_F32_ABS;
    /* NaN, infinity and zero get an arbitrary valid exponent: the result is not used. */
    const uint32_t exponent = largest >= GW_F32_INF || largest < GW_F32_MIN ? 127u : largest >> 23;
    const float least = __uint_as_float(gw_thc_window_floor(exponent));
    const float scale = gw_thc_window_scale(exponent);
    float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (is_whole) {
        own.forget();
        add_squares(sum, own, least, scale);
    } else {
        add_squares(sum, memory, least, scale);
    }
    __syncwarp();
    /* Strides 32, 16, ... of 64 accumulators: number V l + c is lane l's. */
    GW_UNROLL for (uint32_t stride = 32; stride > 0; stride /= 2)
    {
        GW_UNROLL for (uint32_t c = 0; c < V; c++)
        {
            if (stride >= V) {
                sum[c] = __fadd_rn(sum[c], __shfl_down_sync(GW_ALL_LANES, sum[c], stride / V));
            } else if (c < stride) {
                sum[c] = __fadd_rn(sum[c], sum[(c + stride) % V]);
            }
        }
    }
    const uint32_t root = __float_as_uint(__fsqrt_rn(sum[0]));
    const uint32_t result = (root >> 23) + exponent - 128u;
    if (largest >= GW_F32_INF || (largest >= GW_F32_MIN && result >= 255u)) {
        return GW_THC_NORM_NONFINITE;
    }
    return largest < GW_F32_MIN ? 0 : (result << 23) | (root & 0x7fffffu);
}

template <uint32_t DTYPE, bool HAS_ERROR> GW_DEVICE void norm_blocks(const gw_cuda_thc_norm_params &p)
{
    constexpr uint32_t LANES = norm_lane<DTYPE, HAS_ERROR>::LANES;
    constexpr uint32_t PER_WARP = 32 / LANES;
    const gw_cuda_thc_span &span = p.span;
    const uint32_t warps = blockDim.x / 32;
    const warp_run run = warp_run_of((span.block_count + warps * PER_WARP - 1) / (warps * PER_WARP));
    const uint32_t part = threadIdx.x / LANES;

    for (uint64_t group = run.first; group < run.end; group++) {
        const uint64_t number = group * (warps * PER_WARP) + part;
        uint32_t norm = norm_of<DTYPE, HAS_ERROR>(
            p, number << WARP_BLOCK_LOG2, p.is_aligned != 0 && warp_group_is_whole(span, group, PER_WARP));
        if ((threadIdx.x & (LANES - 1)) == 0 && number < span.block_count) {
            if (norm == GW_THC_NORM_NONFINITE) {
                if (p.context.nonfinite == GW_THC_NONFINITE_ERROR) {
                    thc_report(p.result, span.first_block + number, GW_ERR_NONFINITE);
                }
                norm = p.context.nonfinite == GW_THC_NONFINITE_ZERO ? 0 : norm;
            }
            p.patterns[number] = norm;
        }
        __syncwarp();
    }
    thc_finish(p.result, span.element_count);
}

/* 64 registers of values. */
GW_KERNELS_BY_DTYPE(gw_device_thc_warp_norm, gw_cuda_thc_norm_params, 2, norm_blocks, false)
GW_KERNELS_BY_DTYPE(gw_device_thc_warp_norm_error, gw_cuda_thc_norm_params, 2, norm_blocks, true)
