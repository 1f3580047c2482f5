/*
 * Sources made of segments: where each begins, and their values rounded with the random stream of each,
 * before an encode that only truncates. The same as gw_group_begin() of src/gcomp/gcomp_encode_group.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_items.cuh"
#include "cuda/gcomp_round.cuh"

struct gw_segments_state {
    uint64_t sums[GW_THREADS];
};

static_assert(sizeof(gw_segments_state) <= GW_CUDA_SEGMENTS_SHARED_SIZE, "the host reserves enough");

/* x + y, at most 2^64 - 1: what is beyond that is behind all values. */
GW_DEVICE uint64_t gw_add_limited(uint64_t x, uint64_t y)
{
    return x + y < x ? ~(uint64_t)0 : x + y;
}

/* starts[i] = values of the segments before i; the status of the source, which they must have all values of.
 * One block. */
GW_KERNEL(gw_device_gcomp_segments, gw_gcomp_segment_params, 256, 1)
{
    gw_segments_state &s = GW_SHARED(gw_segments_state);
    const uint32_t t = threadIdx.x;
    uint64_t before = 0;
    GW_NO_UNROLL
    for (uint64_t at = 0; at < p.segment_count; at += GW_THREADS) {
        const uint64_t i = at + t;
        uint64_t sum = i < p.segment_count ? p.segments[i].len : 0;
        GW_NO_UNROLL
        for (uint32_t by = 1; by < GW_THREADS; by *= 2) {
            s.sums[t] = sum;
            __syncthreads();
            sum = t >= by ? gw_add_limited(sum, s.sums[t - by]) : sum;
            __syncthreads();
        }
        s.sums[t] = sum;
        __syncthreads();
        if (i < p.segment_count) {
            p.starts[i] = gw_add_limited(before, t == 0 ? 0 : s.sums[t - 1]);
        }
        before = gw_add_limited(before, s.sums[GW_THREADS - 1]);
        __syncthreads();
    }
    if (t == 0) {
        gw_cuda_gcomp_item item = p.from.work.item;
        item.after = nullptr; /* of a hop, not written yet */
        const bool is_covered = before >= p.segment_offset && before - p.segment_offset >= item.src_size;
        const uint32_t status = is_covered ? gw_source_status(p.from.work, item) : (uint32_t)GW_ERR_ARG;
        const gw_cuda_result result = {status, 0, 0, 0, ~(uint64_t)0, 0};
        *p.result = result;
    }
}

/* The source with the stream of the segment that value `index` is in. Returns where that segment ends. */
GW_DEVICE uint64_t gw_segment_enter(gw_cuda_source &source, const gw_gcomp_segment_params &p, uint64_t index)
{
    const uint64_t place = p.segment_offset + index;
    const uint32_t segment = gw_item_find(p.starts, p.segment_count, place);
    source.seed = p.segments[segment].seed;
    source.first_element = p.segments[segment].first_element + (place - p.starts[segment]) - index;
    return segment + 1 < p.segment_count ? p.starts[segment + 1] - p.segment_offset : ~(uint64_t)0;
}

/* Values from `first` to below `end`, at most 8 of them, which share Philox calls if they share counters. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_round_eight(gw_cuda_source &source, const gw_cuda_rounder &r,
                              const gw_gcomp_segment_params &p, uint64_t first, uint64_t end)
{
    uint64_t segment_end = first;
    uint4 words = make_uint4(0, 0, 0, 0);
    GW_NO_UNROLL
    for (uint64_t i = first; i < end; i++) {
        const bool enters = i >= segment_end;
        if (enters) {
            segment_end = gw_segment_enter(source, p, i);
        }
        const uint64_t element = source.first_element + i;
        if (r.rule.stochastic != 0 && (enters || (element & 7) == 0)) {
            words = gw_cuda_philox(r, element >> 3);
        }
        if (DERIVED && source.drop_offsets != nullptr) {
            source.drop_offset = source.drop_offsets[i >> source.chunk_log2];
        }
        const uint32_t random = gw_random_of(words, element);
        const uint32_t bits = gw_round_with<DTYPE, DERIVED>(r, i, random, 0).bits;
        gw_element_store(p.rounded, DTYPE, i, bits);
    }
}

template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_round_all(const gw_gcomp_segment_params &p)
{
    const gw_gcomp_encode_params &from = p.from;
    gw_cuda_source source = gw_source_of(from.work, from.work.item);
    if (DERIVED) {
        gw_source_carry(source, from, 0);
    }
    const gw_cuda_rounder r = {from.work.rounding, source};
    const uint64_t eights = (source.len + 7) / 8, step = (uint64_t)gridDim.x * GW_THREADS;
    GW_NO_UNROLL
    for (uint64_t i = (uint64_t)blockIdx.x * GW_THREADS + threadIdx.x; i < eights; i += step) {
        const uint64_t end = 8 * i + 8 < source.len ? 8 * i + 8 : source.len;
        gw_round_eight<DTYPE, DERIVED>(source, r, p, 8 * i, end);
    }
}

template <uint32_t DTYPE> GW_DEVICE void gw_round_dtype(const gw_gcomp_segment_params &p)
{
    if (p.from.work.codec.quantum_mode == GW_GCOMP_EXPLICIT) {
        gw_round_all<DTYPE, false>(p);
    } else {
        gw_round_all<DTYPE, true>(p);
    }
}

/* rounded[i] = value i of the source, rounded; `rounded` may be where the source is. */
GW_KERNEL(gw_device_gcomp_round, gw_gcomp_segment_params, 256, 2)
{
    const gw_gcomp_encode_params &from = p.from;
    if (gw_source_status(from.work, from.work.item) != GW_OK) {
        return;
    }
    if (from.work.codec.dtype == GW_FP32) {
        gw_round_dtype<GW_FP32>(p);
    } else if (from.work.codec.dtype == GW_BF16) {
        gw_round_dtype<GW_BF16>(p);
    } else {
        gw_round_dtype<GW_FP16>(p);
    }
}
