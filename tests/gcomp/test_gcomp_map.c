/*
 * The precision map against long double: all optimizers and their hyperparameters, hostile state, both
 * saturations.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"
#include "optimizer_reference.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

static gw_optimizer optimizer(gw_optimizer_kind kind)
{
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = kind;
    o.step = 10;
    o.lr = 0.01;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.alpha = 0.99;
    o.eps = 1e-8;
    o.momentum_decay = 4e-3;
    o.mu_product = kind == GW_OPTIMIZER_NADAM ? 0.02 : 1.0;
    o.momentum = kind == GW_OPTIMIZER_MOMENTUM || kind == GW_OPTIMIZER_NESTEROV ? 0.9 : 0.0;
    return o;
}

static void vary_later_optimizer(gw_optimizer *o, uint32_t choice)
{
    o->decoupled_weight_decay = (int)(choice / 6 % 2);
    o->momentum_decay = choice / 12 % 2 ? 0.3 : 4e-3;
    o->alpha = choice % 2 ? 0.9 : 0.5;
    o->mu_product = o->step == 1 ? 1.0 : pow(0.5 * o->beta1, (double)(o->step - 1));
    if (o->kind == GW_OPTIMIZER_RADAM && o->step == 2) {
        o->step = 2 + choice % 7; /* to both sides of the step in which the second moment comes in */
    }
}

enum { SETTINGS_MAX = 640 };

/* A hyperparameter setting of every kind that changes the formula. Returns how many there are. */
static size_t settings(gw_optimizer *list, size_t capacity)
{
    size_t n = 0;
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (uint32_t choice = 0; choice < 48; choice++) {
            gw_optimizer o = optimizer((gw_optimizer_kind)kind);
            o.weight_decay = choice % 3 == 0 ? 0.0 : choice % 3 == 1 ? 5e-4 : 0.5;
            o.step = choice % 4 == 0 ? 1 : choice % 4 == 1 ? 2 : choice % 4 == 2 ? 400 : 1000000;
            o.lr = choice % 5 == 0   ? 1e-5
                   : choice % 5 == 1 ? 1e-3
                   : choice % 5 == 2 ? 0.1
                   : choice % 5 == 3 ? 1.0
                                     : 3.0;
            o.maximize = (int)(choice / 3 % 2);
            o.centered = (int)(choice / 6 % 2);
            o.amsgrad = (int)(choice / 6 % 2);
            o.lr_decay = choice / 12 % 2 ? 1e-3 : 0.0;
            o.eps = choice / 24 ? 1e-8 : choice % 2 ? 1e-3 : 0.0;
            if (kind == GW_OPTIMIZER_MOMENTUM) {
                o.dampening = choice / 6 % 2 ? 0.25 : choice / 12 % 2 ? -0.5 : 0.0;
                o.momentum = choice % 7 == 0 ? 0.0 : 0.9;
            }
            if (kind == GW_OPTIMIZER_RMSPROP) {
                o.momentum = choice / 12 % 2 ? 0.9 : 0.0;
                o.alpha = choice % 2 ? 0.99 : 0.5;
            }
            if (kind >= GW_OPTIMIZER_ADAM && kind <= GW_OPTIMIZER_ADAMAX) {
                o.beta1 = choice % 7 == 0 ? 0.0 : choice % 2 ? 0.9 : 0.5;
                o.beta2 = choice % 2 ? 0.999 : 0.95;
            }
            if (kind >= GW_OPTIMIZER_NADAM) {
                vary_later_optimizer(&o, choice);
            }
            assert_true(n < capacity);
            list[n++] = o;
        }
    }
    return n;
}

static float random_float(test_random *random, int low, int high)
{
    const double unit = 1.0 + test_random_unit(random);
    const int octave = low + (int)test_random_below(random, (uint32_t)(high - low));
    return (float)ldexp(test_random_below(random, 2) ? unit : -unit, octave);
}

/* Some state: everything independent over many octaves, or balanced so that num nearly cancels. */
static void random_state(test_random *random, const gw_optimizer *o, float *theta, float *m, float *v,
                         float *a)
{
    *theta = random_float(random, -20, 3);
    *m = random_float(random, -30, 3);
    *v = fabsf(random_float(random, -50, 2));
    *a = o->kind == GW_OPTIMIZER_RMSPROP ? random_float(random, -25, 1) : fabsf(random_float(random, -50, 2));
    if (o->kind == GW_OPTIMIZER_RMSPROP && o->centered && test_random_below(random, 4) != 0) {
        *a = (float)(sqrt((double)*v) * (0.1 + 0.9 * test_random_unit(random)));
    }
    if (test_random_below(random, 8) == 0) {
        /* A momentum that nearly cancels theta, as far as one formula can say. */
        const param_state s = {(long double)*theta, 0.0L, (long double)*v, (long double)*a, 1};
        const affine without = optimizer_update(o, &s, 0.0L, 1);
        const param_state with = {(long double)*theta, 1.0L, (long double)*v, (long double)*a, 1};
        const affine one = optimizer_update(o, &with, 0.0L, 1);
        const long double per_m = one.constant - without.constant;
        if (per_m != 0.0L && fabsl(without.constant / per_m) < 1e30L) {
            *m =
                (float)(-without.constant / per_m * (1.0L + 1e-3L * (long double)test_random_normal(random)));
        }
    }
}

static uint32_t quarter_of(long double x)
{
    const float f = (float)x;
    uint32_t bits = test_bits_of_float(f);
    if ((long double)f > x && bits != 0) {
        bits--; /* rounded up: what lies below */
    }
    return bits < 0x00800000u || bits >= 0x7f800000u ? 0 : bits >> 21;
}

static long double lower_edge(uint32_t quarter)
{
    return (long double)test_float_of_bits(quarter << 21);
}

static void ratios_match_long_double(void **state)
{
    (void)state;
    static const float scales[] = {1.0f, 8.0f, 65536.0f, 0.125f};
    gw_optimizer list[SETTINGS_MAX];
    const size_t count = settings(list, TEST_ARRAY_LEN(list));
    size_t compared = 0, lower = 0, dropped_nothing = 0;
    for (size_t n = 0; n < count; n++) {
        const gw_optimizer *o = &list[n];
        test_random random = {n};
        gw_gcomp_map_rule rule;
        const float wire_scale = scales[n % TEST_ARRAY_LEN(scales)];
        assert_int_equal(gw_gcomp_map_rule_init(o, wire_scale, NULL, &rule), GW_OK);
        for (int i = 0; i < 400; i++) {
            float theta, m, v, a;
            random_state(&random, o, &theta, &m, &v, &a);
            const int has_m = o->step > 1 || o->kind == GW_OPTIMIZER_RMSPROP || o->kind >= GW_OPTIMIZER_ADAM;
            const gw_optimizer_state arrays = {&theta, has_m ? &m : NULL, &v, &a};
            const param_state s = {(long double)theta, (long double)m, (long double)v, (long double)a, has_m};
            uint32_t quarter;
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);

            /* Never above the ratio of the update, for any gradient. */
            if (quarter != 0) {
                static const double gradients[] = {0.0,  1e-12, -1e-9, 1e-6,   -1e-4,
                                                   0.01, -0.3,  2.0,   -100.0, 1e6};
                for (size_t g = 0; g < TEST_ARRAY_LEN(gradients); g++) {
                    const long double ratio =
                        optimizer_ratio(o, &s, (long double)gradients[g], 0) * (long double)wire_scale;
                    if (!(lower_edge(quarter) <= ratio)) {
                        fail_msg(
                            "optimizer %d, setting %zu: quarter-octave %u is above the ratio %Lg for g = %g "
                            "(theta %g m %g v %g a %g)",
                            (int)o->kind, n, quarter, ratio, gradients[g], (double)theta, (double)m,
                            (double)v, (double)a);
                    }
                }
            } else {
                dropped_nothing++;
            }

            /* And not much below the bound: as far as the guard reaches, where no sign rule forbids all. */
            const affine update = optimizer_update(o, &s, 0.0L, 1);
            const long double bound = fabsl(update.constant / update.slope) * (long double)wire_scale;
            param_state only_theta = s, only_m = s;
            only_theta.m = 0.0L;
            only_m.theta = 0.0L;
            const long double of_theta = optimizer_update(o, &only_theta, 0.0L, 1).constant;
            const long double of_m = optimizer_update(o, &only_m, 0.0L, 1).constant;
            const long double terms = (fabsl(s.theta) + fabsl(s.theta - of_theta) + fabsl(of_m)) * 2.0L /
                                      fabsl(update.slope) * (long double)wire_scale;
            param_state low = s;
            if (o->kind == GW_OPTIMIZER_RMSPROP && o->centered) {
                low.v -= (s.v + s.a * s.a) * 0x1p-20L; /* the guard of the difference v - a^2 */
            }
            const affine guarded = optimizer_update(o, &low, 0.0L, 1);
            const uint32_t least = quarter_of(
                fabsl(guarded.constant / guarded.slope) * (long double)wire_scale - terms * 0x1p-19L);
            if (quarter != 0) {
                if (quarter < least || quarter > quarter_of(bound)) {
                    fail_msg("optimizer %d, setting %zu: quarter-octave %u, expected %u..%u", (int)o->kind, n,
                             quarter, least, quarter_of(bound));
                }
                compared++;
                lower += quarter != quarter_of(bound);
            }
        }
    }
    print_message("%zu ratios: %zu equal to long double, %zu lower by the guard, %zu drop nothing\n",
                  compared, compared - lower, lower, dropped_nothing);
    assert_true(compared > 100000);
    assert_true(lower < compared / 20);
}

/* SGD, Momentum and Nesterov have no denominator, so nothing but theta = 0 and overflow may give 0. */
static void linear_optimizers_drop_all_they_may(void **state)
{
    (void)state;
    test_random random = {7};
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_NESTEROV; kind++) {
        const gw_optimizer o = optimizer((gw_optimizer_kind)kind);
        gw_gcomp_map_rule rule;
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
        for (int i = 0; i < 1000; i++) {
            const float theta = random_float(&random, -20, 3), m = random_float(&random, -20, 3);
            const gw_optimizer_state arrays = {&theta, &m, NULL, NULL};
            uint32_t quarter;
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
            assert_true(quarter > 0);
        }
    }
}

/* K = quarter - base, at most 255, 0 from the base down. */
static void base_and_saturation(void **state)
{
    (void)state;
    assert_int_equal(gw_gcomp_map_base(0), 1);
    assert_int_equal(gw_gcomp_map_base(254), 1);
    assert_int_equal(gw_gcomp_map_base(255), 1);
    assert_int_equal(gw_gcomp_map_base(256), 1);
    assert_int_equal(gw_gcomp_map_base(257), 2);
    assert_int_equal(gw_gcomp_map_base(1019), 764);
    gw_optimizer o = optimizer(GW_OPTIMIZER_SGD);
    o.lr = 1.0;
    gw_gcomp_map_rule rule;
    assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
    enum { COUNT = 1016 };
    float theta[COUNT];
    uint8_t map_bytes[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        /* inside quarter-octave 4 + i; lr = 1: ratio = theta */
        theta[i] = test_float_of_bits((4 + i) << 21 | 0x80000);
    }
    const gw_optimizer_state arrays = {theta, NULL, NULL, NULL};
    uint32_t top;
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, COUNT, GW_BACKEND_ALL, &top), GW_OK);
    assert_int_equal(top, 1019);
    static const uint32_t bases[] = {1, 5, 300, 765, 1000, 1023};
    for (size_t b = 0; b < TEST_ARRAY_LEN(bases); b++) {
        memset(map_bytes, 0xee, sizeof map_bytes);
        assert_int_equal(gw_gcomp_map_build(&rule, &arrays, COUNT, bases[b], GW_BACKEND_ALL, map_bytes),
                         GW_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            const int32_t k = (int32_t)(4 + i) - (int32_t)bases[b];
            assert_int_equal(map_bytes[i], k < 0 ? 0 : k > 255 ? 255 : k);
        }
    }
    assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 1, 0, GW_BACKEND_ALL, map_bytes), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 1, 1024, GW_BACKEND_ALL, map_bytes), GW_ERR_ARG);
}

static void hostile_state(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffc12345u};
    static const uint32_t nothing[] = {0, 0x80000000u, 1, 0x007fffffu, 0x807fffffu};
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        gw_optimizer o = optimizer((gw_optimizer_kind)kind);
        o.amsgrad = 1;
        o.centered = 1;
        o.momentum = 0.9;
        gw_gcomp_map_rule rule;
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
        const float good[4] = {0.5f, 1e-6f, 1e-4f, kind == GW_OPTIMIZER_RMSPROP ? 1e-4f : 2e-4f};
        float x[4];
        const gw_optimizer_state arrays = {&x[0], &x[1], &x[2], &x[3]};
        uint32_t quarter;
        memcpy(x, good, sizeof x);
        assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
        assert_true(quarter > 0);
        for (size_t slot = 0; slot < 4; slot++) {
            const int is_used = slot == 0 || (rule.uses >> (slot - 1) & 1) != 0;
            for (size_t i = 0; is_used && i < TEST_ARRAY_LEN(bad); i++) {
                memcpy(x, good, sizeof x);
                x[slot] = test_float_of_bits(bad[i]);
                assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
                /* The maximum of AMSGrad replaces a single -Inf. */
                if (!((rule.uses & 6) == 6 && kind <= GW_OPTIMIZER_ADAMW && slot >= 2 &&
                      bad[i] == 0xff800000u)) {
                    assert_int_equal(quarter, 0);
                }
                uint8_t map_byte = 99;
                assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 1, 1, GW_BACKEND_ALL, &map_byte), GW_OK);
                assert_int_equal(map_byte, quarter > 255 ? 255 : quarter);
            }
        }
        for (size_t i = 0; i < TEST_ARRAY_LEN(nothing); i++) { /* theta = 0 or subnormal, no momentum */
            memcpy(x, good, sizeof x);
            x[0] = test_float_of_bits(nothing[i]);
            x[1] = 0.0f;
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
            assert_int_equal(quarter, 0);
        }
        /* negative second moment: its root is NaN */
        if ((rule.uses & 2) != 0 && kind != GW_OPTIMIZER_RMSPROP) {
            memcpy(x, good, sizeof x);
            x[2] = -1e-4f;
            x[3] = kind >= GW_OPTIMIZER_ADAM ? -1e-4f : x[3];
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
            assert_int_equal(quarter, 0);
        }
    }
}

static void hyperparameters_out_of_range(void **state)
{
    (void)state;
    gw_gcomp_map_rule rule;
    gw_optimizer o = optimizer(GW_OPTIMIZER_SGD);
    assert_int_equal(gw_gcomp_map_rule_init(NULL, 1.0f, NULL, &rule), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, NULL), GW_ERR_ARG);
    static const uint32_t scales[] = {0, 1, 0x007fffffu, 0x80000000u, 0xbf800000u, 0x7f800000u, 0x7fc00000u};
    for (size_t i = 0; i < TEST_ARRAY_LEN(scales); i++) {
        assert_int_equal(gw_gcomp_map_rule_init(&o, test_float_of_bits(scales[i]), NULL, &rule), GW_ERR_ARG);
    }
    o.step = 0;
    assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_ERR_ARG);

    const double nan = (double)test_float_of_bits(0x7fc00000u);
    const double infinity = (double)test_float_of_bits(0x7f800000u);
    for (int kind = -1; kind <= 13; kind++) {
        o = optimizer((gw_optimizer_kind)kind);
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule),
                         kind < 1 || kind > 11 ? GW_ERR_OPTION : GW_OK);
    }
#define REFUSED(kind, field, value)                                                                          \
    do {                                                                                                     \
        o = optimizer(kind);                                                                                 \
        o.field = (value);                                                                                   \
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_ERR_OPTION);                      \
    } while (0)
    REFUSED(GW_OPTIMIZER_SGD, weight_decay, -1e-9);
    REFUSED(GW_OPTIMIZER_SGD, weight_decay, nan);
    REFUSED(GW_OPTIMIZER_SGD, peak_lr, -1e-9);
    REFUSED(GW_OPTIMIZER_MOMENTUM, peak_lr, nan);
    REFUSED(GW_OPTIMIZER_ADAM, peak_lr, infinity);
    REFUSED(GW_OPTIMIZER_MOMENTUM, momentum, -0.1);
    REFUSED(GW_OPTIMIZER_MOMENTUM, momentum, infinity);
    REFUSED(GW_OPTIMIZER_MOMENTUM, dampening, 1.0);
    REFUSED(GW_OPTIMIZER_MOMENTUM, dampening, nan);
    REFUSED(GW_OPTIMIZER_NESTEROV, dampening, 0.5);
    REFUSED(GW_OPTIMIZER_NESTEROV, momentum, 0.0);
    REFUSED(GW_OPTIMIZER_ADAGRAD, lr_decay, -1.0);
    REFUSED(GW_OPTIMIZER_ADAGRAD, eps, nan);
    REFUSED(GW_OPTIMIZER_RMSPROP, alpha, 1.0);
    REFUSED(GW_OPTIMIZER_RMSPROP, alpha, -0.5);
    REFUSED(GW_OPTIMIZER_RMSPROP, centered, 2);
    REFUSED(GW_OPTIMIZER_ADAM, beta1, 1.0);
    REFUSED(GW_OPTIMIZER_ADAM, beta2, nan);
    REFUSED(GW_OPTIMIZER_ADAMW, eps, -1e-8);
    REFUSED(GW_OPTIMIZER_ADAMW, amsgrad, -1);
    REFUSED(GW_OPTIMIZER_NADAM, momentum_decay, -1e-3);
    REFUSED(GW_OPTIMIZER_NADAM, momentum_decay, infinity);
    REFUSED(GW_OPTIMIZER_NADAM, mu_product, 1.5);
    REFUSED(GW_OPTIMIZER_NADAM, mu_product, nan);
    REFUSED(GW_OPTIMIZER_NADAM, step, 1); /* with a product of earlier updates */
    REFUSED(GW_OPTIMIZER_NADAM, decoupled_weight_decay, 2);
    REFUSED(GW_OPTIMIZER_NADAM, beta1, 1.0);
    REFUSED(GW_OPTIMIZER_RADAM, beta2, 1.0);
    REFUSED(GW_OPTIMIZER_RADAM, decoupled_weight_decay, -1);
    REFUSED(GW_OPTIMIZER_ADAMAX, eps, nan);
    REFUSED(GW_OPTIMIZER_ADAMAX, beta2, 1.0);
    REFUSED(GW_OPTIMIZER_ADADELTA, alpha, 1.0000001);
    REFUSED(GW_OPTIMIZER_ADADELTA, alpha, nan);
    REFUSED(GW_OPTIMIZER_ADADELTA, eps, -1.0);
#undef REFUSED

    /* No positive finite learning rate: the map drops nothing. */
    const double rates[] = {0.0, -1.0, nan, infinity};
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (size_t i = 0; i < TEST_ARRAY_LEN(rates); i++) {
            o = optimizer((gw_optimizer_kind)kind);
            o.lr = rates[i];
            assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
            const float x = 0.5f;
            const gw_optimizer_state arrays = {&x, &x, &x, &x};
            uint32_t quarter = 5;
            uint8_t map_byte = 5;
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
            assert_int_equal(quarter, 0);
            assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 1, 1, GW_BACKEND_ALL, &map_byte), GW_OK);
            assert_int_equal(map_byte, 0);
        }
    }

    /* State arrays that the rule reads must be there; a rule that was never initialised is refused. */
    o = optimizer(GW_OPTIMIZER_ADAM);
    assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
    const float x = 0.5f;
    gw_optimizer_state arrays = {&x, &x, NULL, NULL};
    uint32_t top;
    uint8_t map_byte;
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &top), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_build(&rule, &arrays, 1, 1, GW_BACKEND_ALL, &map_byte), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 0, GW_BACKEND_ALL, &top), GW_OK);
    assert_int_equal(top, 0);
    memset(&rule, 0, sizeof rule);
    arrays.v = &x;
    assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &top), GW_ERR_ARG);
}

/* The wire scale moves a map by whole quarter-octaves if it is a power of two. */
static void wire_scale_moves_the_map(void **state)
{
    (void)state;
    test_random random = {3};
    const gw_optimizer o = optimizer(GW_OPTIMIZER_ADAMW);
    gw_gcomp_map_rule one, eight;
    assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &one), GW_OK);
    assert_int_equal(gw_gcomp_map_rule_init(&o, 8.0f, NULL, &eight), GW_OK);
    for (int i = 0; i < 2000; i++) {
        float theta, m, v, a;
        random_state(&random, &o, &theta, &m, &v, &a);
        const gw_optimizer_state arrays = {&theta, &m, &v, NULL};
        uint32_t q1, q8;
        assert_int_equal(gw_gcomp_map_scan(&one, &arrays, 1, GW_BACKEND_ALL, &q1), GW_OK);
        assert_int_equal(gw_gcomp_map_scan(&eight, &arrays, 1, GW_BACKEND_ALL, &q8), GW_OK);
        assert_int_equal(q8, q1 == 0 ? 0 : q1 + 12);
    }
}

/* Ranges and alignment change nothing; digests are the checksums of the chunks' bytes. */
static void ranges_and_digests(void **state)
{
    (void)state;
    enum { LEN = 20000 };
    const gw_optimizer o = optimizer(GW_OPTIMIZER_ADAM);
    gw_gcomp_map_rule rule;
    assert_int_equal(gw_gcomp_map_rule_init(&o, 2.0f, NULL, &rule), GW_OK);
    test_buffer block[3], map_bytes, again;
    test_random random = {11};
    for (int b = 0; b < 3; b++) {
        test_buffer_make(&block[b], LEN * 4, (unsigned)(2 * b + 1), 0);
    }
    for (size_t i = 0; i < LEN; i++) {
        float x[4];
        random_state(&random, &o, &x[0], &x[1], &x[2], &x[3]);
        for (int b = 0; b < 3; b++) {
            memcpy(block[b].at + 4 * i, &x[b], 4);
        }
    }
    test_buffer_make(&map_bytes, LEN, 1, 0xaa);
    test_buffer_make(&again, LEN, 7, 0x55);
    const gw_optimizer_state all = {(const float *)(const void *)block[0].at,
                                    (const float *)(const void *)block[1].at,
                                    (const float *)(const void *)block[2].at, NULL};
    uint32_t top = 0, whole;
    assert_int_equal(gw_gcomp_map_scan(&rule, &all, LEN, GW_BACKEND_ALL, &whole), GW_OK);
    assert_int_equal(
        gw_gcomp_map_build(&rule, &all, LEN, gw_gcomp_map_base(whole), GW_BACKEND_ALL, map_bytes.at), GW_OK);
    for (size_t at = 0, n = 1; at < LEN; at += n, n = n * 3 / 2 + 1) {
        n = n < LEN - at ? n : LEN - at;
        const gw_optimizer_state part = {(const float *)(const void *)(block[0].at + 4 * at),
                                         (const float *)(const void *)(block[1].at + 4 * at),
                                         (const float *)(const void *)(block[2].at + 4 * at), NULL};
        uint32_t part_top;
        assert_int_equal(gw_gcomp_map_scan(&rule, &part, n, GW_BACKEND_ALL, &part_top), GW_OK);
        top = part_top > top ? part_top : top;
        assert_int_equal(
            gw_gcomp_map_build(&rule, &part, n, gw_gcomp_map_base(whole), GW_BACKEND_ALL, again.at + at),
            GW_OK);
    }
    assert_int_equal(top, whole);
    assert_memory_equal(map_bytes.at, again.at, LEN);
    for (uint32_t log2 = 12; log2 <= 15; log2++) {
        uint32_t digest[6] = {0};
        assert_int_equal(gw_gcomp_map_digest(map_bytes.at, LEN, log2, digest), GW_OK);
        for (size_t c = 0; c << log2 < LEN; c++) {
            const size_t left = LEN - (c << log2);
            assert_int_equal(digest[c], gw_crc32c(0, map_bytes.at + (c << log2),
                                                  left < (size_t)1 << log2 ? left : (size_t)1 << log2));
        }
    }
    uint32_t digest;
    assert_int_equal(gw_gcomp_map_digest(map_bytes.at, LEN, 9, &digest), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_digest(map_bytes.at, LEN, 16, &digest), GW_ERR_ARG);
    assert_int_equal(gw_gcomp_map_digest(NULL, 1, 12, &digest), GW_ERR_ARG);
    for (int b = 0; b < 3; b++) {
        test_buffer_free(&block[b]);
    }
    test_buffer_free(&map_bytes);
    test_buffer_free(&again);
}

/* No byte of a map depends on whether the process flushes subnormals. */
static void flush_modes_change_nothing(void **state)
{
    (void)state;
#if defined(__SSE2__)
    enum { LEN = 4000, FTZ = 0x8000, DAZ = 0x0040 };
    static const uint32_t modes[] = {FTZ, DAZ, FTZ | DAZ};
    const unsigned before = _mm_getcsr();
    float x[4][LEN];
    test_random random = {5};
    for (size_t i = 0; i < LEN; i++) { /* every magnitude, the tiny ones most */
        for (int b = 0; b < 4; b++) {
            const int low = test_random_below(&random, 2) ? -149 : -126;
            x[b][i] = random_float(&random, low, test_random_below(&random, 2) ? -90 : 20);
            if (b >= 2) {
                x[b][i] = fabsf(x[b][i]);
            }
        }
        if (i % 3 == 0) { /* centered RMSProp: v - a^2 cancels */
            x[2][i] = fabsf(random_float(&random, -124, -60));
            x[3][i] = (float)sqrt((double)x[2][i]) * (i % 2 ? 1.0f : 0.9999999f);
        }
    }
    const gw_optimizer_state arrays = {x[0], x[1], x[2], x[3]};
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (int choice = 0; choice < (kind >= GW_OPTIMIZER_ADAGRAD ? 24 : 8); choice++) {
            const uint32_t update_bits = choice < 16 && choice % 3 == 0 ? 11 : 0;
            const gw_gcomp_map_limits limits = {12, choice < 8 ? 0.0f : 0.25f, choice >= 16, update_bits};
            gw_optimizer o = optimizer((gw_optimizer_kind)kind);
            o.momentum = 0.9;
            o.centered = o.amsgrad = choice & 1;
            o.eps = choice & 2 ? 1e-40 : 0.0;
            o.weight_decay = choice & 4 ? 1e-39 : 0.1;
            o.lr = choice & 4 ? 1e-3 : 1e20;
            o.peak_lr = choice % 5 == 0 ? 3.0 * o.lr : 0.0;
            const float wire_scale = choice & 4 ? 1.0f : 1e-30f;
            gw_gcomp_map_rule plain, rule;
            uint8_t want[LEN], got[LEN];
            assert_int_equal(gw_gcomp_map_rule_init(&o, wire_scale, &limits, &plain), GW_OK);
            assert_int_equal(gw_gcomp_map_build(&plain, &arrays, LEN, 300, GW_BACKEND_ALL, want), GW_OK);
            for (size_t m = 0; m < TEST_ARRAY_LEN(modes); m++) {
                _mm_setcsr((before & ~(unsigned)(FTZ | DAZ)) | modes[m]);
                const gw_status first = gw_gcomp_map_rule_init(&o, wire_scale, &limits, &rule);
                const gw_status second = gw_gcomp_map_build(&rule, &arrays, LEN, 300, GW_BACKEND_ALL, got);
                _mm_setcsr(before);
                assert_int_equal(first, GW_OK);
                assert_int_equal(second, GW_OK);
                if (memcmp(&rule, &plain, sizeof rule) != 0) {
                    fail_msg("optimizer %d, choice %d: the rule depends on mode %x", kind, choice, modes[m]);
                }
                for (size_t i = 0; i < LEN; i++) {
                    if (want[i] != got[i]) {
                        fail_msg("optimizer %d, choice %d, mode %x: byte %zu is %u, not %u (%g %g %g %g)",
                                 kind, choice, modes[m], i, got[i], want[i], (double)x[0][i], (double)x[1][i],
                                 (double)x[2][i], (double)x[3][i]);
                    }
                }
            }
        }
    }
#else
    skip();
#endif
}

/* ---- noise limit --------------------------------------------------------------------------------------- */

/* The second moment of an optimizer after the update, at its least. */
static long double least_moment(const gw_optimizer *o, float v, float a)
{
    const long double correction = 1.0L - powl((long double)o->beta2, (long double)o->step);
    switch (o->kind) {
    case GW_OPTIMIZER_ADAGRAD:
        return (long double)v / (long double)o->step;
    case GW_OPTIMIZER_NADAM:
        return (long double)o->beta2 * v / correction;
    case GW_OPTIMIZER_RADAM: /* while the update has no second moment, nothing is dropped */
        return radam_rho(o) > 5.0L ? (long double)o->beta2 * v / correction : 0.0L;
    case GW_OPTIMIZER_ADAMAX:
        return (long double)o->beta2 * v * o->beta2 * v;
    case GW_OPTIMIZER_ADADELTA:
        return (long double)o->alpha * v;
    case GW_OPTIMIZER_RMSPROP:
        return (long double)o->alpha * fmaxl(v - (o->centered ? (long double)a * a : 0.0L), 0.0L);
    default:
        return fmaxl((long double)o->beta2 * v, o->amsgrad ? a : 0.0L) / correction;
    }
}

static uint32_t quarter_octave(const gw_optimizer *o, float wire_scale, const gw_gcomp_map_limits *limits,
                               const gw_optimizer_state *arrays)
{
    gw_gcomp_map_rule rule;
    uint32_t quarter;
    uint8_t map_byte;
    assert_int_equal(gw_gcomp_map_rule_init(o, wire_scale, limits, &rule), GW_OK);
    assert_int_equal(gw_gcomp_map_scan(&rule, arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
    assert_int_equal(gw_gcomp_map_build(&rule, arrays, 1, 300, GW_BACKEND_ALL, &map_byte), GW_OK);
    assert_int_equal(map_byte, quarter <= 300 ? 0 : quarter - 300 > 255 ? 255 : quarter - 300);
    return quarter;
}

/* The limit is never above that of the exact second moment, and hardly below; the smaller limit counts. */
static void noise_limits_match_long_double(void **state)
{
    (void)state;
    static const float scales[] = {1.0f, 8.0f, 65536.0f, 0.125f};
    gw_optimizer list[SETTINGS_MAX];
    const size_t count = settings(list, TEST_ARRAY_LEN(list));
    size_t by_noise = 0, by_tolerance = 0;
    for (size_t n = 0; n < count; n++) {
        const gw_optimizer *o = &list[n];
        test_random random = {n};
        for (int i = 0; i < 100 && o->kind >= GW_OPTIMIZER_ADAGRAD; i++) {
            const float wire_scale = scales[test_random_below(&random, TEST_ARRAY_LEN(scales))];
            const uint32_t bits = 1 + test_random_below(&random, 23);
            const int halves = -(int)test_random_below(&random, 17);
            const float alpha = i % 2 == 0 ? (float)exp2(0.5 * halves)
                                           : (float)(0x1p-8 + (1.0 - 0x1p-8) * test_random_unit(&random));
            const gw_gcomp_map_limits both = {bits, alpha, 0, 0}, only = {bits, alpha, 1, 0};
            float theta, m, v, a;
            random_state(&random, o, &theta, &m, &v, &a);
            const gw_optimizer_state arrays = {&theta, &m, &v, &a}, moments = {NULL, NULL, &v, &a};
            const uint32_t tolerance = quarter_octave(o, wire_scale, NULL, &arrays);
            const uint32_t noise = quarter_octave(o, wire_scale, &only, &moments);
            const uint32_t smaller = noise < tolerance ? noise : tolerance;
            assert_int_equal(quarter_octave(o, wire_scale, &both, &arrays), smaller);

            /* The quantum of the codec: a power of two, t bits below the map. */
            const long double wanted = (long double)alpha * sqrtl(least_moment(o, v, a)) * wire_scale;
            const long double quantum = noise == 0 ? 0.0L : ldexpl(1.0L, (int)(noise >> 2) - 127 - (int)bits);
            long double low = wanted * (1.0L - 0x1p-20L);
            if (o->kind == GW_OPTIMIZER_RMSPROP && o->centered) { /* the guard of the difference v - a^2 */
                const float lower = (float)(v - (v + (long double)a * a) * 0x1p-20L);
                low = (long double)alpha * sqrtl(least_moment(o, lower, a)) * wire_scale * (1.0L - 0x1p-20L);
            }
            if (quantum > wanted || lower_edge(noise) > ldexpl(wanted, (int)bits) ||
                noise < quarter_of(ldexpl(low, (int)bits))) {
                fail_msg("optimizer %d, setting %zu: quarter-octave %u, quantum %Lg, wanted %Lg (v %g a %g)",
                         (int)o->kind, n, noise, quantum, wanted, (double)v, (double)a);
            }
            by_noise += smaller != 0 && smaller == noise;
            by_tolerance += smaller != 0 && smaller == tolerance;
        }
    }
    assert_true(by_noise > 1000 && by_tolerance > 1000);
}

/* The bytes of maps that the tolerance alone limits, whatever its bits. */
static void no_noise_limit_changes_nothing(void **state)
{
    (void)state;
    enum { LEN = 1000 };
    static float x[4][LEN];
    uint8_t map_bytes[LEN];
    uint32_t crc = 0;
    test_random random = {17};
    for (size_t i = 0; i < LEN; i++) {
        for (int b = 0; b < 4; b++) {
            x[b][i] = random_float(&random, -24, 2);
            x[b][i] = b >= 2 ? fabsf(x[b][i]) : x[b][i];
        }
    }
    const gw_optimizer_state arrays = {x[0], x[1], x[2], x[3]};
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADAMW; kind++) {
        for (int extra = 0; extra < 2; extra++) {
            gw_optimizer o = optimizer((gw_optimizer_kind)kind);
            gw_gcomp_map_rule rule, other;
            o.weight_decay = 0.01;
            o.centered = o.amsgrad = extra;
            assert_int_equal(gw_gcomp_map_rule_init(&o, 4.0f, NULL, &rule), GW_OK);
            for (uint32_t bits = 1; bits <= 23; bits++) {
                const gw_gcomp_map_limits limits = {.tolerance_bits = bits};
                assert_int_equal(gw_gcomp_map_rule_init(&o, 4.0f, &limits, &other), GW_OK);
                assert_memory_equal(&other, &rule, sizeof rule);
            }
            assert_int_equal(gw_gcomp_map_build(&rule, &arrays, LEN, 300, GW_BACKEND_ALL, map_bytes), GW_OK);
            crc = gw_crc32c(crc, map_bytes, LEN);
        }
    }
    assert_int_equal(crc, 0x9f9c11d7u);
}

static void limits_out_of_range(void **state)
{
    (void)state;
    const float nan = test_float_of_bits(0x7fc00000u);
    const struct {
        gw_gcomp_map_limits limits;
        int is_linear_ok, is_ok; /* without and with a second moment */
    } list[] = {
        {{1, 0.0f, 0, 0}, 1, 1},
        {{23, -0.0f, 0, 0}, 1, 1},
        {{0, 0.0f, 0, 0}, 0, 0},
        {{24, 0.0f, 0, 0}, 0, 0},
        {{UINT32_MAX, 0.5f, 0, 0}, 0, 0},
        {{23, 1.0f, 0, 0}, 0, 1},
        {{1, 0x1p-8f, 1, 0}, 0, 1},
        {{12, 0.3f, 1, 0}, 0, 1},
        {{12, 0x1.fffffep-9f, 0, 0}, 0, 0},
        {{12, 0x1.000002p0f, 0, 0}, 0, 0},
        {{12, -0.5f, 0, 0}, 0, 0},
        {{12, nan, 0, 0}, 0, 0},
        {{12, test_float_of_bits(0x7f800000u), 0, 0}, 0, 0},
        {{12, 0.0f, 1, 0}, 0, 0}, /* nothing would limit */
        {{12, 0.5f, 2, 0}, 0, 0},
        {{12, 0.5f, -1, 0}, 0, 0},
        {{12, 0.0f, 0, 1}, 1, 1},
        {{12, 0.5f, 0, 23}, 0, 1},
        {{12, 0.0f, 0, 24}, 0, 0},
        {{12, 0.5f, 0, UINT32_MAX}, 0, 0},
        {{12, 0.5f, 1, 11}, 0, 0}, /* the noise alone counts, or it does not */
    };
    for (size_t i = 0; i < TEST_ARRAY_LEN(list); i++) {
        for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
            const gw_optimizer o = optimizer((gw_optimizer_kind)kind);
            const int is_ok = kind >= GW_OPTIMIZER_ADAGRAD ? list[i].is_ok : list[i].is_linear_ok;
            gw_gcomp_map_rule rule;
            assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, &list[i].limits, &rule),
                             is_ok ? GW_OK : GW_ERR_OPTION);
        }
    }
}

/* A second moment that is no positive number drops nothing; parameters do not matter for the noise alone. */
static void noise_limit_of_hostile_state(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0,           0x80000000u, 1,           0x807fffffu, 0x7f800000u,
                                   0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffc12345u, 0xbf800000u};
    const float nan = test_float_of_bits(0x7fc00000u), good = 1e-4f, zero = 0.0f, half = 0.5f;
    for (int kind = GW_OPTIMIZER_ADAGRAD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        for (int only = 0; only < 2; only++) {
            const gw_gcomp_map_limits limits = {12, 0.25f, only, 0};
            gw_optimizer o = optimizer((gw_optimizer_kind)kind);
            const gw_optimizer_state missing = {only ? NULL : &half, &half, NULL, &half};
            gw_gcomp_map_rule rule;
            uint32_t top;
            assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, &limits, &rule), GW_OK);
            assert_int_equal(gw_gcomp_map_scan(&rule, &missing, 1, GW_BACKEND_ALL, &top), GW_ERR_ARG);
            for (size_t i = 0; i < TEST_ARRAY_LEN(bad); i++) {
                const float v = test_float_of_bits(bad[i]);
                const gw_optimizer_state arrays = {&half, &zero, &v, &half};
                assert_int_equal(quarter_octave(&o, 1.0f, &limits, &arrays), 0);
            }
            const gw_optimizer_state arrays = {&nan, &nan, &good, &half};
            assert_int_equal(quarter_octave(&o, 1.0f, &limits, &arrays) != 0, only);
            /* A limit that overflows or underflows, or a learning rate that is not positive. */
            const gw_optimizer_state sound = {only ? NULL : &half, &zero, &half, &half};
            assert_true(quarter_octave(&o, 1.0f, &limits, &sound) != 0);
            assert_int_equal(quarter_octave(&o, 0x1p127f, &limits, &sound), 0);
            assert_int_equal(
                quarter_octave(&o, 0x1p-126f, &(gw_gcomp_map_limits){1, 0x1p-8f, only, 0}, &sound), 0);
            o.lr = 0.0;
            assert_int_equal(quarter_octave(&o, 1.0f, &limits, &sound), 0);
        }
    }
}

/* ---- rates to come ------------------------------------------------------------------------------------- */

static int has_momentum(const gw_optimizer *o)
{
    switch (o->kind) {
    case GW_OPTIMIZER_SGD:
    case GW_OPTIMIZER_ADAGRAD:
    case GW_OPTIMIZER_ADADELTA:
        return 0;
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
    case GW_OPTIMIZER_RMSPROP:
        return o->momentum != 0.0;
    default:
        return o->beta1 != 0.0;
    }
}

/* With a peak the ratio is at most that of the update at any rate up to it, for any gradient. */
static void peak_bounds_every_rate(void **state)
{
    (void)state;
    static const double shares[] = {1.0, 0.75, 0.1, 1e-4};
    static const double gradients[] = {0.0, 1e-9, -1e-6, 1e-4, -0.01, 0.3, -100.0};
    gw_optimizer list[SETTINGS_MAX];
    const size_t count = settings(list, TEST_ARRAY_LEN(list));
    size_t some = 0;
    for (size_t n = 0; n < count; n++) {
        gw_optimizer o = list[n], at_peak = o;
        test_random random = {n};
        gw_gcomp_map_rule rule, fixed;
        o.peak_lr = o.lr;
        o.lr = n % 3 == 0 ? 0.0 : o.peak_lr * (n % 3 == 1 ? 1e-4 : 0.5);
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
        if (!has_momentum(&o)) { /* a gradient meets this rate alone */
            at_peak.lr = o.lr;
            assert_int_equal(gw_gcomp_map_rule_init(&at_peak, 1.0f, NULL, &fixed), GW_OK);
            assert_memory_equal(&rule, &fixed, sizeof rule);
            continue;
        }
        for (int i = 0; i < 100; i++) {
            float theta, m, v, a;
            random_state(&random, &at_peak, &theta, &m, &v, &a);
            const int has_m = o.step > 1 || o.kind == GW_OPTIMIZER_RMSPROP || o.kind >= GW_OPTIMIZER_ADAM;
            const gw_optimizer_state arrays = {&theta, has_m ? &m : NULL, &v, &a};
            const param_state s = {(long double)theta, (long double)m, (long double)v, (long double)a, has_m};
            uint32_t quarter;
            assert_int_equal(gw_gcomp_map_scan(&rule, &arrays, 1, GW_BACKEND_ALL, &quarter), GW_OK);
            some += quarter != 0;
            for (size_t j = 0; quarter != 0 && j < TEST_ARRAY_LEN(shares) * TEST_ARRAY_LEN(gradients); j++) {
                gw_optimizer later = o;
                later.lr = o.peak_lr * shares[j % TEST_ARRAY_LEN(shares)];
                const long double g = (long double)gradients[j / TEST_ARRAY_LEN(shares)];
                const long double ratio = optimizer_ratio(&later, &s, g, 0);
                if (!(lower_edge(quarter) <= ratio)) {
                    fail_msg("optimizer %d, setting %zu: quarter-octave %u is above the ratio %Lg at rate %g "
                             "for g = %Lg (theta %g m %g v %g)",
                             (int)o.kind, n, quarter, ratio, later.lr, g, (double)theta, (double)m,
                             (double)v);
                }
            }
        }
    }
    assert_true(some > 5000);
}

/* A peak that is not above the rate changes nothing; one above a rate that is none does not help. */
static void peak_below_the_rate(void **state)
{
    (void)state;
    for (int kind = GW_OPTIMIZER_SGD; kind <= GW_OPTIMIZER_ADADELTA; kind++) {
        gw_optimizer o = optimizer((gw_optimizer_kind)kind);
        gw_gcomp_map_rule rule, other;
        o.momentum = 0.9;
        assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule), GW_OK);
        for (int i = 0; i < 2; i++) {
            o.peak_lr = i == 0 ? o.lr : o.lr / 2;
            assert_int_equal(gw_gcomp_map_rule_init(&o, 1.0f, NULL, &other), GW_OK);
            assert_memory_equal(&rule, &other, sizeof rule);
        }
        const double rates[] = {-1.0, (double)test_float_of_bits(0x7fc00000u), 1e300};
        for (size_t i = 0; i < TEST_ARRAY_LEN(rates); i++) {
            o.lr = rates[i];
            o.peak_lr = 0.5;
            const float x = 0.5f;
            const gw_optimizer_state arrays = {&x, &x, &x, &x};
            assert_int_equal(quarter_octave(&o, 1.0f, NULL, &arrays), 0);
        }
    }
}

/* The ratio is at most the momentum's part of the update, times 2^update_bits; without a momentum yet, none.
 */
static void update_limits_match_long_double(void **state)
{
    (void)state;
    gw_optimizer list[SETTINGS_MAX];
    const size_t count = settings(list, TEST_ARRAY_LEN(list));
    size_t by_update = 0, by_tolerance = 0;
    for (size_t n = 0; n < count; n++) {
        const gw_optimizer *o = &list[n];
        test_random random = {n};
        for (int i = 0; i < 50; i++) {
            const gw_gcomp_map_limits limits = {.tolerance_bits = 14, .update_bits = 1 + (uint32_t)i % 23};
            float theta, m, v, a;
            random_state(&random, o, &theta, &m, &v, &a);
            const gw_optimizer_state arrays = {&theta, &m, &v, &a};
            const uint32_t tolerance = quarter_octave(o, 8.0f, NULL, &arrays);
            const uint32_t got = quarter_octave(o, 8.0f, &limits, &arrays);
            if (!has_momentum(o)) {
                assert_int_equal(got, tolerance);
                continue;
            }
            if (o->step == 1 && o->kind <= GW_OPTIMIZER_NESTEROV) {
                assert_int_equal(got, 0); /* the buffer is not there yet */
                continue;
            }
            /* The momentum's part is what the update without a parameter and a gradient is. */
            param_state s = {0.0L, (long double)m, (long double)v, (long double)a, 1};
            if (o->kind == GW_OPTIMIZER_RMSPROP && o->centered) {
                s.v -= (s.v + s.a * s.a) * 0x1p-21L; /* the guard of the difference v - a^2 */
            }
            const affine update = optimizer_update(o, &s, 0.0L, 1);
            const long double part = fabsl(update.constant / update.slope) * 8.0L;
            const uint32_t low = quarter_of(ldexpl(part * (1.0L - 0x1p-18L), (int)limits.update_bits));
            const uint32_t high = quarter_of(ldexpl(part * (1.0L + 0x1p-18L), (int)limits.update_bits));
            assert_true(got <= (high < tolerance ? high : tolerance));
            assert_true(got >= (low < tolerance ? low : tolerance));
            by_update += got != 0 && got < tolerance;
            by_tolerance += got != 0 && got == tolerance;
        }
    }
    assert_true(by_update > 1000 && by_tolerance > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_match_long_double),
        cmocka_unit_test(linear_optimizers_drop_all_they_may),
        cmocka_unit_test(base_and_saturation),
        cmocka_unit_test(hostile_state),
        cmocka_unit_test(hyperparameters_out_of_range),
        cmocka_unit_test(wire_scale_moves_the_map),
        cmocka_unit_test(ranges_and_digests),
        cmocka_unit_test(flush_modes_change_nothing),
        cmocka_unit_test(noise_limits_match_long_double),
        cmocka_unit_test(no_noise_limit_changes_nothing),
        cmocka_unit_test(limits_out_of_range),
        cmocka_unit_test(noise_limit_of_hostile_state),
        cmocka_unit_test(peak_bounds_every_rate),
        cmocka_unit_test(peak_below_the_rate),
        cmocka_unit_test(update_limits_match_long_double),
    };
    return cmocka_run_group_tests_name("gcomp map", tests, NULL, NULL);
}
