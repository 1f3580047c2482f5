/*
 * Encode: the codebook of a group, from a sample of its values or from all labels of a chunk. What is chosen
 * here is normative: docs/encoder-profile.md.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/codebook_choice.h"
#include "gcomp/gcomp_encoding.h"
#include "gcomp/mask_code.h"

/* 1 if labels depend on a window, which the largest ordinary exponent field decides. */
static int has_window(const gw_round_rule *rule)
{
    return !rule->derived && rule->dtype != GW_FP16;
}

uint32_t gw_survey_fold(uint32_t *count, const uint32_t *bin_count, uint32_t dtype, uint32_t derived)
{
    uint32_t window_start = 0;
    if (!derived && dtype != GW_FP16) {
        uint32_t largest = gw_traits_of(dtype)->exponent_mask - 1;
        while (largest > 0 && (bin_count[4 * largest] | bin_count[4 * largest + 1] |
                               bin_count[4 * largest + 2] | bin_count[4 * largest + 3]) == 0) {
            largest--;
        }
        window_start = gw_codebook_window_start(largest);
    }
    GW_MEMSET(count, 0, GW_LABELS * sizeof *count);
    for (uint32_t first = 0; first < GW_BINS; first += 8) { /* most bins are empty */
        const uint32_t any = gw_any_of_eight(bin_count + first);
        for (uint32_t bin = first; any != 0 && bin < first + 8; bin++) {
            if (bin_count[bin] != 0) {
                count[gw_label_of_bin(bin, dtype, derived, window_start)] += bin_count[bin];
            }
        }
    }
    return window_start;
}

/* Counts a run of a sample with values of several segments. The values are rounded first, each with the
 * random stream of its segment. */
static void survey_mixed_run(gw_encoding *e, const gw_span *run, gw_segment_place place, uint32_t *mask_count)
{
    uint8_t values[4 * GW_SAMPLE_RUN_LEN];
    gw_span rounded = *run;
    gw_round_parts(e, run, &place, values);
    rounded.values = values;
    rounded.ahead = 0;
    e->rule.rounding = GW_GCOMP_TRUNCATE;
    e->codec->kernels.gcomp.survey(e->scratch.bin_count, mask_count, &rounded, GW_SAMPLE_RUN_LEN, &e->rule);
    e->rule.rounding = GW_GCOMP_STOCHASTIC;
}

/* A part of a span has values [first, end). Counts its runs, beginning with the one at value `run`, as far as
 * they end within the part. Returns the first value of the next run. */
static size_t survey_whole_runs(gw_encoding *e, const gw_span *span, gw_gcomp_segment part, size_t first,
                                size_t run, size_t period, uint32_t *mask_count)
{
    const size_t end = first + (size_t)part.len, run_len = gw_min_size(GW_SAMPLE_RUN_LEN, span->len - run);
    if (run + run_len > end) {
        return run;
    }
    const size_t next = run + ((end - run - run_len) / period + 1) * period;
    part.first_element += run - first;
    part.len = gw_min_size(next - period + GW_SAMPLE_RUN_LEN, end) - run;
    const gw_span runs = gw_span_of_part(span, gw_traits_of(e->rule.dtype)->size, run, &part);
    e->rule.seed = part.seed;
    e->codec->kernels.gcomp.survey(e->scratch.bin_count, mask_count, &runs, period, &e->rule);
    return next;
}

/* As survey_span() for a group of several segments: the runs within a segment are counted together. */
static void survey_parts(gw_encoding *e, const gw_span *span, gw_segment_place place, size_t period,
                         uint32_t *mask_count)
{
    size_t run = 0; /* the first one that is not counted yet */
    for (size_t first = 0; first < span->len;) {
        const gw_segment_place start = place;
        const gw_gcomp_segment part = gw_segment_next(&place, span->len - first);
        const size_t end = first + (size_t)part.len;
        if (run < end) {
            run = survey_whole_runs(e, span, part, first, run, period, mask_count);
        }
        if (run < end) {
            const gw_gcomp_segment mixed = {0, 0, gw_min_size(GW_SAMPLE_RUN_LEN, span->len - run)};
            const gw_span values = gw_span_of_part(span, gw_traits_of(e->rule.dtype)->size, run, &mixed);
            survey_mixed_run(e, &values, gw_segment_after(start, run - first), mask_count);
            run += period;
        }
        first = end;
    }
}

/* Counts the runs of the sample in values [at, at + len) of a group. A run begins at `at`. */
static void survey_span(gw_encoding *e, const gw_group *group, size_t at, size_t len, size_t period,
                        uint32_t *mask_count)
{
    const gw_span span = gw_group_span(e, group, at, len);
    if (group->part_count <= 1) {
        e->codec->kernels.gcomp.survey(e->scratch.bin_count, mask_count, &span, period, &e->rule);
    } else {
        survey_parts(e, &span, gw_segment_after(group->parts, at), period, mask_count);
    }
}

/* Adds the bins of a sample of the group to the bin counts, and its mask bytes to mask_count unless that is
 * NULL. The period is a power of two. */
static void survey(gw_encoding *e, const gw_group *group, size_t period, uint32_t *mask_count)
{
    gw_scratch *s = &e->scratch;
    GW_MEMSET(s->bin_count, 0, GW_BINS * sizeof *s->bin_count);
    if (e->info.quantum_mode != GW_GCOMP_CARRIED) {
        survey_span(e, group, 0, group->len, period, mask_count);
        return;
    }
    /* Each carried chunk has a drop_offset of its own. A chunk consists of whole periods, or lies within a
     * period. */
    const size_t chunk_len = (size_t)1 << e->info.chunk_log2;
    for (size_t at = 0; at < group->len; at += chunk_len) {
        if (at % period == 0 || period < chunk_len) {
            const size_t len = period > chunk_len ? GW_SAMPLE_RUN_LEN : chunk_len;
            survey_span(e, group, at, gw_min_size(group->len - at, len), period, mask_count);
        }
    }
}

/* About 1024 values are counted either way. */
void gw_group_choose_relative(gw_encoding *e, const gw_group *group)
{
    gw_scratch *s = &e->scratch;
    e->rule.relative = 0;
    if (!e->rule.dead_zone) {
        return;
    }
    const size_t period = GW_SAMPLE_RUN_LEN * gw_power_of_two(group->len / 1024);
    uint64_t cost[2];
    for (uint32_t relative = 0; relative < 2; relative++) {
        e->rule.relative = relative;
        survey(e, group, period, NULL);
        gw_survey_fold(s->count, s->bin_count, e->rule.dtype, 1);
        cost[relative] = gw_labels_cost(s->count, 1);
    }
    e->rule.relative = cost[1] < cost[0];
}

size_t gw_group_sample_blocks(const gw_codec *codec, size_t len)
{
    const size_t blocks = gw_min_size(16, len / 4096);
    return codec->options.preset == GW_GCOMP_SMALL || blocks < 1 ? 1 : gw_power_of_two(blocks);
}

int gw_group_survey(gw_encoding *e, const gw_group *group, size_t blocks)
{
    gw_scratch *s = &e->scratch;
    uint32_t byte_count[256] = {0}, mask_count[GW_MASK_CLASSES] = {0};
    gw_group_choose_relative(e, group);
    survey(e, group, GW_SAMPLE_RUN_LEN * blocks, byte_count);
    gw_mask_fold(mask_count, byte_count);
    s->codebook->window_start =
        (uint8_t)gw_survey_fold(s->count, s->bin_count, e->rule.dtype, e->rule.derived);
    uint64_t len = 0;
    for (uint32_t label = 0; label < GW_LABELS; label++) {
        len += s->count[label];
    }
    if (blocks == 1 && s->count[GW_LABEL_ZERO] == len) {
        return 0;
    }
    const gw_codebook_counts counts = {s->count, mask_count, len,
                                       gw_min_u64(group->len, (uint64_t)1 << e->info.chunk_log2), blocks > 1};
    s->codebook->is_relative = (uint8_t)e->rule.relative;
    gw_codebook_choose(s->codebook, &counts, s->codebook_scratch);
    return 1;
}

/* The largest exponent field of the values that were split into labels, without infinity and NaN. */
static uint32_t largest_exponent(const gw_encoding *e, uint32_t window_start, const gw_digits *digits)
{
    const gw_traits *t = gw_traits_of(e->rule.dtype);
    uint32_t largest = 0;
    for (uint32_t label = GW_LABELS - 1; label >= 4 && largest == 0; label--) {
        largest =
            e->scratch.count[label] != 0 ? gw_exponent_of_label(label, e->rule.dtype, 0, window_start) : 0;
    }
    for (size_t i = 0; i < digits->escape_len; i++) {
        const uint8_t *at = digits->escape + t->size * i;
        const uint32_t bits = t->size == 4 ? gw_load32(at) : gw_load16(at);
        const uint32_t exponent = bits >> t->mantissa_bits & t->exponent_mask;
        largest = exponent > largest && exponent != t->exponent_mask ? exponent : largest;
    }
    return largest;
}

/* Labels of explicit frames that stand for an exponent: 4 to 255. */
enum { ORDINARY_LABELS = GW_LABELS - 4 };

/* How many ordinary labels leave their range when all are moved. */
static size_t steps_of(int32_t move)
{
    return gw_min_size((size_t)(move < 0 ? -move : move), ORDINARY_LABELS);
}

/* Moves the counts of ordinary labels to the labels that are `down` smaller, down being a multiple of 4.
 * Returns 0 and changes nothing if a counted label would leave the range of ordinary labels or an escape was
 * counted. */
static int move_counts(uint32_t count[GW_LABELS], int32_t down)
{
    const size_t steps = steps_of(down), kept = ORDINARY_LABELS - steps;
    uint32_t *first = count + 4, *last = count + GW_LABELS - steps;
    uint32_t *leaving = down < 0 ? last : first, *filled = down < 0 ? first : last;
    uint32_t outside = count[GW_LABEL_ESCAPE];
    for (size_t i = 0; i < steps; i++) {
        outside |= leaving[i];
    }
    if (outside != 0) {
        return 0;
    }
    GW_MEMMOVE(down < 0 ? first + steps : first, down < 0 ? first : first + steps, kept * sizeof *count);
    GW_MEMSET(filled, 0, steps * sizeof *count);
    return 1;
}

/*
 * Counts all labels of a chunk. The split yields the labels themselves in place of ranks, so that values are
 * rounded only once; rank_labels() later turns labels into ranks. The window is known only from the same
 * counts, so the split uses the window of the previous chunk. If that was wrong, the counts are moved. If a
 * label would leave the window, or if there are escapes for which the right window may have labels, the chunk
 * is split again.
 *
 * *move: what has to be subtracted from the ordinary labels in rank_buffer[0]. Returns 0 if all values are
 * +0.
 */
static int split_labels(gw_encoding *e, const gw_group *group, const gw_span *chunk, gw_digits *digits,
                        int32_t *move)
{
    const gw_kernels *k = &e->codec->kernels;
    gw_scratch *s = &e->scratch;
    uint32_t window_start = has_window(&e->rule) ? e->window : 0;
    *move = 0;
    for (int is_right = 0; !is_right;) {
        for (uint32_t label = 0; label < GW_LABELS; label++) {
            s->ranker->rank[label] = (uint8_t)label;
        }
        s->ranker->escape_rank = GW_LABEL_ESCAPE;
        s->ranker->window_start = window_start;
        gw_digits_begin(e, digits);
        if (gw_split_parts(e, group, chunk, 0, digits) == 0) {
            return 0;
        }
        GW_MEMSET(s->count, 0, GW_LABELS * sizeof *s->count);
        k->gcomp.count(s->count, s->rank_buffer[0], chunk->len);
        is_right = 1;
        if (has_window(&e->rule)) {
            const uint32_t right = gw_codebook_window_start(largest_exponent(e, window_start, digits));
            *move = 4 * ((int32_t)right - (int32_t)window_start);
            is_right = right == window_start || move_counts(s->count, *move);
            window_start = right;
        }
    }
    e->window = window_start;
    s->codebook->window_start = (uint8_t)window_start;
    return 1;
}

/* Turns the len labels of split_labels() into ranks. */
static void rank_labels(gw_encoding *e, uint8_t *labels, size_t len, int32_t move)
{
    uint8_t rank[GW_LABELS];
    const gw_scratch *s = &e->scratch;
    GW_MEMCPY(rank, s->ranker->rank, sizeof rank);
    const size_t steps = steps_of(move), kept = ORDINARY_LABELS - steps;
    /* Labels that would come from outside of the range do not occur; their entries are not used. */
    if (move > 0) {
        GW_MEMCPY(rank + 4 + steps, s->ranker->rank + 4, kept);
    } else {
        GW_MEMCPY(rank + 4, s->ranker->rank + 4 + steps, kept);
    }
    e->codec->kernels.gcomp.rank(labels, len, rank);
}

int gw_group_split(gw_encoding *e, const gw_group *group, gw_split_chunk *split)
{
    gw_scratch *s = &e->scratch;
    uint32_t mask_count[GW_MASK_CLASSES] = {0};
    int32_t move = 0;
    gw_group_choose_relative(e, group);
    const gw_span chunk = gw_group_span(e, group, 0, group->len);
    if (!split_labels(e, group, &chunk, &split->digits, &move)) {
        return 0;
    }
    size_t coded = 0;
    if (!gw_is_mask_too_large(s->count[GW_LABEL_ZERO], group->len)) {
        coded = e->codec->kernels.gcomp.partition(NULL, s->rank_buffer[1], s->mask[0], s->rank_buffer[0],
                                                  group->len, 1);
        gw_mask_count(mask_count, s->mask[0], (group->len + 7) / 8);
    }
    const gw_codebook_counts counts = {s->count, mask_count, group->len, group->len, 0};
    s->codebook->is_relative = (uint8_t)e->rule.relative;
    gw_codebook_choose(s->codebook, &counts, s->codebook_scratch);
    split->coded_len = s->codebook->is_masked ? coded : group->len;
    gw_encoding_use_codebook(e);
    rank_labels(e, s->rank_buffer[s->codebook->is_masked], split->coded_len, move);
    return 1;
}

void gw_encoding_use_codebook(gw_encoding *e)
{
    const gw_scratch *s = &e->scratch;
    e->rule.relative = s->codebook->is_relative;
    gw_tree_build(s->tree, s->codebook);
    if (s->codebook->is_masked) {
        gw_mask_tree_build(s->mask_tree, s->codebook);
    }
    gw_ranker_build(s->ranker, s->tree, s->codebook);
}
