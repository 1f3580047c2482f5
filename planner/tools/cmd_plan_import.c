/*
 * plan import: a model CSV from a recording.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_byteps.h"
#include "plan_hook.h"
#include "plan_input.h"
#include "plan_kineto.h"
#include "plan_memory.h"

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

/* Warns if in every recorded step NCCL all-reduced another number of elements than the parameters have: the
 * CSV then belongs to another model, or not all of it was trained. */
static void compare_len(const plan_kineto *trace, const plan_model *params, const char *path,
                        const char *params_path)
{
    const int64_t expected = plan_model_len(params, 0, params->count);
    int64_t reduced = 0;
    for (size_t s = 0; s < trace->step_count; s++) {
        int64_t sum = 0;
        for (size_t i = 0; i < trace->collective_count; i++) {
            const plan_kineto_collective *c = &trace->collectives[i];
            if (strcmp(c->name, "allreduce") == 0 && c->start_us >= trace->steps[s].start_us &&
                c->start_us < trace->steps[s].end_us) {
                sum += c->len;
            }
        }
        if (sum == expected) {
            return;
        }
        reduced = sum > 0 ? sum : reduced;
    }
    if (reduced > 0) {
        gw_cli_note("warning: %s: NCCL all-reduced %lld elements in a step, but %s has %lld", path,
                    (long long)reduced, params_path, (long long)expected);
    }
}

/* A Kineto recording and what is taken from it. */
typedef struct import_state {
    const plan_request *args;
    const char *path;
    plan_model params; /* empty: not given */
    plan_kineto trace;
    size_t count;   /* gradients in a full step */
    size_t full;    /* full steps */
    double read_ms; /* median */
    double span_us; /* first to last gradient */
    plan_model model;
} import_state;

static int write_model(const import_state *x)
{
    plan_model_write_csv(&x->model, plan_output_path(x->args));
    return GW_CLI_OK;
}

static int import_byteps(import_state *x, plan_input kind)
{
    const plan_model *sizes = x->params.count > 0 ? &x->params : NULL;
    gw_cli_must(kind == PLAN_INPUT_BYTEPS_READY ? plan_byteps_read_ready(x->path, sizes, &x->model)
                                                : plan_byteps_read_comm(x->path, sizes, &x->model));
    return write_model(x);
}

/* Reads the recording, repeatedly to measure the time. */
static void read_trace(import_state *x)
{
    const size_t repeat = x->args->repeat > 0 ? (size_t)x->args->repeat : 1;
    double *seconds = plan_alloc(repeat, sizeof *seconds);
    for (size_t i = 0; i < repeat; i++) {
        plan_kineto_free(&x->trace);
        const double start = gw_cli_seconds();
        gw_cli_must(plan_kineto_read(x->path, x->args->max_size, &x->trace));
        seconds[i] = gw_cli_seconds() - start;
    }
    x->read_ms = 1e3 * gw_cli_median(seconds, repeat);
    free(seconds);
}

static void check_trace(import_state *x)
{
    x->full = full_steps(&x->trace, &x->count);
    if (x->full == 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, x->path, "no step holds a gradient");
    }
    if (x->args->step >= (int64_t)x->full) {
        gw_cli_fail(GW_CLI_USAGE, x->path, "has %zu full steps; --step counts from 0", x->full);
    }
    if (x->params.count > 0 && x->params.count != x->count) {
        gw_cli_fail(GW_CLI_BAD_DATA, x->path, "%zu gradients a step, but %s names %u", x->count,
                    x->args->params, x->params.count);
    }
    if (x->params.count > 0) {
        compare_len(&x->trace, &x->params, x->path, x->args->params);
    }
}

/* Size of gradient i, from the parameters or the recording; -1: unknown. */
static int64_t len_of(const import_state *x, size_t i)
{
    int64_t len = x->params.count > 0 ? x->params.tensors[i].len : -1;
    for (size_t s = 0; s < x->trace.step_count && len < 0; s++) {
        const plan_kineto_step *step = &x->trace.steps[s];
        len = step->gradient_count == x->count ? step->gradients[i].len : -1;
    }
    return len;
}

static void make_model(import_state *x)
{
    double *scratch = plan_alloc(x->trace.step_count, sizeof *scratch);
    int known_sizes = 1;
    for (size_t i = 0; i < x->count; i++) {
        const int64_t len = len_of(x, i);
        const double offset = offset_of(&x->trace, x->count, x->args->step, i, scratch);
        char name[32];
        gw_plan_tick bwd = 0;
        known_sizes &= len >= 0;
        (void)snprintf(name, sizeof name, "gradient%zu", i);
        if (!plan_ticks_from_us(offset - x->span_us, &bwd)) {
            gw_cli_fail(GW_CLI_BAD_DATA, x->path, "gradient %zu is ready before gradient %zu", i, i - 1);
        }
        plan_model_add(&x->model, x->params.count > 0 ? x->params.tensors[i].name : name, len < 0 ? 0 : len,
                       bwd, 0);
        x->span_us = offset;
    }
    free(scratch);
    if (!known_sizes) {
        gw_cli_note("%s: sizes were not recorded and are 0; give names and sizes with --params", x->path);
    }
}

static double step_span(const plan_kineto_step *step)
{
    const size_t count = step->gradient_count;
    return count > 0 ? step->gradients[count - 1].ready_us - step->gradients[0].ready_us : 0;
}

static int report_json(const import_state *x)
{
    json_t *steps = json_array();
    for (size_t s = 0; s < x->trace.step_count; s++) {
        const plan_kineto_step *step = &x->trace.steps[s];
        int monotone = 1;
        for (size_t i = 1; i < step->gradient_count; i++) {
            monotone &= step->gradients[i].ready_us >= step->gradients[i - 1].ready_us;
        }
        json_array_append_new(steps, json_pack("{s:I,s:I,s:b,s:f}", "step", (json_int_t)step->number,
                                               "gradients", (json_int_t)step->gradient_count, "monotone",
                                               monotone, "span_us", step_span(step)));
    }
    json_t *collectives = json_array();
    for (size_t i = 0; i < x->trace.collective_count; i++) {
        const plan_kineto_collective *c = &x->trace.collectives[i];
        json_array_append_new(collectives,
                              json_pack("{s:s,s:I,s:f,s:f}", "name", c->name, "elems", (json_int_t)c->len,
                                        "start_us", c->start_us, "duration_us", c->duration_us));
    }
    return gw_cli_json_print(json_pack("{s:I,s:o,s:o,s:f,s:f}", "events", (json_int_t)x->trace.event_count,
                                       "steps", steps, "collectives", collectives, "span_us", x->span_us,
                                       "import_ms", x->read_ms));
}

static void report_text(const import_state *x)
{
    double low = INFINITY;
    double high = 0;
    for (size_t s = 0; s < x->trace.step_count; s++) {
        if (x->trace.steps[s].gradient_count == x->count) {
            low = fmin(low, step_span(&x->trace.steps[s]));
            high = fmax(high, step_span(&x->trace.steps[s]));
        }
    }
    gw_cli_note(
        "%s: %zu events, %zu full steps of %zu gradients, backprop span %.1f to %.1f ms, read in %.1f ms",
        x->path, x->trace.event_count, x->full, x->count, low / 1e3, high / 1e3, x->read_ms);
}

static int import_kineto(import_state *x)
{
    read_trace(x);
    check_trace(x);
    if (x->trace.is_hook) {
        plan_hook_model(&x->trace, x->path, x->count, x->args->step, &x->model);
        for (uint32_t i = 1; i < x->model.count; i++) {
            x->span_us += plan_us(x->model.tensors[i].bwd);
        }
    } else {
        make_model(x);
    }
    if (!x->args->common.json) {
        report_text(x);
        return write_model(x);
    }
    const int code = report_json(x);
    return code == GW_CLI_OK && x->args->common.output != NULL ? write_model(x) : code;
}

static int import(const plan_request *a)
{
    import_state x = {.args = a, .path = a->common.input};
    if (a->params != NULL) {
        gw_cli_must(plan_model_read_csv(a->params, &x.params));
    }
    const plan_input kind = plan_input_kind(x.path);
    const int code = kind == PLAN_INPUT_BYTEPS_READY || kind == PLAN_INPUT_BYTEPS_COMM
                         ? import_byteps(&x, kind)
                         : import_kineto(&x);
    plan_kineto_free(&x.trace);
    plan_model_free(&x.model);
    plan_model_free(&x.params);
    return code;
}

static const gw_option options[] = {
    PLAN_PARAMS_ROW("Names and sizes in backprop order"),
    {"step", "N", "The recorded step to use, from 0 (default: the median over steps)",
     GW_INTEGER(plan_request, step, 0, 1000000)},
    PLAN_REPEAT_ROW("Read N times and report the median time"),
    PLAN_MAX_SIZE_ROW,
    PLAN_JSON_ROW,
    GW_OUTPUT_ROW("FILE", "Write the model to FILE"),
    {0},
};

const plan_verb plan_verb_import = {
    .name = "import",
    .summary = "a model from a profiler recording",
    .run = import,
    .input_min = 1,
    .input_max = 1,
    .takes = "one recording",
    .line = {.usage = "TRACE",
             .help = "Turns a recording (Kineto .json[.gz], BytePS, gradwire's hook) into a model CSV.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options}},
};
