/*
 * Carried frames: the quanta of a chunk from its values, for a target NMSE.
 *
 * A block begins with the largest quantum whose error is at most its share of the target, if values are
 * spread evenly over it. A sample of the values tells the error that is to be expected of this quantum and of
 * the next two; blocks are then raised as long as the sum of these errors allows it. All arithmetic is exact
 * or in binary64, in an order that docs/numerics.md section 6 fixes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/quanta_choice.h"
#include "core/half.h"
#include "gcomp/quanta_weights.h"

enum { BLOCKS_MAX = 512 }; /* of 64 values in a chunk of 2^15 */

static const uint16_t weights_of[4][GW_QUANTA_NO_WEIGHT + GW_QUANTA_RAISES + 1] = GW_QUANTA_WEIGHTS;

/* Quanta of a chunk of len values while they are chosen. */
typedef struct chunk_quanta {
    const gw_quanta_goal *goal;
    uint8_t *exponent; /* as they are before any is raised; 0: none */
    size_t len;
    size_t blocks;
    double target; /* of the sum over the blocks: expected error, times 3, 12 or 6 by rounding */
    double sum;
    /* Of the blocks that have a quantum, in the order of the quanta, equal ones in that of the blocks */
    uint16_t order[BLOCKS_MAX];
    size_t order_len;
    /* Of each block: weights of the sample for 0, 1, .. octaves more, how often it may be raised and how
     * often it was */
    uint32_t weight[BLOCKS_MAX][GW_QUANTA_RAISES + 1];
    uint8_t raises_max[BLOCKS_MAX];
    uint8_t raises[BLOCKS_MAX];
} chunk_quanta;

/* The bits of value i as fp32; 0 for what has no error: zeros, infinities, NaN, subnormals of fp32 and bf16.
 */
static inline uint32_t number_bits(const uint8_t *values, size_t i, uint32_t dtype)
{
    const uint32_t bits = dtype == GW_FP32   ? gw_load32(values + 4 * i)
                          : dtype == GW_BF16 ? (uint32_t)gw_load16(values + 2 * i) << 16
                                             : gw_widen_fp16(gw_load16(values + 2 * i));
    /* Signed comparisons: they exist as vector instructions. */
    const int32_t exponent = (int32_t)(bits & 0x7f800000u);
    return bits & (0u - (uint32_t)((exponent > 0) & (exponent < 0x7f800000)));
}

/* Squares of a block, in binary64: four sums, of the values whose index is 0 to 3 modulo 4. They neither
 * overflow nor, for normal values, underflow. */
static inline double squares_by_dtype(const uint8_t *values, size_t len, uint32_t dtype)
{
    double sum[4] = {0, 0, 0, 0};
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            const double value = (double)gw_float_from_bits(number_bits(values, i + j, dtype));
            sum[j] += value * value;
        }
    }
    for (; i < len; i++) {
        const double value = (double)gw_float_from_bits(number_bits(values, i, dtype));
        sum[i & 3] += value * value;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static double sum_of_squares(const uint8_t *values, size_t len, uint32_t dtype)
{
    return dtype == GW_FP32   ? squares_by_dtype(values, len, GW_FP32)
           : dtype == GW_BF16 ? squares_by_dtype(values, len, GW_BF16)
                              : squares_by_dtype(values, len, GW_FP16);
}

static uint32_t step_log2_of(const gw_quanta_goal *goal)
{
    return gw_min_u32(goal->block_log2 - GW_BLOCK_LOG2_MIN, GW_QUANTA_STEP_LOG2_MAX);
}

/* How many of len values of a block are in the sample. */
static uint32_t samples_of(const gw_quanta_goal *goal, size_t len)
{
    return (uint32_t)gw_unit_count(len, step_log2_of(goal));
}

/* Sums the weights of a sample of len values of a block, for the quantum and the next larger ones. */
static inline void weigh(const gw_quanta_goal *goal, const uint8_t *values, size_t block, size_t len,
                         uint32_t exponent, uint32_t dtype, uint32_t *sum)
{
    const uint32_t step_log2 = step_log2_of(goal), last = (1u << step_log2) - 1;
    const uint32_t samples = samples_of(goal, len);
    const uint32_t before = (uint32_t)block << (goal->block_log2 - step_log2);
    const uint32_t row = goal->dead_zone ? goal->rounding : (uint32_t)GW_QUANTA_NO_DEAD_ZONE;
    const uint16_t *weights = weights_of[row];
    uint32_t total[GW_QUANTA_RAISES + 1] = {0};
    for (uint32_t j = 0; j < samples; j++) {
        const size_t start = (size_t)j << step_log2, place = start + (GW_QUANTA_JUMP(before + j) & last);
        const size_t i = place < len ? place : start;
        const uint32_t field = number_bits(values, i, dtype) >> 23 & 255;
        const int32_t below = (int32_t)exponent - (int32_t)field + 2;
        const int32_t at = field == 0 || below > GW_QUANTA_NO_WEIGHT ? GW_QUANTA_NO_WEIGHT
                           : below < 0                               ? 0
                                                                     : below;
        for (int k = 0; k <= GW_QUANTA_RAISES; k++) {
            total[k] += weights[at + k];
        }
    }
    for (int k = 0; k <= GW_QUANTA_RAISES; k++) {
        sum[k] = total[k];
    }
}

/* Floor of the exponent of the quantum whose square is `square`: a field as a frame stores it. */
static uint8_t quantum_of_square(double square, uint32_t dtype)
{
    uint64_t bits;
    GW_MEMCPY(&bits, &square, 8);
    const int32_t exponent = (int32_t)(bits >> 52 & 2047) - 1023; /* floor(log2(square)) */
    return bits >> 52 == 0 ? 0 : gw_quantum_stored((exponent + 2048) / 2 - 1024 + 127, dtype);
}

/* Square of the quantum with this exponent field. */
static double square_of_quantum(uint32_t exponent)
{
    const uint64_t bits = (uint64_t)(1023 + 2 * ((int32_t)exponent - 127)) << 52;
    double square;
    GW_MEMCPY(&square, &bits, 8);
    return square;
}

static size_t block_len_of(const chunk_quanta *q, size_t block)
{
    const uint32_t log2 = q->goal->block_log2;
    return gw_min_size(q->len - (block << log2), (size_t)1 << log2);
}

/* Expected error of a block with a quantum that is `raises` octaves above the first one, times 3, 12 or 6.
 * The quotient alone is rounded: the first product has less than 53 bits, and squares of quanta are powers of
 * two. */
static double error_of(const chunk_quanta *q, size_t block, uint32_t raises)
{
    const size_t len = block_len_of(q, block);
    const double all = (double)len * (double)q->weight[block][raises];
    const uint32_t one = samples_of(q->goal, len) << GW_QUANTA_WEIGHT_LOG2;
    return all / (double)one * square_of_quantum(q->exponent[block] + raises);
}

/* The first quantum of a block. It may be raised while its expected error is at most four times its share. */
static void start_block(chunk_quanta *q, size_t block, const uint8_t *values, double factor)
{
    const gw_quanta_goal *goal = q->goal;
    const size_t len = block_len_of(q, block);
    const double squares = sum_of_squares(values, len, goal->dtype), share = factor * squares;
    const uint32_t exponent = quantum_of_square(factor * (squares / (double)len), goal->dtype);
    q->exponent[block] = (uint8_t)exponent;
    q->target += share;
    if (exponent == 0) {
        return;
    }
    uint32_t *weight = q->weight[block];
    if (goal->dtype == GW_FP32) {
        weigh(goal, values, block, len, exponent, GW_FP32, weight);
    } else if (goal->dtype == GW_BF16) {
        weigh(goal, values, block, len, exponent, GW_BF16, weight);
    } else {
        weigh(goal, values, block, len, exponent, GW_FP16, weight);
    }
    q->sum += error_of(q, block, 0);
    uint32_t raises = 0;
    while (raises < GW_QUANTA_RAISES && exponent + raises < gw_quantum_max(goal->dtype) &&
           error_of(q, block, raises + 1) <= 4 * share) {
        raises++;
    }
    q->raises_max[block] = (uint8_t)raises;
    q->raises[block] = 0;
}

static void sort_blocks(chunk_quanta *q)
{
    uint16_t end[256] = {0};
    uint32_t most = 0;
    for (size_t i = 0; i < q->blocks; i++) {
        end[q->exponent[i]]++;
        most = q->exponent[i] > most ? q->exponent[i] : most;
    }
    uint32_t at = (uint32_t)q->blocks - end[0];
    for (uint32_t x = most; x > 0 && at > 0; x--) {
        at -= end[x];
        end[x] = (uint16_t)at;
    }
    q->order_len = q->blocks - end[0];
    for (size_t i = 0; i < q->blocks; i++) {
        if (q->exponent[i] != 0) {
            q->order[end[q->exponent[i]]++] = (uint16_t)i;
        }
    }
}

/*
 * Raises blocks by an octave, those with the smallest quanta first: that saves as many bits as to raise
 * larger ones and adds less error. A block whose octave would bring the sum above the target is passed over;
 * larger ones may have fewer values that count. Then those that were raised get a second chance. At the end
 * the one with the least to add that was passed over is raised if that leaves the sum less far above the
 * target than it is below it now, and if it adds at most eight times what a block has of the target: one that
 * has more of the error saves too few bits for it.
 */
static void raise_blocks(chunk_quanta *q)
{
    size_t last = q->blocks;
    double least = 0;
    for (uint32_t round = 0; round < GW_QUANTA_RAISES; round++) {
        for (size_t i = 0; i < q->order_len; i++) {
            const size_t block = q->order[i];
            if (q->raises[block] != round || round == q->raises_max[block]) {
                continue;
            }
            const double more = error_of(q, block, round + 1) - error_of(q, block, round);
            if (q->sum + more <= q->target) {
                q->sum += more;
                q->raises[block]++;
            } else if (last == q->blocks || more < least) {
                last = block;
                least = more;
            }
        }
    }
    if (last != q->blocks && (double)q->blocks * least <= 8 * q->target &&
        q->sum + 0.5 * least <= q->target) {
        q->raises[last]++;
    }
    for (size_t i = 0; i < q->order_len; i++) {
        const size_t block = q->order[i];
        q->exponent[block] = (uint8_t)(q->exponent[block] + q->raises[block]);
    }
}

void gw_quanta_choose(const gw_quanta_goal *goal, const uint8_t *values, size_t len, uint8_t *quanta)
{
    static const double quanta_squared[3] = {3, 12, 6}; /* by rounding */
    const double factor = quanta_squared[goal->rounding] * goal->nmse;
    const size_t size = gw_traits_of(goal->dtype)->size;
    chunk_quanta q;
    q.goal = goal;
    q.exponent = quanta;
    q.len = len;
    q.blocks = gw_block_count(len, goal->block_log2);
    q.target = 0;
    q.sum = 0;
    for (size_t i = 0; i < q.blocks; i++) {
        start_block(&q, i, values + (i << goal->block_log2) * size, factor);
    }
    sort_blocks(&q);
    raise_blocks(&q);
}
