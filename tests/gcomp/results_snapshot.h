/*
 * What the results programs share: a snapshot with its map, and one encoded frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RESULTS_SNAPSHOT_H
#define GW_RESULTS_SNAPSHOT_H

#include <stdlib.h>
#include <string.h>

#include "gradwire/gcomp.h"
#include "snapshot.h"

typedef struct frame_run {
    gw_gcomp codec;
    gw_gcomp_map map;
    uint8_t *map_bytes;
    uint32_t *digest;
    gw_buffer frame;
    gw_workspace workspace;
} frame_run;

static inline void frame_run_free(frame_run *run)
{
    free(run->map_bytes);
    free(run->frame.data);
    free(run->workspace.data);
    free(run->digest);
    memset(run, 0, sizeof *run);
}

/* Map, digests and frame of one fp32 gradient, wire scale 1. 1, or 0 with nothing left allocated. */
static inline int frame_run_make(frame_run *run, const gw_gcomp_options *options,
                                 const gw_optimizer *optimizer, const gw_optimizer_state *state,
                                 const float *gradient, uint64_t len)
{
    memset(run, 0, sizeof *run);
    gw_gcomp_map_rule rule;
    uint32_t top;
    int ok = gw_gcomp_init(&run->codec, options) == GW_OK &&
             gw_gcomp_map_rule_init(optimizer, 1.0f, NULL, &rule) == GW_OK &&
             gw_gcomp_map_scan(&rule, state, (size_t)len, GW_BACKEND_ALL, &top) == GW_OK;
    run->frame.capacity = ok ? gw_gcomp_frame_bound(&run->codec, len) : 1;
    run->workspace.size = ok ? gw_gcomp_workspace_size(&run->codec) : 1;
    run->map_bytes = malloc((size_t)len + 1);
    run->digest = malloc(((size_t)len / 4096 + 1) * sizeof *run->digest);
    run->frame.data = malloc(run->frame.capacity);
    run->workspace.data = malloc(run->workspace.size);
    ok = ok && run->map_bytes != NULL && run->digest != NULL && run->frame.data != NULL &&
         run->workspace.data != NULL;
    if (ok) {
        run->map.bytes = run->map_bytes;
        run->map.digest = run->digest;
        run->map.base = gw_gcomp_map_base(top);
        run->map.wire_scale = 1.0f;
        run->map.len = len;
        run->map.chunk_log2 = options->chunk_log2;
        gw_gcomp_source source;
        memset(&source, 0, sizeof source);
        source.values = gradient;
        source.len = len;
        source.quantum = gw_gcomp_quantum_of_map(&run->map);
        source.seed = 1;
        source.step_index = (uint32_t)optimizer->step;
        ok = gw_gcomp_map_build(&rule, state, (size_t)len, run->map.base, GW_BACKEND_ALL, run->map_bytes) ==
                 GW_OK &&
             gw_gcomp_map_digest(run->map_bytes, (size_t)len, options->chunk_log2, run->digest) == GW_OK &&
             gw_gcomp_encode(&run->codec, &source, &run->frame, &run->workspace) == GW_OK;
    }
    if (!ok) {
        frame_run_free(run);
    }
    return ok;
}

static inline int snapshot_open(gw_snapshot *snapshot, const char *path)
{
    gw_snapshot_options options;
    memset(&options, 0, sizeof options);
    options.needs_grad = 1;
    gw_snapshot_open(snapshot, path, &options);
    return snapshot->array[GW_SNAPSHOT_GRAD].dtype == GW_FP32;
}

/* File name without folder and ".json". */
static inline const char *snapshot_name(const char *path, char *name, size_t name_size)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    size_t n = strlen(base);
    n = n > 5 && strcmp(base + n - 5, ".json") == 0 ? n - 5 : n;
    n = n < name_size ? n : name_size - 1;
    memcpy(name, base, n);
    name[n] = 0;
    return name;
}

#endif
