/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/codebook.h"
#include "gcomp/mask_code.h"

/* ---- lengths ------------------------------------------------------------------------------------------- */

/* Sorts a few keys, (count, label) each, in place. */
static void sort_few(uint64_t *key, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const uint64_t own = key[i];
        uint32_t place = i;
        for (; place > 0 && key[place - 1] > own; place--) {
            key[place] = key[place - 1];
        }
        key[place] = own;
    }
}

/* Sorts keys, (count, label) each, that are listed by label: a stable sort by the digits of the counts is
 * enough, two for counts below 2^14. `all` has the bits of all counts. Returns where the sorted keys are. */
static const uint64_t *sort_by_digits(gw_codebook_scratch *s, uint32_t n, uint32_t all)
{
    enum { DIGIT_BITS = 7, DIGITS = 1 << DIGIT_BITS };
    uint64_t *key = s->key[0], *next = s->key[1];
    for (unsigned shift = 0; shift < 32 && all >> shift != 0; shift += DIGIT_BITS) {
        uint32_t start[DIGITS + 1] = {0};
        for (uint32_t i = 0; i < n; i++) {
            start[(key[i] >> (8 + shift) & (DIGITS - 1)) + 1]++;
        }
        for (uint32_t digit = 1; digit < DIGITS; digit++) {
            start[digit] += start[digit - 1];
        }
        for (uint32_t i = 0; i < n; i++) {
            next[start[key[i] >> (8 + shift) & (DIGITS - 1)]++] = key[i];
        }
        uint64_t *swap = key;
        key = next;
        next = swap;
    }
    return key;
}

/* Lists the labels with count > 0, sorted by (count, label). Returns how many there are. */
static uint32_t sort_leaves(gw_codebook_scratch *s, const uint32_t count[GW_LABELS])
{
    enum { FEW = 24 }; /* so few are sorted sooner by insertion than by their digits */
    const uint64_t *key = s->key[0];
    uint32_t n = 0, all = 0;
    for (uint32_t first = 0; first < GW_LABELS; first += 8) {
        const uint32_t any = gw_any_of_eight(count + first);
        all |= any;
        for (uint32_t label = first; any != 0 && label < first + 8; label++) {
            s->key[0][n] = (uint64_t)count[label] << 8 | label;
            n += count[label] != 0;
        }
    }
    if (n <= FEW) {
        sort_few(s->key[0], n);
    } else {
        key = sort_by_digits(s, n, all);
    }
    for (uint32_t i = 0; i < n; i++) {
        s->leaf[i] = (uint32_t)(key[i] >> 8);
        s->label[i] = (uint8_t)key[i];
    }
    for (uint32_t i = n; i < n + GW_LEAF_SLOP; i++) {
        s->leaf[i] = UINT32_MAX; /* heavier than any package */
    }
    return n;
}

/* Package-merge (Larmore and Hirschberg 1990). The deepest row holds the leaves; every row above merges the
 * leaves with the packages (neighbouring pairs) of the row below, a leaf before a package of equal weight.
 * Only the positions of the packages are kept.
 *
 * Two neighbouring rows agree up to the first package that was made of items in which the two rows below them
 * differ. The items before it are copied: 38 to 54 % of all items on real gradients. */
static void build_rows(gw_codebook_scratch *s, uint32_t n)
{
    const uint32_t *below = s->leaf;
    uint32_t below_len = n;
    uint32_t shared = 0; /* items, from the first, in which `below` agrees with the row below it */
    for (unsigned r = 0; r < GW_PACKAGE_ROWS; r++) {
        uint32_t *row = s->row[r % 2];
        uint16_t *place = s->package_place[r];
        const uint32_t kept = shared / 2, packages = below_len / 2;
        uint32_t len = 0;
        if (kept != 0) {
            len = s->package_place[r - 1][kept - 1] + 1u;
            GW_MEMCPY(row, below, len * sizeof *row);
            GW_MEMCPY(place, s->package_place[r - 1], kept * sizeof *place);
        }
        const uint32_t *leaf = s->leaf + (len - kept);
        for (uint32_t package = kept; package < packages; package++) {
            const uint32_t weight = below[2 * package] + below[2 * package + 1];
            /* The leaves up to that weight, counted four at a time, because a branch on their number would be
             * mispredicted. The comparisons are written out: clang 14 vectorizes a loop, and the lengths then
             * take two thirds longer. */
            _Static_assert(GW_LEAF_SLOP == 4, "leaves at a time");
            uint32_t lighter;
            do {
                uint32_t *const next = row + len;
                const uint32_t x0 = leaf[0], x1 = leaf[1], x2 = leaf[2], x3 = leaf[3];
                next[0] = x0;
                next[1] = x1;
                next[2] = x2;
                next[3] = x3;
                lighter =
                    ((uint32_t)(x0 <= weight) + (x1 <= weight)) + ((uint32_t)(x2 <= weight) + (x3 <= weight));
                leaf += lighter;
                len += lighter;
            } while (lighter == GW_LEAF_SLOP);
            place[package] = (uint16_t)len;
            row[len++] = weight;
        }
        while (leaf < s->leaf + n) {
            row[len++] = *leaf++;
        }
        shared = kept < packages ? place[kept] : len;
        s->package_count[r] = packages;
        below = row;
        below_len = len;
    }
}

/* The first 2n - 2 items of the top row are taken. A taken leaf adds one to the length of its code; a taken
 * package takes its pair of items in the row below. Leaves are taken in order, so the number of leaves taken
 * describes a row. It does not grow from a row to the one below. */
static void take_items(uint8_t length[GW_LABELS], const gw_codebook_scratch *s, uint32_t n)
{
    uint32_t taken = 2 * n - 2;
    uint32_t longer = n; /* number of first leaves that all rows so far take */
    for (uint32_t r = GW_PACKAGE_ROWS; r-- > 0;) {
        uint32_t packages = 0;
        for (uint32_t i = 0; i < s->package_count[r]; i++) {
            packages += s->package_place[r][i] < taken;
        }
        while (longer > taken - packages) {
            length[s->label[--longer]] = (uint8_t)(GW_PACKAGE_ROWS - 1 - r);
        }
        taken = 2 * packages;
    }
    while (longer > taken) { /* the deepest row has leaves only */
        length[s->label[--longer]] = GW_CODE_LEN_MAX - 1;
    }
    while (longer > 0) {
        length[s->label[--longer]] = GW_CODE_LEN_MAX;
    }
}

void gw_codebook_lengths(uint8_t length[GW_LABELS], const uint32_t count[GW_LABELS], gw_codebook_scratch *s)
{
    GW_MEMSET(length, 0, GW_LABELS);
    const uint32_t n = sort_leaves(s, count);
    if (n == 1) {
        length[s->label[0]] = 1;
    } else if (n > 1) {
        build_rows(s, n);
        take_items(length, s, n);
    }
}

void gw_mask_depths(uint8_t depth[GW_MASK_CLASSES], const uint32_t count[GW_MASK_CLASSES],
                    gw_codebook_scratch *scratch)
{
    uint32_t all[GW_LABELS] = {0};
    uint8_t length[GW_LABELS];
    GW_MEMCPY(all, count, GW_MASK_CLASSES * sizeof *count);
    gw_codebook_lengths(length, all, scratch);
    GW_MEMCPY(depth, length, GW_MASK_CLASSES);
}

uint8_t gw_codebook_window_start(uint32_t largest_exponent)
{
    uint32_t window_start = largest_exponent + 4 > 63 ? largest_exponent + 4 - 63 : 0;
    return (uint8_t)gw_min_u32(window_start, 191);
}

/* ---- tree ---------------------------------------------------------------------------------------------- */

/* The labels with a code, in increasing order. Eight labels without one are skipped at a time. */
static uint32_t list_coded(uint8_t coded[GW_LABELS], const uint8_t length[GW_LABELS])
{
    uint32_t n = 0;
    for (uint32_t first = 0; first < GW_LABELS; first += 8) {
        if (gw_load64(length + first) != 0) {
            for (uint32_t label = first; label < first + 8; label++) {
                coded[n] = (uint8_t)label;
                n += length[label] != 0;
            }
        }
    }
    return n;
}

/* 1 if every length is at most 11 and the Kraft sum is exactly 1 (or there is a single label, of length
 * 1). */
static int is_complete(const gw_codebook *codebook)
{
    uint8_t coded[GW_LABELS];
    const uint32_t labels = list_coded(coded, codebook->length);
    uint32_t kraft = 0;
    for (uint32_t i = 0; i < labels; i++) {
        const uint32_t length = codebook->length[coded[i]];
        if (length > GW_CODE_LEN_MAX) {
            return 0;
        }
        kraft += 1u << (GW_CODE_LEN_MAX - length);
    }
    return kraft == 1u << GW_CODE_LEN_MAX || (labels == 1 && kraft == 1u << (GW_CODE_LEN_MAX - 1));
}

typedef struct leaf {
    uint8_t depth;
    uint8_t width;
    uint16_t first; /* of its labels, in the order of all */
} leaf;

static uint32_t floor_log2(uint32_t x)
{
    uint32_t k = 0;
    while (x >> (k + 1) != 0) {
        k++;
    }
    return k;
}

/* Labels by code length, in increasing order within a length. */
typedef struct label_order {
    uint8_t labels[GW_LABELS];
    uint16_t count_of_length[GW_CODE_LEN_MAX + 1];
    uint16_t first_of_length[GW_CODE_LEN_MAX + 2];
} label_order;

/* Returns the number of labels with a code. */
static uint32_t order_labels(label_order *order, const gw_codebook *codebook)
{
    uint8_t coded[GW_LABELS];
    uint16_t next[GW_CODE_LEN_MAX + 2];
    const uint32_t label_count = list_coded(coded, codebook->length);
    GW_MEMSET(order->count_of_length, 0, sizeof order->count_of_length);
    GW_MEMSET(order->first_of_length, 0, sizeof order->first_of_length);
    for (uint32_t i = 0; i < label_count; i++) {
        order->count_of_length[codebook->length[coded[i]]]++;
    }
    for (uint32_t length = 1; length <= GW_CODE_LEN_MAX; length++) {
        order->first_of_length[length + 1] =
            (uint16_t)(order->first_of_length[length] + order->count_of_length[length]);
    }
    GW_MEMCPY(next, order->first_of_length, sizeof next);
    for (uint32_t i = 0; i < label_count; i++) {
        order->labels[next[codebook->length[coded[i]]]++] = coded[i];
    }
    return label_count;
}

/* Sorts leaves by depth, keeping their order among equals. */
static void sort_by_depth(leaf *sorted, const leaf *leaves, uint32_t leaf_count)
{
    uint8_t start[GW_CODE_LEN_MAX + 2] = {0};
    for (uint32_t i = 0; i < leaf_count; i++) {
        start[leaves[i].depth + 1]++;
    }
    for (uint32_t depth = 1; depth <= GW_CODE_LEN_MAX; depth++) {
        start[depth] = (uint8_t)(start[depth] + start[depth - 1]);
    }
    for (uint32_t i = 0; i < leaf_count; i++) {
        sorted[start[leaves[i].depth]++] = leaves[i];
    }
}

/* Cuts the labels of every length into leaves. Returns how many there are. */
static uint32_t cut_leaves(leaf leaves[GW_LEAVES_MAX], const label_order *order)
{
    uint32_t leaf_count = 0;
    for (uint32_t length = 1; length <= GW_CODE_LEN_MAX; length++) {
        uint32_t at = order->first_of_length[length];
        const uint32_t end = at + order->count_of_length[length];
        while (at < end) {
            const uint32_t width = floor_log2(gw_min_u32(end - at, 128));
            const leaf next = {(uint8_t)(length - width), (uint8_t)width, (uint16_t)at};
            leaves[leaf_count++] = next;
            at += 1u << width;
        }
    }
    return leaf_count;
}

/* A tree under construction. */
typedef struct tree_builder {
    gw_tree *tree;
    uint32_t rank;                     /* of the next label */
    uint32_t post_count;               /* nodes in postorder so far */
    uint32_t open_count;               /* inner nodes that are not complete, the deepest last */
    uint8_t open[GW_CODE_LEN_MAX + 1]; /* their indices */
} tree_builder;

static gw_node *add_node(tree_builder *b, uint32_t depth, uint32_t leaf_index)
{
    gw_node *node = &b->tree->node[b->tree->node_count++];
    GW_MEMSET(node, 0, sizeof *node);
    node->first_rank = (uint16_t)b->rank;
    node->depth = (uint8_t)depth;
    node->first_leaf = (uint8_t)leaf_index;
    return node;
}

/* Adds a leaf with the next 2^width ranks, which go to label[0..2^width). */
static void add_leaf(tree_builder *b, const leaf *l, uint32_t leaf_index, const uint8_t *label)
{
    gw_tree *tree = b->tree;
    gw_node *node = add_node(b, l->depth, leaf_index);
    node->width = l->width;
    for (uint32_t i = 0; i < 1u << l->width; i++, b->rank++) {
        tree->label_of_rank[b->rank] = label[i];
        tree->rank_of_label[label[i]] = (uint16_t)b->rank;
    }
    node->end_rank = (uint16_t)b->rank;
    tree->postorder[b->post_count++] = (uint8_t)(tree->node_count - 1);
}

/* Completes the inner nodes whose right child was just completed. The next node is the right child of the
 * deepest that remains. Returns the depth of the next node. */
static uint32_t close_inner(tree_builder *b)
{
    gw_tree *tree = b->tree;
    while (b->open_count > 0 && tree->node[b->open[b->open_count - 1]].right != 0) {
        const uint8_t done = b->open[--b->open_count];
        tree->node[done].end_rank = (uint16_t)b->rank;
        tree->postorder[b->post_count++] = done;
    }
    if (b->open_count == 0) {
        return 0;
    }
    gw_node *parent = &tree->node[b->open[b->open_count - 1]];
    parent->right = tree->node_count;
    parent->pivot = (uint8_t)b->rank;
    return parent->depth + 1u;
}

/* Builds the tree of leaves that are sorted by depth. */
static void place_leaves(gw_tree *tree, const leaf *leaves, uint32_t leaf_count, const uint8_t *labels)
{
    tree->inner_count = (uint16_t)(leaf_count - 1);
    tree->node_count = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        tree->rank_of_label[label] = GW_NO_RANK;
    }

    /* Preorder: down on the left to the depth of the leaf, then back to the deepest inner node that has no
     * right child yet. The code is complete, so the last leaf completes the root. */
    tree_builder builder = {tree, 0, 0, 0, {0}};
    uint32_t depth = 0;
    for (uint32_t i = 0; i < leaf_count; i++) {
        for (; depth < leaves[i].depth; depth++) {
            builder.open[builder.open_count++] = (uint8_t)tree->node_count;
            add_node(&builder, depth, i);
        }
        add_leaf(&builder, &leaves[i], i, labels + leaves[i].first);
        depth = close_inner(&builder);
    }
    tree->label_count = (uint16_t)builder.rank;
    tree->escape_rank = tree->rank_of_label[GW_LABEL_ESCAPE];
    tree->zero_rank = tree->rank_of_label[GW_LABEL_ZERO];
}

void gw_tree_build(gw_tree *tree, const gw_codebook *codebook)
{
    label_order order;
    leaf cut[GW_LEAVES_MAX], leaves[GW_LEAVES_MAX];
    order_labels(&order, codebook);
    const uint32_t leaf_count = cut_leaves(cut, &order);
    if (leaf_count == 1 && cut[0].width == 0) {
        cut[0].depth = 0; /* the code of a single label is empty */
    }
    sort_by_depth(leaves, cut, leaf_count);
    place_leaves(tree, leaves, leaf_count, order.labels);
}

void gw_mask_tree_build(gw_tree *tree, const gw_codebook *codebook)
{
    leaf classes[GW_MASK_CLASSES], leaves[GW_MASK_CLASSES];
    uint32_t leaf_count = 0;
    for (uint32_t i = 0; i < GW_MASK_CLASSES; i++) {
        const leaf next = {codebook->mask_depth[i], gw_mask_class_width[i], gw_mask_class_first[i]};
        classes[leaf_count] = next;
        leaf_count += codebook->mask_depth[i] != 0;
    }
    if (leaf_count == 1) {
        classes[0].depth = 0;
    }
    sort_by_depth(leaves, classes, leaf_count);
    place_leaves(tree, leaves, leaf_count, gw_mask_byte_order);
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* Smallest and largest ordinary label with a code, 0 and 0 if there is none. Eight labels at a time: most
 * have none. */
static void ordinary_range(const gw_codebook *codebook, uint32_t *first, uint32_t *last)
{
    const uint8_t *length = codebook->length;
    uint32_t from = 2, to = GW_LABELS;
    while (from < GW_LABELS && length[from] == 0) {
        from += from % 8 == 0 && gw_load64(length + from) == 0 ? 8 : 1;
    }
    while (to > from && length[to - 1] == 0) {
        to -= to % 8 == 0 && gw_load64(length + to - 8) == 0 ? 8 : 1;
    }
    *first = from < GW_LABELS ? from : 0;
    *last = from < GW_LABELS ? to - 1 : 0;
}

static size_t size_of_range(uint32_t first, uint32_t last)
{
    return first == 0 ? 4 : 4 + gw_round4((last - first + 2) / 2);
}

/* MASK_SIZE: bytes of the table of the mask, padding included. MASKED: the value of the zero label's nibble
 * which says that this table follows. */
enum { MASK_SIZE = 8, MASKED = 15 };

static size_t size_of_codebook(const gw_codebook *codebook, size_t labels_size)
{
    return labels_size + (codebook->is_masked ? MASK_SIZE : 0);
}

size_t gw_codebook_size(const gw_codebook *codebook)
{
    uint32_t first, last;
    ordinary_range(codebook, &first, &last);
    return size_of_codebook(codebook, size_of_range(first, last));
}

static void write_nibbles(uint8_t *dst, const uint8_t *value, uint32_t len)
{
    for (uint32_t i = 0; i < len / 2; i++) {
        dst[i] = (uint8_t)(value[2 * i] | value[2 * i + 1] << 4);
    }
    if (len % 2 != 0) {
        dst[len / 2] = value[len - 1];
    }
}

/* Returns 1 if the padding, up to `size` bytes, is zero. */
static int read_nibbles(uint8_t *value, uint32_t len, const uint8_t *src, size_t size)
{
    for (uint32_t i = 0; i < len; i++) {
        value[i] = src[i / 2] >> i % 2 * 4 & 15;
    }
    const size_t end = (len + 1) / 2;
    return (len % 2 == 0 || src[len / 2] >> 4 == 0) && gw_is_zero(src + end, size - end);
}

void gw_codebook_write(uint8_t *dst, const gw_codebook *codebook)
{
    uint32_t first, last;
    ordinary_range(codebook, &first, &last);
    const size_t labels_size = size_of_range(first, last);
    GW_MEMSET(dst, 0, size_of_codebook(codebook, labels_size));
    dst[0] = codebook->is_relative ? 1 : codebook->window_start;
    dst[1] = (uint8_t)first;
    dst[2] = (uint8_t)last;
    dst[3] = (uint8_t)((codebook->is_masked ? MASKED : codebook->length[GW_LABEL_ZERO]) |
                       codebook->length[GW_LABEL_ESCAPE] << 4);
    if (first != 0) {
        write_nibbles(dst + 4, codebook->length + first, last - first + 1);
    }
    if (codebook->is_masked) {
        gw_mask_table_write(dst + labels_size, codebook->mask_depth);
    }
}

/* 1 if the label can occur for this dtype and quantum mode (docs/format.md section 3). */
static int is_possible_label(uint32_t label, uint32_t dtype, uint32_t derived)
{
    if (derived) {
        return dtype != GW_FP16 || label <= 32;
    }
    return label >= 4 && (dtype != GW_FP16 || label < 128);
}

/* Reads the lengths of the ordinary labels from the nibbles at src. */
static int read_lengths(gw_codebook *codebook, uint32_t first, uint32_t last, const uint8_t *src,
                        uint32_t dtype, uint32_t derived)
{
    if (!read_nibbles(codebook->length + first, last - first + 1, src, size_of_range(first, last) - 4) ||
        codebook->length[first] == 0 || codebook->length[last] == 0) {
        return 0;
    }
    for (uint32_t label = first; label <= last; label++) {
        if (codebook->length[label] != 0 && !is_possible_label(label, dtype, derived)) {
            return 0;
        }
    }
    return 1;
}

gw_status gw_codebook_read(gw_codebook *codebook, size_t *used, const uint8_t *src, size_t size,
                           gw_codebook_kind kind)
{
    GW_MEMSET(codebook, 0, sizeof *codebook);
    *used = 0;
    if (size < 4) {
        return GW_ERR_CORRUPT;
    }
    const uint32_t window_start = src[0], first = src[1], last = src[2], zero = src[3] & 15;
    const int has_window = !kind.derived && kind.dtype != GW_FP16;
    if (window_start > (has_window ? 191u : kind.may_be_relative ? 1u : 0u)) {
        return GW_ERR_CORRUPT;
    }
    codebook->window_start = (uint8_t)(has_window ? window_start : 0);
    codebook->is_relative = (uint8_t)(has_window ? 0 : window_start);
    codebook->is_masked = zero == MASKED;
    codebook->length[GW_LABEL_ZERO] = (uint8_t)(zero == MASKED ? 0 : zero);
    codebook->length[GW_LABEL_ESCAPE] = src[3] >> 4;
    if (first == 0 ? last != 0 : last < first || first < 2) {
        return GW_ERR_CORRUPT;
    }
    const size_t labels_size = size_of_range(first, last);
    const size_t codebook_size = labels_size + (codebook->is_masked ? MASK_SIZE : 0);
    if (size < codebook_size ||
        (first != 0 && !read_lengths(codebook, first, last, src + 4, kind.dtype, kind.derived)) ||
        !is_complete(codebook)) {
        return GW_ERR_CORRUPT;
    }
    const uint8_t *table = src + labels_size;
    if (codebook->is_masked && (gw_mask_table_read(codebook->mask_depth, table) <= 0 ||
                                !gw_is_zero(table + GW_MASK_TABLE_SIZE, MASK_SIZE - GW_MASK_TABLE_SIZE))) {
        return GW_ERR_CORRUPT;
    }
    *used = codebook_size;
    return GW_OK;
}

/* ---- lookups ------------------------------------------------------------------------------------------- */

void gw_ranker_build(gw_ranker *ranker, const gw_tree *tree, const gw_codebook *codebook)
{
    const uint32_t more = codebook->is_masked ? 1 : 0;
    const uint32_t escape_rank = tree->escape_rank == GW_NO_RANK ? GW_NO_RANK : tree->escape_rank + more;
    ranker->window_start = codebook->window_start;
    ranker->escape_rank = escape_rank;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        const uint32_t rank = tree->rank_of_label[label];
        const uint32_t missing = gw_min_u32(escape_rank, 255);
        ranker->rank[label] = (uint8_t)(rank == GW_NO_RANK ? missing : rank + more);
    }
    if (codebook->is_masked) {
        ranker->rank[GW_LABEL_ZERO] = 0;
    }
}
