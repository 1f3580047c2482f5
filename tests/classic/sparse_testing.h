/*
 * What the tests of sparse codecs share: seeded random data, exact buffers, one call to encode or decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SPARSE_TESTING_H
#define GW_SPARSE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four headers above. */
#include <cmocka.h>

#include "gradwire/classic.h"

typedef struct sparse_rng {
    uint64_t state;
} sparse_rng;

uint32_t sparse_random(sparse_rng *rng);
uint32_t sparse_below(sparse_rng *rng, uint32_t limit);
double sparse_normal(sparse_rng *rng);

/* malloc that fails the test; every buffer has its exact size under ASan. */
void *sparse_take(size_t size);

float sparse_float(uint32_t bits);
uint32_t sparse_bits(float x);
/* Subnormals and -0 as +0. */
float sparse_flush(float x);
/* The fp32 number nearest to x; below 2^-126 +0. */
float sparse_narrow(double x);

/* Element i of an array of a dtype, as a number without subnormals and -0; and back, rounded to nearest even.
 */
float sparse_element(const void *values, gw_dtype dtype, size_t i);
uint32_t sparse_to_dtype(float x, gw_dtype dtype);

enum { SPARSE_PATTERNS = 10 };

/* Fills len elements of a dtype. */
void sparse_fill(sparse_rng *rng, void *values, gw_dtype dtype, size_t len, unsigned pattern);

/* Backends to compare: single ones that this machine has, scalar first. Returns their number. */
unsigned sparse_backends(uint32_t backends[8]);

/* A handle for these options, which must be valid. */
gw_classic sparse_handle(const gw_classic_options *options);

/* Encodes with an exact workspace into a buffer of exactly `capacity` bytes, or, for 0, of the longest frame.
 * The caller frees *frame. */
gw_status sparse_encode(const gw_classic_options *options, const gw_classic_step *step,
                        const gw_classic_source *source, size_t capacity, gw_buffer *frame);

/* Decodes a copy of the frame of exact size into values[0..len). */
gw_status sparse_decode(const gw_buffer *frame, uint32_t backends, void *values, uint64_t len, int is_sum,
                        float scale);

/* Brute force: chosen[i] = 1 for the keep_len largest magnitudes, ties to lower positions. */
void sparse_model_topk(uint8_t *chosen, const float *x, size_t len, size_t keep_len);

#endif
