/*
 * Options of the library on the command line, and small things that the subcommands of `gradwire classic`
 * share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_REQUEST_H
#define GW_CLASSIC_REQUEST_H

#include <argp.h>

#include "cli_common.h"
#include "cli_output.h"
#include "dtype_convert.h"
#include "gradwire/classic.h"
#include "npy.h"

/* Child of the subcommands' argp, with classic_request as input. */
typedef struct classic_request {
    gw_classic_options options; /* dtype and error_feedback are set later */
    uint32_t given;             /* options that were on the command line, a bit each */
    double ratio;
    uint64_t keep_len; /* 0: by ratio */
    uint64_t warmup_steps;
    uint64_t element_first;
    uint32_t round;
    uint32_t rank;
    const char *residual_path; /* state files, NULL if not given */
    const char *momentum_path;
    gw_npy_u2 u2;
} classic_request;

void classic_request_init(classic_request *request);
extern const struct argp classic_request_argp;

/* The step of a tensor: keep_len from the ratio or the option. Returns an exit code and prints messages. */
int classic_request_step(const classic_request *request, const char *file, uint64_t len,
                         gw_classic_step *step);

/* 1 for the schemes that send keep_len values. */
int classic_is_sparse(gw_classic_scheme scheme);

const char *classic_values_name(gw_classic_values values);
const char *classic_coding_name(gw_classic_coding coding);
const char *classic_norm_name(gw_classic_norm norm);

/* Prints why a library call failed and returns the exit code. */
int classic_fail(const char *file, gw_status status);

/* A frame that is open: header, size and limit, before memory is allocated. Returns an exit code. */
int classic_peek(const gw_input_file *input, uint64_t len_max, gw_classic_frame_info *info);

/* gw_cli_alloc() of len elements; fails where size_t cannot hold their size. */
void *classic_alloc(uint64_t len, size_t element_size);

/* Memory for the calls of this size, with a message; free(workspace->data). Returns an exit code. */
int classic_workspace(size_t size, gw_workspace *workspace);

#endif
