/*
 * Options of the classic codecs on the command line, and small things that their commands share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_REQUEST_H
#define GW_CLASSIC_REQUEST_H

#include "cli_options.h"
#include "gradwire/classic.h"
#include "input_file.h"
#include "npy.h"

typedef struct classic_request {
    gw_request common;
    gw_classic_options options; /* dtype, backends and error_feedback are set later */
    double ratio;
    uint64_t keep_len; /* 0: by ratio */
    int has_ratio;
    uint64_t warmup_steps;
    uint64_t element_first;
    uint32_t round;
    uint32_t rank;
    const char *residual_path; /* state files, NULL if not given */
    const char *momentum_path;
    const char *norms_path; /* compress: norms that all ranks share, or NULL */
    gw_npy_u2 u2;
    int is_max;          /* norms: inputs are norms */
    int is_vote, is_sum; /* aggregate */
} classic_request;

/* The request of this process, with its defaults. */
gw_request *classic_request_defaults(void);

/* The options of the library, for the commands that encode. */
extern const gw_option_group classic_encode_group;

/* The step of a tensor: keep_len from the ratio or the option. Ends the process with a message if there is
 * none. */
gw_classic_step classic_request_step(const classic_request *request, uint64_t len);

/* 1 for the schemes that send keep_len values. */
int classic_is_sparse(gw_classic_scheme scheme);

extern const char *const classic_values_names[], *const classic_coding_names[], *const classic_norm_names[];

/* Ends the process with a message unless a library call succeeded. */
void classic_must(const char *file, gw_status status);

/* A frame that is open: header, size and limit, before memory is allocated. Ends the process if it is
 * refused. */
gw_classic_frame_info classic_peek(const gw_input_file *input, uint64_t len_max);

/* 1 for the schemes whose values are levels of a norm: qsgd and terngrad. */
int classic_has_norms(gw_classic_scheme scheme);

#endif
