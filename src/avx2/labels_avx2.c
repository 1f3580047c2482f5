/*
 * Labels before their codebook is known: counted in pairs (gcomp/label_pairs.h), then replaced by ranks
 * (rank_table_avx2.h).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"
#include "gcomp/label_pairs.h"

#if defined(GW_AVX2_COMPILED)

#include "avx2/rank_table_avx2.h"

/* Labels [0, len) of up to 32; the others are 0. */
static inline __m256i load_labels(const uint8_t *labels, size_t len)
{
    const __m256i place = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
                                           19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    const __m256i x = load(labels);
    return len >= 32 ? x : _mm256_and_si256(x, _mm256_cmpgt_epi8(bytes((unsigned)len), place));
}

static uint32_t largest_of(const uint8_t *labels, size_t len)
{
    __m256i largest = _mm256_setzero_si256();
    for (size_t i = 0; i < len; i += 32) {
        largest = _mm256_max_epu8(largest, load_labels(labels + i, len - i));
    }
    uint8_t of[32];
    uint8_t result = 0;
    store(of, largest);
    for (size_t i = 0; i < 32; i++) {
        result = of[i] > result ? of[i] : result;
    }
    return result;
}

/* The pairs of up to 32 labels go to pair; labels without a class that are not 0 are counted, and their
 * number is returned. */
static inline uint32_t pair32(uint16_t *pair, uint32_t *count, __m256i label, __m256i class_floor)
{
    const __m256i weight = _mm256_set1_epi16(1 | GW_CLASSES << 8);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_subs_epu8(label, class_floor), weight);
    _mm256_storeu_si256((__m256i *)(void *)pair, pairs);
    const __m256i below = _mm256_cmpeq_epi8(_mm256_max_epu8(label, class_floor), class_floor);
    const __m256i is_zero = _mm256_cmpeq_epi8(label, _mm256_setzero_si256());
    uint32_t rest = top_bits(_mm256_andnot_si256(is_zero, below));
    uint32_t rest_len = 0;
    if (__builtin_expect(rest != 0, 0)) {
        uint8_t few[32];
        store(few, label);
        for (; rest != 0; rest &= rest - 1) {
            count[few[_tzcnt_u32(rest)]]++;
            rest_len++;
        }
    }
    return rest_len;
}

/* Up to here to clear and to fold the table takes longer than to count labels one by one. */
enum { FEW_LABELS = 512 };

void gw_count_avx2(uint32_t *count, const uint8_t *labels, size_t len)
{
    if (len <= FEW_LABELS) {
        for (size_t i = 0; i < len; i++) {
            count[labels[i]]++;
        }
        return;
    }
    const uint32_t floor_label = gw_class_floor(largest_of(labels, len));
    const __m256i class_floor = bytes(floor_label);
    gw_label_pairs table;
    uint16_t pair[GW_PAIR_BATCH];
    uint32_t others = 0;
    GW_MEMSET(&table, 0, sizeof table);
    for (size_t first = 0; first < len; first += 2 * GW_PAIR_BATCH) {
        const size_t end = len - first < 2 * GW_PAIR_BATCH ? len : first + 2 * GW_PAIR_BATCH;
        uint16_t *at = pair;
        for (size_t i = first; i < end; i += 32, at += 16) {
            others += pair32(at, count, load_labels(labels + i, end - i), class_floor);
        }
        gw_count_pairs(&table, pair, (size_t)(at - pair));
    }
    others += gw_fold_pairs(count, &table, floor_label);
    count[0] += (uint32_t)len - others;
}

void gw_rank_avx2(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS])
{
    gw_ranker ranker;
    rank_table table;
    uint8_t block[GW_GROUPS_MAX * GW_GROUP_LEN];
    GW_MEMCPY(ranker.rank, rank, GW_LABELS);
    ranker.window_start = 0;
    ranker.escape_rank = rank[GW_LABEL_ESCAPE]; /* any value: what differs from it has an entry */
    fill_rank_table(&table, &ranker);
    for (size_t at = 0; at < len; at += sizeof block) {
        const size_t groups =
            (len - at < sizeof block ? len - at + GW_GROUP_LEN - 1 : sizeof block) / GW_GROUP_LEN;
        GW_MEMCPY(block, labels + at, GW_GROUP_LEN * groups);
        find_ranks(labels + at, block, groups, &table);
    }
}

#else
typedef int gw_labels_avx2_not_built; /* a translation unit must not be empty */
#endif
