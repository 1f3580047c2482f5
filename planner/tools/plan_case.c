/*
 * Cases, codecs and clusters from JSON.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli_common.h"
#include "plan_json.h"

const char *const plan_kind_names[4] = {"joint", "fusion", "tree", NULL};
const char *const plan_level_names[4] = {"serial", "pipelined", "event", NULL};
const char *const plan_decode_names[4] = {"serial", "parallel", "none", NULL};

static void parse_payload(plan_place *place, json_t *payload, plan_codec *out)
{
    static const char *const keys[] = {"header", "num", "den", NULL};
    static const char *const keys_thc[] = {"kind", "bits", "lane_bits", NULL};
    gw_plan_codec *codec = &out->codec;
    json_t *kind = json_object_get(payload, "kind");
    codec->payload_den = 1;
    if (kind != NULL) {
        int64_t bits = 0; /* required */
        int64_t lane_bits = 0;
        if (!json_is_string(kind) || strcmp(json_string_value(kind), "thc") != 0) {
            plan_json_bad(place, "the \"kind\" of a payload can only be thc");
        }
        plan_json_known(place, payload, keys_thc);
        plan_json_whole(place, payload, "bits", 1, 4, &bits);
        plan_json_whole(place, payload, "lane_bits", 0, 32, &lane_bits);
        out->thc_bits = (unsigned)bits;
        out->thc_lane_bits = (unsigned)lane_bits;
        return;
    }
    codec->payload_num = -1; /* required */
    plan_json_known(place, payload, keys);
    plan_json_whole(place, payload, "header", 0, INT64_C(1) << 40, &codec->payload_header);
    plan_json_whole(place, payload, "num", 0, INT64_C(1) << 30, &codec->payload_num);
    plan_json_whole(place, payload, "den", 1, INT64_C(1) << 30, &codec->payload_den);
}

static void parse_collectives(plan_place *place, json_t *array, uint32_t *collectives)
{
    static const char *const names[] = {"allreduce", "allgather", "alltoall", "gather", "a2a-ag", NULL};
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
    {
        const int bit = plan_name_index(names, json_string_value(entry));
        if (bit < 0) {
            plan_json_bad(place, "\"collectives\" takes allreduce, allgather, a2a-ag, alltoall and gather");
        } else {
            *collectives |= 1u << bit;
        }
    }
    if (*collectives == 0) {
        plan_json_bad(place, "\"collectives\" is missing or empty");
    }
}

/* The curves of each device that the codec has costs for. */
static void parse_devices(plan_place *place, json_t *object, gw_plan_codec *codec)
{
    static const char *const devices[2] = {"gpu", "cpu"};
    for (int device = 0; device < 2 && place->code == GW_CLI_OK; device++) {
        json_t *costs = json_object_get(object, devices[device]);
        if (costs == NULL) {
            continue;
        }
        static const char *const keys[] = {"enc", "dec", "sum", NULL};
        char part[200];
        plan_place inner = {place->path, part, GW_CLI_OK};
        gw_plan_cost *const curves[3] = {&codec->enc[device], &codec->dec[device], &codec->sum[device]};
        const int has_sum = (codec->collectives & GW_PLAN_A2A_AG) != 0;
        plan_json_known(place, costs, keys);
        for (int i = 0; i < 2 + has_sum && place->code == GW_CLI_OK; i++) {
            (void)snprintf(part, sizeof part, "%s, %s %s", place->where, devices[device], keys[i]);
            plan_curve_parse(&inner, json_object_get(costs, keys[i]), curves[i]);
            place->code = inner.code;
        }
        codec->devices |= 1u << device;
    }
    if (codec->devices == 0) {
        plan_json_bad(place, "needs costs under \"gpu\" or \"cpu\"");
    }
}

static int parse_codec(const char *path, size_t index, json_t *object, plan_codec *out)
{
    char where[160];
    plan_place place = {path, where, GW_CLI_OK};
    double error;
    memset(out, 0, sizeof *out);
    const char *name = json_string_value(json_object_get(object, "name"));
    (void)snprintf(where, sizeof where, "codec %zu%s%.60s", index, name != NULL ? " " : "",
                   name != NULL ? name : "");
    if (name == NULL || name[0] == '\0' || strlen(name) >= PLAN_LABEL_SIZE || strcmp(name, "fp32") == 0 ||
        strpbrk(name, ",:@") != NULL) { /* they divide lists and labels of methods */
        return plan_json_bad(&place, "needs a \"name\" (not fp32) of less than 64 bytes without , : @");
    }
    memcpy(out->name, name, strlen(name) + 1);
    out->source = json_incref(object);
    gw_plan_codec *codec = &out->codec;
    static const char *const keys[] = {"name",        "payload", "decode_peer_us_per_kib",
                                       "collectives", "error",   "gpu",
                                       "cpu",         "options", "about",
                                       "overlap",     NULL};
    plan_json_known(&place, object, keys);
    parse_payload(&place, json_object_get(object, "payload"), out);
    plan_json_error(&place, object, "error", &error);
    codec->error = (int64_t)ceil(error / PLAN_ERROR_UNIT); /* rounded up, so that a bound stays a bound */
    plan_json_ticks(&place, object, "decode_peer_us_per_kib", 0, &codec->dec_peer_kib);
    parse_collectives(&place, json_object_get(object, "collectives"), &codec->collectives);
    plan_json_flag(&place, object, "overlap", &out->overlap);
    parse_devices(&place, object, codec);
    return place.code;
}

static void free_codec(plan_codec *codec)
{
    for (int device = 0; device < 2; device++) {
        plan_curve_free(&codec->codec.enc[device]);
        plan_curve_free(&codec->codec.dec[device]);
        plan_curve_free(&codec->codec.sum[device]);
    }
    json_decref(codec->source);
}

/* Whether one of the first `count` codecs has that name. */
static int named_before(json_t *array, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const char *other = json_string_value(json_object_get(json_array_get(array, i), "name"));
        if (other != NULL && strcmp(other, name) == 0) {
            return 1;
        }
    }
    return 0;
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
        if (named_before(array, index, parsed.name)) {
            result = gw_cli_error(GW_CLI_BAD_DATA, path, "codec %zu %s: an earlier one has that name", index,
                                  parsed.name);
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

int plan_library_read(plan_library *library, const char *path, json_t *codecs)
{
    memset(library, 0, sizeof *library);
    library->payload_scale = 1;
    const int code = add_codecs(library, path, codecs);
    if (code != GW_CLI_OK) {
        plan_library_close(library);
    }
    return code;
}

int plan_library_open(plan_library *library, const char *path)
{
    const char *name = path != NULL ? path : "built-in cases";
    json_t *root = plan_json_load(name, path == NULL ? plan_cases_text : NULL);
    if (root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const int code = schema == NULL || strcmp(schema, "gradwire-plan-cases/1") != 0
                         ? gw_cli_error(GW_CLI_BAD_DATA, name, "\"schema\" is not gradwire-plan-cases/1")
                         : plan_library_read(library, name, json_object_get(root, "codecs"));
    if (code == GW_CLI_OK) {
        library->root = root;
    } else {
        json_decref(root);
    }
    return code;
}

int plan_library_add_codecs(plan_library *library, const char *path)
{
    json_t *root = plan_json_load(path, NULL);
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

const plan_codec *plan_library_codec(const plan_library *library, const char *name)
{
    for (uint32_t i = 0; i < library->codec_count; i++) {
        if (strcmp(library->codecs[i].name, name) == 0) {
            return &library->codecs[i];
        }
    }
    return NULL;
}

json_t *plan_library_options(const plan_library *library, const char *name)
{
    const plan_codec *codec = plan_library_codec(library, name);
    return codec != NULL ? json_object_get(codec->source, "options") : NULL;
}

int plan_library_find(const plan_library *library, const char *name, uint64_t ranks, gw_plan_codec *codec)
{
    const plan_codec *found = plan_library_codec(library, name);
    if (found == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no codec \"%.60s\"", name);
    }
    *codec = found->codec;
    int code = GW_CLI_OK;
    if (found->thc_bits > 0) {
        code = plan_thc_payload(name, found->thc_bits, found->thc_lane_bits, ranks, codec);
    }
    if (code == GW_CLI_OK && library->payload_scale != 1) {
        const double num = (double)codec->payload_num * 65536 * library->payload_scale;
        codec->payload_den *= 65536;
        if (!(num < (double)GW_PLAN_PAYLOAD_MAX) || codec->payload_den > GW_PLAN_PAYLOAD_MAX) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "%s: a payload %g times as large is too large", name,
                                library->payload_scale);
        }
        codec->payload_num = (int64_t)llround(num);
    }
    return code;
}

double plan_us_per_kib(double gbit_per_s)
{
    return 1024 * 8 / (gbit_per_s * 1e3);
}

/* Startup, and time of 1024 bytes or the rate. */
static void parse_link(plan_place *place, json_t *object, gw_plan_link *link)
{
    json_t *rate = json_object_get(object, "gbit_per_s");
    plan_json_ticks(place, object, "latency_us", NAN, &link->alpha);
    if (rate == NULL) {
        plan_json_ticks(place, object, "us_per_kib", NAN, &link->beta_kib);
    } else if (json_object_get(object, "us_per_kib") != NULL) {
        plan_json_bad(place, "both us_per_kib and gbit_per_s are given; keep one");
    } else if (!json_is_number(rate) || !(json_number_value(rate) > 0) ||
               !plan_ticks_from_us(plan_us_per_kib(json_number_value(rate)), &link->beta_kib)) {
        plan_json_bad(place, "\"gbit_per_s\" is not positive, too small or no number");
    }
}

/* A link of its own in a cluster; missing: `fallback`, if there is one. */
static void parse_member(plan_place *cluster, json_t *object, const char *key, const gw_plan_link *fallback,
                         gw_plan_link *link)
{
    static const char *const keys[] = {"latency_us", "us_per_kib", "gbit_per_s", NULL};
    char where[32];
    plan_place place = {cluster->path, where, cluster->code};
    json_t *member = json_object_get(object, key);
    (void)snprintf(where, sizeof where, "cluster %s", key);
    if (member == NULL && fallback != NULL) {
        *link = *fallback;
        return;
    }
    plan_json_known(&place, member, keys);
    parse_link(&place, member, link);
    cluster->code = place.code;
}

/* Costs of operations that were measured, by their names in paths. */
static void parse_operations(plan_place *cluster, json_t *object, gw_plan_cluster *out)
{
    const char *name;
    json_t *unused;
    if (object != NULL && !json_is_object(object)) {
        plan_json_bad(cluster, "\"operations\" is no object");
    }
    json_object_foreach(object, name, unused)
    {
        int op = GW_PLAN_OP_FLAT_ALLREDUCE;
        while (op < GW_PLAN_OP_COUNT && strcmp(gw_plan_op_name((gw_plan_op)op), name) != 0) {
            op++;
        }
        if (op == GW_PLAN_OP_COUNT) {
            plan_json_bad(cluster, "there is no operation \"%.40s\" with a cost of its own", name);
            return;
        }
        parse_member(cluster, object, name, NULL, &out->ops[op]);
        out->op_set |= UINT32_C(1) << op;
    }
}

/* The cluster of a file or of a case, which has more keys. */
static int parse_cluster(const char *path, json_t *object, gw_plan_cluster *cluster)
{
    plan_place place = {path, "cluster", GW_CLI_OK};
    const gw_plan_link pcie3 = {10 * GW_PLAN_TICKS_PER_US, GW_PLAN_TICKS_PER_US / 1000 * 85};
    memset(cluster, 0, sizeof *cluster);
    int64_t nodes = 0; /* both are required */
    int64_t gpus = 0;
    if (json_object_get(object, "ranks") != NULL) { /* flat: one link for all */
        nodes = 1;
        plan_json_whole(&place, object, "ranks", 1, 65536, &gpus);
        parse_link(&place, object, &cluster->intra);
        cluster->inter = cluster->intra;
    } else {
        plan_json_whole(&place, object, "nodes", 1, 65536, &nodes);
        plan_json_whole(&place, object, "gpus", 1, 65536, &gpus);
        parse_member(&place, object, "intra", NULL, &cluster->intra);
        parse_member(&place, object, "inter", NULL, &cluster->inter);
    }
    parse_member(&place, object, "host", &pcie3, &cluster->host);
    parse_operations(&place, json_object_get(object, "operations"), cluster);
    cluster->nodes = (uint32_t)nodes;
    cluster->gpus = (uint32_t)gpus;
    int per_step = 0;
    int both = 0;
    plan_json_flag(&place, object, "latency_per_step", &per_step);
    plan_json_flag(&place, object, "flat_uses_both", &both);
    cluster->flags = (per_step ? GW_PLAN_ALPHA_PER_STEP : 0) | (both ? GW_PLAN_FLAT_USES_BOTH : 0);
    return place.code;
}

int plan_cluster_read(const char *path, gw_plan_cluster *cluster)
{
    json_t *root = plan_json_load(path, NULL);
    if (root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    static const char *const keys[] = {"nodes",          "gpus", "intra", "inter",      "latency_per_step",
                                       "flat_uses_both", "host", "about", "operations", NULL};
    static const char *const keys_flat[] = {
        "ranks",          "latency_us", "us_per_kib", "gbit_per_s", "latency_per_step",
        "flat_uses_both", "host",       "about",      NULL};
    plan_place place = {path, "cluster", GW_CLI_OK};
    plan_json_known(&place, root, json_object_get(root, "ranks") != NULL ? keys_flat : keys);
    const int code = place.code == GW_CLI_OK ? parse_cluster(path, root, cluster) : place.code;
    json_decref(root);
    return code;
}

/* Index of a string member among names; `words` lists them for the message. */
static int choice(plan_place *place, json_t *object, const char *key, const char *const *names,
                  const char *words)
{
    const int index = plan_name_index(names, json_string_value(json_object_get(object, key)));
    if (index < 0) {
        plan_json_bad(place, "\"%s\" must be %s", key, words);
    }
    return index;
}

/* Adds a method to those of a case; 0 if it is among them. */
static int add_method(plan_case *c, const char *name, size_t length)
{
    char *added = c->method_names[c->method_count];
    memcpy(added, name, length);
    added[length] = '\0';
    for (uint32_t m = 0; m < c->method_count; m++) {
        if (strcmp(c->method_names[m], added) == 0) {
            return 0;
        }
    }
    c->method_count++;
    return 1;
}

int plan_case_set_methods(plan_case *c, const char *list)
{
    c->method_count = 0;
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        if (length == 0 || length >= PLAN_LABEL_SIZE || c->method_count == GW_PLAN_METHODS_MAX) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--methods needs at most 32 names, comma separated");
        }
        if (!add_method(c, list, length)) {
            return gw_cli_error(GW_CLI_USAGE, NULL, "--methods names \"%.*s\" twice", (int)length, list);
        }
        list += length + (list[length] == ',');
    }
    return c->method_count > 0 ? GW_CLI_OK : gw_cli_error(GW_CLI_USAGE, NULL, "--methods is empty");
}

static void parse_methods(plan_place *place, json_t *array, plan_case *out)
{
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        const char *method = json_string_value(entry);
        if (method == NULL || strlen(method) >= PLAN_LABEL_SIZE || out->method_count == GW_PLAN_METHODS_MAX) {
            plan_json_bad(place, "\"methods\" must be at most 32 short names");
        } else if (!add_method(out, method, strlen(method))) {
            plan_json_bad(place, "\"methods\" names one twice");
        }
    }
    if (out->method_count == 0) {
        plan_json_bad(place, "\"methods\" is missing or empty");
    }
}

static void parse_case_devices(plan_place *place, json_t *array, plan_case *out)
{
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        const char *device = json_is_string(entry) ? json_string_value(entry) : "";
        if (strcmp(device, "cpu") != 0 && strcmp(device, "gpu") != 0) {
            plan_json_bad(place, "\"devices\" takes gpu and cpu");
        }
        out->cpu |= strcmp(device, "cpu") == 0;
    }
    if (array != NULL && !json_is_array(array)) {
        plan_json_bad(place, "\"devices\" is no array");
    }
}

void plan_case_set_decode(plan_case *c, int decode)
{
    c->decode = decode == 1 ? GW_PLAN_DECODE_PARALLEL : GW_PLAN_DECODE_SERIAL;
    c->decode_none = decode == 2;
}

int plan_case_read(const char *path, json_t *object, plan_case *out)
{
    memset(out, 0, sizeof *out);
    const char *name = json_string_value(json_object_get(object, "name"));
    plan_place place = {path, name != NULL && strlen(name) < PLAN_LABEL_SIZE ? name : "case", GW_CLI_OK};
    if (place.where != name) {
        return plan_json_bad(&place, "needs a \"name\" of less than 64 bytes");
    }
    memcpy(out->name, name, strlen(name) + 1);
    out->kind = (plan_kind)choice(&place, object, "kind", plan_kind_names, "joint, fusion or tree");
    plan_case_set_decode(out,
                         choice(&place, object, "decode", plan_decode_names, "none, serial or parallel"));
    out->level =
        (gw_plan_level)choice(&place, object, "level", plan_level_names, "serial, pipelined or event");
    out->comp_max = UINT32_MAX;
    parse_methods(&place, json_object_get(object, "methods"), out);
    parse_case_devices(&place, json_object_get(object, "devices"), out);
    return place.code == GW_CLI_OK ? parse_cluster(path, object, &out->cluster) : place.code;
}

void plan_case_fp32(plan_case *c)
{
    c->kind = PLAN_FUSION;
    c->method_count = 1;
    memcpy(c->method_names[0], "fp32", 5);
    c->cpu = 0;
    c->fuse = 0;
}

void plan_case_for_algorithm(plan_case *c, const char *algorithm)
{
    if (algorithm != NULL && strcmp(algorithm, "ddp") == 0) {
        plan_case_fp32(c);
    } else if (algorithm != NULL && strcmp(algorithm, "auto") != 0) {
        c->fuse = 0;
    }
}

/* A case of a cases file; plan files, whose readers skip what they do not know, have other keys too. */
static int read_own_case(json_t *object, plan_case *out)
{
    static const char *const keys[] = {
        "name",           "kind",       "methods",    "devices",    "level", "decode",
        "nodes",          "gpus",       "intra",      "inter",      "host",  "latency_per_step",
        "flat_uses_both", "ranks",      "latency_us", "us_per_kib", "about", "curve",
        "models",         "gbit_per_s", "operations", NULL};
    const char *name = json_string_value(json_object_get(object, "name"));
    plan_place place = {"cases", name != NULL ? name : "case", GW_CLI_OK};
    plan_json_known(&place, object, keys);
    return place.code == GW_CLI_OK ? plan_case_read("cases", object, out) : place.code;
}

int plan_case_at(const plan_library *library, size_t index, plan_case *out, json_t **models)
{
    json_t *object = json_array_get(json_object_get(library->root, "cases"), index);
    if (object == NULL || read_own_case(object, out) != GW_CLI_OK) {
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
            return read_own_case(object, out);
        }
    }
    return name == NULL ? gw_cli_error(GW_CLI_BAD_DATA, NULL, "the cases file has no case")
                        : gw_cli_error(GW_CLI_USAGE, NULL, "no case \"%.60s\"; plan cases lists them", name);
}
