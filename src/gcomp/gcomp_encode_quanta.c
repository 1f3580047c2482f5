/*
 * Encode, carried frames: the quantum of every block, from a map, from the caller or from the values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/half.h"
#include "gcomp/gcomp_encoding.h"
#include "gcomp/quanta.h"

/* The exponent field of a quantum as a frame stores it. */
static uint8_t exponent_of(int32_t exponent, uint32_t dtype)
{
    const int32_t most = (int32_t)gw_quantum_max(dtype);
    return (uint8_t)(exponent < 1 ? 0 : exponent > most ? most : exponent);
}

/* The lower median of the map bytes of a block that are not 0. */
static uint8_t quantum_of_map(const uint8_t *map_bytes, size_t len, int32_t drop_offset, uint32_t dtype)
{
    uint32_t count[256] = {0};
    for (size_t i = 0; i < len; i++) {
        count[map_bytes[i]]++;
    }
    const size_t coded = len - count[0];
    size_t below = 0;
    uint32_t k = 0;
    while (2 * below < coded) {
        below += count[++k];
    }
    return k == 0 ? 0 : exponent_of(gw_quantum_exponent(k, drop_offset, dtype), dtype);
}

/* Quanta of the len values of a chunk, the first of which is value `first` of the map. */
static void quanta_of_map(const gw_encoding *e, const gw_gcomp_map *map, uint64_t first, size_t len,
                          uint8_t *quanta)
{
    const uint32_t log2 = e->info.block_log2, dtype = e->rule.dtype;
    const int32_t drop_offset = gw_drop_offset(e->codec, GW_GCOMP_CARRIED, map->base);
    for (size_t at = 0; at < len; at += (size_t)1 << log2) {
        quanta[at >> log2] = quantum_of_map(map->bytes + first + at, gw_min_size(len - at, (size_t)1 << log2),
                                            drop_offset, dtype);
    }
}

/* Squares of the finite values of a block, in binary64: four sums, of the values whose index is 0 to 3 modulo
 * 4. They neither overflow nor, for normal values, underflow. */
static double sum_of_squares(const uint8_t *values, size_t len, uint32_t dtype)
{
    const gw_traits *t = gw_traits_of(dtype);
    double sum[4] = {0, 0, 0, 0};
    for (size_t i = 0; i < len; i++) {
        const uint32_t bits = t->size == 4 ? gw_load32(values + 4 * i) : gw_load16(values + 2 * i);
        const uint32_t exponent = bits >> t->mantissa_bits & t->exponent_mask;
        const int is_number = exponent != t->exponent_mask && (exponent != 0 || t->keeps_subnormals);
        const uint32_t wide = dtype == GW_FP32 ? bits : dtype == GW_BF16 ? bits << 16 : gw_widen_fp16(bits);
        const double value = is_number ? (double)gw_float_from_bits(wide) : 0;
        sum[i & 3] += value * value;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Floor of the exponent of the quantum whose square is `square`: a field as a frame stores it. */
static uint8_t quantum_of_square(double square, uint32_t dtype)
{
    uint64_t bits;
    GW_MEMCPY(&bits, &square, 8);
    const int32_t exponent = (int32_t)(bits >> 52 & 2047) - 1023; /* floor(log2(square)) */
    return bits >> 52 == 0 ? 0 : exponent_of((exponent + 2048) / 2 - 1024 + 127, dtype);
}

/* Square of the quantum with this exponent field. */
static double square_of_quantum(uint32_t exponent)
{
    const uint64_t bits = (uint64_t)(1023 + 2 * ((int32_t)exponent - 127)) << 52;
    double square;
    GW_MEMCPY(&square, &bits, 8);
    return square;
}

/* Quanta of a chunk of len values. */
typedef struct chunk_quanta {
    uint8_t *exponent;
    size_t len;
    uint32_t block_log2;
    uint32_t least; /* the smallest that is not 0 */
    uint32_t most;  /* the largest that a frame can store */
    double sum;     /* over the blocks: length times squared quantum */
} chunk_quanta;

static size_t block_len_of(const chunk_quanta *q, size_t block)
{
    return gw_min_size(q->len - (block << q->block_log2), (size_t)1 << q->block_log2);
}

/*
 * On entry no block's error is above its share of the target. Raises the smallest quanta by an octave, those
 * of equal ones first that come first: that saves as many bits as to raise larger ones and adds less error.
 * Ends where the next would leave `sum` further above the target than it is below it.
 */
static void raise_smallest(chunk_quanta *q, double target)
{
    const size_t blocks = gw_block_count(q->len, q->block_log2);
    uint32_t exponent = q->least, next = q->least;
    size_t end = blocks; /* blocks before it with this exponent are raised, and all of smaller ones */
    while (next < q->most && end == blocks) {
        exponent = next;
        next = q->most;
        for (size_t i = 0; i < blocks && end == blocks; i++) {
            if (q->exponent[i] == exponent) {
                const double own = (double)block_len_of(q, i) * square_of_quantum(exponent);
                end = q->sum + 1.5 * own > target ? i : blocks;
                q->sum += 3 * own;
            } else if (q->exponent[i] > exponent) {
                next = gw_min_u32(next, q->exponent[i]);
            }
        }
    }
    for (size_t i = 0; i < blocks; i++) {
        const uint32_t x = q->exponent[i];
        const int is_raised = x != 0 && x < q->most && (x < exponent || (x == exponent && i < end));
        q->exponent[i] = (uint8_t)(x + (uint32_t)is_raised);
    }
}

/*
 * Quanta of a chunk of len values whose expected squared error is nmse times the sum of their squares, if
 * values are spread evenly over a quantum: the error of a value is then 1/6 of its square with stochastic
 * rounding, 1/12 with nearest and 1/3 with truncation.
 */
static void quanta_of_error(const gw_encoding *e, const uint8_t *values, size_t len, uint8_t *quanta)
{
    static const double quanta_squared[3] = {3, 12, 6}; /* by rounding */
    const double factor = quanta_squared[e->codec->options.rounding] * (double)e->codec->options.quantum.nmse;
    const uint32_t log2 = e->info.block_log2, dtype = e->rule.dtype;
    const size_t size = gw_traits_of(dtype)->size;
    chunk_quanta q = {quanta, len, log2, gw_quantum_max(dtype), gw_quantum_max(dtype), 0};
    double target = 0;
    for (size_t i = 0; i < gw_block_count(len, log2); i++) {
        const size_t block_len = block_len_of(&q, i);
        const double squares = sum_of_squares(values + (i << log2) * size, block_len, dtype);
        quanta[i] = quantum_of_square(factor * (squares / (double)block_len), dtype);
        target += factor * squares;
        if (quanta[i] != 0) {
            q.least = gw_min_u32(q.least, quanta[i]);
            q.sum += (double)block_len * square_of_quantum(quanta[i]);
        }
    }
    raise_smallest(&q, target);
}

/* Nothing is cut in blocks whose quantum is too far below the largest of the chunk. */
static void clear_outside_window(uint8_t *quanta, size_t blocks)
{
    const uint32_t largest = gw_quanta_largest(quanta, blocks);
    for (size_t i = 0; i < blocks; i++) {
        quanta[i] = quanta[i] + (uint32_t)GW_QUANTA_WINDOW < largest ? 0 : quanta[i];
    }
}

void gw_group_quanta(gw_encoding *e, const gw_group *group)
{
    const uint32_t log2 = e->info.block_log2, dtype = e->rule.dtype;
    const size_t size = gw_traits_of(dtype)->size, chunk_len = (size_t)1 << e->info.chunk_log2;
    const gw_gcomp_source *source = e->source;
    const gw_gcomp_map *map = gw_source_map(source);
    const uint64_t first = group->first << e->info.chunk_log2;
    for (size_t at = 0; at < group->len; at += chunk_len) {
        const size_t len = gw_min_size(group->len - at, chunk_len), blocks = gw_block_count(len, log2);
        uint8_t *quanta = e->scratch.quanta + (at >> log2);
        if (map != NULL) {
            quanta_of_map(e, map, first + at, len, quanta);
        } else if (source->quantum.kind == GW_GCOMP_QUANTUM_BLOCKS) {
            for (size_t i = 0; i < blocks; i++) {
                quanta[i] = exponent_of(source->quantum.blocks[((first + at) >> log2) + i], dtype);
            }
        } else {
            quanta_of_error(e, group->values + at * size, len, quanta);
        }
        clear_outside_window(quanta, blocks);
    }
}
