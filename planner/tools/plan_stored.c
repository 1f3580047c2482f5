/*
 * Writing and reading the problem of a plan file.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_stored.h"

#include <math.h>
#include <string.h>

#include "cli_common.h"
#include "plan_input.h"
#include "plan_json.h"

static json_t *link_json(const gw_plan_link *link)
{
    return json_pack("{s:f,s:f}", "latency_us", plan_us(link->alpha), "us_per_kib", plan_us(link->beta_kib));
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
    return json_pack(
        "{s:s,s:s,s:o,s:o,s:s,s:s,s:I,s:I,s:o,s:o,s:o,s:b,s:b}", "name", c->name, "kind",
        plan_kind_names[c->kind], "methods", methods, "devices", devices, "level", plan_level_names[c->level],
        "decode", plan_case_decode_name(c), "nodes", (json_int_t)cluster->nodes, "gpus",
        (json_int_t)cluster->gpus, "intra", link_json(&cluster->intra), "inter", link_json(&cluster->inter),
        "host", link_json(&cluster->host), "latency_per_step", (int)(cluster->flags & GW_PLAN_ALPHA_PER_STEP),
        "flat_uses_both", (int)(cluster->flags & GW_PLAN_FLAT_USES_BOTH));
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

json_t *plan_stored_json(const plan_opened *o)
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
    return problem;
}

static int read_gradients(const plan_place *place, json_t *array, plan_model *model)
{
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        int64_t len = -1; /* required */
        gw_plan_tick bwd = 0;
        int code = plan_json_whole(place, entry, "elems", 0, INT64_C(1) << 50, &len);
        code = code == GW_CLI_OK ? plan_json_ticks(place, entry, "bwd_us", NAN, &bwd) : code;
        if (code != GW_CLI_OK) {
            return code;
        }
        if (name == NULL || name[0] == '\0' || strlen(name) > PLAN_NAME_MAX || i >= GW_PLAN_TENSORS_MAX) {
            return plan_json_bad(place,
                                 "a gradient has no name or one that is too long, or there are too many");
        }
        const uint32_t dense = json_is_true(json_object_get(entry, "dense"));
        plan_model_add(model, name, len, bwd, dense);
    }
    model->timed = 1;
    return GW_CLI_OK;
}

/* What a case of a cases file does not have. */
static int read_limits(const plan_place *place, json_t *problem, plan_case *c)
{
    int64_t comp_max = -1;
    json_t *error_max = json_object_get(problem, "error_max");
    c->error_max = json_number_value(error_max);
    if (error_max != NULL && (!json_is_number(error_max) || !(c->error_max >= 0) || c->error_max > 0x1p20)) {
        return plan_json_bad(place, "\"error_max\" is not a number from 0 to 2^20");
    }
    int code = plan_json_whole(place, problem, "group_elems_max", 0, GW_PLAN_TICK_MAX, &c->group_len_max);
    code = code == GW_CLI_OK ? plan_json_whole(place, problem, "compressions_max", -1, 12, &comp_max) : code;
    c->comp_max = comp_max >= 0 ? (uint32_t)comp_max : UINT32_MAX;
    return code;
}

int plan_stored_read(const char *path, json_t *problem, plan_opened *o)
{
    const plan_place place = {path, "problem"};
    int code = json_is_object(problem) && json_is_array(json_object_get(problem, "codecs"))
                   ? plan_library_read(&o->library, path, json_object_get(problem, "codecs"))
                   : plan_json_bad(&place, "is missing or has no codecs");
    if (code != GW_CLI_OK) {
        return code;
    }
    code = plan_case_read(path, problem, &o->c);
    code = code == GW_CLI_OK ? read_limits(&place, problem, &o->c) : code;
    if (code == GW_CLI_OK) {
        code = read_gradients(&place, json_object_get(problem, "gradients"), &o->model);
        code = plan_model_finish(path, &o->model, code);
        code = code == GW_CLI_OK ? plan_input_check_sizes(path, &o->model) : code;
    }
    if (code != GW_CLI_OK) {
        plan_library_close(&o->library);
    }
    return code;
}
