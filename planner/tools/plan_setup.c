/*
 * Fused planning problems.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "plan_memory.h"

/* Name of a collective that leaves every rank with the sum. */
static const char *algorithm_name(uint32_t collective)
{
    return collective == GW_PLAN_ALLREDUCE   ? "allreduce"
           : collective == GW_PLAN_ALLGATHER ? "allgather"
                                             : "a2a-ag";
}

/* While a piece is summed others travel: the link is busy for the bytes of both exchanges, and their
 * startups. */
static void overlap_exchanges(gw_plan_method *method)
{
    method->net.a += method->gather.a;
    method->net.b += method->gather.b;
    memset(&method->gather, 0, sizeof method->gather);
    memset(&method->sum, 0, sizeof method->sum);
    method->owner_count = 0;
}

/* The method of one codec, device and algorithm. */
static int add_method(const plan_library *library, const plan_case *c, const gw_plan_codec *codec,
                      uint32_t collective, gw_plan_device device, plan_setup *setup)
{
    const char *name = codec != NULL ? codec->name : "fp32";
    const uint32_t m = setup->problem.method_count;
    if (m == GW_PLAN_METHODS_MAX) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "more than %u methods", GW_PLAN_METHODS_MAX);
    }
    gw_plan_method *method = &setup->methods[m];
    gw_status status = gw_plan_method_make(codec, &c->cluster, collective, device, method);
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "method %s: %s", name,
                            status == GW_ERR_TICKS ? "payload, links or costs are too large"
                                                   : gw_status_message(status));
    }
    if (collective == GW_PLAN_A2A_AG && plan_library_codec(library, name)->overlap) {
        overlap_exchanges(method);
    }
    if (c->decode_none) {
        memset(&method->dec, 0, sizeof method->dec);
        memset(&method->dec_more, 0, sizeof method->dec_more);
    }
    setup->algorithms[m] = algorithm_name(collective);
    (void)snprintf(setup->labels[m], sizeof setup->labels[m], "%s", name);
    setup->problem.method_count++;
    return GW_CLI_OK;
}

/* All methods of a codec on a device: one for each algorithm that it lists. */
static int add_algorithms(const plan_library *library, const plan_case *c, const gw_plan_codec *codec,
                          gw_plan_device device, plan_setup *setup)
{
    static const uint32_t complete[3] = {GW_PLAN_ALLREDUCE, GW_PLAN_ALLGATHER, GW_PLAN_A2A_AG};
    const uint32_t first = setup->problem.method_count;
    int code = GW_CLI_OK;
    for (int i = 0; i < 3 && code == GW_CLI_OK; i++) {
        if ((codec->collectives & complete[i]) != 0) {
            code = add_method(library, c, codec, complete[i], device, setup);
        }
    }
    const uint32_t end = setup->problem.method_count;
    if (code == GW_CLI_OK && end == first) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL,
                            "method %s: none of its collectives leaves every rank with the sum "
                            "(allreduce, allgather, a2a-ag)",
                            codec->name);
    }
    for (uint32_t m = first; m < end; m++) {
        (void)snprintf(setup->labels[m], sizeof setup->labels[m], "%s%s%s%s", codec->name,
                       end - first > 1 ? ":" : "", end - first > 1 ? setup->algorithms[m] : "",
                       device == GW_PLAN_CPU ? "@cpu" : "");
    }
    return code;
}

/* The methods of one name: those on the GPU; those on the CPU if the case allows it or there are no others.
 */
static int add_codec(const plan_library *library, const plan_case *c, const char *name, plan_setup *setup)
{
    gw_plan_codec codec;
    if (strcmp(name, "fp32") == 0) {
        return add_method(library, c, NULL, GW_PLAN_ALLREDUCE, GW_PLAN_GPU, setup);
    }
    int code = plan_library_find(library, name, plan_case_ranks(c), &codec);
    if (code == GW_CLI_OK && c->error_max > 0 &&
        json_object_get(plan_library_codec(library, name)->source, "error") == NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "codec %s has no \"error\" in its file: not known to keep a bound of the error",
                            name);
    }
    if (code == GW_CLI_OK && (codec.devices & 1u << GW_PLAN_GPU) != 0) {
        code = add_algorithms(library, c, &codec, GW_PLAN_GPU, setup);
    }
    if (code == GW_CLI_OK && (codec.devices & 1u << GW_PLAN_CPU) != 0 &&
        (c->cpu || (codec.devices & 1u << GW_PLAN_GPU) == 0)) {
        code = add_algorithms(library, c, &codec, GW_PLAN_CPU, setup);
    }
    return code;
}

/* Sum of errors that the mean allows; 0: no bound. */
static int set_error_max(const plan_case *c, const plan_model *model, int64_t *error_max)
{
    double len = 0;
    for (uint32_t i = 0; i < model->count; i++) {
        len += (double)model->tensors[i].len;
    }
    const double sum = floor(c->error_max / PLAN_ERROR_UNIT * len);
    if (sum >= (double)GW_PLAN_TICK_MAX) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--error-max is too large for this model");
    }
    *error_max = c->error_max > 0 ? (int64_t)fmax(1, sum) : 0;
    return GW_CLI_OK;
}

/* Tensors that must stay dense forbid every method but fp32. */
static void add_tensors(const plan_model *model, plan_setup *setup)
{
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
}

int plan_setup_make(const plan_library *library, const plan_case *c, const plan_model *model,
                    const char *model_path, plan_setup *setup)
{
    memset(setup, 0, sizeof *setup);
    int code = GW_CLI_OK;
    for (uint32_t m = 0; m < c->method_count && code == GW_CLI_OK; m++) {
        code = add_codec(library, c, c->method_names[m], setup);
    }
    code = code == GW_CLI_OK ? set_error_max(c, model, &setup->problem.error_max) : code;
    if (code != GW_CLI_OK) {
        return code;
    }
    setup->tensors = plan_alloc(model->count, sizeof *setup->tensors);
    add_tensors(model, setup);
    setup->problem.methods = setup->methods;
    setup->problem.decode = c->decode;
    setup->problem.group_len_max = c->group_len_max;
    gw_plan_fault fault = {"", 0};
    if (gw_plan_problem_check(&setup->problem, &fault) != GW_OK) {
        /* Methods have been checked when they were made, so an index is that of a tensor. */
        code = fault.index < model->count
                   ? gw_cli_error(GW_CLI_BAD_DATA, model_path, "%s (index %u, %.100s)", fault.what,
                                  fault.index, model->tensors[fault.index].name)
                   : gw_cli_error(GW_CLI_BAD_DATA, model_path, "%s", fault.what);
        plan_setup_free(setup);
    }
    return code;
}

void plan_setup_free(plan_setup *setup)
{
    free(setup->tensors);
    memset(setup, 0, sizeof *setup);
}

int plan_method_index(const plan_setup *setup, const char *label)
{
    for (uint32_t m = 0; m < setup->problem.method_count; m++) {
        if (strcmp(setup->labels[m], label) == 0) {
            return (int)m;
        }
    }
    return -1;
}

uint32_t plan_method_find(const plan_setup *setup, const char *label)
{
    const int index = label != NULL ? plan_method_index(setup, label) : (int)setup->problem.method_count - 1;
    if (index < 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "no method \"%.60s\" in this case", label != NULL ? label : "(none)");
    }
    return (uint32_t)index;
}
