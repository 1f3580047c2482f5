/*
 * Life of an exchange: memory, message buffers, events, its end.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_route.h"

#include <stdlib.h>

uint32_t gw_exchange_index(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    return (uint32_t)(piece - exchange->pieces);
}

gw_collective_failure gw_exchange_failure(const gw_exchange *exchange, uint32_t piece, gw_status status)
{
    return (gw_collective_failure){
        .status = status, .rank = exchange->config.rank, .piece = piece, .bad_chunk = UINT64_MAX};
}

/* ------------ messages ------------ */

/*
 * Message buffers of buffer_size bytes, in this order: what this rank makes, one per piece; inputs, one per
 * element of `messages`; finished pieces, one per piece.
 */
static uint64_t input_count(const gw_collective_layout *layout)
{
    return (uint64_t)layout->shard_pieces * layout->shape.rank_count; /* that is piece_count, too */
}

static uint64_t buffer_count(const gw_collective_layout *layout)
{
    return 2 * (uint64_t)layout->piece_count + input_count(layout);
}

uint64_t gw_exchange_buffer_offset(const gw_exchange *exchange, uint32_t piece, uint32_t from)
{
    if (!exchange || piece >= exchange->layout.piece_count || exchange->pieces[piece].at.len == 0) {
        return UINT64_MAX;
    }
    const gw_exchange_piece *of = &exchange->pieces[piece];
    const gw_route_message message = gw_route_message_of(exchange, of, from);
    if (message == GW_ROUTE_NONE) {
        return UINT64_MAX;
    }
    uint64_t buffer = exchange->layout.piece_count;
    if (message == GW_ROUTE_INPUT) {
        buffer += (uint64_t)(gw_route_place(exchange, of, from) - exchange->messages);
    } else {
        buffer += input_count(&exchange->layout) + piece;
    }
    return buffer * exchange->buffer_size;
}

void gw_exchange_info_get(const gw_exchange *exchange, gw_exchange_info *info)
{
    *info = (gw_exchange_info){
        .layout = exchange->layout,
        .memory_size = exchange->memory_size,
        .message_bound = exchange->buffer_size,
        .digest_len = gw_collective_digest_len(&exchange->layout),
        .codebook_word_count = exchange->codebooks.codecs
                                   ? exchange->layout.piece_count * (uint64_t)GW_EXCHANGE_CODEBOOK_WORDS
                                   : 0,
    };
}

void gw_exchange_memory(gw_exchange *exchange, void *memory)
{
    exchange->memory = memory;
}

void gw_exchange_release(const gw_exchange *exchange, const gw_exchange_piece *piece, const void *data)
{
    const gw_exchange_buffers *buffers = &exchange->config.buffers;
    if (buffers->release && data && data != piece->notice && data != piece->passed_notice) {
        buffers->release(buffers->context, (void *)(uintptr_t)data); /* const only for what decodes it */
    }
}

void gw_exchange_release_inputs(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    if (piece->stage == GW_STAGE_DECODE) {
        for (int i = 0; i <= piece->refused; i++) {
            gw_exchange_release(exchange, piece, piece->finished.data);
        }
    } else if (piece->stage == GW_STAGE_GATHER || piece->stage == GW_STAGE_REDUCE) {
        const gw_route_inputs inputs = gw_route_inputs_of(exchange, piece);
        for (uint32_t i = 0; i < inputs.count; i++) {
            gw_exchange_release(exchange, piece, inputs.at[i].data);
        }
    }
}

/* ------------ tasks and events ------------ */

int gw_exchange_is_idle(const gw_exchange *exchange)
{
    return !exchange->stopped && !exchange->busy && !exchange->map_busy && !exchange->codebooks.busy &&
           exchange->events_waiting == 0;
}

void gw_exchange_push(gw_exchange *exchange, gw_exchange_piece *piece, gw_runtime_priority priority,
                      void (*run)(gw_runtime_task *, const gw_workspace *))
{
    if (!exchange->stopped) {
        piece->task = (gw_runtime_task){.run = run, .owner = exchange, .priority = priority};
        exchange->task_count++;
        gw_runtime_push(exchange->runtime, &piece->task);
    }
}

void gw_exchange_post(gw_exchange *exchange, gw_runtime_posted *posted, gw_runtime_event event)
{
    event.user = exchange->config.user;
    *posted = (gw_runtime_posted){.event = event, .waiting = &exchange->events_waiting};
    gw_runtime_post(exchange->runtime, posted);
}

void gw_exchange_leave(gw_exchange *exchange)
{
    gw_runtime *runtime = exchange->runtime;
    if (--exchange->task_count == 0) {
        gw_runtime_signal_zero(runtime);
    }
    gw_runtime_unlock(runtime); /* the exchange may be gone now */
}

/* ------------ life ------------ */

static void free_exchange(gw_exchange *exchange)
{
    free(exchange->pieces);
    free(exchange->map.bytes);
    free(exchange->map.digest);
    free(exchange->streams);
    free(exchange->messages);
    free(exchange->codebooks.codecs);
    free(exchange->codebooks.counts);
    free(exchange->codebooks.next);
    free(exchange);
}

/* Zeros, NULL without memory. calloc(0) may be NULL, so there is at least one element. */
static void *make_array(uint64_t len, size_t size)
{
    return len < SIZE_MAX / size ? calloc((size_t)len + 1, size) : NULL;
}

static int allocate_codebooks(gw_exchange *exchange)
{
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    const uint64_t count = exchange->layout.piece_count;
    if (!exchange->config.codebooks) {
        return 1;
    }
    codebooks->codecs = make_array(count, sizeof *codebooks->codecs);
    codebooks->counts = make_array(count, sizeof *codebooks->counts);
    codebooks->next = make_array(2 * count, sizeof *codebooks->next);
    for (uint64_t i = 0; i < count && codebooks->codecs; i++) {
        codebooks->codecs[i] = exchange->codec;
    }
    return codebooks->codecs && codebooks->counts && codebooks->next;
}

static int allocate(gw_exchange *exchange)
{
    const gw_collective_layout *layout = &exchange->layout;
    const uint64_t segment_max = exchange->config.segment_max;
    exchange->pieces = make_array(layout->piece_count, sizeof *exchange->pieces);
    exchange->messages = make_array(input_count(layout), sizeof *exchange->messages);
    if (segment_max > 0) {
        exchange->map.bytes = make_array(layout->shape.len, 1);
        exchange->map.digest = make_array(gw_collective_digest_len(layout), sizeof *exchange->map.digest);
        exchange->streams =
            segment_max < SIZE_MAX / 4 ? make_array(2 * segment_max + 1, sizeof *exchange->streams) : NULL;
    }
    return exchange->pieces && exchange->messages && allocate_codebooks(exchange) &&
           (segment_max == 0 || (exchange->map.bytes && exchange->map.digest && exchange->streams));
}

/* Codecs and the bound of their messages; 0: they do not fit the layout. */
static gw_status prepare_codecs(gw_exchange *exchange, uint64_t *bound)
{
    const gw_exchange_config *config = &exchange->config;
    gw_status status = gw_gcomp_init(&exchange->codec, &config->codec);
    status = status == GW_OK ? gw_gcomp_init(&exchange->fallback_codec, &config->fallback_codec) : status;
    if (status == GW_OK) {
        uint64_t fallback = gw_collective_message_bound(&exchange->layout, &exchange->fallback_codec);
        *bound = gw_collective_message_bound(&exchange->layout, &exchange->codec);
        *bound = *bound == 0 || fallback == 0 ? 0 : *bound > fallback ? *bound : fallback;
    }
    return status;
}

static gw_status prepare(gw_exchange *exchange)
{
    const gw_exchange_config *config = &exchange->config;
    const gw_collective_layout *layout = &exchange->layout;
    uint64_t bound = config->steps.message_bound;
    gw_status status = gw_collective_layout_init(&exchange->layout, &config->shape);
    if (status == GW_OK && !config->steps.run) {
        status = prepare_codecs(exchange, &bound);
    }
    if (status != GW_OK) {
        return status;
    }
    exchange->is_ring = config->algorithm == GW_EXCHANGE_RING && layout->shape.rank_count > 1;
    exchange->value_size = gw_dtype_size(config->codec.dtype); /* 0: none, with steps of the caller's */
    if (config->rank >= layout->shape.rank_count || exchange->value_size == 0 ||
        bound < GW_COLLECTIVE_NOTICE_SIZE || bound > SIZE_MAX / 2 ||
        (!config->steps.run && config->codec.dtype != config->fallback_codec.dtype)) {
        return GW_ERR_ARG;
    }
    exchange->buffer_size = (bound + 63) / 64 * 64; /* message buffers at cache lines */
    exchange->memory_size = config->buffers.take ? 0 : buffer_count(layout) * exchange->buffer_size;
    if (!allocate(exchange)) {
        return GW_ERR_LIMIT;
    }
    for (uint32_t i = 0; i < layout->piece_count && status == GW_OK; i++) {
        status = gw_collective_piece_at(layout, i, &exchange->pieces[i].at);
    }
    return status;
}

gw_status gw_exchange_open(gw_runtime *runtime, const gw_exchange_config *config, gw_exchange **exchange)
{
    if (!exchange) {
        return GW_ERR_ARG;
    }
    *exchange = NULL;
    if (!runtime || !config || !config->buffers.take != !config->buffers.release ||
        (config->steps.run && !config->buffers.take && !config->steps.message_size) ||
        (config->steps.run && config->algorithm != GW_EXCHANGE_A2A) || config->algorithm > GW_EXCHANGE_RING) {
        return GW_ERR_ARG;
    }
    if (config->codebooks > 1 || (config->codebooks && (config->buffers.take || config->steps.run))) {
        return GW_ERR_ARG;
    }
    gw_exchange *made = calloc(1, sizeof *made);
    if (!made) {
        return GW_ERR_LIMIT;
    }
    made->runtime = runtime;
    made->config = *config;
    gw_status status = prepare(made);
    if (status != GW_OK) {
        free_exchange(made);
        return status;
    }
    *exchange = made;
    return GW_OK;
}

/* What the transport would have sent: it does not learn of it any more. */
static void release_events(gw_exchange *exchange)
{
    const gw_runtime_posted *posted = &exchange->posted;
    while (posted) {
        gw_runtime_lock(exchange->runtime);
        posted = gw_runtime_unpost(exchange->runtime, &exchange->events_waiting);
        gw_runtime_unlock(exchange->runtime);
        if (posted && posted != &exchange->posted) {
            gw_exchange_release(exchange, &exchange->pieces[posted->event.piece], posted->event.data);
        }
    }
}

void gw_exchange_stop(gw_exchange *exchange)
{
    if (!exchange) {
        return;
    }
    gw_runtime_lock(exchange->runtime);
    exchange->stopped = 1; /* nothing is pushed any more */
    exchange->task_count -= gw_runtime_remove(exchange->runtime, exchange);
    gw_runtime_wait_zero(exchange->runtime, &exchange->task_count);
    gw_runtime_unlock(exchange->runtime);
    release_events(exchange);
    for (uint32_t i = 0; i < exchange->layout.piece_count; i++) {
        gw_exchange_release_inputs(exchange, &exchange->pieces[i]);
        exchange->pieces[i].stage = GW_STAGE_NONE;
    }
}

void gw_exchange_close(gw_exchange *exchange)
{
    if (!exchange) {
        return;
    }
    gw_exchange_stop(exchange);
    free_exchange(exchange);
}

void gw_exchange_stats_get(gw_exchange *exchange, gw_exchange_stats *stats)
{
    gw_runtime_lock(exchange->runtime);
    *stats = exchange->stats;
    gw_runtime_unlock(exchange->runtime);
}
