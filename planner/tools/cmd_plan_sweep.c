/*
 * plan sweep: what if the network, the number of GPUs, the payload or the batch were different?
 *
 * bandwidth multiplies the speed of all links, ratio the payload of the compressing codecs, batch the
 * backprop times; ranks sets the number of GPUs. The break-even bandwidth is where the best plan that may
 * compress stops being shorter than the best that may not; found by bisection on the solver.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_chart.h"
#include "plan_json.h"
#include "plan_memory.h"

typedef enum sweep_axis { AXIS_BANDWIDTH, AXIS_RANKS, AXIS_RATIO, AXIS_BATCH } sweep_axis;

typedef struct sweep {
    const plan_request *request;
    const plan_opened *o;
    sweep_axis axis;
    double from, to;
    long count;
} sweep;

static gw_plan_tick scale_tick(gw_plan_tick tick, double factor)
{
    double scaled = (double)tick * factor;
    return scaled >= (double)GW_PLAN_TICK_MAX ? GW_PLAN_TICK_MAX : (gw_plan_tick)llround(scaled);
}

/* Changes the case, codecs or links; for AXIS_BATCH the caller has copied the tensors. */
static void change(plan_opened *o, sweep_axis axis, double value)
{
    gw_plan_cluster *cluster = &o->c.cluster;
    switch (axis) {
    case AXIS_BANDWIDTH:
        cluster->intra.beta_kib = scale_tick(cluster->intra.beta_kib, 1 / value);
        cluster->inter.beta_kib = scale_tick(cluster->inter.beta_kib, 1 / value);
        for (int op = 0; op < GW_PLAN_OP_COUNT; op++) {
            cluster->ops[op].beta_kib = scale_tick(cluster->ops[op].beta_kib, 1 / value);
        }
        break;
    case AXIS_RANKS:
        cluster->op_set = 0; /* measured with other ranks */
        *(cluster->nodes > 1 ? &cluster->nodes : &cluster->gpus) = (uint32_t)llround(value);
        break;
    case AXIS_RATIO:
        o->library.payload_scale = value;
        break;
    case AXIS_BATCH:
    default:
        for (uint32_t i = 0; i < o->model.count; i++) {
            o->model.tensors[i].bwd = scale_tick(o->model.tensors[i].bwd, value);
        }
        break;
    }
}

/* Leaves only uncompressed sending. */
static void forbid_compression(plan_case *c)
{
    if (c->kind == PLAN_TREE) {
        c->comp_max = 0; /* the tree's options without compression */
        return;
    }
    plan_case_fp32(c);
}

/* Makespan and bound of the best plan of the changed case; dense: without compression. */
static gw_plan_cert solve_at(const sweep *s, double value, int dense, const char *algorithm)
{
    plan_opened o = *s->o; /* shares all memory but copies codecs and case */
    gw_plan_tensor *scaled = NULL;
    if (s->axis == AXIS_BATCH) {
        scaled = plan_alloc(o.model.count, sizeof *scaled);
        memcpy(scaled, o.model.tensors, o.model.count * sizeof *scaled);
        o.model.tensors = scaled;
    }
    change(&o, s->axis, value);
    if (dense) {
        forbid_compression(&o.c);
    }
    plan_result result;
    const gw_plan_limits limits = plan_limits(&s->request->limits, 200);
    plan_run(&o, algorithm, NULL, &limits, &result);
    const gw_plan_cert cert = result.cert;
    plan_result_free(&result);
    free(scaled);
    return cert;
}

/* Where break_even() looks. Slower iterations are of no use, and the planner's times end at 275 s. */
#define FACTOR_MIN 1e-3
#define FACTOR_MAX 1e4
#define SLOWEST_US 2e6

/* Whether compression shortens the iteration at `factor` times the bandwidth. */
static int compression_pays(const sweep *s, double factor, double *best_us)
{
    *best_us = plan_us(solve_at(s, factor, 0, "auto").makespan);
    return *best_us < plan_us(solve_at(s, factor, 1, "auto").makespan) * (1 - 1e-6);
}

/* The largest factor at which compression pays; NAN when there is none in the range. */
static double break_even(const sweep *s)
{
    double low = 1;
    double high = 1;
    double best_us = 0;
    int pays = compression_pays(s, 1, &best_us);
    const int upwards = pays;
    while (pays == upwards && (upwards ? high < FACTOR_MAX : low > FACTOR_MIN && best_us < SLOWEST_US)) {
        if (upwards) {
            low = high;
            high *= 4;
        } else {
            high = low;
            low /= 4;
        }
        pays = compression_pays(s, upwards ? high : low, &best_us);
    }
    if (pays == upwards) {
        return (double)NAN;
    }
    for (int i = 0; i < 20; i++) {
        const double middle = sqrt(low * high);
        *(compression_pays(s, middle, &best_us) ? &low : &high) = middle;
    }
    return low;
}

static void write_svg(const sweep *s, const plan_sweep_point *points)
{
    static const char *const titles[4] = {"bandwidth of all links over that of the case", "machines or GPUs",
                                          "payload over that of the codecs",
                                          "backprop time over that of the model"};
    const plan_sweep_chart chart = {points, (size_t)s->count, titles[s->axis],
                                    s->o->c.kind == PLAN_TREE ? "ByteComp" : "PyTorch DDP, float32"};
    plan_sweep_chart_write(&chart, s->request->svg);
}

/* Most points, and most machines or GPUs (plan.h). */
enum { COUNT_MAX = 100000, RANKS_MAX = 65536 };

/* nodes: machines where the case has several, else GPUs; ranks is the same number */
static const char *const axes[] = {"bandwidth", "ranks", "ratio", "batch", "nodes", NULL};

/* Axis and range. */
static sweep parse_range(const plan_request *a)
{
    char rest = 0;
    sweep s = {.request = a, .axis = a->axis == 4 ? AXIS_RANKS : (sweep_axis)a->axis};
    s.from = s.axis == AXIS_RANKS ? 2 : 0.125;
    s.to = 64;
    s.count = s.axis == AXIS_RANKS ? 6 : 10;
    if (a->values != NULL &&
        (sscanf(a->values, "%lf:%lf:%ld%c", &s.from, &s.to, &s.count, &rest) != 3 || !(s.from > 0) ||
         !(s.to >= s.from) || !isfinite(s.to) || s.count < 1 || s.count > COUNT_MAX)) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--values needs FROM:TO:COUNT with 0 < FROM <= TO and COUNT in 1..%d",
                    COUNT_MAX);
    }
    if (s.axis == AXIS_RANKS && (s.from < 1 || s.to > RANKS_MAX)) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--values: %s are from 1 to %d", axes[a->axis], RANKS_MAX);
    }
    return s;
}

/* Solves point i: the best plan, the best without compression, and a baseline. */
static plan_sweep_point solve_point(const sweep *s, long i, json_t *rows)
{
    const int tree = s->o->c.kind == PLAN_TREE;
    const double t = s->count > 1 ? (double)i / (double)(s->count - 1) : 0;
    const double at = s->from * pow(s->to / s->from, t);
    const double value = s->axis == AXIS_RANKS ? round(at) : at;
    const gw_plan_cert best = solve_at(s, value, 0, "auto");
    const gw_plan_cert dense = solve_at(s, value, 1, "auto");
    const gw_plan_cert baseline = solve_at(s, value, 0, tree ? "bytecomp" : "ddp");
    const plan_sweep_point point = {
        .value = value,
        .best_us = plan_us(best.makespan),
        .bound_us = plan_us(best.lower_bound),
        .dense_us = plan_us(dense.makespan),
        .baseline_us = plan_us(baseline.makespan),
    };
    if (!s->request->common.json) {
        printf("%12.4g %12.3f %12.3f %12.3f %12.3f\n", value, point.best_us / 1e3, point.bound_us / 1e3,
               point.dense_us / 1e3, point.baseline_us / 1e3);
    }
    json_array_append_new(rows,
                          json_pack("{s:f,s:f,s:f,s:f,s:f}", "value", value, "best_us", point.best_us,
                                    "lower_bound_us", point.bound_us, "no_compression_us", point.dense_us,
                                    tree ? "bytecomp_us" : "ddp_us", point.baseline_us));
    return point;
}

static void print_break_even(const plan_opened *o, double even)
{
    const gw_plan_cluster *cluster = &o->c.cluster;
    const gw_plan_tick kib = cluster->nodes > 1 ? cluster->inter.beta_kib : cluster->intra.beta_kib;
    if (isnan(even)) {
        printf("no break-even bandwidth between %g and %g times the case's, "
               "as far as an iteration stays below %g s\n",
               FACTOR_MIN, FACTOR_MAX, SLOWEST_US / 1e6);
    } else {
        printf("break-even: compression shortens the iteration (by more than 1e-6) "
               "up to %.4g times the case's bandwidth, %.4g us per 1024 bytes\n",
               even, plan_us(kib) / even);
    }
}

static int run_sweep(const plan_request *a)
{
    static plan_opened o;
    const int json = a->common.json;
    sweep s = parse_range(a);
    plan_opened_open(&a->of_case, a->common.input, &o);
    s.o = &o;
    plan_sweep_point *points = plan_alloc((size_t)s.count, sizeof *points);
    json_t *rows = json_array();
    double even = NAN;
    if (!json) {
        printf("%s, case %s%s\n%12s %12s %12s %12s %12s\n", o.path, o.c.name,
               o.c.fuse ? "; bounds are of the best plan's groups" : "", axes[a->axis], "best ms", "bound ms",
               "no codec ms", o.c.kind == PLAN_TREE ? "ByteComp ms" : "DDP ms");
    }
    for (long i = 0; i < s.count; i++) {
        points[i] = solve_point(&s, i, rows);
    }
    if (s.axis == AXIS_BANDWIDTH) {
        even = break_even(&s);
        if (!json) {
            print_break_even(&o, even);
        }
    }
    if (a->svg != NULL) {
        write_svg(&s, points);
    }
    json_t *root = json_pack("{s:s,s:s,s:o,s:o}", "case", o.c.name, "axis", axes[a->axis], "points", rows,
                             "break_even_bandwidth_factor", gw_cli_json_real(even));
    if (o.c.fuse) { /* as in plan files */
        json_object_set_new(root, "bound_of", json_string("groups"));
    }
    if (json || a->common.output != NULL) {
        plan_json_write(json_incref(root), plan_output_path(a), PLAN_JSON_INDENTED);
    }
    json_decref(root);
    free(points);
    plan_opened_close(&o);
    return GW_CLI_OK;
}

static const gw_option options[] = {
    {"axis", "bandwidth|nodes|ratio|batch", "What varies", GW_CHOICE(plan_request, axis, axes),
     .wanted = "one of bandwidth, nodes (or ranks), ratio, batch"},
    {"values", "A:B:N", "Factors (bandwidth, ratio, batch; geometric) or ranks from A to B",
     GW_TEXT(plan_request, values)},
    PLAN_JSON_ROW,
    GW_OUTPUT_ROW("FILE", "Write the points as JSON to FILE"),
    PLAN_SVG_ROW("Draw the curve"),
    {0},
};

const plan_verb plan_verb_sweep = {
    .name = "sweep",
    .summary = "bandwidth, ranks, ratio, batch; break-even bandwidth",
    .run = run_sweep,
    .input_min = 1,
    .input_max = 1,
    .takes = "one model",
    .line = {.usage = "MODEL",
             .help = "Varies bandwidth, ranks, ratio or batch; finds the break-even bandwidth.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options},
             .more = {PLAN_CASE_GROUP, PLAN_LIMIT_GROUP}},
};
