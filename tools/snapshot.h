/*
 * Snapshots: a JSON description of a training step and the .npy arrays that belong to it.
 *
 *   NAME.json                  "optimizer", "step", "hyper" (PyTorch's names), optionally "tensors"
 *   NAME-grad.npy              the gradient
 *   NAME-param.npy             the parameters before the update
 *   NAME-momentum_buffer.npy, NAME-exp_avg.npy, NAME-exp_avg_sq.npy, NAME-max_exp_avg_sq.npy, NAME-sum.npy,
 *   NAME-square_avg.npy, NAME-grad_avg.npy
 *                              the optimizer's state before the update
 *
 * docs/cli.md describes the JSON keys.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SNAPSHOT_H
#define GW_SNAPSHOT_H

#include "gradwire/gcomp.h"
#include "npy.h"

enum {
    GW_SNAPSHOT_GRAD = 0, /* fp32, bf16 or fp16; the others are fp32 */
    GW_SNAPSHOT_PARAM,
    GW_SNAPSHOT_M,
    GW_SNAPSHOT_V,
    GW_SNAPSHOT_A,
    GW_SNAPSHOT_ARRAY_COUNT
};

typedef struct gw_snapshot {
    gw_optimizer optimizer;
    gw_optimizer_state state; /* pointers into the arrays below; NULL if the optimizer has none */
    uint64_t len;
    gw_input_file json;
    gw_npy array[GW_SNAPSHOT_ARRAY_COUNT];
    char *path[GW_SNAPSHOT_ARRAY_COUNT]; /* names of the arrays, NULL for those that are not used */
} gw_snapshot;

typedef struct gw_snapshot_options {
    gw_npy_u2 u2;         /* what '<u2' of NAME-grad.npy means */
    int needs_grad;       /* 0: decompression, which makes the gradient */
    gw_optimizer_kind as; /* 0, or the optimizer to use instead, with the same hyperparameters */
} gw_snapshot_options;

/* End the process with a message if something is wrong. *input is the open JSON file; it moves into the
 * snapshot and is zeroed. */
void gw_snapshot_open_input(gw_snapshot *snapshot, gw_input_file *input, const gw_snapshot_options *options);
void gw_snapshot_open(gw_snapshot *snapshot, const char *path, const gw_snapshot_options *options);
void gw_snapshot_close(gw_snapshot *snapshot);

/* 1 if path names the JSON file or one of the arrays of the snapshot. */
int gw_snapshot_has_file(const gw_snapshot *snapshot, const char *path);

/* "sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"; "unknown" for anything else. */
const char *gw_optimizer_name(gw_optimizer_kind kind);

/* 1 if the optimizer keeps the second moment of its gradients. */
int gw_optimizer_has_second_moment(gw_optimizer_kind kind);

/* 0 for an unknown name. "sgdm" is "momentum". */
gw_optimizer_kind gw_optimizer_from_name(const char *name);

#endif
