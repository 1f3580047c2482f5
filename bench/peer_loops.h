/*
 * Loops of the peers in bench_peers.cc, one table per instruction set.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PEER_LOOPS_H
#define GW_PEER_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_PEER_INT8_BLOCK = 256 };

typedef struct gw_peer_loops {
    void (*cast_down)(uint16_t *dst, const float *src, size_t len);
    void (*cast_up)(float *dst, const uint16_t *src, size_t len);
    /* One scale per block of GW_PEER_INT8_BLOCK values. */
    void (*int8_down)(int8_t *dst, float *scale, const float *src, size_t len);
    void (*int8_up)(float *dst, const float *scale, const int8_t *src, size_t len);
    /* Four planes of len bytes, one after the other, and back. */
    void (*split)(uint8_t *planes, const float *src, size_t len);
    void (*unsplit)(float *dst, const uint8_t *const planes[4], size_t len);
} gw_peer_loops;

extern const gw_peer_loops gw_peer_loops_base, gw_peer_loops_avx2, gw_peer_loops_avx512;

#ifdef __cplusplus
}
#endif

#endif
