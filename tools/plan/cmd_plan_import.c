/*
 * plan import: a model CSV from a recording.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_byteps.h"
#include "plan_commands.h"
#include "plan_kineto.h"

/* Steps with as many gradients as the most common count; *count receives it. */
static size_t full_steps(const plan_kineto *trace, size_t *count)
{
    size_t best = 0;
    *count = 0;
    for (size_t i = 0; i < trace->step_count; i++) {
        size_t same = 0;
        for (size_t j = 0; j < trace->step_count; j++) {
            same += trace->steps[j].gradient_count == trace->steps[i].gradient_count;
        }
        if (trace->steps[i].gradient_count > 0 && same > best) {
            best = same;
            *count = trace->steps[i].gradient_count;
        }
    }
    return best;
}

/* Ready times of gradient i over the chosen steps, relative to each step's first gradient: the median. */
static double offset_of(const plan_kineto *trace, size_t count, int64_t only, size_t i, double *scratch)
{
    size_t used = 0;
    size_t full = 0;
    for (size_t s = 0; s < trace->step_count; s++) {
        if (trace->steps[s].gradient_count != count) {
            continue;
        }
        if (only < 0 || (int64_t)full == only) {
            scratch[used++] = trace->steps[s].gradients[i].ready_us - trace->steps[s].gradients[0].ready_us;
        }
        full++;
    }
    return gw_cli_median(scratch, used);
}

/* Says so if NCCL all-reduced another number of elements than the parameters have in every step that it was
 * recorded in: the CSV then belongs to another model, or not all of it was trained. */
static void compare_elems(const plan_kineto *trace, const plan_model *params, const char *path,
                          const char *params_path)
{
    int64_t wanted = 0;
    int64_t reduced = 0;
    for (uint32_t i = 0; i < params->count; i++) {
        wanted += params->tensors[i].elems;
    }
    for (size_t s = 0; s < trace->step_count; s++) {
        int64_t sum = 0;
        for (size_t i = 0; i < trace->collective_count; i++) {
            const plan_kineto_collective *c = &trace->collectives[i];
            if (strcmp(c->name, "allreduce") == 0 && c->start_us >= trace->steps[s].start_us &&
                c->start_us < trace->steps[s].end_us) {
                sum += c->elems;
            }
        }
        if (sum == wanted) {
            return;
        }
        reduced = sum > 0 ? sum : reduced;
    }
    if (reduced > 0) {
        gw_cli_note("warning: %s: NCCL all-reduced %lld elements in a step, but %s has %lld", path,
                    (long long)reduced, params_path, (long long)wanted);
    }
}

int plan_cmd_import(const plan_args *args)
{
    if (args->file_count != 1) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan import takes one recording");
    }
    const char *path = args->files[0];
    const size_t repeat = args->repeat > 0 ? (size_t)args->repeat : 1;
    plan_model params;
    memset(&params, 0, sizeof params);
    int code = args->params != NULL ? plan_model_read_csv(args->params, &params) : GW_CLI_OK;
    if (code != GW_CLI_OK) {
        return code;
    }
    plan_model model;
    memset(&model, 0, sizeof model);
    const plan_byteps_kind byteps = plan_byteps_detect(path);
    if (byteps != PLAN_BYTEPS_NONE) {
        const plan_model *sizes = args->params != NULL ? &params : NULL;
        code = byteps == PLAN_BYTEPS_READY ? plan_byteps_read_ready(path, sizes, &model)
                                           : plan_byteps_read_comm(path, sizes, &model);
        if (code == GW_CLI_OK) {
            code = plan_model_write_csv(&model, args->output != NULL ? args->output : "-");
        }
        plan_model_free(&model);
        plan_model_free(&params);
        return code;
    }
    plan_kineto trace;
    double *seconds = calloc(repeat, sizeof *seconds);
    memset(&trace, 0, sizeof trace);
    code = seconds != NULL ? GW_CLI_OK : gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    for (int64_t i = 0; i < (int64_t)repeat && code == GW_CLI_OK; i++) {
        plan_kineto_free(&trace);
        double start = gw_cli_seconds();
        code = plan_kineto_read(path, args->max_size, &trace);
        seconds[i] = gw_cli_seconds() - start;
    }
    size_t count = 0;
    size_t full = code == GW_CLI_OK ? full_steps(&trace, &count) : 0;
    if (code == GW_CLI_OK && full == 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "no step holds a gradient");
    }
    if (code == GW_CLI_OK && args->step >= (int64_t)full) {
        code = gw_cli_error(GW_CLI_USAGE, path, "has %zu full steps; --step counts from 0", full);
    }
    if (code == GW_CLI_OK && params.count > 0 && params.count != count) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "%zu gradients a step, but %s names %u", count,
                            args->params, params.count);
    }
    if (code == GW_CLI_OK && params.count > 0) {
        compare_elems(&trace, &params, path, args->params);
    }
    double *scratch = code == GW_CLI_OK ? calloc(trace.step_count, sizeof *scratch) : NULL;
    double previous = 0;
    int known_sizes = 1;
    for (size_t i = 0; i < count && code == GW_CLI_OK; i++) {
        int64_t elems = params.count > 0 ? params.tensors[i].elems : -1;
        for (size_t s = 0; s < trace.step_count && elems < 0; s++) {
            elems = trace.steps[s].gradient_count == count ? trace.steps[s].gradients[i].elems : -1;
        }
        known_sizes &= elems >= 0;
        char name[32];
        (void)snprintf(name, sizeof name, "gradient%zu", i);
        double offset = scratch != NULL ? offset_of(&trace, count, args->step, i, scratch) : NAN;
        gw_plan_tick bwd = 0;
        if (!plan_ticks_from_us(offset - previous, &bwd)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "gradient %zu is ready before gradient %zu", i, i - 1);
        } else if (!plan_model_add(&model, params.count > 0 ? params.tensors[i].name : name,
                                   elems < 0 ? 0 : elems, bwd, 0)) {
            code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
        }
        previous = offset;
    }
    if (code == GW_CLI_OK && !known_sizes) {
        gw_cli_note("%s: sizes were not recorded and are 0; give names and sizes with --params", path);
    }
    if (code == GW_CLI_OK && args->json) {
        json_t *steps = json_array();
        for (size_t s = 0; s < trace.step_count; s++) {
            const plan_kineto_step *step = &trace.steps[s];
            int monotone = 1;
            for (size_t i = 1; i < step->gradient_count; i++) {
                monotone &= step->gradients[i].ready_us >= step->gradients[i - 1].ready_us;
            }
            double span = step->gradient_count > 0 ? step->gradients[step->gradient_count - 1].ready_us -
                                                         step->gradients[0].ready_us
                                                   : 0;
            json_array_append_new(steps, json_pack("{s:I,s:I,s:b,s:f}", "step", (json_int_t)step->number,
                                                   "gradients", (json_int_t)step->gradient_count, "monotone",
                                                   monotone, "span_us", span));
        }
        json_t *collectives = json_array();
        for (size_t i = 0; i < trace.collective_count; i++) {
            const plan_kineto_collective *c = &trace.collectives[i];
            json_array_append_new(collectives, json_pack("{s:s,s:I,s:f,s:f}", "name", c->name, "elems",
                                                         (json_int_t)c->elems, "start_us", c->start_us,
                                                         "duration_us", c->duration_us));
        }
        code = gw_cli_json_print(json_pack("{s:I,s:o,s:o,s:f,s:f}", "events", (json_int_t)trace.event_count,
                                           "steps", steps, "collectives", collectives, "span_us", previous,
                                           "import_ms", 1e3 * gw_cli_median(seconds, repeat)));
        if (code == GW_CLI_OK && args->output != NULL) {
            code = plan_model_write_csv(&model, args->output);
        }
    } else if (code == GW_CLI_OK) {
        double low = INFINITY;
        double high = 0;
        for (size_t s = 0; s < trace.step_count; s++) {
            if (trace.steps[s].gradient_count == count) {
                double span =
                    trace.steps[s].gradients[count - 1].ready_us - trace.steps[s].gradients[0].ready_us;
                low = span < low ? span : low;
                high = span > high ? span : high;
            }
        }
        gw_cli_note(
            "%s: %zu events, %zu full steps of %zu gradients, backprop span %.1f to %.1f ms, read in %.1f ms",
            path, trace.event_count, full, count, low / 1e3, high / 1e3,
            1e3 * gw_cli_median(seconds, repeat));
        code = plan_model_write_csv(&model, args->output != NULL ? args->output : "-");
    }
    free(scratch);
    free(seconds);
    plan_kineto_free(&trace);
    plan_model_free(&model);
    plan_model_free(&params);
    return code;
}
