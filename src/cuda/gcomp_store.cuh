/*
 * Decoded values to memory: stored, or added to what is there, multiplied by the scale before
 * (docs/numerics.md section 5).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_STORE_CUH
#define GW_CUDA_GCOMP_STORE_CUH

#include "cuda/gcomp_decode_state.cuh"

GW_DEVICE uint32_t gw_flush_bits(uint32_t bits, uint32_t strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

GW_DEVICE uint32_t gw_widen_half(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) {
        return sign | 0x7f800000u | (magnitude & 0x3ff) << 13;
    }
    if (magnitude >= 0x400) {
        return sign | ((magnitude << 13) + (112u << 23));
    }
    if (magnitude == 0) {
        return sign;
    }
    /* Subnormal: the leading one moves to where fp32 has its hidden bit. */
    const uint32_t shift = __clz(magnitude) - 21;
    magnitude <<= shift;
    return sign | (113 - shift) << 23 | (magnitude & 0x3ff) << 13;
}

/* `bits` is not NaN; to nearest, ties to even. */
GW_DEVICE uint32_t gw_narrow_half(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000u) { /* 65520, halfway between the largest finite value and 2^16 */
        return sign | 0x7c00;
    }
    if (magnitude >= 0x38800000u) { /* 2^-14: normal */
        magnitude -= 112u << 23;
        return sign | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below 2^-25, half of the smallest subnormal */
        return sign;
    }
    const uint32_t m = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t shift = 126 - exponent;
    return sign | (m + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift;
}

/* docs/numerics.md section 5; a is the accumulator's value, b the frame's. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_sum_of(uint32_t a, uint32_t b, uint32_t strict)
{
    if (DTYPE == GW_FP16) {
        a = gw_widen_half(a);
        b = gw_widen_half(b);
    } else {
        a = gw_flush_bits(DTYPE == GW_BF16 ? a << 16 : a, strict);
        b = gw_flush_bits(DTYPE == GW_BF16 ? b << 16 : b, strict);
    }
    uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
    const bool nan = (sum & 0x7fffffff) > 0x7f800000u;
    if (DTYPE == GW_FP16) {
        sum = nan ? 0x7e00 : gw_narrow_half(sum);
        return !strict && sum == 0x8000 ? 0 : sum;
    }
    sum = nan ? 0x7fc00000u : gw_flush_bits(sum, strict);
    return DTYPE == GW_BF16 && !nan ? (sum + 0x7fff + (sum >> 16 & 1)) >> 16
           : DTYPE == GW_BF16       ? sum >> 16
                                    : sum;
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
    const uint32_t wide =
        DTYPE == GW_FP16 ? gw_widen_half(a) : gw_flush_bits(DTYPE == GW_BF16 ? a << 16 : a, strict);
    uint32_t product = __float_as_uint(__fmul_rn(__uint_as_float(wide), scale));
    const bool nan = (product & 0x7fffffff) > 0x7f800000u;
    if (DTYPE == GW_FP16) {
        product = nan ? 0x7e00 : gw_narrow_half(product);
        return !strict && product == 0x8000 ? 0 : product;
    }
    product = nan ? 0x7fc00000u : !strict && (product & 0x7fffffff) <= 0x00800000u ? 0 : product;
    return DTYPE == GW_BF16 && !nan ? (product + 0x7fff + (product >> 16 & 1)) >> 16
           : DTYPE == GW_BF16       ? product >> 16
                                    : product;
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
        if (DTYPE == GW_FP32) {
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint32_t *)(const void *)(out.addend + at + i);
            *(uint32_t *)(void *)(out.dst + at + i) =
                out.addend == nullptr ? word : gw_sum_of<DTYPE>(a, word, out.strict);
        } else {
            const uint32_t v = (i & 2) != 0 ? word >> 16 : word & 0xffff;
            const uint32_t a =
                out.addend == nullptr ? 0 : *(const uint16_t *)(const void *)(out.addend + at + i);
            *(uint16_t *)(void *)(out.dst + at + i) =
                (uint16_t)(out.addend == nullptr ? v : gw_sum_of<DTYPE>(a, v, out.strict));
        }
    }
}

#endif
