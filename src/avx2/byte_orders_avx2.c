/* SPDX-License-Identifier: BSD-2-Clause */
#include "avx2/byte_orders_avx2.h"

/* m is a constant 0..255, j a constant 0..7: the compiler evaluates all of this. */
#define BIT(m, j) (((uint64_t)(m) >> (j)) & 1u)
#define ONES(m)                                                                                              \
    (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3) + BIT(m, 4) + BIT(m, 5) + BIT(m, 6) + BIT(m, 7))
#define BELOW(m, j) ONES((m) & ((1u << (j)) - 1))

/* Byte j goes to where BELOW says. */
#define TAKE1(m, j) (BIT(m, j) * (j) << 8 * (BELOW(m, j) & 7))
#define TAKE(m)                                                                                              \
    (TAKE1(m, 0) | TAKE1(m, 1) | TAKE1(m, 2) | TAKE1(m, 3) | TAKE1(m, 4) | TAKE1(m, 5) | TAKE1(m, 6) |       \
     TAKE1(m, 7))
#define CLEAR(m) TAKE(255 - (m))

#define SPREAD1(m, j) (((1 - BIT(m, j)) << 7 | BELOW(m, j)) << 8 * (j))
#define SPREAD(m)                                                                                            \
    {                                                                                                        \
        SPREAD1(m, 0) | SPREAD1(m, 1) | SPREAD1(m, 2) | SPREAD1(m, 3) | SPREAD1(m, 4) | SPREAD1(m, 5) |      \
            SPREAD1(m, 6) | SPREAD1(m, 7),                                                                   \
            ONES(m) * 0x0101010101010101u                                                                    \
    }

#define ROW4(entry, m)  entry(m), entry((m) + 1), entry((m) + 2), entry((m) + 3)
#define ROW16(entry, m) ROW4(entry, m), ROW4(entry, (m) + 4), ROW4(entry, (m) + 8), ROW4(entry, (m) + 12)
#define ROW64(entry, m)                                                                                      \
    ROW16(entry, m), ROW16(entry, (m) + 16), ROW16(entry, (m) + 32), ROW16(entry, (m) + 48)
#define ALL(entry) ROW64(entry, 0), ROW64(entry, 64), ROW64(entry, 128), ROW64(entry, 192)

const gw_gather_orders gw_orders_set_avx2 = {ALL(TAKE), 0};
const gw_gather_orders gw_orders_clear_avx2 = {ALL(CLEAR), 0};
const gw_spread_order gw_orders_spread_avx2[256] = {ALL(SPREAD)};
