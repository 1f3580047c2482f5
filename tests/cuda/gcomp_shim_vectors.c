/*
 * The golden vectors through the device code of GCOMP, in the shim: gcomp_shim_vectors DIR [MINIMUM]
 *
 * Status, bad chunk, length and output of decode, decode_add and validate, for every line of the index;
 * outputs are in allocations of exactly their size.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gcomp_shim.h"
#include "vector.h"

static int failures;

static void fail(const vector *v, const char *mode, const char *what)
{
    failures++;
    printf("%s: %s: %s\n", v->file, mode, what);
}

static void test_vector(const vector *v, uint32_t shared_size_max)
{
    gw_gcomp codec;
    if (!vector_receiver(v, GW_BACKEND_SCALAR, &codec)) {
        failures++;
        return;
    }
    static const char *const names[] = {"decode", "add", "validate", "sum"};
    const size_t size = gw_dtype_size(v->dtype);
    const uint64_t capacity = vector_capacity(v);
    uint8_t *expected = (uint8_t *)golden_take((size_t)capacity * size);
    uint8_t *out = (uint8_t *)golden_take((size_t)capacity * size);
    uint8_t *addend = (uint8_t *)golden_take((size_t)capacity * size);
    gw_workspace workspace = {NULL, gw_gcomp_workspace_size(&codec)};
    workspace.data = golden_take(workspace.size);
    for (size_t i = 0; i < capacity * size; i++) {
        addend[i] = (uint8_t)(size == 4 && i % 4 == 3 ? 0x3f : i * 7);
    }
    for (uint32_t mode = GW_CUDA_DECODE_VALUES; mode <= GW_CUDA_DECODE_SUM; mode++) {
        const gw_gcomp_frame frame = {v->frame.data, v->frame.size, vector_map(v)};
        gw_gcomp_target target = {.values = expected, .capacity = capacity, .len = 0, .bad_chunk = 77};
        gw_status status;
        memset(out, 0x5a, (size_t)capacity * size);
        memset(expected, 0x5a, (size_t)capacity * size);
        if (mode == GW_CUDA_DECODE_VALUES) {
            status = gw_gcomp_decode(&codec, &frame, &target, &workspace);
        } else if (mode == GW_CUDA_DECODE_VALIDATE) {
            status = gw_gcomp_frame_check(&codec, &frame, &target.bad_chunk, &workspace);
        } else {
            memcpy(expected, addend, (size_t)capacity * size);
            if (mode == GW_CUDA_DECODE_ADD) {
                memcpy(out, addend, (size_t)capacity * size);
            }
            status = gw_gcomp_decode_add(&codec, &frame, &target, &workspace);
        }
        const gcomp_shim_source source = {v->frame.data, v->frame.size, vector_map(v), addend, 0};
        const gw_cuda_result result =
            gcomp_shim_decode(&codec, &source, mode, out, capacity, shared_size_max);
        if (result.status != (uint32_t)status) {
            fail(v, names[mode], gw_status_name((gw_status)result.status));
        } else if (result.bad_index != target.bad_chunk) {
            fail(v, names[mode], "another chunk is called bad");
        } else if (mode != GW_CUDA_DECODE_VALIDATE && result.len != target.len) {
            fail(v, names[mode], "another length");
        }
        if (mode == GW_CUDA_DECODE_SUM && status == GW_OK) {
            memcpy(out + (size_t)target.len * size, expected + (size_t)target.len * size,
                   (size_t)(capacity - target.len) * size);
        }
        if ((mode != GW_CUDA_DECODE_SUM || status == GW_OK) &&
            memcmp(out, expected, (size_t)capacity * size) != 0) {
            size_t at = 0;
            while (out[at] == expected[at]) {
                at++;
            }
            fail(v, names[mode], "other values");
            printf("   first at byte %zu of %zu\n", at, (size_t)capacity * size);
        }
    }
    free(expected);
    free(out);
    free(addend);
    free(workspace.data);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gcomp_shim_vectors DIR [MINIMUM [ONLY]]\n");
        return 2;
    }
    char path[2048];
    snprintf(path, sizeof path, "%s/index.tsv", argv[1]);
    FILE *index = fopen(path, "r");
    if (index == NULL) {
        fprintf(stderr, "%s: cannot open\n", path);
        return 2;
    }
    int count = 0;
    for (vector v; vector_read(&v, index, argv[1]);) {
        if (argc < 4 || strstr(v.file, argv[3]) != NULL) {
            gw_shim_seed((uint64_t)count);
            /* Every third one with little shared memory, so that chunks are decoded in place; every
             * ninth with arrays in the workspace, too. */
            test_vector(&v, count % 9 == 5 ? 40 * 1024 : count % 3 == 2 ? 57 * 1024 : 99 * 1024);
        }
        count++;
        vector_free(&v);
    }
    fclose(index);
    if (argc > 2 && count < atoi(argv[2])) {
        printf("%d vectors are too few\n", count);
        failures++;
    }
    printf("%d vectors, %d failures\n", count, failures);
    return failures != 0;
}
