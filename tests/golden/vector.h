/*
 * Test vectors: lines of index.tsv (make_vectors.py) with their files, and a codec handle with the options
 * and codebooks of the receiver of a line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_VECTOR_H
#define GW_VECTOR_H

#include <stdio.h>

#include "golden_file.h"
#include "gradwire/gcomp.h"

typedef struct vector_bytes {
    uint8_t *data; /* NULL: there is no such file */
    size_t size;
} vector_bytes;

typedef struct vector {
    const char *file; /* as written in the index; valid until the next vector_read() */
    char line[1024];
    char status[16];    /* upper case, as in docs/format.md */
    uint64_t bad_chunk; /* UINT64_MAX: none */
    gw_dtype dtype;
    gw_gcomp_quantum_mode quantum_mode;
    int has_values;
    uint64_t count;
    uint32_t values_crc;
    vector_bytes frame, values, map, codebook;
    vector_bytes quanta; /* of the encoder, in carried frames */
    vector_bytes source; /* what it starts from; NULL: the decoded values */
    gw_gcomp_rounding rounding;
    int has_segments; /* the source is one segment */
    int dead_zone;
    uint32_t tolerance_bits;
    int32_t drop_offset;
    uint32_t wire_scale;
    uint32_t codebook_id, generation;
    uint64_t len_max, capacity; /* UINT64_MAX: none */
    int preset;                 /* gw_gcomp_preset, -1: no encoder makes this frame */
    uint32_t constant_drop;

    uint32_t *digest;    /* of the map, for the chunk length that the frame states */
    gw_gcomp_map gw_map; /* valid if map.data is not NULL */
} vector;

/* Reads the next line and its files, whose paths start at `root`. Returns 1, 0 at the end, or exits with a
 * message: a broken index is no test result. Free with vector_free(). */
int vector_read(vector *v, FILE *index, const char *root);
void vector_free(vector *v);

/* Chunk length that a frame states, log2; 12 if it states nonsense. */
uint32_t vector_chunk_log2(const vector *v);

/* A handle for the vector's receiver on the given backends; its codebook is installed. Returns 0 after a
 * message. */
int vector_receiver(const vector *v, uint32_t backends, gw_gcomp *codec);

/* The map for the calls, NULL if the receiver has none. */
const gw_gcomp_map *vector_map(const vector *v);

/* Values that the output holds: the vector's capacity, or enough. */
uint64_t vector_capacity(const vector *v);

/* 1 if the status has the vector's name. */
int vector_is_status(const vector *v, gw_status status);

#endif
