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
#include "plan_file.h"
#include "plan_hook.h"
#include "plan_json.h"
#include "plan_kineto.h"
#include "plan_memory.h"

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

typedef struct check_state {
    const plan_request *args;
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

/* Reads what the command line names. */
static void open_state(check_state *x)
{
    const plan_request *a = x->args;
    gw_cli_must(plan_file_read(a->common.inputs[0], &x->plan));
    if (a->params != NULL) {
        gw_cli_must(plan_model_read_csv(a->params, &x->params));
    }
    gw_cli_must(plan_kineto_read(a->common.inputs[1], a->max_size, &x->trace));
    if (x->trace.is_hook) {
        return;
    }
    if (a->params == NULL) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "plan check takes " WHAT_CHECK_TAKES);
    }
    if (x->plan.tensor_count != x->params.count) {
        gw_cli_fail(GW_CLI_BAD_DATA, a->common.inputs[0], "is for %u tensors, %s has %u",
                    x->plan.tensor_count, a->params, x->params.count);
    }
    x->messages = plan_alloc(BUCKETS_MAX, sizeof *x->messages);
    x->ends = plan_alloc(BUCKETS_MAX, sizeof *x->ends);
    x->same_groups = 1;
    x->steps = json_array();
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

static void check_step(check_state *x, size_t s)
{
    const plan_kineto_step *step = &x->trace.steps[s];
    const char *path = x->args->common.inputs[1];
    if (step->gradient_count == 0) {
        return;
    }
    if (step->gradient_count != x->params.count) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "step %lld has %zu gradients, %s has %u", (long long)step->number,
                    step->gradient_count, x->args->params, x->params.count);
    }
    const size_t count = step_messages(&x->trace, s, x->messages);
    if (count == 0) {
        x->skipped++;
        return;
    }
    if (!cut_params(&x->params, x->messages, count, x->ends)) {
        gw_cli_fail(GW_CLI_BAD_DATA, path,
                    "step %lld: the %zu recorded messages do not cut %s at tensor boundaries",
                    (long long)step->number, count, x->args->params);
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
    if (!x->args->common.json) {
        printf("step %lld: %zu messages, recorded end %.3f ms, replay %.3f ms, error %.3f %%\n",
               (long long)step->number, count, recorded / 1e3, network / 1e3, 100 * error);
    }
    json_array_append_new(x->steps, json_pack("{s:I,s:o,s:f,s:f,s:f}", "step", (json_int_t)step->number,
                                              "message_elems", lens, "recorded_us", recorded, "replay_us",
                                              network, "error", error));
}

static int report(const check_state *x)
{
    char *const *files = x->args->common.inputs;
    if (x->replayed == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, files[1],
                            "holds no all-reduce with NCCL metadata to compare with");
    }
    const double recorded = x->recorded_sum / (double)x->replayed;
    const double error = recorded > 0 ? x->plan.claims.makespan_us / recorded - 1 : INFINITY;
    if (x->args->common.json) {
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

static int check(const plan_request *a)
{
    check_state x = {.args = a};
    int code;
    open_state(&x);
    if (x.trace.is_hook) {
        code = plan_hook_check(&x.plan, &x.trace, a->common.inputs[1], a->common.json);
    } else {
        for (size_t s = 0; s < x.trace.step_count; s++) {
            check_step(&x, s);
        }
        code = report(&x);
    }
    close_state(&x);
    return code;
}

static const gw_option options[] = {
    PLAN_PARAMS_ROW("Names and sizes in backprop order"),
    PLAN_MAX_SIZE_ROW,
    PLAN_JSON_ROW,
    {0},
};

const plan_verb plan_verb_check = {
    .name = "check",
    .summary = "a prediction against a recording",
    .run = check,
    .input_min = 2,
    .input_max = 2,
    .takes = WHAT_CHECK_TAKES,
    .line = {.usage = "PLAN TRACE",
             .help = "Compares a plan's prediction with a recording.",
             .inputs = GW_ANY_INPUTS,
             .own = {.options = options}},
};
