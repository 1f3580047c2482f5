/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot.h"

const char *gw_bench_folder(void)
{
    static char path[4096];
    const char *shared = getenv("GW_SHARED_DATA");
    snprintf(path, sizeof path, "%s/gradients", shared != NULL ? shared : GW_BENCH_SOURCE_DIR "/../shared/data");
    if (access(path, R_OK) != 0) {
        snprintf(path, sizeof path, "%s/data/samples", GW_BENCH_SOURCE_DIR);
    }
    return path;
}

/* Makes the map of the snapshot, for its own length. */
static int make_map(gw_bench_data *data, const gw_snapshot *snapshot, uint8_t *levels)
{
    gw_gcomp_map_rule rule;
    uint32_t top;
    const size_t len = (size_t)snapshot->len;
    if (gw_gcomp_map_rule_init(&snapshot->optimizer, 1.0f, &rule) != GW_OK ||
        gw_gcomp_map_scan(&rule, &snapshot->state, len, GW_BACKEND_ALL, &top) != GW_OK) {
        return 0;
    }
    data->map.base = gw_gcomp_map_base(top);
    data->map.wire_scale = 1.0f;
    return gw_gcomp_map_build(&rule, &snapshot->state, len, data->map.base, GW_BACKEND_ALL, levels) == GW_OK;
}

static void tile(void *dst, const void *src, size_t src_len, size_t len, size_t size)
{
    for (size_t at = 0; at < len; at += src_len) {
        const size_t part = len - at < src_len ? len - at : src_len;
        memcpy((char *)dst + at * size, src, part * size);
    }
}

int gw_bench_load(gw_bench_data *data, const char *name, size_t len)
{
    char path[8192];
    gw_snapshot snapshot;
    const gw_snapshot_options options = {GW_NPY_U2_REFUSE, 1, (gw_optimizer_kind)0};
    memset(data, 0, sizeof *data);
    snprintf(path, sizeof path, "%s/%s.json", gw_bench_folder(), name);
    if (gw_snapshot_open(&snapshot, path, &options) != 0) {
        return 0;
    }
    const size_t own = (size_t)snapshot.len;
    data->len = len == 0 ? own : len;
    uint8_t *levels = (uint8_t *)malloc(own);
    data->values = (float *)malloc(data->len * sizeof *data->values);
    data->levels = (uint8_t *)malloc(data->len);
    data->digest = (uint32_t *)malloc(((data->len >> 14) + 1) * sizeof *data->digest);
    int ok = levels != NULL && data->values != NULL && data->levels != NULL && data->digest != NULL &&
             make_map(data, &snapshot, levels);
    if (ok) {
        tile(data->values, snapshot.array[GW_SNAPSHOT_GRAD].values, own, data->len, sizeof *data->values);
        tile(data->levels, levels, own, data->len, 1);
        ok = gw_gcomp_map_digest(data->levels, data->len, 14, data->digest) == GW_OK;
        data->map.levels = data->levels;
        data->map.digest = data->digest;
        data->map.len = data->len;
        data->map.chunk_log2 = 14;
    }
    free(levels);
    gw_snapshot_close(&snapshot);
    if (!ok) {
        gw_bench_free(data);
    }
    return ok;
}

void gw_bench_free(gw_bench_data *data)
{
    free(data->values);
    free(data->levels);
    free(data->digest);
    memset(data, 0, sizeof *data);
}
