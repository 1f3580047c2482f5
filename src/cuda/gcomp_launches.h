/*
 * Which kernels a GCOMP operation runs, with what geometry, and how it uses its workspace. Plain C that
 * touches neither driver nor device: the public calls and the checks on the CPU run the same launches.
 *
 * Everything follows from numbers that the host has. A workspace is 256-byte aligned; its address is only
 * used in sums.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_LAUNCHES_H
#define GW_GCOMP_LAUNCHES_H

#include "gcomp/gcomp_codec.h"
#include "cuda/gcomp_params.h"
#include "cuda/launch.h"

/* The properties of a device that launches depend on. */
typedef struct gw_cuda_shape {
    uint32_t multiprocessors;
    uint32_t shared_size_max; /* bytes of dynamic shared memory that a block may ask for */
} gw_cuda_shape;

/* Options and installed codebooks of a handle. */
void gw_cuda_codec_fill(gw_cuda_codec *out, const gw_codec *codec);

/* The part of a map that all items have in common; map may be NULL. base_at: the base in device memory,
 * or NULL. */
void gw_cuda_map_fill(gw_cuda_map *out, const gw_gcomp_map *map, const uint32_t *base_at);

/*
 * Decode. params holds codec, map, mode, item_count and items (or item); value_total is the sum of the items'
 * capacities. The rest of params is filled in, the launches name params and must not outlive it.
 */
size_t gw_cuda_decode_workspace_size(uint32_t item_count, uint64_t value_total);
void gw_cuda_launches_decode(gw_cuda_launches *launches, gw_gcomp_decode_params *params, uint64_t value_total,
                             const gw_cuda_shape *shape, void *workspace);

/*
 * Frame `params->sum.index` of a sum of frame_count, in the order of the frames: their launches share a
 * workspace. params holds codec, map, item and sum.index; the item's dst, dst_capacity and result are those
 * of the whole sum. The rest is filled in.
 */
size_t gw_cuda_sum_workspace_size(const gw_cuda_codec *codec, uint64_t capacity);
void gw_cuda_launches_sum(gw_cuda_launches *launches, gw_gcomp_decode_params *params, uint32_t frame_count,
                          const gw_cuda_shape *shape, void *workspace);

/*
 * Encode. params holds codec, map, key (or key_at), item_count and items (or item); value_total is the sum of
 * the items' lengths.
 */
size_t gw_cuda_encode_workspace_size(const gw_cuda_codec *codec, uint32_t item_count, uint64_t value_total);
void gw_cuda_launches_encode(gw_cuda_launches *launches, gw_gcomp_encode_params *params, uint64_t value_total,
                             const gw_cuda_shape *shape, void *workspace);

/*
 * Hops: decode + add -> workspace -> encode. One: `in` holds codec, map (of the incoming frame) and item with
 * src, addend, map_bytes and digest; `out` codec, map, key, and item with src_size, dst, map_bytes, digest,
 * first_element and result. Many: `in` and `out` without items, out->item_count, hops->hops; value_total is
 * the sum of their lengths. The rest is filled in.
 */
size_t gw_cuda_hop_workspace_size(const gw_cuda_codec *codec, uint32_t item_count, uint64_t value_total);
void gw_cuda_launches_hop(gw_cuda_launches *launches, gw_gcomp_decode_params *in, gw_gcomp_encode_params *out,
                          const gw_cuda_shape *shape, void *workspace);
void gw_cuda_launches_hop_batch(gw_cuda_launches *launches, gw_gcomp_hop_params *hops,
                                gw_gcomp_decode_params *in, gw_gcomp_encode_params *out, uint64_t value_total,
                                const gw_cuda_shape *shape, void *workspace);

/*
 * Sources made of segments. params holds segments, segment_count and segment_offset, and must live as long as
 * the launches; the rest is filled in. `area`: the workspace for that, besides that of the call.
 *
 * gw_cuda_launches_segments() turns the launches of an encode or of a hop (without items) into those of such
 * a source; first: the item that the launches begin with, that of the decode of a hop.
 * gw_cuda_launches_histogram_segments() stands for gw_cuda_launches_histogram(), item without array too.
 */
size_t gw_cuda_segments_workspace_size(const gw_cuda_codec *codec, uint32_t segment_count, uint64_t len);
void gw_cuda_launches_segments(gw_cuda_launches *launches, gw_gcomp_segment_params *params,
                               gw_gcomp_encode_params *encode, gw_cuda_gcomp_item *first,
                               const gw_cuda_shape *shape, void *area);
void gw_cuda_launches_histogram_segments(gw_cuda_launches *launches, gw_gcomp_segment_params *params,
                                         gw_gcomp_histogram_params *histogram, const gw_cuda_shape *shape,
                                         void *workspace, void *area);

/* Counting into histograms, and the codebooks of `count` of them. Histograms start as zeros, and they are the
 * caller's. item_count 0: the workspace of a call without an array of items. */
size_t gw_cuda_histogram_workspace_size(uint32_t item_count);
void gw_cuda_launches_histogram(gw_cuda_launches *launches, gw_gcomp_histogram_params *params,
                                uint64_t value_total, const gw_cuda_shape *shape, void *workspace);
void gw_cuda_launches_codebook_build(gw_cuda_launches *launches, gw_gcomp_codebook_build_params *params,
                                     uint32_t count);

/* The part of a handle that gcomp_device.cuh needs, which has an installed codebook that encodes; map may be
 * NULL. */
void gw_cuda_device_codec_fill(gw_device_codec *out, const gw_codec *codec, const gw_gcomp_map *map,
                               const gw_cuda_gcomp_key *key);

/* Shared memory with which every chunk of the codec can be decoded without anything else. */
uint32_t gw_cuda_decode_shared_size(const gw_cuda_codec *codec);

#endif
