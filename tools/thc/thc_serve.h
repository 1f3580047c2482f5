/*
 * The state of `gradwire thc-serve`: jobs, their workers, and two servers of thc.h for each. No sockets and
 * no clock: the caller brings packets and the time, and sends what it is told to (serve_network.c; tests
 * simulate both).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_SERVE_H
#define GW_THC_SERVE_H

#include "thc_message.h"

/* Where a packet came from, compared as bytes: all that are not used are zero. */
typedef struct thc_peer {
    uint64_t connection; /* number of a stream, whose other end is known to be where it says; 0: a datagram */
    uint8_t size;        /* of the address; 0: nobody */
    uint8_t address[31]; /* fits sockaddr_in6 */
    uint64_t host;       /* of the address, without what its owner may choose; not compared */
} thc_peer;

typedef struct thc_serve_limits {
    uint32_t jobs_max;
    uint32_t workers_max; /* of a job */
    uint64_t memory_max;  /* bytes, of all jobs */
    uint32_t packet_max;  /* bytes of a packet that is made, unless a block needs more */
    uint32_t quorum;      /* workers that close a sum or maximum; 0: all */
    double wait_s;        /* after which one is closed with those that are there; 0: never */
    double idle_s;        /* after which a job without a packet is forgotten */
    double replies_max;   /* replies a second to senders that take part in no job: for those that have proved
                             their address, and for the others */
} thc_serve_limits;

enum { THC_STATUS_MAX = 64 }; /* above all statuses that a packet can have */

typedef struct thc_serve_counts {
    uint64_t received, received_size, sent, sent_size;
    uint64_t added;            /* packets that became part of a sum or maximum */
    uint64_t asked;            /* packets of workers that had no part in a sum, for its result */
    uint64_t results, partial; /* sums and maxima that were closed; of them not of all workers */
    uint64_t repeated;         /* results sent again */
    uint64_t dropped;          /* versions that no worker needed any more */
    uint64_t jobs, forgotten;  /* made; freed while workers had not left */
    uint64_t challenged, welcomed, refused_joins;
    uint64_t unknown;                 /* packets of senders that take part in no job */
    uint64_t early;                   /* packets before all workers have joined */
    uint64_t limited;                 /* replies that replies_max has stopped, and jobs that came too fast */
    uint64_t refused[THC_STATUS_MAX]; /* packets and messages, by status */
} thc_serve_counts;

typedef struct thc_worker {
    thc_peer peer;
    uint32_t round; /* the newest of which a packet came */
    uint32_t partial_round;
    uint8_t has_joined, has_left, has_partial, is_back;
} thc_worker;

enum { THC_NORMS = 0, THC_SUMS = 1 };

/* What thc.h's server does not keep of a slot's current version. */
typedef struct thc_slot {
    double opened;      /* time of the first contribution; below 0: it is not open */
    uint32_t round;     /* norms: whose maxima went out */
    uint32_t members;   /* norms: workers in these maxima, the only ones that may be in the sums */
    uint32_t abandoned; /* round of a version that was closed for nobody */
    int has_abandoned;
} thc_slot;

typedef struct thc_job {
    thc_worker *workers;
    uint64_t epoch, memory_size;
    gw_thc_message options; /* the JOIN that made it */
    uint32_t joined, left;
    unsigned failure;    /* gw_thc_refusal: no round can be finished */
    int has_started;     /* all workers have joined */
    int is_back;         /* some were in the job when another server had it */
    uint32_t full_until; /* then: the last round of which one may have a result from there */
    uint32_t blocks[2];  /* of a packet, by op */
    gw_thc_server servers[2];
    gw_thc_server_options server_options[2];
    thc_slot *slots[2];
    void *memory[2];
    double last_packet;
    uint64_t received, results, partial; /* for statistics */
} thc_job;

typedef void thc_send(void *context, const thc_peer *to, const uint8_t *packet, size_t packet_size);

enum { THC_HOSTS = 4096 }; /* of which replies are counted, by hash */

/* Replies that may be sent. */
typedef struct thc_credit {
    double credit, time;
} thc_credit;

typedef struct thc_serve {
    thc_serve_limits limits;
    uint64_t secret[2]; /* random: key of cookies and epochs */
    thc_send *send;
    void *context;
    thc_serve_counts counts;
    thc_job **jobs; /* jobs_max of them, NULL where there is none */
    uint64_t memory_size, epochs;
    double sweep_time;
    thc_credit replies[2]; /* to senders that have proved nothing, and to others */
    thc_credit hosts[THC_HOSTS];
    double memory_credit, memory_time;  /* bytes that new jobs may take */
    uint8_t empty[GW_THC_DATAGRAM_MAX]; /* a partial sum of no worker, by which one gets a result */
} thc_serve;

/* NULL without memory. */
thc_serve *thc_serve_create(const thc_serve_limits *limits, const uint64_t secret[2], thc_send *send,
                            void *context);
void thc_serve_free(thc_serve *serve);

/* A packet or message. `now` in seconds, never less than before. */
void thc_serve_receive(thc_serve *serve, const thc_peer *from, const uint8_t *packet, size_t packet_size,
                       double now);

/* Closes what has waited long enough, and forgets idle jobs. To be called a few times a second. */
void thc_serve_tick(thc_serve *serve, double now);

/* A stream has ended: nothing is sent to it any more. */
void thc_serve_ended(thc_serve *serve, const thc_peer *peer);

/* Whether this is a worker of a job. Looks at all of them. */
int thc_serve_takes_part(const thc_serve *serve, const thc_peer *peer);

/* ---- between the two files ---- */

void thc_serve_send(thc_serve *serve, const thc_peer *to, const uint8_t *packet, size_t packet_size);
void thc_serve_refuse(thc_serve *serve, gw_status status);
thc_job *thc_serve_job(thc_serve *serve, uint32_t number);

/* A short message to somebody: WELCOME, REFUSED or AGAIN. */
void thc_serve_answer(thc_serve *serve, const thc_job *job, const thc_peer *to,
                      const gw_thc_message *message);

/* Whether there is room for a reply to a sender that takes part in nothing.
 *   - has_proved: it is where it says */
int thc_serve_may_reply(thc_serve *serve, const thc_peer *to, int has_proved, double now);

/* JOIN and LEAVE. */
void thc_serve_on_message(thc_serve *serve, const thc_peer *from, const gw_thc_message *message, double now);

/* Frees jobs that have been idle for too long. */
void thc_serve_forget(thc_serve *serve, double now);

/* Whether this is the worker of that rank. job may be NULL, and the rank any. */
int thc_job_has(const thc_job *job, uint32_t rank, const thc_peer *peer);

int thc_peer_equal(const thc_peer *a, const thc_peer *b);

#endif
