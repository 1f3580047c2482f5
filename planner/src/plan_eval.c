/*
 * Serial level: evaluation of plans by the definition, and expansion of plans into jobs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_solvers.h"
#include "wide.h"

/* Checks a group of a plan that has covered tensors up to `next`; sums its elements and backprop time. */
static gw_status group_sums(const gw_plan_problem *problem, const gw_plan_group *group, uint32_t next,
                            int64_t *len, gw_plan_tick *bwd)
{
    if (group->first != next || group->tensor_count == 0 ||
        group->tensor_count > problem->tensor_count - next || group->method >= problem->method_count) {
        return GW_ERR_PLAN;
    }
    *len = 0;
    *bwd = 0;
    for (uint32_t i = next; i < next + group->tensor_count; i++) {
        *len += problem->tensors[i].len;
        *bwd += problem->tensors[i].bwd;
        if ((problem->tensors[i].forbidden >> group->method & 1u) != 0) {
            return GW_ERR_PLAN;
        }
    }
    if (problem->group_len_max > 0 && *len > problem->group_len_max) {
        return GW_ERR_PLAN;
    }
    return GW_OK;
}

gw_status gw_plan_eval(const gw_plan_problem *problem, const gw_plan *plan, gw_plan_tick *makespan)
{
    if (plan == NULL || makespan == NULL || (plan->groups == NULL && plan->group_count > 0)) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_problem_check_numbers(problem, NULL);
    if (status != GW_OK) {
        return status;
    }
    gw_serial_clock clock = GW_SERIAL_CLOCK_ZERO;
    uint32_t next = 0;
    int64_t error = 0;
    for (uint32_t j = 0; j < plan->group_count; j++) {
        int64_t len;
        gw_plan_tick bwd;
        status = group_sums(problem, &plan->groups[j], next, &len, &bwd);
        if (status != GW_OK) {
            return status;
        }
        gw_serial_group(&clock, &problem->methods[plan->groups[j].method], bwd, len);
        next += plan->groups[j].tensor_count;
        error += problem->methods[plan->groups[j].method].error * len;
    }
    if (next != problem->tensor_count || (problem->error_max > 0 && error > problem->error_max)) {
        return GW_ERR_PLAN;
    }
    *makespan = gw_serial_finish(&clock, problem->decode);
    return GW_OK;
}

static void add_stage(gw_plan_job *job, gw_plan_tick duration, gw_plan_resource resource,
                      gw_plan_span_kind kind)
{
    if (duration > 0 || kind == GW_PLAN_SPAN_NETWORK) {
        job->stages[job->stage_count++] =
            (gw_plan_stage){duration, (uint8_t)resource, 1, (uint8_t)kind, GW_PLAN_OP_COUNT};
    }
}

/* The stages of a group of `len` elements. */
static void add_stages(gw_plan_job *job, const gw_plan_method *method, int64_t len)
{
    const int on_cpu = method->device == GW_PLAN_CPU;
    const gw_plan_resource encoder = on_cpu ? GW_PLAN_ON_CPU : GW_PLAN_ON_GPU;
    const gw_plan_resource adder = on_cpu ? GW_PLAN_ON_CPU_SUM : GW_PLAN_ON_GPU;
    const gw_plan_resource decoder = on_cpu ? GW_PLAN_ON_CPU_DECODE : GW_PLAN_ON_GPU;
    const gw_plan_tick host = on_cpu ? gw_cost_at(&method->host, len) : 0;
    add_stage(job, host, encoder, GW_PLAN_SPAN_COPY);
    add_stage(job, gw_cost_at(&method->enc, len), encoder, GW_PLAN_SPAN_ENCODE);
    add_stage(job, gw_cost_at(&method->net, len), GW_PLAN_ON_INTER, GW_PLAN_SPAN_NETWORK);
    if (method->owner_count > 0) {
        add_stage(job, gw_method_sum(method, len), adder, GW_PLAN_SPAN_SUM);
        add_stage(job, gw_cost_at(&method->gather, len), GW_PLAN_ON_INTER, GW_PLAN_SPAN_NETWORK);
    }
    add_stage(job, gw_cost_at(&method->dec, len) + gw_cost_at(&method->dec_more, len), decoder,
              GW_PLAN_SPAN_DECODE);
    add_stage(job, host, decoder, GW_PLAN_SPAN_COPY);
}

gw_status gw_plan_jobs(const gw_plan_problem *problem, const gw_plan *plan, gw_plan_job *jobs,
                       uint32_t jobs_capacity)
{
    gw_plan_tick makespan;
    gw_status status = jobs == NULL ? GW_ERR_ARG : gw_plan_eval(problem, plan, &makespan); /* checks all */
    if (status != GW_OK) {
        return status;
    }
    if (jobs_capacity < plan->group_count) {
        return GW_ERR_DST;
    }
    uint32_t next = 0;
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const gw_plan_method *method = &problem->methods[plan->groups[j].method];
        int64_t len = 0;
        gw_plan_job *job = &jobs[j];
        job->bwd = 0;
        job->stage_count = 0;
        (void)group_sums(problem, &plan->groups[j], next, &len, &job->bwd);
        next += plan->groups[j].tensor_count;
        add_stages(job, method, len);
    }
    return GW_OK;
}

static int is_network(const gw_plan_stage *stage)
{
    return stage->resource == GW_PLAN_ON_INTRA || stage->resource == GW_PLAN_ON_INTER;
}

static int is_gpu(const gw_plan_stage *stage)
{
    return stage->resource == GW_PLAN_ON_GPU;
}

void gw_plan_job_vector(const gw_plan_job *job, gw_plan_vector *vector)
{
    uint32_t first = job->stage_count;
    uint32_t last = 0;
    for (uint32_t s = 0; s < job->stage_count; s++) {
        if (is_network(&job->stages[s])) {
            first = first == job->stage_count ? s : first;
            last = s;
        }
    }
    vector->gpu = 0;
    vector->cpu = 0;
    vector->net = 0;
    vector->tail = 0;
    vector->tail_cpu = 0;
    for (uint32_t s = 0; s < job->stage_count; s++) {
        const gw_plan_stage *stage = &job->stages[s];
        gw_plan_tick *time = s < first                        ? (is_gpu(stage) ? &vector->gpu : &vector->cpu)
                             : s <= last                      ? &vector->net
                             : is_gpu(&job->stages[last + 1]) ? &vector->tail
                                                              : &vector->tail_cpu;
        *time = gw_add_saturated(*time, stage->duration);
    }
}
