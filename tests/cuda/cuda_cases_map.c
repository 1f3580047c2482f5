/* Precision maps against the CPU. SPDX-License-Identifier: BSD-2-Clause */
#include "cuda_cases.h"

#include <stdlib.h>
#include <string.h>

gw_optimizer make_optimizer(gw_optimizer_kind kind)
{
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.step = 100;
    o.lr = 0.001;
    o.momentum = 0.9;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.alpha = 0.99;
    o.eps = 1e-8;
    o.centered = o.amsgrad = 1;
    return o;
}

uint8_t *compare_map(const gw_gcomp_map_rule *rule, const gw_optimizer_state *s, size_t len, size_t offset,
                     const char *name, uint32_t *base)
{
    const uint32_t chunk_log2 = 14;
    const size_t chunks = (len + (1u << chunk_log2) - 1) >> chunk_log2;
    const unsigned long mark = device_mark();
    uint32_t top = 0;

    begin_case(name, "map");
    uint8_t *map_bytes = take(len);
    uint32_t *digest = take(4 * chunks);
    must(gw_gcomp_map_scan(rule, s, len, cpu_backends, &top), "gw_gcomp_map_scan");
    *base = gw_gcomp_map_base(top);
    must(gw_gcomp_map_build(rule, s, len, *base, cpu_backends, map_bytes), "gw_gcomp_map_build");
    must(gw_gcomp_map_digest(map_bytes, len, chunk_log2, digest), "gw_gcomp_map_digest");
    const gw_optimizer_state d = {s->param == NULL ? NULL : on_device_at(s->param, 4 * len, offset),
                                  s->m == NULL ? NULL : on_device(s->m, 4 * len),
                                  s->v == NULL ? NULL : on_device(s->v, 4 * len),
                                  s->a == NULL ? NULL : on_device(s->a, 4 * len)};
    for (int is_rule_on_device = 0; is_rule_on_device < 2; is_rule_on_device++) {
        gw_gcomp_map_rule given = *rule;
        uint32_t *device_top = on_device(NULL, 4), *device_base = on_device(NULL, 4);
        uint8_t *device_map_bytes = on_device_at(NULL, len, is_rule_on_device ? 1 : offset);
        uint32_t *device_digest = on_device(NULL, 4 * chunks);
        if (is_rule_on_device) {
            given.p_param = given.noise = 0.0f; /* only kind, uses and limits count */
        }
        const gw_cuda_gcomp_map_input in = {&given, is_rule_on_device ? on_device(rule, sizeof *rule) : NULL,
                                            &d, len};
        must(gw_cuda_gcomp_map_scan(&cuda, &in, device_top, NULL), "gw_cuda_gcomp_map_scan");
        must(gw_cuda_gcomp_map_build(&cuda, &in, device_top, device_map_bytes, device_base, NULL),
             "gw_cuda_gcomp_map_build");
        must(gw_cuda_gcomp_map_digest(&cuda, device_map_bytes, len, chunk_log2, device_digest, NULL),
             "gw_cuda_gcomp_map_digest");
        expect_bytes(device_top, &top, 4, "top", name);
        expect_bytes(device_base, base, 4, "base", name);
        expect_bytes(device_map_bytes, map_bytes, len, "map_bytes", name);
        expect_bytes(device_digest, digest, 4 * chunks, "digests", name);
    }
    give_since(mark);
    free(digest);
    return map_bytes;
}
