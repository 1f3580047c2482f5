/*
 * gw_plan_timeline(): checks jobs, picks the level.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "timelines.h"

#include "plan_arena.h"

size_t gw_plan_timeline_span_count_max(const gw_plan_job *jobs, uint32_t job_count)
{
    size_t count = 0;
    for (uint32_t j = 0; jobs != NULL && j < job_count; j++) {
        /* At the event level every encode or decode may cut a backprop span in two. */
        count += 1 + 2 * (size_t)jobs[j].stage_count;
    }
    return count;
}

size_t gw_plan_timeline_workspace_size(uint32_t job_count)
{
    return (size_t)job_count * sizeof(gw_event_job) + 8;
}

static gw_status check_jobs(const gw_plan_run *run)
{
    gw_plan_tick total = 0;
    for (uint32_t j = 0; j < run->job_count; j++) {
        const gw_plan_job *job = &run->jobs[j];
        gw_plan_tick job_total = job->bwd;
        if (job->stage_count > GW_PLAN_STAGES_MAX) {
            return GW_ERR_ARG;
        }
        if (job_total < 0) {
            return GW_ERR_NEGATIVE;
        }
        for (uint32_t s = 0; s < job->stage_count; s++) {
            const gw_plan_stage *stage = &job->stages[s];
            if (stage->resource >= GW_PLAN_RESOURCE_COUNT || stage->queue > 2 ||
                stage->kind == GW_PLAN_SPAN_BACKPROP || stage->kind > GW_PLAN_SPAN_COPY) {
                return GW_ERR_ARG;
            }
            if (stage->duration < 0) {
                return GW_ERR_NEGATIVE;
            }
            if (stage->duration >= GW_PLAN_TICK_MAX || job_total >= GW_PLAN_TICK_MAX) {
                return GW_ERR_TICKS;
            }
            job_total += stage->duration;
        }
        if (job_total >= GW_PLAN_TICK_MAX - total) {
            return GW_ERR_TICKS;
        }
        total += job_total;
    }
    return GW_OK;
}

gw_status gw_plan_timeline(const gw_plan_run *run, gw_plan_spans *spans, gw_plan_tick *makespan,
                           const gw_workspace *workspace)
{
    gw_plan_spans counted = {NULL, 0, 0};
    if (run == NULL || run->jobs == NULL || makespan == NULL ||
        (run->decode != GW_PLAN_DECODE_SERIAL && run->decode != GW_PLAN_DECODE_PARALLEL) ||
        (unsigned)run->level > GW_PLAN_LEVEL_EVENT) {
        return GW_ERR_ARG;
    }
    if (run->job_count == 0) {
        return GW_ERR_EMPTY;
    }
    gw_status status = check_jobs(run);
    if (status != GW_OK) {
        return status;
    }
    spans = spans != NULL ? spans : &counted;
    if (run->level == GW_PLAN_LEVEL_EVENT) {
        gw_arena arena;
        gw_event_job *state = gw_arena_open(&arena, workspace)
                                  ? gw_arena_take(&arena, run->job_count, sizeof(gw_event_job))
                                  : NULL;
        if (state == NULL) {
            return GW_ERR_WORKSPACE;
        }
        spans->count = 0;
        *makespan = gw_timeline_event(run, spans, state);
    } else {
        spans->count = 0;
        *makespan = gw_timeline_in_order(run, spans);
    }
    return spans->items != NULL && spans->count > spans->capacity ? GW_ERR_DST : GW_OK;
}
