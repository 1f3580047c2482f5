/*
 * Scales, sums of several frames, sources with segments and histograms of carried frames, through the public
 * calls against the CPU. Values of all kinds are compared on the plans that these calls submit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEN = 9000, CHUNK_LOG2 = 12, BLOCKS = 71, FRAMES = 3, SEGMENTS = 4 };

static gw_workspace cpu_workspace(const gw_gcomp *codec)
{
    static uint8_t bytes[1 << 20];
    const gw_workspace workspace = {bytes, gw_gcomp_workspace_size(codec)};
    assert_true(workspace.size != 0 && workspace.size <= sizeof bytes);
    return workspace;
}

static gw_cuda_gcomp_request request_of(size_t workspace_size)
{
    const gw_cuda_gcomp_request request = {
        NULL, new_result(), {on_device_at(NULL, workspace_size, 0), workspace_size}, NULL};
    return request;
}

/* Of any levels; carried ones have quanta from the values unless there is a map. */
static gw_gcomp codec_of(gw_dtype dtype, gw_gcomp_levels levels)
{
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, dtype);
    options.levels = levels;
    options.rounding = GW_GCOMP_STOCHASTIC;
    options.deep_cut = levels != GW_GCOMP_EXPLICIT;
    options.block_log2 = 7;
    options.target_nmse = 0.001f;
    options.chunk_log2 = CHUNK_LOG2;
    options.checksum = 1;
    assert_int_equal(gw_gcomp_init(&codec, &options), GW_OK);
    return codec;
}

/* ---- scale --------------------------------------------------------------------------------------------- */

static void compare_scale(gw_dtype dtype, float scale, int is_add, uint64_t *random)
{
    const gw_gcomp codec = codec_of(dtype, GW_GCOMP_DERIVED);
    const size_t size = LEN * gw_dtype_size(dtype);
    tensor t = random_tensor(dtype, LEN, CHUNK_LOG2, random);
    uint8_t *frame, *values = take(size);
    tensor_upload(&t);
    const size_t frame_size = cpu_encode(&codec, &t.cpu, &frame);
    memcpy(values, t.values, size);
    void *device_values = on_device_at(values, size, 0);
    const gw_gcomp_frame in = {frame, frame_size, &t.map};
    const gw_cuda_gcomp_frame device_in = {on_device_at(frame, frame_size, 0), frame_size, NULL,
                                           &t.device_map};
    gw_gcomp_target target = {.values = values, .capacity = LEN, .scale = scale};
    const gw_cuda_gcomp_target device_target = {device_values, LEN, scale};
    const gw_workspace workspace = cpu_workspace(&codec);
    const gw_cuda_gcomp_request request = request_of(gw_cuda_gcomp_decode_workspace_size(&codec, 1, LEN));
    assert_int_equal((is_add ? gw_gcomp_decode_add : gw_gcomp_decode)(&codec, &in, &target, &workspace),
                     GW_OK);
    assert_int_equal((is_add ? gw_cuda_gcomp_decode_add : gw_cuda_gcomp_decode)(&cuda, &codec, &device_in,
                                                                                &device_target, &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_OK);
    assert_memory_equal(device_values, values, size);
    free(values);
    free(frame);
    tensor_drop(&t);
}

static void scales(void **state)
{
    (void)state;
    uint64_t random = 40;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        compare_scale((gw_dtype)dtype, 1.0f / 3, 0, &random);
        compare_scale((gw_dtype)dtype, -0x1p-100f, 1, &random);
    }
    testing_close();
}

/* Two items with scales of their own; that of a third is refused. */
static void scales_of_a_batch(void **state)
{
    (void)state;
    enum { ITEMS = 3 };
    static const float scales[ITEMS] = {0.25f, 0, NAN};
    uint64_t random = 41;
    const gw_gcomp codec =
        make_codec(GW_BF16, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, CHUNK_LOG2, 0);
    uint8_t values[2 * 5000], *frame, *expected = take(2 * 5000);
    gw_cuda_gcomp_item items[ITEMS];
    testing_open(&cuda);
    fill_widely(values, GW_BF16, 5000, 0, &random);
    const size_t size = cpu_encode(&codec, &(gw_gcomp_source){.values = values, .len = 5000}, &frame);
    memset(items, 0, sizeof items);
    for (int i = 0; i < ITEMS; i++) {
        items[i].src = on_device_at(frame, size, 0);
        items[i].src_size = size;
        items[i].dst = on_device_at(values, sizeof values, 0);
        items[i].dst_capacity = 5000;
        items[i].scale = scales[i];
        items[i].result = new_result();
    }
    const gw_cuda_gcomp_batch batch = {on_device_at(items, sizeof items, 0), ITEMS, 15000, NULL, NULL, 1};
    const gw_cuda_gcomp_request request =
        request_of(gw_cuda_gcomp_decode_workspace_size(&codec, ITEMS, 15000));
    assert_int_equal(gw_cuda_gcomp_decode_batch(&cuda, &codec, &batch, &request), GW_OK);
    for (int i = 0; i < ITEMS; i++) {
        gw_gcomp_target target = {.values = expected, .capacity = 5000, .scale = scales[i]};
        memcpy(expected, values, sizeof values);
        const gw_gcomp_frame in = {frame, size, NULL};
        const gw_workspace workspace = cpu_workspace(&codec);
        const gw_status status = gw_gcomp_decode_add(&codec, &in, &target, &workspace);
        assert_int_equal(status, i == 2 ? GW_ERR_ARG : GW_OK);
        assert_int_equal(fetch_result(items[i].result).status, status);
        assert_memory_equal(items[i].dst, expected, sizeof values);
    }
    free(expected);
    free(frame);
    testing_close();
}

/* ---- several frames ------------------------------------------------------------------------------------ */

/* Frames of one codec, on both sides. The size of the second is in device memory. */
typedef struct frame_list {
    gw_gcomp_frame cpu[FRAMES];
    gw_cuda_gcomp_frame device[FRAMES];
    uint8_t *bytes[FRAMES];
} frame_list;

static void make_frames(frame_list *list, const gw_gcomp *codec, tensor *t, uint64_t *random)
{
    for (int f = 0; f < FRAMES; f++) {
        fill_widely(t->values, t->dtype, LEN, 0, random);
        const size_t size = cpu_encode(codec, &t->cpu, &list->bytes[f]);
        list->cpu[f] = (gw_gcomp_frame){list->bytes[f], size, &t->map};
        list->device[f] =
            (gw_cuda_gcomp_frame){on_device_at(list->bytes[f], size, 0), size, NULL, &t->device_map};
    }
    list->device[1].size_at = on_device_at(&list->cpu[1].size, 8, 0);
}

static void drop_frames(frame_list *list)
{
    for (int f = 0; f < FRAMES; f++) {
        free(list->bytes[f]);
    }
}

/* The sum and what is reported about it. */
static gw_status compare_frames(const gw_gcomp *codec, const frame_list *list, const tensor *t,
                                uint64_t capacity, float scale)
{
    const size_t size = LEN * gw_dtype_size(t->dtype);
    uint8_t *sum = take(size);
    memcpy(sum, t->values, size);
    void *device_sum = on_device_at(sum, size, gw_dtype_size(t->dtype));
    gw_gcomp_target target = {.values = sum, .capacity = capacity, .scale = scale};
    const gw_workspace workspace = cpu_workspace(codec);
    const gw_status status = gw_gcomp_decode_add_frames(codec, list->cpu, FRAMES, NULL, &target, &workspace);
    const gw_cuda_gcomp_request request =
        request_of(gw_cuda_gcomp_decode_add_frames_workspace_size(codec, capacity));
    const gw_cuda_gcomp_target device_target = {device_sum, capacity, scale};
    assert_int_equal(
        gw_cuda_gcomp_decode_add_frames(&cuda, codec, list->device, FRAMES, &device_target, &request), GW_OK);
    const gw_cuda_result r = fetch_result(request.result);
    assert_int_equal(r.status, status);
    assert_int_equal(r.len, target.len);
    assert_true(r.bad_index == target.bad_chunk);
    assert_int_equal(r.bad_frame, target.bad_frame);
    assert_memory_equal(device_sum, sum, size);
    free(sum);
    return status;
}

/* Byte `at` from the end of a frame, on both sides. */
static void damage(frame_list *list, int frame, size_t at)
{
    const size_t place = list->cpu[frame].size - at;
    list->bytes[frame][place] ^= 0x5a;
    ((uint8_t *)(uintptr_t)list->device[frame].data)[place] ^= 0x5a;
}

static void several_frames(void **state)
{
    (void)state;
    uint64_t random = 42;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        const gw_gcomp codec =
            codec_of((gw_dtype)dtype, dtype == GW_BF16 ? GW_GCOMP_CARRIED : GW_GCOMP_DERIVED);
        tensor t = random_tensor((gw_dtype)dtype, LEN, CHUNK_LOG2, &random);
        frame_list list;
        tensor_upload(&t);
        make_frames(&list, &codec, &t, &random);
        assert_int_equal(compare_frames(&codec, &list, &t, LEN, dtype == GW_FP32 ? 0 : 0.5f), GW_OK);
        assert_int_equal(compare_frames(&codec, &list, &t, LEN - 1, 0), GW_ERR_DST);
        damage(&list, 1, 40); /* a chunk: the last */
        assert_int_equal(compare_frames(&codec, &list, &t, LEN, 0), GW_ERR_CHECKSUM);
        damage(&list, 2, list.cpu[2].size); /* the magic number: nothing is added */
        assert_int_equal(compare_frames(&codec, &list, &t, LEN, 0), GW_ERR_MAGIC);
        drop_frames(&list);
        tensor_drop(&t);
    }
    testing_close();
}

static void bad_frame_lists(void **state)
{
    (void)state;
    uint64_t random = 43;
    const gw_gcomp codec = codec_of(GW_FP32, GW_GCOMP_DERIVED);
    tensor t = random_tensor(GW_FP32, LEN, CHUNK_LOG2, &random);
    frame_list list;
    testing_open(&cuda);
    tensor_upload(&t);
    make_frames(&list, &codec, &t, &random);
    const size_t size = gw_cuda_gcomp_decode_add_frames_workspace_size(&codec, LEN);
    gw_cuda_gcomp_request request = request_of(size);
    gw_cuda_gcomp_target target = {on_device_at(t.values, 4 * LEN, 0), LEN, 0};
    gw_fake_control *control = testing_control();
#define ADD(frames, count) gw_cuda_gcomp_decode_add_frames(&cuda, &codec, frames, count, &target, &request)
    assert_int_equal(ADD(NULL, 1), GW_ERR_ARG);
    assert_int_equal(ADD(list.device, 0), GW_ERR_ARG);
    assert_int_equal(ADD(list.device, ((size_t)1 << 20) + 1), GW_ERR_LIMIT);
    request.workspace.size = size - 1;
    assert_int_equal(ADD(list.device, FRAMES), GW_ERR_WORKSPACE);
    request.workspace.size = size;
    target.scale = 0x1p-127f;
    assert_int_equal(ADD(list.device, FRAMES), GW_ERR_ARG);
    target.scale = 0;
    const gw_cuda_gcomp_frame last = list.device[2];
    list.device[2].data = (const uint8_t *)last.data + 4;
    assert_int_equal(ADD(list.device, FRAMES), GW_ERR_ARG);
    list.device[2].data = target.values;
    assert_int_equal(ADD(list.device, FRAMES), GW_ERR_ARG);
    list.device[2] = last;
    assert_int_equal(control->calls, 0);
    control->fail_at = 6; /* in the second frame */
    assert_int_equal(ADD(list.device, FRAMES), GW_ERR_DEVICE);
    testing_sync();
    assert_int_equal(gw_cuda_gcomp_decode_add_frames_workspace_size(&codec, UINT64_MAX), 0);
    drop_frames(&list);
    tensor_drop(&t);
    testing_close();
}

/* ---- segments ------------------------------------------------------------------------------------------ */

/* The values begin within the second segment; one is empty. */
static const gw_gcomp_segment segments[SEGMENTS] = {
    {1, 0, 100}, {2, 77, 5003}, {3, 5, 0}, {4, UINT64_MAX - 1000, 4500}};
enum { SEGMENT_OFFSET = 203 };

static void give_segments(tensor *t)
{
    t->cpu.segments = segments;
    t->cpu.segment_count = SEGMENTS;
    t->cpu.segment_offset = SEGMENT_OFFSET;
    t->device.segments = on_device_at(segments, sizeof segments, 0);
    t->device.segment_count = SEGMENTS;
    t->device.segment_offset = SEGMENT_OFFSET;
}

/* Encode, hop and codebook. */
static void compare_segments(gw_dtype dtype, gw_gcomp_levels levels, uint64_t *random)
{
    const gw_gcomp codec = codec_of(dtype, levels);
    tensor t = random_tensor(dtype, LEN, CHUNK_LOG2, random);
    uint8_t *frame, book[GW_GCOMP_BOOK_SIZE_MAX];
    tensor_upload(&t);
    if (levels == GW_GCOMP_CARRIED && dtype == GW_FP32) { /* quanta from the values */
        t.cpu.map = t.device.map = NULL;
    }
    give_segments(&t);
    const size_t more = gw_cuda_gcomp_segments_workspace_size(&codec, SEGMENTS, LEN);
    const size_t bound = gw_gcomp_bound(&codec, LEN);
    const size_t frame_size = cpu_encode(&codec, &t.cpu, &frame);
    uint8_t *device_frame = on_device_at(NULL, bound, 0);
    gw_cuda_gcomp_request request = request_of(gw_cuda_gcomp_encode_workspace_size(&codec, 1, LEN) + more);
    assert_int_equal(
        gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &(gw_cuda_buffer){device_frame, bound}, &request),
        GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_OK);
    assert_int_equal(fetch_result(request.result).size, frame_size);
    assert_memory_equal(device_frame, frame, frame_size);

    gw_buffer hop = {take(bound), bound, 0};
    uint8_t *device_hop = on_device_at(NULL, bound, 0);
    const gw_gcomp_frame in = {frame, frame_size, &t.map};
    const gw_cuda_gcomp_frame device_in = {device_frame, frame_size, NULL, &t.device_map};
    uint64_t bad;
    const gw_workspace workspace = cpu_workspace(&codec);
    assert_int_equal(gw_gcomp_decode_add_encode(&codec, &in, &t.cpu, &hop, &bad, &workspace), GW_OK);
    request = request_of(gw_cuda_gcomp_hop_workspace_size(&codec, 1, LEN) + more);
    assert_int_equal(gw_cuda_gcomp_decode_add_encode(&cuda, &codec, &device_in, &t.device,
                                                     &(gw_cuda_buffer){device_hop, bound}, &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).size, hop.size);
    assert_memory_equal(device_hop, hop.data, hop.size);
    free(hop.data);

    const size_t book_size = cpu_book(&codec, &t.cpu, 1, book);
    gw_cuda_gcomp_histogram *histogram = on_device_at(NULL, sizeof *histogram, 0);
    memset(histogram, 0, sizeof *histogram);
    uint8_t *device_book = on_device_at(NULL, GW_GCOMP_BOOK_SIZE_MAX, 0);
    request = request_of(GW_CUDA_HISTOGRAM_WORKSPACE_SIZE + more);
    assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &codec, &t.device, histogram, &request), GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_OK);
    assert_int_equal(gw_cuda_gcomp_book_build(&cuda, &codec, histogram,
                                              &(gw_cuda_gcomp_books){device_book, NULL, 1}, &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).size, book_size);
    assert_memory_equal(device_book, book, book_size);
    free(frame);
    tensor_drop(&t);
}

static void sources_with_segments(void **state)
{
    (void)state;
    uint64_t random = 44;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = GW_GCOMP_EXPLICIT; levels <= GW_GCOMP_CARRIED; levels++) {
            compare_segments((gw_dtype)dtype, (gw_gcomp_levels)levels, &random);
        }
    }
    testing_close();
}

/* Segments without all values, found on the device, and what the host refuses. */
static void bad_segments(void **state)
{
    (void)state;
    uint64_t random = 45;
    const gw_gcomp codec = codec_of(GW_FP32, GW_GCOMP_DERIVED);
    tensor t = random_tensor(GW_FP32, LEN, CHUNK_LOG2, &random);
    testing_open(&cuda);
    tensor_upload(&t);
    give_segments(&t);
    const size_t bound = gw_gcomp_bound(&codec, LEN);
    uint8_t *frame;
    const size_t frame_size = cpu_encode(&codec, &t.cpu, &frame);
    const gw_cuda_buffer dst = {on_device_at(NULL, bound, 0), bound};
    const size_t more = gw_cuda_gcomp_segments_workspace_size(&codec, SEGMENTS, LEN);
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, LEN) + more;
    gw_cuda_gcomp_request request = request_of(gw_cuda_gcomp_hop_workspace_size(&codec, 1, LEN) + more);
    const gw_cuda_gcomp_frame in = {on_device_at(frame, frame_size, 0), frame_size, NULL, &t.device_map};
    gw_cuda_gcomp_histogram *histogram = on_device_at(NULL, sizeof *histogram, 0);
    memset(histogram, 0, sizeof *histogram);
    t.device.segment_offset = 100 + 5003 + 4500 - LEN + 1;
    for (int call = 0; call < 3; call++) {
        assert_int_equal(call == 0 ? gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request)
                         : call == 1
                             ? gw_cuda_gcomp_decode_add_encode(&cuda, &codec, &in, &t.device, &dst, &request)
                             : gw_cuda_gcomp_histogram_add(&cuda, &codec, &t.device, histogram, &request),
                         GW_OK);
        const gw_cuda_result r = fetch_result(request.result);
        assert_int_equal(r.status, GW_ERR_ARG);
        assert_true(r.size == 0 && r.len == 0 && r.bad_index == UINT64_MAX);
    }
    assert_int_equal(histogram->chunk_count, 0);
    t.device.segment_offset--;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_OK);

    gw_fake_control *control = testing_control();
    const gw_gcomp_segment *const right = t.device.segments;
    t.device.segments = (const gw_gcomp_segment *)(const void *)((const uint8_t *)right + 4);
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_ERR_ARG);
    t.device.segments = NULL;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_ERR_ARG);
    t.device.segments = right;
    t.device.segment_offset = UINT64_MAX;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_ERR_ARG);
    t.device.segment_offset = 0;
    t.device.segment_count = (size_t)1 << 32;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_ERR_LIMIT);
    t.device.segment_count = SEGMENTS;
    request.workspace.size = size - 1;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, &t.device, &dst, &request), GW_ERR_WORKSPACE);
    assert_int_equal(control->calls, 0);
    free(frame);
    tensor_drop(&t);
    testing_close();
}

/* ---- histograms of carried frames ---------------------------------------------------------------------- */

/* One call for each of two sources, or both in a batch; quanta from the caller (0), a map (1), the values
 * (2). */
static void compare_carried(gw_dtype dtype, int from, int is_batch, uint64_t *random)
{
    const gw_gcomp codec = codec_of(dtype, GW_GCOMP_CARRIED);
    tensor t[2];
    uint8_t quanta[BLOCKS], book[GW_GCOMP_BOOK_SIZE_MAX];
    gw_gcomp_source sources[2];
    gw_cuda_gcomp_item items[2];
    gw_cuda_gcomp_histogram *histogram = on_device_at(NULL, sizeof *histogram, 0);
    gw_cuda_gcomp_request request = request_of(gw_cuda_gcomp_histogram_workspace_size(&codec, 2));
    const gw_cuda_gcomp_key key = {77, 5, 2, 1};
    memset(histogram, 0, sizeof *histogram);
    memset(items, 0, sizeof items);
    for (int i = 0; i < BLOCKS; i++) {
        quanta[i] = (uint8_t)(i % 7 == 0 ? 0 : 90 + i % 30);
    }
    for (int i = 0; i < 2; i++) {
        t[i] = random_tensor(dtype, LEN, CHUNK_LOG2, random);
        tensor_upload(&t[i]);
        t[i].cpu.map = from == 1 ? t[i].cpu.map : NULL;
        t[i].device.map = from == 1 ? t[i].device.map : NULL;
        t[i].cpu.quanta = from == 0 ? quanta : NULL;
        t[i].device.quanta = from == 0 ? on_device_at(quanta, BLOCKS, 1) : NULL;
        sources[i] = t[i].cpu;
        items[i].src = t[i].device.values;
        items[i].src_size = LEN;
        items[i].dst = histogram;
        items[i].levels = from == 1 ? t[i].device_map.levels : t[i].device.quanta;
        items[i].map_len = LEN;
        items[i].first_element = t[i].cpu.first_element;
        items[i].result = new_result();
        if (!is_batch) {
            assert_int_equal(gw_cuda_gcomp_histogram_add(&cuda, &codec, &t[i].device, histogram, &request),
                             GW_OK);
            assert_int_equal(fetch_result(request.result).status, GW_OK);
        }
    }
    if (is_batch) {
        const gw_cuda_gcomp_batch batch = {on_device_at(items, sizeof items, 0), 2,    2 * LEN,
                                           from == 1 ? &t[0].device_map : NULL,  &key, 0};
        assert_int_equal(gw_cuda_gcomp_histogram_add_batch(&cuda, &codec, &batch, &request), GW_OK);
        assert_int_equal(fetch_result(items[1].result).status, GW_OK);
    }
    const size_t book_size = cpu_book(&codec, sources, 2, book);
    uint8_t *device_book = on_device_at(NULL, GW_GCOMP_BOOK_SIZE_MAX, 0);
    assert_int_equal(gw_cuda_gcomp_book_build(&cuda, &codec, histogram,
                                              &(gw_cuda_gcomp_books){device_book, NULL, 1}, &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).size, book_size);
    assert_memory_equal(device_book, book, book_size);
    tensor_drop(&t[0]);
    tensor_drop(&t[1]);
}

static void carried_histograms(void **state)
{
    (void)state;
    uint64_t random = 46;
    testing_open(&cuda);
    for (int from = 0; from < 3; from++) {
        compare_carried((gw_dtype)(GW_FP32 + from), from, 0, &random);
        compare_carried((gw_dtype)(GW_FP16 - from), from, 1, &random);
    }
    testing_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales),
        cmocka_unit_test(scales_of_a_batch),
        cmocka_unit_test(several_frames),
        cmocka_unit_test(bad_frame_lists),
        cmocka_unit_test(sources_with_segments),
        cmocka_unit_test(bad_segments),
        cmocka_unit_test(carried_histograms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
