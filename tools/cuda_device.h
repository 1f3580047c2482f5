/*
 * A device for programs that are not of the CUDA runtime: its primary context, memory, copies, streams,
 * graphs and events, through the driver that is opened at run time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_DEVICE_H
#define GW_CUDA_DEVICE_H

#include "gradwire/cuda.h"

typedef struct cuda_device {
    void *library;
    void *context;
    int ordinal;
    char name[256];
    uint32_t error; /* code of the driver call that failed last */
    struct {
        int (*init)(unsigned);
        int (*device_get)(int *, int);
        int (*device_name)(char *, int, int);
        int (*retain)(void **, int);
        int (*release)(int);
        int (*set_current)(void *);
        int (*synchronize)(void);
        int (*alloc)(uint64_t *, size_t);
        int (*free)(uint64_t);
        int (*to_device)(uint64_t, const void *, size_t, void *);
        int (*to_host)(void *, uint64_t, size_t, void *);
        int (*on_device)(uint64_t, uint64_t, size_t, void *);
        int (*fill)(uint64_t, unsigned, size_t, void *);
        int (*stream_create)(void **, unsigned);
        int (*stream_destroy)(void *);
        int (*capture_begin)(void *, int);
        int (*capture_end)(void *, void **);
        int (*graph_instantiate)(void **, void *, unsigned long long);
        int (*graph_launch)(void *, void *);
        int (*graph_destroy)(void *);
        int (*graph_exec_destroy)(void *);
        int (*event_create)(void **, unsigned);
        int (*event_record)(void *, void *);
        int (*event_wait)(void *);
        int (*event_time)(float *, void *, void *);
        int (*event_destroy)(void *);
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
