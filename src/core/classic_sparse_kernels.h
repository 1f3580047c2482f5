/*
 * Kernels of the sparse family of the classic codecs: selection by magnitude, the momentum of DGC, squares.
 *
 * Float pointers point to numbers in the machine's byte order at any alignment of bytes. flush: subnormals and
 * zeros of fp32 become +0. Float arithmetic is IEEE in the order written, never contracted; NaN stays NaN
 * with any payload.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_SPARSE_KERNELS_H
#define GW_CLASSIC_SPARSE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* The largest and least magnitudes of a range of values. */
typedef struct gw_sparse_scan {
    uint32_t first;   /* in: the number of x[0] */
    uint32_t bound;   /* in: the least magnitude that is taken, as a bit pattern: 0, or at least 2^-126's */
    uint32_t largest; /* in, out: maximum with the magnitudes of x[0..len) as bit patterns */
} gw_sparse_scan;

/* sparse_select: the values of a magnitude of at least scan->bound, in order: positions[j] = scan->first + i,
 * values[j] = flush(x[i]). Returns how many there are. All of positions[0..len) and values[0..len) may be
 * written, whatever is found. */
typedef size_t gw_sparse_select_fn(uint32_t *positions, float *values, const void *x, size_t len,
                                   gw_sparse_scan *scan);

/* What a step of DGC does to a value. */
typedef struct gw_sparse_step {
    float momentum; /* 0 <= m < 1 */
    float factor;   /* of clipping; 1: none */
    int nesterov;
} gw_sparse_step;

/* sparse_momentum: with F = flush and every operation rounded to fp32: y = F(x[i] * factor) (x[i] where the
 * factor is 1), w = F(F(m * F(u[i])) + y), u_next[i] = w, v_next[i] = F(F(v[i]) + w), or with Nesterov
 * F(F(v[i]) + F(F(m * w) + y)). x is flushed. u_next may be u, and v_next v; else arrays do not overlap. */
typedef void gw_sparse_momentum_fn(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                                   size_t len, const gw_sparse_step *step);

enum { GW_SPARSE_SUMS = 16 };

/* sparse_squares: sums[i % 16] += x[i] * x[i] in fp64, in ascending order of i. x is aligned for float and
 * flushed. */
typedef void gw_sparse_squares_fn(double sums[GW_SPARSE_SUMS], const float *x, size_t len);

typedef struct gw_sparse_kernels {
    gw_sparse_select_fn *select;
    gw_sparse_momentum_fn *momentum;
    gw_sparse_squares_fn *squares;
} gw_sparse_kernels;

#define GW_DECLARE_SPARSE_KERNELS(backend)                                                                   \
    gw_sparse_select_fn gw_sparse_select_##backend;                                                          \
    gw_sparse_momentum_fn gw_sparse_momentum_##backend;                                                      \
    gw_sparse_squares_fn gw_sparse_squares_##backend

#endif
