/*
 * Test builds only: damages one message, and makes a limit small.
 *
 *   GRADWIRE_MPI_TEST_DAMAGE="RANK HOP PIECE NUMBER"
 *
 * On rank RANK, in operation NUMBER of a communicator (-1: in every one), piece PIECE (-1: the first one):
 * HOP 0: a contribution before it is sent, in a ring a partial sum; 1: the sum at its owner; 2:
 * the sum where it was received.
 *
 *   GRADWIRE_MPI_TEST_NUMBERS=N
 *
 * Sums on N communicators at a time, as if tags had no room for more.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_operations.h"

#include <stdio.h>
#include <stdlib.h>

void gw_mpi_test_damage(const gw_mpi_operation *operation, int hop, uint32_t piece, gw_mpi_block *message)
{
    static atomic_int last = -1; /* operation whose message was damaged */
    const int own = (int)operation->number;
    const char *text = getenv("GRADWIRE_MPI_TEST_DAMAGE");
    int rank, at, index, number;
    if (text == NULL || sscanf(text, "%d %d %d %d", &rank, &at, &index, &number) != 4 || message->size == 0 ||
        operation->context->rank != rank || hop != at || (number >= 0 && own != number) ||
        (index >= 0 && piece != (uint32_t)index) || atomic_exchange(&last, own) == own) {
        return;
    }
    message->data[message->size / 2] ^= 0x10;
}

void gw_mpi_test_numbers(uint32_t *room)
{
    const char *text = getenv("GRADWIRE_MPI_TEST_NUMBERS");
    if (text != NULL) {
        *room = (uint32_t)strtoul(text, NULL, 10);
    }
}
