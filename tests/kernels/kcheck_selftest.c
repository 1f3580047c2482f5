/*
 * Test of the test: kernels with typical faults of vector kernels. Each must be reported, and for the right
 * reason; the scalar kernels, run in the same way, must not.
 *
 * Most bad kernels call the scalar one, then change something small.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_bad.h"
#include "gcomp/map_rule.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Reads of these are not optimised away. */
static volatile uint8_t sink;
static volatile uint8_t zero_byte;

/* ---- memory -------------------------------------------------------------------------------------------- */

static void add_writes_past_end(void *out, const void *accumulator, const void *values, size_t len,
                                uint32_t strict)
{
    gw_add_fp32_scalar(out, accumulator, values, len, strict);
    if (len % 8 == 5) {
        spoil((uint8_t *)out + 4 * len);
    }
}

static uint32_t crc_reads_past_end(uint32_t crc, const uint8_t *src, size_t size)
{
    if (size % 16 == 15) {
        read_byte(src + size);
    }
    return gw_crc32c_scalar(crc, src, size);
}

static uint32_t crc_reads_before_start(uint32_t crc, const uint8_t *src, size_t size)
{
    if (size > 64) {
        read_byte(src - 1);
    }
    return gw_crc32c_scalar(crc, src, size);
}

/* A load of a whole vector of map bytes. */
static void round_reads_map_bytes_past_end(void *out, const gw_span *span, const gw_round_rule *rule)
{
    if (span->len > 0 && !rule->constant) {
        read_byte(span->map_bytes + (span->len | 15));
    }
    gw_round_scalar(out, span, rule);
}

static size_t merge_reads_past_slop(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                    size_t len)
{
    const size_t count = gw_merge_scalar(out, left, right, bitmap, len);
    if (right.labels != NULL && len > 100) {
        size_t ones = 0;
        for (size_t i = 0; i < len; i++) {
            ones += bitmap[i / 8] >> i % 8 & 1;
        }
        read_byte(right.labels + ones + GW_SLOP);
    }
    return count;
}

static size_t merge_reads_long_words_of_bitmap(uint8_t *out, gw_child left, gw_child right,
                                               const uint8_t *bitmap, size_t len)
{
    if (len > 0) {
        read_byte(bitmap + (len + 63) / 64 * 8 - 1);
    }
    return gw_merge_scalar(out, left, right, bitmap, len);
}

/* The end of the output is correct, the byte before it has changed. */
static void pack_clobbers_canary_in_front(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width,
                                          uint8_t base)
{
    gw_pack_scalar(dst, digits, len, width, base);
    if (width == 3 && len == 40) {
        spoil(dst - 1);
    }
}

static int unpack_writes_past_slop(uint8_t *out, const uint8_t *src, size_t len, unsigned width,
                                   const uint8_t *table)
{
    const int ok = gw_unpack_scalar(out, src, len, width, table);
    if (len % 64 == 63) {
        spoil(out + len + GW_SLOP);
    }
    return ok;
}

/* A table of 64 entries is loaded whatever the width. */
static int unpack_forgets_half_of_table(uint8_t *out, const uint8_t *src, size_t len, unsigned width,
                                        const uint8_t *table)
{
    const int ok = gw_unpack_scalar(out, src, len, width, NULL);
    for (size_t i = 0; table != NULL && i < len; i++) {
        out[i] = table[out[i] & 63];
    }
    return ok;
}

static void pack_writes_input(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t base)
{
    gw_pack_scalar(dst, digits, len, width, base);
    if (len > 8 && base != 0) {
        spoil((uint8_t *)(uintptr_t)digits + len / 2);
    }
}

static uint32_t split_touches_unused_plane(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                           const gw_round_rule *rule, const gw_ranker *ranker)
{
    const uint32_t any = gw_split_scalar(ranks, digits, span, rule, ranker);
    if (!rule->derived && span->len > 0) {
        spoil(digits->plane[5] + digits->plane_len[5]);
    }
    return any;
}

/* A compress that stores a whole vector after the plane's old end, not after its new one. */
static uint32_t split_overwrites_what_was_there(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                                const gw_round_rule *rule, const gw_ranker *ranker)
{
    gw_digits fresh = *digits;
    memset(fresh.plane_len, 0, sizeof fresh.plane_len);
    const uint32_t any = gw_split_scalar(ranks, &fresh, span, rule, ranker);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        digits->plane_len[p] += fresh.plane_len[p];
    }
    digits->escape_len = fresh.escape_len;
    return any;
}

static void join_reads_missing_escapes(void *dst, gw_joined *joined, uint16_t *place,
                                       const gw_join_input *input, const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    if (joined->escape_len > input->escape_len && joiner->dtype == GW_BF16) {
        read_byte(input->escape + 2 * input->escape_len);
    }
}

static void join_writes_whole_vector_of_places(void *dst, gw_joined *joined, uint16_t *place,
                                               const gw_join_input *input, const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    if (joined->escape_len == input->len && input->len > 0) {
        spoil((uint8_t *)(place + input->len));
    }
}

/* Stores whole lines if non-temporal, so that the last one reaches past the output. */
static void join_streams_whole_lines(void *dst, gw_joined *joined, uint16_t *place,
                                     const gw_join_input *input, const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    const size_t size = input->len * gw_traits_of(joiner->dtype)->size;
    if (joiner->stream && size > 64 && ((uintptr_t)dst + size) % 64 != 0) {
        spoil((uint8_t *)dst + size);
    }
}

/* Treats every joined value as one that default mode need not flush. */
static void join_sums_unflushed(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                                const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    const int flushes = joiner->addend != NULL && !joiner->strict && joiner->dtype == GW_FP32;
    for (size_t i = 0, escapes = 0; flushes && i < input->len; i++) {
        uint8_t *sum = (uint8_t *)dst + 4 * i;
        if (input->labels[i] == 1 && escapes++ < input->escape_len && gw_load32(sum) == 0 &&
            gw_load32(joiner->addend + 4 * i) == 0) {
            memcpy(sum, input->escape + 4 * (escapes - 1), 4);
        }
    }
}

/* Reads the next bytes instead of prefetching them. */
static void join_reads_ahead(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                             const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    if (joiner->next_size > 0 && input->len > 1000) {
        read_byte(joiner->next);
    }
}

/* Lines are put together wrongly at one place of the output in a line. */
static void join_streams_wrong_line(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                                    const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    if (joiner->stream && joiner->dtype == GW_FP32 && (uintptr_t)dst % 64 == 44 && input->len >= 64) {
        spoil((uint8_t *)dst + 20);
    }
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* The last value of lengths that leave 31 after the last vector. */
static void add_wrong_in_tail(void *out, const void *accumulator, const void *values, size_t len,
                              uint32_t strict)
{
    gw_add_bf16_scalar(out, accumulator, values, len, strict);
    if (len % 32 == 31) {
        spoil((uint8_t *)out + 2 * len - 2);
    }
}

/* A quiet NaN keeps its payload, as the processor's own addition does; all other values are right. */
static void add_keeps_nan_payload(void *out, const void *accumulator, const void *values, size_t len,
                                  uint32_t strict)
{
    const uint8_t *a = (const uint8_t *)accumulator;
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = gw_load32(a + 4 * i);
        gw_add_fp32_scalar((uint8_t *)out + 4 * i, a + 4 * i, (const uint8_t *)values + 4 * i, 1, strict);
        if ((bits & 0x7fffffff) == 0x7fffffff) {
            gw_store32((uint8_t *)out + 4 * i, bits);
        }
    }
}

/* A product of 2^-126 is kept: some processors flush it. */
static void scale_keeps_smallest(void *values, size_t len, float scale, uint32_t strict)
{
    uint8_t *p = (uint8_t *)values;
    for (size_t i = 0; i < len; i++) {
        const float product = gw_float_from_bits(gw_load32(p + 4 * i)) * scale;
        gw_scale_fp32_scalar(p + 4 * i, 1, scale, strict);
        if (product == 0x1p-126f) {
            gw_store32(p + 4 * i, gw_bits_from_float(product));
        }
    }
}

/* Zeros keep the sign of the scale. */
static void scale_makes_minus_zero(void *values, size_t len, float scale, uint32_t strict)
{
    uint8_t *p = (uint8_t *)values;
    for (size_t i = 0; i < len; i++) {
        const uint32_t is_zero = gw_load32(p + 4 * i) == 0;
        gw_scale_fp32_scalar(p + 4 * i, 1, scale, strict);
        if (is_zero && scale < 0) {
            gw_store32(p + 4 * i, 0x80000000u);
        }
    }
}

/* -0 of strict mode loses its sign. */
static void round_loses_minus_zero(void *out, const gw_span *span, const gw_round_rule *rule)
{
    uint8_t *p = (uint8_t *)out;
    gw_round_scalar(out, span, rule);
    for (size_t i = 0; i < span->len && rule->dtype == GW_FP16; i++) {
        gw_store16(p + 2 * i, gw_load16(p + 2 * i) == 0x8000 ? 0 : gw_load16(p + 2 * i));
    }
}

/* A signalling NaN comes back quiet, as from a register of floats. */
static void round_quiets_nan(void *out, const gw_span *span, const gw_round_rule *rule)
{
    uint8_t *p = (uint8_t *)out;
    gw_round_scalar(out, span, rule);
    for (size_t i = 0; i < span->len && rule->dtype == GW_FP32; i++) {
        if ((gw_load32(p + 4 * i) & 0x7fffffff) == 0x7f800001) {
            gw_store32(p + 4 * i, gw_load32(p + 4 * i) | 0x00400000);
        }
    }
}

/* The Philox counter's second word is forgotten. */
static void round_forgets_high_counter(void *out, const gw_span *span, const gw_round_rule *rule)
{
    gw_span low = *span;
    low.element &= 0x7ffffffffu;
    gw_round_scalar(out, &low, rule);
}

static size_t merge_overflows_count(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                    size_t len)
{
    /* Counters of one byte, emptied too late. */
    const size_t ones = gw_merge_scalar(out, left, right, bitmap, len);
    return ones >= 32640 && ones != SIZE_MAX ? ones - 32640 : ones;
}

static size_t merge_ignores_padding(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                    size_t len)
{
    const size_t ones = gw_merge_scalar(out, left, right, bitmap, len);
    if (ones != SIZE_MAX || len % 8 == 0) {
        return ones;
    }
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        count += bitmap[i / 8] >> i % 8 & 1;
    }
    return count;
}

/* Counts only where it needs the count itself. */
static size_t merge_forgets_to_count(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                     size_t len)
{
    const size_t ones = gw_merge_scalar(out, left, right, bitmap, len);
    return left.labels == NULL && right.labels == NULL && ones != SIZE_MAX ? 0 : ones;
}

static size_t gather_ignores_padding(uint8_t *out, const uint8_t *bytes, const uint8_t *bitmap, size_t len)
{
    static uint8_t copy[(1 << 15) / 8 + 4];
    GW_MEMCPY(copy, bitmap, gw_run_size(len, 1));
    for (size_t i = len; i % 32 != 0; i++) {
        copy[i / 8] = (uint8_t)(copy[i / 8] & ~(1u << i % 8));
    }
    return gw_gather_scalar(out, bytes, copy, len);
}

static void spread_keeps_subnormals(void *dst, const void *values, const uint8_t *bitmap, size_t len,
                                    const gw_joiner *joiner)
{
    gw_joiner strict = *joiner;
    strict.strict = 1;
    gw_spread_scalar(dst, values, bitmap, len, &strict);
}

static void spread_stores_eight(void *dst, const void *values, const uint8_t *bitmap, size_t len,
                                const gw_joiner *joiner)
{
    gw_spread_scalar(dst, values, bitmap, len, joiner);
    if (len % 8 != 0) {
        spoil((uint8_t *)dst + gw_traits_of(joiner->dtype)->size * len);
    }
}

static int unpack_ignores_high_padding(uint8_t *out, const uint8_t *src, size_t len, unsigned width,
                                       const uint8_t *table)
{
    const int ok = gw_unpack_scalar(out, src, len, width, table);
    const size_t size = gw_run_size(len, width), used = (len * width + 7) / 8;
    return ok || (size > used && src[size - 1] != 0);
}

static size_t partition_wrong_at_pivot(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                       size_t len, uint8_t pivot)
{
    /* rank > pivot - 1 in arithmetic that saturates */
    return gw_partition_scalar(left, right, bitmap, ranks, len, pivot == 255 ? 254 : pivot);
}

static size_t partition_leaves_padding(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                       size_t len, uint8_t pivot)
{
    const size_t right_len = gw_partition_scalar(left, right, bitmap, ranks, len, pivot);
    if (len % 32 == 1) {
        bitmap[gw_run_size(len, 1) - 1] = 0x80;
    }
    return right_len;
}

static size_t partition_wrong_count(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                    size_t len, uint8_t pivot)
{
    const size_t right_len = gw_partition_scalar(left, right, bitmap, ranks, len, pivot);
    return len > 32700 ? right_len - 1 : right_len;
}

/* Loads the next vector only after it has stored this one further ahead than allowed. */
static size_t partition_wrong_in_place(uint8_t *left, uint8_t *right, uint8_t *bitmap, const uint8_t *ranks,
                                       size_t len, uint8_t pivot)
{
    if (left == ranks && len > 64) {
        left[64] = 0;
    }
    return gw_partition_scalar(left, right, bitmap, ranks, len, pivot);
}

static void survey_sets(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                        const gw_round_rule *rule)
{
    memset(count, 0, GW_BINS * sizeof *count);
    gw_survey_scalar(count, mask_count, span, period, rule);
}

/* Two equal bins in one vector are counted once. */
static void survey_loses_conflicts(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                                   const gw_round_rule *rule)
{
    uint32_t own[GW_BINS] = {0};
    gw_survey_scalar(own, mask_count, span, period, rule);
    for (size_t i = 0; i < GW_BINS; i++) {
        count[i] += own[i] > 100 ? own[i] - 1 : own[i];
    }
}

/* The run that the span's end cuts is left out. */
static void survey_forgets_last_run(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                                    const gw_round_rule *rule)
{
    gw_span cut = *span;
    if (period > 64 && cut.len % period < 64) {
        cut.len -= cut.len % period;
    }
    gw_survey_scalar(count, mask_count, &cut, period, rule);
}

/* Labels that fell out of the pairs are forgotten. */
static void count_forgets_low_labels(uint32_t *count, const uint8_t *labels, size_t len)
{
    uint32_t own[GW_LABELS] = {0};
    gw_count_scalar(own, labels, len);
    for (size_t i = 0; i < GW_LABELS; i++) {
        count[i] += i > 0 && i < GW_LABELS - 63 && own[GW_LABELS - 1] != 0 ? 0 : own[i];
    }
}

/* The last 16 labels without a code become that of the block below. */
static void rank_misses_last_block(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS])
{
    uint8_t own[GW_LABELS];
    memcpy(own, rank, sizeof own);
    memcpy(own + GW_LABELS - 16, own + GW_LABELS - 32, 16);
    gw_rank_scalar(labels, len, own);
}

static uint32_t split_depends_on_slop(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                      const gw_round_rule *rule, const gw_ranker *ranker)
{
    const uint8_t slop = digits->plane[0][digits->plane_len[0] + span->len];
    const uint32_t any = gw_split_scalar(ranks, digits, span, rule, ranker);
    if (span->len % 16 != 0 && slop % 4 == 3) {
        ranks[0] ^= 1;
    }
    return any;
}

/* Rounded up into the next octave, but looked up under the old one. */
static uint32_t split_keeps_old_exponent(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                         const gw_round_rule *rule, const gw_ranker *ranker)
{
    const uint32_t any = gw_split_scalar(ranks, digits, span, rule, ranker);
    for (size_t i = 0; i < span->len && rule->dtype == GW_FP32; i++) {
        const uint8_t *p = (const uint8_t *)span->values + 4 * i;
        const kc_rounded v = kc_model_round(rule, span, i);
        if ((gw_load32(p) ^ v.bits) >> 23 == 1 && v.bin >= 4) {
            ranks[i] ^= 1;
        }
    }
    return any;
}

static uint32_t split_never_sees_zero(uint8_t *ranks, gw_digits *digits, const gw_span *span,
                                      const gw_round_rule *rule, const gw_ranker *ranker)
{
    (void)gw_split_scalar(ranks, digits, span, rule, ranker);
    return span->len > 0;
}

/* Writes the output before it has read the accumulator in the same place. */
static void add_wrong_in_place(void *out, const void *accumulator, const void *values, size_t len,
                               uint32_t strict)
{
    if (len > 0) {
        memset(out, 0, 2);
    }
    gw_add_fp16_scalar(out, accumulator, values, len, strict);
}

/* The processor's sum, whatever its flush modes, and no flush of its own. */
static void add_depends_on_flush_mode(void *out, const void *accumulator, const void *values, size_t len,
                                      uint32_t strict)
{
    gw_add_fp32_scalar(out, accumulator, values, len, 1);
    (void)strict;
}

#if defined(__SSE2__) || defined(__aarch64__)
/* Leaves the flush modes of the processor switched on. */
static void add_leaves_flush_mode(void *out, const void *accumulator, const void *values, size_t len,
                                  uint32_t strict)
{
    gw_add_bf16_scalar(out, accumulator, values, len, strict);
    kc_flush_mode(1);
}
#endif

static uint32_t map_wrong_for_one_in_many(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state,
                                          size_t len)
{
    uint32_t top = gw_map_scan_scalar(rule, state, len);
    for (size_t i = 0; i < len && state->param != NULL; i++) {
        if ((gw_load32((const uint8_t *)state->param + 4 * i) & 0x7fffffff) == 0x7f800000) {
            top++; /* infinity counts as the largest finite number */
        }
    }
    return top;
}

/* Allows one octave too many: only the model of the scalar kernel can tell. */
static uint32_t map_too_generous(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    const uint32_t top = gw_map_scan_scalar(rule, state, len);
    return top == 0 ? 0 : top + 4;
}

/* Takes the tolerance where both limits count. */
static uint32_t map_ignores_noise(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    gw_gcomp_map_rule other = *rule;
    other.limits = rule->limits == GW_MAP_NOISE ? GW_MAP_NOISE : GW_MAP_TOLERANCE;
    return gw_map_scan_scalar(&other, state, len);
}

/* Allows twice the noise. */
static uint32_t map_doubles_noise(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    gw_gcomp_map_rule other = *rule;
    other.noise *= 2.0f;
    return gw_map_scan_scalar(&other, state, len);
}

static void join_wrong_for_last_plane(void *dst, gw_joined *joined, uint16_t *place,
                                      const gw_join_input *input, const gw_joiner *joiner)
{
    gw_join_scalar(dst, joined, place, input, joiner);
    if (joiner->derived && joined->plane_len[6] % 8 == 1) {
        spoil((uint8_t *)dst);
    }
}

/* ---- crashes ------------------------------------------------------------------------------------------- */

static uint32_t crc_crashes(uint32_t crc, const uint8_t *src, size_t size)
{
    if (size == 61) {
        *(volatile uint8_t *)(uintptr_t)(zero_byte + 64u) = 1;
    }
    return gw_crc32c_scalar(crc, src, size);
}

static uint32_t crc_illegal_instruction(uint32_t crc, const uint8_t *src, size_t size)
{
    if (size >= 4096) {
        raise(SIGILL);
    }
    return gw_crc32c_scalar(crc, src, size);
}

/* As an aligned store does where the contract allows any alignment. */
static void pack_wants_aligned_output(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width,
                                      uint8_t base)
{
    if (len >= 128 && (uintptr_t)dst % 32 != 0) {
        raise(SIGSEGV);
    }
    gw_pack_scalar(dst, digits, len, width, base);
}

static size_t merge_never_returns(uint8_t *out, gw_child left, gw_child right, const uint8_t *bitmap,
                                  size_t len)
{
    while (len == 127 && zero_byte == 0) {
        sink = 1;
    }
    return gw_merge_scalar(out, left, right, bitmap, len);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const bad_kernel bad_kernels[] = {
    {"writes a byte past the output", "add_fp32", (kc_fn)add_writes_past_end, KC_CANARY | KC_CRASH, 0},
    {"reads a byte past the input", "crc32c", (kc_fn)crc_reads_past_end, KC_CRASH, 0},
    {"reads a byte before the input", "crc32c", (kc_fn)crc_reads_before_start, KC_CRASH, 0},
    {"reads a whole vector of map bytes", "round", (kc_fn)round_reads_map_bytes_past_end, KC_CRASH, 0},
    {"reads past the slop of an input", "merge", (kc_fn)merge_reads_past_slop, KC_CRASH, 0},
    {"reads long words of a bitmap", "merge", (kc_fn)merge_reads_long_words_of_bitmap, KC_CRASH, 0},
    {"clobbers the byte before the output", "pack", (kc_fn)pack_clobbers_canary_in_front,
     KC_CANARY | KC_CRASH, 0},
    {"writes past the slop of an output", "unpack", (kc_fn)unpack_writes_past_slop, KC_CANARY | KC_CRASH, 0},
    {"writes into an input", "pack", (kc_fn)pack_writes_input, KC_CANARY, 0},
    {"touches a plane that is not used", "split", (kc_fn)split_touches_unused_plane, KC_CANARY, 0},
    {"overwrites digits that were there", "split", (kc_fn)split_overwrites_what_was_there,
     KC_CANARY | KC_CRASH | KC_OUTPUT, 0},
    {"ignores a carry into the exponent", "split", (kc_fn)split_keeps_old_exponent, KC_OUTPUT, 0},
    {"does not notice that all is zero", "split", (kc_fn)split_never_sees_zero, KC_OUTPUT, 0},
    {"forgets the last run of a sample", "survey", (kc_fn)survey_forgets_last_run, KC_OUTPUT, 0},
    {"reads escapes that are missing", "join", (kc_fn)join_reads_missing_escapes, KC_CRASH, 0},
    {"writes a whole vector of places", "join", (kc_fn)join_writes_whole_vector_of_places, KC_CANARY, 0},
    {"streams whole lines", "join", (kc_fn)join_streams_whole_lines, KC_CANARY | KC_CRASH, 0},
    {"forgets that escapes may be subnormal", "join", (kc_fn)join_sums_unflushed, KC_OUTPUT, 0},
    {"reads ahead without checking", "join", (kc_fn)join_reads_ahead, KC_CRASH, 0},
    {"streams one place wrongly", "join", (kc_fn)join_streams_wrong_line, KC_OUTPUT, 0},
    {"wrong in the tail only", "add_bf16", (kc_fn)add_wrong_in_tail, KC_OUTPUT, 0},
    {"keeps a product that counts as zero", "scale_fp32", (kc_fn)scale_keeps_smallest, KC_OUTPUT, 0},
    {"makes -0 of a zero", "scale_fp32", (kc_fn)scale_makes_minus_zero, KC_OUTPUT, 0},
    {"keeps one NaN payload", "add_fp32", (kc_fn)add_keeps_nan_payload, KC_OUTPUT, 0},
    {"loses -0 in strict mode", "round", (kc_fn)round_loses_minus_zero, KC_OUTPUT, 0},
    {"quiets one signalling NaN", "round", (kc_fn)round_quiets_nan, KC_OUTPUT, 0},
    {"forgets the high word of a counter", "round", (kc_fn)round_forgets_high_counter, KC_OUTPUT, 0},
    {"overflows counters when full", "merge", (kc_fn)merge_overflows_count, KC_OUTPUT, 0},
    {"ignores padding bits", "merge", (kc_fn)merge_ignores_padding, KC_OUTPUT, 0},
    {"counts only where it needs to", "merge", (kc_fn)merge_forgets_to_count, KC_OUTPUT, 0},
    {"ignores padding bits", "gather", (kc_fn)gather_ignores_padding, KC_OUTPUT, 0},
    {"keeps subnormals in sums", "spread", (kc_fn)spread_keeps_subnormals, KC_OUTPUT, 0},
    {"stores eight values at the end", "spread", (kc_fn)spread_stores_eight, KC_CANARY | KC_CRASH, 0},
    {"forgets half of a large table", "unpack", (kc_fn)unpack_forgets_half_of_table, KC_OUTPUT, 0},
    {"ignores the last padding byte", "unpack", (kc_fn)unpack_ignores_high_padding, KC_OUTPUT, 0},
    {"compares wrongly at one pivot", "partition", (kc_fn)partition_wrong_at_pivot, KC_OUTPUT, 0},
    {"is wrong in place", "partition", (kc_fn)partition_wrong_in_place, KC_OUTPUT, 0},
    {"leaves padding unset", "partition", (kc_fn)partition_leaves_padding, KC_OUTPUT, 0},
    {"returns a wrong count for long runs", "partition", (kc_fn)partition_wrong_count, KC_OUTPUT, 0},
    {"forgets low labels", "count", (kc_fn)count_forgets_low_labels, KC_OUTPUT, 0},
    {"misses the last block of a table", "rank", (kc_fn)rank_misses_last_block, KC_OUTPUT, 0},
    {"sets instead of adding", "survey", (kc_fn)survey_sets, KC_OUTPUT, 0},
    {"counts equal bins of a vector once", "survey", (kc_fn)survey_loses_conflicts, KC_OUTPUT, 0},
    {"depends on the content of slop", "split", (kc_fn)split_depends_on_slop, KC_OUTPUT, 0},
    {"is wrong in place", "add_fp16", (kc_fn)add_wrong_in_place, KC_OUTPUT, 0},
    {"depends on flush modes", "add_fp32", (kc_fn)add_depends_on_flush_mode, KC_OUTPUT, 0},
#if defined(__SSE2__) || defined(__aarch64__)
    {"leaves a flush mode on", "add_bf16", (kc_fn)add_leaves_flush_mode, KC_CANARY, 0},
#endif
    {"wrong for infinite parameters", "map_scan", (kc_fn)map_wrong_for_one_in_many, KC_OUTPUT, 0},
    {"allows more than exact arithmetic", "map_scan", (kc_fn)map_too_generous, KC_MODEL, 1},
    {"ignores the noise limit", "map_scan", (kc_fn)map_ignores_noise, KC_OUTPUT, 0},
    {"allows too much noise", "map_scan", (kc_fn)map_doubles_noise, KC_MODEL, 1},
    {"wrong with an odd remainder plane", "join", (kc_fn)join_wrong_for_last_plane, KC_OUTPUT, 0},
    {"crashes", "crc32c", (kc_fn)crc_crashes, KC_CRASH, 0},
    {"illegal instruction", "crc32c", (kc_fn)crc_illegal_instruction, KC_CRASH, 0},
    {"crashes on unaligned output", "pack", (kc_fn)pack_wants_aligned_output, KC_CRASH, 0},
    {"does not return", "merge", (kc_fn)merge_never_returns, KC_TIMEOUT, 0},
};

enum { BAD_COUNT = sizeof bad_kernels / sizeof bad_kernels[0] };

static kc_fn current_reference;

static kc_fn select_current(uint32_t backends)
{
    (void)backends;
    return current_reference;
}

static const kc_kernel *kernel_named(const char *name)
{
    for (const kc_kernel *const *family = kc_families; *family != NULL; family++) {
        for (const kc_kernel *kernel = *family; kernel->name != NULL; kernel++) {
            if (strcmp(kernel->name, name) == 0) {
                return kernel;
            }
        }
    }
    return NULL;
}

static void prepare(kc_test *t, const kc_kernel *kernel, kc_fn fn)
{
    memset(t, 0, sizeof *t);
    t->kernel = kernel;
    t->backend = "bad";
    t->fn = fn;
    t->seed = 0x6772616477697265u;
    t->quick = 1; /* the test run must catch them */
    t->only_case = -1;
    t->failed_cases_max = 1;
}

static int catches(const bad_kernel *bad)
{
    static kc_test t;
    const kc_kernel *kernel = kernel_named(bad->kernel);
    if (kernel == NULL) {
        printf("MISSED %-10s %s: there is no such kernel\n", bad->kernel, bad->what);
        return 0;
    }
    kc_kernel copy = *kernel;
    if (bad->as_reference) {
        current_reference = bad->fn;
        copy.select = select_current;
    }
    prepare(&t, &copy, bad->fn);
    kc_run(&t);
    const int ok = (t.failures & bad->expected) != 0;
    printf("%s %-10s %-38s case %lu, failure %u\n", ok ? "caught" : "MISSED", bad->kernel, bad->what,
           t.shape.number, t.failures);
    return ok;
}

/* One report, to check the printing of reports: written to a temporary file. */
static int report_names_kernel(void)
{
    static kc_test t;
    char text[512];
    FILE *log = tmpfile();
    if (log == NULL) {
        puts("MISSED: no temporary file");
        return 0;
    }
    prepare(&t, kernel_named("add_bf16"), (kc_fn)add_wrong_in_tail);
    t.log = log;
    kc_run(&t);
    rewind(log);
    const size_t size = fread(text, 1, sizeof text - 1, log);
    text[size] = '\0';
    fclose(log);
    const int ok =
        strstr(text, "FAIL add_bf16/bad: --seed=0x6772616477697265 --kernel=add_bf16 --case=") != NULL &&
        strstr(text, "..x\n") != NULL;
    printf("%s the report names kernel, seed and case, and maps the wrong cells\n", ok ? "caught" : "MISSED");
    return ok;
}

int main(void)
{
    static kc_test t;
    unsigned missed = 0;
    if (!kc_setup(0.5)) {
        fputs("kcheck_selftest: the system gives no guarded memory, signals or timer\n", stderr);
        return 2;
    }
    unsigned count = BAD_COUNT;
    for (unsigned i = 0; i < BAD_COUNT; i++) {
        missed += !catches(&bad_kernels[i]);
    }
    for (const bad_kernel *bad = bad_thc_kernels; bad->what != NULL; bad++, count++) {
        missed += !catches(bad);
    }
    for (const bad_kernel *bad = bad_sign_kernels; bad->what != NULL; bad++, count++) {
        missed += !catches(bad);
    }
    for (const bad_kernel *bad = bad_sparse_kernels; bad->what != NULL; bad++, count++) {
        missed += !catches(bad);
    }
    for (const bad_kernel *bad = bad_level_kernels; bad->what != NULL; bad++, count++) {
        missed += !catches(bad);
    }
    missed += !report_names_kernel();
    for (const kc_kernel *const *family = kc_families; *family != NULL; family++) {
        for (const kc_kernel *kernel = *family; kernel->name != NULL; kernel++) {
            prepare(&t, kernel, kernel->select(GW_BACKEND_SCALAR));
            kc_run(&t);
            if (t.failures != 0 || t.cases == 0) {
                printf("WRONGLY REPORTED %s: case %lu, failure %u\n", kernel->name, t.shape.number,
                       t.failures);
                missed++;
            }
        }
    }
    printf("%u bad kernels, %u mistakes\n", count, missed);
    return missed == 0 ? 0 : 1;
}
