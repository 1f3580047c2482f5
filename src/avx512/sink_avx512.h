/*
 * Where the values of a decode go, 64 at a time: what join and spread share. Addends are added, and what is
 * not read soon is stored past the caches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SINK_AVX512_H
#define GW_SINK_AVX512_H

#include "avx512/sums_avx512.h"

#if defined(GW_AVX512_COMPILED)

/* 64 elements; 16-bit types fill two registers. A struct, not an array, so that it stays in registers. */
typedef struct quad {
    __m512i v0, v1, v2, v3;
} quad;

/* Stores of values, 64 at a time. */
typedef struct sink {
    uint8_t *dst;
    const uint8_t *addend;
    int stream;
    size_t line_offset; /* STREAM_LINES: bytes from the start of a line to the start of a register's values */
} sink;

/* Non-temporal stores need whole lines of 64 bytes: either dst is aligned, or, for fp32, lines are
 * assembled from two registers. */
enum { STREAM_NOT, STREAM_ALIGNED, STREAM_LINES };

static inline sink sink_begin(void *dst, const gw_joiner *joiner)
{
    const size_t offset = (uintptr_t)dst & 63;
    const int is_possible = offset == 0 || (offset % 4 == 0 && joiner->dtype == GW_FP32);
    const int kind = !joiner->stream || joiner->addend != NULL || !is_possible ? STREAM_NOT
                     : offset == 0                                             ? STREAM_ALIGNED
                                                                               : STREAM_LINES;
    const sink s = {(uint8_t *)dst, joiner->addend, kind, offset};
    return s;
}

/* How values are stored: as they are, in lines, as sums. */
enum { STORE_VALUES, STORE_LINES, STORE_SUMS, STORE_STRICT_SUMS };

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Only escapes are neither +0 nor normal. */
static inline quad flush_values(quad x, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        x.v0 = gw_flush(x.v0);
        x.v1 = gw_flush(x.v1);
        x.v2 = gw_flush(x.v2);
        x.v3 = gw_flush(x.v3);
    } else if (dtype == GW_BF16) {
        const __m512i exponent = _mm512_set1_epi16(0x7f80);
        x.v0 = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(x.v0, exponent), x.v0);
        x.v1 = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(x.v1, exponent), x.v1);
    }
    return x;
}

/* One register of addends from `at` on; size_left bytes are left. */
GW_TEMPLATE __m512i load_part(const uint8_t *src, size_t at, size_t size_left)
{
    return size_left > at ? _mm512_maskz_loadu_epi8(gw_low_mask(size_left - at), src + at)
                          : _mm512_setzero_si512();
}

/* The sums of `left` (or 64) values and the addends from value `at` on. */
GW_TEMPLATE quad add_addends(const sink *s, quad x, size_t at, size_t left, uint32_t dtype, uint32_t strict)
{
    const size_t size = dtype == GW_FP32 ? 4 : 2;
    const uint8_t *src = s->addend + at * size;
    quad a = {x.v2, x.v2, x.v2, x.v2};
    if (left < 64) {
        a.v0 = load_part(src, 0, left * size);
        a.v1 = load_part(src, 64, left * size);
        a.v2 = size == 4 ? load_part(src, 128, left * size) : a.v2;
        a.v3 = size == 4 ? load_part(src, 192, left * size) : a.v3;
    } else {
        a.v0 = _mm512_loadu_si512(src);
        a.v1 = _mm512_loadu_si512(src + 64);
        a.v2 = size == 4 ? _mm512_loadu_si512(src + 128) : a.v2;
        a.v3 = size == 4 ? _mm512_loadu_si512(src + 192) : a.v3;
    }
    x.v0 = gw_sums(a.v0, x.v0, dtype, strict, 1);
    x.v1 = gw_sums(a.v1, x.v1, dtype, strict, 1);
    if (size == 4) {
        x.v2 = gw_sums(a.v2, x.v2, dtype, strict, 1);
        x.v3 = gw_sums(a.v3, x.v3, dtype, strict, 1);
    }
    return x;
}

/* ---- stores -------------------------------------------------------------------------------------------- */

static inline void stream64(uint8_t *dst, __m512i x)
{
    _mm512_stream_si512((__m512i *)(void *)dst, x);
}

/* One register of the last values from `at` on; size_left bytes are left. */
GW_TEMPLATE void store_part(uint8_t *dst, __m512i x, size_t at, size_t size_left)
{
    if (size_left > at) {
        _mm512_mask_storeu_epi8(dst + at, gw_low_mask(size_left - at), x);
    }
}

/* Stores `left` (or 64) values from value `at` on, without assembling lines. */
GW_TEMPLATE void store(const sink *s, quad out, size_t at, size_t left, unsigned size)
{
    uint8_t *dst = s->dst + at * size;
    if (left < 64) {
        store_part(dst, out.v0, 0, left * size);
        store_part(dst, out.v1, 64, left * size);
        if (size == 4) {
            store_part(dst, out.v2, 128, left * size);
            store_part(dst, out.v3, 192, left * size);
        }
    } else if (s->stream != STREAM_NOT) {
        stream64(dst, out.v0);
        stream64(dst + 64, out.v1);
        if (size == 4) {
            stream64(dst + 128, out.v2);
            stream64(dst + 192, out.v3);
        }
    } else {
        _mm512_storeu_si512(dst, out.v0);
        _mm512_storeu_si512(dst + 64, out.v1);
        if (size == 4) {
            _mm512_storeu_si512(dst + 128, out.v2);
            _mm512_storeu_si512(dst + 192, out.v3);
        }
    }
}

/* Lines that start within a register: a line is the end of one register and the start of the next. */
typedef struct line_maker {
    __m512i from;  /* the 16 words of a line in two registers */
    __m512i carry; /* the last register */
} line_maker;

static inline line_maker lines_begin(const sink *s)
{
    const __m512i up = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const line_maker m = {_mm512_add_epi32(up, _mm512_set1_epi32((int)(16 - s->line_offset / 4))), up};
    return m;
}

GW_TEMPLATE __m512i line_of(const line_maker *m, __m512i x, __m512i next)
{
    return _mm512_permutex2var_epi32(x, m->from, next);
}

/* As store() for fp32, in whole lines; the first and the last are ordinary stores of parts. */
GW_TEMPLATE void store_lines(const sink *s, line_maker *m, quad out, size_t at, size_t left)
{
    uint8_t *line = s->dst + at * 4 - s->line_offset;
    if (left < 64) {
        store(s, out, at, left, 4);
        return;
    }
    if (at == 0) {
        store_part(s->dst, out.v0, 0, 64 - s->line_offset);
    } else {
        stream64(line, line_of(m, m->carry, out.v0));
    }
    stream64(line + 64, line_of(m, out.v0, out.v1));
    stream64(line + 128, line_of(m, out.v1, out.v2));
    stream64(line + 192, line_of(m, out.v2, out.v3));
    m->carry = out.v3;
}

static inline void lines_end(const sink *s, const line_maker *m, size_t len)
{
    if (len >= 64) {
        uint8_t *line = s->dst + (len & ~(size_t)63) * 4 - s->line_offset;
        _mm512_mask_storeu_epi8(line, gw_low_mask(s->line_offset), line_of(m, m->carry, m->carry));
    }
}

/* Prefetches the lines of [at, end). Numbers, not pointers: they may be beyond the caller's arrays, where
 * prefetching is harmless. */
static inline void prefetch(uintptr_t at, uintptr_t end)
{
    for (at &= ~(uintptr_t)63; at < end; at += 64) {
        _mm_prefetch((const char *)at, _MM_HINT_T1);
    }
}

enum { PREFETCH_LEN = 1024 };

/* Prefetches the bytes that will be read next, in proportion: the share of values [at, at + len). */
static inline void prefetch_frame(const gw_joiner *joiner, size_t at, size_t len, size_t all)
{
    const uintptr_t next = (uintptr_t)joiner->next, beside = (uintptr_t)joiner->beside;
    prefetch(next + joiner->next_size * at / all, next + joiner->next_size * (at + len) / all);
    prefetch(beside + joiner->beside_size * at / all, beside + joiner->beside_size * (at + len) / all);
}

#endif
#endif
