/*
 * `--backend cuda`: encode and decode of whole tensors on the first CUDA device. Data goes there and back for
 * every call; a check that the device makes the same bytes as the CPU, not a benchmark.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_RUN_H
#define GW_CUDA_RUN_H

#include "gradwire/gcomp.h"

/* Opens the device, once; GW_OK, or why there is none. From then on gw_cuda_run_is_on(). */
gw_status gw_cuda_run_open(void);
int gw_cuda_run_is_on(void);

/* As gw_gcomp_encode() and gw_gcomp_decode(), with host memory. GW_ERR_DEVICE where the device fails or is
 * too small. */
gw_status gw_cuda_run_encode(const gw_gcomp *codec, const gw_gcomp_source *source, void *dst,
                             size_t dst_capacity, size_t *dst_size);
gw_status gw_cuda_run_decode(const gw_gcomp *codec, const void *src, size_t src_size, const gw_gcomp_map *map,
                             void *dst, uint64_t dst_capacity, uint64_t *len, uint64_t *bad_chunk);

#endif
