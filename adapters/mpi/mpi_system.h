/*
 * What all files of the adapter need of the system: a line on stderr, clocks, memory, threads.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_SYSTEM_H
#define GW_MPI_SYSTEM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "gradwire/gradwire.h"

/* A line on stderr. */
void gw_mpi_log_write(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t gw_mpi_now_ns(void);
/* Time that the calling thread had a processor: ranks may share cores. */
uint64_t gw_mpi_codec_ns(void);

/* Aborts the job: the other ranks could not be notified. */
_Noreturn void gw_mpi_out_of_memory(void);
/* Zeroed; aborts if there is none. */
void *gw_mpi_allocate(size_t count, size_t size);
/* pthread_create() of a thread that takes no signals of the program. */
int gw_mpi_thread_create(pthread_t *thread, void *(*function)(void *));

/* ------------ message buffers and workspaces ------------ */

/* A buffer of the pool. */
typedef struct gw_mpi_block {
    struct gw_mpi_block *next;
    size_t capacity;
    size_t size; /* bytes used */
    atomic_int references;
    atomic_uint *worked; /* counts that it was received and worked on; NULL: not counted */
    _Alignas(16) uint8_t data[];
} gw_mpi_block;

gw_mpi_block *gw_mpi_block_take(size_t capacity);
void gw_mpi_block_release(gw_mpi_block *block);
void gw_mpi_pool_clear(void);

/* The calling thread's workspace: enough for all steps. */
#define GW_MPI_WORKSPACE_SIZE ((size_t)1 << 20)
gw_workspace gw_mpi_workspace(void);

#endif
