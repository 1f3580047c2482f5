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
    options.quantum_mode = receiver->quantum_mode;
    options.backends = backends;
    options.len_max = receiver->len_max;
    if (receiver->tolerance_bits != 0) {
        options.tolerance_bits = receiver->tolerance_bits;
    }
    FUZZ_CHECK(gw_gcomp_init(codec, &options) == GW_OK);
    if (receiver->codebook != NULL) {
        FUZZ_CHECK(gw_gcomp_codebook_install(codec, receiver->codebook_id, receiver->codebook_generation,
                                             receiver->codebook, receiver->codebook_size, 0) == GW_OK);
    }
}

/* Rules 1 to 10 without 9 stop peek and check alike; but rule 9 comes before rule 10. */
static void compare_peek_and_check(gw_status peeked, gw_status checked, const gw_gcomp_frame_info *peek_info,
                                   const gw_gcomp_frame_info *check_info)
{
    static const gw_gcomp_frame_info zero_info;
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
static void walk_directory(const gw_gcomp_frame *frame, const gw_gcomp_frame_info *info)
{
    uint64_t offset = info->payload_offset, len = 0;
    gw_gcomp_chunk chunk;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        FUZZ_CHECK(gw_gcomp_frame_chunk(frame, info, i, &chunk) == GW_OK);
        FUZZ_CHECK(chunk.offset == offset && chunk.offset % 16 == 0);
        FUZZ_CHECK(chunk.codebook <= i);
        offset += chunk.size;
        len += chunk.len;
    }
    FUZZ_CHECK(offset == info->frame_size && len == info->len);
    FUZZ_CHECK(gw_gcomp_frame_chunk(frame, info, info->chunk_count, &chunk) == GW_ERR_ARG);
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
static void compare_ranges(const gw_gcomp *codec, const gw_gcomp_frame *frame,
                           const gw_gcomp_frame_info *info, const uint8_t *whole, const result *expected,
                           const gw_workspace *workspace)
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

/* A frame under one codec. */
typedef struct view {
    gw_gcomp codec;
    gw_workspace workspace;
    const gw_gcomp_frame *frame;
    gw_gcomp_frame_info info; /* if checked is GW_OK */
    gw_status checked;
    size_t element, len, capacity; /* capacity may be below len */
    int is_structural;             /* nothing is decoded */
} view;

/* Peek, check, validate. */
static result check_and_validate(view *v, gw_status peeked, const gw_gcomp_frame_info *peek_info)
{
    memset(&v->info, 0xee, sizeof v->info);
    v->checked = gw_gcomp_frame_parse(&v->codec, v->frame, &v->info);
    compare_peek_and_check(peeked, v->checked, peek_info, &v->info);
    if (v->checked == GW_OK) {
        FUZZ_CHECK(v->info.frame_size == v->frame->size);
        walk_directory(v->frame, &v->info);
    }
    result r = {GW_OK, 0, 0};
    r.status = gw_gcomp_frame_check(&v->codec, v->frame, &r.bad_chunk, &v->workspace);
    FUZZ_CHECK(v->checked == GW_OK ? r.status == GW_OK || is_content_status(r.status)
                                   : r.status == v->checked);
    FUZZ_CHECK((r.bad_chunk != UINT64_MAX) == (v->checked == GW_OK && is_content_status(r.status)));
    FUZZ_CHECK(r.bad_chunk == UINT64_MAX || r.bad_chunk < v->info.chunk_count);
    r.len = v->checked == GW_OK && r.status == GW_OK ? v->info.len : 0;
    return r;
}

/* First value of a bad chunk; *end receives its end. */
static size_t bad_range(const view *v, uint64_t bad_chunk, size_t *end)
{
    const size_t first = (size_t)bad_chunk << v->info.chunk_log2;
    const size_t whole = first + ((size_t)1 << v->info.chunk_log2);
    *end = whole < v->len ? whole : v->len;
    return first;
}

/* Decodes twice into different old contents: neither what was there before nor what the workspace held may
 * show. */
static result compare_decodes(const view *v, const result *validated, uint8_t *dst)
{
    const size_t size = v->capacity * v->element;
    const result decoded = run(gw_gcomp_decode, &v->codec, v->frame, dst, v->capacity, &v->workspace);
    if (v->is_structural) {
        FUZZ_CHECK(decoded.status == (v->checked != GW_OK ? v->checked : GW_ERR_DST));
        FUZZ_CHECK(decoded.bad_chunk == UINT64_MAX && decoded.len == 0);
        FUZZ_CHECK(gw_fuzz_all_bytes(dst, size, 0xa5));
        return decoded;
    }
    FUZZ_CHECK(same_result(&decoded, validated));
    memset(v->workspace.data, 0x11, v->workspace.size);
    uint8_t *again = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST2, size, 0x5a);
    const result second = run(gw_gcomp_decode, &v->codec, v->frame, again, v->capacity, &v->workspace);
    FUZZ_CHECK(same_result(&decoded, &second));
    FUZZ_CHECK(memcmp(dst, again, size) == 0);
    if (decoded.bad_chunk != UINT64_MAX) {
        size_t end;
        const size_t first = bad_range(v, decoded.bad_chunk, &end);
        FUZZ_CHECK(gw_fuzz_all_bytes(dst + first * v->element, (end - first) * v->element, 0));
    }
    if (v->info.chunk_count <= 16) {
        compare_ranges(&v->codec, v->frame, &v->info, dst, &decoded, &v->workspace);
    }
    return decoded;
}

/* Sums start from 1, -0, a subnormal and a signalling NaN in turn: adding even +0 to one of the last three
 * would change it, and a bad chunk must leave all of them as they are. */
static result add_to_starts(const view *v, gw_dtype dtype, uint8_t *sums)
{
    static const uint32_t start_of[4][4] = {{0, 0, 0, 0},
                                            {0x3f800000, 0x80000000, 0x00000001, 0x7f800001},
                                            {0x3f80, 0x8000, 0x0001, 0x7f81},
                                            {0x3c00, 0x8000, 0x0001, 0x7c01}};
    const uint32_t *starts = start_of[dtype];
    for (size_t i = 0; i < v->capacity; i++) {
        memcpy(sums + i * v->element, &starts[i & 3], v->element);
    }
    const result added = run(gw_gcomp_decode_add, &v->codec, v->frame, sums, v->capacity, &v->workspace);
    size_t first = 0, end = v->is_structural ? v->capacity : 0;
    if (!v->is_structural && added.bad_chunk != UINT64_MAX) {
        first = bad_range(v, added.bad_chunk, &end);
    }
    for (size_t i = first; i < end; i++) {
        FUZZ_CHECK(memcmp(sums + i * v->element, &starts[i & 3], v->element) == 0);
    }
    return added;
}

/* The receiver's map has a length that does not depend on the frame; or, to get past rule 16 more often, it
 * is cut to the frame. Digests are made for the receiver's own chunk length. */
static void fit_map(gw_gcomp_map *map, const gw_fuzz_receiver *receiver, const gw_gcomp_frame_info *info)
{
    if (receiver->map_bytes_fit && info->len < map->len) {
        map->len = info->len;
    }
    const uint64_t chunk_len = (uint64_t)1 << receiver->chunk_log2;
    const size_t digest_count = (size_t)((map->len + chunk_len - 1) / chunk_len);
    uint32_t *digest = (uint32_t *)gw_fuzz_buffer(GW_FUZZ_DIGEST, digest_count * sizeof(uint32_t), 0);
    FUZZ_CHECK(gw_gcomp_map_digest(map->bytes, (size_t)map->len, receiver->chunk_log2, digest) == GW_OK);
    map->digest = digest;
}

/* The receiver's codec with some backends, and the frame under it. */
static void open_view(view *v, const gw_fuzz_receiver *receiver, const gw_gcomp_frame *frame,
                      uint32_t backends)
{
    gw_fuzz_gcomp_codec(&v->codec, receiver, backends);
    v->workspace.size = gw_gcomp_workspace_size(&v->codec);
    FUZZ_CHECK(v->workspace.size != 0 && v->workspace.size <= 1u << 20);
    v->workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, v->workspace.size, 0xd7);
    v->frame = frame;
    v->element = gw_dtype_size(receiver->dtype);
}

gw_status gw_fuzz_gcomp_contract(const gw_fuzz_receiver *receiver, const uint8_t *src_bytes, size_t src_size)
{
    uint8_t *src = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SRC, src_size, 0);
    if (src_size != 0) {
        memcpy(src, src_bytes, src_size);
    }

    gw_gcomp_frame_info peek_info;
    memset(&peek_info, 0xee, sizeof peek_info);
    gw_status peeked = gw_gcomp_frame_peek(src, src_size, receiver->len_max, &peek_info);
    if (peeked == GW_OK && src_size > 72) {
        gw_gcomp_frame_info prefix_info;
        FUZZ_CHECK(gw_gcomp_frame_peek(src, 72, receiver->len_max, &prefix_info) == GW_OK);
        FUZZ_CHECK(memcmp(&prefix_info, &peek_info, sizeof peek_info) == 0);
    }
    if (peeked == GW_OK && peek_info.len > LEN_MAX) {
        return GW_ERR_LIMIT;
    }
    gw_gcomp_map map = {receiver->map_bytes,     NULL,
                        receiver->map_base,      receiver->wire_scale,
                        receiver->map_bytes_len, receiver->chunk_log2};
    if (map.bytes != NULL && peeked == GW_OK) {
        fit_map(&map, receiver, &peek_info);
    }
    const gw_gcomp_frame frame = {src, src_size, map.bytes != NULL ? &map : NULL};
    uint32_t masks[32];
    const unsigned backend_count = gw_fuzz_backends(masks);
    result reference = {GW_OK, 0, 0};
    uint8_t *reference_values = NULL, *reference_sums = NULL;

    for (unsigned b = 0; b < backend_count; b++) {
        static view v;
        open_view(&v, receiver, &frame, masks[b]);
        const result validated = check_and_validate(&v, peeked, &peek_info);
        v.len = v.checked == GW_OK ? (size_t)v.info.len : 1000;
        v.capacity = v.len < receiver->capacity_cut ? 0 : v.len - (size_t)receiver->capacity_cut;
        v.is_structural = v.checked != GW_OK || v.capacity < v.len;
        const size_t size = v.capacity * v.element;
        uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, size, 0xa5);
        const result decoded = compare_decodes(&v, &validated, dst);
        gw_fuzz_buffers_check();
        uint8_t *sums = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SUM, size, 0);
        const result added = add_to_starts(&v, receiver->dtype, sums);
        FUZZ_CHECK(same_result(&added, &decoded));
        gw_fuzz_buffers_check();
        if (b == 0) {
            reference = decoded;
            reference_values = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_REFERENCE, size, 0);
            reference_sums = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_REFERENCE_SUM, size, 0);
            memcpy(reference_values, dst, size);
            memcpy(reference_sums, sums, size);
        }
        FUZZ_CHECK(same_result(&reference, &decoded));
        FUZZ_CHECK(memcmp(reference_values, dst, size) == 0);
        FUZZ_CHECK(memcmp(reference_sums, sums, size) == 0);
    }
    /* Nothing was written to the frame. */
    FUZZ_CHECK(src_size == 0 || memcmp(src, src_bytes, src_size) == 0);
    return reference.status;
}
