/*
 * What the tests of the CUDA calls share: the fake driver, device memory, comparison.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_TESTING_H
#define GW_CUDA_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_driver.h"
#include "gradwire/cuda.h"

/* The driver's switches, reset to those of a machine with one device. */
gw_fake_control *testing_control(void);

/* A handle under these switches; the test fails if there is none. */
void testing_open(gw_cuda *cuda);

/* Device memory of exactly `size` bytes that starts `offset` bytes after a multiple of 256, with a copy of
 * src (may be NULL: unspecified). Released by testing_free_all(). */
void *testing_device(const void *src, size_t size, size_t offset);
void testing_free_all(void);

/* Waits for everything, and reads. */
void testing_sync(void);
gw_cuda_result testing_result(const gw_cuda_result *result);

/* A driver function by name. */
void *testing_driver_function(const char *name);

/* Random numbers of the tests: SplitMix64. */
uint64_t testing_random(uint64_t *state);

/* Random patterns of a dtype: values of all sizes, zeros, subnormals; one in 2^nonfinite_log2 is NaN or
 * infinite (0: none).
 */
void testing_values(void *dst, gw_dtype dtype, size_t len, unsigned nonfinite_log2, uint64_t *random);

#endif
