/*
 * Pack and unpack: numbers of 1 to 7 bits.
 *
 * Pack closes gaps in three steps of shift left and insert: pairs in 16-bit lanes, fours in 32, eights in 64;
 * a byte shuffle puts the two halves of the register together. Unpack combines, for each number, the byte
 * that it starts in and, shifted the other way, the next one.
 *
 * The loops take 32 numbers a step, a multiple of four bytes: the rest is a run of its own, for
 * gcomp/bit_runs.h. Whole registers are stored; the next store overwrites the excess bytes.
 *
 * Not timed. Instructions a value by bench/neon_count (gcc 12, -O3), scalar in brackets; then the least
 * cycles that its model allows on Neoverse N1 and V2: pack of 6 bits 0.88 (3.4), 0.25 and 0.12; unpack of 6
 * bits without a table 0.81 (2.8), 0.20 and 0.10.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/bit_runs.h"
#include "neon/kernels_neon.h"
#include "neon/neon.h"

#if defined(GW_NEON)

/* Byte j of the shuffle that joins two halves of w bytes each. */
#define JOINED(w, j) ((j) < (w) ? (j) : (j) < 2 * (w) ? 8 - (w) + (j) : 255)

/* Number j of w bits starts at bit w * j: its byte, its bit, and the next byte if it continues there. */
#define BYTE_OF(w, j) ((w) * (j) / 8)
#define BIT_OF(w, j)  ((w) * (j) % 8)
#define NEXT_OF(w, j) (BIT_OF(w, j) + (w) > 8 ? BYTE_OF(w, j) + 1 : 255)
#define DOWN(w, j)    (-BIT_OF(w, j))
#define UP(w, j)      (8 - BIT_OF(w, j))

#define SIXTEEN(f, w)                                                                                        \
    {                                                                                                        \
        f(w, 0), f(w, 1), f(w, 2), f(w, 3), f(w, 4), f(w, 5), f(w, 6), f(w, 7), f(w, 8), f(w, 9), f(w, 10),  \
            f(w, 11), f(w, 12), f(w, 13), f(w, 14), f(w, 15)                                                 \
    }
#define WIDTHS(f)                                                                                            \
    {                                                                                                        \
        SIXTEEN(f, 1), SIXTEEN(f, 2), SIXTEEN(f, 3), SIXTEEN(f, 4), SIXTEEN(f, 5), SIXTEEN(f, 6),            \
            SIXTEEN(f, 7)                                                                                    \
    }

static const uint8_t joined[7][16] = WIDTHS(JOINED);
static const uint8_t byte_of[7][16] = WIDTHS(BYTE_OF);
static const uint8_t next_of[7][16] = WIDTHS(NEXT_OF);
static const int8_t down[7][16] = WIDTHS(DOWN);
static const int8_t up[7][16] = WIDTHS(UP);

/* ---- pack ---------------------------------------------------------------------------------------------- */

/* Shifts with insertion need constants at any optimisation level, hence macros. */
#define PACK_WIDTH(w)                                                                                        \
    static inline uint8x16_t squeeze_##w(uint8x16_t digits, uint8x16_t order)                                \
    {                                                                                                        \
        uint16x8_t pairs = vreinterpretq_u16_u8(digits);                                                     \
        pairs = vsliq_n_u16(pairs, vshrq_n_u16(pairs, 8), (w));                                              \
        uint32x4_t fours = vreinterpretq_u32_u16(pairs);                                                     \
        fours = vsliq_n_u32(fours, vshrq_n_u32(fours, 16), 2 * (w));                                         \
        uint64x2_t eights = vreinterpretq_u64_u32(fours);                                                    \
        eights = vsliq_n_u64(eights, vshrq_n_u64(eights, 32), 4 * (w));                                      \
        return vqtbl1q_u8(vreinterpretq_u8_u64(eights), order);                                              \
    }                                                                                                        \
    static void pack_##w(uint8_t *dst, const uint8_t *digits, size_t len, uint8_t bias)                      \
    {                                                                                                        \
        const size_t size = gw_run_size(len, (w));                                                           \
        const uint8x16_t least = vdupq_n_u8(bias), order = vld1q_u8(joined[(w)-1]);                          \
        size_t i = 0, at = 0;                                                                                \
        for (; i + 32 <= len && at + 2 * (w) + 16 <= size; i += 32, at += 4 * (w)) {                         \
            vst1q_u8(dst + at, squeeze_##w(vsubq_u8(vld1q_u8(digits + i), least), order));                   \
            vst1q_u8(dst + at + 2 * (w), squeeze_##w(vsubq_u8(vld1q_u8(digits + i + 16), least), order));    \
        }                                                                                                    \
        gw_pack_width(dst + at, digits + i, len - i, (w), bias);                                             \
    }

PACK_WIDTH(1)
PACK_WIDTH(2)
PACK_WIDTH(3)
PACK_WIDTH(4)
PACK_WIDTH(5)
PACK_WIDTH(6)
PACK_WIDTH(7)

void gw_pack_neon(uint8_t *dst, const uint8_t *digits, size_t len, unsigned width, uint8_t bias)
{
#define PACK(w) pack_##w(dst, digits, len, bias)
    GW_SWITCH_WIDTH(width, PACK)
}

/* ---- unpack -------------------------------------------------------------------------------------------- */

/* A table of up to 128 bytes in registers. Shuffles over two registers are cheap on all cores, those over
 * four are not. */
typedef struct labels {
    uint8x16x2_t part[4];
} labels;

GW_TEMPLATE uint8x16_t look_up(const labels *table, uint8x16_t number, unsigned w)
{
    const uint8x16_t part_len = vdupq_n_u8(32);
    uint8x16_t label = vqtbl2q_u8(table->part[0], number);
    for (unsigned p = 1; 32 * p < 1u << w; p++) {
        number = vsubq_u8(number, part_len);
        label = vqtbx2q_u8(label, table->part[p], number);
    }
    return label;
}

/* 16 numbers; 16 bytes from src on are read. */
GW_TEMPLATE uint8x16_t numbers(const uint8_t *src, unsigned w)
{
    const uint8x16_t bytes = vld1q_u8(src);
    const uint8x16_t low = vshlq_u8(vqtbl1q_u8(bytes, vld1q_u8(byte_of[w - 1])), vld1q_s8(down[w - 1]));
    const uint8x16_t high = vshlq_u8(vqtbl1q_u8(bytes, vld1q_u8(next_of[w - 1])), vld1q_s8(up[w - 1]));
    return vandq_u8(vorrq_u8(low, high), vdupq_n_u8((uint8_t)((1u << w) - 1)));
}

GW_TEMPLATE int unpack_width(uint8_t *out, const uint8_t *src, size_t len, const uint8_t *table, unsigned w)
{
    const size_t size = gw_run_size(len, w);
    labels in_registers;
    size_t i = 0, at = 0;
    for (unsigned p = 0; p < 4; p++) {
        const int is_there = table != NULL && 32 * p < 1u << w;
        /* Up to 31 bytes after a short table are read: slop. */
        in_registers.part[p].val[0] = is_there ? vld1q_u8(table + 32 * p) : vdupq_n_u8(0);
        in_registers.part[p].val[1] = is_there ? vld1q_u8(table + 32 * p + 16) : vdupq_n_u8(0);
    }
    for (; i + 32 <= len && at + 2 * w + 16 <= size; i += 32, at += 4 * w) {
        const uint8x16_t first = numbers(src + at, w), second = numbers(src + at + 2 * w, w);
        vst1q_u8(out + i, table != NULL ? look_up(&in_registers, first, w) : first);
        vst1q_u8(out + i + 16, table != NULL ? look_up(&in_registers, second, w) : second);
    }
    const int ok = gw_unpack_width(out + i, src + at, len - i, w);
    for (; table != NULL && i < len; i++) {
        out[i] = table[out[i]];
    }
    return ok;
}

int gw_unpack_neon(uint8_t *out, const uint8_t *src, size_t len, unsigned width, const uint8_t *table)
{
#define UNPACK(w) return unpack_width(out, src, len, table, w)
    GW_SWITCH_WIDTH(width, UNPACK)
    return 0;
}

#else
typedef int gw_pack_neon_not_built; /* a translation unit must not be empty */
#endif
