/*
 * Quanta of carried frames: one exponent per block, made by the encoder, turned into map bytes by both sides.
 * docs/format.md section 5.4.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_QUANTA_H
#define GW_QUANTA_H

#include "gcomp/bins.h"

enum { GW_BLOCK_LOG2_MIN = 6, GW_BLOCK_LOG2_MAX = 14, GW_QUANTA_WINDOW = 62 };

/* Quanta of consecutive blocks: exponent fields in fp32's bias, 0 = nothing is cut. */
typedef struct gw_quanta {
    const uint8_t *exponent;
    uint32_t block_log2;
    uint32_t dtype;
} gw_quanta;

/* The largest exponent field of a quantum, in fp32's bias. */
static inline uint32_t gw_quantum_max(uint32_t dtype)
{
    return gw_traits_of(dtype)->exponent_mask - 1u + gw_traits_of(dtype)->exponent_bias;
}

/* The exponent field of a quantum as a frame stores it. */
static inline uint8_t gw_quantum_stored(int32_t exponent, uint32_t dtype)
{
    const int32_t most = (int32_t)gw_quantum_max(dtype);
    return (uint8_t)(exponent < 1 ? 0 : exponent > most ? most : exponent);
}

/* Blocks of len values. */
static inline size_t gw_block_count(size_t len, uint32_t block_log2)
{
    return (size_t)gw_unit_count(len, block_log2);
}

/* The largest of the quanta. */
uint32_t gw_quanta_largest(const uint8_t *exponent, size_t blocks);

/* 1 if the quanta of a chunk of len values are possible and within the window below their largest. */
int gw_quanta_are_valid(const gw_quanta *quanta, size_t len);

/* Writes the map byte of each of len values. Returns the drop_offset that goes with them. */
int32_t gw_quanta_expand(uint8_t *map_bytes, const gw_quanta *quanta, size_t len);

#endif
