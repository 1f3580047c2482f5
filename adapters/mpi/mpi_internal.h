/*
 * What the files of the MPI adapter share.
 *
 *   mpi_entries     what stands under MPI's names
 *   mpi_config      the environment, agreed on by all ranks
 *   mpi_context     what belongs to a communicator: numbers, counters
 *   mpi_transport   the communicator on which all messages travel
 *   mpi_presence    whether all ranks have the library
 *   mpi_comms       communicators that the program frees
 *   mpi_operation   one collective: its life, its progress, its outcome
 *   mpi_vote        a word that all ranks agree on
 *   mpi_exact       whether its values must not be rounded
 *   mpi_exchange    engine of an operation: A2A+AG with frames (collective.h)
 *   mpi_lanes       engine of an operation: THC lanes, added by their owners
 *   mpi_fold        sums of integers
 *   mpi_workers     threads that do codec work; they never call MPI
 *   mpi_progress    the thread that makes progress
 *   mpi_imports     whether the program has nonblocking calls
 *   mpi_auto        the automatic threshold
 *   mpi_scope       where sums are compressed, as the program says
 *   mpi_statistics  what was compressed, with which error, or why nothing was
 *   mpi_calls, mpi_waits, mpi_points, mpi_collectives, mpi_fortran   what is intercepted
 *
 * Locks, in the order in which they may be taken: the list of operations, an operation, a context, the list
 * of contexts, the buffer pool.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_INTERNAL_H
#define GW_MPI_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "gradwire/collective.h"
#include "gradwire_mpi.h"

/* ------------ configuration ------------ */

#define GW_MPI_THRESHOLD_AUTO UINT64_MAX

/* Equal on all ranks: that of rank 0 of MPI_COMM_WORLD. */
typedef struct gw_mpi_config {
    gw_mpi_options options;
    uint64_t threshold_size; /* bytes, or GW_MPI_THRESHOLD_AUTO */
    uint64_t size_max;       /* bytes */
    uint64_t piece_len;      /* 0: the default */
    uint32_t enabled;
    uint32_t progress; /* GW_MPI_PROGRESS_* */
    uint32_t pcontrol; /* MPI_Pcontrol() switches */
    uint32_t samples;  /* errors are measured */
    uint32_t exact;    /* data that look exact are not rounded */
    uint32_t notice;   /* a line at start */
} gw_mpi_config;

/* What makes progress with nonblocking operations while the program is in other MPI calls, or in none.
 */
enum {
    GW_MPI_PROGRESS_AUTO,   /* a thread, when they have not done so for a moment */
    GW_MPI_PROGRESS_THREAD, /* a thread, all the time */
    GW_MPI_PROGRESS_CALLS,  /* the program's own MPI calls, which it promises to make */
    GW_MPI_PROGRESS_NONE    /* such operations are not compressed */
};

extern gw_mpi_config gw_mpi_settings;
extern atomic_int gw_mpi_enabled;
/* 1: operations with requests are sure to make progress, on all ranks; else MPI_Iallreduce is MPI's own. */
extern atomic_int gw_mpi_nonblocking;
/* 1 if the settings need MPI_THREAD_MULTIPLE, where the program has nonblocking calls. */
int gw_mpi_config_wants_thread(void);
/* 1 if it has, as far as can be seen in MPI_Init. */
int gw_mpi_imports_nonblocking(void);

/* Reads the environment, once. */
void gw_mpi_config_load(void);
/* After MPI_Init: takes the configuration of rank 0. */
void gw_mpi_config_agree(void);
unsigned gw_mpi_config_threads(void);
const char *gw_mpi_config_log(void);
/* At rank 0: says what will be lossy. */
void gw_mpi_config_notice(void);
int gw_mpi_options_valid(const gw_mpi_options *options);
/* 0: constant without a drop. */
int gw_mpi_options_lossy(const gw_mpi_options *options);
/* A line on stderr, with the rank. */
void gw_mpi_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ------------ statistics ------------ */

typedef struct gw_mpi_counters {
    atomic_uint_fast64_t operations, failures, value_count, wire_values, wire_size, encode_ns, reduce_ns,
        decode_ns;
} gw_mpi_counters;

extern gw_mpi_counters gw_mpi_count;

#define GW_MPI_COUNT(field, n) atomic_fetch_add_explicit(&gw_mpi_count.field, (n), memory_order_relaxed)

uint64_t gw_mpi_now_ns(void);
/* Time that the calling thread had a processor: ranks may share cores. */
uint64_t gw_mpi_codec_ns(void);
void gw_mpi_statistics_log(void);

/* Why a call passed through. */
typedef enum gw_mpi_reason {
    GW_MPI_PASSED_KIND,
    GW_MPI_PASSED_OFF,
    GW_MPI_PASSED_BELOW,
    GW_MPI_PASSED_ABOVE,
    GW_MPI_PASSED_SLOWER,
    GW_MPI_PASSED_NODE,
    GW_MPI_PASSED_THREAD,
    GW_MPI_PASSED_SCOPE,
    GW_MPI_PASSED_COMM,
    GW_MPI_REASONS
} gw_mpi_reason;

extern atomic_uint_fast64_t gw_mpi_passed[GW_MPI_REASONS];
uint64_t gw_mpi_passed_count(void);
/* In MPI_Finalize, collective: the table of communicators and sizes, and why nothing was compressed. */
void gw_mpi_statistics_table(FILE *file, int rank, int size);
void gw_mpi_statistics_why(int rank);

/* ------------ memory ------------ */

/* A buffer of the pool. */
typedef struct gw_mpi_block {
    struct gw_mpi_block *next;
    size_t capacity;
    size_t size;    /* bytes used */
    int references; /* guarded by the lock of the operation */
    _Alignas(16) uint8_t data[];
} gw_mpi_block;

/* Aborts if out of memory: the other ranks could not be notified. */
void *gw_mpi_allocate(size_t count, size_t size);
gw_mpi_block *gw_mpi_block_take(size_t capacity);
void gw_mpi_block_release(gw_mpi_block *block);
void gw_mpi_pool_clear(void);

/* ------------ communicators ------------ */

/* Operations of a communicator that have messages under way; later ones wait. A power of two. */
#define GW_MPI_OPERATIONS_OPEN 32u
#define GW_MPI_NUMBER_NONE     UINT32_MAX

typedef struct gw_mpi_context {
    struct gw_mpi_context *next;
    MPI_Comm user;        /* where errors are raised, also after the program has freed it */
    int references;       /* by the attribute and by operations; guarded by the contexts' lock */
    pthread_mutex_t lock; /* of started, and of the gather until ready */
    int rank, size;
    int inside;        /* all ranks are in MPI_COMM_WORLD; else its operations are MPI's */
    int *world;        /* by rank: the rank there */
    uint32_t *numbers; /* by rank: what tags of messages to it begin with; NULL before the first operation */
    uint32_t number;   /* the own one */
    MPI_Request gather;
    int ready;                                 /* the numbers are there, or never will be */
    gw_status failed;                          /* why they will not: on all ranks */
    uint32_t started;                          /* operations so far: the number of the next one */
    atomic_uint turns[GW_MPI_OPERATIONS_OPEN]; /* by number modulo that: the operation that may begin */
    atomic_int live;                           /* operations that are not complete */
    uint64_t threshold_size;                   /* automatic; valid if measured */
    int measured;
    int on_node; /* all ranks are on one */
    int off;     /* the program has said so (mpi_scope.c) */
    char name[MPI_MAX_OBJECT_NAME];
} gw_mpi_context;

/* The context of a communicator, made if need be, without a message. NULL: its operations are left to MPI, on
 * all ranks: an intercommunicator, one rank, ranks outside of MPI_COMM_WORLD, or no transport. */
gw_mpi_context *gw_mpi_context_get(MPI_Comm comm);
/* The number of its next operation. The first one starts the exchange of numbers. */
uint32_t gw_mpi_context_number(gw_mpi_context *context);
/* Progress of that. 1: messages can be sent; 0: not yet; -1: never, on all ranks. */
int gw_mpi_context_ready(gw_mpi_context *context);
/* Takes or drops a reference; dropping the last one frees it. They call no MPI function. */
void gw_mpi_context_hold(gw_mpi_context *context);
void gw_mpi_context_release(gw_mpi_context *context);
/* Progress until no operation of the communicator is left. */
void gw_mpi_context_drain(MPI_Comm comm);
void gw_mpi_contexts_close(void);

/* The communicator of all messages. To open it is collective over MPI_COMM_WORLD. */
int gw_mpi_transport_open(void);
void gw_mpi_transport_close(void);
int gw_mpi_transport_ready(void);
/* How many communicators can have messages under way at a time. */
uint32_t gw_mpi_transport_numbers(void);

/* ------------ presence ------------ */

/* Before MPI_Init(): lets other ranks see that this one has the library. Until it is closed. */
void gw_mpi_presence_announce(void);
void gw_mpi_presence_close(void);
/* After it. 0: not all ranks have the library; all that do get 0. One of them says so. 1: all have it, or
 * nobody knows. */
int gw_mpi_presence_on_all(void);
/* Says after 10 s that ranks do not answer, unless they did: gw_mpi_presence_unwatch(). */
void gw_mpi_presence_watch(void);
void gw_mpi_presence_unwatch(void);

/* ------------ operations ------------ */

typedef enum gw_mpi_kind { GW_MPI_ALLREDUCE, GW_MPI_REDUCE_SCATTER } gw_mpi_kind;

/* What a caller asks for. */
typedef struct gw_mpi_call {
    gw_mpi_kind kind;
    const float *values; /* len values; recvbuf if in place */
    float *result;
    uint64_t len;       /* of all blocks */
    uint64_t block_len; /* GW_MPI_REDUCE_SCATTER: values of a rank, else 0 */
    gw_mpi_options options;
    int measures;     /* it is one of mpi_auto.c, and not the program's */
    int may_be_exact; /* look at the values before they are rounded */
} gw_mpi_call;

typedef struct gw_mpi_operation gw_mpi_operation;
typedef struct gw_mpi_vote gw_mpi_vote;
typedef struct gw_mpi_sample gw_mpi_sample;
typedef struct gw_mpi_exact gw_mpi_exact;

/* What a message between two ranks is. Those of one operation and one of these travel in order, those of
 * others apart. */
typedef enum gw_mpi_message {
    GW_MPI_MESSAGE_SCATTER, /* contributions, to the owner of a piece */
    GW_MPI_MESSAGE_GATHER,  /* sums, from it */
    GW_MPI_MESSAGE_OPENING, /* a vote before the first piece */
    GW_MPI_MESSAGE_CLOSING, /* the vote at the end */
    GW_MPI_MESSAGE_NORMS,   /* the same as the first two, of THC's norms */
    GW_MPI_MESSAGE_MAXIMA,
    GW_MPI_MESSAGE_FILLED, /* the same, of counts of values that are not zero */
    GW_MPI_MESSAGE_OVERLAPS,
    GW_MPI_MESSAGES = 8
} gw_mpi_message;

/* Codec work on one piece. */
typedef struct gw_mpi_task {
    int kind; /* the engine's own */
    uint32_t piece;
    gw_mpi_block *output;
    gw_collective_blame blame; /* out */
} gw_mpi_task;

/* One way to do an operation. All calls but run hold the operation's lock. */
typedef struct gw_mpi_engine {
    void *(*create)(gw_mpi_operation *operation);  /* sends nothing */
    int (*transport)(gw_mpi_operation *operation); /* progress of messages; 1 if something happened */
    int (*take)(gw_mpi_operation *operation, gw_mpi_task *task); /* 1: a task to run */
    void (*run)(gw_mpi_operation *operation, gw_mpi_task *task); /* by any thread */
    void (*finish)(gw_mpi_operation *operation, gw_mpi_task *task);
    int (*complete)(const gw_mpi_operation *operation); /* 1: all but the vote is done */
    void (*destroy)(gw_mpi_operation *operation);
} gw_mpi_engine;

extern const gw_mpi_engine gw_mpi_engine_exchange, gw_mpi_engine_lanes;

struct gw_mpi_operation {
    gw_mpi_operation *next; /* in the list of active ones */
    uint64_t serial;        /* place in it: increases */
    gw_mpi_context *context;
    gw_mpi_call call;
    uint32_t number;             /* in its context */
    const gw_mpi_engine *engine; /* NULL: not decided yet, exact decides */
    void *state;
    gw_mpi_exact *exact;
    pthread_mutex_t lock;
    int open;             /* may send, receive and work */
    int running;          /* tasks */
    uint64_t word, worst; /* own status word, maximum over the ranks */
    gw_collective_blame blame;
    int mpi_error;     /* of transport, first one */
    gw_mpi_vote *vote; /* the closing one; NULL: not begun */
    gw_mpi_sample *sample;
    uint64_t start_ns, wire_values, wire_size;
    atomic_int done;
    int pins;        /* guarded by the lock of the list, as are the following */
    int released;    /* known only to threads that hold a pin */
    int freed;       /* its request is */
    int ended;       /* its request is complete */
    atomic_int told; /* a call of the program has seen the outcome */
    int generalized;
    MPI_Request request;
};

/* Operations that are not complete. Where it is 0, waits and tests go straight to MPI. */
extern atomic_int gw_mpi_active;
/* Those of them that have a request. */
extern atomic_int gw_mpi_outstanding;
/* Requests of ours that the program has not completed or freed. */
extern atomic_int gw_mpi_requests;

/* Starts an operation. With a request, *request completes in MPI's own calls once progress was made. Without,
 * the caller passes the operation to gw_mpi_operation_wait(). */
gw_mpi_operation *gw_mpi_operation_start(gw_mpi_context *context, const gw_mpi_call *call,
                                         MPI_Request *request);
/* Drives it to its end, frees it, and returns the MPI error code of its outcome, the error handler called. */
int gw_mpi_operation_wait(gw_mpi_operation *operation);
/* Records the worst of an operation's failures. Holds the lock. */
void gw_mpi_operation_blame(gw_mpi_operation *operation, const gw_collective_blame *blame);
void gw_mpi_operation_mpi_error(gw_mpi_operation *operation, int error);
/* One round over all active operations; 1 if anything moved. Yields the processor if not. */
int gw_mpi_progress(void);
/* The same for the progress thread, which does not count as the program's. */
int gw_mpi_progress_round(void);
/* Rounds of the program's threads. */
extern atomic_uint gw_mpi_rounds;
/* For worker threads: runs one task of any operation; 0 if there is none. */
int gw_mpi_progress_task(void);

/* ------------ messages ------------ */

typedef struct gw_mpi_parcel {
    void *data;
    int count;
    MPI_Datatype type;
    int peer; /* rank in the operation's communicator */
    gw_mpi_message message;
} gw_mpi_parcel;

/* Nonblocking; of operations that are open. An error is returned, and is the operation's. */
int gw_mpi_send(gw_mpi_operation *operation, const gw_mpi_parcel *parcel, MPI_Request *request);
int gw_mpi_receive(gw_mpi_operation *operation, const gw_mpi_parcel *parcel, MPI_Request *request);

/* ------------ votes ------------ */

/* Starts a vote of all ranks of an open operation's communicator: the maximum of their words. Once an
 * operation for each of GW_MPI_MESSAGE_OPENING and _CLOSING, in any order among operations. The caller holds
 * the operation's lock, here and below. Never NULL. */
gw_mpi_vote *gw_mpi_vote_start(gw_mpi_operation *operation, gw_mpi_message message, uint64_t word);
/* Progress of it. 1: complete, *worst is the maximum, equal on all ranks. An MPI error completes it too, and
 * is the operation's: *worst then holds its word. */
int gw_mpi_vote_test(gw_mpi_vote *vote, uint64_t *worst);
/* After its completion. */
void gw_mpi_vote_free(gw_mpi_vote *vote);

/* ------------ statistics of an operation ------------ */

/* Starts to add some of its values exactly: after its number was taken. NULL: not of this one. */
gw_mpi_sample *gw_mpi_sample_start(const gw_mpi_operation *operation);
/* 1 if that is complete, or there is none. */
int gw_mpi_sample_test(gw_mpi_sample *sample);
void gw_mpi_sample_free(gw_mpi_sample *sample);
/* A message with so many values goes out. Holds the operation's lock, here and below. */
void gw_mpi_statistics_sent(gw_mpi_operation *operation, uint64_t values, uint64_t size);
/* It is complete, and the program does not know yet. */
void gw_mpi_statistics_end(gw_mpi_operation *operation);

/* ------------ exact data ------------ */

/* Looks at the values of an operation that is not open yet. */
gw_mpi_exact *gw_mpi_exact_create(gw_mpi_operation *operation);
/* Once it is open: progress of the decision. 1: made, *is_exact is equal on all ranks. */
int gw_mpi_exact_test(gw_mpi_exact *exact, int *is_exact);
void gw_mpi_exact_free(gw_mpi_exact *exact);

/* ------------ sums of integers ------------ */

/* What to add, or to take the maximum of: len unsigned integers of 8, 16 or 32 bits on each rank. */
typedef struct gw_mpi_terms {
    void *data; /* the own ones; then the result */
    uint64_t len;
    uint32_t bits;
    gw_mpi_message scatter, gather;
    int gathers; /* 0: a rank gets its part of the result only: of parts of equal length, if there are any */
    int maximum;
} gw_mpi_terms;

typedef struct gw_mpi_fold gw_mpi_fold;

/* Of an open operation, under its lock, as votes. Those of one operation with one kind of message start in
 * the same order on all ranks. */
gw_mpi_fold *gw_mpi_fold_start(gw_mpi_operation *operation, const gw_mpi_terms *terms);
/* may_gather: those that started before it have sent their results, gw_mpi_fold_gathers(). 1: complete. */
int gw_mpi_fold_test(gw_mpi_fold *fold, int may_gather);
int gw_mpi_fold_gathers(const gw_mpi_fold *fold);
void gw_mpi_fold_free(gw_mpi_fold *fold);

/* Requests of failed operations that this thread has completed inside the last MPI call. */
typedef struct gw_mpi_failures {
    int count, capacity;
    struct gw_mpi_failure {
        MPI_Request request;
        MPI_Comm comm;
        uint64_t word; /* not yet a code: MPICH makes none inside a callback */
    } * at;
} gw_mpi_failures;
extern _Thread_local gw_mpi_failures gw_mpi_failed;
/* Forgets them. */
void gw_mpi_failed_clear(void);

/* MPI's error code for an outcome, the same on all ranks; and the communicator's error handler, of
 * MPI_COMM_NULL none. */
int gw_mpi_error_code(uint64_t word);
int gw_mpi_error_raise(MPI_Comm comm, int code);

/* ------------ threads ------------ */

void gw_mpi_workers_start(void);
void gw_mpi_workers_wake(void);
void gw_mpi_workers_stop(void);
/* pthread_create() of a thread that takes no signals of the program. */
int gw_mpi_thread_create(pthread_t *thread, void *(*function)(void *));

/* The progress thread; 0 if it runs. */
int gw_mpi_progress_start(void);
void gw_mpi_progress_wake(void);
void gw_mpi_progress_stop(void);

/* The calling thread's workspace of at least size bytes, until the next call. */
gw_workspace gw_mpi_workspace(size_t size);

/* ------------ threshold ------------ */

/* In MPI_Init, collective: which ranks share a node. */
void gw_mpi_auto_begin(void);
void gw_mpi_auto_end(void);
/* 1 if all ranks of a communicator do. `world`: their ranks in MPI_COMM_WORLD. */
int gw_mpi_auto_on_node(const int *world, int size);
/* Takes the threshold of another communicator of the same ranks, or measures it. Collective and blocking. */
int gw_mpi_auto_measure(gw_mpi_context *context);
/* The threshold before it is measured, which nonblocking calls cannot do. */
uint64_t gw_mpi_auto_before(const gw_mpi_context *context);

/* ------------ scopes ------------ */

/* What the program has said of a communicator, or of the one that it is a duplicate of. */
int gw_mpi_scope_is_off(MPI_Comm comm);
void gw_mpi_scope_close(void);

/* ------------ interception ------------ */

/* What MPI_Init and MPI_Finalize do in addition to MPI's work. */
void gw_mpi_begin(int provided);
/* The thread level to ask for. */
int gw_mpi_begin_level(int required);
void gw_mpi_end(void);

/* Before MPI_Init: a line if the launcher is the other MPI's. */
void gw_mpi_entries_warn(void);

/* Reports an operation's failure that the last MPI call has found, if any; else returns status. */
int gw_mpi_conclude(int status);

/* Arguments of any function of MPI: each takes a register or a place of 8 bytes on the stack, and none is a
 * floating-point number. MPI_Sendrecv has 12. More are read than a caller passes, but none of them is used.
 */
#define GW_MPI_WORDS                                                                                         \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l
#define GW_MPI_WORDS_PASSED a, b, c, d, e, f, g, h, i, j, k, l
typedef long gw_mpi_any(GW_MPI_WORDS);

/* What a symbol of MPI calls: our function, or with the other MPI (mpi_entries.c) the next one of that name.
 */
typedef struct gw_mpi_entry {
    const char *name;
    gw_mpi_any *function;
} gw_mpi_entry;

/* Replaces `symbol` of MPI, whose name is `name`, by a function that follows with its body. */
#define GW_MPI_ENTRY_OF(symbol, name, type, own, parameters)                                                 \
    static type own parameters;                                                                              \
    static gw_mpi_entry own##_entry __attribute__((section("gw_mpi_entries"), used, aligned(16))) = {        \
        name, (gw_mpi_any *)(void (*)(void))own};                                                            \
    __attribute__((visibility("default"))) gw_mpi_any own##_symbol __asm__(symbol);                          \
    long own##_symbol(GW_MPI_WORDS)                                                                          \
    {                                                                                                        \
        return own##_entry.function(GW_MPI_WORDS_PASSED);                                                    \
    }                                                                                                        \
    static type own parameters

#define GW_MPI_ENTRY(name, parameters)                                                                       \
    GW_MPI_ENTRY_OF("MPI_" #name, "MPI_" #name, int, gw_mpi_own_##name, parameters)

/* Waits for one request of MPI's with progress of ours. */
int gw_mpi_wait_polling(MPI_Request *request, MPI_Status *status);

#ifdef GW_MPI_TESTING
/* Damages a message as GRADWIRE_MPI_TEST_DAMAGE says. */
void gw_mpi_test_damage(const gw_mpi_operation *operation, int hop, uint32_t piece, gw_mpi_block *message);
/* Takes the limit of numbers of communicators from GRADWIRE_MPI_TEST_NUMBERS. */
void gw_mpi_test_numbers(uint32_t *room);
#endif

#endif
