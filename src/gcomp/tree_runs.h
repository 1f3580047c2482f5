/*
 * The runs of a code tree (docs/format.md section 5.1): ranks to runs, and runs to labels.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_TREE_RUNS_H
#define GW_TREE_RUNS_H

#include "core/kernels.h"
#include "core/ahead.h"
#include "gcomp/codebook.h"

/* ---- write --------------------------------------------------------------------------------------------- */

/* Where the runs go. */
typedef struct gw_run_writer {
    const gw_kernels *kernels;
    uint8_t *right_len; /* counts of the next inner nodes */
    uint8_t *dst, *end;
} gw_run_writer;

/* The ranks that a tree codes. Each of the two arrays has room for len ranks and 128 bytes for each depth. */
typedef struct gw_rank_array {
    uint8_t *ranks, *free;
    size_t len;
    uint8_t more; /* every rank is larger by this than in the tree */
} gw_rank_array;

/* Writes the run of every node and the length of every right child. Returns 0 if the runs do not fit before
 * the end. */
int gw_write_runs(gw_run_writer *w, const gw_tree *tree, const gw_rank_array *array);

/* Bytes of a mask to their ranks in its tree, in place. */
void gw_rank_mask(uint8_t *mask, size_t len, const gw_tree *tree, const gw_kernels *kernels);

/* ---- read ---------------------------------------------------------------------------------------------- */

/* Where the next part of a chunk and its next count are. Offsets cannot overflow: there are at most 194 runs
 * and 7 planes of at most 2^15 values. */
typedef struct gw_part_cursor {
    const uint8_t *data;
    size_t size, at;
    const uint8_t *count;
} gw_part_cursor;

/* The caller compares c->at with c->size after the last part. */
static inline const uint8_t *gw_next_part(gw_part_cursor *c, size_t size)
{
    const uint8_t *part = c->data + (c->at <= c->size ? c->at : 0);
    c->at += size;
    return part;
}

static inline size_t gw_next_count(gw_part_cursor *c)
{
    const size_t count = gw_load16(c->count);
    c->count += 2;
    return count;
}

typedef struct gw_tree_runs {
    const gw_tree *tree;
    size_t node_len[GW_NODES_MAX];
    size_t node_at[GW_NODES_MAX]; /* number of values of the nodes to its left */
    const uint8_t *run[GW_NODES_MAX];
} gw_tree_runs;

/* Finds the runs of a tree of `len` values. Returns 0 if a right child has more values than its parent. */
int gw_find_runs(gw_tree_runs *runs, const gw_tree *tree, size_t len, gw_part_cursor *c);

/* The labels of the root in rank_buffer[0], from the leaves up: each node goes to its place in one of two
 * arrays, chosen by the parity of its depth. An array has room for len labels and 64 bytes for each leaf, and
 * as much may be read from the place of any node. Returns GW_OK or GW_ERR_CORRUPT. */
gw_status gw_read_runs(const gw_kernels *k, const gw_tree_runs *runs, uint8_t *const rank_buffer[2],
                       gw_ahead *ahead);

#endif
