/*
 * The plain cast that gradwire competes with: fp32 to bf16, rounded to nearest even, and back. Compiled once
 * for each instruction set (bench/CMakeLists.txt), so that the compiler's vectoriser has what gradwire's
 * kernels have. NaN is not treated: the yardstick may be a little too good.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void GW_CAST_DOWN(uint16_t *restrict dst, const float *restrict src, size_t len);
void GW_CAST_UP(float *restrict dst, const uint16_t *restrict src, size_t len);

void GW_CAST_DOWN(uint16_t *restrict dst, const float *restrict src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i], 4);
        dst[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

void GW_CAST_UP(float *restrict dst, const uint16_t *restrict src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = (uint32_t)src[i] << 16;
        memcpy(&dst[i], &bits, 4);
    }
}
