/*
 * Gather and spread: the bytes and the values of the set bits of a zero mask (docs/format.md section 5.3).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/join_sum.h"
#include "scalar/kernels_scalar.h"

size_t gw_gather_scalar(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (bytes != NULL) {
            out[n] = bytes[i];
        }
        n += bitmap[i / 8] >> i % 8 & 1;
    }
    return len % 32 != 0 && gw_load32(bitmap + len / 32 * 4) >> len % 32 != 0 ? SIZE_MAX : n;
}

static gw_add_fn *const adds[3] = {gw_add_fp32_scalar, gw_add_bf16_scalar, gw_add_fp16_scalar};

void gw_spread_scalar(void *dst, const void *values, const uint8_t *bitmap, size_t len,
                      const gw_joiner *joiner)
{
    uint8_t *out = (uint8_t *)dst;
    const uint8_t *next = (const uint8_t *)values;
    const int wide = joiner->dtype == GW_FP32;
    for (size_t i = 0; i < len; i++) {
        const uint32_t bit = bitmap[i / 8] >> i % 8 & 1;
        if (wide) {
            gw_store32(out + 4 * i, gw_load32(next) & (0 - bit));
            next += 4 * (size_t)bit;
        } else {
            gw_store16(out + 2 * i, (uint16_t)(gw_load16(next) & (0 - bit)));
            next += 2 * (size_t)bit;
        }
    }
    gw_join_sum(dst, 0, len, joiner, adds);
}
