/*
 * The packet checks that aggregators need. Part of the firmware profile; thc_packet_parse.c has the rest.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_packet.h"

gw_status gw_thc_packet_open(gw_thc_packet *p, const uint8_t *src, size_t src_size)
{
    if (src_size < GW_THC_PACKET_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    gw_thc_header_load(&p->header, src);
    if (p->header.magic != GW_PACKET_MAGIC) {
        return GW_ERR_MAGIC;
    }
    if (p->header.version != GW_PACKET_VERSION) {
        return GW_ERR_VERSION;
    }
    if (p->header.type < GW_THC_PACKET_INDICES || p->header.type > GW_THC_PACKET_MAXIMA) {
        return GW_ERR_UNSUPPORTED;
    }
    return GW_OK;
}

/* All blocks but the last are full; the last is a power of two of at least 64 lanes. Patterns: one or two a
 * block. */
static int extent_is_good(const gw_thc_packet_header *h)
{
    uint32_t block_count = h->block_count;

    if (block_count == 0 || block_count - 1 > UINT32_MAX - h->block_first) {
        return 0;
    }
    if (h->type >= GW_THC_PACKET_NORMS) {
        return h->len == block_count || h->len == 2 * block_count;
    }
    uint32_t full = (block_count - 1) << h->block_log2; /* < 2^16 * 2^13 */
    uint32_t last = h->len - full;
    return h->len > full && last <= (uint32_t)1 << h->block_log2 && last >= 64 && (last & (last - 1)) == 0;
}

gw_status gw_thc_packet_measure(gw_thc_packet *p, const uint8_t *src, size_t src_size)
{
    const gw_thc_packet_header *h = &p->header;
    int has_set = gw_thc_packet_has_set(h->type);

    if (!extent_is_good(h)) {
        return GW_ERR_HEADER;
    }
    /* rank is that of the sender or addressee where that is a worker, and 0 elsewhere. */
    if (has_set ? h->rank != 0 : h->rank >= h->worker_max) {
        return has_set ? GW_ERR_HEADER : GW_ERR_DUP;
    }
    if (h->type >= GW_THC_PACKET_NOTICE && h->norms_hash != 0) {
        return GW_ERR_HEADER;
    }

    /* len <= 2^29 lanes of at most 4 bytes: below 2^31. len / 8 * bits is exact: len is a multiple of 8
     * unless bits is 32. */
    uint32_t lane_bits = h->type == GW_THC_PACKET_INDICES ? h->bits : h->lane_bits;
    p->payload_size = lane_bits == 32 ? (size_t)h->len * 4 : (size_t)(h->len / 8) * lane_bits;
    p->set = has_set ? src + GW_THC_PACKET_HEADER_SIZE : NULL;
    size_t start = GW_THC_PACKET_HEADER_SIZE + (has_set ? GW_THC_SET_SIZE(h->worker_max) : 0);
    p->payload = src + start;
    if (src_size - start != p->payload_size || src_size < start) {
        return src_size < start + p->payload_size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    return GW_OK;
}
