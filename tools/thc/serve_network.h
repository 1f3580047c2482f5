/*
 * The sockets of `gradwire thc-serve`: one for datagrams, one that listens, and its connections. In a stream
 * each packet has its size before it, 4 bytes, little-endian.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SERVE_NETWORK_H
#define GW_SERVE_NETWORK_H

#include "thc_serve.h"

#include <signal.h>
#include <sys/socket.h>

enum { SERVE_PREFIX = 4, SERVE_ADDRESS_MAX = 100 };

typedef struct serve_connection {
    int socket; /* below 0: none */
    thc_peer peer;
    double heard;       /* the last packet */
    double known, look; /* when it was last seen to be a worker's; when that is looked at again */
    size_t in_size, out_size, out_done;
    uint8_t *in;  /* SERVE_PREFIX + GW_THC_DATAGRAM_MAX bytes */
    uint8_t *out; /* what the socket did not take yet; out_max bytes, made when needed */
} serve_connection;

typedef struct serve_network {
    int datagrams, listener; /* below 0: none */
    int is_loopback;
    char address[SERVE_ADDRESS_MAX]; /* HOST:PORT, with the port that the system chose */
    uint32_t connections_max;
    size_t out_max; /* bytes that may wait for a connection; more are left out, and asked for again */
    double idle_s;
    double accept_from; /* not before this time: the system has no room */
    uint64_t connected;
    uint64_t accepted, refused,
        unsent; /* connections; connections beyond the limit; packets that nobody took */
    serve_connection *connections;
    thc_serve *serve;
    uint8_t packet[GW_THC_DATAGRAM_MAX + 1];
} serve_network;

/* Opens the sockets. NULL on success, else what failed; errno says why unless it is 0. */
const char *serve_network_open(serve_network *network, const char *address, int with_datagrams,
                               int with_streams);
void serve_network_close(serve_network *network);

/* For thc_serve_create(): sends, or gives up at once. */
void serve_network_send(void *network, const thc_peer *to, const uint8_t *packet, size_t packet_size);

/* Waits for at most wait_s, with these signals let in, and handles what has come. -1: waiting failed, errno
 * says why. Signals may stay pending while packets keep coming. */
int serve_network_run(serve_network *network, double wait_s, const sigset_t *signals);

#endif
