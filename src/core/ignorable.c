/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/ignorable.h"

#include "core/frame_header.h"

enum { AT_IGNORABLE = 10 };

int gw_are_ignorable_parts_valid(const uint8_t *src, uint32_t known_size, uint32_t size)
{
    const uint32_t flags = src[AT_IGNORABLE];
    const uint8_t *const extension = src + GW_FRAME_HEADER_SIZE;
    uint32_t last = 0;

    if (flags == 0) {
        return 1;
    }
    /* At most 8 parts: their numbers ascend. Both sizes are multiples of 8, so a word is there. The bytes may
     * change meanwhile: `size` is what the caller made room for, and each byte is read once. */
    for (uint32_t at = known_size; at < size;) {
        const uint32_t number = extension[at]; /* that of the flag's bit, plus 1 */
        const uint32_t part_size = GW_FRAME_UNIT_SIZE * (uint32_t)extension[at + 1];
        if (number == 0) {
            return 1;
        }
        if (number <= last || number > 8 || (flags >> (number - 1) & 1) == 0 || part_size == 0 ||
            part_size > size - at) {
            return 0;
        }
        last = number;
        at += part_size;
    }
    return 0;
}
