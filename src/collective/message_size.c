/*
 * Sizes of messages: the bound, and an estimate from the tables of docs/results/gcomp-dial.md.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/layout.h"
#include "gcomp/gcomp_codec.h"

size_t gw_collective_message_bound(const gw_collective_layout *layout, const gw_gcomp *codec)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (inside == NULL || !gw_layout_is_valid(layout) ||
        inside->options.chunk_log2 != layout->shape.chunk_log2) {
        return 0;
    }
    const size_t bound = gw_gcomp_frame_bound(codec, gw_layout_piece_max(layout));
    return bound != 0 && bound < GW_COLLECTIVE_NOTICE_SIZE ? GW_COLLECTIVE_NOTICE_SIZE : bound;
}

/* A point of a curve: 1/256 bits a value, the mean over the four snapshots, preset small. */
typedef struct rate_point {
    uint8_t tolerance_bits;
    uint16_t cost;
} rate_point;

enum { COST_ONE = 256, DEAD_ZONE_POINTS = 8, POINTS = 6 };

static const rate_point dead_zone[DEAD_ZONE_POINTS] = {{8, 138},   {10, 253},  {12, 451},  {14, 728},
                                                       {16, 1052}, {18, 1394}, {20, 1746}, {23, 2286}};
static const rate_point derived[POINTS] = {{8, 886},   {10, 899},  {12, 942},
                                           {14, 1038}, {16, 1214}, {23, 2296}};
static const rate_point explicit_quanta[POINTS] = {{8, 1795},  {10, 1800}, {12, 1815},
                                                   {14, 1864}, {16, 1984}, {23, 3015}};

/* Sign and exponent of a value: what is left where nearly all of the mantissa is cut. */
enum { COST_EXPONENT = 886 };

/* Straight lines between the points; beyond them, their ends. */
static uint32_t cost_at(const rate_point *points, uint32_t count, uint32_t tolerance_bits)
{
    uint32_t i = 0;
    while (i + 1 < count && points[i + 1].tolerance_bits < tolerance_bits) {
        i++;
    }
    if (tolerance_bits <= points[i].tolerance_bits || i + 1 == count) {
        return points[i].cost;
    }
    const uint32_t width = (uint32_t)points[i + 1].tolerance_bits - points[i].tolerance_bits;
    const uint32_t rise = (uint32_t)points[i + 1].cost - points[i].cost;
    return points[i].cost + rise * (tolerance_bits - points[i].tolerance_bits) / width;
}

/*
 * Carried frames with a target: at the error of int4 (NMSE about 2^-5.6) 2.43 bits, at that of int8 (about
 * 2^-13.8) 5.41: 93/256 of a bit for each octave. Below half a bit the line does not hold.
 */
static uint32_t cost_of_target(float nmse)
{
    const int32_t octaves = 127 - (int32_t)(gw_bits_from_float(nmse) >> 23);
    const int32_t cost = 622 + 93 * octaves - 93 * 56 / 10;
    return cost < COST_ONE / 2 ? COST_ONE / 2 : (uint32_t)cost;
}

static uint32_t cost_of(const gw_gcomp_options *o)
{
    const uint32_t mantissa = (uint32_t)COST_ONE * gw_traits_of((uint32_t)o->dtype)->mantissa_bits;
    uint32_t cost;
    if (o->quantum.kind == GW_GCOMP_QUANTUM_NMSE) {
        cost = cost_of_target(o->quantum.nmse);
    } else if (o->quantum.drop != 0) {
        cost = COST_EXPONENT + mantissa - COST_ONE * o->quantum.drop;
    } else if (o->quantum_mode == GW_GCOMP_EXPLICIT) {
        cost = cost_at(explicit_quanta, POINTS, o->tolerance_bits);
    } else if (o->dead_zone) {
        cost = cost_at(dead_zone, DEAD_ZONE_POINTS, o->tolerance_bits);
    } else {
        cost = cost_at(derived, POINTS, o->tolerance_bits);
    }
    return gw_min_u32(cost, COST_EXPONENT + mantissa);
}

uint64_t gw_collective_message_estimate(const gw_gcomp *codec, uint64_t len)
{
    const gw_codec *inside = gw_codec_of(codec);
    const size_t bound = gw_gcomp_frame_bound(codec, len);
    if (inside == NULL || bound == 0 || len == 0) {
        return 0;
    }
    gw_gcomp_frame_info info = {.len = len, .chunk_log2 = inside->options.chunk_log2};
    info.quantum_mode = inside->options.quantum_mode;
    info.checksum = inside->options.checksum;
    info.installed = inside->encode_with >= 0;
    gw_frame_place(&info, gw_frame_parts_size(&info));
    /* At most 2^48 * 2^13. */
    return gw_min_u64(bound, info.payload_offset + len * cost_of(&inside->options) / (8 * COST_ONE));
}
