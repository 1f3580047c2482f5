/*
 * Random planning problems from a seed: shared by the brute-force comparison and the property tests.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_RANDOM_H
#define GW_PLAN_RANDOM_H

#include "gradwire/plan.h"

#define RANDOM_TENSORS_MAX 24
#define RANDOM_METHODS_MAX 4
#define RANDOM_TABLE_MAX   5
#define RANDOM_CURVES      5 /* of a method that can be tables */

typedef struct plan_random {
    uint64_t state;
} plan_random;

/* A problem with its storage. */
typedef struct random_problem {
    gw_plan_problem problem;
    gw_plan_tensor tensors[RANDOM_TENSORS_MAX];
    gw_plan_method methods[RANDOM_METHODS_MAX];
    int64_t table_x[RANDOM_METHODS_MAX][RANDOM_CURVES][RANDOM_TABLE_MAX];
    gw_plan_tick table_y[RANDOM_METHODS_MAX][RANDOM_CURVES][RANDOM_TABLE_MAX];
} random_problem;

uint64_t random_next(plan_random *random);
/* Uniform in low..high. */
int64_t random_between(plan_random *random, int64_t low, int64_t high);

typedef enum random_shape {
    SHAPE_AFFINE, /* one method, affine, no decode */
    SHAPE_AFFINE_DECODE,
    SHAPE_MAXLIN,
    SHAPE_MAXLIN_DECODE,
    SHAPE_HINGE,
    SHAPE_HINGE_DECODE,
    SHAPE_ANY,   /* one method, any curves, either decode rule, CPU and owner's step possible */
    SHAPE_JOINT, /* 2 to 3 methods of any kind, forbidden methods, memory cap, bound of the error */
    SHAPE_COUNT
} random_shape;

extern const char *const random_shape_names[SHAPE_COUNT];

/* Values come from one of three generators, chosen at random: log-uniform over two decades, small integers
 * with many ties and zeros, real microseconds. */
void random_problem_make(plan_random *random, random_shape shape, uint32_t tensor_count, random_problem *out);

/* One curve, with storage for a table. */
gw_plan_cost random_cost(plan_random *random, int style, int kind, int64_t len_scale, int64_t *table_x,
                         gw_plan_tick *table_y);

#endif
