/*
 * The steps of an operation, and what follows what.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_route.h"

#include <string.h>

static int is_scatter(const gw_exchange *exchange)
{
    return (exchange->run.flags & GW_EXCHANGE_SCATTER) != 0;
}

/* The worst outcome counts; needs the lock. */
static void note(gw_exchange *exchange, const gw_collective_failure *failure)
{
    uint64_t word = gw_collective_word_write(failure);
    exchange->worst = word > exchange->worst ? word : exchange->worst;
}

/* A piece is in place; needs the lock. */
static void finish_piece(gw_exchange *exchange, gw_exchange_piece *piece)
{
    piece->stage = GW_STAGE_NONE;
    if (--exchange->left == 0) {
        exchange->codebooks.has_frames = exchange->worst == 0 && exchange->bucket.codec == &exchange->codec;
        exchange->stats.operations++;
        exchange->busy = 0;
        gw_exchange_post(exchange, &exchange->posted,
                         (gw_runtime_event){.kind = GW_RUNTIME_DONE, .word = exchange->worst});
    }
}

/* ------------ messages that are made ------------ */

/* What is made of another's piece is on its way to its owner; what is made of an own one is finished. */
static gw_runtime_event_kind event_of(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    return gw_route_is_own(exchange, piece) ? GW_RUNTIME_SHARE : GW_RUNTIME_SEND;
}

/* Where a message goes. Its data is NULL if the transport has no memory. */
static gw_buffer take_output(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    const gw_exchange_buffers *buffers = &exchange->config.buffers;
    size_t size = (size_t)exchange->buffer_size;
    void *data = buffers->take
                     ? buffers->take(buffers->context, event_of(exchange, piece), size)
                     : exchange->memory + gw_exchange_index(exchange, piece) * exchange->buffer_size;
    return (gw_buffer){.data = data, .capacity = size};
}

/* A notice in place of a frame that could not be made: in its message buffer, or inside the exchange. */
static void write_notice(gw_exchange *exchange, gw_exchange_piece *piece, gw_exchange_step *step)
{
    if (exchange->config.buffers.take) {
        gw_exchange_release(exchange, piece, step->dst.data);
        if (event_of(exchange, piece) == GW_RUNTIME_SHARE) {
            gw_exchange_release(exchange, piece, step->dst.data);
        }
        step->dst = (gw_buffer){.data = piece->notice, .capacity = sizeof piece->notice};
    }
    if (gw_collective_notice_write(&step->failure, &step->dst) != GW_OK) {
        /* Cannot happen: every buffer is larger than a notice. Zeros are no frame, so receivers fail. */
        memset(step->dst.data, 0, GW_COLLECTIVE_NOTICE_SIZE);
        step->dst.size = GW_COLLECTIVE_NOTICE_SIZE;
    }
}

/* Adds what all messages have in common; needs the lock. */
static void post_message(gw_exchange *exchange, gw_exchange_piece *piece, gw_runtime_posted *posted,
                         gw_runtime_event event)
{
    event.piece = gw_exchange_index(exchange, piece);
    event.peer = gw_route_receiver(exchange, piece);
    exchange->stats.sent_size +=
        event.size * (event.peer == GW_RUNTIME_ALL ? exchange->layout.shape.rank_count - 1 : 1);
    gw_exchange_post(exchange, posted, event);
}

/* What a step has made; needs the lock. */
static void post_made(gw_exchange *exchange, gw_exchange_piece *piece, const gw_exchange_step *step)
{
    post_message(exchange, piece, &piece->posted,
                 (gw_runtime_event){.kind = event_of(exchange, piece),
                                    .data = step->dst.data,
                                    .offset = exchange->memory ? step->piece * exchange->buffer_size : 0,
                                    .size = step->dst.size,
                                    .word = gw_collective_word_write(&step->failure)});
}

/* A notice in place of a finished piece of a size that no message has; needs the lock. */
static void post_refused(gw_exchange *exchange, gw_exchange_piece *piece)
{
    gw_collective_failure failure =
        gw_exchange_failure(exchange, gw_exchange_index(exchange, piece), GW_ERR_CORRUPT);
    failure.rank = gw_route_left(exchange);
    gw_buffer dst = {.data = piece->passed_notice, .capacity = sizeof piece->passed_notice};
    if (gw_collective_notice_write(&failure, &dst) != GW_OK) {
        memset(dst.data, 0, dst.capacity); /* cannot happen, as in write_notice() */
    }
    post_message(exchange, piece, &piece->passed,
                 (gw_runtime_event){.kind = GW_RUNTIME_SHARE,
                                    .data = dst.data,
                                    .size = sizeof piece->passed_notice,
                                    .word = gw_collective_word_write(&failure)});
}

/* Another's finished piece, as it has come: before it is decoded, as other ranks wait for it. Its buffer has
 * two users then. Returns 0 if a notice is passed on in its place. Needs the lock. */
static int post_passed(gw_exchange *exchange, gw_exchange_piece *piece, uint64_t offset)
{
    const gw_gcomp_frame *message = &piece->finished;
    if (message->size == 0 || message->size > exchange->buffer_size) { /* with gw_exchange_buffers only */
        post_refused(exchange, piece);
        return 0;
    }
    post_message(exchange, piece, &piece->passed,
                 (gw_runtime_event){.kind = GW_RUNTIME_SHARE,
                                    .data = (void *)(uintptr_t)message->data, /* const for decoding */
                                    .offset = exchange->memory ? offset : 0,
                                    .size = message->size});
    return 1;
}

/* ------------ errors of contributions ------------ */

/* Squares of the fp32 values of a chunk of a piece and of what its frame changed. */
static void measure_chunk(const float *decoded, const uint8_t *values, uint64_t len, double sums[2])
{
    for (uint64_t i = 0; i < len; i++) {
        float value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        double error = (double)decoded[i] - (double)value;
        sums[0] += (double)value * (double)value;
        sums[1] += error * error;
    }
}

static int is_sampled(const gw_exchange *exchange)
{
    return (exchange->run.flags & GW_EXCHANGE_SAMPLE) && exchange->config.codec.dtype == GW_FP32 &&
           !exchange->config.steps.run;
}

/* Sums of a piece, chunk by chunk at the end of the workspace; 0 if that is too small. */
static void measure(const gw_exchange *exchange, const gw_exchange_piece *piece, const gw_buffer *message,
                    double sums[2], const gw_workspace *workspace)
{
    const gw_gcomp *codec = gw_exchange_codebooks_codec(exchange, gw_exchange_index(exchange, piece));
    const uint8_t *values = (const uint8_t *)exchange->run.values + piece->at.first * sizeof(float);
    const uint64_t chunk_len = UINT64_C(1) << exchange->layout.shape.chunk_log2;
    const size_t room = (size_t)chunk_len * sizeof(float) + sizeof(float); /* it is aligned */
    if (workspace->size < room || workspace->size - room < gw_gcomp_workspace_size(codec)) {
        return;
    }
    const gw_workspace rest = {workspace->data, workspace->size - room};
    uintptr_t place = (uintptr_t)workspace->data + rest.size;
    float *decoded = (float *)(place + (sizeof(float) - place % sizeof(float)) % sizeof(float));
    gw_gcomp_map map;
    gw_gcomp_frame frame = {.data = message->data, .size = message->size};
    if (exchange->bucket.map) {
        map = gw_exchange_map_of(exchange, &piece->at, 1);
        frame.map = &map;
    }
    gw_gcomp_frame_info info;
    gw_status status = gw_gcomp_frame_parse(codec, &frame, &info);
    for (uint64_t i = 0; status == GW_OK && i < info.chunk_count; i++) {
        const gw_gcomp_range chunk = {i, 1};
        gw_gcomp_target target = {.values = decoded, .capacity = chunk_len};
        status = gw_gcomp_decode_range(codec, &frame, &info, &chunk, &target, &rest);
        measure_chunk(decoded, values + i * chunk_len * sizeof(float), target.len, sums);
    }
}

/* ------------ steps ------------ */

static gw_gcomp_target target_of(const gw_exchange *exchange, const gw_collective_piece *at)
{
    uint64_t first = at->first;
    if (is_scatter(exchange)) {
        first -= exchange->pieces[exchange->config.rank * exchange->layout.shard_pieces].at.first;
    }
    return (gw_gcomp_target){.values = (uint8_t *)exchange->run.result + first * exchange->value_size,
                             .capacity = at->len,
                             .scale = exchange->run.scale};
}

/* In a ring encode and reduce are one step. */
static gw_status ring_step(const gw_collective_bucket *bucket, gw_exchange_step *step,
                           gw_gcomp_target *target, const gw_workspace *workspace)
{
    if (step->kind == GW_EXCHANGE_SUM) {
        return gw_collective_hop_sum(bucket, step->piece, step->messages, target, &step->failure, workspace);
    }
    return gw_collective_hop(bucket, step->piece, step->messages, &step->dst, &step->failure, workspace);
}

static void gcomp_step(gw_exchange *exchange, gw_exchange_step *step, const gw_workspace *workspace)
{
    gw_collective_bucket bucket = exchange->bucket;
    bucket.codec = gw_exchange_codebooks_codec(exchange, step->piece);
    gw_gcomp_target target = target_of(exchange, &exchange->pieces[step->piece].at);
    gw_status status;
    if (exchange->is_ring && step->kind != GW_EXCHANGE_DECODE) {
        step->failure.status = ring_step(&bucket, step, &target, workspace);
        return;
    }
    switch (step->kind) {
    case GW_EXCHANGE_ENCODE:
        status = gw_collective_encode(&bucket, step->piece, &step->dst, workspace);
        break;
    case GW_EXCHANGE_REDUCE:
        status =
            gw_collective_reduce(&bucket, step->piece, step->messages, &step->dst, &step->failure, workspace);
        break;
    case GW_EXCHANGE_SUM:
        status = gw_collective_sum(&bucket, step->piece, step->messages, &target, &step->failure, workspace);
        break;
    default:
        status =
            gw_collective_decode(&bucket, step->piece, step->messages, &target, &step->failure, workspace);
        break;
    }
    step->failure.status = status;
}

/* ------------ tasks ------------ */

static gw_exchange_step_kind kind_of(const gw_exchange *exchange, const gw_exchange_piece *piece)
{
    const int is_sum = is_scatter(exchange) && gw_route_is_own(exchange, piece);
    return piece->stage == GW_STAGE_ENCODE   ? GW_EXCHANGE_ENCODE
           : piece->stage == GW_STAGE_DECODE ? GW_EXCHANGE_DECODE
           : is_sum                          ? GW_EXCHANGE_SUM
                                             : GW_EXCHANGE_REDUCE;
}

static void run_step(gw_runtime_task *task, const gw_workspace *workspace);

/* All messages of a step have arrived; needs the lock. */
static void push_reduce(gw_exchange *exchange, gw_exchange_piece *piece)
{
    piece->stage = GW_STAGE_REDUCE;
    if (!gw_route_is_own(exchange, piece) || !exchange->reduce_waits || exchange->encodes_left == 0) {
        gw_exchange_push(exchange, piece, GW_RUNTIME_PRIORITY_REDUCE, run_step);
    }
}

/* Own pieces, in their order. */
static gw_exchange_piece *own_piece(const gw_exchange *exchange, uint32_t index)
{
    return &exchange->pieces[exchange->config.rank * exchange->layout.shard_pieces + index];
}

/* This rank's part of another's piece is made; needs the lock. */
static void end_encode(gw_exchange *exchange, gw_exchange_piece *piece)
{
    if (--exchange->encodes_left == 0 && exchange->reduce_waits) {
        for (uint32_t i = 0; i < exchange->layout.shard_pieces; i++) {
            if (own_piece(exchange, i)->stage == GW_STAGE_REDUCE) {
                push_reduce(exchange, own_piece(exchange, i));
            }
        }
    }
    piece->stage = GW_STAGE_AWAIT;
    if (is_scatter(exchange)) {
        finish_piece(exchange, piece);
    }
}

/* What a step leads to; needs the lock. */
static void end_step(gw_exchange *exchange, gw_exchange_piece *piece, gw_exchange_step_kind kind,
                     const gw_exchange_step *step, uint64_t spent_ns)
{
    gw_exchange_stats *stats = &exchange->stats;
    uint64_t *const times[] = {&stats->encode_ns, &stats->reduce_ns, &stats->reduce_ns, &stats->decode_ns};
    *times[kind] += spent_ns;
    note(exchange, &step->failure);
    if (kind == GW_EXCHANGE_SUM || kind == GW_EXCHANGE_DECODE) {
        finish_piece(exchange, piece);
        return;
    }
    post_made(exchange, piece, step);
    if (!gw_route_is_own(exchange, piece)) {
        end_encode(exchange, piece);
    } else { /* this rank decodes it too */
        piece->stage = GW_STAGE_DECODE;
        piece->finished = (gw_gcomp_frame){.data = step->dst.data, .size = step->dst.size};
        gw_exchange_push(exchange, piece, GW_RUNTIME_PRIORITY_DECODE, run_step);
    }
}

static void run_step(gw_runtime_task *task, const gw_workspace *workspace)
{
    uint64_t start = gw_runtime_clock();
    gw_exchange *exchange = task->owner;
    gw_exchange_piece *piece = (gw_exchange_piece *)task;
    const gw_exchange_steps *own = &exchange->config.steps;
    uint32_t index = gw_exchange_index(exchange, piece);
    const gw_exchange_step_kind kind = kind_of(exchange, piece); /* the caller's function has the step */
    gw_exchange_step step = {
        .kind = kind, .piece = index, .failure = gw_exchange_failure(exchange, index, GW_ERR_ARG)};
    const int sends = kind == GW_EXCHANGE_ENCODE || kind == GW_EXCHANGE_REDUCE;
    if (sends) {
        step.dst = take_output(exchange, piece);
    }
    if (kind != GW_EXCHANGE_ENCODE) {
        step.messages =
            kind == GW_EXCHANGE_DECODE ? &piece->finished : gw_route_inputs_of(exchange, piece).at;
    }
    if (sends && !step.dst.data) {
        step.failure.status = GW_ERR_LIMIT;
    } else if (own->run) {
        own->run(own->context, &step, workspace);
    } else {
        gcomp_step(exchange, &step, workspace);
    }
    uint64_t spent_ns = gw_runtime_clock() - start; /* measuring is not encoding */
    double sums[2] = {0, 0};
    if (sends && step.failure.status != GW_OK) {
        write_notice(exchange, piece, &step);
    } else if (kind == GW_EXCHANGE_ENCODE && is_sampled(exchange)) {
        measure(exchange, piece, &step.dst, sums, workspace);
    }
    gw_exchange_release_inputs(exchange, piece);
    gw_runtime_lock(exchange->runtime);
    exchange->stats.sample_square += sums[0];
    exchange->stats.sample_error += sums[1];
    end_step(exchange, piece, kind, &step, spent_ns);
    gw_exchange_leave(exchange);
}

/* ------------ start ------------ */

static int is_overlapping(const void *a, uint64_t a_size, const void *b, uint64_t b_size)
{
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return a_size > 0 && b_size > 0 && (first <= second ? second - first < a_size : first - second < b_size);
}

/* GW_ERR_ARG if a result would destroy values that are still read. *reduce_waits: results of a reduce-scatter
 * may be stored once all is encoded. */
static gw_status check_places(const gw_exchange *exchange, const gw_exchange_run *run, int *reduce_waits)
{
    uint64_t size = exchange->layout.shape.len * exchange->value_size, first = 0, len = 0;
    *reduce_waits = 0;
    if (!(run->flags & GW_EXCHANGE_SCATTER)) {
        return run->result != run->values && is_overlapping(run->result, size, run->values, size) ? GW_ERR_ARG
                                                                                                  : GW_OK;
    }
    gw_status status = gw_collective_shard_at(&exchange->layout, exchange->config.rank, &first, &len);
    const uint8_t *own = (const uint8_t *)run->values + first * exchange->value_size;
    if (status != GW_OK || run->result == own) {
        return status;
    }
    len *= exchange->value_size;
    *reduce_waits = is_overlapping(run->result, len, run->values, size);
    return is_overlapping(run->result, len, own, len) ? GW_ERR_ARG : GW_OK;
}

/* Pieces of others in the order in which they are sent: their first pieces, their second ones; each rank
 * begins with its right neighbour, so that not all send to one. */
static gw_exchange_piece *others_piece(const gw_exchange *exchange, uint32_t index)
{
    uint32_t ranks = exchange->layout.shape.rank_count;
    uint32_t owner = (uint32_t)(((uint64_t)exchange->config.rank + 1 + index % (ranks - 1)) % ranks);
    return &exchange->pieces[owner * exchange->layout.shard_pieces + index / (ranks - 1)];
}

/* Queues the step of a piece if that needs no message; needs the lock. */
static void push_first(gw_exchange *exchange, gw_exchange_piece *piece)
{
    if (piece->at.len == 0) {
        return;
    }
    exchange->left++;
    exchange->encodes_left += !gw_route_is_own(exchange, piece);
    piece->arrived = 0;
    if (gw_route_inputs_of(exchange, piece).needed > 0) {
        piece->stage = GW_STAGE_GATHER;
    } else if (gw_route_is_own(exchange, piece)) { /* there is no other rank */
        push_reduce(exchange, piece);
    } else {
        piece->stage = GW_STAGE_ENCODE;
        gw_exchange_push(exchange, piece, GW_RUNTIME_PRIORITY_ENCODE, run_step);
    }
}

static void begin(gw_exchange *exchange, const gw_exchange_run *run)
{
    const gw_collective_layout *layout = &exchange->layout;
    exchange->busy = 1;
    exchange->run = *run;
    exchange->bucket = (gw_collective_bucket){
        .layout = layout,
        .codec = run->flags & GW_EXCHANGE_FALLBACK ? &exchange->fallback_codec : &exchange->codec,
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
    exchange->encodes_left = 0;
    exchange->worst = 0;
    exchange->codebooks.has_frames = 0;
    memset(exchange->messages, 0,
           (size_t)layout->shard_pieces * layout->shape.rank_count * sizeof *exchange->messages);
    const uint32_t own = layout->shard_pieces, others = layout->piece_count - own;
    for (uint32_t i = 0; i < others; i++) {
        push_first(exchange, others_piece(exchange, i));
    }
    for (uint32_t i = 0; i < own; i++) {
        push_first(exchange, own_piece(exchange, i));
    }
}

gw_status gw_exchange_start(gw_exchange *exchange, const gw_exchange_run *run)
{
    int reduce_waits;
    if (!exchange || !run || !run->values || !run->result || exchange->layout.shape.len == 0 ||
        check_places(exchange, run, &reduce_waits) != GW_OK) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(exchange->runtime);
    gw_status status = GW_ERR_STATE;
    if (gw_exchange_is_idle(exchange) && (exchange->memory || exchange->config.buffers.take)) {
        status = GW_OK;
        exchange->reduce_waits = reduce_waits;
        begin(exchange, run);
    }
    gw_runtime_unlock(exchange->runtime);
    return status;
}

/* ------------ receive ------------ */

/* The message in a buffer. Frames and notices delimit themselves, and steps of the caller's know the size of
 * theirs; what is neither keeps the whole buffer, and the step that reads it says what is wrong. */
static gw_gcomp_frame message_at(const gw_exchange *exchange, uint32_t piece, uint64_t offset)
{
    const gw_exchange_steps *own = &exchange->config.steps;
    const int is_own = exchange->pieces[piece].at.owner == exchange->config.rank;
    const uint8_t *data = exchange->memory + offset;
    gw_collective_failure failure;
    gw_gcomp_frame_info info;
    gw_gcomp_frame message = {.data = data, .size = (size_t)exchange->buffer_size};
    if (gw_collective_notice_read(data, GW_COLLECTIVE_NOTICE_SIZE, &failure)) {
        message.size = GW_COLLECTIVE_NOTICE_SIZE;
    } else if (own->run) {
        message.size =
            (size_t)own->message_size(own->context, is_own ? GW_RUNTIME_SEND : GW_RUNTIME_SHARE, piece);
    } else if (gw_gcomp_frame_peek(data, message.size, exchange->config.codec.len_max, &info) == GW_OK &&
               info.frame_size < message.size) {
        message.size = (size_t)info.frame_size;
    }
    return message;
}

/* Takes an input of a step in; needs the lock. */
static gw_status accept_input(gw_exchange *exchange, gw_exchange_piece *piece, uint32_t from,
                              const gw_gcomp_frame *message)
{
    gw_gcomp_frame *place = gw_route_place(exchange, piece, from);
    if (piece->stage != GW_STAGE_GATHER || place->data) {
        return GW_ERR_STATE;
    }
    *place = *message;
    if (++piece->arrived == gw_route_inputs_of(exchange, piece).needed) {
        push_reduce(exchange, piece);
    }
    return GW_OK;
}

/* The same for a finished piece, which lies at this offset. */
static gw_status accept_finished(gw_exchange *exchange, gw_exchange_piece *piece, uint64_t offset,
                                 const gw_gcomp_frame *message)
{
    if (piece->stage != GW_STAGE_AWAIT) {
        return GW_ERR_STATE;
    }
    piece->finished = *message;
    if (gw_route_passes_on(exchange, piece)) {
        piece->refused = !post_passed(exchange, piece, offset);
    }
    piece->stage = GW_STAGE_DECODE;
    gw_exchange_push(exchange, piece, GW_RUNTIME_PRIORITY_DECODE, run_step);
    return GW_OK;
}

gw_status gw_exchange_receive(gw_exchange *exchange, uint32_t piece, uint32_t from, void *data, size_t size)
{
    uint64_t offset = gw_exchange_buffer_offset(exchange, piece, from);
    if (offset == UINT64_MAX || !data != !exchange->config.buffers.take) {
        return GW_ERR_ARG;
    }
    if (!data && size > exchange->buffer_size) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(exchange->runtime); /* so that stop() waits until the message has been looked at */
    gw_status status = exchange->busy && !exchange->stopped ? GW_OK : GW_ERR_STATE;
    if (status == GW_OK) {
        gw_gcomp_frame message = {.data = data, .size = size};
        if (!data) {
            message = size > 0 ? (gw_gcomp_frame){.data = exchange->memory + offset, .size = size}
                               : message_at(exchange, piece, offset);
        }
        gw_exchange_piece *of = &exchange->pieces[piece];
        status = gw_route_message_of(exchange, of, from) == GW_ROUTE_INPUT
                     ? accept_input(exchange, of, from, &message)
                     : accept_finished(exchange, of, offset, &message);
        exchange->stats.received_size += status == GW_OK ? message.size : 0;
    }
    gw_runtime_unlock(exchange->runtime);
    return status;
}
