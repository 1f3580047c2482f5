/*
 * Partition and merge: an inner node of the code tree, out and back (docs/format.md section 5.2). A step
 * takes 64 values: their 64 bits, and how many are set before each byte of them, are computed together, so
 * that no group of eight depends on the one before it. A byte of the bitmap selects the shuffle of a group.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: partition with both sides 1.8 (9.5), 0.46 and 0.23;
 * merge of two arrays 1.5 (10.4), 0.38 and 0.19.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/bitmap_neon.h"
#include "neon/byte_orders_neon.h"
#include "neon/kernels_neon.h"

#if defined(GW_NEON)

/* ---- partition ----------------------------------------------------------------------------------------- */

/* Moves 64 values, or the first groups of them, to their sides. */
GW_TEMPLATE void part_groups(uint8_t *left, uint8_t *right, const uint8x16_t values[4], uint64_t bits,
                             unsigned group_count, int has_left, int has_right)
{
    const uint64_t before = gw_ones_before(bits);
    for (unsigned g = 0; g < group_count; g++) {
        const uint8_t *order = gw_orders_part_neon[bits >> 8 * g & 255];
        const size_t to_right = (size_t)(before >> 8 * g & 255);
        const size_t to_left = 8 * g - to_right;
        const uint8x16_t group = g % 2 == 0 ? values[g / 2] : vextq_u8(values[g / 2], values[g / 2], 8);
        if (has_left && has_right) {
            const uint8x16_t both = vqtbl1q_u8(group, vld1q_u8(order));
            vst1_u8(left + to_left, vget_low_u8(both));
            vst1_u8(right + to_right, vget_high_u8(both));
        } else if (has_left) {
            vst1_u8(left + to_left, vqtbl1_u8(group, vld1_u8(order)));
        } else {
            vst1_u8(right + to_right, vqtbl1_u8(group, vld1_u8(order + 8)));
        }
    }
}

GW_TEMPLATE size_t partition_sides(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                   size_t len, uint8_t pivot, int has_left, int has_right)
{
    const uint8x16_t bound = vdupq_n_u8(pivot);
    size_t r = 0;
    for (size_t i = 0; i < len; i += 64) {
        uint8x16_t values[4], set[4];
        for (unsigned j = 0; j < 4; j++) {
            values[j] = vld1q_u8(ranks + i + 16 * j); /* the slop allows it */
            set[j] = vcgeq_u8(values[j], bound);
        }
        uint64_t bits = gw_bits_of_64(set);
        const size_t count = len - i;
        uint8_t *const to_left = has_left ? left + (i - r) : NULL;
        uint8_t *const to_right = has_right ? right + r : NULL;
        if (count >= 64) {
            gw_store64(bitmap + i / 8, bits);
            if (has_left || has_right) {
                part_groups(to_left, to_right, values, bits, 8, has_left, has_right);
            }
        } else {
            bits &= ((uint64_t)1 << count) - 1;
            gw_store32(bitmap + i / 8, (uint32_t)bits);
            if (count > 32) {
                gw_store32(bitmap + i / 8 + 4, (uint32_t)(bits >> 32));
            }
            if (has_left || has_right) {
                part_groups(to_left, to_right, values, bits, (unsigned)(count + 7) / 8, has_left, has_right);
            }
        }
        r += gw_ones_of(bits);
    }
    return r;
}

size_t gw_partition_neon(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks, size_t len,
                         uint8_t pivot)
{
    return GW_BY_SIDES(partition_sides, left != NULL, right != NULL, left, right, bitmap, ranks, len, pivot);
}

/* ---- merge --------------------------------------------------------------------------------------------- */

/* Merges 64 values, or the first groups of them. */
GW_TEMPLATE void merge_groups(uint8_t *out, gw_child left, gw_child right, uint64_t bits,
                              unsigned group_count, int has_left, int has_right)
{
    const uint64_t before = gw_ones_before(bits);
    for (unsigned g = 0; g < group_count; g++) {
        const size_t from_right = (size_t)(before >> 8 * g & 255);
        const size_t from_left = 8 * g - from_right;
        const uint8x8_t next_left = has_left ? vld1_u8(left.labels + from_left) : vdup_n_u8(left.label);
        const uint8x8_t next_right = has_right ? vld1_u8(right.labels + from_right) : vdup_n_u8(right.label);
        const uint8x8_t order = vld1_u8(gw_orders_merge_neon[bits >> 8 * g & 255]);
        vst1_u8(out + 8 * g, vqtbl1_u8(vcombine_u8(next_left, next_right), order));
    }
}

/* The same where both children are single labels: 64 values, a select by the bits. */
static inline void merge_labels(uint8_t *out, uint8_t left, uint8_t right, uint64_t bits)
{
    for (unsigned j = 0; j < 4; j++) {
        vst1q_u8(out + 16 * j,
                 vbslq_u8(gw_bytes_of_16((uint32_t)(bits >> 16 * j)), vdupq_n_u8(right), vdupq_n_u8(left)));
    }
}

GW_TEMPLATE size_t merge_sides(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len,
                               int has_left, int has_right)
{
    size_t r = 0;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        const uint64_t bits = gw_load64(bitmap + i / 8);
        if (has_left || has_right) {
            merge_groups(out + i, gw_child_after(left, i - r), gw_child_after(right, r), bits, 8, has_left,
                         has_right);
        } else {
            merge_labels(out + i, left.label, right.label, bits);
        }
        r += gw_ones_of(bits);
    }
    if (i < len) {
        const size_t count = len - i;
        uint64_t bits = gw_load32(bitmap + i / 8);
        bits |= count > 32 ? (uint64_t)gw_load32(bitmap + i / 8 + 4) << 32 : 0;
        if (bits >> count != 0) {
            return SIZE_MAX;
        }
        merge_groups(out + i, gw_child_after(left, i - r), gw_child_after(right, r), bits,
                     (unsigned)(count + 7) / 8, has_left, has_right);
        r += gw_ones_of(bits);
    }
    return r;
}

size_t gw_merge_neon(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap, size_t len)
{
    return GW_BY_SIDES(merge_sides, left.labels != NULL, right.labels != NULL, out, left, right, bitmap, len);
}

#else
typedef int gw_partition_neon_not_built; /* a translation unit must not be empty */
#endif
