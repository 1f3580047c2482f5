/*
 * Counts labels two at a time. A processor increments about one counter a cycle, so a pair of labels is
 * counted as one number.
 *
 * Labels become classes 0..63: the 63 labels up to the largest one have a class each (almost 16 octaves of
 * explicit frames). All others have class 0: +0, whose count follows from the sum, and the few smaller
 * labels, which the caller counts one by one.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LABEL_PAIRS_H
#define GW_LABEL_PAIRS_H

#include "core/gcomp_kernels.h"

/* At most GW_PAIR_LABELS labels at once, so that 16 bits can count the pairs. Two tables are used in turn,
 * because equal pairs in a row would wait for each other's increments. */
enum { GW_CLASSES = 64, GW_PAIR_TABLES = 2, GW_PAIR_LABELS = 1 << 15, GW_PAIR_BATCH = 256 };

typedef struct gw_label_pairs {
    uint16_t count[GW_PAIR_TABLES][GW_CLASSES * GW_CLASSES]; /* index: class + GW_CLASSES * other class */
} gw_label_pairs;

/* Class c > 0 is label floor + c. */
static inline uint32_t gw_class_floor(uint32_t largest_label)
{
    return largest_label >= GW_CLASSES ? largest_label - (GW_CLASSES - 1) : 0;
}

/* pairs: a multiple of 4. */
static inline void gw_count_pairs(gw_label_pairs *table, const uint16_t *pair, size_t pairs)
{
    uint16_t *const even = table->count[0], *const odd = table->count[1];
    for (size_t i = 0; i < pairs; i += 4) {
        even[pair[i]]++;
        odd[pair[i + 1]]++;
        even[pair[i + 2]]++;
        odd[pair[i + 3]]++;
    }
}

/* Adds the counts of all classes except 0 to count. Returns their sum. */
static inline uint32_t gw_fold_pairs(uint32_t *count, const gw_label_pairs *table, uint32_t class_floor)
{
    uint16_t second[GW_CLASSES] = {0};
    uint32_t first[GW_CLASSES];
    uint32_t all = 0;
    for (size_t row = 0; row < GW_CLASSES; row++) {
        const uint16_t *const a = table->count[0] + GW_CLASSES * row, *const b =
                                                                          table->count[1] + GW_CLASSES * row;
        uint16_t sum = 0; /* at most GW_PAIR_LABELS / 2 */
        for (size_t i = 0; i < GW_CLASSES; i++) {
            const uint16_t both = (uint16_t)(a[i] + b[i]);
            second[i] = (uint16_t)(second[i] + both);
            sum = (uint16_t)(sum + both);
        }
        first[row] = sum;
    }
    for (size_t i = 1; i < GW_CLASSES && class_floor + i < GW_LABELS; i++) {
        count[class_floor + i] += first[i] + second[i];
        all += first[i] + second[i];
    }
    return all;
}

#endif
