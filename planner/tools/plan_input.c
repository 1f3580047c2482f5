/*
 * Kinds of input files.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_input.h"

#include <stdio.h>
#include <string.h>

#include "cli_common.h"
#include "plan_byteps.h"

#define HEAD_SIZE 65536

plan_input plan_input_kind(const char *path)
{
    static char head[HEAD_SIZE];
    FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
    if (file == NULL) {
        return PLAN_INPUT_TEXT;
    }
    const size_t got = fread(head, 1, sizeof head - 1, file);
    (void)fclose(file);
    head[got] = '\0';
    if (got > 1 && (unsigned char)head[0] == 0x1f) {
        return PLAN_INPUT_KINETO;
    }
    const size_t mark = strncmp(head, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    const char first = head[mark + strspn(head + mark, " \t\r\n")];
    if (first != '{' && first != '[') {
        return PLAN_INPUT_TEXT;
    }
    if (strstr(head, "\"gradwire-plan/1\"") != NULL) { /* whatever names its model has */
        return PLAN_INPUT_JSON;
    }
    return strstr(head, "TensorReadyTraceEvents") != NULL ? PLAN_INPUT_BYTEPS_READY
           : strstr(head, "\"Comm.") != NULL              ? PLAN_INPUT_BYTEPS_COMM
           : strstr(head, "traceEvents") != NULL || strstr(head, "\"schemaVersion\"") != NULL
               ? PLAN_INPUT_KINETO
               : PLAN_INPUT_JSON;
}

int plan_input_check_sizes(const char *path, plan_model *model)
{
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->tensors[i].len > 0) {
            return GW_CLI_OK;
        }
    }
    plan_model_free(model);
    return gw_cli_error(GW_CLI_BAD_DATA, path,
                        "no tensor has a size: all elems are 0 (plan import takes sizes from --params)");
}

int plan_input_model(const char *path, plan_model *model)
{
    int code;
    memset(model, 0, sizeof *model);
    switch (plan_input_kind(path)) {
    case PLAN_INPUT_TEXT:
        code = plan_model_read_csv(path, model);
        break;
    case PLAN_INPUT_BYTEPS_READY:
    case PLAN_INPUT_JSON:
        code = plan_byteps_read_ready(path, NULL, model);
        break;
    default:
        return gw_cli_error(
            GW_CLI_BAD_DATA, path,
            "is compressed or a profiler recording; turn recordings into CSV with plan import");
    }
    if (code == GW_CLI_OK && !model->timed) {
        plan_model_free(model);
        code = gw_cli_error(
            GW_CLI_BAD_DATA, path,
            "line 1: no column bwd_us or gap_us; without backprop times there is nothing to plan "
            "(a column of zeros says that all gradients are ready at once)");
    }
    return code == GW_CLI_OK ? plan_input_check_sizes(path, model) : code;
}
