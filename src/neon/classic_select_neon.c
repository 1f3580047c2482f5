/*
 * Values of a magnitude of at least a bound, 4 at a time: a byte shuffle by the bits of the comparison moves
 * them to the front, and whole registers are stored. Those end within the arrays: fewer values were found
 * than read. Not timed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "classic/sparse_value.h"

#define LANE(n) 4 * (n), 4 * (n) + 1, 4 * (n) + 2, 4 * (n) + 3
/* Lanes at set bits, in order; then anything. */
static const uint8_t order_of[16][16] = {
    {LANE(0), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(0), LANE(0), LANE(0)},
    {LANE(1), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(1), LANE(0), LANE(0)},
    {LANE(2), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(2), LANE(0), LANE(0)},
    {LANE(1), LANE(2), LANE(0), LANE(0)}, {LANE(0), LANE(1), LANE(2), LANE(0)},
    {LANE(3), LANE(0), LANE(0), LANE(0)}, {LANE(0), LANE(3), LANE(0), LANE(0)},
    {LANE(1), LANE(3), LANE(0), LANE(0)}, {LANE(0), LANE(1), LANE(3), LANE(0)},
    {LANE(2), LANE(3), LANE(0), LANE(0)}, {LANE(0), LANE(2), LANE(3), LANE(0)},
    {LANE(1), LANE(2), LANE(3), LANE(0)}, {LANE(0), LANE(1), LANE(2), LANE(3)},
};
static const uint8_t ones_of[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};

size_t gw_sparse_select_neon(uint32_t *positions, float *values, const void *x, size_t len,
                             gw_sparse_scan *scan)
{
    static const uint32_t start[4] = {0, 1, 2, 3}, place[4] = {1, 2, 4, 8};
    const uint32x4_t bound = vdupq_n_u32(scan->bound), abs = vdupq_n_u32(GW_F32_ABS);
    const uint32x4_t places = vld1q_u32(place);
    uint32x4_t number = vaddq_u32(vdupq_n_u32(scan->first), vld1q_u32(start));
    uint32x4_t largest = vdupq_n_u32(scan->largest);
    const uint8_t *const src = (const uint8_t *)x;
    size_t i = 0, count = 0;
    for (; i + 4 <= len; i += 4) {
        const uint32x4_t bits = gw_load_u32x4(src + 4 * i);
        const uint32x4_t magnitude = vandq_u32(bits, abs);
        const uint32_t taken = vaddvq_u32(vandq_u32(vcgeq_u32(magnitude, bound), places));
        const uint8x16_t order = vld1q_u8(order_of[taken]);
        const uint32x4_t flushed = gw_bits_f32x4(gw_flush_f32x4(gw_f32x4_bits(bits)));
        largest = vmaxq_u32(largest, magnitude);
        vst1q_u8((uint8_t *)(positions + count), vqtbl1q_u8(vreinterpretq_u8_u32(number), order));
        vst1q_u8((uint8_t *)(values + count), vqtbl1q_u8(vreinterpretq_u8_u32(flushed), order));
        count += ones_of[taken];
        number = vaddq_u32(number, vdupq_n_u32(4));
    }
    scan->largest = vmaxvq_u32(largest);
    return gw_sparse_select_values(positions, values, x, i, len, scan, count);
}

#else
typedef int gw_classic_select_neon_not_built; /* a translation unit must not be empty */
#endif
