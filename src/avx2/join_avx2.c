/*
 * Join: last stage of a decode, 32 values at a time (docs/format.md section 3).
 *
 * All steps but the last work on bytes: labels give a mask of 32 bits per plane, the values that have a digit
 * there; a shuffle looked up by the mask spreads the next digits of the plane to its set bits; digits and
 * exponents become the bytes of the values. Only the last step is as wide as the values.
 *
 * From label to value is a chain of 60 cycles and more, longer than what out-of-order execution can overlap
 * with the next 32 values. So the masks of some groups of 32 are made first, then their values.
 *
 * Bound: instructions. Explicit fp32 has about 125 for 32 values: 25 for the masks, 17 for each of three
 * planes, 48 for exponent, bytes, values and stores: 0.87 cycles a value at 4.5 a cycle. Measured on Zen 4:
 * 0.92; derived 1.5 to 1.6. With pdep on packed planes it would be 12 instead of 8.5 instructions for 8
 * values and plane, and slow before Zen 3.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "avx2/kernels_avx2.h"

#if defined(GW_AVX2_COMPILED)

#include <immintrin.h>

#include "avx2/byte_orders_avx2.h"
#include "avx2/round_groups_avx2.h"
#include "gcomp/codebook.h"
#include "gcomp/join_sum.h"

/* Where the number of kept bits comes from: the label; all values drop the same; label and map byte. RELATIVE
 * is DERIVED with relative exponents: the exponent comes from both, too. */
enum { EXPLICIT, CONSTANT, DERIVED, RELATIVE, SOURCES };

static inline __m256i bytes(unsigned x)
{
    return _mm256_set1_epi8((char)x);
}

static inline __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

/* x << n and x >> n in every byte; of the result only the bits of mask. */
GW_TEMPLATE __m256i up(__m256i x, int n, unsigned mask)
{
    return _mm256_and_si256(_mm256_slli_epi16(x, n), bytes(mask));
}

GW_TEMPLATE __m256i down(__m256i x, int n, unsigned mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, n), bytes(mask));
}

static inline __m256i at_least(__m256i x, unsigned y)
{
    return _mm256_cmpeq_epi8(_mm256_max_epu8(x, bytes(y)), x);
}

static inline uint32_t top_bits(__m256i x)
{
    return (uint32_t)_mm256_movemask_epi8(x);
}

/* 255 where the bit is set. */
static inline __m256i bytes_of_bits(uint32_t bits)
{
    const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                             2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
    return _mm256_cmpeq_epi8(_mm256_and_si256(x, bit_of), bit_of);
}

/* ---- what a value has --------------------------------------------------------------------------------- */

/* From map byte and exponent to the digits that a value has: GW_HAS_P1 and so on. */
typedef struct drop_rule {
    gw_room_rule room;
    __m256i cap;
    gw_table32 has; /* by room, at most the cap */
} drop_rule;

static void fill_drop_rule(drop_rule *rule, const gw_joiner *joiner, const gw_traits *t)
{
    uint8_t has[32];
    for (uint32_t n = 0; n < 32; n++) {
        const uint32_t drop = joiner->floor[gw_min_u32(n, joiner->cap)];
        has[n] = gw_has_of_kept(t->mantissa_bits + 1u - drop, t);
    }
    gw_room_rule_fill(&rule->room, joiner->drop_offset, 1, t);
    gw_table32_fill(&rule->has, has);
    rule->cap = bytes(gw_min_u32(joiner->cap, 31));
}

static inline __m256i has_of_drop(__m256i e, __m256i k, const drop_rule *rule)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i room = _mm256_min_epu8(gw_room(k, e, zero, &rule->room), rule->cap);
    return gw_look_up32(_mm256_andnot_si256(_mm256_cmpeq_epi8(k, zero), room), &rule->has);
}

/* ---- values ------------------------------------------------------------------------------------------- */

/* The bytes of 32 values from digits and exponents, lowest byte first; 16-bit types have two. */
GW_TEMPLATE void value_bytes(__m256i b[4], const __m256i d[4], __m256i e, uint32_t dtype)
{
    if (dtype == GW_FP32) {
        const __m256i d1 =
            _mm256_slli_epi16(d[0], 2); /* a digit has six bits: nothing crosses into the next byte */
        b[0] = _mm256_or_si256(up(d[2], 6, 0xc0), d[3]);
        b[1] = _mm256_or_si256(up(d[1], 4, 0xf0), down(d[2], 2, 0x0f));
        b[2] = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(d1, bytes(0x7c)), down(d[1], 4, 0x03)),
                               up(e, 7, 0x80));
        b[3] = _mm256_or_si256(_mm256_and_si256(d1, bytes(0x80)), down(e, 1, 0x7f));
    } else if (dtype == GW_BF16) {
        const __m256i d1 = _mm256_slli_epi16(d[0], 6);
        const __m256i low = _mm256_or_si256(_mm256_slli_epi16(d[2], 2), d[3]);
        b[0] = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(d1, bytes(0x40)), _mm256_slli_epi16(d[1], 4)),
                               _mm256_or_si256(low, up(e, 7, 0x80)));
        b[1] = _mm256_or_si256(_mm256_and_si256(d1, bytes(0x80)), down(e, 1, 0x7f));
    } else {
        const __m256i low = _mm256_or_si256(_mm256_slli_epi16(d[2], 3), d[3]);
        const __m256i high = _mm256_or_si256(up(d[0], 6, 0x80), _mm256_slli_epi16(e, 2));
        b[0] = _mm256_or_si256(up(d[1], 6, 0xc0), low);
        b[1] = _mm256_or_si256(high, _mm256_or_si256(up(d[0], 1, 0x02), down(d[1], 2, 0x01)));
    }
}

static inline void store32(uint8_t *dst, __m256i x, int stream)
{
    if (stream) {
        _mm256_stream_si256((__m256i *)(void *)dst, x);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)dst, x);
    }
}

GW_TEMPLATE void store_values(uint8_t *dst, const __m256i b[4], uint32_t dtype, int stream)
{
    const __m256i low[2] = {_mm256_unpacklo_epi8(b[0], b[1]), _mm256_unpackhi_epi8(b[0], b[1])};
    if (dtype != GW_FP32) {
        store32(dst, _mm256_permute2x128_si256(low[0], low[1], 0x20), stream);
        store32(dst + 32, _mm256_permute2x128_si256(low[0], low[1], 0x31), stream);
        return;
    }
    const __m256i high[2] = {_mm256_unpacklo_epi8(b[2], b[3]), _mm256_unpackhi_epi8(b[2], b[3])};
    const __m256i v0 = _mm256_unpacklo_epi16(low[0], high[0]), v1 = _mm256_unpackhi_epi16(low[0], high[0]);
    const __m256i v2 = _mm256_unpacklo_epi16(low[1], high[1]), v3 = _mm256_unpackhi_epi16(low[1], high[1]);
    store32(dst, _mm256_permute2x128_si256(v0, v1, 0x20), stream);
    store32(dst + 32, _mm256_permute2x128_si256(v2, v3, 0x20), stream);
    store32(dst + 64, _mm256_permute2x128_si256(v0, v1, 0x31), stream);
    store32(dst + 96, _mm256_permute2x128_si256(v2, v3, 0x31), stream);
}

/* ---- escapes ------------------------------------------------------------------------------------------ */

typedef struct escape_source {
    const uint8_t *values;
    size_t len, taken;
    uint16_t *place;
} escape_source;

/* Values i + j for the set bits j. */
static void put_escapes(uint8_t *dst, size_t i, uint32_t bits, size_t size, escape_source *from)
{
    for (; bits != 0; bits &= bits - 1, from->taken++) {
        const size_t at = i + (size_t)_tzcnt_u32(bits);
        const int has = from->taken < from->len;
        if (size == 4) {
            gw_store32(dst + 4 * at, has ? gw_load32(from->values + 4 * from->taken) : 0);
        } else {
            gw_store16(dst + 2 * at, has ? gw_load16(from->values + 2 * from->taken) : 0);
        }
        from->place[from->taken] = (uint16_t)at;
    }
}

/* ---- planes ------------------------------------------------------------------------------------------- */

/* Which values of some groups have a digit in a plane, and which are escapes. */
typedef struct group_masks {
    _Alignas(64) uint32_t plane[GW_PLANES_MAX][GW_GROUPS_MAX];
    uint16_t order[GW_PLANES_MAX][4 * GW_GROUPS_MAX]; /* bytes of the masks in the form that gw_spread16()
                                                       * takes */
    uint32_t escaped[GW_GROUPS_MAX];
    uint8_t has[GW_GROUPS_MAX * GW_GROUP_LEN];      /* GW_HAS_P1 and so on */
    uint8_t exponent[GW_GROUPS_MAX * GW_GROUP_LEN]; /* RELATIVE only */
} group_masks;

static inline void fill_orders(uint16_t *order, const uint32_t *mask, size_t groups)
{
    for (size_t g = 0; g < groups; g += 4) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(mask + g));
        _mm256_storeu_si256((__m256i *)(void *)(order + 4 * g),
                            _mm256_slli_epi16(_mm256_cvtepu8_epi16(x), 4));
    }
}

/* The next digits of a plane at the set bits of a group's mask, zeros at the others. */
GW_TEMPLATE __m256i spread(const uint8_t **digits, uint32_t mask, const uint16_t *order)
{
    const uint8_t *x = *digits;
    const __m256i next = gw_load_halves(x, x + _mm_popcnt_u32(mask << 16));
    *digits = x + _mm_popcnt_u32(mask);
    return _mm256_shuffle_epi8(
        next, _mm256_set_m128i(gw_spread16(order[2], order[3]), gw_spread16(order[0], order[1])));
}

/* The same for a plane that hardly any group has a digit in. Inlined: otherwise all places in planes would be
 * in memory, because one has its address taken. */
GW_TEMPLATE __m256i spread_rare(const uint8_t **digits, uint32_t mask, const uint16_t *order)
{
    return mask == 0 ? _mm256_setzero_si256() : spread(digits, mask, order);
}

/* The next bits of R1 at the set bits, as bytes of 255. */
GW_TEMPLATE __m256i spread_bits(const uint8_t *r1, size_t *at, uint32_t mask, const uint16_t *order,
                                int use_pdep)
{
    const uint32_t next = (uint32_t)(gw_load64(r1 + *at / 8) >> *at % 8);
    *at += (size_t)_mm_popcnt_u32(mask);
    if (use_pdep) {
        return bytes_of_bits(_pdep_u32(next, mask));
    }
    uint8_t unpacked[GW_GROUP_LEN + 16];
    const uint8_t *digits = unpacked;
    _mm256_storeu_si256((__m256i *)(void *)unpacked, bytes_of_bits(next));
    return spread(&digits, mask, order);
}

/* ---- sums --------------------------------------------------------------------------------------------- */

static gw_add_fn *const adds[3] = {gw_add_fp32_avx2, gw_add_bf16_avx2, gw_add_fp16_avx2};

/* ---- a chunk ------------------------------------------------------------------------------------------ */

/* Constants of all groups of values. */
typedef struct join_state {
    const uint8_t *plane[GW_PLANES_MAX]; /* next digit; of R1 the start */
    size_t r1_at;                        /* next bit of R1 */
    __m256i window_start;                /* exponent of label 0, or of label part 0 */
    __m256i has_constant;
    __m256i bad_zero;
    drop_rule drop;
} join_state;

GW_TEMPLATE __m256i is_coded(__m256i x, int source)
{
    return at_least(x, source == EXPLICIT ? 4 : 2);
}

GW_TEMPLATE __m256i exponent_of(__m256i x, __m256i window_start, int source)
{
    return _mm256_and_si256(_mm256_add_epi8(source == EXPLICIT ? down(x, 2, 0x3f) : x, window_start),
                            is_coded(x, source));
}

/* gw_exponent_turn_back() of bins.h, and 0 for labels without exponent. */
GW_TEMPLATE __m256i turn_back(__m256i relative, __m256i turn, __m256i coded, uint32_t dtype)
{
    /* Compares before it adds: the sum may be more than a byte. */
    const __m256i to_end = _mm256_sub_epi8(bytes(gw_traits_of(dtype)->exponent_mask), relative);
    const __m256i is_over = _mm256_cmpeq_epi8(_mm256_max_epu8(turn, to_end), turn);
    const __m256i e = _mm256_sub_epi8(_mm256_add_epi8(relative, turn),
                                      _mm256_and_si256(is_over, bytes(dtype == GW_FP16 ? 31 : 254)));
    return _mm256_and_si256(e, coded);
}

/* Returns whether there are escapes. */
GW_TEMPLATE int find_masks(group_masks *masks, const join_state *s, const uint8_t *labels,
                           const uint8_t *map_bytes, size_t groups, uint32_t dtype, int source)
{
    uint32_t any = 0;
    for (size_t g = 0; g < groups; g++) {
        const __m256i x = load(labels + g * GW_GROUP_LEN);
        if (source == EXPLICIT) {
            /* Level n lacks the last n digits. */
            const uint32_t coded = top_bits(is_coded(x, source));
            const uint32_t low = top_bits(_mm256_slli_epi16(x, 7)), high = top_bits(_mm256_slli_epi16(x, 6));
            masks->plane[0][g] = coded;
            masks->plane[1][g] = coded & ~(low & high);
            masks->plane[2][g] = coded & ~high;
            masks->plane[3][g] = coded & ~(low | high);
        } else {
            __m256i has = s->has_constant;
            if (source >= DERIVED) {
                const __m256i k = load(map_bytes + g * GW_GROUP_LEN);
                __m256i e = exponent_of(x, s->window_start, source);
                if (source == RELATIVE) {
                    e = turn_back(e, gw_turn(k, &s->drop.room), is_coded(x, source), dtype);
                    _mm256_storeu_si256((__m256i *)(void *)(masks->exponent + g * GW_GROUP_LEN), e);
                }
                has = has_of_drop(dtype == GW_FP16 ? _mm256_max_epu8(e, bytes(1)) : e, k, &s->drop);
            }
            has = _mm256_and_si256(has, is_coded(x, source));
            _mm256_storeu_si256((__m256i *)(void *)(masks->has + g * GW_GROUP_LEN), has);
            for (unsigned p = 0; p < GW_PLANES_MAX; p++, has = _mm256_add_epi8(has, has)) {
                masks->plane[p][g] = top_bits(has);
            }
        }
        masks->escaped[g] = top_bits(_mm256_cmpeq_epi8(x, bytes(GW_LABEL_ESCAPE)));
        any |= masks->escaped[g];
    }
    for (unsigned p = 0; p < (source == EXPLICIT ? GW_DIGIT_PLANES : GW_PLANES_MAX); p++) {
        fill_orders(masks->order[p], masks->plane[p], groups);
    }
    return any != 0;
}

/* The bits of the digit that is not whole, from its top. */
GW_TEMPLATE __m256i part_digit(join_state *s, const group_masks *masks, size_t g, __m256i has, uint32_t dtype,
                               int use_pdep)
{
    const int fp16 = dtype == GW_FP16;
    /* The last bit of a remainder of 1, 3 or 5 bits. The digit has 6 bits; fp16: 3, 2 if it is the first;
     * bf16: 2. */
    const __m128i last = fp16 ? _mm_setr_epi8(0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                              : _mm_setr_epi8(0, 0, 32, 32, 0, 0, 8, 8, 0, 0, 2, 2, 0, 0, 0, 0);
    const __m256i place = dtype == GW_BF16 ? bytes(2)
                                           : _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(last),
                                                                 _mm256_and_si256(has, bytes(15)));
    __m256i part =
        _mm256_and_si256(spread_bits(s->plane[GW_PLANE_R1], &s->r1_at, masks->plane[GW_PLANE_R1][g],
                                     masks->order[GW_PLANE_R1] + 4 * g, use_pdep),
                         place);
    if (dtype != GW_BF16) {
        const __m256i two = spread(&s->plane[5], masks->plane[5][g], masks->order[5] + 4 * g);
        part = _mm256_or_si256(part, _mm256_slli_epi16(two, fp16 ? 1 : 4));
    }
    if (dtype == GW_FP32) {
        const __m256i four = spread(&s->plane[4], masks->plane[4][g], masks->order[4] + 4 * g);
        part = _mm256_or_si256(part, _mm256_slli_epi16(four, 2));
    }
    return part;
}

/* The bytes of group g, of which the labels are x. */
GW_TEMPLATE void join_group(__m256i b[4], join_state *s, const group_masks *masks, size_t g, __m256i x,
                            uint32_t dtype, int source, int use_pdep)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i e = source == RELATIVE ? load(masks->exponent + g * GW_GROUP_LEN)
                                         : exponent_of(x, s->window_start, source);
    __m256i d[4];
    d[0] = spread(&s->plane[0], masks->plane[0][g], masks->order[0] + 4 * g);
    d[1] = spread(&s->plane[1], masks->plane[1][g], masks->order[1] + 4 * g);
    d[2] = source == EXPLICIT ? spread(&s->plane[2], masks->plane[2][g], masks->order[2] + 4 * g)
                              : spread_rare(&s->plane[2], masks->plane[2][g], masks->order[2] + 4 * g);
    d[3] = spread_rare(&s->plane[3], masks->plane[3][g], masks->order[3] + 4 * g);
    if (source != EXPLICIT) {
        const __m256i has = load(masks->has + g * GW_GROUP_LEN);
        const __m256i has2 = _mm256_add_epi8(has, has), has3 = _mm256_add_epi8(has2, has2),
                      has4 = _mm256_add_epi8(has3, has3);
        const __m256i part = part_digit(s, masks, g, has, dtype, use_pdep);
        d[0] = _mm256_blendv_epi8(part, d[0], has);
        d[1] = _mm256_blendv_epi8(_mm256_blendv_epi8(zero, part, has), d[1], has2);
        d[2] = _mm256_blendv_epi8(_mm256_blendv_epi8(zero, part, has2), d[2], has3);
        d[3] = _mm256_blendv_epi8(_mm256_blendv_epi8(zero, part, has3), d[3], has4);
    }
    value_bytes(b, d, e, dtype);
    if (dtype == GW_FP16) {
        const __m256i magnitude = _mm256_or_si256(b[0], _mm256_and_si256(b[1], bytes(0x7f)));
        const __m256i is_zero = _mm256_cmpeq_epi8(magnitude, zero);
        s->bad_zero = _mm256_or_si256(s->bad_zero, _mm256_and_si256(is_zero, is_coded(x, source)));
    }
}

GW_TEMPLATE void begin(join_state *s, const gw_join_input *input, const gw_joiner *joiner, uint32_t dtype,
                       int source)
{
    const gw_traits *t = gw_traits_of(dtype);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        s->plane[p] = input->plane[p];
    }
    s->r1_at = 0;
    s->window_start = bytes(source == EXPLICIT ? (dtype == GW_FP16 ? 255 : joiner->window_start)
                            : dtype == GW_FP16 ? 254
                                               : 255);
    s->bad_zero = _mm256_setzero_si256();
    if (source == CONSTANT) {
        s->has_constant = bytes(gw_has_of_kept(t->mantissa_bits + 1u - joiner->cap, t));
    } else if (source >= DERIVED) {
        fill_drop_rule(&s->drop, joiner, t);
    }
}

/* Memory that will be read soon. */
typedef struct soon {
    const uint8_t *at;
    size_t left;
} soon;

static inline void prefetch_line(soon *memory)
{
    if (memory->left >= 64) {
        _mm_prefetch((const char *)memory->at, _MM_HINT_T0);
        memory->at += 64;
        memory->left -= 64;
    }
}

/* The values of the input from `first` on, fewer than 32, with zeros after them. */
GW_TEMPLATE void join_last(uint8_t *dst, group_masks *masks, join_state *s, const gw_join_input *input,
                           size_t first, uint32_t dtype, int source, int use_pdep)
{
    const size_t len = input->len - first;
    uint8_t label[GW_GROUP_LEN] = {0}, map_byte[GW_GROUP_LEN] = {0}, value[4 * GW_GROUP_LEN];
    __m256i b[4];
    GW_MEMCPY(label, input->labels + first, len);
    if (source >= DERIVED) {
        GW_MEMCPY(map_byte, input->map_bytes + first, len);
    }
    find_masks(masks, s, label, map_byte, 1, dtype, source);
    join_group(b, s, masks, 0, load(label), dtype, source, use_pdep);
    store_values(value, b, dtype, 0);
    GW_MEMCPY(dst, value, (dtype == GW_FP32 ? 4 : 2) * len);
}

GW_TEMPLATE void join_range(uint8_t *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                            const gw_joiner *joiner, uint32_t dtype, int source, int use_pdep)
{
    const size_t size = dtype == GW_FP32 ? 4 : 2, len = input->len;
    const int stream = joiner->stream && joiner->addend == NULL && ((uintptr_t)dst & 31) == 0;
    const uint8_t *const labels = input->labels, *const map_bytes =
                                                     source >= DERIVED ? input->map_bytes : NULL;
    soon next = {joiner->next, joiner->next_size}, beside = {joiner->beside, joiner->beside_size};
    escape_source escapes = {input->escape, input->escape_len, 0, place};
    group_masks masks;
    join_state s;
    begin(&s, input, joiner, dtype, source);
    GW_MEMSET(masks.plane, 0, sizeof masks.plane);

    size_t i = 0;
    while (i + GW_GROUP_LEN <= len) {
        const size_t left = (len - i) / GW_GROUP_LEN, groups = left < GW_GROUPS_MAX ? left : GW_GROUPS_MAX;
        const int has_escapes = find_masks(&masks, &s, labels + i, source >= DERIVED ? map_bytes + i : NULL,
                                           groups, dtype, source);
        for (size_t g = 0; g < groups; g++) {
            __m256i b[4];
            prefetch_line(&next);
            prefetch_line(&beside);
            join_group(b, &s, &masks, g, load(labels + i + g * GW_GROUP_LEN), dtype, source, use_pdep);
            if (stream) {
                store_values(dst + size * (i + g * GW_GROUP_LEN), b, dtype, 1);
            } else {
                store_values(dst + size * (i + g * GW_GROUP_LEN), b, dtype, 0);
            }
        }
        for (size_t g = 0; has_escapes && g < groups; g++) {
            put_escapes(dst, i + g * GW_GROUP_LEN, masks.escaped[g], size, &escapes);
        }
        gw_join_sum(dst, i, groups * GW_GROUP_LEN, joiner, adds); /* while they are in L1 */
        i += groups * GW_GROUP_LEN;
    }
    if (i < len) {
        join_last(dst + size * i, &masks, &s, input, i, dtype, source, use_pdep);
        put_escapes(dst, i, masks.escaped[0], size, &escapes);
        gw_join_sum(dst, i, len - i, joiner, adds);
    }
    if (stream) {
        _mm_sfence();
    }
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        joined->plane_len[p] = p == GW_PLANE_R1 ? s.r1_at : (size_t)(s.plane[p] - input->plane[p]);
    }
    joined->escape_len = escapes.taken;
    joined->bad_zero = top_bits(s.bad_zero) != 0;
}

#define JOIN_CASE(dtype, source)                                                                             \
    case (dtype)*SOURCES + (source):                                                                         \
        join_range((uint8_t *)dst, joined, place, input, joiner, (dtype), (source), use_pdep);               \
        break

GW_TEMPLATE void join(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                      const gw_joiner *joiner, int use_pdep)
{
    const uint32_t source = !joiner->derived   ? EXPLICIT
                            : joiner->constant ? CONSTANT
                            : joiner->relative ? RELATIVE
                                               : DERIVED;
    switch (joiner->dtype * SOURCES + source) {
        JOIN_CASE(GW_FP32, EXPLICIT);
        JOIN_CASE(GW_FP32, CONSTANT);
        JOIN_CASE(GW_FP32, DERIVED);
        JOIN_CASE(GW_FP32, RELATIVE);
        JOIN_CASE(GW_BF16, EXPLICIT);
        JOIN_CASE(GW_BF16, CONSTANT);
        JOIN_CASE(GW_BF16, DERIVED);
        JOIN_CASE(GW_BF16, RELATIVE);
        JOIN_CASE(GW_FP16, EXPLICIT);
        JOIN_CASE(GW_FP16, CONSTANT);
        JOIN_CASE(GW_FP16, DERIVED);
        JOIN_CASE(GW_FP16, RELATIVE);
    default:
        break;
    }
}

void gw_join_avx2(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                  const gw_joiner *joiner)
{
    join(dst, joined, place, input, joiner, 1);
}

void gw_join_slow_pdep_avx2(void *dst, gw_joined *joined, uint16_t *place, const gw_join_input *input,
                            const gw_joiner *joiner)
{
    join(dst, joined, place, input, joiner, 0);
}

#else
typedef int gw_join_avx2_not_built; /* a translation unit must not be empty */
#endif
