/*
 * The sockets of a parameter server. One thread, no socket blocks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "serve_network.h"

#include "cli_common.h"
#include "cli_output.h"
#include "thc_address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGER_S 10.0 /* that a connection may be without being a worker's, if idle_s is not less */
#define SHORTAGE_S 0.2  /* for which nothing is accepted if the system has no room for it */

enum {
    SOCKET_BUFFER = 8 << 20,
    DATAGRAMS_MAX = 256, /* between two looks at the other sockets */
    READS_MAX = 16,
    ATTEMPTS = 20, /* for a port that is free for both */
    IN_SIZE = SERVE_PREFIX + GW_THC_DATAGRAM_MAX
};

/* ---- opening ---- */

static int socket_prepare(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? 0 : -1;
}

/* A bound socket, -1 on failure. port: 0, or in place of that of the address. */
static int socket_bind(const struct addrinfo *found, unsigned port)
{
    const int one = 1, size = SOCKET_BUFFER;
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    if (port != 0 && address.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)&address)->sin6_port = htons((uint16_t)port);
    } else if (port != 0) {
        ((struct sockaddr_in *)(void *)&address)->sin_port = htons((uint16_t)port);
    }
    const int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
    if (fd < 0) {
        return -1;
    }
    if (found->ai_socktype == SOCK_STREAM) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    } else {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size); /* needs a privilege */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    }
    if (socket_prepare(fd) != 0 || bind(fd, (const struct sockaddr *)&address, found->ai_addrlen) != 0) {
        const int error = errno;
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* The port of a socket, its address as text, and whether nobody else can reach it. */
static unsigned socket_name(serve_network *network, int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[64] = "", port[8] = "0";
    memset(&address, 0, sizeof address);
    (void)getsockname(fd, (struct sockaddr *)&address, &size);
    (void)getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    const int is_v6 = address.ss_family == AF_INET6;
    (void)snprintf(network->address, sizeof network->address, is_v6 ? "[%s]:%s" : "%s:%s", host, port);
    network->is_loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
    return (unsigned)strtoul(port, NULL, 10);
}

static const char *sockets_open(serve_network *network, const struct addrinfo *datagrams,
                                const struct addrinfo *streams)
{
    unsigned port = 0;
    network->datagrams = network->listener = -1;
    if (datagrams != NULL) {
        network->datagrams = socket_bind(datagrams, 0);
        if (network->datagrams < 0) {
            return "cannot bind a UDP socket";
        }
        port = socket_name(network, network->datagrams);
    }
    if (streams != NULL) {
        network->listener = socket_bind(streams, port);
        if (network->listener < 0 || listen(network->listener, 64) != 0) {
            return "cannot bind a TCP socket";
        }
        (void)socket_name(network, network->listener);
    }
    return NULL;
}

static void sockets_close(serve_network *network)
{
    if (network->datagrams >= 0) {
        (void)close(network->datagrams);
    }
    if (network->listener >= 0) {
        (void)close(network->listener);
    }
}

/* One of the addresses of a name. With port 0 the one that the system chose for datagrams may be taken for
 * streams: others are tried. */
static const char *address_open(serve_network *network, const struct addrinfo *datagrams,
                                const struct addrinfo *streams)
{
    const char *failed = NULL;
    for (int i = 0; i < ATTEMPTS; i++) {
        errno = 0;
        failed = sockets_open(network, datagrams, streams);
        if (failed == NULL) {
            break;
        }
        const int error = errno;
        sockets_close(network);
        network->datagrams = network->listener = -1;
        errno = error;
        if (error != EADDRINUSE) {
            break;
        }
    }
    return failed;
}

const char *serve_network_open(serve_network *network, const char *address, int with_datagrams,
                               int with_streams)
{
    struct addrinfo *datagrams = NULL, *streams = NULL;
    const char *failed = NULL;
    network->datagrams = network->listener = -1;
    if (with_datagrams) {
        failed = gw_thc_address_find(address, 0, 1, &datagrams);
    }
    if (failed == NULL && with_streams) {
        failed = gw_thc_address_find(address, 1, 1, &streams);
    }
    errno = 0;
    if (failed == NULL) {
        const struct addrinfo *d = datagrams, *t = streams;
        do { /* both lists are in the same order */
            failed = address_open(network, d, t);
            d = d != NULL ? d->ai_next : NULL;
            t = t != NULL ? t->ai_next : NULL;
        } while (failed != NULL && (d != NULL) == with_datagrams && (t != NULL) == with_streams);
    }
    const int error = errno;
    if (datagrams != NULL) {
        freeaddrinfo(datagrams);
    }
    if (streams != NULL) {
        freeaddrinfo(streams);
    }
    if (failed == NULL) {
        network->connections = gw_cli_alloc(network->connections_max * sizeof *network->connections);
        for (uint32_t i = 0; i < network->connections_max; i++) {
            network->connections[i] = (serve_connection){.socket = -1};
        }
    }
    errno = error;
    return failed;
}

/* ---- connections ---- */

static void connection_close(serve_network *network, serve_connection *c)
{
    (void)close(c->socket);
    thc_serve_ended(network->serve, &c->peer);
    free(c->in);
    free(c->out);
    *c = (serve_connection){.socket = -1};
}

void serve_network_close(serve_network *network)
{
    for (uint32_t i = 0; i < network->connections_max; i++) {
        if (network->connections[i].socket >= 0) {
            connection_close(network, &network->connections[i]);
        }
    }
    free(network->connections);
    sockets_close(network);
}

/* Sends what waits. A connection that fails is closed where it is read. */
static void connection_flush(serve_connection *c)
{
    while (c->out_done < c->out_size) {
        const ssize_t n = send(c->socket, c->out + c->out_done, c->out_size - c->out_done, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return;
        }
        c->out_done += (size_t)n;
    }
    c->out_size = c->out_done = 0;
}

static int connection_send(serve_network *network, serve_connection *c, const uint8_t *packet, size_t size)
{
    if (c->out == NULL) {
        c->out = malloc(network->out_max);
    }
    if (c->out != NULL && c->out_done > 0) {
        memmove(c->out, c->out + c->out_done, c->out_size - c->out_done);
        c->out_size -= c->out_done;
        c->out_done = 0;
    }
    if (c->out == NULL || network->out_max - c->out_size < SERVE_PREFIX + size) {
        return -1;
    }
    gw_thc_put32(c->out + c->out_size, (uint32_t)size);
    memcpy(c->out + c->out_size + SERVE_PREFIX, packet, size);
    c->out_size += SERVE_PREFIX + size;
    connection_flush(c);
    return 0;
}

void serve_network_send(void *context, const thc_peer *to, const uint8_t *packet, size_t packet_size)
{
    serve_network *network = context;
    if (to->connection == 0) {
        struct sockaddr_storage address;
        memset(&address, 0, sizeof address);
        memcpy(&address, to->address, to->size);
        network->unsent += sendto(network->datagrams, packet, packet_size, MSG_NOSIGNAL,
                                  (const struct sockaddr *)&address, to->size) < 0;
        return;
    }
    for (uint32_t i = 0; i < network->connections_max; i++) {
        serve_connection *c = &network->connections[i];
        if (c->socket >= 0 && c->peer.connection == to->connection) {
            network->unsent += connection_send(network, c, packet, packet_size) != 0;
            return;
        }
    }
    network->unsent++;
}

/* So that the server finds out within 11 s that the other end is gone, and its worker can come back. */
static void stream_prepare(int fd)
{
    const int one = 1, idle = 5, interval = 2, count = 3;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/* An IPv4 address, or the half of an IPv6 one that is the network's. */
static uint64_t host_of(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    uint64_t host = 0;
    if (address->ss_family != AF_INET6) {
        host = v4->sin_addr.s_addr;
    } else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(&host, v6->sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(&host, v6->sin6_addr.s6_addr, sizeof host);
    }
    return host;
}

static void connections_accept(serve_network *network, double now)
{
    for (int i = 0; i < READS_MAX; i++) {
        uint32_t place = 0;
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        memset(&address, 0, sizeof address);
        const int fd = accept(network->listener, (struct sockaddr *)&address, &size);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            network->accept_from = now + SHORTAGE_S; /* else the waiting connection ends each wait at once */
        }
        if (fd < 0) {
            return;
        }
        while (place < network->connections_max && network->connections[place].socket >= 0) {
            place++;
        }
        uint8_t *in = place < network->connections_max && socket_prepare(fd) == 0 ? malloc(IN_SIZE) : NULL;
        if (in == NULL) {
            network->refused++;
            (void)close(fd);
            continue;
        }
        stream_prepare(fd);
        network->accepted++;
        network->connections[place] = (serve_connection){
            .socket = fd,
            .peer = {.connection = ++network->connected, .size = 1, .host = host_of(&address)},
            .heard = now,
            .known = now,
            .look = now,
            .in = in,
        };
    }
}

/* Takes whole packets out of what has come; -1 for a size that no packet has. */
static int connection_cut(serve_network *network, serve_connection *c, double now)
{
    size_t done = 0;
    while (c->in_size - done >= SERVE_PREFIX) {
        const uint32_t size = gw_thc_get32(c->in + done);
        if (size < GW_THC_MESSAGE_SIZE || size > GW_THC_DATAGRAM_MAX) {
            thc_serve_refuse(network->serve, GW_ERR_LIMIT);
            return -1;
        }
        if (c->in_size - done < SERVE_PREFIX + size) {
            break;
        }
        c->heard = now;
        thc_serve_receive(network->serve, &c->peer, c->in + done + SERVE_PREFIX, size, now);
        done += SERVE_PREFIX + size;
    }
    memmove(c->in, c->in + done, c->in_size - done);
    c->in_size -= done;
    return 0;
}

static void connection_receive(serve_network *network, serve_connection *c, double now)
{
    for (int i = 0; i < READS_MAX; i++) {
        const ssize_t n = recv(c->socket, c->in + c->in_size, IN_SIZE - c->in_size, 0);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            return;
        }
        if (n > 0) {
            c->in_size += (size_t)n;
        }
        if (n <= 0 || connection_cut(network, c, now) != 0) {
            connection_close(network, c);
            return;
        }
    }
}

/* ---- the loop ---- */

static void datagrams_receive(serve_network *network, double now)
{
    for (int i = 0; i < DATAGRAMS_MAX; i++) {
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        thc_peer from;
        memset(&from, 0, sizeof from);
        const ssize_t n = recvfrom(network->datagrams, network->packet, sizeof network->packet, 0,
                                   (struct sockaddr *)&address, &size);
        if (n < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
                return;
            }
            continue; /* an error that an earlier packet has caused on its way to a worker that is gone */
        }
        if (size == 0 || size > sizeof from.address) {
            continue;
        }
        from.size = (uint8_t)size;
        from.host = host_of(&address);
        memcpy(from.address, &address, size);
        thc_serve_receive(network->serve, &from, network->packet, (size_t)n, now);
    }
}

static double stranger_max(const serve_network *network)
{
    return network->idle_s < STRANGER_S ? network->idle_s : STRANGER_S;
}

/* Whether a connection has been without packets, or not a worker's, for too long. */
static int is_idle(const serve_network *network, serve_connection *c, double now)
{
    if (now >= c->look || now - c->known >= stranger_max(network)) {
        c->look = now + stranger_max(network) / 2;
        c->known = thc_serve_takes_part(network->serve, &c->peer) ? now : c->known;
    }
    return now - c->heard > network->idle_s || now - c->known >= stranger_max(network);
}

int serve_network_run(serve_network *network, double wait_s, const sigset_t *signals)
{
    const uint32_t count = network->connections_max;
    struct pollfd *ready = gw_cli_alloc((count + 2) * sizeof *ready);
    const struct timespec wait = {(time_t)wait_s, (long)((wait_s - (double)(time_t)wait_s) * 1e9)};
    ready[0] = (struct pollfd){network->datagrams, POLLIN, 0};
    ready[1] = (struct pollfd){gw_cli_seconds() < network->accept_from ? -1 : network->listener, POLLIN, 0};
    for (uint32_t i = 0; i < count; i++) {
        const serve_connection *c = &network->connections[i];
        ready[2 + i] = (struct pollfd){c->socket, (short)(POLLIN | (c->out_size > 0 ? POLLOUT : 0)), 0};
    }
    const int found = ppoll(ready, count + 2, &wait, signals);
    if (found < 0 && errno != EINTR) {
        free(ready);
        return -1;
    }
    const double now = gw_cli_seconds();
    if (found > 0 && ready[0].revents != 0) {
        datagrams_receive(network, now);
    }
    for (uint32_t i = 0; i < count; i++) {
        serve_connection *c = &network->connections[i];
        if (found > 0 && ready[2 + i].revents & POLLOUT) {
            connection_flush(c);
        }
        if (found > 0 && ready[2 + i].revents & ~POLLOUT) {
            connection_receive(network, c, now);
        }
        if (c->socket >= 0 && is_idle(network, c, now)) {
            connection_close(network, c);
        }
    }
    if (found > 0 && ready[1].revents != 0) {
        connections_accept(network, now);
    }
    free(ready);
    return 0;
}
