/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot.h"

/* Folder of the snapshots. */
static const char *folder(int *is_large)
{
    static char path[4096];
    const char *shared = getenv("GW_SHARED_DATA");
    snprintf(path, sizeof path, "%s/gradients",
             shared != NULL ? shared : GW_BENCH_SOURCE_DIR "/../shared/data");
    *is_large = access(path, R_OK) == 0;
    if (!*is_large) {
        snprintf(path, sizeof path, "%s/data/samples", GW_BENCH_SOURCE_DIR);
    }
    return path;
}

const char *gw_bench_data_kind(void)
{
    int is_large;
    folder(&is_large);
    return is_large ? "large snapshots" : "data/samples";
}

/* Makes the map of the snapshot, at the snapshot's length. */
static int make_map(gw_bench_data *data, const gw_snapshot *snapshot, uint8_t *map_bytes)
{
    gw_gcomp_map_rule rule;
    uint32_t top;
    const size_t len = (size_t)snapshot->len;
    if (gw_gcomp_map_rule_init(&snapshot->optimizer, 1.0f, NULL, &rule) != GW_OK ||
        gw_gcomp_map_scan(&rule, &snapshot->state, len, GW_BACKEND_ALL, &top) != GW_OK) {
        return 0;
    }
    data->map.base = gw_gcomp_map_base(top);
    data->map.wire_scale = 1.0f;
    return gw_gcomp_map_build(&rule, &snapshot->state, len, data->map.base, GW_BACKEND_ALL, map_bytes) ==
           GW_OK;
}

/* Repeats src. */
static void tile_map_bytes(uint8_t *dst, const uint8_t *src, size_t src_len, size_t len)
{
    for (size_t at = 0; at < len; at += src_len) {
        memcpy(dst + at, src, len - at < src_len ? len - at : src_len);
    }
}

/* Repeats src with other signs and other low mantissa bits each time, so that a
 * dictionary coder finds no repetition that the gradient does not have. */
static void tile_values(float *dst, const float *src, size_t src_len, size_t len)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i % src_len], 4);
        if (i >= src_len && bits << 1 != 0) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bits ^= (uint32_t)(state >> 33) & 0x80003fffu;
        }
        memcpy(&dst[i], &bits, 4);
    }
}

int gw_bench_load(gw_bench_data *data, const char *name, size_t len)
{
    char path[8192];
    gw_snapshot snapshot;
    const gw_snapshot_options options = {GW_NPY_U2_REFUSE, 1, (gw_optimizer_kind)0};
    memset(data, 0, sizeof *data);
    int is_large;
    snprintf(path, sizeof path, "%s/%s.json", folder(&is_large), name);
    gw_snapshot_open(&snapshot, path, &options);
    const size_t own = (size_t)snapshot.len;
    data->len = len == 0 ? own : len;
    uint8_t *map_bytes = (uint8_t *)malloc(own);
    data->values = (float *)malloc(data->len * sizeof *data->values);
    data->map_bytes = (uint8_t *)malloc(data->len);
    data->digest = (uint32_t *)malloc(((data->len >> 14) + 1) * sizeof *data->digest);
    int ok = map_bytes != NULL && data->values != NULL && data->map_bytes != NULL && data->digest != NULL &&
             make_map(data, &snapshot, map_bytes);
    if (ok) {
        tile_values(data->values, (const float *)snapshot.array[GW_SNAPSHOT_GRAD].values, own, data->len);
        tile_map_bytes(data->map_bytes, map_bytes, own, data->len);
        ok = gw_gcomp_map_digest(data->map_bytes, data->len, 14, data->digest) == GW_OK;
        data->map.bytes = data->map_bytes;
        data->map.digest = data->digest;
        data->map.len = data->len;
        data->map.chunk_log2 = 14;
    }
    free(map_bytes);
    gw_snapshot_close(&snapshot);
    if (!ok) {
        gw_bench_free(data);
    }
    return ok;
}

void gw_bench_free(gw_bench_data *data)
{
    free(data->values);
    free(data->map_bytes);
    free(data->digest);
    memset(data, 0, sizeof *data);
}
