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
#include "plan_thc.h"

const char *const plan_kind_names[4] = {"joint", "fusion", "tree", NULL};
const char *const plan_level_names[4] = {"serial", "pipelined", "event", NULL};
const char *const plan_decode_names[4] = {"serial", "parallel", "none", NULL};

static int parse_payload(const plan_place *place, json_t *payload, plan_codec *out)
{
    static const char *const keys[] = {"header", "num", "den", NULL};
    static const char *const keys_thc[] = {"kind", "bits", "lane_bits", NULL};
    gw_plan_codec *codec = &out->codec;
    json_t *kind = json_object_get(payload, "kind");
    if (kind != NULL) {
        int64_t bits = 0; /* required */
        int64_t lane_bits = 0;
        if (!json_is_string(kind) || strcmp(json_string_value(kind), "thc") != 0) {
            return plan_json_bad(place, "the \"kind\" of a payload can only be thc");
        }
        int known = plan_json_known(place, payload, keys_thc);
        known = known == GW_CLI_OK ? plan_json_whole(place, payload, "bits", 1, 4, &bits) : known;
        known = known == GW_CLI_OK ? plan_json_whole(place, payload, "lane_bits", 0, 32, &lane_bits) : known;
        out->thc_bits = (unsigned)bits;
        out->thc_lane_bits = (unsigned)lane_bits;
        codec->payload_den = 1;
        return known;
    }
    codec->payload_num = -1; /* required */
    codec->payload_den = 1;
    int code = plan_json_known(place, payload, keys);
    if (code == GW_CLI_OK) {
        code = plan_json_whole(place, payload, "header", 0, INT64_C(1) << 40, &codec->payload_header);
    }
    if (code == GW_CLI_OK) {
        code = plan_json_whole(place, payload, "num", 0, INT64_C(1) << 30, &codec->payload_num);
    }
    if (code == GW_CLI_OK) {
        code = plan_json_whole(place, payload, "den", 1, INT64_C(1) << 30, &codec->payload_den);
    }
    return code;
}

static int parse_collectives(const plan_place *place, json_t *array, uint32_t *collectives)
{
    static const char *const names[] = {"allreduce", "allgather", "alltoall", "gather", "a2a-ag", NULL};
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
    {
        const int bit = plan_name_index(names, json_string_value(entry));
        if (bit < 0) {
            return plan_json_bad(place,
                                 "\"collectives\" takes allreduce, allgather, a2a-ag, alltoall and gather");
        }
        *collectives |= 1u << bit;
    }
    return *collectives != 0 ? GW_CLI_OK : plan_json_bad(place, "\"collectives\" is missing or empty");
}

/* The curves of each device that the codec has costs for. */
static int parse_devices(const plan_place *place, json_t *object, gw_plan_codec *codec)
{
    static const char *const devices[2] = {"gpu", "cpu"};
    for (int device = 0; device < 2; device++) {
        json_t *costs = json_object_get(object, devices[device]);
        if (costs == NULL) {
            continue;
        }
        static const char *const keys[] = {"enc", "dec", "sum", NULL};
        char part[200];
        const plan_place inner = {place->path, part};
        if (plan_json_known(place, costs, keys) != GW_CLI_OK) {
            return GW_CLI_BAD_DATA;
        }
        gw_plan_cost *const curves[3] = {&codec->enc[device], &codec->dec[device], &codec->sum[device]};
        const int has_sum = (codec->collectives & GW_PLAN_A2A_AG) != 0;
        int code = GW_CLI_OK;
        for (int i = 0; i < 2 + has_sum && code == GW_CLI_OK; i++) {
            (void)snprintf(part, sizeof part, "%s, %s %s", place->where, devices[device], keys[i]);
            code = plan_curve_parse(&inner, json_object_get(costs, keys[i]), curves[i]);
        }
        if (code != GW_CLI_OK) {
            return code;
        }
        codec->devices |= 1u << device;
    }
    return codec->devices != 0 ? GW_CLI_OK : plan_json_bad(place, "needs costs under \"gpu\" or \"cpu\"");
}

/* Rounded up, so that a bound stays a bound. */
static int parse_error(const plan_place *place, json_t *error, gw_plan_codec *codec)
{
    const double value = error == NULL ? 0 : json_is_number(error) ? json_number_value(error) : -1;
    if (!(value >= 0) || value > 0x1p20) {
        return plan_json_bad(place, "\"error\" is not a number from 0 to 2^20");
    }
    codec->error = (int64_t)ceil(value / PLAN_ERROR_UNIT);
    return GW_CLI_OK;
}

static int parse_codec(const char *path, size_t index, json_t *object, plan_codec *out)
{
    char where[160];
    const plan_place place = {path, where};
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
    int code = plan_json_known(&place, object, keys);
    code = code == GW_CLI_OK ? parse_payload(&place, json_object_get(object, "payload"), out) : code;
    code = code == GW_CLI_OK ? parse_error(&place, json_object_get(object, "error"), codec) : code;
    if (code == GW_CLI_OK) {
        code = plan_json_ticks(&place, object, "decode_peer_us_per_kib", 0, &codec->dec_peer_kib);
    }
    if (code == GW_CLI_OK) {
        code = parse_collectives(&place, json_object_get(object, "collectives"), &codec->collectives);
    }
    code = code == GW_CLI_OK ? plan_json_flag(&place, object, "overlap", &out->overlap) : code;
    return code == GW_CLI_OK ? parse_devices(&place, object, codec) : code;
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

int plan_library_open(plan_library *library, const char *path)
{
    memset(library, 0, sizeof *library);
    library->payload_scale = 1;
    const char *name = path != NULL ? path : "built-in cases";
    library->root = plan_json_load(name, path == NULL ? plan_cases_text : NULL);
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

int plan_library_read(plan_library *library, const char *path, json_t *codecs)
{
    memset(library, 0, sizeof *library);
    library->payload_scale = 1;
    int code = add_codecs(library, path, codecs);
    if (code != GW_CLI_OK) {
        plan_library_close(library);
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
static int parse_link(const plan_place *place, json_t *object, gw_plan_link *link)
{
    json_t *rate = json_object_get(object, "gbit_per_s");
    int code = plan_json_ticks(place, object, "latency_us", NAN, &link->alpha);
    if (code != GW_CLI_OK || rate == NULL) {
        return code == GW_CLI_OK ? plan_json_ticks(place, object, "us_per_kib", NAN, &link->beta_kib) : code;
    }
    if (json_object_get(object, "us_per_kib") != NULL) {
        return plan_json_bad(place, "both us_per_kib and gbit_per_s are given; keep one");
    }
    if (!json_is_number(rate) || !(json_number_value(rate) > 0) ||
        !plan_ticks_from_us(plan_us_per_kib(json_number_value(rate)), &link->beta_kib)) {
        return plan_json_bad(place, "\"gbit_per_s\" is not positive, too small or no number");
    }
    return code;
}

/* A link of its own; missing: `fallback`, if there is one. */
static int parse_member(const char *path, json_t *object, const char *key, const gw_plan_link *fallback,
                        gw_plan_link *link)
{
    static const char *const keys[] = {"latency_us", "us_per_kib", "gbit_per_s", NULL};
    char where[32];
    const plan_place place = {path, where};
    json_t *member = json_object_get(object, key);
    (void)snprintf(where, sizeof where, "cluster %s", key);
    if (member == NULL && fallback != NULL) {
        *link = *fallback;
        return GW_CLI_OK;
    }
    int code = plan_json_known(&place, member, keys);
    return code == GW_CLI_OK ? parse_link(&place, member, link) : code;
}

/* The cluster of a file or of a case, which has more keys. */
static int parse_cluster(const char *path, json_t *object, gw_plan_cluster *cluster)
{
    const plan_place place = {path, "cluster"};
    const gw_plan_link pcie3 = {10 * GW_PLAN_TICKS_PER_US, GW_PLAN_TICKS_PER_US / 1000 * 85};
    memset(cluster, 0, sizeof *cluster);
    int64_t nodes = 0; /* both are required */
    int64_t gpus = 0;
    int code;
    if (json_object_get(object, "ranks") != NULL) { /* flat: one link for all */
        nodes = 1;
        code = plan_json_whole(&place, object, "ranks", 1, 65536, &gpus);
        code = code == GW_CLI_OK ? parse_link(&place, object, &cluster->intra) : code;
        cluster->inter = cluster->intra;
    } else {
        code = plan_json_whole(&place, object, "nodes", 1, 65536, &nodes);
        code = code == GW_CLI_OK ? plan_json_whole(&place, object, "gpus", 1, 65536, &gpus) : code;
        code = code == GW_CLI_OK ? parse_member(path, object, "intra", NULL, &cluster->intra) : code;
        code = code == GW_CLI_OK ? parse_member(path, object, "inter", NULL, &cluster->inter) : code;
    }
    code = code == GW_CLI_OK ? parse_member(path, object, "host", &pcie3, &cluster->host) : code;
    cluster->nodes = (uint32_t)nodes;
    cluster->gpus = (uint32_t)gpus;
    int per_step = 0;
    int both = 0;
    code = code == GW_CLI_OK ? plan_json_flag(&place, object, "latency_per_step", &per_step) : code;
    code = code == GW_CLI_OK ? plan_json_flag(&place, object, "flat_uses_both", &both) : code;
    cluster->flags = (per_step ? GW_PLAN_ALPHA_PER_STEP : 0) | (both ? GW_PLAN_FLAT_USES_BOTH : 0);
    return code;
}

int plan_cluster_read(const char *path, gw_plan_cluster *cluster)
{
    json_t *root = plan_json_load(path, NULL);
    if (root == NULL) {
        return GW_CLI_BAD_DATA;
    }
    static const char *const keys[] = {"nodes",          "gpus", "intra", "inter", "latency_per_step",
                                       "flat_uses_both", "host", "about", NULL};
    static const char *const keys_flat[] = {
        "ranks",          "latency_us", "us_per_kib", "gbit_per_s", "latency_per_step",
        "flat_uses_both", "host",       "about",      NULL};
    const plan_place place = {path, "cluster"};
    int result = plan_json_known(&place, root, json_object_get(root, "ranks") != NULL ? keys_flat : keys);
    result = result == GW_CLI_OK ? parse_cluster(path, root, cluster) : result;
    json_decref(root);
    return result;
}

/* Index of a string member among names, -1 if it is none of them. */
static int choice(json_t *object, const char *key, const char *const *names)
{
    return plan_name_index(names, json_string_value(json_object_get(object, key)));
}

static int parse_methods(const plan_place *place, json_t *array, plan_case *out)
{
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        const char *method = json_string_value(entry);
        if (method == NULL || strlen(method) >= PLAN_LABEL_SIZE || out->method_count == GW_PLAN_METHODS_MAX) {
            return plan_json_bad(place, "\"methods\" must be at most 32 short names");
        }
        for (uint32_t m = 0; m < out->method_count; m++) {
            if (strcmp(out->method_names[m], method) == 0) {
                return plan_json_bad(place, "\"methods\" names one twice");
            }
        }
        memcpy(out->method_names[out->method_count++], method, strlen(method) + 1);
    }
    return out->method_count > 0 ? GW_CLI_OK : plan_json_bad(place, "\"methods\" is missing or empty");
}

static int parse_case_devices(const plan_place *place, json_t *array, plan_case *out)
{
    size_t index;
    json_t *entry;
    json_array_foreach(array, index, entry)
    {
        const char *device = json_is_string(entry) ? json_string_value(entry) : "";
        if (strcmp(device, "cpu") != 0 && strcmp(device, "gpu") != 0) {
            return plan_json_bad(place, "\"devices\" takes gpu and cpu");
        }
        out->cpu |= strcmp(device, "cpu") == 0;
    }
    return array == NULL || json_is_array(array) ? GW_CLI_OK
                                                 : plan_json_bad(place, "\"devices\" is no array");
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
    const plan_place place = {path, name != NULL && strlen(name) < PLAN_LABEL_SIZE ? name : "case"};
    if (place.where != name) {
        return plan_json_bad(&place, "needs a \"name\" of less than 64 bytes");
    }
    memcpy(out->name, name, strlen(name) + 1);
    const int kind = choice(object, "kind", plan_kind_names);
    const int decode = choice(object, "decode", plan_decode_names);
    const int level = choice(object, "level", plan_level_names);
    if (kind < 0) {
        return plan_json_bad(&place, "\"kind\" must be joint, fusion or tree");
    }
    if (decode < 0) {
        return plan_json_bad(&place, "\"decode\" must be none, serial or parallel");
    }
    if (level < 0) {
        return plan_json_bad(&place, "\"level\" must be serial, pipelined or event");
    }
    out->kind = (plan_kind)kind;
    plan_case_set_decode(out, decode);
    out->level = (gw_plan_level)level;
    out->comp_max = UINT32_MAX;
    int code = parse_methods(&place, json_object_get(object, "methods"), out);
    code = code == GW_CLI_OK ? parse_case_devices(&place, json_object_get(object, "devices"), out) : code;
    return code == GW_CLI_OK ? parse_cluster(path, object, &out->cluster) : code;
}

void plan_case_fp32(plan_case *c)
{
    c->kind = PLAN_FUSION;
    c->method_count = 1;
    memcpy(c->method_names[0], "fp32", 5);
    c->cpu = 0;
}

void plan_case_for_algorithm(plan_case *c, const char *algorithm)
{
    if (algorithm != NULL && strcmp(algorithm, "ddp") == 0) {
        plan_case_fp32(c);
    }
}

/* A case of a cases file; plan files, whose readers skip what they do not know, have other keys too. */
static int read_own_case(json_t *object, plan_case *out)
{
    static const char *const keys[] = {
        "name",           "kind",       "methods",    "devices",    "level", "decode",
        "nodes",          "gpus",       "intra",      "inter",      "host",  "latency_per_step",
        "flat_uses_both", "ranks",      "latency_us", "us_per_kib", "about", "curve",
        "models",         "gbit_per_s", NULL};
    const char *name = json_string_value(json_object_get(object, "name"));
    const plan_place place = {"cases", name != NULL ? name : "case"};
    int code = plan_json_known(&place, object, keys);
    return code == GW_CLI_OK ? plan_case_read("cases", object, out) : code;
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
