/*
 * The level family: QSGD and TERNGRAD. Sizes, headers, check, decode and sums; level_encode.c has the rest.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/level_layout.h"

static gw_level_layout layout_of_info(const gw_classic_frame_info *info)
{
    return gw_level_layout_of(info->len, info->block_len, info->level_max, info->coding);
}

/* ---- sizes and headers --------------------------------------------------------------------------------- */

static size_t workspace_size(const gw_classic_options *options, const gw_classic_step *step)
{
    (void)options;
    (void)step;
    return sizeof(gw_level_scratch);
}

static size_t payload_size_max(const gw_classic_options *options, const gw_classic_step *step)
{
    const gw_level_layout layout =
        gw_level_layout_of(step->len, options->block_len, options->level_max, options->coding);
    return gw_classic_size_of(gw_level_size_max(&layout), 1);
}

static size_t decode_workspace_size(const gw_classic_frame_info *info)
{
    (void)info;
    return sizeof(gw_level_scratch);
}

static gw_status check_header(const gw_classic_frame_info *info)
{
    const uint32_t known = GW_CLASSIC_FLAG_CHECKSUM | GW_CLASSIC_FLAG_SHARED;
    const int is_terngrad = info->scheme == GW_CLASSIC_TERNGRAD;
    const uint32_t block_len = info->block_len;
    if ((uint32_t)info->coding > GW_CLASSIC_CODING_ELIAS || (uint32_t)info->norm > GW_CLASSIC_NORM_MAX) {
        return GW_ERR_UNSUPPORTED;
    }
    const int is_bad_block =
        block_len != 0 && (block_len < 64 || block_len > (1u << 30) || block_len % 64 != 0);
    const int is_bad_level = info->level_max < 1 || info->level_max > (is_terngrad ? 1u : 127u);
    if ((info->flags & ~known) != 0 || info->values != GW_CLASSIC_VALUES_FP32 || info->keep_len != 0 ||
        is_bad_block || is_bad_level || (is_terngrad && info->norm != GW_CLASSIC_NORM_MAX)) {
        return GW_ERR_HEADER;
    }
    if (info->len == 0) {
        return GW_OK;
    }
    const gw_level_layout layout = layout_of_info(info);
    const int is_packed = info->coding == GW_CLASSIC_CODING_PACKED;
    const uint64_t most = gw_level_size_max(&layout), least = is_packed ? most : gw_level_front_size(&layout);
    return info->payload_size < least || info->payload_size > most ? GW_ERR_HEADER : GW_OK;
}

/* ---- chunks of a payload ------------------------------------------------------------------------------- */

typedef struct level_decoder {
    const gw_classic_payload *payload;
    gw_level_scratch *scratch;
    gw_level_layout layout;
    gw_level_form form;
    size_t at; /* of the next chunk */
} level_decoder;

static level_decoder decoder_of(const gw_classic_payload *payload)
{
    level_decoder d;
    d.payload = payload;
    d.scratch = (gw_level_scratch *)(void *)payload->workspace;
    d.layout = layout_of_info(payload->info);
    d.form.kernels = payload->kernels;
    d.form.coding = payload->info->coding;
    d.form.level_max = payload->info->level_max;
    d.at = (size_t)gw_level_front_size(&d.layout); /* the frame has them */
    return d;
}

/* Reads the next chunk into scratch->levels. Returns 0 if it breaks a rule; the levels are then 0. */
static int next_chunk(level_decoder *d, uint64_t chunk)
{
    const gw_classic_payload *payload = d->payload;
    const size_t len = gw_level_chunk_len(&d->layout, chunk), at = d->at;
    const uint32_t entry = d->layout.directory_size == 0
                               ? (uint32_t)gw_level_packed_size(d->form.level_max, len)
                               : gw_load32(payload->data + d->layout.norms_size + 4 * chunk);
    const size_t size = entry & ~3u;
    const int fits = size <= payload->size - at;
    d->at = fits ? at + size : payload->size;
    if (fits && gw_level_read(payload->data + at, entry, len, &d->form, d->scratch)) {
        return 1;
    }
    GW_MEMSET(d->scratch->levels, 0, len);
    return 0;
}

static uint32_t norm_at(const level_decoder *d, uint64_t block)
{
    return gw_load32(d->payload->data + 4 * block);
}

/* 1 if blocks of norm 0 have no other levels than 0. */
static int are_zero_blocks_zero(const level_decoder *d, uint64_t chunk)
{
    const uint64_t start = chunk * GW_LEVEL_CHUNK_LEN, end = start + gw_level_chunk_len(&d->layout, chunk);
    for (uint64_t first = start; first < end;) {
        const gw_level_run run = gw_level_run_at(&d->layout, first, end);
        if (norm_at(d, run.block) == 0 && !gw_is_zero(d->scratch->levels + (first - start), run.len)) {
            return 0;
        }
        first += run.len;
    }
    return 1;
}

static gw_status check(const gw_classic_payload *payload)
{
    level_decoder d = decoder_of(payload);
    for (uint64_t block = 0; block < d.layout.block_count; block++) {
        if (!gw_level_is_norm(norm_at(&d, block), payload->info->dtype)) {
            return GW_ERR_CORRUPT;
        }
    }
    for (uint64_t chunk = 0; chunk < d.layout.chunk_count; chunk++) {
        if (!next_chunk(&d, chunk) || !are_zero_blocks_zero(&d, chunk)) {
            return GW_ERR_CORRUPT;
        }
    }
    return d.at == payload->size ? GW_OK : GW_ERR_CORRUPT;
}

/* Values [first, end), at most a piece, whose levels are at `levels`. */
static void put_piece(const level_decoder *d, const gw_classic_sink *sink, uint64_t first, uint64_t end,
                      const uint8_t *levels)
{
    const gw_kernels *k = d->payload->kernels;
    float *const values = d->scratch->y;
    const size_t len = (size_t)(end - first);
    for (size_t i = 0; i < len;) {
        const gw_level_run run = gw_level_run_at(&d->layout, first + i, end);
        const float step = gw_level_step(norm_at(d, run.block), d->form.level_max);
        k->classic.level_decode(values + i, (const int8_t *)(const void *)(levels + i), run.len, step);
        i += run.len;
    }
    gw_classic_sink_put(sink, k, first, values, len);
}

static void decode(const gw_classic_payload *payload, const gw_classic_sink *sink)
{
    level_decoder d = decoder_of(payload);
    for (uint64_t chunk = 0; chunk < d.layout.chunk_count; chunk++) {
        const uint64_t start = chunk * GW_LEVEL_CHUNK_LEN;
        const size_t len = gw_level_chunk_len(&d.layout, chunk);
        (void)next_chunk(&d, chunk);
        for (size_t at = 0; at < len; at += GW_LEVEL_PIECE_LEN) {
            const size_t piece_len = gw_min_size(len - at, GW_LEVEL_PIECE_LEN);
            put_piece(&d, sink, start + at, start + at + piece_len, d.scratch->levels + at);
        }
    }
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static size_t sum_size(const gw_classic_frame_info *info)
{
    return (info->flags & GW_CLASSIC_FLAG_SHARED) != 0 ? gw_classic_size_of(info->len, 4) : 0;
}

static int sum_matches(const gw_classic_payload *first, const gw_classic_payload *payload)
{
    const gw_level_layout layout = layout_of_info(payload->info);
    if (first->size < layout.norms_size || payload->size < layout.norms_size) {
        return 0;
    }
    for (uint64_t block = 0; block < layout.block_count; block++) {
        if (gw_load32(first->data + 4 * block) != gw_load32(payload->data + 4 * block)) {
            return 0;
        }
    }
    return 1;
}

/* At most 65535 members of magnitude 127: below 2^23. Wraps around only if the caller's lanes are not sums.
 */
static void sum_add(void *lanes, const gw_classic_payload *payload)
{
    level_decoder d = decoder_of(payload);
    for (uint64_t chunk = 0; chunk < d.layout.chunk_count; chunk++) {
        const size_t len = gw_level_chunk_len(&d.layout, chunk);
        uint32_t *const sums = (uint32_t *)lanes + chunk * GW_LEVEL_CHUNK_LEN;
        (void)next_chunk(&d, chunk);
        for (size_t i = 0; i < len; i++) {
            sums[i] += (d.scratch->levels[i] ^ 128u) - 128u; /* extends the sign */
        }
    }
}

static void sum_decode(const void *lanes, const gw_classic_payload *first, const gw_classic_sink *sink)
{
    const level_decoder d = decoder_of(first);
    const int32_t *sums = (const int32_t *)lanes;
    for (uint64_t at = 0; at < d.layout.len;) {
        const gw_level_run run = gw_level_run_at(&d.layout, at, d.layout.len);
        const float step = gw_level_step(norm_at(&d, run.block), d.form.level_max);
        for (size_t i = 0; i < run.len; i++) {
            d.scratch->y[i] = (float)sums[at + i] * step;
        }
        gw_classic_sink_put(sink, first->kernels, at, d.scratch->y, run.len);
        at += run.len;
    }
}

const gw_classic_family gw_classic_level = {
    .workspace_size = workspace_size,
    .payload_size_max = payload_size_max,
    .decode_workspace_size = decode_workspace_size,
    .encode = gw_level_encode,
    .check_header = check_header,
    .check = check,
    .decode = decode,
    .norms = gw_level_norms,
    .sum_size = sum_size,
    .sum_matches = sum_matches,
    .sum_add = sum_add,
    .sum_decode = sum_decode,
};
