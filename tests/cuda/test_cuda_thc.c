/*
 * THC on the device against the CPU, bit for bit: norms, encode with and without error feedback, sums,
 * decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static thc_case make_job(unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits,
                         gw_thc_transform transform, int error_feedback)
{
    thc_case j = make_thc(WORKERS, bits, block_log2, dtype, lane_bits, transform, error_feedback);
    snprintf(j.name, sizeof j.name, "bits %u block %u dtype %d lanes %u transform %d", bits, 1u << block_log2,
             (int)dtype, lane_bits, (int)transform);
    return j;
}

/* The usual shape: 4 bits, blocks of 1024, rotated. */
static thc_case make_usual(gw_dtype dtype, unsigned lane_bits, int error_feedback)
{
    return make_job(4, 10, dtype, lane_bits, GW_THC_ROTATED, error_feedback);
}

static void set_nonfinite(thc_case *j, gw_thc_nonfinite nonfinite)
{
    j->options.nonfinite = nonfinite;
    change_thc(j);
}

static void all_shapes(void **state)
{
    (void)state;
    uint64_t random = 7;

    testing_open(&cuda);
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        const uint64_t block = (uint64_t)1 << block_log2;
        const uint64_t many = block_log2 < 10 ? 2600 / block : 3;
        for (unsigned bits = 1; bits <= 4; bits++) {
            const unsigned lane_bits = bits == 1 ? 8 : bits == 2 ? 16 : bits == 3 ? 32 : 8;
            const gw_dtype dtype = (gw_dtype)(1 + (bits + block_log2) % 3);
            /* At 1 bit the default table's errors diverge; no feedback there. */
            thc_case j = make_job(bits, block_log2, dtype, lane_bits, GW_THC_ROTATED, bits > 1);
            compare_thc(&j, many * block + block / 2 + 1, 0, many + 1, NULL, 0, &random);
            j.offset = 1;
            compare_thc(&j, many * block + 3, 1, many, NULL, 0, &random);
            thc_case plain = make_job(bits, block_log2, dtype, lane_bits, GW_THC_PLAIN, 0);
            plain.offset = bits & 1;
            compare_thc(&plain, many * block + 5, 0, many + 1, NULL, 0, &random);
        }
    }
    testing_close();
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
    uint64_t random = 13;

    testing_open(&cuda);
    for (unsigned d = 0; d < 9; d++) {
        const unsigned lane_bits = 8u << d / 3;
        thc_case j = make_usual(dtypes[d % 3], lane_bits, 0);
        const size_t lane_size = lane_bits / 8;
        uint8_t *lanes = take(LANES * lane_size);
        uint8_t *decoded = take(LEN * sizeof(float));
        const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
        uint32_t infinite = 0;

        set_range(&j, LEN, 0, BLOCKS, 0);
        for (size_t i = 0; i < LANES; i++) { /* all or nothing */
            const uint32_t lane =
                next_random(&random) % 4 == 0 ? 0 : WORKERS * (uint32_t)j.options.table.granularity;
            memcpy(lanes + i * lane_size, &lane, lane_size); /* little-endian, as the device is */
        }
        const gw_thc_sum sum = {lanes, LANES * lane_size, members, maxima};
        compare_thc_decode(&j, &sum, GW_THC_SUM);
        compare_thc_decode(&j, &sum, GW_THC_MEAN);
        j.offset = 1;
        compare_thc_decode(&j, &sum, GW_THC_SUM);
        if (j.options.dtype == GW_FP32) { /* and the case is what it is meant to be */
            assert_int_equal(gw_thc_decode(&j.thc, &j.range, &sum, GW_THC_SUM,
                                           &(gw_thc_target){.values = decoded, .capacity = LEN}, &workspace),
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
        thc_case j = make_usual(GW_FP32, 8, 1);
        uint32_t own[BLOCKS];
        float *x = take(LEN * sizeof *x);
        float *error = take(LEN * sizeof *error);

        set_range(&j, LEN, 0, BLOCKS, turn % WORKERS);
        memset(x, 0, LEN * sizeof *x);
        memset(error, 0, LEN * sizeof *error);
        for (size_t b = 0; b < BLOCKS; b++) {
            const uint32_t bits = 0x7f7ffff0u - (uint32_t)(next_random(&random) % 0x1000);
            memcpy(&x[1024 * b + next_random(&random) % 700], &bits, 4);
        }
        uint8_t *indices = compare_thc_worker(&j, x, error, own, &random, 1);
        assert_non_null(indices);
        free(indices);
        free(x);
        free(error);
    }
    testing_close();
}

static void set_granularity(thc_case *j, unsigned granularity)
{
    const gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    assert_int_equal(
        gw_thc_table_solve(j->options.table.bits, granularity, 1.0 / 32, &j->options.table, NULL, &workspace),
        GW_OK);
    free(workspace.data);
    change_thc(j);
}

/* Sums of 4-bit indices: as many sources as a byte holds, more, and grids and lanes that are added otherwise.
 * */
static void four_bit_sums(void **state)
{
    (void)state;
    static const struct {
        unsigned lane_bits, granularity; /* 0: the default */
    } row[] = {{8, 51}, {8, 20}, {16, 51}, {16, 100}, {16, 127}, {16, 128}, {16, 255}, {32, 0}};
    uint64_t random = 33;

    testing_open(&cuda);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        for (unsigned block_log2 = 6; block_log2 <= 10; block_log2 += 4) {
            thc_case j = make_job(4, block_log2, GW_FP32, row[i].lane_bits, GW_THC_ROTATED, 0);
            if (row[i].granularity != 0) {
                set_granularity(&j, row[i].granularity);
            }
            compare_thc(&j, 5000, 0, (5000u >> block_log2) + 1, NULL, 0, &random);
        }
    }
    testing_close();
}

/* Values of blocks whose largest magnitudes are anywhere, most of them within some octaves of it, a few far
 * below or zero. */
static void spread_values(float *x, size_t len, uint64_t *random)
{
    uint32_t top = 0;

    for (size_t i = 0; i < len; i++) {
        const uint64_t r = next_random(random);
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
    uint64_t random = 21;
    unsigned odd = 0, even = 0;

    testing_control()->multiprocessors = 1; /* and so long runs of few blocks of threads */
    assert_int_equal(gw_cuda_init(&cuda), GW_OK);
    for (unsigned i = 0; i < 24; i++) {
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const uint32_t workers = 5 + i / 3 % 4;
        thc_case j = make_thc(workers, 4, 10, dtype, i % 4 == 3 ? 16 : 8, GW_THC_ROTATED, (int)(i / 2 % 2));
        set_nonfinite(&j, (gw_thc_nonfinite)(GW_THC_NONFINITE_ERROR + (int)(i / 4 % 3)));
        const uint64_t blocks = 2 + (i * 37) % 40;
        uint32_t *maxima;

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
            fill_widely(x, dtype, j.len, i / 4 % 3 != 0 ? 12 : 0, &random);
        }
        j.offset = i % 7 == 0 ? 1 : i % 7 == 3 ? 4 : 0;
        uint8_t *indices =
            compare_thc_worker(&j, x, j.options.error_feedback != 0 ? error : NULL, maxima, &random, 1);
        free(x);
        free(error);
        free(maxima);
        free(indices);
    }
    assert_true(odd > 2 && even > 2);

    /* A run of more groups than scalars are computed at a time. */
    thc_case j = make_usual(GW_FP32, 8, 0);
    const uint64_t blocks = 3 * 8 * 34 - 3;
    const size_t len = 1024 * (size_t)blocks - 100;
    set_range(&j, len, 0, blocks, 1);
    float *x = take(4 * len);
    uint32_t *maxima = take(4 * j.patterns), *members = take(4 * (size_t)blocks);
    spread_values(x, len, &random);
    uint8_t *indices = compare_thc_worker(&j, x, NULL, maxima, &random, 1);
    uint8_t *lanes = take(1024 * (size_t)blocks);
    const size_t lane_count = (size_t)gw_thc_range_lanes(&j.thc, len, 0, blocks);
    for (size_t i = 0; i < lane_count; i++) {
        lanes[i] = (uint8_t)(next_random(&random) % (3u * j.options.table.granularity + 1u));
    }
    for (size_t b = 0; b < blocks; b++) {
        members[b] = b % 50 == 7 ? 0 : 3;
        if (members[b] == 0) {
            memset(lanes + 1024 * b, 0, b + 1 < blocks ? 1024 : lane_count - 1024 * b);
        }
    }
    compare_thc_decode(&j, &(gw_thc_sum){lanes, lane_count, members, maxima}, GW_THC_MEAN);
    free(lanes);
    free(members);
    free(maxima);
    free(indices);
    free(x);
    testing_close();
}

static void all_policies(void **state)
{
    (void)state;
    uint64_t random = 8;

    testing_open(&cuda);
    for (int policy = GW_THC_NONFINITE_ERROR; policy <= GW_THC_NONFINITE_ZERO; policy++) {
        for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            for (int transform = GW_THC_PLAIN; transform <= GW_THC_ROTATED; transform++) {
                thc_case j = make_job(4, 8, (gw_dtype)dtype, 8, (gw_thc_transform)transform,
                                      transform == GW_THC_ROTATED);
                set_nonfinite(&j, (gw_thc_nonfinite)policy);
                compare_thc(&j, 3000, 0, 12, NULL, 9, &random);
                thc_case wide = make_job(3, 11, (gw_dtype)dtype, 16, (gw_thc_transform)transform, 0);
                set_nonfinite(&wide, (gw_thc_nonfinite)policy);
                compare_thc(&wide, 9000, 0, 5, NULL, 12, &random);
            }
        }
    }
    testing_close();
}

/* Impossible maxima, or that are below the worker's own: the CPU's status and block; other blocks are
 * encoded, and bad ones carry zeros and keep their error. */
static void bad_maxima(void **state)
{
    (void)state;
    uint64_t random = 9;
    thc_case j = make_job(4, 7, GW_FP32, 8, GW_THC_ROTATED, 1);

    testing_open(&cuda);
    set_range(&j, 20 * 128, 2, 18, 3);
    float *x = take(4 * j.len), *error = take(4 * j.len), *good_error = take(4 * j.len);
    uint32_t *own = take(4 * j.patterns), *maxima = take(4 * j.patterns);
    uint8_t *good = take(j.len / 2), *cpu = take(j.len / 2);
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    fill_widely(x, GW_FP32, j.len, 0, &random);
    fill_widely(error, GW_FP32, j.len, 0, &random);
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
            uint8_t *indices = on_device(NULL, j.len / 2);
            float *device_error = on_device(error, 4 * j.len);
            gw_cuda_result *result = new_result();
            assert_int_equal(
                gw_cuda_thc_encode(
                    &cuda, &j.thc, &j.range,
                    &(gw_thc_source){.values = on_device(x, 4 * j.len),
                                     .error = device_error,
                                     .patterns = on_device(maxima, 4 * j.patterns),
                                     .own_patterns = own_given ? on_device(own, 4 * j.patterns) : NULL},
                    &(gw_cuda_buffer){indices, j.len / 2},
                    &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                GW_OK);
            const gw_cuda_result r = fetch_result(result);
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
            give_since(0);
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
    testing_close();
}

/* Norm, encode, sum and decode captured once; replayed with new values and a new round. Nothing in between
 * waits. */
static void graph_replays(void **state)
{
    (void)state;
    enum { LEN = 5000, BLOCKS = 5 };
    uint64_t random = 10;
    thc_case j = make_usual(GW_FP32, 8, 0);
    const gw_thc_agg agg = make_agg(&j);
    testing_graph graph;

    testing_open(&cuda);
    set_range(&j, LEN, 0, BLOCKS, 2);
    const size_t lanes = (size_t)gw_thc_range_lanes(&j.thc, LEN, 0, BLOCKS);
    float *x = on_device(NULL, 4 * LEN);
    uint32_t *patterns = on_device(NULL, 4 * BLOCKS);
    const uint32_t one[BLOCKS] = {1, 1, 1, 1, 1};
    const uint32_t *members = on_device(one, sizeof one);
    uint8_t *indices = on_device(NULL, lanes / 2);
    const uint8_t *sources[1] = {indices};
    uint8_t *sum = on_device(NULL, lanes);
    float *out = on_device(NULL, 4 * LEN);
    gw_cuda_thc_key *key = on_device(NULL, sizeof *key);
    gw_cuda_result *results = on_device(NULL, 3 * sizeof *results);
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const uint32_t rank = 2;

    void *const stream = testing_graph_begin(&graph);
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
    testing_graph_end(&graph);
    for (uint32_t round = 0; round < 3; round++) {
        uint8_t *cpu_indices = take(lanes / 2);
        uint32_t cpu_patterns[BLOCKS];
        float *cpu_out = take(4 * LEN);
        const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
        fill_widely(x, GW_FP32, LEN, 0, &random);
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
        testing_graph_run(&graph);
        assert_memory_equal(indices, cpu_indices, lanes / 2);
        assert_memory_equal(out, cpu_out, 4 * LEN);
        free(cpu_indices);
        free(cpu_out);
        free(workspace.data);
    }
    testing_graph_drop(&graph);
    testing_close();
}

static void bad_arguments(void **state)
{
    (void)state;
    thc_case j = make_job(4, 6, GW_FP32, 8, GW_THC_ROTATED, 1);
    uint8_t *memory = on_device(NULL, 1024);
    float *x = on_device(NULL, 256), *error = on_device(NULL, 256);
    uint32_t *patterns = on_device(NULL, 8), *members = on_device(NULL, 8);
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
    testing_close();
}

/* A range without blocks has a result. */
static void empty_range(void **state)
{
    (void)state;
    thc_case j = make_usual(GW_FP32, 8, 0);
    gw_cuda_result *result = new_result();

    testing_open(&cuda);
    set_range(&j, 5000, 5, 0, 0);
    assert_int_equal(gw_cuda_thc_norms(&cuda, &j.thc, &j.range, &(gw_thc_source){.values = NULL}, NULL,
                                       &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_OK);
    gw_cuda_result r = fetch_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_true(r.bad_index == UINT64_MAX);
    assert_int_equal(gw_cuda_thc_decode(&cuda, &j.thc, &j.range, &(gw_thc_sum){NULL, 0, NULL, NULL},
                                        &(gw_cuda_target){NULL, 0},
                                        &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
                     GW_OK);
    r = fetch_result(result);
    assert_int_equal(r.status, GW_OK);
    assert_int_equal(r.len, 0);
    testing_close();
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
