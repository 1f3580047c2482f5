/*
 * Option trees: a model's tensors with every option of ByteComp's grammar priced, for the solvers of plan.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_PLAN_TREE_H
#define GW_PLAN_TREE_H

#include "plan_case.h"

#define PLAN_PATH_SIZE 320

typedef struct plan_tree {
    gw_plan_codec codec;
    gw_plan_option *options;
    uint32_t option_count;
    gw_plan_vector *vectors; /* of all classes, class by class; .option indexes options */
    uint32_t *class_first;   /* [class_count + 1] */
    int64_t *class_len;      /* a class: the tensors of one size; largest first */
    uint32_t *tensor_class;
    gw_plan_tick *bwd;
    uint32_t *choice; /* [tensor_count]: index into the vectors of the tensor's class */
    gw_plan_tree tree;
} plan_tree;

/* Prices the options of the case's last method. reduce: keeps only those that no other beats in all times;
 * exact for plan_tree_solve(), but plan_tree_bytecomp() needs all. Message printed, exit code;
 * plan_tree_free() is needed in any case. */
int plan_tree_make(const plan_library *library, const plan_case *c, const plan_model *model, int reduce,
                   plan_tree *t);
void plan_tree_free(plan_tree *t);

/* Fill t->choice. Like plan_tree_job(), they end the process with a message on failure. */
void plan_tree_solve(plan_tree *t, const gw_plan_limits *limits, gw_plan_cert *cert);
void plan_tree_bytecomp(plan_tree *t, const plan_case *c, gw_plan_cert *cert);

/* Makes the choice of one tree in another that has at least its options: both list the options of the case in
 * one order, so an option has the same number in both. */
void plan_tree_copy_choice(const plan_tree *from, plan_tree *to);

/* The path of an option, operations joined by '>'. */
void plan_tree_path(const plan_tree *t, uint32_t tensor, uint32_t choice, char *out, size_t out_size);
/* The choice with that path among the tensor's, GW_PLAN_NO_INDEX if there is none. */
uint32_t plan_tree_find(const plan_tree *t, uint32_t tensor, const char *path);
/* Its stages, for timelines. */
void plan_tree_job(const plan_tree *t, const plan_case *c, const plan_model *model, uint32_t tensor,
                   uint32_t choice, gw_plan_job *job);

#endif
