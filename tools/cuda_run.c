/* SPDX-License-Identifier: BSD-2-Clause */
#include "cuda_run.h"

#include "cuda_device.h"

static cuda_device device;
static gw_cuda cuda;
static int is_on;

static void close_all(void)
{
    gw_cuda_close(&cuda);
    cuda_device_close(&device);
    is_on = 0;
}

gw_status gw_cuda_run_open(void)
{
    if (is_on) {
        return GW_OK;
    }
    if (!gw_cuda_is_built()) {
        return GW_ERR_NO_CUDA_BUILD;
    }
    gw_status status = cuda_device_open(&device, 0);
    if (status == GW_OK) {
        status = gw_cuda_init(&cuda);
    }
    if (status != GW_OK) {
        close_all();
        return status;
    }
    is_on = 1;
    return GW_OK;
}

int gw_cuda_run_is_on(void)
{
    return is_on;
}

/* Device memory of one call. */
enum { BLOCKS_MAX = 8 };

typedef struct space {
    void *block[BLOCKS_MAX];
    int count;
    int failed;
} space;

static void *take(space *s, const void *src, size_t size)
{
    void *p = cuda_device_take(&device, src, size);
    s->failed |= p == NULL;
    s->block[s->count++] = p;
    return p;
}

static void give_all(space *s)
{
    while (s->count > 0) {
        cuda_device_give(&device, s->block[--s->count]);
    }
}

/* Bytes of a value: what a frame's bound grows by, whose directory and padding are far less than a byte a
 * value. */
static size_t element_size_of(const gw_gcomp *codec)
{
    enum { LEN = 1 << 15 };
    return (gw_gcomp_frame_bound(codec, 2 * LEN) - gw_gcomp_frame_bound(codec, LEN)) / LEN;
}

/* The map with its arrays on the device; NULL stays NULL. */
static const gw_gcomp_map *take_map(space *s, gw_gcomp_map *out, const gw_gcomp_map *map)
{
    if (map == NULL) {
        return NULL;
    }
    const uint64_t chunks = (map->len >> map->chunk_log2) + 1;
    *out = *map;
    out->bytes = take(s, map->bytes, (size_t)map->len);
    if (map->digest != NULL) {
        const size_t used =
            (size_t)((map->len + (((uint64_t)1 << map->chunk_log2) - 1)) >> map->chunk_log2) * 4;
        uint32_t *digest = take(s, NULL, (size_t)chunks * 4);
        s->failed |= digest == NULL || cuda_device_put(&device, digest, map->digest, used) != 0;
        out->digest = digest;
    }
    return out;
}

gw_status gw_cuda_run_encode(const gw_gcomp *codec, const gw_gcomp_source *source, void *dst,
                             size_t dst_capacity, size_t *dst_size)
{
    space s = {{NULL}, 0, 0};
    gw_gcomp_map map;
    gw_gcomp_source on_device = *source;
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    const size_t workspace_size = gw_cuda_gcomp_encode_workspace_size(codec, 1, source->len);
    gw_cuda_result r;

    *dst_size = 0;
    if (dst_capacity < bound || bound == 0) {
        return GW_ERR_DST;
    }
    on_device.values = take(&s, source->values, (size_t)source->len * element_size_of(codec));
    on_device.quantum = gw_gcomp_quantum_of_map(take_map(&s, &map, source->quantum.map));
    void *frame = take(&s, NULL, bound);
    void *workspace = take(&s, NULL, workspace_size);
    gw_cuda_result *result = take(&s, NULL, sizeof *result);
    gw_status status =
        s.failed
            ? GW_ERR_DEVICE
            : gw_cuda_gcomp_encode(&cuda, codec, &on_device, &(gw_cuda_buffer){frame, bound},
                                   &(gw_cuda_gcomp_request){NULL, result, {workspace, workspace_size}, NULL});
    if (status == GW_OK && cuda_device_get(&device, &r, result, sizeof r) != 0) {
        status = GW_ERR_DEVICE;
    }
    if (status == GW_OK) {
        status = (gw_status)r.status;
    }
    if (status == GW_OK && (r.size > bound || cuda_device_get(&device, dst, frame, (size_t)r.size) != 0)) {
        status = GW_ERR_DEVICE;
    }
    if (status == GW_OK) {
        *dst_size = (size_t)r.size;
    }
    give_all(&s);
    return status;
}

gw_status gw_cuda_run_decode(const gw_gcomp *codec, const void *src, size_t src_size, const gw_gcomp_map *map,
                             void *dst, uint64_t dst_capacity, uint64_t *len, uint64_t *bad_chunk)
{
    space s = {{NULL}, 0, 0};
    gw_gcomp_map map_memory;
    const size_t workspace_size = gw_cuda_gcomp_decode_workspace_size(codec, 1, dst_capacity);
    const size_t dst_size = (size_t)dst_capacity * element_size_of(codec);
    gw_cuda_result r;

    *len = 0;
    *bad_chunk = UINT64_MAX;
    const void *frame = take(&s, src, src_size);
    const gw_gcomp_map *on_device = take_map(&s, &map_memory, map);
    void *values = take(&s, dst, dst_size);
    void *workspace = take(&s, NULL, workspace_size);
    gw_cuda_result *result = take(&s, NULL, sizeof *result);
    gw_status status =
        s.failed
            ? GW_ERR_DEVICE
            : gw_cuda_gcomp_decode(&cuda, codec, &(gw_cuda_gcomp_frame){frame, src_size, NULL, on_device},
                                   &(gw_cuda_gcomp_target){values, dst_capacity, 0},
                                   &(gw_cuda_gcomp_request){NULL, result, {workspace, workspace_size}, NULL});
    if (status == GW_OK && (cuda_device_get(&device, &r, result, sizeof r) != 0 ||
                            cuda_device_get(&device, dst, values, dst_size) != 0)) {
        status = GW_ERR_DEVICE;
    }
    if (status == GW_OK) {
        *len = r.len;
        *bad_chunk = r.bad_index;
        status = (gw_status)r.status;
    }
    give_all(&s);
    return status;
}
