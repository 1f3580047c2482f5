/*
 * THC receiver at its usual shape: rotated blocks of 1024 values, lanes of 8 or 16 bits (gw_thc_decode()).
 *
 * Lanes come by asynchronous copies while the block before is computed; results leave through shared memory,
 * 16 bytes a thread.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_warp.cuh"

/* Byte of the 16-byte word `word` of the lanes. Rows are two or four words; a word is left out after every
 * eight or four, so that eight threads with a row each read from all banks. */
template <uint32_t LANE_BITS> GW_DEVICE uint32_t lanes_place(uint32_t word)
{
    return 16 * (word + (LANE_BITS == 8 ? word / 8 : word / 4));
}

/* Starts the copy of the lanes of block `number` to shared memory, zeros after the last. */
template <uint32_t LANE_BITS>
GW_DEVICE void fetch_lanes(uint8_t *lanes, const gw_cuda_thc_decode_params &p, uint64_t number, bool is_whole)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint8_t *from = p.lanes + number * (LANE_BITS * 128) + 16 * lane;

    if (is_whole) {
        const uint32_t to = gw_place_of(lanes + lanes_place<LANE_BITS>(lane)); /* 32 words on: 4 or 8 gaps */
        GW_UNROLL for (uint32_t k = 0; k < LANE_BITS / 4; k++)
        {
            gw_copy_async16(to + k * lanes_place<LANE_BITS>(32), from + 512 * k);
        }
        return;
    }
    const uint32_t count = number < p.span.block_count ? thc_block_lanes(p.span, number) : 0;
    GW_NO_UNROLL for (uint32_t k = 0; k < LANE_BITS / 4; k++)
    {
        uint4 *to = (uint4 *)(void *)(lanes + lanes_place<LANE_BITS>(lane + 32 * k));
        /* Lanes are multiples of 64, so whole words. */
        *to = 128 / LANE_BITS * (lane + 32 * k) < count ? *(const uint4 *)(const void *)(from + 512 * k)
                                                        : make_uint4(0, 0, 0, 0);
    }
}

/* The scalars of the warp's block in group b of 32, in lane b. The centre is members times granularity, at
 * most the largest lane, and the largest that is valid. */
struct block_facts {
    uint32_t packed; /* kind, exponent of the norm << 8, centre << 16 */
    uint32_t scale;
};

/* gw_thc_block_check() without the lanes. */
GW_DEVICE block_facts facts_of(const gw_cuda_thc_decode_params &p, uint64_t number, bool is_in_run)
{
    block_facts facts = {THC_SKIP | 127u << 8, 0};

    if (!is_in_run || number >= p.span.block_count) {
        return facts;
    }
    const uint32_t members =
        p.members != nullptr ? p.members[number] : thc_load_count(p.counts, number, p.context.lane_bits);
    const uint32_t patterns[2] = {p.patterns[number], 0};
    const gw_thc_block_kind read = thc_read_block(p.context, patterns);
    facts.packed = THC_BAD | 127u << 8;
    if (members > p.context.worker_max) {
        thc_report(p.result, p.span.first_block + number, GW_ERR_OVERFLOW);
    } else if (read == GW_THC_BLOCK_INVALID) {
        thc_report(p.result, p.span.first_block + number, GW_ERR_CORRUPT);
    } else if (members == 0) {
        facts.packed = THC_MISSING | 127u << 8;
    } else if (read != GW_THC_BLOCK_CODED) {
        facts.packed = (read == GW_THC_BLOCK_NONFINITE ? THC_NONFINITE : THC_CONSTANT) | 127u << 8;
    } else {
        facts.packed = THC_CODED | patterns[0] >> 23 << 8 | members * p.context.granularity << 16;
        facts.scale = __float_as_uint(
            thc_decode_scale(p.context, patterns[0], thc_block_lanes(p.span, number), members, p.is_mean));
    }
    return facts;
}

/*  The thread's row of lanes as values before the rotation, fl((2 lane - centre) scale). A byte put into 2^23
 * is 2^23 + 256 lane, from which 2^23 + 128 centre is taken: exact, and 128 times too large, as the scale is
 * too small. (16 bits: 2^23 + lane and 2^23 + centre / 2 would have half a unit; lane and centre are
 * converted.) The return value is the largest lane, times 256 above 2^23's bits where lanes are bytes.
 */
template <uint32_t LANE_BITS>
GW_DEVICE uint32_t unpack_row(float value[32], const uint8_t *lanes, uint32_t centre, float scale)
{
    const uint32_t row = threadIdx.x & 31;
    uint32_t largest = 0;

    if (LANE_BITS == 8) {
        const float middle = __uint_as_float(0x4b000000u + 128 * centre);
        const float unit = __fmul_rn(scale, 0x1p-7f);
        GW_UNROLL for (uint32_t k = 0; k < 2; k++)
        {
            uint32_t word[4];
            gw_words_of(word, *(const uint4 *)(const void *)(lanes + lanes_place<8>(2 * row + k)));
            GW_UNROLL for (uint32_t i = 0; i < 16; i++)
            {
                /* bytes 0, lane, 0, 0x4b */
                const uint32_t bits = gw_permute(word[i / 4], 0x4b000000u, 0x7404u | (i % 4) << 4);
                largest = bits > largest ? bits : largest;
                value[16 * k + i] = __fmul_rn(__fsub_rn(__uint_as_float(bits), middle), unit);
            }
        }
        return largest >> 8 & 0xffu;
    }
    const float middle = (float)centre;
    GW_UNROLL for (uint32_t k = 0; k < 4; k++)
    {
        uint32_t word[4];
        gw_words_of(word, *(const uint4 *)(const void *)(lanes + lanes_place<16>(4 * row + k)));
        GW_UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const uint32_t lane = gw_permute(word[i / 2], 0, i % 2 == 0 ? 0x4410u : 0x4432u);
            largest = lane > largest ? lane : largest;
            /* 2^23 + lane, less 2^23, twice: exact */
            const float x = __fsub_rn(__uint_as_float(0x4b000000u | lane), 0x1p23f);
            value[8 * k + i] = __fmul_rn(__fsub_rn(__fadd_rn(x, x), middle), scale);
        }
    }
    return largest;
}

template <uint32_t DTYPE> GW_DEVICE uint32_t two_of(float x, float y)
{
    return DTYPE == GW_BF16 ? gw_two_bf16(x, y) : gw_two_fp16(x, y);
}

/* Stores the results of a block, which are in rows. */
template <uint32_t DTYPE>
GW_DEVICE void store_block(const gw_cuda_thc_decode_params &p, const float *rows, uint64_t number,
                           bool is_whole)
{
    constexpr uint32_t V = DTYPE == GW_FP32 ? 4 : 8; /* values of 16 bytes */
    const uint32_t lane = threadIdx.x & 31;
    const uint64_t first = number << WARP_BLOCK_LOG2;

    if (is_whole) {
        GW_UNROLL for (uint32_t k = 0; k < 32 / V; k++)
        {
            const uint32_t i = 32 * V * k + V * lane;
            float x[8];
            GW_UNROLL for (uint32_t c = 0; c < V; c += 4)
            {
                warp_get4(x + c, rows + i / 32 * WARP_PITCH + i % 32 + c);
            }
            uint32_t word[4];
            GW_UNROLL for (uint32_t j = 0; j < 4; j++)
            {
                word[j] = DTYPE == GW_FP32 ? __float_as_uint(x[j]) : two_of<DTYPE>(x[2 * j], x[2 * j + 1]);
            }
            *(uint4 *)(void *)(p.dst + 16 / V * (first + i)) = gw_four_of(word);
        }
        return;
    }
    GW_NO_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint64_t at = first + 32 * i + lane;
        if (at < p.span.element_count) {
            const float x = rows[i * WARP_PITCH + lane];
            gw_element_store(p.dst, DTYPE, at, DTYPE == GW_FP32 ? __float_as_uint(x) : two_of<DTYPE>(x, x));
        }
    }
}

/* A block without coded values: zeros, or NaNs of the type's one pattern. Rare. */
template <uint32_t DTYPE>
GW_DEVICE void fill_block(const gw_cuda_thc_decode_params &p, uint64_t number, bool is_nan)
{
    const uint64_t first = number << WARP_BLOCK_LOG2;
    const uint32_t nan = DTYPE == GW_FP32 ? GW_THC_NORM_NONFINITE : DTYPE == GW_BF16 ? 0x7fc0u : 0x7e00u;

    GW_NO_UNROLL for (uint32_t i = threadIdx.x & 31; i < 1024; i += 32)
    {
        if (first + i < p.span.element_count) {
            if (DTYPE == GW_FP32) {
                ((uint32_t *)(void *)p.dst)[first + i] = is_nan ? nan : 0;
            } else {
                ((uint16_t *)(void *)p.dst)[first + i] = (uint16_t)(is_nan ? nan : 0);
            }
        }
    }
}

template <uint32_t DTYPE, uint32_t LANE_BITS> GW_DEVICE void decode_blocks(const gw_cuda_thc_decode_params &p)
{
    const gw_cuda_thc_span &span = p.span;
    const gw_cuda_thc_key key = thc_key_of(p.context);
    const warp_memory memory = warp_memory_of(GW_THC_WARP_LANES_SIZE(LANE_BITS));
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t warps = blockDim.x / 32;
    const uint32_t warp = threadIdx.x / 32;
    const warp_run run = warp_run_of((span.block_count + warps - 1) / warps);

    if (run.first < run.end) {
        fetch_lanes<LANE_BITS>(memory.input, p, run.first * warps + warp,
                               warp_group_is_whole(span, run.first, 1));
    }
    for (uint64_t turn = run.first; turn < run.end; turn += 32) {
        const block_facts mine = facts_of(p, (turn + lane) * warps + warp, turn + lane < run.end);

        for (uint32_t b = 0; b < 32 && turn + b < run.end; b++) {
            const uint64_t group = turn + b;
            const uint64_t number = group * warps + warp;
            const bool is_whole = warp_group_is_whole(span, group, 1);
            const uint32_t *signs = memory.signs + 32 * (b % WARP_SIGNS);
            const uint32_t packed = __shfl_sync(GW_ALL_LANES, mine.packed, b);
            const uint32_t scale = __shfl_sync(GW_ALL_LANES, mine.scale, b);
            const uint32_t exponent = packed >> 8 & 0xffu;
            const uint32_t centre = packed >> 16;
            uint32_t kind = packed & 0xffu;
            float value[32];

            if (b % WARP_SIGNS == 0) {
                warp_make_signs(memory.signs, key, span.first_block + group * warps + warp);
            }
            gw_copy_wait();
            __syncwarp();
            uint32_t largest = unpack_row<LANE_BITS>(value, memory.input, centre, __uint_as_float(scale));
            largest = __reduce_max_sync(GW_ALL_LANES, largest);
            __syncwarp();
            if (group + 1 < run.end) {
                fetch_lanes<LANE_BITS>(memory.input, p, number + warps,
                                       warp_group_is_whole(span, group + 1, 1));
            }
            if (largest > centre && kind != THC_BAD && kind != THC_SKIP) {
                kind = THC_BAD;
                if (lane == 0) {
                    thc_report(p.result, span.first_block + number, GW_ERR_CORRUPT);
                }
            }
            if (kind == THC_MISSING && lane == 0) {
                atomicAdd((unsigned long long *)(void *)&p.result->missing, (unsigned long long)1);
            }
            /* Rows after the lanes of a short last block are zeros. A block that is not coded takes the same
             * way, to no effect: warps do not part. */
            if (!is_whole && (kind == THC_SKIP || 32 * lane >= thc_block_lanes(span, number))) {
                thc_clear(value);
            }
            warp_transform(memory.rows, value);
            warp_unscale(value, signs, exponent);
            /* A thread's column is its own, so no barrier is needed before it is overwritten. */
            GW_UNROLL for (uint32_t i = 0; i < 32; i++)
            {
                memory.rows[i * WARP_PITCH + lane] = value[i];
            }
            __syncwarp();
            if (kind == THC_CODED) {
                store_block<DTYPE>(p, memory.rows, number, is_whole && p.is_aligned != 0);
            } else if (kind != THC_SKIP) {
                fill_block<DTYPE>(p, number, kind == THC_NONFINITE);
            }
            __syncwarp();
        }
    }
    thc_finish(p.result, span.element_count);
}

/* Three blocks of 80 registers a thread; with lanes of 16 bits the compiler does not get along with so few
 * for compute capability 10. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define DECODE16_BLOCKS 2
#else
#define DECODE16_BLOCKS 3
#endif

GW_KERNELS_BY_DTYPE(gw_device_thc_warp_decode8, gw_cuda_thc_decode_params, 3, decode_blocks, 8)
GW_KERNELS_BY_DTYPE(gw_device_thc_warp_decode16, gw_cuda_thc_decode_params, DECODE16_BLOCKS, decode_blocks,
                    16)
