/* GCOMP: sums of several frames, sources with segments, against the CPU. SPDX-License-Identifier:
 * BSD-2-Clause
 */
#include "cuda_cases.h"

#include <stdlib.h>
#include <string.h>

gw_gcomp make_dial_codec(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, uint32_t chunk_log2)
{
    gw_gcomp codec;
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, dtype);
    o.quantum_mode = quantum_mode;
    o.rounding = GW_GCOMP_STOCHASTIC;
    o.dead_zone = quantum_mode != GW_GCOMP_EXPLICIT;
    o.block_log2 = 7;
    o.quantum = gw_gcomp_quantum_of_nmse(quantum_mode == GW_GCOMP_CARRIED ? 0.01f : 0);
    o.chunk_log2 = chunk_log2;
    o.checksum = 1;
    o.backends = cpu_backends;
    must(gw_gcomp_init(&codec, &o), "gw_gcomp_init");
    return codec;
}

/* ---- several frames ------------------------------------------------------------------------------------ */

void make_frames(frame_list *list, const gcomp_case *c, uint64_t *random)
{
    uint8_t *values = take(c->value_size);
    gw_gcomp_source source = c->t.cpu;
    source.values = values;
    for (int f = 0; f < CASE_FRAMES; f++) {
        fill_widely(values, c->t.dtype, (size_t)c->t.len, 12, random);
        const size_t size = cpu_encode(&c->codec, &source, &list->bytes[f]);
        const uint64_t frame_size = size;
        list->cpu[f] = (gw_gcomp_frame){list->bytes[f], size, c->t.cpu.quantum.map};
        list->device[f] = (gw_cuda_gcomp_frame){on_device(list->bytes[f], size), size,
                                                f == 1 ? on_device(&frame_size, sizeof frame_size) : NULL,
                                                c->t.device.quantum.map};
    }
    free(values);
}

void damage_frame(frame_list *list, int frame, size_t at)
{
    const size_t place = list->cpu[frame].size - at;
    list->bytes[frame][place] ^= 0x5a;
    device_put((uint8_t *)(uintptr_t)list->device[frame].data + place, list->bytes[frame] + place, 1);
}

void drop_frames(frame_list *list)
{
    for (int f = 0; f < CASE_FRAMES; f++) {
        give((void *)(uintptr_t)list->device[f].data);
        give((void *)(uintptr_t)list->device[f].size_at);
        free(list->bytes[f]);
    }
}

gw_status compare_frames(const gcomp_case *c, const frame_list *list, uint64_t capacity, float scale)
{
    const unsigned long mark = device_mark();
    const size_t size = gw_cuda_gcomp_decode_add_frames_workspace_size(&c->codec, capacity);
    const size_t cpu_size = gw_gcomp_workspace_size(&c->codec);
    const gw_workspace workspace = {take(cpu_size), cpu_size};
    uint8_t *sums = take(c->value_size);

    begin_case(c->name, "frames");
    memcpy(sums, c->t.values, c->value_size);
    void *dst = on_device_at(sums, c->value_size, gw_dtype_size(c->t.dtype));
    gw_gcomp_target target = {.values = sums, .capacity = capacity, .scale = scale};
    const gw_cuda_gcomp_target device_target = {dst, capacity, scale};
    const gw_cuda_gcomp_request request = {NULL, new_result(), {workspace_on_device(size), size}, NULL};
    const gw_status status =
        gw_gcomp_decode_add_frames(&c->codec, list->cpu, CASE_FRAMES, NULL, &target, &workspace);
    must(gw_cuda_gcomp_decode_add_frames(&cuda, &c->codec, list->device, CASE_FRAMES, &device_target,
                                         &request),
         "gw_cuda_gcomp_decode_add_frames");
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == (uint32_t)status, "status of frames", c->name);
    expect(r.bad_index == target.bad_chunk && r.bad_frame == target.bad_frame, "bad chunk of frames",
           c->name);
    expect(r.len == target.len, "length of frames", c->name);
    expect_bytes(dst, sums, c->value_size, "sums of frames", c->name);
    give_since(mark);
    free(sums);
    free(workspace.data);
    return status;
}

/* ---- segments ------------------------------------------------------------------------------------------ */

void set_segments(tensor *t, const gw_gcomp_segment *segments, size_t count, uint64_t offset)
{
    t->cpu.segments = segments;
    t->device.segments = on_device(segments, count * sizeof *segments);
    t->cpu.segment_count = t->device.segment_count = count;
    t->cpu.segment_offset = t->device.segment_offset = offset;
}

void compare_segments(gcomp_case *c)
{
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    size_t codebook_size;
    encode_again(c);
    compare_encode(c);
    compare_hop(c);
    compare_codebook(c, codebook, &codebook_size);
}
