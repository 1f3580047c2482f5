/*
 * Where decoded values go.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_handle.h"
#include "core/float_bits.h"

uint8_t *gw_classic_sink_at(const gw_classic_sink *sink, uint64_t first)
{
    return (uint8_t *)sink->values + (size_t)first * gw_dtype_size((gw_dtype)sink->dtype);
}

void gw_classic_sink_put(const gw_classic_sink *sink, const gw_kernels *kernels, uint64_t first, float *x,
                         size_t len)
{
    uint8_t *at = gw_classic_sink_at(sink, first);

    if (sink->scale != 1.0f) {
        kernels->classic.multiply(x, len, sink->scale);
    }
    if (sink->is_sum) {
        kernels->classic.accumulate((float *)(void *)at, x, len);
    } else {
        kernels->thc.store(at, x, sink->dtype, len);
    }
}

gw_status gw_classic_sink_make(gw_classic_sink *sink, const gw_classic_target *target, uint64_t len,
                               unsigned dtype)
{
    const uint32_t magnitude = gw_bits_from_float(target->scale) & GW_F32_ABS;

    if (magnitude != 0 && (magnitude < GW_F32_MIN || magnitude >= GW_F32_INF)) {
        return GW_ERR_ARG;
    }
    if (target->values == NULL && len > 0) {
        return GW_ERR_ARG;
    }
    sink->values = target->values;
    sink->dtype = dtype;
    sink->is_sum = 0;
    sink->scale = magnitude != 0 ? target->scale : 1.0f;
    return target->capacity >= len ? GW_OK : GW_ERR_DST;
}
