/*
 * What the tests of QSGD and TERNGRAD share: random values, calls that must succeed, and a plain model of the
 * encoder written from docs/numerics-classic.md.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LEVEL_TESTING_H
#define GW_LEVEL_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gradwire/classic.h"

typedef struct lt_rng {
    uint64_t state;
} lt_rng;

uint64_t lt_random(lt_rng *rng);
uint32_t lt_below(lt_rng *rng, uint32_t n);
/* Roughly normal, standard deviation 1. */
double lt_normal(lt_rng *rng);

/* Zeroed memory. */
void *lt_take(size_t size);

float lt_float(uint32_t bits);
uint32_t lt_bits(float x);

enum { LT_PATTERNS = 7 };

/* Values of a dtype. */
void lt_values(lt_rng *rng, void *dst, gw_dtype dtype, size_t len, unsigned pattern);
/* Element i as fp32, subnormals and -0 as +0. */
float lt_load(const void *src, gw_dtype dtype, size_t i);

/* Options with these fields; checked by a handle. */
gw_classic_options lt_options(gw_classic_scheme scheme, gw_classic_coding coding, uint32_t level_max,
                              uint32_t block_len);
gw_classic lt_handle(const gw_classic_options *options);

typedef struct lt_frame {
    uint8_t *data;
    size_t size;
} lt_frame;

/* Encodes with a capacity of exactly gw_classic_frame_bound(), or of `capacity` if that is not 0. */
gw_status lt_try_encode(const gw_classic *classic, const gw_classic_step *step,
                        const gw_classic_source *source, size_t capacity, lt_frame *frame);
lt_frame lt_encode(const gw_classic *classic, const gw_classic_step *step, const gw_classic_source *source);

gw_classic_frame lt_view(const lt_frame *frame);
/* Workspace for readers of frames. */
gw_workspace lt_workspace(const lt_frame *frame);

/* Decoded values as fp32: those of an fp32 frame, or decode_add to zeros for other dtypes. */
float *lt_decode(const lt_frame *frame, size_t len);

/* What the model makes of a tensor. */
typedef struct lt_model {
    float *norms;
    int8_t *levels;
    float *values; /* decoded, fp32 */
    float *residual;
} lt_model;

/* Returns 0 if a norm is too large. */
int lt_model_make(lt_model *model, const gw_classic_options *options, const gw_classic_step *step,
                  const gw_classic_source *source);
void lt_model_free(lt_model *model);

/* Sixteen random bits of an element. */
uint32_t lt_model_random(uint64_t seed, uint32_t round, uint32_t rank, uint64_t element);

#endif
