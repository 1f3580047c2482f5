/*
 * Fused planning problems.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli_common.h"

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
    gw_status status = gw_plan_method_make(codec, &c->cluster, collective, device, method);
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_BAD_DATA, NULL, "method %s: %s", name,
                            status == GW_ERR_OPTION ? "the codec lacks the collective or the device"
                                                    : gw_status_message(status));
    }
    if (c->decode_none) {
        memset(&method->dec, 0, sizeof method->dec);
    }
    setup->problem.method_count++;
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
        code = add_method(library, c, c->method_names[m], GW_PLAN_GPU, setup);
        if (code == GW_CLI_OK && c->cpu) {
            code = add_method(library, c, c->method_names[m], GW_PLAN_CPU, setup);
        }
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    setup->tensors = malloc(((size_t)model->count + 1) * sizeof *setup->tensors);
    if (setup->tensors == NULL) {
        return gw_cli_error(GW_CLI_IO, NULL, "out of memory");
    }
    add_tensors(model, setup);
    setup->problem.methods = setup->methods;
    setup->problem.decode = c->decode;
    setup->problem.group_elems_max = c->group_elems_max;
    gw_plan_fault fault = {"", 0};
    if (gw_plan_problem_check(&setup->problem, &fault) != GW_OK) {
        const char *at = fault.index < model->count ? model->tensors[fault.index].name : "-";
        code =
            gw_cli_error(GW_CLI_BAD_DATA, model_path, "%s (index %u, %.100s)", fault.what, fault.index, at);
        plan_setup_free(setup);
    }
    return code;
}

void plan_setup_free(plan_setup *setup)
{
    free(setup->tensors);
    memset(setup, 0, sizeof *setup);
}

void plan_method_label(const gw_plan_method *method, char *out, size_t out_size)
{
    (void)snprintf(out, out_size, "%s%s", method->name, method->enc_device == GW_PLAN_CPU ? "@cpu" : "");
}

int plan_method_index(const plan_setup *setup, const char *label)
{
    for (uint32_t m = 0; m < setup->problem.method_count; m++) {
        char here[PLAN_LABEL_SIZE + 8];
        plan_method_label(&setup->methods[m], here, sizeof here);
        if (strcmp(here, label) == 0) {
            return (int)m;
        }
    }
    return -1;
}
