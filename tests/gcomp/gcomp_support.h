/*
 * What the GCOMP tests share: random numbers, values of every kind, a model of the rounding written from
 * docs/format.md and docs/numerics.md independently of src/, and buffers with canaries.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_SUPPORT_H
#define GW_GCOMP_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gradwire/gcomp.h"

/* splitmix64: good enough for test data, the same on every machine. */
typedef struct test_random {
    uint64_t state;
} test_random;

uint64_t test_random_u64(test_random *random);
uint32_t test_random_below(test_random *random, uint32_t end);
double test_random_unit(test_random *random);   /* [0, 1) */
double test_random_normal(test_random *random); /* sum of 12 uniforms less 6 */

/* Kinds of test data. */
typedef enum test_pattern {
    PATTERN_GRADIENT, /* normal numbers over a few octaves, some zeros: mostly CODED chunks */
    PATTERN_BITS,     /* random bits: every exponent, infinities, NaN; mostly RAW */
    PATTERN_ZERO,     /* all +0 */
    PATTERN_SPARSE,   /* zeros, one chunk-wide stretch of values, a few specials */
    PATTERN_SPECIAL,  /* a gradient with some -0, subnormals, infinities and NaN of several payloads */
    PATTERN_ONE,      /* one exponent only: codebooks of one label */
    PATTERN_COUNT
} test_pattern;

/* len elements of the dtype. */
void test_fill_values(void *values, gw_dtype dtype, size_t len, test_pattern pattern, uint64_t seed);

uint32_t test_get(const void *values, gw_dtype dtype, size_t index);
void test_put(void *values, gw_dtype dtype, size_t index, uint32_t bits);
double test_value(gw_dtype dtype, uint32_t bits); /* as a number; NaN and infinity as such */
uint32_t test_bits_of_float(float x);
float test_float_of_bits(uint32_t bits);

/* A map for values of test_fill_values(): bytes that give drops of all sizes, some 0, some 255. */
typedef struct test_map {
    gw_gcomp_map map;
    uint8_t *bytes;
    uint32_t *digest;
} test_map;

void test_map_make(test_map *map, gw_dtype dtype, size_t len, uint32_t chunk_log2, uint64_t seed);
void test_map_free(test_map *map);

/* Exponent field, in fp32's bias, of the quantum of an element. Carried: the source must have quanta that are
 * within 62 octaves of each other. */
enum { TEST_NO_QUANTUM = 1 << 20 };
int test_model_quantum(const gw_gcomp_options *options, const gw_gcomp_source *source, size_t index);

/* The value that one encode and decode must give for element `index` of the source, and, if drop is not NULL,
 * the bits that the receiver finds dropped. */
uint32_t test_model_round(const gw_gcomp_options *options, const gw_gcomp_source *source, size_t index,
                          uint32_t *drop);

/* The sum that decode_add must give. */
uint32_t test_model_add(gw_dtype dtype, uint32_t a, uint32_t b, int strict);

enum { TEST_RANDOM_ROUNDS = 8 };

/* Philox4x32, independent of src/core/philox.h. */
void test_philox(uint32_t out[4], uint64_t key, const uint32_t counter[4], int rounds);

/* size bytes between two canaries, at an address that is `misalign` modulo 64. */
typedef struct test_buffer {
    uint8_t *at;
    size_t size;
    uint8_t *block;
} test_buffer;

void test_buffer_make(test_buffer *buffer, size_t size, unsigned misalign, uint8_t fill);
void test_buffer_check(const test_buffer *buffer); /* asserts that both canaries are whole */
void test_buffer_free(test_buffer *buffer);        /* checks, then frees */

/* A codec with a workspace of exactly the size that it needs. */
typedef struct test_codec {
    gw_gcomp codec;
    gw_gcomp_options options; /* as given, with step and cap resolved */
    test_buffer workspace;
    gw_workspace work; /* the same bytes */
} test_codec;

void test_codec_make(test_codec *codec, const gw_gcomp_options *options);
void test_codec_free(test_codec *codec);

/* gw_gcomp_source of values with distinct counters. */
gw_gcomp_source test_source(const void *values, size_t len, const gw_gcomp_map *map);

/* Encodes into a buffer of gw_gcomp_frame_bound() bytes, asserts success and the bound. */
size_t test_encode(const test_codec *codec, const gw_gcomp_source *source, test_buffer *frame);

/* All options of a dtype in a few numbers: the product of dtype-independent choices. */
#define TEST_ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

#endif
