/*
 * Recommended configurations: granularity and lanes by the number of workers, p by what error remains after
 * averaging.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "thc/thc_context.h"
#include "thc/thc_default_tables.h"
#include "thc/thc_float.h"
#include "thc/thc_normal.h"
#include "thc/thc_table.h"

#define GW_DEFAULT_BLOCK_LOG2 10 /* 1024 values: 512 bytes of 4-bit indices, one packet */
#define GW_P_LOG2_MAX         10

typedef struct default_choice {
    gw_thc_table table;
    unsigned p_log2;
    unsigned lane_bits;
} default_choice;

static const gw_thc_default_table *find_default(unsigned bits, uint32_t worker_max, unsigned granularity,
                                                int error_feedback)
{
    for (size_t i = 0; i < gw_thc_default_table_count; i++) {
        const gw_thc_default_table *row = &gw_thc_default_tables[i];
        if (row->table.bits == bits && row->error_feedback == (error_feedback != 0) &&
            row->table.granularity == granularity && row->worker_min <= worker_max &&
            worker_max <= row->worker_max) {
            return row;
        }
    }
    return NULL;
}

/* The largest granularity that n workers may use in these lanes, of those worth using: beyond 31 (51 in wider
 * lanes) the error falls by less than 2 %. */
static unsigned granularity_for(uint32_t worker_max, unsigned lane_bits)
{
    uint32_t sum_max = lane_bits == 8 ? 255u : lane_bits == 16 ? 65535u : GW_THC_SUM_MAX;
    uint32_t useful = lane_bits == 8 ? 31u : 51u;
    return (unsigned)gw_min_u32(useful, sum_max / worker_max);
}

/* Error left in the mean: rounding averages out over n workers unless error feedback carries it to the next
 * round; the clamp never does. */
static double remaining_error(const gw_thc_table_cost *cost, uint32_t worker_max, int error_feedback)
{
    return cost->quantization / (error_feedback ? 1.0 : (double)worker_max) + cost->truncation;
}

static gw_status choose(default_choice *choice, unsigned bits, uint32_t worker_max, unsigned lane_bits,
                        int error_feedback, void *workspace, size_t workspace_size)
{
    unsigned least = (1u << bits) - 1u;

    if (lane_bits == 0) {
        /* Eight bits while a table of four bits fits them, so that all widths share one rule. */
        lane_bits = worker_max <= 17 ? 8 : worker_max <= 65535 / 51 ? 16 : 32;
    }
    unsigned granularity = granularity_for(worker_max, lane_bits);
    if (granularity < least) {
        return GW_ERR_OVERFLOW;
    }
    choice->lane_bits = lane_bits;

    const gw_thc_default_table *row = find_default(bits, worker_max, granularity, error_feedback);
    if (row != NULL) {
        choice->table = row->table;
        choice->p_log2 = row->p_log2;
        return GW_OK;
    }
    double best = 0.0;
    for (unsigned p_log2 = 1; p_log2 <= GW_P_LOG2_MAX; p_log2++) {
        gw_thc_table table;
        gw_thc_table_cost cost;
        gw_status status = gw_thc_table_solve(&table, &cost, bits, granularity, gw_f64_pow2(-(int)p_log2),
                                              workspace, workspace_size);
        if (status != GW_OK) {
            return status == GW_ERR_ARG ? GW_ERR_WORKSPACE : status;
        }
        double error = remaining_error(&cost, worker_max, error_feedback);
        if (p_log2 == 1 || error < best) {
            best = error;
            choice->table = table;
            choice->p_log2 = p_log2;
        }
    }
    return GW_OK;
}

gw_status gw_thc_config_default(gw_thc_config *config, double *p_out, unsigned bits, uint32_t worker_max,
                                unsigned lane_bits, int error_feedback, void *workspace,
                                size_t workspace_size)
{
    default_choice choice;

    if (config == NULL) {
        return GW_ERR_ARG;
    }
    if (bits < 1 || bits > GW_THC_BITS_MAX || worker_max < 1 || worker_max > GW_THC_WORKERS_MAX) {
        return GW_ERR_OPTION;
    }
    if (lane_bits != 0 && lane_bits != 8 && lane_bits != 16 && lane_bits != 32) {
        return GW_ERR_OPTION;
    }
    gw_status status =
        choose(&choice, bits, worker_max, lane_bits, error_feedback, workspace, workspace_size);
    if (status != GW_OK) {
        return status;
    }

    double p = gw_f64_pow2(-(int)choice.p_log2);
    GW_MEMSET(config, 0, sizeof *config);
    config->table = choice.table;
    config->threshold_bits = gw_thc_threshold_bits(p);
    config->worker_max = worker_max;
    config->dtype = GW_FP32;
    config->transform = GW_THC_ROTATED;
    config->nonfinite = GW_THC_NONFINITE_ERROR;
    config->block_log2 = GW_DEFAULT_BLOCK_LOG2;
    config->lane_bits = (uint8_t)choice.lane_bits;
    config->error_feedback = error_feedback != 0;
    if (p_out != NULL) {
        *p_out = p;
    }
    return GW_OK;
}

gw_status gw_thc_plan_make(gw_thc_plan *plan, unsigned bits, uint32_t worker_max, unsigned lane_bits,
                           int error_feedback, void *workspace, size_t workspace_size)
{
    gw_thc_config config;
    double p;

    if (plan == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_config_default(&config, &p, bits, worker_max, lane_bits, error_feedback,
                                             workspace, workspace_size);
    if (status != GW_OK) {
        return status;
    }
    plan->config = config;
    plan->p = p;
    gw_thc_table_price_at(&plan->cost, &config.table, gw_normal_threshold(p));
    plan->error_one = plan->cost.total;
    plan->error_mean = remaining_error(&plan->cost, worker_max, 0);
    double norm_bits = 32.0 / (double)(1u << config.block_log2);
    plan->up_bits = (double)config.table.bits + norm_bits;
    plan->down_bits = (double)config.lane_bits + norm_bits;
    return GW_OK;
}
