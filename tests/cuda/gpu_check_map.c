/*
 * Precision maps of the seven optimizers against the CPU.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

void make_rule(unsigned kind, gw_gcomp_map_rule *rule)
{
    gw_optimizer o;

    memset(&o, 0, sizeof o);
    o.kind = (gw_optimizer_kind)kind;
    o.step = 100;
    o.lr = 0.001;
    o.momentum = 0.9;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.alpha = 0.99;
    o.eps = 1e-8;
    o.centered = o.amsgrad = 1;
    must(gw_gcomp_map_rule_init(&o, 8.0f, NULL, rule), "gw_gcomp_map_rule_init");
}

/* Top, levels and digests of an optimizer's state by both sides. Returns the CPU's levels, to be freed, and
 * their base. */
uint8_t *compare_map(const gw_gcomp_map_rule *rule, const gw_optimizer_state *s, size_t len, const char *name,
                     uint32_t *base)
{
    const uint32_t chunk_log2 = 14;
    const size_t chunks = (len >> chunk_log2) + 1;
    uint32_t top = 0, device_top_value = 0;

    begin_case(name, "map");
    uint8_t *levels = take(len), *device_levels = on_device(NULL, len);
    uint32_t *digest = take(4 * chunks), *device_digest = on_device(NULL, 4 * chunks),
             *device_top = on_device(NULL, 4);
    const gw_optimizer_state d = {
        on_device(s->param, 4 * len), s->m == NULL ? NULL : on_device(s->m, 4 * len),
        s->v == NULL ? NULL : on_device(s->v, 4 * len), s->a == NULL ? NULL : on_device(s->a, 4 * len)};
    must(gw_gcomp_map_scan(rule, s, len, cpu_backends, &top), "gw_gcomp_map_scan");
    *base = gw_gcomp_map_base(top);
    must(gw_gcomp_map_build(rule, s, len, *base, cpu_backends, levels), "gw_gcomp_map_build");
    must(gw_gcomp_map_digest(levels, len, chunk_log2, digest), "gw_gcomp_map_digest");
    must(gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){rule, NULL, &d, len}, device_top, NULL),
         "gw_cuda_gcomp_map_scan");
    must(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){rule, NULL, &d, len}, device_top,
                                 device_levels, NULL, NULL),
         "gw_cuda_gcomp_map_build");
    must(gw_cuda_gcomp_map_digest(&cuda, device_levels, len, chunk_log2, device_digest, NULL),
         "gw_cuda_gcomp_map_digest");
    fetch(&device_top_value, device_top, 4);
    expect(device_top_value == top, "top", name);
    expect_bytes(device_levels, levels, len, "levels", name);
    expect_bytes(device_digest, digest, 4 * ((len + (1u << chunk_log2) - 1) >> chunk_log2), "digests", name);
    free(digest);
    give((void *)(uintptr_t)d.param);
    give((void *)(uintptr_t)d.m);
    give((void *)(uintptr_t)d.v);
    give((void *)(uintptr_t)d.a);
    give(device_digest);
    give(device_top);
    give(device_levels);
    return levels;
}

void run_map(size_t len, uint64_t seed)
{
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
        gw_gcomp_map_rule rule;
        float *array[4];
        uint64_t random = seed + kind;
        char name[32];
        uint32_t base;

        snprintf(name, sizeof name, "map of optimizer %u", kind);
        make_rule(kind, &rule);
        for (int i = 0; i < 4; i++) {
            begin_case(name, "random values");
            array[i] = take(4 * len);
            fill(array[i], GW_FP32, len, 1, &random);
        }
        const gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
        free(compare_map(&rule, &s, len, name, &base));
        for (int i = 0; i < 4; i++) {
            free(array[i]);
        }
    }
}
