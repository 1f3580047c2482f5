/*
 * Precision map: four parameters at a time, by gcomp/map_lanes.h.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: scan 20.4 (138.1), 8.9 and 4.5; build 21.5 (146.1),
 * 9.1 and 4.6.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

typedef float32x4_t floats;
typedef uint32x4_t words;
typedef uint32x4_t flags; /* all bits of a lane */

enum { LANES = 4, REGISTERS = 2 };

#define FLOATS(x)           vdupq_n_f32(x)
#define LOAD(bytes)         gw_f32x4_bits(gw_load_u32x4(bytes))
#define ADD(x, y)           vaddq_f32(x, y)
#define SUB(x, y)           vsubq_f32(x, y)
#define MUL(x, y)           vmulq_f32(x, y)
#define DIV(x, y)           gw_div_f32x4(x, y)
#define SQRT(x)             vsqrtq_f32(x)
#define ABS(x)              vabsq_f32(x)
#define ABOVE_ZERO(x)       vmaxq_f32(x, vdupq_n_f32(0.0f))
#define LESSER(x, y)        vbslq_f32(vcltq_f32(x, y), x, y)
#define IS_EQUAL(x, y)      vceqq_f32(x, y)
#define IS_LESS(x, y)       vcltq_f32(x, y)
#define IS_LESS_EQUAL(x, y) vcleq_f32(x, y)
#define IS_NAN(x)           vmvnq_u32(vceqq_f32(x, x))
#define DIFFER(x, y)        vcltq_s32(vreinterpretq_s32_f32(exclusive_or(x, y)), vdupq_n_s32(0))
#define IS_NOT_0(x)         vtstq_u32(gw_bits_f32x4(x), gw_bits_f32x4(x))
#define BOTH(a, b)          vandq_u32(a, b)
#define EITHER(a, b)        vorrq_u32(a, b)
#define BUT(a, b)           vbicq_u32(a, b)
#define CLEAR(a, x)         gw_f32x4_bits(vbicq_u32(gw_bits_f32x4(x), a))
#define PICK(a, x, y)       vbslq_f32(a, x, y)
#define WORDS_MIN(x, y)     vminq_u32(x, y)
#define WORDS_MAX(x, y)     vmaxq_u32(x, y)
#define NO_WORDS            vdupq_n_u32(0)

static inline floats exclusive_or(floats x, floats y)
{
    return gw_f32x4_bits(veorq_u32(gw_bits_f32x4(x), gw_bits_f32x4(y)));
}

static inline floats flush(floats x)
{
    const uint32x4_t bits = gw_bits_f32x4(x);
    return gw_f32x4_bits(vandq_u32(bits, vtstq_u32(bits, vdupq_n_u32(0x7f800000u))));
}

static inline floats normal(floats x)
{
    /* Shifted left, sign and all, 2^-126 and less are at most 2^24. */
    const uint32x4_t bits = gw_bits_f32x4(x);
    return gw_f32x4_bits(vandq_u32(bits, vcgtq_u32(vaddq_u32(bits, bits), vdupq_n_u32(0x01000000u))));
}

/* Subtracting makes all others large. */
static inline flags is_ratio(floats x)
{
    return vcltq_u32(vsubq_u32(gw_bits_f32x4(x), vdupq_n_u32(0x00800000u)), vdupq_n_u32(0x7f000000u));
}

static inline words octaves(flags a, floats x)
{
    return vandq_u32(vshrq_n_u32(gw_bits_f32x4(x), 21), a);
}

static inline void store_map_bytes(uint8_t *map_bytes, const words q[REGISTERS], uint32_t base)
{
    const uint32x4_t below = vdupq_n_u32(base);
    const uint32x4_t low = vqsubq_u32(q[0], below), high = vqsubq_u32(q[1], below);
    vst1_u8(map_bytes, vqmovn_u16(vcombine_u16(vqmovn_u32(low), vqmovn_u32(high))));
}

static inline uint32_t largest_of(words x)
{
    return vmaxvq_u32(x);
}

#include "gcomp/map_lanes.h"

uint32_t gw_map_scan_neon(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len)
{
    return map_scan(rule, state, len);
}

void gw_map_build_neon(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state, size_t len,
                       uint32_t base, uint8_t *map_bytes)
{
    map_build(rule, state, len, base, map_bytes);
}

#else
typedef int gw_map_neon_not_built; /* a translation unit must not be empty */
#endif
