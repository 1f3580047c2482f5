/*
 * Recommended options: granularity and lanes by the number of workers, p by the error that remains after
 * averaging.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "thc/thc_handle.h"
#include "thc/thc_default_tables.h"
#include "core/float_bits.h"
#include "thc/thc_normal.h"

#define GW_DEFAULT_BLOCK_LOG2 10 /* 1024 values: 512 bytes of 4-bit indices, one packet */
#define GW_P_LOG2_MAX         10

static const gw_thc_default_table *find_default(const gw_thc_goal *goal, unsigned granularity)
{
    for (size_t i = 0; i < gw_thc_default_table_count; i++) {
        const gw_thc_default_table *row = &gw_thc_default_tables[i];
        if (row->table.bits == goal->bits && row->error_feedback == goal->error_feedback &&
            row->table.granularity == granularity && row->worker_min <= goal->worker_max &&
            goal->worker_max <= row->worker_max) {
            return row;
        }
    }
    return NULL;
}

/* The largest granularity that n workers may use in these lanes, at most 31 (51 in wider lanes): beyond that
 * the error falls by less than 2 %. */
static unsigned granularity_for(uint32_t worker_max, unsigned lane_bits)
{
    uint32_t sum_max = lane_bits == 8 ? 255u : lane_bits == 16 ? 65535u : GW_THC_SUM_MAX;
    uint32_t useful = lane_bits == 8 ? 31u : 51u;
    return (unsigned)gw_min_u32(useful, sum_max / worker_max);
}

/* Error of the mean: rounding averages out over n workers unless error feedback carries it to the next round;
 * the clamp never averages out. */
static double remaining_error(const gw_thc_table_cost *cost, uint32_t worker_max, int error_feedback)
{
    return cost->quantization / (error_feedback ? 1.0 : (double)worker_max) + cost->truncation;
}

/* Granularity and lanes; GW_ERR_OVERFLOW if the given lanes are too narrow. */
static gw_status choose_lanes(const gw_thc_goal *goal, unsigned *lane_bits, unsigned *granularity)
{
    *lane_bits = goal->lane_bits;
    if (*lane_bits == 0) {
        /* 8 bits while a table of 4 bits fits: one rule for all widths of an index. */
        *lane_bits = goal->worker_max <= 17 ? 8 : goal->worker_max <= 65535 / 51 ? 16 : 32;
    }
    *granularity = granularity_for(goal->worker_max, *lane_bits);
    return *granularity < (1u << goal->bits) - 1u ? GW_ERR_OVERFLOW : GW_OK;
}

/* The table of least remaining error, and its p; from rodata where it is listed. */
static gw_status choose_table(const gw_thc_goal *goal, unsigned granularity, gw_thc_table *table,
                              unsigned *p_log2, const gw_workspace *workspace)
{
    const gw_thc_default_table *row = find_default(goal, granularity);
    double best = 0.0;

    if (row != NULL) {
        *table = row->table;
        *p_log2 = row->p_log2;
        return GW_OK;
    }
    for (unsigned k = 1; k <= GW_P_LOG2_MAX; k++) {
        gw_thc_table candidate;
        gw_thc_table_cost cost;
        gw_status status =
            gw_thc_table_solve(goal->bits, granularity, gw_f64_pow2(-(int)k), &candidate, &cost, workspace);
        if (status != GW_OK) {
            return status == GW_ERR_ARG ? GW_ERR_WORKSPACE : status;
        }
        double error = remaining_error(&cost, goal->worker_max, goal->error_feedback);
        if (k == 1 || error < best) {
            best = error;
            *table = candidate;
            *p_log2 = k;
        }
    }
    return GW_OK;
}

gw_status gw_thc_design_make(gw_thc_design *design, const gw_thc_goal *goal, const gw_workspace *workspace)
{
    gw_thc_table table;
    unsigned lane_bits;
    unsigned granularity;
    unsigned p_log2;

    if (design == NULL || goal == NULL) {
        return GW_ERR_ARG;
    }
    if (goal->bits < 1 || goal->bits > GW_THC_BITS_MAX || goal->worker_max < 1 ||
        goal->worker_max > GW_THC_WORKERS_MAX || (uint32_t)goal->error_feedback > 1) {
        return GW_ERR_OPTION;
    }
    if (goal->lane_bits != 0 && goal->lane_bits != 8 && goal->lane_bits != 16 && goal->lane_bits != 32) {
        return GW_ERR_OPTION;
    }
    gw_status status = choose_lanes(goal, &lane_bits, &granularity);
    if (status == GW_OK) {
        status = choose_table(goal, granularity, &table, &p_log2, workspace);
    }
    if (status != GW_OK) {
        return status;
    }

    GW_MEMSET(design, 0, sizeof *design);
    design->p = gw_f64_pow2(-(int)p_log2);
    design->options.table = table;
    design->options.threshold_bits = gw_thc_threshold_bits(design->p);
    design->options.worker_max = goal->worker_max;
    design->options.dtype = GW_FP32;
    design->options.transform = GW_THC_ROTATED;
    design->options.nonfinite = GW_THC_NONFINITE_ERROR;
    design->options.block_log2 = GW_DEFAULT_BLOCK_LOG2;
    design->options.lane_bits = lane_bits;
    design->options.error_feedback = goal->error_feedback;
    design->options.backends = GW_BACKEND_ALL;
    gw_thc_table_price_at(&design->cost, &table, gw_normal_threshold(design->p));
    design->error_one = design->cost.total;
    design->error_mean = remaining_error(&design->cost, goal->worker_max, 0);
    double norm_bits = 32.0 / (double)(1u << GW_DEFAULT_BLOCK_LOG2);
    design->up_bits = (double)goal->bits + norm_bits;
    design->down_bits = (double)lane_bits + norm_bits;
    return GW_OK;
}

gw_status gw_thc_options_init(gw_thc_options *options, const gw_thc_goal *goal, const gw_workspace *workspace)
{
    gw_thc_design design;

    if (options == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_design_make(&design, goal, workspace);
    if (status == GW_OK) {
        *options = design.options;
    }
    return status;
}
