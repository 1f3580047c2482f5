/*
 * Notices: messages that say that a step failed.
 *
 *   0   magic
 *   4   status
 *   8   rank
 *   12  piece
 *   16  bad_chunk
 *   24  difference
 *   28  CRC32C of the bytes before
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "gradwire/collective.h"

/* "gWn", 0x1a: other than that of a frame, "gWf", 0x1a. */
#define NOTICE_MAGIC 0x1a6e5767u

enum {
    DIFFERENCES = GW_COLLECTIVE_BASE | GW_COLLECTIVE_SCALE | GW_COLLECTIVE_MAP_BYTES,
    STATUS_MAX = 255 /* statuses are one byte in the status word */
};

gw_status gw_collective_notice_write(const gw_collective_failure *failure, gw_buffer *dst)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    if (failure == NULL || dst->data == NULL || (uint32_t)failure->status - 1u >= STATUS_MAX ||
        failure->difference > DIFFERENCES) {
        return GW_ERR_ARG;
    }
    if (dst->capacity < GW_COLLECTIVE_NOTICE_SIZE) {
        return GW_ERR_DST;
    }
    uint8_t *bytes = (uint8_t *)dst->data;
    gw_store32(bytes, NOTICE_MAGIC);
    gw_store32(bytes + 4, (uint32_t)failure->status);
    gw_store32(bytes + 8, failure->rank);
    gw_store32(bytes + 12, failure->piece);
    gw_store64(bytes + 16, failure->bad_chunk);
    gw_store32(bytes + 24, failure->difference);
    gw_store32(bytes + 28, gw_crc32c(0, bytes, 28));
    dst->size = GW_COLLECTIVE_NOTICE_SIZE;
    return GW_OK;
}

static gw_status read_notice(const void *src, size_t src_size, gw_collective_failure *failure)
{
    uint8_t bytes[GW_COLLECTIVE_NOTICE_SIZE]; /* a copy: the message may change */
    if (src_size != sizeof bytes) {
        return GW_ERR_CORRUPT;
    }
    GW_MEMCPY(bytes, src, sizeof bytes);
    const uint32_t status = gw_load32(bytes + 4), difference = gw_load32(bytes + 24);
    if (gw_load32(bytes) != NOTICE_MAGIC || gw_load32(bytes + 28) != gw_crc32c(0, bytes, 28) ||
        status - 1u >= STATUS_MAX || difference > DIFFERENCES) {
        return GW_ERR_CORRUPT;
    }
    failure->status = (gw_status)status;
    failure->rank = gw_load32(bytes + 8);
    failure->piece = gw_load32(bytes + 12);
    failure->bad_chunk = gw_load64(bytes + 16);
    failure->difference = difference;
    return GW_OK;
}

int gw_collective_notice_read(const void *src, size_t src_size, gw_collective_failure *failure)
{
    if (failure == NULL) {
        return 0;
    }
    GW_MEMSET(failure, 0, sizeof *failure);
    failure->bad_chunk = UINT64_MAX;
    if (src == NULL || src_size < 4 || gw_load32(src) != NOTICE_MAGIC) {
        return 0;
    }
    if (read_notice(src, src_size, failure) != GW_OK) {
        failure->status = GW_ERR_CORRUPT;
        failure->rank = UINT32_MAX;
        failure->piece = UINT32_MAX;
    }
    return 1;
}
