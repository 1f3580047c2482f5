/*
 * Any bytes to the THC frame decoder, checker and adder, and to the packet parser. A frame with a checksum
 * gets a right one, so that the checks after it are reached.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/thc.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 20000 };

static uint8_t scratch[GW_THC_WORKSPACE_SIZE_MAX];
static const gw_workspace workspace = {scratch, sizeof scratch};

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

/* A sum of one, and again: refused, unchanged. */
static void check_sum(const gw_thc_frame *frame, const gw_thc_frame_info *info, uint64_t missing)
{
    gw_thc thc;
    uint32_t flags = info->flags & GW_THC_FLAG_BLOCK_SETS;

    if (gw_thc_init(&thc, &info->options) != GW_OK) {
        return;
    }
    size_t bound = gw_thc_frame_sum_bound(&thc, info->len, flags);
    gw_buffer sum = {gw_fuzz_buffer(GW_FUZZ_SUM, bound, 0), bound, 0};
    FUZZ_CHECK(gw_thc_frame_sum_init(frame, flags, &sum) == GW_OK && sum.size == bound);
    FUZZ_CHECK(gw_thc_frame_sum_add(&sum, frame, NULL) == GW_OK);
    uint8_t *copy = malloc(bound);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, sum.data, bound);
    gw_status again = gw_thc_frame_sum_add(&sum, frame, NULL);
    FUZZ_CHECK(again == GW_ERR_DUP || (again == GW_OK && missing == info->block_count));
    FUZZ_CHECK(memcmp(copy, sum.data, bound) == 0);
    gw_thc_frame_info sum_info;
    const gw_thc_frame made = {sum.data, bound, COUNT_MAX, GW_BACKEND_ALL};
    FUZZ_CHECK(gw_thc_frame_check(&made, &sum_info, NULL) == GW_OK);
    free(copy);
}

static void check_frame(const uint8_t *data, size_t size, gw_thc_mode mode)
{
    const gw_thc_frame frame = {data, size, COUNT_MAX, GW_BACKEND_ALL};
    gw_thc_frame_info info;
    uint64_t bad = 0;
    gw_status checked = gw_thc_frame_check(&frame, &info, &bad);
    uint8_t *out = gw_fuzz_buffer(GW_FUZZ_DST, COUNT_MAX * sizeof(float), 0x5a);
    gw_thc_target target = {.values = out, .capacity = COUNT_MAX, .len = 1};
    gw_status decoded = gw_thc_frame_decode(&frame, mode, &target, &workspace);

    FUZZ_CHECK(checked == decoded);
    if (decoded == GW_OK) {
        FUZZ_CHECK(target.len == info.len && target.missing <= info.block_count);
        check_sum(&frame, &info, target.missing);
        return;
    }
    FUZZ_CHECK(target.len == 0);
    if (decoded != GW_ERR_CORRUPT && decoded != GW_ERR_DUP) {
        return;
    }
    FUZZ_CHECK(bad == target.bad_block);
    if (bad != UINT64_MAX) {
        size_t element = gw_dtype_size(info.options.dtype);
        size_t start = (size_t)bad << info.options.block_log2;
        size_t end = start + ((size_t)1 << info.options.block_log2);
        end = end > info.len ? (size_t)info.len : end;
        FUZZ_CHECK(is_zero(out + start * element, (end - start) * element));
    }
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
