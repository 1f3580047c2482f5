/*
 * The vocabulary of device code: nvcc's, or that of a shim that runs warps and blocks on a CPU. A
 * compiler that is not nvcc includes tests/cuda/shim.h, which defines everything below and the CUDA built-ins
 * that kernels use.
 *
 *   GW_KERNEL(name, params, threads, blocks)
 *                      head of a kernel: one parameter, `const params &p`; blocks of `threads` threads,
 *                      registers for at least `blocks` of them on a multiprocessor
 *   GW_KERNELS_BY_DTYPE(stem, params, blocks, function, ...)
 *                      kernels of 256 threads that call function<dtype, ...>(p)
 *   GW_KERNELS_BY_MODE(stem, params, function)
 *                      the same of function<dtype, is derived or carried>(p)
 *   GW_DEVICE          head of every other function, GW_DEVICE_MEMBER of a member
 *   GW_LOOKUP          head of a constant table, GW_HOST_DEVICE of a constexpr function that makes one
 *   GW_SHARED(type)    the block's dynamic shared memory as an object of the type: the only shared memory
 *                      there is
 *   gw_place_of()      an address of shared memory in 32 bits, for the loads and stores below
 *
 * Collectives are called by all lanes of a warp, or all threads of a block, that have not returned.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_DEVICE_CUH
#define GW_CUDA_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)

#define GW_KERNEL(name, params, threads, blocks)                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ params p)
#define GW_DEVICE        static __device__ __forceinline__
#define GW_DEVICE_MEMBER __device__ __forceinline__
#define GW_HOST_DEVICE   static __host__ __device__
#define GW_LOOKUP        static __device__ const
#define GW_UNROLL        _Pragma("unroll")
#define GW_NO_UNROLL     _Pragma("unroll 1")
#define GW_PRAGMA(text)  _Pragma(#text)
#define GW_UNROLL_BY(n)  GW_PRAGMA(unroll(n))

extern __shared__ __align__(128) unsigned char gw_shared_memory[];
#define GW_SHARED(type) (*(type *)(void *)gw_shared_memory)

/* The base of shared memory is part of a 32-bit address and costs no addition at every access. */
GW_DEVICE uint32_t gw_place_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#define GW_SHARED_ACCESS(bits)                                                                               \
    GW_DEVICE uint32_t gw_shared_load##bits(uint32_t place)                                                  \
    {                                                                                                        \
        uint32_t x;                                                                                          \
        asm volatile("ld.shared.u" #bits " %0, [%1];" : "=r"(x) : "r"(place) : "memory");                    \
        return x;                                                                                            \
    }                                                                                                        \
    GW_DEVICE void gw_shared_store##bits(uint32_t place, uint32_t x)                                         \
    {                                                                                                        \
        asm volatile("st.shared.u" #bits " [%0], %1;" : : "r"(place), "r"(x) : "memory");                    \
    }
GW_SHARED_ACCESS(8)
GW_SHARED_ACCESS(16)
GW_SHARED_ACCESS(32)
#undef GW_SHARED_ACCESS

GW_DEVICE uint2 gw_shared_load64(uint32_t place)
{
    uint2 x;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(place) : "memory");
    return x;
}

GW_DEVICE uint4 gw_shared_load128(uint32_t place)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(place)
                 : "memory");
    return x;
}

GW_DEVICE void gw_shared_store128(uint32_t place, uint4 x)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(place), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

GW_DEVICE void gw_shared_or32(uint32_t place, uint32_t x)
{
    asm volatile("red.shared.or.b32 [%0], %1;" : : "r"(place), "r"(x) : "memory");
}

/* 16 bytes of global memory by one instruction: for compute capability 10 the compiler makes two of a load
 * whose halves it computes with as pairs. */
GW_DEVICE uint4 gw_global_load128(const void *p)
{
    uint4 x;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(__cvta_generic_to_global(p)));
    return x;
}

/* 16 bytes from global to shared memory without registers; gw_copy_wait() and a barrier make them visible. */
GW_DEVICE void gw_copy_async16(uint32_t place, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(place), "l"(__cvta_generic_to_global(from))
                 : "memory");
}

GW_DEVICE void gw_copy_wait(void)
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

/* Flags between blocks: a load before which no later load, and a store after which no earlier
 * store is performed. */
GW_DEVICE uint64_t gw_load_acquire(const uint64_t *p)
{
    uint64_t x;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                 : "=l"(x)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return x;
}

GW_DEVICE void gw_store_release(uint64_t *p, uint64_t x)
{
    asm volatile("st.release.gpu.global.u64 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(p)), "l"(x)
                 : "memory");
}

GW_DEVICE uint64_t gw_atomic_add64(uint64_t *p, uint64_t x)
{
    return atomicAdd((unsigned long long *)p, (unsigned long long)x);
}

GW_DEVICE uint64_t gw_atomic_max64(uint64_t *p, uint64_t x)
{
    return atomicMax((unsigned long long *)p, (unsigned long long)x);
}

GW_DEVICE uint64_t gw_atomic_min64(uint64_t *p, uint64_t x)
{
    return atomicMin((unsigned long long *)p, (unsigned long long)x);
}

/* threadIdx.x, read again: for code that runs rarely in a kernel with few free registers, where the compiler
 * would keep one value from beginning to end, spilled if necessary. */
GW_DEVICE uint32_t gw_thread_now(void)
{
    uint32_t t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

/* p, opaque to the optimizer, for the same reason. */
template <typename T> GW_DEVICE T *gw_pointer_now(T *p)
{
    asm volatile("" : "+l"(p));
    return p;
}

/* x, opaque to the optimizer, so that values computed from it are not kept in registers. */
GW_DEVICE uint32_t gw_word_now(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* In every turn of a loop that waits for another block. */
GW_DEVICE void gw_spin(void)
{
    __nanosleep(40);
}

/* __byte_perm() without the instruction that clears the top bits of the selector's digits. */
GW_DEVICE uint32_t gw_permute(uint32_t x, uint32_t y, uint32_t selector)
{
    uint32_t z;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(selector));
    return z;
}

/* a where mask is set, else b: one instruction, which the compiler does not always select. */
template <uint32_t MASK> GW_DEVICE uint32_t gw_select_bits(uint32_t a, uint32_t b)
{
    uint32_t x;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(x) : "r"(a), "r"(b), "n"(MASK));
    return x;
}

/* If flags & FLAG: the lowest WIDTH bits of w go into z at the top and out of w. Predicated, no branch. */
template <uint32_t FLAG, uint32_t WIDTH>
GW_DEVICE void gw_push_digit(uint32_t &z, uint32_t &w, uint32_t flags)
{
    asm("{ .reg .pred p; .reg .u32 t; and.b32 t, %2, %3; setp.ne.u32 p, t, 0; @p shf.r.wrap.b32 %0, %0, %1, "
        "%4; "
        "@p shr.u32 %1, %1, %4; }"
        : "+r"(z), "+r"(w)
        : "r"(flags), "n"(FLAG), "n"(WIDTH));
}

/* x + y to nearest even or towards zero; subnormal numbers, given or made, are replaced by zero of their
 * sign. */
template <bool NEAREST> GW_DEVICE float gw_float_add_flush(float x, float y)
{
    float z;
    if (NEAREST) {
        asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    } else {
        asm("add.rz.ftz.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    }
    return z;
}

/* The same of x times a power of two, which is exact unless it is below 2^-126. Towards zero: to
 * nearest, a product just below 2^-126 may be 2^-126 before the device looks whether it is subnormal, or
 * not. What is too large becomes the largest finite number, not infinite. */
GW_DEVICE float gw_scale_flush(float x, float power)
{
    float z;
    asm("mul.rz.ftz.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(power));
    return z;
}

/* The larger magnitude; NaN if either is. */
GW_DEVICE float gw_larger_magnitude(float x, float y)
{
    float z;
    asm("{ .reg .f32 a, b; abs.f32 a, %1; abs.f32 b, %2; max.NaN.f32 %0, a, b; }" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* fp16 bits to fp32; two floats that are not NaN to bf16 or fp16, to nearest, ties to even, y above x. What
 * rounds to -0 of fp16 is +0: the sum of -0 and +0. */
GW_DEVICE float gw_float_from_fp16(uint32_t bits)
{
    float x;
    asm("{ .reg .b16 h, t; mov.b32 {h, t}, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"(bits));
    return x;
}

GW_DEVICE uint32_t gw_two_bf16(float x, float y)
{
    uint32_t z;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
    return z;
}

GW_DEVICE uint32_t gw_two_fp16(float x, float y)
{
    uint32_t z;
    asm("cvt.rn.f16x2.f32 %0, %1, %2; add.rn.f16x2 %0, %0, %3;" : "=&r"(z) : "f"(y), "f"(x), "r"(0));
    return z;
}

/* If flags & FLAG: z moves up, and the top WIDTH bits of w come in below. */
template <uint32_t FLAG, uint32_t WIDTH> GW_DEVICE void gw_push_top(uint32_t &z, uint32_t w, uint32_t flags)
{
    asm("{ .reg .pred p; .reg .u32 t; and.b32 t, %2, %3; setp.ne.u32 p, t, 0; @p shf.l.wrap.b32 %0, %1, %0, "
        "%4; }"
        : "+r"(z)
        : "r"(w), "r"(flags), "n"(FLAG), "n"(WIDTH));
}

/* Rounded to nearest even and limited to 0 and 1. */
GW_DEVICE float gw_float_add_limit(float x, float y)
{
    float z;
    asm("add.rn.sat.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

GW_DEVICE float gw_float_multiply_limit(float x, float y)
{
    float z;
    asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* base + SCALE * byte i of x: a product of four bytes with four, three of them 0, and a sum, all in one
 * instruction. */
template <uint32_t SCALE> GW_DEVICE uint32_t gw_byte_place(uint32_t base, uint32_t x, uint32_t i)
{
    uint32_t place;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(place) : "r"(x), "r"(SCALE << 8 * i), "r"(base));
    return place;
}

/* x, and that of the lane `by` below if there is one. The shuffle's predicate says whether there is: no
 * comparison. */
GW_DEVICE uint32_t gw_shuffle_up_add(uint32_t x, uint32_t by)
{
    asm volatile(
        "{ .reg .pred p; .reg .u32 t; shfl.sync.up.b32 t|p, %0, %1, 0, 0xffffffff; @p add.u32 %0, %0, t; }"
        : "+r"(x)
        : "r"(by));
    return x;
}

#else
#include "shim.h"
#endif

/* ---- common to both ------------------------------------------------------------------------------------ */

#include "gradwire/gradwire.h"

/* Four words, and back. */
GW_DEVICE void gw_words_of(uint32_t word[4], const uint4 &four)
{
    word[0] = four.x;
    word[1] = four.y;
    word[2] = four.z;
    word[3] = four.w;
}

GW_DEVICE uint4 gw_four_of(const uint32_t word[4])
{
    return make_uint4(word[0], word[1], word[2], word[3]);
}

GW_DEVICE uint4 gw_add_four(const uint4 &a, const uint4 &b)
{
    return make_uint4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Bits of element i of an array of a dtype. */
GW_DEVICE uint32_t gw_element_load(const void *array, uint32_t dtype, uint64_t i)
{
    return dtype == GW_FP32 ? ((const uint32_t *)array)[i] : ((const uint16_t *)array)[i];
}

GW_DEVICE void gw_element_store(void *array, uint32_t dtype, uint64_t i, uint32_t bits)
{
    if (dtype == GW_FP32) {
        ((uint32_t *)array)[i] = bits;
    } else {
        ((uint16_t *)array)[i] = (uint16_t)bits;
    }
}

/* The smaller of a rest and a length. */
template <typename T> GW_DEVICE uint32_t gw_at_most(T left, uint32_t len)
{
    return left < len ? (uint32_t)left : len;
}

/* Elements from `first` on of `count`, at most len. */
template <typename T> GW_DEVICE uint32_t gw_left_of(T count, T first, uint32_t len)
{
    return first < count ? gw_at_most(count - first, len) : 0;
}

#define GW_KERNEL_CALLS(name, params, blocks, function, ...)                                                 \
    GW_KERNEL(name, params, 256, blocks)                                                                     \
    {                                                                                                        \
        function<__VA_ARGS__>(p);                                                                            \
    }
#define GW_KERNELS_BY_DTYPE(stem, params, blocks, function, ...)                                             \
    GW_KERNEL_CALLS(stem##_fp32, params, blocks, function, GW_FP32, __VA_ARGS__)                             \
    GW_KERNEL_CALLS(stem##_bf16, params, blocks, function, GW_BF16, __VA_ARGS__)                             \
    GW_KERNEL_CALLS(stem##_fp16, params, blocks, function, GW_FP16, __VA_ARGS__)
#define GW_KERNELS_BY_MODE(stem, params, function)                                                           \
    GW_KERNEL_CALLS(stem##_fp32_explicit, params, 2, function, GW_FP32, false)                               \
    GW_KERNEL_CALLS(stem##_fp32_derived, params, 2, function, GW_FP32, true)                                 \
    GW_KERNEL_CALLS(stem##_bf16_explicit, params, 2, function, GW_BF16, false)                               \
    GW_KERNEL_CALLS(stem##_bf16_derived, params, 2, function, GW_BF16, true)                                 \
    GW_KERNEL_CALLS(stem##_fp16_explicit, params, 2, function, GW_FP16, false)                               \
    GW_KERNEL_CALLS(stem##_fp16_derived, params, 2, function, GW_FP16, true)

#endif
