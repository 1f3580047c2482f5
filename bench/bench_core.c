/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_core.h"

#include <stdlib.h>

#include "gcomp/gcomp_codec.h"

enum { CHUNK_LEN = 1 << 14, GROUP_LEN = GW_BENCH_CORE_LEN };

struct gw_bench_codebooks {
    gw_gcomp codec;
    gw_gcomp_map map;
    gw_gcomp_source chunk;
    gw_gcomp_histogram histogram;
    gw_workspace workspace;
    uint32_t chunk_bins[GW_BINS], chunk_count[GW_LABELS], group_count[GW_LABELS];
    gw_codebook codebook, read;
    gw_codebook_scratch scratch;
    gw_tree tree;
    gw_ranker ranker;
    uint8_t bytes[GW_GCOMP_CODEBOOK_SIZE_MAX];
    size_t size;
};

/* ---- steps --------------------------------------------------------------------------------------------- */

static gw_status histogram(gw_bench_codebooks *b)
{
    const gw_status status = gw_gcomp_histogram_init(&b->histogram, &b->codec);
    return status != GW_OK ? status
                           : gw_gcomp_histogram_add(&b->histogram, &b->codec, &b->chunk, &b->workspace);
}

static gw_status fold(gw_bench_codebooks *b)
{
    b->codebook.window_start = (uint8_t)gw_survey_fold(b->chunk_count, b->chunk_bins, GW_FP32, 0);
    return GW_OK;
}

static gw_status lengths(gw_bench_codebooks *b)
{
    gw_codebook_lengths(b->codebook.length, b->chunk_count, &b->scratch);
    return GW_OK;
}

static gw_status tree(gw_bench_codebooks *b)
{
    gw_tree_build(&b->tree, &b->codebook);
    return GW_OK;
}

static gw_status ranker(gw_bench_codebooks *b)
{
    gw_ranker_build(&b->ranker, &b->tree, &b->codebook);
    return GW_OK;
}

static gw_status codebook_of(gw_bench_codebooks *b, const uint32_t *count)
{
    gw_codebook_lengths(b->codebook.length, count, &b->scratch);
    gw_tree_build(&b->tree, &b->codebook);
    gw_ranker_build(&b->ranker, &b->tree, &b->codebook);
    return GW_OK;
}

static gw_status chunk_codebook(gw_bench_codebooks *b)
{
    return codebook_of(b, b->chunk_count);
}

static gw_status group_codebook(gw_bench_codebooks *b)
{
    return codebook_of(b, b->group_count);
}

static gw_status read_codebook(gw_bench_codebooks *b)
{
    size_t used;
    const gw_status status =
        gw_codebook_read(&b->read, &used, b->bytes, b->size, (gw_codebook_kind){GW_FP32, 0, 0});
    gw_tree_build(&b->tree, &b->read);
    return status;
}

const gw_bench_step *gw_bench_step_at(size_t index)
{
    static const gw_bench_step steps[] = {
        {"histogram", CHUNK_LEN, 1, histogram},           {"fold", CHUNK_LEN, 0, fold},
        {"codebook_build", CHUNK_LEN, 0, chunk_codebook}, {"codebook_group", GROUP_LEN, 0, group_codebook},
        {"codebook_lengths", CHUNK_LEN, 0, lengths},      {"tree_build", CHUNK_LEN, 0, tree},
        {"ranker_build", CHUNK_LEN, 0, ranker},           {"codebook_read", CHUNK_LEN, 0, read_codebook},
    };
    return index < sizeof steps / sizeof steps[0] ? &steps[index] : NULL;
}

/* ---- their inputs -------------------------------------------------------------------------------------- */

/* Counts of the group's sample, as preset fast takes it, and of all values of its first chunk. */
static gw_status count_labels(gw_bench_codebooks *b, const gw_bench_data *data)
{
    uint32_t group_bins[GW_BINS] = {0};
    gw_encoding encoding;
    const gw_status status = gw_encoding_begin(&encoding, &b->codec, &b->chunk, &b->workspace);
    if (status != GW_OK) {
        return status;
    }
    const gw_kernels *k = &gw_codec_of(&b->codec)->kernels;
    const gw_span chunk = {data->values, data->map_bytes, CHUNK_LEN, 0, 0};
    const gw_span group = {data->values, data->map_bytes, GROUP_LEN, 0, 0};
    k->gcomp.survey(b->chunk_bins, NULL, &chunk, GW_SAMPLE_RUN_LEN, &encoding.rule);
    k->gcomp.survey(group_bins, NULL, &group, GW_SAMPLE_RUN_LEN * (GROUP_LEN / GW_SAMPLE_LEN_MAX),
                    &encoding.rule);
    gw_survey_fold(b->group_count, group_bins, GW_FP32, 0);
    b->group_count[GW_LABEL_ZERO] += b->group_count[GW_LABEL_ZERO] == 0;
    b->group_count[GW_LABEL_ESCAPE] += b->group_count[GW_LABEL_ESCAPE] == 0;
    return fold(b);
}

gw_bench_codebooks *gw_bench_codebooks_new(const gw_bench_data *data, uint32_t backends)
{
    gw_bench_codebooks *b = (gw_bench_codebooks *)calloc(1, sizeof *b);
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = GW_GCOMP_EXPLICIT;
    options.backends = backends;
    if (b == NULL || data->len < GROUP_LEN || gw_gcomp_init(&b->codec, &options) != GW_OK) {
        free(b);
        return NULL;
    }
    b->chunk.values = data->values;
    b->chunk.len = CHUNK_LEN;
    b->map = data->map;
    b->map.len = CHUNK_LEN;
    b->chunk.quantum = gw_gcomp_quantum_of_map(&b->map);
    b->workspace.size = gw_gcomp_workspace_size(&b->codec);
    b->workspace.data = malloc(b->workspace.size);
    if (b->workspace.data == NULL || count_labels(b, data) != GW_OK) {
        gw_bench_codebooks_free(b);
        return NULL;
    }
    chunk_codebook(b);
    gw_codebook_write(b->bytes, &b->codebook);
    b->size = gw_codebook_size(&b->codebook);
    return b;
}

void gw_bench_codebooks_free(gw_bench_codebooks *codebooks)
{
    if (codebooks != NULL) {
        free(codebooks->workspace.data);
    }
    free(codebooks);
}
