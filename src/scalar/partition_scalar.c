/*
 * Partition and merge: one inner node of the code tree, out and back (docs/format.md section 5.2).
 *
 * Both are branch-free: a value is stored to, or loaded from, both sides, and only the right side's position
 * moves with the bit; the left side's position is what remains of i. Where a side is a leaf of a single label
 * there is nothing to move, and eight values are handled in one 64-bit word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"

#define BYTES(x) ((x)*0x0101010101010101u)

/* Bit j = (byte j of x >= byte j of y), for j = 0..7. */
static inline uint32_t compare8(uint64_t x, uint64_t y)
{
    const uint64_t high = BYTES((uint64_t)0x80);
    /* Subtract the low seven bits under a borrow-proof high bit, then decide by the high bits where they
     * differ. */
    const uint64_t low_ge = (x | high) - (y & ~high);
    const uint64_t ge = ((x & ~y) | (~(x ^ y) & low_ge)) & high;
    /* Bit 8j + 7 to bit 56 + j: no two of the shifted copies meet. */
    return (uint32_t)((ge >> 7) * 0x0102040810204080u >> 56);
}

/* Byte j = bit j of x ? 255 : 0. */
static inline uint64_t spread_bits(uint32_t x)
{
    const uint64_t picked = BYTES((uint64_t)x) & 0x8040201008040201u;
    /* A byte with any bit set carries into its high bit when 127 is added (128 + 127 does not overflow). */
    return ((picked + BYTES((uint64_t)0x7f)) >> 7 & BYTES((uint64_t)1)) * 255;
}

static size_t count8(uint32_t byte)
{
    byte -= byte >> 1 & 0x55;
    byte = (byte & 0x33) + (byte >> 2 & 0x33);
    return (byte + (byte >> 4)) & 15;
}

/* The last 1 to 7 values of a node, and the padding of its run. */
static size_t partition_tail(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks, size_t at,
                             size_t len, size_t right_len, uint8_t pivot)
{
    uint32_t byte = 0;
    for (size_t i = at; i < len; i++) {
        const uint8_t rank = ranks[i];
        const uint32_t bit = rank >= pivot;
        if (right != NULL) {
            right[right_len] = rank;
        }
        if (left != NULL) {
            left[i - right_len] = rank;
        }
        right_len += bit;
        byte |= bit << (i - at);
    }
    const size_t written = at / 8;
    const size_t size = gw_run_size(len, 1);
    if (written < size) {
        GW_MEMSET(bitmap + written, 0, size - written);
        bitmap[written] = (uint8_t)byte;
    }
    return right_len;
}

GW_TEMPLATE size_t partition_sides(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                   size_t len, uint8_t pivot, int has_left, int has_right)
{
    size_t right_len = 0;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint32_t byte = compare8(gw_load64(ranks + i), BYTES((uint64_t)pivot));
        if (has_left || has_right) {
            size_t r = right_len;
            for (size_t j = 0; j < 8; j++) {
                const uint8_t rank = ranks[i + j];
                if (has_right) {
                    right[r] = rank;
                }
                if (has_left) {
                    left[i + j - r] = rank;
                }
                r += byte >> j & 1;
            }
            right_len = r;
        } else {
            right_len += count8(byte);
        }
        bitmap[i / 8] = (uint8_t)byte;
    }
    return partition_tail(has_left ? left : NULL, has_right ? right : NULL, bitmap, ranks, i, len, right_len,
                          pivot);
}

size_t gw_partition_scalar(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks, size_t len,
                           uint8_t pivot)
{
    return GW_BY_SIDES(partition_sides, left != NULL, right != NULL, left, right, bitmap, ranks, len, pivot);
}

/* Number of set bits of a word: adds neighbouring bits, pairs and nibbles, then sums the bytes by a
 * multiplication. */
static inline uint32_t count32(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/* Where a merge is: the next value, and the next label of the right child. Plain numbers, from which the
 * compiler makes one address a label. */
typedef struct merge_place {
    size_t at, r;
} merge_place;

/* Merges `count` <= 32 values; `bits` are theirs. Returns the next place. */
GW_TEMPLATE merge_place merge_some(uint8_t *out, gw_child left, gw_child right, uint32_t bits, size_t count,
                                   merge_place place, int has_left, int has_right)
{
    size_t r = place.r;
    for (size_t j = 0; j < count; j++) {
        const uint32_t bit = bits >> j & 1;
        const uint8_t from_left = has_left ? left.labels[place.at + j - r] : left.label;
        const uint8_t from_right = has_right ? right.labels[r] : right.label;
        out[place.at + j] = bit ? from_right : from_left;
        r += bit;
    }
    const merge_place next = {place.at + count, r};
    return next;
}

GW_TEMPLATE size_t merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len,
                               int has_left, int has_right)
{
    merge_place place = {0, 0};
    size_t at = 0;
    for (; at + 32 <= len; at += 32) {
        const uint32_t word = gw_load32(bitmap + at / 8);
        for (unsigned j = 0; j < 32; j += 8) {
            const uint32_t byte = word >> j & 255;
            if (has_left || has_right) {
                place.at = at + j;
                place = merge_some(out, left, right, byte, 8, place, has_left, has_right);
            } else {
                const uint64_t mask = spread_bits(byte);
                gw_store64(out + at + j,
                           (BYTES((uint64_t)left.label) & ~mask) | (BYTES((uint64_t)right.label) & mask));
            }
        }
        place.r += has_left || has_right ? 0 : count32(word);
    }
    if (at < len) {
        const uint32_t word = gw_load32(bitmap + at / 8);
        if (word >> (len - at) != 0) {
            return SIZE_MAX;
        }
        place.at = at;
        place = merge_some(out, left, right, word, len - at, place, has_left, has_right);
    }
    return place.r;
}

size_t gw_merge_scalar(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    return GW_BY_SIDES(merge_sides, left.labels != NULL, right.labels != NULL, out, left, right, bitmap, len);
}
