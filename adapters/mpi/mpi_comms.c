/*
 * Communicators that the program makes and frees. What it has made gets its duplicate at once: all ranks of
 * it are here, and block. One that comes from a nonblocking call (MPI_Comm_idup) or a session gets none, nor
 * does one of MPI_Intercomm_merge: the other side may be another program, with other settings or without this
 * library. What is made from those gets none either.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

/* Defines one function of a communicator comm: its parameters, and the arguments for MPI's own. */
#define GW_MPI_MAKE(name, made, parameters, arguments)                                                       \
    GW_MPI_ENTRY int MPI_##name parameters                                                                   \
    {                                                                                                        \
        const int status = PMPI_##name arguments;                                                            \
        if (status == MPI_SUCCESS) {                                                                         \
            gw_mpi_context_adopt(comm, *made);                                                               \
        }                                                                                                    \
        return status;                                                                                       \
    }

GW_MPI_MAKE(Comm_dup, made, (MPI_Comm comm, MPI_Comm *made), (comm, made))
GW_MPI_MAKE(Comm_dup_with_info, made, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made))
GW_MPI_MAKE(Comm_split, made, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))
GW_MPI_MAKE(Comm_split_type, made, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
            (comm, type, key, info, made))
GW_MPI_MAKE(Comm_create, made, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
GW_MPI_MAKE(Comm_create_group, made, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
            (comm, group, tag, made))
GW_MPI_MAKE(Cart_create, made,
            (MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder,
             MPI_Comm *made),
            (comm, dimensions, sizes, periods, reorder, made))
GW_MPI_MAKE(Cart_sub, made, (MPI_Comm comm, const int remain[], MPI_Comm *made), (comm, remain, made))
GW_MPI_MAKE(Graph_create, made,
            (MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder, MPI_Comm *made),
            (comm, nodes, index, edges, reorder, made))
GW_MPI_MAKE(Dist_graph_create, made,
            (MPI_Comm comm, int count, const int nodes[], const int degrees[], const int targets[],
             const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
            (comm, count, nodes, degrees, targets, weights, info, reorder, made))
GW_MPI_MAKE(Dist_graph_create_adjacent, made,
            (MPI_Comm comm, int indegree, const int sources[], const int source_weights[], int outdegree,
             const int targets[], const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
            (comm, indegree, sources, source_weights, outdegree, targets, weights, info, reorder, made))

/* A communicator goes with its operations complete: all ranks free it, so all make progress. */
GW_MPI_ENTRY int MPI_Comm_free(MPI_Comm *comm)
{
    if (comm != NULL) {
        gw_mpi_context_drain(*comm);
    }
    return PMPI_Comm_free(comm);
}

GW_MPI_ENTRY int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (comm != NULL) {
        gw_mpi_context_drain(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}
