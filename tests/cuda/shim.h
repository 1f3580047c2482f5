/*
 * CUDA on a CPU, for tests: a kernel compiled as C++ runs with one fiber for every thread of a block and
 * several blocks at once. Which fiber goes on after a collective, an atomic, or a wait for another block is
 * drawn at random, so that a missing barrier shows as a wrong result, and address and undefined-behaviour
 * sanitizers see every access.
 *
 * A collective that not all threads of its warp or block reach, or that meets another one there, ends the
 * program with a message, and so does a block that waits forever, and an access through a gw_place outside of
 * the block's shared memory.
 *
 * Shared memory is filled with a pattern before a block starts. Blocks start in random order. Not here:
 * memory order weaker than sequential, races between plain accesses of one step (shim_races.cpp finds those
 * in shared memory), bank conflicts, time.
 *
 * C++17. SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SHIM_H
#define GW_SHIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/half.h"

/* ---- launch -------------------------------------------------------------------------------------------- */

typedef void gw_shim_run(const void *params);

typedef struct gw_shim_kernel {
    const char *name, *image;
    size_t params_size;
    gw_shim_run *run;
} gw_shim_kernel;

#ifdef __cplusplus
extern "C" {
#endif

/* All kernels of src/cuda, by gw_cuda_kernel: shim_kernels.cpp. */
extern const gw_shim_kernel gw_shim_kernels[];

/* Runs a grid. At most `resident` blocks are under way at a time (0: 3). */
void gw_shim_launch(gw_shim_run *run, const void *params, uint32_t grid, uint32_t block, size_t shared_size,
                    uint32_t resident);

/* Seed of the order of everything, from now on. */
void gw_shim_seed(uint64_t seed);

/* Called instead of ending the program when a kernel misuses a collective or waits forever; for tests of
 * the shim. It must not return. */
extern void (*gw_shim_on_error)(const char *message);

/* Called when a block has added to a 64-bit counter, with what it found there; for tests of who takes what.
 * NULL: not wanted. */
extern void (*gw_shim_on_add64)(const uint64_t *counter, uint64_t found, uint32_t block);

#ifdef __cplusplus
}

#define GW_KERNEL(name, params, threads, blocks)                                                             \
    static void name(const params &p);                                                                       \
    void name##_run(const void *gw_p);                                                                       \
    void name##_run(const void *gw_p)                                                                        \
    {                                                                                                        \
        name(*(const params *)gw_p);                                                                         \
    }                                                                                                        \
    static void name(const params &p)
#define GW_DEVICE        static inline
#define GW_DEVICE_MEMBER inline
#define GW_HOST_DEVICE   static
#define GW_LOOKUP        static const
#define GW_UNROLL
#define GW_NO_UNROLL
#define GW_UNROLL_BY(n)

/* ---- built-ins ----------------------------------------------------------------------------------------- */

struct gw_shim_index {
    uint32_t x;
};
extern gw_shim_index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return uint2{x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

/* Rendezvous of a warp or block with a value of every thread; returns the values by lane, until the
 * caller's next one. */
enum gw_shim_operation { GW_SHIM_SYNC, GW_SHIM_SHUFFLE, GW_SHIM_VOTE, GW_SHIM_REDUCE, GW_SHIM_BLOCK_VOTE };
const uint64_t *gw_shim_meet_warp(gw_shim_operation operation, uint32_t mask, uint64_t value);
const uint64_t *gw_shim_meet_block(gw_shim_operation operation, uint64_t value);
uint32_t gw_shim_lanes(void);          /* of this warp that took part in its last meeting, as a mask */
uint32_t gw_shim_threads(void);        /* of the block */
bool gw_shim_is_gone(uint32_t thread); /* took no part in the block's last barrier */
void gw_shim_yield(void);              /* lets others go on, at random */
unsigned char *gw_shim_shared(void);
unsigned char *gw_shim_shared_at(uint32_t place, size_t size); /* checked */
uint32_t gw_shim_place_of(const void *p);

/* Copies that the running thread has begun and not waited for. */
void gw_shim_copy_begin(unsigned char *to, const void *from);
bool gw_shim_copy_next(unsigned char **to, const void **from);

/* For the check of races (shim_races.cpp): the shared memory of the running thread's block,
 * whether its accesses are parts of an atomic operation, and an access at the code address `where`. */
extern unsigned char *gw_shim_shared_begin;
extern size_t gw_shim_shared_size;
extern volatile bool gw_shim_is_atomic; /* stores to it must stay where they are */
void gw_shim_note(const void *p, size_t size, bool is_write, const void *where);

#define GW_SHARED(type) (*(type *)(void *)gw_shim_shared())

static inline void __syncthreads(void)
{
    gw_shim_meet_block(GW_SHIM_SYNC, 0);
}

static inline int __syncthreads_or(int x)
{
    const uint64_t *all = gw_shim_meet_block(GW_SHIM_BLOCK_VOTE, x != 0);
    int any = 0;
    for (uint32_t i = 0; i < gw_shim_threads(); i++) {
        any |= all[i] != 0 && !gw_shim_is_gone(i);
    }
    return any;
}

static inline int __syncthreads_count(int x)
{
    const uint64_t *all = gw_shim_meet_block(GW_SHIM_BLOCK_VOTE, x != 0);
    int count = 0;
    for (uint32_t i = 0; i < gw_shim_threads(); i++) {
        count += all[i] != 0 && !gw_shim_is_gone(i);
    }
    return count;
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    gw_shim_meet_warp(GW_SHIM_SYNC, mask, 0);
}

template <typename T> static inline uint64_t gw_shim_pack(T x)
{
    static_assert(sizeof(T) <= 8, "a value of a collective has up to 64 bits");
    uint64_t packed = 0;
    memcpy(&packed, &x, sizeof x);
    return packed;
}

template <typename T> static inline T gw_shim_unpack(uint64_t packed)
{
    T x;
    memcpy(&x, &packed, sizeof x);
    return x;
}

template <typename T> static inline T __shfl_sync(uint32_t mask, T x, uint32_t from)
{
    return gw_shim_unpack<T>(gw_shim_meet_warp(GW_SHIM_SHUFFLE, mask, gw_shim_pack(x))[from & 31]);
}

template <typename T> static inline T __shfl_up_sync(uint32_t mask, T x, uint32_t by)
{
    const uint32_t lane = threadIdx.x & 31;
    return gw_shim_unpack<T>(
        gw_shim_meet_warp(GW_SHIM_SHUFFLE, mask, gw_shim_pack(x))[lane >= by ? lane - by : lane]);
}

template <typename T> static inline T __shfl_down_sync(uint32_t mask, T x, uint32_t by)
{
    const uint32_t lane = threadIdx.x & 31;
    return gw_shim_unpack<T>(
        gw_shim_meet_warp(GW_SHIM_SHUFFLE, mask, gw_shim_pack(x))[lane + by < 32 ? lane + by : lane]);
}

template <typename T> static inline T __shfl_xor_sync(uint32_t mask, T x, uint32_t with)
{
    const uint32_t lane = threadIdx.x & 31;
    return gw_shim_unpack<T>(gw_shim_meet_warp(GW_SHIM_SHUFFLE, mask, gw_shim_pack(x))[(lane ^ with) & 31]);
}

static inline uint32_t __ballot_sync(uint32_t mask, int x)
{
    const uint64_t *all = gw_shim_meet_warp(GW_SHIM_VOTE, mask, x != 0);
    uint32_t votes = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        votes |= (uint32_t)(all[lane] != 0) << lane;
    }
    return votes & gw_shim_lanes();
}

static inline int __any_sync(uint32_t mask, int x)
{
    return __ballot_sync(mask, x) != 0;
}

static inline int __all_sync(uint32_t mask, int x)
{
    return __ballot_sync(mask, x == 0) == 0;
}

template <typename F> static inline uint32_t gw_shim_reduce(uint32_t mask, uint32_t x, uint32_t start, F f)
{
    const uint64_t *all = gw_shim_meet_warp(GW_SHIM_REDUCE, mask, x);
    uint32_t result = start;
    for (uint32_t lane = 0; lane < 32; lane++) {
        result = (gw_shim_lanes() >> lane & 1) != 0 ? f(result, (uint32_t)all[lane]) : result;
    }
    return result;
}

static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t x)
{
    return gw_shim_reduce(mask, x, 0, [](uint32_t a, uint32_t b) {
        return a + b;
    });
}

static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t x)
{
    return gw_shim_reduce(mask, x, 0, [](uint32_t a, uint32_t b) {
        return a > b ? a : b;
    });
}

static inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t x)
{
    return gw_shim_reduce(mask, x, 0xffffffffu, [](uint32_t a, uint32_t b) {
        return a < b ? a : b;
    });
}

static inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t x)
{
    return gw_shim_reduce(mask, x, 0, [](uint32_t a, uint32_t b) {
        return a | b;
    });
}

static inline uint32_t __reduce_xor_sync(uint32_t mask, uint32_t x)
{
    return gw_shim_reduce(mask, x, 0, [](uint32_t a, uint32_t b) {
        return a ^ b;
    });
}

/* Atomics: what other threads do around them comes in any order, so each is a point where others may go
 * on. */
template <typename T, typename F> static inline T gw_shim_atomic(T *p, F f)
{
    gw_shim_yield();
    gw_shim_is_atomic = true;
    const T old = *p;
    *p = f(old);
    gw_shim_is_atomic = false;
    return old;
}

template <typename T> static inline T atomicAdd(T *p, T x)
{
    return gw_shim_atomic(p, [x](T old) {
        return (T)(old + x);
    });
}
template <typename T> static inline T atomicMin(T *p, T x)
{
    return gw_shim_atomic(p, [x](T old) {
        return old < x ? old : x;
    });
}
template <typename T> static inline T atomicMax(T *p, T x)
{
    return gw_shim_atomic(p, [x](T old) {
        return old > x ? old : x;
    });
}
template <typename T> static inline T atomicOr(T *p, T x)
{
    return gw_shim_atomic(p, [x](T old) {
        return (T)(old | x);
    });
}
template <typename T> static inline T atomicXor(T *p, T x)
{
    return gw_shim_atomic(p, [x](T old) {
        return (T)(old ^ x);
    });
}
template <typename T> static inline T atomicExch(T *p, T x)
{
    return gw_shim_atomic(p, [x](T) {
        return x;
    });
}
template <typename T> static inline T atomicCAS(T *p, T expected, T x)
{
    return gw_shim_atomic(p, [expected, x](T old) {
        return old == expected ? x : old;
    });
}

static inline void __threadfence(void)
{
    gw_shim_yield();
}
static inline void __threadfence_block(void)
{
    gw_shim_yield();
}
static inline void __nanosleep(uint32_t)
{
    gw_shim_yield();
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x)
{
    *p = x;
}

static inline uint32_t __popc(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}
static inline uint32_t __clz(uint32_t x)
{
    return x == 0 ? 32 : (uint32_t)__builtin_clz(x);
}
static inline uint32_t __ffs(uint32_t x)
{
    return (uint32_t)__builtin_ffs((int)x);
}
static inline uint32_t __brev(uint32_t x)
{
    uint32_t y = 0;
    for (int i = 0; i < 32; i++) {
        y |= (x >> i & 1) << (31 - i);
    }
    return y;
}
static inline uint32_t __umulhi(uint32_t x, uint32_t y)
{
    return (uint32_t)((uint64_t)x * y >> 32);
}
static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        out |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    }
    return out;
}
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline uint32_t __funnelshift_rc(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (shift < 32 ? shift : 32));
}
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static inline uint32_t __funnelshift_lc(uint32_t low, uint32_t high, uint32_t shift)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << (shift < 32 ? shift : 32) >> 32);
}
template <typename F> static inline uint32_t gw_shim_bytes(uint32_t x, uint32_t y, F f)
{
    uint32_t out = 0;
    for (int i = 0; i < 32; i += 8) {
        out |= (f(x >> i & 255, y >> i & 255) & 255) << i;
    }
    return out;
}
static inline uint32_t __vcmpgeu4(uint32_t x, uint32_t y)
{
    return gw_shim_bytes(x, y, [](uint32_t a, uint32_t b) {
        return a >= b ? 255u : 0u;
    });
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
/* The compiler of the shim is told not to contract (-ffp-contract=off). */
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline float __fsqrt_rn(float x)
{
    return __builtin_sqrtf(x);
}

/* ---- the rest of device.cuh ---------------------------------------------------------------------------- */

static inline uint32_t gw_place_of(const void *p)
{
    return gw_shim_place_of(p);
}
static inline uint32_t gw_shared_load8(uint32_t place)
{
    return *gw_shim_shared_at(place, 1);
}
static inline uint32_t gw_shared_load16(uint32_t place)
{
    return *(const uint16_t *)(const void *)gw_shim_shared_at(place, 2);
}
static inline uint32_t gw_shared_load32(uint32_t place)
{
    return *(const uint32_t *)(const void *)gw_shim_shared_at(place, 4);
}
static inline uint2 gw_shared_load64(uint32_t place)
{
    return *(const uint2 *)(const void *)gw_shim_shared_at(place, 8);
}
static inline uint4 gw_shared_load128(uint32_t place)
{
    return *(const uint4 *)(const void *)gw_shim_shared_at(place, 16);
}
static inline void gw_shared_store8(uint32_t place, uint32_t x)
{
    *gw_shim_shared_at(place, 1) = (unsigned char)x;
}
static inline void gw_shared_store16(uint32_t place, uint32_t x)
{
    *(uint16_t *)(void *)gw_shim_shared_at(place, 2) = (uint16_t)x;
}
static inline void gw_shared_store32(uint32_t place, uint32_t x)
{
    *(uint32_t *)(void *)gw_shim_shared_at(place, 4) = x;
}
static inline void gw_shared_store128(uint32_t place, uint4 x)
{
    *(uint4 *)(void *)gw_shim_shared_at(place, 16) = x;
}
static inline void gw_shared_or32(uint32_t place, uint32_t x)
{
    uint32_t *const word = (uint32_t *)(void *)gw_shim_shared_at(place, 4);
    gw_shim_is_atomic = true;
    *word |= x;
    gw_shim_is_atomic = false;
}
static inline uint4 gw_global_load128(const void *p)
{
    return *(const uint4 *)p;
}
/* Arrives at the wait; the destination is overwritten with other bytes at once, so that a missing wait is
 * detected. */
static inline void gw_copy_async16(uint32_t place, const void *from)
{
    unsigned char *const to = gw_shim_shared_at(place, 16);
    const uint64_t nothing[2] = {0xa5a5a5a5a5a5a5a5u, 0xa5a5a5a5a5a5a5a5u};
    memcpy(to, nothing, 16);
    gw_shim_copy_begin(to, from);
}
static inline void gw_copy_wait(void)
{
    unsigned char *to;
    const void *from;
    while (gw_shim_copy_next(&to, &from)) {
        memcpy(to, from, 16);
    }
}
static inline uint64_t gw_load_acquire(const uint64_t *p)
{
    gw_shim_yield();
    return *p;
}
static inline void gw_store_release(uint64_t *p, uint64_t x)
{
    gw_shim_yield();
    *p = x;
}
static inline uint64_t gw_atomic_add64(uint64_t *p, uint64_t x)
{
    const uint64_t found = atomicAdd(p, x);
    if (gw_shim_on_add64 != nullptr) {
        gw_shim_on_add64(p, found, blockIdx.x);
    }
    return found;
}
static inline uint64_t gw_atomic_max64(uint64_t *p, uint64_t x)
{
    return atomicMax(p, x);
}
static inline uint64_t gw_atomic_min64(uint64_t *p, uint64_t x)
{
    return atomicMin(p, x);
}
static inline uint32_t gw_thread_now(void)
{
    return threadIdx.x;
}
template <typename T> static inline T *gw_pointer_now(T *p)
{
    return p;
}
static inline uint32_t gw_word_now(uint32_t x)
{
    return x;
}
static inline void gw_spin(void)
{
    gw_shim_yield();
}
static inline long long __double_as_longlong(double x)
{
    long long bits;
    __builtin_memcpy(&bits, &x, 8);
    return bits;
}
static inline double __longlong_as_double(long long bits)
{
    double x;
    __builtin_memcpy(&x, &bits, 8);
    return x;
}
/* A digit from 8 on: the sign of the byte, eight times. */
static inline uint32_t gw_permute(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = (uint32_t)(both >> 8 * (selector >> 4 * i & 7)) & 255;
        out |= ((selector >> 4 * i & 8) == 0 ? byte : byte >> 7 != 0 ? 255u : 0u) << 8 * i;
    }
    return out;
}
template <uint32_t MASK> static inline uint32_t gw_select_bits(uint32_t a, uint32_t b)
{
    return (a & MASK) | (b & ~MASK);
}
template <uint32_t FLAG, uint32_t WIDTH>
static inline void gw_push_digit(uint32_t &z, uint32_t &w, uint32_t flags)
{
    if ((flags & FLAG) != 0) {
        z = z >> WIDTH | w << (32 - WIDTH);
        w >>= WIDTH;
    }
}
static inline float gw_shim_flush(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) < 0x00800000u ? __uint_as_float(bits & 0x80000000u) : x;
}
static inline float gw_scale_flush(float x, float power)
{
    const double exact = (double)gw_shim_flush(x) * (double)power; /* 24 bits by one */
    if (__builtin_fabs(exact) >= 0x1p128 && __builtin_fabs(x) < __builtin_inff()) {
        return __builtin_copysignf(0x1.fffffep127f, (float)exact); /* towards zero: not infinite */
    }
    return __builtin_fabs(exact) < 0x1p-126 ? __builtin_copysignf(0, (float)exact) : (float)exact;
}
static inline float gw_larger_magnitude(float x, float y)
{
    const uint32_t a = __float_as_uint(x) & 0x7fffffffu, b = __float_as_uint(y) & 0x7fffffffu;
    return __uint_as_float(a > b ? a : b); /* NaN is above all numbers */
}
static inline float gw_float_from_fp16(uint32_t bits)
{
    return __uint_as_float(gw_widen_fp16(bits & 0xffff));
}
static inline uint32_t gw_two_bf16(float x, float y)
{
    return gw_narrow_bf16(__float_as_uint(x)) | gw_narrow_bf16(__float_as_uint(y)) << 16;
}
static inline uint32_t gw_two_fp16(float x, float y)
{
    const uint32_t low = gw_narrow_fp16(__float_as_uint(x)), high = gw_narrow_fp16(__float_as_uint(y));
    return (low == 0x8000u ? 0 : low) | (high == 0x8000u ? 0 : high << 16);
}
static inline uint32_t __dp2a_hi(uint32_t x, uint32_t y, uint32_t z)
{
    return z + (x & 0xffffu) * (y >> 16 & 0xffu) + (x >> 16) * (y >> 24);
}
template <bool NEAREST> static inline float gw_float_add_flush(float x, float y)
{
    /* Exact in a double unless the exponents are far apart, which in kernels they are not. */
    const double exact = (double)gw_shim_flush(x) + (double)gw_shim_flush(y);
    const float nearest = (float)exact;
    const bool is_above = __builtin_fabs((double)nearest) > __builtin_fabs(exact);
    return gw_shim_flush(!NEAREST && is_above ? __uint_as_float(__float_as_uint(nearest) - 1) : nearest);
}
template <uint32_t FLAG, uint32_t WIDTH>
static inline void gw_push_top(uint32_t &z, uint32_t w, uint32_t flags)
{
    if ((flags & FLAG) != 0) {
        z = z << WIDTH | w >> (32 - WIDTH);
    }
}
static inline float gw_shim_limit(float x)
{
    return x > 0 ? (x < 1 ? x : 1) : 0;
}
static inline float gw_float_add_limit(float x, float y)
{
    return gw_shim_limit(x + y);
}
static inline float gw_float_multiply_limit(float x, float y)
{
    return gw_shim_limit(x * y);
}
template <uint32_t SCALE> static inline uint32_t gw_byte_place(uint32_t base, uint32_t x, uint32_t i)
{
    return base + SCALE * (x >> 8 * i & 255);
}
static inline uint32_t gw_shuffle_up_add(uint32_t x, uint32_t by)
{
    const uint32_t below = __shfl_up_sync(0xffffffffu, x, by);
    return (threadIdx.x & 31) >= by ? x + below : x;
}

#endif
#endif
