/*
 * A program that knows nothing of gradwire. Odd ranks complete MPI_Iallreduce of one communicator before a
 * blocking call on another one, even ranks after it: even ranks must take part in the sum while they block.
 * MPI says that they do, so none of this may hang.
 *
 *   mpi_crossed BOUND compressed|plain
 *
 * compressed: results of MPI_Iallreduce must not be MPI's own; plain: they must be exact but for rounding.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

enum { LEN = 40001, FRIENDS = 3 };

typedef struct crossed {
    check_job *job;
    MPI_Comm comm; /* the call's */
    int partner;   /* of the other parity, in comm */
} crossed;

/* ------------ calls that block until all ranks, or a partner, are there ------------ */

static void call_barrier(const crossed *at)
{
    (void)MPI_Barrier(at->comm);
}

static void call_allreduce(const crossed *at)
{
    int one = 1, sum = 0;
    (void)MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, at->comm);
    CHECK(at->job, sum == at->job->size);
}

/* Compressed itself */
static void call_large(const crossed *at)
{
    float *values = check_make((uint32_t)at->job->rank, LEN);
    const check_sum sum = {.stride = 1, .streams = (uint32_t)at->job->size};
    (void)MPI_Allreduce(MPI_IN_PLACE, values, LEN, MPI_FLOAT, MPI_SUM, at->comm);
    CHECK(at->job, check_result(at->job, values, LEN, &sum));
    free(values);
}

static void call_alltoallw(const crossed *at)
{
    const size_t size = (size_t)at->job->size;
    int *numbers = calloc(5 * size, sizeof(int));
    int *counts = numbers + size, *places = counts + size, *received = places + size;
    MPI_Datatype *types = malloc(size * sizeof(*types));
    for (int r = 0; r < at->job->size; r++) {
        numbers[r] = 100 * at->job->rank + r;
        counts[r] = 1;
        places[r] = r * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    (void)MPI_Alltoallw(numbers, counts, places, types, received, counts, places, types, at->comm);
    CHECK(at->job, received[at->partner] == 100 * at->partner + at->job->rank);
    free(types);
    free(numbers);
}

static void call_dup(const crossed *at)
{
    MPI_Comm made;
    (void)MPI_Comm_dup(at->comm, &made);
    call_large(&(crossed){.job = at->job, .comm = made, .partner = at->partner});
    (void)MPI_Comm_free(&made);
}

static void call_split(const crossed *at)
{
    MPI_Comm made;
    (void)MPI_Comm_split(at->comm, 0, -at->job->rank, &made);
    (void)MPI_Comm_free(&made);
}

static void call_window(const crossed *at)
{
    MPI_Win window;
    int *memory;
    (void)MPI_Win_allocate((MPI_Aint)sizeof(int), sizeof(int), MPI_INFO_NULL, at->comm, &memory, &window);
    (void)MPI_Win_fence(0, window);
    (void)MPI_Win_fence(0, window);
    (void)MPI_Win_free(&window);
}

/* Odd ranks send what even ranks wait for. */
static void call_replace(const crossed *at)
{
    int number = at->job->rank;
    (void)MPI_Sendrecv_replace(&number, 1, MPI_INT, at->partner, 1, at->partner, 1, at->comm,
                               MPI_STATUS_IGNORE);
    CHECK(at->job, number == at->partner);
}

static void call_mrecv(const crossed *at)
{
    int number = at->job->rank;
    MPI_Message message;
    MPI_Status status;
    if (at->job->rank & 1) {
        (void)MPI_Rsend(&number, 0, MPI_INT, at->partner, 3, at->comm);
        (void)MPI_Ssend(&number, 1, MPI_INT, at->partner, 2, at->comm);
        return;
    }
    MPI_Request ready;
    (void)MPI_Irecv(NULL, 0, MPI_INT, at->partner, 3, at->comm, &ready);
    (void)MPI_Mprobe(at->partner, 2, at->comm, &message, &status);
    (void)MPI_Mrecv(&number, 1, MPI_INT, &message, &status);
    (void)MPI_Wait(&ready, MPI_STATUS_IGNORE);
    CHECK(at->job, number == at->partner);
}

#if MPI_VERSION >= 4
static void call_counts(const crossed *at)
{
    int number = at->job->rank;
    (void)MPI_Bcast_c(&number, 1, MPI_INT, 1, at->comm);
    CHECK(at->job, number == 1);
    if (at->job->rank & 1) {
        (void)MPI_Send_c(&number, 1, MPI_INT, at->partner, 4, at->comm);
    } else {
        (void)MPI_Recv_c(&number, 1, MPI_INT, at->partner, 4, at->comm, MPI_STATUS_IGNORE);
    }
}
#endif

/* ------------ orders ------------ */

/* Several communicators, so that first calls of some meet the making of others. */
static void cross(check_job *job, void (*call)(const crossed *), int starts_late, int is_plain)
{
    const int odd = job->rank & 1;
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size};
    float *values = check_make((uint32_t)job->rank, LEN), *mpi = calloc(LEN, sizeof(float)), *result[FRIENDS];
    MPI_Comm comms[FRIENDS];
    MPI_Request requests[FRIENDS];
    crossed at = {.job = job, .partner = job->rank ^ 1};
    const check_job exact = {.rank = job->rank, .size = job->size, .bound = is_plain ? 1e-12 : job->bound};
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &at.comm);
    for (int i = 0; i < FRIENDS; i++) {
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        result[i] = calloc(LEN, sizeof(float));
    }
    if (starts_late && odd) {
        call(&at);
    }
    for (int k = 0; k < FRIENDS; k++) {
        const int i = odd ? FRIENDS - 1 - k : k;
        (void)MPI_Iallreduce(values, result[i], LEN, MPI_FLOAT, MPI_SUM, comms[i], &requests[i]);
    }
    if (!starts_late && odd) {
        (void)MPI_Waitall(FRIENDS, requests, MPI_STATUSES_IGNORE);
        call(&at);
    }
    if (!odd) {
        call(&at);
    }
    (void)MPI_Waitall(FRIENDS, requests, MPI_STATUSES_IGNORE);
    (void)PMPI_Allreduce(values, mpi, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < FRIENDS; i++) {
        CHECK(job, check_result(&exact, result[i], LEN, &sum) && check_equal(result[i], LEN, MPI_COMM_WORLD));
        CHECK(job, is_plain || memcmp(result[i], mpi, LEN * sizeof(float)) != 0);
        free(result[i]);
        (void)MPI_Comm_free(&comms[i]);
    }
    (void)MPI_Comm_free(&at.comm);
    free(values);
    free(mpi);
}

int main(int argc, char **argv)
{
    static void (*const calls[])(const crossed *) = {
        call_barrier,
        call_allreduce,
        call_large,
        call_alltoallw,
        call_dup,
        call_split,
        call_window,
        call_replace,
        call_mrecv,
#if MPI_VERSION >= 4
        call_counts,
#endif
    };
    check_job job = {.bound = argc > 1 ? atof(argv[1]) : 0};
    const int is_plain = argc > 2 && strcmp(argv[2], "plain") == 0;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (int starts_late = 0; starts_late < 2; starts_late++) {
            if (job.rank == 0) {
                (void)printf("call %zu, order %d\n", i, starts_late);
                (void)fflush(stdout);
            }
            cross(&job, calls[i], starts_late, is_plain);
        }
    }
    return check_end(&job);
}
