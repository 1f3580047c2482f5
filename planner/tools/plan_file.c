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

#include "cli_common.h"
#include "plan_input.h"
#include "plan_json.h"
#include "plan_memory.h"

static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* 64-bit FNV-1a over names and sizes: tells whether a plan was made for a model. */
static uint64_t problem_hash(const plan_model *model)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < model->count; i++) {
        char number[64];
        int length = snprintf(number, sizeof number, "|%lld|", (long long)model->tensors[i].len);
        hash = fnv(hash, model->tensors[i].name, strlen(model->tensors[i].name));
        hash = fnv(hash, number, length > 0 ? (size_t)length : 0);
    }
    return hash;
}

static const char *decode_name(const plan_case *c)
{
    return plan_decode_names[c->decode_none ? 2 : (int)c->decode];
}

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

/* The header: case, model, certificate. */
static void add_certificate(json_t *root, const plan_result *result, const plan_opened *o)
{
    const plan_case *c = &o->c;
    char hash[24];
    (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)problem_hash(&o->model));
    set(root, "schema", json_string(PLAN_FILE_SCHEMA));
    set(root, "case", json_string(c->name));
    set(root, "kind", json_string(plan_kind_names[c->kind]));
    set(root, "level", json_string("serial"));
    set(root, "decode", json_string(decode_name(c)));
    set(root, "model", json_string(o->path));
    set(root, "model_hash", json_string(hash));
    set(root, "tensors", json_integer(o->model.count));
    set(root, "algorithm", json_string(result->algorithm));
    set(root, "makespan_us", json_real(plan_us(result->cert.makespan)));
    set(root, "makespan_ticks", json_integer((json_int_t)result->cert.makespan));
    set(root, "lower_bound_us", json_real(plan_us(result->cert.lower_bound)));
    set(root, "lower_bound_ticks", json_integer((json_int_t)result->cert.lower_bound));
    set(root, "gap", gw_cli_json_real(plan_gap(&result->cert)));
    set(root, "proven", json_boolean(result->cert.proven));
    set(root, "error_mean", json_real(result->error_mean));
    set(root, "stopped_by_limit", json_boolean(result->cert.stopped));
    set(root, "labels", json_integer((json_int_t)result->cert.labels));
    set(root, "group_count", json_integer(result->group_count));
    set(root, "solve_us", json_real(result->solve_us));
    set(root, "solves", json_integer(result->solves > 0 ? result->solves : 1));
    if (c->fuse) { /* another cut may be shorter */
        set(root, "bound_of", json_string("groups"));
    }
    if (c->level != GW_PLAN_LEVEL_SERIAL) {
        set(root, "judged_level", json_string(plan_level_names[c->level]));
        set(root, "judged_makespan_us", json_real(plan_us(plan_run_timeline(result, c, c->level, NULL))));
    }
}

void plan_file_set_option(json_t *entry, const char *path, const plan_library *library, const char *codec)
{
    set(entry, "option", json_string(path));
    if (strstr(path, gw_plan_op_name(GW_PLAN_OP_COMP_GPU)) == NULL &&
        strstr(path, gw_plan_op_name(GW_PLAN_OP_COMP_CPU)) == NULL) {
        return;
    }
    set(entry, "codec", json_string(codec));
    json_t *options = plan_library_options(library, codec);
    if (options != NULL) {
        json_object_set(entry, "options", options);
    }
}

/* Group j; *next_span: its first span, then the first of the next group. */
static json_t *group_json(const plan_result *result, const plan_opened *o, uint32_t j,
                          const gw_plan_spans *spans, size_t *next_span)
{
    static const char *const kinds[6] = {"backprop", "encode", "network", "decode", "sum", "copy"};
    const plan_result_group *group = &result->groups[j];
    const int64_t len = plan_model_len(&o->model, group->first, group->tensor_count);
    json_t *names = json_array();
    for (uint32_t i = group->first; i < group->first + group->tensor_count; i++) {
        json_array_append_new(names, json_string(o->model.tensors[i].name));
    }
    json_t *stages = json_array();
    for (; *next_span < spans->count && spans->items[*next_span].job == j; (*next_span)++) {
        const gw_plan_span *span = &spans->items[*next_span];
        if (span->kind != GW_PLAN_SPAN_BACKPROP) {
            json_array_append_new(
                stages, json_pack("[s,f,f]", kinds[span->kind], plan_us(span->start), plan_us(span->end)));
        }
    }
    json_t *entry = json_object();
    set(entry, "first", json_integer(group->first));
    set(entry, "last", json_integer((json_int_t)group->first + group->tensor_count - 1));
    set(entry, "elems", json_integer((json_int_t)len));
    if (o->c.kind == PLAN_TREE) {
        plan_file_set_option(entry, group->method, &o->library, result->tree_codec);
    } else {
        set(entry, "method", json_string(group->method));
        set(entry, "codec", json_string(group->codec));
        set(entry, "algorithm", json_string(group->algorithm));
        set(entry, "device", json_string(group->on_cpu ? "cpu" : "gpu"));
        json_t *options = plan_library_options(&o->library, group->codec);
        if (options != NULL) {
            json_object_set(entry, "options", options);
        }
    }
    set(entry, "stages_us", stages);
    set(entry, "names", names);
    return entry;
}

static json_t *link_json(const gw_plan_link *link)
{
    return json_pack("{s:f,s:f}", "latency_us", plan_us(link->alpha), "us_per_kib", plan_us(link->beta_kib));
}

/* Costs of operations that were measured; NULL: none were. */
static json_t *operations_json(const gw_plan_cluster *cluster)
{
    json_t *operations = cluster->op_set != 0 ? json_object() : NULL;
    for (int op = 0; op < GW_PLAN_OP_COUNT; op++) {
        if ((cluster->op_set >> op & 1u) != 0) {
            set(operations, gw_plan_op_name((gw_plan_op)op), link_json(&cluster->ops[op]));
        }
    }
    return operations;
}

/* The members of a case in a cases file. */
static json_t *case_json(const plan_case *c)
{
    const gw_plan_cluster *cluster = &c->cluster;
    json_t *methods = json_array();
    for (uint32_t m = 0; m < c->method_count; m++) {
        json_array_append_new(methods, json_string(c->method_names[m]));
    }
    json_t *devices = json_pack("[s]", "gpu");
    if (c->cpu) {
        json_array_append_new(devices, json_string("cpu"));
    }
    return json_pack("{s:s,s:s,s:o,s:o,s:s,s:s,s:I,s:I,s:o,s:o,s:o,s:b,s:b,s:o*}", "name", c->name, "kind",
                     plan_kind_names[c->kind], "methods", methods, "devices", devices, "level",
                     plan_level_names[c->level], "decode", decode_name(c), "nodes",
                     (json_int_t)cluster->nodes, "gpus", (json_int_t)cluster->gpus, "intra",
                     link_json(&cluster->intra), "inter", link_json(&cluster->inter), "host",
                     link_json(&cluster->host), "latency_per_step",
                     (int)(cluster->flags & GW_PLAN_ALPHA_PER_STEP), "flat_uses_both",
                     (int)(cluster->flags & GW_PLAN_FLAT_USES_BOTH), "operations", operations_json(cluster));
}

/* The codecs that the case names, as their files have them. */
static json_t *codecs_json(const plan_opened *o)
{
    json_t *codecs = json_array();
    for (uint32_t i = 0; i < o->library.codec_count; i++) {
        const plan_codec *codec = &o->library.codecs[i];
        int used = 0;
        for (uint32_t m = 0; m < o->c.method_count; m++) {
            used |= strcmp(o->c.method_names[m], codec->name) == 0;
        }
        if (used) {
            json_array_append(codecs, codec->source);
        }
    }
    return codecs;
}

/* The gradients, cluster, methods and codecs, so that the file stands alone; docs/plan-file.md has the
 * members. */
static json_t *problem_json(const plan_opened *o)
{
    json_t *gradients = json_array();
    for (uint32_t i = 0; i < o->model.count; i++) {
        const gw_plan_tensor *t = &o->model.tensors[i];
        json_array_append_new(gradients,
                              json_pack("{s:s,s:I,s:f,s:b}", "name", t->name, "elems", (json_int_t)t->len,
                                        "bwd_us", plan_us(t->bwd), "dense", t->forbidden != 0));
    }
    json_t *problem = case_json(&o->c);
    json_object_set_new(problem, "codecs", codecs_json(o));
    json_object_set_new(problem, "gradients", gradients);
    json_object_set_new(problem, "group_elems_max", json_integer((json_int_t)o->c.group_len_max));
    json_object_set_new(problem, "error_max", json_real(o->c.error_max));
    if (o->c.comp_max != UINT32_MAX) {
        json_object_set_new(problem, "compressions_max", json_integer(o->c.comp_max));
    }
    if (o->c.fuse) {
        json_object_set_new(problem, "fuse", json_true());
    }
    return problem;
}

json_t *plan_file_json(const plan_result *result, const plan_opened *o)
{
    json_t *root = json_object();
    gw_plan_spans spans;
    size_t next_span = 0;
    add_certificate(root, result, o);
    (void)plan_run_timeline(result, &o->c, GW_PLAN_LEVEL_SERIAL, &spans);
    json_t *groups = json_array();
    for (uint32_t j = 0; j < result->group_count; j++) {
        json_array_append_new(groups, group_json(result, o, j, &spans, &next_span));
    }
    set(root, "groups", groups);
    set(root, "problem", problem_json(o));
    free(spans.items);
    return root;
}

void plan_file_write(const plan_result *result, const plan_opened *o, const char *path)
{
    plan_json_write(plan_file_json(result, o), path, PLAN_JSON_INDENTED);
}

int plan_file_is(const char *path)
{
    if (plan_input_kind(path) != PLAN_INPUT_JSON) {
        return 0;
    }
    json_t *root = plan_json_read(path, JSON_REJECT_DUPLICATES, 1);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const int is_plan = schema != NULL && strcmp(schema, PLAN_FILE_SCHEMA) == 0;
    json_decref(root);
    return is_plan;
}

/* -1 if there is none. */
static void read_ticks(plan_place *place, json_t *root, const char *key, gw_plan_tick *ticks)
{
    *ticks = -1;
    if (json_object_get(root, key) != NULL) {
        plan_json_whole(place, root, key, 0, GW_PLAN_TICK_MAX, ticks);
    }
}

int plan_file_read(const char *path, plan_file *file)
{
    memset(file, 0, sizeof *file);
    file->path = path;
    file->root = plan_json_load(path, NULL);
    if (file->root == NULL) {
        return GW_CLI_BAD_DATA;
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
    plan_place place = {path, "the plan", code};
    read_ticks(&place, file->root, "makespan_ticks", &file->claims.makespan_ticks);
    read_ticks(&place, file->root, "lower_bound_ticks", &file->claims.bound_ticks);
    if (place.code != GW_CLI_OK) {
        plan_file_close(file);
        return place.code;
    }
    memcpy(file->kind, kind, strlen(kind) + 1);
    file->claims.makespan_us = makespan != NULL ? json_number_value(makespan) : NAN;
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

static void read_gradients(plan_place *place, json_t *array, plan_model *model)
{
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        int64_t len = -1; /* required */
        gw_plan_tick bwd = 0;
        plan_json_whole(place, entry, "elems", 0, INT64_C(1) << 50, &len);
        plan_json_ticks(place, entry, "bwd_us", NAN, &bwd);
        if (name == NULL || name[0] == '\0' || strlen(name) > PLAN_NAME_MAX || i >= GW_PLAN_TENSORS_MAX) {
            plan_json_bad(place, "a gradient has no name or one that is too long, or there are too many");
        }
        if (place->code != GW_CLI_OK) {
            return;
        }
        plan_model_add(model, name, len, bwd, json_is_true(json_object_get(entry, "dense")));
    }
    model->timed = 1;
}

int plan_file_problem(const plan_file *file, plan_opened *o)
{
    plan_place place = {file->path, "problem", GW_CLI_OK};
    json_t *problem = json_object_get(file->root, "problem");
    json_t *codecs = json_object_get(problem, "codecs");
    int64_t comp_max = -1;
    int code = json_is_array(codecs) ? plan_library_read(&o->library, file->path, codecs)
                                     : plan_json_bad(&place, "is missing or has no codecs");
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_case_read(file->path, problem, &o->c);
    if (code == GW_CLI_OK) { /* what a case of a cases file does not have */
        plan_json_error(&place, problem, "error_max", &o->c.error_max);
        plan_json_whole(&place, problem, "group_elems_max", 0, GW_PLAN_TICK_MAX, &o->c.group_len_max);
        plan_json_whole(&place, problem, "compressions_max", -1, 12, &comp_max);
        plan_json_flag(&place, problem, "fuse", &o->c.fuse);
        o->c.comp_max = comp_max >= 0 ? (uint32_t)comp_max : UINT32_MAX;
        read_gradients(&place, json_object_get(problem, "gradients"), &o->model);
        code = plan_model_finish(file->path, &o->model, place.code);
        code = code == GW_CLI_OK ? plan_input_check_sizes(file->path, &o->model) : code;
    }
    if (code != GW_CLI_OK) {
        plan_library_close(&o->library);
    }
    return code;
}

/* Checks that entry j continues at tensor `next` and names the model's tensors; *end is the tensor after
 * it. */
static int check_range(const char *path, json_t *entry, size_t j, const plan_model *model, uint32_t next,
                       uint32_t *end)
{
    json_t *first = json_object_get(entry, "first");
    json_t *last = json_object_get(entry, "last");
    if (!json_is_integer(first) || !json_is_integer(last) || json_integer_value(first) != (json_int_t)next ||
        json_integer_value(last) < json_integer_value(first)) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu: first and last must continue at tensor %u", j,
                            next);
    }
    if (json_integer_value(last) >= (json_int_t)model->count) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu ends at tensor %lld but the model has %u", j,
                            (long long)json_integer_value(last), model->count);
    }
    *end = (uint32_t)json_integer_value(last) + 1;
    json_t *names = json_object_get(entry, "names");
    if (names != NULL && json_array_size(names) != *end - next) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu names %zu tensors but spans %u", j,
                            json_array_size(names), *end - next);
    }
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name)
    {
        if (!json_is_string(name) || strcmp(json_string_value(name), model->tensors[next + i].name) != 0) {
            return gw_cli_error(GW_CLI_BAD_DATA, path, "group %zu: tensor %zu is not the model's \"%.100s\"",
                                j, next + i, model->tensors[next + i].name);
        }
    }
    return GW_CLI_OK;
}

/* Index of the method of group j, or of its option; GW_PLAN_NO_INDEX: the case has none such. */
static uint32_t find_choice(const plan_opened *o, uint32_t j, const char *name)
{
    if (name == NULL) {
        return GW_PLAN_NO_INDEX;
    }
    if (o->c.kind == PLAN_TREE) {
        return plan_tree_find(&o->tree, j, name);
    }
    const int index = plan_method_index(&o->setup, name);
    return index >= 0 ? (uint32_t)index : GW_PLAN_NO_INDEX;
}

/* Reads the tensors of all groups. */
static int read_ranges(const plan_file *file, const plan_model *model, gw_plan *plan)
{
    uint32_t next = 0;
    for (; plan->group_count < plan->capacity; plan->group_count++) {
        const size_t j = plan->group_count;
        uint32_t end = next;
        const int code = check_range(file->path, json_array_get(file->groups, j), j, model, next, &end);
        if (code != GW_CLI_OK) {
            return code;
        }
        plan->groups[j] = (gw_plan_group){next, end - next, 0};
        next = end;
    }
    return next == model->count ? GW_CLI_OK
                                : gw_cli_error(GW_CLI_BAD_DATA, file->path,
                                               "covers %u tensors but the model has %u", next, model->count);
}

/* Reads the methods, or the options, of all groups. */
static int read_choices(const plan_file *file, const plan_opened *o, gw_plan *plan)
{
    const char *key = o->c.kind == PLAN_TREE ? "option" : "method";
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const char *name = json_string_value(json_object_get(json_array_get(file->groups, j), key));
        plan->groups[j].method = find_choice(o, j, name);
        if (plan->groups[j].method == GW_PLAN_NO_INDEX) {
            return gw_cli_error(GW_CLI_BAD_DATA, file->path, "group %u: this case has no %s \"%.200s\"", j,
                                key, name != NULL ? name : "(none)");
        }
    }
    return GW_CLI_OK;
}

/* Checks that the groups of a tree are of one tensor each or, where the case fuses, not larger than it lets
 * them be. Without fusing that bound has no effect. */
static int check_tree_groups(const plan_file *file, const plan_opened *o, const gw_plan *plan)
{
    for (uint32_t j = 0; j < plan->group_count; j++) {
        const gw_plan_group *group = &plan->groups[j];
        const int64_t len = plan_model_len(&o->model, group->first, group->tensor_count);
        if (!o->c.fuse && group->tensor_count > 1) {
            return gw_cli_error(GW_CLI_BAD_DATA, file->path,
                                "group %u: option trees send tensors one by one, or fused with --fuse", j);
        }
        if (o->c.fuse && o->c.group_len_max > 0 && len > o->c.group_len_max) {
            return gw_cli_error(GW_CLI_BAD_DATA, file->path,
                                "group %u has %lld elements; the case allows %lld (--group-mib-max)", j,
                                (long long)len, (long long)o->c.group_len_max);
        }
    }
    return GW_CLI_OK;
}

int plan_file_groups(const plan_file *file, plan_opened *o, gw_plan *plan)
{
    const int is_tree = o->c.kind == PLAN_TREE;
    const size_t count = json_array_size(file->groups);
    *plan = (gw_plan){NULL, 0, 0};
    if ((strcmp(file->kind, "tree") == 0) != is_tree) {
        return gw_cli_error(GW_CLI_BAD_DATA, file->path,
                            is_tree ? "is a fused plan, but the case is an option tree"
                                    : "is an option-tree plan, but the case is not a tree");
    }
    gw_plan found = {plan_alloc(count, sizeof *found.groups), (uint32_t)count, 0};
    int code = read_ranges(file, &o->model, &found);
    if (code == GW_CLI_OK && is_tree) {
        code = check_tree_groups(file, o, &found);
    }
    if (code == GW_CLI_OK && is_tree) {
        code = plan_tree_cut(&o->library, &o->c, &o->model, &found, &o->tree);
    }
    code = code == GW_CLI_OK ? read_choices(file, o, &found) : code;
    for (uint32_t j = 0; is_tree && j < found.group_count && code == GW_CLI_OK; j++) {
        o->tree.choice[j] = found.groups[j].method;
    }
    if (code != GW_CLI_OK || is_tree) {
        free(found.groups);
    } else {
        *plan = found;
    }
    return code;
}

void plan_file_load(const char *path, plan_opened *o, gw_plan *plan, plan_claims *claims)
{
    plan_file file;
    gw_cli_must(plan_file_read(path, &file));
    if (file.hash != 0 && file.hash != problem_hash(&o->model)) {
        gw_cli_note("%s was made for a model with other names or sizes than %s", path, o->path);
    }
    if (claims != NULL) {
        *claims = file.claims;
    }
    gw_cli_must(plan_file_groups(&file, o, plan));
    plan_file_close(&file);
}
