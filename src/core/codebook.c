/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/codebook.h"

/* ---- lengths ------------------------------------------------------------------------------------------- */

/* Leaves by (count, label). Insertion by shell gaps: at most 256 items, mostly in a few runs, no recursion,
 * no libc. The label is the tie-break, so the order does not depend on the algorithm. */
static uint32_t sort_leaves(gw_codebook_scratch *s, const uint32_t count[GW_LABELS])
{
    uint32_t n = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        if (count[label] != 0) {
            s->leaf[n] = count[label];
            s->label[n] = (uint8_t)label;
            n++;
        }
    }
    static const uint32_t gaps[5] = {57, 23, 10, 4, 1};
    for (unsigned g = 0; g < 5; g++) {
        uint32_t gap = gaps[g];
        for (uint32_t i = gap; i < n; i++) {
            uint32_t weight = s->leaf[i];
            uint8_t label = s->label[i];
            uint32_t j = i;
            while (j >= gap &&
                   (s->leaf[j - gap] > weight || (s->leaf[j - gap] == weight && s->label[j - gap] > label))) {
                s->leaf[j] = s->leaf[j - gap];
                s->label[j] = s->label[j - gap];
                j -= gap;
            }
            s->leaf[j] = weight;
            s->label[j] = label;
        }
    }
    return n;
}

void gw_codebook_lengths(uint8_t length[GW_LABELS], const uint32_t count[GW_LABELS], gw_codebook_scratch *s)
{
    GW_MEMSET(length, 0, GW_LABELS);
    const uint32_t n = sort_leaves(s, count);
    if (n <= 1) {
        if (n == 1) {
            length[s->label[0]] = 1;
        }
        return;
    }

    /* Package-merge (Larmore and Hirschberg 1990). The deepest row holds the leaves; every row above merges
     * the leaves with the packages (neighbouring pairs) of the row below. Only which items are packages needs
     * to be remembered. */
    uint32_t *below = s->list[0];
    uint32_t *row = s->list[1];
    uint32_t below_len = n;
    GW_MEMCPY(below, s->leaf, n * sizeof *below);
    GW_MEMSET(s->is_package, 0, sizeof s->is_package);
    for (unsigned level = GW_CODE_LEN_MAX - 1; level > 0; level--) {
        uint32_t *is_package = s->is_package[level - 1];
        uint32_t packages = below_len / 2;
        uint32_t leaf = 0, package = 0, len = 0;
        while (leaf < n || package < packages) {
            uint32_t weight = package < packages ? below[2 * package] + below[2 * package + 1] : 0;
            if (package == packages || (leaf < n && s->leaf[leaf] <= weight)) {
                row[len++] = s->leaf[leaf++];
            } else {
                is_package[len / 32] |= 1u << (len % 32);
                row[len++] = weight;
                package++;
            }
        }
        uint32_t *swap = below;
        below = row;
        row = swap;
        below_len = len;
    }

    /* The first 2n - 2 items of the top row are taken. A taken leaf adds one to its length; taken packages
     * are the first pairs of the row below. Leaves are taken in order, so each row only has a number of
     * them. */
    uint32_t taken = 2 * n - 2;
    for (unsigned level = 0; level < GW_CODE_LEN_MAX && taken > 0; level++) {
        uint32_t packages = 0;
        for (uint32_t i = 0; i < taken; i++) {
            packages += s->is_package[level][i / 32] >> (i % 32) & 1;
        }
        for (uint32_t i = 0; i < taken - packages; i++) {
            length[s->label[i]]++;
        }
        taken = 2 * packages;
    }
}

uint8_t gw_codebook_base(uint32_t largest_exponent)
{
    uint32_t base = largest_exponent + 4 > 63 ? largest_exponent + 4 - 63 : 0;
    return (uint8_t)gw_min_u32(base, 191);
}

/* ---- tree ---------------------------------------------------------------------------------------------- */

int gw_codebook_is_complete(const gw_codebook *book)
{
    uint32_t kraft = 0;
    uint32_t labels = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        uint32_t length = book->length[label];
        if (length > GW_CODE_LEN_MAX) {
            return 0;
        }
        if (length != 0) {
            kraft += 1u << (GW_CODE_LEN_MAX - length);
            labels++;
        }
    }
    return kraft == 1u << GW_CODE_LEN_MAX || (labels == 1 && kraft == 1u << (GW_CODE_LEN_MAX - 1));
}

typedef struct leaf {
    uint8_t depth;
    uint8_t width;
    uint8_t length; /* its labels are the ones of this code length ... */
    uint8_t skip;   /* ... after this many */
} leaf;

static uint32_t floor_log2(uint32_t x)
{
    uint32_t k = 0;
    while (x >> (k + 1) != 0) {
        k++;
    }
    return k;
}

/* Cuts the labels of every length into leaves and sorts those by depth, equals in order of creation. */
static uint32_t cut_leaves(leaf sorted[GW_LEAVES_MAX], const uint16_t labels_of_length[GW_CODE_LEN_MAX + 1])
{
    leaf cut[GW_LEAVES_MAX];
    uint32_t leaf_count = 0;
    uint8_t start[GW_CODE_LEN_MAX + 2] = {0};
    for (uint32_t length = 1; length <= GW_CODE_LEN_MAX; length++) {
        uint32_t skip = 0;
        while (skip < labels_of_length[length]) {
            uint32_t width = floor_log2(gw_min_u32(labels_of_length[length] - skip, 128));
            cut[leaf_count].depth = (uint8_t)(length - width);
            cut[leaf_count].width = (uint8_t)width;
            cut[leaf_count].length = (uint8_t)length;
            cut[leaf_count].skip = (uint8_t)skip;
            start[length - width + 1]++;
            leaf_count++;
            skip += 1u << width;
        }
    }
    for (uint32_t depth = 1; depth <= GW_CODE_LEN_MAX; depth++) {
        start[depth] = (uint8_t)(start[depth] + start[depth - 1]);
    }
    for (uint32_t i = 0; i < leaf_count; i++) {
        sorted[start[cut[i].depth]++] = cut[i];
    }
    return leaf_count;
}

void gw_tree_build(gw_tree *tree, const gw_codebook *book)
{
    /* Labels by length, in increasing order within a length. */
    uint16_t labels_of_length[GW_CODE_LEN_MAX + 1] = {0};
    uint16_t first_of_length[GW_CODE_LEN_MAX + 2] = {0};
    uint8_t labels[GW_LABELS];
    uint32_t label_count = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        tree->rank_of_label[label] = GW_NO_RANK;
        if (book->length[label] != 0) {
            labels_of_length[book->length[label]]++;
            label_count++;
        }
    }
    for (uint32_t length = 1; length <= GW_CODE_LEN_MAX; length++) {
        first_of_length[length + 1] = (uint16_t)(first_of_length[length] + labels_of_length[length]);
    }
    uint16_t next[GW_CODE_LEN_MAX + 2];
    GW_MEMCPY(next, first_of_length, sizeof next);
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        if (book->length[label] != 0) {
            labels[next[book->length[label]]++] = (uint8_t)label;
        }
    }

    leaf leaves[GW_LEAVES_MAX];
    uint32_t leaf_count = cut_leaves(leaves, labels_of_length);
    if (label_count == 1) {
        leaves[0].depth = 0; /* the code of a single label is empty */
    }

    tree->label_count = (uint16_t)label_count;
    tree->inner_count = (uint16_t)(leaf_count - 1);
    tree->node_count = 0;

    /* Preorder: go down on the left until the leaf's depth, place it, go back to the last inner node that
     * still lacks its right child. Lengths are complete, so this closes exactly at the last leaf. */
    uint8_t open[GW_CODE_LEN_MAX + 1];
    uint32_t open_count = 0;
    uint32_t depth = 0;
    uint32_t rank = 0;
    uint32_t post_count = 0;
    for (uint32_t i = 0; i < leaf_count; i++) {
        for (; depth < leaves[i].depth; depth++) {
            gw_node *inner = &tree->node[tree->node_count];
            inner->first_rank = (uint16_t)rank;
            inner->right = 0;
            inner->width = 0;
            inner->depth = (uint8_t)depth;
            inner->first_leaf = (uint8_t)i;
            open[open_count++] = (uint8_t)tree->node_count++;
        }
        gw_node *node = &tree->node[tree->node_count];
        node->first_rank = (uint16_t)rank;
        node->right = 0;
        node->pivot = 0;
        node->width = leaves[i].width;
        node->depth = (uint8_t)depth;
        node->first_leaf = (uint8_t)i;
        uint32_t size = 1u << leaves[i].width;
        const uint8_t *source = labels + first_of_length[leaves[i].length] + leaves[i].skip;
        for (uint32_t j = 0; j < size; j++) {
            tree->label_of_rank[rank + j] = source[j];
            tree->rank_of_label[source[j]] = (uint16_t)(rank + j);
        }
        rank += size;
        node->end_rank = (uint16_t)rank;
        tree->postorder[post_count++] = (uint8_t)tree->node_count++;

        /* Inner nodes whose right child was just completed are complete themselves. */
        while (open_count > 0 && tree->node[open[open_count - 1]].right != 0) {
            gw_node *done = &tree->node[open[--open_count]];
            done->end_rank = (uint16_t)rank;
            tree->postorder[post_count++] = open[open_count];
        }
        if (open_count > 0) {
            gw_node *parent = &tree->node[open[open_count - 1]];
            parent->right = tree->node_count;
            parent->pivot = (uint8_t)rank;
            depth = parent->depth + 1u;
        }
    }
    tree->escape_rank = tree->rank_of_label[GW_LABEL_ESCAPE];
    tree->zero_rank = tree->rank_of_label[GW_LABEL_ZERO];
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* Smallest and largest ordinary label with a code, 0 and 0 if there is none. */
static void ordinary_range(const gw_codebook *book, uint32_t *first, uint32_t *last)
{
    *first = 0;
    *last = 0;
    for (uint32_t label = 2; label < GW_LABELS; label++) {
        if (book->length[label] != 0) {
            *first = *first == 0 ? label : *first;
            *last = label;
        }
    }
}

static size_t size_of_range(uint32_t first, uint32_t last)
{
    return first == 0 ? 4 : 4 + gw_round4((last - first + 2) / 2);
}

size_t gw_codebook_size(const gw_codebook *book)
{
    uint32_t first, last;
    ordinary_range(book, &first, &last);
    return size_of_range(first, last);
}

void gw_codebook_write(uint8_t *dst, const gw_codebook *book)
{
    uint32_t first, last;
    ordinary_range(book, &first, &last);
    GW_MEMSET(dst, 0, size_of_range(first, last));
    dst[0] = book->base;
    dst[1] = (uint8_t)first;
    dst[2] = (uint8_t)last;
    dst[3] = (uint8_t)(book->length[GW_LABEL_ZERO] | book->length[GW_LABEL_ESCAPE] << 4);
    for (uint32_t label = first; first != 0 && label <= last; label++) {
        uint32_t at = label - first;
        dst[4 + at / 2] = (uint8_t)(dst[4 + at / 2] | book->length[label] << (at % 2 * 4));
    }
}

/* 1 if the label can occur for this dtype and kind of levels (docs/format.md section 3). */
static int is_possible_label(uint32_t label, uint32_t dtype, uint32_t derived)
{
    if (derived) {
        return dtype != GW_FP16 || label <= 32;
    }
    return label >= 4 && (dtype != GW_FP16 || label < 128);
}

gw_status gw_codebook_read(gw_codebook *book, size_t *used, const uint8_t *src, size_t size, uint32_t dtype,
                           uint32_t derived)
{
    GW_MEMSET(book, 0, sizeof *book);
    *used = 0;
    if (size < 4) {
        return GW_ERR_CORRUPT;
    }
    const uint32_t base = src[0], first = src[1], last = src[2];
    book->base = (uint8_t)base;
    book->length[GW_LABEL_ZERO] = src[3] & 15;
    book->length[GW_LABEL_ESCAPE] = src[3] >> 4;
    if (base > 191 || (base != 0 && (dtype == GW_FP16 || derived))) {
        return GW_ERR_CORRUPT;
    }
    if (first == 0 ? last != 0 : last < first || first < 2) {
        return GW_ERR_CORRUPT;
    }
    const size_t book_size = size_of_range(first, last);
    if (size < book_size) {
        return GW_ERR_CORRUPT;
    }
    if (first != 0) {
        for (uint32_t label = first; label <= last; label++) {
            uint32_t at = label - first;
            uint32_t length = (uint32_t)src[4 + at / 2] >> (at % 2 * 4) & 15;
            if (length != 0 && !is_possible_label(label, dtype, derived)) {
                return GW_ERR_CORRUPT;
            }
            book->length[label] = (uint8_t)length;
        }
        if (book->length[first] == 0 || book->length[last] == 0) {
            return GW_ERR_CORRUPT;
        }
        const uint32_t nibbles = last - first + 1;
        if (nibbles % 2 != 0 && src[4 + nibbles / 2] >> 4 != 0) {
            return GW_ERR_CORRUPT;
        }
        const size_t end = 4 + (nibbles + 1) / 2;
        if (!gw_is_zero(src + end, book_size - end)) {
            return GW_ERR_CORRUPT;
        }
    }
    if (!gw_codebook_is_complete(book)) {
        return GW_ERR_CORRUPT;
    }
    *used = book_size;
    return GW_OK;
}

/* ---- lookups ------------------------------------------------------------------------------------------- */

void gw_ranker_build(gw_ranker *ranker, const gw_tree *tree, uint32_t base)
{
    ranker->base = base;
    ranker->escape_rank = tree->escape_rank;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const uint32_t rank = tree->rank_of_label[label];
        const uint32_t missing = tree->escape_rank == GW_NO_RANK ? 255 : tree->escape_rank;
        ranker->rank[label] = (uint8_t)(rank == GW_NO_RANK ? missing : rank);
    }
}
