/*
 * gradwire classic inspect: header and parts of a frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include "classic_request.h"
#include "cli_output.h"
#include "dtype_convert.h"
#include "little_endian.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_option inspect_options[] = {
    GW_JSON_ROW("Print one JSON object"),
    GW_LEN_MAX_ROW(32, "2^32"),
    GW_CODEC_ROW("classic", 1),
    {0},
};

const gw_command_line classic_inspect_line = {
    "IN.gw",      "Print header and parts of a frame of a classic codec. The whole frame is checked first.",
    GW_ONE_INPUT, {.options = inspect_options},
    {{0}},
};

/* Bytes of the parts of a frame that was checked (docs/format-classic.md, sections 3 to 5). */
typedef struct frame_parts {
    const char *positions; /* "gaps", "mask", "seed"; NULL if not sparse */
    uint64_t position_size;
    uint64_t scale_count; /* scales of signs, norms of levels */
    float scale_min, scale_max;
    uint64_t value_size;    /* what is left of the payload */
    uint64_t overhead_size; /* header, padding, checksum */
} frame_parts;

static uint64_t groups_of(uint64_t len, uint64_t group_len)
{
    return len / group_len + (len % group_len != 0);
}

static void positions_find(const uint8_t *payload, const gw_classic_frame_info *info, frame_parts *parts)
{
    if (info->scheme == GW_CLASSIC_RANDK) {
        parts->positions = "seed";
        return;
    }
    const uint64_t word = gw_cli_load64(payload);
    const int is_mask = (word & 255) == 1;
    const uint64_t table_size =
        is_mask ? 5 * groups_of(groups_of(info->len, 8), 2048) : groups_of(info->keep_len, 512);
    parts->positions = is_mask ? "mask" : "gaps";
    parts->position_size = 8 + groups_of(table_size, 8) * 8 + (word >> 8) * 8;
}

static uint64_t scale_count_of(const gw_classic_frame_info *info)
{
    const uint64_t blocks = info->block_len == 0 ? 1 : groups_of(info->len, info->block_len);
    switch (info->scheme) {
    case GW_CLASSIC_EFSIGNSGD:
        return 1;
    case GW_CLASSIC_ONEBIT:
        return 2 * blocks;
    case GW_CLASSIC_QSGD:
    case GW_CLASSIC_TERNGRAD:
        return blocks;
    default:
        return 0;
    }
}

static frame_parts parts_find(const uint8_t *frame, const gw_classic_frame_info *info)
{
    const uint8_t *payload = frame + info->payload_offset;
    frame_parts parts = {NULL, 0, 0, 0, 0, 0, info->frame_size - info->payload_size};
    if (classic_is_sparse(info->scheme) && info->len != 0) {
        positions_find(payload, info, &parts);
    }
    parts.scale_count = info->len != 0 ? scale_count_of(info) : 0;
    for (uint64_t i = 0; i < parts.scale_count; i++) {
        const uint32_t bits = gw_cli_load32(payload + 4 * i);
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        parts.scale_min = i == 0 || scale < parts.scale_min ? scale : parts.scale_min;
        parts.scale_max = i == 0 || scale > parts.scale_max ? scale : parts.scale_max;
    }
    parts.value_size = info->payload_size - parts.position_size - 4 * parts.scale_count;
    return parts;
}

static void frame_print_json(const gw_classic_frame_info *info, const frame_parts *parts)
{
    const double len = info->len > 0 ? (double)info->len : NAN;
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "classic inspect");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_text(object, "codec", "classic");
    gw_cli_json_text(object, "scheme", gw_classic_scheme_name(info->scheme));
    gw_cli_json_count(object, "values", info->len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(info->dtype));
    gw_cli_json_count(object, "frame_bytes", info->frame_size);
    gw_cli_json_count(object, "values_bytes", info->len * gw_dtype_size(info->dtype));
    gw_cli_json_number(object, "bits_per_value", 8 * (double)info->frame_size / len);
    gw_cli_json_flag(object, "checksum", (info->flags & GW_CLASSIC_FLAG_CHECKSUM) != 0);
    gw_cli_json_flag(object, "unbiased", (info->flags & GW_CLASSIC_FLAG_UNBIASED) != 0);
    gw_cli_json_flag(object, "shared_norms", (info->flags & GW_CLASSIC_FLAG_SHARED) != 0);
    gw_cli_json_flag(object, "vote", (info->flags & GW_CLASSIC_FLAG_VOTE) != 0);
    char seed[19]; /* as text: JSON readers take large integers for doubles */
    (void)snprintf(seed, sizeof seed, "%016llx", (unsigned long long)info->seed);
    gw_cli_json_text(object, "seed", seed);
    (void)snprintf(seed, sizeof seed, "%016llx", (unsigned long long)info->element_first);
    gw_cli_json_text(object, "element_first", seed);
    gw_cli_json_count(object, "round", info->round);
    gw_cli_json_count(object, "rank", info->rank);
    if (classic_is_sparse(info->scheme)) {
        gw_cli_json_count(object, "keep_len", info->keep_len);
        gw_cli_json_text(object, "value_kind", classic_values_names[info->values]);
    }
    if (parts->positions != NULL) {
        gw_cli_json_text(object, "positions", parts->positions);
        gw_cli_json_count(object, "position_bytes", parts->position_size);
    }
    if (classic_has_norms(info->scheme)) {
        gw_cli_json_text(object, "coding", classic_coding_names[info->coding]);
        gw_cli_json_text(object, "norm", classic_norm_names[info->norm]);
        gw_cli_json_count(object, "level_max", info->level_max);
    }
    if (classic_has_norms(info->scheme) || info->scheme == GW_CLASSIC_ONEBIT) {
        gw_cli_json_count(object, "block_len", info->block_len);
    }
    if (parts->scale_count != 0) {
        gw_cli_json_count(object, "scales", parts->scale_count);
        gw_cli_json_count(object, "scale_bytes", 4 * parts->scale_count);
        gw_cli_json_number(object, "scale_min", (double)parts->scale_min);
        gw_cli_json_number(object, "scale_max", (double)parts->scale_max);
    }
    gw_cli_json_count(object, "value_bytes", parts->value_size);
    gw_cli_json_count(object, "overhead_bytes", parts->overhead_size);
    gw_cli_must(gw_cli_json_print(object));
}

static void part_print(const char *name, uint64_t size, const gw_classic_frame_info *info)
{
    const double len = info->len > 0 ? (double)info->len : 1.0;
    printf("  %-10s %12llu bytes %8.3f bits a value\n", name, (unsigned long long)size,
           8 * (double)size / len);
}

static void frame_print(const char *name, const gw_classic_frame_info *info, const frame_parts *parts)
{
    gw_cli_puts(stdout, name);
    printf(": gradwire frame, format version 0, codec classic, scheme %s\n",
           gw_classic_scheme_name(info->scheme));
    printf("  %llu values of %s, round %u, rank %u, seed %llu, first element %llu%s%s%s%s\n",
           (unsigned long long)info->len, gw_dtype_name(info->dtype), info->round, info->rank,
           (unsigned long long)info->seed, (unsigned long long)info->element_first,
           (info->flags & GW_CLASSIC_FLAG_CHECKSUM) != 0 ? ", checksum" : "",
           (info->flags & GW_CLASSIC_FLAG_UNBIASED) != 0 ? ", unbiased" : "",
           (info->flags & GW_CLASSIC_FLAG_SHARED) != 0 ? ", shared norms" : "",
           (info->flags & GW_CLASSIC_FLAG_VOTE) != 0 ? ", outcome of a vote" : "");
    if (classic_is_sparse(info->scheme)) {
        printf("  %llu sent as %s%s%s\n", (unsigned long long)info->keep_len,
               classic_values_names[info->values], parts->positions != NULL ? ", positions by " : "",
               parts->positions != NULL ? parts->positions : "");
    }
    if (classic_has_norms(info->scheme)) {
        printf("  %u levels of the %s norm, coding %s\n", info->level_max, classic_norm_names[info->norm],
               classic_coding_names[info->coding]);
    }
    if (parts->scale_count != 0) {
        printf("  %llu scales, %g to %g, block length %u\n", (unsigned long long)parts->scale_count,
               (double)parts->scale_min, (double)parts->scale_max, info->block_len);
    }
    part_print("positions", parts->position_size, info);
    part_print("scales", 4 * parts->scale_count, info);
    part_print("values", parts->value_size, info);
    part_print("overhead", parts->overhead_size, info);
    part_print("total", info->frame_size, info);
}

void classic_inspect(const gw_request *request, const gw_input_file *input)
{
    gw_classic_frame_info info = classic_peek(input, request->len_max);
    const gw_workspace workspace = gw_cli_alloc_workspace(gw_classic_decode_workspace_size(&info));
    const gw_classic_frame frame = {input->data, input->size, request->len_max, GW_BACKEND_ALL};
    classic_must(input->name, gw_classic_frame_check(&frame, &info, &workspace));
    free(workspace.data);
    const frame_parts parts = parts_find(input->data, &info);
    if (request->json) {
        frame_print_json(&info, &parts);
    } else {
        frame_print(input->name, &info, &parts);
    }
}
