/*
 * Whether random words of GCOMP (docs/numerics.md section 4) are independent when their counters or keys
 * differ in one bit: this is what keeps the rounding of elements, steps, ranks, hops and tensors apart. It
 * finds six rounds, which decisions to round (test_gcomp_random.c) do not show.
 *
 * For each bit of what names a stream, the words of many pairs of counters that differ in that bit alone are
 * XORed. Each of the 128 bits of the result has to be 1 in half of the pairs, and the sum of the squares of
 * its 128 deviations has to be what it should be, both within five standard deviations. Pairs are those of
 * consecutive counters, then those of consecutive steps. In all 2 * 189 * 128 = 48,384 bits and 378 sums; of
 * words that were really random one test in thirty would fail. Streams are fixed: a run that passes passes
 * always.
 *
 * usage: test_gcomp_random_words [PAIRS_LOG2 [ROUNDS]]   16 to 31, default 16; default: the library's rounds
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <math.h>

#include "core/philox.h"

/* Found with 2^16 pairs, with standard deviations to spare: docs/notes/random-words.md. */
enum { TOO_FEW_ROUNDS = 6 };

#define LIMIT 5.0

static unsigned pairs_log2 = 16;
static int rounds_tried = GW_RANDOM_ROUNDS;

/* What names a stream, and the counter. */
typedef struct place {
    uint64_t seed, counter;
    uint32_t step_index, rank_hop;
} place;

typedef enum field { COUNTER, STEP, HOP, RANK, SEED, FIELDS } field;

static const char *const field_name[FIELDS] = {"counter", "step", "hop", "rank", "seed"};
static const unsigned field_bits[FIELDS] = {61 /* elements are 64 bits */, 32, 16, 16, 64};

static void words_of(uint32_t words[4], const place *p, int rounds)
{
    if (rounds == GW_RANDOM_ROUNDS) {
        uint32_t eight[GW_RANDOM_SHARED];
        gw_random_eight(eight, p->seed, p->counter, p->step_index, p->rank_hop);
        memcpy(words, eight, 4 * sizeof *words);
    } else {
        gw_philox4x32_rounds(words, p->seed, (uint32_t)p->counter, (uint32_t)(p->counter >> 32),
                             p->step_index, p->rank_hop, rounds);
    }
}

static place with_bit_changed(place p, field changed, unsigned bit)
{
    const uint64_t mask = (uint64_t)1 << bit;
    switch (changed) {
    case COUNTER:
        p.counter ^= mask;
        break;
    case STEP:
        p.step_index ^= (uint32_t)mask;
        break;
    case HOP:
        p.rank_hop ^= (uint32_t)mask;
        break;
    case RANK:
        p.rank_hop ^= (uint32_t)mask << 16;
        break;
    default:
        p.seed ^= mask;
        break;
    }
    return p;
}

/* The i-th number whose bit is 0: a number and itself with the bit changed are one pair, not two. */
static uint64_t without_bit(uint64_t i, unsigned bit)
{
    const uint64_t low = i & (((uint64_t)1 << bit) - 1);
    return (i - low) << 1 | low;
}

/* Adds to ones[b] how many of the words have bit b; len is at most 255. */
static void count_bits(uint64_t ones[32], const uint32_t *words, size_t len)
{
    for (unsigned bit = 0; bit < 8; bit++) {
        uint32_t bytes = 0; /* counts of bits `bit`, 8 + bit, 16 + bit and 24 + bit */
        for (size_t i = 0; i < len; i++) {
            bytes += words[i] >> bit & 0x01010101u;
        }
        for (unsigned byte = 0; byte < 4; byte++) {
            ones[8 * byte + bit] += bytes >> (8 * byte) & 0xff;
        }
    }
}

/* Deviations in standard deviations: of the bit that is worst, and of the sum of squares. */
typedef struct deviations {
    double bit, sum;
} deviations;

/* Of pairs that differ in one bit of `changed`; `moving`, COUNTER or STEP, numbers the pairs. */
static deviations of_difference(field changed, unsigned bit, field moving, int rounds)
{
    enum { BATCH = 240 };
    const uint64_t pairs = (uint64_t)1 << pairs_log2;
    uint32_t words[4][BATCH];
    uint64_t ones[4][32] = {{0}};
    place p = {0x9e3779b97f4a7c15u, 0, 1, 0};
    for (uint64_t first = 0; first < pairs; first += BATCH) {
        const size_t len = pairs - first < BATCH ? (size_t)(pairs - first) : BATCH;
        for (size_t i = 0; i < len; i++) {
            const uint64_t index = moving == changed ? without_bit(first + i, bit) : first + i;
            p.counter = moving == COUNTER ? index : 0;
            p.step_index = moving == STEP ? (uint32_t)index : 1;
            const place other = with_bit_changed(p, changed, bit);
            uint32_t a[4], b[4];
            words_of(a, &p, rounds);
            words_of(b, &other, rounds);
            for (unsigned w = 0; w < 4; w++) {
                words[w][i] = a[w] ^ b[w];
            }
        }
        for (unsigned w = 0; w < 4; w++) {
            count_bits(ones[w], words[w], len);
        }
    }
    deviations found = {0.0, -128.0};
    for (unsigned i = 0; i < 128; i++) {
        const double z = (2.0 * (double)ones[i / 32][i % 32] - (double)pairs) / sqrt((double)pairs);
        found.bit = fmax(found.bit, fabs(z));
        found.sum += z * z;
    }
    found.sum /= sqrt(2.0 * 128.0);
    return found;
}

/* The largest deviations of all bits of a field. */
static deviations of_field(field changed, field moving, int rounds)
{
    deviations largest = {0.0, 0.0};
    for (unsigned bit = 0; bit < field_bits[changed]; bit++) {
        const deviations found = of_difference(changed, bit, moving, rounds);
        largest.bit = fmax(largest.bit, found.bit);
        largest.sum = fmax(largest.sum, fabs(found.sum));
    }
    print_message("%d rounds, 2^%u %ss, one bit of the %s: largest deviations %.2f and %.2f\n", rounds,
                  pairs_log2, field_name[moving], field_name[changed], largest.bit, largest.sum);
    return largest;
}

static void differences_are_even(void **state)
{
    (void)state;
    unsigned unlikely = 0;
    for (field moving = COUNTER; moving <= STEP; moving++) {
        for (field changed = COUNTER; changed < FIELDS; changed++) {
            const deviations largest = of_field(changed, moving, rounds_tried);
            unlikely += largest.bit > LIMIT || largest.sum > LIMIT;
        }
    }
    assert_int_equal(unlikely, 0);
}

/* The test can fail. */
static void finds_too_few_rounds(void **state)
{
    (void)state;
    assert_true(TOO_FEW_ROUNDS < GW_RANDOM_ROUNDS);
    for (field moving = COUNTER; moving <= STEP; moving++) {
        const deviations largest = of_field(HOP, moving, TOO_FEW_ROUNDS);
        assert_true(largest.bit > 4.0 * LIMIT);
        assert_true(largest.sum > 4.0 * LIMIT);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_even),
        cmocka_unit_test(finds_too_few_rounds),
    };
    if (argc > 1) {
        pairs_log2 = (unsigned)strtoul(argv[1], NULL, 10);
        if (pairs_log2 < 16 || pairs_log2 > 31) {
            fprintf(stderr, "PAIRS_LOG2 is 16 to 31\n");
            return 2;
        }
    }
    if (argc > 2) {
        rounds_tried = (int)strtol(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests_name("gcomp random words", tests, NULL, NULL);
}
