/*
 * Prints docs/results/gcomp-tiny.md: size and time of frames of 1 to 4096 values, and the memory that the
 * codec needs.
 *
 *   results_gcomp_tiny SNAPSHOT.json
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <time.h>

#include "results_snapshot.h"

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { REPEATS = 101, BATCH = 100 };

static int row(const gw_snapshot *s, uint64_t first, uint64_t len, gw_gcomp_quantum_mode quantum_mode,
               gw_gcomp_preset preset)
{
    const float *g = (const float *)s->array[GW_SNAPSHOT_GRAD].values + first;
    const gw_optimizer_state state = {s->state.param + first, s->state.m == NULL ? NULL : s->state.m + first,
                                      s->state.v == NULL ? NULL : s->state.v + first, NULL};
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.quantum_mode = quantum_mode;
    o.preset = preset;
    o.chunk_log2 = 12;
    frame_run run;
    if (!frame_run_make(&run, &o, &s->optimizer, &state, g, len)) {
        return 0;
    }
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = g;
    source.len = len;
    source.quantum = gw_gcomp_quantum_of_map(&run.map);
    float *out = malloc(len * sizeof *out);
    double encode[REPEATS], decode[REPEATS];
    int ok = out != NULL;
    for (int i = 0; ok && i < REPEATS; i++) {
        const double start = now();
        for (int j = 0; ok && j < BATCH; j++) {
            ok = gw_gcomp_encode(&run.codec, &source, &run.frame, &run.workspace) == GW_OK;
        }
        const double middle = now();
        for (int j = 0; ok && j < BATCH; j++) {
            gw_gcomp_target target = {.values = out, .capacity = len};
            ok = gw_gcomp_decode(
                     &run.codec,
                     &(gw_gcomp_frame){.data = run.frame.data, .size = run.frame.size, .map = &run.map},
                     &target, &run.workspace) == GW_OK;
        }
        decode[i] = (now() - middle) / BATCH;
        encode[i] = (middle - start) / BATCH;
    }
    if (ok) {
        qsort(encode, REPEATS, sizeof *encode, by_value);
        qsort(decode, REPEATS, sizeof *decode, by_value);
        printf("| %llu | %s, %s | %zu | %llu | %.1f %% | %.2f | %.2f |\n", (unsigned long long)len,
               quantum_mode == GW_GCOMP_DERIVED ? "derived 1" : "explicit",
               preset == GW_GCOMP_SMALL ? "small" : "fast", run.frame.size, (unsigned long long)len * 4,
               100.0 * (double)run.frame.size / (4.0 * (double)len), 1e6 * encode[REPEATS / 2],
               1e6 * decode[REPEATS / 2]);
    }
    free(out);
    frame_run_free(&run);
    return ok;
}

int main(int argc, char **argv)
{
    gw_snapshot snapshot;
    if (argc != 2 || !snapshot_open(&snapshot, argv[1])) {
        fprintf(stderr, "usage: results_gcomp_tiny SNAPSHOT.json\n");
        return 2;
    }
    char name[256];
    printf("# GCOMP: tiny tensors and memory\n\nMade by `bench/gcomp/results_gcomp`: the first values of %s, "
           "chunks of 2^12. Times are\n"
           "medians of %d runs of %d calls each, one thread, on a machine that was not "
           "idle.\n\n"
           "| values | frame | bytes | bytes as fp32 | of fp32 | encode, us | decode, us "
           "|\n|---|---|---|---|---|---|---|\n",
           snapshot_name(argv[1], name, sizeof name), REPEATS, BATCH);
    int ok = 1;
    static const uint64_t lens[] = {1, 64, 1024, 4096};
    for (size_t i = 0; ok && i < sizeof lens / sizeof lens[0]; i++) {
        for (int quantum_mode = 0; ok && quantum_mode < 2; quantum_mode++) {
            ok = row(&snapshot, 0, lens[i], (gw_gcomp_quantum_mode)quantum_mode, GW_GCOMP_FAST) &&
                 row(&snapshot, 0, lens[i], (gw_gcomp_quantum_mode)quantum_mode, GW_GCOMP_SMALL);
        }
    }
    gw_snapshot_close(&snapshot);
    printf("\nWorkspace of one call, in bytes (one per thread; it does not grow with the tensor):\n\n"
           "| dtype | workspace | handle |\n|---|---|---|\n");
    for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        static const char *const names[] = {"", "fp32", "bf16", "fp16"};
        gw_gcomp_options o;
        gw_gcomp codec;
        gw_gcomp_options_init(&o, (gw_dtype)dtype);
        ok = ok && gw_gcomp_init(&codec, &o) == GW_OK;
        printf("| %s | %zu | %zu |\n", names[dtype], gw_gcomp_workspace_size(&codec), sizeof codec);
    }
    return ok ? 0 : 1;
}
