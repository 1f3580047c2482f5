/*
 * A ring reduce-scatter simulated in one process: the partition of one owner travels over n ranks, each hop
 * decodes the frame, adds its own gradient and encodes the sum (gw_gcomp_decode_add_encode), and the owner's
 * frame is what all ranks decode in the end. Shared by the test and by the program that writes
 * docs/results/gcomp-hops.md.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RING_H
#define GW_RING_H

#include "gradwire/gcomp.h"

typedef struct ring_setup {
    gw_gcomp_rounding rounding;
    gw_gcomp_quantum_mode quantum_mode;
    uint32_t ranks;
    uint32_t len;
    uint32_t constant_drop; /* without a map; UINT32_MAX: a map for SGD with theta, see below */
    /* 1: the ranks' gradients are all positive; 0: independent signs around a common mean */
    int same_sign;
    uint64_t seed;
} ring_setup;

typedef struct ring_result {
    double bias;  /* sum over values of (result - exact) * sign(exact), over the sum of |exact| */
    double worst; /* max of |result - exact| / |exact| */
    /* map only: max of (|result - exact| - what fp32 additions may round) / |num / (lr c)|, in 2^-23 */
    double worst_budget;
    double mean_bits; /* frame bits a value, last hop */
} ring_result;

/* 1 and *result, or 0 if a call failed. */
int ring_run(const ring_setup *setup, ring_result *result);

#endif
