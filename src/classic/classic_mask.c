/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_mask.h"

/* Bytes of a node's run. */
static size_t node_run_size(const gw_node *node, size_t len)
{
    return gw_run_size(len, node->right != 0 ? 1 : node->width);
}

static size_t counts_size(const gw_tree *tree)
{
    return gw_round4(2 * (size_t)tree->inner_count);
}

/* ---- write --------------------------------------------------------------------------------------------- */

/* The ranks of a node, and memory that its subtree may use. */
typedef struct part {
    uint8_t *ranks, *free;
    size_t len;
} part;

/*
 * Writes counts and runs to dst[0..limit). Returns their size, or 0 if they do not fit. Nodes come in
 * preorder: the ranks of a left child stay where those of its parent were, those of the right child go to the
 * start of the free area, the rest of which the left subtree gets; the right one gets the parent's.
 */
static size_t write_tree(uint8_t *dst, size_t limit, size_t len, const gw_kernels *kernels,
                         gw_mask_scratch *s)
{
    const gw_tree *tree = &s->tree;
    part parts[GW_NODES_MAX];
    uint8_t *count = dst;
    size_t at = counts_size(tree);
    if (at > limit) {
        return 0;
    }
    GW_MEMSET(dst, 0, at);
    parts[0].ranks = s->area[0];
    parts[0].free = s->area[1];
    parts[0].len = len;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const part own = parts[i];
        const size_t size = node_run_size(node, own.len);
        if (size > limit - at) {
            return 0;
        }
        if (node->right != 0) {
            part *left = &parts[i + 1], *right = &parts[node->right];
            right->len =
                kernels->gcomp.partition(own.ranks, own.free, dst + at, own.ranks, own.len, node->pivot);
            right->ranks = own.free;
            right->free = own.ranks;
            left->ranks = own.ranks;
            left->len = own.len - right->len;
            left->free = own.free + ((right->len + 2 * GW_SLOP - 1) & ~(size_t)(GW_SLOP - 1));
            gw_store16(count, (uint16_t)right->len);
            count += 2;
        } else if (node->width != 0) {
            kernels->gcomp.pack(dst + at, own.ranks, own.len, node->width, (uint8_t)node->first_rank);
        }
        at += size;
    }
    return at;
}

/* Makes the code of a mask and turns its bytes, in area[0], into ranks. */
static void rank_bytes(size_t byte_len, const gw_kernels *kernels, gw_mask_scratch *s)
{
    uint32_t count[GW_MASK_CLASSES] = {0};
    uint8_t rank[GW_LABELS];
    gw_mask_count(count, s->area[0], byte_len);
    gw_mask_depths(s->book.mask_depth, count, &s->codebook);
    gw_mask_tree_build(&s->tree, &s->book);
    for (uint32_t byte = 0; byte < GW_LABELS; byte++) {
        const uint32_t has_code = s->tree.rank_of_label[byte] != GW_NO_RANK;
        rank[byte] = (uint8_t)(has_code ? s->tree.rank_of_label[byte] : 0);
    }
    kernels->gcomp.rank(s->area[0], byte_len, rank);
}

size_t gw_mask_write(uint8_t *dst, const uint8_t *bits, size_t len, const gw_kernels *kernels,
                     gw_mask_scratch *scratch)
{
    const size_t byte_len = (len + 7) / 8, raw_size = gw_run_size(len, 1);
    if (len == 0) {
        return 0;
    }
    GW_MEMCPY(scratch->area[0], bits, byte_len);
    rank_bytes(byte_len, kernels, scratch);
    const size_t size = write_tree(dst + GW_MASK_TABLE_SIZE, raw_size, byte_len, kernels, scratch);
    const int is_coded = size < raw_size && (size != 0 || scratch->tree.node_count == 1);
    GW_MEMSET(dst, 0, GW_MASK_TABLE_SIZE);
    if (!is_coded) {
        GW_MEMCPY(dst + GW_MASK_TABLE_SIZE, bits, raw_size);
        return GW_MASK_TABLE_SIZE + raw_size;
    }
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        dst[c / 2] = (uint8_t)(dst[c / 2] | scratch->book.mask_depth[c] << 4 * (c % 2));
    }
    return GW_MASK_TABLE_SIZE + size;
}

/* ---- read ---------------------------------------------------------------------------------------------- */

/* Code lengths of the classes. Returns how many have one, or GW_MASK_CLASSES + 1 if they are not a complete
 * code. */
static uint32_t read_table(uint8_t depth[GW_MASK_CLASSES], const uint8_t *src)
{
    uint32_t used = 0, kraft = 0;
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        depth[c] = src[c / 2] >> 4 * (c % 2) & 15;
        if (depth[c] > GW_CODE_LEN_MAX) {
            return GW_MASK_CLASSES + 1;
        }
        used += depth[c] != 0;
        kraft += depth[c] != 0 ? 1u << (GW_CODE_LEN_MAX - depth[c]) : 0;
    }
    const uint32_t whole = 1u << GW_CODE_LEN_MAX;
    const int is_complete = used == 0 || kraft == whole || (used == 1 && kraft == whole / 2);
    return is_complete && gw_is_zero(src + 5, GW_MASK_TABLE_SIZE - 5) ? used : GW_MASK_CLASSES + 1;
}

/* Where the nodes of a tree are. */
typedef struct node_places {
    size_t len[GW_NODES_MAX];
    size_t before[GW_NODES_MAX]; /* values of nodes to the left */
    const uint8_t *run[GW_NODES_MAX];
} node_places;

/* Returns the size of counts and runs, or SIZE_MAX. */
static size_t find_nodes(node_places *places, const gw_tree *tree, size_t len, const uint8_t *src,
                         size_t size)
{
    size_t at = counts_size(tree), count_at = 0;
    const size_t counts_end = 2 * (size_t)tree->inner_count;
    if (at > size || !gw_is_zero(src + counts_end, at - counts_end)) {
        return SIZE_MAX;
    }
    places->len[0] = len;
    places->before[0] = 0;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const size_t run_size = node_run_size(node, places->len[i]);
        if (run_size > size - at) {
            return SIZE_MAX;
        }
        places->run[i] = src + at;
        at += run_size;
        if (node->right != 0) {
            const size_t right_len = gw_load16(src + count_at);
            count_at += 2;
            if (right_len > places->len[i]) {
                return SIZE_MAX;
            }
            places->len[i + 1] = places->len[i] - right_len;
            places->before[i + 1] = places->before[i];
            places->len[node->right] = right_len;
            places->before[node->right] = places->before[i] + places->len[i + 1];
        }
    }
    return at;
}

static size_t place_of(const gw_node *node, size_t before)
{
    return before + (size_t)GW_SLOP * node->first_leaf;
}

static gw_child child_of(const gw_tree *tree, const node_places *places, const uint8_t *area, uint32_t index)
{
    const gw_node *node = &tree->node[index];
    const int is_single = node->right == 0 && node->width == 0;
    const gw_child child = {is_single ? NULL : area + place_of(node, places->before[index]),
                            tree->label_of_rank[node->first_rank]};
    return child;
}

/* The bytes of the mask to area[0], from the leaves up: nodes of even depth are in area[0]. 0: not a mask. */
static int read_tree(const node_places *places, const gw_kernels *kernels, gw_mask_scratch *s)
{
    const gw_tree *tree = &s->tree;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const uint32_t index = tree->postorder[i];
        const gw_node *node = &tree->node[index];
        const size_t len = places->len[index];
        uint8_t *const out = s->area[node->depth & 1] + place_of(node, places->before[index]);
        const uint8_t *below = s->area[(node->depth + 1) & 1];
        if (node->right != 0) {
            const gw_child left = child_of(tree, places, below, index + 1);
            const gw_child right = child_of(tree, places, below, node->right);
            if (kernels->gcomp.merge(out, left, right, places->run[index], len) != places->len[node->right]) {
                return 0;
            }
        } else if (node->width != 0) {
            if (!kernels->gcomp.unpack(out, places->run[index], len, node->width,
                                       tree->label_of_rank + node->first_rank)) {
                return 0;
            }
        } else if (index == 0) {
            GW_MEMSET(out, tree->label_of_rank[0], len);
        }
    }
    return 1;
}

size_t gw_mask_read(uint8_t *bits, size_t len, const uint8_t *src, size_t size, const gw_kernels *kernels,
                    gw_mask_scratch *scratch)
{
    const size_t byte_len = (len + 7) / 8, raw_size = gw_run_size(len, 1);
    node_places places;
    if (len == 0) {
        return 0;
    }
    if (size < GW_MASK_TABLE_SIZE) {
        return SIZE_MAX;
    }
    const uint32_t used = read_table(scratch->book.mask_depth, src);
    src += GW_MASK_TABLE_SIZE;
    size -= GW_MASK_TABLE_SIZE;
    if (used > GW_MASK_CLASSES || (used == 0 && raw_size > size)) {
        return SIZE_MAX;
    }
    if (used == 0) {
        GW_MEMCPY(bits, src, raw_size);
        return GW_MASK_TABLE_SIZE + raw_size;
    }
    gw_mask_tree_build(&scratch->tree, &scratch->book);
    const size_t tree_size = find_nodes(&places, &scratch->tree, byte_len, src, size);
    if (tree_size == SIZE_MAX || !read_tree(&places, kernels, scratch)) {
        return SIZE_MAX;
    }
    GW_MEMCPY(bits, scratch->area[0], byte_len);
    GW_MEMSET(bits + byte_len, 0, raw_size - byte_len);
    return GW_MASK_TABLE_SIZE + tree_size;
}
