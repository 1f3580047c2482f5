/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_sparse_values.h"

#include "core/half.h"
#include "gcomp/gcomp_codec.h"
#include "core/float_bits.h"

enum {
    NESTED_DROP = 18, /* five mantissa bits are kept: relative errors of at most 2^-6 */
    HANDLE_SIZE = (sizeof(gw_gcomp) + 63) / 64 * 64,
    FP16_LARGEST = 0x7bff /* 65504 */
};

/* A handle for values of a frame, with the kernels of the caller. */
static void open_codec(gw_gcomp *codec, uint64_t len, const gw_kernels *kernels)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum.kind = GW_GCOMP_QUANTUM_DROP;
    options.quantum.drop = NESTED_DROP;
    options.backends = GW_BACKEND_SCALAR;
    options.len_max = len;
    if (gw_gcomp_init(codec, &options) == GW_OK && kernels != NULL) { /* these options are valid */
        ((gw_codec *)(void *)codec)->kernels = *kernels;
    }
}

gw_sparse_nested gw_sparse_nested_of(gw_classic_values values, uint64_t keep_len)
{
    gw_sparse_nested nested = {0, 0};
    gw_gcomp codec;
    if (values != GW_CLASSIC_VALUES_GCOMP) {
        return nested;
    }
    open_codec(&codec, keep_len, NULL);
    nested.workspace_size = HANDLE_SIZE + (gw_gcomp_workspace_size(&codec) + 63) / 64 * 64;
    nested.frame_size_max = gw_gcomp_frame_bound(&codec, keep_len);
    if (nested.frame_size_max == 0) {
        nested.frame_size_max = UINT64_MAX;
    }
    return nested;
}

uint64_t gw_sparse_values_size_max(gw_classic_values values, uint64_t keep_len)
{
    return values == GW_CLASSIC_VALUES_GCOMP ? gw_sparse_nested_of(values, keep_len).frame_size_max
                                             : keep_len * (values == GW_CLASSIC_VALUES_FP16 ? 2 : 4);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

gw_status gw_sparse_values_prepare(gw_sparse_writing *writing)
{
    if (writing->format != GW_CLASSIC_VALUES_GCOMP) {
        writing->size = gw_sparse_values_size_max(writing->format, writing->len);
        return GW_OK;
    }
    open_codec(writing->codec, writing->len, writing->kernels);
    float *const values = writing->values;
    for (uint64_t i = 0; !GW_IS_LITTLE_ENDIAN && i < writing->len; i++) {
        gw_store32(values + i, gw_bits_from_float(values[i]));
    }
    gw_gcomp_source source;
    GW_MEMSET(&source, 0, sizeof source);
    source.values = values;
    source.len = writing->len;
    gw_buffer dst = {writing->frame, writing->frame_size_max, 0};
    gw_status status = gw_gcomp_encode(writing->codec, &source, &dst, &writing->workspace);
    if (status != GW_OK) {
        return status;
    }
    const gw_gcomp_frame frame = {dst.data, dst.size, NULL};
    gw_gcomp_target target;
    GW_MEMSET(&target, 0, sizeof target);
    target.values = values;
    target.capacity = writing->len;
    status = gw_gcomp_decode(writing->codec, &frame, &target, &writing->workspace);
    for (uint64_t i = 0; !GW_IS_LITTLE_ENDIAN && i < writing->len; i++) {
        values[i] = gw_float_from_bits(gw_load32(values + i));
    }
    writing->size = dst.size;
    return status;
}

/* Nearest even, limited to the largest finite number; +0 for what rounds to zero. */
static uint32_t narrow(float value)
{
    const uint32_t half = gw_narrow_fp16(gw_bits_from_float(value)), magnitude = half & 0x7fff;
    if (magnitude == 0) {
        return 0;
    }
    return (half & 0x8000) | gw_min_u32(magnitude, FP16_LARGEST);
}

void gw_sparse_values_write(uint8_t *dst, gw_sparse_writing *writing)
{
    if (writing->format == GW_CLASSIC_VALUES_GCOMP) {
        GW_MEMCPY(dst, writing->frame, (size_t)writing->size);
        return;
    }
    if (writing->format == GW_CLASSIC_VALUES_FP32) {
        for (size_t i = 0; i < writing->len; i++) {
            gw_store32(dst + 4 * i, gw_bits_from_float(writing->values[i]));
        }
        return;
    }
    for (size_t i = 0; i < writing->len; i++) {
        const uint32_t half = narrow(writing->values[i]);
        gw_store16(dst + 2 * i, (uint16_t)half);
        writing->values[i] = gw_float_from_bits(gw_widen_fp16(half));
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Decodes a GCOMP frame of payload->info->keep_len values. */
static int open_nested(float *values, const gw_classic_payload *payload, const uint8_t *src, size_t size,
                       uint8_t *workspace)
{
    const uint64_t len = payload->info->keep_len;
    gw_gcomp *const codec = (gw_gcomp *)(void *)workspace;
    const gw_sparse_nested nested = gw_sparse_nested_of(GW_CLASSIC_VALUES_GCOMP, len);
    const gw_workspace space = {workspace + HANDLE_SIZE, (size_t)nested.workspace_size - HANDLE_SIZE};
    const gw_gcomp_frame frame = {src, size, NULL};
    gw_gcomp_frame_info info;
    gw_gcomp_target target;
    open_codec(codec, len, payload->kernels);
    int is_good = gw_gcomp_frame_parse(codec, &frame, &info) == GW_OK && info.dtype == GW_FP32 &&
                  info.quantum_mode == GW_GCOMP_EXPLICIT && info.len == len;
    if (is_good) {
        GW_MEMSET(&target, 0, sizeof target);
        target.values = values;
        target.capacity = len;
        is_good = gw_gcomp_decode(codec, &frame, &target, &space) == GW_OK && target.len == len;
    }
    for (uint64_t i = 0; i < len; i++) {
        values[i] = is_good ? gw_float_from_bits(gw_load32(values + i)) : 0.0f;
    }
    return is_good;
}

int gw_sparse_values_open(gw_sparse_reading *reading, const gw_classic_payload *payload, const uint8_t *src,
                          size_t size, uint8_t *workspace)
{
    const gw_classic_values format = payload->info->values;
    const uint64_t keep_len = payload->info->keep_len;
    reading->format = format;
    reading->src = src;
    reading->decoded = NULL;
    if (format != GW_CLASSIC_VALUES_GCOMP) {
        return size == gw_sparse_values_size_max(format, keep_len);
    }
    float *const values =
        (float *)(void *)(workspace + (size_t)gw_sparse_nested_of(format, keep_len).workspace_size);
    reading->decoded = values;
    return open_nested(values, payload, src, size, workspace);
}

int gw_sparse_values_read(const gw_sparse_reading *reading, float *values, uint64_t first, size_t count)
{
    const uint8_t *const src = reading->src;
    const size_t at = (size_t)first;
    uint32_t is_bad = 0;
    if (reading->format == GW_CLASSIC_VALUES_GCOMP) {
        GW_MEMCPY(values, reading->decoded + at, count * sizeof *values);
    } else if (reading->format == GW_CLASSIC_VALUES_FP32) {
        for (size_t i = 0; i < count; i++) {
            values[i] = gw_float_from_bits(gw_load32(src + 4 * (at + i)));
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            values[i] = gw_float_from_bits(gw_widen_fp16(gw_load16(src + 2 * (at + i))));
        }
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = gw_bits_from_float(values[i]), magnitude = bits & GW_F32_ABS;
        const uint32_t is_bad_here = magnitude >= GW_F32_INF, is_small = magnitude < GW_F32_MIN;
        is_bad |= is_bad_here;
        values[i] = gw_float_from_bits(bits & ((is_bad_here | is_small) - 1));
    }
    return is_bad == 0;
}
