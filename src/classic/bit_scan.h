/*
 * Number of zeros below the lowest set bit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BIT_SCAN_H
#define GW_BIT_SCAN_H

#include <stdint.h>

/* x is not 0. */
static inline unsigned gw_low_zeros(uint64_t x)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(x);
#else
    unsigned count = 0;
    while ((x & 0xff) == 0) {
        x >>= 8;
        count += 8;
    }
    while ((x & 1) == 0) {
        x >>= 1;
        count++;
    }
    return count;
#endif
}

#endif
