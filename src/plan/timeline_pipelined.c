/*
 * Serial and pipelined timelines of jobs.
 *
 * Serial: one network; everything between the first and the last network step of a job occupies it.
 * Pipelined: three in-order network queues (first intra or flat step, inter, second intra step), one GPU and
 * one CPU queue. Work between two network steps belongs to the queue of the step that follows it (a stream
 * that waits for its kernel). Both are compositions of max and +: a longer duration never shortens the
 * schedule. Decodes behind the last network step follow the decode rule.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

typedef struct span_list {
    gw_plan_span *spans;
    size_t capacity;
    size_t count;
} span_list;

static void put(span_list *list, uint32_t job, uint8_t stage, const gw_plan_stage *what, gw_plan_tick start,
                gw_plan_tick end)
{
    if (list->spans != NULL && list->count < list->capacity) {
        gw_plan_span *span = &list->spans[list->count];
        span->start = start;
        span->end = end;
        span->job = job;
        span->stage = stage;
        span->resource = what == NULL ? (uint8_t)GW_PLAN_ON_GPU : what->resource;
        span->kind = (uint8_t)(what == NULL                         ? GW_PLAN_SPAN_BACKPROP
                               : what->resource >= GW_PLAN_ON_INTRA ? GW_PLAN_SPAN_NETWORK
                               : what->decode                       ? GW_PLAN_SPAN_DECODE
                                                                    : GW_PLAN_SPAN_ENCODE);
    }
    list->count++;
}

static int is_network(const gw_plan_stage *stage)
{
    return stage->resource >= GW_PLAN_ON_INTRA;
}

/* First network stage at or after `from`; stage_count when there is none. */
static uint32_t next_network(const gw_plan_job *job, uint32_t from)
{
    while (from < job->stage_count && !is_network(&job->stages[from])) {
        from++;
    }
    return from;
}

size_t gw_plan_timeline_span_count_max(const gw_plan_job *jobs, uint32_t job_count)
{
    size_t count = 0;
    for (uint32_t j = 0; jobs != NULL && j < job_count; j++) {
        /* At the event level every encode or decode may cut a backprop bar in two. */
        count += 1 + 2 * (size_t)jobs[j].stage_count;
    }
    return count;
}

gw_plan_tick gw_timeline_in_order(int pipelined, gw_plan_decode decode, const gw_plan_job *jobs,
                                  uint32_t job_count, gw_plan_span *spans, size_t span_capacity,
                                  size_t *span_count)
{
    span_list list = {spans, span_capacity, 0};
    gw_plan_tick backprop_end = 0;
    for (uint32_t j = 0; j < job_count; j++) {
        backprop_end += jobs[j].bwd;
        for (uint32_t s = 0; s < next_network(&jobs[j], 0); s++) {
            backprop_end += jobs[j].stages[s].resource == GW_PLAN_ON_GPU ? jobs[j].stages[s].duration : 0;
        }
    }
    gw_plan_tick e = 0;
    gw_plan_tick p = 0;
    gw_plan_tick c[3] = {0, 0, 0};
    gw_plan_tick decoder = backprop_end;
    gw_plan_tick finish = backprop_end;
    for (uint32_t j = 0; j < job_count; j++) {
        const gw_plan_job *job = &jobs[j];
        uint32_t first = next_network(job, 0);
        put(&list, j, 255, NULL, e, e + job->bwd);
        e += job->bwd;
        /* GPU work first, then CPU work: an option has only one of them here. */
        gw_plan_tick ready = e;
        for (uint32_t s = 0; s < first; s++) {
            if (job->stages[s].resource == GW_PLAN_ON_GPU) {
                put(&list, j, (uint8_t)s, &job->stages[s], e, e + job->stages[s].duration);
                e += job->stages[s].duration;
                ready = e;
            }
        }
        for (uint32_t s = 0; s < first; s++) {
            if (job->stages[s].resource == GW_PLAN_ON_CPU && job->stages[s].duration > 0) {
                p = gw_tick_max(p, ready);
                put(&list, j, (uint8_t)s, &job->stages[s], p, p + job->stages[s].duration);
                p += job->stages[s].duration;
                ready = p;
            }
        }
        uint32_t s = first;
        while (s < job->stage_count) {
            uint32_t network = next_network(job, s);
            if (network == job->stage_count) {
                break; /* only decodes are left */
            }
            gw_plan_tick *queue = &c[pipelined ? job->stages[network].queue : 0];
            gw_plan_tick now = gw_tick_max(*queue, ready);
            for (; s <= network; s++) {
                put(&list, j, (uint8_t)s, &job->stages[s], now, now + job->stages[s].duration);
                now += job->stages[s].duration;
            }
            *queue = now;
            ready = now;
        }
        finish = gw_tick_max(finish, ready);
        for (; s < job->stage_count; s++) {
            gw_plan_tick start = decode == GW_PLAN_DECODE_SERIAL ? gw_tick_max(decoder, ready) : ready;
            put(&list, j, (uint8_t)s, &job->stages[s], start, start + job->stages[s].duration);
            ready = start + job->stages[s].duration;
            decoder = ready;
            finish = gw_tick_max(finish, ready);
        }
    }
    *span_count = list.count;
    return finish;
}
