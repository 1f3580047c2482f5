/*
 * The runtime of all operations' codec work: GRADWIRE_MPI_THREADS less the thread that calls MPI; that works
 * too, while it waits. Threads of the runtime call no MPI function but MPI_Abort(), out of memory, so
 * MPI_THREAD_SINGLE suffices for them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

static pthread_once_t gw_mpi_runtime_once = PTHREAD_ONCE_INIT;
static gw_runtime *gw_mpi_runtime_opened;

static void gw_mpi_runtime_open(void)
{
    gw_runtime_options options = {.thread_count = gw_mpi_threads - 1,
                                  .workspace_size = GW_MPI_WORKSPACE_SIZE};
    gw_status status = gw_runtime_open(&options, &gw_mpi_runtime_opened);
    if (status != GW_OK) { /* not one thread */
        options.thread_count = 0;
        status = gw_runtime_open(&options, &gw_mpi_runtime_opened);
    }
    if (status != GW_OK) {
        gw_mpi_out_of_memory();
    }
    if (gw_runtime_thread_count(gw_mpi_runtime_opened) != gw_mpi_threads - 1) {
        gw_mpi_log_write("cannot start a thread; going on with fewer");
    }
}

gw_runtime *gw_mpi_runtime(void)
{
    (void)pthread_once(&gw_mpi_runtime_once, gw_mpi_runtime_open);
    return gw_mpi_runtime_opened;
}

int gw_mpi_runtime_work(void)
{
    const gw_workspace workspace = gw_mpi_workspace();
    return gw_runtime_work(gw_mpi_runtime(), &workspace);
}

void gw_mpi_runtime_close(void)
{
    gw_runtime_close(gw_mpi_runtime_opened);
    gw_mpi_runtime_opened = NULL;
}
