/*
 * Precision map of GCOMP: scan, build and digests (gw_gcomp_map_scan(), _build(), _digest()). The arithmetic
 * is gcomp/map_ratio.h, the one that the CPU compiles.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/crc32c.cuh"
#include "cuda/device.cuh"

#include "gcomp/map_ratio.h"
#include "cuda/map_params.h"

/* Four values of an array from `at` on; +0 where the rule does not use it or the array ends. */
GW_DEVICE void load_four(float value[4], const float *src, bool is_used, uint64_t at,
                         const gw_cuda_map_params &p)
{
    GW_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        value[i] = 0.0f;
    }
    if (!is_used) {
        return;
    }
    if (p.is_aligned != 0 && at + 4 <= p.len) {
        const uint4 four = *(const uint4 *)(const void *)(src + at);
        value[0] = gw_map_flush(__uint_as_float(four.x));
        value[1] = gw_map_flush(__uint_as_float(four.y));
        value[2] = gw_map_flush(__uint_as_float(four.z));
        value[3] = gw_map_flush(__uint_as_float(four.w));
    } else {
        for (uint32_t i = 0; i < 4 && at + i < p.len; i++) {
            value[i] = gw_map_flush(src[at + i]);
        }
    }
}

/* Quarter-octaves of four parameters; 0 after the end, where parameters count as +0. */
GW_DEVICE void quarter_octaves(uint32_t out[4], const gw_gcomp_map_rule &rule, const gw_cuda_map_params &p,
                               uint64_t at)
{
    float theta[4], m[4], v[4], a[4];

    load_four(theta, p.state.param, (rule.limits & GW_MAP_TOLERANCE) != 0, at, p);
    load_four(m, p.state.m, (rule.uses & GW_MAP_USES_M) != 0, at, p);
    load_four(v, p.state.v, (rule.uses & GW_MAP_USES_V) != 0, at, p);
    load_four(a, p.state.a, (rule.uses & GW_MAP_USES_A) != 0, at, p);
    GW_UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        out[i] = at + i < p.len ? gw_map_quarter_octave(&rule, theta[i], m[i], v[i], a[i]) : 0;
    }
}

/* The rule; which arrays are read is what the host checked. */
GW_DEVICE gw_gcomp_map_rule rule_of(const gw_cuda_map_params &p)
{
    gw_gcomp_map_rule rule = p.rule;
    if (p.device_rule != nullptr) {
        rule = *p.device_rule;
        rule.uses &= p.rule.uses;
        rule.limits = p.rule.limits;
    }
    return rule;
}

GW_KERNEL(gw_device_map_scan, gw_cuda_map_params, GW_CUDA_MAP_THREADS, 4)
{
    const gw_gcomp_map_rule rule = rule_of(p);
    const uint64_t step = 4 * (uint64_t)gridDim.x * blockDim.x;
    uint32_t top = 0;

    for (uint64_t at = 4 * ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x); at < p.len; at += step) {
        uint32_t q[4];
        quarter_octaves(q, rule, p, at);
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            top = q[i] > top ? q[i] : top;
        }
    }
    top = __reduce_max_sync(0xffffffffu, top);
    if ((threadIdx.x & 31) == 0 && top != 0) {
        atomicMax(p.top, top);
    }
}

/* Word k of a lane for word i of its row of four lanes: a transposition among them. */
GW_DEVICE void turn_words(uint32_t word[4])
{
    GW_UNROLL for (uint32_t step = 1; step <= 2; step *= 2)
    {
        const bool is_upper = (threadIdx.x & step) != 0;
        GW_UNROLL for (uint32_t k = 0; k < 4; k++)
        {
            if ((k & step) == 0) {
                const uint32_t theirs =
                    __shfl_xor_sync(0xffffffffu, is_upper ? word[k] : word[k + step], step);
                word[k] = is_upper ? theirs : word[k];
                word[k + step] = is_upper ? word[k + step] : theirs;
            }
        }
    }
}

/* A warp takes 512 values in four rounds of 128, four adjacent values a lane, and writes 16 map bytes a lane.
 * */
GW_KERNEL(gw_device_map_build, gw_cuda_map_params, GW_CUDA_MAP_THREADS, 4)
{
    const gw_gcomp_map_rule rule = rule_of(p);
    const uint32_t top = *p.top;
    const uint32_t base = top > 255 ? top - 255 : 1; /* gw_gcomp_map_base() */
    const uint32_t lane = threadIdx.x & 31;
    const uint64_t step = GW_CUDA_MAP_BUILD_LEN * (uint64_t)gridDim.x;

    if (p.base != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
        *p.base = base;
    }
    /* All warps of a block go round as often. */
    for (uint64_t block = GW_CUDA_MAP_BUILD_LEN * (uint64_t)blockIdx.x; block < p.len; block += step) {
        const uint64_t first = block + threadIdx.x / 32 * 512;
        uint32_t word[4] = {0, 0, 0, 0};
        GW_NO_UNROLL for (uint32_t k = 0; k < 4; k++)
        { /* it is long */
            uint32_t q[4];
            quarter_octaves(q, rule, p, first + 128 * k + 4 * lane);
            word[0] = word[1];
            word[1] = word[2];
            word[2] = word[3];
            word[3] = 0;
            GW_UNROLL for (uint32_t i = 0; i < 4; i++)
            {
                const uint32_t map_byte = q[i] <= base ? 0 : q[i] - base;
                word[3] |= (map_byte > 255 ? 255 : map_byte) << 8 * i;
            }
        }
        turn_words(word);
        const uint64_t at = first + 128 * (lane & 3) + 16 * (lane >> 2);
        if (((uintptr_t)p.map_bytes & 15) == 0 && at + 16 <= p.len) {
            *(uint4 *)(void *)(p.map_bytes + at) = gw_four_of(word);
        } else {
            GW_UNROLL for (uint32_t i = 0; i < 16; i++)
            {
                if (at + i < p.len) {
                    p.map_bytes[at + i] = (uint8_t)(word[i / 4] >> 8 * (i % 4));
                }
            }
        }
    }
}

/* The map bytes of a chunk to shared memory, 16 bytes at a time where they are aligned. */
GW_DEVICE void stage_map_bytes(uint8_t *to, const uint8_t *from, uint32_t size)
{
    const uint32_t whole = ((uintptr_t)from & 15) == 0 ? size & ~15u : 0;

    for (uint32_t i = 16 * threadIdx.x; i < whole; i += 16 * GW_CUDA_MAP_THREADS) {
        gw_copy_async16(gw_place_of(to + i), from + i);
    }
    for (uint32_t i = whole + threadIdx.x; i < size; i += GW_CUDA_MAP_THREADS) {
        to[i] = from[i];
    }
    gw_copy_wait();
    __syncthreads();
}

GW_KERNEL(gw_device_map_digest, gw_cuda_map_digest_params, GW_CUDA_MAP_THREADS, 4)
{
    const uint32_t chunk_len = 1u << p.chunk_log2;
    const uint64_t chunk_count = (p.len + chunk_len - 1) >> p.chunk_log2;
    uint32_t *sums = &GW_SHARED(uint32_t);
    const uint32_t *words = sums + 8;

    for (uint64_t chunk = blockIdx.x; chunk < chunk_count; chunk += gridDim.x) {
        const uint64_t first = chunk << p.chunk_log2;
        const uint64_t rest = p.len - first;
        const uint32_t size = rest < chunk_len ? (uint32_t)rest : chunk_len;
        uint32_t crc;

        stage_map_bytes((uint8_t *)(void *)(sums + 8), p.map_bytes + first, size);
        if (size % 4 == 0) {
            crc = gw_cuda_crc32c(0, size / 4, sums, [=](uint64_t i) {
                return words[i];
            });
        } else {
            crc = gw_cuda_crc32c_bytes(0, (const uint8_t *)(const void *)words, size, sums);
        }
        if (threadIdx.x == 0) {
            p.digest[chunk] = crc;
        }
        __syncthreads();
    }
}
