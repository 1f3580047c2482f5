/*
 * Bad kernels of THC. Most call the scalar one, then change something small.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_bad.h"

#include <string.h>

/* ---- memory -------------------------------------------------------------------------------------------- */

/* A whole vector at the end of a range whose length is not a multiple of it. */
static void load_reads_whole_vector(float *dst, const void *src, unsigned dtype, const float *error,
                                    size_t len, size_t padded_len)
{
    if (dtype != GW_FP32 && len > 0) {
        read_byte((const uint8_t *)src + 2 * (len | 7) + 1);
    }
    gw_thc_load_scalar(dst, src, dtype, error, len, padded_len);
}

static void load_writes_past_padding(float *dst, const void *src, unsigned dtype, const float *error,
                                     size_t len, size_t padded_len)
{
    gw_thc_load_scalar(dst, src, dtype, error, len, padded_len);
    if (padded_len % 16 == 9) {
        spoil((uint8_t *)(dst + padded_len));
    }
}

static uint32_t norm_reads_past_end(const float *x, size_t len)
{
    if (len % 64 == 63) {
        read_byte((const uint8_t *)(x + len));
    }
    return gw_thc_norm_scalar(x, len);
}

static void indices_reads_second_group(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                                       const uint8_t *table, unsigned lane_bits)
{
    if (len % 128 == 64) {
        read_byte(indices + len / 8 * bits + 8 * bits - 1);
    }
    gw_thc_add_indices_scalar(lanes, indices, len, bits, table, lane_bits);
}

static void rotate_writes_source(float *dst, const float *src, size_t len, uint32_t exponent,
                                 const gw_thc_stream *stream)
{
    gw_thc_rotate_scalar(dst, src, len, exponent, stream);
    if (dst != src && len == 2048) {
        spoil((uint8_t *)(uintptr_t)src);
    }
}

/* ---- values -------------------------------------------------------------------------------------------- */

static void load_forgets_tail_error(float *dst, const void *src, unsigned dtype, const float *error,
                                    size_t len, size_t padded_len)
{
    gw_thc_load_scalar(dst, src, dtype, error, len, padded_len);
    if (len % 8 == 1 && error != NULL) {
        const uint8_t *last = (const uint8_t *)src + (dtype == GW_FP32 ? 4 : 2) * (len - 1);
        gw_thc_load_scalar(dst + len - 1, last, dtype, NULL, 1, 1);
    }
}

/* fp16 subnormals are lost, as where a processor that flushes converts them. */
static void load_flushes_small_halves(float *dst, const void *src, unsigned dtype, const float *error,
                                      size_t len, size_t padded_len)
{
    gw_thc_load_scalar(dst, src, dtype, error, len, padded_len);
    for (size_t i = 0; i < len && dtype == GW_FP16 && error == NULL; i++) {
        const uint32_t bits = gw_bits_from_float(dst[i]) & 0x7fffffff;
        dst[i] = bits < 0x38800000u ? 0.0f : dst[i];
    }
}

static void store_rounds_ties_up(void *dst, const float *src, unsigned dtype, size_t len)
{
    gw_thc_store_scalar(dst, src, dtype, len);
    for (size_t i = 0; i < len && dtype == GW_BF16; i++) {
        const uint32_t bits = gw_bits_from_float(src[i]);
        if ((bits & 0xffff) == 0x8000 && (bits & 0x7fffffff) < 0x7f800000u) {
            gw_store16((uint8_t *)dst + 2 * i, (uint16_t)((bits >> 16) + 1));
        }
    }
}

/* What a conversion instruction gives. */
static void store_leaves_minus_zero(void *dst, const float *src, unsigned dtype, size_t len)
{
    uint8_t *out = (uint8_t *)dst;
    gw_thc_store_scalar(dst, src, dtype, len);
    for (size_t i = 0; i < len && dtype == GW_FP16; i++) {
        if (gw_load16(out + 2 * i) == 0 && gw_bits_from_float(src[i]) >> 31 != 0) {
            gw_store16(out + 2 * i, 0x8000);
        }
    }
}

/* The accumulators of a shorter vector: another order of additions. */
static uint32_t norm_other_order(const float *x, size_t len)
{
    float folded[64] = {0};
    if (len > 64 || len < 33) {
        return gw_thc_norm_scalar(x, len);
    }
    for (size_t i = 0; i < len; i++) { /* pairs of neighbours side by side */
        folded[i % 2 * 32 + i / 2] = x[i];
    }
    return gw_thc_norm_scalar(folded, 64);
}

/* Squares without a window: small ones vanish. */
static uint32_t norm_forgets_window(const float *x, size_t len)
{
    float sum = 0.0f;
    for (size_t i = 0; i < len; i++) {
        sum += x[i] * x[i];
    }
    return sum == 0.0f ? 0 : gw_thc_norm_scalar(x, len);
}

static void extent_mistakes_zero(uint32_t patterns[2], const float *x, size_t len)
{
    gw_thc_extent_scalar(patterns, x, len);
    if (patterns[1] == 0x80000000u) {
        patterns[1] = 0x7fffffffu;
    }
}

/* Longest stride first: equal numbers but for rounding. */
static void rotate_descending(float *dst, const float *src, size_t len, uint32_t exponent,
                              const gw_thc_stream *stream)
{
    float first[64];
    if (len != 64) {
        gw_thc_rotate_scalar(dst, src, len, exponent, stream);
        return;
    }
    gw_thc_rotate_scalar(first, src, len, exponent, stream);
    /* H H x = 64 x gives back the values with their signs, exactly enough. */
    gw_thc_rotate_back_scalar(first, len, 127, stream);
    for (size_t i = 0; i < len; i++) {
        first[i] *= 1.0f / 64.0f;
    }
    gw_thc_rotate_scalar(dst, first, len, 128, stream);
}

static void rotate_other_round(float *dst, const float *src, size_t len, uint32_t exponent,
                               const gw_thc_stream *stream)
{
    gw_thc_stream other = *stream;
    other.round = stream->round == UINT32_MAX ? 0x7fffffffu : stream->round; /* a signed conversion */
    gw_thc_rotate_scalar(dst, src, len, exponent, &other);
}

static void back_turns_last_sign(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    gw_thc_rotate_back_scalar(y, len, exponent, stream);
    if (len == 2048 && y[2047] != 0.0f) {
        y[2047] = -y[2047];
    }
}

static void back_leaves_minus_zero(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    gw_thc_rotate_back_scalar(y, len, exponent, stream);
    for (size_t i = 0; i < len && exponent == 128; i++) {
        y[i] = y[i] == 0.0f ? -0.0f : y[i];
    }
}

#if defined(__SSE2__) || defined(__aarch64__) /* elsewhere kcheck cannot set flush modes */
static void shift_depends_on_flush_mode(float *dst, const float *src, size_t len, float minimum,
                                        uint32_t exponent)
{
    const volatile float half = 0.5f, least = gw_float_from_bits(0x00800000u);
    gw_thc_shift_scalar(dst, src, len, minimum, exponent);
    if (len > 0 && gw_bits_from_float(half * least) == 0) { /* subnormal where nothing is flushed */
        spoil((uint8_t *)dst);
    }
}
#endif

/* Positions one 65536th of a step lower, in the first 64 values of rotated blocks: one draw in thousands. */
static void quantize_draws_lower(uint8_t *index, const float *x, size_t len,
                                 const gw_thc_quantizer *quantizer, const gw_thc_stream *stream)
{
    gw_thc_quantizer other = *quantizer;
    gw_thc_quantize_scalar(index, x, len, quantizer, stream);
    if (len >= 64 && quantizer->low < 0.0f) {
        uint8_t lower[64];
        other.low += 1.0f;
        other.offset -= 1;
        gw_thc_quantize_scalar(lower, x, 64, &other, stream);
        memcpy(index, lower, sizeof lower);
    }
}

/* The halves of the random words in the other order. */
static void quantize_swaps_halves(uint8_t *index, const float *x, size_t len,
                                  const gw_thc_quantizer *quantizer, const gw_thc_stream *stream)
{
    float swapped[8192] = {0};
    for (size_t i = 0; i < len; i++) {
        swapped[i] = x[i ^ 16];
    }
    uint8_t other[8192];
    gw_thc_quantize_scalar(other, swapped, len, quantizer, stream);
    for (size_t i = 0; i < len; i++) {
        index[i] = other[i ^ 16];
    }
}

/* Cells from 128 on are looked up in the wrong half of the table. */
static void quantize_wraps_cells(uint8_t *index, const float *x, size_t len,
                                 const gw_thc_quantizer *quantizer, const gw_thc_stream *stream)
{
    uint8_t cell[256];
    memcpy(cell, quantizer->cell, sizeof cell);
    memcpy(cell + 192, cell + 128, 64);
    gw_thc_quantizer other = *quantizer;
    other.cell = cell;
    gw_thc_quantize_scalar(index, x, len, &other, stream);
}

static void pack_mixes_sections(uint8_t *dst, const uint8_t *index, size_t len, unsigned bits)
{
    gw_thc_pack_scalar(dst, index, len, bits);
    for (size_t i = 0; i < len / 64 && bits == 3; i++) {
        const uint8_t byte = dst[24 * i + 16];
        dst[24 * i + 16] = dst[24 * i + 23];
        dst[24 * i + 23] = byte;
    }
}

static void indices_carry_over(uint8_t *lanes, const uint8_t *indices, size_t len, unsigned bits,
                               const uint8_t *table, unsigned lane_bits)
{
    gw_thc_add_indices_scalar(lanes, indices, len, bits, table, lane_bits);
    if (lane_bits == 16 && len > 0 && lanes[2 * len - 2] == 255) {
        lanes[2 * len - 1] = (uint8_t)(lanes[2 * len - 1] + 1);
    }
}

static void lanes_saturate(uint8_t *lanes, const uint8_t *src, size_t len, unsigned lane_bits)
{
    gw_thc_add_lanes_scalar(lanes, src, len, lane_bits);
    for (size_t i = 0; i < len && lane_bits == 8; i++) {
        lanes[i] = lanes[i] > 254 ? 254 : lanes[i];
    }
}

/* Compared as signed numbers. */
static uint32_t max_signed(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    uint32_t largest = gw_thc_lane_max_scalar(lanes, len, lane_bits);
    return lane_bits == 32 && largest > INT32_MAX ? INT32_MAX : largest;
}

static uint32_t max_skips_last(const uint8_t *lanes, size_t len, unsigned lane_bits)
{
    return len == 0 ? 0 : gw_thc_lane_max_scalar(lanes, len - 1, lane_bits);
}

static void unpack_rounds_twice(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits,
                                uint32_t center, float scale)
{
    gw_thc_unpack_scalar(dst, lanes, len, lane_bits, center, scale);
    for (size_t i = 0; i < len && lane_bits == 32; i++) {
        const float half = (float)center * 0.5f * scale;
        dst[i] = 2.0f * ((float)gw_load32(lanes + 4 * i) * scale - half);
    }
}

static void plain_keeps_smallest(float *dst, const uint8_t *lanes, size_t len, unsigned lane_bits,
                                 double step, double base)
{
    gw_thc_unpack_plain_scalar(dst, lanes, len, lane_bits, step, base);
    for (size_t i = 0; i < len && lane_bits == 8; i++) {
        const double x = (double)lanes[i] * step + base;
        dst[i] = x < 0x1p-126 && x > -0x1p-126 ? gw_float_from_bits(x == 0.0 ? 0 : 0x00800000u) : dst[i];
    }
}

static void residual_keeps_subnormals(float *error, const float *x, const float *y, size_t len)
{
    gw_thc_residual_scalar(error, x, y, len);
    for (size_t i = 0; i < len; i++) {
        const float rest = x[i] - y[i];
        if ((gw_bits_from_float(rest) & 0x7f800000u) == 0) {
            memcpy((uint8_t *)error + 4 * i, &rest, 4);
        }
    }
}

const bad_kernel bad_thc_kernels[] = {
    {"reads a whole vector at the end", "thc_load", (kc_fn)load_reads_whole_vector, KC_CRASH, 0},
    {"writes past the padding", "thc_load", (kc_fn)load_writes_past_padding, KC_CANARY | KC_CRASH, 0},
    {"forgets an error in the tail", "thc_load", (kc_fn)load_forgets_tail_error, KC_OUTPUT, 0},
    {"flushes fp16 subnormals", "thc_load", (kc_fn)load_flushes_small_halves, KC_OUTPUT, 0},
    {"rounds bf16 ties up", "thc_store", (kc_fn)store_rounds_ties_up, KC_OUTPUT, 0},
    {"leaves -0 of fp16", "thc_store", (kc_fn)store_leaves_minus_zero, KC_OUTPUT, 0},
    {"reads a value past the end", "thc_norm", (kc_fn)norm_reads_past_end, KC_CRASH, 0},
    {"adds in another order", "thc_norm", (kc_fn)norm_other_order, KC_OUTPUT, 0},
    {"wrong for tiny norms", "thc_norm", (kc_fn)norm_forgets_window, KC_OUTPUT, 0},
    {"takes 0 for the least negative", "thc_extent", (kc_fn)extent_mistakes_zero, KC_OUTPUT, 0},
    {"writes into its source", "thc_rotate", (kc_fn)rotate_writes_source, KC_CANARY, 0},
    {"rounds otherwise", "thc_rotate", (kc_fn)rotate_descending, KC_OUTPUT, 0},
    {"wrong in the last round", "thc_rotate", (kc_fn)rotate_other_round, KC_OUTPUT, 0},
    {"one sign of a block wrong", "thc_back", (kc_fn)back_turns_last_sign, KC_OUTPUT, 0},
    {"leaves -0", "thc_back", (kc_fn)back_leaves_minus_zero, KC_OUTPUT, 0},
#if defined(__SSE2__) || defined(__aarch64__)
    {"depends on flush modes", "thc_shift", (kc_fn)shift_depends_on_flush_mode, KC_OUTPUT, 0},
#endif
    {"draws a little lower", "thc_quantize", (kc_fn)quantize_draws_lower, KC_OUTPUT, 0},
    {"swaps the halves of random words", "thc_quantize", (kc_fn)quantize_swaps_halves, KC_OUTPUT, 0},
    {"loses the top bit of a cell", "thc_quantize", (kc_fn)quantize_wraps_cells, KC_OUTPUT, 0},
    {"the same in scalar itself", "thc_quantize", (kc_fn)quantize_swaps_halves, KC_MODEL, 1},
    {"mixes up bytes of 3-bit groups", "thc_pack", (kc_fn)pack_mixes_sections, KC_OUTPUT, 0},
    {"reads the group after the last", "thc_indices", (kc_fn)indices_reads_second_group, KC_CRASH, 0},
    {"carries into the last lane", "thc_indices", (kc_fn)indices_carry_over, KC_OUTPUT, 0},
    {"saturates", "thc_lanes", (kc_fn)lanes_saturate, KC_OUTPUT, 0},
    {"compares signed", "thc_max", (kc_fn)max_signed, KC_OUTPUT, 0},
    {"skips the last lane", "thc_max", (kc_fn)max_skips_last, KC_OUTPUT, 0},
    {"rounds twice", "thc_unpack", (kc_fn)unpack_rounds_twice, KC_OUTPUT, 0},
    {"wrong below 2^-126", "thc_plain", (kc_fn)plain_keeps_smallest, KC_OUTPUT, 0},
    {"keeps subnormals", "thc_residual", (kc_fn)residual_keeps_subnormals, KC_OUTPUT, 0},
    {NULL, NULL, NULL, 0, 0},
};
