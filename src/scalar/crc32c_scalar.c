/*
 * CRC32C, reflected polynomial 0x82f63b78, four bytes a step ("slicing").
 *
 * table[0] is the classic byte table. table[k][b] is what byte b does when k more zero bytes follow, so four
 * bytes can be looked up independently of each other.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "scalar/crc32c_table.h"

uint32_t gw_crc32c_scalar(uint32_t crc, const uint8_t *src, size_t size)
{
    crc = ~crc;
    for (; size >= 4; size -= 4, src += 4) {
        crc ^= gw_load32(src);
        crc = gw_crc32c_table[3][crc & 255] ^ gw_crc32c_table[2][crc >> 8 & 255] ^
              gw_crc32c_table[1][crc >> 16 & 255] ^ gw_crc32c_table[0][crc >> 24];
    }
    for (; size > 0; size--, src++) {
        crc = crc >> 8 ^ gw_crc32c_table[0][(crc ^ *src) & 255];
    }
    return ~crc;
}
