/*
 * One block: what its patterns mean, and its way back from lanes to values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_context.h"
#include "thc/thc_float.h"
#include "thc/thc_plain.h"

gw_thc_block_kind gw_thc_block_read(const gw_thc *thc, const uint32_t *patterns)
{
    int marks_allowed = thc->config.nonfinite == GW_THC_NONFINITE_PROPAGATE;

    if (thc->config.transform == GW_THC_PLAIN) {
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

gw_status gw_thc_block_check(const gw_thc *thc, const uint8_t *lanes, size_t lane_count, uint32_t members,
                             const uint32_t *patterns)
{
    if (members > thc->config.worker_max) {
        return GW_ERR_OVERFLOW;
    }
    gw_thc_block_kind kind = gw_thc_block_read(thc, patterns);
    if (kind == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    uint32_t lane_limit = kind == GW_THC_BLOCK_CODED ? members * thc->config.table.granularity : 0;
    uint32_t lane_max = gw_thc_kernels_of(thc)->lane_max(lanes, lane_count, thc->config.lane_bits);
    return lane_max > lane_limit ? GW_ERR_CORRUPT : GW_OK;
}

static void decode_rotated(const gw_thc *thc, float *y, const uint8_t *lanes, size_t lane_count,
                           unsigned lane_bits, uint32_t members, uint32_t norm, gw_thc_mode mode,
                           const gw_thc_stream *stream)
{
    const gw_thc_kernels *kernels = gw_thc_kernels_of(thc);
    double t = (double)gw_float_from_bits(thc->config.threshold_bits);
    double g = (double)thc->config.table.granularity;
    uint32_t exponent = norm >> 23;
    /* The norm without its power of two, which rotate_back applies at the end: nothing between is subnormal.
     */
    double unit_norm = (double)gw_float_from_bits((norm & 0x7fffffu) | 0x3f800000u);
    double scale = t / g * (unit_norm / (double)lane_count);

    if (mode == GW_THC_MEAN) {
        scale /= (double)members;
    }
    kernels->unpack(y, lanes, lane_count, lane_bits, members * thc->config.table.granularity, (float)scale);
    kernels->rotate_back(y, lane_count, exponent, stream);
}

static void decode_plain(const gw_thc *thc, float *y, const uint8_t *lanes, size_t lane_count,
                         unsigned lane_bits, uint32_t members, const uint32_t *patterns, gw_thc_mode mode)
{
    gw_thc_plain_extent extent = gw_thc_plain_extent_of(patterns);
    double step = (double)extent.width / (double)thc->config.table.granularity;
    double base = (double)extent.minimum;

    if (mode == GW_THC_MEAN) {
        step /= (double)members;
    } else {
        base *= (double)members;
    }
    gw_thc_kernels_of(thc)->unpack_plain(y, lanes, lane_count, lane_bits, step, base);
}

void gw_thc_block_decode(const gw_thc *thc, float *y, const uint8_t *lanes, size_t lane_count,
                         unsigned lane_bits, uint32_t members, const uint32_t *patterns, gw_thc_mode mode,
                         const gw_thc_stream *stream)
{
    if (thc->config.transform == GW_THC_PLAIN) {
        decode_plain(thc, y, lanes, lane_count, lane_bits, members, patterns, mode);
    } else if (patterns[0] == 0) {
        GW_MEMSET(y, 0, lane_count * sizeof *y);
    } else {
        decode_rotated(thc, y, lanes, lane_count, lane_bits, members, patterns[0], mode, stream);
    }
}
