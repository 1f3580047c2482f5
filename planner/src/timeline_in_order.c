/*
 * Serial and pipelined timelines of jobs.
 *
 * Serial: one network; everything between the first and the last network step of a job occupies it.
 * Pipelined: three in-order network queues (first intra or flat step, inter, second intra step), one GPU and
 * one CPU queue. Work between two network steps belongs to the queue of the step that follows it (a stream
 * that waits for its kernel). Both are compositions of max and +: a longer duration never shortens the
 * schedule. Decodes after the last network step follow the decode rule.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "timelines.h"

/* First network stage at or after `from`; stage_count when there is none. */
static uint32_t next_network(const gw_plan_job *job, uint32_t from)
{
    while (from < job->stage_count && job->stages[from].resource < GW_PLAN_ON_INTRA) {
        from++;
    }
    return from;
}

typedef struct queues {
    const gw_plan_run *run;
    gw_plan_spans *spans;
    gw_plan_tick gpu;     /* end of backprop and GPU encoding */
    gw_plan_tick cpu;     /* end of the CPU's encodes */
    gw_plan_tick net[3];  /* ends of the network queues */
    gw_plan_tick decoder; /* end of the GPU's decodes, after backprop */
    gw_plan_tick cpu_decoder;
    gw_plan_tick finish;
} queues;

/* Runs stage s of job j from `start`; returns its end. */
static gw_plan_tick run_stage(queues *q, uint32_t j, uint32_t s, gw_plan_tick start)
{
    const gw_plan_stage *stage = &q->run->jobs[j].stages[s];
    gw_timeline_put(q->spans, j, q->run->jobs, stage, start, start + stage->duration);
    return start + stage->duration;
}

/* Backprop and the stages before the first network step: GPU work, then CPU work (an option has only one of
 * them here). Returns when the job is ready for the network. */
static gw_plan_tick encode(queues *q, uint32_t j, uint32_t first)
{
    const gw_plan_job *job = &q->run->jobs[j];
    gw_timeline_put(q->spans, j, q->run->jobs, NULL, q->gpu, q->gpu + job->bwd);
    q->gpu += job->bwd;
    gw_plan_tick ready = q->gpu;
    for (uint32_t s = 0; s < first; s++) {
        if (job->stages[s].resource == GW_PLAN_ON_GPU) {
            q->gpu = run_stage(q, j, s, q->gpu);
            ready = q->gpu;
        }
    }
    for (uint32_t s = 0; s < first; s++) {
        if (job->stages[s].resource != GW_PLAN_ON_GPU && job->stages[s].duration > 0) {
            q->cpu = run_stage(q, j, s, gw_tick_max(q->cpu, ready));
            ready = q->cpu;
        }
    }
    return ready;
}

/* The network steps from stage *s on, with the work between them; *s becomes the first stage after them. */
static gw_plan_tick communicate(queues *q, uint32_t j, uint32_t *s, gw_plan_tick ready)
{
    const gw_plan_job *job = &q->run->jobs[j];
    for (;;) {
        uint32_t network = next_network(job, *s);
        if (network == job->stage_count) {
            return ready; /* only decodes are left */
        }
        gw_plan_tick *queue =
            &q->net[q->run->level == GW_PLAN_LEVEL_PIPELINED ? job->stages[network].queue : 0];
        gw_plan_tick now = gw_tick_max(*queue, ready);
        for (; *s <= network; (*s)++) {
            now = run_stage(q, j, *s, now);
        }
        *queue = now;
        ready = now;
    }
}

gw_plan_tick gw_timeline_in_order(const gw_plan_run *run, gw_plan_spans *spans)
{
    gw_plan_tick backprop_end = 0;
    for (uint32_t j = 0; j < run->job_count; j++) {
        const gw_plan_job *job = &run->jobs[j];
        backprop_end += job->bwd;
        for (uint32_t s = 0; s < next_network(job, 0); s++) {
            backprop_end += job->stages[s].resource == GW_PLAN_ON_GPU ? job->stages[s].duration : 0;
        }
    }
    queues q = {run, spans, 0, 0, {0, 0, 0}, backprop_end, 0, backprop_end};
    for (uint32_t j = 0; j < run->job_count; j++) {
        uint32_t s = next_network(&run->jobs[j], 0);
        gw_plan_tick ready = encode(&q, j, s);
        ready = communicate(&q, j, &s, ready);
        q.finish = gw_tick_max(q.finish, ready);
        gw_plan_tick *decoder =
            s < run->jobs[j].stage_count && run->jobs[j].stages[s].resource == GW_PLAN_ON_GPU
                ? &q.decoder
                : &q.cpu_decoder;
        for (; s < run->jobs[j].stage_count; s++) {
            ready = run_stage(&q, j, s,
                              run->decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(*decoder, ready) : ready);
            *decoder = ready;
            q.finish = gw_tick_max(q.finish, ready);
        }
    }
    return q.finish;
}
