/*
 * The sign family: SIGNSGD, EFSIGNSGD, SIGNUM, ONEBIT. The payload is scales, then one bit a value.
 *
 * Two passes where there is state: the first packs signs, sums, and finds values that are not finite; the
 * second moves state on. So a call that fails has changed nothing. Bits go where they belong in the first
 * pass.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_sign.h"

#include "core/wire_values.h"

/* ---- sizes --------------------------------------------------------------------------------------------- */

static int has_votes(gw_classic_scheme scheme)
{
    return scheme == GW_CLASSIC_SIGNSGD || scheme == GW_CLASSIC_SIGNUM;
}

static size_t workspace_size(const gw_classic_options *options, const gw_classic_step *step)
{
    (void)step;
    const int is_direct = options->scheme == GW_CLASSIC_SIGNSGD && options->error_feedback == 0;
    return is_direct ? 0 : GW_CLASSIC_BLOCK_LEN * sizeof(float);
}

static size_t payload_size_max(const gw_classic_options *options, const gw_classic_step *step)
{
    const uint64_t scales = gw_sign_scale_count(options->scheme, options->block_len, step->len);
    return gw_classic_size_add(gw_classic_size_of(scales, 4),
                               gw_classic_size_of(gw_sign_bits_size(step->len), 1));
}

/* A block for sums of votes. */
static size_t decode_workspace_size(const gw_classic_frame_info *info)
{
    return has_votes(info->scheme) ? GW_CLASSIC_BLOCK_LEN * sizeof(float) : 0;
}

/* ---- encode -------------------------------------------------------------------------------------------- */

/* The values to pack: [first, first + len) with the residual, or the new momentum. */
static void load_block(const gw_classic_encoding *e, float *x, size_t first, size_t len)
{
    const gw_classic_options *o = e->options;
    const uint8_t *values = (const uint8_t *)e->source->values + first * gw_dtype_size(o->dtype);
    const float *residual = e->source->residual;

    e->kernels->thc.load(x, values, (unsigned)o->dtype, residual != NULL ? residual + first : NULL, len, len);
    if (e->source->momentum != NULL) {
        e->kernels->classic.sign_momentum(x, e->source->momentum + first, x, len, o->momentum,
                                          1.0f - o->momentum);
    }
}

/* sign_pack of numbers in the machine's byte order. */
static uint32_t pack_block(const gw_classic_encoding *e, uint8_t *bits, const float *x, size_t len)
{
    uint8_t little[4 * 64];
    uint32_t is_bad = 0;

    if (GW_IS_LITTLE_ENDIAN) {
        return e->kernels->classic.sign_pack(bits, x, GW_FP32, len);
    }
    for (size_t i = 0; i < len; i += 64) {
        const size_t count = gw_min_size(len - i, 64);
        for (size_t j = 0; j < count; j++) {
            gw_store32(little + 4 * j, gw_bits_from_float(x[i + j]));
        }
        is_bad |= e->kernels->classic.sign_pack(bits + i / 8, little, GW_FP32, count);
    }
    return is_bad;
}

/* A column on its way through the blocks. */
typedef struct column_sums {
    uint64_t column_len;
    uint64_t end;   /* of the column, or of the tensor */
    uint64_t first; /* of the column */
    double negative, positive;
    uint64_t negative_count;
    uint8_t *scales; /* of this column and those after it */
} column_sums;

static void put_scale(uint8_t *at, double sum, uint64_t count)
{
    const float mean = count == 0 ? 0.0f : gw_narrow_double(sum / (double)count);
    gw_store32(at, gw_bits_from_float(mean));
}

/* The end of a column: its scales. */
static void finish_column(const gw_classic_encoding *e, column_sums *sums)
{
    const uint64_t count = sums->end - sums->first;

    if (e->options->scheme == GW_CLASSIC_ONEBIT) {
        put_scale(sums->scales, -sums->negative, sums->negative_count);
        put_scale(sums->scales + 4, sums->positive, count - sums->negative_count);
        sums->scales += 8;
    } else {
        put_scale(sums->scales, sums->positive - sums->negative, count);
    }
    sums->first = sums->end;
    sums->end = gw_min_u64(sums->first + sums->column_len, e->step->len);
    sums->negative = 0.0;
    sums->positive = 0.0;
    sums->negative_count = 0;
}

/* Adds a block, in pieces that end with it or with their column. */
static void sum_block(const gw_classic_encoding *e, column_sums *sums, const float *x, uint64_t first,
                      size_t len)
{
    for (size_t i = 0; i < len;) {
        const size_t piece = (size_t)gw_min_u64(len - i, sums->end - (first + i));
        gw_sign_sums part;
        e->kernels->classic.sign_sums(&part, x + i, piece);
        sums->negative += part.negative;
        sums->positive += part.positive;
        sums->negative_count += part.negative_count;
        i += piece;
        if (first + i == sums->end) {
            finish_column(e, sums);
        }
    }
}

/* Bits and scales; state is only read. */
static gw_status pack(const gw_classic_encoding *e, uint64_t scale_count)
{
    float *x = (float *)(void *)e->workspace;
    const size_t len = (size_t)e->step->len;
    uint8_t *bits = e->payload + 4 * (size_t)scale_count;
    column_sums sums = {gw_sign_column_len(e->options->block_len, len), 0, 0, 0.0, 0.0, 0, e->payload};

    if (x == NULL) { /* plain SIGNSGD: from the values themselves */
        const uint32_t is_bad =
            e->kernels->classic.sign_pack(bits, e->source->values, (unsigned)e->options->dtype, len);
        return is_bad != 0 ? GW_ERR_NONFINITE : GW_OK;
    }
    sums.end = gw_min_u64(sums.column_len, len);
    for (size_t first = 0; first < len; first += GW_CLASSIC_BLOCK_LEN) {
        const size_t block_len = gw_min_size(len - first, GW_CLASSIC_BLOCK_LEN);
        load_block(e, x, first, block_len);
        if (pack_block(e, bits + first / 8, x, block_len) != 0) {
            return GW_ERR_NONFINITE;
        }
        if (scale_count > 0) {
            sum_block(e, &sums, x, first, block_len);
        }
    }
    return GW_OK;
}

/* Magnitudes of the others and of the negative values of a column. */
static void read_scales(float scales[2], gw_classic_scheme scheme, const uint8_t *payload, uint64_t column)
{
    if (scheme == GW_CLASSIC_ONEBIT) {
        scales[1] = gw_float_from_bits(gw_load32(payload + 8 * (size_t)column));
        scales[0] = gw_float_from_bits(gw_load32(payload + 8 * (size_t)column + 4));
    } else {
        scales[0] = scheme == GW_CLASSIC_EFSIGNSGD ? gw_float_from_bits(gw_load32(payload)) : 1.0f;
        scales[1] = scales[0];
    }
}

/* residual = p - decoded. */
static void keep_block(const gw_classic_encoding *e, const float *x, uint64_t first, size_t len)
{
    const uint64_t column_len = gw_sign_column_len(e->options->block_len, e->step->len);

    for (size_t i = 0; i < len;) {
        const uint64_t column = (first + i) / column_len;
        const size_t piece = (size_t)gw_min_u64(len - i, (column + 1) * column_len - (first + i));
        float scales[2];
        read_scales(scales, e->options->scheme, e->payload, column);
        e->kernels->classic.sign_residual(e->source->residual + first + i, x + i, piece, scales[0],
                                          -scales[1]);
        i += piece;
    }
}

static gw_status encode(gw_classic_encoding *e)
{
    const size_t size = payload_size_max(e->options, e->step);
    const size_t len = (size_t)e->step->len;
    float *x = (float *)(void *)e->workspace;

    if (size > e->capacity) {
        return GW_ERR_DST;
    }
    const gw_status status = pack(e, gw_sign_scale_count(e->options->scheme, e->options->block_len, len));
    if (status != GW_OK) {
        return status;
    }
    for (size_t first = 0; x != NULL && first < len; first += GW_CLASSIC_BLOCK_LEN) {
        const size_t block_len = gw_min_size(len - first, GW_CLASSIC_BLOCK_LEN);
        load_block(e, x, first, block_len);
        if (e->source->momentum != NULL) {
            GW_MEMCPY((uint8_t *)(void *)e->source->momentum + first * sizeof *x, x, block_len * sizeof *x);
        } else {
            keep_block(e, x, first, block_len);
        }
    }
    e->size = size;
    return GW_OK;
}

/* ---- decode -------------------------------------------------------------------------------------------- */

static gw_status check_header(const gw_classic_frame_info *info)
{
    const uint32_t flags = GW_CLASSIC_FLAG_CHECKSUM | (has_votes(info->scheme) ? GW_CLASSIC_FLAG_VOTE : 0);

    if (info->values != 0 || info->coding != 0 || info->norm != 0 || info->level_max != 0 ||
        info->keep_len != 0 || (info->flags & ~flags) != 0) {
        return GW_ERR_HEADER;
    }
    if (info->block_len > (info->scheme == GW_CLASSIC_ONEBIT ? 1u << 30 : 0)) {
        return GW_ERR_HEADER;
    }
    if (info->len == 0) {
        return GW_OK;
    }
    const uint64_t scales = gw_sign_scale_count(info->scheme, info->block_len, info->len);
    return info->payload_size == 4 * scales + gw_sign_bits_size(info->len) ? GW_OK : GW_ERR_HEADER;
}

static gw_status check(const gw_classic_payload *payload)
{
    const gw_classic_frame_info *info = payload->info;
    const size_t scales = (size_t)gw_sign_scale_count(info->scheme, info->block_len, info->len);

    for (size_t i = 0; i < scales; i++) {
        const uint32_t bits = gw_load32(payload->data + 4 * i);
        if (bits != 0 && (bits < GW_F32_MIN || bits >= GW_F32_INF)) {
            return GW_ERR_CORRUPT;
        }
    }
    const unsigned used = (unsigned)(info->len % 8);
    return used == 0 || payload->data[payload->size - 1] >> used == 0 ? GW_OK : GW_ERR_CORRUPT;
}

static void decode(const gw_classic_payload *payload, const gw_classic_sink *sink)
{
    const gw_classic_frame_info *info = payload->info;
    const gw_classic_kernels *kernels = &payload->kernels->classic;
    const uint64_t column_len = gw_sign_column_len(info->block_len, info->len);
    const size_t size = gw_dtype_size((gw_dtype)sink->dtype);
    const uint8_t *bits =
        payload->data + 4 * (size_t)gw_sign_scale_count(info->scheme, info->block_len, info->len);

    for (uint64_t first = 0, column = 0; first < info->len; first += column_len, column++) {
        const size_t len = (size_t)gw_min_u64(info->len - first, column_len);
        const unsigned shift = (unsigned)(first % 8);
        uint8_t stored[8];
        float values[2];

        read_scales(values, info->scheme, payload->data, column);
        values[1] = gw_f32_flush(-values[1]); /* +0 for 0 */
        if (sink->scale != 1.0f) {
            kernels->multiply(values, 2, sink->scale);
        }
        if (sink->is_sum) {
            kernels->sign_add((float *)(void *)gw_classic_sink_at(sink, first), bits + first / 8, shift, len,
                              values[0], values[1]);
            continue;
        }
        payload->kernels->thc.store(stored, values, sink->dtype, 2);
        kernels->sign_unpack(gw_classic_sink_at(sink, first), (unsigned)size, bits + first / 8, shift, len,
                             size == 4 ? gw_load32(stored) : gw_load16(stored),
                             size == 4 ? gw_load32(stored + 4) : gw_load16(stored + 2));
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static size_t sum_size(const gw_classic_frame_info *info)
{
    return has_votes(info->scheme) ? gw_classic_size_of(info->len, sizeof(int32_t)) : 0;
}

const gw_classic_family gw_classic_sign = {
    .workspace_size = workspace_size,
    .payload_size_max = payload_size_max,
    .decode_workspace_size = decode_workspace_size,
    .encode = encode,
    .check_header = check_header,
    .check = check,
    .decode = decode,
    .sum_size = sum_size,
    .sum_add = gw_sign_sum_add,
    .sum_decode = gw_sign_sum_decode,
    .sum_vote = gw_sign_sum_vote,
};
