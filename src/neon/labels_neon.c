/*
 * Labels before their codebook is known: counted in pairs (gcomp/label_pairs.h), then replaced by ranks from
 * four tables of 64 bytes, each of which leaves indices outside it unchanged.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: count 4.9 (6.0), 1.23 and 0.62; rank 1.8 (5.0), 0.66
 * and 0.33. The model ignores the dependency between increments of one counter, which pairs avoid.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/label_pairs.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Labels [0, len) of up to 16; the others are 0. The slop may be read. */
static inline uint8x16_t load_labels(const uint8_t *labels, size_t len)
{
    static const uint8_t place[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8x16_t x = vld1q_u8(labels);
    return len >= 16 ? x : vandq_u8(x, vcltq_u8(vld1q_u8(place), vdupq_n_u8((uint8_t)len)));
}

static uint32_t largest_of(const uint8_t *labels, size_t len)
{
    uint8x16_t largest = vdupq_n_u8(0);
    for (size_t i = 0; i < len; i += 16) {
        largest = vmaxq_u8(largest, load_labels(labels + i, len - i));
    }
    return vmaxvq_u8(largest);
}

/* Counts those of 16 labels that are marked; returns how many these are. */
static uint32_t count_few(uint32_t *count, uint8x16_t label, uint8x16_t is_marked)
{
    uint8_t labels[16], marks[16];
    uint32_t few = 0;
    vst1q_u8(labels, label);
    vst1q_u8(marks, is_marked);
    for (size_t i = 0; i < 16; i++) {
        if (marks[i] != 0) {
            count[labels[i]]++;
            few++;
        }
    }
    return few;
}

void gw_count_neon(uint32_t *count, const uint8_t *labels, size_t len)
{
    const uint32_t floor_label = gw_class_floor(largest_of(labels, len));
    const uint8x16_t class_floor = vdupq_n_u8((uint8_t)floor_label);
    gw_label_pairs table;
    uint16_t pair[GW_PAIR_BATCH];
    uint32_t others = 0;
    GW_MEMSET(&table, 0, sizeof table);
    for (size_t first = 0; first < len; first += 2 * GW_PAIR_BATCH) {
        const size_t end = len - first < 2 * GW_PAIR_BATCH ? len : first + 2 * GW_PAIR_BATCH;
        uint16_t *at = pair;
        for (size_t i = first; i < end; i += 16, at += 8) {
            const uint8x16_t label = load_labels(labels + i, end - i);
            /* 0 < label <= class_floor, as label - 1 < class_floor modulo 256 */
            const uint8x16_t is_other = vcltq_u8(vsubq_u8(label, vdupq_n_u8(1)), class_floor);
            const uint16x8_t two = vreinterpretq_u16_u8(vqsubq_u8(label, class_floor));
            /* Classes have 6 bits: the upper one starts where the lower one ends. */
            gw_store_u16x8(at, vsliq_n_u16(two, vshrq_n_u16(two, 8), 6));
            if (vmaxvq_u8(is_other) != 0) {
                others += count_few(count, label, is_other);
            }
        }
        gw_count_pairs(&table, pair, (size_t)(at - pair));
    }
    others += gw_fold_pairs(count, &table, floor_label);
    count[0] += (uint32_t)len - others;
}

static inline uint8x16x4_t load_table(const uint8_t *bytes)
{
    uint8x16x4_t table;
    table.val[0] = vld1q_u8(bytes);
    table.val[1] = vld1q_u8(bytes + 16);
    table.val[2] = vld1q_u8(bytes + 32);
    table.val[3] = vld1q_u8(bytes + 48);
    return table;
}

void gw_rank_neon(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS])
{
    const uint8x16x4_t table0 = load_table(rank), table1 = load_table(rank + 64);
    const uint8x16x4_t table2 = load_table(rank + 128), table3 = load_table(rank + 192);
    const uint8x16_t step = vdupq_n_u8(64);
    for (size_t i = 0; i < len; i += 16) {
        uint8x16_t label = vld1q_u8(labels + i);
        uint8x16_t result = vqtbl4q_u8(table0, label);
        label = vsubq_u8(label, step);
        result = vqtbx4q_u8(result, table1, label);
        label = vsubq_u8(label, step);
        result = vqtbx4q_u8(result, table2, label);
        result = vqtbx4q_u8(result, table3, vsubq_u8(label, step));
        vst1q_u8(labels + i, result);
    }
}

#else
typedef int gw_labels_neon_not_built; /* a translation unit must not be empty */
#endif
