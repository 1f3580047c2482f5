/*
 * A fake libcuda.so.1: device memory is host memory, and kernels run on the CPU through the shim.
 * What is put on a stream runs when the stream (or the context) is waited for, not before, so that a call
 * that waits or reads results too early shows. For one thread at a time. While a stream is captured, every
 * call that a capture forbids fails. With GW_FAKE_SKIP in the environment kernels do nothing, and what is
 * left of a program's time is the host's.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_FAKE_DRIVER_H
#define GW_FAKE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Found by dlsym(gw_fake_control_of()); set before the call that it is for. */
typedef struct gw_fake_control {
    int init_result; /* of cuInit */
    int version;     /* cuDriverGetVersion */
    int device_count;
    int has_context; /* a context is current */
    int multiprocessors;
    int arch;            /* compute capability times 10: 80, 90, 100 */
    int shared_size_max; /* bytes of dynamic shared memory that a block may ask for */
    int load_result;     /* of cuModuleLoadData */
    int skips_work;      /* nothing that is put on a stream does anything */
    void (*on_launch)(const char *kernel, uint32_t grid, uint32_t block, uint32_t shared_size);
    long fail_at; /* the call of this number (from 1) fails with fail_code; 0: none */
    int fail_code;
    long calls;    /* since it was last set to 0 */
    long launches; /* kernels put on streams */
    long syncs;    /* calls that wait */
    long modules;  /* loaded now */
    size_t bytes;  /* allocated now */
    char last_kernel[64];
} gw_fake_control;

typedef gw_fake_control *gw_fake_control_fn(void);

#endif
