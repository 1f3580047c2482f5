/*
 * Encode in one pass over the chunks of all items. Blocks take chunks in order (a ticket), so every chunk
 * that a block waits for is with a block that runs. A chunk waits twice: for which earlier chunk of its group
 * stores the codebook, and, when its own size is known, for the place where it begins: the sizes, or already
 * the end, of the chunks before it ("decoupled look-back", Merrill and Garland 2016).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_items.cuh"

#include "cuda/gcomp_encode.cuh"

enum { GW_WORD_SIZE = 1, GW_WORD_END = 2 };
#define GW_WORD_VALUE (((uint64_t)1 << 62) - 1)

/* The chunks of a group before `unit`, of which the first that would be CODED with its codebook owns it.
 * By one warp; returns its unit, or ~0. */
GW_DEVICE uint64_t gw_find_owner(const gw_cuda_chunk_word *words, uint64_t unit, uint32_t before)
{
    const uint32_t lane = gw_lane();
    GW_NO_UNROLL
    for (uint32_t at = 0; at < before; at += 32) {
        const bool exists = at + lane < before;
        uint64_t word = 1;
        if (exists) {
            while ((word = gw_load_acquire(&words[unit - before + at + lane].owner)) == 0) {
                gw_spin();
            }
        }
        const uint32_t coded = __ballot_sync(GW_FULL_MASK, exists && word == 3);
        if (coded != 0) {
            return unit - before + at + __ffs(coded) - 1;
        }
    }
    return ~(uint64_t)0;
}

/* Where the chunk `unit` begins, in 16 bytes, given its own size; the first chunk of an item begins at
 * `start`. By one warp. */
GW_DEVICE uint64_t gw_find_place(gw_cuda_chunk_word *words, uint64_t unit, uint64_t item_first,
                                 uint64_t start, uint64_t size)
{
    const uint32_t lane = gw_lane();
    if (unit == item_first) {
        if (lane == 0) {
            gw_store_release(&words[unit].size, (uint64_t)GW_WORD_END << 62 | (start + size));
        }
        return start;
    }
    if (lane == 0) {
        gw_store_release(&words[unit].size, (uint64_t)GW_WORD_SIZE << 62 | size);
    }
    uint64_t place = 0;
    uint64_t nearest = unit; /* everything from here on is in place */
    GW_NO_UNROLL
    for (;;) {
        const bool exists = nearest - item_first > lane;
        uint64_t word = (uint64_t)GW_WORD_END
                        << 62; /* what is not there adds nothing, and is not looked at either */
        if (exists) {
            word = gw_load_acquire(&words[nearest - 1 - lane].size);
        }
        const uint32_t ends = __ballot_sync(GW_FULL_MASK, word >> 62 == GW_WORD_END);
        const uint32_t missing = __ballot_sync(GW_FULL_MASK, word == 0);
        const uint32_t wanted =
            ends == 0 ? GW_FULL_MASK : (ends & (0u - ends)) * 2 - 1; /* up to the nearest end */
        if ((missing & wanted) != 0) {
            gw_spin();
            continue;
        }
        const uint64_t mine = (wanted >> lane & 1) != 0 ? word & GW_WORD_VALUE : 0;
        /* Sizes are below 2^14 of 16 bytes, a place is below 2^50: the parts are summed apart. */
        const uint32_t low = __reduce_add_sync(GW_FULL_MASK, (uint32_t)mine & 0xffffff);
        const uint32_t middle = __reduce_add_sync(GW_FULL_MASK, (uint32_t)(mine >> 24) & 0xffffff);
        const uint32_t high = __reduce_add_sync(GW_FULL_MASK, (uint32_t)(mine >> 48));
        place += low + ((uint64_t)middle << 24) + ((uint64_t)high << 48);
        if (ends != 0) {
            break;
        }
        nearest -= 32;
    }
    if (lane == 0) {
        gw_store_release(&words[unit].size, (uint64_t)GW_WORD_END << 62 | (place + size));
    }
    return place;
}

/* Header, extension, padding and their checksum of an item whose chunks are all written; the result. */
GW_DEVICE void gw_encode_finish(gw_encode_state &s, const gw_gcomp_encode_params &p,
                                const gw_cuda_gcomp_item &item, const gw_frame_front &front,
                                uint64_t frame_size)
{
    const gw_cuda_codec &codec = p.work.codec;
    uint8_t *dst = (uint8_t *)item.dst;
    const bool has_map = gw_front_has_map(front);
    const bool installed = (front.flags & GW_FLAG_INSTALLED) != 0;
    uint64_t map_hash = 0;
    uint32_t codebook_crc = 0;
    if (has_map) {
        map_hash = gw_front_map_hash(front, item.digest, p.work.map.wire_scale, s.sums);
    }
    if (installed) {
        codebook_crc = gw_codebook_crc(codec.codebook[codec.encode_with], s.sums);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *h = (uint32_t *)(void *)dst;
        h[0] = 0x1a665767u;
        h[1] = 1u << 8 | front.dtype << 16 | front.chunk_log2 << 24;
        h[2] = front.flags | gw_front_parts_size(front) / 8 << 24;
        h[3] = front.step | front.cap << 8 | ((uint32_t)front.drop_offset | front.block_log2) << 16;
        h[4] = (uint32_t)front.len;
        h[5] = (uint32_t)(front.len >> 32);
        h[6] = (uint32_t)frame_size;
        h[7] = (uint32_t)(frame_size >> 32);
        uint32_t at = 8;
        if (installed) {
            h[at++] = codec.codebook[codec.encode_with].id;
            h[at++] = codec.codebook[codec.encode_with].generation;
            h[at++] = codebook_crc;
            h[at++] = 0;
        }
        if (has_map) {
            h[at++] = (uint32_t)map_hash;
            h[at++] = (uint32_t)(map_hash >> 32);
            h[at++] = p.work.map.wire_scale;
            h[at++] = 0;
        }
        if ((front.flags & GW_FLAG_CHECKSUM) != 0) {
            h[at++] = 0;
            h[at++] = 0;
        }
        for (uint64_t i = (front.directory_offset + 16 * front.chunk_count) >> 2;
             i < front.payload_offset >> 2; i++) {
            h[i] = 0;
        }
    }
    __syncthreads();
    if ((front.flags & GW_FLAG_CHECKSUM) != 0) {
        const uint32_t crc = gw_front_crc(dst, gw_front_crc_offset(front), front.payload_offset, s.sums);
        if (threadIdx.x == 0) {
            ((uint32_t *)(void *)dst)[gw_front_crc_offset(front) >> 2] = crc;
        }
    }
    if (threadIdx.x == 0) {
        const gw_cuda_result result = {GW_OK, 0, frame_size, front.len, ~(uint64_t)0, 0};
        *item.result = result;
    }
}

/* Tree and tables of the group's codebook, or of the installed one; s.codebook. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_encode_fetch_codebook(gw_encode_state &s, const gw_gcomp_encode_params &p, uint64_t group)
{
    const uint32_t t = threadIdx.x;
    __syncthreads();
    if (p.work.codec.encode_with >= 0) {
        if (s.owner == 0) { /* the block has it already */
            return true;
        }
        if (!gw_encode_read_codebook<DTYPE, DERIVED>(s, p.work.codec.codebook[p.work.codec.encode_with])) {
            return false;
        }
        if (t == 0) {
            s.owner = 0;
        }
        gw_cuda_tree_build(s.tree, *(gw_tree_scratch *)(void *)s.arrays);
    } else {
        const gw_cuda_group_codebook &codebook = p.codebooks[group];
        gw_tree_load(s.tree, codebook.tree);
        if (4 * t < GW_CUDA_CODEBOOK_SIZE_MAX) {
            gw_shared_store32(gw_place_of(s.codebook) + 4 * t, gw_read32(codebook.bytes + 4 * t));
        }
        if (t == 0) {
            s.codebook_size = codebook.size;
            s.codebook_crc = codebook.crc;
        }
    }
    gw_encode_tables<DTYPE, DERIVED>(s);
    return true;
}

/* What the chunk of a unit is. */
struct gw_encode_chunk {
    uint64_t unit, index;      /* of the call, of the frame */
    uint64_t first;            /* its first value in the frame */
    uint32_t len, raw_size;    /* values; bytes as RAW */
    uint32_t group_chunk_log2; /* chunks of a group */
    uint32_t quanta_size;      /* carried, else 0: bytes in front of the counts */
};

/* Kind, owner and place of the measured chunk, into s and the directory. By the first warp. */
GW_DEVICE void gw_encode_place_chunk(gw_encode_state &s, const gw_gcomp_encode_params &p,
                                     const gw_encode_chunk &chunk, uint8_t *dst)
{
    const bool installed = p.work.codec.encode_with >= 0;
    const bool is_zero = s.any == 0;
    const uint32_t own_size = chunk.quanta_size + s.size;
    const uint32_t with_codebook = (s.codebook_size + own_size + 15) & ~15u,
                   without_codebook = (own_size + 15) & ~15u;
    const uint32_t lane = gw_lane();
    const uint64_t unit = chunk.unit, item_first = unit - chunk.index;
    bool is_owner = false;
    uint64_t owner = unit;
    if (!installed) {
        const bool would_own = !is_zero && with_codebook < chunk.raw_size;
        if (lane == 0) {
            gw_store_release(&p.words[unit].owner, would_own ? 3 : 1);
        }
        owner = gw_find_owner(p.words, unit, (uint32_t)chunk.index & ((1u << chunk.group_chunk_log2) - 1));
        is_owner = owner == ~(uint64_t)0;
        owner = is_owner ? unit : owner;
    }
    const uint32_t region = is_owner ? with_codebook : without_codebook;
    const bool is_coded = region < chunk.raw_size;
    const uint32_t kind = is_zero ? GW_CHUNK_ZERO : is_coded ? GW_CHUNK_CODED : GW_CHUNK_RAW;
    const uint32_t size = is_zero ? 0 : is_coded ? region : chunk.raw_size;
    const uint64_t place = gw_find_place(p.words, unit, item_first, s.front.payload_offset >> 4, size >> 4);
    if (lane == 0) {
        s.offset = place << 4;
        s.is_owner = is_owner && kind == GW_CHUNK_CODED;
        s.status = kind;
        uint32_t *entry = (uint32_t *)(void *)(dst + s.front.directory_offset + 16 * chunk.index);
        const uint64_t where = s.offset | kind;
        entry[0] = (uint32_t)where;
        entry[1] = (uint32_t)(where >> 32);
        entry[2] = kind == GW_CHUNK_CODED && !installed ? (uint32_t)(owner - item_first) : 0;
        entry[3] = 0;
    }
}

/* Writes the chunk whose kind and place are in s, and its checksum. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_encode_write_chunk(gw_encode_state &s, const gw_gcomp_encode_params &p,
                                     const gw_cuda_rounder &r, const gw_encode_chunk &chunk, uint8_t *dst)
{
    const uint32_t t = threadIdx.x, kind = s.status;
    uint8_t *to = dst + s.offset;
    const uint32_t skip = s.is_owner ? s.codebook_size : 0;
    uint32_t size = kind == GW_CHUNK_RAW ? chunk.raw_size : 0;
    if (kind == GW_CHUNK_RAW) {
        gw_write_raw<DTYPE, DERIVED>(s, r, chunk.first, chunk.len, to);
    } else if (kind == GW_CHUNK_CODED) {
        const uint32_t front = skip + chunk.quanta_size;
        size = (front + s.size + 15) & ~15u;
        if (4 * t < skip) {
            *(uint32_t *)(void *)(to + 4 * t) = *(const uint32_t *)(const void *)(s.codebook + 4 * t);
        }
        if (4 * t < size - front - s.size) {
            *(uint32_t *)(void *)(to + front + s.size + 4 * t) = 0;
        }
        if (DERIVED) {
            const uint32_t blocks =
                (chunk.len + (1u << p.work.codec.block_log2) - 1) >> p.work.codec.block_log2;
            GW_NO_UNROLL
            for (uint32_t i = t; i < chunk.quanta_size; i += GW_THREADS) {
                to[skip + i] =
                    i < blocks ? r.from.map_bytes[(chunk.first >> p.work.codec.block_log2) + i] : (uint8_t)0;
            }
        }
        gw_cuda_write_coded<DTYPE, DERIVED>(s, r, p.work.codec.chunk_log2, chunk.first, chunk.len,
                                            (uint32_t *)(void *)(to + front));
    }
    if (p.work.codec.checksum && kind != GW_CHUNK_ZERO) {
        /* The codebook's checksum comes first: for its owner that is its own region from the start. */
        const uint32_t before = kind == GW_CHUNK_CODED ? s.codebook_crc : 0;
        const uint8_t *from = to + skip;
        const uint32_t crc = gw_cuda_crc32c(before, (size - skip) >> 2, s.sums, [=](uint64_t i) {
            return gw_read32(from + 4 * i);
        });
        if (t == 0) {
            *(uint32_t *)(void *)(dst + s.front.directory_offset + 16 * chunk.index + 12) = crc;
        }
    }
}

/* Counts a finished chunk of the item; the block that completes the item writes its front. */
GW_DEVICE void gw_encode_complete(gw_encode_state &s, const gw_gcomp_encode_params &p,
                                  const gw_cuda_gcomp_item &item, uint64_t item_first)
{
    const gw_frame_front &front = s.front;
    const uint64_t count = front.chunk_count == 0 ? 1 : front.chunk_count;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        s.is_last = gw_atomic_add64(&p.states[s.item].chunks_done, 1) == count - 1;
        __threadfence();
    }
    __syncthreads();
    if (s.is_last) {
        uint64_t frame_size = front.payload_offset;
        if (front.chunk_count != 0) {
            frame_size = (gw_load_acquire(&p.words[item_first + count - 1].size) & GW_WORD_VALUE) << 4;
        }
        gw_encode_finish(s, p, item, front, frame_size);
    }
}

template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_encode_unit(gw_encode_state &s, const gw_gcomp_encode_params &p)
{
    const uint32_t t = threadIdx.x;
    const gw_cuda_gcomp_item &item = gw_item_of(p.work, s.item);
    const uint64_t unit = s.unit, item_first = gw_first_of(p.unit_first, s.item);
    const uint64_t index = unit - item_first;
    const uint32_t log2 = p.work.codec.chunk_log2, group_log2 = gw_group_log2(p.work.codec) - log2;
    if (t == 0) {
        s.status = gw_item_status(p.work, item);
    }
    __syncthreads();
    uint32_t status = s.status;
    if (status == GW_OK && item.src_size != 0 &&
        !gw_encode_fetch_codebook<DTYPE, DERIVED>(
            s, p, gw_first_of(p.group_first, s.item) + (index >> group_log2))) {
        status = GW_ERR_TABLE;
    }
    if (status != GW_OK) {
        if (t == 0 && index == 0) {
            gw_item_fail(item, status);
        }
        return;
    }
    if (t == 0) {
        s.front = gw_encode_front(p, item);
        s.source = gw_source_of(p.work, item);
        if (DERIVED && p.quanta != nullptr) {
            gw_source_carry(s.source, p, item_first);
            s.source.drop_offset = item.src_size != 0 ? p.drop_offsets[unit] : 0;
        }
    }
    __syncthreads();
    const gw_cuda_rounder r = {p.work.rounding, s.source};
    const gw_frame_front &front = s.front;
    const uint64_t first = index << log2;
    if (front.chunk_count != 0) {
        uint8_t *dst = (uint8_t *)item.dst;
        const uint32_t len = gw_at_most(front.len - first, 1u << log2);
        const uint32_t block_log2 = p.work.codec.block_log2;
        const uint32_t quanta_size =
            DERIVED && block_log2 != 0 ? (((len + (1u << block_log2) - 1) >> block_log2) + 3) & ~3u : 0;
        const gw_encode_chunk chunk = {
            unit, index, first, len, (len * gw_type<DTYPE>::SIZE + 15) & ~15u, group_log2, quanta_size};
        gw_cuda_measure_chunk<DTYPE, DERIVED>(s, r, log2, first, len);
        if (t < 32) {
            gw_encode_place_chunk(s, p, chunk, dst);
        }
        __syncthreads();
        gw_encode_write_chunk<DTYPE, DERIVED>(s, p, r, chunk, dst);
    }
    gw_encode_complete(s, p, item, item_first);
}

template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_encode_all(const gw_gcomp_encode_params &p)
{
    gw_encode_state &s = GW_SHARED(gw_encode_state);
    if (threadIdx.x == 0) {
        s.units = p.work.items == nullptr ? p.unit_total : p.unit_first[p.work.item_count];
        s.owner = ~(uint64_t)0;
        s.shared_size = p.shared_size;
    }
    GW_NO_UNROLL
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) {
            s.unit = gw_atomic_add64(&p.head->ticket, 1);
            s.item = p.work.items != nullptr && s.unit < s.units
                         ? gw_item_find(p.unit_first, p.work.item_count, s.unit)
                         : 0;
        }
        __syncthreads();
        if (s.unit >= s.units) {
            break;
        }
        gw_encode_unit<DTYPE, DERIVED>(s, p);
    }
}

GW_KERNELS_BY_MODE(gw_device_gcomp_encode, gw_gcomp_encode_params, gw_encode_all)
