/*
 * Arrays and the solvers' workspace.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_memory.h"

#include <stdlib.h>
#include <string.h>

#include "cli_common.h"
#include "cli_output.h"

static void *check(void *memory)
{
    if (memory == NULL) {
        gw_cli_fail(GW_CLI_IO, NULL, "out of memory");
    }
    return memory;
}

void *plan_alloc(size_t len, size_t element_size)
{
    return check(calloc(len + (len == 0), element_size));
}

void *plan_grow(void *array, size_t len, size_t element_size)
{
    if ((len & (len - 1)) != 0) {
        return array; /* it is full at 0 and at powers of two */
    }
    const size_t capacity = len == 0 ? 1 : 2 * len;
    return check(capacity > SIZE_MAX / element_size ? NULL : realloc(array, capacity * element_size));
}

char *plan_text(const char *text)
{
    return check(strdup(text));
}

gw_workspace plan_workspace(size_t size)
{
    static gw_workspace kept;
    if (size > kept.size) {
        free(kept.data);
        kept = gw_cli_alloc_workspace(size);
    }
    return (gw_workspace){kept.data, size};
}
