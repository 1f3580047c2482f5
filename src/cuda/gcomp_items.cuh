/*
 * Items of an encode: what is checked of them, and what their frames look like before a chunk is known.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ITEMS_CUH
#define GW_CUDA_GCOMP_ITEMS_CUH

#include "cuda/gcomp_frame.cuh"

/* Units or groups of the items before item i; a single item has none before it. */
GW_DEVICE uint64_t gw_first_of(const uint64_t *first, uint32_t i)
{
    return first == nullptr ? 0 : first[i];
}

/* log2 of the values of a group: preset fast 17, small a chunk. */
GW_DEVICE uint32_t gw_group_log2(const gw_cuda_codec &codec)
{
    return codec.preset == 0 ? 17 : codec.chunk_log2;
}

/* Header of the frame of an item that is valid. frame_size is not known yet. */
GW_DEVICE gw_frame_front gw_encode_front(const gw_gcomp_encode_params &p, const gw_cuda_gcomp_item &item)
{
    const gw_cuda_codec &codec = p.work.codec;
    const bool derived = codec.quantum_mode == GW_GCOMP_DERIVED, constant = derived && !p.work.map.is_present;
    gw_frame_front f;
    f.dtype = codec.dtype;
    f.flags = (codec.strict ? GW_FLAG_STRICT : 0) | (derived ? GW_FLAG_DERIVED : 0) |
              (codec.encode_with >= 0 ? GW_FLAG_INSTALLED : 0) | (codec.checksum ? GW_FLAG_CHECKSUM : 0) |
              (constant ? GW_FLAG_CONSTANT : 0) |
              (codec.quantum_mode == GW_GCOMP_CARRIED ? GW_FLAG_CARRIED : 0);
    f.chunk_log2 = codec.chunk_log2;
    f.step = constant ? 1 : codec.step;
    f.cap = constant ? codec.constant_drop : codec.cap;
    f.drop_offset = derived && !constant ? gw_cuda_drop_offset(codec, gw_map_base(p.work.map)) : 0;
    f.block_log2 = codec.block_log2;
    f.len = item.src_size;
    f.frame_size = 0;
    gw_front_place(f, gw_front_parts_size(f));
    return f;
}

/* If the installed codebook that encodes has relative exponents, which need quanta. */
GW_DEVICE bool gw_encodes_relative(const gw_cuda_codec &codec)
{
    if (codec.quantum_mode != GW_GCOMP_DERIVED || codec.encode_with < 0) {
        return false;
    }
    const gw_cuda_codebook &codebook = codec.codebook[codec.encode_with];
    const uint32_t size = codebook.size_at != nullptr ? *codebook.size_at : codebook.size;
    return size != 0 && (codebook.bytes != nullptr ? codebook.bytes : codebook.inline_bytes)[0] == 1;
}

/* GW_OK if the values of the item can be rounded: the status of gw_gcomp_encode() and
 * gw_gcomp_histogram_add() for a source. */
GW_DEVICE uint32_t gw_source_status(const gw_gcomp_work &work, const gw_cuda_gcomp_item &item)
{
    const gw_cuda_codec &codec = work.codec;
    const gw_cuda_map &map = work.map;
    if (item.after != nullptr && item.after->status != GW_OK) {
        return item.after->status;
    }
    if (item.src_size > codec.len_max || !gw_is_len_possible(item.src_size, codec.chunk_log2)) {
        return GW_ERR_LIMIT;
    }
    /* Items on the device: a misaligned access would destroy the context. */
    if ((item.src_size != 0 && item.src == nullptr) ||
        ((uintptr_t)item.src & (gw_type_size(codec.dtype) - 1)) != 0 || ((uintptr_t)item.digest & 3) != 0) {
        return GW_ERR_ARG;
    }
    if (!map.is_present && gw_encodes_relative(codec)) {
        return GW_ERR_ARG;
    }
    if (!map.is_present && codec.quantum_mode == GW_GCOMP_CARRIED && item.map_bytes == nullptr &&
        !(codec.target_nmse > 0)) {
        return GW_ERR_ARG;
    }
    if (map.is_present) {
        const uint32_t base = gw_map_base(map);
        if (base < 1 || base > 1023 || item.map_len != item.src_size ||
            (item.src_size != 0 && item.map_bytes == nullptr) ||
            (item.src_size != 0 && codec.quantum_mode == GW_GCOMP_DERIVED &&
             (item.digest == nullptr || map.chunk_log2 != codec.chunk_log2))) {
            return GW_ERR_ARG;
        }
    }
    return GW_OK;
}

/* GW_OK if the item can be encoded; the order is that of gw_gcomp_encode(). */
GW_DEVICE uint32_t gw_item_status(const gw_gcomp_work &work, const gw_cuda_gcomp_item &item)
{
    const gw_cuda_codec &codec = work.codec;
    const uint32_t status = gw_source_status(work, item);
    if (status != GW_OK) {
        return status;
    }
    /* gw_gcomp_frame_bound() of core: the largest extension, and RAW chunks. */
    const uint64_t chunks = (item.src_size + ((uint64_t)1 << codec.chunk_log2) - 1) >> codec.chunk_log2;
    const uint64_t front = (32 + 40 + 16 * chunks + 15) & ~(uint64_t)15;
    const uint64_t bound = front + gw_payload_max(codec.dtype, item.src_size, codec.chunk_log2);
    return item.dst == nullptr || ((uintptr_t)item.dst & 15) != 0 ? (uint32_t)GW_ERR_ARG
           : item.dst_capacity < bound                            ? (uint32_t)GW_ERR_DST
                                                                  : (uint32_t)GW_OK;
}

/* The same for a histogram, which is at dst. */
GW_DEVICE uint32_t gw_histogram_status(const gw_gcomp_work &work, const gw_cuda_gcomp_item &item)
{
    const uint32_t status = gw_source_status(work, item);
    if (status != GW_OK) {
        return status;
    }
    if (item.dst == nullptr || ((uintptr_t)item.dst & 7) != 0) {
        return GW_ERR_ARG;
    }
    /* Values without quanta have no relative exponents. */
    const uint64_t relative = ((const volatile gw_cuda_gcomp_histogram *)item.dst)->first_relative;
    return work.codec.quantum_mode == GW_GCOMP_DERIVED && !work.map.is_present && relative != 0 &&
                   (~relative & 1) != 0
               ? (uint32_t)GW_ERR_STATE
               : (uint32_t)GW_OK;
}

/* Result of an item that is not encoded: the failure of item.after if there is one, else `status`. */
GW_DEVICE void gw_item_fail(const gw_cuda_gcomp_item &item, uint32_t status)
{
    *item.result = gw_failure_of(item, status);
}

#endif
