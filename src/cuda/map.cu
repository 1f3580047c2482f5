/*
 * Precision map of GCOMP: scan, build and digests (gw_gcomp_map_scan(), _build(), _digest()). The arithmetic
 * is core/map_ratio.h, the one that the CPU compiles.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/crc32c.cuh"
#include "cuda/device.cuh"

#include "core/map_ratio.h"
#include "cuda/map_params.h"

/* Four values of an array from `at` on; +0 where the rule does not use it or the array ends. */
GW_DEVICE void load_four(float value[4], const float *src, bool is_used, uint64_t at,
                         const gw_cuda_map_params &p)
{
    GW_UNROLL for (uint32_t i = 0; i < 4; i++) {
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

/* Quarter-octaves of four parameters; 0 behind the end, whose parameters count as +0. */
GW_DEVICE void quarter_octaves(uint32_t out[4], const gw_gcomp_map_rule &rule, const gw_cuda_map_params &p,
                               uint64_t at)
{
    float theta[4], m[4], v[4], a[4];

    load_four(theta, p.state.param, true, at, p);
    load_four(m, p.state.m, (rule.uses & GW_MAP_USES_M) != 0, at, p);
    load_four(v, p.state.v, (rule.uses & GW_MAP_USES_V) != 0, at, p);
    load_four(a, p.state.a, (rule.uses & GW_MAP_USES_A) != 0, at, p);
    GW_UNROLL for (uint32_t i = 0; i < 4; i++) {
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
        GW_UNROLL for (uint32_t i = 0; i < 4; i++) {
            top = q[i] > top ? q[i] : top;
        }
    }
    top = __reduce_max_sync(0xffffffffu, top);
    if ((threadIdx.x & 31) == 0 && top != 0) {
        atomicMax(p.top, top);
    }
}

GW_KERNEL(gw_device_map_build, gw_cuda_map_params, GW_CUDA_MAP_THREADS, 4)
{
    const gw_gcomp_map_rule rule = rule_of(p);
    const uint64_t step = 4 * (uint64_t)gridDim.x * blockDim.x;
    const uint32_t top = *p.top;
    const uint32_t base = top > 255 ? top - 255 : 1; /* gw_gcomp_map_base() */

    if (p.base != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
        *p.base = base;
    }
    for (uint64_t at = 4 * ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x); at < p.len; at += step) {
        uint32_t q[4];
        uint32_t word = 0;
        quarter_octaves(q, rule, p, at);
        GW_UNROLL for (uint32_t i = 0; i < 4; i++) {
            const uint32_t k = q[i] <= base ? 0 : q[i] - base;
            word |= (k > 255 ? 255 : k) << 8 * i;
        }
        if (((uintptr_t)p.levels & 3) == 0 && at + 4 <= p.len) {
            *(uint32_t *)(void *)(p.levels + at) = word;
        } else {
            for (uint32_t i = 0; i < 4 && at + i < p.len; i++) {
                p.levels[at + i] = (uint8_t)(word >> 8 * i);
            }
        }
    }
}

GW_KERNEL(gw_device_map_digest, gw_cuda_map_digest_params, GW_CUDA_MAP_THREADS, 4)
{
    const uint64_t chunk_len = (uint64_t)1 << p.chunk_log2;
    const uint64_t chunk_count = (p.len + chunk_len - 1) >> p.chunk_log2;
    uint32_t *sums = &GW_SHARED(uint32_t);

    for (uint64_t chunk = blockIdx.x; chunk < chunk_count; chunk += gridDim.x) {
        const uint64_t first = chunk << p.chunk_log2;
        const uint64_t rest = p.len - first;
        const uint32_t crc =
            gw_cuda_crc32c_bytes(0, p.levels + first, rest < chunk_len ? rest : chunk_len, sums);
        if (threadIdx.x == 0) {
            p.digest[chunk] = crc;
        }
        __syncthreads();
    }
}

GW_KERNEL_TABLE(map, GW_KERNEL_ENTRY(gw_device_map_scan, gw_cuda_map_params),
                GW_KERNEL_ENTRY(gw_device_map_build, gw_cuda_map_params),
                GW_KERNEL_ENTRY(gw_device_map_digest, gw_cuda_map_digest_params));
