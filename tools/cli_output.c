/*
 * Memory and outputs of subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_output.h"

#include "atomic_file.h"
#include "cli_common.h"

#include <stdlib.h>

const char *gw_cli_output_name(const char *text)
{
    return gw_atomic_file_is_stdout(text) ? "-" : text;
}

int gw_cli_check_output(const char *output, const char *input)
{
    if (output == NULL || input == NULL || !gw_atomic_file_is_same(output, input)) {
        return GW_CLI_OK;
    }
    return gw_cli_error(GW_CLI_USAGE, output, "is an input file; write the output elsewhere");
}

void *gw_cli_alloc(size_t size)
{
    void *memory = size == SIZE_MAX ? NULL : malloc(size > 0 ? size : 1);

    if (memory == NULL) {
        gw_cli_fail(GW_CLI_IO, NULL, "no memory for %zu bytes", size);
    }
    return memory;
}

void *gw_cli_alloc_array(uint64_t len, size_t element_size)
{
    return gw_cli_alloc(len > SIZE_MAX / element_size ? SIZE_MAX : (size_t)len * element_size);
}

gw_workspace gw_cli_alloc_workspace(size_t size)
{
    return (gw_workspace){gw_cli_alloc(size), size};
}

void gw_cli_write_file(const char *path, const void *data, size_t size)
{
    gw_atomic_file file;
    gw_cli_must(gw_atomic_file_open(&file, path));
    gw_cli_must(gw_atomic_file_write(&file, data, size));
    gw_cli_must(gw_atomic_file_commit(&file));
}
