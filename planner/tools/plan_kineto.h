/*
 * Recordings in Chrome's trace JSON, plain or gzip: when each gradient was ready, and what was sent. Two
 * kinds: those of PyTorch's profiler (Kineto), with kernels and NCCL, and those of gradwire's DDP hook, whose
 * events have the category "gradwire" and state all times.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_KINETO_H
#define GW_PLAN_KINETO_H

#include <stddef.h>
#include <stdint.h>

#include "trace_events.h"

typedef struct plan_kineto_gradient {
    double ready_us; /* end of the kernel that wrote it, trace clock */
    int64_t len;     /* from recorded shapes; -1: not recorded */
    char *name;      /* owned; NULL: not recorded */
} plan_kineto_gradient;

typedef struct plan_kineto_collective {
    double start_us, duration_us;
    char name[32]; /* allreduce, broadcast, ...; "message": a bucket of the hook */
    int64_t len;   /* "In msg nelems" */
    int64_t group_size;
    char codec[TRACE_CODEC_SIZE]; /* of the hook's messages */
    double encoded_us; /* the same: when the last piece was encoded, from start_us; -1: not recorded */
} plan_kineto_collective;

typedef struct plan_kineto_step {
    double start_us, end_us;
    int64_t number;                  /* of ProfilerStep#N; -1 without annotation */
    plan_kineto_gradient *gradients; /* in order of their AccumulateGrad */
    size_t gradient_count;
} plan_kineto_step;

typedef struct plan_kineto {
    plan_kineto_step *steps;
    size_t step_count;
    plan_kineto_collective *collectives; /* by start */
    size_t collective_count;
    size_t event_count;
    int is_hook; /* made by the hook */
} plan_kineto;

/* Reads a recording; the text of a gzip file may have size_max bytes. Memory grows with the gradients, steps
 * and messages that are found (each limited), not with the file: at most 200 MB. A recording of more than a
 * million kernels is read two or three times. Messages are printed with the byte offset in the inflated text;
 * exit codes of cli_common.h. */
int plan_kineto_read(const char *path, uint64_t size_max, plan_kineto *trace);
void plan_kineto_free(plan_kineto *trace);

#endif
