/*
 * plan explain, for fused plans and for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_EXPLAIN_H
#define GW_PLAN_EXPLAIN_H

#include "plan_run.h"

/* Solve and print; o was prepared. They return an exit code; other failures end the process. */
int plan_explain_fused(const plan_request *args, plan_opened *o);
int plan_explain_tree(const plan_request *args, plan_opened *o);

#endif
