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

#include "../cli_common.h"
#include "plan_commands.h"
#include "plan_file.h"
#include "plan_output.h"

typedef enum sweep_axis { AXIS_BANDWIDTH, AXIS_RANKS, AXIS_RATIO, AXIS_BATCH } sweep_axis;

typedef struct sweep_point {
    double value, best_us, bound_us, dense_us, ddp_us;
} sweep_point;

typedef struct sweep_base {
    const plan_args *args;
    plan_library *library;
    const plan_case *c;
    const plan_model *model;
    sweep_axis axis;
} sweep_base;

static gw_plan_tick scale_tick(gw_plan_tick tick, double factor)
{
    double scaled = (double)tick * factor;
    return scaled >= (double)GW_PLAN_TICK_MAX ? GW_PLAN_TICK_MAX : (gw_plan_tick)llround(scaled);
}

/* Makespan of the best plan of the changed case; dense: without compression. */
static int solve_at(const sweep_base *b, double value, int dense, const char *algorithm, double *us,
                    double *bound_us)
{
    plan_case c = *b->c;
    plan_model model = *b->model;
    gw_plan_tensor *scaled = NULL;
    uint32_t codec_count = b->library->codec_count;
    gw_plan_codec saved[PLAN_CODECS_MAX];
    for (uint32_t i = 0; i < codec_count; i++) {
        saved[i] = b->library->codecs[i].codec;
    }
    if (b->axis == AXIS_BANDWIDTH) {
        c.cluster.intra.beta_kib = scale_tick(c.cluster.intra.beta_kib, 1 / value);
        c.cluster.inter.beta_kib = scale_tick(c.cluster.inter.beta_kib, 1 / value);
    } else if (b->axis == AXIS_RANKS) {
        if (c.cluster.nodes > 1) {
            c.cluster.nodes = (uint32_t)llround(value);
        } else {
            c.cluster.gpus = (uint32_t)llround(value);
        }
    } else if (b->axis == AXIS_RATIO) {
        for (uint32_t i = 0; i < codec_count; i++) {
            gw_plan_codec *codec = &b->library->codecs[i].codec;
            codec->payload_num = (int64_t)llround((double)codec->payload_num * 65536 * value);
            codec->payload_den *= 65536;
        }
    } else {
        scaled = malloc(((size_t)model.count + 1) * sizeof *scaled);
        if (scaled == NULL) {
            return gw_cli_error(GW_CLI_IO, NULL, "memory is short");
        }
        for (uint32_t i = 0; i < model.count; i++) {
            scaled[i] = model.tensors[i];
            scaled[i].bwd = scale_tick(scaled[i].bwd, value);
        }
        model.tensors = scaled;
    }
    if (dense && c.kind == PLAN_TREE) {
        c.comp_max = 0; /* the tree's options without compression */
    } else if (dense) {
        c.kind = PLAN_FUSION;
        c.method_count = 1;
        memcpy(c.method_names[0], "fp32", 5);
        if (c.cluster.nodes > 1) { /* flat over all ranks */
            c.cpu = 0;
        }
    }
    plan_result result;
    gw_plan_limits limits = plan_args_limits(b->args, 200);
    int code = plan_run(b->library, &c, &model, b->args->files[0], algorithm, NULL, &limits, &result);
    if (code == GW_CLI_OK) {
        *us = plan_us(result.cert.makespan);
        *bound_us = plan_us(result.cert.lower_bound);
        plan_result_free(&result);
    }
    for (uint32_t i = 0; i < codec_count; i++) {
        b->library->codecs[i].codec = saved[i];
    }
    free(scaled);
    return code;
}

/* Where break_even() looks. Slower iterations are of no use, and the planner's times end at 275 s. */
#define FACTOR_MIN 1e-3
#define FACTOR_MAX 1e4
#define SLOWEST_US 2e6

/* *pays: compression shortens the iteration at `factor` times the bandwidth. */
static int compression_pays(const sweep_base *b, double factor, int *pays, double *best_us)
{
    double dense_us = 0;
    double unused;
    int code = solve_at(b, factor, 0, "auto", best_us, &unused);
    if (code == GW_CLI_OK) {
        code = solve_at(b, factor, 1, "auto", &dense_us, &unused);
    }
    *pays = code == GW_CLI_OK && *best_us < dense_us * (1 - 1e-6);
    return code;
}

/* The largest factor at which compression pays; NAN when there is none in the range. */
static int break_even(const sweep_base *b, double *even)
{
    double low = 1;
    double high = 1;
    double best_us = 0;
    int pays = 0;
    int code = compression_pays(b, 1, &pays, &best_us);
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
        code = compression_pays(b, upwards ? high : low, &pays, &best_us);
    }
    if (code != GW_CLI_OK || pays == upwards) {
        return code;
    }
    for (int i = 0; i < 20 && code == GW_CLI_OK; i++) {
        const double middle = sqrt(low * high);
        code = compression_pays(b, middle, &pays, &best_us);
        *(pays ? &low : &high) = middle;
    }
    *even = low;
    return code;
}

static int write_svg(const char *path, const sweep_point *points, size_t count, const char *axis,
                     plan_kind kind)
{
    plan_output output;
    int code = plan_output_open(&output);
    if (code != GW_CLI_OK) {
        return code;
    }
    FILE *out = output.text;
    double top = 0;
    for (size_t i = 0; i < count; i++) {
        top = fmax(top, fmax(points[i].dense_us, fmax(points[i].ddp_us, points[i].best_us)));
    }
    double low = log(points[0].value);
    double high = log(points[count - 1].value);
    high = high > low ? high : low + 1;
    static const char *const colors[3] = {"#6a9f74", "#9db8d9", "#c46d7b"};
    const char *const names[3] = {"best plan", "best plan without compression",
                                  kind == PLAN_TREE ? "ByteComp" : "PyTorch buckets, last codec"};
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    for (int line = 0; line < 3; line++) {
        fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colors[line]);
        for (size_t i = 0; i < count; i++) {
            double us = line == 0 ? points[i].best_us : line == 1 ? points[i].dense_us : points[i].ddp_us;
            fprintf(out, "%.2f,%.2f ", 60 + 560 * (log(points[i].value) - low) / (high - low),
                    300 - 270 * us / top);
        }
        fprintf(out,
                "\"/>\n<rect x=\"%d\" y=\"342\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                "y=\"352\">%s</text>\n",
                60 + 190 * line, colors[line], 76 + 190 * line, names[line]);
    }
    for (size_t i = 0; i<count; i += count> 8 ? count / 6 : 1) {
        fprintf(out, "<text x=\"%.2f\" y=\"318\" text-anchor=\"middle\">%.3g</text>\n",
                60 + 560 * (log(points[i].value) - low) / (high - low), points[i].value);
    }
    for (int i = 0; i <= 4; i++) {
        fprintf(out,
                "<text x=\"54\" y=\"%.1f\" text-anchor=\"end\">%.3g</text><line x1=\"60\" x2=\"620\" "
                "y1=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"#dddddd\"/>\n",
                304 - 67.5 * i, top / 1e3 * i / 4, 300 - 67.5 * i, 300 - 67.5 * i);
    }
    fprintf(out,
            "<text x=\"340\" y=\"334\" text-anchor=\"middle\">%s</text><text x=\"8\" "
            "y=\"18\">ms</text>\n</svg>\n",
            axis);
    return plan_output_close(&output, path, GW_CLI_OK);
}

int plan_cmd_sweep(const plan_args *args)
{
    static const char *const axes[4] = {"bandwidth", "ranks", "ratio", "batch"};
    if (args->file_count != 1) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan sweep takes one model");
    }
    const char *axis_name = args->axis != NULL ? args->axis : "bandwidth";
    int axis = -1;
    for (int i = 0; i < 4; i++) {
        axis = strcmp(axis_name, axes[i]) == 0 ? i : axis;
    }
    if (strcmp(axis_name, "nodes") ==
        0) { /* machines where the case has several, else GPUs: the same number */
        axis = AXIS_RANKS;
    }
    double from = axis == AXIS_RANKS ? 2 : 0.125;
    double to = axis == AXIS_RANKS ? 64 : 64;
    long count = axis == AXIS_RANKS ? 6 : 10;
    char rest = 0;
    if (axis < 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--axis knows bandwidth, nodes (or ranks), ratio and batch");
    }
    if (args->values != NULL && (sscanf(args->values, "%lf:%lf:%ld%c", &from, &to, &count, &rest) != 3 ||
                                 !(from > 0) || !(to >= from) || !isfinite(to) || count < 1 ||
                                 count > 100000 || (axis == AXIS_RANKS && to > 65536))) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--values needs FROM:TO:COUNT with 0 < FROM <= TO");
    }
    plan_library library;
    plan_case c;
    int code = plan_args_case(args, &library, &c);
    if (code != GW_CLI_OK) {
        return code;
    }
    plan_model model;
    code = plan_model_read(args->files[0], &model);
    if (code != GW_CLI_OK) {
        plan_library_close(&library);
        return code;
    }
    sweep_base base = {args, &library, &c, &model, (sweep_axis)axis};
    sweep_point *points = calloc((size_t)count, sizeof *points);
    if (points == NULL) {
        code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    if (!args->json && code == GW_CLI_OK) {
        printf("%s, case %s\n%12s %12s %12s %12s %12s\n", args->files[0], c.name, axis_name, "best ms",
               "bound ms", "no codec ms", c.kind == PLAN_TREE ? "ByteComp ms" : "DDP ms");
    }
    json_t *rows = json_array();
    for (long i = 0; i < count && code == GW_CLI_OK; i++) {
        sweep_point *point = &points[i];
        double t = count > 1 ? (double)i / (double)(count - 1) : 0;
        double unused;
        point->value = from * pow(to / from, t);
        if (axis == AXIS_RANKS) {
            point->value = round(point->value);
        }
        code = solve_at(&base, point->value, 0, "auto", &point->best_us, &point->bound_us);
        if (code == GW_CLI_OK) {
            code = solve_at(&base, point->value, 1, "auto", &point->dense_us, &unused);
        }
        if (code == GW_CLI_OK) {
            code = c.kind == PLAN_TREE ? solve_at(&base, point->value, 0, "bytecomp", &point->ddp_us, &unused)
                                       : solve_at(&base, point->value, 0, "ddp", &point->ddp_us, &unused);
        }
        if (code == GW_CLI_OK && !args->json) {
            printf("%12.4g %12.3f %12.3f %12.3f %12.3f\n", point->value, point->best_us / 1e3,
                   point->bound_us / 1e3, point->dense_us / 1e3, point->ddp_us / 1e3);
        }
        json_array_append_new(rows, json_pack("{s:f,s:f,s:f,s:f,s:f}", "value", point->value, "best_us",
                                              point->best_us, "lower_bound_us", point->bound_us,
                                              "no_compression_us", point->dense_us,
                                              c.kind == PLAN_TREE ? "bytecomp_us" : "ddp_us", point->ddp_us));
    }
    double even = NAN;
    if (axis == AXIS_BANDWIDTH && code == GW_CLI_OK) {
        code = break_even(&base, &even);
        gw_plan_tick kib = c.cluster.nodes > 1 ? c.cluster.inter.beta_kib : c.cluster.intra.beta_kib;
        if (!args->json && code == GW_CLI_OK) {
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
    }
    if (code == GW_CLI_OK && args->svg != NULL) {
        code = write_svg(args->svg, points, (size_t)count, axis_name, c.kind);
    }
    if (code == GW_CLI_OK && (args->json || args->output != NULL)) {
        json_t *root = json_pack("{s:s,s:s,s:O,s:o}", "case", c.name, "axis", axis_name, "points", rows,
                                 "break_even_bandwidth_factor", gw_cli_json_real(even));
        code = plan_json_write(root, args->output != NULL ? args->output : "-");
    }
    json_decref(rows);
    free(points);
    plan_model_free(&model);
    plan_library_close(&library);
    return code;
}
