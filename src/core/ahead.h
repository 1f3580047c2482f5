/*
 * Prefetch of memory a few lines at a time between calls of kernels. All at once would fill the processor's
 * miss queues and stall the work that should hide the misses.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_AHEAD_H
#define GW_AHEAD_H

#include "core/bytes.h"

/* Into the second-level cache: the lines are used about one chunk later. An unmapped address does no harm. */
#if defined(__GNUC__)
#define GW_PREFETCH(at) __builtin_prefetch((at), 0, 2)
#else
#define GW_PREFETCH(at) ((void)(at))
#endif

enum { GW_AHEAD_LINE = 64 };

typedef struct gw_ahead {
    const uint8_t *at;
    size_t lines;  /* still to be fetched */
    size_t rate;   /* lines per unit of work, in 1/65536 */
    size_t credit; /* lines that are due, in 1/65536 */
} gw_ahead;

/* Spreads the prefetch of at[0..size) over `work` units of any kind. */
static inline gw_ahead gw_ahead_begin(const void *at, size_t size, size_t work)
{
    gw_ahead a = {(const uint8_t *)at, size / GW_AHEAD_LINE, 0, 0};
    a.rate = work == 0 ? 0 : (a.lines << 16) / work + 1;
    return a;
}

/* To be called before each `work` units. */
static inline void gw_ahead_step(gw_ahead *a, size_t work)
{
    a->credit += a->rate * work;
    for (; a->credit >> 16 != 0 && a->lines != 0;
         a->credit -= (size_t)1 << 16, a->lines--, a->at += GW_AHEAD_LINE) {
        GW_PREFETCH(a->at);
    }
}

#endif
