/*
 * Decode of frames whose front gw_gcomp_frame_parse has accepted: blocks take chunks of all items in turn.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_decode.cuh"

/* A place in the workspace for the rank buffers of one block; taken and given back by thread 0. */
GW_DEVICE uint32_t gw_slot_take(const gw_gcomp_decode_params &p)
{
    uint32_t slot = blockIdx.x % p.large_slots;
    while (atomicCAS(&p.head->slot_busy[slot], 0u, 1u) != 0) {
        slot = slot + 1 == p.large_slots ? 0 : slot + 1;
        gw_spin();
    }
    __threadfence();
    return slot;
}

GW_DEVICE void gw_slot_give(const gw_gcomp_decode_params &p, uint32_t slot)
{
    __threadfence();
    atomicExch(&p.head->slot_busy[slot], 0u);
}

template <uint32_t DTYPE, bool REST>
GW_DEVICE void gw_decode_unit(gw_decode_state &s, const gw_gcomp_decode_params &p)
{
    const uint32_t size = gw_type<DTYPE>::SIZE;
    const uint32_t item_index = s.item;
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, item_index);
    gw_cuda_frame_state &frame = p.frames[item_index];
    const uint64_t index = s.unit - p.chunk_first[item_index];

    if (p.sum.state != nullptr && p.sum.marks[index] != 0) {
        return;
    }
    const bool needs_slot = REST && gw_decode_copy_room(p.shared_size, frame.chunk_log2) == 0;
    if (needs_slot) {
        if (threadIdx.x == 0) {
            s.slot = gw_slot_take(p);
        }
        __syncthreads();
    }
    const bool has_map = frame.quantum_mode == GW_GCOMP_DERIVED && !frame.constant;
    const gw_decode_call call = {p.work.codec,
                                 frame,
                                 (const uint8_t *)item.src,
                                 has_map ? item.map_bytes : nullptr,
                                 p.shared_size,
                                 needs_slot ? p.large + (uint64_t)s.slot * GW_CUDA_LARGE_SIZE : nullptr,
                                 (uint64_t)(item_index + 1) << 40};
    if (threadIdx.x == 0) {
        const uint64_t first = (index << frame.chunk_log2) * size;
        uint8_t *const dst = p.mode == GW_CUDA_DECODE_VALIDATE ? nullptr : (uint8_t *)item.dst + first;
        const uint8_t *const addend = p.mode == GW_CUDA_DECODE_ADD   ? dst
                                      : p.mode == GW_CUDA_DECODE_SUM ? (const uint8_t *)item.addend + first
                                                                     : nullptr;
        s.out = gw_decode_out_of(dst, addend, p.work.codec.strict, gw_scale_of(item));
    }
    const uint32_t status = gw_cuda_decode_chunk<DTYPE, REST>(s, call, index, p.mode == GW_CUDA_DECODE_ADD);
    __syncthreads();
    if (!REST && status == GW_DECODE_DEFERRED) {
        if (threadIdx.x == 0) {
            const uint64_t at = gw_atomic_add64(&p.head->deferred_count, 1);
            if (at < p.chunk_total) {
                p.deferred[at] = s.unit;
            }
        }
    } else if (status != GW_OK) {
        if (p.mode == GW_CUDA_DECODE_VALUES) {
            if (threadIdx.x == 0) { /* +0 stays +0 */
                s.out.scale = 1.0f;
            }
            __syncthreads();
            gw_decode_plain<DTYPE>(nullptr, s.chunk_len * size, s.out);
        }
        if (threadIdx.x == 0) {
            gw_atomic_max64(&frame.bad, ~(s.index << 8 | status));
            if (p.sum.state != nullptr) {
                p.sum.marks[s.index] = 1;
                gw_atomic_max64(&p.sum.state->bad, ~(s.index << 28 | (uint64_t)p.sum.index << 8 | status));
            }
        }
    }
    if (needs_slot) {
        __syncthreads();
        if (threadIdx.x == 0) {
            gw_slot_give(p, s.slot);
        }
    }
}

GW_DEVICE void gw_decode_report(const gw_gcomp_decode_params &p)
{
    GW_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < p.work.item_count; i += GW_THREADS) {
        const gw_cuda_gcomp_item &item = gw_item_of(p.work, i);
        const gw_cuda_frame_state &frame = p.frames[i];
        const uint64_t bad = *(const volatile uint64_t *)&frame.bad;
        gw_cuda_result result = {GW_OK, 0, 0, 0, ~(uint64_t)0, 0};
        if (frame.status != GW_OK) {
            result = gw_failure_of(item, frame.status);
        } else if (bad != 0) {
            result.status = (uint32_t)~bad & 255;
            result.bad_index = ~bad >> 8;
        } else {
            result.len = frame.len;
        }
        *item.result = result;
    }
}

/* Only a validation may leave more chunks than the list holds: then all are looked at again. */
GW_DEVICE bool gw_is_rest_listed(const gw_gcomp_decode_params &p)
{
    return p.head->deferred_count <= p.chunk_total;
}

template <uint32_t DTYPE, bool REST> GW_DEVICE void gw_decode_all(const gw_gcomp_decode_params &p)
{
    gw_decode_state &s = GW_SHARED(gw_decode_state);
    /* In shared memory: it would occupy registers from the first instruction to the last. */
    if (gw_thread_now() == 0) {
        s.units = REST && gw_is_rest_listed(p) ? p.head->deferred_count : p.chunk_first[p.work.item_count];
    }
    __syncthreads();
    const bool has_units = s.units != 0;
    if (has_units) {
        gw_decode_begin(s);
    }
    GW_NO_UNROLL
    while (has_units) {
        if (gw_thread_now() == 0) {
            gw_cuda_decode_head *const head = gw_pointer_now(p.head);
            const uint64_t turn = gw_atomic_add64(REST ? &head->deferred_ticket : &head->ticket, 1);
            s.is_last = turn >= s.units;
            if (turn < s.units) {
                s.unit = REST && gw_is_rest_listed(p) ? p.deferred[turn] : turn;
                s.item = gw_item_find(p.chunk_first, p.work.item_count, s.unit);
            }
        }
        __syncthreads();
        if (s.is_last) {
            break;
        }
        gw_decode_unit<DTYPE, REST>(s, p);
        __syncthreads();
    }
    if (REST) {
        __syncthreads();
        if (gw_thread_now() == 0) {
            __threadfence();
            s.is_last = atomicAdd(&gw_pointer_now(p.head)->blocks_done, 1u) == gridDim.x - 1;
            __threadfence();
        }
        __syncthreads();
        if (s.is_last) {
            gw_decode_report(p);
        }
    }
}

/* 16 bytes at a time where both are aligned, else an element. */
GW_DEVICE void gw_sum_copy(uint8_t *to, const uint8_t *from, uint64_t size, uint32_t element_size)
{
    const uint32_t wide = ((uintptr_t)to & 15) == 0 ? (uint32_t)(size / 16) : 0;
    GW_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < wide; i += GW_THREADS) {
        ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
    }
    GW_NO_UNROLL
    for (uint64_t at = 16 * (uint64_t)wide + element_size * threadIdx.x; at < size;
         at += element_size * GW_THREADS) {
        if (element_size == 4) {
            *(uint32_t *)(void *)(to + at) = *(const uint32_t *)(const void *)(from + at);
        } else {
            *(uint16_t *)(void *)(to + at) = *(const uint16_t *)(const void *)(from + at);
        }
    }
}

/* The end of a sum of frames: its chunks that are good in all of them to the target, and the result. */
GW_KERNEL(gw_device_gcomp_sum_store, gw_gcomp_decode_params, 256, 4)
{
    const gw_cuda_sum_state &all = *p.sum.state;
    const uint32_t size = gw_type_size(p.work.codec.dtype);
    const uint32_t status = all.status != GW_OK        ? all.status
                            : all.len > p.sum.capacity ? (uint32_t)GW_ERR_DST
                                                       : (uint32_t)GW_OK;
    const uint64_t chunk_len = (uint64_t)1 << all.chunk_log2;
    GW_NO_UNROLL
    for (uint64_t i = blockIdx.x; status == GW_OK && i << all.chunk_log2 < all.len; i += gridDim.x) {
        const uint64_t first = i << all.chunk_log2, left = all.len - first;
        if (p.sum.marks[i] == 0) {
            gw_sum_copy(p.sum.values + first * size, p.sum.sums + first * size,
                        (left < chunk_len ? left : chunk_len) * size, size);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        gw_cuda_result result = {status, all.bad_frame, 0, 0, ~(uint64_t)0, 0};
        if (status == GW_OK && all.bad != 0) {
            const uint64_t bad = ~all.bad;
            result.status = (uint32_t)bad & 255;
            result.bad_frame = (uint32_t)(bad >> 8) & 0xfffff;
            result.bad_index = bad >> 28;
        } else if (status == GW_OK) {
            result.len = all.len;
        }
        *p.sum.result = result;
    }
}

GW_KERNELS_BY_DTYPE(gw_device_gcomp_decode, gw_gcomp_decode_params, 2, gw_decode_all, false)
GW_KERNELS_BY_DTYPE(gw_device_gcomp_decode_rest, gw_gcomp_decode_params, 2, gw_decode_all, true)
