/*
 * Stage pack: the halves of 64 indices are combined by shifts until `bits` bytes of eight are left.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/thc_avx2.h"

#if defined(GW_AVX2_COMPILED)

/* 32 bytes: values j and j + 32. Shifts of words are safe: no bit crosses the upper end of its byte. */
static inline __m256i fold32(__m256i low, __m256i high)
{
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}

/* 16 bytes: values j, j + 16, j + 32, j + 48. */
static inline __m128i fold16(__m256i v)
{
    return _mm_or_si128(_mm256_castsi256_si128(v), _mm_slli_epi16(_mm256_extracti128_si256(v, 1), 2));
}

/* 8 bytes: values j, j + 8, ... */
static inline __m128i fold8(__m128i v)
{
    return _mm_or_si128(v, _mm_slli_epi16(_mm_unpackhi_epi64(v, v), 1));
}

GW_TEMPLATE void pack_all(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits)
{
    const __m256i mask = _mm256_set1_epi8((char)(bits == 3 ? 3 : (1 << bits) - 1));
    const __m256i one = _mm256_set1_epi8(1);

    for (size_t i = 0; i < len; i += 64, dst += 8 * bits) {
        const __m256i low = gw_load256(index + i), high = gw_load256(index + i + 32);
        const __m256i folded = fold32(_mm256_and_si256(low, mask), _mm256_and_si256(high, mask));
        if (bits == 4) {
            gw_store256(dst, folded);
        } else if (bits == 1) {
            _mm_storel_epi64((__m128i *)(void *)dst, fold8(fold16(folded)));
        } else {
            gw_store128(dst, fold16(folded));
        }
        if (bits == 3) {
            const __m256i top = fold32(_mm256_and_si256(_mm256_srli_epi16(low, 2), one),
                                       _mm256_and_si256(_mm256_srli_epi16(high, 2), one));
            _mm_storel_epi64((__m128i *)(void *)(dst + 16), fold8(fold16(top)));
        }
    }
}

void gw_thc_pack_avx2(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits)
{
    switch (bits) {
    case 1:
        pack_all(dst, index, len, 1);
        break;
    case 2:
        pack_all(dst, index, len, 2);
        break;
    case 3:
        pack_all(dst, index, len, 3);
        break;
    default:
        pack_all(dst, index, len, 4);
        break;
    }
}

#else
typedef int gw_thc_pack_avx2_not_built; /* a translation unit must not be empty */
#endif
