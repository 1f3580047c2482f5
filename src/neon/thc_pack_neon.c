/*
 * Stage pack: 64 indices at a time. A shift with insertion keeps the low bits of its destination and drops
 * what it shifts out, so no masks are needed.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: 4 bits 0.24 (0.50), 0.06 and 0.03.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

static inline void pack4(uint8_t *dst, const uint8_t *v)
{
    vst1q_u8(dst, vsliq_n_u8(vld1q_u8(v), vld1q_u8(v + 32), 4));
    vst1q_u8(dst + 16, vsliq_n_u8(vld1q_u8(v + 16), vld1q_u8(v + 48), 4));
}

static inline void pack2(uint8_t *dst, const uint8_t *v)
{
    uint8x16_t x = vsliq_n_u8(vld1q_u8(v), vld1q_u8(v + 16), 2);
    x = vsliq_n_u8(x, vld1q_u8(v + 32), 4);
    vst1q_u8(dst, vsliq_n_u8(x, vld1q_u8(v + 48), 6));
}

/* Bit 0 of each: byte j gets values j, j + 8, ... A register holds two of these, an even and an odd one. */
static inline void pack1(uint8_t *dst, uint8x16_t v0, uint8x16_t v1, uint8x16_t v2, uint8x16_t v3)
{
    uint8x16_t x = vsliq_n_u8(v0, v1, 2); /* bits 0 and 2 of the evens; bit 1 is made of the odds below */
    x = vandq_u8(x, vdupq_n_u8(5));
    uint8x16_t y = vandq_u8(vsliq_n_u8(v2, v3, 2), vdupq_n_u8(5));
    x = vorrq_u8(x, vshlq_n_u8(y, 4));
    vst1_u8(dst, vorr_u8(vget_low_u8(x), vshl_n_u8(vget_high_u8(x), 1)));
}

void gw_thc_pack_neon(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits)
{
    for (size_t i = 0; i + 64 <= len; i += 64, dst += 8 * bits) {
        const uint8_t *v = index + i;
        if (bits == 4) {
            pack4(dst, v);
        } else if (bits == 1) {
            pack1(dst, vld1q_u8(v), vld1q_u8(v + 16), vld1q_u8(v + 32), vld1q_u8(v + 48));
        } else {
            pack2(dst, v);
        }
        if (bits == 3) {
            pack1(dst + 16, vshrq_n_u8(vld1q_u8(v), 2), vshrq_n_u8(vld1q_u8(v + 16), 2),
                  vshrq_n_u8(vld1q_u8(v + 32), 2), vshrq_n_u8(vld1q_u8(v + 48), 2));
        }
    }
}

#else
typedef int gw_thc_pack_neon_not_built; /* a translation unit must not be empty */
#endif
