/*
 * THC with each backend in each part: norms, indices, error memory, sums and decoded values are scalar's,
 * whoever makes them and whoever reads them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "../gcomp/gcomp_support.h"

#include "core/kernels.h"
#include "gradwire/thc.h"

enum { MASKS_MAX = 6, WORKERS = 3, COUNT_MAX = 3 * 8192 + 1 };

static uint32_t masks[MASKS_MAX];
static unsigned mask_count;

/* What one backend makes of one tensor. */
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
static float workspace[GW_THC_WORKSPACE_SIZE_MAX / sizeof(float)];

/* Runs a whole round; `encoder`, `server` and `decoder` are backend masks. */
static void run_round(outputs *o, const gw_thc_config *config, uint64_t count, uint32_t encoder,
                      uint32_t server, uint32_t decoder)
{
    gw_thc worker, receiver;
    gw_thc_agg agg;
    memset(o, 0, sizeof *o);
    assert_int_equal(gw_thc_init(&worker, config, encoder), GW_OK);
    assert_int_equal(gw_thc_init(&receiver, config, decoder), GW_OK);
    assert_int_equal(gw_thc_agg_init(&agg, &config->table, WORKERS, config->lane_bits, server), GW_OK);
    gw_thc_range range = {count, 0, gw_thc_block_count(&worker, count), 7, 0};
    const size_t pattern_count = (size_t)range.block_count * gw_thc_patterns_per_block(&worker);
    const size_t len = (size_t)gw_thc_range_lanes(&worker, count, 0, range.block_count);
    const size_t indices_size = gw_thc_indices_size(&worker, count, 0, range.block_count);
    const size_t lanes_size = gw_thc_lanes_size(&worker, count, 0, range.block_count);
    assert_true(pattern_count <= 1024 && lanes_size <= sizeof o->lanes && indices_size <= COUNT_MAX);
    for (unsigned r = 0; r < WORKERS; r++) {
        range.rank = r;
        for (uint64_t i = 0; i < count; i++) {
            o->error[r][i] = (float)(int)(i % 17 + r) * 1e-3f - 8e-3f;
        }
        const float *error = config->error_feedback ? o->error[r] : NULL;
        assert_int_equal(gw_thc_norms(&worker, &range, values[r], error, o->patterns[r], workspace,
                                      sizeof workspace, NULL),
                         GW_OK);
        gw_thc_norms_max(o->maxima, o->patterns[r], pattern_count);
    }
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0};
    for (unsigned r = 0; r < WORKERS; r++) {
        range.rank = r;
        float *error = config->error_feedback ? o->error[r] : NULL;
        if (config->transform == GW_THC_ROTATED && r == 1) { /* the other way to the same indices */
            uint32_t own[1024];
            assert_int_equal(gw_thc_prepare(&worker, &range, values[r], error, own, rotated, workspace,
                                            sizeof workspace, NULL),
                             GW_OK);
            assert_memory_equal(own, o->patterns[r], pattern_count * sizeof *own);
            assert_int_equal(gw_thc_encode_prepared(&worker, &range, rotated, own, values[r], error,
                                                    o->maxima, o->indices[r], indices_size, workspace,
                                                    sizeof workspace, NULL),
                             GW_OK);
        } else {
            assert_int_equal(gw_thc_encode(&worker, &range, values[r], error, o->maxima, o->indices[r],
                                           indices_size, workspace, sizeof workspace, NULL),
                             GW_OK);
        }
        assert_int_equal(gw_thc_agg_add_indices(&agg, o->lanes, set, len, o->indices[r], r), GW_OK);
    }
    /* Sums of sums: twice the lanes does not fit the contributor check, so another sum of one worker. */
    static uint8_t one[4 * 4 * 8192], both[4 * 4 * 8192];
    uint8_t set_one[GW_THC_SET_SIZE(WORKERS)] = {0}, set_both[GW_THC_SET_SIZE(WORKERS)] = {0};
    memset(one, 0, sizeof one);
    memset(both, 0, sizeof both);
    assert_int_equal(gw_thc_agg_add_indices(&agg, one, set_one, len, o->indices[0], 0), GW_OK);
    for (unsigned r = 1; r < WORKERS; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, both, set_both, len, o->indices[r], r), GW_OK);
    }
    assert_int_equal(gw_thc_agg_add_lanes(&agg, both, set_both, len, one, set_one), GW_OK);
    assert_memory_equal(both, o->lanes, lanes_size);

    uint32_t members[1024];
    for (uint64_t b = 0; b < range.block_count; b++) {
        members[b] = WORKERS;
    }
    uint64_t missing = 1;
    assert_int_equal(gw_thc_decode(&receiver, &range, o->lanes, lanes_size, members, o->maxima, GW_THC_MEAN,
                                   o->decoded, count * gw_dtype_size((gw_dtype)config->dtype), workspace,
                                   sizeof workspace, &missing, NULL),
                     GW_OK);
    assert_int_equal(missing, 0);
    assert_int_equal(gw_thc_decode_indices(&receiver, &range, o->indices[2], indices_size, o->maxima,
                                           o->alone, count * gw_dtype_size((gw_dtype)config->dtype),
                                           workspace, sizeof workspace, NULL),
                     GW_OK);
    const size_t reduced_size = gw_thc_reduced_size(&worker, count, 0, range.block_count);
    assert_true(reduced_size <= sizeof o->reduced);
    assert_int_equal(
        gw_thc_expand(&worker, &range, o->indices[0], indices_size, o->reduced, sizeof o->reduced), GW_OK);
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

static void try_all(const gw_thc_config *config, uint64_t count)
{
    run_round(&expected, config, count, GW_BACKEND_SCALAR, GW_BACKEND_SCALAR, GW_BACKEND_SCALAR);
    for (unsigned i = 0; i < mask_count; i++) {
        run_round(&got, config, count, masks[i], masks[i], masks[i]);
        compare(&expected, &got);
        for (unsigned j = 0; count < 300 && j < mask_count; j++) {
            run_round(&got, config, count, masks[i], masks[(i + j) % mask_count], masks[j]);
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
                gw_thc_config config;
                seed++;
                assert_int_equal(gw_thc_config_default(&config, NULL, bits, WORKERS, lane_bits[variant % 3],
                                                       variant % 2 == 0 && bits >= 2, workspace,
                                                       sizeof workspace),
                                 GW_OK);
                config.dtype = (uint8_t)(GW_FP32 + (seed + variant) % 3);
                config.seed = seed * 0x9e3779b97f4a7c15u;
                config.block_log2 = (uint8_t)(counts[c] < 256 ? 6 + seed % 3 : 7 + seed % 7);
                if (variant == 5) {
                    config.transform = GW_THC_PLAIN;
                    config.threshold_bits = 0;
                    config.error_feedback = 0;
                }
                fill((gw_dtype)config.dtype, counts[c], seed);
                try_all(&config, counts[c]);
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
