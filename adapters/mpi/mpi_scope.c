/*
 * Where sums are compressed, as the program says: by an info key of a communicator and by MPI_Pcontrol().
 *
 * The key may differ between ranks, as hints of MPI may, and their decision must not: the calls that set it
 * are collective, and ranks agree there. `off` on one of them is off. MPI_Pcontrol() is not collective, so it
 * counts only where the user says that the program calls it alike on all ranks (GRADWIRE_MPI_PCONTROL=on).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_entries.h"

#include <dlfcn.h>
#include <string.h>

/* What a rank says of a communicator. The largest word of all ranks counts. */
enum { SCOPE_UNSAID, SCOPE_ON, SCOPE_OFF };

static pthread_mutex_t gw_mpi_scope_lock = PTHREAD_MUTEX_INITIALIZER;
/* An attribute of its own, which is copied to duplicates: its value is SCOPE_ON or SCOPE_OFF */
static int gw_mpi_scope_keyval = MPI_KEYVAL_INVALID;
static char gw_mpi_scope_values[SCOPE_OFF + 1];

static int gw_mpi_scope_key(void)
{
    (void)pthread_mutex_lock(&gw_mpi_scope_lock);
    if (gw_mpi_scope_keyval == MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &gw_mpi_scope_keyval, NULL);
    }
    const int keyval = gw_mpi_scope_keyval;
    (void)pthread_mutex_unlock(&gw_mpi_scope_lock);
    return keyval;
}

int gw_mpi_scope_is_off(MPI_Comm comm)
{
    char *value;
    int found = 0;
    return PMPI_Comm_get_attr(comm, gw_mpi_scope_key(), &value, &found) == MPI_SUCCESS && found &&
           value == &gw_mpi_scope_values[SCOPE_OFF];
}

static int gw_mpi_scope_of_info(MPI_Info info)
{
    char text[8] = "";
    int found = 0;
    if (info == MPI_INFO_NULL ||
        PMPI_Info_get(info, "gradwire", sizeof(text) - 1, text, &found) != MPI_SUCCESS || !found) {
        return SCOPE_UNSAID;
    }
    if (strcmp(text, "off") != 0 && strcmp(text, "on") != 0) {
        gw_mpi_log_write("the info key gradwire is `%s`, and may be `on` or `off`: taken for `off`", text);
    }
    return strcmp(text, "on") == 0 ? SCOPE_ON : SCOPE_OFF;
}

/* All ranks of the communicator are here, and its operations so far stay as they began. */
static int gw_mpi_scope_agree(const MPI_Comm *comm, MPI_Info info, int status)
{
    if (status != MPI_SUCCESS || gw_mpi_context_get(*comm) == NULL) {
        return status; /* its sums are MPI's own */
    }
    int word = gw_mpi_scope_of_info(info);
    status = PMPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MAX, *comm);
    if (status == MPI_SUCCESS && word != SCOPE_UNSAID) {
        status = PMPI_Comm_set_attr(*comm, gw_mpi_scope_key(), &gw_mpi_scope_values[word]);
    }
    return status;
}

GW_MPI_ENTRY(Comm_set_info, (MPI_Comm comm, MPI_Info info))
{
    gw_mpi_drain(comm); /* as before any blocking collective (mpi_collectives.c) */
    return gw_mpi_scope_agree(&comm, info, PMPI_Comm_set_info(comm, info));
}

GW_MPI_ENTRY(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm))
{
    gw_mpi_drain(comm);
    return gw_mpi_scope_agree(newcomm, info, PMPI_Comm_dup_with_info(comm, info, newcomm));
}

GW_MPI_ENTRY(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *newcomm))
{
    gw_mpi_drain(comm);
    return gw_mpi_scope_agree(newcomm, info, PMPI_Comm_split_type(comm, type, key, info, newcomm));
}

/* 0: off, 1: on. Other levels and arguments are other tools'; all of them are passed on. */
GW_MPI_ENTRY_OF("MPI_Pcontrol", "MPI_Pcontrol", long, gw_mpi_own_Pcontrol, (GW_MPI_WORDS))
{
    static gw_mpi_any *next;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const int level = (int)a;
    if (gw_mpi_settings.enabled && gw_mpi_settings.pcontrol && gw_mpi_transport_ready() &&
        (level == 0 || level == 1)) {
        atomic_store(&gw_mpi_enabled, level);
    }
    (void)pthread_mutex_lock(&lock);
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "MPI_Pcontrol");
        memcpy(&next, &found, sizeof(found));
    }
    (void)pthread_mutex_unlock(&lock);
    return next != NULL ? next(GW_MPI_WORDS_PASSED) : PMPI_Pcontrol(level);
}

void gw_mpi_scope_close(void)
{
    if (gw_mpi_scope_keyval != MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_free_keyval(&gw_mpi_scope_keyval);
    }
}
