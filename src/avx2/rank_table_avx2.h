/*
 * Labels to ranks by tables of 16 bytes: what split and rank share.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_RANK_TABLE_AVX2_H
#define GW_RANK_TABLE_AVX2_H

#include "avx2/kernels_avx2.h"

#if defined(__AVX2__)

#include "avx2/round_groups_avx2.h"

static inline __m256i bytes(unsigned x)
{
    return _mm256_set1_epi8((char)x);
}

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

static inline void store(uint8_t *dst, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, x);
}

static inline uint32_t top_bits(__m256i x)
{
    return (uint32_t)_mm256_movemask_epi8(x);
}

/*
 * The rank of a label, looked up in as many blocks of 16 labels as have codes: those are adjacent, at the
 * upper end of the window, except zero, which is handled separately. A shuffle gives 0 where the index is 128
 * or more. So after subtracting 16 for every block, blocks above give 0, and results are combined, not
 * selected: the entry of block b is stored as the difference (exclusive or) to the entry of block b - 1. The
 * last block brings the sum back to 0. At most 7 blocks and the last fit below 128. Where more have codes
 * (exact codebooks of long-tailed values), the others form further runs below the first. Their labels are of
 * small values and rare: groups without one skip them.
 */
enum { RUN_BLOCKS = 7, RUNS_MAX = 3 };

typedef struct rank_table {
    unsigned runs;
    unsigned blocks[RUNS_MAX]; /* with the last one, at least 3 */
    __m256i first[RUNS_MAX];   /* first label */
    __m256i limit[RUNS_MAX];   /* labels after the run, counted from its first label: the last block */
    __m256i entry[RUNS_MAX][RUN_BLOCKS + 1];
    __m256i zero;    /* label 0 */
    __m256i missing; /* rank of labels without a code: all entries are differences to it */
} rank_table;

static inline void fill_rank_table(rank_table *table, const gw_ranker *ranker)
{
    const uint8_t missing = (uint8_t)ranker->escape_rank;
    uint8_t difference[GW_LABELS + 16] = {0};
    unsigned first = 15, end = 16; /* blocks */
    for (unsigned i = 0; i < GW_LABELS; i += 32) {
        store(difference + i, _mm256_xor_si256(load(ranker->rank + i), bytes(missing)));
    }
    table->zero = bytes(difference[GW_LABEL_ZERO]);
    table->missing = bytes(missing);
    difference[GW_LABEL_ZERO] = 0;
    uint32_t coded = 0; /* bit b: block b has codes */
    for (unsigned b = 0; b < 16; b++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(difference + 16 * b));
        coded |= (uint32_t)!_mm_testz_si128(x, x) << b;
    }
    if (coded != 0) {
        first = (unsigned)_tzcnt_u32(coded);
        end = 32 - (unsigned)_lzcnt_u32(coded);
    }
    table->runs = 0;
    while (end > first) {
        const unsigned r = table->runs++;
        const unsigned blocks = end - first < RUN_BLOCKS ? end - first : (unsigned)RUN_BLOCKS;
        end -= blocks;
        __m128i before = _mm_setzero_si128();
        for (unsigned i = 0; i <= blocks; i++) {
            const uint8_t *from = difference + 16 * (end + i);
            const __m128i entry =
                i < blocks ? _mm_loadu_si128((const __m128i *)(const void *)from) : _mm_setzero_si128();
            table->entry[r][i] = _mm256_broadcastsi128_si256(_mm_xor_si128(entry, before));
            before = entry;
        }
        table->entry[r][2] = blocks < 2 ? _mm256_setzero_si256() : table->entry[r][2];
        table->first[r] = bytes(16 * end);
        table->limit[r] = bytes(16 * blocks);
        table->blocks[r] = blocks < 2 ? 3 : blocks + 1;
    }
}

/* Adds the ranks of labels in a run. */
GW_TEMPLATE __m256i add_run(__m256i rank, __m256i label, __m256i first, __m256i limit, const __m256i *entry,
                            unsigned blocks)
{
    const __m256i step = bytes(16);
    __m256i x = _mm256_min_epu8(_mm256_sub_epi8(label, first), limit);
    for (unsigned b = 0; b < blocks; b++) {
        rank = _mm256_xor_si256(rank, _mm256_shuffle_epi8(entry[b], x));
        x = _mm256_sub_epi8(x, step);
    }
    return rank;
}

/* Adds the ranks of a group's labels in the runs below the first. */
static inline void add_low_runs(uint8_t *ranks, const uint8_t *labels, const rank_table *table)
{
    const __m256i label = load(labels);
    __m256i rank = load(ranks);
    for (unsigned r = 1; r < table->runs; r++) {
        rank = add_run(rank, label, table->first[r], table->limit[r], table->entry[r], table->blocks[r]);
    }
    store(ranks, rank);
}

GW_TEMPLATE void find_ranks_in(uint8_t *ranks, const uint8_t *labels, size_t groups, const rank_table *table,
                               unsigned blocks)
{
    const __m256i first = table->first[0], limit = table->limit[0];
    const __m256i zero = table->zero, missing = table->missing;
    const int has_low_runs = table->runs > 1;
    __m256i entry[RUN_BLOCKS + 1];
    for (unsigned b = 0; b < blocks; b++) {
        entry[b] = table->entry[0][b];
    }
    for (size_t at = 0; at < groups * GW_GROUP_LEN; at += GW_GROUP_LEN) {
        const __m256i label = load(labels + at);
        const __m256i is_zero = _mm256_cmpeq_epi8(label, _mm256_setzero_si256());
        const __m256i rank = _mm256_xor_si256(_mm256_and_si256(is_zero, zero), missing);
        store(ranks + at, add_run(rank, label, first, limit, entry, blocks));
        if (has_low_runs) {
            const __m256i is_high = _mm256_cmpeq_epi8(_mm256_max_epu8(label, first), label);
            if (top_bits(_mm256_or_si256(is_high, is_zero)) != 0xffffffffu) {
                add_low_runs(ranks + at, labels + at, table);
            }
        }
    }
}

static inline void find_ranks(uint8_t *ranks, const uint8_t *labels, size_t groups, const rank_table *table)
{
    switch (table->blocks[0]) {
    case 3:
        find_ranks_in(ranks, labels, groups, table, 3);
        break;
    case 4:
        find_ranks_in(ranks, labels, groups, table, 4);
        break;
    case 5:
        find_ranks_in(ranks, labels, groups, table, 5);
        break;
    case 6:
        find_ranks_in(ranks, labels, groups, table, 6);
        break;
    case 7:
        find_ranks_in(ranks, labels, groups, table, 7);
        break;
    default:
        find_ranks_in(ranks, labels, groups, table, 8);
        break;
    }
}

#endif

#endif
