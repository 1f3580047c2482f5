/*
 * Fused groups through the label engine: any curves, decode, methods, forbidden methods, memory cap.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "labels.h"
#include "wide.h"

/* What the tensors from k on add to the error, if it is bounded. 0 when the arena is too small. */
static int open_errors(const gw_plan_problem *problem, gw_arena *arena, gw_label_source *source)
{
    const uint32_t n = problem->tensor_count;
    if (problem->error_max == 0) {
        return 1;
    }
    int64_t *least = gw_arena_take(arena, (size_t)n + 1, sizeof *least);
    int64_t *most = gw_arena_take(arena, (size_t)n + 1, sizeof *most);
    if (least == NULL || most == NULL) {
        return 0;
    }
    int64_t largest = 0;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        largest = gw_tick_max(largest, problem->methods[m].error);
    }
    least[n] = 0;
    most[n] = 0;
    for (uint32_t k = n; k-- > 0;) {
        const int64_t len = problem->tensors[k].len;
        least[k] = least[k + 1] + (len > 0 ? gw_plan_error_min(problem, k) : 0);
        most[k] = most[k + 1] + largest * len;
    }
    source->error_least = least;
    source->error_most = most;
    return 1;
}

/* Prefix sums and flags of a problem; 0 when the arena is too small. */
static int open_source(const gw_plan_problem *problem, gw_arena *arena, gw_label_source *source)
{
    gw_plan_sums sums;
    if (!gw_plan_sums_make(problem, arena, &sums)) {
        return 0;
    }
    *source = (gw_label_source){.tensor_count = problem->tensor_count,
                                .bwd_sum = sums.bwd,
                                .len_sum = sums.len,
                                .decode = problem->decode,
                                .vector_count_max = problem->method_count,
                                .problem = problem};
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const gw_plan_method *method = &problem->methods[m];
        const int on_cpu = method->device == GW_PLAN_CPU;
        const int decodes = !gw_cost_is_zero(&method->dec) || !gw_cost_is_zero(&method->dec_more);
        const int copies = on_cpu && !gw_cost_is_zero(&method->host);
        source->has_cpu |= copies || (on_cpu && !gw_cost_is_zero(&method->enc));
        source->has_tail |= !on_cpu && decodes;
        source->has_tail_cpu |= copies || (on_cpu && decodes);
    }
    return open_errors(problem, arena, source);
}

gw_plan_tick gw_label_root_bound(const gw_plan_problem *problem, gw_plan_tick ub, gw_arena *arena)
{
    gw_label_source source;
    return open_source(problem, arena, &source) ? gw_label_bound(&source, ub, NULL, arena) : 0;
}

/* Bucket plans of a few sizes give a first plan, so that bounds can prune from the start. */
static gw_plan_tick first_plan(const gw_plan_problem *problem, gw_plan *plan)
{
    gw_plan_tick best = INT64_MAX;
    gw_plan_bucket_rule best_rule = {0, 0, 0, 0};
    for (uint32_t m = 0; m < problem->method_count; m++) {
        for (int64_t mib = 0; mib <= 64; mib = mib == 0 ? 1 : 2 * mib) {
            gw_plan_tick makespan;
            int64_t cap = mib << 18; /* float32 elements per MiB */
            const gw_plan_bucket_rule rule = {m, cap, cap, problem->group_len_max > 0};
            if (problem->group_len_max > 0 && cap > problem->group_len_max) {
                break;
            }
            if (gw_bucket_fill(problem, &rule, plan) == GW_OK &&
                gw_plan_eval(problem, plan, &makespan) == GW_OK && makespan < best) {
                best = makespan;
                best_rule = rule;
            }
        }
    }
    if (best < INT64_MAX) {
        (void)gw_bucket_fill(problem, &best_rule, plan);
    }
    return best;
}

static void store_path(const gw_label_path *path, gw_plan *plan)
{
    plan->group_count = 0;
    for (uint32_t j = path->count; j-- > 0;) {
        const gw_label_step *step = &path->steps[j];
        (void)gw_plan_append(plan, step->first, step->first + step->tensor_count, step->option);
    }
}

/* A share of what a search may take. */
static gw_plan_limits share_of(const gw_plan_limits *limits, int parts)
{
    static const gw_plan_limits none = {NULL, NULL, 0, 0, 0, 0};
    gw_plan_limits share = limits != NULL ? *limits : none;
    share.clock_max = share.clock_max / parts + (share.clock_max % parts != 0);
    share.work_max = share.work_max / (uint64_t)parts + (share.work_max % (uint64_t)parts != 0);
    return share;
}

/* What the searches for a first plan under a bound of the error work on. */
typedef struct error_search {
    gw_label_source source; /* without the bound */
    gw_plan_limits limits;
    gw_label_path *path;
    const gw_arena *arena;
    gw_plan *trial; /* of the last search */
    gw_plan *plan;
    gw_plan_tick best;  /* makespan of the plan */
    gw_plan_tick scale; /* of prices */
} error_search;

/* One search; takes its plan if it keeps the bound and is the best. Returns 1 if it keeps the bound. */
static int try_search(error_search *s)
{
    gw_arena spare = *s->arena;
    gw_plan_cert cert = {INT64_MAX, 0, 0, 0, 0, 0};
    gw_plan_tick makespan;
    if (gw_label_search(&s->source, &s->limits, s->path, &cert, &spare) != GW_OK) {
        return 0;
    }
    store_path(s->path, s->trial);
    if (gw_plan_eval(s->source.problem, s->trial, &makespan) != GW_OK) {
        return 0;
    }
    if (makespan < s->best) {
        s->best = makespan;
        s->plan->group_count = s->trial->group_count;
        for (uint32_t j = 0; j < s->trial->group_count; j++) {
            s->plan->groups[j] = s->trial->groups[j];
        }
    }
    return 1;
}

#define RATE_LOW  (-208) /* sixteenths of an octave: too low a price */
#define RATE_HIGH 0
#define RATE_NEAR 32

/* The price at which an error of error_max costs as much as s->scale, times 2^(sixteenths / 16). */
static int64_t rate_at(const error_search *s, int sixteenths)
{
    static const int64_t steps[16] = {64, 67, 70, 73,  76,  79,  83,  87,
                                      91, 95, 99, 103, 108, 112, 117, 123}; /* 64 * 2^(i / 16) */
    const unsigned above = (unsigned)(sixteenths - RATE_LOW);
    const gw_wide ticks = gw_wide_mul(gw_wide_from(s->scale), steps[above % 16] << (above / 16));
    /* 64 * 2^(-RATE_LOW / 16) is 2^19 */
    const int64_t rate = gw_wide_div(gw_wide_mul(ticks, INT64_C(1) << (GW_RATE_SHIFT - 19)),
                                     gw_wide_from(s->source.problem->error_max), GW_WIDE_DOWN);
    return gw_tick_min(rate, INT64_C(1) << 62);
}

/* A price and its bound of the empty schedule. */
typedef struct rate_trial {
    int at;
    gw_plan_tick bound;
} rate_trial;

/* Takes a price if its bound is higher. Returns 1 if it is. */
static int try_rate(const error_search *s, gw_clock_guard *guard, int at, rate_trial *best)
{
    gw_label_source source = s->source;
    gw_arena spare = *s->arena;
    if (at < RATE_LOW || at > RATE_HIGH) {
        return 0;
    }
    source.bound_rate = rate_at(s, at);
    const gw_plan_tick bound = gw_label_bound(&source, s->best, guard, &spare);
    const int higher = bound > best->bound;
    *best = higher ? (rate_trial){at, bound} : *best;
    return higher;
}

/*
 * The price with the highest bound of the empty schedule. As a function of the price the bound rises to one
 * maximum and falls, with the backprop time, which no price lowers, on both sides: so half octaves from above
 * until it has fallen, then finer steps.
 */
static int best_rate(const error_search *s)
{
    gw_clock_guard guard = gw_guard_open(&s->limits);
    rate_trial best = {RATE_HIGH, s->source.bwd_sum[s->source.tensor_count]};
    int falls = 0;
    for (int at = RATE_HIGH; at >= RATE_LOW && falls < 2; at -= 8) {
        falls = try_rate(s, &guard, at, &best) || best.at == RATE_HIGH ? 0 : falls + 1;
    }
    for (int step = 4; step > 0; step /= 2) {
        const int middle = best.at;
        if (!try_rate(s, &guard, middle + step, &best)) {
            (void)try_rate(s, &guard, middle - step, &best);
        }
    }
    return best.at;
}

/*
 * Good plans under a bound of the error, before the search that knows the bound: its labels differ in one
 * more clock, so it prunes late without a good plan. First the methods that keep the bound everywhere; then
 * all methods with a price of error, which is bisected until the plan just keeps the bound. Returns the price
 * for the bounds of that search, 0 if all methods keep the bound anyway.
 */
static int64_t search_with_penalties(error_search *s, const gw_plan_limits *limits)
{
    const gw_plan_problem *problem = s->source.problem;
    const int64_t len = s->source.len_sum[problem->tensor_count];
    s->source.error_least = NULL;
    s->source.error_most = NULL;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        const int coarse = len > 0 && problem->methods[m].error > problem->error_max / len;
        s->source.masked |= coarse ? UINT32_C(1) << m : 0;
    }
    (void)try_search(s);
    if (s->source.masked == 0 || s->best == INT64_MAX) {
        return 0;
    }
    s->limits = share_of(limits, 4);
    s->scale = s->best;
    s->source.masked = 0;
    const int best = best_rate(s);
    s->limits = share_of(limits, 32);
    s->limits.gap_ppm = s->limits.gap_ppm > 1000 ? s->limits.gap_ppm : 1000;
    int low = best - RATE_NEAR > RATE_LOW ? best - RATE_NEAR : RATE_LOW;
    int high = best + RATE_NEAR < RATE_HIGH ? best + RATE_NEAR : RATE_HIGH;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        s->source.net_rate = rate_at(s, middle);
        *(try_search(s) ? &high : &low) = middle;
    }
    return rate_at(s, best);
}

gw_status gw_label_fuse(const gw_plan_problem *problem, const gw_plan_limits *limits, gw_plan *plan,
                        gw_plan_cert *cert, gw_arena *arena)
{
    uint32_t n = problem->tensor_count;
    gw_label_source source;
    gw_label_path path = {gw_arena_take(arena, n, sizeof(gw_label_step)), 0};
    if (path.steps == NULL || !open_source(problem, arena, &source)) {
        return GW_ERR_WORKSPACE;
    }
    if (plan->capacity < n) {
        return GW_ERR_DST;
    }
    gw_plan_limits half;
    cert->makespan = first_plan(problem, plan);
    if (problem->error_max > 0) {
        gw_plan trial = {gw_arena_take(arena, n, sizeof(gw_plan_group)), n, 0};
        if (trial.groups == NULL) {
            return GW_ERR_WORKSPACE;
        }
        error_search search = {source, share_of(limits, 8), &path, arena, &trial, plan, cert->makespan, 0};
        source.bound_rate = search_with_penalties(&search, limits);
        cert->makespan = search.best;
        half = share_of(limits, 2);
        limits = &half;
    }
    gw_status status = gw_label_search(&source, limits, &path, cert, arena);
    if (status == GW_OK && path.count > 0) { /* else the first plan is the best */
        store_path(&path, plan);
    }
    return status;
}
