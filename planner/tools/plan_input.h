/*
 * What kind of file an input is, and models from those that hold one.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_INPUT_H
#define GW_PLAN_INPUT_H

#include "plan_model.h"

typedef enum plan_input {
    PLAN_INPUT_TEXT,         /* CSV, nccl-tests; also files that cannot be read */
    PLAN_INPUT_KINETO,       /* profiler recording, plain or gzip */
    PLAN_INPUT_BYTEPS_READY, /* tensor_ready.json */
    PLAN_INPUT_BYTEPS_COMM,  /* comm.json */
    PLAN_INPUT_JSON          /* any other JSON object */
} plan_input;

/* By the first 64 KiB of the file; reads nothing from "-", standard input. */
plan_input plan_input_kind(const char *path);

/* A model with backprop times, from CSV or BytePS's tensor_ready.json. Message printed, exit code. */
int plan_input_model(const char *path, plan_model *model);

/* Refuses a model without sizes, of which every plan is equally good, and frees it. Message printed, exit
 * code. */
int plan_input_check_sizes(const char *path, plan_model *model);

#endif
