/*
 * THC in two exchanges: their steps, and the messages between them.
 *
 * A message:
 *
 *   0   mark, by phase and hop
 *   4   CRC32C: of round, piece, maker's rank and hash of the options, which do not travel, and of
 *       the bytes from 8 on
 *   8   norms: patterns. Sums, to the owner: packed indices. Sums, to all: lanes, or patterns and indices
 *
 * The owner works on a slice of a piece at a time, so that its own indices and the sum stay in cache.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_thc_steps.h"

#include <string.h>

enum {
    HEAD_SIZE = 8,
    SLICE_LEN = 1 << 15,                      /* at least the longest block */
    SLICE_INDICES_SIZE = SLICE_LEN / 2,       /* of 4 bits */
    SLICE_LANES_SIZE = 4 * SLICE_LEN,         /* of 32 bits */
    SLICE_VALUES_SIZE = 4 * SLICE_LEN,        /* fp32 */
    SLICE_PATTERNS_SIZE = 4 * SLICE_LEN / 64, /* one a block, of 64 elements at least */
    SET_SIZE = GW_THC_SET_SIZE(GW_THC_WORKERS_MAX),
    SCRATCH_SIZE = SLICE_INDICES_SIZE + SLICE_LANES_SIZE + SLICE_VALUES_SIZE + SLICE_PATTERNS_SIZE + SET_SIZE,
    ALIGNMENT = 64,
    SOURCES = 64 /* workers whose indices are added in one pass */
};

/* Marks: other than that of a notice. */
static const uint32_t marks[2][2] = {{0x1a4e5767u, 0x1a4d5767u}, {0x1a495767u, 0x1a535767u}};

/* ------------ words ------------ */

static void store32(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(word >> 8 * i);
    }
}

static uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void store_patterns(uint8_t *at, const uint32_t *patterns, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        store32(at + 4 * i, patterns[i]);
    }
}

static void load_patterns(uint32_t *patterns, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        patterns[i] = load32(at + 4 * i);
    }
}

/* ------------ pieces and slices ------------ */

/* Blocks of a tensor. */
typedef struct thc_part {
    gw_thc_range range;
    uint64_t first; /* of the values of all tensors */
    uint64_t at;    /* of its tensor */
    uint64_t len;
    uint32_t *maxima;
    size_t maxima_len;
} thc_part;

static thc_part part_of(const gw_thc_steps *steps, uint32_t tensor, uint64_t block, uint64_t count)
{
    const uint64_t len = steps->config.len, at = block << steps->config.options.block_log2;
    const uint64_t end = (block + count) << steps->config.options.block_log2;
    const uint32_t tensors = steps->config.is_scatter ? steps->config.rank_count : 1;
    const size_t per_block = gw_thc_patterns_per_block(&steps->thc);
    return (thc_part){
        .range = {.len = len,
                  .block_first = block,
                  .block_count = count,
                  .round = steps->run.round * tensors + tensor, /* tensors do not share random words */
                  .rank = steps->config.rank},
        .first = tensor * len + at,
        .at = at,
        .len = (end < len ? end : len) - at,
        .maxima = steps->run.maxima + (size_t)(tensor * steps->block_count + block) * per_block,
        .maxima_len = (size_t)count * per_block,
    };
}

/* The piece of an exchange. */
static thc_part piece_of(const gw_thc_steps_context *context, uint32_t index)
{
    const gw_thc_steps *steps = context->steps;
    gw_collective_piece piece = {0};
    if (gw_collective_piece_at(&steps->layout[context->phase], index, &piece) != GW_OK) {
        piece.len = 0; /* cannot be: the exchange has the same layout */
    }
    const uint32_t tensor = steps->config.is_scatter ? piece.owner : 0;
    const uint64_t at = piece.first - tensor * steps->config.len;
    return part_of(steps, tensor, at >> steps->config.options.block_log2,
                   gw_thc_block_count(&steps->thc, piece.len));
}

/* The slice of a piece that begins `done` blocks behind its start. */
static thc_part slice_of(const gw_thc_steps *steps, const thc_part *piece, uint64_t done)
{
    const uint64_t most = SLICE_LEN >> steps->config.options.block_log2;
    const uint64_t left = piece->range.block_count - done;
    const uint32_t tensor = steps->config.is_scatter ? (uint32_t)(piece->first / steps->config.len) : 0;
    return part_of(steps, tensor, piece->range.block_first + done, left < most ? left : most);
}

static size_t indices_size(const gw_thc *thc, const thc_part *part)
{
    return gw_thc_indices_size(thc, part->range.len, part->range.block_first, part->range.block_count);
}

static size_t lanes_size(const gw_thc *thc, const thc_part *part)
{
    return gw_thc_lanes_size(thc, part->range.len, part->range.block_first, part->range.block_count);
}

static uint64_t message_size(const gw_thc_steps_context *context, gw_runtime_event_kind kind, uint32_t piece)
{
    const gw_thc_steps *steps = context->steps;
    const thc_part part = piece_of(context, piece);
    if (context->phase == GW_THC_PHASE_NORMS) {
        return HEAD_SIZE + 4 * (uint64_t)part.maxima_len;
    }
    if (kind == GW_RUNTIME_SEND) {
        return HEAD_SIZE + (uint64_t)indices_size(&steps->thc, &part);
    }
    if (steps->config.sums == GW_THC_SUMS_REQUANTIZED) {
        return HEAD_SIZE + 4 * part.range.block_count + indices_size(&steps->sum_thc, &part);
    }
    return HEAD_SIZE + (uint64_t)lanes_size(&steps->thc, &part);
}

uint64_t gw_thc_steps_message_size(void *context, gw_runtime_event_kind kind, uint32_t piece)
{
    return message_size(context, kind, piece);
}

/* ------------ messages ------------ */

/* The rank that has made a message. sender: of one to the owner of a piece. */
static uint32_t maker_of(const gw_thc_steps_context *context, gw_runtime_event_kind kind, uint32_t piece,
                         uint32_t sender)
{
    gw_collective_piece at = {0};
    if (kind != GW_RUNTIME_SHARE ||
        gw_collective_piece_at(&context->steps->layout[context->phase], piece, &at) != GW_OK) {
        return sender;
    }
    return at.owner;
}

/* Both sides know which message it is. So one of another operation, piece, rank or codec is refused though it
 * has the right size, and no byte travels for that. */
static uint32_t checksum(const gw_thc_steps_context *context, uint32_t piece, uint32_t maker,
                         const uint8_t *message, uint64_t size)
{
    const gw_thc_steps *steps = context->steps;
    const uint64_t hash = gw_thc_options_hash(&steps->thc);
    uint8_t identity[20];
    store32(identity, steps->run.round);
    store32(identity + 4, piece);
    store32(identity + 8, maker);
    store32(identity + 12, (uint32_t)hash);
    store32(identity + 16, (uint32_t)(hash >> 32));
    return gw_crc32c(gw_crc32c(0, identity, sizeof identity), message + HEAD_SIZE, (size_t)size - HEAD_SIZE);
}

/* Writes the head of a message whose words are there. */
static void seal(const gw_thc_steps_context *context, gw_runtime_event_kind kind, gw_exchange_step *step)
{
    uint8_t *message = step->dst.data;
    step->dst.size = (size_t)message_size(context, kind, step->piece);
    store32(message, marks[context->phase][kind == GW_RUNTIME_SHARE]);
    store32(message + 4,
            checksum(context, step->piece, context->steps->config.rank, message, step->dst.size));
}

/* The rank and the piece of a notice exist; the piece may be one of the other phase, which has failed. */
static int is_notice_of(const gw_thc_steps *steps, const gw_collective_failure *notice)
{
    const uint32_t norms = steps->layout[GW_THC_PHASE_NORMS].piece_count;
    const uint32_t sums = steps->layout[GW_THC_PHASE_SUMS].piece_count;
    return notice->rank < steps->config.rank_count && notice->piece < (norms > sums ? norms : sums);
}

/* 1: it is this message. Else the failure says why not: that of a notice, or that the message is damaged or
 * another one, which its maker is blamed for. sender: of one to the owner of a piece. */
static int is_message(const gw_thc_steps_context *context, gw_runtime_event_kind kind,
                      const gw_gcomp_frame *message, uint32_t sender, gw_exchange_step *step)
{
    const uint64_t size = message_size(context, kind, step->piece);
    const uint32_t maker = maker_of(context, kind, step->piece, sender);
    const uint8_t *bytes = message->data;
    gw_collective_failure notice;
    if (message->size == size && load32(bytes) == marks[context->phase][kind == GW_RUNTIME_SHARE] &&
        load32(bytes + 4) == checksum(context, step->piece, maker, bytes, size)) {
        return 1;
    }
    if (gw_collective_notice_read(bytes, message->size, &notice) && is_notice_of(context->steps, &notice)) {
        step->failure = notice;
    } else {
        step->failure.rank = maker;
        step->failure.status = GW_ERR_CORRUPT;
    }
    return 0;
}

/* ------------ norms ------------ */

static gw_thc_source source_of(const gw_thc_steps *steps, const thc_part *part)
{
    const size_t value_size = gw_dtype_size(steps->config.options.dtype);
    return (gw_thc_source){
        .values = (const uint8_t *)steps->run.values + part->first * value_size,
        .error = steps->run.error != NULL ? steps->run.error + part->first : NULL,
        .patterns = part->maxima,
    };
}

/* The maxima of a piece hold this rank's patterns until those of all ranks are there. */
static void step_norms(const gw_thc_steps_context *context, gw_exchange_step *step,
                       const gw_workspace *workspace)
{
    const gw_thc_steps *steps = context->steps;
    const thc_part piece = piece_of(context, step->piece);
    gw_collective_failure *failure = &step->failure;
    if (step->kind == GW_EXCHANGE_DECODE) {
        if (is_message(context, GW_RUNTIME_SHARE, step->messages, 0, step)) {
            load_patterns(piece.maxima, (const uint8_t *)step->messages->data + HEAD_SIZE, piece.maxima_len);
            failure->status = GW_OK;
        }
        return;
    }
    const gw_thc_source source = source_of(steps, &piece);
    failure->status = gw_thc_norms(&steps->thc, &piece.range, &source, piece.maxima, NULL, workspace);
    for (uint32_t r = 0; step->messages != NULL && r < steps->config.rank_count; r++) {
        const gw_gcomp_frame *message = &step->messages[r];
        if (failure->status != GW_OK) {
            return;
        }
        if (r == steps->config.rank || !is_message(context, GW_RUNTIME_SEND, message, r, step)) {
            continue;
        }
        const uint8_t *words = (const uint8_t *)message->data + HEAD_SIZE;
        for (size_t i = 0; i < piece.maxima_len; i++) {
            const uint32_t pattern = load32(words + 4 * i);
            piece.maxima[i] = pattern > piece.maxima[i] ? pattern : piece.maxima[i];
        }
    }
    if (failure->status == GW_OK) {
        store_patterns((uint8_t *)step->dst.data + HEAD_SIZE, piece.maxima, piece.maxima_len);
        seal(context, step->messages != NULL ? GW_RUNTIME_SHARE : GW_RUNTIME_SEND, step);
    }
}

/* ------------ sums ------------ */

typedef struct thc_scratch {
    float *values;
    uint32_t *patterns;
    uint8_t *lanes, *indices, *set;
    gw_workspace rest;
} thc_scratch;

static size_t codec_workspace_size(const gw_thc_steps *steps)
{
    const size_t one = gw_thc_workspace_size(&steps->thc), other = gw_thc_workspace_size(&steps->sum_thc);
    return one > other ? one : other;
}

size_t gw_thc_steps_workspace_size(const gw_thc_steps *steps)
{
    return steps != NULL ? ALIGNMENT + SCRATCH_SIZE + codec_workspace_size(steps) : 0;
}

static gw_status scratch_make(const gw_thc_steps *steps, const gw_workspace *workspace, thc_scratch *scratch)
{
    if (workspace->size < gw_thc_steps_workspace_size(steps)) {
        return GW_ERR_WORKSPACE;
    }
    const uintptr_t place = (uintptr_t)workspace->data;
    const size_t skip = (size_t)((ALIGNMENT - place % ALIGNMENT) % ALIGNMENT);
    uint8_t *at = (uint8_t *)workspace->data + skip;
    scratch->values = (float *)(void *)at;
    at += SLICE_VALUES_SIZE;
    scratch->patterns = (uint32_t *)(void *)at;
    at += SLICE_PATTERNS_SIZE;
    scratch->lanes = at;
    at += SLICE_LANES_SIZE;
    scratch->indices = at;
    at += SLICE_INDICES_SIZE;
    scratch->set = at;
    at += SET_SIZE;
    scratch->rest = (gw_workspace){at, workspace->size - skip - SCRATCH_SIZE};
    return GW_OK;
}

static gw_status decode_lanes(const gw_thc_steps *steps, const thc_part *part, const uint8_t *lanes,
                              void *values, const gw_workspace *workspace)
{
    const gw_thc_sum sum = {.data = lanes,
                            .size = lanes_size(&steps->thc, part),
                            .members = steps->members,
                            .patterns = part->maxima};
    gw_thc_target target = {.values = values, .capacity = part->len};
    return gw_thc_decode(&steps->thc, &part->range, &sum, steps->config.is_mean ? GW_THC_MEAN : GW_THC_SUM,
                         &target, workspace);
}

/* Where a part of the result goes. */
static void *result_at(const gw_thc_steps *steps, const thc_part *part)
{
    return (uint8_t *)steps->run.result + part->at * gw_dtype_size(steps->config.options.dtype);
}

static gw_status step_encode(const gw_thc_steps_context *context, gw_exchange_step *step,
                             const gw_workspace *workspace)
{
    const gw_thc_steps *steps = context->steps;
    const thc_part piece = piece_of(context, step->piece);
    const gw_thc_source source = source_of(steps, &piece);
    gw_buffer indices = {(uint8_t *)step->dst.data + HEAD_SIZE, step->dst.capacity - HEAD_SIZE, 0};
    const gw_status status = gw_thc_encode(&steps->thc, &piece.range, &source, &indices, NULL, workspace);
    if (status == GW_OK) {
        seal(context, GW_RUNTIME_SEND, step);
    }
    return status;
}

/* The lanes of a slice: all ranks' indices, those of this rank among them. skip: bytes of indices of the
 * piece before the slice. */
static gw_status add_slice(const gw_thc_steps *steps, const thc_part *slice, const gw_gcomp_frame *messages,
                           size_t skip, uint8_t *lanes, const thc_scratch *scratch)
{
    const size_t size = lanes_size(&steps->thc, slice);
    const gw_thc_partial sum = {
        .lanes = lanes, .set = scratch->set, .len = size / (steps->config.options.lane_bits / 8)};
    const gw_thc_source source = source_of(steps, slice);
    gw_buffer own = {scratch->indices, SLICE_INDICES_SIZE, 0};
    const uint8_t *sources[SOURCES];
    uint32_t ranks[SOURCES], count = 0;
    gw_status status = gw_thc_encode(&steps->thc, &slice->range, &source, &own, NULL, &scratch->rest);
    memset(lanes, 0, size);
    memset(scratch->set, 0, SET_SIZE);
    for (uint32_t r = 0; r < steps->config.rank_count && status == GW_OK; r++) {
        sources[count] = scratch->indices;
        if (r != steps->config.rank) {
            sources[count] = (const uint8_t *)messages[r].data + HEAD_SIZE + skip;
        }
        ranks[count++] = r;
        if (count == SOURCES || r + 1 == steps->config.rank_count) {
            status = gw_thc_agg_add_indices_many(&steps->agg, &sum, sources, ranks, count);
            count = 0;
        }
    }
    return status;
}

/* The sum of a slice, in the scratch memory, as patterns and indices of its own. */
static gw_status requantize_slice(const gw_thc_steps *steps, const thc_part *slice, uint8_t *patterns,
                                  gw_buffer *indices, const thc_scratch *scratch)
{
    const gw_collective_layout *layout = &steps->layout[GW_THC_PHASE_SUMS];
    gw_thc_source source = {.values = scratch->values, .patterns = scratch->patterns};
    gw_thc_range range = slice->range;
    uint64_t first = 0, len = 0;
    range.rank = 0; /* the only one of its job */
    gw_status status = decode_lanes(steps, slice, scratch->lanes, scratch->values, &scratch->rest);
    if (status == GW_OK && steps->run.sum_error != NULL) {
        status = gw_collective_shard_at(layout, steps->config.rank, &first, &len);
        source.error = steps->run.sum_error + (slice->first - first);
    }
    if (status == GW_OK) {
        status = gw_thc_norms(&steps->sum_thc, &range, &source, scratch->patterns, NULL, &scratch->rest);
    }
    if (status == GW_OK) {
        store_patterns(patterns, scratch->patterns, (size_t)range.block_count);
        status = gw_thc_encode(&steps->sum_thc, &range, &source, indices, NULL, &scratch->rest);
    }
    return status;
}

/* The owner: the sum goes into the message, or to the result. */
static gw_status step_sum(const gw_thc_steps_context *context, gw_exchange_step *step,
                          const gw_workspace *workspace)
{
    const gw_thc_steps *steps = context->steps;
    const thc_part piece = piece_of(context, step->piece);
    const int is_lanes = step->kind == GW_EXCHANGE_REDUCE && steps->config.sums == GW_THC_SUMS_LANES;
    const size_t patterns_size = 4 * (size_t)piece.range.block_count;
    uint8_t *words = step->kind == GW_EXCHANGE_REDUCE ? (uint8_t *)step->dst.data + HEAD_SIZE : NULL;
    size_t skip = 0, lanes_skip = 0, sum_skip = 0;
    thc_scratch scratch;
    gw_status status = scratch_make(steps, workspace, &scratch);
    for (uint64_t done = 0; done < piece.range.block_count && status == GW_OK;) {
        const thc_part slice = slice_of(steps, &piece, done);
        uint8_t *lanes = is_lanes ? words + lanes_skip : scratch.lanes;
        status = add_slice(steps, &slice, step->messages, skip, lanes, &scratch);
        if (status == GW_OK && step->kind == GW_EXCHANGE_SUM) {
            status = decode_lanes(steps, &slice, lanes, result_at(steps, &slice), &scratch.rest);
        } else if (status == GW_OK && !is_lanes) {
            gw_buffer indices = {words + patterns_size + sum_skip, indices_size(&steps->sum_thc, &slice), 0};
            status = requantize_slice(steps, &slice, words + 4 * done, &indices, &scratch);
            sum_skip += indices.size;
        }
        skip += indices_size(&steps->thc, &slice);
        lanes_skip += lanes_size(&steps->thc, &slice);
        done += slice.range.block_count;
    }
    if (status == GW_OK && words != NULL) {
        seal(context, GW_RUNTIME_SHARE, step);
    }
    return status;
}

/* Slice by slice: patterns need a place that is aligned. */
static gw_status decode_requantized(const gw_thc_steps *steps, const thc_part *piece, const uint8_t *words,
                                    const gw_workspace *workspace)
{
    const uint8_t *packed = words + 4 * piece->range.block_count;
    thc_scratch scratch;
    gw_status status = scratch_make(steps, workspace, &scratch);
    for (uint64_t done = 0; done < piece->range.block_count && status == GW_OK;) {
        const thc_part slice = slice_of(steps, piece, done);
        const gw_thc_indices indices = {packed, indices_size(&steps->sum_thc, &slice), scratch.patterns};
        gw_thc_target target = {.values = result_at(steps, &slice), .capacity = slice.len};
        load_patterns(scratch.patterns, words + 4 * done, (size_t)slice.range.block_count);
        status = gw_thc_decode_indices(&steps->sum_thc, &slice.range, &indices, &target, &scratch.rest);
        packed += indices.size;
        done += slice.range.block_count;
    }
    return status;
}

static gw_status step_decode(const gw_thc_steps_context *context, gw_exchange_step *step,
                             const gw_workspace *workspace)
{
    const gw_thc_steps *steps = context->steps;
    const thc_part piece = piece_of(context, step->piece);
    const uint8_t *words = (const uint8_t *)step->messages->data + HEAD_SIZE;
    if (steps->config.sums == GW_THC_SUMS_REQUANTIZED) {
        return decode_requantized(steps, &piece, words, workspace);
    }
    return decode_lanes(steps, &piece, words, result_at(steps, &piece), workspace);
}

/* 1: the messages that a step reads are good. */
static int are_messages(const gw_thc_steps_context *context, gw_exchange_step *step)
{
    if (step->kind == GW_EXCHANGE_DECODE) {
        return is_message(context, GW_RUNTIME_SHARE, step->messages, 0, step);
    }
    for (uint32_t r = 0; step->messages != NULL && r < context->steps->config.rank_count; r++) {
        if (r != context->steps->config.rank &&
            !is_message(context, GW_RUNTIME_SEND, &step->messages[r], r, step)) {
            return 0;
        }
    }
    return 1;
}

static void step_sums(const gw_thc_steps_context *context, gw_exchange_step *step,
                      const gw_workspace *workspace)
{
    if (context->steps->run.norms_word != 0) {
        gw_collective_word_read(context->steps->run.norms_word, &step->failure);
        return;
    }
    if (!are_messages(context, step)) {
        return;
    }
    if (step->kind == GW_EXCHANGE_ENCODE) {
        step->failure.status = step_encode(context, step, workspace);
    } else if (step->kind == GW_EXCHANGE_DECODE) {
        step->failure.status = step_decode(context, step, workspace);
    } else {
        step->failure.status = step_sum(context, step, workspace);
    }
}

void gw_thc_steps_step(void *context, gw_exchange_step *step, const gw_workspace *workspace)
{
    const gw_thc_steps_context *given = context;
    if (given->phase == GW_THC_PHASE_NORMS) {
        step_norms(given, step, workspace);
    } else {
        step_sums(given, step, workspace);
    }
}
