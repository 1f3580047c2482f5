/*
 * plan check PLAN TRACE: a prediction against a recording.
 *
 * Each recorded step is replayed at the serial level: messages leave in the recorded order, each when its
 * last gradient is ready and the network is free, with the recorded durations. If the replay's end matches
 * the recording, the model of the timeline holds for this job, whatever the cost curves say. Then the plan's
 * own prediction is put beside the recording, directly when the plan has the recorded groups.
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
#include "plan_kineto.h"

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
        while (at < params->count && sum < messages[j]->elems) {
            sum += params->tensors[at++].elems;
        }
        if (sum != messages[j]->elems) {
            return 0;
        }
        ends[j] = at;
    }
    while (at < params->count && params->tensors[at].elems == 0 && count > 0) {
        ends[count - 1] = ++at;
    }
    return at == params->count;
}

int plan_cmd_check(const plan_args *args)
{
    if (args->file_count != 2 || args->params == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan check takes a plan, a recording and --params CSV");
    }
    plan_file plan;
    plan_model params;
    plan_kineto trace;
    memset(&params, 0, sizeof params);
    memset(&trace, 0, sizeof trace);
    int code = plan_file_read(args->files[0], &plan);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_model_read_csv(args->params, &params);
    if (code == GW_CLI_OK) {
        code = plan_kineto_read(args->files[1], args->max_size, &trace);
    }
    const plan_kineto_collective **messages = calloc(BUCKETS_MAX, sizeof *messages);
    uint32_t *ends = calloc(BUCKETS_MAX, sizeof *ends);
    if (code == GW_CLI_OK && (messages == NULL || ends == NULL)) {
        code = gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    if (code == GW_CLI_OK && plan.tensor_count != params.count) {
        code = gw_cli_error(GW_CLI_BAD_DATA, args->files[0], "is for %u tensors, %s has %u",
                            plan.tensor_count, args->params, params.count);
    }
    json_t *steps = json_array();
    double worst = 0;
    double recorded_sum = 0;
    size_t replayed = 0;
    int same_groups = 1;
    int skipped = 0;
    for (size_t s = 0; s < trace.step_count && code == GW_CLI_OK; s++) {
        const plan_kineto_step *step = &trace.steps[s];
        if (step->gradient_count == 0) {
            continue;
        }
        if (step->gradient_count != params.count) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1], "step %lld has %zu gradients, %s has %u",
                                (long long)step->number, step->gradient_count, args->params, params.count);
            break;
        }
        size_t count = step_messages(&trace, s, messages);
        if (count == 0) {
            skipped++;
            continue;
        }
        if (!cut_params(&params, messages, count, ends)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1],
                                "step %lld: the %zu recorded messages do not cut %s at tensor boundaries",
                                (long long)step->number, count, args->params);
            break;
        }
        double network = 0;
        double first = step->gradients[0].ready_us;
        for (size_t j = 0; j < count; j++) {
            double ready = step->gradients[ends[j] - 1].ready_us - first;
            network = (network > ready ? network : ready) + messages[j]->duration_us;
        }
        double recorded = messages[count - 1]->start_us + messages[count - 1]->duration_us - first;
        double error = recorded > 0 ? fabs(network / recorded - 1) : INFINITY;
        worst = error > worst ? error : worst;
        recorded_sum += recorded;
        replayed++;
        /* The plan's groups against the recorded ones. */
        same_groups &= json_array_size(plan.groups) == count;
        for (size_t j = 0; j < count && same_groups; j++) {
            json_t *last = json_object_get(json_array_get(plan.groups, j), "last");
            same_groups = json_is_integer(last) && json_integer_value(last) == (json_int_t)ends[j] - 1;
        }
        json_t *elems = json_array();
        for (size_t j = 0; j < count; j++) {
            json_array_append_new(elems, json_integer((json_int_t)messages[j]->elems));
        }
        if (!args->json) {
            printf("step %lld: %zu messages, recorded end %.3f ms, replay %.3f ms, error %.3f %%\n",
                   (long long)step->number, count, recorded / 1e3, network / 1e3, 100 * error);
        }
        json_array_append_new(steps, json_pack("{s:I,s:o,s:f,s:f,s:f}", "step", (json_int_t)step->number,
                                               "message_elems", elems, "recorded_us", recorded, "replay_us",
                                               network, "error", error));
    }
    if (code == GW_CLI_OK && replayed == 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, args->files[1],
                            "holds no all-reduce with NCCL metadata to compare with");
    }
    if (code == GW_CLI_OK) {
        double recorded = recorded_sum / (double)replayed;
        double error = recorded > 0 ? plan.makespan_us / recorded - 1 : INFINITY;
        if (!args->json) {
            printf("replay with recorded durations: worst error %.3f %% over %zu steps\n", 100 * worst,
                   replayed);
            printf("plan %s: predicts %.3f ms, recorded %.3f ms on average (%+.1f %%)%s\n", args->files[0],
                   plan.makespan_us / 1e3, recorded / 1e3, 100 * error,
                   same_groups ? ""
                               : "; the recording used other groups, so this is not an error of the model");
        } else {
            code = gw_cli_json_print(json_pack(
                "{s:O,s:f,s:o,s:f,s:o,s:b,s:i}", "steps", steps, "replay_error_max", worst, "predicted_us",
                gw_cli_json_real(plan.makespan_us), "recorded_us", recorded, "prediction_error",
                gw_cli_json_real(error), "same_groups", same_groups, "steps_without_messages", skipped));
        }
    }
    json_decref(steps);
    free((void *)messages);
    free(ends);
    plan_kineto_free(&trace);
    plan_model_free(&params);
    plan_file_close(&plan);
    return code;
}
