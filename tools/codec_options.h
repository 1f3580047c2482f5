/*
 * Codec options of compress, decompress and verify: the tables and the struct that they fill.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CODEC_OPTIONS_H
#define GW_CODEC_OPTIONS_H

#include "cli_options.h"
#include "dtype_convert.h"
#include "gradwire/gcomp.h"
#include "parallel_tasks.h"
#include "snapshot.h"

/* Set by gw_codec_request_init(), then by the options below. */
typedef struct gw_codec_request {
    gw_request common;
    const char *snapshot_path; /* --snapshot: what a derived frame was made with */
    /* encoding */
    /* dtype and backends are filled in later, rounding and dead_zone unless they were given */
    gw_gcomp_options options;
    int has_rounding, has_dead_zone, has_block_log2;
    gw_npy_u2 u2;
    gw_dtype convert;   /* 0, or round fp32 values to this type first */
    int has_drop;       /* --drop: a constant drop instead of a map */
    double target_bits; /* --target-bits: rate control chooses the tolerance; else 0 */
    float wire_scale;
    uint64_t seed, first_element;
    uint32_t step_index;
    uint16_t rank, hop;
    /* both ways */
    int has_tolerance; /* --tolerance-bits, in options */
    float noise;       /* --noise, 0 if it was not given */
    gw_optimizer_kind as;
    unsigned threads;
    int has_chunks; /* inspect --chunks */
} gw_codec_request;

void gw_codec_request_init(gw_codec_request *request);

/* Encoding options: --quantum-mode ... --convert. */
extern const gw_option_group gw_codec_encode_group;

/* Options of every command that runs the codec: --tolerance-bits, --noise, --as, --backend, -T, --json. */
extern const gw_option_group gw_codec_run_group;

/* --threads, for the tables of commands. */
#define GW_THREADS_ROW(help)                                                                                 \
    {                                                                                                        \
        "threads", "N", help, GW_INTEGER(gw_codec_request, threads, 0, GW_CLI_THREADS_MAX), .letter = 'T'    \
    }

extern const char *const gw_rounding_names[]; /* by number; NULL ends them */
extern const char *const gw_quantum_mode_names[];
extern const char *const gw_preset_names[];
extern const char *const gw_switch_names[]; /* "off", "on" */

/* Whether an encode uses the precision map of its snapshot, rather than --drop or --target-nmse. */
int gw_codec_request_uses_map(const gw_codec_request *request);

/* Makes the handle for one dtype and sets *options to what it encodes with. snapshot is NULL for a plain
 * array. Ends the process with a message if the options contradict each other or the input. */
void gw_codec_request_init_handle(const gw_codec_request *request, gw_dtype dtype,
                                  const gw_snapshot *snapshot, gw_gcomp *codec, gw_gcomp_options *options);

/* The limits of the quantum, for gw_gcomp_map_rule_init(). With a noise limit and no --tolerance-bits the
 * noise limit alone counts. */
gw_gcomp_map_limits gw_codec_request_limits(const gw_codec_request *request);

/* Name of the fastest backend in a mask that this machine has, for reports. */
const char *gw_codec_backend_name(uint32_t backends);

/* Prints "avx2, 4 threads" for reports. */
void gw_codec_request_print(const gw_codec_request *request);

uint32_t gw_dtype_mantissa_bits(gw_dtype dtype); /* 23, 7, 10 */

#endif
