/*
 * Stages rotate and rotate back: the randomized Hadamard transform of one block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "core/philox.h"
#include "thc/thc_window.h"

#define GW_SIGNS_PER_COUNTER 128u

/*
 * Unscaled Walsh-Hadamard transform in ascending strides. The order is part of the format: fp32 adds do not
 * associate.
 */
static void butterfly(float *x, size_t len)
{
    for (size_t stride = 1; stride < len; stride *= 2) {
        for (size_t start = 0; start < len; start += 2 * stride) {
            for (size_t i = start; i < start + stride; i++) {
                float a = x[i];
                float b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
        }
    }
}

/* Word of 32 sign bits for values [32 * word, 32 * word + 32) of the 128 that `random` holds. */
static void block_signs(uint32_t random[4], size_t first, const gw_thc_stream *stream)
{
    gw_philox4x32(random, stream->seed, (uint32_t)(first / GW_SIGNS_PER_COUNTER), stream->block,
                  stream->round, GW_THC_DOMAIN_SIGNS);
}

static float apply_sign(float value, const uint32_t random[4], size_t i)
{
    uint32_t sign = (random[i / 32 % 4] >> (i % 32)) << 31;
    return gw_float_from_bits(gw_bits_from_float(value) ^ sign);
}

void gw_thc_rotate_scalar(float *dst, const float *src, size_t len, uint32_t exponent,
                          const gw_thc_stream *stream)
{
    uint32_t floor_bits = gw_thc_window_floor(exponent);
    float scale = gw_thc_window_scale(exponent);
    uint32_t random[4] = {0};

    for (size_t i = 0; i < len; i++) {
        if (i % GW_SIGNS_PER_COUNTER == 0) {
            block_signs(random, i, stream);
        }
        dst[i] = apply_sign(gw_thc_window(src[i], floor_bits, scale), random, i);
    }
    butterfly(dst, len);
}

void gw_thc_rotate_back_scalar(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    uint32_t floor_bits = gw_thc_back_floor(exponent);
    float scale = gw_float_from_bits(exponent << 23);
    uint32_t random[4] = {0};

    butterfly(y, len);
    for (size_t i = 0; i < len; i++) {
        if (i % GW_SIGNS_PER_COUNTER == 0) {
            block_signs(random, i, stream);
        }
        float value = apply_sign(y[i], random, i);
        y[i] = (gw_bits_from_float(value) & GW_F32_ABS) < floor_bits ? 0.0f : value * scale;
    }
}
