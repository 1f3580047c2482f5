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
    options.len_max = receiver->len_max;
    if (receiver->tolerance_bits != 0) {
        options.tolerance_bits = receiver->tolerance_bits;
    }
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
static void walk_directory(const gw_gcomp_frame *frame, const gw_gcomp_info *info)
{
    uint64_t offset = info->payload_offset, len = 0;
    gw_gcomp_chunk chunk;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        FUZZ_CHECK(gw_gcomp_chunk_info(frame, info, i, &chunk) == GW_OK);
        FUZZ_CHECK(chunk.offset == offset && chunk.offset % 16 == 0);
        FUZZ_CHECK(chunk.book <= i);
        offset += chunk.size;
        len += chunk.len;
    }
    FUZZ_CHECK(offset == info->frame_size && len == info->len);
    FUZZ_CHECK(gw_gcomp_chunk_info(frame, info, info->chunk_count, &chunk) == GW_ERR_ARG);
}

typedef struct result {
    gw_status status;
    uint64_t len, bad_chunk;
} result;

static int same_result(const result *a, const result *b)
{
    return a->status == b->status && a->len == b->len && a->bad_chunk == b->bad_chunk;
}

typedef gw_status decode_fn(const gw_gcomp *codec, const gw_gcomp_frame *frame, gw_gcomp_target *target,
                            const gw_workspace *workspace);

static result run(decode_fn *decode, const gw_gcomp *codec, const gw_gcomp_frame *frame, void *values,
                  size_t capacity, const gw_workspace *workspace)
{
    gw_gcomp_target target = {.values = values, .capacity = capacity, .len = 77, .bad_chunk = 77};
    const gw_status status = decode(codec, frame, &target, workspace);
    const result r = {status, target.len, target.bad_chunk};
    return r;
}

/* Decodes chunk by chunk, as threads would, and compares with the whole. */
static void compare_ranges(const gw_gcomp *codec, const gw_gcomp_frame *frame, const gw_gcomp_info *info,
                           const uint8_t *whole, const result *expected, const gw_workspace *workspace)
{
    size_t element = gw_dtype_size(info->dtype);
    uint64_t chunk_len = (uint64_t)1 << info->chunk_log2;
    uint64_t lowest_bad = UINT64_MAX;
    gw_status lowest_status = GW_OK;

    for (uint64_t i = 0; i < info->chunk_count; i++) {
        uint64_t first = i * chunk_len;
        uint64_t len = info->len - first < chunk_len ? info->len - first : chunk_len;
        uint8_t *part = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, (size_t)len * element, 0x3c);
        const gw_gcomp_range range = {i, 1};
        gw_gcomp_target target = {.values = part, .capacity = len, .len = 77, .bad_chunk = 77};
        gw_status status = gw_gcomp_decode_range(codec, frame, info, &range, &target, workspace);
        FUZZ_CHECK(memcmp(part, whole + first * element, (size_t)len * element) == 0);
        if (status != GW_OK) {
            FUZZ_CHECK(is_content_status(status) && target.bad_chunk == i && target.len == 0);
            if (lowest_bad == UINT64_MAX) {
                lowest_bad = i;
                lowest_status = status;
            }
        } else {
            FUZZ_CHECK(target.bad_chunk == UINT64_MAX && target.len == len);
        }
        /* Too small an output by one value. */
        target.capacity = len - 1;
        FUZZ_CHECK(gw_gcomp_decode_range(codec, frame, info, &range, &target, workspace) == GW_ERR_DST);
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
    gw_status peeked = gw_gcomp_peek(src, src_size, receiver->len_max, &peek_info);
    if (peeked == GW_OK && src_size > 80) {
        gw_gcomp_info prefix_info;
        FUZZ_CHECK(gw_gcomp_peek(src, 80, receiver->len_max, &prefix_info) == GW_OK);
        FUZZ_CHECK(memcmp(&prefix_info, &peek_info, sizeof peek_info) == 0);
    }
    if (peeked == GW_OK && peek_info.len > LEN_MAX) {
        return GW_ERR_LIMIT;
    }
    /* The receiver's map has a length that does not depend on the frame; or, to get past rule 16 more
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

    const gw_gcomp_frame frame = {src, src_size, receiver_map};
    uint32_t masks[32];
    unsigned backend_count = gw_fuzz_backends(masks);
    result reference = {GW_OK, 0, 0}, sum_reference = {GW_OK, 0, 0};
    uint8_t *reference_values = NULL, *reference_sums = NULL;
    size_t element = gw_dtype_size(receiver->dtype);

    for (unsigned b = 0; b < backend_count; b++) {
        static gw_gcomp codec;
        gw_fuzz_gcomp_codec(&codec, receiver, masks[b]);
        gw_workspace workspace = {NULL, gw_gcomp_workspace_size(&codec)};
        FUZZ_CHECK(workspace.size != 0 && workspace.size <= 1u << 20);
        workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace.size, 0xd7);

        gw_gcomp_info info;
        memset(&info, 0xee, sizeof info);
        gw_status checked = gw_gcomp_check(&codec, &frame, &info);
        compare_peek_and_check(peeked, checked, &peek_info, &info);
        if (checked == GW_OK) {
            FUZZ_CHECK(info.frame_size == src_size);
            walk_directory(&frame, &info);
        }

        uint64_t validate_bad = 0;
        gw_status validated = gw_gcomp_validate(&codec, &frame, &validate_bad, &workspace);
        FUZZ_CHECK(checked == GW_OK ? validated == GW_OK || is_content_status(validated)
                                    : validated == checked);
        FUZZ_CHECK((validate_bad != UINT64_MAX) == (checked == GW_OK && is_content_status(validated)));
        FUZZ_CHECK(validate_bad == UINT64_MAX || validate_bad < info.chunk_count);

        /* Twice into different old contents: what was there before must not show, nor what the workspace
         * held. */
        size_t len = checked == GW_OK ? (size_t)info.len : 1000;
        size_t capacity = len < receiver->capacity_cut ? 0 : len - (size_t)receiver->capacity_cut;
        uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, capacity * element, 0xa5);
        const result decoded = run(gw_gcomp_decode, &codec, &frame, dst, capacity, &workspace);
        int structural = checked != GW_OK || capacity < len;
        if (structural) {
            FUZZ_CHECK(decoded.status == (checked != GW_OK ? checked : GW_ERR_DST));
            FUZZ_CHECK(decoded.bad_chunk == UINT64_MAX && decoded.len == 0);
            FUZZ_CHECK(gw_fuzz_all_bytes(dst, capacity * element, 0xa5));
        } else {
            FUZZ_CHECK(decoded.status == validated && decoded.bad_chunk == validate_bad);
            FUZZ_CHECK(decoded.len == (decoded.status == GW_OK ? info.len : 0));
            memset(workspace.data, 0x11, workspace.size);
            uint8_t *again = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, capacity * element, 0x5a);
            const result second = run(gw_gcomp_decode, &codec, &frame, again, capacity, &workspace);
            FUZZ_CHECK(same_result(&decoded, &second));
            FUZZ_CHECK(memcmp(dst, again, capacity * element) == 0);
            if (decoded.bad_chunk != UINT64_MAX) {
                size_t first = (size_t)decoded.bad_chunk << info.chunk_log2;
                size_t bad_len =
                    len - first < (size_t)1 << info.chunk_log2 ? len - first : (size_t)1 << info.chunk_log2;
                FUZZ_CHECK(gw_fuzz_all_bytes(dst + first * element, bad_len * element, 0));
            }
            if (info.chunk_count <= 16) {
                compare_ranges(&codec, &frame, &info, dst, &decoded, &workspace);
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
        const result added = run(gw_gcomp_decode_add, &codec, &frame, sums, capacity, &workspace);
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
    /* Nothing was written to the frame. */
    FUZZ_CHECK(src_size == 0 || memcmp(src, src_bytes, src_size) == 0);
    return reference.status;
}
