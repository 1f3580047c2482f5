/*
 * Stage aggregate: integer adds. The firmware profile calls these kernels directly.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "scalar/kernels_scalar.h"

#define GW_PACK_GROUP 64u

/* Index j of a packed group of 64: `width` low bits from the first section, and for 3 bits the highest from
 * the second. */
static inline uint32_t group_index(const uint8_t *group, unsigned j, unsigned bits)
{
    unsigned width = bits == 3 ? 2 : bits;
    unsigned stride = 8 * width;
    uint32_t index = (uint32_t)group[j % stride] >> (j / stride * width) & ((1u << width) - 1u);

    if (bits == 3) {
        index |= ((uint32_t)group[16 + j % 8] >> (j / 8) & 1u) << 2;
    }
    return index;
}

/*
 * Lanes byte by byte where code size matters, else as one number.
 */
static inline uint32_t load_lane(const uint8_t *lane, unsigned lane_size)
{
#if defined(GW_FIRMWARE)
    uint32_t value = 0;
    while (lane_size > 0) {
        value = value << 8 | lane[--lane_size];
    }
    return value;
#else
    return lane_size == 1 ? lane[0] : lane_size == 2 ? gw_load16(lane) : gw_load32(lane);
#endif
}

static inline void add_to_lane(uint8_t *lane, unsigned lane_size, uint32_t value)
{
#if defined(GW_FIRMWARE)
    for (unsigned i = 0; i < lane_size; i++) {
        value += lane[i]; /* the carry stays in the upper bits */
        lane[i] = (uint8_t)value;
        value >>= 8;
    }
#else
    value += load_lane(lane, lane_size);
    if (lane_size == 1) {
        lane[0] = (uint8_t)value;
    } else if (lane_size == 2) {
        gw_store16(lane, (uint16_t)value);
    } else {
        gw_store32(lane, value);
    }
#endif
}

static inline void add_indices_as(uint8_t *lanes, const uint8_t *indices, size_t len, const uint8_t *table,
                                  unsigned lane_bits, unsigned bits)
{
    const unsigned lane_size = lane_bits / 8;
    for (size_t i = 0; i < len; i++) {
        const uint8_t *group = indices + i / GW_PACK_GROUP * 8 * bits;
        add_to_lane(lanes + i * lane_size, lane_size,
                    table[group_index(group, (unsigned)(i % GW_PACK_GROUP), bits)]);
    }
}

#if defined(GW_FIRMWARE)
/* Added as one long number: no lane overflows, so no carry leaves a lane. */
static inline void add_lanes_as(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    const unsigned lane_size = lane_bits / 8;
    uint32_t carry = 0;

    for (size_t i = 0; i < len * lane_size; i++) {
        carry += (uint32_t)lanes[i] + src[i];
        lanes[i] = (uint8_t)carry;
        carry >>= 8;
    }
}
#else
static inline void add_lanes_as(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    const unsigned lane_size = lane_bits / 8;
    for (size_t i = 0; i < len; i++) {
        add_to_lane(lanes + i * lane_size, lane_size, load_lane(src + i * lane_size, lane_size));
    }
}
#endif

static inline uint32_t lane_max_as(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    const unsigned lane_size = lane_bits / 8;
    uint32_t largest = 0;

    for (size_t i = 0; i < len; i++) {
        uint32_t lane = load_lane(lanes + i * lane_size, lane_size);
        largest = lane > largest ? lane : largest;
    }
    return largest;
}

/* Copies for each width of lanes and indices (GW_BY_LANE_BITS). */
static inline void add_indices_width(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                                     const uint8_t *table, unsigned lane_bits)
{
    GW_BY_INDEX_BITS(add_indices_as, bits, lanes, indices, len, table, lane_bits);
}

void gw_thc_add_indices_scalar(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                               const uint8_t *table, unsigned lane_bits)
{
    GW_BY_LANE_BITS(add_indices_width, lane_bits, lanes, indices, len, bits, table);
}

void gw_thc_add_lanes_scalar(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    GW_BY_LANE_BITS(add_lanes_as, lane_bits, lanes, src, len);
}

uint32_t gw_thc_lane_max_scalar(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    return GW_BY_LANE_BITS(lane_max_as, lane_bits, lanes, len);
}
