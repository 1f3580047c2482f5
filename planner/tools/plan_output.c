/*
 * Outputs that appear complete or not at all.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_output.h"

#include <stdlib.h>

#include "cli_common.h"
#include "cli_output.h"

static void must(int failed)
{
    if (failed) {
        gw_cli_fail(GW_CLI_IO, NULL, "out of memory");
    }
}

void plan_output_open(plan_output *output)
{
    output->text = open_memstream(&output->data, &output->size);
    must(output->text == NULL);
}

void plan_output_close(plan_output *output, const char *path)
{
    const int failed = ferror(output->text);
    must(fclose(output->text) != 0 || failed);
    (void)fflush(stdout); /* keeps the order if path is "-" */
    gw_cli_write_file(path, output->data, output->size);
    free(output->data);
}
