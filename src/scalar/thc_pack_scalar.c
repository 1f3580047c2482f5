/*
 * Stage pack: indices of 1 to 4 bits, 64 at a time, in an order that unpacks with whole-register shifts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"

#define GW_PACK_GROUP 64u

/* Packs bits [shift, shift + bits) of 64 indices into 8 * bits bytes; bits is 1, 2 or 4. Byte j holds values
 * j, j + stride, j + 2 * stride, ... from bit 0 up. */
static void pack_section(uint8_t *dst, const uint8_t *index, unsigned bits, unsigned shift)
{
    unsigned stride = 8 * bits;
    unsigned mask = (1u << bits) - 1u;

    for (unsigned j = 0; j < stride; j++) {
        unsigned byte = 0;
        for (unsigned i = 0; i < 8 / bits; i++) {
            byte |= ((index[j + i * stride] >> shift) & mask) << (i * bits);
        }
        dst[j] = (uint8_t)byte;
    }
}

void gw_thc_pack_scalar(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits)
{
    for (size_t group = 0; group < len / GW_PACK_GROUP; group++) {
        const uint8_t *v = index + group * GW_PACK_GROUP;
        uint8_t *out = dst + group * 8 * bits;
        switch (bits) {
        case 1:
            pack_section(out, v, 1, 0);
            break;
        case 2:
            pack_section(out, v, 2, 0);
            break;
        case 3:
            pack_section(out, v, 2, 0);
            pack_section(out + 16, v, 1, 2);
            break;
        default:
            pack_section(out, v, 4, 0);
            break;
        }
    }
}
