/*
 * Levels of a chunk to bytes and back: packed, or with masks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/level_chunk.h"

/* ---- packed -------------------------------------------------------------------------------------------- */

/* level + level_max in as many bits as 2 * level_max needs. */
static void pack(uint8_t *dst, size_t len, const gw_level_form *form, const gw_level_scratch *s)
{
    const unsigned width = gw_level_width(2 * form->level_max);
    const uint8_t base = (uint8_t)(0u - form->level_max);
    if (width < 8) {
        form->kernels->gcomp.pack(dst, s->levels, len, width, base);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        dst[i] = (uint8_t)(s->levels[i] - base);
    }
    GW_MEMSET(dst + len, 0, gw_round4(len) - len);
}

static int is_any(const uint8_t *bytes, size_t len, uint8_t byte)
{
    uint8_t found = 0;
    for (size_t i = 0; i < len; i++) {
        found |= bytes[i] == byte;
    }
    return found != 0;
}

/* The same for eight bits: vector instructions of any compiler. */
static int unpack_bytes(uint8_t *out, const uint8_t *src, size_t len, uint32_t most, uint8_t base)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < len; i++) {
        const uint8_t code = src[i];
        largest = code > largest ? code : largest;
        out[i] = (uint8_t)(code + base);
    }
    return largest <= most && gw_is_zero(src + len, gw_round4(len) - len);
}

/* `len` numbers of `width` bits to out: number + base, or GW_LEVEL_INVALID above `most`. Returns 0 if one is
 * above, or if padding is not zero. */
static int unpack(uint8_t *out, const uint8_t *src, size_t len, const gw_level_form *form, uint32_t most,
                  uint8_t base, gw_level_scratch *s)
{
    const unsigned width = gw_level_width(most);
    if (width == 8) {
        return unpack_bytes(out, src, len, most, base);
    }
    for (uint32_t code = 0; code < 256; code++) {
        s->table[code] = (uint8_t)(code <= most ? code + base : GW_LEVEL_INVALID);
    }
    if (!form->kernels->gcomp.unpack(out, src, len, width, s->table)) {
        return 0;
    }
    return !is_any(out, len, GW_LEVEL_INVALID);
}

/* ---- masks --------------------------------------------------------------------------------------------- */

static void magnitudes_of(uint8_t *out, const uint8_t *levels, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)(levels[i] >= 128 ? 0u - levels[i] : levels[i]);
    }
}

/*
 * Counts, mask of the levels that are not 0, their signs, mask of the magnitudes above 1, those less 2.
 * Returns the size in s->bytes, 0 if all levels are 0.
 */
static size_t write_masks(size_t len, const gw_level_form *form, gw_level_scratch *s)
{
    const gw_kernels *k = form->kernels;
    uint8_t *const dst = s->bytes;
    size_t above_len = 0, at = 4;
    const size_t coded_len = k->gcomp.partition(NULL, s->coded, s->bits, s->levels, len, 1);
    if (coded_len == 0) {
        return 0;
    }
    at += gw_mask_write(dst + at, s->bits, len, k, &s->mask);
    k->gcomp.partition(NULL, NULL, dst + at, s->coded, coded_len, 128);
    at += gw_run_size(coded_len, 1);
    if (form->level_max > 1) {
        magnitudes_of(s->magnitudes, s->coded, coded_len);
        above_len = k->gcomp.partition(NULL, s->above, s->bits, s->magnitudes, coded_len, 2);
        at += gw_mask_write(dst + at, s->bits, coded_len, k, &s->mask);
    }
    if (form->level_max > 2) {
        const unsigned width = gw_level_width(form->level_max - 2);
        k->gcomp.pack(dst + at, s->above, above_len, width, 2);
        at += gw_run_size(above_len, width);
    }
    gw_store16(dst, (uint16_t)coded_len);
    gw_store16(dst + 2, (uint16_t)above_len);
    return at;
}

typedef struct reader {
    const uint8_t *at;
    size_t size; /* bytes left */
} reader;

/* The next `size` bytes, NULL if there are not as many. */
static const uint8_t *next(reader *r, size_t size)
{
    const uint8_t *part = r->at;
    if (size > r->size) {
        return NULL;
    }
    r->at += size;
    r->size -= size;
    return part;
}

static int next_mask(uint8_t *bits, reader *r, size_t len, const gw_kernels *kernels, gw_level_scratch *s)
{
    const size_t size = gw_mask_read(bits, len, r->at, r->size, kernels, &s->mask);
    return size != SIZE_MAX && next(r, size) != NULL;
}

/* Magnitudes of the levels that are not 0. */
static int read_magnitudes(reader *r, size_t coded_len, size_t above_len, const gw_level_form *form,
                           gw_level_scratch *s)
{
    gw_child one = {NULL, 1}, above = {NULL, 2};
    if (form->level_max == 1) {
        GW_MEMSET(s->magnitudes, 1, coded_len);
        return above_len == 0;
    }
    if (!next_mask(s->bits, r, coded_len, form->kernels, s)) {
        return 0;
    }
    if (form->level_max > 2) {
        const uint32_t most = form->level_max - 2;
        const uint8_t *packed = next(r, gw_run_size(above_len, gw_level_width(most)));
        if (packed == NULL || !unpack(s->above, packed, above_len, form, most, 2, s)) {
            return 0;
        }
        above.labels = s->above;
    }
    return form->kernels->gcomp.merge(s->magnitudes, one, above, s->bits, coded_len) == above_len;
}

static void apply_signs(uint8_t *out, const uint8_t *magnitudes, const uint8_t *is_negative, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)(is_negative[i] != 0 ? 0u - magnitudes[i] : magnitudes[i]);
    }
}

static int read_masks(reader *r, size_t len, const gw_level_form *form, gw_level_scratch *s)
{
    const gw_kernels *k = form->kernels;
    const uint8_t *counts = next(r, 4);
    if (counts == NULL) {
        return 0;
    }
    const size_t coded_len = gw_load16(counts), above_len = gw_load16(counts + 2);
    if (coded_len == 0 || coded_len > len || above_len > coded_len ||
        !next_mask(s->zero_bits, r, len, k, s)) {
        return 0;
    }
    const uint8_t *signs = next(r, gw_run_size(coded_len, 1));
    if (signs == NULL || !k->gcomp.unpack(s->coded, signs, coded_len, 1, NULL) ||
        !read_magnitudes(r, coded_len, above_len, form, s) || r->size != 0) {
        return 0;
    }
    apply_signs(s->coded, s->magnitudes, s->coded, coded_len);
    const gw_child zero = {NULL, 0}, coded = {s->coded, 0};
    return k->gcomp.merge(s->levels, zero, coded, s->zero_bits, len) == coded_len;
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

int gw_level_write(uint8_t *dst, size_t capacity, size_t len, const gw_level_form *form,
                   gw_level_scratch *scratch, uint32_t *entry)
{
    const size_t packed_size = gw_level_packed_size(form->level_max, len);
    if (form->coding != GW_CLASSIC_CODING_PACKED) {
        const int is_zero = gw_is_zero(scratch->levels, len);
        size_t size = 0;
        if (!is_zero) {
            size = form->coding == GW_CLASSIC_CODING_MASK
                       ? write_masks(len, form, scratch)
                       : gw_level_elias_write(scratch->bytes, packed_size, len, scratch);
        }
        if (is_zero || (size != 0 && size < packed_size)) {
            *entry = (uint32_t)size | GW_LEVEL_CODED;
            if (size <= capacity) {
                GW_MEMCPY(dst, scratch->bytes, size);
            }
            return size <= capacity;
        }
    }
    *entry = (uint32_t)packed_size;
    if (packed_size > capacity) {
        return 0;
    }
    pack(dst, len, form, scratch);
    return 1;
}

int gw_level_read(const uint8_t *src, uint32_t entry, size_t len, const gw_level_form *form,
                  gw_level_scratch *scratch)
{
    const size_t size = entry & ~3u, packed_size = gw_level_packed_size(form->level_max, len);
    reader r = {src, size};
    if ((entry & 3) == 0) {
        return size == packed_size && unpack(scratch->levels, src, len, form, 2 * form->level_max,
                                             (uint8_t)(0u - form->level_max), scratch);
    }
    if ((entry & 3) != GW_LEVEL_CODED || form->coding == GW_CLASSIC_CODING_PACKED || size >= packed_size) {
        return 0;
    }
    if (size == 0) {
        GW_MEMSET(scratch->levels, 0, len);
        return 1;
    }
    return form->coding == GW_CLASSIC_CODING_MASK
               ? read_masks(&r, len, form, scratch)
               : gw_level_elias_read(src, size, len, form->level_max, scratch);
}
