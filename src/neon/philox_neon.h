/*
 * Philox4x32 (core/philox.h) on four counters at a time, one a lane.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PHILOX_NEON_H
#define GW_PHILOX_NEON_H

#include "core/philox.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* word[w] lane l = word w of counter l; on entry the counters, on return the random words. */
static inline void gw_philox4(uint32x4_t word[4], uint64_t key, int rounds)
{
    const uint32x4_t mul0 = vdupq_n_u32(GW_PHILOX_MUL0), mul1 = vdupq_n_u32(GW_PHILOX_MUL1);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < rounds; round++) {
        const uint32x4_t p0_low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(word[0]), vget_low_u32(mul0)));
        const uint32x4_t p0_high = vreinterpretq_u32_u64(vmull_high_u32(word[0], mul0));
        const uint32x4_t p1_low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(word[2]), vget_low_u32(mul1)));
        const uint32x4_t p1_high = vreinterpretq_u32_u64(vmull_high_u32(word[2], mul1));
        word[0] = veorq_u32(veorq_u32(vuzp2q_u32(p1_low, p1_high), word[1]), vdupq_n_u32(k0));
        word[1] = vuzp1q_u32(p1_low, p1_high);
        word[2] = veorq_u32(veorq_u32(vuzp2q_u32(p0_low, p0_high), word[3]), vdupq_n_u32(k1));
        word[3] = vuzp1q_u32(p0_low, p0_high);
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
}

#endif

#endif
