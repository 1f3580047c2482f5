/*
 * Byte shuffles that depend on eight bits, one entry for each value of the eight: how a compact run of bytes and the places
 * that a bitmap marks get together on a machine without expand and compress instructions.
 *
 * Byte j of an entry says where byte j of the result comes from, 128 or more meaning zero. An entry is loaded as 16 bytes;
 * the upper half of the result is worthless, and one entry of padding makes the last load legal.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_AVX2_BYTE_ORDERS_AVX2_H
#define GW_AVX2_BYTE_ORDERS_AVX2_H

#include <stdint.h>

typedef uint64_t gw_byte_orders[256 + 1];

extern const gw_byte_orders gw_orders_set_avx2;   /* the bytes at set bits, in order */
extern const gw_byte_orders gw_orders_clear_avx2; /* the bytes at clear bits, in order */
extern const gw_byte_orders gw_orders_spread_avx2; /* at set bits the next byte, at clear bits zero */
extern const gw_byte_orders gw_orders_merge_avx2; /* at clear bits the next of bytes 0..7, at set bits the next of 8..15 */

#endif
