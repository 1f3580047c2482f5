/*
 * From values to rounded values and labels, 32 values a thread (docs/numerics.md sections 3 and 4,
 * docs/format.md section 3).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_ROUND_CUH
#define GW_CUDA_GCOMP_ROUND_CUH

#include "cuda/gcomp_frame.cuh"

/* The values of a frame, and what is the same for all of them. */
struct gw_cuda_source {
    const uint8_t *values;
    const uint8_t *map_bytes; /* the map, NULL: a constant drop */
    uint64_t len;
    uint64_t first_element;
    uint64_t seed;
    uint32_t step_index, rank_hop;
    int32_t drop_offset;
    /* Carried, else 0 and NULL: map_bytes has a quantum for each block of 2^block_log2 values instead; where
     * a whole frame is looked at, drop_offsets has the drop_offset of each chunk of 2^chunk_log2. */
    uint32_t block_log2, chunk_log2;
    const int32_t *drop_offsets;
};

struct gw_cuda_rounder {
    const gw_cuda_rounding &rule; /* a kernel's parameter: constants cost no registers */
    const gw_cuda_source &from;
};

/* A value is rounded to bits (16-bit types in the low half); drop_steps: explicit frames; keep: derived ones.
 */
struct gw_rounded {
    uint32_t bits, label, keep, drop_steps;
};

/* The values of an item. */
GW_DEVICE gw_cuda_source gw_source_of(const gw_cuda_codec &codec, const gw_cuda_rounding &rule,
                                      const gw_cuda_map &map, const gw_cuda_gcomp_key &key,
                                      const gw_cuda_gcomp_item &item)
{
    const gw_cuda_source source = {(const uint8_t *)item.src,
                                   rule.has_map ? item.map_bytes : nullptr,
                                   item.src_size,
                                   item.first_element,
                                   key.seed,
                                   key.step_index,
                                   (uint32_t)key.rank << 16 | key.hop,
                                   rule.has_map ? gw_cuda_drop_offset(codec, gw_map_base(map)) : 0,
                                   0,
                                   codec.chunk_log2,
                                   nullptr};
    return source;
}

GW_DEVICE gw_cuda_source gw_source_of(const gw_gcomp_work &work, const gw_cuda_gcomp_item &item)
{
    const gw_cuda_gcomp_key key = work.key_at != nullptr ? *work.key_at : work.key;
    return gw_source_of(work.codec, work.rounding, work.map, key, item);
}

/* Carried: the quanta of the item whose first unit is `unit`. */
GW_DEVICE void gw_source_carry(gw_cuda_source &source, const gw_gcomp_encode_params &p, uint64_t unit)
{
    if (p.quanta != nullptr) {
        source.map_bytes = p.quanta + (unit << (p.work.codec.chunk_log2 - p.work.codec.block_log2));
        source.block_log2 = p.work.codec.block_log2;
        source.drop_offsets = p.drop_offsets + unit;
    }
}

/* Philox4x32-8 for the eight elements from 8 * counter on (docs/numerics.md section 4). */
GW_DEVICE uint4 gw_cuda_philox(const gw_cuda_rounder &r, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = r.from.step_index,
             c3 = r.from.rank_hop;
    uint32_t k0 = (uint32_t)r.from.seed, k1 = (uint32_t)(r.from.seed >> 32);
    GW_UNROLL
    for (int round = 0; round < 8; round++) {
        const uint32_t high0 = __umulhi(0xd2511f53u, c0), low0 = 0xd2511f53u * c0;
        const uint32_t high1 = __umulhi(0xcd9e8d57u, c2), low1 = 0xcd9e8d57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* Halves swapped: the words of the second four of eight elements. */
GW_DEVICE uint32_t gw_cuda_swapped(uint32_t x)
{
    return gw_permute(x, x, 0x1032);
}

/* Words of the four elements 4 * quad to 4 * quad + 3; here: those of the four before them. */
GW_DEVICE uint4 gw_random_quad(const gw_cuda_rounder &r, uint64_t quad, const uint4 &here)
{
    if ((quad & 1) == 0) { /* the same for all lanes of a warp, whose values are multiples of 16 apart */
        return gw_cuda_philox(r, quad >> 1);
    }
    return make_uint4(gw_cuda_swapped(here.x), gw_cuda_swapped(here.y), gw_cuda_swapped(here.z),
                      gw_cuda_swapped(here.w));
}

/* Random words of a thread's values, four at a time: the values need not begin at a multiple of four
 * elements. */
struct gw_cuda_random {
    uint64_t quad;
    uint4 here;
};

GW_DEVICE gw_cuda_random gw_random_begin(const gw_cuda_rounder &r, uint64_t index)
{
    gw_cuda_random random = {(r.from.first_element + index) >> 2, make_uint4(0, 0, 0, 0)};
    if (r.rule.stochastic != 0) {
        random.here = gw_cuda_philox(r, random.quad >> 1);
        if ((random.quad & 1) != 0) {
            random.here = gw_random_quad(r, random.quad, random.here);
        }
    }
    return random;
}

/* Words of the next four values. */
GW_DEVICE void gw_random_next(uint32_t out[4], const gw_cuda_rounder &r, gw_cuda_random &random)
{
    out[0] = out[1] = out[2] = out[3] = 0;
    if (r.rule.stochastic != 0) {
        const uint4 a = random.here;
        random.quad = (random.quad + 1) & (~(uint64_t)0 >> 2); /* element indices are taken modulo 2^64 */
        const uint4 b = gw_random_quad(r, random.quad, a);
        const uint32_t skip =
            (uint32_t)r.from.first_element & 3; /* a thread's values begin at a multiple of 32 */
        const bool odd = (skip & 1) != 0, two = (skip & 2) != 0;
        const uint32_t x0 = odd ? a.y : a.x, x1 = odd ? a.z : a.y, x2 = odd ? a.w : a.z, x3 = odd ? b.x : a.w;
        const uint32_t x4 = odd ? b.y : b.x, x5 = odd ? b.z : b.y;
        out[0] = two ? x2 : x0;
        out[1] = two ? x3 : x1;
        out[2] = two ? x4 : x2;
        out[3] = two ? x5 : x3;
        random.here = b;
    }
}

/* n rounded down to a multiple of the step. */
GW_DEVICE uint32_t gw_floor_to_step(const gw_cuda_rounder &r, uint32_t n)
{
    return (n * r.rule.step_inverse >> 8) * r.rule.step;
}

/* Quarter-octave of a magnitude in fp32's bias (docs/format.md section 3). */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_quarter_octave(uint32_t magnitude)
{
    typedef gw_type<DTYPE> type;
    const uint32_t quarter = magnitude >> (type::M - 2);
    return type::IS_FP16 ? quarter + (quarter < 4 ? 4 : 0) + 4 * type::BIAS : quarter;
}

template <uint32_t DTYPE>
GW_DEVICE uint32_t gw_derived_drop(const gw_cuda_rounder &r, int32_t drop_offset, uint32_t k,
                                   uint32_t magnitude)
{
    const int32_t room = (int32_t)k + drop_offset - (int32_t)(gw_quarter_octave<DTYPE>(magnitude) | 3);
    const uint32_t octaves = room < 0 || k == 0 ? 0 : (uint32_t)room >> 2;
    return gw_floor_to_step(r, octaves < r.rule.cap ? octaves : r.rule.cap);
}

/* Exponent field of the quantum of map byte k in the dtype's bias: gw_quantum_exponent() of core. May be any
 * number. */
template <uint32_t DTYPE> GW_DEVICE int32_t gw_quantum_field(uint32_t k, int32_t drop_offset)
{
    return (((int32_t)k + drop_offset - 3) >> 2) - (int32_t)(gw_type<DTYPE>::M + gw_type<DTYPE>::BIAS);
}

/* Offset of relative exponents: gw_turn_of() of gcomp. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_cuda_turn_of(uint32_t k, int32_t drop_offset)
{
    constexpr int32_t FIRST = gw_type<DTYPE>::IS_FP16 ? 0 : 1, LAST = (int32_t)gw_type<DTYPE>::SPECIAL - 1;
    const int32_t field = gw_quantum_field<DTYPE>(k, drop_offset);
    return k == 0 || field < FIRST ? 0 : (uint32_t)((field > LAST ? LAST : field) - FIRST);
}

/* The relative exponent of an ordinary exponent field, and back. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_cuda_exponent_turn(uint32_t exponent, uint32_t turn)
{
    constexpr uint32_t FIRST = gw_type<DTYPE>::IS_FP16 ? 0 : 1, COUNT = gw_type<DTYPE>::SPECIAL - FIRST;
    return exponent - turn + (exponent < FIRST + turn ? COUNT : 0);
}

template <uint32_t DTYPE> GW_DEVICE uint32_t gw_cuda_exponent_turn_back(uint32_t relative, uint32_t turn)
{
    constexpr uint32_t FIRST = gw_type<DTYPE>::IS_FP16 ? 0 : 1, COUNT = gw_type<DTYPE>::SPECIAL - FIRST;
    const uint32_t sum = relative + turn;
    return sum - (sum >= gw_type<DTYPE>::SPECIAL ? COUNT : 0);
}

/*
 * Dead zone (docs/numerics.md section 3, step 3) of an ordinary magnitude that is not 0: if it is below its
 * quantum, *rounded is 0 or the quantum. Returns whether it is below.
 */
template <uint32_t DTYPE>
GW_DEVICE bool gw_cut_dead_zone(const gw_cuda_rounder &r, int32_t drop_offset, uint32_t magnitude, uint32_t k,
                                uint32_t random, uint32_t *rounded)
{
    typedef gw_type<DTYPE> type;
    const uint32_t field = magnitude >> type::M;
    int32_t quantum = gw_quantum_field<DTYPE>(k, drop_offset);
    quantum = quantum < (int32_t)type::SPECIAL ? quantum : (int32_t)type::SPECIAL - 1;
    const int32_t below = quantum - (int32_t)(field == 0 ? 1 : field); /* octaves */
    if (k == 0 || below <= 0) {
        return false;
    }
    const uint32_t significand = (magnitude & ((1u << type::M) - 1)) | (field != 0 ? 1u << type::M : 0);
    const uint32_t threshold = below > 32 ? 0 : significand << (31 - type::M) >> (below - 1);
    const bool is_up = (r.rule.stochastic != 0 && random < threshold) ||
                       (r.rule.nearest != 0 && threshold > 1u << 31); /* ties go to 0 */
    *rounded = is_up ? (uint32_t)quantum << type::M : 0;
    return true;
}

/* Rounds a value (16-bit types in the low half) with map byte k; drop_offset: that of r, in a register;
 * base: the window of explicit labels; 1: derived labels are relative. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE gw_rounded gw_round_value(const gw_cuda_rounder &r, int32_t drop_offset, uint32_t value, uint32_t k,
                                    uint32_t random, uint32_t window_start)
{
    typedef gw_type<DTYPE> type;
    constexpr uint32_t SIGN = 1u << (8 * type::SIZE - 1);
    if (!type::IS_FP16 && (value & (SIGN - 1)) >> type::M == 0 && !r.rule.strict) {
        value = 0;
    }
    uint32_t sign = value & SIGN;
    const uint32_t magnitude = value ^ sign;
    const uint32_t exponent = magnitude >> type::M;
    const bool whole = exponent >= type::SPECIAL || (!type::IS_FP16 && exponent == 0);

    uint32_t drop = 0, drop_steps = 0;
    if (DERIVED) {
        drop = !r.rule.has_map ? r.rule.cap : gw_derived_drop<DTYPE>(r, drop_offset, k, magnitude);
    } else if (!r.rule.has_map) {
        drop_steps = r.rule.cap_steps;
    } else {
        const int32_t room = (int32_t)k + drop_offset - (int32_t)gw_quarter_octave<DTYPE>(magnitude);
        const int32_t step = 4 * (int32_t)type::STEP;
        drop_steps = (room >= step) + (room >= 2 * step) + (room >= 3 * step);
        const uint32_t most = r.rule.cap_steps;
        drop_steps = k == 0 ? 0 : drop_steps < most ? drop_steps : most;
    }
    drop = whole ? 0 : drop;
    drop_steps = whole ? 0 : drop_steps;
    const uint32_t lost = DERIVED ? drop : drop_steps * type::STEP, cut = (1u << lost) - 1;
    const uint32_t top = random >> 1 >> (31 - lost); /* as many bits as are cut */
    /* Nearest: half an ulp less one, plus the last kept bit, so ties go to even. Both vanish when nothing
     * is dropped. */
    const uint32_t half = (cut >> 1) + ((magnitude & (cut + 1)) != 0 ? cut & 1 : 0);
    uint32_t rounded = (magnitude + (half & r.rule.nearest) + (top & r.rule.stochastic)) & ~cut;
    /* A carry out of the largest finite exponent truncates instead. */
    rounded = rounded >> type::M >= type::SPECIAL ? magnitude & ~cut : rounded;
    if (DERIVED && r.rule.dead_zone && !whole && magnitude != 0 &&
        gw_cut_dead_zone<DTYPE>(r, drop_offset, magnitude, k, random, &rounded) && rounded == 0) {
        sign = 0;
    }
    if (type::IS_FP16 && rounded == 0 && !r.rule.strict) {
        sign = 0;
    }

    gw_rounded out;
    out.bits = sign | rounded;
    out.keep = 0;
    out.drop_steps = drop_steps;
    if (DERIVED) {
        /* The receiver sees the rounded exponent. */
        if (r.rule.has_map && drop != 0) {
            drop = gw_derived_drop<DTYPE>(r, drop_offset, k, rounded);
        }
        out.keep = type::M + 1 - drop;
    }
    const uint32_t e = rounded >> type::M;
    uint32_t label;
    bool ordinary;
    if (type::IS_FP16) {
        label = DERIVED ? e + 2 : 4 * (e + 1) + drop_steps;
        ordinary = e < type::SPECIAL && rounded != 0;
    } else if (DERIVED) {
        label = e + 1;
        ordinary = e - 1 < type::SPECIAL - 1;
    } else {
        label = 4 * (e - window_start) + drop_steps;
        ordinary = e < type::SPECIAL &&
                   e - window_start - 1 < 63; /* base + 1 to base + 63, and e = 0 is below even base 0 */
    }
    if (DERIVED && window_start != 0 && ordinary) {
        label += gw_cuda_exponent_turn<DTYPE>(e, gw_cuda_turn_of<DTYPE>(k, drop_offset)) - e;
    }
    out.label = ordinary ? label : out.bits != 0 ? 1 : 0;
    return out;
}

/* Bin of a rounded value: 4 * exponent field + drop steps; for fp32 and bf16 e = 0 has bin 0 for +0, else 1;
 * for fp16 +0 has bin 1023, and -0 that of infinity. */
template <uint32_t DTYPE, bool DERIVED> GW_DEVICE uint32_t gw_bin_of(const gw_rounded &x)
{
    typedef gw_type<DTYPE> type;
    const uint32_t magnitude = x.bits & ((1u << (8 * type::SIZE - 1)) - 1);
    const uint32_t e = magnitude >> type::M;
    if (type::IS_FP16) {
        return x.bits == 0 ? 1023 : magnitude == 0 ? 4 * type::SPECIAL : 4 * e + (DERIVED ? 0 : x.drop_steps);
    }
    return e == 0 ? x.bits != 0 : 4 * e + (DERIVED ? 0 : x.drop_steps);
}

/* ---- carried frames: src/gcomp/quanta.c ---------------------------------------------------------------- */

enum { GW_QUANTA_WINDOW = 62 };

/* The drop_offset that goes with the map bytes of a chunk with this largest quantum. */
template <uint32_t DTYPE> GW_DEVICE int32_t gw_drop_offset_of_quanta(uint32_t largest)
{
    return 4 * (int32_t)(largest + gw_type<DTYPE>::M) - 252;
}

/* The map byte of a quantum within the window: 255 for the largest, which follows from drop_offset. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_map_byte_of_quantum(uint32_t exponent, int32_t drop_offset)
{
    return exponent == 0 ? 0
                         : (uint32_t)(3 + 4 * (int32_t)(exponent + gw_type<DTYPE>::M) - drop_offset) & 255;
}

/* One value of the frame, wherever it is: for the few that are looked at again. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE gw_rounded gw_round_at(const gw_cuda_rounder &r, uint64_t index, uint32_t window_start)
{
    const uint32_t value = gw_element_load(r.from.values, DTYPE, index);
    uint32_t random = 0;
    if (r.rule.stochastic != 0) {
        const uint64_t element = r.from.first_element + index;
        const uint4 four = gw_cuda_philox(r, element >> 3);
        random = (element & 2) != 0   ? ((element & 1) != 0 ? four.w : four.z)
                 : (element & 1) != 0 ? four.y
                                      : four.x;
        random = (element & 4) != 0 ? gw_cuda_swapped(random) : random;
    }
    uint32_t k = 0;
    if (r.from.map_bytes != nullptr) {
        k = r.from.block_log2 == 0 ? r.from.map_bytes[index]
                                   : gw_map_byte_of_quantum<DTYPE>(
                                         r.from.map_bytes[index >> r.from.block_log2], r.from.drop_offset);
    }
    return gw_round_value<DTYPE, DERIVED>(r, r.from.drop_offset, value, k, random, window_start);
}

/* ---- loads --------------------------------------------------------------------------------------------- */

/* The place of the lane's 64 bytes in the 2 KiB that a warp exchanges them through, and where quarter lane
 * mod 4 of owner lane / 4 of every group of eight owners. Quarters change places so that no two lanes of a
 * store or load meet in a bank. */
GW_DEVICE uint32_t gw_exchange_mine(uint32_t stage, uint32_t lane)
{
    return stage + 64 * lane + 16 * (lane >> 1 & 3);
}

GW_DEVICE uint32_t gw_exchange_all(uint32_t stage, uint32_t lane)
{
    return stage + 64 * (lane >> 2) + 16 * ((lane & 3) ^ (lane >> 3 & 3));
}

/* 16 bytes of values from index on; those at `end` and beyond are 0. */
template <uint32_t DTYPE> GW_DEVICE uint4 gw_load_values(const uint8_t *values, uint64_t index, uint64_t end)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint8_t *at = values + SIZE * index;
    if (index + 16 / SIZE <= end && ((uintptr_t)at & 15) == 0) {
        return *(const uint4 *)(const void *)at;
    }
    uint32_t w[4] = {0, 0, 0, 0};
    GW_UNROLL
    for (uint32_t i = 0; i < 16 / SIZE; i++) {
        w[SIZE * i / 4] |= (index + i < end ? gw_element_load(at, DTYPE, i) : 0) << 8 * SIZE * i % 32;
    }
    return gw_four_of(w);
}

/*
 * 64 bytes of values for every lane of a warp to shared memory at `stage`: batch `batch` (fp32: 0 or 1) of
 * the lane's 32 values, which begin at start(lane of the warp). Neighbouring lanes load neighbouring bytes; a
 * lane finds its own by gw_staged(). Values at `end` and beyond are 0. Begins and ends with a barrier of
 * the warp.
 */
template <uint32_t DTYPE, typename START>
GW_DEVICE void gw_stage_batch(uint32_t stage, const uint8_t *values, uint64_t end, uint32_t batch,
                              START start)
{
    constexpr uint32_t SIZE = gw_type<DTYPE>::SIZE;
    const uint32_t lane = gw_lane(), all = gw_exchange_all(stage, lane);
    __syncwarp();
    GW_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        const uint64_t index = start(8 * j + (lane >> 2)) + (64 / SIZE) * batch + (lane & 3) * (16 / SIZE);
        gw_shared_store128(all + 512 * j, gw_load_values<DTYPE>(values, index, end));
    }
    __syncwarp();
}

/* Quarter j of the lane's 64 bytes at mine = gw_exchange_mine(). */
GW_DEVICE uint4 gw_staged(uint32_t mine, uint32_t j)
{
    return gw_shared_load128(mine ^ 16 * j);
}

/* The whole of a batch in registers. */
template <uint32_t DTYPE, typename START>
GW_DEVICE void gw_load_batch(uint32_t out[16], uint32_t stage, const uint8_t *values, uint64_t end,
                             uint32_t batch, START start)
{
    const uint32_t mine = gw_exchange_mine(stage, gw_lane());
    gw_stage_batch<DTYPE>(stage, values, end, batch, start);
    GW_UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        gw_words_of(out + 4 * j, gw_staged(mine, j));
    }
}

/* Value i of a batch. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_batch_value(const uint32_t batch[16], uint32_t i)
{
    return DTYPE == GW_FP32 ? batch[i & 15] : batch[i >> 1 & 15] >> 16 * (i & 1) & 0xffff;
}

/* Value i of the quad of 16 staged bytes: there are two of 16-bit types. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_quad_value(const uint4 &v, uint32_t quad, uint32_t i)
{
    if (DTYPE == GW_FP32) {
        return i < 2 ? (i == 0 ? v.x : v.y) : i == 2 ? v.z : v.w;
    }
    const uint32_t word = quad == 0 ? (i < 2 ? v.x : v.y) : i < 2 ? v.z : v.w;
    return word >> 16 * (i & 1) & 0xffff;
}

/* 4 * WORDS map bytes (16 or 32), of which `valid` exist, into words. */
template <uint32_t WORDS>
GW_DEVICE void gw_load_map_bytes(uint32_t (&k)[WORDS], const uint8_t *map_bytes, uint32_t valid)
{
    if (valid >= 4 * WORDS && ((uintptr_t)map_bytes & 15) == 0) {
        GW_UNROLL
        for (uint32_t j = 0; j < WORDS; j += 4) {
            gw_words_of(k + j, *(const uint4 *)(const void *)(map_bytes + 4 * j));
        }
        return;
    }
    GW_UNROLL
    for (uint32_t j = 0; j < WORDS; j++) {
        k[j] = 0;
        GW_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            k[j] |= 4 * j + i < valid ? (uint32_t)map_bytes[4 * j + i] << 8 * i : 0;
        }
    }
}

/* The same of values of `from` from index on, which are in one block if the frame is a carried one. */
template <uint32_t DTYPE, uint32_t WORDS>
GW_DEVICE void gw_load_map(uint32_t (&k)[WORDS], const gw_cuda_source &from, int32_t drop_offset,
                           uint64_t index, uint32_t valid)
{
    if (from.block_log2 == 0) {
        gw_load_map_bytes(k, from.map_bytes + index, valid);
        return;
    }
    const uint32_t four =
        gw_map_byte_of_quantum<DTYPE>(from.map_bytes[index >> from.block_log2], drop_offset) * 0x01010101u;
    GW_UNROLL
    for (uint32_t j = 0; j < WORDS; j++) {
        k[j] = four;
    }
}

#endif
