/*
 * Bad kernels of levels. Most call the scalar one, then change something small.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_bad.h"

/* The high word of the counter is that of the first group. */
static void random_forgets_carry(uint16_t *random, uint64_t first, size_t group_count,
                                 const gw_level_stream *stream)
{
    for (size_t g = 0; g < group_count; g++) {
        const uint64_t high = first & ~(((uint64_t)1 << 28) - 1);
        gw_level_random_scalar(random + 128 * g, high | ((first + g) & (((uint64_t)1 << 28) - 1)), 1, stream);
    }
}

static void random_swaps_halves(uint16_t *random, uint64_t first, size_t group_count,
                                const gw_level_stream *stream)
{
    gw_level_random_scalar(random, first, group_count, stream);
    for (size_t i = 0; i < 128 * group_count; i++) {
        if (i % 32 < 16) {
            const uint16_t low = random[i];
            random[i] = random[i + 16];
            random[i + 16] = low;
        }
    }
}

static uint32_t largest_reads_past_end(const float *x, size_t len)
{
    if (len % 16 == 15) {
        read_byte((const uint8_t *)(x + len));
    }
    return gw_level_largest_scalar(x, len);
}

static uint32_t largest_skips_nan(const float *x, size_t len)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < len; i++) {
        const uint32_t one = gw_level_largest_scalar(x + i, 1);
        largest = one > largest && one <= 0x7f800000u ? one : largest;
    }
    return largest;
}

/* Eight accumulators instead of sixteen. */
static void moments_other_order(gw_level_moments *moments, const float *x, size_t len)
{
    double lanes[8] = {0};
    gw_level_moments_scalar(moments, x, len);
    if (gw_level_largest_scalar(x, len) < 0x7f800000u) {
        gw_level_moments rest = {0, 0, 0};
        gw_level_moments_scalar(&rest, x, len);
        for (size_t i = 0; i < len; i++) {
            lanes[i % 8] += (double)x[i] * (double)x[i];
        }
        moments->squares -= rest.squares;
        moments->squares +=
            ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
}

static void moments_adds_nonfinite(gw_level_moments *moments, const float *x, size_t len)
{
    gw_level_moments_scalar(moments, x, len);
    if (moments->largest >= 0x7f800000u && len > 2) {
        moments->sum += 1;
    }
}

static void quantize_rounds_down(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                                 const gw_level_rule *rule)
{
    const float limit = (float)(rule->level_max << 16);
    gw_level_quantize_scalar(levels, x, random, len, rule);
    for (size_t i = 0; i < len; i++) {
        const float position = (x[i] < 0 ? -x[i] : x[i]) * rule->scale;
        const int level = (int)(((uint32_t)(position < limit ? position : limit) + random[i]) >> 16);
        levels[i] = (int8_t)(x[i] < 0 ? -level : level);
    }
}

static void quantize_exceeds_limit(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                                   const gw_level_rule *rule)
{
    gw_level_quantize_scalar(levels, x, random, len, rule);
    for (size_t i = 0; i < len; i++) {
        const float position = (x[i] < 0 ? -x[i] : x[i]) * rule->scale;
        if (position >= (float)(rule->level_max << 16) + 1.0f && random[i] == 65535 &&
            rule->level_max < 127) {
            levels[i] = (int8_t)(levels[i] + (x[i] < 0 ? -1 : 1));
        }
    }
}

static void quantize_writes_past_end(int8_t *levels, const float *x, const uint16_t *random, size_t len,
                                     const gw_level_rule *rule)
{
    gw_level_quantize_scalar(levels, x, random, len, rule);
    if (len % 32 == 17) {
        spoil((uint8_t *)levels + len);
    }
}

static void decode_treats_bytes_as_unsigned(float *dst, const int8_t *levels, size_t len, float step)
{
    gw_level_decode_scalar(dst, levels, len, step);
    for (size_t i = 0; i < len; i++) {
        dst[i] = levels[i] == -128 ? 128.0f * step : dst[i];
    }
}

const bad_kernel bad_level_kernels[] = {
    {"forgets the carry of counters", "level_random", (kc_fn)random_forgets_carry, KC_OUTPUT, 0},
    {"swaps the halves of words", "level_random", (kc_fn)random_swaps_halves, KC_OUTPUT, 0},
    {"the same in scalar itself", "level_random", (kc_fn)random_swaps_halves, KC_MODEL, 1},
    {"reads a value past the end", "level_largest", (kc_fn)largest_reads_past_end, KC_CRASH, 0},
    {"skips NaN", "level_largest", (kc_fn)largest_skips_nan, KC_OUTPUT, 0},
    {"adds in another order", "level_moments", (kc_fn)moments_other_order, KC_OUTPUT, 0},
    {"adds where a value is not finite", "level_moments", (kc_fn)moments_adds_nonfinite, KC_OUTPUT, 0},
    {"truncates positions", "level_quantize", (kc_fn)quantize_rounds_down, KC_OUTPUT, 0},
    {"the same in scalar itself", "level_quantize", (kc_fn)quantize_rounds_down, KC_MODEL, 1},
    {"exceeds the largest level", "level_quantize", (kc_fn)quantize_exceeds_limit, KC_OUTPUT, 0},
    {"writes past the end", "level_quantize", (kc_fn)quantize_writes_past_end, KC_CANARY | KC_CRASH, 0},
    {"mistakes the least byte", "level_decode", (kc_fn)decode_treats_bytes_as_unsigned, KC_OUTPUT, 0},
    {NULL, NULL, NULL, 0, 0},
};
