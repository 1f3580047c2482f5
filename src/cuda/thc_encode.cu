/*
 * THC phase two: rotate, quantize, pack, and the new error, in one pass (gw_thc_encode()).
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/thc_tile.cuh"

/* One grid step is 65536 positions; the range of a rotated value is symmetric about 0. */
GW_DEVICE float half_range_of(const gw_cuda_thc_context &context)
{
    return 32768.0f * (float)context.granularity; /* below 2^23: exact */
}

/* plain_quantizer() of thc/thc_encode.c: the scale, the only part that is computed. */
GW_DEVICE float plain_scale(const gw_cuda_thc_context &context, float width)
{
    const double range = 65536.0 * (double)context.granularity;
    const int exponent = (int)(__float_as_uint(width) >> 23);
    return (float)(range / ((double)width * gw_f64_pow2(128 - exponent)));
}

/* Own patterns, maxima and scales of the warp's blocks, read by all threads after a barrier. */
GW_DEVICE void prepare_blocks(const thc_tile &tile, const gw_cuda_thc_encode_params &p,
                              const thc_share &share, uint64_t first_number)
{
    const gw_cuda_thc_span &span = p.span;
    const bool is_rotated = p.context.transform == GW_THC_ROTATED;
    const uint32_t lane = threadIdx.x & 31;
    uint32_t refused = 0; /* bit i: block share.first + i */

    if (!is_rotated || p.own_patterns == nullptr) {
        for (uint32_t block = share.first; block < share.end && first_number + block < span.block_count;
             block++) {
            const uint64_t number = first_number + block;
            refused |=
                thc_measure(tile, p.context, block, block << span.block_log2, thc_block_len(span, number))
                << (block - share.first);
        }
        __syncwarp();
    }
    for (uint32_t block = share.first + lane; block < share.end; block += 32) {
        const uint64_t number = first_number + block;
        tile.scale[block] = 0;
        tile.rescale[block] = 0;
        if (number >= span.block_count) {
            tile.kind[block] = THC_SKIP;
            continue;
        }
        uint32_t own[2], maxima[2];
        uint32_t status = GW_ERR_NONFINITE;
        uint32_t kind = THC_BAD;
        if (is_rotated) {
            own[0] = p.own_patterns != nullptr ? p.own_patterns[number] : tile.own[block];
            own[1] = 0;
            maxima[0] = p.patterns[number];
            maxima[1] = 0;
        } else {
            own[0] = tile.own[block];
            own[1] = tile.own2[block];
            maxima[0] = p.patterns[2 * number];
            maxima[1] = p.patterns[2 * number + 1];
        }
        if ((refused >> (block - share.first) & 1) == 0) {
            kind = thc_block_kind(p, own, maxima, &status);
        }
        if (kind == THC_BAD) {
            thc_report(p.result, span.first_block + number, status);
        } else if (kind == THC_CODED && is_rotated) {
            tile.scale[block] =
                __float_as_uint(thc_rotated_scale(p.context, own[0] != 0 ? own[0] : GW_F32_MIN, maxima[0]));
            if (p.error != nullptr) {
                tile.rescale[block] = __float_as_uint(
                    thc_decode_scale(p.context, maxima[0], thc_block_lanes(span, number), 1, 0));
            }
        } else if (kind == THC_CODED) {
            tile.scale[block] = __float_as_uint(plain_scale(p.context, gw_thc_plain_extent_of(maxima).width));
        }
        tile.kind[block] = kind;
        tile.own[block] = own[0];
        tile.own2[block] = is_rotated ? maxima[0] : own[1];
    }
}

/* 16 random bits for each of the thread's values of two groups of 128, values 32 w + l of each: two words a
 * group. Lanes l and l + 16 use the halves of the same words; each computes one group's. */
GW_DEVICE void random_words(uint32_t word[4], const gw_cuda_thc_key &key, const gw_cuda_thc_span &span,
                            uint64_t first_number, uint32_t position)
{
    const uint32_t v = position & ((1u << span.block_log2) - 1);
    const uint32_t block = (uint32_t)(span.first_block + first_number + (position >> span.block_log2));
    const uint32_t rank = GW_THC_DOMAIN_ROUNDING | key.rank;

    gw_philox4x32(word, key.seed, v / 128 * 16 + (threadIdx.x & 15), block, key.round, rank);
    if (span.block_log2 == 6) {
        /* Two blocks in 128 values: the first two words of either. */
        uint32_t next[4];
        gw_philox4x32(next, key.seed, threadIdx.x & 15, block + 1, key.round, rank);
        word[2] = next[0];
        word[3] = next[1];
    }
}

/* Grid cells: index, value below, gap to the next value. After the last value the gap is 1, which no residue
 * of 0 reaches. */
GW_DEVICE void build_entries(const thc_tile &tile, const gw_cuda_thc_context &context)
{
    const uint32_t index_max = (1u << context.bits) - 1;

    for (uint32_t cell = threadIdx.x; cell < GW_CELLS; cell += blockDim.x) {
        uint32_t z = 0;
        while (z < index_max && context.table[z + 1] <= cell) {
            z++;
        }
        const uint32_t gap = z < index_max ? (uint32_t)(context.table[z + 1] - context.table[z]) : 1;
        tile.entry[cell] = z | (uint32_t)context.table[z] << 8 | gap << 16;
    }
    if (threadIdx.x < 16) {
        tile.entry[GW_CELLS + threadIdx.x] = context.table[threadIdx.x];
    }
}

struct clamp {
    float low, high;
    int32_t offset;
};

/* gw_thc_quantize_fn for one value. */
GW_DEVICE uint32_t quantize(const thc_tile &tile, const clamp &range, float value, float scale,
                            uint32_t random)
{
    float scaled = __fmul_rn(value, scale);
    /* NaN, which own patterns of other data can lead to, too */
    scaled = scaled < range.high ? scaled : range.high;
    scaled = scaled < range.low ? range.low : scaled;
    const uint32_t position = (uint32_t)(range.offset + (int32_t)scaled);
    const uint32_t entry = tile.entry[position >> 16];
    const uint32_t residue = position - ((entry & 0xff00u) << 8);
    return (entry & 0xffu) + ((entry >> 16) * (2 * random + 1) <= 2 * residue ? 1 : 0);
}

/* Word `q` of the packed group at `group` (64 bytes of indices): gw_thc_pack_fn, four bytes at a time. */
GW_DEVICE uint32_t pack_word(const uint32_t *group, uint32_t bits, uint32_t q)
{
    uint32_t word = 0;
    if (bits == 4) {
        word = group[q] | group[q + 8] << 4;
    } else if (bits == 1 || (bits == 3 && q >= 4)) {
        const uint32_t shift = bits == 3 ? 2 : 0;
        q = bits == 3 ? q - 4 : q;
        for (uint32_t i = 0; i < 8; i++) {
            word |= (group[q + 2 * i] >> shift & 0x01010101u) << i;
        }
    } else {
        for (uint32_t i = 0; i < 4; i++) {
            word |= (group[q + 4 * i] & 0x03030303u) << 2 * i;
        }
    }
    return word;
}

/* Packs the warp's indices, which are bytes at `bytes`. Neighbouring lanes write neighbouring words. */
GW_DEVICE void pack_warp(const gw_cuda_thc_encode_params &p, const uint32_t *bytes, uint64_t warp_first)
{
    const uint32_t bits = p.context.bits;

    for (uint32_t i = 0; i < bits; i++) {
        const uint32_t w = 32 * i + (threadIdx.x & 31);
        const uint32_t group = w / (2 * bits);
        if (warp_first + 64 * group < p.span.lane_count) {
            p.indices[warp_first / 32 * bits + w] = pack_word(bytes + 16 * group, bits, w - group * 2 * bits);
        }
    }
}

/* Values by column, ready to be quantized. Blocks that are not coded give zeros. */
GW_DEVICE void rotate_tile(const thc_tile &tile, const gw_cuda_thc_encode_params &p,
                           const gw_cuda_thc_key &key, uint64_t first_number, float value[32])
{
    const uint32_t block = threadIdx.x * GW_THC_ROW >> p.span.block_log2;
    const uint32_t own = tile.own[block];
    const uint32_t sign =
        thc_sign_word(key, (uint32_t)(p.span.first_block + first_number + block), p.span.block_log2);

    tile.sign[threadIdx.x] = sign;
    if (tile.kind[block] == THC_CODED && own != 0) {
        const uint32_t floor_bits = gw_thc_window_floor(own >> 23);
        const float scale = gw_thc_window_scale(own >> 23);
        thc_load_row(tile, value);
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            const float y = gw_thc_window(value[i], floor_bits, scale);
            value[i] = __uint_as_float(__float_as_uint(y) ^ (sign >> i & 1) << 31);
        }
    } else {
        thc_clear(value);
    }
    __syncwarp();
    thc_transform(tile, value, p.span.block_log2);
}

GW_DEVICE void shift_tile(const thc_tile &tile, const gw_cuda_thc_encode_params &p, uint64_t first_number,
                          float value[32])
{
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint32_t block = ((threadIdx.x & ~31u) + i) * GW_THC_ROW >> p.span.block_log2;
        const float x = tile.x[thc_column_place(i)];
        value[i] = 0.0f;
        if (tile.kind[block] == THC_CODED) {
            const gw_thc_plain_extent extent =
                gw_thc_plain_extent_of(p.patterns + 2 * (first_number + block));
            const uint32_t exponent = __float_as_uint(extent.width) >> 23;
            /* By policy a block that is not finite counts as zeros: its patterns are those of zeros, its
             * values are not. */
            const bool is_zero = tile.own[block] == 0x80000000u && tile.own2[block] == 0x80000000u;
            value[i] = gw_thc_window(gw_f32_flush(__fsub_rn(is_zero ? 0.0f : x, extent.minimum)),
                                     gw_thc_window_floor(exponent), gw_thc_window_scale(exponent));
        }
    }
}

/* Indices of the values by column, as bytes into the warp's part of the tile, which is not read any more. */
GW_DEVICE void quantize_tile(const thc_tile &tile, const gw_cuda_thc_encode_params &p,
                             const gw_cuda_thc_key &key, uint64_t first_number, const float value[32],
                             uint8_t *bytes)
{
    const uint32_t row = threadIdx.x & ~31u;
    clamp range;

    range.high =
        p.context.transform == GW_THC_ROTATED ? half_range_of(p.context) : 2.0f * half_range_of(p.context);
    range.low = p.context.transform == GW_THC_ROTATED ? -range.high : 0.0f;
    range.offset = p.context.transform == GW_THC_ROTATED ? (int32_t)range.high : 0;
    GW_UNROLL for (uint32_t pair = 0; pair < 4; pair++)
    {
        uint32_t word[4], random[4];
        random_words(word, key, p.span, first_number,
                     row * GW_THC_ROW + 256 * pair + 128 * (threadIdx.x >> 4 & 1));
        thc_share_words(random, word);
        GW_UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const uint32_t words = random[i / 2];
            const uint32_t bits = (i & 1) != 0 ? words >> 16 : words & 0xffffu;
            const uint32_t block = (row + 8 * pair + i) * GW_THC_ROW >> p.span.block_log2;
            const float scale = __uint_as_float(tile.scale[block]);
            const uint32_t z = quantize(tile, range, value[8 * pair + i], scale, bits);
            bytes[32 * (8 * pair + i) + (threadIdx.x & 31)] =
                (uint8_t)(tile.kind[block] == THC_CODED ? z : 0);
        }
    }
}

/* The error memory: x - decode(own indices) for coded blocks, all of x for those that carried nothing. */
GW_DEVICE void update_error(const thc_tile &tile, const gw_cuda_thc_encode_params &p, const uint8_t *bytes,
                            uint64_t tile_first)
{
    const gw_cuda_thc_span &span = p.span;
    const uint32_t row = threadIdx.x & ~31u;
    float value[32];
    {
        const float scale = __uint_as_float(tile.rescale[threadIdx.x * GW_THC_ROW >> span.block_log2]);
        const uint32_t *own_bytes = (const uint32_t *)(const void *)(bytes + 32 * (threadIdx.x & 31));
        /* A row after the lanes of a short last block is zeros. */
        const bool is_coded = tile.kind[threadIdx.x * GW_THC_ROW >> span.block_log2] == THC_CODED &&
                              tile_first + threadIdx.x * GW_THC_ROW < span.lane_count;
        GW_UNROLL for (uint32_t i = 0; i < 32; i++)
        {
            const uint32_t z = own_bytes[i / 4] >> 8 * (i % 4) & 15;
            const int32_t centred = (int32_t)(2 * tile.entry[GW_CELLS + z]) - (int32_t)p.context.granularity;
            value[i] = is_coded ? __fmul_rn((float)centred, scale) : 0.0f;
        }
    }
    __syncwarp();
    thc_transform(tile, value, span.block_log2);
    GW_UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const uint32_t block = (row + i) * GW_THC_ROW >> span.block_log2;
        const uint32_t kind = tile.kind[block];
        const uint64_t at = tile_first + (row + i) * GW_THC_ROW + (threadIdx.x & 31);
        if (at < span.element_count && (kind == THC_CODED || kind == THC_CONSTANT || kind == THC_NONFINITE)) {
            const uint32_t own = tile.own[block];
            const uint32_t sign = tile.sign[row + i] >> (threadIdx.x & 31) & 1;
            const float x = own == 0 || own == GW_THC_NORM_NONFINITE
                                ? 0.0f
                                : thc_load1(p.src, p.error, p.context.dtype, at);
            const float y = kind == THC_CODED ? thc_unscale(value[i], sign, tile.own2[block] >> 23) : 0.0f;
            p.error[at] = gw_f32_flush(__fsub_rn(x, y));
        }
    }
}

/* Three blocks of 80 registers a thread; for compute capability 10 the compiler does not get along with so
 * few. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define ENCODE_BLOCKS 2
#else
#define ENCODE_BLOCKS 3
#endif

GW_KERNEL(gw_device_thc_encode, gw_cuda_thc_encode_params, GW_THC_THREADS_MAX, ENCODE_BLOCKS)
{
    const thc_tile tile = thc_tile_of();
    const gw_cuda_thc_span &span = p.span;
    const gw_cuda_thc_key key = thc_key_of(p.context);
    const thc_share share = thc_blocks_of_warp(span.block_log2);
    const uint32_t warp_row = threadIdx.x & ~31u;

    build_entries(tile, p.context);
    __syncthreads();
    for (uint64_t t = blockIdx.x; t < span.tile_count; t += gridDim.x) {
        const uint64_t tile_first = t * blockDim.x * GW_THC_ROW;
        const uint64_t first_number = tile_first >> span.block_log2;
        uint8_t *bytes = (uint8_t *)(void *)(tile.x + warp_row * GW_ROW_PITCH);
        float value[32];

        thc_load_tile(tile, span, p.src, p.error, p.context.dtype, p.is_aligned, tile_first);
        thc_sync(span.block_log2);
        prepare_blocks(tile, p, share, first_number);
        thc_sync(span.block_log2);
        if (p.context.transform == GW_THC_ROTATED) {
            rotate_tile(tile, p, key, first_number, value);
        } else {
            shift_tile(tile, p, first_number, value);
        }
        __syncwarp();
        quantize_tile(tile, p, key, first_number, value, bytes);
        __syncwarp();
        pack_warp(p, (const uint32_t *)(const void *)bytes, tile_first + warp_row * GW_THC_ROW);
        if (p.error != nullptr) {
            update_error(tile, p, bytes, tile_first);
        }
        thc_sync(span.block_log2);
    }
    thc_finish(p.result, span.element_count);
}
