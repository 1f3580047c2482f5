/*
 * Rate control: predicted sizes and errors of the points of a curve, and the choice of a point.
 *
 * Counts of labels, zero masks and kept bits are exact; what they cost is computed with the codebooks that
 * they give, by the rules of docs/format.md section 6, with an average for the padding of runs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_rate.h"
#include "gcomp/mask_code.h"

_Static_assert(sizeof(gw_rate_tables) <= (size_t)2 << GW_GROUP_LOG2, "tables fit where a hop has its sums");

enum {
    NOISE_POINTS = 17,
    NOISE_OCTAVES = 9, /* points of whole octaves; one more than between them */
    COST_OF_A_BIT = 256,
    PADDING_BITS = 15, /* of a run, on average: runs end at multiples of 32 bits */
    REGION_BITS = 56   /* padding of a chunk and its counts, on average */
};

/* A group at one point. */
typedef struct point_counts {
    const gw_rate_tables *tables;
    uint32_t point;
    uint32_t plain[GW_LABELS], relative[GW_LABELS]; /* counts of labels */
    uint32_t mask[GW_MASK_CLASSES];
    uint64_t nonzeros;
    uint64_t digit_bits;
    uint32_t planes; /* that have digits */
} point_counts;

/* Kept mantissa bits, and which planes have digits. */
static void count_digits(point_counts *c, const gw_traits *traits)
{
    const gw_rate_tables *t = c->tables;
    const int32_t m = traits->mantissa_bits;
    const uint32_t width = traits->digit_width[1];
    uint32_t largest = 0, rests = 0;
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const uint32_t count = t->kept[0][c->point][j] + t->kept[1][c->point][j];
        const int32_t place = j - GW_RATE_KEPT_ZERO + (int32_t)c->point;
        const uint32_t bits = 1 + (uint32_t)(place < 0 ? 0 : place > m ? m : place); /* with the sign */
        if (count != 0) {
            c->nonzeros += count;
            c->digit_bits += (uint64_t)count * bits;
            largest = bits / width > largest ? bits / width : largest;
            rests |= bits % width;
        }
    }
    c->planes = gw_min_u32(largest, GW_DIGIT_PLANES) + (rests & 1) + (rests >> 1 & 1) + (rests >> 2 & 1);
}

static void count_labels(point_counts *c, uint32_t dtype)
{
    const gw_rate_tables *t = c->tables;
    const gw_traits *traits = gw_traits_of(dtype);
    const uint32_t first = dtype == GW_FP16 ? 2 : 1; /* label of exponent field 0 */
    const int32_t last = traits->exponent_mask - 1;
    const uint32_t label_max = dtype == GW_FP16 ? 32 : 255;
    GW_MEMSET(c->plain, 0, sizeof c->plain);
    GW_MEMSET(c->relative, 0, sizeof c->relative);
    for (uint32_t e = 0; e <= (uint32_t)last; e++) {
        c->plain[e + first] += t->plain[0][c->point][e] + t->plain[1][c->point][e];
        c->relative[e + first] += t->plain[1][c->point][e];
    }
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const int32_t above = j - GW_RATE_KEPT_ZERO + (int32_t)c->point;
        c->relative[gw_min_u32((uint32_t)(above < 0 ? 0 : above) + 2, label_max)] += t->kept[0][c->point][j];
    }
    uint64_t ups = 0;
    for (int32_t j = 0; j < GW_RATE_UP; j++) {
        const int32_t quantum = j - (int32_t)c->point;
        const uint32_t count = t->up[c->point][j];
        c->plain[(uint32_t)(quantum < 1 ? 1 : quantum > last ? last : quantum) + first] += count;
        c->relative[2] += count;
        ups += count;
    }
    c->nonzeros += ups + t->escapes;
    c->digit_bits += ups; /* their signs */
    c->plain[GW_LABEL_ZERO] = c->relative[GW_LABEL_ZERO] = (uint32_t)(t->len - c->nonzeros);
    c->plain[GW_LABEL_ESCAPE] = c->relative[GW_LABEL_ESCAPE] = t->escapes;
    GW_MEMSET(c->mask, 0, sizeof c->mask);
    gw_mask_fold(c->mask, t->mask[c->point]);
}

/* Runs of a tree. */
static uint32_t run_count(const gw_tree *tree)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tree->node_count; i++) {
        count += tree->node[i].right != 0 || tree->node[i].width != 0;
    }
    return count;
}

/* Bits of a group at a point without its directory entries. */
static uint64_t coded_bits(const gw_encoding *e, point_counts *c)
{
    const gw_scratch *s = &e->scratch;
    const gw_rate_tables *t = c->tables;
    const gw_traits *traits = gw_traits_of(e->rule.dtype);
    const uint64_t chunks = t->chunks[c->point];
    uint32_t *const count =
        e->rule.deep && gw_labels_cost(c->relative, 1) < gw_labels_cost(c->plain, 1) ? c->relative : c->plain;
    const gw_mask_choice choice = {count, c->mask, t->len,
                                   gw_min_u64(t->len, (uint64_t)1 << e->info.chunk_log2)};
    const uint32_t is_masked = (uint32_t)gw_is_mask_better(&choice);
    const uint64_t escapes = count[GW_LABEL_ESCAPE], zeros = count[GW_LABEL_ZERO];
    if (t->len >= 2 * 4096 && e->codec->options.preset == GW_GCOMP_FAST) {
        /* A codebook from a sample has these codes in any case. */
        count[GW_LABEL_ESCAPE] += escapes == 0;
        count[GW_LABEL_ZERO] += zeros == 0;
        for (uint32_t i = 0; i < GW_MASK_CLASSES; i++) {
            c->mask[i] += c->mask[i] == 0;
        }
    }
    GW_MEMSET(s->book, 0, sizeof *s->book);
    s->book->is_relative = count == c->relative;
    s->book->is_masked = (uint8_t)is_masked;
    uint64_t bits = 0, runs = 0, counts = GW_PLANES_MAX + 1;
    if (is_masked) {
        count[GW_LABEL_ZERO] = 0;
        gw_mask_depths(s->book->mask_depth, c->mask, s->book_scratch);
        gw_mask_tree_build(s->mask_tree, s->book);
        for (uint32_t i = 0; i < GW_MASK_CLASSES; i++) {
            const uint32_t depth = s->mask_tree->inner_count != 0 ? s->book->mask_depth[i] : 0;
            bits += (uint64_t)c->mask[i] * (depth + gw_mask_class_width[i]);
        }
        runs += run_count(s->mask_tree);
        counts += 1u + s->mask_tree->inner_count;
    }
    gw_codebook_lengths(s->book->length, count, s->book_scratch);
    gw_tree_build(s->tree, s->book);
    for (uint32_t label = 0; label < GW_LABELS && s->tree->node_count > 1; label++) {
        bits += (uint64_t)count[label] * s->book->length[label];
    }
    runs += run_count(s->tree) + c->planes;
    counts += s->tree->inner_count;
    bits += c->digit_bits + 8u * traits->size * escapes + 8 * gw_codebook_size(s->book);
    return bits + chunks * (16 * counts + PADDING_BITS * runs + REGION_BITS);
}

/* A group of values whose steps are summed. */
static void add_points(gw_gcomp_rate *rate, const gw_encoding *e, const gw_rate_tables *t, uint32_t first,
                       uint32_t stride)
{
    const uint32_t points = rate->kind == GW_GCOMP_RATE_NOISE ? NOISE_POINTS : GW_GCOMP_RATE_POINTS;
    const uint64_t raw = 8 * (uint64_t)gw_traits_of(e->rule.dtype)->size * t->len;
    const uint64_t chunk_len = (uint64_t)1 << e->info.chunk_log2;
    const uint64_t entries = 8 * GW_FRAME_ENTRY_SIZE * ((t->len + chunk_len - 1) / chunk_len);
    point_counts c;
    GW_MEMSET(&c, 0, sizeof c);
    c.tables = t;
    for (uint32_t at = first; at < points; at += stride, c.point++) {
        c.nonzeros = c.digit_bits = 0;
        count_digits(&c, gw_traits_of(e->rule.dtype));
        count_labels(&c, e->rule.dtype);
        const uint64_t bits = t->chunks[c.point] == 0 ? 0 : gw_min_u64(coded_bits(e, &c), raw);
        rate->cost[at] += COST_OF_A_BIT * (bits + entries);
        rate->nonzeros[at] += c.nonzeros;
        rate->error[at] += gw_rate_error_at(t, &e->rule, c.point);
    }
}

static void add_group(gw_gcomp_rate *rate, gw_encoding *e, uint64_t first)
{
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
        for (size_t i = 0; i < group.len; i += chunk_len) {
            const gw_span chunk = gw_group_span(e, &group, i, gw_min_size(group.len - i, chunk_len));
            gw_rate_count(t, &chunk, &e->rule, &family);
        }
        gw_rate_sum_steps(t, family.points);
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
    for (uint64_t first = 0; first < e.info.chunk_count; first += gw_group_chunks(e.codec)) {
        add_group(rate, &e, first);
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
