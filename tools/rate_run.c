/* SPDX-License-Identifier: BSD-2-Clause */
#include "rate_run.h"

#include "cli_output.h"

#include <stdlib.h>

void gw_rate_run(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind, const gw_gcomp *codec,
                 const gw_gcomp_source *source, const char *name)
{
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_gcomp_workspace_size(codec));
    gw_cli_progress_begin("rate");
    gw_status status = gw_gcomp_rate_init(rate, kind);
    if (status == GW_OK) {
        status = gw_gcomp_rate_add(rate, codec, source, &workspace);
    }
    gw_cli_progress_end();
    free(workspace.data);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, name, "rate: %s (%s)", gw_status_message(status), gw_status_name(status));
    }
}

void gw_rate_choose(gw_tensor_input *tensor, double target_bits)
{
    gw_gcomp_rate rate;
    gw_rate_run(&rate, GW_GCOMP_RATE_TOLERANCE, &tensor->codec, &tensor->source, tensor->in.name);
    const uint64_t size_max = (uint64_t)(target_bits * (double)tensor->in.len / 8);
    if (gw_gcomp_rate_tolerance(&rate, size_max, &tensor->options.tolerance_bits) != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, tensor->in.name,
                    "--target-bits: the smallest frame needs %.4f bits a value",
                    8 * (double)gw_gcomp_rate_size(&rate, 0) / (double)tensor->in.len);
    }
    tensor->target_bits = target_bits;
    tensor->predicted_size = gw_gcomp_rate_size(&rate, tensor->options.tolerance_bits - 1);
    const gw_status status = gw_gcomp_init(&tensor->codec, &tensor->options);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, tensor->in.name, "%s", gw_status_message(status));
    }
}
