/*
 * Values of a magnitude of at least a bound, by classic/sparse_value.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/sparse_value.h"
#include "scalar/kernels_scalar.h"

size_t gw_sparse_select_scalar(uint32_t *positions, float *values, const void *x, size_t len,
                               gw_sparse_scan *scan)
{
    return gw_sparse_select_values(positions, values, x, 0, len, scan, 0);
}
