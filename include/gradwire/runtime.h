/*
 * runtime.h: runs the steps of collective.h in threads and in the right order. A library of its own
 * (gradwire-runtime), which needs C11 and POSIX threads.
 *
 * The caller is the transport: it sends and receives messages, in any order. Nothing here opens a socket.
 *
 * Words used in this header (collective.h has bucket, shard, piece, owner, contribution and notice):
 *   runtime     a set of threads with a queue of tasks, by priority, and a queue of events
 *   task        a step that a thread is to run
 *   event       what the runtime tells the transport: a message to send, or the end of an operation
 *   codebooks   of an exchange: installed ones (gcomp.h), which are renewed from time to time
 *   exchange    a bucket with everything that its all-reduce or reduce-scatter needs: layout, codecs, map,
 *               and what each piece waits for
 *   operation   one all-reduce or reduce-scatter of an exchange
 *   word        outcome of a step in one number (gw_collective_word_write()). 0: no failure
 *   ring        the algorithm in which each rank sends to its right neighbour (rank + 1) and receives from
 *               its left one alone (gw_exchange_algorithm)
 *
 * One all-reduce:
 *
 *   gw_exchange_start()      -> events SEND: a piece is encoded, send it to its owner
 *   gw_exchange_receive()    <- a contribution has arrived; the last one of a piece starts the owner's step
 *                            -> events SHARE: a piece is summed, send it to all other ranks
 *   gw_exchange_receive()    <- the finished piece of another owner
 *                            -> event DONE: all pieces are in place
 *
 * In a ring:
 *
 *   gw_exchange_start()      -> events SEND: the values of the left neighbour's pieces, for the right one
 *   gw_exchange_receive()    <- the left neighbour's partial sum of a piece; it starts this rank's step
 *                            -> event SEND: with this rank's values, or SHARE: this rank owns the piece,
 *                               which is finished
 *   gw_exchange_receive()    <- the finished piece of another owner
 *                            -> event SHARE: the same message, for the right neighbour, unless that is the
 *                               owner
 *                            -> event DONE: all pieces are in place
 *
 * Before it, gw_exchange_map_start() -> event MAP builds the precision map.
 *
 * A step that fails sends a notice in place of its frame, so every message is sent whatever happens. DONE has
 * the worst outcome that this rank knows. Take the maximum of the words of all ranks: it is the outcome for
 * all of them (gw_collective_word_outcome()). A transport that loses a rank calls gw_exchange_stop().
 *
 * Rules of this header:
 *   - Only gw_runtime_open() and gw_exchange_open() allocate memory.
 *   - Calls on a runtime may be made from any threads at once, except gw_runtime_close(). So may calls on one
 *     exchange, unless one of them is start, map_start, memory or close, or two of them are stop, or one of
 *     them is one of gw_exchange_codebooks_*().
 *   - Threads of the runtime block all signals. Their stack has the system's default size.
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

/* Starts the threads. GW_OK also if the system gives fewer threads than asked for; gw_runtime_thread_count()
 * says how many run. GW_ERR_ARG; GW_ERR_LIMIT (no memory, or not a single thread): *runtime is NULL. */
GW_API GW_MUST_CHECK gw_status gw_runtime_open(const gw_runtime_options *options, gw_runtime **runtime);
GW_API uint32_t gw_runtime_thread_count(const gw_runtime *runtime);

/* Ends the threads and frees the runtime. Before, close all of its exchanges, let all other tasks run or
 * withdraw them, and let no thread be inside another call on it. NULL is ignored. */
GW_API void gw_runtime_close(gw_runtime *runtime);

/* Priorities of tasks, the most urgent first. Other ranks wait for an owner's sum, and in a ring for every
 * sum, so sums come first. Nobody waits for a map, so maps come last. MAP precedes SCAN, so that a map that
 * is half built is finished before another is begun. */
typedef enum gw_runtime_priority {
    GW_RUNTIME_PRIORITY_REDUCE = 0,
    GW_RUNTIME_PRIORITY_ENCODE = 1,
    GW_RUNTIME_PRIORITY_DECODE = 2,
    GW_RUNTIME_PRIORITY_MAP = 3,
    GW_RUNTIME_PRIORITY_SCAN = 4
} gw_runtime_priority;

/* A task of the caller's own, for instance as the first member of a larger struct. Set to zeros, then fill
 * in. It is the caller's memory and must stay in place until the task has run. */
typedef struct gw_runtime_task gw_runtime_task;
struct gw_runtime_task {
    gw_runtime_task *next; /* used by the queue */
    /* Called once, in any thread that runs tasks. It may submit the task again, or free it. */
    void (*run)(gw_runtime_task *task, const gw_workspace *workspace);
    void *owner;       /* for gw_runtime_withdraw(), or NULL */
    uint32_t priority; /* gw_runtime_priority. Tasks of equal priority run in the order of their submission */
};

/* Queues a task, which must not be in the queue already. GW_OK; GW_ERR_ARG (no function, or a priority that
 * does not exist). */
GW_API GW_MUST_CHECK gw_status gw_runtime_submit(gw_runtime *runtime, gw_runtime_task *task);

/* Runs the most urgent task in the calling thread, with the caller's workspace, and returns 1. Returns 0 if
 * no task is queued. Tasks of exchanges need gw_gcomp_workspace_size() bytes of their codecs. */
GW_API int gw_runtime_work(gw_runtime *runtime, const gw_workspace *workspace);

/* Takes all tasks of an owner out of the queue and returns their number. Tasks that are running are not
 * stopped. */
GW_API size_t gw_runtime_withdraw(gw_runtime *runtime, const void *owner);

typedef enum gw_runtime_event_kind {
    GW_RUNTIME_WAKE = 1,  /* gw_runtime_wake() was called, once or several times */
    GW_RUNTIME_MAP = 2,   /* a map is built; word: its outcome */
    GW_RUNTIME_SEND = 3,  /* send data[0..size), a part of the sum of `piece`, to `peer`; word: outcome of
                             the step */
    GW_RUNTIME_SHARE = 4, /* send data[0..size), the finished `piece`, to `peer`; word as SEND. For the
                             finished piece of another rank, which a ring passes on: 0 if it is the message
                             as it came, else data is a notice */
    GW_RUNTIME_DONE = 5,  /* the operation has ended on this rank; word: its outcome */
    /* the labels of an operation are counted; word: the outcome */
    GW_RUNTIME_CODEBOOKS = 6
} gw_runtime_event_kind;

#define GW_RUNTIME_ALL 0xffffffffu

/* `word` is made by gw_collective_word_write(). */
typedef struct gw_runtime_event {
    uint64_t user; /* gw_exchange_config.user; 0 for WAKE */
    uint32_t kind; /* gw_runtime_event_kind */
    uint32_t piece;
    void *data;      /* see gw_exchange_buffers */
    uint64_t offset; /* of data in the memory of gw_exchange_memory() */
    uint64_t size;   /* bytes; never 0 for SEND and SHARE */
    uint64_t word;
    uint32_t peer; /* SEND, SHARE: the rank that the message is for; GW_RUNTIME_ALL: all other ranks */
} gw_runtime_event;

/* Takes up to `capacity` events, oldest first, and returns their number. Waits until there is one, but at
 * most timeout_ms milliseconds (negative: no limit; 0: does not wait). Returns 0 if there is none by then, or
 * for NULL. */
GW_API size_t gw_runtime_wait(gw_runtime *runtime, gw_runtime_event *events, size_t capacity, int timeout_ms);

/* Makes gw_runtime_wait() return with an event WAKE. */
GW_API void gw_runtime_wake(gw_runtime *runtime);

/* -----------------------------------------------------------------------------------------------------------
 * Exchange
 * -------------------------------------------------------------------------------------------------------- */

typedef struct gw_exchange gw_exchange;

/*
 * Functions of transports that have buffers of their own, one buffer per message. They are called from
 * gw_runtime_work(), threads of the runtime, gw_exchange_stop() and gw_exchange_close(), by several threads
 * at once, without a lock of the runtime. They must not call anything of this header.
 *
 *   - take: returns a buffer of `size` bytes for a message that is to be sent; any alignment. kind SEND: the
 *     buffer has one user, the transport, which sends it. SHARE: it has two, because this rank decodes its
 *     finished pieces too
 *   - from the event on the buffer belongs to the transport, which releases it when it is sent. SHARE: the
 *     exchange releases it too when it is decoded; either may be first
 *   - buffers given to gw_exchange_receive() belong to the exchange, which releases each once when it is
 *     decoded. In a ring a finished piece that is passed on comes back by an event SHARE: its buffer has two
 *     users from gw_exchange_receive() on, as one that was taken for SHARE. That is every finished piece,
 *     except those that the right neighbour owns. One of no bytes, or of more than message_bound, is
 *     not passed on: a notice goes in its place, and the transport's use of the buffer is released for it
 *   - all that the exchange has to release is released before the event DONE
 *   - take returns NULL if there is no memory. The step then fails with GW_ERR_LIMIT, and all ranks learn it
 *   - if the event of a message has a word other than 0, the message is a notice, of
 *     GW_COLLECTIVE_NOTICE_SIZE bytes. It lies inside the exchange until the next start, and must not be
 *     released. The buffer that was taken for the message has been released already, once for each of its
 *     users
 *
 * All NULL: messages lie in one region of memory, gw_exchange_memory().
 */
typedef struct gw_exchange_buffers {
    void *(*take)(void *context, gw_runtime_event_kind kind, size_t size);
    void (*release)(void *context, void *data); /* by one of its users */
    void *context;
} gw_exchange_buffers;

/* A step on a piece, and the function of collective.h that it is. */
typedef enum gw_exchange_step_kind {
    GW_EXCHANGE_ENCODE = 0, /* gw_collective_encode(): values to dst */
    GW_EXCHANGE_REDUCE = 1, /* gw_collective_reduce(): values and messages to dst */
    GW_EXCHANGE_SUM = 2,    /* gw_collective_sum(): values and messages to the result */
    GW_EXCHANGE_DECODE = 3  /* gw_collective_decode(): messages[0] to the result */
} gw_exchange_step_kind;

typedef struct gw_exchange_step {
    uint32_t kind; /* gw_exchange_step_kind */
    uint32_t piece;
    const gw_gcomp_frame *messages; /* by rank; the one of this rank has no data. Any may be a notice */
    gw_buffer dst;
    gw_collective_failure failure; /* out, with GW_OK too. On entry: GW_ERR_ARG, this rank, the piece */
} gw_exchange_step;

/* Steps in place of those of collective.h, for messages that are no frames of GCOMP. They run in threads as
 * tasks do, several at once. runtime_thc.h has some. */
typedef struct gw_exchange_steps {
    void (*run)(void *context, gw_exchange_step *step, const gw_workspace *workspace);
    void *context;
    uint64_t message_bound; /* capacity of dst: GW_COLLECTIVE_NOTICE_SIZE..SIZE_MAX / 2 */
    /* Needed without gw_exchange_buffers: bytes of every good message of a kind (SEND, SHARE) and piece, at
     * most message_bound. Such messages must not begin as notices do (gw_collective_notice_read()) */
    uint64_t (*message_size)(void *context, gw_runtime_event_kind kind, uint32_t piece);
} gw_exchange_steps;

/* How messages travel (collective.h). Equal on all ranks; without effect for a single one. */
typedef enum gw_exchange_algorithm {
    /* Contributions to the owners, sums to all: two roundings, and all ranks talk to all */
    GW_EXCHANGE_A2A = 0,
    /* gw_collective_hop(), gw_collective_hop_sum(): as many roundings as ranks, and each rank talks to its
     * two neighbours. Not with gw_exchange_steps */
    GW_EXCHANGE_RING = 1
} gw_exchange_algorithm;

/* Set to zeros, then fill in. */
typedef struct gw_exchange_config {
    gw_collective_shape shape;
    uint32_t rank;
    uint32_t contribution_bits;      /* as in gw_collective_bucket */
    gw_gcomp_options codec;          /* used while the ranks have equal maps, or without maps */
    gw_gcomp_options fallback_codec; /* used with GW_EXCHANGE_FALLBACK, when maps differ: explicit or carried
                                        mode. May be equal to codec */
    uint64_t user;                   /* the caller's; comes back in events */
    uint64_t seed;                   /* of exchanges without segments */
    uint64_t segment_max;            /* segments that gw_exchange_map_start() takes at most; 0: no maps */
    /* 1: with memory for gw_exchange_codebooks_*(), 7 KiB a piece. Needs steps of collective.h and
     * gw_exchange_memory(). 0: without */
    uint32_t codebooks;
    gw_exchange_buffers buffers;
    gw_exchange_steps steps; /* all zeros: those of collective.h. Else of codec only dtype is read, and maps
                                and samples have no meaning */
    uint32_t algorithm;      /* gw_exchange_algorithm */
} gw_exchange_config;

/* Makes an exchange. GW_OK; GW_ERR_ARG; GW_ERR_LIMIT (no memory), and the statuses of
 * gw_collective_layout_init() and gw_gcomp_init(): *exchange is NULL. */
GW_API GW_MUST_CHECK gw_status gw_exchange_open(gw_runtime *runtime, const gw_exchange_config *config,
                                                gw_exchange **exchange);

/* Stops the exchange as gw_exchange_stop() does, then frees it. Must not be called from a task or a function
 * of gw_exchange_buffers. NULL is ignored. */
GW_API void gw_exchange_close(gw_exchange *exchange);

/* Where the messages are. Offsets are in bytes from the start of the memory. */
typedef struct gw_exchange_info {
    gw_collective_layout layout;
    uint64_t memory_size;   /* bytes for gw_exchange_memory(); 0 with gw_exchange_buffers. Most of it is never
                               touched: frames are smaller than their bounds */
    uint64_t message_bound; /* gw_collective_message_bound(): post receives of this size */
    uint64_t digest_len;
    uint64_t codebook_word_count; /* of gw_exchange_codebooks_words(); 0 without codebooks */
} gw_exchange_info;
GW_API void gw_exchange_info_get(const gw_exchange *exchange, gw_exchange_info *info);

/* Gives the exchange its memory for messages, memory_size bytes of the caller's. Needed before
 * gw_exchange_start(), unless there are gw_exchange_buffers. It is in use until the exchange is stopped or
 * closed. */
GW_API void gw_exchange_memory(gw_exchange *exchange, void *memory);

/*
 * Offset in the memory of gw_exchange_memory() at which a message is to be received. UINT64_MAX: there is no
 * such message, for instance because the piece is empty.
 *
 *   - A2A: the contribution of rank `from` if this rank owns the piece, else the finished piece (`from` is
 *     not read)
 *   - ring, in which all come from the left neighbour: `from` is the rank that made the message. The left
 *     neighbour: the partial sum, unless it owns the piece. The owner: the finished piece, which is sent on
 *     from there too: the next operation's must not be received before that is done
 */
GW_API uint64_t gw_exchange_buffer_offset(const gw_exchange *exchange, uint32_t piece, uint32_t from);

/*
 * Builds the map and the random streams of the bucket (gw_collective_map_build(), gw_collective_streams()).
 * Ends with the event MAP.
 *
 *   - segments, their rules and arrays must not change before the event
 *   - wire_scale: the same as in the rules
 *   - GW_OK; GW_ERR_ARG (also: more segments than segment_max); GW_ERR_STATE (as in gw_exchange_start()):
 *     there is no event
 *   - segments that are refused (GW_ERR_ARG of gw_collective_streams()) leave the exchange without a map
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_start(gw_exchange *exchange,
                                                     const gw_collective_segments *segments,
                                                     float wire_scale);

/* gw_collective_map_words() of the finished map. GW_ERR_STATE if there is none. */
GW_API GW_MUST_CHECK gw_status gw_exchange_map_words(const gw_exchange *exchange,
                                                     uint64_t words[GW_COLLECTIVE_MAP_WORDS]);

typedef enum gw_exchange_flags {
    GW_EXCHANGE_FALLBACK = 1, /* use the fallback codec */
    GW_EXCHANGE_SCATTER = 2,  /* reduce-scatter: ends with the sum at the owner; no SHARE */
    /* measure the errors of fp32 contributions (gw_exchange_stats). Needs (4 << chunk_log2) + 4 more bytes of
     * workspace; pieces whose task has less are not counted */
    GW_EXCHANGE_SAMPLE = 4
} gw_exchange_flags;

/* What one operation works on. Set to zeros, then fill in. */
typedef struct gw_exchange_run {
    const void *values; /* shape.len elements: what this rank adds to the sum. Must not change before DONE,
                           except where `result` overlaps it */
    /* All-reduce: shape.len elements; may be equal to `values`. Reduce-scatter: only the values of this
     * rank's shard; result may be the place of the shard in `values`, or overlap other shards there: sums
     * then wait until all is encoded. Any other overlap gives GW_ERR_ARG */
    void *result;
    float scale; /* factor of every value of the result; 0 and 1: no multiplication */
    uint32_t step_index;
    uint32_t flags; /* gw_exchange_flags */
} gw_exchange_run;

/* Starts an operation: encodes first pieces for all other ranks, beginning with the rank after this one, then
 * second pieces, and so on; in a ring those of the left neighbour only. GW_OK; GW_ERR_ARG; GW_ERR_STATE (no
 * memory was given, the exchange is busy or stopped, or some of its events were not taken yet): there are no
 * events. */
GW_API GW_MUST_CHECK gw_status gw_exchange_start(gw_exchange *exchange, const gw_exchange_run *run);

/*
 * Tells the exchange that a message has arrived.
 *
 *   - with gw_exchange_buffers: data and size are the message; the exchange releases it
 *   - else the message lies at gw_exchange_buffer_offset(exchange, piece, from), and data is NULL. size 0:
 *     the size is found from its contents
 *   - from: as in gw_exchange_buffer_offset()
 *   - once per message and operation. GW_ERR_ARG for a message that does not exist; GW_ERR_STATE for one that
 *     was received already, one that no rank can have sent yet, or if no operation runs. data then remains
 *     the caller's
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_receive(gw_exchange *exchange, uint32_t piece, uint32_t from,
                                                   void *data, size_t size);

/*
 * Ends whatever the exchange does: waits for its tasks that are running and drops the others. After its
 * return:
 *
 *   - nothing reads values, segments and messages, or writes the result
 *   - its events that were not taken are gone, and neither DONE nor MAP nor CODEBOOKS come any more
 *   - every buffer is released that no event had handed over
 *   - all later calls on the exchange give GW_ERR_STATE, except buffer_offset, info, stats, stamp and
 *     close
 *
 * Must not be called from a task or a function of gw_exchange_buffers.
 */
GW_API void gw_exchange_stop(gw_exchange *exchange);

/* Sums over all operations since the exchange was opened. Times are CPU times of the threads that ran the
 * tasks. */
typedef struct gw_exchange_stats {
    uint64_t sent_size;     /* bytes of messages; a message to several ranks counts once per receiver */
    uint64_t received_size; /* bytes of messages */
    uint64_t map_ns, encode_ns, reduce_ns, decode_ns;
    uint64_t operations;
    double sample_square; /* GW_EXCHANGE_SAMPLE: sum of squares of values sent to other owners; in a ring of
                             those that no other rank's values were added to */
    double sample_error;  /* GW_EXCHANGE_SAMPLE: sum of the squared errors of their frames */
    /* gw_exchange_codebooks_count() */
    uint64_t codebooks_ns;
} gw_exchange_stats;
GW_API void gw_exchange_stats_get(gw_exchange *exchange, gw_exchange_stats *stats);

/* As gw_abi_version() and gw_abi_structs(), for the structs of this header. */
GW_API uint32_t gw_runtime_abi_version(void);
GW_API const gw_abi_struct *gw_runtime_abi_structs(size_t *count);

/* -----------------------------------------------------------------------------------------------------------
 * Codebooks that outlive a frame
 * -------------------------------------------------------------------------------------------------------- */

/*
 * Each piece has two: one of its contributions (id 0) and one of its sum (id 1). To renew them:
 *
 *   every rank   gw_exchange_codebooks_count()    after an operation: event CODEBOOKS
 *   every rank   gw_exchange_codebooks_words()    the counts of what it has sent
 *   transport    the words of all ranks to all ranks
 *   every rank   gw_exchange_codebooks_install()  makes equal codebooks of them, under a new generation
 *   transport    before the next operation, the stamps of all ranks (gw_exchange_codebooks_stamp())
 *   every rank   gw_exchange_codebooks_use()      that generation if all stamps are equal, else 0
 *
 * An operation works with one generation on all ranks. The exchange keeps two, the one that operations use
 * and the one that was installed last, so installing disturbs nothing. A rank that gets a frame of another
 * generation, or of other codebooks, ends the operation with GW_ERR_TABLE, which all ranks can repeat with
 * codebooks in the frames (GW_COLLECTIVE_RETRY). Values do not depend on codebooks, only sizes and times do.
 *
 * Codebooks count for `codec` only. Frames of the fallback codec have their own, and so have derived frames
 * without a map.
 */

/* Words of a piece: window_start, relative, count[256] and mask_count[10] of gw_gcomp_histogram. */
#define GW_EXCHANGE_CODEBOOK_WORDS 268u

/*
 * Counts the labels of the frames that this rank has made in the last operation, in the background, with the
 * priority of maps. Ends with the event CODEBOOKS. It decodes all of them, and takes about as long as
 * making them did.
 *
 *   - needs (element size << chunk_log2) + 4 more bytes of workspace than other tasks, else the outcome is
 *     GW_ERR_WORKSPACE
 *   - GW_ERR_STATE: as in gw_exchange_start(); or there is no operation that ended well with `codec`; or
 *     gw_exchange_map_start() or gw_exchange_codebooks_use() was called after it
 *   - GW_OK; GW_ERR_ARG (no config.codebooks); GW_ERR_STATE: there is no event
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_codebooks_count(gw_exchange *exchange);

/* Copies the counts, gw_exchange_info.codebook_word_count words: piece by piece, GW_EXCHANGE_CODEBOOK_WORDS
 * for each. Of the pieces of other ranks they are of contributions, of own pieces of sums. Counts above
 * UINT32_MAX are UINT32_MAX. GW_ERR_ARG; GW_ERR_STATE if nothing was counted, or not without a failure: words
 * are zeros. */
GW_API GW_MUST_CHECK gw_status gw_exchange_codebooks_words(const gw_exchange *exchange, uint32_t *words);

/*
 * Makes codebooks of the words of all ranks: rank_count times codebook_word_count words, in the order of the
 * ranks.
 *
 *   - counts of contributions are added up over the ranks with the largest window_start and relative.
 *     Other ranks have counted labels of another kind and are left out
 *   - ranks with equal words get equal codebooks
 *   - generation: neither 0 nor the one in use
 *   - GW_OK; GW_ERR_ARG (also for words that no rank can have counted), GW_ERR_STATE (stopped): no generation
 *     is installed but the one in use
 */
GW_API GW_MUST_CHECK gw_status gw_exchange_codebooks_install(gw_exchange *exchange, uint32_t generation,
                                                             const uint32_t *words);

/* What ranks compare before an operation: generation and CRC32C of the codebooks that were installed last.
 * 0: there are none. */
GW_API uint64_t gw_exchange_codebooks_stamp(const gw_exchange *exchange);

/* Operations that start from now on use this generation; 0: codebooks in the frames, as at first. GW_OK;
 * GW_ERR_ARG (no config.codebooks); GW_ERR_TABLE (this generation is not there): operations are as after 0;
 * GW_ERR_STATE (as in gw_exchange_start()): nothing changes. */
GW_API GW_MUST_CHECK gw_status gw_exchange_codebooks_use(gw_exchange *exchange, uint32_t generation);

#ifdef __cplusplus
}
#endif

#endif
