/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_select.h"

#include "core/sqrt.h"
#include "core/float_bits.h"

enum {
    SAMPLE_LEN_MAX = 16384,
    SAMPLE_LEN_MIN = 512, /* for fewer, all values are gathered */
    SAMPLE_RUN_LEN = 8,   /* values next to each other: half a cache line of fp32 */
    SAMPLE_SHARE = 8      /* at most one value of this many is sampled */
};

/* Twice keep_len, so that dropping costs a constant for every value gathered; and so many blocks more that a
 * bound from a sample of a large tensor seldom fills it. */
uint64_t gw_selection_capacity(uint64_t len, uint64_t keep_len)
{
    return gw_min_u64(len, 2 * keep_len + 4 * GW_SPARSE_BLOCK_LEN);
}

static uint32_t magnitude_of(float value)
{
    return gw_bits_from_float(value) & GW_F32_ABS;
}

/* From the top of bins[0..bin_count) down: the bin in which the value number *rank from the top is, counted
 * from
 * 1. *rank becomes its number in that bin. */
static uint32_t find_bin(const uint64_t *bins, uint32_t bin_count, uint64_t *rank)
{
    uint32_t bin = bin_count - 1;
    while (bin > 0 && bins[bin] < *rank) {
        *rank -= bins[bin];
        bin--;
    }
    return bin;
}

/* The magnitude of rank *rank among values[0..len), 1 <= *rank <= len; *rank becomes the number of values of
 * that magnitude that are among the *rank largest. Eleven bits, then ten, then ten. */
static uint32_t find_magnitude(const float *values, uint64_t len, uint64_t *rank, uint64_t *bins)
{
    static const uint8_t shift_of[3] = {20, 10, 0};
    uint32_t prefix = 0;
    for (unsigned pass = 0; pass < 3; pass++) {
        const unsigned shift = shift_of[pass];
        const uint32_t bin_count = pass == 0 ? 2048 : 1024;
        GW_MEMSET(bins, 0, bin_count * sizeof *bins);
        for (uint64_t i = 0; i < len; i++) {
            const uint32_t magnitude = magnitude_of(values[i]);
            if (pass == 0) {
                bins[magnitude >> shift]++;
            } else if (magnitude >> (shift + 10) == prefix) {
                bins[magnitude >> shift & 1023]++;
            }
        }
        prefix = prefix << (pass == 0 ? 0 : 10) | find_bin(bins, bin_count, rank);
    }
    return prefix;
}

/* Keeps the keep_len largest of `count` gathered values, in order. Returns the least magnitude that a later
 * value must have to be among the largest: above that of the last one kept, because ties go to lower
 * positions. */
static uint32_t drop_rest(gw_selection *s, uint64_t count)
{
    uint64_t ties = s->keep_len, kept = 0;
    const uint32_t least = find_magnitude(s->values, count, &ties, s->bins);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t magnitude = magnitude_of(s->values[i]), position = s->positions[i];
        const float value = s->values[i];
        const uint64_t is_tie = (uint64_t)(magnitude == least) & (uint64_t)(ties != 0);
        s->positions[kept] = position; /* kept <= i */
        s->values[kept] = value;
        kept += (uint64_t)(magnitude > least) | is_tie;
        ties -= is_tie;
        if (kept == s->keep_len) {
            break;
        }
    }
    return least < GW_F32_MIN ? GW_F32_MIN : least + 1;
}

/* Gathers with a first bound. Returns the number of values gathered, keep_len at most; *largest as in
 * gw_sparse_scan. */
static uint64_t gather(gw_selection *s, const gw_sparse_input *input, uint32_t bound, uint32_t *largest)
{
    const uint64_t capacity = gw_selection_capacity(s->len, s->keep_len);
    gw_sparse_scan scan = {0, bound, 0};
    uint64_t count = 0;
    for (uint64_t first = 0; first < s->len && scan.largest < GW_F32_INF; first += GW_SPARSE_BLOCK_LEN) {
        const size_t block_len = (size_t)gw_min_u64(s->len - first, GW_SPARSE_BLOCK_LEN);
        if (count + block_len > capacity) { /* only where capacity >= 2 * keep_len + 4 blocks */
            scan.bound = drop_rest(s, count);
            count = s->keep_len;
        }
        scan.first = (uint32_t)first;
        count += input->kernels->classic.sparse_select(s->positions + count, s->values + count,
                                                       gw_sparse_input_read(input, first, block_len),
                                                       block_len, &scan);
    }
    *largest = scan.largest;
    if (count > s->keep_len) {
        (void)drop_rest(s, count);
        count = s->keep_len;
    }
    return count;
}

/* Fills values[0..sample_len) with runs at pseudo-random places of equal parts of the input. */
static void take_sample(gw_selection *s, const gw_sparse_input *input, uint64_t sample_len)
{
    const uint64_t runs = sample_len / SAMPLE_RUN_LEN, part_len = s->len / runs;
    uint32_t mix = 0x9e3779b9u;
    for (uint64_t run = 0; run < runs; run++) {
        mix = mix * 1664525u + 1013904223u;
        const uint64_t offset = (uint64_t)(mix >> 8) * (part_len - SAMPLE_RUN_LEN + 1) >> 24;
        GW_MEMCPY(s->values + run * SAMPLE_RUN_LEN,
                  gw_sparse_input_read(input, run * part_len + offset, SAMPLE_RUN_LEN),
                  SAMPLE_RUN_LEN * sizeof *s->values);
    }
}

/* The value of rank `rank` in the sample, 0 if there is none. */
static uint32_t bound_of(const gw_selection *s, uint64_t sample_len, uint64_t rank)
{
    if (rank >= sample_len) {
        return 0;
    }
    const uint32_t bound = find_magnitude(s->values, sample_len, &rank, s->bins);
    return bound < GW_F32_MIN ? 0 : bound;
}

int gw_selection_make(gw_selection *s, const gw_sparse_input *input)
{
    uint64_t sample_len = gw_min_u64(s->len / SAMPLE_SHARE, SAMPLE_LEN_MAX) / SAMPLE_RUN_LEN * SAMPLE_RUN_LEN;
    uint32_t largest = 0, bounds[2] = {0, 0};
    if (s->keep_len > s->len / 2) {
        sample_len = 0;
    }
    if (sample_len >= SAMPLE_LEN_MIN) {
        /* The expected rank of the last value to keep, and six standard deviations more, were values
         * independent. sample_len * keep_len < 2^14 * 2^32. */
        const uint64_t expected = sample_len * s->keep_len / s->len;
        const uint64_t rank = expected + (uint64_t)(6.0f * gw_sqrt((float)expected)) + 8;
        take_sample(s, input, sample_len);
        bounds[0] = bound_of(s, sample_len, rank);
        bounds[1] = bound_of(s, sample_len, 4 * rank);
    }
    for (unsigned i = 0; i < 2 && bounds[i] != 0; i++) {
        const uint64_t count = gather(s, input, bounds[i], &largest);
        if (largest >= GW_F32_INF || count == s->keep_len) {
            return largest < GW_F32_INF;
        }
    }
    (void)gather(s, input, 0, &largest);
    return largest < GW_F32_INF;
}
