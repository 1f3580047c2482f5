/*
 * A program that knows nothing of gradwire: sums of more than 2^31 bytes of floats, in place, 2.2 GB a rank.
 *
 *   mpi_large BOUND [log2 of the values, 29 by default]
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

/* Cheap, of both signs; a shift by any power of two of elements changes it. */
static float large_value(uint32_t r, size_t i)
{
    const uint32_t mixed = (uint32_t)(i ^ i >> 17) * 2654435761u + r * 40503u;
    return (float)(int32_t)mixed * 0x1p-31f;
}

static void fill(float *values, size_t len, uint32_t rank)
{
    for (size_t i = 0; i < len; i++) {
        values[i] = large_value(rank, i);
    }
}

/* Of the whole, and of every 2^20 values: a piece that is missing or in a wrong place shows in its own. */
static int is_sum(const check_job *job, const float *result, size_t len, size_t first)
{
    double error = 0, square = 0, worst = 0;
    for (size_t i = 0; i < len; i++) {
        double exact = 0;
        for (int r = 0; r < job->size; r++) {
            const double value = (double)large_value((uint32_t)r, first + i);
            exact += value;
            square += value * value;
        }
        error += ((double)result[i] - exact) * ((double)result[i] - exact);
        square += exact * exact;
        if ((i + 1) % (1u << 20) == 0 || i + 1 == len) {
            worst = error / square > worst ? error / square : worst;
            error = square = 0;
        }
    }
    if (!(worst <= job->bound)) {
        (void)fprintf(stderr, "rank %d: error %.3g of %.3g allowed\n", job->rank, worst, job->bound);
    }
    return worst <= job->bound;
}

int main(int argc, char **argv)
{
    check_job job = {.bound = argc > 1 ? atof(argv[1]) : 0};
    MPI_Request request;
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    const size_t ranks = (size_t)job.size;
    const size_t len = (((size_t)1 << (argc > 2 ? atoi(argv[2]) : 29)) / ranks + 12345) * ranks;
    float *values = malloc(len * sizeof(float));
    if (values == NULL) {
        (void)fprintf(stderr, "no memory for %zu values\n", len);
        (void)MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    fill(values, len, (uint32_t)job.rank);
    CHECK(&job,
          MPI_Allreduce(MPI_IN_PLACE, values, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(&job, is_sum(&job, values, len, 0) && check_equal(values, len, MPI_COMM_WORLD));
    CHECK(&job,
          values[len - 1] != (float)((double)large_value(0, len - 1) + (double)large_value(1, len - 1)));
    fill(values, len, (uint32_t)job.rank);
#if MPI_VERSION >= 4
    (void)MPI_Iallreduce_c(MPI_IN_PLACE, values, (MPI_Count)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                           &request);
#else
    (void)MPI_Iallreduce(MPI_IN_PLACE, values, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
#endif
    CHECK(&job, MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(&job, is_sum(&job, values, len, 0) && check_equal(values, len, MPI_COMM_WORLD));
    fill(values, len, (uint32_t)job.rank);
    CHECK(&job, MPI_Reduce_scatter_block(MPI_IN_PLACE, values, (int)(len / ranks), MPI_FLOAT, MPI_SUM,
                                         MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(&job, is_sum(&job, values, len / ranks, len / ranks * (size_t)job.rank));
    free(values);
    return check_end(&job);
}
