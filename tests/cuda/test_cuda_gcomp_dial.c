/*
 * Scales, sums of several frames, sources with segments and histograms of carried frames, through the public
 * calls against the CPU. Values of all kinds are compared on the launches that these calls submit.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEN = 9000, CHUNK_LOG2 = 12, BLOCKS = 71, SEGMENTS = 4 };

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

/* To stay where it is: its sources point into it. */
static void open_case(gcomp_case *c, unsigned dtype, int quantum_mode, uint64_t *random)
{
    (void)snprintf(c->name, sizeof c->name, "dial, dtype %u mode %d", dtype, quantum_mode);
    c->codec = make_dial_codec((gw_dtype)dtype, (gw_gcomp_quantum_mode)quantum_mode, CHUNK_LOG2);
    make_case(c, random_tensor((gw_dtype)dtype, LEN, CHUNK_LOG2, random));
}

/* ---- scale --------------------------------------------------------------------------------------------- */

static void scales(void **state)
{
    (void)state;
    uint64_t random = 40;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        open_case(&c, dtype, GW_GCOMP_DERIVED, &random);
        assert_int_equal(compare_scaled(&c, c.frame, c.frame_size, 0, 1.0f / 3), GW_OK);
        assert_int_equal(compare_scaled(&c, c.frame, c.frame_size, 1, -0x1p-100f), GW_OK);
        drop_case(&c);
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

static void several_frames(void **state)
{
    (void)state;
    uint64_t random = 42;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        frame_list list;
        open_case(&c, dtype, dtype == GW_BF16 ? GW_GCOMP_CARRIED : GW_GCOMP_DERIVED, &random);
        make_frames(&list, &c, &random);
        assert_int_equal(compare_frames(&c, &list, LEN, dtype == GW_FP32 ? 0 : 0.5f), GW_OK);
        assert_int_equal(compare_frames(&c, &list, LEN - 1, 0), GW_ERR_DST);
        damage_frame(&list, 1, 40); /* a chunk: the last */
        assert_int_equal(compare_frames(&c, &list, LEN, 0), GW_ERR_CHECKSUM);
        damage_frame(&list, 2, list.cpu[2].size); /* the magic number: nothing is added */
        assert_int_equal(compare_frames(&c, &list, LEN, 0), GW_ERR_MAGIC);
        drop_frames(&list);
        drop_case(&c);
    }
    testing_close();
}

static void bad_frame_lists(void **state)
{
    (void)state;
    uint64_t random = 43;
    gcomp_case c;
    frame_list list;
    testing_open(&cuda);
    open_case(&c, GW_FP32, GW_GCOMP_DERIVED, &random);
    make_frames(&list, &c, &random);
    const size_t size = gw_cuda_gcomp_decode_add_frames_workspace_size(&c.codec, LEN);
    gw_cuda_gcomp_request request = request_of(size);
    gw_cuda_gcomp_target target = {on_device(c.t.values, c.value_size), LEN, 0};
    gw_fake_control *control = testing_control();
#define ADD(frames, count) gw_cuda_gcomp_decode_add_frames(&cuda, &c.codec, frames, count, &target, &request)
    assert_int_equal(ADD(NULL, 1), GW_ERR_ARG);
    assert_int_equal(ADD(list.device, 0), GW_ERR_ARG);
    assert_int_equal(ADD(list.device, ((size_t)1 << 20) + 1), GW_ERR_LIMIT);
    request.workspace.size = size - 1;
    assert_int_equal(ADD(list.device, CASE_FRAMES), GW_ERR_WORKSPACE);
    request.workspace.size = size;
    target.scale = 0x1p-127f;
    assert_int_equal(ADD(list.device, CASE_FRAMES), GW_ERR_ARG);
    target.scale = 0;
    const gw_cuda_gcomp_frame last = list.device[2];
    list.device[2].data = (const uint8_t *)last.data + 4;
    assert_int_equal(ADD(list.device, CASE_FRAMES), GW_ERR_ARG);
    list.device[2].data = target.values;
    assert_int_equal(ADD(list.device, CASE_FRAMES), GW_ERR_ARG);
    list.device[2] = last;
    assert_int_equal(control->calls, 0);
    control->fail_at = 6; /* in the second frame */
    assert_int_equal(ADD(list.device, CASE_FRAMES), GW_ERR_DEVICE);
    testing_sync();
    assert_int_equal(gw_cuda_gcomp_decode_add_frames_workspace_size(&c.codec, UINT64_MAX), 0);
    drop_frames(&list);
    drop_case(&c);
    testing_close();
}

/* ---- segments ------------------------------------------------------------------------------------------ */

/* The values begin within the second segment; one is empty. */
static const gw_gcomp_segment segments[SEGMENTS] = {
    {1, 0, 100}, {2, 77, 5003}, {3, 5, 0}, {4, UINT64_MAX - 1000, 4500}};
enum { SEGMENT_OFFSET = 203 };

static void sources_with_segments(void **state)
{
    (void)state;
    uint64_t random = 44;
    testing_open(&cuda);
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_CARRIED; quantum_mode++) {
            gcomp_case c;
            open_case(&c, dtype, quantum_mode, &random);
            if (quantum_mode == GW_GCOMP_CARRIED && dtype == GW_FP32) { /* quanta from the values */
                c.t.cpu.quantum = c.t.device.quantum = gw_gcomp_quantum_of_map(NULL);
            }
            set_segments(&c.t, segments, SEGMENTS, SEGMENT_OFFSET);
            compare_segments(&c);
            drop_case(&c);
        }
    }
    testing_close();
}

/* Segments without all values, found on the device, and what the host refuses. */
static void bad_segments(void **state)
{
    (void)state;
    uint64_t random = 45;
    gcomp_case c;
    testing_open(&cuda);
    open_case(&c, GW_FP32, GW_GCOMP_DERIVED, &random);
    set_segments(&c.t, segments, SEGMENTS, SEGMENT_OFFSET);
    const gw_gcomp codec = c.codec;
    gw_gcomp_source *source = &c.t.device;
    const gw_cuda_buffer dst = {on_device(NULL, c.bound), c.bound};
    const size_t more = gw_cuda_gcomp_segments_workspace_size(&codec, SEGMENTS, LEN);
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, LEN) + more;
    gw_cuda_gcomp_request request = request_of(gw_cuda_gcomp_hop_workspace_size(&codec, 1, LEN) + more);
    const gw_cuda_gcomp_frame in = {on_device(c.frame, c.frame_size), c.frame_size, NULL,
                                    source->quantum.map};
    gw_cuda_gcomp_histogram *histogram = on_device_at(NULL, sizeof *histogram, 0);
    memset(histogram, 0, sizeof *histogram);
    source->segment_offset = 100 + 5003 + 4500 - LEN + 1;
    for (int call = 0; call < 3; call++) {
        assert_int_equal(call == 0 ? gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request)
                         : call == 1
                             ? gw_cuda_gcomp_decode_add_encode(&cuda, &codec, &in, source, &dst, &request)
                             : gw_cuda_gcomp_histogram_add(&cuda, &codec, source, histogram, &request),
                         GW_OK);
        const gw_cuda_result r = fetch_result(request.result);
        assert_int_equal(r.status, GW_ERR_ARG);
        assert_true(r.size == 0 && r.len == 0 && r.bad_index == UINT64_MAX);
    }
    assert_int_equal(histogram->chunk_count, 0);
    source->segment_offset--;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_OK);
    assert_int_equal(fetch_result(request.result).status, GW_OK);

    gw_fake_control *control = testing_control();
    const gw_gcomp_segment *const right = source->segments;
    source->segments = (const gw_gcomp_segment *)(const void *)((const uint8_t *)right + 4);
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_ERR_ARG);
    source->segments = NULL;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_ERR_ARG);
    source->segments = right;
    source->segment_offset = UINT64_MAX;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_ERR_ARG);
    source->segment_offset = 0;
    source->segment_count = (size_t)1 << 32;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_ERR_LIMIT);
    source->segment_count = SEGMENTS;
    request.workspace.size = size - 1;
    assert_int_equal(gw_cuda_gcomp_encode(&cuda, &codec, source, &dst, &request), GW_ERR_WORKSPACE);
    assert_int_equal(control->calls, 0);
    drop_case(&c);
    testing_close();
}

/* ---- histograms of carried frames ---------------------------------------------------------------------- */

/* One call for each of two sources, or both in a batch; quanta from the caller (0), a map (1), the values
 * (2). */
static void compare_carried(gw_dtype dtype, int from, int is_batch, uint64_t *random)
{
    const gw_gcomp codec = make_dial_codec(dtype, GW_GCOMP_CARRIED, CHUNK_LOG2);
    tensor t[2];
    uint8_t quanta[BLOCKS], codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
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
        if (from != 1) { /* else the map */
            t[i].cpu.quantum = gw_gcomp_quantum_of_blocks(from == 0 ? quanta : NULL);
            t[i].device.quantum =
                gw_gcomp_quantum_of_blocks(from == 0 ? on_device_at(quanta, BLOCKS, 1) : NULL);
        }
        sources[i] = t[i].cpu;
        items[i].src = t[i].device.values;
        items[i].src_size = LEN;
        items[i].dst = histogram;
        items[i].map_bytes = from == 1 ? t[i].device_map.bytes : t[i].device.quantum.blocks;
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
    const size_t codebook_size = cpu_codebook(&codec, sources, 2, codebook);
    uint8_t *device_codebook = on_device_at(NULL, GW_GCOMP_CODEBOOK_SIZE_MAX, 0);
    assert_int_equal(gw_cuda_gcomp_codebook_build(&cuda, &codec, histogram,
                                                  &(gw_cuda_gcomp_codebooks){device_codebook, NULL, 1},
                                                  &request),
                     GW_OK);
    assert_int_equal(fetch_result(request.result).size, codebook_size);
    assert_memory_equal(device_codebook, codebook, codebook_size);
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
