/*
 * Tables: published optima, an independent quadrature, brute force, the defaults.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "thc/thc_default_tables.h"
#include "thc/thc_normal.h"
#include "thc_testing.h"

static uint8_t memory[GW_THC_TABLE_WORKSPACE_SIZE];
static const gw_workspace workspace = {memory, sizeof memory};

static gw_thc_table solve(unsigned bits, unsigned g, double p, gw_thc_table_cost *cost)
{
    gw_thc_table table;

    assert_int_equal(gw_thc_table_solve(bits, g, p, &table, cost, &workspace), GW_OK);
    assert_int_equal(gw_thc_table_check(&table), GW_OK);
    return table;
}

/* The known answers of Random123's kat_vectors for philox4x32, 10 rounds. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    uint32_t out[4];
    gw_philox4x32(out, 0, 0, 0, 0, 0);
    assert_true(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
    gw_philox4x32(out, UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    assert_true(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
    gw_philox4x32(out, 0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
    assert_true(out[0] == 0xd16cfe09 && out[1] == 0x94fdcceb && out[2] == 0x5001e420 && out[3] == 0x24126ea1);
}

static void test_published_costs(void **state)
{
    (void)state;
    static const struct {
        unsigned bits, g;
        double p, cost;
        uint8_t value[16];
    } known[] = {
        {4, 31, 1 / 32., 0.0127515572, {0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31}},
        {4, 20, 1 / 512., 0.0211869923, {0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 20}},
        {4, 36, 1 / 32., 0.0121402876, {0, 4, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 32, 36}},
        {4, 51, 1 / 1024., 0.0215091298, {0, 8, 12, 15, 18, 20, 22, 24, 26, 28, 30, 33, 36, 39, 43, 51}},
        {3, 31, 1 / 32., 0.0558794969, {0, 6, 10, 14, 17, 21, 25, 31}},
        {2, 31, 1 / 32., 0.3148536929, {0, 11, 20, 31}},
        {4, 30, 1 / 32., 0.0130625427, {0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30}},
        {4, 31, 1 / 512., 0.022561, {0, 4, 7, 9, 11, 13, 14, 15, 16, 17, 18, 20, 22, 24, 27, 31}},
        {4, 63, 1 / 64., 0.014528, {0, 7, 12, 16, 20, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 63}},
        {4, 127, 1 / 64., 0.014362, {0, 13, 23, 32, 40, 47, 54, 60, 66, 72, 79, 86, 94, 103, 113, 127}},
        {4,
         255,
         1 / 32.,
         0.0118106,
         {0, 25, 45, 62, 78, 93, 107, 121, 134, 148, 162, 177, 193, 210, 230, 255}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        gw_thc_table_cost cost;
        gw_thc_table table = solve(known[i].bits, known[i].g, known[i].p, &cost);
        assert_memory_equal(table.value, known[i].value, 16);
        double digits = i < 7 ? 1e-9 : 1e-6; /* the later rows are published to six or seven digits */
        assert_true(fabs(cost.quantization - known[i].cost) < digits);
    }
    gw_thc_table published = {4, 30, {0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}};
    gw_thc_table_cost cost;
    assert_int_equal(gw_thc_table_price(&published, 1 / 32., &cost), GW_OK);
    assert_true(fabs(cost.quantization - 0.0130745947) < 1e-9);
    gw_thc_table_cost cost64;
    (void)solve(4, 31, 1 / 64., &cost64);
    assert_true(fabs(cost64.truncation - 0.003151) < 1e-6);
}

/* Threshold values of the released code. */
static void test_thresholds(void **state)
{
    (void)state;
    static const double t[] = {1.8627319, 2.1538747, 2.4175590, 2.6600675, 2.8856349, 3.0972691, 3.2971933};
    for (unsigned i = 0; i < 7; i++) {
        assert_true(fabs(gw_normal_threshold(ldexp(1.0, -(int)i - 4)) - t[i]) < 1e-7);
    }
    for (double x = 0.0; x < 8.0; x += 0.037) {
        assert_true(fabs(gw_normal_half_cdf(x) - 0.5 * erf(x / sqrt(2.0))) < 2e-15);
        double density = exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
        assert_true(fabs(gw_normal_density(x) / density - 1.0) < 8e-15);
    }
    for (double p = 0.9; p > 7e-5; p *= 0.83) {
        assert_true(fabs(erfc(gw_normal_threshold(p) / sqrt(2.0)) - p) < 1e-14);
    }
    assert_int_equal(gw_thc_threshold_bits(2.0), 0);
    assert_int_equal(gw_thc_threshold_bits(0x1p-14), 0); /* 4.009: above what frames carry */
    assert_int_equal(gw_thc_threshold_bits(NAN), 0);
}

/* Eight-point Gauss-Legendre on pieces of a hundredth, with libm's density in long double. */
static double quadrature(const gw_thc_table *table, double t)
{
    static const long double node[4] = {0.1834346424956498049394761L, 0.5255324099163289858177390L,
                                        0.7966664774136267395915539L, 0.9602898564975362316835609L};
    static const long double weight[4] = {0.3626837833783619829651504L, 0.3137066458778872873379622L,
                                          0.2223810344533744705443560L, 0.1012285362903762591525314L};
    long double total = 0;

    for (unsigned z = 0; z + 1 < 1u << table->bits; z++) {
        long double lo = -t + 2.0L * t * table->value[z] / table->granularity;
        long double hi = -t + 2.0L * t * table->value[z + 1] / table->granularity;
        unsigned pieces = (unsigned)((hi - lo) * 100) + 1;
        for (unsigned i = 0; i < pieces; i++) {
            long double half = (hi - lo) / pieces / 2;
            long double middle = lo + (2 * i + 1) * half;
            for (unsigned k = 0; k < 8; k++) {
                long double x = middle + (k % 2 ? -1 : 1) * half * node[k / 2];
                total +=
                    weight[k / 2] * half * (x - lo) * (hi - x) * expl(-x * x / 2) / sqrtl(2 * acosl(-1.0L));
            }
        }
    }
    return (double)total;
}

static void test_costs_against_quadrature(void **state)
{
    (void)state;
    for (unsigned bits = 1; bits <= 4; bits++) {
        for (unsigned g = (1u << bits) - 1; g <= 255; g += 8) {
            for (int k = 1; k <= 14; k += 3) {
                gw_thc_table_cost cost;
                gw_thc_table table = solve(bits, g, ldexp(1.0, -k), &cost);
                assert_true(fabs(cost.quantization - quadrature(&table, cost.threshold)) < 1e-12);
            }
        }
    }
}

/* Every table of `bits` and g, by enumeration with the same exact weights; returns the first of the cheapest.
 */
typedef struct enumeration {
    uint64_t weight[256][256];
    unsigned g, steps;
    uint64_t best;
    uint8_t path[16], best_path[16];
} enumeration;

static void enumerate(enumeration *e, unsigned step, uint64_t cost)
{
    unsigned at = e->path[step];

    if (step + 1 == e->steps) {
        cost += e->weight[at][e->g];
        if (cost < e->best) {
            e->best = cost;
            memcpy(e->best_path, e->path, sizeof e->path);
            e->best_path[e->steps] = (uint8_t)e->g;
        }
        return;
    }
    for (unsigned next = at + 1; next + (e->steps - step - 1) <= e->g; next++) {
        e->path[step + 1] = (uint8_t)next;
        enumerate(e, step + 1, cost + e->weight[at][next]);
    }
}

static double binomial(unsigned n, unsigned k)
{
    double result = 1;

    for (unsigned i = 1; i <= k; i++) {
        result = result * (n - k + i) / i;
    }
    return result;
}

static void test_brute_force(void **state)
{
    (void)state;
    enumeration *e = take(sizeof *e);
    double p = 1 / 32.;
    double t = gw_normal_threshold(p);
    unsigned cases = 0, exact = 0;

    for (unsigned bits = 1; bits <= 4; bits++) {
        for (unsigned g = (1u << bits) - 1; g <= 255 && binomial(g - 1, (1u << bits) - 2) <= 1e7; g++) {
            gw_thc_table table = solve(bits, g, p, NULL);
            memset(e, 0, sizeof *e);
            e->g = g;
            e->steps = (1u << bits) - 1;
            e->best = UINT64_MAX;
            /* Written out again: closed form with libm, truncated to 2^-60, mirrored. */
            for (unsigned i = 0; i <= g; i++) {
                for (unsigned j = i + 1; j <= g; j++) {
                    unsigned l = i + j <= g ? i : g - j;
                    unsigned r = i + j <= g ? j : g - i;
                    double a = -t + 2 * t * l / g, b = -t + 2 * t * r / g;
                    double da = exp(-a * a / 2) / sqrt(2 * acos(-1.0)),
                           db = exp(-b * b / 2) / sqrt(2 * acos(-1.0));
                    double mass = 0.5 * (erf(b / sqrt(2.0)) - erf(a / sqrt(2.0)));
                    e->weight[i][j] = (uint64_t)(fmax(b * da - a * db - (1 + a * b) * mass, 0) * 0x1p60);
                }
            }
            enumerate(e, 0, 0);
            /* Two roundings of one integral may order equal-looking tables differently; the cost may not
             * differ. */
            uint64_t cost = 0;
            for (unsigned z = 0; z < e->steps; z++) {
                cost += e->weight[table.value[z]][table.value[z + 1]];
            }
            assert_true(cost >= e->best && (double)(cost - e->best) < 1e-13 * 0x1p60);
            if (cost == e->best) { /* a tie: the smallest, which is enumerated first */
                assert_memory_equal(table.value, e->best_path, 16);
            }
            cases++;
            exact += cost == e->best;
        }
    }
    print_message("brute force: %u pairs of bits and granularity, %u of them the same table\n", cases, exact);
    free(e);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_true(gw_thc_default_table_count > 0);
    for (size_t i = 0; i < gw_thc_default_table_count; i++) {
        const gw_thc_default_table *row = &gw_thc_default_tables[i];
        double p = ldexp(1.0, -row->p_log2);
        gw_thc_table table = solve(row->table.bits, row->table.granularity, p, NULL);
        assert_memory_equal(&table, &row->table, sizeof table);
        uint32_t workers[2] = {row->worker_min, row->worker_max};
        for (unsigned w = 0; w < 2; w++) { /* p is the best of all powers of 1/2, at both ends of the row */
            double n = row->error_feedback ? 1 : workers[w];
            gw_thc_table_cost mine;
            (void)solve(row->table.bits, row->table.granularity, p, &mine);
            for (int k = 1; k <= 10; k++) {
                gw_thc_table_cost other;
                (void)solve(row->table.bits, row->table.granularity, ldexp(1.0, -k), &other);
                assert_true(mine.quantization / n + mine.truncation <=
                            other.quantization / n + other.truncation + 1e-12);
            }
            gw_thc_options config = default_options(row->table.bits, workers[w], row->error_feedback);
            assert_memory_equal(&config.table, &row->table, sizeof table);
        }
    }
    /* The recommended p of T10. */
    static const int with[4] = {1, 2, 4, 6}, without[4] = {2, 4, 7, 9};
    for (unsigned bits = 1; bits <= 4; bits++) {
        gw_thc_design design;
        assert_int_equal(gw_thc_design_make(&design, &(gw_thc_goal){bits, 8, 0, 1}, NULL), GW_OK);
        assert_true(design.p == ldexp(1.0, -with[bits - 1]) && design.options.table.granularity == 31 &&
                    design.options.lane_bits == 8);
        assert_int_equal(gw_thc_design_make(&design, &(gw_thc_goal){bits, 8, 0, 0}, NULL), GW_OK);
        assert_true(design.p == ldexp(1.0, -without[bits - 1]));
    }
    /* Every p that tables are made for gives a threshold that contexts take. */
    static const double limits[2] = {0x1p-13, 0.9};
    for (unsigned i = 0; i < 2; i++) {
        gw_thc_options config = default_options(4, 8, 0);
        config.table = solve(4, 31, limits[i], NULL);
        config.threshold_bits = gw_thc_threshold_bits(limits[i]);
        (void)make_thc(&config);
    }
    for (uint32_t n = 1; n <= GW_THC_WORKERS_MAX; n = n * 3 / 2 + 1) {
        gw_thc_options config = default_options(4, n, 0);
        gw_thc thc = make_thc(&config);
        assert_true(gw_thc_options_hash(&thc) != 0);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    gw_thc_table table;
    gw_thc_options config = default_options(4, 8, 1);
    gw_thc thc;

    assert_int_equal(gw_thc_table_solve(4, 31, 0.1, NULL, NULL, &workspace), GW_ERR_ARG);
    assert_int_equal(gw_thc_table_solve(4, 31, 0.1, &table, NULL, &(gw_workspace){NULL, sizeof memory}),
                     GW_ERR_ARG);
    assert_int_equal(gw_thc_table_solve(5, 31, 0.1, &table, NULL, &workspace), GW_ERR_OPTION);
    assert_int_equal(gw_thc_table_solve(4, 14, 0.1, &table, NULL, &workspace), GW_ERR_OPTION);
    assert_int_equal(gw_thc_table_solve(4, 256, 0.1, &table, NULL, &workspace), GW_ERR_OPTION);
    assert_int_equal(gw_thc_table_solve(4, 31, 0x1p-14, &table, NULL, &workspace), GW_ERR_OPTION);
    assert_int_equal(gw_thc_table_solve(4, 31, NAN, &table, NULL, &workspace), GW_ERR_OPTION);
    assert_int_equal(gw_thc_table_solve(4, 31, 0.1, &table, NULL, &(gw_workspace){memory, sizeof memory - 1}),
                     GW_ERR_WORKSPACE);

    /* Row 44: every rule of a table. */
    gw_thc_table bad[5];
    for (unsigned i = 0; i < 5; i++) {
        bad[i] = config.table;
    }
    bad[0].value[0] = 1;
    bad[1].value[15] = 30;
    bad[2].value[7] = bad[2].value[6];
    bad[3].bits = 0;
    bad[4].bits = 3; /* values after the last */
    for (unsigned i = 0; i < 5; i++) {
        gw_thc_agg agg;
        assert_int_equal(gw_thc_table_check(&bad[i]), GW_ERR_TABLE);
        assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){bad[i], 8, 8, 1}), GW_ERR_TABLE);
        gw_thc_options c = config;
        c.table = bad[i];
        assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_TABLE);
        assert_int_equal(gw_thc_block_count(&thc, 10), 0); /* zeroed */
    }

    /* Row 41: n g against the lanes, and against 2^23. */
    gw_thc_options c = config;
    c.worker_max = 9;
    assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_OVERFLOW);
    c.lane_bits = 16;
    assert_int_equal(gw_thc_init(&thc, &c), GW_OK);
    c.lane_bits = 32;
    c.table = gw_thc_table_uniform(4);
    c.worker_max = 65535;
    assert_int_equal(gw_thc_init(&thc, &c), GW_OK);
    c.table.granularity = 255;
    c.table.value[15] = 255;
    assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_OVERFLOW);

    /* Feedback that would diverge: one bit at p = 1/32 costs more than the signal. */
    c = default_options(1, 8, 1);
    assert_int_equal(gw_thc_init(&thc, &c), GW_OK);
    c.threshold_bits = gw_thc_threshold_bits(1 / 32.);
    assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_OPTION);
    c.error_feedback = 0;
    assert_int_equal(gw_thc_init(&thc, &c), GW_OK);
    c.transform = GW_THC_PLAIN;
    assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_OPTION); /* a threshold without a rotation */
    c.threshold_bits = 0;
    assert_int_equal(gw_thc_init(&thc, &c), GW_OK);
    c.error_feedback = 1;
    assert_int_equal(gw_thc_init(&thc, &c), GW_ERR_OPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_published_costs),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_costs_against_quadrature),
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("thc table", tests, NULL, NULL);
}
