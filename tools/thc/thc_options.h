/*
 * Options and small things that the THC subcommands share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_OPTIONS_H
#define GW_THC_OPTIONS_H

#include <argp.h>

#include "cli_common.h"
#include "cli_output.h"
#include "gradwire/thc.h"

/* "1/32", "0.03125" or "2^-5". 0, or -1 if it is none of these or not between 0 and 1. */
int thc_parse_p(const char *text, double *p);

/* Prints why a library call failed, with the bad block unless it is UINT64_MAX, and returns the exit code. */
int thc_fail(const char *file, gw_status status, uint64_t block);

/* Options of the library on the command line; child of the subcommands' argp with thc_request as input. */
typedef struct thc_request {
    unsigned bits;
    unsigned granularity; /* 0: recommended */
    double p;             /* 0: recommended */
    unsigned lane_bits;   /* 0: recommended */
    unsigned block_log2;
    uint32_t workers;
    uint64_t seed;
    uint32_t job;
    uint32_t round;
    uint32_t rank;
    int plain;
    int uniform;
    gw_thc_nonfinite nonfinite;
    int checksum;
    uint32_t backends; /* mask, checked against the machine */
} thc_request;

void thc_request_init(thc_request *request);
extern const struct argp thc_request_argp;

/* A handle for a request; messages are printed. Returns an exit code. */
int thc_request_init_handle(const thc_request *request, gw_dtype dtype, int error_feedback, gw_thc *thc);

/* The workspace of all calls. */
const gw_workspace *thc_workspace(void);

#endif
