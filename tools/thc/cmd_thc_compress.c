/*
 * gradwire compress --codec thc: one worker's array to an index frame.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_thc.h"
#include "cli_output.h"
#include "norm_file.h"
#include "thc_array.h"

typedef struct compress_arguments {
    const char *input;
    const char *output;
    const char *norms;
    const char *state;
    gw_npy_u2 u2;
    int json;
    thc_request request;
} compress_arguments;

enum { KEY_CODEC = 0x400, KEY_NORMS, KEY_EF, KEY_CHECKSUM, KEY_BF16, KEY_JSON };

static const struct argp_option compress_options[] = {
    {"output", 'o', "OUT.gw", 0, "The frame to write", 0},
    {"codec", KEY_CODEC, "NAME", 0, "thc", 0},
    {"norms", KEY_NORMS, "ALL.norm", 0, "Maxima over all workers (gradwire norm --max)", 0},
    {"ef", KEY_EF, "STATE.npy", 0, "Error feedback: added to the array, then replaced; made if absent", 0},
    {"checksum", KEY_CHECKSUM, NULL, 0, "End the frame with a CRC32C", 0},
    {"bf16", KEY_BF16, NULL, 0, "Two-byte integers in the array are bf16", 0},
    {"json", KEY_JSON, NULL, 0, "Report as JSON", 0},
    {0},
};

static error_t compress_parse(int key, char *text, struct argp_state *state)
{
    compress_arguments *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->request;
        break;
    case KEY_CODEC:
        if (strcmp(text, "thc") != 0) {
            argp_error(state, "--codec: thc, not '%s'", text);
        }
        break;
    case KEY_NORMS:
        a->norms = text;
        break;
    case KEY_EF:
        a->state = text;
        break;
    case KEY_CHECKSUM:
        a->request.checksum = 1;
        break;
    case KEY_BF16:
        a->u2 = GW_NPY_U2_BF16;
        break;
    case KEY_JSON:
        a->json = 1;
        break;
    case ARGP_KEY_END:
        (void)gw_cli_one_input(key, text, state, &a->input, &a->output);
        if (a->norms == NULL && a->request.workers > 1) {
            argp_error(state, "--workers above 1 needs --norms, the maxima over all of them");
        }
        if (a->request.rank >= a->request.workers) {
            argp_error(state, "--rank must be below --workers");
        }
        break;
    default:
        return gw_cli_one_input(key, text, state, &a->input, &a->output);
    }
    return 0;
}

static void report(const compress_arguments *a, const gw_thc_options *options, uint64_t len,
                   size_t frame_size)
{
    double values = len > 0 ? (double)len : 1.0;

    if (!a->json) {
        printf("%s -> %s\n  %llu values, worker %u of %u, %u bits, granularity %u, lanes of %u bits\n",
               a->input, a->output, (unsigned long long)len, a->request.rank, options->worker_max,
               options->table.bits, options->table.granularity, options->lane_bits);
        printf("  %zu bytes, %.3f bits a value: %.2f %% of fp32, %.2f %% of a bf16 wire\n", frame_size,
               8.0 * (double)frame_size / values, 25.0 * (double)frame_size / values,
               50.0 * (double)frame_size / values);
        return;
    }
    json_t *object = json_object();
    json_object_set_new(object, "command", json_string("compress"));
    json_object_set_new(object, "codec", json_string("thc"));
    json_object_set_new(object, "values", json_integer((json_int_t)len));
    json_object_set_new(object, "output_bytes", json_integer((json_int_t)frame_size));
    json_object_set_new(object, "bits_per_value", json_real(8.0 * (double)frame_size / values));
    json_object_set_new(object, "rate_fp32", json_real((double)frame_size / (4.0 * values)));
    json_object_set_new(object, "rate_bf16", json_real((double)frame_size / (2.0 * values)));
    json_object_set_new(object, "bits", json_integer(options->table.bits));
    json_object_set_new(object, "granularity", json_integer(options->table.granularity));
    json_object_set_new(object, "workers", json_integer(options->worker_max));
    json_object_set_new(object, "rank", json_integer(a->request.rank));
    (void)gw_cli_json_print(object);
}

/* Maxima from a norm file. */
static int read_maxima(const char *path, const thc_array *array, uint32_t **maxima)
{
    const gw_thc_options *options = gw_thc_options_of(&array->thc);
    norm_file file;
    int code = norm_file_read(&file, path);

    if (code != GW_CLI_OK) {
        return code;
    }
    if (file.transform != options->transform || file.block_log2 != options->block_log2 ||
        file.count != array->npy.len || file.merged > options->worker_max) {
        norm_file_free(&file);
        return gw_cli_error(GW_CLI_BAD_DATA, path,
                            "made for another transform, block length, number of values or more workers");
    }
    *maxima = file.patterns;
    return GW_CLI_OK;
}

/* Encodes the array into memory from malloc. */
static int encode_array(const compress_arguments *a, const thc_array *array, const uint32_t *maxima,
                        gw_buffer *frame)
{
    const gw_thc_source source = {.values = array->npy.values, .error = array->error, .patterns = maxima};
    uint64_t bad;

    frame->capacity = gw_thc_frame_bound(&array->thc, array->npy.len);
    frame->data = gw_cli_alloc(frame->capacity);
    if (frame->data == NULL) {
        return GW_CLI_IO;
    }
    gw_status status = gw_thc_frame_encode(&array->thc, &array->range, &source, frame, &bad, thc_workspace());
    if (status == GW_ERR_STATE) {
        return gw_cli_error(GW_CLI_BAD_DATA, a->norms, "block %llu: the maxima are below this array's own",
                            (unsigned long long)bad);
    }
    return status == GW_OK ? GW_CLI_OK : thc_fail(a->input, status, bad);
}

static int compress_array(const compress_arguments *a, const thc_array *array)
{
    uint32_t *maxima = NULL;
    size_t pattern_count;
    gw_buffer frame = {0};
    int code = a->norms != NULL ? read_maxima(a->norms, array, &maxima)
                                : thc_array_norms(array, &maxima, &pattern_count);

    if (code == GW_CLI_OK) {
        code = encode_array(a, array, maxima, &frame);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_write_file(a->output, frame.data, frame.size);
    }
    if (code == GW_CLI_OK) {
        code = thc_array_save_state(array);
    }
    if (code == GW_CLI_OK && strcmp(a->output, "-") != 0) {
        report(a, gw_thc_options_of(&array->thc), array->npy.len, frame.size);
    }
    free(frame.data);
    free(maxima);
    return code;
}

int gw_cmd_thc_compress(int argc, char **argv)
{
    static const struct argp_child children[] = {{&thc_request_argp, 0, "Configuration:", 2},
                                                 {NULL, 0, NULL, 0}};
    static const struct argp argp = {
        compress_options,
        compress_parse,
        "A.npy --codec thc --norms ALL.norm --rank I --workers N -o A.gw",
        "Quantize one worker's array so that frames of all workers can be added (gradwire aggregate). "
        "Without --norms the frame is for one worker.",
        children,
        NULL,
        NULL,
    };
    compress_arguments a;
    thc_array array;

    memset(&a, 0, sizeof a);
    thc_request_init(&a.request);
    gw_cli_parse(&argp, argc, argv, 0, &a);
    int code = gw_cli_check_output(a.output, a.input);
    if (code == GW_CLI_OK) {
        code = gw_cli_check_output(a.output, a.norms);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_check_output(a.output, a.state);
    }
    if (code == GW_CLI_OK) {
        code = gw_cli_check_output(a.state, a.input);
    }
    if (code == GW_CLI_OK) {
        code = thc_array_open(&array, a.input, a.u2, a.state, &a.request);
    }
    if (code != GW_CLI_OK) {
        return code;
    }
    code = compress_array(&a, &array);
    thc_array_close(&array);
    return code;
}
