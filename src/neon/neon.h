/*
 * The intrinsics of NEON, and what the kernels of this folder share.
 *
 * GW_NEON is defined where the kernels are built: on little-endian AArch64, and, with GW_SIMDE_NEON, on
 * x86-64 through SIMDe, which computes the same values with other instructions. That is for tests:
 * sanitizers and fuzzers then run the code of these files at full speed. What SIMDe lacks, or does in a way
 * that depends on flush modes, is added here.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_NEON_H
#define GW_NEON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__aarch64__) && !defined(__AARCH64EB__)

#define GW_NEON 1
#include <arm_neon.h>

static inline float32x4_t gw_widen_fp16x4(uint16x4_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

static inline uint16x4_t gw_narrow_fp16x4(float32x4_t x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

/* Bits of bf16 to bits of fp32. */
static inline uint32x4_t gw_widen_bf16x4(uint16x4_t h)
{
    return vshll_n_u16(h, 16);
}

static inline float32x4_t gw_div_f32x4(float32x4_t x, float32x4_t y)
{
    return vdivq_f32(x, y);
}

#elif defined(GW_SIMDE_NEON) && defined(__x86_64__)

#define GW_NEON 1
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>
#include <simde/arm/neon.h>

/* SIMDe's own conversions compute with subnormals; those of F16C ignore flush modes, as Arm's do. */
static inline float32x4_t gw_widen_fp16x4(uint16x4_t h)
{
    return (float32x4_t)_mm_cvtph_ps((__m128i)vcombine_u16(h, h));
}

static inline uint16x4_t gw_narrow_fp16x4(float32x4_t x)
{
    return vget_low_u16((uint16x8_t)_mm_cvtps_ph((__m128)x, _MM_FROUND_TO_NEAREST_INT));
}

static inline uint32x4_t gw_widen_bf16x4(uint16x4_t h)
{
    return vshlq_n_u32(vmovl_u16(h), 16); /* SIMDe's vshll_n_u16 ends at 15 */
}

static inline float32x4_t gw_div_f32x4(float32x4_t x, float32x4_t y)
{
    return (float32x4_t)_mm_div_ps((__m128)x, (__m128)y); /* SIMDe 0.7.4 has no vdivq_f32 */
}

static inline float32x4_t vsqrtq_f32(float32x4_t x)
{
    return (float32x4_t)_mm_sqrt_ps((__m128)x);
}

/* Shift left and insert: the low n bits of a stay. */
#define vsliq_n_u8(a, b, n)                                                                                  \
    vorrq_u8(vandq_u8((a), vdupq_n_u8((uint8_t)((1u << (n)) - 1))), vshlq_u8((b), vdupq_n_s8((int8_t)(n))))
#define vsliq_n_u16(a, b, n)                                                                                 \
    vorrq_u16(vandq_u16((a), vdupq_n_u16((uint16_t)((1u << (n)) - 1))),                                      \
              vshlq_u16((b), vdupq_n_s16((int16_t)(n))))
#define vsliq_n_u32(a, b, n)                                                                                 \
    vorrq_u32(vandq_u32((a), vdupq_n_u32((1u << (n)) - 1)), vshlq_u32((b), vdupq_n_s32((int32_t)(n))))
#define vsliq_n_u64(a, b, n)                                                                                 \
    vorrq_u64(vandq_u64((a), vdupq_n_u64(((uint64_t)1 << (n)) - 1)),                                         \
              vshlq_u64((b), vdupq_n_s64((int64_t)(n))))

#endif

#if defined(GW_NEON)

/* Float as bits and back. */
static inline uint32x4_t gw_bits_f32x4(float32x4_t x)
{
    return vreinterpretq_u32_f32(x);
}

static inline float32x4_t gw_f32x4_bits(uint32x4_t x)
{
    return vreinterpretq_f32_u32(x);
}

/* Loads and stores at any alignment: loads of elements require the element's alignment, loads of bytes
 * none. */
static inline uint16x8_t gw_load_u16x8(const void *src)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)src));
}

static inline uint32x4_t gw_load_u32x4(const void *src)
{
    return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)src));
}

static inline void gw_store_u16x8(void *dst, uint16x8_t x)
{
    vst1q_u8((uint8_t *)dst, vreinterpretq_u8_u16(x));
}

static inline void gw_store_u32x4(void *dst, uint32x4_t x)
{
    vst1q_u8((uint8_t *)dst, vreinterpretq_u8_u32(x));
}

#endif

#endif
