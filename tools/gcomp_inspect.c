/*
 * GCOMP: what a frame says about itself.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include "codec_options.h"
#include "frame_explain.h"
#include "frame_report.h"

#include <stdio.h>

static const gw_option inspect_options[] = {
    GW_JSON_ROW("Print one JSON object instead of a table"),
    {"chunks", NULL, "List every chunk", GW_FLAG(gw_codec_request, has_chunks)},
    {0},
};

const gw_command_line gw_gcomp_inspect_line = {
    "IN.gw",
    "Print header, chunks, codebooks and the bits per value of each part of a frame.\v"
    "Header and directory are checked; gradwire verify also checks the contents of chunks. Derived frames "
    "need "
    "no snapshot here.",
    GW_ONE_INPUT,
    {.options = inspect_options},
    {{NULL, NULL, NULL}},
};

static json_t *header_json(const gw_gcomp_frame_info *info)
{
    json_t *object = json_object();
    gw_cli_json_count(object, "version", 0);
    gw_cli_json_text(object, "codec", "gcomp");
    gw_cli_json_text(object, "dtype", gw_dtype_name(info->dtype));
    gw_cli_json_text(object, "quantum_mode", gw_quantum_mode_names[info->quantum_mode]);
    gw_cli_json_flag(object, "constant", info->constant);
    gw_cli_json_flag(object, "strict", info->strict);
    gw_cli_json_flag(object, "checksum", info->checksum);
    gw_cli_json_flag(object, "installed", info->installed);
    gw_cli_json_count(object, "step", info->step);
    gw_cli_json_count(object, "cap", info->cap);
    json_object_set_new(object, "drop_offset", json_integer(info->drop_offset));
    if (info->quantum_mode == GW_GCOMP_CARRIED) {
        gw_cli_json_count(object, "block_log2", info->block_log2);
    }
    gw_cli_json_count(object, "chunk_len", (uint64_t)1 << info->chunk_log2);
    gw_cli_json_count(object, "chunk_count", info->chunk_count);
    gw_cli_json_count(object, "extension_bytes", info->directory_offset - 32);
    gw_cli_json_count(object, "directory_offset", info->directory_offset);
    gw_cli_json_count(object, "payload_offset", info->payload_offset);
    if (info->installed) {
        gw_cli_json_count(object, "codebook_id", info->codebook_id);
        gw_cli_json_count(object, "codebook_generation", info->codebook_generation);
        gw_cli_json_count(object, "codebook_crc", info->codebook_crc);
    }
    if (info->quantum_mode == GW_GCOMP_DERIVED && !info->constant) {
        char hash[17]; /* as text: JSON readers take large integers for doubles */
        (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info->map_hash);
        gw_cli_json_text(object, "map_hash", hash);
        gw_cli_json_number(object, "wire_scale", (double)info->wire_scale);
    }
    if (info->checksum) {
        gw_cli_json_count(object, "meta_crc", info->meta_crc);
    }
    return object;
}

static json_t *chunk_json(const gw_chunk_parts *parts, uint64_t index)
{
    json_t *object = json_object();
    gw_cli_json_count(object, "index", index);
    gw_cli_json_text(object, "kind", gw_chunk_kind_name(parts->chunk.kind));
    gw_cli_json_count(object, "values", parts->chunk.len);
    gw_cli_json_count(object, "offset", parts->chunk.offset);
    gw_cli_json_count(object, "size", parts->chunk.size);
    if (parts->broken_rule != 0) {
        gw_cli_json_count(object, "broken_rule", (uint64_t)parts->broken_rule);
        gw_cli_json_count(object, "broken_offset", parts->broken_offset);
    } else if (parts->leaf_count != 0) {
        gw_cli_json_count(object, "codebook", parts->chunk.codebook);
        gw_cli_json_count(object, "codebook_bytes", parts->codebook_size);
        gw_cli_json_count(object, "symbols", parts->symbol_count);
        gw_cli_json_count(object, "leaves", parts->leaf_count);
        gw_cli_json_count(object, "base", parts->window_start);
        gw_cli_json_flag(object, "masked", parts->is_masked);
        gw_cli_json_flag(object, "relative", parts->is_relative);
        gw_cli_json_count(object, "coded_values", parts->coded_count);
        gw_cli_json_count(object, "quanta_bytes", parts->quanta_size);
        gw_cli_json_count(object, "header_bytes", parts->header_size);
        gw_cli_json_count(object, "labels_bytes", parts->labels_size);
        gw_cli_json_count(object, "digits_bytes", parts->digits_size);
        gw_cli_json_count(object, "escapes", parts->escape_count);
        gw_cli_json_count(object, "padding_bytes", parts->padding_size);
    }
    return object;
}

static void frame_print_json(const gw_input_file *input, const gw_gcomp_frame_info *info,
                             const gw_frame_parts *parts, int chunks)
{
    json_t *report = gw_frame_report_json("inspect", info, parts);
    gw_frame_report_add_parts(report, info, parts);
    gw_cli_json_count(report, "frame_bytes", info->frame_size);
    gw_cli_json_count(report, "values_bytes", info->len * gw_dtype_size(info->dtype));
    json_object_set_new(report, "header", header_json(info));
    if (chunks) {
        json_t *list = json_array();
        for (uint64_t i = 0; i < info->chunk_count; i++) {
            gw_chunk_parts one;
            gw_chunk_parts_read(input->data, input->size, info, i, &one);
            json_array_append_new(list, chunk_json(&one, i));
        }
        json_object_set_new(report, "chunk_list", list);
    }
    gw_cli_must(gw_cli_json_print(report));
}

static void chunks_print(const gw_input_file *input, const gw_gcomp_frame_info *info)
{
    printf("  %8s %-6s %7s %12s %8s %8s %7s %8s %8s %8s %s\n", "chunk", "kind", "values", "offset", "bytes",
           "owner", "symbols", "labels", "digits", "escapes", "codebook");
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        gw_chunk_parts one;
        gw_chunk_parts_read(input->data, input->size, info, i, &one);
        printf("  %8llu %-6s %7llu %12llu %8llu", (unsigned long long)i, gw_chunk_kind_name(one.chunk.kind),
               (unsigned long long)one.chunk.len, (unsigned long long)one.chunk.offset,
               (unsigned long long)one.chunk.size);
        if (one.broken_rule != 0) {
            printf(" broken: %s (rule %d, byte %llu)", one.broken_text, one.broken_rule,
                   (unsigned long long)one.broken_offset);
        } else if (one.leaf_count != 0) {
            printf(" %8u %7u %8llu %8llu %8u%s%s", one.chunk.codebook, one.symbol_count,
                   (unsigned long long)one.labels_size, (unsigned long long)one.digits_size, one.escape_count,
                   one.is_masked ? " masked" : "", one.is_relative ? " relative" : "");
        }
        putchar('\n');
    }
}

static void frame_print(const gw_input_file *input, const gw_gcomp_frame_info *info,
                        const gw_frame_parts *parts, int chunks)
{
    gw_cli_puts(stdout, input->name);
    printf(": gradwire frame, format version 0, codec gcomp\n");
    printf("  %llu values of %s in %llu chunks of %llu\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->chunk_count, 1ull << info->chunk_log2);
    printf("  %s quanta, step %u, cap %u, drop offset %d%s%s%s%s\n",
           gw_quantum_mode_names[info->quantum_mode], info->step, info->cap, info->drop_offset,
           info->constant ? ", constant drop" : "", info->strict ? ", strict" : "",
           info->checksum ? ", checksums" : "", info->installed ? ", installed codebook" : "");
    if (info->quantum_mode == GW_GCOMP_CARRIED) {
        printf("  a quantum per 2^%u values\n", info->block_log2);
    }
    if (info->installed) {
        printf("  codebook id %u, generation %u, CRC32C %08x\n", info->codebook_id, info->codebook_generation,
               info->codebook_crc);
    }
    if (info->quantum_mode == GW_GCOMP_DERIVED && !info->constant) {
        printf("  map hash %016llx, wire scale %g\n", (unsigned long long)info->map_hash,
               (double)info->wire_scale);
    }
    gw_frame_report_print(info, parts);
    if (chunks) {
        chunks_print(input, info);
    }
}

void gw_gcomp_inspect(const gw_request *request, const gw_input_file *input)
{
    const int chunks = ((const gw_codec_request *)request)->has_chunks;
    gw_gcomp_frame_info info;
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_status status = gw_gcomp_frame_peek(input->data, input->size, (uint64_t)1 << 48, &info);
    if (status == GW_OK) {
        gw_gcomp_options_init(&options, info.dtype);
        status = gw_gcomp_init(&codec, &options);
    }
    if (status == GW_OK) {
        gw_gcomp_frame_info checked;
        status = gw_gcomp_frame_parse(&codec, &(gw_gcomp_frame){input->data, input->size, NULL}, &checked);
    }
    /* The library checks all that is printed here before it returns one of these two. */
    if (status == GW_ERR_TABLE || status == GW_ERR_MAP) {
        status = GW_OK;
    }
    gw_frame_must(input, status, UINT64_MAX);
    gw_frame_parts parts;
    gw_frame_parts_read(input->data, input->size, &info, &parts);
    if (request->json) {
        frame_print_json(input, &info, &parts, chunks);
    } else {
        frame_print(input, &info, &parts, chunks);
    }
}
