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

/* Room for `count` more events that wait at a time. GW_ERR_LIMIT without memory. And gives it back. */
gw_status gw_runtime_reserve(gw_runtime *runtime, size_t count);
void gw_runtime_unreserve(gw_runtime *runtime, size_t count);
/* *waiting: events of one sender that were not taken, which must be fewer than it has reserved. */
void gw_runtime_post(gw_runtime *runtime, const gw_runtime_event *event, size_t *waiting);
/* Takes one event of that sender back. 0: there is none. */
int gw_runtime_unpost(gw_runtime *runtime, const size_t *waiting, gw_runtime_event *event);

/* Waits, giving up the lock, until *count is 0; and wakes those who wait so. */
void gw_runtime_wait_zero(gw_runtime *runtime, const size_t *count);
void gw_runtime_signal_zero(gw_runtime *runtime);

/* Without the lock: CPU time of the calling thread in nanoseconds. */
uint64_t gw_runtime_clock(void);

#endif
