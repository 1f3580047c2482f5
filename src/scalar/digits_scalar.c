/*
 * Digits: the kept bits of a value, cut from the top into the planes of docs/format.md section 3.
 *
 * Every digit is stored whether the value has it or not, and the position of its plane moves only if it has: branches on
 * data that changes from value to value cost more than the stores.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"

static inline void digits_range(uint8_t *const plane[GW_PLANES_MAX], size_t plane_len[GW_PLANES_MAX],
                                const uint32_t *bits, const uint8_t *keep, size_t len, uint32_t dtype,
                                uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const unsigned m = t->mantissa_bits;
    const unsigned w1 = t->digit_width[0], w2 = t->digit_width[1], w3 = t->digit_width[2], w4 = t->digit_width[3];
    const unsigned top = m + 1;
    size_t n[GW_PLANES_MAX] = {0, 0, 0, 0, 0, 0, 0};

    for (size_t i = 0; i < len; i++) {
        /* Sign and mantissa next to each other; the exponent between them is cut out. */
        uint32_t z = (bits[i] >> (dtype == GW_FP32 ? 31 : 15)) << m | (bits[i] & ((1u << m) - 1));
        unsigned kept = keep[i];
        plane[0][n[0]] = (uint8_t)(z >> (top - w1));
        n[0] += kept >= w1;
        plane[1][n[1]] = (uint8_t)(z >> (top - w1 - w2) & ((1u << w2) - 1));
        n[1] += kept >= w1 + w2;
        plane[2][n[2]] = (uint8_t)(z >> w4 & ((1u << w3) - 1));
        n[2] += kept >= w1 + w2 + w3;
        plane[3][n[3]] = (uint8_t)(z & ((1u << w4) - 1));
        n[3] += kept >= top;
        if (derived) {
            unsigned whole = (kept >= w1 ? w1 : 0) + (kept >= w1 + w2 ? w2 : 0) + (kept >= w1 + w2 + w3 ? w3 : 0) +
                             (kept >= top ? w4 : 0);
            unsigned rest = kept - whole;
            unsigned at = top - whole; /* bits of z below the whole digits */
            plane[4][n[4]] = (uint8_t)((uint64_t)z << 4 >> at & 15);
            n[4] += rest >> 2 & 1;
            at -= rest & 4;
            plane[5][n[5]] = (uint8_t)((uint64_t)z << 2 >> at & 3);
            n[5] += rest >> 1 & 1;
            at -= rest & 2;
            plane[6][n[6]] = (uint8_t)((uint64_t)z << 1 >> at & 1);
            n[6] += rest & 1;
        }
    }
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        plane_len[p] = n[p];
    }
}

void gw_digits_scalar(uint8_t *const plane[GW_PLANES_MAX], size_t plane_len[GW_PLANES_MAX], const uint32_t *bits,
                      const uint8_t *keep, size_t len, uint32_t dtype, uint32_t derived)
{
    switch (dtype * 2 + derived) {
    case GW_FP32 * 2: digits_range(plane, plane_len, bits, keep, len, GW_FP32, 0); break;
    case GW_FP32 * 2 + 1: digits_range(plane, plane_len, bits, keep, len, GW_FP32, 1); break;
    case GW_BF16 * 2: digits_range(plane, plane_len, bits, keep, len, GW_BF16, 0); break;
    case GW_BF16 * 2 + 1: digits_range(plane, plane_len, bits, keep, len, GW_BF16, 1); break;
    case GW_FP16 * 2: digits_range(plane, plane_len, bits, keep, len, GW_FP16, 0); break;
    case GW_FP16 * 2 + 1: digits_range(plane, plane_len, bits, keep, len, GW_FP16, 1); break;
    default: break;
    }
}
