/*
 * What the MPI tests share: values that every rank can compute for all ranks, and checks of results against
 * exact sums. Includes nothing of gradwire: most of these programs do not know that it is there.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TEST_MPI_CHECK_H
#define GW_TEST_MPI_CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_job {
    int rank, size; /* of MPI_COMM_WORLD */
    double bound;   /* of the squared error as a share of the squares of all contributions and of the sum */
    int failures;
} check_job;

#define CHECK(job, condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            (void)fprintf(stderr, "rank %d: %s:%d: %s\n", (job)->rank, __FILE__, __LINE__, #condition);      \
            (job)->failures++;                                                                               \
        }                                                                                                    \
    } while (0)

/* Value i of stream r: of both signs, and of magnitudes that change every 4096 values, like layers. */
static inline float check_value(uint32_t r, size_t i)
{
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u + (uint64_t)(r + 1) * 0xd1342543de82ef95u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    const int32_t sum = (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) - 0xffff;
    return (float)sum / (float)(1u << (16 + (i >> 12) % 11));
}

static inline float *check_make(uint32_t r, size_t len)
{
    float *values = malloc((len + 1) * sizeof(float));
    if (values == NULL) {
        abort();
    }
    for (size_t i = 0; i < len; i++) {
        values[i] = check_value(r, i);
    }
    return values;
}

/* result[0..len) against the sum of streams first_stream + stride * k, k < streams, from value `first` on. */
typedef struct check_sum {
    uint32_t first_stream, stride, streams;
    size_t first;
} check_sum;

static inline int check_result(const check_job *job, const float *result, size_t len, const check_sum *sum)
{
    double error = 0, square = 0;
    for (size_t i = 0; i < len; i++) {
        double exact = 0;
        for (uint32_t k = 0; k < sum->streams; k++) {
            const double value = (double)check_value(sum->first_stream + sum->stride * k, sum->first + i);
            exact += value;
            square += value * value;
        }
        error += ((double)result[i] - exact) * ((double)result[i] - exact);
        square += exact * exact;
    }
    if (!(error <= job->bound * square)) {
        (void)fprintf(stderr, "rank %d: error %.3g of %.3g allowed\n", job->rank, error / square, job->bound);
        return 0;
    }
    return 1;
}

static inline uint64_t check_hash(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}

/* 1 if all ranks of the communicator hold equal bits. */
static inline int check_equal(const float *result, size_t len, MPI_Comm comm)
{
    uint64_t words[2] = {check_hash(result, len * sizeof(float)), 0};
    words[1] = ~words[0];
    (void)PMPI_Allreduce(MPI_IN_PLACE, words, 2, MPI_UINT64_T, MPI_MAX, comm);
    return words[0] == ~words[1];
}

/* Ends the program: 0 if no rank has a failure. */
static inline int check_end(check_job *job)
{
    (void)PMPI_Allreduce(MPI_IN_PLACE, &job->failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    (void)MPI_Finalize();
    return job->failures != 0;
}

#endif
