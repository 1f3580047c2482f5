/*
 * Errors of MPI in messages of the library: this program has a PMPI_Isend and a PMPI_Irecv in front of MPI's,
 * of which some fail. The call returns an error on all ranks, none waits, and no later sum is wrong.
 *
 *   mpi_failing send|receive|all BOUND
 *
 * send, receive: one call of one rank fails. all: on all ranks all sends from some one on, so that they
 * cannot agree either.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <dlfcn.h>

/* Above 2^20 values, so that THC has two pieces of norms. LATER: operations after which tags repeat, and more
 */
enum { LEN = 1200007, CALLS = 9, LATER = 35 };

static int sends_left = -1, receives_left = -1; /* until one fails; -1: none does */
static int is_permanent;

static int fails(int *left)
{
    const int now = *left == 0;
    if (*left > 0 || (now && !is_permanent)) {
        (*left)--;
    }
    return now;
}

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int PMPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                        MPI_Request *request)
{
    static int (*next)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Isend");
    }
    return fails(&sends_left) ? MPI_ERR_OTHER : next(data, count, type, peer, tag, comm, request);
}

EXPORTED int PMPI_Irecv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                        MPI_Request *request)
{
    static int (*next)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "PMPI_Irecv");
    }
    return fails(&receives_left) ? MPI_ERR_OTHER : next(data, count, type, peer, tag, comm, request);
}

static int is_ours(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    return code != MPI_SUCCESS && MPI_Error_string(code, text, &len) == MPI_SUCCESS &&
           strncmp(text, "gradwire:", 9) == 0;
}

/* A sum on a communicator, right or an error; every other one is nonblocking. 1: an error. */
static int sum(check_job *job, const float *values, float *result, size_t len, MPI_Comm comm)
{
    const check_sum whole = {0, 1, (uint32_t)job->size, 0};
    static int calls;
    int code;
    if (calls++ % 2 == 0) {
        code = MPI_Allreduce(values, result, (int)len, MPI_FLOAT, MPI_SUM, comm);
    } else {
        MPI_Request request;
        CHECK(job,
              MPI_Iallreduce(values, result, (int)len, MPI_FLOAT, MPI_SUM, comm, &request) == MPI_SUCCESS);
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    CHECK(job, code == MPI_SUCCESS ? check_result(job, result, len, &whole) : is_ours(code));
    return code != MPI_SUCCESS;
}

/* Call `call` of one rank in a sum fails: so does the sum, on all ranks. Of the later ones, only those with
 * the tags of that one do. */
static void fail_one(check_job *job, int *left, int call, const float *values, float *result)
{
    MPI_Comm comm;
    CHECK(job, MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    CHECK(job, !sum(job, values, result, LEN, comm));
    *left = call % job->size == job->rank ? call : -1;
    CHECK(job, sum(job, values, result, LEN, comm));
    CHECK(job, *left == -1);
    for (int i = 0; i < LATER; i++) {
        CHECK(job, sum(job, values, result, 1 << 15, comm) == (i == 31));
    }
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    check_job job = {.failures = 0};
    const char *what = argc > 2 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    job.bound = argc > 2 ? strtod(argv[2], NULL) : 0;
    float *values = check_make((uint32_t)job.rank, LEN), *result = check_make(0, LEN);
    if (strcmp(what, "all") == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        CHECK(&job, !sum(&job, values, result, LEN, MPI_COMM_WORLD));
        is_permanent = 1;
        sends_left = 3;
        CHECK(&job, sum(&job, values, result, LEN, MPI_COMM_WORLD));
        sends_left = -1;
    } else {
        /* The first receives, one for each round, are those of the vote at the end: without them ranks cannot
         * agree */
        const int is_send = strcmp(what, "send") == 0;
        int first = 0;
        while (!is_send && 1 << first < job.size) {
            first++;
        }
        CHECK(&job, is_send || strcmp(what, "receive") == 0);
        for (int call = first; call < first + CALLS; call++) {
            fail_one(&job, is_send ? &sends_left : &receives_left, call, values, result);
        }
    }
    free(values);
    free(result);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return job.failures != 0;
}
