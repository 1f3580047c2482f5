/*
 * A second reader of the frame format, for reports and messages. It follows docs/format.md section by section
 * and checks every position before it reads there, because the library may have refused the frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_parts.h"

#include "little_endian.h"

#include <string.h>

enum {
    ENTRY_SIZE = 16,
    CODE_LENGTH_MAX = 11,
    LEAF_MAX = 88, /* section 5.1 */
    BLOCK_MAX = 128,
    MASKED = 15, /* instead of the code length of label 0 */
    MASK_CLASSES = 10,
    MASK_SIZE = 8, /* bytes of the code lengths of the classes */
    QUANTA_WINDOW = 62
};

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

static uint64_t bits_size(uint64_t bits)
{
    return round_up((bits + 7) / 8, 4);
}

/* ---- one chunk ---- */

static void chunk_broken(gw_chunk_parts *parts, int rule, uint64_t offset, const char *text)
{
    parts->broken_rule = rule;
    parts->broken_offset = offset;
    parts->broken_text = text;
}

/* Leaves of the code tree in order of depth, and their widths (section 5.1). */
typedef struct code_tree {
    unsigned leaf_count;
    uint8_t depth[LEAF_MAX];
    uint8_t width[LEAF_MAX];
} code_tree;

/* Those of a codebook; mask only if it is masked. */
typedef struct chunk_trees {
    code_tree labels, mask;
} chunk_trees;

/* Logarithm of the size of the next leaf when `left` codes of a length are left. */
static unsigned leaf_width(unsigned left)
{
    unsigned width = 0;
    while (2u << width <= left && 2u << width <= BLOCK_MAX) {
        width++;
    }
    return width;
}

static void tree_make(const unsigned length_count[CODE_LENGTH_MAX + 1], unsigned symbol_count,
                      code_tree *tree)
{
    memset(tree, 0, sizeof *tree);
    if (symbol_count == 1) {
        tree->leaf_count = 1;
        return;
    }
    /* Depth is the outer loop: the order of leaves of equal depth is that of the lengths. */
    for (unsigned depth = 0; depth <= CODE_LENGTH_MAX; depth++) {
        for (unsigned length = 1; length <= CODE_LENGTH_MAX; length++) {
            unsigned width = 0;
            for (unsigned left = length_count[length]; left > 0; left -= 1u << width) {
                width = leaf_width(left);
                if (length >= width && length - width == depth && tree->leaf_count < LEAF_MAX) {
                    tree->depth[tree->leaf_count] = (uint8_t)depth;
                    tree->width[tree->leaf_count] = (uint8_t)width;
                    tree->leaf_count++;
                }
            }
        }
    }
}

/* The tree of the bytes of a zero mask: a leaf per class of bytes. Returns 0 if the code is not complete or
 * its padding is not zero. */
static int mask_tree_make(const uint8_t *lengths, code_tree *tree)
{
    static const uint8_t width[MASK_CLASSES] = {0, 3, 5, 6, 6, 6, 4, 2, 1, 0};
    unsigned kraft = 0;
    unsigned classes = 0;
    memset(tree, 0, sizeof *tree);
    for (unsigned depth = 1; depth <= CODE_LENGTH_MAX; depth++) {
        for (unsigned i = 0; i < MASK_CLASSES; i++) {
            if ((lengths[i / 2] >> (4 * (i % 2)) & 15) == (int)depth) {
                tree->depth[classes] = (uint8_t)depth;
                tree->width[classes] = width[i];
                classes++;
                kraft += 2048u >> depth;
            }
        }
    }
    for (unsigned i = 0; i < 2 * MASK_SIZE; i++) {
        const unsigned length = (unsigned)lengths[i / 2] >> (4 * (i % 2)) & 15;
        if (length > (i < MASK_CLASSES ? (unsigned)CODE_LENGTH_MAX : 0)) {
            return 0;
        }
    }
    tree->leaf_count = classes;
    if (classes == 1 && tree->depth[0] == 1) {
        tree->depth[0] = 0;
        return 1;
    }
    return kraft == 2048;
}

/* Section 3: which labels exist. */
static int label_is_possible(const gw_gcomp_frame_info *info, unsigned label)
{
    if (info->quantum_mode != GW_GCOMP_EXPLICIT) {
        return info->dtype != GW_FP16 || label <= 32;
    }
    return label < 2 || (label >= 4 && (info->dtype != GW_FP16 || label < 128));
}

/* The code lengths of a codebook: nibbles 0 and 1 in byte 3, the others from byte 4 on. */
static unsigned length_byte(unsigned i)
{
    return i < 2 ? 3 : 4 + (i - 2) / 2;
}

static unsigned length_read(const uint8_t *codebook, unsigned i)
{
    return (unsigned)codebook[length_byte(i)] >> (4 * (i & 1)) & 15u;
}

/* Counts the codes of each length for labels 0, 1 and first to last. Returns the number of labels that have a
 * code, 0 if the codebook breaks a rule. */
static unsigned lengths_count(const uint8_t *codebook, const gw_gcomp_frame_info *info, uint64_t offset,
                              unsigned nibbles, unsigned length_count[CODE_LENGTH_MAX + 1],
                              gw_chunk_parts *parts)
{
    const unsigned first = codebook[1];
    const unsigned last = codebook[2];
    unsigned kraft = 0;
    unsigned symbols = 0;
    for (unsigned i = 0; i < nibbles + 2; i++) {
        const unsigned label = i < 2 ? i : first + i - 2;
        const unsigned length = i == 0 && parts->is_masked ? 0 : length_read(codebook, i);
        const char *broken = NULL;
        if (length > CODE_LENGTH_MAX) {
            broken = "a code is longer than 11 bits";
        } else if (length == 0 && i >= 2 && (label == first || label == last)) {
            broken = "the codebook's first or last label has no code";
        } else if (length != 0 && !label_is_possible(info, label)) {
            broken = "the codebook has a code for a reserved or impossible label";
        }
        if (broken != NULL) {
            chunk_broken(parts, 20, offset + length_byte(i), broken);
            return 0;
        }
        length_count[length] += length != 0;
        kraft += length != 0 ? 2048u >> length : 0;
        symbols += length != 0;
    }
    if (symbols == 1 ? length_count[1] != 1 : kraft != 2048) {
        chunk_broken(parts, 20, offset, "the codebook's Kraft sum is not 1");
        return 0;
    }
    return symbols;
}

/* Reads the codebook at `offset`; returns its size with padding, 0 if it is broken. */
static uint64_t codebook_read(const uint8_t *frame, const gw_gcomp_frame_info *info, uint64_t offset,
                              uint64_t size, gw_chunk_parts *parts, chunk_trees *trees)
{
    if (size < 4) {
        chunk_broken(parts, 20, offset, "the codebook is cut short");
        return 0;
    }
    const uint8_t *codebook = frame + offset;
    const unsigned first = codebook[1];
    const unsigned last = codebook[2];
    const unsigned nibbles = first == 0 && last == 0 ? 0 : (last >= first ? last - first + 1 : 256);
    const uint64_t labels_size = 4 + round_up((nibbles + 1) / 2, 4);
    const unsigned base_max = info->quantum_mode != GW_GCOMP_EXPLICIT ? !info->constant
                              : info->dtype != GW_FP16                ? 191
                                                                      : 0;
    parts->is_masked = (codebook[3] & 15) == MASKED;
    parts->is_relative = info->quantum_mode != GW_GCOMP_EXPLICIT && codebook[0] == 1;
    const uint64_t codebook_size = labels_size + (parts->is_masked ? (uint64_t)MASK_SIZE : 0);
    if (nibbles == 256 || (nibbles != 0 && first < 2)) {
        chunk_broken(parts, 20, offset + 1, "the codebook's first and last label are out of order");
        return 0;
    }
    if (codebook[0] > base_max) {
        chunk_broken(parts, 20, offset, "the codebook's base is not allowed here");
        return 0;
    }
    if (codebook_size > size) {
        chunk_broken(parts, 20, offset, "the codebook is cut short");
        return 0;
    }
    unsigned length_count[CODE_LENGTH_MAX + 1] = {0};
    const unsigned symbols = lengths_count(codebook, info, offset, nibbles, length_count, parts);
    if (symbols == 0) {
        return 0;
    }
    for (unsigned i = nibbles + 2; i < 2 * (unsigned)(labels_size - 3); i++) {
        if (length_read(codebook, i) != 0) {
            chunk_broken(parts, 20, offset + length_byte(i), "the codebook's padding is not zero");
            return 0;
        }
    }
    if (parts->is_masked && !mask_tree_make(codebook + labels_size, &trees->mask)) {
        chunk_broken(parts, 20, offset + labels_size, "the code lengths of the zero mask are impossible");
        return 0;
    }
    tree_make(length_count, symbols, &trees->labels);
    parts->symbol_count = symbols;
    parts->leaf_count = trees->labels.leaf_count;
    parts->window_start = parts->is_relative ? 0 : codebook[0];
    return codebook_size;
}

/* Section 5.4: the quanta at `offset`; returns their size, 0 if there are none or they are broken. */
static uint64_t quanta_read(const uint8_t *frame, const gw_gcomp_frame_info *info, uint64_t offset,
                            uint64_t size, gw_chunk_parts *parts)
{
    if (info->quantum_mode != GW_GCOMP_CARRIED) {
        return 0;
    }
    const uint64_t blocks = (parts->chunk.len + ((uint64_t)1 << info->block_log2) - 1) >> info->block_log2;
    const uint64_t quanta_size = round_up(blocks, 4);
    const unsigned quantum_max = info->dtype == GW_FP16 ? 142 : 254;
    unsigned largest = 0;
    if (quanta_size > size) {
        chunk_broken(parts, 20, offset, "the quanta are cut short");
        return 0;
    }
    for (uint64_t i = 0; i < blocks; i++) {
        largest = frame[offset + i] > largest ? frame[offset + i] : largest;
    }
    for (uint64_t i = 0; i < quanta_size; i++) {
        const unsigned quantum = frame[offset + i];
        if (quantum > quantum_max || (quantum != 0 && (i >= blocks || quantum + QUANTA_WINDOW < largest))) {
            chunk_broken(parts, 20, offset + i,
                         "an impossible quantum, or padding of the quanta is not zero");
            return 0;
        }
    }
    return quanta_size;
}

/* Bytes of all runs: preorder over the tree, whose leaves in order and depths determine its shape. At most 12
 * nodes are open at once (depth 0 to 11). */
static int runs_size(const code_tree *tree, const uint8_t *right_len, uint64_t values, uint64_t *size)
{
    struct {
        uint64_t values;
        unsigned depth;
    } open[CODE_LENGTH_MAX + 2];
    unsigned open_count = 1;
    unsigned leaf = 0;
    unsigned inner = 0;
    uint64_t total = 0;
    open[0].values = values;
    open[0].depth = 0;
    while (open_count > 0) {
        const uint64_t node_values = open[open_count - 1].values;
        const unsigned node_depth = open[open_count - 1].depth;
        open_count--;
        if (leaf >= tree->leaf_count) {
            return -1;
        }
        if (tree->depth[leaf] == node_depth) {
            total += bits_size(node_values * tree->width[leaf]);
            leaf++;
            continue;
        }
        if (node_depth >= CODE_LENGTH_MAX) {
            return -1;
        }
        const uint64_t right = gw_cli_load16(right_len + 2 * inner);
        inner++;
        if (right > node_values) {
            return -1;
        }
        total += bits_size(node_values);
        open[open_count].values = right;
        open[open_count].depth = node_depth + 1;
        open[open_count + 1].values = node_values - right;
        open[open_count + 1].depth = node_depth + 1;
        open_count += 2;
    }
    *size = total;
    return leaf == tree->leaf_count ? 0 : -1;
}

/* Section 5.2: header, runs, planes, escapes of the body at `offset`. */
static void body_read(const uint8_t *frame, const gw_gcomp_frame_info *info, const chunk_trees *trees,
                      uint64_t offset, uint64_t size, gw_chunk_parts *parts)
{
    static const uint8_t widths[3][7] = {{6, 6, 6, 6, 4, 2, 1}, {2, 2, 2, 2, 4, 2, 1}, {2, 3, 3, 3, 4, 2, 1}};
    const unsigned planes = info->quantum_mode != GW_GCOMP_EXPLICIT ? 7 : 4;
    const unsigned inner_count = trees->labels.leaf_count - 1;
    /* Of a masked chunk: the number of values with a label, and right_len of the mask. */
    const unsigned mask_counts = parts->is_masked ? trees->mask.leaf_count : 0;
    const uint64_t header_size = round_up(2 * ((uint64_t)planes + 1 + mask_counts + inner_count), 4);
    if (header_size > size) {
        chunk_broken(parts, 22, offset, "the chunk is too short for its header");
        return;
    }
    const uint8_t *header = frame + offset;
    uint64_t digits_size = 0;
    for (unsigned p = 0; p < planes; p++) {
        const uint64_t plane_len = gw_cli_load16(header + 2 * p);
        const uint64_t bits = plane_len * widths[info->dtype - 1][p];
        if (plane_len > parts->chunk.len) {
            chunk_broken(parts, 21, offset + 2 * p, "a plane has more digits than the chunk has values");
            return;
        }
        digits_size += bits_size(bits);
        parts->kept_bits += bits;
    }
    parts->escape_count = gw_cli_load16(header + 2 * planes);
    if (parts->escape_count > parts->chunk.len) {
        chunk_broken(parts, 21, offset + 2 * planes, "more escapes than values");
        return;
    }
    const uint64_t element_size = gw_dtype_size(info->dtype);
    const uint64_t escapes_size = round_up(parts->escape_count * element_size, 4);
    parts->kept_bits += parts->escape_count * element_size * 8;
    const uint8_t *counts = header + 2 * (planes + 1);
    parts->coded_count = parts->is_masked ? gw_cli_load16(counts) : (uint32_t)parts->chunk.len;
    if (parts->coded_count > parts->chunk.len) {
        chunk_broken(parts, 21, offset + 2 * ((uint64_t)planes + 1), "more labels than values");
        return;
    }
    uint64_t mask_size = 0;
    uint64_t labels_size = 0;
    const uint64_t mask_len = (parts->chunk.len + 7) / 8;
    if ((parts->is_masked && runs_size(&trees->mask, counts + 2, mask_len, &mask_size) != 0) ||
        runs_size(&trees->labels, counts + 2 * (size_t)mask_counts, parts->coded_count, &labels_size) != 0) {
        chunk_broken(parts, 21, offset + 2 * ((uint64_t)planes + 1),
                     "more values go right than their node has");
        return;
    }
    labels_size += mask_size;
    const uint64_t used = header_size + labels_size + digits_size + escapes_size;
    if (used > size || size - used > 15) {
        chunk_broken(parts, 22, offset, "runs, planes and escapes do not fill the chunk");
        return;
    }
    parts->header_size = header_size;
    parts->labels_size = labels_size;
    parts->digits_size = digits_size;
    parts->escapes_size = escapes_size;
    parts->padding_size = size - used;
}

static void coded_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_frame_info *info,
                       uint64_t index, gw_chunk_parts *parts)
{
    if (info->installed) {
        return; /* the codebook, and with it the shape of the tree, is elsewhere */
    }
    chunk_trees trees;
    gw_gcomp_chunk owner;
    const uint64_t codebook = parts->chunk.codebook;
    if (gw_gcomp_frame_chunk(&(gw_gcomp_frame){frame, frame_size, NULL}, info, codebook, &owner) != GW_OK ||
        owner.kind != GW_GCOMP_CHUNK_CODED) {
        chunk_broken(parts, 20, parts->chunk.offset, "the chunk names a chunk that owns no codebook");
        return;
    }
    const uint64_t codebook_size = codebook_read(frame, info, owner.offset, owner.size, parts, &trees);
    if (codebook_size == 0) {
        return;
    }
    const uint64_t own_size = codebook == index ? codebook_size : 0;
    const uint64_t quanta_offset = parts->chunk.offset + own_size;
    parts->codebook_size = own_size;
    parts->quanta_size = quanta_read(frame, info, quanta_offset, parts->chunk.size - own_size, parts);
    if (parts->broken_rule == 0) {
        const uint64_t front_size = own_size + parts->quanta_size;
        body_read(frame, info, &trees, parts->chunk.offset + front_size, parts->chunk.size - front_size,
                  parts);
    }
}

void gw_chunk_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_frame_info *info,
                         uint64_t index, gw_chunk_parts *parts)
{
    memset(parts, 0, sizeof *parts);
    if (gw_gcomp_frame_chunk(&(gw_gcomp_frame){frame, frame_size, NULL}, info, index, &parts->chunk) !=
        GW_OK) {
        chunk_broken(parts, 14, info->directory_offset + index * ENTRY_SIZE, "bad directory entry");
        return;
    }
    const uint64_t raw_size = round_up(parts->chunk.len * gw_dtype_size(info->dtype), 16);
    switch (parts->chunk.kind) {
    case GW_GCOMP_CHUNK_ZERO:
        if (parts->chunk.size != 0) {
            chunk_broken(parts, 19, parts->chunk.offset, "a ZERO chunk has bytes");
        }
        break;
    case GW_GCOMP_CHUNK_RAW:
        if (parts->chunk.size != raw_size) {
            chunk_broken(parts, 19, parts->chunk.offset, "a RAW chunk has the wrong size");
        }
        break;
    case GW_GCOMP_CHUNK_CODED:
        if (parts->chunk.size >= raw_size) {
            chunk_broken(parts, 19, parts->chunk.offset, "a CODED chunk is not smaller than a RAW one");
        } else {
            coded_read(frame, frame_size, info, index, parts);
        }
        break;
    }
}

/* ---- the frame ---- */

void gw_frame_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_frame_info *info,
                         gw_frame_parts *parts)
{
    memset(parts, 0, sizeof *parts);
    parts->headers = info->payload_offset;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        gw_chunk_parts one;
        gw_chunk_parts_read(frame, frame_size, info, i, &one);
        parts->chunk_count[one.chunk.kind]++;
        if (one.broken_rule != 0) {
            parts->headers += one.chunk.size;
        } else if (one.chunk.kind == GW_GCOMP_CHUNK_RAW) {
            parts->raw += one.chunk.size;
        } else if (info->installed) {
            parts->labels += one.chunk.size; /* the parts are unknown without the codebook */
        } else {
            parts->labels += one.labels_size;
            parts->digits += one.digits_size;
            parts->escapes += one.escapes_size;
            parts->quanta += one.quanta_size;
            parts->codebooks += one.codebook_size;
            parts->headers += one.header_size + one.padding_size;
            parts->codebook_count += one.codebook_size != 0;
            parts->masked_count += (uint64_t)one.is_masked;
            parts->relative_count += (uint64_t)one.is_relative;
            parts->escape_count += one.escape_count;
            parts->kept_bits += one.kept_bits;
        }
    }
}
