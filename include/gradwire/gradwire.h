/*
 * gradwire: gradients on the wire.
 *
 * This header holds what every part of the library shares: status codes, data types, backends, version.
 *   gcomp.h       near-lossless compression of gradients (GCOMP)
 *   thc.h         homomorphic compression (THC): compressed gradients are summed as they are
 *   classic.h     Top-k, signs, QSGD and other classic compressors
 *   cuda.h        GCOMP and THC on NVIDIA GPUs (installed with GW_INSTALL_CUDA)
 *   collective.h  the steps of a compressed all-reduce
 *   runtime.h     runs these steps in threads, in the right order (library gradwire-runtime)
 *   plan.h        chooses which gradients to fuse, which to compress and how to send them (library
 *                 gradwire-plan)
 *   abi.h         layout of the structs, for callers that cannot include these headers
 *
 * Rules that hold everywhere (docs/numerics.md and docs/format.md have the details):
 *   - The caller owns all memory. No function allocates, starts a thread, prints, or aborts. The only
 *     exception is runtime.h, which allocates and starts threads.
 *   - `len` counts elements, `size` counts bytes, `index` starts at 0. Data may have any alignment.
 *   - Structs that a call reads may get new fields in later versions. Zero then means what the library did
 *     before. So set such a struct to zeros, then fill it in (in C, designated initializers do both).
 *   - A function reads and writes no byte outside the ranges that it is given.
 *   - Buffers of one call must not overlap unless a comment says so.
 *   - Functions may be called from several threads at once if they write to different objects.
 *   - The same input gives the same bytes, values and status on every backend.
 *
 * Words used in all headers: a frame is one encoded message. A rank is a participant of a collective; N is
 * their number. A bucket is a buffer with the gradients of several parameters. A handle is a checked set of
 * options with the kernels (hot loops) of this machine.
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

/* Version of the library. CMake reads these three lines. The byte format has a version of its own
 * (docs/format.md section 2). */
#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0

/* Most bytes of stack that a call of gcomp.h, thc.h, classic.h or collective.h needs, with any backends, in
 * an optimised build (docs/limits.md has figures). Threads of musl have 128 KiB by default. */
#define GW_STACK_SIZE_MAX 65536u

/* GW_API marks public symbols: visible in a shared library that hides everything else. */
#if defined(_WIN32)
#define GW_API
#elif defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

/* GW_MUST_CHECK: it is a bug to ignore the returned status. Compilers that can warn do. */
#if defined(__GNUC__)
#define GW_MUST_CHECK __attribute__((warn_unused_result))
#else
#define GW_MUST_CHECK
#endif

/*
 * Status of a call. The numbers are part of the ABI and never change meaning; gaps leave room for new ones in
 * each group.
 *
 * What to do, by group:
 *   - the caller's side: a mistake in the program, or a buffer too small for the bound that the header names.
 *     gw_status_message() says which
 *   - bytes, structure: nothing was written. Drop the message. GW_ERR_SHORT: more bytes are needed.
 *     GW_ERR_LIMIT: raise the limit if the sender is trusted. GW_ERR_TABLE, GW_ERR_MAP: sender and receiver
 *     do not share the codebook or map; gw_gcomp_frame_parse() says what to do
 *   - bytes, content: the message was damaged, or made by a faulty encoder. Ask for it again
 *   - values and aggregation: see the function
 *   - devices: use the CPU's functions, which give the same bytes
 *   - planners: the input cannot be planned; gw_plan_fault says where and why
 *
 * If several apply, the order is: arguments, then the frame header from left to right, codebooks, directory,
 * capacity of the output, then the lowest bad chunk and within it the order in which docs/format.md lists the
 * checks. All backends report the same status and the same chunk.
 */
typedef enum gw_status {
    GW_OK = 0,

    /* The caller's side. */
    GW_ERR_ARG = 1,       /* an argument is NULL or out of range, or buffers overlap */
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
    GW_ERR_MAP = 23,         /* the frame was made with another precision map than the receiver's */
    GW_ERR_TRAILING = 24,    /* bytes follow the frame */

    /* The bytes: content. The output of the bad chunk is zero-filled, accumulators are untouched. */
    GW_ERR_CORRUPT = 32,  /* a chunk breaks a rule of docs/format.md */
    GW_ERR_CHECKSUM = 33, /* CRC32C mismatch */

    /* Values and aggregation. */
    GW_ERR_NONFINITE = 48, /* a value is NaN or infinite, and the options refuse that */
    GW_ERR_ROUND = 49,     /* a packet of a past or unknown round (training step), or of another job */
    GW_ERR_DUP = 50,       /* a contributor is already part of the sum */
    GW_ERR_OVERFLOW = 51,  /* the sum could exceed the integers (lanes) that hold it */
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

/* Scratch memory of one call. Its contents do not matter before and after. Concurrent calls need one each.
 * Any alignment, unless the function names one. */
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

/* Element types. The numbers are part of the frame formats. Elements in frames are little-endian. */
typedef enum gw_dtype {
    GW_FP32 = 1, /* IEEE binary32 */
    GW_BF16 = 2, /* the upper half of binary32 */
    GW_FP16 = 3  /* IEEE binary16 */
} gw_dtype;

/* Bytes of one element, 0 for an unknown dtype. */
GW_API size_t gw_dtype_size(gw_dtype dtype);

/*
 * Size of the frame that begins at src, from its first 32 bytes. It works for frames of every codec and every
 * version of the format, also for those that this library cannot decode: a receiver can skip them, and frames
 * may follow one another (docs/format.md section 2). gw_gcomp_frame_peek(), gw_thc_frame_peek() and
 * gw_classic_frame_peek() say more about frames that the library knows.
 *
 *   - src_size: bytes at hand; 32 are enough. The frame may be longer than that
 *   - the size is what the sender wrote. Limit it before you allocate so many bytes
 *   - GW_OK; GW_ERR_ARG; GW_ERR_SHORT (fewer than 32 bytes), GW_ERR_MAGIC, GW_ERR_HEADER (a size below 32):
 *     *frame_size is 0
 */
GW_API GW_MUST_CHECK gw_status gw_frame_size(const void *src, size_t src_size, uint64_t *frame_size);

/* A backend is an instruction set with kernels of its own; a set of backends is a bit mask. The scalar
 * backend is always present and is the specification: the others replace its kernels by faster ones with
 * identical results. */
typedef enum gw_backend {
    GW_BACKEND_SCALAR = 1u << 0,
    GW_BACKEND_AVX2 = 1u << 1,   /* AVX2 and BMI2 */
    GW_BACKEND_AVX512 = 1u << 2, /* F, BW, DQ, VL, VBMI, VBMI2 */
    GW_BACKEND_NEON = 1u << 3,
    GW_BACKEND_CUDA = 1u << 4
} gw_backend;

#define GW_BACKEND_ALL 0xffffffffu

/* The CPU backends that this build contains and this machine can run; bit GW_BACKEND_SCALAR is always set.
 * The machine is examined once per process (atomically); the result never changes. */
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
