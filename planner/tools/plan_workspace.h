/*
 * The solvers' workspace: grown on demand and kept until the program ends.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_WORKSPACE_H
#define GW_PLAN_WORKSPACE_H

#include "gradwire/gradwire.h"

/* A workspace of `size` bytes; data is NULL when out of memory. */
gw_workspace plan_workspace(size_t size);

#endif
