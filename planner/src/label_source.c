/*
 * The vectors that a message may use.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "label_source.h"

#include "wide.h"

gw_plan_tick gw_label_penalty(const gw_label_source *source, int64_t rate, uint32_t method, int64_t len)
{
    if (rate == 0) {
        return 0;
    }
    const gw_plan_tick penalty =
        gw_mul_shift(source->problem->methods[method].error * len, rate, GW_RATE_SHIFT);
    return gw_tick_min(penalty, GW_PLAN_TICK_MAX / 16 / source->tensor_count);
}

uint32_t gw_label_vectors(const gw_label_source *source, uint32_t first, uint32_t end, uint32_t forbidden,
                          gw_plan_vector *scratch, const gw_plan_vector **vectors)
{
    if (source->tree != NULL) {
        uint32_t class_index = source->tree->tensor_class[first];
        *vectors = source->tree->vectors + source->tree->class_first[class_index];
        return source->tree->class_first[class_index + 1] - source->tree->class_first[class_index];
    }
    const gw_plan_problem *problem = source->problem;
    int64_t len = source->len_sum[end] - source->len_sum[first];
    uint32_t count = 0;
    forbidden |= source->masked;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        if ((forbidden >> m & 1u) != 0) {
            continue;
        }
        gw_plan_vector *vector = &scratch[count++];
        gw_method_vector(&problem->methods[m], len, vector);
        vector->option = m;
        vector->net += gw_label_penalty(source, source->net_rate, m, len);
    }
    *vectors = scratch;
    return count;
}
