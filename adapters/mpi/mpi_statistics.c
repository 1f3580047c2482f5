/*
 * What was compressed, by communicator and size, with the error that was measured; and if nothing was, why.
 *
 * The error of a sample: some values of some operations are added once more, exactly, by an all-reduce of
 * doubles on the program's communicator. It starts where the operation does, so all ranks start it in the
 * same order. Only where the statistics are written (GRADWIRE_MPI_LOG), which rank 0 decides for all.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_operations.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations of a communicator from one sample to the next; the first one has one */
#define GW_MPI_SAMPLE_EVERY 16u
/* A sample: runs of values, spread evenly */
#define GW_MPI_SAMPLE_RUNS 8u
#define GW_MPI_SAMPLE_RUN  64u
#define GW_MPI_LINES_MAX   64

/* Sums of one communicator and size class, on one rank or on all. */
typedef struct gw_mpi_line {
    char comm[MPI_MAX_OBJECT_NAME];
    int32_t ranks;
    uint32_t class_log2; /* bytes of a call: up to twice this power of two */
    gw_mpi_statistics sums;
    uint64_t time_ns, samples;
    double error, square; /* squares: of the sampled values' errors, and of the exact sums */
} gw_mpi_line;

struct gw_mpi_sample {
    MPI_Request request;
    int failed;
    double sums[GW_MPI_SAMPLE_RUNS * GW_MPI_SAMPLE_RUN];
};

static pthread_mutex_t gw_mpi_statistics_lock = PTHREAD_MUTEX_INITIALIZER; /* of the lines and counters */
static gw_mpi_line gw_mpi_lines[GW_MPI_LINES_MAX];
static int gw_mpi_line_count;
static gw_mpi_statistics gw_mpi_counters;

atomic_uint_fast64_t gw_mpi_passed[GW_MPI_REASONS];

/* ------------ samples ------------ */

/* Index of value k of run i in the operation's values. */
static uint64_t gw_mpi_sample_at(const gw_mpi_call *call, unsigned run)
{
    return call->len / GW_MPI_SAMPLE_RUNS * run;
}

/* NULL: none of this operation. Reduce-scatter leaves each rank a part of the result: without. */
gw_mpi_sample *gw_mpi_sample_start(const gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    if (!gw_mpi_settings.samples || call->measures || call->kind != GW_MPI_ALLREDUCE ||
        operation->number % GW_MPI_SAMPLE_EVERY != 0 || call->len < GW_MPI_SAMPLE_RUNS * GW_MPI_SAMPLE_RUN) {
        return NULL;
    }
    gw_mpi_sample *sample = gw_mpi_allocate(1, sizeof(*sample));
    for (unsigned run = 0; run < GW_MPI_SAMPLE_RUNS; run++) {
        const float *values = call->values + gw_mpi_sample_at(call, run);
        for (unsigned k = 0; k < GW_MPI_SAMPLE_RUN; k++) {
            sample->sums[run * GW_MPI_SAMPLE_RUN + k] = (double)values[k];
        }
    }
    sample->failed =
        PMPI_Iallreduce(MPI_IN_PLACE, sample->sums, GW_MPI_SAMPLE_RUNS * GW_MPI_SAMPLE_RUN, MPI_DOUBLE,
                        MPI_SUM, operation->context->user, &sample->request) != MPI_SUCCESS;
    return sample;
}

int gw_mpi_sample_test(gw_mpi_sample *sample)
{
    int complete = 1;
    if (sample != NULL && !sample->failed &&
        PMPI_Test(&sample->request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        sample->failed = 1;
        complete = 1;
    }
    return complete;
}

/* After an error of MPI it may still be written to. */
void gw_mpi_sample_free(gw_mpi_sample *sample)
{
    if (sample != NULL && !sample->failed && sample->request == MPI_REQUEST_NULL) {
        free(sample);
    }
}

static void gw_mpi_sample_compare(const gw_mpi_operation *operation, gw_mpi_line *line)
{
    const gw_mpi_call *call = &operation->call;
    const gw_mpi_sample *sample = operation->sample;
    double error = 0, square = 0;
    for (unsigned run = 0; run < GW_MPI_SAMPLE_RUNS; run++) {
        const float *result = call->result + gw_mpi_sample_at(call, run);
        for (unsigned k = 0; k < GW_MPI_SAMPLE_RUN; k++) {
            const double exact = sample->sums[run * GW_MPI_SAMPLE_RUN + k], off = (double)result[k] - exact;
            error += off * off;
            square += exact * exact;
        }
    }
    /* Not a number, and infinities: the operation keeps them, and there is no share to state */
    if (error - error == 0 && square - square == 0) {
        line->error += error;
        line->square += square;
        line->samples++;
    }
}

/* ------------ lines ------------ */

/* The line of a list with the same key, or a new one. The last place takes what has none. */
static gw_mpi_line *gw_mpi_line_find(gw_mpi_line *lines, int *count, int max, const gw_mpi_line *key)
{
    for (int i = 0; i < *count; i++) {
        if (lines[i].ranks == key->ranks && lines[i].class_log2 == key->class_log2 &&
            strcmp(lines[i].comm, key->comm) == 0) {
            return &lines[i];
        }
    }
    if (*count == max) {
        (void)snprintf(lines[max - 1].comm, sizeof(lines[max - 1].comm), "(others)");
        return &lines[max - 1];
    }
    lines[*count] = (gw_mpi_line){.ranks = key->ranks, .class_log2 = key->class_log2};
    memcpy(lines[*count].comm, key->comm, sizeof(key->comm));
    return &lines[(*count)++];
}

static void gw_mpi_sums_add(gw_mpi_statistics *all, const gw_mpi_statistics *more)
{
    all->operations += more->operations;
    all->failures += more->failures;
    all->value_count += more->value_count;
    all->wire_values += more->wire_values;
    all->wire_size += more->wire_size;
    all->encode_ns += more->encode_ns;
    all->reduce_ns += more->reduce_ns;
    all->decode_ns += more->decode_ns;
}

static void gw_mpi_line_add(gw_mpi_line *line, const gw_mpi_line *other)
{
    gw_mpi_sums_add(&line->sums, &other->sums);
    line->time_ns += other->time_ns;
    line->samples += other->samples;
    line->error += other->error;
    line->square += other->square;
}

void gw_mpi_statistics_add(const gw_mpi_statistics *more)
{
    (void)pthread_mutex_lock(&gw_mpi_statistics_lock);
    gw_mpi_sums_add(&gw_mpi_counters, more);
    (void)pthread_mutex_unlock(&gw_mpi_statistics_lock);
}

void gw_mpi_statistics_end(gw_mpi_operation *operation)
{
    const uint64_t value_size = operation->call.len * sizeof(float);
    gw_mpi_line one = {.ranks = operation->context->size,
                       .sums = {.operations = 1,
                                .failures = operation->worst != 0,
                                .value_count = operation->call.len,
                                .wire_values = operation->wire_values,
                                .wire_size = operation->wire_size},
                       .time_ns = gw_mpi_now_ns() - operation->start_ns};
    if (operation->call.measures) {
        return;
    }
    gw_mpi_statistics_add(&one.sums);
    if (!gw_mpi_settings.samples) {
        return;
    }
    memcpy(one.comm, operation->context->name, sizeof(one.comm));
    while (one.class_log2 < 63 && value_size >> (one.class_log2 + 1) != 0) {
        one.class_log2++;
    }
    if (operation->sample != NULL && !operation->sample->failed && operation->worst == 0) {
        gw_mpi_sample_compare(operation, &one);
    }
    (void)pthread_mutex_lock(&gw_mpi_statistics_lock);
    gw_mpi_line_add(gw_mpi_line_find(gw_mpi_lines, &gw_mpi_line_count, GW_MPI_LINES_MAX, &one), &one);
    (void)pthread_mutex_unlock(&gw_mpi_statistics_lock);
}

/* ------------ the report ------------ */

static void gw_mpi_line_print(FILE *file, const gw_mpi_line *line)
{
    const double plain = 4.0 * (double)line->sums.wire_values;
    (void)fprintf(file, "%s\t%d\t%" PRIu64 "\t%.6g\t%" PRIu64 "\t%.0f\t%.1f\t%.3f\t", line->comm, line->ranks,
                  UINT64_C(1) << line->class_log2, (double)line->sums.operations / line->ranks,
                  line->sums.wire_size, plain - (double)line->sums.wire_size,
                  plain == 0 ? 0.0 : 100.0 * (1.0 - (double)line->sums.wire_size / plain),
                  (double)line->time_ns * 1e-6 / line->ranks);
    if (line->samples == 0 || line->square == 0) {
        (void)fprintf(file, "-\t%" PRIu64 "\n", line->samples / (uint64_t)line->ranks);
    } else {
        (void)fprintf(file, "%.3g\t%" PRIu64 "\n", line->error / line->square,
                      line->samples / (uint64_t)line->ranks);
    }
}

/* Collective over MPI_COMM_WORLD; rank 0 writes, unless file is NULL. */
static void gw_mpi_statistics_table(FILE *file, int rank, int size)
{
    int each = gw_mpi_line_count, count = 0; /* of a rank: as many as the rank with most has */
    (void)PMPI_Allreduce(MPI_IN_PLACE, &each, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    const int most = rank == 0 ? size * each : 0, bytes = each * (int)sizeof(gw_mpi_line);
    gw_mpi_line *lines = gw_mpi_allocate((size_t)most, sizeof(*lines));
    gw_mpi_line *merged = gw_mpi_allocate((size_t)most, sizeof(*merged));
    (void)PMPI_Gather(gw_mpi_lines, bytes, MPI_BYTE, lines, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < most; i++) {
        if (lines[i].sums.operations != 0) {
            gw_mpi_line_add(gw_mpi_line_find(merged, &count, most, &lines[i]), &lines[i]);
        }
    }
    if (file != NULL && count > 0) {
        (void)fprintf(file,
                      "\ncommunicator\tranks\tfrom_bytes\tcalls\twire_bytes\tsaved_bytes\tsaved_%%\tms\t"
                      "measured_nmse\tsamples\n");
        for (int i = 0; i < count; i++) {
            gw_mpi_line_print(file, &merged[i]);
        }
    }
    free(lines);
    free(merged);
}

/* Collective over MPI_COMM_WORLD. */
static void gw_mpi_statistics_why(int rank)
{
#define GW_MPI_REASON_TEXT(name, text) text,
    const char *reasons[GW_MPI_REASONS] = {GW_MPI_PASSED(GW_MPI_REASON_TEXT)};
    if (gw_mpi_settings.threshold_size == GW_MPI_THRESHOLD_AUTO) {
        reasons[GW_MPI_PASSED_BELOW] = "are too small (below 64 KiB; GRADWIRE_MPI_THRESHOLD=auto)";
    }
    uint64_t own[GW_MPI_REASONS + 1], all[GW_MPI_REASONS + 1];
    char line[480] = "";
    size_t at = 0;
    for (int i = 0; i < GW_MPI_REASONS; i++) {
        own[i] = atomic_load(&gw_mpi_passed[i]);
    }
    own[GW_MPI_REASONS] = gw_mpi_counters.operations;
    (void)PMPI_Reduce(own, all, GW_MPI_REASONS + 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank != 0 || all[GW_MPI_REASONS] != 0) {
        return;
    }
    for (int i = 0; i < GW_MPI_REASONS && at < sizeof(line); i++) {
        if (all[i] != 0) {
            at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%" PRIu64 " %s", at > 0 ? ", " : ": ",
                                   all[i], reasons[i]);
        }
    }
    gw_mpi_log_write("nothing was compressed%s", at > 0 ? line
                                                        : ": no MPI_Allreduce, MPI_Iallreduce or "
                                                          "MPI_Reduce_scatter_block was seen");
}

/* ------------ counters ------------ */

void gw_mpi_statistics_read(gw_mpi_statistics *statistics)
{
    (void)pthread_mutex_lock(&gw_mpi_statistics_lock);
    *statistics = gw_mpi_counters;
    (void)pthread_mutex_unlock(&gw_mpi_statistics_lock);
    for (int i = 0; i < GW_MPI_REASONS; i++) {
        statistics->passed += atomic_load(&gw_mpi_passed[i]);
    }
}

static void gw_mpi_statistics_line(FILE *file, int rank, const gw_mpi_statistics *s)
{
    (void)fprintf(
        file, "%d\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.4f\t%.3f\t%.3f\t%.3f\n",
        rank, s->operations, s->failures, s->passed, s->value_count, s->wire_size,
        s->wire_values == 0 ? 0.0 : 8.0 * (double)s->wire_size / (double)s->wire_values,
        (double)s->encode_ns * 1e-6, (double)s->reduce_ns * 1e-6, (double)s->decode_ns * 1e-6);
}

void gw_mpi_statistics_log(void)
{
    int rank, size;
    /* Rank 0 decides: the others may not have the variable */
    const char *log = gw_mpi_log;
    int wanted = log[0] != '\0';
    gw_mpi_statistics own;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &size);
    (void)PMPI_Bcast(&wanted, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (gw_mpi_settings.enabled && size > 1) {
        gw_mpi_statistics_why(rank);
    }
    if (!wanted) {
        return;
    }
    gw_mpi_statistics_read(&own);
    gw_mpi_statistics *all = gw_mpi_allocate((size_t)size, sizeof(*all));
    (void)PMPI_Gather(&own, (int)sizeof(own), MPI_BYTE, all, (int)sizeof(own), MPI_BYTE, 0, MPI_COMM_WORLD);
    FILE *file = NULL;
    if (rank == 0) {
        file = strcmp(log, "stderr") == 0 ? stderr : fopen(log, "w");
        if (file == NULL) {
            gw_mpi_log_write("cannot write %s: %s", log, strerror(errno));
        } else {
            (void)fprintf(file,
                          "rank\toperations\tfailures\tpassed\tvalues\twire_bytes\tbits_a_value\tencode_ms\t"
                          "reduce_ms\tdecode_ms\n");
            for (int r = 0; r < size; r++) {
                gw_mpi_statistics_line(file, r, &all[r]);
            }
        }
    }
    gw_mpi_statistics_table(file, rank, size);
    if (file != NULL && file != stderr) {
        (void)fclose(file);
    }
    free(all);
}
