/* A learning-free Ethernet switch in user space that holds every frame for a fixed time: the round-trip time
 * of limited links, on any kernel (netem is a module that many have not).
 *
 *   delay_switch DELAY_US INTERFACE...
 *
 * Port i is the i-th interface; the station on it has the address 02:67:77:00:00:(i+1). Frames to other
 * addresses go to all other ports. Segments of up to 64 KiB pass whole (PACKET_VNET_HDR). Prints "ready" when
 * it forwards, and on SIGTERM or SIGINT how many frames it passed and dropped. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PORTS = 64,
    FRAME_MAX = 10 + 18 + 65536, /* struct virtio_net_hdr, Ethernet with a tag, the largest segment */
    QUEUE_SIZE = 256 << 20,      /* 10 ms of 16 ports at 10 Gb/s; pages are taken when used */
    SOCKET_BUFFER = 64 << 20,
    FRAMES_A_TURN = 64, /* received from one port before the others and the queue have their turn */
    NS = 1000000000
};

typedef struct {
    int64_t due; /* CLOCK_MONOTONIC, ns */
    uint32_t port;
    uint32_t size; /* 0: the rest of the queue's memory is unused, go on at its start */
} entry;

typedef struct {
    int sockets[MAX_PORTS];
    size_t ports;
    int64_t delay;  /* ns */
    uint8_t *queue; /* ring of entries, each followed by its frame */
    size_t head;    /* next to leave */
    size_t tail;    /* next free byte */
    uint64_t passed;
    uint64_t dropped;
} delay_switch;

static volatile sig_atomic_t stopping;

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS + t.tv_nsec;
}

static int open_port(const char *name)
{
    const int one = 1;
    const int size = SOCKET_BUFFER;
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        fail("socket");
    }
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0) {
        fail("PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING");
    }
    /* Beyond the system's limit where permitted; the plain option where not. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) != 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    address.sll_ifindex = (int)if_nametoindex(name);
    struct packet_mreq all = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    if (address.sll_ifindex == 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail(name);
    }
    return fd;
}

/* Room for an entry and a largest frame, contiguous; 0 if the queue is full. Wraps with an entry of size 0.
 */
static int reserve(delay_switch *s)
{
    const size_t need = sizeof(entry) + FRAME_MAX;
    if (s->head == s->tail) {
        s->head = s->tail = 0;
    }
    if (s->tail >= s->head) {
        if (QUEUE_SIZE - s->tail >= need + sizeof(entry)) {
            return 1;
        }
        if (s->head < need + sizeof(entry)) {
            return 0;
        }
        memset(s->queue + s->tail, 0, sizeof(entry));
        s->tail = 0;
        return 1;
    }
    return s->head - s->tail > need;
}

static void receive(delay_switch *s, size_t port)
{
    for (int i = 0; i < FRAMES_A_TURN; i++) {
        static uint8_t lost[FRAME_MAX];
        const int room = reserve(s);
        uint8_t *frame = room ? s->queue + s->tail + sizeof(entry) : lost;
        const ssize_t size = recv(s->sockets[port], frame, FRAME_MAX, 0);
        if (size <= 0) {
            return;
        }
        if (!room) {
            s->dropped++;
            continue;
        }
        const entry e = {.due = now() + s->delay, .port = (uint32_t)port, .size = (uint32_t)size};
        memcpy(s->queue + s->tail, &e, sizeof e);
        s->tail += (sizeof e + e.size + 7) & ~(size_t)7;
    }
}

static void forward(delay_switch *s, const entry *e, const uint8_t *frame)
{
    static const uint8_t stations[5] = {0x02, 0x67, 0x77, 0, 0};
    const uint8_t *to = frame + 10; /* after struct virtio_net_hdr */
    const size_t station = to[5] - (size_t)1;
    const int known = memcmp(to, stations, sizeof stations) == 0 && station < s->ports;
    for (size_t port = 0; port < s->ports; port++) {
        if (port == e->port || (known && port != station)) {
            continue;
        }
        if (send(s->sockets[port], frame, e->size, 0) < 0) {
            s->dropped++; /* the port's queue is full, as in any switch */
        } else {
            s->passed++;
        }
    }
}

/* Sends what is due; returns how long the next frame has to wait, in ns, or -1 if there is none. */
static int64_t send_due(delay_switch *s)
{
    while (s->head != s->tail) {
        entry e;
        memcpy(&e, s->queue + s->head, sizeof e);
        if (e.size == 0) {
            s->head = 0;
            continue;
        }
        const int64_t wait = e.due - now();
        if (wait > 0) {
            return wait;
        }
        forward(s, &e, s->queue + s->head + sizeof e);
        s->head += (sizeof e + e.size + 7) & ~(size_t)7;
    }
    return -1;
}

static void run(delay_switch *s)
{
    struct pollfd polled[MAX_PORTS];
    for (size_t i = 0; i < s->ports; i++) {
        polled[i] = (struct pollfd){.fd = s->sockets[i], .events = POLLIN};
    }
    while (!stopping) {
        const int64_t wait = send_due(s);
        const struct timespec t = {.tv_sec = (time_t)(wait / NS), .tv_nsec = (long)(wait % NS)};
        const struct timespec second = {.tv_sec = 1};
        if (ppoll(polled, (nfds_t)s->ports, wait < 0 ? &second : &t, NULL) < 0 && errno != EINTR) {
            fail("ppoll");
        }
        for (size_t i = 0; i < s->ports; i++) {
            if (polled[i].revents != 0) {
                receive(s, i);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static delay_switch s;
    char *end = NULL;
    const long delay = argc > 2 ? strtol(argv[1], &end, 10) : -1;
    s.ports = argc > 2 ? (size_t)argc - 2 : 0;
    if (s.ports == 0 || s.ports > MAX_PORTS || *end != 0 || delay < 0 || delay > 1000000) {
        fprintf(stderr, "usage: delay_switch DELAY_US INTERFACE... (up to 1000000, %d)\n", MAX_PORTS);
        return 2;
    }
    s.delay = delay * 1000;
    s.queue =
        mmap(NULL, QUEUE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s.queue == MAP_FAILED) {
        fail("mmap");
    }
    for (size_t i = 0; i < s.ports; i++) {
        s.sockets[i] = open_port(argv[i + 2]);
    }
    const struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    puts("ready");
    fflush(stdout);
    run(&s);
    printf("passed %llu dropped %llu\n", (unsigned long long)s.passed, (unsigned long long)s.dropped);
    return 0;
}
