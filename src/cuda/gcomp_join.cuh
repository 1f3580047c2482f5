/*
 * Makes values from the ranks of the root: look-up of the entries, digits from the planes, escapes. Rules 24
 * to 26 of docs/format.md section 8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_JOIN_CUH
#define GW_CUDA_GCOMP_JOIN_CUH

#include "cuda/gcomp_merge.cuh"
#include "cuda/gcomp_store.cuh"

/* Rule 26: could an encoder with this codebook have had to escape this value? bits: the value in the low
 * bits; k: its map byte and what goes with it (derived). gw_is_escape_allowed() of core. */
template <uint32_t DTYPE>
GW_DEVICE bool gw_is_escape_allowed(const gw_cuda_tree &tree, const gw_cuda_frame_state &frame, uint32_t bits,
                                    uint32_t k, int32_t drop_offset)
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
    if (frame.quantum_mode) {
        const uint32_t wide = type::IS_FP16 ? (exponent == 0 ? 1 : exponent) + type::BIAS : exponent;
        const uint32_t turn = tree.window_start != 0 ? gw_cuda_turn_of<DTYPE>(k, drop_offset) : 0;
        uint32_t drop = frame.cap;
        if (!frame.constant) {
            drop =
                gw_octaves_of((uint32_t)(drop_offset - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO), k, frame.cap);
            drop -= drop % frame.step;
        }
        const uint32_t label = gw_cuda_exponent_turn<DTYPE>(exponent, turn) + (type::IS_FP16 ? 2 : 1);
        return (magnitude & ((1u << drop) - 1)) == 0 && (tree.has_code[label >> 5] >> (label & 31) & 1) == 0;
    }
    GW_NO_UNROLL
    for (uint32_t drop_steps = 0; drop_steps < 4; drop_steps++) {
        if ((magnitude & ((1u << drop_steps * type::STEP) - 1)) != 0) {
            break;
        }
        const uint32_t x = type::IS_FP16 ? exponent + 1 : exponent - tree.window_start;
        if ((!type::IS_FP16 && (exponent <= tree.window_start || x > 63)) ||
            (tree.has_code[(4 * x + drop_steps) >> 5] >> ((4 * x + drop_steps) & 31) & 1) == 0) {
            return true;
        }
    }
    return false;
}

/* Digits and escapes of some values, 16 bits each: planes 1 | 2, 3 | 4, R4 | R2 (explicit: escapes), R1 |
 * escapes. */
typedef uint4 gw_counts;

/*
 * Sums over the values before those of this thread: of the threads before, and of the rounds before, which
 * are in s.counted[parity]. What the next round finds there, in the other one, comes from the last thread.
 * Places alternate, so one barrier is enough: a late thread of round r reads what is overwritten in round r
 * + 2, after the barrier of round r + 1.
 */
template <bool DERIVED>
GW_DEVICE gw_counts gw_scan_counts(gw_decode_state &s, gw_counts mine, uint32_t parity)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    gw_counts x = {gw_warp_scan(mine.x), gw_warp_scan(mine.y), gw_warp_scan(mine.z),
                   DERIVED ? gw_warp_scan(mine.w) : 0};
    if (lane == 31) {
        s.warp_sum[parity][warp] = x;
    }
    __syncthreads();
    /* Lane v has the sum of warp v, and lane 7 that of the rounds before. Halves do not overflow: the
     * last sum is that of a chunk, at most 2^15. */
    const uint4 sum = lane < GW_WARPS - 1 ? s.warp_sum[parity][lane] : s.counted[parity];
    const bool counts = lane < warp || lane == GW_WARPS - 1;
    x.x += __reduce_add_sync(GW_FULL_MASK, counts ? sum.x : 0);
    x.y += __reduce_add_sync(GW_FULL_MASK, counts ? sum.y : 0);
    x.z += __reduce_add_sync(GW_FULL_MASK, counts ? sum.z : 0);
    x.w += DERIVED ? __reduce_add_sync(GW_FULL_MASK, counts ? sum.w : 0) : 0;
    if (threadIdx.x == GW_THREADS - 1) {
        s.counted[parity ^ 1] = x;
    }
    return make_uint4(x.x - mine.x, x.y - mine.y, x.z - mine.z, x.w - mine.w);
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
    x.x = __byte_perm(even, 0, 0x4140);
    x.y = __byte_perm(even, odd, 0x4442) & 0x00ff00ff;
    x.z = DERIVED ? __byte_perm(even, odd, 0x3336) & 0x00ff00ff : odd >> 8;
    x.w = DERIVED ? __byte_perm(odd, 0, 0x4143) : 0;
    return x;
}

/* The whole of the counts, as the header of the chunk announces them. */
template <bool DERIVED> GW_DEVICE gw_counts gw_announced(const gw_decode_state &s)
{
    gw_counts x;
    x.x = s.part_len[0] | s.part_len[1] << 16;
    x.y = s.part_len[2] | s.part_len[3] << 16;
    x.z = DERIVED ? s.part_len[4] | s.part_len[5] << 16 : s.part_len[GW_PART_ESCAPES];
    x.w = DERIVED ? s.part_len[6] | s.part_len[GW_PART_ESCAPES] << 16 : 0;
    return x;
}

/*
 * Start of digit, or escape, `count` of a part. After the end of the part it is the end, so that no
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

/* A thread's position in a plane: the next one's bit, and a window that held the next ones. */
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

/* Digits of up to 32 values in a plane, and the next escape, where the thread goes on. */
struct gw_join_places {
    gw_digits d1, d2, d3, d4, r4, r2, r1;
    uint32_t escape; /* byte */
};

/* What a thread holds while it joins its 32 values of 8192. */
template <uint32_t THE_DTYPE, bool IS_DERIVED, typename WORDS> struct gw_join {
    typedef gw_type<THE_DTYPE> type;
    static constexpr uint32_t DTYPE = THE_DTYPE;
    static constexpr bool DERIVED = IS_DERIVED;
    static constexpr uint32_t BATCH = 64 / type::SIZE; /* values of a thread that are staged together */
    /* Entries stay in registers. Access to any memory takes more of those, and there is no speed to lose. */
    static constexpr bool KEEPS = !DERIVED && WORDS::IS_SHARED;
    static constexpr bool CAN_MEND = KEEPS && type::SIZE == 4; /* most 16-bit values have all their digits */

    gw_decode_state &s;
    const gw_cuda_frame_state &frame;
    const WORDS &words;
    uint32_t entries, flags;  /* places of s.entry and s.flags */
    uint32_t mine_at, all_at; /* where a lane's staged values are, and those that it stores */
    uint32_t cap, chunk_len;
    int32_t drop_offset;
    uint32_t more; /* carried: the drop_offset that entries lack, else 0 */
    bool constant, relative, carried, stores, is_plain;
    uint8_t *out;
    bool bad;
    uint32_t zeros; /* fp16: not 0 if a value with digits is a zero */

    uint32_t first, word, valid; /* of the 8192, and the thread's: 32 word .. 32 word + valid - 1 */
    bool is_whole;               /* of the 8192 values none is missing */
    uint32_t x[8];               /* ranks */
    uint32_t k[4];               /* map bytes of 16 values */
    uint32_t e[KEEPS ? 32 : 1], flags_of4[KEEPS ? 8 : 1];
    gw_join_places at;

    GW_DEVICE_MEMBER gw_join(gw_decode_state &state, const gw_cuda_frame_state &of_frame,
                             const WORDS &of_chunk)
        : s(state), frame(of_frame), words(of_chunk)
    {
    }
};

/* Loads the map bytes of the first or second half of the values. */
template <typename JOIN> GW_DEVICE void gw_join_load_map_bytes(JOIN &join, uint32_t half)
{
    const uint32_t left = join.valid > 16 * half ? join.valid - 16 * half : 0;
    if (join.carried) { /* of one block */
        const uint32_t block = left == 0 ? 0 : (32 * join.word + 16 * half) >> join.frame.block_log2;
        const uint32_t four = join.s.block_map_byte[block] * 0x01010101u;
        GW_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            join.k[j] = four;
        }
        return;
    }
    gw_load_map_bytes(join.k, join.s.map_bytes + (left != 0 ? 32 * (uint64_t)join.word + 16 * half : 0),
                      left);
}

/* An ordinary entry with a relative exponent, of a value with map byte k: with the exponent, as
 * gw_join_entry(). */
template <typename JOIN> GW_DEVICE uint32_t gw_join_turned(const JOIN &join, uint32_t entry, uint32_t k)
{
    typedef typename JOIN::type type;
    const int32_t drop_offset = join.drop_offset;
    const uint32_t e = gw_cuda_exponent_turn_back<JOIN::DTYPE>(entry >> type::EXPONENT_SHIFT,
                                                               gw_cuda_turn_of<JOIN::DTYPE>(k, drop_offset));
    const uint32_t wide = type::IS_FP16 ? (e == 0 ? 1 : e) + type::BIAS : e;
    const uint32_t bias = (uint32_t)(drop_offset - (int32_t)(4 * wide + 3) + GW_BIAS_ZERO);
    return e << type::EXPONENT_SHIFT | (GW_CLASS_ORDINARY + gw_octaves_of(bias, k, join.cap));
}

/* Entry of value i: exponent in place, and (explicit) flags or (derived) the index of its flags. A derived
 * entry is computed again when its value is assembled, and its map byte is read again (it is in the cache by
 * then): ranks take fewer registers. */
template <typename JOIN> GW_DEVICE uint32_t gw_join_entry(const JOIN &join, uint32_t i, bool has_all)
{
    const uint32_t entry = gw_shared_load32(gw_byte_place<4>(join.entries, join.x[i / 4], i % 4));
    if (!JOIN::DERIVED) {
        return has_all || i < join.valid ? entry : 0;
    }
    const uint32_t k = gw_byte_of(join.k[i / 4 % 4], i % 4);
    if (join.relative && (entry & GW_ENTRY_ORDINARY) != 0) {
        return i < join.valid ? gw_join_turned(join, entry, k) : 0;
    }
    const uint32_t octaves =
        join.constant ? join.cap : gw_octaves_of((entry >> 8 & 0xfff) + join.more, k, join.cap);
    const uint32_t index = (entry & 31) + ((entry & GW_ENTRY_ORDINARY) != 0 ? octaves : 0);
    return i < join.valid ? (entry & ~JOIN::type::MANTISSA) | index : 0;
}

/* Looks up the entries of all values; returns how many digits and escapes they have. */
template <typename JOIN> GW_DEVICE gw_counts gw_join_look_up(JOIN &join, bool has_all)
{
    constexpr bool DERIVED = JOIN::DERIVED, KEEPS = JOIN::KEEPS;
    uint32_t even = 0, odd = 0;
    GW_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t sum = 0;
        if (DERIVED && !join.constant && j % 2 == 0) {
            gw_join_load_map_bytes(join, j / 2);
        }
        GW_UNROLL
        for (uint32_t half = 2 * j; half < 2 * j + 2; half++) {
            uint32_t part = 0;
            GW_UNROLL
            for (uint32_t i = 4 * half; i < 4 * half + 4; i++) {
                const uint32_t entry = gw_join_entry(join, i, has_all);
                if (DERIVED) {
                    part += gw_shared_load32(join.flags + 4 * (entry & 31));
                } else {
                    join.e[KEEPS ? i : 0] = entry;
                    part += entry;
                }
            }
            join.flags_of4[KEEPS ? half : 0] = part;
            sum += part;
        }
        gw_add_flags<DERIVED>(even, odd, sum);
    }
    return gw_counts_of<DERIVED>(even, odd);
}

/* Places of the thread's digits and escapes; before: digits and escapes of the values before its own. */
template <typename JOIN> GW_DEVICE void gw_join_find(JOIN &join, const gw_counts &before)
{
    typedef typename JOIN::type type;
    const gw_decode_state &s = join.s;
    gw_join_places &at = join.at;
    at.d1 = {gw_part_place<type::W1>(s, 0, before.x & 0xffff), 0};
    at.d2 = {gw_part_place<type::W2>(s, 1, before.x >> 16), 0};
    at.d3 = {gw_part_place<type::W2>(s, 2, before.y & 0xffff), 0};
    at.d4 = {gw_part_place<type::W2>(s, 3, before.y >> 16), 0};
    at.r4 = at.r2 = at.r1 = {0, 0};
    if (JOIN::DERIVED) {
        at.r4.at = gw_part_place<4>(s, 4, before.z & 0xffff);
        at.r2.at = gw_part_place<2>(s, 5, before.z >> 16);
        at.r1.at = gw_part_place<1>(s, 6, before.w & 0xffff);
    }
    at.escape =
        gw_part_place<8 * type::SIZE>(s, GW_PART_ESCAPES, JOIN::DERIVED ? before.w >> 16 : before.z) >> 3;
}

/* Accumulators of a batch, for its groups of four. */
struct gw_join_batch {
    uint32_t escapes; /* bit 8 i + j: value 4 j + i; unless entries are kept */
    uint32_t rare;    /* flags that occur */
    gw_flag_sums sums;
    uint32_t packed[4]; /* 16-bit types: values that are not stored yet */
};

/* Group j of four values of a batch: f, entries; g, their flags; the sums of flags up to them. */
template <typename JOIN>
GW_DEVICE void gw_join_entries(JOIN &join, gw_join_batch &b, uint32_t batch, uint32_t j, uint32_t f[4],
                               uint32_t g[4])
{
    constexpr bool DERIVED = JOIN::DERIVED, KEEPS = JOIN::KEEPS;
    constexpr uint32_t BATCH = JOIN::BATCH;
    uint32_t sum = 0;
    if (DERIVED && !join.constant && j % 4 == 0) {
        gw_join_load_map_bytes(join, (BATCH * batch + 4 * j) / 16);
    }
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = BATCH * batch + 4 * j + i;
        f[i] = KEEPS ? join.e[KEEPS ? at : 0] : gw_join_entry(join, at, false);
        g[i] = DERIVED ? gw_shared_load32(join.flags + 4 * (f[i] & 31)) : f[i];
        sum += KEEPS ? 0 : g[i];
    }
    if (KEEPS) {
        sum = join.flags_of4[KEEPS ? BATCH / 4 * batch + j : 0];
    }
    b.rare |= sum;
    b.sums.of4 = sum;
    b.sums.of8 = j % 2 == 0 ? sum : b.sums.of8 + sum;
    if (j % 4 == 0) {
        b.sums.even16 = b.sums.odd16 = 0;
    }
    if (j % 2 == 1) {
        gw_add_flags<DERIVED>(b.sums.even16, b.sums.odd16, b.sums.of8);
    }
}

/* Digits of group j of four values, the last one first, pushed in at the top of z. MENDS: without plane 4. */
template <bool MENDS, typename JOIN>
GW_DEVICE void gw_join_digits(JOIN &join, const gw_flag_sums &sums, uint32_t j, const uint32_t g[4],
                              uint32_t z[4])
{
    constexpr bool DERIVED = JOIN::DERIVED;
    constexpr uint32_t W1 = JOIN::type::W1, W2 = JOIN::type::W2;
    gw_join_places &at = join.at;
    if (DERIVED) {
        gw_take_digits<DERIVED, GW_FLAG_R1, 1>(join.words, z, at.r1, g, j, sums);
        gw_take_digits<DERIVED, GW_FLAG_R2, 2>(join.words, z, at.r2, g, j, sums);
        gw_take_digits<DERIVED, GW_FLAG_R4, 4>(join.words, z, at.r4, g, j, sums);
    }
    if (!MENDS) {
        gw_open_window<DERIVED, GW_FLAG_4, W2>(join.words, at.d4, j, sums);
    }
    gw_open_window<DERIVED, GW_FLAG_3, W2>(join.words, at.d3, j, sums);
    gw_open_window<DERIVED, GW_FLAG_2, W2>(join.words, at.d2, j, sums);
    gw_open_window<DERIVED, GW_FLAG_1, W1>(join.words, at.d1, j, sums);
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        if (!MENDS) {
            gw_push_digit<DERIVED ? GW_FLAG_4 : GW_HAS_4, W2>(z[i], at.d4.window, g[i]);
        }
        gw_push_digit<DERIVED ? GW_FLAG_3 : GW_HAS_3, W2>(z[i], at.d3.window, g[i]);
        gw_push_digit<DERIVED ? GW_FLAG_2 : GW_HAS_2, W2>(z[i], at.d2.window, g[i]);
        gw_push_digit<DERIVED ? GW_FLAG_1 : GW_HAS_1, W1>(z[i], at.d1.window, g[i]);
    }
}

/* Stages group j of four values v, 16-bit types two in a word. g: their flags. */
template <typename JOIN>
GW_DEVICE void gw_join_stage(JOIN &join, gw_join_batch &b, uint32_t j, const uint32_t v[4],
                             const uint32_t g[4])
{
    typedef typename JOIN::type type;
    if (type::SIZE == 4) {
        gw_shared_store128(join.mine_at ^ 16 * j, gw_four_of(v));
    } else {
        GW_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t two = __byte_perm(v[2 * i], v[2 * i + 1], 0x7632);
            b.packed[2 * (j & 1) + i] = two;
            /* Rule 25 for two values: bits 15 and 31 are set in `some` unless the value is a zero. */
            if (type::IS_FP16 && !JOIN::DERIVED) {
                const uint32_t some = (two & 0x7fff7fff) + 0x7fff7fff;
                join.zeros |= ~some & gw_permute(g[2 * i], g[2 * i + 1], 0x7733) & 0x80008000u;
            }
        }
        if ((j & 1) != 0) {
            gw_shared_store128(join.mine_at ^ 16 * (j / 2), gw_four_of(b.packed));
        }
    }
}

/* Assembles and stages group j of four values of a batch. MENDS: without fourth digits. */
template <bool MENDS, typename JOIN>
GW_DEVICE void gw_join_four(JOIN &join, gw_join_batch &b, uint32_t batch, uint32_t j)
{
    typedef typename JOIN::type type;
    uint32_t f[4], g[4], z[4] = {0, 0, 0, 0}, v[4];
    gw_join_entries(join, b, batch, j, f, g);
    gw_join_digits<MENDS>(join, b.sums, j, g, z);
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = gw_select_bits<type::MANTISSA | 0x80000000u>(
            (uint32_t)((int32_t)z[i] >> (31 - type::EXPONENT_SHIFT)), f[i]);
        if (type::IS_FP16 && JOIN::DERIVED) { /* rule 25: no digits make a zero */
            join.zeros |= (v[i] & 0x7fff0000u) == 0 && (g[i] & ~GW_FLAG_ESCAPE) != 0;
        }
    }
    if (!JOIN::KEEPS) {
        const uint32_t four =
            __byte_perm(__byte_perm(g[0], g[1], 0x51), __byte_perm(g[2], g[3], 0x51), 0x5410);
        b.escapes += (four >> 4 & 0x01010101u) << j;
    }
    gw_join_stage(join, b, j, v, g);
}

/* Replaces value `i` of the batch by the next escape where it is staged; checks rule 26. */
template <typename JOIN> GW_DEVICE void gw_join_escape(JOIN &join, uint32_t batch, uint32_t i)
{
    typedef typename JOIN::type type;
    const uint32_t value = 32 * join.word + JOIN::BATCH * batch + i;
    const uint32_t pair = join.words.load32_from(join.at.escape & ~3u);
    const uint32_t bits = type::SIZE == 4 ? pair : pair >> 8 * (join.at.escape & 2) & 0xffff;
    join.at.escape += type::SIZE;
    const uint32_t byte = i * type::SIZE;
    const uint32_t place = (join.mine_at ^ (byte & 48)) + (byte & 12);
    if (type::SIZE == 4) {
        gw_shared_store32(place, bits);
    } else {
        const uint32_t old = gw_shared_load32(place);
        gw_shared_store32(place, (byte & 2) != 0 ? (old & 0xffff) | bits << 16 : (old & 0xffff0000u) | bits);
    }
    const uint32_t map_byte = !JOIN::DERIVED || join.constant ? 0
                              : join.carried ? join.s.block_map_byte[value >> join.frame.block_log2]
                                             : join.s.map_bytes[value];
    join.bad = join.bad ||
               !gw_is_escape_allowed<JOIN::DTYPE>(join.s.tree, join.frame, bits, map_byte, join.drop_offset);
}

/* Escapes, and (MENDS) fourth digits: the staged values are corrected in their order. */
template <bool MENDS, typename JOIN>
GW_DEVICE void gw_join_mend(JOIN &join, const gw_join_batch &b, uint32_t batch)
{
    typedef typename JOIN::type type;
    constexpr bool KEEPS = JOIN::KEEPS;
    constexpr uint32_t BATCH = JOIN::BATCH;
    uint32_t pending = 0, fourth = 0; /* by value */
    if (KEEPS && (b.rare & (15 * GW_FLAG_ESCAPE | (MENDS ? 15 * GW_FLAG_4 : 0))) != 0) {
        GW_UNROLL
        for (uint32_t j = 0; j < BATCH / 4; j++) {
            const uint32_t *const of = join.e + (KEEPS ? BATCH * batch + 4 * j : 0);
            const uint32_t m = of[0] + 2 * of[1] + 4 * of[2] + 8 * of[3];
            pending |= (m >> 12 & 15) << 4 * j;
            fourth |= (m >> 4 & 15) << 4 * j;
        }
    } else if (!KEEPS && b.escapes != 0) {
        GW_NO_UNROLL
        for (uint32_t j = 0; j < BATCH / 4; j++) {
            pending |= ((b.escapes >> j & 0x01010101u) * 0x10204080u >> 28) << 4 * j;
        }
    }
    if (MENDS) {
        GW_NO_UNROLL
        while (fourth != 0) {
            const uint32_t byte = (__ffs(fourth) - 1) * type::SIZE;
            fourth &= fourth - 1;
            const uint32_t place = (join.mine_at ^ (byte & 48)) + (byte & 12);
            const uint32_t digit = gw_window(join.words, join.at.d4.at) & ((1u << type::W2) - 1);
            join.at.d4.at += type::W2;
            gw_shared_store32(place, gw_shared_load32(place) | digit);
        }
    }
    GW_NO_UNROLL
    while (pending != 0) {
        const uint32_t i = __ffs(pending) - 1;
        pending &= pending - 1;
        gw_join_escape(join, batch, i);
    }
}

/* The staged values of the warp to s.out, 16 bytes a lane. */
template <typename JOIN> GW_DEVICE void gw_join_store(const JOIN &join, uint32_t batch)
{
    constexpr uint32_t SIZE = JOIN::type::SIZE;
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    if (join.is_whole && join.is_plain) {
        const uint32_t value =
            join.first + 1024 * warp + 32 * (lane >> 2) + JOIN::BATCH * batch + (lane & 3) * (16 / SIZE);
        uint8_t *const dst = join.out + value * SIZE;
        GW_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            *(uint4 *)(void *)(dst + 256 * SIZE * j) = gw_shared_load128(join.all_at + 512 * j);
        }
    } else if (join.stores && join.s.out.dst != nullptr) {
        GW_NO_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t owner = 8 * j + (lane >> 2);
            const uint32_t value =
                join.first + 1024 * warp + 32 * owner + JOIN::BATCH * batch + (lane & 3) * (16 / SIZE);
            const uint32_t left = value < join.chunk_len ? (join.chunk_len - value) * SIZE : 0;
            if (left != 0) {
                gw_store_values<JOIN::DTYPE>(join.s.out, value * SIZE,
                                             gw_shared_load128(join.all_at + 512 * j), left);
            }
        }
    }
}

/* The values of the thread, whose entries and places are known. MENDS: fourth digits are few, and values
 * that have them are corrected afterwards. */
template <bool MENDS, typename JOIN> GW_DEVICE void gw_join_values(JOIN &join)
{
    GW_UNROLL
    for (uint32_t batch = 0; batch < 32 / JOIN::BATCH; batch++) {
        gw_join_batch b = {};
        GW_UNROLL
        for (uint32_t j = 0; j < JOIN::BATCH / 4; j++) {
            gw_join_four<MENDS>(join, b, batch, j);
        }
        gw_join_mend<MENDS>(join, b, batch);
        __syncwarp();
        gw_join_store(join, batch);
        __syncwarp();
    }
}

/* The next 8192 values, 32 a thread. Returns the index of the thread's word. */
template <typename JOIN> GW_DEVICE uint32_t gw_join_begin_round(JOIN &join, uint32_t first)
{
    const uint32_t word = first / 32 + threadIdx.x;
    join.first = first;
    join.word = word;
    join.is_whole = join.chunk_len - first >= 32 * GW_THREADS;
    join.valid = gw_left_of(join.chunk_len, 32 * word, 32);
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        join.x[j] = 0;
    }
    GW_UNROLL
    for (int j = 0; j < 4; j++) {
        join.k[j] = 0;
    }
    return word;
}

/*
 * Root, look-up, places of the digits, values: 8192 at a time, 32 a thread. Rules 24 to 26: returns true, to
 * all threads, if one is broken. Values go to s.out, if `stores`. stage_base: bits 4 and 5 are 0. Begins with
 * a barrier.
 */
template <uint32_t DTYPE, bool DERIVED, typename WORDS, typename BUFFER>
GW_DEVICE bool gw_join_chunk(gw_decode_state &s, const gw_cuda_frame_state &frame, const WORDS &words,
                             const BUFFER &rank_buffer, uint32_t stage_base, uint32_t chunk_len, bool stores)
{
    typedef gw_join<DTYPE, DERIVED, WORDS> join_type;
    constexpr uint32_t ROUND = 32 * GW_THREADS;
    const uint32_t tid = threadIdx.x, lane = gw_lane();
    const uint32_t stage = stage_base + 2048 * (tid >> 5); /* 64 bytes a lane */
    join_type join(s, frame, words);
    join.entries = gw_place_of(s.entry);
    join.flags = gw_place_of(s.flags);
    /* Quarters of 16 bytes change places so that no two lanes of a store or load meet in a bank. */
    join.mine_at = stage + 64 * lane + 16 * (lane >> 1 & 3);
    join.all_at = stage + 64 * (lane >> 2) + 16 * ((lane & 3) ^ (lane >> 3 & 3));
    join.cap = frame.cap;
    join.chunk_len = chunk_len;
    join.constant = frame.constant != 0;
    join.relative = DERIVED && s.tree.window_start != 0;
    join.carried = DERIVED && frame.quantum_mode == GW_GCOMP_CARRIED;
    join.drop_offset = join.carried ? s.drop_offset : frame.drop_offset;
    join.more = join.carried ? (uint32_t)s.drop_offset : 0;
    join.stores = stores;
    join.is_plain = stores && s.out.is_plain;
    join.out = s.out.dst;
    join.bad = false;
    join.zeros = 0;
    /* More than one of 16 values has a fourth digit, as in frames that lose nothing: plane 4 is read like the
     * others. */
    const bool is_dense = 16 * s.part_len[3] > chunk_len;

    if (tid == 0) {
        s.counted[0] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t first = 0; first < chunk_len; first += ROUND) {
        const uint32_t word = gw_join_begin_round(join, first);
        if (s.tree.is_masked) {
            const gw_shared_space mask = {s.mask_place};
            gw_node_work root = gw_node_load(s, 0);
            root.run = 0;
            gw_node_ranks(join.x, s, mask, rank_buffer, root, word, join.valid != 0);
        } else {
            gw_node_ranks(join.x, s, words, rank_buffer, gw_node_load(s, 0), word, join.valid != 0);
        }
        gw_counts mine;
        if (join_type::KEEPS && join.is_whole) {
            mine = gw_join_look_up(join, true);
        } else {
            mine = gw_join_look_up(join, false);
        }
        gw_join_find(join, gw_scan_counts<DERIVED>(s, mine, first / ROUND % 2));
        if (join_type::CAN_MEND && !is_dense) {
            gw_join_values<join_type::CAN_MEND>(join);
        } else {
            gw_join_values<false>(join);
        }
    }
    /* After this barrier the sums of the last round are there. */
    bool bad = join.bad || (gw_type<DTYPE>::IS_FP16 && join.zeros != 0);
    __syncthreads();
    if (tid == 0) {
        const gw_counts announced = gw_announced<DERIVED>(s);
        const gw_counts all = s.counted[(chunk_len + ROUND - 1) / ROUND % 2];
        bad = bad || all.x != announced.x || all.y != announced.y || all.z != announced.z ||
              all.w != announced.w;
    }
    return __syncthreads_or(bad) != 0;
}

#endif
