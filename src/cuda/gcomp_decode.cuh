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
 *   leaf        a thread unpacks 32 numbers of k bits, k words.
 *   root        stays in registers; its owner looks up the 32 ranks, a block-wide sum of digit counts gives
 *               the places of its digits in the planes, and it assembles the values four by four. What is
 *               rare, escapes and fourth digits of fp32, is mended afterwards.
 *
 * Set bits, counts and padding are checked before anything is addressed by them: with all counts right no
 * index leaves its array, whatever the bytes are.
 *
 * A chunk that is too large for shared memory is read where it lies, with the arrays in what is left of
 * shared memory or in the workspace: the same code with pointers for places. Should another agent change the
 * bytes meanwhile, values and the verdict may be wrong, but no load leaves the chunk or the arrays (struct
 * gw_any_space), and stores go where the counts said when they were checked.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_DECODE_CUH
#define GW_CUDA_GCOMP_DECODE_CUH

#include "cuda/gcomp_round.cuh"

/* At most 32 a level of 2^15 values and one more for each node. */
enum { GW_TASKS_MAX = 32 * 11 + 32 + GW_TREE_NODES };

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
    uint32_t strict;       /* of sums */
    uint32_t is_wide;      /* dst, and addend where there is one, are 16-byte aligned */
    uint32_t is_plain;     /* wide, and no addend */
};

GW_DEVICE gw_decode_out gw_decode_out_of(void *dst, const void *addend, uint32_t strict)
{
    const bool is_wide = dst != nullptr && (((uintptr_t)dst | (uintptr_t)addend) & 15) == 0;
    const gw_decode_out out = {(uint8_t *)dst, (const uint8_t *)addend, strict, is_wide,
                               is_wide && addend == nullptr};
    return out;
}

struct alignas(128) gw_decode_state {
    uint2 selector[256];         /* gw_selector_of() */
    uint32_t entry[256];         /* by rank, see gw_entry_of() */
    uint32_t flags[32];          /* derived: gw_flags_of() by class */
    uint4 warp_sum[2][GW_WARPS]; /* both by the parity of the round, see gw_scan_counts() */
    uint4 counted[2];
    uint32_t sums[GW_WARPS];
    alignas(16) uint8_t book[GW_CUDA_BOOK_SIZE_MAX + 12];
    gw_cuda_tree tree;
    gw_node_work node[GW_TREE_NODES];
    uint32_t taken[GW_TREE_NODES]; /* what the inner nodes before give to their right children */
    /* A task is 32 words of a node: node | word / 32 << 8; by level, deepest first, root last. Of inner
     * nodes: set bits of the tasks before. */
    uint16_t task[GW_TASKS_MAX], task_ones[GW_TASKS_MAX];
    uint32_t is_bad;
    uint32_t task_start[16]; /* by level */
    /* Of the planes, and in GW_PART_ESCAPES of the escapes: begin and end, in bits as gw_window() counts
     * them; lengths. */
    uint2 part[8];
    uint32_t part_len[8];

    /* Of the chunk, by thread 0. */
    gw_decode_out out;     /* of the pass over the values: here it costs no registers */
    const uint8_t *data;   /* of the chunk, a codebook of its own in front included */
    const uint8_t *levels; /* of its first value */
    uint64_t unit, index, size, owner_offset, owner_size, book_key;
    uint64_t units; /* of the whole call */
    uint32_t item, kind, crc, is_owner, is_far, status, is_last, slot;
    uint32_t todo, chunk_len, skip; /* see gw_chunk_look() */
    uint64_t book_owner;            /* whose tree is in `tree`: item + 1 << 40 | chunk; 0: nobody's */
    uint32_t book_size;

    /* Two level arrays, then the chunk, to the end of the dynamic shared memory. */
    alignas(128) uint4 arrays[1];
};

/* ---- places -------------------------------------------------------------------------------------------- */

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
    /* A place of its own, so that no base is added at every access: at byte `at`, and a load from there. */
    GW_DEVICE_MEMBER uint32_t place(uint32_t at) const
    {
        return base + at;
    }
    GW_DEVICE_MEMBER uint32_t load32_from(uint32_t place) const
    {
        return gw_shared_load32(place);
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

/* ---- merge --------------------------------------------------------------------------------------------- */

/* What gw_merge32() looks up for a byte m of a bitmap: how to pick the first and the second four of eight
 * ranks from the next four left and right ones each, how many bits to shift the sides between (left: bits
 * 16 up of x; right: third byte of y), and how many go right. */
GW_DEVICE uint2 gw_selector_of(uint32_t m)
{
    uint32_t s[2];
    uint32_t ones[2];
    GW_UNROLL
    for (int h = 0; h < 2; h++) {
        uint32_t l = 0x10, r = 0x10 + 4; /* the extra bit lets a digit be shifted out */
        s[h] = 0;
        GW_UNROLL
        for (int j = 0; j < 4; j++) {
            const uint32_t bit = m >> (4 * h + j) & 1;
            s[h] |= ((bit ? r : l) & 7) << 4 * j;
            r += bit;
            l += 1 - bit;
        }
        ones[h] = r - 0x14;
    }
    const uint32_t p = ones[0];
    return make_uint2(s[0] | (32 - 8 * p) << 16, s[1] | 8 * p << 16 | (p + ones[1]) << 24);
}

/* out = 32 merged ranks. left, right: bytes of the level where the next left and right ranks are. */
template <typename LEVEL>
GW_DEVICE void gw_merge32(uint32_t out[8], const LEVEL &level, uint32_t selectors, uint32_t left,
                          uint32_t right, uint32_t bits)
{
    uint32_t l = level.place(left), r = level.place(right);
    const uint32_t both = l + r;
    GW_UNROLL
    for (int j = 0; j < 4; j++) {
        const uint2 s = gw_shared_load64(gw_byte_place<8>(selectors, bits, j));
        const uint32_t lw = l & ~3u, rw = r & ~3u;
        const uint32_t l0 = level.load32_from(lw), l1 = level.load32_from(lw + 4),
                       l2 = level.load32_from(lw + 8);
        const uint32_t r0 = level.load32_from(rw), r1 = level.load32_from(rw + 4),
                       r2 = level.load32_from(rw + 8);
        const uint32_t la = __funnelshift_r(l0, l1, l << 3), lb = __funnelshift_r(l1, l2, l << 3);
        const uint32_t ra = __funnelshift_r(r0, r1, r << 3), rb = __funnelshift_r(r1, r2, r << 3);
        out[2 * j] = gw_permute(la, ra, s.x);
        /* The second four start behind what the first took. */
        out[2 * j + 1] = gw_permute(__funnelshift_rc(la, lb, s.x >> 16),
                                    __funnelshift_rc(ra, rb, gw_byte_of(s.y, 2)), s.y);
        r += s.y >> 24;
        l = both + 8 * (j + 1) - r;
    }
}

/* ---- leaves -------------------------------------------------------------------------------------------- */

/* 32 numbers of W bits from W words, plus add in every byte. */
template <int W, typename WORDS>
GW_DEVICE void gw_unpack32(uint32_t out[8], const WORDS &words, uint32_t at, uint32_t add)
{
    const uint32_t pair = (1u << 2 * W) - 1, one = (1u << W) - 1;
    uint32_t w[W + 1];
    GW_UNROLL
    for (int j = 0; j < W; j++) {
        w[j] = words.load32(at + 4 * j);
    }
    w[W] = 0;
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        const int bit = 4 * W * j;
        if (W == 1) { /* bit i times 2^(7 i) is bit 8 i; no two of the 16 products meet */
            out[j] = ((w[0] >> bit & 15) * 0x00204081 & 0x01010101) + add;
            continue;
        }
        uint32_t x = bit % 32 + 4 * W <= 32 ? w[bit / 32] >> bit % 32
                                            : __funnelshift_r(w[bit / 32], w[bit / 32 + 1], bit % 32);
        x = (x & pair) + (x & pair << 2 * W) * (1u << (16 - 2 * W));
        x = (x & (one | one << 16)) + (x & (one | one << 16) << W) * (1u << (8 - W));
        out[j] = x + add;
    }
}

/* 32 numbers of width k from k words; what lies behind the end of a run (only in the last words of a node)
 * reads as anything: loads of shared memory stay inside, others are checked. */
template <typename WORDS>
GW_DEVICE void gw_unpack_any(uint32_t out[8], const WORDS &words, uint32_t run, uint32_t width, uint32_t word,
                             uint32_t add)
{
    const uint32_t at = run + 4 * width * word;
    switch (width) {
    case 1:
        gw_unpack32<1>(out, words, at, add);
        break;
    case 2:
        gw_unpack32<2>(out, words, at, add);
        break;
    case 3:
        gw_unpack32<3>(out, words, at, add);
        break;
    case 4:
        gw_unpack32<4>(out, words, at, add);
        break;
    case 5:
        gw_unpack32<5>(out, words, at, add);
        break;
    case 6:
        gw_unpack32<6>(out, words, at, add);
        break;
    case 7:
        gw_unpack32<7>(out, words, at, add);
        break;
    default:
        GW_UNROLL
        for (int j = 0; j < 8; j++) {
            out[j] = add;
        }
        break;
    }
}

/* ---- tables of a codebook ------------------------------------------------------------------------------ */

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
/* Entries of explicit frames say once more in which planes there are digits, in bits of one byte: four
 * predicates come from those in one instruction. */
#define GW_HAS_1 (1u << 20)
#define GW_HAS_2 (1u << 21)
#define GW_HAS_3 GW_FLAG_3
#define GW_HAS_4 (1u << 22)
/* Entries of fp16, of which no exponent reaches so far: digits in any plane. */
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
 * would leave, drop_base - (4 E + 3) (docs/format.md section 3), plus GW_BIAS_ZERO; drop_base is that of a
 * map, so this fits.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_entry_of(uint32_t label, uint32_t derived, uint32_t base, int32_t drop_base)
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
        const uint32_t bias = (uint32_t)(drop_base - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO) & 0xfff;
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
        s.entry[t] = gw_entry_of<DTYPE>(s.tree.label_of_rank[t], frame.levels, s.tree.base, frame.drop_base);
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

/* ---- parts --------------------------------------------------------------------------------------------- */

template <typename WORDS> GW_DEVICE uint32_t gw_half_at(const WORDS &words, uint32_t i)
{
    const uint32_t word = words.load32(i >> 1 << 2);
    return (i & 1) != 0 ? word >> 16 : word & 0xffff;
}

/* 1 if word `at` (in words) has bits from `bits` mod 32 on, where `bits` are in use up to there. */
template <typename WORDS> GW_DEVICE bool gw_is_padded(const WORDS &words, uint32_t start, uint32_t bits)
{
    return (bits & 31) == 0 || words.load32(4 * (start + (bits >> 5))) >> (bits & 31) == 0;
}

/*
 * Rules 21 and 22 of the chunk at words[0..size), by one warp: there are about 30 nodes, and eight warps
 * would take as long. Lengths and places of all parts, the tasks. Returns true, to all lanes, if a rule is
 * broken.
 *
 * Lengths need no walk from the root. Left children have their parent's number and one, so the nodes from
 * one that is no left child, the head, down to a leaf are neighbours; each has what the head has less what
 * those above it in this row give to their right children: a difference of two sums over the nodes in
 * preorder.
 *
 * Nodes lie in their level's array behind the values, rounded up to words, of all leaves before them: what
 * a node's own leaves take is enough for it, and a left child begins where its parent does in the other
 * array.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_nodes(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t level_size)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t lane = gw_lane();
    const uint32_t planes = DERIVED ? 7 : 4;
    const uint32_t node_count = tree.node_count, depth_max = tree.depth_max;
    const uint32_t size_words = size >> 2;
    const uint32_t halves = planes + 1 + tree.inner_count, header_words = (halves + 1) / 2;
    if (size_words < header_words) {
        return true;
    }
    const uint32_t count = lane < planes + 1 ? gw_half_at(words, lane) : 0;
    bool bad = ((halves & 1) != 0 && gw_half_at(words, halves) != 0) || count > chunk_len;

    if (lane == 0) {
        s.node[0].first_task = chunk_len;
    }
    uint32_t sum = 0;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const uint32_t n = first + lane;
        const bool is_inner = n < node_count && tree.node[n].right != 0;
        const uint32_t right_len = is_inner ? gw_half_at(words, planes + 1 + tree.node[n].inner_index) : 0;
        const uint32_t upto = gw_warp_scan(right_len);
        if (n < node_count) {
            s.taken[n] = sum + upto - right_len;
            s.node[n].right_len = right_len;
        }
        if (is_inner) {
            s.node[tree.node[n].right].first_task = right_len;
        }
        sum += __shfl_sync(GW_FULL_MASK, upto, 31);
    }
    __syncwarp();

    /* Runs, in preorder, and words of leaves. */
    sum = header_words;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const bool is_node = first + lane < node_count;
        const uint32_t n = is_node ? first + lane : 0;
        const gw_tree_node node = tree.node[n];
        const bool inner = node.right != 0;
        const uint32_t right_len = s.node[n].right_len;
        const uint32_t len = s.node[node.head].first_task - (s.taken[n] - s.taken[node.head]);
        /* Differences below 0 are negative here, and were so first where a node gave more than it has. */
        bad = bad || (int32_t)len < (int32_t)right_len;
        if (__any_sync(GW_FULL_MASK, bad)) { /* sums below are bounded from here on */
            return true;
        }
        const uint32_t run_bits = len * (inner ? 1 : node.width);
        const uint32_t mine = is_node ? (run_bits + 31) >> 5 | (inner ? 0 : (len + 31) >> 5) << 16 : 0;
        const uint32_t upto = gw_warp_scan(mine), before = sum + upto - mine;
        if (is_node) {
            const uint32_t place = before >> 16 << 5, is_odd = (depth_max - node.depth) & 1;
            gw_node_work &work = s.node[n];
            work.run = 4 * (before & 0xffff);
            work.out = place + (is_odd ? level_size : 0);
            work.left = place + (is_odd ? 0 : level_size);
            work.right = run_bits;
            work.words = (len + 31) >> 5;
            work.kind = inner ? (uint32_t)GW_KIND_INNER : node.width | (uint32_t)node.first_rank << 8;
        }
        sum += __shfl_sync(GW_FULL_MASK, upto, 31);
    }

    /* Planes and escapes, a lane each; padding of everything. */
    const bool is_part = lane < planes + 1;
    const uint32_t bits =
        count * (lane == planes ? 8 * gw_type<DTYPE>::SIZE : gw_plane_width<DTYPE>(is_part ? lane : 0));
    const uint32_t part_words = is_part ? (bits + 31) >> 5 : 0;
    const uint32_t upto = (sum & 0xffff) + gw_warp_scan(part_words), start = upto - part_words;
    const uint32_t end = __shfl_sync(GW_FULL_MASK, upto, 31);
    if (end > size_words || size_words - end >= 4) {
        return true;
    }
    if (is_part) {
        const uint32_t part = lane == planes ? (uint32_t)GW_PART_ESCAPES : lane;
        const uint32_t begin = 8 * words.place(4 * start);
        s.part[part] = make_uint2(begin, begin + bits);
        s.part_len[part] = count;
    }
    bad = (is_part && !gw_is_padded(words, start, bits)) ||
          (lane < size_words - end && words.load32(4 * (end + lane)) != 0);
    __syncwarp();

    /* Tasks: lanes now stand for nodes in the order of by_depth. */
    sum = 0;
    GW_NO_UNROLL
    for (uint32_t first = 0; first < node_count; first += 32) {
        const uint32_t i = first + lane;
        const bool is_node = i < node_count;
        const uint32_t n = tree.by_depth[is_node ? i : 0], level = depth_max - tree.node[n].depth;
        gw_node_work &work = s.node[n];
        const uint32_t tasks = is_node ? (work.words + 31) >> 5 : 0;
        const uint32_t all = gw_warp_scan(tasks), before = sum + all - tasks;
        if (is_node) {
            bad = bad || !gw_is_padded(words, work.run >> 2, work.right);
            work.right = s.node[tree.node[n].right].out; /* of a leaf: never used */
            work.first_task = before;
            if (i == tree.level_start[level]) {
                s.task_start[level] = before;
            }
        }
        GW_NO_UNROLL
        for (uint32_t k = 0; k < tasks; k++) {
            s.task[before + k] = (uint16_t)(n | k << 8);
        }
        sum += __shfl_sync(GW_FULL_MASK, all, 31);
    }
    if (lane == 0) {
        s.task_start[depth_max + 1] = sum;
    }
    return __any_sync(GW_FULL_MASK, bad) != 0;
}

GW_DEVICE gw_node_work gw_node_load(const gw_decode_state &s, uint32_t n)
{
    const uint32_t place = gw_place_of(s.node) + (uint32_t)sizeof(gw_node_work) * n;
    const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
    const gw_node_work node = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    return node;
}

/* Rules 21 to 23: the same, and set bits of all tasks. Returns true, to all threads, if a rule is
 * broken. Ends with a barrier. */
template <uint32_t DTYPE, bool DERIVED, typename WORDS>
GW_DEVICE bool gw_find_parts(gw_decode_state &s, const WORDS &words, uint32_t size, uint32_t chunk_len,
                             uint32_t level_size)
{
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    if (warp == 0) {
        const bool is_bad = gw_find_nodes<DTYPE, DERIVED>(s, words, size, chunk_len, level_size);
        if (lane == 0) {
            s.is_bad = is_bad;
        }
    }
    __syncthreads();
    if (s.is_bad) {
        return true;
    }
    /* A warp takes a node: one after another, its tasks cost a load, a count and a sum each. */
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t n = warp; n < s.tree.node_count; n += GW_WARPS) {
        const gw_node_work node = gw_node_load(s, n);
        uint32_t ones = 0;
        if (node.kind == GW_KIND_INNER) {
            GW_NO_UNROLL
            for (uint32_t first = 0; first < node.words; first += 32) {
                const uint32_t word = first + lane;
                if (lane == 0) {
                    s.task_ones[node.first_task + (first >> 5)] = (uint16_t)ones;
                }
                ones += __reduce_add_sync(GW_FULL_MASK,
                                          word < node.words ? __popc(words.load32(node.run + 4 * word)) : 0);
            }
            bad = bad || ones != node.right_len;
        }
    }
    return __syncthreads_or(bad) != 0;
}

/* ---- escapes ------------------------------------------------------------------------------------------- */

/* Rule 26: could an encoder with this codebook have had to escape this value? bits: the value in the low
 * bits; k: its map byte (derived). gw_is_escape_allowed() of core. */
template <uint32_t DTYPE>
GW_DEVICE bool gw_is_escape_allowed(const gw_cuda_tree &tree, const gw_cuda_frame_state &frame, uint32_t bits,
                                    uint32_t k)
{
    typedef gw_type<DTYPE> type;
    const uint32_t magnitude = bits & (DTYPE == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t exponent = magnitude >> type::M;
    if (bits == 0) {
        return (tree.has_code[0] & 1) == 0;
    }
    if (exponent == type::SPECIAL) {
        return true;
    }
    if (magnitude == 0 || (exponent == 0 && !type::IS_FP16)) {
        return frame.strict != 0;
    }
    if (frame.levels) {
        const uint32_t wide = type::IS_FP16 ? (exponent == 0 ? 1 : exponent) + type::BIAS : exponent;
        uint32_t drop = frame.cap;
        if (!frame.constant) {
            drop = gw_octaves_of((uint32_t)(frame.drop_base - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO), k,
                                 frame.cap);
            drop -= drop % frame.step;
        }
        const uint32_t label = exponent + (type::IS_FP16 ? 2 : 1);
        return (magnitude & ((1u << drop) - 1)) == 0 && (tree.has_code[label >> 5] >> (label & 31) & 1) == 0;
    }
    GW_NO_UNROLL
    for (uint32_t level = 0; level < 4; level++) {
        if ((magnitude & ((1u << level * type::STEP) - 1)) != 0) {
            break;
        }
        const uint32_t x = type::IS_FP16 ? exponent + 1 : exponent - tree.base;
        if ((!type::IS_FP16 && (exponent <= tree.base || x > 63)) ||
            (tree.has_code[(4 * x + level) >> 5] >> ((4 * x + level) & 31) & 1) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

GW_DEVICE uint32_t gw_flush_bits(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

GW_DEVICE uint32_t gw_widen_half(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) {
        return sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
    }
    if (magnitude >= 0x400) {
        return sign | ((magnitude << 13) + (112u << 23));
    }
    if (magnitude == 0) {
        return sign;
    }
    /* Subnormal: the leading one moves to where fp32 has its hidden bit. */
    const uint32_t shift = __clz(magnitude) - 21;
    magnitude <<= shift;
    return sign | (113 - shift) << 23 | (magnitude & 0x3ff) << 13;
}

/* `bits` is not NaN; to nearest, ties to even. */
GW_DEVICE uint32_t gw_narrow_half(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000u) { /* 65520, halfway between the largest finite value and 2^16 */
        return sign | 0x7c00;
    }
    if (magnitude >= 0x38800000u) { /* 2^-14: normal */
        magnitude -= 112u << 23;
        return sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below 2^-25, half of the smallest subnormal */
        return sign;
    }
    const uint32_t m = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t shift = 126 - exponent;
    return sign | (m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift;
}

/* docs/numerics.md section 5; a is the accumulator's value, b the frame's. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_of(uint32_t a, uint32_t b, uint32_t strict)
{
    if (DTYPE == GW_FP16) {
        a = gw_widen_half(a);
        b = gw_widen_half(b);
    } else {
        a = gw_flush_bits(DTYPE == GW_BF16 ? a << 16 : a, strict);
        b = gw_flush_bits(DTYPE == GW_BF16 ? b << 16 : b, strict);
    }
    uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    const bool nan = (sum & 0x7fffffff) > 0x7f800000u;
    if (DTYPE == GW_FP16) {
        sum = nan ? 0x7e00 : gw_narrow_half(sum);
        return !strict && sum == 0x8000 ? 0 : sum;
    }
    sum = nan ? 0x7fc00000u : gw_flush_bits(sum, strict);
    return DTYPE == GW_BF16 && !nan ? (sum + 0x7fff + (sum >> 16 & 1)) >> 16
           : DTYPE == GW_BF16       ? sum >> 16
                                    : sum;
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_word(uint32_t a, uint32_t b, uint32_t strict)
{
    return DTYPE == GW_FP32 ? gw_sum_of<DTYPE>(a, b, strict)
                            : gw_sum_of<DTYPE>(a & 0xffff, b & 0xffff, strict) |
                                  gw_sum_of<DTYPE>(a >> 16, b >> 16, strict) << 16;
}

/* ---- output -------------------------------------------------------------------------------------------- */

/* 16 bytes of values to byte `at` of the chunk, of which `size` (0 to 16) exist. */
template <uint32_t DTYPE>
GW_DEVICE void gw_store_values(const gw_decode_out &out, uint32_t at, uint4 x, uint32_t size)
{
    if (out.is_wide && size >= 16) {
        if (out.addend != nullptr) {
            const uint4 a = *(const uint4 *)(const void *)(out.addend + at);
            x = make_uint4(gw_sum_word<DTYPE>(a.x, x.x, out.strict), gw_sum_word<DTYPE>(a.y, x.y, out.strict),
                           gw_sum_word<DTYPE>(a.z, x.z, out.strict),
                           gw_sum_word<DTYPE>(a.w, x.w, out.strict));
        }
        *(uint4 *)(void *)(out.dst + at) = x;
        return;
    }
    GW_NO_UNROLL
    for (uint32_t i = 0; i < 16 && i < size; i += gw_type<DTYPE>::SIZE) {
        const uint32_t word = i < 8 ? (i < 4 ? x.x : x.y) : i < 12 ? x.z : x.w;
        if (DTYPE == GW_FP32) {
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint32_t *)(const void *)(out.addend + at + i);
            *(uint32_t *)(void *)(out.dst + at + i) =
                out.addend == nullptr ? word : gw_sum_of<DTYPE>(a, word, out.strict);
        } else {
            const uint32_t v = (i & 2) != 0 ? word >> 16 : word & 0xffff;
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint16_t *)(const void *)(out.addend + at + i);
            *(uint16_t *)(void *)(out.dst + at + i) =
                (uint16_t)(out.addend == nullptr ? v : gw_sum_of<DTYPE>(a, v, out.strict));
        }
    }
}

/* ---- join ---------------------------------------------------------------------------------------------- */

/* Digits and escapes of some values, 16 bits each: planes 1 | 2, 3 | 4, R4 | R2 (explicit: escapes), R1 |
 * escapes. */
struct gw_counts {
    uint32_t a, b, c, d;
};

GW_DEVICE gw_counts gw_unpack_counts(uint4 x)
{
    const gw_counts counts = {x.x, x.y, x.z, x.w};
    return counts;
}

/*
 * Sums over the values before those of this thread: of the threads before, and of the rounds before, which
 * are in s.counted[parity]. What the next round finds there, in the other one, comes from the last thread.
 * Places alternate, so one barrier is enough: who is late in round r reads what is written again in round r
 * + 2, behind the barrier of round r + 1.
 */
template <bool DERIVED>
GW_DEVICE gw_counts gw_scan_counts(gw_decode_state &s, gw_counts mine, uint32_t parity)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    gw_counts x = {gw_warp_scan(mine.a), gw_warp_scan(mine.b), gw_warp_scan(mine.c),
                   DERIVED ? gw_warp_scan(mine.d) : 0};
    if (lane == 31) {
        s.warp_sum[parity][warp] = make_uint4(x.a, x.b, x.c, x.d);
    }
    __syncthreads();
    /* Lane v has the sum of warp v, and lane 7 that of the rounds before. Halves do not overflow: the
     * last sum is that of a chunk, at most 2^15. */
    const uint4 sum = lane < GW_WARPS - 1 ? s.warp_sum[parity][lane] : s.counted[parity];
    const bool counts = lane < warp || lane == GW_WARPS - 1;
    x.a += __reduce_add_sync(GW_FULL_MASK, counts ? sum.x : 0);
    x.b += __reduce_add_sync(GW_FULL_MASK, counts ? sum.y : 0);
    x.c += __reduce_add_sync(GW_FULL_MASK, counts ? sum.z : 0);
    x.d += DERIVED ? __reduce_add_sync(GW_FULL_MASK, counts ? sum.w : 0) : 0;
    if (threadIdx.x == GW_THREADS - 1) {
        s.counted[parity ^ 1] = make_uint4(x.a, x.b, x.c, x.d);
    }
    const gw_counts before = {x.a - mine.a, x.b - mine.b, x.c - mine.c, x.d - mine.d};
    return before;
}

/* A sum of flags in bytes: nibbles 0, 2, 4, 6, and 1, 3, 5, 7. Those of explicit frames end at bit 19. */
template <bool DERIVED> GW_DEVICE uint32_t gw_even_flags(uint32_t sum)
{
    return sum & (DERIVED ? 0x0f0f0f0fu : 0x000f0f0fu);
}

template <bool DERIVED> GW_DEVICE uint32_t gw_odd_flags(uint32_t sum)
{
    return sum >> 4 & (DERIVED ? 0x0f0f0f0fu : 0x00000f0fu);
}

/* Adds the sum of eight values' flags to the bytes of even and odd nibbles. */
template <bool DERIVED> GW_DEVICE void gw_add_flags(uint32_t &even, uint32_t &odd, uint32_t sum)
{
    even += gw_even_flags<DERIVED>(sum);
    odd += gw_odd_flags<DERIVED>(sum);
}

/* even: planes 1, 2, 3, R2; odd: plane 4, escapes, R4, R1. */
template <bool DERIVED> GW_DEVICE gw_counts gw_counts_of(uint32_t even, uint32_t odd)
{
    gw_counts x;
    x.a = __byte_perm(even, 0, 0x4140);
    x.b = __byte_perm(even, odd, 0x4442) & 0x00ff00ff;
    x.c = DERIVED ? __byte_perm(even, odd, 0x3336) & 0x00ff00ff : odd >> 8;
    x.d = DERIVED ? __byte_perm(odd, 0, 0x4143) : 0;
    return x;
}

/* The whole of the counts, as the header of the chunk announces them. */
template <bool DERIVED> GW_DEVICE gw_counts gw_announced(const gw_decode_state &s)
{
    gw_counts x;
    x.a = s.part_len[0] | s.part_len[1] << 16;
    x.b = s.part_len[2] | s.part_len[3] << 16;
    x.c = DERIVED ? s.part_len[4] | s.part_len[5] << 16 : s.part_len[GW_PART_ESCAPES];
    x.d = DERIVED ? s.part_len[6] | s.part_len[GW_PART_ESCAPES] << 16 : 0;
    return x;
}

/*
 * Where digit, or escape, `count` of a part begins. Behind the end of the part it is the end, so that no
 * more is read there than the copy of the chunk has to spare; that counts are wrong is found when all are
 * known.
 */
template <uint32_t WIDTH>
GW_DEVICE uint32_t gw_part_place(const gw_decode_state &s, uint32_t part, uint32_t count)
{
    const uint2 bounds = s.part[part];
    const uint32_t at = bounds.x + WIDTH * count;
    return at < bounds.y ? at : bounds.y;
}

/* Where the digits of a thread go on in a plane: the next one's bit, and a window that held the next ones. */
struct gw_digits {
    uint32_t at, window;
};

/* Sums of flags: of four values, of eight; of sixteen, in bytes, of the even and the odd flags. */
struct gw_flag_sums {
    uint32_t of4, of8, even16, odd16;
};

/* Window of group j of four values, and the way to the next one: a window holds the digits of four
 * values, or of eight if they are at most 4 bits wide, or of sixteen if at most 2. The sums are of the
 * values up to those of the group. */
template <bool DERIVED, uint32_t FLAG, uint32_t WIDTH, typename WORDS>
GW_DEVICE void gw_open_window(const WORDS &words, gw_digits &digits, uint32_t j, const gw_flag_sums &sums)
{
    constexpr bool IS_EVEN = (FLAG & 0x01010101u) != 0;
    constexpr uint32_t GROUPS = WIDTH <= 2 ? 4 : WIDTH <= 4 ? 2 : 1;
    constexpr uint32_t BYTE = FLAG >= 1u << 24 ? 3 : FLAG >= 1u << 16 ? 2 : FLAG >= 1u << 8 ? 1 : 0;
    if (j % GROUPS == 0) {
        digits.window = gw_window(words, digits.at);
    }
    if (j % GROUPS == GROUPS - 1) {
        const uint32_t flags = GROUPS == 1 ? sums.of4 : sums.of8;
        const uint32_t counts =
            GROUPS == 4 ? (IS_EVEN ? sums.even16 : sums.odd16)
                        : (IS_EVEN ? gw_even_flags<DERIVED>(flags) : gw_odd_flags<DERIVED>(flags));
        digits.at = gw_byte_place<WIDTH>(digits.at, counts, BYTE);
    }
}

/* The digits that group j has in a plane. */
template <bool DERIVED, uint32_t FLAG, uint32_t WIDTH, typename WORDS>
GW_DEVICE void gw_take_digits(const WORDS &words, uint32_t z[4], gw_digits &digits, const uint32_t g[4],
                              uint32_t j, const gw_flag_sums &sums)
{
    gw_open_window<DERIVED, FLAG, WIDTH>(words, digits, j, sums);
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        gw_push_digit<FLAG, WIDTH>(z[i], digits.window, g[i]);
    }
}

struct gw_true {
    static constexpr bool VALUE = true;
};

struct gw_false {
    static constexpr bool VALUE = false;
};

/*
 * Root, look-up, places of the digits, values: 8192 at a time, 32 a thread. Rules 24 to 26: returns true, to
 * all threads, if one is broken. Values go to s.out, if `stores`. Begins with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename LEVEL>
GW_DEVICE bool gw_join_chunk(gw_decode_state &s, const gw_cuda_frame_state &frame, const WORDS &words,
                             const LEVEL &level, uint32_t stage_base, uint32_t chunk_len, bool stores)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t BATCH = 64 / type::SIZE; /* values of a thread that are staged together */
    /* Entries wait in registers. Places in any memory take more of those, and there is no speed to lose. */
    constexpr bool KEEPS = !DERIVED && WORDS::IS_SHARED;
    constexpr bool CAN_MEND = KEEPS && type::SIZE == 4; /* of 16-bit values most have all their digits */
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t entries = gw_place_of(s.entry), selectors = gw_place_of(s.selector),
                   flags = gw_place_of(s.flags);
    const uint32_t stage = stage_base + 2048 * warp; /* 64 bytes a lane */
    /* Quarters of 16 bytes change places so that no two lanes of a store or load meet in a bank: bits 4 and 5
     * of stage_base are 0. */
    const uint32_t mine_at = stage + 64 * lane + 16 * (lane >> 1 & 3);
    const uint32_t all_at = stage + 64 * (lane >> 2) + 16 * ((lane & 3) ^ (lane >> 3 & 3));
    const uint32_t cap = frame.cap;
    const bool constant = frame.constant != 0;
    bool bad = false;
    uint32_t zeros = 0; /* fp16: not 0 if a value with digits is a zero */
    /* Fourth digits in more than one of 16 values, as in frames that lose nothing: they are taken like
     * the others. */
    const bool is_dense = 16 * s.part_len[3] > chunk_len;
    const bool is_plain = stores && s.out.is_plain;
    uint8_t *const out = s.out.dst;

    if (tid == 0) {
        s.counted[0] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t first = 0; first < chunk_len; first += 32 * GW_THREADS) {
        const uint32_t parity = first / (32 * GW_THREADS) % 2;
        const bool is_whole = chunk_len - first >= 32 * GW_THREADS; /* of 8192 values none is missing */
        const uint32_t word = first / 32 + tid;
        const uint32_t valid =
            32 * word < chunk_len ? (chunk_len - 32 * word < 32 ? chunk_len - 32 * word : 32) : 0;
        const gw_node_work root = gw_node_load(s, 0);
        uint32_t x[8];
        GW_UNROLL
        for (int j = 0; j < 8; j++) {
            x[j] = 0;
        }
        if (root.kind == GW_KIND_INNER) {
            const uint32_t bits = valid != 0 ? words.load32(root.run + 4 * word) : 0;
            const uint32_t count = __popc(bits);
            const uint32_t in_warp = gw_warp_scan(count) - count;
            const uint32_t ones = s.task_ones[root.first_task + (word >> 5)] + in_warp;
            if (valid != 0) {
                gw_merge32(x, level, selectors, root.left + 32 * word - ones, root.right + ones, bits);
            }
        } else if (valid != 0) {
            gw_unpack_any(x, words, root.run, root.kind & 15, word, (root.kind >> 8) * 0x01010101u);
        }

        /* Entries: exponent in place, and (explicit) flags or (derived) the index of flags. A derived one
         * is worked out again when its value is assembled, and its map byte is read again (it is near by
         * then): ranks take fewer registers. */
        uint32_t e[KEEPS ? 32 : 1], flags_of4[KEEPS ? 8 : 1], k[4] = {0, 0, 0, 0};
        uint32_t even = 0, odd = 0;
        /* Map bytes of 16 values. */
        const auto load_levels = [&](uint32_t half) {
            const uint32_t left = valid > 16 * half ? valid - 16 * half : 0;
            gw_load_levels(k, s.levels + (left != 0 ? 32 * (uint64_t)word + 16 * half : 0), left);
        };
        const auto derived_entry = [&](uint32_t i) {
            const uint32_t entry = gw_shared_load32(gw_byte_place<4>(entries, x[i / 4], i % 4));
            const uint32_t octaves =
                constant ? cap : gw_octaves_of(entry >> 8 & 0xfff, gw_byte_of(k[i / 4 % 4], i % 4), cap);
            const uint32_t index = (entry & 31) + ((entry & GW_ENTRY_ORDINARY) != 0 ? octaves : 0);
            return i < valid ? (entry & ~type::MANTISSA) | index : 0;
        };
        const auto explicit_entry = [&](uint32_t i, bool has_all) {
            const uint32_t entry = gw_shared_load32(gw_byte_place<4>(entries, x[i / 4], i % 4));
            return has_all || i < valid ? entry : 0;
        };
        const auto look_up = [&](bool has_all) {
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t sum = 0;
                if (DERIVED && !constant && j % 2 == 0) {
                    load_levels(j / 2);
                }
                GW_UNROLL
                for (uint32_t half = 2 * j; half < 2 * j + 2; half++) {
                    uint32_t part = 0;
                    GW_UNROLL
                    for (uint32_t i = 4 * half; i < 4 * half + 4; i++) {
                        if (DERIVED) {
                            part += gw_shared_load32(flags + 4 * (derived_entry(i) & 31));
                        } else {
                            const uint32_t entry = explicit_entry(i, has_all);
                            e[KEEPS ? i : 0] = entry;
                            part += entry;
                        }
                    }
                    flags_of4[KEEPS ? half : 0] = part;
                    sum += part;
                }
                gw_add_flags<DERIVED>(even, odd, sum);
            }
        };
        if (KEEPS && is_whole) {
            look_up(true);
        } else {
            look_up(false);
        }
        const gw_counts at = gw_scan_counts<DERIVED>(s, gw_counts_of<DERIVED>(even, odd), parity);
        gw_digits d1 = {gw_part_place<type::W1>(s, 0, at.a & 0xffff), 0};
        gw_digits d2 = {gw_part_place<type::W2>(s, 1, at.a >> 16), 0};
        gw_digits d3 = {gw_part_place<type::W2>(s, 2, at.b & 0xffff), 0};
        gw_digits d4 = {gw_part_place<type::W2>(s, 3, at.b >> 16), 0};
        gw_digits r4 = {0, 0}, r2 = {0, 0}, r1 = {0, 0};
        if (DERIVED) {
            r4.at = gw_part_place<4>(s, 4, at.c & 0xffff);
            r2.at = gw_part_place<2>(s, 5, at.c >> 16);
            r1.at = gw_part_place<1>(s, 6, at.d & 0xffff);
        }
        uint32_t escape = gw_part_place<8 * type::SIZE>(s, GW_PART_ESCAPES, DERIVED ? at.d >> 16 : at.c) >> 3;

        const auto join_values = [&](auto mends) {
            constexpr bool MENDS = decltype(mends)::VALUE;
            GW_UNROLL
            for (uint32_t batch = 0; batch < 32 / BATCH; batch++) {
                uint32_t escapes = 0; /* of the batch, by value */
                uint32_t rare = 0;
                gw_flag_sums sums = {0, 0, 0, 0};
                uint32_t packed[4];
                GW_UNROLL
                for (uint32_t j = 0; j < BATCH / 4; j++) {
                    uint32_t f[4], g[4], sum = 0;
                    if (DERIVED && !constant && j % 4 == 0) {
                        load_levels((BATCH * batch + 4 * j) / 16);
                    }
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t at_i = BATCH * batch + 4 * j + i;
                        f[i] = DERIVED ? derived_entry(at_i)
                               : KEEPS ? e[KEEPS ? at_i : 0]
                                       : explicit_entry(at_i, false);
                        g[i] = DERIVED ? gw_shared_load32(flags + 4 * (f[i] & 31)) : f[i];
                        sum += KEEPS ? 0 : g[i];
                    }
                    if (KEEPS) {
                        sum = flags_of4[KEEPS ? BATCH / 4 * batch + j : 0];
                    }
                    rare |= sum;
                    sums.of4 = sum;
                    sums.of8 = j % 2 == 0 ? sum : sums.of8 + sum;
                    if (j % 4 == 0) {
                        sums.even16 = sums.odd16 = 0;
                    }
                    if (j % 2 == 1) {
                        gw_add_flags<DERIVED>(sums.even16, sums.odd16, sums.of8);
                    }
                    /* The digits of a value, last one first, pushed in at the top. */
                    uint32_t z[4] = {0, 0, 0, 0}, v[4];
                    if (DERIVED) {
                        gw_take_digits<DERIVED, GW_FLAG_R1, 1>(words, z, r1, g, j, sums);
                        gw_take_digits<DERIVED, GW_FLAG_R2, 2>(words, z, r2, g, j, sums);
                        gw_take_digits<DERIVED, GW_FLAG_R4, 4>(words, z, r4, g, j, sums);
                    }
                    if (!MENDS) {
                        gw_open_window<DERIVED, GW_FLAG_4, type::W2>(words, d4, j, sums);
                    }
                    gw_open_window<DERIVED, GW_FLAG_3, type::W2>(words, d3, j, sums);
                    gw_open_window<DERIVED, GW_FLAG_2, type::W2>(words, d2, j, sums);
                    gw_open_window<DERIVED, GW_FLAG_1, type::W1>(words, d1, j, sums);
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        if (!MENDS) {
                            gw_push_digit<DERIVED ? GW_FLAG_4 : GW_HAS_4, type::W2>(z[i], d4.window, g[i]);
                        }
                        gw_push_digit<DERIVED ? GW_FLAG_3 : GW_HAS_3, type::W2>(z[i], d3.window, g[i]);
                        gw_push_digit<DERIVED ? GW_FLAG_2 : GW_HAS_2, type::W2>(z[i], d2.window, g[i]);
                        gw_push_digit<DERIVED ? GW_FLAG_1 : GW_HAS_1, type::W1>(z[i], d1.window, g[i]);
                    }
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        v[i] = gw_select_bits<type::MANTISSA | 0x80000000u>(
                            (uint32_t)((int32_t)z[i] >> (31 - type::EXPONENT_SHIFT)), f[i]);
                        if (type::IS_FP16 && DERIVED) { /* rule 25: no digits make a zero */
                            zeros |= (v[i] & 0x7fff0000u) == 0 && (g[i] & ~GW_FLAG_ESCAPE) != 0;
                        }
                    }
                    if (!KEEPS) { /* Bit 8 i + j of escapes: value 4 j + i of the batch. */
                        const uint32_t four =
                            __byte_perm(__byte_perm(g[0], g[1], 0x51), __byte_perm(g[2], g[3], 0x51), 0x5410);
                        escapes += (four >> 4 & 0x01010101u) << j;
                    }
                    if (type::SIZE == 4) {
                        gw_shared_store128(mine_at ^ 16 * j, make_uint4(v[0], v[1], v[2], v[3]));
                    } else {
                        GW_UNROLL
                        for (uint32_t i = 0; i < 2; i++) {
                            const uint32_t two = __byte_perm(v[2 * i], v[2 * i + 1], 0x7632);
                            packed[2 * (j & 1) + i] = two;
                            /* The same of two values; bits 15 and 31 are set of what is no zero. */
                            if (type::IS_FP16 && !DERIVED) {
                                const uint32_t some = (two & 0x7fff7fff) + 0x7fff7fff;
                                zeros |= ~some & gw_permute(g[2 * i], g[2 * i + 1], 0x7733) & 0x80008000u;
                            }
                        }
                        if ((j & 1) != 0) {
                            gw_shared_store128(mine_at ^ 16 * (j / 2),
                                               make_uint4(packed[0], packed[1], packed[2], packed[3]));
                        }
                    }
                }
                /* Escapes, and fourth digits if they are few: values are mended where they lie, in their
                 * order. */
                uint32_t pending = 0, fourth = 0;
                if (KEEPS && (rare & (15 * GW_FLAG_ESCAPE | (MENDS ? 15 * GW_FLAG_4 : 0))) != 0) {
                    GW_UNROLL
                    for (uint32_t j = 0; j < BATCH / 4; j++) {
                        const uint32_t *const of = e + (KEEPS ? BATCH * batch + 4 * j : 0);
                        const uint32_t m = of[0] + 2 * of[1] + 4 * of[2] + 8 * of[3];
                        pending |= (m >> 12 & 15) << 4 * j;
                        fourth |= (m >> 4 & 15) << 4 * j;
                    }
                } else if (!KEEPS && escapes != 0) {
                    GW_NO_UNROLL
                    for (uint32_t j = 0; j < BATCH / 4; j++) {
                        pending |= ((escapes >> j & 0x01010101u) * 0x10204080u >> 28) << 4 * j;
                    }
                }
                if (MENDS) {
                    GW_NO_UNROLL
                    while (fourth != 0) {
                        const uint32_t byte = (__ffs(fourth) - 1) * type::SIZE;
                        fourth &= fourth - 1;
                        const uint32_t place = (mine_at ^ (byte & 48)) + (byte & 12);
                        const uint32_t digit = gw_window(words, d4.at) & ((1u << type::W2) - 1);
                        d4.at += type::W2;
                        gw_shared_store32(place, gw_shared_load32(place) | digit);
                    }
                }
                GW_NO_UNROLL
                while (pending != 0) {
                    const uint32_t i = __ffs(pending) - 1;
                    pending &= pending - 1;
                    const uint32_t value = 32 * word + BATCH * batch + i;
                    const uint32_t pair = words.load32_from(escape & ~3u);
                    const uint32_t bits = type::SIZE == 4 ? pair : pair >> 8 * (escape & 2) & 0xffff;
                    escape += type::SIZE;
                    const uint32_t byte = i * type::SIZE;
                    const uint32_t place = (mine_at ^ (byte & 48)) + (byte & 12);
                    if (type::SIZE == 4) {
                        gw_shared_store32(place, bits);
                    } else {
                        const uint32_t old = gw_shared_load32(place);
                        gw_shared_store32(place, (byte & 2) != 0 ? (old & 0xffff) | bits << 16
                                                                 : (old & 0xffff0000u) | bits);
                    }
                    const uint32_t map_byte = DERIVED && !constant ? s.levels[value] : 0;
                    bad = bad || !gw_is_escape_allowed<DTYPE>(s.tree, frame, bits, map_byte);
                }
                __syncwarp();
                if (is_whole && is_plain) {
                    const uint32_t value = first + 1024 * warp + 32 * (lane >> 2) + BATCH * batch +
                                           (lane & 3) * (16 / type::SIZE);
                    uint8_t *const dst = out + value * type::SIZE;
                    GW_UNROLL
                    for (uint32_t j = 0; j < 4; j++) {
                        *(uint4 *)(void *)(dst + 256 * type::SIZE * j) = gw_shared_load128(all_at + 512 * j);
                    }
                } else if (stores && s.out.dst != nullptr) {
                    GW_NO_UNROLL
                    for (uint32_t j = 0; j < 4; j++) {
                        const uint32_t owner = 8 * j + (lane >> 2);
                        const uint32_t value =
                            first + 1024 * warp + 32 * owner + BATCH * batch + (lane & 3) * (16 / type::SIZE);
                        const uint32_t left = value < chunk_len ? (chunk_len - value) * type::SIZE : 0;
                        if (left != 0) {
                            gw_store_values<DTYPE>(s.out, value * type::SIZE,
                                                   gw_shared_load128(all_at + 512 * j), left);
                        }
                    }
                }
                __syncwarp();
            }
        };
        if (CAN_MEND && !is_dense) {
            join_values(gw_true{});
        } else {
            join_values(gw_false{});
        }
    }
    /* Behind this barrier the sums of the last round are there. */
    bad = bad || (type::IS_FP16 && zeros != 0);
    __syncthreads();
    if (tid == 0) {
        const gw_counts announced = gw_announced<DERIVED>(s);
        const gw_counts all =
            gw_unpack_counts(s.counted[(chunk_len + 32 * GW_THREADS - 1) / (32 * GW_THREADS) % 2]);
        bad = bad || all.a != announced.a || all.b != announced.b || all.c != announced.c ||
              all.d != announced.d;
    }
    return __syncthreads_or(bad) != 0;
}

/* ---- CODED chunk --------------------------------------------------------------------------------------- */

/*
 * Decodes the CODED chunk at words[0..size), codebook not included, with the tables of its codebook. Stores
 * to out once everything is right if `is_checked_first`, else at once. stage: 16 KiB of shared memory, which
 * may be the array of level that the root would go to. Returns true, to all threads, if a rule is broken.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename LEVEL>
GW_DEVICE bool gw_decode_coded(gw_decode_state &s, const gw_cuda_frame_state &frame, const WORDS &words,
                               const LEVEL &level, uint32_t size, uint32_t chunk_len, uint32_t level_size,
                               uint32_t stage, bool is_checked_first)
{
    if (gw_find_parts<DTYPE, DERIVED>(s, words, size, chunk_len, level_size)) {
        return true;
    }
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t selectors = gw_place_of(s.selector);
    /* Level by level, up to the children of the root. */
    const uint32_t root_task = s.node[0].first_task;
    uint32_t start = 0, next_level = gw_place_of(s.task_start) + 4;
    GW_NO_UNROLL
    while (start != root_task) {
        const uint32_t end = gw_shared_load32(next_level);
        next_level += 4;
        GW_NO_UNROLL
        for (uint32_t task = start + warp; task < end; task += GW_WARPS) {
            const uint32_t what = s.task[task];
            const gw_node_work node = gw_node_load(s, what & 255);
            const uint32_t word = (what >> 8) * 32 + lane;
            const bool active = word < node.words;
            uint32_t x[8];
            if (node.kind == GW_KIND_INNER) {
                const uint32_t bits = active ? words.load32(node.run + 4 * word) : 0;
                const uint32_t count = __popc(bits);
                const uint32_t in_warp = gw_warp_scan(count) - count;
                const uint32_t ones = s.task_ones[node.first_task + (what >> 8)] + in_warp;
                if (active) {
                    gw_merge32(x, level, selectors, node.left + 32 * word - ones, node.right + ones, bits);
                }
            } else if (active) {
                gw_unpack_any(x, words, node.run, node.kind & 15, word, (node.kind >> 8) * 0x01010101u);
            }
            if (active) {
                level.store128(node.out + 32 * word, make_uint4(x[0], x[1], x[2], x[3]));
                level.store128(node.out + 32 * word + 16, make_uint4(x[4], x[5], x[6], x[7]));
            }
        }
        start = end;
        __syncthreads();
    }
    bool bad = false;
    GW_NO_UNROLL
    for (uint32_t pass = is_checked_first ? 0 : 1; pass < 2 && !bad; pass++) {
        bad = gw_join_chunk<DTYPE, DERIVED>(s, frame, words, level, stage, chunk_len, pass != 0);
    }
    return bad;
}

/* ---- chunk --------------------------------------------------------------------------------------------- */

/*
 * Bytes of dynamic shared memory in front of the arrays, and what reads of the copied chunk may go beyond
 * its end. Escapes go farthest: they begin at the end of theirs at the latest (gw_part_place()), and a
 * thread reads 32 of 4 bytes. Digits: 31 of 6 bits, and two words for a window. Leaves: 32 numbers of 7 bits
 * where there is one.
 */
enum { GW_DECODE_FIXED = offsetof(gw_decode_state, arrays), GW_DECODE_SLACK = 128 };

static_assert(GW_DECODE_FIXED + GW_DECODE_SLACK <= GW_CUDA_DECODE_FIXED_MAX, "the host reserves enough");
static_assert(GW_CUDA_LEVEL_SIZE(12) % 64 == 0 && GW_CUDA_LEVEL_SIZE_MIN % 64 == 0, "stages are aligned");

GW_DEVICE uint32_t gw_level_size(uint32_t chunk_log2)
{
    const uint32_t size = GW_CUDA_LEVEL_SIZE(chunk_log2);
    return size < GW_CUDA_LEVEL_SIZE_MIN ? GW_CUDA_LEVEL_SIZE_MIN : size;
}

/* Once in the life of a block. */
GW_DEVICE void gw_decode_begin(gw_decode_state &s)
{
    const uint32_t t = gw_thread_now();
    s.selector[t] = gw_selector_of(t);
    if (t == 0) {
        s.book_owner = 0;
    }
    __syncthreads();
}

/* Copies up to 132 bytes of a codebook, at src, to s.book. Ends with a barrier. */
GW_DEVICE void gw_book_fetch(gw_decode_state &s, const uint8_t *src, uint64_t size)
{
    __syncthreads();
    const uint32_t t = gw_thread_now();
    if (t < GW_CUDA_BOOK_SIZE_MAX && t < size) {
        s.book[t] = src[t];
    }
    __syncthreads();
}

/*
 * Makes tree and tables of the codebook of the chunk in s (its owner is at s.owner_offset) unless they are
 * there. Returns its size, 0 if rule 20 is broken.
 */
template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_book_use(gw_decode_state &s, const gw_cuda_codec &codec,
                               const gw_cuda_frame_state &frame, const uint8_t *src, uint64_t owner)
{
    if (s.book_owner == owner) {
        return s.book_size;
    }
    uint32_t size;
    if (frame.installed) {
        const gw_cuda_book &book = codec.book[frame.book];
        const uint32_t book_size = book.size_at != nullptr ? *book.size_at : book.size;
        gw_book_fetch(s, book.bytes != nullptr ? book.bytes : book.inline_bytes, book_size);
        size = gw_cuda_book_read(s.tree, s.book, book_size, gw_type<DTYPE>::IS_FP16, frame.levels, s.sums);
    } else {
        gw_book_fetch(s, src + s.owner_offset, s.owner_size);
        size = gw_cuda_book_read(s.tree, s.book, s.owner_size, gw_type<DTYPE>::IS_FP16, frame.levels, s.sums);
    }
    if (size != 0) {
        gw_cuda_tree_build(s.tree);
        gw_decode_tables<DTYPE>(s, frame);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.book_owner = size == 0 ? 0 : owner;
        s.book_size = size;
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

/* Which chunks a call of gw_cuda_decode_chunk() can decode. What is left out of the first kind takes more
 * registers. */
enum gw_decode_paths {
    GW_DECODE_NEAR, /* all but CODED ones of derived frames and those too large for shared memory */
    GW_DECODE_REST, /* only those */
    GW_DECODE_ALL
};

enum { GW_DECODE_DEFERRED = 255 }; /* a chunk that the paths leave out; nothing was touched */

/* What surrounds a chunk. */
struct gw_decode_call {
    const gw_cuda_codec &codec;
    const gw_cuda_frame_state &frame;
    const uint8_t *src;
    const uint8_t *levels; /* of the frame's first value */
    uint32_t shared_size;  /* of the block */
    uint8_t *large;        /* a slot for chunks that do not fit it, see gw_decode_copy_room() */
    uint64_t owner_key; /* added to a chunk's index: what tells codebooks of different frames apart; not 0 */
};

/* Bytes of shared memory that are left for a copy of the chunk; 0: its level arrays do not fit, and a slot
 * is needed. */
GW_DEVICE uint32_t gw_decode_copy_room(uint32_t shared_size, uint32_t chunk_log2)
{
    const uint32_t fixed = GW_DECODE_FIXED + 2 * gw_level_size(chunk_log2) + GW_DECODE_SLACK;
    return shared_size > fixed ? shared_size - fixed : 0;
}

/* The chunk does not fit the block's shared memory with its level arrays. */
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
    const uint32_t level_size = gw_level_size(c.frame.chunk_log2);
    const uint32_t arrays = gw_place_of(s.arrays), copy = arrays + 2 * level_size;
    GW_NO_UNROLL
    for (uint32_t at = 16 * threadIdx.x; at < size; at += 16 * GW_THREADS) {
        gw_copy_async16(copy + at, src + at);
    }
    gw_copy_wait();
    __syncthreads();
    const gw_shared_space words = {copy + skip}, level = {arrays};
    return gw_decode_coded<DTYPE, DERIVED>(s, c.frame, words, level, size - skip, chunk_len, level_size,
                                           arrays + (s.tree.depth_max & 1) * level_size, is_checked_first);
}

/* Any chunk: read where it lies. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_decode_far(gw_decode_state &s, const gw_decode_call &c, const uint8_t *src, uint32_t size,
                             uint32_t skip, uint32_t chunk_len, bool is_checked_first)
{
    const uint32_t level_size = gw_level_size(c.frame.chunk_log2);
    const bool has_room = gw_decode_copy_room(c.shared_size, c.frame.chunk_log2) != 0;
    const uint32_t arrays = gw_place_of(s.arrays);
    const gw_any_space words = {(uint8_t *)(uintptr_t)src + skip, size - skip};
    const gw_any_space level = {has_room ? (uint8_t *)s.arrays : c.large, 2 * level_size};
    return gw_decode_coded<DTYPE, DERIVED>(s, c.frame, words, level, size - skip, chunk_len, level_size,
                                           has_room ? arrays + (s.tree.depth_max & 1) * level_size : arrays,
                                           is_checked_first);
}

/* What is left to do before the values of a chunk can be decoded, or instead of that. */
enum {
    GW_TODO_END = 1, /* return s.status */
    GW_TODO_CHECKSUM = 2,
    GW_TODO_PLAIN = 4, /* it has no values in code */
    GW_TODO_BOOK = 8,
    GW_TODO_MISFIT = 16, /* its size is wrong, which counts if the checksum is right */
    GW_CHUNK_READY = 254 /* what gw_chunk_prepare() returns, beside statuses */
};

/*
 * Looks at the entry of a chunk, by thread 0, which leaves in s what all threads need of it: they would
 * compare the same numbers 256 times. Returns what is left to do, most often nothing.
 */
template <uint32_t DTYPE, gw_decode_paths PATHS>
GW_DEVICE uint32_t gw_chunk_look(gw_decode_state &s, const gw_decode_call &c, uint64_t index)
{
    /* Entries are read once, by one thread: whatever happens to the bytes meanwhile, the block is of one
     * mind. */
    const gw_cuda_frame_state &frame = c.frame;
    const uint64_t left = frame.len - (index << frame.chunk_log2), whole = (uint64_t)1 << frame.chunk_log2;
    const uint32_t chunk_len = (uint32_t)(left < whole ? left : whole);
    const uint32_t raw_size = (chunk_len * gw_type<DTYPE>::SIZE + 15) & ~15u;
    gw_chunk_entry e = {0, 0, 0, 0, 0}, owner = {0, 0, 0, 0, 0};
    bool good = gw_entry_read(e, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                              frame.chunk_count, frame.installed != 0, index);
    const bool has_owner = good && e.kind == GW_CHUNK_CODED && !frame.installed;
    const bool is_owner = has_owner && e.book == index;
    if (has_owner) {
        good = gw_entry_read(owner, c.src, frame.directory_offset, frame.payload_offset, frame.frame_size,
                             frame.chunk_count, false, e.book);
    }
    s.levels = c.levels == nullptr ? nullptr : c.levels + (index << frame.chunk_log2);
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
    s.book_key = c.owner_key + (frame.installed ? 0 : e.book);
    s.skip = 0;
    const uint32_t checksum = frame.checksum ? GW_TODO_CHECKSUM : 0;
    if (e.kind != GW_CHUNK_CODED) {
        const bool fits = e.size == (e.kind == GW_CHUNK_RAW ? raw_size : 0);
        return checksum | GW_TODO_PLAIN | (fits ? 0 : GW_TODO_MISFIT);
    }
    s.is_far = gw_decode_is_far(c, e.size);
    if (PATHS == GW_DECODE_NEAR && (frame.levels != 0 || s.is_far)) {
        s.status = GW_DECODE_DEFERRED;
        return GW_TODO_END;
    }
    const bool has_book = s.book_owner == s.book_key;
    if (has_book && is_owner) {
        s.skip = s.book_size;
    }
    return checksum | (has_book ? 0 : GW_TODO_BOOK) |
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
    const uint32_t book_size = gw_book_use<DTYPE>(s, c.codec, c.frame, c.src, s.book_key);
    if (book_size == 0) {
        return GW_ERR_CORRUPT;
    }
    if ((todo & GW_TODO_CHECKSUM) != 0 && !is_alone) {
        /* 64 bits: what the directory says of a chunk's size is not yet known to be possible. */
        const uint64_t book_words = book_size >> 2, words = s.size >> 2;
        const uint8_t *book = c.src + s.owner_offset;
        const uint32_t found = gw_cuda_crc32c(0, book_words + words, s.sums, [=](uint64_t i) {
            return i < book_words ? gw_read32(book + 4 * i) : gw_read32(data + 4 * (i - book_words));
        });
        if (found != s.crc) {
            return GW_ERR_CHECKSUM;
        }
    }
    const uint32_t skip = is_owner ? book_size : 0;
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
 */
template <uint32_t DTYPE, gw_decode_paths PATHS>
GW_DEVICE uint32_t gw_cuda_decode_chunk(gw_decode_state &s, const gw_decode_call &c, uint64_t index,
                                        bool is_checked_first)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        s.todo = gw_chunk_look<DTYPE, PATHS>(s, c, index);
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
    if (PATHS == GW_DECODE_NEAR) {
        bad = gw_decode_near<DTYPE, false>(s, c, data, size, skip, chunk_len, is_checked_first);
    } else if (c.frame.levels != 0) {
        bad = s.is_far ? gw_decode_far<DTYPE, true>(s, c, data, size, skip, chunk_len, is_checked_first)
                       : gw_decode_near<DTYPE, true>(s, c, data, size, skip, chunk_len, is_checked_first);
    } else if (PATHS == GW_DECODE_REST || s.is_far) {
        bad = gw_decode_far<DTYPE, false>(s, c, data, size, skip, chunk_len, is_checked_first);
    } else {
        bad = gw_decode_near<DTYPE, false>(s, c, data, size, skip, chunk_len, is_checked_first);
    }
    return bad ? GW_ERR_CORRUPT : GW_OK;
}

#endif
