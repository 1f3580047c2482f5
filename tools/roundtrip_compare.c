/*
 * One pass over the values in double. The bound of each value is computed from its map byte, in carried
 * frames from the map bytes or values of its block, deliberately without code of the library's encoder.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "roundtrip_compare.h"

#include "dtype_convert.h"
#include "optimizer_update.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Exponents here are fields in fp32's bias. */
enum { NO_QUANTUM = -1000, BLOCKS_MAX = 1 << 9, QUANTA_WINDOW = 62, RAISES = 2 };

typedef struct value_rule {
    const gw_tensor_input *tensor;
    const gw_gcomp_frame_info *info;
    gw_dtype dtype;
    int mantissa_bits;
    int exponent_bias;
    int exponent_max; /* of a finite value */
    int dead_zone;
    uint32_t cap;
    int tolerance;
    const uint8_t *map; /* NULL: cap for every value, or carried quanta */
    int map_base;
    /* carried: quanta of the chunk of the current value */
    int quantum[BLOCKS_MAX];
} value_rule;

static void value_rule_init(value_rule *rule, const gw_tensor_input *tensor, const gw_gcomp_frame_info *info)
{
    const gw_gcomp_options *options = &tensor->options;
    memset(rule, 0, sizeof *rule);
    rule->tensor = tensor;
    rule->info = info;
    rule->dtype = tensor->in.dtype;
    rule->mantissa_bits = (int)gw_dtype_mantissa_bits(tensor->in.dtype);
    rule->exponent_bias = tensor->in.dtype == GW_FP16 ? 15 : 127;
    rule->exponent_max = tensor->in.dtype == GW_FP16 ? 142 : 254;
    rule->cap = info->cap;
    rule->tolerance = (int)options->tolerance_bits;
    rule->map = tensor->map.bytes;
    rule->map_base = (int)tensor->map.map.base;
    rule->dead_zone = options->dead_zone && !info->constant;
    if (rule->map == NULL && info->quantum_mode == GW_GCOMP_EXPLICIT) {
        /* Explicit frames without a map: the constant drop, clipped to cap and rounded down to the step. */
        const uint32_t drop = options->quantum.drop < info->cap ? options->quantum.drop : info->cap;
        rule->cap = drop - drop % info->step;
    }
}

/* ---- quanta ---- */

/* A map byte is a quarter-octave of the ratio above the base; the quantum is 2^-tolerance of the octave. */
static int quantum_of_byte(const value_rule *rule, unsigned byte)
{
    return byte == 0 ? NO_QUANTUM : (int)(byte + (unsigned)rule->map_base) / 4 - rule->tolerance;
}

/* Carried: the quantum of the lower median of the map bytes other than 0. */
static int quantum_of_median(const value_rule *rule, uint64_t first, uint64_t len)
{
    uint64_t count[256] = {0};
    for (uint64_t i = 0; i < len; i++) {
        count[rule->map[first + i]]++;
    }
    uint64_t left = (len - count[0] + 1) / 2; /* values up to the median */
    unsigned byte = 0;
    while (left > 0) {
        byte++;
        left -= count[byte] < left ? count[byte] : left;
    }
    return quantum_of_byte(rule, byte);
}

/* The sum of the squares of a block, in the order of docs/numerics.md section 6. */
static double squares_of_block(const value_rule *rule, uint64_t first, uint64_t len)
{
    double sum[4] = {0, 0, 0, 0};
    for (uint64_t i = 0; i < len; i++) {
        const double x = gw_dtype_number(rule->dtype, rule->tensor->in.values, first + i);
        if (isfinite(x) && (rule->dtype == GW_FP16 || fabs(x) >= 0x1p-126)) {
            sum[i % 4] += x * x;
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The largest power of two whose square is at most `square`: its exponent in fp32's bias. */
static int quantum_of_square(const value_rule *rule, double square)
{
    int exponent = 0;
    if (square < DBL_MIN) {
        return NO_QUANTUM;
    }
    (void)frexp(square, &exponent); /* square = 0.5..1 * 2^exponent */
    exponent = (int)floor((exponent - 1) / 2.0) + 127;
    return exponent < 1 ? NO_QUANTUM : exponent > rule->exponent_max ? rule->exponent_max : exponent;
}

/* A block while quanta are chosen for a target. */
typedef struct block_choice {
    int start; /* before it is raised */
    int raises, raises_most;
    double error[RAISES + 1]; /* expected, of each number of raises */
} block_choice;

/* Expected error of the value in 1/512 of that of values spread evenly over the quantum, 0 if it has none. */
static int weight_of(const value_rule *rule, double x, int quantum)
{
    static const int below_quantum[4][14] = {
        {512, 831, 208, 52, 13, 3, 1},
        {512, 604, 831, 208, 52, 13, 3, 1},
        {512, 554, 692, 450, 251, 132, 68, 34, 17, 9, 4, 2, 1, 1},
        {512, 128, 32, 8, 2, 1},
    };
    if (!isfinite(x) || x == 0 || (rule->dtype != GW_FP16 && fabs(x) < 0x1p-126)) {
        return 0;
    }
    const int below = quantum - (ilogb(x) + 127);
    const int row = rule->dead_zone ? (int)rule->tensor->options.rounding : 3;
    return below > 13 ? 0 : below_quantum[row][below < 0 ? 0 : below];
}

/* Step 3: the errors that the sample of a block, `at` values behind the start of its chunk, lets expect, and
 * how often it may be raised. */
static void block_errors(const value_rule *rule, block_choice *block, uint64_t chunk, uint64_t at,
                         uint64_t len, double share)
{
    const uint64_t step = rule->info->block_log2 < 9 ? (uint64_t)1 << (rule->info->block_log2 - 6) : 8;
    const uint64_t samples = (len + step - 1) / step, before = at / step;
    uint64_t sum[RAISES + 1] = {0};
    for (uint64_t j = 0; j < samples; j++) {
        const uint64_t jump = ((before + j) * 2654435769u % 4294967296u >> 29) % step;
        const uint64_t i = step * j + (step * j + jump < len ? jump : 0);
        for (int k = 0; k <= RAISES; k++) {
            const double x = gw_dtype_number(rule->dtype, rule->tensor->in.values, chunk + at + i);
            sum[k] += (uint64_t)weight_of(rule, x, block->start + k);
        }
    }
    for (int k = 0; k <= RAISES; k++) {
        block->error[k] =
            ldexp((double)(len * sum[k]) / (double)(512 * samples), 2 * (block->start + k - 127));
    }
    while (block->raises_most < RAISES && block->start + block->raises_most < rule->exponent_max &&
           block->error[block->raises_most + 1] <= 4 * share) {
        block->raises_most++;
    }
}

/* Step 5: raises blocks, the smallest quanta first, until the sum of their errors is about the target. */
static void raise_blocks(const value_rule *rule, block_choice *blocks, uint64_t count, double sum,
                         double target)
{
    block_choice *last = NULL; /* of those passed over the one with the least to add */
    double least = 0;
    for (int visit = 0; visit < RAISES; visit++) {
        for (int exponent = 1; exponent < rule->exponent_max; exponent++) {
            for (uint64_t i = 0; i < count; i++) {
                block_choice *b = &blocks[i];
                if (b->start != exponent || b->raises != visit || b->raises_most == visit) {
                    continue;
                }
                const double more = b->error[visit + 1] - b->error[visit];
                if (sum + more <= target) {
                    sum += more;
                    b->raises++;
                } else if (last == NULL || more < least) {
                    last = b;
                    least = more;
                }
            }
        }
    }
    if (last != NULL && (double)count * least <= 8 * target && sum + 0.5 * least <= target) {
        last->raises++;
    }
}

/* Carried, --target-nmse, a chunk of len values: docs/numerics.md section 6. A quantum squared is 3, 12 or 6
 * (truncate, nearest, stochastic) times the expected squared error. */
static void quanta_of_error(value_rule *rule, uint64_t first, uint64_t len)
{
    static const double squares_of_error[3] = {3, 12, 6};
    const double factor =
        squares_of_error[rule->tensor->options.rounding] * (double)rule->tensor->options.quantum.nmse;
    const uint64_t block_len = (uint64_t)1 << rule->info->block_log2;
    block_choice blocks[BLOCKS_MAX];
    uint64_t count = 0;
    double target = 0, sum = 0;
    memset(blocks, 0, sizeof blocks);
    for (uint64_t at = 0; at < len; at += block_len) {
        block_choice *block = &blocks[count++];
        const uint64_t own = len - at < block_len ? len - at : block_len;
        const double squares = squares_of_block(rule, first + at, own);
        block->start = quantum_of_square(rule, factor * (squares / (double)own));
        target += factor * squares;
        if (block->start != NO_QUANTUM) {
            block_errors(rule, block, first, at, own, factor * squares);
            sum += block->error[0];
        }
    }
    raise_blocks(rule, blocks, count, sum, target);
    for (uint64_t i = 0; i < count; i++) {
        rule->quantum[i] = blocks[i].start + blocks[i].raises;
    }
}

/* The quanta of the chunk that starts at `first`. Far below the largest of the chunk nothing is cut. */
static void chunk_quanta_make(value_rule *rule, uint64_t first)
{
    const uint64_t left = rule->tensor->in.len - first;
    const uint64_t chunk_len = (uint64_t)1 << rule->info->chunk_log2;
    const uint64_t len = left < chunk_len ? left : chunk_len;
    const uint64_t block_len = (uint64_t)1 << rule->info->block_log2;
    int largest = NO_QUANTUM;
    if (rule->map == NULL && rule->tensor->options.quantum.nmse > 0) {
        quanta_of_error(rule, first, len);
    }
    for (uint64_t i = 0, at = 0; at < len; i++, at += block_len) {
        if (rule->map != NULL) {
            const int quantum =
                quantum_of_median(rule, first + at, len - at < block_len ? len - at : block_len);
            rule->quantum[i] = quantum < 1 ? NO_QUANTUM : quantum;
        } else if (!(rule->tensor->options.quantum.nmse > 0)) {
            rule->quantum[i] = NO_QUANTUM;
        }
        rule->quantum[i] = rule->quantum[i] > rule->exponent_max ? rule->exponent_max : rule->quantum[i];
        largest = rule->quantum[i] > largest ? rule->quantum[i] : largest;
    }
    for (uint64_t i = 0; i * block_len < len; i++) {
        rule->quantum[i] = rule->quantum[i] < largest - QUANTA_WINDOW ? NO_QUANTUM : rule->quantum[i];
    }
}

/* The exponent of the quantum of a value of derived and carried frames, NO_QUANTUM if nothing is cut. */
static int value_quantum(value_rule *rule, uint64_t index)
{
    if (rule->info->quantum_mode == GW_GCOMP_DERIVED) {
        return rule->map == NULL ? NO_QUANTUM : quantum_of_byte(rule, rule->map[index]);
    }
    const uint64_t at = index & (((uint64_t)1 << rule->info->chunk_log2) - 1);
    if (at == 0) {
        chunk_quanta_make(rule, index);
    }
    return rule->quantum[at >> rule->info->block_log2];
}

/* ---- values ---- */

/* Largest number of mantissa bits that this value of the given exponent may lose. */
static int value_drop_max(const value_rule *rule, uint64_t index, double value, int exponent, int quantum)
{
    int drop = 0;
    if (rule->info->quantum_mode != GW_GCOMP_CARRIED && rule->map == NULL) {
        return (int)rule->cap;
    }
    if (rule->info->quantum_mode != GW_GCOMP_EXPLICIT) {
        drop = quantum + rule->mantissa_bits - exponent;
    } else if (rule->map[index] != 0) {
        /* Quarter-octaves: exponent (fp32's bias) and top two mantissa bits. All three types are exact in
         * fp32. Gradients with M mantissa bits lose M - t bits more than the map says. */
        const float narrow = (float)fabs(value);
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        const int room = (int)rule->map[index] + rule->map_base - 1 - (int)(bits >> 21);
        drop = (int)floor(room / 4.0) + rule->mantissa_bits - rule->tolerance;
    }
    drop = drop < 0 ? 0 : drop;
    return drop < (int)rule->cap ? drop : (int)rule->cap;
}

/* A value below its quantum: +0, or the quantum with the sign of the value. */
static int dead_zone_is_allowed(const value_rule *rule, double x, uint32_t y_bits, double quantum)
{
    const double y = gw_dtype_value(rule->dtype, y_bits);
    const int may_rise = rule->tensor->options.rounding == GW_GCOMP_STOCHASTIC ||
                         (rule->tensor->options.rounding == GW_GCOMP_NEAREST && fabs(x) > quantum / 2);
    const int must_rise = rule->tensor->options.rounding == GW_GCOMP_NEAREST && may_rise;
    return (y_bits == 0 && !must_rise) || (may_rise && y == copysign(quantum, x));
}

/* Whether y is a permitted result for x. *flushed: by a flush to +0. */
static int value_is_allowed(value_rule *rule, uint64_t index, uint32_t x_bits, uint32_t y_bits, int *flushed)
{
    const double x = gw_dtype_value(rule->dtype, x_bits);
    const double y = gw_dtype_value(rule->dtype, y_bits);
    const int quantum =
        rule->info->quantum_mode == GW_GCOMP_EXPLICIT ? NO_QUANTUM : value_quantum(rule, index);
    *flushed = 0;
    if (isnan(x)) {
        return x_bits == y_bits || (isnan(y) && !rule->info->strict);
    }
    if (!isfinite(x) || !isfinite(y)) {
        return x_bits == y_bits;
    }
    const uint32_t magnitude_bits = x_bits & (rule->dtype == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t field = magnitude_bits >> rule->mantissa_bits;
    if (field == 0 && (rule->dtype != GW_FP16 || magnitude_bits == 0)) {
        *flushed = x_bits != y_bits;
        return x_bits == y_bits || (y_bits == 0 && !rule->info->strict);
    }
    const int exponent = (field == 0 ? 1 : (int)field) - rule->exponent_bias + 127;
    if (rule->dead_zone && quantum > exponent && exponent < rule->exponent_max) {
        const int capped = quantum > rule->exponent_max ? rule->exponent_max : quantum;
        return dead_zone_is_allowed(rule, x, y_bits, ldexp(1.0, capped - 127));
    }
    const int drop = value_drop_max(rule, index, x, exponent, quantum);
    const double place = ldexp(1.0, exponent - 127 + drop - rule->mantissa_bits);
    const double error = fabs(y - x);
    if (drop == 0) {
        return x_bits == y_bits; /* no bit may differ */
    }
    const int sign_kept = y == 0 || signbit(x) == signbit(y);
    /* Where drops are not rounded down to a step, the value is a multiple of its quantum. */
    const int is_multiple =
        rule->info->quantum_mode == GW_GCOMP_EXPLICIT || rule->info->step != 1 || fmod(y, place) == 0;
    /* The error of nearest is at most half of the last kept place, except that values which would round up
     * out of the largest finite exponent are truncated. */
    const int may_truncate =
        rule->tensor->options.rounding != GW_GCOMP_NEAREST || exponent == rule->exponent_max;
    return sign_kept && is_multiple && (may_truncate ? error < place : error <= place / 2);
}

static uint32_t truncate_bits(gw_dtype dtype, uint32_t bits)
{
    const uint32_t drop = dtype == GW_FP32 ? 18 : (dtype == GW_BF16 ? 6 : 9);
    const uint32_t exponent_mask = dtype == GW_FP32 ? 0x7f800000u : (dtype == GW_BF16 ? 0x7f80u : 0x7c00u);
    return (bits & exponent_mask) == exponent_mask ? bits : bits >> drop << drop;
}

typedef struct deviation_sum {
    gw_deviation *deviation;
    double sum;
} deviation_sum;

static void deviation_add(deviation_sum *sum, double theta, double exact, double other, uint64_t index)
{
    const double difference = fabs(other - exact);
    if (difference == 0 || isnan(difference)) {
        return;
    }
    const double larger = fmax(fabs(theta), fabs(exact));
    if (larger > 0 && difference / larger > sum->deviation->max_larger) {
        sum->deviation->max_larger = difference / larger;
    }
    if (theta == 0) {
        sum->deviation->unbounded++;
        return;
    }
    const double relative = difference / fabs(theta);
    sum->sum += relative;
    if (relative > sum->deviation->max) {
        sum->deviation->max = relative;
        sum->deviation->max_index = index;
    }
}

static void parameters_compare(const gw_tensor_input *tensor, const void *decoded, float wire_scale,
                               gw_roundtrip *result)
{
    gw_optimizer_update update;
    const gw_optimizer_state *state = &tensor->in.snapshot.state;
    deviation_sum ours = {&result->deviation, 0};
    deviation_sum plain = {&result->truncated, 0};
    gw_optimizer_update_init(&update, &tensor->in.snapshot.optimizer);
    for (uint64_t i = 0; i < tensor->in.len; i++) {
        const uint32_t x_bits = gw_dtype_bits(tensor->in.dtype, tensor->in.values, i);
        const double x = gw_dtype_value(tensor->in.dtype, x_bits);
        if (!isfinite(x)) {
            continue;
        }
        const double y = gw_dtype_number(tensor->in.dtype, decoded, i);
        const double truncated = gw_dtype_value(tensor->in.dtype, truncate_bits(tensor->in.dtype, x_bits));
        const double theta = (double)state->param[i];
        const double scale = (double)wire_scale;
        const double exact = gw_optimizer_update_param(&update, state, i, x / scale);
        if (y != x) {
            deviation_add(&ours, theta, exact, gw_optimizer_update_param(&update, state, i, y / scale), i);
        }
        if (truncated != x) {
            deviation_add(&plain, theta, exact,
                          gw_optimizer_update_param(&update, state, i, truncated / scale), i);
        }
    }
    result->deviation.mean = tensor->in.len == 0 ? 0 : ours.sum / (double)tensor->in.len;
    result->truncated.mean = tensor->in.len == 0 ? 0 : plain.sum / (double)tensor->in.len;
    result->has_deviation = 1;
}

void gw_roundtrip_compare(const gw_tensor_input *tensor, const gw_gcomp_frame_info *info, const void *decoded,
                          float wire_scale, gw_roundtrip *result)
{
    memset(result, 0, sizeof *result);
    static value_rule rule;
    value_rule_init(&rule, tensor, info);
    double error_sum = 0;
    double magnitude_sum = 0;
    double shift_sum = 0;
    uint64_t counted = 0;
    for (uint64_t i = 0; i < tensor->in.len; i++) {
        const uint32_t x_bits = gw_dtype_bits(tensor->in.dtype, tensor->in.values, i);
        const uint32_t y_bits = gw_dtype_bits(tensor->in.dtype, decoded, i);
        int flushed = 0;
        if (!value_is_allowed(&rule, i, x_bits, y_bits, &flushed)) {
            result->beyond_index = result->beyond == 0 ? i : result->beyond_index;
            result->beyond++;
        }
        result->changed += x_bits != y_bits;
        result->flushed += (uint64_t)flushed;
        const double x = gw_dtype_value(tensor->in.dtype, x_bits);
        const double y = gw_dtype_value(tensor->in.dtype, y_bits);
        if (isfinite(x) && isfinite(y) && x != 0) {
            const double relative = fabs(y - x) / fabs(x);
            error_sum += relative;
            magnitude_sum += fabs(x);
            shift_sum += fabs(y) - fabs(x);
            counted++;
            if (relative > result->error_max) {
                result->error_max = relative;
            }
        }
    }
    result->error_mean = counted == 0 ? 0 : error_sum / (double)counted;
    result->bias = magnitude_sum == 0 ? 0 : shift_sum / magnitude_sum;
    if (tensor->in.is_snapshot) {
        parameters_compare(tensor, decoded, wire_scale, result);
    }
}
