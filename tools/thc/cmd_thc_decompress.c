/*
 * gradwire decompress of THC frames: mean (default) or sum of the contributors.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_thc.h"
#include "input_file.h"
#include "npy.h"
#include "thc_options.h"

typedef struct decompress_arguments {
    const char *input;
    const char *output;
    gw_thc_mode mode;
    uint32_t backends;
} decompress_arguments;

enum { KEY_CODEC = 0x400, KEY_SUM, KEY_BACKEND };

static const struct argp_option decompress_options[] = {
    {"output", 'o', "OUT.npy", 0, "The array to write", 0},
    {"codec", KEY_CODEC, "NAME", 0, "thc", 0},
    {"sum", KEY_SUM, NULL, 0, "The sum of the contributors, not their mean", 0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {0},
};

static error_t decompress_parse(int key, char *text, struct argp_state *state)
{
    decompress_arguments *a = state->input;

    switch (key) {
    case KEY_CODEC:
        break;
    case KEY_SUM:
        a->mode = GW_THC_SUM;
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &a->backends);
        break;
    default:
        return gw_cli_one_input(key, text, state, &a->input, &a->output);
    }
    return 0;
}

static int decompress_frame(const decompress_arguments *a, const gw_input_file *input)
{
    gw_thc_frame_info info;

    gw_status status = gw_thc_frame_peek(input->data, input->size, &info);
    if (status == GW_OK && info.frame_size != input->size) { /* before memory is allocated */
        status = info.frame_size > input->size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    if (status != GW_OK) {
        return thc_fail(input->name, status, UINT64_MAX);
    }
    const gw_thc_frame frame = {input->data, input->size, info.len, a->backends};
    gw_thc_target target = {.values = gw_cli_alloc((size_t)info.len * gw_dtype_size(info.options.dtype)),
                            .capacity = info.len};
    if (target.values == NULL) {
        return GW_CLI_IO;
    }
    status = gw_thc_frame_decode(&frame, a->mode, &target, thc_workspace());
    int code = status == GW_OK ? gw_npy_save(a->output, info.options.dtype, target.values, target.len)
                               : thc_fail(input->name, status, target.bad_block);
    if (code == GW_CLI_OK && target.missing > 0) {
        gw_cli_note("%s: %llu of %llu blocks have no contributor and are zero (gradwire inspect lists them)",
                    input->name, (unsigned long long)target.missing, (unsigned long long)info.block_count);
    }
    free(target.values);
    return code;
}

int gw_cmd_thc_decompress(int argc, char **argv)
{
    static const struct argp argp = {
        decompress_options,
        decompress_parse,
        "SUM.gw -o OUT.npy",
        "Decode a THC frame: the mean over its contributors.",
        NULL,
        NULL,
        NULL,
    };
    decompress_arguments a = {NULL, NULL, GW_THC_MEAN, GW_BACKEND_ALL};
    gw_input_file input;

    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = gw_cli_check_output(a.output, a.input);
    if (code == GW_CLI_OK) {
        code = gw_input_file_open_frame(&input, a.input, UINT64_MAX);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    code = decompress_frame(&a, &input);
    gw_input_file_close(&input);
    return code;
}
