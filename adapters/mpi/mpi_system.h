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
/* FNV-1a of a text, going on from another hash. */
#define GW_MPI_HASH_BEGIN 0xcbf29ce484222325u
uint64_t gw_mpi_hash(uint64_t hash, const char *text);

/* Aborts the job: the other ranks could not be notified. */
_Noreturn void gw_mpi_out_of_memory(void);
/* Zeroed; aborts if there is none. */
void *gw_mpi_allocate(size_t count, size_t size);

/* A thread that takes no signals of the program. Between start and stop, others signal it, and it waits for
 * that. */
typedef struct gw_mpi_thread {
    pthread_mutex_t lock;
    pthread_cond_t signal;
    pthread_t thread;
    int runs, leaves; /* leaves: it is to end. Guarded by the lock, as what it waits for */
} gw_mpi_thread;
#define GW_MPI_THREAD                                                                                        \
    {                                                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .signal = PTHREAD_COND_INITIALIZER                                \
    }

/* 1: it runs. 0: there is none, and the other calls do nothing. */
int gw_mpi_thread_start(gw_mpi_thread *thread, void *(*function)(void *));
void gw_mpi_thread_signal(gw_mpi_thread *thread, int leaves);
void gw_mpi_thread_stop(gw_mpi_thread *thread);

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
