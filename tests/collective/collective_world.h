/*
 * All ranks of an all-reduce in one process: values, map, layout, and the messages of one piece.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_COLLECTIVE_WORLD_H
#define GW_COLLECTIVE_WORLD_H

#include "gcomp_support.h"

#include "gradwire/collective.h"

enum { WORLD_RANKS_MAX = 16 };

typedef struct world_setup {
    gw_gcomp_options options;
    gw_collective_shape shape;
    int has_map;
    uint32_t contribution_bits;
    test_pattern pattern;
    uint64_t seed;
} world_setup;

typedef struct world {
    world_setup setup;
    size_t size; /* of an element */
    test_codec codec;
    gw_collective_layout layout;
    test_map map;
    gw_collective_map bucket_map;
    uint32_t *digest; /* of all pieces */
    uint8_t *values[WORLD_RANKS_MAX];
    gw_collective_bucket bucket[WORLD_RANKS_MAX];
    /* Of one piece: the message of every rank, each in a buffer with canaries, and the finished one. */
    size_t bound;
    test_buffer sent[WORLD_RANKS_MAX], finished;
    gw_gcomp_frame messages[WORLD_RANKS_MAX];
} world;

/* len, ranks: the rest of the shape is default, with chunks of 2^12. */
world_setup world_setup_of(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, uint32_t ranks, uint64_t len);

void world_make(world *w, const world_setup *setup);
void world_free(world *w);

gw_collective_piece world_piece(const world *w, uint32_t index);

/* The map of a piece as the codec takes it, its base lower by `bits` octaves. */
gw_gcomp_map world_map(const world *w, const gw_collective_piece *piece, uint32_t bits);

/* Encodes the piece at every rank but its owner, into w->messages, and checks that the frames are those of
 * gw_gcomp_encode(). */
void world_send(world *w, uint32_t piece);

/* The sum of w->messages and the owner's values by the definition of docs/numerics.md section 5. */
void world_sum(const world *w, uint32_t piece, uint8_t *sums);

/* gw_gcomp_encode() of values as the finished frame of a piece. Returns its size. */
size_t world_encode(const world *w, uint32_t piece, uint32_t rank, uint32_t hop, uint32_t bits,
                    const void *values, test_buffer *frame);

/* gw_gcomp_decode() with a map whose base is lower by `bits` octaves. */
void world_decode(const world *w, uint32_t piece, const gw_gcomp_frame *frame, uint32_t bits, void *values);

#endif
