/*
 * One gradient, packed and unpacked: a precision map from parameters under plain SGD, a frame, the values
 * back.
 *
 *   cc -std=c11 -Iinclude examples/gcomp_minimal.c -lgradwire
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gradwire/gcomp.h"

enum { LEN = 100000 };

static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_status_message(status));
        exit(1);
    }
}

int main(void)
{
    static float param[LEN], grad[LEN], back[LEN];
    static uint8_t map_bytes[LEN];
    for (int i = 0; i < LEN; i++) { /* parameters of about 0.1, gradients of about 1e-4, every fifth zero */
        param[i] = 0.1f * (float)(i % 201 - 100) / 100.0f;
        grad[i] = i % 5 == 0 ? 0.0f : 1e-4f * (float)((i * 7919) % 1001 - 500) / 500.0f;
    }

    /* Once a step: how many mantissa bits of each gradient can the update not feel? */
    const gw_optimizer sgd = {.kind = GW_OPTIMIZER_SGD, .step = 1, .lr = 0.1};
    const gw_optimizer_state state = {.param = param};
    gw_gcomp_map_rule rule;
    uint32_t top;
    must(gw_gcomp_map_rule_init(&sgd, 1.0f, NULL, &rule), "rule");
    must(gw_gcomp_map_scan(&rule, &state, LEN, GW_BACKEND_ALL, &top), "scan");
    const uint32_t base = gw_gcomp_map_base(top);
    must(gw_gcomp_map_build(&rule, &state, LEN, base, GW_BACKEND_ALL, map_bytes), "map");
    const gw_gcomp_map map = {.bytes = map_bytes, .base = base, .wire_scale = 1.0f, .len = LEN};

    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    gw_gcomp codec;
    must(gw_gcomp_init(&codec, &options), "init");

    /* All memory is the caller's. */
    gw_workspace workspace = {.size = gw_gcomp_workspace_size(&codec)};
    gw_buffer dst = {.capacity = gw_gcomp_frame_bound(&codec, LEN)};
    workspace.data = malloc(workspace.size);
    dst.data = malloc(dst.capacity);
    if (workspace.data == NULL || dst.data == NULL) {
        return 1;
    }
    const gw_gcomp_source source = {.values = grad, .len = LEN, .quantum = gw_gcomp_quantum_of_map(&map)};
    must(gw_gcomp_encode(&codec, &source, &dst, &workspace), "encode");

    const gw_gcomp_frame frame = {.data = dst.data, .size = dst.size};
    gw_gcomp_target target = {.values = back, .capacity = LEN};
    must(gw_gcomp_decode(&codec, &frame, &target, &workspace), "decode");

    double worst = 0.0; /* of |theta(decoded) - theta(exact)| / |theta|, in units of 2^-23 */
    for (int i = 0; i < LEN; i++) {
        const double change = sgd.lr * ((double)back[i] - (double)grad[i]);
        const double error =
            (change < 0 ? -change : change) / ((param[i] < 0 ? -param[i] : param[i]) + 1e-30);
        worst = error > worst ? error : worst;
    }
    printf("%d values, %zu bytes: %.1f %% of fp32; the update moves by at most %.2f * 2^-23 of a parameter\n",
           LEN, dst.size, 100.0 * (double)dst.size / (4.0 * LEN), worst * 8388608.0);
    free(workspace.data);
    free(dst.data);
    return target.len == LEN && worst * 8388608.0 <= 2.0 ? 0 : 1;
}
