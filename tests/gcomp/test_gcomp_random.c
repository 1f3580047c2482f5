/*
 * Statistics of stochastic rounding, through encoder and decoder: whether values are rounded up as often as
 * docs/numerics.md section 3 says, and independently of other elements, ranks, hops, steps and seeds. Limits
 * are five standard deviations; streams are fixed, so a run that passes passes always. Tried, with scalar in
 * the place of all backends, and found by one turn: 3 rounds of Philox (14 deviations and more), the low bits
 * of a word instead of the top ones (24), 16 bits without half a step (8), the same word for two values (94).
 * Not found: 6 rounds (test_gcomp_random_words.c does), halves that change places by another rotation than
 * 16, a shift one too far to the left; the models of kcheck and the golden vectors are there for these. Nor,
 * by 2e6 draws a drop, that values 40 octaves above their last bit are never rounded up: some 10 should be.
 *
 * usage: test_gcomp_random [TURNS [DRAWS]]   1 turn (default): 1.8e8 decisions on three backends, and 2e6
 * draws a drop on the fastest; 10 turns and 1e9 draws are the nightly test
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp_support.h"

#include <math.h>

/* Values have this exponent field. Their quantum is `drop` octaves above their last bit, so up to 23 it is a
 * drop, and beyond the values are in the dead zone. */
enum { EXPONENT = 120, MANTISSA_BITS = 23, MAP_BASE = 400, DROP_MAX = 41 };

enum { LEN = 1 << 20, CHUNK_LOG2 = 14 };

static unsigned turns = 1;
static uint64_t many_draws = 1 << 21; /* a drop */

/* Values, their drops, and of each whether it was rounded up and with which probability it should be. */
typedef struct draws {
    size_t len;
    uint32_t *values, *decoded;
    uint8_t *map_bytes;
    uint32_t *digest;
    float *share; /* 0..1: of the quantum, above the multiple below */
    uint8_t *is_up;
} draws;

static void draws_make(draws *d, size_t len)
{
    d->len = len;
    d->values = malloc(len * 4);
    d->decoded = malloc(len * 4);
    d->map_bytes = malloc(len);
    d->digest = malloc(((len >> CHUNK_LOG2) + 1) * 4);
    d->share = malloc(len * sizeof *d->share);
    d->is_up = malloc(len);
    assert_true(d->values != NULL && d->decoded != NULL && d->map_bytes != NULL && d->digest != NULL &&
                d->share != NULL && d->is_up != NULL);
}

static void draws_free(draws *d)
{
    free(d->values);
    free(d->decoded);
    free(d->map_bytes);
    free(d->digest);
    free(d->share);
    free(d->is_up);
}

static uint32_t significand_of(uint32_t bits)
{
    return (bits & 0x7fffff) | 0x800000;
}

/* Sets value i. */
static void put(draws *d, size_t i, uint32_t mantissa, uint32_t drop)
{
    d->values[i] = (uint32_t)EXPONENT << MANTISSA_BITS | mantissa;
    /* A derived quantum of tolerance 23 is 2^(q / 4 - 150), q being base + map byte (section 2.5). */
    d->map_bytes[i] = (uint8_t)(4 * (EXPONENT + drop) - MAP_BASE);
    const uint64_t rest = significand_of(d->values[i]) & (((uint64_t)1 << drop) - 1);
    d->share[i] = (float)ldexp((double)rest, -(int)drop);
}

static uint32_t drop_of(const draws *d, size_t i)
{
    return ((uint32_t)d->map_bytes[i] + MAP_BASE) / 4 - EXPONENT;
}

static void codec_make(test_codec *codec, uint32_t backends)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.quantum_mode = GW_GCOMP_DERIVED;
    o.step = 1;
    o.rounding = GW_GCOMP_STOCHASTIC;
    o.dead_zone = 1;
    o.chunk_log2 = CHUNK_LOG2;
    o.backends = backends;
    test_codec_make(codec, &o);
}

static gw_gcomp_map map_make(const draws *d)
{
    assert_int_equal(gw_gcomp_map_digest(d->map_bytes, d->len, CHUNK_LOG2, d->digest), GW_OK);
    return (gw_gcomp_map){d->map_bytes, d->digest, MAP_BASE, 1.0f, d->len, CHUNK_LOG2};
}

/* Encodes all values into a frame of at least the bound, and decodes it. */
static void pass(draws *d, const test_codec *codec, const gw_gcomp_map *map, const gw_gcomp_source *stream,
                 const test_buffer *frame)
{
    gw_gcomp_source source = *stream;
    source.values = d->values;
    source.len = d->len;
    source.quantum = gw_gcomp_quantum_of_map(map);
    gw_buffer out = {frame->at, frame->size, 0};
    assert_int_equal(gw_gcomp_encode(&codec->codec, &source, &out, &codec->work), GW_OK);
    gw_gcomp_target target = {.values = d->decoded, .capacity = d->len};
    assert_int_equal(gw_gcomp_decode(&codec->codec,
                                     &(gw_gcomp_frame){.data = frame->at, .size = out.size, .map = map},
                                     &target, &codec->work),
                     GW_OK);
}

/* Encodes and decodes all values; every result has to be one of the two multiples. */
static void decide(draws *d, const gw_gcomp_source *stream, uint32_t backends)
{
    test_codec codec;
    codec_make(&codec, backends);
    const gw_gcomp_map map = map_make(d);
    test_buffer frame;
    test_buffer_make(&frame, gw_gcomp_frame_bound(&codec.codec, d->len), 0, 0);
    pass(d, &codec, &map, stream, &frame);
    size_t wrong = 0;
    for (size_t i = 0; i < d->len; i++) {
        const uint32_t value = d->values[i], drop = drop_of(d, i);
        const uint32_t cut = drop > MANTISSA_BITS ? 0 : value >> drop << drop;
        const uint32_t up =
            drop > MANTISSA_BITS ? (EXPONENT + drop - MANTISSA_BITS) << MANTISSA_BITS : cut + (1u << drop);
        d->is_up[i] = d->decoded[i] == up;
        wrong += d->decoded[i] != up && d->decoded[i] != cut;
    }
    assert_int_equal(wrong, 0);
    test_buffer_free(&frame);
    test_codec_free(&codec);
}

/* Whether sum, of mean 0, is within five standard deviations. */
static int is_likely(double sum, double variance)
{
    return fabs(sum) <= 5.0 * sqrt(variance) + 1e-9;
}

static void assert_likely(const char *what, unsigned a, unsigned b, double sum, double variance)
{
    if (!is_likely(sum, variance)) {
        fail_msg("%s (%u, %u): %.1f standard deviations", what, a, b, sum / sqrt(variance));
    }
}

static gw_gcomp_source stream_of(unsigned turn)
{
    gw_gcomp_source stream = test_source(NULL, 0, NULL);
    stream.seed = 0x9e3779b97f4a7c15u * (turn + 1);
    stream.first_element = 0;
    stream.step_index = turn;
    return stream;
}

/* Values that one drop is tried on, their codec, and the frame that each pass overwrites. */
typedef struct trial {
    draws d;
    test_codec codec;
    gw_gcomp_map map;
    test_buffer frame;
    uint32_t drop, up_from_zero; /* the second: of the dead zone, else 0 */
    int32_t *weight;             /* (1 - 2 * share) in units of 2^-22, rounded down */
} trial;

enum { TRIAL_LEN = 1 << 16, WEIGHT_BITS = 22 };

static void trial_make(trial *t, uint32_t backends, uint32_t drop)
{
    draws *const d = &t->d;
    draws_make(d, TRIAL_LEN);
    t->weight = malloc(TRIAL_LEN * sizeof *t->weight);
    assert_non_null(t->weight);
    t->drop = drop;
    t->up_from_zero = drop > MANTISSA_BITS ? (EXPONENT + drop - MANTISSA_BITS) << MANTISSA_BITS : 0;
    test_random random = {drop};
    for (size_t i = 0; i < TRIAL_LEN; i++) {
        put(d, i, (uint32_t)test_random_u64(&random) & 0x7fffff, drop);
        t->weight[i] = (int32_t)floor(ldexp(1.0 - 2.0 * (double)d->share[i], WEIGHT_BITS));
    }
    codec_make(&t->codec, backends);
    t->map = map_make(d);
    test_buffer_make(&t->frame, gw_gcomp_frame_bound(&t->codec.codec, TRIAL_LEN), 0, 0);
}

static void trial_free(trial *t)
{
    test_buffer_free(&t->frame);
    test_codec_free(&t->codec);
    draws_free(&t->d);
    free(t->weight);
}

/* What the passes found: draws, how many were rounded up, and the sum of their weights. */
typedef struct tally {
    uint64_t draws, ups;
    int64_t weight;
} tally;

/* One integer of 32 bits a sum, so that compilers can vectorise it: 256 weights are below 2^31. */
static void trial_count(const trial *t, tally *sum)
{
    enum { BATCH = 256 };
    const uint32_t low = t->drop > MANTISSA_BITS ? UINT32_MAX : (1u << t->drop) - 1;
    const uint32_t step = t->drop > MANTISSA_BITS ? t->up_from_zero : low + 1;
    uint32_t wrong = 0;
    for (size_t first = 0; first < TRIAL_LEN; first += BATCH) {
        const uint32_t *const value = t->d.values + first, *const decoded = t->d.decoded + first;
        const int32_t *const each = t->weight + first;
        uint32_t ups = 0;
        int32_t weight = 0;
        for (size_t i = 0; i < BATCH; i++) {
            const uint32_t rise = decoded[i] - (value[i] & ~low);
            const uint32_t is_up = rise == step;
            wrong |= rise & (is_up - 1);
            ups += is_up;
            weight += each[i] & (int32_t)(0u - is_up);
        }
        sum->ups += ups;
        sum->weight += weight;
    }
    assert_int_equal(wrong, 0);
    sum->draws += TRIAL_LEN;
}

/* The largest deviation, in standard deviations, and of which drop. */
typedef struct extreme {
    double deviation;
    uint32_t drop;
} extreme;

static void extreme_add(extreme *largest, uint32_t drop, double sum, double variance)
{
    const double deviation = variance > 0.0 ? sum / sqrt(variance) : 0.0;
    if (fabs(deviation) >= fabs(largest->deviation)) {
        *largest = (extreme){deviation, drop};
    }
}

/*
 * Mean and variance of the error over at least so many draws. With u = 1 if a value is rounded up and its
 * share f, the error is u - f quanta, of mean 0 and variance v = f * (1 - f). And (u - f)^2 - v is
 * (u - f) * (1 - 2 * f). So the sums of u and of u * (1 - 2 * f) say it all. Mean and variance of both are
 * known exactly, whatever weight is in the place of 1 - 2 * f. Values stay; each pass has other words.
 */
static void assert_mean_and_variance(uint32_t backends, uint32_t drop, uint64_t draws_wanted, uint16_t rank,
                                     extreme largest[2])
{
    trial t;
    trial_make(&t, backends, drop);
    tally sum = {0, 0, 0};
    gw_gcomp_source stream = stream_of(drop);
    stream.rank = rank;
    for (stream.step_index = 0; sum.draws < draws_wanted; stream.step_index++) {
        pass(&t.d, &t.codec, &t.map, &stream, &t.frame);
        trial_count(&t, &sum);
    }
    double up = 0.0, up_variance = 0.0, weight = 0.0, weight_variance = 0.0; /* expected in a pass */
    for (size_t i = 0; i < TRIAL_LEN; i++) {
        const double f = t.d.share[i], w = t.weight[i], v = f * (1.0 - f);
        up += f;
        up_variance += v;
        weight += w * f;
        weight_variance += w * w * v;
    }
    const double passes = (double)sum.draws / TRIAL_LEN;
    const double mean = (double)sum.ups - passes * up;
    const double variance = (double)sum.weight - passes * weight;
    assert_likely("mean", backends, drop, mean, passes * up_variance);
    /* 0 of a drop of 1, where shares are 0 and 1/2. */
    assert_likely("variance", backends, drop, variance, passes * weight_variance);
    extreme_add(&largest[0], drop, mean, passes * up_variance);
    extreme_add(&largest[1], drop, variance, passes * weight_variance);
    trial_free(&t);
}

/* For every drop and depth of the dead zone. */
static void assert_all_drops(const char *name, uint32_t backends, uint64_t draws_wanted, uint16_t rank)
{
    extreme largest[2] = {{0.0, 0}, {0.0, 0}};
    for (uint32_t drop = 1; drop <= DROP_MAX; drop++) {
        assert_mean_and_variance(backends, drop, draws_wanted, rank, largest);
    }
    print_message("%s: %.3g draws a drop, largest deviations: mean %.2f (drop %u), variance %.2f (drop %u)\n",
                  name, (double)draws_wanted, largest[0].deviation, (unsigned)largest[0].drop,
                  largest[1].deviation, (unsigned)largest[1].drop);
}

static void mean_and_variance(void **state)
{
    (void)state;
    for (uint32_t left = gw_backends_available(); left != 0; left &= left - 1) {
        const uint32_t backend = left & (0u - left);
        /* The rank gives each other draws. */
        assert_all_drops(gw_backend_name(backend), backend, (uint64_t)turns * (LEN / 2), (uint16_t)backend);
    }
}

/* The same on the backends that a user gets, fast enough for 10^9 draws a drop. */
static void mean_and_variance_of_many(void **state)
{
    (void)state;
    assert_all_drops("all backends", GW_BACKEND_ALL, many_draws, 0);
}

/* Values 2^-18 of a quantum above a multiple become the next one that often: 16 random bits could not say it.
 */
static void rare_decisions(void **state)
{
    (void)state;
    static const uint32_t drops[] = {18, 19, 21, 23, DROP_MAX};
    draws d;
    draws_make(&d, LEN);
    for (size_t n = 0; n < TEST_ARRAY_LEN(drops); n++) {
        const uint32_t drop = drops[n];
        double ups = 0.0;
        for (size_t i = 0; i < d.len; i++) {
            /* Of DROP_MAX the hidden bit is the share. */
            const uint32_t rest = drop == DROP_MAX ? 0 : 1u << (drop - 18);
            put(&d, i, rest, drop);
        }
        for (unsigned turn = 0; turn < 16 * turns; turn++) {
            const gw_gcomp_source stream = stream_of(turn);
            decide(&d, &stream, GW_BACKEND_ALL);
            for (size_t i = 0; i < d.len; i++) {
                ups += d.is_up[i];
            }
        }
        const double draws_made = 16.0 * turns * LEN, p = 0x1p-18;
        assert_likely("rare", drop, 0, ups - draws_made * p, draws_made * p);
    }
    draws_free(&d);
}

/* Chi-squared of decisions by place in a counter and share, and of the patterns of eight even ones. */
static void chi_squared(void **state)
{
    (void)state;
    enum { PLACES = 8, BINS = 32, CELLS = PLACES * BINS, PATTERNS = 256 };
    double observed[CELLS] = {0}, expected[CELLS] = {0}, variance[CELLS] = {0};
    double pattern_count[3][PATTERNS] = {{0}};
    draws d;
    draws_make(&d, LEN);
    for (unsigned turn = 0; turn < turns; turn++) {
        const gw_gcomp_source stream = stream_of(turn);
        test_random random = {77 + turn};
        for (size_t i = 0; i < d.len; i++) {
            put(&d, i, (uint32_t)test_random_u64(&random) & 0x7fffff, 17 + (uint32_t)(i / 8 % 7));
        }
        decide(&d, &stream, GW_BACKEND_ALL);
        for (size_t i = 0; i < d.len; i++) {
            const double f = d.share[i];
            const size_t cell = i % PLACES * BINS + (size_t)(f * BINS);
            observed[cell] += d.is_up[i];
            expected[cell] += f;
            variance[cell] += f * (1.0 - f);
        }
        /* Even decisions: by drops of 1 and of 23. Patterns of one counter, and of a word of eight counters.
         */
        for (size_t i = 0; i < d.len; i++) {
            put(&d, i, i % 3 == 0 ? 1 : 0x400000, i % 3 == 0 ? 1 : 23);
        }
        decide(&d, &stream, GW_BACKEND_ALL);
        for (size_t i = 0; i < d.len; i += 64) {
            for (size_t j = 0; j < 8; j++) {
                unsigned counter = 0, word = 0, apart = 0;
                for (size_t n = 0; n < 8; n++) {
                    counter |= (unsigned)d.is_up[i + 8 * j + n] << n;
                    word |= (unsigned)d.is_up[i + 8 * n + j] << n;
                    apart |= (unsigned)d.is_up[i + 8 * ((j + n) % 8) + n] << n;
                }
                pattern_count[0][counter]++;
                pattern_count[1][word]++;
                pattern_count[2][apart]++;
            }
        }
    }
    double sum = 0.0;
    for (size_t i = 0; i < CELLS; i++) {
        sum += (observed[i] - expected[i]) * (observed[i] - expected[i]) / variance[i];
    }
    assert_likely("chi-squared of shares", 0, 0, sum - CELLS, 2.0 * CELLS);
    const double even = (double)turns * LEN / 8 / PATTERNS;
    for (unsigned kind = 0; kind < 3; kind++) {
        sum = 0.0;
        for (size_t i = 0; i < PATTERNS; i++) {
            sum += (pattern_count[kind][i] - even) * (pattern_count[kind][i] - even) / even;
        }
        assert_likely("chi-squared of patterns", kind, 0, sum - (PATTERNS - 1), 2.0 * (PATTERNS - 1));
    }
    draws_free(&d);
}

/* Errors of elements up to 64 apart are not correlated by more than this can see: elements that share a word
 * take different bits of it. */
static void neighbours(void **state)
{
    (void)state;
    static const uint8_t drops[] = {3, 7, 15, 16, 17, 20, 23, 24, 25};
    enum { LAGS = 64 };
    double sum[LAGS + 1] = {0}, variance[LAGS + 1] = {0};
    draws d;
    draws_make(&d, LEN);
    double *const error = malloc(LEN * sizeof *error);
    assert_non_null(error);
    for (unsigned turn = 0; turn < 2 * turns; turn++) {
        const gw_gcomp_source stream = stream_of(turn);
        test_random random = {5 + turn};
        for (size_t i = 0; i < d.len; i++) {
            const uint64_t bits = test_random_u64(&random);
            put(&d, i, (uint32_t)bits & 0x7fffff, drops[(bits >> 32) % TEST_ARRAY_LEN(drops)]);
        }
        decide(&d, &stream, GW_BACKEND_ALL);
        double per_value = 0.0;
        for (size_t i = 0; i < d.len; i++) {
            error[i] = d.is_up[i] - (double)d.share[i];
            per_value += (double)d.share[i] * (1.0 - (double)d.share[i]) / (double)d.len;
        }
        for (size_t lag = 1; lag <= LAGS; lag++) {
            for (size_t i = 0; i + lag < d.len; i++) {
                sum[lag] += error[i] * error[i + lag];
            }
            variance[lag] += (double)(d.len - lag) * per_value * per_value;
        }
    }
    for (unsigned lag = 1; lag <= LAGS; lag++) {
        assert_likely("elements apart", lag, 0, sum[lag], variance[lag]);
    }
    free(error);
    draws_free(&d);
}

/* Errors of two streams, element by element, for every bit of what names a stream. */
static void streams(void **state)
{
    (void)state;
    enum { SEED = 64, STEP = SEED + 32, RANK = STEP + 16, HOP = RANK + 16, ELEMENT = HOP + 61 };
    draws d;
    draws_make(&d, LEN / 8);
    double *const error = malloc(d.len * sizeof *error);
    assert_non_null(error);
    double variance = 0.0;
    test_random random = {99};
    for (size_t i = 0; i < d.len; i++) {
        put(&d, i, (uint32_t)test_random_u64(&random) & 0x7fffff, 12 + (uint32_t)i % 14);
        const double f = d.share[i], v = f * (1.0 - f);
        variance += v * v;
    }
    for (unsigned turn = 0; turn < turns; turn++) {
        const gw_gcomp_source stream = stream_of(turn);
        decide(&d, &stream, GW_BACKEND_ALL);
        for (size_t i = 0; i < d.len; i++) {
            error[i] = d.is_up[i] - (double)d.share[i];
        }
        for (unsigned bit = 0; bit < ELEMENT; bit++) {
            gw_gcomp_source other = stream;
            other.seed ^= bit < SEED ? (uint64_t)1 << bit : 0;
            other.step_index ^= bit >= SEED && bit < STEP ? 1u << (bit - SEED) : 0;
            other.rank = (uint16_t)(other.rank ^ (bit >= STEP && bit < RANK ? 1u << (bit - STEP) : 0));
            other.hop = (uint16_t)(other.hop ^ (bit >= RANK && bit < HOP ? 1u << (bit - RANK) : 0));
            other.first_element += bit >= HOP ? (uint64_t)8 << (bit - HOP) : 0;
            decide(&d, &other, GW_BACKEND_ALL);
            double sum = 0.0;
            for (size_t i = 0; i < d.len; i++) {
                sum += error[i] * (d.is_up[i] - (double)d.share[i]);
            }
            assert_likely("streams", bit, turn, sum, variance);
        }
    }
    free(error);
    draws_free(&d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_and_variance), cmocka_unit_test(mean_and_variance_of_many),
        cmocka_unit_test(rare_decisions),    cmocka_unit_test(chi_squared),
        cmocka_unit_test(neighbours),        cmocka_unit_test(streams),
    };
    if (argc > 1) {
        turns = (unsigned)strtoul(argv[1], NULL, 10);
    }
    if (argc > 2) {
        many_draws = (uint64_t)strtod(argv[2], NULL);
    }
    return cmocka_run_group_tests_name("gcomp random", tests, NULL, NULL);
}
