/*
 * runtime.h: threads that run the steps of collective.h, and the order in which they run. A library of its
 * own (gradwire-runtime), which needs C11 and POSIX threads.
 *
 * A *runtime* is a set of worker threads, a queue of *tasks* by priority and a queue of *events*. An
 * *exchange* is a bucket with everything that its all-reduce or reduce-scatter needs: layout, codecs, map,
 * and what each piece waits for. The caller is the transport: it moves messages, in any order, and nothing
 * here opens a socket.
 *
 *   gw_exchange_start()      -> events SEND: this piece is encoded, send it to its owner
 *   gw_exchange_receive()    <- a message has arrived; the last one of a piece starts the owner's step
 *                            -> events SHARE: this piece is summed, send it to all others
 *   gw_exchange_receive()    <- the finished piece of another owner
 *                            -> event DONE: all pieces are in place
 *
 * and, at another time, gw_exchange_map_start() -> event MAP. A step that fails sends a notice in place of
 * its frame, so every message is sent whatever happens, and DONE carries the worst outcome that this rank
 * knows. The maximum of all ranks' words is the outcome for all (gw_collective_word_outcome()). A transport
 * that loses a rank calls gw_exchange_stop().
 *
 * Rules of this header:
 *   - Memory is allocated by gw_runtime_open() and gw_exchange_open() only.
 *   - Calls on a runtime are safe from any threads at once, but close. Calls on one exchange as well, unless
 *     one of them is start, map_start, memory or close, or two are stop.
 *   - Threads of the runtime block all signals. Their stack is the system's default.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_RUNTIME_H
#define GRADWIRE_RUNTIME_H

#include "gradwire/abi.h"
#include "gradwire/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -----------------------------------------------------------------------------------------------------------
 * Runtime
 * -------------------------------------------------------------------------------------------------------- */

#define GW_RUNTIME_THREADS_MAX 256u

typedef struct gw_runtime gw_runtime;

/* Set to zeros, then fill in. */
typedef struct gw_runtime_options {
    uint32_t thread_count; /* at most GW_RUNTIME_THREADS_MAX. 0: tasks run in gw_runtime_work() only */
    size_t workspace_size; /* bytes for the tasks of each thread. 0: enough for GCOMP with any options */
} gw_runtime_options;

/* Starts the threads. GW_OK, also with fewer threads than asked for if the system gives no more:
 * gw_runtime_thread_count() tells. GW_ERR_ARG; GW_ERR_LIMIT (no memory, or not one thread): *runtime is
 * NULL. */
GW_API GW_MUST_CHECK gw_status gw_runtime_open(const gw_runtime_options *options, gw_runtime **runtime);
GW_API uint32_t gw_runtime_thread_count(const gw_runtime *runtime);

/* Ends the threads and frees the runtime. All of its exchanges must be closed, all other tasks have run or be
 * withdrawn, and no other thread may be inside a call on it. NULL is ignored. */
GW_API void gw_runtime_close(gw_runtime *runtime);

/* Priorities of tasks, the most urgent first. An owner's sum is what other ranks wait for; nobody waits for a
 * map, but one that is half built is finished before others are begun. */
typedef enum gw_runtime_priority {
    GW_RUNTIME_PRIORITY_REDUCE = 0,
    GW_RUNTIME_PRIORITY_ENCODE = 1,
    GW_RUNTIME_PRIORITY_DECODE = 2,
    GW_RUNTIME_PRIORITY_MAP = 3,
    GW_RUNTIME_PRIORITY_SCAN = 4
} gw_runtime_priority;

/* A task of the caller's own: the first member of a larger struct, say. Set to zeros, then fill in; the
 * caller's memory, which stays in place until the task has run. */
typedef struct gw_runtime_task gw_runtime_task;
struct gw_runtime_task {
    gw_runtime_task *next; /* the queue's */
    /* Called once, by any thread that runs tasks. The task may be submitted again, or freed, inside. */
    void (*run)(gw_runtime_task *task, const gw_workspace *workspace);
    void *owner;       /* for gw_runtime_withdraw(), or NULL */
    uint32_t priority; /* gw_runtime_priority. Within one, tasks run in the order of their submission */
};

/* Queues a task that is not queued. GW_OK; GW_ERR_ARG (no function, or a priority that does not exist). */
GW_API GW_MUST_CHECK gw_status gw_runtime_submit(gw_runtime *runtime, gw_runtime_task *task);

/* Runs the most urgent task in the calling thread, with the caller's workspace, and returns 1; 0 if none is
 * queued. Tasks of exchanges need gw_gcomp_workspace_size() of their codecs. */
GW_API int gw_runtime_work(gw_runtime *runtime, const gw_workspace *workspace);

/* Takes all tasks of an owner out of the queue and returns their number. Those that run already go on. */
GW_API size_t gw_runtime_withdraw(gw_runtime *runtime, const void *owner);

typedef enum gw_runtime_event_kind {
    GW_RUNTIME_WAKE = 1,  /* gw_runtime_wake() was called, once or several times */
    GW_RUNTIME_MAP = 2,   /* a map is built; word: its outcome */
    GW_RUNTIME_SEND = 3,  /* data, size: the message of `piece` for its owner; word: outcome of the step */
    GW_RUNTIME_SHARE = 4, /* data, size: the finished `piece` for all other ranks; word: as for SEND */
    GW_RUNTIME_DONE = 5   /* the operation has ended on this rank; word: its outcome */
} gw_runtime_event_kind;

/* Words are those of gw_collective_word_write(). */
typedef struct gw_runtime_event {
    uint64_t user; /* of the exchange; 0 for WAKE */
    uint32_t kind; /* gw_runtime_event_kind */
    uint32_t piece;
    void *data;      /* see gw_exchange_buffers */
    uint64_t offset; /* of data in the memory of gw_exchange_memory() */
    uint64_t size;   /* bytes; never 0 for SEND and SHARE */
    uint64_t word;
} gw_runtime_event;

/* Takes up to `capacity` events, oldest first, and returns their number. Waits until there is one, at most
 * timeout_ms milliseconds (negative: no limit; 0: not at all); 0 if there is none by then, or for NULL. */
GW_API size_t gw_runtime_wait(gw_runtime *runtime, gw_runtime_event *events, size_t capacity, int timeout_ms);

/* Makes gw_runtime_wait() return with an event WAKE. */
GW_API void gw_runtime_wake(gw_runtime *runtime);

/* -----------------------------------------------------------------------------------------------------------
 * Exchange
 * -------------------------------------------------------------------------------------------------------- */

typedef struct gw_exchange gw_exchange;

/*
 * Memory of messages, one buffer for each: for transports that have buffers of their own. The functions are
 * called from gw_runtime_work(), threads of the runtime, gw_exchange_stop() and gw_exchange_close(), by
 * several at once, without a lock of the runtime; they call nothing of this header.
 *
 *   - take: a buffer of `size` bytes for a message that is to be sent; any alignment. kind SEND: the buffer
 *     has one user, who sends it. SHARE: it has two, as this rank decodes its finished pieces too
 *   - the buffer belongs to the transport from the event on: it releases it when it is sent. SHARE: the
 *     exchange releases it, for its own part, when it is decoded; either may be first
 *   - buffers of gw_exchange_receive() belong to the exchange, which releases them once when they are decoded
 *   - all that the exchange has to release is released before the event DONE
 *   - NULL: no memory. The step fails with GW_ERR_LIMIT, and all ranks learn it
 *   - a message whose event has a word is a notice, of GW_COLLECTIVE_NOTICE_SIZE bytes. It lies inside the
 *     exchange until the next start, and is not released: what was taken for it is released already, by all
 *     of its users
 *
 * All NULL: messages lie in the slots of one region, gw_exchange_memory().
 */
typedef struct gw_exchange_buffers {
    void *(*take)(void *context, gw_runtime_event_kind kind, size_t size);
    void (*release)(void *context, void *data); /* by one of its users */
    void *context;
} gw_exchange_buffers;

/* Set to zeros, then fill in. */
typedef struct gw_exchange_config {
    gw_collective_shape shape;
    uint32_t rank;
    uint32_t contribution_bits;      /* as in gw_collective_bucket */
    gw_gcomp_options codec;          /* while the ranks have equal maps, or without maps */
    gw_gcomp_options fallback_codec; /* while they have not: explicit or carried quanta. May be equal */
    uint64_t user;                   /* comes back in events */
    uint64_t seed;                   /* of exchanges without segments */
    uint64_t segment_max; /* gw_exchange_map_start() takes so many segments at most; 0: no map is built */
    gw_exchange_buffers buffers;
} gw_exchange_config;

/* GW_OK; GW_ERR_ARG; GW_ERR_LIMIT (no memory), and the statuses of gw_collective_layout_init() and
 * gw_gcomp_init(): *exchange is NULL. */
GW_API GW_MUST_CHECK gw_status gw_exchange_open(gw_runtime *runtime, const gw_exchange_config *config,
                                                gw_exchange **exchange);

/* gw_exchange_stop(), then frees it. Not inside a task or a function of gw_exchange_buffers. NULL is
 * ignored. */
GW_API void gw_exchange_close(gw_exchange *exchange);

/* Where the messages are. Offsets are in bytes from the start of the memory. */
typedef struct gw_exchange_info {
    gw_collective_layout layout;
    uint64_t memory_size;   /* bytes of memory for messages; 0 with gw_exchange_buffers. Most of it is never
                               touched: frames are smaller than their bounds */
    uint64_t message_bound; /* bytes to post receives with */
    uint64_t digest_len;
} gw_exchange_info;
GW_API void gw_exchange_info_get(const gw_exchange *exchange, gw_exchange_info *info);

/* The memory of messages, memory_size bytes, the caller's; needed before start, unless there are
 * gw_exchange_buffers. It stays in use until the exchange is stopped or closed. */
GW_API void gw_exchange_memory(gw_exchange *exchange, void *memory);

/* Offset at which the message is to be received: the contribution of rank `from` if this rank owns the piece,
 * else the finished piece (`from` is not read). UINT64_MAX: no such message, an empty piece included. */
GW_API uint64_t gw_exchange_slot(const gw_exchange *exchange, uint32_t piece, uint32_t from);

/*
 * Builds the map and the random streams of the bucket. Ends with the event MAP.
 *
 *   - segments, their rules and arrays: unchanged until the event
 *   - wire_scale: that of the rules
 *   - GW_OK; GW_ERR_ARG (also: more segments than segment_max); GW_ERR_STATE (as for gw_exchange_start()):
 *     there is no event
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_start(gw_exchange *exchange,
                                                     const gw_collective_segments *segments,
                                                     float wire_scale);

/* gw_collective_map_words() of the finished map. GW_ERR_STATE if there is none. */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_words(const gw_exchange *exchange,
                                                     uint64_t words[GW_COLLECTIVE_MAP_WORDS]);

typedef enum gw_exchange_flags {
    GW_EXCHANGE_FALLBACK = 1, /* use the fallback codec */
    GW_EXCHANGE_SCATTER = 2,  /* reduce-scatter: stop at the sum, which the owner gets; no SHARE */
    /* measure the errors of fp32 contributions. That needs (4 << chunk_log2) + 4 bytes of workspace more;
     * pieces whose task has less are not counted */
    GW_EXCHANGE_SAMPLE = 4
} gw_exchange_flags;

/* What one operation works on. Set to zeros, then fill in. */
typedef struct gw_exchange_run {
    const void *values; /* shape.len elements: this rank's contribution. Unchanged until DONE if result does
                           not overlap it */
    /* all-reduce: shape.len elements, may be `values`. Scatter: the values of this rank's shard only; they
     * may be at their place in `values`, or overlap other shards there: sums then wait until all is encoded.
     * Any other overlap gives GW_ERR_ARG */
    void *result;
    float scale; /* every value of the result is multiplied by it once; 0 and 1: not */
    uint32_t step_index;
    uint32_t flags; /* gw_exchange_flags */
} gw_exchange_run;

/* Encodes start: for all other ranks their first pieces, then their second ones, each rank beginning with the
 * one after it. GW_OK; GW_ERR_ARG; GW_ERR_STATE (no memory, still busy, stopped, or events of it were not
 * taken): there are no events. */
GW_API GW_MUST_CHECK gw_status gw_exchange_start(gw_exchange *exchange, const gw_exchange_run *run);

/*
 * A message has arrived.
 *
 *   - with gw_exchange_buffers: data and size are the message, which the exchange releases
 *   - else it lies at gw_exchange_slot(exchange, piece, from), and data is NULL. size 0: found from its
 *     contents, else as given
 *   - once per message and operation. GW_ERR_ARG for a message that does not exist; GW_ERR_STATE for one too
 *     many, one that no rank can have sent yet, or if no operation runs. data then remains the caller's
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_receive(gw_exchange *exchange, uint32_t piece, uint32_t from,
                                                   void *data, size_t size);

/*
 * Ends whatever runs: waits for tasks of this exchange that a thread is in, and drops the others. From its
 * return on nothing reads values, segments and messages or writes the result, events that were not taken are
 * gone, and every buffer is released that no event had handed over. DONE and MAP do not come any more; all
 * later calls on the exchange but slot, info, stats and close give GW_ERR_STATE. The same places as for
 * close.
 */
GW_API void gw_exchange_stop(gw_exchange *exchange);

/* Sums over all operations since the exchange was opened. Times are CPU time of the threads that ran the
 * tasks. */
typedef struct gw_exchange_stats {
    uint64_t sent_size;     /* bytes of messages, once per receiver */
    uint64_t received_size; /* bytes of messages */
    uint64_t map_ns, encode_ns, reduce_ns, decode_ns;
    uint64_t operations;
    double sample_square; /* GW_EXCHANGE_SAMPLE: sum of squares of the values in contributions to others */
    double sample_error;  /* and of what their frames changed */
} gw_exchange_stats;
GW_API void gw_exchange_stats_get(gw_exchange *exchange, gw_exchange_stats *stats);

/* As gw_abi_version() and gw_abi_structs(), for the structs of this header. */
GW_API uint32_t gw_runtime_abi_version(void);
GW_API const gw_abi_struct *gw_runtime_abi_structs(size_t *count);

#ifdef __cplusplus
}
#endif

#endif
