/*
 * Round: 64 rounded values at a time, put together from their bytes again. Only RAW chunks need them.
 *
 * Bound on Zen 4, two vector instructions of 512 bits a cycle, counted for explicit fp32 in what gcc 12 makes
 * of it: truncate 140, nearest 175, stochastic 297, that is 1.1, 1.4 and 2.3 cycles a value. Measured 1.7,
 * 2.4 and 5.1 (derived: 1.8, 2.8, 5.1). Unlike split it finishes a block before it begins the next, so the
 * chain of gw_round_begin() and gw_round_end() shows; chunks that become RAW are too rare for more loops.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/round_block_avx512.h"

#if defined(GW_AVX512_COMPILED)

/* Values 16i to 16i + 15 of a block. */
GW_TEMPLATE __m512i words_of(const gw_bytes *v, unsigned i, uint32_t dtype)
{
    const __m512i lanes = _mm512_set_epi64(1, 0, 1, 0, 1, 0, 2 * i + 1, 2 * i);
    return gw_words16(_mm512_permutexvar_epi64(lanes, v->e), _mm512_permutexvar_epi64(lanes, v->sign),
                      _mm512_permutexvar_epi64(lanes, v->d1), _mm512_permutexvar_epi64(lanes, v->d2),
                      _mm512_permutexvar_epi64(lanes, v->d3), _mm512_permutexvar_epi64(lanes, v->d4), dtype);
}

GW_TEMPLATE void store_words(uint8_t *dst, const gw_bytes *v, __mmask64 valid, uint32_t dtype)
{
    for (unsigned i = 0; i < 4; i++) {
        const __m512i x = words_of(v, i, dtype);
        const __mmask16 part = (__mmask16)(_cvtmask64_u64(valid) >> 16 * i);
        if (dtype == GW_FP32) {
            _mm512_mask_storeu_epi32(dst + 64 * i, part, x);
        } else {
            _mm256_mask_storeu_epi16(dst + 32 * i, part, _mm512_cvtepi32_epi16(x));
        }
    }
}

GW_TEMPLATE void round_span(uint8_t *dst, const gw_span *span, const gw_rounder *r, uint32_t dtype,
                            uint32_t derived)
{
    const gw_round_rule *rule = r->rule;
    const size_t size = gw_traits_of(dtype)->size;
    const uint8_t *values = (const uint8_t *)span->values;
    for (size_t i = 0; i < span->len; i += 64) {
        const __mmask64 valid = gw_low_mask(span->len - i);
        const gw_bytes v = gw_load_bytes(values + size * i, span->len - i, dtype);
        const __m512i k = gw_load_levels_part(r, i, valid);
        gw_block b = gw_round64_any(v, k, span->element + i, r, dtype, derived);
        if (!derived) {
            gw_clear_cut(&b);
        }
        const gw_nonzero nonzero = gw_nonzero_of(&b.v, dtype, rule->strict);
        b.v.sign = _mm512_maskz_mov_epi8(nonzero.value, b.v.sign);
        b.v.d1 = _mm512_maskz_mov_epi8(nonzero.value, b.v.d1);
        b.v.d2 = _mm512_maskz_mov_epi8(nonzero.value, b.v.d2);
        b.v.d3 = _mm512_maskz_mov_epi8(nonzero.value, b.v.d3);
        b.v.d4 = _mm512_maskz_mov_epi8(nonzero.value, b.v.d4);
        store_words(dst + size * i, &b.v, valid, dtype);
    }
}

void gw_round_avx512(void *out, const gw_span *span, const gw_round_rule *rule)
{
    gw_rounder r;
    gw_drop_tables tables;
    gw_rounder_init(&r, &tables, span, rule);
    switch (rule->dtype * 2 + rule->derived) {
    case GW_FP32 * 2: round_span((uint8_t *)out, span, &r, GW_FP32, 0); break;
    case GW_FP32 * 2 + 1: round_span((uint8_t *)out, span, &r, GW_FP32, 1); break;
    case GW_BF16 * 2: round_span((uint8_t *)out, span, &r, GW_BF16, 0); break;
    case GW_BF16 * 2 + 1: round_span((uint8_t *)out, span, &r, GW_BF16, 1); break;
    case GW_FP16 * 2: round_span((uint8_t *)out, span, &r, GW_FP16, 0); break;
    case GW_FP16 * 2 + 1: round_span((uint8_t *)out, span, &r, GW_FP16, 1); break;
    default: break;
    }
}

#else
typedef int gw_round_avx512_not_built; /* a translation unit must not be empty */
#endif
