/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_positions.h"
#include "classic/mask_prefix.h"

/* The number of zeros below the lowest set bit of x, which is not 0. */
static inline unsigned low_zeros(uint64_t x)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(x);
#else
    unsigned count = 0;
    while ((x & 0xff) == 0) {
        x >>= 8;
        count += 8;
    }
    while ((x & 1) == 0) {
        x >>= 1;
        count++;
    }
    return count;
#endif
}

size_t gw_positions_open(gw_positions_reader *reader, const uint8_t *src, size_t size, uint64_t len,
                         uint64_t keep_len)
{
    GW_MEMSET(reader, 0, sizeof *reader);
    reader->is_bad = 1;
    reader->len = len;
    reader->keep_len = keep_len;
    if (size < GW_POSITIONS_WORD_SIZE) {
        return 0;
    }
    const uint64_t word = gw_load64(src), words = word >> 8, room = size - GW_POSITIONS_WORD_SIZE;
    const unsigned kind = (unsigned)(word & 255);
    const uint64_t table_size = gw_positions_table_size(kind, len, keep_len);
    if (kind > GW_POSITIONS_MASK || table_size > room || words > (room - table_size) / 8) {
        return 0;
    }
    reader->kind = kind;
    reader->tables = src + GW_POSITIONS_WORD_SIZE;
    reader->stream = reader->tables + (size_t)table_size;
    reader->stream_size = 8 * words;
    reader->is_bad = 0;
    return GW_POSITIONS_WORD_SIZE + (size_t)(table_size + 8 * words);
}

void gw_positions_open_bitmap(gw_positions_reader *reader, const uint64_t *bitmap, uint64_t len,
                              uint64_t keep_len)
{
    GW_MEMSET(reader, 0, sizeof *reader);
    reader->len = len;
    reader->keep_len = keep_len;
    reader->bitmap = bitmap;
    reader->bits = len == 0 ? 0 : bitmap[0];
}

/* At least 57 bits of the stream from bit `at` on, zeros after its end. */
static inline uint64_t window_at(const gw_positions_reader *reader, uint64_t at)
{
    const uint64_t byte = at >> 3;
    if (byte + 8 <= reader->stream_size) {
        return gw_load64(reader->stream + (size_t)byte) >> (at & 7);
    }
    if (byte >= reader->stream_size) {
        return 0;
    }
    const uint64_t last = reader->stream_size - 8; /* a multiple of 8 that is not 0 */
    return gw_load64(reader->stream + (size_t)last) >> (8 * (byte - last) + (at & 7));
}

/* The number of zeros from bit *at on, which moves to after the set bit that ends them. UINT64_MAX at the end
 * of the stream. */
static uint64_t long_zeros(const gw_positions_reader *reader, uint64_t *at)
{
    uint64_t zeros = 0;
    while (*at < 8 * reader->stream_size) {
        const uint64_t window = window_at(reader, *at) & (((uint64_t)1 << 57) - 1);
        if (window != 0) {
            const unsigned some = low_zeros(window);
            *at += some + 1;
            return zeros + some;
        }
        zeros += 57;
        *at += 57;
    }
    return UINT64_MAX;
}

/* Up to `count` positions of the group whose parameter is set. */
static size_t read_gaps(gw_positions_reader *reader, uint32_t *positions, size_t count)
{
    enum { SHORT_ZEROS = 25 }; /* with the bit after them and 31 more in one window */
    const unsigned b = reader->parameter;
    const uint64_t rest_mask = ((uint64_t)1 << b) - 1;
    uint64_t at = reader->bits, next = reader->next;
    size_t i = 0;
    for (; i < count; i++) {
        uint64_t window = window_at(reader, at), zeros;
        if ((window & ((1u << SHORT_ZEROS) - 1)) != 0) {
            zeros = low_zeros(window);
            window >>= zeros + 1;
            at += zeros + 1;
        } else {
            zeros = long_zeros(reader, &at);
            if (zeros >= reader->len) {
                break;
            }
            window = window_at(reader, at);
        }
        /* zeros < 2^32, b <= 31, next <= 2^32 */
        next += (zeros << b) + (window & rest_mask);
        at += b;
        if (next >= reader->len) {
            break;
        }
        positions[i] = (uint32_t)next;
        next++;
    }
    reader->is_bad |= i < count;
    reader->bits = at;
    reader->next = next;
    return i;
}

static size_t next_gaps(gw_positions_reader *reader, uint32_t *positions, size_t room)
{
    size_t count = 0;
    while (count < room && reader->found < reader->keep_len && !reader->is_bad) {
        const uint64_t in_group = reader->found % GW_GAP_GROUP_LEN;
        if (in_group == 0) {
            reader->parameter = reader->tables[(size_t)(reader->found / GW_GAP_GROUP_LEN)];
            if (reader->parameter > GW_GAP_PARAMETER_MAX) {
                reader->is_bad = 1;
                break;
            }
        }
        uint64_t some = gw_min_u64(room - count, GW_GAP_GROUP_LEN - in_group);
        some = gw_min_u64(some, reader->keep_len - reader->found);
        const size_t got = read_gaps(reader, positions + count, (size_t)some);
        count += got;
        reader->found += got;
    }
    return count;
}

/* The table of the codes of a group. 0 if there is no such code. */
static int open_group(gw_positions_reader *reader, uint64_t group)
{
    const uint8_t *const table = reader->tables + (size_t)(group * GW_MASK_TABLE_SIZE);
    uint8_t depth[GW_MASK_CLASSES];
    gw_mask_prefix prefix;
    if (gw_mask_table_read(depth, table) <= 0) {
        return 0;
    }
    gw_mask_prefix_make(&prefix, depth);
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint32_t bits = prefix.bits[c];
        if (bits == 0 && !(prefix.single && prefix.first == c)) {
            continue;
        }
        for (uint32_t i = prefix.code[c]; i < 1u << GW_MASK_DEPTH_MAX; i += 1u << bits) {
            reader->code[i] = (uint16_t)((bits + gw_mask_class_width[c]) | bits << 6 | c << 10);
        }
    }
    return 1;
}

/* The next 64 elements of the mask. 0 if a code or a bit after the last element is bad. */
static int read_mask_word(gw_positions_reader *reader, uint64_t mask_size, uint64_t *word)
{
    enum { BYTES_OF_WINDOW = 3 }; /* of at most 9 + 6 bits */
    const unsigned count = (unsigned)gw_min_u64(mask_size - reader->next, 8);
    const uint64_t left = reader->len - 8 * reader->next;
    uint64_t at = reader->bits, bytes = 0;
    if (reader->next % GW_MASK_GROUP_SIZE == 0 && !open_group(reader, reader->next / GW_MASK_GROUP_SIZE)) {
        return 0;
    }
    for (unsigned i = 0; i < count;) {
        const unsigned end = count - i < BYTES_OF_WINDOW ? count : i + BYTES_OF_WINDOW;
        uint64_t window = window_at(reader, at);
        for (; i < end; i++) {
            const uint32_t entry = reader->code[window & ((1u << GW_MASK_DEPTH_MAX) - 1)];
            const unsigned all = entry & 63, bits = entry >> 6 & 15;
            const uint32_t index = (uint32_t)(window >> bits) & ((1u << (all - bits)) - 1);
            window >>= all; /* the dependency chain from byte to byte: one load and one shift */
            at += all;
            bytes |= (uint64_t)gw_mask_byte_order[gw_mask_class_first[entry >> 10] + index] << 8 * i;
        }
    }
    reader->bits = at;
    reader->next += count;
    *word = bytes;
    return left >= 64 || bytes >> left == 0;
}

static unsigned ones_of(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (unsigned)(x * 0x0101010101010101u >> 56);
}

/* The whole mask, for a check that needs the number of positions only. */
static void skip_mask(gw_positions_reader *reader)
{
    const uint64_t mask_size = reader->len / 8 + (reader->len % 8 != 0);
    uint64_t count = 0, word;
    while (reader->next < mask_size && !reader->is_bad) {
        reader->is_bad = !read_mask_word(reader, mask_size, &word);
        count += reader->is_bad ? 0 : ones_of(word);
    }
    reader->is_bad |= count > reader->keep_len;
    reader->found = count;
}

/* Positions of a word at a time: how many set bits a byte has cannot be predicted. */
static size_t next_mask(gw_positions_reader *reader, uint32_t *positions, size_t room)
{
    const uint64_t mask_size = reader->len / 8 + (reader->len % 8 != 0);
    size_t count = 0;
    while (count + 64 <= room && reader->next < mask_size) {
        const uint64_t first = 8 * reader->next;
        uint64_t word;
        if (!read_mask_word(reader, mask_size, &word)) {
            reader->is_bad = 1;
            break;
        }
        for (; word != 0; word &= word - 1) {
            positions[count++] = (uint32_t)(first + low_zeros(word));
        }
    }
    reader->is_bad |= count > reader->keep_len - reader->found;
    count = (size_t)gw_min_u64(count, reader->keep_len - reader->found);
    reader->found += count;
    return count;
}

static size_t next_bits(gw_positions_reader *reader, uint32_t *positions, size_t room)
{
    const uint64_t words = reader->len / 64 + (reader->len % 64 != 0);
    uint64_t left = reader->bits;
    size_t count = 0;
    while (reader->next < words) {
        for (; left != 0 && count < room; left &= left - 1) {
            positions[count++] = (uint32_t)(64 * reader->next + low_zeros(left));
        }
        if (left != 0) {
            break;
        }
        reader->next++;
        left = reader->next < words ? reader->bitmap[reader->next] : 0;
    }
    reader->bits = left;
    count = (size_t)gw_min_u64(count, reader->keep_len - reader->found);
    reader->found += count;
    return count;
}

size_t gw_positions_next(gw_positions_reader *reader, uint32_t *positions, size_t room)
{
    if (reader->is_bad) {
        return 0;
    }
    if (reader->bitmap != NULL) {
        return next_bits(reader, positions, room);
    }
    return reader->kind == GW_POSITIONS_MASK ? next_mask(reader, positions, room)
                                             : next_gaps(reader, positions, room);
}

void gw_positions_skip(gw_positions_reader *reader)
{
    uint32_t positions[GW_GAP_GROUP_LEN];
    if (!reader->is_bad && reader->bitmap == NULL && reader->kind == GW_POSITIONS_MASK) {
        skip_mask(reader);
        return;
    }
    while (gw_positions_next(reader, positions, GW_GAP_GROUP_LEN) != 0) {
    }
}

int gw_positions_is_complete(const gw_positions_reader *reader)
{
    if (reader->is_bad || reader->found != reader->keep_len) {
        return 0;
    }
    if (reader->bitmap != NULL) {
        return 1;
    }
    const uint64_t mask_size = reader->len / 8 + (reader->len % 8 != 0);
    const uint64_t table_size = gw_positions_table_size(reader->kind, reader->len, reader->keep_len);
    uint64_t used = reader->keep_len / GW_GAP_GROUP_LEN + (reader->keep_len % GW_GAP_GROUP_LEN != 0);
    if (reader->kind == GW_POSITIONS_MASK) {
        used = GW_MASK_TABLE_SIZE * (mask_size / GW_MASK_GROUP_SIZE + (mask_size % GW_MASK_GROUP_SIZE != 0));
        if (reader->next != mask_size) {
            return 0;
        }
    }
    if ((reader->bits + 63) / 64 * 8 != reader->stream_size ||
        !gw_is_zero(reader->tables + (size_t)used, (size_t)(table_size - used))) {
        return 0;
    }
    const unsigned in_last = (unsigned)(reader->bits % 64);
    return in_last == 0 || gw_load64(reader->stream + (size_t)reader->stream_size - 8) >> in_last == 0;
}
