/*
 * A program that knows nothing of gradwire: MPI_Allreduce, MPI_Iallreduce and MPI_Reduce_scatter_block in
 * many forms, compared with exact sums.
 *
 *   mpi_unaware CASE BOUND [plain]
 *
 * BOUND: as in check_job. plain: results must be MPI's own, bit for bit; else they must not.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <pthread.h>

enum { LEN = 300001 };

static int is_plain;

/* A sum over streams of MPI_COMM_WORLD's ranks. */
static check_sum whole(const check_job *job)
{
    return (check_sum){.stride = 1, .streams = (uint32_t)job->size};
}

/* ------------ blocking ------------ */

static void check_allreduce(check_job *job, size_t len)
{
    float *values = check_make((uint32_t)job->rank, len), *copy = check_make((uint32_t)job->rank, len);
    float *result = calloc(len, sizeof(float)), *mpi = calloc(len, sizeof(float));
    const check_sum sum = whole(job);
    CHECK(job, MPI_Allreduce(values, result, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(job, memcmp(values, copy, len * sizeof(float)) == 0);
    CHECK(job, check_result(job, result, len, &sum));
    CHECK(job, check_equal(result, len, MPI_COMM_WORLD));
    (void)PMPI_Allreduce(values, mpi, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, (memcmp(result, mpi, len * sizeof(float)) == 0) == is_plain);
    CHECK(job,
          MPI_Allreduce(MPI_IN_PLACE, values, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(job, check_result(job, values, len, &sum));
    CHECK(job, check_equal(values, len, MPI_COMM_WORLD));
    free(values);
    free(copy);
    free(result);
    free(mpi);
}

static void case_allreduce(check_job *job)
{
    check_allreduce(job, LEN);
    check_allreduce(job, 1u << 20);
    check_allreduce(job, 262144 + 17);
}

/* Few values, where ranks have empty shards. They travel unrounded: sums in the order of the ranks. */
static void case_small(check_job *job)
{
    static const size_t lens[] = {1, 2, 3, 63, 64, 65, 129, 257, 1000, 4097};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        float *values = check_make((uint32_t)job->rank, lens[i]), *result = check_make(0, lens[i]);
        const check_sum sum = whole(job);
        CHECK(job,
              MPI_Allreduce(values, result, (int)lens[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
        CHECK(job, check_result(job, result, lens[i], &sum));
        CHECK(job, check_equal(result, lens[i], MPI_COMM_WORLD));
        free(values);
        free(result);
    }
}

static void case_scatter(check_job *job)
{
    const size_t count = 70003, all = count * (size_t)job->size;
    float *values = check_make((uint32_t)job->rank, all), *result = calloc(all, sizeof(float));
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size, .first = count * (size_t)job->rank};
    CHECK(job, MPI_Reduce_scatter_block(values, result, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
                   MPI_SUCCESS);
    CHECK(job, check_result(job, result, count, &sum));
    CHECK(job, result[count] == 0.0f);
    CHECK(job, MPI_Reduce_scatter_block(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM,
                                        MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(job,
          memcmp(values, result, count * sizeof(float)) != 0); /* another operation, other random words */
    CHECK(job, check_result(job, values, count, &sum));
    free(values);
    free(result);
}

/* With all 24 bits of an fp32 value: sums of a few of check_value() are exact in any order. */
static float ring_value(int rank, size_t i)
{
    return check_value((uint32_t)rank, i) / 3.0f;
}

/* Value i of all ranks, summed in fp32 as a ring does, from the rank after the owner to the owner. */
static float ring_sum(const check_job *job, int owner, size_t i)
{
    float sum = ring_value((owner + 1) % job->size, i);
    for (int k = 2; k <= job->size; k++) {
        sum += ring_value((owner + k) % job->size, i);
    }
    return sum;
}

/* Lossless sums have the bits of the ring's order. With three ranks every fifth value has others in the order
 * of the ranks, in which the shards of all ranks but the last are not summed here. */
static void case_ring_order(check_job *job)
{
    const size_t count = 70003, all = count * (size_t)job->size;
    float *values = check_make((uint32_t)job->rank, all), *result = calloc(all, sizeof(float));
    size_t ring = 0, front = 0;
    for (size_t i = 0; i < all; i++) {
        values[i] = ring_value(job->rank, i);
    }
    CHECK(job, MPI_Reduce_scatter_block(values, result, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
                   MPI_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        ring += result[i] == ring_sum(job, job->rank, count * (size_t)job->rank + i);
    }
    CHECK(job, ring == count);
    CHECK(job, MPI_Allreduce(values, result, (int)all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    const size_t part = 16384; /* of the first shard, whose owner is rank 0 */
    for (size_t i = 0; i < part; i++) {
        front += result[i] == ring_sum(job, 0, i);
    }
    CHECK(job, front == part);
    CHECK(job, check_equal(result, all, MPI_COMM_WORLD));
    free(values);
    free(result);
}

/* ------------ communicators ------------ */

static int attribute_copies;

static int copy_attribute(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    *(void **)out = in;
    *flag = 1;
    attribute_copies++;
    return MPI_SUCCESS;
}

static void check_comm(check_job *job, MPI_Comm comm, const check_sum *sum)
{
    float *values = check_make((uint32_t)job->rank, LEN);
    CHECK(job, MPI_Allreduce(MPI_IN_PLACE, values, LEN, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(job, check_result(job, values, LEN, sum));
    CHECK(job, check_equal(values, LEN, comm));
    free(values);
}

static void case_comms(check_job *job)
{
    MPI_Comm half, reversed, again;
    int key, value = 7;
    (void)MPI_Comm_split(MPI_COMM_WORLD, job->rank & 1, 0, &half);
    (void)MPI_Comm_split(MPI_COMM_WORLD, 0, -job->rank, &reversed);
    (void)MPI_Comm_create_keyval(copy_attribute, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    (void)MPI_Comm_set_attr(half, key, &value);
    const check_sum odd = {.first_stream = (uint32_t)job->rank & 1u,
                           .stride = 2,
                           .streams = (uint32_t)(job->size + 1 - (job->rank & 1)) / 2};
    const check_sum all = whole(job);
    check_comm(job, half, &odd);
    check_comm(job, reversed, &all);
    check_comm(job, half, &odd);
    CHECK(job, attribute_copies == 0);
    (void)MPI_Comm_dup(half, &again);
    CHECK(job, attribute_copies == 1);
    (void)MPI_Comm_free(&half);
    check_comm(job, again, &odd);
    (void)MPI_Comm_free(&again);
    (void)MPI_Comm_free(&reversed);
    (void)MPI_Comm_free_keyval(&key);
    for (int i = 0; i < 4; i++) {
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &again);
        check_comm(job, again, &all);
        (void)MPI_Comm_free(&again);
    }
}

/* ------------ nonblocking ------------ */

enum { MANY = 5 };

typedef struct flight {
    float *values[MANY], *result[MANY];
    size_t len[MANY];
    MPI_Request request[MANY + 1];
} flight;

static void flight_start(check_job *job, flight *all, MPI_Comm comm)
{
    for (int k = 0; k < MANY; k++) {
        all->len[k] = (size_t)270000 + (size_t)(MANY - k) * 30011;
        all->values[k] = check_make((uint32_t)(job->rank + 100 * k), all->len[k]);
        all->result[k] = calloc(all->len[k], sizeof(float));
        CHECK(job, MPI_Iallreduce(all->values[k], all->result[k], (int)all->len[k], MPI_FLOAT, MPI_SUM, comm,
                                  &all->request[k]) == MPI_SUCCESS);
    }
    all->request[MANY] = MPI_REQUEST_NULL;
}

static void flight_end(check_job *job, flight *all)
{
    for (int k = 0; k < MANY; k++) {
        const check_sum sum = {
            .first_stream = 100u * (uint32_t)k, .stride = 1, .streams = (uint32_t)job->size};
        CHECK(job, all->request[k] == MPI_REQUEST_NULL);
        CHECK(job, check_result(job, all->result[k], all->len[k], &sum));
        CHECK(job, check_equal(all->result[k], all->len[k], MPI_COMM_WORLD));
        free(all->values[k]);
        free(all->result[k]);
    }
}

static void wait_each(check_job *job, flight *all)
{
    for (int k = 0; k < MANY; k++) { /* in another order on every rank */
        const int at = job->rank & 1 ? (k + job->rank) % MANY : MANY - 1 - k;
        CHECK(job, MPI_Wait(&all->request[at], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
}

static void wait_all(check_job *job, flight *all)
{
    MPI_Status statuses[MANY + 1];
    CHECK(job, MPI_Waitall(MANY + 1, all->request, statuses) == MPI_SUCCESS);
}

static void wait_any(check_job *job, flight *all)
{
    int index = -1, seen = 0;
    while (seen < MANY) {
        CHECK(job, MPI_Waitany(MANY + 1, all->request, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(job, index >= 0 && index < MANY);
        seen++;
    }
    CHECK(job, MPI_Waitany(MANY + 1, all->request, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(job, index == MPI_UNDEFINED);
}

static void wait_some(check_job *job, flight *all)
{
    int seen = 0, count = 0, indices[MANY + 1];
    while (seen < MANY) {
        if (seen & 1) {
            CHECK(job,
                  MPI_Waitsome(MANY + 1, all->request, &count, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
            CHECK(job, count > 0);
        } else {
            CHECK(job,
                  MPI_Testsome(MANY + 1, all->request, &count, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
        }
        seen += count;
    }
}

static void wait_test(check_job *job, flight *all)
{
    int index, flag = 0, status = MPI_SUCCESS;
    while (!flag) {
        status |= MPI_Test(&all->request[2], &flag, MPI_STATUS_IGNORE);
    }
    flag = 0;
    while (!flag) {
        status |= MPI_Request_get_status(all->request[4], &flag, MPI_STATUS_IGNORE);
    }
    for (flag = 0; !flag;) {
        status |= MPI_Testany(2, all->request, &index, &flag, MPI_STATUS_IGNORE);
    }
    for (flag = 0; !flag;) {
        status |= MPI_Testall(MANY + 1, all->request, &flag, MPI_STATUSES_IGNORE);
    }
    CHECK(job, status == MPI_SUCCESS);
}

static void case_overlap(check_job *job)
{
    static void (*const waits[])(check_job *, flight *) = {wait_each, wait_all, wait_any, wait_some,
                                                           wait_test};
    flight all;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        flight_start(job, &all, MPI_COMM_WORLD);
        waits[i](job, &all);
        flight_end(job, &all);
    }
}

/* A communicator whose first operation does not block, freed before its requests are complete. */
static void case_first(check_job *job)
{
    MPI_Comm comm;
    flight all;
    for (int i = 0; i < 2; i++) {
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        flight_start(job, &all, comm);
        if (i == 1) {
            const check_sum sum = whole(job);
            check_comm(job, comm, &sum); /* a blocking one after them */
        }
        (void)MPI_Comm_free(&comm);
        wait_all(job, &all);
        flight_end(job, &all);
    }
}

/* Even ranks complete operations before they send what odd ranks wait for, in calls that must make progress.
 */
static void case_progress(check_job *job)
{
    const int partner = job->rank ^ 1, odd = job->rank & 1;
    int token = job->rank, got = -1;
    MPI_Status status;
    for (int round = 0; round < 4; round++) {
        flight all;
        MPI_Request receive = MPI_REQUEST_NULL;
        flight_start(job, &all, MPI_COMM_WORLD);
        if (!odd) {
            wait_all(job, &all);
            (void)MPI_Send(&token, 1, MPI_INT, partner, round, MPI_COMM_WORLD);
            (void)MPI_Recv(&got, 1, MPI_INT, partner, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            if (round == 1) {
                (void)MPI_Probe(partner, round, MPI_COMM_WORLD, &status);
            } else if (round == 2) {
                (void)MPI_Irecv(&got, 1, MPI_INT, partner, round, MPI_COMM_WORLD, &receive);
                (void)MPI_Wait(&receive, MPI_STATUS_IGNORE);
            } else if (round == 3) {
                (void)MPI_Sendrecv(&token, 1, MPI_INT, partner, 9, &got, 1, MPI_INT, partner, round,
                                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            if (round < 2) {
                (void)MPI_Recv(&got, 1, MPI_INT, partner, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            if (round < 3) {
                (void)MPI_Ssend(&token, 1, MPI_INT, partner, 9, MPI_COMM_WORLD);
            }
            wait_all(job, &all);
        }
        CHECK(job, got == partner);
        flight_end(job, &all);
    }
}

/* ------------ what is not ours ------------ */

static void add_twice(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++) {
        ((float *)inout)[i] += 2.0f * ((float *)in)[i];
    }
}

static void case_untouched(check_job *job)
{
    float *values = check_make((uint32_t)job->rank, LEN);
    double *doubles = calloc(LEN, sizeof(double)), *sums = calloc(LEN, sizeof(double));
    float *ours = calloc(LEN, sizeof(float)), *mpi = calloc(LEN, sizeof(float));
    int *whole_numbers = calloc(LEN, sizeof(int));
    MPI_Comm self;
    MPI_Op twice;
    (void)MPI_Op_create(add_twice, 1, &twice);
    MPI_Op ops[] = {MPI_MAX, MPI_MIN, MPI_PROD, twice};
    for (size_t i = 0; i < 4; i++) {
        (void)MPI_Allreduce(values, ours, LEN, MPI_FLOAT, ops[i], MPI_COMM_WORLD);
        (void)PMPI_Allreduce(values, mpi, LEN, MPI_FLOAT, ops[i], MPI_COMM_WORLD);
        CHECK(job, memcmp(ours, mpi, LEN * sizeof(float)) == 0);
    }
    for (size_t i = 0; i < LEN; i++) {
        doubles[i] = (double)values[i];
        whole_numbers[i] = (int)i * (job->rank + 1);
    }
    (void)MPI_Allreduce(doubles, sums, LEN, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    (void)PMPI_Allreduce(MPI_IN_PLACE, doubles, LEN, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, memcmp(doubles, sums, LEN * sizeof(double)) == 0);
    (void)MPI_Allreduce(MPI_IN_PLACE, whole_numbers, LEN, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, whole_numbers[LEN - 1] == (LEN - 1) * job->size * (job->size + 1) / 2);
    (void)MPI_Comm_dup(MPI_COMM_SELF, &self);
    (void)MPI_Allreduce(values, ours, LEN, MPI_FLOAT, MPI_SUM, self);
    CHECK(job, memcmp(ours, values, LEN * sizeof(float)) == 0);
    (void)MPI_Comm_free(&self);
    CHECK(job, MPI_Allreduce(NULL, NULL, 0, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    (void)MPI_Op_free(&twice);
    free(values);
    free(doubles);
    free(sums);
    free(ours);
    free(mpi);
    free(whole_numbers);
}

/* Each side of an intercommunicator gets the sum of the other. */
static void case_inter(check_job *job)
{
    MPI_Comm half, inter;
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    const uint32_t other = 1u - ((uint32_t)job->rank & 1u);
    const check_job exact = {.rank = job->rank, .size = job->size, .bound = 1e-12};
    const check_sum sum = {
        .first_stream = other, .stride = 2, .streams = (uint32_t)(job->size + 1 - (int)other) / 2};
    (void)MPI_Comm_split(MPI_COMM_WORLD, job->rank & 1, 0, &half);
    (void)MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, (int)other, 5, &inter);
    CHECK(job, MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, inter) == MPI_SUCCESS);
    CHECK(job, check_result(&exact, result, LEN, &sum));
    (void)MPI_Comm_free(&inter);
    (void)MPI_Comm_free(&half);
    free(values);
    free(result);
}

#if MPI_VERSION >= 4
static void case_large(check_job *job)
{
    const check_sum sum = whole(job);
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    MPI_Request request;
    CHECK(job, MPI_Allreduce_c(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, LEN, &sum));
    memset(result, 0, LEN * sizeof(float));
    (void)MPI_Iallreduce_c(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(job, check_result(job, result, LEN, &sum));
    const check_sum own = {.stride = 1, .streams = sum.streams, .first = (size_t)job->rank * 70000};
    (void)MPI_Reduce_scatter_block_c(values, result, 70000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, check_result(job, result, 70000, &own));
    free(values);
    free(result);
}
#endif

/* ------------ threads ------------ */

enum { THREADS = 3 };

typedef struct thread_job {
    check_job job;
    MPI_Comm comm;
    pthread_t thread;
} thread_job;

static void *thread_main(void *argument)
{
    thread_job *own = argument;
    const check_sum sum = whole(&own->job);
    float *values = check_make((uint32_t)own->job.rank, LEN), *result = calloc(LEN, sizeof(float));
    for (int i = 0; i < 3; i++) {
        MPI_Request request;
        float *copy = check_make((uint32_t)own->job.rank, LEN);
        (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, own->comm, &request);
        (void)MPI_Allreduce(MPI_IN_PLACE, copy, LEN, MPI_FLOAT, MPI_SUM, own->comm);
        (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(&own->job, check_result(&own->job, result, LEN, &sum));
        CHECK(&own->job, check_result(&own->job, copy, LEN, &sum));
        CHECK(&own->job, check_equal(result, LEN, own->comm));
        free(copy);
    }
    free(values);
    free(result);
    return NULL;
}

static void case_threads(check_job *job)
{
    thread_job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i].job = *job;
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(job, pthread_create(&jobs[i].thread, NULL, thread_main, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(jobs[i].thread, NULL);
        job->failures += jobs[i].job.failures;
        (void)MPI_Comm_free(&jobs[i].comm);
    }
}

/* ------------ damage (GRADWIRE_MPI_TEST_DAMAGE names operation 1 of MPI_COMM_WORLD) ------------ */

static int same_on_all(int value)
{
    int words[2] = {value, -value};
    (void)PMPI_Allreduce(MPI_IN_PLACE, words, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return words[0] == -words[1];
}

static void case_damage(check_job *job)
{
    const check_sum sum = whole(job);
    float *values = check_make((uint32_t)job->rank, LEN), *result[3];
    MPI_Request requests[3];
    MPI_Status statuses[3];
    char text[MPI_MAX_ERROR_STRING];
    int len, class = 0;
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        result[i] = calloc(LEN, sizeof(float));
        (void)MPI_Iallreduce(values, result[i], LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    CHECK(job, MPI_Waitall(3, requests, statuses) == MPI_ERR_IN_STATUS);
    CHECK(job, statuses[0].MPI_ERROR == MPI_SUCCESS && statuses[2].MPI_ERROR == MPI_SUCCESS);
    CHECK(job, statuses[1].MPI_ERROR != MPI_SUCCESS && same_on_all(statuses[1].MPI_ERROR));
    CHECK(job, check_result(job, result[0], LEN, &sum) && check_result(job, result[2], LEN, &sum));
    CHECK(job, MPI_Error_string(statuses[1].MPI_ERROR, text, &len) == MPI_SUCCESS);
    CHECK(job, strstr(text, "gradwire") != NULL);
    CHECK(job, MPI_Error_class(statuses[1].MPI_ERROR, &class) == MPI_SUCCESS && class > MPI_ERR_LASTCODE);
    if (job->rank == 0) {
        (void)printf("%s\n", text);
    }
    (void)MPI_Allreduce(values, result[0], LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, check_result(job, result[0], LEN, &sum) && check_equal(result[0], LEN, MPI_COMM_WORLD));
    for (int i = 0; i < 3; i++) {
        free(result[i]);
    }
    free(values);
}

static void case_damage_blocking(check_job *job)
{
    const check_sum sum = whole(job);
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        const int status = MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(job, (status != MPI_SUCCESS) == (i == 1) && same_on_all(status));
        CHECK(job, i == 1 || check_result(job, result, LEN, &sum));
    }
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
        {"allreduce", case_allreduce},
        {"small", case_small},
        {"scatter", case_scatter},
        {"ring_order", case_ring_order},
        {"comms", case_comms},
        {"overlap", case_overlap},
        {"first", case_first},
        {"progress", case_progress},
        {"untouched", case_untouched},
        {"inter", case_inter},
        {"threads", case_threads},
        {"damage", case_damage},
        {"damage_blocking", case_damage_blocking},
#if MPI_VERSION >= 4
        {"large", case_large},
#endif
    };
    check_job job = {.bound = argc > 2 ? atof(argv[2]) : 0};
    int provided, found = 0;
    is_plain = argc > 3 && strcmp(argv[3], "plain") == 0;
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
