/*
 * Encode: precision -> split -> entropy -> pack -> frame, group by group and chunk by chunk.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"
#include "gcomp/map_rule.h"

/* ---- begin --------------------------------------------------------------------------------------------- */

static void fill_rule(gw_round_rule *rule, const gw_codec *codec, const gw_gcomp_source *source)
{
    const gw_gcomp_options *o = &codec->options;
    GW_MEMSET(rule, 0, sizeof *rule);
    rule->dtype = (uint32_t)o->dtype;
    rule->rounding = (uint32_t)o->rounding;
    rule->derived = o->levels == GW_GCOMP_DERIVED;
    rule->strict = (uint32_t)o->strict;
    rule->constant = source->map == NULL;
    rule->cap = source->map == NULL ? o->constant_drop : o->cap;
    rule->drop_base = source->map == NULL ? 0 : gw_drop_base(codec, source->map->base);
    gw_floor_table(rule->floor, o->step);
    rule->seed = source->seed;
    rule->step_index = source->step_index;
    rule->rank_hop = (uint32_t)source->rank << 16 | source->hop;
}

void gw_encoding_fill_info(gw_gcomp_info *info, const gw_codec *codec, const gw_gcomp_source *source)
{
    const gw_gcomp_options *o = &codec->options;
    const int derived = o->levels == GW_GCOMP_DERIVED;
    GW_MEMSET(info, 0, sizeof *info);
    info->dtype = o->dtype;
    info->levels = o->levels;
    info->strict = o->strict;
    info->checksum = o->checksum;
    info->chunk_log2 = o->chunk_log2;
    info->len = source->len;
    info->step = o->step;
    info->cap = o->cap;
    if (codec->encode_with >= 0) {
        const gw_installed_book *book = &codec->installed[codec->encode_with];
        info->installed = 1;
        info->book_id = book->id;
        info->book_generation = book->generation;
        info->book_crc = book->crc;
    }
    if (derived && source->map == NULL) {
        info->constant = 1;
        info->step = 1;
        info->cap = o->constant_drop;
    }
    gw_frame_place(info, gw_frame_parts_size(info));
    if (derived && source->map != NULL) {
        info->drop_base = gw_drop_base(codec, source->map->base);
        info->wire_scale = source->map->wire_scale;
        info->map_hash = gw_map_hash(info, source->map->digest, &codec->kernels);
    }
}

int gw_encoding_is_source_valid(const gw_codec *codec, const gw_gcomp_source *source)
{
    const int derived = codec->options.levels == GW_GCOMP_DERIVED;
    if (source->len > SIZE_MAX / gw_traits_of((uint32_t)codec->options.dtype)->size ||
        !gw_frame_is_len_possible(source->len, codec->options.chunk_log2)) {
        return 0;
    }
    if (source->len != 0 && source->values == NULL) {
        return 0;
    }
    const gw_gcomp_map *map = source->map;
    if (map == NULL) {
        return 1;
    }
    if (map->base < 1 || map->base > 1023 || map->len != source->len ||
        (derived && !gw_is_wire_scale(map->wire_scale))) {
        return 0;
    }
    return source->len == 0 ||
           (map->levels != NULL &&
            (!derived || (map->digest != NULL && map->chunk_log2 == codec->options.chunk_log2)));
}

/* The first guess of a window: fp32 and bf16 values from 2^-56 to 2^7 are in it. */
enum { WINDOW_GUESS = 70 };

gw_status gw_encoding_begin(gw_encoding *encoding, const gw_gcomp *codec, const gw_gcomp_source *source,
                            const gw_workspace *workspace)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || source == NULL || workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (source->len > inside->options.len_max ||
        !gw_frame_is_len_possible(source->len, inside->options.chunk_log2)) {
        return GW_ERR_LIMIT;
    }
    if (!gw_encoding_is_source_valid(inside, source)) {
        return GW_ERR_ARG;
    }
    if (workspace->size < gw_scratch_size(inside)) {
        return GW_ERR_WORKSPACE;
    }
    GW_MEMSET(encoding, 0, sizeof *encoding);
    encoding->codec = inside;
    encoding->source = source;
    gw_encoding_fill_info(&encoding->info, inside, source);
    fill_rule(&encoding->rule, inside, source);
    encoding->window = WINDOW_GUESS;
    gw_scratch_carve(&encoding->scratch, inside, workspace->data);
    return GW_OK;
}

/* ---- spans --------------------------------------------------------------------------------------------- */

/* len values of the source from index `first` on; they are at `values`. */
static gw_span span_of(const gw_encoding *e, uint64_t first, const uint8_t *values, size_t len)
{
    const gw_gcomp_map *map = e->source->map;
    const gw_span span = {values, map == NULL ? NULL : map->levels + first, len,
                          e->source->first_element + first, 0};
    return span;
}

static gw_span span_part(const gw_span *span, size_t at, size_t len, size_t element_size)
{
    const gw_span part = {(const uint8_t *)span->values + at * element_size,
                          span->levels == NULL ? NULL : span->levels + at, len, span->element + at,
                          span->len - at - len};
    return part;
}

/* ---- codebook ------------------------------------------------------------------------------------------ */

/* 1 if labels depend on a window, which the largest ordinary exponent field decides. */
static int has_window(const gw_round_rule *rule)
{
    return !rule->derived && rule->dtype != GW_FP16;
}

uint32_t gw_survey_fold(uint32_t *count, const uint32_t *bin_count, uint32_t dtype, uint32_t derived)
{
    uint32_t base = 0;
    if (!derived && dtype != GW_FP16) {
        uint32_t largest = 0;
        for (uint32_t bin = 4; bin < 4u * gw_traits_of(dtype)->exponent_mask; bin++) {
            largest = bin_count[bin] != 0 ? bin >> 2 : largest;
        }
        base = gw_codebook_base(largest);
    }
    GW_MEMSET(count, 0, GW_LABELS * sizeof *count);
    for (uint32_t bin = 0; bin < GW_BINS; bin++) {
        if (bin_count[bin] != 0) {
            count[gw_label_of_bin(bin, dtype, derived, base)] += bin_count[bin];
        }
    }
    return base;
}

/* Counts the labels of a group from a sample (docs/format.md section 6): 64 values of every 64 * blocks.
 * Returns 0 if all values were counted and are +0. */
static int survey_group(gw_encoding *e, const gw_span *group, size_t blocks)
{
    gw_scratch *s = &e->scratch;
    GW_MEMSET(s->bin_count, 0, GW_BINS * sizeof *s->bin_count);
    e->codec->kernels.gcomp.survey(s->bin_count, group, GW_SAMPLE_RUN_LEN * blocks, &e->rule);
    s->book->base = (uint8_t)gw_survey_fold(s->count, s->bin_count, e->rule.dtype, e->rule.derived);
    if (blocks > 1) {
        s->count[GW_LABEL_ZERO] += s->count[GW_LABEL_ZERO] == 0;
        s->count[GW_LABEL_ESCAPE] += s->count[GW_LABEL_ESCAPE] == 0;
    }
    return blocks > 1 || s->count[GW_LABEL_ZERO] != group->len;
}

static void begin_digits(const gw_encoding *e, gw_digits *digits)
{
    GW_MEMSET(digits, 0, sizeof *digits);
    GW_MEMCPY(digits->plane, e->scratch.plane, sizeof digits->plane);
    digits->escape = e->scratch.escapes;
}

/* The largest exponent field of the values that were split into labels, without infinity and NaN. */
static uint32_t largest_exponent(const gw_encoding *e, uint32_t base, const gw_digits *digits)
{
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    uint32_t largest = 0;
    for (uint32_t label = GW_LABELS - 1; label >= 4 && largest == 0; label--) {
        largest = e->scratch.count[label] != 0 ? gw_exponent_of_label(label, e->rule.dtype, 0, base) : 0;
    }
    for (size_t i = 0; i < digits->escape_len; i++) {
        const uint8_t *at = digits->escape + t->size * i;
        const uint32_t bits = t->size == 4 ? gw_load32(at) : gw_load16(at);
        const uint32_t exponent = bits >> t->mantissa_bits & t->exponent_mask;
        largest = exponent > largest && exponent != t->exponent_mask ? exponent : largest;
    }
    return largest;
}

/* Moves the counts of ordinary labels to the labels that are `down` smaller. Returns 0 and changes nothing if
 * a counted label would leave the range of ordinary labels or an escape was counted. */
static int move_counts(uint32_t count[GW_LABELS], int32_t down)
{
    uint32_t outside = count[GW_LABEL_ESCAPE];
    for (int32_t label = 4; label < GW_LABELS; label++) {
        outside |= label - down < 4 || label - down >= GW_LABELS ? count[label] : 0;
    }
    if (outside != 0) {
        return 0;
    }
    uint32_t moved[GW_LABELS] = {0};
    moved[GW_LABEL_ZERO] = count[GW_LABEL_ZERO];
    for (int32_t label = 4; label < GW_LABELS; label++) {
        if (label + down >= 4 && label + down < GW_LABELS) {
            moved[label] = count[label + down];
        }
    }
    GW_MEMCPY(count, moved, sizeof moved);
    return 1;
}

/*
 * Counts all labels of a chunk, by a split whose ranks are the labels themselves: values are rounded once,
 * and rank_labels() later turns labels into ranks. The window follows from the same counts, so the split uses
 * the window of the chunk before. If that was the wrong one, the counts are moved; if a label would leave the
 * window, or there are escapes that the right window may have labels for, the chunk is split again.
 *
 * *move: what has to be subtracted from the ordinary labels in level[0]. Returns 0 if all values are +0.
 */
static int split_labels(gw_encoding *e, const gw_span *chunk, gw_digits *digits, int32_t *move)
{
    const gw_kernels *k = &e->codec->kernels;
    gw_scratch *s = &e->scratch;
    uint32_t base = has_window(&e->rule) ? e->window : 0;
    *move = 0;
    for (int is_right = 0; !is_right;) {
        for (uint32_t label = 0; label < GW_LABELS; label++) {
            s->ranker->rank[label] = (uint8_t)label;
        }
        s->ranker->escape_rank = GW_LABEL_ESCAPE;
        s->ranker->base = base;
        begin_digits(e, digits);
        if (k->gcomp.split(s->level[0], digits, chunk, &e->rule, s->ranker) == 0) {
            return 0;
        }
        GW_MEMSET(s->count, 0, GW_LABELS * sizeof *s->count);
        k->gcomp.count(s->count, s->level[0], chunk->len);
        is_right = 1;
        if (has_window(&e->rule)) {
            const uint32_t right = gw_codebook_base(largest_exponent(e, base, digits));
            *move = 4 * ((int32_t)right - (int32_t)base);
            is_right = right == base || move_counts(s->count, *move);
            base = right;
        }
    }
    e->window = base;
    s->book->base = (uint8_t)base;
    return 1;
}

/* Turns the labels of split_labels() into ranks. */
static void rank_labels(gw_encoding *e, size_t len, int32_t move)
{
    uint8_t rank[GW_LABELS];
    const gw_scratch *s = &e->scratch;
    GW_MEMCPY(rank, s->ranker->rank, sizeof rank);
    if (move != 0) {
        for (int32_t label = 4; label < GW_LABELS; label++) {
            const int32_t moved = label - move;
            rank[label] = s->ranker->rank[moved >= 4 && moved < GW_LABELS ? moved : GW_LABEL_ESCAPE];
        }
    }
    e->codec->kernels.gcomp.rank(s->level[0], len, rank);
}

static void use_book(gw_encoding *e)
{
    gw_tree_build(e->scratch.tree, e->scratch.book);
    gw_ranker_build(e->scratch.ranker, e->scratch.tree, e->scratch.book->base);
}

/* The codebook of the group being written. */
typedef struct group_state {
    uint64_t owner; /* chunk that stores it, UINT64_MAX while there is none */
    size_t size;    /* bytes */
    uint32_t crc;
    uint8_t bytes[GW_GCOMP_BOOK_SIZE_MAX];
} group_state;

/* ---- chunk --------------------------------------------------------------------------------------------- */

static size_t plane_count(const gw_encoding *e)
{
    return e->rule.derived ? GW_PLANES_MAX : GW_DIGIT_PLANES;
}

static unsigned plane_width(const gw_traits *t, size_t p)
{
    return p < GW_DIGIT_PLANES ? t->digit_width[p] : 4u >> (p - GW_DIGIT_PLANES);
}

static int is_single_label(const gw_node *node)
{
    return node->right == 0 && node->width == 0;
}

/*
 * Partitions the len ranks in level[0] along the tree. Writes every node's run to dst and the length of every
 * right child to right_len. Returns the end of the runs, or NULL if they would not fit before `end`.
 *
 * Nodes come in preorder. A node of n values has two areas: its ranks, and a free one of n bytes plus 128 for
 * each depth below it. The ranks of the left child stay in the first area; those of the right child go to the
 * start of the second, the rest of which is free for the left subtree. After the left subtree, all of the
 * first area is free for the right one. (128 bytes: slop, and alignment of the next start.)
 */
static uint8_t *write_runs(gw_encoding *e, size_t len, uint8_t *right_len, uint8_t *dst, const uint8_t *end)
{
    typedef struct part {
        uint8_t *ranks;
        uint8_t *free;
        size_t len;
    } part;
    part parts[GW_NODES_MAX];
    const gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const gw_tree *tree = s->tree;

    parts[0].ranks = s->level[0];
    parts[0].free = s->level[1];
    parts[0].len = len;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const part *own = &parts[i];
        const size_t run_size = gw_run_size(own->len, node->right != 0 ? 1 : node->width);
        if (run_size > (size_t)(end - dst)) {
            return NULL;
        }
        if (node->right != 0) {
            part *left = &parts[i + 1], *right = &parts[node->right];
            /* The ranks of a child that is a leaf of width 0 are not needed. */
            left->ranks = is_single_label(&tree->node[i + 1]) ? NULL : own->ranks;
            right->ranks = is_single_label(&tree->node[node->right]) ? NULL : own->free;
            right->len =
                k->gcomp.partition(left->ranks, right->ranks, dst, own->ranks, own->len, node->pivot);
            left->len = own->len - right->len;
            right->free = own->ranks;
            left->free = own->free + ((right->len + 2 * GW_SLOP - 1) & ~(size_t)(GW_SLOP - 1));
            gw_store16(right_len, (uint16_t)right->len);
            right_len += 2;
        } else if (node->width != 0) {
            k->gcomp.pack(dst, own->ranks, own->len, node->width, (uint8_t)node->first_rank);
        }
        dst += run_size;
    }
    return dst;
}

/* Writes a chunk from its ranks and digits, without codebook and final padding. Returns its size, or 0 if
 * that would be more than `limit`; dst[0..limit) is then unspecified. */
static size_t write_coded(gw_encoding *e, size_t len, const gw_digits *digits, uint8_t *dst, size_t limit)
{
    const gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    const size_t planes = plane_count(e);
    const size_t counts_size = 2 * (planes + 1 + s->tree->inner_count);
    const size_t header_size = gw_round4(counts_size);
    const size_t escapes_size = digits->escape_len * t->size;
    size_t rest_size = gw_round4(escapes_size);
    for (size_t p = 0; p < planes; p++) {
        rest_size += gw_run_size(digits->plane_len[p], plane_width(t, p));
    }
    if (header_size + rest_size > limit) {
        return 0;
    }
    uint8_t *at = write_runs(e, len, dst + 2 * (planes + 1), dst + header_size, dst + (limit - rest_size));
    if (at == NULL) {
        return 0;
    }
    for (size_t p = 0; p < planes; p++) {
        const unsigned width = plane_width(t, p);
        gw_store16(dst + 2 * p, (uint16_t)digits->plane_len[p]);
        k->gcomp.pack(at, digits->plane[p], digits->plane_len[p], width, 0);
        at += gw_run_size(digits->plane_len[p], width);
    }
    gw_store16(dst + 2 * planes, (uint16_t)digits->escape_len);
    GW_MEMSET(dst + counts_size, 0, header_size - counts_size);
    GW_MEMCPY(at, digits->escape, escapes_size);
    GW_MEMSET(at + escapes_size, 0, gw_round4(escapes_size) - escapes_size);
    at += gw_round4(escapes_size);
    return (size_t)(at - dst);
}

static void write_raw(gw_encoding *e, const gw_span *chunk, uint8_t *dst)
{
    const size_t size = chunk->len * gw_traits_of(e->rule.dtype)->size;
    e->codec->kernels.gcomp.round(dst, chunk, &e->rule);
    GW_MEMSET(dst + size, 0, gw_frame_raw_size(e->rule.dtype, chunk->len) - size);
}

static void write_entry(gw_encoding *e, uint64_t index, gw_gcomp_chunk_kind kind, uint64_t book, size_t size,
                        uint32_t crc)
{
    gw_frame_write_entry(e->entries + GW_FRAME_ENTRY_SIZE * (index - e->entries_first), e->offset,
                         (uint32_t)kind, (uint32_t)book, e->info.checksum ? crc : 0);
    e->payload += size;
    e->offset += size;
}

/* digits: NULL unless the chunk was split already. */
static void encode_chunk(gw_encoding *e, group_state *group, uint64_t index, const gw_span *chunk,
                         const gw_digits *digits)
{
    const gw_kernels *k = &e->codec->kernels;
    const size_t raw_size = gw_frame_raw_size(e->rule.dtype, chunk->len); /* a multiple of 16 */
    uint8_t *const dst = e->payload;
    const int is_owner = !e->info.installed && group->owner == UINT64_MAX;
    const size_t book_size = is_owner ? group->size : 0;
    const size_t others = book_size + 16; /* a CODED region is at least 16 bytes smaller than a RAW one */
    const size_t limit = raw_size > others ? raw_size - others : 0;
    gw_digits own;
    if (digits == NULL) {
        begin_digits(e, &own);
        digits = &own;
        if (k->gcomp.split(e->scratch.level[0], &own, chunk, &e->rule, e->scratch.ranker) == 0) {
            write_entry(e, index, GW_GCOMP_CHUNK_ZERO, 0, 0, 0);
            return;
        }
    }
    const size_t size = write_coded(e, chunk->len, digits, dst + book_size, limit);
    if (size == 0) {
        write_raw(e, chunk, dst);
        write_entry(e, index, GW_GCOMP_CHUNK_RAW, 0, raw_size,
                    e->info.checksum ? k->crc32c(0, dst, raw_size) : 0);
        return;
    }
    const size_t region = gw_round16(book_size + size);
    if (is_owner) {
        GW_MEMCPY(dst, group->bytes, book_size);
        group->owner = index;
    }
    GW_MEMSET(dst + book_size + size, 0, region - book_size - size);
    uint32_t crc = 0;
    if (e->info.checksum) {
        crc = k->crc32c(e->info.installed ? 0 : group->crc, dst + book_size, region - book_size);
    }
    write_entry(e, index, GW_GCOMP_CHUNK_CODED, e->info.installed ? 0 : group->owner, region, crc);
}

void gw_encode_group(gw_encoding *e, uint64_t first, const uint8_t *values)
{
    const uint32_t log2 = e->info.chunk_log2;
    const uint64_t group_first = first << log2;
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    const size_t group_len =
        (size_t)gw_min_u64(e->info.len - group_first, (uint64_t)gw_group_chunks(e->codec) << log2);
    const gw_span span = span_of(e, group_first, values, group_len);
    group_state group = {UINT64_MAX, 0, 0, {0}};
    gw_digits digits;
    int is_split = 0;

    if (e->info.installed) {
        *e->scratch.book = e->codec->installed[e->codec->encode_with].book;
        use_book(e);
    } else {
        size_t blocks = group_len / 4096;
        blocks = e->codec->options.preset == GW_GCOMP_SMALL || blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
        is_split = blocks == 1 && group_len <= (size_t)1 << log2;
        int32_t move = 0;
        if (!(is_split ? split_labels(e, &span, &digits, &move) : survey_group(e, &span, blocks))) {
            for (size_t at = 0; at < group_len; at += (size_t)1 << log2) {
                write_entry(e, first++, GW_GCOMP_CHUNK_ZERO, 0, 0, 0);
            }
            return;
        }
        gw_codebook_lengths(e->scratch.book->length, e->scratch.count, e->scratch.book_scratch);
        group.size = gw_codebook_size(e->scratch.book);
        gw_codebook_write(group.bytes, e->scratch.book);
        group.crc = e->info.checksum ? e->codec->kernels.crc32c(0, group.bytes, group.size) : 0;
        use_book(e);
        if (is_split) {
            rank_labels(e, group_len, move);
        }
    }

    for (size_t at = 0; at < group_len; at += (size_t)1 << log2, first++) {
        const size_t len = (size_t)gw_min_u64(group_len - at, (uint64_t)1 << log2);
        const gw_span chunk = span_part(&span, at, len, size);
        encode_chunk(e, &group, first, &chunk, is_split ? &digits : NULL);
    }
}

/* ---- frame --------------------------------------------------------------------------------------------- */

void gw_encoding_aim(gw_encoding *e, const gw_buffer *dst)
{
    e->entries = (uint8_t *)dst->data + e->info.directory_offset;
    e->payload = (uint8_t *)dst->data + e->info.payload_offset;
    e->offset = e->info.payload_offset;
}

void gw_encoding_finish(gw_encoding *e, gw_buffer *dst)
{
    uint8_t *const bytes = (uint8_t *)dst->data;
    const size_t entries_end = (size_t)(e->info.directory_offset + GW_FRAME_ENTRY_SIZE * e->info.chunk_count);
    GW_MEMSET(bytes + entries_end, 0, (size_t)e->info.payload_offset - entries_end);
    gw_frame_write_header(bytes, &e->info);
    if (e->info.checksum) {
        e->info.meta_crc = gw_frame_meta_crc(bytes, &e->info, &e->codec->kernels);
        gw_frame_write_header(bytes, &e->info);
    }
    dst->size = (size_t)e->info.frame_size;
}

/* Encodes a range that is aligned and within the frame. */
static void encode_groups(gw_encoding *e, const gw_gcomp_range *range)
{
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    const uint64_t end = range->chunk_first + range->chunk_count;
    for (uint64_t chunk = range->chunk_first; chunk < end; chunk += gw_group_chunks(e->codec)) {
        gw_encode_group(e, chunk,
                        (const uint8_t *)e->source->values + (size_t)(chunk << e->info.chunk_log2) * size);
    }
}

/* 1 if the size bytes at dst share one with the values of the source. */
static int is_over_values(const gw_encoding *e, const void *dst, size_t size)
{
    const size_t values_size = (size_t)e->source->len * gw_traits_of(e->rule.dtype)->size;
    return gw_is_overlapping(dst, size, e->source->values, values_size);
}

gw_status gw_gcomp_encode(const gw_gcomp *codec, const gw_gcomp_source *source, gw_buffer *dst,
                          const gw_workspace *workspace)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_bound(codec, source->len);
    if (bound == 0 || dst->capacity < bound) {
        return GW_ERR_DST;
    }
    if (is_over_values(&e, dst->data, bound)) {
        return GW_ERR_ARG;
    }
    gw_encoding_aim(&e, dst);
    encode_groups(&e, &(gw_gcomp_range){0, e.info.chunk_count});
    e.info.frame_size = e.offset;
    gw_encoding_finish(&e, dst);
    return GW_OK;
}

gw_status gw_gcomp_encode_range(const gw_gcomp *codec, const gw_gcomp_source *source, gw_gcomp_part *part,
                                const gw_workspace *workspace)
{
    if (part == NULL) {
        return GW_ERR_ARG;
    }
    part->size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    const gw_gcomp_range range = part->range;
    const uint64_t chunks = e.info.chunk_count;
    const uint32_t align = gw_group_chunks(e.codec);
    if (part->area == NULL || range.chunk_first % align != 0 || range.chunk_first > chunks ||
        range.chunk_count > chunks - range.chunk_first ||
        (range.chunk_count % align != 0 && range.chunk_first + range.chunk_count != chunks)) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_range_bound(codec, source->len, &range);
    if ((bound == 0 && range.chunk_count != 0) || part->capacity < bound) {
        return GW_ERR_DST;
    }
    if (is_over_values(&e, part->area, bound)) {
        return GW_ERR_ARG;
    }
    /* An area holds the directory entries of its chunks, with offsets from the range's first chunk, then the
     * chunks. */
    const size_t entries_size = (size_t)(GW_FRAME_ENTRY_SIZE * range.chunk_count);
    e.entries = (uint8_t *)part->area;
    e.entries_first = range.chunk_first;
    e.payload = (uint8_t *)part->area + entries_size;
    e.offset = 0;
    encode_groups(&e, &range);
    part->size = entries_size + (size_t)e.offset;
    return GW_OK;
}
