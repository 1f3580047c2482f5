/*
 * Precision maps of all optimizers against the CPU.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

gw_gcomp_map_rule make_rule(gw_optimizer_kind kind)
{
    const gw_optimizer o = make_optimizer(kind);
    gw_gcomp_map_rule rule;
    must(gw_gcomp_map_rule_init(&o, 8.0f, NULL, &rule), "gw_gcomp_map_rule_init");
    return rule;
}

void run_map(size_t len, uint64_t seed)
{
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        const gw_gcomp_map_rule rule = make_rule((gw_optimizer_kind)kind);
        float *array[4];
        uint64_t random = seed + kind;
        char name[32];
        uint32_t base;

        snprintf(name, sizeof name, "map of optimizer %u", kind);
        for (int i = 0; i < 4; i++) {
            begin_case(name, "random values");
            array[i] = take(4 * len);
            fill(array[i], GW_FP32, len, 1, &random);
        }
        const gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
        free(compare_map(&rule, &s, len, 0, name, &base));
        for (int i = 0; i < 4; i++) {
            free(array[i]);
        }
    }
}
