/*
 * Lower bounds of partial schedules for the label engine.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_LABEL_BOUNDS_H
#define GW_LABEL_BOUNDS_H

#include "label_source.h"
#include "wide.h"

/* Clocks of a partial schedule: labels.c. */
enum { GW_CLOCK_COUNT = 7 };
typedef union gw_clocks {
    struct {
        gw_plan_tick e, c, d, q, p, r;
        int64_t x; /* error so far, where the problem bounds it */
    };
    gw_plan_tick all[GW_CLOCK_COUNT];
} gw_clocks;

#define GW_CLOCKS_ZERO ((gw_clocks){.all = {0}})

typedef struct gw_suffix {
    gw_plan_tick net;         /* network time from here to the end when the network never waits */
    gw_plan_tick release;     /* end minus now when the network never delays */
    gw_plan_tick compute;     /* backprop, GPU encodes and decodes from here on */
    gw_plan_tick release_min; /* smallest release up to this entry */
} gw_suffix;

typedef struct gw_bound_line gw_bound_line;

typedef struct gw_bounds {
    const gw_label_source *source;
    int serial_tail;         /* decodes on the GPU take part and follow the serial rule */
    int serial_tail_cpu;     /* the same on the CPU */
    int64_t rate;            /* price of an error of 2^GW_RATE_SHIFT in ticks; 0: errors are free */
    gw_plan_tick *net_min;   /* [n] cheapest network step of a message that starts with tensor k */
    gw_plan_tick *gpu_min;   /* [n] the same for GPU time */
    gw_plan_vector *scratch; /* vectors of one step */
    gw_suffix *suffixes;     /* boundary k: suffix_len[k] entries from k * suffix_cap_max, ascending in net */
    uint32_t *suffix_len;    /* [n + 1] */
    gw_suffix *least;        /* [n + 1] smallest of each component at a boundary */
    uint32_t suffix_cap_max;
    gw_suffix *buckets;        /* [suffix_cap_max] */
    gw_plan_vector *row;       /* vectors of all steps from one tensor */
    gw_plan_tick *row_penalty; /* price of their errors */
    uint32_t *row_first;       /* [n + 2] */
    gw_bound_line *lines;      /* has_cpu or serial_tail_cpu only: boundary k has line_len[k] entries */
    uint32_t *line_len;        /* [n + 1] */
} gw_bounds;

/* Bytes of the arena that gw_bounds_open() takes for a cap. */
size_t gw_bounds_size(uint32_t tensor_count, uint32_t vector_count_max, int has_lines, uint32_t suffix_cap);

/* 0 when the arena is too small. rate: of gw_bounds; 0 unless the source has a bound of errors. */
int gw_bounds_open(gw_bounds *bounds, const gw_label_source *source, int64_t rate, uint32_t suffix_cap,
                   gw_arena *arena);

/* Fills the suffix frontiers with at most `cap` entries each, ignoring continuations that cannot end before
 * ub. Cost O(steps * vectors * cap). Returns 0 when the guard (NULL: none) stopped it: then the bounds must
 * not be used. */
int gw_bounds_build(gw_bounds *bounds, uint32_t cap, gw_plan_tick ub, gw_clock_guard *guard);

/* What the errors that the clocks leave may cost at most, rounded up. */
static inline gw_plan_tick gw_bounds_allowance(const gw_bounds *bounds, const gw_clocks *clocks)
{
    const int64_t left = bounds->source->problem->error_max - clocks->x;
    return gw_add_saturated(gw_mul_shift(left, bounds->rate, GW_RATE_SHIFT), 1);
}

/* No completion of the clocks at boundary k < n ends earlier than this, or than ub of gw_bounds_build(). */
gw_plan_tick gw_bounds_at(const gw_bounds *bounds, uint32_t k, const gw_clocks *clocks);

/* A weaker bound in a few operations; INT64_MAX when no continuation from k ends before ub. */
static inline gw_plan_tick gw_bounds_quick(const gw_bounds *bounds, uint32_t k, const gw_clocks *clocks)
{
    const gw_suffix *least = &bounds->least[k];
    if (bounds->suffix_len[k] == 0) {
        return INT64_MAX;
    }
    gw_plan_tick c = clocks->c + least->net;
    gw_plan_tick e = clocks->e + least->release;
    gw_plan_tick d = clocks->d + least->compute;
    gw_plan_tick longest = c > e ? c : e;
    longest = longest > d ? longest : d;
    return bounds->rate > 0 ? longest - gw_bounds_allowance(bounds, clocks) : longest;
}

/* Raises clocks to the largest values that make no difference to any continuation. */
void gw_bounds_clamp(const gw_bounds *bounds, uint32_t k, gw_clocks *clocks);

#endif
