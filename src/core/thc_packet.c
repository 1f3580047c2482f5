/*
 * Packets: sizes, header, parser. Part of the firmware profile.
 */
#include "core/thc_packet.h"

#include "core/bytes.h"
#include "core/thc_context.h"


static size_t payload_size(unsigned type, unsigned bits, unsigned lane_bits, uint32_t len)
{
    /* len is at most 2^29 here (a multiple of 64 lanes, checked against size_t by the caller through 64 bits). */
    uint64_t bit_count = (uint64_t)len * (type == GW_THC_PACKET_INDICES ? bits : lane_bits);
    uint64_t size = bit_count / 8;
    return size > SIZE_MAX / 2 ? SIZE_MAX / 2 : (size_t)size;
}

size_t gw_thc_packet_size(unsigned type, unsigned bits, unsigned lane_bits, uint32_t worker_max, uint32_t len)
{
    size_t set_size = gw_thc_packet_has_set(type) ? GW_THC_SET_SIZE(worker_max) : 0;
    return GW_THC_PACKET_HEADER_SIZE + set_size + payload_size(type, bits, lane_bits, len);
}

void gw_thc_packet_write_header(uint8_t *dst, const gw_thc_packet *packet)
{
    gw_store32(dst + GW_PACKET_AT_MAGIC, GW_PACKET_MAGIC);
    dst[GW_PACKET_AT_VERSION] = GW_PACKET_VERSION;
    dst[GW_PACKET_AT_TYPE] = packet->type;
    dst[GW_PACKET_AT_BITS] = packet->bits;
    dst[GW_PACKET_AT_GRANULARITY] = packet->granularity;
    dst[GW_PACKET_AT_LANE_BITS] = packet->lane_bits;
    dst[GW_PACKET_AT_BLOCK_LOG2] = packet->block_log2;
    gw_store16(dst + GW_PACKET_AT_WORKER_MAX, (uint16_t)packet->worker_max);
    gw_store32(dst + GW_PACKET_AT_JOB, packet->job);
    gw_store32(dst + GW_PACKET_AT_ROUND, packet->round);
    gw_store32(dst + GW_PACKET_AT_FIRST_BLOCK, packet->first_block);
    gw_store16(dst + GW_PACKET_AT_BLOCK_COUNT, (uint16_t)packet->block_count);
    gw_store16(dst + GW_PACKET_AT_RANK, (uint16_t)packet->rank);
    gw_store32(dst + GW_PACKET_AT_LEN, packet->len);
    gw_store64(dst + GW_PACKET_AT_CONFIG_HASH, packet->config_hash);
    gw_store64(dst + GW_PACKET_AT_NORMS_HASH, packet->norms_hash);
}

/* Rules of the one-byte fields and of worker_max. */
static gw_status check_kind(const gw_thc_packet *p)
{
    unsigned lane_bits = p->lane_bits;
    int is_lanes = p->type == GW_THC_PACKET_LANES || p->type == GW_THC_PACKET_RESULT;
    int is_norms = p->type == GW_THC_PACKET_NORMS || p->type == GW_THC_PACKET_MAXIMA;

    if (p->bits < 1 || p->bits > GW_THC_BITS_MAX || p->granularity < (1u << p->bits) - 1u)
        return GW_ERR_HEADER;
    if (is_lanes ? lane_bits != 8 && lane_bits != 16 && lane_bits != 32 : lane_bits != (is_norms ? 32u : 0u))
        return GW_ERR_HEADER;
    if (p->block_log2 < GW_THC_BLOCK_LOG2_MIN || p->block_log2 > GW_THC_BLOCK_LOG2_MAX || p->worker_max == 0)
        return GW_ERR_HEADER;
    return is_lanes ? gw_thc_check_sum(p->worker_max, p->granularity, lane_bits) : GW_OK;
}

/* Blocks and lanes: all blocks but the last are full, and the last is a power of two of at least 64 lanes. */
static gw_status check_extent(const gw_thc_packet *p)
{
    uint32_t block_len = (uint32_t)1 << p->block_log2;

    if (p->type == GW_THC_PACKET_NOTICE)
        return p->block_count == 0 && p->len == 0 ? GW_OK : GW_ERR_HEADER;
    if (p->block_count == 0 || p->block_count - 1 > UINT32_MAX - p->first_block)
        return GW_ERR_HEADER;
    if (p->type == GW_THC_PACKET_NORMS || p->type == GW_THC_PACKET_MAXIMA)
        return p->len == p->block_count || p->len == 2 * p->block_count ? GW_OK : GW_ERR_HEADER;
    uint32_t full = (p->block_count - 1) << p->block_log2; /* < 2^16 * 2^13 */
    uint32_t last = p->len - full;
    if (p->len <= full || last > block_len || last < 64 || (last & (last - 1)) != 0)
        return GW_ERR_HEADER;
    return GW_OK;
}

/* rank names a worker where a worker speaks or is spoken to, and is 0 elsewhere. */
static gw_status check_rank(const gw_thc_packet *p)
{
    if (gw_thc_packet_has_set(p->type))
        return p->rank == 0 ? GW_OK : GW_ERR_HEADER;
    return p->rank < p->worker_max ? GW_OK : GW_ERR_DUP;
}

static gw_status check_hashes(const gw_thc_packet *p)
{
    int has_norms = p->type == GW_THC_PACKET_INDICES || p->type == GW_THC_PACKET_LANES || p->type == GW_THC_PACKET_RESULT;
    return has_norms || p->norms_hash == 0 ? GW_OK : GW_ERR_HEADER;
}

/* Set, then payload. */
static gw_status check_content(const gw_thc_packet *p)
{
    uint32_t members = 1;

    if (p->set != NULL) {
        members = gw_thc_set_members(p->set, p->worker_max);
        if (members == UINT32_MAX)
            return GW_ERR_DUP;
    }
    if (p->type == GW_THC_PACKET_LANES || p->type == GW_THC_PACKET_RESULT) {
        if (gw_thc_lane_max_scalar(p->payload, p->len, p->lane_bits) > members * p->granularity)
            return GW_ERR_CORRUPT;
    }
    return GW_OK;
}

gw_status gw_thc_packet_read(const uint8_t *src, size_t src_size, gw_thc_packet *packet)
{
    gw_thc_packet p;

    if (src_size < GW_THC_PACKET_HEADER_SIZE)
        return GW_ERR_SHORT;
    if (gw_load32(src + GW_PACKET_AT_MAGIC) != GW_PACKET_MAGIC)
        return GW_ERR_MAGIC;
    if (src[GW_PACKET_AT_VERSION] != GW_PACKET_VERSION)
        return GW_ERR_VERSION;
    p.type = src[GW_PACKET_AT_TYPE];
    if (p.type < GW_THC_PACKET_INDICES || p.type > GW_THC_PACKET_MAXIMA)
        return GW_ERR_UNSUPPORTED;
    p.bits = src[GW_PACKET_AT_BITS];
    p.granularity = src[GW_PACKET_AT_GRANULARITY];
    p.lane_bits = src[GW_PACKET_AT_LANE_BITS];
    p.block_log2 = src[GW_PACKET_AT_BLOCK_LOG2];
    p.worker_max = gw_load16(src + GW_PACKET_AT_WORKER_MAX);
    p.job = gw_load32(src + GW_PACKET_AT_JOB);
    p.round = gw_load32(src + GW_PACKET_AT_ROUND);
    p.first_block = gw_load32(src + GW_PACKET_AT_FIRST_BLOCK);
    p.block_count = gw_load16(src + GW_PACKET_AT_BLOCK_COUNT);
    p.rank = gw_load16(src + GW_PACKET_AT_RANK);
    p.len = gw_load32(src + GW_PACKET_AT_LEN);
    p.config_hash = gw_load64(src + GW_PACKET_AT_CONFIG_HASH);
    p.norms_hash = gw_load64(src + GW_PACKET_AT_NORMS_HASH);

    gw_status status = check_kind(&p);
    if (status == GW_OK)
        status = check_extent(&p);
    if (status == GW_OK)
        status = check_rank(&p);
    if (status == GW_OK)
        status = check_hashes(&p);
    if (status != GW_OK)
        return status;

    size_t size = gw_thc_packet_size(p.type, p.bits, p.lane_bits, p.worker_max, p.len);
    if (src_size != size)
        return src_size < size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    p.payload_size = payload_size(p.type, p.bits, p.lane_bits, p.len);
    p.payload = src + (size - p.payload_size);
    p.set = gw_thc_packet_has_set(p.type) ? src + GW_THC_PACKET_HEADER_SIZE : NULL;
    *packet = p;
    return GW_OK;
}

gw_status gw_thc_packet_parse(const uint8_t *src, size_t src_size, gw_thc_packet *packet)
{
    gw_thc_packet p;

    if (packet == NULL || (src == NULL && src_size > 0))
        return GW_ERR_ARG;
    gw_status status = gw_thc_packet_read(src, src_size, &p);
    if (status == GW_OK)
        status = check_content(&p);
    if (status == GW_OK)
        *packet = p;
    return status;
}
