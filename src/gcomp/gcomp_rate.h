/*
 * Rate control: what the labels, kept bits, zero masks and errors of a chunk are at every point of a curve.
 *
 * The points of a *family* have the quanta of one map, each one octave smaller than the one before. A value
 * then changes in a few steps from point to point: it is zero, becomes a quantum, keeps its exponent, keeps
 * mantissa bits. A table that is indexed by point counts each step once; sums over points give the counts.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_RATE_H
#define GW_GCOMP_RATE_H

#include "gcomp/gcomp_encoding.h"

enum {
    GW_RATE_SLOTS = GW_GCOMP_RATE_POINTS + 1, /* one more for steps that no point sees */
    /* Offsets and sizes of indices that may be negative, and the largest that count. */
    GW_RATE_KEPT_ZERO = 24, /* more than the last point */
    GW_RATE_KEPT = 280,     /* 254 octaves from the smallest quantum to the largest value */
    GW_RATE_BITS = 32,
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

/* What the values of a chunk, or of several, add up to. */
typedef struct gw_rate_counts {
    gw_rate_labels labels;
    uint32_t mask[GW_GCOMP_RATE_POINTS][256]; /* bytes of the zero mask; not steps */
    /* By kept bits: values with a label by exponent that the codebook lacks (gw_rate_tables.missed); not
     * steps */
    uint32_t missed[GW_GCOMP_RATE_POINTS][GW_RATE_BITS];
    uint64_t len;     /* of the chunks */
    uint64_t counted; /* of these, values that were not left out */
} gw_rate_counts;

/* Sums of squares and of squared errors. */
typedef struct gw_rate_errors {
    double value_square;
    gw_rate_error error[GW_RATE_ERRORS];
    double other_error[GW_GCOMP_RATE_POINTS];
} gw_rate_errors;

typedef struct gw_rate_tables {
    gw_rate_counts counts;
    gw_rate_errors errors;
    /* Not NULL: only the values of the sample for a codebook are counted, 64 of every codebook_period, and
     * among them, here, 64 of every relative_period: the sample that decides between relative exponents and
     * others. Both count from the first value. */
    gw_rate_labels *relative_sample;
    size_t codebook_period, relative_period;
    /* By point: the codebook of the group, and whether a chunk has it already. */
    gw_codebook codebook[GW_GCOMP_RATE_POINTS];
    uint8_t has_owner[GW_GCOMP_RATE_POINTS];
    /* By exponent field, for both sides of gw_rate_labels.plain: bit i is set if the codebook of point i has
     * no code for the label that the exponent has there. */
    uint32_t missed[2][256];
} gw_rate_tables;

/* The points of one family. */
typedef struct gw_rate_family {
    uint32_t points;
    /* Exponent field of the quantum of map byte k at point 0, in the bias of the dtype:
     * ((k + base) >> 2) + offset; with `half` for a quantum larger by half an octave. */
    int32_t base, offset;
    uint32_t half;
} gw_rate_family;

/* Adds the values of a chunk, or those of the sample. The rule is that of an encode of derived quanta with a
 * map. */
void gw_rate_count(gw_rate_tables *tables, const gw_span *chunk, const gw_round_rule *rule,
                   const gw_rate_family *family, gw_segment_place *place);

/* Turns steps into counts. */
void gw_rate_sum_steps(gw_rate_labels *labels, uint32_t points);

/* The expected squared error of all values at a point. */
double gw_rate_error_at(const gw_rate_errors *errors, const gw_round_rule *rule, uint32_t point);

#endif
