/*
 * Precision map: eight parameters at a time, by gcomp/map_lanes.h.
 *
 * 60 to 110 operations on eight parameters, the square root being one of nine cycles: 2 to 4.5 cycles a
 * parameter (4.3 measured on Zen 4 with all four arrays). The state of an optimizer is 8 to 16 bytes a
 * parameter and does not fit caches: memory, at about 4 bytes a cycle, is as slow.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

typedef __m256 floats;
typedef __m256i words;
typedef __m256 flags; /* all bits of a lane */

enum { LANES = 8, REGISTERS = 4 };

#define FLOATS(x)           _mm256_set1_ps(x)
#define LOAD(bytes)         _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)(bytes)))
#define ADD(x, y)           _mm256_add_ps(x, y)
#define SUB(x, y)           _mm256_sub_ps(x, y)
#define MUL(x, y)           _mm256_mul_ps(x, y)
#define DIV(x, y)           _mm256_div_ps(x, y)
#define SQRT(x)             _mm256_sqrt_ps(x)
#define ABS(x)              _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define ABOVE_ZERO(x)       _mm256_max_ps(_mm256_setzero_ps(), x) /* the second operand where it is NaN */
#define LESSER(x, y)        _mm256_min_ps(x, y)
#define IS_EQUAL(x, y)      _mm256_cmp_ps(x, y, _CMP_EQ_OQ)
#define IS_LESS(x, y)       _mm256_cmp_ps(x, y, _CMP_LT_OQ)
#define IS_LESS_EQUAL(x, y) _mm256_cmp_ps(x, y, _CMP_LE_OQ)
#define IS_NAN(x)           _mm256_cmp_ps(x, x, _CMP_UNORD_Q)
#define DIFFER(x, y)        _mm256_castsi256_ps(_mm256_srai_epi32(_mm256_castps_si256(_mm256_xor_ps(x, y)), 31))
#define IS_NOT_0(x)         _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_UQ)
#define BOTH(a, b)          _mm256_and_ps(a, b)
#define EITHER(a, b)        _mm256_or_ps(a, b)
#define BUT(a, b)           _mm256_andnot_ps(b, a)
#define CLEAR(a, x)         _mm256_andnot_ps(a, x)
#define PICK(a, x, y)       _mm256_blendv_ps(y, x, a)
#define WORDS_MIN(x, y)     _mm256_min_epu32(x, y)
#define WORDS_MAX(x, y)     _mm256_max_epu32(x, y)
#define NO_WORDS            _mm256_setzero_si256()

static inline floats flush(floats x)
{
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f800000));
    const __m256i is_tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_andnot_si256(is_tiny, _mm256_castps_si256(x)));
}

static inline floats normal(floats x)
{
    const __m256i is_kept = _mm256_cmpgt_epi32(_mm256_castps_si256(ABS(x)), _mm256_set1_epi32(0x00800000));
    return _mm256_and_ps(x, _mm256_castsi256_ps(is_kept));
}

static inline flags is_ratio(floats x)
{
    const __m256i bits = _mm256_castps_si256(x);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x007fffff)),
                                                _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), bits)));
}

static inline words octaves(flags a, floats x)
{
    return _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 21), _mm256_castps_si256(a));
}

static inline void store_map_bytes(uint8_t *map_bytes, const words q[REGISTERS], uint32_t base)
{
    const __m256i minus = _mm256_set1_epi16((short)(base < 1024 ? base : 1024));
    const __m256i low = _mm256_subs_epu16(_mm256_packus_epi32(q[0], q[1]), minus);
    const __m256i high = _mm256_subs_epu16(_mm256_packus_epi32(q[2], q[3]), minus);
    /* Packing works within halves: groups of four bytes have to be reordered. */
    const __m256i k = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                                  _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)map_bytes, k);
}

static inline uint32_t largest_of(words x)
{
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1)));
}

#include "gcomp/map_lanes.h"

uint32_t gw_map_scan_avx2(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    return map_scan(rule, state, len);
}

void gw_map_build_avx2(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                       uint32_t base, uint8_t *map_bytes)
{
    map_build(rule, state, len, base, map_bytes);
}

#else
typedef int gw_map_avx2_not_built; /* a translation unit must not be empty */
#endif
