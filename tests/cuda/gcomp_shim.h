/*
 * GCOMP operations in the shim, from host arguments: launches, workspace of exactly the size that the
 * launches names, launches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_GCOMP_SHIM_H
#define GW_GCOMP_SHIM_H

#include "cuda/gcomp_launches.h"
#include "shim_launches.h"

typedef struct gcomp_shim_source {
    const void *frame;
    size_t size;
    const gw_gcomp_map *map;
    const void *addend; /* mode SUM */
    float scale;
} gcomp_shim_source;

/* The frame is copied to aligned memory of its size. */
gw_cuda_result gcomp_shim_decode(const gw_gcomp *codec, const gcomp_shim_source *source, uint32_t mode,
                                 void *dst, uint64_t capacity, uint32_t shared_size_max);

/* gw_gcomp_decode_add_frames(). */
gw_cuda_result gcomp_shim_add_frames(const gw_gcomp *codec, const gcomp_shim_source *frames, uint32_t count,
                                     const gw_gcomp_target *target, uint32_t shared_size_max);

/* dst is copied from aligned memory of `capacity` bytes. */
gw_cuda_result gcomp_shim_encode(const gw_gcomp *codec, const gw_gcomp_source *source, void *dst,
                                 size_t capacity);

/* gw_gcomp_decode_add_encode(). */
gw_cuda_result gcomp_shim_hop(const gw_gcomp *codec, const void *frame, size_t frame_size,
                              const gw_gcomp_map *src_map, const gw_gcomp_source *source, void *dst,
                              size_t capacity);

/* Several sources, one call; results[i] belongs to sources[i], whose frame goes to dst[i] (capacity[i]
 * bytes). value_total: what
 * the host passes as value_total, UINT64_MAX: the sum. One map base, key and options for
 * all. */
void gcomp_shim_encode_batch(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                             void *const *dst, const size_t *capacity, gw_cuda_result *results,
                             uint64_t value_total);
void gcomp_shim_decode_batch(const gw_gcomp *codec, const gcomp_shim_source *sources, uint32_t count,
                             void *const *dst, const uint64_t *capacity, gw_cuda_result *results,
                             uint64_t value_total);

/* Where the tickets are that blocks draw chunks by: of the decode and of the encode. */
typedef struct gcomp_shim_tickets {
    const uint64_t *decode, *encode;
} gcomp_shim_tickets;

/* Hops: frame in[i] + sources[i] -> dst[i] (capacity[i] bytes). tickets may be NULL; it is filled in before
 * anything runs. */
void gcomp_shim_hop_batch(const gw_gcomp *codec, const gcomp_shim_source *in, const gw_gcomp_source *sources,
                          uint32_t count, void *const *dst, const size_t *capacity, gw_cuda_result *results,
                          uint64_t value_total, gcomp_shim_tickets *tickets);

/* All sources added to one histogram by one call. */
void gcomp_shim_histogram_batch(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                                gw_cuda_gcomp_histogram *histogram, gw_cuda_result *results,
                                const uint64_t **ticket);

/* The codebook of the histogram of all sources, added in order. */
gw_cuda_result gcomp_shim_codebook(const gw_gcomp *codec, const gw_gcomp_source *sources, uint32_t count,
                                   uint8_t *codebook);

/* For tests in C++, which cannot include the library's inside. */
void gcomp_shim_device_codec(gw_device_codec *out, const gw_gcomp *codec, const gw_gcomp_map *map,
                             const gw_cuda_gcomp_key *key);
uint32_t gcomp_shim_decode_shared_size(const gw_device_codec *codec);

#endif
