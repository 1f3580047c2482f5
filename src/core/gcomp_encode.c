/*
 * Encode: precision -> split -> entropy -> pack -> frame, group by group and chunk by chunk.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/gcomp_codec.h"

/* ---- begin ------------------------------------------------------------------------------------------------------- */

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

static void fill_info(gw_gcomp_info *info, const gw_codec *codec, const gw_gcomp_source *source)
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
    }
    if (derived && source->map == NULL) {
        info->constant = 1;
        info->step = 1;
        info->cap = o->constant_drop;
    }
    gw_frame_place(info);
    if (derived && source->map != NULL) {
        info->drop_base = gw_drop_base(codec, source->map->base);
        info->wire_scale = source->map->wire_scale;
        info->map_hash = gw_map_hash(info, source->map->digest, &codec->kernels);
    }
}

static int is_source_valid(const gw_codec *codec, const gw_gcomp_source *source)
{
    const int derived = codec->options.levels == GW_GCOMP_DERIVED;
    if (source->len > SIZE_MAX / gw_traits_of((uint32_t)codec->options.dtype)->size) {
        return 0;
    }
    if (source->len != 0 && source->values == NULL) {
        return 0;
    }
    const gw_gcomp_map *map = source->map;
    return map == NULL || (map->base >= 1 && map->base <= 1023 && map->len == source->len && (source->len == 0 || map->levels != NULL) &&
                           (source->len == 0 || !derived ||
                            (map->digest != NULL && map->chunk_log2 == codec->options.chunk_log2)));
}

gw_status gw_encoding_begin(gw_encoding *encoding, const gw_gcomp *codec, const gw_gcomp_source *source,
                            void *workspace, size_t workspace_size)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || source == NULL || workspace == NULL) {
        return GW_ERR_ARG;
    }
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (source->len > inside->options.count_limit) {
        return GW_ERR_LIMIT;
    }
    if (!is_source_valid(inside, source)) {
        return GW_ERR_ARG;
    }
    if (workspace_size < gw_scratch_size(inside)) {
        return GW_ERR_WORKSPACE;
    }
    GW_MEMSET(encoding, 0, sizeof *encoding);
    encoding->codec = inside;
    encoding->source = source;
    fill_info(&encoding->info, inside, source);
    fill_rule(&encoding->rule, inside, source);
    gw_scratch_carve(&encoding->scratch, inside, workspace);
    return GW_OK;
}

/* ---- codebook ---------------------------------------------------------------------------------------------------- */

/* Rounds values [at, at + len) of a group into bits, bins and keep of the scratch, from index `to` on. */
static uint32_t round_values(gw_encoding *e, uint64_t group_first, const uint8_t *values, size_t at, size_t len,
                             size_t to)
{
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    const gw_gcomp_map *map = e->source->map;
    const uint8_t *levels = map == NULL ? NULL : map->levels + group_first + at;
    gw_scratch *s = &e->scratch;
    return e->codec->kernels.round(s->bits + to, s->bins + to, s->keep + to, values + at * size, levels, len,
                                   e->source->first_element + group_first + at, &e->rule);
}

/* Label counts and window of a survey. */
static uint32_t fold_survey(uint32_t *count, const uint32_t *bin_count, uint32_t dtype, uint32_t derived)
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

/* The codebook of a group (docs/format.md section 6). bits, bins and keep of the scratch are used as buffers. */
static void build_group_book(gw_encoding *e, uint64_t group_first, size_t group_len, const uint8_t *values)
{
    gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const int is_small = e->codec->options.preset == GW_GCOMP_SMALL;
    size_t blocks = group_len / 4096;
    blocks = is_small || blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
    const size_t period = GW_SAMPLE_RUN_LEN * blocks;

    /* The buffers hold what is counted: a chunk in the small preset; at most 8191 values if blocks is 1; else at most
     * 64 of every 64 * blocks values, of fewer than 4096 * (blocks + 1), or of 2^17 if blocks is 16. */
    size_t sampled = 0;
    if (blocks == 1) {
        round_values(e, group_first, values, 0, group_len, 0);
        sampled = group_len;
    } else {
        for (size_t at = 0; at < group_len; at += period) {
            size_t len = group_len - at < GW_SAMPLE_RUN_LEN ? group_len - at : GW_SAMPLE_RUN_LEN;
            round_values(e, group_first, values, at, len, sampled);
            sampled += len;
        }
    }
    GW_MEMSET(s->bin_count, 0, GW_BINS * sizeof *s->bin_count);
    k->survey(s->bin_count, s->bins, sampled);

    s->book->base = (uint8_t)fold_survey(s->count, s->bin_count, e->rule.dtype, e->rule.derived);
    if (blocks > 1) {
        s->count[GW_LABEL_ZERO] += s->count[GW_LABEL_ZERO] == 0;
        s->count[GW_LABEL_ESCAPE] += s->count[GW_LABEL_ESCAPE] == 0;
    }
    gw_codebook_lengths(s->book->length, s->count, s->book_scratch);
}

static void use_book(gw_encoding *e)
{
    gw_tree_build(e->scratch.tree, e->scratch.book);
    gw_ranker_build(e->scratch.ranker, e->scratch.tree, e->scratch.book->base, e->rule.dtype, e->rule.derived);
}

/* ---- chunk ------------------------------------------------------------------------------------------------------- */

/* Everything of a CODED chunk that is known before its first byte is written. */
typedef struct chunk_plan {
    size_t len;
    size_t header_size; /* chunk header with padding */
    size_t size;        /* without codebook and final padding */
    size_t escape_len;
    size_t plane_len[GW_PLANES_MAX];
    uint32_t below[GW_LABELS + 1]; /* number of values with a rank below r */
} chunk_plan;

static size_t plane_count(const gw_encoding *e)
{
    return e->rule.derived ? GW_PLANES_MAX : GW_DIGIT_PLANES;
}

static unsigned plane_width(const gw_traits *t, size_t p)
{
    return p < GW_DIGIT_PLANES ? t->digit_width[p] : 4u >> (p - GW_DIGIT_PLANES);
}

static size_t node_len(const chunk_plan *plan, const gw_node *node)
{
    return plan->below[node->end_rank] - plan->below[node->first_rank];
}

/* Ranks and digits of the chunk whose rounded values lie in the scratch, and from their counts its size. */
static void plan_chunk(gw_encoding *e, chunk_plan *plan, size_t len)
{
    gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    const gw_tree *tree = s->tree;

    k->split(s->level[0], s->count, s->plane, plan->plane_len, s->bits, s->bins, s->keep, len, s->ranker);

    plan->len = len;
    plan->below[0] = 0;
    for (uint32_t r = 0; r < GW_LABELS; r++) {
        plan->below[r + 1] = plan->below[r] + s->count[r];
    }
    plan->escape_len = tree->escape_rank == GW_NO_RANK ? 0 : s->count[tree->escape_rank];
    plan->header_size = gw_round4(2 * (plane_count(e) + 1 + tree->inner_count));
    plan->size = plan->header_size;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        plan->size += gw_run_size(node_len(plan, node), node->right != 0 ? 1u : node->width);
    }
    for (size_t p = 0; p < plane_count(e); p++) {
        plan->size += gw_run_size(plan->plane_len[p], plane_width(t, p));
    }
    plan->size += gw_round4(plan->escape_len * t->size);
}

static int is_single_label(const gw_node *node)
{
    return node->right == 0 && node->width == 0;
}

/* Partitions the ranks along the tree, writing every node's run. Returns the end of the runs. */
static uint8_t *write_runs(gw_encoding *e, const chunk_plan *plan, uint8_t *dst)
{
    gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const gw_tree *tree = s->tree;

    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const size_t len = node_len(plan, node);
        const uint8_t *ranks = s->level[node->depth & 1] + gw_node_place(node, plan->below[node->first_rank]);
        if (node->right != 0) {
            const gw_node *left = &tree->node[i + 1];
            const gw_node *right = &tree->node[node->right];
            uint8_t *below = s->level[(node->depth + 1) & 1];
            /* Of a child that is a leaf of width 0 nobody needs the ranks. */
            k->partition(is_single_label(left) ? NULL : below + gw_node_place(left, plan->below[left->first_rank]),
                         is_single_label(right) ? NULL : below + gw_node_place(right, plan->below[right->first_rank]),
                         dst, ranks, len, node->pivot);
            dst += gw_run_size(len, 1);
        } else if (node->width != 0) {
            k->pack(dst, ranks, len, node->width, (uint8_t)node->first_rank);
            dst += gw_run_size(len, node->width);
        }
    }
    return dst;
}

static uint8_t *write_escapes(gw_encoding *e, const chunk_plan *plan, uint8_t *dst)
{
    const gw_scratch *s = &e->scratch;
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    uint8_t *end = dst + gw_round4(plan->escape_len * size);
    size_t left = plan->escape_len;
    /* The ranks are partitioned by now, so they are looked up once more. */
    for (size_t i = 0; left > 0; i++) {
        if (s->ranker->rank[s->bins[i]] == s->ranker->escape_rank) {
            if (size == 4) {
                gw_store32(dst, s->bits[i]);
            } else {
                gw_store16(dst, (uint16_t)s->bits[i]);
            }
            dst += size;
            left--;
        }
    }
    GW_MEMSET(dst, 0, (size_t)(end - dst));
    return end;
}

static void write_coded(gw_encoding *e, const chunk_plan *plan, uint8_t *dst)
{
    const gw_scratch *s = &e->scratch;
    const gw_kernels *k = &e->codec->kernels;
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    uint8_t *const end = dst + plan->header_size;
    uint8_t *at = dst;
    for (size_t p = 0; p < plane_count(e); p++, at += 2) {
        gw_store16(at, (uint16_t)plan->plane_len[p]);
    }
    gw_store16(at, (uint16_t)plan->escape_len);
    at += 2;
    for (uint32_t i = 0; i < s->tree->node_count; i++) {
        const gw_node *node = &s->tree->node[i];
        if (node->right != 0) {
            gw_store16(at, (uint16_t)node_len(plan, &s->tree->node[node->right]));
            at += 2;
        }
    }
    GW_MEMSET(at, 0, (size_t)(end - at));

    at = write_runs(e, plan, end);
    for (size_t p = 0; p < plane_count(e); p++) {
        const unsigned width = plane_width(t, p);
        k->pack(at, s->plane[p], plan->plane_len[p], width, 0);
        at += gw_run_size(plan->plane_len[p], width);
    }
    write_escapes(e, plan, at);
}

static void write_raw(gw_encoding *e, size_t len, uint8_t *dst)
{
    const gw_scratch *s = &e->scratch;
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    for (size_t i = 0; i < len; i++) {
        if (size == 4) {
            gw_store32(dst + 4 * i, s->bits[i]);
        } else {
            gw_store16(dst + 2 * i, (uint16_t)s->bits[i]);
        }
    }
    GW_MEMSET(dst + len * size, 0, gw_frame_raw_size(e->rule.dtype, len) - len * size);
}

/* ---- group ------------------------------------------------------------------------------------------------------- */

/* The codebook of the group being written. */
typedef struct group_state {
    uint64_t owner;   /* chunk that stores it, UINT64_MAX as long as there is none */
    size_t size;      /* bytes */
    uint32_t crc;
    uint8_t bytes[GW_GCOMP_BOOK_SIZE_MAX];
} group_state;

static void write_entry(gw_encoding *e, uint64_t index, gw_gcomp_chunk_kind kind, uint64_t book, size_t size,
                        uint32_t crc)
{
    gw_frame_write_entry(e->entries + GW_FRAME_ENTRY_SIZE * (index - e->entries_first), e->offset, (uint32_t)kind,
                         (uint32_t)book, e->info.checksum ? crc : 0);
    e->payload += size;
    e->offset += size;
}

/* Writes the chunk whose rounded values lie in the scratch. */
static void encode_chunk(gw_encoding *e, group_state *group, uint64_t index, size_t len)
{
    const gw_kernels *k = &e->codec->kernels;
    const size_t raw_size = gw_frame_raw_size(e->rule.dtype, len);
    uint8_t *const dst = e->payload;
    chunk_plan plan;
    plan_chunk(e, &plan, len);

    const int is_owner = !e->info.installed && group->owner == UINT64_MAX;
    const size_t book_size = is_owner ? group->size : 0;
    const size_t region = gw_round16(book_size + plan.size);
    if (region >= raw_size) {
        write_raw(e, len, dst);
        write_entry(e, index, GW_GCOMP_CHUNK_RAW, 0, raw_size, e->info.checksum ? k->crc32c(0, dst, raw_size) : 0);
        return;
    }
    if (is_owner) {
        GW_MEMCPY(dst, group->bytes, book_size);
        group->owner = index;
    }
    write_coded(e, &plan, dst + book_size);
    GW_MEMSET(dst + book_size + plan.size, 0, region - book_size - plan.size);
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
    const size_t group_len =
        (size_t)gw_min_u64(e->info.len - group_first, (uint64_t)gw_group_chunks(e->codec) << log2);
    const int is_exact = e->codec->options.preset == GW_GCOMP_SMALL && !e->info.installed;
    group_state group = {UINT64_MAX, 0, 0, {0}};

    if (e->info.installed) {
        *e->scratch.book = e->codec->installed[e->codec->encode_with].book;
    } else {
        build_group_book(e, group_first, group_len, values);
        group.size = gw_codebook_size(e->scratch.book);
        gw_codebook_write(group.bytes, e->scratch.book);
        group.crc = e->info.checksum ? e->codec->kernels.crc32c(0, group.bytes, group.size) : 0;
    }
    use_book(e);

    for (size_t at = 0; at < group_len; at += (size_t)1 << log2, first++) {
        const size_t len = (size_t)gw_min_u64(group_len - at, (uint64_t)1 << log2);
        uint32_t any;
        if (is_exact) {
            /* The survey has rounded exactly these values. */
            any = e->scratch.book->length[GW_LABEL_ZERO] == 0 || e->scratch.tree->label_count > 1;
        } else {
            any = round_values(e, group_first, values, at, len, 0);
        }
        if (any == 0) {
            write_entry(e, first, GW_GCOMP_CHUNK_ZERO, 0, 0, 0);
        } else {
            encode_chunk(e, &group, first, len);
        }
    }
}

/* ---- frame ------------------------------------------------------------------------------------------------------- */

void gw_encoding_finish(gw_encoding *e, uint8_t *dst)
{
    const size_t entries_end = (size_t)(e->info.directory_offset + GW_FRAME_ENTRY_SIZE * e->info.chunk_count);
    GW_MEMSET(dst + entries_end, 0, (size_t)e->info.payload_offset - entries_end);
    gw_frame_write_header(dst, &e->info);
    if (e->info.checksum) {
        e->info.meta_crc = gw_frame_meta_crc(dst, &e->info, &e->codec->kernels);
        gw_frame_write_header(dst, &e->info);
    }
}

gw_status gw_gcomp_encode(const gw_gcomp *codec, const gw_gcomp_source *source, void *dst, size_t dst_capacity,
                          size_t *dst_size, void *workspace, size_t workspace_size)
{
    if (dst_size == NULL) {
        return GW_ERR_ARG;
    }
    *dst_size = 0;
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace, workspace_size);
    if (status != GW_OK) {
        return status;
    }
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_bound(codec, source->len);
    if (bound == 0 || dst_capacity < bound) {
        return GW_ERR_DST;
    }
    e.entries = (uint8_t *)dst + e.info.directory_offset;
    e.payload = (uint8_t *)dst + e.info.payload_offset;
    e.offset = e.info.payload_offset;
    const uint8_t *values = (const uint8_t *)source->values;
    const size_t size = gw_traits_of(e.rule.dtype)->size;
    if (gw_is_overlapping(dst, bound, values, (size_t)source->len * size)) {
        return GW_ERR_ARG;
    }
    for (uint64_t chunk = 0; chunk < e.info.chunk_count; chunk += gw_group_chunks(e.codec)) {
        gw_encode_group(&e, chunk, values + (size_t)(chunk << e.info.chunk_log2) * size);
    }
    e.info.frame_size = e.offset;
    gw_encoding_finish(&e, (uint8_t *)dst);
    *dst_size = (size_t)e.info.frame_size;
    return GW_OK;
}

gw_status gw_gcomp_encode_range(const gw_gcomp *codec, const gw_gcomp_source *source, uint64_t chunk_first,
                                uint64_t chunk_count, void *area, size_t area_size, gw_gcomp_part *part,
                                void *workspace, size_t workspace_size)
{
    if (part == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(part, 0, sizeof *part);
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, codec, source, workspace, workspace_size);
    if (status != GW_OK) {
        return status;
    }
    const uint64_t chunks = e.info.chunk_count;
    const uint32_t align = gw_group_chunks(e.codec);
    if (area == NULL || chunk_first % align != 0 || chunk_first > chunks || chunk_count > chunks - chunk_first ||
        (chunk_count % align != 0 && chunk_first + chunk_count != chunks)) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_range_bound(codec, source->len, chunk_first, chunk_count);
    if ((bound == 0 && chunk_count != 0) || area_size < bound) {
        return GW_ERR_DST;
    }
    /* An area is the directory entries of its chunks, offsets counted from the range's first chunk, then the chunks. */
    e.entries = (uint8_t *)area;
    e.entries_first = chunk_first;
    e.payload = (uint8_t *)area + GW_FRAME_ENTRY_SIZE * chunk_count;
    e.offset = 0;
    const uint8_t *values = (const uint8_t *)source->values;
    const size_t size = gw_traits_of(e.rule.dtype)->size;
    for (uint64_t chunk = chunk_first; chunk < chunk_first + chunk_count; chunk += align) {
        gw_encode_group(&e, chunk, values + (size_t)(chunk << e.info.chunk_log2) * size);
    }
    part->area = area;
    part->size = (size_t)(GW_FRAME_ENTRY_SIZE * chunk_count + e.offset);
    part->chunk_first = chunk_first;
    part->chunk_count = chunk_count;
    return GW_OK;
}

gw_status gw_gcomp_join(const gw_gcomp *codec, const gw_gcomp_source *source, const gw_gcomp_part *parts,
                        size_t part_count, void *dst, size_t dst_capacity, size_t *dst_size)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (codec == NULL || source == NULL || dst == NULL || dst_size == NULL || (parts == NULL && part_count != 0)) {
        return GW_ERR_ARG;
    }
    *dst_size = 0;
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    if (!is_source_valid(inside, source) || source->len > inside->options.count_limit) {
        return GW_ERR_ARG;
    }
    const size_t bound = gw_gcomp_bound(codec, source->len);
    if (bound == 0 || dst_capacity < bound) {
        return GW_ERR_DST;
    }
    gw_encoding e;
    GW_MEMSET(&e, 0, sizeof e);
    e.codec = inside;
    e.source = source;
    fill_info(&e.info, inside, source);

    uint64_t next_chunk = 0;
    uint64_t offset = e.info.payload_offset;
    for (size_t p = 0; p < part_count; p++) {
        const uint64_t entries_size = GW_FRAME_ENTRY_SIZE * parts[p].chunk_count;
        if (parts[p].chunk_first != next_chunk || parts[p].chunk_count > e.info.chunk_count - next_chunk ||
            parts[p].size < entries_size || (parts[p].area == NULL && parts[p].chunk_count != 0)) {
            return GW_ERR_ARG;
        }
        next_chunk += parts[p].chunk_count;
        offset += parts[p].size - entries_size;
    }
    if (next_chunk != e.info.chunk_count || offset > bound) {
        return GW_ERR_ARG;
    }
    e.info.frame_size = offset;

    offset = e.info.payload_offset;
    for (size_t p = 0; p < part_count; p++) {
        const uint8_t *area = (const uint8_t *)parts[p].area;
        const size_t entries_size = (size_t)(GW_FRAME_ENTRY_SIZE * parts[p].chunk_count);
        uint8_t *entries = (uint8_t *)dst + e.info.directory_offset + GW_FRAME_ENTRY_SIZE * parts[p].chunk_first;
        for (size_t at = 0; at < entries_size; at += GW_FRAME_ENTRY_SIZE) {
            gw_store64(entries + at, gw_load64(area + at) + offset);
            GW_MEMCPY(entries + at + 8, area + at + 8, GW_FRAME_ENTRY_SIZE - 8);
        }
        if (parts[p].size != entries_size) {
            GW_MEMCPY((uint8_t *)dst + offset, area + entries_size, parts[p].size - entries_size);
        }
        offset += parts[p].size - entries_size;
    }
    gw_encoding_finish(&e, (uint8_t *)dst);
    *dst_size = (size_t)e.info.frame_size;
    return GW_OK;
}
