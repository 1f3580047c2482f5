/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "bench_data.h"
#include "core/codebook.h"
#include "core/gcomp_codec.h"

enum { CHUNK_LEN = 1 << 14, ROOM = CHUNK_LEN + GW_SLOP };

struct gw_bench_stages {
    gw_kernels kernels;
    float values[CHUNK_LEN];
    float sums[CHUNK_LEN];
    uint8_t levels[CHUNK_LEN];
    gw_round_rule rule;
    gw_span span;
    float rounded[CHUNK_LEN];
    uint32_t bin_count[GW_BINS];
    uint32_t label_count[GW_LABELS];
    gw_codebook book;
    gw_codebook_scratch book_scratch;
    gw_tree tree;
    gw_ranker ranker;
    gw_joiner joiner;
    uint8_t ranks[ROOM], left[ROOM], right[ROOM], labels[ROOM];
    uint8_t plane_room[GW_PLANES_MAX][ROOM];
    gw_digits digits;
    uint8_t bitmap[CHUNK_LEN / 8 + GW_SLOP];
    uint8_t packed[CHUNK_LEN];
    uint16_t place[ROOM];
    gw_joined joined;
    uint8_t escapes[4 * ROOM];
    volatile uint32_t sink;
};

static void run_round(gw_bench_stages *s)
{
    s->kernels.round(s->rounded, &s->span, &s->rule);
}

static void run_survey(gw_bench_stages *s)
{
    memset(s->bin_count, 0, sizeof s->bin_count);
    s->kernels.survey(s->bin_count, &s->span, 64, &s->rule);
}

static void run_codebook(gw_bench_stages *s)
{
    gw_codebook_lengths(s->book.length, s->label_count, &s->book_scratch);
    gw_tree_build(&s->tree, &s->book);
    gw_ranker_build(&s->ranker, &s->tree, s->book.base);
}

static void run_split(gw_bench_stages *s)
{
    memset(s->digits.plane_len, 0, sizeof s->digits.plane_len);
    s->digits.escape_len = 0;
    s->sink = s->kernels.split(s->ranks, &s->digits, &s->span, &s->rule, &s->ranker);
}

static void run_partition(gw_bench_stages *s)
{
    s->sink = (uint32_t)s->kernels.partition(s->left, s->right, s->bitmap, s->ranks, CHUNK_LEN, s->tree.node[0].pivot);
}

static void run_pack(gw_bench_stages *s)
{
    s->kernels.pack(s->packed, s->digits.plane[0], s->digits.plane_len[0], 6, 0);
}

static void run_unpack(gw_bench_stages *s)
{
    s->sink = (uint32_t)s->kernels.unpack(s->digits.plane[0], s->packed, s->digits.plane_len[0], 6, NULL);
}

static void run_merge(gw_bench_stages *s)
{
    const gw_child left = {s->left, 0}, right = {s->right, 0};
    s->sink = (uint32_t)s->kernels.merge(s->ranks, left, right, s->bitmap, CHUNK_LEN);
}

static void run_join(gw_bench_stages *s)
{
    s->kernels.join(s->sums, &s->joined, s->place, s->labels, s->digits.plane, s->escapes, CHUNK_LEN, s->levels, CHUNK_LEN,
                    &s->joiner);
}

static void run_add(gw_bench_stages *s)
{
    s->kernels.add_fp32(s->sums, s->sums, s->values, CHUNK_LEN, 0);
}

static void run_crc32c(gw_bench_stages *s)
{
    s->sink = s->kernels.crc32c(0, (const uint8_t *)s->values, sizeof s->values);
}

typedef struct stage {
    const char *name;
    void (*run)(gw_bench_stages *stages);
} stage;

static const stage stages_known[] = {
    {"round", run_round},         {"survey", run_survey}, {"codebook", run_codebook}, {"split", run_split},
    {"partition_root", run_partition}, {"pack_6bit", run_pack}, {"unpack_6bit", run_unpack}, {"merge_root", run_merge},
    {"join", run_join},           {"add", run_add},       {"crc32c", run_crc32c},
};

int gw_bench_stage_count(void)
{
    return (int)(sizeof stages_known / sizeof stages_known[0]);
}

const char *gw_bench_stage_name(int index)
{
    return stages_known[index].name;
}

void gw_bench_stage_run(gw_bench_stages *stages, int index)
{
    stages_known[index].run(stages);
}

gw_bench_stages *gw_bench_stages_new(const gw_bench_data *data, uint32_t backends)
{
    gw_bench_stages *s = (gw_bench_stages *)calloc(1, sizeof *s);
    if (s == NULL || data->len < CHUNK_LEN) {
        free(s);
        return NULL;
    }
    gw_kernels_init(&s->kernels, backends);
    memcpy(s->values, data->values, sizeof s->values);
    memcpy(s->levels, data->levels, sizeof s->levels);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        s->digits.plane[p] = s->plane_room[p];
    }
    s->digits.escape = s->escapes;
    s->span.values = s->values;
    s->span.levels = s->levels;
    s->span.len = CHUNK_LEN;
    s->rule.dtype = GW_FP32;
    s->rule.rounding = GW_GCOMP_NEAREST;
    s->rule.cap = 18;
    s->rule.drop_base = (int32_t)data->map.base - 1;
    gw_floor_table(s->rule.floor, 6);

    /* Every stage finds the results of the ones before it. */
    run_survey(s);
    uint32_t largest = 0;
    for (uint32_t bin = 4; bin < 4 * 255; bin++) {
        largest = s->bin_count[bin] != 0 ? bin >> 2 : largest;
    }
    s->book.base = gw_codebook_base(largest);
    for (uint32_t bin = 0; bin < GW_BINS; bin++) {
        if (s->bin_count[bin] != 0) {
            s->label_count[gw_label_of_bin(bin, GW_FP32, 0, s->book.base)] += s->bin_count[bin];
        }
    }
    run_codebook(s);
    s->joiner.dtype = GW_FP32;
    s->joiner.base = s->book.base;
    run_split(s);
    for (size_t i = 0; i < CHUNK_LEN; i++) {
        s->labels[i] = s->tree.label_of_rank[s->ranks[i]];
    }
    run_partition(s);
    run_pack(s);
    return s;
}

void gw_bench_stages_free(gw_bench_stages *stages)
{
    free(stages);
}
