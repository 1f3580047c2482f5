/*
 * An operation, as its parts see it: what it does, its outcome, its messages, what is counted of it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_MPI_OPERATIONS_H
#define GW_MPI_OPERATIONS_H

#include "gradwire/collective.h"
#include "mpi_context.h"

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
typedef struct gw_mpi_exchange gw_mpi_exchange;
typedef struct gw_mpi_lanes gw_mpi_lanes;

/* What a message between two ranks is. Those of one operation and one of these travel in order, those of
 * others apart. */
typedef enum gw_mpi_message {
    GW_MPI_MESSAGE_SCATTER, /* contributions, to the owner of a piece */
    GW_MPI_MESSAGE_GATHER,  /* sums, from it */
    GW_MPI_MESSAGE_OPENING, /* a vote before the first piece */
    GW_MPI_MESSAGE_CLOSING, /* the vote at the end */
    GW_MPI_MESSAGE_NORMS,   /* the same as the first two, of THC's norms */
    GW_MPI_MESSAGE_MAXIMA,
    GW_MPI_MESSAGE_OVERLAPS, /* a vote on which values are not zero */
    GW_MPI_MESSAGES = 8
} gw_mpi_message;

struct gw_mpi_operation {
    gw_mpi_operation *next; /* in the list of active ones */
    uint64_t serial;        /* place in it: increases */
    gw_mpi_context *context;
    gw_mpi_call call;
    uint32_t number;           /* in its context */
    gw_mpi_exact *exact;       /* decides how the values travel; NULL: the call does */
    int decided;               /* they do: */
    gw_mpi_exchange *exchange; /* the one that runs; NULL: it could not be made */
    gw_mpi_lanes *lanes;       /* THC; else NULL */
    pthread_mutex_t lock;
    int open;             /* may send, receive and work */
    uint64_t word, worst; /* own status word, maximum over the ranks */
    int mpi_error;        /* of transport, first one */
    gw_mpi_vote *vote;    /* the closing one; NULL: not open yet */
    int voted;            /* this rank has said its word */
    gw_mpi_sample *sample;
    uint64_t start_ns, wire_values, wire_size;
    atomic_int done;
    int pins;            /* guarded by the lock of the list, as are the following */
    int released;        /* known only to threads that hold a pin */
    int freed;           /* its request is */
    int ended;           /* its request is complete */
    atomic_int reported; /* a call of the program has seen the outcome */
    int generalized;
    MPI_Request request;
};

/* ------------ outcome ------------ */

/* Record the worst of an operation's failures: a word of collective.h, a status, an error of MPI. Hold the
 * lock. */
void gw_mpi_operation_word(gw_mpi_operation *operation, uint64_t word);
void gw_mpi_operation_fail(gw_mpi_operation *operation, gw_status status);
void gw_mpi_operation_mpi_error(gw_mpi_operation *operation, int error);

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
/* Adds an operation with a request, unless it succeeded or is there already. */
void gw_mpi_outcome_tell(const gw_mpi_operation *operation);
/* Forgets them. */
void gw_mpi_failed_clear(void);

/* MPI's error code for an outcome, the same on all ranks; and the communicator's error handler, of
 * MPI_COMM_NULL none. */
int gw_mpi_error_code(uint64_t word);
int gw_mpi_error_raise(MPI_Comm comm, int code);

/* Reports a failure that the last MPI call of this thread has found, if any; else returns status. */
int gw_mpi_conclude(int status);

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

/* ------------ statistics ------------ */

/* Adds to the counters of this process. */
void gw_mpi_statistics_add(const gw_mpi_statistics *more);

/* Why a call passed through: GW_MPI_PASSED_* and what its calls are said to be. */
#define GW_MPI_PASSED(X)                                                                                     \
    X(KIND, "are no sums of MPI_FLOAT")                                                                      \
    X(OFF, "came while it was switched off (gw_mpi_enable, MPI_Pcontrol)")                                   \
    X(BELOW, "are smaller than GRADWIRE_MPI_THRESHOLD")                                                      \
    X(ABOVE, "are larger than GRADWIRE_MPI_MAX_SIZE")                                                        \
    X(SLOWER, "are faster without (GRADWIRE_MPI_THRESHOLD=auto)")                                            \
    X(NODE, "are nonblocking, on one node (GRADWIRE_MPI_THRESHOLD=auto)")                                    \
    X(THREAD, "are nonblocking, without a thread (GRADWIRE_MPI_PROGRESS)")                                   \
    X(SCOPE, "are on communicators with the info gradwire=off")                                              \
    X(COMM, "are on communicators of one rank, or with others than those of MPI_COMM_WORLD")

#define GW_MPI_REASON(name, text) GW_MPI_PASSED_##name,
typedef enum gw_mpi_reason { GW_MPI_PASSED(GW_MPI_REASON) GW_MPI_REASONS } gw_mpi_reason;

extern atomic_uint_fast64_t gw_mpi_passed[GW_MPI_REASONS];

/* In MPI_Finalize, collective: what was compressed, if it is wanted, and why nothing was. */
void gw_mpi_statistics_log(void);

/* Starts to add some of its values exactly: after its number was taken. NULL: not of this one. */
gw_mpi_sample *gw_mpi_sample_start(const gw_mpi_operation *operation);
/* 1 if that is complete, or there is none. */
int gw_mpi_sample_test(gw_mpi_sample *sample);
void gw_mpi_sample_free(gw_mpi_sample *sample);
/* It is complete, and the program does not know yet. Holds the operation's lock. */
void gw_mpi_statistics_end(gw_mpi_operation *operation);

#ifdef GW_MPI_TESTING
/* ------------ tests ------------ */

/* Damages a message as GRADWIRE_MPI_TEST_DAMAGE says. */
void gw_mpi_test_damage(const gw_mpi_operation *operation, int hop, uint32_t piece, gw_mpi_block *message);
/* Takes the limit of numbers of communicators from GRADWIRE_MPI_TEST_NUMBERS. */
void gw_mpi_test_numbers(uint32_t *room);
#endif

#endif
