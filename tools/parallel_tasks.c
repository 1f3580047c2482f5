/*
 * POSIX threads draw task numbers from a shared counter.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "parallel_tasks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct task_queue {
    _Atomic uint64_t next;
    _Atomic uint64_t done;
    uint64_t task_count;
    gw_task_fn *task;
    void *context;
    int progress;
} task_queue;

typedef struct task_worker {
    task_queue *queue;
    unsigned index;
    pthread_t thread;
} task_worker;

static void tasks_run(task_queue *queue, unsigned worker)
{
    for (;;) {
        const uint64_t task = atomic_fetch_add(&queue->next, 1);
        if (task >= queue->task_count) {
            return;
        }
        queue->task(queue->context, worker, task);
        const uint64_t done = atomic_fetch_add(&queue->done, 1) + 1;
        if (queue->progress) {
            gw_cli_progress_set(done, queue->task_count);
        }
    }
}

static void *worker_main(void *argument)
{
    task_worker *worker = argument;
    tasks_run(worker->queue, worker->index);
    return NULL;
}

void gw_parallel_tasks(unsigned threads, uint64_t task_count, gw_task_fn *task, void *context, int progress)
{
    task_queue queue;
    atomic_init(&queue.next, 0);
    atomic_init(&queue.done, 0);
    queue.task_count = task_count;
    queue.task = task;
    queue.context = context;
    queue.progress = progress;

    unsigned extra_count = threads > 1 ? threads - 1 : 0;
    if (extra_count >= task_count) {
        extra_count = task_count > 0 ? (unsigned)(task_count - 1) : 0;
    }
    task_worker *extras = extra_count > 0 ? calloc(extra_count, sizeof *extras) : NULL;
    unsigned started = 0;
    while (extras != NULL && started < extra_count) {
        extras[started].queue = &queue;
        extras[started].index = started + 1;
        if (pthread_create(&extras[started].thread, NULL, worker_main, &extras[started]) != 0) {
            break;
        }
        started++;
    }
    tasks_run(&queue, 0);
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(extras[i].thread, NULL);
    }
    free(extras);
}

unsigned gw_parallel_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    const int count = CPU_COUNT(&set);
    return count > 0 ? (unsigned)count : 1;
}
