/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L /* posix_memalign() */
#include "gcomp_shim.h"

#include <stdlib.h>

static void *alloc_aligned(size_t size)
{
    void *place = NULL;
    if (posix_memalign(&place, 256, size != 0 ? size : 1) != 0) {
        abort();
    }
    return place;
}

static void *copy_aligned(const void *bytes, size_t size)
{
    void *copy = alloc_aligned(size);
    if (size != 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

static void fill_decode_item(gw_cuda_gcomp_item *item, const gcomp_shim_source *source, const void *frame,
                             void *dst, uint64_t capacity, gw_cuda_result *result)
{
    memset(item, 0, sizeof *item);
    item->src = frame;
    item->src_size = source->size;
    item->dst = dst;
    item->dst_capacity = capacity;
    item->addend = source->addend;
    item->scale = source->scale;
    item->result = result;
    if (source->map != NULL) {
        item->map_bytes = source->map->bytes;
        item->digest = source->map->digest;
        item->map_len = source->map->len;
    }
}

gw_cuda_result gcomp_shim_decode(const gw_gcomp *codec, const gcomp_shim_source *source, uint32_t mode,
                                 void *dst, uint64_t capacity, uint32_t shared_size_max)
{
    gw_gcomp_decode_params params;
    gw_cuda_launches launches;
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, shared_size_max};
    memset(&params, 0, sizeof params);
    memset(&result, 0x77, sizeof result);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.work.map, source->map, NULL);
    params.mode = mode;
    params.work.item_count = 1;
    void *frame = copy_aligned(source->frame, source->size);
    fill_decode_item(&params.work.item, source, frame, dst, capacity, &result);
    const size_t workspace_size = gw_cuda_decode_workspace_size(1, capacity);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_decode(&launches, &params, capacity, &shape, workspace);
    shim_launches_run(&launches, workspace);
    free(workspace);
    free(frame);
    return result;
}

gw_cuda_result gcomp_shim_add_frames(const gw_gcomp *codec, const gcomp_shim_source *frames, uint32_t count,
                                     const gw_gcomp_target *target, uint32_t shared_size_max)
{
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, shared_size_max};
    gw_gcomp_decode_params params;
    memset(&result, 0x77, sizeof result);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    const size_t workspace_size = gw_cuda_sum_workspace_size(&params.work.codec, target->capacity);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    for (uint32_t i = 0; i < count; i++) {
        gw_cuda_launches launches;
        memset(&params, 0, sizeof params);
        gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
        gw_cuda_map_fill(&params.work.map, frames[i].map, NULL);
        void *frame = copy_aligned(frames[i].frame, frames[i].size);
        fill_decode_item(&params.work.item, &frames[i], frame, target->values, target->capacity, &result);
        params.work.item.scale = target->scale;
        params.sum.index = i;
        gw_cuda_launches_sum(&launches, &params, count, &shape, workspace);
        shim_launches_run(&launches, workspace);
        free(frame);
    }
    free(workspace);
    return result;
}

static void fill_encode_item(gw_cuda_gcomp_item *item, const gw_gcomp_source *source, void *dst,
                             size_t capacity, gw_cuda_result *result)
{
    memset(item, 0, sizeof *item);
    item->src = source->values;
    item->src_size = source->len;
    item->dst = dst;
    item->dst_capacity = capacity;
    item->first_element = source->first_element;
    item->result = result;
    item->map_bytes = source->quantum.blocks; /* carried only */
    if (source->quantum.map != NULL) {
        item->map_bytes = source->quantum.map->bytes;
        item->digest = source->quantum.map->digest;
        item->map_len = source->quantum.map->len;
    }
}

static gw_cuda_gcomp_key key_of(const gw_gcomp_source *source)
{
    const gw_cuda_gcomp_key key = {source->seed, source->step_index, source->rank, source->hop};
    return key;
}

/* The workspace for the segments of a source, NULL if it has none. */
static void *fill_segments(gw_gcomp_segment_params *params, const gw_cuda_codec *codec,
                           const gw_gcomp_source *source)
{
    if (source->segment_count == 0) {
        return NULL;
    }
    memset(params, 0, sizeof *params);
    params->segments = source->segments;
    params->segment_count = (uint32_t)source->segment_count;
    params->segment_offset = source->segment_offset;
    const size_t size = gw_cuda_segments_workspace_size(codec, params->segment_count, source->len);
    void *area = alloc_aligned(size);
    memset(area, 0xa5, size);
    return area;
}

gw_cuda_result gcomp_shim_encode(const gw_gcomp *codec, const gw_gcomp_source *source, void *dst,
                                 size_t capacity)
{
    gw_gcomp_encode_params params;
    gw_cuda_launches launches;
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, 227 * 1024};
    memset(&params, 0, sizeof params);
    memset(&result, 0x77, sizeof result);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.work.map, source->quantum.map, NULL);
    params.work.key = key_of(source);
    params.work.item_count = 1;
    void *frame = alloc_aligned(capacity);
    memset(frame, 0x3c, capacity);
    fill_encode_item(&params.work.item, source, frame, capacity, &result);
    const size_t workspace_size = gw_cuda_encode_workspace_size(&params.work.codec, 1, source->len);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_encode(&launches, &params, source->len, &shape, workspace);
    gw_gcomp_segment_params segments;
    void *area = fill_segments(&segments, &params.work.codec, source);
    if (area != NULL) {
        gw_cuda_launches_segments(&launches, &segments, &params, &params.work.item, &shape, area);
    }
    shim_launches_run(&launches, workspace);
    memcpy(dst, frame, capacity);
    free(area);
    free(workspace);
    free(frame);
    return result;
}

gw_cuda_result gcomp_shim_hop(const gw_gcomp *codec, const void *src, size_t src_size,
                              const gw_gcomp_map *src_map, const gw_gcomp_source *source, void *dst,
                              size_t capacity)
{
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    gw_cuda_launches launches;
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, 99 * 1024};
    memset(&in, 0, sizeof in);
    memset(&out, 0, sizeof out);
    memset(&result, 0x77, sizeof result);
    gw_cuda_codec_fill(&in.work.codec, gw_codec_of(codec));
    out.work.codec = in.work.codec;
    gw_cuda_map_fill(&in.work.map, src_map, NULL);
    gw_cuda_map_fill(&out.work.map, source->quantum.map, NULL);
    out.work.key = key_of(source);
    void *incoming = copy_aligned(src, src_size);
    void *frame = alloc_aligned(capacity);
    memset(frame, 0x3c, capacity);
    in.work.item.src = incoming;
    in.work.item.src_size = src_size;
    in.work.item.addend = source->values;
    if (src_map != NULL) {
        in.work.item.map_bytes = src_map->bytes;
        in.work.item.digest = src_map->digest;
        in.work.item.map_len = src_map->len;
    }
    fill_encode_item(&out.work.item, source, frame, capacity, &result);
    const size_t workspace_size = gw_cuda_hop_workspace_size(&out.work.codec, 1, source->len);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_hop(&launches, &in, &out, &shape, workspace);
    gw_gcomp_segment_params segments;
    void *area = fill_segments(&segments, &out.work.codec, source);
    if (area != NULL) {
        gw_cuda_launches_segments(&launches, &segments, &out, &in.work.item, &shape, area);
    }
    shim_launches_run(&launches, workspace);
    memcpy(dst, frame, capacity);
    free(area);
    free(workspace);
    free(incoming);
    free(frame);
    return result;
}

void gcomp_shim_encode_batch(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                             void *const *dst, const size_t *capacity, gw_cuda_result *results,
                             uint64_t value_total)
{
    gw_gcomp_encode_params params;
    gw_cuda_launches launches;
    const gw_cuda_shape shape = {2, 227 * 1024};
    gw_cuda_gcomp_item *items = (gw_cuda_gcomp_item *)alloc_aligned(count * sizeof *items);
    uint64_t total = 0;
    memset(&params, 0, sizeof params);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.work.map, sources[0].quantum.map, NULL);
    params.work.key = key_of(&sources[0]);
    params.work.item_count = count;
    params.work.items = items;
    for (uint32_t i = 0; i < count; i++) {
        void *frame = alloc_aligned(capacity[i]);
        memset(frame, 0x3c, capacity[i]);
        fill_encode_item(&items[i], &sources[i], frame, capacity[i], &results[i]);
        total += sources[i].len;
    }
    total = value_total != UINT64_MAX ? value_total : total;
    const size_t workspace_size = gw_cuda_encode_workspace_size(&params.work.codec, count, total);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_encode(&launches, &params, total, &shape, workspace);
    shim_launches_run(&launches, workspace);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(dst[i], items[i].dst, capacity[i]);
        free(items[i].dst);
    }
    free(workspace);
    free(items);
}

void gcomp_shim_decode_batch(const gw_gcomp *codec, const gcomp_shim_source *sources, uint32_t count,
                             void *const *dst, const uint64_t *capacity, gw_cuda_result *results,
                             uint64_t value_total)
{
    gw_gcomp_decode_params params;
    gw_cuda_launches launches;
    const gw_cuda_shape shape = {2, 99 * 1024};
    gw_cuda_gcomp_item *items = (gw_cuda_gcomp_item *)alloc_aligned(count * sizeof *items);
    uint8_t **frames = (uint8_t **)alloc_aligned(count * sizeof *frames);
    uint64_t total = 0;
    memset(&params, 0, sizeof params);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.work.map, sources[0].map, NULL);
    params.mode = GW_CUDA_DECODE_VALUES;
    params.work.item_count = count;
    params.work.items = items;
    for (uint32_t i = 0; i < count; i++) {
        frames[i] = (uint8_t *)copy_aligned(sources[i].frame, sources[i].size);
        fill_decode_item(&items[i], &sources[i], frames[i], dst[i], capacity[i], &results[i]);
        total += capacity[i];
    }
    total = value_total != UINT64_MAX ? value_total : total;
    const size_t workspace_size = gw_cuda_decode_workspace_size(count, total);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_decode(&launches, &params, total, &shape, workspace);
    shim_launches_run(&launches, workspace);
    for (uint32_t i = 0; i < count; i++) {
        free(frames[i]);
    }
    free(workspace);
    free(frames);
    free(items);
}

void gcomp_shim_hop_batch(const gw_gcomp *codec, const gcomp_shim_source *in, const gw_gcomp_source *sources,
                          uint32_t count, void *const *dst, const size_t *capacity, gw_cuda_result *results,
                          uint64_t value_total, gcomp_shim_tickets *tickets)
{
    gw_gcomp_hop_params params;
    gw_gcomp_decode_params decode;
    gw_gcomp_encode_params encode;
    gw_cuda_launches launches;
    const gw_cuda_shape shape = {2, 227 * 1024};
    gw_cuda_gcomp_hop *hops = (gw_cuda_gcomp_hop *)alloc_aligned(count * sizeof *hops);
    uint8_t **frames = (uint8_t **)alloc_aligned(count * sizeof *frames);
    uint64_t total = 0;
    memset(&params, 0, sizeof params);
    memset(&decode, 0, sizeof decode);
    memset(&encode, 0, sizeof encode);
    memset(hops, 0, count * sizeof *hops);
    memset(results, 0x77, count * sizeof *results);
    gw_cuda_codec_fill(&encode.work.codec, gw_codec_of(codec));
    decode.work.codec = encode.work.codec;
    gw_cuda_map_fill(&decode.work.map, in[0].map, NULL);
    gw_cuda_map_fill(&encode.work.map, sources[0].quantum.map, NULL);
    encode.work.key = key_of(&sources[0]);
    encode.work.item_count = count;
    params.hops = hops;
    for (uint32_t i = 0; i < count; i++) {
        frames[i] = (uint8_t *)copy_aligned(in[i].frame, in[i].size);
        hops[i].src = frames[i];
        hops[i].src_size = in[i].size;
        hops[i].values = sources[i].values;
        hops[i].len = sources[i].len;
        hops[i].first_element = sources[i].first_element;
        hops[i].dst = alloc_aligned(capacity[i]);
        hops[i].dst_capacity = capacity[i];
        memset(hops[i].dst, 0x3c, capacity[i]);
        if (in[i].map != NULL) {
            hops[i].src_map_bytes = in[i].map->bytes;
            hops[i].src_digest = in[i].map->digest;
            hops[i].src_map_len = in[i].map->len;
        }
        hops[i].map_bytes = sources[i].quantum.blocks;
        if (sources[i].quantum.map != NULL) {
            hops[i].map_bytes = sources[i].quantum.map->bytes;
            hops[i].digest = sources[i].quantum.map->digest;
            hops[i].map_len = sources[i].quantum.map->len;
        }
        hops[i].result = &results[i];
        total += sources[i].len;
    }
    total = value_total != UINT64_MAX ? value_total : total;
    const size_t workspace_size = gw_cuda_hop_workspace_size(&encode.work.codec, count, total);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_hop_batch(&launches, &params, &decode, &encode, total, &shape, workspace);
    if (tickets != NULL) {
        tickets->decode = &decode.head->ticket;
        tickets->encode = &encode.head->ticket;
    }
    shim_launches_run(&launches, workspace);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(dst[i], hops[i].dst, capacity[i]);
        free(hops[i].dst);
        free(frames[i]);
    }
    free(workspace);
    free(frames);
    free(hops);
}

void gcomp_shim_histogram_batch(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                                gw_cuda_gcomp_histogram *histogram, gw_cuda_result *results,
                                const uint64_t **ticket)
{
    gw_gcomp_histogram_params params;
    gw_cuda_launches launches;
    const gw_cuda_shape shape = {1, 99 * 1024};
    gw_cuda_gcomp_item *items = (gw_cuda_gcomp_item *)alloc_aligned(count * sizeof *items);
    uint64_t total = 0;
    memset(&params, 0, sizeof params);
    memset(results, 0x77, count * sizeof *results);
    gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.work.map, sources[0].quantum.map, NULL);
    params.work.key = key_of(&sources[0]);
    params.work.item_count = count;
    params.work.items = items;
    for (uint32_t i = 0; i < count; i++) {
        fill_encode_item(&items[i], &sources[i], histogram, 0, &results[i]);
        total += sources[i].len;
    }
    const size_t workspace_size = gw_cuda_histogram_workspace_size(count);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_launches_histogram(&launches, &params, total, &shape, workspace);
    if (ticket != NULL) {
        *ticket = &params.head->ticket;
    }
    shim_launches_run(&launches, workspace);
    free(workspace);
    free(items);
}

gw_cuda_result gcomp_shim_codebook(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                                   uint8_t *codebook)
{
    gw_cuda_gcomp_histogram histogram;
    gw_cuda_launches launches;
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, 99 * 1024};
    memset(&histogram, 0, sizeof histogram);
    void *workspace = alloc_aligned(gw_cuda_histogram_workspace_size(0));
    for (uint32_t i = 0; i < count; i++) {
        gw_gcomp_histogram_params params;
        memset(&params, 0, sizeof params);
        gw_cuda_codec_fill(&params.work.codec, gw_codec_of(codec));
        gw_cuda_map_fill(&params.work.map, sources[i].quantum.map, NULL);
        params.work.key = key_of(&sources[i]);
        fill_encode_item(&params.work.item, &sources[i], &histogram, 0, &result);
        memset(workspace, 0xa5, gw_cuda_histogram_workspace_size(0));
        gw_gcomp_segment_params segments;
        void *area = fill_segments(&segments, &params.work.codec, &sources[i]);
        if (area != NULL) {
            gw_cuda_launches_histogram_segments(&launches, &segments, &params, &shape, workspace, area);
        } else {
            gw_cuda_launches_histogram(&launches, &params, sources[i].len, &shape, workspace);
        }
        shim_launches_run(&launches, workspace);
        free(area);
    }
    gw_gcomp_codebook_build_params build;
    memset(&build, 0, sizeof build);
    build.dtype = (uint32_t)gw_codec_of(codec)->options.dtype;
    build.quantum_mode = (uint32_t)gw_codec_of(codec)->options.quantum_mode;
    build.histogram = &histogram;
    build.codebook = codebook;
    build.result = &result;
    gw_cuda_launches_codebook_build(&launches, &build, 1);
    shim_launches_run(&launches, workspace);
    free(workspace);
    return result;
}

void gcomp_shim_device_codec(gw_device_codec *out, const gw_gcomp *codec, const gw_gcomp_map *map,
                             const gw_cuda_gcomp_key *key)
{
    if (gw_cuda_gcomp_device_codec(codec, map, key, out, sizeof *out, NULL) != GW_OK) {
        abort();
    }
}

uint32_t gcomp_shim_decode_shared_size(const gw_device_codec *codec)
{
    return gw_cuda_decode_shared_size(&codec->codec);
}
