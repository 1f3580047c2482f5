/*
 * A worker's side of a parameter server, without sockets or a clock: what to send next, and what a received
 * packet means. Its caller transports bytes and says what time it is (thc_client.c; tests simulate both).
 *
 * A round has two phases: norms, whose maxima come back, and indices, whose sums come back. Each is cut into
 * packets, of which a window is on its way. Whatever is not answered is sent again; servers add nothing
 * twice. The packets of the phase before are kept: a server that was started anew gets them again, as another
 * worker may still wait for the answer.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_SESSION_H
#define GW_THC_SESSION_H

#include "thc_message.h"

typedef struct gw_thc_session gw_thc_session;

typedef struct gw_thc_session_options {
    const gw_thc *thc; /* copied */
    uint32_t rank;
    uint64_t len_max; /* values of the largest tensor; equal on all workers */
    int is_stream;    /* the transport loses nothing and keeps the order */
} gw_thc_session_options;

/* What ended a session. */
typedef enum gw_thc_fault {
    GW_THC_FAULT_NONE = 0,
    GW_THC_FAULT_REFUSED,   /* by the server: gw_thc_session_refusal() */
    GW_THC_FAULT_DIFFERENT, /* two results of the same blocks: replicas would differ */
    GW_THC_FAULT_PACKETS,   /* a server that was started anew cuts tensors in another way */
    GW_THC_FAULT_MEMORY
} gw_thc_fault;

/* NULL for a NULL pointer, a handle that is not initialised, a rank that is not below worker_max, len_max 0,
 * or without memory. */
gw_thc_session *gw_thc_session_create(const gw_thc_session_options *options);
void gw_thc_session_free(gw_thc_session *session);

/* Begins the phase of norms of a round: patterns of all blocks of a tensor. The round before must be done.
 * GW_ERR_STATE if it is not, if `round` does not come after that one modulo 2^32 (servers keep results by
 * round), or if a fault has ended the session; GW_ERR_LIMIT for len 0 or above len_max. */
gw_status gw_thc_session_norms(gw_thc_session *session, uint32_t round, uint64_t len,
                               const uint32_t *patterns);

/* Begins the phase of indices of the same round: packed indices of all blocks; those of blocks that are left
 * out are not read. GW_ERR_STATE, GW_ERR_SHORT. */
gw_status gw_thc_session_indices(gw_thc_session *session, const uint8_t *indices, size_t indices_size);

/* 1 once all answers of the phase are there. */
int gw_thc_session_is_done(const gw_thc_session *session);

/* After the phase of norms: the maxima, and for each block 1 if this worker's norms came too late for them.
 * It contributes nothing to such a block. GW_ERR_STATE. */
gw_status gw_thc_session_maxima(const gw_thc_session *session, uint32_t *maxima, uint8_t *is_left_out);

/* After the phase of indices: lanes, contributors of each block, and for each block 1 if this worker's
 * indices are not in the sum (also where it is left out). GW_ERR_STATE, GW_ERR_DST. */
gw_status gw_thc_session_sums(const gw_thc_session *session, gw_buffer *lanes, uint32_t *members,
                              uint8_t *is_left_out);

/* The next packet to send at this time, in seconds of any clock, in the session's memory until its next call;
 * NULL: none until gw_thc_session_due(). */
const uint8_t *gw_thc_session_output(gw_thc_session *session, double now, size_t *packet_size);
double gw_thc_session_due(const gw_thc_session *session);

/* A packet from the server. GW_OK: it was of use. Others change nothing. */
gw_status gw_thc_session_input(gw_thc_session *session, const uint8_t *packet, size_t packet_size,
                               double now);

/* 1, once, if the server does not know this worker: it is to join by a new socket, so that what is still on
 * its way from an earlier server is not taken for the answer of this one. */
int gw_thc_session_wants_socket(gw_thc_session *session);

/* The connection was lost: joins again. */
void gw_thc_session_lost(gw_thc_session *session, double now);

/* The LEAVE message, NULL if this worker takes part in nothing. */
const uint8_t *gw_thc_session_leave(gw_thc_session *session, size_t *packet_size);

gw_thc_fault gw_thc_session_fault(const gw_thc_session *session);

/* For messages to people. */
typedef struct gw_thc_session_state {
    int has_joined;  /* the server has welcomed this worker */
    uint32_t joined; /* workers that it knew then */
    uint32_t worker_max;
    int is_sum; /* phase: of indices, else of norms */
    uint32_t round;
    uint32_t packets; /* of the phase */
    uint32_t answered;
    unsigned refusal; /* gw_thc_refusal */
    uint32_t refusal_detail;
    uint64_t sent, sent_size, sent_again, received, received_size, ignored, restarts;
} gw_thc_session_state;
void gw_thc_session_look(const gw_thc_session *session, gw_thc_session_state *state);

#endif
