/*
 * gradwire classic decompress: a frame to an array.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cmd_classic.h"

#include "classic_request.h"
#include "input_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct decompress_arguments {
    const char *input;
    const char *output;
    uint64_t len_max;
    uint32_t backends;
    int json;
} decompress_arguments;

enum { KEY_CODEC = 0x400, KEY_MAX_VALUES, KEY_BACKEND, KEY_JSON };

static const struct argp_option decompress_options[] = {
    {"output", 'o', "OUT.npy", 0, "The array to write; - is standard output", 0},
    {"codec", KEY_CODEC, "NAME", OPTION_HIDDEN, "classic", 0},
    {"max-values", KEY_MAX_VALUES, "N", 0, "Refuse frames with more values (default 2^32)", 0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static error_t decompress_parse(int key, char *text, struct argp_state *state)
{
    decompress_arguments *a = state->input;
    switch (key) {
    case KEY_CODEC:
        break;
    case KEY_MAX_VALUES:
        if (gw_cli_parse_u64(text, 0, (uint64_t)1 << 32, &a->len_max) != 0) {
            argp_error(state, "--max-values: '%s' is not an integer up to 2^32", text);
        }
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &a->backends);
        break;
    case KEY_JSON:
        a->json = 1;
        break;
    default:
        return gw_cli_one_input(key, text, state, &a->input, &a->output);
    }
    return 0;
}

static void report(const decompress_arguments *a, const gw_classic_frame_info *info, double seconds)
{
    const uint64_t output_size = info->len * gw_dtype_size(info->dtype);
    if (!a->json) {
        gw_cli_print_arrow(a->input, a->output);
        printf("  %llu values of %s, %s, %llu bytes -> %llu bytes\n  decode %.3f GB/s of output values\n",
               (unsigned long long)info->len, gw_dtype_name(info->dtype),
               gw_classic_scheme_name(info->scheme), (unsigned long long)info->frame_size,
               (unsigned long long)output_size, gw_cli_gbps(output_size, seconds));
        return;
    }
    json_t *object = json_object();
    gw_cli_json_text(object, "command", "classic decompress");
    gw_cli_json_text(object, "status", "ok");
    gw_cli_json_text(object, "codec", "classic");
    gw_cli_json_text(object, "scheme", gw_classic_scheme_name(info->scheme));
    gw_cli_json_count(object, "values", info->len);
    gw_cli_json_text(object, "dtype", gw_dtype_name(info->dtype));
    gw_cli_json_count(object, "input_bytes", info->frame_size);
    gw_cli_json_count(object, "output_bytes", output_size);
    gw_cli_json_number(object, "decode_seconds", seconds);
    gw_cli_json_number(object, "decode_GBps", gw_cli_gbps(output_size, seconds));
    (void)gw_cli_json_print(object);
}

static int frame_decompress(const decompress_arguments *a, const gw_input_file *input)
{
    gw_classic_frame_info info;
    gw_workspace workspace = {NULL, 0};
    int code = classic_peek(input, a->len_max, &info);
    if (code == GW_CLI_OK) {
        code = classic_workspace(gw_classic_decode_workspace_size(&info), &workspace);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    const gw_classic_frame frame = {input->data, input->size, a->len_max, a->backends};
    gw_classic_target target = {classic_alloc(info.len, gw_dtype_size(info.dtype)), info.len, 0, 0};
    if (target.values == NULL) {
        free(workspace.data);
        return GW_CLI_IO;
    }
    gw_cli_progress_begin("decode");
    const double start = gw_cli_seconds();
    const gw_status status = gw_classic_decode(&frame, &target, &workspace);
    const double seconds = gw_cli_seconds() - start;
    gw_cli_progress_end();
    code = status == GW_OK ? gw_npy_save(a->output, info.dtype, target.values, target.len)
                           : classic_fail(input->name, status);
    if (code == GW_CLI_OK && strcmp(a->output, "-") != 0) {
        report(a, &info, seconds);
    }
    free(target.values);
    free(workspace.data);
    return code;
}

int gw_cmd_classic_decompress(int argc, char **argv)
{
    static const struct argp argp = {
        decompress_options,
        decompress_parse,
        "IN.gw -o OUT.npy",
        "Decompress a frame of a classic codec into a one-dimensional NumPy array ('<f4', '<f2', or '<u2' "
        "for "
        "bf16). Nothing is written unless the frame is valid.",
        NULL,
        NULL,
        NULL,
    };
    decompress_arguments a = {NULL, NULL, (uint64_t)1 << 32, GW_BACKEND_ALL, 0};
    gw_input_file input;

    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = gw_cli_check_output(a.output, a.input);
    if (code == GW_CLI_OK) {
        code = gw_input_file_open_frame(&input, a.input, a.len_max);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    code = frame_decompress(&a, &input);
    gw_input_file_close(&input);
    return code;
}
