/*
 * Plain loops of the peers in bench_peers.cc, compiled once per instruction set (bench/CMakeLists.txt) and
 * vectorised by the compiler: a cast to bf16, int8 blocks, and a split into byte planes. NaN and infinity are
 * not handled, which makes the peers a little faster than a complete implementation.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "peer_loops.h"

#include <string.h>

#define GW_PEER_PASTE(name, isa)  name##_##isa
#define GW_PEER_EXPAND(name, isa) GW_PEER_PASTE(name, isa)
#define GW_PEER(name)             GW_PEER_EXPAND(name, GW_PEER_ISA)

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* fp32 to bf16, nearest even. */
static void cast_down(uint16_t *restrict dst, const float *restrict src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = bits_of(src[i]);
        dst[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void cast_up(float *restrict dst, const uint16_t *restrict src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = float_of((uint32_t)src[i] << 16);
    }
}

/* 127 times value / largest magnitude of the block, nearest even. Adding 1.5 * 2^23 leaves the integer in the
 * low bits of the sum. */
static void int8_down(int8_t *restrict dst, float *restrict scale, const float *restrict src, size_t len)
{
    for (size_t at = 0; at < len; at += GW_PEER_INT8_BLOCK) {
        const size_t end = len - at < GW_PEER_INT8_BLOCK ? len : at + GW_PEER_INT8_BLOCK;
        uint32_t largest = 0;
        for (size_t i = at; i < end; i++) {
            const uint32_t magnitude = bits_of(src[i]) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        const float max = float_of(largest), inverse = max >= 0x1p-118f ? 127.0f / max : 0.0f;
        for (size_t i = at; i < end; i++) {
            dst[i] = (int8_t)(uint8_t)bits_of(src[i] * inverse + 12582912.0f);
        }
        scale[at / GW_PEER_INT8_BLOCK] = max / 127.0f;
    }
}

static void int8_up(float *restrict dst, const float *restrict scale, const int8_t *restrict src, size_t len)
{
    for (size_t at = 0; at < len; at += GW_PEER_INT8_BLOCK) {
        const size_t end = len - at < GW_PEER_INT8_BLOCK ? len : at + GW_PEER_INT8_BLOCK;
        const float factor = scale[at / GW_PEER_INT8_BLOCK];
        for (size_t i = at; i < end; i++) {
            dst[i] = (float)src[i] * factor;
        }
    }
}

/* Plane 3 is the exponent; the sign becomes the lowest bit of plane 0. */
static void split(uint8_t *restrict planes, const float *restrict src, size_t len)
{
    uint8_t *restrict p0 = planes, *restrict p1 = p0 + len, *restrict p2 = p1 + len, *restrict p3 = p2 + len;
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = bits_of(src[i]), rotated = bits << 1 | bits >> 31;
        p0[i] = (uint8_t)rotated;
        p1[i] = (uint8_t)(rotated >> 8);
        p2[i] = (uint8_t)(rotated >> 16);
        p3[i] = (uint8_t)(rotated >> 24);
    }
}

static void unsplit(float *restrict dst, const uint8_t *const planes[4], size_t len)
{
    const uint8_t *restrict p0 = planes[0], *restrict p1 = planes[1], *restrict p2 = planes[2],
                            *restrict p3 = planes[3];
    for (size_t i = 0; i < len; i++) {
        const uint32_t rotated = p0[i] | (uint32_t)p1[i] << 8 | (uint32_t)p2[i] << 16 | (uint32_t)p3[i] << 24;
        dst[i] = float_of(rotated >> 1 | rotated << 31);
    }
}

const gw_peer_loops GW_PEER(gw_peer_loops) = {cast_down, cast_up, int8_down, int8_up, split, unsplit};
