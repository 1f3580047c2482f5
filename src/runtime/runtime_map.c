/*
 * The map of an exchange: two passes over all pieces, the second with the base that the first one found.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_exchange.h"

gw_gcomp_map gw_exchange_map_of(const gw_exchange *exchange, const gw_collective_piece *at,
                                int is_contribution)
{
    const gw_collective_map *map = &exchange->map;
    uint32_t finer = is_contribution ? 4 * exchange->config.contribution_bits : 0; /* gw_collective_bucket */
    return (gw_gcomp_map){.bytes = map->bytes + at->first,
                          .digest = map->digest + at->digest_first,
                          .base = map->base > finer ? map->base - finer : 1,
                          .wire_scale = map->wire_scale,
                          .len = at->len,
                          .chunk_log2 = exchange->layout.shape.chunk_log2};
}

static void map_step(gw_runtime_task *task, const gw_workspace *workspace);

/* Queues a pass over all pieces that have values; needs the lock. */
static void push_pass(gw_exchange *exchange, gw_runtime_priority priority)
{
    exchange->map_left = 0;
    for (uint32_t i = 0; i < exchange->layout.piece_count; i++) {
        if (exchange->pieces[i].at.len > 0) {
            exchange->map_left++;
            gw_exchange_push(exchange, &exchange->pieces[i], priority, map_step);
        }
    }
}

/* The piece has ended its pass; needs the lock. 1: all have. */
static int end_piece(gw_exchange *exchange, uint32_t piece, gw_status status, uint64_t start)
{
    exchange->stats.map_ns += gw_runtime_clock() - start;
    if (status != GW_OK && exchange->map_failure.status == GW_OK) {
        exchange->map_failure = gw_exchange_failure(exchange, piece, status);
    }
    return --exchange->map_left == 0;
}

static void end_map(gw_exchange *exchange)
{
    exchange->map_busy = 0;
    exchange->map_ready = exchange->map_failure.status == GW_OK;
    gw_exchange_post(
        exchange, &exchange->posted,
        (gw_runtime_event){.kind = GW_RUNTIME_MAP, .word = gw_collective_word_write(&exchange->map_failure)});
}

/* A piece in one of the passes. */
static void map_step(gw_runtime_task *task, const gw_workspace *workspace)
{
    (void)workspace;
    uint64_t start = gw_runtime_clock();
    gw_exchange *exchange = task->owner;
    const int scans = task->priority == GW_RUNTIME_PRIORITY_SCAN;
    const uint32_t backends = exchange->config.codec.backends;
    uint32_t piece = gw_exchange_index(exchange, (gw_exchange_piece *)task), top = 0, map_byte_max = 0;
    gw_status status =
        scans ? gw_collective_map_scan(&exchange->layout, piece, &exchange->segments, backends, &top)
              : gw_collective_map_build(&exchange->layout, piece, &exchange->segments, backends,
                                        &exchange->map, &map_byte_max);
    gw_runtime_lock(exchange->runtime);
    exchange->map_top = top > exchange->map_top ? top : exchange->map_top;
    if (end_piece(exchange, piece, status, start)) {
        if (scans && exchange->map_failure.status == GW_OK) {
            exchange->map.base = gw_gcomp_map_base(exchange->map_top);
            push_pass(exchange, GW_RUNTIME_PRIORITY_MAP);
        } else {
            end_map(exchange);
        }
    }
    gw_exchange_leave(exchange);
}

gw_status gw_exchange_map_start(gw_exchange *exchange, const gw_collective_segments *segments,
                                float wire_scale)
{
    if (!exchange || !segments || exchange->layout.shape.len == 0 || exchange->config.segment_max == 0 ||
        segments->count > exchange->config.segment_max) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(exchange->runtime);
    gw_status status = gw_exchange_is_idle(exchange) ? GW_OK : GW_ERR_STATE;
    if (status == GW_OK) {
        exchange->map_ready = 0;
        exchange->codebooks.has_frames = 0;
        exchange->segments = *segments;
        status = gw_collective_streams(&exchange->layout, segments, exchange->streams,
                                       2 * (size_t)exchange->config.segment_max + 1, &exchange->stream_count);
    }
    if (status == GW_OK) {
        exchange->map_busy = 1;
        exchange->map_top = 0;
        exchange->map_failure = (gw_collective_failure){.status = GW_OK};
        exchange->map.wire_scale = wire_scale;
        push_pass(exchange, GW_RUNTIME_PRIORITY_SCAN);
    }
    gw_runtime_unlock(exchange->runtime);
    return status;
}

gw_status gw_exchange_map_words(const gw_exchange *exchange, uint64_t words[GW_COLLECTIVE_MAP_WORDS])
{
    if (!exchange || !words) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(exchange->runtime);
    gw_status status = exchange->map_ready && !exchange->stopped ? GW_OK : GW_ERR_STATE;
    gw_runtime_unlock(exchange->runtime);
    return status == GW_OK ? gw_collective_map_words(&exchange->layout, &exchange->map, words) : status;
}
