/*
 * Partition and merge: one inner node of the code tree, out and back (docs/format.md section 5.2).
 *
 * Both are branch-free: a value is stored to, or loaded from, both sides, and only the right side's position moves with
 * the bit; the left side's position is what remains of i.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"

size_t gw_partition_scalar(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks, size_t len,
                           uint8_t pivot)
{
    size_t right_len = 0;
    for (size_t start = 0; start < len; start += 32) {
        size_t stop = len - start < 32 ? len - start : 32;
        uint32_t word = 0;
        for (size_t j = 0; j < stop; j++) {
            uint8_t rank = ranks[start + j];
            uint32_t bit = rank >= pivot;
            right[right_len] = rank;
            left[start + j - right_len] = rank;
            right_len += bit;
            word |= bit << j;
        }
        gw_store32(bitmap + start / 8, word);
    }
    return right_len;
}

void gw_merge_scalar(uint8_t *out, const uint8_t *left, const uint8_t *right, const uint8_t *bitmap, size_t len)
{
    size_t r = 0;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        uint32_t byte = bitmap[i / 8];
        const uint8_t *l = left + i;
        for (size_t j = 0; j < 8; j++) {
            uint32_t bit = byte >> j & 1;
            uint8_t from_left = l[(ptrdiff_t)j - (ptrdiff_t)r];
            uint8_t from_right = right[r];
            out[i + j] = bit ? from_right : from_left;
            r += bit;
        }
    }
    for (; i < len; i++) {
        uint32_t bit = (uint32_t)bitmap[i / 8] >> (i & 7) & 1;
        out[i] = bit ? right[r] : left[i - r];
        r += bit;
    }
}

size_t gw_ones_scalar(const uint8_t *bitmap, size_t len)
{
    size_t ones = 0;
    for (size_t i = 0; i < len; i += 32) {
        uint32_t word = gw_load32(bitmap + i / 8);
        if (len - i < 32 && word >> (len - i) != 0) {
            return SIZE_MAX;
        }
        /* Adds neighbouring bits, pairs and nibbles, then sums the bytes by a multiplication. */
        word -= word >> 1 & 0x55555555u;
        word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
        word = (word + (word >> 4)) & 0x0f0f0f0fu;
        ones += word * 0x01010101u >> 24;
    }
    return ones;
}
