/*
 * Byte masks to bitmaps and back. NEON has no instruction that gathers the top bits of bytes: each byte keeps
 * the bit of its position and neighbours are added, which for four registers (or four masks of one) takes
 * four additions together.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BITMAP_NEON_H
#define GW_BITMAP_NEON_H

#include "core/bytes.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Byte j: bit j % 8. */
static inline uint8x16_t gw_place_bits(void)
{
    return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
}

/* Bit 16 * j + i of the result = byte i of mask j, which are all ones or zero; as eight bytes. */
static inline uint8x8_t gw_bits_of_4(uint8x16_t mask0, uint8x16_t mask1, uint8x16_t mask2, uint8x16_t mask3)
{
    const uint8x16_t place = gw_place_bits();
    const uint8x16_t pairs01 = vpaddq_u8(vandq_u8(mask0, place), vandq_u8(mask1, place));
    const uint8x16_t pairs23 = vpaddq_u8(vandq_u8(mask2, place), vandq_u8(mask3, place));
    const uint8x16_t fours = vpaddq_u8(pairs01, pairs23);
    return vget_low_u8(vpaddq_u8(fours, fours));
}

static inline uint64_t gw_bits_of_64(const uint8x16_t mask[4])
{
    return vget_lane_u64(vreinterpret_u64_u8(gw_bits_of_4(mask[0], mask[1], mask[2], mask[3])), 0);
}

/* Set bits of each byte. */
static inline uint64_t gw_ones_of_bytes(uint64_t bits)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vreinterpret_u8_u64(vdup_n_u64(bits)))), 0);
}

/* Byte g of the result: how many bits are set in the bytes below g. The multiplication adds each byte to
 * all above it; there are at most 64, so no sum overflows its byte. */
static inline uint64_t gw_ones_before(uint64_t bits)
{
    return gw_ones_of_bytes(bits) * 0x0101010101010101u << 8;
}

static inline size_t gw_ones_of(uint64_t bits)
{
    return (size_t)(gw_ones_of_bytes(bits) * 0x0101010101010101u >> 56);
}

/* Byte i = bit i of the low 16 ? 255 : 0. */
static inline uint8x16_t gw_bytes_of_16(uint32_t bits)
{
    const uint8x16_t which = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    return vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(bits)), which), gw_place_bits());
}

#endif

#endif
