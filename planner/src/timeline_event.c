/*
 * Event-driven timeline: resources GPU, CPU, intra and inter network serve stages in order of readiness
 * (ties: job, then stage). Stages on the GPU preempt backprop, which resumes when none waits. Stages
 * themselves are not preempted. This is the closest level to a real machine and the only one that is not
 * monotone: a shorter stage may reorder a queue and lengthen the whole (planner/tests counts such schedules),
 * so plans are evaluated here, not proven.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "timelines.h"

typedef struct machine {
    const gw_plan_run *run;
    gw_plan_spans *spans;
    gw_event_job *state;
    uint32_t busy[GW_PLAN_RESOURCE_COUNT]; /* job + 1, 0: idle */
    gw_plan_tick until[GW_PLAN_RESOURCE_COUNT];
    gw_plan_tick now;
    gw_plan_tick finish;  /* last end so far */
    uint32_t live_from;   /* all jobs before this one are done */
    uint32_t backprop;    /* job whose backprop is next */
    gw_plan_tick left;    /* of its backprop */
    gw_plan_tick resumed; /* when backprop last got the GPU */
    int backprop_runs;
} machine;

static int is_flat(uint8_t op)
{
    return op >= GW_PLAN_OP_FLAT_ALLREDUCE && op <= GW_PLAN_OP_FLAT_BCAST;
}

/* Ends the stages that end now. */
static void end_stages(machine *m)
{
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        if (m->busy[r] == 0 || m->until[r] != m->now) {
            continue;
        }
        uint32_t holder = m->busy[r];
        gw_event_job *job = &m->state[holder - 1];
        if (m->run->jobs[holder - 1].stages[job->stage].resource != r) {
            continue; /* a flat stage on inter holds intra, too; it ends on inter */
        }
        job->stage++;
        job->running = 0;
        job->ready = m->now;
        m->finish = gw_tick_max(m->finish, m->now);
        for (int other = 0; other < GW_PLAN_RESOURCE_COUNT; other++) {
            m->busy[other] = m->busy[other] == holder ? 0 : m->busy[other];
        }
    }
}

/* Ends the backprop of one job if it ends now. */
static void end_backprop(machine *m)
{
    if (!m->backprop_runs || m->resumed + m->left != m->now) {
        return;
    }
    gw_timeline_put(m->spans, m->backprop, m->run->jobs, NULL, m->resumed, m->now);
    m->finish = gw_tick_max(m->finish, m->now);
    m->state[m->backprop].ready = m->now;
    m->backprop++;
    m->left = m->backprop < m->run->job_count ? m->run->jobs[m->backprop].bwd : 0;
    m->backprop_runs = 0;
}

/* For each resource the job whose next stage became ready first, GW_PLAN_NO_INDEX: none. */
static void find_ready(machine *m, uint32_t first[GW_PLAN_RESOURCE_COUNT])
{
    const gw_plan_job *jobs = m->run->jobs;
    while (m->live_from < m->run->job_count && m->live_from < m->backprop &&
           m->state[m->live_from].stage == jobs[m->live_from].stage_count) {
        m->live_from++;
    }
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        first[r] = GW_PLAN_NO_INDEX;
    }
    for (uint32_t j = m->live_from; j < m->backprop; j++) {
        if (m->state[j].running || m->state[j].stage == jobs[j].stage_count) {
            continue;
        }
        uint8_t r = jobs[j].stages[m->state[j].stage].resource;
        if (first[r] == GW_PLAN_NO_INDEX || m->state[j].ready < m->state[first[r]].ready) {
            first[r] = j;
        }
    }
}

static void suspend_backprop(machine *m)
{
    if (m->now > m->resumed) {
        gw_timeline_put(m->spans, m->backprop, m->run->jobs, NULL, m->resumed, m->now);
    }
    m->left -= m->now - m->resumed;
    m->backprop_runs = 0;
}

/* Each idle resource takes its first ready stage; an idle GPU then resumes backprop. Returns 1 when
 * something ends at once. */
static int start_stages(machine *m)
{
    uint32_t first[GW_PLAN_RESOURCE_COUNT];
    int ends_at_once = 0;
    find_ready(m, first);
    for (int r = GW_PLAN_RESOURCE_COUNT - 1; r >= 0; r--) { /* inter first: a flat stage may need intra */
        uint32_t j = first[r];
        if (m->busy[r] != 0 || j == GW_PLAN_NO_INDEX) {
            continue;
        }
        const gw_plan_stage *stage = &m->run->jobs[j].stages[m->state[j].stage];
        int both =
            (m->run->flags & GW_PLAN_FLAT_USES_BOTH) != 0 && r == GW_PLAN_ON_INTER && is_flat(stage->op);
        if (both && m->busy[GW_PLAN_ON_INTRA] != 0) {
            continue;
        }
        if (r == GW_PLAN_ON_GPU && m->backprop_runs) {
            suspend_backprop(m);
        }
        m->busy[r] = j + 1;
        m->until[r] = m->now + stage->duration;
        if (both) {
            m->busy[GW_PLAN_ON_INTRA] = j + 1;
            m->until[GW_PLAN_ON_INTRA] = m->until[r];
            first[GW_PLAN_ON_INTRA] = GW_PLAN_NO_INDEX;
        }
        m->state[j].running = 1;
        gw_timeline_put(m->spans, j, m->run->jobs, stage, m->now, m->until[r]);
        ends_at_once |= stage->duration == 0;
    }
    if (!m->backprop_runs && m->busy[GW_PLAN_ON_GPU] == 0 && m->backprop < m->run->job_count) {
        m->backprop_runs = 1;
        m->resumed = m->now;
        ends_at_once |= m->left == 0;
    }
    return ends_at_once;
}

/* Time of the next end, INT64_MAX when nothing runs. */
static gw_plan_tick next_end(const machine *m)
{
    gw_plan_tick next = m->backprop_runs ? m->resumed + m->left : INT64_MAX;
    for (int r = 0; r < GW_PLAN_RESOURCE_COUNT; r++) {
        if (m->busy[r] != 0) {
            next = gw_tick_min(next, m->until[r]);
        }
    }
    return next;
}

gw_plan_tick gw_timeline_event(const gw_plan_run *run, gw_plan_spans *spans, gw_event_job *state)
{
    machine m = {.run = run, .spans = spans, .state = state, .left = run->jobs[0].bwd};
    for (uint32_t j = 0; j < run->job_count; j++) {
        state[j] = (gw_event_job){INT64_MAX, 0, 0};
    }
    for (;;) {
        end_stages(&m);
        end_backprop(&m);
        if (start_stages(&m)) {
            continue;
        }
        gw_plan_tick next = next_end(&m);
        if (next == INT64_MAX) {
            return m.finish;
        }
        m.now = next;
    }
}
