/*
 * The plain functions of gradwire_mpi.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gradwire_mpi.h"
#include "mpi_check.h"

enum { LEN = 200003 };

static check_sum whole(const check_job *job)
{
    return (check_sum){.stride = 1, .streams = (uint32_t)job->size};
}

/* All three with given options; the bound is on the error as in check_job. */
static void check_options(check_job *job, const gw_mpi_options *options, double bound)
{
    const check_sum sum = whole(job);
    const check_sum own = {.stride = 1, .streams = (uint32_t)job->size, .first = 50000u * (size_t)job->rank};
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    MPI_Request request;
    job->bound = bound;
    CHECK(job, gw_mpi_allreduce(values, result, LEN, MPI_COMM_WORLD, options) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, LEN, &sum) && check_equal(result, LEN, MPI_COMM_WORLD));
    CHECK(job, gw_mpi_iallreduce(values, result, LEN, MPI_COMM_WORLD, options, &request) == MPI_SUCCESS);
    CHECK(job, MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, LEN, &sum) && check_equal(result, LEN, MPI_COMM_WORLD));
    CHECK(job, gw_mpi_reduce_scatter_block(values, result, 50000, MPI_COMM_WORLD, options) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, 50000, &own));
    CHECK(job, gw_mpi_allreduce(MPI_IN_PLACE, values, LEN, MPI_COMM_WORLD, options) == MPI_SUCCESS);
    CHECK(job, check_result(job, values, LEN, &sum) && check_equal(values, LEN, MPI_COMM_WORLD));
    free(values);
    free(result);
}

static void check_modes(check_job *job)
{
    gw_mpi_options options;
    gw_mpi_statistics before, after;
    gw_mpi_options_init(&options);
    CHECK(job, options.mode == GW_MPI_CARRIED);
    gw_mpi_statistics_read(&before);
    check_options(job, NULL, 1.5 * (double)options.target_nmse);
    gw_mpi_statistics_read(&after);
    CHECK(job, after.operations == before.operations + 4 && after.failures == 0);
    CHECK(job, after.wire_values > before.wire_values && after.encode_ns > before.encode_ns);
    for (int bits = 2; bits <= 8; bits += 3) {
        options.target_nmse = gw_mpi_nmse_of_bits((float)bits);
        check_options(job, &options, 1.5 * (double)options.target_nmse);
    }
    /* Each rounding moves a value by less than 2^(drop - 23) of it; ranks + 1 of them add up at worst */
    options.mode = GW_MPI_CONSTANT;
    options.constant_drop = 18;
    check_options(job, &options, (job->size + 1) * 0x1p-10);
    options.constant_drop = 0;
    check_options(job, &options, 1e-13);
    options.algorithm = GW_MPI_RING;
    check_options(job, &options, 1e-13);
    options.constant_drop = 18;
    check_options(job, &options, (2 * job->size + 1) * 0x1p-10);
    options.mode = GW_MPI_CARRIED;
    check_options(job, &options, job->size * (double)options.target_nmse);
    options.mode = GW_MPI_THC;
    for (options.thc_bits = 2; options.thc_bits <= 4; options.thc_bits++) {
        check_options(job, &options, options.thc_bits == 4 ? 0.05 : 0.6);
    }
}

/* Indices of 4 bits to the owners of pieces and lanes of 8 from them, or indices both ways. */
static void check_thc_sizes(check_job *job)
{
    gw_mpi_options options;
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    gw_mpi_options_init(&options);
    options.mode = GW_MPI_THC;
    for (int sums = GW_MPI_THC_LANES; sums <= GW_MPI_THC_REQUANTIZED; sums++) {
        gw_mpi_statistics before, after;
        options.thc_sums = (gw_mpi_thc_sums)sums;
        gw_mpi_statistics_read(&before);
        CHECK(job, gw_mpi_allreduce(values, result, LEN, MPI_COMM_WORLD, &options) == MPI_SUCCESS);
        gw_mpi_statistics_read(&after);
        const double bits = 8.0 * (double)(after.wire_size - before.wire_size) /
                            (double)(after.wire_values - before.wire_values);
        CHECK(job, sums == GW_MPI_THC_LANES ? bits > 5.9 && bits < 6.1 : bits > 3.9 && bits < 4.1);
        CHECK(job, check_equal(result, LEN, MPI_COMM_WORLD));
    }
    free(values);
    free(result);
}

static void check_arguments(check_job *job)
{
    gw_mpi_options options, bad;
    MPI_Request request;
    float value = 1, result = 0;
    gw_mpi_options_init(&options);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    bad = options;
    bad.target_nmse = 2;
    CHECK(job, gw_mpi_allreduce(&value, &result, 1, MPI_COMM_WORLD, &bad) == MPI_ERR_ARG);
    bad = options;
    bad.algorithm = (gw_mpi_algorithm)2;
    CHECK(job, gw_mpi_allreduce(&value, &result, 1, MPI_COMM_WORLD, &bad) == MPI_ERR_ARG);
    bad = options;
    bad.mode = GW_MPI_CONSTANT;
    bad.constant_drop = 24;
    CHECK(job, gw_mpi_allreduce(&value, &result, 1, MPI_COMM_WORLD, &bad) == MPI_ERR_ARG);
    bad.mode = GW_MPI_THC;
    bad.thc_bits = 5;
    CHECK(job, gw_mpi_iallreduce(&value, &result, 1, MPI_COMM_WORLD, &bad, &request) == MPI_ERR_ARG);
    bad.thc_bits = 4;
    bad.thc_sums = (gw_mpi_thc_sums)2;
    CHECK(job, gw_mpi_iallreduce(&value, &result, 1, MPI_COMM_WORLD, &bad, &request) == MPI_ERR_ARG);
    CHECK(job, gw_mpi_allreduce(&value, &result, -1, MPI_COMM_WORLD, NULL) == MPI_ERR_COUNT);
    CHECK(job, gw_mpi_allreduce(&value, &result, INT64_C(1) << 50, MPI_COMM_WORLD, NULL) == MPI_ERR_COUNT);
    CHECK(job, gw_mpi_allreduce(&value, &result, 0, MPI_COMM_WORLD, NULL) == MPI_SUCCESS && result == 0.0f);
    CHECK(job, gw_mpi_allreduce(&value, &result, 1, MPI_COMM_SELF, NULL) == MPI_SUCCESS && result == 1.0f);
    options.mode = GW_MPI_CONSTANT;
    options.constant_drop = 0;
    CHECK(job, gw_mpi_allreduce(&value, &result, 1, MPI_COMM_WORLD, &options) == MPI_SUCCESS &&
                   result == (float)job->size);
}

/* NaN and infinity arrive, in frames and in lanes. */
static void check_nonfinite(check_job *job)
{
    gw_mpi_options options;
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    gw_mpi_options_init(&options);
    values[1234] = job->rank == 1 ? 1e30f * 1e30f : 1.0f;
    for (int mode = 0; mode < 3; mode++) {
        options.mode = (gw_mpi_mode)mode;
        CHECK(job, gw_mpi_allreduce(values, result, LEN, MPI_COMM_WORLD, &options) == MPI_SUCCESS);
        CHECK(job, mode == GW_MPI_THC ? result[1234] != result[1234] : result[1234] == 1e30f * 1e30f);
        CHECK(job, result[100000] == result[100000] && check_equal(result, LEN, MPI_COMM_WORLD));
    }
    free(values);
    free(result);
}

static void check_switch(check_job *job)
{
    gw_mpi_statistics before, after;
    uint64_t threshold = 0;
    const size_t len = 300000;
    float *values = check_make((uint32_t)job->rank, len), *result = calloc(len, sizeof(float));
    CHECK(job, gw_mpi_threshold(MPI_COMM_WORLD, &threshold) == MPI_SUCCESS);
    for (int on = 0; on < 2; on++) {
        CHECK(job, gw_mpi_enable(on) == !on);
        gw_mpi_statistics_read(&before);
        (void)MPI_Allreduce(values, result, (int)len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        gw_mpi_statistics_read(&after);
        const uint64_t expected = on && threshold <= len * sizeof(float);
        CHECK(job, after.operations - before.operations == expected);
        CHECK(job, after.passed - before.passed == 1 - expected);
    }
    free(values);
    free(result);
}

static void check_rates(check_job *job)
{
    float last = 1;
    for (float bits = 1; bits < 10; bits += 0.125f) {
        const float nmse = gw_mpi_nmse_of_bits(bits);
        CHECK(job, nmse <= last && nmse >= 1e-6f);
        last = nmse;
    }
    CHECK(job, gw_mpi_nmse_of_bits(0) == 1.0f && gw_mpi_nmse_of_bits(4) < 0.01f && last == 1e-6f);
}

int main(int argc, char **argv)
{
    check_job job = {.bound = 0};
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    check_rates(&job);
    check_modes(&job);
    check_thc_sizes(&job);
    check_nonfinite(&job);
    check_switch(&job);
    check_arguments(&job);
    return check_end(&job);
}
