/*
 * AVX2 + BMI2 stages of a chunk decode.
 *
 * Digit planes are never unpacked on their own: one pdep takes 8 values' digits out of the packed plane and
 * puts each into
 * the byte of the value that owns it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "layout_chunk.h"

#if defined(__AVX2__) && defined(__BMI2__)

#include <immintrin.h>
#include <string.h>

/* For a byte m of a bitmap: where each of 8 outputs comes from, left values being bytes 0..7 and right ones
 * 8..15. */
#define ONES(m)                                                                                              \
    (((m)&1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + ((m) >> 4 & 1) + ((m) >> 5 & 1) +          \
     ((m) >> 6 & 1))
#define BELOW(m, j) ONES((m) & ((1 << (j)) - 1))
#define FROM(m, j)  ((uint64_t)(((m) >> (j)&1) != 0 ? 8 + BELOW(m, j) : (j)-BELOW(m, j)) << 8 * (j))
#define ENTRY(m)                                                                                             \
    (FROM(m, 0) | FROM(m, 1) | FROM(m, 2) | FROM(m, 3) | FROM(m, 4) | FROM(m, 5) | FROM(m, 6) | FROM(m, 7))
#define ENTRIES4(m)  ENTRY(m), ENTRY((m) + 1), ENTRY((m) + 2), ENTRY((m) + 3)
#define ENTRIES16(m) ENTRIES4(m), ENTRIES4((m) + 4), ENTRIES4((m) + 8), ENTRIES4((m) + 12)
#define ENTRIES64(m) ENTRIES16(m), ENTRIES16((m) + 16), ENTRIES16((m) + 32), ENTRIES16((m) + 48)
static const uint64_t merge_table[256] = {ENTRIES64(0), ENTRIES64(64), ENTRIES64(128), ENTRIES64(192)};

static inline void merge8(uint8_t *out, const uint8_t *left, const uint8_t *right, unsigned m)
{
    const __m128i l = _mm_loadl_epi64((const __m128i *)(const void *)left);
    const __m128i both =
        _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(l), (const double *)(const void *)right));
    const __m128i from = _mm_loadl_epi64((const __m128i *)(const void *)&merge_table[m]);
    _mm_storel_epi64((__m128i *)(void *)out, _mm_shuffle_epi8(both, from));
}

static size_t merge(uint8_t *out, const uint8_t *left, const uint8_t *right, const uint8_t *bitmap,
                    size_t len)
{
    size_t ones = 0;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        uint32_t m;
        memcpy(&m, bitmap + i / 8, 4);
        const uint8_t *l = left + (i - ones), *r = right + ones;
        const unsigned n1 = (unsigned)_mm_popcnt_u32(m & 0xff), n2 = (unsigned)_mm_popcnt_u32(m & 0xffff),
                       n3 = (unsigned)_mm_popcnt_u32(m & 0xffffff);
        merge8(out + i, l, r, m & 0xff);
        merge8(out + i + 8, l + 8 - n1, r + n1, m >> 8 & 0xff);
        merge8(out + i + 16, l + 16 - n2, r + n2, m >> 16 & 0xff);
        merge8(out + i + 24, l + 24 - n3, r + n3, m >> 24);
        ones += (size_t)_mm_popcnt_u32(m);
    }
    for (; i < len; i += 8) {
        unsigned m = bitmap[i / 8];
        if (len - i < 8) {
            m &= (1u << (len - i)) - 1;
        }
        merge8(out + i, left + (i - ones), right + ones, m);
        ones += (size_t)_mm_popcnt_u32(m);
    }
    return ones;
}

static inline __m256i look_up(__m256i x, const uint8_t *table, unsigned blocks)
{
    __m256i y = _mm256_setzero_si256();
    for (unsigned b = 0; b < blocks; b++) {
        const __m256i t =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(table + 16 * b)));
        /* Bytes of other blocks get a top bit, for which the shuffle gives 0. */
        const __m256i in =
            _mm256_adds_epu8(_mm256_xor_si256(x, _mm256_set1_epi8((char)(16 * b))), _mm256_set1_epi8(0x70));
        y = _mm256_or_si256(y, _mm256_shuffle_epi8(t, in));
    }
    return y;
}

static inline void translate(uint8_t *out, size_t len, const uint8_t *table, unsigned blocks)
{
    for (size_t i = 0; i < len; i += 32) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(out + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), look_up(x, table, blocks));
    }
}

static int unpack(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table)
{
    const size_t size = lay_run_size(len, width);
    const uint64_t spread = ((uint64_t)1 << width) * 0x0101010101010101u - 0x0101010101010101u;
    size_t at = 0, i = 0;
    for (; i < len && at + 8 <= size; i += 8, at += width) {
        uint64_t x;
        memcpy(&x, src + at, 8);
        x = _pdep_u64(x, spread);
        memcpy(out + i, &x, 8);
    }
    for (; i < len; i += 8, at += width) {
        uint64_t x = 0;
        memcpy(&x, src + at, size - at < 8 ? size - at : 8);
        x = _pdep_u64(x, spread);
        memcpy(out + i, &x, 8);
    }
    if (table != NULL) {
        switch (width) {
        case 5:
            translate(out, len, table, 2);
            break;
        case 6:
            translate(out, len, table, 4);
            break;
        case 7:
            translate(out, len, table, 8);
            break;
        default:
            translate(out, len, table, 1);
            break;
        }
    }
    const unsigned used = (unsigned)(len * width % 32);
    return used == 0 || lay_load32(src + size - 4) >> used == 0;
}

/* Digits of 32 values from a packed plane; bytes of mask select the bits of the values that have a digit. */
static inline __m256i take(const uint8_t *plane, size_t *cursor, __m256i mask)
{
    /* Not through memory: a load that spans several younger stores waits for all of them to leave the store
     * queue. */
    const uint64_t m[4] = {(uint64_t)_mm256_extract_epi64(mask, 0), (uint64_t)_mm256_extract_epi64(mask, 1),
                           (uint64_t)_mm256_extract_epi64(mask, 2), (uint64_t)_mm256_extract_epi64(mask, 3)};
    uint64_t digits[4];
    size_t at = *cursor;
    for (unsigned j = 0; j < 4; j++) {
        uint64_t bits;
        memcpy(&bits, plane + at / 8, 8);
        digits[j] = _pdep_u64(bits >> at % 8, m[j]);
        at += (size_t)_mm_popcnt_u64(m[j]);
    }
    *cursor = at;
    return _mm256_set_epi64x((long long)digits[3], (long long)digits[2], (long long)digits[1],
                             (long long)digits[0]);
}

static inline void assemble(__m256i out[4], __m256i d1, __m256i d2, __m256i d3, __m256i d4, __m256i e)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i six = _mm256_set1_epi16(1 | 64 << 8);
    const __m256i twelve = _mm256_set1_epi32(1 | 4096 << 16);
    const __m256i mantissa = _mm256_set1_epi32(0x7fffff);
    const __m256i sign = _mm256_set1_epi32((int)0x80000000u);
    const __m256i high[2] = {_mm256_maddubs_epi16(_mm256_unpacklo_epi8(d2, d1), six),
                             _mm256_maddubs_epi16(_mm256_unpackhi_epi8(d2, d1), six)};
    const __m256i low[2] = {_mm256_maddubs_epi16(_mm256_unpacklo_epi8(d4, d3), six),
                            _mm256_maddubs_epi16(_mm256_unpackhi_epi8(d4, d3), six)};
    const __m256i exponent[2] = {_mm256_unpacklo_epi8(zero, e), _mm256_unpackhi_epi8(zero, e)};
    __m256i x[4];
    for (unsigned j = 0; j < 4; j++) {
        const unsigned h = j / 2;
        const __m256i z = _mm256_madd_epi16(j % 2 == 0 ? _mm256_unpacklo_epi16(low[h], high[h])
                                                       : _mm256_unpackhi_epi16(low[h], high[h]),
                                            twelve);
        const __m256i up = _mm256_srli_epi32(j % 2 == 0 ? _mm256_unpacklo_epi16(zero, exponent[h])
                                                        : _mm256_unpackhi_epi16(zero, exponent[h]),
                                             1);
        x[j] = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(z, mantissa), up),
                               _mm256_and_si256(_mm256_slli_epi32(z, 8), sign));
    }
    out[0] = _mm256_permute2x128_si256(x[0], x[1], 0x20);
    out[1] = _mm256_permute2x128_si256(x[2], x[3], 0x20);
    out[2] = _mm256_permute2x128_si256(x[0], x[1], 0x31);
    out[3] = _mm256_permute2x128_si256(x[2], x[3], 0x31);
}

static inline void store(uint32_t *dst, const __m256i out[4], size_t left)
{
    if (left >= 32) {
        for (unsigned j = 0; j < 4; j++) {
            _mm256_storeu_si256((__m256i *)(void *)(dst + 8 * j), out[j]);
        }
    } else {
        memcpy(dst, out, 4 * left);
    }
}

static inline void put_escapes(uint32_t *dst, uint32_t mask, const uint8_t *escape, size_t escape_len,
                               size_t *taken)
{
    for (; mask != 0; mask &= mask - 1, (*taken)++) {
        dst[__builtin_ctz(mask)] = *taken < escape_len ? lay_load32(escape + 4 * *taken) : 0;
    }
}

/* 32 bytes of a workspace array, zeros beyond left. */
static inline __m256i load_part(const uint8_t *src, size_t left)
{
    if (left >= 32) {
        return _mm256_loadu_si256((const __m256i *)(const void *)src);
    }
    _Alignas(32) uint8_t bytes[32] = {0};
    memcpy(bytes, src, left);
    return _mm256_load_si256((const __m256i *)(const void *)bytes);
}

static inline __m256i at_least(__m256i x, uint8_t y)
{
    const __m256i b = _mm256_set1_epi8((char)y);
    return _mm256_cmpeq_epi8(_mm256_max_epu8(x, b), x);
}

static void join_explicit(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                          uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                          size_t len, uint32_t base)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i three = _mm256_set1_epi8(3), two = _mm256_set1_epi8(2), low6 = _mm256_set1_epi8(63);
    const __m256i window = _mm256_set1_epi8((char)base);
    const uint8_t *const p1 = plane[0], *const p2 = plane[1], *const p3 = plane[2], *const p4 = plane[3];
    size_t c1 = 0, c2 = 0, c3 = 0, c4 = 0;
    size_t escapes = 0;
    for (size_t i = 0; i < len; i += 32) {
        const __m256i x = load_part(labels + i, len - i);
        const __m256i level = _mm256_and_si256(x, three);
        const __m256i has = at_least(x, 4);
        const __m256i m1 = _mm256_and_si256(has, low6);
        const __m256i m2 = _mm256_andnot_si256(_mm256_cmpeq_epi8(level, three), m1);
        const __m256i m3 = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(x, two), zero), m1);
        const __m256i m4 = _mm256_and_si256(_mm256_cmpeq_epi8(level, zero), m1);
        const __m256i e =
            _mm256_and_si256(_mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(x, 2), low6), window), has);
        const __m256i d1 = take(p1, &c1, m1), d2 = take(p2, &c2, m2), d3 = take(p3, &c3, m3),
                      d4 = take(p4, &c4, m4);
        __m256i out[4];
        assemble(out, d1, d2, d3, d4, e);
        store(dst + i, out, len - i);
        const uint32_t escaped =
            (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(LAY_LABEL_ESCAPE)));
        if (__builtin_expect(escaped != 0, 0)) {
            put_escapes(dst + i, escaped, escape, escape_len, &escapes);
        }
    }
    joined->plane_len[0] = c1 / 6;
    joined->plane_len[1] = c2 / 6;
    joined->plane_len[2] = c3 / 6;
    joined->plane_len[3] = c4 / 6;
    joined->escape_len = escapes;
}

static uint8_t clamp8(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

static inline __m256i bit_mask(__m256i x, uint8_t bit)
{
    const __m256i b = _mm256_set1_epi8((char)bit);
    return _mm256_cmpeq_epi8(_mm256_and_si256(x, b), b);
}

/* The arithmetic of the drop is explained in layout_avx512.c. */
static void join_derived(uint32_t *dst, lay_joined *joined, const uint8_t *labels,
                         uint8_t *const plane[LAY_PLANES_MAX], const uint8_t *escape, size_t escape_len,
                         const uint8_t *levels, size_t len, const lay_rule *rule)
{
    const int32_t c0 = rule->drop_base + 1;
    const int32_t quarter = (c0 - (c0 & 3)) / 4;
    const __m256i zero = _mm256_setzero_si256();
    const __m256i part = _mm256_set1_epi8((char)(c0 & 3));
    const __m256i at = _mm256_set1_epi8((char)clamp8(quarter));
    const __m256i above = _mm256_set1_epi8((char)clamp8(quarter - 255));
    const __m256i below = _mm256_set1_epi8((char)clamp8(-quarter));
    const __m256i cap = _mm256_set1_epi8((char)rule->cap);
    const __m256i one = _mm256_set1_epi8(1), three = _mm256_set1_epi8(3), low6 = _mm256_set1_epi8(63);
    uint8_t rest_bytes[32];
    const uint8_t last_bytes[16] = {0x20, 0x20, 0x08, 0x08, 0x02, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (unsigned n = 0; n < 32; n++) {
        rest_bytes[n] = (uint8_t)(rule->keep[n] % 6);
    }
    size_t c[LAY_PLANES_MAX] = {0};
    size_t escapes = 0;
    for (size_t i = 0; i < len; i += 32) {
        const __m256i x = load_part(labels + i, len - i);
        const __m256i k = load_part(levels + i, len - i);
        const __m256i has = at_least(x, 2);
        const __m256i e = _mm256_and_si256(_mm256_sub_epi8(x, one), has);
        const __m256i carry =
            _mm256_and_si256(_mm256_srli_epi16(_mm256_add_epi8(_mm256_and_si256(k, three), part), 2), one);
        const __m256i room = _mm256_add_epi8(_mm256_and_si256(_mm256_srli_epi16(k, 2), low6), carry);
        const __m256i plus = _mm256_adds_epu8(_mm256_subs_epu8(at, x), above);
        const __m256i minus = _mm256_adds_epu8(_mm256_subs_epu8(x, at), below);
        __m256i drop = _mm256_min_epu8(_mm256_subs_epu8(_mm256_adds_epu8(room, plus), minus), cap);
        drop = _mm256_andnot_si256(_mm256_cmpeq_epi8(k, zero), drop);
        const __m256i keep = _mm256_and_si256(look_up(drop, rule->keep, 2), has);
        const __m256i rest = _mm256_and_si256(look_up(drop, rest_bytes, 2), has);
        const __m256i has1 = at_least(keep, 6), has2 = at_least(keep, 12), has3 = at_least(keep, 18),
                      has4 = at_least(keep, 24);
        const __m256i rest4 = bit_mask(rest, 4), rest2 = bit_mask(rest, 2), rest1 = bit_mask(rest, 1);
        const __m256i four_bits = take(plane[4], &c[4], _mm256_and_si256(rest4, _mm256_set1_epi8(15)));
        const __m256i two_bits = take(plane[5], &c[5], _mm256_and_si256(rest2, three));
        const __m256i one_bit = take(plane[6], &c[6], _mm256_and_si256(rest1, one));
        const __m256i last = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)last_bytes)), rest);
        __m256i digit = _mm256_slli_epi16(four_bits, 2);
        digit = _mm256_or_si256(digit, _mm256_blendv_epi8(_mm256_slli_epi16(two_bits, 4), two_bits, rest4));
        digit = _mm256_or_si256(digit, _mm256_and_si256(last, _mm256_cmpeq_epi8(one_bit, one)));
        __m256i d1 = take(plane[0], &c[0], _mm256_and_si256(has1, low6));
        __m256i d2 = take(plane[1], &c[1], _mm256_and_si256(has2, low6));
        __m256i d3 = take(plane[2], &c[2], _mm256_and_si256(has3, low6));
        __m256i d4 = take(plane[3], &c[3], _mm256_and_si256(has4, low6));
        d1 = _mm256_or_si256(d1, _mm256_andnot_si256(has1, digit));
        d2 = _mm256_or_si256(d2, _mm256_and_si256(_mm256_andnot_si256(has2, has1), digit));
        d3 = _mm256_or_si256(d3, _mm256_and_si256(_mm256_andnot_si256(has3, has2), digit));
        d4 = _mm256_or_si256(d4, _mm256_and_si256(_mm256_andnot_si256(has4, has3), digit));
        __m256i out[4];
        assemble(out, d1, d2, d3, d4, e);
        store(dst + i, out, len - i);
        const uint32_t escaped = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, one));
        if (__builtin_expect(escaped != 0, 0)) {
            put_escapes(dst + i, escaped, escape, escape_len, &escapes);
        }
    }
    for (unsigned p = 0; p < LAY_PLANES_MAX; p++) {
        joined->plane_len[p] = c[p] / (p < 4 ? 6 : 4u >> (p - 4));
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

const lay_kernels lay_kernels_avx2 = {merge, unpack, join, 1};

#else
const lay_kernels lay_kernels_avx2 = {0, 0, 0, 0};
#endif
