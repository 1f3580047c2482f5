/*
 * TOPK and DGC against models that sort, every dtype and backend; error feedback over several steps; the
 * ratio of the warm-up against libm.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sparse_testing.h"

static const gw_dtype dtypes[3] = {GW_FP32, GW_BF16, GW_FP16};

static gw_classic_options options_of(gw_classic_scheme scheme)
{
    gw_classic_options options;
    assert_int_equal(gw_classic_options_init(&options, scheme), GW_OK);
    return options;
}

/* What a value becomes on its way. */
static float sent_value(float x, gw_classic_values format)
{
    if (format == GW_CLASSIC_VALUES_FP32) {
        return x;
    }
    const uint32_t half = sparse_to_dtype(x, GW_FP16);
    const uint32_t bits = (half & 0x7fffu) > 0x7bffu ? (half & 0x8000u) | 0x7bffu : half;
    const uint8_t bytes[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
    return sparse_element(bytes, GW_FP16, 0);
}

/* ---- exact Top-k --------------------------------------------------------------------------------------- */

static void check_topk(const void *values, gw_dtype dtype, size_t len, size_t keep_len,
                       gw_classic_values format)
{
    gw_classic_options options = options_of(GW_CLASSIC_TOPK);
    const gw_classic_step step = {len, 3, keep_len, 1, 0};
    const gw_classic_source source = {values, NULL, NULL, NULL};
    float *const x = sparse_take(len * sizeof *x);
    uint8_t *const chosen = sparse_take(len), *const out = sparse_take(len * gw_dtype_size(dtype));
    uint32_t backends[8];
    gw_buffer first = {0};
    options.error_feedback = 0;
    options.dtype = dtype;
    options.values = format;
    for (size_t i = 0; i < len; i++) {
        x[i] = sparse_element(values, dtype, i);
    }
    sparse_model_topk(chosen, x, len, keep_len);
    const unsigned count = sparse_backends(backends);
    for (unsigned b = 0; b < count; b++) {
        gw_buffer frame;
        options.backends = backends[b];
        assert_int_equal(sparse_encode(&options, &step, &source, 0, &frame), GW_OK);
        if (b == 0) {
            first = frame;
        } else {
            assert_int_equal(frame.size, first.size);
            assert_memory_equal(frame.data, first.data, frame.size);
            free(frame.data);
        }
        assert_int_equal(sparse_decode(&first, backends[b], out, len, 0, 1.0f), GW_OK);
        for (size_t i = 0; i < len; i++) {
            const float got = sparse_element(out, dtype, i);
            if (format == GW_CLASSIC_VALUES_GCOMP) {
                assert_true(chosen[i] ? fabsf(got - x[i]) <= ldexpf(fabsf(x[i]), -5) : got == 0.0f);
                continue;
            }
            const float expected = chosen[i] ? sent_value(x[i], format) : 0.0f;
            assert_int_equal(sparse_bits(got), sparse_bits(sparse_flush(expected)));
        }
    }
    free(first.data);
    free(x);
    free(chosen);
    free(out);
}

static void test_topk(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 2, 7, 8, 9, 63, 64, 65, 513, 4095, 4096, 4097, 20000, 70001};
    static const double ratios[] = {0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0};
    sparse_rng rng = {1};
    unsigned turn = 0;
    for (size_t l = 0; l < sizeof lens / sizeof *lens; l++) {
        for (unsigned pattern = 0; pattern < SPARSE_PATTERNS; pattern++) {
            for (unsigned r = 0; r < 7; r++) {
                if (lens[l] > 5000 && (pattern + r) % 3 != 0) {
                    continue;
                }
                const gw_dtype dtype = dtypes[turn % 3];
                const gw_classic_values format = (gw_classic_values)(turn / 3 % 3);
                uint8_t *const values = sparse_take(lens[l] * gw_dtype_size(dtype));
                uint64_t keep_len = gw_classic_keep_len(lens[l], ratios[r]);
                keep_len = keep_len == 0 ? 1 : keep_len;
                sparse_fill(&rng, values, dtype, lens[l], pattern);
                check_topk(values, dtype, lens[l], (size_t)keep_len, format);
                free(values);
                turn++;
            }
        }
    }
}

/* A few large values that the sample does not see, and a sample that sees too many. */
static void test_bound_does_not_matter(void **state)
{
    (void)state;
    enum { LEN = 150000 };
    sparse_rng rng = {2};
    float *const x = sparse_take(LEN * sizeof *x);
    for (unsigned kind = 0; kind < 6; kind++) {
        for (size_t i = 0; i < LEN; i++) {
            const double noise = sparse_normal(&rng);
            x[i] = (float)(kind == 0   ? (i < LEN / 2 ? noise : 1e-3 * noise)
                           : kind == 1 ? (i >= LEN - 300 ? 100.0 + noise : noise)
                           : kind == 2 ? (i % 16384 < 30 ? 10.0 : 0.0)
                           : kind == 3 ? (i % 2 == 0 ? 1.0 : -1.0)
                           : kind == 4 ? (double)(LEN - i)
                                       : (i < 40000   ? 5.0
                                          : i < 60000 ? 7.0
                                                      : 5.0));
        }
        check_topk(x, GW_FP32, LEN, 300, GW_CLASSIC_VALUES_FP32);
        check_topk(x, GW_FP32, LEN, 30000, GW_CLASSIC_VALUES_FP32);
        check_topk(x, GW_FP32, LEN, 74000, GW_CLASSIC_VALUES_FP32);
    }
    free(x);
}

/* ---- error feedback ------------------------------------------------------------------------------------ */

static void run_feedback(gw_dtype dtype, gw_classic_values format, gw_classic_scheme scheme,
                         uint32_t backends, float *residual, size_t len)
{
    enum { STEPS = 12 };
    gw_classic_options options = options_of(scheme);
    const size_t keep_len = len / 20 + 1;
    uint8_t *const values = sparse_take(len * gw_dtype_size(dtype)), *const chosen = sparse_take(len);
    float *const sum = sparse_take(len * sizeof *sum), *const out = sparse_take(len * sizeof *out);
    double *const inputs = sparse_take(len * sizeof *inputs), *const sent = sparse_take(len * sizeof *sent);
    sparse_rng rng = {3};
    options.error_feedback = 1;
    options.unbiased = 0;
    options.values = format;
    options.backends = backends;
    options.dtype = dtype;
    memset(residual, 0, len * sizeof *residual);
    memset(inputs, 0, len * sizeof *inputs);
    memset(sent, 0, len * sizeof *sent);
    for (uint32_t round = 0; round < STEPS; round++) {
        const gw_classic_step step = {len, 0, keep_len, round, 0};
        const gw_classic_source source = {values, residual, NULL, NULL};
        gw_buffer frame;
        sparse_fill(&rng, values, dtype, len, round % 3 == 2 ? 9 : round % 3);
        for (size_t i = 0; i < len; i++) {
            sum[i] = sparse_flush(sparse_element(values, dtype, i) + residual[i]);
            inputs[i] += (double)sparse_element(values, dtype, i);
        }
        assert_int_equal(sparse_encode(&options, &step, &source, 0, &frame), GW_OK);
        memset(out, 0, len * sizeof *out);
        assert_int_equal(sparse_decode(&frame, backends, out, len, 1, 1.0f), GW_OK); /* fp32, not the dtype */
        free(frame.data);
        sparse_model_topk(chosen, sum, len, keep_len);
        for (size_t i = 0; i < len; i++) {
            sent[i] += (double)out[i];
            if (scheme == GW_CLASSIC_TOPK && format != GW_CLASSIC_VALUES_GCOMP) {
                const float expected = chosen[i] ? sent_value(sum[i], format) : 0.0f;
                assert_int_equal(sparse_bits(out[i]), sparse_bits(expected));
            }
            assert_int_equal(sparse_bits(residual[i]), sparse_bits(sparse_flush(sum[i] - out[i])));
        }
    }
    for (size_t i = 0; i < len; i++) { /* every step rounds two sums of at most 12 * 30011 */
        assert_true(fabs(sent[i] + (double)residual[i] - inputs[i]) <= STEPS * 2 * 360132.0 * 0x1p-24);
    }
    free(values);
    free(chosen);
    free(sum);
    free(out);
    free(inputs);
    free(sent);
}

static void test_feedback(void **state)
{
    (void)state;
    enum { LEN = 9001 };
    float *const first = sparse_take(LEN * sizeof *first), *const other = sparse_take(LEN * sizeof *other);
    uint32_t backends[8];
    const unsigned count = sparse_backends(backends);
    for (unsigned d = 0; d < 3; d++) {
        for (unsigned format = 0; format < 3; format++) {
            for (unsigned scheme = 0; scheme < 2; scheme++) {
                const gw_classic_scheme of = scheme == 0 ? GW_CLASSIC_TOPK : GW_CLASSIC_RANDK;
                run_feedback(dtypes[d], (gw_classic_values)format, of, backends[0], first, LEN);
                for (unsigned b = 1; b < count; b++) {
                    run_feedback(dtypes[d], (gw_classic_values)format, of, backends[b], other, LEN);
                    assert_memory_equal(first, other, LEN * sizeof *first);
                }
            }
        }
    }
    free(first);
    free(other);
}

/* ---- DGC ----------------------------------------------------------------------------------------------- */

/* docs/numerics-classic.md, from libm. */
static float model_factor(const float *x, size_t len, float clip)
{
    double sums[16] = {0}, sum = 0;
    int exponent;
    for (size_t i = 0; i < len; i++) {
        sums[i % 16] += (double)x[i] * (double)x[i];
    }
    for (unsigned j = 0; j < 16; j++) {
        sum += sums[j];
    }
    if (clip == 0.0f || sum <= (double)clip * (double)clip) {
        return 1.0f;
    }
    double s = frexp(sum, &exponent); /* [1/2, 1) */
    exponent--;
    const int half = (int)floor(exponent / 2.0);
    s = ldexp(s, exponent + 1 - 2 * half);
    return sparse_narrow((double)clip / ldexp((double)sqrtf((float)s), half));
}

typedef struct dgc_case {
    gw_dtype dtype;
    int nesterov, momentum_mask;
    float clip;
    gw_classic_values format;
} dgc_case;

static void run_dgc(const dgc_case *c, uint32_t backends, size_t len)
{
    gw_classic_options options = options_of(GW_CLASSIC_DGC);
    const size_t keep_len = len / 50 + 1;
    uint8_t *const values = sparse_take(len * gw_dtype_size(c->dtype)), *const chosen = sparse_take(len);
    float *const x = sparse_take(len * sizeof *x), *const out = sparse_take(len * sizeof *out);
    float *const u = sparse_take(len * sizeof *u), *const v = sparse_take(len * sizeof *v);
    float *const model_u = sparse_take(len * sizeof *u), *const model_v = sparse_take(len * sizeof *v);
    sparse_rng rng = {4};
    options.dtype = c->dtype;
    options.nesterov = c->nesterov;
    options.momentum_mask = c->momentum_mask;
    options.clip = c->clip;
    options.values = c->format;
    options.backends = backends;
    memset(u, 0, len * sizeof *u);
    memset(v, 0, len * sizeof *v);
    memset(model_u, 0, len * sizeof *u);
    memset(model_v, 0, len * sizeof *v);
    for (uint32_t round = 0; round < 6; round++) {
        const gw_classic_step step = {len, 0, keep_len, round, 0};
        const gw_classic_source source = {values, v, u, NULL};
        gw_buffer frame;
        sparse_fill(&rng, values, c->dtype, len, round % 4 == 3 ? 6 : round % 4 == 2 ? 8 : 0);
        for (size_t i = 0; i < len; i++) {
            x[i] = sparse_element(values, c->dtype, i);
        }
        const float factor = model_factor(x, len, c->clip);
        for (size_t i = 0; i < len; i++) {
            const float y = sparse_narrow((double)x[i] * (double)factor), m = options.momentum;
            const float w = sparse_flush(sparse_narrow((double)m * (double)model_u[i]) + y);
            const float add = c->nesterov ? sparse_flush(sparse_narrow((double)m * (double)w) + y) : w;
            model_u[i] = w;
            model_v[i] = sparse_flush(model_v[i] + add);
        }
        sparse_model_topk(chosen, model_v, len, keep_len);
        assert_int_equal(sparse_encode(&options, &step, &source, 0, &frame), GW_OK);
        memset(out, 0, len * sizeof *out);
        assert_int_equal(sparse_decode(&frame, backends, out, len, 1, 1.0f), GW_OK);
        free(frame.data);
        for (size_t i = 0; i < len; i++) {
            const float expected = chosen[i] ? sent_value(model_v[i], c->format) : 0.0f;
            assert_int_equal(sparse_bits(out[i]), sparse_bits(expected));
            model_v[i] = sparse_flush(model_v[i] - expected);
            model_u[i] = chosen[i] && c->momentum_mask ? 0.0f : model_u[i];
            assert_int_equal(sparse_bits(v[i]), sparse_bits(model_v[i]));
            assert_int_equal(sparse_bits(u[i]), sparse_bits(model_u[i]));
        }
    }
    free(values);
    free(chosen);
    free(x);
    free(out);
    free(u);
    free(v);
    free(model_u);
    free(model_v);
}

static void test_dgc(void **state)
{
    (void)state;
    uint32_t backends[8];
    const unsigned count = sparse_backends(backends);
    for (unsigned i = 0; i < 24; i++) {
        const dgc_case c = {dtypes[i % 3], (int)(i / 3 % 2), (int)(i / 6 % 2),
                            i % 5 == 0   ? 0.0f
                            : i % 5 == 1 ? 1e-3f
                            : i % 5 == 2 ? 1e6f
                            : i % 5 == 3 ? 1.0f
                                         : 0x1p-120f,
                            i % 4 == 3 ? GW_CLASSIC_VALUES_FP16 : GW_CLASSIC_VALUES_FP32};
        for (unsigned b = 0; b < count; b++) {
            run_dgc(&c, backends[b], i % 2 == 0 ? 6007 : 331);
        }
    }
}

/* ---- failures ------------------------------------------------------------------------------------------ */

/* Encodes something that must fail, and compares the state. */
static void expect_untouched(gw_classic_options *options, float *x, size_t len, size_t capacity,
                             gw_status expected, float *residual, float *momentum)
{
    const gw_classic_step step = {len, 0, len / 10 + 1, 0, 0};
    const gw_classic handle = sparse_handle(options);
    const uint32_t arrays = gw_classic_state_arrays(&handle);
    const gw_classic_source source = {x, (arrays & GW_CLASSIC_RESIDUAL) != 0 ? residual : NULL,
                                      (arrays & GW_CLASSIC_MOMENTUM) != 0 ? momentum : NULL, NULL};
    float *const kept = sparse_take(2 * len * sizeof *kept);
    gw_buffer frame;
    memcpy(kept, residual, len * sizeof *kept);
    memcpy(kept + len, momentum, len * sizeof *kept);
    assert_int_equal(sparse_encode(options, &step, &source, capacity, &frame), expected);
    assert_memory_equal(kept, residual, len * sizeof *kept);
    assert_memory_equal(kept + len, momentum, len * sizeof *kept);
    free(frame.data);
    free(kept);
}

static void test_failures(void **state)
{
    (void)state;
    enum { LEN = 5003 };
    float *const x = sparse_take(LEN * sizeof *x), *const residual = sparse_take(LEN * sizeof *x),
                 *const momentum = sparse_take(LEN * sizeof *x);
    static const size_t places[] = {0, 1, 4095, 4096, 5000, LEN - 1};
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u};
    for (unsigned s = 0; s < 4; s++) {
        gw_classic_options options = options_of(s == 0   ? GW_CLASSIC_TOPK
                                                : s == 3 ? GW_CLASSIC_RANDK
                                                         : GW_CLASSIC_DGC);
        sparse_rng rng = {5};
        options.clip = s == 2 ? 1.0f : 0.0f;
        for (size_t i = 0; i < LEN; i++) {
            x[i] = (float)sparse_normal(&rng);
            residual[i] = (float)sparse_normal(&rng);
            momentum[i] = (float)sparse_normal(&rng);
        }
        for (unsigned p = 0; p < 6; p++) {
            for (unsigned b = 0; b < 4; b++) {
                float *const arrays[3] = {x, residual, momentum};
                for (unsigned a = 0; a < (s == 0 ? 2u : s == 3 ? 1u : 3u); a++) {
                    const float old = arrays[a][places[p]];
                    arrays[a][places[p]] = sparse_float(bad[b]);
                    expect_untouched(&options, x, LEN, 0, GW_ERR_NONFINITE, residual, momentum);
                    arrays[a][places[p]] = old;
                }
            }
        }
        if (s != 3) { /* a sum that overflows */
            x[17] = s == 2 ? 0.0f : 0x1.8p127f;
            residual[17] = 0x1.8p127f;
            momentum[17] = 0x1.8p127f;
            expect_untouched(&options, x, LEN, 0, GW_ERR_NONFINITE, residual, momentum);
            x[17] = residual[17] = momentum[17] = 1.0f;
        }
        for (size_t capacity = 1; capacity < 2064; capacity += capacity < 200 ? 1 : 97) {
            expect_untouched(&options, x, LEN, capacity, GW_ERR_DST, residual, momentum);
        }
        options.values = GW_CLASSIC_VALUES_GCOMP;
        expect_untouched(&options, x, LEN, 200, GW_ERR_DST, residual, momentum);
    }
    free(x);
    free(residual);
    free(momentum);
}

static void test_empty(void **state)
{
    (void)state;
    for (unsigned s = GW_CLASSIC_TOPK; s <= GW_CLASSIC_RANDK; s++) {
        const gw_classic_options options = options_of((gw_classic_scheme)s);
        const gw_classic_step step = {0, 0, 0, 0, 0};
        const gw_classic_source source = {NULL, NULL, NULL, NULL};
        gw_buffer frame;
        float sum = 1.0f;
        assert_int_equal(sparse_encode(&options, &step, &source, 0, &frame), GW_OK);
        assert_int_equal(frame.size, 80);
        assert_int_equal(sparse_decode(&frame, GW_BACKEND_ALL, &sum, 0, 1, 1.0f), GW_OK);
        assert_true(sum == 1.0f);
        free(frame.data);
    }
}

/* Sums touch sent values only; scales round once more. */
static void test_sums_and_scale(void **state)
{
    (void)state;
    enum { LEN = 3001, KEEP = 200 };
    gw_classic_options options = options_of(GW_CLASSIC_TOPK);
    const gw_classic_step step = {LEN, 0, KEEP, 0, 0};
    float x[LEN], sum[LEN], out[LEN];
    uint8_t chosen[LEN];
    sparse_rng rng = {6};
    gw_buffer frame;
    options.error_feedback = 0;
    options.checksum = 1;
    sparse_fill(&rng, x, GW_FP32, LEN, 6);
    const gw_classic_source source = {x, NULL, NULL, NULL};
    assert_int_equal(sparse_encode(&options, &step, &source, 0, &frame), GW_OK);
    sparse_model_topk(chosen, x, LEN, KEEP);
    for (size_t i = 0; i < LEN; i++) {
        sum[i] = sparse_float(0x00000001u + (uint32_t)i); /* subnormals stay where nothing was sent */
    }
    assert_int_equal(sparse_decode(&frame, GW_BACKEND_ALL, sum, LEN, 1, -0.3f), GW_OK);
    assert_int_equal(sparse_decode(&frame, GW_BACKEND_ALL, out, LEN, 0, -0.3f), GW_OK);
    for (size_t i = 0; i < LEN; i++) {
        const float scaled = sparse_narrow((double)x[i] * (double)-0.3f);
        assert_int_equal(sparse_bits(sum[i]), chosen[i] ? sparse_bits(scaled) : 1 + (uint32_t)i);
        assert_int_equal(sparse_bits(out[i]), chosen[i] ? sparse_bits(scaled) : 0);
    }
    free(frame.data);
}

/* Values and targets at odd addresses. */
static void test_alignment(void **state)
{
    (void)state;
    enum { LEN = 5000, KEEP = 321 };
    for (unsigned d = 0; d < 3; d++) {
        for (unsigned s = GW_CLASSIC_TOPK; s <= GW_CLASSIC_RANDK; s++) {
            gw_classic_options options = options_of((gw_classic_scheme)s);
            const gw_classic_step step = {LEN, 0, KEEP, 0, 0};
            const size_t size = LEN * gw_dtype_size(dtypes[d]);
            uint8_t *const values = sparse_take(size + 1), *const out = sparse_take(2 * size + 1);
            float *const states = sparse_take(4 * LEN * sizeof *states);
            const int is_dgc = s == GW_CLASSIC_DGC;
            sparse_rng rng = {11};
            gw_buffer frames[2];
            options.dtype = dtypes[d];
            memset(states, 0, 4 * LEN * sizeof *states);
            sparse_fill(&rng, values, dtypes[d], LEN, 0);
            for (unsigned odd = 0; odd < 2; odd++) {
                memmove(values + odd, values, size);
                const gw_classic_source source = {values + odd,
                                                  s == GW_CLASSIC_RANDK ? NULL : states + 2 * odd * LEN,
                                                  is_dgc ? states + (2 * odd + 1) * LEN : NULL, NULL};
                assert_int_equal(sparse_encode(&options, &step, &source, 0, &frames[odd]), GW_OK);
            }
            assert_int_equal(frames[0].size, frames[1].size);
            assert_memory_equal(frames[0].data, frames[1].data, frames[0].size);
            assert_memory_equal(states, states + 2 * LEN, 2 * LEN * sizeof *states);
            assert_int_equal(sparse_decode(&frames[0], GW_BACKEND_ALL, out, LEN, 0, 3.0f), GW_OK);
            uint8_t *const odd_out = out + size + 1;
            assert_int_equal(sparse_decode(&frames[1], GW_BACKEND_ALL, odd_out, LEN, 0, 3.0f), GW_OK);
            assert_memory_equal(out, odd_out, size);
            free(values);
            free(out);
            free(states);
            free(frames[0].data);
            free(frames[1].data);
        }
    }
}

/* ---- ratios -------------------------------------------------------------------------------------------- */

static void test_ratios(void **state)
{
    (void)state;
    assert_int_equal(gw_classic_keep_len(0, 0.5), 0);
    assert_int_equal(gw_classic_keep_len(100, 0.01), 1);
    assert_int_equal(gw_classic_keep_len(101, 0.01), 2);
    assert_int_equal(gw_classic_keep_len(100, 1e-300), 1);
    assert_int_equal(gw_classic_keep_len(100, 1.0), 100);
    assert_int_equal(gw_classic_keep_len(100, 1.0000001), 0);
    assert_int_equal(gw_classic_keep_len(100, 0.0), 0);
    assert_int_equal(gw_classic_keep_len(100, -0.1), 0);
    assert_int_equal(gw_classic_keep_len(100, (double)NAN), 0);
    assert_int_equal(gw_classic_keep_len((uint64_t)1 << 32, 0.25), (uint64_t)1 << 30);
    assert_int_equal(gw_classic_keep_len(UINT64_MAX, 1.0), UINT64_MAX);
    assert_int_equal(gw_classic_keep_len(UINT64_MAX, 0.5), (uint64_t)1 << 63);
    static const double ratios[] = {0.001, 0.01, 0.25, 0.5, 0.999, 1.0, 1e-9, 1e-300};
    for (unsigned r = 0; r < 8; r++) {
        for (uint64_t steps = 0; steps < 200; steps += 1 + steps / 8) {
            double last = 1.0;
            for (uint64_t step = 0; step <= steps; step++) {
                const double got = gw_classic_warmup_ratio(ratios[r], step, steps);
                const double exact =
                    pow(ratios[r], step >= steps ? 1.0 : (double)(step + 1) / (double)(steps + 1));
                /* the exponent above is rounded, too */
                assert_true(fabs(got / exact - 1.0) <= 0x1p-45 - log(ratios[r]) * 0x1p-52);
                assert_true(got <= last && got >= ratios[r]);
                last = got;
            }
        }
        assert_true(gw_classic_warmup_ratio(ratios[r], 7, 7) == ratios[r]);
        assert_true(gw_classic_warmup_ratio(ratios[r], UINT64_MAX, UINT64_MAX) == ratios[r]);
        const double middle = gw_classic_warmup_ratio(ratios[r], UINT64_MAX / 2 - 1, UINT64_MAX - 1);
        assert_true(fabs(middle / sqrt(ratios[r]) - 1.0) <= 0x1p-45);
    }
    assert_true(gw_classic_warmup_ratio(0.0, 0, 5) == 0.0);
    assert_true(gw_classic_warmup_ratio(2.0, 0, 5) == 0.0);
    assert_true(gw_classic_warmup_ratio((double)NAN, 0, 5) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk),           cmocka_unit_test(test_bound_does_not_matter),
        cmocka_unit_test(test_feedback),       cmocka_unit_test(test_dgc),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_sums_and_scale), cmocka_unit_test(test_ratios),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests_name("classic sparse", tests, NULL, NULL);
}
