/* The map of an exchange: two passes over all pieces, the second with the base that the first one found. */
#include "pool_exchange.h"

#include <stdlib.h>

static gw_status make_streams(gw_exchange *exchange)
{
    size_t capacity = 2 * exchange->segments.count + 1;
    if (capacity > exchange->stream_capacity) {
        gw_gcomp_segment *streams = calloc(capacity, sizeof *streams);
        if (!streams) {
            return GW_ERR_LIMIT;
        }
        free(exchange->streams);
        exchange->streams = streams;
        exchange->stream_capacity = capacity;
    }
    return gw_collective_streams(&exchange->layout, &exchange->segments, exchange->streams, capacity,
                                 &exchange->stream_count);
}

/* Queues a pass over all pieces that have values; needs the lock. */
static void push_pass(gw_exchange *exchange, uint32_t kind)
{
    exchange->map_left = 0;
    for (uint32_t piece = 0; piece < exchange->layout.piece_count; piece++) {
        if (gw_exchange_piece(exchange, piece).len > 0) {
            exchange->map_left++;
            gw_exchange_push(exchange, kind, piece);
        }
    }
}

gw_status gw_exchange_map_start(gw_exchange *exchange, const gw_collective_segments *segments,
                                float wire_scale)
{
    if (!exchange || !segments || exchange->layout.shape.len == 0) {
        return GW_ERR_ARG;
    }
    gw_pool_lock(exchange->pool);
    gw_status status = exchange->map_busy || exchange->busy ? GW_ERR_STATE : GW_OK;
    if (status == GW_OK) {
        exchange->map_ready = 0;
        exchange->segments = *segments;
        status = make_streams(exchange);
    }
    if (status == GW_OK) {
        status = gw_pool_reserve(exchange->pool, 1);
    }
    if (status == GW_OK) {
        exchange->event_left++;
        exchange->map_busy = 1;
        exchange->map_top = 0;
        exchange->map_blame = (gw_collective_blame){.status = GW_OK};
        exchange->map.wire_scale = wire_scale;
        push_pass(exchange, GW_TASK_SCAN);
    }
    gw_pool_unlock(exchange->pool);
    return status;
}

gw_status gw_exchange_map_words(const gw_exchange *exchange, uint64_t words[GW_COLLECTIVE_MAP_WORDS])
{
    if (!exchange || !words) {
        return GW_ERR_ARG;
    }
    if (!exchange->map_ready) {
        return GW_ERR_STATE;
    }
    return gw_collective_map_words(&exchange->layout, &exchange->map, words);
}

/* A pass has ended; needs the lock. */
static void end_pass(gw_exchange *exchange, uint32_t kind)
{
    int good = exchange->map_blame.status == GW_OK;
    if (good && kind == GW_TASK_SCAN) {
        exchange->map.base = gw_gcomp_map_base(exchange->map_top);
        push_pass(exchange, GW_TASK_BUILD);
        return;
    }
    exchange->map_busy = 0;
    exchange->map_ready = good;
    gw_exchange_post(exchange,
                     (gw_pool_event){.kind = GW_POOL_MAP, .word = gw_collective_word(&exchange->map_blame)});
}

void gw_exchange_map_task(gw_exchange *exchange, const gw_task *task)
{
    uint64_t start = gw_pool_clock();
    uint32_t top = 0, level_max = 0, backends = exchange->config.codec.backends;
    gw_status status =
        task->kind == GW_TASK_SCAN
            ? gw_collective_map_scan(&exchange->layout, task->piece, &exchange->segments, backends, &top)
            : gw_collective_map_build(&exchange->layout, task->piece, &exchange->segments, backends,
                                      &exchange->map, &level_max);
    gw_pool_lock(exchange->pool);
    exchange->stats.map_ns += gw_pool_clock() - start;
    exchange->map_top = top > exchange->map_top ? top : exchange->map_top;
    if (status != GW_OK && exchange->map_blame.status == GW_OK) {
        exchange->map_blame = (gw_collective_blame){
            .status = status, .rank = exchange->config.rank, .piece = task->piece, .bad_chunk = UINT64_MAX};
    }
    if (--exchange->map_left == 0) {
        end_pass(exchange, task->kind);
    }
    gw_pool_unlock(exchange->pool);
}
