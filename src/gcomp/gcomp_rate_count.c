/*
 * Rate control: the steps of every value (gcomp_rate.h). The rounding is that of docs/numerics.md section 3.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/philox.h"
#include "gcomp/gcomp_rate.h"

/* What is constant over a call. */
typedef struct settings {
    const gw_traits *traits;
    uint32_t rounding, dead_zone;
    int32_t points, bias; /* bias of the exponent field */
} settings;

/* A nonzero finite value with a quantum. */
typedef struct item {
    uint32_t magnitude, random;
    int32_t quantum;  /* exponent field at point 0 */
    uint8_t *toggles; /* by point: bits of the zero mask that change there */
    uint8_t bit;
    int keeps_sign;         /* where it is rounded to zero, it is -0 */
    gw_rate_labels *sample; /* that it belongs to beside all values, or NULL */
} item;

static int32_t clamp(int32_t x, int32_t least, int32_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* 2^exponent of a normal binary64 number. */
static double power_of_two(int32_t exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    GW_MEMCPY(&x, &bits, sizeof x);
    return x;
}

/* Zeros above the highest set bit; 32 for 0. */
static inline int32_t leading_zeros(uint32_t x)
{
#if defined(__GNUC__)
    return x == 0 ? 32 : __builtin_clz(x);
#else
    int32_t n = 0;
    for (; n < 32 && (x & 0x80000000u) == 0; x <<= 1) {
        n++;
    }
    return n;
#endif
}

/* The largest number of octaves by which a value may lie below its quantum and become it; 0: none.
 * `significand` is the value's, from bit 31 down. */
static int32_t octaves_up(uint32_t significand, uint32_t random, uint32_t rounding)
{
    if (rounding != GW_GCOMP_STOCHASTIC) {
        return rounding == GW_GCOMP_NEAREST && significand > 0x80000000u;
    }
    /* The largest b with significand >> (b - 1) > random. */
    const int32_t zeros = leading_zeros(random);
    return zeros + (zeros < 32 && significand >> zeros > random);
}

/* The largest number of kept mantissa bits with which rounding carries into the exponent; -1: none. */
static int32_t carry_bits(uint32_t magnitude, uint32_t random, const settings *s)
{
    const int32_t m = s->traits->mantissa_bits;
    const uint32_t mantissa = magnitude & ((1u << m) - 1);
    if (s->rounding == GW_GCOMP_TRUNCATE || mantissa == 0) {
        return -1;
    }
    if (s->rounding == GW_GCOMP_NEAREST) {
        /* A tie goes to an even exponent; where mantissa bits are kept, the last one of them is 1. */
        const int is_down = mantissa == 1u << (m - 1) && (magnitude >> m & 1) == 0;
        return is_down ? -1 : leading_zeros(~(mantissa << (32 - m))) - 1;
    }
    /* The fewest top bits of the random word that, added to the mantissa, carry: from its first bit that is
     * set, as many as what is missing has, or one more. */
    const uint32_t missing = (1u << m) - mantissa;
    const int32_t zeros = leading_zeros(random);
    int32_t bits = zeros + 32 - leading_zeros(missing);
    if (bits <= m && gw_random_top(random, (uint32_t)bits) < missing) {
        bits++;
    }
    return bits > m ? -1 : m - bits;
}

/* Expected squared error, in quanta, of a value `fraction` above a multiple of its quantum. */
static double squared_error(double fraction, uint32_t rounding)
{
    if (rounding == GW_GCOMP_STOCHASTIC) {
        return fraction * (1.0 - fraction);
    }
    const double nearest = rounding == GW_GCOMP_NEAREST && fraction > 0.5 ? 1.0 - fraction : fraction;
    return nearest * nearest;
}

/* The steps of a value with this exponent, from point `first` to before `end`. */
typedef struct steps {
    int32_t first, end;
    int32_t exponent;
    int32_t kept;      /* octaves from the quantum of point 0 */
    uint32_t is_plain; /* 1: side 1 of the tables */
} steps;

static void add_steps_to(gw_rate_labels *labels, const steps *s)
{
    const int32_t place = clamp(s->kept + GW_RATE_KEPT_ZERO, 0, GW_RATE_KEPT - 1);
    labels->plain[s->is_plain][s->first][s->exponent]++;
    labels->plain[s->is_plain][s->end][s->exponent]--;
    labels->kept[s->is_plain][s->first][place]++;
    labels->kept[s->is_plain][s->end][place]--;
}

/* Mantissa bits that a value keeps at a point. */
static int32_t bits_at(const steps *s, int32_t point, int32_t mantissa_bits)
{
    return clamp(s->kept + point, 0, mantissa_bits);
}

static void add_steps(gw_rate_tables *t, const item *it, const steps *s, int32_t mantissa_bits)
{
    const uint32_t missed = t->missed[s->is_plain][s->exponent];
    add_steps_to(&t->counts.labels, s);
    for (int32_t i = s->first; missed >> i != 0 && i < s->end; i++) {
        t->counts.missed[i][bits_at(s, i, mantissa_bits)] += missed >> i & 1;
    }
    if (it->sample != NULL) {
        add_steps_to(it->sample, s);
    }
}

static void add_up(gw_rate_tables *t, const item *it, int32_t first, int32_t end)
{
    const int32_t place = clamp(it->quantum, 0, GW_RATE_UP - 1);
    t->counts.labels.up[first][place]++;
    t->counts.labels.up[end][place]--;
    if (it->sample != NULL) {
        it->sample->up[first][place]++;
        it->sample->up[end][place]--;
    }
}

static void add_escape(gw_rate_tables *t, const item *it, int32_t first, int32_t end)
{
    t->counts.labels.escapes[first]++;
    t->counts.labels.escapes[end]--;
    if (it->sample != NULL) {
        it->sample->escapes[first]++;
        it->sample->escapes[end]--;
    }
}

static void add_error(gw_rate_tables *t, const item *it, const settings *s)
{
    const int32_t m = s->traits->mantissa_bits, exponent = (int32_t)(it->magnitude >> m);
    const int32_t above = it->quantum - exponent;
    gw_rate_error *e = &t->errors.error[clamp(above + GW_RATE_ERROR_ZERO, 0, GW_RATE_ERRORS - 1)];
    const double octave = power_of_two(exponent - s->bias), quantum = power_of_two(it->quantum - s->bias);
    const double square = octave * octave;
    const uint32_t mantissa = it->magnitude & ((1u << m) - 1);
    const double fraction = (double)mantissa * power_of_two(-m);
    const double value = (1.0 + fraction) * octave;
    e->times_quantum += value * quantum;
    e->square += value * value;
    e->quantum_square += quantum * quantum;
    e->below += 4.0 * square * squared_error((1.0 + fraction) * 0.5, s->rounding);
    e->kept[0] += square * squared_error(fraction, s->rounding);
    for (int32_t k = 1; k < 3; k++) {
        const uint32_t rest = mantissa & ((1u << (m - k)) - 1);
        e->kept[k] +=
            square * power_of_two(-2 * k) * squared_error((double)rest * power_of_two(k - m), s->rounding);
    }
}

/* A value whose exponent and quanta are ordinary at all points. */
static void count_ordinary(gw_rate_tables *t, const item *it, const settings *s)
{
    const int32_t m = s->traits->mantissa_bits, exponent = (int32_t)(it->magnitude >> m);
    const uint32_t mantissa = it->magnitude & ((1u << m) - 1);
    const int32_t above = it->quantum - exponent;
    int32_t own = 0, nonzero = 0; /* the first points of its own exponent, and of not being 0 */
    if (s->dead_zone && above > 0) {
        own = clamp(above, 0, s->points);
        nonzero =
            clamp(above - octaves_up((mantissa | 1u << m) << (31 - m), it->random, s->rounding), 0, own);
        if (nonzero < own) {
            add_up(t, it, nonzero, own);
        }
    }
    it->toggles[nonzero] ^= it->bit;
    if (own < s->points) {
        const int32_t bits = carry_bits(it->magnitude, it->random, s);
        const int32_t end = bits < 0 ? own : clamp(above + bits + 1, own, s->points);
        if (end > own) {
            add_steps(t, it, &(steps){own, end, exponent + 1, 1 - above, 0}, m);
        }
        add_steps(t, it, &(steps){end, s->points, exponent, -above, 0}, m);
    }
    add_error(t, it, s);
}

/* The rounded magnitude of a value that is not below its quantum and loses `drop` bits. */
static uint32_t round_magnitude(const item *it, uint32_t drop, const settings *s)
{
    const uint32_t cut = (1u << drop) - 1, magnitude = it->magnitude;
    uint32_t add = 0;
    if (s->rounding == GW_GCOMP_NEAREST) {
        add = (cut >> 1) + ((magnitude & (cut + 1)) != 0 ? cut & 1 : 0);
    } else if (s->rounding == GW_GCOMP_STOCHASTIC) {
        add = gw_random_top(it->random, drop);
    }
    const uint32_t rounded = (magnitude + add) & ~cut;
    return rounded >> s->traits->mantissa_bits < s->traits->exponent_mask ? rounded : magnitude & ~cut;
}

/* Any value, point by point. */
static void count_slowly(gw_rate_tables *t, const item *it, const settings *s)
{
    const int32_t m = s->traits->mantissa_bits, field = (int32_t)(it->magnitude >> m);
    const int32_t exponent = field == 0 ? 1 : field, last = s->traits->exponent_mask - 1;
    const uint32_t significand = (it->magnitude & ((1u << m) - 1)) | (uint32_t)(field != 0) << m;
    int was_nonzero = 0;
    for (int32_t i = 0; i < s->points; i++) {
        const int32_t quantum = it->quantum - i < last || !s->dead_zone ? it->quantum - i : last;
        const int32_t above = quantum - exponent;
        int is_nonzero;
        double fraction;
        int32_t unit; /* exponent of the quantum that counts */
        if (s->dead_zone && above > 0) {
            const uint32_t threshold = gw_share_of_quantum(significand, (uint32_t)m, above);
            is_nonzero = s->rounding == GW_GCOMP_STOCHASTIC ? it->random < threshold
                                                            : octaves_up(threshold, 0, s->rounding);
            if (is_nonzero) {
                add_up(t, it, i, i + 1);
            }
            unit = quantum;
            fraction = above > 200 ? 0.0 : (double)significand * power_of_two(-m - above);
        } else {
            const int32_t drop = clamp(above + m, 0, m);
            const uint32_t rounded = round_magnitude(it, (uint32_t)drop, s);
            is_nonzero = rounded != 0;
            if (is_nonzero) {
                const int32_t after = (int32_t)(rounded >> m);
                add_steps(t, it,
                          &(steps){i, i + 1, after, (after == 0 ? 1 : after) - quantum - i, quantum < 1}, m);
            }
            if (!is_nonzero && it->keeps_sign) {
                add_escape(t, it, i, i + 1);
                is_nonzero = 1;
            }
            unit = exponent + drop - m;
            fraction = (double)(significand & ((1u << drop) - 1)) * power_of_two(-drop);
        }
        const double size = power_of_two(clamp(unit - s->bias, -300, 300));
        t->errors.other_error[i] += squared_error(fraction, s->rounding) * size * size;
        if (is_nonzero != was_nonzero) {
            it->toggles[i] ^= it->bit;
        }
        was_nonzero = is_nonzero;
    }
}

/* Counts a byte of the zero mask of every point, and clears the toggles. */
static void count_mask(gw_rate_tables *t, uint8_t toggles[GW_RATE_SLOTS], int32_t points)
{
    uint32_t mask = 0;
    for (int32_t i = 0; i < points; i++) {
        mask ^= toggles[i];
        t->counts.mask[i][mask]++;
    }
    GW_MEMSET(toggles, 0, GW_RATE_SLOTS);
}

/* A value that nothing is dropped of. */
static void count_exact(gw_rate_tables *t, const item *it, const settings *s)
{
    const int32_t m = s->traits->mantissa_bits, exponent = (int32_t)(it->magnitude >> m);
    add_steps(t, it, &(steps){0, s->points, exponent, GW_RATE_KEPT, 1}, m);
    it->toggles[0] ^= it->bit;
}

/* A value that is not flushed, of map byte k. */
static void count_value(gw_rate_tables *t, const item *it, uint32_t k, int is_negative_zero,
                        const settings *s)
{
    const gw_traits *traits = s->traits;
    const int32_t m = traits->mantissa_bits, field = (int32_t)(it->magnitude >> m);
    if (field == traits->exponent_mask || is_negative_zero || (field == 0 && !traits->keeps_subnormals)) {
        add_escape(t, it, 0, s->points);
        it->toggles[0] ^= it->bit;
        return;
    }
    const double unit = power_of_two((field == 0 ? 1 : field) - s->bias - m);
    const double value = (double)((it->magnitude & ((1u << m) - 1)) | (uint32_t)(field != 0) << m) * unit;
    t->errors.value_square += value * value;
    if (k == 0) {
        count_exact(t, it, s);
    } else if (field == 0 || field + 1 >= traits->exponent_mask || it->quantum - s->points < 1 ||
               it->quantum >= traits->exponent_mask) {
        count_slowly(t, it, s);
    } else {
        count_ordinary(t, it, s);
    }
}

/* Exponent field, at point 0, of the quantum of map byte k. */
static int32_t quantum_of(uint32_t k, uint64_t element, const gw_rate_family *family)
{
    const uint32_t quarter = k + (uint32_t)family->base;
    int32_t quantum = (int32_t)(quarter >> 2) + family->offset;
    if (family->half) {
        /* The octave is reached from 1.414 times its start on: by all ratios of the two upper quarters, and
         * by a third of those between 1.25 and 1.5. */
        const uint32_t rest = quarter & 3;
        quantum += rest >= 2 || (rest == 1 && element % 3 == 0);
    }
    return quantum;
}

/* 1 if value i of the next chunk is in a sample of 64 values of every `period`, a power of two. */
static int is_in_sample(const gw_rate_tables *t, size_t i, size_t period)
{
    return (((size_t)t->counts.len + i) & (period - 1)) < GW_SAMPLE_RUN_LEN;
}

/* A chunk being counted. */
typedef struct counting {
    const gw_span *chunk;
    const gw_round_rule *rule;
    const gw_rate_family *family;
    uint8_t toggles[GW_RATE_SLOTS];
} counting;

/* Counts the values of the chunk from `at` on that share a random stream. */
static void count_part(gw_rate_tables *t, counting *c, size_t at, gw_gcomp_segment stream)
{
    const gw_round_rule *rule = c->rule;
    const gw_traits *traits = gw_traits_of(rule->dtype);
    const settings s = {traits, rule->rounding, rule->dead_zone, (int32_t)c->family->points,
                        127 - traits->exponent_bias};
    const uint8_t *values = (const uint8_t *)c->chunk->values;
    const uint32_t sign_bit = 1u << (8 * traits->size - 1);
    uint32_t random[GW_RANDOM_SHARED] = {0};
    uint64_t counter_of_random = UINT64_MAX; /* none: element / 8 is smaller */
    for (size_t i = at; i < at + (size_t)stream.len; i++) {
        if (t->relative_sample != NULL && !is_in_sample(t, i, t->codebook_period)) {
            continue;
        }
        const uint64_t element = stream.first_element + (i - at), counter = element >> GW_RANDOM_SHARED_LOG2;
        const uint32_t bits = traits->size == 4 ? gw_load32(values + 4 * i) : gw_load16(values + 2 * i);
        if (rule->rounding == GW_GCOMP_STOCHASTIC && counter != counter_of_random) {
            counter_of_random = counter;
            gw_random_eight(random, stream.seed, counter, rule->step_index, rule->rank_hop);
        }
        const uint32_t magnitude = bits & (sign_bit - 1), exponent = magnitude >> traits->mantissa_bits;
        t->counts.counted++;
        const int is_flushed =
            rule->strict ? bits == 0 : magnitude == 0 || (exponent == 0 && !traits->keeps_subnormals);
        if (!is_flushed) {
            const uint32_t k = c->chunk->map_bytes[i];
            const item it = {magnitude,
                             random[element % GW_RANDOM_SHARED],
                             quantum_of(k, c->chunk->element + i, c->family),
                             c->toggles,
                             (uint8_t)(1u << (i & 7)),
                             rule->strict && bits != magnitude,
                             t->relative_sample != NULL && is_in_sample(t, i, t->relative_period)
                                 ? t->relative_sample
                                 : NULL};
            count_value(t, &it, k, magnitude == 0, &s);
        }
        if ((i & 7) == 7 || i + 1 == c->chunk->len) {
            count_mask(t, c->toggles, s.points);
        }
    }
}

void gw_rate_count(gw_rate_tables *t, const gw_span *chunk, const gw_round_rule *rule,
                   const gw_rate_family *family, gw_segment_place *place)
{
    counting c = {chunk, rule, family, {0}};
    for (size_t at = 0; at < chunk->len;) {
        gw_gcomp_segment stream = {rule->seed, chunk->element, chunk->len};
        if (place->segments != NULL) {
            stream = gw_segment_next(place, chunk->len - at);
        }
        count_part(t, &c, at, stream);
        at += (size_t)stream.len;
    }
    t->counts.len += chunk->len;
}

void gw_rate_sum_steps(gw_rate_labels *labels, uint32_t points)
{
    for (uint32_t i = 1; i < points; i++) {
        for (uint32_t side = 0; side < 2; side++) {
            for (uint32_t j = 0; j < 256; j++) {
                labels->plain[side][i][j] += labels->plain[side][i - 1][j];
            }
            for (uint32_t j = 0; j < GW_RATE_KEPT; j++) {
                labels->kept[side][i][j] += labels->kept[side][i - 1][j];
            }
        }
        for (uint32_t j = 0; j < GW_RATE_UP; j++) {
            labels->up[i][j] += labels->up[i - 1][j];
        }
        labels->escapes[i] += labels->escapes[i - 1];
    }
}

double gw_rate_error_at(const gw_rate_errors *errors, const gw_round_rule *rule, uint32_t point)
{
    /* Where the value is spread evenly over its quantum, by rounding. */
    static const double evenly[3] = {1.0 / 3.0, 1.0 / 12.0, 1.0 / 6.0};
    const int is_random = rule->rounding == GW_GCOMP_STOCHASTIC;
    const double share = power_of_two(-(int32_t)point);
    double sum = errors->other_error[point];
    for (int32_t j = 0; j < GW_RATE_ERRORS; j++) {
        const gw_rate_error *e = &errors->error[j];
        const int32_t kept = (int32_t)point - (j - GW_RATE_ERROR_ZERO);
        if (kept < 0 && !rule->dead_zone) {
            sum += e->kept[0];
        } else if (kept < -1) {
            sum += is_random ? e->times_quantum * share - e->square : e->square;
        } else if (kept == -1) {
            sum += e->below;
        } else if (kept < 3) {
            sum += e->kept[kept];
        } else if (kept < gw_traits_of(rule->dtype)->mantissa_bits) {
            sum += e->quantum_square * share * share * evenly[rule->rounding];
        }
    }
    return sum;
}
