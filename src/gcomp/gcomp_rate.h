/*
 * Rate control: what the labels, kept bits, zero masks and errors of a group are at every point of a curve.
 *
 * The points of a *family* have the quanta of one map, each one octave smaller than the one before. A value
 * then changes in a few steps from point to point: it is zero, becomes a quantum, keeps its exponent, keeps
 * mantissa bits. A table that is indexed by point counts each step once; sums over points give the counts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_RATE_H
#define GW_GCOMP_RATE_H

#include "gcomp/gcomp_encode.h"

enum {
    GW_RATE_SLOTS = GW_GCOMP_RATE_POINTS + 1, /* one more for steps that no point sees */
    /* Offsets and sizes of indices that may be negative, and the largest that count. */
    GW_RATE_KEPT_ZERO = 64,
    GW_RATE_KEPT = 256,
    GW_RATE_UP = 288,
    GW_RATE_ERROR_ZERO = 64,
    GW_RATE_ERRORS = 128
};

/* Sums of squared errors by how many octaves the quantum of point 0 is above the value, for the points at
 * which the value keeps at least its exponent, and for those at which it is below its quantum. */
typedef struct gw_rate_error {
    double times_quantum; /* abs(value) * quantum of point 0 */
    double square;        /* value^2 */
    double quantum_square;
    double below; /* the quantum is one octave above the value */
    double kept[3];
} gw_rate_error;

typedef struct gw_rate_labels {
    /* Steps by exponent field, and by octaves from quantum to value, of nonzero values. [1]: values whose
     * labels have absolute exponents even if those of the group are relative. */
    uint32_t plain[2][GW_RATE_SLOTS][256];
    uint32_t kept[2][GW_RATE_SLOTS][GW_RATE_KEPT];
    /* Steps of values that became a quantum, by its exponent field at point 0. */
    uint32_t up[GW_RATE_SLOTS][GW_RATE_UP];
    uint32_t escapes[GW_RATE_SLOTS];
} gw_rate_labels;

typedef struct gw_rate_tables {
    gw_rate_labels all;
    /* Steps of two samples, each with 64 values of every `period`: in the low 16 bits of every number the one
     * that a codebook is made from, in the high 16 bits the one that decides between relative exponents and
     * others. */
    gw_rate_labels *sample;
    size_t book_period, relative_period;
    uint64_t book_sample_len;
    /* Bytes of the zero mask, and those of the sample for a codebook; not steps */
    uint32_t mask[GW_GCOMP_RATE_POINTS][256], sample_mask[GW_GCOMP_RATE_POINTS][256];
    uint32_t chunks[GW_GCOMP_RATE_POINTS]; /* chunks that are not zero */
    uint64_t len;
    double value_square; /* sum of squares */
    gw_rate_error error[GW_RATE_ERRORS];
    double other_error[GW_GCOMP_RATE_POINTS];
} gw_rate_tables;

/* The points of one family. */
typedef struct gw_rate_family {
    uint32_t points;
    /* Exponent field of the quantum of map byte k at point 0, in the bias of the dtype:
     * ((k + base) >> 2) + offset; with `half` for a quantum larger by half an octave. */
    int32_t base, offset;
    uint32_t half;
} gw_rate_family;

/* Adds the values of a chunk. The rule is that of an encode of derived levels with a map. */
void gw_rate_count(gw_rate_tables *tables, const gw_span *chunk, const gw_round_rule *rule,
                   const gw_rate_family *family, gw_segment_place *place);

/* Turns steps into counts. */
void gw_rate_sum_steps(gw_rate_labels *labels, uint32_t points);

/* The expected squared error of all values at a point. */
double gw_rate_error_at(const gw_rate_tables *tables, const gw_round_rule *rule, uint32_t point);

#endif
