/* SPDX-License-Identifier: BSD-2-Clause */
#include "neon/byte_orders_neon.h"

#define BIT(m, j)   ((m) >> (j)&1)
#define BELOW(m, j) /* set bits among the first j < 8 */                                                     \
    (((j) > 0 ? BIT(m, 0) : 0) + ((j) > 1 ? BIT(m, 1) : 0) + ((j) > 2 ? BIT(m, 2) : 0) +                     \
     ((j) > 3 ? BIT(m, 3) : 0) + ((j) > 4 ? BIT(m, 4) : 0) + ((j) > 5 ? BIT(m, 5) : 0) +                     \
     ((j) > 6 ? BIT(m, 6) : 0))

/* Place of set bit number n, 255 if there are fewer. */
#define IS_SET(m, j, n) (BIT(m, j) != 0 && BELOW(m, j) == (n))
#define PLACE(m, n)                                                                                          \
    (IS_SET(m, 0, n)   ? 0                                                                                   \
     : IS_SET(m, 1, n) ? 1                                                                                   \
     : IS_SET(m, 2, n) ? 2                                                                                   \
     : IS_SET(m, 3, n) ? 3                                                                                   \
     : IS_SET(m, 4, n) ? 4                                                                                   \
     : IS_SET(m, 5, n) ? 5                                                                                   \
     : IS_SET(m, 6, n) ? 6                                                                                   \
     : IS_SET(m, 7, n) ? 7                                                                                   \
                       : 255)
#define PLACES(m)                                                                                            \
    PLACE(m, 0), PLACE(m, 1), PLACE(m, 2), PLACE(m, 3), PLACE(m, 4), PLACE(m, 5), PLACE(m, 6), PLACE(m, 7)
#define PART(m)                                                                                              \
    {                                                                                                        \
        PLACES((m) ^ 255), PLACES(m)                                                                         \
    }

#define SPREAD_BYTE(m, j) (BIT(m, j) != 0 ? BELOW(m, j) : 128)
#define SPREAD(m)                                                                                            \
    {                                                                                                        \
        SPREAD_BYTE(m, 0), SPREAD_BYTE(m, 1), SPREAD_BYTE(m, 2), SPREAD_BYTE(m, 3), SPREAD_BYTE(m, 4),       \
            SPREAD_BYTE(m, 5), SPREAD_BYTE(m, 6), SPREAD_BYTE(m, 7)                                          \
    }

#define MERGE_BYTE(m, j) (BIT(m, j) != 0 ? 8 + BELOW(m, j) : (j)-BELOW(m, j))
#define MERGE(m)                                                                                             \
    {                                                                                                        \
        MERGE_BYTE(m, 0), MERGE_BYTE(m, 1), MERGE_BYTE(m, 2), MERGE_BYTE(m, 3), MERGE_BYTE(m, 4),            \
            MERGE_BYTE(m, 5), MERGE_BYTE(m, 6), MERGE_BYTE(m, 7)                                             \
    }

#define FOUR(entry, m)    entry(m), entry((m) + 1), entry((m) + 2), entry((m) + 3)
#define SIXTEEN(entry, m) FOUR(entry, m), FOUR(entry, (m) + 4), FOUR(entry, (m) + 8), FOUR(entry, (m) + 12)
#define SOME(entry, m)                                                                                       \
    SIXTEEN(entry, m), SIXTEEN(entry, (m) + 16), SIXTEEN(entry, (m) + 32), SIXTEEN(entry, (m) + 48)
#define ALL(entry)                                                                                           \
    {                                                                                                        \
        SOME(entry, 0), SOME(entry, 64), SOME(entry, 128), SOME(entry, 192)                                  \
    }

const uint8_t gw_orders_part_neon[256][16] = ALL(PART);
const uint8_t gw_orders_spread_neon[256][8] = ALL(SPREAD);
const uint8_t gw_orders_merge_neon[256][8] = ALL(MERGE);
