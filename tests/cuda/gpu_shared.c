/*
 * The dynamic shared memory that the host requests, held against stated ceilings:
 *
 *   gpu_shared FILE     FILE: rows `kernel, device, log2 of a chunk, bytes at most, blocks at least`,
 *                       patterns of fnmatch() but for the numbers; the first that matches counts
 *   gpu_shared          prints the table of this build
 *
 * Every public call is made on devices of several compute capabilities under the fake driver,
 * which notes the launches and runs nothing, with all dtypes, quantum modes, presets, chunk lengths, and
 * codebooks installed or not. Blocks: as many of one launch as the shared memory and the threads of a
 * multiprocessor hold (bench/cuda/gpu_check_resources checks registers: launch bounds limit them). A kernel
 * that is never launched, a launch without a row and a row without a launch are errors.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _POSIX_C_SOURCE 200809L /* fnmatch() */

#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/launch.h"
#include "fake_driver.h"
#include "gradwire/cuda.h"

/* CUDA C++ Programming Guide, technical specifications per compute capability. */
static const struct device {
    const char *name;
    int arch, multiprocessors;
    uint32_t block_max; /* bytes of shared memory that a block may ask for */
    uint32_t size;      /* bytes of shared memory of a multiprocessor */
    uint32_t threads, blocks;
} devices[] = {
    {"8.0", 80, 108, 163 * 1024, 164 * 1024, 2048, 32},
    {"8.6", 86, 84, 99 * 1024, 100 * 1024, 1536, 16},
    {"9.0", 90, 132, 227 * 1024, 228 * 1024, 2048, 32},
    {"10.0", 100, 148, 227 * 1024, 228 * 1024, 2048, 32},
};
enum { DEVICES = sizeof devices / sizeof devices[0], LOG2_MIN = 12, LOG2_MAX = 15, BLOCK_RESERVE = 1024 };

static const char *const kernels[] = {
#define KERNEL_NAME(name, image, params) #name,
    GW_CUDA_KERNEL_LIST(KERNEL_NAME)
#undef KERNEL_NAME
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* Of one kernel, device and chunk length: the most bytes, the fewest blocks. */
static struct {
    uint32_t bytes, blocks;
    int is_seen;
} found[KERNELS][DEVICES][LOG2_MAX + 1];

static const struct device *device;
static uint32_t chunk_log2;

static void on_launch(const char *kernel, uint32_t grid, uint32_t block, uint32_t shared_size)
{
    (void)grid;
    for (int k = 0; k < KERNELS; k++) {
        if (strcmp(kernel, kernels[k]) == 0) {
            const uint32_t by_size = device->size / ((shared_size + BLOCK_RESERVE + 127) / 128 * 128);
            const uint32_t by_threads = device->threads / block;
            uint32_t blocks = by_size < by_threads ? by_size : by_threads;
            blocks = blocks < device->blocks ? blocks : device->blocks;
            const int d = (int)(device - devices);
            const uint32_t first = found[k][d][chunk_log2].is_seen ? found[k][d][chunk_log2].blocks : blocks;
            found[k][d][chunk_log2].is_seen = 1;
            found[k][d][chunk_log2].blocks = blocks < first ? blocks : first;
            if (shared_size > found[k][d][chunk_log2].bytes) {
                found[k][d][chunk_log2].bytes = shared_size;
            }
        }
    }
}

static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "gpu_shared: %s: %s\n", what, gw_status_name(status));
        exit(2);
    }
}

/* An encode of chunks of 2^15 values needs more than a block of some devices can have: that status is
 * accepted. */
static void must_if_it_fits(gw_status status, const char *what)
{
    if (status != GW_ERR_OPTION || chunk_log2 != LOG2_MAX || device->block_max > 100 * 1024) {
        must(status, what);
    }
}

/* Addresses that nothing reads, of buffers that do not overlap. */
static void *at(unsigned number)
{
    return (void *)(((uintptr_t)number + 1) << 44);
}

static void call_gcomp(gw_cuda *cuda, const gw_gcomp *codec, size_t len, gw_gcomp_quantum_mode quantum_mode)
{
    const size_t size = (size_t)1 << 40;
    const gw_gcomp_map map = {at(0), at(1), 380, 1.0f, len, chunk_log2};
    gw_gcomp_source source = {
        .values = at(2), .len = len, .quantum = gw_gcomp_quantum_of_map(&map), .seed = 1, .step_index = 1};
    gw_cuda_result *result = at(3);

    must_if_it_fits(gw_cuda_gcomp_encode(cuda, codec, &source, &(gw_cuda_buffer){at(4), size},
                                         &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
                    "encode");
    must(gw_cuda_gcomp_decode(cuda, codec, &(gw_cuda_gcomp_frame){at(4), len, NULL, &map},
                              &(gw_cuda_gcomp_target){at(6), len, 0},
                              &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
         "decode");
    must(gw_cuda_gcomp_decode_add(cuda, codec, &(gw_cuda_gcomp_frame){at(4), len, NULL, &map},
                                  &(gw_cuda_gcomp_target){at(6), len, 0},
                                  &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
         "decode_add");
    const gw_cuda_gcomp_frame frames[2] = {{at(4), len, NULL, &map}, {at(10), len, NULL, &map}};
    must(gw_cuda_gcomp_decode_add_frames(cuda, codec, frames, 2, &(gw_cuda_gcomp_target){at(6), len, 0},
                                         &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
         "decode_add_frames");
    must(gw_cuda_gcomp_frame_check(cuda, codec, &(gw_cuda_gcomp_frame){at(4), len, NULL, &map}, len,
                                   &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
         "validate");
    must_if_it_fits(
        gw_cuda_gcomp_decode_add_encode(cuda, codec, &(gw_cuda_gcomp_frame){at(4), len, NULL, &map}, &source,
                                        &(gw_cuda_buffer){at(6), size},
                                        &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
        "hop");
    must(gw_cuda_gcomp_histogram_add(cuda, codec, &source, at(7),
                                     &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
         "histogram");
    source.segments = at(11);
    source.segment_count = 1000;
    must_if_it_fits(gw_cuda_gcomp_encode(cuda, codec, &source, &(gw_cuda_buffer){at(4), size},
                                         &(gw_cuda_gcomp_request){NULL, result, {at(5), size}, NULL}),
                    "encode of segments");
    must(gw_cuda_gcomp_codebook_build(cuda, codec, at(7), &(gw_cuda_gcomp_codebooks){at(8), at(9), 1},
                                      &(gw_cuda_gcomp_request){NULL, result, {NULL, 0}, NULL}),
         "codebook_build");
    if (quantum_mode !=
        GW_GCOMP_DERIVED) { /* a batch has the map bytes of derived frames in its items, on the device */
        const gw_cuda_gcomp_key key = {1, 0, 0, 0};
        must_if_it_fits(gw_cuda_gcomp_encode_batch(cuda, codec,
                                                   &(gw_cuda_gcomp_batch){at(10), 100, len, NULL, &key, 0},
                                                   &(gw_cuda_gcomp_request){NULL, NULL, {at(5), size}, NULL}),
                        "encode_batch");
        must(gw_cuda_gcomp_decode_batch(cuda, codec, &(gw_cuda_gcomp_batch){at(10), 100, len, NULL, NULL, 0},
                                        &(gw_cuda_gcomp_request){NULL, NULL, {at(5), size}, NULL}),
             "decode_batch");
        must(gw_cuda_gcomp_frame_check_batch(cuda, codec,
                                             &(gw_cuda_gcomp_batch){at(10), 100, len, NULL, NULL, 0},
                                             &(gw_cuda_gcomp_request){NULL, NULL, {at(5), size}, NULL}),
             "validate_batch");
        must_if_it_fits(gw_cuda_gcomp_decode_add_encode_batch(
                            cuda, codec, &(gw_cuda_gcomp_hop_batch){at(10), 100, len, NULL, NULL, &key},
                            &(gw_cuda_gcomp_request){NULL, NULL, {at(5), size}, NULL}),
                        "hop_batch");
        must(gw_cuda_gcomp_histogram_add_batch(cuda, codec,
                                               &(gw_cuda_gcomp_batch){at(10), 100, len, NULL, &key, 0},
                                               &(gw_cuda_gcomp_request){NULL, NULL, {at(5), size}, NULL}),
             "histogram_batch");
        must(gw_cuda_gcomp_codebook_build(cuda, codec, at(7), &(gw_cuda_gcomp_codebooks){at(8), at(9), 100},
                                          &(gw_cuda_gcomp_request){NULL, result, {NULL, 0}, NULL}),
             "codebook_build_batch");
    }
}

/* A codebook for the codec. */
static void install(gw_gcomp *codec, gw_dtype dtype)
{
    static float values[4096];
    static uint8_t map_bytes[4096], codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    static uint32_t digest[1];
    static gw_gcomp_histogram histogram;
    const size_t len = sizeof values / gw_dtype_size(dtype) < sizeof map_bytes
                           ? sizeof values / gw_dtype_size(dtype)
                           : sizeof map_bytes;
    const gw_gcomp_map map = {map_bytes, digest, 380, 1.0f, len, chunk_log2};
    const gw_gcomp_source source = {
        .values = values, .len = len, .quantum = gw_gcomp_quantum_of_map(&map), .seed = 1, .step_index = 1};
    void *workspace = malloc(gw_gcomp_workspace_size(codec));

    if (workspace == NULL) {
        exit(2);
    }
    must(gw_gcomp_map_digest(map_bytes, len, chunk_log2, digest), "map digest");
    must(gw_gcomp_histogram_init(&histogram, codec), "histogram_init");
    must(gw_gcomp_histogram_add(&histogram, codec, &source,
                                &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
         "histogram_add");
    gw_buffer out = {codebook, sizeof codebook, 0};
    must(gw_gcomp_codebook_build(&histogram, &out), "codebook_build");
    must(gw_gcomp_codebook_install(codec, 7, 8, codebook, out.size, 1), "install");
    free(workspace);
}

static void call_all_gcomp(gw_cuda *cuda)
{
    for (chunk_log2 = LOG2_MIN; chunk_log2 <= LOG2_MAX; chunk_log2++) {
        for (int dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            for (int kind = 0; kind < 12; kind++) {
                gw_gcomp_options o;
                gw_gcomp codec;
                gw_gcomp_options_init(&o, (gw_dtype)dtype);
                o.quantum_mode = (gw_gcomp_quantum_mode)(kind % 3);
                o.rounding = GW_GCOMP_STOCHASTIC;
                o.preset = (gw_gcomp_preset)(kind / 3 & 1);
                o.chunk_log2 = chunk_log2;
                must(gw_gcomp_init(&codec, &o), "gw_gcomp_init");
                if (kind >= 6) {
                    install(&codec, (gw_dtype)dtype);
                }
                call_gcomp(cuda, &codec, 1000, o.quantum_mode);
                call_gcomp(cuda, &codec, (size_t)1 << 28, o.quantum_mode);
            }
        }
    }
    chunk_log2 = 0;
}

/* Kernels without chunks, or with the same size for all lengths, have log2 0. */
static void call_all_thc(gw_cuda *cuda)
{
    enum { WORKERS = 8 };
    static const size_t lens[] = {1, 5000, 100000, 2000000, (size_t)1 << 28};
    static uint8_t workspace[GW_THC_TABLE_WORKSPACE_SIZE];
    const size_t size = (size_t)1 << 40;
    const uint8_t *sources[WORKERS], *lanes[1] = {at(20)};
    uint32_t ranks[WORKERS];

    for (uint32_t w = 0; w < WORKERS; w++) {
        sources[w] = at(10 + w);
        ranks[w] = w;
    }
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
            for (unsigned shape = 0; shape < 12; shape++) {
                const int feedback = (int)(shape & 1);
                const unsigned lane_bits = (shape & 2) != 0 ? 16 : 8;
                gw_thc thc;
                gw_thc_options config;
                gw_thc_agg agg;
                uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0}, total[GW_THC_SET_SIZE(WORKERS)] = {0};
                const uint8_t *sets[1] = {set};
                must(gw_thc_options_init(&config, &(gw_thc_goal){4, WORKERS, lane_bits, feedback},
                                         &(gw_workspace){workspace, sizeof workspace}),
                     "gw_thc_options_init");
                config.block_log2 = block_log2;
                config.dtype = (gw_dtype)(GW_FP32 + shape / 4);
                must(gw_thc_init(&thc, &config), "gw_thc_init");
                must(gw_thc_agg_init(&agg,
                                     &(gw_thc_agg_options){config.table, WORKERS, lane_bits, GW_BACKEND_ALL}),
                     "gw_thc_agg_init");
                const uint64_t blocks = gw_thc_block_count(&thc, lens[i]);
                const size_t count = (size_t)gw_thc_range_lanes(&thc, lens[i], 0, blocks);
                const gw_thc_range range = {lens[i], 0, blocks, 1, 0};
                float *error = feedback ? at(1) : NULL;
                gw_cuda_result *result = at(3);
                must(gw_cuda_thc_norms(cuda, &thc, &range,
                                       &(gw_thc_source){.values = at(0), .error = (float *)(uintptr_t)error},
                                       at(2), &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     "norms");
                must(gw_cuda_thc_encode(
                         cuda, &thc, &range,
                         &(gw_thc_source){
                             .values = at(0), .error = error, .patterns = at(2), .own_patterns = NULL},
                         &(gw_cuda_buffer){at(4), size},
                         &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     "encode");
                must(gw_cuda_thc_encode(
                         cuda, &thc, &range,
                         &(gw_thc_source){
                             .values = at(0), .error = error, .patterns = at(2), .own_patterns = at(2)},
                         &(gw_cuda_buffer){at(4), size},
                         &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     "encode, own norms given");
                must(gw_cuda_thc_sum_indices(cuda, &agg, &(gw_thc_partial){at(5), set, count},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, WORKERS, 0}, NULL),
                     "sum_indices");
                must(gw_cuda_thc_sum_lanes(cuda, &agg, &(gw_thc_partial){at(5), total, count},
                                           &(gw_cuda_thc_inputs){lanes, NULL, sets, 1, 0},
                                           &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     "sum_lanes");
                must(gw_cuda_thc_expand(cuda, &thc, &range, &(gw_thc_indices){at(4), size, NULL},
                                        &(gw_cuda_buffer){at(5), size}, NULL),
                     "expand");
                must(gw_cuda_thc_decode(cuda, &thc, &range, &(gw_thc_sum){at(5), size, at(6), at(2)},
                                        &(gw_cuda_target){at(7), size},
                                        &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, NULL}),
                     "decode");
                must(gw_cuda_thc_decode_reduced(cuda, &thc, &range, &(gw_thc_sum){at(5), size, NULL, at(2)},
                                                &(gw_cuda_target){at(7), size},
                                                &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, NULL}),
                     "decode_reduced");
            }
        }
    }
}

static void call_all_map(gw_cuda *cuda)
{
    gw_optimizer o = {0};
    gw_gcomp_map_rule rule;
    const gw_optimizer_state state = {at(0), at(1), at(2), at(3)};
    const size_t len = 100000000;

    o.kind = GW_OPTIMIZER_ADAMW;
    o.step = 100;
    o.lr = 0.001;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.eps = 1e-8;
    must(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), "gw_gcomp_map_rule_init");
    must(gw_cuda_gcomp_map_scan(cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &state, len}, at(4), NULL),
         "map_scan");
    must(gw_cuda_gcomp_map_build(cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &state, len}, at(4), at(5),
                                 at(6), NULL),
         "map_build");
    must(gw_cuda_gcomp_map_digest(cuda, at(5), len, 14, at(6), NULL), "map_digest");
}

typedef struct row {
    char kernel[96], device[16], log2[16];
    uint32_t bytes, blocks;
    int is_used;
} row;

int main(int argc, char **argv)
{
    enum { ROWS_MAX = 400 };
    static row rows[ROWS_MAX];
    int row_count = 0, errors = 0, launches = 0;
    gw_fake_control_fn *get;
    gw_fake_control *control;

    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
    if (library == NULL || (symbol = dlsym(library, "gw_fake_control_of")) == NULL) {
        fprintf(stderr, "gpu_shared: this is for the fake driver\n");
        return 2;
    }
    memcpy(&get, &symbol, sizeof get);
    control = get();
    control->skips_work = 1;
    control->on_launch = on_launch;
    for (device = devices; device < devices + DEVICES; device++) {
        gw_cuda cuda;
        control->arch = device->arch;
        control->multiprocessors = device->multiprocessors;
        control->shared_size_max = (int)device->block_max;
        must(gw_cuda_init(&cuda), "gw_cuda_init");
        call_all_gcomp(&cuda);
        call_all_thc(&cuda);
        call_all_map(&cuda);
        gw_cuda_close(&cuda);
    }
    if (argc > 1) {
        char line[256];
        FILE *f = fopen(argv[1], "r");
        if (f == NULL) {
            perror(argv[1]);
            return 2;
        }
        while (fgets(line, sizeof line, f) != NULL) {
            row *r = &rows[row_count];
            if (line[0] == '#' || line[0] == '\n') {
                continue;
            }
            if (row_count == ROWS_MAX || sscanf(line, "%95s %15s %15s %u %u", r->kernel, r->device, r->log2,
                                                &r->bytes, &r->blocks) != 5) {
                fprintf(stderr, "gpu_shared: %s: not understood: %s", argv[1], line);
                return 2;
            }
            row_count++;
        }
        fclose(f);
    }
    for (int k = 0; k < KERNELS; k++) {
        int is_launched = 0;
        for (int d = 0; d < DEVICES; d++) {
            for (int log2 = 0; log2 <= LOG2_MAX; log2++) {
                char name[16];
                int i = 0;
                if (!found[k][d][log2].is_seen) {
                    continue;
                }
                is_launched = 1;
                launches++;
                snprintf(name, sizeof name, log2 == 0 ? "-" : "%d", log2);
                const uint32_t bytes = found[k][d][log2].bytes, blocks = found[k][d][log2].blocks;
                if (argc < 2) {
                    printf("%s\t%s\t%s\t%u\t%u\n", kernels[k], devices[d].name, name, bytes, blocks);
                    continue;
                }
                while (i < row_count && (fnmatch(rows[i].kernel, kernels[k], 0) != 0 ||
                                         fnmatch(rows[i].device, devices[d].name, 0) != 0 ||
                                         fnmatch(rows[i].log2, name, 0) != 0)) {
                    i++;
                }
                if (i == row_count) {
                    printf("ERROR %s %s %s: no row\n", kernels[k], devices[d].name, name);
                    errors++;
                    continue;
                }
                rows[i].is_used = 1;
                if (bytes > rows[i].bytes || blocks < rows[i].blocks) {
                    printf("ERROR %s %s %s: %u bytes, %u blocks; at most %u, at least %u\n", kernels[k],
                           devices[d].name, name, bytes, blocks, rows[i].bytes, rows[i].blocks);
                    errors++;
                }
            }
        }
        if (!is_launched) {
            printf("ERROR %s was never launched\n", kernels[k]);
            errors++;
        }
    }
    for (int i = 0; i < row_count; i++) {
        if (!rows[i].is_used) {
            printf("ERROR %s %s %s: no such launch\n", rows[i].kernel, rows[i].device, rows[i].log2);
            errors++;
        }
    }
    fprintf(argc > 1 ? stdout : stderr, "%d kernels, devices and chunk lengths, %d errors\n", launches,
            errors);
    return errors != 0;
}
