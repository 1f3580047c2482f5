/*
 * Rate control: predicted sizes and errors of the points of a curve, and the choice of a point.
 *
 * Counts of labels, zero masks and kept bits of every chunk are exact (NOISE: at every other point); what
 * they cost follows from the codebook that the rules of docs/encoder-profile.md give. If chunks share a
 * codebook, it is known only after the sample of the whole group. The values of the sample are therefore
 * counted first, and then the chunks one by one.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_rate.h"
#include "gcomp/codebook_choice.h"
#include "gcomp/mask_code.h"

_Static_assert(sizeof(gw_rate_tables) <= (size_t)2 << GW_GROUP_LOG2, "they fit where a hop has its sums");
_Static_assert(sizeof(gw_rate_labels) <= (size_t)4 << GW_CHUNK_LOG2_MAX, "they fit where escapes are");

enum {
    NOISE_POINTS = 17,
    NOISE_OCTAVES = 9, /* points of whole octaves; one more than between them */
    COST_OF_A_BIT = 256
};

/* A chunk at one point. */
typedef struct point_counts {
    uint32_t plain[GW_LABELS], relative[GW_LABELS]; /* counts of labels */
    uint64_t nonzeros;
    uint64_t plane_bits;
} point_counts;

/* Bits of a run, plane or the escapes, with their padding. */
static uint64_t padded_bits(uint64_t bits)
{
    return (bits + 31) / 32 * 32;
}

/* The label, with a relative exponent, of values that are `above` octaves above the quantum. */
static uint32_t relative_label(int32_t above, uint32_t dtype)
{
    return gw_min_u32((uint32_t)(above < 0 ? 0 : above) + 2, dtype == GW_FP16 ? 32 : 255);
}

/* Exponent field of the quantum that values of gw_rate_labels.up[point][j] became. */
static uint32_t quantum_at(uint32_t point, uint32_t j, int32_t last)
{
    const int32_t quantum = (int32_t)j - (int32_t)point;
    return (uint32_t)(quantum < 1 ? 1 : quantum > last ? last : quantum);
}

/* Bits of the planes. Values whose labels the codebook lacks, because the sample has missed them, are escapes
 * and have no digits. */
static void count_digits(point_counts *c, const gw_rate_counts *counts, uint32_t point, uint32_t dtype,
                         const gw_codebook *codebook)
{
    const gw_traits *traits = gw_traits_of(dtype);
    const gw_rate_labels *labels = &counts->labels;
    const int32_t m = traits->mantissa_bits;
    uint32_t kept[GW_RATE_BITS] = {0}; /* values by kept mantissa bits */
    uint64_t len[GW_PLANES_MAX] = {0};
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const int32_t above = j - GW_RATE_KEPT_ZERO + (int32_t)point;
        const uint32_t relative = labels->kept[0][point][j], absolute = labels->kept[1][point][j];
        const int is_missed = codebook->is_relative && codebook->length[relative_label(above, dtype)] == 0;
        kept[above < 0 ? 0 : above > m ? m : above] += (is_missed ? 0 : relative) + absolute;
        c->nonzeros += relative + absolute;
    }
    for (uint32_t j = 0; j <= (uint32_t)m; j++) {
        const uint32_t count = kept[j] - counts->missed[point][j];
        uint32_t bits = 1 + j; /* with the sign */
        for (uint32_t p = 0; p < GW_DIGIT_PLANES && bits >= traits->digit_width[p]; p++) {
            len[p] += count;
            bits -= traits->digit_width[p];
        }
        for (uint32_t p = 0; p < 3; p++) {
            len[GW_DIGIT_PLANES + p] += (bits >> (2 - p) & 1) * (uint64_t)count;
        }
    }
    for (uint32_t j = 0; j < GW_RATE_UP; j++) { /* their signs */
        const uint32_t exponent = quantum_at(point, j, traits->exponent_mask - 1);
        const uint32_t label = codebook->is_relative ? 2 : exponent + (dtype == GW_FP16 ? 2 : 1);
        c->nonzeros += labels->up[point][j];
        len[GW_PLANE_R1] += codebook->length[label] != 0 ? labels->up[point][j] : 0;
    }
    for (uint32_t p = 0; p < GW_PLANES_MAX; p++) {
        c->plane_bits += padded_bits(len[p] * gw_plane_width(traits, p));
    }
}

/* Labels of values other than zero. */
static void count_labels(uint32_t *plain, uint32_t *relative, const gw_rate_labels *labels, uint32_t point,
                         uint32_t dtype)
{
    const gw_traits *traits = gw_traits_of(dtype);
    const uint32_t first = dtype == GW_FP16 ? 2 : 1; /* label of exponent field 0 */
    const int32_t last = traits->exponent_mask - 1;
    GW_MEMSET(plain, 0, GW_LABELS * sizeof *plain);
    GW_MEMSET(relative, 0, GW_LABELS * sizeof *relative);
    for (uint32_t e = 0; e <= (uint32_t)last; e++) {
        const uint32_t absolute = labels->plain[1][point][e];
        plain[e + first] += labels->plain[0][point][e] + absolute;
        relative[e + first] += absolute;
    }
    for (int32_t j = 0; j < GW_RATE_KEPT; j++) {
        const int32_t above = j - GW_RATE_KEPT_ZERO + (int32_t)point;
        relative[relative_label(above, dtype)] += labels->kept[0][point][j];
    }
    for (uint32_t j = 0; j < GW_RATE_UP; j++) {
        plain[quantum_at(point, j, last) + first] += labels->up[point][j];
        relative[2] += labels->up[point][j];
    }
    plain[GW_LABEL_ESCAPE] = relative[GW_LABEL_ESCAPE] = labels->escapes[point];
}

/* Bits of the runs of a tree, count by rank. */
static uint64_t tree_bits(const gw_tree *tree, const uint32_t *count)
{
    uint64_t before[GW_LABELS + 1], bits = 0;
    before[0] = 0;
    for (uint32_t rank = 0; rank < tree->label_count; rank++) {
        before[rank + 1] = before[rank] + count[rank];
    }
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const gw_node *node = &tree->node[i];
        const uint64_t len = before[node->end_rank] - before[node->first_rank];
        bits += padded_bits(len * (node->right != 0 ? 1 : node->width));
    }
    return bits;
}

/* Bits of the runs of the zero mask. */
static uint64_t mask_bits(gw_tree *tree, const gw_codebook *codebook, const uint32_t *byte_count)
{
    uint32_t count[256];
    gw_mask_tree_build(tree, codebook);
    for (uint32_t rank = 0; rank < tree->label_count; rank++) {
        count[rank] = byte_count[tree->label_of_rank[rank]];
    }
    return tree_bits(tree, count);
}

/* The codebook of a group at a point, from the counts of its sample, which may be all values. */
static void choose_codebook(const gw_encoding *e, gw_rate_tables *t, uint32_t point)
{
    const uint32_t dtype = e->rule.dtype;
    gw_codebook *const codebook = &t->codebook[point];
    uint32_t plain[GW_LABELS], relative[GW_LABELS], mask[GW_MASK_CLASSES] = {0};
    GW_MEMSET(codebook, 0, sizeof *codebook);
    if (e->rule.dead_zone) {
        count_labels(plain, relative, t->relative_sample, point, dtype);
        codebook->is_relative = gw_labels_cost(relative, 1) < gw_labels_cost(plain, 1);
    }
    count_labels(plain, relative, &t->counts.labels, point, dtype);
    uint32_t *const count = codebook->is_relative ? relative : plain;
    uint64_t zeros = t->counts.counted;
    for (uint32_t label = 1; label < GW_LABELS; label++) {
        zeros -= count[label];
    }
    count[GW_LABEL_ZERO] = (uint32_t)zeros;
    gw_mask_fold(mask, t->counts.mask[point]);
    const gw_codebook_counts counts = {count, mask, t->counts.counted,
                                       gw_min_u64(t->counts.len, (uint64_t)1 << e->info.chunk_log2),
                                       t->codebook_period > GW_SAMPLE_RUN_LEN};
    gw_codebook_choose(codebook, &counts, e->scratch.codebook_scratch);
    for (uint32_t exponent = 0; exponent < gw_traits_of(dtype)->exponent_mask; exponent++) {
        const uint32_t is_missed = codebook->length[exponent + (dtype == GW_FP16 ? 2 : 1)] == 0;
        t->missed[0][exponent] |= (codebook->is_relative ? 0 : is_missed) << point;
        t->missed[1][exponent] |= is_missed << point;
    }
}

/* Bits of a CODED chunk but for its codebook and the padding of the chunk. */
static uint64_t coded_bits(const gw_encoding *e, const gw_rate_tables *t, point_counts *c, uint32_t point)
{
    const gw_scratch *s = &e->scratch;
    const gw_codebook *codebook = &t->codebook[point];
    uint32_t *const count = codebook->is_relative ? c->relative : c->plain;
    uint64_t bits = 0, words = GW_PLANES_MAX + 1;
    if (codebook->is_masked) {
        bits += mask_bits(s->mask_tree, codebook, t->counts.mask[point]);
        words += 1u + s->mask_tree->inner_count;
    }
    gw_tree_build(s->tree, codebook);
    for (uint32_t label = 2; label < GW_LABELS; label++) { /* what the sample has missed */
        count[GW_LABEL_ESCAPE] += codebook->length[label] == 0 ? count[label] : 0;
    }
    uint32_t by_rank[GW_LABELS];
    for (uint32_t rank = 0; rank < s->tree->label_count; rank++) {
        by_rank[rank] = count[s->tree->label_of_rank[rank]];
    }
    words += s->tree->inner_count;
    bits += tree_bits(s->tree, by_rank) + c->plane_bits + padded_bits(16 * words);
    bits += padded_bits(8u * gw_traits_of(e->rule.dtype)->size * count[GW_LABEL_ESCAPE]);
    return bits;
}

/* Bits of a chunk at a point, and its values that are not zero. */
static uint64_t chunk_bits(const gw_encoding *e, gw_rate_tables *t, uint32_t point, uint64_t *nonzeros)
{
    const uint32_t dtype = e->rule.dtype;
    const gw_rate_labels *labels = &t->counts.labels;
    point_counts c;
    GW_MEMSET(&c, 0, sizeof c);
    count_digits(&c, &t->counts, point, dtype, &t->codebook[point]);
    count_labels(c.plain, c.relative, labels, point, dtype);
    c.nonzeros += labels->escapes[point];
    c.plain[GW_LABEL_ZERO] = c.relative[GW_LABEL_ZERO] = (uint32_t)(t->counts.len - c.nonzeros);
    *nonzeros = c.nonzeros;
    if (c.nonzeros == 0) {
        return 0;
    }
    const uint64_t raw = (8 * (uint64_t)gw_traits_of(dtype)->size * t->counts.len + 127) / 128 * 128;
    const uint64_t codebook = t->has_owner[point] ? 0 : 8 * (uint64_t)gw_codebook_size(&t->codebook[point]);
    const uint64_t coded = (coded_bits(e, t, &c, point) + codebook + 127) / 128 * 128;
    if (coded >= raw) {
        return raw;
    }
    t->has_owner[point] = 1;
    return coded;
}

/* One family of a group being added to a rate. */
typedef struct group_adding {
    gw_gcomp_rate *rate;
    gw_encoding *e;
    const gw_group *group;
    gw_rate_family family;
    uint32_t first, stride; /* of its points in the rate */
} group_adding;

/* Counts the chunk that starts with value `at` of the group. */
static void count_chunk(const group_adding *a, gw_rate_tables *t, size_t at, gw_segment_place *place)
{
    const size_t chunk_len = (size_t)1 << a->e->info.chunk_log2;
    const gw_span chunk = gw_group_span(a->e, a->group, at, gw_min_size(a->group->len - at, chunk_len));
    gw_rate_count(t, &chunk, &a->e->rule, &a->family, place);
}

/* Adds a chunk whose values are counted and whose steps are summed. */
static void add_chunk(const group_adding *a, gw_rate_tables *t)
{
    for (uint32_t point = 0; point < a->family.points; point++) {
        const uint32_t at = a->first + point * a->stride;
        uint64_t nonzeros = 0;
        const uint64_t bits = chunk_bits(a->e, t, point, &nonzeros) + 8 * GW_FRAME_ENTRY_SIZE;
        a->rate->cost[at] += COST_OF_A_BIT * bits;
        a->rate->nonzeros[at] += nonzeros;
    }
}

/* The codebooks of a group, from its sample. */
static void choose_codebooks(const group_adding *a, gw_rate_tables *t, gw_segment_place *place)
{
    const size_t len = a->group->len;
    GW_MEMSET(t, 0, sizeof *t);
    t->relative_sample = (gw_rate_labels *)(void *)a->e->scratch.escapes;
    t->codebook_period = GW_SAMPLE_RUN_LEN * gw_group_sample_blocks(a->e->codec, len);
    t->relative_period = GW_SAMPLE_RUN_LEN * gw_power_of_two(len / 1024);
    GW_MEMSET(t->relative_sample, 0, sizeof *t->relative_sample);
    for (size_t at = 0; at < len; at += (size_t)1 << a->e->info.chunk_log2) {
        count_chunk(a, t, at, place);
    }
    gw_rate_sum_steps(&t->counts.labels, a->family.points);
    gw_rate_sum_steps(t->relative_sample, a->family.points);
    for (uint32_t point = 0; point < a->family.points; point++) {
        choose_codebook(a->e, t, point);
    }
}

static void add_family(const group_adding *a, gw_rate_tables *t, gw_segment_place *place)
{
    const size_t chunk_len = (size_t)1 << a->e->info.chunk_log2;
    gw_segment_place start = *place;
    choose_codebooks(a, t, place);
    if (a->group->len <= chunk_len &&
        t->codebook_period == GW_SAMPLE_RUN_LEN) { /* the counts are those of all */
        add_chunk(a, t);
    } else {
        *place = start;
        t->relative_sample = NULL;
        GW_MEMSET(&t->errors, 0, sizeof t->errors);
        for (size_t at = 0; at < a->group->len; at += chunk_len) {
            GW_MEMSET(&t->counts, 0, sizeof t->counts);
            count_chunk(a, t, at, place);
            gw_rate_sum_steps(&t->counts.labels, a->family.points);
            add_chunk(a, t);
        }
    }
    for (uint32_t point = 0; point < a->family.points; point++) {
        a->rate->error[a->first + point * a->stride] += gw_rate_error_at(&t->errors, &a->e->rule, point);
    }
}

static void add_group(gw_gcomp_rate *rate, gw_encoding *e, uint64_t first, gw_segment_place *place)
{
    const gw_segment_place start = *place;
    const size_t size = gw_traits_of(e->rule.dtype)->size, chunk_len = (size_t)1 << e->info.chunk_log2;
    const uint64_t at = first << e->info.chunk_log2;
    const uint64_t len = gw_min_u64(e->info.len - at, gw_group_chunks(e->codec) * (uint64_t)chunk_len);
    const gw_group group = {.first = first,
                            .values = (const uint8_t *)e->source->values + (size_t)at * size,
                            .len = (size_t)len,
                            .element = e->source->first_element + at};
    const int32_t bias = gw_traits_of(e->rule.dtype)->exponent_bias;
    const int is_noise = rate->kind == GW_GCOMP_RATE_NOISE;
    const int32_t tolerance = is_noise ? (int32_t)e->codec->options.tolerance_bits : 1;
    gw_rate_tables *const t = (gw_rate_tables *)(void *)e->scratch.sums;
    for (uint32_t half = 0; half <= (uint32_t)is_noise; half++) {
        /* Limits at half octaves form a family of their own. Its quanta are one octave lower, except those
         * from the upper part of an octave. */
        const group_adding a = {rate,
                                e,
                                &group,
                                {is_noise ? NOISE_OCTAVES - half : GW_GCOMP_RATE_POINTS,
                                 (int32_t)gw_source_map(e->source)->base, -tolerance - bias - (int32_t)half,
                                 half},
                                half,
                                is_noise ? 2 : 1};
        *place = start;
        add_family(&a, t, place);
        rate->square += half ? 0.0 : t->errors.value_square;
    }
}

gw_status gw_gcomp_rate_init(gw_gcomp_rate *rate, gw_gcomp_rate_kind kind)
{
    if (rate == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(rate, 0, sizeof *rate);
    if ((uint32_t)kind > GW_GCOMP_RATE_NOISE) {
        return GW_ERR_ARG;
    }
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
    if (o->quantum_mode != GW_GCOMP_DERIVED || o->step != 1 ||
        o->cap != gw_traits_of((uint32_t)o->dtype)->derived_cap || e.info.installed) {
        return GW_ERR_OPTION;
    }
    if (gw_source_map(source) == NULL) {
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
