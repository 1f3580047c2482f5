/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/codebook_choice.h"
#include "gcomp/mask_code.h"

/* 256 * log2(x) for x > 0, interpolated linearly between powers of two: at most 22 too small. */
static uint32_t log2_of(uint64_t x)
{
    uint32_t k = 0;
    while (x >> k > 1) {
        k++;
    }
    const uint64_t rest = x - ((uint64_t)1 << k);
    return 256 * k + (uint32_t)(k <= 8 ? rest << (8 - k) : rest >> (k - 8));
}

/* A prefix code spends at least one whole bit on a symbol. */
static uint64_t cost_of(uint64_t count, uint32_t log2_sum)
{
    const uint32_t bits = count == 0 ? 0 : log2_sum - log2_of(count);
    return count * (bits < 256 ? 256 : bits);
}

uint64_t gw_labels_cost(const uint32_t count[GW_LABELS], uint32_t first)
{
    uint64_t sum = 0, cost = 0;
    uint32_t used = 0;
    for (uint32_t label = first; label < GW_LABELS; label++) {
        sum += count[label];
        used += count[label] != 0;
    }
    if (used < 2) {
        return 0; /* the code of a single label is empty */
    }
    const uint32_t log2_sum = log2_of(sum);
    for (uint32_t label = first; label < GW_LABELS; label++) {
        cost += cost_of(count[label], log2_sum);
    }
    return cost;
}

int gw_is_mask_too_large(uint64_t zeros, uint64_t len)
{
    return 2 * zeros < len;
}

/* Bits that any mask adds to a chunk: its code lengths, its counts, and the padding of its runs. */
enum { MASK_OVERHEAD_BITS = 448 };

/* 1 if coding the zeros in a mask takes fewer bits (docs/encoder-profile.md). */
static int is_mask_better(const gw_codebook_counts *choice)
{
    uint64_t bytes = 0, masked = 0;
    if (gw_is_mask_too_large(choice->count[GW_LABEL_ZERO], choice->len)) {
        return 0;
    }
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        bytes += choice->mask_count[c];
    }
    const uint32_t log2_bytes = bytes == 0 ? 0 : log2_of(bytes);
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        const uint64_t count = choice->mask_count[c];
        const uint64_t code = count == bytes ? 0 : cost_of(count, log2_bytes);
        masked += code + 256 * gw_mask_class_width[c] * count;
    }
    masked += gw_labels_cost(choice->count, 1);
    masked += 256 * MASK_OVERHEAD_BITS * choice->len / choice->chunk_len;
    const uint64_t plain = gw_labels_cost(choice->count, 0);
    return masked < plain - plain / 32;
}

void gw_codebook_choose(gw_codebook *codebook, const gw_codebook_counts *counts, gw_codebook_scratch *scratch)
{
    uint32_t *const count = counts->count, *const mask_count = counts->mask_count;
    codebook->is_masked = (uint8_t)is_mask_better(counts);
    if (counts->is_sample) {
        count[GW_LABEL_ZERO] += count[GW_LABEL_ZERO] == 0;
        count[GW_LABEL_ESCAPE] += count[GW_LABEL_ESCAPE] == 0;
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            mask_count[c] += mask_count[c] == 0;
        }
    }
    if (codebook->is_masked) {
        count[GW_LABEL_ZERO] = 0;
        gw_mask_depths(codebook->mask_depth, mask_count, scratch);
    }
    gw_codebook_lengths(codebook->length, count, scratch);
}
