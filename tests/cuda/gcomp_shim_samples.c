/*
 * The recorded gradients of data/samples through the device code of GCOMP in the shim, with precision maps
 * from their optimizer states: gcomp_shim_samples DIR
 *
 * Frames of explicit and derived quanta, both presets and all roundings must be the library's, and decode to
 * its values; bf16 halves of the same gradients likewise, without a map.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gcomp_shim.h"

static int failures;

/* Values of a .npy file of fp32, version 1 of the format: ten bytes, the second last two the length of a
 * text. */
static float *read_npy(const char *dir, const char *name, size_t *len)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.npy", dir, name);
    FILE *file = fopen(path, "rb");
    uint8_t head[10];
    if (file == NULL || fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY\x01", 7) != 0) {
        fprintf(stderr, "%s: no .npy file\n", path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    const long text = head[8] | head[9] << 8, size = ftell(file) - 10 - text;
    fseek(file, 10 + text, SEEK_SET);
    float *values = (float *)malloc((size_t)size);
    if (size <= 0 || values == NULL || fread(values, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "%s: cut off\n", path);
        exit(2);
    }
    fclose(file);
    *len = (size_t)size / 4;
    return values;
}

static void *get(size_t size)
{
    void *place = malloc(size != 0 ? size : 1);
    if (place == NULL) {
        exit(2);
    }
    return place;
}

static void compare(const char *name, const gw_gcomp_options *options, const gw_gcomp_source *source)
{
    gw_gcomp codec;
    if (gw_gcomp_init(&codec, options) != GW_OK) {
        exit(2);
    }
    const size_t bound = gw_gcomp_frame_bound(&codec, source->len);
    const size_t value_size = (size_t)source->len * gw_dtype_size(options->dtype);
    uint8_t *frame = (uint8_t *)get(bound);
    uint8_t *values = (uint8_t *)get(value_size), *out = (uint8_t *)get(value_size);
    gw_workspace workspace = {NULL, gw_gcomp_workspace_size(&codec)};
    workspace.data = get(workspace.size);
    gw_buffer expected = {get(bound), bound, 0};
    gw_gcomp_target target = {.values = values, .capacity = source->len};
    if (gw_gcomp_encode(&codec, source, &expected, &workspace) != GW_OK ||
        gw_gcomp_decode(&codec, &(gw_gcomp_frame){expected.data, expected.size, source->quantum.map}, &target,
                        &workspace) != GW_OK) {
        exit(2);
    }
    const gw_cuda_result encoded = gcomp_shim_encode(&codec, source, frame, bound);
    const gcomp_shim_source in = {expected.data, expected.size, source->quantum.map, NULL, 0};
    const gw_cuda_result decoded =
        gcomp_shim_decode(&codec, &in, GW_CUDA_DECODE_VALUES, out, source->len, 99 * 1024);
    const int same = encoded.status == GW_OK && encoded.size == expected.size &&
                     memcmp(frame, expected.data, expected.size) == 0 && decoded.status == GW_OK &&
                     decoded.len == target.len && memcmp(out, values, value_size) == 0;
    failures += !same;
    printf("%s dtype %d mode %d preset %d rounding %d: %zu bytes of %zu%s\n", name, options->dtype,
           options->quantum_mode, options->preset, options->rounding, expected.size, value_size,
           same ? "" : ": DIFFERENT");
    free(expected.data);
    free(frame);
    free(values);
    free(out);
    free(workspace.data);
}

static void test_sample(const char *dir, const char *name, const gw_optimizer *optimizer)
{
    char file[256];
    size_t len, other;
    const int is_adam = optimizer->kind == GW_OPTIMIZER_ADAMW;
    snprintf(file, sizeof file, "%s-grad", name);
    float *gradient = read_npy(dir, file, &len);
    snprintf(file, sizeof file, "%s-param", name);
    float *param = read_npy(dir, file, &other);
    snprintf(file, sizeof file, "%s-%s", name, is_adam ? "exp_avg" : "momentum_buffer");
    float *m = read_npy(dir, file, &other);
    snprintf(file, sizeof file, "%s-exp_avg_sq", name);
    float *v = is_adam ? read_npy(dir, file, &other) : NULL;
    const gw_optimizer_state state = {param, m, v, NULL};
    gw_gcomp_map_rule rule;
    uint32_t top;
    uint8_t *map_bytes = (uint8_t *)get(len);
    uint32_t *digest = (uint32_t *)get(4 * (len / 4096 + 1));
    if (gw_gcomp_map_rule_init(optimizer, 1.0f, NULL, &rule) != GW_OK ||
        gw_gcomp_map_scan(&rule, &state, len, GW_BACKEND_ALL, &top) != GW_OK ||
        gw_gcomp_map_build(&rule, &state, len, gw_gcomp_map_base(top), GW_BACKEND_ALL, map_bytes) != GW_OK ||
        gw_gcomp_map_digest(map_bytes, len, 14, digest) != GW_OK) {
        exit(2);
    }
    const gw_gcomp_map map = {map_bytes, digest, gw_gcomp_map_base(top), 1.0f, len, 14};
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = gradient;
    source.len = len;
    source.quantum = gw_gcomp_quantum_of_map(&map);
    source.seed = 11;
    for (int kind = 0; kind < 4; kind++) {
        gw_gcomp_options options;
        gw_gcomp_options_init(&options, GW_FP32);
        options.quantum_mode = (gw_gcomp_quantum_mode)(kind & 1);
        options.preset = (gw_gcomp_preset)(kind >> 1);
        options.rounding = (gw_gcomp_rounding)(kind % 3);
        options.checksum = kind == 3;
        compare(name, &options, &source);
    }
    uint16_t *halves = (uint16_t *)get(2 * len);
    for (size_t i = 0; i < len; i++) {
        uint32_t bits;
        memcpy(&bits, &gradient[i], 4);
        halves[i] = (uint16_t)(bits >> 16);
    }
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_BF16);
    source.values = halves;
    source.quantum = gw_gcomp_quantum_of_map(NULL);
    compare(name, &options, &source);
    free(halves);
    free(gradient);
    free(param);
    free(m);
    free(v);
    free(map_bytes);
    free(digest);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: gcomp_shim_samples DIR\n");
        return 2;
    }
    gw_optimizer adamw, sgdm;
    memset(&adamw, 0, sizeof adamw);
    adamw.kind = GW_OPTIMIZER_ADAMW;
    adamw.step = 400;
    adamw.lr = 1e-3;
    adamw.beta1 = 0.9;
    adamw.beta2 = 0.999;
    adamw.eps = 1e-8;
    adamw.weight_decay = 0.01;
    memset(&sgdm, 0, sizeof sgdm);
    sgdm.kind = GW_OPTIMIZER_MOMENTUM;
    sgdm.step = 400;
    sgdm.lr = 0.1;
    sgdm.momentum = 0.9;
    test_sample(argv[1], "resnet50-adamw-step0400", &adamw);
    test_sample(argv[1], "bertbase-adamw-step0050", &adamw);
    test_sample(argv[1], "resnet50-sgdm-step0400", &sgdm);
    return failures != 0;
}
