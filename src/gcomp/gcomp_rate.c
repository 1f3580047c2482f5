/*
 * Rate control: predicted sizes and errors of the points of a curve, and the choice of a point.
 *
 * Counts of labels, zero masks and kept bits are exact (NOISE: at every other point); what they cost follows
 * from the codebook that the rules of docs/format.md section 6 give. Where chunks share a codebook, the
 * padding of their runs is an average.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_rate.h"
#include "gcomp/mask_code.h"

_Static_assert(sizeof(gw_rate_tables) <= (size_t)2 << GW_GROUP_LOG2, "they fit where a hop has its sums");
_Static_assert(sizeof(gw_rate_labels) <= (size_t)4 << GW_CHUNK_LOG2_MAX, "they fit where escapes are");

enum {
    NOISE_POINTS = 17,
    NOISE_OCTAVES = 9, /* points of whole octaves; one more than between them */
    COST_OF_A_BIT = 256
};

/* A group at one point. */
typedef struct point_counts {
    uint32_t plain[GW_LABELS], relative[GW_LABELS]; /* counts of labels */
    uint64_t chunks;                                /* that are not zero */
    uint64_t nonzeros;
    uint64_t plane_bits;
} point_counts;

/* Bits of runs that hold `len` numbers in all, one run a chunk, with their padding. Exact for one chunk;
 * among several, rare numbers gather in few chunks, so that fewer runs are padded. */
static uint64_t run_bits(uint64_t len, uint64_t width, uint64_t chunks)
{
    const uint64_t bits = len * width;
    if (chunks <= 1) {
        return (bits + 31) / 32 * 32;
    }
    return bits + 31 * len * chunks / (2 * (len + 8 * chunks));
}

/* The sum of multiples of 2^log2 whose exact sum, for one chunk, is bits. */
static uint64_t round_bits(uint64_t bits, uint32_t log2, uint64_t chunks)
{
    const uint64_t unit = (uint64_t)1 << log2;
    return chunks <= 1 ? (bits + unit - 1) >> log2 << log2
                       : bits + (unit - (log2 > 5 ? 32 : 16)) / 2 * chunks;
}

/* Digits: their bits, from the number of kept bits of every value. */
static void count_digits(point_counts *c, const gw_rate_labels *labels, uint32_t point,
                         const gw_traits *traits)
{
    const int32_t m = traits->mantissa_bits;
    uint64_t len[GW_PLANES_MAX] = {0};
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const uint32_t count = labels->kept[0][point][j] + labels->kept[1][point][j];
        const int32_t place = j - GW_RATE_KEPT_ZERO + (int32_t)point;
        uint32_t bits = 1 + (uint32_t)(place < 0 ? 0 : place > m ? m : place); /* with the sign */
        c->nonzeros += count;
        for (uint32_t p = 0; p < GW_DIGIT_PLANES && bits >= traits->digit_width[p]; p++) {
            len[p] += count;
            bits -= traits->digit_width[p];
        }
        for (uint32_t p = 0; p < 3; p++) {
            len[GW_DIGIT_PLANES + p] += (bits >> (2 - p) & 1) * (uint64_t)count;
        }
    }
    for (uint32_t j = 0; j < GW_RATE_UP; j++) { /* their signs */
        c->nonzeros += labels->up[point][j];
        len[GW_PLANE_R1] += labels->up[point][j];
    }
    for (uint32_t p = 0; p < GW_PLANES_MAX; p++) {
        c->plane_bits += run_bits(len[p], gw_plane_width(traits, p), c->chunks);
    }
}

/* Numbers of a table: all, or those of a sample. */
typedef struct part {
    const gw_rate_labels *labels;
    uint32_t shift, mask;
} part;

static uint32_t part_of(const part *p, uint32_t number)
{
    return number >> p->shift & p->mask;
}

/* Labels of values other than zero. */
static void count_labels(uint32_t *plain, uint32_t *relative, const part *p, uint32_t point, uint32_t dtype)
{
    const gw_rate_labels *labels = p->labels;
    const gw_traits *traits = gw_traits_of(dtype);
    const uint32_t first = dtype == GW_FP16 ? 2 : 1; /* label of exponent field 0 */
    const int32_t last = traits->exponent_mask - 1;
    const uint32_t label_max = dtype == GW_FP16 ? 32 : 255;
    GW_MEMSET(plain, 0, GW_LABELS * sizeof *plain);
    GW_MEMSET(relative, 0, GW_LABELS * sizeof *relative);
    for (uint32_t e = 0; e <= (uint32_t)last; e++) {
        const uint32_t absolute = part_of(p, labels->plain[1][point][e]);
        plain[e + first] += part_of(p, labels->plain[0][point][e]) + absolute;
        relative[e + first] += absolute;
    }
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const int32_t above = j - GW_RATE_KEPT_ZERO + (int32_t)point;
        relative[gw_min_u32((uint32_t)(above < 0 ? 0 : above) + 2, label_max)] +=
            part_of(p, labels->kept[0][point][j]);
    }
    for (int32_t j = 0; j < GW_RATE_UP; j++) {
        const int32_t quantum = j - (int32_t)point;
        const uint32_t count = part_of(p, labels->up[point][j]);
        plain[(uint32_t)(quantum < 1 ? 1 : quantum > last ? last : quantum) + first] += count;
        relative[2] += count;
    }
    plain[GW_LABEL_ESCAPE] = relative[GW_LABEL_ESCAPE] = part_of(p, labels->escapes[point]);
}

/* Bits of the runs of a tree, count by rank. */
static uint64_t tree_bits(const gw_tree *tree, const uint32_t *count, uint64_t chunks)
{
    uint64_t before[GW_LABELS + 1], bits = 0;
    before[0] = 0;
    for (uint32_t rank = 0; rank < tree->label_count; rank++) {
        before[rank + 1] = before[rank] + count[rank];
    }
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        bits += run_bits(before[node->end_rank] - before[node->first_rank],
                         node->right != 0 ? 1 : node->width, chunks);
    }
    return bits;
}

static int is_sampled(const gw_encoding *e, const gw_rate_tables *t)
{
    return gw_group_sample_blocks(e->codec, (size_t)t->len) > 1;
}

/* The masked part of a codebook and of the chunks. */
static uint64_t mask_bits(const gw_encoding *e, const point_counts *c, const uint32_t *byte_count)
{
    const gw_scratch *s = &e->scratch;
    uint32_t count[256];
    gw_mask_tree_build(s->mask_tree, s->book);
    for (uint32_t rank = 0; rank < s->mask_tree->label_count; rank++) {
        count[rank] = byte_count[s->mask_tree->label_of_rank[rank]];
    }
    return tree_bits(s->mask_tree, count, c->chunks);
}

/* Sets the codebook of the scratch but for is_relative: from a sample if chunks share it. */
static void choose_book(const gw_encoding *e, const gw_rate_tables *t, const point_counts *c, uint32_t point)
{
    const gw_scratch *s = &e->scratch;
    uint32_t plain[GW_LABELS], relative[GW_LABELS], mask[GW_MASK_CLASSES] = {0};
    const int is_sample = is_sampled(e, t);
    const part sample = {t->sample, 0, 0xffff};
    uint32_t *const count = s->book->is_relative ? relative : plain;
    uint64_t zeros = is_sample ? t->book_sample_len : t->len;
    if (is_sample) {
        count_labels(plain, relative, &sample, point, e->rule.dtype);
    } else {
        GW_MEMCPY(count, s->book->is_relative ? c->relative : c->plain, sizeof plain);
    }
    for (uint32_t label = 1; label < GW_LABELS; label++) {
        zeros -= count[label];
    }
    count[GW_LABEL_ZERO] = (uint32_t)zeros;
    gw_mask_fold(mask, is_sample ? t->sample_mask[point] : t->mask[point]);
    const gw_book_counts counts = {count, mask, is_sample ? t->book_sample_len : t->len,
                                   gw_min_u64(t->len, (uint64_t)1 << e->info.chunk_log2), is_sample};
    gw_book_choose(s->book, &counts, s->book_scratch);
}

/* Bits of a group without its directory entries. */
static uint64_t coded_bits(const gw_encoding *e, const gw_rate_tables *t, point_counts *c, uint32_t point)
{
    const gw_scratch *s = &e->scratch;
    uint32_t *const count = s->book->is_relative ? c->relative : c->plain;
    choose_book(e, t, c, point);
    uint64_t bits = 0, counts = GW_PLANES_MAX + 1;
    if (s->book->is_masked) {
        bits += mask_bits(e, c, t->mask[point]);
        counts += 1u + s->mask_tree->inner_count;
    }
    gw_tree_build(s->tree, s->book);
    const uint64_t escapes = count[GW_LABEL_ESCAPE];
    for (uint32_t label = 2; label < GW_LABELS; label++) { /* what the sample has missed */
        count[GW_LABEL_ESCAPE] += s->book->length[label] == 0 ? count[label] : 0;
    }
    uint32_t by_rank[GW_LABELS];
    for (uint32_t rank = 0; rank < s->tree->label_count; rank++) {
        by_rank[rank] = count[s->tree->label_of_rank[rank]];
    }
    counts += s->tree->inner_count;
    bits += tree_bits(s->tree, by_rank, c->chunks) + c->plane_bits;
    bits += c->chunks * round_bits(16 * counts, 5, 1);
    bits += round_bits(8u * gw_traits_of(e->rule.dtype)->size * count[GW_LABEL_ESCAPE], 5, 1);
    if (count[GW_LABEL_ESCAPE] != escapes) { /* the digits that they would have, on average */
        bits -= c->plane_bits * (count[GW_LABEL_ESCAPE] - escapes) / c->nonzeros;
    }
    return round_bits(bits + 8 * gw_codebook_size(s->book), 7, c->chunks);
}

/* A group at a point: its bits without directory entries. */
static uint64_t group_bits(const gw_encoding *e, const gw_rate_tables *t, uint32_t point, uint64_t *nonzeros)
{
    const uint32_t dtype = e->rule.dtype;
    const uint64_t raw = 8 * (uint64_t)gw_traits_of(dtype)->size * t->len;
    point_counts c;
    GW_MEMSET(&c, 0, sizeof c);
    GW_MEMSET(e->scratch.book, 0, sizeof *e->scratch.book);
    if (e->rule.deep) {
        count_labels(c.plain, c.relative, &(part){t->sample, 16, 0xffff}, point, dtype);
        e->scratch.book->is_relative = gw_labels_cost(c.relative, 1) < gw_labels_cost(c.plain, 1);
    }
    c.chunks = t->chunks[point];
    count_digits(&c, &t->all, point, gw_traits_of(dtype));
    count_labels(c.plain, c.relative, &(part){&t->all, 0, UINT32_MAX}, point, dtype);
    c.nonzeros += t->all.escapes[point];
    c.plain[GW_LABEL_ZERO] = c.relative[GW_LABEL_ZERO] = (uint32_t)(t->len - c.nonzeros);
    *nonzeros = c.nonzeros;
    return c.chunks == 0 ? 0 : gw_min_u64(coded_bits(e, t, &c, point), raw);
}

/* A group whose steps are summed. */
static void add_points(gw_gcomp_rate *rate, const gw_encoding *e, const gw_rate_tables *t, uint32_t first,
                       uint32_t stride)
{
    const uint32_t points = rate->kind == GW_GCOMP_RATE_NOISE ? NOISE_POINTS : GW_GCOMP_RATE_POINTS;
    const uint64_t chunk_len = (uint64_t)1 << e->info.chunk_log2;
    const uint64_t entries = 8 * GW_FRAME_ENTRY_SIZE * ((t->len + chunk_len - 1) / chunk_len);
    uint32_t point = 0;
    for (uint32_t at = first; at < points; at += stride, point++) {
        uint64_t nonzeros = 0;
        rate->cost[at] += COST_OF_A_BIT * (group_bits(e, t, point, &nonzeros) + entries);
        rate->nonzeros[at] += nonzeros;
        rate->error[at] += gw_rate_error_at(t, &e->rule, point);
    }
}

static void add_group(gw_gcomp_rate *rate, gw_encoding *e, uint64_t first, gw_segment_place *place)
{
    const gw_segment_place start = *place;
    const size_t size = gw_traits_of(e->rule.dtype)->size, chunk_len = (size_t)1 << e->info.chunk_log2;
    const uint64_t at = first << e->info.chunk_log2;
    const uint64_t len = gw_min_u64(e->info.len - at, gw_group_chunks(e->codec) * (uint64_t)chunk_len);
    const gw_group group = {
        first, (const uint8_t *)e->source->values + (size_t)at * size, (size_t)len, 0, 0, 0, {0}};
    const int32_t bias = gw_traits_of(e->rule.dtype)->exponent_bias;
    const int is_noise = rate->kind == GW_GCOMP_RATE_NOISE;
    const int32_t tolerance = is_noise ? (int32_t)e->codec->options.tolerance_bits : 1;
    gw_rate_tables *const t = (gw_rate_tables *)(void *)e->scratch.sums;
    for (uint32_t half = 0; half <= (uint32_t)is_noise; half++) {
        /* Halves of octaves: a family of their own, one octave lower but for quanta in its upper part. */
        const gw_rate_family family = {is_noise ? NOISE_OCTAVES - half : GW_GCOMP_RATE_POINTS,
                                       (int32_t)e->source->map->base, -tolerance - bias - (int32_t)half,
                                       half};
        GW_MEMSET(t, 0, sizeof *t);
        t->sample = (gw_rate_labels *)(void *)e->scratch.escapes;
        t->book_period = GW_SAMPLE_RUN_LEN * gw_group_sample_blocks(e->codec, group.len);
        t->relative_period = GW_SAMPLE_RUN_LEN * gw_power_of_two(group.len / 1024);
        GW_MEMSET(t->sample, 0, sizeof *t->sample);
        *place = start;
        for (size_t i = 0; i < group.len; i += chunk_len) {
            const gw_span chunk = gw_group_span(e, &group, i, gw_min_size(group.len - i, chunk_len));
            gw_rate_count(t, &chunk, &e->rule, &family, place);
        }
        gw_rate_sum_steps(&t->all, family.points);
        gw_rate_sum_steps(t->sample, family.points);
        add_points(rate, e, t, half, is_noise ? 2 : 1);
        rate->square += half ? 0.0 : t->value_square;
    }
}

gw_status gw_gcomp_rate_init(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind)
{
    if (rate == NULL || (uint32_t)kind > GW_GCOMP_RATE_NOISE) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(rate, 0, sizeof *rate);
    rate->kind = kind;
    return GW_OK;
}

gw_status gw_gcomp_rate_add(gw_gcomp_rate *rate, const gw_gcomp *codec, const gw_gcomp_source *source,
                            const gw_workspace *workspace)
{
    gw_encoding e;
    if (rate == NULL || (uint32_t)rate->kind > GW_GCOMP_RATE_NOISE) {
        return GW_ERR_ARG;
    }
    const gw_status status = gw_encoding_begin(&e, codec, source, workspace);
    if (status != GW_OK) {
        return status;
    }
    const gw_gcomp_options *o = &e.codec->options;
    if (o->levels != GW_GCOMP_DERIVED || o->step != 1 ||
        o->cap != gw_traits_of((uint32_t)o->dtype)->derived_cap || e.info.installed) {
        return GW_ERR_OPTION;
    }
    if (source->map == NULL) {
        return GW_ERR_ARG;
    }
    gw_segment_place place = e.segments;
    for (uint64_t first = 0; first < e.info.chunk_count; first += gw_group_chunks(e.codec)) {
        add_group(rate, &e, first, &place);
    }
    rate->len += source->len;
    rate->front_size += e.info.payload_offset - GW_FRAME_ENTRY_SIZE * e.info.chunk_count;
    return GW_OK;
}

uint64_t gw_gcomp_rate_size(const gw_gcomp_rate *rate, uint32_t point)
{
    const uint32_t points = rate == NULL                        ? 0
                            : rate->kind == GW_GCOMP_RATE_NOISE ? NOISE_POINTS
                                                                : GW_GCOMP_RATE_POINTS;
    return point < points
               ? rate->front_size + (rate->cost[point] + 8 * COST_OF_A_BIT - 1) / (8 * COST_OF_A_BIT)
               : 0;
}

/* One more than the last of the points that fit; 0: none. */
static uint32_t choose(const gw_gcomp_rate *rate, uint32_t points, uint64_t size_max)
{
    uint32_t point = points;
    while (point != 0 && gw_gcomp_rate_size(rate, point - 1) > size_max) {
        point--;
    }
    return point;
}

gw_status gw_gcomp_rate_tolerance(const gw_gcomp_rate *rate, uint64_t size_max, uint32_t *tolerance_bits)
{
    if (tolerance_bits == NULL) {
        return GW_ERR_ARG;
    }
    *tolerance_bits = 0;
    if (rate == NULL || rate->kind != GW_GCOMP_RATE_TOLERANCE) {
        return GW_ERR_ARG;
    }
    *tolerance_bits = choose(rate, GW_GCOMP_RATE_POINTS, size_max);
    return *tolerance_bits != 0 ? GW_OK : GW_ERR_LIMIT;
}

gw_status gw_gcomp_rate_noise(const gw_gcomp_rate *rate, uint64_t size_max, float *noise)
{
    if (noise == NULL) {
        return GW_ERR_ARG;
    }
    *noise = 0.0f;
    if (rate == NULL || rate->kind != GW_GCOMP_RATE_NOISE) {
        return GW_ERR_ARG;
    }
    const uint32_t points = choose(rate, NOISE_POINTS, size_max);
    if (points == 0) {
        return GW_ERR_LIMIT;
    }
    const float octave = 1.0f / (float)(1u << (points - 1) / 2);
    *noise = points % 2 != 0 ? octave : octave * 0x1.6a09e6p-1f;
    return GW_OK;
}
