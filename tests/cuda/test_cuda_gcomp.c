/*
 * GCOMP through the public calls against the CPU: encode, decode, sums, hops, batches, codebooks, graphs,
 * arguments. The codec's own cases (formats, hostile frames) are tested on the launches that these calls
 * submit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_params.h"
#include "cuda_testing.h"

#include <stdlib.h>
#include <string.h>

static void compare(gw_gcomp codec, gw_dtype dtype, uint32_t chunk_log2, uint64_t len, uint64_t *random)
{
    gcomp_case c = {.codec = codec, .name = "test"};
    make_case(&c, random_tensor(dtype, len, chunk_log2, random));
    compare_all(&c);
    compare_device_arguments(&c, &c.codec, NULL, 0);
    for (int turn = 0; turn < 6; turn++) {
        compare_damaged(&c, turn, random);
    }
    drop_case(&c);
}

static void equals_the_cpu(void **state)
{
    (void)state;
    uint64_t random = 20;

    testing_open(&cuda);
    for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_DERIVED; quantum_mode++) {
        for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            const gw_dtype d = (gw_dtype)dtype;
            const gw_gcomp_quantum_mode l = (gw_gcomp_quantum_mode)quantum_mode;
            compare(make_codec(d, l, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, dtype & 1), d, 12,
                    9000 + 13 * dtype, &random);
            compare(make_codec(d, l, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 13, !(dtype & 1)), d, 13, 9001,
                    &random);
            compare(make_codec(d, l, GW_GCOMP_SMALL, GW_GCOMP_STOCHASTIC, 14, 1), d, 14, 63, &random);
        }
    }
    testing_close();
}

/* The status of a decode of the case's frame by a codec with a codebook in device memory (NULL: none). */
static gw_status decode_status(const gcomp_case *c, const gw_gcomp *codec, const gw_cuda_gcomp_device *device)
{
    const size_t size = gw_cuda_gcomp_decode_workspace_size(codec, 1, c->t.len);
    const gw_cuda_gcomp_request request = {device, new_result(), {on_device(NULL, size), size}, NULL};
    assert_int_equal(
        gw_cuda_gcomp_decode(
            &cuda, codec,
            &(gw_cuda_gcomp_frame){on_device(c->frame, c->frame_size), c->frame_size, NULL, NULL},
            &(gw_cuda_gcomp_target){on_device(NULL, c->value_size), c->t.len, 0}, &request),
        GW_OK);
    return (gw_status)fetch_result(request.result).status;
}

/* Histogram and codebook on the device; frames made with it in device memory and in the handle. */
static void codebooks(void **state)
{
    (void)state;
    uint64_t random = 21;
    size_t size;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gcomp_case c = {.name = "codebooks"};
    const gw_gcomp plain = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);

    testing_open(&cuda);
    c.codec = plain;
    make_case(&c, random_tensor(GW_FP32, 10000, 12, &random));
    compare_codebook(&c, codebook, &size);
    compare_device_arguments(&c, &plain, codebook, size);
    /* Without the codebook the frame is refused, and with another one under the same id and generation:
     * labels 0 and 1 only. */
    static const uint8_t zero_and_escape[4] = {0, 0, 0, 0x11};
    const uint32_t other_size = sizeof zero_and_escape;
    gw_cuda_gcomp_device device = {
        NULL, NULL, on_device(zero_and_escape, other_size), on_device(&other_size, 4), 7, 8};
    assert_int_equal(decode_status(&c, &plain, NULL), GW_ERR_TABLE);
    assert_int_equal(decode_status(&c, &plain, &device), GW_ERR_TABLE);
    /* A codebook that is none. */
    memset(codebook, 0xff, sizeof codebook);
    const uint32_t codebook_size = (uint32_t)size;
    device.codebook = on_device(codebook, size);
    device.codebook_size = on_device(&codebook_size, 4);
    const size_t workspace_size = gw_cuda_gcomp_encode_workspace_size(&plain, 1, c.t.len);
    const gw_cuda_gcomp_request request = {
        &device, new_result(), {on_device(NULL, workspace_size), workspace_size}, NULL};
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &plain, &c.t.device,
                                          &(gw_cuda_buffer){on_device(NULL, c.bound), c.bound}, &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_ERR_TABLE);
    drop_case(&c);
    testing_close();
}

/* A codec with dead zone, or of carried frames. */
static gw_gcomp codec_with_quanta(gw_gcomp_quantum_mode quantum_mode, float target_nmse)
{
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = quantum_mode;
    options.dead_zone = 1;
    options.block_log2 = 8;
    options.quantum = gw_gcomp_quantum_of_nmse(target_nmse);
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
    uint64_t random = 23;
    uint8_t quanta[BLOCKS];
    gcomp_case c = {.codec = codec_with_quanta(GW_GCOMP_CARRIED, 0.001f), .name = "carried"};

    testing_open(&cuda);
    make_case(&c, random_tensor(GW_FP32, LEN, 12, &random));
    for (int i = 0; i < BLOCKS; i++) {
        quanta[i] = (uint8_t)(i % 7 == 0 ? 0 : 90 + i);
    }
    /* From the map, from the caller, from the values. */
    compare_all(&c);
    c.t.cpu.quantum = gw_gcomp_quantum_of_blocks(quanta);
    c.t.device.quantum = gw_gcomp_quantum_of_blocks(on_device_at(quanta, BLOCKS, 1));
    encode_again(&c);
    compare_all(&c);
    c.t.cpu.quantum = c.t.device.quantum = gw_gcomp_quantum_of_blocks(NULL);
    encode_again(&c);
    compare_all(&c);
    const gw_gcomp codec = codec_with_quanta(GW_GCOMP_CARRIED, 0);
    const size_t bound = gw_gcomp_frame_bound(&codec, LEN);
    void *dst = on_device(NULL, bound), *workspace = on_device(NULL, 1 << 20);
    const gw_cuda_gcomp_request request = {NULL, new_result(), {workspace, 1 << 20}, NULL};
    gw_gcomp_source source = c.t.device;
    gw_fake_control *control = testing_control();
    uint64_t device_codec[1024];
    gw_cuda_shared_sizes sizes;
    assert_int_equal(gw_cuda_gcomp_device_codec(&codec, NULL, NULL,
                                                (struct gw_device_codec *)(void *)device_codec,
                                                sizeof(gw_device_codec), &sizes),
                     GW_ERR_UNSUPPORTED);
    source.quantum = gw_gcomp_quantum_of_map(NULL); /* and nothing else that tells the quanta */
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &source, &(gw_cuda_buffer){dst, bound}, &request),
                     GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    drop_case(&c);
    testing_close();
}

/* Relative exponents need quanta: values without a map are refused, as on the CPU. */
static void relative_exponents(void **state)
{
    (void)state;
    enum { LEN = 6000 };
    uint64_t random = 24;
    gcomp_case c = {.codec = codec_with_quanta(GW_GCOMP_DERIVED, 0), .name = "relative exponents"};
    const gw_gcomp plain = c.codec;
    tensor t = random_tensor(GW_FP32, LEN, 12, &random);
    /* All values are a few octaves above their quanta, which spread: relative exponents are few. */
    for (size_t i = 0; i < LEN; i++) {
        ((uint8_t *)(uintptr_t)t.map.bytes)[i] = (uint8_t)(100 + 4 * (i * 7 % 30));
        const uint32_t exponent = (100 + 300) / 4 - 23 + (uint32_t)(i * 7 % 30) + 1;
        const uint32_t bits = exponent << 23 | (uint32_t)i * 77777 % (1u << 23);
        memcpy(t.values + 4 * i, &bits, 4);
    }
    assert_int_equal(gw_gcomp_map_digest(t.map.bytes, LEN, 12, (uint32_t *)(uintptr_t)t.map.digest), GW_OK);
    testing_open(&cuda);
    make_case(&c, t);

    gw_gcomp_histogram counts;
    static const gw_cuda_gcomp_histogram none;
    gw_cuda_gcomp_histogram *histogram = on_device(&none, sizeof none);
    gw_cuda_result *result = new_result();
    void *workspace = on_device(NULL, 1 << 20), *cpu_workspace = take(gw_gcomp_workspace_size(&plain));
    const gw_cuda_gcomp_request request = {NULL, result, {workspace, 1 << 20}, NULL};
    const gw_workspace cpu = {cpu_workspace, gw_gcomp_workspace_size(&plain)};
    gw_gcomp_source constant = c.t.cpu, device_constant = c.t.device;
    constant.quantum = device_constant.quantum = gw_gcomp_quantum_of_map(NULL);
    assert_int_equal(gw_gcomp_histogram_init(&counts, &plain), GW_OK);
    assert_int_equal(gw_gcomp_histogram_add(&counts, &plain, &c.t.cpu, &cpu), GW_OK);
    assert_int_equal(counts.relative, 1);
    assert_int_equal(gw_gcomp_histogram_add(&counts, &plain, &constant, &cpu), GW_ERR_STATE);
    assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &plain, &c.t.device, histogram, &request), GW_OK);
    assert_int_equal(fetch_result(result).status, GW_OK);
    assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &plain, &device_constant, histogram, &request),
                     GW_OK);
    assert_int_equal(fetch_result(result).status, GW_ERR_STATE);
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    size_t size;
    compare_codebook(&c, codebook, &size);
    compare_device_arguments(&c, &plain, codebook, size);
    /* The codebook in device memory is looked at there, that of the handle at once. */
    const uint32_t codebook_size = (uint32_t)size;
    const gw_cuda_gcomp_device device = {NULL, NULL, on_device(codebook, size), on_device(&codebook_size, 4),
                                         7,    8};
    const gw_cuda_gcomp_request with_codebook = {&device, result, {workspace, 1 << 20}, NULL};
    const gw_cuda_buffer dst = {on_device(NULL, c.bound), c.bound};
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &plain, &device_constant, &dst, &with_codebook), GW_OK);
    assert_int_equal(fetch_result(result).status, GW_ERR_ARG);
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &c.codec, &device_constant, &dst, &request), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_encode(&c.codec, &constant, &(gw_buffer){c.frame, c.bound, 0}, &cpu),
                     GW_ERR_ARG);
    free(cpu_workspace);
    drop_case(&c);
    testing_close();
}

/* Batches of tensors of very different lengths, encode then decode, captured and replayed with other
 * values. */
static void batches_in_a_graph(void **state)
{
    (void)state;
    enum { ITEMS = 5 };
    static const uint64_t lens[ITEMS] = {10000, 1, 0, 4096, 64};
    uint64_t random = 22, total = 0;
    const gw_gcomp codec = make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);
    gw_cuda_gcomp_item encode[ITEMS], decode[ITEMS];
    uint16_t *values[ITEMS], *out[ITEMS];
    gw_cuda_result *results[2 * ITEMS];
    testing_graph graph;

    testing_open(&cuda);
    memset(encode, 0, sizeof encode);
    memset(decode, 0, sizeof decode);
    for (int i = 0; i < ITEMS; i++) {
        const size_t bound = gw_gcomp_frame_bound(&codec, lens[i]);
        values[i] = on_device_at(NULL, 2 * (size_t)lens[i], 2);
        out[i] = on_device(NULL, 2 * (size_t)lens[i]);
        results[i] = new_result();
        results[ITEMS + i] = new_result();
        encode[i].src = values[i];
        encode[i].src_size = lens[i];
        encode[i].dst = on_device(NULL, bound);
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
    const gw_cuda_gcomp_item *device_encode = on_device(encode, sizeof encode);
    const gw_cuda_gcomp_item *device_decode = on_device(decode, sizeof decode);
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, ITEMS, total);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, ITEMS, total);
    void *encode_workspace = on_device(NULL, encode_size);
    void *decode_workspace = on_device(NULL, decode_size);
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
            fill_widely(values[i], GW_BF16, (size_t)lens[i], 0, &random);
        }
        testing_graph_run(&graph);
        for (int i = 0; i < ITEMS; i++) {
            const gw_gcomp_source source = {.values = values[i], .len = lens[i]};
            uint8_t *frame;
            const size_t size = cpu_encode(&codec, &source, &frame);
            assert_int_equal(results[i]->status, GW_OK);
            assert_int_equal(results[i]->size, size);
            assert_memory_equal(encode[i].dst, frame, size);
            assert_int_equal(results[ITEMS + i]->status, GW_OK);
            assert_int_equal(results[ITEMS + i]->len, lens[i]);
            free(frame);
        }
    }
    testing_graph_drop(&graph);
    testing_close();
}

static void bad_arguments(void **state)
{
    (void)state;
    gw_gcomp none;
    uint64_t random = 23;
    const gw_gcomp codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 0);
    tensor t = random_tensor(GW_FP32, 100, 12, &random);
    gw_cuda_result *result = new_result();
    const size_t bound = gw_gcomp_frame_bound(&codec, 100);
    uint8_t *frame = on_device(NULL, bound + 16);
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, 100);
    uint8_t *workspace = on_device(NULL, size + 256);
    float *values = on_device(NULL, 400);

    testing_open(&cuda);
    tensor_upload(&t);
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
    workspace = on_device(NULL, decode_size);
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
    tensor_drop(&t);
    testing_close();
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
