/*
 * Runs numbered tasks on a few threads.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PARALLEL_TASKS_H
#define GW_PARALLEL_TASKS_H

#include "cli_common.h"

#define GW_CLI_THREADS_MAX 1024

/* One task. worker < number of threads; tasks with the same worker never run at the same time. */
typedef void gw_task_fn(void *context, unsigned worker, uint64_t task);

/*
 * Runs task(context, worker, 0..task_count) on `threads` threads, including the calling one; each runs the
 * next task that is left. Returns when all are done. If a thread cannot be created, fewer do the work. With
 * `progress` != 0 the progress line shows how many tasks are done.
 */
void gw_parallel_tasks(unsigned threads, uint64_t task_count, gw_task_fn *task, void *context, int progress);

/* Number of CPUs that this process may use, at least 1. */
unsigned gw_parallel_cpu_count(void);

#endif
