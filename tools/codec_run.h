/*
 * Running the codec on whole tensors with several threads: the precision map of a snapshot, encode, decode.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CODEC_RUN_H
#define GW_CODEC_RUN_H

#include "cli_common.h"
#include "gradwire/gcomp.h"
#include "snapshot.h"

/* Tensors of at least this many values are processed in ranges even by one thread. */
#define GW_CODEC_RUN_LARGE_LEN ((uint64_t)1 << 24)

/* A precision map and its digests. */
typedef struct gw_map_run {
    gw_gcomp_map map;
    uint8_t *bytes;
    uint32_t *digest;
    double seconds; /* of the two passes and the digests; the median of runs */
} gw_map_run;

/* What a map is made for. */
typedef struct gw_map_run_options {
    gw_gcomp_map_limits limits;
    float wire_scale;
    uint32_t chunk_log2;
    uint32_t backends;
    unsigned threads;
    int is_once; /* do not repeat a short run for its time */
} gw_map_run_options;

/* Makes the map of a snapshot, or ends the process with a message; free with gw_map_run_free(). */
void gw_map_run_make(gw_map_run *run, const gw_snapshot *snapshot, const gw_map_run_options *options);
void gw_map_run_free(gw_map_run *run);

/* Buffers of an encoder, made once and used for any number of runs. Without memory the process ends with a
 * message. */
typedef struct gw_encode_run {
    const gw_gcomp *codec;
    const gw_gcomp_source *source;
    unsigned threads;
    size_t workspace_size;
    uint8_t *workspaces;
    uint64_t range_len;   /* chunks per range */
    uint64_t range_count; /* 0: one call encodes the frame */
    gw_gcomp_part *parts;
    gw_status *statuses;
    uint8_t *areas;
    uint8_t *frame;
    size_t frame_capacity;
    size_t frame_size;
    const gw_npy *released; /* NULL: memory is kept for further runs */
    uint32_t chunk_log2;    /* with `released` */
} gw_encode_run;

void gw_encode_run_init(gw_encode_run *run, const gw_gcomp *codec, const gw_gcomp_source *source,
                        unsigned threads);
void gw_encode_run_free(gw_encode_run *run);

/* Call it after init to encode a large tensor in little memory: pages of the input array, if it is mapped,
 * and of parts are given back once they are used. Further runs work, but are slower. */
void gw_encode_run_release(gw_encode_run *run, const gw_npy *input, uint32_t chunk_log2);

/* Encodes into run->frame[0..run->frame_size). With `progress` != 0 the progress line shows how much is
 * done. */
gw_status gw_encode_run_once(gw_encode_run *run, int progress);

/* The same as often as the timer says. The progress line shows how much is done, with timer->runs how many
 * runs. */
gw_status gw_encode_run_timed(gw_encode_run *run, gw_cli_timer *timer);

/* Buffers of a decoder. dst has room for info.len elements. */
typedef struct gw_decode_run {
    const gw_gcomp *codec;
    gw_gcomp_frame frame;
    gw_gcomp_frame_info info;
    int is_mapped; /* the frame is a mapped file: pages of large frames are given back */
    unsigned threads;
    size_t workspace_size;
    uint8_t *workspaces;
    uint64_t range_len;                /* chunks per range */
    uint64_t range_count, range_first; /* range_count 0: one call decodes the frame */
    gw_status *statuses;
    gw_gcomp_target *targets;
    uint8_t *dst;
} gw_decode_run;

void gw_decode_run_init(gw_decode_run *run, const gw_gcomp *codec, const gw_gcomp_frame *frame,
                        const gw_gcomp_frame_info *info, unsigned threads);
void gw_decode_run_free(gw_decode_run *run);

/* Decodes the whole frame, or `count` ranges of run->range_count. On failure *bad_chunk is the chunk,
 * UINT64_MAX if unknown. */
gw_status gw_decode_run_once(gw_decode_run *run, uint64_t *bad_chunk, int progress);
gw_status gw_decode_run_ranges(gw_decode_run *run, uint64_t first, uint64_t count, uint64_t *bad_chunk,
                               int progress);

/* gw_decode_run_once() as often as the timer says; see gw_encode_run_timed(). */
gw_status gw_decode_run_timed(gw_decode_run *run, gw_cli_timer *timer, uint64_t *bad_chunk);

#endif
