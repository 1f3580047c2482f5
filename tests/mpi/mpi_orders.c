/*
 * A program that knows nothing of gradwire, in which ranks call and wait in different orders, as MPI permits:
 * it must not hang. And failures where they are hard to tell: of requests that outlive their communicator,
 * of several threads at once.
 *
 *   mpi_orders CASE,... BOUND
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <pthread.h>

enum { LEN = 40001, MANY = 70 };

typedef struct pair {
    MPI_Comm first, second; /* duplicates of MPI_COMM_WORLD */
    float *values, *result[2];
    MPI_Request request;
} pair;

static pair pair_make(const check_job *job)
{
    pair made = {.values = check_make((uint32_t)job->rank, LEN), .request = MPI_REQUEST_NULL};
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &made.first);
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &made.second);
    for (int i = 0; i < 2; i++) {
        made.result[i] = calloc(LEN, sizeof(float));
    }
    return made;
}

static void pair_end(check_job *job, pair *used, int results)
{
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size};
    for (int i = 0; i < 2; i++) {
        CHECK(job, i >= results || (check_result(job, used->result[i], LEN, &sum) &&
                                    check_equal(used->result[i], LEN, MPI_COMM_WORLD)));
        free(used->result[i]);
    }
    free(used->values);
    (void)MPI_Comm_free(&used->second);
    if (used->first != MPI_COMM_NULL) {
        (void)MPI_Comm_free(&used->first);
    }
}

static int start(pair *used, MPI_Comm comm)
{
    return MPI_Iallreduce(used->values, used->result[0], LEN, MPI_FLOAT, MPI_SUM, comm, &used->request);
}

static int sum_now(pair *used, MPI_Comm comm)
{
    return MPI_Allreduce(used->values, used->result[1], LEN, MPI_FLOAT, MPI_SUM, comm);
}

/* ------------ orders ------------ */

/* Odd ranks complete the request before the first operation of the other communicator, even ones after it. */
static void case_wait_between(check_job *job)
{
    pair used = pair_make(job);
    const int odd = job->rank & 1;
    CHECK(job, start(&used, used.first) == MPI_SUCCESS);
    CHECK(job, !odd || MPI_Wait(&used.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(job, sum_now(&used, used.second) == MPI_SUCCESS);
    CHECK(job, odd || MPI_Wait(&used.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    pair_end(job, &used, 2);
}

/* Odd ranks start the request after the first operation of the other communicator, even ones before it. */
static void case_start_around(check_job *job)
{
    for (int swap = 0; swap < 2; swap++) {
        pair used = pair_make(job);
        const MPI_Comm started = swap ? used.second : used.first, other = swap ? used.first : used.second;
        const int odd = job->rank & 1;
        CHECK(job, odd || start(&used, started) == MPI_SUCCESS);
        CHECK(job, sum_now(&used, other) == MPI_SUCCESS);
        CHECK(job, !odd || start(&used, started) == MPI_SUCCESS);
        CHECK(job, MPI_Wait(&used.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        pair_end(job, &used, 2);
    }
}

/* A collective that passes through, with requests of its communicator outstanding on half of the ranks. */
static void case_pass_between(check_job *job)
{
    const int odd = job->rank & 1;
    for (int kind = 0; kind < 4; kind++) {
        pair used = pair_make(job);
        float one = 1, sum = 0;
        int number = job->rank;
        CHECK(job, start(&used, used.first) == MPI_SUCCESS);
        CHECK(job, !odd || MPI_Wait(&used.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        switch (kind) {
        case 0:
            (void)MPI_Barrier(used.first);
            break;
        case 1:
            (void)MPI_Allreduce(&one, &sum, 1, MPI_FLOAT, MPI_SUM, used.first);
            CHECK(job, sum == (float)job->size);
            break;
        case 2:
            (void)MPI_Bcast(&number, 1, MPI_INT, 0, used.first);
            CHECK(job, number == 0);
            break;
        default:
            (void)MPI_Exscan(&one, &sum, 1, MPI_FLOAT, MPI_SUM, used.first);
            CHECK(job, job->rank == 0 || sum == (float)job->rank);
            break;
        }
        CHECK(job, odd || MPI_Wait(&used.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        pair_end(job, &used, 1);
    }
}

/* More requests than one round of progress takes, of two communicators in opposite orders. */
static void case_many(check_job *job)
{
    MPI_Request requests[2 * MANY];
    MPI_Status statuses[2 * MANY];
    float *results = calloc((size_t)2 * MANY * LEN, sizeof(float));
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size};
    pair used = pair_make(job);
    for (int k = 0; k < 2 * MANY; k++) {
        const MPI_Comm comm = (k < MANY) == (job->rank & 1) ? used.first : used.second;
        (void)MPI_Iallreduce(used.values, results + (size_t)k * LEN, LEN, MPI_FLOAT, MPI_SUM, comm,
                             &requests[k]);
    }
    CHECK(job, MPI_Waitall(2 * MANY, requests, statuses) == MPI_SUCCESS);
    for (int k = 0; k < 2 * MANY; k += MANY - 1) {
        CHECK(job, check_result(job, results + (size_t)k * LEN, LEN, &sum));
    }
    free(results);
    pair_end(job, &used, 0);
}

/* MPI forbids to free such a request, but it must not take the program down. */
static void case_free_request(check_job *job)
{
    pair used = pair_make(job);
    CHECK(job, start(&used, used.first) == MPI_SUCCESS);
    CHECK(job, MPI_Request_free(&used.request) == MPI_SUCCESS && used.request == MPI_REQUEST_NULL);
    (void)MPI_Barrier(used.first); /* completes it */
    pair_end(job, &used, 1);
}

/* What is wrong with a call, MPI says. */
static void case_wrong_buffer(check_job *job)
{
    pair used = pair_make(job);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    (void)MPI_Comm_set_errhandler(used.first, MPI_ERRORS_RETURN);
    CHECK(job, MPI_Allreduce(used.values, MPI_IN_PLACE, LEN, MPI_FLOAT, MPI_SUM, used.first) != MPI_SUCCESS);
    pair_end(job, &used, 0);
}

/* ------------ failures ------------ */

/* Of a request whose communicator is gone. The one after it does well. */
static void case_damage_freed(check_job *job)
{
    pair used = pair_make(job);
    (void)MPI_Comm_set_errhandler(used.first, MPI_ERRORS_RETURN);
    CHECK(job, start(&used, used.first) == MPI_SUCCESS);
    (void)MPI_Comm_free(&used.first);
    CHECK(job, MPI_Wait(&used.request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    pair_end(job, &used, 0);
}

typedef struct failing_thread {
    MPI_Comm comm;
    uint32_t stream;
    int failures;
    pthread_t thread;
} failing_thread;

static void *failing_main(void *argument)
{
    failing_thread *own = argument;
    float *values = check_make(own->stream, LEN), *result = calloc(LEN, sizeof(float));
    for (int k = 0; k < 4; k++) {
        MPI_Request request;
        (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, own->comm, &request);
        own->failures += MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    }
    free(values);
    free(result);
    return NULL;
}

/* One of the messages of two threads is damaged. */
static void case_damage_threads(check_job *job)
{
    failing_thread threads[2];
    for (int i = 0; i < 2; i++) {
        threads[i] = (failing_thread){.stream = (uint32_t)job->rank};
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
        (void)MPI_Comm_set_errhandler(threads[i].comm, MPI_ERRORS_RETURN);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(job, pthread_create(&threads[i].thread, NULL, failing_main, &threads[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i].thread, NULL);
    }
    CHECK(job, threads[0].failures + threads[1].failures == 1);
    for (int i = 0; i < 2; i++) {
        (void)MPI_Comm_free(&threads[i].comm);
    }
}

/* ------------ main ------------ */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(check_job *);
    } cases[] = {
        {"wait_between", case_wait_between}, {"start_around", case_start_around},
        {"pass_between", case_pass_between}, {"many", case_many},
        {"free_request", case_free_request}, {"wrong_buffer", case_wrong_buffer},
        {"damage_freed", case_damage_freed}, {"damage_threads", case_damage_threads},
    };
    check_job job = {.bound = argc > 2 ? atof(argv[2]) : 0};
    int provided, found = 0;
    const int threads = argc > 1 && strstr(argv[1], "threads") != NULL;
    (void)MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
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
