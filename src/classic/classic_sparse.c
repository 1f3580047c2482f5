/*
 * TOPK, DGC and RANDK: from values to a payload. Everything that can fail comes before the pass that writes
 * the state, so that pass computes the sums again.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_sparse.h"

#include "classic/classic_positions.h"
#include "classic/classic_randk.h"
#include "classic/classic_select.h"
#include "classic/classic_sparse_input.h"
#include "classic/classic_sparse_values.h"
#include "classic/sparse_value.h"

/* Offsets in the workspace. Arrays begin at multiples of 64 bytes. */
typedef struct sparse_layout {
    uint64_t blocks, positions, values, bins, bitmap, scratch, nested, frame;
    uint64_t nested_size, frame_size;
    uint64_t size;
} sparse_layout;

static uint64_t take(uint64_t *size, uint64_t bytes)
{
    const uint64_t at = *size;
    *size += (bytes + 63) & ~(uint64_t)63;
    return at;
}

/* All sizes are below 2^40: nothing overflows but a nested frame that size_t cannot hold. */
static sparse_layout layout_of(const gw_classic_options *options, const gw_classic_step *step)
{
    const int is_random = options->scheme == GW_CLASSIC_RANDK;
    const uint64_t len = step->len, keep_len = step->keep_len;
    const uint64_t capacity = is_random ? keep_len : gw_selection_capacity(len, keep_len);
    const gw_sparse_nested nested = gw_sparse_nested_of(options->values, keep_len);
    sparse_layout l = {0};
    l.blocks = take(&l.size, 3 * GW_SPARSE_BLOCK_LEN * sizeof(float));
    l.positions = take(&l.size, capacity * sizeof(uint32_t));
    l.values = take(&l.size, capacity * sizeof(float));
    l.bins = take(&l.size, is_random ? 0 : GW_SELECT_BINS * sizeof(uint64_t));
    l.bitmap = take(&l.size, is_random ? gw_randk_words(len) * 8 : 0);
    l.scratch = take(&l.size, is_random ? 0 : sizeof(gw_codebook_scratch));
    l.nested_size = nested.workspace_size;
    l.frame_size = nested.frame_size_max;
    l.nested = take(&l.size, l.nested_size);
    if (l.frame_size == UINT64_MAX) {
        l.size = UINT64_MAX;
        return l;
    }
    l.frame = take(&l.size, l.frame_size);
    return l;
}

static size_t workspace_size(const gw_classic_options *options, const gw_classic_step *step)
{
    const uint64_t size = layout_of(options, step).size;
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

static size_t payload_size_max(const gw_classic_options *options, const gw_classic_step *step)
{
    const uint64_t values = gw_sparse_values_size_max(options->values, step->keep_len);
    const uint64_t positions =
        options->scheme == GW_CLASSIC_RANDK ? 0 : gw_positions_size_max(step->len, step->keep_len);
    return values > SIZE_MAX || positions > SIZE_MAX - values ? SIZE_MAX : (size_t)(positions + values);
}

/* An encoding under way. */
typedef struct sparse_work {
    gw_classic_encoding *encoding;
    sparse_layout layout;
    gw_sparse_input input;
    uint32_t *positions;
    float *values;
} sparse_work;

/* Values at random positions. All values are checked: block[1] and block[2] take what the kernel writes. */
static gw_status pick_random(sparse_work *work)
{
    const gw_classic_encoding *const e = work->encoding;
    const gw_classic_step *const step = e->step;
    const gw_randk_stream stream = {e->options->seed, step->element_first, step->round};
    uint64_t *const bitmap = (uint64_t *)(void *)(e->workspace + work->layout.bitmap);
    uint32_t *const unused = (uint32_t *)(void *)work->input.block[1];
    gw_positions_reader reader;
    uint64_t found = 0, j = 0;
    gw_randk_draw(bitmap, step->len, step->keep_len, &stream);
    gw_positions_open_bitmap(&reader, bitmap, step->len, step->keep_len);
    while (found < step->keep_len) {
        found += gw_positions_next(&reader, work->positions + found, (size_t)(step->keep_len - found));
    }
    for (uint64_t first = 0; first < step->len; first += GW_SPARSE_BLOCK_LEN) {
        const size_t count = (size_t)gw_min_u64(step->len - first, GW_SPARSE_BLOCK_LEN);
        const void *const x = gw_sparse_input_read(&work->input, first, count);
        gw_sparse_scan scan = {(uint32_t)first, UINT32_MAX, 0};
        (void)e->kernels->classic.sparse_select(unused, work->input.block[2], x, count, &scan);
        if (scan.largest >= GW_F32_INF) {
            return GW_ERR_NONFINITE;
        }
        for (; j < step->keep_len && work->positions[j] - first < count; j++) {
            const uint32_t bits = gw_sparse_load(x, (size_t)(work->positions[j] - first));
            work->values[j] = gw_f32_flush(gw_float_from_bits(bits));
        }
    }
    return GW_OK;
}

static gw_status pick(sparse_work *work)
{
    const gw_classic_encoding *const e = work->encoding;
    if (e->options->scheme == GW_CLASSIC_RANDK) {
        return pick_random(work);
    }
    if (e->options->scheme == GW_CLASSIC_DGC && e->options->clip != 0.0f &&
        !gw_sparse_input_clip(&work->input, e->step->len, e->options->clip)) {
        return GW_ERR_NONFINITE;
    }
    gw_selection selection = {work->positions, work->values,
                              (uint64_t *)(void *)(e->workspace + work->layout.bins), e->step->len,
                              e->step->keep_len};
    return gw_selection_make(&selection, &work->input) ? GW_OK : GW_ERR_NONFINITE;
}

/* Positions and values to the payload. work->values become what a decoder gets. */
static gw_status write_payload(sparse_work *work)
{
    gw_classic_encoding *const e = work->encoding;
    const uint64_t keep_len = e->step->keep_len;
    uint8_t *const nested = e->workspace + work->layout.nested;
    gw_positions_layout layout = {0};
    gw_sparse_writing writing = {0};
    layout.positions = work->positions;
    layout.len = e->step->len;
    layout.keep_len = keep_len;
    layout.scratch = (gw_codebook_scratch *)(void *)(e->workspace + work->layout.scratch);
    if (e->options->scheme != GW_CLASSIC_RANDK) {
        gw_positions_layout_make(&layout);
    }
    writing.kernels = e->kernels;
    writing.format = e->options->values;
    writing.values = work->values;
    writing.len = keep_len;
    if (writing.format == GW_CLASSIC_VALUES_GCOMP) {
        const size_t handle_size = (sizeof(gw_gcomp) + 63) / 64 * 64;
        writing.codec = (gw_gcomp *)(void *)nested;
        writing.workspace.data = nested + handle_size;
        writing.workspace.size = (size_t)work->layout.nested_size - handle_size;
        writing.frame = e->workspace + work->layout.frame;
        writing.frame_size_max = (size_t)work->layout.frame_size;
    }
    const gw_status status = gw_sparse_values_prepare(&writing);
    if (status != GW_OK) {
        return status;
    }
    if (layout.size > e->capacity || writing.size > e->capacity - layout.size) {
        return GW_ERR_DST;
    }
    if (e->options->scheme != GW_CLASSIC_RANDK) {
        gw_positions_write(e->payload, &layout);
    }
    gw_sparse_values_write(e->payload + (size_t)layout.size, &writing);
    e->size = (size_t)(layout.size + writing.size);
    return GW_OK;
}

static gw_status encode(gw_classic_encoding *encoding)
{
    sparse_work work;
    work.encoding = encoding;
    work.layout = layout_of(encoding->options, encoding->step);
    work.positions = (uint32_t *)(void *)(encoding->workspace + work.layout.positions);
    work.values = (float *)(void *)(encoding->workspace + work.layout.values);
    gw_sparse_input_init(&work.input, encoding, (float *)(void *)(encoding->workspace + work.layout.blocks));
    gw_status status = pick(&work);
    if (status == GW_OK) {
        status = write_payload(&work);
    }
    if (status == GW_OK) {
        const gw_sparse_sent sent = {work.positions, work.values, encoding->step->keep_len,
                                     encoding->options->momentum_mask};
        gw_sparse_input_commit(&work.input, encoding->step->len, &sent);
    }
    return status;
}

const gw_classic_family gw_classic_sparse = {
    .workspace_size = workspace_size,
    .payload_size_max = payload_size_max,
    .decode_workspace_size = gw_sparse_decode_workspace_size,
    .encode = encode,
    .check_header = gw_sparse_check_header,
    .check = gw_sparse_check,
    .decode = gw_sparse_decode,
    .sum_size = gw_sparse_sum_size,
    .sum_add = gw_sparse_sum_add,
    .sum_decode = gw_sparse_sum_decode,
};
