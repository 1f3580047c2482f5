/*
 * Ranks of a node from those of its children (inner node) or from its run (leaf), 32 a thread.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_MERGE_CUH
#define GW_CUDA_GCOMP_MERGE_CUH

#include "cuda/gcomp_decode_state.cuh"

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
template <typename BUFFER>
GW_DEVICE void gw_merge32(uint32_t out[8], const BUFFER &rank_buffer, uint32_t selectors, uint32_t left,
                          uint32_t right, uint32_t bits)
{
    uint32_t l = rank_buffer.place(left), r = rank_buffer.place(right);
    const uint32_t both = l + r;
    GW_UNROLL
    for (int j = 0; j < 4; j++) {
        const uint2 s = gw_shared_load64(gw_byte_place<8>(selectors, bits, j));
        const uint32_t lw = l & ~3u, rw = r & ~3u;
        const uint32_t l0 = rank_buffer.load32_from(lw), l1 = rank_buffer.load32_from(lw + 4),
                       l2 = rank_buffer.load32_from(lw + 8);
        const uint32_t r0 = rank_buffer.load32_from(rw), r1 = rank_buffer.load32_from(rw + 4),
                       r2 = rank_buffer.load32_from(rw + 8);
        const uint32_t la = __funnelshift_r(l0, l1, l << 3), lb = __funnelshift_r(l1, l2, l << 3);
        const uint32_t ra = __funnelshift_r(r0, r1, r << 3), rb = __funnelshift_r(r1, r2, r << 3);
        out[2 * j] = gw_permute(la, ra, s.x);
        /* The second four start after what the first took. */
        out[2 * j + 1] = gw_permute(__funnelshift_rc(la, lb, s.x >> 16),
                                    __funnelshift_rc(ra, rb, gw_byte_of(s.y, 2)), s.y);
        r += s.y >> 24;
        l = both + 8 * (j + 1) - r;
    }
}

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

/* 32 numbers of width k from k words; what comes after the end of a run (only in the last words of a node)
 * has any value: loads of shared memory stay inside, others are checked. */
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

GW_DEVICE gw_node_work gw_node_load(const gw_decode_state &s, uint32_t n)
{
    const uint32_t place = gw_place_of(s.node) + (uint32_t)sizeof(gw_node_work) * n;
    const uint4 a = gw_shared_load128(place), b = gw_shared_load128(place + 16);
    const gw_node_work node = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    return node;
}

/* x = ranks 32 word .. 32 word + 31 of a node, if `active`. All lanes of the warp call it for consecutive
 * words of one node, the first of them a multiple of 32. */
template <typename WORDS, typename BUFFER>
GW_DEVICE void gw_node_ranks(uint32_t x[8], const gw_decode_state &s, const WORDS &words,
                             const BUFFER &rank_buffer, const gw_node_work &node, uint32_t word, bool active)
{
    if (node.kind == GW_KIND_INNER) {
        const uint32_t bits = active ? words.load32(node.run + 4 * word) : 0;
        const uint32_t count = __popc(bits);
        const uint32_t in_warp = gw_warp_scan(count) - count;
        const uint32_t ones = s.task_ones[node.first_task + (word >> 5)] + in_warp;
        if (active) {
            gw_merge32(x, rank_buffer, gw_place_of(s.selector), node.left + 32 * word - ones,
                       node.right + ones, bits);
        }
    } else if (active) {
        gw_unpack_any(x, words, node.run, node.kind & 15, word, (node.kind >> 8) * 0x01010101u);
    }
}

#endif
