/*
 * Recordings of a profiler or of gradwire's hook.
 *
 * CPU time stamps do not say when a gradient is ready: launches run ahead of the GPU by up to a step. A
 * gradient is ready when the kernel ends whose launch (same thread, NCCL excluded) is the last before its
 * AccumulateGrad starts.
 *
 * Memory follows the gradients, not the recording. What a usual recording has of launches and kernels is kept
 * until the gradients are known. One with more of them is read again: for the last launches before each
 * gradient, then for the kernels of these.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_kineto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"
#include "trace_events.h"

#define KEPT_MAX      ((size_t)1 << 20) /* launches and kernels until the gradients are known: 40 MiB */
#define CANDIDATES    16                /* launches between two gradients that may have made the second */
#define GRADIENTS_MAX ((size_t)1 << 17) /* of all steps together */
#define MESSAGES_MAX  ((size_t)1 << 17)
#define STEPS_MAX     ((size_t)1 << 14)
#define LEN_MAX       (INT64_C(1) << 50)
#define NOT_FOUND     (-1.0) /* in place of the end of a kernel */

typedef struct launch {
    int64_t tid;
    double ts;
    int64_t correlation;
} launch;

typedef struct kernel {
    int64_t correlation;
    double end; /* NAN: not recorded as it should be */
} kernel;

typedef struct candidate {
    double ts;
    int64_t correlation;
} candidate;

typedef enum ready_fault { READY_GOOD = 0, READY_NO_KERNEL, READY_BAD_KERNEL, READY_TOO_FAR } ready_fault;

typedef struct accumulate {
    double ts; /* first: by_time() */
    int64_t tid;
    int64_t len;
    char *name;            /* owned; NULL: not recorded */
    int is_hook;           /* ts is the time when it was ready */
    unsigned launch_count; /* since the gradient before it on the thread, up to CANDIDATES + 1 */
    candidate *launches;   /* the last of them by ts, in the reader's candidates */
    double ready;          /* end of the kernel that it waited for */
    int64_t correlation;   /* of that kernel */
    ready_fault fault;
} accumulate;

/* A growing array. */
typedef struct list {
    void *items;
    size_t count, count_max, item_size;
    const char *what;
} list;

typedef enum pass { PASS_ALL = 0, PASS_LAUNCHES, PASS_KERNELS } pass;

typedef struct reader {
    const char *path;
    pass pass;
    list launches, accumulates, kernels, steps, collectives;
    int reread_launches, reread_kernels; /* too many to keep */
    size_t event_count;
    candidate *candidates;
    kernel *wanted; /* by correlation, each once */
    size_t wanted_count;
} reader;

static void *list_add(list *l)
{
    l->items = plan_grow(l->items, l->count, l->item_size);
    return (char *)l->items + l->count++ * l->item_size;
}

static void list_free(list *l)
{
    free(l->items);
    l->items = NULL;
    l->count = 0;
}

static void free_gradients(reader *r)
{
    accumulate *gradients = r->accumulates.items;
    for (size_t i = 0; i < r->accumulates.count; i++) {
        free(gradients[i].name);
    }
    list_free(&r->accumulates);
}

/* Adds to a list of the result; NULL with a message and an exit code. */
static void *add(const reader *r, list *l, int *code)
{
    *code = l->count < l->count_max
                ? GW_CLI_OK
                : gw_cli_error(GW_CLI_BAD_DATA, r->path, "more than %zu %s; record fewer steps", l->count_max,
                               l->what);
    return *code == GW_CLI_OK ? list_add(l) : NULL;
}

/* Makes room for one of what is kept until the gradients are known. NULL: it is read again, then or from now
 * on. */
static void *keep(list *l, int *reread)
{
    if (*reread || l->count >= KEPT_MAX) {
        *reread = 1;
        list_free(l);
        return NULL;
    }
    return list_add(l);
}

static int bad_event(const reader *r, const trace_event *e, const char *why)
{
    return gw_cli_error_at(GW_CLI_BAD_DATA, r->path, e->offset, "event %zu: %s", e->number, why);
}

static int bad_times(const reader *r, const trace_event *e)
{
    return bad_event(r, e, "ts or dur is missing, negative, too large or no number");
}

/* 0 if they are no times. Beyond 2^53 us (285 years) a double no longer holds every microsecond. */
static int times(const trace_event *e, double *ts, double *duration)
{
    *ts = trace_number_real(&e->ts, (double)NAN);
    *duration = trace_number_real(&e->dur, 0);
    return *ts >= 0 && *ts <= 0x1p53 && *duration >= 0 && *duration <= 0x1p53;
}

/* Elements of a message; -1: none that a model could have. */
static int64_t len_of(const trace_number *number)
{
    const int64_t value = trace_number_whole(number, -1);
    return value <= LEN_MAX ? value : -1;
}

/* ---- launches and kernels of gradients ---- */

static int by_thread_and_time(const void *a, const void *b)
{
    const accumulate *x = a;
    const accumulate *y = b;
    return x->tid != y->tid ? (x->tid < y->tid ? -1 : 1) : x->ts < y->ts ? -1 : x->ts > y->ts;
}

static int by_correlation(const void *a, const void *b)
{
    const kernel *x = a;
    const kernel *y = b;
    return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

/* Matches a launch with the first gradient after it on its thread. */
static void match_launch(reader *r, const launch *l)
{
    accumulate *gradients = r->accumulates.items;
    size_t low = 0;
    size_t high = r->accumulates.count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const accumulate *a = &gradients[middle];
        if (a->tid < l->tid || (a->tid == l->tid && a->ts <= l->ts)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == r->accumulates.count || gradients[low].tid != l->tid || gradients[low].launches == NULL) {
        return;
    }
    accumulate *a = &gradients[low];
    size_t count = a->launch_count < CANDIDATES ? a->launch_count : CANDIDATES;
    a->launch_count += a->launch_count <= CANDIDATES;
    if (count == CANDIDATES) {
        if (l->ts < a->launches[0].ts) {
            return;
        }
        memmove(a->launches, a->launches + 1, (CANDIDATES - 1) * sizeof *a->launches);
        count--;
    }
    for (; count > 0 && a->launches[count - 1].ts > l->ts; count--) {
        a->launches[count] = a->launches[count - 1];
    }
    a->launches[count] = (candidate){l->ts, l->correlation};
}

/* Takes a kernel if a gradient may have waited for it. Of several with one correlation (graphs) the last
 * counts. */
static void match_kernel(reader *r, const kernel *k)
{
    kernel *wanted = r->wanted_count == 0
                         ? NULL
                         : bsearch(k, r->wanted, r->wanted_count, sizeof *r->wanted, by_correlation);
    if (wanted != NULL && (isnan(k->end) || k->end > wanted->end)) { /* NAN stays */
        wanted->end = k->end;
    }
}

/* ---- events ---- */

static int take_collective(reader *r, const trace_event *e)
{
    double ts, duration;
    int code;
    if (len_of(&e->msg_len) < 0) {
        return GW_CLI_OK; /* recorded without NCCL metadata */
    }
    if (!times(e, &ts, &duration)) {
        return bad_times(r, e);
    }
    plan_kineto_collective *c = add(r, &r->collectives, &code);
    if (c != NULL) {
        memset(c, 0, sizeof *c);
        memcpy(c->name, e->collective, sizeof c->name);
        c->len = len_of(&e->msg_len);
        c->start_us = ts;
        c->duration_us = duration;
        c->group_size = trace_number_whole(&e->group_size, 0);
    }
    return code;
}

static int take_kernel(reader *r, const trace_event *e)
{
    double ts, duration;
    const int is_nccl = strstr(e->name, "nccl") != NULL || strstr(e->name, "NCCL") != NULL;
    if (is_nccl) {
        return r->pass == PASS_ALL ? take_collective(r, e) : GW_CLI_OK;
    }
    if (r->pass == PASS_LAUNCHES || (r->pass == PASS_ALL && r->reread_kernels)) {
        return GW_CLI_OK;
    }
    const kernel k = {trace_number_whole(&e->correlation, -1),
                      times(e, &ts, &duration) ? ts + duration : (double)NAN};
    kernel *kept = k.correlation >= 0 && r->pass == PASS_ALL ? keep(&r->kernels, &r->reread_kernels) : NULL;
    if (kept != NULL) {
        *kept = k;
    } else if (r->pass == PASS_KERNELS) {
        match_kernel(r, &k);
    }
    return GW_CLI_OK;
}

static int take_launch(reader *r, const trace_event *e)
{
    const launch l = {trace_number_whole(&e->tid, 0), trace_number_real(&e->ts, (double)NAN),
                      trace_number_whole(&e->correlation, -1)};
    if (r->pass == PASS_KERNELS || strstr(e->name, "Launch") == NULL) {
        return GW_CLI_OK;
    }
    if (!(l.ts >= 0 && l.ts <= 0x1p53)) {
        return bad_times(r, e);
    }
    if (l.correlation < 0) {
        return GW_CLI_OK;
    }
    launch *kept = r->pass == PASS_ALL ? keep(&r->launches, &r->reread_launches) : NULL;
    if (kept != NULL) {
        *kept = l;
    } else if (r->pass == PASS_LAUNCHES) {
        match_launch(r, &l);
    }
    return GW_CLI_OK;
}

static int take_accumulate(reader *r, const trace_event *e)
{
    double ts, duration;
    int code;
    if (strcmp(e->name, "torch::autograd::AccumulateGrad") != 0) {
        return GW_CLI_OK;
    }
    if (!times(e, &ts, &duration)) {
        return bad_times(r, e);
    }
    accumulate *a = add(r, &r->accumulates, &code);
    if (a != NULL) {
        *a = (accumulate){.tid = trace_number_whole(&e->tid, 0), .ts = ts, .len = e->dims_len};
    }
    return code;
}

static int take_step(reader *r, const trace_event *e)
{
    double ts, duration;
    int code;
    if (strncmp(e->name, "ProfilerStep#", 13) != 0) {
        return GW_CLI_OK;
    }
    if (!times(e, &ts, &duration)) {
        return bad_times(r, e);
    }
    plan_kineto_step *step = add(r, &r->steps, &code);
    if (step != NULL) {
        *step = (plan_kineto_step){ts, ts + duration, (int64_t)strtoll(e->name + 13, NULL, 10), NULL, 0};
    }
    return code;
}

/* A gradient or a message of the hook. */
static int take_hook_event(reader *r, const trace_event *e)
{
    double ts, duration;
    int code = GW_CLI_OK;
    if (!e->has_name || !times(e, &ts, &duration)) {
        return bad_event(r, e, "name, ts or dur is missing, negative, too large or no number");
    }
    if (strcmp(e->name, "gradient") == 0) {
        accumulate *a = add(r, &r->accumulates, &code);
        if (a != NULL) {
            *a = (accumulate){.ts = ts, .len = len_of(&e->len), .is_hook = 1};
            a->name = e->has_text ? plan_text(e->text) : NULL;
        }
    } else if (strcmp(e->name, "message") == 0) {
        plan_kineto_collective *c = add(r, &r->collectives, &code);
        if (c != NULL) {
            memset(c, 0, sizeof *c);
            (void)snprintf(c->name, sizeof c->name, "message");
            memcpy(c->codec, e->codec, sizeof c->codec);
            c->len = len_of(&e->len);
            c->start_us = ts;
            c->duration_us = duration;
            const double encoded = trace_number_real(&e->encoded_us, -1);
            c->encoded_us = isfinite(encoded) ? encoded : -1;
        }
    }
    return code;
}

/* Forgets what a reading has found. */
static int begin_reading(reader *r)
{
    accumulate *gradients = r->accumulates.items;
    for (size_t i = 0; i < r->accumulates.count; i++) {
        gradients[i].launch_count = r->pass == PASS_LAUNCHES ? 0 : gradients[i].launch_count;
    }
    if (r->pass == PASS_ALL) {
        free_gradients(r);
        list_free(&r->launches);
        list_free(&r->kernels);
        list_free(&r->steps);
        list_free(&r->collectives);
        r->reread_launches = r->reread_kernels = 0;
    }
    return GW_CLI_OK;
}

static int take_event(void *user, const trace_event *e)
{
    reader *r = user;
    if (e == NULL) {
        return begin_reading(r);
    }
    r->event_count = e->number;
    switch (e->category) {
    case TRACE_KERNEL:
        return take_kernel(r, e);
    case TRACE_RUNTIME:
        return take_launch(r, e);
    case TRACE_CPU_OP:
        return r->pass == PASS_ALL ? take_accumulate(r, e) : GW_CLI_OK;
    case TRACE_ANNOTATION:
        return r->pass == PASS_ALL ? take_step(r, e) : GW_CLI_OK;
    case TRACE_GRADWIRE:
        return r->pass == PASS_ALL ? take_hook_event(r, e) : GW_CLI_OK;
    case TRACE_OTHER:
    default:
        return GW_CLI_OK;
    }
}

/* ---- from launches to times ---- */

/* Reads the recording once more for launches or kernels. */
static int read_again(reader *r, pass which, uint64_t size_max)
{
    r->pass = which;
    return trace_events_read(r->path, size_max, take_event, r);
}

static size_t candidate_count(const accumulate *a)
{
    return a->launch_count < CANDIDATES ? a->launch_count : CANDIDATES;
}

/* Lists the correlations of all candidates. */
static void make_wanted(reader *r)
{
    const accumulate *gradients = r->accumulates.items;
    size_t count = 0;
    for (size_t i = 0; i < r->accumulates.count; i++) {
        count += candidate_count(&gradients[i]);
    }
    r->wanted = plan_alloc(count, sizeof *r->wanted);
    size_t filled = 0;
    for (size_t i = 0; i < r->accumulates.count; i++) {
        for (size_t j = 0; j < candidate_count(&gradients[i]); j++) {
            r->wanted[filled++] = (kernel){gradients[i].launches[j].correlation, NOT_FOUND};
        }
    }
    qsort(r->wanted, count, sizeof *r->wanted, by_correlation);
    for (size_t i = 0; i < count; i++) {
        if (r->wanted_count == 0 || r->wanted[r->wanted_count - 1].correlation != r->wanted[i].correlation) {
            r->wanted[r->wanted_count++] = r->wanted[i];
        }
    }
}

/* Finds the last launches before each gradient and their kernels. */
static int find_candidates(reader *r, uint64_t size_max)
{
    accumulate *gradients = r->accumulates.items;
    size_t count = 0;
    for (size_t i = 0; i < r->accumulates.count; i++) {
        count += !gradients[i].is_hook;
    }
    if (count == 0) {
        return GW_CLI_OK;
    }
    r->candidates = plan_alloc(count * CANDIDATES, sizeof *r->candidates);
    qsort(gradients, r->accumulates.count, sizeof *gradients, by_thread_and_time);
    for (size_t i = r->accumulates.count; i-- > 0;) {
        gradients[i].launches = gradients[i].is_hook ? NULL : r->candidates + --count * CANDIDATES;
    }
    const launch *launches = r->launches.items;
    const kernel *kernels = r->kernels.items;
    int code = r->reread_launches ? read_again(r, PASS_LAUNCHES, size_max) : GW_CLI_OK;
    for (size_t i = 0; i < r->launches.count; i++) {
        match_launch(r, &launches[i]);
    }
    list_free(&r->launches);
    make_wanted(r);
    if (code == GW_CLI_OK && r->reread_kernels) {
        code = read_again(r, PASS_KERNELS, size_max);
    }
    for (size_t i = 0; i < r->kernels.count; i++) {
        match_kernel(r, &kernels[i]);
    }
    list_free(&r->kernels);
    return code;
}

/* Sets when a gradient is ready; `before`: what the gradient before it on the thread waited for. */
static void set_ready(const reader *r, accumulate *a, const accumulate *before)
{
    for (size_t i = candidate_count(a); i-- > 0;) {
        const kernel key = {a->launches[i].correlation, 0};
        const kernel *k = bsearch(&key, r->wanted, r->wanted_count, sizeof key, by_correlation);
        if (k != NULL && k->end != NOT_FOUND) {
            a->ready = k->end;
            a->correlation = k->correlation;
            a->fault = isnan(k->end) ? READY_BAD_KERNEL : READY_GOOD;
            return;
        }
    }
    if (a->launch_count > CANDIDATES) {
        a->fault = READY_TOO_FAR;
    } else if (before != NULL) {
        a->ready = before->ready;
        a->correlation = before->correlation;
        a->fault = before->fault;
    } else {
        a->fault = READY_NO_KERNEL;
    }
}

/* Finds when each gradient was ready. */
static int find_ready_times(reader *r, uint64_t size_max)
{
    accumulate *gradients = r->accumulates.items;
    int code = find_candidates(r, size_max);
    for (size_t i = 0; i < r->accumulates.count && code == GW_CLI_OK; i++) {
        accumulate *a = &gradients[i];
        if (a->is_hook) {
            a->ready = a->ts;
            a->fault = READY_GOOD;
        } else {
            set_ready(r, a, i > 0 && !a[-1].is_hook && a[-1].tid == a->tid ? &a[-1] : NULL);
        }
    }
    free(r->candidates);
    free(r->wanted);
    r->candidates = NULL;
    r->wanted = NULL;
    return code;
}

/* ---- steps ---- */

/* Of accumulate, plan_kineto_step and plan_kineto_collective, which begin with it. */
static int by_time(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y;
}

static int ready_error(const reader *r, const accumulate *a)
{
    switch (a->fault) {
    case READY_BAD_KERNEL:
        return gw_cli_error(
            GW_CLI_BAD_DATA, r->path,
            "kernel with correlation %lld: ts or dur is missing, negative, too large or no number",
            (long long)a->correlation);
    case READY_TOO_FAR:
        return gw_cli_error(
            GW_CLI_BAD_DATA, r->path,
            "none of the last %d launches before the AccumulateGrad at %.3f us has a kernel in the "
            "recording",
            CANDIDATES, a->ts);
    case READY_NO_KERNEL:
        return gw_cli_error(GW_CLI_BAD_DATA, r->path,
                            "no kernel was launched before the AccumulateGrad at %.3f us", a->ts);
    case READY_GOOD:
    default:
        return GW_CLI_OK;
    }
}

/* Moves gradients first to end - 1 into a step. */
static int fill_step(const reader *r, plan_kineto_step *step, size_t first, size_t end)
{
    accumulate *gradients = r->accumulates.items;
    step->gradients = plan_alloc(end - first, sizeof *step->gradients);
    for (size_t i = first; i < end; i++) {
        const int code = ready_error(r, &gradients[i]);
        if (code != GW_CLI_OK) {
            return code;
        }
        step->gradients[step->gradient_count++] =
            (plan_kineto_gradient){gradients[i].ready, gradients[i].len, gradients[i].name};
        gradients[i].name = NULL;
    }
    return GW_CLI_OK;
}

/* Sorts gradients into steps. */
static int make_steps(reader *r, plan_kineto *trace)
{
    accumulate *gradients = r->accumulates.items;
    if (r->collectives.count > 0) { /* qsort must not see NULL */
        qsort(r->collectives.items, r->collectives.count, sizeof(plan_kineto_collective), by_time);
    }
    qsort(gradients, r->accumulates.count, sizeof *gradients, by_time);
    if (r->steps.count == 0) {
        plan_kineto_step *all = list_add(&r->steps);
        *all = (plan_kineto_step){-HUGE_VAL, HUGE_VAL, -1, NULL, 0};
    }
    plan_kineto_step *steps = r->steps.items;
    qsort(steps, r->steps.count, sizeof *steps, by_time);
    size_t next = 0;
    for (size_t i = 0; i < r->steps.count; i++) {
        while (next < r->accumulates.count && gradients[next].ts < steps[i].start_us) {
            next++;
        }
        const size_t first = next;
        while (next < r->accumulates.count && gradients[next].ts < steps[i].end_us) {
            trace->is_hook |= gradients[next].is_hook;
            next++;
        }
        const int code = fill_step(r, &steps[i], first, next);
        if (code != GW_CLI_OK) {
            return code;
        }
    }
    return GW_CLI_OK;
}

void plan_kineto_free(plan_kineto *trace)
{
    for (size_t i = 0; i < trace->step_count; i++) {
        for (size_t g = 0; g < trace->steps[i].gradient_count; g++) {
            free(trace->steps[i].gradients[g].name);
        }
        free(trace->steps[i].gradients);
    }
    free(trace->steps);
    free(trace->collectives);
    memset(trace, 0, sizeof *trace);
}

static int read_all(reader *r, uint64_t size_max, plan_kineto *trace)
{
    int code = trace_events_read(r->path, size_max, take_event, r);
    trace->event_count = r->event_count;
    if (code == GW_CLI_OK && r->accumulates.count == 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, r->path,
                            "no torch::autograd::AccumulateGrad and no gradient of gradwire's hook: not a "
                            "recording of training");
    }
    code = code == GW_CLI_OK ? find_ready_times(r, size_max) : code;
    return code == GW_CLI_OK ? make_steps(r, trace) : code;
}

int plan_kineto_read(const char *path, uint64_t size_max, plan_kineto *trace)
{
    reader r = {
        .path = path,
        .launches = {.item_size = sizeof(launch)},
        .kernels = {.item_size = sizeof(kernel)},
        .accumulates = {.item_size = sizeof(accumulate), .count_max = GRADIENTS_MAX, .what = "gradients"},
        .steps = {.item_size = sizeof(plan_kineto_step), .count_max = STEPS_MAX, .what = "steps"},
        .collectives = {.item_size = sizeof(plan_kineto_collective),
                        .count_max = MESSAGES_MAX,
                        .what = "messages"},
    };
    memset(trace, 0, sizeof *trace);
    const int code = read_all(&r, size_max, trace);
    trace->steps = r.steps.items;
    trace->step_count = r.steps.count;
    trace->collectives = r.collectives.items;
    trace->collective_count = r.collectives.count;
    free_gradients(&r);
    list_free(&r.launches);
    list_free(&r.kernels);
    if (code != GW_CLI_OK) {
        plan_kineto_free(trace);
    }
    return code;
}
