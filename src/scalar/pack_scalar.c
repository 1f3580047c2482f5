/*
 * Pack and unpack: the runs of gcomp/bit_runs.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/bit_runs.h"
#include "scalar/kernels_scalar.h"

void gw_pack_scalar(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t bias)
{
#define PACK(w) gw_pack_width(dst, digits, len, w, bias)
    GW_SWITCH_WIDTH(width, PACK)
}

int gw_unpack_scalar(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table)
{
    int ok = 0;
#define UNPACK(w) ok = gw_unpack_width(out, src, len, w)
    GW_SWITCH_WIDTH(width, UNPACK)
    for (size_t i = 0; table != NULL && i < len; i++) {
        out[i] = table[out[i]];
    }
    return ok;
}
