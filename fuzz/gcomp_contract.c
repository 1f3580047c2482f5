/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_contract.h"

#include <string.h>

enum { LEN_MAX = 1 << 18 };

static int is_content_status(gw_status status)
{
    return status == GW_ERR_CORRUPT || status == GW_ERR_CHECKSUM;
}

void gw_fuzz_gcomp_codec(gw_gcomp *codec, const gw_fuzz_receiver *receiver, uint32_t backends)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, receiver->dtype);
    options.strict = receiver->strict;
    options.levels = receiver->levels_kind;
    options.backends = backends;
    options.count_limit = receiver->count_limit;
    FUZZ_CHECK(gw_gcomp_init(codec, &options) == GW_OK);
    if (receiver->book != NULL) {
        FUZZ_CHECK(gw_gcomp_install(codec, receiver->book_id, receiver->book_generation, receiver->book,
                                    receiver->book_size, 0) == GW_OK);
    }
}

/* Rules 1 to 10 without 9 stop peek and check alike; but rule 9 comes before rule 10. */
static void compare_peek_and_check(gw_status peeked, gw_status checked, const gw_gcomp_info *peek_info,
                                   const gw_gcomp_info *check_info)
{
    static const gw_gcomp_info zero_info;
    if (peeked != GW_OK) {
        FUZZ_CHECK(memcmp(peek_info, &zero_info, sizeof zero_info) == 0);
        FUZZ_CHECK(checked == peeked || checked == GW_ERR_OPTION ||
                   (peeked == GW_ERR_HEADER && checked == GW_ERR_SHORT));
    } else {
        FUZZ_CHECK(checked == GW_OK || checked == GW_ERR_SHORT || checked == GW_ERR_HEADER ||
                   checked == GW_ERR_TRAILING || checked == GW_ERR_CHECKSUM || checked == GW_ERR_TABLE ||
                   checked == GW_ERR_MAP || checked == GW_ERR_OPTION);
    }
    if (checked == GW_OK) {
        FUZZ_CHECK(memcmp(peek_info, check_info, sizeof *peek_info) == 0);
    } else {
        FUZZ_CHECK(memcmp(check_info, &zero_info, sizeof zero_info) == 0);
    }
}

/* The directory of an accepted frame tiles the payload and the values. */
static void walk_directory(const uint8_t *src, size_t src_size, const gw_gcomp_info *info)
{
    uint64_t offset = info->payload_offset, len = 0;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        gw_gcomp_chunk chunk;
        FUZZ_CHECK(gw_gcomp_chunk_info(src, src_size, info, i, &chunk) == GW_OK);
        FUZZ_CHECK(chunk.offset == offset && chunk.offset % 16 == 0);
        FUZZ_CHECK(chunk.book <= i);
        offset += chunk.size;
        len += chunk.len;
    }
    FUZZ_CHECK(offset == info->frame_size && len == info->len);
    gw_gcomp_chunk chunk;
    FUZZ_CHECK(gw_gcomp_chunk_info(src, src_size, info, info->chunk_count, &chunk) == GW_ERR_ARG);
}

typedef struct result {
    gw_status status;
    uint64_t len, bad_chunk;
} result;

static int same_result(const result *a, const result *b)
{
    return a->status == b->status && a->len == b->len && a->bad_chunk == b->bad_chunk;
}

/* Decodes chunk by chunk, as threads would, and compares with the whole. */
static void compare_ranges(const gw_gcomp *codec, const gw_gcomp_map *map, const uint8_t *src,
                           size_t src_size, const gw_gcomp_info *info, const uint8_t *whole,
                           const result *expected, void *workspace, size_t workspace_size)
{
    size_t element = gw_dtype_size(info->dtype);
    uint64_t chunk_len = (uint64_t)1 << info->chunk_log2;
    uint64_t lowest_bad = UINT64_MAX;
    gw_status lowest_status = GW_OK;

    for (uint64_t i = 0; i < info->chunk_count; i++) {
        uint64_t first = i * chunk_len;
        uint64_t len = info->len - first < chunk_len ? info->len - first : chunk_len;
        uint8_t *part = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, (size_t)len * element, 0x3c);
        uint64_t bad = 0;
        gw_status status = gw_gcomp_decode_range(codec, src, src_size, info, map, i, 1, part, len, &bad,
                                                 workspace, workspace_size);
        FUZZ_CHECK(memcmp(part, whole + first * element, (size_t)len * element) == 0);
        if (status != GW_OK) {
            FUZZ_CHECK(is_content_status(status) && bad == i);
            if (lowest_bad == UINT64_MAX) {
                lowest_bad = i;
                lowest_status = status;
            }
        } else {
            FUZZ_CHECK(bad == UINT64_MAX);
        }
        /* Too small an output by one value. */
        FUZZ_CHECK(gw_gcomp_decode_range(codec, src, src_size, info, map, i, 1, part, len - 1, &bad,
                                         workspace, workspace_size) == GW_ERR_DST);
        gw_fuzz_buffers_check();
    }
    FUZZ_CHECK(lowest_bad == expected->bad_chunk && lowest_status == expected->status);
}

gw_status gw_fuzz_gcomp_contract(const gw_fuzz_receiver *receiver, const uint8_t *src_bytes, size_t src_size)
{
    uint8_t *src = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SRC, src_size, 0);
    if (src_size != 0) {
        memcpy(src, src_bytes, src_size);
    }

    gw_gcomp_info peek_info;
    memset(&peek_info, 0xee, sizeof peek_info);
    gw_status peeked = gw_gcomp_peek(src, src_size, receiver->count_limit, &peek_info);
    if (peeked == GW_OK && src_size > 64) {
        gw_gcomp_info prefix_info;
        FUZZ_CHECK(gw_gcomp_peek(src, 64, receiver->count_limit, &prefix_info) == GW_OK);
        FUZZ_CHECK(memcmp(&prefix_info, &peek_info, sizeof peek_info) == 0);
    }
    if (peeked == GW_OK && peek_info.len > LEN_MAX) {
        return GW_ERR_LIMIT;
    }
    /* The receiver's map has a length of its own, whatever the frame announces; or, to get past rule 16 more
     * often, it is cut to the frame. Digests are made for the receiver's own chunk length. */
    gw_gcomp_map map = {receiver->levels,     NULL,
                        receiver->map_base,   receiver->wire_scale,
                        receiver->levels_len, receiver->chunk_log2};
    const gw_gcomp_map *receiver_map = receiver->levels != NULL ? &map : NULL;
    if (receiver_map != NULL && peeked == GW_OK) {
        if (receiver->levels_fit && peek_info.len < map.len) {
            map.len = peek_info.len;
        }
        uint64_t chunk_len = (uint64_t)1 << receiver->chunk_log2;
        size_t digest_count = (size_t)((map.len + chunk_len - 1) / chunk_len);
        uint32_t *digest = (uint32_t *)gw_fuzz_buffer(GW_FUZZ_DIGEST, digest_count * sizeof(uint32_t), 0);
        FUZZ_CHECK(gw_gcomp_map_digest(map.levels, (size_t)map.len, receiver->chunk_log2, digest) == GW_OK);
        map.digest = digest;
    }

    uint32_t masks[32];
    unsigned backend_count = gw_fuzz_backends(masks);
    result reference = {GW_OK, 0, 0}, sum_reference = {GW_OK, 0, 0};
    uint8_t *reference_values = NULL, *reference_sums = NULL;
    size_t element = gw_dtype_size(receiver->dtype);

    for (unsigned b = 0; b < backend_count; b++) {
        static gw_gcomp codec;
        gw_fuzz_gcomp_codec(&codec, receiver, masks[b]);
        size_t workspace_size = gw_gcomp_workspace_size(&codec);
        FUZZ_CHECK(workspace_size != 0 && workspace_size <= 1u << 20);
        void *workspace = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace_size, 0xd7);

        gw_gcomp_info info;
        memset(&info, 0xee, sizeof info);
        gw_status checked = gw_gcomp_check(&codec, src, src_size, receiver_map, &info);
        compare_peek_and_check(peeked, checked, &peek_info, &info);
        if (checked == GW_OK) {
            FUZZ_CHECK(info.frame_size == src_size);
            walk_directory(src, src_size, &info);
        }

        uint64_t validate_bad = 0;
        gw_status validated =
            gw_gcomp_validate(&codec, src, src_size, receiver_map, &validate_bad, workspace, workspace_size);
        FUZZ_CHECK(checked == GW_OK ? validated == GW_OK || is_content_status(validated)
                                    : validated == checked);
        FUZZ_CHECK((validate_bad != UINT64_MAX) == (checked == GW_OK && is_content_status(validated)));
        FUZZ_CHECK(validate_bad == UINT64_MAX || validate_bad < info.chunk_count);

        /* Twice into different old contents: what was there before must not show, nor what the workspace
         * held. */
        size_t len = checked == GW_OK ? (size_t)info.len : 1000;
        size_t capacity = len < receiver->capacity_cut ? 0 : len - (size_t)receiver->capacity_cut;
        uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, capacity * element, 0xa5);
        result decoded = {GW_OK, 77, 77};
        decoded.status = gw_gcomp_decode(&codec, src, src_size, receiver_map, dst, capacity, &decoded.len,
                                         &decoded.bad_chunk, workspace, workspace_size);
        int structural = checked != GW_OK || capacity < len;
        if (structural) {
            FUZZ_CHECK(decoded.status == (checked != GW_OK ? checked : GW_ERR_DST));
            FUZZ_CHECK(decoded.bad_chunk == UINT64_MAX && decoded.len == 0);
            FUZZ_CHECK(gw_fuzz_all_bytes(dst, capacity * element, 0xa5));
        } else {
            FUZZ_CHECK(decoded.status == validated && decoded.bad_chunk == validate_bad);
            FUZZ_CHECK(decoded.len == (decoded.status == GW_OK ? info.len : 0));
            memset(workspace, 0x11, workspace_size);
            uint8_t *again = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, capacity * element, 0x5a);
            result second = {GW_OK, 0, 0};
            second.status = gw_gcomp_decode(&codec, src, src_size, receiver_map, again, capacity, &second.len,
                                            &second.bad_chunk, workspace, workspace_size);
            FUZZ_CHECK(same_result(&decoded, &second));
            FUZZ_CHECK(memcmp(dst, again, capacity * element) == 0);
            if (decoded.bad_chunk != UINT64_MAX) {
                size_t first = (size_t)decoded.bad_chunk << info.chunk_log2;
                size_t bad_len =
                    len - first < (size_t)1 << info.chunk_log2 ? len - first : (size_t)1 << info.chunk_log2;
                FUZZ_CHECK(gw_fuzz_all_bytes(dst + first * element, bad_len * element, 0));
            }
            if (info.chunk_count <= 16) {
                compare_ranges(&codec, receiver_map, src, src_size, &info, dst, &decoded, workspace,
                               workspace_size);
            }
        }
        gw_fuzz_buffers_check();

        /* Sums start from 1, -0, a subnormal and a signalling NaN in turn: adding even +0 to one of the last
         * three would change it, and a bad chunk must leave all of them as they are. */
        uint8_t *sums = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SUM, capacity * element, 0);
        static const uint32_t start_of[4][4] = {{0, 0, 0, 0},
                                                {0x3f800000, 0x80000000, 0x00000001, 0x7f800001},
                                                {0x3f80, 0x8000, 0x0001, 0x7f81},
                                                {0x3c00, 0x8000, 0x0001, 0x7c01}};
        const uint32_t *starts = start_of[receiver->dtype];
        for (size_t i = 0; i < capacity; i++) {
            memcpy(sums + i * element, &starts[i & 3], element);
        }
        result added = {GW_OK, 77, 77};
        added.status = gw_gcomp_decode_add(&codec, src, src_size, receiver_map, sums, capacity, &added.len,
                                           &added.bad_chunk, workspace, workspace_size);
        FUZZ_CHECK(same_result(&added, &decoded));
        size_t kept_first = 0, kept_end = 0;
        if (structural) {
            kept_end = capacity;
        } else if (added.bad_chunk != UINT64_MAX) {
            kept_first = (size_t)added.bad_chunk << info.chunk_log2;
            kept_end = kept_first + ((size_t)1 << info.chunk_log2);
            kept_end = kept_end < len ? kept_end : len;
        }
        for (size_t i = kept_first; i < kept_end; i++) {
            FUZZ_CHECK(memcmp(sums + i * element, &starts[i & 3], element) == 0);
        }
        gw_fuzz_buffers_check();

        if (b == 0) {
            reference = decoded;
            sum_reference = added;
            reference_values = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_REFERENCE, capacity * element, 0);
            reference_sums = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_REFERENCE_SUM, capacity * element, 0);
            memcpy(reference_values, dst, capacity * element);
            memcpy(reference_sums, sums, capacity * element);
        } else {
            FUZZ_CHECK(same_result(&reference, &decoded) && same_result(&sum_reference, &added));
            FUZZ_CHECK(memcmp(reference_values, dst, capacity * element) == 0);
            FUZZ_CHECK(memcmp(reference_sums, sums, capacity * element) == 0);
        }
    }
    /* Nobody writes into the frame. */
    FUZZ_CHECK(src_size == 0 || memcmp(src, src_bytes, src_size) == 0);
    return reference.status;
}
