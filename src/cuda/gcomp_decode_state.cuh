/*
 * The shared memory of a block that decodes a chunk, access to chunk and rank buffers in shared or any
 * memory, and the tables of a codebook.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_DECODE_STATE_CUH
#define GW_CUDA_GCOMP_DECODE_STATE_CUH

#include "cuda/gcomp_round.cuh"

enum { GW_BLOCKS_MAX = 512 }; /* of 64 values, in a chunk of 2^15 */

/* At most 32 a level of 2^15 values and one more for each node. */
enum { GW_TASKS_MAX = 32 * 12 + 32 + GW_TREE_NODES };

/* A node while its values are produced: byte offsets of its run, of its place and its children's in the
 * arrays. Read in two loads of 16 bytes. */
struct alignas(16) gw_node_work {
    uint32_t run, words;
    uint32_t kind;       /* GW_KIND_INNER, or the width of a leaf and, from bit 8, its first rank */
    uint32_t first_task; /* at first, of a node that is no left child, the number of its values */
    uint32_t out, left;
    uint32_t right;     /* at first the bits of the run */
    uint32_t right_len; /* values, leaf: 0 */
};

enum { GW_KIND_INNER = 8, GW_PART_ESCAPES = 7 };

/* Where the values of a chunk go. */
struct gw_decode_out {
    uint8_t *dst;          /* NULL: nowhere */
    const uint8_t *addend; /* NULL: values are stored as they are */
    uint32_t strict;       /* of sums and products */
    uint32_t is_wide;      /* dst, and addend where there is one, are 16-byte aligned */
    uint32_t is_plain;     /* wide, no addend, no scale */
    float scale;           /* 1: values are stored, or added, as they are */
};

GW_DEVICE gw_decode_out gw_decode_out_of(void *dst, const void *addend, uint32_t strict, float scale)
{
    const bool is_wide = dst != nullptr && (((uintptr_t)dst | (uintptr_t)addend) & 15) == 0;
    const gw_decode_out out = {(uint8_t *)dst,
                               (const uint8_t *)addend,
                               strict,
                               is_wide,
                               is_wide && addend == nullptr && scale == 1.0f,
                               scale};
    return out;
}

struct alignas(128) gw_decode_state {
    uint2 selector[256];         /* gw_selector_of() */
    uint32_t entry[256];         /* by rank, see gw_entry_of() */
    uint32_t flags[32];          /* derived: gw_flags_of() by class */
    uint4 warp_sum[2][GW_WARPS]; /* both by the parity of the round, see gw_scan_counts() */
    uint4 counted[2];
    uint32_t sums[GW_WARPS];
    alignas(16) uint8_t codebook[GW_CUDA_CODEBOOK_SIZE_MAX + 4];
    gw_cuda_tree tree;
    gw_node_work node[GW_TREE_NODES];
    uint32_t taken[GW_TREE_NODES]; /* what the inner nodes before give to their right children */
    /* A task is 32 words of a node: node | word / 32 << 8; by level, deepest first, root last. Of inner
     * nodes: set bits of the tasks before. */
    uint16_t task[GW_TASKS_MAX], task_ones[GW_TASKS_MAX];
    uint32_t is_bad;
    uint32_t mask_words;                   /* masked: words of the mask's runs */
    uint32_t mask_place;                   /* and, in shared memory, of the mask itself */
    uint8_t block_map_byte[GW_BLOCKS_MAX]; /* carried: map bytes of the blocks */
    int32_t drop_offset;                   /* and what goes with them */
    uint32_t task_start[16];               /* by level */
    /* Of the planes, and in GW_PART_ESCAPES of the escapes: begin and end, in bits as gw_window() counts
     * them; lengths. */
    uint2 part[8];
    uint32_t part_len[8];

    /* Of the chunk, by thread 0. */
    gw_decode_out out;        /* of the pass over the values: here it costs no registers */
    const uint8_t *data;      /* of the chunk, from its own codebook on if it has one */
    const uint8_t *map_bytes; /* of its first value */
    uint64_t unit, index, size, owner_offset, owner_size, codebook_key;
    uint64_t units; /* of the whole call */
    uint32_t item, kind, crc, is_owner, is_far, status, is_last, slot;
    uint32_t todo, chunk_len, skip; /* see gw_chunk_look() */
    uint64_t codebook_owner;        /* whose tree is in `tree`: item + 1 << 40 | chunk; 0: none */
    uint32_t codebook_size;

    /* Two rank buffers, a zero mask, then the chunk, to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

/* Places in shared memory: 32-bit addresses. */
struct gw_shared_space {
    static constexpr bool IS_SHARED = true;
    uint32_t base;
    GW_DEVICE_MEMBER uint32_t load8(uint32_t at) const
    {
        return gw_shared_load8(base + at);
    }
    GW_DEVICE_MEMBER uint32_t load32(uint32_t at) const
    {
        return gw_shared_load32(base + at);
    }
    GW_DEVICE_MEMBER void store128(uint32_t at, uint4 x) const
    {
        gw_shared_store128(base + at, x);
    }
    /* The address of byte `at`, so that no base is added at every access, and a load from such an address. */
    GW_DEVICE_MEMBER uint32_t place(uint32_t at) const
    {
        return base + at;
    }
    GW_DEVICE_MEMBER uint32_t load32_from(uint32_t place) const
    {
        return gw_shared_load32(place);
    }
    /* Places count from byte n on. */
    GW_DEVICE_MEMBER void skip(uint32_t n)
    {
        base += n;
    }
};

/* Places in any memory; loads at `size` and beyond give 0, since a window reads up to two words more than
 * a frame has. */
struct gw_any_space {
    static constexpr bool IS_SHARED = false;
    uint8_t *base;
    uint32_t size;
    GW_DEVICE_MEMBER uint32_t load8(uint32_t at) const
    {
        return at < size ? base[at] : 0;
    }
    GW_DEVICE_MEMBER uint32_t load32(uint32_t at) const
    {
        return at < size ? *(const uint32_t *)(const void *)(base + at) : 0;
    }
    GW_DEVICE_MEMBER void store128(uint32_t at, uint4 x) const
    {
        *(uint4 *)(void *)(base + at) = x;
    }
    GW_DEVICE_MEMBER uint32_t place(uint32_t at) const
    {
        return at;
    }
    GW_DEVICE_MEMBER uint32_t load32_from(uint32_t place) const
    {
        return load32(place);
    }
    GW_DEVICE_MEMBER void skip(uint32_t n)
    {
        base += n;
        size -= n;
    }
};

/* 32 bits of a bit string from bit `at` on, counted from place 0. */
template <typename SPACE> GW_DEVICE uint32_t gw_window(const SPACE &words, uint32_t at)
{
    const uint32_t place = at >> 3 & ~3u;
    return __funnelshift_r(words.load32_from(place), words.load32_from(place + 4), at);
}

GW_DEVICE uint32_t gw_byte_of(uint32_t x, uint32_t i)
{
    return __byte_perm(x, 0, 0x4440 + i);
}

/* Class of a label, in the low bits of an entry: derived frames turn GW_CLASS_ORDINARY into itself plus
 * the octaves that may be dropped, an index of s.flags. */
enum {
    GW_CLASS_ZERO = 0,
    GW_CLASS_ORDINARY = 1,
    GW_CLASS_ESCAPE = 31,
    GW_ENTRY_ORDINARY = 1 << 5,
    GW_BIAS_ZERO = 2048
};

/*
 * Flags of a value: which planes it has digits in, and whether it is an escape. Four bits each, so that
 * those of eight values can be summed; planes 1 to 3, of which digits are taken all the time, in bytes of
 * their own. An entry of explicit frames has its exponent above bit 22 and no digits in R4, R2, R1.
 */
#define GW_FLAG_1      (1u << 0)
#define GW_FLAG_2      (1u << 8)
#define GW_FLAG_3      (1u << 16)
#define GW_FLAG_4      (1u << 4)
#define GW_FLAG_R4     (1u << 20)
#define GW_FLAG_R2     (1u << 24)
#define GW_FLAG_R1     (1u << 28)
#define GW_FLAG_ESCAPE (1u << 12)
/* Entries of explicit frames repeat in bits of one byte which planes have digits: one instruction makes four
 * predicates of them. */
#define GW_HAS_1 (1u << 20)
#define GW_HAS_2 (1u << 21)
#define GW_HAS_3 GW_FLAG_3
#define GW_HAS_4 (1u << 22)
/* Entries of fp16, whose exponents are all below this: digits in any plane. */
#define GW_HAS_ANY (1u << 31)

/* Of a value that keeps `kept` bits, sign included. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_flags_of(uint32_t kept)
{
    const uint32_t nibbles = gw_digit_flags<DTYPE>(kept); /* in the order of the planes */
    return (nibbles & 0x1) | (nibbles & 0x10) << 4 | (nibbles & 0x100) << 8 | (nibbles & 0x1000) >> 8 |
           (nibbles & 0x1110000) << 4;
}

/*
 * Entry of a label. Explicit: exponent in place, and gw_flags_of() with the GW_HAS_ bits, or GW_FLAG_ESCAPE.
 * Derived: exponent in place, class, and in bits 8 to 19 the quarter-octaves of room that a map byte of 0
 * would leave, drop_offset - (4 E + 3) (docs/format.md section 3), plus GW_BIAS_ZERO; drop_offset is that of
 * a map, so this fits. (That of carried frames, here 0, is different in every chunk.)
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_entry_of(uint32_t label, uint32_t derived, uint32_t base, int32_t drop_offset)
{
    typedef gw_type<DTYPE> type;
    if (label == 0) {
        return derived ? (uint32_t)GW_CLASS_ZERO : 0;
    }
    if (label == 1) {
        return derived ? (uint32_t)GW_CLASS_ESCAPE : GW_FLAG_ESCAPE;
    }
    if (derived) {
        const uint32_t e = label - (type::IS_FP16 ? 2 : 1);
        const uint32_t wide = type::IS_FP16 ? (e == 0 ? 1 : e) + type::BIAS : e;
        const uint32_t bias = (uint32_t)(drop_offset - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO) & 0xfff;
        return e << type::EXPONENT_SHIFT | bias << 8 | GW_ENTRY_ORDINARY | GW_CLASS_ORDINARY;
    }
    const uint32_t e = type::IS_FP16 ? (label >> 2) - 1 : (label >> 2) + base;
    const uint32_t digits = gw_flags_of<DTYPE>(type::M + 1 - (label & 3) * type::STEP);
    const uint32_t has = ((digits & GW_FLAG_1) != 0 ? GW_HAS_1 : 0) |
                         ((digits & GW_FLAG_2) != 0 ? GW_HAS_2 : 0) |
                         ((digits & GW_FLAG_4) != 0 ? GW_HAS_4 : 0);
    return e << type::EXPONENT_SHIFT | digits | has | (type::IS_FP16 ? GW_HAS_ANY : 0);
}

/* Octaves that map byte k lets a value of this exponent lose. */
GW_DEVICE uint32_t gw_octaves_of(uint32_t bias, uint32_t k, uint32_t cap)
{
    const int32_t octaves = ((int32_t)(k + bias) - GW_BIAS_ZERO) >> 2;
    const uint32_t some = octaves < 0 ? 0 : (uint32_t)octaves;
    return k == 0 ? 0 : some < cap ? some : cap;
}

/* Makes the tables of s.tree. */
template <uint32_t DTYPE>
GW_DEVICE void gw_decode_tables(gw_decode_state &s, const gw_cuda_frame_state &frame)
{
    typedef gw_type<DTYPE> type;
    const uint32_t t = gw_thread_now();
    if (t < s.tree.label_count) {
        s.entry[t] = gw_entry_of<DTYPE>(s.tree.label_of_rank[t], frame.quantum_mode, s.tree.window_start,
                                        frame.drop_offset);
    }
    if (t < 32) {
        const uint32_t octaves = t - GW_CLASS_ORDINARY;
        const uint32_t drop =
            frame.constant ? frame.cap : octaves - octaves % (frame.step == 0 ? 1 : frame.step);
        s.flags[t] = t == GW_CLASS_ZERO     ? 0
                     : t == GW_CLASS_ESCAPE ? GW_FLAG_ESCAPE
                     : octaves > frame.cap  ? 0
                                            : gw_flags_of<DTYPE>(type::M + 1 - drop);
    }
    __syncthreads();
}

#endif
