/*
 * GCOMP through the public calls against the CPU: encode, decode, sums, hops, batches, codebooks, graphs,
 * arguments. The codec's own cases (formats, hostile frames) are tested on the plans that these calls submit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_params.h"
#include "gcomp_testing.h"

#include <stdlib.h>
#include <string.h>

static void compare(gw_cuda *cuda, gw_dtype dtype, gw_gcomp_levels levels, gw_gcomp_preset preset,
                    uint32_t chunk_log2, uint64_t len, int checksum, uint64_t *random)
{
    const gw_gcomp codec = testing_codec(dtype, levels, preset, chunk_log2, checksum);
    const size_t value_size = gw_dtype_size(dtype) * (size_t)len;
    testing_tensor t = testing_tensor_make(dtype, len, chunk_log2, random);
    uint8_t *frame;
    gw_cuda_result *result = testing_new_result();
    testing_tensor_upload(&t);

    /* encode; base and key once from the host, once from the device */
    const size_t size = testing_cpu_encode(&codec, &t.cpu, &frame);
    const size_t bound = gw_gcomp_bound(&codec, len);
    const size_t workspace_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, len);
    void *workspace = testing_device(NULL, workspace_size, 0);
    uint8_t *device_frame = testing_device(NULL, bound, 0);
    const gw_cuda_gcomp_key key = {t.cpu.seed, t.cpu.step_index, t.cpu.rank, t.cpu.hop};
    gw_cuda_gcomp_device device = {0};
    device.map_base = testing_device(&t.map.base, 4, 0);
    device.key = testing_device(&key, sizeof key, 0);
    for (int turn = 0; turn < 2; turn++) {
        gw_gcomp_source source = t.device;
        gw_gcomp_map map = t.device_map;
        source.map = &map;
        if (turn == 1) {
            source.seed = 0;
            source.hop = 9;
            map.base = 0;
        }
        assert_int_equal(
            gw_cuda_gcomp_encode(cuda, &codec, &source, &(gw_cuda_buffer){device_frame, bound},
                                 &(gw_cuda_gcomp_request){
                                     turn == 1 ? &device : NULL, result, {workspace, workspace_size}, NULL}),
            GW_OK);
        const gw_cuda_result r = testing_result(result);
        assert_int_equal(r.status, GW_OK);
        assert_int_equal(r.size, size);
        assert_int_equal(r.len, len);
        assert_memory_equal(device_frame, frame, size);
    }

    /* decode, with the size in device memory; decode_add; validate */
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, len);
    void *decode_workspace = testing_device(NULL, decode_size, 0);
    uint8_t *values = testing_take(value_size), *sum = testing_take(value_size);
    void *device_values = testing_device(NULL, value_size, 0);
    void *device_sum = testing_device(t.values, value_size, 0);
    void *cpu_workspace = testing_take(gw_gcomp_workspace_size(&codec));
    uint64_t bad;
    memcpy(sum, t.values, value_size);
    gw_gcomp_target target = {.values = values, .capacity = len};
    assert_int_equal(gw_gcomp_decode(&codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = &t.map},
                                     &target,
                                     &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
                     GW_OK);
    gw_gcomp_target target2 = {.values = sum, .capacity = len};
    assert_int_equal(
        gw_gcomp_decode_add(&codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = &t.map}, &target2,
                            &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
        GW_OK);
    assert_int_equal(
        gw_cuda_gcomp_decode(
            cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, bound, &result->size, &t.device_map},
            &(gw_cuda_gcomp_target){device_values, len, 0},
            &(gw_cuda_gcomp_request){NULL, testing_new_result(), {decode_workspace, decode_size}, NULL}),
        GW_OK);
    assert_int_equal(gw_cuda_gcomp_decode_add(
                         cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, size, NULL, &t.device_map},
                         &(gw_cuda_gcomp_target){device_sum, len, 0},
                         &(gw_cuda_gcomp_request){NULL, result, {decode_workspace, decode_size}, NULL}),
                     GW_OK);
    gw_cuda_result r = testing_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_int_equal(r.len, len);
    assert_true(r.bad_index == UINT64_MAX);
    assert_memory_equal(device_values, values, value_size);
    assert_memory_equal(device_sum, sum, value_size);

    /* bytes at random: the CPU's status and chunk, and what it makes of the other chunks */
    for (int turn = 0; turn < 6; turn++) {
        uint8_t *wrong = testing_take(size);
        memcpy(wrong, frame, size);
        const size_t at =
            turn < 2 ? testing_random(random) % (size < 64 ? size : 64) : testing_random(random) % size;
        wrong[at] ^= (uint8_t)(1 + testing_random(random) % 255);
        void *device_wrong = testing_device(wrong, size, 0);
        memset(values, 0x5a, value_size);
        memset(device_values, 0x5a, value_size);
        target2.bad_chunk = 0;
        gw_gcomp_target target3 = {.values = values, .capacity = len};
        const gw_status status =
            gw_gcomp_decode(&codec, &(gw_gcomp_frame){.data = wrong, .size = size, .map = &t.map}, &target3,
                            &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)});
        assert_int_equal(gw_cuda_gcomp_decode(
                             cuda, &codec, &(gw_cuda_gcomp_frame){device_wrong, size, NULL, &t.device_map},
                             &(gw_cuda_gcomp_target){device_values, len, 0},
                             &(gw_cuda_gcomp_request){NULL, result, {decode_workspace, decode_size}, NULL}),
                         GW_OK);
        r = testing_result(result);
        assert_int_equal(r.status, status);
        assert_true(r.bad_index == target3.bad_chunk);
        assert_memory_equal(device_values, values, value_size);
        assert_int_equal(gw_cuda_gcomp_validate(
                             cuda, &codec, &(gw_cuda_gcomp_frame){device_wrong, size, NULL, &t.device_map},
                             len,
                             &(gw_cuda_gcomp_request){NULL, result, {decode_workspace, decode_size}, NULL}),
                         GW_OK);
        r = testing_result(result);
        assert_int_equal(
            r.status,
            gw_gcomp_validate(&codec, &(gw_gcomp_frame){.data = wrong, .size = size, .map = &t.map}, &bad,
                              &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}));
        assert_true(r.bad_index == bad);
        free(wrong);
    }

    /* hop */
    uint8_t *hop = testing_take(bound);
    uint8_t *device_hop = testing_device(NULL, bound, 0);
    const size_t hop_workspace_size = gw_cuda_gcomp_hop_workspace_size(&codec, 1, len);
    gw_buffer out = {hop, bound, 0};
    assert_int_equal(gw_gcomp_decode_add_encode(
                         &codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = &t.map}, &t.cpu, &out,
                         &bad, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
                     GW_OK);
    assert_int_equal(
        gw_cuda_gcomp_decode_add_encode(
            cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, size, NULL, &t.device_map}, &t.device,
            &(gw_cuda_buffer){device_hop, bound},
            &(gw_cuda_gcomp_request){
                NULL, result, {testing_device(NULL, hop_workspace_size, 0), hop_workspace_size}, NULL}),
        GW_OK);
    r = testing_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_int_equal(r.size, out.size);
    assert_memory_equal(device_hop, hop, out.size);

    free(hop);
    free(values);
    free(sum);
    free(cpu_workspace);
    free(frame);
    testing_tensor_drop(&t);
    testing_free_all();
}

static void equals_the_cpu(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 20;

    testing_open(&cuda);
    for (int levels = GW_GCOMP_EXPLICIT; levels <= GW_GCOMP_DERIVED; levels++) {
        for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            compare(&cuda, (gw_dtype)dtype, (gw_gcomp_levels)levels, GW_GCOMP_FAST, 12, 9000 + 13 * dtype,
                    dtype & 1, &random);
            compare(&cuda, (gw_dtype)dtype, (gw_gcomp_levels)levels, GW_GCOMP_SMALL, 13, 9001, !(dtype & 1),
                    &random);
            compare(&cuda, (gw_dtype)dtype, (gw_gcomp_levels)levels, GW_GCOMP_SMALL, 14, 63, 1, &random);
        }
    }
    gw_cuda_close(&cuda);
}

/* Histogram and codebook on the device; frames made with it in device memory, read by a CPU that has it
 * installed. */
static void codebooks(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 21;
    gw_gcomp codec = testing_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 12, 1);
    testing_tensor t = testing_tensor_make(GW_FP32, 10000, 12, &random);
    gw_gcomp_histogram histogram;
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX], *frame;
    void *cpu_workspace = testing_take(gw_gcomp_workspace_size(&codec));
    const gw_cuda_gcomp_histogram none = {.chunk_count = 0};
    gw_cuda_gcomp_histogram *device_histogram = testing_device(&none, sizeof none, 0);
    uint8_t *device_book = testing_device(NULL, GW_GCOMP_BOOK_SIZE_MAX, 0);
    uint32_t *device_book_size = testing_device(NULL, 4, 0);
    gw_cuda_result *result = testing_new_result();
    void *workspace = testing_device(NULL, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE, 0);

    testing_open(&cuda);
    testing_tensor_upload(&t);
    assert_int_equal(gw_gcomp_histogram_init(&histogram, &codec), GW_OK);
    assert_int_equal(gw_gcomp_histogram_add(&histogram, &codec, &t.cpu,
                                            &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
                     GW_OK);
    gw_buffer out = {book, sizeof book, 0};
    assert_int_equal(gw_gcomp_book_build(&histogram, &out), GW_OK);
    assert_int_equal(
        gw_cuda_gcomp_histogram_add(
            &cuda, &codec, &t.device, device_histogram,
            &(gw_cuda_gcomp_request){NULL, result, {workspace, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE}, NULL}),
        GW_OK);
    assert_int_equal(gw_cuda_gcomp_book_build(&cuda, &codec, device_histogram,
                                              &(gw_cuda_gcomp_books){device_book, device_book_size, 1},
                                              &(gw_cuda_gcomp_request){NULL, result, {NULL, 0}, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(result).status, GW_OK);
    assert_int_equal(*device_book_size, out.size);
    assert_memory_equal(device_book, book, out.size);

    gw_cuda_gcomp_device device = {NULL, NULL, device_book, device_book_size, 7, 8};
    const size_t bound = gw_gcomp_bound(&codec, t.len);
    const size_t workspace_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, t.len);
    uint8_t *device_frame = testing_device(NULL, bound, 0);
    assert_int_equal(
        gw_cuda_gcomp_encode(
            &cuda, &codec, &t.device, &(gw_cuda_buffer){device_frame, bound},
            &(gw_cuda_gcomp_request){
                &device, result, {testing_device(NULL, workspace_size, 0), workspace_size}, NULL}),
        GW_OK);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, t.len);
    void *decode_workspace = testing_device(NULL, decode_size, 0);
    float *values = testing_device(NULL, 4 * t.len, 0);
    gw_cuda_result *decoded = testing_new_result();
    assert_int_equal(gw_cuda_gcomp_decode(
                         &cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, bound, &result->size, NULL},
                         &(gw_cuda_gcomp_target){values, t.len, 0},
                         &(gw_cuda_gcomp_request){&device, decoded, {decode_workspace, decode_size}, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(decoded).status, GW_OK);
    /* Without the book the frame is refused. */
    assert_int_equal(
        gw_cuda_gcomp_decode(&cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, bound, &result->size, NULL},
                             &(gw_cuda_gcomp_target){values, t.len, 0},
                             &(gw_cuda_gcomp_request){NULL, decoded, {decode_workspace, decode_size}, NULL}),
        GW_OK);
    assert_int_equal(testing_result(decoded).status, GW_ERR_TABLE);
    /* With another one under the same id and generation as well: labels 0 and 1 only. */
    static const uint8_t zero_and_escape[4] = {0, 0, 0, 0x11};
    const uint32_t other_size = sizeof zero_and_escape;
    gw_cuda_gcomp_device other = device;
    other.book = testing_device(zero_and_escape, sizeof zero_and_escape, 0);
    other.book_size = testing_device(&other_size, sizeof other_size, 0);
    assert_int_equal(gw_cuda_gcomp_decode(
                         &cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, bound, &result->size, NULL},
                         &(gw_cuda_gcomp_target){values, t.len, 0},
                         &(gw_cuda_gcomp_request){&other, decoded, {decode_workspace, decode_size}, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(decoded).status, GW_ERR_TABLE);
    assert_int_equal(gw_gcomp_install(&codec, 7, 8, book, out.size, 1), GW_OK);
    const size_t size = testing_cpu_encode(&codec, &t.cpu, &frame);
    assert_int_equal(testing_result(result).size, size);
    assert_memory_equal(device_frame, frame, size);
    /* With the book in the handle. */
    memset(device_frame, 0, bound);
    assert_int_equal(gw_cuda_gcomp_encode(
                         &cuda, &codec, &t.device, &(gw_cuda_buffer){device_frame, bound},
                         &(gw_cuda_gcomp_request){
                             NULL, result, {testing_device(NULL, workspace_size, 0), workspace_size}, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(result).size, size);
    assert_memory_equal(device_frame, frame, size);
    /* A book that is none. */
    memset(device_book, 0xff, GW_GCOMP_BOOK_SIZE_MAX);
    assert_int_equal(
        gw_cuda_gcomp_encode(
            &cuda, &codec, &t.device, &(gw_cuda_buffer){device_frame, bound},
            &(gw_cuda_gcomp_request){
                &device, result, {testing_device(NULL, workspace_size, 0), workspace_size}, NULL}),
        GW_OK);
    assert_int_equal(testing_result(result).status, GW_ERR_TABLE);
    free(frame);
    free(cpu_workspace);
    testing_tensor_drop(&t);
    testing_free_all();
    gw_cuda_close(&cuda);
}

/* A codec with deep cut, or of carried frames. */
static gw_gcomp codec_with_quanta(gw_gcomp_levels levels, float target_nmse)
{
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.levels = levels;
    options.deep_cut = 1;
    options.block_log2 = 8;
    options.target_nmse = target_nmse;
    options.chunk_log2 = 12;
    assert_int_equal(gw_gcomp_init(&codec, &options), GW_OK);
    return codec;
}

/* Encode and decode of a carried frame; then what is left to the CPU is refused before anything is launched.
 */
static void carried_frames(void **state)
{
    (void)state;
    enum { LEN = 9000, BLOCKS = 36 };
    gw_cuda cuda;
    uint64_t random = 23;
    testing_tensor t = testing_tensor_make(GW_FP32, LEN, 12, &random);
    uint8_t quanta[BLOCKS], *device_quanta = testing_device(NULL, BLOCKS, 1), *frame;
    gw_cuda_result *result = testing_new_result();

    testing_open(&cuda);
    testing_tensor_upload(&t);
    for (int i = 0; i < BLOCKS; i++) {
        device_quanta[i] = quanta[i] = (uint8_t)(i % 7 == 0 ? 0 : 90 + i);
    }
    /* From the caller, from the map, from the values. */
    for (int from = 0; from < 3; from++) {
        const gw_gcomp codec = codec_with_quanta(GW_GCOMP_CARRIED, 0.001f);
        gw_gcomp_source cpu = t.cpu, device = t.device;
        if (from != 1) {
            cpu.map = device.map = NULL;
        }
        cpu.quanta = from == 0 ? quanta : NULL;
        device.quanta = from == 0 ? device_quanta : NULL;
        const size_t size = testing_cpu_encode(&codec, &cpu, &frame);
        const size_t bound = gw_gcomp_bound(&codec, LEN);
        const size_t workspace_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, LEN);
        uint8_t *device_frame = testing_device(NULL, bound, 0);
        assert_int_equal(
            gw_cuda_gcomp_encode(
                &cuda, &codec, &device, &(gw_cuda_buffer){device_frame, bound},
                &(gw_cuda_gcomp_request){
                    NULL, result, {testing_device(NULL, workspace_size, 0), workspace_size}, NULL}),
            GW_OK);
        assert_int_equal(testing_result(result).status, GW_OK);
        assert_int_equal(testing_result(result).size, size);
        assert_memory_equal(device_frame, frame, size);
        float *values = testing_device(NULL, 4 * LEN, 0), *expected = testing_take(4 * LEN);
        void *cpu_workspace = testing_take(gw_gcomp_workspace_size(&codec));
        gw_gcomp_target target = {.values = expected, .capacity = LEN};
        assert_int_equal(gw_gcomp_decode(&codec, &(gw_gcomp_frame){frame, size, NULL}, &target,
                                         &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&codec)}),
                         GW_OK);
        const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, LEN);
        assert_int_equal(gw_cuda_gcomp_decode(
                             &cuda, &codec, &(gw_cuda_gcomp_frame){device_frame, size, NULL, NULL},
                             &(gw_cuda_gcomp_target){values, LEN, 0},
                             &(gw_cuda_gcomp_request){
                                 NULL, result, {testing_device(NULL, decode_size, 0), decode_size}, NULL}),
                         GW_OK);
        assert_int_equal(testing_result(result).status, GW_OK);
        assert_memory_equal(values, expected, 4 * LEN);
        free(expected);
        free(cpu_workspace);
        free(frame);
    }
    const gw_gcomp codec = codec_with_quanta(GW_GCOMP_CARRIED, 0);
    const size_t bound = gw_gcomp_bound(&codec, LEN);
    void *dst = testing_device(NULL, bound, 0), *workspace = testing_device(NULL, 1 << 20, 0);
    const gw_cuda_gcomp_request request = {NULL, result, {workspace, 1 << 20}, NULL};
    gw_gcomp_source source = t.device;
    gw_fake_control *control = testing_control();
    uint64_t device_codec[1024];
    gw_cuda_shared_sizes sizes;
    assert_int_equal(gw_cuda_gcomp_device_codec(&codec, NULL, NULL,
                                                (struct gw_device_codec *)(void *)device_codec,
                                                sizeof(gw_device_codec), &sizes),
                     GW_ERR_UNSUPPORTED);
    source.map = NULL; /* and nothing else that tells the quanta */
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &source, &(gw_cuda_buffer){dst, bound}, &request),
                     GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    testing_tensor_drop(&t);
    testing_free_all();
    gw_cuda_close(&cuda);
}

/* Relative exponents need quanta: values without a map are refused, as on the CPU. */
static void relative_exponents(void **state)
{
    (void)state;
    enum { LEN = 6000 };
    gw_cuda cuda;
    uint64_t random = 24;
    gw_gcomp codec = codec_with_quanta(GW_GCOMP_DERIVED, 0);
    testing_tensor t = testing_tensor_make(GW_FP32, LEN, 12, &random);
    /* All values are a few octaves above their quanta, which spread: relative exponents are few. */
    for (size_t i = 0; i < LEN; i++) {
        ((uint8_t *)(uintptr_t)t.map.levels)[i] = (uint8_t)(100 + 4 * (i * 7 % 30));
        const uint32_t exponent = (100 + 300) / 4 - 23 + (uint32_t)(i * 7 % 30) + 1;
        const uint32_t bits = exponent << 23 | (uint32_t)i * 77777 % (1u << 23);
        memcpy(t.values + 4 * i, &bits, 4);
    }
    gw_gcomp_histogram counts;
    gw_cuda_result *result = testing_new_result();
    gw_cuda_gcomp_histogram *histogram = testing_device(NULL, sizeof *histogram, 0);
    memset(histogram, 0, sizeof *histogram);
    void *workspace = testing_device(NULL, 1 << 20, 0);
    const gw_cuda_gcomp_request request = {NULL, result, {workspace, 1 << 20}, NULL};

    testing_open(&cuda);
    assert_int_equal(gw_gcomp_map_digest(t.map.levels, LEN, 12, t.digest), GW_OK);
    testing_tensor_upload(&t);
    void *cpu_workspace = testing_take(gw_gcomp_workspace_size(&codec));
    const gw_workspace cpu = {cpu_workspace, gw_gcomp_workspace_size(&codec)};
    assert_int_equal(gw_gcomp_histogram_init(&counts, &codec), GW_OK);
    assert_int_equal(gw_gcomp_histogram_add(&counts, &codec, &t.cpu, &cpu), GW_OK);
    assert_int_equal(counts.relative, 1);
    assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &codec, &t.device, histogram, &request), GW_OK);
    assert_int_equal(testing_result(result).status, GW_OK);
    gw_gcomp_source constant = t.cpu, device_constant = t.device;
    constant.map = device_constant.map = NULL;
    assert_int_equal(gw_gcomp_histogram_add(&counts, &codec, &constant, &cpu), GW_ERR_STATE);
    assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &codec, &device_constant, histogram, &request),
                     GW_OK);
    assert_int_equal(testing_result(result).status, GW_ERR_STATE);
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX], *device_book = testing_device(NULL, sizeof book, 0);
    uint32_t *device_book_size = testing_device(NULL, 4, 0);
    gw_buffer out = {book, sizeof book, 0};
    assert_int_equal(gw_gcomp_book_build(&counts, &out), GW_OK);
    assert_int_equal(gw_cuda_gcomp_book_build(&cuda, &codec, histogram,
                                              &(gw_cuda_gcomp_books){device_book, device_book_size, 1},
                                              &(gw_cuda_gcomp_request){NULL, result, {NULL, 0}, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(result).status, GW_OK);
    assert_int_equal(*device_book_size, out.size);
    assert_memory_equal(device_book, book, out.size);
    /* The codebook in device memory is looked at there, that of the handle at once. */
    const size_t bound = gw_gcomp_bound(&codec, LEN);
    void *dst = testing_device(NULL, bound, 0);
    gw_cuda_gcomp_device device = {NULL, NULL, device_book, device_book_size, 7, 8};
    const gw_cuda_gcomp_request with_book = {&device, result, {workspace, 1 << 20}, NULL};
    assert_int_equal(
        gw_cuda_gcomp_encode(&cuda, &codec, &device_constant, &(gw_cuda_buffer){dst, bound}, &with_book),
        GW_OK);
    assert_int_equal(testing_result(result).status, GW_ERR_ARG);
    assert_int_equal(gw_gcomp_install(&codec, 7, 8, book, out.size, 1), GW_OK);
    assert_int_equal(
        gw_cuda_gcomp_encode(&cuda, &codec, &device_constant, &(gw_cuda_buffer){dst, bound}, &request),
        GW_ERR_ARG);
    gw_buffer frame = {testing_take(bound), bound, 0};
    assert_int_equal(gw_gcomp_encode(&codec, &constant, &frame, &cpu), GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &(gw_cuda_buffer){dst, bound}, &request),
                     GW_OK);
    assert_int_equal(testing_result(result).status, GW_OK);
    assert_int_equal(gw_gcomp_encode(&codec, &t.cpu, &frame, &cpu), GW_OK);
    assert_int_equal(testing_result(result).size, frame.size);
    assert_memory_equal(dst, frame.data, frame.size);
    free(frame.data);
    free(cpu_workspace);
    testing_tensor_drop(&t);
    testing_free_all();
    gw_cuda_close(&cuda);
}

/* Batches of tensors of very different lengths, encode then decode, captured and replayed with other
 * values. */
static void batches_in_a_graph(void **state)
{
    (void)state;
    enum { ITEMS = 5 };
    static const uint64_t lens[ITEMS] = {10000, 1, 0, 4096, 64};
    gw_cuda cuda;
    uint64_t random = 22, total = 0;
    const gw_gcomp codec = testing_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 12, 0);
    gw_cuda_gcomp_item encode[ITEMS], decode[ITEMS];
    uint16_t *values[ITEMS], *out[ITEMS];
    gw_cuda_result *results[2 * ITEMS];
    testing_graph graph;

    testing_open(&cuda);
    memset(encode, 0, sizeof encode);
    memset(decode, 0, sizeof decode);
    for (int i = 0; i < ITEMS; i++) {
        const size_t bound = gw_gcomp_bound(&codec, lens[i]);
        values[i] = testing_device(NULL, 2 * (size_t)lens[i], 2);
        out[i] = testing_device(NULL, 2 * (size_t)lens[i], 0);
        results[i] = testing_new_result();
        results[ITEMS + i] = testing_new_result();
        encode[i].src = values[i];
        encode[i].src_size = lens[i];
        encode[i].dst = testing_device(NULL, bound, 0);
        encode[i].dst_capacity = bound;
        encode[i].result = results[i];
        decode[i].src = encode[i].dst;
        decode[i].src_size = bound;
        decode[i].src_size_at = &results[i]->size;
        decode[i].dst = out[i];
        decode[i].dst_capacity = lens[i];
        decode[i].result = results[ITEMS + i];
        total += lens[i];
    }
    const gw_cuda_gcomp_item *device_encode = testing_device(encode, sizeof encode, 0);
    const gw_cuda_gcomp_item *device_decode = testing_device(decode, sizeof decode, 0);
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, ITEMS, total);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, ITEMS, total);
    void *encode_workspace = testing_device(NULL, encode_size, 0);
    void *decode_workspace = testing_device(NULL, decode_size, 0);
    void *const stream = testing_graph_begin(&graph);
    assert_int_equal(gw_cuda_gcomp_encode_batch(
                         &cuda, &codec, &(gw_cuda_gcomp_batch){device_encode, ITEMS, total, NULL, NULL, 0},
                         &(gw_cuda_gcomp_request){NULL, NULL, {encode_workspace, encode_size}, stream}),
                     GW_OK);
    assert_int_equal(gw_cuda_gcomp_decode_batch(
                         &cuda, &codec, &(gw_cuda_gcomp_batch){device_decode, ITEMS, total, NULL, NULL, 0},
                         &(gw_cuda_gcomp_request){NULL, NULL, {decode_workspace, decode_size}, stream}),
                     GW_OK);
    testing_graph_end(&graph);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ITEMS; i++) {
            testing_values(values[i], GW_BF16, (size_t)lens[i], 0, &random);
        }
        testing_graph_run(&graph);
        for (int i = 0; i < ITEMS; i++) {
            const gw_gcomp_source source = {.values = values[i], .len = lens[i]};
            uint8_t *frame;
            const size_t size = testing_cpu_encode(&codec, &source, &frame);
            assert_int_equal(results[i]->status, GW_OK);
            assert_int_equal(results[i]->size, size);
            assert_memory_equal(encode[i].dst, frame, size);
            assert_int_equal(results[ITEMS + i]->status, GW_OK);
            assert_int_equal(results[ITEMS + i]->len, lens[i]);
            free(frame);
        }
    }
    testing_graph_drop(&graph);
    testing_free_all();
    gw_cuda_close(&cuda);
}

static void bad_arguments(void **state)
{
    (void)state;
    gw_cuda cuda;
    gw_gcomp none;
    uint64_t random = 23;
    const gw_gcomp codec = testing_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 12, 0);
    testing_tensor t = testing_tensor_make(GW_FP32, 100, 12, &random);
    gw_cuda_result *result = testing_new_result();
    const size_t bound = gw_gcomp_bound(&codec, 100);
    uint8_t *frame = testing_device(NULL, bound + 16, 0);
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, 100);
    uint8_t *workspace = testing_device(NULL, size + 256, 0);
    float *values = testing_device(NULL, 400, 0);

    testing_open(&cuda);
    testing_tensor_upload(&t);
    memset(&none, 0, sizeof none);
    gw_fake_control *control = testing_control();
#define ENCODE(cuda_, codec_, source_, frame_, bound_, result_, workspace_, size_)                           \
    gw_cuda_gcomp_encode(cuda_, codec_, source_, &(gw_cuda_buffer){frame_, bound_},                          \
                         &(gw_cuda_gcomp_request){NULL, result_, {workspace_, size_}, NULL})
    assert_int_equal(ENCODE(NULL, &codec, &t.device, frame, bound, result, workspace, size), GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, NULL, &t.device, frame, bound, result, workspace, size), GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, &none, &t.device, frame, bound, result, workspace, size), GW_ERR_STATE);
    assert_int_equal(ENCODE(&cuda, &codec, NULL, frame, bound, result, workspace, size), GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame + 8, bound, result, workspace, size), GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound - 1, result, workspace, size), GW_ERR_DST);
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound, NULL, workspace, size), GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound, result, workspace + 16, size),
                     GW_ERR_ARG);
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound, result, workspace, size - 1),
                     GW_ERR_WORKSPACE);
    t.device_map.len = 99;
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound, result, workspace, size), GW_ERR_ARG);
    t.device_map.len = 100;
    t.device_map.base = 0;
    assert_int_equal(ENCODE(&cuda, &codec, &t.device, frame, bound, result, workspace, size), GW_ERR_ARG);
    t.device_map.base = 1;
#define DECODE(src_, src_size_, dst_, capacity_)                                                             \
    gw_cuda_gcomp_decode(&cuda, &codec, &(gw_cuda_gcomp_frame){src_, src_size_, NULL, NULL},                 \
                         &(gw_cuda_gcomp_target){dst_, capacity_, 0},                                        \
                         &(gw_cuda_gcomp_request){NULL, result, {workspace, size}, NULL})
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, 100);
    assert_true(decode_size > size); /* so what is enough to encode is too little here */
    assert_int_equal(DECODE(frame, bound, values, 100), GW_ERR_WORKSPACE);
    workspace = testing_device(NULL, decode_size, 0);
#undef DECODE
#define DECODE(src_, src_size_, dst_, capacity_)                                                             \
    gw_cuda_gcomp_decode(&cuda, &codec, &(gw_cuda_gcomp_frame){src_, src_size_, NULL, NULL},                 \
                         &(gw_cuda_gcomp_target){dst_, capacity_, 0},                                        \
                         &(gw_cuda_gcomp_request){NULL, result, {workspace, decode_size}, NULL})
    assert_int_equal(DECODE(frame + 4, bound, values, 100), GW_ERR_ARG);
    assert_int_equal(DECODE(NULL, bound, values, 100), GW_ERR_ARG);
    assert_int_equal(DECODE(frame, bound, (char *)values + 2, 100), GW_ERR_ARG);
    assert_int_equal(DECODE(frame, bound, NULL, 100), GW_ERR_ARG);
    assert_int_equal(DECODE(frame, bound, frame + 32, 2), GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    /* The driver refuses one of the calls. */
    for (long at = 1; at <= 3; at++) {
        control = testing_control();
        control->fail_at = at;
        assert_int_equal(DECODE(frame, bound, values, 100), GW_ERR_DEVICE);
        assert_int_equal(gw_cuda_driver_error(&cuda), 999);
        testing_sync();
    }
    testing_tensor_drop(&t);
    testing_free_all();
    gw_cuda_close(&cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_cpu),     cmocka_unit_test(codebooks),
        cmocka_unit_test(carried_frames),     cmocka_unit_test(relative_exponents),
        cmocka_unit_test(batches_in_a_graph), cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
