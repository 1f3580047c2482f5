/*
 * Join: 64 values a step, in bytes until the last shuffles (docs/format.md section 3).
 *
 * Labels say which values have a digit in which plane: a mask per plane. An expand spreads the plane's next
 * digits over the values that have one. From there on every byte of the result is assembled in 64 lanes of a
 * byte, and three interleavings (two for 16-bit types) make elements of them; where two registers are
 * interleaved in order, shuffles by index do it at once, so that the order of 128-bit lanes needs no
 * correction.
 *
 * In derived mode the digit that is not whole comes from the remainder planes. A merge-masked expand combines
 * it with the whole digits without another instruction: it is the source of the lanes that the expand leaves.
 * R1 is a bit string, which pdep turns into a mask.
 *
 * Bound for explicit fp32 on Zen 4, which starts two vector instructions of 512 bits a cycle: 4 expands (2 or
 * 3 instructions each), 8 interleavings (4 of them double), 7 shifts, 5 selects, 8 for masks and exponents:
 * 43 for 64 values, 0.34 cycles a value; measured 0.41 (clang 14) and 0.43 (gcc 12). Derived: about 70, 0.55
 * cycles a value; measured 0.79 (gcc 12) and 0.87. Tried without gain for derived joins: masks of 16 steps in
 * a pass of their own, and testing bits of `has` by shifting them up instead of by seven constants.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx512/sink_avx512.h"

#if defined(GW_AVX512_COMPILED)

#if defined(__GNUC__)
#define GW_NOINLINE __attribute__((noinline))
#else
#define GW_NOINLINE
#endif

enum { LABEL_ESCAPE = 1 };

/* ---- bytes --------------------------------------------------------------------------------------------- */

static inline __m512i set1(unsigned byte)
{
    return _mm512_set1_epi8((char)byte);
}

/* Where bit of mask is set: x, else y. */
GW_TEMPLATE __m512i select(unsigned mask, __m512i x, __m512i y)
{
    return _mm512_ternarylogic_epi32(x, y, set1(mask), 0xe4);
}

/* Shifts of 16 bits: bits that cross into the neighbouring byte are removed by the select that follows. */
#define LEFT(x, n)  _mm512_slli_epi16((x), (n))
#define RIGHT(x, n) _mm512_srli_epi16((x), (n))

/* Two bytes of value v: of the first operand of a shuffle of two registers, then of the second. */
#define PAIR(v)   ((uint64_t)(v) | (uint64_t)(64 + (v)) << 8)
#define PAIRS4(v) ((long long)(PAIR(v) | PAIR((v) + 1) << 16 | PAIR((v) + 2) << 32 | PAIR((v) + 3) << 48))

/* ---- assembly ------------------------------------------------------------------------------------------ */

typedef struct digits {
    __m512i d1, d2, d3, d4;
    __m512i exponent; /* 0 where there is none */
} digits;

/* 64 values of fp32: sign and 5 bits of mantissa in d1, 6 each in d2..d4. */
GW_TEMPLATE quad assemble_fp32(const digits *d)
{
    /* Pairs of bytes in an order that unpacking 16-bit halves within lanes of 128 bits turns into 16 values
     * in order. */
    const __m512i first = _mm512_set_epi64(PAIRS4(28), PAIRS4(12), PAIRS4(24), PAIRS4(8), PAIRS4(20),
                                           PAIRS4(4), PAIRS4(16), PAIRS4(0));
    const __m512i second = _mm512_set_epi64(PAIRS4(60), PAIRS4(44), PAIRS4(56), PAIRS4(40), PAIRS4(52),
                                            PAIRS4(36), PAIRS4(48), PAIRS4(32));
    const __m512i d1_up = LEFT(d->d1, 2);
    const __m512i b3 = select(0x80, d1_up, RIGHT(d->exponent, 1));
    const __m512i b2 = select(0x80, LEFT(d->exponent, 7), select(0x7c, d1_up, RIGHT(d->d2, 4)));
    const __m512i b1 = select(0xf0, LEFT(d->d2, 4), RIGHT(d->d3, 2));
    const __m512i b0 = select(0xc0, LEFT(d->d3, 6), d->d4);
    const __m512i low0 = _mm512_permutex2var_epi8(b0, first, b1),
                  low1 = _mm512_permutex2var_epi8(b0, second, b1);
    const __m512i high0 = _mm512_permutex2var_epi8(b2, first, b3),
                  high1 = _mm512_permutex2var_epi8(b2, second, b3);
    const quad out = {_mm512_unpacklo_epi16(low0, high0), _mm512_unpackhi_epi16(low0, high0),
                      _mm512_unpacklo_epi16(low1, high1), _mm512_unpackhi_epi16(low1, high1)};
    return out;
}

/* 64 elements of 16 bits from their low and high bytes. */
GW_TEMPLATE quad pair_bytes(__m512i low, __m512i high)
{
    const __m512i first = _mm512_set_epi64(PAIRS4(28), PAIRS4(24), PAIRS4(20), PAIRS4(16), PAIRS4(12),
                                           PAIRS4(8), PAIRS4(4), PAIRS4(0));
    const __m512i second = _mm512_set_epi64(PAIRS4(60), PAIRS4(56), PAIRS4(52), PAIRS4(48), PAIRS4(44),
                                            PAIRS4(40), PAIRS4(36), PAIRS4(32));
    const __m512i none = _mm512_setzero_si512();
    const quad out = {_mm512_permutex2var_epi8(low, first, high), _mm512_permutex2var_epi8(low, second, high),
                      none, none};
    return out;
}

/* bf16: four digits of two bits, the sign on top of d1. */
GW_TEMPLATE quad assemble_bf16(const digits *d)
{
    const __m512i upper = select(0xc0, LEFT(d->d1, 6), LEFT(d->d2, 4));
    const __m512i z = select(0xf0, upper, select(0x0c, LEFT(d->d3, 2), d->d4));
    return pair_bytes(select(0x7f, z, LEFT(d->exponent, 7)), select(0x80, z, RIGHT(d->exponent, 1)));
}

/* fp16: sign and a bit in d1, three bits each in d2..d4. zeros: the values whose exponent and mantissa are
 * zero. */
GW_TEMPLATE quad assemble_fp16(const digits *d, uint64_t *zeros)
{
    const __m512i low = select(0xc0, LEFT(d->d2, 6), select(0x38, LEFT(d->d3, 3), d->d4));
    const __m512i top = select(0x80, LEFT(d->d1, 6), LEFT(d->exponent, 2));
    const __m512i high = select(0xfc, top, select(0x02, LEFT(d->d1, 1), RIGHT(d->d2, 2)));
    *zeros = _mm512_testn_epi8_mask(_mm512_ternarylogic_epi32(low, high, set1(0x7f), 0xf8), set1(0xff));
    return pair_bytes(low, high);
}

/* ---- escapes ------------------------------------------------------------------------------------------- */

typedef struct escapes {
    uint16_t *place;
    const uint8_t *from;
    size_t len, taken;
} escapes;

/* 64 / size values with the escapes in their places. */
static inline __m512i put_some(escapes *s, __m512i out, uint64_t mask, size_t at, unsigned size)
{
    const size_t count = (size_t)_mm_popcnt_u64(mask);
    const size_t left = s->taken < s->len ? s->len - s->taken : 0;
    const uint64_t have = gw_low_mask(count < left ? count : left);
    const uint8_t *from = s->from + size * (have != 0 ? s->taken : 0);
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        s->place[s->taken++] = (uint16_t)(at + (unsigned)_tzcnt_u64(rest));
    }
    if (size == 4) {
        return _mm512_mask_expand_epi32(out, (__mmask16)mask,
                                        _mm512_maskz_loadu_epi32((__mmask16)have, from));
    }
    return _mm512_mask_expand_epi16(out, (__mmask32)mask, _mm512_maskz_loadu_epi16((__mmask32)have, from));
}

/* The escapes among 64 values; rare. */
static inline quad put_escapes(escapes *s, quad out, uint64_t mask, size_t at, unsigned size)
{
    if (size == 4) {
        out.v0 = put_some(s, out.v0, mask & 0xffff, at, 4);
        out.v1 = put_some(s, out.v1, mask >> 16 & 0xffff, at + 16, 4);
        out.v2 = put_some(s, out.v2, mask >> 32 & 0xffff, at + 32, 4);
        out.v3 = put_some(s, out.v3, mask >> 48, at + 48, 4);
    } else {
        out.v0 = put_some(s, out.v0, mask & 0xffffffff, at, 2);
        out.v1 = put_some(s, out.v1, mask >> 32, at + 32, 2);
    }
    return out;
}

/* ---- explicit ------------------------------------------------------------------------------------------ */

/* Position of the next digits of each plane. */
typedef struct cursors {
    const uint8_t *p1, *p2, *p3, *p4, *r4, *r2, *r1;
    size_t r1_at; /* bits */
    __m512i zero;
} cursors;

static inline cursors cursors_begin(uint8_t *const *plane, const gw_joiner *joiner, uint32_t derived)
{
    /* floor[0] is 0, but not a constant: from a constant the compiler would make the zero-masked expand,
     * which depends on its destination register on Zen 4 and 5. */
    cursors c = {plane[0], plane[1], plane[2], plane[3], NULL, NULL, NULL, 0, set1(joiner->floor[0])};
    if (derived) {
        c.r4 = plane[4];
        c.r2 = plane[5];
        c.r1 = plane[GW_PLANE_R1];
    }
    return c;
}

/* The next digits of a plane where mask is set, else the bytes of `others`. */
GW_TEMPLATE __m512i expand(const uint8_t **plane, __m512i others, uint64_t mask)
{
    const __m512i x = _mm512_loadu_si512(*plane);
    *plane += _mm_popcnt_u64(mask);
    return _mm512_mask_expand_epi8(others, mask, x);
}

/* Exponent and digits of 64 labels of an explicit frame. */
GW_TEMPLATE void digits_explicit(digits *d, cursors *c, __m512i x, uint32_t dtype, __m512i window_start)
{
    const uint64_t has1 = _mm512_cmpgt_epu8_mask(x, set1(3));
    const uint64_t has2 = _mm512_mask_cmplt_epu8_mask(has1, _mm512_and_si512(x, set1(3)), set1(3));
    const uint64_t has3 = _mm512_mask_testn_epi8_mask(has1, x, set1(2));
    const uint64_t has4 = _mm512_mask_testn_epi8_mask(has1, x, set1(3));
    const __m512i quarter = _mm512_and_si512(RIGHT(x, 2), set1(63));
    d->exponent = dtype == GW_FP16 ? _mm512_maskz_sub_epi8(has1, quarter, set1(1))
                                   : _mm512_maskz_add_epi8(has1, quarter, window_start);
    d->d1 = expand(&c->p1, c->zero, has1);
    d->d2 = expand(&c->p2, c->zero, has2);
    d->d3 = expand(&c->p3, c->zero, has3);
    d->d4 = expand(&c->p4, c->zero, has4);
}

/* ---- derived ------------------------------------------------------------------------------------------- */

/*
 * The drop in bytes. With x = label (fp16: max(label, 3), which stands for max(e, 1)) and c = drop_offset + 1
 * (fp16: drop_offset - 443), t of section 3 is K + c - 4x. With c = 4q + r, r in 1..4: floor(t / 4) =
 * floor((K + r) / 4) + q - x, where floor((K + r) / 2) is the rounded mean of K and r - 1, and the mean of
 * that and 255 is its half plus 128. Results below 0 are 0, those above the cap, at most 23, are the cap, so
 * saturating bytes suffice. If q is outside 0..191, which only hostile frames have, x is corrected
 * beforehand.
 */
typedef struct drop_rule {
    __m512i half; /* r - 1 */
    /* 255, from memory: compilers would make it by an instruction that depends on the register's old
     * value. */
    __m512i ones;
    __m512i q; /* - 128 */
    __m512i cap;
    /* By drop, not rounded down: bits 0..3 are digits 1..4, bits 4, 5, 6 the remainder's 1, 2, 4. */
    __m512i has;
    __m512i last; /* by drop: place of R1's bit in its digit */
    int is_far;   /* q is outside 0..191, and x is replaced by x - less + more */
    __m512i less, more;
    /* relative exponents: the turn is the mean of K and 255, + turn_plus - turn_minus, at most turn_max */
    __m512i turn_plus, turn_minus, turn_max;
} drop_rule;

static inline unsigned clamp8(int32_t x)
{
    return (unsigned)(x < 0 ? 0 : x > 255 ? 255 : x);
}

static void drop_rule_fill(drop_rule *r, const gw_joiner *joiner)
{
    const gw_traits *t = gw_traits_of(joiner->dtype);
    const int32_t c = joiner->drop_offset + (joiner->dtype == GW_FP16 ? -443 : 1) - 1;
    const int32_t rest = c & 3, q = (c - rest) / 4;
    uint8_t has[64], last[64];
    GW_MEMSET(has, 0, sizeof has);
    GW_MEMSET(last, 0, sizeof last);
    for (unsigned n = 0; n <= t->mantissa_bits; n++) {
        unsigned kept = t->mantissa_bits + 1u - joiner->floor[n];
        unsigned bits = 0, width = 0;
        for (unsigned p = 0; p < GW_DIGIT_PLANES; p++) {
            width = t->digit_width[p];
            if (kept < width) {
                break;
            }
            kept -= width;
            bits |= 1u << p;
        }
        has[n] = (uint8_t)(bits | (bits == 15 ? 0 : kept) << 4);
        last[n] = (uint8_t)((1u << width >> 1) >> (kept & 6));
    }
    r->has = _mm512_loadu_si512(has);
    r->last = _mm512_loadu_si512(last);
    r->half = set1((unsigned)rest);
    r->ones = set1(255u + joiner->floor[0]);
    r->q = set1(clamp8(q < 191 ? q : 191) - 128);
    r->is_far = q < 0 || q > 191;
    r->less = set1(clamp8(q - 191));
    r->more = set1(clamp8(-q));
    r->cap = set1(joiner->cap);
    /* gw_turn_of() of src/gcomp/bins.h: floor((K + drop_offset - 3) / 4) = floor((K + r) / 4) + whole - 1,
     * and r is the same for all dtypes. */
    const int32_t first = joiner->dtype == GW_FP16 ? 0 : 1;
    const int32_t whole = (joiner->drop_offset - rest) / 4;
    const int32_t turn = whole - 1 - t->mantissa_bits - t->exponent_bias - first - 128;
    r->turn_plus = set1(clamp8(turn));
    r->turn_minus = set1(clamp8(-turn));
    r->turn_max = set1((unsigned)(t->exponent_mask - 1 - first));
}

/* The labels that ordinary relative labels would be without a turn. */
GW_TEMPLATE __m512i turn_back(const drop_rule *r, __m512i x, __m512i k, uint32_t dtype)
{
    const __m512i quarter = _mm512_avg_epu8(_mm512_avg_epu8(k, r->half), r->ones);
    const __m512i open = _mm512_maskz_adds_epu8(_mm512_test_epi8_mask(k, k), quarter, r->turn_plus);
    const __m512i turn = _mm512_min_epu8(_mm512_subs_epu8(open, r->turn_minus), r->turn_max);
    const __m512i sum = _mm512_add_epi8(x, turn);
    if (dtype == GW_FP16) { /* labels are 2..32 */
        return _mm512_mask_sub_epi8(sum, _mm512_cmpgt_epu8_mask(sum, set1(32)), sum, set1(31));
    }
    /* Labels are 2..255: a sum above leaves the byte. */
    return _mm512_mask_add_epi8(sum, _mm512_cmplt_epu8_mask(sum, turn), sum, set1(2));
}

GW_TEMPLATE __m512i drops(const drop_rule *r, __m512i x, __m512i k, uint32_t dtype)
{
    if (dtype == GW_FP16) {
        x = _mm512_max_epu8(x, set1(3));
    }
    if (r->is_far) {
        x = _mm512_adds_epu8(_mm512_subs_epu8(x, r->less), r->more);
    }
    const __m512i quarter = _mm512_avg_epu8(_mm512_avg_epu8(k, r->half), r->ones);
    const __m512i drop = _mm512_subs_epu8(_mm512_add_epi8(quarter, r->q), x);
    return _mm512_maskz_min_epu8(_mm512_test_epi8_mask(k, k), drop, r->cap);
}

/* The next bits of R1 at the set bits of mask. */
GW_TEMPLATE uint64_t expand_bits(cursors *c, uint64_t mask)
{
    const uint8_t *at = c->r1 + c->r1_at / 8;
    const unsigned shift = (unsigned)(c->r1_at % 8);
    const uint64_t bits = gw_load64(at) >> shift | (uint64_t)at[8] << 1 << (63 - shift);
    c->r1_at += (size_t)_mm_popcnt_u64(mask);
    return _pdep_u64(bits, mask);
}

/* x: labels; y: the same after turn_back(), if exponents are relative. */
GW_TEMPLATE void digits_derived(digits *d, cursors *c, __m512i x, __m512i y, __m512i drop, uint32_t dtype,
                                const drop_rule *r)
{
    const uint64_t ordinary = _mm512_cmpgt_epu8_mask(x, set1(LABEL_ESCAPE));
    const __m512i has = _mm512_maskz_permutexvar_epi8(ordinary, drop, r->has);
    const uint64_t has1 = _mm512_test_epi8_mask(has, set1(1)), has2 = _mm512_test_epi8_mask(has, set1(2));
    const uint64_t has3 = _mm512_test_epi8_mask(has, set1(4)), has4 = _mm512_test_epi8_mask(has, set1(8));
    const uint64_t rest1 = _mm512_test_epi8_mask(has, set1(16)), rest2 = _mm512_test_epi8_mask(has, set1(32));
    __m512i part = _mm512_maskz_permutexvar_epi8(expand_bits(c, rest1), drop, r->last);
    if (dtype == GW_FP32) { /* digits of 6 bits: R4 or R2 (4 + 2 would be a whole digit) above R1 */
        const uint64_t rest4 = _mm512_test_epi8_mask(has, set1(64));
        const __m512i four = expand(&c->r4, c->zero, rest4), two = expand(&c->r2, c->zero, rest2);
        part = _mm512_ternarylogic_epi32(part, LEFT(four, 2), LEFT(two, 4), 0xfe);
    } else if (dtype == GW_FP16) { /* digits of 3 bits: R2 above R1 */
        part = _mm512_or_si512(part, LEFT(expand(&c->r2, c->zero, rest2), 1));
    }
    d->exponent = _mm512_maskz_sub_epi8(ordinary, y, set1(dtype == GW_FP16 ? 2 : 1));
    d->d1 = expand(&c->p1, part, has1);
    d->d2 = expand(&c->p2, _mm512_maskz_mov_epi8(has1, part), has2);
    d->d3 = expand(&c->p3, _mm512_maskz_mov_epi8(has2, part), has3);
    d->d4 = expand(&c->p4, _mm512_maskz_mov_epi8(has3, part), has4);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Values whose drop comes from their labels, from the map, from the map with relative exponents, from a
 * constant. */
enum { MODE_EXPLICIT, MODE_DERIVED, MODE_RELATIVE, MODE_CONSTANT };

/* The last, fewer than 64 values, padded with zeros. */
typedef struct last_values {
    uint8_t label[64], map_byte[64];
} last_values;

static void copy_last(last_values *last, const uint8_t *label, const uint8_t *map_byte, size_t len)
{
    GW_MEMSET(last, 0, sizeof *last);
    GW_MEMCPY(last->label, label, len);
    if (map_byte != NULL) {
        GW_MEMCPY(last->map_byte, map_byte, len);
    }
}

GW_TEMPLATE uint64_t join_range(const sink *to, escapes *escapes_inout, cursors *from,
                                const gw_join_input *input, const gw_joiner *joiner, uint32_t dtype, int kind,
                                int form)
{
    const unsigned size = dtype == GW_FP32 ? 4 : 2;
    const uint8_t *const labels = input->labels, *const map_bytes = input->map_bytes;
    const size_t len = input->len;
    const __m512i window_start = set1(joiner->window_start);
    cursors c = *from;
    const sink s = *to;
    escapes e = *escapes_inout;
    line_maker maker = lines_begin(&s);
    last_values last;
    drop_rule rule;
    uint64_t bad_zero = 0;
    const int has_map_bytes = kind == MODE_DERIVED || kind == MODE_RELATIVE;
    if (kind != MODE_EXPLICIT) {
        drop_rule_fill(&rule, joiner);
    }
    for (size_t at = 0; at < len; at += PREFETCH_LEN) {
        const size_t end = len - at < PREFETCH_LEN ? len : at + PREFETCH_LEN;
        prefetch_frame(joiner, at, end - at, len);
        if (has_map_bytes && joiner->next_size != 0) {
            prefetch((uintptr_t)map_bytes + len + at,
                     (uintptr_t)map_bytes + len + end); /* of the next chunk */
        }
        for (size_t i = at; i < end; i += 64) {
            const uint8_t *label = labels + i, *map_byte = has_map_bytes ? map_bytes + i : NULL;
            if (len - i < 64) { /* rare, so the other loads need no mask */
                copy_last(&last, label, map_byte, len - i);
                label = last.label;
                map_byte = last.map_byte;
            }
            const __m512i x = _mm512_loadu_si512(label);
            digits d;
            if (kind == MODE_EXPLICIT) {
                digits_explicit(&d, &c, x, dtype, window_start);
            } else if (has_map_bytes) {
                const __m512i k = _mm512_loadu_si512(map_byte);
                const __m512i y = kind == MODE_RELATIVE ? turn_back(&rule, x, k, dtype) : x;
                digits_derived(&d, &c, x, y, drops(&rule, y, k, dtype), dtype, &rule);
            } else {
                digits_derived(&d, &c, x, x, rule.cap, dtype, &rule);
            }
            uint64_t zeros = 0;
            quad out = dtype == GW_FP32   ? assemble_fp32(&d)
                       : dtype == GW_BF16 ? assemble_bf16(&d)
                                          : assemble_fp16(&d, &zeros);
            if (dtype == GW_FP16) {
                bad_zero |= zeros & _mm512_cmpgt_epu8_mask(x, set1(LABEL_ESCAPE));
            }
            const uint64_t escaped = _mm512_cmpeq_epi8_mask(x, set1(LABEL_ESCAPE));
            if (escaped != 0) {
                out = put_escapes(&e, out, escaped, i, size);
                if (form == STORE_SUMS) {
                    out = flush_values(out, dtype);
                }
            }
            if (form == STORE_LINES) {
                store_lines(&s, &maker, out, i, len - i);
            } else {
                if (form >= STORE_SUMS) {
                    out = add_addends(&s, out, i, len - i, dtype, form == STORE_STRICT_SUMS);
                }
                store(&s, out, i, len - i, size);
            }
        }
    }
    if (form == STORE_LINES) {
        lines_end(&s, &maker, len);
    }
    *from = c;
    *escapes_inout = e;
    return bad_zero;
}

/* Registers are scarce: lines and sums have loops of their own, and sums and relative exponents functions of
 * their own, because the compiler keeps the constants of all loops of a function in registers. */
#define JOIN_CASE(dtype, kind, form)                                                                         \
    case ((dtype)*4 + (kind)) * 4 + (form):                                                                  \
        return join_range(s, e, c, input, joiner, (dtype), (kind), (form))

static GW_NOINLINE uint64_t join_values(const sink *s, escapes *e, cursors *c, const gw_join_input *input,
                                        const gw_joiner *joiner, unsigned kind)
{
    const unsigned form = s->stream == STREAM_LINES ? STORE_LINES : STORE_VALUES;
    switch ((joiner->dtype * 4 + kind) * 4 + form) {
        JOIN_CASE(GW_FP32, MODE_EXPLICIT, STORE_VALUES);
        JOIN_CASE(GW_FP32, MODE_DERIVED, STORE_VALUES);
        JOIN_CASE(GW_FP32, MODE_CONSTANT, STORE_VALUES);
        JOIN_CASE(GW_FP32, MODE_EXPLICIT, STORE_LINES);
        JOIN_CASE(GW_FP32, MODE_DERIVED, STORE_LINES);
        JOIN_CASE(GW_FP32, MODE_CONSTANT, STORE_LINES);
        JOIN_CASE(GW_BF16, MODE_EXPLICIT, STORE_VALUES);
        JOIN_CASE(GW_BF16, MODE_DERIVED, STORE_VALUES);
        JOIN_CASE(GW_BF16, MODE_CONSTANT, STORE_VALUES);
        JOIN_CASE(GW_FP16, MODE_EXPLICIT, STORE_VALUES);
        JOIN_CASE(GW_FP16, MODE_DERIVED, STORE_VALUES);
        JOIN_CASE(GW_FP16, MODE_CONSTANT, STORE_VALUES);
    default:
        return 0;
    }
}

#define SUM_CASES(dtype, kind)                                                                               \
    JOIN_CASE(dtype, kind, STORE_SUMS);                                                                      \
    JOIN_CASE(dtype, kind, STORE_STRICT_SUMS)

static GW_NOINLINE uint64_t join_sums(const sink *s, escapes *e, cursors *c, const gw_join_input *input,
                                      const gw_joiner *joiner, unsigned kind)
{
    const unsigned form = joiner->strict ? STORE_STRICT_SUMS : STORE_SUMS;
    switch ((joiner->dtype * 4 + kind) * 4 + form) {
        SUM_CASES(GW_FP32, MODE_EXPLICIT);
        SUM_CASES(GW_FP32, MODE_DERIVED);
        SUM_CASES(GW_FP32, MODE_CONSTANT);
        SUM_CASES(GW_BF16, MODE_EXPLICIT);
        SUM_CASES(GW_BF16, MODE_DERIVED);
        SUM_CASES(GW_BF16, MODE_CONSTANT);
        SUM_CASES(GW_FP16, MODE_EXPLICIT);
        SUM_CASES(GW_FP16, MODE_DERIVED);
        SUM_CASES(GW_FP16, MODE_CONSTANT);
    default:
        return 0;
    }
}

static GW_NOINLINE uint64_t join_relative_values(const sink *s, escapes *e, cursors *c,
                                                 const gw_join_input *input, const gw_joiner *joiner)
{
    const unsigned kind = MODE_RELATIVE, form = s->stream == STREAM_LINES ? STORE_LINES : STORE_VALUES;
    switch ((joiner->dtype * 4 + kind) * 4 + form) {
        JOIN_CASE(GW_FP32, MODE_RELATIVE, STORE_VALUES);
        JOIN_CASE(GW_FP32, MODE_RELATIVE, STORE_LINES);
        JOIN_CASE(GW_BF16, MODE_RELATIVE, STORE_VALUES);
        JOIN_CASE(GW_FP16, MODE_RELATIVE, STORE_VALUES);
    default:
        return 0;
    }
}

static GW_NOINLINE uint64_t join_relative_sums(const sink *s, escapes *e, cursors *c,
                                               const gw_join_input *input, const gw_joiner *joiner)
{
    const unsigned kind = MODE_RELATIVE, form = joiner->strict ? STORE_STRICT_SUMS : STORE_SUMS;
    switch ((joiner->dtype * 4 + kind) * 4 + form) {
        SUM_CASES(GW_FP32, MODE_RELATIVE);
        SUM_CASES(GW_BF16, MODE_RELATIVE);
        SUM_CASES(GW_FP16, MODE_RELATIVE);
    default:
        return 0;
    }
}

void gw_join_avx512(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                    const gw_joiner *joiner)
{
    uint8_t *const *const plane = input->plane;
    const sink s = sink_begin(dst, joiner);
    escapes e = {place, input->escape, input->escape_len, 0};
    cursors c = cursors_begin(plane, joiner, joiner->derived);
    const unsigned kind = !joiner->derived   ? MODE_EXPLICIT
                          : joiner->constant ? MODE_CONSTANT
                          : joiner->relative ? MODE_RELATIVE
                                             : MODE_DERIVED;
    const int has_sums = joiner->addend != NULL;
    uint64_t bad_zero;
    if (kind == MODE_RELATIVE) {
        bad_zero = has_sums ? join_relative_sums(&s, &e, &c, input, joiner)
                            : join_relative_values(&s, &e, &c, input, joiner);
    } else {
        bad_zero = has_sums ? join_sums(&s, &e, &c, input, joiner, kind)
                            : join_values(&s, &e, &c, input, joiner, kind);
    }
    joined->plane_len[0] = (size_t)(c.p1 - plane[0]);
    joined->plane_len[1] = (size_t)(c.p2 - plane[1]);
    joined->plane_len[2] = (size_t)(c.p3 - plane[2]);
    joined->plane_len[3] = (size_t)(c.p4 - plane[3]);
    joined->plane_len[4] = joiner->derived ? (size_t)(c.r4 - plane[4]) : 0;
    joined->plane_len[5] = joiner->derived ? (size_t)(c.r2 - plane[5]) : 0;
    joined->plane_len[GW_PLANE_R1] = c.r1_at;
    joined->escape_len = e.taken;
    joined->bad_zero = bad_zero != 0;
}

void gw_fence_avx512(void)
{
    _mm_sfence();
}

#else
typedef int gw_join_avx512_not_built; /* a translation unit must not be empty */
#endif
