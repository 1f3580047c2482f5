/*
 * Every byte, 64 times.
 *
 * Where registers are scarce, compilers rebuild constant vectors: a move to a general register and a
 * broadcast, two instructions and eight cycles inside a loop. From an array in another file a constant is a
 * memory operand.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#define ROW8(x) x, x, x, x, x, x, x, x
#define ROW(x)                                                                                               \
    {                                                                                                        \
        ROW8(x), ROW8(x), ROW8(x), ROW8(x), ROW8(x), ROW8(x), ROW8(x), ROW8(x)                               \
    }
#define ROWS4(x)  ROW(x), ROW((x) + 1), ROW((x) + 2), ROW((x) + 3)
#define ROWS16(x) ROWS4(x), ROWS4((x) + 4), ROWS4((x) + 8), ROWS4((x) + 12)
#define ROWS64(x) ROWS16(x), ROWS16((x) + 16), ROWS16((x) + 32), ROWS16((x) + 48)

const _Alignas(64) uint8_t gw_every_byte_avx512[256][64] = {ROWS64(0), ROWS64(64), ROWS64(128), ROWS64(192)};

#else
typedef int gw_every_byte_avx512_not_built; /* a translation unit must not be empty */
#endif
