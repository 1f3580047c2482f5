/*
 * What the exchange needs of the queue beside gradwire/runtime.h: the lock, which guards the state of all
 * exchanges too, and events.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RUNTIME_QUEUE_H
#define GW_RUNTIME_QUEUE_H

#include "gradwire/runtime.h"

void gw_runtime_lock(gw_runtime *runtime);
void gw_runtime_unlock(gw_runtime *runtime);

/* The following need the lock. */

void gw_runtime_push(gw_runtime *runtime, gw_runtime_task *task);
size_t gw_runtime_remove(gw_runtime *runtime, const void *owner);

/* An event on its way. It must stay in place, and not be posted again, until it is taken. */
typedef struct gw_runtime_posted gw_runtime_posted;
struct gw_runtime_posted {
    gw_runtime_posted *next;
    gw_runtime_event event;
    size_t *waiting; /* events of one sender that were not taken */
};
void gw_runtime_post(gw_runtime *runtime, gw_runtime_posted *posted);
/* Takes one event of that sender back. NULL: there is none. */
gw_runtime_posted *gw_runtime_unpost(gw_runtime *runtime, const size_t *waiting);

/* Waits, giving up the lock, until *count is 0; and wakes those who wait so. */
void gw_runtime_wait_zero(gw_runtime *runtime, const size_t *count);
void gw_runtime_signal_zero(gw_runtime *runtime);

/* Without the lock: CPU time of the calling thread in nanoseconds. */
uint64_t gw_runtime_clock(void);

#endif
