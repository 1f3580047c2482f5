/*
 * What the tests of the classic codecs share: handles, exact buffers, one call to encode and decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CLASSIC_TESTING_H
#define GW_CLASSIC_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four headers above. */
#include <cmocka.h>

#include "gradwire/classic.h"

typedef struct ct_rng {
    uint64_t state;
} ct_rng;

uint32_t ct_u32(ct_rng *rng);
uint32_t ct_below(ct_rng *rng, uint32_t limit);
/* About normal, with zeros, -0, subnormals and large values among them if `mixed`. Finite. */
void ct_fill(ct_rng *rng, float *x, size_t len, int mixed);

/* malloc that fails the test, of at least one byte, so that every buffer has its exact size under ASan. */
void *ct_take(size_t size);

/* A handle; `change` may be NULL. */
gw_classic ct_make(gw_classic_scheme scheme, void (*change)(gw_classic_options *options));

/* Workspace of exactly the size for a step, or for a frame, at an odd address. The caller frees data - 1. */
gw_workspace ct_workspace(const gw_classic *classic, const gw_classic_step *step);
gw_workspace ct_frame_workspace(const void *frame, size_t size);
void ct_free_workspace(gw_workspace *workspace);

/* Encodes into memory of exactly the maximal size, with the status; the caller frees dst->data. */
gw_status ct_encode(const gw_classic *classic, const gw_classic_step *step, const gw_classic_source *source,
                    gw_buffer *dst);

/* Decodes a frame into memory of exactly its values, which the caller frees; *status may be NULL: must be
 * GW_OK. */
void *ct_decode(const gw_buffer *frame, uint32_t backends, float scale, uint64_t len, gw_status *status);

/* gw_classic_frame_check() and gw_classic_decode() of these bytes, which must agree; the values are all zeros
 * if the payload is bad, untouched if the header is. */
gw_status ct_check(const uint8_t *bytes, size_t size, uint64_t len_max);

/* The step of a tensor: element 1000 on, round 5, rank 3. */
gw_classic_step ct_step(uint64_t len);

/* Every backend alone, and all: masks, ended by 0. */
extern const uint32_t ct_backends[];

uint32_t ct_bits(float x);
float ct_float(uint32_t bits);

#endif
