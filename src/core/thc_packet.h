/*
 * Field offsets of packets (docs/format-thc.md section 4).
 */
#ifndef GW_THC_PACKET_H
#define GW_THC_PACKET_H

#include "gradwire/thc.h"

#define GW_PACKET_MAGIC 0x1a705767u /* "gWp", 0x1a */
#define GW_PACKET_VERSION 0

enum {
    GW_PACKET_AT_MAGIC = 0,
    GW_PACKET_AT_VERSION = 4,
    GW_PACKET_AT_TYPE = 5,
    GW_PACKET_AT_BITS = 6,
    GW_PACKET_AT_GRANULARITY = 7,
    GW_PACKET_AT_LANE_BITS = 8,
    GW_PACKET_AT_BLOCK_LOG2 = 9,
    GW_PACKET_AT_WORKER_MAX = 10,
    GW_PACKET_AT_JOB = 12,
    GW_PACKET_AT_ROUND = 16,
    GW_PACKET_AT_FIRST_BLOCK = 20,
    GW_PACKET_AT_BLOCK_COUNT = 24,
    GW_PACKET_AT_RANK = 26,
    GW_PACKET_AT_LEN = 28,
    GW_PACKET_AT_CONFIG_HASH = 32,
    GW_PACKET_AT_NORMS_HASH = 40
};

/* Whether packets of a type carry a contributor set. */
static inline int gw_thc_packet_has_set(unsigned type)
{
    return type == GW_THC_PACKET_LANES || type == GW_THC_PACKET_RESULT || type == GW_THC_PACKET_MAXIMA;
}

/* Header and sizes of a packet as gw_thc_packet_parse() checks them, without looking at set or payload: for callers that
 * hand those to an aggregator, which checks them itself. */
gw_status gw_thc_packet_read(const uint8_t *src, size_t src_size, gw_thc_packet *packet);

#endif
