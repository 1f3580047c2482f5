/*
 * Encode of one chunk by a block of 256 threads: docs/format.md sections 3 and 5.
 *
 *   1  A warp takes consecutive values, 512 at a time: a lane rounds 16 of them and looks up what each
 *      becomes, rank, digits and whether it is an escape, in one word. The digits go into strings of bits in
 *      shared memory, one for each plane and warp, so that a warp finds their places by itself.
 *   2  Ranks move down the tree level by level, in two byte arrays that alternate. A thread compares 32 ranks
 *      of a node with its pivot, which makes a word of the node's bitmap; sums of set bits give the places of
 *      its ranks. A node is in its array after the values of smaller ranks, so what a leaf holds stays there.
 *   3  Now all sizes are known, and the place of the chunk follows from those of the chunks before (found by
 *      the caller).
 *   4  The strings are joined as they are written, bitmaps and packed leaves are assembled where the strings
 *      were, both in writes of 16 bytes.
 *
 * Derived frames, and devices with little shared memory, have no strings: digits are only counted in the
 * first step, and at last values are rounded once more and their digits put together 4096 (fp32) or 8192
 * values at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ENCODE_CUH
#define GW_CUDA_GCOMP_ENCODE_CUH

#include "cuda/gcomp_rank.cuh"
#include "cuda/gcomp_write.cuh"

/* Tables of the codebook whose tree is in s. Begins and ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE void gw_encode_tables(gw_encode_state &s)
{
    __syncthreads();
    /* Labels without a code have the rank of the escape. Without an escape every label that occurs has a
     * code. */
    const uint32_t t = gw_thread_now(); /* otherwise the flags of its digits would stay in registers */
    if ((s.tree.has_code[t >> 5] >> (t & 31) & 1) == 0) {
        s.tree.rank_of_label[t] = (uint8_t)s.tree.escape_rank;
    }
    if (DERIVED && t < 32) {
        s.flags[t] = t <= gw_type<DTYPE>::M + 1 ? gw_digit_flags<DTYPE>(t) : 0;
    }
    if (!DERIVED && DTYPE != GW_FP16) {
        /* Labels by exponent field: gw_round_value(). */
        __syncthreads();
        const uint32_t e = t - s.tree.window_start - 1;
        uint32_t entry[4];
        GW_UNROLL
        for (uint32_t drop_steps = 0; drop_steps < 4; drop_steps++) {
            const uint32_t label = t == 0                                  ? 0
                                   : e < 63 && t < gw_type<DTYPE>::SPECIAL ? 4 * (e + 1) + drop_steps
                                                                           : 1;
            entry[drop_steps] = gw_entry_of(label, s.tree.rank_of_label[label], s.tree.escape_rank);
        }
        gw_shared_store128(gw_place_of(s.entry) + 16 * t, gw_four_of(entry));
        if (t < 4) {
            s.factor[t] = t == 0 ? 0 : (127 + 6 * t) << 23 | 1u << 22;
        }
    }
    __syncthreads();
}

/*
 * Reads an installed codebook into s.tree, its lengths and base. False, to all threads, if it breaks rule 20
 * or what may come lacks codes. Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_encode_read_codebook(gw_encode_state &s, const gw_cuda_codebook &codebook)
{
    const uint32_t t = threadIdx.x;
    const uint32_t size = codebook.size_at != nullptr ? *codebook.size_at : codebook.size;
    __syncthreads();
    if (t < GW_CUDA_CODEBOOK_SIZE_MAX && t < size) {
        s.codebook[t] = (codebook.bytes != nullptr ? codebook.bytes : codebook.inline_bytes)[t];
    }
    const gw_cuda_codebook_kind kind = {gw_type<DTYPE>::IS_FP16, DERIVED, DERIVED};
    const uint32_t used = gw_cuda_codebook_read(s.tree, s.codebook, size, kind, s.sums);
    if (used == 0 || used != size || !gw_has_all_codes(s.tree)) {
        return false;
    }
    __syncthreads();
    if (t == 0) {
        s.codebook_size = 0; /* nothing of it goes into the frame */
        s.codebook_crc = 0;
    }
    __syncthreads();
    return true;
}

/* The place of the strings of digits, or 0: there is no room for them. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_strings_place(const gw_encode_state &s, uint32_t chunk_log2)
{
    return DERIVED || s.shared_size < GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, DTYPE)
               ? 0
               : gw_place_of(&s) + GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, DTYPE) -
                     GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, DTYPE);
}

/* Measures a chunk with the codebook of s: s.size, s.any, and what gw_cuda_write_coded() needs. Ends with
 * a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_measure_chunk(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                     uint64_t first, uint32_t chunk_len)
{
    const uint32_t rank_buffer_size = gw_encode_rank_buffer_size(chunk_log2);
    const uint32_t bitmaps = gw_place_of(s.arrays) + 2 * rank_buffer_size;
    const uint32_t strings = gw_strings_place<DTYPE, DERIVED>(s, chunk_log2);
    if (DERIVED) {
        gw_rank_chunk<DTYPE, DERIVED>(s, r, first, chunk_len, rank_buffer_size);
    } else {
        gw_rank_explicit<DTYPE>(s, r, first, chunk_len, rank_buffer_size, strings,
                                GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, DTYPE));
    }
    if (s.any != 0) {
        const uint32_t bitmap_words = gw_partition_chunk(s, chunk_len, rank_buffer_size, bitmaps);
        if (threadIdx.x == 0) { /* the first warp has bitmap_words */
            s.has_strings = bitmaps + 4 * bitmap_words <= strings;
        }
        if (s.tree.is_masked) {
            gw_count_mask(s, bitmaps, (chunk_len + 7) >> 3);
        }
        gw_plan_chunk<DTYPE, DERIVED>(s);
    }
}

/* Writes the chunk that was measured, s.size bytes (without codebook and padding), to dst, which is
 * 4-byte aligned. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_cuda_write_coded(gw_encode_state &s, const gw_cuda_rounder &r, uint32_t chunk_log2,
                                   uint64_t first, uint32_t chunk_len, uint32_t *dst)
{
    const uint32_t rank_buffer_size = gw_encode_rank_buffer_size(chunk_log2);
    const uint32_t bitmaps = gw_place_of(s.arrays) + 2 * rank_buffer_size;
    const uint32_t strings = gw_strings_place<DTYPE, DERIVED>(s, chunk_log2);
    const uint32_t run_words = s.header_words + s.run_words;
    if (!DERIVED && s.has_strings) {
        gw_copy_strings(s, dst, strings, GW_CUDA_ENCODE_STRING_WORDS(chunk_log2, DTYPE));
    }
    if (!DERIVED && s.has_strings && 4 * run_words + 16 <= GW_CUDA_ENCODE_STRINGS_SIZE(chunk_log2, DTYPE)) {
        /* The strings are done with: runs are put together in their place. */
        __syncthreads();
        const gw_shared_words to = {strings + ((uint32_t)(uintptr_t)dst & 12)};
        gw_write_runs<DERIVED>(s, to, rank_buffer_size, bitmaps);
        gw_copy_words(dst, to.place, run_words);
    } else {
        const gw_global_words to = {dst};
        gw_write_runs<DERIVED>(s, to, rank_buffer_size, bitmaps);
    }
    if (DERIVED || !s.has_strings) {
        gw_write_planes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    }
    gw_write_escapes<DTYPE, DERIVED>(s, r, first, chunk_len, dst);
    __syncthreads();
}

#endif
