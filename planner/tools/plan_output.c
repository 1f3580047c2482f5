/*
 * Outputs that appear complete or not at all.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_output.h"

#include <stdlib.h>

#include "atomic_file.h"
#include "cli_common.h"

int plan_output_open(plan_output *output)
{
    output->data = NULL;
    output->size = 0;
    output->text = open_memstream(&output->data, &output->size);
    return output->text != NULL ? GW_CLI_OK : gw_cli_error(GW_CLI_IO, NULL, "out of memory");
}

int plan_output_close(plan_output *output, const char *path, int code)
{
    int failed = ferror(output->text);
    failed |= fclose(output->text) != 0;
    if (code == GW_CLI_OK && failed) {
        code = gw_cli_error(GW_CLI_IO, path, "out of memory");
    }
    (void)fflush(stdout); /* keeps the order if path is "-" */
    gw_atomic_file file;
    if (code == GW_CLI_OK) {
        code = gw_atomic_file_open(&file, path);
    }
    if (code == GW_CLI_OK) {
        code = gw_atomic_file_write(&file, output->data, output->size);
    }
    if (code == GW_CLI_OK) {
        code = gw_atomic_file_commit(&file);
    }
    free(output->data);
    output->text = NULL;
    output->data = NULL;
    return code;
}
