/*
 * FNV-1a, 64 bits: detects accidental differences, not deliberate ones.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FNV_H
#define GW_FNV_H

#include <stddef.h>
#include <stdint.h>

#define GW_FNV_OFFSET 0xcbf29ce484222325u
#define GW_FNV_PRIME  0x100000001b3u

/* Over bytes, continuing from hash. */
static inline uint64_t gw_fnv(uint64_t hash, const uint8_t *src, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ src[i]) * GW_FNV_PRIME;
    }
    return hash;
}

/* Over the four little-endian bytes of value. */
static inline uint64_t gw_fnv_u32(uint64_t hash, uint32_t value)
{
    for (unsigned i = 0; i < 32; i += 8) {
        hash = (hash ^ (value >> i & 0xffu)) * GW_FNV_PRIME;
    }
    return hash;
}

/* Over the eight little-endian bytes of value. */
static inline uint64_t gw_fnv_u64(uint64_t hash, uint64_t value)
{
    return gw_fnv_u32(gw_fnv_u32(hash, (uint32_t)value), (uint32_t)(value >> 32));
}

#endif
