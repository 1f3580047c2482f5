/*
 * A thread rewrites the progress line, so work that cannot report how far it is shows at least that it runs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cli_common.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* Work that ends within a second shows nothing. */
#define FIRST_NANOSECONDS 1000000000
#define NEXT_NANOSECONDS  200000000

static struct {
    const char *label; /* NULL: not active */
    _Atomic uint64_t done, total;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int ended;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

double gw_cli_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void line_print(double seconds)
{
    const uint64_t total = atomic_load(&line.total);
    if (total != 0) {
        fprintf(stderr, "\r%s: %3.0f %%", line.label,
                100.0 * (double)atomic_load(&line.done) / (double)total);
    } else {
        fprintf(stderr, "\r%s: %.0f s", line.label, seconds);
    }
    fflush(stderr);
}

static void *line_main(void *argument)
{
    const double start = gw_cli_seconds();
    int shown = 0;
    (void)argument;
    (void)pthread_mutex_lock(&line.lock);
    while (!line.ended) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += shown ? NEXT_NANOSECONDS : FIRST_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&line.wake, &line.lock, &until) != 0 && !line.ended) {
            line_print(gw_cli_seconds() - start);
            shown = 1;
        }
    }
    (void)pthread_mutex_unlock(&line.lock);
    if (shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    return NULL;
}

void gw_cli_progress_begin(const char *label)
{
    gw_cli_progress_end();
    if (!isatty(STDERR_FILENO)) {
        return;
    }
    atomic_store(&line.done, 0);
    atomic_store(&line.total, 0);
    line.ended = 0;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&line.wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    /* Signals go to the main thread, which blocks them while it changes files (atomic_file.c). */
    sigset_t all;
    sigset_t previous;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &previous);
    line.label = label;
    if (pthread_create(&line.thread, NULL, line_main, NULL) != 0) {
        line.label = NULL;
    }
    (void)pthread_sigmask(SIG_SETMASK, &previous, NULL);
}

void gw_cli_progress_set(uint64_t done, uint64_t total)
{
    atomic_store(&line.done, done);
    atomic_store(&line.total, total);
}

void gw_cli_progress_end(void)
{
    if (line.label == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&line.lock);
    line.ended = 1;
    (void)pthread_cond_signal(&line.wake);
    (void)pthread_mutex_unlock(&line.lock);
    (void)pthread_join(line.thread, NULL);
    (void)pthread_cond_destroy(&line.wake);
    line.label = NULL;
}
