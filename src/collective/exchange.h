/*
 * What the steps share: the part of a bucket that is one piece, and the checks of messages.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_COLLECTIVE_EXCHANGE_H
#define GW_COLLECTIVE_EXCHANGE_H

#include "collective/layout.h"
#include "gcomp/gcomp_codec.h"

/* One piece of a bucket and this rank's maps of it. */
typedef struct gw_piece {
    const gw_collective_bucket *bucket;
    const gw_codec *codec;
    uint32_t index;
    gw_collective_piece at;
    const uint8_t *values;          /* of the bucket, NULL if it has none */
    gw_gcomp_map sum, contribution; /* of the sum, and with the quanta of contributions */
    const gw_gcomp_map *sum_map;    /* that map, or NULL if the bucket has none */
    const gw_gcomp_map *contribution_map;
} gw_piece;

/* The failure of a step that has not failed. */
void gw_failure_begin(gw_collective_failure *failure, const gw_collective_bucket *bucket, uint32_t piece);

/* Checks the bucket and finds the piece. is_source: the step reads the bucket's values. */
gw_status gw_piece_begin(gw_piece *piece, const gw_collective_bucket *bucket, uint32_t index, int is_source);

/* The values of the piece as the codec takes them. map: one of the piece's. */
void gw_piece_source(const gw_piece *piece, const gw_gcomp_map *map, uint32_t hop, gw_gcomp_source *source);

/* Checks the message of a rank for the piece, but not the contents of its chunks. map: that of its frames. On
 * failure *failure says what is wrong, and its status is returned. */
gw_status gw_piece_check_message(const gw_piece *piece, uint32_t rank, const gw_gcomp_frame *message,
                                 const gw_gcomp_map *map, gw_gcomp_frame_info *info,
                                 gw_collective_failure *failure);

#endif
