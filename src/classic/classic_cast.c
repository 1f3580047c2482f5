/*
 * The cast family: FP16 and BF16. The payload is the values in the wire's type.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"

static unsigned wire_dtype(gw_classic_scheme scheme)
{
    return scheme == GW_CLASSIC_FP16 ? GW_FP16 : GW_BF16;
}

static size_t payload_size_max(const gw_classic_options *options, const gw_classic_step *step)
{
    (void)options;
    return gw_classic_size_of(step->len, 2);
}

/* A block of fp32, for targets that need arithmetic. */
static size_t decode_workspace_size(const gw_classic_frame_info *info)
{
    (void)info;
    return GW_CLASSIC_BLOCK_LEN * sizeof(float);
}

static gw_status encode(gw_classic_encoding *e)
{
    const size_t size = payload_size_max(e->options, e->step);

    if (size > e->capacity) {
        return GW_ERR_DST;
    }
    e->kernels->classic.cast(e->payload, wire_dtype(e->options->scheme), e->source->values,
                             (unsigned)e->options->dtype, (size_t)e->step->len);
    e->size = size;
    return GW_OK;
}

static gw_status check_header(const gw_classic_frame_info *info)
{
    const int is_plain = info->values == 0 && info->coding == 0 && info->norm == 0 && info->level_max == 0 &&
                         info->block_len == 0 && info->keep_len == 0 &&
                         (info->flags & ~GW_CLASSIC_FLAG_CHECKSUM) == 0;
    return is_plain && info->payload_size == 2 * info->len ? GW_OK : GW_ERR_HEADER;
}

static gw_status check(const gw_classic_payload *payload)
{
    (void)payload; /* every bit pattern is a value */
    return GW_OK;
}

static void decode(const gw_classic_payload *payload, const gw_classic_sink *sink)
{
    const unsigned wire = wire_dtype(payload->info->scheme);
    const size_t len = (size_t)payload->info->len;
    float *x = (float *)(void *)payload->workspace;

    if (!sink->is_sum && sink->scale == 1.0f) {
        payload->kernels->classic.cast(sink->values, sink->dtype, payload->data, wire, len);
        return;
    }
    for (size_t first = 0; first < len; first += GW_CLASSIC_BLOCK_LEN) {
        const size_t block_len = gw_min_size(len - first, GW_CLASSIC_BLOCK_LEN);
        payload->kernels->thc.load(x, payload->data + 2 * first, wire, NULL, block_len, block_len);
        gw_classic_sink_put(sink, payload->kernels, first, x, block_len);
    }
}

const gw_classic_family gw_classic_cast = {
    .payload_size_max = payload_size_max,
    .decode_workspace_size = decode_workspace_size,
    .encode = encode,
    .check_header = check_header,
    .check = check,
    .decode = decode,
};
