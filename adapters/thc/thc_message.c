/*
 * Bytes of the messages of thc_message.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_message.h"

#include <string.h>

size_t gw_thc_message_size(unsigned type)
{
    if (type < GW_THC_MESSAGE_JOIN || type > GW_THC_MESSAGE_LEAVE) {
        return 0;
    }
    return type == GW_THC_MESSAGE_JOIN ? GW_THC_JOIN_SIZE : GW_THC_MESSAGE_SIZE;
}

void gw_thc_message_write(uint8_t *dst, const gw_thc_message *message)
{
    memset(dst, 0, gw_thc_message_size(message->type));
    gw_thc_put32(dst, GW_THC_MESSAGE_MAGIC);
    dst[5] = message->type;
    gw_thc_put16(dst + 6, message->reason);
    gw_thc_put32(dst + 8, message->job);
    gw_thc_put16(dst + 12, message->rank);
    gw_thc_put16(dst + 14, message->worker_max);
    gw_thc_put64(dst + 16, message->options_hash);
    gw_thc_put64(dst + 24, message->cookie);
    gw_thc_put64(dst + 32, message->epoch);
    gw_thc_put32(dst + 40, message->round);
    gw_thc_put32(dst + 44, message->detail);
    if (message->type == GW_THC_MESSAGE_JOIN) {
        dst[48] = message->table.bits;
        dst[49] = message->table.granularity;
        dst[50] = message->lane_bits;
        dst[51] = message->block_log2;
        dst[52] = message->patterns_per_block;
        dst[53] = message->has_partial;
        memcpy(dst + 56, message->table.value, 16);
        gw_thc_put64(dst + 72, message->len_max);
        gw_thc_put32(dst + 80, message->partial_round);
    }
}

int gw_thc_message_is(const uint8_t *src, size_t src_size)
{
    return src_size >= 4 && gw_thc_get32(src) == GW_THC_MESSAGE_MAGIC;
}

/* The part of a JOIN behind what all messages have. The options are checked where a server is made of them.
 */
static gw_status join_parse(const uint8_t *src, gw_thc_message *m)
{
    m->table.bits = src[48];
    m->table.granularity = src[49];
    m->lane_bits = src[50];
    m->block_log2 = src[51];
    m->patterns_per_block = src[52];
    m->has_partial = src[53];
    memcpy(m->table.value, src + 56, 16);
    m->len_max = gw_thc_get64(src + 72);
    m->partial_round = gw_thc_get32(src + 80);
    for (unsigned i = 84; i < GW_THC_JOIN_SIZE; i++) {
        if (src[i] != 0) {
            return GW_ERR_HEADER;
        }
    }
    if (m->patterns_per_block < 1 || m->patterns_per_block > 2 || m->has_partial > 1 || src[54] != 0 ||
        src[55] != 0 || m->len_max == 0) {
        return GW_ERR_HEADER;
    }
    return GW_OK;
}

gw_status gw_thc_message_parse(const uint8_t *src, size_t src_size, gw_thc_message *message)
{
    gw_thc_message m;

    memset(&m, 0, sizeof m);
    if (src_size < GW_THC_MESSAGE_SIZE) {
        return GW_ERR_SHORT;
    }
    if (!gw_thc_message_is(src, src_size)) {
        return GW_ERR_MAGIC;
    }
    if (src[4] != 0) {
        return GW_ERR_VERSION;
    }
    const size_t size = gw_thc_message_size(src[5]);
    if (size == 0) {
        return GW_ERR_UNSUPPORTED;
    }
    if (src_size != size) {
        return src_size < size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    m.type = src[5];
    m.reason = gw_thc_get16(src + 6);
    m.job = gw_thc_get32(src + 8);
    m.rank = gw_thc_get16(src + 12);
    m.worker_max = gw_thc_get16(src + 14);
    m.options_hash = gw_thc_get64(src + 16);
    m.cookie = gw_thc_get64(src + 24);
    m.epoch = gw_thc_get64(src + 32);
    m.round = gw_thc_get32(src + 40);
    m.detail = gw_thc_get32(src + 44);
    if (m.worker_max == 0 ||
        (m.reason != 0 && m.type != GW_THC_MESSAGE_REFUSED && m.type != GW_THC_MESSAGE_WELCOME)) {
        return GW_ERR_HEADER;
    }
    if (m.rank >= m.worker_max) {
        return GW_ERR_DUP;
    }
    if (m.type == GW_THC_MESSAGE_JOIN && join_parse(src, &m) != GW_OK) {
        return GW_ERR_HEADER;
    }
    *message = m;
    return GW_OK;
}

const char *gw_thc_refusal_text(unsigned reason)
{
    static const char *const texts[GW_THC_REFUSAL_LAST + 1] = {
        "unknown reason",
        "options that no server can be made of",
        "other options than another worker of the job",
        "its rank has joined from another address",
        "too many jobs",
        "too much memory",
        "too many workers",
        "the server was started anew after a result that is not of all workers, which the others cannot get",
        "its round is too far from that of other workers",
    };
    return texts[reason <= GW_THC_REFUSAL_LAST ? reason : 0];
}
