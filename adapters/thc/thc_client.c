/*
 * The sockets and the clock of a worker.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_client.h"
#include "thc_address.h"
#include "thc_session.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_AGAIN 0.1 /* seconds between two attempts */
#define ADDRESS_S     1.0 /* for which one of several addresses may be silent; then twice as long each time */
#define ADDRESS_S_MAX 4.0

enum {
    ADDRESS_MAX = 300,
    ERROR_MAX = 600,
    PREFIX = 4, /* bytes before a packet in a TCP stream: its size */
    SOCKET_BUFFER = 4 << 20,
    RECEIVED_MAX = 64, /* packets between two looks at what is to be sent */
    LEAVES = 3         /* datagrams, of which one may be lost; a second one changes nothing */
};

struct gw_thc_client {
    gw_thc_session *session;
    struct addrinfo *found;         /* addresses of the name */
    const struct addrinfo *current; /* the one that is tried, or in use */
    int socket, is_stream, is_connected;
    int has_answer; /* a server is at `current` */
    double connect_due;
    double opened, address_s; /* when `current` was tried first, and for how long it may be silent */
    uint32_t timeout_ms, silence_ms;
    double phase_begin, heard;
    int last_error;
    int is_failed;
    size_t out_size, out_done, in_size;
    uint8_t out[PREFIX + GW_THC_DATAGRAM_MAX];
    uint8_t in[PREFIX + GW_THC_DATAGRAM_MAX];
    char address[ADDRESS_MAX], error[ERROR_MAX];
};

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((format(printf, 2, 3))) static gw_thc_client_status fail(gw_thc_client *c, const char *format,
                                                                       ...)
{
    if (!c->is_failed) {
        char text[ERROR_MAX - ADDRESS_MAX - 40];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        (void)snprintf(c->error, sizeof c->error, "the parameter server at %s: %s", c->address, text);
        c->is_failed = 1;
    }
    return GW_THC_CLIENT_FAILED;
}

/* ---- sockets ---- */

static void socket_close(gw_thc_client *c)
{
    if (c->socket >= 0) {
        (void)close(c->socket);
    }
    c->socket = -1;
    c->is_connected = 0;
    c->out_size = c->out_done = c->in_size = 0;
}

/* After a failure: the next address of the name, then the first again. Not once a server has answered at one.
 */
static void address_next(gw_thc_client *c)
{
    if (c->has_answer) {
        return;
    }
    c->current = c->current->ai_next != NULL ? c->current->ai_next : c->found;
    c->opened = -1;
}

/* When the address that is tried has been silent for too long: one that drops all packets gives no error. A
 * stream that is connected is not silent: the server may have this worker's JOIN, and be busy with it. */
static double address_due(const gw_thc_client *c)
{
    const int is_silent = c->socket >= 0 && !c->has_answer && !(c->is_stream && c->is_connected);
    return is_silent && c->found->ai_next != NULL ? c->opened + c->address_s : 1e300;
}

/* To be called after what the socket has was received. */
static void address_skip_silent(gw_thc_client *c, double now)
{
    if (now >= address_due(c)) {
        socket_close(c);
        address_next(c);
        c->address_s = c->address_s < ADDRESS_S_MAX ? 2 * c->address_s : c->address_s;
        gw_thc_session_lost(c->session, now);
    }
}

/* A new socket. Errors are kept for the message of a timeout: a server may be about to start. */
static void socket_open(gw_thc_client *c, double now)
{
    const struct addrinfo *a = c->current;
    const int one = 1, size = SOCKET_BUFFER;
    socket_close(c);
    c->connect_due = now + CONNECT_AGAIN;
    c->opened = c->opened < 0 ? now : c->opened;
    c->socket = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (c->socket < 0 || fcntl(c->socket, F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(c->socket, F_SETFD, FD_CLOEXEC) != 0) {
        c->last_error = errno;
        socket_close(c);
        address_next(c);
        return;
    }
    (void)setsockopt(c->socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    (void)setsockopt(c->socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (c->is_stream) {
        (void)setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (connect(c->socket, a->ai_addr, a->ai_addrlen) == 0) {
        c->is_connected = 1;
    } else if (errno != EINPROGRESS) {
        c->last_error = errno;
        socket_close(c);
        address_next(c);
    }
}

/* The stream has ended, or never began. */
static void stream_lost(gw_thc_client *c, int error, double now)
{
    c->last_error = error;
    socket_close(c);
    address_next(c);
    gw_thc_session_lost(c->session, now);
}

/* Sends what is left of the last packet in a stream; 0 if nothing is left. */
static int stream_flush(gw_thc_client *c, double now)
{
    while (c->socket >= 0 && c->out_done < c->out_size) {
        const ssize_t n = send(c->socket, c->out + c->out_done, c->out_size - c->out_done, MSG_NOSIGNAL);
        if (n >= 0) {
            c->out_done += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return 1;
        } else if (errno != EINTR) {
            stream_lost(c, errno, now);
        }
    }
    c->out_size = c->out_done = 0;
    return 0;
}

/* A datagram that the system does not take counts as lost on its way. */
static int packet_send(gw_thc_client *c, const uint8_t *packet, size_t size, double now)
{
    if (c->is_stream) {
        gw_thc_put32(c->out, (uint32_t)size);
        memcpy(c->out + PREFIX, packet, size);
        c->out_size = PREFIX + size;
        return stream_flush(c, now);
    }
    if (send(c->socket, packet, size, MSG_NOSIGNAL) < 0) {
        c->last_error = errno;
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    }
    return 0;
}

/* Returns 1 if the socket takes no more for now. */
static int send_due(gw_thc_client *c, double now)
{
    size_t size;
    if (c->is_stream && (!c->is_connected || stream_flush(c, now))) {
        return c->is_connected;
    }
    while (c->socket >= 0) {
        const uint8_t *packet = gw_thc_session_output(c->session, now, &size);
        if (packet == NULL) {
            return 0;
        }
        if (packet_send(c, packet, size, now)) {
            return 1;
        }
    }
    return 0;
}

static void packet_received(gw_thc_client *c, const uint8_t *packet, size_t size, double now)
{
    c->heard = now;
    c->has_answer = 1;
    (void)gw_thc_session_input(c->session, packet, size, now);
}

static void datagrams_receive(gw_thc_client *c, double now)
{
    for (int i = 0; i < RECEIVED_MAX; i++) {
        const ssize_t n = recv(c->socket, c->in, sizeof c->in, 0);
        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
                c->last_error = errno; /* "Connection refused" of the port; a server may be about to start */
                if (!c->has_answer && c->found->ai_next != NULL) {
                    socket_close(c);
                    address_next(c);
                }
            }
            return;
        }
        packet_received(c, c->in, (size_t)n, now);
    }
}

/* Takes whole packets out of what the stream has brought. Returns -1 for a size that no packet has. */
static int stream_cut(gw_thc_client *c, double now)
{
    size_t done = 0;
    while (c->in_size - done >= PREFIX) {
        const uint32_t size = gw_thc_get32(c->in + done);
        if (size < GW_THC_MESSAGE_SIZE || size > GW_THC_DATAGRAM_MAX) {
            return -1;
        }
        if (c->in_size - done < PREFIX + size) {
            break;
        }
        packet_received(c, c->in + done + PREFIX, size, now);
        done += PREFIX + size;
    }
    memmove(c->in, c->in + done, c->in_size - done);
    c->in_size -= done;
    return 0;
}

static void stream_receive(gw_thc_client *c, double now)
{
    for (int i = 0; i < RECEIVED_MAX; i++) {
        const ssize_t n = recv(c->socket, c->in + c->in_size, sizeof c->in - c->in_size, 0);
        if (n > 0) {
            c->in_size += (size_t)n;
            if (stream_cut(c, now) != 0) {
                stream_lost(c, EPROTO, now);
                return;
            }
        } else if (n == 0) {
            stream_lost(c, ECONNRESET, now);
            return;
        } else if (errno != EINTR) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                stream_lost(c, errno, now);
            }
            return;
        }
    }
}

static void receive(gw_thc_client *c, double now)
{
    if (!c->is_stream) {
        datagrams_receive(c, now);
        return;
    }
    if (!c->is_connected) {
        int error = 0;
        socklen_t size = sizeof error;
        if (getsockopt(c->socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
            stream_lost(c, error, now);
            return;
        }
        c->is_connected = 1;
    }
    stream_receive(c, now);
}

/* ---- calls ---- */

/* HOST:PORT with or without a scheme. NULL, or what is wrong. */
static const char *address_read(gw_thc_client *c, const char *text)
{
    const char *rest = text;
    c->is_stream = strncmp(text, "tcp://", 6) == 0;
    if (c->is_stream || strncmp(text, "udp://", 6) == 0) {
        rest += 6;
    }
    if (strlen(rest) > ADDRESS_MAX - 8) {
        return "an address is HOST:PORT or [IPv6]:PORT";
    }
    (void)snprintf(c->address, sizeof c->address, "%s%s", c->is_stream ? "tcp://" : "udp://", rest);
    const char *wrong = gw_thc_address_find(rest, c->is_stream, 0, &c->found);
    c->current = c->found;
    return wrong;
}

gw_thc_client *gw_thc_client_open(const gw_thc_client_options *options, char *error, size_t error_size)
{
    gw_thc_client *c = calloc(1, sizeof *c);
    if (c == NULL || options == NULL || options->address == NULL) {
        (void)snprintf(error, error_size, "%s", c == NULL ? "no memory" : "no address");
        free(c);
        return NULL;
    }
    c->socket = -1;
    c->opened = -1;
    c->address_s = ADDRESS_S;
    c->timeout_ms = options->timeout_ms;
    c->silence_ms = options->silence_ms;
    const char *wrong = address_read(c, options->address);
    const gw_thc_session_options session = {options->thc, options->rank, options->len_max, c->is_stream};
    if (wrong == NULL) {
        c->session = gw_thc_session_create(&session);
        wrong = c->session == NULL ? "no memory, or a handle, rank or len_max that is not valid" : NULL;
    }
    if (wrong != NULL) {
        (void)snprintf(error, error_size, "the parameter server at %.*s: %s", ADDRESS_MAX, options->address,
                       wrong);
        gw_thc_client_close(c);
        return NULL;
    }
    return c; /* gw_thc_client_run() opens the socket */
}

void gw_thc_client_close(gw_thc_client *c)
{
    size_t size;
    if (c == NULL) {
        return;
    }
    if (c->session != NULL && c->socket >= 0 && c->out_size == 0) {
        const uint8_t *leave = gw_thc_session_leave(c->session, &size);
        const int copies = c->is_stream ? c->is_connected : LEAVES;
        for (int i = 0; i < copies && leave != NULL; i++) {
            (void)packet_send(c, leave, size, seconds_now());
        }
    }
    socket_close(c);
    gw_thc_session_free(c->session);
    if (c->found != NULL) {
        freeaddrinfo(c->found);
    }
    free(c);
}

static gw_thc_client_status begun(gw_thc_client *c, gw_status status, const char *what)
{
    if (c->is_failed) {
        return GW_THC_CLIENT_FAILED;
    }
    if (status != GW_OK) {
        return fail(c, "%s: %s", what, gw_status_message(status));
    }
    c->phase_begin = c->heard = seconds_now();
    return GW_THC_CLIENT_DONE;
}

gw_thc_client_status gw_thc_client_norms(gw_thc_client *c, uint32_t round, uint64_t len,
                                         const uint32_t *patterns)
{
    return begun(c, gw_thc_session_norms(c->session, round, len, patterns), "norms");
}

gw_thc_client_status gw_thc_client_indices(gw_thc_client *c, const uint8_t *indices, size_t indices_size)
{
    return begun(c, gw_thc_session_indices(c->session, indices, indices_size), "indices");
}

static gw_thc_client_status on_fault(gw_thc_client *c)
{
    gw_thc_session_state state;
    gw_thc_session_look(c->session, &state);
    switch (gw_thc_session_fault(c->session)) {
    case GW_THC_FAULT_REFUSED:
        return fail(c, "refused: %s (%u)", gw_thc_refusal_text(state.refusal), state.refusal_detail);
    case GW_THC_FAULT_DIFFERENT:
        return fail(c, "two different results of round %u", state.round);
    case GW_THC_FAULT_PACKETS:
        return fail(c, "was started anew with packets of another size");
    default:
        return fail(c, "no memory");
    }
}

/* Fails if the server or other workers were waited for too long. */
static gw_thc_client_status check_time(gw_thc_client *c, double now)
{
    gw_thc_session_state state;
    gw_thc_session_look(c->session, &state);
    const char *reason = c->last_error != 0 ? strerror(c->last_error) : "nothing received";
    if (now - c->heard > 1e-3 * c->silence_ms) {
        return fail(c, "no answer for %.3g s: %s", now - c->heard, reason);
    }
    if (now - c->phase_begin <= 1e-3 * c->timeout_ms) {
        return GW_THC_CLIENT_PENDING;
    }
    if (state.joined < state.worker_max) {
        return fail(c, "%u of %u workers have joined after %.3g s", state.joined, state.worker_max,
                    now - c->phase_begin);
    }
    return fail(c, "%u of %u packets of round %u (%s) are unanswered after %.3g s: other workers are late",
                state.packets - state.answered, state.packets, state.round,
                state.is_sum ? "indices" : "norms", now - c->phase_begin);
}

/* Until the socket has something, or something is due. */
static void wait_for_socket(gw_thc_client *c, int is_full, double now, double until)
{
    const double silent = address_due(c);
    double due = gw_thc_session_due(c->session);
    until = until < silent ? until : silent;
    due = c->socket < 0 ? c->connect_due : due;
    due = due < until ? due : until;
    double wait_ms = due > now ? (due - now) * 1e3 + 1 : 0;
    wait_ms = wait_ms < 1e6 ? wait_ms : 1e6;
    const int is_connecting = c->is_stream && !c->is_connected;
    struct pollfd ready = {c->socket, POLLIN, 0};
    if (is_full || is_connecting) {
        ready.events = is_connecting ? POLLOUT : POLLIN | POLLOUT;
        wait_ms = until > now ? (until - now) * 1e3 + 1 : 0;
    }
    if (poll(&ready, 1, (int)wait_ms) > 0 && c->socket >= 0 && (ready.revents & ~POLLOUT || is_connecting)) {
        receive(c, seconds_now());
    }
}

gw_thc_client_status gw_thc_client_run(gw_thc_client *c, uint32_t slice_ms)
{
    double now = seconds_now();
    const double until = now + 1e-3 * slice_ms;
    while (!c->is_failed) {
        if (gw_thc_session_fault(c->session) != GW_THC_FAULT_NONE) {
            return on_fault(c);
        }
        if (gw_thc_session_is_done(c->session)) {
            return GW_THC_CLIENT_DONE;
        }
        if (check_time(c, now) == GW_THC_CLIENT_FAILED) {
            break;
        }
        if (now >= until) {
            return GW_THC_CLIENT_PENDING;
        }
        if (gw_thc_session_wants_socket(c->session) || (c->socket < 0 && now >= c->connect_due)) {
            socket_open(c, now);
        }
        wait_for_socket(c, send_due(c, now), now, until);
        now = seconds_now();
        address_skip_silent(c, now);
    }
    return GW_THC_CLIENT_FAILED;
}

gw_thc_client_status gw_thc_client_maxima(gw_thc_client *c, uint32_t *maxima, uint8_t *is_left_out)
{
    const gw_status status = gw_thc_session_maxima(c->session, maxima, is_left_out);
    return status == GW_OK ? GW_THC_CLIENT_DONE : fail(c, "maxima: %s", gw_status_message(status));
}

gw_thc_client_status gw_thc_client_sums(gw_thc_client *c, gw_buffer *lanes, uint32_t *members,
                                        uint8_t *is_left_out)
{
    const gw_status status = gw_thc_session_sums(c->session, lanes, members, is_left_out);
    return status == GW_OK ? GW_THC_CLIENT_DONE : fail(c, "sums: %s", gw_status_message(status));
}

const char *gw_thc_client_error(const gw_thc_client *c)
{
    return c->error;
}

void gw_thc_client_count(const gw_thc_client *c, gw_thc_client_counts *counts)
{
    gw_thc_session_state state;
    gw_thc_session_look(c->session, &state);
    *counts = (gw_thc_client_counts){state.sent,       state.sent_size, state.received, state.received_size,
                                     state.sent_again, state.ignored,   state.restarts};
}
