/*
 * MPI_Allreduce of real gradients, plain and compressed, in alternating pairs within one run.
 *
 *   mpirun -n 4 allreduce_bench_openmpi [--min BYTES] [--max BYTES] [--factor N] [--seconds S] FILE
 *   mpirun -n 4 allreduce_bench_openmpi --ring [the same] FILE
 *   mpirun -n 2 allreduce_bench_openmpi --overhead
 *
 * FILE has gradients, fp32, raw or .npy; every rank starts at another place of it, and longer messages repeat
 * it. How the compressed calls are made, and from which size, say the environment variables of docs/mpi.md.
 * One line a size:
 *
 *   bytes mode pairs plain_us gradwire_us ratio low high bits nmse
 *
 *   mode     that of the environment, or `plain` where the threshold let the call pass
 *   *_us     median time of a call, that of the slowest rank
 *   ratio    plain / gradwire: the geometric mean over the pairs
 *   low      and high: its 95 % interval (t distribution)
 *   bits     bits a value of what travelled
 *   nmse     error against the plain sum
 *
 * --ring: A2A+AG and a ring in pairs, in place of plain and compressed. One line a size, with the bytes that
 * a rank sends in a call (the mean over ranks) and the error against the plain sum of each:
 *
 *   bytes pairs a2a_us ring_us ratio low high a2a_sent ring_sent a2a_nmse ring_nmse
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire_mpi.h"

enum { PAIRS_MIN = 6, PAIRS_MAX = 400 };

typedef struct bench {
    uint64_t size_min, size_max, factor;
    double seconds;
    int overhead, ring, rank, ranks;
    const char *path;
    float *gradient;
    size_t gradient_len;
} bench;

static _Noreturn void give_up(const char *what)
{
    (void)fprintf(stderr, "allreduce_bench: %s\n", what);
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL) {
        give_up("out of memory");
    }
    return memory;
}

/* ------------ input ------------ */

static void read_gradient(bench *run)
{
    FILE *file = fopen(run->path, "rb");
    unsigned char head[10];
    long offset = 0;
    if (file == NULL || fread(head, 1, sizeof(head), file) != sizeof(head)) {
        give_up("cannot read the file of gradients");
    }
    if (memcmp(head, "\x93NUMPY\x01", 7) == 0) {
        offset = 10 + head[8] + 256L * head[9];
    }
    (void)fseek(file, 0, SEEK_END);
    const long end = ftell(file);
    run->gradient_len = end > offset ? (size_t)(end - offset) / sizeof(float) : 0;
    run->gradient = allocate(run->gradient_len * sizeof(float));
    (void)fseek(file, offset, SEEK_SET);
    if (run->gradient_len == 0 ||
        fread(run->gradient, sizeof(float), run->gradient_len, file) != run->gradient_len) {
        give_up("cannot read the file of gradients");
    }
    (void)fclose(file);
}

static uint64_t size_of(const char *text)
{
    char *end;
    uint64_t size = strtoull(text, &end, 0);
    size <<= *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
    return size;
}

static void read_arguments(bench *run, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--overhead") == 0) {
            run->overhead = 1;
            continue;
        }
        if (strcmp(argv[i], "--ring") == 0) {
            run->ring = 1;
            continue;
        }
        if (argv[i][0] != '-') {
            run->path = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--min") == 0) {
            run->size_min = size_of(value);
        } else if (strcmp(argv[i], "--max") == 0) {
            run->size_max = size_of(value);
        } else if (strcmp(argv[i], "--factor") == 0) {
            run->factor = size_of(value);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            run->seconds = atof(value);
        } else {
            give_up("unknown option");
        }
        i++;
    }
    if ((run->path == NULL && !run->overhead) || run->factor < 2 || run->size_min < sizeof(float)) {
        give_up("usage: [--ring] [--min BYTES] [--max BYTES] [--factor N] [--seconds S] FILE, or --overhead");
    }
}

/* ------------ statistics ------------ */

static int order(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(double), order);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* 97.5 % quantile of Student's t distribution (Cornish-Fisher, within 0.5 % from 5 degrees of freedom on). */
static double quantile_of_t(int freedom)
{
    const double z = 1.959964, n = freedom, z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z5 * z * z + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

/* Mean and half the width of its 95 % interval. */
static void interval(const double *values, int count, double *mean, double *half)
{
    double sum = 0, square = 0;
    for (int i = 0; i < count; i++) {
        sum += values[i];
    }
    *mean = sum / count;
    for (int i = 0; i < count; i++) {
        square += (values[i] - *mean) * (values[i] - *mean);
    }
    *half = quantile_of_t(count - 1) * sqrt(square / (count - 1) / count);
}

static double nmse_of(const float *result, const float *expected, size_t len)
{
    double error = 0, square = 0;
    for (size_t i = 0; i < len; i++) {
        const double difference = (double)result[i] - (double)expected[i];
        error += difference * difference;
        square += (double)expected[i] * (double)expected[i];
    }
    return square > 0 ? error / square : 0;
}

/* ------------ pairs ------------ */

/* What is compared: plain and compressed, or A2A+AG and ring. */
typedef struct buffers {
    float *values, *result[2];
    size_t len;
} buffers;

static int sum(const bench *run, const buffers *at, int which)
{
    gw_mpi_options options;
    if (!run->ring) {
        (void)gw_mpi_enable(which);
        return MPI_Allreduce(at->values, at->result[which], (int)at->len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    gw_mpi_options_init(&options);
    options.algorithm = which ? GW_MPI_RING : GW_MPI_A2A;
    return gw_mpi_allreduce(at->values, at->result[which], (int64_t)at->len, MPI_COMM_WORLD, &options);
}

/* Seconds of one call, the slowest rank's. */
static double timed(const bench *run, const buffers *at, int which)
{
    double seconds;
    (void)PMPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (sum(run, at, which) != MPI_SUCCESS) {
        give_up("MPI_Allreduce failed");
    }
    seconds = MPI_Wtime() - start;
    (void)PMPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* Seconds of each of the two. Returns how many pairs. */
static int run_pairs(const bench *run, const buffers *at, double seconds[2][PAIRS_MAX])
{
    int pair = 0;
    double spent = 0;
    (void)timed(run, at, 0);
    (void)timed(run, at, 1);
    while (pair < PAIRS_MIN || (pair < PAIRS_MAX && spent < run->seconds)) {
        const int first = pair & 1;
        seconds[first][pair] = timed(run, at, first);
        seconds[!first][pair] = timed(run, at, !first);
        spent += seconds[0][pair] + seconds[1][pair]; /* maxima over the ranks: equal on all of them */
        pair++;
    }
    return pair;
}

/* Means of the logarithms of the first one's times over those of the second. */
static void compare(double seconds[2][PAIRS_MAX], int pairs, double *mean, double *half)
{
    static double ratios[PAIRS_MAX];
    for (int i = 0; i < pairs; i++) {
        ratios[i] = log(seconds[0][i] / seconds[1][i]);
    }
    interval(ratios, pairs, mean, half);
}

static void run_size(const bench *run, const buffers *at, const char *mode)
{
    static double seconds[2][PAIRS_MAX];
    gw_mpi_statistics before, after;
    double mean, half;
    gw_mpi_statistics_read(&before);
    const int pairs = run_pairs(run, at, seconds);
    gw_mpi_statistics_read(&after);
    compare(seconds, pairs, &mean, &half);
    if (run->rank != 0) {
        return;
    }
    const int compressed = after.operations > before.operations;
    const uint64_t values = after.wire_values - before.wire_values;
    const double bits = values ? 8.0 * (double)(after.wire_size - before.wire_size) / (double)values : 32.0;
    (void)printf("%zu\t%s\t%d\t%.1f\t%.1f\t%.4f\t%.4f\t%.4f\t%.3f\t%.3g\n", at->len * sizeof(float),
                 compressed ? mode : "plain", pairs, 1e6 * median(seconds[0], pairs),
                 1e6 * median(seconds[1], pairs), exp(mean), exp(mean - half), exp(mean + half), bits,
                 nmse_of(at->result[1], at->result[0], at->len));
    (void)fflush(stdout);
}

/* Bytes that a rank sends in one more call, the mean over the ranks. */
static double sent_size(const bench *run, const buffers *at, int which)
{
    gw_mpi_statistics before, after;
    gw_mpi_statistics_read(&before);
    (void)timed(run, at, which);
    gw_mpi_statistics_read(&after);
    double size = (double)(after.wire_size - before.wire_size) / run->ranks;
    (void)PMPI_Allreduce(MPI_IN_PLACE, &size, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return size;
}

static void run_ring_size(const bench *run, const buffers *at, const char *unused)
{
    static double seconds[2][PAIRS_MAX];
    double mean, half;
    (void)unused;
    const int pairs = run_pairs(run, at, seconds);
    const double sent[2] = {sent_size(run, at, 0), sent_size(run, at, 1)};
    float *plain = allocate(at->len * sizeof(float));
    (void)PMPI_Allreduce(at->values, plain, (int)at->len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    compare(seconds, pairs, &mean, &half);
    if (run->rank == 0) {
        (void)printf("%zu\t%d\t%.1f\t%.1f\t%.4f\t%.4f\t%.4f\t%.0f\t%.0f\t%.3g\t%.3g\n",
                     at->len * sizeof(float), pairs, 1e6 * median(seconds[0], pairs),
                     1e6 * median(seconds[1], pairs), exp(mean), exp(mean - half), exp(mean + half), sent[0],
                     sent[1], nmse_of(at->result[0], plain, at->len), nmse_of(at->result[1], plain, at->len));
        (void)fflush(stdout);
    }
    free(plain);
}

static void run_sizes(bench *run)
{
    static const char *const names[] = {"carried", "constant", "thc"};
    gw_mpi_options options;
    uint64_t threshold;
    gw_mpi_options_init(&options);
    read_gradient(run);
    (void)gw_mpi_threshold(MPI_COMM_WORLD, &threshold); /* an automatic one is measured here */
    if (run->rank == 0) {
        (void)printf("# ranks %d, mode %s, threshold %llu bytes%s\n", run->ranks, names[options.mode],
                     (unsigned long long)threshold, threshold == UINT64_MAX ? " (never)" : "");
        (void)puts(
            run->ring
                ? "bytes\tpairs\ta2a_us\tring_us\tratio\tlow\thigh\ta2a_sent\tring_sent\ta2a_nmse\tring_nmse"
                : "bytes\tmode\tpairs\tplain_us\tgradwire_us\tratio\tlow\thigh\tbits\tnmse");
    }
    for (uint64_t size = run->size_min; size <= run->size_max; size *= run->factor) {
        buffers at = {.len = size / sizeof(float)};
        at.values = allocate(size);
        at.result[0] = allocate(size);
        at.result[1] = allocate(size);
        const size_t first = run->gradient_len / (size_t)run->ranks * (size_t)run->rank;
        for (size_t i = 0; i < at.len; i++) {
            at.values[i] = run->gradient[(first + i) % run->gradient_len];
        }
        (run->ring ? run_ring_size : run_size)(run, &at, names[options.mode]);
        free(at.values);
        free(at.result[0]);
        free(at.result[1]);
    }
    free(run->gradient);
}

/* ------------ calls that pass through ------------ */

enum { CALLS = 20000, BLOCKS = 40 };

/* Nanoseconds a call: through gradwire, and straight to MPI. */
static double block_of_calls(int what, int through)
{
    float value = 1, sum;
    MPI_Request request = MPI_REQUEST_NULL;
    const double start = MPI_Wtime();
    for (int i = 0; i < CALLS; i++) {
        if (what == 0) {
            (void)(through ? MPI_Allreduce(&value, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF)
                           : PMPI_Allreduce(&value, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF));
        } else {
            (void)(through ? MPI_Wait(&request, MPI_STATUS_IGNORE) : PMPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    }
    return 1e9 * (MPI_Wtime() - start) / CALLS;
}

static void run_overhead(const bench *run)
{
    static const char *const names[] = {"MPI_Allreduce", "MPI_Wait"};
    if (run->rank == 0) {
        (void)printf("call\tplain_ns\tgradwire_ns\toverhead_ns\tlow\thigh\n");
    }
    for (int what = 0; what < 2; what++) {
        double plain[BLOCKS], through[BLOCKS], difference[BLOCKS], mean, half;
        (void)block_of_calls(what, 0);
        for (int i = 0; i < BLOCKS; i++) {
            plain[i] = block_of_calls(what, 0);
            through[i] = block_of_calls(what, 1);
            difference[i] = through[i] - plain[i];
        }
        interval(difference, BLOCKS, &mean, &half);
        if (run->rank == 0) {
            (void)printf("%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\n", names[what], median(plain, BLOCKS),
                         median(through, BLOCKS), mean, mean - half, mean + half);
        }
    }
}

int main(int argc, char **argv)
{
    bench run = {.size_min = 4096, .size_max = 256u << 20, .factor = 4, .seconds = 2.0};
    (void)MPI_Init(&argc, &argv);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
    read_arguments(&run, argc, argv);
    if (run.overhead) {
        run_overhead(&run);
    } else {
        run_sizes(&run);
    }
    /* All is said: bench/links stops a program whose MPI_Finalize does not return. */
    (void)PMPI_Barrier(MPI_COMM_WORLD);
    if (run.rank == 0) {
        (void)puts("# end");
        (void)fflush(stdout);
    }
    return MPI_Finalize() != MPI_SUCCESS;
}
