/*
 * A program that says where sums are compressed, and does not call MPI_Iallreduce.
 *
 *   mpi_scopes CASE BOUND
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

enum { LEN = 100003 };

/* 1 if a sum of len values on comm is compressed: not MPI's own bits, and within the bound. */
static int is_compressed(check_job *job, MPI_Comm comm, size_t len)
{
    int rank, size;
    (void)MPI_Comm_rank(comm, &rank);
    (void)MPI_Comm_size(comm, &size);
    float *values = check_make((uint32_t)rank, len), *result = check_make(0, len), *mpi = check_make(0, len);
    const check_sum sum = {.stride = 1, .streams = (uint32_t)size};
    CHECK(job, MPI_Allreduce(values, result, (int)len, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, len, &sum));
    CHECK(job, check_equal(result, len, comm));
    (void)PMPI_Allreduce(values, mpi, (int)len, MPI_FLOAT, MPI_SUM, comm);
    const int same = memcmp(result, mpi, len * sizeof(float)) == 0;
    free(values);
    free(result);
    free(mpi);
    return !same;
}

static MPI_Info make_info(const char *value)
{
    MPI_Info info;
    (void)MPI_Info_create(&info);
    (void)MPI_Info_set(info, "gradwire", (char *)value);
    return info;
}

/* ------------ info ------------ */

static void case_info(check_job *job)
{
    MPI_Info off = make_info("off"), on = make_info("on"), empty;
    MPI_Comm comm, copy, part;
    (void)MPI_Info_create(&empty);
    (void)MPI_Comm_dup_with_info(MPI_COMM_WORLD, off, &comm);
    CHECK(job, !is_compressed(job, comm, LEN));
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, LEN));
    /* Duplicates are as their origin was, others start anew */
    (void)MPI_Comm_dup(comm, &copy);
    CHECK(job, !is_compressed(job, copy, LEN));
    (void)MPI_Comm_split(comm, 0, job->rank, &part);
    CHECK(job, is_compressed(job, part, LEN));
    (void)MPI_Comm_free(&part);
    (void)MPI_Comm_set_info(comm, on);
    CHECK(job, is_compressed(job, comm, LEN));
    CHECK(job, !is_compressed(job, copy, LEN));
    (void)MPI_Comm_free(&copy);
    (void)MPI_Comm_set_info(comm, empty);
    CHECK(job, is_compressed(job, comm, LEN));
    /* Hints may differ between ranks: off on one is off on all */
    (void)MPI_Comm_set_info(comm, job->rank == job->size - 1 ? off : empty);
    CHECK(job, !is_compressed(job, comm, LEN));
    (void)MPI_Comm_set_info(comm, job->rank == 0 ? off : on);
    CHECK(job, !is_compressed(job, comm, LEN));
    (void)MPI_Comm_free(&comm);
    (void)MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, job->rank, off, &part);
    CHECK(job, !is_compressed(job, part, LEN));
    (void)MPI_Comm_free(&part);
    (void)MPI_Comm_split_type(MPI_COMM_WORLD, job->rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED,
                              job->rank, MPI_INFO_NULL, &part);
    CHECK(job, (part == MPI_COMM_NULL) == (job->rank == 0));
    if (part != MPI_COMM_NULL) {
        CHECK(job, is_compressed(job, part, LEN) == (job->size > 2));
        (void)MPI_Comm_free(&part);
    }
    (void)MPI_Info_free(&off);
    (void)MPI_Info_free(&on);
    (void)MPI_Info_free(&empty);
}

/* ------------ MPI_Pcontrol ------------ */

static void case_pcontrol(check_job *job)
{
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, LEN));
    CHECK(job, MPI_Pcontrol(0) == MPI_SUCCESS);
    CHECK(job, !is_compressed(job, MPI_COMM_WORLD, LEN));
    (void)MPI_Pcontrol(2, "another tool's", 1.5);
    CHECK(job, !is_compressed(job, MPI_COMM_WORLD, LEN));
    (void)MPI_Pcontrol(1);
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, LEN));
}

/* It is not collective: without the setting one rank may call it for another tool. */
static void case_pcontrol_of_one(check_job *job)
{
    if (job->rank == 0) {
        (void)MPI_Pcontrol(0);
    }
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, LEN));
}

/* ------------ sizes (64K to 512K), threads ------------ */

static void case_window(check_job *job)
{
    CHECK(job, !is_compressed(job, MPI_COMM_WORLD, 16383));
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, 16400));
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, 131072));
    CHECK(job, !is_compressed(job, MPI_COMM_WORLD, 131073));
}

/* No MPI_Iallreduce: MPI has the level that the program asked for. */
static void case_level(check_job *job)
{
    int level;
    (void)MPI_Query_thread(&level);
    CHECK(job, level == MPI_THREAD_SINGLE);
    CHECK(job, is_compressed(job, MPI_COMM_WORLD, LEN));
}

/* For the report: below the threshold and no sums. */
static void case_little(check_job *job)
{
    int one = 1;
    CHECK(job, !is_compressed(job, MPI_COMM_WORLD, 1000));
    (void)MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(check_job *);
    } cases[] = {
        {"info", case_info},     {"pcontrol", case_pcontrol}, {"pcontrol_of_one", case_pcontrol_of_one},
        {"window", case_window}, {"level", case_level},       {"little", case_little},
    };
    check_job job = {.bound = argc > 2 ? atof(argv[2]) : 0};
    int found = 0;
    (void)MPI_Init(&argc, &argv);
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
