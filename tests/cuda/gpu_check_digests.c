/*
 * CRC32C of large runs: made by the CPU, compared on the device.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

enum { DIGEST_WORKERS = 4 };

/* Lines `name, size, CRC32C` of large runs, made by the scalar code of the CPU (out) or by the device and
 * compared with those (stored). */
static struct {
    FILE *out, *stored;
    int use_device;
} digests;

/* bytes: in device memory if use_device. */
void digest(const char *name, const char *part, const void *bytes, size_t size)
{
    char line[200], expected[200];
    uint8_t *copy = NULL;

    if (digests.use_device) {
        copy = take(size);
        fetch(copy, bytes, size);
        bytes = copy;
    }
    snprintf(line, sizeof line, "%s %s\t%zu\t%08x\n", name, part, size, gw_crc32c(0, bytes, size));
    if (digests.out != NULL) {
        fputs(line, digests.out);
    } else if (fgets(expected, sizeof expected, digests.stored) == NULL) {
        expect(0, "the stored digests end early", line);
    } else {
        line[strcspn(line, "\n")] = 0;
        expected[strcspn(expected, "\n")] = 0;
        expect(strcmp(line, expected) == 0, line, expected);
    }
    free(copy);
}

/* Memory of the side that works. */
static void *room(const void *src, size_t size)
{
    if (digests.use_device) {
        return on_device(src, size);
    }
    void *p = take(size);
    if (src != NULL) {
        memcpy(p, src, size);
    }
    return p;
}

static void leave(void *p)
{
    if (digests.use_device) {
        give(p);
    } else {
        free(p);
    }
}

/* Encode, decode, decode_add and a hop, one after the other. */
static void digest_gcomp(gw_dtype dtype, int quantum_mode, int preset, size_t len)
{
    char name[96];
    uint64_t random = 1000 + dtype;
    const size_t value_size = len * gw_dtype_size(dtype), chunks = (len >> 14) + 1;
    uint8_t *values = take(value_size), *map_bytes = take(len);
    uint32_t *map_digest = take(4 * chunks);
    size_t size = 0, hop_size = 0;

    const gw_gcomp codec = make_codec(dtype, (gw_gcomp_quantum_mode)quantum_mode, (gw_gcomp_preset)preset,
                                      GW_GCOMP_STOCHASTIC, 14, 1);
    fill(values, dtype, len, 1, &random);
    for (size_t j = 0; j < len; j++) {
        map_bytes[j] = (uint8_t)(next_random(&random) % 160);
    }
    must(gw_gcomp_map_digest(map_bytes, len, 14, map_digest), "gw_gcomp_map_digest");
    const gw_gcomp_map map = {room(map_bytes, len), room(map_digest, 4 * chunks), 390, 1.0f, len, 14};
    gw_gcomp_source source = {.values = room(values, value_size),
                              .len = len,
                              .quantum = gw_gcomp_quantum_of_map(&map),
                              .seed = 11,
                              .step_index = 1};
    const size_t bound = gw_gcomp_frame_bound(&codec, len);
    void *frame = room(NULL, bound), *next_frame = room(NULL, bound), *out = room(values, value_size),
         *sum = room(values, value_size);
    if (digests.use_device) {
        const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&codec, 1, len);
        const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&codec, 1, len);
        const size_t hop_space = gw_cuda_gcomp_hop_workspace_size(&codec, 1, len);
        void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size),
             *hop_at = on_device(NULL, hop_space);
        gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);
        must(gw_cuda_gcomp_encode(&cuda, &codec, &source, &(gw_cuda_buffer){frame, bound},
                                  &(gw_cuda_gcomp_request){NULL, &result[0], {encode_at, encode_size}, NULL}),
             "gw_cuda_gcomp_encode");
        must(gw_cuda_gcomp_decode(&cuda, &codec, &(gw_cuda_gcomp_frame){frame, bound, &result[0].size, &map},
                                  &(gw_cuda_gcomp_target){out, len, 0},
                                  &(gw_cuda_gcomp_request){NULL, &result[1], {decode_at, decode_size}, NULL}),
             "gw_cuda_gcomp_decode");
        must(gw_cuda_gcomp_decode_add(
                 &cuda, &codec, &(gw_cuda_gcomp_frame){frame, bound, &result[0].size, &map},
                 &(gw_cuda_gcomp_target){sum, len, 0},
                 &(gw_cuda_gcomp_request){NULL, &result[1], {decode_at, decode_size}, NULL}),
             "gw_cuda_gcomp_decode_add");
        source.hop = 1;
        must(gw_cuda_gcomp_decode_add_encode(
                 &cuda, &codec, &(gw_cuda_gcomp_frame){frame, bound, &result[0].size, &map}, &source,
                 &(gw_cuda_buffer){next_frame, bound},
                 &(gw_cuda_gcomp_request){NULL, &result[1], {hop_at, hop_space}, NULL}),
             "gw_cuda_gcomp_decode_add_encode");
        size = (size_t)fetch_result(&result[0]).size;
        hop_size = (size_t)fetch_result(&result[1]).size;
        give(result);
        give(hop_at);
        give(decode_at);
        give(encode_at);
    } else {
        const size_t space = gw_gcomp_workspace_size(&codec);
        const gw_workspace workspace = {take(space), space};
        gw_buffer dst = {frame, bound, 0}, next = {next_frame, bound, 0};
        must(gw_gcomp_encode(&codec, &source, &dst, &workspace), "gw_gcomp_encode");
        const gw_gcomp_frame in = {frame, dst.size, &map};
        gw_gcomp_target values_target = {.values = out, .capacity = len};
        gw_gcomp_target sum_target = {.values = sum, .capacity = len};
        must(gw_gcomp_decode(&codec, &in, &values_target, &workspace), "gw_gcomp_decode");
        must(gw_gcomp_decode_add(&codec, &in, &sum_target, &workspace), "gw_gcomp_decode_add");
        source.hop = 1;
        must(gw_gcomp_decode_add_encode(&codec, &in, &source, &next, NULL, &workspace),
             "gw_gcomp_decode_add_encode");
        size = dst.size;
        hop_size = next.size;
        free(workspace.data);
    }
    snprintf(name, sizeof name, "gcomp dtype %d levels %d preset %d len %zu", (int)dtype, quantum_mode,
             preset, len);
    digest(name, "encode", frame, size <= bound ? size : 0);
    digest(name, "decode", out, value_size);
    digest(name, "decode_add", sum, value_size);
    digest(name, "hop", next_frame, hop_size <= bound ? hop_size : 0);
    leave(sum);
    leave(out);
    leave(next_frame);
    leave(frame);
    leave((void *)(uintptr_t)source.values);
    leave((void *)(uintptr_t)map.bytes);
    leave((void *)(uintptr_t)map.digest);
    free(map_digest);
    free(map_bytes);
    free(values);
}

/* Norms, the encodes of all workers with error feedback, their sum, the mean. */
static void digest_thc(unsigned bits, gw_dtype dtype, size_t len)
{
    const gw_thc thc = make_thc(DIGEST_WORKERS, bits, 10, dtype, 8, GW_THC_ROTATED, 1).thc;
    const gw_thc_options *options = gw_thc_options_of(&thc);
    const size_t value_size = len * gw_dtype_size(dtype);
    const uint64_t blocks = gw_thc_block_count(&thc, len);
    const size_t patterns_size = 4 * (size_t)blocks * gw_thc_patterns_per_block(&thc);
    const size_t indices_size = gw_thc_indices_size(&thc, len, 0, blocks);
    const size_t lanes = (size_t)gw_thc_range_lanes(&thc, len, 0, blocks);
    const size_t lanes_size = gw_thc_lanes_size(&thc, len, 0, blocks);
    uint8_t *values = take(value_size), *zeros = take(lanes_size);
    float *start = take(4 * len); /* of the error memory of each worker */
    uint32_t *host_members = take(4 * (size_t)blocks);
    uint8_t set[GW_THC_SET_SIZE(DIGEST_WORKERS)] = {0};
    uint32_t ranks[DIGEST_WORKERS];
    const uint8_t *indices[DIGEST_WORKERS];
    uint64_t random = 2000 + bits;
    gw_thc_range range = {len, 0, blocks, 7, 0};
    gw_thc_agg agg;
    char name[96], part[32];

    fill(values, dtype, len, 0, &random);
    fill(start, GW_FP32, len, 0, &random);
    memset(zeros, 0, lanes_size);
    for (uint64_t b = 0; b < blocks; b++) {
        host_members[b] = DIGEST_WORKERS;
    }
    must(gw_thc_agg_init(
             &agg, &(gw_thc_agg_options){options->table, DIGEST_WORKERS, options->lane_bits, cpu_backends}),
         "gw_thc_agg_init");
    void *x = room(values, value_size), *out = room(NULL, value_size);
    uint8_t *sum = room(zeros, lanes_size);
    uint32_t *patterns = room(NULL, patterns_size), *members = room(host_members, 4 * (size_t)blocks);
    float *error = room(start, 4 * len);
    for (uint32_t w = 0; w < DIGEST_WORKERS; w++) {
        ranks[w] = w;
        indices[w] = room(NULL, indices_size);
    }
    snprintf(name, sizeof name, "thc bits %u dtype %d len %zu", bits, (int)dtype, len);
    if (digests.use_device) {
        gw_cuda_result *result = on_device(NULL, sizeof *result);
        must(gw_cuda_thc_norms(&cuda, &thc, &range,
                               &(gw_thc_source){.values = x, .error = (float *)(uintptr_t)error}, patterns,
                               &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_norms");
        for (uint32_t w = 0; w < DIGEST_WORKERS; w++) {
            range.rank = w;
            device_put(error, start, 4 * len);
            must(
                gw_cuda_thc_encode(
                    &cuda, &thc, &range,
                    &(gw_thc_source){.values = x, .error = error, .patterns = patterns, .own_patterns = NULL},
                    &(gw_cuda_buffer){(uint8_t *)(uintptr_t)indices[w], indices_size},
                    &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                "gw_cuda_thc_encode");
        }
        must(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){sum, set, lanes},
                                     &(gw_cuda_thc_inputs){indices, ranks, NULL, DIGEST_WORKERS, 0}, NULL),
             "gw_cuda_thc_sum_indices");
        must(gw_cuda_thc_decode(&cuda, &thc, &range, &(gw_thc_sum){sum, lanes_size, members, patterns},
                                &(gw_cuda_target){out, len},
                                &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, NULL}),
             "gw_cuda_thc_decode");
        expect(fetch_result(result).status == GW_OK, "status of decode", name);
        give(result);
    } else {
        const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
        must(gw_thc_norms(&thc, &range, &(gw_thc_source){.values = x, .error = error}, patterns, NULL,
                          &workspace),
             "gw_thc_norms");
        for (uint32_t w = 0; w < DIGEST_WORKERS; w++) {
            range.rank = w;
            memcpy(error, start, 4 * len);
            must(gw_thc_encode(
                     &thc, &range, &(gw_thc_source){.values = x, .error = error, .patterns = patterns},
                     &(gw_buffer){(uint8_t *)(uintptr_t)indices[w], indices_size, 0}, NULL, &workspace),
                 "gw_thc_encode");
            must(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum, set, lanes}, indices[w], w),
                 "gw_thc_agg_add_indices");
        }
        must(gw_thc_decode(&thc, &range, &(gw_thc_sum){sum, lanes_size, members, patterns}, GW_THC_MEAN,
                           &(gw_thc_target){.values = out, .capacity = len}, &workspace),
             "gw_thc_decode");
        free(workspace.data);
    }
    digest(name, "norms", patterns, patterns_size);
    for (uint32_t w = 0; w < DIGEST_WORKERS; w++) {
        snprintf(part, sizeof part, "indices of %u", w);
        digest(name, part, indices[w], indices_size);
        leave((void *)(uintptr_t)indices[w]);
    }
    digest(name, "error memory", error, 4 * len);
    digest(name, "sum", sum, lanes_size);
    digest(name, "decode", out, value_size);
    leave(error);
    leave(members);
    leave(patterns);
    leave(sum);
    leave(out);
    leave(x);
    free(host_members);
    free(zeros);
    free(start);
    free(values);
}

static void digest_map(unsigned kind, size_t len)
{
    const uint32_t chunk_log2 = 14;
    const size_t digests_size = 4 * ((len + (1u << chunk_log2) - 1) >> chunk_log2);
    const gw_gcomp_map_rule rule = make_rule((gw_optimizer_kind)kind);
    float *array[4];
    uint64_t random = 3000 + kind;
    uint32_t top = 0;
    char name[64];

    for (int i = 0; i < 4; i++) {
        float *host = take(4 * len);
        fill(host, GW_FP32, len, 1, &random);
        array[i] = room(host, 4 * len);
        free(host);
    }
    const gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
    uint8_t *map_bytes = room(NULL, len);
    uint32_t *map_digest = room(NULL, digests_size), *top_at = room(NULL, 4);
    if (digests.use_device) {
        must(gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, len}, top_at, NULL),
             "gw_cuda_gcomp_map_scan");
        must(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, len}, top_at,
                                     map_bytes, NULL, NULL),
             "gw_cuda_gcomp_map_build");
        must(gw_cuda_gcomp_map_digest(&cuda, map_bytes, len, chunk_log2, map_digest, NULL),
             "gw_cuda_gcomp_map_digest");
    } else {
        must(gw_gcomp_map_scan(&rule, &s, len, cpu_backends, &top), "gw_gcomp_map_scan");
        memcpy(top_at, &top, 4);
        must(gw_gcomp_map_build(&rule, &s, len, gw_gcomp_map_base(top), cpu_backends, map_bytes),
             "gw_gcomp_map_build");
        must(gw_gcomp_map_digest(map_bytes, len, chunk_log2, map_digest), "gw_gcomp_map_digest");
    }
    snprintf(name, sizeof name, "map of optimizer %u len %zu", kind, len);
    digest(name, "top", top_at, 4);
    digest(name, "levels", map_bytes, len);
    digest(name, "digests", map_digest, digests_size);
    leave(top_at);
    leave(map_digest);
    leave(map_bytes);
    for (int i = 0; i < 4; i++) {
        leave(array[i]);
    }
}

/* len: of the short runs; the long ones are four times as long and not whole blocks. */
void run_digests(FILE *out, FILE *stored, int use_device, size_t len)
{
    char rest[8];

    digests.out = out;
    digests.stored = stored;
    digests.use_device = use_device;
    cpu_backends = GW_BACKEND_SCALAR;
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            digest_gcomp((gw_dtype)dtype, quantum_mode, GW_GCOMP_FAST, len);
            digest_gcomp((gw_dtype)dtype, quantum_mode, GW_GCOMP_SMALL, 4 * len + 12345);
        }
    }
    for (unsigned bits = 1; bits <= 4; bits++) {
        digest_thc(bits, (gw_dtype)(1 + bits % 3), bits == 4 ? 4 * len + 12345 : len + 77);
    }
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
        digest_map(kind, len + 77);
    }
    expect(stored == NULL || fgets(rest, sizeof rest, stored) == NULL, "there are more stored digests",
           "digests");
}
