/*
 * A program that knows nothing of gradwire, with the library on some of its ranks, or on all of them and one
 * of them late. It must not hang, must not receive what it has not sent, and gets MPI's own sums where the
 * library is missing.
 *
 *   mpi_partial plain|compressed [late]
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <time.h>

enum { LEN = 40001 };

/* Nothing is there to receive before the program has sent something. */
static void check_silence(check_job *job)
{
    int found = 0;
    for (int i = 0; i < 100 && !found; i++) {
        (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    CHECK(job, !found);
}

/* Every rank hears from every other, in any order. */
static void check_messages(check_job *job)
{
    MPI_Request *requests = calloc((size_t)job->size, sizeof(MPI_Request));
    int own = job->rank + 1000, heard = 0, sum = own;
    for (int r = 0; r < job->size; r++) {
        requests[r] = MPI_REQUEST_NULL;
        if (r != job->rank) {
            (void)MPI_Isend(&own, 1, MPI_INT, r, r, MPI_COMM_WORLD, &requests[r]);
        }
    }
    for (int k = 1; k < job->size; k++) {
        (void)MPI_Recv(&heard, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += heard;
    }
    (void)MPI_Waitall(job->size, requests, MPI_STATUSES_IGNORE);
    CHECK(job, sum == 1000 * job->size + job->size * (job->size - 1) / 2);
    free(requests);
}

static void check_sums(check_job *job, MPI_Comm comm, int is_plain)
{
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    float *exact = calloc(LEN, sizeof(float));
    MPI_Request request;
    (void)PMPI_Allreduce(values, exact, LEN, MPI_FLOAT, MPI_SUM, comm);
    (void)MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comm);
    CHECK(job, (memcmp(result, exact, LEN * sizeof(float)) == 0) == is_plain);
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comm, &request);
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(job, check_equal(result, LEN, comm));
    free(values);
    free(result);
    free(exact);
}

int main(int argc, char **argv)
{
    check_job job = {.bound = 0};
    const int is_plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    if (argc > 2) {
        const struct timespec late = {.tv_sec = 1};
        (void)nanosleep(&late, NULL);
    }
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    check_silence(&job);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    check_messages(&job);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    check_sums(&job, MPI_COMM_WORLD, is_plain);
    MPI_Comm reversed;
    (void)MPI_Comm_split(MPI_COMM_WORLD, 0, -job.rank, &reversed);
    check_sums(&job, reversed, is_plain);
    (void)MPI_Comm_free(&reversed);
    (void)PMPI_Allreduce(MPI_IN_PLACE, &job.failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (job.rank == 0) {
        (void)printf("%s\n", job.failures == 0 ? "partial: fine" : "partial: failed");
        (void)fflush(stdout);
    }
    return check_end(&job);
}
