/*
 * Event-driven timeline: resources GPU, CPU, intra and inter network serve stages in order of readiness
 * (ties: job, then stage). Stages on the GPU preempt backprop, which resumes when none waits. Stages
 * themselves are not preempted. This is the closest level to a real machine and the only one that is not
 * monotone: a shorter stage may reorder a queue and lengthen the whole (tests/plan counts such schedules), so
 * plans are judged here, not proven.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_internal.h"

typedef struct event_job {
    gw_plan_tick ready; /* of the next stage; INT64_MAX before its backprop is done */
    uint32_t stage;     /* next stage */
    uint32_t running;
} event_job;

typedef struct event_span {
    gw_plan_span *spans;
    size_t capacity;
    size_t count;
} event_span;

static void put(event_span *list, gw_plan_tick start, gw_plan_tick end, uint32_t job, uint8_t stage,
                const gw_plan_stage *what)
{
    if (list->spans != NULL && list->count < list->capacity) {
        uint8_t kind = (uint8_t)GW_PLAN_SPAN_BACKPROP;
        uint8_t resource = (uint8_t)GW_PLAN_ON_GPU;
        if (what != NULL) {
            resource = what->resource;
            kind = (uint8_t)(resource >= GW_PLAN_ON_INTRA ? GW_PLAN_SPAN_NETWORK
                             : what->decode               ? GW_PLAN_SPAN_DECODE
                                                          : GW_PLAN_SPAN_ENCODE);
        }
        list->spans[list->count] = (gw_plan_span){start, end, job, resource, kind, stage};
    }
    list->count++;
}

size_t gw_plan_timeline_workspace_size(uint32_t job_count)
{
    return (size_t)job_count * sizeof(event_job) + 8;
}

static int is_flat(uint8_t op)
{
    return op >= GW_PLAN_OP_FLAT_ALLREDUCE && op <= GW_PLAN_OP_FLAT_BCAST;
}

static gw_plan_tick run_events(uint32_t flags, const gw_plan_job *jobs, uint32_t job_count, event_job *state,
                               event_span *list)
{
    uint32_t busy[GW_PLAN_RESOURCE_COUNT]; /* job + 1, 0: idle */
    gw_plan_tick until[GW_PLAN_RESOURCE_COUNT] = {0, 0, 0, 0};
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        busy[r] = 0;
    }
    for (uint32_t j = 0; j < job_count; j++) {
        state[j] = (event_job){INT64_MAX, 0, 0};
    }
    gw_plan_tick now = 0;
    gw_plan_tick finish = 0;
    uint32_t backprop = 0; /* job whose backprop is next */
    gw_plan_tick left = job_count > 0 ? jobs[0].bwd : 0;
    gw_plan_tick resumed = 0; /* when backprop last got the GPU */
    int backprop_runs = 0;
    uint32_t live_from = 0; /* all jobs before this one are done */
    for (;;) {
        /* 1. Ends at `now`. */
        for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
            if (busy[r] != 0 && until[r] == now) {
                event_job *job = &state[busy[r] - 1];
                const gw_plan_stage *stage = &jobs[busy[r] - 1].stages[job->stage];
                if (stage->resource == r) { /* a flat stage may hold a second resource */
                    job->stage++;
                    job->running = 0;
                    job->ready = now;
                    finish = gw_tick_max(finish, now);
                    for (int other = 0; other < GW_PLAN_RESOURCE_COUNT; other++) {
                        if (other != r && busy[other] == busy[r]) {
                            busy[other] = 0;
                        }
                    }
                    busy[r] = 0;
                }
            }
        }
        if (backprop_runs && resumed + left == now) {
            put(list, resumed, now, backprop, 255, NULL);
            finish = gw_tick_max(finish, now);
            state[backprop].ready = now;
            backprop++;
            left = backprop < job_count ? jobs[backprop].bwd : 0;
            backprop_runs = 0;
        }
        /* 2. Starts: each idle resource takes the first ready stage. */
        while (live_from < job_count && live_from < backprop &&
               state[live_from].stage == jobs[live_from].stage_count) {
            live_from++;
        }
        uint32_t first[GW_PLAN_RESOURCE_COUNT];
        for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
            first[r] = GW_PLAN_NO_INDEX;
        }
        for (uint32_t j = live_from; j < backprop; j++) {
            if (state[j].running || state[j].stage == jobs[j].stage_count) {
                continue;
            }
            uint8_t r = jobs[j].stages[state[j].stage].resource;
            if (first[r] == GW_PLAN_NO_INDEX || state[j].ready < state[first[r]].ready) {
                first[r] = j;
            }
        }
        int started_empty = 0;
        for (int r = GW_PLAN_RESOURCE_COUNT - 1; r >= 0; r--) { /* inter first: a flat stage may need intra */
            if (busy[r] != 0 || first[r] == GW_PLAN_NO_INDEX) {
                continue;
            }
            uint32_t j = first[r];
            const gw_plan_stage *stage = &jobs[j].stages[state[j].stage];
            int both = (flags & GW_PLAN_FLAT_USES_BOTH) != 0 && r == GW_PLAN_ON_INTER && is_flat(stage->op);
            if (both && busy[GW_PLAN_ON_INTRA] != 0) {
                continue;
            }
            if (r == GW_PLAN_ON_GPU && backprop_runs) {
                if (now > resumed) {
                    put(list, resumed, now, backprop, 255, NULL);
                }
                left -= now - resumed;
                backprop_runs = 0;
            }
            busy[r] = j + 1;
            until[r] = now + stage->duration;
            if (both) {
                busy[GW_PLAN_ON_INTRA] = j + 1;
                until[GW_PLAN_ON_INTRA] = until[r];
                first[GW_PLAN_ON_INTRA] = GW_PLAN_NO_INDEX;
            }
            state[j].running = 1;
            put(list, now, until[r], j, (uint8_t)state[j].stage, stage);
            started_empty |= stage->duration == 0;
        }
        if (!backprop_runs && busy[GW_PLAN_ON_GPU] == 0 && backprop < job_count) {
            backprop_runs = 1;
            resumed = now;
            started_empty |= left == 0;
        }
        if (started_empty) {
            continue; /* something ends at once */
        }
        /* 3. Next end. */
        gw_plan_tick next = INT64_MAX;
        for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
            if (busy[r] != 0) {
                next = gw_tick_min(next, until[r]);
            }
        }
        if (backprop_runs) {
            next = gw_tick_min(next, resumed + left);
        }
        if (next == INT64_MAX) {
            return finish;
        }
        now = next;
    }
}

gw_plan_status gw_plan_timeline(gw_plan_level level, gw_plan_decode decode, uint32_t flags,
                                const gw_plan_job *jobs, uint32_t job_count, gw_plan_span *spans,
                                size_t span_capacity, size_t *span_count, void *workspace,
                                size_t workspace_size, gw_plan_tick *makespan)
{
    if (jobs == NULL || makespan == NULL || (spans != NULL && span_count == NULL) ||
        (decode != GW_PLAN_DECODE_SERIAL && decode != GW_PLAN_DECODE_PARALLEL)) {
        return GW_PLAN_ERR_ARG;
    }
    if (job_count == 0) {
        return GW_PLAN_ERR_EMPTY;
    }
    gw_plan_tick total = 0;
    for (uint32_t j = 0; j < job_count; j++) {
        if (jobs[j].stage_count > GW_PLAN_OPTION_OPS_MAX) {
            return GW_PLAN_ERR_ARG;
        }
        gw_plan_tick job_total = jobs[j].bwd;
        if (job_total < 0) {
            return GW_PLAN_ERR_NEGATIVE;
        }
        for (uint32_t s = 0; s < jobs[j].stage_count; s++) {
            const gw_plan_stage *stage = &jobs[j].stages[s];
            if (stage->resource >= GW_PLAN_RESOURCE_COUNT || stage->queue > 2) {
                return GW_PLAN_ERR_ARG;
            }
            if (stage->duration < 0) {
                return GW_PLAN_ERR_NEGATIVE;
            }
            if (stage->duration >= GW_PLAN_TICK_MAX || job_total >= GW_PLAN_TICK_MAX) {
                return GW_PLAN_ERR_OVERFLOW;
            }
            job_total += stage->duration;
        }
        if (job_total >= GW_PLAN_TICK_MAX - total) {
            return GW_PLAN_ERR_OVERFLOW;
        }
        total += job_total;
    }
    size_t count = 0;
    switch (level) {
    case GW_PLAN_LEVEL_SERIAL:
    case GW_PLAN_LEVEL_PIPELINED:
        *makespan = gw_timeline_in_order(level == GW_PLAN_LEVEL_PIPELINED, decode, jobs, job_count, spans,
                                         span_capacity, &count);
        break;
    case GW_PLAN_LEVEL_EVENT: {
        gw_arena arena;
        if (!gw_arena_open(&arena, workspace, workspace_size)) {
            return GW_PLAN_ERR_WORKSPACE;
        }
        event_job *state = gw_arena_take(&arena, job_count, sizeof(event_job));
        if (state == NULL) {
            return GW_PLAN_ERR_WORKSPACE;
        }
        event_span list = {spans, span_capacity, 0};
        *makespan = run_events(flags, jobs, job_count, state, &list);
        count = list.count;
        break;
    }
    default:
        return GW_PLAN_ERR_ARG;
    }
    if (span_count != NULL) {
        *span_count = count;
    }
    return spans != NULL && count > span_capacity ? GW_PLAN_ERR_CAPACITY : GW_PLAN_OK;
}
