/*
 * The frame changes while it is decoded, as it may in memory that a network card shares. Values may be wrong
 * then, and any status may come back; but nothing outside the buffers is read or written, the call returns,
 * and the handle decodes the original bytes afterwards. Buffers end at unmapped pages, so a step outside
 * stops the test.
 *
 *   changing_frame ROUNDS
 *
 * The race is the point of this test: it is not for ThreadSanitizer.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_COUNT = 4, VALUE_COUNT = (CHUNK_COUNT - 1) * 4096 + 77, FRONT_SIZE = 192 };

typedef struct vandal {
    volatile uint8_t *bytes;
    size_t size;
    size_t chunk_at[CHUNK_COUNT];
    atomic_int stop;
} vandal;

/* Flips a bit, leaves it for a moment, flips it back: anywhere, or near the start of a chunk, where the
 * counts are. */
static void *vandalise(void *argument)
{
    vandal *v = (vandal *)argument;
    uint64_t state = 1;
    while (!atomic_load(&v->stop)) {
        uint64_t r = gw_fuzz_random(&state);
        size_t at = r >> 14 & 1 ? (size_t)((r >> 16) % v->size)
                                : v->chunk_at[r >> 16 & 3] + (size_t)((r >> 18) % FRONT_SIZE);
        volatile uint8_t *byte = v->bytes + (at < v->size ? at : 0);
        uint8_t bit = (uint8_t)(1u << (r & 7));
        *byte ^= bit;
        for (unsigned i = 0; i < (r >> 8 & 63); i++) {
            (void)*byte;
        }
        *byte ^= bit;
    }
    return NULL;
}

/* Noise, or with `sparse` values of which most are zero. */
static void make_values(uint8_t *values, gw_dtype dtype, int sparse)
{
    const size_t element = gw_dtype_size(dtype);
    uint64_t state = (uint64_t)dtype;
    for (size_t i = 0; i < VALUE_COUNT * element; i++) {
        values[i] = (uint8_t)(gw_fuzz_random(&state) & (i % element == element - 1 ? 0xbf : 0xff));
    }
    for (size_t i = 0; sparse && i < VALUE_COUNT; i++) {
        if (gw_fuzz_random(&state) % 8 != 0) {
            memset(values + i * element, 0, element);
        } else {
            values[i * element + element - 1] = dtype == GW_FP16 ? 0x3c : 0x3f;
        }
    }
}

/* With `carried`: quanta, zero masks and dead zones. */
static unsigned long run(gw_dtype dtype, int checksum, int carried, unsigned long rounds)
{
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, dtype);
    options.chunk_log2 = 12;
    options.preset = GW_GCOMP_SMALL;
    options.checksum = checksum;
    options.quantum = gw_gcomp_quantum_of_drop(6);
    if (carried) {
        options.quantum_mode = GW_GCOMP_CARRIED;
        options.dead_zone = 1;
        options.block_log2 = 6;
        options.quantum = gw_gcomp_quantum_of_nmse(0.1f);
    }
    static gw_gcomp codec;
    FUZZ_CHECK(gw_gcomp_init(&codec, &options) == GW_OK);

    size_t element = gw_dtype_size(dtype);
    uint8_t *values = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_VALUES, VALUE_COUNT * element, 0);
    make_values(values, dtype, carried);
    gw_workspace workspace = {NULL, gw_gcomp_workspace_size(&codec)};
    workspace.data = gw_fuzz_buffer(GW_FUZZ_WORKSPACE, workspace.size, 0xd7);
    gw_buffer frame = {NULL, gw_gcomp_frame_bound(&codec, VALUE_COUNT), 0};
    frame.data = gw_fuzz_buffer(GW_FUZZ_FRAME, frame.capacity, 0);
    gw_gcomp_source source = {.values = values, .len = VALUE_COUNT};
    FUZZ_CHECK(gw_gcomp_encode(&codec, &source, &frame, &workspace) == GW_OK);

    uint8_t *expected = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_REFERENCE, VALUE_COUNT * element, 0);
    gw_gcomp_target target = {.values = expected, .capacity = VALUE_COUNT};
    FUZZ_CHECK(gw_gcomp_decode(&codec, &(gw_gcomp_frame){.data = frame.data, .size = frame.size}, &target,
                               &workspace) == GW_OK);

    uint8_t *src = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_SRC, frame.size, 0);
    memcpy(src, frame.data, frame.size);
    uint8_t *dst = (uint8_t *)gw_fuzz_buffer(GW_FUZZ_DST, VALUE_COUNT * element, 0);
    const gw_gcomp_frame in = {.data = src, .size = frame.size};
    target.values = dst;
    vandal v = {.bytes = src, .size = frame.size};
    gw_gcomp_frame_info info;
    FUZZ_CHECK(gw_gcomp_frame_parse(&codec, &in, &info) == GW_OK && info.chunk_count == CHUNK_COUNT);
    for (uint64_t i = 0; i < CHUNK_COUNT; i++) {
        gw_gcomp_chunk chunk;
        FUZZ_CHECK(gw_gcomp_frame_chunk(&in, &info, i, &chunk) == GW_OK);
        v.chunk_at[i] = (size_t)chunk.offset;
    }
    atomic_init(&v.stop, 0);
    pthread_t thread;
    FUZZ_CHECK(pthread_create(&thread, NULL, vandalise, &v) == 0);
    unsigned long refused = 0;
    for (unsigned long i = 0; i < rounds; i++) {
        gw_status status = (i & 1 ? gw_gcomp_decode_add : gw_gcomp_decode)(&codec, &in, &target, &workspace);
        FUZZ_CHECK(target.bad_chunk == UINT64_MAX || target.bad_chunk < CHUNK_COUNT);
        refused += status != GW_OK;
        gw_fuzz_buffers_check();
    }
    atomic_store(&v.stop, 1);
    FUZZ_CHECK(pthread_join(thread, NULL) == 0);

    FUZZ_CHECK(memcmp(src, frame.data, frame.size) == 0);
    FUZZ_CHECK(gw_gcomp_decode(&codec, &in, &target, &workspace) == GW_OK);
    FUZZ_CHECK(memcmp(dst, expected, VALUE_COUNT * element) == 0);
    return refused;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    for (int at_end = 0; at_end < 2; at_end++) {
        gw_fuzz_place_at_end(at_end);
        for (gw_dtype dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
            for (int checksum = 0; checksum < 2; checksum++) {
                for (int carried = 0; carried < 2; carried++) {
                    unsigned long refused = run(dtype, checksum, carried, rounds);
                    printf("dtype %d, checksum %d, carried %d: %lu of %lu decodes refused\n", (int)dtype,
                           checksum, carried, refused, rounds);
                }
            }
        }
    }
    return 0;
}
