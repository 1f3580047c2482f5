/*
 * Fusing ahead of the choice of options: which neighbours travel as one message of an option tree.
 *
 * The planners of fused plans know methods, ways to send that have a cost curve for every size. So a few
 * options that are the cheapest somewhere become methods, with a curve through their prices at sizes from one
 * element to all of the model; gw_plan_solve() cuts for these at the serial level. Of the cuts of equal
 * length it may return one with many groups, so neighbours are joined that can travel as one at no loss.
 * Afterwards every group is free to take any option of the tree. Of the cut, the joined cut and single
 * tensors the shortest is taken then. What is proven of the plan holds for its groups; another cut may be
 * shorter.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"
#include "plan_tree.h"

/* Options that become methods. The time of the search grows with their number; trees of measured jobs use two
 * to four. */
#define FUSE_METHODS_MAX 8

/* Sizes between a power of two and the next one. Between sizes a curve is a chord, which follows the kinks of
 * the curves of codecs. */
#define SIZES_PER_OCTAVE 4

/* Mixes of GPU and network time under which an option is the cheapest of a size, as where the tree's solver
 * begins. */
#define MIX_MAX 8

/* Joining groups looks at every tensor for each method and group. Cuts for which that is more than so often,
 * about a second, stay as they are. */
#define JOIN_WORK_MAX (UINT64_C(1) << 20)

typedef struct fusing {
    const plan_library *library;
    const plan_case *c;
    const plan_model *model;
    const gw_plan_limits *limits;
    gw_plan_method methods[FUSE_METHODS_MAX];
    uint32_t method_count;
    gw_plan cut;
    gw_plan joined;        /* the cut with neighbours joined */
    int64_t group_len_max; /* 0: no limit */
    int stopped;           /* a limit ended a search early */
} fusing;

static int64_t largest_tensor(const plan_model *model)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        most = model->tensors[i].len > most ? model->tensors[i].len : most;
    }
    return most;
}

/* Whether no option takes too long to be priced at that size. */
static int can_be_priced(const plan_tree *t, const plan_case *c, int64_t len)
{
    for (uint32_t o = 0; o < t->option_count; o++) {
        gw_plan_job job;
        if (gw_plan_option_price(&t->options[o], &t->codec, &c->cluster, len, &job) == GW_ERR_TICKS) {
            return 0;
        }
    }
    return 1;
}

/* Bounds groups to sizes at which every option has a price, but not below the largest tensor. Returns the
 * elements of the largest group. t: any tree of the case. */
static int64_t bound_groups(fusing *f, const plan_tree *t)
{
    const int64_t total = plan_model_len(f->model, 0, f->model->count);
    const int64_t largest = largest_tensor(f->model);
    int64_t most = f->group_len_max > 0 && f->group_len_max < total ? f->group_len_max : total;
    most = most > largest ? most : largest;
    while (most > largest && !can_be_priced(t, f->c, most)) {
        most = most / 2 > largest ? most / 2 : largest;
        f->group_len_max = most;
    }
    return most;
}

/* Sizes from 0 to the largest group as tensors without backprop, so that the tree of them has every price. */
static void make_sizes(int64_t total, plan_model *sizes)
{
    int64_t last = 0;
    memset(sizes, 0, sizeof *sizes);
    plan_model_add(sizes, "size", 0, 0, 0);
    for (int64_t octave = 1; last < total; octave *= 2) {
        for (int step = 0; step < SIZES_PER_OCTAVE && last < total; step++) {
            int64_t len = octave + octave / SIZES_PER_OCTAVE * step;
            len = len < total ? len : total;
            if (len > last) {
                plan_model_add(sizes, "size", len, 0, 0);
                last = len;
            }
        }
    }
}

/* Prices of option v of the tree of sizes, where class k has the sizes from the largest down. */
static const gw_plan_vector *price_at(const plan_tree *t, uint32_t k, uint32_t v)
{
    return &t->vectors[t->class_first[k] + v];
}

/* Whether a method can be that option: before and after the network its codec work is on one device, and its
 * times are in the range of curves. */
static int can_be_method(const plan_tree *t, uint32_t v)
{
    int on_gpu = 0;
    int on_cpu = 0;
    int fits = 1;
    for (uint32_t k = 0; k < t->tree.class_count; k++) {
        const gw_plan_vector *p = price_at(t, k, v);
        on_gpu |= p->gpu > 0 || p->tail > 0;
        on_cpu |= p->cpu > 0 || p->tail_cpu > 0;
        fits = fits && p->gpu < GW_PLAN_TICK_MAX && p->cpu < GW_PLAN_TICK_MAX && p->net < GW_PLAN_TICK_MAX &&
               p->tail < GW_PLAN_TICK_MAX && p->tail_cpu < GW_PLAN_TICK_MAX;
    }
    return fits && (!on_gpu || !on_cpu);
}

/* Counts for each option how often it is the cheapest, over sizes and mixes. */
static void count_wins(const plan_tree *t, uint32_t option_count, uint32_t *wins)
{
    uint8_t *allowed = plan_alloc(option_count, sizeof *allowed);
    for (uint32_t v = 0; v < option_count; v++) {
        allowed[v] = (uint8_t)can_be_method(t, v);
    }
    for (uint32_t k = 0; k < t->tree.class_count; k++) {
        for (int mix = 0; mix <= MIX_MAX; mix++) {
            gw_plan_tick cheapest = INT64_MAX;
            uint32_t best = 0;
            for (uint32_t v = 0; v < option_count; v++) {
                const gw_plan_vector *p = price_at(t, k, v);
                if (!allowed[v]) {
                    continue;
                }
                const gw_plan_tick cost =
                    mix * p->net + (MIX_MAX - mix) * (p->gpu + p->tail) + p->cpu + p->tail_cpu;
                if (cost < cheapest) {
                    cheapest = cost;
                    best = v;
                }
            }
            wins[best] += cheapest < INT64_MAX;
        }
    }
    free(allowed);
}

/* A curve through one time of an option at all sizes. */
static gw_plan_cost curve(const plan_tree *t, uint32_t v, const int64_t *lens,
                          gw_plan_tick (*time)(const gw_plan_vector *))
{
    const uint32_t count = t->tree.class_count;
    gw_plan_tick *ticks = plan_alloc(count, sizeof *ticks);
    gw_plan_tick most = 0;
    for (uint32_t i = 0; i < count; i++) {
        const gw_plan_tick here = time(price_at(t, count - 1 - i, v));
        most = here > most ? here : most; /* curves must not fall */
        ticks[i] = most;
    }
    return (gw_plan_cost){GW_PLAN_COST_TABLE, 0, 0, 0, count, lens, ticks};
}

static gw_plan_tick encode_time(const gw_plan_vector *p)
{
    return p->gpu + p->cpu;
}
static gw_plan_tick network_time(const gw_plan_vector *p)
{
    return p->net;
}
static gw_plan_tick decode_time(const gw_plan_vector *p)
{
    return p->tail + p->tail_cpu;
}

/* The options that win most as methods; returns their number. */
static uint32_t make_methods(const plan_tree *t, const int64_t *lens, gw_plan_method *methods)
{
    const uint32_t option_count = t->class_first[1];
    uint32_t *wins = plan_alloc(option_count, sizeof *wins);
    uint32_t count = 0;
    memset(wins, 0, option_count * sizeof *wins);
    count_wins(t, option_count, wins);
    while (count < FUSE_METHODS_MAX) {
        uint32_t best = 0;
        for (uint32_t v = 1; v < option_count; v++) {
            best = wins[v] > wins[best] ? v : best;
        }
        if (wins[best] == 0) {
            break;
        }
        wins[best] = 0;
        gw_plan_method *method = &methods[count++];
        memset(method, 0, sizeof *method);
        for (uint32_t k = 0; k < t->tree.class_count; k++) {
            const gw_plan_vector *p = price_at(t, k, best);
            method->device = p->cpu > 0 || p->tail_cpu > 0 ? GW_PLAN_CPU : method->device;
        }
        method->enc = curve(t, best, lens, encode_time);
        method->net = curve(t, best, lens, network_time);
        method->dec = curve(t, best, lens, decode_time);
    }
    free(wins);
    return count;
}

/* Joins group j with the one before it if the iteration does not get longer by that. */
static int join(const gw_plan_problem *problem, gw_plan *cut, uint32_t j, gw_plan_group *kept,
                gw_plan_tick *makespan)
{
    const uint32_t count = cut->group_count;
    memcpy(kept, cut->groups, count * sizeof *kept);
    cut->groups[j - 1].tensor_count += cut->groups[j].tensor_count;
    memmove(&cut->groups[j], &cut->groups[j + 1], (count - j - 1) * sizeof *cut->groups);
    cut->group_count--;
    for (uint32_t m = 0; m < problem->method_count; m++) {
        gw_plan_tick joined;
        cut->groups[j - 1].method = m;
        if (gw_plan_eval(problem, cut, &joined) == GW_OK && joined <= *makespan) {
            *makespan = joined;
            return 1;
        }
    }
    memcpy(cut->groups, kept, count * sizeof *kept);
    cut->group_count = count;
    return 0;
}

/* Joins neighbours as long as that costs nothing, from the first on. */
static void join_all(const gw_plan_problem *problem, gw_plan *cut, gw_plan_tick makespan)
{
    if ((uint64_t)cut->group_count * problem->tensor_count > JOIN_WORK_MAX) {
        return;
    }
    gw_plan_group *kept = plan_alloc(cut->group_count, sizeof *kept);
    uint32_t j = 1;
    while (j < cut->group_count) {
        j += !join(problem, cut, j, kept, &makespan);
    }
    free(kept);
}

static void free_method(gw_plan_method *method)
{
    free((void *)method->enc.table_y);
    free((void *)method->net.table_y);
    free((void *)method->dec.table_y);
}

/* What a curve takes at most, by the rule of gw_plan_problem_check(): every tensor its startup, every element
 * the steepest slope. */
static double worst_time(const gw_plan_cost *cost, const plan_model *model)
{
    double steepest = 0;
    for (uint32_t i = 1; i < cost->table_len; i++) {
        const double rise = (double)(cost->table_y[i] - cost->table_y[i - 1]);
        steepest = fmax(steepest, rise / (double)(cost->table_x[i] - cost->table_x[i - 1]));
    }
    return (double)cost->table_y[0] * model->count +
           steepest * (double)plan_model_len(model, 0, model->count);
}

/* The solver adds up the worst times of all methods and refuses the problem if the sum is too large. An
 * option that is the cheapest of a few elements can take that long for all of the model, so the worst one
 * goes. */
static void drop_worst_method(fusing *f)
{
    uint32_t worst = 0;
    double longest = -1;
    for (uint32_t m = 0; m < f->method_count; m++) {
        const gw_plan_method *method = &f->methods[m];
        const double time = worst_time(&method->enc, f->model) + worst_time(&method->net, f->model) +
                            worst_time(&method->dec, f->model);
        worst = time > longest ? m : worst;
        longest = fmax(longest, time);
    }
    free_method(&f->methods[worst]);
    f->method_count--;
    memmove(&f->methods[worst], &f->methods[worst + 1], (f->method_count - worst) * sizeof *f->methods);
}

/* Makes f->cut and f->joined. GW_ERR_TICKS: the times of every method are too large. */
static gw_status cut_for_methods(fusing *f)
{
    const uint32_t n = f->model->count;
    gw_plan_tensor *tensors = plan_alloc(n, sizeof *tensors);
    for (uint32_t i = 0; i < n; i++) {
        tensors[i] = (gw_plan_tensor){NULL, f->model->tensors[i].len, f->model->tensors[i].bwd, 0};
    }
    gw_plan_problem problem = {.tensors = tensors,
                               .tensor_count = n,
                               .methods = f->methods,
                               .decode = f->c->decode,
                               .group_len_max = f->group_len_max};
    const gw_plan_solver solver = {GW_PLAN_AUTO, 0, *f->limits};
    gw_status status = GW_ERR_TICKS;
    gw_plan_cert cert = {.makespan = 0};
    while (status == GW_ERR_TICKS && f->method_count > 0) {
        problem.method_count = f->method_count;
        const gw_workspace workspace = plan_workspace(gw_plan_workspace_size(&problem, GW_PLAN_AUTO));
        status = gw_plan_solve(&problem, &solver, &f->cut, &cert, &workspace);
        if (status == GW_ERR_TICKS) {
            drop_worst_method(f);
        }
    }
    if (status == GW_OK) {
        f->stopped |= cert.stopped;
        f->joined.group_count = f->cut.group_count;
        memcpy(f->joined.groups, f->cut.groups, f->cut.group_count * sizeof *f->cut.groups);
        join_all(&problem, &f->joined, cert.makespan);
    }
    free(tensors);
    return status;
}

/* The iteration with the best options of these groups; NULL: of single tensors. INT64_MAX: there are none. */
static gw_plan_tick iteration(fusing *f, const gw_plan *cut)
{
    plan_tree t;
    gw_plan_cert cert = {.makespan = INT64_MAX};
    if (plan_tree_make(f->library, f->c, f->model, cut, 1, &t) == GW_CLI_OK) {
        plan_tree_solve(&t, f->limits, &cert);
    }
    f->stopped |= cert.stopped;
    plan_tree_free(&t);
    return cert.makespan;
}

static void swap(gw_plan *a, gw_plan *b)
{
    const gw_plan other = *a;
    *a = *b;
    *b = other;
}

static void set_single(fusing *f)
{
    f->cut.group_count = f->model->count;
    for (uint32_t i = 0; i < f->model->count; i++) {
        f->cut.groups[i] = (gw_plan_group){i, 1, 0};
    }
}

/* Leaves in f->cut what makes the shortest iteration with all options, which are more than the methods were:
 * the joined cut, the cut or single tensors. Of equal ones, the one with the fewest groups, in this order. */
static void choose(fusing *f)
{
    const gw_plan_tick alone = iteration(f, NULL);
    const gw_plan_tick joined = iteration(f, &f->joined);
    const int same = f->joined.group_count == f->cut.group_count; /* none were joined */
    const gw_plan_tick cut = same ? joined : iteration(f, &f->cut);
    if (joined <= cut && joined <= alone) {
        swap(&f->cut, &f->joined);
    } else if (cut > alone) {
        set_single(f);
    }
}

/* Single tensors, as no method cuts; GW_ERR_INFEASIBLE: one is larger than a group may be. */
static gw_status leave_single(fusing *f)
{
    static int was_said; /* once, however often the command solves */
    for (uint32_t i = 0; i < f->model->count; i++) {
        if (f->c->group_len_max > 0 && f->model->tensors[i].len > f->c->group_len_max) {
            return GW_ERR_INFEASIBLE;
        }
    }
    if (!was_said) {
        gw_cli_note("--fuse fuses nothing: no option can be a method of the fused planner, whose times must "
                    "stay below 2^58 ticks (275 s) in the worst plan");
    }
    was_said = 1;
    set_single(f);
    return GW_OK;
}

/* Makes the methods from options' prices at these sizes and cuts. */
static gw_status cut_by_prices(fusing *f, const plan_tree *t, const plan_model *sizes)
{
    int64_t *lens = plan_alloc(sizes->count, sizeof *lens);
    for (uint32_t i = 0; i < sizes->count; i++) {
        lens[i] = sizes->tensors[i].len;
    }
    f->method_count = t->class_first[1] > 0 ? make_methods(t, lens, f->methods) : 0;
    f->cut = (gw_plan){plan_alloc(f->model->count, sizeof *f->cut.groups), f->model->count, 0};
    f->joined = (gw_plan){plan_alloc(f->model->count, sizeof *f->joined.groups), f->model->count, 0};
    gw_status status = cut_for_methods(f);
    if (status == GW_OK) {
        choose(f);
    } else if (status == GW_ERR_TICKS) {
        status = leave_single(f);
    }
    for (uint32_t m = 0; m < f->method_count; m++) {
        free_method(&f->methods[m]);
    }
    free(lens);
    return status;
}

int plan_tree_fuse(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan_limits *limits, gw_plan *cut, int *stopped)
{
    fusing f = {
        .library = library, .c = c, .model = model, .limits = limits, .group_len_max = c->group_len_max};
    plan_model sizes;
    plan_tree t;
    make_sizes(0, &sizes);
    int code = plan_tree_make(library, c, &sizes, NULL, 0, &t);
    if (code == GW_CLI_OK) {
        plan_model_free(&sizes);
        make_sizes(bound_groups(&f, &t), &sizes);
        plan_tree_free(&t);
        code = plan_tree_make(library, c, &sizes, NULL, 0, &t);
    }
    if (code == GW_CLI_OK) {
        const gw_status status = cut_by_prices(&f, &t, &sizes);
        code = status == GW_OK ? GW_CLI_OK
                               : gw_cli_error(GW_CLI_BAD_DATA, NULL, "fuse: %s", gw_status_message(status));
    }
    free(f.joined.groups);
    plan_tree_free(&t);
    plan_model_free(&sizes);
    *cut = f.cut;
    *stopped = f.stopped;
    return code;
}
