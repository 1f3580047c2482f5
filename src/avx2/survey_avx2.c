/*
 * Survey: rounds values, all or a sample, and counts their bins. The rounding is the vector part; the
 * counting is one increment a value, in four tables so that equal bins in a row do not form one dependency
 * chain.
 *
 * Bound: a load and a store per increment, 1 cycle a value, and 1.0 for the rounding (explicit fp32).
 * Measured on Zen 4: 2.4.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include "avx2/round_groups_avx2.h"
#include "gcomp/bins.h"

/* Tables are not about a multiple of 4096 bytes apart: such loads and stores may alias. */
enum { TABLES = 4, TABLE_LEN = GW_BINS + 256, MASKS = 256, MASK_TABLE_LEN = MASKS + 16 };

enum { AHEAD = 16 }; /* distance of prefetches, in runs of a sample */

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

static inline void store(uint8_t *dst, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, x);
}

/* Bins of a group (gcomp_kernels.h), from exponents and drop steps. */
static inline void bins_of(uint16_t bin[GW_GROUP_LEN], const gw_rounded_groups *rounded, size_t g,
                           uint32_t dtype, __m256i steps_mask)
{
    const size_t at = g * GW_GROUP_LEN;
    const __m256i zero = _mm256_setzero_si256();
    const __m256i drop_steps = _mm256_and_si256(load(rounded->has + at), steps_mask);
    const __m256i is_zero = load(rounded->is_zero + at);
    __m256i e = load(rounded->exponent + at);
    __m256i low = drop_steps;
    if (dtype == GW_FP16) {
        low = _mm256_andnot_si256(_mm256_cmpeq_epi8(e, _mm256_set1_epi8(31)), low);
    } else {
        /* Of exponent 0 only bins 0 and 1 are used. */
        low = _mm256_blendv_epi8(low, _mm256_set1_epi8(1), _mm256_cmpeq_epi8(e, zero));
    }
    low = _mm256_andnot_si256(is_zero, low);
    e = _mm256_andnot_si256(is_zero, e);
    for (unsigned half = 0; half < 2; half++) {
        const __m256i high16 =
            _mm256_slli_epi16(half == 0 ? _mm256_unpacklo_epi8(e, zero) : _mm256_unpackhi_epi8(e, zero), 2);
        const __m256i low16 = half == 0 ? _mm256_unpacklo_epi8(low, zero) : _mm256_unpackhi_epi8(low, zero);
        __m256i x = _mm256_or_si256(high16, low16);
        if (dtype == GW_FP16) {
            const __m256i is =
                half == 0 ? _mm256_unpacklo_epi8(is_zero, is_zero) : _mm256_unpackhi_epi8(is_zero, is_zero);
            x = _mm256_or_si256(x, _mm256_and_si256(is, _mm256_set1_epi16(GW_BIN_FP16_ZERO)));
        }
        /* The order within the group changes: bins are only counted. */
        _mm256_storeu_si256((__m256i *)(void *)(bin + 16 * half), x);
    }
}

static void count_bins(uint32_t *count, uint32_t (*more)[TABLE_LEN], const uint16_t *bin, size_t len)
{
    for (size_t i = 0; i < len; i += TABLES) {
        const uint64_t four = gw_load64(bin + i);
        count[four & 0xffff]++;
        more[0][four >> 16 & 0xffff]++;
        more[1][four >> 32 & 0xffff]++;
        more[2][four >> 48]++;
    }
}

/* Counts the bytes of the zero mask of a run. The padding of the last group is +0: its bits are 0. */
static void count_masks(uint32_t *count, uint32_t (*more)[MASK_TABLE_LEN], const gw_rounded_groups *rounded,
                        size_t len)
{
    size_t at = 0;
    for (; at + GW_GROUP_LEN <= len; at += GW_GROUP_LEN) {
        const uint32_t mask = ~(uint32_t)_mm256_movemask_epi8(load(rounded->is_zero + at));
        count[mask & 0xff]++;
        more[0][mask >> 8 & 0xff]++;
        more[1][mask >> 16 & 0xff]++;
        more[2][mask >> 24]++;
    }
    if (at < len) {
        uint32_t mask = ~(uint32_t)_mm256_movemask_epi8(load(rounded->is_zero + at));
        for (; at < len; at += 8, mask >>= 8) {
            count[mask & 0xff]++;
        }
    }
}

GW_TEMPLATE void all_bins(uint16_t *bin, const gw_rounded_groups *rounded, size_t groups, uint32_t dtype,
                          __m256i steps_mask)
{
    for (size_t g = 0; g < groups; g++) {
        bins_of(bin + g * GW_GROUP_LEN, rounded, g, dtype, steps_mask);
    }
}

/* Prefetches the run at `at`: runs that are about a page apart are beyond hardware prefetchers. */
static void prefetch(const gw_span *span, size_t at, const gw_round_params *params)
{
    const size_t size = gw_traits_of(params->dtype)->size;
    if (at >= span->len) {
        return;
    }
    const size_t len = span->len - at < 64 ? span->len - at : 64;
    for (size_t i = 0; i < len * size; i += 64) {
        _mm_prefetch((const char *)span->values + at * size + i, _MM_HINT_T1);
    }
    if (!params->constant) {
        _mm_prefetch((const char *)span->map_bytes + at, _MM_HINT_T1);
    }
}

/* Rounds values [at, at + len), of which bins_of() needs exponents and what is zero. */
static void round_run(gw_rounded_groups *rounded, const gw_span *span, size_t at, size_t len,
                      const gw_round_params *params, int is_dead_zone)
{
    const __m256i zero = _mm256_setzero_si256();
    uint8_t labels[GW_GROUPS_MAX * GW_GROUP_LEN];
    gw_dead_zone_values kept;
    kept.len = 0;
    if (!is_dead_zone || len % GW_GROUP_LEN != 0 ||
        !gw_dead_zone_round(labels, &kept, span, at, len / GW_GROUP_LEN, params)) {
        gw_round_groups(rounded, span, at, len, params);
        return;
    }
    for (size_t i = 0; i < len; i += GW_GROUP_LEN) {
        const __m256i label = load(labels + i);
        store(rounded->exponent + i, _mm256_subs_epu8(label, _mm256_set1_epi8(1)));
        store(rounded->has + i, zero);
        store(rounded->is_zero + i, _mm256_cmpeq_epi8(label, zero));
    }
}

void gw_survey_avx2(uint32_t *count, uint32_t *mask_count, const gw_span *span, size_t period,
                    const gw_round_rule *rule)
{
    const size_t block_len = GW_GROUPS_MAX * GW_GROUP_LEN;
    const size_t run = period == 64 ? block_len : 64;
    const size_t step = period == 64 ? block_len : period;
    const __m256i steps_mask = _mm256_set1_epi8(rule->derived ? 0 : 3);
    const int is_dead_zone = gw_is_dead_zone_stochastic(rule);
    const uint32_t zero_bin = rule->dtype == GW_FP16 ? (uint32_t)GW_BIN_FP16_ZERO : 0;
    uint32_t more[TABLES - 1][TABLE_LEN] = {{0}}, more_masks[TABLES - 1][MASK_TABLE_LEN];
    uint16_t bin[GW_GROUPS_MAX * GW_GROUP_LEN];
    gw_round_params params;
    gw_rounded_groups rounded;
    gw_round_params_fill(&params, rule);
    if (mask_count != NULL) {
        GW_MEMSET(more_masks, 0, sizeof more_masks);
    }
    for (size_t at = 0; at < span->len; at += step) {
        const size_t len = span->len - at < run ? span->len - at : run;
        const size_t groups = (len + GW_GROUP_LEN - 1) / GW_GROUP_LEN;
        if (period != 64) {
            prefetch(span, at + AHEAD * step, &params);
        }
        round_run(&rounded, span, at, len, &params, is_dead_zone);
        if (rule->dtype == GW_FP16) {
            all_bins(bin, &rounded, groups, GW_FP16, steps_mask);
        } else {
            all_bins(bin, &rounded, groups, GW_FP32, steps_mask);
        }
        count_bins(count, more, bin, groups * GW_GROUP_LEN);
        count[zero_bin] -= (uint32_t)(groups * GW_GROUP_LEN - len); /* the padding of the last group is +0 */
        if (mask_count != NULL) {
            count_masks(mask_count, more_masks, &rounded, len);
        }
    }
    for (size_t i = 0; i < GW_BINS; i++) {
        count[i] += more[0][i] + more[1][i] + more[2][i];
    }
    for (size_t i = 0; mask_count != NULL && i < MASKS; i++) {
        mask_count[i] += more_masks[0][i] + more_masks[1][i] + more_masks[2][i];
    }
}

#else
typedef int gw_survey_avx2_not_built; /* a translation unit must not be empty */
#endif
