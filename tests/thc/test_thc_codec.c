/*
 * Worker and receiver: homomorphism, error feedback, loss, splits, policies, hostile blocks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "scalar/kernels_scalar.h"
#include "thc_testing.h"

#define WORKERS_MAX 17u

static double squares(const float *x, size_t len)
{
    double sum = 0;

    for (size_t i = 0; i < len; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

static double squared_distance(const float *x, const float *y, size_t len)
{
    double sum = 0;

    for (size_t i = 0; i < len; i++) {
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    }
    return sum;
}

/* A random tree of partial sums over ranks [0, n): pairs are merged in random order, leaves by index or as
 * lanes. */
static void random_tree(test_rng *rng, const gw_thc_agg *agg, const job_output *job, uint32_t n, uint8_t *out,
                        uint8_t *out_set)
{
    uint8_t *lanes[WORKERS_MAX];
    uint8_t *sets[WORKERS_MAX];
    size_t set_size = GW_THC_SET_SIZE(n);
    uint32_t alive = n;

    for (uint32_t r = 0; r < n; r++) {
        lanes[r] = take(job->lanes_size);
        sets[r] = take(set_size);
        assert_int_equal(gw_thc_agg_add_indices(agg, &(gw_thc_partial){lanes[r], sets[r], job->lanes},
                                                job->indices + r * job->indices_size, r),
                         GW_OK);
    }
    while (alive > 1) {
        uint32_t a = rng_below(rng, alive);
        uint32_t b = rng_below(rng, alive - 1);
        b += b >= a;
        assert_int_equal(
            gw_thc_agg_add_lanes(agg, &(gw_thc_partial){lanes[a], sets[a], job->lanes}, lanes[b], sets[b]),
            GW_OK);
        free(lanes[b]);
        free(sets[b]);
        alive--;
        lanes[b] = lanes[alive];
        sets[b] = sets[alive];
    }
    memcpy(out, lanes[0], job->lanes_size);
    memcpy(out_set, sets[0], set_size);
    free(lanes[0]);
    free(sets[0]);
}

static void check_homomorphism(test_rng *rng, gw_thc_options config, uint32_t n, size_t len)
{
    gw_thc thc = make_thc(&config);
    gw_thc_agg agg;
    float *x = take(n * len * sizeof *x);
    float *own = take(len * sizeof *own);
    float *decoded = take(len * sizeof *decoded);
    double *mean = take(len * sizeof *mean);

    fill_normal(rng, x, n * len, 1.0);
    for (size_t i = 0; i < n * len; i++) {
        x[i] *= (float)exp(rng_normal(rng));
    }
    job_output job = run_job(&thc, x, NULL, len, n, 5);
    assert_int_equal(
        gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, n, config.lane_bits, GW_BACKEND_ALL}),
        GW_OK);

    uint8_t *straight = take(job.lanes_size);
    uint8_t *tree = take(job.lanes_size);
    uint8_t set[GW_THC_SET_SIZE(WORKERS_MAX)] = {0};
    uint8_t tree_set[GW_THC_SET_SIZE(WORKERS_MAX)] = {0};
    const uint8_t *sources[WORKERS_MAX];
    uint32_t ranks[WORKERS_MAX];
    for (uint32_t r = 0; r < n; r++) {
        sources[r] = job.indices + r * job.indices_size;
        ranks[r] = r;
    }
    assert_int_equal(
        gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){straight, set, job.lanes}, sources, ranks, n),
        GW_OK);
    for (int repeat = 0; repeat < 3; repeat++) {
        random_tree(rng, &agg, &job, n, tree, tree_set);
        assert_memory_equal(tree, straight, job.lanes_size);
        assert_memory_equal(tree_set, set, sizeof set);
    }

    /* decode(sum) is the mean of the decodes: 2e-6 in relative L2 norm, block by block. */
    gw_workspace workspace = take_workspace(&thc);
    for (uint32_t r = 0; r < n; r++) {
        gw_thc_range range = {len, 0, job.blocks, 5, r};
        assert_int_equal(gw_thc_decode_indices(&thc, &range,
                                               &(gw_thc_indices){sources[r], job.indices_size, job.maxima},
                                               &(gw_thc_target){.values = own, .capacity = len}, &workspace),
                         GW_OK);
        for (size_t i = 0; i < len; i++) {
            mean[i] += (double)own[i] / n;
        }
    }
    assert_int_equal(decode_all(&thc, &job, straight, n, GW_THC_MEAN, 5, len, decoded), GW_OK);
    for (size_t start = 0; start < len; start += (size_t)1 << config.block_log2) {
        double difference = 0, size = 0;
        for (size_t i = start; i < len && i < start + ((size_t)1 << config.block_log2); i++) {
            difference += (decoded[i] - mean[i]) * (decoded[i] - mean[i]);
            size += mean[i] * mean[i];
        }
        assert_true(difference <= 4e-12 * size);
    }
    /* SUM is k times MEAN up to rounding. */
    assert_int_equal(decode_all(&thc, &job, straight, n, GW_THC_SUM, 5, len, own), GW_OK);
    for (size_t i = 0; i < len; i++) {
        decoded[i] *= (float)n;
    }
    assert_true(squared_distance(own, decoded, len) <= 1e-11 * squares(own, len));
    free(workspace.data);
    free(straight);
    free(tree);
    free(mean);
    free(decoded);
    free(own);
    free(x);
    free_job(&job);
}

static void test_homomorphism(void **state)
{
    (void)state;
    test_rng rng = {1};
    static const uint32_t workers[] = {1, 2, 3, 8, 17};
    static const size_t lengths[] = {1, 63, 64, 65, 1000, 1024, 1025, 3333};

    for (unsigned bits = 1; bits <= 4; bits++) {
        for (unsigned w = 0; w < 5; w++) {
            for (unsigned lane = 8; lane <= 32; lane *= 2) {
                gw_thc_options config = default_options(bits, workers[w], 0);
                config.seed = rng_u32(&rng);
                config.lane_bits = lane;
                config.block_log2 = 6 + rng_below(&rng, 8);
                check_homomorphism(&rng, config, workers[w], lengths[rng_below(&rng, 8)]);
                config.transform = GW_THC_PLAIN;
                config.threshold_bits = 0;
                check_homomorphism(&rng, config, workers[w], lengths[rng_below(&rng, 8)]);
            }
        }
    }
}

/* Every split of the block range, with and without gw_thc_prepare(), gives the same bytes and errors. */
static void test_splits(void **state)
{
    (void)state;
    test_rng rng = {2};
    size_t len = 9 * 256 + 77;

    for (int feedback = 0; feedback < 2; feedback++) {
        gw_thc_options config = default_options(3, 4, feedback);
        config.block_log2 = 8;
        config.seed = 99;
        gw_thc thc = make_thc(&config);
        float *x = take(4 * len * sizeof *x);
        float *error = take(4 * len * sizeof *error);
        float *error2 = take(len * sizeof *error2);
        fill_normal(&rng, x, 4 * len, 1e-3);
        fill_normal(&rng, error, 4 * len, 1e-4);
        float *before = take(4 * len * sizeof *before);
        memcpy(before, error, 4 * len * sizeof *error);
        job_output job = run_job(&thc, x, feedback ? error : NULL, len, 4, 1);
        gw_workspace workspace = take_workspace(&thc);
        for (uint64_t first = 0; first < job.blocks; first++) {
            for (uint64_t count = 0; first + count <= job.blocks; count += 3) {
                gw_thc_range range = {len, first, count, 1, 2};
                size_t at = (size_t)first << 8;
                size_t size = gw_thc_indices_size(&thc, len, first, count);
                size_t elements = (first + count) << 8 > len ? len - at : (size_t)count << 8;
                uint8_t *piece = take(size);
                float *piece_error = take(elements * sizeof *piece_error);
                memcpy(piece_error, before + 2 * len + at, elements * sizeof *piece_error);
                assert_int_equal(gw_thc_encode(&thc, &range,
                                               &(gw_thc_source){.values = x + 2 * len + at,
                                                                .error = feedback ? piece_error : NULL,
                                                                .patterns = job.maxima + first},
                                               &(gw_buffer){piece, size, 0}, NULL, &workspace),
                                 GW_OK);
                size_t offset = gw_thc_indices_size(&thc, len, 0, first);
                assert_memory_equal(piece, job.indices + 2 * job.indices_size + offset, size);
                if (feedback) {
                    assert_memory_equal(piece_error, error + 2 * len + at, elements * sizeof *piece_error);
                }

                float *rotated = take((size_t)gw_thc_range_lanes(&thc, len, first, count) * sizeof *rotated);
                uint32_t *own = take((size_t)count * sizeof *own);
                memcpy(piece_error, before + 2 * len + at, elements * sizeof *piece_error);
                memset(piece, 0xee, size);
                assert_int_equal(gw_thc_prepare(&thc, &range,
                                                &(gw_thc_source){.values = x + 2 * len + at,
                                                                 .error = feedback ? piece_error : NULL},
                                                &(gw_thc_prepared){own, rotated, 0}, &workspace),
                                 GW_OK);
                assert_int_equal(gw_thc_encode(&thc, &range,
                                               &(gw_thc_source){.values = feedback ? x + 2 * len + at : NULL,
                                                                .error = feedback ? piece_error : NULL,
                                                                .patterns = job.maxima + first,
                                                                .rotated = rotated,
                                                                .own_patterns = own},
                                               &(gw_buffer){piece, size, 0}, NULL, &workspace),
                                 GW_OK);
                assert_memory_equal(piece, job.indices + 2 * job.indices_size + offset, size);
                if (feedback) {
                    assert_memory_equal(piece_error, error + 2 * len + at, elements * sizeof *piece_error);
                }
                free(rotated);
                free(own);
                free(piece);
                free(piece_error);
            }
        }
        free(workspace.data);
        free(before);
        free(error2);
        free(error);
        free(x);
        free_job(&job);
    }
}

/*
 * The rounding bits of docs/numerics-thc.md sections 5 and 6, from Philox itself: seed, absolute block, round
 * and rank all count. Plain blocks from 0 to 1 with 16 bits a value, so that positions are exact.
 */
static void test_rounding_bits(void **state)
{
    (void)state;
    enum { LEN = 3 * 256, FIRST = 1 }; /* the range starts after the first block */
    static const struct {
        uint64_t seed;
        uint32_t round, rank;
    } cases[] = {{0, 0, 0}, {0x0123456789abcdefu, 0, 0}, {7, 5, 0}, {7, UINT32_MAX, 2}, {7, 5, 1}};
    test_rng rng = {12};
    gw_thc_options config = default_options(4, 3, 0);
    static float x[LEN];
    const gw_workspace workspace = any_workspace();

    config.transform = GW_THC_PLAIN;
    config.threshold_bits = 0;
    config.block_log2 = 8;
    for (size_t i = 0; i < LEN; i++) {
        x[i] = (float)(i % 256 == 0 ? 0u : i % 256 == 1 ? 65536u : rng_below(&rng, 65536)) / 65536.0f;
    }
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        config.seed = cases[c].seed;
        gw_thc thc = make_thc(&config);
        gw_thc_range range = {LEN, FIRST, 2, cases[c].round, cases[c].rank};
        uint32_t maxima[4];
        uint8_t packed[2 * 128];
        assert_int_equal(
            gw_thc_norms(&thc, &range, &(gw_thc_source){.values = x + 256}, maxima, NULL, &workspace), GW_OK);
        assert_int_equal(gw_thc_encode(&thc, &range, &(gw_thc_source){.values = x + 256, .patterns = maxima},
                                       &(gw_buffer){packed, sizeof packed, 0}, NULL, &workspace),
                         GW_OK);
        for (uint32_t i = 0; i < 512; i++) {
            uint32_t v = i % 256, words[4];
            gw_philox4x32(words, config.seed, v / 128 * 16 + v % 16, FIRST + i / 256, cases[c].round,
                          0x80000000u + cases[c].rank);
            uint32_t u = words[v / 32 % 4] >> (v / 16 % 2 * 16) & 0xffffu;
            uint32_t position = (uint32_t)(x[256 + i] * 65536.0f) * config.table.granularity;
            unsigned z = 0;
            while (z < 15 && config.table.value[z + 1] * 65536u <= position) {
                z++;
            }
            uint32_t rest = position - config.table.value[z] * 65536u;
            uint32_t gap = z < 15 ? (uint32_t)config.table.value[z + 1] - config.table.value[z] : 0;
            unsigned up = gap > 0 && gap * (2 * u + 1) <= 2 * rest;
            assert_int_equal(packed[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15, z + up);
        }
    }
}

/* The new error is x - decode(own indices) exactly; feedback is stable; restore gives x back. */
static void test_error_feedback(void **state)
{
    (void)state;
    test_rng rng = {3};
    size_t len = 5000;

    for (unsigned bits = 1; bits <= 4; bits++) {
        gw_thc_options config = default_options(bits, 1, 1);
        gw_thc thc = make_thc(&config);
        float *x = take(len * sizeof *x);
        float *error = take(len * sizeof *error);
        float *sum_x = take(len * sizeof *sum_x);
        float *sum_out = take(len * sizeof *sum_out);
        float *out = take(len * sizeof *out);
        float *corrected = take(len * sizeof *corrected);
        gw_workspace workspace = take_workspace(&thc);
        fill_normal(&rng, x, len, 1.0);
        double late_error = 0;
        for (uint32_t round = 0; round < 60; round++) {
            for (size_t i = 0; i < len; i++) {
                corrected[i] = x[i] + error[i];
            }
            job_output job = run_job(&thc, x, error, len, 1, round);
            gw_thc_range range = {len, 0, job.blocks, round, 0};
            assert_int_equal(gw_thc_decode_indices(
                                 &thc, &range, &(gw_thc_indices){job.indices, job.indices_size, job.maxima},
                                 &(gw_thc_target){.values = out, .capacity = len}, &workspace),
                             GW_OK);
            for (size_t i = 0; i < len; i++) {
                assert_true(error[i] == corrected[i] - out[i]);
                sum_out[i] += out[i];
                sum_x[i] += x[i];
            }
            late_error = squares(error, len) / squares(x, len);
            if (round == 30) { /* leave this contribution out */
                assert_int_equal(
                    gw_thc_error_restore(&thc, &range,
                                         &(gw_thc_indices){job.indices, job.indices_size, job.maxima}, error,
                                         &workspace),
                    GW_OK);
                assert_true(squared_distance(error, corrected, len) <= 1e-13 * squares(corrected, len));
                for (size_t i = 0; i < len; i++) {
                    sum_out[i] -= out[i];
                }
            }
            free_job(&job);
        }
        /* What was sent in 60 rounds is what was to be sent, but for the last error: |e| stays bounded. */
        assert_true(late_error < 10.0);
        double rest = squared_distance(sum_out, sum_x, len);
        assert_true(rest <= 1.001 * squares(error, len) + 1e-6 * squares(sum_x, len));
        free(workspace.data);
        free(corrected);
        free(out);
        free(sum_out);
        free(sum_x);
        free(error);
        free(x);
    }
}

static void test_error_state(void **state)
{
    (void)state;
    test_rng rng = {4};
    float memory[100], copy[100];
    uint8_t a[40 + 4 * 60], b[40 + 4 * 40];
    uint64_t loaded;

    fill_normal(&rng, memory, 100, 1.0);
    assert_int_equal(gw_thc_error_saved_size(60), sizeof a);
    assert_int_equal(gw_thc_error_save(memory, 1000, 60, &(gw_buffer){a, sizeof a, 0}), GW_OK);
    assert_int_equal(gw_thc_error_save(memory + 60, 1060, 40, &(gw_buffer){b, sizeof b, 0}), GW_OK);
    /* Other buckets: 0..32 and 33..99 of the same numbering. */
    memset(copy, 0, sizeof copy);
    const uint8_t *saved[2] = {a, b};
    size_t sizes[2] = {sizeof a, sizeof b};
    uint64_t total = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gw_thc_error_load(saved[i], sizes[i], copy, 1000, 33, &loaded), GW_OK);
        total += loaded;
        assert_int_equal(gw_thc_error_load(saved[i], sizes[i], copy + 33, 1033, 67, &loaded), GW_OK);
        total += loaded;
    }
    assert_int_equal(total, 100);
    assert_memory_equal(copy, memory, sizeof memory);

    assert_int_equal(gw_thc_error_save(memory, 0, 60, &(gw_buffer){a, sizeof a - 1, 0}), GW_ERR_DST);
    assert_int_equal(gw_thc_error_load(a, 39, copy, 0, 100, NULL), GW_ERR_SHORT);
    assert_int_equal(gw_thc_error_load(a, sizeof a - 1, copy, 0, 100, NULL), GW_ERR_SHORT);
    for (size_t bit = 0; bit < 8 * sizeof a; bit++) { /* every single-bit change is detected */
        a[bit / 8] = (uint8_t)(a[bit / 8] ^ 1u << bit % 8);
        assert_int_not_equal(gw_thc_error_load(a, sizeof a, copy, 1000, 60, NULL), GW_OK);
        a[bit / 8] = (uint8_t)(a[bit / 8] ^ 1u << bit % 8);
    }
    assert_memory_equal(copy, memory, sizeof memory);
}

static gw_status norms_of(const gw_thc *thc, const float *x, size_t len, uint32_t *patterns, uint64_t *bad)
{
    const gw_workspace workspace = any_workspace();
    gw_thc_range range = {len, 0, gw_thc_block_count(thc, len), 0, 0};
    return gw_thc_norms(thc, &range, &(gw_thc_source){.values = x}, patterns, bad, &workspace);
}

/* Norms: right to 2e-6 over the whole exponent range, no overflow inside, order of codes. */
static void test_norms(void **state)
{
    (void)state;
    test_rng rng = {5};
    gw_thc_options config = default_options(4, 1, 0);
    config.block_log2 = 13;
    gw_thc thc = make_thc(&config);
    float *x = take(8192 * sizeof *x);

    for (int exponent = -125; exponent <= 110; exponent += 5) {
        for (size_t len = 1; len <= 8192; len = len * 3 + 1) {
            uint32_t pattern;
            float norm;
            fill_normal(&rng, x, len, ldexp(1.0, exponent));
            double sum = 0;
            for (size_t i = 0; i < len; i++) {
                sum += fabs((double)x[i]) < 0x1p-126 ? 0.0 : (double)x[i] * (double)x[i];
            }
            assert_int_equal(norms_of(&thc, x, len, &pattern, NULL), GW_OK);
            memcpy(&norm, &pattern, sizeof norm);
            assert_true(fabs((double)norm - sqrt(sum)) <= 2e-6 * sqrt(sum));
        }
    }
    uint32_t pattern = 1;
    memset(x, 0, 64 * sizeof *x);
    x[3] = -0.0f;
    x[4] = 1e-40f; /* subnormal: +0 */
    assert_int_equal(norms_of(&thc, x, 64, &pattern, NULL), GW_OK);
    assert_int_equal(pattern, 0);
    free(x);
}

static void test_nonfinite(void **state)
{
    (void)state;
    test_rng rng = {6};
    size_t len = 300;
    float *x = take(2 * len * sizeof *x);
    float *out = take(len * sizeof *out);
    uint32_t patterns[2 * 5];
    uint64_t bad = 0;
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};

    for (unsigned transform = 0; transform < 2; transform++) {
        for (unsigned kind = 0; kind < 4; kind++) {
            gw_thc_options config = default_options(4, 2, 0);
            config.block_log2 = 6;
            config.transform = (uint8_t)transform;
            if (transform == GW_THC_PLAIN) {
                config.threshold_bits = 0;
            }
            fill_normal(&rng, x, 2 * len, 1.0);
            x[64 * 3 + 5] = poison[kind];
            if (kind == 3) { /* finite values, a norm or width beyond fp32 */
                x[64 * 3 + 6] = -3e38f;
            }
            gw_thc thc = make_thc(&config);
            assert_int_equal(norms_of(&thc, x, len, patterns, &bad), GW_ERR_NONFINITE);
            assert_int_equal(bad, 3);

            config.nonfinite = GW_THC_NONFINITE_PROPAGATE;
            thc = make_thc(&config);
            job_output job = run_job(&thc, x, NULL, len, 2, 0);
            gw_thc_agg agg;
            uint8_t *lanes = take(job.lanes_size);
            uint8_t set[8] = {0};
            assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, 2, 8, 1}), GW_OK);
            for (uint32_t r = 0; r < 2; r++) {
                assert_int_equal(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes, set, job.lanes},
                                                        job.indices + r * job.indices_size, r),
                                 GW_OK);
            }
            assert_int_equal(decode_all(&thc, &job, lanes, 2, GW_THC_MEAN, 0, len, out), GW_OK);
            for (size_t i = 0; i < len; i++) {
                uint32_t bits;
                memcpy(&bits, &out[i], 4);
                assert_true(i / 64 == 3 ? bits == 0x7fc00000 : !isnan(out[i]));
            }
            free(lanes);
            free_job(&job);

            config.nonfinite = GW_THC_NONFINITE_ZERO;
            thc = make_thc(&config);
            job = run_job(&thc, x, NULL, len, 2, 0);
            assert_int_equal(gw_thc_norms_check(&thc, job.maxima, job.blocks, NULL), GW_OK);
            free_job(&job);
        }
    }
    free(out);
    free(x);
}

/* Early errors leave indices and error memory as they were. */
static void test_encode_refusals(void **state)
{
    (void)state;
    test_rng rng = {7};
    size_t len = 200;
    gw_thc_options config = default_options(4, 4, 1);
    config.block_log2 = 6;
    gw_thc thc = make_thc(&config);
    float x[200], error[200] = {0}, error0[200] = {0};
    uint8_t indices[128], clean[128];
    const gw_workspace workspace = any_workspace();
    uint32_t maxima[4];
    uint64_t bad;
    gw_thc_range range = {200, 0, 4, 0, 1};

    memset(indices, 0xa5, sizeof indices);
    memset(clean, 0xa5, sizeof clean);
    fill_normal(&rng, x, len, 1.0);
    assert_int_equal(
        gw_thc_norms(&thc, &range, &(gw_thc_source){.values = x, .error = error}, maxima, NULL, &workspace),
        GW_OK);
    gw_thc_source source = {.values = x, .error = error, .patterns = maxima};
    gw_buffer dst = {indices, sizeof indices, 1};
#define ENCODE() gw_thc_encode(&thc, &range, &source, &dst, &bad, &workspace)
    static const uint32_t impossible[] = {0x7f800000, 0x7fc00000, 0xffffffff, 0x80000000,
                                          0xbf800000, 1,          0x007fffff};
    for (unsigned i = 0; i < 7; i++) { /* row 45 */
        uint32_t keep = maxima[2];
        maxima[2] = impossible[i];
        assert_int_equal(ENCODE(), GW_ERR_CORRUPT);
        assert_int_equal(bad, 2);
        maxima[2] = keep;
    }
    maxima[1]--;
    assert_int_equal(ENCODE(), GW_ERR_STATE);
    maxima[1]++;
    x[130] = NAN;
    assert_int_equal(ENCODE(), GW_ERR_NONFINITE);
    assert_int_equal(bad, 2);
    x[130] = 0;
    range.rank = 4;
    assert_int_equal(ENCODE(), GW_ERR_ARG);
    range.rank = 1;
    range.block_count = 5;
    assert_int_equal(ENCODE(), GW_ERR_ARG);
    range.block_count = 4;
    dst.capacity--;
    assert_int_equal(ENCODE(), GW_ERR_DST);
    assert_int_equal(dst.size, 0);
    dst.capacity++;
    source.error = NULL;
    assert_int_equal(ENCODE(), GW_ERR_ARG);
    source.error = error;
    gw_workspace small = {workspace.data, gw_thc_workspace_size(&thc) - 1};
    assert_int_equal(gw_thc_encode(&thc, &range, &source, &dst, &bad, &small), GW_ERR_WORKSPACE);
    assert_true(bad == UINT64_MAX);
    range.len = UINT64_MAX;
    assert_int_equal(ENCODE(), GW_ERR_LIMIT);
    assert_memory_equal(indices, clean, sizeof indices);
    assert_memory_equal(error, error0, sizeof error);
    gw_thc empty;
    memset(&empty, 0, sizeof empty);
    assert_int_equal(gw_thc_encode(&empty, &range, &source, &dst, NULL, &workspace), GW_ERR_STATE);

    /* Without error memory the range is encoded in one pass: a refused block leaves zeros before it. */
    range = (gw_thc_range){200, 0, 4, 0, 1};
    config.error_feedback = 0;
    thc = make_thc(&config);
    source.error = NULL;
    static const float bad_values[3] = {NAN, INFINITY, 1e30f};
    static const gw_status expected[3] = {GW_ERR_NONFINITE, GW_ERR_NONFINITE, GW_ERR_STATE};
    static const uint8_t zeros[128];
    size_t block_size = 64 / 8 * config.table.bits;
    for (unsigned i = 0; i < 3; i++) {
        memset(indices, 0xa5, sizeof indices);
        x[130] = bad_values[i];
        assert_int_equal(ENCODE(), expected[i]);
        assert_int_equal(bad, 2);
        assert_memory_equal(indices, zeros, 2 * block_size);
        assert_memory_equal(indices + 2 * block_size, clean, sizeof indices - 2 * block_size);
    }
    x[130] = 0;
#undef ENCODE
}

/* Decoder against hostile lanes, members and norms: code, lowest block, zeros, the rest decoded. */
static void test_decode_refusals(void **state)
{
    (void)state;
    test_rng rng = {8};
    size_t len = 64 * 5;
    gw_thc_options config = default_options(4, 4, 0);
    config.block_log2 = 6;
    gw_thc thc = make_thc(&config);
    float *x = take(4 * len * sizeof *x);
    float *good = take(len * sizeof *good);
    float *out = take(len * sizeof *out);
    fill_normal(&rng, x, 4 * len, 1.0);
    memset(x, 0, 64 * sizeof *x);
    for (uint32_t r = 1; r < 4; r++) {
        memset(x + r * len, 0, 64 * sizeof *x); /* block 0 is zero everywhere */
    }
    job_output job = run_job(&thc, x, NULL, len, 4, 3);
    assert_int_equal(job.maxima[0], 0);
    gw_thc_agg agg;
    uint8_t *lanes = take(job.lanes_size);
    uint8_t set[8] = {0};
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, 4, 8, 1}), GW_OK);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes, set, job.lanes},
                                                job.indices + r * job.indices_size, r),
                         GW_OK);
    }
    assert_int_equal(decode_all(&thc, &job, lanes, 3, GW_THC_MEAN, 3, len, good), GW_OK);
    for (size_t i = 0; i < 64; i++) {
        assert_true(good[i] == 0 && !signbit(good[i]));
    }

    const gw_workspace workspace = any_workspace();
    uint32_t members[5] = {3, 3, 3, 3, 3};
    gw_thc_range range = {len, 0, 5, 3, 0};
    gw_thc_sum sum = {lanes, job.lanes_size, members, job.maxima};
    gw_thc_target target = {.values = out, .capacity = len};
#define DECODE() gw_thc_decode(&thc, &range, &sum, GW_THC_MEAN, &target, &workspace)
    for (size_t at = 0; at < job.lanes_size; at += 13) {
        uint8_t keep = lanes[at];
        lanes[at] = at < 64 ? 1 : 3 * 31 + 1; /* rows 42 and 45 */
        memset(out, 0x55, len * sizeof *out);
        assert_int_equal(DECODE(), GW_ERR_CORRUPT);
        assert_int_equal(target.bad_block, at / 64);
        for (size_t i = 0; i < len; i++) {
            assert_true(i / 64 == at / 64 ? out[i] == 0 : out[i] == good[i]);
        }
        lanes[at] = keep;
    }
    members[2] = 5; /* row 41 */
    members[4] = 5;
    assert_int_equal(DECODE(), GW_ERR_OVERFLOW);
    assert_int_equal(target.bad_block, 2);
    members[2] = 0; /* k = 0 with lanes that are not zero */
    members[4] = 3;
    assert_int_equal(DECODE(), GW_ERR_CORRUPT);
    memset(lanes + 128, 0, 64);
    assert_int_equal(DECODE(), GW_OK);
    assert_int_equal(target.missing, 1);
    for (size_t i = 128; i < 192; i++) {
        assert_true(out[i] == 0 && !signbit(out[i]));
    }
    members[2] = 3;
    uint32_t keep = job.maxima[3];
    static const uint32_t impossible[] = {0x7f800000, 0x7fc00000, 0x80000000, 0xbf800000, 1};
    for (unsigned i = 0; i < 5; i++) {
        job.maxima[3] = impossible[i];
        assert_int_equal(DECODE(), GW_ERR_CORRUPT);
        assert_int_equal(target.bad_block, 3);
    }
    job.maxima[3] = keep;
    target.capacity = len - 1;
    assert_int_equal(DECODE(), GW_ERR_DST);
    assert_int_equal(target.len, 0);
    target.capacity = len;
    sum.size--;
    assert_int_equal(DECODE(), GW_ERR_SHORT);
#undef DECODE
    free(lanes);
    free(good);
    free(out);
    free(x);
    free_job(&job);
}

/* Raw integer all-reduce: buffers added as uint32 words, counts from the count lanes. */
static void test_reduced(void **state)
{
    (void)state;
    test_rng rng = {9};

    for (unsigned lane = 8; lane <= 32; lane *= 2) {
        for (size_t len = 1; len < 5000; len = len * 4 + 3) {
            uint32_t n = 8;
            gw_thc_options config = default_options(4, n, 0);
            config.lane_bits = lane;
            gw_thc thc = make_thc(&config);
            float *x = take(n * len * sizeof *x);
            fill_normal(&rng, x, n * len, 1.0);
            job_output job = run_job(&thc, x, NULL, len, n, 7);
            size_t size = gw_thc_reduced_size(&thc, len, 0, job.blocks);
            assert_int_equal(size % 4, 0);
            uint8_t *buffer = take(size);
            uint8_t *sum = take(size);
            uint8_t *lanes = take(job.lanes_size);
            uint8_t set[8] = {0};
            gw_thc_agg agg;
            gw_thc_range range = {len, 0, job.blocks, 7, 0};
            assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, n, lane, 1}), GW_OK);
            for (uint32_t r = 0; r < n - 1; r++) { /* one worker is missing */
                const uint8_t *indices = job.indices + r * job.indices_size;
                assert_int_equal(gw_thc_expand(&thc, &range,
                                               &(gw_thc_indices){indices, job.indices_size, NULL},
                                               &(gw_buffer){buffer, size, 0}),
                                 GW_OK);
                for (size_t i = 0; i < size; i += 4) {
                    uint32_t a, b;
                    memcpy(&a, sum + i, 4);
                    memcpy(&b, buffer + i, 4);
                    a += b;
                    memcpy(sum + i, &a, 4);
                }
                assert_int_equal(
                    gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes, set, job.lanes}, indices, r),
                    GW_OK);
            }
            float *direct = take(len * sizeof *direct);
            float *reduced = take(len * sizeof *reduced);
            gw_workspace workspace = take_workspace(&thc);
            assert_int_equal(decode_all(&thc, &job, lanes, n - 1, GW_THC_MEAN, 7, len, direct), GW_OK);
            assert_int_equal(
                gw_thc_decode_reduced(&thc, &range, &(gw_thc_sum){sum, size, NULL, job.maxima}, GW_THC_MEAN,
                                      &(gw_thc_target){.values = reduced, .capacity = len}, &workspace),
                GW_OK);
            assert_memory_equal(direct, reduced, len * sizeof *direct);
            for (uint64_t b = 0; b < job.blocks; b++) {
                assert_int_equal(gw_thc_reduced_members(&thc, &range, sum, size, b), n - 1);
            }
            assert_true(gw_thc_reduced_members(&thc, &range, sum, size, job.blocks) == UINT32_MAX);
            assert_true(gw_thc_reduced_members(&thc, &range, sum, size - 1, 0) == UINT32_MAX);
            free(workspace.data);
            free(reduced);
            free(direct);
            free(lanes);
            free(sum);
            free(buffer);
            free(x);
            free_job(&job);
        }
    }
}

/* What worker x would contribute if nothing but the clamp happened: one block of 64. */
static void clamped_block(const gw_thc_options *config, const float *x, uint32_t max_norm, uint32_t block,
                          double out[64])
{
    gw_thc_stream stream = {config->seed, block, 0, 0};
    uint32_t own = gw_thc_norm_scalar(x, 64);
    float y[64], t, l;

    memcpy(&t, &config->threshold_bits, sizeof t);
    memcpy(&l, &max_norm, sizeof l);
    double window = ldexp(1.0, 128 - (int)(own >> 23)); /* rotate scales by this */
    gw_thc_rotate_scalar(y, x, 64, own >> 23, &stream);
    for (size_t i = 0; i < 64; i++) {
        y[i] =
            (float)fmax(-(double)t * (double)l * window, fmin((double)t * (double)l * window, (double)y[i]));
    }
    gw_thc_rotate_back_scalar(y, 64, 127, &stream); /* 2^0 */
    for (size_t i = 0; i < 64; i++) {
        out[i] = (double)y[i] / 64 / window;
    }
}

/*
 * No bias beyond the clamp: over 2,000 seeds (of rotation and rounding), the mean difference between the
 * decoded mean and the mean of the clamped vectors of those who contributed stays within 4 standard errors,
 * coordinate by coordinate. `missing` workers never send; every packet (a block of a worker) is lost with
 * `permille`.
 */
static void check_bias(unsigned bits, uint32_t n, uint32_t missing, uint32_t permille)
{
    enum { LEN = 128, SEEDS = 2000 };
    test_rng rng = {bits * 100 + n * 10 + missing + permille};
    gw_thc_options config = default_options(bits, n, 0);
    float *x = take(n * LEN * sizeof *x);
    double *sum = take(LEN * sizeof *sum);
    double *sum2 = take(LEN * sizeof *sum2);
    double clamp_bias = 0;
    float out[LEN];

    config.block_log2 = 6;
    fill_normal(&rng, x, n * LEN, 1.0);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        config.seed = seed;
        gw_thc thc = make_thc(&config);
        job_output job = run_job(&thc, x, NULL, LEN, n, 0);
        gw_thc_agg agg;
        uint8_t lanes[LEN * 4] = {0};
        uint32_t members[2] = {0, 0};
        double truth[LEN] = {0};
        const gw_workspace workspace = any_workspace();
        gw_thc_range range = {LEN, 0, 2, 0, 0};
        assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, n, config.lane_bits, 1}),
                         GW_OK);
        size_t lane_size = config.lane_bits / 8;
        for (uint32_t block = 0; block < 2; block++) {
            uint8_t set[8] = {0};
            for (uint32_t r = missing; r < n; r++) {
                double clamped[64];
                const float *part = x + r * LEN + block * 64;
                if (rng_below(&rng, 1000) < permille) {
                    continue;
                }
                assert_int_equal(
                    gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes + block * 64 * lane_size, set, 64},
                                           job.indices + r * job.indices_size + block * 8 * bits, r),
                    GW_OK);
                members[block]++;
                clamped_block(&config, part, job.maxima[block], block, clamped);
                for (size_t i = 0; i < 64; i++) {
                    truth[block * 64 + i] += clamped[i];
                    clamp_bias += fabs(clamped[i] - (double)part[i]);
                }
            }
        }
        assert_int_equal(
            gw_thc_decode(
                &thc, &range, &(gw_thc_sum){lanes, job.lanes_size, members, job.maxima}, GW_THC_MEAN,
                &(gw_thc_target){.values = out, .capacity = sizeof out / sizeof out[0]}, &workspace),
            GW_OK);
        for (size_t i = 0; i < LEN; i++) {
            double difference = members[i / 64] == 0 ? 0 : (double)out[i] - truth[i] / members[i / 64];
            sum[i] += difference;
            sum2[i] += difference * difference;
        }
        free_job(&job);
    }
    double worst = 0, chi = 0;
    for (size_t i = 0; i < LEN; i++) {
        double mean = sum[i] / SEEDS;
        double error = sqrt((sum2[i] / SEEDS - mean * mean) / SEEDS);
        worst = fmax(worst, fabs(mean) / error);
        chi += mean * mean / (error * error);
    }
    print_message("bias: %u bits, %u workers, %u missing, %u per mille lost: worst %.2f standard errors, "
                  "chi^2/%d %.3f\n",
                  bits, n, missing, permille, worst, LEN, chi / LEN);
    assert_true(clamp_bias > 0); /* the clamp did something: p is that of the defaults */
    assert_true(worst < 4.0);
    assert_true(chi / LEN < 1.0 + 4.0 * sqrt(2.0 / LEN));
    free(sum);
    free(sum2);
    free(x);
}

static void test_bias(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 4; bits++) {
        check_bias(bits, 1, 0, 0);
    }
    for (uint32_t missing = 0; missing <= 3; missing++) {
        check_bias(4, 10, missing, 0);
    }
    check_bias(4, 10, 0, 1);
    check_bias(4, 10, 0, 10);
}

/* 16-bit types: what is decoded is the fp32 result, rounded once. */
static void test_dtypes(void **state)
{
    (void)state;
    test_rng rng = {10};
    uint16_t x[700];
    uint16_t out[700];
    const gw_workspace workspace = any_workspace();

    for (unsigned dtype = GW_BF16; dtype <= GW_FP16; dtype++) {
        gw_thc_options config = default_options(4, 1, 0);
        config.dtype = (gw_dtype)dtype;
        gw_thc thc = make_thc(&config);
        for (size_t i = 0; i < 700; i++) {
            x[i] = (uint16_t)((rng_u32(&rng) & 0x83ff) | (dtype == GW_BF16 ? 0x3f00 : 0x3800));
        }
        gw_thc_range range = {700, 0, 1, 0, 0};
        uint32_t norm;
        uint8_t indices[512];
        assert_int_equal(gw_thc_norms(&thc, &range, &(gw_thc_source){.values = x}, &norm, NULL, &workspace),
                         GW_OK);
        assert_int_equal(gw_thc_encode(&thc, &range, &(gw_thc_source){.values = x, .patterns = &norm},
                                       &(gw_buffer){indices, 512, 0}, NULL, &workspace),
                         GW_OK);
        assert_int_equal(
            gw_thc_decode_indices(&thc, &range, &(gw_thc_indices){indices, 512, &norm},
                                  &(gw_thc_target){.values = out, .capacity = sizeof out / sizeof out[0]},
                                  &workspace),
            GW_OK);
        config.dtype = GW_FP32;
        gw_thc wide = make_thc(&config);
        float reference[700];
        assert_int_equal(
            gw_thc_decode_indices(
                &wide, &range, &(gw_thc_indices){indices, 512, &norm},
                &(gw_thc_target){.values = reference, .capacity = sizeof reference / sizeof reference[0]},
                &workspace),
            GW_OK);
        for (size_t i = 0; i < 700; i++) {
            float value;
            if (dtype == GW_BF16) {
                uint32_t bits = (uint32_t)out[i] << 16;
                memcpy(&value, &bits, 4);
            } else {
                int exponent = (out[i] >> 10) & 31;
                value = (float)ldexp((exponent != 0 ? 1024 : 0) + (out[i] & 1023),
                                     (exponent != 0 ? exponent : 1) - 25);
                value = out[i] & 0x8000 ? -value : value;
            }
            float ulp = fabsf(reference[i]) * (dtype == GW_BF16 ? 0x1p-8f : 0x1p-11f) + 0x1p-25f;
            assert_true(fabsf(value - reference[i]) <= ulp);
        }
    }
}

/* -0 of every dtype is encoded as +0, and no decoder writes it: not where a negative number rounds to it. */
static void test_minus_zero(void **state)
{
    (void)state;
    enum { LEN = 200, INDICES = 128 };
    const gw_workspace workspace = any_workspace();

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        const size_t size = dtype == GW_FP32 ? 4 : 2;
        uint8_t x[2][4 * LEN] = {{0}}, indices[2][INDICES], out[4 * LEN];
        uint32_t norm[2], zeros = 0;
        gw_thc_options options = default_options(4, 1, 0);
        options.dtype = (gw_dtype)dtype;
        gw_thc thc = make_thc(&options);
        const gw_thc_range range = {LEN, 0, 1, 0, 0};
        for (size_t i = 0; i < LEN; i++) {
            x[0][size * i + size - 1] = 0x80; /* -0, little-endian */
        }
        for (size_t v = 0; v < 2; v++) { /* a few of the smallest fp16, 2^-24, and as much of the others */
            for (size_t i = 0; i < LEN; i += 50) {
                const uint32_t bits = dtype == GW_FP16 ? 1 : dtype == GW_BF16 ? 0x3380 : 0x33800000;
                memcpy(x[v] + size * i, &bits, size);
            }
            const gw_thc_source source = {.values = x[v], .patterns = &norm[v]};
            assert_int_equal(gw_thc_norms(&thc, &range, &source, &norm[v], NULL, &workspace), GW_OK);
            assert_int_equal(
                gw_thc_encode(&thc, &range, &source, &(gw_buffer){indices[v], INDICES, 0}, NULL, &workspace),
                GW_OK);
        }
        assert_int_equal(norm[0], norm[1]);
        assert_memory_equal(indices[0], indices[1], INDICES);
        assert_int_equal(gw_thc_decode_indices(&thc, &range, &(gw_thc_indices){indices[0], INDICES, &norm[0]},
                                               &(gw_thc_target){.values = out, .capacity = LEN}, &workspace),
                         GW_OK);
        for (size_t i = 0; i < LEN; i++) {
            uint32_t bits = 0;
            memcpy(&bits, out + size * i, size);
            assert_int_not_equal(bits, (uint32_t)1 << (8 * size - 1));
            zeros += bits == 0;
        }
        assert_true((dtype == GW_FP16) == (zeros > LEN / 10));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_homomorphism),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_rounding_bits),
        cmocka_unit_test(test_error_feedback),
        cmocka_unit_test(test_error_state),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_encode_refusals),
        cmocka_unit_test(test_decode_refusals),
        cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_minus_zero),
    };
    return cmocka_run_group_tests_name("thc codec", tests, NULL, NULL);
}
