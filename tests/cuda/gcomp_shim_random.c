/*
 * Random calls of GCOMP's device code in the shim against the library: gcomp_shim_random COUNT [SEED]
 *
 * Every case draws options, map, values (from lattice-like to garbage patterns), length and a key; the frame
 * of the device must be the library's, byte for byte, and be decoded; a hop, a batch and a codebook from a
 * histogram likewise. Then the frame is mutated: status, chunk and output of the device must be the
 * library's. The reproduction line of a failure names the seed of its case.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gcomp_shim.h"

static uint64_t state;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = state ^ state >> 33;
    x *= 0xff51afd7ed558ccdu;
    return (uint32_t)(x >> 32);
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)((uint64_t)draw() * n >> 32);
}

static int failures;
static uint64_t case_seed;

static void fail(const char *what)
{
    failures++;
    printf("seed %llu: %s\n", (unsigned long long)case_seed, what);
}

static void *get(size_t size)
{
    void *place = malloc(size != 0 ? size : 1);
    if (place == NULL) {
        exit(2);
    }
    return place;
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

/* fp32 patterns in several manners; converted to the dtype by its own bits. */
static void fill_values(uint8_t *values, uint64_t len, gw_dtype dtype)
{
    const uint32_t manner = below(8);
    const uint32_t spread = 1 + below(40), center = 90 + below(60), zeros = below(101);
    for (uint64_t i = 0; i < len; i++) {
        uint32_t exponent = center, bits;
        for (uint32_t j = 0; j < spread && below(2) != 0; j++) {
            exponent--;
        }
        bits = (draw() & 0x807fffffu) | exponent << 23;
        if (manner == 1) {
            bits = draw(); /* any pattern */
        } else if (manner == 2) {
            bits = below(100) < 2 ? draw() : bits & 0x80000000u;
        } else if (manner == 3) {
            bits = 0;
        } else if (manner == 4) {
            bits = (i & 63) < 60 ? bits : draw() & 0x807fffffu; /* subnormals and zeros of both signs */
        } else if (manner == 5) {
            bits = 0x3f800000u | (uint32_t)(i & 1) << 31; /* a single exponent */
        } else if (manner == 6) {
            bits = below(100) < zeros ? 0 : bits;
            bits |= below(5000) == 0 ? 0x7f800000u : 0;
        } else if (manner == 7) {
            bits = (i / 20000 & 1) != 0 ? bits : 0; /* whole chunks of zeros */
        }
        if (dtype == GW_FP32) {
            memcpy(values + 4 * i, &bits, 4);
        } else {
            uint16_t half = (uint16_t)(bits >> 16);
            if (dtype == GW_FP16 && manner != 1 && bits != 0) {
                const uint32_t e = exponent % 31;
                half = (uint16_t)((bits >> 16 & 0x8000) | e << 10 | (bits & 0x3ff));
            }
            memcpy(values + 2 * i, &half, 2);
        }
    }
}

/* The first element of len values: any, or one such that the low word of the counter or the element itself
 * returns to 0 among the values. */
static uint64_t draw_element(uint64_t len)
{
    const uint64_t any = (uint64_t)draw() << 32 | draw();
    const uint64_t before = below((uint32_t)len + 16);
    switch (below(4)) {
    case 0:
        return any;
    case 1:
        return (any >> 35 << 35) - before;
    case 2:
        return 0 - before;
    default:
        return below(1000);
    }
}

enum { SEGMENTS_MAX = 600 };

typedef struct test_case {
    gw_gcomp_segment segments[SEGMENTS_MAX];
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_gcomp_source source;
    gw_gcomp_map map;
    uint8_t *values, *map_bytes, *quanta;
    uint32_t *digest;
    gw_workspace workspace;
    size_t value_size;
} test_case;

/* None, or up to 600 of different lengths, some empty, of which the source is a part; now and then they do
 * not have all values. */
static void make_segments(test_case *c, int always)
{
    c->source.segments = NULL;
    c->source.segment_count = 0;
    if (!always && below(3) != 0) {
        return;
    }
    const uint32_t count = 1 + below(below(2) != 0 ? 5 : SEGMENTS_MAX);
    const uint64_t before = below(4) == 0 ? below(100000) : 0;
    uint64_t left = before + c->source.len;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t some = below(8) == 0 ? 0 : below((uint32_t)(2 * (left + count) / count));
        some = some < left ? some : left;
        left -= some;
        c->segments[i].seed = (uint64_t)draw() << 32 | draw();
        c->segments[i].first_element = draw_element(some);
        c->segments[i].len = some;
    }
    c->segments[count - 1].len += below(4) == 0 ? 0 : below(10) == 0 ? UINT64_MAX - c->source.len : left;
    c->source.segments = c->segments;
    c->source.segment_count = count;
    c->source.segment_offset = below(20) == 0 ? UINT64_MAX - below((uint32_t)c->source.len + 4) : before;
}

static void make_source(test_case *c, uint64_t len, int has_segments)
{
    c->source.len = len;
    c->values = (uint8_t *)get((size_t)len * c->value_size + 16);
    fill_values(c->values, len, c->options.dtype);
    c->source.values = c->values;
    c->map_bytes = (uint8_t *)get((size_t)len + 4);
    c->digest = (uint32_t *)get(((size_t)(len >> c->options.chunk_log2) + 1) * 4);
    const uint32_t map_byte_center = below(256), map_byte_spread = 1 + below(120);
    for (uint64_t i = 0; i < len; i++) {
        const uint32_t k = map_byte_center + below(map_byte_spread);
        c->map_bytes[i] = (uint8_t)(below(30) == 0 ? 0 : k > 255 ? 255 : k);
    }
    if (gw_gcomp_map_digest(c->map_bytes, (size_t)len, c->options.chunk_log2, c->digest) != GW_OK) {
        exit(2);
    }
    c->map.bytes = c->map_bytes;
    c->map.digest = c->digest;
    c->map.len = len;
    c->source.quantum = gw_gcomp_quantum_of_map(c->source.quantum.map != NULL ? &c->map : NULL);
    make_segments(c, has_segments);
    const uint32_t quantum = below(256), quantum_spread = 1 + below(90);
    const size_t blocks = (size_t)(len >> c->options.block_log2) + 1;
    c->quanta = (uint8_t *)get(blocks);
    for (size_t i = 0; i < blocks; i++) {
        const uint32_t e = quantum + below(quantum_spread);
        c->quanta[i] = (uint8_t)(below(20) == 0 ? 0 : e > 255 ? 255 : e);
    }
    if (c->options.quantum_mode == GW_GCOMP_CARRIED && c->source.quantum.map == NULL &&
        (below(2) == 0 || c->options.quantum.nmse <= 0)) {
        c->source.quantum = gw_gcomp_quantum_of_blocks(c->quanta);
    }
}

/* random_words: a short source with segments that is rounded stochastically. */
static void make_case(test_case *c, int random_words)
{
    static const uint32_t steps[4][4] = {{0}, {1, 2, 3, 6}, {1, 2, 1, 2}, {1, 3, 1, 3}};
    memset(c, 0, sizeof *c);
    gw_gcomp_options_init(&c->options, (gw_dtype)(1 + below(3)));
    gw_gcomp_options *o = &c->options;
    c->value_size = gw_dtype_size(o->dtype);
    o->quantum_mode = (gw_gcomp_quantum_mode)below(3);
    o->rounding = random_words ? GW_GCOMP_STOCHASTIC : (gw_gcomp_rounding)below(3);
    o->preset = (gw_gcomp_preset)below(2);
    o->step = o->quantum_mode == GW_GCOMP_DERIVED ? steps[o->dtype][below(4)] : 0;
    o->cap = below(2) != 0 ? UINT32_MAX : below(o->quantum_mode == GW_GCOMP_DERIVED ? 8 : 7);
    o->dead_zone = o->quantum_mode != GW_GCOMP_EXPLICIT && below(2) != 0;
    o->block_log2 = 6 + below(7);
    const float nmse = below(4) == 0 ? 0 : 0.5f / (float)(1 + below(10000));
    if (o->dead_zone || o->quantum_mode == GW_GCOMP_CARRIED) {
        o->step = below(2);
        o->cap = UINT32_MAX;
    }
    const uint32_t drop = below(24);
    o->quantum =
        o->quantum_mode == GW_GCOMP_CARRIED ? gw_gcomp_quantum_of_nmse(nmse) : gw_gcomp_quantum_of_drop(drop);
    o->chunk_log2 = below(2) == 0 ? 10 + below(6) : 14;
    o->block_log2 = o->block_log2 < o->chunk_log2 ? o->block_log2 : o->chunk_log2;
    o->strict = (int)below(2);
    o->checksum = (int)below(2);
    o->tolerance_bits = below(3) == 0 ? 1 + below(23) : 23;
    if (gw_gcomp_init(&c->codec, o) != GW_OK) {
        exit(2);
    }
    c->workspace.size = gw_gcomp_workspace_size(&c->codec);
    c->workspace.data = get(c->workspace.size);
    static const uint64_t lens[] = {0, 1, 31, 32, 33, 63, 64, 65, 1000, 4095, 4096, 4097, 8191, 8192, 8193};
    const uint64_t len = below(3) == 0   ? lens[below(15)]
                         : random_words  ? below(3000)
                         : below(3) == 0 ? below(300000)
                                         : below(40000);
    c->map.base = 200 + below(400);
    c->map.wire_scale = 1.0f;
    c->map.chunk_log2 = o->chunk_log2;
    c->source.quantum = gw_gcomp_quantum_of_map(below(3) != 0 ? &c->map : NULL);
    c->source.seed = (uint64_t)draw() << 32 | draw();
    c->source.first_element = draw_element(len);
    c->source.step_index = draw();
    c->source.rank = (uint16_t)draw();
    c->source.hop = (uint16_t)draw();
    make_source(c, len, random_words);
}

static void free_source(test_case *c)
{
    free(c->values);
    free(c->map_bytes);
    free(c->quanta);
    free(c->digest);
}

/* ---- comparisons --------------------------------------------------------------------------------------- */

static void compare_bytes(const char *what, const uint8_t *a, const uint8_t *b, size_t size)
{
    if (memcmp(a, b, size) != 0) {
        size_t at = 0;
        while (a[at] == b[at]) {
            at++;
        }
        fail(what);
        printf("   first at byte %zu of %zu: %02x, not %02x\n", at, size, a[at], b[at]);
    }
}

/* Mostly none; else normal numbers of all sizes, and what is refused. */
static float draw_scale(void)
{
    static const float scales[] = {1.0f,   0.125f,    -0.0f,     1.0f / 3,  -3.0f,   0x1p-120f,
                                   0x1p9f, -0x1p127f, 0x1p-126f, 0x1p-127f, INFINITY};
    const uint32_t bits = draw();
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return below(2) != 0 ? 0 : below(8) == 0 ? scale : scales[below(sizeof scales / sizeof *scales)];
}

static void compare_decode(const test_case *c, const uint8_t *frame, size_t size, uint32_t mode)
{
    const size_t bytes = (size_t)c->source.len * c->value_size;
    uint8_t *expected = (uint8_t *)get(bytes), *out = (uint8_t *)get(bytes);
    const gw_gcomp_frame in = {frame, size, c->source.quantum.map};
    gw_gcomp_target target = {.values = expected, .capacity = c->source.len, .scale = draw_scale()};
    gw_status status;
    if (mode == GW_CUDA_DECODE_ADD) {
        memcpy(expected, c->values, bytes);
        memcpy(out, c->values, bytes);
        status = gw_gcomp_decode_add(&c->codec, &in, &target, &c->workspace);
    } else {
        memset(expected, 0x5a, bytes);
        memset(out, 0x5a, bytes);
        status = gw_gcomp_decode(&c->codec, &in, &target, &c->workspace);
    }
    static const uint32_t shared[] = {40, 57, 75, 99, 227};
    const gcomp_shim_source source = {frame, size, c->source.quantum.map, NULL, target.scale};
    const gw_cuda_result result =
        gcomp_shim_decode(&c->codec, &source, mode, out, c->source.len, 1024 * shared[below(5)]);
    if (result.status != (uint32_t)status || result.len != target.len ||
        result.bad_index != target.bad_chunk) {
        fail("decode: another result");
        printf("   scale %g: status %u, not %d; len %llu, not %llu; chunk %llu, not %llu\n",
               (double)target.scale, result.status, status, (unsigned long long)result.len,
               (unsigned long long)target.len, (unsigned long long)result.bad_index,
               (unsigned long long)target.bad_chunk);
    }
    compare_bytes(mode == GW_CUDA_DECODE_ADD ? "decode_add: other values" : "decode: other values", out,
                  expected, bytes);
    free(expected);
    free(out);
}

/* A validation has no capacity that its frame must fit: for any hint of the host the status is the
 * library's. */
static void compare_validate(const test_case *c, const uint8_t *frame, size_t size)
{
    const uint64_t hint = below(2) != 0 ? below(3) : below((uint32_t)c->source.len + 1);
    const gcomp_shim_source source = {frame, size, c->source.quantum.map, NULL, draw_scale()};
    uint64_t bad;
    const gw_status status = gw_gcomp_frame_check(
        &c->codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = c->source.quantum.map}, &bad,
        &c->workspace);
    const gw_cuda_result result = gcomp_shim_decode(&c->codec, &source, GW_CUDA_DECODE_VALIDATE, NULL, hint,
                                                    1024 * (below(2) != 0 ? 57 : 227));
    if (result.status != (uint32_t)status || result.bad_index != bad) {
        fail("validate: another result");
        printf("   hint %llu: status %u, not %d; chunk %llu, not %llu\n", (unsigned long long)hint,
               result.status, status, (unsigned long long)result.bad_index, (unsigned long long)bad);
    }
}

/* Flips, copies and overwrites some bytes; repairs nothing. */
static void mutate(uint8_t *frame, size_t size)
{
    const uint32_t count = 1 + below(4);
    for (uint32_t i = 0; i < count && size != 0; i++) {
        const uint32_t front = below(3);
        size_t at = front == 0 ? below((uint32_t)(size < 200 ? size : 200)) : below((uint32_t)size);
        switch (below(4)) {
        case 0:
            frame[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            frame[at] = (uint8_t)draw();
            break;
        case 2:
            frame[at] = (uint8_t)(frame[at] + 1);
            break;
        default:
            for (uint32_t j = 0; j < 16 && at < size; j++, at++) {
                frame[at] = (uint8_t)draw();
            }
            break;
        }
    }
}

/* What the frames of all cases have had: a run of many cases must have seen everything. */
static struct {
    uint32_t masked, relative, dead_zone, carried;
    uint32_t sums, bad_sums, mismatches; /* of several frames */
    uint32_t segments, uncovered;
} seen;

/* Looks at the codebooks of a frame of the library. */
static void note_frame(const test_case *c, const uint8_t *frame, size_t size)
{
    gw_gcomp_frame_info info;
    const gw_gcomp_frame whole = {frame, size, c->source.quantum.map};
    if (size == 0 || gw_gcomp_frame_peek(frame, size, UINT64_MAX, &info) != GW_OK || info.installed) {
        return;
    }
    for (uint64_t i = 0; i < info.chunk_count; i++) {
        gw_gcomp_chunk chunk;
        if (gw_gcomp_frame_chunk(&whole, &info, i, &chunk) == GW_OK && chunk.kind == GW_GCOMP_CHUNK_CODED &&
            chunk.codebook == i) {
            seen.masked += (frame[chunk.offset + 3] & 15) == 15;
            seen.relative += info.quantum_mode != GW_GCOMP_EXPLICIT && frame[chunk.offset] != 0;
            seen.dead_zone += c->options.dead_zone && c->source.quantum.map != NULL;
            seen.carried += info.quantum_mode == GW_GCOMP_CARRIED;
        }
    }
}

static void test_encode(test_case *c, uint32_t mutations)
{
    const size_t capacity = gw_gcomp_frame_bound(&c->codec, c->source.len);
    uint8_t *expected = (uint8_t *)get(capacity), *frame = (uint8_t *)get(capacity);
    gw_buffer out = {expected, capacity, 0};
    const gw_status status = gw_gcomp_encode(&c->codec, &c->source, &out, &c->workspace);
    const gw_cuda_result result = gcomp_shim_encode(&c->codec, &c->source, frame, capacity);
    if (result.status != (uint32_t)status || result.size != out.size) {
        fail("encode: another result");
        printf("   status %u, not %d; size %llu, not %zu\n", result.status, status,
               (unsigned long long)result.size, out.size);
    } else {
        compare_bytes("encode: another frame", frame, expected, out.size);
    }
    note_frame(c, expected, out.size);
    seen.segments += status == GW_OK && c->source.segment_count > 1 && c->source.len > 1 &&
                     c->options.rounding == GW_GCOMP_STOCHASTIC;
    compare_decode(c, expected, out.size, GW_CUDA_DECODE_VALUES);
    compare_decode(c, expected, out.size, GW_CUDA_DECODE_ADD);
    compare_validate(c, expected, out.size);
    for (uint32_t i = 0; i < mutations; i++) {
        memcpy(frame, expected, out.size);
        mutate(frame, out.size);
        compare_decode(c, frame, out.size, below(2) != 0 ? GW_CUDA_DECODE_VALUES : GW_CUDA_DECODE_ADD);
        compare_validate(c, frame, out.size);
    }

    /* A hop of this frame onto other values. */
    if (below(3) == 0) {
        test_case other = *c;
        other.values = (uint8_t *)get((size_t)c->source.len * c->value_size);
        fill_values(other.values, c->source.len, c->options.dtype);
        other.source.values = other.values;
        memcpy(frame, expected, out.size);
        if (below(3) == 0) {
            mutate(frame, out.size);
        }
        uint8_t *sum = (uint8_t *)get(capacity), *sum_expected = (uint8_t *)get(capacity);
        uint64_t bad;
        gw_buffer out2 = {sum_expected, capacity, 0};
        const gw_status hop = gw_gcomp_decode_add_encode(
            &c->codec, &(gw_gcomp_frame){.data = frame, .size = out.size, .map = c->source.quantum.map},
            &other.source, &out2, &bad, &c->workspace);
        const gw_cuda_result got =
            gcomp_shim_hop(&c->codec, frame, out.size, c->source.quantum.map, &other.source, sum, capacity);
        if (got.status != (uint32_t)hop || got.size != out2.size || got.bad_index != bad) {
            fail("hop: another result");
            printf("   status %u, not %d; size %llu, not %zu; chunk %llu, not %llu\n", got.status, hop,
                   (unsigned long long)got.size, out2.size, (unsigned long long)got.bad_index,
                   (unsigned long long)bad);
        } else {
            compare_bytes("hop: another frame", sum, sum_expected, out2.size);
        }
        free(sum);
        free(sum_expected);
        free(other.values);
    }
    free(expected);
    free(frame);
}

/* Several frames added at once: the case's, those of other values, damaged ones, and one of another length or
 * with other chunks. */
static void test_frames(test_case *c)
{
    enum { COUNT_MAX = 4 };
    const uint32_t count = 1 + below(COUNT_MAX);
    const size_t bytes = (size_t)c->source.len * c->value_size, unaligned = below(2) * c->value_size;
    uint8_t *frames[COUNT_MAX];
    gw_gcomp_frame in[COUNT_MAX];
    gcomp_shim_source device_in[COUNT_MAX];
    for (uint32_t f = 0; f < count; f++) {
        gw_gcomp_options o = c->options;
        gw_gcomp_source source = c->source;
        gw_gcomp codec = c->codec;
        if (below(12) == 0) {
            source.quantum =
                gw_gcomp_quantum_of_blocks(o.quantum_mode == GW_GCOMP_CARRIED ? c->quanta : NULL);
            source.len -= source.len != 0 && below(2) != 0;
            o.chunk_log2 = 10 + below(6);
            o.block_log2 = 6;
            if (o.dead_zone || gw_gcomp_init(&codec, &o) != GW_OK) {
                codec = c->codec;
                source = c->source;
            }
        }
        const size_t capacity = gw_gcomp_frame_bound(&codec, source.len);
        gw_workspace workspace = {get(gw_gcomp_workspace_size(&codec)), gw_gcomp_workspace_size(&codec)};
        uint8_t *values = (uint8_t *)get(bytes + 16);
        fill_values(values, c->source.len, c->options.dtype);
        source.values = values;
        frames[f] = (uint8_t *)get(capacity);
        gw_buffer out = {frames[f], capacity, 0};
        if (gw_gcomp_encode(&codec, &source, &out, &workspace) != GW_OK) {
            exit(2);
        }
        if (below(4) == 0) {
            mutate(frames[f], out.size);
        }
        in[f] = (gw_gcomp_frame){frames[f], out.size, c->source.quantum.map};
        device_in[f] = (gcomp_shim_source){frames[f], out.size, c->source.quantum.map, NULL, 0};
        free(values);
        free(workspace.data);
    }
    uint8_t *expected = (uint8_t *)get(bytes + 16), *out = (uint8_t *)get(bytes + 16);
    memcpy(expected + unaligned, c->values, bytes);
    memcpy(out + unaligned, c->values, bytes);
    gw_gcomp_target target = {.values = expected + unaligned, .capacity = c->source.len};
    target.capacity -= target.capacity != 0 && below(8) == 0;
    do {
        target.scale = draw_scale();
    } while (!isnormal(target.scale) && target.scale != 0); /* the host refuses others */
    const gw_status status = gw_gcomp_decode_add_frames(&c->codec, in, count, NULL, &target, &c->workspace);
    gw_gcomp_target device_target = target;
    device_target.values = out + unaligned;
    const gw_cuda_result result =
        gcomp_shim_add_frames(&c->codec, device_in, count, &device_target, 1024 * (below(2) != 0 ? 57 : 227));
    if (result.status != (uint32_t)status || result.len != target.len ||
        result.bad_index != target.bad_chunk || result.bad_frame != target.bad_frame) {
        fail("frames: another result");
        printf("   status %u, not %d; len %llu, not %llu; chunk %llu, not %llu; frame %u, not %zu\n",
               result.status, status, (unsigned long long)result.len, (unsigned long long)target.len,
               (unsigned long long)result.bad_index, (unsigned long long)target.bad_chunk, result.bad_frame,
               target.bad_frame);
    }
    seen.sums += status == GW_OK;
    seen.bad_sums += target.bad_chunk != UINT64_MAX;
    seen.mismatches += status == GW_ERR_MISMATCH;
    compare_bytes("frames: other sums", out + unaligned, expected + unaligned, bytes);
    for (uint32_t f = 0; f < count; f++) {
        free(frames[f]);
    }
    free(expected);
    free(out);
}

/* A codebook from counts of the source, installed; then frames with it. */
static void test_codebook(test_case *c)
{
    gw_gcomp_histogram histogram;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX], expected[GW_GCOMP_CODEBOOK_SIZE_MAX];
    const gw_gcomp_source both[2] = {c->source, c->source};
    if (gw_gcomp_histogram_init(&histogram, &c->codec) != GW_OK) {
        exit(2);
    }
    for (int i = 0; i < 2; i++) {
        if (gw_gcomp_histogram_add(&histogram, &c->codec, &both[i], &c->workspace) != GW_OK) {
            exit(2);
        }
    }
    gw_buffer out = {expected, sizeof expected, 0};
    if (gw_gcomp_codebook_build(&histogram, &out) != GW_OK) {
        exit(2);
    }
    const gw_cuda_result result = gcomp_shim_codebook(&c->codec, both, 2, codebook);
    if (result.status != GW_OK || result.size != out.size) {
        fail("codebook: another size");
    } else {
        compare_bytes("codebook: another codebook", codebook, expected, out.size);
    }
    if (gw_gcomp_codebook_install(&c->codec, 5, 9, expected, out.size, 1) != GW_OK) {
        exit(2);
    }
    test_encode(c, 1);
    /* Values that it was not made for. */
    free_source(c);
    make_source(c, below(30000), 0);
    test_encode(c, 0);
}

/* Hops of the frames, one of which may be none, onto the sources. */
static void compare_hop_batch(const test_case *c, const gcomp_shim_source *in, const gw_gcomp_source *sources,
                              uint32_t count, void *const *dst, const size_t *capacity)
{
    gw_cuda_result *results = (gw_cuda_result *)get(count * sizeof *results);
    gcomp_shim_hop_batch(&c->codec, in, sources, count, dst, capacity, results, UINT64_MAX, NULL);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *expected = (uint8_t *)get(capacity[i]);
        uint64_t bad;
        gw_buffer out = {expected, capacity[i], 0};
        const gw_status status = gw_gcomp_decode_add_encode(
            &c->codec, &(gw_gcomp_frame){.data = in[i].frame, .size = in[i].size, .map = in[i].map},
            &sources[i], &out, &bad, &c->workspace);
        if (results[i].status != (uint32_t)status || results[i].size != out.size ||
            results[i].bad_index != bad) {
            fail("batch of hops: another result");
            printf("   item %u: status %u, not %d\n", i, results[i].status, status);
        } else {
            compare_bytes("batch of hops: another frame", (const uint8_t *)dst[i], expected, out.size);
        }
        free(expected);
    }
    free(results);
}

static void test_batch(test_case *c)
{
    enum { COUNT = 5 };
    test_case items[COUNT];
    gw_gcomp_source sources[COUNT];
    uint8_t *frames[COUNT], *expected[COUNT];
    void *dst[COUNT], *out[COUNT];
    size_t capacity[COUNT], size[COUNT];
    uint64_t values[COUNT];
    gw_cuda_result results[COUNT];
    gcomp_shim_source in[COUNT];
    for (int i = 0; i < COUNT; i++) {
        items[i] = *c;
        make_source(&items[i], i == 2 ? 0 : i == 3 ? 70000 : below(9000), 0);
        items[i].source.segment_count = 0; /* items have none */
        items[i].source.first_element = draw_element(9000);
        sources[i] = items[i].source;
        capacity[i] = gw_gcomp_frame_bound(&c->codec, sources[i].len);
        frames[i] = (uint8_t *)get(capacity[i]);
        expected[i] = (uint8_t *)get(capacity[i]);
        dst[i] = frames[i];
        gw_buffer frame = {expected[i], capacity[i], 0};
        if (gw_gcomp_encode(&c->codec, &sources[i], &frame, &c->workspace) != GW_OK) {
            exit(2);
        }
        size[i] = frame.size;
    }
    const int short_one = (int)below(COUNT);
    const size_t right = capacity[short_one];
    capacity[short_one] = right - 16;
    gcomp_shim_encode_batch(&c->codec, sources, COUNT, dst, capacity, results, UINT64_MAX);
    for (int i = 0; i < COUNT; i++) {
        if (i == short_one) {
            if (results[i].status != GW_ERR_DST || results[i].size != 0) {
                fail("batch: an item with too little room");
            }
        } else if (results[i].status != GW_OK || results[i].size != size[i]) {
            fail("batch: another result");
        } else {
            compare_bytes("batch: another frame", frames[i], expected[i], size[i]);
        }
    }
    /* value_total below the sum: items that do not fit the workspace are refused. */
    capacity[short_one] = right;
    gcomp_shim_encode_batch(&c->codec, sources, COUNT, dst, capacity, results, 0);
    for (int i = 0; i < COUNT; i++) {
        const int is_refused = results[i].status == GW_ERR_LIMIT && results[i].size == 0;
        if (!is_refused && (results[i].status != GW_OK || results[i].size != size[i])) {
            fail("batch without room: another result");
        } else if (!is_refused) {
            compare_bytes("batch without room: another frame", frames[i], expected[i], size[i]);
        } else if (i < 3 && c->options.chunk_log2 >= 12 &&
                   sources[i].len <= (uint64_t)1 << c->options.chunk_log2) {
            /* There is room for COUNT chunks, of which an item before it has three at most. */
            fail("batch without room: an item of one chunk is refused");
        }
    }
    if (c->options.chunk_log2 < 15 && results[3].status != GW_ERR_LIMIT) {
        fail("batch without room: 70000 values are not refused");
    }
    if (size[0] > 32) {
        expected[0][0] ^= 1; /* one frame that is none */
    }
    for (int i = 0; i < COUNT; i++) {
        in[i].frame = expected[i];
        in[i].size = size[i];
        in[i].map = sources[i].quantum.map;
        in[i].addend = NULL;
        in[i].scale = draw_scale();
        values[i] = sources[i].len;
        out[i] = get((size_t)values[i] * c->value_size);
    }
    compare_hop_batch(c, in, sources, COUNT, dst, capacity);
    gcomp_shim_decode_batch(&c->codec, in, COUNT, out, values, results, UINT64_MAX);
    for (int i = 0; i < COUNT; i++) {
        uint8_t *all = (uint8_t *)get((size_t)values[i] * c->value_size);
        gw_gcomp_target target = {.values = all, .capacity = values[i], .scale = in[i].scale};
        const gw_status status = gw_gcomp_decode(
            &c->codec, &(gw_gcomp_frame){.data = expected[i], .size = size[i], .map = in[i].map}, &target,
            &c->workspace);
        if (results[i].status != (uint32_t)status || results[i].len != target.len ||
            results[i].bad_index != target.bad_chunk) {
            fail("batch: another result of a decode");
        } else if (status == GW_OK) {
            compare_bytes("batch: other values", (const uint8_t *)out[i], all,
                          (size_t)target.len * c->value_size);
        }
        free(all);
        free(out[i]);
        free(frames[i]);
        free(expected[i]);
        free_source(&items[i]);
    }
}

/* Items whose pointers no kernel may follow: GW_ERR_ARG, and nothing else happens. */
static void test_unsound_items(const test_case *c)
{
    enum { DECODES = 5, ENCODES = 4, ITEMS_MAX = 5 };
    static const gw_cuda_shape shape = {2, 227 * 1024};
    static alignas(256) uint8_t room[64];
    gw_cuda_gcomp_item items[ITEMS_MAX];
    gw_cuda_result results[ITEMS_MAX];
    gw_cuda_launches launches;
    for (int is_encode = 0; is_encode < 2; is_encode++) {
        const uint32_t count = is_encode ? ENCODES : DECODES;
        gw_gcomp_decode_params decode;
        gw_gcomp_encode_params encode;
        memset(&decode, 0, sizeof decode);
        memset(&encode, 0, sizeof encode);
        memset(items, 0, sizeof items);
        memset(results, 0x77, sizeof results);
        memset(room, 0x5a, sizeof room);
        for (uint32_t i = 0; i < count; i++) {
            items[i].src = room;
            items[i].src_size = is_encode ? 4 : sizeof room;
            items[i].dst = room;
            items[i].dst_capacity = 1 << 20;
            items[i].result = &results[i];
        }
        items[0].src = room + 1;
        items[1].src = NULL;
        items[2].dst = room + 1;
        items[3].digest = (const uint32_t *)(const void *)(room + 2);
        items[4].src_size_at = (const uint64_t *)(const void *)(room + 4);
        gw_cuda_codec_fill(&decode.work.codec, gw_codec_of(&c->codec));
        encode.work.codec = decode.work.codec;
        decode.work.item_count = encode.work.item_count = count;
        decode.work.items = encode.work.items = items;
        const size_t size = is_encode ? gw_cuda_encode_workspace_size(&encode.work.codec, count, 100)
                                      : gw_cuda_decode_workspace_size(count, 100);
        void *workspace = aligned_alloc(256, (size + 255) & ~(size_t)255);
        if (workspace == NULL) {
            exit(2);
        }
        if (is_encode) {
            gw_cuda_launches_encode(&launches, &encode, 100, &shape, workspace);
        } else {
            gw_cuda_launches_decode(&launches, &decode, 100, &shape, workspace);
        }
        shim_launches_run(&launches, workspace);
        free(workspace);
        for (uint32_t i = 0; i < count; i++) {
            if (results[i].status != GW_ERR_ARG || results[i].size != 0 || results[i].len != 0) {
                fail(is_encode ? "unsound item of an encode" : "unsound item of a decode");
            }
        }
        for (uint32_t i = 0; i < sizeof room; i++) {
            if (room[i] != 0x5a) {
                fail("unsound item: something was written");
                break;
            }
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gcomp_shim_random COUNT [SEED]\n");
        return 2;
    }
    const uint64_t count = strtoull(argv[1], NULL, 10), first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (uint64_t i = 0; i < count; i++) {
        test_case c;
        case_seed = first + i;
        state = case_seed * 0x9e3779b97f4a7c15u;
        gw_shim_seed(case_seed);
        make_case(&c, 0);
        test_encode(&c, 4);
        if (c.source.segment_count != 0 && !gw_segments_cover(&c.source)) {
            c.source.segment_count = 0;
            seen.uncovered++;
        }
        test_unsound_items(&c);
        test_frames(&c);
        if (i % 4 == 1) {
            test_codebook(&c);
        } else if (i % 4 == 3) {
            test_batch(&c);
        }
        free_source(&c);
        free(c.workspace.data);
        make_case(&c, 1);
        test_encode(&c, 4);
        free_source(&c);
        free(c.workspace.data);
    }
    printf("%llu cases, %d failures; codebooks: %u masked, %u relative, %u of dead zones, %u carried; "
           "sums: %u good, %u with bad chunks, %u mismatches; sources with segments: %u, refused %u\n",
           (unsigned long long)count, failures, seen.masked, seen.relative, seen.dead_zone, seen.carried,
           seen.sums, seen.bad_sums, seen.mismatches, seen.segments, seen.uncovered);
    if (count >= 40 && (seen.sums == 0 || seen.bad_sums == 0 || seen.mismatches == 0 ||
                        seen.segments < count / 4 || seen.uncovered == 0)) {
        fail("some kind of sum or source was not met");
    }
    if (count >= 40 && (seen.masked == 0 || seen.relative == 0 || seen.dead_zone == 0 || seen.carried == 0)) {
        fail("some kind of codebook was not met");
    }
    return failures != 0;
}
