/*
 * THC on the device against the CPU, bit for bit: norms, encode with and without error feedback, sums,
 * decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    gw_thc_options options;
    gw_thc thc;
    gw_thc_range range;
    size_t first_element, len; /* of the range */
    size_t patterns;           /* of the range */
} job;

static void *take(size_t size)
{
    void *p = malloc(size + (size == 0));
    assert_non_null(p);
    return p;
}

/* A configuration for `workers`, with lanes that hold the sum. */
static job make_job(unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits, uint32_t workers,
                    gw_thc_transform transform, gw_thc_nonfinite nonfinite, int error_feedback)
{
    job j;
    memset(&j, 0, sizeof j);
    const gw_thc_goal goal = {bits, workers, lane_bits, error_feedback};
    gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    assert_int_equal(gw_thc_options_init(&j.options, &goal, &workspace), GW_OK);
    free(workspace.data);
    j.options.seed = 0x123456789abcdef0u + bits;
    j.options.dtype = dtype;
    j.options.block_log2 = block_log2;
    j.options.nonfinite = nonfinite;
    j.options.transform = transform;
    if (transform == GW_THC_PLAIN) {
        j.options.threshold_bits = 0;
    }
    assert_int_equal(gw_thc_init(&j.thc, &j.options), GW_OK);
    return j;
}

static void set_range(job *j, uint64_t count, uint64_t first, uint64_t blocks, uint32_t rank)
{
    j->range.len = count;
    j->range.block_first = first;
    j->range.block_count = blocks;
    j->range.round = 0xfffffff0u + rank;
    j->range.rank = rank;
    j->first_element = (size_t)(first << j->options.block_log2);
    uint64_t end = (first + blocks) << j->options.block_log2;
    end = end < count ? end : count;
    j->len = end > j->first_element ? (size_t)end - j->first_element : 0;
    j->patterns = (size_t)blocks * gw_thc_patterns_per_block(&j->thc);
}

static gw_cuda_result *new_result(void)
{
    return testing_device(NULL, sizeof(gw_cuda_result), 0);
}

static size_t size_of(const job *j)
{
    return gw_dtype_size((gw_dtype)j->options.dtype);
}

/* The other workers: maxima somewhat above the own patterns, one block's equal to them. */
static void raise_maxima(const job *j, uint32_t *patterns, uint64_t *random)
{
    for (size_t i = 0; i < j->patterns; i++) {
        const uint32_t mark = j->options.transform == GW_THC_ROTATED ? GW_THC_NORM_NONFINITE : 0xffffffffu;
        const uint32_t r = (uint32_t)testing_random(random);
        if (patterns[i] == mark || r % 4 == 0) {
            continue;
        }
        if (j->options.transform == GW_THC_ROTATED && patterns[i] == 0) {
            patterns[i] = r % 3 == 0 ? 0 : 0x3f800000u; /* others have values where this one has none */
        } else if (patterns[i] < (j->options.transform == GW_THC_ROTATED ? 0x7d000000u : 0xfd000000u)) {
            patterns[i] += r % 0x1000000u;
        }
    }
    if (j->options.transform == GW_THC_PLAIN) {
        uint64_t bad;
        for (size_t i = 0; i < j->range.block_count; i++) { /* keep what is not a pattern as it was not */
            if (gw_thc_norms_check(&j->thc, patterns + 2 * i, 1, &bad) != GW_OK) {
                patterns[2 * i] = 0xc0000000u;
                patterns[2 * i + 1] = 0xc0000000u;
            }
        }
    }
}

/* One worker's round on both: returns the device's indices (host copy) and leaves maxima. */
static void compare_worker(gw_cuda *cuda, const job *j, const void *x, const float *error, uint32_t *maxima,
                           uint8_t **indices_out, size_t offset, uint64_t *random, int own_given)
{
    const size_t element_size = size_of(j);
    const size_t indices_size =
        gw_thc_indices_size(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    uint32_t *own = take(4 * j->patterns);
    float *cpu_error = NULL;
    uint8_t *cpu_indices = take(indices_size);
    const void *device_x = testing_device(x, element_size * j->len, offset * element_size);
    float *device_error = error != NULL ? testing_device(error, 4 * j->len, 4 * offset) : NULL;
    uint32_t *device_own = testing_device(NULL, 4 * j->patterns, 0);
    gw_cuda_result *result = new_result();
    uint64_t bad = 99;

    if (error != NULL) {
        cpu_error = take(4 * j->len);
        memcpy(cpu_error, error, 4 * j->len);
    }
    gw_status status = gw_thc_norms(&j->thc, &j->range, &(gw_thc_source){.values = x, .error = cpu_error},
                                    own, &bad, &workspace);
    assert_int_equal(
        gw_cuda_thc_norms(cuda, &j->thc, &j->range,
                          &(gw_thc_source){.values = device_x, .error = (float *)(uintptr_t)device_error},
                          device_own, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
        GW_OK);
    gw_cuda_result r = testing_result(result);
    assert_int_equal(r.status, status);
    if (status != GW_OK) {
        assert_int_equal(r.bad_index, bad);
        assert_int_equal(r.len, 0);
    } else {
        assert_true(r.bad_index == UINT64_MAX);
        assert_int_equal(r.len, j->len);
        assert_memory_equal(device_own, own, 4 * j->patterns);
    }
    if (status == GW_OK) {
        memcpy(maxima, own, 4 * j->patterns);
        raise_maxima(j, maxima, random);
        const uint32_t *device_maxima = testing_device(maxima, 4 * j->patterns, 0);
        uint8_t *device_indices = testing_device(NULL, indices_size, 0);
        gw_cuda_thc_key key = {j->options.seed, j->range.round, j->range.rank};
        gw_thc_range other = j->range;
        other.round ^= 0x5555; /* what the device key must replace */
        const int in_memory = (int)(testing_random(random) & 1);
        const gw_cuda_thc_key *device_key = in_memory ? testing_device(&key, sizeof key, 0) : NULL;

        status = gw_thc_encode(&j->thc, &j->range,
                               &(gw_thc_source){.values = x, .error = cpu_error, .patterns = maxima},
                               &(gw_buffer){cpu_indices, indices_size, 0}, &bad, &workspace);
        assert_int_equal(gw_cuda_thc_encode(cuda, &j->thc, in_memory ? &other : &j->range,
                                            &(gw_thc_source){.values = device_x,
                                                             .error = device_error,
                                                             .patterns = device_maxima,
                                                             .own_patterns = own_given ? device_own : NULL},
                                            &(gw_cuda_buffer){device_indices, indices_size},
                                            &(gw_cuda_thc_request){device_key, GW_THC_SUM, result, NULL}),
                         GW_OK);
        r = testing_result(result);
        assert_int_equal(r.status, status);
        assert_int_equal(status, GW_OK);
        assert_memory_equal(device_indices, cpu_indices, indices_size);
        if (error != NULL) {
            assert_memory_equal(device_error, cpu_error, 4 * j->len);
        }
        *indices_out = cpu_indices;
        cpu_indices = NULL;
    }
    free(workspace.data);
    free(own);
    free(cpu_error);
    free(cpu_indices);
    testing_free_all();
}

static void compare_decode(gw_cuda *cuda, const job *j, const uint8_t *lanes, size_t lanes_size,
                           const uint32_t *members, const uint32_t *maxima, gw_thc_mode mode, size_t offset)
{
    const size_t size = size_of(j) * j->len;
    uint8_t *cpu = take(size);
    uint8_t *device = testing_device(NULL, size, offset * size_of(j));
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    gw_cuda_result *result = new_result();
    const gw_thc_sum sum = {lanes, lanes_size, members, maxima};
    gw_thc_target target = {.values = cpu, .capacity = j->len};
    gw_status status;

    if (members != NULL) {
        status = gw_thc_decode(&j->thc, &j->range, &sum, mode, &target, &workspace);
        assert_int_equal(
            gw_cuda_thc_decode(cuda, &j->thc, &j->range,
                               &(gw_thc_sum){testing_device(lanes, lanes_size, 0), lanes_size,
                                             testing_device(members, 4 * (size_t)j->range.block_count, 0),
                                             testing_device(maxima, 4 * j->patterns, 0)},
                               &(gw_cuda_target){device, size / size_of(j)},
                               &(gw_cuda_thc_request){NULL, mode, result, NULL}),
            GW_OK);
    } else {
        status = gw_thc_decode_reduced(&j->thc, &j->range, &sum, mode, &target, &workspace);
        assert_int_equal(
            gw_cuda_thc_decode_reduced(cuda, &j->thc, &j->range,
                                       &(gw_thc_sum){testing_device(lanes, lanes_size, 0), lanes_size, NULL,
                                                     testing_device(maxima, 4 * j->patterns, 0)},
                                       &(gw_cuda_target){device, size / size_of(j)},
                                       &(gw_cuda_thc_request){NULL, mode, result, NULL}),
            GW_OK);
    }
    const gw_cuda_result r = testing_result(result);
    assert_int_equal(r.status, status);
    assert_true(r.bad_index == target.bad_block);
    assert_int_equal(r.missing, target.missing);
    assert_int_equal(r.len, status == GW_OK ? j->len : 0);
    assert_memory_equal(device, cpu, size);
    free(cpu);
    free(workspace.data);
    testing_free_all();
}

enum { WORKERS = 5 };

static gw_thc_agg make_agg(const job *j)
{
    gw_thc_agg agg;
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){j->options.table, j->options.worker_max,
                                                                 j->options.lane_bits, GW_BACKEND_SCALAR}),
                     GW_OK);
    return agg;
}

/* Sums of indices in one call, of partial sums, decodes with missing blocks; raw reduction. */
static void compare_sums(gw_cuda *cuda, const job *j, uint8_t *const *indices, const uint32_t *maxima,
                         size_t offset, uint64_t *random)
{
    const gw_thc_agg agg = make_agg(j);
    const size_t len =
        (size_t)gw_thc_range_lanes(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
    const size_t lanes_size = len * (j->options.lane_bits / 8);
    const size_t indices_size = len / 8 * j->options.table.bits;
    const uint32_t ranks[WORKERS] = {0, 1, 2, 3, 4};
    uint8_t *lanes = take(lanes_size);
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
    uint8_t device_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const uint8_t *source[WORKERS];
    const uint8_t *device_source[WORKERS];
    uint8_t *device_lanes = testing_device(NULL, lanes_size, 0);

    memset(lanes, 0, lanes_size);
    for (int w = 0; w < WORKERS; w++) {
        source[w] = indices[w];
        device_source[w] = testing_device(indices[w], indices_size, 0);
    }
    assert_int_equal(
        gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){lanes, set, len}, source, ranks, WORKERS), GW_OK);
    /* Two at first, into memory with anything in it; the rest on top. */
    assert_int_equal(gw_cuda_thc_sum_indices(cuda, &agg, &(gw_thc_partial){device_lanes, device_set, len},
                                             &(gw_cuda_thc_inputs){device_source, ranks, NULL, 2, 0}, NULL),
                     GW_OK);
    assert_int_equal(gw_cuda_thc_sum_indices(
                         cuda, &agg, &(gw_thc_partial){device_lanes, device_set, len},
                         &(gw_cuda_thc_inputs){device_source + 2, ranks + 2, NULL, WORKERS - 2, 1}, NULL),
                     GW_OK);
    assert_memory_equal(device_set, set, sizeof set);
    testing_sync();
    assert_memory_equal(device_lanes, lanes, lanes_size);
    assert_int_equal(gw_cuda_thc_sum_indices(cuda, &agg, &(gw_thc_partial){device_lanes, device_set, len},
                                             &(gw_cuda_thc_inputs){device_source, ranks, NULL, 1, 1}, NULL),
                     GW_ERR_DUP);

    /* The same as partial sums of two and three. */
    uint8_t sets[2][GW_THC_SET_SIZE(WORKERS)];
    uint8_t sum_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    uint8_t *partial[2];
    const uint8_t *in_lanes[2];
    const uint8_t *in_sets[2] = {sets[0], sets[1]};
    uint8_t *sum = testing_device(NULL, lanes_size, 0);
    gw_cuda_result *result = new_result();
    memset(sets, 0, sizeof sets);
    for (int h = 0; h < 2; h++) {
        partial[h] = testing_device(NULL, lanes_size, 0);
        in_lanes[h] = partial[h];
        assert_int_equal(gw_cuda_thc_sum_indices(cuda, &agg, &(gw_thc_partial){partial[h], sets[h], len},
                                                 &(gw_cuda_thc_inputs){device_source + 2 * h, ranks + 2 * h,
                                                                       NULL, h == 0 ? 2 : 3, 0},
                                                 NULL),
                         GW_OK);
    }
    assert_int_equal(gw_cuda_thc_sum_lanes(cuda, &agg, &(gw_thc_partial){sum, sum_set, len},
                                           &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 2, 0},
                                           &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_OK);
    assert_int_equal(testing_result(result).status, GW_OK);
    assert_memory_equal(sum_set, set, sizeof set);
    assert_memory_equal(sum, lanes, lanes_size);
    /* A lane too large in the second: nothing is added. */
    if (len > 0) {
        const size_t lane_size = j->options.lane_bits / 8;
        const size_t at = (size_t)(testing_random(random) % len) * lane_size;
        const uint32_t limit = 3u * j->options.table.granularity;
        if (lane_size > 1 || limit < 255) {
            const uint32_t bad = limit + 1;
            memcpy(partial[1] + at, &bad, lane_size);
            memset(sum_set, 0, sizeof sum_set);
            memset(sum, 0x11, lanes_size);
            assert_int_equal(gw_cuda_thc_sum_lanes(cuda, &agg, &(gw_thc_partial){sum, sum_set, len},
                                                   &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 2, 0},
                                                   &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                             GW_OK);
            const gw_cuda_result r = testing_result(result);
            assert_int_equal(r.status, GW_ERR_CORRUPT);
            assert_int_equal(r.bad_index, 1);
            for (size_t i = 0; i < lanes_size; i++) {
                assert_int_equal(sum[i], 0x11);
            }
        }
    }

    /* Raw reduction. */
    const size_t reduced_size =
        gw_thc_reduced_size(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
    uint8_t *reduced = take(reduced_size);
    uint8_t *device_reduced = testing_device(NULL, reduced_size, 0);
    assert_int_equal(gw_thc_expand(&j->thc, &j->range, &(gw_thc_indices){source[0], indices_size, NULL},
                                   &(gw_buffer){reduced, reduced_size, 0}),
                     GW_OK);
    assert_int_equal(gw_cuda_thc_expand(cuda, &j->thc, &j->range,
                                        &(gw_thc_indices){device_source[0], indices_size, NULL},
                                        &(gw_cuda_buffer){device_reduced, reduced_size}, NULL),
                     GW_OK);
    testing_sync();
    assert_memory_equal(device_reduced, reduced, reduced_size);
    testing_free_all();

    uint32_t *members = take(4 * (size_t)j->range.block_count);
    for (size_t b = 0; b < j->range.block_count; b++) {
        members[b] = WORKERS;
    }
    compare_decode(cuda, j, lanes, lanes_size, members, maxima, GW_THC_SUM, offset);
    compare_decode(cuda, j, lanes, lanes_size, members, maxima, GW_THC_MEAN, offset);
    compare_decode(cuda, j, reduced, reduced_size, NULL, maxima, GW_THC_MEAN, 0);
    /* Hostile: members, lanes and patterns at random; compared with the CPU. */
    for (int turn = 0; turn < 4 && len > 0; turn++) {
        uint32_t *wrong = take(4 * j->patterns);
        memcpy(wrong, maxima, 4 * j->patterns);
        for (size_t b = 0; b < j->range.block_count; b++) {
            const uint64_t r = testing_random(random);
            members[b] = r % 5 == 0   ? 0
                         : r % 7 == 0 ? (uint32_t)(r >> 32)
                                      : 1 + (uint32_t)(r >> 40) % WORKERS;
        }
        if (turn > 1) {
            lanes[testing_random(random) % lanes_size] = (uint8_t)testing_random(random);
            wrong[testing_random(random) % j->patterns] = (uint32_t)testing_random(random);
            wrong[testing_random(random) % j->patterns] = 0;
        }
        compare_decode(cuda, j, lanes, lanes_size, members, wrong, turn & 1 ? GW_THC_MEAN : GW_THC_SUM,
                       offset);
        free(wrong);
    }
    free(members);
    free(reduced);
    free(lanes);
}

static void compare_job(gw_cuda *cuda, job *j, uint64_t count, uint64_t first, uint64_t blocks,
                        unsigned nonfinite_log2, size_t offset, uint64_t *random)
{
    uint8_t *indices[WORKERS] = {NULL};
    uint32_t *maxima = NULL;

    for (uint32_t w = 0; w < WORKERS; w++) {
        set_range(j, count, first, blocks, w);
        uint8_t *x = take(size_of(j) * j->len);
        float *error = j->options.error_feedback != 0 ? take(4 * j->len) : NULL;
        maxima = maxima != NULL ? maxima : take(4 * j->patterns);
        testing_values(x, (gw_dtype)j->options.dtype, j->len, nonfinite_log2, random);
        if (error != NULL) {
            testing_values(error, GW_FP32, j->len, 0, random);
        }
        if (j->len > 3 && w == 0) { /* a block of zeros */
            const size_t block = (size_t)1 << j->options.block_log2;
            const size_t n = j->len < block ? j->len : block;
            memset(x, 0, n * size_of(j));
            if (error != NULL) {
                memset(error, 0, 4 * n);
            }
        }
        compare_worker(cuda, j, x, error, maxima, &indices[w], offset, random, (int)(w & 1));
        free(x);
        free(error);
    }
    int all_encoded = 1;
    for (int w = 0; w < WORKERS; w++) {
        all_encoded = all_encoded && indices[w] != NULL; /* values near the end of the range are refused */
    }
    if (all_encoded) {
        compare_sums(cuda, j, indices, maxima, offset, random);
    }
    for (int w = 0; w < WORKERS; w++) {
        free(indices[w]);
    }
    free(maxima);
}

static void all_shapes(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 7;

    testing_open(&cuda);
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        const uint64_t block = (uint64_t)1 << block_log2;
        const uint64_t many = block_log2 < 10 ? 2600 / block : 3;
        for (unsigned bits = 1; bits <= 4; bits++) {
            const unsigned lane_bits = bits == 1 ? 8 : bits == 2 ? 16 : bits == 3 ? 32 : 8;
            const gw_dtype dtype = (gw_dtype)(1 + (bits + block_log2) % 3);
            /* At 1 bit the default table's errors diverge; no feedback there. */
            job j = make_job(bits, block_log2, dtype, lane_bits, WORKERS, GW_THC_ROTATED,
                             GW_THC_NONFINITE_ERROR, bits > 1);
            compare_job(&cuda, &j, many * block + block / 2 + 1, 0, many + 1, 0, 0, &random);
            compare_job(&cuda, &j, many * block + 3, 1, many, 0, 1, &random);
            job plain = make_job(bits, block_log2, dtype, lane_bits, WORKERS, GW_THC_PLAIN,
                                 GW_THC_NONFINITE_ERROR, 0);
            compare_job(&cuda, &plain, many * block + 5, 0, many + 1, 0, bits & 1, &random);
        }
    }
    gw_cuda_close(&cuda);
}

/* Norms near the end of fp32: sums become infinite, errors too, as on the CPU, and not the largest number.
 * And norms whose values are below the smallest fp16, which are never -0. */
static void largest_norms(void **state)
{
    (void)state;
    enum { BLOCKS = 6, LEN = BLOCKS * 1024 - 300, LANES = BLOCKS * 1024 };
    const uint32_t maxima[BLOCKS] = {0x7f7fffffu, 0x7f000000u, 0x35800000u,
                                     0x7e812345u, 0x40000001u, 0x35800000u};
    const uint32_t members[BLOCKS] = {WORKERS, WORKERS, WORKERS, WORKERS, WORKERS, WORKERS};
    const gw_dtype dtypes[] = {GW_FP32, GW_BF16, GW_FP16};
    gw_cuda cuda;
    uint64_t random = 13;

    testing_open(&cuda);
    for (unsigned d = 0; d < 9; d++) {
        const unsigned lane_bits = 8u << d / 3;
        job j = make_job(4, 10, dtypes[d % 3], lane_bits, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 0);
        const size_t lane_size = lane_bits / 8;
        uint8_t *lanes = take(LANES * lane_size);
        uint8_t *decoded = take(LEN * sizeof(float));
        const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
        uint32_t infinite = 0;

        set_range(&j, LEN, 0, BLOCKS, 0);
        for (size_t i = 0; i < LANES; i++) { /* all or nothing */
            const uint32_t lane =
                testing_random(&random) % 4 == 0 ? 0 : WORKERS * (uint32_t)j.options.table.granularity;
            memcpy(lanes + i * lane_size, &lane, lane_size); /* little-endian, as the device is */
        }
        compare_decode(&cuda, &j, lanes, LANES * lane_size, members, maxima, GW_THC_SUM, 0);
        compare_decode(&cuda, &j, lanes, LANES * lane_size, members, maxima, GW_THC_SUM, 1);
        compare_decode(&cuda, &j, lanes, LANES * lane_size, members, maxima, GW_THC_MEAN, 0);
        if (j.options.dtype == GW_FP32) { /* and the case is what it is meant to be */
            assert_int_equal(
                gw_thc_decode(&j.thc, &j.range, &(gw_thc_sum){lanes, LANES * lane_size, members, maxima},
                              GW_THC_SUM, &(gw_thc_target){.values = decoded, .capacity = LEN}, &workspace),
                GW_OK);
            for (size_t i = 0; i < LEN; i++) {
                uint32_t bits;
                memcpy(&bits, decoded + 4 * i, 4);
                infinite += (bits & 0x7fffffffu) == 0x7f800000u;
            }
            assert_true(infinite > 0);
        }
        free(lanes);
        free(decoded);
        free(workspace.data);
    }
    /* Encode with an error memory: one value a block, which is the norm; what is decoded is off by some. */
    for (unsigned turn = 0; turn < 8; turn++) {
        job j = make_job(4, 10, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 1);
        uint8_t *indices = NULL;
        uint32_t own[BLOCKS];
        float *x = take(LEN * sizeof *x);
        float *error = take(LEN * sizeof *error);

        set_range(&j, LEN, 0, BLOCKS, turn % WORKERS);
        memset(x, 0, LEN * sizeof *x);
        memset(error, 0, LEN * sizeof *error);
        for (size_t b = 0; b < BLOCKS; b++) {
            const uint32_t bits = 0x7f7ffff0u - (uint32_t)(testing_random(&random) % 0x1000);
            memcpy(&x[1024 * b + testing_random(&random) % 700], &bits, 4);
        }
        compare_worker(&cuda, &j, x, error, own, &indices, 0, &random, 1);
        assert_non_null(indices);
        free(indices);
        free(x);
        free(error);
    }
    gw_cuda_close(&cuda);
}

static void set_granularity(job *j, unsigned granularity)
{
    const gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    assert_int_equal(
        gw_thc_table_solve(j->options.table.bits, granularity, 1.0 / 32, &j->options.table, NULL, &workspace),
        GW_OK);
    free(workspace.data);
    assert_int_equal(gw_thc_init(&j->thc, &j->options), GW_OK);
}

/* Sums of 4-bit indices: as many sources as a byte holds, more, and grids and lanes that are added otherwise.
 * */
static void four_bit_sums(void **state)
{
    (void)state;
    static const struct {
        unsigned lane_bits, granularity; /* 0: the default */
    } row[] = {{8, 51}, {8, 20}, {16, 51}, {16, 100}, {16, 127}, {16, 128}, {16, 255}, {32, 0}};
    gw_cuda cuda;
    uint64_t random = 33;

    testing_open(&cuda);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        for (unsigned block_log2 = 6; block_log2 <= 10; block_log2 += 4) {
            job j = make_job(4, block_log2, GW_FP32, row[i].lane_bits, WORKERS, GW_THC_ROTATED,
                             GW_THC_NONFINITE_ERROR, 0);
            if (row[i].granularity != 0) {
                set_granularity(&j, row[i].granularity);
            }
            compare_job(&cuda, &j, 5000, 0, (5000u >> block_log2) + 1, 0, 0, &random);
        }
    }
    gw_cuda_close(&cuda);
}

/* Values of blocks whose largest magnitudes are anywhere, most of them within some octaves of it, a few far
 * below or zero. */
static void spread_values(float *x, size_t len, uint64_t *random)
{
    uint32_t top = 0;

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = testing_random(random);
        if (i % 1024 == 0) {
            top = 1 + (uint32_t)(r >> 32) % 253;
        }
        const uint32_t below =
            r % 64 == 0 ? (uint32_t)(r >> 8) % 90 : (uint32_t)__builtin_ctzll(r >> 6 | 1u << 9);
        const uint32_t bits = r % 97 == 0
                                  ? 0
                                  : (uint32_t)(r >> 63) << 31 | (top > below ? top - below : 0) << 23 |
                                        ((uint32_t)(r >> 20) & 0x7fffffu);
        memcpy(&x[i], &bits, sizeof bits);
    }
}

/* Blocks of 1024 values, rotated, which have kernels of their own where own norms are given: runs of many
 * groups, norms of all exponents, grids whose middle is on a step and between two, pointers of any
 * alignment. */
static void usual_shape(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 21;
    unsigned odd = 0, even = 0;

    testing_control()->multiprocessors = 1; /* and so long runs of few blocks of threads */
    assert_int_equal(gw_cuda_init(&cuda), GW_OK);
    for (unsigned i = 0; i < 24; i++) {
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const uint32_t workers = 5 + i / 3 % 4;
        job j = make_job(4, 10, dtype, i % 4 == 3 ? 16 : 8, workers, GW_THC_ROTATED,
                         (gw_thc_nonfinite)(GW_THC_NONFINITE_ERROR + (int)(i / 4 % 3)), (int)(i / 2 % 2));
        const uint64_t blocks = 2 + (i * 37) % 40;
        uint32_t *maxima;
        uint8_t *indices = NULL;

        if (i % 4 == 1) {
            set_granularity(&j, i % 8 == 1 ? 30 : 16);
        }
        odd += j.options.table.granularity % 2;
        even += 1 - j.options.table.granularity % 2;
        set_range(&j, (blocks + 2) * 1024 + (i % 5 == 0 ? 0 : 1 + i * 211 % 1024) - 1024, 1, blocks,
                  i % workers);
        float *x = take(4 * j.len), *error = take(4 * j.len);
        maxima = take(4 * j.patterns);
        spread_values(x, j.len, &random);
        spread_values(error, j.len, &random);
        if (dtype != GW_FP32) {
            testing_values(x, dtype, j.len, i / 4 % 3 != 0 ? 12 : 0, &random);
        }
        compare_worker(&cuda, &j, x, j.options.error_feedback != 0 ? error : NULL, maxima, &indices,
                       (size_t)(i % 7 == 0   ? 1
                                : i % 7 == 3 ? 4
                                             : 0),
                       &random, 1);
        free(x);
        free(error);
        free(maxima);
        free(indices);
    }
    assert_true(odd > 2 && even > 2);

    /* A run of more groups than scalars are computed at a time. */
    job j = make_job(4, 10, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 0);
    const uint64_t blocks = 3 * 8 * 34 - 3;
    const size_t len = 1024 * (size_t)blocks - 100;
    uint8_t *indices = NULL;
    set_range(&j, len, 0, blocks, 1);
    float *x = take(4 * len);
    uint32_t *maxima = take(4 * j.patterns), *members = take(4 * (size_t)blocks);
    spread_values(x, len, &random);
    compare_worker(&cuda, &j, x, NULL, maxima, &indices, 0, &random, 1);
    uint8_t *lanes = take(1024 * (size_t)blocks);
    const size_t lane_count = (size_t)gw_thc_range_lanes(&j.thc, len, 0, blocks);
    for (size_t i = 0; i < lane_count; i++) {
        lanes[i] = (uint8_t)(testing_random(&random) % (3u * j.options.table.granularity + 1u));
    }
    for (size_t b = 0; b < blocks; b++) {
        members[b] = b % 50 == 7 ? 0 : 3;
        if (members[b] == 0) {
            memset(lanes + 1024 * b, 0, b + 1 < blocks ? 1024 : lane_count - 1024 * b);
        }
    }
    compare_decode(&cuda, &j, lanes, lane_count, members, maxima, GW_THC_MEAN, 0);
    free(lanes);
    free(members);
    free(maxima);
    free(indices);
    free(x);
    gw_cuda_close(&cuda);
}

static void all_policies(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 8;

    testing_open(&cuda);
    for (int policy = GW_THC_NONFINITE_ERROR; policy <= GW_THC_NONFINITE_ZERO; policy++) {
        for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            for (int transform = GW_THC_PLAIN; transform <= GW_THC_ROTATED; transform++) {
                job j = make_job(4, 8, (gw_dtype)dtype, 8, WORKERS, (gw_thc_transform)transform,
                                 (gw_thc_nonfinite)policy, transform == GW_THC_ROTATED);
                compare_job(&cuda, &j, 3000, 0, 12, 9, 0, &random);
                job wide = make_job(3, 11, (gw_dtype)dtype, 16, WORKERS, (gw_thc_transform)transform,
                                    (gw_thc_nonfinite)policy, 0);
                compare_job(&cuda, &wide, 9000, 0, 5, 12, 0, &random);
            }
        }
    }
    gw_cuda_close(&cuda);
}

/* Impossible maxima, or that are below the worker's own: the CPU's status and block; other blocks are
 * encoded, and bad ones carry zeros and keep their error. */
static void bad_maxima(void **state)
{
    (void)state;
    gw_cuda cuda;
    uint64_t random = 9;
    job j = make_job(4, 7, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 1);

    testing_open(&cuda);
    set_range(&j, 20 * 128, 2, 18, 3);
    float *x = take(4 * j.len), *error = take(4 * j.len), *good_error = take(4 * j.len);
    uint32_t *own = take(4 * j.patterns), *maxima = take(4 * j.patterns);
    uint8_t *good = take(j.len / 2), *cpu = take(j.len / 2);
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    testing_values(x, GW_FP32, j.len, 0, &random);
    testing_values(error, GW_FP32, j.len, 0, &random);
    assert_int_equal(
        gw_thc_norms(&j.thc, &j.range, &(gw_thc_source){.values = x, .error = error}, own, NULL, &workspace),
        GW_OK);
    memcpy(good_error, error, 4 * j.len);
    assert_int_equal(gw_thc_encode(&j.thc, &j.range,
                                   &(gw_thc_source){.values = x, .error = good_error, .patterns = own},
                                   &(gw_buffer){good, j.len / 2, 0}, NULL, &workspace),
                     GW_OK);
    static const uint32_t wrong[] = {1, 0x7f800000u, 0x7fc00000u, 0xffffffffu, 0x00800000u, 0};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t bad = 0;
        memcpy(maxima, own, 4 * j.patterns);
        maxima[5] = wrong[i];
        maxima[11] = 0x7f800001u;
        const gw_status status =
            gw_thc_encode(&j.thc, &j.range, &(gw_thc_source){.values = x, .error = error, .patterns = maxima},
                          &(gw_buffer){cpu, j.len / 2, 0}, &bad, &workspace);
        assert_true(status == GW_ERR_CORRUPT || status == GW_ERR_STATE);
        for (int own_given = 0; own_given < 2; own_given++) {
            uint8_t *indices = testing_device(NULL, j.len / 2, 0);
            float *device_error = testing_device(error, 4 * j.len, 0);
            gw_cuda_result *result = new_result();
            assert_int_equal(
                gw_cuda_thc_encode(
                    &cuda, &j.thc, &j.range,
                    &(gw_thc_source){.values = testing_device(x, 4 * j.len, 0),
                                     .error = device_error,
                                     .patterns = testing_device(maxima, 4 * j.patterns, 0),
                                     .own_patterns =
                                         own_given ? testing_device(own, 4 * j.patterns, 0) : NULL},
                    &(gw_cuda_buffer){indices, j.len / 2},
                    &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                GW_OK);
            const gw_cuda_result r = testing_result(result);
            assert_int_equal(r.status, status);
            assert_int_equal(r.bad_index, bad);
            for (size_t b = 0; b < 18; b++) {
                if (b == 5 || b == 11) {
                    for (size_t k = 0; k < 64; k++) {
                        assert_int_equal(indices[64 * b + k], 0);
                    }
                    assert_memory_equal(device_error + 128 * b, error + 128 * b, 512);
                } else {
                    assert_memory_equal(indices + 64 * b, good + 64 * b, 64);
                    assert_memory_equal(device_error + 128 * b, good_error + 128 * b, 512);
                }
            }
            testing_free_all();
        }
    }
    free(x);
    free(error);
    free(good_error);
    free(own);
    free(maxima);
    free(good);
    free(cpu);
    free(workspace.data);
    gw_cuda_close(&cuda);
}

/* Norm, encode, sum and decode captured once; replayed with new values and a new round. Nothing in between
 * waits. */
static void graph_replays(void **state)
{
    (void)state;
    enum { LEN = 5000, BLOCKS = 5 };
    gw_cuda cuda;
    uint64_t random = 10;
    job j = make_job(4, 10, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 0);
    const gw_thc_agg agg = make_agg(&j);
    void *stream, *graph, *executable;
    int (*stream_create)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **),
        (*launch)(void *, void *), (*instantiate)(void **, void *, unsigned long long), (*destroy)(void *),
        (*exec_destroy)(void *), (*stream_destroy)(void *);
    void *symbol;
#define FIND(function, name)                                                                                 \
    (symbol = testing_driver_function(name), memcpy(&function, &symbol, sizeof function))
    FIND(stream_create, "cuStreamCreate");
    FIND(begin, "cuStreamBeginCapture_v2");
    FIND(end, "cuStreamEndCapture");
    FIND(launch, "cuGraphLaunch");
    FIND(instantiate, "cuGraphInstantiateWithFlags");
    FIND(destroy, "cuGraphDestroy");
    FIND(exec_destroy, "cuGraphExecDestroy");
    FIND(stream_destroy, "cuStreamDestroy_v2");

    testing_open(&cuda);
    set_range(&j, LEN, 0, BLOCKS, 2);
    const size_t lanes = (size_t)gw_thc_range_lanes(&j.thc, LEN, 0, BLOCKS);
    float *x = testing_device(NULL, 4 * LEN, 0);
    uint32_t *patterns = testing_device(NULL, 4 * BLOCKS, 0);
    const uint32_t one[BLOCKS] = {1, 1, 1, 1, 1};
    const uint32_t *members = testing_device(one, sizeof one, 0);
    uint8_t *indices = testing_device(NULL, lanes / 2, 0);
    const uint8_t *sources[1] = {indices};
    uint8_t *sum = testing_device(NULL, lanes, 0);
    float *out = testing_device(NULL, 4 * LEN, 0);
    gw_cuda_thc_key *key = testing_device(NULL, sizeof *key, 0);
    gw_cuda_result *results = testing_device(NULL, 3 * sizeof *results, 0);
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const uint32_t rank = 2;

    assert_int_equal(stream_create(&stream, 1), 0);
    assert_int_equal(begin(stream, 0), 0);
    gw_fake_control *control = testing_control();
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range, &(gw_thc_source){.values = x}, patterns,
                                       &(gw_cuda_thc_request){NULL, GW_THC_SUM, &results[0], stream}),
                     GW_OK);
    assert_int_equal(
        gw_cuda_thc_encode(
            &cuda, &j.thc, &j.range,
            &(gw_thc_source){.values = x, .error = NULL, .patterns = patterns, .own_patterns = patterns},
            &(gw_cuda_buffer){indices, lanes / 2},
            &(gw_cuda_thc_request){key, GW_THC_SUM, &results[1], stream}),
        GW_OK);
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){sum, set, lanes},
                                             &(gw_cuda_thc_inputs){sources, &rank, NULL, 1, 0}, stream),
                     GW_OK);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){sum, lanes, members, patterns},
                                        &(gw_cuda_target){out, LEN},
                                        &(gw_cuda_thc_request){key, GW_THC_MEAN, &results[2], stream}),
                     GW_OK);
    assert_int_equal(control->syncs, 0);
    assert_int_equal(end(stream, &graph), 0);
    assert_int_equal(instantiate(&executable, graph, 0), 0);
    for (uint32_t round = 0; round < 3; round++) {
        uint8_t *cpu_indices = take(lanes / 2);
        uint32_t cpu_patterns[BLOCKS];
        float *cpu_out = take(4 * LEN);
        const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
        testing_values(x, GW_FP32, LEN, 0, &random);
        *key = (gw_cuda_thc_key){j.options.seed, 100 + round, rank};
        j.range.round = 100 + round;
        assert_int_equal(
            gw_thc_norms(&j.thc, &j.range, &(gw_thc_source){.values = x}, cpu_patterns, NULL, &workspace),
            GW_OK);
        assert_int_equal(gw_thc_encode(&j.thc, &j.range,
                                       &(gw_thc_source){.values = x, .patterns = cpu_patterns},
                                       &(gw_buffer){cpu_indices, lanes / 2, 0}, NULL, &workspace),
                         GW_OK);
        assert_int_equal(
            gw_thc_decode_indices(&j.thc, &j.range, &(gw_thc_indices){cpu_indices, lanes / 2, cpu_patterns},
                                  &(gw_thc_target){.values = cpu_out, .capacity = LEN}, &workspace),
            GW_OK);
        assert_int_equal(launch(executable, stream), 0);
        testing_sync();
        assert_memory_equal(indices, cpu_indices, lanes / 2);
        assert_memory_equal(out, cpu_out, 4 * LEN);
        free(cpu_indices);
        free(cpu_out);
        free(workspace.data);
    }
    assert_int_equal(destroy(graph), 0);
    assert_int_equal(exec_destroy(executable), 0);
    assert_int_equal(stream_destroy(stream), 0);
    testing_free_all();
    gw_cuda_close(&cuda);
}

static void bad_arguments(void **state)
{
    (void)state;
    gw_cuda cuda;
    job j = make_job(4, 6, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 1);
    uint8_t *memory = testing_device(NULL, 1024, 0);
    float *x = testing_device(NULL, 256, 0), *error = testing_device(NULL, 256, 0);
    uint32_t *patterns = testing_device(NULL, 8, 0), *members = testing_device(NULL, 8, 0);
    gw_cuda_result *result = new_result();
    const gw_thc_agg agg = make_agg(&j);
    uint8_t set[8] = {0};
    const uint8_t *sources[2] = {memory, memory + 32};
    const uint32_t ranks[2] = {0, 0};

    testing_open(&cuda);
    set_range(&j, 64, 0, 1, 0);
    gw_fake_control *control = testing_control();
    assert_int_equal(gw_cuda_thc_norms(NULL, &j.thc, &j.range,
                                       &(gw_thc_source){.values = x, .error = (float *)(uintptr_t)error},
                                       patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_norms(&cuda, NULL, &j.range,
                                       &(gw_thc_source){.values = x, .error = (float *)(uintptr_t)error},
                                       patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range,
                                       &(gw_thc_source){.values = NULL, .error = (float *)(uintptr_t)error},
                                       patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range, &(gw_thc_source){.values = x}, patterns,
                                       &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_thc_norms(&cuda, &j.thc, &j.range,
                          &(gw_thc_source){.values = (char *)x + 2, .error = (float *)(uintptr_t)error},
                          patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
        GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range,
                                       &(gw_thc_source){.values = x, .error = (float *)(uintptr_t)error},
                                       NULL, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range,
                                       &(gw_thc_source){.values = x, .error = (float *)(uintptr_t)error},
                                       patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, NULL, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_thc_encode(
            &cuda, &j.thc, &j.range,
            &(gw_thc_source){.values = x, .error = error, .patterns = patterns, .own_patterns = NULL},
            &(gw_cuda_buffer){memory + 8, 32}, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
        GW_ERR_ARG);
    assert_int_equal(
        gw_cuda_thc_encode(
            &cuda, &j.thc, &j.range,
            &(gw_thc_source){.values = x, .error = error, .patterns = patterns, .own_patterns = NULL},
            &(gw_cuda_buffer){memory, 31}, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
        GW_ERR_DST);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){memory, 63, members, patterns},
                                        &(gw_cuda_target){x, 64},
                                        &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_SHORT);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){memory, 64, members, patterns},
                                        &(gw_cuda_target){x, 63},
                                        &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_DST);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){memory, 64, NULL, patterns},
                                        &(gw_cuda_target){x, 64},
                                        &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_expand(&cuda, &j.thc, &j.range, &(gw_thc_indices){memory, 31, NULL},
                                        &(gw_cuda_buffer){memory + 256, 512}, NULL),
                     GW_ERR_SHORT);
    assert_int_equal(gw_cuda_thc_expand(&cuda, &j.thc, &j.range, &(gw_thc_indices){memory, 32, NULL},
                                        &(gw_cuda_buffer){memory + 256, 65}, NULL),
                     GW_ERR_DST);
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){memory + 512, set, 64},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, 2, 0}, NULL),
                     GW_ERR_DUP);
    assert_int_equal(set[0], 0);
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){memory + 512, set, 63},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, 1, 0}, NULL),
                     GW_ERR_ARG);
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){memory + 513, set, 64},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, 1, 0}, NULL),
                     GW_ERR_ARG);
    set[0] = 1;
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){memory + 512, set, 64},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, 0, 0}, NULL),
                     GW_ERR_ARG);
    assert_int_equal(control->calls, 0);
    /* The driver refuses: the set is as it was. */
    set[0] = 0;
    control->fail_at = 1;
    assert_int_equal(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){memory + 512, set, 64},
                                             &(gw_cuda_thc_inputs){sources, ranks, NULL, 1, 0}, NULL),
                     GW_ERR_DEVICE);
    assert_int_equal(set[0], 0);
    for (long at = 1; at <= 3; at++) {
        uint8_t in_set[8] = {2};
        const uint8_t *in_sets[1] = {in_set};
        control = testing_control();
        control->fail_at = at;
        assert_int_equal(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){memory + 512, set, 64},
                                               &(gw_cuda_thc_inputs){sources, NULL, in_sets, 1, 0},
                                               &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                         GW_ERR_DEVICE);
        assert_int_equal(set[0], 0);
    }
    testing_control();
    testing_sync();
    gw_cuda_close(&cuda);
    testing_free_all();
}

/* A range without blocks has a result. */
static void empty_range(void **state)
{
    (void)state;
    gw_cuda cuda;
    job j = make_job(4, 10, GW_FP32, 8, WORKERS, GW_THC_ROTATED, GW_THC_NONFINITE_ERROR, 0);
    gw_cuda_result *result = new_result();

    testing_open(&cuda);
    set_range(&j, 5000, 5, 0, 0);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range, &(gw_thc_source){.values = NULL}, NULL,
                                       &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_OK);
    gw_cuda_result r = testing_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_true(r.bad_index == UINT64_MAX);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){NULL, 0, NULL, NULL},
                                        &(gw_cuda_target){NULL, 0},
                                        &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_OK);
    r = testing_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_int_equal(r.len, 0);
    gw_cuda_close(&cuda);
    testing_free_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes),    cmocka_unit_test(usual_shape),   cmocka_unit_test(largest_norms),
        cmocka_unit_test(four_bit_sums), cmocka_unit_test(all_policies),  cmocka_unit_test(bad_maxima),
        cmocka_unit_test(graph_replays), cmocka_unit_test(bad_arguments), cmocka_unit_test(empty_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
