/*
 * A program that knows nothing of gradwire and does what programs do beside sums: signals, forks, thousands
 * of communicators, its own error handlers, an end with requests that were never waited for.
 *
 *   mpi_hostile CASE,... BOUND
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_check.h"

#include <stdatomic.h>
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 40001, CYCLES = 2500, LIVE = 300, FAILURES = 40 };

static check_sum whole(const check_job *job)
{
    return (check_sum){.stride = 1, .streams = (uint32_t)job->size};
}

/* Compressed, by a request, with something between start and wait. */
static void sum_around(check_job *job, MPI_Comm comm, void (*between)(check_job *))
{
    const check_sum sum = whole(job);
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    MPI_Request request;
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comm, &request);
    if (between != NULL) {
        between(job);
    }
    CHECK(job, MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(job, check_result(job, result, LEN, &sum) && check_equal(result, LEN, comm));
    free(values);
    free(result);
}

/* ------------ signals and processes ------------ */

/* Threads of the name "gradwire", and 1 if they have all of SIGUSR1, SIGALRM and SIGTERM blocked. (MPI's own
 * threads may take signals, so which thread gets one does not tell.) */
static int blocked_threads(int *all_block)
{
    const unsigned long long wanted = 1ull << (SIGUSR1 - 1) | 1ull << (SIGALRM - 1) | 1ull << (SIGTERM - 1);
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    *all_block = 1;
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        unsigned long long blocked = 0;
        int is_ours = 0;
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            is_ours |= strncmp(line, "Name:\tgradwire", 14) == 0;
            if (strncmp(line, "SigBlk:", 7) == 0) {
                blocked = strtoull(line + 7, NULL, 16);
            }
        }
        if (status != NULL) {
            (void)fclose(status);
        }
        count += is_ours;
        *all_block &= !is_ours || (blocked & wanted) == wanted;
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return count;
}

static void look_at_threads(check_job *job)
{
    int all_block = 0;
    CHECK(job, blocked_threads(&all_block) == 2 && all_block); /* progress, and a worker */
}

static void case_signals(check_job *job)
{
    sum_around(job, MPI_COMM_WORLD, NULL); /* workers start with the first operation */
    sum_around(job, MPI_COMM_WORLD, look_at_threads);
}

static void fork_child(check_job *job)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        char *memory = malloc(1 << 20);
        _exit(memory == NULL);
    }
    CHECK(job, child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void case_fork(check_job *job)
{
    for (int i = 0; i < 5; i++) {
        sum_around(job, MPI_COMM_WORLD, fork_child);
    }
}

/* ------------ communicators ------------ */

/* More than some MPI libraries have at a time. */
static void case_cycles(check_job *job)
{
    for (int i = 0; i < CYCLES; i++) {
        MPI_Comm comm;
        CHECK(job, MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
        if (i % 100 == 0) {
            sum_around(job, comm, NULL);
        }
        (void)MPI_Comm_free(&comm);
    }
}

/* Many at a time, and one that is made without blocking: all are compressed. */
static void case_live(check_job *job)
{
    MPI_Comm comms[LIVE], later;
    MPI_Request request;
    for (int i = 0; i < LIVE; i++) {
        CHECK(job, MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) == MPI_SUCCESS);
    }
    (void)MPI_Comm_idup(MPI_COMM_WORLD, &later, &request);
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    sum_around(job, later, NULL);
    (void)MPI_Comm_free(&later);
    for (int i = 0; i < LIVE; i++) {
        if (i % 40 == 0 || i == LIVE - 1) {
            sum_around(job, comms[i], NULL);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        (void)MPI_Comm_free(&comms[i]);
    }
}

/* Same calls on two communicators, at other times: results are equal bit for bit. */
static void case_repeat(check_job *job)
{
    float *values = check_make((uint32_t)job->rank, LEN), *results[2][3];
    for (int run = 0; run < 2; run++) {
        MPI_Comm comm;
        MPI_Request requests[2];
        (void)MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < 3; i++) {
            const struct timespec late = {.tv_nsec = 20000000L * ((job->rank * 7 + i + run) % 3)};
            results[run][i] = calloc(LEN, sizeof(float));
            (void)nanosleep(&late, NULL);
            if (i < 2) {
                (void)MPI_Iallreduce(values, results[run][i], LEN, MPI_FLOAT, MPI_SUM, comm, &requests[i]);
            } else {
                (void)MPI_Allreduce(values, results[run][i], LEN, MPI_FLOAT, MPI_SUM, comm);
            }
        }
        (void)MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        (void)MPI_Comm_free(&comm);
    }
    CHECK(job, memcmp(results[0][0], results[0][1], LEN * sizeof(float)) != 0); /* other random words */
    for (int i = 0; i < 3; i++) {
        CHECK(job, memcmp(results[0][i], results[1][i], LEN * sizeof(float)) == 0);
        free(results[0][i]);
        free(results[1][i]);
    }
    free(values);
}

/* ------------ settings ------------ */

/* Rank 0 has none, the others have settings of their own: those of rank 0 count, or ranks would do different
 * things. Before MPI_Init. */
static void set_otherwise(void)
{
    const char *openmpi = getenv("OMPI_COMM_WORLD_RANK"), *mpich = getenv("PMI_RANK");
    const char *rank = openmpi != NULL ? openmpi : mpich != NULL ? mpich : "0";
    const int is_first = strcmp(rank, "0") == 0;
    (void)setenv("GRADWIRE_MPI_PROGRESS", is_first ? "none" : "calls", 1);
    (void)setenv("GRADWIRE_MPI_THRESHOLD", is_first ? "64K" : "1G", 1);
}

static void case_settings(check_job *job)
{
    float *values = check_make((uint32_t)job->rank, LEN), *result = calloc(LEN, sizeof(float));
    const check_sum sum = {.stride = 1, .streams = (uint32_t)job->size};
    const check_job exact = {.rank = job->rank, .size = job->size, .bound = 1e-12};
    MPI_Request request;
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(job, check_result(&exact, result, LEN, &sum));
    (void)MPI_Allreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(job, check_result(job, result, LEN, &sum));
    free(values);
    free(result);
}

/* Sums with another program, which does not compress. */
static void sum_merged(check_job *job, MPI_Comm between, int high)
{
    static float ones[LEN], result[LEN];
    MPI_Comm merged, copy;
    int size;
    (void)MPI_Intercomm_merge(between, high, &merged);
    (void)MPI_Comm_dup(merged, &copy);
    (void)MPI_Comm_size(copy, &size);
    for (size_t i = 0; i < LEN; i++) {
        ones[i] = 1.0f;
    }
    (void)MPI_Allreduce(ones, result, LEN, MPI_FLOAT, MPI_SUM, copy);
    for (size_t i = 0; i < LEN; i += 1000) {
        CHECK(job, result[i] == (float)size);
    }
    (void)MPI_Comm_free(&copy);
    (void)MPI_Comm_free(&merged);
    (void)MPI_Comm_disconnect(&between);
}

static char *program;

static void case_spawn(check_job *job)
{
    char child[] = "child";
    char *arguments[] = {child, NULL};
    MPI_Comm between;
    CHECK(job, MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                              MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
    sum_merged(job, between, 0);
}

static void case_child(check_job *job)
{
    MPI_Comm between;
    (void)MPI_Comm_get_parent(&between);
    sum_merged(job, between, 1);
}

/* ------------ ends ------------ */

/* MPI forbids it, but all ranks do it alike: the program ends. */
static void case_unfinished(check_job *job)
{
    static float values[LEN], result[LEN];
    MPI_Request request;
    (void)job;
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
}

/* ------------ failures (GRADWIRE_MPI_TEST_DAMAGE: in every operation) ------------ */

static atomic_int handled; /* also by the progress thread */
static MPI_Comm handled_comm;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    handled_comm = *comm;
    handled++;
}

/* The program's handler, once, by the call that completes the request. */
static void case_damage_handler(check_job *job)
{
    static float result[LEN];
    float *values = check_make((uint32_t)job->rank, LEN);
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Request request;
    int flag = 0;
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    (void)MPI_Comm_create_errhandler(on_error, &handler);
    (void)MPI_Comm_set_errhandler(comm, handler);
    (void)MPI_Errhandler_free(&handler);
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comm, &request);
    while (!flag) {
        CHECK(job, MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    CHECK(job, handled == 0);
    CHECK(job, MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS && request == MPI_REQUEST_NULL);
    CHECK(job, handled == 1 && handled_comm == comm);
    (void)MPI_Comm_free(&comm);
    free(values);
}

/* A request that is freed before its end, and no call of the program that could tell of the failure. */
static void case_damage_unseen(check_job *job)
{
    static float result[LEN];
    float *values = check_make((uint32_t)job->rank, LEN);
    const struct timespec moment = {.tv_nsec = 10000000};
    MPI_Errhandler handler;
    MPI_Comm comm;
    MPI_Request request;
    (void)MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    (void)MPI_Comm_create_errhandler(on_error, &handler);
    (void)MPI_Comm_set_errhandler(comm, handler);
    (void)MPI_Errhandler_free(&handler);
    (void)MPI_Iallreduce(values, result, LEN, MPI_FLOAT, MPI_SUM, comm, &request);
    (void)MPI_Request_free(&request);
    for (int i = 0; i < 2000 && handled == 0; i++) {
        (void)nanosleep(&moment, NULL);
    }
    CHECK(job, handled == 1 && handled_comm == comm);
    (void)MPI_Barrier(MPI_COMM_WORLD);
    (void)MPI_Comm_free(&comm);
    free(values);
}

/* All of many failures in one call are told. */
static void case_damage_many(check_job *job)
{
    float *values = check_make((uint32_t)job->rank, LEN),
          *results = calloc((size_t)FAILURES * LEN, sizeof(float));
    MPI_Request requests[FAILURES];
    MPI_Status statuses[FAILURES];
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < FAILURES; i++) {
        (void)MPI_Iallreduce(values, results + (size_t)i * LEN, LEN, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                             &requests[i]);
    }
    CHECK(job, MPI_Waitall(FAILURES, requests, statuses) == MPI_ERR_IN_STATUS);
    for (int i = 0; i < FAILURES; i++) {
        CHECK(job, statuses[i].MPI_ERROR != MPI_SUCCESS && requests[i] == MPI_REQUEST_NULL);
    }
    free(values);
    free(results);
}

/* ------------ main ------------ */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(check_job *);
    } cases[] = {
        {"signals", case_signals},
        {"fork", case_fork},
        {"cycles", case_cycles},
        {"live", case_live},
        {"repeat", case_repeat},
        {"settings", case_settings},
        {"spawn", case_spawn},
        {"child", case_child},
        {"unfinished", case_unfinished},
        {"damage_handler", case_damage_handler},
        {"damage_many", case_damage_many},
        {"damage_unseen", case_damage_unseen},
    };
    check_job job = {.bound = argc > 2 ? atof(argv[2]) : 0};
    int found = 0;
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "settings") == 0) {
        set_otherwise();
    } else if (argc > 1 && strcmp(argv[1], "child") == 0) {
        (void)setenv("GRADWIRE_MPI", "off", 1);
    }
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
