/*
 * Codebooks that outlive a frame: counting what was sent, codebooks of the counts of all ranks, and handles
 * that encode with them.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "runtime_exchange.h"

#include <string.h>

/* Ids of the codebooks of a piece, and their places in gw_exchange_codebooks.next. */
enum { CODEBOOK_CONTRIBUTION = 0, CODEBOOK_SUM = 1, CODEBOOKS_OF_PIECE = 2 };

enum {
    LABELS = 256,
    CLASSES = 10,
    UNKNOWN = 255 /* a window or kind of exponents that no value has chosen (gw_gcomp_histogram) */
};

static int is_own(const gw_exchange *exchange, uint32_t piece)
{
    return exchange->pieces[piece].at.owner == exchange->config.rank;
}

/* ------------ encoding with them ------------ */

const gw_gcomp *gw_exchange_codebooks_codec(const gw_exchange *exchange, uint32_t piece)
{
    const gw_gcomp *codec = exchange->bucket.codec;
    /* A codebook with exponents relative to a map cannot code a derived frame without one. */
    const int has_quanta = exchange->bucket.map || exchange->config.codec.quantum_mode != GW_GCOMP_DERIVED;
    return exchange->codebooks.in_use && codec == &exchange->codec && has_quanta
               ? &exchange->codebooks.codecs[piece]
               : codec;
}

/* Gives the handle of a piece its two codebooks. It decodes with both, and encodes with one: contributions to
 * another's piece, or the sum of an own one. */
static gw_status install_piece(gw_exchange *exchange, uint32_t piece)
{
    const gw_exchange_codebooks *codebooks = &exchange->codebooks;
    gw_status status = GW_OK;
    for (uint32_t id = 0; id < CODEBOOKS_OF_PIECE && status == GW_OK; id++) {
        const gw_exchange_codebook *codebook = &codebooks->next[piece * (size_t)CODEBOOKS_OF_PIECE + id];
        const int encodes = (id == CODEBOOK_SUM) == is_own(exchange, piece);
        status = gw_gcomp_codebook_install(&codebooks->codecs[piece], id, codebooks->next_generation,
                                           codebook->data, codebook->size, encodes);
    }
    return status;
}

/* Moves the codebooks that were installed last into the handles; needs the lock. */
static gw_status take_next(gw_exchange *exchange)
{
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    gw_status status = GW_OK;
    codebooks->generation = 0;
    for (uint32_t i = 0; i < exchange->layout.piece_count && status == GW_OK; i++) {
        status = install_piece(exchange, i);
    }
    codebooks->generation = status == GW_OK ? codebooks->next_generation : 0;
    return status;
}

gw_status gw_exchange_codebooks_use(gw_exchange *exchange, uint32_t generation)
{
    if (!exchange || !exchange->config.codebooks) {
        return GW_ERR_ARG;
    }
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    gw_runtime_lock(exchange->runtime);
    gw_status status = GW_ERR_STATE;
    if (gw_exchange_is_idle(exchange)) {
        status = GW_OK;
        codebooks->has_frames = 0; /* the handles may not decode them any more */
        codebooks->in_use = 0;
        if (generation != 0 && generation != codebooks->generation) {
            status = generation == codebooks->next_generation ? take_next(exchange) : GW_ERR_TABLE;
        }
        codebooks->in_use = generation != 0 && status == GW_OK;
    }
    gw_runtime_unlock(exchange->runtime);
    return status;
}

/* ------------ counting ------------ */

/* The frame of a piece that this rank has made in the last operation, and room for a chunk of its values at
 * the end of the workspace. */
typedef struct frame_reader {
    const gw_gcomp *codec;
    gw_gcomp_frame frame;
    gw_gcomp_frame_info info;
    gw_gcomp_map map;
    void *values;
    gw_workspace rest;
} frame_reader;

static gw_status reader_init(frame_reader *reader, const gw_exchange *exchange, uint32_t piece,
                             const gw_workspace *workspace)
{
    const size_t room =
        ((size_t)1 << exchange->layout.shape.chunk_log2) * exchange->value_size + sizeof(float);
    *reader = (frame_reader){.codec = gw_exchange_codebooks_codec(exchange, piece)};
    if (workspace->size < room || workspace->size - room < gw_gcomp_workspace_size(reader->codec)) {
        return GW_ERR_WORKSPACE;
    }
    reader->rest = (gw_workspace){workspace->data, workspace->size - room};
    const uintptr_t place = (uintptr_t)workspace->data + reader->rest.size;
    reader->values = (void *)(place + (sizeof(float) - place % sizeof(float)) % sizeof(float));
    if (exchange->bucket.map) {
        reader->map = gw_exchange_map_of(exchange, &exchange->pieces[piece].at, !is_own(exchange, piece));
        reader->frame.map = &reader->map;
    }
    reader->frame.data = exchange->memory + piece * exchange->buffer_size;
    gw_status status = gw_gcomp_frame_peek(reader->frame.data, (size_t)exchange->buffer_size,
                                           exchange->config.codec.len_max, &reader->info);
    if (status != GW_OK || reader->info.frame_size > exchange->buffer_size) {
        return GW_ERR_CORRUPT;
    }
    reader->frame.size = (size_t)reader->info.frame_size;
    return gw_gcomp_frame_parse(reader->codec, &reader->frame, &reader->info);
}

static gw_status read_chunk(const frame_reader *reader, uint64_t index, gw_gcomp_target *decoded)
{
    const gw_gcomp_range chunk = {index, 1};
    *decoded =
        (gw_gcomp_target){.values = reader->values, .capacity = UINT64_C(1) << reader->info.chunk_log2};
    return gw_gcomp_decode_range(reader->codec, &reader->frame, &reader->info, &chunk, decoded,
                                 &reader->rest);
}

/* Adds the labels of a chunk. Its values are rounded already, and rounding leaves them as they are; but with
 * carried quanta and no map, quanta come from the values that are counted, so some may be rounded once more:
 * the counts are then close to those of the frame, not equal. */
static gw_status count_chunk(gw_exchange *exchange, uint32_t piece, const frame_reader *reader,
                             uint64_t index)
{
    gw_gcomp_target decoded;
    gw_status status = read_chunk(reader, index, &decoded);
    if (status != GW_OK) {
        return status;
    }
    gw_gcomp_source source = {.values = decoded.values, .len = decoded.len};
    gw_gcomp_map part = reader->map;
    if (reader->frame.map) {
        part.bytes += index << reader->info.chunk_log2;
        part.digest += index;
        part.len = decoded.len;
        source.quantum = gw_gcomp_quantum_of_map(&part);
    }
    return gw_gcomp_histogram_add(&exchange->codebooks.counts[piece], &exchange->codec, &source,
                                  &reader->rest);
}

/* Largest magnitude of finite values of fp32 or bf16, as bits. */
static uint32_t largest_bits(const gw_gcomp_target *decoded, size_t value_size)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < decoded->len; i++) {
        uint32_t bits = 0;
        if (value_size == sizeof bits) {
            memcpy(&bits, (const uint8_t *)decoded->values + i * sizeof bits, sizeof bits);
        } else {
            uint16_t upper;
            memcpy(&upper, (const uint8_t *)decoded->values + i * sizeof upper, sizeof upper);
            bits = (uint32_t)upper << 16;
        }
        bits &= 0x7fffffffu;
        largest = bits < 0x7f800000u && bits > largest ? bits : largest;
    }
    return largest;
}

/* The chunk with the largest value. Labels of explicit frames of fp32 and bf16 name a window of exponents,
 * which the first chunk that is counted chooses; larger values escape. Others count from chunk 0. */
static uint64_t first_chunk(const gw_exchange *exchange, const frame_reader *reader)
{
    const gw_gcomp_options *options = &exchange->config.codec;
    uint64_t first = 0;
    uint32_t largest = 0;
    if (options->quantum_mode != GW_GCOMP_EXPLICIT || options->dtype == GW_FP16) {
        return 0;
    }
    for (uint64_t i = 0; i < reader->info.chunk_count; i++) {
        gw_gcomp_target decoded;
        if (read_chunk(reader, i, &decoded) == GW_OK) {
            const uint32_t bits = largest_bits(&decoded, exchange->value_size);
            first = bits > largest ? i : first;
            largest = bits > largest ? bits : largest;
        }
    }
    return first;
}

/* Counts the frame of a piece, chunk by chunk. */
static gw_status count_piece(gw_exchange *exchange, uint32_t piece, const gw_workspace *workspace)
{
    frame_reader reader;
    gw_status status = reader_init(&reader, exchange, piece, workspace);
    const uint64_t chunks = status == GW_OK ? reader.info.chunk_count : 0;
    const uint64_t first = chunks > 0 ? first_chunk(exchange, &reader) : 0;
    for (uint64_t i = 0; status == GW_OK && i < chunks; i++) {
        status = count_chunk(exchange, piece, &reader, (first + i) % chunks);
    }
    return status;
}

/* 1 if this rank has made a frame of the piece. */
static int is_counted(const gw_exchange *exchange, uint32_t piece)
{
    const int has_frame = !is_own(exchange, piece) || !(exchange->run.flags & GW_EXCHANGE_SCATTER);
    return exchange->pieces[piece].at.len > 0 && has_frame;
}

/* All pieces are counted; needs the lock. */
static void end_count(gw_exchange *exchange)
{
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    codebooks->busy = 0;
    codebooks->is_ready = codebooks->failure.status == GW_OK;
    gw_exchange_post(exchange, &exchange->posted,
                     (gw_runtime_event){.kind = GW_RUNTIME_CODEBOOKS,
                                        .word = gw_collective_word_write(&codebooks->failure)});
}

static void count_step(gw_runtime_task *task, const gw_workspace *workspace)
{
    const uint64_t start = gw_runtime_clock();
    gw_exchange *exchange = task->owner;
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    const uint32_t piece = gw_exchange_index(exchange, (gw_exchange_piece *)task);
    gw_status status = gw_gcomp_histogram_init(&codebooks->counts[piece], &exchange->codec);
    if (status == GW_OK && is_counted(exchange, piece)) {
        status = count_piece(exchange, piece, workspace);
    }
    gw_runtime_lock(exchange->runtime);
    exchange->stats.codebooks_ns += gw_runtime_clock() - start;
    if (status != GW_OK && codebooks->failure.status == GW_OK) {
        codebooks->failure = gw_exchange_failure(exchange, piece, status);
    }
    if (--codebooks->left == 0) {
        end_count(exchange);
    }
    gw_exchange_leave(exchange);
}

gw_status gw_exchange_codebooks_count(gw_exchange *exchange)
{
    if (!exchange || !exchange->config.codebooks) {
        return GW_ERR_ARG;
    }
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    gw_runtime_lock(exchange->runtime);
    const int can_start = gw_exchange_is_idle(exchange) && codebooks->has_frames;
    if (can_start) {
        codebooks->busy = 1;
        codebooks->is_ready = 0;
        codebooks->failure = (gw_collective_failure){.status = GW_OK};
        codebooks->left = exchange->layout.piece_count;
        for (uint32_t i = 0; i < exchange->layout.piece_count; i++) {
            gw_exchange_push(exchange, &exchange->pieces[i], GW_RUNTIME_PRIORITY_MAP, count_step);
        }
    }
    gw_runtime_unlock(exchange->runtime);
    return can_start ? GW_OK : GW_ERR_STATE;
}

/* ------------ counts as words ------------ */

static uint32_t narrow(uint64_t count)
{
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

static void write_words(uint32_t *words, const gw_gcomp_histogram *histogram)
{
    words[0] = histogram->window_start;
    words[1] = histogram->relative;
    for (uint32_t i = 0; i < LABELS; i++) {
        words[2 + i] = narrow(histogram->count[i]);
    }
    for (uint32_t i = 0; i < CLASSES; i++) {
        words[2 + LABELS + i] = narrow(histogram->mask_count[i]);
    }
}

gw_status gw_exchange_codebooks_words(const gw_exchange *exchange, uint32_t *words)
{
    if (!exchange || !exchange->config.codebooks || !words) {
        return GW_ERR_ARG;
    }
    const gw_exchange_codebooks *codebooks = &exchange->codebooks;
    const uint32_t count = exchange->layout.piece_count;
    gw_runtime_lock(exchange->runtime);
    const int is_ready = codebooks->is_ready && !codebooks->busy && !exchange->stopped;
    gw_runtime_unlock(exchange->runtime);
    memset(words, 0, (size_t)count * GW_EXCHANGE_CODEBOOK_WORDS * sizeof *words);
    for (uint32_t i = 0; i < count && is_ready; i++) {
        write_words(words + (size_t)i * GW_EXCHANGE_CODEBOOK_WORDS, &codebooks->counts[i]);
    }
    return is_ready ? GW_OK : GW_ERR_STATE;
}

/* ------------ codebooks of the counts of all ranks ------------ */

/* The words of a piece. */
static const uint32_t *words_at(const gw_exchange *exchange, const uint32_t *words, uint32_t rank,
                                uint32_t piece)
{
    return words + ((size_t)rank * exchange->layout.piece_count + piece) * GW_EXCHANGE_CODEBOOK_WORDS;
}

static uint32_t largest_known(uint32_t known, uint32_t value)
{
    return value != UNKNOWN && (known == UNKNOWN || value > known) ? value : known;
}

static int fits(uint32_t value, uint32_t chosen)
{
    return value == UNKNOWN || value == chosen;
}

static void add_words(gw_gcomp_histogram *sum, const uint32_t *words)
{
    for (uint32_t i = 0; i < LABELS; i++) {
        sum->count[i] += words[2 + i];
    }
    for (uint32_t i = 0; i < CLASSES; i++) {
        sum->mask_count[i] += words[2 + LABELS + i];
    }
}

/* Counts of a piece: of the owner, or of all others. */
static gw_gcomp_histogram pool(const gw_exchange *exchange, const uint32_t *words, uint32_t piece,
                               uint32_t id)
{
    const uint32_t owner = exchange->pieces[piece].at.owner, ranks = exchange->layout.shape.rank_count;
    gw_gcomp_histogram sum = {.dtype = (uint32_t)exchange->config.codec.dtype,
                              .quantum_mode = (uint32_t)exchange->config.codec.quantum_mode,
                              .window_start = UNKNOWN,
                              .relative = UNKNOWN};
    for (uint32_t r = 0; r < ranks; r++) {
        if ((r == owner) == (id == CODEBOOK_SUM)) {
            const uint32_t *own = words_at(exchange, words, r, piece);
            sum.window_start = largest_known(sum.window_start, own[0]);
            sum.relative = largest_known(sum.relative, own[1]);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t *own = words_at(exchange, words, r, piece);
        if ((r == owner) == (id == CODEBOOK_SUM) && fits(own[0], sum.window_start) &&
            fits(own[1], sum.relative)) {
            add_words(&sum, own);
        }
    }
    return sum;
}

/* Makes all codebooks, and the CRC32C of them. */
static gw_status make_codebooks(gw_exchange *exchange, const uint32_t *words, uint32_t *crc)
{
    gw_status status = GW_OK;
    *crc = 0;
    for (uint32_t i = 0; i < exchange->layout.piece_count && status == GW_OK; i++) {
        for (uint32_t id = 0; id < CODEBOOKS_OF_PIECE && status == GW_OK; id++) {
            gw_exchange_codebook *codebook = &exchange->codebooks.next[i * (size_t)CODEBOOKS_OF_PIECE + id];
            const gw_gcomp_histogram histogram = pool(exchange, words, i, id);
            gw_buffer dst = {.data = codebook->data, .capacity = sizeof codebook->data};
            status = gw_gcomp_codebook_build(&histogram, &dst);
            codebook->size = (uint32_t)dst.size;
            *crc = gw_crc32c(*crc, codebook->data, codebook->size);
        }
    }
    return status;
}

gw_status gw_exchange_codebooks_install(gw_exchange *exchange, uint32_t generation, const uint32_t *words)
{
    if (!exchange || !exchange->config.codebooks) {
        return GW_ERR_ARG;
    }
    gw_exchange_codebooks *codebooks = &exchange->codebooks;
    uint32_t crc = 0;
    codebooks->next_generation = 0;
    codebooks->stamp = 0;
    if (!words || generation == 0 || generation == codebooks->generation) {
        return GW_ERR_ARG;
    }
    gw_runtime_lock(exchange->runtime);
    gw_status status = exchange->stopped ? GW_ERR_STATE : GW_OK;
    gw_runtime_unlock(exchange->runtime);
    if (status == GW_OK) {
        status = make_codebooks(exchange, words, &crc);
    }
    if (status == GW_OK) {
        codebooks->next_generation = generation;
        codebooks->stamp = (uint64_t)generation << 32 | crc;
    }
    return status;
}

uint64_t gw_exchange_codebooks_stamp(const gw_exchange *exchange)
{
    return exchange ? exchange->codebooks.stamp : 0;
}
