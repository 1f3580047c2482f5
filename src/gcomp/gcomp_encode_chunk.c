/*
 * Encode: one chunk, from values to its bytes: split, entropy, pack.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_encoding.h"
#include "gcomp/quanta.h"
#include "gcomp/tree_runs.h"

static size_t plane_count(const gw_encoding *e)
{
    return e->rule.derived ? GW_PLANES_MAX : GW_DIGIT_PLANES;
}

/* Writes the runs of the mask, if there is one, and of the labels. The mask's bytes become ranks in place. */
static int write_all_runs(gw_encoding *e, gw_run_writer *w, size_t len, size_t coded_len)
{
    const gw_scratch *s = &e->scratch;
    if (!s->codebook->is_masked) {
        const gw_rank_array all = {s->rank_buffer[0], s->rank_buffer[1], len, 0};
        return gw_write_runs(w, s->tree, &all);
    }
    const size_t mask_len = (len + 7) / 8;
    gw_rank_mask(s->mask[0], mask_len, s->mask_tree, w->kernels);
    const gw_rank_array mask = {s->mask[0], s->mask[1], mask_len, 0};
    const gw_rank_array labels = {s->rank_buffer[1], s->rank_buffer[0], coded_len, 1};
    return gw_write_runs(w, s->mask_tree, &mask) && gw_write_runs(w, s->tree, &labels);
}

/* In carried mode, copies the quanta of a chunk to dst. Returns their size. */
static size_t write_quanta(const gw_encoding *e, size_t at, size_t len, uint8_t *dst)
{
    if (e->info.quantum_mode != GW_GCOMP_CARRIED) {
        return 0;
    }
    const uint32_t log2 = e->info.block_log2;
    const size_t blocks = gw_block_count(len, log2), size = gw_round4(blocks);
    if (dst != NULL) {
        GW_MEMCPY(dst, e->scratch.quanta + (at >> log2), blocks);
        GW_MEMSET(dst + blocks, 0, size - blocks);
    }
    return size;
}

/* Writes a chunk from its ranks and digits, without codebook, quanta and final padding. Returns its size, or
 * 0 if that would be more than `limit`; dst[0..limit) is then unspecified. */
static size_t write_coded(gw_encoding *e, size_t len, const gw_split_chunk *split, uint8_t *dst, size_t limit)
{
    const gw_scratch *s = &e->scratch;
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    const gw_digits *digits = &split->digits;
    const size_t planes = plane_count(e);
    const size_t mask_counts = s->codebook->is_masked ? 1u + s->mask_tree->inner_count : 0;
    const size_t counts_size = 2 * (planes + 1 + mask_counts + s->tree->inner_count);
    const size_t header_size = gw_round4(counts_size);
    const size_t escapes_size = digits->escape_len * t->size;
    size_t rest_size = gw_round4(escapes_size);
    for (size_t p = 0; p < planes; p++) {
        rest_size += gw_run_size(digits->plane_len[p], gw_plane_width(t, p));
    }
    if (header_size + rest_size > limit) {
        return 0;
    }
    uint8_t *count = dst;
    for (size_t p = 0; p < planes; p++, count += 2) {
        gw_store16(count, (uint16_t)digits->plane_len[p]);
    }
    gw_store16(count, (uint16_t)digits->escape_len);
    count += 2;
    if (s->codebook->is_masked) {
        gw_store16(count, (uint16_t)split->coded_len);
        count += 2;
    }
    GW_MEMSET(dst + counts_size, 0, header_size - counts_size);
    gw_run_writer writer = {&e->codec->kernels, count, dst + header_size, dst + (limit - rest_size)};
    if (!write_all_runs(e, &writer, len, split->coded_len)) {
        return 0;
    }
    uint8_t *at = writer.dst;
    for (size_t p = 0; p < planes; p++) {
        const unsigned width = gw_plane_width(t, p);
        e->codec->kernels.gcomp.pack(at, digits->plane[p], digits->plane_len[p], width, 0);
        at += gw_run_size(digits->plane_len[p], width);
    }
    GW_MEMCPY(at, digits->escape, escapes_size);
    GW_MEMSET(at + escapes_size, 0, gw_round4(escapes_size) - escapes_size);
    at += gw_round4(escapes_size);
    return (size_t)(at - dst);
}

static void write_raw(gw_encoding *e, const gw_group *group, const gw_span *chunk, size_t at, uint8_t *dst)
{
    const size_t size = chunk->len * gw_traits_of(e->rule.dtype)->size;
    if (group->part_count <= 1) {
        e->codec->kernels.gcomp.round(dst, chunk, &e->rule);
    } else {
        gw_segment_place place = gw_segment_after(group->parts, at);
        gw_round_parts(e, chunk, &place, dst);
    }
    GW_MEMSET(dst + size, 0, gw_frame_raw_size(e->rule.dtype, chunk->len) - size);
}

static void write_entry(gw_encoding *e, uint64_t index, gw_gcomp_chunk_kind kind, uint64_t codebook,
                        size_t size, uint32_t crc)
{
    gw_frame_write_entry(e->entries + GW_FRAME_ENTRY_SIZE * (index - e->entries_first), e->offset,
                         (uint32_t)kind, (uint32_t)codebook, e->info.checksum ? crc : 0);
    e->payload += size;
    e->offset += size;
}

void gw_encode_zero_chunk(gw_encoding *e, uint64_t index)
{
    write_entry(e, index, GW_GCOMP_CHUNK_ZERO, 0, 0, 0);
}

/* Splits a chunk into ranks, as gw_group_split() leaves them. Returns 0 if all values are +0. */
static int split_chunk(gw_encoding *e, const gw_group *group, const gw_span *chunk, size_t at,
                       gw_split_chunk *split)
{
    const gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    gw_digits_begin(e, &split->digits);
    split->coded_len = chunk->len;
    if (gw_split_parts(e, group, chunk, at, &split->digits) == 0) {
        return 0;
    }
    if (s->codebook->is_masked) {
        split->coded_len =
            k->gcomp.partition(NULL, s->rank_buffer[1], s->mask[0], s->rank_buffer[0], chunk->len, 1);
    }
    return 1;
}

void gw_encode_chunk(gw_encoding *e, gw_group *group, uint64_t index, size_t at, size_t len,
                     const gw_split_chunk *split)
{
    const gw_kernels *k = &e->codec->kernels;
    const gw_span chunk = gw_group_span(e, group, at, len);
    const size_t raw_size = gw_frame_raw_size(e->rule.dtype, len); /* a multiple of 16 */
    uint8_t *const dst = e->payload;
    const int is_owner = !e->info.installed && group->owner == UINT64_MAX;
    const size_t codebook_size = is_owner ? group->codebook_size : 0;
    const size_t front_size = codebook_size + write_quanta(e, at, len, NULL);
    const size_t others = front_size + 16; /* a CODED region is at least 16 bytes smaller than a RAW one */
    const size_t limit = raw_size > others ? raw_size - others : 0;
    gw_split_chunk own;
    if (split == NULL) {
        split = &own;
        if (!split_chunk(e, group, &chunk, at, &own)) {
            gw_encode_zero_chunk(e, index);
            return;
        }
    }
    const size_t size = limit == 0 ? 0 : write_coded(e, len, split, dst + front_size, limit);
    if (size == 0) {
        write_raw(e, group, &chunk, at, dst);
        write_entry(e, index, GW_GCOMP_CHUNK_RAW, 0, raw_size,
                    e->info.checksum ? k->crc32c(0, dst, raw_size) : 0);
        return;
    }
    const size_t region = gw_round16(front_size + size);
    if (is_owner) {
        GW_MEMCPY(dst, group->codebook, codebook_size);
        group->owner = index;
    }
    write_quanta(e, at, len, dst + codebook_size);
    GW_MEMSET(dst + front_size + size, 0, region - front_size - size);
    uint32_t crc = 0;
    if (e->info.checksum) {
        crc = k->crc32c(e->info.installed ? 0 : group->codebook_crc, dst + codebook_size,
                        region - codebook_size);
    }
    write_entry(e, index, GW_GCOMP_CHUNK_CODED, e->info.installed ? 0 : group->owner, region, crc);
}
