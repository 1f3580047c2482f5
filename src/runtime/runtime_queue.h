/* What pool.c and exchange.c share: tasks, and the lock that guards them and the state of all exchanges. */
#ifndef GRADWIRE_POOL_QUEUE_H
#define GRADWIRE_POOL_QUEUE_H

#include "pool.h"

/* In order of urgency: the owner's step is what other ranks wait for, and nobody waits for a map. */
enum { GW_TASK_REDUCE, GW_TASK_ENCODE, GW_TASK_DECODE, GW_TASK_BUILD, GW_TASK_SCAN, GW_TASK_KINDS };

/* One step of one piece. Each exists once per exchange, so the queue needs no memory of its own. */
typedef struct gw_task {
    struct gw_task *next;
    gw_exchange *exchange;
    uint32_t piece;
    uint32_t kind;
} gw_task;

/* Runs a task on a thread of the pool, without the lock. */
void gw_exchange_task(const gw_task *task, const gw_workspace *workspace);

void gw_pool_lock(gw_pool *pool);
void gw_pool_unlock(gw_pool *pool);

/* The following need the lock. */
void gw_pool_push(gw_pool *pool, gw_task *task);
/* Room for `count` events that are still to be posted. GW_ERR_LIMIT without memory. */
gw_status gw_pool_reserve(gw_pool *pool, size_t count);
/* Gives back what was reserved and not posted. */
void gw_pool_release(gw_pool *pool, size_t count);
/* Uses up one reservation, so it cannot fail. */
void gw_pool_post(gw_pool *pool, const gw_pool_event *event);
/* Waits, giving up the lock, until *count is 0; and wakes those who wait so. */
void gw_pool_wait_zero(gw_pool *pool, const size_t *count);
void gw_pool_signal_zero(gw_pool *pool);

/* CPU time of the calling thread in nanoseconds. */
uint64_t gw_pool_clock(void);

#endif
