/*
 * Join: last stage of a decode. Ranks give exponent and number of kept bits, the planes give the bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"

/* Drop of a derived value (docs/format.md section 3); the same arithmetic as in round_scalar.c, from the exponent. */
static inline uint32_t derived_drop(uint32_t exponent, int32_t k, const gw_joiner *joiner, const gw_traits *t,
                                    int fp16)
{
    if (fp16) {
        exponent = (exponent == 0 ? 1 : exponent) + t->exponent_bias;
    }
    int32_t room = k + joiner->drop_base - (int32_t)(4 * exponent + 3);
    return k == 0 || room < 4 ? 0 : joiner->floor[gw_min_u32((uint32_t)room >> 2, joiner->cap)];
}

static inline void join_range(uint8_t *dst, gw_joined *joined, uint16_t *place, const uint8_t *ranks,
                              uint8_t *const plane[GW_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                              const uint8_t *levels, size_t len, const gw_joiner *joiner, uint32_t dtype,
                              uint32_t derived)
{
    const gw_traits *t = gw_traits_of(dtype);
    const int wide = dtype == GW_FP32;
    const int fp16 = dtype == GW_FP16;
    const unsigned m = t->mantissa_bits;
    const unsigned w1 = t->digit_width[0], w2 = t->digit_width[1], w3 = t->digit_width[2], w4 = t->digit_width[3];
    const unsigned top = m + 1;
    size_t n[GW_PLANES_MAX] = {0, 0, 0, 0, 0, 0, 0};
    size_t escapes = 0;
    uint32_t bad_zero = 0;

    for (size_t i = 0; i < len; i++) {
        uint32_t rank = ranks[i];
        unsigned kept = joiner->keep[rank];
        uint32_t exponent = joiner->exponent[rank];
        uint32_t value;

        if (derived && kept != 0) {
            kept -= joiner->constant ? joiner->cap : derived_drop(exponent >> m, levels[i], joiner, t, fp16);
        }
        /* A digit that the value does not have is masked to zero: 0 - 1 is all ones, 0 - 0 none. */
        uint32_t has1 = kept >= w1, has2 = kept >= w1 + w2, has3 = kept >= w1 + w2 + w3, has4 = kept >= top;
        uint32_t z = (uint32_t)plane[0][n[0]] << (top - w1) & (0u - has1);
        z |= (uint32_t)plane[1][n[1]] << (top - w1 - w2) & (0u - has2);
        z |= (uint32_t)plane[2][n[2]] << w4 & (0u - has3);
        z |= (uint32_t)plane[3][n[3]] & (0u - has4);
        n[0] += has1;
        n[1] += has2;
        n[2] += has3;
        n[3] += has4;
        if (derived) {
            unsigned whole = (has1 ? w1 : 0) + (has2 ? w2 : 0) + (has3 ? w3 : 0) + (has4 ? w4 : 0);
            unsigned rest = kept - whole;
            unsigned at = top - whole;
            at -= rest & 4;
            z |= (0u - (rest >> 2 & 1)) & (uint32_t)plane[4][n[4]] << at;
            n[4] += rest >> 2 & 1;
            at -= rest & 2;
            z |= (0u - (rest >> 1 & 1)) & (uint32_t)plane[5][n[5]] << at;
            n[5] += rest >> 1 & 1;
            at -= rest & 1;
            z |= (0u - (rest & 1)) & (uint32_t)plane[6][n[6]] << at;
            n[6] += rest & 1;
        }
        value = (z >> m) << (wide ? 31 : 15) | exponent | (z & ((1u << m) - 1));
        if (fp16) {
            bad_zero |= (uint32_t)(kept != 0) & (uint32_t)((value & 0x7fff) == 0);
        }
        if (rank == joiner->escape_rank) {
            value = 0;
            if (escapes < escape_len) {
                value = wide ? gw_load32(escape + 4 * escapes) : gw_load16(escape + 2 * escapes);
            }
            place[escapes] = (uint16_t)i;
            escapes++;
        }
        if (wide) {
            gw_store32(dst + 4 * i, value);
        } else {
            gw_store16(dst + 2 * i, (uint16_t)value);
        }
    }
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        joined->plane_len[p] = n[p];
    }
    joined->escape_len = escapes;
    joined->bad_zero = bad_zero;
}

#define JOIN_CASE(dtype, derived)                                                                                      \
    case (dtype) * 2 + (derived):                                                                                      \
        join_range((uint8_t *)dst, joined, place, ranks, plane, escape, escape_len, levels, len, joiner, (dtype),      \
                   (derived));                                                                                         \
        break

void gw_join_scalar(void *dst, gw_joined *joined, uint16_t *place, const uint8_t *ranks,
                    uint8_t *const plane[GW_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                    const uint8_t *levels, size_t len, const gw_joiner *joiner)
{
    switch (joiner->dtype * 2 + joiner->derived) {
        JOIN_CASE(GW_FP32, 0);
        JOIN_CASE(GW_FP32, 1);
        JOIN_CASE(GW_BF16, 0);
        JOIN_CASE(GW_BF16, 1);
        JOIN_CASE(GW_FP16, 0);
        JOIN_CASE(GW_FP16, 1);
    default:
        break;
    }
}
