/*
 * Precision map: rules as optimizers have them and rules from random floats, states of every pattern, with
 * the processor's flush modes on and off. The model computes the ratio in long double and checks the
 * direction: a map never allows more than the exact ratio does, and, where the ratio is not a difference of
 * nearly equal numbers, hardly less.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"
#include "scalar/kernels_scalar.h"

#include <math.h>
#include <string.h>

#include "gcomp/map_rule.h"

KC_SELECT(map_scan);
KC_SELECT(map_build);

typedef struct map_call {
    gw_map_scan_fn *scan; /* one of the two */
    gw_map_build_fn *build;
    const gw_gcomp_map_rule *rule;
    gw_optimizer_state state;
    size_t len;
    uint32_t base;
    uint8_t *map_bytes;
    uint32_t top;
    int flush_mode;
} map_call;

static void call_map(void *context)
{
    map_call *c = (map_call *)context;
    if (c->flush_mode) {
        kc_flush_mode(1);
    }
    if (c->scan != NULL) {
        c->top = c->scan(c->rule, &c->state, c->len);
    } else {
        c->build(c->rule, &c->state, c->len, c->base, c->map_bytes);
    }
    if (c->flush_mode) {
        kc_flush_mode(0);
    }
}

static double random_choice(kc_rng *rng, double a, double b, double c)
{
    const uint32_t n = kc_below(rng, 3);
    return n == 0 ? a : n == 1 ? b : c;
}

/* A rule of a real optimizer. `uses` is only requested. */
static void real_rule(kc_rng *rng, gw_gcomp_map_rule *rule)
{
    gw_optimizer o;
    memset(&o, 0, sizeof o);
    o.kind = (gw_optimizer_kind)(1 + kc_below(rng, GW_OPTIMIZER_ADADELTA));
    o.step = 1 + kc_below(rng, 1000) * kc_below(rng, 2);
    o.lr = random_choice(rng, 0.1, 1e-3, 3e-5);
    o.weight_decay = random_choice(rng, 0.0, 1e-4, 0.1);
    o.momentum = random_choice(rng, 0.9, 0.5, 0.99);
    o.dampening = o.kind == GW_OPTIMIZER_MOMENTUM ? random_choice(rng, 0.0, 0.1, 0.0) : 0.0;
    o.beta1 = random_choice(rng, 0.9, 0.0, 0.5);
    o.beta2 = random_choice(rng, 0.999, 0.95, 0.0);
    o.alpha = random_choice(rng, 0.99, 0.9, 0.0);
    o.eps = random_choice(rng, 1e-8, 0.0, 1e-15);
    o.lr_decay = random_choice(rng, 0.0, 1e-3, 0.0);
    o.centered = (int)kc_below(rng, 2);
    o.amsgrad = (int)kc_below(rng, 2);
    o.peak_lr = random_choice(rng, 0.0, 0.1, 30.0) * o.lr;
    gw_gcomp_map_limits limits = {.tolerance_bits = 1 + kc_below(rng, 23)};
    o.decoupled_weight_decay = (int)kc_below(rng, 2);
    o.momentum_decay = 4e-3;
    o.mu_product = 1.0;
    if (o.kind >= GW_OPTIMIZER_ADAGRAD && kc_below(rng, 2) == 0) {
        limits.noise = (float)random_choice(rng, 1.0, 0.2, 0x1p-8);
        limits.noise_only = (int)kc_below(rng, 2);
    }
    if (!limits.noise_only && kc_below(rng, 2) == 0) {
        limits.update_bits = 1 + kc_below(rng, 23);
    }
    if (gw_gcomp_map_rule_init(&o, (float)random_choice(rng, 1.0, 8.0, 65536.0), &limits, rule) != GW_OK) {
        memset(rule, 0, sizeof *rule);
        rule->limits = GW_MAP_TOLERANCE;
    }
}

static float random_float(kc_rng *rng, unsigned pattern)
{
    uint32_t bits;
    do {
        kc_values(rng, &bits, GW_FP32, 1, pattern);
        bits &= 0x7fffffff;
    } while (bits != 0 && (bits < 0x00800000u || bits >= 0x7f800000u) && kc_below(rng, 50) != 0);
    return gw_float_from_bits(bits >= 0x00800000u && bits < 0x7f800000u ? bits : 0);
}

/* Any normal floats, and zero: anything may meet anything. */
static void random_rule(kc_rng *rng, gw_gcomp_map_rule *rule, uint32_t uses)
{
    const unsigned pattern = kc_below(rng, KC_VALUE_PATTERNS);
    memset(rule, 0, sizeof *rule);
    rule->kind = kc_below(rng, 2) == 0 ? GW_OPTIMIZER_RMSPROP : 1 + kc_below(rng, GW_OPTIMIZER_ADADELTA);
    rule->uses = uses | ((uses & GW_MAP_USES_A) != 0 ? (uint32_t)GW_MAP_USES_V : 0);
    rule->p_param = random_float(rng, pattern);
    rule->p_m = random_float(rng, kc_below(rng, KC_VALUE_PATTERNS));
    rule->q_param = random_float(rng, pattern);
    rule->q_m = random_float(rng, kc_below(rng, KC_VALUE_PATTERNS));
    rule->s_scale = random_float(rng, pattern);
    rule->a_scale = random_float(rng, pattern);
    rule->eps = random_float(rng, kc_below(rng, KC_VALUE_PATTERNS));
    rule->limits = GW_MAP_TOLERANCE;
    if ((rule->uses & GW_MAP_USES_V) != 0 && kc_below(rng, 2) == 0) {
        rule->limits = kc_below(rng, 2) == 0 ? GW_MAP_NOISE : GW_MAP_TOLERANCE | GW_MAP_NOISE;
        rule->noise = random_float(rng, pattern);
    }
    if ((rule->limits & GW_MAP_TOLERANCE) != 0) {
        rule->limits |=
            (kc_below(rng, 2) == 0 ? GW_MAP_RATES : 0u) | (kc_below(rng, 2) == 0 ? GW_MAP_UPDATE : 0u);
        rule->update = random_float(rng, kc_below(rng, KC_VALUE_PATTERNS));
    }
    rule->wire_scale = 1.0f;
}

/* theta, m, v, a in plain arrays 0..3. */
static void random_state(kc_rng *rng, const gw_gcomp_map_rule *rule, size_t len, unsigned pattern,
                         int is_real)
{
    uint8_t *theta = kc_plain(0), *m = kc_plain(1), *v = kc_plain(2), *a = kc_plain(3);
    kc_values(rng, theta, GW_FP32, len, pattern);
    kc_values(rng, m, GW_FP32, len, kc_below(rng, 2) == 0 ? pattern : kc_below(rng, KC_VALUE_PATTERNS));
    kc_values(rng, v, GW_FP32, len, kc_below(rng, 2) == 0 ? pattern : kc_below(rng, KC_VALUE_PATTERNS));
    kc_values(rng, a, GW_FP32, len, kc_below(rng, 2) == 0 ? pattern : kc_below(rng, KC_VALUE_PATTERNS));
    for (size_t i = 0; i < len; i++) {
        const float x = gw_float_from_bits(gw_load32(a + 4 * i));
        if (is_real || kc_below(rng, 8) != 0) { /* a hostile state may have negative moments */
            gw_store32(v + 4 * i, gw_load32(v + 4 * i) & 0x7fffffff);
        }
        if (is_real && (rule->uses & GW_MAP_USES_V) != 0) { /* squares of gradients */
            const float g = gw_float_from_bits(gw_load32(v + 4 * i));
            gw_store32(v + 4 * i, gw_bits_from_float(g * g));
        }
        if (rule->kind == GW_OPTIMIZER_RMSPROP && kc_below(rng, 2) == 0) {
            /* Centered: a variance of nearly nothing, near the smallest normal number, too. */
            const float small = kc_below(rng, 2) == 0 ? x : x * 0x1p-40f;
            gw_store32(a + 4 * i, gw_bits_from_float(small));
            gw_store32(v + 4 * i, (gw_bits_from_float(small * small) + kc_below(rng, 12)) & 0x7fffffff);
        }
    }
}

/* ---- model --------------------------------------------------------------------------------------------- */

static long double get(const uint8_t *p, size_t i)
{
    const uint32_t bits = gw_load32(p + 4 * i);
    return (bits & 0x7f800000u) == 0 ? 0.0L : (long double)gw_float_from_bits(bits);
}

typedef struct model_ratio {
    long double least; /* over all second moments that the update may see */
    long double s;
    long double noise;  /* the noise or update limit, infinite if there is none */
    long double factor; /* |P|: what s is multiplied with */
    long double size;   /* of the numbers whose difference it is */
    int is_finite;      /* parameter, momentum and s; else nothing may be dropped */
    int is_moderate;    /* nothing near overflow or underflow */
} model_ratio;

static model_ratio model_of(const gw_gcomp_map_rule *r, size_t i)
{
    const int uses_v = (r->uses & GW_MAP_USES_V) != 0;
    const int has_tolerance = (r->limits & GW_MAP_TOLERANCE) != 0;
    const long double theta = has_tolerance ? get(kc_plain(0), i) : 0.0L;
    const long double m = has_tolerance && (r->uses & GW_MAP_USES_M) != 0 ? get(kc_plain(1), i) : 0.0L;
    const long double v = uses_v ? get(kc_plain(2), i) : 0.0L;
    const int is_delta = r->kind == GW_OPTIMIZER_ADADELTA; /* reads a for the tolerance */
    const int uses_a = (r->uses & GW_MAP_USES_A) != 0 && r->kind != GW_OPTIMIZER_ADAMAX;
    const long double a = uses_a && (has_tolerance || !is_delta) ? get(kc_plain(3), i) : 0.0L;
    long double s = 1.0L, root = 0.0L;
    if (uses_v) {
        long double w = v * r->s_scale;
        if ((r->uses & GW_MAP_USES_A) != 0 && r->kind == GW_OPTIMIZER_RMSPROP) {
            w = (v - a * a) * r->s_scale;
            w = w < 0.0L ? 0.0L : w;
        } else if ((r->uses & GW_MAP_USES_A) != 0 && !is_delta) {
            w = fmaxl(w, a * r->a_scale);
        }
        w = w < 0.0L && w > -0x1p-126L ? 0.0L : w; /* underflow of a negative moment */
        root = r->kind == GW_OPTIMIZER_ADAMAX ? (w < 0.0L ? 0.0L : w) : sqrtl(w);
        s = is_delta ? sqrtl((v * r->s_scale + r->eps) / (a + r->eps)) : root + r->eps;
    }
    s = is_delta && !has_tolerance ? 1.0L : s;
    const long double p = (r->p_param * theta - r->p_m * m) * s;
    const long double q = r->q_param * theta + r->q_m * m;
    model_ratio out;
    out.least = fabsl(p - q);
    if (uses_v && (p > 0.0L) == (q > 0.0L) && fabsl(p) <= fabsl(q)) {
        out.least = 0.0L;
    }
    if ((r->limits & GW_MAP_RATES) != 0 && !((p - q) * theta * r->p_param > 0.0L)) {
        out.least = 0.0L; /* a smaller rate comes nearer to 0 */
    }
    out.noise = (r->limits & GW_MAP_NOISE) != 0 ? root * r->noise : (long double)INFINITY;
    if ((r->limits & GW_MAP_UPDATE) != 0 && (r->uses & GW_MAP_USES_M) != 0) {
        out.noise = fminl(out.noise, (fabsl(r->p_m * m) * s + fabsl(r->q_m * m)) * r->update);
    }
    out.least = has_tolerance ? out.least : (long double)INFINITY;
    out.s = s;
    out.factor = fabsl(r->p_param * theta) + fabsl(r->p_m * m);
    out.size = out.factor * s + fabsl(r->q_param * theta) + fabsl(r->q_m * m);
    out.is_finite = isfinite(theta) && isfinite(m) && !isnan(v) && !isnan(a) && isfinite(s);
    out.is_moderate = out.is_finite && has_tolerance && (root > 1e-12L || isinf(out.noise)) &&
                      out.noise > 1e-20L && out.factor > 1e-20L && s > 1e-12L && s < 1e12L &&
                      out.size < 1e30L && out.least > 1e-20L && fabsl(theta) < 1e15L && fabsl(m) < 1e15L &&
                      v < 1e15L && fabsl(a) < 1e15L && r->kind != GW_OPTIMIZER_RMSPROP;
    return out;
}

/* Lower end of a quarter-octave. */
static long double quarter_value(uint32_t q)
{
    return (long double)gw_float_from_bits(q << 21);
}

/* `slack` is for underflow: products below 2^-126 count as zero. Each of at most six such steps is worth
 * less than 2^-126 itself, or, in front of the multiplication by s, 2^-126 * s; where the second moment
 * underflows, s errs by up to 2^-63 * |P|. The noise limit of a rule contains no guard: three roundings. */
static int is_allowed(uint32_t q, const model_ratio *m, long double slack)
{
    return q == 0 || (m->is_finite && quarter_value(q) <= m->least * (1.0L + 0x1p-30L) + slack &&
                      quarter_value(q) <= m->noise * (1.0L + 0x1p-22L));
}

static void check_map_byte(kc_test *t, const gw_gcomp_map_rule *rule, size_t i, uint32_t q, uint32_t q_high)
{
    const int is_real = t->shape.config >= 16;
    const model_ratio m = model_of(rule, i);
    const int uses_v = (rule->uses & GW_MAP_USES_V) != 0;
    const long double slack = 0x1p-122L + (uses_v ? 0x1p-122L * m.s + 0x1p-60L * m.factor : 0.0L);
    if (!is_allowed(q, &m, slack)) {
        kc_fail(
            t, KC_MODEL,
            "[%zu] allows quarter-octave %u = %Lg, the exact ratio is %Lg, a difference of up to %Lg, the "
            "noise limit %Lg",
            i, q, quarter_value(q), m.least, m.size, m.noise);
    }
    /* Not much less either: the guard is 2^-20 of the size, and truncation to a quarter-octave the rest. */
    const long double least = fminl(m.least, m.noise);
    if (is_real && m.is_moderate && m.least > 0x1p-12L * m.size && quarter_value(q_high) < least * 0.75L) {
        kc_fail(t, KC_MODEL, "[%zu] allows only %u = %Lg, the exact ratio is %Lg", i, q_high,
                quarter_value(q_high), least);
    }
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static void prepare(kc_test *t, map_call *expected, map_call *got, gw_gcomp_map_rule *rule)
{
    const kc_shape *s = &t->shape;
    const uint32_t uses = s->config & 7;
    const int flush_mode = (s->config >> 3 & 1) != 0, is_real = (s->config >> 4 & 1) != 0;
    if (is_real) {
        real_rule(&t->rng, rule);
    } else {
        random_rule(&t->rng, rule, uses);
    }
    random_state(&t->rng, rule, s->len, s->pattern, is_real);
    kc_describe(t, "kind %u, uses %u, limits %u, %s, flush mode %s, %s", rule->kind, rule->uses, rule->limits,
                is_real ? "real" : "random", flush_mode ? "on" : "off", kc_value_pattern_name(s->pattern));

    memset(expected, 0, sizeof *expected);
    expected->rule = rule;
    expected->len = s->len;
    expected->base = 1 + kc_below(&t->rng, 1023);
    *got = *expected;
    got->flush_mode = flush_mode;
    const int has_tolerance = (rule->limits & GW_MAP_TOLERANCE) != 0;
    const struct {
        const char *name;
        const float **expected, **got;
        int used;
    } array[4] = {
        {"param", &expected->state.param, &got->state.param, has_tolerance},
        {"m", &expected->state.m, &got->state.m, has_tolerance && (rule->uses & GW_MAP_USES_M) != 0},
        {"v", &expected->state.v, &got->state.v, (rule->uses & GW_MAP_USES_V) != 0},
        {"a", &expected->state.a, &got->state.a, (rule->uses & GW_MAP_USES_A) != 0},
    };
    for (unsigned i = 0; i < 4; i++) {
        if (array[i].used) {
            *array[i].expected = (const float *)(const void *)kc_plain(i);
            *array[i].got = (const float *)(const void *)kc_in(t, array[i].name, kc_plain(i), 4 * s->len, 0,
                                                               i == 0 ? s->src : kc_place_other(t), 1);
        }
    }
    got->rule = (const gw_gcomp_map_rule *)(const void *)kc_in(t, "rule", rule, sizeof *rule, 0,
                                                               (kc_place){KC_AT_END, 0}, 8);
}

static void scan_body(kc_test *t)
{
    gw_gcomp_map_rule rule;
    map_call expected, got;
    prepare(t, &expected, &got, &rule);
    expected.scan = (gw_map_scan_fn *)t->reference;
    got.scan = (gw_map_scan_fn *)t->fn;
    if (!kc_guarded(t, call_map, &expected) || !kc_guarded(t, call_map, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    kc_equal_number(t, KC_OUTPUT, "top", expected.top, got.top);
    if (t->is_reference) {
        /* The largest of what single values give. */
        uint32_t top = 0;
        map_call one = expected;
        one.len = 1;
        for (size_t i = 0; i < t->shape.len; i++) {
            gw_optimizer_state *state = &one.state;
            const gw_optimizer_state *all = &expected.state;
            state->param = all->param == NULL ? NULL : all->param + i;
            state->m = all->m == NULL ? NULL : all->m + i;
            state->v = all->v == NULL ? NULL : all->v + i;
            state->a = all->a == NULL ? NULL : all->a + i;
            call_map(&one);
            top = one.top > top ? one.top : top;
            check_map_byte(t, &rule, i, one.top, one.top);
        }
        kc_equal_number(t, KC_MODEL, "top", top, got.top);
    }
}

static void build_body(kc_test *t)
{
    gw_gcomp_map_rule rule;
    map_call expected, got;
    const size_t len = t->shape.len;
    prepare(t, &expected, &got, &rule);
    if (kc_below(&t->rng, 4) != 0) { /* mostly the base that belongs to the state */
        expected.base = got.base = gw_gcomp_map_base(gw_map_scan_scalar(&rule, &expected.state, len));
    }
    expected.build = (gw_map_build_fn *)t->reference;
    expected.map_bytes = kc_plain(4);
    got.build = (gw_map_build_fn *)t->fn;
    got.map_bytes = kc_out(t, "map_bytes", len, 0, t->shape.dst, 1);
    if (!kc_guarded(t, call_map, &expected) || !kc_guarded(t, call_map, &got)) {
        kc_flush_mode(0);
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "map_bytes", expected.map_bytes, got.map_bytes, len, 1);
    for (size_t i = 0; i < len && t->is_reference && !t->case_failed; i++) {
        const uint32_t k = got.map_bytes[i];
        const uint32_t q = k == 0 ? 0 : k + got.base;
        /* Saturated bytes say less than the ratio does. */
        const uint32_t q_high = k == 0 ? got.base : k == 255 ? 1019 : q;
        check_map_byte(t, &rule, i, q, q_high);
    }
}

static void test_map_scan(kc_test *t)
{
    kc_walk(t, 32, KC_VALUE_PATTERNS, scan_body);
}

static void test_map_build(kc_test *t)
{
    kc_walk(t, 32, KC_VALUE_PATTERNS, build_body);
}

static void bench_map(kc_test *t, int is_scan)
{
    kc_rng rng = {1};
    gw_optimizer o;
    gw_gcomp_map_rule rule;
    memset(&o, 0, sizeof o);
    o.kind = GW_OPTIMIZER_ADAMW;
    o.step = 100;
    o.lr = 1e-3;
    o.weight_decay = 0.01;
    o.beta1 = 0.9;
    o.beta2 = 0.999;
    o.eps = 1e-8;
    if (gw_gcomp_map_rule_init(&o, 1.0f, NULL, &rule) != GW_OK) {
        return;
    }
    for (unsigned i = 0; i < 3; i++) {
        kc_values(&rng, kc_plain(i), GW_FP32, t->kernel->bench_len, 9);
    }
    for (size_t i = 0; i < t->kernel->bench_len; i++) {
        gw_store32(kc_plain(2) + 4 * i, gw_load32(kc_plain(2) + 4 * i) & 0x7fffffff);
    }
    map_call call;
    memset(&call, 0, sizeof call);
    call.scan = is_scan ? (gw_map_scan_fn *)t->fn : NULL;
    call.build = is_scan ? NULL : (gw_map_build_fn *)t->fn;
    call.rule = &rule;
    call.state.param = (const float *)(const void *)kc_plain(0);
    call.state.m = (const float *)(const void *)kc_plain(1);
    call.state.v = (const float *)(const void *)kc_plain(2);
    call.len = t->kernel->bench_len;
    call.base = 300;
    call.map_bytes = kc_plain(4);
    kc_bench(t, call_map, &call);
}

static void bench_map_scan(kc_test *t)
{
    bench_map(t, 1);
}

static void bench_map_build(kc_test *t)
{
    bench_map(t, 0);
}

const kc_kernel kc_map_family[] = {
    {"map_scan", select_map_scan, test_map_scan, bench_map_scan, 16384},
    {"map_build", select_map_build, test_map_build, bench_map_build, 16384},
    {NULL, NULL, NULL, NULL, 0},
};
