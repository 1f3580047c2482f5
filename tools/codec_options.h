/*
 * Codec options of compress, decompress and verify: argp child parsers and the struct that they fill.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CODEC_OPTIONS_H
#define GW_CODEC_OPTIONS_H

#include <argp.h>

#include "gradwire/gcomp.h"
#include "snapshot.h"

/* Set by gw_codec_request_init(), then by the parsers below, whose input points to it. */
typedef struct gw_codec_request {
    /* encoding */
    gw_gcomp_options options; /* dtype and backends are filled in later */
    gw_npy_u2 u2;
    gw_dtype convert; /* 0, or round fp32 values to this type first */
    int has_drop;     /* --drop: a constant drop instead of a map */
    int has_param_dtype;
    double target_bits; /* --target-bits: rate control chooses the tolerance; else 0 */
    float wire_scale;
    uint64_t seed, first_element;
    uint32_t step_index;
    uint16_t rank, hop;
    /* both ways */
    gw_optimizer_kind as;
    uint32_t backends; /* mask, checked against the machine */
    unsigned threads;
    int json;
} gw_codec_request;

void gw_codec_request_init(gw_codec_request *request);

/* Encoding options: --levels ... --dtype. */
extern const struct argp gw_codec_encode_argp;

/* Options of every command that runs the codec: --backend, -T, --json, --param-dtype, --as. */
extern const struct argp gw_codec_run_argp;

/* Makes the handle for one dtype; GW_CLI_USAGE with a message if the options contradict each other. */
int gw_codec_request_init_handle(const gw_codec_request *request, gw_dtype dtype, gw_gcomp *codec,
                                 gw_gcomp_options *options);

/* Name of the fastest backend in a mask that this machine has, for reports. */
const char *gw_codec_backend_name(uint32_t backends);

/* Prints "avx2, 4 threads" for reports. */
void gw_codec_request_print(const gw_codec_request *request);

const char *gw_dtype_name(gw_dtype dtype); /* "fp32", "bf16", "fp16" */

/* 0 for an unknown name. Accepts also float32, f4, bfloat16, float16, f2. */
gw_dtype gw_dtype_from_name(const char *name);
uint32_t gw_dtype_mantissa_bits(gw_dtype dtype); /* 23, 7, 10 */

#endif
