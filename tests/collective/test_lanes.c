/*
 * THC lanes through an all-reduce that adds plain integers, against the aggregator; hostile input.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "thc_testing.h"
#include "gradwire/collective.h"

enum { LEN = 3 * 1024 + 200, RANKS_MAX = 40 };

static gw_workspace lanes_workspace(const gw_thc *thc)
{
    gw_workspace workspace = {take(gw_collective_lanes_workspace_size(thc)),
                              gw_collective_lanes_workspace_size(thc)};
    return workspace;
}

/* What MPI_SUM and ncclSum do: elements of lane_bits, little-endian as on this machine. */
static void add_integers(uint8_t *sum, const uint8_t *src, uint64_t len, unsigned lane_bits)
{
    for (uint64_t i = 0; i < len; i++) {
        unsigned carry = 0;
        for (unsigned b = 0; b < lane_bits / 8; b++) {
            uint8_t *at = &sum[i * (lane_bits / 8) + b];
            carry += *at + (unsigned)src[i * (lane_bits / 8) + b];
            *at = (uint8_t)carry;
            carry >>= 8;
        }
    }
}

/* Lanes of ranks 0..n-1, in calls of `step` blocks each, added up. Caller frees. */
static uint8_t *all_reduce(const gw_thc *thc, const float *x, const job_output *job, uint32_t n,
                           const gw_thc_range *range)
{
    const unsigned lane_bits = gw_thc_options_of(thc)->lane_bits;
    const size_t size = gw_thc_reduced_size(thc, range->len, range->block_first, range->block_count);
    const size_t first = (size_t)range->block_first << gw_thc_options_of(thc)->block_log2;
    uint8_t *sum = take(size), *own = take(size);
    gw_workspace workspace = lanes_workspace(thc);
    assert_int_equal(gw_collective_lanes_len(thc, range) * (lane_bits / 8), size);
    for (uint32_t rank = 0; rank < n; rank++) {
        gw_thc_range mine = *range;
        const gw_thc_source source = {.values = x + rank * range->len + first,
                                      .patterns =
                                          job->maxima + range->block_first * gw_thc_patterns_per_block(thc)};
        gw_buffer dst = {own, size, 0};
        uint64_t bad_block = 0;
        mine.rank = rank;
        memset(own, 0xee, size);
        assert_int_equal(gw_collective_lanes_encode(thc, &mine, &source, &dst, &bad_block, &workspace),
                         GW_OK);
        assert_int_equal(dst.size, size);
        assert_true(bad_block == UINT64_MAX);
        add_integers(sum, own, gw_collective_lanes_len(thc, range), lane_bits);
    }
    free(own);
    free(workspace.data);
    return sum;
}

/* The sum of n ranks is that of the aggregator, and decodes to the same values. */
static void check_sum(const gw_thc_options *options, uint32_t n, uint64_t seed)
{
    const gw_thc thc = make_thc(options);
    test_rng rng = {seed};
    float *x = take(sizeof(float) * LEN * n),
          *values[2] = {take(sizeof(float) * LEN), take(sizeof(float) * LEN)};
    for (uint32_t rank = 0; rank < n; rank++) {
        fill_normal(&rng, x + (size_t)rank * LEN, LEN, rank % 3 == 0 ? 1.0 : 0.01);
    }
    job_output job = run_job(&thc, x, NULL, LEN, n, 7);
    gw_thc_agg agg;
    const gw_thc_agg_options agg_options = {options->table, options->worker_max, options->lane_bits,
                                            GW_BACKEND_ALL};
    assert_int_equal(gw_thc_agg_init(&agg, &agg_options), GW_OK);
    const gw_thc_partial partial = {take(job.lanes_size), take(GW_THC_SET_SIZE(options->worker_max)),
                                    job.lanes};
    for (uint32_t rank = 0; rank < n; rank++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &partial, job.indices + rank * job.indices_size, rank),
                         GW_OK);
    }
    assert_int_equal(decode_all(&thc, &job, partial.lanes, n, GW_THC_MEAN, 7, LEN, values[0]), GW_OK);

    const gw_thc_range all = {LEN, 0, job.blocks, 7, 0};
    uint8_t *sum = all_reduce(&thc, x, &job, n, &all);
    assert_memory_equal(sum, partial.lanes, job.lanes_size);
    gw_workspace workspace = take_workspace(&thc);
    const gw_thc_sum reduced = {
        .data = sum, .size = gw_thc_reduced_size(&thc, LEN, 0, job.blocks), .patterns = job.maxima};
    gw_thc_target target = {.values = values[1], .capacity = LEN};
    assert_int_equal(gw_thc_decode_reduced(&thc, &all, &reduced, GW_THC_MEAN, &target, &workspace), GW_OK);
    assert_int_equal(target.missing, 0);
    assert_memory_equal(values[0], values[1], sizeof(float) * LEN);

    /* Ranges in the place of pieces: lanes are the same */
    for (uint64_t i = 0; i < job.blocks; i++) {
        const gw_thc_range one = {LEN, i, 1, 7, 0};
        uint8_t *part = all_reduce(&thc, x, &job, n, &one);
        assert_memory_equal(part, partial.lanes + (i << options->block_log2) * (options->lane_bits / 8),
                            gw_thc_lanes_size(&thc, LEN, i, 1));
        free(part);
    }
    free(workspace.data);
    free(sum);
    free(partial.lanes);
    free(partial.set);
    free_job(&job);
    free(values[0]);
    free(values[1]);
    free(x);
}

static void test_sums_of_all_rank_counts(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= RANKS_MAX; n++) {
        gw_thc_options options = default_options(4, n, 0);
        check_sum(&options, n, n);
        if (options.lane_bits == 8) {
            options.lane_bits = 16;
            check_sum(&options, n, n);
        }
    }
}

static void test_other_tables_and_lanes(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 4; bits++) {
        gw_thc_options options = default_options(bits, 5, 0);
        for (options.lane_bits = 8; options.lane_bits <= 32; options.lane_bits *= 2) {
            for (options.block_log2 = 6; options.block_log2 <= 13; options.block_log2 += 7) {
                check_sum(&options, 5, bits);
            }
        }
        options.transform = GW_THC_PLAIN;
        options.threshold_bits = 0;
        options.lane_bits = 16;
        options.block_log2 = 8;
        check_sum(&options, 5, bits);
    }
}

static void test_backends_are_equal(void **state)
{
    (void)state;
    gw_thc_options options = default_options(4, 3, 0);
    float *x = take(sizeof(float) * LEN);
    test_rng rng = {5};
    uint8_t *expected = NULL;
    size_t size = 0;
    fill_normal(&rng, x, LEN, 1.0);
    for (uint32_t backend = 1; backend <= GW_BACKEND_NEON; backend <<= 1) {
        if ((gw_backends_available() & backend) == 0) {
            continue;
        }
        options.backends = backend;
        const gw_thc thc = make_thc(&options);
        job_output job = run_job(&thc, x, NULL, LEN, 1, 0);
        const gw_thc_range all = {LEN, 0, job.blocks, 0, 0};
        uint8_t *lanes = all_reduce(&thc, x, &job, 1, &all);
        size = gw_thc_reduced_size(&thc, LEN, 0, job.blocks);
        if (expected != NULL) {
            assert_memory_equal(lanes, expected, size);
        }
        free(expected);
        expected = lanes;
        free_job(&job);
    }
    free(expected);
    free(x);
}

/* One rank with everything that a call needs, in memory of exact size. */
typedef struct call {
    gw_thc thc;
    gw_thc_range range;
    float *x, *error;
    uint32_t *maxima;
    uint8_t *memory;
    gw_buffer dst;
    gw_workspace workspace;
    size_t size;
} call;

static void call_make(call *c, const gw_thc_options *options)
{
    test_rng rng = {77};
    c->thc = make_thc(options);
    const uint64_t blocks = gw_thc_block_count(&c->thc, LEN);
    c->range = (gw_thc_range){LEN, 0, blocks, 3, 1};
    c->x = take(sizeof(float) * LEN);
    c->error = options->error_feedback ? take(sizeof(float) * LEN) : NULL;
    c->maxima = take(blocks * gw_thc_patterns_per_block(&c->thc) * 4);
    c->size = gw_thc_reduced_size(&c->thc, LEN, 0, blocks);
    c->memory = take(c->size);
    c->workspace = lanes_workspace(&c->thc);
    fill_normal(&rng, c->x, LEN, 1.0);
    if (c->error != NULL) {
        fill_normal(&rng, c->error, LEN, 0.1);
    }
    const gw_thc_source source = {.values = c->x, .error = c->error};
    assert_int_equal(gw_thc_norms(&c->thc, &c->range, &source, c->maxima, NULL, &c->workspace), GW_OK);
    c->dst = (gw_buffer){c->memory, c->size, 99};
    memset(c->memory, 0x77, c->size);
}

static void call_free(call *c)
{
    free(c->x);
    free(c->error);
    free(c->maxima);
    free(c->memory);
    free(c->workspace.data);
}

static gw_status call_run(call *c, uint64_t *bad_block)
{
    const gw_thc_source source = {.values = c->x, .error = c->error, .patterns = c->maxima};
    return gw_collective_lanes_encode(&c->thc, &c->range, &source, &c->dst, bad_block, &c->workspace);
}

/* dst->size is 0, and every byte is as it was or zero. */
static void check_nothing_stale(const call *c)
{
    assert_int_equal(c->dst.size, 0);
    for (size_t i = 0; i < c->size; i++) {
        assert_true(c->memory[i] == 0x77 || c->memory[i] == 0);
    }
}

static void expect_failure(call *c, gw_status expected, uint64_t expected_block)
{
    uint64_t bad_block = 5;
    float *before = NULL;
    if (c->error != NULL) {
        before = take(sizeof(float) * LEN);
        memcpy(before, c->error, sizeof(float) * LEN);
    }
    assert_int_equal(call_run(c, &bad_block), expected);
    assert_true(bad_block == expected_block);
    check_nothing_stale(c);
    assert_int_equal(call_run(c, NULL), expected); /* bad_block may be NULL */
    if (c->error != NULL) {
        assert_memory_equal(before, c->error, sizeof(float) * LEN);
    }
    free(before);
}

static void test_error_memory(void **state)
{
    (void)state;
    const gw_thc_options options = default_options(4, 4, 1);
    call c;
    call_make(&c, &options);
    float *x_error = take(sizeof(float) * LEN);
    memcpy(x_error, c.error, sizeof(float) * LEN);
    const size_t indices_size = gw_thc_indices_size(&c.thc, LEN, 0, c.range.block_count);
    const gw_thc_source source = {.values = c.x, .error = x_error, .patterns = c.maxima};
    gw_buffer indices = {take(indices_size), indices_size, 0}, expanded = {take(c.size), c.size, 0};
    assert_int_equal(gw_thc_encode(&c.thc, &c.range, &source, &indices, NULL, &c.workspace), GW_OK);
    const gw_thc_indices packed = {indices.data, indices.size, NULL};
    assert_int_equal(gw_thc_expand(&c.thc, &c.range, &packed, &expanded), GW_OK);
    assert_int_equal(call_run(&c, NULL), GW_OK);
    assert_memory_equal(c.memory, expanded.data, c.size);
    assert_memory_equal(c.error, x_error, sizeof(float) * LEN);
    free(indices.data);
    free(expanded.data);
    free(x_error);
    call_free(&c);
}

/* The output of gw_thc_prepare() gives the same lanes. */
static void test_prepared(void **state)
{
    (void)state;
    const gw_thc_options options = default_options(4, 4, 0);
    call c;
    call_make(&c, &options);
    const gw_thc_source input = {.values = c.x};
    gw_thc_prepared prepared = {
        .own_patterns = take(4 * c.range.block_count),
        .rotated = take(sizeof(float) * gw_thc_range_lanes(&c.thc, LEN, 0, c.range.block_count))};
    assert_int_equal(gw_thc_prepare(&c.thc, &c.range, &input, &prepared, &c.workspace), GW_OK);
    assert_int_equal(call_run(&c, NULL), GW_OK);
    uint8_t *again = take(c.size);
    gw_buffer dst = {again, c.size, 0};
    const gw_thc_source source = {
        .patterns = c.maxima, .rotated = prepared.rotated, .own_patterns = prepared.own_patterns};
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &c.range, &source, &dst, NULL, &c.workspace), GW_OK);
    assert_memory_equal(again, c.memory, c.size);
    free(again);
    free(prepared.own_patterns);
    free(prepared.rotated);
    call_free(&c);
}

static void test_hostile_blocks(void **state)
{
    (void)state;
    for (int feedback = 0; feedback <= 1; feedback++) {
        const gw_thc_options options = default_options(4, 4, feedback);
        call c;
        call_make(&c, &options);
        const uint32_t maximum = c.maxima[2];
        static const uint32_t impossible[] = {1,           0x80000000u, 0xbf800000u,
                                              0x7f800000u, 0x7fc00000u, UINT32_MAX};
        for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
            c.maxima[2] = impossible[i];
            expect_failure(&c, GW_ERR_CORRUPT, 2);
        }
        c.maxima[2] = maximum - 1;
        expect_failure(&c, GW_ERR_STATE, 2);
        c.maxima[2] = 0;
        expect_failure(&c, GW_ERR_STATE, 2);
        c.maxima[2] = maximum;
        c.x[3 * 1024] = strtof("nan", NULL);
        expect_failure(&c, GW_ERR_NONFINITE, 3);
        call_free(&c);
    }
}

static void test_hostile_arguments(void **state)
{
    (void)state;
    const gw_thc_options options = default_options(4, 4, 0);
    call c;
    call_make(&c, &options);
    const gw_thc_range range = c.range;
    const gw_thc_source source = {.values = c.x, .patterns = c.maxima};
    static const gw_thc none;

    c.range.block_count++;
    expect_failure(&c, GW_ERR_ARG, UINT64_MAX);
    assert_int_equal(gw_collective_lanes_len(&c.thc, &c.range), 0);
    c.range = range;
    c.range.block_first = UINT64_MAX;
    expect_failure(&c, GW_ERR_ARG, UINT64_MAX);
    c.range = range;
    c.range.len = UINT64_MAX;
    expect_failure(&c, GW_ERR_LIMIT, UINT64_MAX);
    c.range = range;
    c.range.rank = 4; /* worker_max */
    expect_failure(&c, GW_ERR_ARG, UINT64_MAX);
    c.range = range;

    c.dst.capacity--;
    expect_failure(&c, GW_ERR_DST, UINT64_MAX);
    c.dst.capacity = 0;
    expect_failure(&c, GW_ERR_DST, UINT64_MAX);
    c.dst.capacity = c.size;
    const size_t workspace_size = c.workspace.size;
    for (c.workspace.size = workspace_size - 1; c.workspace.size > 0; c.workspace.size /= 2) {
        expect_failure(&c, GW_ERR_WORKSPACE, UINT64_MAX);
    }
    c.workspace.size = workspace_size;

    gw_buffer no_data = {NULL, c.size, 1};
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &range, &source, &no_data, NULL, &c.workspace),
                     GW_ERR_ARG);
    assert_int_equal(no_data.size, 0);
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &range, &source, NULL, NULL, &c.workspace),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &range, NULL, &c.dst, NULL, &c.workspace),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_lanes_encode(&c.thc, NULL, &source, &c.dst, NULL, &c.workspace),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_lanes_encode(NULL, &range, &source, &c.dst, NULL, &c.workspace),
                     GW_ERR_ARG);
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &range, &source, &c.dst, NULL, NULL), GW_ERR_ARG);
    assert_int_equal(gw_collective_lanes_encode(&none, &range, &source, &c.dst, NULL, &c.workspace),
                     GW_ERR_STATE);
    assert_int_equal(gw_collective_lanes_workspace_size(&none), 0);
    assert_int_equal(gw_collective_lanes_workspace_size(NULL), 0);
    assert_int_equal(gw_collective_lanes_len(&none, &range), 0);
    assert_int_equal(gw_collective_lanes_len(&c.thc, NULL), 0);
    check_nothing_stale(&c);

    /* no blocks: nothing is written, and no memory is needed */
    c.range.block_count = 0;
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &c.range, &source, &no_data, NULL, &c.workspace),
                     GW_OK);
    assert_int_equal(no_data.size, 0);
    assert_int_equal(gw_collective_lanes_len(&c.thc, &c.range), 0);
    call_free(&c);
}

/* Output in the place of anything that is read meanwhile: refused before anything is written. */
static void test_overlaps(void **state)
{
    (void)state;
    gw_thc_options options = default_options(4, 4, 0);
    options.error_feedback = 1;
    call c;
    call_make(&c, &options);
    const size_t lanes = (size_t)gw_thc_range_lanes(&c.thc, LEN, 0, c.range.block_count);
    const size_t patterns_size = (size_t)c.range.block_count * gw_thc_patterns_per_block(&c.thc) * 4;
    float *rotated = take(lanes * sizeof(float));
    uint32_t *own = take(patterns_size);
    const gw_thc_source source = {
        .values = c.x, .error = c.error, .patterns = c.maxima, .rotated = rotated, .own_patterns = own};
    const struct {
        uint8_t *data;
        size_t size;
    } inputs[] = {{(uint8_t *)c.x, sizeof(float) * LEN}, {(uint8_t *)c.error, sizeof(float) * LEN},
                  {(uint8_t *)c.maxima, patterns_size},  {(uint8_t *)rotated, lanes * sizeof(float)},
                  {(uint8_t *)own, patterns_size},       {c.workspace.data, c.workspace.size}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        /* The arguments are compared only: no byte is read or written, so the ends may lie outside */
        uint8_t *const before = memcpy(take(inputs[i].size), inputs[i].data, inputs[i].size);
        const uintptr_t first = (uintptr_t)inputs[i].data;
        const uintptr_t at[] = {first, first + inputs[i].size - 1, first - c.size + 1};
        for (size_t k = 0; k < 3; k++) {
            gw_buffer dst = {(void *)at[k], c.size, 7};
            assert_int_equal(gw_collective_lanes_encode(&c.thc, &c.range, &source, &dst, NULL, &c.workspace),
                             GW_ERR_ARG);
            assert_int_equal(dst.size, 0);
            assert_memory_equal(before, inputs[i].data, inputs[i].size);
        }
        free(before);
    }
    /* Side by side is no overlap */
    uint8_t *both = take(patterns_size + c.size);
    memcpy(both, c.maxima, patterns_size);
    const gw_thc_source beside = {.values = c.x, .error = c.error, .patterns = (const void *)both};
    gw_buffer dst = {both + patterns_size, c.size, 0};
    assert_int_equal(gw_collective_lanes_encode(&c.thc, &c.range, &beside, &dst, NULL, &c.workspace), GW_OK);
    free(both);
    free(rotated);
    free(own);
    call_free(&c);
}

/* More ranks than the lanes were made for: refused where the lanes are chosen, and seen in the counts. */
static void test_overflow(void **state)
{
    (void)state;
    gw_thc_options options = default_options(4, 8, 0);
    assert_int_equal(options.lane_bits, 8);
    options.worker_max = 18; /* * granularity 15 or more > 255 */
    gw_thc thc;
    assert_int_equal(gw_thc_init(&thc, &options), GW_ERR_OVERFLOW);

    options = default_options(4, 3, 0);
    call c;
    call_make(&c, &options);
    assert_int_equal(call_run(&c, NULL), GW_OK);
    uint8_t *sum = take(c.size);
    for (unsigned n = 0; n < 4; n++) {
        add_integers(sum, c.memory, gw_collective_lanes_len(&c.thc, &c.range), options.lane_bits);
    }
    float *values = take(sizeof(float) * LEN);
    const gw_thc_sum reduced = {.data = sum, .size = c.size, .patterns = c.maxima};
    gw_thc_target target = {.values = values, .capacity = LEN};
    assert_int_equal(gw_thc_decode_reduced(&c.thc, &c.range, &reduced, GW_THC_SUM, &target, &c.workspace),
                     GW_ERR_OVERFLOW);
    free(values);
    free(sum);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_all_rank_counts),
        cmocka_unit_test(test_other_tables_and_lanes),
        cmocka_unit_test(test_backends_are_equal),
        cmocka_unit_test(test_error_memory),
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_hostile_blocks),
        cmocka_unit_test(test_hostile_arguments),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
