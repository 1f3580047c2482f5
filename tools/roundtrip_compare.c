/*
 * One pass over the values in double. The bound of each value is computed from its map byte, deliberately
 * without code of the library's encoder.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "roundtrip_compare.h"

#include "dtype_convert.h"
#include "optimizer_update.h"

#include <math.h>
#include <string.h>

typedef struct value_rule {
    gw_dtype dtype;
    int mantissa_bits;
    int exponent_bias;
    int strict;
    gw_gcomp_rounding rounding;
    uint32_t cap;
    const uint8_t *levels; /* NULL: cap for every value */
    int drop_base;
} value_rule;

static void value_rule_init(value_rule *rule, const gw_tensor_input *tensor, const gw_gcomp_info *info)
{
    const gw_gcomp_options *options = &tensor->options;
    rule->dtype = tensor->dtype;
    rule->mantissa_bits = (int)gw_dtype_mantissa_bits(tensor->dtype);
    rule->exponent_bias = tensor->dtype == GW_FP16 ? 15 : 127;
    rule->strict = info->strict;
    rule->rounding = options->rounding;
    rule->cap = info->cap;
    rule->levels = tensor->map.levels;
    /* t = K + drop_base - G. Gradients with w mantissa bits for parameters with p lose w - p bits more than
       the map tells. */
    rule->drop_base =
        (int)tensor->map.map.base - 1 + 4 * (rule->mantissa_bits - (int)options->tolerance_bits);
    if (rule->levels == NULL && !info->constant) {
        /* Explicit frames without a map: constant_drop, clipped to cap and rounded down to the step. */
        const uint32_t drop = options->constant_drop < info->cap ? options->constant_drop : info->cap;
        rule->cap = drop - drop % info->step;
    }
}

/* Largest number of mantissa bits that this value may lose. */
static uint32_t value_drop_max(const value_rule *rule, uint64_t index, double value)
{
    if (rule->levels == NULL) {
        return rule->cap;
    }
    if (rule->levels[index] == 0) {
        return 0;
    }
    /* G: exponent (fp32's bias) and top two mantissa bits. All three types are exact in fp32. */
    const float narrow = (float)fabs(value);
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    const int t = (int)rule->levels[index] + rule->drop_base - (int)(bits >> 21);
    const uint32_t drop = t < 4 ? 0 : (uint32_t)t / 4;
    return drop < rule->cap ? drop : rule->cap;
}

/* Whether y is a permitted result for x. *flushed: by a flush to +0. */
static int value_is_allowed(const value_rule *rule, uint64_t index, uint32_t x_bits, uint32_t y_bits,
                            int *flushed)
{
    const double x = gw_dtype_value(rule->dtype, x_bits);
    const double y = gw_dtype_value(rule->dtype, y_bits);
    *flushed = 0;
    if (x_bits == y_bits) {
        return 1;
    }
    if (isnan(x)) {
        return isnan(y) && !rule->strict;
    }
    if (!isfinite(x) || !isfinite(y)) {
        return 0;
    }
    const uint32_t magnitude_bits = x_bits & (rule->dtype == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t exponent = magnitude_bits >> rule->mantissa_bits;
    if (exponent == 0 && (rule->dtype != GW_FP16 || magnitude_bits == 0)) {
        *flushed = 1;
        return y_bits == 0 && !rule->strict;
    }
    const int scale = (exponent == 0 ? 1 : (int)exponent) - rule->exponent_bias;
    const int drop = (int)value_drop_max(rule, index, x);
    const double place = ldexp(1.0, scale + drop - rule->mantissa_bits);
    const double error = fabs(y - x);
    if (drop == 0) {
        return 0; /* no bit may differ */
    }
    const int sign_kept = y == 0 || signbit(x) == signbit(y);
    /* The error of nearest is at most half of the last kept place, except that values which would round up
     * out of the largest finite exponent are truncated. */
    const int may_truncate =
        rule->rounding != GW_GCOMP_NEAREST || scale == (rule->dtype == GW_FP16 ? 15 : 127);
    return sign_kept && (may_truncate ? error < place : error <= place / 2);
}

static uint32_t truncate_bits(gw_dtype dtype, uint32_t bits)
{
    const uint32_t drop = dtype == GW_FP32 ? 18 : (dtype == GW_BF16 ? 6 : 9);
    const uint32_t exponent_mask = dtype == GW_FP32 ? 0x7f800000u : (dtype == GW_BF16 ? 0x7f80u : 0x7c00u);
    return (bits & exponent_mask) == exponent_mask ? bits : bits >> drop << drop;
}

typedef struct deviation_sum {
    gw_deviation *deviation;
    double sum;
} deviation_sum;

static void deviation_add(deviation_sum *sum, double theta, double exact, double other, uint64_t index)
{
    const double difference = fabs(other - exact);
    if (difference == 0 || isnan(difference)) {
        return;
    }
    const double larger = fmax(fabs(theta), fabs(exact));
    if (larger > 0 && difference / larger > sum->deviation->max_larger) {
        sum->deviation->max_larger = difference / larger;
    }
    if (theta == 0) {
        sum->deviation->unbounded++;
        return;
    }
    const double relative = difference / fabs(theta);
    sum->sum += relative;
    if (relative > sum->deviation->max) {
        sum->deviation->max = relative;
        sum->deviation->max_index = index;
    }
}

static void parameters_compare(const gw_tensor_input *tensor, const void *decoded, float wire_scale,
                               gw_roundtrip *result)
{
    gw_optimizer_update update;
    const gw_optimizer_state *state = &tensor->snapshot.state;
    deviation_sum ours = {&result->deviation, 0};
    deviation_sum plain = {&result->truncated, 0};
    gw_optimizer_update_init(&update, &tensor->snapshot.optimizer);
    for (uint64_t i = 0; i < tensor->len; i++) {
        const uint32_t x_bits = gw_dtype_bits(tensor->dtype, tensor->values, i);
        const double x = gw_dtype_value(tensor->dtype, x_bits);
        if (!isfinite(x)) {
            continue;
        }
        const double y = gw_dtype_value(tensor->dtype, gw_dtype_bits(tensor->dtype, decoded, i));
        const double truncated = gw_dtype_value(tensor->dtype, truncate_bits(tensor->dtype, x_bits));
        const double theta = (double)state->param[i];
        const double scale = (double)wire_scale;
        const double exact = gw_optimizer_update_param(&update, state, i, x / scale);
        if (y != x) {
            deviation_add(&ours, theta, exact, gw_optimizer_update_param(&update, state, i, y / scale), i);
        }
        if (truncated != x) {
            deviation_add(&plain, theta, exact,
                          gw_optimizer_update_param(&update, state, i, truncated / scale), i);
        }
    }
    result->deviation.mean = tensor->len == 0 ? 0 : ours.sum / (double)tensor->len;
    result->truncated.mean = tensor->len == 0 ? 0 : plain.sum / (double)tensor->len;
    result->has_deviation = 1;
}

void gw_roundtrip_compare(const gw_tensor_input *tensor, const gw_gcomp_info *info, const void *decoded,
                          float wire_scale, gw_roundtrip *result)
{
    memset(result, 0, sizeof *result);
    value_rule rule;
    value_rule_init(&rule, tensor, info);
    double error_sum = 0;
    double magnitude_sum = 0;
    double shift_sum = 0;
    uint64_t counted = 0;
    for (uint64_t i = 0; i < tensor->len; i++) {
        const uint32_t x_bits = gw_dtype_bits(tensor->dtype, tensor->values, i);
        const uint32_t y_bits = gw_dtype_bits(tensor->dtype, decoded, i);
        int flushed = 0;
        if (!value_is_allowed(&rule, i, x_bits, y_bits, &flushed)) {
            result->beyond_index = result->beyond == 0 ? i : result->beyond_index;
            result->beyond++;
        }
        result->changed += x_bits != y_bits;
        result->flushed += (uint64_t)flushed;
        const double x = gw_dtype_value(tensor->dtype, x_bits);
        const double y = gw_dtype_value(tensor->dtype, y_bits);
        if (isfinite(x) && isfinite(y) && x != 0) {
            const double relative = fabs(y - x) / fabs(x);
            error_sum += relative;
            magnitude_sum += fabs(x);
            shift_sum += fabs(y) - fabs(x);
            counted++;
            if (relative > result->error_max) {
                result->error_max = relative;
            }
        }
    }
    result->error_mean = counted == 0 ? 0 : error_sum / (double)counted;
    result->bias = magnitude_sum == 0 ? 0 : shift_sum / magnitude_sum;
    if (tensor->is_snapshot) {
        parameters_compare(tensor, decoded, wire_scale, result);
    }
}
