/*
 * Recordings of BytePS: tensor_ready.json says when gradients were ready, comm.json (BYTEPS_TRACE_ON=1)
 * when the communication of each tensor started and how long it took.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_BYTEPS_H
#define GW_PLAN_BYTEPS_H

#include "plan_model.h"

/* All functions print their message and return an exit code. params gives sizes by name; a recorded name
 * may have a prefix that ends with a dot ("Gradient.fc.bias"). */

/* {"TensorReadyTraceEvents": [{"name", "ts", ...}]}, us. The last complete step. params NULL: sizes are in
 * members "elems" or "size". */
int plan_byteps_read_ready(const char *path, const plan_model *params, plan_model *model);

/* {"traceEvents": [{"args": {"name": "Comm.NAME"}, "tid": "total", "ts", "dur"}, ...]}, us; events of
 * partitions are ignored. The start of a tensor's communication is taken for the time when it was ready.
 * The last step in which every tensor occurs. */
int plan_byteps_read_comm(const char *path, const plan_model *params, plan_model *model);

/* The shortest recorded duration of each tensor of comm.json with its size. *points is malloc'ed. *widest
 * is the largest ratio of longest to shortest duration of one tensor. */
int plan_byteps_read_points(const char *path, const plan_model *params, gw_plan_point **points, size_t *count,
                            double *widest);

#endif
