/*
 * Packets for workers and hosts: sizes, writing, and the complete check of bytes from the network.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_handle.h"
#include "thc/thc_packet.h"
#include "thc/thc_plain.h"

size_t gw_thc_packet_size(unsigned type, unsigned bits, unsigned lane_bits, uint32_t worker_max, uint32_t len)
{
    size_t set_size = gw_thc_packet_has_set(type) ? GW_THC_SET_SIZE(worker_max) : 0;
    uint64_t payload = (uint64_t)len * (type == GW_THC_PACKET_INDICES ? bits : lane_bits) / 8;
    uint64_t size = GW_THC_PACKET_HEADER_SIZE + set_size + payload;
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

void gw_thc_packet_write(uint8_t *dst, const gw_thc_packet_header *header)
{
    gw_thc_packet_header h = *header;

    h.magic = GW_PACKET_MAGIC;
    h.version = GW_PACKET_VERSION;
    gw_thc_header_store(dst, &h);
}

/* Rules of the one-byte fields and of worker_max, left to right. */
static gw_status check_kind(const gw_thc_packet_header *h)
{
    unsigned lane_bits = h->lane_bits;
    int is_lanes = h->type == GW_THC_PACKET_LANES || h->type == GW_THC_PACKET_RESULT;

    if (h->bits < 1 || h->bits > GW_THC_BITS_MAX || h->granularity < (1u << h->bits) - 1u) {
        return GW_ERR_HEADER;
    }
    if (is_lanes ? lane_bits != 8 && lane_bits != 16 && lane_bits != 32
                 : lane_bits != (h->type >= GW_THC_PACKET_NORMS ? 32u : 0u)) {
        return GW_ERR_HEADER;
    }
    if (h->block_log2 < GW_THC_BLOCK_LOG2_MIN || h->block_log2 > GW_THC_BLOCK_LOG2_MAX ||
        h->worker_max == 0) {
        return GW_ERR_HEADER;
    }
    return is_lanes ? gw_thc_check_sum(h->worker_max, h->granularity, lane_bits) : GW_OK;
}

/* Norms (one pattern a block) or codes of plain blocks (two). Marks are allowed: a packet does not carry the
 * policy. */
static gw_status check_patterns(const gw_thc_packet *p)
{
    uint32_t per_block = p->header.len / p->header.block_count;

    for (uint32_t b = 0; b < p->header.block_count; b++) {
        const uint8_t *at = p->payload + (size_t)b * per_block * 4;
        uint32_t patterns[2] = {gw_load32(at), gw_load32(at + 4 * (per_block - 1))};
        int is_good = per_block == 1 ? gw_thc_norm_is_good(patterns[0])
                                     : gw_thc_plain_read(patterns, 1) != GW_THC_BLOCK_INVALID;
        if (!is_good) {
            return GW_ERR_CORRUPT;
        }
    }
    return GW_OK;
}

/* Set, then patterns or lanes. */
static gw_status check_content(const gw_thc_packet *p)
{
    const gw_thc_packet_header *h = &p->header;
    uint32_t members = p->set != NULL ? gw_thc_set_members(p->set, h->worker_max) : 0;

    if (members == UINT32_MAX) {
        return GW_ERR_DUP;
    }
    if (h->type == GW_THC_PACKET_NORMS || h->type == GW_THC_PACKET_MAXIMA) {
        return check_patterns(p);
    }
    if (p->set == NULL) {
        return GW_OK;
    }
    gw_kernels kernels;
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    uint32_t lane_max = kernels.thc.lane_max(p->payload, h->len, h->lane_bits);
    return lane_max > members * h->granularity ? GW_ERR_CORRUPT : GW_OK;
}

/* A NOTICE is its header. */
static gw_status check_notice(gw_thc_packet *p, const uint8_t *src, size_t src_size)
{
    const gw_thc_packet_header *h = &p->header;

    if (h->block_count != 0 || h->len != 0) {
        return GW_ERR_HEADER;
    }
    if (h->rank >= h->worker_max) {
        return GW_ERR_DUP;
    }
    if (h->norms_hash != 0) {
        return GW_ERR_HEADER;
    }
    p->set = NULL;
    p->payload = src + GW_THC_PACKET_HEADER_SIZE;
    p->payload_size = 0;
    return src_size == GW_THC_PACKET_HEADER_SIZE ? GW_OK : GW_ERR_TRAILING;
}

gw_status gw_thc_packet_parse(const uint8_t *src, size_t src_size, gw_thc_packet *packet)
{
    gw_thc_packet p;

    if (packet == NULL || (src == NULL && src_size > 0)) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_packet_open(&p, src, src_size);
    if (status == GW_OK) {
        status = check_kind(&p.header);
    }
    if (status == GW_OK) {
        status = p.header.type == GW_THC_PACKET_NOTICE ? check_notice(&p, src, src_size)
                                                       : gw_thc_packet_measure(&p, src, src_size);
    }
    if (status == GW_OK) {
        status = check_content(&p);
    }
    if (status == GW_OK) {
        *packet = p;
    }
    return status;
}
