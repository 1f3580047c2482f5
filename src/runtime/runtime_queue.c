/* A queue of tasks by urgency, a ring of events, and threads between them. */
#define _POSIX_C_SOURCE 200809L

#include "pool_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* gw_gcomp_workspace_size() is below 1 MiB for all options. */
#define WORKSPACE_SIZE ((size_t)1 << 20)

/* Tasks of one kind, first in first out. */
typedef struct gw_task_list {
    gw_task *first, *last;
} gw_task_list;

struct gw_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, event, zero;
    gw_task_list tasks[GW_TASK_KINDS];
    int stop, poked;
    gw_pool_event *events; /* ring */
    size_t event_capacity, event_first, event_count;
    size_t event_reserved; /* events that are still to be posted */
    uint32_t thread_count;
    pthread_t threads[GW_POOL_THREADS_MAX];
};

void gw_pool_lock(gw_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
}

void gw_pool_unlock(gw_pool *pool)
{
    pthread_mutex_unlock(&pool->lock);
}

uint64_t gw_pool_clock(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ------------ tasks ------------ */

void gw_pool_push(gw_pool *pool, gw_task *task)
{
    gw_task_list *list = &pool->tasks[task->kind];
    task->next = NULL;
    if (list->last) {
        list->last->next = task;
    } else {
        list->first = task;
    }
    list->last = task;
    pthread_cond_signal(&pool->work);
}

static gw_task *take_task(gw_pool *pool)
{
    for (size_t kind = 0; kind < GW_TASK_KINDS; kind++) {
        gw_task_list *list = &pool->tasks[kind];
        gw_task *task = list->first;
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

/* A thread without a workspace still runs tasks: they fail with GW_ERR_WORKSPACE, which all ranks learn. */
static void *thread_main(void *argument)
{
    gw_pool *pool = argument;
    gw_workspace workspace = {.data = malloc(WORKSPACE_SIZE)};
    workspace.size = workspace.data ? WORKSPACE_SIZE : 0;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        gw_task *task = take_task(pool);
        if (!task) {
            pthread_cond_wait(&pool->work, &pool->lock);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        gw_exchange_task(task, &workspace);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    free(workspace.data);
    return NULL;
}

void gw_pool_wait_zero(gw_pool *pool, const size_t *count)
{
    while (*count) {
        pthread_cond_wait(&pool->zero, &pool->lock);
    }
}

void gw_pool_signal_zero(gw_pool *pool)
{
    pthread_cond_broadcast(&pool->zero);
}

/* ------------ events ------------ */

gw_status gw_pool_reserve(gw_pool *pool, size_t count)
{
    size_t capacity = pool->event_count + pool->event_reserved + count;
    if (capacity > pool->event_capacity) {
        gw_pool_event *events = calloc(capacity, sizeof *events);
        if (!events) {
            return GW_ERR_LIMIT;
        }
        for (size_t i = 0; i < pool->event_count; i++) {
            events[i] = pool->events[(pool->event_first + i) % pool->event_capacity];
        }
        free(pool->events);
        pool->events = events;
        pool->event_capacity = capacity;
        pool->event_first = 0;
    }
    pool->event_reserved += count;
    return GW_OK;
}

void gw_pool_release(gw_pool *pool, size_t count)
{
    pool->event_reserved -= count;
}

void gw_pool_post(gw_pool *pool, const gw_pool_event *event)
{
    pool->events[(pool->event_first + pool->event_count) % pool->event_capacity] = *event;
    pool->event_count++;
    pool->event_reserved--;
    pthread_cond_signal(&pool->event);
}

void gw_pool_poke(gw_pool *pool)
{
    if (pool) {
        pthread_mutex_lock(&pool->lock);
        pool->poked = 1;
        pthread_cond_signal(&pool->event);
        pthread_mutex_unlock(&pool->lock);
    }
}

static struct timespec deadline_after(int timeout_ms)
{
    struct timespec at = {0};
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += timeout_ms / 1000;
    at.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

size_t gw_pool_wait(gw_pool *pool, gw_pool_event *events, size_t capacity, int timeout_ms)
{
    if (!pool || !events || capacity == 0) {
        return 0;
    }
    size_t count = 0;
    struct timespec deadline = deadline_after(timeout_ms < 0 ? 0 : timeout_ms);
    pthread_mutex_lock(&pool->lock);
    int status = 0;
    while (!pool->poked && pool->event_count == 0 && status != ETIMEDOUT) {
        status = timeout_ms < 0 ? pthread_cond_wait(&pool->event, &pool->lock)
                                : pthread_cond_timedwait(&pool->event, &pool->lock, &deadline);
    }
    if (pool->poked) {
        pool->poked = 0;
        events[count++] = (gw_pool_event){.kind = GW_POOL_POKE};
    }
    while (count < capacity && pool->event_count > 0) {
        events[count++] = pool->events[pool->event_first];
        pool->event_first = (pool->event_first + 1) % pool->event_capacity;
        pool->event_count--;
    }
    pthread_mutex_unlock(&pool->lock);
    return count;
}

/* ------------ life ------------ */

static int init_locks(gw_pool *pool)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&pool->lock, NULL) || pthread_condattr_init(&attributes)) {
        return 0;
    }
    int bad = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    bad |= pthread_cond_init(&pool->work, NULL) | pthread_cond_init(&pool->zero, NULL) |
           pthread_cond_init(&pool->event, &attributes);
    pthread_condattr_destroy(&attributes);
    return !bad;
}

static void end_threads(gw_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i], NULL);
    }
}

gw_status gw_pool_open(uint32_t thread_count, gw_pool **pool)
{
    if (!pool) {
        return GW_ERR_ARG;
    }
    *pool = NULL;
    if (thread_count == 0 || thread_count > GW_POOL_THREADS_MAX) {
        return GW_ERR_ARG;
    }
    gw_pool *made = calloc(1, sizeof *made);
    if (!made || !init_locks(made)) {
        free(made);
        return GW_ERR_LIMIT;
    }
    while (made->thread_count < thread_count &&
           pthread_create(&made->threads[made->thread_count], NULL, thread_main, made) == 0) {
        made->thread_count++;
    }
    if (made->thread_count < thread_count) {
        gw_pool_close(made);
        return GW_ERR_LIMIT;
    }
    *pool = made;
    return GW_OK;
}

void gw_pool_close(gw_pool *pool)
{
    if (!pool) {
        return;
    }
    end_threads(pool);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->event);
    pthread_cond_destroy(&pool->zero);
    pthread_mutex_destroy(&pool->lock);
    free(pool->events);
    free(pool);
}
