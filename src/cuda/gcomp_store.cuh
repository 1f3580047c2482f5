/*
 * Decoded values to memory: stored, or added to what is there, multiplied by the scale before
 * (docs/numerics.md section 5).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_STORE_CUH
#define GW_CUDA_GCOMP_STORE_CUH

#include "core/half.h"
#include "cuda/gcomp_decode_state.cuh"

GW_DEVICE uint32_t gw_flush_bits(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

/* An operand as fp32, and a result as the dtype, `bits` being what it is if it is no NaN. Default mode has no
 * subnormal operands or sums of fp32 and bf16, and no -0. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_widen_flush(uint32_t x, uint32_t strict)
{
    return DTYPE == GW_FP16 ? __float_as_uint(gw_float_from_fp16(x))
                            : gw_flush_bits(DTYPE == GW_BF16 ? x << 16 : x, strict);
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_narrow(uint32_t result, uint32_t bits, uint32_t strict)
{
    const bool nan = (result & 0x7fffffff) > 0x7f800000u;
    if (DTYPE == GW_FP16) {
        const uint32_t half = nan ? 0x7e00 : gw_narrow_fp16(bits);
        return !strict && half == 0x8000 ? 0 : half;
    }
    return DTYPE == GW_FP32 ? (nan ? 0x7fc00000u : bits) : nan ? 0x7fc0 : gw_narrow_bf16(bits);
}

/* docs/numerics.md section 5; a is the accumulator's value, b the frame's. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_of(uint32_t a, uint32_t b, uint32_t strict)
{
    a = gw_widen_flush<DTYPE>(a, strict);
    b = gw_widen_flush<DTYPE>(b, strict);
    const uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    return gw_narrow<DTYPE>(sum, DTYPE == GW_FP16 ? sum : gw_flush_bits(sum, strict), strict);
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_word(uint32_t a, uint32_t b, uint32_t strict)
{
    return DTYPE == GW_FP32 ? gw_sum_of<DTYPE>(a, b, strict)
                            : gw_sum_of<DTYPE>(a & 0xffff, b & 0xffff, strict) |
                                  gw_sum_of<DTYPE>(a >> 16, b >> 16, strict) << 16;
}

/* a * scale. Default mode: a product of at most 2^-126 is +0, as in core. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_product_of(uint32_t a, float scale, uint32_t strict)
{
    const uint32_t wide = gw_widen_flush<DTYPE>(a, strict);
    const uint32_t product = __float_as_uint(__fmul_rn(__uint_as_float(wide), scale));
    const bool is_small = DTYPE != GW_FP16 && !strict && (product & 0x7fffffff) <= 0x00800000u;
    return gw_narrow<DTYPE>(product, is_small ? 0 : product, strict);
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_product_word(uint32_t a, float scale, uint32_t strict)
{
    return DTYPE == GW_FP32 ? gw_product_of<DTYPE>(a, scale, strict)
                            : gw_product_of<DTYPE>(a & 0xffff, scale, strict) |
                                  gw_product_of<DTYPE>(a >> 16, scale, strict) << 16;
}

/* 16 bytes of values to byte `at` of the chunk, of which `size` (0 to 16) exist. */
template <uint32_t DTYPE>
GW_DEVICE void gw_store_values(const gw_decode_out &out, uint32_t at, uint4 x, uint32_t size)
{
    if (out.scale != 1.0f) {
        x = make_uint4(gw_product_word<DTYPE>(x.x, out.scale, out.strict),
                       gw_product_word<DTYPE>(x.y, out.scale, out.strict),
                       gw_product_word<DTYPE>(x.z, out.scale, out.strict),
                       gw_product_word<DTYPE>(x.w, out.scale, out.strict));
    }
    if (out.is_wide && size >= 16) {
        if (out.addend != nullptr) {
            const uint4 a = *(const uint4 *)(const void *)(out.addend + at);
            x = make_uint4(gw_sum_word<DTYPE>(a.x, x.x, out.strict), gw_sum_word<DTYPE>(a.y, x.y, out.strict),
                           gw_sum_word<DTYPE>(a.z, x.z, out.strict),
                           gw_sum_word<DTYPE>(a.w, x.w, out.strict));
        }
        *(uint4 *)(void *)(out.dst + at) = x;
        return;
    }
    GW_NO_UNROLL
    for (uint32_t i = 0; i < 16 && i < size; i += gw_type<DTYPE>::SIZE) {
        const uint32_t word = i < 8 ? (i < 4 ? x.x : x.y) : i < 12 ? x.z : x.w;
        const uint32_t v = DTYPE == GW_FP32 ? word : (i & 2) != 0 ? word >> 16 : word & 0xffff;
        const uint32_t index = (at + i) / gw_type<DTYPE>::SIZE;
        gw_element_store(out.dst, DTYPE, index,
                         out.addend == nullptr
                             ? v
                             : gw_sum_of<DTYPE>(gw_element_load(out.addend, DTYPE, index), v, out.strict));
    }
}

#endif
