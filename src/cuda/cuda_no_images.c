/*
 * The list of images of a build without CUDA: none.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/cuda_handle.h"

#if !defined(GW_HAVE_CUDA)
const gw_cuda_image gw_cuda_images[] = {{NULL, NULL}};
#endif
