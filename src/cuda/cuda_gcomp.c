/*
 * GCOMP: checks of the arguments; launches are made by gcomp_launches.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "gcomp/gcomp_codec.h"
#include "gcomp/map_rule.h"
#include "gcomp/target.h"
#include "cuda/cuda_handle.h"
#include "cuda/gcomp_launches.h"

#define GW_FRAME_ALIGNMENT     16u
#define GW_WORKSPACE_ALIGNMENT 256u
#define GW_ITEMS_MAX           ((uint32_t)1 << 20)

/* ---- workspaces ---------------------------------------------------------------------------------------- */

static int is_in_limits(const gw_codec *codec, uint32_t item_count, uint64_t value_total)
{
    return codec != NULL && item_count >= 1 && item_count <= GW_ITEMS_MAX && value_total <= GW_FRAME_LEN_MAX;
}

/* The options that a workspace depends on. False: the call would be beyond the limits. */
static int fill_options(gw_cuda_codec *options, const gw_gcomp *codec, uint32_t item_count,
                        uint64_t value_total)
{
    const gw_codec *inside = gw_codec_of(codec);

    if (!is_in_limits(inside, item_count, value_total)) {
        return 0;
    }
    gw_cuda_codec_fill(options, inside);
    options->encode_with = -1; /* with a codebook from the device it may be less */
    return 1;
}

size_t gw_cuda_gcomp_encode_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    gw_cuda_codec options;

    return fill_options(&options, codec, item_count, value_total)
               ? gw_cuda_encode_workspace_size(&options, item_count, value_total)
               : 0;
}

size_t gw_cuda_gcomp_decode_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    return is_in_limits(gw_codec_of(codec), item_count, value_total)
               ? gw_cuda_decode_workspace_size(item_count, value_total)
               : 0;
}

size_t gw_cuda_gcomp_hop_workspace_size(const gw_gcomp *codec, uint32_t item_count, uint64_t value_total)
{
    gw_cuda_codec options;

    return fill_options(&options, codec, item_count, value_total)
               ? gw_cuda_hop_workspace_size(&options, item_count, value_total)
               : 0;
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

/* Handle, codec, workspace, and what is read from the device. `workspace_needed` 0: a handle or
 * numbers that are out of range. */
static gw_status begin(call *c, gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_request *request,
                       size_t workspace_needed)
{
    const gw_cuda_gcomp_device *device = request->device;

    if (cuda == NULL || codec == NULL || request->workspace.data == NULL ||
        !gw_cuda_is_aligned(request->workspace.data, GW_WORKSPACE_ALIGNMENT)) {
        return GW_ERR_ARG;
    }
    if (device != NULL && (!gw_cuda_is_aligned(device->map_base, 4) || !gw_cuda_is_aligned(device->key, 8) ||
                           !gw_cuda_is_aligned(device->codebook_size, 4) ||
                           (device->codebook != NULL && (device->codebook_size == NULL ||
                                                         device->codebook_id >= GW_GCOMP_CODEBOOK_ID_END)))) {
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
    return request->workspace.size < workspace_needed ? GW_ERR_WORKSPACE : GW_OK;
}

static gw_status submit(const call *c, const gw_cuda_launches *launches, const gw_cuda_gcomp_request *request)
{
    return gw_cuda_submit(c->state, launches, request->workspace.data, request->stream);
}

static int has_result(const gw_cuda_gcomp_request *request)
{
    return request != NULL && request->result != NULL && gw_cuda_is_aligned(request->result, 8);
}

/* Options and codebooks. A codebook in device memory takes the place that gw_gcomp_codebook_install() would
 * give it: that of an equal id and generation, else a free one, else the older one. */
static void fill_codec(gw_cuda_codec *out, const gw_codec *codec, const gw_cuda_gcomp_device *device,
                       int is_encode)
{
    gw_cuda_codec_fill(out, codec);
    if (device == NULL || device->codebook == NULL) {
        return;
    }
    uint32_t slot = codec->installed_count < GW_INSTALLED_MAX ? codec->installed_count : 1 - codec->newest;
    for (uint32_t i = 0; i < codec->installed_count; i++) {
        if (codec->installed[i].id == device->codebook_id &&
            codec->installed[i].generation == device->codebook_generation) {
            slot = i;
        }
    }
    gw_cuda_codebook *codebook = &out->codebook[slot];
    GW_MEMSET(codebook, 0, sizeof *codebook);
    codebook->bytes = device->codebook;
    codebook->size_at = device->codebook_size;
    codebook->size = GW_CUDA_CODEBOOK_SIZE_MAX;
    codebook->id = device->codebook_id;
    codebook->generation = device->codebook_generation;
    out->codebook_count = slot + 1 > out->codebook_count ? slot + 1 : out->codebook_count;
    if (is_encode) {
        out->encode_with = (int32_t)slot;
    }
}

static const uint32_t *map_base_of(const gw_cuda_gcomp_device *device)
{
    return device != NULL ? device->map_base : NULL;
}

/* Derived frames carry the wire scale, so it must be one that gw_gcomp_encode() accepts. */
static int has_wire_scale(const gw_codec *codec, const gw_gcomp_map *map)
{
    return codec->options.quantum_mode != GW_GCOMP_DERIVED || map == NULL ||
           gw_is_wire_scale(map->wire_scale);
}

/* Without a map: a constant drop has no relative exponents. (A codebook in device memory is looked at
 * there.) */
static int is_without_map(const gw_codec *codec, const gw_cuda_gcomp_device *device)
{
    if (codec->options.quantum_mode == GW_GCOMP_CARRIED) {
        return 1;
    }
    const int has_own_codebook = codec->encode_with >= 0 && (device == NULL || device->codebook == NULL);
    return !has_own_codebook || !codec->installed[codec->encode_with].codebook.is_relative;
}

/* What the host can check of a source, as gw_gcomp_encode() does. */
static gw_status check_source(const gw_codec *codec, const gw_gcomp_source *source,
                              const gw_cuda_gcomp_device *device)
{
    const gw_gcomp_map *map = gw_source_map(source);
    const int is_derived = codec->options.quantum_mode == GW_GCOMP_DERIVED;

    if (source->len > codec->options.len_max || source->len > GW_FRAME_LEN_MAX) {
        return GW_ERR_LIMIT;
    }
    if (source->segment_count != 0 && (source->segments == NULL || !gw_cuda_is_aligned(source->segments, 8) ||
                                       source->segment_offset + source->len < source->len)) {
        return GW_ERR_ARG;
    }
    if (!gw_cuda_is_aligned(source->values, gw_dtype_size(codec->options.dtype)) ||
        (source->len != 0 && source->values == NULL)) {
        return GW_ERR_ARG;
    }
    if (!gw_source_has_quantum(source, &codec->options)) {
        return GW_ERR_ARG;
    }
    if (map == NULL) {
        return is_without_map(codec, device) ? GW_OK : GW_ERR_ARG;
    }
    const int has_base = map_base_of(device) != NULL || (map->base >= 1 && map->base <= 1023);
    const int has_map_bytes = source->len == 0 || map->bytes != NULL;
    const int has_digests = source->len == 0 || !is_derived ||
                            (map->digest != NULL && gw_cuda_is_aligned(map->digest, 4) &&
                             map->chunk_log2 == codec->options.chunk_log2);
    const int is_valid = has_base && map->len == source->len && has_map_bytes && has_digests;
    return is_valid && has_wire_scale(codec, map) ? GW_OK : GW_ERR_ARG;
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

static void fill_item_map(gw_cuda_gcomp_item *item, const gw_gcomp_map *map)
{
    if (map != NULL) {
        item->map_bytes = map->bytes;
        item->digest = map->digest;
        item->map_len = map->len;
    }
}

/* The handle, and a map that all items share. `work` is all zero. */
static void fill_work(gw_gcomp_work *work, const gw_codec *codec, const gw_gcomp_map *map,
                      const gw_cuda_gcomp_device *device, int is_encode)
{
    fill_codec(&work->codec, codec, device, is_encode);
    gw_cuda_map_fill(&work->map, map, map_base_of(device));
    work->key_at = device != NULL ? device->key : NULL;
    work->item_count = 1;
}

/* A single item whose values are those of a source. */
static void fill_source(gw_gcomp_work *work, const gw_codec *codec, const gw_gcomp_source *source,
                        const gw_cuda_gcomp_request *request, int is_encode)
{
    const gw_cuda_gcomp_key key = {source->seed, source->step_index, source->rank, source->hop};
    gw_cuda_gcomp_item *item = &work->item;

    fill_work(work, codec, gw_source_map(source), request->device, is_encode);
    work->key = key;
    item->src = source->values;
    item->src_size = source->len;
    item->first_element = source->first_element;
    item->result = request->result;
    if (source->quantum.kind == GW_GCOMP_QUANTUM_BLOCKS) {
        item->map_bytes = source->quantum.blocks;
    }
    fill_item_map(item, gw_source_map(source));
}

/* key: batch->key for calls that read it, else NULL. */
static void fill_batch(gw_gcomp_work *work, const gw_codec *codec, const gw_cuda_gcomp_batch *batch,
                       const gw_cuda_gcomp_key *key, const gw_cuda_gcomp_request *request, int is_encode)
{
    fill_work(work, codec, batch->map, request->device, is_encode);
    if (key != NULL) {
        work->key = *key;
    }
    work->item_count = batch->item_count;
    work->items = batch->items;
}

/* ---- segments ------------------------------------------------------------------------------------------ */

size_t gw_cuda_gcomp_segments_workspace_size(const gw_gcomp *codec, size_t segment_count, uint64_t len)
{
    gw_cuda_codec options;

    return segment_count <= UINT32_MAX && fill_options(&options, codec, 1, len)
               ? gw_cuda_segments_workspace_size(&options, (uint32_t)segment_count, len)
               : 0;
}

/* The workspace of a call that needs `size` bytes but for the segments of the source; 0: beyond the limits.
 */
static size_t with_segments(size_t size, const gw_gcomp *codec, const gw_gcomp_source *source)
{
    const size_t more =
        source->segment_count == 0
            ? 0
            : gw_cuda_gcomp_segments_workspace_size(codec, source->segment_count, source->len);
    return size == 0 || (more == 0 && source->segment_count != 0) ? 0 : size + more;
}

/* The area for the segments is at the end of the workspace that was asked for, `size` bytes. */
static void *fill_segments(gw_gcomp_segment_params *params, const gw_gcomp_source *source,
                           const gw_cuda_gcomp_request *request, size_t size)
{
    GW_MEMSET(params, 0, sizeof *params);
    params->segments = source->segments;
    params->segment_count = (uint32_t)source->segment_count;
    params->segment_offset = source->segment_offset;
    return (uint8_t *)request->workspace.data + size;
}

/* ---- encode -------------------------------------------------------------------------------------------- */

static int fits_shared(const call *c)
{
    return GW_CUDA_ENCODE_SHARED_SIZE(c->codec->options.chunk_log2) <= c->shape.shared_size_max;
}

static gw_status check_dst(const gw_gcomp *codec, const gw_gcomp_source *source, const gw_cuda_buffer *dst)
{
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);

    if (dst->data == NULL || !gw_cuda_is_aligned(dst->data, GW_FRAME_ALIGNMENT)) {
        return GW_ERR_ARG;
    }
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }
    return GW_OK;
}

/* What an encode and a hop check on the host, which need `size` bytes but for segments. `frame` NULL: an
 * encode. */
static gw_status begin_encode(call *c, gw_cuda *cuda, const gw_gcomp *codec, const gw_gcomp_source *source,
                              const gw_cuda_gcomp_frame *frame, const gw_cuda_buffer *dst,
                              const gw_cuda_gcomp_request *request, size_t size)
{
    gw_status status = begin(c, cuda, codec, request, with_segments(size, codec, source));

    if (status == GW_OK) {
        status = check_source(c->codec, source, request->device);
    }
    if (status == GW_OK) {
        status = check_dst(codec, source, dst);
    }
    if (status != GW_OK) {
        return status;
    }
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    if (gw_is_overlapping(dst->data, bound, source->values,
                          (size_t)source->len * gw_dtype_size(c->codec->options.dtype)) ||
        (frame != NULL && gw_is_overlapping(dst->data, bound, frame->data, (size_t)frame->capacity))) {
        return GW_ERR_ARG;
    }
    return fits_shared(c) ? GW_OK : GW_ERR_OPTION;
}

static void fill_encode(gw_gcomp_encode_params *params, const gw_codec *codec, const gw_gcomp_source *source,
                        const gw_cuda_buffer *dst, const gw_cuda_gcomp_request *request)
{
    GW_MEMSET(params, 0, sizeof *params);
    fill_source(&params->work, codec, source, request, 1);
    params->work.item.dst = dst->data;
    params->work.item.dst_capacity = dst->capacity;
}

/* Launches of an encode or hop, whose first item is `first`, with those for the segments of the source. */
static gw_status submit_encode(const call *c, gw_cuda_launches *launches, gw_gcomp_encode_params *params,
                               gw_cuda_gcomp_item *first, const gw_gcomp_source *source,
                               const gw_cuda_gcomp_request *request, size_t size)
{
    gw_gcomp_segment_params segments;

    if (source->segment_count != 0) {
        void *const area = fill_segments(&segments, source, request, size);
        gw_cuda_launches_segments(launches, &segments, params, first, &c->shape, area);
    }
    return submit(c, launches, request);
}

gw_status gw_cuda_gcomp_encode(gw_cuda *cuda, const gw_gcomp *codec, const gw_gcomp_source *source,
                               const gw_cuda_buffer *dst, const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_encode_params params;
    gw_cuda_launches launches;

    if (source == NULL || dst == NULL || !has_result(request)) {
        return GW_ERR_ARG;
    }
    const size_t size = gw_cuda_gcomp_encode_workspace_size(codec, 1, source->len);
    const gw_status status = begin_encode(&c, cuda, codec, source, NULL, dst, request, size);
    if (status != GW_OK) {
        return status;
    }
    fill_encode(&params, c.codec, source, dst, request);
    gw_cuda_launches_encode(&launches, &params, source->len, &c.shape, request->workspace.data);
    return submit_encode(&c, &launches, &params, &params.work.item, source, request, size);
}

/* What batches check beside begin(). */
static gw_status begin_batch(call *c, gw_cuda *cuda, const gw_gcomp *codec,
                             const gw_cuda_gcomp_request *request, size_t size, const gw_gcomp_map *map)
{
    const gw_status status = begin(c, cuda, codec, request, size);

    if (status == GW_OK && !has_wire_scale(c->codec, map)) {
        return GW_ERR_ARG;
    }
    return status == GW_OK && !fits_shared(c) ? GW_ERR_OPTION : status;
}

/* Base, scale and chunk length of the maps of a batch. */
static int is_batch_map(const gw_gcomp_map *map, const gw_cuda_gcomp_device *device)
{
    return map == NULL || map_base_of(device) != NULL || (map->base >= 1 && map->base <= 1023);
}

static int is_batch(const gw_cuda_gcomp_batch *batch, const gw_cuda_gcomp_request *request)
{
    return batch != NULL && request != NULL && batch->items != NULL && gw_cuda_is_aligned(batch->items, 8) &&
           is_batch_map(batch->map, request->device);
}

gw_status gw_cuda_gcomp_encode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_batch *batch,
                                     const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_encode_params params;
    gw_cuda_launches launches;

    if (!is_batch(batch, request)) {
        return GW_ERR_ARG;
    }
    const size_t size = gw_cuda_gcomp_encode_workspace_size(codec, batch->item_count, batch->value_total);
    const gw_status status = begin_batch(&c, cuda, codec, request, size, batch->map);
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_batch(&params.work, c.codec, batch, batch->key, request, 1);
    gw_cuda_launches_encode(&launches, &params, batch->value_total, &c.shape, request->workspace.data);
    return submit(&c, &launches, request);
}

/* ---- decode -------------------------------------------------------------------------------------------- */

/* 0 or a normal number. */
static int is_scale(float scale)
{
    const gw_gcomp_target target = {.scale = scale};
    return gw_target_is_scale_valid(&target);
}

static int is_frame(const gw_cuda_gcomp_frame *frame)
{
    return frame != NULL && (frame->data != NULL || frame->capacity == 0) &&
           gw_cuda_is_aligned(frame->data, GW_FRAME_ALIGNMENT) && gw_cuda_is_aligned(frame->size_at, 8) &&
           (frame->map == NULL || gw_cuda_is_aligned(frame->map->digest, 4));
}

static void fill_decode(gw_gcomp_decode_params *params, const gw_codec *codec,
                        const gw_cuda_gcomp_frame *frame, const gw_cuda_gcomp_device *device,
                        gw_cuda_decode_mode mode)
{
    gw_cuda_gcomp_item *item = &params->work.item;

    GW_MEMSET(params, 0, sizeof *params);
    fill_work(&params->work, codec, frame->map, device, 0);
    params->mode = mode;
    item->src = frame->data;
    item->src_size = frame->capacity;
    item->src_size_at = frame->size_at;
    fill_item_map(item, frame->map);
}

/* Where the values of a frame may go. */
static int is_target(const gw_codec *codec, const gw_cuda_gcomp_target *target,
                     const gw_cuda_gcomp_frame *frame)
{
    const size_t element_size = gw_dtype_size(codec->options.dtype);
    return (target->capacity == 0 || target->values != NULL) &&
           gw_cuda_is_aligned(target->values, element_size) &&
           !gw_is_overlapping(target->values, (size_t)target->capacity * element_size, frame->data,
                              (size_t)frame->capacity);
}

static void fill_target(gw_cuda_gcomp_item *item, const gw_cuda_gcomp_target *target,
                        const gw_cuda_gcomp_request *request)
{
    item->dst = target->values;
    item->dst_capacity = target->capacity;
    item->scale = target->scale;
    item->result = request->result;
}

static gw_status decode(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_frame *frame,
                        const gw_cuda_gcomp_target *target, const gw_cuda_gcomp_request *request,
                        gw_cuda_decode_mode mode)
{
    call c;
    gw_gcomp_decode_params params;
    gw_cuda_launches launches;

    if (target == NULL || !is_scale(target->scale) || !has_result(request) || !is_frame(frame)) {
        return GW_ERR_ARG;
    }
    gw_status status =
        begin(&c, cuda, codec, request, gw_cuda_gcomp_decode_workspace_size(codec, 1, target->capacity));
    if (status != GW_OK) {
        return status;
    }
    if (mode != GW_CUDA_DECODE_VALIDATE && !is_target(c.codec, target, frame)) {
        return GW_ERR_ARG;
    }
    fill_decode(&params, c.codec, frame, request->device, mode);
    fill_target(&params.work.item, target, request);
    gw_cuda_launches_decode(&launches, &params, target->capacity, &c.shape, request->workspace.data);
    return submit(&c, &launches, request);
}

gw_status gw_cuda_gcomp_decode(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_frame *frame,
                               const gw_cuda_gcomp_target *target, const gw_cuda_gcomp_request *request)
{
    return decode(cuda, codec, frame, target, request, GW_CUDA_DECODE_VALUES);
}

gw_status gw_cuda_gcomp_decode_add(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_frame *frame,
                                   const gw_cuda_gcomp_target *target, const gw_cuda_gcomp_request *request)
{
    return decode(cuda, codec, frame, target, request, GW_CUDA_DECODE_ADD);
}

gw_status gw_cuda_gcomp_frame_check(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_frame *frame,
                                    uint64_t value_hint, const gw_cuda_gcomp_request *request)
{
    const gw_cuda_gcomp_target none = {NULL, value_hint, 0};

    return decode(cuda, codec, frame, &none, request, GW_CUDA_DECODE_VALIDATE);
}

size_t gw_cuda_gcomp_decode_add_frames_workspace_size(const gw_gcomp *codec, uint64_t capacity)
{
    gw_cuda_codec options;

    return fill_options(&options, codec, 1, capacity) ? gw_cuda_sum_workspace_size(&options, capacity) : 0;
}

/* The frames, and that the target overlaps none. */
static gw_status check_frames(const gw_codec *codec, const gw_cuda_gcomp_frame *frames, size_t frame_count,
                              const gw_cuda_gcomp_target *target)
{
    for (size_t i = 0; i < frame_count; i++) {
        if (!is_frame(&frames[i]) || !is_target(codec, target, &frames[i])) {
            return GW_ERR_ARG;
        }
    }
    return GW_OK;
}

gw_status gw_cuda_gcomp_decode_add_frames(gw_cuda *cuda, const gw_gcomp *codec,
                                          const gw_cuda_gcomp_frame *frames, size_t frame_count,
                                          const gw_cuda_gcomp_target *target,
                                          const gw_cuda_gcomp_request *request)
{
    call c;

    if (target == NULL || !is_scale(target->scale) || !has_result(request) || frames == NULL ||
        frame_count == 0) {
        return GW_ERR_ARG;
    }
    gw_status status = begin(&c, cuda, codec, request,
                             frame_count > GW_ITEMS_MAX
                                 ? 0
                                 : gw_cuda_gcomp_decode_add_frames_workspace_size(codec, target->capacity));
    if (status == GW_OK) {
        status = check_frames(c.codec, frames, frame_count, target);
    }
    for (size_t i = 0; i < frame_count && status == GW_OK; i++) {
        gw_gcomp_decode_params params;
        gw_cuda_launches launches;
        fill_decode(&params, c.codec, &frames[i], request->device, GW_CUDA_DECODE_SUM);
        fill_target(&params.work.item, target, request);
        params.sum.index = (uint32_t)i;
        gw_cuda_launches_sum(&launches, &params, (uint32_t)frame_count, &c.shape, request->workspace.data);
        status = submit(&c, &launches, request);
    }
    return status;
}

static gw_status decode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_batch *batch,
                              const gw_cuda_gcomp_request *request, gw_cuda_decode_mode mode)
{
    call c;
    gw_gcomp_decode_params params;
    gw_cuda_launches launches;

    if (!is_batch(batch, request)) {
        return GW_ERR_ARG;
    }
    gw_status status =
        begin(&c, cuda, codec, request,
              gw_cuda_gcomp_decode_workspace_size(codec, batch->item_count, batch->value_total));
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_batch(&params.work, c.codec, batch, NULL, request, 0);
    params.mode = mode;
    gw_cuda_launches_decode(&launches, &params, batch->value_total, &c.shape, request->workspace.data);
    return submit(&c, &launches, request);
}

gw_status gw_cuda_gcomp_decode_batch(gw_cuda *cuda, const gw_gcomp *codec, const gw_cuda_gcomp_batch *batch,
                                     const gw_cuda_gcomp_request *request)
{
    const int is_add = batch != NULL && batch->is_add;

    return decode_batch(cuda, codec, batch, request, is_add ? GW_CUDA_DECODE_ADD : GW_CUDA_DECODE_VALUES);
}

gw_status gw_cuda_gcomp_frame_check_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                          const gw_cuda_gcomp_batch *batch,
                                          const gw_cuda_gcomp_request *request)
{
    return decode_batch(cuda, codec, batch, request, GW_CUDA_DECODE_VALIDATE);
}

/* ---- hop ----------------------------------------------------------------------------------------------- */

gw_status gw_cuda_gcomp_decode_add_encode(gw_cuda *cuda, const gw_gcomp *codec,
                                          const gw_cuda_gcomp_frame *frame, const gw_gcomp_source *source,
                                          const gw_cuda_buffer *dst, const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    gw_cuda_launches launches;

    if (source == NULL || dst == NULL || !has_result(request) || !is_frame(frame)) {
        return GW_ERR_ARG;
    }
    const size_t size = gw_cuda_gcomp_hop_workspace_size(codec, 1, source->len);
    const gw_status status = begin_encode(&c, cuda, codec, source, frame, dst, request, size);
    if (status != GW_OK) {
        return status;
    }
    fill_decode(&in, c.codec, frame, request->device, GW_CUDA_DECODE_SUM);
    in.work.item.addend = source->values;
    fill_encode(&out, c.codec, source, dst, request);
    gw_cuda_launches_hop(&launches, &in, &out, &c.shape, request->workspace.data);
    return submit_encode(&c, &launches, &out, &in.work.item, source, request, size);
}

gw_status gw_cuda_gcomp_decode_add_encode_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                                const gw_cuda_gcomp_hop_batch *batch,
                                                const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_hop_params params;
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    gw_cuda_launches launches;

    if (batch == NULL || request == NULL || batch->hops == NULL || !gw_cuda_is_aligned(batch->hops, 8) ||
        !is_batch_map(batch->src_map, request->device) || !is_batch_map(batch->map, request->device)) {
        return GW_ERR_ARG;
    }
    const size_t size = gw_cuda_gcomp_hop_workspace_size(codec, batch->hop_count, batch->value_total);
    const gw_status status = begin_batch(&c, cuda, codec, request, size, batch->map);
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    GW_MEMSET(&in, 0, sizeof in);
    GW_MEMSET(&out, 0, sizeof out);
    fill_work(&in.work, c.codec, batch->src_map, request->device, 0);
    fill_work(&out.work, c.codec, batch->map, request->device, 1);
    if (batch->key != NULL) {
        out.work.key = *batch->key;
    }
    params.hops = batch->hops;
    out.work.item_count = batch->hop_count;
    gw_cuda_launches_hop_batch(&launches, &params, &in, &out, batch->value_total, &c.shape,
                               request->workspace.data);
    return submit(&c, &launches, request);
}

/* ---- codebooks ----------------------------------------------------------------------------------------- */

gw_status gw_cuda_gcomp_histogram_add(gw_cuda *cuda, const gw_gcomp *codec, const gw_gcomp_source *source,
                                      gw_cuda_gcomp_histogram *histogram,
                                      const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_histogram_params params;
    gw_cuda_launches launches;

    if (source == NULL || !has_result(request) || histogram == NULL || !gw_cuda_is_aligned(histogram, 8)) {
        return GW_ERR_ARG;
    }
    gw_status status =
        begin(&c, cuda, codec, request, with_segments(GW_CUDA_HISTOGRAM_WORKSPACE_SIZE, codec, source));
    if (status == GW_OK) {
        status = check_source(c.codec, source, request->device);
    }
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_source(&params.work, c.codec, source, request, 0);
    params.work.item.dst = histogram;
    gw_gcomp_segment_params segments;
    if (source->segment_count != 0) {
        void *const area = fill_segments(&segments, source, request, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE);
        gw_cuda_launches_histogram_segments(&launches, &segments, &params, &c.shape, request->workspace.data,
                                            area);
    } else {
        gw_cuda_launches_histogram(&launches, &params, source->len, &c.shape, request->workspace.data);
    }
    return submit(&c, &launches, request);
}

gw_status gw_cuda_gcomp_histogram_add_batch(gw_cuda *cuda, const gw_gcomp *codec,
                                            const gw_cuda_gcomp_batch *batch,
                                            const gw_cuda_gcomp_request *request)
{
    call c;
    gw_gcomp_histogram_params params;
    gw_cuda_launches launches;

    if (!is_batch(batch, request)) {
        return GW_ERR_ARG;
    }
    const gw_status status = begin(&c, cuda, codec, request,
                                   batch->value_total > GW_FRAME_LEN_MAX
                                       ? 0
                                       : gw_cuda_gcomp_histogram_workspace_size(codec, batch->item_count));
    if (status == GW_OK && !has_wire_scale(c.codec, batch->map)) {
        return GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(&params, 0, sizeof params);
    fill_batch(&params.work, c.codec, batch, batch->key, request, 0);
    gw_cuda_launches_histogram(&launches, &params, batch->value_total, &c.shape, request->workspace.data);
    return submit(&c, &launches, request);
}

gw_status gw_cuda_gcomp_codebook_build(gw_cuda *cuda, const gw_gcomp *codec,
                                       const gw_cuda_gcomp_histogram *histograms,
                                       const gw_cuda_gcomp_codebooks *codebooks,
                                       const gw_cuda_gcomp_request *request)
{
    gw_gcomp_codebook_build_params params;
    gw_cuda_launches launches;

    if (cuda == NULL || codec == NULL || histograms == NULL || codebooks == NULL ||
        codebooks->codebooks == NULL || !gw_cuda_is_aligned(histograms, 8) ||
        !gw_cuda_is_aligned(codebooks->sizes, 4) || !has_result(request)) {
        return GW_ERR_ARG;
    }
    gw_cuda_state *state = gw_cuda_state_of(cuda);
    const gw_codec *inside = gw_codec_of(codec);
    if (state == NULL || inside == NULL) {
        return GW_ERR_STATE;
    }
    if (codebooks->count == 0 || codebooks->count > GW_ITEMS_MAX) {
        return GW_ERR_LIMIT;
    }
    GW_MEMSET(&params, 0, sizeof params);
    params.dtype = (uint32_t)inside->options.dtype;
    params.quantum_mode = (uint32_t)inside->options.quantum_mode;
    params.histogram = histograms;
    params.codebook = codebooks->codebooks;
    params.codebook_size = codebooks->sizes;
    params.result = request->result;
    gw_cuda_launches_codebook_build(&launches, &params, codebooks->count);
    return gw_cuda_submit(state, &launches, NULL, request->stream);
}

/* ---- device entry points ------------------------------------------------------------------------------- */

gw_status gw_cuda_gcomp_device_codec(const gw_gcomp *codec, const gw_gcomp_map *map,
                                     const gw_cuda_gcomp_key *key, struct gw_device_codec *out,
                                     size_t out_size, gw_cuda_shared_sizes *sizes)
{
    static const gw_cuda_gcomp_key no_key = {0, 0, 0, 0};
    const gw_codec *inside = codec == NULL ? NULL : gw_codec_of(codec);

    if (codec == NULL || out == NULL || out_size != sizeof *out) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (inside->options.quantum_mode == GW_GCOMP_CARRIED) {
        return GW_ERR_UNSUPPORTED;
    }
    if (map != NULL && map->chunk_log2 != inside->options.chunk_log2) {
        return GW_ERR_ARG;
    }
    if (inside->encode_with < 0) {
        return GW_ERR_TABLE;
    }
    if (map == NULL && inside->installed[inside->encode_with].codebook.is_relative) {
        return GW_ERR_ARG;
    }
    gw_cuda_device_codec_fill(out, inside, map, key == NULL ? &no_key : key);
    if (sizes != NULL) {
        sizes->encode = GW_CUDA_ENCODE_SHARED_SIZE(out->codec.chunk_log2);
        sizes->decode = gw_cuda_decode_shared_size(&out->codec);
    }
    return GW_OK;
}
