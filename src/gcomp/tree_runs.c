/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/tree_runs.h"

static int is_single_label(const gw_node *node)
{
    return node->right == 0 && node->width == 0;
}

/*
 * Nodes come in preorder. A node of n values has two areas: its ranks, and a free one of n bytes plus 128 for
 * each depth below it. The ranks of the left child stay in the first area; those of the right child go to the
 * start of the second, the rest of which is free for the left subtree. After the left subtree, all of the
 * first area is free for the right one. (128 bytes: slop, and alignment of the next start.)
 */
int gw_write_runs(gw_run_writer *w, const gw_tree *tree, const gw_rank_array *array)
{
    typedef struct part {
        uint8_t *ranks;
        uint8_t *free;
        size_t len;
    } part;
    part parts[GW_NODES_MAX];

    parts[0].ranks = array->ranks;
    parts[0].free = array->free;
    parts[0].len = array->len;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const part *own = &parts[i];
        const size_t run_size = gw_run_size(own->len, node->right != 0 ? 1 : node->width);
        if (run_size > (size_t)(w->end - w->dst)) {
            return 0;
        }
        if (node->right != 0) {
            part *left = &parts[i + 1], *right = &parts[node->right];
            /* The ranks of a child that is a leaf of width 0 are not needed. */
            left->ranks = is_single_label(&tree->node[i + 1]) ? NULL : own->ranks;
            right->ranks = is_single_label(&tree->node[node->right]) ? NULL : own->free;
            right->len = w->kernels->gcomp.partition(left->ranks, right->ranks, w->dst, own->ranks, own->len,
                                                     (uint8_t)(node->pivot + array->more));
            left->len = own->len - right->len;
            right->free = own->ranks;
            left->free = own->free + ((right->len + 2 * GW_SLOP - 1) & ~(size_t)(GW_SLOP - 1));
            gw_store16(w->right_len, (uint16_t)right->len);
            w->right_len += 2;
        } else if (node->width != 0) {
            w->kernels->gcomp.pack(w->dst, own->ranks, own->len, node->width,
                                   (uint8_t)(node->first_rank + array->more));
        }
        w->dst += run_size;
    }
    return 1;
}

void gw_rank_mask(uint8_t *mask, size_t len, const gw_tree *tree, const gw_kernels *kernels)
{
    uint8_t rank[GW_LABELS];
    for (uint32_t byte = 0; byte < GW_LABELS; byte++) {
        const uint32_t has_code = tree->rank_of_label[byte] != GW_NO_RANK;
        rank[byte] = (uint8_t)(has_code ? tree->rank_of_label[byte] : 0);
    }
    kernels->gcomp.rank(mask, len, rank);
}

int gw_find_runs(gw_tree_runs *runs, const gw_tree *tree, size_t len, gw_part_cursor *c)
{
    runs->tree = tree;
    runs->node_len[0] = len;
    runs->node_at[0] = 0;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const size_t node_len = runs->node_len[i];
        runs->run[i] = gw_next_part(c, gw_run_size(node_len, node->right != 0 ? 1 : node->width));
        if (node->right != 0) {
            const size_t right_len = gw_next_count(c);
            if (right_len > node_len) {
                return 0;
            }
            runs->node_len[i + 1] = node_len - right_len;
            runs->node_at[i + 1] = runs->node_at[i];
            runs->node_len[node->right] = right_len;
            runs->node_at[node->right] = runs->node_at[i] + node_len - right_len;
        }
    }
    return 1;
}

/*
 * Offset of a node's labels in rank_buffer[depth & 1]: after those of the nodes to its left, with GW_SLOP
 * bytes between leaves, so that a kernel's stores after the end of one node do not reach the values of
 * another. The children of a node lie within its range of the other array.
 */
static size_t place_of(const gw_node *node, size_t values_before)
{
    return values_before + (size_t)GW_SLOP * node->first_leaf;
}

static gw_child child_of(const gw_tree_runs *runs, const uint8_t *rank_buffer, uint32_t index)
{
    const gw_node *node = &runs->tree->node[index];
    gw_child child;
    child.labels = is_single_label(node) ? NULL : rank_buffer + place_of(node, runs->node_at[index]);
    child.label = runs->tree->label_of_rank[node->first_rank];
    return child;
}

gw_status gw_read_runs(const gw_kernels *k, const gw_tree_runs *runs, uint8_t *const rank_buffer[2],
                       gw_ahead *ahead)
{
    const gw_tree *tree = runs->tree;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const uint32_t index = tree->postorder[i];
        const gw_node *node = &tree->node[index];
        const size_t len = runs->node_len[index];
        uint8_t *out = rank_buffer[node->depth & 1] + place_of(node, runs->node_at[index]);
        gw_ahead_step(ahead, len);
        if (node->right != 0) {
            const uint8_t *below = rank_buffer[(node->depth + 1) & 1];
            const size_t right_len =
                k->gcomp.merge(out, child_of(runs, below, index + 1), child_of(runs, below, node->right),
                               runs->run[index], len);
            if (right_len != runs->node_len[node->right]) {
                return GW_ERR_CORRUPT; /* merge read beyond a child, but within its array */
            }
        } else if (node->width != 0) {
            if (!k->gcomp.unpack(out, runs->run[index], len, node->width,
                                 tree->label_of_rank + node->first_rank)) {
                return GW_ERR_CORRUPT;
            }
        } else if (index == 0) {
            GW_MEMSET(out, tree->label_of_rank[0], len); /* one label in all; else child_of() passes it on */
        }
    }
    return GW_OK;
}
