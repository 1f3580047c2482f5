/*
 * First use from many threads at once: all see the same backends, kernels and results. ThreadSanitizer
 * (preset `tsan`) checks that for races.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/cpu.h"
#include "core/gcomp_kernels.h"
#include "gradwire/gcomp.h"
#include "gradwire/thc.h"

enum { THREADS = 8, ROUNDS = 200 };

typedef struct seen {
    uint32_t available, crc, frame_crc;
    gw_thc thc;
    gw_status status;
    gw_gcomp codec;
} seen;

static pthread_barrier_t start;
static seen results[THREADS];
static float values[4096];
static uint8_t frames[THREADS][32768], workspaces[THREADS][1 << 20];

/* Each thread starts with another entry point, so that each of them comes first in some thread. */
static void *use(void *argument)
{
    const unsigned index = (unsigned)((seen *)argument - results);
    seen *s = &results[index];
    gw_gcomp_options options;
    gw_thc_options thc_options;
    pthread_barrier_wait(&start);
    for (unsigned step = 0; step < 4; step++) {
        switch ((index + step) % 4) {
        case 0:
            s->available = gw_backends_available();
            break;
        case 1:
            s->crc = gw_crc32c(0, "123456789", 9);
            break;
        case 2: {
            gw_gcomp_source source;
            gw_buffer dst = {frames[index], sizeof frames[index], 0};
            memset(&source, 0, sizeof source);
            source.values = values;
            source.len = sizeof values / sizeof values[0];
            gw_gcomp_options_init(&options, GW_FP32);
            s->status = gw_gcomp_init(&s->codec, &options);
            if (s->status == GW_OK) {
                s->status = gw_gcomp_encode(&s->codec, &source, &dst,
                                            &(gw_workspace){workspaces[index], sizeof workspaces[index]});
            }
            s->frame_crc = gw_crc32c(0, dst.data, dst.size);
            break;
        }
        default:
            if (gw_thc_options_init(&thc_options, &(gw_thc_goal){4, 8, 8, 0}, NULL) != GW_OK ||
                gw_thc_init(&s->thc, &thc_options) != GW_OK) {
                s->status = GW_ERR_STATE;
            }
            break;
        }
    }
    return NULL;
}

int main(void)
{
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        values[i] = (float)(i * 2654435761u >> 8) * 0x1p-24f - 0.5f;
    }
    if (pthread_barrier_init(&start, NULL, THREADS) != 0) {
        return 2;
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        memset(results, 0, sizeof results);
        gw_cpu_forget();
        for (unsigned i = 0; i < THREADS; i++) {
            if (pthread_create(&threads[i], NULL, use, &results[i]) != 0) {
                return 2;
            }
        }
        for (unsigned i = 0; i < THREADS; i++) {
            (void)pthread_join(threads[i], NULL);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            const seen *s = &results[i], *first = &results[0];
            if (s->status != GW_OK || s->crc != 0xe3069283u || s->available != gw_backends_available() ||
                s->frame_crc != first->frame_crc || memcmp(&s->thc, &first->thc, sizeof s->thc) != 0 ||
                memcmp(&s->codec, &first->codec, sizeof s->codec) != 0) {
                printf("round %u, thread %u: another result\n", round, i);
                return 1;
            }
        }
    }
    pthread_barrier_destroy(&start);
    return 0;
}
