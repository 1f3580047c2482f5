/*
 * AVX-512 (F, BW, DQ, VL, VBMI, VBMI2) stages of a chunk decode.
 *
 * Expands are merge-masked and from registers: the zero-masked form has a false dependency on Zen 4 and 5.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "layout_chunk.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&       \
    defined(__AVX512VBMI__) && defined(__AVX512VBMI2__)

#include <immintrin.h>
#include <string.h>

static uint64_t low_mask(size_t bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

static size_t merge(uint8_t *out, const uint8_t *left, const uint8_t *right, const uint8_t *bitmap,
                    size_t len)
{
    size_t ones = 0;
    size_t i = 0;
    for (; i + 64 <= len; i += 64) {
        uint64_t m;
        memcpy(&m, bitmap + i / 8, 8);
        const __m512i l = _mm512_loadu_si512(left + (i - ones));
        const __m512i r = _mm512_loadu_si512(right + ones);
        _mm512_storeu_si512(out + i, _mm512_mask_expand_epi8(_mm512_mask_expand_epi8(l, ~m, l), m, r));
        ones += (size_t)_mm_popcnt_u64(m);
    }
    if (i < len) {
        uint64_t m = 0;
        memcpy(&m, bitmap + i / 8, (len - i + 7) / 8);
        m &= low_mask(len - i);
        const __m512i l = _mm512_loadu_si512(left + (i - ones));
        const __m512i r = _mm512_loadu_si512(right + ones);
        _mm512_storeu_si512(out + i, _mm512_mask_expand_epi8(_mm512_mask_expand_epi8(l, ~m, l), m, r));
        ones += (size_t)_mm_popcnt_u64(m);
    }
    return ones;
}

/* 64 numbers of w bits lie in 8w bytes: number 8q + j starts at bit j * w of the w bytes from byte q * w. */
static int unpack(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table)
{
    const size_t size = lay_run_size(len, width);
    const __m512i bytes_up = _mm512_set1_epi64(0x0706050403020100);
    const __m512i row = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i ones = _mm512_set1_epi64(0x0101010101010101);
    const __m512i pick = _mm512_add_epi8(
        bytes_up, _mm512_mullo_epi64(_mm512_mullo_epi64(row, ones), _mm512_set1_epi64((long long)width)));
    const __m512i shift = _mm512_mullo_epi64(bytes_up, _mm512_set1_epi64((long long)width));
    const __m512i mask = _mm512_set1_epi8((char)((1u << width) - 1));
    __m512i low = _mm512_setzero_si512(), high = low;
    if (table != NULL) {
        low = _mm512_loadu_si512(table);
        high = width == 7 ? _mm512_loadu_si512(table + 64) : low;
    }
    const size_t stride = 8 * (size_t)width;
    size_t at = 0;
    for (size_t i = 0; i < len; i += 64, at += stride) {
        const __m512i x = size - at >= 64 ? _mm512_loadu_si512(src + at)
                                          : _mm512_maskz_loadu_epi8(low_mask(size - at), src + at);
        __m512i y =
            _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, _mm512_permutexvar_epi8(pick, x)), mask);
        if (table != NULL) {
            y = _mm512_permutex2var_epi8(low, y, high);
        }
        _mm512_storeu_si512(out + i, y);
    }
    const unsigned used = (unsigned)(len * width % 32);
    return used == 0 || lay_load32(src + size - 4) >> used == 0;
}

typedef struct cursors {
    const uint8_t *plane[LAY_PLANES_MAX];
} cursors;

static inline __m512i expand(cursors *c, unsigned p, uint64_t mask)
{
    const __m512i x = _mm512_loadu_si512(c->plane[p]);
    c->plane[p] += _mm_popcnt_u64(mask);
    return _mm512_mask_expand_epi8(_mm512_setzero_si512(), mask, x);
}

/* Two bytes of value v: of `low` (second operand) and of `high`. */
#define PAIR(v) (uint64_t)(64 + (v)) | (uint64_t)(v) << 8
#define PAIRS4(v)                                                                                            \
    (long long)((PAIR(v)) | (PAIR((v) + 1)) << 16 | (PAIR((v) + 2)) << 32 | (PAIR((v) + 3)) << 48)

/*
 * z = d1:d2:d3:d4 of 64 values, exponent byte e, to 64 words. Words lo and hi are arranged so that the
 * unpack of 16-bit
 * halves, which works within lanes of 128 bits, leaves 16 values in order.
 */
static inline void assemble(__m512i out[4], __m512i d1, __m512i d2, __m512i d3, __m512i d4, __m512i e)
{
    const __m512i first = _mm512_set_epi64(PAIRS4(28), PAIRS4(12), PAIRS4(24), PAIRS4(8), PAIRS4(20),
                                           PAIRS4(4), PAIRS4(16), PAIRS4(0));
    const __m512i second = _mm512_set_epi64(PAIRS4(60), PAIRS4(44), PAIRS4(56), PAIRS4(40), PAIRS4(52),
                                            PAIRS4(36), PAIRS4(48), PAIRS4(32));
    const __m512i six = _mm512_set1_epi16(1 | 64 << 8);
    const __m512i twelve = _mm512_set1_epi32(1 | 4096 << 16);
    const __m512i mantissa = _mm512_set1_epi32(0x7fffff);
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u);
    const __m512i step16 = _mm512_set1_epi32(0x10);
    __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i high[2], low[2];
    high[0] = _mm512_maddubs_epi16(_mm512_permutex2var_epi8(d1, first, d2), six);
    high[1] = _mm512_maddubs_epi16(_mm512_permutex2var_epi8(d1, second, d2), six);
    low[0] = _mm512_maddubs_epi16(_mm512_permutex2var_epi8(d3, first, d4), six);
    low[1] = _mm512_maddubs_epi16(_mm512_permutex2var_epi8(d3, second, d4), six);
    place = _mm512_slli_epi32(place, 24);
    for (unsigned j = 0; j < 4; j++) {
        const __m512i pairs = (j & 1) == 0 ? _mm512_unpacklo_epi16(low[j / 2], high[j / 2])
                                           : _mm512_unpackhi_epi16(low[j / 2], high[j / 2]);
        const __m512i z = _mm512_madd_epi16(pairs, twelve);
        const __m512i x =
            _mm512_srli_epi32(_mm512_maskz_permutexvar_epi8(0x8888888888888888u, place, e), 1); /* e << 23 */
        const __m512i y = _mm512_ternarylogic_epi32(mantissa, z, x, 0xca); /* mantissa ? z : x */
        out[j] = _mm512_ternarylogic_epi32(sign, _mm512_slli_epi32(z, 8), y, 0xca);
        place = _mm512_add_epi32(place, _mm512_slli_epi32(step16, 24));
    }
}

static inline void store(uint32_t *dst, const __m512i out[4], size_t left)
{
    if (left >= 64) {
        for (unsigned j = 0; j < 4; j++) {
            _mm512_storeu_si512(dst + 16 * j, out[j]);
        }
        return;
    }
    for (unsigned j = 0; j < 4 && 16 * j < left; j++) {
        _mm512_mask_storeu_epi32(dst + 16 * j, (__mmask16)low_mask(left - 16 * j), out[j]);
    }
}

static inline void put_escapes(uint32_t *dst, uint64_t mask, const uint8_t *escape, size_t escape_len,
                               size_t *taken)
{
    for (; mask != 0; mask &= mask - 1, (*taken)++) {
        dst[__builtin_ctzll(mask)] = *taken < escape_len ? lay_load32(escape + 4 * *taken) : 0;
    }
}

static void join_explicit(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                          uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                          size_t len, uint32_t base)
{
    const __m512i three = _mm512_set1_epi8(3);
    const __m512i two = _mm512_set1_epi8(2);
    const __m512i low6 = _mm512_set1_epi8(63);
    const __m512i window = _mm512_set1_epi8((char)base);
    cursors c;
    size_t escapes = 0;
    memcpy(c.plane, plane, 4 * sizeof *plane);
    for (size_t i = 0; i < len; i += 64) {
        const __m512i x = _mm512_maskz_loadu_epi8(low_mask(len - i), labels + i);
        const uint64_t has1 = _mm512_cmpgt_epu8_mask(x, three);
        const uint64_t has2 = _mm512_mask_cmpneq_epu8_mask(has1, _mm512_and_si512(x, three), three);
        const uint64_t has3 = _mm512_mask_testn_epi8_mask(has1, x, two);
        const uint64_t has4 = _mm512_mask_testn_epi8_mask(has1, x, three);
        const uint64_t escaped = _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(LAY_LABEL_ESCAPE));
        const __m512i e =
            _mm512_maskz_add_epi8(has1, _mm512_and_si512(_mm512_srli_epi16(x, 2), low6), window);
        __m512i out[4];
        const __m512i d1 = expand(&c, 0, has1), d2 = expand(&c, 1, has2), d3 = expand(&c, 2, has3),
                      d4 = expand(&c, 3, has4);
        assemble(out, d1, d2, d3, d4, e);
        store(dst + i, out, len - i);
        if (__builtin_expect(escaped != 0, 0)) {
            put_escapes(dst + i, escaped, escape, escape_len, &escapes);
        }
    }
    for (unsigned p = 0; p < 4; p++) {
        joined->plane_len[p] = (size_t)(c.plane[p] - plane[p]);
    }
    joined->escape_len = escapes;
}

static uint8_t clamp8(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/*
 * The drop in bytes: with label = e + 1 and c = drop_base + 1, t = K + drop_base - (4e + 3) = K + c - 4
 * label, so
 * floor(t / 4) = floor((K + c) / 4) - label = ((K + c mod 4) >> 2) + floor(c / 4) - label; below 0 it is 0
 * and above 255
 * the cap, which saturating bytes give.
 */
static void join_derived(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                         uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                         const uint8_t *levels, size_t len, const lay_rule *rule)
{
    const int32_t c0 = rule->drop_base + 1;
    const int32_t quarter = (c0 - (c0 & 3)) / 4;
    const __m512i part = _mm512_set1_epi8((char)(c0 & 3));
    const __m512i at = _mm512_set1_epi8((char)clamp8(quarter));
    const __m512i above = _mm512_set1_epi8((char)clamp8(quarter - 255));
    const __m512i below = _mm512_set1_epi8((char)clamp8(-quarter));
    const __m512i cap = _mm512_set1_epi8((char)rule->cap);
    const __m512i one = _mm512_set1_epi8(1), three = _mm512_set1_epi8(3), low6 = _mm512_set1_epi8(63);
    uint8_t keep_bytes[64], rest_bytes[64], last_bytes[64];
    for (unsigned n = 0; n < 64; n++) {
        const unsigned keep = rule->keep[n & 31], rest = keep % 6;
        keep_bytes[n] = (uint8_t)keep;
        rest_bytes[n] = (uint8_t)rest;
        last_bytes[n] = (uint8_t)(0x20 >> (rest & 6)); /* place of the last bit, from the top of a digit */
    }
    const __m512i keep_table = _mm512_loadu_si512(keep_bytes);
    const __m512i rest_table = _mm512_loadu_si512(rest_bytes);
    const __m512i last_table = _mm512_loadu_si512(last_bytes);
    cursors c;
    size_t escapes = 0;
    memcpy(c.plane, plane, sizeof c.plane);
    for (size_t i = 0; i < len; i += 64) {
        const __m512i x = _mm512_maskz_loadu_epi8(low_mask(len - i), labels + i);
        const __m512i k = _mm512_maskz_loadu_epi8(low_mask(len - i), levels + i);
        const uint64_t has = _mm512_cmpgt_epu8_mask(x, one);
        const uint64_t escaped = _mm512_cmpeq_epi8_mask(x, one);
        const __m512i e = _mm512_maskz_sub_epi8(has, x, one);
        const __m512i carry =
            _mm512_and_si512(_mm512_srli_epi16(_mm512_add_epi8(_mm512_and_si512(k, three), part), 2), one);
        const __m512i room = _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(k, 2), low6), carry);
        const __m512i plus = _mm512_adds_epu8(_mm512_subs_epu8(at, x), above);
        const __m512i minus = _mm512_adds_epu8(_mm512_subs_epu8(x, at), below);
        __m512i drop = _mm512_min_epu8(_mm512_subs_epu8(_mm512_adds_epu8(room, plus), minus), cap);
        drop = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(k, k), drop);
        const __m512i keep = _mm512_maskz_permutexvar_epi8(has, drop, keep_table);
        const __m512i rest = _mm512_maskz_permutexvar_epi8(has, drop, rest_table);
        const uint64_t has1 = _mm512_cmpge_epu8_mask(keep, _mm512_set1_epi8(6));
        const uint64_t has2 = _mm512_cmpge_epu8_mask(keep, _mm512_set1_epi8(12));
        const uint64_t has3 = _mm512_cmpge_epu8_mask(keep, _mm512_set1_epi8(18));
        const uint64_t has4 = _mm512_cmpge_epu8_mask(keep, _mm512_set1_epi8(24));
        const uint64_t rest4 = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(4));
        const uint64_t rest2 = _mm512_test_epi8_mask(rest, _mm512_set1_epi8(2));
        const uint64_t rest1 = _mm512_test_epi8_mask(rest, one);
        /* The remainder as a digit whose upper bits are known. */
        __m512i part_digit = _mm512_slli_epi16(expand(&c, 4, rest4), 2);
        __m512i two_bits = expand(&c, 5, rest2);
        two_bits = _mm512_mask_mov_epi8(_mm512_slli_epi16(two_bits, 4), rest4, two_bits);
        const __m512i one_bit = expand(&c, 6, rest1);
        const __m512i last =
            _mm512_maskz_permutexvar_epi8(_mm512_test_epi8_mask(one_bit, one_bit), drop, last_table);
        part_digit = _mm512_ternarylogic_epi32(part_digit, two_bits, last, 0xfe);
        const __m512i d1 = _mm512_mask_mov_epi8(expand(&c, 0, has1), ~has1, part_digit);
        const __m512i d2 = _mm512_mask_mov_epi8(expand(&c, 1, has2), has1 & ~has2, part_digit);
        const __m512i d3 = _mm512_mask_mov_epi8(expand(&c, 2, has3), has2 & ~has3, part_digit);
        const __m512i d4 = _mm512_mask_mov_epi8(expand(&c, 3, has4), has3 & ~has4, part_digit);
        __m512i out[4];
        assemble(out, d1, d2, d3, d4, e);
        store(dst + i, out, len - i);
        if (__builtin_expect(escaped != 0, 0)) {
            put_escapes(dst + i, escaped, escape, escape_len, &escapes);
        }
    }
    for (unsigned p = 0; p < LAY_PLANES_MAX; p++) {
        joined->plane_len[p] = (size_t)(c.plane[p] - plane[p]);
    }
    joined->escape_len = escapes;
}

static void join(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                 uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                 const uint8_t *levels, size_t len, uint32_t base, const lay_rule *rule)
{
    if (rule->derived) {
        join_derived(dst, joined, labels, plane, escape, escape_len, levels, len, rule);
    } else {
        join_explicit(dst, joined, labels, plane, escape, escape_len, len, base);
    }
}

const lay_kernels lay_kernels_avx512 = {merge, unpack, join, 0};

#else
const lay_kernels lay_kernels_avx512 = {0, 0, 0, 0};
#endif
