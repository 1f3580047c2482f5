/*
 * Bad kernels of the sparse family, for the self-test.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_bad.h"

#include "classic/sparse_value.h"

static size_t select_skips_ties(uint32_t *positions, float *values, const void *x, size_t len,
                                gw_sparse_scan *scan)
{
    gw_sparse_scan other = *scan;
    other.bound += scan->bound != 0;
    const size_t count = gw_sparse_select_scalar(positions, values, x, len, &other);
    scan->largest = other.largest;
    return count;
}

/* Bounds above 2^31 become small. */
static size_t select_signed(uint32_t *positions, float *values, const void *x, size_t len,
                            gw_sparse_scan *scan)
{
    gw_sparse_scan other = *scan;
    other.bound = (scan->bound >> 31) != 0 ? 0 : scan->bound;
    const size_t count = gw_sparse_select_scalar(positions, values, x, len, &other);
    scan->largest = other.largest;
    return count;
}

static size_t select_writes_on(uint32_t *positions, float *values, const void *x, size_t len,
                               gw_sparse_scan *scan)
{
    const size_t count = gw_sparse_select_scalar(positions, values, x, len, scan);
    positions[len] = 0xa1a2a3a4u;
    return count;
}

static size_t select_keeps_subnormals(uint32_t *positions, float *values, const void *x, size_t len,
                                      gw_sparse_scan *scan)
{
    const size_t count = gw_sparse_select_scalar(positions, values, x, len, scan);
    for (size_t i = 0; i < count && scan->bound == 0; i++) {
        values[i] = gw_float_from_bits(gw_sparse_load(x, i));
    }
    return count;
}

static void momentum_forgets_floor(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                                   size_t len, const gw_sparse_step *step)
{
    gw_sparse_step other = *step;
    other.momentum_floor += step->momentum_floor < GW_F32_INF;
    gw_sparse_momentum_scalar(u_next, v_next, u, v, x, len, &other);
}

static void momentum_without_nesterov(void *u_next, void *v_next, const void *u, const void *v,
                                      const float *x, size_t len, const gw_sparse_step *step)
{
    gw_sparse_step other = *step;
    other.nesterov = 0;
    gw_sparse_momentum_scalar(u_next, v_next, u, v, x, len, &other);
}

static void squares_in_halves(double sums[GW_SPARSE_SUMS], const float *x, size_t len)
{
    double other[GW_SPARSE_SUMS] = {0};
    gw_sparse_squares_scalar(other, x, len);
    for (size_t i = 0; i < GW_SPARSE_SUMS; i++) {
        sums[i] += other[i];
    }
}

const bad_kernel bad_sparse_kernels[] = {
    {"skips values at the bound", "sparse_select", (kc_fn)select_skips_ties, KC_OUTPUT, 0},
    {"compares bounds as signed numbers", "sparse_select", (kc_fn)select_signed, KC_OUTPUT, 0},
    {"writes past the positions", "sparse_select", (kc_fn)select_writes_on, KC_CANARY | KC_CRASH, 0},
    {"keeps subnormals", "sparse_select", (kc_fn)select_keeps_subnormals, KC_OUTPUT, 0},
    {"skips ties in scalar itself", "sparse_select", (kc_fn)select_skips_ties, KC_MODEL, 1},
    {"flushes the least product", "sparse_momentum", (kc_fn)momentum_forgets_floor, KC_OUTPUT, 0},
    {"the same in scalar itself", "sparse_momentum", (kc_fn)momentum_forgets_floor, KC_MODEL, 1},
    {"forgets Nesterov", "sparse_momentum", (kc_fn)momentum_without_nesterov, KC_OUTPUT, 0},
    {"starts sums anew", "sparse_squares", (kc_fn)squares_in_halves, KC_OUTPUT, 0},
    {NULL, NULL, NULL, 0, 0},
};
