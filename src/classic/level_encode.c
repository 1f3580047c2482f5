/*
 * Levels: encode. Where blocks are small, their norms are computed just before the chunk that has them, so
 * that a value comes from memory once; with state, all norms come first, since nothing may fail after the
 * first write to state.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/level_layout.h"
#include "core/ahead.h"

typedef struct level_encoder {
    const gw_classic_encoding *encoding;
    const gw_kernels *kernels;
    gw_level_scratch *scratch;
    gw_level_layout layout;
    gw_level_form form;
    uint8_t *norms;      /* where they go: fp32, little-endian */
    uint64_t norms_made; /* blocks */
} level_encoder;

static level_encoder encoder_of(const gw_classic_encoding *encoding)
{
    const gw_classic_options *options = encoding->options;
    level_encoder e;
    e.encoding = encoding;
    e.kernels = encoding->kernels;
    e.scratch = (gw_level_scratch *)(void *)encoding->workspace;
    e.layout =
        gw_level_layout_of(encoding->step->len, options->block_len, options->level_max, options->coding);
    e.form.kernels = encoding->kernels;
    e.form.coding = options->coding;
    e.form.level_max = options->level_max;
    e.norms = encoding->payload;
    e.norms_made = 0;
    return e;
}

static float *residual_at(const level_encoder *e, uint64_t first)
{
    float *const residual = e->encoding->source->residual;
    return residual == NULL ? NULL
                            : (float *)(void *)((uint8_t *)(void *)residual + first * sizeof *residual);
}

/* Values with their residual to scratch->x. */
static void load(const level_encoder *e, uint64_t first, size_t len)
{
    const unsigned dtype = (unsigned)e->encoding->options->dtype;
    const uint8_t *values = (const uint8_t *)e->encoding->source->values;
    e->kernels->thc.load(e->scratch->x, values + first * (dtype == GW_FP32 ? 4 : 2), dtype,
                         residual_at(e, first), len, len);
}

/* ---- norms --------------------------------------------------------------------------------------------- */

/* The block's own norm. Returns 0 if it has none. */
static int own_norm(uint32_t *bits, const level_encoder *e, uint64_t block)
{
    const gw_classic_options *options = e->encoding->options;
    const int needs_moments = gw_level_needs_moments(options);
    const uint64_t len = gw_level_block_len(&e->layout, block);
    const uint64_t end = block * e->layout.block_len + len;
    gw_level_moments moments = {0, 0, 0};
    for (uint64_t first = end - len; first < end;) {
        const gw_level_run run = gw_level_run_at(&e->layout, first, end);
        load(e, first, run.len);
        if (needs_moments) {
            e->kernels->classic.level_moments(&moments, e->scratch->x, run.len);
        } else {
            const uint32_t largest = e->kernels->classic.level_largest(e->scratch->x, run.len);
            moments.largest = largest > moments.largest ? largest : moments.largest;
        }
        first += run.len;
    }
    return gw_level_norm(bits, options, &moments, len);
}

/* Norms of the blocks up to `block`. */
static gw_status make_norms(level_encoder *e, uint64_t block)
{
    const float *shared = e->encoding->source->norms;
    for (; e->norms_made <= block; e->norms_made++) {
        uint32_t bits;
        if (!own_norm(&bits, e, e->norms_made)) {
            return GW_ERR_NONFINITE;
        }
        if (shared != NULL) {
            uint32_t given;
            GW_MEMCPY(&given, (const uint8_t *)(const void *)shared + 4 * e->norms_made, sizeof given);
            if (!gw_level_is_norm(given, e->encoding->options->dtype) || given < bits) {
                return GW_ERR_STATE;
            }
            bits = given;
        }
        gw_store32(e->norms + 4 * e->norms_made, bits);
    }
    return GW_OK;
}

gw_status gw_level_norms(const gw_classic_encoding *encoding, float *norms)
{
    const level_encoder e = encoder_of(encoding);
    for (uint64_t block = 0; block < e.layout.block_count; block++) {
        uint32_t bits;
        if (!own_norm(&bits, &e, block)) {
            return GW_ERR_NONFINITE;
        }
        GW_MEMCPY((uint8_t *)(void *)norms + 4 * block, &bits, sizeof bits);
    }
    return GW_OK;
}

/* ---- levels -------------------------------------------------------------------------------------------- */

/* Random bits of values [first, first + len). */
static const uint16_t *random_bits(const level_encoder *e, uint64_t first, size_t len)
{
    const gw_classic_step *step = e->encoding->step;
    const gw_level_stream stream = {e->encoding->options->seed, step->round, step->rank};
    const uint64_t element = step->element_first + first; /* modulo 2^64 */
    const size_t before = (size_t)(element % GW_LEVEL_GROUP_LEN);
    const size_t groups = (before + len + GW_LEVEL_GROUP_LEN - 1) / GW_LEVEL_GROUP_LEN;
    e->kernels->classic.level_random(e->scratch->random, element / GW_LEVEL_GROUP_LEN, groups, &stream);
    return e->scratch->random + before;
}

enum { AHEAD_LEN = 512 }; /* values between two steps of prefetching */

/* Levels of a piece to scratch->levels + at; what they leave to the residual, if `keeps`. */
static void quantize_piece(const level_encoder *e, uint64_t first, size_t len, size_t at, int keeps,
                           gw_ahead *ahead)
{
    const uint16_t *random = random_bits(e, first, len);
    gw_level_scratch *s = e->scratch;
    int8_t *const levels = (int8_t *)(void *)(s->levels + at);
    load(e, first, len);
    for (size_t i = 0; i < len;) {
        const size_t end = gw_min_size(len, i + AHEAD_LEN);
        const gw_level_run run = gw_level_run_at(&e->layout, first + i, first + end);
        const uint32_t norm = gw_load32(e->norms + 4 * run.block);
        const gw_level_rule rule = {gw_level_scale(norm, e->form.level_max), e->form.level_max};
        gw_ahead_step(ahead, run.len);
        e->kernels->classic.level_quantize(levels + i, s->x + i, random + i, run.len, &rule);
        if (keeps) {
            const float step = gw_level_step(norm, e->form.level_max);
            e->kernels->classic.level_decode(s->y + i, levels + i, run.len, step);
        }
        i += run.len;
    }
    if (keeps) {
        e->kernels->thc.residual(residual_at(e, first), s->x, s->y, len);
    }
}

/* The values of the chunk after this one, to be fetched while this one is made. */
static gw_ahead next_chunk(const level_encoder *e, uint64_t chunk)
{
    const size_t size = e->encoding->options->dtype == GW_FP32 ? 4 : 2;
    const uint8_t *values = (const uint8_t *)e->encoding->source->values;
    if (chunk + 1 == e->layout.chunk_count) {
        return gw_ahead_begin(values, 0, 0);
    }
    return gw_ahead_begin(values + (chunk + 1) * GW_LEVEL_CHUNK_LEN * size,
                          gw_level_chunk_len(&e->layout, chunk + 1) * size, GW_LEVEL_CHUNK_LEN);
}

static void quantize_chunk(const level_encoder *e, uint64_t chunk, int keeps)
{
    const size_t len = gw_level_chunk_len(&e->layout, chunk);
    gw_ahead ahead = next_chunk(e, chunk);
    for (size_t at = 0; at < len; at += GW_LEVEL_PIECE_LEN) {
        quantize_piece(e, chunk * GW_LEVEL_CHUNK_LEN + at, gw_min_size(len - at, GW_LEVEL_PIECE_LEN), at,
                       keeps, &ahead);
    }
}

/* The last block that has values of a chunk. */
static uint64_t last_block(const gw_level_layout *layout, uint64_t chunk)
{
    return (chunk * GW_LEVEL_CHUNK_LEN + gw_level_chunk_len(layout, chunk) - 1) / layout->block_len;
}

/* Norms, levels and bytes of all chunks. */
static gw_status encode_chunks(level_encoder *e, gw_classic_encoding *encoding, int keeps)
{
    size_t at = (size_t)gw_level_front_size(&e->layout); /* capacity is at least that */
    for (uint64_t chunk = 0; chunk < e->layout.chunk_count; chunk++) {
        const gw_status status = make_norms(e, last_block(&e->layout, chunk));
        uint32_t entry;
        if (status != GW_OK) {
            return status;
        }
        quantize_chunk(e, chunk, keeps);
        if (!gw_level_write(encoding->payload + at, encoding->capacity - at,
                            gw_level_chunk_len(&e->layout, chunk), &e->form, e->scratch, &entry)) {
            return GW_ERR_DST;
        }
        if (e->layout.directory_size != 0) {
            gw_store32(encoding->payload + e->layout.norms_size + 4 * chunk, entry);
        }
        at += entry & ~3u;
    }
    encoding->size = at;
    return GW_OK;
}

gw_status gw_level_encode(gw_classic_encoding *encoding)
{
    level_encoder e = encoder_of(encoding);
    const int has_state = encoding->source->residual != NULL;
    if (encoding->capacity < gw_level_front_size(&e.layout)) {
        return GW_ERR_DST;
    }
    /* Where the frame is sure to fit, levels are made once; else once more, for the residual. */
    const int fits = encoding->capacity >= gw_level_size_max(&e.layout);
    gw_status status = has_state ? make_norms(&e, e.layout.block_count - 1) : GW_OK;
    if (status == GW_OK) {
        status = encode_chunks(&e, encoding, has_state && fits);
    }
    if (status == GW_OK && has_state && !fits) {
        for (uint64_t chunk = 0; chunk < e.layout.chunk_count; chunk++) {
            quantize_chunk(&e, chunk, 1);
        }
    }
    return status;
}
