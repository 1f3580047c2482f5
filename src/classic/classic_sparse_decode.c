/*
 * Sparse frames to values: positions and values in batches; what lies between two batches of positions is
 * cleared just before the second one is stored, so that no value is cleared long before.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_positions.h"
#include "classic/classic_randk.h"
#include "classic/classic_sparse.h"
#include "classic/classic_sparse_values.h"
#include "classic/sparse_value.h"
#include "core/wire_values.h"

enum { BATCH_LEN = 1024 };

static uint64_t bitmap_size(const gw_classic_frame_info *info)
{
    return info->scheme == GW_CLASSIC_RANDK ? (gw_randk_words(info->len) * 8 + 63) / 64 * 64 : 0;
}

size_t gw_sparse_decode_workspace_size(const gw_classic_frame_info *info)
{
    uint64_t size = bitmap_size(info);
    if (info->values == GW_CLASSIC_VALUES_GCOMP) {
        size += gw_sparse_nested_of(info->values, info->keep_len).workspace_size + 4 * info->keep_len;
    }
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

/* Both streams of a payload. */
typedef struct sparse_streams {
    gw_positions_reader positions;
    gw_sparse_reading values;
} sparse_streams;

static void draw_positions(gw_positions_reader *reader, const gw_classic_payload *payload)
{
    const gw_classic_frame_info *const info = payload->info;
    const gw_randk_stream stream = {info->seed, info->element_first, info->round};
    uint64_t *const bitmap = (uint64_t *)(void *)payload->workspace;
    gw_randk_draw(bitmap, info->len, info->keep_len, &stream);
    gw_positions_open_bitmap(reader, bitmap, info->len, info->keep_len);
}

/* 0 if the sizes do not fit or nested values are bad. */
static int open_streams(sparse_streams *streams, const gw_classic_payload *payload, int with_positions)
{
    const gw_classic_frame_info *const info = payload->info;
    size_t used = 0;
    if (info->scheme != GW_CLASSIC_RANDK) {
        used =
            gw_positions_open(&streams->positions, payload->data, payload->size, info->len, info->keep_len);
        if (used == 0) {
            return 0;
        }
    } else if (with_positions) {
        draw_positions(&streams->positions, payload);
    }
    /* Frames that need no workspace may have none: adds no offset to NULL. */
    uint8_t *const scratch =
        payload->workspace != NULL ? payload->workspace + (size_t)bitmap_size(info) : NULL;
    return gw_sparse_values_open(&streams->values, payload, payload->data + used, payload->size - used,
                                 scratch);
}

gw_status gw_sparse_check_header(const gw_classic_frame_info *info)
{
    const uint32_t flags = info->flags & ~GW_CLASSIC_FLAG_CHECKSUM;
    if ((unsigned)info->values > GW_CLASSIC_VALUES_GCOMP) {
        return GW_ERR_UNSUPPORTED;
    }
    if (info->coding != 0 || info->norm != 0 || info->block_len != 0 || info->level_max != 0 ||
        (flags & ~(info->scheme == GW_CLASSIC_RANDK ? GW_CLASSIC_FLAG_UNBIASED : 0u)) != 0 ||
        info->keep_len > info->len || (info->keep_len == 0) != (info->len == 0)) {
        return GW_ERR_HEADER;
    }
    if (info->len != 0 && info->scheme == GW_CLASSIC_RANDK && info->values != GW_CLASSIC_VALUES_GCOMP &&
        info->payload_size != gw_sparse_values_size_max(info->values, info->keep_len)) {
        return GW_ERR_HEADER;
    }
    return GW_OK;
}

gw_status gw_sparse_check(const gw_classic_payload *payload)
{
    const gw_classic_frame_info *const info = payload->info;
    float values[BATCH_LEN];
    sparse_streams streams;
    if (!open_streams(&streams, payload, 0)) {
        return GW_ERR_CORRUPT;
    }
    for (uint64_t first = 0; first < info->keep_len; first += BATCH_LEN) {
        const size_t count = (size_t)gw_min_u64(info->keep_len - first, BATCH_LEN);
        if (!gw_sparse_values_read(&streams.values, values, first, count)) {
            return GW_ERR_CORRUPT;
        }
    }
    if (info->scheme == GW_CLASSIC_RANDK) {
        return GW_OK; /* positions follow from the header */
    }
    gw_positions_skip(&streams.positions);
    return gw_positions_is_complete(&streams.positions) ? GW_OK : GW_ERR_CORRUPT;
}

/* ---- stores -------------------------------------------------------------------------------------------- */

/* len / keep_len of an unbiased frame: rounded to fp64, then to fp32. */
static float factor_of(const gw_classic_frame_info *info)
{
    return (info->flags & GW_CLASSIC_FLAG_UNBIASED) != 0 && info->keep_len != 0
               ? (float)((double)info->len / (double)info->keep_len)
               : 1.0f;
}

static void multiply(const gw_kernels *kernels, float *values, size_t count, float factor)
{
    if (factor != 1.0f) {
        kernels->classic.multiply(values, count, factor);
    }
}

/* The rule of the kernel `accumulate`, for numbers that are not next to each other. */
static void add_batch(void *sums, const uint32_t *positions, const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t at = (size_t)positions[i];
        const float old = gw_f32_flush(gw_float_from_bits(gw_sparse_load(sums, at)));
        const uint32_t bits = gw_wire_narrow(gw_bits_from_float(gw_f32_flush(old + values[i])), GW_FP32);
        gw_sparse_store(sums, at, gw_float_from_bits(bits));
    }
}

static void store_batch(const gw_classic_sink *sink, const uint32_t *positions, const float *values,
                        size_t count)
{
    uint8_t *const dst = (uint8_t *)sink->values;
    if (sink->is_sum) {
        add_batch(dst, positions, values, count);
    } else if (sink->dtype == GW_FP32) {
        for (size_t i = 0; i < count; i++) {
            gw_store32(dst + 4 * (size_t)positions[i], gw_bits_from_float(values[i]));
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            const uint32_t bits = gw_wire_narrow(gw_bits_from_float(values[i]), sink->dtype);
            gw_store16(dst + 2 * (size_t)positions[i], (uint16_t)bits);
        }
    }
}

/* Clears elements [*cleared, end). */
static void clear_until(const gw_classic_sink *sink, uint64_t *cleared, uint64_t end)
{
    const size_t size = sink->dtype == GW_FP32 ? 4 : 2;
    if (!sink->is_sum && end > *cleared) {
        GW_MEMSET((uint8_t *)sink->values + size * (size_t)*cleared, 0, size * (size_t)(end - *cleared));
        *cleared = end;
    }
}

/* Stores the values of `lanes`, or, if that is NULL, of the payload. */
static void put_values(sparse_streams *streams, const gw_classic_payload *payload, const uint8_t *lanes,
                       const gw_classic_sink *sink)
{
    const float factor = factor_of(payload->info);
    uint32_t positions[BATCH_LEN];
    float values[BATCH_LEN];
    uint64_t first = 0, cleared = 0;
    for (size_t count; (count = gw_positions_next(&streams->positions, positions, BATCH_LEN)) != 0;) {
        if (lanes != NULL) {
            GW_MEMCPY(values, lanes + 4 * (size_t)first, 4 * count);
        } else {
            (void)gw_sparse_values_read(&streams->values, values, first, count);
            multiply(payload->kernels, values, count, factor);
        }
        multiply(payload->kernels, values, count, sink->scale);
        clear_until(sink, &cleared, (uint64_t)positions[count - 1] + 1);
        store_batch(sink, positions, values, count);
        first += count;
    }
    clear_until(sink, &cleared, payload->info->len);
}

void gw_sparse_decode(const gw_classic_payload *payload, const gw_classic_sink *sink)
{
    sparse_streams streams;
    uint64_t cleared = 0;
    if (!open_streams(&streams, payload, 1)) {
        clear_until(sink, &cleared, payload->info->len); /* the bytes changed after the check */
        return;
    }
    put_values(&streams, payload, NULL, sink);
}

/* ---- sums of RANDK ------------------------------------------------------------------------------------- */

size_t gw_sparse_sum_size(const gw_classic_frame_info *info)
{
    return info->scheme == GW_CLASSIC_RANDK ? gw_classic_size_of(info->keep_len, sizeof(float)) : 0;
}

void gw_sparse_sum_add(void *lanes, const gw_classic_payload *payload)
{
    const gw_classic_frame_info *const info = payload->info;
    const float factor = factor_of(info);
    float values[BATCH_LEN];
    sparse_streams streams;
    if (!open_streams(&streams, payload, 0)) {
        return; /* the bytes changed after the check */
    }
    for (uint64_t first = 0; first < info->keep_len; first += BATCH_LEN) {
        const size_t count = (size_t)gw_min_u64(info->keep_len - first, BATCH_LEN);
        (void)gw_sparse_values_read(&streams.values, values, first, count);
        multiply(payload->kernels, values, count, factor);
        payload->kernels->classic.accumulate((float *)lanes + first, values, count);
    }
}

void gw_sparse_sum_decode(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink)
{
    sparse_streams streams;
    draw_positions(&streams.positions, first);
    put_values(&streams, first, (const uint8_t *)lanes, sink);
}
