/*
 * Frames on the device: header, extension and directory (docs/format.md sections 2, 4 and 8, rules 1 to 17),
 * traits of the element types, drops.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CUDA_GCOMP_FRAME_CUH
#define GW_CUDA_GCOMP_FRAME_CUH

#include "cuda/crc32c.cuh"
#include "cuda/gcomp_params.h"
#include "cuda/gcomp_tree.cuh"
#include "gradwire/gradwire.h"

/* ---- element types ------------------------------------------------------------------------------------- */

/* The table of docs/format.md section 2 as constants. A value is handled as 32 bits, 16-bit types in the
 * upper half: sign at bit 31, exponent field at EXPONENT_SHIFT. */
template <uint32_t DTYPE> struct gw_type {
    static constexpr uint32_t SIZE = DTYPE == GW_FP32 ? 4 : 2;
    static constexpr uint32_t M = DTYPE == GW_FP32 ? 23 : DTYPE == GW_BF16 ? 7 : 10;
    static constexpr uint32_t SPECIAL = DTYPE == GW_FP16 ? 31 : 255;
    static constexpr uint32_t BIAS = DTYPE == GW_FP16 ? 112 : 0;
    static constexpr uint32_t STEP = DTYPE == GW_FP32 ? 6 : DTYPE == GW_BF16 ? 2 : 3;
    static constexpr uint32_t W1 = DTYPE == GW_FP32 ? 6 : 2;
    static constexpr uint32_t W2 = DTYPE == GW_FP32   ? 6
                                   : DTYPE == GW_BF16 ? 2
                                                      : 3; /* and of planes 3 and 4 */
    static constexpr uint32_t EXPONENT_SHIFT = DTYPE == GW_FP16 ? 26 : 23;
    static constexpr uint32_t MANTISSA = (1u << EXPONENT_SHIFT) - 1;
    static constexpr bool IS_FP16 = DTYPE == GW_FP16;
};

GW_DEVICE uint32_t gw_type_size(uint32_t dtype)
{
    return dtype == GW_FP32 ? 4 : 2;
}

GW_DEVICE uint32_t gw_type_mantissa(uint32_t dtype)
{
    return dtype == GW_FP32 ? 23 : dtype == GW_BF16 ? 7 : 10;
}

/* Bits of a digit of plane p: 1 to 4, then R4, R2, R1. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_plane_width(uint32_t p)
{
    return p == 0 ? gw_type<DTYPE>::W1 : p < 4 ? gw_type<DTYPE>::W2 : 4u >> (p - 4);
}

/* Which planes a value that keeps `kept` bits has digits in: four bits a plane, so that eight values can
 * be summed; nibbles 0 to 3 are planes 1 to 4, 4 to 6 R4, R2, R1. In nibble 7 escapes are counted. */
template <uint32_t DTYPE> GW_DEVICE uint32_t gw_digit_flags(uint32_t kept)
{
    typedef gw_type<DTYPE> type;
    const uint32_t whole = kept < type::W1 ? 0 : 1 + (kept - type::W1) / type::W2;
    const uint32_t rest = whole == 0 ? kept : (kept - type::W1) % type::W2;
    return (0x1111u & ((1u << 4 * whole) - 1)) | (rest >> 2 & 1) << 16 | (rest >> 1 & 1) << 20 |
           (rest & 1) << 24;
}

/* ---- items --------------------------------------------------------------------------------------------- */

GW_DEVICE const gw_cuda_gcomp_item &gw_item_of(const gw_gcomp_work &work, uint32_t i)
{
    return work.items == nullptr ? work.item : work.items[i];
}

/* What decoded values are multiplied by: 0 stands for 1. Valid: 0 or a normal number. */
GW_DEVICE float gw_scale_of(const gw_cuda_gcomp_item &item)
{
    return item.scale == 0.0f ? 1.0f : item.scale;
}

GW_DEVICE bool gw_is_scale_valid(const gw_cuda_gcomp_item &item)
{
    const uint32_t bits = __float_as_uint(item.scale), exponent = bits >> 23 & 255;
    return bits << 1 == 0 || (exponent != 0 && exponent != 255);
}

/* Result of an item that fails: what it was to come after, if that failed, is taken over with its chunk. */
GW_DEVICE gw_cuda_result gw_failure_of(const gw_cuda_gcomp_item &item, uint32_t status)
{
    gw_cuda_result result = {status, 0, 0, 0, ~(uint64_t)0, 0};
    if (item.after != nullptr && item.after->status != GW_OK) {
        result.status = item.after->status;
        result.bad_index = item.after->bad_index;
    }
    return result;
}

/* The last i with first[i] <= unit, for unit < first[count]; items without units are passed over. */
GW_DEVICE uint32_t gw_item_find(const uint64_t *first, uint32_t count, uint64_t unit)
{
    uint32_t low = 0, high = count - 1;
    GW_NO_UNROLL
    while (low < high) {
        const uint32_t at = low + (high - low + 1) / 2;
        if (first[at] <= unit) {
            low = at;
        } else {
            high = at - 1;
        }
    }
    return low;
}

GW_DEVICE uint32_t gw_map_base(const gw_cuda_map &map)
{
    return map.base_at != nullptr ? *map.base_at : map.base;
}

/* docs/format.md section 3, as gw_drop_offset() of core. */
GW_DEVICE int32_t gw_cuda_drop_offset(const gw_cuda_codec &codec, uint32_t base)
{
    const int32_t quarters = codec.quantum_mode == 0 ? -1 : 3;
    return (int32_t)base + quarters -
           4 * ((int32_t)codec.tolerance_bits - (int32_t)gw_type_mantissa(codec.dtype));
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

GW_DEVICE uint32_t gw_read32(const uint8_t *p)
{
    return *(const uint32_t *)(const void *)p;
}

GW_DEVICE uint64_t gw_read64(const uint8_t *p)
{
    return gw_read32(p) | (uint64_t)gw_read32(p + 4) << 32;
}

/* ---- header -------------------------------------------------------------------------------------------- */

enum {
    GW_FLAG_STRICT = 1,
    GW_FLAG_DERIVED = 2,
    GW_FLAG_INSTALLED = 4,
    GW_FLAG_CHECKSUM = 8,
    GW_FLAG_CONSTANT = 16,
    GW_FLAG_CARRIED = 32
};

/* gw_gcomp_quantum_mode of a frame's flags. */
GW_DEVICE uint32_t gw_quantum_mode_of(uint32_t flags)
{
    return (flags & GW_FLAG_CARRIED) != 0   ? GW_GCOMP_CARRIED
           : (flags & GW_FLAG_DERIVED) != 0 ? GW_GCOMP_DERIVED
                                            : GW_GCOMP_EXPLICIT;
}

/* What gw_cuda_frame_state keeps of a header, and what only the check needs. */
struct gw_frame_front {
    uint32_t dtype, flags, chunk_log2, step, cap;
    int32_t drop_offset;
    uint32_t block_log2; /* carried, else 0 */
    uint64_t len, frame_size, chunk_count, directory_offset, payload_offset;
    uint32_t codebook_id, codebook_generation, codebook_crc, wire_scale, meta_crc;
    uint32_t reserved; /* the words of the extension that must be zero, combined; 1 for a bad list of parts */
    uint64_t map_hash;
};

GW_DEVICE bool gw_front_has_map(const gw_frame_front &f)
{
    return (f.flags & GW_FLAG_DERIVED) != 0 && (f.flags & GW_FLAG_CONSTANT) == 0;
}

/* Bytes of the parts of the extension that the flags announce: gw_frame_parts_size() of core. */
GW_DEVICE uint32_t gw_front_parts_size(const gw_frame_front &f)
{
    return ((f.flags & GW_FLAG_INSTALLED) != 0 ? 16 : 0) + (gw_front_has_map(f) ? 16 : 0) +
           ((f.flags & GW_FLAG_CHECKSUM) != 0 ? 8 : 0);
}

/* Offset of the CHECKSUM part. */
GW_DEVICE uint32_t gw_front_crc_offset(const gw_frame_front &f)
{
    return 32 + gw_front_parts_size(f) - 8;
}

GW_DEVICE void gw_front_place(gw_frame_front &f, uint32_t extension_size)
{
    f.chunk_count = (f.len >> f.chunk_log2) + ((f.len & ((1u << f.chunk_log2) - 1)) != 0);
    f.directory_offset = 32 + extension_size;
    f.payload_offset = (f.directory_offset + 16 * f.chunk_count + 15) & ~(uint64_t)15;
}

GW_DEVICE bool gw_front_is_allowed(const gw_frame_front &f)
{
    const uint32_t derived_cap = f.dtype == GW_FP32 ? 23 : f.dtype == GW_BF16 ? 7 : 10;
    const uint32_t derived_steps = f.dtype == GW_FP32 ? 0x4e : f.dtype == GW_BF16 ? 0x06 : 0x0a;
    const uint32_t explicit_step = f.dtype == GW_FP32 ? 6 : f.dtype == GW_BF16 ? 2 : 3;
    if ((f.flags & GW_FLAG_CONSTANT) != 0) {
        return f.step == 1 && f.cap <= derived_cap && f.drop_offset == 0;
    }
    if ((f.flags & GW_FLAG_CARRIED) != 0) {
        return f.step == 1 && f.cap == derived_cap && f.block_log2 >= 6 && f.block_log2 <= 14 &&
               f.block_log2 <= f.chunk_log2;
    }
    if ((f.flags & GW_FLAG_DERIVED) != 0) {
        return f.step < 8 && (derived_steps >> f.step & 1) != 0 && f.cap <= derived_cap &&
               f.cap % f.step == 0;
    }
    return f.step == explicit_step && f.cap <= 3 * explicit_step && f.cap % f.step == 0 && f.drop_offset == 0;
}

/* A frame can have so many values: the directory names chunks in 32 bits. */
GW_DEVICE bool gw_is_len_possible(uint64_t len, uint32_t chunk_log2)
{
    return len <= (uint64_t)1 << 48 && len <= (uint64_t)1 << (32 + chunk_log2);
}

/* Bytes of all chunks if all were RAW. */
GW_DEVICE uint64_t gw_payload_max(uint32_t dtype, uint64_t len, uint32_t chunk_log2)
{
    const uint64_t size = gw_type_size(dtype), rest = len & (((uint64_t)1 << chunk_log2) - 1);
    return (len - rest) * size + ((rest * size + 15) & ~(uint64_t)15);
}

/* gw_are_ignorable_parts_valid() of core. src holds the extension. */
GW_DEVICE bool gw_front_is_list_valid(const gw_frame_front &f, const uint8_t *src)
{
    const uint32_t flags = src[10], size = (uint32_t)f.directory_offset - 32;
    const uint8_t *const extension = src + 32;
    uint32_t last = 0;
    if (flags == 0) {
        return true;
    }
    GW_NO_UNROLL
    for (uint32_t at = gw_front_parts_size(f); at < size;) {
        const uint32_t head = gw_read32(extension + at);
        const uint32_t number = head & 255, part_size = 8 * (head >> 8 & 255);
        if (number == 0) {
            return true;
        }
        if (number <= last || number > 8 || (flags >> (number - 1) & 1) == 0 || part_size == 0 ||
            part_size > size - at) {
            return false;
        }
        last = number;
        at += part_size;
    }
    return false;
}

/* Fields of the extension's known parts, and the list after them; src holds the extension. */
GW_DEVICE void gw_front_read_parts(gw_frame_front &f, const uint8_t *src)
{
    const uint8_t *at = src + 32;
    f.codebook_id = f.codebook_generation = f.codebook_crc = f.wire_scale = f.meta_crc = f.reserved = 0;
    f.map_hash = 0;
    if ((f.flags & GW_FLAG_INSTALLED) != 0) {
        f.codebook_id = gw_read32(at);
        f.codebook_generation = gw_read32(at + 4);
        f.codebook_crc = gw_read32(at + 8);
        f.reserved |= gw_read32(at + 12);
        at += 16;
    }
    if (gw_front_has_map(f)) {
        f.map_hash = gw_read64(at);
        f.wire_scale = gw_read32(at + 8);
        f.reserved |= gw_read32(at + 12);
        at += 16;
    }
    if ((f.flags & GW_FLAG_CHECKSUM) != 0) {
        f.meta_crc = gw_read32(at);
        f.reserved |= gw_read32(at + 4);
    }
    f.reserved |= gw_front_is_list_valid(f, src) ? 0u : 1u;
}

/* Rules 1 to 11 and the extension. src is 16-byte aligned. */
GW_DEVICE uint32_t gw_front_read(gw_frame_front &f, const uint8_t *src, uint64_t src_size, uint64_t len_limit)
{
    if (src_size < 32) {
        return GW_ERR_SHORT;
    }
    const uint4 a = *(const uint4 *)(const void *)src, b = *(const uint4 *)(const void *)(src + 16);
    if (a.x != 0x1a665767u) {
        return GW_ERR_MAGIC;
    }
    /* Version nibbles as in gw_frame_header_read() of core: the writer's is the upper one. */
    if ((a.y >> 4 & 15) < (a.y & 15)) {
        return GW_ERR_HEADER;
    }
    if ((a.y & 15) != 0) {
        return GW_ERR_VERSION;
    }
    f.dtype = a.y >> 16 & 255;
    f.flags = a.z & 0xffff;
    const uint32_t extension_size = 8 * (a.z >> 24);
    if ((a.y >> 8 & 255) != 1 || f.dtype < GW_FP32 || f.dtype > GW_FP16 || f.flags >> 6 != 0) {
        return GW_ERR_UNSUPPORTED;
    }
    f.chunk_log2 = a.y >> 24;
    if (f.chunk_log2 < 10 || f.chunk_log2 > 15) {
        return GW_ERR_HEADER;
    }
    f.step = a.w & 255;
    f.cap = a.w >> 8 & 255;
    const bool is_carried = (f.flags & GW_FLAG_CARRIED) != 0;
    f.drop_offset = is_carried ? 0 : (int32_t)a.w >> 16;
    f.block_log2 = is_carried ? a.w >> 16 : 0;
    const uint32_t kind = f.flags & (GW_FLAG_CONSTANT | GW_FLAG_DERIVED | GW_FLAG_CARRIED);
    if (kind == GW_FLAG_CONSTANT || (is_carried && kind != GW_FLAG_CARRIED) || !gw_front_is_allowed(f) ||
        extension_size < gw_front_parts_size(f)) {
        return GW_ERR_HEADER;
    }
    f.len = b.x | (uint64_t)b.y << 32;
    f.frame_size = b.z | (uint64_t)b.w << 32;
    if (!gw_is_len_possible(f.len, f.chunk_log2) || f.len > len_limit) {
        return GW_ERR_LIMIT;
    }
    gw_front_place(f, extension_size);
    if (f.frame_size > src_size) {
        return GW_ERR_SHORT;
    }
    if (f.frame_size < f.payload_offset ||
        f.frame_size - f.payload_offset > gw_payload_max(f.dtype, f.len, f.chunk_log2)) {
        return GW_ERR_HEADER;
    }
    /* src_size is now known to hold everything up to chunk 0. */
    gw_front_read_parts(f, src);
    return f.frame_size < src_size ? GW_ERR_TRAILING : GW_OK;
}

/* ---- directory ----------------------------------------------------------------------------------------- */

enum { GW_CHUNK_ZERO, GW_CHUNK_RAW, GW_CHUNK_CODED };

struct gw_chunk_entry {
    uint64_t offset, size;
    uint32_t kind, codebook, crc;
};

/* gw_frame_read_entry() of core: false if the entry is impossible. Takes the fields that front and state
 * share. */
GW_DEVICE bool gw_entry_read(gw_chunk_entry &e, const uint8_t *src, uint64_t directory_offset,
                             uint64_t payload_offset, uint64_t frame_size, uint64_t chunk_count,
                             bool installed, uint64_t index)
{
    const uint8_t *entry = src + directory_offset + 16 * index;
    const uint64_t place = gw_read64(entry);
    const uint64_t end = index + 1 < chunk_count ? gw_read64(entry + 16) & ~(uint64_t)15 : frame_size;
    e.kind = (uint32_t)place & 15;
    e.offset = place & ~(uint64_t)15;
    e.codebook = gw_read32(entry + 8);
    e.crc = gw_read32(entry + 12);
    if (e.kind > GW_CHUNK_CODED || e.offset < payload_offset || end < e.offset || end > frame_size ||
        (end & 15) != 0) {
        return false;
    }
    e.size = end - e.offset;
    return e.kind != GW_CHUNK_CODED || installed ? e.codebook == 0 : e.codebook <= index;
}

/* Rule 14 for entry i. That an entry begins where the one before ends needs no test: that is how its end
 * is defined. */
GW_DEVICE bool gw_entry_is_good(const uint8_t *src, const gw_frame_front &f, uint64_t i)
{
    const bool installed = (f.flags & GW_FLAG_INSTALLED) != 0;
    gw_chunk_entry e;
    if (!gw_entry_read(e, src, f.directory_offset, f.payload_offset, f.frame_size, f.chunk_count, installed,
                       i) ||
        (i == 0 && e.offset != f.payload_offset) || ((f.flags & GW_FLAG_CHECKSUM) == 0 && e.crc != 0)) {
        return false;
    }
    if (e.kind == GW_CHUNK_CODED && !installed) {
        const uint8_t *owner = src + f.directory_offset + 16 * (uint64_t)e.codebook;
        return (owner[0] & 15) == GW_CHUNK_CODED && gw_read32(owner + 8) == e.codebook;
    }
    return true;
}

/* CRC32C of everything before chunk 0, with meta_crc taken as zero. By the block. */
GW_DEVICE uint32_t gw_front_crc(const uint8_t *src, uint32_t crc_offset, uint64_t payload_offset,
                                uint32_t *sums)
{
    const uint64_t skipped = crc_offset >> 2;
    return gw_cuda_crc32c(0, payload_offset >> 2, sums, [=](uint64_t i) {
        return i == skipped ? 0 : gw_read32(src + 4 * i);
    });
}

/* docs/format.md section 7, for the frame whose wire scale is given. By the block. */
GW_DEVICE uint64_t gw_front_map_hash(const gw_frame_front &f, const uint32_t *digest, uint32_t wire_scale,
                                     uint32_t *sums)
{
    const uint32_t first = ((uint32_t)f.drop_offset & 0xffff) | f.step << 16 | f.cap << 24;
    const uint32_t second = f.dtype | f.chunk_log2 << 8;
    const uint64_t len = f.len, words = 6 + f.chunk_count;
    uint32_t hash[2];
    GW_NO_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t factor = k == 0 ? 1u : 0x9e3779b1u;
        hash[k] = gw_cuda_crc32c(0, words, sums, [=](uint64_t i) {
            return i >= 6   ? digest[i - 6] * factor
                   : i == 0 ? first
                   : i == 1 ? second
                   : i == 2 ? wire_scale
                   : i == 3 ? 0
                   : i == 4 ? (uint32_t)len
                            : (uint32_t)(len >> 32);
        });
    }
    return hash[0] | (uint64_t)hash[1] << 32;
}

/* CRC32C of an installed codebook. By the block. */
GW_DEVICE uint32_t gw_codebook_crc(const gw_cuda_codebook &codebook, uint32_t *sums)
{
    if (codebook.bytes == nullptr) {
        return codebook.crc;
    }
    /* Longer data is not a codebook; its checksum is not used. */
    const uint32_t size = codebook.size_at != nullptr ? *codebook.size_at : codebook.size;
    return gw_cuda_crc32c_bytes(0, codebook.bytes,
                                size < GW_CUDA_CODEBOOK_SIZE_MAX ? size : (uint32_t)GW_CUDA_CODEBOOK_SIZE_MAX,
                                sums);
}

#endif
