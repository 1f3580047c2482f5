/*
 * Names, options, handles, sizes, and the arguments of every call.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classic_testing.h"

enum { SCHEMES = 11 };

static void names_go_both_ways(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= SCHEMES; i++) {
        const char *name = gw_classic_scheme_name((gw_classic_scheme)i);
        assert_non_null(name);
        assert_int_equal(gw_classic_scheme_from_name(name), i);
    }
    assert_null(gw_classic_scheme_name((gw_classic_scheme)0));
    assert_null(gw_classic_scheme_name((gw_classic_scheme)(SCHEMES + 1)));
    assert_int_equal(gw_classic_scheme_from_name(NULL), 0);
    assert_int_equal(gw_classic_scheme_from_name(""), 0);
    assert_int_equal(gw_classic_scheme_from_name("sign"), 0);
    assert_int_equal(gw_classic_scheme_from_name("signsgd2"), 0);
}

static void usual_options_are_good(void **state)
{
    (void)state;
    gw_classic_options options;
    gw_classic classic;
    for (unsigned i = 1; i <= SCHEMES; i++) {
        assert_int_equal(gw_classic_options_init(&options, (gw_classic_scheme)i), GW_OK);
        assert_int_equal(options.scheme, i);
        assert_int_equal(gw_classic_init(&classic, &options), GW_OK);
        assert_memory_equal(gw_classic_options_of(&classic), &options, sizeof options);
        const gw_classic copy = classic;
        assert_int_equal(gw_classic_state_arrays(&copy), gw_classic_state_arrays(&classic));
    }
    memset(&options, 7, sizeof options);
    assert_int_equal(gw_classic_options_init(&options, (gw_classic_scheme)12), GW_ERR_OPTION);
    assert_int_equal(options.checksum, 0x07070707);
    assert_int_equal(gw_classic_options_init(NULL, GW_CLASSIC_FP16), GW_ERR_ARG);
}

/* The byte of a scheme's row says whether the change is allowed. */
typedef struct change {
    void (*apply)(gw_classic_options *o);
    const char *allowed; /* a digit for each scheme from FP16 on */
} change;

#define CHANGE(name, statement)                                                                              \
    static void name(gw_classic_options *o)                                                                  \
    {                                                                                                        \
        statement;                                                                                           \
    }
CHANGE(flip_feedback, o->error_feedback = !o->error_feedback; o->unbiased = 0)
CHANGE(feedback_2, o->error_feedback = 2)
CHANGE(flip_checksum, o->checksum = 1)
CHANGE(checksum_2, o->checksum = 2)
CHANGE(dtype_fp16, o->dtype = GW_FP16)
CHANGE(dtype_4, o->dtype = (gw_dtype)4)
CHANGE(momentum_half, o->momentum = 0.5f)
CHANGE(momentum_1, o->momentum = 1.0f)
CHANGE(momentum_negative, o->momentum = -0.5f)
CHANGE(momentum_nan, o->momentum = (float)NAN)
CHANGE(nesterov_1, o->nesterov = 1)
CHANGE(flip_mask, o->momentum_mask = !o->momentum_mask)
CHANGE(clip_4, o->clip = 4.0f)
CHANGE(clip_infinite, o->clip = (float)INFINITY)
CHANGE(flip_unbiased, o->unbiased = !o->unbiased)
CHANGE(unbiased_with_feedback, o->unbiased = 1; o->error_feedback = 1)
CHANGE(values_fp16, o->values = GW_CLASSIC_VALUES_FP16)
CHANGE(values_3, o->values = (gw_classic_values)3)
CHANGE(coding_elias, o->coding = GW_CLASSIC_CODING_ELIAS)
CHANGE(coding_3, o->coding = (gw_classic_coding)3)
CHANGE(flip_norm, o->norm = o->norm == GW_CLASSIC_NORM_L2 ? GW_CLASSIC_NORM_MAX : GW_CLASSIC_NORM_L2)
CHANGE(norm_2, o->norm = (gw_classic_norm)2)
CHANGE(levels_127, o->level_max = 127)
CHANGE(levels_128, o->level_max = 128)
CHANGE(block_128, o->block_len = 128)
CHANGE(block_100, o->block_len = 100)
CHANGE(block_huge, o->block_len = (1u << 30) + 64)
CHANGE(seed, o->seed = 77)
CHANGE(backends_0, o->backends = 0)

static const change changes[] = {
    {flip_feedback, "00101100011"},
    {feedback_2, "00000000000"},
    {flip_checksum, "11111111111"},
    {checksum_2, "00000000000"},
    {dtype_fp16, "11111111111"},
    {dtype_4, "00000000000"},
    {momentum_half, "00010001000"},
    {momentum_1, "00000000000"},
    {momentum_negative, "00000000000"},
    {momentum_nan, "00000000000"},
    {nesterov_1, "00010000000"},
    {flip_mask, "00010000000"},
    {clip_4, "00010000001"},
    {clip_infinite, "00000000000"},
    {flip_unbiased, "00001000000"},
    {unbiased_with_feedback, "00000000000"},
    {values_fp16, "00111000000"},
    {values_3, "00000000000"},
    {coding_elias, "00000000011"},
    {coding_3, "00000000000"},
    {flip_norm, "00000000010"},
    {norm_2, "00000000000"},
    {levels_127, "00000000010"},
    {levels_128, "00000000000"},
    {block_128, "00000000111"},
    {block_100, "00000000100"},
    {block_huge, "00000000000"},
    {seed, "11111111111"},
    {backends_0, "11111111111"},
};

static void every_field_is_checked(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
        for (unsigned i = 1; i <= SCHEMES; i++) {
            gw_classic_options options;
            gw_classic classic;
            assert_int_equal(gw_classic_options_init(&options, (gw_classic_scheme)i), GW_OK);
            changes[c].apply(&options);
            const gw_status status = gw_classic_init(&classic, &options);
            if ((status == GW_OK) != (changes[c].allowed[i - 1] == '1')) {
                fail_msg("change %zu of %s: %s", c, gw_classic_scheme_name((gw_classic_scheme)i),
                         gw_status_name(status));
            }
            if (status != GW_OK) {
                assert_int_equal(status, GW_ERR_OPTION);
                assert_null(gw_classic_options_of(&classic));
            }
        }
    }
}

static void state_arrays(void **state)
{
    (void)state;
    static const uint32_t arrays[SCHEMES] = {0, 0, 1, 3, 0, 0, 1, 2, 1, 0, 0};
    for (unsigned i = 0; i < SCHEMES; i++) {
        const gw_classic classic = ct_make((gw_classic_scheme)(i + 1), NULL);
        assert_int_equal(gw_classic_state_arrays(&classic), arrays[i]);
    }
    assert_int_equal(gw_classic_state_arrays(NULL), 0);
}

static void keep_len_rounds_up(void **state)
{
    (void)state;
    assert_int_equal(gw_classic_keep_len(1000, 0.01), 10);
    assert_int_equal(gw_classic_keep_len(1001, 0.01), 11);
    assert_int_equal(gw_classic_keep_len(1, 1e-9), 1);
    assert_int_equal(gw_classic_keep_len(0, 0.5), 0);
    assert_int_equal(gw_classic_keep_len(5, 1.0), 5);
    assert_int_equal(gw_classic_keep_len(5, 0.99999), 5);
    assert_int_equal(gw_classic_keep_len(5, 1.5), 0);
    assert_int_equal(gw_classic_keep_len(5, 0.0), 0);
    assert_int_equal(gw_classic_keep_len(5, -0.1), 0);
    assert_int_equal(gw_classic_keep_len(5, (double)NAN), 0);
    assert_int_equal(gw_classic_keep_len(UINT64_MAX, 1.0), UINT64_MAX);
}

static void warmup_falls_by_equal_factors(void **state)
{
    (void)state;
    /* 0.001 over 4 steps: the paper's 25 %, 6.25 %, ... are those of 4 epochs to 0.1 % but for rounding. */
    for (uint64_t i = 0; i < 4; i++) {
        const double ratio = gw_classic_warmup_ratio(0.001, i, 4), expected = pow(0.001, ((double)i + 1) / 5);
        assert_true(fabs(ratio - expected) <= 1e-14 * expected);
    }
    assert_true(gw_classic_warmup_ratio(0.001, 4, 4) == 0.001);
    assert_true(gw_classic_warmup_ratio(0.001, UINT64_MAX, 4) == 0.001);
    assert_true(gw_classic_warmup_ratio(0.25, 0, 0) == 0.25);
    for (uint64_t i = 1; i < 1000; i++) {
        const double before = gw_classic_warmup_ratio(1e-4, i - 1, 1000),
                     now = gw_classic_warmup_ratio(1e-4, i, 1000);
        assert_true(now < before && now > 1e-4 && before < 1.0);
        assert_true(fabs(now - pow(1e-4, ((double)i + 1) / 1001)) <= 1e-13 * now);
    }
    assert_true(gw_classic_warmup_ratio(1.0, 3, 10) == 1.0);
    /* The most steps: the last one of them counts as the end. */
    assert_true(gw_classic_warmup_ratio(0.25, UINT64_MAX - 1, UINT64_MAX) == 0.25);
    assert_true(fabs(gw_classic_warmup_ratio(0.25, UINT64_MAX / 2, UINT64_MAX) - 0.5) <= 1e-14);
    assert_true(gw_classic_warmup_ratio(0x1p-1074, 3, 10) > 0.0);
    assert_true(gw_classic_warmup_ratio(0.0, 0, 4) == 0.0);
    assert_true(gw_classic_warmup_ratio(2.0, 0, 4) == 0.0);
    assert_true(gw_classic_warmup_ratio((double)NAN, 9, 4) == 0.0);
}

static void change_blocks(gw_classic_options *options)
{
    options->block_len = 512;
}

/* Any number that a caller may pass, also where no step has that length. */
static void block_count_rounds_up(void **state)
{
    (void)state;
    const gw_classic qsgd = ct_make(GW_CLASSIC_QSGD, change_blocks),
                     onebit = ct_make(GW_CLASSIC_ONEBIT, NULL);
    assert_true(gw_classic_block_count(&qsgd, 1) == 1);
    assert_true(gw_classic_block_count(&qsgd, 512) == 1);
    assert_true(gw_classic_block_count(&qsgd, 513) == 2);
    assert_true(gw_classic_block_count(&qsgd, (uint64_t)1 << 32) == (uint64_t)1 << 23);
    assert_true(gw_classic_block_count(&qsgd, UINT64_MAX) == (uint64_t)1 << 55);
    assert_true(gw_classic_block_count(&onebit, UINT64_MAX) == 1);
    assert_true(gw_classic_block_count(NULL, 1) == 0);
}

/* ---- arguments of encode --------------------------------------------------------------------------------
 */

enum { LEN = 100 };

typedef struct call {
    gw_classic classic;
    gw_classic_step step;
    gw_classic_source source;
    gw_buffer dst;
    gw_workspace workspace;
    float values[LEN], residual[LEN];
} call;

static call make_call(gw_classic_scheme scheme)
{
    call c;
    memset(&c, 0, sizeof c);
    c.classic = ct_make(scheme, NULL);
    c.step = ct_step(LEN);
    c.dst.capacity = gw_classic_frame_bound(&c.classic, &c.step);
    c.workspace.size = gw_classic_workspace_size(&c.classic, &c.step);
    return c;
}

static gw_status run(call *c)
{
    uint8_t *dst = ct_take(c->dst.capacity), *workspace = ct_take(c->workspace.size);
    c->source.values = c->values;
    c->source.residual = c->residual;
    c->dst.data = dst;
    c->dst.size = 5;
    c->workspace.data = workspace;
    const gw_status status = gw_classic_encode(&c->classic, &c->step, &c->source, &c->dst, &c->workspace);
    assert_true((c->dst.size == 0) == (status != GW_OK));
    free(dst);
    free(workspace);
    return status;
}

static void encode_checks_arguments(void **state)
{
    (void)state;
    call c = make_call(GW_CLASSIC_EFSIGNSGD);
    assert_int_equal(run(&c), GW_OK);
    c.workspace.size--;
    assert_int_equal(run(&c), GW_ERR_WORKSPACE);
    c.workspace.size++;
    c.dst.capacity -= 16;
    assert_int_equal(run(&c), GW_ERR_DST);
    c.dst.capacity = 79;
    assert_int_equal(run(&c), GW_ERR_DST);
    c.dst.capacity = 0;
    assert_int_equal(run(&c), GW_ERR_DST);
    c.dst.capacity = 4096;
    c.step.element_first = UINT64_MAX - LEN + 1;
    assert_int_equal(run(&c), GW_ERR_ARG);
    c.step.element_first--;
    assert_int_equal(run(&c), GW_OK);
    c.step.len = ((uint64_t)1 << 32) + 1;
    assert_int_equal(run(&c), GW_ERR_ARG);
    assert_int_equal(gw_classic_workspace_size(&c.classic, &c.step), 0);
    assert_int_equal(gw_classic_frame_bound(&c.classic, &c.step), 0);
    c.step.len = LEN;
    memset(&c.classic, 0, sizeof c.classic);
    assert_int_equal(run(&c), GW_ERR_STATE);

    gw_classic classic = ct_make(GW_CLASSIC_SIGNSGD, NULL);
    c = make_call(GW_CLASSIC_SIGNSGD);
    assert_int_equal(run(&c), GW_ERR_ARG); /* a residual that the scheme does not have */
    gw_buffer dst = {c.values, 4, 9};
    const gw_classic_source source = {.values = c.values};
    assert_int_equal(gw_classic_encode(NULL, &c.step, &source, &dst, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_encode(&classic, NULL, &source, &dst, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_encode(&classic, &c.step, NULL, &dst, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_encode(&classic, &c.step, &source, NULL, NULL), GW_ERR_ARG);
    dst.data = NULL;
    assert_int_equal(gw_classic_encode(&classic, &c.step, &source, &dst, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_norms(&classic, &c.step, &source, c.values, NULL), GW_ERR_OPTION);
    assert_int_equal(gw_classic_init(NULL, NULL), GW_ERR_ARG);
    assert_int_equal(gw_classic_init(&classic, NULL), GW_ERR_ARG);
    assert_null(gw_classic_options_of(&classic));
}

static void empty_tensors_have_frames(void **state)
{
    (void)state;
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_FP16, GW_CLASSIC_EFSIGNSGD, GW_CLASSIC_ONEBIT,
                                                GW_CLASSIC_SIGNUM};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        const gw_classic classic = ct_make(schemes[i], NULL);
        const gw_classic_step step = {0, 0, 0, 0, 0};
        const gw_classic_source source = {0};
        uint8_t bytes[80];
        gw_buffer dst = {bytes, sizeof bytes, 0};
        assert_int_equal(gw_classic_block_count(&classic, 0), 0);
        assert_int_equal(gw_classic_workspace_size(&classic, &step), 0);
        assert_int_equal(gw_classic_frame_bound(&classic, &step), 80);
        assert_int_equal(gw_classic_encode(&classic, &step, &source, &dst, NULL), GW_OK);
        assert_int_equal(dst.size, 80);
        assert_int_equal(ct_check(bytes, 80, 0), GW_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_go_both_ways),        cmocka_unit_test(usual_options_are_good),
        cmocka_unit_test(every_field_is_checked),    cmocka_unit_test(state_arrays),
        cmocka_unit_test(keep_len_rounds_up),        cmocka_unit_test(warmup_falls_by_equal_factors),
        cmocka_unit_test(block_count_rounds_up),     cmocka_unit_test(encode_checks_arguments),
        cmocka_unit_test(empty_tensors_have_frames),
    };
    return cmocka_run_group_tests_name("classic options", tests, NULL, NULL);
}
