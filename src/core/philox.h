/*
 * Philox4x32, the counter-based random number generator of Salmon et al., "Parallel Random Numbers: As
 * Easy as 1, 2, 3" (SC 2011). 128 bits of counter and 64 bits of key give 128 random bits; there is no state,
 * so any lane, thread, device or retransmission can compute the bits of any element independently.
 *
 * The layouts of key and counter are part of the format: docs/numerics.md (stochastic rounding of GCOMP) and
 * docs/numerics-thc.md (signs and rounding of THC) say what each word holds. So are the rounds: 10, the
 * authors' default, in THC and the classic codecs, and 8 in GCOMP, one more than the fewest with which they
 * found it to pass BigCrush.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PHILOX_H
#define GW_PHILOX_H

#include <stdint.h>

#include "core/bytes.h"

/* Multipliers and Weyl increments of the published generator (increments: golden ratio and sqrt(3) - 1, in
 * 2^-32). */
#define GW_PHILOX_MUL0   0xd2511f53u
#define GW_PHILOX_MUL1   0xcd9e8d57u
#define GW_PHILOX_WEYL0  0x9e3779b9u
#define GW_PHILOX_WEYL1  0xbb67ae85u
#define GW_PHILOX_ROUNDS 10
#define GW_RANDOM_ROUNDS 8 /* of GCOMP */

/*
 * out[0..4) = Philox4x32 of the counter {c0, c1, c2, c3} under the key {low 32 bits of key, high 32 bits of
 * key}, with so many rounds.
 */
GW_INLINE void gw_philox4x32_rounds(uint32_t out[4], uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                    uint32_t c3, int rounds)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < rounds; round++) {
        uint64_t p0 = (uint64_t)GW_PHILOX_MUL0 * c0;
        uint64_t p1 = (uint64_t)GW_PHILOX_MUL1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The same with 10 rounds. */
GW_INLINE void gw_philox4x32(uint32_t out[4], uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                             uint32_t c3)
{
    gw_philox4x32_rounds(out, key, c0, c1, c2, c3, GW_PHILOX_ROUNDS);
}

/*
 * Elements that share a counter for their random words (docs/numerics.md section 4): those of four words are
 * the words themselves, those of the next four the words with their halves swapped. Each word is uniform, and
 * only the lower 16 bits of one are the upper 16 bits of another.
 */
enum { GW_RANDOM_SHARED_LOG2 = 3, GW_RANDOM_SHARED = 1 << GW_RANDOM_SHARED_LOG2 };

GW_INLINE uint32_t gw_swap_halves(uint32_t x)
{
    return x << 16 | x >> 16;
}

/* The words of elements 8 * counter to 8 * counter + 7. */
GW_INLINE void gw_random_eight(uint32_t words[GW_RANDOM_SHARED], uint64_t seed, uint64_t counter,
                               uint32_t step_index, uint32_t rank_hop)
{
    gw_philox4x32_rounds(words, seed, (uint32_t)counter, (uint32_t)(counter >> 32), step_index, rank_hop,
                         GW_RANDOM_ROUNDS);
    for (unsigned i = 0; i < 4; i++) {
        words[4 + i] = gw_swap_halves(words[i]);
    }
}

/* What stochastic rounding adds to a value that loses `drop` bits, up to 31: as many top bits of its word. */
GW_INLINE uint32_t gw_random_top(uint32_t word, uint32_t drop)
{
    return word >> 1 >> (31 - drop);
}

/* For counters of GCOMP that differ in c0 alone: what the rounds XOR to words 0 and 2 besides products of c0.
 * That is the key, and in the first three rounds what follows from c1, c2 and c3 as well. */
GW_INLINE void gw_random_rounds_fill(uint64_t constant[GW_RANDOM_ROUNDS][2], uint64_t key, uint32_t c1,
                                     uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < GW_RANDOM_ROUNDS; round++) {
        constant[round][0] = k0;
        constant[round][1] = k1;
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
    const uint64_t p1 = (uint64_t)GW_PHILOX_MUL1 * c2;
    const uint64_t p0 = (uint64_t)GW_PHILOX_MUL0 * ((uint32_t)(p1 >> 32) ^ c1 ^ (uint32_t)key);
    constant[0][1] ^= c3;
    constant[1][0] ^= (uint32_t)p1;
    constant[1][1] ^= p0 >> 32;
    constant[2][1] ^= (uint32_t)p0;
}

#endif
