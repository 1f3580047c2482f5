/*
 * GCOMP: scales, sums of several frames, sources with segments, codebooks of carried frames, against the CPU.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

static void compare_scaled(const gcomp_case *c, float scale, int is_add)
{
    begin_case(c->name, is_add ? "scaled decode_add" : "scaled decode");
    const size_t len = (size_t)c->t.cpu.len, size = gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, len);
    void *workspace = workspace_on_device(size), *src = on_device(c->frame, c->frame_size);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    uint8_t *values = take(c->value_size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    memcpy(values, c->t.values, c->value_size);
    void *dst = on_device(values, c->value_size);
    const gw_gcomp_frame in = {c->frame, c->frame_size, c->t.cpu.map};
    const gw_cuda_gcomp_frame device_in = {src, c->frame_size, NULL, c->t.device.map};
    gw_gcomp_target target = {.values = values, .capacity = len, .scale = scale};
    const gw_cuda_gcomp_target device_target = {dst, len, scale};
    const gw_workspace cpu_work = {cpu_workspace, gw_gcomp_workspace_size(&c->codec)};
    const gw_cuda_gcomp_request request = {NULL, result, {workspace, size}, NULL};
    must((is_add ? gw_gcomp_decode_add : gw_gcomp_decode)(&c->codec, &in, &target, &cpu_work),
         "gw_gcomp_decode");
    must((is_add ? gw_cuda_gcomp_decode_add : gw_cuda_gcomp_decode)(&cuda, &c->codec, &device_in,
                                                                    &device_target, &request),
         "gw_cuda_gcomp_decode");
    expect(fetch_result(result).status == GW_OK, "status of a scaled decode", c->name);
    expect_bytes(dst, values, c->value_size, "scaled values", c->name);
    give(dst);
    give(result);
    give(src);
    give(workspace);
    free(values);
    free(cpu_workspace);
}

/* Three times the case's frame; the second one damaged if is_bad. */
static void compare_frames(const gcomp_case *c, int is_bad)
{
    enum { FRAMES = 3 };
    begin_case(c->name, "frames");
    const size_t len = (size_t)c->t.cpu.len;
    const size_t size = gw_cuda_gcomp_decode_add_frames_workspace_size(&c->codec, len);
    void *workspace = workspace_on_device(size), *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    uint8_t *values = take(c->value_size), *bytes[FRAMES];
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    gw_gcomp_frame in[FRAMES];
    gw_cuda_gcomp_frame device_in[FRAMES];
    for (int f = 0; f < FRAMES; f++) {
        bytes[f] = take(c->frame_size);
        memcpy(bytes[f], c->frame, c->frame_size);
        if (f == 1 && is_bad) {
            bytes[f][c->frame_size - 20] ^= 0x11;
        }
        in[f] = (gw_gcomp_frame){bytes[f], c->frame_size, c->t.cpu.map};
        device_in[f] =
            (gw_cuda_gcomp_frame){on_device(bytes[f], c->frame_size), c->frame_size, NULL, c->t.device.map};
    }
    memcpy(values, c->t.values, c->value_size);
    void *dst = on_device(values, c->value_size);
    gw_gcomp_target target = {.values = values, .capacity = len, .scale = 0.5f};
    const gw_workspace cpu_work = {cpu_workspace, gw_gcomp_workspace_size(&c->codec)};
    const gw_status status = gw_gcomp_decode_add_frames(&c->codec, in, FRAMES, NULL, &target, &cpu_work);
    must(gw_cuda_gcomp_decode_add_frames(&cuda, &c->codec, device_in, FRAMES,
                                         &(gw_cuda_gcomp_target){dst, len, 0.5f},
                                         &(gw_cuda_gcomp_request){NULL, result, {workspace, size}, NULL}),
         "gw_cuda_gcomp_decode_add_frames");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status && r.bad_index == target.bad_chunk &&
               r.bad_frame == target.bad_frame && r.len == target.len,
           "result of frames", c->name);
    expect_bytes(dst, values, c->value_size, "sums of frames", c->name);
    for (int f = 0; f < FRAMES; f++) {
        give((void *)(uintptr_t)device_in[f].data);
        free(bytes[f]);
    }
    give(dst);
    give(result);
    give(workspace);
    free(values);
    free(cpu_workspace);
}

/* Encode, hop and codebook of the case's values in 500 segments; then with that codebook installed. */
static void compare_segments(gcomp_case *c, uint64_t *random)
{
    enum { SEGMENTS = 500 };
    static gw_gcomp_segment segments[SEGMENTS];
    begin_case(c->name, "segments");
    const uint64_t each = c->t.cpu.len / (SEGMENTS / 2) + 1;
    for (int i = 0; i < SEGMENTS; i++) {
        segments[i] = (gw_gcomp_segment){next_random(random), next_random(random), i % 2 == 0 ? 0 : each};
    }
    c->t.cpu.segments = segments;
    c->t.device.segments = on_device(segments, sizeof segments);
    c->t.cpu.segment_count = c->t.device.segment_count = SEGMENTS;
    c->t.cpu.segment_offset = c->t.device.segment_offset = each / 3;
    encode_again(c);
    compare_encode(c);
    compare_hop(c);
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
    size_t book_size;
    compare_book(c, book, &book_size);
    give((void *)(uintptr_t)c->t.device.segments);
}

void run_dial(size_t len, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = GW_GCOMP_EXPLICIT; levels <= GW_GCOMP_CARRIED; levels++) {
            gcomp_case c;
            gw_gcomp_options o;
            gw_gcomp_options_init(&o, (gw_dtype)dtype);
            o.levels = (gw_gcomp_levels)levels;
            o.rounding = GW_GCOMP_STOCHASTIC;
            o.deep_cut = levels != GW_GCOMP_EXPLICIT;
            o.block_log2 = 7;
            o.target_nmse = 0.01f;
            o.chunk_log2 = 12 + dtype;
            o.checksum = 1;
            o.backends = cpu_backends;
            must(gw_gcomp_init(&c.codec, &o), "gw_gcomp_init");
            snprintf(c.name, sizeof c.name, "dial, dtype %u levels %d len %zu", dtype, levels, len);
            make_case(&c, make_tensor((gw_dtype)dtype, len, 1, levels != GW_GCOMP_CARRIED || dtype != GW_FP32,
                                      o.chunk_log2, &random));
            compare_scaled(&c, 1.0f / 3, 0);
            compare_scaled(&c, -0x1p-100f, 1);
            compare_frames(&c, 0);
            compare_frames(&c, 1);
            compare_segments(&c, &random);
            drop_case(&c);
        }
    }
}
