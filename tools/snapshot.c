/*
 * Reads the description with jansson, then opens the arrays that the optimizer needs.
 *
 * Hyperparameters default to PyTorch's values; only the learning rate is required.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "snapshot.h"

#include "atomic_file.h"
#include "cli_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JSON_SIZE_MAX ((size_t)64 << 20)

typedef struct optimizer_entry {
    const char *name;
    gw_optimizer_kind kind;
} optimizer_entry;

static const optimizer_entry optimizer_table[] = {
    {"sgd", GW_OPTIMIZER_SGD},           {"momentum", GW_OPTIMIZER_MOMENTUM},
    {"nesterov", GW_OPTIMIZER_NESTEROV}, {"adagrad", GW_OPTIMIZER_ADAGRAD},
    {"rmsprop", GW_OPTIMIZER_RMSPROP},   {"adam", GW_OPTIMIZER_ADAM},
    {"adamw", GW_OPTIMIZER_ADAMW},       {"sgdm", GW_OPTIMIZER_MOMENTUM},
};
enum { OPTIMIZER_COUNT = sizeof optimizer_table / sizeof optimizer_table[0] };

const char *gw_optimizer_name(gw_optimizer_kind kind)
{
    for (int i = 0; i < OPTIMIZER_COUNT; i++) {
        if (optimizer_table[i].kind == kind) {
            return optimizer_table[i].name;
        }
    }
    return "unknown";
}

int gw_optimizer_has_second_moment(gw_optimizer_kind kind)
{
    return kind == GW_OPTIMIZER_ADAGRAD || kind == GW_OPTIMIZER_RMSPROP || kind == GW_OPTIMIZER_ADAM ||
           kind == GW_OPTIMIZER_ADAMW;
}

gw_optimizer_kind gw_optimizer_from_name(const char *name)
{
    for (int i = 0; i < OPTIMIZER_COUNT; i++) {
        if (strcmp(optimizer_table[i].name, name) == 0) {
            return optimizer_table[i].kind;
        }
    }
    return (gw_optimizer_kind)0;
}

/* ---- hyperparameters ---- */

/* The hyperparameters and the file that messages name. */
typedef struct hyper_reader {
    const json_t *object;
    const char *file;
} hyper_reader;

static double number_checked(const hyper_reader *reader, const json_t *value, const char *key, double min,
                             double max, int open_end)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= min) || !(open_end ? number < max : number <= max)) {
        gw_cli_fail(GW_CLI_BAD_DATA, reader->file, "hyper.%s must be a number from %g to %g%s", key, min, max,
                    open_end ? " (exclusive)" : "");
    }
    return number;
}

static double hyper_number(const hyper_reader *reader, const char *key, double fallback, double min,
                           double max, int open_end)
{
    const json_t *value = json_object_get(reader->object, key);
    return value == NULL ? fallback : number_checked(reader, value, key, min, max, open_end);
}

static int hyper_flag(const hyper_reader *reader, const char *key)
{
    const json_t *value = json_object_get(reader->object, key);
    if (value != NULL && !json_is_boolean(value)) {
        gw_cli_fail(GW_CLI_BAD_DATA, reader->file, "hyper.%s must be true or false", key);
    }
    return json_is_true(value);
}

static void hyper_betas(const hyper_reader *reader, gw_optimizer *optimizer)
{
    const json_t *betas = json_object_get(reader->object, "betas");
    optimizer->beta1 = 0.9;
    optimizer->beta2 = 0.999;
    if (betas == NULL) {
        return;
    }
    if (json_array_size(betas) != 2) {
        gw_cli_fail(GW_CLI_BAD_DATA, reader->file, "hyper.betas must be two numbers");
    }
    optimizer->beta1 = number_checked(reader, json_array_get(betas, 0), "betas[0]", 0, 1, 1);
    optimizer->beta2 = number_checked(reader, json_array_get(betas, 1), "betas[1]", 0, 1, 1);
}

/* PyTorch's SGD is three optimizers of this library; its hyperparameters tell which. */
static void kind_refine(gw_optimizer *optimizer, int nesterov)
{
    if (optimizer->kind == GW_OPTIMIZER_SGD && optimizer->momentum != 0) {
        optimizer->kind = GW_OPTIMIZER_MOMENTUM;
    }
    if (optimizer->kind == GW_OPTIMIZER_MOMENTUM && nesterov) {
        optimizer->kind = GW_OPTIMIZER_NESTEROV;
    }
}

static void hyper_read(gw_optimizer *optimizer, const json_t *hyper, const char *file)
{
    const hyper_reader reader = {hyper, file};
    const gw_optimizer_kind kind = optimizer->kind;
    if (json_object_get(hyper, "lr") == NULL) {
        gw_cli_fail(GW_CLI_BAD_DATA, file, "hyper.lr is missing");
    }
    const double big = 1e300;
    optimizer->lr = hyper_number(&reader, "lr", 0, 0, big, 0);
    optimizer->weight_decay =
        hyper_number(&reader, "weight_decay", kind == GW_OPTIMIZER_ADAMW ? 0.01 : 0.0, 0, big, 0);
    optimizer->momentum = hyper_number(&reader, "momentum", 0, 0, big, 0);
    optimizer->dampening = hyper_number(&reader, "dampening", 0, -big, 1, 1);
    optimizer->alpha = hyper_number(&reader, "alpha", 0.99, 0, 1, 1);
    optimizer->eps = hyper_number(&reader, "eps", kind == GW_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8, 0, big, 0);
    optimizer->lr_decay = hyper_number(&reader, "lr_decay", 0, 0, big, 0);
    hyper_betas(&reader, optimizer);
    optimizer->centered = hyper_flag(&reader, "centered");
    optimizer->amsgrad = hyper_flag(&reader, "amsgrad");
    optimizer->maximize = hyper_flag(&reader, "maximize");
    kind_refine(optimizer, hyper_flag(&reader, "nesterov"));
}

/* "tensors" is optional; its counts must be valid. */
static uint64_t tensors_sum(const json_t *tensors, const char *file)
{
    uint64_t total = 0;
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        const json_t *taken = json_object_get(json_array_get(tensors, i), "taken");
        const json_int_t value = json_integer_value(taken);
        if (!json_is_integer(taken) || value < 0 || (uint64_t)value > ((uint64_t)1 << 48) - total) {
            gw_cli_fail(GW_CLI_BAD_DATA, file, "tensors[%zu].taken must be a count of values", i);
        }
        total += (uint64_t)value;
    }
    return total;
}

/* Returns the number of values of the tensors, UINT64_MAX if they are not listed. */
static uint64_t description_read(gw_snapshot *snapshot, const json_t *root)
{
    const char *file = snapshot->json.name;
    const char *name = json_string_value(json_object_get(root, "optimizer"));
    if (name == NULL) {
        gw_cli_fail(GW_CLI_BAD_DATA, file, "\"optimizer\" is missing or not a string");
    }
    snapshot->optimizer.kind = gw_optimizer_from_name(name);
    if (snapshot->optimizer.kind == 0) {
        gw_cli_fail(
            GW_CLI_BAD_DATA, file,
            "optimizer \"%.64s\" is not one of sgd, sgdm, momentum, nesterov, adagrad, rmsprop, adam, "
            "adamw",
            name);
    }
    const json_t *step = json_object_get(root, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 1) {
        gw_cli_fail(GW_CLI_BAD_DATA, file, "\"step\" must be an integer of at least 1");
    }
    snapshot->optimizer.step = (uint64_t)json_integer_value(step);
    const json_t *hyper = json_object_get(root, "hyper");
    if (!json_is_object(hyper)) {
        gw_cli_fail(GW_CLI_BAD_DATA, file, "\"hyper\" is missing or not an object");
    }
    hyper_read(&snapshot->optimizer, hyper, file);
    const json_t *tensors = json_object_get(root, "tensors");
    return json_is_array(tensors) ? tensors_sum(tensors, file) : UINT64_MAX;
}

/* Reads the whole description, if it starts like one. */
static void json_fill(gw_input_file *input)
{
    static const char starts[6] = {'{', ' ', '\t', '\r', '\n', '\xEF'}; /* the last: a byte order mark */
    gw_cli_must(gw_input_file_fill(input, 1));
    if (input->size > 0 && memchr(starts, input->data[0], sizeof starts) != NULL) {
        gw_cli_must(gw_input_file_fill(input, JSON_SIZE_MAX + 1));
    }
    if (input->size > JSON_SIZE_MAX) {
        gw_cli_fail(GW_CLI_BAD_DATA, input->name, "not a snapshot: longer than 64 MiB");
    }
}

/* Returns what description_read() does. */
static uint64_t json_read(gw_snapshot *snapshot)
{
    json_fill(&snapshot->json);
    const char *text = (const char *)snapshot->json.data;
    const size_t size = snapshot->json.size;
    const size_t mark = size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    json_error_t error;
    json_t *root = json_loadb(size > mark ? text + mark : "", size - mark, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        gw_cli_fail_at(GW_CLI_BAD_DATA, snapshot->json.name, (uint64_t)error.position + mark,
                       "not a snapshot: JSON, line %d, column %d: %s", error.line, error.column, error.text);
    }
    if (!json_is_object(root)) {
        gw_cli_fail(GW_CLI_BAD_DATA, snapshot->json.name, "not a snapshot: no JSON object");
    }
    const uint64_t tensor_sum = description_read(snapshot, root);
    json_decref(root);
    return tensor_sum;
}

/* ---- arrays ---- */

/* NAME.json, PART -> NAME-PART.npy; the caller frees it. */
static char *array_path(const char *json_path, const char *part)
{
    static const char suffix[] = ".json";
    size_t stem_len = strlen(json_path);
    if (stem_len >= sizeof suffix && strcmp(json_path + stem_len - (sizeof suffix - 1), suffix) == 0) {
        stem_len -= sizeof suffix - 1;
    }
    const size_t size = stem_len + strlen(part) + sizeof "-.npy";
    char *path = malloc(size);
    if (path == NULL) {
        gw_cli_fail(GW_CLI_IO, json_path, "out of memory");
    }
    (void)snprintf(path, size, "%.*s-%s.npy", (int)stem_len, json_path, part);
    return path;
}

/* Opens one array and compares its length with the arrays before it. PART NULL: there is none. */
static const void *array_open(gw_snapshot *snapshot, int slot, const char *part, gw_npy_u2 u2)
{
    if (part == NULL) {
        return NULL;
    }
    char *path = array_path(snapshot->json.name, part);
    snapshot->path[slot] = path;
    gw_npy *npy = &snapshot->array[slot];
    gw_npy_open(npy, path, u2);
    if (slot != GW_SNAPSHOT_GRAD && npy->dtype != GW_FP32) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "parameters and optimizer state must be fp32 ('<f4')");
    }
    if (snapshot->len == UINT64_MAX) {
        snapshot->len = npy->len;
    }
    if (npy->len != snapshot->len) {
        gw_cli_fail(GW_CLI_BAD_DATA, path, "has %llu values, but the rest of the snapshot has %llu",
                    (unsigned long long)npy->len, (unsigned long long)snapshot->len);
    }
    return npy->values;
}

/* The first update makes the buffer of momentum, so the snapshot before it may lack the file. */
static int momentum_buffer_is_absent(const gw_snapshot *snapshot)
{
    char *path = array_path(snapshot->json.name, "momentum_buffer");
    const int absent = snapshot->optimizer.step == 1 && access(path, F_OK) != 0;
    free(path);
    return absent;
}

static void state_open(gw_snapshot *snapshot)
{
    const gw_optimizer *optimizer = &snapshot->optimizer;
    const char *m = NULL;
    const char *v = NULL;
    const char *a = NULL;
    switch (optimizer->kind) {
    case GW_OPTIMIZER_SGD:
        break;
    case GW_OPTIMIZER_MOMENTUM:
    case GW_OPTIMIZER_NESTEROV:
        m = momentum_buffer_is_absent(snapshot) ? NULL : "momentum_buffer";
        break;
    case GW_OPTIMIZER_ADAGRAD:
        v = "sum";
        break;
    case GW_OPTIMIZER_RMSPROP:
        v = "square_avg";
        m = optimizer->momentum > 0 ? "momentum_buffer" : NULL;
        a = optimizer->centered ? "grad_avg" : NULL;
        break;
    case GW_OPTIMIZER_ADAM:
    case GW_OPTIMIZER_ADAMW:
        m = "exp_avg";
        v = "exp_avg_sq";
        a = optimizer->amsgrad ? "max_exp_avg_sq" : NULL;
        break;
    default: /* optimizer_table has no other */
        break;
    }
    snapshot->state.m = array_open(snapshot, GW_SNAPSHOT_M, m, GW_NPY_U2_REFUSE);
    snapshot->state.v = array_open(snapshot, GW_SNAPSHOT_V, v, GW_NPY_U2_REFUSE);
    snapshot->state.a = array_open(snapshot, GW_SNAPSHOT_A, a, GW_NPY_U2_REFUSE);
}

void gw_snapshot_open_input(gw_snapshot *snapshot, gw_input_file *input, const gw_snapshot_options *options)
{
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->json = *input;
    memset(input, 0, sizeof *input);
    const uint64_t tensor_sum = json_read(snapshot);
    if (options->as != 0) {
        snapshot->optimizer.kind = options->as;
    }
    snapshot->len = UINT64_MAX;
    (void)array_open(snapshot, GW_SNAPSHOT_GRAD, options->needs_grad ? "grad" : NULL, options->u2);
    snapshot->state.param = array_open(snapshot, GW_SNAPSHOT_PARAM, "param", GW_NPY_U2_REFUSE);
    state_open(snapshot);
    if (tensor_sum != UINT64_MAX && tensor_sum != snapshot->len) {
        gw_cli_fail(GW_CLI_BAD_DATA, snapshot->json.name,
                    "the tensors list %llu values, the arrays have %llu", (unsigned long long)tensor_sum,
                    (unsigned long long)snapshot->len);
    }
}

void gw_snapshot_open(gw_snapshot *snapshot, const char *path, const gw_snapshot_options *options)
{
    gw_input_file input;
    gw_cli_must(gw_input_file_open(&input, path));
    gw_snapshot_open_input(snapshot, &input, options);
}

void gw_snapshot_close(gw_snapshot *snapshot)
{
    for (int i = 0; i < GW_SNAPSHOT_ARRAY_COUNT; i++) {
        gw_npy_close(&snapshot->array[i]);
        free(snapshot->path[i]);
    }
    gw_input_file_close(&snapshot->json);
    memset(snapshot, 0, sizeof *snapshot);
}

int gw_snapshot_has_file(const gw_snapshot *snapshot, const char *path)
{
    int found = gw_atomic_file_is_input(path, &snapshot->json);
    for (int i = 0; i < GW_SNAPSHOT_ARRAY_COUNT; i++) {
        found |= gw_atomic_file_is_input(path, &snapshot->array[i].input);
    }
    return found;
}
