/*
 * Any values with any options through every way of encoding: one call, ranges and a join, an installed
 * codebook, a hop of a ring; on every backend. Bytes must be equal, values as docs/numerics.md says, frames
 * never above the bound.
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
    size_t capacity = gw_gcomp_bound(&r->codec, source->len);
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
    FUZZ_CHECK(gw_gcomp_decode(&r->codec,
                               &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.map},
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
    size_t capacity = gw_gcomp_bound(&r->codec, len);
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
    FUZZ_CHECK(gw_gcomp_decode_add(&r->codec,
                                   &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.map},
                                   &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == len && target.bad_chunk == UINT64_MAX);
    gw_gcomp_source sum_source = source;
    sum_source.values = sum;
    size_t expected_size = 0;
    uint8_t *expected = encode(r, &sum_source, GW_FUZZ_REFERENCE, &expected_size);

    size_t capacity = gw_gcomp_bound(&r->codec, len);
    uint8_t *fused = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_FRAME2, capacity, 0x4e);
    gw_buffer out = {fused, capacity, 0};
    FUZZ_CHECK(gw_gcomp_decode_add_encode(
                   &r->codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.map},
                   &source, &out, &bad_chunk, &r->workspace) == GW_OK);
    FUZZ_CHECK(out.size == expected_size && memcmp(fused, expected, out.size) == 0);
    gw_fuzz_buffers_check();
}

/* The codebook of the values themselves, installed: one more frame with equal values. */
static void installed_book(run *r, const gw_fuzz_sender *sender, const uint8_t *decoded)
{
    static gw_gcomp_histogram histogram;
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
    size_t size = 0, len = (size_t)sender->source.len;

    FUZZ_CHECK(gw_gcomp_histogram_init(&histogram, &r->codec) == GW_OK);
    FUZZ_CHECK(gw_gcomp_histogram_add(&histogram, &r->codec, &sender->source, &r->workspace) == GW_OK);
    gw_buffer out = {book, sizeof book, 0};
    FUZZ_CHECK(gw_gcomp_book_build(&histogram, &out) == GW_OK);
    FUZZ_CHECK(gw_gcomp_install(&r->codec, 7, 1, book, out.size, 1) == GW_OK);
    uint8_t *frame = encode(r, &sender->source, GW_FUZZ_REFERENCE, &size);
    uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, len * sender->element, 0xa5);
    gw_gcomp_target target = {.values = dst, .capacity = len};
    FUZZ_CHECK(gw_gcomp_decode(&r->codec,
                               &(gw_gcomp_frame){.data = frame, .size = size, .map = sender->source.map},
                               &target, &r->workspace) == GW_OK);
    FUZZ_CHECK(target.len == len && memcmp(dst, decoded, len * sender->element) == 0);
    gw_gcomp_info info;
    FUZZ_CHECK(gw_gcomp_peek(frame, size, sender->options.len_max, &info) == GW_OK);
    FUZZ_CHECK(info.installed && info.book_id == 7 && info.book_generation == 1);
    FUZZ_CHECK(gw_gcomp_uninstall(&r->codec) == GW_OK);
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
        FUZZ_CHECK(
            gw_gcomp_validate(&r.codec,
                              &(gw_gcomp_frame){.data = frame, .size = frame_size, .map = sender.source.map},
                              NULL, &r.workspace) == GW_OK);
        encode_in_ranges(&r, &sender, frame, frame_size, choice >> 1);
        if (choice & 64) {
            installed_book(&r, &sender, decoded);
        }
        rest = reader;
        hop(&r, &sender, frame, frame_size, &rest);
    }
    return 0;
}
