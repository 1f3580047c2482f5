/*
 * The solvers' workspace.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "plan_workspace.h"

#include <stdlib.h>

gw_workspace plan_workspace(size_t size)
{
    static void *kept;
    static size_t kept_size;
    if (size > kept_size) {
        free(kept);
        kept = malloc(size);
        kept_size = kept != NULL ? size : 0;
    }
    return (gw_workspace){kept, kept != NULL ? size : 0};
}
