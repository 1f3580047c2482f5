/*
 * A second reader of the frame format, for accounts and messages: it follows docs/format.md section by
 * section and checks every position before it reads there, because it also walks over frames that the library
 * has just refused.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "frame_parts.h"

#include "cli_common.h"
#include "little_endian.h"

#include <stdio.h>
#include <string.h>

enum {
    HEADER_SIZE = 32,
    ENTRY_SIZE = 16,
    FLAG_STRICT = 1,
    FLAG_DERIVED = 2,
    FLAG_INSTALLED = 4,
    FLAG_CHECKSUM = 8,
    FLAG_CONSTANT = 16,
    CODE_LENGTH_MAX = 11,
    LEAF_MAX = 88, /* section 5.1 */
    BLOCK_MAX = 128
};

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

static uint64_t bits_size(uint64_t bits)
{
    return round_up((bits + 7) / 8, 4);
}

const char *gw_chunk_kind_name(gw_gcomp_chunk_kind kind)
{
    return kind == GW_GCOMP_CHUNK_ZERO ? "zero" : (kind == GW_GCOMP_CHUNK_RAW ? "raw" : "coded");
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
            unsigned left = length_count[length];
            while (left > 0) {
                unsigned width = 0;
                while (2u << width <= left && 2u << width <= BLOCK_MAX) {
                    width++;
                }
                if (length >= width && length - width == depth && tree->leaf_count < LEAF_MAX) {
                    tree->depth[tree->leaf_count] = (uint8_t)depth;
                    tree->width[tree->leaf_count] = (uint8_t)width;
                    tree->leaf_count++;
                }
                left -= 1u << width;
            }
        }
    }
}

/* Section 3: which labels exist. */
static int label_is_possible(const gw_gcomp_info *info, unsigned label)
{
    if (info->levels == GW_GCOMP_DERIVED) {
        return info->dtype != GW_FP16 || label <= 32;
    }
    return label < 2 || (label >= 4 && (info->dtype != GW_FP16 || label < 128));
}

/* Reads the codebook at `offset`; returns its size with padding, 0 if it is broken. */
static uint64_t codebook_read(const uint8_t *frame, const gw_gcomp_info *info, uint64_t offset, uint64_t size,
                              gw_chunk_parts *parts, code_tree *tree)
{
    if (size < 4) {
        chunk_broken(parts, 20, offset, "the codebook is cut short");
        return 0;
    }
    const uint8_t *book = frame + offset;
    const unsigned first = book[1];
    const unsigned last = book[2];
    const unsigned nibbles = first == 0 && last == 0 ? 0 : (last >= first ? last - first + 1 : 256);
    const uint64_t book_size = 4 + round_up((nibbles + 1) / 2, 4);
    if (nibbles == 256 || (nibbles != 0 && first < 2)) {
        chunk_broken(parts, 20, offset + 1, "the codebook's first and last label are out of order");
        return 0;
    }
    const int derived = info->levels == GW_GCOMP_DERIVED;
    if (book[0] > 191 || (book[0] != 0 && (derived || info->dtype == GW_FP16))) {
        chunk_broken(parts, 20, offset, "the codebook's base is not allowed here");
        return 0;
    }
    if (book_size > size) {
        chunk_broken(parts, 20, offset, "the codebook is cut short");
        return 0;
    }
    unsigned length_count[CODE_LENGTH_MAX + 1] = {0};
    unsigned kraft = 0;
    unsigned symbols = 0;
    for (unsigned i = 0; i < nibbles + 2; i++) {
        const unsigned length =
            (i < 2 ? (unsigned)book[3] >> (4 * i) : (unsigned)book[4 + (i - 2) / 2] >> (4 * ((i - 2) & 1))) &
            15u;
        if (length > CODE_LENGTH_MAX) {
            chunk_broken(parts, 20, offset + (i < 2 ? 3 : 4 + (i - 2) / 2), "a code is longer than 11 bits");
            return 0;
        }
        const unsigned label = i < 2 ? i : first + i - 2;
        const uint64_t label_offset = offset + (i < 2 ? 3 : 4 + (i - 2) / 2);
        if (length == 0 && i >= 2 && (label == first || label == last)) {
            chunk_broken(parts, 20, label_offset, "the codebook's first or last label has no code");
            return 0;
        }
        if (length != 0 && !label_is_possible(info, label)) {
            chunk_broken(parts, 20, label_offset,
                         "the codebook has a code for a reserved or impossible label");
            return 0;
        }
        if (length > 0) {
            length_count[length]++;
            kraft += 2048u >> length;
            symbols++;
        }
    }
    if (symbols == 1 ? length_count[1] != 1 : kraft != 2048) {
        chunk_broken(parts, 20, offset, "the codebook's Kraft sum is not 1");
        return 0;
    }
    for (unsigned i = nibbles; i < 2 * (unsigned)(book_size - 4); i++) {
        if ((book[4 + i / 2] >> (4 * (i & 1)) & 15) != 0) {
            chunk_broken(parts, 20, offset + 4 + i / 2, "the codebook's padding is not zero");
            return 0;
        }
    }
    tree_make(length_count, symbols, tree);
    parts->symbol_count = symbols;
    parts->leaf_count = tree->leaf_count;
    parts->base = book[0];
    return book_size;
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
static void body_read(const uint8_t *frame, const gw_gcomp_info *info, const code_tree *tree, uint64_t offset,
                      uint64_t size, gw_chunk_parts *parts)
{
    static const uint8_t widths[3][7] = {{6, 6, 6, 6, 4, 2, 1}, {2, 2, 2, 2, 4, 2, 1}, {2, 3, 3, 3, 4, 2, 1}};
    const unsigned planes = info->levels == GW_GCOMP_DERIVED ? 7 : 4;
    const unsigned inner_count = tree->leaf_count - 1;
    const uint64_t header_size = round_up(2 * ((uint64_t)planes + 1 + inner_count), 4);
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
    uint64_t labels_size = 0;
    if (runs_size(tree, header + 2 * (planes + 1), parts->chunk.len, &labels_size) != 0) {
        chunk_broken(parts, 21, offset + 2 * ((uint64_t)planes + 1),
                     "more values go right than their node has");
        return;
    }
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

static void coded_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_info *info, uint64_t index,
                       gw_chunk_parts *parts)
{
    if (info->installed) {
        return; /* the codebook, and with it the shape of the tree, is elsewhere */
    }
    code_tree tree;
    gw_gcomp_chunk owner;
    const uint64_t book = parts->chunk.book;
    if (gw_gcomp_chunk_info(&(gw_gcomp_frame){frame, frame_size, NULL}, info, book, &owner) != GW_OK ||
        owner.kind != GW_GCOMP_CHUNK_CODED) {
        chunk_broken(parts, 20, parts->chunk.offset, "the chunk names a chunk that owns no codebook");
        return;
    }
    const uint64_t book_size = codebook_read(frame, info, owner.offset, owner.size, parts, &tree);
    if (book_size == 0) {
        return;
    }
    const uint64_t own_size = book == index ? book_size : 0;
    parts->codebook_size = own_size;
    body_read(frame, info, &tree, parts->chunk.offset + own_size, parts->chunk.size - own_size, parts);
}

void gw_chunk_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_info *info, uint64_t index,
                         gw_chunk_parts *parts)
{
    memset(parts, 0, sizeof *parts);
    if (gw_gcomp_chunk_info(&(gw_gcomp_frame){frame, frame_size, NULL}, info, index, &parts->chunk) !=
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

void gw_frame_parts_read(const uint8_t *frame, size_t frame_size, const gw_gcomp_info *info,
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
            parts->labels += one.chunk.size; /* not told apart without the codebook */
        } else {
            parts->labels += one.labels_size;
            parts->digits += one.digits_size;
            parts->escapes += one.escapes_size;
            parts->codebooks += one.codebook_size;
            parts->headers += one.header_size + one.padding_size;
            parts->codebook_count += one.codebook_size != 0;
            parts->escape_count += one.escape_count;
            parts->kept_bits += one.kept_bits;
        }
    }
}

static double bits_per_value(uint64_t size, uint64_t len)
{
    return len == 0 ? 0 : 8.0 * (double)size / (double)len;
}

json_t *gw_frame_parts_json(const gw_frame_parts *parts, uint64_t frame_size, uint64_t len)
{
    json_t *object = json_object();
    json_object_set_new(object, "total", json_real(bits_per_value(frame_size, len)));
    json_object_set_new(object, "labels", json_real(bits_per_value(parts->labels, len)));
    json_object_set_new(object, "digits", json_real(bits_per_value(parts->digits, len)));
    json_object_set_new(object, "escapes", json_real(bits_per_value(parts->escapes, len)));
    json_object_set_new(object, "raw", json_real(bits_per_value(parts->raw, len)));
    json_object_set_new(object, "codebooks", json_real(bits_per_value(parts->codebooks, len)));
    json_object_set_new(object, "headers", json_real(bits_per_value(parts->headers, len)));
    return object;
}

json_t *gw_frame_kinds_json(const gw_frame_parts *parts)
{
    json_t *object = json_object();
    json_object_set_new(object, "zero", json_integer((json_int_t)parts->chunk_count[GW_GCOMP_CHUNK_ZERO]));
    json_object_set_new(object, "raw", json_integer((json_int_t)parts->chunk_count[GW_GCOMP_CHUNK_RAW]));
    json_object_set_new(object, "coded", json_integer((json_int_t)parts->chunk_count[GW_GCOMP_CHUNK_CODED]));
    return object;
}

void gw_frame_parts_print(const gw_frame_parts *parts, uint64_t frame_size, uint64_t len)
{
    const struct {
        const char *name;
        uint64_t size;
    } rows[] = {{"labels (exponents, levels)", parts->labels},
                {"digits (signs, mantissas)", parts->digits},
                {"escapes", parts->escapes},
                {"raw chunks", parts->raw},
                {"codebooks", parts->codebooks},
                {"headers, padding", parts->headers},
                {"total", frame_size}};
    printf("  %-28s %14s %12s\n", "part", "bytes", "bits/value");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf("  %-28s %14llu %12.4f\n", rows[i].name, (unsigned long long)rows[i].size,
               bits_per_value(rows[i].size, len));
    }
}

/* ---- why a frame is refused ---- */

typedef struct broken_rule {
    int rule;
    uint64_t offset;
    char text[200];
} broken_rule;

static void rule_set(broken_rule *broken, int rule, uint64_t offset, const char *text)
{
    broken->rule = rule;
    broken->offset = offset;
    (void)snprintf(broken->text, sizeof broken->text, "%s", text);
}

/* Rules 1 to 8: the header by itself. */
static void header_explain(const uint8_t *frame, size_t size, broken_rule *broken)
{
    static const uint8_t magic[4] = {0x67, 0x57, 0x66, 0x1a};
    static const uint8_t cap_max[2][3] = {{18, 6, 9}, {23, 7, 10}};
    /* Bit n: step n is allowed. */
    static const uint8_t steps[2][3] = {{1u << 6, 1u << 2, 1u << 3}, {0x4e, 0x06, 0x0a}};
    if (size < HEADER_SIZE) {
        rule_set(broken, 1, size, "the file ends within the 32 bytes of the header");
        return;
    }
    for (unsigned i = 0; i < 4; i++) {
        if (frame[i] != magic[i]) {
            rule_set(broken, 2, i, "not a gradwire frame: it must begin with 67 57 66 1a");
            return;
        }
    }
    const uint32_t flags = gw_cli_load32(frame + 8);
    const unsigned dtype = frame[6];
    const int derived = (flags & FLAG_DERIVED) != 0;
    const int constant = (flags & FLAG_CONSTANT) != 0;
    const unsigned step = frame[12];
    const unsigned cap = frame[13];
    if (frame[4] != 0) {
        rule_set(broken, 3, 4, "a format version that this library does not read");
    } else if (frame[5] != 1) {
        rule_set(broken, 4, 5, "an unknown codec");
    } else if (dtype < 1 || dtype > 3) {
        rule_set(broken, 4, 6, "an unknown dtype");
    } else if (flags > 31) {
        rule_set(broken, 4, 8, "an unknown flag");
    } else if (frame[7] < 12 || frame[7] > 15) {
        rule_set(broken, 5, 7, "chunk_log2 must be 12 to 15");
    } else if (constant && !derived) {
        rule_set(broken, 6, 8, "the flag CONSTANT needs DERIVED");
    } else if (constant ? step != 1 : step > 7 || (steps[derived][dtype - 1] >> step & 1) == 0) {
        rule_set(broken, 7, 12, "a step that frames of this kind do not have");
    } else if (cap > cap_max[derived][dtype - 1] || (!constant && cap % step != 0)) {
        rule_set(broken, 7, 13, "cap too large or not a multiple of the step");
    } else if (gw_cli_load16(frame + 14) != 0 && (!derived || constant)) {
        rule_set(broken, 7, 14, "drop_base must be zero in explicit and constant frames");
    } else if (gw_cli_load64(frame + 16) > (uint64_t)1 << 48) {
        rule_set(broken, 8, 16, "more than 2^48 values");
    } else if (gw_cli_load64(frame + 16) > (uint64_t)1 << (32 + frame[7])) {
        rule_set(broken, 8, 16, "more than 2^32 chunks");
    }
}

/* Rules 9 to 14, for frames whose header is sound. */
static void structure_explain(const gw_input_file *input, broken_rule *broken)
{
    const uint8_t *frame = input->data;
    const size_t size = input->size;
    const uint32_t flags = gw_cli_load32(frame + 8);
    const uint64_t extension = ((flags & FLAG_INSTALLED) != 0 ? 8u : 0u) +
                               ((flags & (FLAG_DERIVED | FLAG_CONSTANT)) == FLAG_DERIVED ? 8u : 0u) +
                               ((flags & FLAG_CHECKSUM) != 0 ? 8u : 0u);
    const uint64_t chunk_log2 = frame[7];
    const uint64_t chunk_count = (gw_cli_load64(frame + 16) + ((uint64_t)1 << chunk_log2) - 1) >> chunk_log2;
    const uint64_t directory = HEADER_SIZE + extension;
    const uint64_t directory_end = directory + chunk_count * ENTRY_SIZE;
    const uint64_t payload = round_up(directory_end, 16);
    const uint64_t frame_size = gw_cli_load64(frame + 24);
    /* A stream was not read to its end if the header is invalid. */
    if (frame_size > size && !input->is_open) {
        rule_set(broken, 9, size, "");
        (void)snprintf(broken->text, sizeof broken->text,
                       "the header (byte 24) announces %llu bytes, the file has %llu",
                       (unsigned long long)frame_size, (unsigned long long)size);
        return;
    }
    if (frame_size < payload) {
        rule_set(broken, 10, 24, "the frame is announced smaller than its header and directory");
        return;
    }
    /* RAW chunks are as long as their values, the last one padded to 16 bytes. */
    const uint64_t value_size = frame[6] == GW_FP32 ? 4 : 2;
    if (frame_size - payload > round_up(gw_cli_load64(frame + 16) * value_size, 16)) {
        rule_set(broken, 10, 24, "the frame is announced larger than RAW chunks would be");
        return;
    }
    if (frame_size < size) {
        rule_set(broken, 11, frame_size, "bytes follow the frame");
        return;
    }
    if ((flags & FLAG_CHECKSUM) != 0 && gw_cli_load32(frame + directory - 4) != 0) {
        rule_set(broken, 12, directory - 4, "the reserved word of the extension is not zero");
        return;
    }
    for (uint64_t i = directory_end; i < payload; i++) {
        if (frame[i] != 0) {
            rule_set(broken, 12, i, "padding before chunk 0 is not zero");
            return;
        }
    }
}

/* Rule 14: the directory, entry by entry. */
static void directory_explain(const uint8_t *frame, const gw_gcomp_info *info, broken_rule *broken)
{
    uint64_t previous = info->payload_offset;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        const uint64_t offset = info->directory_offset + i * ENTRY_SIZE;
        const uint64_t place = gw_cli_load64(frame + offset);
        const uint64_t start = place & ~(uint64_t)15;
        const uint64_t kind = place & 15;
        const uint64_t book = gw_cli_load32(frame + offset + 8);
        const int has_book = kind == GW_GCOMP_CHUNK_CODED && !info->installed;
        if (kind > 2) {
            rule_set(broken, 14, offset, "");
            (void)snprintf(broken->text, sizeof broken->text,
                           "directory entry %llu: an unknown kind of chunk", (unsigned long long)i);
        } else if (start < previous || start > info->frame_size ||
                   (i == 0 && start != info->payload_offset)) {
            rule_set(broken, 14, offset, "");
            (void)snprintf(broken->text, sizeof broken->text,
                           "directory entry %llu: a chunk out of its place", (unsigned long long)i);
        } else if (has_book ? book > i : book != 0) {
            rule_set(broken, 14, offset + 8, "");
            (void)snprintf(broken->text, sizeof broken->text,
                           "directory entry %llu: a codebook that cannot be", (unsigned long long)i);
        } else if (!info->checksum && gw_cli_load32(frame + offset + 12) != 0) {
            rule_set(broken, 14, offset + 12, "");
            (void)snprintf(broken->text, sizeof broken->text,
                           "directory entry %llu: a checksum where the frame has none",
                           (unsigned long long)i);
        }
        if (broken->rule != 0) {
            return;
        }
        previous = start;
    }
    /* Each entry is possible by itself: then one of them names a chunk that owns no codebook, or chunk sizes
     * do not end at the frame's end. */
    rule_set(broken, 14, info->directory_offset, "the directory contradicts itself");
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        const uint64_t offset = info->directory_offset + i * ENTRY_SIZE;
        const uint64_t owner =
            info->directory_offset + (uint64_t)gw_cli_load32(frame + offset + 8) * ENTRY_SIZE;
        if ((frame[offset] & 15) == GW_GCOMP_CHUNK_CODED && !info->installed &&
            ((frame[owner] & 15) != GW_GCOMP_CHUNK_CODED ||
             gw_cli_load32(frame + owner + 8) != gw_cli_load32(frame + offset + 8))) {
            rule_set(broken, 14, offset + 8, "");
            (void)snprintf(broken->text, sizeof broken->text,
                           "directory entry %llu names a chunk that owns no codebook", (unsigned long long)i);
            return;
        }
    }
}

static int chunk_explain(const char *file, const uint8_t *frame, size_t size, const gw_gcomp_info *info,
                         gw_status status, uint64_t index)
{
    gw_chunk_parts parts;
    gw_chunk_parts_read(frame, size, info, index, &parts);
    if (status == GW_ERR_CHECKSUM) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, file, parts.chunk.offset,
                               "chunk %llu: checksum mismatch (rule 18)", (unsigned long long)index);
    }
    if (parts.broken_rule != 0) {
        return gw_cli_error_at(GW_CLI_BAD_DATA, file, parts.broken_offset,
                               "chunk %llu is corrupt: %s (rule %d)", (unsigned long long)index,
                               parts.broken_text, parts.broken_rule);
    }
    return gw_cli_error_at(
        GW_CLI_BAD_DATA, file, parts.chunk.offset,
        "chunk %llu is corrupt: its %s contradict its counts or each other (rules 19 to 26)",
        (unsigned long long)index,
        parts.chunk.kind == GW_GCOMP_CHUNK_RAW ? "values or padding" : "runs, planes or escapes");
}

int gw_frame_explain(const gw_input_file *input, gw_status status, uint64_t bad_chunk)
{
    const char *file = input->name;
    const uint8_t *frame = input->data;
    const size_t frame_size = input->size;
    if (status == GW_OK) {
        return GW_CLI_OK;
    }
    broken_rule broken;
    memset(&broken, 0, sizeof broken);
    gw_gcomp_info info;
    const gw_status peeked = gw_gcomp_peek(frame, frame_size, (uint64_t)1 << 48, &info);
    if (peeked == GW_OK && bad_chunk < info.chunk_count && info.frame_size == frame_size &&
        (status == GW_ERR_CORRUPT || status == GW_ERR_CHECKSUM)) {
        return chunk_explain(file, frame, frame_size, &info, status, bad_chunk);
    }
    header_explain(frame, frame_size, &broken);
    if (broken.rule == 0) {
        structure_explain(input, &broken);
    }
    if (broken.rule == 0 && status == GW_ERR_CHECKSUM && peeked == GW_OK) {
        rule_set(&broken, 13, info.directory_offset - 8, "checksum mismatch of header and directory");
    }
    if (broken.rule == 0 && status == GW_ERR_HEADER && peeked == GW_OK) {
        directory_explain(frame, &info, &broken);
    }
    if (broken.rule == 0 && status == GW_ERR_TABLE && peeked == GW_OK) {
        rule_set(&broken, 15, HEADER_SIZE, "");
        (void)snprintf(broken.text, sizeof broken.text,
                       "codebook %u, generation %u, is not in the frame and not installed here", info.book_id,
                       info.book_generation);
    }
    if (broken.rule == 0 && status == GW_ERR_LIMIT) {
        rule_set(&broken, 8, 16, "more values than fit here");
    }
    if (broken.rule == 0) {
        return gw_cli_error(GW_CLI_BAD_DATA, file, "%s (%s)", gw_status_message(status),
                            gw_status_name(status));
    }
    return gw_cli_error_at(GW_CLI_BAD_DATA, file, broken.offset, "%s (rule %d of docs/format.md: %s)",
                           broken.text, broken.rule, gw_status_name(status));
}
