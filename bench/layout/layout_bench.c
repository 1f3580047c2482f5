/*
 * Times the decoders of this folder on frames that the library's encoder made, against memcpy in the same
 * run, and checks
 * every output against the library's scalar decoder. `layout_bench stats` prints what count_sass.py needs
 * instead; `layout_bench dump DIR` writes frames for the check of the CUDA kernel.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _POSIX_C_SOURCE 200809L
#include "gradwire/gcomp.h"
#include "layout_chunk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 1 << 24, REPS = 9 };

typedef struct data_set {
    const char *name;
    int adamw;
} data_set;

static const data_set data_sets[] = {{"resnet50-sgdm-step0400", 0},
                                     {"resnet50-adamw-step0400", 1},
                                     {"bertbase-adamw-step0050", 1},
                                     {"resnet50-adamw-contiguous-step0200", 1}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other work on the machine is not counted */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "layout_bench: %s: %s\n", name, what);
    exit(1);
}

/* Page-aligned and touched, so that no timed loop takes a page fault. */
static void *room(size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, (size + 4095) / 4096 * 4096 + 4096) != 0) {
        fail("out of memory", "room");
    }
    memset(p, 1, size);
    return p;
}

static char *read_file(const char *dir, const char *name, const char *suffix, size_t *size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", dir, name, suffix);
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
        fail("cannot read", path);
    }
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = room(*size + 1);
    if (fread(bytes, 1, *size, f) != *size) {
        fail("short read", path);
    }
    bytes[*size] = 0;
    fclose(f);
    return bytes;
}

static float *read_npy(const char *dir, const char *name, const char *suffix, size_t *len)
{
    size_t size;
    char *bytes = read_file(dir, name, suffix, &size);
    size_t header = 10 + (size_t)((unsigned char)bytes[8] | (unsigned char)bytes[9] << 8);
    *len = (size - header) / 4;
    memmove(bytes, bytes + header, 4 * *len);
    return (float *)(void *)bytes;
}

static double number(const char *json, const char *key, int skip)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(json, quoted);
    if (at == NULL) {
        fail("no such number", key);
    }
    at += strlen(quoted);
    at += strspn(at, " \n[");
    for (; skip > 0; skip--) {
        at = strchr(at, ',') + 1;
    }
    return strtod(at, NULL);
}

static void check(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: ", gw_status_message(status));
        fail("library error", what);
    }
}

/* Values times wire_scale and map of a data set, repeated until VALUES. */
static void load(const char *dir, const data_set *set, float *values, uint8_t *levels, gw_gcomp_map *map,
                 float wire_scale)
{
    size_t len, size;
    char *json = read_file(dir, set->name, ".json", &size);
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = set->adamw ? GW_OPTIMIZER_ADAMW : GW_OPTIMIZER_MOMENTUM;
    o.step = (uint64_t)number(json, "step", 0);
    o.lr = number(json, "lr", 0);
    o.weight_decay = number(json, "weight_decay", 0);
    if (set->adamw) {
        o.beta1 = number(json, "betas", 0);
        o.beta2 = number(json, "betas", 1);
        o.eps = number(json, "eps", 0);
    } else {
        o.momentum = number(json, "momentum", 0);
        o.dampening = number(json, "dampening", 0);
    }
    float *grad = read_npy(dir, set->name, "-grad.npy", &len);
    float *param = read_npy(dir, set->name, "-param.npy", &len);
    float *m = read_npy(dir, set->name, set->adamw ? "-exp_avg.npy" : "-momentum_buffer.npy", &len);
    float *v = set->adamw ? read_npy(dir, set->name, "-exp_avg_sq.npy", &len) : NULL;
    gw_optimizer_state state = {param, m, v, NULL};
    gw_gcomp_map_rule rule;
    uint32_t top;
    check(gw_gcomp_map_rule_init(&o, wire_scale, &rule), "map rule");
    check(gw_gcomp_map_scan(&rule, &state, len, GW_BACKEND_ALL, &top), "map scan");
    map->base = gw_gcomp_map_base(top);
    check(gw_gcomp_map_build(&rule, &state, len, map->base, GW_BACKEND_ALL, levels), "map build");
    map->levels = levels;
    map->len = VALUES;
    map->wire_scale = wire_scale;
    for (size_t i = 0; i < len; i++) {
        grad[i] *= wire_scale;
    }
    for (size_t at = 0; at < VALUES; at += len) {
        size_t part = VALUES - at < len ? VALUES - at : len;
        memcpy(values + at, grad, 4 * part);
        if (at != 0) {
            memcpy(levels + at, levels, part);
        }
    }
    free(json);
    free(grad);
    free(param);
    free(m);
    free(v);
}

/* To nearest, ties to even; no value is infinite or NaN. */
static uint16_t narrow(float x, gw_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (dtype == GW_BF16) {
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff, exponent = magnitude >> 23;
    if (magnitude >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7bff);
    }
    if (exponent >= 113) {
        return (uint16_t)(sign | ((magnitude - (112u << 23)) + 0xfff + (magnitude >> 13 & 1)) >> 13);
    }
    if (exponent < 102) {
        return (uint16_t)sign;
    }
    const uint32_t m = (magnitude & 0x7fffff) | 0x800000, shift = 126 - exponent;
    return (uint16_t)(sign | (m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_size);
    return x[n / 2];
}

/* A frame of 9 chunks, so that there are chunks with and without a codebook of their own, for the check of
 * the kernel. */
static void dump(const char *dir, const char *name, const char *mode, const gw_gcomp *codec,
                 gw_gcomp_source source, uint8_t *bytes, size_t capacity, void *workspace,
                 size_t workspace_size)
{
    char path[1024];
    size_t size;
    gw_gcomp_map map = *source.map;
    map.len = source.len = 9 << 14;
    source.map = &map;
    check(gw_gcomp_encode(codec, &source, bytes, capacity, &size, workspace, workspace_size), "encode");
    snprintf(path, sizeof path, "%s/%s-%s.gw", dir, name, mode);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) {
        fail("cannot write", path);
    }
}

static lay_scratch scratch;

/* Values with a fourth digit and escapes, as kernels meet them: a warp mends 32 times `len` consecutive
 * values at once, 16 of fp32 and 32 of 16-bit types. */
typedef struct {
    double any, fourth_any, escape_any; /* how many such groups have one */
    double most, fourth_most,
        escape_most; /* sums over the groups of the largest number that one of the 32 has */
} rare_counts;

static void count_rare(const uint8_t *labels, size_t chunk_len, size_t len, rare_counts *sum)
{
    for (size_t block = 0; block + 1024 <= chunk_len; block += 1024) {
        for (size_t part = 0; part < 32; part += len) {
            unsigned largest = 0, largest_fourth = 0, largest_escape = 0;
            for (size_t lane = 0; lane < 32; lane++) {
                const uint8_t *x = labels + block + 32 * lane + part;
                unsigned fourth = 0, escape = 0;
                for (size_t i = 0; i < len; i++) {
                    fourth += x[i] > 3 && x[i] % 4 == 0;
                    escape += x[i] == LAY_LABEL_ESCAPE;
                }
                largest = fourth + escape > largest ? fourth + escape : largest;
                largest_fourth = fourth > largest_fourth ? fourth : largest_fourth;
                largest_escape = escape > largest_escape ? escape : largest_escape;
            }
            sum->any += largest != 0;
            sum->fourth_any += largest_fourth != 0;
            sum->escape_any += largest_escape != 0;
            sum->most += largest;
            sum->fourth_most += largest_fourth;
            sum->escape_most += largest_escape;
        }
    }
}

/* Sums over all CODED chunks of a frame, per value: what a kernel's loops depend on. */
static void print_stats(const char *name, const char *mode, const lay_frame *frame)
{
    double coded = 0, chunks = 0, nodes = 0, inner = 0, inner_values = 0, inner_words = 0, flat = 0,
           flat_words = 0;
    rare_counts rare = {0, 0, 0, 0, 0, 0}, rare32 = rare;
    double width_tasks[8] = {0}, inner_tasks = 0, flat_tasks = 0, constant_tasks = 0,
           run_words = 0; /* a task: up to 32 words, root excluded */
    double constant = 0, constant_words = 0, height = 0, labels = 0, planes[LAY_PLANES_MAX] = {0},
           escapes = 0, bytes = 0, node_warps = 0;
    lay_book book;
    uint64_t owner = UINT64_MAX;
    size_t used = 0;
    for (uint64_t i = 0; i < frame->chunk_count; i++) {
        const lay_place p = lay_frame_place(frame, i);
        if (p.kind != 2) {
            continue;
        }
        if (owner != p.book) {
            const lay_place at = lay_frame_place(frame, p.book);
            owner = p.book;
            lay_book_read(&book, frame->bytes + at.offset, (size_t)at.size, frame->rule.derived, &used);
        }
        const size_t skip = p.book == i ? used : 0;
        lay_parts *q = &scratch.parts;
        lay_parts_find(q, &book, frame->bytes + p.offset + skip, (size_t)p.size - skip, p.len, &frame->rule);
        chunks++;
        node_warps += (book.node_count + 31) / 32;
        if (!frame->rule.derived) {
            static uint32_t out[LAY_CHUNK_MAX];
            lay_decode_stages(&lay_kernels_avx2, out, &book, frame->bytes + p.offset + skip,
                              (size_t)p.size - skip, p.len, NULL, &frame->rule, &scratch, NULL, 0, NULL);
            count_rare(scratch.level[0], p.len, 16, &rare);
            count_rare(scratch.level[0], p.len, 32, &rare32);
        }
        coded += (double)p.len;
        nodes += book.node_count;
        inner += book.inner_count;
        labels += book.label_count;
        bytes += (double)p.size;
        escapes += (double)q->escape_len;
        unsigned deepest = 0;
        run_words += (double)(q->plane[0] - (frame->bytes + p.offset + skip)) / 4;
        for (uint32_t n = 0; n < book.node_count; n++) {
            const double len = (double)q->node_len[n], words = (double)((q->node_len[n] + 31) / 32);
            const double tasks = n == 0 ? 0 : (double)((q->node_len[n] + 1023) / 1024);
            deepest = book.node[n].depth > deepest ? book.node[n].depth : deepest;
            if (book.node[n].right != 0) {
                inner_tasks += tasks;
                inner_values += len;
                inner_words += words;
            } else if (book.node[n].width != 0) {
                flat_tasks += tasks;
                width_tasks[book.node[n].width] += tasks;
                flat += len;
                flat_words += words;
            } else {
                constant_tasks += tasks;
                constant += len;
                constant_words += words;
            }
        }
        height += deepest;
        for (unsigned n = 0; n < (frame->rule.derived ? 7u : 4u); n++) {
            planes[n] += (double)q->plane_len[n];
        }
    }
    printf("%s %s chunks %.0f values %.0f bytes %.0f nodes %.2f inner %.2f labels %.2f height %.2f "
           "inner_values %.5f "
           "inner_words %.2f flat %.5f flat_words %.2f constant %.5f constant_words %.2f escapes %.5f",
           name, mode, chunks, coded / chunks, bytes / chunks, nodes / chunks, inner / chunks,
           labels / chunks, height / chunks, inner_values / coded, inner_words / chunks, flat / coded,
           flat_words / chunks, constant / coded, constant_words / chunks, escapes / coded);
    printf(" inner_tasks %.2f flat_tasks %.2f constant_tasks %.2f run_words %.1f", inner_tasks / chunks,
           flat_tasks / chunks, constant_tasks / chunks, run_words / chunks);
    printf(" rare_any %.2f rare_most %.2f fourth_any %.2f fourth_most %.2f escape_any %.2f escape_most %.2f",
           rare.any / chunks, rare.most / chunks, rare.fourth_any / chunks, rare.fourth_most / chunks,
           rare.escape_any / chunks, rare.escape_most / chunks);
    printf(" escape_any32 %.2f escape_most32 %.2f", rare32.escape_any / chunks, rare32.escape_most / chunks);
    printf(" node_warps %.2f", node_warps / chunks);
    for (unsigned n = 1; n < 8; n++) {
        printf(" flat%u %.3f", n, width_tasks[n] / chunks);
    }
    for (unsigned n = 0; n < LAY_PLANES_MAX; n++) {
        printf(" plane%u %.5f", n + 1, planes[n] / coded);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const char *shared = getenv("GW_SHARED_DATA");
    char dir[512];
    snprintf(dir, sizeof dir, "%s/gradients", shared == NULL ? "../shared/data" : shared);
    const int stats = argc > 1 && strcmp(argv[1], "stats") == 0;
    float *values = room(4 * (size_t)VALUES);
    uint8_t *levels = room(VALUES);
    uint16_t *halves = room(2 * (size_t)VALUES);
    uint32_t *expected = room(4 * (size_t)VALUES), *out = room(4 * (size_t)VALUES);
    uint32_t *digest = room(4 * (size_t)(VALUES >> 12));

    if (argc == 1) {
        printf("64 MiB of fp32; medians of %d, CPU time of the thread, the three loops in turn; L2: the "
               "first 4 chunks again and again.\n",
               REPS);
        printf("%-35s %-15s %6s %7s | %6s %5s %5s | %6s %5s %5s | %6s %6s\n", "snapshot", "mode", "bits/v",
               "memcpy", "avx512", "ratio", "L2", "avx2", "ratio", "L2", "lib C", "plain");
    }
    for (size_t d = 0; d < sizeof data_sets / sizeof *data_sets; d++) {
        gw_gcomp_map map = {0};
        load(dir, &data_sets[d], values, levels, &map, 1);
        for (int mode = 0; mode < (stats ? 8 : 4); mode++) {
            static const char *const names[8] = {
                "explicit-fast",      "explicit-small",      "derived1-fast",      "derived1-small",
                "explicit-fast-bf16", "explicit-small-bf16", "explicit-fast-fp16", "explicit-small-fp16"};
            const gw_dtype dtype = mode < 4 ? GW_FP32 : mode < 6 ? GW_BF16 : GW_FP16;
            if (mode == 6) { /* as losses are scaled: most of these gradients are below fp16's range */
                load(dir, &data_sets[d], values, levels, &map, 4096);
            }
            for (size_t i = 0; i < VALUES && dtype != GW_FP32; i++) {
                halves[i] = narrow(values[i], dtype);
            }
            gw_gcomp_options options;
            gw_gcomp_options_init(&options, dtype);
            options.levels = mode / 2 != 1 ? GW_GCOMP_EXPLICIT : GW_GCOMP_DERIVED;
            options.preset = mode % 2 == 0 ? GW_GCOMP_FAST : GW_GCOMP_SMALL;
            options.backends = GW_BACKEND_SCALAR;
            check(gw_gcomp_map_digest(levels, VALUES, options.chunk_log2, digest), "digest");
            map.digest = digest;
            map.chunk_log2 = 14;
            gw_gcomp codec;
            check(gw_gcomp_init(&codec, &options), "init");
            const size_t workspace_size = gw_gcomp_workspace_size(&codec);
            void *workspace = room(workspace_size);
            const size_t bound = gw_gcomp_bound(&codec, VALUES);
            uint8_t *bytes = room(bound);
            size_t size;
            gw_gcomp_source source;
            memset(&source, 0, sizeof source);
            source.values = dtype == GW_FP32 ? (const void *)values : halves;
            source.len = VALUES;
            source.map = &map;
            if (argc > 2 && strcmp(argv[1], "dump") == 0) {
                if (mode < 2) {
                    dump(argv[2], data_sets[d].name, names[mode], &codec, source, bytes, bound, workspace,
                         workspace_size);
                }
                free(workspace);
                free(bytes);
                continue;
            }
            check(gw_gcomp_encode(&codec, &source, bytes, bound, &size, workspace, workspace_size), "encode");
            lay_frame frame;
            if (!lay_frame_open(&frame, bytes, size)) {
                fail("frame not understood", names[mode]);
            }
            if (stats) {
                print_stats(data_sets[d].name, names[mode], &frame);
                free(workspace);
                free(bytes);
                continue;
            }
            uint64_t len, bad;
            double start = now();
            check(gw_gcomp_decode(&codec, bytes, size, &map, expected, VALUES, &len, &bad, workspace,
                                  workspace_size),
                  "decode");
            const double lib = now() - start;
            memset(out, 1, 4 * (size_t)VALUES);
            start = now();
            if (!lay_decode_frame(NULL, out, &frame, frame.chunk_count, levels, &scratch, NULL) ||
                memcmp(out, expected, 4 * (size_t)VALUES) != 0) {
                fail("plain decode differs", names[mode]);
            }
            const double plain = now() - start;

            const lay_kernels *const kernels[2] = {&lay_kernels_avx512, &lay_kernels_avx2};
            double t[3][REPS], l2[2] = {0, 0};
            lay_times times[2];
            memset(times, 0, sizeof times);
            for (int b = 0; b < 2; b++) {
                memset(out, 1, 4 * (size_t)VALUES);
                if (kernels[b]->merge == NULL) {
                    fail("backend not compiled", b == 0 ? "avx512" : "avx2");
                }
                if (!lay_decode_frame(kernels[b], out, &frame, frame.chunk_count, levels, &scratch,
                                      &times[b]) ||
                    memcmp(out, expected, 4 * (size_t)VALUES) != 0) {
                    fail(b == 0 ? "avx512 decode differs" : "avx2 decode differs", names[mode]);
                }
                double best[REPS];
                for (int r = 0; r < REPS; r++) {
                    start = now();
                    for (int again = 0; again < 64; again++) {
                        if (!lay_decode_frame(kernels[b], out, &frame, 4, levels, &scratch, NULL)) {
                            fail("decode", names[mode]);
                        }
                    }
                    best[r] = now() - start;
                }
                l2[b] = 64 * 4 * 65536.0 / median(best, REPS) / 1e9;
            }
            for (int r = 0; r < REPS; r++) {
                start = now();
                memcpy(out, values, 4 * (size_t)VALUES);
                t[2][r] = now() - start;
                for (int b = 0; b < 2; b++) {
                    start = now();
                    if (!lay_decode_frame(kernels[b], out, &frame, frame.chunk_count, levels, &scratch,
                                          NULL)) {
                        fail("decode", names[mode]);
                    }
                    t[b][r] = now() - start;
                }
            }
            const double gb = 4e-9 * VALUES;
            const double copy = gb / median(t[2], REPS), a = gb / median(t[0], REPS),
                         b = gb / median(t[1], REPS);
            printf("%-35s %-15s %6.2f %7.2f | %6.2f %5.2f %5.2f | %6.2f %5.2f %5.2f | %6.2f %6.2f\n",
                   data_sets[d].name, names[mode], 8.0 * (double)size / VALUES, copy, a, a / copy, l2[0], b,
                   b / copy, l2[1], gb / lib, gb / plain);
            for (int k = 0; k < 2; k++) {
                const double all =
                    (double)(times[k].parts + times[k].runs + times[k].planes + times[k].join) / 100;
                printf("    %s share of parts %.0f %%, runs %.0f %%, planes %.0f %%, join %.0f %%\n",
                       k == 0 ? "avx512" : "avx2", (double)times[k].parts / all, (double)times[k].runs / all,
                       (double)times[k].planes / all, (double)times[k].join / all);
            }
            fflush(stdout);
            free(workspace);
            free(bytes);
        }
    }
    free(values);
    free(levels);
    free(expected);
    free(out);
    free(digest);
    return 0;
}
