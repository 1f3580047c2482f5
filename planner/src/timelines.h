/*
 * Timelines of jobs. The jobs have been checked.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TIMELINES_H
#define GW_TIMELINES_H

#include "plan_cost.h"

/* Appends the span of one stage; stage NULL: backprop. Counts it even if spans are full. */
static inline void gw_timeline_put(gw_plan_spans *spans, uint32_t job, const gw_plan_job *jobs,
                                   const gw_plan_stage *stage, gw_plan_tick start, gw_plan_tick end)
{
    if (spans->items != NULL && spans->count < spans->capacity) {
        gw_plan_span span = {start, end, job, GW_PLAN_ON_GPU, GW_PLAN_SPAN_BACKPROP, 255};
        if (stage != NULL) {
            span.resource = stage->resource;
            span.kind = stage->kind;
            span.stage = (uint8_t)(stage - jobs[job].stages);
        }
        spans->items[spans->count] = span;
    }
    spans->count++;
}

/* Serial and pipelined level. Returns the makespan. */
gw_plan_tick gw_timeline_in_order(const gw_plan_run *run, gw_plan_spans *spans);

typedef struct gw_event_job {
    gw_plan_tick ready; /* of the next stage; INT64_MAX before its backprop is done */
    uint32_t stage;     /* next stage */
    uint32_t running;
} gw_event_job;

/* Event level; state: [job_count]. Returns the makespan. */
gw_plan_tick gw_timeline_event(const gw_plan_run *run, gw_plan_spans *spans, gw_event_job *state);

#endif
