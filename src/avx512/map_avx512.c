/*
 * Precision map: 16 parameters at a time, by gcomp/map_lanes.h.
 *
 * Bound on Zen 4: with all four arrays some 75 operations on 16 parameters at 2 a cycle, and a square root of
 * 10 cycles beside them: 2.5 cycles/parameter; the 16 bytes of state that a parameter then has take 2 to 3
 * from memory.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/kernels_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include <immintrin.h>

typedef __m512 floats;
typedef __m512i words;
typedef __mmask16 flags;

enum { LANES = 16, REGISTERS = 1 };

#define FLOATS(x)           _mm512_set1_ps(x)
#define LOAD(bytes)         _mm512_castsi512_ps(_mm512_loadu_si512(bytes))
#define ADD(x, y)           _mm512_add_ps(x, y)
#define SUB(x, y)           _mm512_sub_ps(x, y)
#define MUL(x, y)           _mm512_mul_ps(x, y)
#define DIV(x, y)           _mm512_div_ps(x, y)
#define SQRT(x)             _mm512_sqrt_ps(x)
#define ABS(x)              _mm512_abs_ps(x)
#define ABOVE_ZERO(x)       _mm512_max_ps(_mm512_setzero_ps(), x) /* the second operand where it is NaN */
#define LESSER(x, y)        _mm512_min_ps(x, y)
#define IS_EQUAL(x, y)      _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ)
#define IS_LESS(x, y)       _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ)
#define IS_LESS_EQUAL(x, y) _mm512_cmp_ps_mask(x, y, _CMP_LE_OQ)
#define IS_NAN(x)           _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q)
#define DIFFER(x, y)        _mm512_movepi32_mask(_mm512_castps_si512(_mm512_xor_ps(x, y)))
#define IS_NOT_0(x)         _mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_castps_si512(x))
#define BOTH(a, b)          ((flags)((a) & (b)))
#define EITHER(a, b)        ((flags)((a) | (b)))
#define BUT(a, b)           ((flags)((a) & ~(unsigned)(b)))
#define CLEAR(a, x)         _mm512_mask_mov_ps(x, a, _mm512_setzero_ps())
#define PICK(a, x, y)       _mm512_mask_mov_ps(y, a, x)
#define WORDS_MIN(x, y)     _mm512_min_epu32(x, y)
#define WORDS_MAX(x, y)     _mm512_max_epu32(x, y)
#define NO_WORDS            _mm512_setzero_si512()

static inline floats flush(floats x)
{
    return _mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000)),
                               x);
}

static inline floats normal(floats x)
{
    return _mm512_maskz_mov_ps(
        _mm512_cmpgt_epi32_mask(_mm512_castps_si512(ABS(x)), _mm512_set1_epi32(0x00800000)), x);
}

static inline flags is_ratio(floats x)
{
    return _mm512_cmplt_epu32_mask(_mm512_sub_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x00800000)),
                                   _mm512_set1_epi32(0x7f800000 - 0x00800000));
}

static inline words octaves(flags a, floats x)
{
    return _mm512_maskz_srli_epi32(a, _mm512_castps_si512(x), 21);
}

static inline void store_map_bytes(uint8_t *map_bytes, const words q[REGISTERS], uint32_t base)
{
    const __m512i least = _mm512_set1_epi32((int)base);
    const __m512i k = _mm512_sub_epi32(_mm512_max_epu32(q[0], least), least);
    _mm_storeu_si128((__m128i *)(void *)map_bytes, _mm512_cvtusepi32_epi8(k));
}

static inline uint32_t largest_of(words x)
{
    return _mm512_reduce_max_epu32(x);
}

#include "gcomp/map_lanes.h"

uint32_t gw_map_scan_avx512(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    return map_scan(rule, state, len);
}

void gw_map_build_avx512(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                         uint32_t base, uint8_t *map_bytes)
{
    map_build(rule, state, len, base, map_bytes);
}

#else
typedef int gw_map_avx512_not_built; /* a translation unit must not be empty */
#endif
