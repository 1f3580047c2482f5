/*
 * The CUDA driver, opened at run time. The few types and numbers of its interface that are needed stand here,
 * so that the host side builds without any CUDA header.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_DRIVER_H
#define GW_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "gradwire/gradwire.h"

typedef uint64_t gw_cu_address; /* CUdeviceptr */

/* CUresult, CUdevice_attribute, CUfunction_attribute: the values that are looked at. */
enum {
    GW_CU_SUCCESS = 0,
    GW_CU_NO_DEVICE = 100,
    GW_CU_INVALID_IMAGE = 200,
    GW_CU_NO_BINARY = 209,
    GW_CU_INVALID_PTX = 218,
    GW_CU_NO_JIT = 221,
    GW_CU_PTX_VERSION = 222,
    GW_CU_JIT_DISABLED = 223,
    GW_CU_VERSION_MIN = 12000,

    GW_CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    GW_CU_ATTRIBUTE_MAJOR = 75,
    GW_CU_ATTRIBUTE_MINOR = 76,
    GW_CU_ATTRIBUTE_SHARED_OPTIN = 97,
    GW_CU_FUNCTION_SHARED_SIZE = 1,
    GW_CU_FUNCTION_DYNAMIC_SHARED_MAX = 8
};

typedef struct gw_driver {
    void *library; /* NULL: not open */
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_count)(int *count);
    int (*context_current)(void **context);
    int (*context_device)(int *device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*module_load)(void **module, const void *image);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_attribute)(int *value, int attribute, void *function);
    int (*function_set)(void *function, int attribute, int value);
    int (*clear)(gw_cu_address dst, unsigned value, size_t words, void *stream);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_size, void *stream, void **params,
                  void **extra);
} gw_driver;

/* GW_OK, or GW_ERR_NO_DRIVER if there is no library or it lacks a function; then nothing stays open. In a
 * build without CUDA GW_ERR_NO_CUDA_BUILD. */
gw_status gw_driver_open(gw_driver *driver);
void gw_driver_close(gw_driver *driver);

#endif
