/*
 * Inside of a gw_cuda: the driver, one module per image, one function per kernel.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_HANDLE_H
#define GW_CUDA_HANDLE_H

#include "cuda/driver.h"
#include "cuda/launch.h"
#include "gradwire/cuda.h"

#define GW_CUDA_TAG 0x41445543u /* "CUDA" */

#define GW_CUDA_IMAGES_MAX 16

/* A fat binary in the library: image i of GW_CUDA_IMAGE_COUNT, made from src/cuda/<name>.cu. */
typedef struct gw_cuda_image {
    const char *name;
    const void *bytes;
} gw_cuda_image;

/* Written by the build; the last entry has no name. Empty in a build without CUDA. */
extern const gw_cuda_image gw_cuda_images[];

typedef struct gw_cuda_state {
    uint32_t tag;
    _Atomic uint32_t error; /* CUresult of the last failure in any thread */
    gw_cuda_info info;
    gw_driver driver;
    void *module[GW_CUDA_IMAGES_MAX];
    void *function[GW_CUDA_KERNEL_COUNT];
} gw_cuda_state;

_Static_assert(sizeof(gw_cuda_state) <= sizeof(gw_cuda), "gw_cuda has room for the state");

/* The state inside the public type, NULL if it was not initialised. */
gw_cuda_state *gw_cuda_state_of(gw_cuda *cuda);

/* Puts launches on the stream: clears, then launches. `workspace` may be NULL if nothing is to be cleared.
 * GW_OK or GW_ERR_DEVICE; after a failure the kernels before it stay on the stream. */
gw_status gw_cuda_submit(gw_cuda_state *state, const gw_cuda_launches *launches, void *workspace,
                         void *stream);

/* The same of one kernel. */
gw_status gw_cuda_run(gw_cuda_state *state, const gw_cuda_launch *launch, void *stream);

/* Zeroes a result on the stream. */
gw_status gw_cuda_clear(gw_cuda_state *state, void *dst, size_t size, void *stream);

static inline int gw_cuda_is_aligned(const void *p, uintptr_t alignment)
{
    return ((uintptr_t)p & (alignment - 1)) == 0;
}

#endif
