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
#include "plan_commands.h"
#include "plan_file.h"
#include "plan_json.h"
#include "plan_sweep_chart.h"

typedef enum sweep_axis { AXIS_BANDWIDTH, AXIS_RANKS, AXIS_RATIO, AXIS_BATCH } sweep_axis;

typedef struct sweep_args {
    plan_parser parser;
    plan_case_args case_args;
    plan_limit_args limit_args;
    const char *axis_name, *values, *svg;
    sweep_axis axis;
    double from, to;
    long count;
} sweep_args;

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
        break;
    case AXIS_RANKS:
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
static int solve_at(const sweep_args *a, const plan_opened *base, double value, int dense,
                    const char *algorithm, gw_plan_cert *cert)
{
    plan_opened o = *base; /* shares all memory but copies codecs and case */
    gw_plan_tensor *scaled = NULL;
    if (a->axis == AXIS_BATCH) {
        scaled = malloc(((size_t)o.model.count + 1) * sizeof *scaled);
        if (scaled == NULL) {
            return gw_cli_error(GW_CLI_IO, NULL, "out of memory");
        }
        memcpy(scaled, o.model.tensors, o.model.count * sizeof *scaled);
        o.model.tensors = scaled;
    }
    change(&o, a->axis, value);
    if (dense) {
        forbid_compression(&o.c);
    }
    plan_result result;
    const gw_plan_limits limits = plan_limits(&a->limit_args, 200);
    int code = plan_run(&o, algorithm, NULL, &limits, &result);
    if (code == GW_CLI_OK) {
        *cert = result.cert;
        plan_result_free(&result);
    }
    free(scaled);
    return code;
}

/* Where break_even() looks. Slower iterations are of no use, and the planner's times end at 275 s. */
#define FACTOR_MIN 1e-3
#define FACTOR_MAX 1e4
#define SLOWEST_US 2e6

/* *pays: compression shortens the iteration at `factor` times the bandwidth. */
static int compression_pays(const sweep_args *a, const plan_opened *o, double factor, int *pays,
                            double *best_us)
{
    gw_plan_cert best, dense;
    *pays = 0;
    int code = solve_at(a, o, factor, 0, "auto", &best);
    code = code == GW_CLI_OK ? solve_at(a, o, factor, 1, "auto", &dense) : code;
    if (code == GW_CLI_OK) {
        *best_us = plan_us(best.makespan);
        *pays = *best_us < plan_us(dense.makespan) * (1 - 1e-6);
    }
    return code;
}

/* The largest factor at which compression pays; NAN when there is none in the range. */
static int break_even(const sweep_args *a, const plan_opened *o, double *even)
{
    double low = 1;
    double high = 1;
    double best_us = 0;
    int pays = 0;
    int code = compression_pays(a, o, 1, &pays, &best_us);
    const int upwards = pays;
    *even = NAN;
    while (code == GW_CLI_OK && pays == upwards &&
           (upwards ? high < FACTOR_MAX : low > FACTOR_MIN && best_us < SLOWEST_US)) {
        if (upwards) {
            low = high;
            high *= 4;
        } else {
            high = low;
            low /= 4;
        }
        code = compression_pays(a, o, upwards ? high : low, &pays, &best_us);
    }
    if (code != GW_CLI_OK || pays == upwards) {
        return code;
    }
    for (int i = 0; i < 20 && code == GW_CLI_OK; i++) {
        const double middle = sqrt(low * high);
        code = compression_pays(a, o, middle, &pays, &best_us);
        *(pays ? &low : &high) = middle;
    }
    *even = low;
    return code;
}

static int write_svg(const sweep_args *a, const plan_opened *o, const plan_sweep_point *points)
{
    static const char *const titles[4] = {"bandwidth of all links over that of the case", "machines or GPUs",
                                          "payload over that of the codecs",
                                          "backprop time over that of the model"};
    const plan_sweep_chart chart = {points, (size_t)a->count, titles[a->axis],
                                    o->c.kind == PLAN_TREE ? "ByteComp" : "PyTorch DDP, float32"};
    return plan_sweep_chart_write(&chart, a->svg);
}

static int parse(sweep_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "sweep", "MODEL",
                     "Varies bandwidth, ranks, ratio or batch; finds the break-even bandwidth.");
    plan_case_args_add(&a->parser, &a->case_args, 0);
    plan_limit_args_add(&a->parser, &a->limit_args);
    const plan_arg list[] = {
        {NULL, NULL, "The sweep", PLAN_ARG_FLAG, NULL, 0, 0},
        {"axis", "bandwidth|nodes|ratio|batch", "What varies", PLAN_ARG_TEXT, &a->axis_name, 0, 0},
        {"values", "A:B:N", "Factors (bandwidth, ratio, batch; geometric) or ranks from A to B",
         PLAN_ARG_TEXT, &a->values, 0, 0},
    };
    plan_parser_add(&a->parser, list, 3);
    plan_parser_add_output(&a->parser, "Write the points as JSON to FILE");
    const plan_arg svg = {"svg", "FILE", "Draw the curve", PLAN_ARG_OUTPUT, &a->svg, 0, 0};
    plan_parser_add(&a->parser, &svg, 1);
    return plan_parser_run(&a->parser, argc, argv, &(const plan_parser_files){1, 1, "one model"});
}

/* Most points, and most machines or GPUs (plan.h). */
enum { COUNT_MAX = 100000, RANKS_MAX = 65536 };

/* Axis and range. */
static int parse_range(sweep_args *a)
{
    static const char *const axes[] = {"bandwidth", "ranks", "ratio", "batch", "nodes", NULL};
    char rest = 0;
    a->axis_name = a->axis_name != NULL ? a->axis_name : "bandwidth";
    const int axis = plan_name_index(axes, a->axis_name);
    if (axis < 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--axis is one of bandwidth, nodes (or ranks), ratio, batch");
    }
    /* nodes: machines where the case has several, else GPUs; ranks is the same number */
    a->axis = axis == 4 ? AXIS_RANKS : (sweep_axis)axis;
    a->from = a->axis == AXIS_RANKS ? 2 : 0.125;
    a->to = 64;
    a->count = a->axis == AXIS_RANKS ? 6 : 10;
    if (a->values != NULL &&
        (sscanf(a->values, "%lf:%lf:%ld%c", &a->from, &a->to, &a->count, &rest) != 3 || !(a->from > 0) ||
         !(a->to >= a->from) || !isfinite(a->to) || a->count < 1 || a->count > COUNT_MAX)) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "--values needs FROM:TO:COUNT with 0 < FROM <= TO and COUNT in 1..%d", COUNT_MAX);
    }
    return a->axis == AXIS_RANKS && (a->from < 1 || a->to > RANKS_MAX)
               ? gw_cli_error(GW_CLI_USAGE, NULL, "--values: %s are from 1 to %d", a->axis_name, RANKS_MAX)
               : GW_CLI_OK;
}

/* Solves point i: the best plan, the best without compression, and a baseline. */
static int solve_point(const sweep_args *a, const plan_opened *o, long i, plan_sweep_point *point,
                       json_t *rows)
{
    const int tree = o->c.kind == PLAN_TREE;
    const double t = a->count > 1 ? (double)i / (double)(a->count - 1) : 0;
    gw_plan_cert best, dense, baseline;
    point->value = a->from * pow(a->to / a->from, t);
    if (a->axis == AXIS_RANKS) {
        point->value = round(point->value);
    }
    int code = solve_at(a, o, point->value, 0, "auto", &best);
    code = code == GW_CLI_OK ? solve_at(a, o, point->value, 1, "auto", &dense) : code;
    code = code == GW_CLI_OK ? solve_at(a, o, point->value, 0, tree ? "bytecomp" : "ddp", &baseline) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    point->best_us = plan_us(best.makespan);
    point->bound_us = plan_us(best.lower_bound);
    point->dense_us = plan_us(dense.makespan);
    point->baseline_us = plan_us(baseline.makespan);
    if (!a->parser.json) {
        printf("%12.4g %12.3f %12.3f %12.3f %12.3f\n", point->value, point->best_us / 1e3,
               point->bound_us / 1e3, point->dense_us / 1e3, point->baseline_us / 1e3);
    }
    json_array_append_new(rows,
                          json_pack("{s:f,s:f,s:f,s:f,s:f}", "value", point->value, "best_us", point->best_us,
                                    "lower_bound_us", point->bound_us, "no_compression_us", point->dense_us,
                                    tree ? "bytecomp_us" : "ddp_us", point->baseline_us));
    return GW_CLI_OK;
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

static int sweep(const sweep_args *a, const plan_opened *o, plan_sweep_point *points, json_t *rows)
{
    double even = NAN;
    int code = GW_CLI_OK;
    if (!a->parser.json) {
        printf("%s, case %s\n%12s %12s %12s %12s %12s\n", o->path, o->c.name, a->axis_name, "best ms",
               "bound ms", "no codec ms", o->c.kind == PLAN_TREE ? "ByteComp ms" : "DDP ms");
    }
    for (long i = 0; i < a->count && code == GW_CLI_OK; i++) {
        code = solve_point(a, o, i, &points[i], rows);
    }
    if (a->axis == AXIS_BANDWIDTH && code == GW_CLI_OK) {
        code = break_even(a, o, &even);
        if (!a->parser.json && code == GW_CLI_OK) {
            print_break_even(o, even);
        }
    }
    if (code == GW_CLI_OK && a->svg != NULL) {
        code = write_svg(a, o, points);
    }
    if (code == GW_CLI_OK && (a->parser.json || a->parser.output != NULL)) {
        json_t *root = json_pack("{s:s,s:s,s:O,s:o}", "case", o->c.name, "axis", a->axis_name, "points", rows,
                                 "break_even_bandwidth_factor", gw_cli_json_real(even));
        code = plan_json_write(root, a->parser.output != NULL ? a->parser.output : "-");
    }
    return code;
}

int plan_cmd_sweep(int argc, char **argv)
{
    sweep_args a;
    plan_opened o;
    int code = parse(&a, argc, argv);
    code = code == GW_CLI_OK ? parse_range(&a) : code;
    code = code == GW_CLI_OK ? plan_opened_open(&a.case_args, a.parser.files[0], &o) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    plan_sweep_point *points = calloc((size_t)a.count, sizeof *points);
    json_t *rows = json_array();
    code = points != NULL ? sweep(&a, &o, points, rows) : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    json_decref(rows);
    free(points);
    plan_opened_close(&o);
    return code;
}
