/*
 * pool.h: threads that run the steps of collective.h for callers that have none of their own, such as Python.
 *
 * A *pool* is a set of threads and a queue of *events*. An *exchange* is a bucket with everything that its
 * collective operations need: layout, codecs, map and the memory of messages. The caller moves the messages:
 *
 *   gw_exchange_start()      -> events SEND: this piece is encoded, send it to its owner
 *   gw_exchange_receive()    <- a message has arrived; the last one of a piece starts the owner's step
 *                            -> events SHARE: this piece is summed, send it to all others
 *   gw_exchange_receive()    <- the finished piece of another owner
 *                            -> event DONE: all pieces are in place
 *
 * and, at another time, gw_exchange_map_start() -> event MAP. A step that fails puts a notice in place of its
 * frame, so every message is sent whatever happens, and DONE carries the worst outcome.
 *
 * Threads: all calls on a pool are safe from any thread. Calls on one exchange are safe at the same time
 * unless one of them is start, map_start, memory or close.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_POOL_H
#define GRADWIRE_POOL_H

#include "gradwire/abi.h"
#include "gradwire/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -----------------------------------------------------------------------------------------------------------
 * Pool
 * -------------------------------------------------------------------------------------------------------- */

#define GW_POOL_THREADS_MAX 256u

typedef struct gw_pool gw_pool;

/* Starts thread_count threads, 1..GW_POOL_THREADS_MAX. GW_OK; GW_ERR_ARG; GW_ERR_LIMIT (no memory, or the
 * system gives no more threads): *pool is NULL. */
GW_API GW_MUST_CHECK gw_status gw_pool_open(uint32_t thread_count, gw_pool **pool);

/* Ends the threads and frees the pool. All of its exchanges must be closed, and no other thread may be inside
 * a call on it. NULL is ignored. */
GW_API void gw_pool_close(gw_pool *pool);

typedef enum gw_pool_event_kind {
    GW_POOL_POKE = 1,  /* gw_pool_poke() was called, once or several times */
    GW_POOL_MAP = 2,   /* a map is built; word: its outcome, as of gw_collective_word() */
    GW_POOL_SEND = 3,  /* offset, size: the message of `piece` for its owner */
    GW_POOL_SHARE = 4, /* offset, size: the finished `piece` for all other ranks */
    GW_POOL_DONE = 5   /* the operation has ended on this rank; word: its outcome */
} gw_pool_event_kind;

typedef struct gw_pool_event {
    uint64_t cookie; /* of the exchange; 0 for POKE */
    uint32_t kind;   /* gw_pool_event_kind */
    uint32_t piece;
    uint64_t offset; /* bytes in the exchange's memory */
    uint64_t size;   /* bytes; never 0 for SEND and SHARE */
    uint64_t word;
} gw_pool_event;

/* Takes up to `capacity` events, oldest first, and returns their number. Waits until there is one, at most
 * timeout_ms milliseconds (negative: no limit); 0 if there is none by then, or for NULL. */
GW_API size_t gw_pool_wait(gw_pool *pool, gw_pool_event *events, size_t capacity, int timeout_ms);

/* Makes gw_pool_wait() return with an event POKE. */
GW_API void gw_pool_poke(gw_pool *pool);

/* -----------------------------------------------------------------------------------------------------------
 * Exchange
 * -------------------------------------------------------------------------------------------------------- */

typedef struct gw_exchange gw_exchange;

/* Set to zeros, then fill in. */
typedef struct gw_exchange_config {
    gw_collective_shape shape;
    uint32_t rank;
    uint32_t contribution_bits; /* as in gw_collective_bucket */
    gw_gcomp_options codec;     /* while the ranks have equal maps, or without maps */
    gw_gcomp_options spare;     /* while they have not: explicit or carried levels */
    uint64_t cookie;            /* comes back in events; not 0 */
    uint64_t seed;              /* of exchanges without segments */
} gw_exchange_config;

/* GW_OK; GW_ERR_ARG; GW_ERR_LIMIT (no memory), and the statuses of gw_collective_layout_init() and
 * gw_gcomp_init(): *exchange is NULL. */
GW_API GW_MUST_CHECK gw_status gw_exchange_open(gw_pool *pool, const gw_exchange_config *config,
                                                gw_exchange **exchange);

/* Waits for what the threads still do for it, then frees it. Events that were not taken stay in the queue.
 * NULL is ignored. */
GW_API void gw_exchange_close(gw_exchange *exchange);

/* Where the messages are. `own` and `from` are ranks; offsets are in bytes from the start of the memory. */
typedef struct gw_exchange_info {
    gw_collective_layout layout;
    uint64_t memory_size;   /* bytes of memory for messages. Most of it is never touched: frames are smaller
                               than their bounds */
    uint64_t message_bound; /* bytes to post receives with */
    uint64_t digest_len;
} gw_exchange_info;
GW_API void gw_exchange_info_get(const gw_exchange *exchange, gw_exchange_info *info);

/* The memory of messages, memory_size bytes, the caller's; needed before start. It stays in use until the
 * exchange is closed. */
GW_API void gw_exchange_memory(gw_exchange *exchange, void *memory);

/* Offset at which the message is to be received: the contribution of rank `from` if this rank owns the piece,
 * else the finished piece (`from` is not read). UINT64_MAX: no such message, an empty piece included. */
GW_API uint64_t gw_exchange_slot(const gw_exchange *exchange, uint32_t piece, uint32_t from);

/*
 * Builds the map and the random streams of the bucket. Ends with the event MAP.
 *
 *   - segments, their rules and arrays: unchanged until the event
 *   - wire_scale: that of the rules
 *   - GW_OK; GW_ERR_ARG; GW_ERR_STATE (a map is being built or an operation runs): there is no event
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_start(gw_exchange *exchange,
                                                     const gw_collective_segments *segments,
                                                     float wire_scale);

/* gw_collective_map_words() of the finished map. GW_ERR_STATE if there is none. */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_words(const gw_exchange *exchange,
                                                     uint64_t words[GW_COLLECTIVE_MAP_WORDS]);

typedef enum gw_exchange_flags {
    GW_EXCHANGE_SPARE = 1,   /* use the spare codec */
    GW_EXCHANGE_SCATTER = 2, /* reduce-scatter: stop at the sum, which the owner gets; no SHARE */
    GW_EXCHANGE_SAMPLE = 4   /* measure the errors of fp32 contributions */
} gw_exchange_flags;

/* What one operation works on. Set to zeros, then fill in. */
typedef struct gw_exchange_run {
    const void *values; /* shape.len elements: this rank's contribution. Unchanged until DONE if result does
                           not overlap it */
    void *result; /* all-reduce: shape.len elements, may be `values`. Scatter: the values of this rank's shard
                     only, and it may be their place in `values` */
    float scale;  /* every value of the result is multiplied by it once; 0 and 1: not */
    uint32_t step_index;
    uint32_t flags; /* gw_exchange_flags */
} gw_exchange_run;

/* GW_OK; GW_ERR_ARG; GW_ERR_STATE (no memory, or still busy): there are no events. */
GW_API GW_MUST_CHECK gw_status gw_exchange_start(gw_exchange *exchange, const gw_exchange_run *run);

/* A message lies at gw_exchange_slot(exchange, piece, from). Its size is found from its contents. Once per
 * message and operation: GW_ERR_ARG for a message that does not exist, GW_ERR_STATE for one too many. */
GW_API GW_MUST_CHECK gw_status gw_exchange_receive(gw_exchange *exchange, uint32_t piece, uint32_t from);

/* Sums over all operations since the exchange was opened. Seconds are CPU time of the pool's threads. */
typedef struct gw_exchange_stats {
    uint64_t sent_size;     /* bytes of messages, once per receiver */
    uint64_t received_size; /* bytes of messages */
    uint64_t map_ns, encode_ns, reduce_ns, decode_ns;
    uint64_t operations;
    double sample_square; /* GW_EXCHANGE_SAMPLE: sum of squares of the values in contributions to others */
    double sample_error;  /* and of what their frames changed */
} gw_exchange_stats;
GW_API void gw_exchange_stats_get(gw_exchange *exchange, gw_exchange_stats *stats);

/* The structs of this header for callers in other languages, as gw_abi_structs() has the library's. */
GW_API const gw_abi_struct *gw_pool_structs(size_t *count);

#ifdef __cplusplus
}
#endif

#endif
