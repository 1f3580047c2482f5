/*
 * JSON files: reading them, members with a range, writing them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_JSON_H
#define GW_PLAN_JSON_H

#include <jansson.h>

#include "gradwire/plan.h"

/* What is read, for messages: "PATH: WHERE: ...". code: an exit code; once it is not GW_CLI_OK, the functions
 * that take a place do nothing, so that it is enough to look at it after the last of them. */
typedef struct plan_place {
    const char *path, *where;
    int code;
} plan_place;

/* Prints a message unless there was one before; returns place->code, which is then GW_CLI_BAD_DATA. */
int plan_json_bad(plan_place *place, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Jansson needs up to 20 times the size of the text. A plan has about 230 bytes for each gradient with
 * a name of 60 bytes: 15 MiB for 65535, the most there may be. */
#define PLAN_JSON_SIZE_MAX ((size_t)32 << 20)

/* JSON from a file, whatever its value; flags of Jansson. NULL with a message on failure. is_quiet: without
 * one for what is in the file. */
json_t *plan_json_read(const char *path, size_t flags, int is_quiet);

/* An object, from a file or, if text is not NULL, from text. NULL with a message on failure. */
json_t *plan_json_load(const char *path, const char *text);

/* A member in microseconds; fallback if it is missing, NAN: it must be there. */
void plan_json_ticks(plan_place *place, json_t *object, const char *key, double fallback,
                     gw_plan_tick *ticks);
/* Refuses keys that are not in the list, which ends with NULL. */
void plan_json_known(plan_place *place, json_t *object, const char *const *keys);
/* true or false; missing: false. */
void plan_json_flag(plan_place *place, json_t *object, const char *key, int *value);
/* A whole member in min..max; *value keeps its value, which is checked too, if the member is missing. */
void plan_json_whole(plan_place *place, json_t *object, const char *key, int64_t min, int64_t max,
                     int64_t *value);
/* A number from 0 to 2^20; missing: 0. */
void plan_json_error(plan_place *place, json_t *object, const char *key, double *value);

/* Writes JSON to a file ("-": stdout), releases it; flags of Jansson. Ends the process with a message on
 * failure. */
void plan_json_write(json_t *object, const char *path, size_t flags);
#define PLAN_JSON_INDENTED (JSON_INDENT(1) | JSON_REAL_PRECISION(17))

/* Prints the report of a verb if is_wanted, and releases it; returns an exit code. */
int plan_json_end(json_t *report, int is_wanted);

/* Index of a name in a list that ends with NULL; -1: it is not there, or NULL. */
int plan_name_index(const char *const *names, const char *name);

/* Names of the kinds of curves, by gw_plan_cost_kind; NULL ends them. */
extern const char *const plan_curve_kinds[5];

/* A curve: {"kind": "affine|maxlin|hinge|table", "a_us", "b_us", "knee", "t", "points": [[elems, us], ...]}.
 * plan_curve_free() also after a failure. */
void plan_curve_parse(plan_place *place, json_t *object, gw_plan_cost *cost);
void plan_curve_free(gw_plan_cost *cost);
json_t *plan_curve_json(const gw_plan_cost *cost);

#endif
