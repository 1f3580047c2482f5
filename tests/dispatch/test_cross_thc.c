/*
 * THC with each backend in each part: norms, indices, error memory, sums and decoded values are those of
 * scalar, for every combination of worker, aggregator and receiver.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "../gcomp/gcomp_support.h"

#include "core/kernels.h"
#include "gradwire/thc.h"

enum { MASKS_MAX = 6, WORKERS = 3, COUNT_MAX = 3 * 8192 + 1 };

static uint32_t masks[MASKS_MAX];
static unsigned mask_count;

/* The results of one backend for one tensor. */
typedef struct outputs {
    uint32_t patterns[WORKERS][1024], maxima[1024];
    uint8_t indices[WORKERS][COUNT_MAX], lanes[4 * 4 * 8192];
    float error[WORKERS][COUNT_MAX];
    uint8_t decoded[4 * COUNT_MAX], alone[4 * COUNT_MAX];
    uint8_t reduced[4 * 5 * 8192];
} outputs;

static uint8_t values[WORKERS][4 * COUNT_MAX];
static float rotated[4 * 8192];
static outputs expected, got;
static uint8_t memory[GW_THC_WORKSPACE_SIZE_MAX];
static const gw_workspace workspace = {memory, sizeof memory};

/* A handle for these backends. */
static gw_thc make_thc(const gw_thc_options *options, uint32_t backends)
{
    gw_thc_options mine = *options;
    gw_thc thc;
    mine.backends = backends;
    assert_int_equal(gw_thc_init(&thc, &mine), GW_OK);
    return thc;
}

/* Indices of worker r; worker 1 makes them in two steps where it can. */
static void encode_worker(outputs *o, const gw_thc *worker, const gw_thc_range *range, unsigned r)
{
    const gw_thc_options *options = gw_thc_options_of(worker);
    float *error = options->error_feedback ? o->error[r] : NULL;
    gw_thc_source source = {.values = values[r], .error = error, .patterns = o->maxima};
    gw_buffer indices = {o->indices[r], sizeof o->indices[r], 0};
    uint32_t own[1024];
    if (options->transform == GW_THC_ROTATED && r == 1) {
        gw_thc_prepared prepared = {own, rotated, 0};
        assert_int_equal(gw_thc_prepare(worker, range, &source, &prepared, &workspace), GW_OK);
        assert_memory_equal(own, o->patterns[r], (size_t)range->block_count * sizeof *own);
        source.rotated = rotated;
        source.own_patterns = own;
    }
    assert_int_equal(gw_thc_encode(worker, range, &source, &indices, NULL, &workspace), GW_OK);
}

/* The sum of all workers, at once and as a sum of sums. */
static void sum_workers(outputs *o, const gw_thc_options *options, size_t len, uint32_t backends)
{
    static uint8_t one[4 * 4 * 8192], both[4 * 4 * 8192];
    const gw_thc_agg_options agg_options = {options->table, WORKERS, options->lane_bits, backends};
    uint8_t set[8] = {0}, set_one[8] = {0}, set_both[8] = {0};
    const gw_thc_partial all = {o->lanes, set, len}, sum_one = {one, set_one, len},
                         sum_both = {both, set_both, len};
    gw_thc_agg agg;
    memset(one, 0, sizeof one);
    memset(both, 0, sizeof both);
    assert_int_equal(gw_thc_agg_init(&agg, &agg_options), GW_OK);
    for (unsigned r = 0; r < WORKERS; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &all, o->indices[r], r), GW_OK);
        assert_int_equal(gw_thc_agg_add_indices(&agg, r == 0 ? &sum_one : &sum_both, o->indices[r], r),
                         GW_OK);
    }
    assert_int_equal(gw_thc_agg_add_lanes(&agg, &sum_both, one, set_one), GW_OK);
    assert_memory_equal(both, o->lanes, len * (options->lane_bits / 8));
}

/* Runs a whole round; `encoder`, `server` and `decoder` are backend masks. */
static void run_round(outputs *o, const gw_thc_options *options, uint64_t len, uint32_t encoder,
                      uint32_t server, uint32_t decoder)
{
    const gw_thc worker = make_thc(options, encoder), receiver = make_thc(options, decoder);
    memset(o, 0, sizeof *o);
    gw_thc_range range = {len, 0, gw_thc_block_count(&worker, len), 7, 0};
    const size_t pattern_count = (size_t)range.block_count * gw_thc_patterns_per_block(&worker);
    const size_t lane_count = (size_t)gw_thc_range_lanes(&worker, len, 0, range.block_count);
    const size_t indices_size = gw_thc_indices_size(&worker, len, 0, range.block_count);
    const size_t lanes_size = gw_thc_lanes_size(&worker, len, 0, range.block_count);
    assert_true(pattern_count <= 1024 && lanes_size <= sizeof o->lanes && indices_size <= COUNT_MAX);
    for (unsigned r = 0; r < WORKERS; r++) {
        range.rank = r;
        for (uint64_t i = 0; i < len; i++) {
            o->error[r][i] = (float)(int)(i % 17 + r) * 1e-3f - 8e-3f;
        }
        gw_thc_source source = {.values = values[r], .error = options->error_feedback ? o->error[r] : NULL};
        assert_int_equal(gw_thc_norms(&worker, &range, &source, o->patterns[r], NULL, &workspace), GW_OK);
        gw_thc_norms_max(o->maxima, o->patterns[r], pattern_count);
    }
    for (unsigned r = 0; r < WORKERS; r++) {
        range.rank = r;
        encode_worker(o, &worker, &range, r);
    }
    sum_workers(o, options, lane_count, server);

    uint32_t members[1024];
    for (uint64_t b = 0; b < range.block_count; b++) {
        members[b] = WORKERS;
    }
    const gw_thc_sum sum = {o->lanes, lanes_size, members, o->maxima};
    gw_thc_target target = {.values = o->decoded, .capacity = len, .missing = 1};
    assert_int_equal(gw_thc_decode(&receiver, &range, &sum, GW_THC_MEAN, &target, &workspace), GW_OK);
    assert_int_equal(target.missing, 0);
    const gw_thc_indices last = {o->indices[2], indices_size, o->maxima};
    target.values = o->alone;
    assert_int_equal(gw_thc_decode_indices(&receiver, &range, &last, &target, &workspace), GW_OK);
    const gw_thc_indices first = {o->indices[0], indices_size, NULL};
    gw_buffer reduced = {o->reduced, sizeof o->reduced, 0};
    assert_int_equal(gw_thc_expand(&worker, &range, &first, &reduced), GW_OK);
    assert_int_equal(reduced.size, gw_thc_reduced_size(&worker, len, 0, range.block_count));
}

static void compare(const outputs *a, const outputs *b)
{
    assert_memory_equal(a->patterns, b->patterns, sizeof a->patterns);
    assert_memory_equal(a->maxima, b->maxima, sizeof a->maxima);
    assert_memory_equal(a->indices, b->indices, sizeof a->indices);
    assert_memory_equal(a->lanes, b->lanes, sizeof a->lanes);
    assert_memory_equal(a->error, b->error, sizeof a->error);
    assert_memory_equal(a->decoded, b->decoded, sizeof a->decoded);
    assert_memory_equal(a->alone, b->alone, sizeof a->alone);
    assert_memory_equal(a->reduced, b->reduced, sizeof a->reduced);
}

static void try_all(const gw_thc_options *options, uint64_t count)
{
    run_round(&expected, options, count, GW_BACKEND_SCALAR, GW_BACKEND_SCALAR, GW_BACKEND_SCALAR);
    for (unsigned i = 0; i < mask_count; i++) {
        run_round(&got, options, count, masks[i], masks[i], masks[i]);
        compare(&expected, &got);
        for (unsigned j = 0; count < 300 && j < mask_count; j++) {
            run_round(&got, options, count, masks[i], masks[(i + j) % mask_count], masks[j]);
            compare(&expected, &got);
        }
    }
}

/* Values that THC takes: no NaN, no infinity; -0 and subnormals among them. */
static void fill(gw_dtype dtype, uint64_t count, uint64_t seed)
{
    for (unsigned r = 0; r < WORKERS; r++) {
        test_fill_values(values[r], dtype, (size_t)count, PATTERN_GRADIENT, seed + r);
        test_random random = {seed ^ r};
        for (uint64_t i = test_random_below(&random, 9); i < count; i += 1 + test_random_below(&random, 60)) {
            test_put(values[r], dtype, (size_t)i, test_random_below(&random, 2) != 0 ? 1 : 0);
        }
    }
}

static void rounds(void **state)
{
    (void)state;
    static const uint16_t counts[] = {1,   2,    63,   64,   65,   100,  127,  129,
                                      255, 1000, 1024, 1025, 4097, 8192, 8193, COUNT_MAX};
    uint64_t seed = 1;
    for (size_t c = 0; c < TEST_ARRAY_LEN(counts); c++) {
        for (unsigned bits = 1; bits <= 4; bits++) {
            for (unsigned variant = 0; variant < 6; variant++) {
                static const unsigned lane_bits[] = {8, 16, 32};
                gw_thc_options options;
                seed++;
                const gw_thc_goal goal = {bits, WORKERS, lane_bits[variant % 3],
                                          variant % 2 == 0 && bits >= 2};
                assert_int_equal(gw_thc_options_init(&options, &goal, &workspace), GW_OK);
                options.dtype = (gw_dtype)(GW_FP32 + (seed + variant) % 3);
                options.seed = seed * 0x9e3779b97f4a7c15u;
                options.block_log2 = (uint32_t)(counts[c] < 256 ? 6 + seed % 3 : 7 + seed % 7);
                if (variant == 5) {
                    options.transform = GW_THC_PLAIN;
                    options.threshold_bits = 0;
                    options.error_feedback = 0;
                }
                fill(options.dtype, counts[c], seed);
                try_all(&options, counts[c]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounds)};
    masks[mask_count++] = GW_BACKEND_SCALAR;
    for (unsigned bit = 1; bit < 8; bit++) {
        if ((gw_backends_available() & 1u << bit) != 0) {
            masks[mask_count++] = (uint32_t)1 << bit;
        }
    }
    masks[mask_count++] = GW_BACKEND_ALL;
    return cmocka_run_group_tests_name("thc, backends crossed", tests, NULL, NULL);
}
