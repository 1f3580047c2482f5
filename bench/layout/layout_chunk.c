/* SPDX-License-Identifier: BSD-2-Clause */
#include "layout_chunk.h"

#include <string.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS() __rdtsc()
#else
#define TICKS() 0u
#endif

/* A chunk takes some 20 thousand ticks; more than this and another process had the core meanwhile. */
enum { TICKS_PREEMPTED = 200000 };

/* ---- frame
 * ------------------------------------------------------------------------------------------------------- */

int lay_frame_open(lay_frame *frame, const uint8_t *bytes, size_t size)
{
    memset(frame, 0, sizeof *frame);
    if (size < 32 || memcmp(bytes, "gWf\x1a\0\1", 6) != 0 || bytes[6] < 1 || bytes[6] > 3) {
        return 0;
    }
    const uint32_t flags = lay_load32(bytes + 8);
    if ((flags & (4u | 16u)) != 0) {
        return 0; /* INSTALLED, CONSTANT: not part of the experiment */
    }
    frame->bytes = bytes;
    frame->size = size;
    frame->chunk_log2 = bytes[7];
    frame->count = lay_load64(bytes + 16);
    frame->chunk_count = (frame->count + (((uint64_t)1 << frame->chunk_log2) - 1)) >> frame->chunk_log2;
    frame->directory = bytes + 32 + ((flags & 2) != 0 ? 8 : 0) + ((flags & 8) != 0 ? 8 : 0);
    lay_rule *r = &frame->rule;
    r->dtype = bytes[6];
    r->derived = flags >> 1 & 1;
    r->step = bytes[12];
    r->cap = bytes[13];
    r->drop_base = (int16_t)lay_load16(bytes + 14);
    for (uint32_t n = 0; n < 32; n++) {
        r->keep[n] = (uint8_t)(n <= 23 ? 24 - n / r->step * r->step : 24);
    }
    return lay_load64(bytes + 24) == size;
}

lay_place lay_frame_place(const lay_frame *frame, uint64_t index)
{
    const uint8_t *entry = frame->directory + 16 * index;
    const uint64_t place = lay_load64(entry);
    const uint64_t end =
        index + 1 < frame->chunk_count ? lay_load64(entry + 16) & ~(uint64_t)15 : frame->size;
    const uint64_t first = index << frame->chunk_log2;
    const uint64_t full = (uint64_t)1 << frame->chunk_log2;
    lay_place p;
    p.offset = place & ~(uint64_t)15;
    p.size = end - p.offset;
    p.kind = (uint32_t)(place & 15);
    p.book = lay_load32(entry + 8);
    p.len = (size_t)(frame->count - first < full ? frame->count - first : full);
    return p;
}

/* ---- codebook (docs/format.md section 5.1)
 * ----------------------------------------------------------------------- */

static void add_leaf(lay_book *book, uint32_t *post, uint32_t *open_count, uint8_t open[16], uint32_t *depth,
                     uint32_t *rank, uint32_t leaf_depth, uint32_t width)
{
    for (; *depth < leaf_depth; (*depth)++) {
        lay_node *inner = &book->node[book->node_count];
        inner->first_rank = (uint16_t)*rank;
        inner->depth = (uint8_t)*depth;
        open[(*open_count)++] = (uint8_t)book->node_count++;
    }
    lay_node *leaf = &book->node[book->node_count];
    leaf->first_rank = (uint16_t)*rank;
    leaf->depth = (uint8_t)leaf_depth;
    leaf->width = (uint8_t)width;
    *rank += 1u << width;
    book->postorder[(*post)++] = (uint8_t)book->node_count++;
    while (*open_count > 0 && book->node[open[*open_count - 1]].right != 0) {
        book->postorder[(*post)++] = open[--*open_count];
    }
    if (*open_count > 0) {
        lay_node *parent = &book->node[open[*open_count - 1]];
        parent->right = (uint16_t)book->node_count;
        *depth = parent->depth + 1u;
    }
}

int lay_book_read(lay_book *book, const uint8_t *src, size_t size, uint32_t derived, size_t *used)
{
    uint8_t length[256] = {0};
    memset(book, 0, sizeof *book);
    if (size < 4) {
        return 0;
    }
    const uint32_t first = src[1], last = src[2];
    const uint32_t nibbles = first == 0 ? 0 : last - first + 1;
    *used = 4 + ((nibbles + 1) / 2 + 3) / 4 * 4;
    if (last < first || size < *used || (derived && src[0] != 0)) {
        return 0;
    }
    book->base = src[0];
    length[0] = src[3] & 15;
    length[1] = src[3] >> 4;
    for (uint32_t i = 0; i < nibbles; i++) {
        length[first + i] = src[4 + i / 2] >> (i % 2 * 4) & 15;
    }
    uint32_t kraft = 0;
    for (uint32_t label = 0; label < 256; label++) {
        if (length[label] > 11) {
            return 0;
        }
        kraft += length[label] == 0 ? 0 : 1u << (11 - length[label]);
        book->label_count += length[label] != 0;
    }
    if (book->label_count == 1 ? kraft != 1024 : kraft != 2048) {
        return 0;
    }

    /* Labels by code length, increasing within a length. */
    uint8_t sorted[256];
    uint32_t start[13] = {0}, next[13];
    for (uint32_t label = 0; label < 256; label++) {
        start[length[label] + 1]++;
    }
    start[1] = 0; /* labels without a code are left out */
    for (uint32_t l = 2; l <= 12; l++) {
        start[l] += start[l - 1];
    }
    memcpy(next, start, sizeof next);
    for (uint32_t label = 0; label < 256; label++) {
        if (length[label] != 0) {
            sorted[next[length[label]]++] = (uint8_t)label;
        }
    }

    uint8_t open[16];
    uint32_t open_count = 0, depth = 0, rank = 0, post = 0;
    /* Leaves in order of depth; among equals in order of code length, then of creation. */
    for (uint32_t leaf_depth = 0; leaf_depth <= 11; leaf_depth++) {
        for (uint32_t l = leaf_depth == 0 ? 1 : leaf_depth; l <= 11; l++) {
            for (uint32_t at = start[l], left = start[l + 1] - at, width; left > 0;
                 at += 1u << width, left -= 1u << width) {
                for (width = 0; width < 7 && 2u << width <= left; width++) {
                }
                if ((book->label_count == 1 ? 0 : l - width) == leaf_depth) {
                    memcpy(book->label_of_rank + rank, sorted + at, (size_t)1 << width);
                    add_leaf(book, &post, &open_count, open, &depth, &rank, leaf_depth, width);
                    book->inner_count++;
                }
            }
        }
    }
    book->inner_count--; /* one less than leaves */
    return 1;
}

/* ---- chunk (section 5.2)
 * ----------------------------------------------------------------------------------------- */

int lay_parts_find(lay_parts *parts, const lay_book *book, const uint8_t *data, size_t size, size_t len,
                   const lay_rule *rule)
{
    static const uint8_t digit_widths[4][4] = {{0}, {6, 6, 6, 6}, {2, 2, 2, 2}, {2, 3, 3, 3}};
    const unsigned planes = rule->derived ? 7 : 4;
    const size_t header = (2 * (planes + 1 + book->inner_count) + 3) / 4 * 4;
    if (size < header) {
        return 0;
    }
    const uint8_t *count = data;
    for (unsigned p = 0; p < planes; p++, count += 2) {
        parts->plane_len[p] = lay_load16(count);
        if (parts->plane_len[p] > len) {
            return 0;
        }
    }
    parts->escape_len = lay_load16(count);
    count += 2;
    parts->len = len;
    parts->node_len[0] = len;
    parts->node_at[0] = 0;
    size_t at = header;
    for (uint32_t i = 0; i < book->node_count; i++) {
        const lay_node *node = &book->node[i];
        const size_t node_len = parts->node_len[i];
        parts->run[i] = data + (at <= size ? at : 0);
        unsigned width = node->width;
        if (node->right != 0) {
            const size_t right_len = lay_load16(count);
            count += 2;
            if (right_len > node_len) {
                return 0;
            }
            parts->node_len[i + 1] = node_len - right_len;
            parts->node_at[i + 1] = parts->node_at[i];
            parts->node_len[node->right] = right_len;
            parts->node_at[node->right] = parts->node_at[i] + node_len - right_len;
            width = 1;
        }
        at += lay_run_size(node_len, width);
    }
    for (unsigned p = 0; p < planes; p++) {
        parts->plane[p] = data + (at <= size ? at : 0);
        at += lay_run_size(parts->plane_len[p], p < 4 ? digit_widths[rule->dtype][p] : lay_plane_width(p));
    }
    parts->escape = data + (at <= size ? at : 0);
    at += lay_run_size(parts->escape_len, rule->dtype == 1 ? 32 : 16);
    return at <= size && size - at < 16;
}

/* ---- plain
 * ------------------------------------------------------------------------------------------------------- */

static uint32_t bits_at(const uint8_t *string, size_t at, unsigned width)
{
    uint32_t x = 0;
    for (unsigned j = 0; j < width; j++) {
        x |= (uint32_t)(string[(at + j) / 8] >> ((at + j) % 8) & 1) << j;
    }
    return x;
}

int lay_decode_plain(uint32_t *dst, const lay_book *book, const lay_parts *parts, const uint8_t *levels,
                     const lay_rule *rule)
{
    size_t cursor[LAY_NODES_MAX] = {0};
    size_t digit[LAY_PLANES_MAX] = {0};
    size_t escapes = 0;
    for (size_t i = 0; i < parts->len; i++) {
        uint32_t n = 0;
        while (book->node[n].right != 0) {
            const size_t at = cursor[n]++;
            if (at >= parts->node_len[n]) {
                return 0;
            }
            n = bits_at(parts->run[n], at, 1) ? book->node[n].right : n + 1;
        }
        const size_t at = cursor[n]++;
        if (at >= parts->node_len[n]) {
            return 0;
        }
        const unsigned width = book->node[n].width;
        const uint32_t label =
            book->label_of_rank[book->node[n].first_rank + bits_at(parts->run[n], at * width, width)];
        if (label == LAY_LABEL_ZERO) {
            dst[i] = 0;
            continue;
        }
        if (label == LAY_LABEL_ESCAPE) {
            if (escapes >= parts->escape_len) {
                return 0;
            }
            dst[i] = lay_load32(parts->escape + 4 * escapes++);
            continue;
        }
        uint32_t exponent, kept;
        if (rule->derived) {
            exponent = label - 1;
            const int32_t room = (int32_t)levels[i] + rule->drop_base - (int32_t)(4 * exponent + 3);
            uint32_t drop = levels[i] == 0 || room < 4 ? 0 : (uint32_t)room / 4;
            kept = rule->keep[drop < rule->cap ? drop : rule->cap];
        } else {
            exponent = (label >> 2) + book->base;
            kept = 24 - 6 * (label & 3);
        }
        uint32_t z = 0;
        unsigned left = 24;
        for (unsigned p = 0; p < 7 && kept != 0; p++) {
            const unsigned width_p = lay_plane_width(p);
            if (p < 4 ? kept >= 6 : (kept & width_p) != 0) {
                if (digit[p] >= parts->plane_len[p]) {
                    return 0;
                }
                left -= width_p;
                kept -= width_p;
                z |= bits_at(parts->plane[p], width_p * digit[p]++, width_p) << left;
            }
        }
        dst[i] = z >> 23 << 31 | exponent << 23 | (z & 0x7fffff);
    }
    for (unsigned p = 0; p < (rule->derived ? 7u : 4u); p++) {
        if (digit[p] != parts->plane_len[p]) {
            return 0;
        }
    }
    return escapes == parts->escape_len;
}

/* ---- stages
 * ------------------------------------------------------------------------------------------------------ */

int lay_decode_stages(const lay_kernels *k, uint32_t *dst, const lay_book *book, const uint8_t *data,
                      size_t size, size_t len, const uint8_t *levels, const lay_rule *rule, lay_scratch *s,
                      const uint8_t *next, size_t next_size, lay_times *times)
{
    const uint64_t t0 = TICKS();
    lay_parts *parts = &s->parts;
    if (!lay_parts_find(parts, book, data, size, len, rule)) {
        return 0;
    }
    const uint64_t t1 = TICKS();
    /* The next chunk's bytes are asked for a little at every node: all at once they would hold up the loads
     * at hand. */
    const size_t share = next_size / book->node_count / 64 + 1;
    size_t ahead = 0;
    for (uint32_t i = 0; i < book->node_count; i++) {
        const uint32_t index = book->postorder[i];
        const lay_node *node = &book->node[index];
        const size_t node_len = parts->node_len[index];
        uint8_t *out = s->level[node->depth & 1] + parts->node_at[index];
        for (size_t j = 0; j < share && ahead < next_size; j++, ahead += 64) {
            __builtin_prefetch(next + ahead);
        }
        if (node->right != 0) {
            const uint8_t *below = s->level[(node->depth + 1) & 1];
            const size_t right_len = parts->node_len[node->right];
            if (k->merge(out, below + parts->node_at[index + 1], below + parts->node_at[node->right],
                         parts->run[index], node_len) != right_len) {
                return 0;
            }
            const uint8_t *last = parts->run[index] + lay_run_size(node_len, 1) - 4;
            if (node_len % 32 != 0 && lay_load32(last) >> node_len % 32 != 0) {
                return 0;
            }
        } else if (node->width != 0) {
            if (!k->unpack(out, parts->run[index], node_len, node->width,
                           book->label_of_rank + node->first_rank)) {
                return 0;
            }
        } else {
            memset(out, book->label_of_rank[node->first_rank], node_len);
        }
    }
    const uint64_t t2 = TICKS();
    if (rule->dtype != 1) {
        return 1; /* labels are all that is wanted */
    }
    const unsigned planes = rule->derived ? 7 : 4;
    uint8_t *plane[LAY_PLANES_MAX];
    for (unsigned p = 0; p < planes; p++) {
        plane[p] = s->plane[p];
        if (k->join_packed) {
            const size_t run_size = lay_run_size(parts->plane_len[p], lay_plane_width(p));
            const unsigned used = parts->plane_len[p] * lay_plane_width(p) % 32;
            memcpy(plane[p], parts->plane[p], run_size);
            if (used != 0 && lay_load32(parts->plane[p] + run_size - 4) >> used != 0) {
                return 0;
            }
        } else if (!k->unpack(plane[p], parts->plane[p], parts->plane_len[p], lay_plane_width(p), NULL)) {
            return 0;
        }
    }
    const uint64_t t3 = TICKS();
    lay_joined joined;
    k->join(dst, &joined, s->level[0], plane, parts->escape, parts->escape_len, levels, len, book->base,
            rule);
    const uint64_t t4 = TICKS();
    for (unsigned p = 0; p < planes; p++) {
        if (joined.plane_len[p] != parts->plane_len[p]) {
            return 0;
        }
    }
    if (times != NULL && t4 - t0 < TICKS_PREEMPTED) {
        times->parts += t1 - t0;
        times->runs += t2 - t1;
        times->planes += t3 - t2;
        times->join += t4 - t3;
    }
    return joined.escape_len == parts->escape_len;
}

int lay_decode_frame(const lay_kernels *k, uint32_t *dst, const lay_frame *frame, uint64_t chunk_count,
                     const uint8_t *levels, lay_scratch *scratch, lay_times *times)
{
    lay_book book;
    uint64_t owner = UINT64_MAX;
    size_t book_size = 0;
    for (uint64_t i = 0; i < chunk_count; i++) {
        const lay_place place = lay_frame_place(frame, i);
        uint32_t *out = dst + (i << frame->chunk_log2);
        const uint8_t *map = levels == NULL ? NULL : levels + (i << frame->chunk_log2);
        const uint8_t *data = frame->bytes + place.offset;
        size_t size = (size_t)place.size;
        if (place.kind != 2) {
            if (place.kind == 0) {
                memset(out, 0, 4 * place.len);
            } else {
                memcpy(out, data, 4 * place.len);
            }
            continue;
        }
        if (owner != place.book) {
            const lay_place at = lay_frame_place(frame, place.book);
            if (!lay_book_read(&book, frame->bytes + at.offset, (size_t)at.size, frame->rule.derived,
                               &book_size)) {
                return 0;
            }
            owner = place.book;
        }
        if (place.book == i) {
            data += book_size;
            size -= book_size;
        }
        int ok;
        if (k == NULL) {
            ok = lay_parts_find(&scratch->parts, &book, data, size, place.len, &frame->rule) &&
                 lay_decode_plain(out, &book, &scratch->parts, map, &frame->rule);
        } else {
            size_t next_size = i + 1 < frame->chunk_count ? (size_t)lay_frame_place(frame, i + 1).size : 0;
            ok = lay_decode_stages(k, out, &book, data, size, place.len, map, &frame->rule, scratch,
                                   data + size, next_size, times);
        }
        if (!ok) {
            return 0;
        }
    }
    return 1;
}
