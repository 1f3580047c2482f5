/*
 * Exchanges of runtime.h over MPI: all-to-all and all-gather of messages, or a ring, piece by piece. The
 * runtime has the steps; this is its transport.
 *
 * Contributions (hop 0) go to the owner of a piece, sums (hop 1) from the owner to all. In a ring both go to
 * the right neighbour: partial sums (hop 0) and finished pieces (hop 1). Between two ranks the messages of a
 * hop travel in the order of their pieces, in a ring of the steps of collective.h and of the pieces in each.
 * So one tag for each operation and hop suffices.
 * Receives are posted with the bound of a message, some pieces ahead; sends are not held back by anything but
 * the order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>

/* Messages under way between two ranks, for each direction and hop. Enough for the wire to be busy while a
 * piece is coded; few enough that receive buffers of 130 KiB do not add up. */
#define GW_MPI_WINDOW 8u
/* Events of all operations that are taken at a time */
#define GW_MPI_EVENTS 32u

enum { HOP_SCATTER = 0, HOP_GATHER = 1 };
enum { TRANSFER_SEND = 0, TRANSFER_RECEIVE = 2, TRANSFER_KINDS = 4 }; /* + hop */

typedef struct gw_mpi_transfer {
    uint32_t piece;
    int peer, kind;
    gw_mpi_block *block;
} gw_mpi_transfer;

typedef struct gw_mpi_peer {
    uint32_t piece_count;          /* of its shard: those that are not empty */
    uint32_t next[TRANSFER_KINDS]; /* number of the next message to send or receive */
    atomic_uint worked[2];         /* by hop: messages from it that were worked on */
} gw_mpi_peer;

/* Ring: messages of a kind, in their order */
typedef struct gw_mpi_route {
    uint32_t count;
    uint32_t *pieces;
} gw_mpi_route;

struct gw_mpi_exchange {
    gw_mpi_operation *operation;
    gw_exchange *exchange;
    gw_exchange_info info;
    gw_exchange_run run;
    gw_mpi_message message; /* what contributions are; sums are the next kind */
    uint32_t ranks, rank, left, right;
    int is_ring, started, abandoned;
    gw_mpi_peer *peers; /* by rank; this one too */
    gw_mpi_route routes[TRANSFER_KINDS];
    /* What this rank sends of a piece: by hop, then by index of piece. NULL: not there yet */
    gw_mpi_block *_Atomic *messages;
    atomic_int events_left;  /* of the exchange */
    atomic_int encodes_left; /* contributions that were not made yet, of those that wait for no message */
    uint64_t messages_left;
    uint32_t transfer_count;
    gw_mpi_transfer *transfers;
    MPI_Request *requests;
    MPI_Status *statuses;
    int *indices;
};

/* ------------ buffers ------------ */

static gw_mpi_block *gw_mpi_block_of(void *data)
{
    return (gw_mpi_block *)(void *)((uint8_t *)data - offsetof(gw_mpi_block, data));
}

/* Sums are decoded here too; gw_mpi_exchange_message() adds a reference for each further receiver. */
static void *gw_mpi_exchange_take(void *unused, gw_runtime_event_kind kind, size_t size)
{
    gw_mpi_block *block = gw_mpi_block_take(size);
    (void)unused;
    atomic_store(&block->references, kind == GW_RUNTIME_SHARE ? 2 : 1);
    return block->data;
}

static void gw_mpi_exchange_release(void *unused, void *data)
{
    gw_mpi_block *block = gw_mpi_block_of(data);
    (void)unused;
    if (block->worked != NULL) {
        (void)atomic_fetch_add(block->worked, 1);
    }
    gw_mpi_block_release(block);
}

/* ------------ making ------------ */

/* Counts pieces, messages and events. */
static void gw_mpi_exchange_count(gw_mpi_exchange *exchange, int gathers)
{
    const gw_collective_layout *layout = &exchange->info.layout;
    const uint64_t others = exchange->ranks - 1;
    uint64_t foreign = 0;
    gw_collective_piece piece;
    exchange->peers = gw_mpi_allocate(exchange->ranks, sizeof(*exchange->peers));
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const uint32_t owner = i / layout->shard_pieces;
        if (gw_collective_piece_at(layout, i, &piece) == GW_OK && piece.len != 0) {
            exchange->peers[owner].piece_count++;
            foreign += owner != exchange->rank;
        }
    }
    const uint64_t own = exchange->peers[exchange->rank].piece_count;
    exchange->messages_left = (foreign + others * own) * (gathers ? 2 : 1);
    atomic_init(&exchange->encodes_left, (int)foreign);
    atomic_init(&exchange->events_left, (int)(foreign + (gathers ? own : 0) + 1));
}

/* The ring: what is sent or received of a shard in a step. */
static void gw_mpi_exchange_append(gw_mpi_exchange *exchange, int kind, uint32_t owner)
{
    gw_mpi_route *route = &exchange->routes[kind];
    for (uint32_t i = 0; i < exchange->peers[owner].piece_count; i++) {
        route->pieces[route->count++] = owner * exchange->info.layout.shard_pieces + i;
    }
}

/* The same counts for a ring, where the order of messages is that of its steps. */
static void gw_mpi_exchange_ring(gw_mpi_exchange *exchange, int gathers)
{
    const uint32_t ranks = exchange->ranks, rank = exchange->rank;
    gw_mpi_route *routes = exchange->routes;
    for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
        routes[kind].pieces = gw_mpi_allocate(exchange->info.layout.piece_count, sizeof(uint32_t));
    }
    for (uint32_t step = 0; step + 1 < ranks; step++) {
        gw_mpi_exchange_append(exchange, TRANSFER_SEND + HOP_SCATTER,
                               gw_collective_ring_shard(ranks, rank, step));
        gw_mpi_exchange_append(exchange, TRANSFER_RECEIVE + HOP_SCATTER,
                               gw_collective_ring_shard(ranks, rank, step + 1));
        if (gathers) {
            gw_mpi_exchange_append(exchange, TRANSFER_SEND + HOP_GATHER,
                                   gw_collective_ring_gather_shard(ranks, rank, step));
            gw_mpi_exchange_append(exchange, TRANSFER_RECEIVE + HOP_GATHER,
                                   gw_collective_ring_gather_shard(ranks, exchange->left, step));
        }
    }
    const uint32_t sends = routes[TRANSFER_SEND].count + routes[TRANSFER_SEND + HOP_GATHER].count;
    exchange->messages_left =
        (uint64_t)sends + routes[TRANSFER_RECEIVE].count + routes[TRANSFER_RECEIVE + HOP_GATHER].count;
    atomic_init(&exchange->encodes_left, (int)exchange->peers[exchange->left].piece_count);
    atomic_init(&exchange->events_left, (int)sends + 1);
}

static void gw_mpi_exchange_arrays(gw_mpi_exchange *exchange)
{
    exchange->messages =
        gw_mpi_allocate(2 * (uint64_t)exchange->info.layout.piece_count, sizeof(*exchange->messages));
    exchange->transfer_count = TRANSFER_KINDS * exchange->ranks * GW_MPI_WINDOW;
    exchange->transfers = gw_mpi_allocate(exchange->transfer_count, sizeof(*exchange->transfers));
    exchange->requests = gw_mpi_allocate(exchange->transfer_count, sizeof(*exchange->requests));
    exchange->statuses = gw_mpi_allocate(exchange->transfer_count, sizeof(*exchange->statuses));
    exchange->indices = gw_mpi_allocate(exchange->transfer_count, sizeof(*exchange->indices));
    for (uint32_t i = 0; i < exchange->transfer_count; i++) {
        exchange->requests[i] = MPI_REQUEST_NULL;
    }
}

gw_mpi_exchange *gw_mpi_exchange_open(gw_mpi_operation *operation, gw_exchange_config *config,
                                      gw_mpi_message message, const gw_exchange_run *run)
{
    gw_mpi_exchange *exchange = gw_mpi_allocate(1, sizeof(*exchange));
    exchange->operation = operation;
    exchange->ranks = (uint32_t)operation->context->size;
    exchange->rank = (uint32_t)operation->context->rank;
    exchange->left = (exchange->rank + exchange->ranks - 1) % exchange->ranks;
    exchange->right = (exchange->rank + 1) % exchange->ranks;
    exchange->is_ring = config->algorithm == GW_EXCHANGE_RING;
    exchange->message = message;
    exchange->run = *run;
    config->rank = exchange->rank;
    config->user = (uint64_t)(uintptr_t)exchange;
    config->buffers = (gw_exchange_buffers){.take = gw_mpi_exchange_take, .release = gw_mpi_exchange_release};
    const gw_status status = gw_exchange_open(gw_mpi_runtime(), config, &exchange->exchange);
    if (status == GW_ERR_LIMIT) { /* GW_MPI_VALUES_MAX leaves no other limit */
        gw_mpi_out_of_memory();
    }
    if (status != GW_OK) {
        gw_mpi_operation_fail(operation, status);
        free(exchange);
        return NULL;
    }
    gw_exchange_info_get(exchange->exchange, &exchange->info);
    gw_mpi_exchange_count(exchange, !(run->flags & GW_EXCHANGE_SCATTER));
    if (exchange->is_ring) {
        gw_mpi_exchange_ring(exchange, !(run->flags & GW_EXCHANGE_SCATTER));
    }
    gw_mpi_exchange_arrays(exchange);
    return exchange;
}

void gw_mpi_exchange_close(gw_mpi_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    gw_exchange_close(exchange->exchange);
    free(exchange->peers);
    for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
        free(exchange->routes[kind].pieces);
    }
    free(exchange->messages);
    free(exchange->transfers);
    free(exchange->requests);
    free(exchange->statuses);
    free(exchange->indices);
    free(exchange);
}

void gw_mpi_exchange_abandon(gw_mpi_exchange *exchange)
{
    if (exchange == NULL || exchange->abandoned) {
        return;
    }
    exchange->abandoned = 1;
    gw_exchange_stop(exchange->exchange); /* no step touches the program's buffers any more */
    /* Events that were taken count on from 0, and give back nothing */
    if (atomic_exchange(&exchange->encodes_left, 0) > 0 && exchange->started) {
        (void)atomic_fetch_sub(&exchange->operation->context->encoding, 1);
    }
}

gw_exchange_run gw_mpi_exchange_run(const gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    return (gw_exchange_run){
        .values = call->values,
        .result = call->result,
        .step_index = operation->number,
        .flags = call->kind == GW_MPI_REDUCE_SCATTER ? GW_EXCHANGE_SCATTER : 0,
    };
}

/* ------------ frames ------------ */

/* Short pieces let codec and wire overlap and stay in cache. At 4 bits these are frames of 16 KiB, which MPI
 * sends at once (eagerly): longer ones wait for the receiver's next call, and were three times slower over a
 * slow link with busy cores, without being smaller. */
#define GW_MPI_PIECE_LEN (UINT64_C(1) << 15)

static void gw_mpi_exchange_codec(const gw_mpi_options *options, gw_gcomp_options *codec)
{
    gw_gcomp_options_init(codec, GW_FP32);
    codec->rounding = GW_GCOMP_STOCHASTIC;
    codec->checksum = 1;
    codec->cap = UINT32_MAX;
    if (options->mode == GW_MPI_CONSTANT) {
        codec->quantum_mode = GW_GCOMP_DERIVED;
        codec->quantum = gw_gcomp_quantum_of_drop(options->constant_drop);
        codec->strict = options->constant_drop == 0;
    } else {
        codec->quantum_mode = GW_GCOMP_CARRIED;
        codec->dead_zone = 1;
        codec->quantum = gw_gcomp_quantum_of_nmse(options->target_nmse);
    }
}

gw_mpi_exchange *gw_mpi_exchange_frames(gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    const gw_exchange_run run = gw_mpi_exchange_run(operation);
    gw_exchange_config config = {
        .shape = {.len = call->len,
                  .rank_count = (uint32_t)operation->context->size,
                  .shard_len = call->block_len,
                  .piece_len = gw_mpi_settings.piece_len != 0 ? gw_mpi_settings.piece_len : GW_MPI_PIECE_LEN},
        .seed = call->options.seed,
        .algorithm = call->options.algorithm == GW_MPI_RING ? GW_EXCHANGE_RING : GW_EXCHANGE_A2A,
    };
    gw_mpi_exchange_codec(&call->options, &config.codec);
    config.fallback_codec = config.codec;
    return gw_mpi_exchange_open(operation, &config, GW_MPI_MESSAGE_SCATTER, &run);
}

/* ------------ start ------------ */

/* Operations of a communicator that encode at a time. Tasks of a kind are done in the order in which they
 * came, so the decodes of the first operation would wait for the encodes of all that have started. */
#define GW_MPI_ENCODING_MAX 2

/* 0: not yet. Buffers that overlap in part are the program's error. The other ranks may be waiting, so the
 * job ends. */
static int gw_mpi_exchange_start(gw_mpi_exchange *exchange)
{
    atomic_int *encoding = &exchange->operation->context->encoding;
    if (atomic_load(&exchange->encodes_left) != 0 && atomic_fetch_add(encoding, 1) >= GW_MPI_ENCODING_MAX) {
        (void)atomic_fetch_sub(encoding, 1);
        return 0;
    }
    if (gw_exchange_start(exchange->exchange, &exchange->run) != GW_OK) {
        gw_mpi_log_write("send and receive buffers of a sum overlap in part");
        (void)PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    exchange->started = 1;
    return 1;
}

/* ------------ events ------------ */

static void gw_mpi_exchange_done(gw_mpi_exchange *exchange, uint64_t word)
{
    gw_mpi_operation *operation = exchange->operation;
    gw_exchange_stats stats;
    gw_exchange_stats_get(exchange->exchange, &stats);
    const gw_mpi_statistics more = {
        .encode_ns = stats.encode_ns, .reduce_ns = stats.reduce_ns, .decode_ns = stats.decode_ns};
    gw_mpi_statistics_add(&more);
    (void)pthread_mutex_lock(&operation->lock);
    gw_mpi_operation_word(operation, word);
    (void)pthread_mutex_unlock(&operation->lock);
}

static uint32_t gw_mpi_exchange_owner(const gw_mpi_exchange *exchange, uint32_t piece)
{
    return piece / exchange->info.layout.shard_pieces;
}

static void gw_mpi_exchange_message(gw_mpi_exchange *exchange, const gw_runtime_event *event)
{
    const int hop = event->kind == GW_RUNTIME_SEND ? HOP_SCATTER : HOP_GATHER;
    gw_mpi_block *block;
    if (event->word != 0) { /* a notice, whose memory is the exchange's */
        block = gw_mpi_block_take(event->size);
        memcpy(block->data, event->data, event->size);
    } else {
        block = gw_mpi_block_of(event->data);
    }
    block->size = event->size;
    if (event->peer == GW_RUNTIME_ALL) {
        (void)atomic_fetch_add(&block->references, (int)exchange->ranks - 2);
    }
#ifdef GW_MPI_TESTING
    const int is_passed =
        hop == HOP_GATHER && gw_mpi_exchange_owner(exchange, event->piece) != exchange->rank;
    if (exchange->message == GW_MPI_MESSAGE_SCATTER && !is_passed) {
        gw_mpi_test_damage(exchange->operation, hop, event->piece, block);
    }
#endif
    atomic_store(&exchange->messages[(uint32_t)hop * exchange->info.layout.piece_count + event->piece],
                 block);
}

/* A contribution that waited for no message has been made. */
static void gw_mpi_exchange_encoded(gw_mpi_exchange *exchange, const gw_runtime_event *event)
{
    const int is_first =
        !exchange->is_ring || gw_mpi_exchange_owner(exchange, event->piece) == exchange->left;
    if (is_first && atomic_fetch_sub(&exchange->encodes_left, 1) == 1) {
        (void)atomic_fetch_sub(&exchange->operation->context->encoding, 1);
    }
}

int gw_mpi_exchange_events(void)
{
    gw_runtime_event events[GW_MPI_EVENTS];
    const size_t count = gw_runtime_wait(gw_mpi_runtime(), events, GW_MPI_EVENTS, 0);
    for (size_t i = 0; i < count; i++) {
        gw_mpi_exchange *exchange = (gw_mpi_exchange *)(uintptr_t)events[i].user; /* NOLINT */
        if (events[i].kind == GW_RUNTIME_DONE) {
            gw_mpi_exchange_done(exchange, events[i].word);
        } else {
            gw_mpi_exchange_message(exchange, &events[i]);
        }
        if (events[i].kind == GW_RUNTIME_SEND) {
            gw_mpi_exchange_encoded(exchange, &events[i]);
        }
        /* After the last one another thread may end it */
        (void)atomic_fetch_sub(&exchange->events_left, 1);
    }
    return count > 0;
}

/* ------------ messages ------------ */

/* Index of the transfer of message j of a kind and peer, UINT32_MAX if that is under way. */
static uint32_t gw_mpi_exchange_transfer(const gw_mpi_exchange *exchange, int kind, uint32_t peer, uint32_t j)
{
    const uint32_t transfer = ((uint32_t)kind * exchange->ranks + peer) * GW_MPI_WINDOW + j % GW_MPI_WINDOW;
    return exchange->transfers[transfer].block == NULL ? transfer : UINT32_MAX;
}

static void gw_mpi_exchange_post(gw_mpi_exchange *exchange, uint32_t transfer, const gw_mpi_transfer *content)
{
    gw_mpi_operation *operation = exchange->operation;
    gw_mpi_block *block = content->block;
    gw_mpi_parcel parcel = {
        .data = block->data,
        .type = MPI_BYTE,
        .peer = content->peer,
        .message = exchange->message + (gw_mpi_message)(content->kind & 1),
    };
    exchange->transfers[transfer] = *content;
    if (content->kind < TRANSFER_RECEIVE) {
        gw_collective_piece piece;
        parcel.count = (int)block->size;
        (void)gw_mpi_send(operation, &parcel, &exchange->requests[transfer]);
        if (exchange->message == GW_MPI_MESSAGE_SCATTER &&
            gw_collective_piece_at(&exchange->info.layout, content->piece, &piece) == GW_OK) {
            operation->wire_values += piece.len;
            operation->wire_size += block->size;
        }
    } else {
        parcel.count = (int)exchange->info.message_bound;
        (void)gw_mpi_receive(operation, &parcel, &exchange->requests[transfer]);
    }
}

/* The piece of message j of a kind and peer, UINT32_MAX if there is none. */
static uint32_t gw_mpi_exchange_piece(const gw_mpi_exchange *exchange, int kind, uint32_t peer, uint32_t j)
{
    if (exchange->is_ring) {
        const gw_mpi_route *route = &exchange->routes[kind];
        return j < route->count ? route->pieces[j] : UINT32_MAX;
    }
    const int sends = kind < TRANSFER_RECEIVE, to_owner = (kind & 1) == HOP_SCATTER;
    const uint32_t owner = sends == to_owner ? peer : exchange->rank;
    return j < exchange->peers[owner].piece_count ? owner * exchange->info.layout.shard_pieces + j
                                                  : UINT32_MAX;
}

/* Messages of a kind with a peer, in their order: sends of what is ready, receives at most a window ahead of
 * what was worked on. */
static int gw_mpi_exchange_move(gw_mpi_exchange *exchange, int kind, uint32_t peer)
{
    const int hop = kind & 1, sends = kind < TRANSFER_RECEIVE;
    gw_mpi_peer *at = &exchange->peers[peer];
    uint32_t *next = &at->next[kind];
    int moved = 0;
    while (exchange->operation->mpi_error == MPI_SUCCESS) {
        const uint32_t transfer = gw_mpi_exchange_transfer(exchange, kind, peer, *next);
        gw_mpi_transfer content = {
            .piece = gw_mpi_exchange_piece(exchange, kind, peer, *next), .peer = (int)peer, .kind = kind};
        if (content.piece == UINT32_MAX || transfer == UINT32_MAX) {
            break;
        }
        if (sends) {
            const uint32_t first = (uint32_t)hop * exchange->info.layout.piece_count;
            content.block = atomic_load(&exchange->messages[first + content.piece]);
        } else if (*next < atomic_load(&at->worked[hop]) + GW_MPI_WINDOW) {
            content.block = gw_mpi_block_take(exchange->info.message_bound);
            content.block->worked = &at->worked[hop];
        }
        if (content.block == NULL) {
            break;
        }
        gw_mpi_exchange_post(exchange, transfer, &content);
        (*next)++;
        moved = 1;
    }
    return moved;
}

static void gw_mpi_exchange_received(gw_mpi_exchange *exchange, const gw_mpi_transfer *transfer,
                                     const MPI_Status *of)
{
    const uint32_t owner = gw_mpi_exchange_owner(exchange, transfer->piece);
    const int is_finished = transfer->kind == TRANSFER_RECEIVE + HOP_GATHER;
    const uint32_t from = is_finished ? owner : (uint32_t)transfer->peer; /* who has made it */
    int size = 0;
    (void)PMPI_Get_count(of, MPI_BYTE, &size);
    transfer->block->size = size > 0 ? (size_t)size : 0;
    if (exchange->is_ring && is_finished && owner != exchange->right) { /* it is sent on, too */
        atomic_store(&transfer->block->references, 2);
    }
#ifdef GW_MPI_TESTING
    if (is_finished && exchange->message == GW_MPI_MESSAGE_SCATTER) {
        gw_mpi_test_damage(exchange->operation, 2, transfer->piece, transfer->block);
    }
#endif
    if (gw_exchange_receive(exchange->exchange, transfer->piece, from, transfer->block->data,
                            transfer->block->size) != GW_OK) {
        gw_mpi_log_write("rank %d of a communicator sent a message before its time", transfer->peer);
        (void)PMPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int gw_mpi_exchange_test(gw_mpi_exchange *exchange)
{
    int count = 0;
    const int status = PMPI_Testsome((int)exchange->transfer_count, exchange->requests, &count,
                                     exchange->indices, exchange->statuses);
    if (count == MPI_UNDEFINED) {
        count = 0;
    }
    if (status != MPI_SUCCESS && status != MPI_ERR_IN_STATUS) {
        gw_mpi_operation_mpi_error(exchange->operation, status);
        count = 0;
    }
    for (int i = 0; i < count; i++) {
        const gw_mpi_transfer transfer = exchange->transfers[exchange->indices[i]];
        if (status == MPI_ERR_IN_STATUS && exchange->statuses[i].MPI_ERROR != MPI_SUCCESS) {
            gw_mpi_operation_mpi_error(exchange->operation, exchange->statuses[i].MPI_ERROR);
            continue; /* what it has received, if anything, is not looked at */
        }
        exchange->transfers[exchange->indices[i]].block = NULL;
        exchange->messages_left--;
        if (transfer.kind < TRANSFER_RECEIVE) {
            gw_mpi_block_release(transfer.block);
        } else {
            gw_mpi_exchange_received(exchange, &transfer, &exchange->statuses[i]);
        }
    }
    return count > 0;
}

int gw_mpi_exchange_transport(gw_mpi_exchange *exchange)
{
    int moved = 0;
    if (exchange == NULL || exchange->messages_left == 0) {
        return 0;
    }
    if (!exchange->started && !gw_mpi_exchange_start(exchange)) {
        return 0;
    }
    const int hops = exchange->run.flags & GW_EXCHANGE_SCATTER ? 1 : 2;
    const uint32_t peers = exchange->is_ring ? 1 : exchange->ranks - 1;
    moved |= gw_mpi_exchange_test(exchange);
    for (uint32_t k = 1; k <= peers; k++) {
        const uint32_t peer = (exchange->rank + k) % exchange->ranks;
        const uint32_t source = exchange->is_ring ? exchange->left : peer;
        for (int hop = 0; hop < hops; hop++) {
            moved |= gw_mpi_exchange_move(exchange, TRANSFER_RECEIVE + hop, source);
            moved |= gw_mpi_exchange_move(exchange, TRANSFER_SEND + hop, peer);
        }
    }
    return moved;
}

int gw_mpi_exchange_complete(const gw_mpi_exchange *exchange)
{
    return exchange == NULL || (exchange->messages_left == 0 && atomic_load(&exchange->events_left) == 0);
}
