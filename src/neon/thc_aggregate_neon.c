/*
 * Stage aggregate: 16 indices through a table of 16 bytes, added to lanes of one, two or four bytes; sums
 * and maximum of lanes.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: 4-bit indices into u8 lanes 0.46 (15.0), 0.11 and
 * 0.06; u8 lanes to lanes 0.35 (0.46), 0.09 and 0.04; maximum of u8 lanes 0.29 (0.83), 0.07 and 0.04.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

/* Values 16 * quarter .. 16 * quarter + 15 of a group (thc_kernels.h, pack). */
GW_TEMPLATE uint8x16_t section1(const uint8_t *group, unsigned quarter)
{
    const uint8x8_t bytes = vld1_u8(group);
    const int8_t down = (int8_t)(-2 * (int)quarter);
    const int8x16_t shift = vcombine_s8(vdup_n_s8(down), vdup_n_s8((int8_t)(down - 1)));
    return vandq_u8(vshlq_u8(vcombine_u8(bytes, bytes), shift), vdupq_n_u8(1));
}

GW_TEMPLATE uint8x16_t section2(const uint8_t *group, unsigned quarter)
{
    return vandq_u8(vshlq_u8(vld1q_u8(group), vdupq_n_s8((int8_t)(-2 * (int)quarter))), vdupq_n_u8(3));
}

GW_TEMPLATE uint8x16_t section4(const uint8_t *group, unsigned quarter)
{
    const uint8x16_t bytes = vld1q_u8(group + 16 * (quarter & 1));
    return quarter < 2 ? vandq_u8(bytes, vdupq_n_u8(15)) : vshrq_n_u8(bytes, 4);
}

GW_TEMPLATE uint8x16_t group_values(const uint8_t *group, unsigned quarter, unsigned bits, uint8x16_t table)
{
    uint8x16_t index = bits == 4   ? section4(group, quarter)
                       : bits == 1 ? section1(group, quarter)
                                   : section2(group, quarter);
    if (bits == 3) {
        index = vorrq_u8(index, vshlq_n_u8(section1(group + 16, quarter), 2));
    }
    return vqtbl1q_u8(table, index);
}

/* 16 values. */
GW_TEMPLATE void add_values(uint8_t *lanes, uint8x16_t v, unsigned lane_bits)
{
    if (lane_bits == 8) {
        vst1q_u8(lanes, vaddq_u8(vld1q_u8(lanes), v));
    } else if (lane_bits == 16) {
        gw_store_u16x8(lanes, vaddw_u8(gw_load_u16x8(lanes), vget_low_u8(v)));
        gw_store_u16x8(lanes + 16, vaddw_u8(gw_load_u16x8(lanes + 16), vget_high_u8(v)));
    } else {
        const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_u8(vget_high_u8(v));
        gw_store_u32x4(lanes, vaddw_u16(gw_load_u32x4(lanes), vget_low_u16(low)));
        gw_store_u32x4(lanes + 16, vaddw_u16(gw_load_u32x4(lanes + 16), vget_high_u16(low)));
        gw_store_u32x4(lanes + 32, vaddw_u16(gw_load_u32x4(lanes + 32), vget_low_u16(high)));
        gw_store_u32x4(lanes + 48, vaddw_u16(gw_load_u32x4(lanes + 48), vget_high_u16(high)));
    }
}

GW_TEMPLATE void add_all(uint8_t *lanes, const uint8_t *indices, size_t len, uint8x16_t table,
                         unsigned lane_bits, unsigned bits)
{
    for (size_t i = 0; i < len; i += 64, indices += 8 * bits, lanes += 8 * lane_bits) {
        add_values(lanes, group_values(indices, 0, bits, table), lane_bits);
        add_values(lanes + 2 * lane_bits, group_values(indices, 1, bits, table), lane_bits);
        add_values(lanes + 4 * lane_bits, group_values(indices, 2, bits, table), lane_bits);
        add_values(lanes + 6 * lane_bits, group_values(indices, 3, bits, table), lane_bits);
    }
}

GW_TEMPLATE void add_width(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                           uint8x16_t table, unsigned lane_bits)
{
    GW_BY_INDEX_BITS(add_all, bits, lanes, indices, len, table, lane_bits);
}

void gw_thc_add_indices_neon(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                             const uint8_t *table, unsigned lane_bits)
{
    uint8_t entries[16] = {0}; /* the caller's has 2^bits */
    GW_MEMCPY(entries, table, (size_t)1 << bits);
    const uint8x16_t values = vld1q_u8(entries);
    GW_BY_LANE_BITS(add_width, lane_bits, lanes, indices, len, bits, values);
}

void gw_thc_add_lanes_neon(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits; /* a multiple of 64 */
    for (size_t i = 0; i < size; i += 32) {
        const uint8x16_t a0 = vld1q_u8(lanes + i), a1 = vld1q_u8(lanes + i + 16);
        const uint8x16_t b0 = vld1q_u8(src + i), b1 = vld1q_u8(src + i + 16);
        if (lane_bits == 8) {
            vst1q_u8(lanes + i, vaddq_u8(a0, b0));
            vst1q_u8(lanes + i + 16, vaddq_u8(a1, b1));
        } else if (lane_bits == 16) {
            gw_store_u16x8(lanes + i, vaddq_u16(vreinterpretq_u16_u8(a0), vreinterpretq_u16_u8(b0)));
            gw_store_u16x8(lanes + i + 16, vaddq_u16(vreinterpretq_u16_u8(a1), vreinterpretq_u16_u8(b1)));
        } else {
            gw_store_u32x4(lanes + i, vaddq_u32(vreinterpretq_u32_u8(a0), vreinterpretq_u32_u8(b0)));
            gw_store_u32x4(lanes + i + 16, vaddq_u32(vreinterpretq_u32_u8(a1), vreinterpretq_u32_u8(b1)));
        }
    }
}

uint32_t gw_thc_lane_max_neon(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    const size_t size = len / 8 * lane_bits; /* a multiple of 64 */
    if (lane_bits == 8) {
        uint8x16_t a = vdupq_n_u8(0), b = a;
        for (size_t i = 0; i < size; i += 32) {
            a = vmaxq_u8(a, vld1q_u8(lanes + i));
            b = vmaxq_u8(b, vld1q_u8(lanes + i + 16));
        }
        return vmaxvq_u8(vmaxq_u8(a, b));
    }
    if (lane_bits == 16) {
        uint16x8_t a = vdupq_n_u16(0), b = a;
        for (size_t i = 0; i < size; i += 32) {
            a = vmaxq_u16(a, gw_load_u16x8(lanes + i));
            b = vmaxq_u16(b, gw_load_u16x8(lanes + i + 16));
        }
        return vmaxvq_u16(vmaxq_u16(a, b));
    }
    uint32x4_t a = vdupq_n_u32(0), b = a;
    for (size_t i = 0; i < size; i += 32) {
        a = vmaxq_u32(a, gw_load_u32x4(lanes + i));
        b = vmaxq_u32(b, gw_load_u32x4(lanes + i + 16));
    }
    return vmaxvq_u32(vmaxq_u32(a, b));
}

#else
typedef int gw_thc_aggregate_neon_not_built; /* a translation unit must not be empty */
#endif
