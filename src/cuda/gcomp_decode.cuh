/*
 * Decode of one chunk by a block of 256 threads: docs/format.md sections 3 to 5, rules 18 to 26 of section 8.
 *
 * The chunk is copied to shared memory. From its counts one warp works out the nodes of the tree, and all
 * count the set bits of their runs; then the nodes of one depth are produced together from those one deeper,
 * in two byte arrays that alternate:
 *
 *   inner node  a thread merges 32 consecutive ranks, one word of the bitmap. Where its left and right ranks
 *               start follows from the set bits before the word: a sum over the lanes of the warp, and what
 *               was counted before the task (32 words). Eight ranks at a time: a byte of the bitmap picks two
 *               byte permutations.
 *   leaf        a thread unpacks 32 numbers of k bits, k words. root        stays in registers; its owner
 *   looks up the 32 ranks, a block-wide sum of digit counts gives
 *               the places of its digits in the planes, and it assembles the values four by four. What is
 *               rare, escapes and fourth digits of fp32, is corrected afterwards.
 *
 * Set bits, counts and padding are checked before anything is addressed by them: with all counts right no
 * index leaves its array, whatever the bytes are.
 *
 * A chunk that is too large for shared memory is read in place, with the arrays in the rest of shared memory
 * or in the workspace: the same code with pointers instead of shared addresses. If the bytes change
 * meanwhile, values and status may be wrong, but no load leaves the chunk or the arrays (struct
 * gw_any_space), and stores go where the checked counts lead.
 *
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_DECODE_CUH
#define GW_CUDA_GCOMP_DECODE_CUH

#include "cuda/gcomp_join.cuh"
#include "cuda/gcomp_parts.cuh"

/* Bytes of one of the two rank buffers; 16 KiB of shared memory through which values are exchanged, which may
 * be the rank buffer that the root would go to; a place in shared memory for a zero mask. */
struct gw_decode_arrays {
    uint32_t rank_buffer_size, stage, mask;
};

/*
 * The levels of a tree of which the nodes are in s.node, deepest first: ranks to the rank buffers, until only
 * `end` and the tasks after it are left. Ends with a barrier.
 */
template <typename WORDS, typename BUFFER>
GW_DEVICE void gw_decode_tree_levels(gw_decode_state &s, const WORDS &words, const BUFFER &rank_buffer,
                                     uint32_t last)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    uint32_t start = 0, next_level = gw_place_of(s.task_start) + 4;
    GW_NO_UNROLL
    while (start != last) {
        const uint32_t end = gw_shared_load32(next_level);
        next_level += 4;
        GW_NO_UNROLL
        for (uint32_t task = start + warp; task < end; task += GW_WARPS) {
            const uint32_t what = s.task[task];
            const gw_node_work node = gw_node_load(s, what & 255);
            const uint32_t word = (what >> 8) * 32 + lane;
            const bool active = word < node.words;
            uint32_t x[8];
            gw_node_ranks(x, s, words, rank_buffer, node, word, active);
            if (active) {
                rank_buffer.store128(node.out + 32 * word, gw_four_of(x));
                rank_buffer.store128(node.out + 32 * word + 16, gw_four_of(x + 4));
            }
        }
        start = end;
        __syncthreads();
    }
}

/*
 * The zero mask of the chunk at words[0..size): its bytes to s.mask_place, as the bitmap of the root. Returns
 * true, to all threads, if a rule is broken. Ends with a barrier.
 */
template <bool DERIVED, typename WORDS, typename BUFFER>
GW_DEVICE bool gw_decode_mask(gw_decode_state &s, const WORDS &words, const BUFFER &rank_buffer,
                              const gw_decode_arrays &arrays, uint32_t size, uint32_t chunk_len)
{
    const gw_mask_tree &tree = s.tree.mask;
    const uint32_t mask_len = (chunk_len + 7) >> 3;
    if (gw_find_parts(s, words, tree.node_count, false, [&]() {
            return gw_find_mask_nodes<DERIVED>(s, words, size, mask_len, arrays.rank_buffer_size);
        })) {
        return true;
    }
    gw_decode_tree_levels(s, words, rank_buffer, s.node[0].first_task);
    /* The root: 32 bytes a thread. */
    const gw_node_work root = gw_node_load(s, 0);
    GW_NO_UNROLL
    for (uint32_t first = 0; first < root.words; first += GW_THREADS) {
        const uint32_t word = first + threadIdx.x;
        const bool active = word < root.words;
        uint32_t x[8];
        gw_node_ranks(x, s, words, rank_buffer, root, word, active);
        GW_UNROLL
        for (uint32_t i = 0; i < 8 && active; i++) {
            const uint32_t at = 32 * word + 4 * i;
            uint32_t four = 0;
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t byte = tree.byte_of_rank[gw_byte_of(x[i], j)];
                four |= at + j < mask_len ? byte << 8 * j : 0;
            }
            if (at < mask_len) {
                gw_shared_store32(arrays.mask + at, four);
            }
        }
    }
    __syncthreads();
    return false;
}

/*
 * Map bytes and drop_offset of a carried chunk from its quanta at words[0..size) (docs/format.md section
 * 5.4). Returns the bytes of the quanta, or 0 if they are not possible, to all threads. Ends with a barrier.
 */
template <uint32_t DTYPE, typename WORDS>
GW_DEVICE uint32_t gw_expand_quanta(gw_decode_state &s, const WORDS &words, uint32_t size,
                                    uint32_t block_log2, uint32_t chunk_len)
{
    typedef gw_type<DTYPE> type;
    const uint32_t t = threadIdx.x;
    const uint32_t blocks = (chunk_len + (1u << block_log2) - 1) >> block_log2, bytes = (blocks + 3) & ~3u;
    if (size < bytes) {
        return 0;
    }
    uint32_t e[2], largest = 0;
    bool bad = false;
    GW_UNROLL
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t at = t + GW_THREADS * j;
        e[j] = at < bytes ? words.load8(at) : 0;
        bad = bad || (at >= blocks && e[j] != 0);
        largest = e[j] > largest ? e[j] : largest;
    }
    largest = gw_block_max(largest, s.sums);
    GW_UNROLL
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t below = largest - e[j];
        bad = bad || (e[j] != 0 && below > GW_QUANTA_WINDOW);
        s.block_map_byte[t + GW_THREADS * j] = (uint8_t)(e[j] == 0 ? 0 : 255 - 4 * below);
    }
    if (t == 0) {
        s.drop_offset = gw_drop_offset_of_quanta<DTYPE>(largest);
    }
    bad = bad || largest > type::SPECIAL - 1 + type::BIAS;
    return __syncthreads_or(bad) ? 0 : bytes;
}

/*
 * Decodes the CODED chunk at words[0..size), codebook not included, with the tables of its codebook. Stores
 * to s.out after all checks if `is_checked_first`, else at once. Returns true, to all threads, if a rule is
 * broken.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename BUFFER>
GW_DEVICE bool gw_decode_coded(gw_decode_state &s, const gw_cuda_frame_state &frame, WORDS words,
                               const BUFFER &rank_buffer, const gw_decode_arrays &arrays, uint32_t size,
                               uint32_t chunk_len, bool is_checked_first)
{
    if (DERIVED && frame.quantum_mode == GW_GCOMP_CARRIED) {
        const uint32_t quanta = gw_expand_quanta<DTYPE>(s, words, size, frame.block_log2, chunk_len);
        if (quanta == 0) {
            return true;
        }
        words.skip(quanta);
        size -= quanta;
    }
    if (threadIdx.x == 0) {
        s.mask_words = 0;
        s.mask_place = arrays.mask;
    }
    if (s.tree.is_masked && gw_decode_mask<DERIVED>(s, words, rank_buffer, arrays, size, chunk_len)) {
        return true;
    }
    if (gw_find_parts(s, words, s.tree.node_count, s.tree.is_masked != 0, [&]() {
            return gw_find_nodes<DTYPE, DERIVED>(s, words, size, chunk_len, arrays.rank_buffer_size);
        })) {
        return true;
    }
    /* Level by level, up to the children of the root. */
    gw_decode_tree_levels(s, words, rank_buffer, s.node[0].first_task);
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t pass = is_checked_first ? 0 : 1; pass < 2 && !bad; pass++) {
        bad = gw_join_chunk<DTYPE, DERIVED>(s, frame, words, rank_buffer, arrays.stage, chunk_len, pass != 0);
    }
    return bad;
}

/*
 * Bytes of dynamic shared memory in front of the arrays, and what reads of the copied chunk may go beyond
 * its end. Escapes go farthest: they begin at the end of theirs at the latest (gw_part_place()), and a
 * thread reads 32 of 4 bytes. Digits: 31 of 6 bits, and two words for a window. Leaves: 32 numbers of 7 bits
 * where there is one.
 */
enum { GW_DECODE_FIXED = offsetof(gw_decode_state, arrays), GW_DECODE_SLACK = 128 };

static_assert(GW_DECODE_FIXED + GW_DECODE_SLACK <= GW_CUDA_DECODE_FIXED_MAX, "the host reserves enough");
static_assert(GW_CUDA_RANK_BUFFER_SIZE(12) % 64 == 0 && GW_CUDA_RANK_BUFFER_SIZE_MIN % 64 == 0,
              "stages are aligned");

/* Bytes of a zero mask: also the room for one. */
GW_DEVICE uint32_t gw_mask_size(uint32_t chunk_log2)
{
    return (1u << chunk_log2) / 8;
}

GW_DEVICE uint32_t gw_rank_buffer_size(uint32_t chunk_log2)
{
    const uint32_t size = GW_CUDA_RANK_BUFFER_SIZE(chunk_log2);
    return size < GW_CUDA_RANK_BUFFER_SIZE_MIN ? GW_CUDA_RANK_BUFFER_SIZE_MIN : size;
}

/* Once in the life of a block. */
GW_DEVICE void gw_decode_begin(gw_decode_state &s)
{
    const uint32_t t = gw_thread_now();
    s.selector[t] = gw_selector_of(t);
    if (t == 0) {
        s.codebook_owner = 0;
    }
    __syncthreads();
}

/* Copies up to 140 bytes of a codebook, at src, to s.codebook. Ends with a barrier. */
GW_DEVICE void gw_codebook_fetch(gw_decode_state &s, const uint8_t *src, uint64_t size)
{
    __syncthreads();
    const uint32_t t = gw_thread_now();
    if (t < GW_CUDA_CODEBOOK_SIZE_MAX && t < size) {
        s.codebook[t] = src[t];
    }
    __syncthreads();
}

/*
 * Makes tree and tables of the codebook of the chunk in s (its owner is at s.owner_offset) unless they are
 * there. Returns its size, 0 if rule 20 is broken.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_codebook_use(gw_decode_state &s, const gw_cuda_codec &codec,
                                   const gw_cuda_frame_state &frame, const uint8_t *src, uint64_t owner)
{
    if (s.codebook_owner == owner) {
        return s.codebook_size;
    }
    uint32_t size;
    const gw_cuda_codebook_kind kind = {gw_type<DTYPE>::IS_FP16, frame.quantum_mode != 0,
                                        frame.quantum_mode != 0 && !frame.constant};
    if (frame.installed) {
        const gw_cuda_codebook &codebook = codec.codebook[frame.codebook];
        const uint32_t codebook_size = codebook.size_at != nullptr ? *codebook.size_at : codebook.size;
        gw_codebook_fetch(s, codebook.bytes != nullptr ? codebook.bytes : codebook.inline_bytes,
                          codebook_size);
        size = gw_cuda_codebook_read(s.tree, s.codebook, codebook_size, kind, s.sums);
    } else {
        gw_codebook_fetch(s, src + s.owner_offset, s.owner_size);
        size = gw_cuda_codebook_read(s.tree, s.codebook, s.owner_size, kind, s.sums);
    }
    if (size != 0) {
        gw_cuda_tree_build(s.tree, *(gw_tree_scratch *)(void *)s.arrays);
        gw_decode_tables<DTYPE>(s, frame);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.codebook_owner = size == 0 ? 0 : owner;
        s.codebook_size = size;
    }
    __syncthreads();
    return size;
}

/* A chunk that is copied as it is, or is zero. size: bytes of values. */
template <uint32_t DTYPE>
GW_DEVICE void gw_decode_plain(const uint8_t *src, uint32_t size, const gw_decode_out &out)
{
    GW_NO_UNROLL
    for (uint32_t at = 16 * threadIdx.x; at < size; at += 16 * GW_THREADS) {
        const uint4 x = src == nullptr ? make_uint4(0, 0, 0, 0) : *(const uint4 *)(const void *)(src + at);
        gw_store_values<DTYPE>(out, at, x, size - at);
    }
}

/* A chunk that gw_cuda_decode_chunk() leaves to its other kind; nothing was touched. */
enum { GW_DECODE_DEFERRED = 255 };

/* What surrounds a chunk. */
struct gw_decode_call {
    const gw_cuda_codec &codec;
    const gw_cuda_frame_state &frame;
    const uint8_t *src;
    const uint8_t *map_bytes; /* of the frame's first value */
    uint32_t shared_size;     /* of the block */
    uint8_t *large;           /* a slot for chunks that do not fit it, see gw_decode_copy_room() */
    uint64_t owner_key; /* added to a chunk's index: distinguishes codebooks of different frames; not 0 */
};

/* Bytes of shared memory that are left for a copy of the chunk; 0: its rank buffers do not fit, and a slot
 * is needed. */
GW_DEVICE uint32_t gw_decode_copy_room(uint32_t shared_size, uint32_t chunk_log2)
{
    const uint32_t fixed =
        GW_DECODE_FIXED + 2 * gw_rank_buffer_size(chunk_log2) + gw_mask_size(chunk_log2) + GW_DECODE_SLACK;
    return shared_size > fixed ? shared_size - fixed : 0;
}

/* The chunk does not fit the block's shared memory with its rank buffers. */
GW_DEVICE bool gw_decode_is_far(const gw_decode_call &c, uint64_t size)
{
    return size > gw_decode_copy_room(c.shared_size, c.frame.chunk_log2);
}

/* A chunk that is not far: copied to shared memory. A codebook in front (skip) is a multiple of 4 bytes;
 * it is copied, too. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_decode_near(gw_decode_state &s, const gw_decode_call &c, const uint8_t *src, uint32_t size,
                              uint32_t skip, uint32_t chunk_len, bool is_checked_first)
{
    const uint32_t rank_buffer_size = gw_rank_buffer_size(c.frame.chunk_log2);
    const uint32_t arrays = gw_place_of(s.arrays), mask = arrays + 2 * rank_buffer_size;
    const uint32_t copy = mask + gw_mask_size(c.frame.chunk_log2);
    GW_NO_UNROLL
    for (uint32_t at = 16 * threadIdx.x; at < size; at += 16 * GW_THREADS) {
        gw_copy_async16(copy + at, src + at);
    }
    gw_copy_wait();
    __syncthreads();
    const gw_shared_space words = {copy + skip}, rank_buffer = {arrays};
    return gw_decode_coded<DTYPE, DERIVED>(
        s, c.frame, words, rank_buffer,
        {rank_buffer_size, arrays + (s.tree.depth_max & 1) * rank_buffer_size, mask}, size - skip, chunk_len,
        is_checked_first);
}

/* Any chunk: read in place. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_decode_far(gw_decode_state &s, const gw_decode_call &c, const uint8_t *src, uint32_t size,
                             uint32_t skip, uint32_t chunk_len, bool is_checked_first)
{
    const uint32_t rank_buffer_size = gw_rank_buffer_size(c.frame.chunk_log2);
    const bool has_room = gw_decode_copy_room(c.shared_size, c.frame.chunk_log2) != 0;
    const uint32_t arrays = gw_place_of(s.arrays);
    const gw_any_space words = {(uint8_t *)(uintptr_t)src + skip, size - skip};
    const gw_any_space rank_buffer = {has_room ? (uint8_t *)s.arrays : c.large, 2 * rank_buffer_size};
    return gw_decode_coded<DTYPE, DERIVED>(
        s, c.frame, words, rank_buffer,
        {rank_buffer_size, has_room ? arrays + (s.tree.depth_max & 1) * rank_buffer_size : arrays,
         arrays + (has_room ? 2 * rank_buffer_size : (uint32_t)GW_CUDA_RANK_BUFFER_SIZE_MIN)},
        size - skip, chunk_len, is_checked_first);
}

/* The next step of a chunk, before its values can be decoded or in place of that. */
enum {
    GW_TODO_END = 1, /* return s.status */
    GW_TODO_CHECKSUM = 2,
    GW_TODO_PLAIN = 4, /* it has no values in code */
    GW_TODO_CODEBOOK = 8,
    GW_TODO_MISFIT = 16, /* its size is wrong, which counts if the checksum is right */
    GW_CHUNK_READY = 254 /* what gw_chunk_prepare() returns, in addition to statuses */
};

/*
 * Looks at the entry of a chunk, by thread 0, which leaves in s what all threads need of it: 256 threads
 * would compare the same numbers. Returns what is left to do, most often nothing.
 */
template <uint32_t DTYPE, bool REST>
GW_DEVICE uint32_t gw_chunk_look(gw_decode_state &s, const gw_decode_call &c, uint64_t index)
{
    /* Entries are read once, by one thread: if the bytes change meanwhile, all threads of the block still
     * agree. */
    const gw_cuda_frame_state &frame = c.frame;
    const uint32_t chunk_len = gw_at_most(frame.len - (index << frame.chunk_log2), 1u << frame.chunk_log2);
    const uint32_t raw_size = (chunk_len * gw_type<DTYPE>::SIZE + 15) & ~15u;
    gw_chunk_entry e = {0, 0, 0, 0, 0}, owner = {0, 0, 0, 0, 0};
    bool good = gw_entry_read(e, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                              frame.chunk_count, frame.installed != 0, index);
    const bool has_owner = good && e.kind == GW_CHUNK_CODED && !frame.installed;
    const bool is_owner = has_owner && e.codebook == index;
    if (has_owner) {
        good = gw_entry_read(owner, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                             frame.chunk_count, false, e.codebook);
    }
    s.map_bytes = c.map_bytes == nullptr ? nullptr : c.map_bytes + (index << frame.chunk_log2);
    s.index = index;
    s.chunk_len = chunk_len;
    s.status = GW_ERR_CORRUPT;
    if (!good) {
        return GW_TODO_END;
    }
    s.data = c.src + e.offset;
    s.size = e.size;
    s.kind = e.kind;
    s.crc = e.crc;
    s.is_owner = is_owner;
    s.owner_offset = owner.offset;
    s.owner_size = owner.size;
    s.codebook_key = c.owner_key + (frame.installed ? 0 : e.codebook);
    s.skip = 0;
    const uint32_t checksum = frame.checksum ? GW_TODO_CHECKSUM : 0;
    if (e.kind != GW_CHUNK_CODED) {
        const bool fits = e.size == (e.kind == GW_CHUNK_RAW ? raw_size : 0);
        return checksum | GW_TODO_PLAIN | (fits ? 0 : GW_TODO_MISFIT);
    }
    s.is_far = gw_decode_is_far(c, e.size);
    if (!REST && (frame.quantum_mode != 0 || s.is_far)) {
        s.status = GW_DECODE_DEFERRED;
        return GW_TODO_END;
    }
    const bool has_codebook = s.codebook_owner == s.codebook_key;
    if (has_codebook && is_owner) {
        s.skip = s.codebook_size;
    }
    return checksum | (has_codebook ? 0 : GW_TODO_CODEBOOK) |
           (e.size >= raw_size || e.size < s.skip ? GW_TODO_MISFIT : 0);
}

/* What gw_chunk_look() left to do. GW_CHUNK_READY, or the status of a chunk that needs no more, to all
 * threads. */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_chunk_prepare(gw_decode_state &s, const gw_decode_call &c, uint32_t todo)
{
    if ((todo & GW_TODO_END) != 0) {
        return s.status;
    }
    const uint8_t *const data = s.data;
    const bool is_plain = (todo & GW_TODO_PLAIN) != 0;
    const bool is_owner = s.is_owner != 0;
    /* The checksum of a chunk with another's codebook covers that, too. */
    const bool is_alone = is_plain || is_owner || c.frame.installed;
    if ((todo & GW_TODO_CHECKSUM) != 0 && is_alone) {
        const uint32_t found = gw_cuda_crc32c(0, s.size >> 2, s.sums, [=](uint64_t i) {
            return gw_read32(data + 4 * i);
        });
        if (found != s.crc) {
            return GW_ERR_CHECKSUM;
        }
    }
    if (is_plain) {
        const uint32_t value_size = s.chunk_len * gw_type<DTYPE>::SIZE;
        if ((todo & GW_TODO_MISFIT) != 0) {
            return GW_ERR_CORRUPT;
        }
        const bool is_raw = s.kind == GW_CHUNK_RAW;
        if (is_raw &&
            __syncthreads_or(threadIdx.x < ((0 - value_size) & 15) && data[value_size + threadIdx.x] != 0)) {
            return GW_ERR_CORRUPT;
        }
        if (s.out.dst != nullptr) {
            gw_decode_plain<DTYPE>(is_raw ? data : nullptr, value_size, s.out);
        }
        return GW_OK;
    }
    const uint32_t codebook_size = gw_codebook_use<DTYPE>(s, c.codec, c.frame, c.src, s.codebook_key);
    if (codebook_size == 0) {
        return GW_ERR_CORRUPT;
    }
    if ((todo & GW_TODO_CHECKSUM) != 0 && !is_alone) {
        /* 64 bits: the size in the directory has not been checked yet. */
        const uint64_t codebook_words = codebook_size >> 2, words = s.size >> 2;
        const uint8_t *codebook = c.src + s.owner_offset;
        const uint32_t found = gw_cuda_crc32c(0, codebook_words + words, s.sums, [=](uint64_t i) {
            return i < codebook_words ? gw_read32(codebook + 4 * i)
                                      : gw_read32(data + 4 * (i - codebook_words));
        });
        if (found != s.crc) {
            return GW_ERR_CHECKSUM;
        }
    }
    const uint32_t skip = is_owner ? codebook_size : 0;
    if ((todo & GW_TODO_MISFIT) != 0 || s.size < skip) {
        return GW_ERR_CORRUPT;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.skip = skip;
    }
    __syncthreads();
    return GW_CHUNK_READY;
}

/*
 * Decodes chunk `index` of a frame whose front was accepted to s.out, which thread 0 has set; s.out.dst is
 * the place of the chunk's first value (NULL: only check). GW_OK, GW_ERR_CORRUPT or GW_ERR_CHECKSUM, to all
 * threads; then the place holds anything, unless is_checked_first: then it is as it was. All 256 threads of
 * the block call it. Begins and ends with a barrier.
 *
 * There are two kinds. The first leaves out what takes more registers: CODED chunks of derived frames, and
 * those too large for shared memory; REST decodes only those.
 */
template <uint32_t DTYPE, bool REST>
GW_DEVICE uint32_t gw_cuda_decode_chunk(gw_decode_state &s, const gw_decode_call &c, uint64_t index,
                                        bool is_checked_first)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        s.todo = gw_chunk_look<DTYPE, REST>(s, c, index);
    }
    __syncthreads();
    const uint32_t todo = s.todo;
    if (todo != 0) {
        const uint32_t status = gw_chunk_prepare<DTYPE>(s, c, todo);
        if (status != GW_CHUNK_READY) {
            return status;
        }
    }
    const uint8_t *const data = s.data;
    const uint32_t size = (uint32_t)s.size, skip = s.skip, chunk_len = s.chunk_len;
    bool bad;
    if (!REST) {
        bad = gw_decode_near<DTYPE, false>(s, c, data, size, skip, chunk_len, is_checked_first);
    } else if (c.frame.quantum_mode != 0) {
        bad = s.is_far ? gw_decode_far<DTYPE, true>(s, c, data, size, skip, chunk_len, is_checked_first)
                       : gw_decode_near<DTYPE, true>(s, c, data, size, skip, chunk_len, is_checked_first);
    } else {
        bad = gw_decode_far<DTYPE, false>(s, c, data, size, skip, chunk_len, is_checked_first);
    }
    return bad ? GW_ERR_CORRUPT : GW_OK;
}

#endif
