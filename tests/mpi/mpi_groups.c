/*
 * A program that knows nothing of gradwire and makes communicators where not all ranks of the parent take
 * part, in threads that make theirs at the same time, and sums on them.
 *
 *   mpi_groups CASE,... BOUND
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <pthread.h>

enum { LEN = 40001, THREADS = 2, ROUNDS = 12, TIGHT = 100 };

/* Sums streams of ranks 0 to the communicator's size; blocking, and by a request that outlives it or not. */
static void sum_on(check_job *job, MPI_Comm *comm, int round)
{
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    float *exact = calloc(LEN, sizeof(float));
    MPI_Request request;
    int size;
    (void)MPI_Comm_size(*comm, &size);
    const check_sum sum = {.stride = 1, .streams = (uint32_t)size};
    if (round % 3 == 0) {
        CHECK(job, MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, *comm) == MPI_SUCCESS);
        (void)MPI_Comm_free(comm);
    } else {
        (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, *comm, &request);
        if (round % 3 == 1) {
            (void)MPI_Barrier(*comm);
        }
        if (round % 2 == 0) {
            (void)MPI_Comm_free(comm);
        }
        CHECK(job, MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    CHECK(job, check_result(job, result, LEN, &sum));
    if (*comm != MPI_COMM_NULL) {
        CHECK(job, check_equal(result, LEN, *comm));
        (void)PMPI_Allreduce(values, exact, LEN, MPI_FLOAT, MPI_SUM, *comm);
        CHECK(job, size == 1 || memcmp(result, exact, LEN * sizeof(float)) != 0); /* it was compressed */
        (void)MPI_Comm_free(comm);
    }
    free(values);
    free(result);
    free(exact);
}

/* ------------ threads ------------ */

typedef struct group_thread {
    check_job job;
    MPI_Group all, half;
    int tag, sums;
    pthread_t thread;
} group_thread;

/* Communicators of all ranks and of the first half in turn; those of the other thread have another tag. */
static void *group_main(void *argument)
{
    group_thread *own = argument;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Comm comm;
        if (own->job.rank <= own->job.size / 2) {
            (void)MPI_Comm_create_group(MPI_COMM_WORLD, own->half, own->tag, &comm);
            sum_on(&own->job, &comm, i + own->tag);
        }
        (void)MPI_Comm_create_group(MPI_COMM_WORLD, own->all, own->tag, &comm);
        sum_on(&own->job, &comm, i);
    }
    return NULL;
}

/* As quickly as they can: without sums. */
static void *tight_main(void *argument)
{
    const group_thread *own = argument;
    for (int i = 0; i < 2 * TIGHT; i++) {
        MPI_Comm comm;
        if (i % 2 != 0 || own->job.rank <= own->job.size / 2) {
            (void)MPI_Comm_create_group(MPI_COMM_WORLD, i % 2 != 0 ? own->all : own->half, own->tag, &comm);
            (void)MPI_Barrier(comm);
            (void)MPI_Comm_free(&comm);
        }
    }
    return NULL;
}

static void run_threads(check_job *job, void *(*function)(void *))
{
    group_thread threads[THREADS];
    MPI_Group all, half;
    int first_half[1][3] = {{0, job->size / 2, 1}};
    (void)MPI_Comm_group(MPI_COMM_WORLD, &all);
    (void)MPI_Group_range_incl(all, 1, first_half, &half);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (group_thread){.job = *job, .all = all, .half = half, .tag = i};
        CHECK(job, pthread_create(&threads[i].thread, NULL, function, &threads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        job->failures += threads[i].job.failures;
    }
    (void)MPI_Group_free(&half);
    (void)MPI_Group_free(&all);
}

static void case_threads(check_job *job)
{
    run_threads(job, group_main);
}

static void case_tight(check_job *job)
{
    run_threads(job, tight_main);
}

/* ------------ orders ------------ */

/* Communicators that overlap in part, whose first sums start in another order on each rank. */
static void case_overlapping(check_job *job)
{
    enum { COMMS = 6 };
    MPI_Comm comms[COMMS];
    MPI_Request requests[COMMS];
    float *values = check_make((uint32_t)job->rank, LEN), *results[COMMS];
    MPI_Group all;
    int members[COMMS];
    (void)MPI_Comm_group(MPI_COMM_WORLD, &all);
    for (int i = 0; i < COMMS; i++) {
        MPI_Group some;
        members[i] = i % 2 == 0 ? job->size : job->size - 1; /* without the last rank */
        int range[1][3] = {{0, members[i] - 1, 1}};
        comms[i] = MPI_COMM_NULL;
        (void)MPI_Group_range_incl(all, 1, range, &some);
        if (job->rank < members[i]) {
            (void)MPI_Comm_create_group(MPI_COMM_WORLD, some, i, &comms[i]);
        }
        (void)MPI_Group_free(&some);
        results[i] = calloc(LEN, sizeof(float));
    }
    for (int k = 0; k < COMMS; k++) {
        const int i = (job->rank & 1) != 0 ? COMMS - 1 - k : (k + job->rank) % COMMS;
        requests[i] = MPI_REQUEST_NULL;
        if (comms[i] != MPI_COMM_NULL) {
            (void)MPI_Iallreduce(values, results[i], LEN, MPI_FLOAT, MPI_SUM, comms[i], &requests[i]);
        }
    }
    CHECK(job, MPI_Waitall(COMMS, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < COMMS; i++) {
        const check_sum sum = {.stride = 1, .streams = (uint32_t)members[i]};
        if (comms[i] != MPI_COMM_NULL) {
            CHECK(job, check_result(job, results[i], LEN, &sum) && check_equal(results[i], LEN, comms[i]));
            (void)MPI_Comm_free(&comms[i]);
        }
        free(results[i]);
    }
    (void)MPI_Group_free(&all);
    free(values);
}

/* Ranks in another order, and communicators of communicators; odd ranks have had more of them. */
static void case_nested(check_job *job)
{
    MPI_Comm reversed, cart, later, half;
    MPI_Request request;
    const int sizes[1] = {job->size}, periods[1] = {1};
    (void)MPI_Comm_split(MPI_COMM_WORLD, job->rank & 1, 0, &half);
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    if (job->rank & 1) {
        const check_sum odd = {.first_stream = 1, .stride = 2, .streams = (uint32_t)job->size / 2};
        (void)MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, half);
        CHECK(job, check_result(job, result, LEN, &odd));
    }
    (void)MPI_Comm_split(MPI_COMM_WORLD, 0, -job->rank, &reversed);
    (void)MPI_Cart_create(reversed, 1, sizes, periods, 0, &cart);
    (void)MPI_Comm_idup(cart, &later, &request);
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    sum_on(job, &later, 4);
    sum_on(job, &reversed, 3);
    sum_on(job, &cart, 5);
    (void)MPI_Comm_free(&half);
    free(values);
    free(result);
}

/* ------------ no room (GRADWIRE_MPI_TEST_NUMBERS=2) ------------ */

static void case_full(check_job *job)
{
    MPI_Comm comms[3];
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size};
    for (int i = 0; i < 3; i++) {
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        (void)MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN);
        const int status = MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comms[i]);
        CHECK(job, (status == MPI_SUCCESS) == (i < 2)); /* on all ranks */
    }
    (void)MPI_Comm_free(&comms[2]);
    (void)MPI_Comm_free(&comms[0]);
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    CHECK(job, MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comms[0]) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, LEN, &sum) && check_equal(result, LEN, MPI_COMM_WORLD));
    (void)MPI_Comm_free(&comms[0]);
    (void)MPI_Comm_free(&comms[1]);
    free(values);
    free(result);
}

/* ------------ main ------------ */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(check_job *);
    } cases[] = {
        {"threads", case_threads}, {"tight", case_tight}, {"overlapping", case_overlapping},
        {"nested", case_nested},   {"full", case_full},
    };
    check_job job = {.bound = argc > 2 ? atof(argv[2]) : 0};
    int provided, found = 0;
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    for (char *name = argc > 1 ? strtok(argv[1], ",") : NULL; name != NULL; name = strtok(NULL, ",")) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            if (strcmp(name, cases[i].name) == 0) {
                cases[i].run(&job);
                found++;
            }
        }
    }
    CHECK(&job, found > 0);
    return check_end(&job);
}
