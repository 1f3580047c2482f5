/*
 * Classic frames: any bytes, and frames that the library made, damaged, to the checker, the decoders and the
 * sums. A frame passes the check iff it decodes; all backends agree; what fails leaves accumulators and sums
 * alone.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/classic.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 20000, MADE_LEN_MAX = 3000 };

/* A right checksum, so that the checks after it are reached. */
static void seal(uint8_t *frame, size_t size)
{
    if (size >= 96 && (frame[8] & GW_CLASSIC_FLAG_CHECKSUM) != 0) {
        const uint32_t crc = gw_crc32c(0, frame, size - 4);
        for (unsigned i = 0; i < 4; i++) {
            frame[size - 4 + i] = (uint8_t)(crc >> (8 * i));
        }
    }
}

/* Exactly what the header asks for, at any alignment. */
static gw_workspace workspace_of(const uint8_t *data, size_t size)
{
    gw_classic_frame_info info;
    gw_workspace workspace = {NULL, 0};
    if (gw_classic_frame_peek(data, size, &info) == GW_OK && info.len <= COUNT_MAX) {
        workspace.size = gw_classic_decode_workspace_size(&info);
    }
    workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace.size, 0x77);
    return workspace;
}

/* Votes, decoded sums, and a second member. */
static void check_sums(const gw_classic_frame *frame, const gw_classic_frame_info *info,
                       const gw_workspace *workspace)
{
    const size_t size = gw_classic_sum_size(info);
    gw_classic_sum sum = {gw_fuzz_buffer(GW_FUZZ_SUM, size, 0), size, 0};
    const gw_status status = gw_classic_sum_add(&sum, frame, frame, workspace);
    if (size == 0 && info->len > 0) {
        FUZZ_CHECK(status == GW_ERR_OPTION && sum.members == 0);
        return;
    }
    if (status == GW_ERR_OPTION) {
        return; /* no element, and no sum of such frames */
    }
    FUZZ_CHECK(status == GW_OK && sum.members == 1);
    FUZZ_CHECK(gw_classic_sum_add(&sum, frame, frame, workspace) == GW_OK && sum.members == 2);
    float *values = gw_fuzz_buffer(GW_FUZZ_VALUES, (size_t)info->len * 4, 0x5a);
    gw_classic_target target = {values, info->len, 0, 0.5f};
    FUZZ_CHECK(gw_classic_sum_decode(&sum, frame, &target, workspace) == GW_OK && target.len == info->len);
    gw_buffer dst = {gw_fuzz_buffer(GW_FUZZ_FRAME2, frame->size, 0), frame->size, 0};
    const gw_status voted = gw_classic_sum_vote(&sum, frame, &dst, workspace);
    FUZZ_CHECK(voted == GW_OK || voted == GW_ERR_OPTION);
    if (voted == GW_OK) {
        gw_classic_frame_info outcome;
        const gw_classic_frame made = {dst.data, dst.size, COUNT_MAX, GW_BACKEND_ALL};
        FUZZ_CHECK(gw_classic_frame_check(&made, &outcome, workspace) == GW_OK);
        FUZZ_CHECK((outcome.flags & GW_CLASSIC_FLAG_VOTE) != 0 && outcome.len == info->len);
    }
}

static void check_frame(const uint8_t *data, size_t size, float scale)
{
    uint32_t masks[32];
    const unsigned backends = gw_fuzz_backends(masks);
    gw_classic_frame frame = {data, size, COUNT_MAX, GW_BACKEND_ALL};
    gw_classic_frame_info info;
    const gw_workspace workspace = workspace_of(data, size);
    const gw_status checked = gw_classic_frame_check(&frame, &info, &workspace);
    uint8_t *reference = gw_fuzz_buffer(GW_FUZZ_REFERENCE, COUNT_MAX * sizeof(float), 0x5a);

    for (unsigned i = 0; i < backends; i++) {
        frame.backends = masks[i];
        uint8_t *out = gw_fuzz_buffer(GW_FUZZ_DST, COUNT_MAX * sizeof(float), 0x5a);
        gw_classic_target target = {i == 0 ? reference : out, COUNT_MAX, 1, scale};
        FUZZ_CHECK(gw_classic_decode(&frame, &target, &workspace) == checked);
        FUZZ_CHECK(target.len == (checked == GW_OK ? info.len : 0));
        FUZZ_CHECK(i == 0 || memcmp(reference, out, COUNT_MAX * sizeof(float)) == 0);
    }
    uint8_t *sums = gw_fuzz_buffer(GW_FUZZ_REFERENCE_SUM, COUNT_MAX * sizeof(float), 0x5a);
    for (unsigned i = 0; i < backends; i++) {
        frame.backends = masks[i];
        uint8_t *out = gw_fuzz_buffer(GW_FUZZ_DST2, COUNT_MAX * sizeof(float), 0x5a);
        gw_classic_target target = {i == 0 ? sums : out, COUNT_MAX, 1, scale};
        FUZZ_CHECK(gw_classic_decode_add(&frame, &target, &workspace) == checked);
        FUZZ_CHECK(i == 0 || memcmp(sums, out, COUNT_MAX * sizeof(float)) == 0);
    }
    FUZZ_CHECK(checked == GW_OK || gw_fuzz_all_bytes(sums, COUNT_MAX * sizeof(float), 0x5a));
    frame.backends = GW_BACKEND_ALL;
    if (checked == GW_OK) {
        check_sums(&frame, &info, &workspace);
    } else if (checked == GW_ERR_CORRUPT || checked == GW_ERR_CHECKSUM) {
        FUZZ_CHECK(gw_classic_frame_peek(data, size, &info) == GW_OK);
        FUZZ_CHECK(gw_fuzz_all_bytes(reference, (size_t)info.len * gw_dtype_size(info.dtype), 0));
    } else {
        FUZZ_CHECK(gw_fuzz_all_bytes(reference, COUNT_MAX * sizeof(float), 0x5a));
    }
}

/* Options, a shape and values from a few bytes. */
static int make_options(gw_fuzz_reader *reader, gw_classic_options *options)
{
    const gw_classic_scheme scheme = (gw_classic_scheme)(gw_fuzz_u8(reader) % 11 + 1);
    const uint8_t choice = gw_fuzz_u8(reader), blocks = gw_fuzz_u8(reader), levels = gw_fuzz_u8(reader);
    FUZZ_CHECK(gw_classic_options_init(options, scheme) == GW_OK);
    options->dtype = (gw_dtype)(choice % 3 + 1);
    options->checksum = choice >> 2 & 1;
    options->seed = levels;
    const gw_classic_options usual = *options;
    gw_classic classic;
    options->values = (gw_classic_values)((choice >> 3) % 3);
    if (gw_classic_init(&classic, options) != GW_OK) {
        options->values = usual.values;
        options->coding = (gw_classic_coding)((choice >> 3) % 3);
        options->norm = (choice & 0x20) != 0 ? GW_CLASSIC_NORM_MAX : GW_CLASSIC_NORM_L2;
        options->level_max = scheme == GW_CLASSIC_QSGD ? 1u + levels % 127u : usual.level_max;
        options->norm = scheme == GW_CLASSIC_QSGD ? options->norm : usual.norm;
        options->block_len = 64u * (blocks % 8u);
    }
    if (gw_classic_init(&classic, options) != GW_OK) {
        *options = usual;
        options->block_len = scheme == GW_CLASSIC_ONEBIT ? blocks : usual.block_len;
    }
    return (choice & 0x40) != 0;
}

static void fill_values(uint8_t *dst, const gw_classic_options *options, size_t len, uint64_t state, int wild)
{
    const size_t size = gw_dtype_size(options->dtype);
    for (size_t i = 0; i < len; i++) {
        const uint64_t random = gw_fuzz_random(&state);
        uint32_t bits = (uint32_t)random & 0x807fffffu;
        bits |= (uint32_t)(wild ? random >> 32 & 255 : 110 + (random >> 32) % 16) << 23;
        bits = (random >> 60) == 0 ? 0 : bits;
        if (options->dtype == GW_FP16) {
            bits = (uint32_t)random << 16 & (wild ? 0xffff0000u : 0xbfff0000u);
        }
        for (size_t j = 0; j < size; j++) {
            dst[size * i + j] = (uint8_t)(bits >> (8 * (j + 4 - size)));
        }
    }
}

/* Encodes twice with the same inputs on two backends, which must agree; returns the frame. */
static gw_buffer make_frame(gw_fuzz_reader *reader)
{
    gw_classic_options options;
    gw_classic classic;
    const int wild = make_options(reader, &options);
    gw_classic_step step = {gw_fuzz_u16(reader) % MADE_LEN_MAX, gw_fuzz_u32(reader), 0, gw_fuzz_u8(reader),
                            1};
    const uint32_t keep = gw_fuzz_u16(reader);
    step.keep_len = step.len == 0 ? 0 : 1 + keep % step.len;
    uint8_t *values = gw_fuzz_buffer(GW_FUZZ_SRC, (size_t)step.len * gw_dtype_size(options.dtype), 0);
    fill_values(values, &options, (size_t)step.len, keep, wild);
    gw_buffer dst[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    gw_status status[2];
    for (unsigned i = 0; i < 2; i++) {
        options.backends = i == 0 ? GW_BACKEND_SCALAR : GW_BACKEND_ALL;
        FUZZ_CHECK(gw_classic_init(&classic, &options) == GW_OK);
        const uint32_t arrays = gw_classic_state_arrays(&classic);
        gw_classic_source source = {values, NULL, NULL, NULL};
        float *residual = gw_fuzz_buffer(GW_FUZZ_VALUES, (size_t)step.len * 4, 0);
        float *momentum = gw_fuzz_buffer(GW_FUZZ_LOCAL, (size_t)step.len * 4, 0);
        source.residual = (arrays & GW_CLASSIC_RESIDUAL) != 0 ? residual : NULL;
        source.momentum = (arrays & GW_CLASSIC_MOMENTUM) != 0 ? momentum : NULL;
        gw_workspace workspace = {NULL, gw_classic_workspace_size(&classic, &step)};
        workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace.size, 0x77);
        dst[i].capacity = gw_classic_frame_bound(&classic, &step);
        dst[i].data = gw_fuzz_buffer(i == 0 ? GW_FUZZ_FRAME : GW_FUZZ_FRAME2, dst[i].capacity, 0x11);
        status[i] = gw_classic_encode(&classic, &step, &source, &dst[i], &workspace);
        FUZZ_CHECK(status[i] == GW_OK || (status[i] == GW_ERR_NONFINITE && wild));
        if (status[i] != GW_OK) {
            FUZZ_CHECK(gw_fuzz_all_bytes(residual, (size_t)step.len * 4, 0));
            FUZZ_CHECK(gw_fuzz_all_bytes(momentum, (size_t)step.len * 4, 0));
        }
    }
    FUZZ_CHECK(status[0] == status[1] && dst[0].size == dst[1].size);
    FUZZ_CHECK(dst[0].size == 0 || memcmp(dst[0].data, dst[1].data, dst[0].size) == 0);
    return dst[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    const uint8_t choice = gw_fuzz_u8(&reader);
    const float scale = (choice & 8) != 0 ? -0.3f : 1.0f;

    gw_fuzz_place_at_end(choice & 1);
    gw_buffer made = {NULL, 0, reader.size};
    if ((choice & 4) != 0) {
        made = make_frame(&reader);
        if (made.size > 0) {
            gw_classic_frame_info info;
            const gw_classic_frame whole = {made.data, made.size, COUNT_MAX, GW_BACKEND_ALL};
            const gw_workspace workspace = workspace_of(made.data, made.size);
            FUZZ_CHECK(gw_classic_frame_check(&whole, &info, &workspace) == GW_OK);
        }
    }
    uint8_t *frame = gw_fuzz_buffer(GW_FUZZ_MUTANT, made.size, 0);
    if (made.size > 0) {
        memcpy(frame, made.data != NULL ? made.data : reader.data, made.size);
    }
    while (made.data != NULL && made.size > 0 && reader.size > 0) { /* damage */
        const size_t at = gw_fuzz_u16(&reader) % made.size;
        frame[at] = (uint8_t)(frame[at] ^ gw_fuzz_u8(&reader));
    }
    if ((choice & 2) != 0) {
        seal(frame, made.size);
    }
    check_frame(frame, made.size, scale);
    gw_fuzz_buffers_check();
    return 0;
}
