/*
 * A directory entry that says one thing when its chunk is looked up and another when the chunk's codebook is:
 * the window of a race that changing_frame hits too seldom. The checksum kernel, which runs between the two
 * reads, makes the change, so the test needs no second thread. The frame ends at an unmapped page: a read
 * beyond it stops the test.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"
#include "fuzz_support.h"

#include <stdio.h>
#include <string.h>

enum { VALUE_COUNT = 4096 };

static gw_crc32c_fn *real_crc32c;
static uint8_t *entry;
static uint64_t true_place;
static int is_armed;

/* The chunk seems to be empty, and its entry's checksum is 0, as long as the entry points to the end of the
 * frame. */
static uint32_t restoring_crc32c(uint32_t crc, const uint8_t *src, size_t size)
{
    if (is_armed) {
        is_armed = 0;
        memcpy(entry, &true_place, sizeof true_place);
    }
    return real_crc32c(crc, src, size);
}

int main(void)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.chunk_log2 = 12;
    options.checksum = 1;
    static gw_gcomp codec;
    FUZZ_CHECK(gw_gcomp_init(&codec, &options) == GW_OK);

    static float values[VALUE_COUNT], result[VALUE_COUNT];
    for (int i = 0; i < VALUE_COUNT; i++) {
        values[i] = (float)(i % 37) * 0.125f;
    }
    const size_t workspace_size = gw_gcomp_workspace_size(&codec),
                 capacity = gw_gcomp_frame_bound(&codec, VALUE_COUNT);
    void *workspace = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace_size, 0xd7);
    uint8_t *frame = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_FRAME, capacity, 0);
    const gw_gcomp_source source = {.values = values, .len = VALUE_COUNT};
    gw_buffer out = {frame, capacity, 0};
    FUZZ_CHECK(gw_gcomp_encode(&codec, &source, &out, &(gw_workspace){workspace, workspace_size}) == GW_OK);
    uint8_t *src = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SRC, out.size, 0);
    memcpy(src, frame, out.size);
    gw_gcomp_frame_info info;
    FUZZ_CHECK(gw_gcomp_frame_parse(&codec, &(gw_gcomp_frame){.data = src, .size = out.size}, &info) ==
               GW_OK);

    gw_codec *inside = (gw_codec *)(void *)&codec;
    real_crc32c = inside->kernels.crc32c;
    inside->kernels.crc32c = restoring_crc32c;
    entry = src + info.directory_offset;
    memcpy(&true_place, entry, sizeof true_place);
    FUZZ_CHECK((true_place & 15) == GW_GCOMP_CHUNK_CODED);
    const uint64_t false_place = info.frame_size | GW_GCOMP_CHUNK_CODED;
    memcpy(entry, &false_place, sizeof false_place);
    memset(entry + 12, 0, 4);
    is_armed = 1;
    gw_gcomp_target target = {.values = result, .capacity = VALUE_COUNT};
    FUZZ_CHECK(gw_gcomp_decode_range(&codec, &(gw_gcomp_frame){.data = src, .size = out.size}, &info,
                                     &(gw_gcomp_range){0, 1}, &target,
                                     &(gw_workspace){workspace, workspace_size}) == GW_ERR_CORRUPT);
    FUZZ_CHECK(!is_armed && target.bad_chunk == 0);

    /* The handle decodes the original bytes afterwards. */
    inside->kernels.crc32c = real_crc32c;
    memcpy(src, frame, out.size);
    gw_gcomp_target target2 = {.values = result, .capacity = VALUE_COUNT};
    FUZZ_CHECK(gw_gcomp_decode(&codec, &(gw_gcomp_frame){.data = src, .size = out.size}, &target2,
                               &(gw_workspace){workspace, workspace_size}) == GW_OK);
    FUZZ_CHECK(target2.len == VALUE_COUNT && memcmp(result, values, sizeof values) == 0);
    puts("double_fetch: ok");
    return 0;
}
