/*
 * Cases, codecs and clusters from JSON.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"

static int bad(const char *path, const char *where, const char *why)
{
    return gw_cli_error(GW_CLI_BAD_DATA, path, "%s: %s", where, why);
}

/* A number member as ticks; missing gives fallback, negative or NaN an error. */
static int member_ticks(const char *path, const char *where, json_t *object, const char *key, double fallback,
                        gw_plan_tick *ticks)
{
    json_t *member = json_object_get(object, key);
    double us = member == NULL ? fallback : json_is_number(member) ? json_number_value(member) : NAN;
    if (!plan_ticks_from_us(us, ticks)) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "%s: \"%s\" is missing, negative, too long or no number",
                            where, key);
    }
    return GW_CLI_OK;
}

static int member_int(const char *path, const char *where, json_t *object, const char *key, int64_t fallback,
                      int64_t min, int64_t max, int64_t *value)
{
    json_t *member = json_object_get(object, key);
    int64_t parsed = member == NULL            ? fallback
                     : json_is_integer(member) ? (int64_t)json_integer_value(member)
                                               : min - 1;
    if (parsed < min || parsed > max) {
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "%s: \"%s\" is missing or not a whole number in %lld..%lld", where, key,
                            (long long)min, (long long)max);
    }
    *value = parsed;
    return GW_CLI_OK;
}

int plan_curve_parse(const char *path, const char *where, json_t *object, gw_plan_cost *cost,
                     int64_t **table_x, gw_plan_tick **table_y)
{
    static const char *const kinds[4] = {"affine", "maxlin", "hinge", "table"};
    const char *kind = json_string_value(json_object_get(object, "kind"));
    int found = -1;
    memset(cost, 0, sizeof *cost);
    for (int i = 0; i < 4 && kind != NULL; i++) {
        found = strcmp(kind, kinds[i]) == 0 ? i : found;
    }
    if (found < 0) {
        return bad(path, where, "a curve needs \"kind\": affine, maxlin, hinge or table");
    }
    cost->kind = (gw_plan_cost_kind)found;
    if (cost->kind == GW_PLAN_COST_TABLE) {
        json_t *points = json_object_get(object, "points");
        size_t count = json_array_size(points);
        if (count == 0 || count > 1000000) {
            return bad(path, where, "a table curve needs \"points\": [[elems, us], ...]");
        }
        *table_x = calloc(count, sizeof **table_x);
        *table_y = calloc(count, sizeof **table_y);
        if (*table_x == NULL || *table_y == NULL) {
            return gw_cli_error(GW_CLI_IO, path, "memory is short");
        }
        for (size_t i = 0; i < count; i++) {
            json_t *point = json_array_get(points, i);
            json_t *x = json_array_get(point, 0);
            if (!json_is_integer(x) || !plan_ticks_from_us(json_is_number(json_array_get(point, 1))
                                                               ? json_number_value(json_array_get(point, 1))
                                                               : NAN,
                                                           &(*table_y)[i])) {
                return gw_cli_error(GW_CLI_BAD_DATA, path, "%s: point %zu is not [elems, us] with us >= 0",
                                    where, i);
            }
            (*table_x)[i] = (int64_t)json_integer_value(x);
        }
        cost->table_len = (uint32_t)count;
        cost->table_x = *table_x;
        cost->table_y = *table_y;
    } else {
        int64_t knee = 0;
        int result = member_ticks(path, where, object, "a_us", 0, &cost->a);
        if (result == GW_CLI_OK && json_object_get(object, "knee") != NULL) {
            result = member_int(path, where, object, "knee", 0, 1, INT64_C(1) << 50, &knee);
            cost->b = knee > 0 ? (cost->a + knee / 2) / knee : 0;
        } else if (result == GW_CLI_OK) {
            result = member_ticks(path, where, object, "b_us", 0, &cost->b);
        }
        if (result == GW_CLI_OK && cost->kind == GW_PLAN_COST_HINGE) {
            result = member_int(path, where, object, "t", -1, 0, INT64_C(1) << 50, &cost->t);
        }
        if (result != GW_CLI_OK) {
            return result;
        }
    }
    gw_plan_fault fault = {"", 0};
    if (gw_plan_cost_check(cost, &fault) != GW_PLAN_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, path, "%s: %s (row %u)", where, fault.what, fault.index);
    }
    return GW_CLI_OK;
}

json_t *plan_curve_json(const gw_plan_cost *cost)
{
    static const char *const kinds[4] = {"affine", "maxlin", "hinge", "table"};
    json_t *object = json_pack("{s:s}", "kind", kinds[cost->kind]);
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

static int parse_codec(const char *path, size_t index, json_t *object, plan_codec *out)
{
    char where[160];
    memset(out, 0, sizeof *out);
    const char *name = json_string_value(json_object_get(object, "name"));
    (void)snprintf(where, sizeof where, "codec %zu%s%.60s", index, name != NULL ? " " : "",
                   name != NULL ? name : "");
    if (name == NULL || name[0] == '\0' || strlen(name) >= PLAN_LABEL_SIZE || strcmp(name, "fp32") == 0) {
        return bad(path, where, "needs a \"name\" (not fp32) of less than 64 bytes");
    }
    memcpy(out->name, name, strlen(name) + 1);
    gw_plan_codec *codec = &out->codec;
    json_t *payload = json_object_get(object, "payload");
    int result = member_int(path, where, payload, "header", 0, 0, INT64_C(1) << 40, &codec->payload_header);
    if (result == GW_CLI_OK) {
        result = member_int(path, where, payload, "num", -1, 0, INT64_C(1) << 30, &codec->payload_num);
    }
    if (result == GW_CLI_OK) {
        result = member_int(path, where, payload, "den", 1, 1, INT64_C(1) << 30, &codec->payload_den);
    }
    if (result == GW_CLI_OK) {
        result = member_ticks(path, where, object, "decode_peer_us_per_kib", 0, &codec->dec_peer_kib);
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    static const char *const names[4] = {"allreduce", "allgather", "alltoall", "gather"};
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(object, "collectives"), i, entry)
    {
        int known = 0;
        for (int bit = 0; bit < 4; bit++) {
            if (json_is_string(entry) && strcmp(json_string_value(entry), names[bit]) == 0) {
                codec->collectives |= 1u << bit;
                known = 1;
            }
        }
        if (!known) {
            return bad(path, where, "\"collectives\" knows allreduce, allgather, alltoall and gather");
        }
    }
    if (codec->collectives == 0) {
        return bad(path, where, "\"collectives\" is missing or empty");
    }
    static const char *const devices[2] = {"gpu", "cpu"};
    for (int device = 0; device < 2; device++) {
        json_t *costs = json_object_get(object, devices[device]);
        if (costs == NULL) {
            continue;
        }
        char part[200];
        (void)snprintf(part, sizeof part, "%s, %s enc", where, devices[device]);
        result = plan_curve_parse(path, part, json_object_get(costs, "enc"), &codec->enc[device],
                                  &out->table_x[device], &out->table_y[device]);
        if (result == GW_CLI_OK) {
            (void)snprintf(part, sizeof part, "%s, %s dec", where, devices[device]);
            result = plan_curve_parse(path, part, json_object_get(costs, "dec"), &codec->dec[device],
                                      &out->table_x[2 + device], &out->table_y[2 + device]);
        }
        if (result != GW_CLI_OK) {
            return result;
        }
        codec->devices |= 1u << device;
    }
    return codec->devices != 0 ? GW_CLI_OK : bad(path, where, "needs costs under \"gpu\" or \"cpu\"");
}

static void free_codec(plan_codec *codec)
{
    for (int i = 0; i < 4; i++) {
        free(codec->table_x[i]);
        free(codec->table_y[i]);
    }
}

static int add_codecs(plan_library *library, const char *path, json_t *array)
{
    size_t index;
    json_t *object;
    json_array_foreach(array, index, object)
    {
        plan_codec parsed;
        int result = parse_codec(path, index, object, &parsed);
        if (result != GW_CLI_OK) {
            free_codec(&parsed);
            return result;
        }
        uint32_t at = 0;
        while (at < library->codec_count && strcmp(library->codecs[at].name, parsed.name) != 0) {
            at++;
        }
        if (at == PLAN_CODECS_MAX) {
            free_codec(&parsed);
            return gw_cli_error(GW_CLI_BAD_DATA, path, "more than %d codecs", PLAN_CODECS_MAX);
        }
        if (at < library->codec_count) {
            free_codec(&library->codecs[at]);
        } else {
            library->codec_count++;
        }
        library->codecs[at] = parsed;
    }
    for (uint32_t i = 0; i < library->codec_count; i++) {
        library->codecs[i].codec.name = library->codecs[i].name;
    }
    return GW_CLI_OK;
}

static json_t *load(const char *path, const char *text)
{
    json_error_t error;
    json_t *root = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, &error)
                                : json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && error.line < 0) { /* not read at all */
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "%s", error.text);
    } else if (root == NULL) {
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "line %d, column %d: %s", error.line, error.column,
                           error.text);
    } else if (!json_is_object(root)) {
        (void)gw_cli_error(GW_CLI_BAD_DATA, path, "is not a JSON object");
        json_decref(root);
        root = NULL;
    }
    return root;
}

int plan_library_open(plan_library *library, const char *path)
{
    memset(library, 0, sizeof *library);
    const char *name = path != NULL ? path : "built-in cases";
    library->root = load(name, path == NULL ? plan_cases_text : NULL);
    if (library->root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    const char *schema = json_string_value(json_object_get(library->root, "schema"));
    int result = schema == NULL || strcmp(schema, "gradwire-plan-cases/1") != 0
                     ? gw_cli_error(GW_CLI_BAD_DATA, name, "\"schema\" is not gradwire-plan-cases/1")
                     : add_codecs(library, name, json_object_get(library->root, "codecs"));
    if (result != GW_CLI_OK) {
        plan_library_close(library);
    }
    return result;
}

int plan_library_add_codecs(plan_library *library, const char *path)
{
    json_t *root = load(path, NULL);
    if (root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    json_t *array = json_object_get(root, "codecs");
    int result = json_is_array(array) ? add_codecs(library, path, array)
                                      : gw_cli_error(GW_CLI_BAD_DATA, path, "has no array \"codecs\"");
    json_decref(root);
    return result;
}

void plan_library_close(plan_library *library)
{
    for (uint32_t i = 0; i < library->codec_count; i++) {
        free_codec(&library->codecs[i]);
    }
    json_decref(library->root);
    memset(library, 0, sizeof *library);
}

const gw_plan_codec *plan_library_find(const plan_library *library, const char *name)
{
    for (uint32_t i = 0; i < library->codec_count; i++) {
        if (strcmp(library->codecs[i].name, name) == 0) {
            return &library->codecs[i].codec;
        }
    }
    return NULL;
}

static int parse_link(const char *path, const char *where, json_t *object, gw_plan_link *link)
{
    int result = member_ticks(path, where, object, "latency_us", NAN, &link->alpha);
    return result != GW_CLI_OK ? result
                               : member_ticks(path, where, object, "us_per_kib", NAN, &link->beta_kib);
}

int plan_cluster_parse(const char *path, json_t *object, gw_plan_cluster *cluster)
{
    memset(cluster, 0, sizeof *cluster);
    int64_t nodes = 1;
    int64_t gpus = 1;
    int result;
    if (json_object_get(object, "ranks") != NULL) { /* flat: one link for all */
        result = member_int(path, "cluster", object, "ranks", 0, 1, 65536, &gpus);
        if (result == GW_CLI_OK) {
            result = parse_link(path, "cluster", object, &cluster->intra);
        }
        cluster->inter = cluster->intra;
    } else {
        result = member_int(path, "cluster", object, "nodes", 0, 1, 65536, &nodes);
        if (result == GW_CLI_OK) {
            result = member_int(path, "cluster", object, "gpus", 0, 1, 65536, &gpus);
        }
        if (result == GW_CLI_OK) {
            result = parse_link(path, "cluster intra", json_object_get(object, "intra"), &cluster->intra);
        }
        if (result == GW_CLI_OK) {
            result = parse_link(path, "cluster inter", json_object_get(object, "inter"), &cluster->inter);
        }
    }
    cluster->nodes = (uint32_t)nodes;
    cluster->gpus = (uint32_t)gpus;
    cluster->flags = json_is_true(json_object_get(object, "latency_per_step")) ? GW_PLAN_ALPHA_PER_STEP : 0;
    cluster->flags |= json_is_true(json_object_get(object, "flat_uses_both")) ? GW_PLAN_FLAT_USES_BOTH : 0;
    return result;
}

int plan_cluster_read(const char *path, gw_plan_cluster *cluster)
{
    json_t *root = load(path, NULL);
    if (root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    int result = plan_cluster_parse(path, root, cluster);
    json_decref(root);
    return result;
}

static int parse_case(const char *path, json_t *object, plan_case *out)
{
    memset(out, 0, sizeof *out);
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *kind = json_string_value(json_object_get(object, "kind"));
    const char *decode = json_string_value(json_object_get(object, "decode"));
    const char *level = json_string_value(json_object_get(object, "level"));
    if (name == NULL || strlen(name) >= PLAN_LABEL_SIZE) {
        return bad(path, "case", "needs a \"name\" of less than 64 bytes");
    }
    memcpy(out->name, name, strlen(name) + 1);
    if (kind == NULL ||
        (strcmp(kind, "joint") != 0 && strcmp(kind, "fusion") != 0 && strcmp(kind, "tree") != 0)) {
        return bad(path, name, "\"kind\" must be joint, fusion or tree");
    }
    out->kind = kind[0] == 'j' ? PLAN_JOINT : kind[0] == 'f' ? PLAN_FUSION : PLAN_TREE;
    if (decode == NULL ||
        (strcmp(decode, "none") != 0 && strcmp(decode, "serial") != 0 && strcmp(decode, "parallel") != 0)) {
        return bad(path, name, "\"decode\" must be none, serial or parallel");
    }
    out->decode_none = decode[0] == 'n';
    out->decode = decode[0] == 'p' ? GW_PLAN_DECODE_PARALLEL : GW_PLAN_DECODE_SERIAL;
    if (level == NULL ||
        (strcmp(level, "serial") != 0 && strcmp(level, "pipelined") != 0 && strcmp(level, "event") != 0)) {
        return bad(path, name, "\"level\" must be serial, pipelined or event");
    }
    out->level = level[0] == 's'   ? GW_PLAN_LEVEL_SERIAL
                 : level[0] == 'p' ? GW_PLAN_LEVEL_PIPELINED
                                   : GW_PLAN_LEVEL_EVENT;
    out->comp_max = UINT32_MAX;
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(object, "methods"), index, entry)
    {
        const char *method = json_string_value(entry);
        if (method == NULL || strlen(method) >= PLAN_LABEL_SIZE || out->method_count == GW_PLAN_METHODS_MAX) {
            return bad(path, name, "\"methods\" must be at most 32 short names");
        }
        for (uint32_t m = 0; m < out->method_count; m++) {
            if (strcmp(out->method_names[m], method) == 0) {
                return bad(path, name, "\"methods\" names one twice");
            }
        }
        memcpy(out->method_names[out->method_count++], method, strlen(method) + 1);
    }
    if (out->method_count == 0) {
        return bad(path, name, "\"methods\" is missing or empty");
    }
    json_array_foreach(json_object_get(object, "devices"), index, entry)
    {
        out->cpu |= json_is_string(entry) && strcmp(json_string_value(entry), "cpu") == 0;
    }
    return plan_cluster_parse(path, object, &out->cluster);
}

int plan_case_at(const plan_library *library, size_t index, plan_case *out, json_t **models)
{
    json_t *object = json_array_get(json_object_get(library->root, "cases"), index);
    if (object == NULL || parse_case("cases", object, out) != GW_CLI_OK) {
        return 0;
    }
    if (models != NULL) {
        *models = json_object_get(object, "models");
    }
    return 1;
}

int plan_case_find(const plan_library *library, const char *name, plan_case *out)
{
    size_t index;
    json_t *object;
    json_array_foreach(json_object_get(library->root, "cases"), index, object)
    {
        const char *here = json_string_value(json_object_get(object, "name"));
        if (name == NULL || (here != NULL && strcmp(here, name) == 0)) {
            return parse_case("cases", object, out);
        }
    }
    return name == NULL ? gw_cli_error(GW_CLI_BAD_DATA, NULL, "the cases file has no case")
                        : gw_cli_error(GW_CLI_USAGE, NULL, "no case \"%.60s\"; plan cases lists them", name);
}

static int add_method(const plan_library *library, const plan_case *c, const char *name,
                      gw_plan_device device, plan_setup *setup)
{
    const gw_plan_codec *codec = strcmp(name, "fp32") == 0 ? NULL : plan_library_find(library, name);
    if (codec == NULL && strcmp(name, "fp32") != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no codec \"%.60s\"", name);
    }
    uint32_t collective = codec == NULL || (codec->collectives & GW_PLAN_ALLREDUCE) ? GW_PLAN_ALLREDUCE
                          : (codec->collectives & GW_PLAN_ALLGATHER)                ? GW_PLAN_ALLGATHER
                          : (codec->collectives & GW_PLAN_ALLTOALL)                 ? GW_PLAN_ALLTOALL
                                                                                    : GW_PLAN_GATHER;
    if (device == GW_PLAN_CPU && (codec == NULL || (codec->devices & 2u) == 0)) {
        return GW_CLI_OK;
    }
    if (device == GW_PLAN_GPU && codec != NULL && (codec->devices & 1u) == 0) {
        /* Costs for the CPU only: allowing the codec means allowing it there; --cpu would add it again. */
        return c->cpu ? GW_CLI_OK : add_method(library, c, name, GW_PLAN_CPU, setup);
    }
    if (setup->problem.method_count == GW_PLAN_METHODS_MAX) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "more than %u methods", GW_PLAN_METHODS_MAX);
    }
    gw_plan_method *method = &setup->methods[setup->problem.method_count];
    gw_plan_status status = gw_plan_method_make(codec, &c->cluster, collective, device, method);
    if (status != GW_PLAN_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "method %s: %s", name, gw_plan_status_string(status));
    }
    if (c->decode_none) {
        memset(&method->dec, 0, sizeof method->dec);
    }
    setup->problem.method_count++;
    return GW_CLI_OK;
}

int plan_setup_make(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *model_path, plan_setup *setup)
{
    memset(setup, 0, sizeof *setup);
    int result = GW_CLI_OK;
    for (uint32_t m = 0; m < c->method_count && result == GW_CLI_OK; m++) {
        result = add_method(library, c, c->method_names[m], GW_PLAN_GPU, setup);
        if (result == GW_CLI_OK && c->cpu) {
            result = add_method(library, c, c->method_names[m], GW_PLAN_CPU, setup);
        }
    }
    if (result != GW_CLI_OK) {
        return result;
    }
    setup->tensors = malloc(((size_t)model->count + 1) * sizeof *setup->tensors);
    if (setup->tensors == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "memory is short");
    }
    uint32_t compressing = 0;
    for (uint32_t m = 0; m < setup->problem.method_count; m++) {
        compressing |= strcmp(setup->methods[m].name, "fp32") == 0 ? 0 : 1u << m;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        setup->tensors[i] = model->tensors[i];
        setup->tensors[i].name = NULL; /* the reader has compared the names already */
        setup->tensors[i].forbidden = model->tensors[i].forbidden ? compressing : 0;
    }
    setup->problem.tensors = setup->tensors;
    setup->problem.tensor_count = model->count;
    setup->problem.methods = setup->methods;
    setup->problem.decode = c->decode;
    setup->problem.group_elems_max = c->group_elems_max;
    gw_plan_fault fault = {"", 0};
    gw_plan_status status = gw_plan_problem_check(&setup->problem, &fault);
    if (status != GW_PLAN_OK) {
        const char *at = fault.index < model->count ? model->tensors[fault.index].name : "-";
        result =
            gw_cli_error(GW_CLI_BAD_DATA, model_path, "%s (index %u, %.100s)", fault.what, fault.index, at);
        plan_setup_free(setup);
    }
    return result;
}

void plan_setup_free(plan_setup *setup)
{
    free(setup->tensors);
    memset(setup, 0, sizeof *setup);
}
