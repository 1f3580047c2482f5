/*
 * gradwire inspect: what a frame says about itself.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd.h"

#include "cli_common.h"
#include "codec_options.h"
#include "frame_parts.h"
#include "input_file.h"

#include <stdio.h>
#include <string.h>

typedef struct inspect_arguments {
    const char *input;
    int json;
    int chunks;
} inspect_arguments;

enum { KEY_JSON = 0x200, KEY_CHUNKS };

static const struct argp_option inspect_options[] = {
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of a table", 0},
    {"chunks", KEY_CHUNKS, NULL, 0, "List every chunk", 0},
    {0},
};

static error_t inspect_parse(int key, char *text, struct argp_state *state)
{
    inspect_arguments *arguments = state->input;
    switch (key) {
    case KEY_JSON:
        arguments->json = 1;
        break;
    case KEY_CHUNKS:
        arguments->chunks = 1;
        break;
    case ARGP_KEY_ARG:
        if (arguments->input != NULL) {
            argp_error(state, "one frame at a time");
        }
        arguments->input = text;
        break;
    case ARGP_KEY_END:
        if (arguments->input == NULL) {
            argp_error(state, "a frame is missing");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp inspect_argp = {
    inspect_options,
    inspect_parse,
    "IN.gw",
    "Print header, chunks, codebooks and the bits per value of each part of a frame.\v"
    "Header and directory are checked, the contents of chunks are not: see gradwire verify. Derived frames "
    "need no "
    "snapshot here.",
    NULL,
    NULL,
    NULL,
};

static json_t *header_json(const gw_gcomp_info *info)
{
    json_t *object = json_object();
    json_object_set_new(object, "version", json_integer(0));
    json_object_set_new(object, "codec", json_string("gcomp"));
    json_object_set_new(object, "dtype", json_string(gw_dtype_name(info->dtype)));
    json_object_set_new(object, "levels",
                        json_string(info->levels == GW_GCOMP_DERIVED ? "derived" : "explicit"));
    json_object_set_new(object, "constant", json_boolean(info->constant));
    json_object_set_new(object, "strict", json_boolean(info->strict));
    json_object_set_new(object, "checksum", json_boolean(info->checksum));
    json_object_set_new(object, "installed", json_boolean(info->installed));
    json_object_set_new(object, "step", json_integer((json_int_t)info->step));
    json_object_set_new(object, "cap", json_integer((json_int_t)info->cap));
    json_object_set_new(object, "drop_base", json_integer((json_int_t)info->drop_base));
    json_object_set_new(object, "chunk_len", json_integer((json_int_t)1 << info->chunk_log2));
    json_object_set_new(object, "chunk_count", json_integer((json_int_t)info->chunk_count));
    json_object_set_new(object, "directory_offset", json_integer((json_int_t)info->directory_offset));
    json_object_set_new(object, "payload_offset", json_integer((json_int_t)info->payload_offset));
    if (info->installed) {
        json_object_set_new(object, "book_id", json_integer((json_int_t)info->book_id));
        json_object_set_new(object, "book_generation", json_integer((json_int_t)info->book_generation));
    }
    if (info->levels == GW_GCOMP_DERIVED && !info->constant) {
        json_object_set_new(object, "map_hash", json_integer((json_int_t)info->map_hash));
        json_object_set_new(object, "wire_scale", gw_cli_json_real((double)info->wire_scale));
    }
    if (info->checksum) {
        json_object_set_new(object, "meta_crc", json_integer((json_int_t)info->meta_crc));
    }
    return object;
}

static json_t *chunk_json(const gw_chunk_parts *parts, uint64_t index)
{
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer((json_int_t)index));
    json_object_set_new(object, "kind", json_string(gw_chunk_kind_name(parts->chunk.kind)));
    json_object_set_new(object, "values", json_integer((json_int_t)parts->chunk.len));
    json_object_set_new(object, "offset", json_integer((json_int_t)parts->chunk.offset));
    json_object_set_new(object, "size", json_integer((json_int_t)parts->chunk.size));
    if (parts->broken_rule != 0) {
        json_object_set_new(object, "broken_rule", json_integer(parts->broken_rule));
        json_object_set_new(object, "broken_offset", json_integer((json_int_t)parts->broken_offset));
    } else if (parts->leaf_count != 0) {
        json_object_set_new(object, "book", json_integer((json_int_t)parts->chunk.book));
        json_object_set_new(object, "codebook_bytes", json_integer((json_int_t)parts->codebook_size));
        json_object_set_new(object, "symbols", json_integer((json_int_t)parts->symbol_count));
        json_object_set_new(object, "leaves", json_integer((json_int_t)parts->leaf_count));
        json_object_set_new(object, "base", json_integer((json_int_t)parts->base));
        json_object_set_new(object, "header_bytes", json_integer((json_int_t)parts->header_size));
        json_object_set_new(object, "labels_bytes", json_integer((json_int_t)parts->labels_size));
        json_object_set_new(object, "digits_bytes", json_integer((json_int_t)parts->digits_size));
        json_object_set_new(object, "escapes", json_integer((json_int_t)parts->escape_count));
        json_object_set_new(object, "padding_bytes", json_integer((json_int_t)parts->padding_size));
    }
    return object;
}

static int frame_print_json(const gw_input_file *input, const gw_gcomp_info *info,
                            const gw_frame_parts *parts, int chunks)
{
    const uint64_t values_size = info->len * gw_dtype_size(info->dtype);
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string("inspect"));
    json_object_set_new(object, "status", json_string("ok"));
    json_object_set_new(object, "values", json_integer((json_int_t)info->len));
    json_object_set_new(object, "frame_bytes", json_integer((json_int_t)info->frame_size));
    json_object_set_new(object, "values_bytes", json_integer((json_int_t)values_size));
    json_object_set_new(object, "rate", gw_cli_json_real((double)info->frame_size / (double)values_size));
    json_object_set_new(object, "header", header_json(info));
    json_object_set_new(object, "chunks", gw_frame_kinds_json(parts));
    json_object_set_new(object, "codebooks", json_integer((json_int_t)parts->codebook_count));
    json_object_set_new(object, "escapes", json_integer((json_int_t)parts->escape_count));
    json_object_set_new(object, "bits_per_value", gw_frame_parts_json(parts, info->frame_size, info->len));
    if (chunks) {
        json_t *list = json_array();
        for (uint64_t i = 0; i < info->chunk_count; i++) {
            gw_chunk_parts one;
            gw_chunk_parts_read(input->data, input->size, info, i, &one);
            json_array_append_new(list, chunk_json(&one, i));
        }
        json_object_set_new(object, "chunk_list", list);
    }
    return gw_cli_json_print(object);
}

static void chunks_print(const gw_input_file *input, const gw_gcomp_info *info)
{
    printf("  %8s %-6s %7s %12s %8s %8s %7s %8s %8s %8s\n", "chunk", "kind", "values", "offset", "bytes",
           "book", "symbols", "labels", "digits", "escapes");
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
            printf(" %8u %7u %8llu %8llu %8u", one.chunk.book, one.symbol_count,
                   (unsigned long long)one.labels_size, (unsigned long long)one.digits_size,
                   one.escape_count);
        }
        putchar('\n');
    }
}

static void frame_print(const gw_input_file *input, const gw_gcomp_info *info, const gw_frame_parts *parts,
                        int chunks)
{
    printf("%s: gradwire frame, format version 0, codec gcomp\n", input->name);
    printf("  %llu values of %s in %llu chunks of %llu\n", (unsigned long long)info->len,
           gw_dtype_name(info->dtype), (unsigned long long)info->chunk_count, 1ull << info->chunk_log2);
    printf("  %s levels, step %u, cap %u, drop base %d%s%s%s%s\n",
           info->levels == GW_GCOMP_DERIVED ? "derived" : "explicit", info->step, info->cap, info->drop_base,
           info->constant ? ", constant cut" : "", info->strict ? ", strict" : "",
           info->checksum ? ", checksums" : "", info->installed ? ", installed codebook" : "");
    if (info->installed) {
        printf("  codebook id %u, generation %u\n", info->book_id, info->book_generation);
    }
    if (info->levels == GW_GCOMP_DERIVED && !info->constant) {
        printf("  map hash %08x, wire scale %g\n", info->map_hash, (double)info->wire_scale);
    }
    printf("  chunks: %llu coded, %llu raw, %llu zero; codebooks: %llu; escapes: %llu\n",
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_CODED],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_RAW],
           (unsigned long long)parts->chunk_count[GW_GCOMP_CHUNK_ZERO],
           (unsigned long long)parts->codebook_count, (unsigned long long)parts->escape_count);
    gw_frame_parts_print(parts, info->frame_size, info->len);
    if (chunks) {
        chunks_print(input, info);
    }
}

static int frame_inspect(const gw_input_file *input, const inspect_arguments *arguments)
{
    gw_gcomp_info info;
    gw_gcomp codec;
    gw_gcomp_options options;
    gw_status status = gw_gcomp_peek(input->data, input->size, (uint64_t)1 << 48, &info);
    if (status == GW_OK) {
        gw_gcomp_options_init(&options, info.dtype);
        status = gw_gcomp_init(&codec, &options);
    }
    if (status == GW_OK) {
        gw_gcomp_info checked;
        status = gw_gcomp_check(&codec, &(gw_gcomp_frame){input->data, input->size, NULL}, &checked);
    }
    /* These two come after everything that is printed here has been checked. */
    if (status == GW_ERR_TABLE || status == GW_ERR_MAP) {
        status = GW_OK;
    }
    if (status != GW_OK) {
        return gw_frame_explain(input, status, UINT64_MAX);
    }
    gw_frame_parts parts;
    gw_frame_parts_read(input->data, input->size, &info, &parts);
    if (arguments->json) {
        return frame_print_json(input, &info, &parts, arguments->chunks);
    }
    frame_print(input, &info, &parts, arguments->chunks);
    return GW_CLI_OK;
}

int gw_cmd_inspect(int argc, char **argv)
{
    inspect_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    gw_cli_parse(&inspect_argp, argc, argv, 0, &arguments);
    gw_input_file input;
    int result = gw_input_file_open_frame(&input, arguments.input, (uint64_t)1 << 48);
    if (result == GW_CLI_OK) {
        result = frame_inspect(&input, &arguments);
        gw_input_file_close(&input);
    }
    return result;
}
