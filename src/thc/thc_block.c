/*
 * One block: what its patterns mean, and its lanes back to values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/float_bits.h"
#include "thc/thc_handle.h"
#include "thc/thc_plain.h"

gw_thc_block_kind gw_thc_block_read(const gw_thc_state *thc, const uint32_t *patterns)
{
    int marks_allowed = thc->options.nonfinite == GW_THC_NONFINITE_PROPAGATE;

    if (thc->options.transform == GW_THC_PLAIN) {
        return gw_thc_plain_read(patterns, marks_allowed);
    }
    uint32_t norm = patterns[0];
    if (norm == 0) {
        return GW_THC_BLOCK_CONSTANT;
    }
    if (norm >= GW_F32_MIN && norm < GW_F32_INF) {
        return GW_THC_BLOCK_CODED;
    }
    return norm == GW_THC_NORM_NONFINITE && marks_allowed ? GW_THC_BLOCK_NONFINITE : GW_THC_BLOCK_INVALID;
}

gw_status gw_thc_block_check(const gw_thc_state *thc, const gw_thc_block *block)
{
    if (block->members > thc->options.worker_max) {
        return GW_ERR_OVERFLOW;
    }
    gw_thc_block_kind kind = gw_thc_block_read(thc, block->patterns);
    if (kind == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    uint32_t limit = kind == GW_THC_BLOCK_CODED ? block->members * thc->options.table.granularity : 0;
    uint32_t lane_max = thc->kernels.lane_max(block->lanes, block->lane_count, block->lane_bits);
    return lane_max > limit ? GW_ERR_CORRUPT : GW_OK;
}

static void decode_rotated(const gw_thc_state *thc, const gw_thc_block *block, gw_thc_mode mode,
                           const gw_thc_stream *stream, float *y)
{
    uint32_t norm = block->patterns[0];
    uint32_t exponent = norm >> 23;
    double t = (double)gw_float_from_bits(thc->options.threshold_bits);
    double g = (double)thc->options.table.granularity;
    /* The norm without its power of two, which rotate_back applies at the end: nothing between is subnormal.
     */
    double unit_norm = (double)gw_float_from_bits((norm & 0x7fffffu) | 0x3f800000u);
    double scale = t / g * (unit_norm / (double)block->lane_count);

    if (mode == GW_THC_MEAN) {
        scale /= (double)block->members;
    }
    thc->kernels.unpack(y, block->lanes, block->lane_count, block->lane_bits,
                        block->members * thc->options.table.granularity, (float)scale);
    thc->kernels.rotate_back(y, block->lane_count, exponent, stream);
}

static void decode_plain(const gw_thc_state *thc, const gw_thc_block *block, gw_thc_mode mode, float *y)
{
    gw_thc_plain_extent extent = gw_thc_plain_extent_of(block->patterns);
    double step = (double)extent.width / (double)thc->options.table.granularity;
    double base = (double)extent.minimum;

    if (mode == GW_THC_MEAN) {
        step /= (double)block->members;
    } else {
        base *= (double)block->members;
    }
    thc->kernels.unpack_plain(y, block->lanes, block->lane_count, block->lane_bits, step, base);
}

void gw_thc_block_decode(const gw_thc_state *thc, const gw_thc_block *block, gw_thc_mode mode,
                         const gw_thc_stream *stream, float *y)
{
    if (thc->options.transform == GW_THC_PLAIN) {
        decode_plain(thc, block, mode, y);
    } else if (block->patterns[0] == 0) {
        GW_MEMSET(y, 0, block->lane_count * sizeof *y);
    } else {
        decode_rotated(thc, block, mode, stream, y);
    }
}
