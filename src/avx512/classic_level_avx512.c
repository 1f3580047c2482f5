/*
 * Random bits of QSGD and TERNGRAD: 128 values at a time.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/thc_avx512.h"

#if defined(GW_AVX512_COMPILED)

#include "classic/level_values.h"

/* Words of counters 0..7 and 8..15, each in the low half of a 64-bit lane: the low halves of the sixteen,
 * then the high ones. */
static inline void store_word(uint16_t *dst, __m512i first, __m512i second)
{
    const __m512i halves = _mm512_set_epi16(61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1, 60,
                                            56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(first, halves, second));
}

/* `count` groups, 1 or 2: two chains of multiplications for each, side by side. */
GW_TEMPLATE void random_groups(uint16_t *dst, uint32_t low, const gw_philox_params *params, unsigned count)
{
    gw_philox8 p[4];
    for (unsigned i = 0; i < 2 * count; i++) {
        p[i] = gw_philox8_start(low + 8 * i, params);
    }
    for (unsigned r = 2; r < GW_PHILOX_ROUNDS; r++) {
        for (unsigned i = 0; i < 2 * count; i++) {
            gw_philox8_round(&p[i], params, r);
        }
    }
    for (unsigned g = 0; g < count; g++) {
        uint16_t *const group = dst + (size_t)GW_LEVEL_GROUP_LEN * g;
        store_word(group, p[2 * g].c0, p[2 * g + 1].c0);
        store_word(group + 32, p[2 * g].c1, p[2 * g + 1].c1);
        store_word(group + 64, p[2 * g].c2, p[2 * g + 1].c2);
        store_word(group + 96, p[2 * g].c3, p[2 * g + 1].c3);
    }
}

void gw_level_random_avx512(uint16_t *random, uint64_t first, size_t group_count,
                            const gw_level_stream *stream)
{
    size_t g = 0;
    while (g < group_count) {
        /* Groups whose counters have the same high word. */
        const uint32_t low = gw_level_counter_low(first + g);
        const uint64_t same = ((uint64_t)1 << 28) - (low >> 4);
        const size_t end = same < group_count - g ? g + (size_t)same : group_count;
        const gw_thc_stream words = {stream->seed, gw_level_counter_high(first + g), stream->round,
                                     stream->rank};
        gw_philox_params params;
        gw_philox_params_make(&params, &words, stream->rank, 0);
        for (; g + 2 <= end; g += 2) {
            random_groups(random + GW_LEVEL_GROUP_LEN * g, gw_level_counter_low(first + g), &params, 2);
        }
        for (; g < end; g++) {
            random_groups(random + GW_LEVEL_GROUP_LEN * g, gw_level_counter_low(first + g), &params, 1);
        }
    }
}

#else
typedef int gw_classic_level_avx512_not_built; /* a translation unit must not be empty */
#endif
