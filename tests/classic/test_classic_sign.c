/*
 * SIGNSGD, EFSIGNSGD, SIGNUM and ONEBIT against a model in double: payload, decoded values, state; every
 * dtype, odd lengths, misaligned memory, all backends; failures that change nothing.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classic_testing.h"
#include "core/bytes.h"

static const size_t lengths[] = {1, 2, 7, 8, 9, 63, 64, 65, 127, 1000, 4095, 4096, 4097, 12345};

enum { LENGTHS = sizeof lengths / sizeof lengths[0], LEN_MAX = 12345, STEPS = 3 };

/* ---- model ----------------------------------------------------------------------------------------------
 */

static double flushed(double x)
{
    return fabs(x) < 0x1p-126 ? 0.0 : x;
}

/* To fp32, small numbers to +0. */
static double narrow(double x)
{
    return flushed(x) == 0.0 ? 0.0 : (double)(float)x;
}

typedef struct model {
    gw_classic_scheme scheme;
    int feedback;
    float momentum;
    size_t column_len;
    size_t len;
    double state[LEN_MAX]; /* residual or momentum */
    /* results of a step */
    double p[LEN_MAX];
    double decoded[LEN_MAX];
} model;

/* Sum of the values of one sign in [first, end), piece by piece as docs/numerics-classic.md says. */
static double sum_of(const double *p, size_t first, size_t end, int negative)
{
    double total = 0.0;
    for (size_t at = first; at < end;) {
        const size_t next = (at / 4096 + 1) * 4096, stop = next < end ? next : end;
        double lanes[16] = {0.0};
        for (size_t i = at; i < stop; i++) {
            lanes[(i - at) % 16] += (p[i] < 0) == negative ? p[i] : 0.0;
        }
        for (size_t h = 8; h > 0; h /= 2) {
            for (size_t j = 0; j < h; j++) {
                lanes[j] += lanes[j + h];
            }
        }
        total += lanes[0];
        at = stop;
    }
    return total;
}

static void model_column(model *m, size_t first, size_t end)
{
    double minus = -1.0, plus = 1.0;
    size_t count = 0;
    for (size_t i = first; i < end; i++) {
        count += m->p[i] < 0;
    }
    const double negative = sum_of(m->p, first, end, 1), positive = sum_of(m->p, first, end, 0);
    if (m->scheme == GW_CLASSIC_EFSIGNSGD) {
        plus = narrow((positive - negative) / (double)(end - first));
        minus = -plus;
    } else if (m->scheme == GW_CLASSIC_ONEBIT) {
        plus = count == end - first ? 0.0 : narrow(positive / (double)(end - first - count));
        minus = count == 0 ? 0.0 : narrow(negative / (double)count);
    }
    for (size_t i = first; i < end; i++) {
        m->decoded[i] = m->p[i] < 0 ? minus : plus;
    }
}

static void model_step(model *m, const double *x)
{
    for (size_t i = 0; i < m->len; i++) {
        const double value = flushed(x[i]);
        m->p[i] = value;
        if (m->scheme == GW_CLASSIC_SIGNUM) {
            const float rest = 1.0f - m->momentum;
            m->p[i] = narrow((double)m->momentum * m->state[i] + (double)rest * value);
            m->state[i] = m->p[i];
        } else if (m->feedback) {
            m->p[i] = flushed((double)((float)value + (float)m->state[i]));
        }
    }
    for (size_t first = 0; first < m->len; first += m->column_len) {
        model_column(m, first, first + m->column_len < m->len ? first + m->column_len : m->len);
    }
    for (size_t i = 0; m->feedback && i < m->len; i++) {
        m->state[i] = flushed((double)((float)m->p[i] - (float)m->decoded[i]));
    }
}

/* ---- cases ----------------------------------------------------------------------------------------------
 */

typedef struct setup {
    gw_classic_scheme scheme;
    gw_dtype dtype;
    int feedback;
    uint32_t block_len;
    uint32_t backends;
} setup;

static setup current;

static void with_setup(gw_classic_options *o)
{
    o->dtype = current.dtype;
    o->error_feedback = current.feedback;
    o->block_len = current.block_len;
    o->backends = current.backends;
    o->checksum = 1;
}

static uint16_t to_half(float x, gw_dtype dtype)
{
    const uint32_t bits = ct_bits(x);
    if (dtype == GW_BF16) {
        return (uint16_t)(bits >> 16);
    }
    const int32_t e = (int32_t)(bits >> 23 & 255) - 112;
    const uint32_t sign = bits >> 16 & 0x8000;
    return (uint16_t)(e <= 0   ? sign | (bits >> 13 & 1023)
                      : e > 30 ? sign | 0x7bff
                               : sign | (uint32_t)e << 10 | (bits >> 13 & 1023));
}

static double half_number(uint32_t half, gw_dtype dtype)
{
    if (dtype == GW_BF16) {
        return (double)ct_float(half << 16);
    }
    const uint32_t e = half >> 10 & 31, f = half & 1023;
    const double magnitude = e == 0 ? ldexp((double)f, -24) : ldexp((double)(f + 1024), (int)e - 25);
    return half >> 15 != 0 ? -magnitude : magnitude;
}

/* Values in the dtype, and as numbers. */
static void make_values(ct_rng *rng, uint8_t *dst, double *numbers, size_t len)
{
    static float x[LEN_MAX];
    ct_fill(rng, x, len, 1);
    for (size_t i = 0; i < len; i++) {
        if (current.dtype == GW_FP32) {
            gw_store32(dst + 4 * i, ct_bits(x[i]));
            numbers[i] = (double)x[i];
        } else {
            const uint16_t half = to_half(x[i], current.dtype);
            gw_store16(dst + 2 * i, half);
            numbers[i] = half_number(half, current.dtype);
        }
    }
}

static void check_frame(const model *m, const gw_buffer *frame)
{
    gw_classic_frame_info info;
    assert_int_equal(ct_check(frame->data, frame->size, m->len), GW_OK);
    assert_int_equal(gw_classic_frame_peek(frame->data, frame->size, &info), GW_OK);
    const uint8_t *bits = (const uint8_t *)frame->data + 80 + info.payload_size - (m->len + 7) / 8;
    for (size_t i = 0; i < m->len; i++) {
        assert_int_equal(bits[i / 8] >> i % 8 & 1, m->p[i] < 0);
    }
    void *decoded = ct_decode(frame, current.backends, 0.0f, m->len, NULL);
    for (size_t i = 0; i < m->len && current.dtype == GW_FP32; i++) {
        assert_int_equal(ct_bits(((float *)decoded)[i]), ct_bits((float)m->decoded[i]));
    }
    free(decoded);
}

static void check_sum(const model *m, const gw_buffer *frame, ct_rng *rng)
{
    static float before[LEN_MAX];
    float *sum = ct_take(4 * m->len);
    gw_workspace workspace = ct_frame_workspace(frame->data, frame->size);
    const gw_classic_frame received = {frame->data, frame->size, m->len, current.backends};
    gw_classic_target target = {sum, m->len, 0, -0.75f};
    ct_fill(rng, before, m->len, 1);
    memcpy(sum, before, 4 * m->len);
    assert_int_equal(gw_classic_decode_add(&received, &target, &workspace), GW_OK);
    for (size_t i = 0; i < m->len; i++) {
        const float value = (float)narrow(m->decoded[i] * -0.75);
        const double expected = flushed((double)((float)flushed((double)before[i]) + value));
        assert_int_equal(ct_bits(sum[i]), ct_bits((float)expected));
    }
    ct_free_workspace(&workspace);
    free(sum);
}

static void run_case(size_t len)
{
    static model m;
    static double numbers[LEN_MAX];
    ct_rng rng = {len * 31 + current.scheme + current.block_len};
    memset(&m, 0, sizeof m);
    const gw_classic classic = ct_make(current.scheme, with_setup);
    const gw_classic_step step = ct_step(len);
    const size_t size = gw_dtype_size(current.dtype);
    uint8_t *values = ct_take(size * len + 1);
    float *state = ct_take(4 * len);
    memset(state, 0, 4 * len);
    const uint32_t arrays = gw_classic_state_arrays(&classic);
    m.scheme = current.scheme;
    m.feedback = (arrays & GW_CLASSIC_RESIDUAL) != 0;
    m.momentum = 0.9f;
    m.len = len;
    m.column_len = current.block_len == 0 ? len : current.block_len;
    const gw_classic_source source = {values + 1, m.feedback ? state : NULL,
                                      (arrays & GW_CLASSIC_MOMENTUM) != 0 ? state : NULL, NULL};
    for (int i = 0; i < STEPS; i++) {
        gw_buffer frame;
        make_values(&rng, values + 1, numbers, len);
        model_step(&m, numbers);
        assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
        assert_int_equal(frame.size, frame.capacity);
        check_frame(&m, &frame);
        check_sum(&m, &frame, &rng);
        for (size_t j = 0; j < len && arrays != 0; j++) {
            assert_int_equal(ct_bits(state[j]), ct_bits((float)m.state[j]));
        }
        free(frame.data);
    }
    free(state);
    free(values);
}

static void run_lengths(const setup *s)
{
    current = *s;
    for (size_t i = 0; i < LENGTHS; i++) {
        for (const uint32_t *backends = ct_backends; *backends != 0; backends++) {
            current.backends = *backends;
            if (*backends == GW_BACKEND_ALL || i % 3 == 0 || lengths[i] < 100) {
                run_case(lengths[i]);
            }
        }
    }
}

static void schemes_follow_the_model(void **state)
{
    (void)state;
    static const setup setups[] = {
        {GW_CLASSIC_SIGNSGD, GW_FP32, 0, 0, 0},   {GW_CLASSIC_SIGNSGD, GW_BF16, 0, 0, 0},
        {GW_CLASSIC_SIGNSGD, GW_FP16, 0, 0, 0},   {GW_CLASSIC_SIGNSGD, GW_FP32, 1, 0, 0},
        {GW_CLASSIC_SIGNSGD, GW_FP16, 1, 0, 0},   {GW_CLASSIC_EFSIGNSGD, GW_FP32, 1, 0, 0},
        {GW_CLASSIC_EFSIGNSGD, GW_BF16, 1, 0, 0}, {GW_CLASSIC_SIGNUM, GW_FP32, 0, 0, 0},
        {GW_CLASSIC_SIGNUM, GW_FP16, 0, 0, 0},    {GW_CLASSIC_ONEBIT, GW_FP32, 1, 0, 0},
        {GW_CLASSIC_ONEBIT, GW_FP32, 1, 1, 0},    {GW_CLASSIC_ONEBIT, GW_FP32, 1, 37, 0},
        {GW_CLASSIC_ONEBIT, GW_BF16, 1, 64, 0},   {GW_CLASSIC_ONEBIT, GW_FP32, 1, 5000, 0},
    };
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        run_lengths(&setups[i]);
    }
}

/* What was sent plus the residual is the sum of the inputs, to fp32 rounding. */
static void error_feedback_loses_nothing(void **state)
{
    (void)state;
    enum { LEN = 3000, ROUNDS = 50 };
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_SIGNSGD, GW_CLASSIC_EFSIGNSGD, GW_CLASSIC_ONEBIT};
    static float x[LEN], residual[LEN];
    static double in[LEN], sent[LEN], largest[LEN];
    for (size_t s = 0; s < 3; s++) {
        ct_rng rng = {s};
        current = (setup){schemes[s], GW_FP32, 1, schemes[s] == GW_CLASSIC_ONEBIT ? 100 : 0, GW_BACKEND_ALL};
        const gw_classic classic = ct_make(schemes[s], with_setup);
        const gw_classic_step step = ct_step(LEN);
        const gw_classic_source source = {x, residual, NULL, NULL};
        memset(residual, 0, sizeof residual);
        memset(in, 0, sizeof in);
        memset(sent, 0, sizeof sent);
        memset(largest, 0, sizeof largest);
        for (int r = 0; r < ROUNDS; r++) {
            gw_buffer frame;
            ct_fill(&rng, x, LEN, 0);
            assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
            float *decoded = ct_decode(&frame, GW_BACKEND_ALL, 0.0f, LEN, NULL);
            for (size_t i = 0; i < LEN; i++) {
                in[i] += (double)x[i];
                sent[i] += (double)decoded[i];
                const double p = fabs((double)residual[i]) + fabs((double)decoded[i]) + fabs((double)x[i]);
                largest[i] = p > largest[i] ? p : largest[i];
            }
            free(decoded);
            free(frame.data);
        }
        for (size_t i = 0; i < LEN; i++) { /* two roundings a step, each at most half a unit of 2^-23 */
            assert_true(fabs(sent[i] + (double)residual[i] - in[i]) <= ROUNDS * 0x1p-23 * 2 * largest[i]);
        }
    }
}

/* NaN, infinity and sums that overflow, at every place where blocks and registers begin: state is untouched.
 */
static void failures_change_nothing(void **state)
{
    (void)state;
    enum { LEN = 8200 };
    static const gw_classic_scheme schemes[] = {GW_CLASSIC_SIGNSGD, GW_CLASSIC_EFSIGNSGD, GW_CLASSIC_SIGNUM,
                                                GW_CLASSIC_ONEBIT};
    static const size_t places[] = {0, 1, 15, 16, 63, 64, 4095, 4096, 8191, 8192, 8199};
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f7fffff};
    static float x[LEN], residual[LEN], before[LEN];
    for (size_t s = 0; s < 4; s++) {
        current = (setup){schemes[s], GW_FP32, schemes[s] != GW_CLASSIC_SIGNUM, 0, GW_BACKEND_ALL};
        const gw_classic classic = ct_make(schemes[s], with_setup);
        const int has_residual = (gw_classic_state_arrays(&classic) & GW_CLASSIC_RESIDUAL) != 0;
        const gw_classic_step step = ct_step(LEN);
        const gw_classic_source source = {x, has_residual ? residual : NULL, has_residual ? NULL : residual,
                                          NULL};
        ct_rng rng = {s};
        ct_fill(&rng, x, LEN, 0);
        for (size_t i = 0; i < LEN; i++) {
            before[i] = ct_float(has_residual ? 0x7f7fffff : 0x3f800000);
            x[i] = -x[i] * x[i];
        }
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            for (size_t b = 0; b < sizeof bad / sizeof bad[0] - (has_residual ? 0 : 1); b++) {
                gw_buffer frame;
                const float old = x[places[p]];
                x[places[p]] = ct_float(bad[b]);
                memcpy(residual, before, sizeof before);
                assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_ERR_NONFINITE);
                assert_memory_equal(residual, before, sizeof before);
                free(frame.data);
                x[places[p]] = old;
            }
        }
        residual[3] = (float)NAN; /* state of the caller's that is bad */
        gw_buffer frame;
        assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_ERR_NONFINITE);
        free(frame.data);
    }
    current = (setup){GW_CLASSIC_SIGNSGD, GW_FP16, 0, 0, GW_BACKEND_ALL};
    const gw_classic classic = ct_make(GW_CLASSIC_SIGNSGD, with_setup);
    const gw_classic_step step = ct_step(LEN);
    uint8_t halves[2 * LEN] = {0};
    const gw_classic_source source = {.values = halves};
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        gw_buffer frame;
        gw_store16(halves + 2 * places[p], 0xfc00);
        assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_ERR_NONFINITE);
        gw_store16(halves + 2 * places[p], 0xfbff);
        free(frame.data);
        assert_int_equal(ct_encode(&classic, &step, &source, &frame), GW_OK);
        free(frame.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemes_follow_the_model),
        cmocka_unit_test(error_feedback_loses_nothing),
        cmocka_unit_test(failures_change_nothing),
    };
    return cmocka_run_group_tests_name("classic signs", tests, NULL, NULL);
}
