/*
 * Options and small things that the THC subcommands share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_OPTIONS_H
#define GW_THC_OPTIONS_H

#include "cli_options.h"
#include "gradwire/thc.h"
#include "npy.h"

/* For --p: "1/32", "0.03125" or "2^-5", between 0 and 1. The member is a double. */
void thc_p_parse(struct argp_state *state, const gw_option *option, const char *text, void *p);

/* An integer of thc_request. */
#define THC_NUMBER(member, lowest, highest)                                                                  \
    GW_INTEGER(thc_request, member, lowest, highest), .noun = "a number"

/* Ends the process with a message, which names the bad block unless it is UINT64_MAX, unless a library call
 * succeeded. */
void thc_must(const char *file, gw_status status, uint64_t block);

typedef struct thc_request {
    gw_request common;
    uint32_t bits;
    uint32_t granularity; /* 0: recommended */
    double p;             /* 0: recommended */
    uint32_t lane_bits;   /* 0: recommended */
    uint32_t block_log2;
    uint32_t workers;
    uint64_t seed;
    uint32_t job;
    uint32_t round;
    uint32_t rank;
    int plain;
    int uniform;
    gw_thc_nonfinite nonfinite;
    int checksum;
    const char *norms_path; /* compress: maxima over all workers, or NULL */
    const char *state_path; /* --ef, NULL: no error feedback */
    gw_npy_u2 u2;
    int is_max;         /* norm: inputs are norm files */
    gw_thc_mode mode;   /* decompress */
    int error_feedback; /* thc-design */
} thc_request;

/* The request of this process, with its defaults. */
gw_request *thc_request_defaults(void);

/* The options of the library, for the commands that encode. */
extern const gw_option_group thc_encode_group;

/* A handle for a request, with error feedback if it has a state. Ends the process with a message if there is
 * none. */
void thc_request_init_handle(const thc_request *request, gw_dtype dtype, gw_thc *thc);

/* The values of a table as a list. */
json_t *thc_table_json(const gw_thc_table *table);

/* The workspace of all calls. */
const gw_workspace *thc_workspace(void);

#endif
