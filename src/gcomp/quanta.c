/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/quanta.h"

uint32_t gw_quanta_largest(const uint8_t *exponent, size_t blocks)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < blocks; i++) {
        largest = exponent[i] > largest ? exponent[i] : largest;
    }
    return largest;
}

int gw_quanta_are_valid(const gw_quanta *quanta, size_t len)
{
    const size_t blocks = gw_block_count(len, quanta->block_log2);
    const uint32_t largest = gw_quanta_largest(quanta->exponent, blocks);
    for (size_t i = 0; i < blocks; i++) {
        if (quanta->exponent[i] != 0 && quanta->exponent[i] + (uint32_t)GW_QUANTA_WINDOW < largest) {
            return 0;
        }
    }
    return largest <= gw_quantum_max(quanta->dtype);
}

/* A map byte counts quarter-octaves: the largest quantum of a chunk gets 255. drop_offset makes its quantum
 * exponent, floor((255 + drop_offset - 3) / 4) - M, the exponent that it stands for. */
int32_t gw_quanta_expand(uint8_t *map_bytes, const gw_quanta *quanta, size_t len)
{
    const size_t block_len = (size_t)1 << quanta->block_log2;
    const uint32_t largest = gw_quanta_largest(quanta->exponent, gw_block_count(len, quanta->block_log2));
    for (size_t i = 0, at = 0; at < len; i++, at += block_len) {
        const uint32_t exponent = quanta->exponent[i];
        const uint32_t below = largest - exponent;
        const uint32_t k = exponent == 0 || below > GW_QUANTA_WINDOW ? 0 : 255 - 4 * below;
        GW_MEMSET(map_bytes + at, (int)k, len - at < block_len ? len - at : block_len);
    }
    return 4 * (int32_t)(largest + gw_traits_of(quanta->dtype)->mantissa_bits) - 252;
}
