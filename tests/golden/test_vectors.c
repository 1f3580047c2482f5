/*
 * Golden vectors through the library, on every backend of this machine:
 *
 *   test_vectors DIR [MINIMUM]    DIR holds index.tsv (make_vectors.py); at least MINIMUM vectors must be in
 *                                 it
 *
 * Every vector goes through check, validate, decode and decode_add. Compared: status, bad chunk, *len,
 * output, and that nothing else was written: outputs lie between canaries, what must stay untouched is
 * compared byte by byte, frames and outputs have exact allocations of their own at changing alignments, so
 * that sanitizers and valgrind see every step outside. Valid frames are also cut at every length (long ones
 * at a sample), extended, decoded by ranges, and made again by the encoder where the index says that it makes
 * these bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

enum { CANARY_SIZE = 64, CANARY = 0xa5, PREFIX_SAMPLES = 200, PREFIX_ALL = 2048 };

static int failures;
static const char *backend_name;

#define CHECK(v, condition, ...)                                                                             \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s (%s): ", (v)->file, backend_name);                                                    \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

/* ---- memory that tells --------------------------------------------------------------------------------- */

/* `size` bytes at `shift` bytes past an aligned address, filled with `fill`, canaries on both sides. */
typedef struct arena {
    uint8_t *block;
    uint8_t *at;
    size_t size;
} arena;

static arena arena_make(size_t size, size_t shift, int fill)
{
    arena a;
    a.size = size;
    a.block = (uint8_t *)golden_take(size + shift + 2 * (size_t)CANARY_SIZE);
    a.at = a.block + CANARY_SIZE + shift;
    memset(a.block, CANARY, CANARY_SIZE + shift);
    memset(a.at, fill, size);
    memset(a.at + size, CANARY, CANARY_SIZE);
    return a;
}

static int is_filled(const uint8_t *p, size_t size, int fill)
{
    for (size_t i = 0; i < size; i++) {
        if (p[i] != fill) {
            return 0;
        }
    }
    return 1;
}

/* Frees the arena; 0 if a canary died. */
static int arena_free(arena *a)
{
    size_t before = (size_t)(a->at - a->block);
    int alive = is_filled(a->block, before, CANARY) && is_filled(a->at + a->size, CANARY_SIZE, CANARY);
    free(a->block);
    return alive;
}

/* A copy of the frame that ends where its allocation ends. */
typedef struct frame_copy {
    uint8_t *block;
    const uint8_t *at;
    size_t size;
} frame_copy;

static frame_copy copy_frame(const uint8_t *data, size_t size, size_t shift)
{
    frame_copy copy;
    copy.block = (uint8_t *)golden_take(size + shift);
    memcpy(copy.block + shift, data, size);
    copy.at = copy.block + shift;
    copy.size = size;
    return copy;
}

/* ---- one vector ---------------------------------------------------------------------------------------- */

typedef struct subject {
    const vector *v;
    const gw_gcomp *codec;
    gw_workspace workspace;
    size_t value_size;
    size_t shift; /* of frames and outputs */
} subject;

static int is_ok(const vector *v)
{
    return strcmp(v->status, "OK") == 0;
}

static int is_content_error(const vector *v)
{
    return v->bad_chunk != UINT64_MAX;
}

static void check_status(const vector *v, const char *call, gw_status status)
{
    CHECK(v, vector_is_status(v, status), "%s: %s instead of %s", call, gw_status_name(status), v->status);
}

static void test_check(const subject *s)
{
    const vector *v = s->v;
    const int accepted = is_ok(v) || is_content_error(v) || strcmp(v->status, "DST") == 0;
    frame_copy frame = copy_frame(v->frame.data, v->frame.size, s->shift);
    gw_gcomp_frame_info info, peeked, none;
    memset(&info, 0x77, sizeof info);
    memset(&none, 0, sizeof none);
    gw_status status = gw_gcomp_frame_parse(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &info);
    if (!accepted) {
        check_status(v, "check", status);
        CHECK(v, memcmp(&info, &none, sizeof info) == 0, "check: info is not zeroed");
        free(frame.block);
        return;
    }
    CHECK(v, status == GW_OK, "check: %s instead of ok", gw_status_name(status));
    if (status == GW_OK) {
        CHECK(v, !v->has_values || info.len == v->count, "check: len %" PRIu64, info.len);
        CHECK(v, info.dtype == v->dtype && info.frame_size == v->frame.size, "check: wrong info");
        status = gw_gcomp_frame_peek(frame.at, frame.size < 72 ? frame.size : 72, UINT64_MAX, &peeked);
        CHECK(v, status == GW_OK, "peek: %s instead of ok", gw_status_name(status));
        CHECK(v, memcmp(&peeked, &info, sizeof info) == 0, "peek and check disagree");
        uint64_t len = 0, end = info.payload_offset;
        for (uint64_t i = 0; i < info.chunk_count; i++) {
            gw_gcomp_chunk chunk;
            status = gw_gcomp_frame_chunk(&(gw_gcomp_frame){.data = frame.at, .size = frame.size}, &info, i,
                                          &chunk);
            CHECK(v, status == GW_OK && chunk.offset == end, "chunk_info of chunk %" PRIu64, i);
            len += chunk.len;
            end = chunk.offset + chunk.size;
        }
        CHECK(v, len == info.len && end == info.frame_size, "chunks do not fill the frame");
    }
    free(frame.block);
}

static void test_validate(const subject *s)
{
    const vector *v = s->v;
    if (strcmp(v->status, "DST") == 0) {
        return; /* there is no output to be too small */
    }
    frame_copy frame = copy_frame(v->frame.data, v->frame.size, s->shift);
    uint64_t bad_chunk = 77;
    gw_status status = gw_gcomp_frame_check(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &bad_chunk,
        &s->workspace);
    check_status(v, "validate", status);
    CHECK(v, bad_chunk == v->bad_chunk, "validate: bad chunk %" PRIu64, bad_chunk);
    free(frame.block);
}

static void test_decode(const subject *s)
{
    const vector *v = s->v;
    const uint64_t capacity = vector_capacity(v) + (v->capacity == UINT64_MAX ? s->shift : 0);
    frame_copy frame = copy_frame(v->frame.data, v->frame.size, s->shift);
    arena dst = arena_make((size_t)capacity * s->value_size, s->shift, 0x5a);
    gw_gcomp_target target = {.values = dst.at, .capacity = capacity};
    gw_status status = gw_gcomp_decode(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &target,
        &s->workspace);
    check_status(v, "decode", status);
    CHECK(v, target.bad_chunk == v->bad_chunk, "decode: bad chunk %" PRIu64, target.bad_chunk);
    CHECK(v, target.len == (is_ok(v) ? v->count : 0), "decode: len %" PRIu64, target.len);
    const size_t written = v->has_values ? (size_t)v->count * s->value_size : 0;
    CHECK(v, gw_crc32c(0, dst.at, written) == v->values_crc, "decode: wrong values");
    CHECK(v,
          v->values.data == NULL ||
              (v->values.size == written && memcmp(v->values.data, dst.at, written) == 0),
          "decode: values differ from those of the file");
    CHECK(v, is_filled(dst.at + written, dst.size - written, 0x5a), "decode: wrote after the values");
    CHECK(v, arena_free(&dst), "decode: wrote outside the output");

    /* A retry of the same bytes gives the same answer. */
    dst = arena_make((size_t)capacity * s->value_size, 0, 0);
    gw_gcomp_target target2 = {.values = dst.at, .capacity = capacity};
    status = gw_gcomp_decode(s->codec,
                             &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)},
                             &target2, &s->workspace);
    check_status(v, "second decode", status);
    CHECK(v, arena_free(&dst), "second decode: wrote outside the output");
    free(frame.block);
}

/* +0 plus a value, for a handle that is not strict (docs/numerics.md): zeros and flushed values give +0, a
 * NaN the canonical one, everything else itself. */
static uint32_t sum_with_zero(gw_dtype dtype, uint32_t bits)
{
    static const uint32_t canonical_nan[4] = {0, 0x7fc00000u, 0x7fc0u, 0x7e00u};
    const unsigned mantissa_bits = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
    const uint32_t exponent_mask = dtype == GW_FP16 ? 31 : 255;
    const uint32_t magnitude = bits & (dtype == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t exponent = magnitude >> mantissa_bits;
    if (magnitude == 0 || (exponent == 0 && dtype != GW_FP16)) {
        return 0;
    }
    return exponent == exponent_mask && magnitude != exponent_mask << mantissa_bits ? canonical_nan[dtype]
                                                                                    : bits;
}

static uint32_t load_value(const uint8_t *p, size_t value_size)
{
    return value_size == 4 ? p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
                           : p[0] | (uint32_t)p[1] << 8;
}

static void test_decode_add(const subject *s)
{
    const vector *v = s->v;
    const uint64_t capacity = vector_capacity(v);
    const size_t size = (size_t)capacity * s->value_size;
    frame_copy frame = copy_frame(v->frame.data, v->frame.size, s->shift);

    /* On zeros: the sums are the decoded values, +0 in bad chunks included. */
    arena values = arena_make(size, 0, 0);
    gw_gcomp_target target = {.values = values.at, .capacity = capacity};
    gw_status status = gw_gcomp_decode(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &target,
        &s->workspace);
    arena sums = arena_make(size, s->shift, 0);
    gw_gcomp_target target2 = {.values = sums.at, .capacity = capacity};
    status = gw_gcomp_decode_add(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &target2,
        &s->workspace);
    check_status(v, "decode_add", status);
    CHECK(v, target2.bad_chunk == v->bad_chunk, "decode_add: bad chunk %" PRIu64, target2.bad_chunk);
    CHECK(v, target2.len == (is_ok(v) ? v->count : 0), "decode_add: len %" PRIu64, target2.len);
    uint64_t wrong = 0;
    for (size_t i = 0; i < size; i += s->value_size) {
        wrong += load_value(sums.at + i, s->value_size) !=
                 sum_with_zero(v->dtype, load_value(values.at + i, s->value_size));
    }
    CHECK(v, wrong == 0, "decode_add: %" PRIu64 " wrong sums", wrong);
    CHECK(v, arena_free(&sums), "decode_add: wrote outside the accumulator");
    CHECK(v, arena_free(&values), "decode: wrote outside the output");

    /* On 0x3a3a...: nothing of a refused frame, of a bad chunk, or after the values is touched. */
    sums = arena_make(size, s->shift, 0x3a);
    gw_gcomp_target target3 = {.values = sums.at, .capacity = capacity};
    status = gw_gcomp_decode_add(
        s->codec, &(gw_gcomp_frame){.data = frame.at, .size = frame.size, .map = vector_map(v)}, &target3,
        &s->workspace);
    check_status(v, "second decode_add", status);
    if (is_content_error(v)) {
        const size_t chunk_size = s->value_size << vector_chunk_log2(v);
        const size_t start = (size_t)v->bad_chunk * chunk_size;
        const size_t all = (size_t)v->count * s->value_size;
        const size_t chunk_end = all - start < chunk_size ? all : start + chunk_size;
        CHECK(v, is_filled(sums.at + start, chunk_end - start, 0x3a),
              "decode_add: touched the sums of a bad chunk");
    } else if (!is_ok(v)) {
        CHECK(v, is_filled(sums.at, size, 0x3a), "decode_add: touched the accumulator");
    }
    CHECK(v, arena_free(&sums), "decode_add: wrote outside the accumulator");
    free(frame.block);
}

/* Chunk by chunk, each into memory of its own: the same values, and the status of the chunk. */
static void test_ranges(const subject *s)
{
    const vector *v = s->v;
    if (!is_ok(v) && !is_content_error(v)) {
        return;
    }
    gw_gcomp_frame_info info;
    if (gw_gcomp_frame_parse(
            s->codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
            &info) != GW_OK) {
        return; /* reported by test_check() */
    }
    uint32_t crc = 0;
    uint64_t first_bad = UINT64_MAX;
    for (uint64_t i = 0; i < info.chunk_count; i++) {
        const uint64_t rest = info.len - (i << info.chunk_log2);
        const uint64_t chunk_len =
            rest < (uint64_t)1 << info.chunk_log2 ? rest : (uint64_t)1 << info.chunk_log2;
        arena dst = arena_make((size_t)chunk_len * s->value_size, s->shift, 0x5a);
        gw_gcomp_target target = {.values = dst.at, .capacity = chunk_len};
        gw_status status = gw_gcomp_decode_range(
            s->codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
            &info, &(gw_gcomp_range){i, 1}, &target, &s->workspace);
        CHECK(v, target.bad_chunk == (status == GW_OK ? UINT64_MAX : i),
              "range %" PRIu64 ": bad chunk %" PRIu64, i, target.bad_chunk);
        if (status != GW_OK && first_bad == UINT64_MAX) {
            first_bad = i;
            check_status(v, "decode_range", status);
        }
        crc = gw_crc32c(crc, dst.at, dst.size);
        arena sums = arena_make(dst.size, 0, 0x3a);
        gw_gcomp_target target2 = {.values = sums.at, .capacity = chunk_len};
        gw_status added = gw_gcomp_decode_add_range(
            s->codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
            &info, &(gw_gcomp_range){i, 1}, &target2, &s->workspace);
        CHECK(v, added == status, "range %" PRIu64 ": decode_add_range says %s", i, gw_status_name(added));
        CHECK(v, status == GW_OK || is_filled(sums.at, sums.size, 0x3a),
              "range %" PRIu64 ": touched bad sums", i);
        CHECK(v, arena_free(&sums), "decode_add_range: wrote outside the accumulator");
        CHECK(v, arena_free(&dst), "decode_range: wrote outside the output");
    }
    CHECK(v, first_bad == v->bad_chunk, "ranges: first bad chunk %" PRIu64, first_bad);
    CHECK(v, crc == v->values_crc, "ranges: wrong values");
}

/* Cut anywhere: SHORT and nothing written. One byte more: TRAILING. */
static void test_lengths(const subject *s)
{
    const vector *v = s->v;
    const size_t step = v->frame.size <= PREFIX_ALL ? 1 : v->frame.size / PREFIX_SAMPLES;
    const size_t dst_size = (size_t)v->count * s->value_size;
    arena dst = arena_make(dst_size, 0, 0x5a);
    for (size_t size = 0; size < v->frame.size; size += size < 128 ? 1 : step) {
        frame_copy frame = copy_frame(v->frame.data, size, 0);
        gw_gcomp_frame_info info;
        gw_gcomp_target target = {.values = dst.at, .capacity = v->count};
        gw_status status =
            gw_gcomp_decode(s->codec, &(gw_gcomp_frame){.data = frame.at, .size = size, .map = vector_map(v)},
                            &target, &s->workspace);
        CHECK(v, status == GW_ERR_SHORT && target.len == 0 && target.bad_chunk == UINT64_MAX,
              "first %zu bytes: %s", size, gw_status_name(status));
        gw_gcomp_target target2 = {.values = dst.at, .capacity = v->count};
        status = gw_gcomp_decode_add(s->codec,
                                     &(gw_gcomp_frame){.data = frame.at, .size = size, .map = vector_map(v)},
                                     &target2, &s->workspace);
        CHECK(v, status == GW_ERR_SHORT && target2.len == 0, "first %zu bytes added: %s", size,
              gw_status_name(status));
        status = gw_gcomp_frame_check(s->codec,
                                      &(gw_gcomp_frame){.data = frame.at, .size = size, .map = vector_map(v)},
                                      NULL, &s->workspace);
        CHECK(v, status == GW_ERR_SHORT, "first %zu bytes validated: %s", size, gw_status_name(status));
        status = gw_gcomp_frame_parse(
            s->codec, &(gw_gcomp_frame){.data = frame.at, .size = size, .map = vector_map(v)}, &info);
        CHECK(v, status == GW_ERR_SHORT, "first %zu bytes checked: %s", size, gw_status_name(status));
        free(frame.block);
    }
    uint8_t *longer = (uint8_t *)golden_take(v->frame.size + 1);
    memcpy(longer, v->frame.data, v->frame.size);
    longer[v->frame.size] = 0;
    gw_gcomp_target target3 = {.values = dst.at, .capacity = v->count};
    gw_status status = gw_gcomp_decode(
        s->codec, &(gw_gcomp_frame){.data = longer, .size = v->frame.size + 1, .map = vector_map(v)},
        &target3, &s->workspace);
    CHECK(v, status == GW_ERR_TRAILING && target3.len == 0, "one byte more: %s", gw_status_name(status));
    free(longer);
    CHECK(v, is_filled(dst.at, dst.size, 0x5a), "cut frame: wrote to the output");
    CHECK(v, arena_free(&dst), "cut frame: wrote outside the output");
}

/* The encoder makes these bytes from the values of the source file; without one from the decoded values,
 * which truncation leaves alone. Key and counter of stochastic rounding are those of vector_values.py. */
static void test_encode(const subject *s)
{
    const vector *v = s->v;
    gw_gcomp_frame_info info;
    gw_status status = gw_gcomp_frame_peek(v->frame.data, v->frame.size, UINT64_MAX, &info);
    arena values = arena_make((size_t)v->count * s->value_size, s->shift, 0);
    if (status == GW_OK) {
        gw_gcomp_target target = {.values = values.at, .capacity = v->count};
        status = gw_gcomp_decode(
            s->codec, &(gw_gcomp_frame){.data = v->frame.data, .size = v->frame.size, .map = vector_map(v)},
            &target, &s->workspace);
    }
    if (status != GW_OK) {
        arena_free(&values);
        return; /* reported before */
    }
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, v->dtype);
    options.quantum_mode = v->quantum_mode;
    options.rounding = v->rounding;
    options.tolerance_bits = v->tolerance_bits;
    options.dead_zone = v->dead_zone;
    options.preset = (gw_gcomp_preset)v->preset;
    options.step = info.step;
    options.cap = info.cap;
    options.quantum = gw_gcomp_quantum_of_drop(v->constant_drop);
    options.chunk_log2 = info.chunk_log2;
    if (v->quantum_mode == GW_GCOMP_CARRIED) {
        options.block_log2 = info.block_log2;
    }
    options.strict = info.strict;
    options.checksum = info.checksum;
    gw_gcomp encoder;
    status = gw_gcomp_init(&encoder, &options);
    if (status == GW_OK && info.installed) {
        status = gw_gcomp_codebook_install(&encoder, v->codebook_id, v->generation, v->codebook.data,
                                           v->codebook.size, 1);
    }
    CHECK(v, status == GW_OK, "no encoder: %s", gw_status_name(status));
    const size_t capacity = gw_gcomp_frame_bound(&encoder, v->count);
    const size_t workspace_size = gw_gcomp_workspace_size(&encoder);
    void *workspace = golden_take(workspace_size);
    arena dst = arena_make(capacity, s->shift, 0x5a);
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = v->source.data != NULL ? v->source.data : values.at;
    source.len = v->count;
    source.quantum = vector_map(v) != NULL ? gw_gcomp_quantum_of_map(vector_map(v))
                                           : gw_gcomp_quantum_of_blocks(v->quanta.data);
    source.seed = 0x0123456789abcdefu;
    source.first_element = ((uint64_t)1 << 35) - 9;
    source.step_index = 7;
    source.rank = 3;
    source.hop = 2;
    const gw_gcomp_segment segment = {source.seed, source.first_element, source.len};
    if (v->has_segments) {
        source.seed = 0;
        source.first_element = 0;
        source.segments = &segment;
        source.segment_count = 1;
    }
    gw_buffer out = {dst.at, capacity, 0};
    CHECK(v, v->source.data == NULL || v->source.size == (size_t)v->count * s->value_size,
          "source of another length");
    status = gw_gcomp_encode(&encoder, &source, &out, &(gw_workspace){workspace, workspace_size});
    CHECK(v, status == GW_OK, "encode: %s", gw_status_name(status));
    CHECK(v, out.size == v->frame.size, "encode: %zu bytes instead of %zu", out.size, v->frame.size);
    if (out.size == v->frame.size && memcmp(dst.at, v->frame.data, out.size) != 0) {
        size_t at = 0;
        while (dst.at[at] == v->frame.data[at]) {
            at++;
        }
        CHECK(v, 0, "encode: byte %zu is 0x%02x instead of 0x%02x", at, dst.at[at], v->frame.data[at]);
    }
    CHECK(v, arena_free(&dst), "encode: wrote outside the output");
    arena_free(&values);
    free(workspace);
}

static void test_vector(const vector *v, uint32_t backends, size_t shift)
{
    gw_gcomp codec;
    if (!vector_receiver(v, backends, &codec)) {
        failures++;
        return;
    }
    subject s;
    s.v = v;
    s.codec = &codec;
    arena workspace = arena_make(gw_gcomp_workspace_size(&codec), shift, 0xee);
    s.workspace = (gw_workspace){workspace.at, workspace.size};
    s.value_size = gw_dtype_size(v->dtype);
    s.shift = shift;
    test_check(&s);
    test_validate(&s);
    test_decode(&s);
    test_decode_add(&s);
    test_ranges(&s);
    if (is_ok(v)) {
        test_lengths(&s);
        if (v->preset >= 0) {
            test_encode(&s);
        }
    }
    CHECK(v, arena_free(&workspace), "wrote outside the workspace");
}

/* Scalar alone, then each other backend of this machine on top of it. Returns how many vectors there are. */
static unsigned long test_index(const char *root, uint32_t backends)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/index.tsv", root);
    FILE *index = fopen(path, "r");
    if (index == NULL) {
        fprintf(stderr, "test_vectors: cannot open %s\n", path);
        exit(2);
    }
    unsigned long count = 0;
    vector v;
    while (vector_read(&v, index, root)) {
        test_vector(&v, backends, count % 17);
        vector_free(&v);
        count++;
    }
    fclose(index);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: test_vectors DIR [MINIMUM]\n");
        return 2;
    }
    const unsigned long minimum = argc == 3 ? strtoul(argv[2], NULL, 10) : 1;
    const uint32_t available = gw_backends_available();
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        backend_name = gw_backend_name(bit);
        if ((available & bit) == 0 || backend_name == NULL) {
            continue;
        }
        const unsigned long count = test_index(argv[1], GW_BACKEND_SCALAR | bit);
        printf("%s: %lu vectors, %d failures so far\n", backend_name, count, failures);
        if (count < minimum) {
            printf("%lu vectors are missing\n", minimum - count);
            failures++;
        }
    }
    return failures != 0;
}
