/*
 * plan fit: cost curves from measurements. Understands
 *   CSV with columns elems,us (or bytes,us),
 *   output of nccl-tests (size count type [redop] [root] time algbw busbw ...; out-of-place time),
 *   Google Benchmark JSON: benchmarks named .../N, or without N but with bytes_per_second or GBps
 * (gradwire_bench), Kineto recordings with NCCL metadata and BytePS comm.json with --params: the minimum per
 * size or tensor, since a recorded duration includes waiting for peers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"
#include "plan_byteps.h"
#include "plan_commands.h"
#include "plan_file.h"
#include "plan_kineto.h"

typedef struct points {
    gw_plan_point *items;
    size_t count;
} points;

static int add_point(points *p, const char *path, unsigned long line, double elems, double us)
{
    gw_plan_tick ticks;
    if (!(elems >= 0) || elems > 0x1p50 || !(us > 0) || !plan_ticks_from_us(us, &ticks) || ticks == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "line %lu: size %g, time %g us: NaN, negative, zero or too long", line, elems,
                            us);
    }
    if ((p->count & (p->count - 1)) == 0) {
        gw_plan_point *grown = realloc(p->items, (p->count == 0 ? 1 : 2 * p->count) * sizeof *grown);
        if (grown == NULL) {
            return gw_cli_error(GW_CLI_IO, path, "memory is short");
        }
        p->items = grown;
    }
    p->items[p->count++] = (gw_plan_point){(int64_t)elems, ticks};
    return GW_CLI_OK;
}

/* 1 if `name` holds every part of the comma-separated filter and none that "!" precedes; NULL: any name. */
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

/* Google Benchmark: {"benchmarks": [{"name": "x/65536", "real_time": 1.5, "time_unit": "us"}]}. */
static int read_benchmark(const char *path, const char *filter, points *p)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "line %d, column %d: %s", error.line, error.column,
                            error.text);
    }
    int code = GW_CLI_OK;
    json_t *list = json_object_get(root, "benchmarks");
    size_t index;
    json_t *entry;
    if (!json_is_array(list)) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "has no array \"benchmarks\"");
    }
    json_array_foreach(list, index, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *run = json_string_value(json_object_get(entry, "run_type"));
        const char *aggregate = json_string_value(json_object_get(entry, "aggregate_name"));
        const char *unit = json_string_value(json_object_get(entry, "time_unit"));
        json_t *time = json_object_get(entry, "real_time");
        if (name == NULL || !json_is_number(time) || !matches(name, filter) ||
            (run != NULL && strcmp(run, "aggregate") == 0 &&
             (aggregate == NULL || strcmp(aggregate, "median") != 0))) {
            continue;
        }
        /* The last path component that is a number is the size; ":" introduces named arguments. */
        double elems = NAN;
        for (const char *at = name; at != NULL; at = strchr(at, '/') != NULL ? strchr(at, '/') + 1 : NULL) {
            const char *digits = strncmp(at, "n:", 2) == 0       ? at + 2
                                 : strncmp(at, "elems:", 6) == 0 ? at + 6
                                                                 : at;
            char *end;
            double value = strtod(digits, &end);
            if (end != digits && (*end == '/' || *end == '\0' || *end == '_')) {
                elems = value;
            }
        }
        double scale = unit == NULL || strcmp(unit, "ns") == 0 ? 1e-3
                       : strcmp(unit, "us") == 0               ? 1
                       : strcmp(unit, "ms") == 0               ? 1e3
                       : strcmp(unit, "s") == 0                ? 1e6
                                                               : NAN;
        /* gradwire_bench: sizes such as 25MiB in the name; exact from its rate times the time. */
        json_t *rate = json_object_get(entry, "bytes_per_second");
        double rate_unit = 1;
        if (rate == NULL) {
            rate = json_object_get(entry, "GBps");
            rate_unit = 1e9;
        }
        json_t *explicit_size = json_object_get(entry, "elems");
        if (json_is_number(explicit_size)) {
            elems = json_number_value(explicit_size);
        } else if (isnan(elems) && json_is_number(rate)) {
            elems = round(json_number_value(rate) * rate_unit * json_number_value(time) * scale * 1e-6 / 4);
        }
        if (isnan(elems)) {
            gw_cli_note("%s: \"%s\" has no size in its name; left out", path, name);
        } else if (code == GW_CLI_OK) {
            code = add_point(p, path, (unsigned long)index, elems, json_number_value(time) * scale);
        }
    }
    json_decref(root);
    return code;
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

/* CSV or nccl-tests text. */
static int read_text(const char *path, points *p)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return gw_cli_error(GW_CLI_IO, path, "cannot open: %s", strerror(errno));
    }
    char line[4096];
    unsigned long number = 0;
    int size_column = -1;
    int time_column = -1;
    int in_bytes = 0;
    int code = GW_CLI_OK;
    while (code == GW_CLI_OK && fgets(line, sizeof line, file) != NULL) {
        number++;
        char *at = line;
        while (isspace((unsigned char)*at)) {
            at++;
        }
        if (*at == '\0' || *at == '#') {
            continue;
        }
        if (strchr(at, ',') != NULL) {
            char *save = NULL;
            double elems = NAN;
            double us = NAN;
            int header = 0;
            int index = 0;
            for (char *field = strtok_r(at, ",\r\n", &save); field != NULL;
                 field = strtok_r(NULL, ",\r\n", &save)) {
                if (strcmp(field, "elems") == 0 || strcmp(field, "bytes") == 0) {
                    size_column = index;
                    in_bytes = field[0] == 'b';
                    header = 1;
                } else if (strcmp(field, "us") == 0) {
                    time_column = index;
                    header = 1;
                } else if (!header && (index == size_column || index == time_column)) {
                    char *end;
                    double value = strtod(field, &end);
                    value = end == field || (*end != '\0' && !isspace((unsigned char)*end)) ? NAN : value;
                    *(index == size_column ? &elems : &us) = value;
                }
                index++;
            }
            if (!header && (size_column < 0 || time_column < 0)) {
                code = gw_cli_error(GW_CLI_BAD_DATA, path,
                                    "line %lu: no header with elems (or bytes) and us before data", number);
            } else if (!header) {
                code = add_point(p, path, number, in_bytes ? elems / 4 : elems, us);
            }
            continue;
        }
        double bytes, us;
        if (parse_nccl_row(at, &bytes, &us)) {
            code = add_point(p, path, number, bytes / 4, us); /* float32 elements of the same bytes */
        } else {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: neither CSV nor an nccl-tests row", number);
        }
    }
    (void)fclose(file);
    return code;
}

/* Minimum duration of all-reduces per size. */
static int read_kineto(const char *path, uint64_t size_max, points *p)
{
    plan_kineto trace;
    int code = plan_kineto_read(path, size_max, &trace);
    double widest = 0;
    for (size_t i = 0; code == GW_CLI_OK && i < trace.collective_count; i++) {
        const plan_kineto_collective *c = &trace.collectives[i];
        if (strcmp(c->name, "allreduce") != 0) {
            continue;
        }
        double low = c->duration_us;
        double high = c->duration_us;
        int seen = 0;
        for (size_t j = 0; j < trace.collective_count; j++) {
            const plan_kineto_collective *o = &trace.collectives[j];
            if (o->elems == c->elems && strcmp(o->name, "allreduce") == 0) {
                seen |= j < i;
                low = o->duration_us < low ? o->duration_us : low;
                high = o->duration_us > high ? o->duration_us : high;
            }
        }
        if (!seen) {
            widest = high / low > widest ? high / low : widest;
            code = add_point(p, path, 0, (double)c->elems, low);
        }
    }
    if (code == GW_CLI_OK && p->count > 0) {
        gw_cli_note(
            "%s: durations of one size differ by up to %.2f times (waiting for peers); the minimum is used",
            path, widest);
    }
    plan_kineto_free(&trace);
    return code;
}

/* Minimum duration of each tensor of a BytePS recording. */
static int read_byteps(const char *path, const char *params_path, points *p)
{
    plan_model params;
    gw_plan_point *found = NULL;
    size_t count = 0;
    double widest = 1;
    if (params_path == NULL) {
        return gw_cli_error(GW_CLI_USAGE, path,
                            "BytePS does not record sizes; give names and sizes with --params");
    }
    int code = plan_model_read_csv(params_path, &params);
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_byteps_read_points(path, &params, &found, &count, &widest);
    for (size_t i = 0; i < count && code == GW_CLI_OK; i++) {
        code = add_point(p, path, 0, (double)found[i].elems, plan_us(found[i].ticks));
    }
    if (code == GW_CLI_OK) {
        gw_cli_note(
            "%s: durations of one tensor differ by up to %.2f times (queues, peers); the minimum is used",
            path, widest);
    }
    free(found);
    plan_model_free(&params);
    return code;
}

static int by_elems(const void *a, const void *b)
{
    const gw_plan_point *x = a;
    const gw_plan_point *y = b;
    return x->elems != y->elems  ? (x->elems < y->elems ? -1 : 1)
           : x->ticks < y->ticks ? -1
                                 : x->ticks > y->ticks;
}

/* Medians per size, raised to the running maximum: curves must not fall. Returns how far rows were raised. */
static double make_table(points *p)
{
    double raised = 0;
    size_t used = 0;
    qsort(p->items, p->count, sizeof *p->items, by_elems);
    for (size_t i = 0; i < p->count;) {
        size_t end = i;
        while (end < p->count && p->items[end].elems == p->items[i].elems) {
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

/* Adds the points of a file, whatever its kind. */
static int read_points(const char *path, const plan_args *args, points *p)
{
    if (plan_byteps_detect(path) == PLAN_BYTEPS_COMM) {
        return read_byteps(path, args->params, p);
    }
    static char head[65536];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return gw_cli_error(GW_CLI_IO, path, "cannot open: %s", strerror(errno));
    }
    size_t got = fread(head, 1, sizeof head - 1, file);
    (void)fclose(file);
    head[got] = '\0';
    if ((got > 1 && (unsigned char)head[0] == 0x1f) || strstr(head, "traceEvents") != NULL ||
        strstr(head, "\"schemaVersion\"") != NULL) {
        return read_kineto(path, args->max_size, p);
    }
    return head[strspn(head, " \t\r\n")] == '{' ? read_benchmark(path, args->filter, p) : read_text(path, p);
}

int plan_cmd_fit(const plan_args *args)
{
    static const char *const names[4] = {"affine", "maxlin", "hinge", "table"};
    if (args->file_count == 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "plan fit takes one or more files");
    }
    int form = -1;
    for (int i = 0; args->form != NULL && i < 4; i++) {
        form = strcmp(args->form, names[i]) == 0 ? i : form;
    }
    if (args->form != NULL && form < 0 && strcmp(args->form, "best") != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--form knows best, affine, maxlin, hinge and table");
    }
    points p = {NULL, 0};
    int code = GW_CLI_OK;
    for (int i = 0; i < args->file_count && code == GW_CLI_OK; i++) {
        code = read_points(args->files[i], args, &p);
    }
    const char *path = args->files[0];
    if (code == GW_CLI_OK && p.count < 2) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "%zu usable points; a fit needs at least 2", p.count);
    }
    json_t *forms = json_object();
    int best = 0;
    double best_error = INFINITY;
    gw_plan_fit fits[3];
    for (int i = 0; i < 3 && code == GW_CLI_OK; i++) {
        gw_plan_status status = gw_plan_cost_fit(p.items, p.count, (gw_plan_cost_kind)i, &fits[i]);
        if (status != GW_PLAN_OK) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "fit: %s",
                                status == GW_PLAN_ERR_ARG ? "all points have the same size"
                                                          : gw_plan_status_string(status));
            break;
        }
        if (fits[i].error_max < best_error) {
            best_error = fits[i].error_max;
            best = i;
        }
        json_t *curve = plan_curve_json(&fits[i].cost);
        json_object_set_new(curve, "error_max", json_real(fits[i].error_max));
        json_object_set_new(curve, "error_mean", json_real(fits[i].error_mean));
        json_object_set_new(curve, "r2", json_real(fits[i].r2));
        json_object_set_new(forms, names[i], curve);
        if (!args->json) {
            printf("%-7s a %12.3f us  b %14.9f us/element%s", names[i], plan_us(fits[i].cost.a),
                   plan_us(fits[i].cost.b), "");
            if (i == GW_PLAN_COST_HINGE) {
                printf("  t %lld", (long long)fits[i].cost.t);
            }
            printf("  error max %.2f %%, mean %.2f %%, R2 %.6f\n", 100 * fits[i].error_max,
                   100 * fits[i].error_mean, fits[i].r2);
        }
    }
    json_t *chosen = NULL;
    if (code == GW_CLI_OK) {
        int pick = form >= 0 ? form : best;
        double error = pick < 3 ? fits[pick].error_max : 0;
        if (pick == GW_PLAN_COST_TABLE) {
            double raised = make_table(&p);
            gw_plan_cost cost = {GW_PLAN_COST_TABLE, 0, 0, 0, (uint32_t)p.count, NULL, NULL};
            int64_t *x = calloc(p.count, sizeof *x);
            gw_plan_tick *y = calloc(p.count, sizeof *y);
            for (size_t i = 0; x != NULL && y != NULL && i < p.count; i++) {
                x[i] = p.items[i].elems;
                y[i] = p.items[i].ticks;
            }
            cost.table_x = x;
            cost.table_y = y;
            chosen = plan_curve_json(&cost);
            free(x);
            free(y);
            error = raised;
        } else {
            chosen = plan_curve_json(&fits[pick].cost);
        }
        if (error > GW_PLAN_FIT_ERROR_WARN) {
            gw_cli_note("warning: %s: the %s curve is off by up to %.1f %% (more than 10 %%); plans made "
                        "with it may not be "
                        "the best. Use --form table or measure again.",
                        path, names[pick], 100 * error);
        }
        if (!args->json) {
            printf("chosen: %s, error %.2f %% over %zu points\n", names[pick], 100 * error, p.count);
        }
        json_t *root = json_pack("{s:i,s:o,s:O,s:f,s:b}", "points", (int)p.count, "fits", forms, "curve",
                                 chosen, "error_max", error, "warning", error > GW_PLAN_FIT_ERROR_WARN);
        forms = NULL;
        if (args->json) {
            code = gw_cli_json_print(root);
        } else {
            json_decref(root);
        }
        if (code == GW_CLI_OK && args->output != NULL) {
            code = plan_json_write(json_incref(chosen), args->output);
        }
    }
    json_decref(chosen);
    json_decref(forms);
    free(p.items);
    return code;
}
