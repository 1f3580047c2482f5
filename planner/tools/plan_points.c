/*
 * Measurements for plan fit, from
 *   CSV with columns elems,us (or bytes,us),
 *   output of nccl-tests (size count type [redop] [root] time algbw busbw ...; out-of-place time),
 *   Google Benchmark JSON: benchmarks named .../N, or without N but with bytes_per_second or GBps
 *   (gradwire_bench),
 *   Kineto recordings with NCCL metadata, and BytePS comm.json with names and sizes: the minimum per size or
 *   tensor, since a recorded duration includes waiting for peers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_points.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli_common.h"
#include "plan_byteps.h"
#include "plan_input.h"
#include "plan_json.h"
#include "plan_kineto.h"
#include "plan_memory.h"

static void add_point(plan_points *p, const char *path, unsigned long line, double len, double us)
{
    gw_plan_tick ticks;
    if (!(len >= 0) || len > 0x1p50 || !(us > 0) || !plan_ticks_from_us(us, &ticks) || ticks == 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "line %lu: size %g, time %g us: NaN, negative, zero or too long",
                    line, len, us);
    }
    p->items = plan_grow(p->items, p->count, sizeof *p->items);
    p->items[p->count++] = (gw_plan_point){(int64_t)len, ticks};
}

/* 1 if `name` contains every part of the comma-separated filter and none of those marked with "!"; NULL:
 * any name. */
static int matches(const char *name, const char *filter)
{
    while (filter != NULL && *filter != '\0') {
        const size_t length = strcspn(filter, ",");
        const size_t skip = filter[0] == '!';
        if ((memmem(name, strlen(name), filter + skip, length - skip) == NULL) == !skip) {
            return 0;
        }
        filter += length + (filter[length] == ',');
    }
    return 1;
}

/* The size in a benchmark's name: its last path component that is a number; ":" introduces named arguments.
 * NAN: none. */
static double name_len(const char *name)
{
    double len = NAN;
    for (const char *at = name; at != NULL; at = strchr(at, '/') != NULL ? strchr(at, '/') + 1 : NULL) {
        const char *digits = strncmp(at, "n:", 2) == 0 ? at + 2 : strncmp(at, "elems:", 6) == 0 ? at + 6 : at;
        char *end;
        double value = strtod(digits, &end);
        if (end != digits && (*end == '/' || *end == '\0' || *end == '_')) {
            len = value;
        }
    }
    return len;
}

/* Elements of a benchmark that takes `us`: explicit, from its name, or from its rate (gradwire_bench names
 * sizes like 25MiB). */
static double benchmark_len(json_t *entry, const char *name, double us)
{
    json_t *explicit_size = json_object_get(entry, "elems");
    json_t *rate = json_object_get(entry, "bytes_per_second");
    double rate_unit = 1;
    if (rate == NULL) {
        rate = json_object_get(entry, "GBps");
        rate_unit = 1e9;
    }
    const double len = json_is_number(explicit_size) ? json_number_value(explicit_size) : name_len(name);
    return isnan(len) && json_is_number(rate) ? round(json_number_value(rate) * rate_unit * us * 1e-6 / 4)
                                              : len;
}

/* Microseconds per time unit of a benchmark, NAN for an unknown unit. */
static double benchmark_scale(json_t *entry)
{
    const char *unit = json_string_value(json_object_get(entry, "time_unit"));
    return unit == NULL || strcmp(unit, "ns") == 0 ? 1e-3
           : strcmp(unit, "us") == 0               ? 1
           : strcmp(unit, "ms") == 0               ? 1e3
           : strcmp(unit, "s") == 0                ? 1e6
                                                   : NAN;
}

/* Of aggregates only medians. */
static int is_measurement(json_t *entry)
{
    const char *run = json_string_value(json_object_get(entry, "run_type"));
    const char *aggregate = json_string_value(json_object_get(entry, "aggregate_name"));
    return run == NULL || strcmp(run, "aggregate") != 0 ||
           (aggregate != NULL && strcmp(aggregate, "median") == 0);
}

/* Google Benchmark: {"benchmarks": [{"name": "x/65536", "real_time": 1.5, "time_unit": "us"}]}. */
static void read_benchmark(const char *path, const char *filter, plan_points *p)
{
    json_t *root = plan_json_read(path, 0, 0);
    json_t *list = json_object_get(root, "benchmarks");
    size_t index;
    json_t *entry;
    gw_cli_must(root != NULL ? GW_CLI_OK : GW_CLI_BAD_DATA);
    if (!json_is_array(list)) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "has no array \"benchmarks\"");
    }
    json_array_foreach(list, index, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        json_t *time = json_object_get(entry, "real_time");
        if (name == NULL || !json_is_number(time) || !matches(name, filter) || !is_measurement(entry)) {
            continue;
        }
        const double us = json_number_value(time) * benchmark_scale(entry);
        const double len = benchmark_len(entry, name, us);
        if (isnan(len)) {
            gw_cli_note("%s: \"%s\" has no size in its name; left out", path, name);
        } else {
            add_point(p, path, (unsigned long)index, len, us);
        }
    }
    json_decref(root);
}

/* 1 if all of `text` is a number. */
static int is_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0';
}

/*
 * A row of nccl-tests: size(B) count(elements) type [redop] [root] time(us) algbw busbw wrong, the last four
 * once more for in place. Older versions print no root, copying collectives no redop. A root is whole; a time
 * can be, too (from 10 ms on), but is not negative and then comes with a multiple of four columns.
 */
static int parse_nccl_row(char *row, double *bytes, double *us)
{
    enum { COLUMNS_MAX = 32 };
    const char *columns[COLUMNS_MAX];
    int count = 0;
    char *save = NULL;
    for (char *at = strtok_r(row, " \t\r\n", &save); at != NULL && count < COLUMNS_MAX;
         at = strtok_r(NULL, " \t\r\n", &save)) {
        columns[count++] = at;
    }
    double unused;
    if (count < 4 || !is_number(columns[0], bytes) || !is_number(columns[1], &unused) ||
        is_number(columns[2], &unused)) {
        return 0;
    }
    int next = is_number(columns[3], &unused) ? 3 : 4;
    if (next < count && strpbrk(columns[next], ".e") == NULL &&
        (columns[next][0] == '-' || (count - next) % 4 != 0)) {
        next++; /* the root */
    }
    return next < count && is_number(columns[next], us);
}

typedef struct text_reader {
    const char *path;
    unsigned long line;
    int size_column, time_column; /* -1: no header yet */
    int in_bytes;
} text_reader;

static void read_csv_line(text_reader *r, char *line, plan_points *p)
{
    char *save = NULL;
    double len = NAN;
    double us = NAN;
    int header = 0;
    int index = 0;
    for (char *field = strtok_r(line, ",\r\n", &save); field != NULL;
         field = strtok_r(NULL, ",\r\n", &save)) {
        if (strcmp(field, "elems") == 0 || strcmp(field, "bytes") == 0) {
            r->size_column = index;
            r->in_bytes = field[0] == 'b';
            header = 1;
        } else if (strcmp(field, "us") == 0) {
            r->time_column = index;
            header = 1;
        } else if (!header && (index == r->size_column || index == r->time_column)) {
            char *end;
            double value = strtod(field, &end);
            value = end == field || (*end != '\0' && !isspace((unsigned char)*end)) ? NAN : value;
            *(index == r->size_column ? &len : &us) = value;
        }
        index++;
    }
    if (header) {
        return;
    }
    if (r->size_column < 0 || r->time_column < 0) {
        gw_cli_fail(GW_CLI_BAD_DATA, r->path, "line %lu: no header with elems (or bytes) and us before data",
                    r->line);
    }
    add_point(p, r->path, r->line, r->in_bytes ? len / 4 : len, us);
}

/* CSV or nccl-tests text. */
static void read_text(const char *path, plan_points *p)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        gw_cli_fail(GW_CLI_IO, path, "cannot open: %s", strerror(errno));
    }
    text_reader r = {path, 0, -1, -1, 0};
    char line[4096];
    while (fgets(line, sizeof line, file) != NULL) {
        double bytes, us;
        char *at = line;
        r.line++;
        at += r.line == 1 && strncmp(at, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        while (isspace((unsigned char)*at)) {
            at++;
        }
        if (*at == '\0' || *at == '#') {
            continue;
        }
        if (strchr(at, ',') != NULL) {
            read_csv_line(&r, at, p);
        } else if (parse_nccl_row(at, &bytes, &us)) {
            add_point(p, path, r.line, bytes / 4, us); /* float32 elements of the same bytes */
        } else {
            gw_cli_fail(GW_CLI_BAD_DATA, path, "line %lu: neither CSV nor an nccl-tests row", r.line);
        }
    }
    (void)fclose(file);
}

/* Minimum duration of all-reduces per size. */
static void read_kineto(const char *path, uint64_t size_max, plan_points *p)
{
    plan_kineto trace;
    double widest = 0;
    gw_cli_must(plan_kineto_read(path, size_max, &trace));
    for (size_t i = 0; i < trace.collective_count; i++) {
        const plan_kineto_collective *c = &trace.collectives[i];
        if (strcmp(c->name, "allreduce") != 0) {
            continue;
        }
        double low = c->duration_us;
        double high = c->duration_us;
        int seen = 0;
        for (size_t j = 0; j < trace.collective_count; j++) {
            const plan_kineto_collective *o = &trace.collectives[j];
            if (o->len == c->len && strcmp(o->name, "allreduce") == 0) {
                seen |= j < i;
                low = fmin(low, o->duration_us);
                high = fmax(high, o->duration_us);
            }
        }
        if (!seen) {
            widest = fmax(widest, high / low);
            add_point(p, path, 0, (double)c->len, low);
        }
    }
    if (p->count > 0) {
        gw_cli_note(
            "%s: durations of one size differ by up to %.2f times (waiting for peers); the minimum is used",
            path, widest);
    }
    plan_kineto_free(&trace);
}

/* Minimum duration of each tensor of a BytePS recording. */
static void read_byteps(const char *path, const char *params_path, plan_points *p)
{
    plan_model params;
    gw_plan_point *found;
    size_t count;
    double widest;
    if (params_path == NULL) {
        gw_cli_fail(GW_CLI_USAGE, path, "BytePS does not record sizes; give names and sizes with --params");
    }
    gw_cli_must(plan_model_read_csv(params_path, &params));
    gw_cli_must(plan_byteps_read_points(path, &params, &found, &count, &widest));
    for (size_t i = 0; i < count; i++) {
        add_point(p, path, 0, (double)found[i].len, plan_us(found[i].ticks));
    }
    gw_cli_note("%s: durations of one tensor differ by up to %.2f times (queues, peers); the minimum is used",
                path, widest);
    free(found);
    plan_model_free(&params);
}

void plan_points_read(const char *path, const plan_request *request, plan_points *p)
{
    switch (plan_input_kind(path)) {
    case PLAN_INPUT_BYTEPS_COMM:
        read_byteps(path, request->params, p);
        break;
    case PLAN_INPUT_KINETO:
        read_kineto(path, request->max_size, p);
        break;
    case PLAN_INPUT_BYTEPS_READY:
    case PLAN_INPUT_JSON:
        read_benchmark(path, request->filter, p);
        break;
    case PLAN_INPUT_TEXT:
    default:
        read_text(path, p);
        break;
    }
}

static int by_len(const void *a, const void *b)
{
    const gw_plan_point *x = a;
    const gw_plan_point *y = b;
    return x->len != y->len ? (x->len < y->len ? -1 : 1) : x->ticks < y->ticks ? -1 : x->ticks > y->ticks;
}

double plan_points_table(plan_points *p)
{
    double raised = 0;
    size_t used = 0;
    qsort(p->items, p->count, sizeof *p->items, by_len);
    for (size_t i = 0; i < p->count;) {
        size_t end = i;
        while (end < p->count && p->items[end].len == p->items[i].len) {
            end++;
        }
        gw_plan_point point = p->items[i + (end - i) / 2];
        if (used > 0 && point.ticks < p->items[used - 1].ticks) {
            double by = (double)p->items[used - 1].ticks / (double)point.ticks - 1;
            raised = by > raised ? by : raised;
            point.ticks = p->items[used - 1].ticks;
        }
        p->items[used++] = point;
        i = end;
    }
    p->count = used;
    return raised;
}
