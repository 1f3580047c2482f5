/*
 * THC phase two at the usual shape: rotated blocks of 1024 values, 4 bits, own norms given (gw_thc_encode()).
 *
 * A block's way: input to rows in shared memory (without error memory by asynchronous copies, while the block
 * before is computed), window and signs, butterflies by row and by column, 16 random bits a value, a look-up
 * of the grid cell, indices of two values a byte, 16 bytes a thread out. With error memory the sum of input
 * and error stays in shared memory until the decoded value is taken from it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_warp.cuh"

/* Values are rotated 67 binary orders below those of gw_thc_rotate_fn, where what its window drops is just
 * what a product flushes: |x| < 2^(e - 60) becomes less than 2^-126, e the exponent of the norm, and an
 * exponent up to 60 leaves the least normal number at least that. Everything else is the same but for the
 * power of two: sums are multiples of 2^-149, exact where they are subnormal. */
#define GW_SHIFT_DOWN 67u
/* From this exponent on the factor, 2^(61 - e), would be subnormal: 2^-100 of it is multiplied before. */
#define GW_SPLIT_EXPONENT 188u
#define GW_SPLIT_FACTOR   0x0d800000u

/* The tables of grid cells, for values of even and of odd rows, after what the warps have. */
struct cell_tables {
    uint2 *low, *high;
};

/* ---- quantizer ----------------------------------------------------------------------------------------- */

/*
 * A position q = trunc(scaled value), counted from the middle of the grid, is in cell (q >> shift) + bias:
 * cells are one grid step wide, or half of one where the middle is within a step. With index z, value T and
 * gap g below and up to the next value, and 16 random bits r, the index is z + 1 if
 *
 *   g (2 r + 1) <= 2 (q + middle - 65536 T)   <=>   g r + ceil(g / 2) + 65536 T - middle <= q,
 *
 * all being integers. A cell holds {the constant part, z and g where __dp2a_hi() multiplies g with the lower
 * or the upper 16 bits of a random word}. After the last value the gap is 1, which no residue of 0 reaches.
 */
GW_DEVICE void build_cells(const cell_tables &cells, const gw_cuda_thc_context &context)
{
    const uint32_t halves = context.granularity & 1;
    const uint32_t cell_count = GW_THC_WARP_CELLS(context.granularity);

    for (uint32_t cell = threadIdx.x; cell < cell_count; cell += blockDim.x) {
        uint32_t z = 0;
        while (z < 15 && (uint32_t)context.table[z + 1] << halves <= cell) {
            z++;
        }
        const uint32_t value = context.table[z];
        const uint32_t gap = z < 15 ? context.table[z + 1] - value : 1;
        const uint32_t start = (gap + 1) / 2 + (value << 16) - (context.granularity << 15);
        cells.low[cell] = make_uint2(start, z | gap << 16);
        cells.high[cell] = make_uint2(start, z << 4 | gap << 24);
    }
}

struct quantizer {
    float scale, limit;        /* half of the range on either side of 0 */
    uint32_t shift;            /* three less: cells are eight bytes */
    const uint8_t *low, *high; /* the cell of position 0 */
};

/* The position and its cell. */
GW_DEVICE int32_t position_of(uint2 &cell, const quantizer &quantizer, const uint8_t *cells, float value)
{
    /* Of a NaN, which own norms of other data can lead to, both are the upper limit. */
    const float scaled = fmaxf(fminf(__fmul_rn(value, quantizer.scale), quantizer.limit), -quantizer.limit);
    const int32_t q = (int32_t)scaled;
    cell = *(const uint2 *)(const void *)(cells + (int32_t)((uint32_t)(q >> quantizer.shift) & ~7u));
    return q;
}

/* One round of gw_philox4x32(). */
GW_DEVICE void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    const uint64_t p0 = (uint64_t)GW_PHILOX_MUL0 * c[0];
    const uint64_t p1 = (uint64_t)GW_PHILOX_MUL1 * c[2];

    c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)p0;
}

/* Indices of a value of an even row and of the one below it: a byte in the lowest bits. */
GW_DEVICE uint32_t quantize_two(const quantizer &quantizer, float even, float odd, uint32_t random)
{
    uint2 low, high;
    const int32_t q_low = position_of(low, quantizer, quantizer.low, even);
    const int32_t q_high = position_of(high, quantizer, quantizer.high, odd);
    uint32_t z = low.y + high.y;

    if ((int32_t)__dp2a_hi(random, low.y, low.x) <= q_low) {
        z += 1;
    }
    if ((int32_t)__dp2a_hi(random, high.y, high.x) <= q_high) {
        z += 16;
    }
    return z;
}

/*  16 random bits for each of a column's values. Word w of counter 16 G + l % 16 has those of values 128 G +
 * 32 w + l, lanes l < 16 the lower half of it. So a lane works out one group of two and gives the other lane
 * of its pair that one's halves. The keys of the rounds serve four counters.
 */
GW_DEVICE void random_words(uint32_t word[4][4], const gw_cuda_thc_key &key, uint32_t block)
{
    const uint32_t first = threadIdx.x & 31; /* 16 * (l / 16) + l % 16 */
    uint32_t k0 = (uint32_t)key.seed;
    uint32_t k1 = (uint32_t)(key.seed >> 32);

    GW_UNROLL for (uint32_t j = 0; j < 4; j++)
    {
        word[j][0] = first + 32 * j;
        word[j][1] = block;
        word[j][2] = key.round;
        word[j][3] = GW_THC_DOMAIN_ROUNDING | key.rank;
    }
    GW_UNROLL for (uint32_t round = 0; round < GW_PHILOX_ROUNDS; round++)
    {
        GW_UNROLL for (uint32_t j = 0; j < 4; j++)
        {
            philox_round(word[j], k0, k1);
        }
        k0 += GW_PHILOX_WEYL0;
        k1 += GW_PHILOX_WEYL1;
    }
}

/* Indices of values by column, two a byte, to `bytes`: 32 bytes for 64 values, as they are packed. */
GW_DEVICE void quantize_block(uint8_t *bytes, const quantizer &quantizer, const float value[32],
                              const gw_cuda_thc_key &key, uint32_t block)
{
    uint32_t word[4][4];

    random_words(word, key, block);
    GW_UNROLL for (uint32_t j = 0; j < 4; j++)
    {
        uint32_t random[4];
        thc_share_words(random, word[j]);
        GW_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            bytes[32 * (4 * j + i) + (threadIdx.x & 31)] =
                (uint8_t)quantize_two(quantizer, value[8 * j + 2 * i], value[8 * j + 2 * i + 1], random[i]);
        }
    }
}

/* ---- input --------------------------------------------------------------------------------------------- */

/* Byte of the 16-byte word `word` of the input as it is. Rows of four-byte elements are eight words, turned
 * so that eight threads with a row each read from all banks; those of two-byte elements are four words, and a
 * word is left out after each. */
template <uint32_t DTYPE> GW_DEVICE uint32_t input_place(uint32_t word)
{
    if (DTYPE == GW_FP32) {
        return 16 * (word ^ (word >> 3 & 7));
    }
    return 16 * (word + word / 4);
}

/* Starts the copy of block `number` to memory.input. */
template <uint32_t DTYPE>
GW_DEVICE void fetch_input(uint8_t *input, const gw_cuda_thc_encode_params &p, uint64_t number, bool is_whole)
{
    constexpr uint32_t SIZE = DTYPE == GW_FP32 ? 4 : 2;
    const uint32_t lane = threadIdx.x & 31;
    const uint64_t first = number << WARP_BLOCK_LOG2;

    if (is_whole) {
        const uint8_t *from = p.src + SIZE * first + 16 * lane;
        /* Words lane + 32 k: places repeat after 64 words, as rows do. */
        const uint32_t to[2] = {gw_place_of(input + input_place<DTYPE>(lane)),
                                gw_place_of(input + input_place<DTYPE>(lane + 32))};
        GW_UNROLL for (uint32_t k = 0; k < 2 * SIZE; k++)
        {
            gw_copy_async16(to[k % 2] + k / 2 * input_place<DTYPE>(64), from + 512 * k);
        }
        return;
    }
    GW_NO_UNROLL for (uint32_t i = lane; i < 1024; i += 32)
    {
        const uint64_t at = first + i;
        const uint32_t raw = at < p.span.element_count ? gw_element_load(p.src, DTYPE, at) : 0;
        gw_element_store(input + input_place<DTYPE>(SIZE * i / 16) + SIZE * i % 16, DTYPE, 0, raw);
    }
}

/* The lane's row of it. */
template <uint32_t DTYPE> GW_DEVICE void load_input(float value[32], const uint8_t *input)
{
    constexpr uint32_t WORDS = DTYPE == GW_FP32 ? 8 : 4;

    GW_UNROLL for (uint32_t i = 0; i < WORDS; i++)
    {
        warp_widen_vector<DTYPE>(
            value + 32 / WORDS * i,
            *(const uint4 *)(const void *)(input + input_place<DTYPE>(WORDS * (threadIdx.x & 31) + i)));
    }
}

/* Input and error of block `number`, added, to rows. */
template <uint32_t DTYPE>
GW_DEVICE void join_input(float *rows, const gw_cuda_thc_encode_params &p, uint64_t number, bool is_whole,
                          bool is_zero)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint64_t first = number << WARP_BLOCK_LOG2;

    if (is_whole) {
        constexpr uint32_t V = DTYPE == GW_FP32 ? 4 : 8; /* values of 16 bytes */
        const uint8_t *src = p.src + 16 / V * first + 16 * lane;
        const float *error = p.error + first + V * lane;
        rows += V * lane / 32 * WARP_PITCH + V * lane % 32;
        GW_UNROLL for (uint32_t k = 0; k < 32 / V; k++)
        {
            float x[8], e[8];
            if (k == 16 / V) {
                __syncwarp(); /* which keeps loads from moving up: registers are scarce */
            }
            warp_widen_vector<DTYPE>(x, gw_global_load128(src + 512 * k));
            GW_UNROLL for (uint32_t c = 0; c < V; c += 4)
            {
                warp_widen_vector<GW_FP32>(e + c, gw_global_load128(error + 32 * V * k + c));
            }
            GW_UNROLL for (uint32_t c = 0; c < V; c++)
            {
                x[c] = is_zero ? 0.0f : gw_float_add_flush<true>(x[c], e[c]);
            }
            GW_UNROLL for (uint32_t c = 0; c < V; c += 4)
            {
                warp_put4(rows + k * V * WARP_PITCH + c, 0, x + c);
            }
        }
        return;
    }
    GW_NO_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint64_t at = first + 32 * i + lane;
        rows[i * WARP_PITCH + lane] =
            at < p.span.element_count && !is_zero ? warp_load1<DTYPE, true>(p.src, p.error, at) : 0.0f;
    }
}

/* ---- the block ----------------------------------------------------------------------------------------- */

/* The window of gw_thc_rotate_fn, and the signs of the row. */
GW_DEVICE void window_row(float value[32], uint32_t sign, uint32_t exponent)
{
    if (exponent >= GW_SPLIT_EXPONENT) {
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            value[i] = __fmul_rn(value[i], __uint_as_float(GW_SPLIT_FACTOR));
        }
    }
    const uint32_t shifted = exponent >= GW_SPLIT_EXPONENT ? exponent - 100 : exponent;
    const float scale = __uint_as_float((GW_SPLIT_EXPONENT - shifted) << 23);
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        value[i] = gw_scale_flush(value[i],
                                  __uint_as_float(__float_as_uint(scale) ^ (sign << (31 - i) & 0x80000000u)));
    }
}

/* The scalars of the warp's block in group b of 32, in lane b. */
struct block_facts {
    uint32_t kind, own, maximum, scale, rescale;
};

GW_DEVICE block_facts facts_of(const gw_cuda_thc_encode_params &p, uint64_t number, bool is_in_run)
{
    block_facts facts = {THC_SKIP, 0, 0, 0, 0};

    if (!is_in_run || number >= p.span.block_count) {
        return facts;
    }
    const uint32_t own[2] = {p.own_patterns[number], 0};
    const uint32_t maxima[2] = {p.patterns[number], 0};
    uint32_t status = 0;
    facts.own = own[0];
    facts.maximum = maxima[0];
    facts.kind = thc_block_kind(p, own, maxima, &status);
    if (facts.kind == THC_BAD) {
        thc_report(p.result, p.span.first_block + number, status);
    } else if (facts.kind == THC_CODED) {
        const float scale = thc_rotated_scale(p.context, own[0] != 0 ? own[0] : GW_F32_MIN, maxima[0]);
        facts.scale = __float_as_uint(__fmul_rn(scale, __uint_as_float((127 + GW_SHIFT_DOWN) << 23)));
        if (p.error != nullptr) {
            facts.rescale = __float_as_uint(
                thc_decode_scale(p.context, maxima[0], thc_block_lanes(p.span, number), 1, 0));
        }
    }
    return facts;
}

/* 512 bytes of indices, 16 of each lane; zeros for a block that is not coded. */
GW_DEVICE void store_indices(const gw_cuda_thc_encode_params &p, uint64_t number, const uint8_t *bytes,
                             uint32_t kind)
{
    const uint32_t lane = threadIdx.x & 31;

    if (kind != THC_SKIP && lane / 2 * 64 < thc_block_lanes(p.span, number)) {
        const uint4 four = *((const uint4 *)(const void *)bytes + lane);
        *((uint4 *)(void *)(p.indices + 128 * number) + lane) =
            kind == THC_CODED ? four : make_uint4(0, 0, 0, 0);
    }
}

/* Own indices at `bytes` back to values by column, through the same memory. A row after the lanes of a short
 * last block is zeros. */
GW_DEVICE void decode_own(float value[32], const warp_memory &memory, const gw_cuda_thc_context &context,
                          const block_facts &facts, uint32_t lanes)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint8_t *bytes = (const uint8_t *)(const void *)memory.rows;
    float *look_up =
        memory.rows + 128; /* after the bytes; indices of 4 bits: no table may change in between */

    if (lane < 16) {
        const int32_t centred = (int32_t)(2 * (uint32_t)context.table[lane]) - (int32_t)context.granularity;
        look_up[lane] = __fmul_rn((float)centred, __uint_as_float(facts.rescale));
    }
    __syncwarp();
    GW_UNROLL for (uint32_t k = 0; k < 2; k++)
    {
        uint32_t word[4];
        gw_words_of(word, *((const uint4 *)(const void *)bytes + (lane & ~1u) + k));
        GW_UNROLL for (uint32_t i = 0; i < 16; i++)
        {
            const uint32_t z = word[i / 4] >> 4 * (lane & 1) >> 8 * (i % 4) & 15;
            value[16 * k + i] = 32 * lane < lanes ? look_up[z] : 0.0f;
        }
    }
    __syncwarp();
    warp_transform(memory.rows, value);
}

/* The error memory of block `number`: x, which is in rows at memory.input, less y, which is there by column
 * or zero. */
GW_DEVICE void store_error(const gw_cuda_thc_encode_params &p, const warp_memory &memory, uint64_t number,
                           bool is_whole, const float y[32], bool has_y)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint64_t first = number << WARP_BLOCK_LOG2;
    float *x = (float *)(void *)memory.input;

    if (has_y) {
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            float *at = x + i * WARP_PITCH + lane;
            *at = gw_float_add_flush<true>(*at, -y[i]);
        }
        __syncwarp();
    }
    if (is_whole) {
        GW_UNROLL for (uint32_t k = 0; k < 8; k++)
        {
            const uint32_t i = 128 * k + 4 * lane;
            float value[4];
            warp_get4(value, x + i / 32 * WARP_PITCH + i % 32);
            /* a zero of any sign is +0 */
            *(float4 *)(void *)(p.error + first + i) =
                make_float4(__fadd_rn(value[0], 0.0f), __fadd_rn(value[1], 0.0f), __fadd_rn(value[2], 0.0f),
                            __fadd_rn(value[3], 0.0f));
        }
        return;
    }
    GW_NO_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint64_t at = first + 32 * i + lane;
        if (at < p.span.element_count) {
            p.error[at] = __fadd_rn(x[i * WARP_PITCH + lane], 0.0f);
        }
    }
}

/* The quantizer of the context, all but its scale. */
GW_DEVICE quantizer quantizer_of(const cell_tables &cells, uint32_t granularity)
{
    quantizer quantizer;

    quantizer.limit = 32768.0f * (float)granularity; /* below 2^23: exact */
    quantizer.shift = 13 - (granularity & 1);
    quantizer.low = (const uint8_t *)(const void *)(cells.low + GW_THC_WARP_CELLS(granularity) / 2);
    quantizer.high = (const uint8_t *)(const void *)(cells.high + GW_THC_WARP_CELLS(granularity) / 2);
    return quantizer;
}

/* The lane's row of what join_input() has left at `rows`. */
GW_DEVICE void load_rows(float value[32], const float *rows)
{
    __syncwarp();
    GW_UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        warp_get4(value + 4 * i, rows + (threadIdx.x & 31) * WARP_PITCH + 4 * i);
    }
}

/* The scalars of lane b, to all lanes. */
template <bool HAS_ERROR> GW_DEVICE block_facts facts_from(const block_facts &mine, uint32_t b)
{
    block_facts facts;

    facts.kind = __shfl_sync(GW_ALL_LANES, mine.kind, b);
    facts.own = __shfl_sync(GW_ALL_LANES, mine.own, b);
    facts.scale = __shfl_sync(GW_ALL_LANES, mine.scale, b);
    if (HAS_ERROR) {
        facts.maximum = __shfl_sync(GW_ALL_LANES, mine.maximum, b);
        facts.rescale = __shfl_sync(GW_ALL_LANES, mine.rescale, b);
    }
    return facts;
}

template <uint32_t DTYPE, bool HAS_ERROR> GW_DEVICE void encode_blocks(const gw_cuda_thc_encode_params &p)
{
    const gw_cuda_thc_span &span = p.span;
    const gw_cuda_thc_key key = thc_key_of(p.context);
    const warp_memory memory = warp_memory_of(GW_THC_WARP_INPUT_SIZE(DTYPE, HAS_ERROR));
    uint2 *const low = (uint2 *)(void *)memory.rest;
    const cell_tables cells = {low, low + GW_THC_WARP_CELLS(p.context.granularity)};
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t warps = blockDim.x / 32;
    const uint32_t warp = threadIdx.x / 32;
    const warp_run run = warp_run_of((span.block_count + warps - 1) / warps);
    uint8_t *bytes = (uint8_t *)(void *)memory.rows;

    build_cells(cells, p.context);
    quantizer quantizer = quantizer_of(cells, p.context.granularity);
    __syncthreads();
    if (!HAS_ERROR && run.first < run.end) {
        fetch_input<DTYPE>(memory.input, p, run.first * warps + warp,
                           p.is_aligned != 0 && warp_group_is_whole(span, run.first, 1));
    }
    for (uint64_t turn = run.first; turn < run.end; turn += 32) {
        const block_facts mine = facts_of(p, (turn + lane) * warps + warp, turn + lane < run.end);

        for (uint32_t b = 0; b < 32 && turn + b < run.end; b++) {
            if (b % WARP_SIGNS == 0) {
                warp_make_signs(memory.signs, key, span.first_block + (turn + b) * warps + warp);
            }
            const uint64_t group = turn + b;
            const uint64_t number = group * warps + warp;
            const bool is_whole = p.is_aligned != 0 && warp_group_is_whole(span, group, 1);
            const uint32_t *signs = memory.signs + 32 * (b % WARP_SIGNS);
            const block_facts facts = facts_from<HAS_ERROR>(mine, b);
            const bool is_zero = facts.own == 0 || facts.own == GW_THC_NORM_NONFINITE;
            float value[32];

            if (HAS_ERROR) {
                join_input<DTYPE>((float *)(void *)memory.input, p, number, is_whole, is_zero);
                load_rows(value, (const float *)(const void *)memory.input);
            } else {
                gw_copy_wait();
                __syncwarp();
                load_input<DTYPE>(value, memory.input);
                __syncwarp();
                if (is_zero) {
                    thc_clear(value);
                }
            }
            if (!HAS_ERROR && group + 1 < run.end) {
                fetch_input<DTYPE>(memory.input, p, number + warps,
                                   p.is_aligned != 0 && warp_group_is_whole(span, group + 1, 1));
            }
            /* A block that is not coded takes the same path, without effect: warps do not diverge. */
            window_row(value, signs[lane], is_zero ? 127u : facts.own >> 23 & 255u);
            warp_transform(memory.rows, value);
            quantizer.scale = __uint_as_float(facts.scale);
            __syncwarp();
            quantize_block(bytes, quantizer, value, key, (uint32_t)(span.first_block + number));
            __syncwarp();
            store_indices(p, number, bytes, facts.kind);
            if (HAS_ERROR) {
                decode_own(value, memory, p.context, facts, thc_block_lanes(span, number));
                warp_unscale(value, signs, facts.maximum >> 23);
                if (facts.kind != THC_BAD && facts.kind != THC_SKIP) {
                    store_error(p, memory, number, is_whole, value, facts.kind == THC_CODED);
                }
            }
            __syncwarp();
        }
    }
    thc_finish(p.result, span.element_count);
}

/* As many blocks as there is shared memory for: on compute capability 9.0 three, with an error memory two. */
GW_KERNELS_BY_DTYPE(gw_device_thc_warp_encode, gw_cuda_thc_encode_params, 3, encode_blocks, false)
GW_KERNELS_BY_DTYPE(gw_device_thc_warp_encode_error, gw_cuda_thc_encode_params, 2, encode_blocks, true)
