/* GCOMP: calls of one frame against the CPU; codebooks; damaged frames. SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_cases.h"

#include <stdlib.h>
#include <string.h>

const gw_cuda_gcomp_key case_key = {77, 5, 2, 1};

gw_gcomp make_codec(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, gw_gcomp_preset preset,
                    gw_gcomp_rounding rounding, uint32_t chunk_log2, int checksum)
{
    gw_gcomp codec;
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, dtype);
    o.quantum_mode = quantum_mode;
    o.preset = preset;
    o.rounding = rounding;
    o.chunk_log2 = chunk_log2;
    o.checksum = checksum;
    o.backends = cpu_backends;
    must(gw_gcomp_init(&codec, &o), "gw_gcomp_init");
    return codec;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static size_t chunks_of(const gw_gcomp_map *map)
{
    return (size_t)(map->len >> map->chunk_log2) + 1;
}

tensor tensor_of(gw_dtype dtype, uint64_t len, void *values, const gw_gcomp_map *map)
{
    tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.len = len;
    t.values = values;
    if (map != NULL) {
        uint32_t *digest = take(4 * chunks_of(map));
        must(gw_gcomp_map_digest(map->bytes, (size_t)len, map->chunk_log2, digest), "gw_gcomp_map_digest");
        t.map = *map;
        t.map.digest = digest;
    }
    return t;
}

tensor random_tensor(gw_dtype dtype, uint64_t len, uint32_t chunk_log2, uint64_t *random)
{
    uint8_t *values = take(gw_dtype_size(dtype) * (size_t)len), *map_bytes = take((size_t)len);
    fill_widely(values, dtype, (size_t)len, 12, random);
    for (size_t i = 0; i < len; i++) {
        map_bytes[i] = (uint8_t)(next_random(random) % 200);
    }
    return tensor_of(dtype, len, values, &(gw_gcomp_map){map_bytes, NULL, 300, 4.0f, len, chunk_log2});
}

void tensor_upload(tensor *t)
{
    const size_t element = gw_dtype_size(t->dtype);
    t->cpu = (gw_gcomp_source){.values = t->values,
                               .len = t->len,
                               .quantum = gw_gcomp_quantum_of_map(t->map.bytes != NULL ? &t->map : NULL),
                               .seed = case_key.seed,
                               .first_element = 1000,
                               .step_index = case_key.step_index,
                               .rank = case_key.rank,
                               .hop = case_key.hop};
    t->device = t->cpu;
    t->device.values = on_device_at(t->values, element * (size_t)t->len, element);
    t->device_map = t->map;
    if (t->map.bytes != NULL) {
        t->device_map.bytes = on_device_at(t->map.bytes, (size_t)t->len, 3);
        t->device_map.digest = on_device(t->map.digest, 4 * chunks_of(&t->map));
        t->device.quantum = gw_gcomp_quantum_of_map(&t->device_map);
    }
}

void tensor_drop(tensor *t)
{
    give((void *)(uintptr_t)t->device.values);
    give((void *)(uintptr_t)t->device_map.bytes);
    give((void *)(uintptr_t)t->device_map.digest);
    free(t->values);
    free((void *)(uintptr_t)t->map.bytes);
    free((void *)(uintptr_t)t->map.digest);
}

static gw_workspace cpu_workspace(const gw_gcomp *codec)
{
    const size_t size = gw_gcomp_workspace_size(codec);
    return (gw_workspace){take(size), size};
}

size_t cpu_encode(const gw_gcomp *codec, const gw_gcomp_source *source, uint8_t **frame)
{
    const size_t bound = gw_gcomp_frame_bound(codec, source->len);
    const gw_workspace workspace = cpu_workspace(codec);
    *frame = take(bound);
    gw_buffer out = {*frame, bound, 0};
    must(gw_gcomp_encode(codec, source, &out, &workspace), "gw_gcomp_encode");
    free(workspace.data);
    return out.size;
}

size_t cpu_codebook(const gw_gcomp *codec, const gw_gcomp_source *sources, size_t source_count,
                    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX])
{
    gw_gcomp_histogram histogram;
    const gw_workspace workspace = cpu_workspace(codec);
    must(gw_gcomp_histogram_init(&histogram, codec), "gw_gcomp_histogram_init");
    for (size_t i = 0; i < source_count; i++) {
        must(gw_gcomp_histogram_add(&histogram, codec, &sources[i], &workspace), "gw_gcomp_histogram_add");
    }
    gw_buffer out = {codebook, GW_GCOMP_CODEBOOK_SIZE_MAX, 0};
    must(gw_gcomp_codebook_build(&histogram, &out), "gw_gcomp_codebook_build");
    free(workspace.data);
    return out.size;
}

void make_case(gcomp_case *c, tensor t)
{
    begin_case(c->name, "encode by the CPU");
    c->t = t;
    tensor_upload(&c->t);
    c->value_size = (size_t)t.len * gw_dtype_size(t.dtype);
    c->bound = gw_gcomp_frame_bound(&c->codec, t.len);
    c->frame_size = cpu_encode(&c->codec, &c->t.cpu, &c->frame);
}

void encode_again(gcomp_case *c)
{
    free(c->frame);
    c->frame_size = cpu_encode(&c->codec, &c->t.cpu, &c->frame);
}

void drop_case(gcomp_case *c)
{
    tensor_drop(&c->t);
    free(c->frame);
}

/* ---- calls of one frame -------------------------------------------------------------------------------- */

/* With a result and a workspace of the device. */
static gw_cuda_gcomp_request new_request(size_t workspace_size)
{
    return (gw_cuda_gcomp_request){
        NULL, new_result(), {workspace_on_device(workspace_size), workspace_size}, NULL};
}

/* A decode has the size of the frame from device memory, a decode_add from the host. */
gw_status compare_scaled(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add, float scale)
{
    const uint64_t len = c->t.len, frame_size = size;
    const unsigned long mark = device_mark();
    const gw_workspace workspace = cpu_workspace(&c->codec);
    uint8_t *values = take(c->value_size);
    gw_status status;

    begin_case(c->name, is_add ? "decode_add" : "decode");
    memset(values, 0x5a, c->value_size); /* not the values themselves: what is not written must show */
    if (is_add) {
        memcpy(values, c->t.values, c->value_size);
    }
    const gw_cuda_gcomp_target dst = {on_device(values, c->value_size), len, scale};
    const gw_gcomp_frame in = {frame, size, c->t.cpu.quantum.map};
    const gw_cuda_gcomp_frame device_in = {
        on_device(frame, size), size, is_add ? NULL : on_device(&frame_size, 8), c->t.device.quantum.map};
    const gw_cuda_gcomp_request request = new_request(gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, len));
    gw_gcomp_target target = {.values = values, .capacity = len, .scale = scale};
    if (is_add) {
        status = gw_gcomp_decode_add(&c->codec, &in, &target, &workspace);
        must(gw_cuda_gcomp_decode_add(&cuda, &c->codec, &device_in, &dst, &request),
             "gw_cuda_gcomp_decode_add");
    } else {
        status = gw_gcomp_decode(&c->codec, &in, &target, &workspace);
        must(gw_cuda_gcomp_decode(&cuda, &c->codec, &device_in, &dst, &request), "gw_cuda_gcomp_decode");
    }
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == (uint32_t)status, "status of decode", c->name);
    expect(r.bad_index == target.bad_chunk, "chunk of decode", c->name);
    expect(r.len == target.len, "length of decode", c->name);
    expect_bytes(dst.values, values, c->value_size, is_add ? "values of decode_add" : "values of decode",
                 c->name);
    give_since(mark);
    free(workspace.data);
    free(values);
    return (gw_status)r.status;
}

gw_status compare_decode(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add)
{
    return compare_scaled(c, frame, size, is_add, 0);
}

void compare_validate(const gcomp_case *c, const uint8_t *frame, size_t size)
{
    const unsigned long mark = device_mark();
    const gw_workspace workspace = cpu_workspace(&c->codec);
    uint64_t bad;

    begin_case(c->name, "validate");
    const gw_cuda_gcomp_request request =
        new_request(gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, c->t.len));
    const gw_status status = gw_gcomp_frame_check(
        &c->codec, &(gw_gcomp_frame){frame, size, c->t.cpu.quantum.map}, &bad, &workspace);
    must(gw_cuda_gcomp_frame_check(
             &cuda, &c->codec,
             &(gw_cuda_gcomp_frame){on_device(frame, size), size, NULL, c->t.device.quantum.map}, c->t.len,
             &request),
         "gw_cuda_gcomp_frame_check");
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == (uint32_t)status && r.bad_index == bad, "validate", c->name);
    give_since(mark);
    free(workspace.data);
}

/* What the segments of the case's source add to a workspace. */
static size_t segments_size(const gcomp_case *c)
{
    return c->t.cpu.segment_count == 0
               ? 0
               : gw_cuda_gcomp_segments_workspace_size(&c->codec, c->t.cpu.segment_count, c->t.len);
}

void compare_encode(const gcomp_case *c)
{
    const unsigned long mark = device_mark();

    begin_case(c->name, "encode");
    void *dst = on_device(NULL, c->bound);
    const gw_cuda_gcomp_request request =
        new_request(gw_cuda_gcomp_encode_workspace_size(&c->codec, 1, c->t.len) + segments_size(c));
    must(gw_cuda_gcomp_encode(&cuda, &c->codec, &c->t.device, &(gw_cuda_buffer){dst, c->bound}, &request),
         "gw_cuda_gcomp_encode");
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == GW_OK && r.size == c->frame_size && r.len == c->t.len, "size of encode", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes of encode", c->name);
    give_since(mark);
}

void compare_hop(const gcomp_case *c)
{
    const unsigned long mark = device_mark();
    const gw_workspace workspace = cpu_workspace(&c->codec);
    uint8_t *frame = take(c->bound);
    uint64_t bad;

    begin_case(c->name, "hop");
    gw_buffer out = {frame, c->bound, 0};
    void *dst = on_device(NULL, c->bound);
    const gw_cuda_gcomp_request request =
        new_request(gw_cuda_gcomp_hop_workspace_size(&c->codec, 1, c->t.len) + segments_size(c));
    must(gw_gcomp_decode_add_encode(&c->codec,
                                    &(gw_gcomp_frame){c->frame, c->frame_size, c->t.cpu.quantum.map},
                                    &c->t.cpu, &out, &bad, &workspace),
         "gw_gcomp_decode_add_encode");
    must(gw_cuda_gcomp_decode_add_encode(&cuda, &c->codec,
                                         &(gw_cuda_gcomp_frame){on_device(c->frame, c->frame_size),
                                                                c->frame_size, NULL, c->t.device.quantum.map},
                                         &c->t.device, &(gw_cuda_buffer){dst, c->bound}, &request),
         "gw_cuda_gcomp_decode_add_encode");
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == GW_OK && r.size == out.size, "size of hop", c->name);
    expect_bytes(dst, frame, out.size, "bytes of hop", c->name);
    give_since(mark);
    free(frame);
    free(workspace.data);
}

void compare_all(const gcomp_case *c)
{
    compare_encode(c);
    compare_decode(c, c->frame, c->frame_size, 0);
    compare_decode(c, c->frame, c->frame_size, 1);
    compare_hop(c);
    compare_validate(c, c->frame, c->frame_size);
}

void compare_damaged(gcomp_case *c, int turn, uint64_t *random)
{
    uint8_t *wrong = take(c->frame_size);
    size_t size = c->frame_size;
    memcpy(wrong, c->frame, size);
    if (turn % 8 == 7) {
        size = (size_t)(next_random(random) % size);
    } else {
        for (int j = 0; j <= turn % 8 / 2; j++) {
            const size_t at = (size_t)(next_random(random) % (turn % 2 == 0 && size > 160 ? 160 : size));
            wrong[at] = (uint8_t)next_random(random);
        }
    }
    compare_decode(c, wrong, size, turn & 1);
    compare_validate(c, wrong, size);
    free(wrong);
}

/* ---- codebooks and arguments in device memory ---------------------------------------------------------- */

void compare_codebook(gcomp_case *c, uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX], size_t *codebook_size)
{
    static const gw_cuda_gcomp_histogram none;
    const unsigned long mark = device_mark();

    begin_case(c->name, "codebook");
    *codebook_size = cpu_codebook(&c->codec, &c->t.cpu, 1, codebook);
    const uint32_t size = (uint32_t)*codebook_size;
    gw_cuda_gcomp_histogram *histogram = on_device(&none, sizeof none);
    const gw_cuda_gcomp_codebooks codebooks = {on_device(NULL, GW_GCOMP_CODEBOOK_SIZE_MAX),
                                               on_device(NULL, 4), 1};
    const gw_cuda_gcomp_request count = new_request(GW_CUDA_HISTOGRAM_WORKSPACE_SIZE + segments_size(c));
    const gw_cuda_gcomp_request build = {NULL, new_result(), {NULL, 0}, NULL};
    must(gw_cuda_gcomp_histogram_add(&cuda, &c->codec, &c->t.device, histogram, &count),
         "gw_cuda_gcomp_histogram_add");
    must(gw_cuda_gcomp_codebook_build(&cuda, &c->codec, histogram, &codebooks, &build),
         "gw_cuda_gcomp_codebook_build");
    expect(fetch_result(count.result).status == GW_OK, "status of histogram", c->name);
    expect(fetch_result(build.result).status == GW_OK, "status of codebook", c->name);
    expect_bytes(codebooks.sizes, &size, 4, "size of codebook", c->name);
    expect_bytes(codebooks.codebooks, codebook, size, "codebook", c->name);
    give_since(mark);

    must(gw_gcomp_codebook_install(&c->codec, 7, 8, codebook, size, 1), "gw_gcomp_codebook_install");
    encode_again(c);
    compare_all(c);
}

void compare_device_arguments(const gcomp_case *c, const gw_gcomp *plain, const uint8_t *codebook,
                              size_t codebook_size)
{
    const unsigned long mark = device_mark();
    const gw_gcomp_source *s = &c->t.cpu;
    const gw_cuda_gcomp_key key = {s->seed, s->step_index, s->rank, s->hop};
    const uint32_t size = (uint32_t)codebook_size;
    gw_gcomp_map map = c->t.device_map;
    gw_gcomp_source source = c->t.device;

    begin_case(c->name, "arguments on the device");
    map.base = 1;
    source.quantum = gw_gcomp_quantum_of_map(&map);
    source.seed = 0;
    source.step_index = 0;
    source.hop = 9;
    const gw_cuda_gcomp_device arguments = {on_device(&c->t.map.base, 4),
                                            on_device(&key, sizeof key),
                                            codebook == NULL ? NULL
                                                             : on_device_at(codebook, codebook_size, 1),
                                            codebook == NULL ? NULL : on_device(&size, 4),
                                            7,
                                            8};
    gw_cuda_gcomp_request encode = new_request(gw_cuda_gcomp_encode_workspace_size(plain, 1, s->len));
    gw_cuda_gcomp_request decode = new_request(gw_cuda_gcomp_decode_workspace_size(plain, 1, s->len));
    encode.device = decode.device = &arguments;
    void *dst = on_device(NULL, c->bound);
    must(gw_cuda_gcomp_encode(&cuda, plain, &source, &(gw_cuda_buffer){dst, c->bound}, &encode),
         "gw_cuda_gcomp_encode");
    must(gw_cuda_gcomp_decode(&cuda, plain, &(gw_cuda_gcomp_frame){dst, c->bound, &encode.result->size, &map},
                              &(gw_cuda_gcomp_target){on_device(NULL, c->value_size), s->len, 0}, &decode),
         "gw_cuda_gcomp_decode");
    expect(fetch_result(encode.result).size == c->frame_size, "size with arguments on the device", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes with arguments on the device", c->name);
    expect(fetch_result(decode.result).status == GW_OK, "decode with arguments on the device", c->name);
    give_since(mark);
}
