/*
 * The round trip of gradwire verify: encode, validate, decode, compare.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_VERIFY_ROUNDTRIP_H
#define GW_VERIFY_ROUNDTRIP_H

#include "tensor_input.h"

typedef struct gw_verify_options {
    gw_codec_request request; /* first: gw_command_line_parse() */
    uint64_t runs;            /* timed ones, 1 to GW_CLI_RUNS_MAX */
    int has_limit;
    double limit_log2; /* with has_limit: the largest deviation of a parameter is 2^limit_log2 */
} gw_verify_options;

/* Prints the report and returns an exit code: GW_CLI_BAD_DATA with a message if a comparison failed. */
int gw_verify_roundtrip(const gw_tensor_input *tensor, const gw_verify_options *options);

#endif
