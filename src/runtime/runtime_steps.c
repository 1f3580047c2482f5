/* The steps of an operation, and what follows what. */
#include "pool_exchange.h"

#include <stdlib.h>
#include <string.h>

static int is_own(const gw_exchange *exchange, uint32_t piece)
{
    return piece / exchange->layout.shard_pieces == exchange->config.rank;
}

/* The worst outcome counts; needs the lock. */
static void note(gw_exchange *exchange, const gw_collective_blame *blame)
{
    uint64_t word = gw_collective_word(blame);
    exchange->worst = word > exchange->worst ? word : exchange->worst;
}

/* A piece is in place; needs the lock. */
static void finish_piece(gw_exchange *exchange)
{
    if (--exchange->left == 0) {
        exchange->stats.operations++;
        gw_exchange_post(exchange, (gw_pool_event){.kind = GW_POOL_DONE, .word = exchange->worst});
        gw_pool_release(exchange->pool, exchange->event_left);
        exchange->event_left = 0;
        exchange->busy = 0;
    }
}

/* ------------ start ------------ */

/* Pieces of others in the order in which they are sent: their first pieces, their second ones; each rank
 * begins with its right neighbour, so that not all send to one. */
static uint32_t others_piece(const gw_exchange *exchange, uint32_t index)
{
    uint32_t ranks = exchange->layout.shape.rank_count;
    uint32_t owner = (uint32_t)(((uint64_t)exchange->config.rank + 1 + index % (ranks - 1)) % ranks);
    return owner * exchange->layout.shard_pieces + index / (ranks - 1);
}

static uint32_t others_count(const gw_exchange *exchange)
{
    return exchange->layout.piece_count - exchange->layout.shard_pieces;
}

/* Queues what needs no message; needs the lock. */
static void push_first(gw_exchange *exchange)
{
    uint32_t others = others_count(exchange), own = exchange->layout.shard_pieces;
    for (uint32_t i = 0; i < others; i++) {
        uint32_t piece = others_piece(exchange, i);
        if (gw_exchange_piece(exchange, piece).len > 0) {
            exchange->left++;
            gw_exchange_push(exchange, GW_TASK_ENCODE, piece);
        }
    }
    for (uint32_t i = 0; i < own; i++) {
        uint32_t piece = exchange->config.rank * own + i;
        if (gw_exchange_piece(exchange, piece).len > 0) {
            exchange->left++;
            if (exchange->layout.shape.rank_count == 1) {
                gw_exchange_push(exchange, GW_TASK_REDUCE, piece);
            }
        }
    }
}

static void reset(gw_exchange *exchange, const gw_exchange_run *run)
{
    const gw_collective_layout *layout = &exchange->layout;
    int spare = (run->flags & GW_EXCHANGE_SPARE) != 0;
    size_t ranks = layout->shape.rank_count, own = layout->shard_pieces;
    exchange->run = *run;
    exchange->bucket = (gw_collective_bucket){
        .layout = layout,
        .codec = spare ? &exchange->spare : &exchange->codec,
        .map = exchange->map_ready ? &exchange->map : NULL,
        .values = run->values,
        .rank = exchange->config.rank,
        .step_index = run->step_index,
        .streams = exchange->streams,
        .stream_count = exchange->map_ready ? exchange->stream_count : 0,
        .seed = exchange->config.seed,
        .contribution_bits = exchange->config.contribution_bits,
    };
    exchange->left = 0;
    exchange->worst = 0;
    memset(exchange->arrived, 0, own * sizeof *exchange->arrived);
    memset(exchange->messages, 0, own * ranks * sizeof *exchange->messages);
    memset(exchange->finished, 0, layout->piece_count * sizeof *exchange->finished);
    memset(exchange->seen, 0, exchange->slot_count);
}

gw_status gw_exchange_start(gw_exchange *exchange, const gw_exchange_run *run)
{
    if (!exchange || !run || !run->values || !run->result || exchange->layout.shape.len == 0) {
        return GW_ERR_ARG;
    }
    gw_pool_lock(exchange->pool);
    gw_status status = !exchange->memory || exchange->busy || exchange->map_busy ? GW_ERR_STATE : GW_OK;
    size_t events = (size_t)exchange->layout.piece_count + 1; /* SEND or SHARE of every piece, and DONE */
    if (status == GW_OK) {
        status = gw_pool_reserve(exchange->pool, events);
    }
    if (status == GW_OK) {
        exchange->event_left += events;
        exchange->busy = 1;
        reset(exchange, run);
        push_first(exchange);
    }
    gw_pool_unlock(exchange->pool);
    return status;
}

/* ------------ receive ------------ */

/* The message at a slot. Frames and notices delimit themselves; what is neither keeps the whole slot, and the
 * step that reads it says what is wrong. */
static gw_gcomp_frame message_at(const gw_exchange *exchange, uint64_t offset)
{
    const uint8_t *data = exchange->memory + offset;
    gw_collective_blame blame;
    gw_gcomp_info info;
    gw_gcomp_frame message = {.data = data, .size = exchange->slot_size};
    if (gw_collective_notice_read(data, GW_COLLECTIVE_NOTICE_SIZE, &blame)) {
        message.size = GW_COLLECTIVE_NOTICE_SIZE;
    } else if (gw_gcomp_peek(data, exchange->slot_size, exchange->config.codec.len_max, &info) == GW_OK &&
               info.frame_size < message.size) {
        message.size = (size_t)info.frame_size;
    }
    return message;
}

gw_status gw_exchange_receive(gw_exchange *exchange, uint32_t piece, uint32_t from)
{
    uint64_t offset = gw_exchange_slot(exchange, piece, from);
    if (offset == UINT64_MAX) {
        return GW_ERR_ARG;
    }
    gw_pool_lock(exchange->pool);
    uint8_t *seen = &exchange->seen[offset / exchange->slot_size];
    gw_status status = exchange->busy && !*seen ? GW_OK : GW_ERR_STATE;
    if (status == GW_OK) {
        uint32_t ranks = exchange->layout.shape.rank_count;
        uint32_t own = piece % exchange->layout.shard_pieces;
        gw_gcomp_frame message = message_at(exchange, offset);
        *seen = 1;
        exchange->stats.received_size += message.size;
        if (!is_own(exchange, piece)) {
            exchange->finished[piece] = message;
            gw_exchange_push(exchange, GW_TASK_DECODE, piece);
        } else {
            exchange->messages[(size_t)own * ranks + from] = message;
            if (++exchange->arrived[own] == ranks - 1) {
                gw_exchange_push(exchange, GW_TASK_REDUCE, piece);
            }
        }
    }
    gw_pool_unlock(exchange->pool);
    return status;
}

/* ------------ steps ------------ */

static gw_collective_blame blame_self(const gw_exchange *exchange, uint32_t piece, gw_status status)
{
    return (gw_collective_blame){
        .status = status, .rank = exchange->config.rank, .piece = piece, .bad_chunk = UINT64_MAX};
}

/* A notice in place of a frame that could not be made. */
static void write_notice(gw_buffer *dst, const gw_collective_blame *blame)
{
    if (gw_collective_notice_write(blame, dst) != GW_OK) {
        /* Cannot happen: every slot is larger than a notice. Zeros are no frame, so receivers fail. */
        memset(dst->data, 0, GW_COLLECTIVE_NOTICE_SIZE);
        dst->size = GW_COLLECTIVE_NOTICE_SIZE;
    }
}

/* Squares of a piece's fp32 values and of what its frame changed; 0 if it cannot be decoded. */
static void measure(gw_exchange *exchange, uint32_t piece, const gw_buffer *frame, double sums[2],
                    const gw_workspace *workspace)
{
    gw_collective_piece at = gw_exchange_piece(exchange, piece);
    const uint8_t *values = (const uint8_t *)exchange->run.values + at.first * exchange->value_size;
    gw_gcomp_frame message = {.data = frame->data, .size = frame->size};
    float *decoded = malloc(at.len * sizeof *decoded);
    gw_gcomp_target target = {.values = decoded, .capacity = at.len};
    gw_collective_blame blame;
    gw_status status = GW_ERR_WORKSPACE;
    if (decoded) {
        status = gw_collective_decode(&exchange->bucket, piece, &message, &target, &blame, workspace);
    }
    for (uint64_t i = 0; status == GW_OK && i < at.len; i++) {
        float value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        double error = (double)decoded[i] - (double)value;
        sums[0] += (double)value * (double)value;
        sums[1] += error * error;
    }
    free(decoded);
}

static void encode(gw_exchange *exchange, uint32_t piece, const gw_workspace *workspace)
{
    uint64_t start = gw_pool_clock();
    uint64_t offset = gw_exchange_out(exchange, piece);
    gw_buffer dst = {.data = exchange->memory + offset, .capacity = exchange->slot_size};
    gw_status status = gw_collective_encode(&exchange->bucket, piece, &dst, workspace);
    gw_collective_blame blame = blame_self(exchange, piece, status);
    uint64_t spent = gw_pool_clock() - start; /* measuring is not encoding */
    double sums[2] = {0, 0};
    if (status != GW_OK) {
        write_notice(&dst, &blame);
    } else if ((exchange->run.flags & GW_EXCHANGE_SAMPLE) && exchange->config.codec.dtype == GW_FP32) {
        measure(exchange, piece, &dst, sums, workspace);
    }
    gw_pool_lock(exchange->pool);
    exchange->stats.encode_ns += spent;
    exchange->stats.sent_size += dst.size;
    exchange->stats.sample_square += sums[0];
    exchange->stats.sample_error += sums[1];
    note(exchange, &blame);
    gw_exchange_post(
        exchange, (gw_pool_event){.kind = GW_POOL_SEND, .piece = piece, .offset = offset, .size = dst.size});
    if (exchange->run.flags & GW_EXCHANGE_SCATTER) {
        finish_piece(exchange);
    }
    gw_pool_unlock(exchange->pool);
}

static gw_gcomp_target target_of(const gw_exchange *exchange, uint32_t piece)
{
    gw_collective_piece at = gw_exchange_piece(exchange, piece);
    uint64_t first = at.first;
    if (exchange->run.flags & GW_EXCHANGE_SCATTER) {
        first -= gw_exchange_piece(exchange, exchange->config.rank * exchange->layout.shard_pieces).first;
    }
    return (gw_gcomp_target){.values = (uint8_t *)exchange->run.result + first * exchange->value_size,
                             .capacity = at.len,
                             .scale = exchange->run.scale};
}

static const gw_gcomp_frame *messages_of(const gw_exchange *exchange, uint32_t piece)
{
    return &exchange->messages[(size_t)(piece % exchange->layout.shard_pieces) *
                               exchange->layout.shape.rank_count];
}

/* The owner's step: a frame for all, which this rank decodes too. */
static void reduce(gw_exchange *exchange, uint32_t piece, const gw_workspace *workspace)
{
    uint64_t start = gw_pool_clock();
    uint64_t offset = gw_exchange_out(exchange, piece);
    gw_buffer dst = {.data = exchange->memory + offset, .capacity = exchange->slot_size};
    gw_collective_blame blame;
    if (gw_collective_reduce(&exchange->bucket, piece, messages_of(exchange, piece), &dst, &blame,
                             workspace) != GW_OK) {
        write_notice(&dst, &blame);
    }
    gw_pool_lock(exchange->pool);
    exchange->stats.reduce_ns += gw_pool_clock() - start;
    exchange->stats.sent_size += dst.size * (exchange->layout.shape.rank_count - 1);
    note(exchange, &blame);
    exchange->finished[piece] = (gw_gcomp_frame){.data = dst.data, .size = dst.size};
    gw_exchange_post(
        exchange, (gw_pool_event){.kind = GW_POOL_SHARE, .piece = piece, .offset = offset, .size = dst.size});
    gw_exchange_push(exchange, GW_TASK_DECODE, piece);
    gw_pool_unlock(exchange->pool);
}

/* The same without a frame: the sum stays here. */
static void sum(gw_exchange *exchange, uint32_t piece, const gw_workspace *workspace)
{
    uint64_t start = gw_pool_clock();
    gw_gcomp_target target = target_of(exchange, piece);
    gw_collective_blame blame;
    gw_status status =
        gw_collective_sum(&exchange->bucket, piece, messages_of(exchange, piece), &target, &blame, workspace);
    gw_pool_lock(exchange->pool);
    exchange->stats.reduce_ns += gw_pool_clock() - start;
    if (status != GW_OK) {
        note(exchange, &blame);
    }
    finish_piece(exchange);
    gw_pool_unlock(exchange->pool);
}

static void decode(gw_exchange *exchange, uint32_t piece, const gw_workspace *workspace)
{
    uint64_t start = gw_pool_clock();
    gw_gcomp_target target = target_of(exchange, piece);
    gw_collective_blame blame;
    gw_status status = gw_collective_decode(&exchange->bucket, piece, &exchange->finished[piece], &target,
                                            &blame, workspace);
    gw_pool_lock(exchange->pool);
    exchange->stats.decode_ns += gw_pool_clock() - start;
    if (status != GW_OK) {
        note(exchange, &blame);
    }
    finish_piece(exchange);
    gw_pool_unlock(exchange->pool);
}

void gw_exchange_step_task(gw_exchange *exchange, const gw_task *task, const gw_workspace *workspace)
{
    if (task->kind == GW_TASK_ENCODE) {
        encode(exchange, task->piece, workspace);
    } else if (task->kind == GW_TASK_DECODE) {
        decode(exchange, task->piece, workspace);
    } else if (exchange->run.flags & GW_EXCHANGE_SCATTER) {
        sum(exchange, task->piece, workspace);
    } else {
        reduce(exchange, task->piece, workspace);
    }
}
