/*
 * Reading and writing plan files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"

static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t plan_problem_hash(const plan_model *model)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < model->count; i++) {
        char number[64];
        int length = snprintf(number, sizeof number, "|%lld|", (long long)model->tensors[i].elems);
        hash = fnv(hash, model->tensors[i].name, strlen(model->tensors[i].name));
        hash = fnv(hash, number, length > 0 ? (size_t)length : 0);
    }
    return hash;
}

static const char *kind_name(plan_kind kind)
{
    return kind == PLAN_JOINT ? "joint" : kind == PLAN_FUSION ? "fusion" : "tree";
}

static const char *level_name(gw_plan_level level)
{
    return level == GW_PLAN_LEVEL_SERIAL      ? "serial"
           : level == GW_PLAN_LEVEL_PIPELINED ? "pipelined"
                                              : "event";
}

static json_t *real_or_null(double value)
{
    return gw_cli_json_real(value);
}

json_t *plan_file_json(const plan_result *result, const plan_case *c, const plan_model *model,
                       const char *model_path)
{
    json_t *root = json_object();
    char hash[24];
    (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)plan_problem_hash(model));
    json_object_set_new(root, "schema", json_string(PLAN_FILE_SCHEMA));
    json_object_set_new(root, "case", json_string(c->name));
    json_object_set_new(root, "kind", json_string(kind_name(c->kind)));
    json_object_set_new(root, "level", json_string("serial"));
    json_object_set_new(root, "decode",
                        json_string(c->decode_none                         ? "none"
                                    : c->decode == GW_PLAN_DECODE_PARALLEL ? "parallel"
                                                                           : "serial"));
    json_object_set_new(root, "model", json_string(model_path));
    json_object_set_new(root, "model_hash", json_string(hash));
    json_object_set_new(root, "tensors", json_integer(model->count));
    json_object_set_new(root, "algorithm", json_string(result->algorithm));
    json_object_set_new(root, "makespan_us", json_real(plan_us(result->cert.makespan)));
    json_object_set_new(root, "makespan_ticks", json_integer((json_int_t)result->cert.makespan));
    json_object_set_new(root, "lower_bound_us", json_real(plan_us(result->cert.lower_bound)));
    json_object_set_new(root, "lower_bound_ticks", json_integer((json_int_t)result->cert.lower_bound));
    json_object_set_new(root, "gap", real_or_null(plan_gap(&result->cert)));
    json_object_set_new(root, "proven", json_boolean(result->cert.proven));
    json_object_set_new(root, "stopped_by_limit", json_boolean(result->cert.stopped));
    json_object_set_new(root, "labels", json_integer((json_int_t)result->cert.labels));
    json_object_set_new(root, "group_count", json_integer(result->group_count));
    json_object_set_new(root, "solve_us", json_real(result->solve_us));
    json_object_set_new(root, "solves", json_integer(result->solves > 0 ? result->solves : 1));
    if (c->level != GW_PLAN_LEVEL_SERIAL) {
        gw_plan_tick makespan = 0;
        if (plan_run_timeline(result, c, c->level, NULL, NULL, &makespan) == GW_CLI_OK) {
            json_object_set_new(root, "judged_level", json_string(level_name(c->level)));
            json_object_set_new(root, "judged_makespan_us", json_real(plan_us(makespan)));
        }
    }
    gw_plan_span *spans = NULL;
    size_t span_count = 0;
    gw_plan_tick total;
    (void)plan_run_timeline(result, c, GW_PLAN_LEVEL_SERIAL, &spans, &span_count, &total);
    json_t *groups = json_array();
    size_t next_span = 0;
    for (uint32_t j = 0; j < result->group_count; j++) {
        const plan_result_group *group = &result->groups[j];
        int64_t elems = 0;
        json_t *names = json_array();
        for (uint32_t i = group->first; i < group->first + group->tensor_count; i++) {
            elems += model->tensors[i].elems;
            json_array_append_new(names, json_string(model->tensors[i].name));
        }
        json_t *entry = json_object();
        json_object_set_new(entry, "first", json_integer(group->first));
        json_object_set_new(entry, "last", json_integer((json_int_t)group->first + group->tensor_count - 1));
        json_object_set_new(entry, "elems", json_integer((json_int_t)elems));
        json_object_set_new(entry, c->kind == PLAN_TREE ? "option" : "method", json_string(group->method));
        json_t *stages = json_array();
        for (; next_span < span_count && spans[next_span].job == j; next_span++) {
            static const char *const kinds[4] = {"backprop", "encode", "network", "decode"};
            const gw_plan_span *span = &spans[next_span];
            if (span->kind != GW_PLAN_SPAN_BACKPROP) {
                json_array_append_new(stages, json_pack("[s,f,f]", kinds[span->kind], plan_us(span->start),
                                                        plan_us(span->end)));
            }
        }
        json_object_set_new(entry, "stages_us", stages);
        json_object_set_new(entry, "names", names);
        json_array_append_new(groups, entry);
    }
    json_object_set_new(root, "groups", groups);
    free(spans);
    return root;
}

int plan_json_write(json_t *object, const char *path)
{
    if (strcmp(path, "-") == 0) {
        int lost =
            json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) != 0 || putchar('\n') == EOF;
        json_decref(object);
        return lost ? gw_cli_error(GW_CLI_IO, NULL, "cannot write to standard output") : GW_CLI_OK;
    }
    int failed = json_dump_file(object, path, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    json_decref(object);
    return failed ? gw_cli_error(GW_CLI_IO, path, "cannot write") : GW_CLI_OK;
}

int plan_file_write(const plan_result *result, const plan_case *c, const plan_model *model,
                    const char *model_path, const char *path)
{
    return plan_json_write(plan_file_json(result, c, model, model_path), path);
}

int plan_file_read(const char *path, plan_file *file)
{
    json_error_t error;
    memset(file, 0, sizeof *file);
    file->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (file->root == NULL) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "line %d, column %d: %s", error.line, error.column,
                            error.text);
    }
    const char *schema = json_string_value(json_object_get(file->root, "schema"));
    const char *hash = json_string_value(json_object_get(file->root, "model_hash"));
    const char *kind = json_string_value(json_object_get(file->root, "kind"));
    json_t *makespan = json_object_get(file->root, "makespan_us");
    json_t *tensors = json_object_get(file->root, "tensors");
    file->groups = json_object_get(file->root, "groups");
    int code = GW_CLI_OK;
    if (schema == NULL || strcmp(schema, PLAN_FILE_SCHEMA) != 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "\"schema\" is not " PLAN_FILE_SCHEMA);
    } else if (!json_is_array(file->groups) || json_array_size(file->groups) == 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "\"groups\" is missing or empty");
    } else if (kind == NULL || strlen(kind) >= sizeof file->kind) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "\"kind\" is missing");
    } else if (makespan != NULL && (!json_is_number(makespan) || !(json_number_value(makespan) >= 0))) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "\"makespan_us\" is negative or no number");
    }
    if (code != GW_CLI_OK) {
        plan_file_close(file);
        return code;
    }
    memcpy(file->kind, kind, strlen(kind) + 1);
    file->makespan_us = makespan != NULL ? json_number_value(makespan) : NAN;
    file->hash = hash != NULL ? strtoull(hash, NULL, 16) : 0;
    file->tensor_count = json_is_integer(tensors) && json_integer_value(tensors) >= 0 &&
                                 json_integer_value(tensors) <= GW_PLAN_TENSORS_MAX
                             ? (uint32_t)json_integer_value(tensors)
                             : 0;
    return GW_CLI_OK;
}

void plan_file_close(plan_file *file)
{
    json_decref(file->root);
    memset(file, 0, sizeof *file);
}

int plan_file_groups(const char *path, const plan_file *file, const plan_setup *setup,
                     const plan_model *model, gw_plan_group **groups, uint32_t *group_count)
{
    size_t count = json_array_size(file->groups);
    uint32_t next = 0;
    if (strcmp(file->kind, "tree") == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "is an option-tree plan; this command needs a fused plan");
    }
    *groups = calloc(count + 1, sizeof **groups);
    if (*groups == NULL) {
        return gw_cli_error(GW_CLI_IO, path, "memory is short");
    }
    int code = GW_CLI_OK;
    for (size_t j = 0; j < count && code == GW_CLI_OK; j++) {
        json_t *entry = json_array_get(file->groups, j);
        json_t *first = json_object_get(entry, "first");
        json_t *last = json_object_get(entry, "last");
        const char *method = json_string_value(json_object_get(entry, "method"));
        int index = method != NULL ? plan_method_index(setup, method) : -1;
        if (!json_is_integer(first) || !json_is_integer(last) ||
            json_integer_value(first) != (json_int_t)next ||
            json_integer_value(last) < json_integer_value(first)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu: first and last must continue at tensor %u",
                                j, next);
        } else if (json_integer_value(last) >= (json_int_t)model->count) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu ends at tensor %lld but the model has %u",
                                j, (long long)json_integer_value(last), model->count);
        } else if (index < 0) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu: this case has no method \"%.60s\"", j,
                                method != NULL ? method : "(none)");
        } else {
            uint32_t end = (uint32_t)json_integer_value(last) + 1;
            json_t *names = json_object_get(entry, "names");
            size_t i;
            json_t *name;
            if (names != NULL && json_array_size(names) != end - next) {
                code = gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu names %zu tensors but spans %u", j,
                                    json_array_size(names), end - next);
            }
            json_array_foreach(names, i, name)
            {
                if (code == GW_CLI_OK &&
                    (!json_is_string(name) ||
                     strcmp(json_string_value(name), model->tensors[next + i].name) != 0)) {
                    code = gw_cli_error(GW_CLI_BAD_DATA, path,
                                        "group %zu: tensor %zu is not the model's \"%.100s\"", j, next + i,
                                        model->tensors[next + i].name);
                }
            }
            (*groups)[j] = (gw_plan_group){next, end - next, (uint32_t)index};
            next = end;
        }
    }
    if (code == GW_CLI_OK && next != model->count) {
        code =
            gw_cli_error(GW_CLI_BAD_DATA, path, "covers %u tensors but the model has %u", next, model->count);
    }
    if (code != GW_CLI_OK) {
        free(*groups);
        *groups = NULL;
    } else {
        *group_count = (uint32_t)count;
    }
    return code;
}
