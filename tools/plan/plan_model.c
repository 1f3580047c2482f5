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

#include "../cli_common.h"
#include "plan_byteps.h"
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

static int append(plan_model *model, const char *name, size_t name_size, int64_t elems, gw_plan_tick bwd,
                  uint32_t forbidden)
{
    if ((model->count & (model->count - 1)) == 0) { /* full at 0 and at powers of two */
        size_t capacity = model->count == 0 ? 1 : 2 * (size_t)model->count;
        gw_plan_tensor *grown = realloc(model->tensors, capacity * sizeof *grown);
        if (grown == NULL) {
            return 0;
        }
        model->tensors = grown;
    }
    char *copy = malloc(name_size + 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, name, name_size);
    copy[name_size] = '\0';
    model->tensors[model->count++] = (gw_plan_tensor){copy, elems, bwd, forbidden};
    return 1;
}

int plan_model_add(plan_model *model, const char *name, int64_t elems, gw_plan_tick bwd, uint32_t forbidden)
{
    return append(model, name, strlen(name), elems, bwd, forbidden);
}

static const plan_model *sorted_model; /* qsort has no context; the tool is single-threaded */

static int by_name(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    int order = strcmp(sorted_model->tensors[i].name, sorted_model->tensors[j].name);
    return order != 0 ? order : i < j ? -1 : i > j;
}

int plan_model_duplicate(const plan_model *model, uint32_t *first, uint32_t *second)
{
    uint32_t *order = malloc(((size_t)model->count + 1) * sizeof *order);
    int found = 0;
    if (order == NULL) {
        return 0;
    }
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
static const char *parse_elems(const char *text, int64_t *value)
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

enum { COLUMN_NAME, COLUMN_ELEMS, COLUMN_TIME, COLUMN_FLAGS, COLUMN_COUNT };

/* Finds the columns of a header line and counts its fields. *is_gap: the times are gap_us. */
static int read_header(const char *path, char *line, int column[COLUMN_COUNT], int *field_count, int *is_gap)
{
    for (int c = 0; c < COLUMN_COUNT; c++) {
        column[c] = -1;
    }
    char *cursor = line;
    int has_bwd = 0;
    int has_gap = 0;
    for (int index = 0; cursor != NULL; index++) {
        const char *field = next_field(&cursor);
        *field_count = index + 1;
        int which = strcmp(field, "name") == 0     ? COLUMN_NAME
                    : strcmp(field, "elems") == 0  ? COLUMN_ELEMS
                    : strcmp(field, "bwd_us") == 0 ? (has_bwd = 1, COLUMN_TIME)
                    : strcmp(field, "gap_us") == 0 ? (has_gap = 1, COLUMN_TIME)
                    : strcmp(field, "flags") == 0  ? COLUMN_FLAGS
                                                   : COLUMN_COUNT;
        if (which == COLUMN_COUNT) {
            continue;
        }
        if (column[which] >= 0 && !(has_bwd && has_gap)) {
            return gw_cli_error(GW_CLI_BAD_DATA, path, "line 1: column \"%s\" occurs twice", field);
        }
        column[which] = index;
    }
    if (has_bwd && has_gap) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "line 1: both bwd_us and gap_us are given; keep one");
    }
    *is_gap = has_gap;
    if (column[COLUMN_NAME] < 0 || column[COLUMN_ELEMS] < 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "line 1: the header must name the columns name, elems and bwd_us or gap_us");
    }
    return GW_CLI_OK;
}

static int read_rows(const char *path, FILE *file, plan_model *model)
{
    char *line = NULL;
    size_t line_capacity = 0;
    ssize_t length;
    int column[COLUMN_COUNT];
    int header_fields = 0;
    int result = GW_CLI_OK;
    unsigned long number = 0;
    int have_header = 0;
    int is_gap = 0;
    while (result == GW_CLI_OK && (length = getline(&line, &line_capacity, file)) >= 0) {
        number++;
        if (memchr(line, '\0', (size_t)length) != NULL) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: holds a zero byte; is this a text file?",
                                  number);
            break;
        }
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        char *start = line;
        if (number == 1 && strncmp(start, "\xEF\xBB\xBF", 3) == 0) {
            start += 3;
        }
        if (start[0] == '\0' || start[0] == '#') {
            continue;
        }
        if (!have_header) {
            have_header = 1;
            result = read_header(path, start, column, &header_fields, &is_gap);
            model->timed = column[COLUMN_TIME] >= 0;
            continue;
        }
        const char *fields[COLUMN_COUNT] = {NULL, NULL, NULL, NULL};
        char *cursor = start;
        int field_count = 0;
        for (int index = 0; cursor != NULL; index++) {
            char *field = next_field(&cursor);
            field_count++;
            for (int c = 0; c < COLUMN_COUNT; c++) {
                if (column[c] == index) {
                    fields[c] = field;
                }
            }
        }
        int64_t elems = 0;
        gw_plan_tick bwd = 0;
        if (field_count > header_fields) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: %d fields, but the header has %d", number,
                                  field_count, header_fields);
            break;
        }
        if (fields[COLUMN_NAME] == NULL || fields[COLUMN_ELEMS] == NULL ||
            (column[COLUMN_TIME] >= 0 && fields[COLUMN_TIME] == NULL)) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: fewer fields than the header", number);
            break;
        }
        if (fields[COLUMN_NAME][0] == '\0' || strlen(fields[COLUMN_NAME]) > PLAN_NAME_MAX) {
            result =
                gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: the name is empty or longer than %d bytes",
                             number, PLAN_NAME_MAX);
            break;
        }
        const char *why = parse_elems(fields[COLUMN_ELEMS], &elems);
        if (why != NULL) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: elems \"%.40s\" %s", number,
                                  fields[COLUMN_ELEMS], why);
            break;
        }
        why = column[COLUMN_TIME] >= 0 ? parse_time(fields[COLUMN_TIME], &bwd) : NULL;
        if (why != NULL) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: time \"%.40s\" %s", number,
                                  fields[COLUMN_TIME], why);
            break;
        }
        if (is_gap && model->count == 0 && bwd != 0) {
            result = gw_cli_error(
                GW_CLI_BAD_DATA, path,
                "line %lu: the first gap_us is %.40s; gaps count from the first gradient, so it is 0 "
                "(bwd_us may start with a backprop time)",
                number, fields[COLUMN_TIME]);
            break;
        }
        if (fields[COLUMN_FLAGS] != NULL && fields[COLUMN_FLAGS][0] != '\0' &&
            strcmp(fields[COLUMN_FLAGS], "dense") != 0) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: unknown flag \"%.40s\" (known: dense)",
                                  number, fields[COLUMN_FLAGS]);
            break;
        }
        if (model->count == GW_PLAN_TENSORS_MAX) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "line %lu: more than %u tensors", number,
                                  GW_PLAN_TENSORS_MAX);
        } else if (!append(model, fields[COLUMN_NAME], strlen(fields[COLUMN_NAME]), elems, bwd,
                           fields[COLUMN_FLAGS] != NULL && fields[COLUMN_FLAGS][0] != '\0')) {
            result = gw_cli_error(GW_CLI_IO, path, "memory is short");
        }
    }
    free(line);
    if (result == GW_CLI_OK && ferror(file)) {
        result = gw_cli_error(GW_CLI_IO, path, "read error: %s", strerror(errno));
    }
    return result;
}

int plan_model_finish(const char *path, plan_model *model, int result)
{
    uint32_t first, second;
    if (result == GW_CLI_OK && model->count == 0) {
        result = gw_cli_error(GW_CLI_BAD_DATA, path, "no tensors: the model is empty");
    }
    if (result == GW_CLI_OK && plan_model_duplicate(model, &first, &second)) {
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
    int result = read_rows(path, file, model);
    if (file != stdin) {
        (void)fclose(file);
    }
    return plan_model_finish(path, model, result);
}

int plan_model_read(const char *path, plan_model *model)
{
    FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
    int first = 0;
    if (file != NULL) {
        first = fgetc(file);
        (void)fclose(file);
    }
    if (first == 0x1f) {
        memset(model, 0, sizeof *model);
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "is compressed; turn profiler traces into CSV with plan import");
    }
    int result = first == '{' ? plan_byteps_read_ready(path, NULL, model) : plan_model_read_csv(path, model);
    if (result == GW_CLI_OK && !model->timed) {
        plan_model_free(model);
        result = gw_cli_error(
            GW_CLI_BAD_DATA, path,
            "line 1: no column bwd_us or gap_us; without backprop times there is nothing to plan "
            "(a column of zeros says that all gradients are ready at once)");
    }
    return result;
}

int plan_model_write_csv(const plan_model *model, const char *path)
{
    plan_output output;
    int code = plan_output_open(&output);
    if (code != GW_CLI_OK) {
        return code;
    }
    FILE *file = output.text;
    fprintf(file, "name,elems,bwd_us\n");
    for (uint32_t i = 0; i < model->count; i++) {
        const gw_plan_tensor *tensor = &model->tensors[i];
        if (strpbrk(tensor->name, ",\"") != NULL) {
            fputc('"', file);
            for (const char *c = tensor->name; *c != '\0'; c++) {
                fputs(*c == '"' ? "\"\"" : (const char[]){*c, '\0'}, file);
            }
            fputc('"', file);
        } else {
            fputs(tensor->name, file);
        }
        fprintf(file, ",%lld,%.6f\n", (long long)tensor->elems, plan_us(tensor->bwd));
    }
    return plan_output_close(&output, path, GW_CLI_OK);
}
