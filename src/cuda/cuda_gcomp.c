/*
 * GCOMP: checks of the arguments; plans are made by gcomp_plan.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "gcomp/gcomp_codec.h"
#include "cuda/cuda_handle.h"
#include "cuda/gcomp_plan.h"

#define GW_FRAME_ALIGNMENT     16u
#define GW_WORKSPACE_ALIGNMENT 256u
#define GW_ITEMS_MAX           ((uint32_t)1 << 20)

/* ---- workspaces ---------------------------------------------------------------------------------------- */

static int is_in_limits(const gw_codec *codec, uint32_t item_count, uint64_t value_total)
{
    return codec != NULL && item_count >= 1 && item_count <= GW_ITEMS_MAX && value_total <= GW_FRAME_LEN_MAX;
}

size_t gw_cuda_gcomp_encode_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    const gw_codec *inside = gw_codec_of(codec);
    gw_cuda_codec options;

    if (!is_in_limits(inside, item_count, value_total)) {
        return 0;
    }
    gw_cuda_codec_fill(&options, inside);
    options.encode_with = -1; /* with a codebook from the device it may be less */
    return gw_cuda_encode_workspace_size(&options, item_count, value_total);
}

size_t gw_cuda_gcomp_decode_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    return is_in_limits(gw_codec_of(codec), item_count, value_total)
               ? gw_cuda_decode_workspace_size(item_count, value_total)
               : 0;
}

size_t gw_cuda_gcomp_hop_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    const gw_codec *inside = gw_codec_of(codec);
    gw_cuda_codec options;

    if (!is_in_limits(inside, item_count, value_total)) {
        return 0;
    }
    gw_cuda_codec_fill(&options, inside);
    options.encode_with = -1;
    return gw_cuda_hop_workspace_size(&options, item_count, value_total);
}

size_t gw_cuda_gcomp_histogram_workspace_size(const gw_gcomp *codec, uint32_t item_count)
{
    return is_in_limits(gw_codec_of(codec), item_count, 0) ? gw_cuda_histogram_workspace_size(item_count) : 0;
}

/* ---- what the calls have in common --------------------------------------------------------------------- */

typedef struct call {
    gw_cuda_state *state;
    const gw_codec *codec;
    gw_cuda_shape shape;
} call;

/* Handle, codec, workspace, what is read from the device. `workspace_needed` 0: a handle or numbers that
 * cannot be. */
static gw_status begin(call *c, gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_device *device,
                       const void *workspace, size_t workspace_size, size_t workspace_needed)
{
    if (cuda == NULL || codec == NULL || workspace == NULL ||
        !gw_cuda_is_aligned(workspace, GW_WORKSPACE_ALIGNMENT)) {
        return GW_ERR_ARG;
    }
    if (device != NULL &&
        (!gw_cuda_is_aligned(device->map_base, 4) || !gw_cuda_is_aligned(device->key, 8) ||
         !gw_cuda_is_aligned(device->book_size, 4) || (device->book != NULL && device->book_size == NULL))) {
        return GW_ERR_ARG;
    }
    c->state = gw_cuda_state_of(cuda);
    c->codec = gw_codec_of(codec);
    if (c->state == NULL || c->codec == NULL) {
        return GW_ERR_STATE;
    }
    c->shape.multiprocessors = c->state->info.multiprocessor_count;
    c->shape.shared_size_max = c->state->info.shared_size_max;
    if (workspace_needed == 0) {
        return GW_ERR_LIMIT;
    }
    return workspace_size < workspace_needed ? GW_ERR_WORKSPACE : GW_OK;
}

static int is_result(const gw_cuda_result *result)
{
    return result != NULL && gw_cuda_is_aligned(result, 8);
}

/* Options and codebooks. A codebook in device memory takes the place that gw_gcomp_install() would give it:
 * that of an equal id and generation, else a free one, else the older one. */
static void fill_codec(gw_cuda_codec *out, const gw_codec *codec, const gw_cuda_gcomp_device *device,
                       int is_encode)
{
    gw_cuda_codec_fill(out, codec);
    if (device == NULL || device->book == NULL) {
        return;
    }
    uint32_t slot = codec->installed_count < GW_INSTALLED_MAX ? codec->installed_count : 1 - codec->newest;
    for (uint32_t i = 0; i < codec->installed_count; i++) {
        if (codec->installed[i].id == device->book_id &&
            codec->installed[i].generation == device->book_generation) {
            slot = i;
        }
    }
    gw_cuda_book *book = &out->book[slot];
    GW_MEMSET(book, 0, sizeof *book);
    book->bytes = device->book;
    book->size_at = device->book_size;
    book->size = GW_CUDA_BOOK_SIZE_MAX;
    book->id = device->book_id;
    book->generation = device->book_generation;
    out->book_count = slot + 1 > out->book_count ? slot + 1 : out->book_count;
    if (is_encode) {
        out->encode_with = (int32_t)slot;
    }
}

static const uint32_t *map_base_of(const gw_cuda_gcomp_device *device)
{
    return device != NULL ? device->map_base : NULL;
}

static gw_cuda_key key_of(const gw_gcomp_source *source)
{
    gw_cuda_key key;

    key.seed = source->seed;
    key.step_index = source->step_index;
    key.rank = source->rank;
    key.hop = source->hop;
    return key;
}

/* What can be said of a source on the host: that of gw_gcomp_encode(). */
static gw_status check_source(const gw_codec *codec, const gw_gcomp_source *source,
                              const gw_cuda_gcomp_device *device)
{
    const gw_gcomp_map *map = source->map;
    const int is_derived = codec->options.levels == GW_GCOMP_DERIVED;

    if (source->len > codec->options.count_limit || source->len > GW_FRAME_LEN_MAX) {
        return GW_ERR_LIMIT;
    }
    if (!gw_cuda_is_aligned(source->values, gw_dtype_size(codec->options.dtype)) ||
        (source->len != 0 && source->values == NULL)) {
        return GW_ERR_ARG;
    }
    if (map == NULL) {
        return GW_OK;
    }
    const int has_base = map_base_of(device) != NULL || (map->base >= 1 && map->base <= 1023);
    const int has_levels = source->len == 0 || map->levels != NULL;
    const int has_digests = source->len == 0 || !is_derived ||
                            (map->digest != NULL && gw_cuda_is_aligned(map->digest, 4) &&
                             map->chunk_log2 == codec->options.chunk_log2);
    return has_base && map->len == source->len && has_levels && has_digests ? GW_OK : GW_ERR_ARG;
}

static void fill_item_map(gw_cuda_gcomp_item *item, const gw_gcomp_map *map)
{
    if (map != NULL) {
        item->levels = map->levels;
        item->digest = map->digest;
        item->map_len = map->len;
    }
}

/* ---- encode -------------------------------------------------------------------------------------------- */

static int fits_shared(const call *c)
{
    return GW_CUDA_ENCODE_SHARED_SIZE(c->codec->options.chunk_log2) <= c->shape.shared_size_max;
}

static gw_status check_dst(const gw_gcomp *codec, const gw_gcomp_source *source, const void *dst,
                           uint64_t dst_capacity)
{
    const size_t bound = gw_gcomp_bound(codec, source->len);

    if (dst == NULL || !gw_cuda_is_aligned(dst, GW_FRAME_ALIGNMENT)) {
        return GW_ERR_ARG;
    }
    if (bound == 0 || dst_capacity < bound) {
        return GW_ERR_DST;
    }
    return GW_OK;
}

static int is_overlapping(const gw_gcomp *codec, const gw_codec *inside, const gw_gcomp_source *source,
                          const void *dst)
{
    return gw_is_overlapping(dst, gw_gcomp_bound(codec, source->len), source->values,
                             (size_t)source->len * gw_dtype_size(inside->options.dtype));
}

static void fill_encode(gw_gcomp_encode_params *params, const gw_codec *codec, const gw_gcomp_source *source,
                        const gw_cuda_gcomp_device *device, void *dst, uint64_t dst_capacity,
                        gw_cuda_result *result)
{
    GW_MEMSET(params, 0, sizeof *params);
    fill_codec(&params->codec, codec, device, 1);
    gw_cuda_map_fill(&params->map, source->map, map_base_of(device));
    params->key = key_of(source);
    params->key_at = device != NULL ? device->key : NULL;
    params->item_count = 1;
    params->item.src = source->values;
    params->item.src_size = source->len;
    params->item.dst = dst;
    params->item.dst_capacity = dst_capacity;
    params->item.first_element = source->first_element;
    params->item.result = result;
    fill_item_map(&params->item, source->map);
}

gw_status gw_cuda_gcomp_encode(gw_cuda *cuda, const gw_gcomp *codec, const gw_gcomp_source *source,
                               const gw_cuda_gcomp_device *device, void *dst, uint64_t dst_capacity,
                               gw_cuda_result *result, void *workspace, size_t workspace_size, void *stream)
{
    call c;
    gw_gcomp_encode_params params;
    gw_cuda_plan plan;

    if (source == NULL || !is_result(result)) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_encode_workspace_size(codec, 1, source->len));
    if (status == GW_OK) {
        status = check_source(c.codec, source, device);
    }
    if (status == GW_OK) {
        status = check_dst(codec, source, dst, dst_capacity);
    }
    if (status == GW_OK && is_overlapping(codec, c.codec, source, dst)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && !fits_shared(&c)) {
        status = GW_ERR_OPTION;
    }
    if (status != GW_OK) {
        return status;
    }
    fill_encode(&params, c.codec, source, device, dst, dst_capacity, result);
    gw_cuda_plan_encode(&plan, &params, source->len, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

/* Base, scale and chunk length of the maps of a batch. */
static int is_batch_map(const gw_gcomp_map *map, const gw_cuda_gcomp_device *device)
{
    return map == NULL || map_base_of(device) != NULL || (map->base >= 1 && map->base <= 1023);
}

gw_status gw_cuda_gcomp_encode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items,
                                     uint32_t item_count, uint64_t value_total, const gw_gcomp_map *map,
                                     const gw_cuda_key *key, const gw_cuda_gcomp_device *device,
                                     void *workspace, size_t workspace_size, void *stream)
{
    call c;
    gw_gcomp_encode_params params;
    gw_cuda_plan plan;

    if (items == NULL || !gw_cuda_is_aligned(items, 8) || !is_batch_map(map, device)) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_encode_workspace_size(codec, item_count, value_total));
    if (status == GW_OK && !fits_shared(&c)) {
        status = GW_ERR_OPTION;
    }
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_codec(&params.codec, c.codec, device, 1);
    gw_cuda_map_fill(&params.map, map, map_base_of(device));
    if (key != NULL) {
        params.key = *key;
    }
    params.key_at = device != NULL ? device->key : NULL;
    params.item_count = item_count;
    params.items = items;
    gw_cuda_plan_encode(&plan, &params, value_total, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

/* ---- decode -------------------------------------------------------------------------------------------- */

typedef struct frame_at {
    const void *src;
    uint64_t src_capacity;
    const uint64_t *src_size;
} frame_at;

static int is_frame(const frame_at *frame)
{
    return (frame->src != NULL || frame->src_capacity == 0) &&
           gw_cuda_is_aligned(frame->src, GW_FRAME_ALIGNMENT) && gw_cuda_is_aligned(frame->src_size, 8);
}

static void fill_decode(gw_gcomp_decode_params *params, const gw_codec *codec, const frame_at *frame,
                        const gw_gcomp_map *map, const gw_cuda_gcomp_device *device, gw_cuda_decode_mode mode)
{
    GW_MEMSET(params, 0, sizeof *params);
    fill_codec(&params->codec, codec, device, 0);
    gw_cuda_map_fill(&params->map, map, map_base_of(device));
    params->mode = mode;
    params->item_count = 1;
    params->item.src = frame->src;
    params->item.src_size = frame->src_capacity;
    params->item.src_size_at = frame->src_size;
    fill_item_map(&params->item, map);
}

static gw_status decode(gw_cuda *cuda, const gw_gcomp *codec, const frame_at *frame, const gw_gcomp_map *map,
                        const gw_cuda_gcomp_device *device, gw_cuda_decode_mode mode, void *dst,
                        uint64_t dst_capacity, gw_cuda_result *result, void *workspace, size_t workspace_size,
                        void *stream)
{
    call c;
    gw_gcomp_decode_params params;
    gw_cuda_plan plan;

    if (!is_result(result) || !is_frame(frame) || (map != NULL && !gw_cuda_is_aligned(map->digest, 4))) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_decode_workspace_size(codec, 1, dst_capacity));
    if (status != GW_OK) {
        return status;
    }
    const size_t element_size = gw_dtype_size(c.codec->options.dtype);
    if (mode != GW_CUDA_DECODE_VALIDATE &&
        ((dst_capacity != 0 && dst == NULL) || !gw_cuda_is_aligned(dst, element_size) ||
         gw_is_overlapping(dst, (size_t)dst_capacity * element_size, frame->src,
                           (size_t)frame->src_capacity))) {
        return GW_ERR_ARG;
    }
    fill_decode(&params, c.codec, frame, map, device, mode);
    params.item.dst = dst;
    params.item.dst_capacity = dst_capacity;
    params.item.result = result;
    gw_cuda_plan_decode(&plan, &params, dst_capacity, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

gw_status gw_cuda_gcomp_decode(gw_cuda *cuda, const gw_gcomp *codec, const void *src, uint64_t src_capacity,
                               const uint64_t *src_size, const gw_gcomp_map *map,
                               const gw_cuda_gcomp_device *device, void *dst, uint64_t dst_capacity,
                               gw_cuda_result *result, void *workspace, size_t workspace_size, void *stream)
{
    const frame_at frame = {src, src_capacity, src_size};

    return decode(cuda, codec, &frame, map, device, GW_CUDA_DECODE_VALUES, dst, dst_capacity, result,
                  workspace, workspace_size, stream);
}

gw_status gw_cuda_gcomp_decode_add(gw_cuda *cuda, const gw_gcomp *codec, const void *src,
                                   uint64_t src_capacity, const uint64_t *src_size, const gw_gcomp_map *map,
                                   const gw_cuda_gcomp_device *device, void *accumulator,
                                   uint64_t accumulator_len, gw_cuda_result *result, void *workspace,
                                   size_t workspace_size, void *stream)
{
    const frame_at frame = {src, src_capacity, src_size};

    return decode(cuda, codec, &frame, map, device, GW_CUDA_DECODE_ADD, accumulator, accumulator_len, result,
                  workspace, workspace_size, stream);
}

gw_status gw_cuda_gcomp_validate(gw_cuda *cuda, const gw_gcomp *codec, const void *src, uint64_t src_capacity,
                                 const uint64_t *src_size, const gw_gcomp_map *map,
                                 const gw_cuda_gcomp_device *device, uint64_t value_hint,
                                 gw_cuda_result *result, void *workspace, size_t workspace_size, void *stream)
{
    const frame_at frame = {src, src_capacity, src_size};

    return decode(cuda, codec, &frame, map, device, GW_CUDA_DECODE_VALIDATE, NULL, value_hint, result,
                  workspace, workspace_size, stream);
}

static gw_status decode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items,
                              uint32_t item_count, uint64_t value_total, const gw_gcomp_map *map,
                              const gw_cuda_gcomp_device *device, gw_cuda_decode_mode mode, void *workspace,
                              size_t workspace_size, void *stream)
{
    call c;
    gw_gcomp_decode_params params;
    gw_cuda_plan plan;

    if (items == NULL || !gw_cuda_is_aligned(items, 8) || !is_batch_map(map, device)) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_decode_workspace_size(codec, item_count, value_total));
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_codec(&params.codec, c.codec, device, 0);
    gw_cuda_map_fill(&params.map, map, map_base_of(device));
    params.mode = mode;
    params.item_count = item_count;
    params.items = items;
    gw_cuda_plan_decode(&plan, &params, value_total, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

gw_status gw_cuda_gcomp_decode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items,
                                     uint32_t item_count, uint64_t value_total, const gw_gcomp_map *map,
                                     const gw_cuda_gcomp_device *device, int is_add, void *workspace,
                                     size_t workspace_size, void *stream)
{
    return decode_batch(cuda, codec, items, item_count, value_total, map, device,
                        is_add ? GW_CUDA_DECODE_ADD : GW_CUDA_DECODE_VALUES, workspace, workspace_size,
                        stream);
}

gw_status gw_cuda_gcomp_validate_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_item *items,
                                       uint32_t item_count, uint64_t value_hint, const gw_gcomp_map *map,
                                       const gw_cuda_gcomp_device *device, void *workspace,
                                       size_t workspace_size, void *stream)
{
    return decode_batch(cuda, codec, items, item_count, value_hint, map, device, GW_CUDA_DECODE_VALIDATE,
                        workspace, workspace_size, stream);
}

/* ---- hop ----------------------------------------------------------------------------------------------- */

gw_status gw_cuda_gcomp_decode_add_encode(gw_cuda *cuda, const gw_gcomp *codec, const void *src,
                                          uint64_t src_capacity, const uint64_t *src_size,
                                          const gw_gcomp_map *src_map, const gw_gcomp_source *source,
                                          const gw_cuda_gcomp_device *device, void *dst,
                                          uint64_t dst_capacity, gw_cuda_result *result, void *workspace,
                                          size_t workspace_size, void *stream)
{
    const frame_at frame = {src, src_capacity, src_size};
    call c;
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    gw_cuda_plan plan;

    if (source == NULL || !is_result(result) || !is_frame(&frame) ||
        (src_map != NULL && !gw_cuda_is_aligned(src_map->digest, 4))) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_hop_workspace_size(codec, 1, source->len));
    if (status == GW_OK) {
        status = check_source(c.codec, source, device);
    }
    if (status == GW_OK) {
        status = check_dst(codec, source, dst, dst_capacity);
    }
    if (status == GW_OK &&
        (is_overlapping(codec, c.codec, source, dst) ||
         gw_is_overlapping(dst, gw_gcomp_bound(codec, source->len), src, (size_t)src_capacity))) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && !fits_shared(&c)) {
        status = GW_ERR_OPTION;
    }
    if (status != GW_OK) {
        return status;
    }
    fill_decode(&in, c.codec, &frame, src_map, device, GW_CUDA_DECODE_SUM);
    in.item.addend = source->values;
    fill_encode(&out, c.codec, source, device, dst, dst_capacity, result);
    gw_cuda_plan_hop(&plan, &in, &out, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

gw_status gw_cuda_gcomp_decode_add_encode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                const gw_cuda_gcomp_hop *hops, uint32_t item_count,
                                                uint64_t value_total, const gw_gcomp_map *src_map,
                                                const gw_gcomp_map *map, const gw_cuda_key *key,
                                                const gw_cuda_gcomp_device *device, void *workspace,
                                                size_t workspace_size, void *stream)
{
    call c;
    gw_gcomp_hop_params params;
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    gw_cuda_plan plan;

    if (hops == NULL || !gw_cuda_is_aligned(hops, 8) || !is_batch_map(src_map, device) ||
        !is_batch_map(map, device)) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, device, workspace, workspace_size,
                             gw_cuda_gcomp_hop_workspace_size(codec, item_count, value_total));
    if (status == GW_OK && !fits_shared(&c)) {
        status = GW_ERR_OPTION;
    }
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    GW_MEMSET(&in, 0, sizeof in);
    GW_MEMSET(&out, 0, sizeof out);
    fill_codec(&in.codec, c.codec, device, 0);
    fill_codec(&out.codec, c.codec, device, 1);
    gw_cuda_map_fill(&in.map, src_map, map_base_of(device));
    gw_cuda_map_fill(&out.map, map, map_base_of(device));
    if (key != NULL) {
        out.key = *key;
    }
    out.key_at = device != NULL ? device->key : NULL;
    params.hops = hops;
    out.item_count = item_count;
    gw_cuda_plan_hop_batch(&plan, &params, &in, &out, value_total, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

/* ---- codebooks ----------------------------------------------------------------------------------------- */

static void fill_histogram(gw_gcomp_histogram_params *params, const gw_codec *codec, const gw_gcomp_map *map,
                           const gw_cuda_gcomp_device *device)
{
    GW_MEMSET(params, 0, sizeof *params);
    fill_codec(&params->codec, codec, device, 0);
    gw_cuda_map_fill(&params->map, map, map_base_of(device));
    params->key_at = device != NULL ? device->key : NULL;
}

gw_status gw_cuda_gcomp_histogram_add(gw_cuda *cuda, const gw_gcomp *codec, const gw_gcomp_source *source,
                                      const gw_cuda_gcomp_device *device, gw_cuda_histogram *histogram,
                                      gw_cuda_result *result, void *workspace, size_t workspace_size,
                                      void *stream)
{
    call c;
    gw_gcomp_histogram_params params;
    gw_cuda_plan plan;

    if (source == NULL || !is_result(result) || histogram == NULL || !gw_cuda_is_aligned(histogram, 8)) {
        return GW_ERR_ARG;
    }
    gw_status status =
        begin(&c, cuda, codec, device, workspace, workspace_size, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE);
    if (status == GW_OK) {
        status = check_source(c.codec, source, device);
    }
    if (status != GW_OK) {
        return status;
    }
    fill_histogram(&params, c.codec, source->map, device);
    params.key = key_of(source);
    params.item.src = source->values;
    params.item.src_size = source->len;
    params.item.dst = histogram;
    params.item.first_element = source->first_element;
    params.item.result = result;
    fill_item_map(&params.item, source->map);
    gw_cuda_plan_histogram(&plan, &params, source->len, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

gw_status gw_cuda_gcomp_histogram_add_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                            const gw_cuda_gcomp_item *items, uint32_t item_count,
                                            uint64_t value_hint, const gw_gcomp_map *map,
                                            const gw_cuda_key *key, const gw_cuda_gcomp_device *device,
                                            void *workspace, size_t workspace_size, void *stream)
{
    call c;
    gw_gcomp_histogram_params params;
    gw_cuda_plan plan;

    if (items == NULL || !gw_cuda_is_aligned(items, 8) || !is_batch_map(map, device)) {
        return GW_ERR_ARG;
    }
    const gw_status status =
        begin(&c, cuda, codec, device, workspace, workspace_size,
              value_hint > GW_FRAME_LEN_MAX ? 0 : gw_cuda_gcomp_histogram_workspace_size(codec, item_count));
    if (status != GW_OK) {
        return status;
    }
    fill_histogram(&params, c.codec, map, device);
    if (key != NULL) {
        params.key = *key;
    }
    params.item_count = item_count;
    params.items = items;
    gw_cuda_plan_histogram(&plan, &params, value_hint, &c.shape, workspace);
    return gw_cuda_submit(c.state, &plan, workspace, stream);
}

gw_status gw_cuda_gcomp_book_build(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_histogram *histogram,
                                   uint8_t *book, uint32_t *book_size, gw_cuda_result *result, void *stream)
{
    return gw_cuda_gcomp_book_build_batch(cuda, codec, histogram, 1, book, book_size, result, stream);
}

gw_status gw_cuda_gcomp_book_build_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                         const gw_cuda_histogram *histograms, uint32_t count, uint8_t *books,
                                         uint32_t *book_sizes, gw_cuda_result *results, void *stream)
{
    gw_gcomp_book_build_params params;
    gw_cuda_plan plan;

    if (cuda == NULL || codec == NULL || histograms == NULL || books == NULL ||
        !gw_cuda_is_aligned(histograms, 8) || !gw_cuda_is_aligned(book_sizes, 4) || !is_result(results)) {
        return GW_ERR_ARG;
    }
    gw_cuda_state *state = gw_cuda_state_of(cuda);
    const gw_codec *inside = gw_codec_of(codec);
    if (state == NULL || inside == NULL) {
        return GW_ERR_STATE;
    }
    if (count == 0 || count > GW_ITEMS_MAX) {
        return GW_ERR_LIMIT;
    }
    GW_MEMSET(&params, 0, sizeof params);
    params.dtype = (uint32_t)inside->options.dtype;
    params.levels = (uint32_t)inside->options.levels;
    params.histogram = histograms;
    params.book = books;
    params.book_size = book_sizes;
    params.result = results;
    gw_cuda_plan_book_build(&plan, &params, count);
    return gw_cuda_submit(state, &plan, NULL, stream);
}

/* ---- device entry points ------------------------------------------------------------------------------- */

gw_status gw_cuda_gcomp_device_codec(const gw_gcomp *codec, const gw_gcomp_map *map, const gw_cuda_key *key,
                                     struct gw_device_codec *out, size_t out_size,
                                     uint32_t *encode_shared_size, uint32_t *decode_shared_size)
{
    static const gw_cuda_key no_key = {0, 0, 0, 0};
    const gw_codec *inside = codec == NULL ? NULL : gw_codec_of(codec);

    if (codec == NULL || out == NULL || out_size != sizeof *out) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (map != NULL && map->chunk_log2 != inside->options.chunk_log2) {
        return GW_ERR_ARG;
    }
    if (inside->encode_with < 0) {
        return GW_ERR_TABLE;
    }
    gw_cuda_device_codec_fill(out, inside, map, key == NULL ? &no_key : key);
    if (encode_shared_size != NULL) {
        *encode_shared_size = GW_CUDA_ENCODE_SHARED_SIZE(out->codec.chunk_log2);
    }
    if (decode_shared_size != NULL) {
        *decode_shared_size = gw_cuda_decode_shared_size(&out->codec);
    }
    return GW_OK;
}
