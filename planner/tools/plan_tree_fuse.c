/*
 * Fusing ahead of the choice of options: which neighbours travel as one message of an option tree.
 *
 * The planners of fused plans know methods, ways to send that have a cost curve for every size. So a few
 * options that are the cheapest somewhere become methods, with a curve through their prices at sizes from one
 * element to all of the model; gw_plan_solve() cuts for these at the serial level. Of the cuts of equal
 * length it may return one with many groups, so neighbours are joined that can travel as one at no loss.
 * Afterwards every group is free to take any option of the tree; a cut that is longer than single tensors
 * then is not taken. What is proven of the plan holds for these groups; another cut may be shorter.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
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

/* Elements of the largest group. */
static int64_t len_max(const plan_case *c, const plan_model *model)
{
    const int64_t total = plan_model_len(model, 0, model->count);
    int64_t most = c->group_len_max > 0 ? c->group_len_max : total;
    for (uint32_t i = 0; i < model->count; i++) {
        most = model->tensors[i].len > most ? model->tensors[i].len : most;
    }
    return most < total ? most : total;
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

/* Cuts the model for these methods; joined: the same cut with neighbours joined. */
static gw_status cut_for(const plan_case *c, const plan_model *model, const gw_plan_method *methods,
                         uint32_t method_count, const gw_plan_limits *limits, gw_plan *cut, gw_plan *joined)
{
    gw_plan_tensor *tensors = plan_alloc(model->count, sizeof *tensors);
    for (uint32_t i = 0; i < model->count; i++) {
        tensors[i] = (gw_plan_tensor){NULL, model->tensors[i].len, model->tensors[i].bwd, 0};
    }
    const gw_plan_problem problem = {.tensors = tensors,
                                     .tensor_count = model->count,
                                     .methods = methods,
                                     .method_count = method_count,
                                     .decode = c->decode,
                                     .group_len_max = c->group_len_max};
    const gw_plan_solver solver = {GW_PLAN_AUTO, 0, *limits};
    const gw_workspace workspace = plan_workspace(gw_plan_workspace_size(&problem, GW_PLAN_AUTO));
    gw_plan_cert cert;
    *cut = (gw_plan){plan_alloc(model->count, sizeof *cut->groups), model->count, 0};
    const gw_status status = gw_plan_solve(&problem, &solver, cut, &cert, &workspace);
    *joined = (gw_plan){plan_alloc(model->count, sizeof *joined->groups), model->count, 0};
    if (status == GW_OK) {
        joined->group_count = cut->group_count;
        memcpy(joined->groups, cut->groups, cut->group_count * sizeof *cut->groups);
        join_all(&problem, joined, cert.makespan);
    }
    free(tensors);
    return status;
}

/* The iteration with the best options of these groups; NULL: of single tensors. INT64_MAX: there are none. */
static gw_plan_tick iteration(const plan_library *library, const plan_case *c, const plan_model *model,
                              const gw_plan_limits *limits, const gw_plan *cut)
{
    plan_tree t;
    gw_plan_cert cert = {.makespan = INT64_MAX};
    if (plan_tree_make(library, c, model, cut, 1, &t) == GW_CLI_OK) {
        plan_tree_solve(&t, limits, &cert);
    }
    plan_tree_free(&t);
    return cert.makespan;
}

/* Leaves the fewest groups with which the iteration is as short as with single tensors, whose options are
 * more than the methods were. */
static void choose(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan_limits *limits, gw_plan *cut, gw_plan *joined)
{
    const gw_plan_tick alone = iteration(library, c, model, limits, NULL);
    if (iteration(library, c, model, limits, joined) <= alone) {
        const gw_plan other = *cut;
        *cut = *joined;
        *joined = other;
    } else if (iteration(library, c, model, limits, cut) > alone) {
        cut->group_count = model->count;
        for (uint32_t i = 0; i < model->count; i++) {
            cut->groups[i] = (gw_plan_group){i, 1, 0};
        }
    }
}

int plan_tree_fuse(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan_limits *limits, gw_plan *cut)
{
    plan_model sizes;
    plan_tree t;
    gw_plan_method methods[FUSE_METHODS_MAX];
    uint32_t method_count = 0;
    gw_plan joined = {NULL, 0, 0};
    gw_status status = GW_OK;
    make_sizes(len_max(c, model), &sizes);
    *cut = (gw_plan){NULL, 0, 0};
    int64_t *lens = plan_alloc(sizes.count, sizeof *lens);
    for (uint32_t i = 0; i < sizes.count; i++) {
        lens[i] = sizes.tensors[i].len;
    }
    const int code = plan_tree_make(library, c, &sizes, NULL, 0, &t);
    if (code == GW_CLI_OK) {
        method_count = t.class_first[1] > 0 ? make_methods(&t, lens, methods) : 0;
        status = method_count > 0 ? cut_for(c, model, methods, method_count, limits, cut, &joined)
                                  : GW_ERR_INFEASIBLE;
    }
    if (code == GW_CLI_OK && status == GW_OK) {
        choose(library, c, model, limits, cut, &joined);
    }
    for (uint32_t m = 0; m < method_count; m++) {
        free((void *)methods[m].enc.table_y);
        free((void *)methods[m].net.table_y);
        free((void *)methods[m].dec.table_y);
    }
    free(lens);
    free(joined.groups);
    plan_tree_free(&t);
    plan_model_free(&sizes);
    return code != GW_CLI_OK ? code
           : status != GW_OK ? gw_cli_error(GW_CLI_BAD_DATA, NULL, "fuse: %s", gw_status_message(status))
                             : GW_CLI_OK;
}
