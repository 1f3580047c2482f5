/*
 * Any bytes to the THC frame decoder, checker and adder, and to the packet parser. A frame with a checksum
 * gets a right one, so that what lies behind it is reached.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/thc.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 20000 };

static float workspace[GW_THC_WORKSPACE_SIZE_MAX / sizeof(float)];

static void seal(uint8_t *frame, size_t size)
{
    if (size >= 100 && (frame[8] & GW_THC_FLAG_CHECKSUM) != 0) {
        uint32_t crc = gw_crc32c(0, frame, size - 4);
        for (unsigned i = 0; i < 4; i++) {
            frame[size - 4 + i] = (uint8_t)(crc >> (8 * i));
        }
    }
}

static int is_zero(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (p[i] != 0) {
            return 0;
        }
    }
    return 1;
}

static void check_frame(const uint8_t *frame, size_t size, gw_thc_mode mode)
{
    gw_thc_frame_info info;
    gw_thc thc;
    uint64_t bad = UINT64_MAX, bad2 = UINT64_MAX, missing = 0;
    size_t len = 1;
    gw_status checked = gw_thc_frame_check(frame, size, COUNT_MAX, &info, &bad, GW_BACKEND_ALL);
    size_t capacity = COUNT_MAX * sizeof(float);
    uint8_t *out = gw_fuzz_buffer(GW_FUZZ_DST, capacity, 0x5a);
    gw_status decoded = gw_thc_frame_decode(frame, size, COUNT_MAX, mode, out, capacity, &len, &thc,
                                            workspace, sizeof workspace, &missing, &bad2, GW_BACKEND_ALL);

    FUZZ_CHECK(checked == decoded);
    if (decoded == GW_OK) {
        FUZZ_CHECK(len == info.count && missing <= info.block_count);
    } else {
        FUZZ_CHECK(len == 0);
    }
    if (decoded == GW_ERR_CORRUPT || decoded == GW_ERR_DUP) {
        FUZZ_CHECK(bad == bad2);
    }
    if ((decoded == GW_ERR_CORRUPT || decoded == GW_ERR_DUP) && bad != UINT64_MAX) {
        size_t element = gw_dtype_size((gw_dtype)info.config.dtype);
        size_t start = (size_t)bad << info.config.block_log2;
        size_t end = start + ((size_t)1 << info.config.block_log2);
        end = end > info.count ? (size_t)info.count : end;
        FUZZ_CHECK(is_zero(out + start * element, (end - start) * element));
    }
    if (decoded != GW_OK || gw_thc_init(&thc, &info.config, GW_BACKEND_ALL) != GW_OK) {
        return;
    }
    /* A sum of one, and again: refused, unchanged. */
    size_t made;
    uint32_t flags = info.flags & GW_THC_FLAG_BLOCK_SETS;
    size_t bound = gw_thc_frame_sum_bound(&thc, info.count, flags);
    uint8_t *sum = gw_fuzz_buffer(GW_FUZZ_SUM, bound, 0);
    FUZZ_CHECK(gw_thc_frame_sum_init(frame, size, flags, sum, bound, &made, GW_BACKEND_ALL) == GW_OK &&
               made == bound);
    FUZZ_CHECK(gw_thc_frame_sum_add(sum, made, frame, size, &bad, GW_BACKEND_ALL) == GW_OK);
    uint8_t *copy = malloc(made);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, sum, made);
    gw_status again = gw_thc_frame_sum_add(sum, made, frame, size, &bad, GW_BACKEND_ALL);
    FUZZ_CHECK(again == GW_ERR_DUP || (again == GW_OK && missing == info.block_count));
    FUZZ_CHECK(memcmp(copy, sum, made) == 0);
    FUZZ_CHECK(gw_thc_frame_check(sum, made, COUNT_MAX, &info, NULL, GW_BACKEND_ALL) == GW_OK);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    uint8_t choice = gw_fuzz_u8(&reader);

    gw_fuzz_place_at_end(choice & 1);
    uint8_t *frame = gw_fuzz_buffer(GW_FUZZ_FRAME, reader.size, 0);
    if (reader.size > 0) {
        memcpy(frame, reader.data, reader.size);
    }
    if ((choice & 2) != 0) {
        seal(frame, reader.size);
    }
    check_frame(frame, reader.size, (choice & 4) != 0 ? GW_THC_SUM : GW_THC_MEAN);

    gw_thc_packet p;
    if (gw_thc_packet_parse(frame, reader.size, &p) == GW_OK) {
        FUZZ_CHECK(p.payload + p.payload_size == frame + reader.size);
        uint8_t again[GW_THC_PACKET_HEADER_SIZE];
        gw_thc_packet_write(again, &p.header);
        FUZZ_CHECK(memcmp(again, frame, sizeof again) == 0);
    }
    gw_fuzz_buffers_check();
    return 0;
}
