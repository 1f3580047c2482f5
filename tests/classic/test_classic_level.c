/*
 * Values of QSGD and TERNGRAD: against the model, bias, splits, backends, error feedback, extreme values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "level_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scalar/kernels_scalar.h"

static const uint32_t level_maxes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127};
static const uint32_t block_lens[] = {0, 64, 128, 192, 512, 4096, 4160, 32768, 32832, 65536, 1u << 30};
static const size_t lens[] = {1,    2,    63,   64,   65,    127,   128,   129,   511,  513,
                              4095, 4096, 4097, 9000, 32767, 32768, 32769, 65536, 70001};

enum {
    LEVEL_MAXES = sizeof level_maxes / sizeof *level_maxes,
    BLOCK_LENS = sizeof block_lens / sizeof *block_lens,
    LENS = sizeof lens / sizeof *lens
};

static gw_classic_options random_options(lt_rng *rng)
{
    const int is_qsgd = lt_below(rng, 3) != 0;
    gw_classic_options o = lt_options(
        is_qsgd ? GW_CLASSIC_QSGD : GW_CLASSIC_TERNGRAD, (gw_classic_coding)lt_below(rng, 3),
        is_qsgd ? level_maxes[lt_below(rng, LEVEL_MAXES)] : 1, block_lens[lt_below(rng, BLOCK_LENS)]);
    o.dtype = (gw_dtype)(GW_FP32 + (int)lt_below(rng, 3));
    o.seed = lt_random(rng);
    o.checksum = (int)lt_below(rng, 2);
    o.error_feedback = (int)lt_below(rng, 2);
    if (is_qsgd) {
        o.norm = (gw_classic_norm)lt_below(rng, 2);
    } else {
        o.clip = lt_below(rng, 3) == 0 ? 0.0f : 0.5f + (float)lt_below(rng, 30) * 0.1f;
    }
    return o;
}

static void assert_same_floats(const float *expected, const float *got, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (lt_bits(expected[i]) != lt_bits(got[i])) {
            fail_msg("value %zu: %a, not %a", i, (double)got[i], (double)expected[i]);
        }
    }
}

/* The payload of packed levels, bit by bit. */
static void check_packed(const lt_frame *frame, const gw_classic_options *o, const lt_model *model,
                         size_t len)
{
    gw_classic_frame_info info;
    assert_int_equal(gw_classic_frame_peek(frame->data, frame->size, &info), GW_OK);
    const uint8_t *payload = frame->data + info.payload_offset;
    const size_t blocks = o->block_len == 0 ? 1 : (len + o->block_len - 1) / o->block_len;
    size_t width = 1;
    while ((1u << width) < 2 * o->level_max + 1) {
        width++;
    }
    for (size_t b = 0; b < blocks; b++) {
        const uint32_t bits = lt_bits(model->norms[b]);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(payload[4 * b + i], bits >> 8 * i & 255);
        }
    }
    payload += 4 * blocks;
    assert_int_equal(info.payload_size, 4 * blocks + (len * width + 31) / 32 * 4);
    for (size_t bit = 0; bit < (info.payload_size - 4 * blocks) * 8; bit++) {
        const uint32_t code =
            bit / width < len ? (uint32_t)(model->levels[bit / width] + (int)o->level_max) : 0;
        assert_int_equal(payload[bit / 8] >> bit % 8 & 1, code >> bit % width & 1);
    }
}

static void check_case(lt_rng *rng, size_t len, unsigned pattern)
{
    const gw_classic_options o = random_options(rng);
    const gw_classic classic = lt_handle(&o);
    gw_classic_step step;
    gw_classic_source source;
    lt_model model;
    memset(&step, 0, sizeof step);
    memset(&source, 0, sizeof source);
    step.len = len;
    step.element_first = lt_random(rng) >> (1 + lt_below(rng, 60));
    step.round = lt_below(rng, 1000);
    step.rank = lt_below(rng, 100);
    uint8_t *values = (uint8_t *)lt_take(4 * len + 1) + 1; /* not aligned */
    float *residual = (float *)lt_take(len * sizeof *residual);
    lt_values(rng, values, o.dtype, len, pattern);
    lt_values(rng, residual, GW_FP32, len, lt_below(rng, 3));
    source.values = values;
    source.residual = o.error_feedback ? residual : NULL;
    if (!lt_model_make(&model, &o, &step, &source)) {
        lt_frame none;
        assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &none), GW_ERR_NONFINITE);
        lt_model_free(&model);
        free(values - 1);
        free(residual);
        return;
    }
    const lt_frame frame = lt_encode(&classic, &step, &source);
    float *decoded = lt_decode(&frame, len);
    assert_same_floats(model.values, decoded, len);
    if (o.error_feedback) {
        assert_same_floats(model.residual, residual, len);
    }
    if (o.coding == GW_CLASSIC_CODING_PACKED) {
        check_packed(&frame, &o, &model, len);
    }
    free(values - 1);
    free(residual);
    free(decoded);
    free(frame.data);
    lt_model_free(&model);
}

static void test_model(void **state)
{
    lt_rng rng = {1};
    (void)state;
    for (unsigned i = 0; i < 12 * LENS; i++) {
        check_case(&rng, lens[i % LENS], i / LENS % LT_PATTERNS);
    }
}

/* Every s, in every coding. */
static void test_every_level(void **state)
{
    enum { LEN = 3000 };
    static float x[LEN];
    lt_rng rng = {2};
    (void)state;
    for (uint32_t s = 1; s <= 127; s++) {
        lt_values(&rng, x, GW_FP32, LEN, 0);
        for (int coding = 0; coding < 3; coding++) {
            gw_classic_options o = lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)coding, s, 1024);
            o.norm = GW_CLASSIC_NORM_MAX;
            const gw_classic classic = lt_handle(&o);
            const gw_classic_step step = {LEN, 5, 0, s, 1};
            const gw_classic_source source = {x, NULL, NULL, NULL};
            lt_model model;
            assert_true(lt_model_make(&model, &o, &step, &source));
            const lt_frame frame = lt_encode(&classic, &step, &source);
            float *decoded = lt_decode(&frame, LEN);
            assert_same_floats(model.values, decoded, LEN);
            free(decoded);
            free(frame.data);
            lt_model_free(&model);
        }
    }
}

/* ---- bias ---------------------------------------------------------------------------------------------- */

/* With all 65536 random numbers the mean level is exactly the position, which is near |x| s / norm. */
static void test_exact_mean(void **state)
{
    lt_rng rng = {3};
    uint16_t random[256];
    float x[256];
    int8_t levels[256];
    (void)state;
    for (unsigned repeat = 0; repeat < 60; repeat++) {
        const uint32_t s = level_maxes[repeat % LEVEL_MAXES];
        const float norm =
            (float)ldexp(1 + lt_below(&rng, 1u << 23) * 0x1p-23, (int)lt_below(&rng, 200) - 100);
        const float value = (float)((double)norm * lt_below(&rng, 1u << 24) * 0x1p-24);
        const gw_level_rule rule = {(float)(s << 16) / norm, s};
        int64_t sum = 0;
        for (uint32_t first = 0; first < 65536; first += 256) {
            for (uint32_t i = 0; i < 256; i++) {
                random[i] = (uint16_t)(first + i);
                x[i] = value;
            }
            gw_level_quantize_scalar(levels, x, random, 256, &rule);
            for (uint32_t i = 0; i < 256; i++) {
                sum += levels[i];
            }
        }
        const double mean = (double)sum / 65536, truth = (double)value * s / (double)norm;
        assert_true(fabs(mean - truth) <= 0x1p-16 * (0.5 + s / 64.0));
    }
}

/* The mean of many rounds is within 5 standard errors: of all values together, signed, so that a bias towards
 * or away from zero adds up; and of each value that is rounded either way often enough for a normal
 * distribution. */
static void check_bias(const gw_classic_options *o, uint32_t rounds)
{
    enum { LEN = 4096 };
    static float x[LEN];
    static double sum[LEN];
    lt_rng rng = {4};
    const gw_classic classic = lt_handle(o);
    const gw_classic_source source = {x, NULL, NULL, NULL};
    const gw_classic_step first = {LEN, 0, 0, 0, 0};
    lt_model model;
    double total = 0, variance = 0;
    size_t checked = 0;
    lt_values(&rng, x, GW_FP32, LEN, 0);
    assert_true(lt_model_make(&model, o, &first, &source));
    memset(sum, 0, sizeof sum);
    for (uint32_t round = 0; round < rounds; round++) {
        const gw_classic_step step = {LEN, 0, 0, round, 0};
        const lt_frame frame = lt_encode(&classic, &step, &source);
        float *decoded = lt_decode(&frame, LEN);
        for (size_t i = 0; i < LEN; i++) {
            sum[i] += (double)decoded[i] - (double)x[i];
        }
        free(decoded);
        free(frame.data);
    }
    for (size_t i = 0; i < LEN; i++) {
        const double unit = (double)model.norms[o->block_len == 0 ? 0 : i / o->block_len] / o->level_max;
        const double level = fabs((double)x[i]) / unit, share = level - floor(level);
        const double own = unit * unit * share * (1 - share) * rounds;
        if (share * rounds > 25 && (1 - share) * rounds > 25) {
            assert_true(fabs(sum[i]) < 5 * sqrt(own));
            checked++;
        }
        total += x[i] < 0 ? -sum[i] : sum[i];
        variance += own;
    }
    assert_true(fabs(total) < 5 * sqrt(variance));
    assert_true(checked > LEN / 10);
    lt_model_free(&model);
}

static void test_bias(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        static const uint32_t s[6] = {1, 1, 4, 4, 16, 127};
        gw_classic_options o =
            lt_options(GW_CLASSIC_QSGD, GW_CLASSIC_CODING_PACKED, s[i], i % 2 == 0 ? 0 : 512);
        o.norm = i == 1 || i == 3 ? GW_CLASSIC_NORM_L2 : GW_CLASSIC_NORM_MAX;
        check_bias(&o, 400);
    }
    gw_classic_options o = lt_options(GW_CLASSIC_TERNGRAD, GW_CLASSIC_CODING_PACKED, 1, 0);
    o.clip = 0;
    check_bias(&o, 400);
}

/* ---- splits and backends ------------------------------------------------------------------------------- */

/* Parts of a tensor, encoded alone, give the values of the whole: random bits are those of elements. */
static void test_splits(void **state)
{
    enum { LEN = 40000, BLOCK = 192 };
    static float x[LEN];
    lt_rng rng = {5};
    (void)state;
    lt_values(&rng, x, GW_FP32, LEN, 0);
    for (unsigned i = 0; i < 4; i++) {
        gw_classic_options o = lt_options(GW_CLASSIC_QSGD, GW_CLASSIC_CODING_MASK, 4, BLOCK);
        const gw_classic classic = lt_handle(&o);
        const uint64_t element = i == 0 ? 0 : lt_random(&rng) >> 20 * (i - 1) >> 1;
        gw_classic_step step = {LEN, element, 0, 7, 3};
        gw_classic_source source = {x, NULL, NULL, NULL};
        const lt_frame frame = lt_encode(&classic, &step, &source);
        float *whole = lt_decode(&frame, LEN);
        for (size_t first = 0; first < LEN;) {
            size_t len = (1 + lt_below(&rng, 60)) * BLOCK;
            len = len < LEN - first ? len : LEN - first;
            step.len = len;
            step.element_first = element + first;
            source.values = x + first;
            const lt_frame part = lt_encode(&classic, &step, &source);
            float *decoded = lt_decode(&part, len);
            assert_same_floats(whole + first, decoded, len);
            free(decoded);
            free(part.data);
            first += len;
        }
        free(whole);
        free(frame.data);
    }
}

static void test_backends(void **state)
{
    enum { LEN = 40001 };
    static float x[LEN], residual[2][LEN];
    lt_rng rng = {6};
    (void)state;
    for (unsigned i = 0; i < 24; i++) {
        gw_classic_options o = random_options(&rng);
        lt_frame expected = {NULL, 0};
        lt_values(&rng, x, GW_FP32, LEN, i % LT_PATTERNS);
        o.dtype = GW_FP32;
        for (uint32_t bit = 0; bit < 5; bit++) {
            const gw_classic_step step = {LEN, 1000 * i, 0, i, 2};
            const gw_classic_source source = {x, o.error_feedback ? residual[bit != 0] : NULL, NULL, NULL};
            o.backends = bit == 4 ? GW_BACKEND_ALL : 1u << bit;
            memset(residual[bit != 0], 0, sizeof residual[0]);
            const gw_classic classic = lt_handle(&o);
            lt_frame frame = lt_encode(&classic, &step, &source);
            if (bit == 0) {
                expected = frame;
                continue;
            }
            assert_int_equal(frame.size, expected.size);
            assert_memory_equal(frame.data, expected.data, frame.size);
            assert_memory_equal(residual[0], residual[1], sizeof residual[0]);
            free(frame.data);
        }
        free(expected.data);
    }
}

/* ---- error feedback ------------------------------------------------------------------------------------ */

/* What was sent and what is left are what came in, but for one rounding of fp32 a round. */
static void test_error_feedback(void **state)
{
    enum { LEN = 5000, ROUNDS = 40 };
    static float x[LEN], residual[LEN];
    static double in[LEN], sent[LEN];
    lt_rng rng = {7};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        gw_classic_options o =
            lt_options(i == 0 ? GW_CLASSIC_TERNGRAD : GW_CLASSIC_QSGD, GW_CLASSIC_CODING_MASK,
                       i == 0   ? 1
                       : i == 1 ? 4
                                : 127,
                       i == 0 ? 0 : 512);
        o.error_feedback = 1;
        const gw_classic classic = lt_handle(&o);
        double largest = 0;
        memset(residual, 0, sizeof residual);
        memset(in, 0, sizeof in);
        memset(sent, 0, sizeof sent);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const gw_classic_step step = {LEN, 0, 0, round, 0};
            const gw_classic_source source = {x, residual, NULL, NULL};
            lt_values(&rng, x, GW_FP32, LEN, 0);
            const lt_frame frame = lt_encode(&classic, &step, &source);
            float *decoded = lt_decode(&frame, LEN);
            for (size_t k = 0; k < LEN; k++) {
                in[k] += (double)x[k];
                sent[k] += (double)decoded[k];
                largest = fmax(largest, fmax(fabs((double)decoded[k]), fabs((double)residual[k])));
            }
            free(decoded);
            free(frame.data);
        }
        for (size_t k = 0; k < LEN; k++) {
            assert_true(fabs(in[k] - sent[k] - (double)residual[k]) <= 2 * ROUNDS * largest * 0x1p-24);
        }
    }
}

/* ---- extremes ------------------------------------------------------------------------------------------ */

static gw_status encode_two(const gw_classic_options *o, float a, float b, float decoded[2])
{
    float x[2] = {a, b};
    uint16_t half[2] = {(uint16_t)a, (uint16_t)b}; /* bits, for fp16 */
    const gw_classic classic = lt_handle(o);
    const gw_classic_step step = {2, 0, 0, 0, 0};
    const gw_classic_source source = {o->dtype == GW_FP16 ? (const void *)half : x, NULL, NULL, NULL};
    lt_frame frame;
    const gw_status status = lt_try_encode(&classic, &step, &source, 0, &frame);
    if (status == GW_OK) {
        float *values = lt_decode(&frame, 2);
        memcpy(decoded, values, 2 * sizeof *values);
        free(values);
        free(frame.data);
    }
    return status;
}

static void test_extremes(void **state)
{
    gw_classic_options o = lt_options(GW_CLASSIC_QSGD, GW_CLASSIC_CODING_PACKED, 1, 64);
    float y[2];
    (void)state;
    o.norm = GW_CLASSIC_NORM_MAX;
    assert_int_equal(encode_two(&o, 0x1p126f, -0x1.fffffep126f, y), GW_OK);
    assert_true(y[1] == -0x1.fffffep126f);
    assert_int_equal(encode_two(&o, 0x1p127f, 0, y), GW_ERR_NONFINITE);
    assert_int_equal(encode_two(&o, 0, INFINITY, y), GW_ERR_NONFINITE);
    assert_int_equal(encode_two(&o, NAN, 0, y), GW_ERR_NONFINITE);
    assert_int_equal(encode_two(&o, 0x1p-100f, 0, y), GW_OK);
    assert_true(y[0] == 0x1p-100f && y[1] == 0);
    assert_int_equal(encode_two(&o, 0x1.fffffep-101f, 0, y), GW_OK);
    assert_true(y[0] == 0);
    o.norm = GW_CLASSIC_NORM_L2; /* of values whose squares are beyond fp32 */
    assert_int_equal(encode_two(&o, 0x1p126f, 0x1p126f, y), GW_OK);
    assert_int_equal(encode_two(&o, 0x1.8p126f, 0x1.8p126f, y), GW_ERR_NONFINITE);
    assert_int_equal(encode_two(&o, 0x1p-99f, 0, y), GW_OK);
    assert_true(y[0] == 0x1p-99f);
    o.dtype = GW_FP16;
    assert_int_equal(encode_two(&o, (float)0x7bff, 0, y), GW_OK); /* 65504 */
    assert_true(y[0] == 65504.0f);
    assert_int_equal(encode_two(&o, (float)0x7bff, (float)0x7bff, y), GW_ERR_NONFINITE);
    /* Equal values have no deviation to clip at. */
    o = lt_options(GW_CLASSIC_TERNGRAD, GW_CLASSIC_CODING_PACKED, 1, 0);
    assert_int_equal(encode_two(&o, 0.1f, 0.1f, y), GW_OK);
    assert_true(y[0] == 0.1f && y[1] == 0.1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),      cmocka_unit_test(test_every_level),
        cmocka_unit_test(test_exact_mean), cmocka_unit_test(test_bias),
        cmocka_unit_test(test_splits),     cmocka_unit_test(test_backends),
        cmocka_unit_test(test_extremes),   cmocka_unit_test(test_error_feedback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
