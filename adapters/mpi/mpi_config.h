/*
 * The environment: what it sets, agreed on by all ranks, and what is known of the program and the job.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_CONFIG_H
#define GW_MPI_CONFIG_H

#include "gradwire_mpi.h"
#include "mpi_system.h"

/* ------------ configuration ------------ */

#define GW_MPI_THRESHOLD_AUTO UINT64_MAX

/* Equal on all ranks: that of rank 0 of MPI_COMM_WORLD. */
typedef struct gw_mpi_config {
    gw_mpi_options options;
    uint64_t threshold_size; /* bytes, or GW_MPI_THRESHOLD_AUTO */
    uint64_t size_max;       /* bytes */
    uint64_t piece_len;      /* 0: the default */
    uint32_t enabled;
    uint32_t progress; /* GW_MPI_PROGRESS_* */
    uint32_t pcontrol; /* MPI_Pcontrol() switches */
    uint32_t samples;  /* errors are measured */
    uint32_t exact;    /* data that look exact are not rounded */
    uint32_t notice;   /* a line at start */
} gw_mpi_config;

/* What makes progress with nonblocking operations while the program is in other MPI calls, or in none. */
enum {
    GW_MPI_PROGRESS_AUTO,   /* a thread, when they have not done so for a moment */
    GW_MPI_PROGRESS_THREAD, /* a thread, all the time */
    GW_MPI_PROGRESS_CALLS,  /* the program's own MPI calls, which it promises to make */
    GW_MPI_PROGRESS_NONE    /* such operations are not compressed */
};

extern gw_mpi_config gw_mpi_settings;
extern atomic_int gw_mpi_enabled;
/* 1: operations with requests are sure to make progress, on all ranks; else MPI_Iallreduce is MPI's own. */
extern atomic_int gw_mpi_nonblocking;
/* 1 if the settings need MPI_THREAD_MULTIPLE, where the program has nonblocking calls. */
int gw_mpi_config_wants_thread(void);

/* What need not be equal: threads of this rank, and where statistics are written; empty: they are not. */
extern unsigned gw_mpi_threads;
extern char gw_mpi_log[1024];

/* Reads the environment, once. */
void gw_mpi_config_load(void);
/* After MPI_Init: takes the configuration of rank 0. */
void gw_mpi_config_agree(void);
/* At rank 0: says what will be lossy. */
void gw_mpi_config_notice(void);
int gw_mpi_options_valid(const gw_mpi_options *options);
/* 0: constant without a drop. */
int gw_mpi_options_lossy(const gw_mpi_options *options);

/* ------------ the program and the job ------------ */

/* Before MPI_Init(): lets other ranks see that this one has the library. Until it is closed. */
void gw_mpi_presence_announce(void);
void gw_mpi_presence_close(void);
/* After it. 0: not all ranks have the library; all that do get 0. One of them says so. 1: all have it, or
 * nobody knows. */
int gw_mpi_presence_on_all(void);
/* Says after 10 s that ranks do not answer, unless they did: gw_mpi_presence_unwatch(). */
void gw_mpi_presence_watch(void);
void gw_mpi_presence_unwatch(void);

/* 1 if the program has nonblocking calls, as far as can be seen in MPI_Init. */
int gw_mpi_imports_nonblocking(void);

#endif
