/*
 * What all files of the adapter need of the system: a line on stderr, clocks, memory, threads.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_system.h"

#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void gw_mpi_log_write(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "gradwire: %s\n", line);
}

uint64_t gw_mpi_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t gw_mpi_hash(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    }
    return hash;
}

_Noreturn void gw_mpi_out_of_memory(void)
{
    gw_mpi_log_write("out of memory");
    (void)PMPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void *gw_mpi_allocate(size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);
    if (memory == NULL) {
        gw_mpi_out_of_memory();
    }
    return memory;
}

int gw_mpi_thread_start(gw_mpi_thread *thread, void *(*function)(void *))
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* which a new thread inherits */
    thread->leaves = 0;
    thread->runs = pthread_create(&thread->thread, NULL, function, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (thread->runs) {
        (void)pthread_setname_np(thread->thread, "gradwire");
    }
    return thread->runs;
}

void gw_mpi_thread_signal(gw_mpi_thread *thread, int leaves)
{
    if (thread->runs) {
        (void)pthread_mutex_lock(&thread->lock);
        thread->leaves |= leaves;
        (void)pthread_cond_signal(&thread->signal);
        (void)pthread_mutex_unlock(&thread->lock);
    }
}

void gw_mpi_thread_stop(gw_mpi_thread *thread)
{
    gw_mpi_thread_signal(thread, 1);
    if (thread->runs) {
        (void)pthread_join(thread->thread, NULL);
        thread->runs = 0;
    }
}
