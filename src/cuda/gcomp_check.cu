/*
 * Front of a decode: rules 1 to 17 of docs/format.md section 8 for every item. `slices` blocks share the
 * directory of an item; the one that finishes last decides about it, and the last one of all counts chunks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_frame.cuh"

struct gw_check_state {
    gw_frame_front front;
    uint32_t status, is_last;
    uint32_t sums[8];
    uint64_t chunk_end; /* where the first item that the workspace has no room for would begin */
    uint8_t codebook[GW_CUDA_CODEBOOK_SIZE_MAX + 4];
    gw_cuda_tree tree;
};

static_assert(sizeof(gw_check_state) <= GW_CUDA_CHECK_SHARED_SIZE, "the host reserves enough");

/* Index of the installed codebook that the frame names by id and generation, or the number of codebooks. */
GW_DEVICE uint32_t gw_find_codebook(const gw_cuda_codec &codec, const gw_frame_front &f)
{
    const uint32_t quantum_mode = gw_quantum_mode_of(f.flags);
    uint32_t i = 0;
    for (; i < codec.codebook_count; i++) {
        if (codec.codebook[i].id == f.codebook_id && codec.codebook[i].generation == f.codebook_generation &&
            codec.quantum_mode == quantum_mode) {
            break;
        }
    }
    return i;
}

/* Checks a codebook in device memory; gw_gcomp_codebook_install() has checked those of a handle, but not that
 * frames without a quantum have no relative exponents. By the block. */
GW_DEVICE bool gw_is_codebook_good(gw_check_state &s, const gw_cuda_codebook &codebook,
                                   const gw_cuda_codebook_kind &kind)
{
    if (codebook.bytes == nullptr) {
        return !kind.derived || kind.may_be_relative || codebook.inline_bytes[0] == 0;
    }
    const uint32_t size = codebook.size_at != nullptr ? *codebook.size_at : codebook.size;
    if (threadIdx.x < GW_CUDA_CODEBOOK_SIZE_MAX && threadIdx.x < size) {
        s.codebook[threadIdx.x] = codebook.bytes[threadIdx.x];
    }
    const uint32_t used = gw_cuda_codebook_read(s.tree, s.codebook, size, kind, s.sums);
    return used != 0 && used == size && gw_has_all_codes(s.tree);
}

/* Rules 12 to 17, by one block, when all entries have been looked at. */
GW_DEVICE uint32_t gw_front_decide(const gw_gcomp_decode_params &p, const gw_cuda_gcomp_item &item,
                                   const gw_frame_front &f, bool is_directory_bad, gw_check_state &s)
{
    uint32_t *sums = s.sums;
    const uint8_t *src = (const uint8_t *)item.src;
    const bool checksum = (f.flags & GW_FLAG_CHECKSUM) != 0;
    if (f.reserved != 0) {
        return GW_ERR_HEADER;
    }
    const uint64_t end = f.directory_offset + 16 * f.chunk_count;
    /* One vote of the block: if the bytes change meanwhile, all threads still take the same branch. */
    if (__syncthreads_or(threadIdx.x < f.payload_offset - end && src[end + threadIdx.x] != 0)) {
        return GW_ERR_HEADER;
    }
    if (checksum && gw_front_crc(src, gw_front_crc_offset(f), f.payload_offset, sums) != f.meta_crc) {
        return GW_ERR_CHECKSUM;
    }
    if (is_directory_bad || (f.chunk_count == 0 && f.frame_size != f.payload_offset) ||
        (f.frame_size & 15) != 0) {
        return GW_ERR_HEADER;
    }
    if (f.dtype != p.work.codec.dtype) {
        return GW_ERR_OPTION;
    }
    if ((f.flags & GW_FLAG_INSTALLED) != 0) {
        const uint32_t codebook = gw_find_codebook(p.work.codec, f);
        const uint32_t derived = gw_quantum_mode_of(f.flags) != GW_GCOMP_EXPLICIT;
        const gw_cuda_codebook_kind kind = {f.dtype == GW_FP16, derived,
                                            derived && (f.flags & GW_FLAG_CONSTANT) == 0};
        if (codebook == p.work.codec.codebook_count ||
            gw_codebook_crc(p.work.codec.codebook[codebook], sums) != f.codebook_crc ||
            !gw_is_codebook_good(s, p.work.codec.codebook[codebook], kind)) {
            return GW_ERR_TABLE;
        }
    }
    if (gw_front_has_map(f)) {
        const uint32_t base = p.work.map.is_present ? gw_map_base(p.work.map) : 0;
        if (!p.work.map.is_present || base > 1023 || item.map_len != f.len ||
            (f.len != 0 && (item.map_bytes == nullptr || item.digest == nullptr)) ||
            p.work.map.chunk_log2 != f.chunk_log2 ||
            gw_cuda_drop_offset(p.work.codec, base) != f.drop_offset ||
            p.work.map.wire_scale != f.wire_scale ||
            gw_front_map_hash(f, item.digest, f.wire_scale, sums) != f.map_hash) {
            return GW_ERR_MAP;
        }
    }
    if ((p.exact_len && f.len != item.dst_capacity) ||
        (p.mode != GW_CUDA_DECODE_VALIDATE && !gw_is_scale_valid(item))) {
        return GW_ERR_ARG;
    }
    return p.mode != GW_CUDA_DECODE_VALIDATE && f.len > item.dst_capacity ? GW_ERR_DST : GW_OK;
}

/* The status of a frame of a sum, whose own is `status`. By one thread; frames come in their order. */
GW_DEVICE uint32_t gw_sum_decide(const gw_cuda_sum &sum, const gw_frame_front &f, uint32_t status)
{
    gw_cuda_sum_state &all = *sum.state;
    const bool is_read = status == GW_OK || status == GW_ERR_DST;
    if (is_read && sum.index == 0) {
        all.len = f.len;
        all.chunk_log2 = f.chunk_log2;
    } else if (is_read && (f.len != all.len || f.chunk_log2 != all.chunk_log2)) {
        status = GW_ERR_MISMATCH;
    }
    if (all.status == GW_OK && status != GW_OK && status != GW_ERR_DST) {
        all.status = status;
        all.bad_frame = sum.index;
    }
    return all.status != GW_OK ? all.status : status;
}

/* chunk_first from the chunk counts, by one block. Items beyond what the host counted are refused: LIMIT. */
GW_DEVICE void gw_count_chunks(const gw_gcomp_decode_params &p, gw_check_state &s)
{
    uint64_t first = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        s.chunk_end = ~(uint64_t)0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < p.work.item_count; at += GW_THREADS) {
        const uint32_t i = at + threadIdx.x;
        const volatile gw_cuda_frame_state *frames = p.frames; /* other blocks wrote them */
        const uint64_t count = i < p.work.item_count && frames[i].status == GW_OK ? frames[i].chunk_count : 0;
        uint64_t total; /* a count is at most 2^32 */
        const uint64_t mine = first + gw_block_scan64<16>(count, s.sums, &total);
        /* Sums only grow, so no item with chunks after the first that does not fit fits.
         * A validation has nothing that bounds its values: gw_decode_all() looks at all. */
        if (p.mode != GW_CUDA_DECODE_VALIDATE && count != 0 && mine + count > p.chunk_total) {
            gw_atomic_min64(&s.chunk_end, mine);
            p.frames[i].status = GW_ERR_LIMIT;
        }
        __syncthreads();
        if (i < p.work.item_count) {
            p.chunk_first[i] = mine < s.chunk_end ? mine : s.chunk_end;
        }
        first += total;
    }
    if (threadIdx.x == 0) {
        p.chunk_first[p.work.item_count] = first < s.chunk_end ? first : s.chunk_end;
    }
}

/* Checks the pointers of an item in device memory as the host checks those of a single call: a misaligned
 * access would destroy the context. */
GW_DEVICE bool gw_is_item_sound(const gw_gcomp_decode_params &p, const gw_cuda_gcomp_item &item)
{
    const uint32_t element = gw_type_size(p.work.codec.dtype);
    return ((uintptr_t)item.src & 15) == 0 && ((uintptr_t)item.src_size_at & 7) == 0 &&
           (item.src != nullptr || item.src_size == 0) && ((uintptr_t)item.digest & 3) == 0 &&
           (p.mode == GW_CUDA_DECODE_VALIDATE ||
            ((((uintptr_t)item.dst | (uintptr_t)item.addend) & (element - 1)) == 0 &&
             (item.dst != nullptr || item.dst_capacity == 0)));
}

/* Status of an item before its directory is looked at; then `front` is filled. */
GW_DEVICE uint32_t gw_item_begin(const gw_gcomp_decode_params &p, const gw_cuda_gcomp_item &item,
                                 gw_frame_front &front)
{
    if (item.after != nullptr && item.after->status != GW_OK) {
        return item.after->status;
    }
    if (!gw_is_item_sound(p, item)) {
        return GW_ERR_ARG;
    }
    const uint64_t src_size = item.src_size_at != nullptr ? *item.src_size_at : item.src_size;
    return src_size > item.src_size
               ? (uint32_t)GW_ERR_SHORT
               : gw_front_read(front, (const uint8_t *)item.src, src_size, p.work.codec.len_max);
}

GW_KERNEL(gw_device_gcomp_check, gw_gcomp_decode_params, 256, 2)
{
    gw_check_state &s = GW_SHARED(gw_check_state);
    const uint32_t index = blockIdx.x / p.slices, slice = blockIdx.x % p.slices;
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, index);
    gw_cuda_frame_state &frame = p.frames[index];
    const uint8_t *src = (const uint8_t *)item.src;

    if (threadIdx.x == 0) {
        s.status = gw_item_begin(p, item, s.front);
    }
    __syncthreads();
    bool bad = false;
    if (s.status == GW_OK) {
        GW_NO_UNROLL
        for (uint64_t i = slice * GW_THREADS + threadIdx.x; i < s.front.chunk_count;
             i += p.slices * GW_THREADS) {
            bad = bad || !gw_entry_is_good(src, s.front, i);
        }
    }
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0) {
        if (bad) {
            atomicOr(&frame.is_directory_bad, 1u);
        }
        __threadfence();
        s.is_last = atomicAdd(&frame.slices_done, 1u) == p.slices - 1;
        __threadfence();
    }
    __syncthreads();
    if (!s.is_last) {
        return;
    }
    uint32_t status = s.status;
    if (status == GW_OK) {
        status = gw_front_decide(p, item, s.front, *(volatile uint32_t *)&frame.is_directory_bad != 0, s);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const gw_frame_front &f = s.front;
        if (p.sum.state != nullptr) {
            status = gw_sum_decide(p.sum, f, status);
        }
        frame.status = status;
        if (status == GW_OK) {
            frame.dtype = f.dtype;
            frame.quantum_mode = gw_quantum_mode_of(f.flags);
            frame.block_log2 = f.block_log2;
            frame.chunk_log2 = f.chunk_log2;
            frame.step = f.step;
            frame.cap = f.cap;
            frame.drop_offset = f.drop_offset;
            frame.strict = (f.flags & GW_FLAG_STRICT) != 0;
            frame.checksum = (f.flags & GW_FLAG_CHECKSUM) != 0;
            frame.installed = (f.flags & GW_FLAG_INSTALLED) != 0;
            frame.constant = (f.flags & GW_FLAG_CONSTANT) != 0;
            frame.codebook = gw_find_codebook(p.work.codec, f);
            frame.len = f.len;
            frame.chunk_count = f.chunk_count;
            frame.frame_size = f.frame_size;
            frame.directory_offset = f.directory_offset;
            frame.payload_offset = f.payload_offset;
        }
        __threadfence();
        s.is_last = atomicAdd(&p.head->items_done, 1u) == p.work.item_count - 1;
        __threadfence();
    }
    __syncthreads();
    if (s.is_last) {
        gw_count_chunks(p, s);
    }
}
