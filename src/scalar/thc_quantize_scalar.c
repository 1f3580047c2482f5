/*
 * Stage quantize: clamp, then one unbiased draw between the two table values around the position (the paper's
 * stochastic quantization, section 3; the released code draws twice and has more variance).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"
#include "core/philox.h"

#define GW_GROUP_LEN          128u /* values whose random bits come from 16 counters */
#define GW_COUNTERS_PER_GROUP 16u

/*
 * 16 random bits for each of 128 values. One counter serves values l, l + 16, l + 32, ...: with 16 counters
 * in the lanes of a vector, the halves of a word are the bits of 16 neighbouring values, so no backend needs
 * a transposition.
 */
static void group_bits(uint32_t bits[GW_GROUP_LEN], uint32_t group, const gw_thc_stream *stream)
{
    for (uint32_t lane = 0; lane < GW_COUNTERS_PER_GROUP; lane++) {
        uint32_t word[4];
        gw_philox4x32(word, stream->seed, group * GW_COUNTERS_PER_GROUP + lane, stream->block, stream->round,
                      GW_THC_DOMAIN_ROUNDING | stream->rank);
        for (uint32_t w = 0; w < 4; w++) {
            bits[32 * w + lane] = word[w] & 0xffffu;
            bits[32 * w + 16 + lane] = word[w] >> 16;
        }
    }
}

/* Position on the grid in 1/65536 steps. Truncation, not rounding: the only conversion that every
 * processor has. */
static uint32_t grid_position(float value, const gw_thc_quantizer *q)
{
    float scaled = value * q->scale;
    scaled = scaled < q->high ? scaled : q->high;
    scaled = scaled > q->low ? scaled : q->low;
    return (uint32_t)(q->offset + (int32_t)scaled);
}

void gw_thc_quantize_scalar(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                            const gw_thc_stream *stream)
{
    uint32_t random[GW_GROUP_LEN];

    for (size_t i = 0; i < len; i++) {
        if (i % GW_GROUP_LEN == 0) {
            group_bits(random, (uint32_t)(i / GW_GROUP_LEN), stream);
        }
        uint32_t position = grid_position(x[i], quantizer);
        uint32_t z = quantizer->cell[position >> 16];
        uint32_t is_inner = z < quantizer->index_max; /* the last index has nothing above it */
        uint32_t low = quantizer->table[z];
        uint32_t gap = quantizer->table[z + is_inner] - low;
        uint32_t residue = position - (low << 16);
        uint32_t up = gap * (2 * random[i % GW_GROUP_LEN] + 1) <= 2 * residue;
        /* Arithmetic: a branch on a random number is mispredicted half of the time. */
        index[i] = (uint8_t)(z + (up & is_inner));
    }
}
