/*
 * Codebooks: from counts to lengths, from lengths to the tree of docs/format.md section 5.1, to bytes and
 * back. mask_code.h has the classes of the zero mask.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CODEBOOK_H
#define GW_CODEBOOK_H

#include "gcomp/bins.h"
#include "core/gcomp_kernels.h"

enum {
    GW_CODE_LEN_MAX = 11,
    GW_LEAVES_MAX = 88, /* 11 lengths, at most 8 blocks (powers of two up to 128) each */
    GW_NODES_MAX = 2 * GW_LEAVES_MAX - 1,
    GW_PACKAGE_ROWS = GW_CODE_LEN_MAX - 1,
    GW_LEAF_SLOP = 4 /* leaves that the package-merge reads and writes at a time */
};

/* Classes of bytes of a zero mask (docs/format.md section 5.3): bytes ordered by the number of set bits and
 * then by value, cut into blocks of powers of two. */
enum { GW_MASK_CLASSES = 10 };

/* Window and code length of every label (0 = no code). A single label has length 1. */
typedef struct gw_codebook {
    uint8_t window_start;
    uint8_t is_relative;                 /* labels have relative exponents */
    uint8_t is_masked;                   /* zeros are coded in a zero mask: label 0 has no code */
    uint8_t mask_depth[GW_MASK_CLASSES]; /* masked: code length of every class, 0 = none */
    uint8_t length[GW_LABELS];
} gw_codebook;

typedef struct gw_node {
    uint16_t first_rank, end_rank; /* the ranks of its leaves */
    /* inner node: index of the right child (the left one is the next node); leaf: 0 */
    uint16_t right;
    uint8_t pivot; /* inner node: first rank of the right child */
    uint8_t width; /* leaf: bits of an index */
    uint8_t depth;
    uint8_t first_leaf; /* leaves to the left of this node */
} gw_node;

/* The tree of a codebook, nodes in preorder. */
typedef struct gw_tree {
    uint16_t label_count;
    uint16_t node_count;
    uint16_t inner_count;
    uint16_t escape_rank; /* GW_NO_RANK if label 1 has no code */
    uint16_t zero_rank;
    uint8_t label_of_rank[GW_LABELS + GW_SLOP]; /* unpack reads the part that belongs to its leaf */
    uint16_t rank_of_label[GW_LABELS];          /* GW_NO_RANK without a code */
    gw_node node[GW_NODES_MAX];
    uint8_t postorder[GW_NODES_MAX]; /* children before parents, left before right */
} gw_tree;

/* Scratch of the package-merge. */
typedef struct gw_codebook_scratch {
    uint32_t leaf[GW_LABELS + GW_LEAF_SLOP]; /* by weight */
    uint8_t label[GW_LABELS];                /* of the leaves */
    union {
        uint64_t key[2][GW_LABELS]; /* while they are sorted */
        uint32_t row[2][2 * GW_LABELS + GW_LEAF_SLOP];
    };
    /* by row; the deepest row has no packages */
    uint32_t package_count[GW_PACKAGE_ROWS];
    uint16_t package_place[GW_PACKAGE_ROWS][GW_LABELS];
} gw_codebook_scratch;

/* The bits of eight counts together. Most labels and bins have no counts: loops pass over eight of them. */
static inline uint32_t gw_any_of_eight(const uint32_t *count)
{
    uint32_t any = 0;
    for (unsigned i = 0; i < 8; i++) {
        any |= count[i];
    }
    return any;
}

/* Optimal code lengths of at most 11 bits for the labels with count > 0, by package-merge
 * (docs/encoder-profile.md). The sum of all counts is below 2^32 / 11. No label: all lengths 0. */
void gw_codebook_lengths(uint8_t length[GW_LABELS], const uint32_t count[GW_LABELS],
                         gw_codebook_scratch *scratch);

/* Code lengths of the classes with count > 0 (docs/encoder-profile.md). */
void gw_mask_depths(uint8_t depth[GW_MASK_CLASSES], const uint32_t count[GW_MASK_CLASSES],
                    gw_codebook_scratch *scratch);

/* The window for the largest ordinary exponent field E (docs/encoder-profile.md). */
uint8_t gw_codebook_window_start(uint32_t largest_exponent);

/* Exponent field of an ordinary label. */
static inline uint32_t gw_exponent_of_label(uint32_t label, uint32_t dtype, uint32_t derived,
                                            uint32_t window_start)
{
    if (derived) {
        return dtype == GW_FP16 ? label - 2 : label - 1;
    }
    return dtype == GW_FP16 ? (label >> 2) - 1 : (label >> 2) + window_start;
}

/* Builds the tree of the labels of a complete codebook. */
void gw_tree_build(gw_tree *tree, const gw_codebook *codebook);

/* Builds the tree of the zero mask of a complete masked codebook; its labels are the bytes of the mask. */
void gw_mask_tree_build(gw_tree *tree, const gw_codebook *codebook);

/* Serialised size and bytes; dst has room for GW_GCOMP_CODEBOOK_SIZE_MAX. */
size_t gw_codebook_size(const gw_codebook *codebook);
void gw_codebook_write(uint8_t *dst, const gw_codebook *codebook);

/* What labels a codebook may have. */
typedef struct gw_codebook_kind {
    uint32_t dtype;
    uint32_t derived;         /* derived labels: exponents alone */
    uint32_t may_be_relative; /* every value has a quantum: derived or carried, not constant */
} gw_codebook_kind;

/* Reads a codebook at src[0..size) and applies rule 20 of docs/format.md section 8. GW_OK and *used = its
 * bytes, or GW_ERR_CORRUPT. */
gw_status gw_codebook_read(gw_codebook *codebook, size_t *used, const uint8_t *src, size_t size,
                           gw_codebook_kind kind);

/* Fills in the table that the split reads. If zeros are masked, zero has rank 0 and every other rank is
 * larger by one than in the tree. */
void gw_ranker_build(gw_ranker *ranker, const gw_tree *tree, const gw_codebook *codebook);

#endif
