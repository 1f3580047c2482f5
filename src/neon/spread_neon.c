/*
 * Gather and spread: the bytes and the values of the set bits of a zero mask (docs/format.md section 5.3). A
 * byte of the mask selects the shuffle of its eight bytes, half a byte that of four fp32 values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/join_sum.h"
#include "neon/bitmap_neon.h"
#include "neon/byte_orders_neon.h"
#include "neon/kernels_neon.h"

#if defined(GW_NEON)

/* 64 bytes. */
static inline void gather64(uint8_t *out, const uint8_t *bytes, uint64_t bits)
{
    const uint64_t before = gw_ones_before(bits);
    for (unsigned g = 0; g < 64; g += 8) {
        const uint8x8_t order = vld1_u8(gw_orders_part_neon[bits >> g & 255] + 8);
        const uint8x8_t x = vld1_u8(bytes + g);
        vst1_u8(out + (before >> g & 255), vqtbl1_u8(vcombine_u8(x, x), order));
    }
}

size_t gw_gather_neon(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len)
{
    size_t n = 0, i = 0;
    for (; i + 64 <= len; i += 64) {
        const uint64_t bits = gw_load64(bitmap + i / 8);
        if (bytes != NULL) {
            gather64(out + n, bytes + i, bits);
        }
        n += gw_ones_of(bits);
    }
    for (; i < len; i++) {
        if (bytes != NULL) {
            out[n] = bytes[i];
        }
        n += bitmap[i / 8] >> i % 8 & 1;
    }
    return len % 32 != 0 && gw_load32(bitmap + len / 32 * 4) >> len % 32 != 0 ? SIZE_MAX : n;
}

/* The bytes of four values. Zero is 128, which saturates and so stays outside. */
static inline uint8x16_t order_of_4(unsigned bits)
{
    const uint8_t four[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const uint8_t within[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const uint8x8_t order = vld1_u8(gw_orders_spread_neon[bits]);
    const uint8x16_t each = vqtbl1q_u8(vcombine_u8(order, order), vld1q_u8(four));
    const uint8x16_t twice = vqaddq_u8(each, each);
    return vqaddq_u8(vqaddq_u8(twice, twice), vld1q_u8(within));
}

/* The same for eight values of 16 bits. */
static inline uint8x16_t order_of_8(unsigned bits)
{
    const uint8x8_t each = vld1_u8(gw_orders_spread_neon[bits]);
    const uint8x8_t order = vqadd_u8(each, each);
    return vcombine_u8(vzip1_u8(order, vorr_u8(order, vdup_n_u8(1))),
                       vzip2_u8(order, vorr_u8(order, vdup_n_u8(1))));
}

static gw_add_fn *const adds[3] = {gw_add_fp32_neon, gw_add_bf16_neon, gw_add_fp16_neon};

GW_TEMPLATE void spread_range(uint8_t *dst, const uint8_t *next, const uint8_t *bitmap, size_t len,
                              unsigned size)
{
    const unsigned count = 16 / size; /* values of a register */
    for (size_t i = 0; i < len; i += count) {
        const unsigned bits = size == 4 ? bitmap[i / 8] >> i % 8 & 15u : bitmap[i / 8];
        const uint8x16_t out = vqtbl1q_u8(vld1q_u8(next), size == 4 ? order_of_4(bits) : order_of_8(bits));
        next += size * gw_ones_of(bits);
        if (len - i >= count) {
            vst1q_u8(dst + size * i, out);
        } else {
            uint8_t last[16];
            vst1q_u8(last, out);
            GW_MEMCPY(dst + size * i, last, size * (len - i));
        }
    }
}

void gw_spread_neon(void *dst, const void *values, const uint8_t *bitmap, size_t len, const gw_joiner *joiner)
{
    if (joiner->dtype == GW_FP32) {
        spread_range((uint8_t *)dst, (const uint8_t *)values, bitmap, len, 4);
    } else {
        spread_range((uint8_t *)dst, (const uint8_t *)values, bitmap, len, 2);
    }
    gw_join_sum(dst, 0, len, joiner, adds);
}

#else
typedef int gw_spread_neon_not_built; /* a translation unit must not be empty */
#endif
