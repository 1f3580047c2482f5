/*
 * Device entry points of GCOMP: a block of 256 threads encodes or decodes one chunk, for kernels that send
 * and receive by themselves. The bytes are those of a chunk in a frame with an installed codebook
 * (docs/format.md section 5), without a frame around them: kind, size and number of values travel as the
 * caller likes.
 *
 * The host fills a gw_device_codec with gw_cuda_gcomp_device_codec() (gradwire/cuda.h) and passes it to the
 * kernel by value (as `const __grid_constant__`, or the compiler may copy it to every thread's stack). It
 * gives the kernel dynamic shared memory of the sizes that the same call returns for encode and for decode,
 * which the block may use for other things between two calls. A block calls gw_device_*_begin() once before
 * the first chunk, and again after it has used the shared memory otherwise. All 256 threads call all
 * functions with equal arguments; every function begins and ends with a barrier. Nothing is allocated, no
 * call waits for another block. Compile with -fmad=false; it also affects the caller's floating point.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_DEVICE_CUH
#define GW_CUDA_GCOMP_DEVICE_CUH

#include "cuda/gcomp_decode.cuh"
#include "cuda/gcomp_encode.cuh"

/*
 * Prepares to encode with the codec's codebook (encode_with). Returns false to all threads if the codebook is
 * not valid.
 *
 * shared_size: bytes at shared. With GW_CUDA_ENCODE_SHARED_SIZE_ONCE(chunk_log2, DTYPE) of them or more, an
 * explicit chunk's values are rounded once instead of twice.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_device_encode_begin(unsigned char *shared, uint32_t shared_size, const gw_device_codec &c)
{
    gw_encode_state &s = *(gw_encode_state *)(void *)shared;
    __syncthreads();
    if (threadIdx.x == 0) {
        s.shared_size = shared_size;
    }
    if (c.codec.encode_with < 0 ||
        !gw_encode_read_codebook<DTYPE, DERIVED>(s, c.codec.codebook[c.codec.encode_with])) {
        return false;
    }
    gw_cuda_tree_build(s.tree, *(gw_tree_scratch *)(void *)s.arrays);
    gw_encode_tables<DTYPE, DERIVED>(s);
    return true;
}

/*
 * Encodes values[0..len), 1 <= len <= 2^chunk_log2, aligned to their element; their map bytes are at
 * map_bytes (any alignment; not read if the codec has no map). `element` is the absolute index of the first
 * value, for stochastic rounding. dst: 16-byte aligned, room for a RAW chunk, len elements rounded up to 16
 * bytes.
 *
 * Returns the chunk's size in bytes, a multiple of 16 and at most that room, and its kind: 0 ZERO (no bytes),
 * 1 RAW, 2 CODED.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_device_encode_chunk(unsigned char *shared, const gw_device_codec &c, const void *values,
                                          const uint8_t *map_bytes, uint32_t len, uint64_t element,
                                          uint8_t *dst, uint32_t *kind)
{
    gw_encode_state &s = *(gw_encode_state *)(void *)shared;
    gw_cuda_gcomp_item item = {};
    item.src = values;
    item.src_size = len;
    item.map_bytes = map_bytes;
    item.first_element = element;
    const gw_cuda_rounder r = {c.rounding, s.source};
    const uint32_t log2 = c.codec.chunk_log2;
    const uint32_t raw_size = (len * gw_type<DTYPE>::SIZE + 15) & ~15u;
    __syncthreads();
    if (threadIdx.x == 0) {
        s.source = gw_source_of(c.codec, c.rounding, c.map, c.key, item);
    }
    __syncthreads();
    gw_cuda_measure_chunk<DTYPE, DERIVED>(s, r, log2, 0, len);
    const uint32_t coded_size = s.size, size = (coded_size + 15) & ~15u;
    const bool is_zero = s.any == 0;
    __syncthreads();
    if (is_zero) {
        *kind = GW_CHUNK_ZERO;
        return 0;
    }
    if (size >= raw_size) {
        gw_write_raw<DTYPE, DERIVED>(s, r, 0, len, dst);
        *kind = GW_CHUNK_RAW;
        return raw_size;
    }
    if (4 * threadIdx.x < size - coded_size) {
        *(uint32_t *)(void *)(dst + coded_size + 4 * threadIdx.x) = 0;
    }
    gw_cuda_write_coded<DTYPE, DERIVED>(s, r, log2, 0, len, (uint32_t *)(void *)dst);
    *kind = GW_CHUNK_CODED;
    return size;
}

/* The state of a frame of one chunk, for a decode without a frame. */
GW_DEVICE gw_cuda_frame_state gw_device_frame(const gw_device_codec &c, uint32_t len)
{
    gw_cuda_frame_state f = {};
    const bool constant = c.codec.quantum_mode != 0 && !c.map.is_present;
    f.dtype = c.codec.dtype;
    f.quantum_mode = c.codec.quantum_mode;
    f.chunk_log2 = c.codec.chunk_log2;
    f.step = constant ? 1 : c.codec.step;
    f.cap = constant ? c.codec.constant_drop : c.codec.cap;
    f.drop_offset =
        c.codec.quantum_mode != 0 && c.map.is_present ? gw_cuda_drop_offset(c.codec, gw_map_base(c.map)) : 0;
    f.strict = c.codec.strict;
    f.installed = 1;
    f.constant = constant;
    f.codebook = (uint32_t)c.codec.encode_with;
    f.len = len;
    f.chunk_count = 1;
    return f;
}

/* Prepares to decode with the codebook that gw_device_encode_begin() encodes with. Returns false if it is not
 * valid. */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE bool gw_device_decode_begin(unsigned char *shared, const gw_device_codec &c)
{
    gw_decode_state &s = *(gw_decode_state *)(void *)shared;
    const gw_cuda_frame_state frame = gw_device_frame(c, 0);
    __syncthreads();
    gw_decode_begin(s);
    return c.codec.encode_with >= 0 && gw_codebook_use<DTYPE>(s, c.codec, frame, nullptr, 1) != 0;
}

/* A received chunk. */
struct gw_device_chunk {
    const uint8_t *data;      /* 16-byte aligned */
    uint32_t kind, size;      /* as gw_device_encode_chunk() returned them */
    const uint8_t *map_bytes; /* as there */
    uint32_t len;             /* values */
};

/*
 * Decodes a chunk, which may be hostile, to its values at dst; with addend not NULL dst = addend + values
 * (docs/numerics.md section 5; addend may be dst). dst and addend are aligned to their element. Chunks up to
 * the size of a RAW one are accepted.
 *
 * Returns GW_OK or GW_ERR_CORRUPT (then dst is unchanged), to all threads. Rules 19 to 26 of docs/format.md
 * section 8.
 */
template <uint32_t DTYPE, bool DERIVED>
GW_DEVICE uint32_t gw_device_decode_chunk(unsigned char *shared, uint32_t shared_size,
                                          const gw_device_codec &c, const gw_device_chunk &chunk, void *dst,
                                          const void *addend)
{
    gw_decode_state &s = *(gw_decode_state *)(void *)shared;
    const uint32_t kind = chunk.kind, size = chunk.size, len = chunk.len;
    const uint8_t *const src = chunk.data, *const map_bytes = chunk.map_bytes;
    const gw_cuda_frame_state frame = gw_device_frame(c, len);
    const uint32_t value_size = len * gw_type<DTYPE>::SIZE, raw_size = (value_size + 15) & ~15u;
    const gw_decode_out out = gw_decode_out_of(dst, addend, c.codec.strict, 1.0f);
    __syncthreads();
    bool bad = false;
    if (kind == GW_CHUNK_ZERO || kind == GW_CHUNK_RAW) {
        const bool is_raw = kind == GW_CHUNK_RAW;
        bad = size != (is_raw ? raw_size : 0);
        bad = __syncthreads_or(bad || (is_raw && threadIdx.x < raw_size - value_size &&
                                       src[value_size + threadIdx.x] != 0)) != 0;
        if (!bad) {
            gw_decode_plain<DTYPE>(is_raw ? src : nullptr, value_size, out);
        }
    } else {
        const gw_decode_call call = {c.codec, frame, src, map_bytes, shared_size, nullptr, 1};
        if (threadIdx.x == 0) {
            s.out = out;
            s.map_bytes = map_bytes;
            s.index = 0;
        }
        __syncthreads();
        bad = kind != GW_CHUNK_CODED || size >= raw_size || (size & 15) != 0 ||
              gw_decode_is_far(call, size) ||
              gw_decode_near<DTYPE, DERIVED>(s, call, src, size, 0, len, true);
    }
    __syncthreads();
    return bad ? GW_ERR_CORRUPT : GW_OK;
}

#endif
