/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/frame_header.h"

gw_status gw_frame_size(const void *src, size_t src_size, uint64_t *frame_size)
{
    const uint8_t *const bytes = (const uint8_t *)src;

    if (frame_size == NULL) {
        return GW_ERR_ARG;
    }
    *frame_size = 0;
    if (src == NULL && src_size > 0) {
        return GW_ERR_ARG;
    }
    if (src_size < GW_FRAME_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    if (gw_load32(bytes) != GW_FRAME_MAGIC) {
        return GW_ERR_MAGIC;
    }
    const uint64_t size = gw_load64(bytes + 24);
    if (size < GW_FRAME_HEADER_SIZE) {
        return GW_ERR_HEADER;
    }
    *frame_size = size;
    return GW_OK;
}
