/*
 * Any values with any options through every way of encoding: one call, ranges and a join, segments, an
 * installed codebook, a hop of a ring, sums of several frames; on every backend. Bytes must be equal, values
 * as docs/numerics.md says, frames never above the bound and of the size that rate control predicts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_sender.h"

#include <string.h>

typedef struct run {
    gw_gcomp codec;
    gw_workspace workspace;
} run;

static void start(run *r, const gw_fuzz_sender *sender, uint32_t backends)
{
    gw_gcomp_options options = sender->options;
    options.backends = backends;
    FUZZ_CHECK(gw_gcomp_init(&r->codec, &options) == GW_OK);
    r->workspace.size = gw_gcomp_workspace_size(&r->codec);
    FUZZ_CHECK(r->workspace.size != 0 && r->workspace.size <= 1u << 20);
    r->workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, r->workspace.size, 0x6b);
}

static uint8_t *encode(run *r, const gw_gcomp_source *source, unsigned slot, size_t *size)
{
    size_t capacity = gw_gcomp_frame_bound(&r->codec, source->len);
    FUZZ_CHECK(capacity != 0);
    uint8_t *frame = (uint8_t *)gw_fuzz_buffer(slot, capacity, 0xf1);
    gw_buffer out = {frame, capacity, 0};
    FUZZ_CHECK(gw_gcomp_encode(&r->codec, source, &out, &r->workspace) == GW_OK);
    *size = out.size;
    FUZZ_CHECK(*size <= capacity && *size >= 32);

    /* One byte less is refused, and nothing is written. */
    uint8_t *small = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, capacity - 1, 0x77);
    gw_buffer out2 = {small, capacity - 1, 1};
    FUZZ_CHECK(gw_gcomp_encode(&r->codec, source, &out2, &r->workspace) == GW_ERR_DST);
    FUZZ_CHECK(out2.size == 0 && gw_fuzz_all_bytes(small, capacity - 1, 0x77));
    gw_fuzz_buffers_check();
    return frame;
}

static uint8_t *decode(run *r, const gw_fuzz_sender *sender, const uint8_t *frame, size_t size)
{
    size_t len = (size_t)sender->source.len;
    uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, len * sender->element, 0xa5);
    gw_gcomp_target target = {.values = dst, .capacity = len};
    FUZZ_CHECK(
        gw_gcomp_decode(&r->codec,
                        &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.quantum.map},
                        &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == len && target.bad_chunk == UINT64_MAX);
    gw_fuzz_buffers_check();
    return dst;
}

/* Ranges cut by the bits of `cuts`, at most eight, then joined. */
static void encode_in_ranges(run *r, const gw_fuzz_sender *sender, const uint8_t *frame, size_t size,
                             uint8_t cuts)
{
    uint64_t len = sender->source.len;
    uint64_t chunk_count = gw_gcomp_chunk_count(&r->codec, len);
    uint64_t align = gw_gcomp_range_align(&r->codec);
    gw_gcomp_part parts[8];
    size_t part_count = 0;
    uint64_t first = 0;

    FUZZ_CHECK(align != 0);
    while (first < chunk_count) {
        uint64_t end = first + align * (1u + (cuts >> part_count & 1));
        if (part_count == 7 || end > chunk_count) {
            end = chunk_count;
        }
        size_t area_size = gw_gcomp_range_bound(&r->codec, len, &(gw_gcomp_range){first, end - first});
        FUZZ_CHECK(area_size != 0);
        void *area = gw_fuzz_buffer(GW_FUZZ_AREA + (unsigned)part_count, area_size, 0x2d);
        parts[part_count] =
            (gw_gcomp_part){.area = area, .capacity = area_size, .range = {first, end - first}};
        FUZZ_CHECK(gw_gcomp_encode_range(&r->codec, &sender->source, &parts[part_count], &r->workspace) ==
                   GW_OK);
        part_count++;
        first = end;
    }
    size_t capacity = gw_gcomp_frame_bound(&r->codec, len);
    uint8_t *joined = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_FRAME2, capacity, 0x0e);
    gw_buffer out = {joined, capacity, 0};
    FUZZ_CHECK(gw_gcomp_join(&r->codec, &sender->source, parts, part_count, &out) == GW_OK);
    FUZZ_CHECK(out.size == size && memcmp(joined, frame, size) == 0);
    if (part_count > 1) {
        gw_buffer out2 = {joined, capacity, 0};
        FUZZ_CHECK(gw_gcomp_join(&r->codec, &sender->source, parts, part_count - 1, &out2) == GW_ERR_ARG);
    }
    gw_fuzz_buffers_check();
}

/* One hop of a ring against its three steps. */
static void hop(run *r, const gw_fuzz_sender *sender, const uint8_t *frame, size_t size,
                gw_fuzz_reader *reader)
{
    size_t len = (size_t)sender->source.len;
    void *local = gw_fuzz_values(GW_FUZZ_LOCAL, sender->options.dtype, len, reader);
    gw_gcomp_source source = sender->source;
    source.values = local;
    source.hop++;

    uint8_t *sum = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SUM, len * sender->element, 0);
    if (len != 0) {
        memcpy(sum, local, len * sender->element);
    }
    uint64_t bad_chunk = 0;
    gw_gcomp_target target = {.values = sum, .capacity = len};
    FUZZ_CHECK(
        gw_gcomp_decode_add(&r->codec,
                            &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.quantum.map},
                            &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == len && target.bad_chunk == UINT64_MAX);
    gw_gcomp_source sum_source = source;
    sum_source.values = sum;
    size_t expected_size = 0;
    uint8_t *expected = encode(r, &sum_source, GW_FUZZ_REFERENCE, &expected_size);

    size_t capacity = gw_gcomp_frame_bound(&r->codec, len);
    uint8_t *fused = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_FRAME2, capacity, 0x4e);
    gw_buffer out = {fused, capacity, 0};
    FUZZ_CHECK(gw_gcomp_decode_add_encode(
                   &r->codec,
                   &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.quantum.map}, &source,
                   &out, &bad_chunk, &r->workspace) == GW_OK);
    FUZZ_CHECK(out.size == expected_size && memcmp(fused, expected, out.size) == 0);
    gw_fuzz_buffers_check();
}

/* The codebook of the values themselves, installed: one more frame with equal values. */
static void installed_codebook(run *r, const gw_fuzz_sender *sender, const uint8_t *decoded)
{
    static gw_gcomp_histogram histogram;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    size_t size = 0, len = (size_t)sender->source.len;

    FUZZ_CHECK(gw_gcomp_histogram_init(&histogram, &r->codec) == GW_OK);
    FUZZ_CHECK(gw_gcomp_histogram_add(&histogram, &r->codec, &sender->source, &r->workspace) == GW_OK);
    gw_buffer out = {codebook, sizeof codebook, 0};
    FUZZ_CHECK(gw_gcomp_codebook_build(&histogram, &out) == GW_OK);
    FUZZ_CHECK(gw_gcomp_codebook_install(&r->codec, 7, 1, codebook, out.size, 1) == GW_OK);
    uint8_t *frame = encode(r, &sender->source, GW_FUZZ_REFERENCE, &size);
    uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, len * sender->element, 0xa5);
    gw_gcomp_target target = {.values = dst, .capacity = len};
    FUZZ_CHECK(
        gw_gcomp_decode(&r->codec,
                        &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.quantum.map},
                        &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == len && memcmp(dst, decoded, len * sender->element) == 0);
    gw_gcomp_frame_info info;
    FUZZ_CHECK(gw_gcomp_frame_peek(frame, size, sender->options.len_max, &info) == GW_OK);
    FUZZ_CHECK(info.installed && info.codebook_id == 7 && info.codebook_generation == 1);
    FUZZ_CHECK(gw_gcomp_codebook_uninstall(&r->codec) == GW_OK);
    gw_fuzz_buffers_check();
}

/* The predicted size of a frame is its size. */
static void predict(run *r, const gw_fuzz_sender *sender, size_t size)
{
    const gw_gcomp_options *options = &sender->options;
    const uint32_t full_cap = options->dtype == GW_FP32 ? 23 : options->dtype == GW_BF16 ? 7 : 10;
    static gw_gcomp_rate rate;
    FUZZ_CHECK(gw_gcomp_rate_init(&rate, GW_GCOMP_RATE_TOLERANCE) == GW_OK);
    const gw_status status = gw_gcomp_rate_add(&rate, &r->codec, &sender->source, &r->workspace);
    if (options->quantum_mode != GW_GCOMP_DERIVED || sender->step != 1 || sender->cap != full_cap) {
        FUZZ_CHECK(status == GW_ERR_OPTION && rate.len == 0);
    } else if (sender->source.quantum.map == NULL) {
        FUZZ_CHECK(status == GW_ERR_ARG && rate.len == 0);
    } else {
        FUZZ_CHECK(status == GW_OK && rate.len == sender->source.len);
        FUZZ_CHECK(gw_gcomp_rate_size(&rate, options->tolerance_bits - 1) == size);
    }
    gw_fuzz_buffers_check();
}

/* Segments that only say where the random stream of the whole is: the same frame. Not explicit quanta, whose
 * values are then rounded first, which may change drops after a carry. */
static void encode_in_segments(run *r, const gw_fuzz_sender *sender, const uint8_t *frame, size_t size,
                               uint8_t cut)
{
    const uint64_t len = sender->source.len, first = len * cut >> 8, element = sender->source.first_element;
    const gw_gcomp_segment segments[4] = {{sender->source.seed, element - 3, 3 + first},
                                          {~sender->source.seed, cut, 0},
                                          {sender->source.seed, element + first, len - first},
                                          {1, 2, 3}};
    gw_gcomp_source source = sender->source;
    if (sender->options.quantum_mode == GW_GCOMP_EXPLICIT) {
        return;
    }
    source.segments = segments;
    source.segment_count = 4;
    source.segment_offset = 3;
    source.seed = cut;
    source.first_element = cut;
    size_t segments_size = 0;
    const uint8_t *other = encode(r, &source, GW_FUZZ_FRAME2, &segments_size);
    FUZZ_CHECK(segments_size == size && memcmp(other, frame, size) == 0);
}

/* Two frames in one call, each value times a scale, against one after the other. */
static void add_frames(run *r, const gw_fuzz_sender *sender, const uint8_t *frame, size_t size, float scale)
{
    const size_t bytes = (size_t)sender->source.len * sender->element;
    const gw_gcomp_frame frames[2] = {{frame, size, sender->source.quantum.map},
                                      {frame, size, sender->source.quantum.map}};
    uint8_t *expected = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, bytes, 0x2a);
    uint8_t *sum = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, bytes, 0x2a);
    gw_gcomp_target target = {.values = expected, .capacity = sender->source.len, .scale = scale};
    for (unsigned i = 0; i < 2; i++) {
        FUZZ_CHECK(gw_gcomp_decode_add(&r->codec, &frames[i], &target, &r->workspace) == GW_OK);
    }
    target.values = sum;
    FUZZ_CHECK(gw_gcomp_decode_add_frames(&r->codec, frames, 2, NULL, &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == sender->source.len && target.bad_chunk == UINT64_MAX && target.bad_frame == 0);
    FUZZ_CHECK(bytes == 0 || memcmp(sum, expected, bytes) == 0);
    gw_fuzz_buffers_check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    gw_fuzz_sender sender;
    uint8_t choice = gw_fuzz_u8(&reader);
    gw_fuzz_place_at_end(choice & 1);
    gw_fuzz_sender_init(&sender, &reader, choice & 128 ? 40000 : 8500);

    uint32_t masks[32];
    unsigned backend_count = gw_fuzz_backends(masks);
    uint8_t *reference = NULL;
    size_t reference_size = 0;
    gw_fuzz_reader rest = reader;

    for (unsigned b = 0; b < backend_count; b++) {
        static run r;
        start(&r, &sender, masks[b]);
        size_t frame_size = 0;
        uint8_t *frame = encode(&r, &sender.source, GW_FUZZ_FRAME, &frame_size);
        if (b == 0) {
            reference = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_MUTANT, frame_size, 0);
            reference_size = frame_size;
            memcpy(reference, frame, frame_size);
        } else {
            FUZZ_CHECK(frame_size == reference_size && memcmp(frame, reference, frame_size) == 0);
        }
        uint8_t *decoded = decode(&r, &sender, frame, frame_size);
        gw_fuzz_check_values(&sender, decoded);
        FUZZ_CHECK(gw_gcomp_frame_check(
                       &r.codec,
                       &(gw_gcomp_frame){.data = frame, .size = frame_size, .map = sender.source.quantum.map},
                       NULL, &r.workspace) == GW_OK);
        encode_in_ranges(&r, &sender, frame, frame_size, choice >> 1);
        if (choice & 64) {
            installed_codebook(&r, &sender, decoded);
        }
        predict(&r, &sender, frame_size);
        encode_in_segments(&r, &sender, frame, frame_size, (uint8_t)(size * 37));
        add_frames(&r, &sender, frame, frame_size, choice & 2 ? 0.3f : choice & 4 ? -8.0f : 0.0f);
        rest = reader;
        hop(&r, &sender, frame, frame_size, &rest);
    }
    return 0;
}
