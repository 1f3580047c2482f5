/*
 * The checks that a GPU must pass: the CPU's bytes and statuses on random, recorded and hostile input, from
 * graphs and two streams, and its times. bench/cuda/gpu runs it stage by stage; any stage runs alone.
 *
 *   gpu_check gcomp   [--len N] [--seed S] [--chunk L]
 *                     random tensors, all dtypes, quantum modes and presets, chunks of all lengths or of 2^L
 *                     values: encode, decode, sums, hops
 *   gpu_check calls   [--len N] [--seed S]      codebooks built on the device, installed, or lying in device
 *                     memory with map base and key; batches; scales, sums of frames, segments
 *   gpu_check thc     [--len N] [--seed S]      random tensors, all block lengths and widths: norms to decode
 *   gpu_check map     [--len N]                 precision maps of the seven optimizers
 *   gpu_check files   PATH...                   .npy files of fp32 (each encoded and decoded), .gw frames
 *                     (each decoded as all three dtypes, by a receiver that has neither map nor codebook)
 *   gpu_check vectors FOLDER                    golden frames by FOLDER/index.tsv, with the maps and
 *                     codebooks that it names: valid ones to their stored values, others to their status
 *   gpu_check states  FILE [--len N]            recorded gradients with the parameters and optimizer states
 *                     that FILE lists: maps of the seven optimizers, frames of derived quanta with them;
 *                     at most the first N values of each
 *   gpu_check hostile [--count N] [--len N] [--chunk L] [--clear 1]
 *                     damaged frames and lanes; all of chunks of 2^L; workspaces cleared before use
 *   gpu_check graph                             captured work replayed, two streams at once
 *   gpu_check digests [--write FILE | --check FILE | --again FILE] [--len N]
 *                     CRC32C of large random runs: by the CPU's scalar code, written; by the device,
 *                     compared; by the CPU once more, compared. Only --check needs a device
 *   gpu_check bench   [--bytes N] [--dtype fp32|bf16|fp16] [--ring N] [--repeats N]
 *                     times of events against a copy in the same process; Markdown rows. Each call on the
 *                     next of several sets of buffers, N bytes of values altogether (cold), and on the same
 *                     set each time (hot)
 *
 * --limit S, for all: a case that takes longer than S seconds ends the program, status 70; 0, the default:
 * no limit. Exit: 0 equal, 1 different or failed, 2 usage, 70 hangs, 77 no driver or no device. Whatever
 * ends it, it prints what was compared last.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

static void open_device(void)
{
    gw_status status = cuda_device_open(&device, 0);
    if (status == GW_OK) {
        status = gw_cuda_init(&cuda);
    }
    if (status != GW_OK) {
        printf("gpu_check: %s: %s (driver %u, %u)\n", gw_status_name(status), gw_status_message(status),
               device.error, gw_cuda_driver_error(&cuda));
        /* Only what is not there is absent: an image that does not load is a failure. */
        exit(status == GW_ERR_NO_DRIVER || status == GW_ERR_NO_DEVICE ? 77 : 1);
    }
    gw_cuda_info info;
    must(gw_cuda_device_info(&cuda, &info), "gw_cuda_device_info");
    printf("device %s, compute capability %u.%u, %u multiprocessors, driver %u\n", device.name,
           info.arch_major, info.arch_minor, info.multiprocessor_count, info.driver_version);
}

typedef struct options {
    size_t len, bytes, ring_bytes;
    unsigned long count;
    uint32_t chunk_log2;
    gw_dtype dtype;
    uint64_t seed;
    const char *write_to, *check_with, *again_with;
} options;

/* Sets the option `name`; 0 if there is none. */
static int set_option(options *o, const char *name, const char *value)
{
    if (strcmp(name, "--len") == 0) {
        o->len = strtoul(value, NULL, 10);
    } else if (strcmp(name, "--bytes") == 0) {
        o->bytes = strtoul(value, NULL, 10);
    } else if (strcmp(name, "--count") == 0) {
        o->count = strtoul(value, NULL, 10);
    } else if (strcmp(name, "--ring") == 0) {
        o->ring_bytes = strtoul(value, NULL, 10);
    } else if (strcmp(name, "--repeats") == 0) {
        repeats = atoi(value);
        repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
    } else if (strcmp(name, "--dtype") == 0) {
        o->dtype = strcmp(value, "bf16") == 0 ? GW_BF16 : strcmp(value, "fp16") == 0 ? GW_FP16 : GW_FP32;
    } else if (strcmp(name, "--chunk") == 0) {
        o->chunk_log2 = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--clear") == 0) {
        clears_workspaces = atoi(value);
    } else if (strcmp(name, "--limit") == 0) {
        case_seconds = (unsigned)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--seed") == 0) {
        o->seed = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--write") == 0) {
        o->write_to = value;
    } else if (strcmp(name, "--check") == 0) {
        o->check_with = value;
    } else if (strcmp(name, "--again") == 0) {
        o->again_with = value;
    } else {
        fprintf(stderr, "gpu_check: unknown option %s\n", name);
        return 0;
    }
    return 1;
}

/* Digests to or from a file, by the CPU alone or by the device. 0 if there is no such file. */
static int digests_of_file(const char *path, int is_written, int use_device, size_t len)
{
    FILE *f = fopen(path, is_written ? "w" : "r");

    if (f == NULL) {
        perror(path);
        return 0;
    }
    run_digests(is_written ? f : NULL, is_written ? NULL : f, use_device, len);
    if (fclose(f) != 0) {
        perror(path);
        differences++;
    }
    return 1;
}

/* Runs a stage that needs the device; 0: there is no such stage. */
static int run_stage(const char *stage, const options *o, char **paths, int path_count)
{
    const size_t len = o->len != 0 ? o->len : 300000;

    if (strcmp(stage, "gcomp") == 0) {
        run_gcomp(len, o->chunk_log2, o->seed);
    } else if (strcmp(stage, "calls") == 0) {
        run_calls(len, o->seed);
        run_dial(len, o->seed);
    } else if (strcmp(stage, "thc") == 0) {
        run_thc(len, o->seed);
    } else if (strcmp(stage, "map") == 0) {
        run_map(len, o->seed);
    } else if (strcmp(stage, "hostile") == 0) {
        run_hostile(o->count, len, o->chunk_log2, o->seed);
    } else if (strcmp(stage, "graph") == 0) {
        run_graph(len, o->seed);
    } else if (strcmp(stage, "bench") == 0) {
        run_bench(o->bytes, o->ring_bytes, o->dtype, o->seed);
    } else if (strcmp(stage, "vectors") == 0 && path_count > 0) {
        check_vectors(paths[0]);
    } else if (strcmp(stage, "states") == 0 && path_count > 0) {
        check_states(paths[0], o->len != 0 ? o->len : SIZE_MAX);
    } else if (strcmp(stage, "files") == 0) {
        for (int i = 0; i < path_count; i++) {
            if (ends_with(paths[i], ".npy")) {
                check_npy(paths[i]);
            } else {
                check_frame(paths[i]);
            }
        }
    } else if (strcmp(stage, "digests") == 0 && o->check_with != NULL) {
        return digests_of_file(o->check_with, 0, 1, o->len != 0 ? o->len : (size_t)1 << 20);
    } else {
        fprintf(stderr,
                "usage: gpu_check gcomp|calls|thc|map|hostile|graph|bench|files|vectors|states|digests "
                "[options] [PATH...]\n");
        return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    options o = {.bytes = (size_t)256 << 20,
                 .ring_bytes = (size_t)512 << 20,
                 .count = 200,
                 .dtype = GW_FP32,
                 .seed = 1};
    const char *stage = argc > 1 ? argv[1] : "";
    int i = 2;

    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!set_option(&o, argv[i], argv[i + 1])) {
            return 2;
        }
    }
    /* A stage that is stopped keeps what it has printed. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, on_signal);
    signal(SIGALRM, on_signal);
    const char *of_cpu = o.write_to != NULL ? o.write_to : o.again_with;
    if (strcmp(stage, "digests") == 0 && of_cpu != NULL) {
        if (!digests_of_file(of_cpu, o.write_to != NULL, 0, o.len != 0 ? o.len : (size_t)1 << 20)) {
            return 2;
        }
    } else {
        begin_case(stage, "opening the device");
        open_device();
        if (!run_stage(stage, &o, argv + i, argc > i ? argc - i : 0)) {
            return 2;
        }
    }
    printf("%s: %lu comparisons, %d different\n", stage, compared, differences);
    if (strcmp(stage, "digests") != 0 || of_cpu == NULL) {
        begin_case(stage, "closing the device");
        gw_cuda_close(&cuda);
        cuda_device_close(&device);
    }
    return differences == 0 ? 0 : 1;
}
