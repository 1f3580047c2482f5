/*
 * Join: last stage of a decode. Labels give exponent and number of kept bits, the planes give the bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/codebook.h"
#include "gcomp/join_sum.h"
#include "scalar/digit_steps.h"
#include "scalar/kernels_scalar.h"

/* Drop of a derived value (docs/format.md section 3); the same arithmetic as in round_scalar.c, from the
 * exponent. */
GW_TEMPLATE uint32_t derived_drop(uint32_t exponent, int32_t k, const gw_joiner *joiner, int32_t drop_offset,
                                  uint32_t cap, const gw_traits *t, int fp16)
{
    if (fp16) {
        exponent = (exponent == 0 ? 1 : exponent) + t->exponent_bias;
    }
    int32_t room = k + drop_offset - (int32_t)(4 * exponent + 3);
    room = k == 0 || room < 4 ? 0 : room;
    return joiner->floor[gw_min_u32((uint32_t)room >> 2, cap)];
}

/* Exponent field in place and kept bits (with drop 0 in derived mode) by label; both 0 for zero and
 * escape. */
typedef struct label_field {
    uint32_t exponent;
    uint32_t kept;
} label_field;

static void fill_fields(label_field field[256], const gw_joiner *joiner)
{
    const gw_traits *t = gw_traits_of(joiner->dtype);
    GW_MEMSET(field, 0, 256 * sizeof *field);
    for (uint32_t label = joiner->derived ? 2 : 4; label < 256; label++) {
        const uint32_t drop_steps = joiner->derived ? 0 : label & 3;
        const uint32_t exponent =
            gw_exponent_of_label(label, joiner->dtype, joiner->derived, joiner->window_start);
        field[label].exponent = exponent << t->mantissa_bits;
        field[label].kept = t->mantissa_bits + 1 - drop_steps * t->explicit_step;
    }
}

GW_TEMPLATE void join_range(uint8_t *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                            const gw_joiner *joiner, uint32_t dtype, uint32_t derived, uint32_t relative)
{
    const gw_traits *t = gw_traits_of(dtype);
    const int wide = dtype == GW_FP32;
    const int fp16 = dtype == GW_FP16;
    const unsigned m = t->mantissa_bits;
    const unsigned w1 = t->digit_width[0], w3 = t->digit_width[2], w4 = t->digit_width[3];
    /* Local copies: the compiler must assume that a store to dst changes what pointers lead to. */
    uint8_t *const *const plane = input->plane;
    const uint8_t *const p1 = plane[0], *const p2 = plane[1], *const p3 = plane[2], *const p4 = plane[3];
    const uint8_t *const r4 = plane[4], *const r2 = plane[5], *const r1 = plane[6];
    const uint8_t *const labels = input->labels, *const map_bytes = input->map_bytes;
    const size_t len = input->len;
    const uint32_t constant = joiner->constant;
    const uint32_t cap = joiner->cap;
    const int32_t drop_offset = joiner->drop_offset;
    label_field field[256];
    gw_digit_step steps[GW_KEEP_MAX + 1];
    uint64_t nested = 0, rest = 0;
    size_t escapes = 0;
    uint32_t bad_zero = 0;

    fill_fields(field, joiner);
    gw_digit_steps_fill(steps, dtype);
    for (size_t i = 0; i < len; i++) {
        const uint32_t label = labels[i];
        uint32_t exponent = field[label].exponent;
        uint32_t kept = field[label].kept;
        if (derived && relative && kept != 0) {
            const uint32_t turn = gw_turn_of(map_bytes[i], drop_offset, dtype);
            exponent = gw_exponent_turn_back(exponent >> m, turn, dtype) << m;
        }
        if (derived && kept != 0) {
            kept -=
                constant ? cap : derived_drop(exponent >> m, map_bytes[i], joiner, drop_offset, cap, t, fp16);
        }
        const gw_digit_step *step = &steps[kept];
        /* Digits that the value does not have are masked away together. */
        uint32_t z = (uint32_t)p1[gw_plane_at(nested, 0)] << (m + 1 - w1) |
                     (uint32_t)p2[gw_plane_at(nested, 1)] << (w3 + w4) |
                     (uint32_t)p3[gw_plane_at(nested, 2)] << w4 | (uint32_t)p4[gw_plane_at(nested, 3)];
        z &= step->mask;
        nested += step->nested;
        if (derived) {
            const size_t bit = gw_plane_at(rest, 2); /* R1 is still packed */
            z |= (uint32_t)r4[gw_plane_at(rest, 0)] << step->rest_shift[0] & step->rest_mask[0];
            z |= (uint32_t)r2[gw_plane_at(rest, 1)] << step->rest_shift[1] & step->rest_mask[1];
            z |= (uint32_t)r1[bit / 8] >> bit % 8 << step->rest_shift[2] & step->rest_mask[2];
            rest += step->rest;
        }
        uint32_t value = z >> m << (8 * t->size - 1) | exponent | (z & ((1u << m) - 1));
        if (fp16) {
            bad_zero |= (uint32_t)(kept != 0) & (uint32_t)((value & 0x7fff) == 0);
        }
        if (label == GW_LABEL_ESCAPE) {
            value = 0;
            if (escapes < input->escape_len) {
                value =
                    wide ? gw_load32(input->escape + 4 * escapes) : gw_load16(input->escape + 2 * escapes);
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
    gw_plane_lens(joined->plane_len, nested, rest);
    joined->escape_len = escapes;
    joined->bad_zero = bad_zero;
}

#define JOIN_CASE(dtype, derived, relative)                                                                  \
    case ((dtype)*2 + (derived)) * 2 + (relative):                                                           \
        join_range((uint8_t *)dst, joined, place, input, joiner, (dtype), (derived), (relative));            \
        break

#define JOIN_CASES(dtype)                                                                                    \
    JOIN_CASE(dtype, 0, 0);                                                                                  \
    JOIN_CASE(dtype, 1, 0);                                                                                  \
    JOIN_CASE(dtype, 1, 1)

static gw_add_fn *const adds[3] = {gw_add_fp32_scalar, gw_add_bf16_scalar, gw_add_fp16_scalar};

void gw_join_scalar(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                    const gw_joiner *joiner)
{
    switch ((joiner->dtype * 2 + joiner->derived) * 2 + (joiner->relative != 0)) {
        JOIN_CASES(GW_FP32);
        JOIN_CASES(GW_BF16);
        JOIN_CASES(GW_FP16);
    default:
        return;
    }
    gw_join_sum(dst, 0, input->len, joiner, adds);
}

/* The scalar join makes no non-temporal stores. */
void gw_fence_scalar(void)
{
}
