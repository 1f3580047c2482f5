/*
 * Frames of the classic codecs for the golden vectors, written by the library:
 *
 *   make_classic_frames FOLDER [SEED]     FOLDER/NAME.gw; with SEED other lengths and values
 *
 * make_classic_vectors.py calls it, and the differential test.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire/classic.h"

enum { LEN_MAX = 70000 };

static uint64_t state = 1;
static const char *folder;

static uint32_t random32(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "make_classic_frames: %s\n", what);
        exit(1);
    }
}

/* A gradient with zeros and a few large values, little-endian, in a dtype. */
static void fill(uint8_t *dst, gw_dtype dtype, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const uint32_t sign = random32() & 0x80000000u, kind = random32() % 64;
        uint32_t bits = sign | (100 + random32() % 20) << 23 | (random32() & 0x7fffff);
        bits = kind == 0 ? sign : kind == 1 ? sign | 5 : kind == 2 ? bits + (8u << 23) : bits;
        if (dtype == GW_FP16) {
            bits = sign | (kind == 0 ? 0u : random32() % 0x7000u) << 16;
        }
        const size_t size = gw_dtype_size(dtype);
        for (size_t j = 0; j < size; j++) {
            dst[size * i + j] = (uint8_t)(bits >> (8 * (j + 4 - size)));
        }
    }
}

static void save(const char *name, const gw_classic_options *options, uint64_t len, uint64_t keep_len)
{
    static uint8_t values[4 * LEN_MAX];
    static float residual[LEN_MAX], momentum[LEN_MAX];
    gw_classic classic;
    check(gw_classic_init(&classic, options) == GW_OK, name);
    const gw_classic_step step = {len, ((uint64_t)1 << 33) + 77, keep_len, 9, 2};
    const uint32_t arrays = gw_classic_state_arrays(&classic);
    const gw_classic_source source = {values, (arrays & GW_CLASSIC_RESIDUAL) != 0 ? residual : NULL,
                                      (arrays & GW_CLASSIC_MOMENTUM) != 0 ? momentum : NULL, NULL};
    gw_workspace workspace = {NULL, gw_classic_workspace_size(&classic, &step)};
    gw_buffer dst = {NULL, gw_classic_frame_bound(&classic, &step), 0};
    workspace.data = malloc(workspace.size + 1);
    dst.data = malloc(dst.capacity);
    check(workspace.data != NULL && dst.data != NULL, "out of memory");
    memset(residual, 0, sizeof residual);
    memset(momentum, 0, sizeof momentum);
    fill(values, options->dtype, (size_t)len);
    check(gw_classic_encode(&classic, &step, &source, &dst, &workspace) == GW_OK, name);
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.gw", folder, name);
    FILE *f = fopen(path, "wb");
    check(f != NULL && fwrite(dst.data, 1, dst.size, f) == dst.size && fclose(f) == 0, path);
    free(workspace.data);
    free(dst.data);
}

/* One scheme in every dtype, empty, short and of odd lengths, with and without a checksum. */
static void save_scheme(gw_classic_scheme scheme)
{
    static const char *const dtypes[] = {NULL, "fp32", "bf16", "fp16"};
    static const uint64_t lengths[] = {0, 1, 77, 500};
    char name[64];
    for (unsigned dtype = 1; dtype <= 3; dtype++) {
        for (unsigned i = 0; i < 4; i++) {
            gw_classic_options options;
            const uint64_t len = state != 1 && i > 1 ? 2 + random32() % 3000 : lengths[i];
            check(gw_classic_options_init(&options, scheme) == GW_OK, "options");
            options.dtype = (gw_dtype)dtype;
            options.checksum = (int)(dtype + i) % 2;
            options.seed = 0x0123456789abcdefu + state % 1000;
            options.block_len = scheme == GW_CLASSIC_ONEBIT && i > 1 ? 37 : options.block_len;
            snprintf(name, sizeof name, "%s-%s-%u", gw_classic_scheme_name(scheme), dtypes[dtype], i);
            save(name, &options, len, len == 0 ? 0 : 1 + len / (i == 2 ? 20 : 4));
        }
    }
}

static void save_sparse(void)
{
    char name[64];
    for (unsigned values = 0; values < 3; values++) {
        for (unsigned i = 0; i < 4; i++) { /* gaps, mask, nearly all, several groups */
            static const uint64_t len[] = {3000, 3000, 3000, 40000}, keep_len[] = {20, 900, 2990, 1500};
            gw_classic_options options;
            check(gw_classic_options_init(&options, i % 2 == 0 ? GW_CLASSIC_TOPK : GW_CLASSIC_DGC) == GW_OK,
                  "options");
            options.values = (gw_classic_values)values;
            snprintf(name, sizeof name, "sparse-values%u-%u", values, i);
            save(name, &options, len[i], keep_len[i]);
            if (values < 2) {
                check(gw_classic_options_init(&options, GW_CLASSIC_RANDK) == GW_OK, "options");
                options.values = (gw_classic_values)values;
                options.unbiased = i % 2 == 0;
                snprintf(name, sizeof name, "randk-values%u-%u", values, i);
                save(name, &options, len[i], keep_len[i]);
            }
        }
    }
}

static void save_levels(void)
{
    static const uint32_t level_max[] = {1, 2, 3, 127};
    char name[64];
    for (unsigned coding = 0; coding < 3; coding++) {
        gw_classic_options options;
        for (unsigned i = 0; i < 4; i++) {
            check(gw_classic_options_init(&options, GW_CLASSIC_QSGD) == GW_OK, "options");
            options.coding = (gw_classic_coding)coding;
            options.norm = i % 2 != 0 ? GW_CLASSIC_NORM_MAX : GW_CLASSIC_NORM_L2;
            options.level_max = level_max[i];
            options.block_len = i == 3 ? 0 : 128;
            snprintf(name, sizeof name, "qsgd-coding%u-%u", coding, level_max[i]);
            save(name, &options, 2500, 0);
        }
        check(gw_classic_options_init(&options, GW_CLASSIC_TERNGRAD) == GW_OK, "options");
        options.coding = (gw_classic_coding)coding;
        snprintf(name, sizeof name, "terngrad-coding%u", coding);
        save(name, &options, 2500, 0);
        snprintf(name, sizeof name, "terngrad-coding%u-chunks", coding);
        save(name, &options, 33000, 0);
    }
}

int main(int argc, char **argv)
{
    check(argc == 2 || argc == 3, "usage: make_classic_frames FOLDER [SEED]");
    folder = argv[1];
    if (argc == 3) {
        state = 2 + strtoull(argv[2], NULL, 10);
    }
    for (unsigned scheme = GW_CLASSIC_FP16; scheme <= GW_CLASSIC_TERNGRAD; scheme++) {
        save_scheme((gw_classic_scheme)scheme);
    }
    save_sparse();
    save_levels();
    return 0;
}
