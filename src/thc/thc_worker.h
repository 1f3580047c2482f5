/*
 * What the worker's calls share: their checked arguments, and phase one of a block, which phase two repeats.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_WORKER_H
#define GW_THC_WORKER_H

#include "thc/thc_handle.h"

typedef struct gw_thc_worker {
    const gw_thc_state *thc;
    gw_thc_span span;
    gw_thc_scratch scratch;
    uint32_t rank;
    size_t element_size;
    size_t pattern_count; /* per block */
    const uint8_t *values;
    float *error;
} gw_thc_worker;

/* GW_ERR_ARG (also for a rank that is too large), GW_ERR_STATE, GW_ERR_LIMIT, GW_ERR_WORKSPACE. */
gw_status gw_thc_worker_begin(gw_thc_worker *worker, const gw_thc *thc, const gw_thc_range *range,
                              const gw_thc_source *source, const gw_workspace *workspace);

/* GW_ERR_ARG unless there are values, and an error memory iff the options have error feedback. */
gw_status gw_thc_worker_check_input(const gw_thc_worker *worker);

/* x of block i, values plus error, padded with zeros, in scratch.x. */
void gw_thc_worker_load(const gw_thc_worker *worker, uint64_t i);

/* Patterns of scratch.x; by policy ZERO a non-finite block becomes zeros. Returns 0 if the block is
 * non-finite and the policy is ERROR. */
int gw_thc_worker_measure(const gw_thc_worker *worker, uint64_t i, uint32_t patterns[2]);

/* scratch.x of a block with this norm, rotated; zeros for norm 0 and marks. */
void gw_thc_worker_rotate(const gw_thc_worker *worker, uint64_t i, uint32_t own_norm, float *dst);

static inline gw_thc_stream gw_thc_worker_stream(const gw_thc_worker *worker, uint64_t i)
{
    return gw_thc_span_stream(&worker->span, i, worker->rank);
}

static inline void gw_thc_worker_fail(uint64_t *bad_block, const gw_thc_worker *worker, uint64_t i)
{
    gw_thc_report_block(bad_block, worker->span.first + i);
}

#define GW_CACHE_LINE 64u

/*
 * Prefetches quarters [from, to) of the next block's input. A block is about a page long, and hardware
 * prefetchers stop at the end of a page; the four quarters are requested between the stages of a block, so
 * that loads overlap with computation.
 */
static inline void gw_thc_worker_prefetch(const gw_thc_worker *worker, uint64_t i, unsigned from, unsigned to)
{
#if defined(__GNUC__)
    if (i + 1 >= worker->span.blocks) {
        return;
    }
    size_t at = ((size_t)i + 1) * worker->span.block_len;
    size_t quarter = gw_thc_span_len(&worker->span, i + 1) * worker->element_size / 4;
    const uint8_t *next = worker->values + at * worker->element_size;
    for (size_t byte = quarter * from; byte < quarter * to; byte += GW_CACHE_LINE) {
        __builtin_prefetch(next + byte);
    }
#else
    (void)worker;
    (void)i;
    (void)from;
    (void)to;
#endif
}

#endif
