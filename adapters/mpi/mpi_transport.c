/*
 * The one communicator on which all messages travel, of the ranks of MPI_COMM_WORLD. It is made in MPI_Init,
 * where all ranks are and none makes another one. A message is matched by its sender and its tag:
 *
 *   tag = (number of the communicator at the receiver * GW_MPI_OPERATIONS_OPEN + operation) * 8 + what it is
 *
 * Operations of a communicator take turns for their part of the tag: one begins when the one that had it
 * before has received all of its messages. What has the same tag and sender is received in the order in which
 * it was sent.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_operations.h"

/* MPI_Comm_create_group() has messages of its own. Those of the calls that are collective over the
 * communicator could be taken for the program's by a rank that does not take part, for want of this library
 */
#define GW_MPI_TRANSPORT_TAG 0x6777

static MPI_Comm gw_mpi_transport = MPI_COMM_NULL;
uint32_t gw_mpi_transport_numbers;

int gw_mpi_transport_open(void)
{
    int *largest, found = 0;
    MPI_Group world;
    int status = PMPI_Comm_group(MPI_COMM_WORLD, &world);
    if (status == MPI_SUCCESS) {
        status = PMPI_Comm_create_group(MPI_COMM_WORLD, world, GW_MPI_TRANSPORT_TAG, &gw_mpi_transport);
        (void)PMPI_Group_free(&world);
    }
    if (status != MPI_SUCCESS) {
        gw_mpi_transport = MPI_COMM_NULL;
        return status;
    }
    (void)PMPI_Comm_set_errhandler(gw_mpi_transport, MPI_ERRORS_RETURN);
    (void)PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
    const uint64_t tags = (uint64_t)(found ? *largest : 32767) + 1;
    gw_mpi_transport_numbers = (uint32_t)(tags / GW_MPI_OPERATIONS_OPEN / GW_MPI_MESSAGES);
#ifdef GW_MPI_TESTING
    gw_mpi_test_numbers(&gw_mpi_transport_numbers);
#endif
    return MPI_SUCCESS;
}

void gw_mpi_transport_close(void)
{
    if (gw_mpi_transport != MPI_COMM_NULL) {
        (void)PMPI_Comm_free(&gw_mpi_transport);
    }
}

int gw_mpi_transport_ready(void)
{
    return gw_mpi_transport != MPI_COMM_NULL;
}

static int gw_mpi_tag(const gw_mpi_operation *operation, uint32_t number, gw_mpi_message message)
{
    return (int)((number * GW_MPI_OPERATIONS_OPEN + operation->number % GW_MPI_OPERATIONS_OPEN) *
                     GW_MPI_MESSAGES +
                 (uint32_t)message);
}

int gw_mpi_send(gw_mpi_operation *operation, const gw_mpi_parcel *parcel, MPI_Request *request)
{
    const gw_mpi_context *context = operation->context;
    const int tag = gw_mpi_tag(operation, context->numbers[parcel->peer], parcel->message);
    const int status = PMPI_Isend(parcel->data, parcel->count, parcel->type, context->world[parcel->peer],
                                  tag, gw_mpi_transport, request);
    gw_mpi_operation_mpi_error(operation, status);
    return status;
}

int gw_mpi_receive(gw_mpi_operation *operation, const gw_mpi_parcel *parcel, MPI_Request *request)
{
    const gw_mpi_context *context = operation->context;
    const int tag = gw_mpi_tag(operation, context->number, parcel->message);
    const int status = PMPI_Irecv(parcel->data, parcel->count, parcel->type, context->world[parcel->peer],
                                  tag, gw_mpi_transport, request);
    gw_mpi_operation_mpi_error(operation, status);
    return status;
}
