/*
 * Stages rotate and rotate back, by thc/rotate_lanes.h, and the shift of plain THC.
 *
 * Strides 1, 2 and 4 happen in pairs of registers: taking the even lanes and the odd lanes of both, adding
 * and subtracting, three times, makes the three butterflies of eight values and ends in their natural order.
 * Strides 8, 16 and 32 are between the sixteen registers of 64 values.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: blocks of 1024: rotate 8.4 (55.4), 2.9 and 1.5; rotate
 * back 9.1 (53.9), 2.8 and 1.4; shift 3.0 (13.0), 0.88 and 0.44.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/thc_neon.h"

#if defined(GW_NEON)

#include "neon/philox_neon.h"

typedef float32x4_t floats;
typedef uint32x4_t floors;
typedef uint32_t sign_word;

enum { LANES = 4, CHUNK_LEN = 64, FIRST_STEP = 2, COUNT_MAX = 8 };

#define LOAD(at)                gw_load_f32x4(at)
#define STORE(at, x)            gw_store_f32x4(at, x)
#define ADD(x, y)               vaddq_f32(x, y)
#define SUB(x, y)               vsubq_f32(x, y)
#define SCALE(x)                vdupq_n_f32(x)
#define FLOORS(bits)            vdupq_n_u32(bits)
#define WINDOW(x, floor, scale) gw_window_f32x4(x, floor, scale)

/* Counters of 128 values each, four at a time; the last batch may run beyond the block. */
static void make_signs(uint32_t *signs, size_t len, const gw_thc_stream *stream)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    for (size_t counter = 0; counter * 128 < len; counter += 4) {
        uint32x4_t word[4];
        word[0] = vaddq_u32(vdupq_n_u32((uint32_t)counter), vld1q_u32(lane));
        word[1] = vdupq_n_u32(stream->block);
        word[2] = vdupq_n_u32(stream->round);
        word[3] = vdupq_n_u32(GW_THC_DOMAIN_SIGNS);
        gw_philox4(word, stream->seed, GW_PHILOX_ROUNDS);
        const uint32x4_t a = vzip1q_u32(word[0], word[2]), b = vzip1q_u32(word[1], word[3]);
        const uint32x4_t c = vzip2q_u32(word[0], word[2]), d = vzip2q_u32(word[1], word[3]);
        uint32_t *to = signs + 4 * counter;
        vst1q_u32(to, vzip1q_u32(a, b));
        vst1q_u32(to + 4, vzip2q_u32(a, b));
        vst1q_u32(to + 8, vzip1q_u32(c, d));
        vst1q_u32(to + 12, vzip2q_u32(c, d));
    }
}

/* Register i of a piece whose first word of signs is words[0]: its four bits to the top of four lanes. */
static inline float32x4_t negate_some(float32x4_t x, const uint32_t *words, size_t i)
{
    static const int32_t up[4] = {31, 30, 29, 28};
    const uint32x4_t bits = vdupq_n_u32(words[i / 8] >> i % 8 * 4);
    const uint32x4_t signs = vandq_u32(vshlq_u32(bits, vld1q_s32(up)), vdupq_n_u32(0x80000000u));
    return gw_f32x4_bits(veorq_u32(gw_bits_f32x4(x), signs));
}

/* Three times: neighbours of two registers become even and odd lanes, and are crossed. */
static inline void inner_strides(float32x4_t v[2])
{
    for (unsigned i = 0; i < 3; i++) {
        const float32x4_t even = vuzp1q_f32(v[0], v[1]), odd = vuzp2q_f32(v[0], v[1]);
        v[0] = vaddq_f32(even, odd);
        v[1] = vsubq_f32(even, odd);
    }
}

#include "thc/rotate_lanes.h"

void gw_thc_rotate_neon(float *dst, const float *src, size_t len, uint32_t exponent,
                        const gw_thc_stream *stream)
{
    rotate(dst, src, len, exponent, stream);
}

void gw_thc_rotate_back_neon(float *y, size_t len, uint32_t exponent, const gw_thc_stream *stream)
{
    rotate_back(y, len, exponent, stream);
}

void gw_thc_shift_neon(float *dst, const float *src, size_t len, float minimum, uint32_t exponent)
{
    const uint32x4_t floor_bits = vdupq_n_u32(gw_thc_window_floor(exponent));
    const float32x4_t scale = vdupq_n_f32(gw_thc_window_scale(exponent)), least = vdupq_n_f32(minimum);
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        const float32x4_t above = gw_flush_f32x4(vsubq_f32(gw_load_f32x4(src + i), least));
        gw_store_f32x4(dst + i, gw_window_f32x4(above, floor_bits, scale));
    }
    gw_thc_shift_values(dst, src, i, len, minimum, exponent);
}

#else
typedef int gw_thc_rotate_neon_not_built; /* a translation unit must not be empty */
#endif
