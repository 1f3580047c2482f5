/*
 * Every one of the 2^32 fp32 bit patterns through a strict encode and decode at drop 0, and through a default
 * one.
 *
 *   long_fp32_patterns [FRAMES]     number of 2^24-value frames of each pass, 256 (all patterns) by default
 *
 * Three orders, each a bijection: ascending (a chunk holds one sign and exponent), interleaved (a chunk holds
 * 32 exponents, so its codebook has many labels and it is still CODED) and scattered (all exponents; 32
 * random bits cannot be packed, so its chunks are RAW). Four ways to say "drop nothing": explicit and
 * derived, each with the constant 0 and with a map whose bytes are all 0. Exit status 1 with the first wrong
 * pattern on stderr.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gradwire/gcomp.h"

#define FRAME_LEN ((size_t)1 << 24)
#define SCATTER   0x9e3779b1u /* odd: multiplication modulo a power of two is a bijection */

enum order { ASCENDING, INTERLEAVED, SCATTERED };

typedef struct buffers {
    uint32_t *values, *decoded;
    uint8_t *map_bytes;
    uint32_t *digest;
    gw_buffer frame;
    gw_workspace workspace;
} buffers;

typedef struct pass {
    const char *name;
    gw_gcomp_quantum_mode quantum_mode;
    int has_map, strict;
    enum order order;
} pass;

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What docs/numerics.md section 3 says about drop 0: default mode writes subnormals and -0 as +0 and nothing
 * else. */
static uint32_t expected(uint32_t bits, int strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

static uint32_t pattern_of(uint32_t index, enum order order)
{
    switch (order) {
    case INTERLEAVED: /* bits 0..4 become the low exponent bits, bits 5..27 a scattered mantissa */
        return (index & 31) << 23 | ((index >> 5) * SCATTER & 0x7fffff) | (index & 0xf0000000u);
    case SCATTERED:
        return index * SCATTER;
    default:
        return index;
    }
}

static int run_frame(const pass *p, const gw_gcomp *codec, buffers *b, uint32_t frame_index, uint64_t *bytes)
{
    const uint32_t first = frame_index << 24;
    for (uint32_t i = 0; i < FRAME_LEN; i++) {
        b->values[i] = pattern_of(first + i, p->order);
    }
    gw_gcomp_map map = {b->map_bytes, b->digest, 600, 1.0f, FRAME_LEN, 14};
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = b->values;
    source.len = FRAME_LEN;
    source.quantum = gw_gcomp_quantum_of_map(p->has_map ? &map : NULL);
    gw_status status = gw_gcomp_encode(codec, &source, &b->frame, &b->workspace);
    if (status != GW_OK) {
        fprintf(stderr, "%s, frame %" PRIu32 ": encode: %s\n", p->name, frame_index, gw_status_name(status));
        return 0;
    }
    *bytes += b->frame.size;
    memset(b->decoded, 0xa5, FRAME_LEN * 4);
    gw_gcomp_target target = {.values = b->decoded, .capacity = FRAME_LEN};
    status = gw_gcomp_decode(
        codec, &(gw_gcomp_frame){.data = b->frame.data, .size = b->frame.size, .map = source.quantum.map},
        &target, &b->workspace);
    if (status != GW_OK || target.len != FRAME_LEN) {
        fprintf(stderr, "%s, frame %" PRIu32 ": decode: %s\n", p->name, frame_index, gw_status_name(status));
        return 0;
    }
    for (size_t i = 0; i < FRAME_LEN; i++) {
        if (b->decoded[i] != expected(b->values[i], p->strict)) {
            fprintf(stderr, "%s: pattern %08" PRIx32 " came back as %08" PRIx32 "\n", p->name, b->values[i],
                    b->decoded[i]);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    static const pass passes[] = {
        {"explicit, constant, strict, ascending", GW_GCOMP_EXPLICIT, 0, 1, ASCENDING},
        {"explicit, constant, strict, interleaved", GW_GCOMP_EXPLICIT, 0, 1, INTERLEAVED},
        {"explicit, map, strict, interleaved", GW_GCOMP_EXPLICIT, 1, 1, INTERLEAVED},
        {"explicit, constant, strict, scattered", GW_GCOMP_EXPLICIT, 0, 1, SCATTERED},
        {"derived, constant, strict, ascending", GW_GCOMP_DERIVED, 0, 1, ASCENDING},
        {"derived, constant, strict, interleaved", GW_GCOMP_DERIVED, 0, 1, INTERLEAVED},
        {"derived, map, strict, interleaved", GW_GCOMP_DERIVED, 1, 1, INTERLEAVED},
        {"explicit, constant, default, ascending", GW_GCOMP_EXPLICIT, 0, 0, ASCENDING},
        {"derived, constant, default, interleaved", GW_GCOMP_DERIVED, 0, 0, INTERLEAVED},
    };
    const uint32_t frames = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 256;
    if (frames == 0 || frames > 256) {
        fprintf(stderr, "usage: long_fp32_patterns [1..256]\n");
        return 2;
    }
    printf("| levels, drop 0 from, mode, order | patterns | bytes a value | seconds | result "
           "|\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        const pass *p = &passes[i];
        gw_gcomp_options options;
        gw_gcomp_options_init(&options, GW_FP32);
        options.quantum_mode = p->quantum_mode;
        options.strict = p->strict;
        gw_gcomp codec;
        if (gw_gcomp_init(&codec, &options) != GW_OK) {
            return 1;
        }
        buffers b;
        b.frame.capacity = gw_gcomp_frame_bound(&codec, FRAME_LEN);
        b.workspace.size = gw_gcomp_workspace_size(&codec);
        b.values = malloc(FRAME_LEN * 4);
        b.decoded = malloc(FRAME_LEN * 4);
        b.frame.data = malloc(b.frame.capacity);
        b.map_bytes = calloc(FRAME_LEN, 1);
        b.workspace.data = malloc(b.workspace.size);
        b.digest = malloc(FRAME_LEN >> 14 << 2);
        if (b.values == NULL || b.decoded == NULL || b.frame.data == NULL || b.map_bytes == NULL ||
            b.workspace.data == NULL || b.digest == NULL ||
            gw_gcomp_map_digest(b.map_bytes, FRAME_LEN, 14, b.digest) != GW_OK) {
            fprintf(stderr, "out of memory\n");
            return 1;
        }
        const double start = now();
        uint64_t bytes = 0;
        int ok = 1;
        for (uint32_t f = 0; ok && f < frames; f++) {
            ok = run_frame(p, &codec, &b, f, &bytes);
        }
        const double patterns = (double)frames * (double)FRAME_LEN;
        printf("| %s | %.0f | %.4f | %.0f | %s |\n", p->name, patterns, (double)bytes / patterns,
               now() - start, ok ? "exact" : "WRONG");
        fflush(stdout);
        free(b.values);
        free(b.decoded);
        free(b.frame.data);
        free(b.map_bytes);
        free(b.workspace.data);
        free(b.digest);
        if (!ok) {
            return 1;
        }
    }
    return 0;
}
