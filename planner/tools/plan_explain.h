/*
 * plan explain for fused plans.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_EXPLAIN_H
#define GW_PLAN_EXPLAIN_H

#include "plan_run.h"

/* Solves and prints; o was prepared. Returns an exit code; other failures end the process. */
int plan_explain_fused(const plan_request *args, plan_opened *o);

#endif
