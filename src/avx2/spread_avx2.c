/*
 * Gather and spread: the bytes and the values of the set bits of a zero mask, eight at a time (docs/format.md
 * section 5.3). A byte of the mask selects the shuffle of its values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

#include "avx2/byte_orders_avx2.h"
#include "gcomp/join_sum.h"

static inline size_t ones(uint64_t bits)
{
    return (size_t)_mm_popcnt_u64(bits);
}

static inline void gather8(uint8_t *out, const uint8_t *bytes, uint64_t bits)
{
    const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)&gw_orders_set_avx2[bits]);
    const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    _mm_storel_epi64((__m128i *)(void *)out, _mm_shuffle_epi8(x, order));
}

/* Up to 64 bytes. Returns how many were stored. */
GW_TEMPLATE size_t gather_groups(uint8_t *out, const uint8_t *bytes, uint64_t bits, unsigned groups)
{
    size_t n = 0;
    for (unsigned g = 0; g < groups; g++, bits >>= 8) {
        gather8(out + n, bytes + 8 * g, bits & 255);
        n += ones(bits & 255);
    }
    return n;
}

size_t gw_gather_avx2(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len)
{
    size_t n = 0, i = 0;
    for (; bytes != NULL && i + 64 <= len; i += 64) {
        _mm_prefetch((const char *)((uintptr_t)bytes + len + i), _MM_HINT_T1); /* of the next chunk */
        n += gather_groups(out + n, bytes + i, gw_load64(bitmap + i / 8), 8);
    }
    for (; i < len; i += 8) {
        const unsigned bits = bitmap[i / 8];
        if (bytes != NULL) {
            uint8_t some[8] = {0};
            GW_MEMCPY(some, bytes + i, len - i < 8 ? len - i : 8);
            gather8(out + n, some, bits);
        }
        n += ones(bits);
    }
    return len % 32 != 0 && gw_load32(bitmap + len / 32 * 4) >> len % 32 != 0 ? SIZE_MAX : n;
}

/* Eight values. The order of a clear bit has its sign bit set, which makes the value zero. */
GW_TEMPLATE void spread8(uint8_t *dst, const uint8_t *next, uint64_t bits, unsigned size, int stream)
{
    const __m128i order = _mm_loadl_epi64((const __m128i *)(const void *)&gw_orders_spread_avx2[bits].order);
    if (size == 4) {
        const __m256i index = _mm256_cvtepi8_epi32(order);
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)next);
        const __m256 out = _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_permutevar8x32_epi32(x, index)),
                                            _mm256_setzero_ps(), _mm256_castsi256_ps(index));
        if (stream) {
            _mm256_stream_ps((float *)(void *)dst, out);
        } else {
            _mm256_storeu_ps((float *)(void *)dst, out);
        }
    } else {
        /* Value n is bytes 2n and 2n + 1; an order of 128 and more keeps its sign bit. */
        const __m128i twice =
            _mm_or_si128(_mm_add_epi8(order, order), _mm_and_si128(order, _mm_set1_epi8(-128)));
        const __m128i index = _mm_unpacklo_epi8(twice, _mm_or_si128(twice, _mm_set1_epi8(1)));
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)next);
        const __m128i out = _mm_shuffle_epi8(x, index);
        if (stream) {
            _mm_stream_si128((__m128i *)(void *)dst, out);
        } else {
            _mm_storeu_si128((__m128i *)(void *)dst, out);
        }
    }
}

static gw_add_fn *const adds[3] = {gw_add_fp32_avx2, gw_add_bf16_avx2, gw_add_fp16_avx2};

enum { PART_LEN = 1024 }; /* values that are added while they are in L1 */

static inline void prefetch(uintptr_t at, uintptr_t end)
{
    for (at &= ~(uintptr_t)63; at < end; at += 64) {
        _mm_prefetch((const char *)at, _MM_HINT_T0);
    }
}

/* Values [at, end): their share of what will be read next. */
static inline void prefetch_share(const uint8_t *memory, size_t size, size_t at, size_t end, size_t len)
{
    prefetch((uintptr_t)memory + size * at / len, (uintptr_t)memory + size * end / len);
}

GW_TEMPLATE void spread_range(uint8_t *dst, const uint8_t *next, const uint8_t *bitmap, size_t len,
                              const gw_joiner *joiner, unsigned size, int stream)
{
    for (size_t at = 0; at < len; at += PART_LEN) {
        const size_t end = len - at < PART_LEN ? len : at + PART_LEN;
        prefetch_share(joiner->next, joiner->next_size, at, end, len);
        prefetch_share(joiner->beside, joiner->beside_size, at, end, len);
        size_t i = at;
        for (; i + 64 <= end; i += 64) {
            uint64_t bits = gw_load64(bitmap + i / 8);
            for (unsigned j = 0; j < 64; j += 8, bits >>= 8) {
                spread8(dst + size * (i + j), next, bits & 255, size, stream);
                next += size * ones(bits & 255);
            }
        }
        for (; i < end; i += 8) {
            uint8_t some[32];
            spread8(some, next, bitmap[i / 8], size, 0);
            GW_MEMCPY(dst + size * i, some, size * (end - i < 8 ? end - i : 8));
            next += size * ones(bitmap[i / 8]);
        }
        gw_join_sum(dst, at, end - at, joiner, adds);
    }
    if (stream) {
        _mm_sfence();
    }
}

void gw_spread_avx2(void *dst, const void *values, const uint8_t *bitmap, size_t len, const gw_joiner *joiner)
{
    const unsigned size = joiner->dtype == GW_FP32 ? 4 : 2;
    const uint8_t *next = (const uint8_t *)values;
    const int stream =
        joiner->stream && joiner->addend == NULL && ((uintptr_t)dst & (size == 4 ? 31 : 15)) == 0;
    switch (size * 2 + (unsigned)stream) {
    case 9:
        spread_range((uint8_t *)dst, next, bitmap, len, joiner, 4, 1);
        break;
    case 8:
        spread_range((uint8_t *)dst, next, bitmap, len, joiner, 4, 0);
        break;
    case 5:
        spread_range((uint8_t *)dst, next, bitmap, len, joiner, 2, 1);
        break;
    default:
        spread_range((uint8_t *)dst, next, bitmap, len, joiner, 2, 0);
        break;
    }
}

#else
typedef int gw_spread_avx2_not_built; /* a translation unit must not be empty */
#endif
