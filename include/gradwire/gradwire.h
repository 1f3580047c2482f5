/*
 * gradwire: gradients on the wire.
 *
 * This header holds what every part of the library shares: status codes, data types, backends, version.
 *   gcomp.h  near-lossless gradient compression (GCOMP)
 *   thc.h    homomorphic compression (THC)
 *   classic.h  Top-k, signs, QSGD and other classic compressors
 *   cuda.h   both codecs on NVIDIA GPUs
 *   collective.h  steps of a compressed all-reduce
 *   runtime.h  the order of these steps, and threads for them: a library of its own
 *   plan.h   planners: what to fuse, compress and send how (a library of its own, gradwire-plan)
 *   abi.h    layout of the structs, for callers that cannot include these headers
 *
 * Rules that hold everywhere (docs/numerics.md and docs/format.md have the details):
 *   - The caller owns all memory. No function allocates, starts a thread, prints, or aborts; those of
 * runtime.h do the first two.
 *   - `len` counts elements, `size` counts bytes, `index` starts at 0. Data may have any alignment.
 *   - Structs that a call reads may grow fields, for which zero means what the library did without them: set
 *     such a struct to zeros, then fill in (in C, designated initializers do both).
 *   - Every read and write stays inside the ranges a function is given, to the byte.
 *   - Buffers of one call must not overlap unless the function says otherwise.
 *   - Functions are safe to call from several threads at once as long as the objects that they write are
 *     distinct.
 *   - The same input gives the same bytes, values and status on every backend.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GRADWIRE_GRADWIRE_H
#define GRADWIRE_GRADWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Library version. CMake reads these three lines; the byte format has its own version (docs/format.md). */
#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0

/* Stack that a call of gcomp.h, thc.h, classic.h or collective.h needs at most, with any backends, in a
 * library built with optimisation (docs/limits.md has figures). Threads of musl have 128 KiB by default. */
#define GW_STACK_SIZE_MAX 65536u

/* GW_API marks public symbols: visible in a shared library that hides everything else. */
#if defined(_WIN32)
#define GW_API
#elif defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

/* GW_MUST_CHECK: ignoring the returned status is a bug; compilers that can say so do. */
#if defined(__GNUC__)
#define GW_MUST_CHECK __attribute__((warn_unused_result))
#else
#define GW_MUST_CHECK
#endif

/*
 * Status of a call. The numbers are part of the ABI and never change meaning; gaps leave room inside a group.
 *
 * Precedence when several apply: arguments, then the frame header from left to right, codebooks, directory,
 * capacity of the output, then the lowest bad chunk and within it the order in which docs/format.md lists the
 * checks. All backends report the same status and the same chunk.
 */
typedef enum gw_status {
    GW_OK = 0,

    /* The caller's side. */
    GW_ERR_ARG = 1,       /* an argument is NULL, out of range, or buffers overlap */
    GW_ERR_OPTION = 2,    /* an option, or a combination of options, is not supported */
    GW_ERR_DST = 3,       /* the output buffer is too small; nothing was written to it */
    GW_ERR_WORKSPACE = 4, /* the workspace is too small */
    GW_ERR_STATE = 5,     /* the object was not initialised, or is in the wrong state for this call */

    /* The bytes: structure. Nothing was written to the output. */
    GW_ERR_SHORT = 16,       /* input ends before the structure that it announces */
    GW_ERR_MAGIC = 17,       /* not a gradwire frame */
    GW_ERR_VERSION = 18,     /* a format version that this library does not read */
    GW_ERR_UNSUPPORTED = 19, /* unknown codec, dtype or flag */
    GW_ERR_HEADER = 20,      /* a header or directory field breaks a rule of docs/format.md */
    GW_ERR_LIMIT = 21,       /* a count exceeds the caller's limit or this machine's size_t */
    GW_ERR_TABLE = 22,       /* a codebook or table is invalid, or a frame's codebook is not installed */
    GW_ERR_MAP = 23,         /* a derived frame was made with another precision map than the receiver's */
    GW_ERR_TRAILING = 24,    /* bytes follow the frame */

    /* The bytes: content. The output of the bad chunk is zero-filled, accumulators are untouched. */
    GW_ERR_CORRUPT = 32,  /* a chunk breaks a rule of docs/format.md */
    GW_ERR_CHECKSUM = 33, /* CRC32C mismatch */

    /* Values and aggregation. */
    GW_ERR_NONFINITE = 48, /* NaN or infinity where the codec's policy refuses it */
    GW_ERR_ROUND = 49,     /* a packet of a past or unknown round, or of another job */
    GW_ERR_DUP = 50,       /* a contributor is already part of the sum */
    GW_ERR_OVERFLOW = 51,  /* the sum could exceed its lanes */
    GW_ERR_MISMATCH = 52,  /* a frame or packet of other options, blocks or norms than the sum it is for */

    /* Devices. */
    GW_ERR_NO_CUDA_BUILD = 64, /* the library was built without CUDA */
    GW_ERR_NO_DRIVER = 65,     /* no CUDA driver on this machine */
    GW_ERR_NO_DEVICE = 66,     /* a driver, but no device */
    GW_ERR_NO_IMAGE = 67,      /* no kernel image for this device's architecture */
    GW_ERR_DEVICE = 68,        /* the driver reported an error */

    /* Planners (plan.h). */
    GW_ERR_EMPTY = 80,     /* no tensor, no method, or no message */
    GW_ERR_NEGATIVE = 81,  /* a time, size or slope is negative */
    GW_ERR_TICKS = 82,     /* a time, size or whole schedule exceeds the planner's range (GW_PLAN_TICK_MAX) */
    GW_ERR_CURVE = 83,     /* a cost table does not ascend */
    GW_ERR_NAME = 84,      /* two tensors share a name */
    GW_ERR_PLAN = 85,      /* the plan does not fit the problem: gap, overlap, unknown or forbidden method */
    GW_ERR_INFEASIBLE = 86 /* the constraints leave no plan */
} gw_status;

/* Short lower-case name of a status ("ok", "corrupt", ...), "unknown" for any other number. Static
 * storage. */
GW_API const char *gw_status_name(gw_status status);

/* One sentence that says what the status means. Static storage. */
GW_API const char *gw_status_message(gw_status status);

/* Version of the library as one number, major * 10000 + minor * 100 + patch, and as text. Static storage. */
GW_API uint32_t gw_version(void);
GW_API const char *gw_version_string(void);

/* Scratch memory of one call, contents irrelevant before and after. One per thread. Any alignment, unless the
 * function names one. */
typedef struct gw_workspace {
    void *data;
    size_t size;
} gw_workspace;

/* Bytes that a call writes. `data` and `capacity` are the caller's; the call sets `size`, 0 on failure. */
typedef struct gw_buffer {
    void *data;
    size_t capacity;
    size_t size;
} gw_buffer;

/* Element types on the wire. The numbers appear in frames. All are little-endian. */
typedef enum gw_dtype {
    GW_FP32 = 1, /* IEEE binary32 */
    GW_BF16 = 2, /* the upper half of binary32 */
    GW_FP16 = 3  /* IEEE binary16 */
} gw_dtype;

/* Bytes of one element, 0 for an unknown dtype. */
GW_API size_t gw_dtype_size(gw_dtype dtype);

/*
 * Backends. A set of backends is a bit mask. Scalar is always present and is the specification; the others
 * only replace kernels by faster ones with identical results.
 */
typedef enum gw_backend {
    GW_BACKEND_SCALAR = 1u << 0,
    GW_BACKEND_AVX2 = 1u << 1,   /* AVX2 and BMI2 */
    GW_BACKEND_AVX512 = 1u << 2, /* F, BW, DQ, VL, VBMI, VBMI2 */
    GW_BACKEND_NEON = 1u << 3,
    GW_BACKEND_CUDA = 1u << 4
} gw_backend;

#define GW_BACKEND_ALL 0xffffffffu

/* The CPU backends that this build contains and this machine can run; bit GW_BACKEND_SCALAR is always set.
 * Detection runs once per process (atomically) and is the same ever after. */
GW_API uint32_t gw_backends_available(void);

/* Name of one backend bit ("scalar", "avx2", ...), NULL for anything else; and back: 0 for an unknown
 * name. */
GW_API const char *gw_backend_name(uint32_t backend_bit);
GW_API uint32_t gw_backend_from_name(const char *name);

/*
 * CRC32C (Castagnoli, reflected polynomial 0x82f63b78, initial value and final xor 0xffffffff) of
 * src[0..size), continuing from `crc`, the CRC of the bytes before (0 for none). src may be NULL when size is
 * 0.
 */
GW_API uint32_t gw_crc32c(uint32_t crc, const void *src, size_t size);

#ifdef __cplusplus
}
#endif

#endif
