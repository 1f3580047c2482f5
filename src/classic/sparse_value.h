/*
 * Selection, momentum and squares, one value at a time: the scalar kernels do all values so, vector kernels
 * those after their last whole register. Contracts: core/classic_sparse_kernels.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SPARSE_VALUE_H
#define GW_SPARSE_VALUE_H

#include "core/classic_sparse_kernels.h"
#include "thc/thc_float.h"

static inline uint32_t gw_sparse_load(const void *src, size_t i)
{
    uint32_t bits;
    GW_MEMCPY(&bits, (const uint8_t *)src + i * sizeof bits, sizeof bits);
    return bits;
}

static inline void gw_sparse_store(void *dst, size_t i, float value)
{
    GW_MEMCPY((uint8_t *)dst + i * sizeof value, &value, sizeof value);
}

/* Values [i, len); `count` were found before. Stores are unconditional: whether a value counts is hard to
 * predict. */
static inline size_t gw_sparse_select_values(uint32_t *positions, float *values, const void *x, size_t i,
                                             size_t len, gw_sparse_scan *scan, size_t count)
{
    const uint32_t bound = scan->bound;
    uint32_t largest = scan->largest;
    for (; i < len; i++) {
        const uint32_t bits = gw_sparse_load(x, i), magnitude = bits & GW_F32_ABS;
        positions[count] = scan->first + (uint32_t)i;
        values[count] = gw_f32_flush(gw_float_from_bits(bits));
        count += magnitude >= bound;
        largest = magnitude > largest ? magnitude : largest;
    }
    scan->largest = largest;
    return count;
}

static inline void gw_sparse_momentum_values(uint8_t *u_next, uint8_t *v_next, const uint8_t *u, const uint8_t *v,
                                             const float *x, size_t i, size_t len, const gw_sparse_step *step)
{
    const float m = step->momentum;
    for (; i < len; i++) {
        const float y = step->factor == 1.0f ? x[i] : gw_f32_flush(x[i] * step->factor);
        const float old = gw_f32_flush(gw_float_from_bits(gw_sparse_load(u, i)));
        const float w = gw_f32_flush(gw_f32_flush(m * old) + y);
        const float add = step->nesterov != 0 ? gw_f32_flush(gw_f32_flush(m * w) + y) : w;
        const float rest = gw_f32_flush(gw_float_from_bits(gw_sparse_load(v, i)));
        gw_sparse_store(u_next, i, w);
        gw_sparse_store(v_next, i, gw_f32_flush(rest + add));
    }
}

static inline void gw_sparse_squares_values(double sums[GW_SPARSE_SUMS], const float *x, size_t i, size_t len)
{
    for (; i < len; i++) {
        sums[i % GW_SPARSE_SUMS] += (double)x[i] * (double)x[i];
    }
}

#endif
