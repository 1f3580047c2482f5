/*
 * Gather and spread: the bytes and the values of the set bits of a zero mask, 64 values a step
 * (docs/format.md section 5.3). A compress is all of gather, an expand for each register all of spread.
 *
 * Bound of spread for fp32 on Zen 4, two vector instructions of 512 bits a cycle: 4 loads of what is next, 4
 * expands of two each, 4 stores, which take two cycles each: 8 for 64 values, 0.13 cycles a value.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/sink_avx512.h"

#if defined(GW_AVX512_COMPILED)

GW_TEMPLATE size_t gather(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len,
                          int has_bytes)
{
    size_t n = 0, i = 0;
    for (; i + 64 <= len; i += 64) {
        const uint64_t bits = gw_load64(bitmap + i / 8);
        if (has_bytes) {
            _mm_prefetch((const char *)((uintptr_t)bytes + len + i), _MM_HINT_T1); /* of the next chunk */
            _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(bytes + i)));
        }
        n += (size_t)_mm_popcnt_u64(bits);
    }
    if (i < len) {
        const uint64_t valid = gw_low_mask(len - i), run = gw_low_mask(8 * gw_run_size(len - i, 1));
        const uint64_t bits = gw_load64(bitmap + i / 8) & run;
        if ((bits & ~valid) != 0) {
            return SIZE_MAX;
        }
        if (has_bytes) {
            const __m512i x = _mm512_maskz_loadu_epi8(valid, bytes + i);
            _mm512_storeu_si512(out + n, _mm512_maskz_compress_epi8(bits, x));
        }
        n += (size_t)_mm_popcnt_u64(bits);
    }
    return n;
}

size_t gw_gather_avx512(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len)
{
    return bytes != NULL ? gather(out, bytes, bitmap, len, 1) : gather(out, NULL, bitmap, len, 0);
}

/* The next values at the set bits of a register's mask. The zero is from memory: a zero-masked expand would
 * depend on its destination register. */
GW_TEMPLATE __m512i expand(const uint8_t **next, uint64_t bits, __m512i zero, unsigned size)
{
    const __m512i x = _mm512_loadu_si512(*next);
    *next += size * (size_t)_mm_popcnt_u64(bits);
    return size == 4 ? _mm512_mask_expand_epi32(zero, (__mmask16)bits, x)
                     : _mm512_mask_expand_epi16(zero, (__mmask32)bits, x);
}

/* 64 values. */
GW_TEMPLATE quad expand64(const uint8_t **next, uint64_t bits, __m512i zero, unsigned size)
{
    quad out = {zero, zero, zero, zero};
    if (size == 4) {
        out.v0 = expand(next, bits & 0xffff, zero, size);
        out.v1 = expand(next, bits >> 16 & 0xffff, zero, size);
        out.v2 = expand(next, bits >> 32 & 0xffff, zero, size);
        out.v3 = expand(next, bits >> 48, zero, size);
    } else {
        out.v0 = expand(next, bits & 0xffffffff, zero, size);
        out.v1 = expand(next, bits >> 32, zero, size);
    }
    return out;
}

GW_TEMPLATE void spread_range(const sink *s, const uint8_t *next, const uint8_t *bitmap, size_t len,
                              const gw_joiner *joiner, uint32_t dtype, int form)
{
    const unsigned size = dtype == GW_FP32 ? 4 : 2;
    const __m512i zero = _mm512_set1_epi8((char)joiner->floor[0]);
    line_maker maker = lines_begin(s);
    for (size_t at = 0; at < len; at += PREFETCH_LEN) {
        const size_t end = len - at < PREFETCH_LEN ? len : at + PREFETCH_LEN;
        prefetch_frame(joiner, at, end - at, len);
        for (size_t i = at; i < end; i += 64) {
            const uint64_t bits = gw_load64(bitmap + i / 8) & gw_low_mask(len - i);
            quad out = expand64(&next, bits, zero, size);
            if (form == STORE_LINES) {
                store_lines(s, &maker, out, i, len - i);
            } else {
                if (form == STORE_SUMS) {
                    out = flush_values(out, dtype);
                }
                if (form >= STORE_SUMS) {
                    out = add_addends(s, out, i, len - i, dtype, form == STORE_STRICT_SUMS);
                }
                store(s, out, i, len - i, size);
            }
        }
    }
    if (form == STORE_LINES) {
        lines_end(s, &maker, len);
    }
}

#define SPREAD_CASE(dtype, form)                                                                             \
    case (dtype)*4 + (form):                                                                                 \
        spread_range(&s, (const uint8_t *)values, bitmap, len, joiner, (dtype), (form));                     \
        break

void gw_spread_avx512(void *dst, const void *values, const uint8_t *bitmap, size_t len,
                      const gw_joiner *joiner)
{
    const sink s = sink_begin(dst, joiner);
    const unsigned form = s.addend != NULL           ? joiner->strict ? STORE_STRICT_SUMS : STORE_SUMS
                          : s.stream == STREAM_LINES ? STORE_LINES
                                                     : STORE_VALUES;
    switch (joiner->dtype * 4 + form) {
        SPREAD_CASE(GW_FP32, STORE_VALUES);
        SPREAD_CASE(GW_FP32, STORE_LINES);
        SPREAD_CASE(GW_FP32, STORE_SUMS);
        SPREAD_CASE(GW_FP32, STORE_STRICT_SUMS);
        SPREAD_CASE(GW_BF16, STORE_VALUES);
        SPREAD_CASE(GW_BF16, STORE_SUMS);
        SPREAD_CASE(GW_BF16, STORE_STRICT_SUMS);
        SPREAD_CASE(GW_FP16, STORE_VALUES);
        SPREAD_CASE(GW_FP16, STORE_SUMS);
        SPREAD_CASE(GW_FP16, STORE_STRICT_SUMS);
    default:
        break;
    }
}

#else
typedef int gw_spread_avx512_not_built; /* a translation unit must not be empty */
#endif
