/*
 * Option trees: a model's groups with every option of ByteComp's grammar priced, for the solvers of plan.h. A
 * group is one tensor, as the paper has it, or neighbours that were fused before.
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
    int64_t *class_len;      /* a class: the groups of one size; largest first */
    gw_plan_group *groups;   /* [tree.tensor_count]: the tensors of each, whose method is not used */
    int64_t *group_len;      /* likewise, like the next three */
    uint32_t *tensor_class;
    gw_plan_tick *bwd;
    uint32_t *choice;  /* index into the vectors of the group's class */
    gw_plan_tree tree; /* its tensors are the groups */
} plan_tree;

/* Prices the options of the case's last method. cut: the groups; NULL: each tensor is one. reduce: keeps only
 * those that no other beats in all times; exact for plan_tree_solve(), but plan_tree_bytecomp() needs all.
 * Message printed, exit code; plan_tree_free() is needed in any case. */
int plan_tree_make(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan *cut, int reduce, plan_tree *t);
void plan_tree_free(plan_tree *t);
/* Makes a tree anew, with every option of these groups, like plan_tree_make(). */
int plan_tree_cut(const plan_library *library, const plan_case *c, const plan_model *model,
                  const gw_plan *cut, plan_tree *t);

/* Fill t->choice. Like plan_tree_job(), they end the process with a message on failure. */
void plan_tree_solve(plan_tree *t, const gw_plan_limits *limits, gw_plan_cert *cert);
void plan_tree_bytecomp(plan_tree *t, const plan_case *c, gw_plan_cert *cert);

/* Makes the choice of one tree in another that has at least its options: both list the options of the case in
 * one order, so an option has the same number in both. */
void plan_tree_copy_choice(const plan_tree *from, plan_tree *to);

/* The path of an option of a group, operations joined by '>'. */
void plan_tree_path(const plan_tree *t, uint32_t group, uint32_t choice, char *out, size_t out_size);
/* The choice with that path among the group's, GW_PLAN_NO_INDEX if there is none. */
uint32_t plan_tree_find(const plan_tree *t, uint32_t group, const char *path);
/* Its stages, for timelines. */
void plan_tree_job(const plan_tree *t, const plan_case *c, uint32_t group, uint32_t choice, gw_plan_job *job);

/* plan_tree_fuse.c: groups of neighbours that are fused before options are chosen; cut->groups is malloc'ed.
 * *stopped: a limit ended one of the searches early. Message printed, exit code. */
int plan_tree_fuse(const plan_library *library, const plan_case *c, const plan_model *model,
                   const gw_plan_limits *limits, gw_plan *cut, int *stopped);

#endif
