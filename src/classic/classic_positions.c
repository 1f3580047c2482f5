/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_positions.h"

#include "classic/mask_prefix.h"

/* ---- sizes --------------------------------------------------------------------------------------------- */

static uint64_t groups_of(uint64_t len, uint64_t group_len)
{
    return len / group_len + (len % group_len != 0);
}

static uint64_t round8(uint64_t x)
{
    return (x + 7) & ~(uint64_t)7;
}

uint64_t gw_positions_table_size(unsigned kind, uint64_t len, uint64_t keep_len)
{
    return round8(kind == GW_POSITIONS_MASK
                      ? GW_MASK_TABLE_SIZE * groups_of(groups_of(len, 8), GW_MASK_GROUP_SIZE)
                      : groups_of(keep_len, GW_GAP_GROUP_LEN));
}

/* With b = floor(log2(len / keep_len)) for all groups gaps take keep_len * (1 + b) bits and the sum of gap >>
 * b, which is below 2 * keep_len. Each group's own parameter takes no more, and a mask is chosen if it is
 * smaller. */
uint64_t gw_positions_size_max(uint64_t len, uint64_t keep_len)
{
    uint64_t b = 0;
    while (keep_len != 0 && len / keep_len >> b > 1) {
        b++;
    }
    return GW_POSITIONS_WORD_SIZE + gw_positions_table_size(GW_POSITIONS_GAPS, len, keep_len) +
           round8(keep_len * (3 + b) / 8 + 1);
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

typedef struct bit_writer {
    uint8_t *dst; /* the next 8 bytes to write */
    uint64_t word;
    unsigned fill; /* bits in the word, below 64 */
} bit_writer;

/* bits <= 57, value < 2^bits. */
static inline void put_bits(bit_writer *w, uint64_t value, unsigned bits)
{
    w->word |= value << w->fill;
    w->fill += bits;
    if (w->fill >= 64) {
        gw_store64(w->dst, w->word);
        w->dst += 8;
        w->fill -= 64;
        w->word = w->fill == 0 ? 0 : value >> (bits - w->fill);
    }
}

static void put_gap(bit_writer *w, uint64_t gap, unsigned b)
{
    uint64_t zeros = gap >> b;
    while (zeros > 24) {
        const unsigned some = zeros > 48 ? 48 : (unsigned)zeros;
        put_bits(w, 0, some);
        zeros -= some;
    }
    const uint64_t rest = gap & (((uint64_t)1 << b) - 1);
    put_bits(w, (rest << 1 | 1) << zeros, (unsigned)zeros + 1 + b);
}

static void put_end(bit_writer *w)
{
    if (w->fill != 0) {
        gw_store64(w->dst, w->word);
    }
}

/* ---- gaps ---------------------------------------------------------------------------------------------- */

/* The gaps of positions [first, first + count): zeros of the mask before each. */
static void make_gaps(uint32_t *gaps, const uint32_t *positions, uint64_t first, size_t count)
{
    gaps[0] = first == 0 ? positions[0] : positions[first] - positions[first - 1] - 1;
    for (size_t i = 1; i < count; i++) {
        gaps[i] = positions[first + i] - positions[first + i - 1] - 1;
    }
}

static uint64_t gaps_cost(const uint32_t *gaps, size_t count, unsigned b)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += gaps[i] >> b;
    }
    return sum + (uint64_t)count * (1 + b);
}

/* The parameter of least cost, the lowest of several. The cost is convex in b: from b to b + 1 it changes by
 * count - sum of ceil((gap >> b) / 2), which never falls. So a walk from any start ends at the minimum. */
static unsigned best_parameter(uint64_t *cost, const uint32_t *gaps, size_t count)
{
    unsigned b = 0;
    const uint64_t mean = (gaps_cost(gaps, count, 0) - count) / count;
    while (b < GW_GAP_PARAMETER_MAX && mean >> b > 1) {
        b++;
    }
    uint64_t least = gaps_cost(gaps, count, b);
    for (uint64_t next; b < GW_GAP_PARAMETER_MAX && (next = gaps_cost(gaps, count, b + 1)) < least; b++) {
        least = next;
    }
    for (uint64_t next; b > 0 && (next = gaps_cost(gaps, count, b - 1)) <= least; b--) {
        least = next;
    }
    *cost = least;
    return b;
}

static uint64_t all_gaps_cost(const gw_positions_layout *layout)
{
    uint32_t gaps[GW_GAP_GROUP_LEN];
    uint64_t sum = 0;
    for (uint64_t first = 0; first < layout->keep_len; first += GW_GAP_GROUP_LEN) {
        const size_t count = (size_t)gw_min_u64(layout->keep_len - first, GW_GAP_GROUP_LEN);
        uint64_t cost;
        make_gaps(gaps, layout->positions, first, count);
        (void)best_parameter(&cost, gaps, count);
        sum += cost;
    }
    return sum;
}

static void write_gaps(uint8_t *tables, bit_writer *w, const gw_positions_layout *layout)
{
    uint32_t gaps[GW_GAP_GROUP_LEN];
    for (uint64_t first = 0; first < layout->keep_len; first += GW_GAP_GROUP_LEN) {
        const size_t count = (size_t)gw_min_u64(layout->keep_len - first, GW_GAP_GROUP_LEN);
        uint64_t cost;
        make_gaps(gaps, layout->positions, first, count);
        const unsigned b = best_parameter(&cost, gaps, count);
        *tables++ = (uint8_t)b;
        for (size_t i = 0; i < count; i++) {
            put_gap(w, gaps[i], b);
        }
    }
}

/* ---- mask ---------------------------------------------------------------------------------------------- */

/* A walk over the groups of the mask. */
typedef struct mask_walk {
    const gw_positions_layout *layout;
    uint64_t group; /* the next one */
    uint64_t place; /* index of the next position */
    size_t size;    /* bytes of the mask in the group */
    uint32_t count[GW_MASK_CLASSES];
} mask_walk;

/* Fills in the mask bytes of the next group and counts their classes. 0 after the last one. */
static int next_group(mask_walk *walk, uint8_t mask[GW_MASK_GROUP_SIZE])
{
    const gw_positions_layout *const layout = walk->layout;
    const uint64_t total = groups_of(layout->len, 8), begin = walk->group * GW_MASK_GROUP_SIZE;
    if (begin >= total) {
        return 0;
    }
    walk->size = (size_t)gw_min_u64(total - begin, GW_MASK_GROUP_SIZE);
    const uint64_t first = 8 * begin, end = first + 8 * walk->size;
    GW_MEMSET(mask, 0, walk->size);
    while (walk->place < layout->keep_len && layout->positions[walk->place] < end) {
        const uint64_t i = layout->positions[walk->place++] - first;
        mask[i / 8] = (uint8_t)(mask[i / 8] | 1u << i % 8);
    }
    GW_MEMSET(walk->count, 0, sizeof walk->count);
    gw_mask_count(walk->count, mask, walk->size);
    walk->group++;
    return 1;
}

/* The bits of a group, and the lengths of its codes. */
static uint64_t group_cost(const mask_walk *walk, uint8_t depth[GW_MASK_CLASSES],
                           gw_codebook_scratch *scratch)
{
    uint64_t bits = 0;
    gw_mask_depths(depth, walk->count, scratch);
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint64_t code = walk->count[c] == walk->size ? 0 : depth[c];
        bits += (code + gw_mask_class_width[c]) * walk->count[c];
    }
    return bits;
}

/* A lower bound of the bits of the mask, from its bytes that are not zero: a group of two classes or more
 * takes a bit a byte. In groups without a position all bytes are zero, which takes no bits. */
static uint64_t mask_cost_least(const gw_positions_layout *layout)
{
    uint64_t bits = 0, place = 0;
    while (place < layout->keep_len) {
        const uint64_t group = layout->positions[place] / (8 * GW_MASK_GROUP_SIZE);
        const uint64_t end = (group + 1) * (8 * GW_MASK_GROUP_SIZE), start = place;
        while (place < layout->keep_len && layout->positions[place] < end) {
            place++;
        }
        /* Fewer than one position a byte: some bytes are zero, others are not. */
        bits += place - start < GW_MASK_GROUP_SIZE && end <= layout->len ? GW_MASK_GROUP_SIZE : 0;
    }
    return bits;
}

/* The bits of the mask, or something above `limit` once it is clear that there are more. */
static uint64_t mask_cost(const gw_positions_layout *layout, uint64_t limit)
{
    uint8_t mask[GW_MASK_GROUP_SIZE], depth[GW_MASK_CLASSES];
    mask_walk walk = {layout, 0, 0, 0, {0}};
    uint64_t bits = mask_cost_least(layout);
    if (bits > limit) {
        return bits;
    }
    bits = 0;
    while (bits <= limit && next_group(&walk, mask)) {
        bits += group_cost(&walk, depth, layout->scratch);
    }
    return bits;
}

static void write_group(bit_writer *w, const uint8_t *mask, size_t size, const gw_mask_prefix *prefix)
{
    uint16_t code[256];
    uint8_t bits[256];
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint32_t width = gw_mask_class_width[c];
        for (uint32_t i = 0; i < 1u << width; i++) {
            const uint8_t byte = gw_mask_byte_order[gw_mask_class_first[c] + i];
            code[byte] = (uint16_t)(prefix->code[c] | i << prefix->bits[c]);
            bits[byte] = (uint8_t)(prefix->bits[c] + width);
        }
    }
    for (size_t i = 0; i < size; i++) {
        put_bits(w, code[mask[i]], bits[mask[i]]);
    }
}

static void write_mask(uint8_t *tables, bit_writer *w, const gw_positions_layout *layout)
{
    uint8_t mask[GW_MASK_GROUP_SIZE], depth[GW_MASK_CLASSES];
    mask_walk walk = {layout, 0, 0, 0, {0}};
    gw_mask_prefix prefix;
    while (next_group(&walk, mask)) {
        gw_mask_depths(depth, walk.count, layout->scratch);
        gw_mask_prefix_make(&prefix, depth);
        gw_mask_table_write(tables, depth);
        tables += GW_MASK_TABLE_SIZE;
        write_group(w, mask, walk.size, &prefix);
    }
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static uint64_t size_of(const gw_positions_layout *layout, unsigned kind, uint64_t bits)
{
    return GW_POSITIONS_WORD_SIZE + gw_positions_table_size(kind, layout->len, layout->keep_len) +
           groups_of(bits, 64) * 8;
}

void gw_positions_layout_make(gw_positions_layout *layout)
{
    layout->kind = GW_POSITIONS_GAPS;
    layout->stream_bits = all_gaps_cost(layout);
    layout->size = size_of(layout, layout->kind, layout->stream_bits);
    const uint64_t fixed = size_of(layout, GW_POSITIONS_MASK, 0);
    if (fixed >= layout->size) {
        return;
    }
    const uint64_t mask_bits = mask_cost(layout, 8 * (layout->size - fixed));
    if (size_of(layout, GW_POSITIONS_MASK, mask_bits) < layout->size) {
        layout->kind = GW_POSITIONS_MASK;
        layout->stream_bits = mask_bits;
        layout->size = size_of(layout, layout->kind, mask_bits);
    }
}

void gw_positions_write(uint8_t *dst, const gw_positions_layout *layout)
{
    const uint64_t table_size = gw_positions_table_size(layout->kind, layout->len, layout->keep_len);
    uint8_t *const tables = dst + GW_POSITIONS_WORD_SIZE;
    bit_writer w = {tables + table_size, 0, 0};
    gw_store64(dst, layout->kind + (groups_of(layout->stream_bits, 64) << 8));
    GW_MEMSET(tables, 0, (size_t)table_size);
    if (layout->kind == GW_POSITIONS_MASK) {
        write_mask(tables, &w, layout);
    } else {
        write_gaps(tables, &w, layout);
    }
    put_end(&w);
}
