/* Life of an exchange: memory, slots, tasks. */
#include "pool_exchange.h"

#include <stdlib.h>
#include <string.h>

gw_collective_piece gw_exchange_piece(const gw_exchange *exchange, uint32_t index)
{
    gw_collective_piece piece;
    if (gw_collective_piece_at(&exchange->layout, index, &piece) != GW_OK) {
        piece = (gw_collective_piece){0};
    }
    return piece;
}

/* ------------ slots ------------ */

/*
 * Slots of slot_size bytes, in this order: what this rank sends, one per piece; contributions to own pieces,
 * one per piece of a shard and rank; finished pieces, one per piece.
 */
uint64_t gw_exchange_out(const gw_exchange *exchange, uint32_t piece)
{
    return piece * exchange->slot_size;
}

static uint64_t slot_index(const gw_exchange *exchange, uint32_t piece, uint32_t from)
{
    const gw_collective_layout *layout = &exchange->layout;
    uint64_t count = layout->piece_count, ranks = layout->shape.rank_count;
    if (piece / layout->shard_pieces == exchange->config.rank) {
        return count + (uint64_t)(piece % layout->shard_pieces) * ranks + from;
    }
    return count + layout->shard_pieces * ranks + piece;
}

static uint64_t count_slots(const gw_collective_layout *layout)
{
    return 2 * (uint64_t)layout->piece_count + (uint64_t)layout->shard_pieces * layout->shape.rank_count;
}

uint64_t gw_exchange_slot(const gw_exchange *exchange, uint32_t piece, uint32_t from)
{
    if (!exchange || piece >= exchange->layout.piece_count || gw_exchange_piece(exchange, piece).len == 0) {
        return UINT64_MAX;
    }
    int own = piece / exchange->layout.shard_pieces == exchange->config.rank;
    if (own && (from >= exchange->layout.shape.rank_count || from == exchange->config.rank)) {
        return UINT64_MAX;
    }
    return slot_index(exchange, piece, from) * exchange->slot_size;
}

void gw_exchange_info_get(const gw_exchange *exchange, gw_exchange_info *info)
{
    *info = (gw_exchange_info){
        .layout = exchange->layout,
        .memory_size = exchange->slot_count * exchange->slot_size,
        .message_bound = exchange->slot_size,
        .digest_len = gw_collective_digest_len(&exchange->layout),
    };
}

void gw_exchange_memory(gw_exchange *exchange, void *memory)
{
    exchange->memory = memory;
}

/* ------------ tasks and events ------------ */

void gw_exchange_push(gw_exchange *exchange, uint32_t kind, uint32_t piece)
{
    exchange->task_count++;
    gw_pool_push(exchange->pool, &exchange->tasks[kind * exchange->layout.piece_count + piece]);
}

void gw_exchange_post(gw_exchange *exchange, gw_pool_event event)
{
    event.cookie = exchange->config.cookie;
    exchange->event_left--;
    gw_pool_post(exchange->pool, &event);
}

void gw_exchange_task(const gw_task *task, const gw_workspace *workspace)
{
    gw_exchange *exchange = task->exchange;
    gw_pool *pool = exchange->pool;
    if (task->kind == GW_TASK_SCAN || task->kind == GW_TASK_BUILD) {
        gw_exchange_map_task(exchange, task);
    } else {
        gw_exchange_step_task(exchange, task, workspace);
    }
    gw_pool_lock(pool);
    if (--exchange->task_count == 0) {
        gw_pool_signal_zero(pool);
    }
    gw_pool_unlock(pool);
}

/* ------------ life ------------ */

static void free_exchange(gw_exchange *exchange)
{
    free(exchange->tasks);
    free(exchange->map.levels);
    free(exchange->map.digest);
    free(exchange->streams);
    free(exchange->arrived);
    free(exchange->messages);
    free(exchange->finished);
    free(exchange->seen);
    free(exchange);
}

/* calloc(0) may be NULL, so everything has at least one element. */
static int allocate(gw_exchange *exchange)
{
    const gw_collective_layout *layout = &exchange->layout;
    size_t pieces = layout->piece_count, ranks = layout->shape.rank_count, own = layout->shard_pieces;
    uint64_t digests = gw_collective_digest_len(layout);
    exchange->tasks = calloc(pieces * GW_TASK_KINDS, sizeof *exchange->tasks);
    exchange->map.levels = calloc(layout->shape.len + 1, 1);
    exchange->map.digest = calloc(digests + 1, sizeof *exchange->map.digest);
    exchange->arrived = calloc(own, sizeof *exchange->arrived);
    exchange->messages = calloc(own * ranks, sizeof *exchange->messages);
    exchange->finished = calloc(pieces, sizeof *exchange->finished);
    exchange->seen = calloc(exchange->slot_count, 1);
    return exchange->tasks && exchange->map.levels && exchange->map.digest && exchange->arrived &&
           exchange->messages && exchange->finished && exchange->seen;
}

static gw_status prepare(gw_exchange *exchange)
{
    const gw_exchange_config *config = &exchange->config;
    gw_status status = gw_collective_layout_init(&exchange->layout, &config->shape);
    status = status == GW_OK ? gw_gcomp_init(&exchange->codec, &config->codec) : status;
    status = status == GW_OK ? gw_gcomp_init(&exchange->spare, &config->spare) : status;
    if (status != GW_OK) {
        return status;
    }
    if (config->rank >= exchange->layout.shape.rank_count || config->codec.dtype != config->spare.dtype) {
        return GW_ERR_ARG;
    }
    size_t bound = gw_collective_message_bound(&exchange->layout, &exchange->codec);
    size_t spare = gw_collective_message_bound(&exchange->layout, &exchange->spare);
    bound = spare > bound ? spare : bound;
    exchange->slot_size = (bound + 63) / 64 * 64; /* slots at cache lines */
    exchange->slot_count = count_slots(&exchange->layout);
    exchange->value_size = gw_dtype_size(config->codec.dtype);
    if (bound == 0) {
        return GW_ERR_LIMIT;
    }
    if (!allocate(exchange)) {
        return GW_ERR_LIMIT;
    }
    for (uint32_t kind = 0; kind < GW_TASK_KINDS; kind++) {
        for (uint32_t piece = 0; piece < exchange->layout.piece_count; piece++) {
            exchange->tasks[kind * exchange->layout.piece_count + piece] =
                (gw_task){.exchange = exchange, .piece = piece, .kind = kind};
        }
    }
    return GW_OK;
}

gw_status gw_exchange_open(gw_pool *pool, const gw_exchange_config *config, gw_exchange **exchange)
{
    if (!exchange) {
        return GW_ERR_ARG;
    }
    *exchange = NULL;
    if (!pool || !config || config->cookie == 0) {
        return GW_ERR_ARG;
    }
    gw_exchange *made = calloc(1, sizeof *made);
    if (!made) {
        return GW_ERR_LIMIT;
    }
    made->pool = pool;
    made->config = *config;
    gw_status status = prepare(made);
    if (status != GW_OK) {
        free_exchange(made);
        return status;
    }
    *exchange = made;
    return GW_OK;
}

void gw_exchange_close(gw_exchange *exchange)
{
    if (!exchange) {
        return;
    }
    gw_pool_lock(exchange->pool);
    gw_pool_wait_zero(exchange->pool, &exchange->task_count);
    gw_pool_release(exchange->pool, exchange->event_left);
    gw_pool_unlock(exchange->pool);
    free_exchange(exchange);
}

void gw_exchange_stats_get(gw_exchange *exchange, gw_exchange_stats *stats)
{
    gw_pool_lock(exchange->pool);
    *stats = exchange->stats;
    gw_pool_unlock(exchange->pool);
}
