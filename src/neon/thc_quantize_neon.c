/*
 * Stage quantize: 128 values and their 16 counters at a time; look-ups on bytes, 16 values at a time.
 *
 * The rule d (2u + 1) <= 2r, with r = P - L, L = 65536 table[z], is in integers d u + K <= P, K = L +
 * ceil(d / 2). d and the bytes of K come from tables of 16 bytes; K of the last index is above every
 * position, so that it stays.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: 4 bits 9.1 (42.6), 3.6 and 1.8.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "neon/philox_neon.h"

typedef struct steps {
    uint8x16x2_t cell[8]; /* index by grid cell, 32 each */
    unsigned part_count;  /* parts of cell[] that matter */
    uint8x16_t gap;       /* by index: d, and bytes 0, 2 and 3 of K (byte 1 is 0) */
    uint8x16_t bound0, bound2, bound3;
    float32x4_t scale, low, high;
    int32x4_t offset;
} steps;

static void prepare_steps(steps *s, const gw_thc_quantizer *q)
{
    uint8_t gap[16], bound0[16], bound2[16], bound3[16];
    for (uint32_t z = 0; z < 16; z++) {
        const uint32_t is_inner = z < q->index_max;
        const uint32_t d = is_inner ? (uint32_t)q->table[z + 1] - q->table[z] : 0;
        gap[z] = (uint8_t)d;
        bound0[z] = (uint8_t)((d + 1) / 2);
        bound2[z] = q->table[z];
        bound3[z] = is_inner ? 0 : 0x7f;
    }
    s->gap = vld1q_u8(gap);
    s->bound0 = vld1q_u8(bound0);
    s->bound2 = vld1q_u8(bound2);
    s->bound3 = vld1q_u8(bound3);
    s->part_count = q->table[q->index_max] / 32u + 1;
    for (unsigned p = 0; p < s->part_count; p++) {
        s->cell[p].val[0] = vld1q_u8(q->cell + 32 * p);
        s->cell[p].val[1] = vld1q_u8(q->cell + 32 * p + 16);
    }
    s->scale = vdupq_n_f32(q->scale);
    s->low = vdupq_n_f32(q->low);
    s->high = vdupq_n_f32(q->high);
    s->offset = vdupq_n_s32(q->offset);
}

static inline uint8x16_t index_of_cells(const steps *s, uint8x16_t cells)
{
    uint8x16_t z = vqtbl2q_u8(s->cell[0], cells);
    for (unsigned p = 1; p < s->part_count; p++) {
        cells = vsubq_u8(cells, vdupq_n_u8(32));
        z = vqtbx2q_u8(z, s->cell[p], cells);
    }
    return z;
}

/* NaN is clamped to the upper end, as by the comparisons of the scalar kernel. */
static inline uint32x4_t positions(const float *x, const steps *s)
{
    const float32x4_t scaled = vmulq_f32(gw_load_f32x4(x), s->scale);
    const float32x4_t below = vbslq_f32(vcltq_f32(scaled, s->high), scaled, s->high);
    return vreinterpretq_u32_s32(vaddq_s32(vcvtq_s32_f32(vmaxq_f32(below, s->low)), s->offset));
}

/* All ones where the value goes up. */
static inline uint32x4_t goes_up(uint32x4_t position, uint16x4_t random, uint16x4_t gap, uint16x8_t bound)
{
    return vcgeq_u32(position, vmlal_u16(vreinterpretq_u32_u16(bound), random, gap));
}

/* 16 values; random bits of the first and the second eight. */
static inline void quantize16(uint8_t *index, const float *x, uint16x8_t random0, uint16x8_t random1,
                              const steps *s)
{
    const uint32x4_t p0 = positions(x, s), p1 = positions(x + 4, s);
    const uint32x4_t p2 = positions(x + 8, s), p3 = positions(x + 12, s);
    const uint16x8_t cells01 = vuzp2q_u16(vreinterpretq_u16_u32(p0), vreinterpretq_u16_u32(p1));
    const uint16x8_t cells23 = vuzp2q_u16(vreinterpretq_u16_u32(p2), vreinterpretq_u16_u32(p3));
    const uint8x16_t z =
        index_of_cells(s, vuzp1q_u8(vreinterpretq_u8_u16(cells01), vreinterpretq_u8_u16(cells23)));

    const uint8x16_t gap = vqtbl1q_u8(s->gap, z), bound0 = vqtbl1q_u8(s->bound0, z);
    const uint8x16_t bound2 = vqtbl1q_u8(s->bound2, z), bound3 = vqtbl1q_u8(s->bound3, z);
    const uint16x8_t gap01 = vmovl_u8(vget_low_u8(gap)), gap23 = vmovl_u8(vget_high_u8(gap));
    const uint16x8_t low01 = vmovl_u8(vget_low_u8(bound0)), low23 = vmovl_u8(vget_high_u8(bound0));
    const uint16x8_t high01 = vreinterpretq_u16_u8(vzip1q_u8(bound2, bound3));
    const uint16x8_t high23 = vreinterpretq_u16_u8(vzip2q_u8(bound2, bound3));
    const uint32x4_t up0 = goes_up(p0, vget_low_u16(random0), vget_low_u16(gap01), vzip1q_u16(low01, high01));
    const uint32x4_t up1 =
        goes_up(p1, vget_high_u16(random0), vget_high_u16(gap01), vzip2q_u16(low01, high01));
    const uint32x4_t up2 = goes_up(p2, vget_low_u16(random1), vget_low_u16(gap23), vzip1q_u16(low23, high23));
    const uint32x4_t up3 =
        goes_up(p3, vget_high_u16(random1), vget_high_u16(gap23), vzip2q_u16(low23, high23));
    const uint16x8_t up01 = vuzp1q_u16(vreinterpretq_u16_u32(up0), vreinterpretq_u16_u32(up1));
    const uint16x8_t up23 = vuzp1q_u16(vreinterpretq_u16_u32(up2), vreinterpretq_u16_u32(up3));
    /* A mask is minus one. */
    vst1q_u8(index, vsubq_u8(z, vuzp1q_u8(vreinterpretq_u8_u16(up01), vreinterpretq_u8_u16(up23))));
}

/* 32 values, whose random bits are the low and then the high halves of 16 words. */
static inline void quantize32(uint8_t *index, const float *x, const uint32x4_t word[4], const steps *s)
{
    const uint16x8_t w0 = vreinterpretq_u16_u32(word[0]), w1 = vreinterpretq_u16_u32(word[1]);
    const uint16x8_t w2 = vreinterpretq_u16_u32(word[2]), w3 = vreinterpretq_u16_u32(word[3]);
    quantize16(index, x, vuzp1q_u16(w0, w1), vuzp1q_u16(w2, w3), s);
    quantize16(index + 16, x + 16, vuzp2q_u16(w0, w1), vuzp2q_u16(w2, w3), s);
}

void gw_thc_quantize_neon(uint8_t *index, const float *x, size_t len, const gw_thc_quantizer *quantizer,
                          const gw_thc_stream *stream)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    steps s;
    prepare_steps(&s, quantizer);
    for (size_t i = 0; i < len; i += 128) {
        uint32x4_t words[4][4]; /* [word][counters 4j .. 4j + 3] */
        for (uint32_t j = 0; j < 4; j++) {
            uint32x4_t word[4];
            word[0] = vaddq_u32(vdupq_n_u32((uint32_t)(i / 8) + 4 * j), vld1q_u32(lane));
            word[1] = vdupq_n_u32(stream->block);
            word[2] = vdupq_n_u32(stream->round);
            word[3] = vdupq_n_u32(GW_THC_DOMAIN_ROUNDING | stream->rank);
            gw_philox4(word, stream->seed, GW_PHILOX_ROUNDS);
            for (unsigned w = 0; w < 4; w++) {
                words[w][j] = word[w];
            }
        }
        for (size_t w = 0; w < 4 && i + 32 * w < len; w++) {
            quantize32(index + i + 32 * w, x + i + 32 * w, words[w], &s);
        }
    }
}

#else
typedef int gw_thc_quantize_neon_not_built; /* a translation unit must not be empty */
#endif
