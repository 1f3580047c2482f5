/*
 * thc_client.h: a worker of a THC job whose sums are made by a parameter server, `gradwire thc-serve`.
 *
 *   client = gw_thc_client_open(&options, text, sizeof text)
 *   for each tensor, all workers in the same order:
 *     gw_thc_norms()                                  of thc.h: patterns of all blocks
 *     gw_thc_client_norms(), gw_thc_client_run(), gw_thc_client_maxima()
 *     gw_thc_encode()                                 of the blocks that are not left out
 *     gw_thc_client_indices(), gw_thc_client_run(), gw_thc_client_sums()
 *     gw_thc_decode()
 *     gw_thc_error_restore()                          of the blocks whose indices are not in the sum
 *   gw_thc_client_close(client)
 *
 * There are no threads and no signals: everything happens in these calls. A client is for one thread at a
 * time. What a server that is started anew does to a round: docs/cli-thc.md, "A parameter server".
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_THC_CLIENT_H
#define GW_THC_CLIENT_H

#include "gradwire/thc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_thc_client gw_thc_client;

typedef struct gw_thc_client_options {
    const char *address; /* HOST:PORT, by UDP; or udp://HOST:PORT, tcp://HOST:PORT. Of several addresses of a
                            name the first that answers */
    const gw_thc *thc; /* of the job; `job` of its options is a number that no other job of the server has */
    uint64_t len_max;  /* values of the largest tensor; equal on all workers */
    uint32_t rank;
    uint32_t timeout_ms; /* of a phase: how long to wait for other workers */
    uint32_t silence_ms; /* how long to wait for a sign of life of the server */
} gw_thc_client_options;

typedef enum gw_thc_client_status {
    GW_THC_CLIENT_FAILED = -1, /* gw_thc_client_error() says why; every later call fails, too */
    GW_THC_CLIENT_DONE = 0,
    GW_THC_CLIENT_PENDING = 1 /* call again */
} gw_thc_client_status;

/* Nothing is sent yet. NULL on failure, with a message in `error`. */
GW_API gw_thc_client *gw_thc_client_open(const gw_thc_client_options *options, char *error,
                                         size_t error_size);

/* Tells the server, and frees everything. NULL is allowed. */
GW_API void gw_thc_client_close(gw_thc_client *client);

/* Begins the phase of norms of a tensor of `len` values; `patterns` of all its blocks are copied. Each round
 * comes after the one before, modulo 2^32: (int32_t)(round - last) > 0, else the call fails, and so does the
 * client. The server keeps results by round. Whoever goes back, such as to a checkpoint, opens a client with
 * another `job`, on all workers. */
GW_API gw_thc_client_status gw_thc_client_norms(gw_thc_client *client, uint32_t round, uint64_t len,
                                                const uint32_t *patterns);

/* Begins the phase of indices of the same tensor; they are copied. Those of blocks that are left out are not
 * read, but have their place. */
GW_API gw_thc_client_status gw_thc_client_indices(gw_thc_client *client, const uint8_t *indices,
                                                  size_t indices_size);

/* Sends and receives until the phase is done, for at most slice_ms. */
GW_API gw_thc_client_status gw_thc_client_run(gw_thc_client *client, uint32_t slice_ms);

/* After the phase of norms: maxima of all blocks. is_left_out[block]: 1 if this worker's norms came too late
 * for the maximum, so that it has no part in the sum of that block. */
GW_API gw_thc_client_status gw_thc_client_maxima(gw_thc_client *client, uint32_t *maxima,
                                                 uint8_t *is_left_out);

/* After the phase of indices: lanes of all blocks, contributors of each block, equal on all workers.
 * is_left_out[block]: 1 if this worker is not one of them. */
GW_API gw_thc_client_status gw_thc_client_sums(gw_thc_client *client, gw_buffer *lanes, uint32_t *members,
                                               uint8_t *is_left_out);

/* Why a call failed. In the client's memory. */
GW_API const char *gw_thc_client_error(const gw_thc_client *client);

typedef struct gw_thc_client_counts {
    uint64_t sent, sent_size; /* packets, and their bytes without headers of UDP, TCP and IP */
    uint64_t received, received_size;
    uint64_t sent_again, ignored; /* packets: repeated; received and of no use */
    uint64_t restarts;            /* of the server, that this worker has seen */
} gw_thc_client_counts;
GW_API void gw_thc_client_count(const gw_thc_client *client, gw_thc_client_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
