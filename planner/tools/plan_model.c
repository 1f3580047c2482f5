/*
 * Reading models. Every refusal names file, line and reason.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli_common.h"
#include "plan_memory.h"
#include "plan_output.h"

int plan_ticks_from_us(double us, gw_plan_tick *ticks)
{
    double scaled = us * (double)GW_PLAN_TICKS_PER_US;
    if (!(scaled >= 0) || scaled >= (double)GW_PLAN_TICK_MAX) { /* catches NaN */
        return 0;
    }
    *ticks = (gw_plan_tick)llround(scaled);
    return 1;
}

double plan_us(gw_plan_tick ticks)
{
    return (double)ticks / (double)GW_PLAN_TICKS_PER_US;
}

void plan_model_free(plan_model *model)
{
    for (uint32_t i = 0; i < model->count; i++) {
        free((void *)(uintptr_t)model->tensors[i].name);
    }
    free(model->tensors);
    memset(model, 0, sizeof *model);
}

void plan_model_add(plan_model *model, const char *name, int64_t len, gw_plan_tick bwd, uint32_t forbidden)
{
    model->tensors = plan_grow(model->tensors, model->count, sizeof *model->tensors);
    model->tensors[model->count++] = (gw_plan_tensor){plan_text(name), len, bwd, forbidden};
}

int64_t plan_model_len(const plan_model *model, uint32_t first, uint32_t count)
{
    int64_t len = 0;
    for (uint32_t i = first; i < first + count; i++) {
        len += model->tensors[i].len;
    }
    return len;
}

static const plan_model *sorted_model; /* qsort has no context; the tool is single-threaded */

static int by_name(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    int order = strcmp(sorted_model->tensors[i].name, sorted_model->tensors[j].name);
    return order != 0 ? order : i < j ? -1 : i > j;
}

/* Sets *first and *second to a pair of tensors with one name; 0 when all differ. Sorts, O(N log N). */
static int find_duplicate(const plan_model *model, uint32_t *first, uint32_t *second)
{
    uint32_t *order = plan_alloc(model->count, sizeof *order);
    int found = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        order[i] = i;
    }
    sorted_model = model;
    qsort(order, model->count, sizeof *order, by_name);
    for (uint32_t i = 1; i < model->count && !found; i++) {
        if (strcmp(model->tensors[order[i - 1]].name, model->tensors[order[i]].name) == 0) {
            *first = order[i - 1];
            *second = order[i];
            found = 1;
        }
    }
    free(order);
    return found;
}

/* The next comma-separated field of a line; trims blanks, handles "quoted, fields" with "" for a quote. */
static char *next_field(char **cursor)
{
    char *at = *cursor;
    if (at == NULL) {
        return NULL;
    }
    while (*at == ' ' || *at == '\t') {
        at++;
    }
    char *field = at;
    char *end;
    if (*at == '"') {
        char *out = field;
        at++;
        while (*at != '\0' && !(*at == '"' && at[1] != '"')) {
            at += *at == '"' ? 1 : 0;
            *out++ = *at++;
        }
        at += *at == '"' ? 1 : 0;
        while (*at != '\0' && *at != ',') {
            at++;
        }
        end = out;
    } else {
        while (*at != '\0' && *at != ',') {
            at++;
        }
        end = at;
        while (end > field && (end[-1] == ' ' || end[-1] == '\t')) {
            end--;
        }
    }
    *cursor = *at == ',' ? at + 1 : NULL;
    *end = '\0';
    return field;
}

/* Why a text is not a whole number >= 0, or NULL. */
static const char *parse_len(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    if (text[0] == '\0') {
        return "is empty";
    }
    long long parsed = strtoll(text, &end, 10);
    if (*end != '\0') {
        return "is not a whole number";
    }
    if (errno == ERANGE || parsed > (1LL << 50)) {
        return "is larger than 2^50";
    }
    if (parsed < 0) {
        return "is negative";
    }
    *value = parsed;
    return NULL;
}

static const char *parse_time(const char *text, gw_plan_tick *ticks)
{
    char *end;
    if (text[0] == '\0') {
        return "is empty";
    }
    double us = strtod(text, &end);
    if (*end != '\0') {
        return "is not a number";
    }
    if (isnan(us)) {
        return "is NaN";
    }
    if (us < 0) {
        return "is negative";
    }
    return plan_ticks_from_us(us, ticks) ? NULL : "is too long (the planner's limit is 275 s)";
}

enum { COLUMN_NAME, COLUMN_LEN, COLUMN_TIME, COLUMN_FLAGS, COLUMN_COUNT };

typedef struct csv_reader {
    const char *path;
    plan_model *model;
    unsigned long line; /* from 1 */
    int have_header;
    int column[COLUMN_COUNT]; /* index of each column, -1: absent */
    int field_count;          /* of the header */
    int is_gap;               /* the times are gap_us */
} csv_reader;

/* A refusal with the line number. */
#define BAD_LINE(r, ...) gw_cli_error(GW_CLI_BAD_DATA, (r)->path, "line %lu: " __VA_ARGS__)

/* Finds the columns of a header line and counts its fields. */
static int read_header(csv_reader *r, char *line)
{
    for (int c = 0; c < COLUMN_COUNT; c++) {
        r->column[c] = -1;
    }
    char *cursor = line;
    int has_bwd = 0;
    for (int index = 0; cursor != NULL; index++) {
        const char *field = next_field(&cursor);
        r->field_count = index + 1;
        int which = strcmp(field, "name") == 0     ? COLUMN_NAME
                    : strcmp(field, "elems") == 0  ? COLUMN_LEN
                    : strcmp(field, "bwd_us") == 0 ? (has_bwd = 1, COLUMN_TIME)
                    : strcmp(field, "gap_us") == 0 ? (r->is_gap = 1, COLUMN_TIME)
                    : strcmp(field, "flags") == 0  ? COLUMN_FLAGS
                                                   : COLUMN_COUNT;
        if (which == COLUMN_COUNT) {
            continue;
        }
        if (r->column[which] >= 0 && !(has_bwd && r->is_gap)) {
            return gw_cli_error(GW_CLI_BAD_DATA, r->path, "line 1: column \"%s\" occurs twice", field);
        }
        r->column[which] = index;
    }
    if (has_bwd && r->is_gap) {
        return gw_cli_error(GW_CLI_BAD_DATA, r->path, "line 1: both bwd_us and gap_us are given; keep one");
    }
    if (r->column[COLUMN_NAME] < 0 || r->column[COLUMN_LEN] < 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, r->path,
                            "line 1: the header must name the columns name, elems and bwd_us or gap_us");
    }
    r->have_header = 1;
    r->model->timed = r->column[COLUMN_TIME] >= 0;
    return GW_CLI_OK;
}

/* Cuts a row into the columns that matter; NULL: absent. */
static int split_row(const csv_reader *r, char *line, const char *fields[COLUMN_COUNT])
{
    char *cursor = line;
    int field_count = 0;
    for (int index = 0; cursor != NULL; index++) {
        const char *field = next_field(&cursor);
        field_count++;
        for (int c = 0; c < COLUMN_COUNT; c++) {
            fields[c] = r->column[c] == index ? field : fields[c];
        }
    }
    if (field_count > r->field_count) {
        return BAD_LINE(r, "%d fields, but the header has %d", r->line, field_count, r->field_count);
    }
    if (fields[COLUMN_NAME] == NULL || fields[COLUMN_LEN] == NULL ||
        (r->column[COLUMN_TIME] >= 0 && fields[COLUMN_TIME] == NULL)) {
        return BAD_LINE(r, "fewer fields than the header", r->line);
    }
    return GW_CLI_OK;
}

static int read_row(csv_reader *r, char *line)
{
    const char *fields[COLUMN_COUNT] = {NULL, NULL, NULL, NULL};
    int64_t len = 0;
    gw_plan_tick bwd = 0;
    int code = split_row(r, line, fields);
    if (code != GW_CLI_OK) {
        return code;
    }
    const char *name = fields[COLUMN_NAME];
    const char *time = fields[COLUMN_TIME];
    const char *flag = fields[COLUMN_FLAGS] != NULL ? fields[COLUMN_FLAGS] : "";
    if (name[0] == '\0' || strlen(name) > PLAN_NAME_MAX) {
        return BAD_LINE(r, "the name is empty or longer than %d bytes", r->line, PLAN_NAME_MAX);
    }
    const char *why = parse_len(fields[COLUMN_LEN], &len);
    if (why != NULL) {
        return BAD_LINE(r, "elems \"%.40s\" %s", r->line, fields[COLUMN_LEN], why);
    }
    why = time != NULL ? parse_time(time, &bwd) : NULL;
    if (why != NULL) {
        return BAD_LINE(r, "time \"%.40s\" %s", r->line, time, why);
    }
    if (r->is_gap && r->model->count == 0 && bwd != 0) {
        return BAD_LINE(r,
                        "the first gap_us is %.40s; gaps count from the first gradient, so it is 0 "
                        "(bwd_us may start with a backprop time)",
                        r->line, time);
    }
    if (flag[0] != '\0' && strcmp(flag, "dense") != 0) {
        return BAD_LINE(r, "unknown flag \"%.40s\" (known: dense)", r->line, flag);
    }
    if (r->model->count == GW_PLAN_TENSORS_MAX) {
        return BAD_LINE(r, "more than %u tensors", r->line, GW_PLAN_TENSORS_MAX);
    }
    plan_model_add(r->model, name, len, bwd, flag[0] != '\0');
    return GW_CLI_OK;
}

/* One line of `length` bytes: skips empty lines and comments. */
static int read_line(csv_reader *r, char *line, size_t length)
{
    r->line++;
    if (memchr(line, '\0', length) != NULL) {
        return BAD_LINE(r, "holds a zero byte; is this a text file?", r->line);
    }
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
        line[--length] = '\0';
    }
    line += r->line == 1 && strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    if (line[0] == '\0' || line[0] == '#') {
        return GW_CLI_OK;
    }
    return r->have_header ? read_row(r, line) : read_header(r, line);
}

static int read_lines(const char *path, FILE *file, plan_model *model)
{
    csv_reader r = {.path = path, .model = model};
    char *line = NULL;
    size_t line_capacity = 0;
    ssize_t length;
    int code = GW_CLI_OK;
    while (code == GW_CLI_OK && (length = getline(&line, &line_capacity, file)) >= 0) {
        code = read_line(&r, line, (size_t)length);
    }
    free(line);
    if (code == GW_CLI_OK && ferror(file)) {
        code = gw_cli_error(GW_CLI_IO, path, "read error: %s", strerror(errno));
    }
    return code;
}

/* Index of the first name that CSV or JSON could not hold, model->count if there is none. */
static uint32_t find_bad_name(const plan_model *model)
{
    for (uint32_t i = 0; i < model->count; i++) {
        const char *name = model->tensors[i].name;
        json_t *text = json_string(name); /* NULL: not UTF-8 */
        const int bad =
            text == NULL || name[0] == '\0' || strlen(name) > PLAN_NAME_MAX || strpbrk(name, "\r\n") != NULL;
        json_decref(text);
        if (bad) {
            return i;
        }
    }
    return model->count;
}

/* Sums of sizes are taken in 64 bits everywhere. */
static int sizes_fit(const plan_model *model)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->tensors[i].len > GW_PLAN_TICK_MAX - total) {
            return 0;
        }
        total += model->tensors[i].len;
    }
    return 1;
}

int plan_model_finish(const char *path, plan_model *model, int result)
{
    uint32_t first, second;
    if (result == GW_CLI_OK && model->count == 0) {
        result = gw_cli_error(GW_CLI_BAD_DATA, path, "no tensors: the model is empty");
    }
    if (result == GW_CLI_OK && (first = find_bad_name(model)) < model->count) {
        result =
            gw_cli_error(GW_CLI_BAD_DATA, path,
                         "the name of tensor %u (from 0) is empty, longer than %d bytes, not UTF-8, or has a "
                         "line end",
                         first, PLAN_NAME_MAX);
    }
    if (result == GW_CLI_OK && !sizes_fit(model)) {
        result =
            gw_cli_error(GW_CLI_BAD_DATA, path, "the sizes together are too large (more than 2^58 values)");
    }
    if (result == GW_CLI_OK && find_duplicate(model, &first, &second)) {
        result = gw_cli_error(GW_CLI_BAD_DATA, path, "tensors %u and %u (from 0) share the name \"%.200s\"",
                              first, second, model->tensors[first].name);
    }
    if (result != GW_CLI_OK) {
        plan_model_free(model);
    }
    return result;
}

int plan_model_read_csv(const char *path, plan_model *model)
{
    memset(model, 0, sizeof *model);
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (file == NULL) {
        return gw_cli_error(GW_CLI_IO, path, "cannot open: %s", strerror(errno));
    }
    int result = read_lines(path, file, model);
    if (file != stdin) {
        (void)fclose(file);
    }
    return plan_model_finish(path, model, result);
}

void plan_model_write_csv(const plan_model *model, const char *path)
{
    plan_output output;
    plan_output_open(&output);
    FILE *file = output.text;
    fprintf(file, "name,elems,bwd_us\n");
    for (uint32_t i = 0; i < model->count; i++) {
        const gw_plan_tensor *tensor = &model->tensors[i];
        const char *name = tensor->name;
        const char last = name[strlen(name) - 1]; /* readers trim blanks and skip lines that begin with # */
        if (strpbrk(name, ",\"") != NULL || strchr(" \t#", name[0]) != NULL || last == ' ' || last == '\t') {
            fputc('"', file);
            for (const char *c = name; *c != '\0'; c++) {
                fputs(*c == '"' ? "\"\"" : (const char[]){*c, '\0'}, file);
            }
            fputc('"', file);
        } else {
            fputs(name, file);
        }
        fprintf(file, ",%lld,%.6f\n", (long long)tensor->len, plan_us(tensor->bwd));
    }
    plan_output_close(&output, path);
}
