/*
 * Batches are balanced by chunk: which block takes which chunk, as the shim sees the tickets. There are fewer
 * blocks than items, every chunk of every item is taken once, blocks take chunks of several items, and the
 * chunks of a large item go to several blocks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_shim.h"

#include <stdio.h>
#include <stdlib.h>

enum { ITEMS = 24, LARGE = 11, CHUNK_LOG2 = 12, LARGE_CHUNKS = 12, TURNS_MAX = 200, BLOCKS_MAX = 16 };

/* Filled in when launches are made, before anything runs. */
static gcomp_shim_tickets tickets;
static const uint64_t *histogram_ticket;

typedef struct trace {
    uint32_t turns;
    uint32_t block[TURNS_MAX]; /* by turn */
} trace;

static trace decode_trace, encode_trace, histogram_trace;

static void note(const uint64_t *counter, uint64_t found, uint32_t block)
{
    trace *t = counter == tickets.decode     ? &decode_trace
               : counter == tickets.encode   ? &encode_trace
               : counter == histogram_ticket ? &histogram_trace
                                             : NULL;
    if (t != NULL && found < TURNS_MAX) {
        t->turns++;
        t->block[found] = block;
    }
}

static uint64_t len_of(uint32_t i)
{
    return i == LARGE ? (uint64_t)LARGE_CHUNKS << CHUNK_LOG2 : i % 4 == 3 ? 0 : 1 + 100 * (uint64_t)i;
}

/* units: chunks of all items; first_large: those before the large one. The number of failures. */
static int check(const char *what, const trace *t, uint32_t units, uint32_t first_large)
{
    uint32_t blocks = 0, items_of_block[BLOCKS_MAX] = {0};
    int is_large_shared = 0, has_most = 0;
    for (uint32_t turn = 0; turn < t->turns && turn < TURNS_MAX; turn++) {
        blocks = t->block[turn] + 1 > blocks ? t->block[turn] + 1 : blocks;
    }
    /* Every block ends with a ticket for which there is no chunk. */
    if (t->turns != units + blocks || blocks < 2 || blocks >= ITEMS || blocks > BLOCKS_MAX) {
        printf("%s: %u tickets, %u chunks, %u blocks\n", what, t->turns, units, blocks);
        return 1;
    }
    for (uint32_t unit = 0; unit < units; unit++) {
        if (unit >= first_large && unit < first_large + LARGE_CHUNKS) {
            is_large_shared = is_large_shared || t->block[unit] != t->block[first_large];
        } else {
            items_of_block[t->block[unit]]++;
        }
    }
    for (uint32_t block = 0; block < blocks; block++) {
        has_most = has_most || items_of_block[block] > ITEMS / 2;
    }
    if (!is_large_shared || has_most) {
        printf("%s: the large item went to one block, or one block had most items\n", what);
        return 1;
    }
    return 0;
}

int main(void)
{
    gw_gcomp_options options;
    gw_gcomp codec;
    gw_gcomp_source sources[ITEMS];
    gcomp_shim_source in[ITEMS];
    gw_cuda_result results[ITEMS];
    gw_cuda_gcomp_histogram histogram;
    void *dst[ITEMS];
    size_t capacity[ITEMS];
    uint32_t chunks_all = 0, chunks_before = 0, empty_all = 0, empty_before = 0;
    int failures = 0;

    gw_gcomp_options_init(&options, GW_BF16);
    options.chunk_log2 = CHUNK_LOG2;
    if (gw_gcomp_init(&codec, &options) != GW_OK) {
        return 2;
    }
    void *workspace = malloc(gw_gcomp_workspace_size(&codec));
    memset(sources, 0, sizeof sources);
    memset(in, 0, sizeof in);
    for (uint32_t i = 0; i < ITEMS; i++) {
        const uint64_t len = len_of(i);
        uint16_t *values = (uint16_t *)malloc(2 * (size_t)len + 2);
        sources[i].values = values;
        sources[i].len = len;
        capacity[i] = gw_gcomp_frame_bound(&codec, len);
        dst[i] = malloc(capacity[i]);
        void *frame = malloc(capacity[i]);
        if (workspace == NULL || values == NULL || dst[i] == NULL || frame == NULL) {
            return 2;
        }
        for (uint64_t at = 0; at < len; at++) {
            values[at] = (uint16_t)(0x3c00 + at % 29 * 0x40);
        }
        gw_buffer out = {frame, capacity[i], 0};
        if (gw_gcomp_encode(&codec, &sources[i], &out,
                            &(gw_workspace){workspace, gw_gcomp_workspace_size(&codec)}) != GW_OK) {
            return 2;
        }
        in[i].frame = frame;
        in[i].size = out.size;
        const uint32_t chunks = (uint32_t)((len + ((uint64_t)1 << CHUNK_LOG2) - 1) >> CHUNK_LOG2);
        chunks_all += chunks;
        empty_all += chunks == 0;
        chunks_before += i < LARGE ? chunks : 0;
        empty_before += i < LARGE && chunks == 0;
    }
    gw_shim_on_add64 = note;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        gw_shim_seed(seed);
        memset(&decode_trace, 0, sizeof decode_trace);
        memset(&encode_trace, 0, sizeof encode_trace);
        memset(&histogram_trace, 0, sizeof histogram_trace);
        memset(&histogram, 0, sizeof histogram);
        gcomp_shim_hop_batch(&codec, in, sources, ITEMS, dst, capacity, results, UINT64_MAX, &tickets);
        for (uint32_t i = 0; i < ITEMS; i++) {
            failures += results[i].status != GW_OK;
        }
        tickets.decode = tickets.encode = NULL;
        gcomp_shim_histogram_batch(&codec, sources, ITEMS, &histogram, results, &histogram_ticket);
        for (uint32_t i = 0; i < ITEMS; i++) {
            failures += results[i].status != GW_OK;
        }
        histogram_ticket = NULL;
        failures += check("decode of hops", &decode_trace, chunks_all, chunks_before);
        /* An empty frame is work for an encoder. */
        failures +=
            check("encode of hops", &encode_trace, chunks_all + empty_all, chunks_before + empty_before);
        failures += check("histogram", &histogram_trace, chunks_all, chunks_before);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        free((void *)(uintptr_t)sources[i].values);
        free((void *)(uintptr_t)in[i].frame);
        free(dst[i]);
    }
    free(workspace);
    printf("%d failures\n", failures);
    return failures != 0;
}
