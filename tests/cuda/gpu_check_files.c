/*
 * Recorded arrays, optimizer states and golden frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

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

int ends_with(const char *s, const char *end)
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

void check_npy(const char *path)
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
        const tensor t = make_tensor(GW_FP32, len, 0, 1, 14, &random);
        memcpy(t.values, array, 4 * len);
        c.codec = make_codec(GW_FP32, (gw_gcomp_quantum_mode)(variant & 1), (gw_gcomp_preset)(variant >> 1),
                             GW_GCOMP_NEAREST, 14, 1);
        snprintf(c.name, sizeof c.name, "%.120s variant %d", path, variant);
        make_case(&c, t);
        compare_encode(&c);
        compare_decode(&c, c.frame, c.frame_size, 0);
        compare_hop(&c);
        drop_case(&c);
    }
    thc_case j = make_thc(WORKERS, 4, 10, GW_FP32, 8, GW_THC_ROTATED, 1);
    uint64_t random = 6;
    snprintf(j.name, sizeof j.name, "%.90s", path);
    compare_thc(&j, len, 0, gw_thc_block_count(&j.thc, len), array, 0, &random);
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

/* A gradient with a map of its own optimizer state, in all dtypes: fp16 scaled by 1024, as in training. */
static void compare_with_map(const float *grad, size_t len, const uint8_t *map_bytes, uint32_t base,
                             const char *name)
{
    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        const float scale = dtype == GW_FP16 ? 1024.0f : 1.0f;
        uint8_t *values = take(len * gw_dtype_size((gw_dtype)dtype)), *own_map_bytes = take(len);
        memcpy(own_map_bytes, map_bytes, len);
        for (size_t i = 0; i < len; i++) {
            const float x = grad[i] * scale;
            uint32_t bits;
            memcpy(&bits, &x, 4);
            const uint16_t half = dtype == GW_BF16 ? (uint16_t)(bits >> 16) : half_of(x);
            memcpy(values + gw_dtype_size((gw_dtype)dtype) * i,
                   dtype == GW_FP32 ? (void *)&bits : (void *)&half, gw_dtype_size((gw_dtype)dtype));
        }
        c.codec = make_codec((gw_dtype)dtype, GW_GCOMP_DERIVED,
                             dtype == GW_BF16 ? GW_GCOMP_SMALL : GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC, 14, 1);
        snprintf(c.name, sizeof c.name, "%.100s, dtype %u", name, dtype);
        make_case(&c, tensor_of((gw_dtype)dtype, len, values,
                                &(gw_gcomp_map){own_map_bytes, NULL, base, scale, len, 14}));
        compare_encode(&c);
        compare_decode(&c, c.frame, c.frame_size, 0);
        compare_decode(&c, c.frame, c.frame_size, 1);
        compare_hop(&c);
        drop_case(&c);
    }
}

/*
 * Lines `name, first value, gradient, parameters, m, v` of .npy files beside the list, - for none; the
 * gradient may be longer than the states, which begin at its value `first`. An optimizer that needs an array
 * that is not there is left out; a is v (of AMSGrad) or m (RMSprop's average of gradients), which it is close
 * to.
 */
void check_states(const char *list, size_t len_max)
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
            const gw_gcomp_map_rule rule = make_rule((gw_optimizer_kind)kind);
            uint32_t base;
            char name[160];
            const gw_optimizer_state s = {array[PARAM], array[M], array[V],
                                          kind == GW_OPTIMIZER_RMSPROP ? array[M] : array[V]};
            if (((rule.uses & 1) != 0 && s.m == NULL) || ((rule.uses & 2) != 0 && s.v == NULL) ||
                ((rule.uses & 4) != 0 && s.a == NULL)) {
                continue;
            }
            snprintf(name, sizeof name, "%.90s, map of optimizer %u", title, kind);
            uint8_t *map_bytes = compare_map(&rule, &s, len, 0, name, &base);
            compare_with_map(array[GRAD] + first, len, map_bytes, base, name);
            free(map_bytes);
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

/* Golden frames to receivers with the maps and codebooks of the index: device, CPU and the stored values and
 * statuses agree. */
void check_vectors(const char *folder)
{
    char path[2048];
    unsigned long count = 0, valid = 0, with_map = 0, with_codebook = 0;

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
        c.t.len = vector_capacity(&v);
        c.value_size = (size_t)c.t.len * gw_dtype_size(v.dtype);
        uint8_t *values = take(c.value_size);
        memset(values, 0x3c, c.value_size);
        c.t.values = values;
        if (vector_map(&v) != NULL) {
            gw_gcomp_map *map = &c.t.device_map;
            *map = *vector_map(&v);
            map->bytes = on_device(map->bytes, (size_t)map->len);
            map->digest = on_device(map->digest, 4 * ((size_t)(map->len >> map->chunk_log2) + 1));
            c.t.cpu.quantum = gw_gcomp_quantum_of_map(vector_map(&v));
            c.t.device.quantum = gw_gcomp_quantum_of_map(map);
        }
        const gw_status status = compare_decode(&c, v.frame.data, v.frame.size, 0);
        compare_decode(&c, v.frame.data, v.frame.size, 1);
        compare_validate(&c, v.frame.data, v.frame.size);
        expect(vector_is_status(&v, status), "status of the index", c.name);
        if (strcmp(v.status, "OK") == 0 && status == GW_OK) {
            /* What the device decodes is what this call does, by the comparison above. */
            void *workspace = take(gw_gcomp_workspace_size(&c.codec));
            gw_gcomp_target target = {.values = values, .capacity = c.t.len};
            must(gw_gcomp_decode(&c.codec,
                                 &(gw_gcomp_frame){
                                     .data = v.frame.data, .size = v.frame.size, .map = c.t.cpu.quantum.map},
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
            with_map += c.t.cpu.quantum.map != NULL;
            with_codebook += v.codebook.data != NULL;
        }
        give((void *)(uintptr_t)c.t.device_map.bytes);
        give((void *)(uintptr_t)c.t.device_map.digest);
        free(values);
    }
    fclose(index);
    printf("%lu golden frames: %lu decoded to their values (%lu with a map, %lu with an installed codebook), "
           "%lu refused\n",
           count, valid, with_map, with_codebook, count - valid);
    expect(count > 0 && with_map > 0 && with_codebook > 0, "the index has frames of all kinds", folder);
}

void check_frame(const char *path)
{
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    gw_gcomp_frame_info info;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        gcomp_case c;
        memset(&c, 0, sizeof c);
        c.codec = make_codec((gw_dtype)dtype, GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, (gw_gcomp_rounding)1, 14, 0);
        c.t.len = gw_gcomp_frame_peek(bytes, size, 1 << 22, &info) == GW_OK ? info.len : 1000;
        c.value_size = (size_t)c.t.len * gw_dtype_size((gw_dtype)dtype);
        uint8_t *values = take(c.value_size);
        memset(values, 0x3c, c.value_size);
        c.t.values = values;
        snprintf(c.name, sizeof c.name, "%.120s as dtype %u", path, dtype);
        compare_decode(&c, bytes, size, 0);
        compare_decode(&c, bytes, size, 1);
        free(values);
    }
    free(bytes);
}
