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

uint64_t gw_mpi_codec_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

int gw_mpi_thread_create(pthread_t *thread, void *(*function)(void *))
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* which a new thread inherits */
    const int status = pthread_create(thread, NULL, function, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) {
        (void)pthread_setname_np(*thread, "gradwire");
    }
    return status;
}
