/*
 * Selection, momentum and squares, one value at a time: the scalar kernels do all values so, vector kernels
 * those after their last whole register. Contracts: core/classic_kernels.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SPARSE_VALUE_H
#define GW_SPARSE_VALUE_H

#include "core/classic_kernels.h"
#include "core/float_bits.h"

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

/* The least magnitude whose product with a factor in [0, 1] is at least 2^-126. The exact product of two fp32
 * numbers is an fp64 number; the first guess is off by one at most. */
static inline uint32_t gw_sparse_floor(float factor)
{
    if (gw_bits_from_float(factor) < GW_F32_MIN) {
        return GW_F32_INF;
    }
    uint32_t bits = gw_bits_from_float((float)(0x1p-126 / (double)factor));
    while (bits > GW_F32_MIN && (double)gw_float_from_bits(bits - 1) * (double)factor >= 0x1p-126) {
        bits--;
    }
    while ((double)gw_float_from_bits(bits) * (double)factor < 0x1p-126) {
        bits++;
    }
    return bits;
}

static inline void gw_sparse_step_make(gw_sparse_step *step, float momentum, float factor, int nesterov)
{
    step->momentum = momentum;
    step->factor = factor;
    step->momentum_floor = gw_sparse_floor(momentum);
    step->factor_floor = gw_sparse_floor(factor);
    step->nesterov = nesterov;
}

static inline float gw_sparse_product(float value, float factor, uint32_t floor_bits)
{
    return (gw_bits_from_float(value) & GW_F32_ABS) < floor_bits ? 0.0f : value * factor;
}

static inline void gw_sparse_momentum_values(uint8_t *u_next, uint8_t *v_next, const uint8_t *u,
                                             const uint8_t *v, const float *x, size_t i, size_t len,
                                             const gw_sparse_step *step)
{
    const float m = step->momentum;
    const uint32_t m_floor = step->momentum_floor;
    for (; i < len; i++) {
        const float y = gw_sparse_product(x[i], step->factor, step->factor_floor);
        const float old = gw_float_from_bits(gw_sparse_load(u, i));
        const float w = gw_f32_flush(gw_sparse_product(old, m, m_floor) + y);
        const float add = step->nesterov != 0 ? gw_f32_flush(gw_sparse_product(w, m, m_floor) + y) : w;
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
