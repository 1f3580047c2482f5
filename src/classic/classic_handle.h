/*
 * The inside of a handle, and how the parts of the classic codecs fit together. A *family* is a form of
 * payload:
 *
 *   cast    classic_cast.c    FP16, BF16
 *   sparse  classic_sparse.c  TOPK, DGC, RANDK: positions, then values
 *   sign    classic_sign.c    SIGNSGD, EFSIGNSGD, SIGNUM, ONEBIT: scales, then one bit a value
 *   level   classic_level.c   QSGD, TERNGRAD: norms, then coded levels
 *
 * classic_codec.c checks arguments and writes headers; classic_frame.c reads them; a family sees checked
 * arguments and its payload only.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_HANDLE_H
#define GW_CLASSIC_HANDLE_H

#include "core/bytes.h"
#include "core/kernels.h"
#include "gradwire/classic.h"

#define GW_CLASSIC_TAG 0x53414c43u /* "CLAS": a handle that gw_classic_init() made */

typedef struct gw_classic_state {
    uint32_t tag;
    gw_classic_options options;
    gw_kernels kernels;
} gw_classic_state;

/* An encoding in progress. The workspace has at least the bytes that the family asked for, aligned to 64. */
typedef struct gw_classic_encoding {
    const gw_classic_options *options;
    const gw_kernels *kernels;
    const gw_classic_step *step;
    const gw_classic_source *source;
    uint8_t *payload; /* where the family writes */
    size_t capacity;  /* bytes */
    size_t size;      /* out */
    uint8_t *workspace;
} gw_classic_encoding;

/* A payload to decode; header fields are checked. The bytes may change while they are read (shared memory),
 * so a family reads what it checks once, or clamps what it uses. */
typedef struct gw_classic_payload {
    const gw_classic_frame_info *info;
    const gw_kernels *kernels;
    const uint8_t *data;
    size_t size; /* bytes, padding and checksum excluded */
    uint8_t *workspace;
} gw_classic_payload;

/* What becomes of decoded values. */
typedef struct gw_classic_sink {
    void *values;   /* elements of dtype; NULL: check only */
    unsigned dtype; /* gw_dtype */
    int is_sum;     /* 1: values[i] += decoded, fp32 */
    float scale;    /* 1: none */
} gw_classic_sink;

typedef struct gw_classic_family {
    /* Bytes; SIZE_MAX where size_t cannot hold them. */
    size_t (*workspace_size)(const gw_classic_options *options, const gw_classic_step *step);
    size_t (*payload_size_max)(const gw_classic_options *options, const gw_classic_step *step);
    size_t (*decode_workspace_size)(const gw_classic_frame_info *info);
    /* GW_OK, GW_ERR_NONFINITE, GW_ERR_STATE or GW_ERR_DST. Everything that can fail comes before the first
     * write to state. */
    gw_status (*encode)(gw_classic_encoding *encoding);
    /* GW_OK or GW_ERR_CORRUPT, with nothing written outside the workspace. */
    gw_status (*check)(const gw_classic_payload *payload);
    /* Follows check() of the same bytes; a payload that changed meanwhile may give other values, but no
     * access out of bounds. */
    void (*decode)(const gw_classic_payload *payload, const gw_classic_sink *sink);
} gw_classic_family;

extern const gw_classic_family gw_classic_cast, gw_classic_sparse, gw_classic_sign, gw_classic_level;

/* NULL for an unknown scheme. */
const gw_classic_family *gw_classic_family_of(gw_classic_scheme scheme);

#endif
