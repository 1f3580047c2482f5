/*
 * GCOMP: batches, and what they are called with, against the CPU.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

/* Tensors of very different lengths, some without values, in two calls. */
static void compare_batch(gw_dtype dtype, size_t len, uint64_t *random)
{
    enum { ITEMS = 300 };
    static gw_cuda_gcomp_item encode[ITEMS], decode[ITEMS];
    static gcomp_case c[ITEMS];
    gw_cuda_result *results = on_device(NULL, 2 * ITEMS * sizeof *results);
    uint64_t total = 0;

    memset(encode, 0, sizeof encode);
    memset(decode, 0, sizeof decode);
    for (int i = 0; i < ITEMS; i++) {
        const size_t n = i == 150 ? len : i % 7 == 0 ? 0 : (size_t)(next_random(random) % (len / 64 + 2));
        c[i].codec = make_codec(dtype, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_NEAREST, 12, 1);
        snprintf(c[i].name, sizeof c[i].name, "dtype %d item %d of a batch, len %zu", dtype, i, n);
        make_case(&c[i], make_tensor(dtype, n, 1, 0, 12, random));
        encode[i].src = c[i].t.device.values;
        encode[i].src_size = n;
        encode[i].first_element = c[i].t.device.first_element;
        encode[i].dst = on_device(NULL, c[i].bound);
        encode[i].dst_capacity = c[i].bound;
        encode[i].result = results + i;
        decode[i].src = encode[i].dst;
        decode[i].src_size = c[i].bound;
        decode[i].src_size_at = &results[i].size;
        decode[i].dst = on_device(NULL, c[i].value_size);
        decode[i].dst_capacity = n;
        decode[i].result = results + ITEMS + i;
        total += n;
    }
    const gw_gcomp *codec = &c[0].codec;
    begin_case("batch", "encode and decode");
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(codec, ITEMS, total);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(codec, ITEMS, total);
    void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size);
    gw_cuda_gcomp_item *device_encode = on_device(encode, sizeof encode),
                       *device_decode = on_device(decode, sizeof decode);
    must(gw_cuda_gcomp_encode_batch(&cuda, codec,
                                    &(gw_cuda_gcomp_batch){device_encode, ITEMS, total, NULL, &case_key, 0},
                                    &(gw_cuda_gcomp_request){NULL, NULL, {encode_at, encode_size}, NULL}),
         "gw_cuda_gcomp_encode_batch");
    must(gw_cuda_gcomp_decode_batch(&cuda, codec,
                                    &(gw_cuda_gcomp_batch){device_decode, ITEMS, total, NULL, NULL, 0},
                                    &(gw_cuda_gcomp_request){NULL, NULL, {decode_at, decode_size}, NULL}),
         "gw_cuda_gcomp_decode_batch");
    for (int i = 0; i < ITEMS; i++) {
        uint8_t *values = take(c[i].value_size);
        void *workspace = take(gw_gcomp_workspace_size(codec));
        gw_gcomp_target target = {.values = values, .capacity = c[i].t.len};
        must(gw_gcomp_decode(codec, &(gw_gcomp_frame){.data = c[i].frame, .size = c[i].frame_size}, &target,
                             &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
             "gw_gcomp_decode");
        const gw_cuda_result r = fetch_result(results + i), d = fetch_result(results + ITEMS + i);
        expect(r.status == GW_OK && r.size == c[i].frame_size, "size of encode", c[i].name);
        expect_bytes(encode[i].dst, c[i].frame, c[i].frame_size, "bytes of encode", c[i].name);
        expect(d.status == GW_OK && d.len == c[i].t.len, "length of decode", c[i].name);
        expect_bytes(decode[i].dst, values, c[i].value_size, "values of decode", c[i].name);
        free(workspace);
        free(values);
        give(encode[i].dst);
        give(decode[i].dst);
    }
    for (int i = 0; i < ITEMS; i++) {
        drop_case(&c[i]);
    }
    give(device_decode);
    give(device_encode);
    give(decode_at);
    give(encode_at);
    give(results);
}

/* The codebook of all tensors of a bucket, and their hops with it, in three calls; one frame is damaged. */
static void compare_hop_batch(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, size_t len,
                              uint64_t *random)
{
    enum { ITEMS = 120, DAMAGED = 77, LARGE = 78 };
    static gw_cuda_gcomp_item count[ITEMS];
    static gw_cuda_gcomp_hop hops[ITEMS];
    static gcomp_case c[ITEMS];
    static const gw_cuda_gcomp_histogram none;
    static gw_gcomp_source sources[ITEMS];
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_cuda_result *results = on_device(NULL, (2 * ITEMS + 1) * sizeof *results);
    gw_cuda_gcomp_histogram *device_histogram = on_device(&none, sizeof none);
    uint8_t *device_codebook = on_device(NULL, GW_GCOMP_CODEBOOK_SIZE_MAX);
    uint32_t *device_size = on_device(NULL, 4);
    const gw_cuda_gcomp_device arguments = {NULL, NULL, device_codebook, device_size, 7, 8};
    uint64_t total = 0;

    memset(count, 0, sizeof count);
    memset(hops, 0, sizeof hops);
    for (int i = 0; i < ITEMS; i++) {
        const size_t n = i == LARGE     ? len
                         : i == DAMAGED ? 5000
                         : i % 7 == 0   ? 0
                                        : (size_t)(next_random(random) % (len / 64 + 2));
        c[i].codec = make_codec(dtype, quantum_mode, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);
        snprintf(c[i].name, sizeof c[i].name, "dtype %d item %d of a batch of hops, len %zu", dtype, i, n);
        make_case(&c[i], make_tensor(dtype, n, 1, 1, 12, random));
        sources[i] = c[i].t.cpu;
        if (i == DAMAGED) {
            c[i].frame[c[i].frame_size - 20] ^= 0x11;
        }
        count[i].src = c[i].t.device.values;
        count[i].src_size = n;
        count[i].first_element = c[i].t.device.first_element;
        count[i].dst = device_histogram;
        count[i].map_bytes = c[i].t.device_map.bytes;
        count[i].digest = c[i].t.device_map.digest;
        count[i].map_len = n;
        count[i].result = results + i;
        hops[i].src = on_device(c[i].frame, c[i].frame_size);
        hops[i].src_size = c[i].frame_size;
        hops[i].values = count[i].src;
        hops[i].len = n;
        hops[i].first_element = count[i].first_element;
        hops[i].dst = on_device(NULL, c[i].bound);
        hops[i].dst_capacity = c[i].bound;
        hops[i].map_bytes = hops[i].src_map_bytes = count[i].map_bytes;
        hops[i].digest = hops[i].src_digest = count[i].digest;
        hops[i].map_len = hops[i].src_map_len = n;
        hops[i].result = results + ITEMS + i;
        total += n;
    }
    const gw_gcomp *codec = &c[0].codec;
    gw_gcomp with_codebook = *codec;
    const gw_gcomp_map *map = &c[0].t.device_map;
    const size_t count_size = gw_cuda_gcomp_histogram_workspace_size(codec, ITEMS);
    const size_t hop_size = gw_cuda_gcomp_hop_workspace_size(codec, ITEMS, total);
    void *count_at = workspace_on_device(count_size), *hop_at = workspace_on_device(hop_size);
    gw_cuda_gcomp_item *device_count = on_device(count, sizeof count);
    gw_cuda_gcomp_hop *device_hops = on_device(hops, sizeof hops);
    begin_case("batch", "codebook and hops");
    must(gw_cuda_gcomp_histogram_add_batch(
             &cuda, codec, &(gw_cuda_gcomp_batch){device_count, ITEMS, total, map, &case_key, 0},
             &(gw_cuda_gcomp_request){NULL, NULL, {count_at, count_size}, NULL}),
         "gw_cuda_gcomp_histogram_add_batch");
    must(gw_cuda_gcomp_codebook_build(&cuda, codec, device_histogram,
                                      &(gw_cuda_gcomp_codebooks){device_codebook, device_size, 1},
                                      &(gw_cuda_gcomp_request){NULL, results + 2 * ITEMS, {NULL, 0}, NULL}),
         "gw_cuda_gcomp_codebook_build_batch");
    must(gw_cuda_gcomp_decode_add_encode_batch(
             &cuda, codec, &(gw_cuda_gcomp_hop_batch){device_hops, ITEMS, total, map, map, &case_key},
             &(gw_cuda_gcomp_request){&arguments, NULL, {hop_at, hop_size}, NULL}),
         "gw_cuda_gcomp_decode_add_encode_batch");

    void *workspace = take(gw_gcomp_workspace_size(codec));
    const size_t codebook_size = cpu_codebook(codec, sources, ITEMS, codebook);
    must(gw_gcomp_codebook_install(&with_codebook, 7, 8, codebook, codebook_size, 1),
         "gw_gcomp_codebook_install");
    expect(fetch_result(results + 2 * ITEMS).size == codebook_size, "size of codebook", c[0].name);
    expect_bytes(device_codebook, codebook, codebook_size, "codebook", c[0].name);
    for (int i = 0; i < ITEMS; i++) {
        uint8_t *frame = take(c[i].bound);
        uint64_t bad;
        gw_buffer out = {frame, c[i].bound, 0};
        const gw_status status = gw_gcomp_decode_add_encode(
            &with_codebook,
            &(gw_gcomp_frame){.data = c[i].frame, .size = c[i].frame_size, .map = c[i].t.cpu.quantum.map},
            &c[i].t.cpu, &out, &bad, &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)});
        const gw_cuda_result r = fetch_result(results + ITEMS + i);
        expect(r.status == (uint32_t)status && r.size == out.size && r.bad_index == bad, "result of hop",
               c[i].name);
        expect((status != GW_OK) == (i == DAMAGED), "status of the CPU's hop", c[i].name);
        expect_bytes(hops[i].dst, frame, out.size, "bytes of hop", c[i].name);
        free(frame);
        give((void *)(uintptr_t)hops[i].src);
        give(hops[i].dst);
    }
    for (int i = 0; i < ITEMS; i++) {
        drop_case(&c[i]);
    }
    free(workspace);
    give(device_hops);
    give(device_count);
    give(hop_at);
    give(count_at);
    give(device_size);
    give(device_codebook);
    give(device_histogram);
    give(results);
}

void run_calls(size_t len, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
            size_t codebook_size = 0;
            gcomp_case c;
            c.codec = make_codec((gw_dtype)dtype, (gw_gcomp_quantum_mode)quantum_mode, GW_GCOMP_FAST,
                                 GW_GCOMP_STOCHASTIC, 14, quantum_mode);
            const gw_gcomp plain = c.codec;
            snprintf(c.name, sizeof c.name, "codebook, dtype %u mode %d", dtype, quantum_mode);
            make_case(&c, make_tensor((gw_dtype)dtype, len, 1, 1, 14, &random));
            compare_codebook(&c, codebook, &codebook_size);
            compare_device_arguments(&c, &plain, codebook, codebook_size);
            drop_case(&c);
        }
        compare_batch((gw_dtype)dtype, len, &random);
        compare_hop_batch((gw_dtype)dtype, dtype == GW_BF16 ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT, len,
                          &random);
    }
}
