/*
 * The problem inside a plan file: gradients, cluster, methods and codecs, so that the file stands alone.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_STORED_H
#define GW_PLAN_STORED_H

#include "plan_opened.h"

/* docs/plan-file.md has the members. */
json_t *plan_stored_json(const plan_opened *o);

/* Fills library, case and model of *o from such an object; path: for messages. Message printed, exit code; on
 * failure nothing needs to be closed. */
int plan_stored_read(const char *path, json_t *problem, plan_opened *o);

#endif
