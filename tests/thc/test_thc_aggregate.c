/*
 * The aggregator: every lane and index width against plain integers, refusals (rows 40 to 42), all or
 * nothing.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdlib.h>
#include <string.h>

#include "scalar/kernels_scalar.h"
#include "thc_testing.h"

enum { LEN = 192, WORKERS = 12 };

static uint32_t lane_of(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    uint32_t value = 0;

    for (unsigned b = 0; b < lane_bits / 8; b++) {
        value |= (uint32_t)lanes[i * (lane_bits / 8) + b] << (8 * b);
    }
    return value;
}

/* The index order of docs/format-thc.md section 3, written the other way round: from value to bit positions.
 */
static void put_index(uint8_t *packed, size_t i, unsigned bits, unsigned index)
{
    uint8_t *group = packed + i / 64 * 8 * bits;
    unsigned j = (unsigned)(i % 64);

    switch (bits) {
    case 1:
        group[j % 8] = (uint8_t)(group[j % 8] | index << (j / 8));
        break;
    case 2:
        group[j % 16] = (uint8_t)(group[j % 16] | index << (2 * (j / 16)));
        break;
    case 3:
        group[j % 16] = (uint8_t)(group[j % 16] | (index & 3u) << (2 * (j / 16)));
        group[16 + j % 8] = (uint8_t)(group[16 + j % 8] | (index >> 2) << (j / 8));
        break;
    default:
        group[j % 32] = (uint8_t)(group[j % 32] | index << (4 * (j / 32)));
        break;
    }
}

static void test_against_integers(void **state)
{
    (void)state;
    test_rng rng = {1};

    for (unsigned bits = 1; bits <= 4; bits++) {
        for (unsigned lane_bits = 8; lane_bits <= 32; lane_bits *= 2) {
            gw_thc_options config = default_options(bits, WORKERS, 0);
            gw_thc_agg agg;
            uint8_t index[LEN];
            uint8_t *packed = take(LEN / 8 * bits);
            uint8_t *again = take(LEN / 8 * bits);
            uint8_t *lanes = take(LEN * lane_bits / 8 + 1);
            uint8_t set[8] = {0};
            uint32_t model[LEN] = {0};
            assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, WORKERS, lane_bits,
                                                                         GW_BACKEND_ALL}),
                             GW_OK);
            for (uint32_t r = 0; r < WORKERS; r++) {
                memset(packed, 0, LEN / 8 * bits);
                for (size_t i = 0; i < LEN; i++) {
                    index[i] = (uint8_t)(r == 0 ? (1u << bits) - 1u : rng_below(&rng, 1u << bits));
                    put_index(packed, i, bits, index[i]);
                    model[i] += config.table.value[index[i]];
                }
                gw_thc_pack_scalar(again, index, LEN, bits);
                assert_memory_equal(again, packed, LEN / 8 * bits);
                /* Any alignment. */
                assert_int_equal(
                    gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes + 1, set, LEN}, packed, r), GW_OK);
                assert_int_equal(gw_thc_set_members(set, WORKERS), r + 1);
            }
            for (size_t i = 0; i < LEN; i++) {
                assert_int_equal(lane_of(lanes + 1, i, lane_bits), model[i]);
            }
            free(packed);
            free(again);
            free(lanes);
        }
    }
}

/* Many sources at once, in pieces of a long lane array, against one after the other. */
static void test_many_long(void **state)
{
    (void)state;
    enum { LONG_LEN = 2 * 4096 + 192, SOURCES = 3 };
    test_rng rng = {2};

    for (unsigned bits = 1; bits <= 4; bits++) {
        for (unsigned lane_bits = 8; lane_bits <= 32; lane_bits *= 2) {
            gw_thc_options config = default_options(bits, 2 * SOURCES, 0);
            gw_thc_agg agg;
            size_t size = (size_t)LONG_LEN * lane_bits / 8, indices_size = LONG_LEN / 8 * bits;
            uint8_t *one = take(size), *many = take(size), *twice = take(size);
            uint8_t *packed = take(SOURCES * indices_size);
            uint8_t set[8] = {0}, many_set[8] = {0}, twice_set[8] = {0}, high_set[8] = {0x38};
            const uint8_t *sources[SOURCES];
            const uint32_t ranks[SOURCES] = {2, 0, 1};
            assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, 2 * SOURCES, lane_bits,
                                                                         GW_BACKEND_ALL}),
                             GW_OK);
            for (size_t i = 0; i < SOURCES * indices_size; i++) {
                packed[i] = (uint8_t)rng_u32(&rng);
            }
            memset(one, 0, size);
            memset(many, 0, size);
            memset(twice, 0, size);
            for (unsigned s = 0; s < SOURCES; s++) {
                sources[s] = packed + s * indices_size;
                assert_int_equal(
                    gw_thc_agg_add_indices(&agg, &(gw_thc_partial){one, set, LONG_LEN}, sources[s], ranks[s]),
                    GW_OK);
            }
            assert_int_equal(gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){many, many_set, LONG_LEN},
                                                         sources, ranks, SOURCES),
                             GW_OK);
            assert_memory_equal(one, many, size);
            /* The same lanes as the sums of two groups of workers: doubled. */
            const uint8_t *lanes[2] = {one, many};
            const uint8_t *sets[2] = {set, high_set};
            assert_int_equal(gw_thc_agg_add_lanes_many(&agg, &(gw_thc_partial){twice, twice_set, LONG_LEN},
                                                       lanes, sets, 2),
                             GW_OK);
            for (size_t i = 0; i < LONG_LEN; i++) {
                assert_int_equal(lane_of(twice, i, lane_bits), 2 * lane_of(one, i, lane_bits));
            }
            free(one);
            free(many);
            free(twice);
            free(packed);
        }
    }
}

typedef struct sum_state {
    uint8_t lanes[LEN];
    uint8_t set[8];
} sum_state;

static void test_refusals(void **state)
{
    (void)state;
    gw_thc_options config = default_options(4, 8, 0);
    gw_thc_agg agg, unready;
    uint8_t packed[LEN / 2];
    sum_state sum, before, in;

    memset(&unready, 0, sizeof unready);
    memset(&sum, 0, sizeof sum);
    memset(packed, 0xff, sizeof packed); /* all at the top: 31 */
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){config.table, 8, 8, 1}), GW_OK);
    for (uint32_t r = 0; r < 5; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, r),
                         GW_OK);
    }
    before = sum;

#define REFUSED(call, code)                                                                                  \
    do {                                                                                                     \
        assert_int_equal(call, code);                                                                        \
        assert_memory_equal(&sum, &before, sizeof sum);                                                      \
    } while (0)
    /* Row 40: duplicate, id >= n, overlapping sets. */
    REFUSED(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, 3), GW_ERR_DUP);
    REFUSED(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, 8), GW_ERR_DUP);
    REFUSED(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, UINT32_MAX),
            GW_ERR_DUP);
    memset(&in, 0, sizeof in);
    in.set[0] = 0x30; /* worker 4 is in */
    REFUSED(gw_thc_agg_add_lanes(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, in.lanes, in.set),
            GW_ERR_DUP);
    in.set[0] = 0x20;
    in.set[1] = 0x01; /* worker 8 */
    REFUSED(gw_thc_agg_add_lanes(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, in.lanes, in.set),
            GW_ERR_DUP);
    in.set[1] = 0;
    /* Row 42: a lane above k g. */
    in.lanes[LEN - 1] = 32;
    REFUSED(gw_thc_agg_add_lanes(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, in.lanes, in.set),
            GW_ERR_CORRUPT);
    /* Row 41: k = 0 with a lane that is not zero; with zeros it is the identity. */
    in.set[0] = 0;
    in.lanes[LEN - 1] = 1;
    REFUSED(gw_thc_agg_add_lanes(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, in.lanes, in.set),
            GW_ERR_CORRUPT);
    in.lanes[LEN - 1] = 0;
    REFUSED(gw_thc_agg_add_lanes(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, in.lanes, in.set), GW_OK);
    /* Row 41: too many contributors, by count. */
    uint32_t k = 5;
    REFUSED(gw_thc_agg_add_counted(&agg, sum.lanes, LEN, &k, in.lanes, 4), GW_ERR_OVERFLOW);
    REFUSED(gw_thc_agg_add_counted(&agg, sum.lanes, LEN, &k, in.lanes, UINT32_MAX), GW_ERR_OVERFLOW);
    in.lanes[7] = 3 * 31 + 1;
    REFUSED(gw_thc_agg_add_counted(&agg, sum.lanes, LEN, &k, in.lanes, 3), GW_ERR_CORRUPT);
    assert_int_equal(k, 5);
    in.lanes[7] = 0;
    /* Arguments and state. */
    REFUSED(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN - 1}, packed, 5),
            GW_ERR_ARG);
    REFUSED(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, NULL, 5), GW_ERR_ARG);
    REFUSED(gw_thc_agg_add_indices(&unready, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, 5),
            GW_ERR_STATE);
    /* Many: all or nothing, duplicates among the sources included. */
    const uint8_t *sources[3] = {packed, packed, packed};
    uint32_t ranks[3] = {5, 6, 5};
    REFUSED(gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, sources, ranks, 3),
            GW_ERR_DUP);
    ranks[2] = 8;
    REFUSED(gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, sources, ranks, 3),
            GW_ERR_DUP);
    sum_state other = in;
    in.set[0] = 0x20;
    other.set[0] = 0x60;
    const uint8_t *lanes[2] = {in.lanes, other.lanes};
    const uint8_t *sets[2] = {in.set, other.set};
    REFUSED(gw_thc_agg_add_lanes_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, lanes, sets, 2),
            GW_ERR_DUP);
    other.set[0] = 0x40;
    other.lanes[0] = 32;
    REFUSED(gw_thc_agg_add_lanes_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, lanes, sets, 2),
            GW_ERR_CORRUPT);
#undef REFUSED
    other.lanes[0] = 31;
    assert_int_equal(
        gw_thc_agg_add_lanes_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, lanes, sets, 2), GW_OK);
    assert_int_equal(sum.lanes[0], 6 * 31);
    assert_int_equal(sum.set[0], 0x7f);
    ranks[0] = 7;
    assert_int_equal(
        gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, sources, ranks, 1),
        GW_OK);
    assert_int_equal(sum.lanes[0], 7 * 31); /* the largest: 8 * 31 = 248 <= 255 */
    assert_int_equal(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum.lanes, sum.set, LEN}, packed, 7),
                     GW_ERR_DUP);
}

/* Sets of more than one word; limits at creation. */
static void test_sizes(void **state)
{
    (void)state;
    gw_thc_table table = gw_thc_table_uniform(1);
    gw_thc_agg agg;
    uint8_t lanes[64 * 4] = {0};
    uint8_t set[GW_THC_SET_SIZE(GW_THC_WORKERS_MAX)] = {0};
    uint8_t packed[8];

    memset(packed, 0xff, sizeof packed);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 256, 8, 1}), GW_ERR_OVERFLOW);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 255, 8, 1}), GW_OK);
    for (uint32_t r = 0; r < 255; r++) {
        assert_int_equal(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){lanes, set, 64}, packed, r), GW_OK);
    }
    assert_int_equal(lanes[63], 255);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 65535, 16, 1}), GW_OK);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 65536, 32, 1}), GW_ERR_OPTION);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 0, 8, 1}), GW_ERR_OPTION);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 1, 24, 1}), GW_ERR_OPTION);
    table.granularity = 255;
    table.value[1] = 255;
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 257, 16, 1}), GW_OK);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 258, 16, 1}), GW_ERR_OVERFLOW);
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 32896, 32, 1}),
                     GW_OK); /* 8388480 <= 2^23 */
    assert_int_equal(gw_thc_agg_init(&agg, &(gw_thc_agg_options){table, 32897, 32, 1}), GW_ERR_OVERFLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_integers),
        cmocka_unit_test(test_many_long),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("thc aggregate", tests, NULL, NULL);
}
