/*
 * That races in shared memory are found, each kind, and that what is ordered is not taken for one.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct params {
    int order; /* 0 nothing, 1 __syncwarp(), 2 __syncthreads(), 3 a shuffle, which orders no memory */
    int distance;
    int access; /* 0 read what the other wrote, 1 write what it read, 2 write what it wrote, 3 the same value,
                 * 4 both atomic, 5 read what it adds to, 6 set what it adds to, then both atomic */
    uint32_t *sink;
};

static void order_by(int how)
{
    if (how == 1) {
        __syncwarp();
    } else if (how == 2) {
        __syncthreads();
    } else if (how == 3) {
        (void)__shfl_sync(0xffffffffu, 1u, 0);
    }
}

/* Thread t writes or reads word t, then word t ^ distance. */
GW_KERNEL(touch, params, 64, 1)
{
    uint32_t *words = &GW_SHARED(uint32_t);
    const uint32_t own = threadIdx.x, other = own ^ (uint32_t)p.distance;

    words[own] = own;
    __syncthreads();
    if (p.access == 1) {
        p.sink[own] = words[own];
    } else if (p.access >= 4) {
        if (p.access == 6) {
            words[own] = 1000;
        }
        atomicAdd(&words[own], 1u);
    } else {
        words[own] = p.access == 3 ? 7 : own + 1;
    }
    order_by(p.order);
    if (p.access == 0 || p.access == 5) {
        p.sink[own] = words[other];
    } else if (p.access == 4 || p.access == 6) {
        atomicAdd(&words[other], 1u);
    } else {
        words[other] = p.access == 3 ? 7 : own + 100;
    }
}

static jmp_buf found;
static char what[64];

static void on_error(const char *message)
{
    snprintf(what, sizeof what, "%s", message);
    longjmp(found, 1);
}

/* The program ends at its first race, in a separate process: a block that stopped in the middle cannot be
 * continued. */
static const char *run(int order, int distance, int access)
{
    static uint32_t sink[64];
    const params p = {order, distance, access, sink};

    what[0] = 0;
    if (setjmp(found) == 0) {
        gw_shim_launch(touch_run, &p, 1, 64, 256, 0);
    }
    return what;
}

int main(int argc, char **argv)
{
    /* Which of the two accesses comes second, and so the message, depends on the schedule. */
    static const struct {
        int order, distance, access;
        bool is_race;
    } cases[] = {
        {0, 1, 0, true},   {1, 1, 0, false}, {2, 1, 0, false},  {3, 1, 0, true},   {1, 32, 0, true},
        {2, 32, 0, false}, {0, 1, 1, true},  {1, 1, 1, false},  {1, 32, 1, true},  {0, 1, 2, true},
        {2, 32, 2, false}, {0, 1, 3, false}, {0, 33, 4, false}, {0, 33, 5, true},  {2, 33, 5, false},
        {0, 0, 0, false},  {0, 33, 6, true}, {0, 1, 6, true},   {2, 33, 6, false},
    };
    const int count = sizeof cases / sizeof cases[0];
    int failures = 0;

    if (argc < 2) {
        return count; /* how many there are, for the caller */
    }
    gw_shim_on_error = on_error;
    const int i = atoi(argv[1]) - 1;
    if (i < 0 || i >= count) {
        return 2;
    }
    const char *said = run(cases[i].order, cases[i].distance, cases[i].access);
    if ((strstr(said, "beside another thread's") != nullptr) != cases[i].is_race) {
        printf("case %d: \"%s\"\n", i + 1, said);
        failures++;
    }
    return failures != 0;
}
