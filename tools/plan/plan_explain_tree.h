/*
 * plan explain for option trees.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_EXPLAIN_TREE_H
#define GW_PLAN_EXPLAIN_TREE_H

#include "plan_opened.h"

/* Solves and says for every tensor which options come next. o was opened with every option. Exit code. */
int plan_explain_tree(const plan_args *args, plan_opened *o);

#endif
