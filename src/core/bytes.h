/*
 * Little-endian loads and stores at any alignment, rounding of sizes, and the three memory functions that the
 * library may call. A firmware build without <string.h> defines GW_MEMCPY, GW_MEMMOVE and GW_MEMSET itself.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BYTES_H
#define GW_BYTES_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(GW_MEMCPY)
#include <string.h>
#define GW_MEMCPY  memcpy
#define GW_MEMMOVE memmove
#define GW_MEMSET  memset
#endif

/* Small functions that CUDA kernels share with the CPU. */
#if defined(__CUDACC__)
#define GW_INLINE static __host__ __device__ __forceinline__
#else
#define GW_INLINE static inline
#endif

/* A loop that is instantiated with constants: useless unless the compiler inlines it. */
#if defined(__GNUC__)
#define GW_TEMPLATE static inline __attribute__((always_inline))
#else
#define GW_TEMPLATE static inline
#endif

/* Where the machine is little-endian a load is a copy; elsewhere it is assembled from bytes. */
#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

#define GW_IS_LITTLE_ENDIAN 1

static inline uint16_t gw_load16(const void *src)
{
    uint16_t x;
    GW_MEMCPY(&x, src, sizeof x);
    return x;
}

static inline uint32_t gw_load32(const void *src)
{
    uint32_t x;
    GW_MEMCPY(&x, src, sizeof x);
    return x;
}

static inline uint64_t gw_load64(const void *src)
{
    uint64_t x;
    GW_MEMCPY(&x, src, sizeof x);
    return x;
}

static inline void gw_store16(void *dst, uint16_t x)
{
    GW_MEMCPY(dst, &x, sizeof x);
}

static inline void gw_store32(void *dst, uint32_t x)
{
    GW_MEMCPY(dst, &x, sizeof x);
}

static inline void gw_store64(void *dst, uint64_t x)
{
    GW_MEMCPY(dst, &x, sizeof x);
}

#else

#define GW_IS_LITTLE_ENDIAN 0

static inline uint16_t gw_load16(const void *src)
{
    const uint8_t *p = (const uint8_t *)src;
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}

static inline uint32_t gw_load32(const void *src)
{
    const uint8_t *p = (const uint8_t *)src;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gw_load64(const void *src)
{
    const uint8_t *p = (const uint8_t *)src;
    return (uint64_t)gw_load32(p) | (uint64_t)gw_load32(p + 4) << 32;
}

static inline void gw_store16(void *dst, uint16_t x)
{
    uint8_t *p = (uint8_t *)dst;
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static inline void gw_store32(void *dst, uint32_t x)
{
    uint8_t *p = (uint8_t *)dst;
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
    p[2] = (uint8_t)(x >> 16);
    p[3] = (uint8_t)(x >> 24);
}

static inline void gw_store64(void *dst, uint64_t x)
{
    gw_store32(dst, (uint32_t)x);
    gw_store32((uint8_t *)dst + 4, (uint32_t)(x >> 32));
}

#endif

static inline size_t gw_round4(size_t x)
{
    return (x + 3) & ~(size_t)3;
}

static inline size_t gw_round16(size_t x)
{
    return (x + 15) & ~(size_t)15;
}

/* Bytes of a run of `len` numbers of `width` bits, padded as docs/format.md section 5.2 requires. */
static inline size_t gw_run_size(size_t len, unsigned width)
{
    return (len * width + 31) / 32 * 4;
}

static inline int gw_is_zero(const uint8_t *p, size_t size)
{
    uint32_t any = 0;
    for (size_t i = 0; i < size; i++) {
        any |= p[i];
    }
    return any == 0;
}

/* Chunks or blocks of 2^log2 elements, the last of which may be shorter. */
static inline uint64_t gw_unit_count(uint64_t len, unsigned log2)
{
    return (len >> log2) + ((len & (((uint64_t)1 << log2) - 1)) != 0);
}

/* 1 if the two ranges share a byte. Ranges do not wrap around the address space. */
static inline int gw_is_overlapping(const void *a, size_t a_size, const void *b, size_t b_size)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_size != 0 && b_size != 0 && (x < y ? y - x < a_size : x - y < b_size);
}

static inline uint32_t gw_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline size_t gw_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The largest power of two of at most n, at least 1. */
static inline size_t gw_power_of_two(size_t n)
{
    size_t power = 1;
    while (power <= n / 2) {
        power *= 2;
    }
    return power;
}

static inline uint64_t gw_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Results are the same on every machine only if float arithmetic is that of IEEE binary32 and nothing
 * else. */
#if defined(__FAST_MATH__) && !defined(__CUDACC__)
#error "gradwire needs IEEE arithmetic: compile without -ffast-math and -Ofast"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error                                                                                                       \
    "gradwire needs float arithmetic in float: -msse2 -mfpmath=sse on i386, -fexcess-precision=fast on s390x"
#endif

/* Floats are passed as bits only, so that no load or store through a floating-point register can quiet a
 * NaN. */
GW_INLINE uint32_t gw_bits_from_float(float x)
{
    uint32_t bits;
    GW_MEMCPY(&bits, &x, 4);
    return bits;
}

GW_INLINE float gw_float_from_bits(uint32_t bits)
{
    float x;
    GW_MEMCPY(&x, &bits, 4);
    return x;
}

#endif
