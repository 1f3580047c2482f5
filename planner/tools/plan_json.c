/*
 * JSON files and the values in them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "input_file.h"
#include "plan_memory.h"
#include "plan_model.h"
#include "plan_output.h"

int plan_json_bad(plan_place *place, const char *format, ...)
{
    char text[512];
    va_list arguments;
    if (place->code == GW_CLI_OK) {
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        place->code = gw_cli_error(GW_CLI_BAD_DATA, place->path, "%s: %s", place->where, text);
    }
    return place->code;
}

/* What follows the byte order mark that editors on Windows write. */
static json_t *load_bytes(const char *path, const uint8_t *data, size_t size, size_t flags, int is_quiet)
{
    const size_t mark = size >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    json_error_t error;
    json_t *root = json_loadb(size > mark ? (const char *)data + mark : "", size - mark, flags, &error);
    if (root == NULL && !is_quiet) {
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "line %d, column %d: %s", error.line, error.column,
                           error.text);
    }
    return root;
}

json_t *plan_json_read(const char *path, size_t flags, int is_quiet)
{
    gw_input_file input;
    json_t *root = NULL;
    if (gw_input_file_open(&input, path) != GW_CLI_OK) {
        return NULL;
    }
    if (gw_input_file_fill(&input, PLAN_JSON_SIZE_MAX + 1) != GW_CLI_OK) {
        gw_input_file_close(&input);
        return NULL;
    }
    if (input.size <= PLAN_JSON_SIZE_MAX) {
        root = load_bytes(path, input.data, input.size, flags, is_quiet);
    } else if (!is_quiet) {
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "is JSON of more than %zu MiB", PLAN_JSON_SIZE_MAX >> 20);
    }
    gw_input_file_close(&input);
    return root;
}

json_t *plan_json_load(const char *path, const char *text)
{
    json_t *root = text != NULL
                       ? load_bytes(path, (const uint8_t *)text, strlen(text), JSON_REJECT_DUPLICATES, 0)
                       : plan_json_read(path, JSON_REJECT_DUPLICATES, 0);
    if (root != NULL && !json_is_object(root)) {
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "is not a JSON object");
        json_decref(root);
        root = NULL;
    }
    return root;
}

void plan_json_ticks(plan_place *place, json_t *object, const char *key, double fallback, gw_plan_tick *ticks)
{
    json_t *member = json_object_get(object, key);
    double us = member == NULL ? fallback : json_is_number(member) ? json_number_value(member) : NAN;
    if (!plan_ticks_from_us(us, ticks)) {
        plan_json_bad(place, "\"%s\" is missing, negative, too long or no number", key);
    }
}

int plan_name_index(const char *const *names, const char *name)
{
    for (int i = 0; name != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

void plan_json_known(plan_place *place, json_t *object, const char *const *keys)
{
    const char *key;
    json_t *member;
    json_object_foreach(object, key, member)
    {
        if (plan_name_index(keys, key) < 0) {
            plan_json_bad(place, "unknown key \"%.60s\"", key);
        }
    }
}

void plan_json_flag(plan_place *place, json_t *object, const char *key, int *value)
{
    json_t *member = json_object_get(object, key);
    if (member != NULL && !json_is_boolean(member)) {
        plan_json_bad(place, "\"%s\" is not true or false", key);
    }
    *value = json_is_true(member);
}

void plan_json_whole(plan_place *place, json_t *object, const char *key, int64_t min, int64_t max,
                     int64_t *value)
{
    json_t *member = json_object_get(object, key);
    int64_t parsed = member == NULL            ? *value
                     : json_is_integer(member) ? (int64_t)json_integer_value(member)
                                               : min - 1;
    if (parsed < min || parsed > max) {
        plan_json_bad(place, "\"%s\" is missing or not a whole number in %lld..%lld", key, (long long)min,
                      (long long)max);
        return;
    }
    *value = parsed;
}

void plan_json_error(plan_place *place, json_t *object, const char *key, double *value)
{
    json_t *member = json_object_get(object, key);
    *value = member == NULL ? 0 : json_is_number(member) ? json_number_value(member) : -1;
    if (!(*value >= 0) || *value > 0x1p20) {
        plan_json_bad(place, "\"%s\" is not a number from 0 to 2^20", key);
        *value = 0;
    }
}

void plan_json_write(json_t *object, const char *path, size_t flags)
{
    plan_output out;
    plan_output_open(&out);
    if (json_dumpf(object, out.text, flags) != 0) {
        gw_cli_fail(GW_CLI_IO, path, "out of memory");
    }
    if ((flags & JSON_COMPACT) == 0) {
        (void)fputc('\n', out.text);
    }
    plan_output_close(&out, path);
    json_decref(object);
}

int plan_json_end(json_t *report, int is_wanted)
{
    if (is_wanted) {
        return gw_cli_json_print(report);
    }
    json_decref(report);
    return GW_CLI_OK;
}

const char *const plan_curve_kinds[5] = {"affine", "maxlin", "hinge", "table", NULL};

static void parse_table(plan_place *place, json_t *points, gw_plan_cost *cost)
{
    const size_t count = json_array_size(points);
    if (count == 0 || count > 1000000) {
        plan_json_bad(place, "a table curve needs \"points\": [[elems, us], ...]");
        return;
    }
    int64_t *x = plan_alloc(count, sizeof *x);
    gw_plan_tick *y = plan_alloc(count, sizeof *y);
    cost->table_x = x;
    cost->table_y = y;
    cost->table_len = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        json_t *x_json = json_array_get(json_array_get(points, i), 0);
        json_t *us = json_array_get(json_array_get(points, i), 1);
        if (!json_is_integer(x_json) ||
            !plan_ticks_from_us(json_is_number(us) ? json_number_value(us) : NAN, &y[i])) {
            plan_json_bad(place, "point %zu is not [elems, us] with us >= 0", i);
        }
        x[i] = (int64_t)json_integer_value(x_json);
    }
}

static void parse_coefficients(plan_place *place, json_t *object, gw_plan_cost *cost)
{
    const int64_t size_max = INT64_C(1) << 50;
    int64_t knee = 0;
    plan_json_ticks(place, object, "a_us", 0, &cost->a);
    if (json_object_get(object, "knee") != NULL) {
        plan_json_whole(place, object, "knee", 1, size_max, &knee);
        cost->b = knee > 0 ? (cost->a + knee / 2) / knee : 0;
    } else {
        plan_json_ticks(place, object, "b_us", 0, &cost->b);
    }
    if (cost->kind == GW_PLAN_COST_HINGE) {
        cost->t = -1; /* required */
        plan_json_whole(place, object, "t", 0, size_max, &cost->t);
    }
}

void plan_curve_parse(plan_place *place, json_t *object, gw_plan_cost *cost)
{
    /* the last three are what plan fit says of a curve */
    static const char *const keys[] = {"kind",   "a_us",      "b_us",       "knee", "t",
                                       "points", "error_max", "error_mean", "r2",   NULL};
    const int kind = plan_name_index(plan_curve_kinds, json_string_value(json_object_get(object, "kind")));
    memset(cost, 0, sizeof *cost);
    if (kind < 0) {
        plan_json_bad(place, "a curve needs \"kind\": affine, maxlin, hinge or table");
        return;
    }
    plan_json_known(place, object, keys);
    cost->kind = (gw_plan_cost_kind)kind;
    if (cost->kind == GW_PLAN_COST_TABLE) {
        parse_table(place, json_object_get(object, "points"), cost);
    } else {
        parse_coefficients(place, object, cost);
    }
    gw_plan_fault fault = {"", 0};
    if (place->code == GW_CLI_OK && gw_plan_cost_check(cost, &fault) != GW_OK) {
        plan_json_bad(place, "%s (row %u)", fault.what, fault.index);
    }
}

void plan_curve_free(gw_plan_cost *cost)
{
    free((void *)(uintptr_t)cost->table_x);
    free((void *)(uintptr_t)cost->table_y);
    cost->table_x = NULL;
    cost->table_y = NULL;
}

json_t *plan_curve_json(const gw_plan_cost *cost)
{
    json_t *object = json_pack("{s:s}", "kind", plan_curve_kinds[cost->kind]);
    if (cost->kind == GW_PLAN_COST_TABLE) {
        json_t *points = json_array();
        for (uint32_t i = 0; i < cost->table_len; i++) {
            json_array_append_new(
                points, json_pack("[I,f]", (json_int_t)cost->table_x[i], plan_us(cost->table_y[i])));
        }
        json_object_set_new(object, "points", points);
    } else {
        json_object_set_new(object, "a_us", json_real(plan_us(cost->a)));
        json_object_set_new(object, "b_us", json_real(plan_us(cost->b)));
        if (cost->kind == GW_PLAN_COST_HINGE) {
            json_object_set_new(object, "t", json_integer((json_int_t)cost->t));
        }
    }
    return object;
}
