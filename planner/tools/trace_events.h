/*
 * The events of a recording in Chrome's trace JSON: {"traceEvents": [{...}, ...]}.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TRACE_EVENTS_H
#define GW_TRACE_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "plan_model.h"

typedef enum trace_category {
    TRACE_OTHER = 0,
    TRACE_KERNEL,
    TRACE_RUNTIME,
    TRACE_CPU_OP,
    TRACE_ANNOTATION,
    TRACE_GRADWIRE /* of gradwire's DDP hook */
} trace_category;

/* A number as it stands in the text, so that only those that are used must make sense. */
typedef struct trace_number {
    char text[63];
    uint8_t kind; /* 0: the member is missing; 1: a number; 2: anything else */
} trace_number;

/* The longest option of a tree has 141 characters. */
#define TRACE_CODEC_SIZE 160

/* Members that are used; all others are skipped. Texts are cut to the size of their array. */
typedef struct trace_event {
    uint64_t offset; /* of the text, where the event begins */
    size_t number;   /* from 1 */
    trace_category category;
    int has_name;
    char name[128];
    trace_number ts, dur, tid;
    /* of "args" */
    trace_number correlation, msg_len, group_size, len, encoded_us;
    char collective[32], codec[TRACE_CODEC_SIZE];
    int has_text;
    char text[PLAN_NAME_MAX + 2]; /* "name"; longer than any valid name if it was cut */
    int64_t dims_len;             /* product of the first shape of "Input Dims"; -1: not recorded */
} trace_event;

/* A time or another number; fallback if the member is missing, NAN if it is no number. */
double trace_number_real(const trace_number *number, double fallback);

/* A whole number; fallback if the member is missing or no whole number of 64 bits. Those from 2^63 on become
 * negative: as numbers of threads they stay apart, as counts they are invalid. */
int64_t trace_number_whole(const trace_number *number, int64_t fallback);

/* Is given each event, and NULL where reading begins, which may be twice. Returns an exit code, which ends
 * it. */
typedef int trace_take(void *user, const trace_event *event);

/* Reads a recording, plain or gzip, whose text may have size_max bytes if it is gzip. Memory does not grow
 * with it. inf and NaN, which JSON does not know but profilers write, control characters in strings and
 * unknown escapes but \\u are accepted. Messages are printed with the byte offset in the inflated text; exit
 * codes of cli_common.h. */
int trace_events_read(const char *path, uint64_t size_max, trace_take *take, void *user);

#endif
