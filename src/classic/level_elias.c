/*
 * Elias omega codes of gaps and levels, as in section 3 of the QSGD paper. For comparison only, so the code
 * is plain.
 *
 * The code of n >= 1: the binary digits of n, before them those of their number less 1, and so on down to 1,
 * which has none; after all, a 0. Digits come in order of weight, the highest first, into a string of bits
 * that is filled from bit 0 of byte 0 upwards.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/level_chunk.h"

enum {
    COUNT_SIZE = 4, /* u16 levels that are not 0, u16 zero */
    DIGITS_MAX = 16 /* of a gap: at most 2^15 */
};

typedef struct bit_writer {
    uint8_t *dst;
    size_t at, end; /* bits */
} bit_writer;

/* What does not fit is counted and not written. */
static void put_bit(bit_writer *w, uint32_t bit)
{
    if (w->at < w->end) {
        w->dst[w->at / 8] = (uint8_t)(w->dst[w->at / 8] | bit << w->at % 8);
    }
    w->at++;
}

static void put_omega(bit_writer *w, uint32_t n)
{
    uint32_t group[5];
    unsigned count = 0;
    while (n > 1) {
        group[count++] = n;
        n = gw_level_width(n) - 1;
    }
    while (count > 0) {
        const uint32_t digits = group[--count];
        for (unsigned i = gw_level_width(digits); i > 0; i--) {
            put_bit(w, digits >> (i - 1) & 1);
        }
    }
    put_bit(w, 0);
}

size_t gw_level_elias_write(uint8_t *dst, size_t limit, size_t len, const gw_level_scratch *scratch)
{
    size_t coded_len = 0, after = 0; /* the last level that is not 0 */
    if (limit < COUNT_SIZE) {
        return 0;
    }
    GW_MEMSET(dst, 0, limit);
    bit_writer w = {dst + COUNT_SIZE, 0, 8 * (limit - COUNT_SIZE)};
    for (size_t i = 0; i < len && w.at <= w.end; i++) {
        const uint32_t level = scratch->levels[i];
        if (level != 0) {
            put_omega(&w, (uint32_t)(i + 1 - after));
            put_bit(&w, level >> 7);
            put_omega(&w, level >= 128 ? 256 - level : level);
            after = i + 1;
            coded_len++;
        }
    }
    gw_store16(dst, (uint16_t)coded_len);
    return w.at <= w.end ? COUNT_SIZE + gw_run_size(w.at, 1) : 0;
}

typedef struct bit_reader {
    const uint8_t *src;
    size_t at, end; /* bits; at = end + 1: read beyond the end */
} bit_reader;

static uint32_t get_bit(bit_reader *r)
{
    if (r->at >= r->end) {
        r->at = r->end + 1;
        return 0;
    }
    const uint32_t bit = (uint32_t)r->src[r->at / 8] >> r->at % 8 & 1;
    r->at++;
    return bit;
}

/* 0 for a number of more than DIGITS_MAX digits. */
static uint32_t get_omega(bit_reader *r)
{
    uint32_t n = 1;
    while (get_bit(r) != 0) {
        const uint32_t more = n;
        if (more >= DIGITS_MAX) {
            return 0;
        }
        n = 1;
        for (uint32_t i = 0; i < more; i++) {
            n = 2 * n + get_bit(r);
        }
    }
    return n;
}

int gw_level_elias_read(const uint8_t *src, size_t size, size_t len, uint32_t level_max,
                        gw_level_scratch *scratch)
{
    if (size < COUNT_SIZE || !gw_is_zero(src + 2, 2)) {
        return 0;
    }
    const size_t coded_len = gw_load16(src);
    size_t after = 0;
    bit_reader r = {src + COUNT_SIZE, 0, 8 * (size - COUNT_SIZE)};
    GW_MEMSET(scratch->levels, 0, len);
    for (size_t i = 0; i < coded_len; i++) {
        const uint32_t gap = get_omega(&r), sign = get_bit(&r), magnitude = get_omega(&r);
        if (gap == 0 || gap > len - after || magnitude == 0 || magnitude > level_max || r.at > r.end) {
            return 0;
        }
        after += gap;
        scratch->levels[after - 1] = (uint8_t)(sign != 0 ? 0u - magnitude : magnitude);
    }
    if (coded_len == 0 || COUNT_SIZE + gw_run_size(r.at, 1) != size) {
        return 0;
    }
    while (r.at < r.end) {
        if (get_bit(&r) != 0) {
            return 0;
        }
    }
    return 1;
}
