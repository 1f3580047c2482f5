/*
 * Worker side: phase one (norms, with or without the rotation), phase two (encode), error feedback.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_context.h"
#include "thc/thc_float.h"
#include "thc/thc_plain.h"

#define GW_GRID_UNIT  65536.0 /* positions are in 1/65536 of a grid step */
#define GW_CACHE_LINE 64u

/* The arguments that the calls share, checked, and where the current block is in them. */
typedef struct worker_call {
    const gw_thc *thc;
    const gw_thc_kernels *kernels;
    const gw_thc_range *range;
    gw_thc_span span;
    gw_thc_scratch scratch;
    size_t element_size;
    size_t pattern_count; /* per block */
    const uint8_t *src;
    float *error;
} worker_call;

static gw_status begin_call(worker_call *call, const gw_thc *thc, const gw_thc_range *range, const void *src,
                            float *error, void *workspace, size_t workspace_size)
{
    gw_status status = gw_thc_span_make(&call->span, thc, range);
    if (status != GW_OK) {
        return status;
    }
    if (range->rank >= thc->config.worker_max) {
        return GW_ERR_ARG;
    }
    call->thc = thc;
    call->kernels = gw_thc_kernels_of(thc);
    call->range = range;
    call->element_size = gw_dtype_size((gw_dtype)thc->config.dtype);
    call->pattern_count = gw_thc_patterns_per_block(thc);
    call->src = src;
    call->error = error;
    return gw_thc_scratch_make(&call->scratch, thc, workspace, workspace_size);
}

static gw_status check_input(const worker_call *call)
{
    int wants_error = call->thc->config.error_feedback != 0;

    if (call->span.blocks > 0 && (call->src == NULL || (call->error != NULL) != wants_error)) {
        return GW_ERR_ARG;
    }
    return GW_OK;
}

static gw_thc_stream stream_of(const gw_thc *thc, const gw_thc_range *range, uint64_t i)
{
    gw_thc_stream stream = {thc->config.seed, (uint32_t)(range->first_block + i), range->round, range->rank};
    return stream;
}

/*
 * Brings a quarter of the next block's input nearer. A block is about a page long, and processors' own
 * prefetchers stop at the end of a page; the four quarters are asked for between the stages of a block, so
 * that memory works while they compute.
 */
static void fetch_ahead(const worker_call *call, uint64_t i, unsigned quarter)
{
#if defined(__GNUC__)
    if (i + 1 >= call->span.blocks) {
        return;
    }
    size_t at = ((size_t)i + 1) * call->span.block_len;
    size_t size = gw_thc_span_len(&call->span, i + 1) * call->element_size;
    const uint8_t *next = call->src + at * call->element_size;
    for (size_t byte = size / 4 * quarter; byte < size / 4 * (quarter + 1); byte += GW_CACHE_LINE) {
        __builtin_prefetch(next + byte);
    }
#else
    (void)call;
    (void)i;
    (void)quarter;
#endif
}

/* x of block i: input plus error, padded with zeros, in scratch.x. */
static void load_block(const worker_call *call, uint64_t i)
{
    size_t at = (size_t)i * call->span.block_len;

    call->kernels->load(call->scratch.x, call->src + at * call->element_size, call->thc->config.dtype,
                        call->error != NULL ? call->error + at : NULL, gw_thc_span_len(&call->span, i),
                        gw_thc_span_lanes(&call->span, i));
}

/* Patterns of scratch.x; by policy ZERO a block that has none becomes zeros. Returns 0 if the policy is ERROR
 * and there are none. */
static int measure_block(const worker_call *call, uint64_t i, uint32_t patterns[2])
{
    size_t len = gw_thc_span_len(&call->span, i);
    uint32_t mark;

    if (call->thc->config.transform == GW_THC_ROTATED) {
        patterns[0] = call->kernels->norm(call->scratch.x, len);
        mark = GW_THC_NORM_NONFINITE;
    } else {
        call->kernels->extent(patterns, call->scratch.x, len);
        mark = GW_THC_NONFINITE_CODE;
    }
    if (patterns[0] != mark || call->thc->config.nonfinite == GW_THC_NONFINITE_PROPAGATE) {
        return 1;
    }
    if (call->thc->config.nonfinite == GW_THC_NONFINITE_ERROR) {
        return 0;
    }
    GW_MEMSET(call->scratch.x, 0, gw_thc_span_lanes(&call->span, i) * sizeof *call->scratch.x);
    if (call->thc->config.transform == GW_THC_ROTATED) {
        patterns[0] = 0;
    } else {
        call->kernels->extent(patterns, call->scratch.x, len);
    }
    return 1;
}

static void report_block(uint64_t *bad_block, const worker_call *call, uint64_t i)
{
    if (bad_block != NULL) {
        *bad_block = call->span.first + i;
    }
}

static gw_status norms_of_range(const worker_call *call, uint32_t *patterns, float *rotated,
                                uint64_t *bad_block)
{
    for (uint64_t i = 0; i < call->span.blocks; i++) {
        uint32_t own[2] = {0, 0};
        size_t lanes = gw_thc_span_lanes(&call->span, i);

        load_block(call, i);
        fetch_ahead(call, i, 0);
        fetch_ahead(call, i, 1);
        if (!measure_block(call, i, own)) {
            report_block(bad_block, call, i);
            return GW_ERR_NONFINITE;
        }
        fetch_ahead(call, i, 2);
        fetch_ahead(call, i, 3);
        for (size_t p = 0; p < call->pattern_count; p++) {
            patterns[(size_t)i * call->pattern_count + p] = own[p];
        }
        if (rotated == NULL) {
            continue;
        }
        float *out = rotated + (size_t)i * call->span.block_len;
        if (own[0] == 0 || own[0] == GW_THC_NORM_NONFINITE) {
            GW_MEMSET(out, 0, lanes * sizeof *out);
        } else {
            gw_thc_stream stream = stream_of(call->thc, call->range, i);
            call->kernels->rotate(out, call->scratch.x, lanes, own[0] >> 23, &stream);
        }
    }
    return GW_OK;
}

gw_status gw_thc_norms(const gw_thc *thc, const gw_thc_range *range, const void *src, const float *error,
                       uint32_t *patterns, void *workspace, size_t workspace_size, uint64_t *bad_block)
{
    worker_call call;
    /* Phase one only reads the error memory; the shared argument block holds it as phase two needs it. */
    gw_status status =
        begin_call(&call, thc, range, src, (float *)(uintptr_t)error, workspace, workspace_size);

    if (status == GW_OK) {
        status = check_input(&call);
    }
    if (status == GW_OK && patterns == NULL && call.span.blocks > 0) {
        status = GW_ERR_ARG;
    }
    return status == GW_OK ? norms_of_range(&call, patterns, NULL, bad_block) : status;
}

gw_status gw_thc_prepare(const gw_thc *thc, const gw_thc_range *range, const void *src, const float *error,
                         uint32_t *own_patterns, float *rotated, void *workspace, size_t workspace_size,
                         uint64_t *bad_block)
{
    worker_call call;
    gw_status status =
        begin_call(&call, thc, range, src, (float *)(uintptr_t)error, workspace, workspace_size);

    if (status == GW_OK) {
        status = check_input(&call);
    }
    if (status == GW_OK && call.span.blocks > 0 && (own_patterns == NULL || rotated == NULL)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && thc->config.transform != GW_THC_ROTATED) {
        status = GW_ERR_OPTION;
    }
    return status == GW_OK ? norms_of_range(&call, own_patterns, rotated, bad_block) : status;
}

void gw_thc_norms_max(uint32_t *dst, const uint32_t *src, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        dst[i] = src[i] > dst[i] ? src[i] : dst[i];
    }
}

uint64_t gw_thc_norms_hash(const uint32_t *patterns, size_t len)
{
    uint64_t hash = GW_FNV_OFFSET;

    for (size_t i = 0; i < len; i++) {
        hash = gw_fnv_u32(hash, patterns[i]);
    }
    return hash;
}

gw_status gw_thc_norms_check(const gw_thc *thc, const uint32_t *patterns, uint64_t block_count,
                             uint64_t *bad_block)
{
    if (thc == NULL || (patterns == NULL && block_count > 0)) {
        return GW_ERR_ARG;
    }
    if (thc->tag != GW_THC_TAG) {
        return GW_ERR_STATE;
    }
    size_t per_block = gw_thc_patterns_per_block(thc);
    for (uint64_t i = 0; i < block_count; i++) {
        if (gw_thc_block_read(thc, patterns + (size_t)i * per_block) == GW_THC_BLOCK_INVALID) {
            if (bad_block != NULL) {
                *bad_block = i;
            }
            return GW_ERR_CORRUPT;
        }
    }
    return GW_OK;
}

/* GW_OK if the maxima are possible and cover the worker's own patterns. */
static gw_status check_maxima(const worker_call *call, const uint32_t *own, const uint32_t *maxima)
{
    if (gw_thc_block_read(call->thc, maxima) == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    for (size_t p = 0; p < call->pattern_count; p++) {
        if (own[p] > maxima[p]) {
            return GW_ERR_STATE;
        }
    }
    return GW_OK;
}

/*
 * Rotated values were scaled by 2^(128 - exponent of the own norm), so one grid step is 2 t l 2^(128 - e) / g
 * wide in them. A scale that would be subnormal is 0: it belongs to values 2^-126 below the range, whose
 * position is the middle anyway.
 */
static gw_thc_quantizer rotated_quantizer(const gw_thc *thc, uint32_t own_norm, uint32_t max_norm)
{
    double t = (double)gw_float_from_bits(thc->config.threshold_bits);
    double half_range = 0.5 * GW_GRID_UNIT * (double)thc->config.table.granularity;
    double norm = (double)gw_float_from_bits(max_norm) * gw_f64_pow2(128 - (int)(own_norm >> 23));
    double scale = half_range / t / norm;
    gw_thc_quantizer q;

    q.scale = scale < 0x1p-126 ? 0.0f : (float)scale;
    q.low = -(float)half_range;
    q.high = (float)half_range;
    q.offset = (int32_t)half_range;
    q.cell = thc->cell;
    q.table = thc->config.table.value;
    q.index_max = (1u << thc->config.table.bits) - 1u;
    return q;
}

static gw_thc_quantizer plain_quantizer(const gw_thc *thc, float width)
{
    double range = GW_GRID_UNIT * (double)thc->config.table.granularity;
    int exponent = (int)(gw_bits_from_float(width) >> 23);
    gw_thc_quantizer q;

    q.scale = (float)(range / ((double)width * gw_f64_pow2(128 - exponent)));
    q.low = 0.0f;
    q.high = (float)range;
    q.offset = 0;
    q.cell = thc->cell;
    q.table = thc->config.table.value;
    q.index_max = (1u << thc->config.table.bits) - 1u;
    return q;
}

/* New error of a block that carries nothing: all of x, or +0 where x is not a number. */
static void keep_block(const worker_call *call, uint64_t i, int is_finite)
{
    size_t len = gw_thc_span_len(&call->span, i);
    float *error = call->error + (size_t)i * call->span.block_len;

    GW_MEMSET(call->scratch.y, 0, len * sizeof *call->scratch.y);
    if (!is_finite) {
        GW_MEMSET(call->scratch.x, 0, len * sizeof *call->scratch.x);
    }
    call->kernels->residual(error, call->scratch.x, call->scratch.y, len);
}

/* error = x - decode(own indices), x in scratch.x. */
static void update_error(const worker_call *call, uint64_t i, const uint8_t *packed, const uint32_t *maxima)
{
    const gw_thc *thc = call->thc;
    size_t lanes = gw_thc_span_lanes(&call->span, i);
    gw_thc_stream stream = stream_of(thc, call->range, i);
    uint8_t *values = call->scratch.index;

    GW_MEMSET(values, 0, lanes);
    call->kernels->add_indices(values, packed, lanes, thc->config.table.bits, thc->config.table.value, 8);
    gw_thc_block_decode(thc, call->scratch.y, values, lanes, 8, 1, maxima, GW_THC_SUM, &stream);
    call->kernels->residual(call->error + (size_t)i * call->span.block_len, call->scratch.x, call->scratch.y,
                            gw_thc_span_len(&call->span, i));
}

/* Quantizes and packs one coded block; `rotated` is its rotated (or, in scratch.y, shifted) values. */
static void encode_coded(const worker_call *call, uint64_t i, const float *rotated, const uint32_t *own,
                         const uint32_t *maxima, uint8_t *packed)
{
    const gw_thc *thc = call->thc;
    size_t lanes = gw_thc_span_lanes(&call->span, i);
    gw_thc_stream stream = stream_of(thc, call->range, i);
    gw_thc_quantizer q;

    if (thc->config.transform == GW_THC_ROTATED) {
        q = rotated_quantizer(thc, own[0] != 0 ? own[0] : GW_F32_MIN, maxima[0]);
    } else {
        q = plain_quantizer(thc, gw_thc_plain_extent_of(maxima).width);
    }
    call->kernels->quantize(call->scratch.index, rotated, lanes, &q, &stream);
    call->kernels->pack(packed, call->scratch.index, lanes, thc->config.table.bits);
}

/* Block i with x in scratch.x: transform into scratch.y, unless the caller has it in `rotated`. */
static void encode_block(const worker_call *call, uint64_t i, const float *rotated, const uint32_t *own,
                         const uint32_t *maxima, uint8_t *packed)
{
    const gw_thc *thc = call->thc;
    size_t lanes = gw_thc_span_lanes(&call->span, i);
    gw_thc_block_kind kind = gw_thc_block_read(thc, maxima);

    if (kind != GW_THC_BLOCK_CODED) {
        GW_MEMSET(packed, 0, lanes / 8 * thc->config.table.bits);
        if (call->error != NULL) {
            keep_block(call, i, own[0] != GW_THC_NORM_NONFINITE);
        }
        return;
    }
    if (rotated == NULL) {
        gw_thc_stream stream = stream_of(thc, call->range, i);
        rotated = call->scratch.y;
        if (thc->config.transform == GW_THC_PLAIN) {
            gw_thc_plain_extent extent = gw_thc_plain_extent_of(maxima);
            call->kernels->shift(call->scratch.y, call->scratch.x, lanes, extent.minimum,
                                 gw_bits_from_float(extent.width) >> 23);
        } else if (own[0] == 0) {
            GW_MEMSET(call->scratch.y, 0, lanes * sizeof *call->scratch.y);
        } else {
            call->kernels->rotate(call->scratch.y, call->scratch.x, lanes, own[0] >> 23, &stream);
        }
        fetch_ahead(call, i, 2);
    }
    encode_coded(call, i, rotated, own, maxima, packed);
    if (call->error != NULL) {
        update_error(call, i, packed, maxima);
    }
}

static size_t packed_offset(const worker_call *call, uint64_t i)
{
    return (size_t)i * (call->span.block_len / 8) * call->thc->config.table.bits;
}

static gw_status check_indices_buffer(const worker_call *call, const void *indices, size_t capacity)
{
    if (call->span.blocks > 0 && indices == NULL) {
        return GW_ERR_ARG;
    }
    return capacity < call->span.lanes / 8 * call->thc->config.table.bits ? GW_ERR_DST : GW_OK;
}

/* Phase one again for block i, into scratch.x and own: the policy for non-finite values, then the maxima. */
static gw_status check_block(const worker_call *call, uint64_t i, const uint32_t *maxima, uint32_t own[2])
{
    own[0] = 0;
    own[1] = 0;
    load_block(call, i);
    fetch_ahead(call, i, 0);
    gw_status status = measure_block(call, i, own) ? check_maxima(call, own, maxima) : GW_ERR_NONFINITE;
    fetch_ahead(call, i, 1);
    return status;
}

/*
 * Without error memory blocks are checked as they come, and one that is refused wipes the indices before it:
 * one pass over the input instead of two. An error memory must not be half of the old and half of the new
 * one, so there everything is checked first.
 */
static gw_status encode_range(const worker_call *call, const uint32_t *patterns, uint8_t *indices,
                              uint64_t *bad_block)
{
    uint32_t own[2];

    for (uint64_t i = 0; call->error != NULL && i < call->span.blocks; i++) {
        gw_status status = check_block(call, i, patterns + (size_t)i * call->pattern_count, own);
        if (status != GW_OK) {
            report_block(bad_block, call, i);
            return status;
        }
        fetch_ahead(call, i, 2);
        fetch_ahead(call, i, 3);
    }
    for (uint64_t i = 0; i < call->span.blocks; i++) {
        const uint32_t *maxima = patterns + (size_t)i * call->pattern_count;
        gw_status status = check_block(call, i, maxima, own);
        if (status != GW_OK) {
            GW_MEMSET(indices, 0, packed_offset(call, i));
            report_block(bad_block, call, i);
            return status;
        }
        encode_block(call, i, NULL, own, maxima, indices + packed_offset(call, i));
        fetch_ahead(call, i, 3);
    }
    return GW_OK;
}

gw_status gw_thc_encode(const gw_thc *thc, const gw_thc_range *range, const void *src, float *error,
                        const uint32_t *patterns, uint8_t *indices, size_t indices_capacity, void *workspace,
                        size_t workspace_size, uint64_t *bad_block)
{
    worker_call call;
    gw_status status = begin_call(&call, thc, range, src, error, workspace, workspace_size);

    if (status == GW_OK) {
        status = check_input(&call);
    }
    if (status == GW_OK && patterns == NULL && call.span.blocks > 0) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK) {
        status = check_indices_buffer(&call, indices, indices_capacity);
    }
    return status == GW_OK ? encode_range(&call, patterns, indices, bad_block) : status;
}

gw_status gw_thc_encode_prepared(const gw_thc *thc, const gw_thc_range *range, const float *rotated,
                                 const uint32_t *own_patterns, const void *src, float *error,
                                 const uint32_t *patterns, uint8_t *indices, size_t indices_capacity,
                                 void *workspace, size_t workspace_size, uint64_t *bad_block)
{
    worker_call call;
    gw_status status = begin_call(&call, thc, range, src, error, workspace, workspace_size);

    if (status != GW_OK) {
        return status;
    }
    if (thc->config.transform != GW_THC_ROTATED) {
        return GW_ERR_OPTION;
    }
    if (call.span.blocks > 0 && (rotated == NULL || own_patterns == NULL || patterns == NULL)) {
        return GW_ERR_ARG;
    }
    if (thc->config.error_feedback != 0 || error != NULL) {
        status = check_input(&call);
    }
    if (status == GW_OK) {
        status = check_indices_buffer(&call, indices, indices_capacity);
    }
    for (uint64_t i = 0; status == GW_OK && i < call.span.blocks; i++) {
        status = gw_thc_block_read(thc, own_patterns + i) == GW_THC_BLOCK_INVALID
                     ? GW_ERR_ARG
                     : check_maxima(&call, own_patterns + i, patterns + i);
        if (status != GW_OK) {
            report_block(bad_block, &call, i);
        }
    }
    if (status != GW_OK) {
        return status;
    }

    for (uint64_t i = 0; i < call.span.blocks; i++) {
        if (error != NULL) {
            load_block(&call, i);
            if (own_patterns[i] == 0) {
                GW_MEMSET(call.scratch.x, 0, gw_thc_span_lanes(&call.span, i) * sizeof *call.scratch.x);
            }
        }
        encode_block(&call, i, rotated + (size_t)i * call.span.block_len, own_patterns + i, patterns + i,
                     indices + packed_offset(&call, i));
    }
    return GW_OK;
}

gw_status gw_thc_error_restore(const gw_thc *thc, const gw_thc_range *range, float *error,
                               const uint32_t *patterns, const uint8_t *indices, size_t indices_size,
                               void *workspace, size_t workspace_size)
{
    worker_call call;
    gw_status status = begin_call(&call, thc, range, NULL, error, workspace, workspace_size);

    if (status != GW_OK) {
        return status;
    }
    if (thc->config.error_feedback == 0) {
        return GW_ERR_OPTION;
    }
    if (call.span.blocks > 0 && (error == NULL || patterns == NULL)) {
        return GW_ERR_ARG;
    }
    status = check_indices_buffer(&call, indices, indices_size);
    if (status == GW_ERR_DST) {
        status = GW_ERR_SHORT;
    }
    if (status == GW_OK) {
        status = gw_thc_norms_check(thc, patterns, call.span.blocks, NULL);
    }
    if (status != GW_OK) {
        return status;
    }

    for (uint64_t i = 0; i < call.span.blocks; i++) {
        size_t lanes = gw_thc_span_lanes(&call.span, i);
        size_t len = gw_thc_span_len(&call.span, i);
        float *x = call.scratch.x;
        float *block_error = error + (size_t)i * call.span.block_len;
        gw_thc_stream stream = stream_of(thc, range, i);

        if (gw_thc_block_read(thc, patterns + i) != GW_THC_BLOCK_CODED) {
            continue; /* nothing was sent, nothing was taken out of the error */
        }
        GW_MEMSET(call.scratch.index, 0, lanes);
        call.kernels->add_indices(call.scratch.index, indices + packed_offset(&call, i), lanes,
                                  thc->config.table.bits, thc->config.table.value, 8);
        gw_thc_block_decode(thc, call.scratch.y, call.scratch.index, lanes, 8, 1, patterns + i, GW_THC_SUM,
                            &stream);
        /* load() wants little-endian values; where floats are that already, this is a copy onto itself. */
        for (size_t j = 0; j < len; j++) {
            gw_store32(call.scratch.y + j, gw_bits_from_float(call.scratch.y[j]));
        }
        call.kernels->load(x, call.scratch.y, GW_FP32, block_error, len, lanes);
        GW_MEMCPY(block_error, x, len * sizeof *x);
    }
    return GW_OK;
}
