/*
 * Encoding and decoding of whole frames: arguments, workspace, capacity; the families do the rest.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_frame.h"

static int has_keep_len(gw_classic_scheme scheme)
{
    return gw_classic_family_of(scheme) == &gw_classic_sparse;
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static int is_step_good(const gw_classic_step *step)
{
    return step != NULL && step->len <= GW_CLASSIC_LEN_MAX && step->element_first <= UINT64_MAX - step->len;
}

static int is_keep_len_good(const gw_classic_options *options, const gw_classic_step *step)
{
    if (!has_keep_len(options->scheme)) {
        return 1;
    }
    return step->keep_len <= step->len && (step->keep_len > 0) == (step->len > 0);
}

static int is_source_good(const gw_classic *classic, const gw_classic_source *source, uint64_t len)
{
    const uint32_t arrays = gw_classic_state_arrays(classic);
    const gw_classic_family *family = gw_classic_family_of(gw_classic_options_of(classic)->scheme);

    if (source == NULL || (source->norms != NULL && family->norms == NULL)) {
        return 0;
    }
    return len == 0 ||
           (source->values != NULL && (source->residual != NULL) == ((arrays & GW_CLASSIC_RESIDUAL) != 0) &&
            (source->momentum != NULL) == ((arrays & GW_CLASSIC_MOMENTUM) != 0));
}

static size_t workspace_need(const gw_classic_options *options, const gw_classic_step *step)
{
    const gw_classic_family *family = gw_classic_family_of(options->scheme);
    return step->len > 0 && family->workspace_size != NULL ? family->workspace_size(options, step) : 0;
}

size_t gw_classic_workspace_size(const gw_classic *classic, const gw_classic_step *step)
{
    const gw_classic_state *state = gw_classic_state_of(classic);
    if (state == NULL || !is_step_good(step) || !is_keep_len_good(&state->options, step)) {
        return 0;
    }
    return gw_classic_workspace_bytes(workspace_need(&state->options, step));
}

size_t gw_classic_frame_bound(const gw_classic *classic, const gw_classic_step *step)
{
    const gw_classic_state *state = gw_classic_state_of(classic);
    if (state == NULL || !is_step_good(step) || !is_keep_len_good(&state->options, step)) {
        return 0;
    }
    const gw_classic_family *family = gw_classic_family_of(state->options.scheme);
    const size_t payload = step->len > 0 ? family->payload_size_max(&state->options, step) : 0;
    return gw_classic_frame_size_of(payload, state->options.checksum);
}

uint64_t gw_classic_block_count(const gw_classic *classic, uint64_t len)
{
    const gw_classic_state *state = gw_classic_state_of(classic);
    return state != NULL ? gw_classic_blocks(state->options.block_len, len) : 0;
}

/* The checks that encoding and norms share, and the workspace. */
static gw_status begin(gw_classic_encoding *encoding, const gw_classic *classic, const gw_classic_step *step,
                       const gw_classic_source *source, const gw_workspace *workspace)
{
    const gw_classic_state *state = gw_classic_state_of(classic);

    GW_MEMSET(encoding, 0, sizeof *encoding);
    if (classic == NULL) {
        return GW_ERR_ARG;
    }
    if (state == NULL) {
        return GW_ERR_STATE;
    }
    if (!is_step_good(step) || !is_source_good(classic, source, step->len)) {
        return GW_ERR_ARG;
    }
    if (!is_keep_len_good(&state->options, step)) {
        return GW_ERR_OPTION;
    }
    encoding->options = &state->options;
    encoding->kernels = &state->kernels;
    encoding->step = step;
    encoding->source = source;
    return gw_classic_workspace_take(&encoding->workspace, workspace, workspace_need(&state->options, step));
}

gw_status gw_classic_norms(const gw_classic *classic, const gw_classic_step *step,
                           const gw_classic_source *source, float *norms, const gw_workspace *workspace)
{
    gw_classic_encoding encoding;
    const gw_status status = begin(&encoding, classic, step, source, workspace);

    if (status != GW_OK) {
        return status;
    }
    const gw_classic_family *family = gw_classic_family_of(encoding.options->scheme);
    if (family->norms == NULL) {
        return GW_ERR_OPTION;
    }
    if (step->len == 0) {
        return GW_OK;
    }
    return norms != NULL ? family->norms(&encoding, norms) : GW_ERR_ARG;
}

/* ---- encode -------------------------------------------------------------------------------------------- */

static gw_classic_frame_info describe(const gw_classic_encoding *encoding)
{
    const gw_classic_options *options = encoding->options;
    const gw_classic_step *step = encoding->step;
    gw_classic_frame_info info;

    GW_MEMSET(&info, 0, sizeof info);
    info.scheme = options->scheme;
    info.dtype = options->dtype;
    info.values = options->values;
    info.coding = options->coding;
    info.norm = options->norm;
    info.flags = (options->checksum != 0 ? GW_CLASSIC_FLAG_CHECKSUM : 0u) |
                 (options->unbiased != 0 ? GW_CLASSIC_FLAG_UNBIASED : 0u) |
                 (encoding->source->norms != NULL ? GW_CLASSIC_FLAG_SHARED : 0u);
    info.level_max = options->level_max;
    info.block_len = options->block_len;
    info.round = step->round;
    info.rank = step->rank;
    info.seed = options->seed;
    info.element_first = step->element_first;
    info.len = step->len;
    info.keep_len = has_keep_len(options->scheme) ? step->keep_len : 0;
    info.payload_size = encoding->size;
    gw_classic_frame_place(&info);
    return info;
}

gw_status gw_classic_encode(const gw_classic *classic, const gw_classic_step *step,
                            const gw_classic_source *source, gw_buffer *dst, const gw_workspace *workspace)
{
    gw_classic_encoding encoding;

    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_status status = begin(&encoding, classic, step, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    /* What is left for the payload: frames end at a multiple of 16. */
    const size_t around = GW_CLASSIC_FRAME_HEADER_SIZE + (encoding.options->checksum != 0 ? 4u : 0u);
    const size_t room = dst->capacity / 16 * 16;
    if (room < around) {
        return GW_ERR_DST;
    }
    encoding.payload = (uint8_t *)dst->data + GW_CLASSIC_FRAME_HEADER_SIZE;
    encoding.capacity = room - around;
    if (step->len > 0) {
        status = gw_classic_family_of(encoding.options->scheme)->encode(&encoding);
    }
    if (status == GW_OK) {
        const gw_classic_frame_info info = describe(&encoding);
        gw_classic_frame_seal((uint8_t *)dst->data, &info, encoding.kernels);
        dst->size = (size_t)info.frame_size;
    }
    return status;
}

/* ---- decode -------------------------------------------------------------------------------------------- */

static gw_status decode(const gw_classic_frame *frame, gw_classic_target *target,
                        const gw_workspace *workspace, int is_sum)
{
    gw_classic_reading reading;
    gw_classic_sink sink;

    if (target == NULL) {
        return GW_ERR_ARG;
    }
    target->len = 0;
    gw_status status = gw_classic_reading_begin(&reading, frame, workspace);
    if (status != GW_OK) {
        return status;
    }
    status = gw_classic_sink_make(&sink, target, reading.info.len,
                                  is_sum ? GW_FP32 : (unsigned)reading.info.dtype);
    sink.is_sum = is_sum;
    return status == GW_OK ? gw_classic_reading_decode(&reading, &sink, NULL, target) : status;
}

gw_status gw_classic_decode(const gw_classic_frame *frame, gw_classic_target *target,
                            const gw_workspace *workspace)
{
    return decode(frame, target, workspace, 0);
}

gw_status gw_classic_decode_add(const gw_classic_frame *frame, gw_classic_target *target,
                                const gw_workspace *workspace)
{
    return decode(frame, target, workspace, 1);
}
