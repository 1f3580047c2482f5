/*
 * Sums of data that must not be rounded, with default settings, and of gradients, which are; it does not know
 * of the library. Arguments: "exact" or "rounded" (GRADWIRE_MPI_EXACT=off), which says what the former
 * become.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

enum { PART = 131072, OPERATIONS = 3 };

typedef float (*make_value)(const check_job *job, int rank, size_t i);

/* Each rank fills its own part. */
static float gather_blocks(const check_job *job, int rank, size_t i)
{
    (void)job;
    return i / PART == (size_t)rank ? (float)(1000 * rank + (int)(i % 1000)) + 0.3f : 0.0f;
}

static float gather_in_turn(const check_job *job, int rank, size_t i)
{
    return i % (size_t)job->size == (size_t)rank ? check_value((uint32_t)rank, i) : 0.0f;
}

/* One rank has all of it. */
static float from_one(const check_job *job, int rank, size_t i)
{
    return rank == job->size - 1 ? check_value(7, i) : 0.0f;
}

static float counts(const check_job *job, int rank, size_t i)
{
    (void)job;
    return (float)((i * 2654435761u >> 7) % 100003u) - (float)(1000 * rank);
}

/* Integers on one rank only: what is exact on one is exact for all. */
static float counts_on_one(const check_job *job, int rank, size_t i)
{
    return rank == 1 ? counts(job, rank, i) : (float)(i % 8) * 0.25f;
}

/* Zeros in half the places and more, the same ones on all ranks, as behind ReLU. */
static float gradient_of_relu(const check_job *job, int rank, size_t i)
{
    (void)job;
    return i / 64 % 8 != 3 || (i * 2654435761u >> 9) % 10 == (size_t)rank ? 0.0f
                                                                          : check_value((uint32_t)rank, i);
}

/* Dense on one rank, a tenth elsewhere. */
static float gradient_uneven(const check_job *job, int rank, size_t i)
{
    (void)job;
    return rank != 0 && i / 64 % 10 != 3 ? 0.0f : check_value((uint32_t)rank, i);
}

static float gradient(const check_job *job, int rank, size_t i)
{
    (void)job;
    return check_value((uint32_t)rank, i);
}

/* Values that differ from the sum in the order of ranks, and the error as a share of all squares. */
static size_t differ(const check_job *job, make_value make, const float *sum, const size_t range[2],
                     double *error)
{
    size_t count = 0;
    double wrong = 0, square = 0;
    for (size_t i = range[0]; i < range[1]; i++) {
        float expected = 0.0f;
        for (int r = 0; r < job->size; r++) {
            const float value = make(job, r, i);
            expected += value;
            square += (double)value * (double)value;
        }
        const double off = (double)sum[i - range[0]] - (double)expected;
        count += off != 0.0;
        wrong += off * off;
        square += (double)expected * (double)expected;
    }
    *error = square > 0 ? wrong / square : wrong;
    return count;
}

static void check_one(check_job *job, const char *name, make_value make, int is_exact)
{
    const size_t len = (size_t)PART * (size_t)job->size, rank = (size_t)job->rank;
    const size_t all[2] = {0, len}, own[2] = {rank * PART, (rank + 1) * PART};
    float *values = calloc(len, sizeof(float)), *sum = calloc(len, sizeof(float));
    MPI_Request request;
    for (int k = 0; k < OPERATIONS; k++) {
        double error = 0;
        for (size_t i = 0; i < len; i++) {
            values[i] = make(job, job->rank, i);
        }
        const size_t *range = all;
        const float *result = sum;
        if (k == 0) {
            result = values;
            (void)MPI_Allreduce(MPI_IN_PLACE, values, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        } else if (k == 1) {
            (void)MPI_Iallreduce(values, sum, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
            (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            range = own;
            (void)MPI_Reduce_scatter_block(values, sum, PART, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        const size_t wrong = differ(job, make, result, range, &error);
        /* The parts of a reduce-scatter may be the own values, which nothing rounds */
        const int is_right = is_exact ? wrong == 0 : wrong != 0 || k == 2;
        if (!is_right || !(error <= job->bound)) {
            (void)fprintf(stderr, "rank %d: %s %d: %zu values differ, error %.3g\n", job->rank, name, k,
                          wrong, error);
            job->failures++;
        }
    }
    free(values);
    free(sum);
}

int main(int argc, char **argv)
{
    check_job job = {.bound = argc > 2 ? strtod(argv[2], NULL) : 0};
    const int is_exact = argc > 1 && strcmp(argv[1], "exact") == 0;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    check_one(&job, "gather_blocks", gather_blocks, is_exact);
    check_one(&job, "gather_in_turn", gather_in_turn, is_exact);
    check_one(&job, "from_one", from_one, is_exact);
    check_one(&job, "counts", counts, is_exact);
    check_one(&job, "counts_on_one", counts_on_one, is_exact);
    check_one(&job, "gradient", gradient, 0);
    check_one(&job, "gradient_of_relu", gradient_of_relu, 0);
    check_one(&job, "gradient_uneven", gradient_uneven, 0);
    return check_end(&job);
}
