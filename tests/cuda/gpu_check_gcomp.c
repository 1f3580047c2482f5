/*
 * GCOMP: calls of one frame against the CPU; codebooks; damaged frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

void make_codec(gcomp_case *c, gw_dtype dtype, int levels, int preset, int rounding, uint32_t chunk_log2,
                int checksum)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, dtype);
    o.levels = (gw_gcomp_levels)levels;
    o.preset = (gw_gcomp_preset)preset;
    o.rounding = (gw_gcomp_rounding)rounding;
    o.chunk_log2 = chunk_log2;
    o.checksum = checksum;
    o.backends = cpu_backends;
    must(gw_gcomp_init(&c->codec, &o), "gw_gcomp_init");
}

/* Values and levels (NULL: no map), both owned by the case from here on, also on the device, and the CPU's
 * frame. */
void make_case_of(gcomp_case *c, gw_dtype dtype, void *values, size_t len, uint8_t *levels, uint32_t base,
                  float wire_scale, uint32_t chunk_log2)
{
    begin_case(c->name, "encode by the CPU");
    c->value_size = len * gw_dtype_size(dtype);
    memset(&c->source, 0, sizeof c->source);
    c->source.values = values;
    c->source.len = len;
    c->source.seed = 99;
    c->source.step_index = 3;
    c->device_source = c->source;
    c->device_source.values = on_device(values, c->value_size);
    memset(&c->device_map, 0, sizeof c->device_map);
    if (levels != NULL) {
        const size_t chunks = (len >> chunk_log2) + 1;
        uint32_t *digest = take(4 * chunks);
        must(gw_gcomp_map_digest(levels, len, chunk_log2, digest), "gw_gcomp_map_digest");
        c->map = (gw_gcomp_map){levels, digest, base, wire_scale, len, chunk_log2};
        c->device_map = c->map;
        c->device_map.levels = on_device(levels, len);
        c->device_map.digest = on_device(digest, 4 * chunks);
        c->source.map = &c->map;
        c->device_source.map = &c->device_map;
    }
    c->bound = gw_gcomp_bound(&c->codec, len);
    c->frame = take(c->bound);
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));
    gw_buffer out = {c->frame, c->bound, 0};
    must(gw_gcomp_encode(&c->codec, &c->source, &out,
                         &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_encode");
    c->frame_size = out.size;
    free(workspace);
}

/* The same with random levels if has_map. */
void make_case(gcomp_case *c, gw_dtype dtype, void *values, size_t len, int has_map, uint32_t chunk_log2,
               uint64_t *random)
{
    uint8_t *levels = has_map ? take(len) : NULL;

    for (size_t i = 0; has_map && i < len; i++) {
        levels[i] = (uint8_t)(next_random(random) % 160);
    }
    make_case_of(c, dtype, values, len, levels, dtype == GW_FP16 ? 420u : 380u, 1.0f, chunk_log2);
}

void drop_case(gcomp_case *c)
{
    give((void *)(uintptr_t)c->device_source.values);
    give((void *)(uintptr_t)c->device_map.levels);
    give((void *)(uintptr_t)c->device_map.digest);
    if (c->source.map != NULL) {
        free((void *)(uintptr_t)c->map.levels);
        free((void *)(uintptr_t)c->map.digest);
    }
    free((void *)(uintptr_t)c->source.values);
    free(c->frame);
}

/* Decodes bytes on both sides: status, chunk, values. Returns the device's status. */
gw_status compare_decode(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add)
{
    const size_t len = (size_t)c->source.len;
    begin_case(c->name, is_add ? "decode_add" : "decode");
    const size_t workspace_size = gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, len);
    uint8_t *values = take(c->value_size);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    void *workspace = workspace_on_device(workspace_size), *src = on_device(frame, size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    const gw_gcomp_map *map = c->source.map;
    const gw_gcomp_map *device_map = c->device_source.map;
    gw_status status;

    /* Not the values themselves: what is not written must show. */
    memset(values, 0x5a, c->value_size);
    if (is_add) {
        memcpy(values, c->source.values, c->value_size);
    }
    void *dst = on_device(values, c->value_size);
    const gw_gcomp_frame in = {frame, size, map};
    const gw_workspace cpu_work = {cpu_workspace, gw_gcomp_workspace_size(&c->codec)};
    gw_gcomp_target target = {.values = values, .capacity = len};
    if (is_add) {
        status = gw_gcomp_decode_add(&c->codec, &in, &target, &cpu_work);
        must(gw_cuda_gcomp_decode_add(
                 &cuda, &c->codec, &(gw_cuda_gcomp_frame){src, size, NULL, device_map},
                 &(gw_cuda_gcomp_target){dst, len, 0},
                 &(gw_cuda_gcomp_request){NULL, result, {workspace, workspace_size}, NULL}),
             "gw_cuda_gcomp_decode_add");
    } else {
        status = gw_gcomp_decode(&c->codec, &in, &target, &cpu_work);
        must(gw_cuda_gcomp_decode(&cuda, &c->codec, &(gw_cuda_gcomp_frame){src, size, NULL, device_map},
                                  &(gw_cuda_gcomp_target){dst, len, 0},
                                  &(gw_cuda_gcomp_request){NULL, result, {workspace, workspace_size}, NULL}),
             "gw_cuda_gcomp_decode");
    }
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status, "status of decode", c->name);
    expect(r.bad_index == target.bad_chunk, "chunk of decode", c->name);
    expect(r.len == target.len, "length of decode", c->name);
    expect_bytes(dst, values, c->value_size, is_add ? "values of decode_add" : "values of decode", c->name);
    give(dst);
    give(result);
    give(src);
    give(workspace);
    free(cpu_workspace);
    free(values);
    return (gw_status)r.status;
}

/* The same without values. */
void compare_validate(const gcomp_case *c, const uint8_t *frame, size_t size)
{
    begin_case(c->name, "validate");
    const size_t workspace_size = gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, c->source.len);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    void *workspace = workspace_on_device(workspace_size), *src = on_device(frame, size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    uint64_t bad;

    const gw_status status =
        gw_gcomp_validate(&c->codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = c->source.map},
                          &bad, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)});
    must(gw_cuda_gcomp_validate(&cuda, &c->codec,
                                &(gw_cuda_gcomp_frame){src, size, NULL, c->device_source.map}, c->source.len,
                                &(gw_cuda_gcomp_request){NULL, result, {workspace, workspace_size}, NULL}),
         "gw_cuda_gcomp_validate");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status && r.bad_index == bad, "validate", c->name);
    give(result);
    give(src);
    give(workspace);
    free(cpu_workspace);
}

/* What the segments of the case's source add to a workspace. */
static size_t segments_size(const gcomp_case *c)
{
    return c->source.segment_count == 0
               ? 0
               : gw_cuda_gcomp_segments_workspace_size(&c->codec, c->source.segment_count, c->source.len);
}

void compare_encode(const gcomp_case *c)
{
    begin_case(c->name, "encode");
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&c->codec, 1, c->source.len) + segments_size(c);
    void *workspace = workspace_on_device(size), *dst = on_device(NULL, c->bound);
    gw_cuda_result *result = on_device(NULL, sizeof *result);

    must(gw_cuda_gcomp_encode(&cuda, &c->codec, &c->device_source, &(gw_cuda_buffer){dst, c->bound},
                              &(gw_cuda_gcomp_request){NULL, result, {workspace, size}, NULL}),
         "gw_cuda_gcomp_encode");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == GW_OK && r.size == c->frame_size, "size of encode", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes of encode", c->name);
    give(result);
    give(dst);
    give(workspace);
}

void compare_hop(const gcomp_case *c)
{
    begin_case(c->name, "hop");
    const size_t size = gw_cuda_gcomp_hop_workspace_size(&c->codec, 1, c->source.len) + segments_size(c);
    void *workspace = workspace_on_device(size), *dst = on_device(NULL, c->bound),
         *src = on_device(c->frame, c->frame_size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    uint8_t *frame = take(c->bound);
    uint64_t bad;

    gw_buffer out = {frame, c->bound, 0};
    must(gw_gcomp_decode_add_encode(
             &c->codec, &(gw_gcomp_frame){.data = c->frame, .size = c->frame_size, .map = c->source.map},
             &c->source, &out, &bad, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_decode_add_encode");
    must(gw_cuda_gcomp_decode_add_encode(
             &cuda, &c->codec, &(gw_cuda_gcomp_frame){src, c->frame_size, NULL, c->device_source.map},
             &c->device_source, &(gw_cuda_buffer){dst, c->bound},
             &(gw_cuda_gcomp_request){NULL, result, {workspace, size}, NULL}),
         "gw_cuda_gcomp_decode_add_encode");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == GW_OK && r.size == out.size, "size of hop", c->name);
    expect_bytes(dst, frame, out.size, "bytes of hop", c->name);
    free(frame);
    free(cpu_workspace);
    give(result);
    give(src);
    give(dst);
    give(workspace);
}

static void compare_all(const gcomp_case *c)
{
    compare_encode(c);
    compare_decode(c, c->frame, c->frame_size, 0);
    compare_decode(c, c->frame, c->frame_size, 1);
    compare_hop(c);
    compare_validate(c, c->frame, c->frame_size);
}

/* Deep cut, carried frames with quanta of a map or of an error, zero masks: most values are 0. */
static void run_sparse(gw_dtype dtype, gw_gcomp_levels levels, size_t len, uint32_t chunk_log2, uint64_t seed)
{
    for (int has_map = 0; has_map < 2; has_map++) {
        const size_t size = gw_dtype_size(dtype);
        gcomp_case c;
        uint64_t random = seed;
        gw_gcomp_options o;
        uint8_t *values = take(len * size);
        fill(values, dtype, len, 0, &random);
        for (size_t i = 0; i < len; i++) {
            if (next_random(&random) % 8 != 0) {
                memset(values + i * size, 0, size);
            }
        }
        gw_gcomp_options_init(&o, dtype);
        o.levels = levels;
        o.rounding = (gw_gcomp_rounding)(dtype % 3);
        o.deep_cut = levels != GW_GCOMP_EXPLICIT;
        o.block_log2 = 7;
        o.target_nmse = 0.01f;
        o.chunk_log2 = chunk_log2;
        o.checksum = has_map;
        o.backends = cpu_backends;
        must(gw_gcomp_init(&c.codec, &o), "gw_gcomp_init");
        snprintf(c.name, sizeof c.name, "sparse, dtype %u levels %u map %d chunk %u len %zu", (unsigned)dtype,
                 (unsigned)levels, has_map, 1u << chunk_log2, len);
        make_case(&c, dtype, values, len, has_map, chunk_log2, &random);
        compare_all(&c);
        drop_case(&c);
    }
}

/* all_chunk_log2: 0 for all four. */
void run_gcomp(size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    const size_t lens[] = {0, 1, 63, 4097, len, len + 77, len / 2 + 5};
    static const uint32_t chunk_log2s[] = {12, 13, 14, 15, 13, 14, 15};

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = 0; levels < 2; levels++) {
            for (int preset = 0; preset < 2; preset++) {
                for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                    gcomp_case c;
                    uint64_t random = seed + i;
                    const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : chunk_log2s[i];
                    const int rounding = (int)((i + dtype) % 3), checksum = (int)(i & 1);
                    void *values = take(lens[i] * gw_dtype_size((gw_dtype)dtype));
                    fill(values, (gw_dtype)dtype, lens[i], (unsigned)(i & 1), &random);
                    make_codec(&c, (gw_dtype)dtype, levels, preset, rounding, chunk_log2, checksum);
                    snprintf(c.name, sizeof c.name,
                             "dtype %u levels %d preset %d rounding %d chunk %u len %zu", dtype, levels,
                             preset, rounding, 1u << chunk_log2, lens[i]);
                    make_case(&c, (gw_dtype)dtype, values, lens[i], i != 2 && i != 4, chunk_log2, &random);
                    compare_all(&c);
                    drop_case(&c);
                }
            }
        }
        for (int levels = GW_GCOMP_EXPLICIT; levels <= GW_GCOMP_CARRIED; levels++) {
            const uint32_t chunk_log2 =
                all_chunk_log2 != 0 ? all_chunk_log2 : 12 + (dtype + (uint32_t)levels) % 4;
            run_sparse((gw_dtype)dtype, (gw_gcomp_levels)levels, len + 77, chunk_log2, seed + dtype);
        }
    }
}

/* The CPU's frame of the case, once more: the codec has changed. */
void encode_again(gcomp_case *c)
{
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));

    gw_buffer out = {c->frame, c->bound, 0};
    must(gw_gcomp_encode(&c->codec, &c->source, &out,
                         &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_encode");
    c->frame_size = out.size;
    free(workspace);
}

/* The codebook of the case's values: counted and built on the device, equal to the CPU's, which is left in
 * book; then all calls with it installed in the codec. */
void compare_book(gcomp_case *c, uint8_t book[GW_GCOMP_BOOK_SIZE_MAX], size_t *book_size)
{
    begin_case(c->name, "codebook");
    static const gw_cuda_gcomp_histogram none;
    gw_gcomp_histogram histogram;
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    gw_cuda_gcomp_histogram *device_histogram = on_device(&none, sizeof none);
    const size_t workspace_size = GW_CUDA_HISTOGRAM_WORKSPACE_SIZE + segments_size(c);
    void *workspace = on_device(NULL, workspace_size);
    uint8_t *device_book = on_device(NULL, GW_GCOMP_BOOK_SIZE_MAX);
    uint32_t *device_size = on_device(NULL, 4), size_found = 0;
    gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);

    must(gw_gcomp_histogram_init(&histogram, &c->codec), "gw_gcomp_histogram_init");
    must(gw_gcomp_histogram_add(&histogram, &c->codec, &c->source,
                                &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_histogram_add");
    gw_buffer out = {book, GW_GCOMP_BOOK_SIZE_MAX, 0};
    must(gw_gcomp_book_build(&histogram, &out), "gw_gcomp_book_build");
    *book_size = out.size;
    must(gw_cuda_gcomp_histogram_add(
             &cuda, &c->codec, &c->device_source, device_histogram,
             &(gw_cuda_gcomp_request){NULL, &result[0], {workspace, workspace_size}, NULL}),
         "gw_cuda_gcomp_histogram_add");
    must(gw_cuda_gcomp_book_build(&cuda, &c->codec, device_histogram,
                                  &(gw_cuda_gcomp_books){device_book, device_size, 1},
                                  &(gw_cuda_gcomp_request){NULL, &result[1], {NULL, 0}, NULL}),
         "gw_cuda_gcomp_book_build");
    fetch(&size_found, device_size, 4);
    expect(fetch_result(&result[0]).status == GW_OK && size_found == *book_size, "size of codebook", c->name);
    expect_bytes(device_book, book, *book_size, "codebook", c->name);
    give(result);
    give(device_size);
    give(device_book);
    give(workspace);
    give(device_histogram);
    free(cpu_workspace);

    must(gw_gcomp_install(&c->codec, 7, 8, book, *book_size, 1), "gw_gcomp_install");
    encode_again(c);
    compare_encode(c);
    compare_decode(c, c->frame, c->frame_size, 0);
    compare_decode(c, c->frame, c->frame_size, 1);
    compare_validate(c, c->frame, c->frame_size);
    compare_hop(c);
}

/* Installs the codebook of the case's values, which encodes from now on. */
void install_own_book(gcomp_case *c)
{
    gw_gcomp_histogram histogram;
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));

    must(gw_gcomp_histogram_init(&histogram, &c->codec), "gw_gcomp_histogram_init");
    must(gw_gcomp_histogram_add(&histogram, &c->codec, &c->source,
                                &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_histogram_add");
    gw_buffer out = {book, sizeof book, 0};
    must(gw_gcomp_book_build(&histogram, &out), "gw_gcomp_book_build");
    must(gw_gcomp_install(&c->codec, 7, 8, book, out.size, 1), "gw_gcomp_install");
    free(workspace);
    encode_again(c);
}

/* Codebook, map base and key from device memory; the host's values are wrong. `plain` has no
 * codebook. */
void compare_device_arguments(const gcomp_case *c, const gw_gcomp *plain, const uint8_t *book,
                              size_t book_size)
{
    begin_case(c->name, "arguments on the device");
    const gw_cuda_gcomp_key key = {c->source.seed, c->source.step_index, c->source.rank, c->source.hop};
    const uint32_t size = (uint32_t)book_size;
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(plain, 1, c->source.len);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(plain, 1, c->source.len);
    uint32_t *base = on_device(&c->map.base, 4), *size_at = on_device(&size, 4);
    gw_cuda_gcomp_key *key_at = on_device(&key, sizeof key);
    uint8_t *book_at = on_device(book, book_size);
    void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size);
    void *dst = on_device(NULL, c->bound), *values = on_device(NULL, c->value_size);
    gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);
    gw_gcomp_map map = c->device_map;
    gw_gcomp_source source = c->device_source;

    map.base = 1;
    source.map = &map;
    source.seed = 0;
    source.step_index = 0;
    const gw_cuda_gcomp_device arguments = {base, key_at, book_at, size_at, 7, 8};
    must(gw_cuda_gcomp_encode(
             &cuda, plain, &source, &(gw_cuda_buffer){dst, c->bound},
             &(gw_cuda_gcomp_request){&arguments, &result[0], {encode_at, encode_size}, NULL}),
         "gw_cuda_gcomp_encode");
    must(gw_cuda_gcomp_decode(
             &cuda, plain, &(gw_cuda_gcomp_frame){dst, c->bound, &result[0].size, &map},
             &(gw_cuda_gcomp_target){values, c->source.len, 0},
             &(gw_cuda_gcomp_request){&arguments, &result[1], {decode_at, decode_size}, NULL}),
         "gw_cuda_gcomp_decode");
    expect(fetch_result(&result[0]).size == c->frame_size, "size with arguments on the device", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes with arguments on the device", c->name);
    expect(fetch_result(&result[1]).status == GW_OK, "decode with arguments on the device", c->name);
    give(result);
    give(values);
    give(dst);
    give(decode_at);
    give(encode_at);
    give(book_at);
    give(key_at);
    give(size_at);
    give(base);
}

/* chunk_log2: 0 for all four. */
void run_hostile(unsigned long count, size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned long i = 0; i < count; i++) {
        gcomp_case c;
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : 12 + (uint32_t)(i / 3 % 4);
        void *values = take(len * gw_dtype_size(dtype));
        fill(values, dtype, len, (unsigned)(i & 1), &random);
        make_codec(&c, dtype, (int)(i / 2 % 2), (int)(i / 4 % 2), 1, chunk_log2, (int)(i / 5 % 2));
        snprintf(c.name, sizeof c.name, "hostile %lu", i);
        make_case(&c, dtype, values, len, 1, chunk_log2, &random);
        for (int turn = 0; turn < 8; turn++) {
            uint8_t *wrong = take(c.frame_size);
            size_t size = c.frame_size;
            memcpy(wrong, c.frame, size);
            if (turn == 7) {
                size = (size_t)(next_random(&random) % size);
            } else {
                for (int j = 0; j <= turn / 2; j++) {
                    const size_t at =
                        (size_t)(next_random(&random) % (turn % 2 == 0 && size > 160 ? 160 : size));
                    wrong[at] = (uint8_t)next_random(&random);
                }
            }
            snprintf(c.name, sizeof c.name, "hostile %lu turn %d", i, turn);
            compare_decode(&c, wrong, size, turn & 1);
            compare_validate(&c, wrong, size);
            free(wrong);
        }
        drop_case(&c);
    }
}
