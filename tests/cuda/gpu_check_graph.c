/*
 * Captured work, replayed on two streams.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

void driver_must(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "gpu_check: %s failed: %d\n", what, code);
        say_last();
        exit(1);
    }
}

/* Two tensors on two streams, each: encode, decode with the size in device memory, captured and replayed
 * three times. */
void run_graph(size_t len, uint64_t seed)
{
    enum { STREAMS = 2, REPLAYS = 3 };
    gcomp_case c[STREAMS];
    void *stream[STREAMS], *graph[STREAMS], *executable[STREAMS], *frame[STREAMS], *encode_space[STREAMS],
        *decode_space[STREAMS], *out[STREAMS];
    gw_cuda_result *result[STREAMS];
    uint8_t *decoded[STREAMS]; /* by the CPU */

    for (int s = 0; s < STREAMS; s++) {
        uint64_t random = seed + (uint64_t)s;
        c[s].codec = make_codec(GW_FP32, GW_GCOMP_EXPLICIT, (gw_gcomp_preset)s, (gw_gcomp_rounding)2, 14, 1);
        snprintf(c[s].name, sizeof c[s].name, "graph on stream %d", s);
        make_case(&c[s], make_tensor(GW_FP32, len, 0, 1, 14, &random));
        const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&c[s].codec, 1, len);
        const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&c[s].codec, 1, len);
        decoded[s] = take(4 * len);
        void *cpu_workspace = take(gw_gcomp_workspace_size(&c[s].codec));
        gw_gcomp_target target = {.values = decoded[s], .capacity = len};
        must(gw_gcomp_decode(
                 &c[s].codec,
                 &(gw_gcomp_frame){.data = c[s].frame, .size = c[s].frame_size, .map = &c[s].t.map}, &target,
                 &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c[s].codec)}),
             "gw_gcomp_decode");
        free(cpu_workspace);
        frame[s] = on_device(NULL, c[s].bound);
        out[s] = on_device(NULL, 4 * len);
        encode_space[s] = on_device(NULL, encode_size);
        decode_space[s] = on_device(NULL, decode_size);
        result[s] = on_device(NULL, 2 * sizeof(gw_cuda_result));
        driver_must(device.call.stream_create(&stream[s], 1), "cuStreamCreate");
        /* Mode 0, global: no thread may call what could wait or allocate. */
        driver_must(device.call.capture_begin(stream[s], 0), "cuStreamBeginCapture");
        must(gw_cuda_gcomp_encode(
                 &cuda, &c[s].codec, &c[s].t.device, &(gw_cuda_buffer){frame[s], c[s].bound},
                 &(gw_cuda_gcomp_request){NULL, &result[s][0], {encode_space[s], encode_size}, stream[s]}),
             "encode while captured");
        must(gw_cuda_gcomp_decode(
                 &cuda, &c[s].codec,
                 &(gw_cuda_gcomp_frame){frame[s], c[s].bound, &result[s][0].size, c[s].t.device.quantum.map},
                 &(gw_cuda_gcomp_target){out[s], len, 0},
                 &(gw_cuda_gcomp_request){NULL, &result[s][1], {decode_space[s], decode_size}, stream[s]}),
             "decode while captured");
        driver_must(device.call.capture_end(stream[s], &graph[s]), "cuStreamEndCapture");
        driver_must(device.call.graph_instantiate(&executable[s], graph[s], 0), "cuGraphInstantiate");
    }
    for (int replay = 0; replay < REPLAYS; replay++) {
        for (int s = 0; s < STREAMS; s++) {
            driver_must(
                device.call.fill((uint64_t)(uintptr_t)frame[s], 0xdeadbeef, c[s].bound / 4, stream[s]),
                "fill");
            driver_must(device.call.fill((uint64_t)(uintptr_t)out[s], 0xdeadbeef, len, stream[s]), "fill");
            driver_must(device.call.graph_launch(executable[s], stream[s]), "cuGraphLaunch");
        }
        driver_must(cuda_device_wait(&device), "wait");
        for (int s = 0; s < STREAMS; s++) {
            gw_cuda_result r[2];
            fetch(r, result[s], sizeof r);
            expect(r[0].status == GW_OK && r[0].size == c[s].frame_size, "encode", c[s].name);
            expect(r[1].status == GW_OK && r[1].len == len, "decode", c[s].name);
            expect_bytes(frame[s], c[s].frame, c[s].frame_size, "bytes", c[s].name);
            expect_bytes(out[s], decoded[s], 4 * len, "values", c[s].name);
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        driver_must(device.call.graph_exec_destroy(executable[s]), "cuGraphExecDestroy");
        driver_must(device.call.graph_destroy(graph[s]), "cuGraphDestroy");
        driver_must(device.call.stream_destroy(stream[s]), "cuStreamDestroy");
        free(decoded[s]);
        give(frame[s]);
        give(out[s]);
        give(encode_space[s]);
        give(decode_space[s]);
        give(result[s]);
        drop_case(&c[s]);
    }
}
