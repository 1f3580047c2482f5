/*  THC at its usual shape, rotated blocks of 1024 values: a warp does a block, and no barrier is wider than
 * the warp. A block of threads goes through a run of the range, so that what a warp works out once serves
 * several blocks, and the next block's input can be copied while this one is computed.
 *
 *   row     thread l holds values 32 l .. 32 l + 31: butterflies of strides 1 to 16 column  thread l holds
 *   values 32 i + l, i = 0..31: those of 32 to 512
 *
 * Values change hands through rows of 36 words: rows are written and read 16 bytes at a time, eight threads
 * on all banks, and a column's words on different banks.
 *
 * A short last block is one of 1024 values whose upper ones are zero (thc_tile.cuh explains why that is
 * correct).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 * */
#ifndef GW_CUDA_THC_WARP_CUH
#define GW_CUDA_THC_WARP_CUH

#include "cuda/thc_tile.cuh"

enum {
    WARP_PITCH = 36, /* words of a row */
    WARP_SIGNS = 4,  /* groups whose sign words a warp makes at a time */
    WARP_BLOCK_LOG2 = 10
};

/* A group: one block of values for each warp. Groups first .. end - 1 are those of the block of threads, so
 * all of its warps run as many times and the compiler sees that no warp diverges there. The last group of the
 * range may have fewer. */
struct warp_run {
    uint64_t first, end;
};

GW_DEVICE warp_run warp_run_of(uint64_t group_count)
{
    const uint64_t share = group_count / gridDim.x;
    const uint32_t rest = (uint32_t)(group_count % gridDim.x);
    warp_run run;

    run.first = share * blockIdx.x + (blockIdx.x < rest ? blockIdx.x : rest);
    run.end = run.first + share + (blockIdx.x < rest ? 1 : 0);
    return run;
}

/* The blocks of `per_warp` warps each up to the end of `group` have all their elements. */
GW_DEVICE bool warp_group_is_whole(const gw_cuda_thc_span &span, uint64_t group, uint32_t per_warp)
{
    return (group + 1) * (blockDim.x / 32 * per_warp) << WARP_BLOCK_LOG2 <= span.element_count;
}

/* Dynamic shared memory: of each warp its input, rows to change hands, sign words; then the rest. */
struct warp_memory {
    uint8_t *input;
    float *rows;
    uint32_t *signs; /* [WARP_SIGNS][32] */
    uint8_t *rest;
};

GW_DEVICE warp_memory warp_memory_of(uint32_t input_size)
{
    const uint32_t warps = blockDim.x / 32;
    const uint32_t warp = threadIdx.x / 32;
    uint8_t *base = &GW_SHARED(uint8_t);
    warp_memory memory;

    memory.input = base + warp * input_size;
    base += warps * input_size;
    memory.rows = (float *)(void *)(base + warp * GW_THC_WARP_ROWS_SIZE);
    base += warps * GW_THC_WARP_ROWS_SIZE;
    memory.signs = (uint32_t *)(void *)(base + warp * GW_THC_WARP_SIGNS_SIZE);
    memory.rest = base + warps * GW_THC_WARP_SIGNS_SIZE;
    return memory;
}

template <uint32_t DTYPE> GW_DEVICE float warp_widen(uint32_t raw)
{
    if (DTYPE == GW_FP32) {
        return __uint_as_float(raw);
    }
    return DTYPE == GW_BF16 ? __uint_as_float(raw << 16) : gw_float_from_fp16(raw);
}

/* Elements of a 16-byte word: four, or eight of two bytes. */
template <uint32_t DTYPE> GW_DEVICE void warp_widen_vector(float *value, uint4 four)
{
    uint32_t word[4];

    gw_words_of(word, four);
    GW_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        if (DTYPE == GW_FP32) {
            value[i] = __uint_as_float(word[i]);
        } else if (DTYPE == GW_BF16) {
            value[2 * i] = __uint_as_float(word[i] << 16);
            value[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
        } else {
            value[2 * i] = gw_float_from_fp16(word[i]);
            value[2 * i + 1] = gw_float_from_fp16(word[i] >> 16);
        }
    }
}

/* Input and error of element `at`, as gw_thc_load_fn has it but for the sign of zero. */
template <uint32_t DTYPE, bool HAS_ERROR>
GW_DEVICE float warp_load1(const uint8_t *src, const float *error, uint64_t at)
{
    const float x = warp_widen<DTYPE>(gw_element_load(src, DTYPE, at));
    return HAS_ERROR ? gw_float_add_flush<true>(x, error[at]) : x;
}

/* ---- rotation ------------------------------------------------------------------------------------------ */

GW_DEVICE void warp_put4(float *row, uint32_t i, const float *value)
{
    *(float4 *)(void *)(row + 4 * i) = make_float4(value[0], value[1], value[2], value[3]);
}

GW_DEVICE void warp_get4(float *value, const float *from)
{
    const float4 four = *(const float4 *)(const void *)from;
    value[0] = four.x;
    value[1] = four.y;
    value[2] = four.z;
    value[3] = four.w;
}

/* The Walsh-Hadamard butterfly of a block: values by row in, by column out. No thread may still read rows. */
GW_DEVICE void warp_transform(float *rows, float value[32])
{
    const uint32_t lane = threadIdx.x & 31;

    thc_butterfly(value, 5);
    GW_UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        warp_put4(rows + lane * WARP_PITCH, i, value + 4 * i);
    }
    __syncwarp();
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = rows[i * WARP_PITCH + lane];
    }
    thc_butterfly(value, 5);
}

/* Sign words of the rows of the warp's blocks in WARP_SIGNS groups, whose first is block `first` of the
 * tensor: lane l makes four, of rows 4 (l % 8) to 4 (l % 8) + 3 of block l / 8. */
GW_DEVICE void warp_make_signs(uint32_t *signs, const gw_cuda_thc_key &key, uint64_t first)
{
    const uint32_t lane = threadIdx.x & 31;
    uint32_t word[4];

    gw_philox4x32(word, key.seed, lane & 7, (uint32_t)first + (lane >> 3) * (blockDim.x / 32), key.round,
                  GW_THC_DOMAIN_SIGNS);
    *(uint4 *)(void *)(signs + 4 * lane) = gw_four_of(word);
}

/* Values by column, as thc_unscale() has them: the sign bits of rows are the words at `signs`. The
 * exponent is the warp's. */
GW_DEVICE void warp_unscale(float value[32], const uint32_t *signs, uint32_t exponent)
{
    const uint32_t shift = 31 - (threadIdx.x & 31);

    if (exponent > 127) { /* they may become infinite, which a product towards zero would not */
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            value[i] = __fmul_rn(value[i], __uint_as_float(exponent << 23));
        }
        exponent = 127;
    }
    const float scale = __uint_as_float(exponent << 23);
    GW_UNROLL for (uint32_t k = 0; k < 8; k++)
    {
        uint32_t word[4];
        gw_words_of(word, *(const uint4 *)(const void *)(signs + 4 * k));
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            const uint32_t sign = word[i] << shift & 0x80000000u;
            const float x = __uint_as_float(__float_as_uint(value[4 * k + i]) ^ sign);
            /* Results that would be subnormal are +0, and so is -0. A value itself is never subnormal: it is
             * a multiple of the last place of a scale that is far from it. */
            value[4 * k + i] = __fadd_rn(gw_scale_flush(x, scale), 0.0f);
        }
    }
}

#endif
