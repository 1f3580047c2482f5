/*
 * Runs of numbers of 1 to 7 bits, eight at a time through one 64-bit word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BIT_RUNS_H
#define GW_BIT_RUNS_H

#include "core/bytes.h"

/* RUN(w) with the constant that `width` is: the one switch over widths. Nothing for other widths. */
#define GW_SWITCH_WIDTH(width, RUN)                                                                          \
    switch (width) {                                                                                         \
    case 1:                                                                                                  \
        RUN(1);                                                                                              \
        break;                                                                                               \
    case 2:                                                                                                  \
        RUN(2);                                                                                              \
        break;                                                                                               \
    case 3:                                                                                                  \
        RUN(3);                                                                                              \
        break;                                                                                               \
    case 4:                                                                                                  \
        RUN(4);                                                                                              \
        break;                                                                                               \
    case 5:                                                                                                  \
        RUN(5);                                                                                              \
        break;                                                                                               \
    case 6:                                                                                                  \
        RUN(6);                                                                                              \
        break;                                                                                               \
    case 7:                                                                                                  \
        RUN(7);                                                                                              \
        break;                                                                                               \
    default:                                                                                                 \
        break;                                                                                               \
    }

/* Eight bytes to eight numbers of w bits: neighbours are moved together in pairs, fours, and all eight. */
GW_TEMPLATE uint64_t gw_squeeze8(uint64_t x, unsigned w)
{
    x = (x & 0x00ff00ff00ff00ffu) | (x & 0xff00ff00ff00ff00u) >> (8 - w);
    x = (x & 0x0000ffff0000ffffu) | (x & 0xffff0000ffff0000u) >> (16 - 2 * w);
    return (x & 0x00000000ffffffffu) | (x & 0xffffffff00000000u) >> (32 - 4 * w);
}

/* The reverse; bits above the numbers are masked away on the way. */
GW_TEMPLATE uint64_t gw_spread8(uint64_t x, unsigned w)
{
    uint64_t four = ((uint64_t)1 << 4 * w) - 1;
    x = (x & four) | (x & four << 4 * w) << (32 - 4 * w);
    uint64_t two = ((uint64_t)1 << 2 * w) - 1;
    two |= two << 32;
    x = (x & two) | (x & two << 2 * w) << (16 - 2 * w);
    uint64_t one = ((uint64_t)1 << w) - 1;
    one |= one << 16;
    one |= one << 32;
    return (x & one) | (x & one << w) << (8 - w);
}

/* Adds c (all bytes equal) to every byte of x, modulo 256: the top bits apart so that no carry leaves a
 * byte. */
GW_TEMPLATE uint64_t gw_add8(uint64_t x, uint64_t c)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    return ((x & low) + (c & low)) ^ ((x ^ c) & ~low);
}

GW_TEMPLATE void gw_pack_width(uint8_t *dst, const uint8_t *digits, size_t len, unsigned w, uint8_t bias)
{
    const uint64_t minus = (uint64_t)(uint8_t)(0u - bias) * 0x0101010101010101u;
    const size_t size = gw_run_size(len, w);
    size_t i = 0;
    size_t at = 0;

    /* A word is stored whole: the bytes beyond its w are overwritten by the next store. */
    for (; i + 8 <= len && at + 8 <= size; i += 8, at += w) {
        gw_store64(dst + at, gw_squeeze8(gw_add8(gw_load64(digits + i), minus), w));
    }
    uint64_t word = 0;
    unsigned filled = 0;
    for (; at < size; at++) {
        while (filled < 8 && i < len) {
            word |= (uint64_t)(uint8_t)(digits[i] - bias) << filled;
            filled += w;
            i++;
        }
        dst[at] = (uint8_t)word;
        word >>= 8;
        filled = filled > 8 ? filled - 8 : 0;
    }
}

GW_TEMPLATE int gw_unpack_width(uint8_t *out, const uint8_t *src, size_t len, unsigned w)
{
    const size_t size = gw_run_size(len, w);
    size_t i = 0;
    size_t at = 0;

    for (; i + 8 <= len && at + 8 <= size; i += 8, at += w) {
        gw_store64(out + i, gw_spread8(gw_load64(src + at), w));
    }
    uint64_t word = 0;
    unsigned filled = 0;
    for (; i < len; i++) {
        while (filled < w) {
            word |= (uint64_t)src[at] << filled;
            filled += 8;
            at++;
        }
        out[i] = (uint8_t)(word & ((1u << w) - 1));
        word >>= w;
        filled -= w;
    }
    for (; at < size; at++) {
        word |= src[at];
    }
    return word == 0;
}

#endif
