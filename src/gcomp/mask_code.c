/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/mask_code.h"

const uint8_t gw_mask_class_width[GW_MASK_CLASSES] = {0, 3, 5, 6, 6, 6, 4, 2, 1, 0};
const uint16_t gw_mask_class_first[GW_MASK_CLASSES] = {0, 1, 9, 41, 105, 169, 233, 249, 253, 255};

const uint8_t gw_mask_byte_order[256] = {
    0x00, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x03, 0x05, 0x06, 0x09, 0x0a, 0x0c, 0x11,
    0x12, 0x14, 0x18, 0x21, 0x22, 0x24, 0x28, 0x30, 0x41, 0x42, 0x44, 0x48, 0x50, 0x60, 0x81, 0x82,
    0x84, 0x88, 0x90, 0xa0, 0xc0, 0x07, 0x0b, 0x0d, 0x0e, 0x13, 0x15, 0x16, 0x19, 0x1a, 0x1c, 0x23,
    0x25, 0x26, 0x29, 0x2a, 0x2c, 0x31, 0x32, 0x34, 0x38, 0x43, 0x45, 0x46, 0x49, 0x4a, 0x4c, 0x51,
    0x52, 0x54, 0x58, 0x61, 0x62, 0x64, 0x68, 0x70, 0x83, 0x85, 0x86, 0x89, 0x8a, 0x8c, 0x91, 0x92,
    0x94, 0x98, 0xa1, 0xa2, 0xa4, 0xa8, 0xb0, 0xc1, 0xc2, 0xc4, 0xc8, 0xd0, 0xe0, 0x0f, 0x17, 0x1b,
    0x1d, 0x1e, 0x27, 0x2b, 0x2d, 0x2e, 0x33, 0x35, 0x36, 0x39, 0x3a, 0x3c, 0x47, 0x4b, 0x4d, 0x4e,
    0x53, 0x55, 0x56, 0x59, 0x5a, 0x5c, 0x63, 0x65, 0x66, 0x69, 0x6a, 0x6c, 0x71, 0x72, 0x74, 0x78,
    0x87, 0x8b, 0x8d, 0x8e, 0x93, 0x95, 0x96, 0x99, 0x9a, 0x9c, 0xa3, 0xa5, 0xa6, 0xa9, 0xaa, 0xac,
    0xb1, 0xb2, 0xb4, 0xb8, 0xc3, 0xc5, 0xc6, 0xc9, 0xca, 0xcc, 0xd1, 0xd2, 0xd4, 0xd8, 0xe1, 0xe2,
    0xe4, 0xe8, 0xf0, 0x1f, 0x2f, 0x37, 0x3b, 0x3d, 0x3e, 0x4f, 0x57, 0x5b, 0x5d, 0x5e, 0x67, 0x6b,
    0x6d, 0x6e, 0x73, 0x75, 0x76, 0x79, 0x7a, 0x7c, 0x8f, 0x97, 0x9b, 0x9d, 0x9e, 0xa7, 0xab, 0xad,
    0xae, 0xb3, 0xb5, 0xb6, 0xb9, 0xba, 0xbc, 0xc7, 0xcb, 0xcd, 0xce, 0xd3, 0xd5, 0xd6, 0xd9, 0xda,
    0xdc, 0xe3, 0xe5, 0xe6, 0xe9, 0xea, 0xec, 0xf1, 0xf2, 0xf4, 0xf8, 0x3f, 0x5f, 0x6f, 0x77, 0x7b,
    0x7d, 0x7e, 0x9f, 0xaf, 0xb7, 0xbb, 0xbd, 0xbe, 0xcf, 0xd7, 0xdb, 0xdd, 0xde, 0xe7, 0xeb, 0xed,
    0xee, 0xf3, 0xf5, 0xf6, 0xf9, 0xfa, 0xfc, 0x7f, 0xbf, 0xdf, 0xef, 0xf7, 0xfb, 0xfd, 0xfe, 0xff,
};

static const uint8_t class_of_byte[256] = {
    0, 1, 1, 2, 1, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3, 4,
    1, 2, 2, 3, 2, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3, 4, 2, 3, 3, 3, 3, 3, 3, 4, 3, 4, 4, 4, 4, 4, 4, 5,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5, 2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5, 3, 4, 4, 5, 4, 5, 5, 5, 4, 5, 5, 5, 5, 5, 5, 6,
    1, 2, 2, 3, 2, 3, 3, 4, 2, 3, 3, 4, 3, 4, 4, 5, 2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5, 3, 4, 4, 5, 4, 5, 5, 5, 4, 5, 5, 5, 5, 5, 5, 6,
    2, 3, 3, 4, 3, 4, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5, 3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7,
    3, 4, 4, 5, 4, 5, 5, 6, 4, 5, 5, 6, 5, 6, 6, 7, 4, 5, 5, 6, 5, 6, 6, 7, 5, 6, 6, 7, 6, 8, 8, 9,
};

void gw_mask_count(uint32_t count[GW_MASK_CLASSES], const uint8_t *mask, size_t len)
{
    /* Four tables, so that equal classes in a row do not wait for each other's increments. */
    uint32_t part[4][16] = {{0}};
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        part[0][class_of_byte[mask[i]]]++;
        part[1][class_of_byte[mask[i + 1]]]++;
        part[2][class_of_byte[mask[i + 2]]]++;
        part[3][class_of_byte[mask[i + 3]]]++;
    }
    for (; i < len; i++) {
        part[0][class_of_byte[mask[i]]]++;
    }
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        count[c] += part[0][c] + part[1][c] + part[2][c] + part[3][c];
    }
}

void gw_mask_fold(uint32_t count[GW_MASK_CLASSES], const uint32_t byte_count[256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        count[class_of_byte[byte]] += byte_count[byte];
    }
}

void gw_mask_depths(uint8_t depth[GW_MASK_CLASSES], const uint32_t count[GW_MASK_CLASSES],
                    gw_codebook_scratch *scratch)
{
    uint32_t all[GW_LABELS] = {0};
    uint8_t length[GW_LABELS];
    GW_MEMCPY(all, count, GW_MASK_CLASSES * sizeof *count);
    gw_codebook_lengths(length, all, scratch);
    GW_MEMCPY(depth, length, GW_MASK_CLASSES);
}

void gw_mask_table_write(uint8_t dst[GW_MASK_TABLE_SIZE], const uint8_t depth[GW_MASK_CLASSES])
{
    for (uint32_t i = 0; i < GW_MASK_TABLE_SIZE; i++) {
        dst[i] = (uint8_t)(depth[2 * i] | depth[2 * i + 1] << 4);
    }
}

int gw_mask_table_read(uint8_t depth[GW_MASK_CLASSES], const uint8_t src[GW_MASK_TABLE_SIZE])
{
    const uint32_t whole = 1u << GW_CODE_LEN_MAX;
    uint32_t kraft = 0;
    int used = 0;
    for (uint32_t i = 0; i < GW_MASK_TABLE_SIZE; i++) {
        const uint8_t pair = src[i];
        depth[2 * i] = pair & 15;
        depth[2 * i + 1] = pair >> 4;
    }
    for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
        if (depth[c] > GW_CODE_LEN_MAX) {
            return -1;
        }
        used += depth[c] != 0;
        kraft += depth[c] != 0 ? whole >> depth[c] : 0;
    }
    return used == 0 || kraft == whole || (used == 1 && kraft == whole / 2) ? used : -1;
}

/* 256 * log2(x), straight lines between powers of two: at most 22 too small. x is not 0. */
static uint32_t log2_of(uint64_t x)
{
    uint32_t k = 0;
    while (x >> k > 1) {
        k++;
    }
    const uint64_t rest = x - ((uint64_t)1 << k);
    return 256 * k + (uint32_t)(k <= 8 ? rest << (8 - k) : rest >> (k - 8));
}

/* A code of whole bits spends at least one. */
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

int gw_is_mask_hopeless(uint64_t zeros, uint64_t len)
{
    return 2 * zeros < len;
}

/* Bits that a mask adds to a chunk in any case: its code lengths, counts, and padding of runs. */
enum { MASK_OVERHEAD_BITS = 448 };

/* 1 if coding the zeros in a mask takes fewer bits (docs/format.md section 6). */
static int is_mask_better(const gw_book_counts *choice)
{
    uint64_t bytes = 0, masked = 0;
    if (gw_is_mask_hopeless(choice->count[GW_LABEL_ZERO], choice->len)) {
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

void gw_book_choose(gw_codebook *book, const gw_book_counts *counts, gw_codebook_scratch *scratch)
{
    uint32_t *const count = counts->count, *const mask_count = counts->mask_count;
    book->is_masked = (uint8_t)is_mask_better(counts);
    if (counts->is_sample) {
        count[GW_LABEL_ZERO] += count[GW_LABEL_ZERO] == 0;
        count[GW_LABEL_ESCAPE] += count[GW_LABEL_ESCAPE] == 0;
        for (uint32_t c = 0; c < GW_MASK_CLASSES; c++) {
            mask_count[c] += mask_count[c] == 0;
        }
    }
    if (book->is_masked) {
        count[GW_LABEL_ZERO] = 0;
        gw_mask_depths(book->mask_depth, mask_count, scratch);
    }
    gw_codebook_lengths(book->length, count, scratch);
}
