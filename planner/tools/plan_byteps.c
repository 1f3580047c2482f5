/*
 * Reading BytePS recordings.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_byteps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_json.h"
#include "plan_memory.h"

static int load(const char *path, const char *key, json_t **root, json_t **events)
{
    *root = plan_json_read(path, JSON_REJECT_DUPLICATES, 0);
    if (*root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    *events = json_object_get(*root, key);
    if (!json_is_array(*events)) {
        json_decref(*root);
        return gw_cli_error(GW_CLI_BAD_DATA, path, "no array %s", key);
    }
    return GW_CLI_OK;
}

/* Index of the tensor with a recorded name, params->count if there is none. BytePS adds a prefix
 * ("Gradient."), so a tensor's name may be the end of the recorded one; the longest match is taken ("a.w"
 * before "w"). */
static uint32_t param_index(const plan_model *params, const char *recorded)
{
    const size_t size = strlen(recorded);
    uint32_t found = params->count;
    size_t longest = 0;
    for (uint32_t i = 0; i < params->count; i++) {
        const size_t own = strlen(params->tensors[i].name);
        if (own > longest && own <= size && strcmp(recorded + size - own, params->tensors[i].name) == 0 &&
            (own == size || recorded[size - own - 1] == '.')) {
            found = i;
            longest = own;
        }
    }
    return found;
}

static int64_t size_of(const plan_model *params, json_t *event, const char *name)
{
    if (params != NULL) {
        const uint32_t index = param_index(params, name);
        return index < params->count ? params->tensors[index].len : -1;
    }
    json_t *size = json_object_get(event, "elems");
    size = size == NULL ? json_object_get(event, "size") : size;
    return json_is_integer(size) ? (int64_t)json_integer_value(size) : -1;
}

int plan_byteps_read_ready(const char *path, const plan_model *params, plan_model *model)
{
    json_t *root;
    json_t *events;
    memset(model, 0, sizeof *model);
    int result = load(path, "TensorReadyTraceEvents", &root, &events);
    if (result != GW_CLI_OK) {
        return result;
    }
    /* The file may hold several steps: the first name seen again starts a new one. */
    plan_model step = {NULL, 0, 1};
    double previous = 0;
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        json_t *ts = json_object_get(event, "ts");
        if (name == NULL || !json_is_number(ts)) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "event %zu: name or ts is missing", index);
            break;
        }
        const double now = json_number_value(ts);
        if (step.count > 0 && strcmp(step.tensors[0].name, name) == 0) {
            plan_model_free(model);
            *model = step;
            memset(&step, 0, sizeof step);
            step.timed = 1;
        }
        const int64_t len = size_of(params, event, name);
        if (len < 0) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path,
                                  "event %zu: no size of tensor \"%.200s\" (use --params)", index, name);
            break;
        }
        gw_plan_tick bwd = 0;
        if (step.count > 0 && !plan_ticks_from_us(now - previous, &bwd)) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "event %zu: ts goes back or is out of range", index);
            break;
        }
        previous = now;
        plan_model_add(&step, name, len, bwd, 0);
    }
    if (result == GW_CLI_OK && step.count >= model->count) {
        plan_model_free(model);
        *model = step;
    } else {
        plan_model_free(&step);
    }
    json_decref(root);
    model->timed = 1;
    return plan_model_finish(path, model, result);
}

/* One communication of one tensor. */
typedef struct transfer {
    const char *name; /* of the recording's JSON */
    double ts, dur;
    size_t step; /* how many of this name came before it */
} transfer;

static int by_name_and_time(const void *a, const void *b)
{
    const transfer *x = a;
    const transfer *y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->ts < y->ts ? -1 : x->ts > y->ts;
}

static int by_step_and_time(const void *a, const void *b)
{
    const transfer *x = a;
    const transfer *y = b;
    return x->step != y->step ? (x->step < y->step ? -1 : 1) : x->ts < y->ts ? -1 : x->ts > y->ts;
}

/* The transfers of whole tensors, by name and time, numbered. *list is malloc'ed, its names live as long as
 * *root. */
static int read_transfers(const char *path, json_t **root, transfer **list, size_t *count)
{
    json_t *events;
    int code = load(path, "traceEvents", root, &events);
    if (code != GW_CLI_OK) {
        return code;
    }
    *count = 0;
    *list = plan_alloc(json_array_size(events), sizeof **list);
    size_t index;
    json_t *event;
    json_array_foreach(events, index, event)
    {
        const char *tid = json_string_value(json_object_get(event, "tid"));
        const char *name = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        json_t *ts = json_object_get(event, "ts");
        json_t *dur = json_object_get(event, "dur");
        if (code != GW_CLI_OK || tid == NULL || strcmp(tid, "total") != 0) {
            continue;
        }
        if (name == NULL || strncmp(name, "Comm.", 5) != 0 || !json_is_number(ts) || !json_is_number(dur) ||
            !(json_number_value(dur) >= 0)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path,
                                "event %zu: args.name, ts or dur is missing or negative", index);
            continue;
        }
        (*list)[(*count)++] = (transfer){name + 5, json_number_value(ts), json_number_value(dur), 0};
    }
    if (code == GW_CLI_OK && *count == 0) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "no event with tid \"total\"");
    }
    if (code != GW_CLI_OK) {
        free(*list);
        json_decref(*root);
        return code;
    }
    qsort(*list, *count, sizeof **list, by_name_and_time);
    for (size_t i = 1; i < *count; i++) {
        (*list)[i].step = strcmp((*list)[i].name, (*list)[i - 1].name) == 0 ? (*list)[i - 1].step + 1 : 0;
    }
    return GW_CLI_OK;
}

static int no_size(const char *path, const char *name)
{
    return gw_cli_error(GW_CLI_BAD_DATA, path, "no size of tensor \"%.200s\" (use --params)", name);
}

int plan_byteps_read_comm(const char *path, const plan_model *params, plan_model *model)
{
    json_t *root;
    transfer *list;
    size_t count;
    memset(model, 0, sizeof *model);
    int code = read_transfers(path, &root, &list, &count);
    if (code != GW_CLI_OK) {
        return code;
    }
    size_t last = SIZE_MAX; /* the last step that every tensor has */
    for (size_t i = 0; i < count; i++) {
        if ((i + 1 == count || list[i + 1].step == 0) && list[i].step < last) {
            last = list[i].step;
        }
    }
    qsort(list, count, sizeof *list, by_step_and_time);
    double previous = 0;
    for (size_t i = 0; i < count && code == GW_CLI_OK; i++) {
        if (list[i].step != last) {
            continue;
        }
        const int64_t len = params != NULL ? size_of(params, NULL, list[i].name) : -1;
        gw_plan_tick bwd = 0;
        if (len < 0) {
            code = no_size(path, list[i].name);
        } else if (model->count > 0 && !plan_ticks_from_us(list[i].ts - previous, &bwd)) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "tensor \"%.200s\": ts is out of range", list[i].name);
        } else {
            plan_model_add(model, params->tensors[param_index(params, list[i].name)].name, len, bwd, 0);
        }
        previous = list[i].ts;
    }
    free(list);
    json_decref(root);
    model->timed = 1;
    if (code == GW_CLI_OK && model->count != params->count) {
        code = gw_cli_error(GW_CLI_BAD_DATA, path, "%u tensors, but the parameters name %u", model->count,
                            params->count);
    }
    return plan_model_finish(path, model, code);
}

int plan_byteps_read_points(const char *path, const plan_model *params, gw_plan_point **points, size_t *count,
                            double *widest)
{
    json_t *root;
    transfer *list;
    size_t transfers;
    *points = NULL;
    *count = 0;
    *widest = 1;
    int code = read_transfers(path, &root, &list, &transfers);
    if (code != GW_CLI_OK) {
        return code;
    }
    *points = plan_alloc(transfers, sizeof **points);
    for (size_t i = 0; i < transfers && code == GW_CLI_OK;) {
        double shortest = INFINITY;
        double longest = 0;
        const char *name = list[i].name;
        for (; i < transfers && strcmp(list[i].name, name) == 0; i++) {
            shortest = fmin(shortest, list[i].dur);
            longest = fmax(longest, list[i].dur);
        }
        const int64_t len = params != NULL ? size_of(params, NULL, name) : -1;
        gw_plan_tick ticks = 0;
        if (len < 0) {
            code = no_size(path, name);
        } else if (!plan_ticks_from_us(shortest, &ticks) || ticks == 0) {
            code = gw_cli_error(GW_CLI_BAD_DATA, path, "tensor \"%.200s\": dur is 0 or out of range", name);
        } else {
            (*points)[(*count)++] = (gw_plan_point){len, ticks};
            *widest = fmax(*widest, longest / shortest);
        }
    }
    free(list);
    json_decref(root);
    return code;
}
