/*
 * What stands under MPI's names. Every entry calls the function of this library, until the program turns out
 * to run with the other MPI: then it calls that MPI's own function.
 *
 * The ABIs differ: a handle is an int with MPICH and a pointer with Open MPI. So entries take and pass on
 * words as they are, and what is asked before is MPI_Get_library_version(), which is the same in both, and
 * may be called before MPI_Init(). The program's MPI comes before the one that this library was linked with,
 * since the loader takes the program's libraries first.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* MPICH's MPI_MAX_LIBRARY_VERSION_STRING; Open MPI's is less */
#define GW_MPI_VERSION_SIZE 8192

extern gw_mpi_entry __start_gw_mpi_entries[] __attribute__((visibility("hidden")));
extern gw_mpi_entry __stop_gw_mpi_entries[] __attribute__((visibility("hidden")));

/* Names of libraries that share an ABI. The last one is NULL. */
static const char *const gw_mpi_openmpi[] = {"Open MPI", "Spectrum MPI", "FUJITSU MPI", NULL};
static const char *const gw_mpi_mpich[] = {"MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation", NULL};

#ifdef OMPI_MAJOR_VERSION
#define GW_MPI_IS_OPENMPI 1
#else
#define GW_MPI_IS_OPENMPI 0
#endif

static int gw_mpi_version_has(const char *version, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strstr(version, *names) != NULL) {
            return 1;
        }
    }
    return 0;
}

/* 1 on rank 0, as far as launchers say which rank this is. */
static int gw_mpi_is_first(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *rank = getenv(variables[i]);
        if (rank != NULL && rank[0] != '\0') {
            return strcmp(rank, "0") == 0;
        }
    }
    return 1;
}

static void gw_mpi_entries_refuse(char *version)
{
    version[strcspn(version, "\n,")] = '\0';
    for (char *tab = strchr(version, '\t'); tab != NULL; tab = strchr(tab, '\t')) {
        *tab = ' ';
    }
    if (gw_mpi_is_first()) {
        gw_mpi_log_write(
            "this library is for %s, and the program runs with %.80s: nothing is compressed; load %s",
            GW_MPI_IS_OPENMPI ? "Open MPI" : "MPICH", version,
            !gw_mpi_version_has(version, GW_MPI_IS_OPENMPI ? gw_mpi_mpich : gw_mpi_openmpi) ? "none"
            : GW_MPI_IS_OPENMPI ? "libgradwire_mpich.so"
                                : "libgradwire_ompi.so");
    }
    for (gw_mpi_entry *entry = __start_gw_mpi_entries; entry != __stop_gw_mpi_entries; entry++) {
        void *next = dlsym(RTLD_NEXT, entry->name);
        if (next != NULL) { /* else it is a name that the program's MPI does not have */
            memcpy(&entry->function, &next, sizeof(next));
        }
    }
}

/* A program that loads its MPI later gets the symbols of the one that this library was linked with, and can
 * only fail. The launcher tells. */
void gw_mpi_entries_warn(void)
{
    const int by_openmpi = getenv("OMPI_COMM_WORLD_RANK") != NULL;
    const int by_hydra = getenv("MPI_LOCALNRANKS") != NULL;
    if (by_openmpi != by_hydra && by_hydra == GW_MPI_IS_OPENMPI && gw_mpi_is_first()) {
        gw_mpi_log_write(
            "this library is for %s, and the job was started by %s: if the program's MPI is that one, load "
            "libgradwire_%s.so",
            GW_MPI_IS_OPENMPI ? "Open MPI" : "MPICH", by_hydra ? "MPICH" : "Open MPI",
            by_hydra ? "mpich" : "ompi");
    }
}

/* When the library is loaded: no handle has been seen yet. */
__attribute__((constructor)) static void gw_mpi_entries_choose(void)
{
    static char version[GW_MPI_VERSION_SIZE];
    int len = 0;
    if (PMPI_Get_library_version(version, &len) != MPI_SUCCESS) {
        return;
    }
    version[GW_MPI_VERSION_SIZE - 1] = '\0';
    if (!gw_mpi_version_has(version, GW_MPI_IS_OPENMPI ? gw_mpi_openmpi : gw_mpi_mpich)) {
        gw_mpi_entries_refuse(version);
    }
}
