/*
 * MPI_Allreduce of real gradients, plain and compressed, in alternating pairs within one run.
 *
 *   mpirun -n 4 allreduce_bench_openmpi [--min BYTES] [--max BYTES] [--factor N] [--seconds S] FILE
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
 *   ratio    plain / gradwire: the geometric mean over the pairs; low, high: its 95 % interval (t
 * distribution) bits     bits a value of what travelled; nmse: against the plain sum
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
    int overhead, rank, ranks;
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
        give_up("usage: [--min BYTES] [--max BYTES] [--factor N] [--seconds S] FILE, or --overhead");
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

typedef struct buffers {
    float *values, *plain, *compressed;
    size_t len;
} buffers;

/* Seconds of one call, the slowest rank's. */
static double timed(const buffers *at, int on)
{
    double seconds;
    (void)gw_mpi_enable(on);
    (void)PMPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (MPI_Allreduce(at->values, on ? at->compressed : at->plain, (int)at->len, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD) != MPI_SUCCESS) {
        give_up("MPI_Allreduce failed");
    }
    seconds = MPI_Wtime() - start;
    (void)PMPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* seconds[0]: plain, seconds[1]: compressed. Returns how many pairs. */
static int run_pairs(const bench *run, const buffers *at, double seconds[2][PAIRS_MAX])
{
    int pair = 0;
    double spent = 0;
    (void)timed(at, 0);
    (void)timed(at, 1);
    while (pair < PAIRS_MIN || (pair < PAIRS_MAX && spent < run->seconds)) {
        const int first = pair & 1;
        seconds[first][pair] = timed(at, first);
        seconds[!first][pair] = timed(at, !first);
        spent += seconds[0][pair] + seconds[1][pair]; /* maxima over the ranks: equal on all of them */
        pair++;
    }
    return pair;
}

static void run_size(const bench *run, const buffers *at, const char *mode)
{
    static double seconds[2][PAIRS_MAX], ratios[PAIRS_MAX];
    gw_mpi_statistics before, after;
    double mean, half;
    gw_mpi_statistics_read(&before);
    const int pairs = run_pairs(run, at, seconds);
    gw_mpi_statistics_read(&after);
    for (int i = 0; i < pairs; i++) {
        ratios[i] = log(seconds[0][i] / seconds[1][i]);
    }
    interval(ratios, pairs, &mean, &half);
    if (run->rank != 0) {
        return;
    }
    const int compressed = after.operations > before.operations;
    const uint64_t values = after.wire_values - before.wire_values;
    const double bits = values ? 8.0 * (double)(after.wire_size - before.wire_size) / (double)values : 32.0;
    (void)printf("%zu\t%s\t%d\t%.1f\t%.1f\t%.4f\t%.4f\t%.4f\t%.3f\t%.3g\n", at->len * sizeof(float),
                 compressed ? mode : "plain", pairs, 1e6 * median(seconds[0], pairs),
                 1e6 * median(seconds[1], pairs), exp(mean), exp(mean - half), exp(mean + half), bits,
                 nmse_of(at->compressed, at->plain, at->len));
    (void)fflush(stdout);
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
        (void)printf("bytes\tmode\tpairs\tplain_us\tgradwire_us\tratio\tlow\thigh\tbits\tnmse\n");
    }
    for (uint64_t size = run->size_min; size <= run->size_max; size *= run->factor) {
        buffers at = {.len = size / sizeof(float)};
        at.values = allocate(size);
        at.plain = allocate(size);
        at.compressed = allocate(size);
        const size_t first = run->gradient_len / (size_t)run->ranks * (size_t)run->rank;
        for (size_t i = 0; i < at.len; i++) {
            at.values[i] = run->gradient[(first + i) % run->gradient_len];
        }
        run_size(run, &at, names[options.mode]);
        free(at.values);
        free(at.plain);
        free(at.compressed);
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
