/*
 * A step of DGC and the sum of squares that it clips by: by classic/sparse_value.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/sparse_value.h"
#include "scalar/kernels_scalar.h"

void gw_sparse_momentum_scalar(void *u_next, void *v_next, const void *u, const void *v, const float *x,
                               size_t len, const gw_sparse_step *step)
{
    gw_sparse_momentum_values((uint8_t *)u_next, (uint8_t *)v_next, (const uint8_t *)u, (const uint8_t *)v, x,
                              0, len, step);
}

void gw_sparse_squares_scalar(double sums[GW_SPARSE_SUMS], const float *x, size_t len)
{
    gw_sparse_squares_values(sums, x, 0, len);
}
