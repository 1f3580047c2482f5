/*
 * Sums: accumulator + decoded values (docs/numerics.md section 5), 16 fp32 or 32 16-bit values a register.
 *
 * Bound: two loads and a store for 64 bytes, 2 cycles from L1; the three masks of fp32 take 3 (0.19 cycles a
 * value). A chunk of fp32 is in L2 or memory, which is then the bound.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/sums_avx512.h"

#if defined(GW_AVX512_COMPILED)

GW_TEMPLATE void add_all(void *out, const void *accumulator, const void *values, size_t len, uint32_t dtype,
                         uint32_t strict)
{
    const size_t size = len * gw_traits_of(dtype)->size;
    const uint8_t *a = (const uint8_t *)accumulator;
    const uint8_t *b = (const uint8_t *)values;
    uint8_t *o = (uint8_t *)out;
    size_t i = 0;
    for (; i + 64 <= size; i += 64) {
        const __m512i x = _mm512_loadu_si512(a + i), y = _mm512_loadu_si512(b + i);
        _mm512_storeu_si512(o + i, gw_sums(x, y, dtype, strict, 0));
    }
    if (i < size) {
        const uint64_t rest = gw_low_mask(size - i);
        const __m512i x = _mm512_maskz_loadu_epi8(rest, a + i), y = _mm512_maskz_loadu_epi8(rest, b + i);
        _mm512_mask_storeu_epi8(o + i, rest, gw_sums(x, y, dtype, strict, 0));
    }
}

#define ADD_VERSION(name, dtype)                                                                             \
    void gw_add_##name##_avx512(void *out, const void *accumulator, const void *values, size_t len,          \
                                uint32_t strict)                                                             \
    {                                                                                                        \
        if (strict) {                                                                                        \
            add_all(out, accumulator, values, len, (dtype), 1);                                              \
        } else {                                                                                             \
            add_all(out, accumulator, values, len, (dtype), 0);                                              \
        }                                                                                                    \
    }                                                                                                        \
    _Static_assert(1, "a semicolon follows")

ADD_VERSION(fp32, GW_FP32);
ADD_VERSION(bf16, GW_BF16);
ADD_VERSION(fp16, GW_FP16);

#else
typedef int gw_add_avx512_not_built; /* a translation unit must not be empty */
#endif
