/*
 * A caller's first program with the runtime: an all-reduce of one rank, whose messages go nowhere.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire/runtime.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEN = 100 };

int main(void)
{
    static float values[LEN];
    const gw_runtime_options options = {.thread_count = 1};
    gw_exchange_config config = {.shape = {.len = LEN, .rank_count = 1}};
    const gw_exchange_run run = {.values = values, .result = values};
    gw_exchange_info info;
    gw_runtime_event event = {0};
    gw_runtime *runtime;
    gw_exchange *exchange = NULL;
    gw_gcomp_options_init(&config.codec, GW_FP32);
    config.codec.quantum_mode = GW_GCOMP_CARRIED;
    config.codec.quantum = gw_gcomp_quantum_of_nmse(1e-3f);
    config.fallback_codec = config.codec;
    for (int i = 0; i < LEN; i++) {
        values[i] = (float)(i - 50) * 1e-3f;
    }
    if (gw_runtime_open(&options, &runtime) != GW_OK ||
        gw_exchange_open(runtime, &config, &exchange) != GW_OK) {
        return 1;
    }
    gw_exchange_info_get(exchange, &info);
    void *memory = malloc((size_t)info.memory_size);
    gw_exchange_memory(exchange, memory);
    if (memory == NULL || gw_exchange_start(exchange, &run) != GW_OK) {
        return 1;
    }
    while (event.kind != GW_RUNTIME_DONE && gw_runtime_wait(runtime, &event, 1, -1) == 1) {
    }
    gw_exchange_close(exchange);
    gw_runtime_close(runtime);
    free(memory);
    printf("values[0] = %g\n", (double)values[0]);
    return event.word != 0 || values[0] > -0.04f || values[0] < -0.06f;
}
