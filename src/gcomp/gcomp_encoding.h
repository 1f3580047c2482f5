/*
 * Steps of an encode: the codebook of a group of chunks, then its chunks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_ENCODING_H
#define GW_GCOMP_ENCODING_H

#include "gcomp/gcomp_codec.h"

/* A group of chunks being encoded. */
typedef struct gw_group {
    uint64_t first;        /* chunk */
    const uint8_t *values; /* of the group's first value */
    size_t len;            /* values */
    /* Set by gw_group_begin(): the index of the first value in its random stream; or, if part_count is above
     * 1, where its segments begin, each with a stream of its own. */
    uint64_t element;
    gw_segment_place parts;
    size_t part_count;
    /* The codebook: the chunk that stores it, UINT64_MAX while there is none, and its bytes. */
    uint64_t owner;
    size_t codebook_size;
    uint32_t codebook_crc;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
} gw_group;

/* A chunk whose labels were counted has been split already: what the split left in the scratch. */
typedef struct gw_split_chunk {
    gw_digits digits;
    size_t coded_len; /* masked: values that are not +0, else all */
} gw_split_chunk;

/* `len` values of the group from `at` on. Carried: a chunk or the start of one; its quanta become map bytes
 * in the scratch, and the rule gets their drop_offset. */
gw_span gw_group_span(gw_encoding *encoding, const gw_group *group, size_t at, size_t len);

/* Carried: the quanta of all blocks of the group, in the scratch. */
void gw_group_quanta(gw_encoding *encoding, const gw_group *group);

/* The values of a segment from value `at` of a span on. */
static inline gw_span gw_span_of_part(const gw_span *span, size_t size, size_t at,
                                      const gw_gcomp_segment *part)
{
    const gw_span result = {(const uint8_t *)span->values + at * size,
                            span->map_bytes == NULL ? NULL : span->map_bytes + at, (size_t)part->len,
                            part->first_element, span->ahead + span->len - at - (size_t)part->len};
    return result;
}

/* What a group needs before anything else: quanta of carried frames, and its random streams. If it has values
 * of too many segments, explicit quanta, or is_whole says that it must have one stream, they are rounded
 * here, each with the stream of its segment; the rule then truncates, which changes none of them. */
void gw_group_begin(gw_encoding *encoding, gw_group *group, int is_whole);

/* Rounds the values of a span, at `place` in the segments, each with the stream of its segment. The place
 * moves to the value after them. */
void gw_round_parts(gw_encoding *encoding, const gw_span *span, gw_segment_place *place, uint8_t *out);

/* Splits a chunk, the values of the group from `at` on, to ranks in rank_buffer[0] and digits, each value
 * with the random stream of its segment. Returns 0 if all are +0. */
uint32_t gw_split_parts(gw_encoding *encoding, const gw_group *group, const gw_span *chunk, size_t at,
                        gw_digits *digits);

/* Digits and escapes: none yet. */
void gw_digits_begin(const gw_encoding *encoding, gw_digits *digits);

/* Chooses between relative exponents and others for a group, from a sample. */
void gw_group_choose_relative(gw_encoding *encoding, const gw_group *group);

/* A codebook of a group of len values is made from 64 values of every 64 times this many; 1: from all. */
size_t gw_group_sample_blocks(const gw_codec *codec, size_t len);

/* The codebook of a group from a sample, in the scratch. Returns 0 if all values were counted and are +0. */
int gw_group_survey(gw_encoding *encoding, const gw_group *group, size_t blocks);

/*
 * The exact codebook of a group of one chunk, in the scratch, and the chunk split into ranks: rank_buffer[0],
 * or, if zeros are masked, their mask in mask[0] and the ranks of the other values in rank_buffer[1]. Returns
 * 0 if all values are +0.
 */
int gw_group_split(gw_encoding *encoding, const gw_group *group, gw_split_chunk *split);

/* Builds the trees and the ranker of the codebook in the scratch. */
void gw_encoding_use_codebook(gw_encoding *encoding);

/* Writes chunk `index`, `len` values of the group from `at` on. split: NULL unless it was split already. */
void gw_encode_chunk(gw_encoding *encoding, gw_group *group, uint64_t index, size_t at, size_t len,
                     const gw_split_chunk *split);

/* Writes the directory entry of a ZERO chunk. */
void gw_encode_zero_chunk(gw_encoding *encoding, uint64_t index);

#endif
