/*
 * A device for programs that are not of the CUDA runtime: its primary context, memory, copies, streams,
 * graphs and events, through the driver that is opened at run time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_DEVICE_H
#define GW_CUDA_DEVICE_H

#include "gradwire/cuda.h"

/* The driver's functions in use: field of cuda_device.call, name in libcuda, arguments. */
#define CUDA_DEVICE_CALLS(CALL)                                                                              \
    CALL(init, "cuInit", (unsigned))                                                                         \
    CALL(device_get, "cuDeviceGet", (int *, int))                                                            \
    CALL(device_name, "cuDeviceGetName", (char *, int, int))                                                 \
    CALL(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                 \
    CALL(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                     \
    CALL(set_current, "cuCtxSetCurrent", (void *))                                                           \
    CALL(synchronize, "cuCtxSynchronize", (void))                                                            \
    CALL(alloc, "cuMemAlloc_v2", (uint64_t *, size_t))                                                       \
    CALL(free, "cuMemFree_v2", (uint64_t))                                                                   \
    CALL(to_device, "cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, void *))                        \
    CALL(to_host, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *))                                \
    CALL(on_device, "cuMemcpyDtoDAsync_v2", (uint64_t, uint64_t, size_t, void *))                            \
    CALL(fill, "cuMemsetD32Async", (uint64_t, unsigned, size_t, void *))                                     \
    CALL(stream_create, "cuStreamCreate", (void **, unsigned))                                               \
    CALL(stream_destroy, "cuStreamDestroy_v2", (void *))                                                     \
    CALL(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                                            \
    CALL(capture_end, "cuStreamEndCapture", (void *, void **))                                               \
    CALL(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))            \
    CALL(graph_launch, "cuGraphLaunch", (void *, void *))                                                    \
    CALL(graph_destroy, "cuGraphDestroy", (void *))                                                          \
    CALL(graph_exec_destroy, "cuGraphExecDestroy", (void *))                                                 \
    CALL(event_create, "cuEventCreate", (void **, unsigned))                                                 \
    CALL(event_record, "cuEventRecord", (void *, void *))                                                    \
    CALL(event_wait, "cuEventSynchronize", (void *))                                                         \
    CALL(event_time, "cuEventElapsedTime", (float *, void *, void *))                                        \
    CALL(event_destroy, "cuEventDestroy_v2", (void *))

typedef struct cuda_device {
    void *library;
    void *context;
    int ordinal;
    char name[256];
    uint32_t error; /* code of the driver call that failed last */
    struct {
#define CUDA_DEVICE_FIELD(field, name, arguments) int(*field) arguments;
        CUDA_DEVICE_CALLS(CUDA_DEVICE_FIELD)
#undef CUDA_DEVICE_FIELD
    } call;
} cuda_device;

/* Opens device `ordinal` and makes its primary context current. GW_OK, GW_ERR_NO_DRIVER, GW_ERR_NO_DEVICE,
 * GW_ERR_DEVICE. */
gw_status cuda_device_open(cuda_device *device, int ordinal);
void cuda_device_close(cuda_device *device);

/* Device memory of `size` bytes with a copy of src (NULL: unspecified), NULL if there is none left. Copies
 * wait. */
void *cuda_device_take(cuda_device *device, const void *src, size_t size);
void cuda_device_give(cuda_device *device, void *memory);
int cuda_device_put(cuda_device *device, void *dst, const void *src, size_t size);
int cuda_device_get(cuda_device *device, void *dst, const void *src, size_t size);

/* 0 if all work so far has ended well. */
int cuda_device_wait(cuda_device *device);

#endif
