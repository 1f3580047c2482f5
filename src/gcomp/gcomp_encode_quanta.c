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

/*
 * The quantum whose expected squared error is at most nmse times the mean square, if values are spread evenly
 * over a quantum: that error is 1/6 of its square with stochastic rounding, 1/12 with nearest and 1/3 with
 * truncation.
 */
static uint8_t quantum_of_error(const gw_encoding *e, const uint8_t *values, size_t len)
{
    static const double quanta_squared[3] = {3, 12, 6}; /* by rounding */
    const double sum = sum_of_squares(values, len, e->rule.dtype);
    const double square = quanta_squared[e->codec->options.rounding] *
                          (double)e->codec->options.quantum.nmse * (sum / (double)len);
    uint64_t bits;
    GW_MEMCPY(&bits, &square, 8);
    const int32_t exponent = (int32_t)(bits >> 52 & 2047) - 1023; /* floor(log2(square)) */
    return bits >> 52 == 0 ? 0 : exponent_of((exponent + 2048) / 2 - 1024 + 127, e->rule.dtype);
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
    const size_t size = gw_traits_of(dtype)->size, block_len = (size_t)1 << log2;
    const size_t chunk_len = (size_t)1 << e->info.chunk_log2;
    const gw_gcomp_source *source = e->source;
    const gw_gcomp_map *map = gw_source_map(source);
    const uint64_t first = group->first << e->info.chunk_log2;
    uint8_t *quanta = e->scratch.quanta;
    for (size_t i = 0, at = 0; at < group->len; i++, at += block_len) {
        const size_t len = gw_min_size(group->len - at, block_len);
        if (map != NULL) {
            quanta[i] = quantum_of_map(map->bytes + first + at, len,
                                       gw_drop_offset(e->codec, GW_GCOMP_CARRIED, map->base), dtype);
        } else if (source->quantum.kind == GW_GCOMP_QUANTUM_BLOCKS) {
            const uint8_t given = source->quantum.blocks[(first + at) >> log2];
            quanta[i] = exponent_of(given, dtype);
        } else {
            quanta[i] = quantum_of_error(e, group->values + at * size, len);
        }
    }
    for (size_t at = 0; at < group->len; at += chunk_len) {
        clear_outside_window(quanta + (at >> log2),
                             gw_block_count(gw_min_size(group->len - at, chunk_len), log2));
    }
}
