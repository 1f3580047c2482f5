/*
 * The progress thread. MPI demands that a request completes once all ranks have started it, even if other
 * ranks then are inside MPI calls of other communicators, or in none. Calls that are intercepted make
 * progress, others cannot: a blocking collective cannot become nonblocking on some ranks only. So a thread
 * does it where MPI_THREAD_MULTIPLE is granted; elsewhere MPI_Iallreduce stays MPI's own.
 *
 * While the program's calls make progress, the thread only looks on, once in a while.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_progress.h"

#include <sched.h>
#include <time.h>

/* How long the program's calls may be silent, and the pauses between rounds in which nothing moved */
#define GW_MPI_SILENCE_NS   1000000
#define GW_MPI_PAUSE_NS_MIN 20000
#define GW_MPI_PAUSE_NS_MAX 500000

static gw_mpi_thread gw_mpi_progress_thread = GW_MPI_THREAD;

static void gw_mpi_pause(long ns)
{
    const struct timespec pause = {.tv_nsec = ns};
    (void)nanosleep(&pause, NULL);
}

/* Sleeps until an operation with a request is under way; 0: the thread is to end. */
static int gw_mpi_progress_wait(void)
{
    gw_mpi_thread *own = &gw_mpi_progress_thread;
    (void)pthread_mutex_lock(&own->lock);
    while (atomic_load(&gw_mpi_outstanding) == 0 && gw_mpi_failed.count == 0 && !own->leaves) {
        (void)pthread_cond_wait(&own->signal, &own->lock);
    }
    const int stays = !own->leaves || gw_mpi_failed.count > 0;
    (void)pthread_mutex_unlock(&own->lock);
    return stays;
}

static void *gw_mpi_progress_main(void *unused)
{
    const int is_busy = gw_mpi_settings.progress == GW_MPI_PROGRESS_THREAD;
    unsigned seen = atomic_load(&gw_mpi_rounds);
    long pause = GW_MPI_PAUSE_NS_MIN;
    (void)unused;
    while (gw_mpi_progress_wait()) {
        (void)gw_mpi_conclude(MPI_SUCCESS); /* reports failures of requests that the program has freed */
        const unsigned rounds = atomic_load(&gw_mpi_rounds);
        if (is_busy) {
            (void)gw_mpi_progress_round();
        } else if (rounds != seen) {
            seen = rounds;
            gw_mpi_pause(GW_MPI_SILENCE_NS);
        } else if (gw_mpi_progress_round()) {
            pause = GW_MPI_PAUSE_NS_MIN;
        } else {
            gw_mpi_pause(pause);
            pause = pause > GW_MPI_PAUSE_NS_MAX / 2 ? GW_MPI_PAUSE_NS_MAX : 2 * pause;
        }
    }
    return NULL;
}

int gw_mpi_progress_start(void)
{
    return gw_mpi_thread_start(&gw_mpi_progress_thread, gw_mpi_progress_main);
}

void gw_mpi_progress_wake(void)
{
    gw_mpi_thread_signal(&gw_mpi_progress_thread, 0);
}

void gw_mpi_progress_stop(void)
{
    gw_mpi_thread_stop(&gw_mpi_progress_thread);
}
