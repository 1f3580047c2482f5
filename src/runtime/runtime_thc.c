/*
 * THC in two exchanges: what their steps work on, from open to close. The steps are in runtime_thc_steps.c.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_thc_steps.h"

#include <stdlib.h>

/* Elements of a piece of sums by default: 16 KiB of indices of 4 bits, 32 KiB of lanes of 8. Short pieces
 * overlap and stay in cache. */
#define PIECE_LEN UINT64_C(0x8000)
/* Blocks of a piece of norms by default: 4 KiB */
#define NORMS_BLOCKS 1024u

/* ------------ open ------------ */

/* The codec of sums that are encoded again. */
static gw_status open_sum_codec(gw_thc_steps *steps)
{
    const gw_thc_options *given = &steps->config.options;
    const gw_thc_goal goal = {
        .bits = given->table.bits, .worker_max = 1, .error_feedback = steps->config.sum_feedback};
    gw_thc_options options;
    if (given->dtype != GW_FP32 || given->transform != GW_THC_ROTATED) {
        return GW_ERR_OPTION;
    }
    gw_status status = gw_thc_options_init(&options, &goal, NULL);
    if (status != GW_OK) {
        return status;
    }
    options.block_log2 = given->block_log2;
    options.seed = given->seed ^ GW_THC_SUM_SEED;   /* else its rounding would follow that of contributions */
    options.nonfinite = GW_THC_NONFINITE_PROPAGATE; /* a sum may be infinite though no contribution is */
    options.backends = given->backends;
    return gw_thc_init(&steps->sum_thc, &options);
}

static gw_status open_codecs(gw_thc_steps *steps)
{
    const gw_thc_steps_config *config = &steps->config;
    const gw_thc_agg_options sums = {.table = config->options.table,
                                     .worker_max = config->options.worker_max,
                                     .lane_bits = config->options.lane_bits,
                                     .backends = config->options.backends};
    gw_status status = gw_thc_init(&steps->thc, &config->options);
    status = status == GW_OK ? gw_thc_agg_init(&steps->agg, &sums) : status;
    if (status == GW_OK && config->options.worker_max < config->rank_count) {
        status = GW_ERR_OPTION;
    }
    if (status == GW_OK && config->sums == GW_THC_SUMS_REQUANTIZED) {
        status = open_sum_codec(steps);
    }
    return status;
}

/* Pieces are whole blocks of a tensor, but for its last one. */
static gw_status open_layouts(gw_thc_steps *steps)
{
    const gw_thc_steps_config *config = &steps->config;
    const uint32_t block_log2 = config->options.block_log2;
    const uint64_t blocks[2] = {
        [GW_THC_PHASE_NORMS] = config->norms_blocks != 0 ? config->norms_blocks : NORMS_BLOCKS,
        [GW_THC_PHASE_SUMS] = config->piece_blocks != 0 ? config->piece_blocks : PIECE_LEN >> block_log2,
    };
    gw_status status = GW_OK;
    steps->block_count = gw_thc_block_count(&steps->thc, config->len);
    if (steps->block_count > SIZE_MAX / sizeof(uint64_t) / config->rank_count) {
        return GW_ERR_LIMIT;
    }
    for (uint32_t phase = 0; phase < 2 && status == GW_OK; phase++) {
        gw_collective_shape shape = {.len = config->len,
                                     .rank_count = config->rank_count,
                                     .shard_len = config->len,
                                     .piece_len = blocks[phase] << block_log2};
        if (config->is_scatter) {
            shape.len *= config->rank_count;
        } else {
            shape.shard_len = (steps->block_count + config->rank_count - 1) / config->rank_count
                              << block_log2;
        }
        status = gw_collective_layout_init(&steps->layout[phase], &shape);
    }
    return status;
}

static gw_status open_arrays(gw_thc_steps *steps)
{
    const uint64_t longest =
        steps->layout[GW_THC_PHASE_SUMS].shape.piece_len >> steps->config.options.block_log2;
    const uint64_t blocks = longest < steps->block_count ? longest : steps->block_count;
    steps->members = calloc((size_t)blocks + 1, sizeof *steps->members);
    if (steps->members == NULL) {
        return GW_ERR_LIMIT;
    }
    for (size_t i = 0; i < blocks; i++) {
        steps->members[i] = steps->config.rank_count;
    }
    return GW_OK;
}

gw_status gw_thc_steps_open(const gw_thc_steps_config *config, gw_thc_steps **steps)
{
    if (steps == NULL) {
        return GW_ERR_ARG;
    }
    *steps = NULL;
    if (config == NULL || config->len == 0 || config->rank_count == 0 ||
        config->rank_count > GW_COLLECTIVE_RANKS_MAX || config->rank >= config->rank_count) {
        return GW_ERR_ARG;
    }
    if (config->sums > GW_THC_SUMS_REQUANTIZED ||
        (config->sum_feedback && (config->sums != GW_THC_SUMS_REQUANTIZED || config->is_scatter))) {
        return GW_ERR_OPTION;
    }
    if (config->len > UINT64_MAX / 8 / config->rank_count) {
        return GW_ERR_LIMIT;
    }
    gw_thc_steps *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return GW_ERR_LIMIT;
    }
    made->config = *config;
    for (uint32_t phase = 0; phase < 2; phase++) {
        made->context[phase] = (gw_thc_steps_context){.steps = made, .phase = (gw_thc_phase)phase};
    }
    gw_status status = open_codecs(made);
    status = status == GW_OK ? open_layouts(made) : status;
    status = status == GW_OK ? open_arrays(made) : status;
    if (status != GW_OK) {
        gw_thc_steps_close(made);
        return status;
    }
    *steps = made;
    return GW_OK;
}

void gw_thc_steps_close(gw_thc_steps *steps)
{
    if (steps != NULL) {
        free(steps->members);
        free(steps);
    }
}

/* ------------ exchanges and operations ------------ */

gw_status gw_thc_steps_exchange(gw_thc_steps *steps, gw_thc_phase phase, gw_exchange_config *config)
{
    if (steps == NULL || config == NULL || (uint32_t)phase > GW_THC_PHASE_SUMS) {
        return GW_ERR_ARG;
    }
    /* No piece is longer than the first one of the first rank. */
    const uint64_t up = gw_thc_steps_message_size(&steps->context[phase], GW_RUNTIME_SEND, 0);
    const uint64_t down = gw_thc_steps_message_size(&steps->context[phase], GW_RUNTIME_SHARE, 0);
    const uint64_t most = up > down ? up : down;
    config->shape = steps->layout[phase].shape;
    config->rank = steps->config.rank;
    config->codec.dtype = steps->config.options.dtype;
    config->steps = (gw_exchange_steps){
        .run = gw_thc_steps_step,
        .context = &steps->context[phase],
        .message_bound = most > GW_COLLECTIVE_NOTICE_SIZE ? most : GW_COLLECTIVE_NOTICE_SIZE,
        .message_size = gw_thc_steps_message_size,
    };
    return GW_OK;
}

gw_status gw_thc_steps_begin(gw_thc_steps *steps, gw_thc_phase phase, const gw_thc_steps_run *run,
                             gw_exchange_run *exchange_run)
{
    uint64_t first = 0, len = 0;
    if (run == NULL || exchange_run == NULL || (uint32_t)phase > GW_THC_PHASE_SUMS ||
        gw_thc_steps_shard(steps, &first, &len) != GW_OK) {
        return GW_ERR_ARG;
    }
    const int has_feedback = steps->config.options.error_feedback != 0;
    const int has_sum_feedback = steps->config.sum_feedback != 0;
    if (run->values == NULL || run->result == NULL || run->maxima == NULL ||
        (run->error != NULL) != has_feedback || (len != 0 && (run->sum_error != NULL) != has_sum_feedback)) {
        return GW_ERR_ARG;
    }
    steps->run = *run;
    *exchange_run = (gw_exchange_run){.values = run->values, .result = run->result, .step_index = run->round};
    if (phase == GW_THC_PHASE_NORMS) {
        /* All ranks need all of them, and no value is written */
        exchange_run->result = (void *)(uintptr_t)run->values;
    } else if (steps->config.is_scatter) {
        exchange_run->flags = GW_EXCHANGE_SCATTER;
    }
    return GW_OK;
}

size_t gw_thc_steps_maxima_len(const gw_thc_steps *steps)
{
    if (steps == NULL) {
        return 0;
    }
    const uint32_t tensors = steps->config.is_scatter ? steps->config.rank_count : 1;
    return (size_t)steps->block_count * tensors * gw_thc_patterns_per_block(&steps->thc);
}

gw_status gw_thc_steps_shard(const gw_thc_steps *steps, uint64_t *first, uint64_t *len)
{
    if (steps == NULL || first == NULL || len == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status =
        gw_collective_shard_at(&steps->layout[GW_THC_PHASE_SUMS], steps->config.rank, first, len);
    if (status == GW_OK && steps->config.is_scatter) {
        *first = 0;
    }
    return status;
}
