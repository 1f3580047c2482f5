/*
 * Precision map: from an optimizer's hyperparameters to the rule that the kernels apply (docs/numerics.md
 * section 2).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/sqrt.h"
#include "gcomp/gcomp_codec.h"
#include "gcomp/map_rule.h"

/* x^n by squaring, the same operations in the same order on every machine. */
static double power(double x, uint64_t n)
{
    double result = 1.0;
    for (; n != 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= x;
        }
        x *= x;
    }
    return result;
}

/* e^-x for x >= 0: a series for at most 1/16, squared as often as x was halved. Off by less than 2^-36. */
static double exp_minus(double x)
{
    double result = 1.0;
    unsigned halvings = 0;
    if (!(x < 700.0)) {
        return 0.0;
    }
    for (; x > 0x1p-4; x *= 0.5) {
        halvings++;
    }
    for (int n = 10; n >= 1; n--) {
        result = 1.0 - x / (double)n * result;
    }
    for (; halvings != 0; halvings--) {
        result *= result;
    }
    return result;
}

/* The root of a normal fp32 number in double: one step of Newton doubles the bits of the root in fp32. */
static double double_root(double x)
{
    const double near = (double)gw_sqrt((float)x);
    return 0.5 * (near + x / near);
}

/* The factors of docs/numerics.md section 2, in double and without the wire scale. */
typedef struct factors {
    double p_param, p_m, q_param, q_m, s_scale, a_scale;
    double noise_scale; /* the noise limit counts the second moment times its square */
    uint32_t uses;
} factors;

static int in_unit_interval(double x)
{
    return x >= 0.0 && x < 1.0;
}

static gw_status sgd_factors(const gw_optimizer *o, factors *f)
{
    const int has_buffer = o->kind != GW_OPTIMIZER_SGD && o->step > 1 && o->momentum != 0.0;
    double c = 1.0;       /* the factor of the gradient, without lr; no dampening in the first update */
    double carried = 0.0; /* the factor of the buffer */
    if (o->kind == GW_OPTIMIZER_MOMENTUM) {
        c = o->step > 1 ? 1.0 - o->dampening : 1.0;
        carried = o->momentum;
    } else if (o->kind == GW_OPTIMIZER_NESTEROV) {
        c = 1.0 + o->momentum;
        carried = o->momentum * o->momentum;
    }
    if (o->kind == GW_OPTIMIZER_MOMENTUM && o->momentum == 0.0) {
        c = 1.0; /* PyTorch keeps no buffer then, and dampening has no effect */
    }
    f->p_param = (1.0 - o->lr * c * o->weight_decay) / (o->lr * c);
    f->q_m = has_buffer ? carried / c : 0.0;
    f->uses = has_buffer ? GW_MAP_USES_M : 0;
    return c > 0.0 ? GW_OK : GW_ERR_OPTION;
}

static void adagrad_factors(const gw_optimizer *o, factors *f)
{
    const double lr = o->lr / (1.0 + (double)(o->step - 1) * o->lr_decay);
    f->p_param = 1.0 / lr;
    f->q_param = o->weight_decay;
    f->s_scale = 1.0;
    /* The limit is on the mean of the squares: the sum grows with every step, the noise of one encode must
     * not. */
    f->noise_scale = 1.0 / (double)gw_sqrt((float)o->step);
    f->uses = GW_MAP_USES_V;
}

static void rmsprop_factors(const gw_optimizer *o, factors *f)
{
    f->p_param = 1.0 / o->lr;
    f->p_m = o->momentum;
    f->q_param = o->weight_decay;
    f->s_scale = o->alpha;
    f->uses = GW_MAP_USES_V | (o->momentum != 0.0 ? GW_MAP_USES_M : 0u) | (o->centered ? GW_MAP_USES_A : 0u);
}

static void adam_factors(const gw_optimizer *o, factors *f)
{
    const double correction1 = 1.0 - power(o->beta1, o->step);
    const double correction2 = 1.0 - power(o->beta2, o->step);
    const double gain = correction1 / (o->lr * (1.0 - o->beta1));
    const int decoupled = o->kind == GW_OPTIMIZER_ADAMW;
    f->p_param = (decoupled ? 1.0 - o->lr * o->weight_decay : 1.0) * gain;
    f->q_m = o->beta1 / (1.0 - o->beta1);
    f->q_param = decoupled ? 0.0 : o->weight_decay;
    f->s_scale = o->beta2 / correction2;
    f->a_scale = 1.0 / correction2;
    f->uses = GW_MAP_USES_M | GW_MAP_USES_V | (o->amsgrad ? GW_MAP_USES_A : 0u);
}

/* NAdam's weight of momentum in an update: 0.96 is a constant of the algorithm, and this is its logarithm. */
static double nadam_mu(const gw_optimizer *o, double step)
{
    const double log_of_096 = -0x1.4e69ed6d80eb3p-5;
    return o->beta1 * (1.0 - 0.5 * exp_minus(step * o->momentum_decay * -log_of_096));
}

static void nadam_factors(const gw_optimizer *o, factors *f)
{
    const double mu = nadam_mu(o, (double)o->step), next = nadam_mu(o, (double)o->step + 1.0);
    const double product = o->mu_product * mu;
    const double of_m = next / (1.0 - product * next); /* of exp_avg after the update */
    const double of_gradient = (1.0 - mu) / (1.0 - product) + of_m * (1.0 - o->beta1);
    const double decay = o->decoupled_weight_decay ? o->lr * o->weight_decay : 0.0;
    f->p_param = (1.0 - decay) / (o->lr * of_gradient);
    f->q_m = of_m * o->beta1 / of_gradient;
    f->q_param = o->decoupled_weight_decay ? 0.0 : o->weight_decay;
    f->s_scale = o->beta2 / (1.0 - power(o->beta2, o->step));
    f->uses = GW_MAP_USES_M | GW_MAP_USES_V;
}

/* The update has a second moment from the step on in which rho is above 5; before it is linear. Its eps is
 * beside the root without the bias correction. */
static void radam_factors(const gw_optimizer *o, int has_noise, factors *f)
{
    const double power2 = power(o->beta2, o->step), correction2 = 1.0 - power2;
    const double longest = 2.0 / (1.0 - o->beta2) - 1.0;
    const double rho = longest - 2.0 * (double)o->step * power2 / correction2;
    const double margin = longest * 0x1p-20; /* torch may compute rho in fp32 */
    const int is_adapted = rho > 5.0 + margin;
    double gain = (1.0 - power(o->beta1, o->step)) / (o->lr * (1.0 - o->beta1));
    f->uses = GW_MAP_USES_V;
    if (!is_adapted && (longest >= 5.0 - margin || has_noise)) {
        return; /* a later root, not known yet, will divide what exp_avg takes now: nothing is dropped */
    }
    if (is_adapted) {
        const double rectified =
            (rho - 4.0) * (rho - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * rho);
        gain /= double_root(rectified * correction2);
        f->s_scale = o->beta2;
        f->noise_scale = 1.0 / double_root(correction2);
    }
    f->p_param = (o->decoupled_weight_decay ? 1.0 - o->lr * o->weight_decay : 1.0) * gain;
    f->q_m = o->beta1 / (1.0 - o->beta1);
    f->q_param = o->decoupled_weight_decay ? 0.0 : o->weight_decay;
    f->uses = GW_MAP_USES_M | (is_adapted ? GW_MAP_USES_V : 0u);
}

static void adamax_factors(const gw_optimizer *o, factors *f)
{
    f->p_param = (1.0 - power(o->beta1, o->step)) / (o->lr * (1.0 - o->beta1));
    f->q_m = o->beta1 / (1.0 - o->beta1);
    f->q_param = o->weight_decay;
    f->s_scale = o->beta2;
    f->uses = GW_MAP_USES_M | GW_MAP_USES_V;
}

static void adadelta_factors(const gw_optimizer *o, factors *f)
{
    f->p_param = 1.0 / o->lr;
    f->q_param = o->weight_decay;
    f->s_scale = o->alpha;
    f->uses = GW_MAP_USES_V | GW_MAP_USES_A;
}

static int are_nadam_options_in_range(const gw_optimizer *o)
{
    return o->momentum_decay >= 0.0 && o->momentum_decay < 1e300 && o->mu_product >= 0.0 &&
           o->mu_product <= 1.0 && (o->step != 1 || o->mu_product == 1.0);
}

static int is_in_range(const gw_optimizer *o)
{
    int ok = o->weight_decay >= 0.0 && o->weight_decay < 1e300 && o->peak_lr >= 0.0 && o->peak_lr < 1e300;
    switch (o->kind) {
    case GW_OPTIMIZER_SGD:
        break;
    case GW_OPTIMIZER_MOMENTUM:
        ok = ok && o->momentum >= 0.0 && o->momentum < 1e300 && o->dampening < 1.0 && o->dampening > -1e300;
        break;
    case GW_OPTIMIZER_NESTEROV:
        ok = ok && o->momentum > 0.0 && o->momentum < 1e300 && o->dampening == 0.0;
        break;
    case GW_OPTIMIZER_ADAGRAD:
        ok = ok && o->eps >= 0.0 && o->eps < 1e30 && o->lr_decay >= 0.0 && o->lr_decay < 1e300;
        break;
    case GW_OPTIMIZER_RMSPROP:
        ok = ok && o->eps >= 0.0 && o->eps < 1e30 && in_unit_interval(o->alpha) && o->momentum >= 0.0 &&
             o->momentum < 1e300 && (uint32_t)o->centered <= 1;
        break;
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW:
        ok = ok && o->eps >= 0.0 && o->eps < 1e30 && in_unit_interval(o->beta1) &&
             in_unit_interval(o->beta2) && (uint32_t)o->amsgrad <= 1;
        break;
    case GW_OPTIMIZER_NADAM:
    case GW_OPTIMIZER_RADAM:
    case GW_OPTIMIZER_ADAMAX:
        ok = ok && o->eps >= 0.0 && o->eps < 1e30 && in_unit_interval(o->beta1) &&
             in_unit_interval(o->beta2) &&
             (o->kind == GW_OPTIMIZER_ADAMAX || (uint32_t)o->decoupled_weight_decay <= 1) &&
             (o->kind != GW_OPTIMIZER_NADAM || are_nadam_options_in_range(o));
        break;
    case GW_OPTIMIZER_ADADELTA:
        ok = ok && o->eps >= 0.0 && o->eps < 1e30 && o->alpha >= 0.0 && o->alpha <= 1.0;
        break;
    default:
        ok = 0;
        break;
    }
    return ok;
}

/* A factor in fp32. What would be subnormal there becomes 0 before the conversion, so that neither conversion
 * nor kernels depend on whether the process flushes subnormals. */
static float factor(double x)
{
    return x < 0x1p-126 && x > -0x1p-126 ? 0.0f : (float)x;
}

static gw_status factors_of(const gw_optimizer *optimizer, int has_noise, factors *f)
{
    switch (optimizer->kind) {
    case GW_OPTIMIZER_SGD:
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
        return sgd_factors(optimizer, f);
    case GW_OPTIMIZER_ADAGRAD:
        adagrad_factors(optimizer, f);
        break;
    case GW_OPTIMIZER_RMSPROP:
        rmsprop_factors(optimizer, f);
        break;
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW:
        adam_factors(optimizer, f);
        break;
    case GW_OPTIMIZER_NADAM:
        nadam_factors(optimizer, f);
        break;
    case GW_OPTIMIZER_RADAM:
        radam_factors(optimizer, has_noise, f);
        break;
    case GW_OPTIMIZER_ADAMAX:
        adamax_factors(optimizer, f);
        break;
    case GW_OPTIMIZER_ADADELTA:
        adadelta_factors(optimizer, f);
        break;
    default:
        break;
    }
    return GW_OK;
}

static int are_limits_in_range(const gw_gcomp_map_limits *limits, const gw_optimizer *optimizer)
{
    const int has_noise = limits->noise != 0.0f;
    const int is_noise_in_range = limits->noise >= 0x1p-8f && limits->noise <= 1.0f;
    const int has_second_moment = (gw_map_uses_allowed((uint32_t)optimizer->kind) & GW_MAP_USES_V) != 0;
    return limits->tolerance_bits >= 1 && limits->tolerance_bits <= 23 && (uint32_t)limits->noise_only <= 1 &&
           (has_noise ? is_noise_in_range && has_second_moment : limits->noise_only == 0) &&
           limits->update_bits <= (limits->noise_only ? 0u : 23u);
}

/* An optimizer with a momentum that a gradient goes into; for one without, limits of its future do not count.
 */
static int has_momentum(const gw_optimizer *o)
{
    switch (o->kind) {
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
    case GW_OPTIMIZER_RMSPROP:
        return o->momentum != 0.0;
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW:
    case GW_OPTIMIZER_NADAM:
    case GW_OPTIMIZER_RADAM:
    case GW_OPTIMIZER_ADAMAX:
        return o->beta1 != 0.0;
    default:
        return 0;
    }
}

/* The tolerance's factors and its bits of rule->limits. */
static void set_tolerance(const gw_optimizer *optimizer, const gw_gcomp_map_limits *limit, const factors *f,
                          gw_gcomp_map_rule *rule)
{
    const int has_update = limit->update_bits != 0 && has_momentum(optimizer);
    if (has_update) {
        rule->limits |= GW_MAP_UPDATE;
        rule->update = (float)(1u << limit->update_bits);
    }
    if (has_update && (f->uses & GW_MAP_USES_M) == 0) {
        return; /* no momentum yet: nothing is dropped */
    }
    /* Below 0 the rate and the weight decay turn theta round: between here and a rate of 0 anything goes. */
    const int is_turned = (rule->limits & GW_MAP_RATES) != 0 && f->p_param < 0.0;
    rule->p_param = is_turned ? 0.0f : factor(f->p_param * (double)rule->wire_scale);
    rule->p_m = factor(f->p_m * (double)rule->wire_scale);
    rule->q_param = factor(f->q_param * (double)rule->wire_scale);
    rule->q_m = factor(f->q_m * (double)rule->wire_scale);
}

gw_status gw_gcomp_map_rule_init(const gw_optimizer *optimizer, float wire_scale,
                                 const gw_gcomp_map_limits *limits, gw_gcomp_map_rule *rule)
{
    const gw_gcomp_map_limits limit = limits != NULL ? *limits : (gw_gcomp_map_limits){.tolerance_bits = 23};
    if (optimizer == NULL || rule == NULL || optimizer->step == 0 || !gw_is_wire_scale(wire_scale)) {
        return GW_ERR_ARG;
    }
    if (!is_in_range(optimizer) || !are_limits_in_range(&limit, optimizer)) {
        return GW_ERR_OPTION;
    }
    const int has_noise = limit.noise != 0.0f;
    GW_MEMSET(rule, 0, sizeof *rule);
    rule->kind = (uint32_t)optimizer->kind;
    rule->uses = has_noise ? GW_MAP_USES_V : 0;
    rule->limits = (limit.noise_only ? 0u : GW_MAP_TOLERANCE) | (has_noise ? GW_MAP_NOISE : 0u);
    rule->wire_scale = wire_scale;
    /* Adamax adds eps to the magnitude of a gradient, which may not be the largest. */
    rule->eps = optimizer->kind == GW_OPTIMIZER_ADAMAX ? 0.0f : factor(optimizer->eps);
    gw_optimizer at_rate = *optimizer;
    if (has_momentum(optimizer) && optimizer->lr >= 0.0 && optimizer->lr < optimizer->peak_lr) {
        at_rate.lr = optimizer->peak_lr;
        rule->limits |= limit.noise_only ? 0u : GW_MAP_RATES;
    }
    if (!(at_rate.lr > 0.0 && at_rate.lr < 1e300)) {
        return GW_OK; /* all factors zero: every ratio is zero, nothing is dropped */
    }
    factors f = {.noise_scale = 1.0};
    if (factors_of(&at_rate, has_noise, &f) != GW_OK) {
        GW_MEMSET(rule, 0, sizeof *rule);
        return GW_ERR_OPTION;
    }
    rule->uses = limit.noise_only ? f.uses & ~(uint32_t)GW_MAP_USES_M : f.uses;
    if (!limit.noise_only) {
        set_tolerance(optimizer, &limit, &f, rule);
    }
    rule->s_scale = factor(f.s_scale);
    rule->a_scale = factor(f.a_scale);
    /* Less a guard of 2^-21: more than the sum of all rounding errors of the limit. */
    rule->noise = factor((double)limit.noise * (double)(1u << limit.tolerance_bits) * (double)wire_scale *
                         f.noise_scale * (1.0 - 0x1p-21));
    return GW_OK;
}

static int is_state_complete(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state)
{
    return ((rule->limits & GW_MAP_TOLERANCE) == 0 || state->param != NULL) &&
           ((rule->uses & GW_MAP_USES_M) == 0 || state->m != NULL) &&
           ((rule->uses & GW_MAP_USES_V) == 0 || state->v != NULL) &&
           ((rule->uses & GW_MAP_USES_A) == 0 || state->a != NULL);
}

gw_status gw_gcomp_map_scan(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                            uint32_t backends, uint32_t *top)
{
    if (rule == NULL || state == NULL || top == NULL || !gw_map_rule_is_valid(rule) ||
        (len != 0 && !is_state_complete(rule, state))) {
        return GW_ERR_ARG;
    }
    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    *top = kernels.gcomp.map_scan(rule, state, len);
    return GW_OK;
}

uint32_t gw_gcomp_map_base(uint32_t top)
{
    return top > 255 ? top - 255 : 1;
}

gw_status gw_gcomp_map_build(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                             uint32_t base, uint32_t backends, uint8_t *map_bytes)
{
    if (rule == NULL || state == NULL || !gw_map_rule_is_valid(rule) || base == 0 || base > 1023 ||
        (len != 0 && (map_bytes == NULL || !is_state_complete(rule, state)))) {
        return GW_ERR_ARG;
    }
    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    kernels.gcomp.map_build(rule, state, len, base, map_bytes);
    return GW_OK;
}

gw_status gw_gcomp_map_digest(const uint8_t *map_bytes, size_t len, uint32_t chunk_log2, uint32_t *digest)
{
    if (chunk_log2 < GW_CHUNK_LOG2_MIN || chunk_log2 > GW_CHUNK_LOG2_MAX ||
        (len != 0 && (map_bytes == NULL || digest == NULL))) {
        return GW_ERR_ARG;
    }
    gw_kernels kernels;
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    const size_t chunk_len = (size_t)1 << chunk_log2;
    for (size_t at = 0; at < len; at += chunk_len) {
        digest[at >> chunk_log2] =
            kernels.crc32c(0, map_bytes + at, len - at < chunk_len ? len - at : chunk_len);
    }
    return GW_OK;
}

uint64_t gw_map_hash(const gw_gcomp_frame_info *info, const uint32_t *digest, const gw_kernels *kernels)
{
    enum { BATCH = 32 };
    uint8_t fields[24] = {0};
    gw_store16(fields, (uint16_t)info->drop_offset);
    fields[2] = (uint8_t)info->step;
    fields[3] = (uint8_t)info->cap;
    fields[4] = (uint8_t)info->dtype;
    fields[5] = (uint8_t)info->chunk_log2;
    gw_store32(fields + 8, gw_bits_from_float(info->wire_scale));
    gw_store64(fields + 16, info->len);
    uint32_t low = kernels->crc32c(0, fields, sizeof fields);
    uint32_t high = low;
    for (uint64_t i = 0; i < info->chunk_count; i += BATCH) {
        uint8_t words[2][4 * BATCH];
        const size_t len = (size_t)gw_min_u64(info->chunk_count - i, BATCH);
        for (size_t j = 0; j < len; j++) {
            const uint32_t word = digest[i + j];
            gw_store32(words[0] + 4 * j, word);
            gw_store32(words[1] + 4 * j, word * GW_MAP_HASH_FACTOR);
        }
        low = kernels->crc32c(low, words[0], 4 * len);
        high = kernels->crc32c(high, words[1], 4 * len);
    }
    return (uint64_t)high << 32 | low;
}
