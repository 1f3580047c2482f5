/*
 * plan check PLAN TRACE: a prediction against a recording. plan_hook_check.c has those of gradwire's hook;
 * this is about those of PyTorch's profiler.
 *
 * Each recorded step is replayed at the serial level: messages leave in the recorded order, each when its
 * last gradient is ready and the network is free, with the recorded durations. If the replay's end matches
 * the recording, the timeline model is right for this job, independently of the cost curves. Then the plan's
 * prediction is compared with the recording; the comparison is direct when the plan has the recorded groups.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_args.h"
#include "plan_commands.h"
#include "plan_file.h"
#include "plan_hook.h"
#include "plan_kineto.h"
#include "text_source.h"

#define BUCKETS_MAX 4096

/* All-reduces of a step: those that start between its first gradient and the next step's. */
static size_t step_messages(const plan_kineto *trace, size_t s, const plan_kineto_collective **messages)
{
    double from = trace->steps[s].gradients[0].ready_us;
    double until = INFINITY;
    for (size_t next = s + 1; next < trace->step_count; next++) {
        if (trace->steps[next].gradient_count > 0) {
            until = trace->steps[next].gradients[0].ready_us;
            break;
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < trace->collective_count; i++) {
        const plan_kineto_collective *c = &trace->collectives[i];
        if (strcmp(c->name, "allreduce") == 0 && c->start_us >= from && c->start_us < until &&
            count < BUCKETS_MAX) {
            messages[count++] = c;
        }
    }
    return count;
}

/* Cuts the parameters into the recorded messages. Returns 0 when a boundary falls inside a tensor. */
static int cut_params(const plan_model *params, const plan_kineto_collective **messages, size_t count,
                      uint32_t *ends)
{
    uint32_t at = 0;
    for (size_t j = 0; j < count; j++) {
        int64_t sum = 0;
        while (at < params->count && sum < messages[j]->len) {
            sum += params->tensors[at++].len;
        }
        if (sum != messages[j]->len) {
            return 0;
        }
        ends[j] = at;
    }
    while (at < params->count && params->tensors[at].len == 0 && count > 0) {
        ends[count - 1] = ++at;
    }
    return at == params->count;
}

#define WHAT_CHECK_TAKES "a plan, a recording and, unless the hook made that, --params CSV"

typedef struct check_args {
    plan_parser parser;
    const char *params_path;
    uint64_t max_size;
} check_args;

typedef struct check_state {
    const check_args *args;
    plan_file plan;
    plan_model params;
    plan_kineto trace;
    const plan_kineto_collective **messages; /* [BUCKETS_MAX] of one step */
    uint32_t *ends;                          /* [BUCKETS_MAX] the tensor after each message */
    json_t *steps;
    double worst;        /* error of a replay */
    double recorded_sum; /* over the replayed steps */
    size_t replayed;
    int skipped;     /* steps without messages */
    int same_groups; /* the plan's groups are the recorded ones */
} check_state;

static int parse(check_args *a, int argc, char **argv)
{
    memset(a, 0, sizeof *a);
    plan_parser_open(&a->parser, "check", "PLAN TRACE", "Compares a plan's prediction with a recording.");
    a->max_size = TEXT_SOURCE_SIZE_MAX;
    const plan_arg list[] = {
        {"params", "CSV", "Names and sizes in backprop order", PLAN_ARG_INPUT, &a->params_path, 0, 0},
        {"max-size", "SIZE", "Largest text that a gzip recording may expand to, with K, M, G (default 1G)",
         PLAN_ARG_SIZE, &a->max_size, 0, 0},
    };
    plan_parser_add(&a->parser, list, 2);
    plan_parser_add_output(&a->parser, NULL);
    const plan_parser_files files = {2, 2, WHAT_CHECK_TAKES};
    return plan_parser_run(&a->parser, argc, argv, &files);
}

static int open_state(check_state *x)
{
    const check_args *a = x->args;
    int code = plan_file_read(a->parser.files[0], &x->plan);
    code =
        code == GW_CLI_OK && a->params_path != NULL ? plan_model_read_csv(a->params_path, &x->params) : code;
    code = code == GW_CLI_OK ? plan_kineto_read(a->parser.files[1], a->max_size, &x->trace) : code;
    if (code != GW_CLI_OK || x->trace.is_hook) {
        return code;
    }
    if (a->params_path == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan check takes " WHAT_CHECK_TAKES);
    }
    x->messages = calloc(BUCKETS_MAX, sizeof *x->messages);
    x->ends = calloc(BUCKETS_MAX, sizeof *x->ends);
    x->same_groups = 1;
    if (x->messages == NULL || x->ends == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    }
    return x->plan.tensor_count == x->params.count
               ? GW_CLI_OK
               : gw_cli_error(GW_CLI_BAD_DATA, a->parser.files[0], "is for %u tensors, %s has %u",
                              x->plan.tensor_count, a->params_path, x->params.count);
}

static void close_state(check_state *x)
{
    json_decref(x->steps);
    free((void *)x->messages);
    free(x->ends);
    plan_kineto_free(&x->trace);
    plan_model_free(&x->params);
    plan_file_close(&x->plan);
}

/* Time of the last network end when messages leave in order, each when its last gradient is ready. */
static double replay(const check_state *x, const plan_kineto_step *step, size_t count)
{
    const double first = step->gradients[0].ready_us;
    double network = 0;
    for (size_t j = 0; j < count; j++) {
        const double ready = step->gradients[x->ends[j] - 1].ready_us - first;
        network = fmax(network, ready) + x->messages[j]->duration_us;
    }
    return network;
}

/* Whether the plan's groups end where the recorded messages do. */
static int has_groups(const check_state *x, size_t count)
{
    int same = json_array_size(x->plan.groups) == count;
    for (size_t j = 0; j < count && same; j++) {
        json_t *last = json_object_get(json_array_get(x->plan.groups, j), "last");
        same = json_is_integer(last) && json_integer_value(last) == (json_int_t)x->ends[j] - 1;
    }
    return same;
}

static int check_step(check_state *x, size_t s)
{
    const plan_kineto_step *step = &x->trace.steps[s];
    const char *path = x->args->parser.files[1];
    if (step->gradient_count == 0) {
        return GW_CLI_OK;
    }
    if (step->gradient_count != x->params.count) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "step %lld has %zu gradients, %s has %u",
                            (long long)step->number, step->gradient_count, x->args->params_path,
                            x->params.count);
    }
    const size_t count = step_messages(&x->trace, s, x->messages);
    if (count == 0) {
        x->skipped++;
        return GW_CLI_OK;
    }
    if (!cut_params(&x->params, x->messages, count, x->ends)) {
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "step %lld: the %zu recorded messages do not cut %s at tensor boundaries",
                            (long long)step->number, count, x->args->params_path);
    }
    const plan_kineto_collective *last = x->messages[count - 1];
    const double network = replay(x, step, count);
    const double recorded = last->start_us + last->duration_us - step->gradients[0].ready_us;
    const double error = recorded > 0 ? fabs(network / recorded - 1) : INFINITY;
    x->worst = fmax(x->worst, error);
    x->recorded_sum += recorded;
    x->replayed++;
    x->same_groups = x->same_groups && has_groups(x, count);
    json_t *lens = json_array();
    for (size_t j = 0; j < count; j++) {
        json_array_append_new(lens, json_integer((json_int_t)x->messages[j]->len));
    }
    if (!x->args->parser.json) {
        printf("step %lld: %zu messages, recorded end %.3f ms, replay %.3f ms, error %.3f %%\n",
               (long long)step->number, count, recorded / 1e3, network / 1e3, 100 * error);
    }
    json_array_append_new(x->steps, json_pack("{s:I,s:o,s:f,s:f,s:f}", "step", (json_int_t)step->number,
                                              "message_elems", lens, "recorded_us", recorded, "replay_us",
                                              network, "error", error));
    return GW_CLI_OK;
}

static int report(const check_state *x)
{
    const char *const *files = x->args->parser.files;
    if (x->replayed == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, files[1],
                            "holds no all-reduce with NCCL metadata to compare with");
    }
    const double recorded = x->recorded_sum / (double)x->replayed;
    const double error = recorded > 0 ? x->plan.claims.makespan_us / recorded - 1 : INFINITY;
    if (x->args->parser.json) {
        return gw_cli_json_print(json_pack(
            "{s:O,s:f,s:o,s:f,s:o,s:b,s:i}", "steps", x->steps, "replay_error_max", x->worst, "predicted_us",
            gw_cli_json_real(x->plan.claims.makespan_us), "recorded_us", recorded, "prediction_error",
            gw_cli_json_real(error), "same_groups", x->same_groups, "steps_without_messages", x->skipped));
    }
    printf("replay with recorded durations: worst error %.3f %% over %zu steps\n", 100 * x->worst,
           x->replayed);
    printf("plan %s: predicts %.3f ms, recorded %.3f ms on average (%+.1f %%)%s\n", files[0],
           x->plan.claims.makespan_us / 1e3, recorded / 1e3, 100 * error,
           x->same_groups ? "" : "; the recording used other groups, so this is not an error of the model");
    return GW_CLI_OK;
}

int plan_cmd_check(int argc, char **argv)
{
    check_args a;
    check_state x;
    memset(&x, 0, sizeof x);
    int code = parse(&a, argc, argv);
    if (code != GW_CLI_OK) {
        return code;
    }
    x.args = &a;
    x.steps = json_array();
    code = open_state(&x);
    if (code == GW_CLI_OK && x.trace.is_hook) {
        code = plan_hook_check(&x.plan, &x.trace, a.parser.files[1], a.parser.json);
        close_state(&x);
        return code;
    }
    for (size_t s = 0; s < x.trace.step_count && code == GW_CLI_OK; s++) {
        code = check_step(&x, s);
    }
    code = code == GW_CLI_OK ? report(&x) : code;
    close_state(&x);
    return code;
}
