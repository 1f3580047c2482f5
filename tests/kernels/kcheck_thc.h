/*
 * What the families of THC share: selection from their kernel table, numbers in double, the random bits by
 * the formulas of docs/numerics-thc.md, random tables and streams.
 *
 * The models compute in double and round once: for +, -, *, / and the square root of two fp32 numbers that is
 * the fp32 result, because 53 >= 2 * 24 + 2 bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KCHECK_THC_H
#define GW_KCHECK_THC_H

#include "kcheck_families.h"

#include <string.h>

enum { KCT_LANES_MAX = 8192 };

static inline float *kct_f32(uint8_t *p)
{
    return (float *)(void *)p;
}

/* Bits of a float in memory, in the machine's byte order: what every argument of type float * holds. Values
 * in a dtype and lanes are little-endian: gw_load32(), kct_lane(). */
static inline uint32_t kct_load_bits(const void *src)
{
    uint32_t bits;
    memcpy(&bits, src, sizeof bits);
    return bits;
}

static inline void kct_store_bits(void *dst, uint32_t bits)
{
    memcpy(dst, &bits, sizeof bits);
}

/* Makes both calls, the second in the processor's flush modes if `flush_mode`, and checks the memory
 * around its arrays. 0 if one of them crashed. */
int kct_both(kc_test *t, kc_call *call, void *expected, void *got, int flush_mode);

/* The case's length, at most KCT_LANES_MAX. */
size_t kct_len(const kc_test *t);

/* Guarded memory for len floats: src, and the result, which is the same array if `in_place`. */
float *kct_place(kc_test *t, const uint8_t *src, size_t len, int in_place, const float **placed);

/* fp32 numbers as numbers. */
double kct_double(uint32_t bits);
/* Rounded to fp32; magnitudes below 2^-126 become +0 where `flush`. NaN is 7fc00000. */
uint32_t kct_fp32(double x, int flush);

/* fp16 as a number, and a number in a 16-bit type of m mantissa bits, least normal exponent, exponent field
 * of infinity; canonical NaN. */
double kct_widen_fp16(uint32_t h);
uint32_t kct_narrow(double x, int m, int least, int top);

/* Compares float arrays; all NaN are equal. */
void kct_equal_floats(kc_test *t, kc_failure kind, const char *name, const uint8_t *expected,
                      const uint8_t *got, size_t len);

/* A pattern of kc_values() as floats of this machine. */
void kct_floats(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern);

/* len values as gw_thc_load_fn leaves them: a pattern of kc_values() without subnormals and -0 and, where
 * `finite`, without NaN and infinity. Returns the largest biased exponent. */
uint32_t kct_loaded(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern, int finite);

void kct_stream(kc_rng *rng, gw_thc_stream *stream);

/* One word of Philox4x32-10. */
uint32_t kct_philox(const gw_thc_stream *stream, uint32_t counter, uint32_t last, unsigned word);

/* A valid table of `bits`; value[] as in gw_thc_quantizer, rest 0. Returns the granularity. */
uint32_t kct_table(kc_rng *rng, uint8_t table[16], unsigned bits);

/* Whether a case of a transform is left out. Its length follows from the config alone, so that lengths only
 * repeat it: quick runs take every ninth, which still brings every pattern to every config. */
int kct_repeats(const kc_test *t);

/* Lanes for a case: powers of two 64..8192 by config, or 64 times something by the case's length. */
size_t kct_power(const kc_test *t);
size_t kct_lanes(const kc_test *t, size_t most);

/* A lane of 8, 16 or 32 bits. */
uint32_t kct_lane(const uint8_t *lanes, size_t i, unsigned lane_bits);
void kct_put_lane(uint8_t *lanes, size_t i, unsigned lane_bits, uint32_t value);

/* Where value i of a packed group of 64 has its bit `bit`: bit number from the start of the group. */
unsigned kct_bit_place(unsigned i, unsigned bit, unsigned bits);

#endif
