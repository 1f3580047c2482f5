/*
 * Packets inside the library (docs/format-thc.md section 4). gw_thc_packet_header has the layout of the wire,
 * so a little-endian machine copies it as a whole; nothing is read twice.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_PACKET_H
#define GW_THC_PACKET_H

#include "core/bytes.h"
#include "gradwire/thc.h"

#define GW_PACKET_MAGIC   0x1a705767u /* "gWp", 0x1a */
#define GW_PACKET_VERSION 0

_Static_assert(sizeof(gw_thc_packet_header) == GW_THC_PACKET_HEADER_SIZE, "the header has no padding");
_Static_assert(offsetof(gw_thc_packet_header, job) == 12 && offsetof(gw_thc_packet_header, rank) == 26 &&
                   offsetof(gw_thc_packet_header, options_hash) == 32,
               "offsets of docs/format-thc.md");

/* Little-endian bytes to fields. */
static inline void gw_thc_header_load(gw_thc_packet_header *h, const uint8_t *src)
{
    GW_MEMCPY(h, src, sizeof *h);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    h->magic = gw_load32(src);
    h->worker_max = gw_load16(src + 10);
    h->job = gw_load32(src + 12);
    h->round = gw_load32(src + 16);
    h->block_first = gw_load32(src + 20);
    h->block_count = gw_load16(src + 24);
    h->rank = gw_load16(src + 26);
    h->len = gw_load32(src + 28);
    h->options_hash = gw_load64(src + 32);
    h->norms_hash = gw_load64(src + 40);
#endif
}

static inline void gw_thc_header_store(uint8_t *dst, const gw_thc_packet_header *h)
{
    GW_MEMCPY(dst, h, sizeof *h);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    gw_store32(dst, h->magic);
    gw_store16(dst + 10, h->worker_max);
    gw_store32(dst + 12, h->job);
    gw_store32(dst + 16, h->round);
    gw_store32(dst + 20, h->block_first);
    gw_store16(dst + 24, h->block_count);
    gw_store16(dst + 26, h->rank);
    gw_store32(dst + 28, h->len);
    gw_store64(dst + 32, h->options_hash);
    gw_store64(dst + 40, h->norms_hash);
#endif
}

/* Whether packets of a type carry a contributor set. */
static inline int gw_thc_packet_has_set(unsigned type)
{
    return type == GW_THC_PACKET_LANES || type == GW_THC_PACKET_RESULT || type == GW_THC_PACKET_MAXIMA;
}

/* Whether a pattern is a possible norm: 0, a normal positive number, or the mark. Integers only. */
static inline int gw_thc_norm_is_good(uint32_t pattern)
{
    return pattern == 0 || pattern - 0x00800000u < 0x7f000000u || pattern == GW_THC_NORM_NONFINITE;
}

/* Size, magic, version, type: GW_ERR_SHORT, _MAGIC, _VERSION, _UNSUPPORTED. */
gw_status gw_thc_packet_open(gw_thc_packet *p, const uint8_t *src, size_t src_size);

/* Checks blocks, lanes, rank, hash and size of a packet that is not a NOTICE and whose one-byte fields and
 * worker_max were checked; sets the pointers. GW_ERR_HEADER, _DUP, _SHORT, _TRAILING. */
gw_status gw_thc_packet_measure(gw_thc_packet *p, const uint8_t *src, size_t src_size);

#endif
