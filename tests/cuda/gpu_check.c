/*
 * What a GPU is asked to show: the CPU's bytes and statuses on random, recorded and hostile input, from
 * graphs and two streams, and how long it takes. scripts/gpu runs it stage by stage; any stage runs alone.
 *
 *   gpu_check gcomp   [--len N] [--seed S] [--chunk L]
 *                     random tensors, all dtypes, levels and presets, chunks of all lengths or of 2^L values:
 *                     encode, decode, sums, hops
 *   gpu_check calls   [--len N] [--seed S]      codebooks built on the device, installed, or lying in device
 *                     memory with map base and key; batches
 *   gpu_check thc     [--len N] [--seed S]      random tensors, all block lengths and widths: norms to decode
 *   gpu_check map     [--len N]                 precision maps of the seven optimizers
 *   gpu_check files   PATH...                   .npy files of fp32 (each encoded and decoded), .gw frames
 *                     (each decoded as all three dtypes, by a receiver that has neither map nor codebook)
 *   gpu_check vectors FOLDER                    golden frames by FOLDER/index.tsv, with the maps and
 *                     codebooks that it names: valid ones to their stored values, others to their status
 *   gpu_check states  FILE [--len N]            recorded gradients with the parameters and optimizer states
 *                     that FILE lists: maps of the seven optimizers, frames of derived levels with them;
 *                     at most the first N values of each
 *   gpu_check hostile [--count N] [--len N] [--chunk L] [--clear 1]
 *                     damaged frames and lanes; all of chunks of 2^L; decode workspaces cleared before use
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
 * ends it, it says what was compared last.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_device.h"
#include "gradwire/cuda.h"
#include "vector.h"

enum { EXIT_HANGS = 70 };

static cuda_device device;
static gw_cuda cuda;
static uint32_t cpu_backends = GW_BACKEND_ALL;
static int differences;
static unsigned long compared;
static unsigned case_seconds; /* that a case may take; 0: as long as it likes */
static int clears_workspaces;

/* What a program that fails or hangs has to say: the case, and the comparison before. */
static char last_compared[256] = "nothing was compared\n";
static char current_case[200] = "no case had begun\n";

static void say_last(void)
{
    fprintf(stderr, "gpu_check: in case: %sgpu_check: last compared: %s", current_case, last_compared);
}

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(1);
    }
}

/* `timeout` sends SIGTERM to a stage that takes too long, the alarm clock SIGALRM to a case that does. Only
 * what a handler may call is called; a driver that hangs must not be asked for anything. */
static void on_signal(int number)
{
    write_text(number == SIGALRM ? "gpu_check: HANGS: a case took longer than --limit allows\n"
                                 : "gpu_check: stopped\n");
    write_text("gpu_check: in case: ");
    write_text(current_case);
    write_text("gpu_check: last compared: ");
    write_text(last_compared);
    _exit(number == SIGALRM ? EXIT_HANGS : 128 + number);
}

/* From here on it is this case's time. */
static void begin_case(const char *name, const char *call)
{
    snprintf(current_case, sizeof current_case, "%.160s: %.30s\n", name, call);
    alarm(case_seconds);
}

/* ---- small things -------------------------------------------------------------------------------------- */

static void *take(size_t size)
{
    void *p = malloc(size + (size == 0));
    if (p == NULL) {
        fprintf(stderr, "gpu_check: out of memory\n");
        exit(1);
    }
    return p;
}

static void *on_device(const void *src, size_t size)
{
    void *p = cuda_device_take(&device, src, size);
    if (p == NULL) {
        fprintf(stderr, "gpu_check: the device has no %zu bytes left, or failed (%u)\n", size, device.error);
        say_last();
        exit(1);
    }
    return p;
}

/* A workspace: unspecified bytes, or zeros where nothing but its end is of interest (--clear). */
static void *workspace_on_device(size_t size)
{
    if (!clears_workspaces) {
        return on_device(NULL, size);
    }
    void *zeros = calloc(size + (size == 0), 1);
    if (zeros == NULL) {
        fprintf(stderr, "gpu_check: out of memory\n");
        exit(1);
    }
    void *p = on_device(zeros, size);
    free(zeros);
    return p;
}

static void give(void *p)
{
    cuda_device_give(&device, p);
}

static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "gpu_check: %s: %s (driver %u)\n", what, gw_status_name(status),
                gw_cuda_driver_error(&cuda));
        say_last();
        exit(1);
    }
}

static void fetch(void *dst, const void *src, size_t size)
{
    if (cuda_device_get(&device, dst, src, size) != 0) {
        fprintf(stderr, "gpu_check: the device failed (%u)\n", device.error);
        say_last();
        exit(1);
    }
}

static gw_cuda_result fetch_result(const gw_cuda_result *result)
{
    gw_cuda_result r;
    fetch(&r, result, sizeof r);
    return r;
}

static void expect(int is_equal, const char *what, const char *case_name)
{
    compared++;
    alarm(case_seconds);
    snprintf(last_compared, sizeof last_compared, "%.160s: %.60s\n", case_name, what);
    if (!is_equal) {
        differences++;
        if (differences <= 20) {
            printf("DIFFERENT %s: %s\n", case_name, what);
        }
    }
}

/* Device memory equals host memory. */
static void expect_bytes(const void *at, const void *expected, size_t size, const char *what,
                         const char *case_name)
{
    void *copy = take(size);
    fetch(copy, at, size);
    expect(memcmp(copy, expected, size) == 0, what, case_name);
    free(copy);
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Gradient-like bits: geometric exponents, some zeros and subnormals, `special` in 4096 not finite. */
static void fill(void *dst, gw_dtype dtype, size_t len, unsigned special, uint64_t *random)
{
    const unsigned mantissa = dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
    const uint32_t top = dtype == GW_FP16 ? 31 : 255, middle = dtype == GW_FP16 ? 12 : 118;

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = next_random(random);
        uint32_t exponent = middle, field = (uint32_t)(r >> 8) & ((1u << mantissa) - 1);
        for (uint64_t bits = r; (bits & 1) == 0 && exponent > middle - 9; bits >>= 1) {
            exponent--;
        }
        if ((r >> 40 & 255) < 8) {
            exponent = 0;
            field = (r >> 40 & 255) == 0 ? field : 0;
        }
        if ((r >> 20 & 4095) < special) {
            exponent = top;
        }
        const uint32_t bits =
            (uint32_t)(r >> 63) << (dtype == GW_FP32 ? 31 : 15) | exponent << mantissa | field;
        if (dtype == GW_FP32) {
            memcpy((uint8_t *)dst + 4 * i, &bits, 4);
        } else {
            const uint16_t half = (uint16_t)bits;
            memcpy((uint8_t *)dst + 2 * i, &half, 2);
        }
    }
}

/* ---- GCOMP --------------------------------------------------------------------------------------------- */

typedef struct gcomp_case {
    gw_gcomp codec;
    gw_gcomp_map map, device_map;
    gw_gcomp_source source, device_source;
    size_t value_size;
    uint8_t *frame;
    size_t frame_size, bound;
    char name[160];
} gcomp_case;

static void make_codec(gcomp_case *c, gw_dtype dtype, int levels, int preset, int rounding,
                       uint32_t chunk_log2, int checksum)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, dtype);
    o.levels = (gw_gcomp_levels)levels;
    o.preset = (gw_gcomp_preset)preset;
    o.rounding = (gw_gcomp_rounding)rounding;
    o.chunk_log2 = chunk_log2;
    o.checksum = checksum;
    o.backends = cpu_backends;
    must(gw_gcomp_init(&c->codec, &o), "gw_gcomp_init");
}

/* Values and levels (NULL: no map), both owned by the case from here on, also on the device, and the CPU's
 * frame. */
static void make_case_of(gcomp_case *c, gw_dtype dtype, void *values, size_t len, uint8_t *levels,
                         uint32_t base, float wire_scale, uint32_t chunk_log2)
{
    begin_case(c->name, "encode by the CPU");
    c->value_size = len * gw_dtype_size(dtype);
    memset(&c->source, 0, sizeof c->source);
    c->source.values = values;
    c->source.len = len;
    c->source.seed = 99;
    c->source.step_index = 3;
    c->device_source = c->source;
    c->device_source.values = on_device(values, c->value_size);
    memset(&c->device_map, 0, sizeof c->device_map);
    if (levels != NULL) {
        const size_t chunks = (len >> chunk_log2) + 1;
        uint32_t *digest = take(4 * chunks);
        must(gw_gcomp_map_digest(levels, len, chunk_log2, digest), "gw_gcomp_map_digest");
        c->map = (gw_gcomp_map){levels, digest, base, wire_scale, len, chunk_log2};
        c->device_map = c->map;
        c->device_map.levels = on_device(levels, len);
        c->device_map.digest = on_device(digest, 4 * chunks);
        c->source.map = &c->map;
        c->device_source.map = &c->device_map;
    }
    c->bound = gw_gcomp_bound(&c->codec, len);
    c->frame = take(c->bound);
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));
    gw_buffer out = {c->frame, c->bound, 0};
    must(gw_gcomp_encode(&c->codec, &c->source, &out,
                         &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_encode");
    c->frame_size = out.size;
    free(workspace);
}

/* The same with random levels if has_map. */
static void make_case(gcomp_case *c, gw_dtype dtype, void *values, size_t len, int has_map,
                      uint32_t chunk_log2, uint64_t *random)
{
    uint8_t *levels = has_map ? take(len) : NULL;

    for (size_t i = 0; has_map && i < len; i++) {
        levels[i] = (uint8_t)(next_random(random) % 160);
    }
    make_case_of(c, dtype, values, len, levels, dtype == GW_FP16 ? 420u : 380u, 1.0f, chunk_log2);
}

static void drop_case(gcomp_case *c)
{
    give((void *)(uintptr_t)c->device_source.values);
    give((void *)(uintptr_t)c->device_map.levels);
    give((void *)(uintptr_t)c->device_map.digest);
    if (c->source.map != NULL) {
        free((void *)(uintptr_t)c->map.levels);
        free((void *)(uintptr_t)c->map.digest);
    }
    free((void *)(uintptr_t)c->source.values);
    free(c->frame);
}

/* Decodes bytes on both sides: status, chunk, values. Returns the device's status. */
static gw_status compare_decode(const gcomp_case *c, const uint8_t *frame, size_t size, int is_add)
{
    const size_t len = (size_t)c->source.len;
    begin_case(c->name, is_add ? "decode_add" : "decode");
    const size_t workspace_size = gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, len);
    uint8_t *values = take(c->value_size);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    void *workspace = workspace_on_device(workspace_size), *src = on_device(frame, size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    const gw_gcomp_map *map = c->source.map;
    const gw_gcomp_map *device_map = c->device_source.map;
    gw_status status;

    /* Not the values themselves: what is not written must show. */
    memset(values, 0x5a, c->value_size);
    if (is_add) {
        memcpy(values, c->source.values, c->value_size);
    }
    void *dst = on_device(values, c->value_size);
    const gw_gcomp_frame in = {frame, size, map};
    const gw_workspace cpu_work = {cpu_workspace, gw_gcomp_workspace_size(&c->codec)};
    gw_gcomp_target target = {.values = values, .capacity = len};
    if (is_add) {
        status = gw_gcomp_decode_add(&c->codec, &in, &target, &cpu_work);
        must(gw_cuda_gcomp_decode_add(&cuda, &c->codec, &(gw_cuda_frame){src, size, NULL, device_map},
                                      &(gw_cuda_target){dst, len},
                                      &(gw_cuda_request){NULL, result, {workspace, workspace_size}, NULL}),
             "gw_cuda_gcomp_decode_add");
    } else {
        status = gw_gcomp_decode(&c->codec, &in, &target, &cpu_work);
        must(gw_cuda_gcomp_decode(&cuda, &c->codec, &(gw_cuda_frame){src, size, NULL, device_map},
                                  &(gw_cuda_target){dst, len},
                                  &(gw_cuda_request){NULL, result, {workspace, workspace_size}, NULL}),
             "gw_cuda_gcomp_decode");
    }
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status, "status of decode", c->name);
    expect(r.bad_index == target.bad_chunk, "chunk of decode", c->name);
    expect(r.len == target.len, "length of decode", c->name);
    expect_bytes(dst, values, c->value_size, is_add ? "values of decode_add" : "values of decode", c->name);
    give(dst);
    give(result);
    give(src);
    give(workspace);
    free(cpu_workspace);
    free(values);
    return (gw_status)r.status;
}

/* The same without values. */
static void compare_validate(const gcomp_case *c, const uint8_t *frame, size_t size)
{
    begin_case(c->name, "validate");
    const size_t workspace_size = gw_cuda_gcomp_decode_workspace_size(&c->codec, 1, c->source.len);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    void *workspace = workspace_on_device(workspace_size), *src = on_device(frame, size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    uint64_t bad;

    const gw_status status =
        gw_gcomp_validate(&c->codec, &(gw_gcomp_frame){.data = frame, .size = size, .map = c->source.map},
                          &bad, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)});
    must(gw_cuda_gcomp_validate(&cuda, &c->codec, &(gw_cuda_frame){src, size, NULL, c->device_source.map},
                                c->source.len,
                                &(gw_cuda_request){NULL, result, {workspace, workspace_size}, NULL}),
         "gw_cuda_gcomp_validate");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status && r.bad_index == bad, "validate", c->name);
    give(result);
    give(src);
    give(workspace);
    free(cpu_workspace);
}

static void compare_encode(const gcomp_case *c)
{
    begin_case(c->name, "encode");
    const size_t size = gw_cuda_gcomp_encode_workspace_size(&c->codec, 1, c->source.len);
    void *workspace = workspace_on_device(size), *dst = on_device(NULL, c->bound);
    gw_cuda_result *result = on_device(NULL, sizeof *result);

    must(gw_cuda_gcomp_encode(&cuda, &c->codec, &c->device_source, &(gw_cuda_buffer){dst, c->bound},
                              &(gw_cuda_request){NULL, result, {workspace, size}, NULL}),
         "gw_cuda_gcomp_encode");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == GW_OK && r.size == c->frame_size, "size of encode", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes of encode", c->name);
    give(result);
    give(dst);
    give(workspace);
}

static void compare_hop(const gcomp_case *c)
{
    begin_case(c->name, "hop");
    const size_t size = gw_cuda_gcomp_hop_workspace_size(&c->codec, 1, c->source.len);
    void *workspace = workspace_on_device(size), *dst = on_device(NULL, c->bound),
         *src = on_device(c->frame, c->frame_size);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    uint8_t *frame = take(c->bound);
    uint64_t bad;

    gw_buffer out = {frame, c->bound, 0};
    must(gw_gcomp_decode_add_encode(
             &c->codec, &(gw_gcomp_frame){.data = c->frame, .size = c->frame_size, .map = c->source.map},
             &c->source, &out, &bad, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_decode_add_encode");
    must(gw_cuda_gcomp_decode_add_encode(&cuda, &c->codec,
                                         &(gw_cuda_frame){src, c->frame_size, NULL, c->device_source.map},
                                         &c->device_source, &(gw_cuda_buffer){dst, c->bound},
                                         &(gw_cuda_request){NULL, result, {workspace, size}, NULL}),
         "gw_cuda_gcomp_decode_add_encode");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == GW_OK && r.size == out.size, "size of hop", c->name);
    expect_bytes(dst, frame, out.size, "bytes of hop", c->name);
    free(frame);
    free(cpu_workspace);
    give(result);
    give(src);
    give(dst);
    give(workspace);
}

/* all_chunk_log2: 0 for all four. */
static void run_gcomp(size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    const size_t lens[] = {0, 1, 63, 4097, len, len + 77, len / 2 + 5};
    static const uint32_t chunk_log2s[] = {12, 13, 14, 15, 13, 14, 15};

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = 0; levels < 2; levels++) {
            for (int preset = 0; preset < 2; preset++) {
                for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                    gcomp_case c;
                    uint64_t random = seed + i;
                    const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : chunk_log2s[i];
                    const int rounding = (int)((i + dtype) % 3), checksum = (int)(i & 1);
                    void *values = take(lens[i] * gw_dtype_size((gw_dtype)dtype));
                    fill(values, (gw_dtype)dtype, lens[i], (unsigned)(i & 1), &random);
                    make_codec(&c, (gw_dtype)dtype, levels, preset, rounding, chunk_log2, checksum);
                    snprintf(c.name, sizeof c.name,
                             "dtype %u levels %d preset %d rounding %d chunk %u len %zu", dtype, levels,
                             preset, rounding, 1u << chunk_log2, lens[i]);
                    make_case(&c, (gw_dtype)dtype, values, lens[i], i != 2 && i != 4, chunk_log2, &random);
                    compare_encode(&c);
                    compare_decode(&c, c.frame, c.frame_size, 0);
                    compare_decode(&c, c.frame, c.frame_size, 1);
                    compare_hop(&c);
                    compare_validate(&c, c.frame, c.frame_size);
                    drop_case(&c);
                }
            }
        }
    }
}

/* The CPU's frame of the case, once more: the codec has changed. */
static void encode_again(gcomp_case *c)
{
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));

    gw_buffer out = {c->frame, c->bound, 0};
    must(gw_gcomp_encode(&c->codec, &c->source, &out,
                         &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_encode");
    c->frame_size = out.size;
    free(workspace);
}

/* The codebook of the case's values: counted and built on the device, equal to the CPU's, which is left in
 * book; then all calls with it installed in the codec. */
static void compare_book(gcomp_case *c, uint8_t book[GW_GCOMP_BOOK_SIZE_MAX], size_t *book_size)
{
    begin_case(c->name, "codebook");
    static const gw_cuda_histogram none;
    gw_gcomp_histogram histogram;
    void *cpu_workspace = take(gw_gcomp_workspace_size(&c->codec));
    gw_cuda_histogram *device_histogram = on_device(&none, sizeof none);
    void *workspace = on_device(NULL, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE);
    uint8_t *device_book = on_device(NULL, GW_GCOMP_BOOK_SIZE_MAX);
    uint32_t *device_size = on_device(NULL, 4), size_found = 0;
    gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);

    must(gw_gcomp_histogram_init(&histogram, &c->codec), "gw_gcomp_histogram_init");
    must(gw_gcomp_histogram_add(&histogram, &c->codec, &c->source,
                                &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_histogram_add");
    gw_buffer out = {book, GW_GCOMP_BOOK_SIZE_MAX, 0};
    must(gw_gcomp_book_build(&histogram, &out), "gw_gcomp_book_build");
    *book_size = out.size;
    must(gw_cuda_gcomp_histogram_add(
             &cuda, &c->codec, &c->device_source, device_histogram,
             &(gw_cuda_request){NULL, &result[0], {workspace, GW_CUDA_HISTOGRAM_WORKSPACE_SIZE}, NULL}),
         "gw_cuda_gcomp_histogram_add");
    must(gw_cuda_gcomp_book_build(&cuda, &c->codec, device_histogram,
                                  &(gw_cuda_gcomp_books){device_book, device_size, 1},
                                  &(gw_cuda_request){NULL, &result[1], {NULL, 0}, NULL}),
         "gw_cuda_gcomp_book_build");
    fetch(&size_found, device_size, 4);
    expect(fetch_result(&result[0]).status == GW_OK && size_found == *book_size, "size of codebook", c->name);
    expect_bytes(device_book, book, *book_size, "codebook", c->name);
    give(result);
    give(device_size);
    give(device_book);
    give(workspace);
    give(device_histogram);
    free(cpu_workspace);

    must(gw_gcomp_install(&c->codec, 7, 8, book, *book_size, 1), "gw_gcomp_install");
    encode_again(c);
    compare_encode(c);
    compare_decode(c, c->frame, c->frame_size, 0);
    compare_decode(c, c->frame, c->frame_size, 1);
    compare_validate(c, c->frame, c->frame_size);
    compare_hop(c);
}

/* Installs the codebook of the case's values, which encodes from now on. */
static void install_own_book(gcomp_case *c)
{
    gw_gcomp_histogram histogram;
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
    void *workspace = take(gw_gcomp_workspace_size(&c->codec));

    must(gw_gcomp_histogram_init(&histogram, &c->codec), "gw_gcomp_histogram_init");
    must(gw_gcomp_histogram_add(&histogram, &c->codec, &c->source,
                                &(gw_workspace){workspace, gw_gcomp_workspace_size(&c->codec)}),
         "gw_gcomp_histogram_add");
    gw_buffer out = {book, sizeof book, 0};
    must(gw_gcomp_book_build(&histogram, &out), "gw_gcomp_book_build");
    must(gw_gcomp_install(&c->codec, 7, 8, book, out.size, 1), "gw_gcomp_install");
    free(workspace);
    encode_again(c);
}

/* Codebook, map base and key from device memory; what the host says of them is wrong. `plain` has no
 * codebook. */
static void compare_device_arguments(const gcomp_case *c, const gw_gcomp *plain, const uint8_t *book,
                                     size_t book_size)
{
    begin_case(c->name, "arguments on the device");
    const gw_cuda_key key = {c->source.seed, c->source.step_index, c->source.rank, c->source.hop};
    const uint32_t size = (uint32_t)book_size;
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(plain, 1, c->source.len);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(plain, 1, c->source.len);
    uint32_t *base = on_device(&c->map.base, 4), *size_at = on_device(&size, 4);
    gw_cuda_key *key_at = on_device(&key, sizeof key);
    uint8_t *book_at = on_device(book, book_size);
    void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size);
    void *dst = on_device(NULL, c->bound), *values = on_device(NULL, c->value_size);
    gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);
    gw_gcomp_map map = c->device_map;
    gw_gcomp_source source = c->device_source;

    map.base = 1;
    source.map = &map;
    source.seed = 0;
    source.step_index = 0;
    const gw_cuda_gcomp_device arguments = {base, key_at, book_at, size_at, 7, 8};
    must(gw_cuda_gcomp_encode(&cuda, plain, &source, &(gw_cuda_buffer){dst, c->bound},
                              &(gw_cuda_request){&arguments, &result[0], {encode_at, encode_size}, NULL}),
         "gw_cuda_gcomp_encode");
    must(gw_cuda_gcomp_decode(&cuda, plain, &(gw_cuda_frame){dst, c->bound, &result[0].size, &map},
                              &(gw_cuda_target){values, c->source.len},
                              &(gw_cuda_request){&arguments, &result[1], {decode_at, decode_size}, NULL}),
         "gw_cuda_gcomp_decode");
    expect(fetch_result(&result[0]).size == c->frame_size, "size with arguments on the device", c->name);
    expect_bytes(dst, c->frame, c->frame_size, "bytes with arguments on the device", c->name);
    expect(fetch_result(&result[1]).status == GW_OK, "decode with arguments on the device", c->name);
    give(result);
    give(values);
    give(dst);
    give(decode_at);
    give(encode_at);
    give(book_at);
    give(key_at);
    give(size_at);
    give(base);
}

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
        void *values = take(n * gw_dtype_size(dtype));
        fill(values, dtype, n, 1, random);
        make_codec(&c[i], dtype, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_NEAREST, 12, 1);
        snprintf(c[i].name, sizeof c[i].name, "dtype %d item %d of a batch, len %zu", dtype, i, n);
        make_case(&c[i], dtype, values, n, 0, 12, random);
        encode[i].src = c[i].device_source.values;
        encode[i].src_size = n;
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
    const gw_cuda_key key = {99, 3, 0, 0};
    must(gw_cuda_gcomp_encode_batch(&cuda, codec,
                                    &(gw_cuda_gcomp_batch){device_encode, ITEMS, total, NULL, &key, 0},
                                    &(gw_cuda_request){NULL, NULL, {encode_at, encode_size}, NULL}),
         "gw_cuda_gcomp_encode_batch");
    must(gw_cuda_gcomp_decode_batch(&cuda, codec,
                                    &(gw_cuda_gcomp_batch){device_decode, ITEMS, total, NULL, NULL, 0},
                                    &(gw_cuda_request){NULL, NULL, {decode_at, decode_size}, NULL}),
         "gw_cuda_gcomp_decode_batch");
    for (int i = 0; i < ITEMS; i++) {
        uint8_t *values = take(c[i].value_size);
        void *workspace = take(gw_gcomp_workspace_size(codec));
        gw_gcomp_target target = {.values = values, .capacity = c[i].source.len};
        must(gw_gcomp_decode(codec, &(gw_gcomp_frame){.data = c[i].frame, .size = c[i].frame_size}, &target,
                             &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
             "gw_gcomp_decode");
        const gw_cuda_result r = fetch_result(results + i), d = fetch_result(results + ITEMS + i);
        expect(r.status == GW_OK && r.size == c[i].frame_size, "size of encode", c[i].name);
        expect_bytes(encode[i].dst, c[i].frame, c[i].frame_size, "bytes of encode", c[i].name);
        expect(d.status == GW_OK && d.len == c[i].source.len, "length of decode", c[i].name);
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
static void compare_hop_batch(gw_dtype dtype, int levels, size_t len, uint64_t *random)
{
    enum { ITEMS = 120, DAMAGED = 77, LARGE = 78 };
    static gw_cuda_gcomp_item count[ITEMS];
    static gw_cuda_gcomp_hop hops[ITEMS];
    static gcomp_case c[ITEMS];
    static const gw_cuda_histogram none;
    gw_gcomp_histogram histogram;
    uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
    gw_cuda_result *results = on_device(NULL, (2 * ITEMS + 1) * sizeof *results);
    gw_cuda_histogram *device_histogram = on_device(&none, sizeof none);
    uint8_t *device_book = on_device(NULL, GW_GCOMP_BOOK_SIZE_MAX);
    uint32_t *device_size = on_device(NULL, 4);
    const gw_cuda_gcomp_device arguments = {NULL, NULL, device_book, device_size, 7, 8};
    const gw_cuda_key key = {99, 3, 0, 0};
    uint64_t total = 0;

    memset(count, 0, sizeof count);
    memset(hops, 0, sizeof hops);
    for (int i = 0; i < ITEMS; i++) {
        const size_t n = i == LARGE     ? len
                         : i == DAMAGED ? 5000
                         : i % 7 == 0   ? 0
                                        : (size_t)(next_random(random) % (len / 64 + 2));
        void *values = take(n * gw_dtype_size(dtype));
        fill(values, dtype, n, 1, random);
        make_codec(&c[i], dtype, levels, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 12, 1);
        snprintf(c[i].name, sizeof c[i].name, "dtype %d item %d of a batch of hops, len %zu", dtype, i, n);
        make_case(&c[i], dtype, values, n, 1, 12, random);
        if (i == DAMAGED) {
            c[i].frame[c[i].frame_size - 20] ^= 0x11;
        }
        count[i].src = c[i].device_source.values;
        count[i].src_size = n;
        count[i].dst = device_histogram;
        count[i].levels = c[i].device_map.levels;
        count[i].digest = c[i].device_map.digest;
        count[i].map_len = n;
        count[i].result = results + i;
        hops[i].src = on_device(c[i].frame, c[i].frame_size);
        hops[i].src_size = c[i].frame_size;
        hops[i].values = count[i].src;
        hops[i].len = n;
        hops[i].dst = on_device(NULL, c[i].bound);
        hops[i].dst_capacity = c[i].bound;
        hops[i].levels = hops[i].src_levels = count[i].levels;
        hops[i].digest = hops[i].src_digest = count[i].digest;
        hops[i].map_len = hops[i].src_map_len = n;
        hops[i].result = results + ITEMS + i;
        total += n;
    }
    const gw_gcomp *codec = &c[0].codec;
    gw_gcomp with_book = *codec;
    const gw_gcomp_map *map = &c[0].device_map;
    const size_t count_size = gw_cuda_gcomp_histogram_workspace_size(codec, ITEMS);
    const size_t hop_size = gw_cuda_gcomp_hop_workspace_size(codec, ITEMS, total);
    void *count_at = workspace_on_device(count_size), *hop_at = workspace_on_device(hop_size);
    gw_cuda_gcomp_item *device_count = on_device(count, sizeof count);
    gw_cuda_gcomp_hop *device_hops = on_device(hops, sizeof hops);
    begin_case("batch", "codebook and hops");
    must(gw_cuda_gcomp_histogram_add_batch(&cuda, codec,
                                           &(gw_cuda_gcomp_batch){device_count, ITEMS, total, map, &key, 0},
                                           &(gw_cuda_request){NULL, NULL, {count_at, count_size}, NULL}),
         "gw_cuda_gcomp_histogram_add_batch");
    must(gw_cuda_gcomp_book_build(&cuda, codec, device_histogram,
                                  &(gw_cuda_gcomp_books){device_book, device_size, 1},
                                  &(gw_cuda_request){NULL, results + 2 * ITEMS, {NULL, 0}, NULL}),
         "gw_cuda_gcomp_book_build_batch");
    must(gw_cuda_gcomp_decode_add_encode_batch(
             &cuda, codec, &(gw_cuda_gcomp_hop_batch){device_hops, ITEMS, total, map, map, &key},
             &(gw_cuda_request){&arguments, NULL, {hop_at, hop_size}, NULL}),
         "gw_cuda_gcomp_decode_add_encode_batch");

    void *workspace = take(gw_gcomp_workspace_size(codec));
    must(gw_gcomp_histogram_init(&histogram, codec), "gw_gcomp_histogram_init");
    for (int i = 0; i < ITEMS; i++) {
        must(gw_gcomp_histogram_add(&histogram, codec, &c[i].source,
                                    &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)}),
             "gw_gcomp_histogram_add");
    }
    gw_buffer out = {book, sizeof book, 0};
    must(gw_gcomp_book_build(&histogram, &out), "gw_gcomp_book_build");
    must(gw_gcomp_install(&with_book, 7, 8, book, out.size, 1), "gw_gcomp_install");
    expect(fetch_result(results + 2 * ITEMS).size == out.size, "size of codebook", c[0].name);
    expect_bytes(device_book, book, out.size, "codebook", c[0].name);
    for (int i = 0; i < ITEMS; i++) {
        uint8_t *frame = take(c[i].bound);
        uint64_t bad;
        gw_buffer out2 = {frame, c[i].bound, 0};
        const gw_status status = gw_gcomp_decode_add_encode(
            &with_book,
            &(gw_gcomp_frame){.data = c[i].frame, .size = c[i].frame_size, .map = c[i].source.map},
            &c[i].source, &out2, &bad, &(gw_workspace){workspace, gw_gcomp_workspace_size(codec)});
        const gw_cuda_result r = fetch_result(results + ITEMS + i);
        expect(r.status == (uint32_t)status && r.size == out2.size && r.bad_index == bad, "result of hop",
               c[i].name);
        expect((status != GW_OK) == (i == DAMAGED), "status of the CPU's hop", c[i].name);
        expect_bytes(hops[i].dst, frame, out2.size, "bytes of hop", c[i].name);
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
    give(device_book);
    give(device_histogram);
    give(results);
}

static void run_calls(size_t len, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = 0; levels < 2; levels++) {
            uint8_t book[GW_GCOMP_BOOK_SIZE_MAX];
            size_t book_size = 0;
            gcomp_case c;
            void *values = take(len * gw_dtype_size((gw_dtype)dtype));
            fill(values, (gw_dtype)dtype, len, 1, &random);
            make_codec(&c, (gw_dtype)dtype, levels, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 14, levels);
            const gw_gcomp plain = c.codec;
            snprintf(c.name, sizeof c.name, "codebook, dtype %u levels %d", dtype, levels);
            make_case(&c, (gw_dtype)dtype, values, len, 1, 14, &random);
            compare_book(&c, book, &book_size);
            compare_device_arguments(&c, &plain, book, book_size);
            drop_case(&c);
        }
        compare_batch((gw_dtype)dtype, len, &random);
        compare_hop_batch((gw_dtype)dtype, dtype == GW_BF16, len, &random);
    }
}

/* chunk_log2: 0 for all four. */
static void run_hostile(unsigned long count, size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned long i = 0; i < count; i++) {
        gcomp_case c;
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : 12 + (uint32_t)(i / 3 % 4);
        void *values = take(len * gw_dtype_size(dtype));
        fill(values, dtype, len, (unsigned)(i & 1), &random);
        make_codec(&c, dtype, (int)(i / 2 % 2), (int)(i / 4 % 2), 1, chunk_log2, (int)(i / 5 % 2));
        snprintf(c.name, sizeof c.name, "hostile %lu", i);
        make_case(&c, dtype, values, len, 1, chunk_log2, &random);
        for (int turn = 0; turn < 8; turn++) {
            uint8_t *wrong = take(c.frame_size);
            size_t size = c.frame_size;
            memcpy(wrong, c.frame, size);
            if (turn == 7) {
                size = (size_t)(next_random(&random) % size);
            } else {
                for (int j = 0; j <= turn / 2; j++) {
                    const size_t at =
                        (size_t)(next_random(&random) % (turn % 2 == 0 && size > 160 ? 160 : size));
                    wrong[at] = (uint8_t)next_random(&random);
                }
            }
            snprintf(c.name, sizeof c.name, "hostile %lu turn %d", i, turn);
            compare_decode(&c, wrong, size, turn & 1);
            compare_validate(&c, wrong, size);
            free(wrong);
        }
        drop_case(&c);
    }
}

/* ---- THC ----------------------------------------------------------------------------------------------- */

enum { WORKERS = 4 };

static gw_thc make_thc(unsigned workers, unsigned bits, unsigned block_log2, gw_dtype dtype,
                       unsigned lane_bits, int is_rotated, int feedback)
{
    gw_thc thc;
    gw_thc_options config;
    const gw_thc_goal goal = {bits, workers, lane_bits, feedback};
    const gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    must(gw_thc_options_init(&config, &goal, &workspace), "gw_thc_options_init");
    free(workspace.data);
    config.seed = 42;
    config.dtype = dtype;
    config.block_log2 = block_log2;
    config.backends = cpu_backends;
    if (!is_rotated) {
        config.transform = GW_THC_PLAIN;
        config.threshold_bits = 0;
    }
    must(gw_thc_init(&thc, &config), "gw_thc_init");
    return thc;
}

/* One round of four equal workers but for their ranks: norms, encode with feedback, sum, decode. */
static void compare_thc(const gw_thc *thc, const void *x, size_t len, const char *name)
{
    begin_case(name, "THC");
    const gw_thc_options *options = gw_thc_options_of(thc);
    const size_t value_size = len * gw_dtype_size(options->dtype);
    const uint64_t blocks = gw_thc_block_count(thc, len);
    const size_t patterns_size = 4 * (size_t)blocks * gw_thc_patterns_per_block(thc);
    const size_t indices_size = gw_thc_indices_size(thc, len, 0, blocks);
    const size_t lanes = (size_t)gw_thc_range_lanes(thc, len, 0, blocks);
    const size_t lanes_size = gw_thc_lanes_size(thc, len, 0, blocks);
    const int feedback = options->error_feedback;
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    void *device_x = on_device(x, value_size);
    uint32_t *patterns = take(patterns_size), *device_patterns = on_device(NULL, patterns_size);
    uint8_t *indices = take(indices_size), *sum = take(lanes_size), *device_sum = on_device(NULL, lanes_size);
    float *error = take(4 * len), *device_error;
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0}, cpu_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const uint8_t *sources[WORKERS];
    uint8_t *device_indices[WORKERS];
    uint32_t ranks[WORKERS];
    gw_thc_agg agg;
    gw_thc_range range = {len, 0, blocks, 7, 0};

    memset(error, 0, 4 * len);
    device_error = on_device(error, 4 * len);
    memset(sum, 0, lanes_size);
    must(gw_thc_agg_init(&agg,
                         &(gw_thc_agg_options){options->table, WORKERS, options->lane_bits, cpu_backends}),
         "gw_thc_agg_init");
    must(gw_thc_norms(thc, &range, &(gw_thc_source){.values = x, .error = feedback ? error : NULL}, patterns,
                      NULL, &workspace),
         "gw_thc_norms");
    must(gw_cuda_thc_norms(&cuda, thc, &range,
                           &(gw_thc_source){.values = device_x,
                                            .error = (float *)(uintptr_t)feedback ? device_error : NULL},
                           device_patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
         "gw_cuda_thc_norms");
    expect(fetch_result(result).status == GW_OK, "status of norms", name);
    expect_bytes(device_patterns, patterns, patterns_size, "norms", name);
    for (uint32_t w = 0; w < WORKERS; w++) {
        range.rank = w;
        ranks[w] = w;
        device_indices[w] = on_device(NULL, indices_size);
        sources[w] = device_indices[w];
        memset(error, 0, 4 * len);
        (void)cuda_device_put(&device, device_error, error, 4 * len);
        must(gw_thc_encode(
                 thc, &range,
                 &(gw_thc_source){.values = x, .error = feedback ? error : NULL, .patterns = patterns},
                 &(gw_buffer){indices, indices_size, 0}, NULL, &workspace),
             "gw_thc_encode");
        /* One of them has its key in device memory, and a range that says something else. */
        const gw_cuda_thc_key key = {options->seed, range.round, w};
        gw_cuda_thc_key *key_at = w == 2 ? on_device(&key, sizeof key) : NULL;
        gw_thc_range device_range = range;
        device_range.rank = w == 2 ? 0 : w;
        device_range.round = w == 2 ? 0 : range.round;
        must(gw_cuda_thc_encode(&cuda, thc, &device_range,
                                &(gw_thc_source){.values = device_x,
                                                 .error = feedback ? device_error : NULL,
                                                 .patterns = device_patterns,
                                                 .own_patterns = w & 1 ? device_patterns : NULL},
                                &(gw_cuda_buffer){device_indices[w], indices_size},
                                &(gw_cuda_thc_request){key_at, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_encode");
        expect(fetch_result(result).status == GW_OK, "status of encode", name);
        expect_bytes(device_indices[w], indices, indices_size, "indices", name);
        give(key_at);
        if (feedback) {
            expect_bytes(device_error, error, 4 * len, "error memory", name);
        }
        must(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum, cpu_set, lanes}, indices, w),
             "gw_thc_agg_add_indices");
    }
    must(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){device_sum, set, lanes},
                                 &(gw_cuda_thc_inputs){sources, ranks, NULL, WORKERS, 0}, NULL),
         "gw_cuda_thc_sum_indices");
    expect_bytes(device_sum, sum, lanes_size, "sum", name);

    /* The sum as a partial sum, sound and with a lane that four workers cannot make. */
    {
        const uint8_t *in_lanes[1] = {device_sum}, *in_sets[1] = {set};
        uint8_t *total = on_device(NULL, lanes_size), total_set[GW_THC_SET_SIZE(WORKERS)] = {0};
        must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){total, total_set, lanes},
                                   &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 1, 0},
                                   &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_sum_lanes");
        expect(fetch_result(result).status == GW_OK, "status of a sum of lanes", name);
        expect_bytes(total, sum, lanes_size, "sum of lanes", name);
        uint8_t *wrong = take(lanes_size);
        memcpy(wrong, sum, lanes_size);
        wrong[lanes_size - options->lane_bits / 8] = 255; /* above WORKERS * granularity of these tables */
        uint8_t *device_wrong = on_device(wrong, lanes_size);
        in_lanes[0] = device_wrong;
        memset(total_set, 0, sizeof total_set);
        must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){total, total_set, lanes},
                                   &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 1, 0},
                                   &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_sum_lanes");
        const uint32_t wanted = WORKERS * options->table.granularity < 255 ? GW_ERR_CORRUPT : GW_OK;
        expect(fetch_result(result).status == wanted, "status of a sum of wrong lanes", name);
        free(wrong);
        give(device_wrong);
        give(total);
    }

    /* A buffer for a raw all-reduce, and what is decoded from it. */
    {
        const size_t reduced_size = gw_thc_reduced_size(thc, len, 0, blocks);
        uint8_t *reduced = take(reduced_size), *device_reduced = on_device(NULL, reduced_size);
        void *cpu_out = take(value_size), *reduced_out = on_device(NULL, value_size);
        must(gw_thc_expand(thc, &range, &(gw_thc_indices){indices, indices_size, NULL},
                           &(gw_buffer){reduced, reduced_size, 0}),
             "gw_thc_expand");
        must(gw_cuda_thc_expand(&cuda, thc, &range,
                                &(gw_thc_indices){device_indices[WORKERS - 1], indices_size, NULL},
                                &(gw_cuda_buffer){device_reduced, reduced_size}, NULL),
             "gw_cuda_thc_expand");
        expect_bytes(device_reduced, reduced, reduced_size, "buffer for a raw reduction", name);
        must(gw_thc_decode_reduced(thc, &range, &(gw_thc_sum){reduced, reduced_size, NULL, patterns},
                                   GW_THC_MEAN, &(gw_thc_target){.values = cpu_out, .capacity = len},
                                   &workspace),
             "gw_thc_decode_reduced");
        must(gw_cuda_thc_decode_reduced(&cuda, thc, &range,
                                        &(gw_thc_sum){device_reduced, reduced_size, NULL, device_patterns},
                                        &(gw_cuda_target){reduced_out, len},
                                        &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, NULL}),
             "gw_cuda_thc_decode_reduced");
        expect(fetch_result(result).status == GW_OK, "status of a raw reduction", name);
        expect_bytes(reduced_out, cpu_out, value_size, "values of a raw reduction", name);
        free(cpu_out);
        free(reduced);
        give(reduced_out);
        give(device_reduced);
    }
    uint32_t *members = take(4 * (size_t)blocks);
    for (uint64_t b = 0; b < blocks; b++) {
        members[b] = WORKERS;
    }
    uint32_t *device_members = on_device(members, 4 * (size_t)blocks);
    void *out = take(value_size), *device_out = on_device(NULL, value_size);
    for (int mode = GW_THC_SUM; mode <= GW_THC_MEAN; mode++) {
        must(gw_thc_decode(thc, &range, &(gw_thc_sum){sum, lanes_size, members, patterns}, (gw_thc_mode)mode,
                           &(gw_thc_target){.values = out, .capacity = len}, &workspace),
             "gw_thc_decode");
        must(gw_cuda_thc_decode(&cuda, thc, &range,
                                &(gw_thc_sum){device_sum, lanes_size, device_members, device_patterns},
                                &(gw_cuda_target){device_out, len},
                                &(gw_cuda_thc_request){NULL, (gw_thc_mode)mode, result, NULL}),
             "gw_cuda_thc_decode");
        expect(fetch_result(result).status == GW_OK, "status of decode", name);
        expect_bytes(device_out, out, value_size, "decoded values", name);
    }
    give(device_out);
    give(device_members);
    give(result);
    give(device_error);
    give(device_sum);
    give(device_patterns);
    give(device_x);
    for (int w = 0; w < WORKERS; w++) {
        give(device_indices[w]);
    }
    free(out);
    free(members);
    free(error);
    free(sum);
    free(indices);
    free(patterns);
    free(workspace.data);
}

static void run_thc(size_t len, uint64_t seed)
{
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        for (unsigned bits = 1; bits <= 4; bits++) {
            for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
                const gw_dtype dtype = (gw_dtype)(1 + (bits + block_log2) % 3);
                const unsigned lane_bits = bits == 2 ? 16 : bits == 3 ? 32 : 8;
                const gw_thc thc =
                    make_thc(WORKERS, bits, block_log2, dtype, lane_bits, is_rotated, is_rotated && bits > 1);
                char name[96];
                uint64_t random = seed + block_log2;
                const size_t n = len + 5 * bits;
                void *x = take(n * gw_dtype_size(dtype));
                fill(x, dtype, n, 0, &random);
                snprintf(name, sizeof name, "thc bits %u block %u dtype %d rotated %d", bits,
                         1u << block_log2, dtype, is_rotated);
                compare_thc(&thc, x, n, name);
                free(x);
            }
        }
    }
}

/* ---- precision map ------------------------------------------------------------------------------------- */

static void make_rule(unsigned kind, gw_gcomp_map_rule *rule)
{
    gw_optimizer o;

    memset(&o, 0, sizeof o);
    o.kind = (gw_optimizer_kind)kind;
    o.step = 100;
    o.lr = 0.001;
    o.momentum = 0.9;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.alpha = 0.99;
    o.eps = 1e-8;
    o.centered = o.amsgrad = 1;
    must(gw_gcomp_map_rule_init(&o, 8.0f, rule), "gw_gcomp_map_rule_init");
}

/* Top, levels and digests of an optimizer's state by both sides. Returns the CPU's levels, to be freed, and
 * their base. */
static uint8_t *compare_map(const gw_gcomp_map_rule *rule, const gw_optimizer_state *s, size_t len,
                            const char *name, uint32_t *base)
{
    const uint32_t chunk_log2 = 14;
    const size_t chunks = (len >> chunk_log2) + 1;
    uint32_t top = 0, device_top_value = 0;

    begin_case(name, "map");
    uint8_t *levels = take(len), *device_levels = on_device(NULL, len);
    uint32_t *digest = take(4 * chunks), *device_digest = on_device(NULL, 4 * chunks),
             *device_top = on_device(NULL, 4);
    const gw_optimizer_state d = {
        on_device(s->param, 4 * len), s->m == NULL ? NULL : on_device(s->m, 4 * len),
        s->v == NULL ? NULL : on_device(s->v, 4 * len), s->a == NULL ? NULL : on_device(s->a, 4 * len)};
    must(gw_gcomp_map_scan(rule, s, len, cpu_backends, &top), "gw_gcomp_map_scan");
    *base = gw_gcomp_map_base(top);
    must(gw_gcomp_map_build(rule, s, len, *base, cpu_backends, levels), "gw_gcomp_map_build");
    must(gw_gcomp_map_digest(levels, len, chunk_log2, digest), "gw_gcomp_map_digest");
    must(gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){rule, NULL, &d, len}, device_top, NULL),
         "gw_cuda_gcomp_map_scan");
    must(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){rule, NULL, &d, len}, device_top,
                                 device_levels, NULL, NULL),
         "gw_cuda_gcomp_map_build");
    must(gw_cuda_gcomp_map_digest(&cuda, device_levels, len, chunk_log2, device_digest, NULL),
         "gw_cuda_gcomp_map_digest");
    fetch(&device_top_value, device_top, 4);
    expect(device_top_value == top, "top", name);
    expect_bytes(device_levels, levels, len, "levels", name);
    expect_bytes(device_digest, digest, 4 * ((len + (1u << chunk_log2) - 1) >> chunk_log2), "digests", name);
    free(digest);
    give((void *)(uintptr_t)d.param);
    give((void *)(uintptr_t)d.m);
    give((void *)(uintptr_t)d.v);
    give((void *)(uintptr_t)d.a);
    give(device_digest);
    give(device_top);
    give(device_levels);
    return levels;
}

static void run_map(size_t len, uint64_t seed)
{
    for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
        gw_gcomp_map_rule rule;
        float *array[4];
        uint64_t random = seed + kind;
        char name[32];
        uint32_t base;

        snprintf(name, sizeof name, "map of optimizer %u", kind);
        make_rule(kind, &rule);
        for (int i = 0; i < 4; i++) {
            begin_case(name, "random values");
            array[i] = take(4 * len);
            fill(array[i], GW_FP32, len, 1, &random);
        }
        const gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
        free(compare_map(&rule, &s, len, name, &base));
        for (int i = 0; i < 4; i++) {
            free(array[i]);
        }
    }
}

/* ---- files --------------------------------------------------------------------------------------------- */

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long end;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (end = ftell(f)) < 0 || fseek(f, 0, SEEK_SET) != 0) {
        fprintf(stderr, "gpu_check: cannot read %s\n", path);
        exit(2);
    }
    uint8_t *bytes = take((size_t)end);
    *size = fread(bytes, 1, (size_t)end, f);
    fclose(f);
    return bytes;
}

static int ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The values of an .npy file of fp32, NULL if it holds something else. */
static float *read_npy(const char *path, size_t *len)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    const size_t header = size < 12 ? size : 10 + bytes[8] + 256u * bytes[9];
    char text[512] = {0};

    memcpy(text, bytes + 10, header > 10 ? (header < 500 ? header - 10 : 490) : 0);
    if (size <= header || strstr(text, "<f4") == NULL) {
        free(bytes);
        return NULL;
    }
    *len = (size - header) / 4;
    float *values = take(4 * *len);
    memcpy(values, bytes + header, 4 * *len);
    free(bytes);
    return values;
}

static void check_npy(const char *path)
{
    size_t len;
    float *array = read_npy(path, &len);

    if (array == NULL) {
        printf("%s: not fp32, left out\n", path);
        return;
    }
    for (int variant = 0; variant < 4; variant++) {
        gcomp_case c;
        uint64_t random = 5;
        void *values = take(4 * len);
        memcpy(values, array, 4 * len);
        make_codec(&c, GW_FP32, variant & 1, variant >> 1, GW_GCOMP_NEAREST, 14, 1);
        snprintf(c.name, sizeof c.name, "%.120s variant %d", path, variant);
        make_case(&c, GW_FP32, values, len, 1, 14, &random);
        compare_encode(&c);
        compare_decode(&c, c.frame, c.frame_size, 0);
        compare_hop(&c);
        drop_case(&c);
    }
    const gw_thc thc = make_thc(WORKERS, 4, 10, GW_FP32, 8, 1, 1);
    compare_thc(&thc, array, len, path);
    free(array);
}

/* fp32 to fp16, cut; for gradients scaled into its range. */
static uint16_t half_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint32_t sign = bits >> 16 & 0x8000, mantissa = (bits & 0x7fffff) | 0x800000;
    const int exponent = (int)(bits >> 23 & 255) - 127 + 15;

    if (exponent >= 31) {
        return (uint16_t)(sign | 0x7bff);
    }
    if (exponent <= 0) {
        return (uint16_t)(sign | (exponent < -10 ? 0 : mantissa >> (14 - exponent)));
    }
    return (uint16_t)(sign | (uint32_t)exponent << 10 | (mantissa >> 13 & 1023));
}

/* A gradient with a map of its own optimizer state, in all dtypes: fp16 scaled by 1024, as trainers do. */
static void compare_with_map(const float *grad, size_t len, const uint8_t *levels, uint32_t base,
                             const char *name)
{
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        const float scale = dtype == GW_FP16 ? 1024.0f : 1.0f;
        uint8_t *values = take(len * gw_dtype_size((gw_dtype)dtype)), *own_levels = take(len);
        memcpy(own_levels, levels, len);
        for (size_t i = 0; i < len; i++) {
            const float x = grad[i] * scale;
            uint32_t bits;
            memcpy(&bits, &x, 4);
            const uint16_t half = dtype == GW_BF16 ? (uint16_t)(bits >> 16) : half_of(x);
            memcpy(values + gw_dtype_size((gw_dtype)dtype) * i,
                   dtype == GW_FP32 ? (void *)&bits : (void *)&half, gw_dtype_size((gw_dtype)dtype));
        }
        make_codec(&c, (gw_dtype)dtype, GW_GCOMP_DERIVED, dtype == GW_BF16, GW_GCOMP_STOCHASTIC, 14, 1);
        snprintf(c.name, sizeof c.name, "%.100s, dtype %u", name, dtype);
        make_case_of(&c, (gw_dtype)dtype, values, len, own_levels, base, scale, 14);
        compare_encode(&c);
        compare_decode(&c, c.frame, c.frame_size, 0);
        compare_decode(&c, c.frame, c.frame_size, 1);
        compare_hop(&c);
        drop_case(&c);
    }
}

/*
 * Lines `name, first value, gradient, parameters, m, v` of .npy files beside the list, - for none; the
 * gradient may be longer than the states, which begin at its value `first`. An optimizer that wants an array
 * that is not there is left out; a is v (of AMSGrad) or m (RMSprop's average of gradients), which it is close
 * to.
 */
static void check_states(const char *list, size_t len_max)
{
    enum { GRAD, PARAM, M, V, ARRAYS };
    char line[1024], names[ARRAYS][128], title[128], path[1400];
    unsigned long first;
    unsigned maps = 0;
    const char *slash = strrchr(list, '/');
    FILE *f = fopen(list, "r");

    if (f == NULL) {
        perror(list);
        exit(2);
    }
    while (fgets(line, sizeof line, f) != NULL) {
        float *array[ARRAYS] = {NULL, NULL, NULL, NULL};
        size_t lens[ARRAYS] = {0}, len = len_max;
        if (sscanf(line, "%127s %lu %127s %127s %127s %127s", title, &first, names[GRAD], names[PARAM],
                   names[M], names[V]) != 6) {
            fprintf(stderr, "gpu_check: %s: not understood: %s", list, line);
            exit(2);
        }
        for (int i = 0; i < ARRAYS; i++) {
            if (strcmp(names[i], "-") == 0) {
                continue;
            }
            snprintf(path, sizeof path, "%.*s%s", slash == NULL ? 0 : (int)(slash - list) + 1, list,
                     names[i]);
            array[i] = read_npy(path, &lens[i]);
            if (array[i] == NULL || (i == GRAD && lens[i] <= first)) {
                fprintf(stderr, "gpu_check: %s: no such values\n", path);
                exit(2);
            }
            lens[i] -= i == GRAD ? first : 0;
            len = lens[i] < len ? lens[i] : len;
        }
        for (unsigned kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
            gw_gcomp_map_rule rule;
            uint32_t base;
            char name[160];
            const gw_optimizer_state s = {array[PARAM], array[M], array[V],
                                          kind == GW_OPTIMIZER_RMSPROP ? array[M] : array[V]};
            make_rule(kind, &rule);
            if (((rule.uses & 1) != 0 && s.m == NULL) || ((rule.uses & 2) != 0 && s.v == NULL) ||
                ((rule.uses & 4) != 0 && s.a == NULL)) {
                continue;
            }
            snprintf(name, sizeof name, "%.90s, map of optimizer %u", title, kind);
            uint8_t *levels = compare_map(&rule, &s, len, name, &base);
            compare_with_map(array[GRAD] + first, len, levels, base, name);
            free(levels);
            maps++;
        }
        for (int i = 0; i < ARRAYS; i++) {
            free(array[i]);
        }
    }
    fclose(f);
    printf("%u maps of recorded states\n", maps);
    expect(maps > 0, "the list names no states", list);
}

/* Golden frames to receivers that know what the index says: device, CPU and the stored values and statuses
 * agree. */
static void check_vectors(const char *folder)
{
    char path[2048];
    unsigned long count = 0, valid = 0, with_map = 0, with_book = 0;

    snprintf(path, sizeof path, "%s/index.tsv", folder);
    FILE *index = fopen(path, "r");
    if (index == NULL) {
        perror(path);
        exit(2);
    }
    for (vector v; vector_read(&v, index, folder); vector_free(&v), count++) {
        gcomp_case c;
        memset(&c, 0, sizeof c);
        snprintf(c.name, sizeof c.name, "vector %.120s", v.file);
        if (!vector_receiver(&v, cpu_backends, &c.codec)) {
            expect(0, "no receiver", c.name);
            continue;
        }
        c.source.len = vector_capacity(&v);
        c.value_size = (size_t)c.source.len * gw_dtype_size(v.dtype);
        uint8_t *values = take(c.value_size);
        memset(values, 0x3c, c.value_size);
        c.source.values = values;
        if (vector_map(&v) != NULL) {
            c.device_map = c.map = *vector_map(&v);
            c.device_map.levels = on_device(c.map.levels, (size_t)c.map.len);
            c.device_map.digest = on_device(c.map.digest, 4 * ((size_t)(c.map.len >> c.map.chunk_log2) + 1));
            c.source.map = &c.map;
            c.device_source.map = &c.device_map;
        }
        const gw_status status = compare_decode(&c, v.frame.data, v.frame.size, 0);
        compare_decode(&c, v.frame.data, v.frame.size, 1);
        compare_validate(&c, v.frame.data, v.frame.size);
        expect(vector_is_status(&v, status), "status of the index", c.name);
        if (strcmp(v.status, "OK") == 0 && status == GW_OK) {
            /* What the device decodes is what this call does, by the comparison above. */
            void *workspace = take(gw_gcomp_workspace_size(&c.codec));
            gw_gcomp_target target = {.values = values, .capacity = c.source.len};
            must(gw_gcomp_decode(
                     &c.codec,
                     &(gw_gcomp_frame){.data = v.frame.data, .size = v.frame.size, .map = c.source.map},
                     &target, &(gw_workspace){workspace, gw_gcomp_workspace_size(&c.codec)}),
                 "gw_gcomp_decode");
            const size_t size = (size_t)target.len * gw_dtype_size(v.dtype);
            expect(target.len == v.count && size <= c.value_size &&
                       gw_crc32c(0, values, size) == v.values_crc &&
                       (v.values.data == NULL ||
                        (v.values.size == size && memcmp(values, v.values.data, size) == 0)),
                   "stored values", c.name);
            free(workspace);
            valid++;
            with_map += c.source.map != NULL;
            with_book += v.book.data != NULL;
        }
        give((void *)(uintptr_t)c.device_map.levels);
        give((void *)(uintptr_t)c.device_map.digest);
        free(values);
    }
    fclose(index);
    printf("%lu golden frames: %lu decoded to their values (%lu with a map, %lu with an installed codebook), "
           "%lu refused\n",
           count, valid, with_map, with_book, count - valid);
    expect(count > 0 && with_map > 0 && with_book > 0, "the index has frames of all kinds", folder);
}

static void check_frame(const char *path)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    gw_gcomp_info info;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        memset(&c, 0, sizeof c);
        make_codec(&c, (gw_dtype)dtype, 0, 0, 1, 14, 0);
        c.source.len = gw_gcomp_peek(bytes, size, 1 << 22, &info) == GW_OK ? info.len : 1000;
        c.value_size = (size_t)c.source.len * gw_dtype_size((gw_dtype)dtype);
        void *values = take(c.value_size);
        memset(values, 0x3c, c.value_size);
        c.source.values = values;
        snprintf(c.name, sizeof c.name, "%.120s as dtype %u", path, dtype);
        compare_decode(&c, bytes, size, 0);
        compare_decode(&c, bytes, size, 1);
        free(values);
    }
    free(bytes);
}

/* ---- graphs and streams -------------------------------------------------------------------------------- */

static void driver_must(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "gpu_check: %s failed: %d\n", what, code);
        say_last();
        exit(1);
    }
}

/* Two tensors on two streams, each: encode, decode with the size in device memory, captured and replayed
 * three times. */
static void run_graph(size_t len, uint64_t seed)
{
    enum { STREAMS = 2, REPLAYS = 3 };
    gcomp_case c[STREAMS];
    void *stream[STREAMS], *graph[STREAMS], *executable[STREAMS], *frame[STREAMS], *encode_space[STREAMS],
        *decode_space[STREAMS], *out[STREAMS];
    gw_cuda_result *result[STREAMS];
    uint8_t *decoded[STREAMS]; /* by the CPU */

    for (int s = 0; s < STREAMS; s++) {
        uint64_t random = seed + (uint64_t)s;
        void *values = take(4 * len);
        fill(values, GW_FP32, len, 0, &random);
        make_codec(&c[s], GW_FP32, 0, s, 2, 14, 1);
        snprintf(c[s].name, sizeof c[s].name, "graph on stream %d", s);
        make_case(&c[s], GW_FP32, values, len, 1, 14, &random);
        const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&c[s].codec, 1, len);
        const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&c[s].codec, 1, len);
        decoded[s] = take(4 * len);
        void *cpu_workspace = take(gw_gcomp_workspace_size(&c[s].codec));
        gw_gcomp_target target = {.values = decoded[s], .capacity = len};
        must(gw_gcomp_decode(&c[s].codec,
                             &(gw_gcomp_frame){.data = c[s].frame, .size = c[s].frame_size, .map = &c[s].map},
                             &target, &(gw_workspace){cpu_workspace, gw_gcomp_workspace_size(&c[s].codec)}),
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
                 &cuda, &c[s].codec, &c[s].device_source, &(gw_cuda_buffer){frame[s], c[s].bound},
                 &(gw_cuda_request){NULL, &result[s][0], {encode_space[s], encode_size}, stream[s]}),
             "encode while captured");
        must(gw_cuda_gcomp_decode(
                 &cuda, &c[s].codec,
                 &(gw_cuda_frame){frame[s], c[s].bound, &result[s][0].size, c[s].device_source.map},
                 &(gw_cuda_target){out[s], len},
                 &(gw_cuda_request){NULL, &result[s][1], {decode_space[s], decode_size}, stream[s]}),
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

/* ---- digests ------------------------------------------------------------------------------------------- */

/* Lines `name, size, CRC32C` of large runs, made by the scalar code of the CPU (out) or by the device and
 * compared with those (stored). */
static struct {
    FILE *out, *stored;
    int use_device;
} digests;

/* bytes: where use_device says. */
static void digest(const char *name, const char *part, const void *bytes, size_t size)
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
static void digest_gcomp(gw_dtype dtype, int levels, int preset, size_t len)
{
    gcomp_case c;
    char name[96];
    uint64_t random = 1000 + dtype;
    const size_t value_size = len * gw_dtype_size(dtype), chunks = (len >> 14) + 1;
    uint8_t *values = take(value_size), *map_levels = take(len);
    uint32_t *map_digest = take(4 * chunks);
    size_t size = 0, hop_size = 0;

    make_codec(&c, dtype, levels, preset, GW_GCOMP_STOCHASTIC, 14, 1);
    fill(values, dtype, len, 1, &random);
    for (size_t j = 0; j < len; j++) {
        map_levels[j] = (uint8_t)(next_random(&random) % 160);
    }
    must(gw_gcomp_map_digest(map_levels, len, 14, map_digest), "gw_gcomp_map_digest");
    const gw_gcomp_map map = {room(map_levels, len), room(map_digest, 4 * chunks), 390, 1.0f, len, 14};
    gw_gcomp_source source = {room(values, value_size), len, &map, 11, 0, 1, 0, 0};
    const size_t bound = gw_gcomp_bound(&c.codec, len);
    void *frame = room(NULL, bound), *next_frame = room(NULL, bound), *out = room(values, value_size),
         *sum = room(values, value_size);
    if (digests.use_device) {
        const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&c.codec, 1, len);
        const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&c.codec, 1, len);
        const size_t hop_space = gw_cuda_gcomp_hop_workspace_size(&c.codec, 1, len);
        void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size),
             *hop_at = on_device(NULL, hop_space);
        gw_cuda_result *result = on_device(NULL, 2 * sizeof *result);
        must(gw_cuda_gcomp_encode(&cuda, &c.codec, &source, &(gw_cuda_buffer){frame, bound},
                                  &(gw_cuda_request){NULL, &result[0], {encode_at, encode_size}, NULL}),
             "gw_cuda_gcomp_encode");
        must(gw_cuda_gcomp_decode(&cuda, &c.codec, &(gw_cuda_frame){frame, bound, &result[0].size, &map},
                                  &(gw_cuda_target){out, len},
                                  &(gw_cuda_request){NULL, &result[1], {decode_at, decode_size}, NULL}),
             "gw_cuda_gcomp_decode");
        must(gw_cuda_gcomp_decode_add(&cuda, &c.codec, &(gw_cuda_frame){frame, bound, &result[0].size, &map},
                                      &(gw_cuda_target){sum, len},
                                      &(gw_cuda_request){NULL, &result[1], {decode_at, decode_size}, NULL}),
             "gw_cuda_gcomp_decode_add");
        source.hop = 1;
        must(gw_cuda_gcomp_decode_add_encode(&cuda, &c.codec,
                                             &(gw_cuda_frame){frame, bound, &result[0].size, &map}, &source,
                                             &(gw_cuda_buffer){next_frame, bound},
                                             &(gw_cuda_request){NULL, &result[1], {hop_at, hop_space}, NULL}),
             "gw_cuda_gcomp_decode_add_encode");
        size = (size_t)fetch_result(&result[0]).size;
        hop_size = (size_t)fetch_result(&result[1]).size;
        give(result);
        give(hop_at);
        give(decode_at);
        give(encode_at);
    } else {
        const size_t space = gw_gcomp_workspace_size(&c.codec);
        const gw_workspace workspace = {take(space), space};
        gw_buffer dst = {frame, bound, 0}, next = {next_frame, bound, 0};
        must(gw_gcomp_encode(&c.codec, &source, &dst, &workspace), "gw_gcomp_encode");
        const gw_gcomp_frame in = {frame, dst.size, &map};
        gw_gcomp_target values_target = {.values = out, .capacity = len};
        gw_gcomp_target sum_target = {.values = sum, .capacity = len};
        must(gw_gcomp_decode(&c.codec, &in, &values_target, &workspace), "gw_gcomp_decode");
        must(gw_gcomp_decode_add(&c.codec, &in, &sum_target, &workspace), "gw_gcomp_decode_add");
        source.hop = 1;
        must(gw_gcomp_decode_add_encode(&c.codec, &in, &source, &next, NULL, &workspace),
             "gw_gcomp_decode_add_encode");
        size = dst.size;
        hop_size = next.size;
        free(workspace.data);
    }
    snprintf(name, sizeof name, "gcomp dtype %d levels %d preset %d len %zu", (int)dtype, levels, preset,
             len);
    digest(name, "encode", frame, size <= bound ? size : 0);
    digest(name, "decode", out, value_size);
    digest(name, "decode_add", sum, value_size);
    digest(name, "hop", next_frame, hop_size <= bound ? hop_size : 0);
    leave(sum);
    leave(out);
    leave(next_frame);
    leave(frame);
    leave((void *)(uintptr_t)source.values);
    leave((void *)(uintptr_t)map.levels);
    leave((void *)(uintptr_t)map.digest);
    free(map_digest);
    free(map_levels);
    free(values);
}

/* Norms, the encodes of all workers with error feedback, their sum, the mean. */
static void digest_thc(unsigned bits, gw_dtype dtype, size_t len)
{
    const gw_thc thc = make_thc(WORKERS, bits, 10, dtype, 8, 1, 1);
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
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
    uint32_t ranks[WORKERS];
    const uint8_t *indices[WORKERS];
    uint64_t random = 2000 + bits;
    gw_thc_range range = {len, 0, blocks, 7, 0};
    gw_thc_agg agg;
    char name[96], part[32];

    fill(values, dtype, len, 0, &random);
    fill(start, GW_FP32, len, 0, &random);
    memset(zeros, 0, lanes_size);
    for (uint64_t b = 0; b < blocks; b++) {
        host_members[b] = WORKERS;
    }
    must(gw_thc_agg_init(&agg,
                         &(gw_thc_agg_options){options->table, WORKERS, options->lane_bits, cpu_backends}),
         "gw_thc_agg_init");
    void *x = room(values, value_size), *out = room(NULL, value_size);
    uint8_t *sum = room(zeros, lanes_size);
    uint32_t *patterns = room(NULL, patterns_size), *members = room(host_members, 4 * (size_t)blocks);
    float *error = room(start, 4 * len);
    for (uint32_t w = 0; w < WORKERS; w++) {
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
        for (uint32_t w = 0; w < WORKERS; w++) {
            range.rank = w;
            (void)cuda_device_put(&device, error, start, 4 * len);
            must(
                gw_cuda_thc_encode(
                    &cuda, &thc, &range,
                    &(gw_thc_source){.values = x, .error = error, .patterns = patterns, .own_patterns = NULL},
                    &(gw_cuda_buffer){(uint8_t *)(uintptr_t)indices[w], indices_size},
                    &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                "gw_cuda_thc_encode");
        }
        must(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){sum, set, lanes},
                                     &(gw_cuda_thc_inputs){indices, ranks, NULL, WORKERS, 0}, NULL),
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
        for (uint32_t w = 0; w < WORKERS; w++) {
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
    for (uint32_t w = 0; w < WORKERS; w++) {
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
    gw_gcomp_map_rule rule;
    float *array[4];
    uint64_t random = 3000 + kind;
    uint32_t top = 0;
    char name[64];

    make_rule(kind, &rule);
    for (int i = 0; i < 4; i++) {
        float *host = take(4 * len);
        fill(host, GW_FP32, len, 1, &random);
        array[i] = room(host, 4 * len);
        free(host);
    }
    const gw_optimizer_state s = {array[0], array[1], array[2], array[3]};
    uint8_t *levels = room(NULL, len);
    uint32_t *map_digest = room(NULL, digests_size), *top_at = room(NULL, 4);
    if (digests.use_device) {
        must(gw_cuda_gcomp_map_scan(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, len}, top_at, NULL),
             "gw_cuda_gcomp_map_scan");
        must(gw_cuda_gcomp_map_build(&cuda, &(gw_cuda_gcomp_map_input){&rule, NULL, &s, len}, top_at, levels,
                                     NULL, NULL),
             "gw_cuda_gcomp_map_build");
        must(gw_cuda_gcomp_map_digest(&cuda, levels, len, chunk_log2, map_digest, NULL),
             "gw_cuda_gcomp_map_digest");
    } else {
        must(gw_gcomp_map_scan(&rule, &s, len, cpu_backends, &top), "gw_gcomp_map_scan");
        memcpy(top_at, &top, 4);
        must(gw_gcomp_map_build(&rule, &s, len, gw_gcomp_map_base(top), cpu_backends, levels),
             "gw_gcomp_map_build");
        must(gw_gcomp_map_digest(levels, len, chunk_log2, map_digest), "gw_gcomp_map_digest");
    }
    snprintf(name, sizeof name, "map of optimizer %u len %zu", kind, len);
    digest(name, "top", top_at, 4);
    digest(name, "levels", levels, len);
    digest(name, "digests", map_digest, digests_size);
    leave(top_at);
    leave(map_digest);
    leave(levels);
    for (int i = 0; i < 4; i++) {
        leave(array[i]);
    }
}

/* len: of the short runs; the long ones are four times as long and not whole blocks. */
static void run_digests(FILE *out, FILE *stored, int use_device, size_t len)
{
    char rest[8];

    digests.out = out;
    digests.stored = stored;
    digests.use_device = use_device;
    cpu_backends = GW_BACKEND_SCALAR;
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int levels = 0; levels < 2; levels++) {
            digest_gcomp((gw_dtype)dtype, levels, GW_GCOMP_FAST, len);
            digest_gcomp((gw_dtype)dtype, levels, GW_GCOMP_SMALL, 4 * len + 12345);
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

/* ---- times --------------------------------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { REPEATS_MAX = 15, WARM_UP = 3, SETS_MAX = 128, BENCH_WORKERS = 8 };

static int repeats = REPEATS_MAX; /* timed calls */

/*
 * What is timed works on one of `sets` equal sets of buffers, ring_at counted through all calls. Cold: on the
 * next one each time, so that a set comes back only after all others, many times the device's cache. Hot: on
 * the first each time, which lies in the cache if it fits.
 */
static size_t ring_at;

/* Median milliseconds of what launch_ puts on the default stream; it may name `set`. */
#define TIME_LAUNCHES(ms, sets_, launch_)                                                                    \
    do {                                                                                                     \
        float samples_[REPEATS_MAX];                                                                         \
        for (int i_ = repeats > 1 ? -WARM_UP : 0; i_ < repeats; i_++) {                                      \
            const size_t set = ring_at++ % (sets_);                                                          \
            driver_must(device.call.event_record(b->start, NULL), "cuEventRecord");                          \
            launch_;                                                                                         \
            driver_must(device.call.event_record(b->stop, NULL), "cuEventRecord");                           \
            driver_must(device.call.event_wait(b->stop), "cuEventSynchronize");                              \
            if (i_ >= 0) {                                                                                   \
                driver_must(device.call.event_time(&samples_[i_], b->start, b->stop), "cuEventElapsedTime"); \
            }                                                                                                \
            (void)set;                                                                                       \
        }                                                                                                    \
        qsort(samples_, (size_t)repeats, sizeof samples_[0], compare_floats);                                \
        ms = samples_[repeats / 2];                                                                          \
    } while (0)

/* Of a call, which names `stream`. */
#define TIME(ms, sets_, call_)                                                                               \
    do {                                                                                                     \
        void *const stream = NULL;                                                                           \
        (void)stream;                                                                                        \
        TIME_LAUNCHES(ms, sets_, call_);                                                                     \
    } while (0)

/* Of graphs of the call, one a set: the host's share of several launches is left out. */
#define TIME_GRAPH(ms, sets_, call_)                                                                         \
    do {                                                                                                     \
        void *stream, *graphs_[SETS_MAX], *executables_[SETS_MAX];                                           \
        driver_must(device.call.stream_create(&stream, 1), "cuStreamCreate");                                \
        for (size_t set = 0; set < (sets_); set++) {                                                         \
            driver_must(device.call.capture_begin(stream, 0), "cuStreamBeginCapture");                       \
            call_;                                                                                           \
            driver_must(device.call.capture_end(stream, &graphs_[set]), "cuStreamEndCapture");               \
            driver_must(device.call.graph_instantiate(&executables_[set], graphs_[set], 0),                  \
                        "cuGraphInstantiate");                                                               \
        }                                                                                                    \
        TIME_LAUNCHES(ms, sets_,                                                                             \
                      driver_must(device.call.graph_launch(executables_[set], NULL), "cuGraphLaunch"));      \
        for (size_t i_ = 0; i_ < (sets_); i_++) {                                                            \
            driver_must(device.call.graph_exec_destroy(executables_[i_]), "cuGraphExecDestroy");             \
            driver_must(device.call.graph_destroy(graphs_[i_]), "cuGraphDestroy");                           \
        }                                                                                                    \
        driver_must(device.call.stream_destroy(stream), "cuStreamDestroy");                                  \
    } while (0)

enum { COLD, HOT };

typedef struct bench {
    void *start, *stop; /* events */
    gw_dtype dtype;
    size_t len, value_size, sets;
    int with_graphs; /* short calls, whose launches take the host as long as the device takes for them */
    double copy_rate[2];
} bench;

/* moved: bytes that the call has to read and write. */
static void print_row(const bench *b, const char *work, int is_hot, const char *how, double moved, float ms)
{
    static const char *const dtypes[] = {"", "fp32", "bf16", "fp16"};
    const double rate = moved / (double)ms / 1e6; /* GB/s */
    printf("| %s%s | %s, %.1f MiB | %s | %.1f us | %.0f GB/s | %.0f %% |\n", work, how, dtypes[b->dtype],
           (double)b->value_size / 1048576.0, is_hot ? "hot" : "cold", (double)ms * 1e3, rate,
           100.0 * rate / b->copy_rate[is_hot]);
}

#define ROWS(work, moved, call_)                                                                             \
    do {                                                                                                     \
        float ms_;                                                                                           \
        for (int is_hot_ = COLD; is_hot_ <= HOT; is_hot_++) {                                                \
            const size_t row_sets_ = is_hot_ ? 1 : b->sets;                                                  \
            begin_case(work, is_hot_ ? "time, hot" : "time, cold");                                          \
            TIME(ms_, row_sets_, call_);                                                                     \
            print_row(b, work, is_hot_, "", moved, ms_);                                                     \
            if (b->with_graphs) {                                                                            \
                begin_case(work, is_hot_ ? "graph, hot" : "graph, cold");                                    \
                TIME_GRAPH(ms_, row_sets_, call_);                                                           \
                print_row(b, work, is_hot_, ", as a graph", moved, ms_);                                     \
            }                                                                                                \
        }                                                                                                    \
    } while (0)

/* Device memory for all sets, each with a copy of src (may be NULL); *stride: bytes from one to the next. */
static uint8_t *take_sets(const bench *b, const void *src, size_t size, size_t *stride)
{
    *stride = (size + 255) / 256 * 256;
    uint8_t *p = on_device(NULL, b->sets * *stride);
    for (size_t set = 0; src != NULL && set < b->sets; set++) {
        if (cuda_device_put(&device, p + set * *stride, src, size) != 0) {
            fprintf(stderr, "gpu_check: the device failed (%u)\n", device.error);
            exit(1);
        }
    }
    return p;
}

/* The same bytes read and written as one would without a codec: what the shares are of. */
static void bench_copy(bench *b)
{
    size_t stride;
    uint8_t *from = take_sets(b, NULL, b->value_size, &stride),
            *to = take_sets(b, NULL, b->value_size, &stride);

    for (int is_hot = COLD; is_hot <= HOT; is_hot++) {
        float ms;
        begin_case("copy", is_hot ? "hot" : "cold");
        TIME(ms, is_hot ? 1 : b->sets,
             driver_must(device.call.on_device((uint64_t)(uintptr_t)(to + set * stride),
                                               (uint64_t)(uintptr_t)(from + set * stride), b->value_size,
                                               NULL),
                         "copy"));
        b->copy_rate[is_hot] = 2.0 * (double)b->value_size / (double)ms / 1e6;
        print_row(b, "copy (read + write)", is_hot, "", 2.0 * (double)b->value_size, ms);
    }
    give(from);
    give(to);
}

static void bench_gcomp(bench *b, const void *all_values, int levels, int preset, int has_book,
                        const char *mode, uint64_t *random)
{
    gcomp_case c;
    char work[96];
    void *values = take(b->value_size);

    memcpy(values, all_values, b->value_size);
    snprintf(c.name, sizeof c.name, "bench, %s", mode);
    make_codec(&c, b->dtype, levels, preset, GW_GCOMP_NEAREST, 14, 0);
    make_case(&c, b->dtype, values, b->len, 1, 14, random);
    if (has_book) {
        install_own_book(&c);
    }
    const size_t encode_size = gw_cuda_gcomp_encode_workspace_size(&c.codec, 1, b->len);
    const size_t decode_size = gw_cuda_gcomp_decode_workspace_size(&c.codec, 1, b->len);
    const size_t hop_size = gw_cuda_gcomp_hop_workspace_size(&c.codec, 1, b->len);
    void *encode_at = on_device(NULL, encode_size), *decode_at = on_device(NULL, decode_size),
         *hop_at = on_device(NULL, hop_size);
    size_t value_stride, level_stride, frame_stride;
    uint8_t *source_at = take_sets(b, values, b->value_size, &value_stride),
            *out = take_sets(b, values, b->value_size, &value_stride),
            *levels_at = take_sets(b, c.map.levels, b->len, &level_stride),
            *frame = take_sets(b, NULL, c.bound, &frame_stride),
            *next = take_sets(b, NULL, c.bound, &frame_stride);
    gw_cuda_result *result = on_device(NULL, 2 * b->sets * sizeof *result), *second = result + b->sets;
    static gw_gcomp_map maps[SETS_MAX];
    static gw_gcomp_source sources[SETS_MAX];

    for (size_t set = 0; set < b->sets; set++) {
        maps[set] = c.device_map;
        maps[set].levels = levels_at + set * level_stride;
        sources[set] = c.device_source;
        sources[set].values = source_at + set * value_stride;
        sources[set].map = &maps[set];
    }
#define FRAME(set_) &(gw_cuda_frame){frame + (set_)*frame_stride, c.bound, &result[set_].size, &maps[set_]}
    begin_case(c.name, "first encode, decode and hop");
    for (size_t set = 0; set < b->sets; set++) {
        must(gw_cuda_gcomp_encode(&cuda, &c.codec, &sources[set],
                                  &(gw_cuda_buffer){frame + set * frame_stride, c.bound},
                                  &(gw_cuda_request){NULL, &result[set], {encode_at, encode_size}, NULL}),
             "encode");
    }
    must(gw_cuda_gcomp_decode_add_encode(&cuda, &c.codec, FRAME(0), &sources[0],
                                         &(gw_cuda_buffer){next, c.bound},
                                         &(gw_cuda_request){NULL, &second[0], {hop_at, hop_size}, NULL}),
         "hop");
    const gw_cuda_result hop = fetch_result(&second[0]);
    expect(hop.status == GW_OK, "hop", c.name);
    must(gw_cuda_gcomp_decode(&cuda, &c.codec, FRAME(0), &(gw_cuda_target){out, b->len},
                              &(gw_cuda_request){NULL, &second[0], {decode_at, decode_size}, NULL}),
         "decode");
    expect(fetch_result(&second[0]).status == GW_OK, "decode", c.name);
    expect_bytes(frame, c.frame, c.frame_size, "bytes", c.name);
    {
        void *workspace = take(gw_gcomp_workspace_size(&c.codec)), *decoded = take(b->value_size);
        gw_gcomp_target target = {.values = decoded, .capacity = b->len};
        must(gw_gcomp_decode(&c.codec,
                             &(gw_gcomp_frame){.data = c.frame, .size = c.frame_size, .map = &c.map}, &target,
                             &(gw_workspace){workspace, gw_gcomp_workspace_size(&c.codec)}),
             "gw_gcomp_decode");
        expect_bytes(out, decoded, b->value_size, "values", c.name);
        free(decoded);
        free(workspace);
    }

    /* Levels are read by every encode, and by decodes of derived frames; a hop reads them once. */
    const double values_moved = (double)b->value_size, frame_moved = (double)c.frame_size,
                 levels_moved = (double)b->len, decode_moved = levels == GW_GCOMP_DERIVED ? levels_moved : 0;
    printf("%s: %.2f bits a value\n", c.name, 8.0 * frame_moved / (double)b->len);
    snprintf(work, sizeof work, "GCOMP encode, %s", mode);
    ROWS(work, values_moved + levels_moved + frame_moved,
         must(gw_cuda_gcomp_encode(&cuda, &c.codec, &sources[set],
                                   &(gw_cuda_buffer){frame + set * frame_stride, c.bound},
                                   &(gw_cuda_request){NULL, &result[set], {encode_at, encode_size}, stream}),
              "encode"));
    snprintf(work, sizeof work, "GCOMP decode, %s", mode);
    ROWS(work, frame_moved + decode_moved + values_moved,
         must(gw_cuda_gcomp_decode(&cuda, &c.codec, FRAME(set),
                                   &(gw_cuda_target){out + set * value_stride, b->len},
                                   &(gw_cuda_request){NULL, &second[set], {decode_at, decode_size}, stream}),
              "decode"));
    snprintf(work, sizeof work, "GCOMP decode_add, %s", mode);
    ROWS(work, frame_moved + decode_moved + 2 * values_moved,
         must(gw_cuda_gcomp_decode_add(
                  &cuda, &c.codec, FRAME(set), &(gw_cuda_target){out + set * value_stride, b->len},
                  &(gw_cuda_request){NULL, &second[set], {decode_at, decode_size}, stream}),
              "decode_add"));
    snprintf(work, sizeof work, "GCOMP hop, %s", mode);
    ROWS(work, frame_moved + levels_moved + values_moved + (double)hop.size,
         must(gw_cuda_gcomp_decode_add_encode(
                  &cuda, &c.codec, FRAME(set), &sources[set],
                  &(gw_cuda_buffer){next + set * frame_stride, c.bound},
                  &(gw_cuda_request){NULL, &second[set], {hop_at, hop_size}, stream}),
              "hop"));
#undef FRAME
    expect(fetch_result(&second[0]).status == GW_OK, "the last calls", c.name);
    give(result);
    give(next);
    give(frame);
    give(levels_at);
    give(out);
    give(source_at);
    give(hop_at);
    give(decode_at);
    give(encode_at);
    drop_case(&c);
}

static void bench_thc(bench *b, const void *values)
{
    const size_t len = b->len;
    const gw_thc thc = make_thc(BENCH_WORKERS, 4, 10, b->dtype, 8, 1, 0);
    const uint64_t blocks = gw_thc_block_count(&thc, len);
    const size_t indices_size = gw_thc_indices_size(&thc, len, 0, blocks), patterns_size = 4 * (size_t)blocks;
    const size_t lanes = (size_t)gw_thc_range_lanes(&thc, len, 0, blocks);
    const gw_thc_range range = {len, 0, blocks, 1, 0};
    size_t value_stride, pattern_stride, index_stride, lane_stride, member_stride;
    uint32_t *host_members = take(patterns_size);
    uint32_t ranks[BENCH_WORKERS];
    uint8_t *indices[BENCH_WORKERS];
    gw_thc_agg agg;

    for (uint64_t i = 0; i < blocks; i++) {
        host_members[i] = BENCH_WORKERS;
    }
    must(gw_thc_agg_init(
             &agg, &(gw_thc_agg_options){gw_thc_options_of(&thc)->table, BENCH_WORKERS, 8, cpu_backends}),
         "gw_thc_agg_init");
    uint8_t *x = take_sets(b, values, b->value_size, &value_stride),
            *y = take_sets(b, NULL, b->value_size, &value_stride),
            *patterns_at = take_sets(b, NULL, patterns_size, &pattern_stride),
            *members = take_sets(b, host_members, patterns_size, &member_stride),
            *lanes_at = take_sets(b, NULL, lanes, &lane_stride);
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    for (uint32_t w = 0; w < BENCH_WORKERS; w++) {
        indices[w] = take_sets(b, NULL, indices_size, &index_stride);
        ranks[w] = w;
    }
#define PATTERNS(set_) ((uint32_t *)(void *)(patterns_at + (set_)*pattern_stride))
#define ENCODE(set_, worker_, stream_)                                                                       \
    must(gw_cuda_thc_encode(&cuda, &thc, &range,                                                             \
                            &(gw_thc_source){.values = x + (set_)*value_stride,                              \
                                             .error = NULL,                                                  \
                                             .patterns = PATTERNS(set_),                                     \
                                             .own_patterns = PATTERNS(set_)},                                \
                            &(gw_cuda_buffer){indices[worker_] + (set_)*index_stride, indices_size},         \
                            &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, stream_}),                      \
         "encode")
#define NORMS(set_, stream_)                                                                                 \
    must(gw_cuda_thc_norms(&cuda, &thc, &range, &(gw_thc_source){.values = x + (set_)*value_stride},         \
                           PATTERNS(set_), &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, stream_}),       \
         "norms")
#define SUM(set_, stream_)                                                                                   \
    do {                                                                                                     \
        uint8_t in_sum_[GW_THC_SET_SIZE(BENCH_WORKERS)] = {0};                                               \
        const uint8_t *sources_[BENCH_WORKERS];                                                              \
        for (int w_ = 0; w_ < BENCH_WORKERS; w_++) {                                                         \
            sources_[w_] = indices[w_] + (set_)*index_stride;                                                \
        }                                                                                                    \
        must(gw_cuda_thc_sum_indices(                                                                        \
                 &cuda, &agg, &(gw_thc_partial){lanes_at + (set_)*lane_stride, in_sum_, lanes},              \
                 &(gw_cuda_thc_inputs){sources_, ranks, NULL, BENCH_WORKERS, 0}, stream_),                   \
             "sum");                                                                                         \
    } while (0)
    begin_case("bench, THC", "first norms, encodes and sums");
    for (size_t set = 0; set < b->sets; set++) {
        NORMS(set, NULL);
        for (int w = 0; w < BENCH_WORKERS; w++) {
            ENCODE(set, w, NULL);
        }
        SUM(set, NULL);
    }
    const double values_moved = (double)b->value_size, indices_moved = (double)indices_size,
                 lanes_moved = (double)lanes;
    ROWS("THC norms", values_moved, NORMS(set, stream));
    ROWS("THC encode, norms given, 4 bits", values_moved + indices_moved, ENCODE(set, 0, stream));
    ROWS("THC norms and encode, 4 bits", 2 * values_moved + indices_moved, {
        NORMS(set, stream);
        ENCODE(set, 0, stream);
    });
    ROWS("THC sum of 8 workers", BENCH_WORKERS * indices_moved + lanes_moved, SUM(set, stream));
    ROWS("THC decode", lanes_moved + values_moved,
         must(gw_cuda_thc_decode(&cuda, &thc, &range,
                                 &(gw_thc_sum){lanes_at + set * lane_stride, lanes,
                                               (uint32_t *)(void *)(members + set * member_stride),
                                               PATTERNS(set)},
                                 &(gw_cuda_target){y + set * value_stride, b->len},
                                 &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, stream}),
              "decode"));
#undef SUM
#undef NORMS
#undef ENCODE
#undef PATTERNS
    expect(fetch_result(result).status == GW_OK, "decode", "bench, THC");
    for (int w = 0; w < BENCH_WORKERS; w++) {
        give(indices[w]);
    }
    give(result);
    give(lanes_at);
    give(members);
    give(patterns_at);
    give(y);
    give(x);
    free(host_members);
}

/* bytes: of the values of one set; ring_bytes: of all sets. */
static void run_bench(size_t bytes, size_t ring_bytes, gw_dtype dtype, uint64_t seed)
{
    bench bench_of_dtype = {0}, *const b = &bench_of_dtype;
    uint64_t random = seed;

    b->dtype = dtype;
    b->len = bytes / gw_dtype_size(dtype);
    b->value_size = b->len * gw_dtype_size(dtype);
    b->sets = ring_bytes / bytes < 2 ? 2 : ring_bytes / bytes > SETS_MAX ? SETS_MAX : ring_bytes / bytes;
    b->with_graphs = bytes <= (size_t)64 << 20;
    driver_must(device.call.event_create(&b->start, 0), "cuEventCreate");
    driver_must(device.call.event_create(&b->stop, 0), "cuEventCreate");
    printf(
        "cold: each call on the next of %zu sets of buffers, %zu MiB of values altogether; hot: on the same "
        "set each time; the copy likewise\n",
        b->sets, b->sets * b->value_size >> 20);
    bench_copy(b);
    begin_case("bench", "random values");
    void *values = take(b->value_size);
    fill(values, dtype, b->len, 0, &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 1, "installed codebook", &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, 0, "fast", &random);
    bench_gcomp(b, values, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 1, "derived, installed codebook", &random);
    bench_gcomp(b, values, GW_GCOMP_DERIVED, GW_GCOMP_FAST, 0, "derived, fast", &random);
    bench_gcomp(b, values, GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, 0, "small", &random);
    bench_thc(b, values);
    free(values);
    driver_must(device.call.event_destroy(b->start), "cuEventDestroy");
    driver_must(device.call.event_destroy(b->stop), "cuEventDestroy");
}

/* ---- command ------------------------------------------------------------------------------------------- */

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

int main(int argc, char **argv)
{
    size_t len = 0, bytes = (size_t)256 << 20, ring_bytes = (size_t)512 << 20;
    unsigned long count = 200;
    uint32_t chunk_log2 = 0;
    gw_dtype dtype = GW_FP32;
    uint64_t seed = 1;
    const char *write_to = NULL, *check_with = NULL, *again_with = NULL;
    const char *stage = argc > 1 ? argv[1] : "";
    int i = 2;

    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (strcmp(argv[i], "--len") == 0) {
            len = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--bytes") == 0) {
            bytes = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--count") == 0) {
            count = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--ring") == 0) {
            ring_bytes = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--repeats") == 0) {
            repeats = atoi(argv[i + 1]);
            repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
        } else if (strcmp(argv[i], "--dtype") == 0) {
            dtype = strcmp(argv[i + 1], "bf16") == 0   ? GW_BF16
                    : strcmp(argv[i + 1], "fp16") == 0 ? GW_FP16
                                                       : GW_FP32;
        } else if (strcmp(argv[i], "--chunk") == 0) {
            chunk_log2 = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--clear") == 0) {
            clears_workspaces = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--limit") == 0) {
            case_seconds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--write") == 0) {
            write_to = argv[i + 1];
        } else if (strcmp(argv[i], "--check") == 0) {
            check_with = argv[i + 1];
        } else if (strcmp(argv[i], "--again") == 0) {
            again_with = argv[i + 1];
        } else {
            fprintf(stderr, "gpu_check: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    /* A stage that is stopped keeps what it has printed. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, on_signal);
    signal(SIGALRM, on_signal);
    const char *const what = i < argc ? argv[i] : NULL;
    const size_t state_len = len != 0 ? len : SIZE_MAX;
    const int is_digests = strcmp(stage, "digests") == 0;
    len = len != 0 ? len : is_digests ? (size_t)1 << 20 : 300000;
    if (is_digests && (write_to != NULL || again_with != NULL)) {
        FILE *f = fopen(write_to != NULL ? write_to : again_with, write_to != NULL ? "w" : "r");
        if (f == NULL) {
            perror(stage);
            return 2;
        }
        run_digests(write_to != NULL ? f : NULL, write_to != NULL ? NULL : f, 0, len);
        const int is_closed = fclose(f) == 0;
        printf("%s: %lu comparisons, %d different\n", stage, compared, differences);
        return is_closed && differences == 0 ? 0 : 1;
    }
    begin_case(stage, "opening the device");
    open_device();
    if (strcmp(stage, "gcomp") == 0) {
        run_gcomp(len, chunk_log2, seed);
    } else if (strcmp(stage, "calls") == 0) {
        run_calls(len, seed);
    } else if (strcmp(stage, "thc") == 0) {
        run_thc(len, seed);
    } else if (strcmp(stage, "map") == 0) {
        run_map(len, seed);
    } else if (strcmp(stage, "hostile") == 0) {
        run_hostile(count, len, chunk_log2, seed);
    } else if (strcmp(stage, "graph") == 0) {
        run_graph(len, seed);
    } else if (strcmp(stage, "bench") == 0) {
        run_bench(bytes, ring_bytes, dtype, seed);
    } else if (strcmp(stage, "vectors") == 0 && what != NULL) {
        check_vectors(what);
    } else if (strcmp(stage, "states") == 0 && what != NULL) {
        check_states(what, state_len);
    } else if (strcmp(stage, "files") == 0) {
        for (; i < argc; i++) {
            if (ends_with(argv[i], ".npy")) {
                check_npy(argv[i]);
            } else {
                check_frame(argv[i]);
            }
        }
    } else if (is_digests && check_with != NULL) {
        FILE *f = fopen(check_with, "r");
        if (f == NULL) {
            perror(check_with);
            return 2;
        }
        run_digests(NULL, f, 1, len);
        fclose(f);
    } else {
        fprintf(stderr,
                "usage: gpu_check gcomp|calls|thc|map|hostile|graph|bench|files|vectors|states|digests "
                "[options] [PATH...]\n");
        return 2;
    }
    printf("%s: %lu comparisons, %d different\n", stage, compared, differences);
    begin_case(stage, "closing the device");
    gw_cuda_close(&cuda);
    cuda_device_close(&device);
    return differences == 0 ? 0 : 1;
}
