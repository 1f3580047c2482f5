/*
 * The steps of an exchange: encode, the owner's sum, a hop of a ring, decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/exchange.h"
#include "gcomp/gcomp_sum.h"
#include "gcomp/target.h"

/* The status of a step that has no place for its result: what the caller gave is still marked as without one.
 */
static gw_status refuse_step(const gw_collective_bucket *bucket, uint32_t piece,
                             gw_collective_failure *failure)
{
    if (failure != NULL) {
        gw_failure_begin(failure, bucket, piece);
        failure->status = GW_ERR_ARG;
    }
    return GW_ERR_ARG;
}

/* Sets what failure says of a failure that is not a message's. */
static gw_status fail_self(gw_collective_failure *failure, const gw_collective_bucket *bucket,
                           gw_status status)
{
    failure->rank = bucket == NULL ? 0 : bucket->rank;
    failure->status = status;
    return status;
}

gw_status gw_collective_encode(const gw_collective_bucket *bucket, uint32_t piece, gw_buffer *dst,
                               const gw_workspace *workspace)
{
    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    gw_piece own;
    const gw_status status = gw_piece_begin(&own, bucket, piece, 1);
    if (status != GW_OK || own.at.len == 0) {
        return status;
    }
    const int is_explicit = own.codec->options.quantum_mode == GW_GCOMP_EXPLICIT;
    gw_gcomp_source source;
    gw_piece_source(&own, is_explicit ? own.sum_map : own.contribution_map, 0, &source);
    return gw_gcomp_encode(bucket->codec, &source, dst, workspace);
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Messages of a step, `count` of them, that of this rank at `own`; message i is from rank first_rank + i. */
typedef struct message_list {
    const gw_gcomp_frame *at;
    uint32_t count, own, first_rank;
} message_list;

/* Checks that all messages can be read, and that none of them overlaps the output. The list is NULL where
 * only that of this rank is in it. */
static gw_status check_places(const gw_piece *piece, const message_list *messages, const void *out,
                              size_t out_size, gw_collective_failure *failure)
{
    for (uint32_t i = 0; i < messages->count; i++) {
        if (i == messages->own) {
            continue;
        }
        const gw_gcomp_frame *message = &messages->at[i];
        if ((message->data == NULL && message->size != 0) ||
            gw_is_overlapping(out, out_size, message->data, message->size)) {
            return fail_self(failure, piece->bucket, GW_ERR_ARG);
        }
    }
    return GW_OK;
}

/* Checks what the messages say. *bad is the index of the one that is refused, which a notice does not name;
 * else 0. */
static gw_status check_messages(const gw_piece *piece, const message_list *messages, size_t *bad,
                                gw_collective_failure *failure)
{
    for (uint32_t i = 0; i < messages->count; i++) {
        if (i == messages->own) {
            continue;
        }
        gw_gcomp_frame_info info;
        const gw_status status = gw_piece_check_message(piece, messages->first_rank + i, &messages->at[i],
                                                        piece->contribution_map, &info, failure);
        if (status != GW_OK) {
            *bad = i;
            return status;
        }
    }
    *bad = 0;
    failure->rank = piece->bucket->rank;
    return GW_OK;
}

static void begin_sum(gw_sum *sum, const gw_piece *piece, const message_list *messages)
{
    sum->codec = piece->codec;
    sum->frames = messages->at;
    sum->map = piece->contribution_map;
    sum->count = messages->count;
    sum->own = messages->own;
    sum->values = piece->values;
    sum->len = piece->at.len;
    sum->chunk_log2 = piece->codec->options.chunk_log2;
    sum->dtype = (uint32_t)piece->codec->options.dtype;
    gw_sum_begin(sum);
}

static gw_status fail_sum(gw_collective_failure *failure, const gw_sum *sum, const message_list *messages)
{
    if (sum->status != GW_OK) {
        failure->status = sum->status;
        failure->rank = messages->first_rank + (uint32_t)sum->bad_frame;
        failure->bad_chunk = sum->bad_chunk;
    }
    return sum->status;
}

/* Own values and messages to a frame. */
static gw_status encode_sum(const gw_piece *piece, const message_list *messages,
                            const gw_gcomp_source *source, gw_buffer *dst, gw_collective_failure *failure,
                            const gw_workspace *workspace)
{
    gw_encoding e;
    gw_status status = gw_encoding_begin(&e, piece->bucket->codec, source, workspace);
    if (status != GW_OK) {
        return fail_self(failure, piece->bucket, status);
    }
    const size_t bound = gw_gcomp_frame_bound(piece->bucket->codec, source->len);
    const size_t values_size = (size_t)source->len * gw_dtype_size(piece->codec->options.dtype);
    if (dst->data == NULL || gw_is_overlapping(dst->data, bound, piece->values, values_size)) {
        return fail_self(failure, piece->bucket, GW_ERR_ARG);
    }
    size_t bad;
    status = check_places(piece, messages, dst->data, bound, failure);
    status = status == GW_OK ? check_messages(piece, messages, &bad, failure) : status;
    if (status != GW_OK) {
        return status;
    }
    if (bound == 0 || dst->capacity < bound) {
        return fail_self(failure, piece->bucket, GW_ERR_DST);
    }
    gw_sum sum;
    begin_sum(&sum, piece, messages);
    (void)gw_sum_encode(&sum, &e, dst, workspace);
    return fail_sum(failure, &sum, messages);
}

/* Begins a step of this rank that reads values and messages. */
static gw_status begin_step(gw_piece *piece, const gw_collective_bucket *bucket, uint32_t index,
                            const gw_workspace *workspace, gw_collective_failure *failure)
{
    gw_failure_begin(failure, bucket, index);
    gw_status status = gw_piece_begin(piece, bucket, index, 1);
    if (status == GW_OK && piece->at.len != 0 && (workspace == NULL || workspace->data == NULL)) {
        status = GW_ERR_ARG;
    }
    if (status == GW_OK && piece->at.len != 0 && workspace->size < gw_scratch_size(piece->codec)) {
        status = GW_ERR_WORKSPACE;
    }
    return status == GW_OK ? GW_OK : fail_self(failure, bucket, status);
}

/* Begins a step of the owner. list->at has the messages of all ranks, its own not read. */
static gw_status begin_owner_step(gw_piece *piece, message_list *list, const gw_collective_bucket *bucket,
                                  uint32_t index, const gw_workspace *workspace,
                                  gw_collective_failure *failure)
{
    const gw_status status = begin_step(piece, bucket, index, workspace, failure);
    if (status != GW_OK) {
        return status;
    }
    list->count = bucket->layout->shape.rank_count;
    list->own = bucket->rank;
    list->first_rank = 0;
    if (piece->at.owner != bucket->rank || (list->at == NULL && list->count > 1 && piece->at.len != 0)) {
        return fail_self(failure, bucket, GW_ERR_ARG);
    }
    return GW_OK;
}

gw_status gw_collective_reduce(const gw_collective_bucket *bucket, uint32_t piece,
                               const gw_gcomp_frame *messages, gw_buffer *dst, gw_collective_failure *failure,
                               const gw_workspace *workspace)
{
    if (dst != NULL) {
        dst->size = 0;
    }
    if (dst == NULL || failure == NULL) {
        return refuse_step(bucket, piece, failure);
    }
    gw_piece own;
    message_list list = {.at = messages};
    const gw_status status = begin_owner_step(&own, &list, bucket, piece, workspace, failure);
    if (status != GW_OK || own.at.len == 0) {
        return status;
    }
    gw_gcomp_source source;
    gw_piece_source(&own, own.sum_map, 1, &source);
    return encode_sum(&own, &list, &source, dst, failure, workspace);
}

/* Begins a step of a ring, whose number is *hop. */
static gw_status begin_hop(gw_piece *piece, message_list *list, uint32_t *hop,
                           const gw_collective_bucket *bucket, uint32_t index, const gw_gcomp_frame *message,
                           const gw_workspace *workspace, gw_collective_failure *failure)
{
    const gw_status status = begin_step(piece, bucket, index, workspace, failure);
    if (status != GW_OK) {
        return status;
    }
    /* The step of gw_collective_ring_shard(). */
    const uint32_t ranks = bucket->layout->shape.rank_count;
    *hop = (bucket->rank + ranks - 1 - piece->at.owner) % ranks;
    /* The first message is the left neighbour's; there are no others. */
    *list =
        (message_list){message, *hop == 0 ? 1u : 2u, *hop == 0 ? 0u : 1u, (bucket->rank + ranks - 1) % ranks};
    return *hop != 0 && message == NULL && piece->at.len != 0 ? fail_self(failure, bucket, GW_ERR_ARG)
                                                              : GW_OK;
}

gw_status gw_collective_hop(const gw_collective_bucket *bucket, uint32_t piece, const gw_gcomp_frame *message,
                            gw_buffer *dst, gw_collective_failure *failure, const gw_workspace *workspace)
{
    if (dst != NULL) {
        dst->size = 0;
    }
    if (dst == NULL || failure == NULL) {
        return refuse_step(bucket, piece, failure);
    }
    gw_piece own;
    message_list list;
    uint32_t hop;
    const gw_status status = begin_hop(&own, &list, &hop, bucket, piece, message, workspace, failure);
    if (status != GW_OK || own.at.len == 0) {
        return status;
    }
    const int is_sum =
        hop == bucket->layout->shape.rank_count - 1 || own.codec->options.quantum_mode == GW_GCOMP_EXPLICIT;
    gw_gcomp_source source;
    gw_piece_source(&own, is_sum ? own.sum_map : own.contribution_map, hop, &source);
    return encode_sum(&own, &list, &source, dst, failure, workspace);
}

static gw_status check_target(const gw_piece *piece, const gw_gcomp_target *target)
{
    if (target->values == NULL || !gw_target_is_scale_valid(target)) {
        return GW_ERR_ARG;
    }
    const size_t size = (size_t)piece->at.len * gw_dtype_size(piece->codec->options.dtype);
    if (target->values != piece->values && gw_is_overlapping(target->values, size, piece->values, size)) {
        return GW_ERR_ARG;
    }
    return GW_OK;
}

/* Own values and messages to the values of a target. */
static gw_status store_sum(const gw_piece *piece, const message_list *messages, gw_gcomp_target *target,
                           gw_collective_failure *failure, const gw_workspace *workspace)
{
    const gw_collective_bucket *bucket = piece->bucket;
    gw_status status = check_target(piece, target);
    if (status != GW_OK) {
        return fail_self(failure, bucket, status);
    }
    const size_t size = (size_t)piece->at.len * gw_dtype_size(piece->codec->options.dtype);
    status = check_places(piece, messages, target->values, size, failure);
    status = status == GW_OK ? check_messages(piece, messages, &target->bad_frame, failure) : status;
    if (status != GW_OK) {
        return status;
    }
    if (target->capacity < piece->at.len) {
        return fail_self(failure, bucket, GW_ERR_DST);
    }
    gw_sum sum;
    begin_sum(&sum, piece, messages);
    status = gw_sum_store(&sum, (uint8_t *)target->values, gw_target_scale(target), workspace);
    target->len = status == GW_OK ? piece->at.len : 0;
    target->bad_frame = sum.bad_frame;
    target->bad_chunk = sum.bad_chunk;
    return fail_sum(failure, &sum, messages);
}

gw_status gw_collective_sum(const gw_collective_bucket *bucket, uint32_t piece,
                            const gw_gcomp_frame *messages, gw_gcomp_target *target,
                            gw_collective_failure *failure, const gw_workspace *workspace)
{
    if (target != NULL) {
        gw_target_reset(target);
    }
    if (target == NULL || failure == NULL) {
        return refuse_step(bucket, piece, failure);
    }
    gw_piece own;
    message_list list = {.at = messages};
    const gw_status status = begin_owner_step(&own, &list, bucket, piece, workspace, failure);
    if (status != GW_OK || own.at.len == 0) {
        return status;
    }
    return store_sum(&own, &list, target, failure, workspace);
}

gw_status gw_collective_hop_sum(const gw_collective_bucket *bucket, uint32_t piece,
                                const gw_gcomp_frame *message, gw_gcomp_target *target,
                                gw_collective_failure *failure, const gw_workspace *workspace)
{
    if (target != NULL) {
        gw_target_reset(target);
    }
    if (target == NULL || failure == NULL) {
        return refuse_step(bucket, piece, failure);
    }
    gw_piece own;
    message_list list;
    uint32_t hop;
    const gw_status status = begin_hop(&own, &list, &hop, bucket, piece, message, workspace, failure);
    if (status == GW_OK && own.at.owner != bucket->rank) {
        return fail_self(failure, bucket, GW_ERR_ARG);
    }
    if (status != GW_OK || own.at.len == 0) {
        return status;
    }
    return store_sum(&own, &list, target, failure, workspace);
}

/* ---- decode -------------------------------------------------------------------------------------------- */

gw_status gw_collective_decode(const gw_collective_bucket *bucket, uint32_t piece,
                               const gw_gcomp_frame *message, gw_gcomp_target *target,
                               gw_collective_failure *failure, const gw_workspace *workspace)
{
    if (target != NULL) {
        gw_target_reset(target);
    }
    if (target == NULL || failure == NULL) {
        return refuse_step(bucket, piece, failure);
    }
    gw_failure_begin(failure, bucket, piece);
    gw_piece own;
    gw_status status = gw_piece_begin(&own, bucket, piece, 0);
    if (status != GW_OK) {
        return fail_self(failure, bucket, status);
    }
    if (own.at.len != 0 && message == NULL) {
        return fail_self(failure, bucket, GW_ERR_ARG);
    }
    if (own.at.len == 0) {
        return GW_OK;
    }
    if (message->data == NULL && message->size != 0) {
        return fail_self(failure, bucket, GW_ERR_ARG);
    }
    gw_gcomp_frame_info info;
    status = gw_piece_check_message(&own, own.at.owner, message, own.sum_map, &info, failure);
    if (status != GW_OK) {
        return status;
    }
    /* By the header that was checked: the length of the frame cannot change any more. */
    const gw_gcomp_frame frame = {message->data, message->size, own.sum_map};
    const gw_gcomp_range all = {0, info.chunk_count};
    status = gw_gcomp_decode_range(bucket->codec, &frame, &info, &all, target, workspace);
    failure->status = status;
    failure->bad_chunk = target->bad_chunk;
    if (target->bad_chunk == UINT64_MAX) {
        failure->rank = bucket->rank;
    }
    return status;
}
