/*
 * Messages between workers and `gradwire thc-serve` besides the packets of thc.h: who takes part, and what
 * the server is (docs/format-thc.md section 7). Each is no larger than what it answers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_MESSAGE_H
#define GW_THC_MESSAGE_H

#include "gradwire/thc.h"

#define GW_THC_MESSAGE_MAGIC 0x1a6a5767u /* "gWj", 0x1a */
#define GW_THC_MESSAGE_SIZE  48u         /* of all but a JOIN */
#define GW_THC_JOIN_SIZE     96u

/* A packet that has the header of the INDICES of a worker that has none, and no payload: the worker wants the
 * RESULT. */
#define GW_THC_PACKET_ASK 7u

/* The largest packet of either direction: what fits a UDP datagram over IPv4. */
#define GW_THC_DATAGRAM_MAX 65507u

typedef enum gw_thc_message_type {
    GW_THC_MESSAGE_JOIN = 1,      /* worker: takes part */
    GW_THC_MESSAGE_CHALLENGE = 2, /* server: join again with this cookie, so that your address is known */
    GW_THC_MESSAGE_WELCOME = 3,   /* server: you take part; also a sign of life */
    GW_THC_MESSAGE_REFUSED = 4,   /* server: you do not, for this reason */
    GW_THC_MESSAGE_AGAIN = 5,     /* server: it does not know you */
    GW_THC_MESSAGE_LEAVE = 6      /* worker: ends */
} gw_thc_message_type;

typedef enum gw_thc_refusal {
    GW_THC_REFUSAL_OPTIONS = 1,   /* not valid, or no server can be made of them */
    GW_THC_REFUSAL_DIFFERENT = 2, /* another worker of the job has other ones */
    GW_THC_REFUSAL_RANK = 3,      /* taken by another address */
    GW_THC_REFUSAL_JOBS = 4,      /* the limit of jobs, in `detail` */
    GW_THC_REFUSAL_MEMORY = 5,    /* the limit of memory, in `detail`, in MiB */
    GW_THC_REFUSAL_WORKERS = 6,   /* the limit of workers of a job, in `detail` */
    GW_THC_REFUSAL_RESTARTED = 7, /* a partial result was lost with an earlier server: others cannot get it */
    GW_THC_REFUSAL_ROUND = 8,     /* too far from the rounds of other workers */
    GW_THC_REFUSAL_LAST = 8
} gw_thc_refusal;

typedef struct gw_thc_message {
    uint8_t type;
    uint16_t reason; /* REFUSED: gw_thc_refusal; WELCOME: how many workers have joined; else 0 */
    uint32_t job;
    uint16_t rank;
    uint16_t worker_max;
    uint64_t options_hash;
    uint64_t cookie; /* CHALLENGE, and the JOIN that answers it; else 0 */
    uint64_t epoch;  /* WELCOME, REFUSED to a worker of it: of the server's job, else 0; JOIN, LEAVE: that of
                        the last WELCOME, 0 if there was none */
    uint32_t round;  /* JOIN: where this worker is */
    uint32_t detail; /* REFUSED: the limit; WELCOME: blocks of a packet of sums, and << 16 those of norms */

    /* JOIN only: what the options hash cannot tell the server */
    uint8_t lane_bits;
    uint8_t block_log2;
    uint8_t patterns_per_block;
    uint8_t has_partial; /* this worker has used a result that is not of all workers: of partial_round last */
    gw_thc_table table;
    uint64_t len_max; /* values of the largest tensor */
    uint32_t partial_round;
} gw_thc_message;

/* Bytes of a message of this type; 0 if there is no such type. */
size_t gw_thc_message_size(unsigned type);

/* Writes gw_thc_message_size(message->type) bytes. */
void gw_thc_message_write(uint8_t *dst, const gw_thc_message *message);

/* GW_ERR_SHORT, _MAGIC, _VERSION, _UNSUPPORTED (type), _TRAILING, GW_ERR_HEADER for a field out of its range,
 * GW_ERR_DUP for a rank not below worker_max. *message is written on success only. */
gw_status gw_thc_message_parse(const uint8_t *src, size_t src_size, gw_thc_message *message);

/* Whether bytes begin like a message, not like a packet. */
int gw_thc_message_is(const uint8_t *src, size_t src_size);

/* What a refusal means, in words. Static storage. */
const char *gw_thc_refusal_text(unsigned reason);

/* Little-endian integers. */
static inline uint16_t gw_thc_get16(const uint8_t *src)
{
    return (uint16_t)(src[0] | src[1] << 8);
}

static inline uint32_t gw_thc_get32(const uint8_t *src)
{
    return (uint32_t)gw_thc_get16(src) | (uint32_t)gw_thc_get16(src + 2) << 16;
}

static inline uint64_t gw_thc_get64(const uint8_t *src)
{
    return (uint64_t)gw_thc_get32(src) | (uint64_t)gw_thc_get32(src + 4) << 32;
}

static inline void gw_thc_put16(uint8_t *dst, uint16_t value)
{
    dst[0] = (uint8_t)value;
    dst[1] = (uint8_t)(value >> 8);
}

static inline void gw_thc_put32(uint8_t *dst, uint32_t value)
{
    gw_thc_put16(dst, (uint16_t)value);
    gw_thc_put16(dst + 2, (uint16_t)(value >> 16));
}

static inline void gw_thc_put64(uint8_t *dst, uint64_t value)
{
    gw_thc_put32(dst, (uint32_t)value);
    gw_thc_put32(dst + 4, (uint32_t)(value >> 32));
}

#endif
