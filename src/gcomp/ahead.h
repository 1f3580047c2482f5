/*
 * Fetching memory ahead of its use, a few lines at a time between calls of kernels: all at once would fill
 * the processor's queues of misses and hold up the work that is to hide them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_AHEAD_H
#define GW_AHEAD_H

#include "core/bytes.h"

/* Into the second cache: what is fetched waits for a chunk's time. An address without memory behind it does
 * no harm. */
#if defined(__GNUC__)
#define GW_PREFETCH(at) __builtin_prefetch((at), 0, 2)
#else
#define GW_PREFETCH(at) ((void)(at))
#endif

enum { GW_AHEAD_LINE = 64 };

typedef struct gw_ahead {
    const uint8_t *at;
    size_t lines;  /* that are left */
    size_t rate;   /* lines for a unit of work, in 1/65536 */
    size_t credit; /* the same, for work that is done */
} gw_ahead;

/* at[0..size) is to be fetched in step with `work` units, of whatever kind. */
static inline gw_ahead gw_ahead_begin(const void *at, size_t size, size_t work)
{
    gw_ahead a = {(const uint8_t *)at, size / GW_AHEAD_LINE, 0, 0};
    a.rate = work == 0 ? 0 : (a.lines << 16) / work + 1;
    return a;
}

/* Called before so much work is done. */
static inline void gw_ahead_step(gw_ahead *a, size_t work)
{
    a->credit += a->rate * work;
    for (; a->credit >> 16 != 0 && a->lines != 0;
         a->credit -= (size_t)1 << 16, a->lines--, a->at += GW_AHEAD_LINE) {
        GW_PREFETCH(a->at);
    }
}

#endif
