/*
 * Byte shuffles that depend on eight bits, one entry for each value of the eight: expand and compress by a
 * bitmap.
 *
 * Byte j of an entry says where byte j of the result comes from; 128 or more means zero.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BYTE_ORDERS_NEON_H
#define GW_BYTE_ORDERS_NEON_H

#include <stdint.h>

/* Of bytes 0..7: those at clear bits, in order, in the first half, those at set bits in the second. */
extern const uint8_t gw_orders_part_neon[256][16];
/* At set bits the next of bytes 0, 1, ..., at clear bits zero. */
extern const uint8_t gw_orders_spread_neon[256][8];
/* At clear bits the next of bytes 0..7, at set bits the next of bytes 8..15. */
extern const uint8_t gw_orders_merge_neon[256][8];

#endif
