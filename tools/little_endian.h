/*
 * Little-endian numbers in bytes of files, at any address.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LITTLE_ENDIAN_H
#define GW_LITTLE_ENDIAN_H

#include <stdint.h>

static inline uint32_t gw_cli_load16(const uint8_t *src)
{
    return (uint32_t)src[0] | (uint32_t)src[1] << 8;
}

static inline uint32_t gw_cli_load32(const uint8_t *src)
{
    return gw_cli_load16(src) | gw_cli_load16(src + 2) << 16;
}

static inline uint64_t gw_cli_load64(const uint8_t *src)
{
    return (uint64_t)gw_cli_load32(src) | (uint64_t)gw_cli_load32(src + 4) << 32;
}

static inline void gw_cli_store32(uint8_t *dst, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        dst[i] = (uint8_t)(value >> (8 * i));
    }
}

#endif
