/*
 * Carried frames: the quantum of every block of all items, before their encode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_items.cuh"
#include "cuda/gcomp_quanta.cuh"

struct gw_quanta_unit_state {
    gw_quanta_state quanta;
    uint32_t status;
};

static_assert(sizeof(gw_quanta_unit_state) <= GW_CUDA_QUANTA_SHARED_SIZE, "the host reserves enough");

template <uint32_t DTYPE>
GW_DEVICE void gw_quanta_unit(gw_quanta_unit_state &s, const gw_gcomp_encode_params &p, uint64_t unit)
{
    const uint32_t t = threadIdx.x, chunk_log2 = p.work.codec.chunk_log2;
    const uint32_t i = p.work.items == nullptr ? 0 : gw_item_find(p.unit_first, p.work.item_count, unit);
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, i);
    __syncthreads();
    if (t == 0) {
        s.status = gw_source_status(p.work, item);
    }
    __syncthreads();
    const uint64_t first = (unit - gw_first_of(p.unit_first, i)) << chunk_log2;
    if (s.status != GW_OK || first >= item.src_size) {
        return;
    }
    const uint32_t len = gw_at_most(item.src_size - first, 1u << chunk_log2);
    const int32_t drop_offset =
        gw_quanta_chunk<DTYPE>(s.quanta, p.work.codec, p.work.map, item, first, len,
                               p.quanta + (unit << (chunk_log2 - p.work.codec.block_log2)));
    if (t == 0) {
        p.drop_offsets[unit] = drop_offset;
    }
}

GW_KERNEL(gw_device_gcomp_quanta, gw_gcomp_encode_params, 256, 2)
{
    gw_quanta_unit_state &s = GW_SHARED(gw_quanta_unit_state);
    const uint64_t units = p.work.items == nullptr ? p.unit_total : p.unit_first[p.work.item_count];
    GW_NO_UNROLL
    for (uint64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        if (p.work.codec.dtype == GW_FP32) {
            gw_quanta_unit<GW_FP32>(s, p, unit);
        } else if (p.work.codec.dtype == GW_BF16) {
            gw_quanta_unit<GW_BF16>(s, p, unit);
        } else {
            gw_quanta_unit<GW_FP16>(s, p, unit);
        }
    }
}
