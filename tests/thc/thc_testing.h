/*
 * What the THC tests share: seeded random data, configurations, one call to run n workers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_TESTING_H
#define GW_THC_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four headers above. */
#include <cmocka.h>

#include "gradwire/thc.h"

/* A small generator of its own, so that tests do not check Philox with Philox. */
typedef struct test_rng {
    uint64_t state;
} test_rng;

uint32_t rng_u32(test_rng *rng);
uint32_t rng_below(test_rng *rng, uint32_t limit);
double rng_uniform(test_rng *rng); /* (0, 1) */
double rng_normal(test_rng *rng);

void fill_normal(test_rng *rng, float *x, size_t len, double scale);

/* The recommended options; fails the test if there are none. */
gw_thc_options default_options(unsigned bits, uint32_t workers, int error_feedback);

/* A ready handle. */
gw_thc make_thc(const gw_thc_options *options);

/* malloc that fails the test, so that every buffer has its exact size under ASan. */
void *take(size_t size);

/* A static workspace for any handle, not aligned. */
gw_workspace any_workspace(void);

/* A workspace of exactly the size that the handle needs; the caller frees its data. */
gw_workspace take_workspace(const gw_thc *thc);

/* n workers, one tensor of len elements each (worker r at x + r * len): maxima and indices (worker r at
 * indices + r * size). Caller frees both. */
typedef struct job_output {
    uint32_t *maxima;
    uint8_t *indices;
    size_t indices_size; /* of one worker */
    size_t lanes;
    size_t lanes_size;
    uint64_t blocks;
} job_output;

job_output run_job(const gw_thc *thc, const float *x, float *error, size_t len, uint32_t workers,
                   uint32_t round);
void free_job(job_output *job);

/* Decodes `lanes` with k contributors for every block. */
gw_status decode_all(const gw_thc *thc, const job_output *job, const uint8_t *lanes, uint32_t k,
                     gw_thc_mode mode, uint32_t round, size_t len, float *out);

#endif
