/*
 * compress, decompress and inspect: written once, over a row per codec.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_VERBS_H
#define GW_VERBS_H

#include "atomic_file.h"
#include "cli_options.h"
#include "gradwire/gradwire.h"

/* A codec of the command. What it opens is its own and there is one of it, because a process runs one
 * command. Functions that return int return an exit code and print messages. */
typedef struct gw_codec_verbs {
    const char *name;   /* of --codec */
    unsigned number;    /* byte 5 of its frames (docs/format.md section 2) */
    const char *output; /* what the message calls an output that would replace an input; NULL: by the verb */
    gw_request *(*request)(void); /* the request with its defaults, for all of the command lines below */
    const gw_command_line *compress_line, *decompress_line, *inspect_line;

    /* compress: opens all inputs and refuses an output that is one of them; makes the frame in memory of the
     * codec's; keeps the state that has moved on (NULL: there is none); says what was made. */
    void (*tensor_open)(gw_request *request);
    gw_buffer (*tensor_encode)(gw_request *request);
    void (*state_save)(const gw_request *request);
    void (*encode_report)(const gw_request *request);
    void (*tensor_close)(void);

    /* decompress: looks at the frame, which may move out of `input`; writes the array; says what was read
     * (NULL: nothing). */
    void (*frame_open)(gw_request *request, gw_input_file *input);
    void (*frame_decode)(const gw_request *request, gw_atomic_file *output);
    void (*decode_report)(const gw_request *request);
    void (*frame_close)(void);

    void (*inspect)(const gw_request *request, const gw_input_file *input);
} gw_codec_verbs;

extern const gw_codec_verbs gw_gcomp_verbs, gw_thc_verbs, gw_classic_verbs;

/* For the rows: the inspections are in files of their own. */
extern const gw_command_line gw_gcomp_inspect_line, thc_inspect_line, classic_inspect_line;
void gw_gcomp_inspect(const gw_request *request, const gw_input_file *input);
void thc_inspect(const gw_request *request, const gw_input_file *input);
void classic_inspect(const gw_request *request, const gw_input_file *input);

/* The codec is that of --codec, else that of the first argument that names a frame (not for compress), else
 * GCOMP. */
int gw_verb_compress(int argc, char **argv);
int gw_verb_decompress(int argc, char **argv);
int gw_verb_inspect(int argc, char **argv);

/* The same for one codec. */
int gw_codec_compress(const gw_codec_verbs *codec, int argc, char **argv);
int gw_codec_decompress(const gw_codec_verbs *codec, int argc, char **argv);
int gw_codec_inspect(const gw_codec_verbs *codec, int argc, char **argv);

#endif
