/*
 * Levels of QSGD and TERNGRAD: random bits, norms, quantize, decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "classic/level_values.h"
#include "core/philox.h"

#define COUNTERS_PER_GROUP 16u

/* One counter serves elements l, l + 16, l + 32, ... of a group: with 16 counters in the lanes of a vector,
 * the halves of a word are the bits of 16 neighbouring elements. */
void gw_level_random_scalar(uint16_t *random, uint64_t first, size_t group_count,
                            const gw_level_stream *stream)
{
    for (size_t g = 0; g < group_count; g++, random += GW_LEVEL_GROUP_LEN) {
        const uint32_t low = gw_level_counter_low(first + g), high = gw_level_counter_high(first + g);
        for (uint32_t l = 0; l < COUNTERS_PER_GROUP; l++) {
            uint32_t word[4];
            gw_philox4x32(word, stream->seed, low + l, high, stream->round, stream->rank);
            for (uint32_t w = 0; w < 4; w++) {
                random[32 * w + l] = (uint16_t)word[w];
                random[32 * w + 16 + l] = (uint16_t)(word[w] >> 16);
            }
        }
    }
}

uint32_t gw_level_largest_scalar(const float *x, size_t len)
{
    return gw_level_largest_values(0, x, 0, len);
}

void gw_level_moments_scalar(gw_level_moments *moments, const float *x, size_t len)
{
    double sum[GW_LEVEL_LANES] = {0}, squares[GW_LEVEL_LANES] = {0};
    const uint32_t largest = gw_level_largest_values(0, x, 0, len);
    moments->largest = largest > moments->largest ? largest : moments->largest;
    if (largest >= GW_LEVEL_NONFINITE) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        const double value = (double)x[i];
        sum[i % GW_LEVEL_LANES] += value;
        squares[i % GW_LEVEL_LANES] += value * value; /* the product is exact */
    }
    for (size_t half = GW_LEVEL_LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            sum[j] += sum[j + half];
            squares[j] += squares[j + half];
        }
    }
    moments->sum += sum[0];
    moments->squares += squares[0];
}

void gw_level_quantize_scalar(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                              const gw_level_rule *rule)
{
    gw_level_quantize_values(levels, x, random, 0, len, rule);
}

void gw_level_decode_scalar(float *dst, const int8_t *levels, size_t len, float step)
{
    gw_level_decode_values(dst, levels, 0, len, step);
}
