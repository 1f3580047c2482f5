/*
 * Encode, fourth step: header, runs, planes and escapes of a CODED chunk, or a RAW one, to global memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_WRITE_CUH
#define GW_CUDA_GCOMP_WRITE_CUH

#include "cuda/gcomp_partition.cuh"

/* 32 numbers of W bits, from bytes (the upper bits of each are zero), to W words. */
template <int W, typename TO>
GW_DEVICE void gw_pack32(const TO &to, uint32_t at, const uint32_t x[8], uint32_t words)
{
    uint32_t out[W + 1];
    GW_UNROLL
    for (int j = 0; j <= W; j++) {
        out[j] = 0;
    }
    GW_UNROLL
    for (int j = 0; j < 8; j++) {
        uint32_t four = (x[j] & 0x00ff00ffu) | (x[j] >> (8 - W) & 0x00ff00ffu << W);
        four = (four & 0xffffu) | (four >> (16 - 2 * W) & 0xffffu << 2 * W);
        const int bit = 4 * W * j;
        out[bit / 32] |= four << bit % 32;
        if (bit % 32 + 4 * W > 32) {
            out[bit / 32 + 1] |= four >> (32 - bit % 32);
        }
    }
    GW_UNROLL
    for (int j = 0; j < W; j++) {
        if ((uint32_t)j < words) {
            to.put(at + j, out[j]);
        }
    }
}

/* Where words go. */
struct gw_global_words {
    uint32_t *words;
    GW_DEVICE_MEMBER void put(uint32_t i, uint32_t x) const
    {
        words[i] = x;
    }
};

struct gw_shared_words {
    uint32_t place;
    GW_DEVICE_MEMBER void put(uint32_t i, uint32_t x) const
    {
        gw_shared_store32(place + 4 * i, x);
    }
};

/* Packs 32 ranks of a leaf, less its first rank, to the words of its run; x: the ranks. */
template <typename TO>
GW_DEVICE void gw_write_leaf(const TO &to, uint32_t x[8], const gw_tree_node &node, uint32_t at,
                             uint32_t valid)
{
    const uint32_t base = node.first_rank * 0x01010101u;
    GW_UNROLL
    for (int32_t j = 0; j < 8; j++) {
        /* Ranks are not below the first of their leaf, so no byte borrows from those after it; the bytes
         * after the last value may have any value. */
        const int32_t left = 8 * (int32_t)valid - 32 * j;
        x[j] = (x[j] - base) & ~__funnelshift_lc(0, ~0u, left < 0 ? 0 : (uint32_t)left);
    }
    const uint32_t words = ((valid < 32 ? valid : 32) * node.width + 31) >> 5;
    switch (node.width) {
    case 1:
        gw_pack32<1>(to, at, x, words);
        break;
    case 2:
        gw_pack32<2>(to, at, x, words);
        break;
    case 3:
        gw_pack32<3>(to, at, x, words);
        break;
    case 4:
        gw_pack32<4>(to, at, x, words);
        break;
    case 5:
        gw_pack32<5>(to, at, x, words);
        break;
    case 6:
        gw_pack32<6>(to, at, x, words);
        break;
    default:
        gw_pack32<7>(to, at, x, words);
        break;
    }
}

/* `count` numbers of `width` bits, one a lane, to words of which the bits after the last number are 0. By a
 * warp. */
template <typename TO>
GW_DEVICE void gw_write_digits(const TO &to, uint32_t at, uint32_t digit, uint32_t width, uint32_t count)
{
    const uint32_t lane = gw_lane(), words = (count * width + 31) >> 5;
    uint32_t bits[6]; /* bit b of the numbers */
    GW_UNROLL
    for (uint32_t b = 0; b < 6; b++) {
        bits[b] = __ballot_sync(GW_FULL_MASK, digit >> b & 1);
    }
    GW_NO_UNROLL
    for (uint32_t i = 0; i < words; i++) {
        const uint32_t place = 32 * i + lane, number = place / width, b = place - number * width;
        uint32_t of = 0;
        GW_UNROLL
        for (uint32_t c = 0; c < 6; c++) {
            of = b == c ? bits[c] : of;
        }
        const uint32_t word = __ballot_sync(GW_FULL_MASK, of >> number & 1);
        if (lane == 0) {
            to.put(at + i, word);
        }
    }
}

/* Number i of the header after those of the planes and escapes: values that are not zero, and right children
 * of the mask's tree, if there is a mask; right children of the labels' tree; 0 after them. */
GW_DEVICE uint32_t gw_header_count(const gw_encode_state &s, uint32_t i)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t masks = tree.is_masked ? tree.mask.inner_count : 0;
    if (i == 0 || i > masks) {
        i -= i == 0 ? 0 : masks;
        return i < tree.inner_count ? s.right_len[i] : 0;
    }
    /* The mask's inner node i - 1, in preorder. */
    uint32_t len = 0;
    GW_NO_UNROLL
    for (uint32_t n = 0; n < tree.mask.node_count; n++) {
        const gw_tree_node node = tree.mask.node[n];
        len = node.right != 0 && node.inner_index == i - 1 ? s.mask_len[node.right] : len;
    }
    return len;
}

/*
 * The run of node n of the tree of the zero mask, which is at `bitmaps`. By one warp, 32 bytes of the mask at
 * a time: those of the node move together, and every full word is written.
 */
template <typename TO>
GW_DEVICE void gw_write_mask_run(gw_encode_state &s, const TO &to, uint32_t bitmaps, uint32_t n)
{
    const gw_mask_tree &mask = s.tree.mask;
    const uint32_t lane = gw_lane(), below = (1u << lane) - 1, mask_len = s.mask_len[0];
    const gw_tree_node node = mask.node[n];
    const uint32_t width = node.width, end = gw_mask_leaf_end(mask, n);
    const uint32_t first_rank = node.first_rank;
    const uint32_t last_rank = end <= mask.inner_count ? mask.leaf_rank[end] - 1u : 255;
    const uint32_t stage = gw_place_of(s.mask_stage[threadIdx.x >> 5]);
    uint32_t word = s.mask_run[n], waiting = 0; /* bytes in the stage */
    if (node.right == 0 && width == 0) {
        return;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < mask_len || waiting != 0; at += 32) {
        uint32_t rank = 256;
        if (at + lane < mask_len) {
            rank = mask.rank_of_byte[gw_shared_load8(bitmaps + at + lane)];
        }
        const bool is_in = rank >= first_rank && rank <= last_rank;
        const uint32_t members = __ballot_sync(GW_FULL_MASK, is_in);
        if (is_in) {
            const uint32_t digit =
                node.right != 0 ? rank >= mask.node[node.right].first_rank : rank - first_rank;
            gw_shared_store8(stage + waiting + __popc(members & below), digit);
        }
        waiting += __popc(members);
        __syncwarp();
        const bool is_end = at + 32 >= mask_len;
        if (waiting < 32 && !is_end) {
            continue;
        }
        gw_write_digits(to, word, lane < waiting ? gw_shared_load8(stage + lane) : 0,
                        node.right != 0 ? 1 : width, waiting < 32 ? waiting : 32);
        word += node.right != 0 ? 1 : width;
        waiting = waiting < 32 ? 0 : waiting - 32;
        const uint32_t left = lane < waiting ? gw_shared_load8(stage + 32 + lane) : 0;
        __syncwarp();
        gw_shared_store8(stage + lane, left);
        __syncwarp();
    }
}

/* Header and runs. Ends with a barrier. */
template <bool DERIVED, typename TO>
GW_DEVICE void gw_write_runs(gw_encode_state &s, const TO &to, uint32_t rank_buffer_size, uint32_t bitmaps)
{
    const gw_cuda_tree &tree = s.tree;
    const uint32_t t = threadIdx.x, lane = gw_lane(), warp = t >> 5;
    const uint32_t planes = DERIVED ? 7 : 4;
    if (t < s.header_words) {
        uint32_t half[2];
        GW_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * t + h;
            half[h] = i < planes    ? s.plane_len[i]
                      : i == planes ? s.escape_len
                                    : gw_header_count(s, i - planes - 1);
        }
        to.put(t, half[0] | half[1] << 16);
    }

    const uint32_t mask_nodes = tree.is_masked ? tree.mask.node_count : 0;
    GW_NO_UNROLL
    for (uint32_t n = warp; n < mask_nodes; n += GW_WARPS) {
        gw_write_mask_run(s, to, bitmaps, n);
    }
    const uint32_t task_count = s.task_count[0];
    GW_NO_UNROLL
    for (uint32_t task = warp; task < task_count; task += GW_WARPS) {
        const uint32_t what = s.task[task], n = what & 255, word = (what >> 8) * 32 + lane;
        const gw_tree_node node = tree.node[n];
        const uint32_t len = s.node[n].len;
        if (32 * word >= len) {
            continue;
        }
        if (node.right != 0) {
            to.put(s.node[n].run + word, gw_shared_load32(bitmaps + 4 * (s.node[n].bitmap + word)));
            continue;
        }
        uint32_t x[8];
        gw_load_ranks(x, gw_place_of(s.arrays) + (node.depth & 1) * rank_buffer_size + gw_encode_place(s, n) +
                             32 * word);
        gw_write_leaf(to, x, node, s.node[n].run + node.width * word, len - 32 * word);
    }
    __syncthreads();
}

/*
 * 16 bytes a lane of the planes, from the string n, in which they begin, on: number `quad` of those from base
 * on, and every 32nd before `last`. All begin the same number of bits after word WORD of 16 bytes of the
 * string.
 */
template <uint32_t WORD>
GW_DEVICE void gw_copy_string(const gw_encode_state &s, uint32_t *base, uint32_t strings, uint32_t stride,
                              uint32_t n, uint32_t ahead, uint32_t quad, uint32_t last)
{
    const uint32_t start = s.string_start[n] + ahead, next = s.string_start[n + 1] + ahead;
    const uint32_t first_bit = s.string_start[0] + ahead, end_bit = s.string_start[32] + ahead;
    const uint32_t shift = (0u - start) & 31;
    const uint32_t string = strings + stride * (4 * (n & 7) + (n >> 3)) + 16;
    GW_NO_UNROLL
    for (; quad < last; quad += 32) {
        const uint32_t place = string + 4 * (uint32_t)((int32_t)(128 * quad - start) >> 5) - 4 * WORD;
        uint32_t x[8], out[4];
        gw_load_ranks(x, place);
        GW_UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            out[j] = __funnelshift_r(x[WORD + j], x[WORD + j + 1], shift);
        }
        if (128 * quad + 128 > next) { /* other strings follow */
            GW_NO_UNROLL
            for (uint32_t m = n + 1; m < 32 && s.string_start[m] + ahead < 128 * quad + 128; m++) {
                const int32_t bit = (int32_t)(128 * quad - s.string_start[m] - ahead);
                const uint32_t other =
                    strings + stride * (4 * (m & 7) + (m >> 3)) + 16 + 4 * (uint32_t)(bit >> 5);
                GW_UNROLL
                for (uint32_t j = 0; j < 4; j++) {
                    out[j] |= __funnelshift_r(gw_shared_load32(other + 4 * j),
                                              gw_shared_load32(other + 4 * j + 4), (uint32_t)bit & 31);
                }
            }
        }
        if (128 * quad >= first_bit && 128 * quad + 128 <= end_bit) {
            *(uint4 *)(void *)(base + 4 * quad) = gw_four_of(out);
        } else {
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                if (128 * quad + 32 * j >= first_bit && 128 * quad + 32 * j < end_bit) {
                    base[4 * quad + j] = out[j];
                }
            }
        }
    }
}

/* Planes of the chunk to dst from the strings of digits, which have zeros before and after them. */
GW_DEVICE void gw_copy_strings(const gw_encode_state &s, uint32_t *dst, uint32_t strings,
                               uint32_t string_words)
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    const uint32_t stride = 4 * (string_words + 4);
    const uint32_t ahead = 8 * ((uint32_t)(uintptr_t)dst & 12); /* bits of the first 16 bytes before dst */
    uint32_t *base = dst - ahead / 32;
    GW_NO_UNROLL
    for (uint32_t n = warp; n < 32; n += GW_WARPS) {
        const uint32_t start = s.string_start[n] + ahead, next = s.string_start[n + 1] + ahead;
        const uint32_t quad = ((start + (n == 0 ? 0 : 127)) >> 7) + lane, last = (next + 127) >> 7;
        switch ((0u - start) >> 5 & 3) {
        case 0:
            gw_copy_string<0>(s, base, strings, stride, n, ahead, quad, last);
            break;
        case 1:
            gw_copy_string<1>(s, base, strings, stride, n, ahead, quad, last);
            break;
        case 2:
            gw_copy_string<2>(s, base, strings, stride, n, ahead, quad, last);
            break;
        default:
            gw_copy_string<3>(s, base, strings, stride, n, ahead, quad, last);
            break;
        }
    }
}

/* The first `words` words of dst, which are at `place` in shared memory, as far from a multiple of 16 as
 * in dst, 16 bytes at a time. */
GW_DEVICE void gw_copy_words(uint32_t *dst, uint32_t place, uint32_t words)
{
    const uint32_t ahead = (uint32_t)((uintptr_t)dst >> 2) & 3;
    uint32_t *base = dst - ahead;
    GW_NO_UNROLL
    for (uint32_t i = 4 * threadIdx.x; i < ahead + words; i += 4 * GW_THREADS) {
        const uint4 x = gw_shared_load128(place - 4 * ahead + 4 * i);
        if (i >= ahead && i + 4 <= ahead + words) {
            *(uint4 *)(void *)(base + i) = x;
        } else {
            uint32_t four[4];
            gw_words_of(four, x);
            GW_UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                if (i + j >= ahead && i + j < ahead + words) {
                    base[i + j] = four[j];
                }
            }
        }
    }
}

/* Word i (0 or 1) of the first or second half of v. */
GW_DEVICE uint32_t gw_pick(const uint4 &v, bool second, uint32_t i)
{
    return i == 0 ? (second ? v.z : v.x) : second ? v.w : v.y;
}

/* ORs n <= 24 bits into the bit string at `place`, from bit `at` on. */
GW_DEVICE void gw_or_bits(uint32_t place, uint32_t at, uint32_t digits, uint32_t n)
{
    if (n != 0) {
        const uint32_t word = place + 4 * (at >> 5), shift = at & 31;
        gw_shared_or32(word, digits << shift);
        if (shift + n > 32) {
            gw_shared_or32(word + 4, digits >> (32 - shift));
        }
    }
}

/* How gw_write_planes() goes through a chunk: sizes in words of shared memory. */
template <uint32_t DTYPE, bool DERIVED> struct gw_planes {
    typedef gw_type<DTYPE> type;
    static constexpr uint32_t PLANES = DERIVED ? 7 : 4;
    static constexpr uint32_t VALUES = type::SIZE == 4 ? 16 : 32; /* of a thread */
    static constexpr uint32_t ROUND = VALUES * GW_THREADS;
    static constexpr uint32_t PLANE_WORDS = ROUND * type::W2 / 32 + 4; /* of one of the first four */
    static constexpr uint32_t REST4 = 4 * PLANE_WORDS, REST2 = REST4 + ROUND * 4 / 32 + 4,
                              REST1 = REST2 + ROUND * 2 / 32 + 4;
    static constexpr uint32_t STAGE_WORDS = DERIVED ? REST1 + ROUND / 32 + 4 : REST4;
    static_assert(4 * STAGE_WORDS + 128 + 2048 * GW_WARPS <= 2 * GW_CUDA_ENCODE_RANK_BUFFER_SIZE(12),
                  "planes and exchange fit");
    /* A value between the two steps: its field; from bit TAG on the number of its digits in planes 1 to 4 (at
     * most 4); above that the bits that remain (16-bit types: fewer than 4). Two of them in a word of 16 bits
     * each where that fits. */
    static constexpr bool PACKED = type::SIZE == 2;
    static constexpr uint32_t TAG = type::M + 1;
    static_assert(TAG + 3 + (PACKED ? 2 : 3) <= (PACKED ? 16 : 32), "a value with its tag fits");
};

/* Byte of plane p among the planes in shared memory. */
template <typename PLAN> GW_DEVICE uint32_t gw_plane_offset(uint32_t p)
{
    return 4 * (p < 4 ? PLAN::PLANE_WORDS * p : p == 4 ? PLAN::REST4 : p == 5 ? PLAN::REST2 : PLAN::REST1);
}

/* Half of a word: the upper one for odd p. */
GW_DEVICE uint32_t gw_half_of(uint32_t x, uint32_t p)
{
    return (p & 1) != 0 ? x >> 16 : x & 0xffff;
}

/* Quad j of four values of a thread to where 64 bytes of them wait: 16-bit types two in a word, in `half`
 * until there are eight. */
template <uint32_t DTYPE>
GW_DEVICE void gw_stage_quad(uint32_t waiting, uint32_t j, const uint32_t x[4], uint32_t half[2])
{
    if (DTYPE == GW_FP32) {
        gw_shared_store128(waiting ^ 16 * j, gw_four_of(x));
    } else if ((j & 1) == 0) {
        half[0] = x[0] | x[1] << 16;
        half[1] = x[2] | x[3] << 16;
    } else {
        gw_shared_store128(waiting ^ 16 * (j / 2),
                           make_uint4(half[0], half[1], x[0] | x[1] << 16, x[2] | x[3] << 16));
    }
}

/* Rounds the thread's values, tags them with the number of their digits and leaves them where they were
 * staged (`waiting`). count: digits in planes 1 | 2 << 16, 3 | 4, R4 | R2, R1 | escapes. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_planes_tag(const gw_encode_state &s, const gw_cuda_rounder &r, uint32_t exchange,
                             uint64_t first, uint32_t valid, uint32_t count[4])
{
    typedef gw_planes<DTYPE, DERIVED> plan;
    constexpr uint32_t M = gw_type<DTYPE>::M, SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t waiting = gw_exchange_mine(exchange, gw_lane());
    uint32_t even = 0, odd = 0, sum = 0, half[2] = {0, 0};
    gw_round_word<DTYPE, DERIVED, plan::VALUES>(
        s, r, exchange, first, valid,
        [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *flags) {
            uint32_t all[4];
            GW_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t field = bits[i] >> (8 * SIZE - 1) << M | (bits[i] & ((1u << M) - 1));
                const uint32_t whole = __popc(flags[i] & 0x1111);
                const uint32_t rest = (flags[i] >> 14 & 4) | (flags[i] >> 19 & 2) | (flags[i] >> 24 & 1);
                all[i] = field | whole << plan::TAG | rest << (plan::TAG + 3);
            }
            gw_stage_quad<DTYPE>(waiting, quad, all, half);
            sum += flags[0] + flags[1] + flags[2] + flags[3];
            if ((quad & 1) != 0) {
                even += sum & 0x0f0f0f0f;
                odd += sum >> 4 & 0x0f0f0f0f;
                sum = 0;
            }
        });
    gw_counts_of_flags(count, even, odd);
}

/* Digits of the threads before this one, and of all (total), as gw_planes_tag() counts them. One barrier. */
template <bool DERIVED>
GW_DEVICE void gw_planes_scan(gw_encode_state &s, const uint32_t mine[4], uint32_t before[4],
                              uint32_t total[4])
{
    const uint32_t lane = gw_lane(), warp = threadIdx.x >> 5;
    uint32_t upto[4];
    GW_UNROLL
    for (uint32_t c = 0; c < (DERIVED ? 4 : 2); c++) {
        upto[c] = gw_warp_scan(mine[c]);
    }
    if (lane == 31) {
        s.warp_sum[warp] = make_uint4(upto[0], upto[1], DERIVED ? upto[2] : 0, DERIVED ? upto[3] : 0);
    }
    __syncthreads();
    GW_UNROLL
    for (uint32_t c = 0; c < 4; c++) {
        before[c] = c < 2 || DERIVED ? upto[c] - mine[c] : 0;
        total[c] = 0;
    }
    GW_UNROLL
    for (uint32_t v = 0; v < GW_WARPS; v++) {
        uint32_t part[4];
        gw_words_of(part, s.warp_sum[v]);
        GW_UNROLL
        for (uint32_t c = 0; c < 4; c++) {
            before[c] += v < warp ? part[c] : 0;
            total[c] += part[c];
        }
    }
}

/* ORs the digits that four tagged values have in plane P into it, from bit *position on. */
template <uint32_t DTYPE, bool DERIVED, uint32_t P>
GW_DEVICE void gw_planes_put(uint32_t planes, const uint32_t q[4], uint32_t *position)
{
    typedef gw_planes<DTYPE, DERIVED> plan;
    typedef gw_type<DTYPE> type;
    constexpr uint32_t M = type::M, W1 = type::W1, W2 = type::W2, TAG = plan::TAG;
    constexpr uint32_t width = P == 0 ? W1 : P < 4 ? W2 : 4u >> ((P - 4) & 3);
    uint32_t digits = 0, n = 0;
    GW_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t digit;
        bool has;
        if (P < 4) {
            constexpr uint32_t TOP = M + 1 - W1;
            digit = q[i] >> ((P == 0 ? TOP : TOP - P * W2) & 31) & ((1u << width) - 1);
            has = (q[i] >> TAG & 7) > P;
        } else {
            const uint32_t whole = q[i] >> TAG & 7, rest = q[i] >> (TAG + 3);
            /* Bits of the field up to this digit's end: those of the planes before it, and its own. */
            const uint32_t above = (whole == 0 ? 0 : W1 + (whole - 1) * W2) + (P == 4   ? 4
                                                                               : P == 5 ? (rest & 4) + 2
                                                                                        : rest);
            has = (rest & width) != 0;
            digit = q[i] >> ((M + 1 - above) & 31) & ((1u << width) - 1);
        }
        digits |= has ? digit << n : 0;
        n += has ? width : 0;
    }
    gw_or_bits(planes + gw_plane_offset<plan>(P), *position, digits, n);
    *position += n;
}

/* Digits of the thread's tagged values into the planes; position: their first bit in each plane. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_planes_put_all(uint32_t planes, uint32_t waiting, uint32_t position[])
{
    typedef gw_planes<DTYPE, DERIVED> plan;
    GW_NO_UNROLL
    for (uint32_t quad = 0; quad < plan::VALUES / 4; quad++) {
        uint32_t q[4];
        const uint4 v = gw_staged(waiting, plan::PACKED ? quad / 2 : quad);
        GW_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t low =
                plan::PACKED ? gw_pick(v, (quad & 1) != 0, i / 2) : gw_pick(v, i >= 2, i & 1);
            q[i] = plan::PACKED ? low >> 16 * (i & 1) & 0xffff : low;
        }
        gw_planes_put<DTYPE, DERIVED, 0>(planes, q, &position[0]);
        gw_planes_put<DTYPE, DERIVED, 1>(planes, q, &position[1]);
        gw_planes_put<DTYPE, DERIVED, 2>(planes, q, &position[2]);
        gw_planes_put<DTYPE, DERIVED, 3>(planes, q, &position[3]);
        if constexpr (DERIVED) {
            gw_planes_put<DTYPE, DERIVED, 4>(planes, q, &position[4]);
            gw_planes_put<DTYPE, DERIVED, 5>(planes, q, &position[5]);
            gw_planes_put<DTYPE, DERIVED, 6>(planes, q, &position[6]);
        }
    }
}

/* Full words of the planes to dst; after the last values (is_end) also the word that is not full, which
 * otherwise stays in s.carry. total: digits of the round. The caller's next barrier makes s.carry and s.done
 * visible. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_planes_store(gw_encode_state &s, uint32_t planes, const uint32_t total[4], bool is_end,
                               uint32_t *dst)
{
    typedef gw_planes<DTYPE, DERIVED> plan;
    const uint32_t tid = threadIdx.x;
    uint32_t kept = 0;
    GW_UNROLL
    for (uint32_t p = 0; p < plan::PLANES; p++) {
        const uint32_t width = gw_plane_width<DTYPE>(p);
        const uint32_t place = planes + gw_plane_offset<plan>(p);
        const uint32_t start = width * gw_half_of(s.done[p / 2], p);
        const uint32_t bits = (start & 31) + width * gw_half_of(total[p / 2], p);
        const uint32_t words = is_end ? (bits + 31) >> 5 : bits >> 5;
        uint32_t *to = dst + s.plane_word[p] + (start >> 5);
        GW_NO_UNROLL
        for (uint32_t i = tid; i < words; i += GW_THREADS) {
            to[i] = gw_shared_load32(place + 4 * i) | (i == 0 ? s.carry[p] : 0);
        }
        if (tid == p && !is_end) {
            kept = gw_shared_load32(place + 4 * words) | (words == 0 ? s.carry[p] : 0);
        }
    }
    __syncthreads();
    if (tid < plan::PLANES) {
        s.carry[tid] = kept;
    }
    if (tid == 0) {
        GW_UNROLL
        for (uint32_t c = 0; c < 4; c++) {
            s.done[c] += total[c];
        }
    }
}

/*
 * Planes of the chunk to dst: values are rounded again, 4096 (fp32) or 8192 at a time. Digits are ORed
 * together in shared memory, where the rank buffers were; the last word of a plane is kept for the next
 * values. Begins and ends with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_planes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                               uint32_t chunk_len, uint32_t *dst)
{
    typedef gw_planes<DTYPE, DERIVED> plan;
    const uint32_t tid = threadIdx.x;
    const uint32_t planes = gw_place_of(s.arrays);
    const uint32_t exchange = planes + ((4 * plan::STAGE_WORDS + 127) & ~127u) + 2048 * (tid >> 5);
    const uint32_t waiting = gw_exchange_mine(exchange, gw_lane());
    __syncthreads();
    if (tid < 8) {
        s.carry[tid] = 0;
        s.done[tid & 3] = 0;
    }
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += plan::ROUND) {
        GW_NO_UNROLL
        for (uint32_t i = tid; i < plan::STAGE_WORDS; i += GW_THREADS) {
            gw_shared_store32(planes + 4 * i, 0);
        }
        __syncthreads();
        const uint32_t mine_at = at + plan::VALUES * tid; /* the first value of this thread */
        uint32_t mine[4], before[4], total[4];
        gw_planes_tag<DTYPE, DERIVED>(s, r, exchange, first + mine_at,
                                      gw_left_of(chunk_len, mine_at, plan::VALUES), mine);
        gw_planes_scan<DERIVED>(s, mine, before, total);
        /* Bits of every plane before this thread's; the stage begins with the word that the values before
         * have begun. */
        uint32_t position[plan::PLANES];
        GW_UNROLL
        for (uint32_t p = 0; p < plan::PLANES; p++) {
            const uint32_t width = gw_plane_width<DTYPE>(p);
            position[p] = (width * gw_half_of(s.done[p / 2], p) & 31) + width * gw_half_of(before[p / 2], p);
        }
        gw_planes_put_all<DTYPE, DERIVED>(planes, waiting, position);
        __syncthreads();
        gw_planes_store<DTYPE, DERIVED>(s, planes, total, at + plan::ROUND >= chunk_len, dst);
    }
    __syncthreads();
}

/*
 * Escapes of the chunk to dst. They are few: their places are listed where the rank buffers were, and then
 * rounded one by one, again. Begins with a barrier.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_escapes(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first,
                                uint32_t chunk_len, uint32_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t t = gw_thread_now(), words = (chunk_len + 31) >> 5, total = s.escape_len;
    if (total == 0) {
        return;
    }
    const uint32_t list = gw_place_of(s.arrays);
    const uint32_t share = (words + GW_THREADS - 1) / GW_THREADS; /* words of a thread */
    const uint32_t begin = share * t, end = begin + share < words ? begin + share : words;
    uint32_t count = 0, all;
    GW_NO_UNROLL
    for (uint32_t w = begin; w < end; w++) {
        count += __popc(s.escape_mask[w]);
    }
    uint32_t at = list + 2 * gw_block_scan(count, s.sums, &all);
    if (count != 0) {
        GW_NO_UNROLL
        for (uint32_t w = begin; w < end; w++) {
            uint32_t mask = s.escape_mask[w];
            GW_NO_UNROLL
            while (mask != 0) {
                gw_shared_store16(at, 32 * w + __ffs(mask) - 1);
                mask &= mask - 1;
                at += 2;
            }
        }
    }
    __syncthreads();
    uint8_t *to = (uint8_t *)(dst + s.escape_word);
    GW_NO_UNROLL
    for (uint32_t i = t; i < total; i += GW_THREADS) {
        const uint64_t index = first + gw_shared_load16(list + 2 * i);
        gw_element_store(to, DTYPE, i, gw_round_at<DTYPE, DERIVED>(r, index, s.tree.window_start).bits);
    }
    if (SIZE == 2 && t == 0 && (total & 1) != 0) {
        gw_element_store(to, DTYPE, total, 0);
    }
}

/* The chunk as RAW to dst, which is 16-byte aligned: rounded values and padding. Begins and ends with a
 * barrier. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE void gw_write_raw(gw_encode_state &s, const gw_cuda_rounder &r, uint64_t first, uint32_t chunk_len,
                            uint8_t *dst)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE, BATCH = 64 / SIZE;
    const uint32_t tid = threadIdx.x, lane = gw_lane(), warp = tid >> 5;
    const uint32_t stage = gw_place_of(s.arrays) + 2048 * warp, stage_out = stage + 2048 * GW_WARPS;
    const uint32_t mine = gw_exchange_mine(stage_out, lane), all = gw_exchange_all(stage_out, lane);
    const uint32_t raw_size = (chunk_len * SIZE + 15) & ~15u;
    __syncthreads();
    GW_NO_UNROLL
    for (uint32_t at = 0; at < chunk_len; at += GW_ROUND_LEN) {
        const uint32_t word = at / 32 + tid;
        const uint32_t valid = gw_left_of(chunk_len, 32 * word, 32);
        uint32_t half[2] = {0, 0};
        gw_round_word<DTYPE, DERIVED, 32>(
            s, r, stage, first + 32 * (uint64_t)word, valid,
            [&](uint32_t quad, const uint32_t *bits, const uint32_t *, const uint32_t *) {
                const uint32_t j = quad % (BATCH / 4);
                gw_stage_quad<DTYPE>(mine, j, bits, half);
                if (j == BATCH / 4 - 1) {
                    __syncwarp();
                    GW_UNROLL
                    for (uint32_t i = 0; i < 4; i++) {
                        const uint32_t owner = 8 * i + (lane >> 2);
                        const uint32_t byte =
                            SIZE * (at + 1024 * warp + 32 * owner + BATCH * (quad / (BATCH / 4))) +
                            16 * (lane & 3);
                        if (byte < raw_size) {
                            *(uint4 *)(void *)(dst + byte) = gw_shared_load128(all + 512 * i);
                        }
                    }
                    __syncwarp();
                }
            });
    }
    __syncthreads();
}

#endif
