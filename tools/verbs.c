/*
 * The steps of compress, decompress and inspect.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "verbs.h"

#include <string.h>

static const gw_codec_verbs *const codecs[] = {&gw_gcomp_verbs, &gw_thc_verbs, &gw_classic_verbs};
enum { CODEC_COUNT = sizeof codecs / sizeof codecs[0] };

/* ---- the codec of a command line ---- */

/* The value of --codec on a command line, NULL if there is none. */
static const char *codec_option(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--codec=", 8) == 0) {
            return argv[i] + 8;
        }
        if (strcmp(argv[i], "--codec") == 0 && i + 1 < argc) {
            return argv[i + 1];
        }
    }
    return NULL;
}

static const gw_codec_verbs *codec_of(int argc, char **argv, int by_file)
{
    const char *name = codec_option(argc, argv);
    for (int i = 1; i < CODEC_COUNT; i++) {
        if (name != NULL && strcmp(codecs[i]->name, name) == 0) {
            return codecs[i];
        }
    }
    for (int i = 1; name == NULL && by_file && i < argc; i++) {
        /* An existing output file does not count. */
        const int is_output = strcmp(argv[i - 1], "-o") == 0 || strcmp(argv[i - 1], "--output") == 0;
        const unsigned number = argv[i][0] == '-' || is_output ? 0 : gw_frame_file_codec(argv[i]);
        for (int j = 1; j < CODEC_COUNT; j++) {
            if (codecs[j]->number == number) {
                return codecs[j];
            }
        }
    }
    return codecs[0]; /* its parser refuses an unknown name */
}

static gw_request *request_read(const gw_codec_verbs *codec, const gw_command_line *line, int argc,
                                char **argv)
{
    gw_request *request = codec->request();
    request->codec = codec->name;
    gw_command_line_parse(line, argc, argv, request);
    return request;
}

int gw_codec_compress(const gw_codec_verbs *codec, int argc, char **argv)
{
    gw_request *request = request_read(codec, codec->compress_line, argc, argv);
    gw_atomic_file output;
    codec->tensor_open(request);
    gw_cli_must(gw_atomic_file_open(&output, request->output));
    const gw_buffer frame = codec->tensor_encode(request);
    gw_cli_must(gw_atomic_file_write(&output, frame.data, frame.size));
    gw_cli_must(gw_atomic_file_commit(&output));
    if (codec->state_save != NULL) {
        codec->state_save(request);
    }
    if (strcmp(request->output, "-") != 0) {
        codec->encode_report(request);
    }
    codec->tensor_close();
    return GW_CLI_OK;
}

int gw_codec_decompress(const gw_codec_verbs *codec, int argc, char **argv)
{
    gw_request *request = request_read(codec, codec->decompress_line, argc, argv);
    gw_input_file input;
    gw_atomic_file output;
    gw_cli_must(gw_input_file_open_frame(&input, request->input, request->len_max));
    if (gw_atomic_file_is_input(request->output, &input)) {
        gw_cli_fail(GW_CLI_USAGE, request->output, "is an input file; write the %s elsewhere",
                    codec->output != NULL ? codec->output : "array");
    }
    codec->frame_open(request, &input);
    gw_cli_must(gw_atomic_file_open(&output, request->output));
    codec->frame_decode(request, &output);
    gw_cli_must(gw_atomic_file_commit(&output));
    if (codec->decode_report != NULL && strcmp(request->output, "-") != 0) {
        codec->decode_report(request);
    }
    if (codec->frame_close != NULL) {
        codec->frame_close();
    }
    gw_input_file_close(&input);
    return GW_CLI_OK;
}

int gw_codec_inspect(const gw_codec_verbs *codec, int argc, char **argv)
{
    const gw_request *request = request_read(codec, codec->inspect_line, argc, argv);
    gw_input_file input;
    gw_cli_must(gw_input_file_open_frame(&input, request->input, request->len_max));
    codec->inspect(request, &input);
    gw_input_file_close(&input);
    return GW_CLI_OK;
}

int gw_verb_compress(int argc, char **argv)
{
    return gw_codec_compress(codec_of(argc, argv, 0), argc, argv);
}

int gw_verb_decompress(int argc, char **argv)
{
    return gw_codec_decompress(codec_of(argc, argv, 1), argc, argv);
}

int gw_verb_inspect(int argc, char **argv)
{
    return gw_codec_inspect(codec_of(argc, argv, 1), argc, argv);
}
