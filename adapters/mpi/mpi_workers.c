/*
 * Threads for codec work, GRADWIRE_MPI_THREADS less the one that calls MPI. They call no MPI function, so
 * MPI_THREAD_SINGLE suffices for them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_progress.h"

#include <stdlib.h>

static pthread_mutex_t gw_mpi_workers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gw_mpi_workers_work = PTHREAD_COND_INITIALIZER;
static pthread_t *gw_mpi_workers;
static atomic_uint gw_mpi_worker_count;
static int (*gw_mpi_workers_task)(void);
static int gw_mpi_workers_running, gw_mpi_workers_leave;
static unsigned long gw_mpi_workers_signals;

/* `seen`: the counter when the thread last found no work; work may have come since. */
static void gw_mpi_workers_sleep(unsigned long *seen)
{
    (void)pthread_mutex_lock(&gw_mpi_workers_lock);
    while (*seen == gw_mpi_workers_signals && !gw_mpi_workers_leave) {
        (void)pthread_cond_wait(&gw_mpi_workers_work, &gw_mpi_workers_lock);
    }
    *seen = gw_mpi_workers_signals;
    (void)pthread_mutex_unlock(&gw_mpi_workers_lock);
}

static int gw_mpi_workers_stopping(void)
{
    (void)pthread_mutex_lock(&gw_mpi_workers_lock);
    const int leave = gw_mpi_workers_leave;
    (void)pthread_mutex_unlock(&gw_mpi_workers_lock);
    return leave;
}

static void *gw_mpi_worker(void *unused)
{
    unsigned long seen = 0;
    (void)unused;
    while (!gw_mpi_workers_stopping()) {
        if (!gw_mpi_workers_task()) {
            gw_mpi_workers_sleep(&seen);
        }
    }
    return NULL;
}

static void gw_mpi_workers_launch(void)
{
    const unsigned workers = gw_mpi_config_threads() - 1;
    gw_mpi_workers_running = 1;
    gw_mpi_workers = gw_mpi_allocate(workers, sizeof(*gw_mpi_workers));
    for (unsigned i = 0; i < workers; i++) {
        if (gw_mpi_thread_create(&gw_mpi_workers[gw_mpi_worker_count], gw_mpi_worker) == 0) {
            gw_mpi_worker_count++;
        } else {
            gw_mpi_say("cannot start a thread; going on with fewer");
        }
    }
}

void gw_mpi_workers_start(int (*work)(void))
{
    if (gw_mpi_config_threads() == 1) {
        return;
    }
    (void)pthread_mutex_lock(&gw_mpi_workers_lock);
    if (!gw_mpi_workers_running) {
        gw_mpi_workers_task = work;
        gw_mpi_workers_launch();
    }
    gw_mpi_workers_signals++;
    (void)pthread_cond_broadcast(&gw_mpi_workers_work);
    (void)pthread_mutex_unlock(&gw_mpi_workers_lock);
}

void gw_mpi_workers_wake(void)
{
    if (gw_mpi_worker_count > 0) {
        (void)pthread_mutex_lock(&gw_mpi_workers_lock);
        gw_mpi_workers_signals++;
        (void)pthread_cond_broadcast(&gw_mpi_workers_work);
        (void)pthread_mutex_unlock(&gw_mpi_workers_lock);
    }
}

void gw_mpi_workers_stop(void)
{
    (void)pthread_mutex_lock(&gw_mpi_workers_lock);
    gw_mpi_workers_leave = 1;
    (void)pthread_cond_broadcast(&gw_mpi_workers_work);
    (void)pthread_mutex_unlock(&gw_mpi_workers_lock);
    for (unsigned i = 0; i < gw_mpi_worker_count; i++) {
        (void)pthread_join(gw_mpi_workers[i], NULL);
    }
    free(gw_mpi_workers);
    gw_mpi_workers = NULL;
    gw_mpi_worker_count = 0;
    gw_mpi_workers_running = 0;
    gw_mpi_workers_leave = 0;
}
