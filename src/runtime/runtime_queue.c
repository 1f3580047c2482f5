/*
 * A queue of tasks by priority, one of events, and threads between them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _GNU_SOURCE /* pthread_setname_np() */

#include "runtime_queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* gw_gcomp_workspace_size() is below 1 MiB for all options, and GW_EXCHANGE_SAMPLE needs 128 KiB more. */
#define WORKSPACE_SIZE ((size_t)9 << 17)

#define SECOND_NS 1000000000u

enum { PRIORITIES = GW_RUNTIME_PRIORITY_SCAN + 1 };

/* Tasks of one priority, first in first out. */
typedef struct task_list {
    gw_runtime_task *first, *last;
} task_list;

typedef struct worker {
    gw_runtime *runtime;
    pthread_t thread;
    gw_workspace workspace;
} worker;

struct gw_runtime {
    pthread_mutex_t lock;
    pthread_cond_t work, event, zero;
    task_list tasks[PRIORITIES];
    int ends, woken;
    gw_runtime_posted *first, **end; /* of the events; where the next one goes */
    uint32_t thread_count;
    worker *workers;
    uint8_t *workspaces;
};

void gw_runtime_lock(gw_runtime *runtime)
{
    (void)pthread_mutex_lock(&runtime->lock);
}

void gw_runtime_unlock(gw_runtime *runtime)
{
    (void)pthread_mutex_unlock(&runtime->lock);
}

static uint64_t read_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

uint64_t gw_runtime_clock(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* ------------ tasks ------------ */

void gw_runtime_push(gw_runtime *runtime, gw_runtime_task *task)
{
    task_list *list = &runtime->tasks[task->priority];
    task->next = NULL;
    if (list->last) {
        list->last->next = task;
    } else {
        list->first = task;
    }
    list->last = task;
    (void)pthread_cond_signal(&runtime->work);
}

gw_status gw_runtime_submit(gw_runtime *runtime, gw_runtime_task *task)
{
    if (!runtime || !task || !task->run || task->priority >= PRIORITIES) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(runtime);
    gw_runtime_push(runtime, task);
    gw_runtime_unlock(runtime);
    return GW_OK;
}

size_t gw_runtime_remove(gw_runtime *runtime, const void *owner)
{
    size_t count = 0;
    for (size_t i = 0; i < PRIORITIES; i++) {
        gw_runtime_task *task = runtime->tasks[i].first;
        runtime->tasks[i] = (task_list){NULL, NULL};
        while (task) {
            gw_runtime_task *next = task->next;
            if (task->owner == owner) {
                count++;
            } else {
                gw_runtime_push(runtime, task);
            }
            task = next;
        }
    }
    return count;
}

size_t gw_runtime_withdraw(gw_runtime *runtime, const void *owner)
{
    gw_runtime_lock(runtime);
    size_t count = gw_runtime_remove(runtime, owner);
    gw_runtime_unlock(runtime);
    return count;
}

static gw_runtime_task *take_task(gw_runtime *runtime)
{
    for (size_t i = 0; i < PRIORITIES; i++) {
        task_list *list = &runtime->tasks[i];
        gw_runtime_task *task = list->first;
        if (task) {
            list->first = task->next;
            if (!list->first) {
                list->last = NULL;
            }
            return task;
        }
    }
    return NULL;
}

int gw_runtime_work(gw_runtime *runtime, const gw_workspace *workspace)
{
    gw_runtime_lock(runtime);
    gw_runtime_task *task = take_task(runtime);
    gw_runtime_unlock(runtime);
    if (task) {
        task->run(task, workspace);
    }
    return task != NULL;
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    gw_runtime *runtime = self->runtime;
    gw_runtime_lock(runtime);
    while (!runtime->ends) {
        gw_runtime_task *task = take_task(runtime);
        if (!task) {
            (void)pthread_cond_wait(&runtime->work, &runtime->lock);
            continue;
        }
        gw_runtime_unlock(runtime);
        task->run(task, &self->workspace);
        gw_runtime_lock(runtime);
    }
    gw_runtime_unlock(runtime);
    return NULL;
}

void gw_runtime_wait_zero(gw_runtime *runtime, const size_t *count)
{
    while (*count) {
        (void)pthread_cond_wait(&runtime->zero, &runtime->lock);
    }
}

void gw_runtime_signal_zero(gw_runtime *runtime)
{
    (void)pthread_cond_broadcast(&runtime->zero);
}

/* ------------ events ------------ */

void gw_runtime_post(gw_runtime *runtime, gw_runtime_posted *posted)
{
    posted->next = NULL;
    *runtime->end = posted;
    runtime->end = &posted->next;
    ++*posted->waiting;
    (void)pthread_cond_signal(&runtime->event);
}

/* Takes out the event at a place of the list. */
static gw_runtime_posted *take_event(gw_runtime *runtime, gw_runtime_posted **place)
{
    gw_runtime_posted *posted = *place;
    *place = posted->next;
    if (!*place) {
        runtime->end = place;
    }
    --*posted->waiting;
    return posted;
}

gw_runtime_posted *gw_runtime_unpost(gw_runtime *runtime, const size_t *waiting)
{
    for (gw_runtime_posted **at = &runtime->first; *at; at = &(*at)->next) {
        if ((*at)->waiting == waiting) {
            return take_event(runtime, at);
        }
    }
    return NULL;
}

void gw_runtime_wake(gw_runtime *runtime)
{
    if (runtime) {
        gw_runtime_lock(runtime);
        runtime->woken = 1;
        (void)pthread_cond_signal(&runtime->event);
        gw_runtime_unlock(runtime);
    }
}

/* Waits, with the lock, until there is an event or the time is over. */
static void wait_event(gw_runtime *runtime, int timeout_ms)
{
    uint64_t end_ns = read_ns(CLOCK_MONOTONIC) + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms * 1000000u);
    struct timespec deadline = {.tv_sec = (time_t)(end_ns / SECOND_NS),
                                .tv_nsec = (long)(end_ns % SECOND_NS)};
    int status = 0;
    while (!runtime->woken && !runtime->first && status != ETIMEDOUT) {
        status = timeout_ms < 0 ? pthread_cond_wait(&runtime->event, &runtime->lock)
                                : pthread_cond_timedwait(&runtime->event, &runtime->lock, &deadline);
    }
}

size_t gw_runtime_wait(gw_runtime *runtime, gw_runtime_event *events, size_t capacity, int timeout_ms)
{
    if (!runtime || !events || capacity == 0) {
        return 0;
    }
    size_t count = 0;
    gw_runtime_lock(runtime);
    if (timeout_ms != 0) {
        wait_event(runtime, timeout_ms);
    }
    if (runtime->woken) {
        runtime->woken = 0;
        events[count++] = (gw_runtime_event){.kind = GW_RUNTIME_WAKE};
    }
    while (count < capacity && runtime->first) {
        events[count++] = take_event(runtime, &runtime->first)->event;
    }
    gw_runtime_unlock(runtime);
    return count;
}

/* ------------ life ------------ */

static int init_locks(gw_runtime *runtime)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&runtime->lock, NULL) || pthread_condattr_init(&attributes)) {
        return 0;
    }
    int bad = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    bad |= pthread_cond_init(&runtime->work, NULL) | pthread_cond_init(&runtime->zero, NULL) |
           pthread_cond_init(&runtime->event, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return !bad;
}

/* Signals are for the program's own threads: a new one inherits the mask. */
static void start_threads(gw_runtime *runtime, uint32_t count, size_t workspace_size)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (runtime->thread_count < count) {
        worker *next = &runtime->workers[runtime->thread_count];
        next->runtime = runtime;
        next->workspace =
            (gw_workspace){runtime->workspaces + runtime->thread_count * workspace_size, workspace_size};
        if (pthread_create(&next->thread, NULL, worker_main, next) != 0) {
            break;
        }
#ifdef __linux__
        (void)pthread_setname_np(next->thread, "gradwire");
#endif
        runtime->thread_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

gw_status gw_runtime_open(const gw_runtime_options *options, gw_runtime **runtime)
{
    if (!runtime) {
        return GW_ERR_ARG;
    }
    *runtime = NULL;
    if (!options || options->thread_count > GW_RUNTIME_THREADS_MAX ||
        options->workspace_size > SIZE_MAX / GW_RUNTIME_THREADS_MAX - 64) {
        return GW_ERR_ARG;
    }
    size_t size = options->workspace_size ? options->workspace_size : WORKSPACE_SIZE;
    size = (size + 63) / 64 * 64; /* threads share no cache line */
    gw_runtime *made = calloc(1, sizeof *made);
    if (!made || !init_locks(made)) {
        free(made);
        return GW_ERR_LIMIT;
    }
    made->end = &made->first;
    made->workers = calloc((size_t)options->thread_count + 1, sizeof *made->workers);
    made->workspaces = malloc(options->thread_count * size + 1);
    if (made->workers && made->workspaces) {
        start_threads(made, options->thread_count, size);
    }
    if (!made->workers || !made->workspaces || (options->thread_count > 0 && made->thread_count == 0)) {
        gw_runtime_close(made);
        return GW_ERR_LIMIT;
    }
    *runtime = made;
    return GW_OK;
}

uint32_t gw_runtime_thread_count(const gw_runtime *runtime)
{
    return runtime ? runtime->thread_count : 0;
}

void gw_runtime_close(gw_runtime *runtime)
{
    if (!runtime) {
        return;
    }
    gw_runtime_lock(runtime);
    runtime->ends = 1;
    (void)pthread_cond_broadcast(&runtime->work);
    gw_runtime_unlock(runtime);
    for (uint32_t i = 0; i < runtime->thread_count; i++) {
        (void)pthread_join(runtime->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&runtime->work);
    (void)pthread_cond_destroy(&runtime->event);
    (void)pthread_cond_destroy(&runtime->zero);
    (void)pthread_mutex_destroy(&runtime->lock);
    free(runtime->workers);
    free(runtime->workspaces);
    free(runtime);
}
