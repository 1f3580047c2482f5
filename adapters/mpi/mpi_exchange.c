/*
 * Engine of an operation: all-to-all and all-gather of frames, piece by piece.
 *
 * Contributions (hop 0) go to the owner of a piece, sums (hop 1) from the owner to all. Between two ranks the
 * messages of a hop travel in the order of their pieces, so one tag for each operation and hop suffices.
 * Receives are posted with the bound of a message, some pieces ahead; sends are not held back by anything but
 * the order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "mpi_internal.h"

#include <stdlib.h>
#include <string.h>

/* Messages under way between two ranks, for each direction and hop. Enough for the wire to be busy while a
 * piece is coded; few enough that receive buffers of 130 KiB do not add up. */
#define GW_MPI_WINDOW 8u

enum { HOP_SCATTER = 0, HOP_GATHER = 1 };
enum { SLOT_SEND = 0, SLOT_RECEIVE = 2 }; /* + hop */
enum { TASK_ENCODE, TASK_REDUCE, TASK_DECODE };

/* First in, first out; every piece enters once. */
typedef struct gw_mpi_queue {
    uint32_t *at;
    uint32_t head, tail;
} gw_mpi_queue;

typedef struct gw_mpi_piece {
    gw_collective_piece at;
    gw_mpi_block *contribution; /* to another's piece, until it is sent */
    gw_mpi_block *sum;          /* the frame of the finished piece, made here or received */
    uint32_t arrived;           /* own: contributions of others that are there */
} gw_mpi_piece;

typedef struct gw_mpi_slot {
    uint32_t piece;
    int peer, kind;
    gw_mpi_block *block;
} gw_mpi_slot;

typedef struct gw_mpi_exchange {
    gw_collective_layout layout;
    gw_gcomp codec;
    gw_collective_bucket bucket;
    size_t bound;
    uint32_t ranks, rank, own_first;
    uint32_t *shard_pieces;       /* pieces of each shard that are not empty */
    gw_mpi_piece *pieces;         /* by index */
    gw_gcomp_frame *frames;       /* of contribution of rank r to own piece j: [j * ranks + r] */
    gw_mpi_block **contributions; /* the same */
    uint32_t *next[4];  /* by kind of slot and peer: the next piece of the shard to send or receive */
    uint32_t *gathered; /* by owner: sums that were decoded */
    uint32_t reduced;   /* own pieces that are done with their contributions */
    uint32_t encode_at, encode_peer; /* cursor: all peers' pieces j before any piece j + 1 */
    gw_mpi_queue reduces, decodes;
    uint64_t encodes_left, reduces_left, decodes_left, messages_left;
    uint32_t slot_count;
    gw_mpi_slot *slots;
    MPI_Request *requests;
    MPI_Status *statuses;
    int *indices;
} gw_mpi_exchange;

static void gw_mpi_queue_put(gw_mpi_queue *queue, uint32_t piece)
{
    queue->at[queue->tail++] = piece;
}

/* ------------ making ------------ */

static gw_status gw_mpi_exchange_codec(const gw_mpi_options *options, gw_gcomp *codec)
{
    gw_gcomp_options settings;
    gw_gcomp_options_init(&settings, GW_FP32);
    settings.rounding = GW_GCOMP_STOCHASTIC;
    settings.checksum = 1;
    settings.cap = UINT32_MAX;
    if (options->mode == GW_MPI_CONSTANT) {
        settings.levels = GW_GCOMP_DERIVED;
        settings.quantum = gw_gcomp_quantum_of_drop(options->constant_drop);
        settings.strict = options->constant_drop == 0;
    } else {
        settings.levels = GW_GCOMP_CARRIED;
        settings.deep_cut = 1;
        settings.quantum = gw_gcomp_quantum_of_nmse(options->target_nmse);
    }
    return gw_gcomp_init(codec, &settings);
}

/* Short pieces let codec and wire overlap and stay in cache. At 4 bits these are frames of 16 KiB, which MPI
 * sends at once (eagerly): longer ones wait for the receiver's next call, and were three times slower over a
 * slow link with busy cores, without being smaller. */
#define GW_MPI_PIECE_LEN (UINT64_C(1) << 15)

static gw_status gw_mpi_exchange_layout(gw_mpi_exchange *exchange, const gw_mpi_call *call)
{
    const gw_collective_shape shape = {
        .len = call->len,
        .rank_count = exchange->ranks,
        .shard_len = call->block_len,
        .piece_len = gw_mpi_settings.piece_len != 0 ? gw_mpi_settings.piece_len : GW_MPI_PIECE_LEN,
    };
    gw_status status = gw_collective_layout_init(&exchange->layout, &shape);
    if (status == GW_OK) {
        status = gw_mpi_exchange_codec(&call->options, &exchange->codec);
    }
    return status;
}

static void gw_mpi_exchange_pieces(gw_mpi_exchange *exchange)
{
    const uint32_t per_shard = exchange->layout.shard_pieces;
    exchange->pieces = gw_mpi_allocate(exchange->layout.piece_count, sizeof(*exchange->pieces));
    exchange->shard_pieces = gw_mpi_allocate(exchange->ranks, sizeof(*exchange->shard_pieces));
    for (uint32_t i = 0; i < exchange->layout.piece_count; i++) {
        if (gw_collective_piece_at(&exchange->layout, i, &exchange->pieces[i].at) == GW_OK &&
            exchange->pieces[i].at.len != 0) {
            exchange->shard_pieces[i / per_shard]++;
        }
    }
}

static void gw_mpi_exchange_counters(gw_mpi_exchange *exchange, int gathers)
{
    const uint64_t others = exchange->ranks - 1, own = exchange->shard_pieces[exchange->rank];
    uint64_t foreign = 0;
    for (uint32_t r = 0; r < exchange->ranks; r++) {
        foreign += r != exchange->rank ? exchange->shard_pieces[r] : 0;
    }
    exchange->encodes_left = foreign;
    exchange->reduces_left = own;
    exchange->decodes_left = gathers ? foreign + own : 0;
    exchange->messages_left = (foreign + others * own) * (gathers ? 2 : 1);
    exchange->encode_peer = 1;
}

static void gw_mpi_exchange_arrays(gw_mpi_exchange *exchange)
{
    const uint32_t ranks = exchange->ranks;
    const size_t own = (size_t)exchange->shard_pieces[exchange->rank] * ranks;
    exchange->frames = gw_mpi_allocate(own, sizeof(*exchange->frames));
    exchange->contributions = gw_mpi_allocate(own, sizeof(gw_mpi_block *));
    for (int kind = 0; kind < 4; kind++) {
        exchange->next[kind] = gw_mpi_allocate(ranks, sizeof(uint32_t));
    }
    exchange->gathered = gw_mpi_allocate(ranks, sizeof(uint32_t));
    exchange->reduces.at = gw_mpi_allocate(exchange->layout.shard_pieces, sizeof(uint32_t));
    exchange->decodes.at = gw_mpi_allocate(exchange->layout.piece_count, sizeof(uint32_t));
    exchange->slot_count = 4 * ranks * GW_MPI_WINDOW;
    exchange->slots = gw_mpi_allocate(exchange->slot_count, sizeof(*exchange->slots));
    exchange->requests = gw_mpi_allocate(exchange->slot_count, sizeof(*exchange->requests));
    exchange->statuses = gw_mpi_allocate(exchange->slot_count, sizeof(*exchange->statuses));
    exchange->indices = gw_mpi_allocate(exchange->slot_count, sizeof(*exchange->indices));
    for (uint32_t i = 0; i < exchange->slot_count; i++) {
        exchange->requests[i] = MPI_REQUEST_NULL;
    }
}

static void *gw_mpi_exchange_create(gw_mpi_operation *operation)
{
    const gw_mpi_call *call = &operation->call;
    gw_mpi_exchange *exchange = gw_mpi_allocate(1, sizeof(*exchange));
    exchange->ranks = (uint32_t)operation->context->size;
    exchange->rank = (uint32_t)operation->context->rank;
    const gw_status status = gw_mpi_exchange_layout(exchange, call);
    if (status != GW_OK) {
        /* All ranks have the same call, so all of them stop here: nothing is left but the vote */
        const gw_collective_blame blame = {.status = status, .rank = exchange->rank};
        gw_mpi_operation_blame(operation, &blame);
        return exchange;
    }
    exchange->bucket = (gw_collective_bucket){
        .layout = &exchange->layout,
        .codec = &exchange->codec,
        .values = call->values,
        .rank = exchange->rank,
        .step_index = operation->number,
        .seed = call->options.seed,
    };
    exchange->bound = gw_collective_message_bound(&exchange->layout, &exchange->codec);
    exchange->own_first = exchange->rank * exchange->layout.shard_pieces;
    gw_mpi_exchange_pieces(exchange);
    gw_mpi_exchange_counters(exchange, call->kind == GW_MPI_ALLREDUCE);
    gw_mpi_exchange_arrays(exchange);
    return exchange;
}

static void gw_mpi_exchange_destroy(gw_mpi_operation *operation)
{
    gw_mpi_exchange *exchange = operation->state;
    free(exchange->pieces);
    free(exchange->shard_pieces);
    free(exchange->frames);
    free(exchange->contributions);
    for (int kind = 0; kind < 4; kind++) {
        free(exchange->next[kind]);
    }
    free(exchange->gathered);
    free(exchange->reduces.at);
    free(exchange->decodes.at);
    free(exchange->slots);
    free(exchange->requests);
    free(exchange->statuses);
    free(exchange->indices);
    free(exchange);
}

/* ------------ messages ------------ */

/* The free slot of message j of a kind and peer, UINT32_MAX if it is taken. */
static uint32_t gw_mpi_exchange_slot(const gw_mpi_exchange *exchange, int kind, uint32_t peer, uint32_t j)
{
    const uint32_t slot = ((uint32_t)kind * exchange->ranks + peer) * GW_MPI_WINDOW + j % GW_MPI_WINDOW;
    return exchange->slots[slot].block == NULL ? slot : UINT32_MAX;
}

static void gw_mpi_exchange_open(gw_mpi_operation *operation, uint32_t slot, const gw_mpi_slot *content)
{
    gw_mpi_exchange *exchange = operation->state;
    gw_mpi_block *block = content->block;
    gw_mpi_parcel parcel = {
        .data = block->data,
        .type = MPI_BYTE,
        .peer = content->peer,
        .message = content->kind & 1 ? GW_MPI_MESSAGE_GATHER : GW_MPI_MESSAGE_SCATTER,
    };
    exchange->slots[slot] = *content;
    if (content->kind < SLOT_RECEIVE) {
        parcel.count = (int)block->size;
        (void)gw_mpi_send(operation, &parcel, &exchange->requests[slot]);
        gw_mpi_statistics_sent(operation, exchange->pieces[content->piece].at.len, block->size);
    } else {
        parcel.count = (int)exchange->bound;
        (void)gw_mpi_receive(operation, &parcel, &exchange->requests[slot]);
    }
}

/* Sends what is ready: pieces of the peer's shard (scatter), or own ones (gather). */
static int gw_mpi_exchange_send(gw_mpi_operation *operation, int hop, uint32_t peer)
{
    gw_mpi_exchange *exchange = operation->state;
    const uint32_t owner = hop == HOP_SCATTER ? peer : exchange->rank;
    uint32_t *next = &exchange->next[SLOT_SEND + hop][peer];
    int moved = 0;
    while (*next < exchange->shard_pieces[owner]) {
        const uint32_t index = owner * exchange->layout.shard_pieces + *next;
        const gw_mpi_piece *piece = &exchange->pieces[index];
        gw_mpi_block *message = hop == HOP_SCATTER ? piece->contribution : piece->sum;
        const uint32_t slot = gw_mpi_exchange_slot(exchange, SLOT_SEND + hop, peer, *next);
        if (message == NULL || slot == UINT32_MAX) {
            break;
        }
        const gw_mpi_slot content = {
            .piece = index, .peer = (int)peer, .kind = SLOT_SEND + hop, .block = message};
        gw_mpi_exchange_open(operation, slot, &content);
        (*next)++;
        moved = 1;
    }
    return moved;
}

/* Posts receives, at most a window ahead of what was worked on. */
static int gw_mpi_exchange_receive(gw_mpi_operation *operation, int hop, uint32_t peer)
{
    gw_mpi_exchange *exchange = operation->state;
    const uint32_t owner = hop == HOP_SCATTER ? exchange->rank : peer;
    const uint32_t worked = hop == HOP_SCATTER ? exchange->reduced : exchange->gathered[peer];
    uint32_t *next = &exchange->next[SLOT_RECEIVE + hop][peer];
    int moved = 0;
    while (*next < exchange->shard_pieces[owner] && *next < worked + GW_MPI_WINDOW) {
        const uint32_t slot = gw_mpi_exchange_slot(exchange, SLOT_RECEIVE + hop, peer, *next);
        if (slot == UINT32_MAX) {
            break;
        }
        const gw_mpi_slot content = {
            .piece = owner * exchange->layout.shard_pieces + *next,
            .peer = (int)peer,
            .kind = SLOT_RECEIVE + hop,
            .block = gw_mpi_block_take(exchange->bound),
        };
        gw_mpi_exchange_open(operation, slot, &content);
        (*next)++;
        moved = 1;
    }
    return moved;
}

static void gw_mpi_exchange_received(gw_mpi_operation *operation, const gw_mpi_slot *slot)
{
    gw_mpi_exchange *exchange = operation->state;
    gw_mpi_piece *piece = &exchange->pieces[slot->piece];
    if (slot->kind == SLOT_RECEIVE + HOP_GATHER) {
#ifdef GW_MPI_TESTING
        gw_mpi_test_damage(operation, 2, slot->piece, slot->block);
#endif
        piece->sum = slot->block;
        gw_mpi_queue_put(&exchange->decodes, slot->piece);
        return;
    }
    const size_t at = (size_t)(slot->piece - exchange->own_first) * exchange->ranks + (size_t)slot->peer;
    exchange->contributions[at] = slot->block;
    exchange->frames[at] = (gw_gcomp_frame){.data = slot->block->data, .size = slot->block->size};
    if (++piece->arrived == exchange->ranks - 1) {
        gw_mpi_queue_put(&exchange->reduces, slot->piece);
    }
}

static void gw_mpi_exchange_close(gw_mpi_operation *operation, uint32_t index, const MPI_Status *status)
{
    gw_mpi_exchange *exchange = operation->state;
    const gw_mpi_slot slot = exchange->slots[index];
    exchange->slots[index].block = NULL;
    exchange->messages_left--;
    if (slot.kind >= SLOT_RECEIVE) {
        int size = 0;
        (void)PMPI_Get_count(status, MPI_BYTE, &size);
        slot.block->size = size > 0 ? (size_t)size : 0;
        gw_mpi_exchange_received(operation, &slot);
        return;
    }
    if (slot.kind == SLOT_SEND + HOP_SCATTER) {
        exchange->pieces[slot.piece].contribution = NULL;
    }
    gw_mpi_block_release(slot.block);
}

static int gw_mpi_exchange_test(gw_mpi_operation *operation)
{
    gw_mpi_exchange *exchange = operation->state;
    int count = 0;
    const int status = PMPI_Testsome((int)exchange->slot_count, exchange->requests, &count, exchange->indices,
                                     exchange->statuses);
    if (count == MPI_UNDEFINED) {
        count = 0;
    }
    if (status != MPI_SUCCESS && status != MPI_ERR_IN_STATUS) {
        gw_mpi_operation_mpi_error(operation, status);
    }
    for (int i = 0; i < count; i++) {
        if (status == MPI_ERR_IN_STATUS) {
            gw_mpi_operation_mpi_error(operation, exchange->statuses[i].MPI_ERROR);
        }
        gw_mpi_exchange_close(operation, (uint32_t)exchange->indices[i], &exchange->statuses[i]);
    }
    return count > 0;
}

static int gw_mpi_exchange_transport(gw_mpi_operation *operation)
{
    gw_mpi_exchange *exchange = operation->state;
    int moved = 0;
    if (exchange->messages_left == 0) {
        return 0;
    }
    moved |= gw_mpi_exchange_test(operation);
    for (uint32_t k = 1; k < exchange->ranks; k++) {
        const uint32_t peer = (exchange->rank + k) % exchange->ranks;
        moved |= gw_mpi_exchange_receive(operation, HOP_SCATTER, peer);
        moved |= gw_mpi_exchange_send(operation, HOP_SCATTER, peer);
        if (operation->call.kind == GW_MPI_ALLREDUCE) {
            moved |= gw_mpi_exchange_receive(operation, HOP_GATHER, peer);
            moved |= gw_mpi_exchange_send(operation, HOP_GATHER, peer);
        }
    }
    return moved;
}

/* ------------ codec work ------------ */

static int gw_mpi_exchange_take_encode(gw_mpi_exchange *exchange, gw_mpi_task *task)
{
    while (exchange->encode_at < exchange->layout.shard_pieces) {
        const uint32_t owner = (exchange->rank + exchange->encode_peer) % exchange->ranks;
        const uint32_t j = exchange->encode_at;
        if (++exchange->encode_peer == exchange->ranks) {
            exchange->encode_peer = 1;
            exchange->encode_at++;
        }
        if (j < exchange->shard_pieces[owner]) {
            task->kind = TASK_ENCODE;
            task->piece = owner * exchange->layout.shard_pieces + j;
            task->output = gw_mpi_block_take(exchange->bound);
            return 1;
        }
    }
    return 0;
}

/* Tasks that feed the wire come first. Sums of an in-place reduce-scatter overwrite rank 0's block: they wait
 * until all of it is encoded. */
static int gw_mpi_exchange_take(gw_mpi_operation *operation, gw_mpi_task *task)
{
    gw_mpi_exchange *exchange = operation->state;
    const gw_mpi_call *call = &operation->call;
    const int is_scatter = call->kind == GW_MPI_REDUCE_SCATTER;
    const int must_wait = is_scatter && call->values == call->result && exchange->encodes_left != 0;
    if (exchange->reduces.head != exchange->reduces.tail && !must_wait) {
        task->kind = TASK_REDUCE;
        task->piece = exchange->reduces.at[exchange->reduces.head++];
        task->output = is_scatter ? NULL : gw_mpi_block_take(exchange->bound);
        return 1;
    }
    if (exchange->encodes_left != 0 && gw_mpi_exchange_take_encode(exchange, task)) {
        return 1;
    }
    if (exchange->decodes.head != exchange->decodes.tail) {
        task->kind = TASK_DECODE;
        task->piece = exchange->decodes.at[exchange->decodes.head++];
        return 1;
    }
    return 0;
}

/* A failed step still sends its message: a notice. */
static void gw_mpi_exchange_output(gw_mpi_task *task, gw_status status, gw_buffer *dst)
{
    task->blame.status = status;
    if (status != GW_OK) {
        *dst = (gw_buffer){.data = task->output->data, .capacity = task->output->capacity};
        if (gw_collective_notice_write(&task->blame, dst) != GW_OK) {
            dst->size = 0;
        }
    }
    task->output->size = dst->size;
}

static void gw_mpi_exchange_encode(const gw_mpi_exchange *exchange, gw_mpi_task *task)
{
    const gw_workspace workspace = gw_mpi_workspace(gw_gcomp_workspace_size(&exchange->codec));
    gw_buffer dst = {.data = task->output->data, .capacity = task->output->capacity};
    task->blame =
        (gw_collective_blame){.rank = exchange->rank, .piece = task->piece, .bad_chunk = UINT64_MAX};
    const gw_status status = gw_collective_encode(&exchange->bucket, task->piece, &dst, &workspace);
    gw_mpi_exchange_output(task, status, &dst);
}

static void gw_mpi_exchange_reduce(const gw_mpi_exchange *exchange, const gw_mpi_call *call,
                                   gw_mpi_task *task)
{
    const gw_workspace workspace = gw_mpi_workspace(gw_gcomp_workspace_size(&exchange->codec));
    const uint32_t j = task->piece - exchange->own_first;
    const gw_gcomp_frame *frames = &exchange->frames[(size_t)j * exchange->ranks];
    if (task->output != NULL) {
        gw_buffer dst = {.data = task->output->data, .capacity = task->output->capacity};
        const gw_status status =
            gw_collective_reduce(&exchange->bucket, task->piece, frames, &dst, &task->blame, &workspace);
        gw_mpi_exchange_output(task, status, &dst);
        return;
    }
    const gw_collective_piece *at = &exchange->pieces[task->piece].at;
    const uint64_t shard_first = exchange->pieces[exchange->own_first].at.first;
    gw_gcomp_target target = {.values = call->result + (at->first - shard_first), .capacity = at->len};
    task->blame.status =
        gw_collective_sum(&exchange->bucket, task->piece, frames, &target, &task->blame, &workspace);
}

static void gw_mpi_exchange_decode(const gw_mpi_exchange *exchange, const gw_mpi_call *call,
                                   gw_mpi_task *task)
{
    const gw_workspace workspace = gw_mpi_workspace(gw_gcomp_workspace_size(&exchange->codec));
    const gw_mpi_piece *piece = &exchange->pieces[task->piece];
    const gw_gcomp_frame frame = {.data = piece->sum->data, .size = piece->sum->size};
    gw_gcomp_target target = {.values = call->result + piece->at.first, .capacity = piece->at.len};
    task->blame.status =
        gw_collective_decode(&exchange->bucket, task->piece, &frame, &target, &task->blame, &workspace);
}

static void gw_mpi_exchange_run(gw_mpi_operation *operation, gw_mpi_task *task)
{
    const gw_mpi_exchange *exchange = operation->state;
    const uint64_t start = gw_mpi_codec_ns();
    switch (task->kind) {
    case TASK_ENCODE:
        gw_mpi_exchange_encode(exchange, task);
        GW_MPI_COUNT(encode_ns, gw_mpi_codec_ns() - start);
        break;
    case TASK_REDUCE:
        gw_mpi_exchange_reduce(exchange, &operation->call, task);
        GW_MPI_COUNT(reduce_ns, gw_mpi_codec_ns() - start);
        break;
    default:
        gw_mpi_exchange_decode(exchange, &operation->call, task);
        GW_MPI_COUNT(decode_ns, gw_mpi_codec_ns() - start);
        break;
    }
#ifdef GW_MPI_TESTING
    if (task->output != NULL) {
        gw_mpi_test_damage(operation, task->kind == TASK_ENCODE ? 0 : 1, task->piece, task->output);
    }
#endif
}

static void gw_mpi_exchange_reduced(gw_mpi_exchange *exchange, const gw_mpi_task *task)
{
    gw_mpi_piece *piece = &exchange->pieces[task->piece];
    gw_mpi_block **contributions =
        &exchange->contributions[(size_t)(task->piece - exchange->own_first) * exchange->ranks];
    for (uint32_t r = 0; r < exchange->ranks; r++) {
        gw_mpi_block_release(contributions[r]);
    }
    exchange->reduced++;
    exchange->reduces_left--;
    if (task->output != NULL) {
        piece->sum = task->output;
        piece->sum->references = (int)exchange->ranks; /* the sends, and the own decode */
        gw_mpi_queue_put(&exchange->decodes, task->piece);
    }
}

static void gw_mpi_exchange_finish(gw_mpi_operation *operation, gw_mpi_task *task)
{
    gw_mpi_exchange *exchange = operation->state;
    gw_mpi_piece *piece = &exchange->pieces[task->piece];
    switch (task->kind) {
    case TASK_ENCODE:
        piece->contribution = task->output;
        exchange->encodes_left--;
        break;
    case TASK_REDUCE:
        gw_mpi_exchange_reduced(exchange, task);
        break;
    default:
        gw_mpi_block_release(piece->sum);
        exchange->gathered[piece->at.owner]++;
        exchange->decodes_left--;
        break;
    }
}

static int gw_mpi_exchange_complete(const gw_mpi_operation *operation)
{
    const gw_mpi_exchange *exchange = operation->state;
    return (exchange->encodes_left | exchange->reduces_left | exchange->decodes_left |
            exchange->messages_left) == 0;
}

const gw_mpi_engine gw_mpi_engine_exchange = {
    .create = gw_mpi_exchange_create,
    .transport = gw_mpi_exchange_transport,
    .take = gw_mpi_exchange_take,
    .run = gw_mpi_exchange_run,
    .finish = gw_mpi_exchange_finish,
    .complete = gw_mpi_exchange_complete,
    .destroy = gw_mpi_exchange_destroy,
};
