/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/gcomp_frame.h"

#include "core/ignorable.h"
#include "gcomp/quanta.h"

static int has_map_fields(const gw_gcomp_frame_info *info)
{
    return info->quantum_mode == GW_GCOMP_DERIVED && !info->constant;
}

uint32_t gw_frame_parts_size(const gw_gcomp_frame_info *info)
{
    return (info->installed ? GW_FRAME_CODEBOOK_PART_SIZE : 0u) +
           (has_map_fields(info) ? GW_FRAME_MAP_PART_SIZE : 0u) +
           (info->checksum ? GW_FRAME_CRC_PART_SIZE : 0u);
}

void gw_frame_place(gw_gcomp_frame_info *info, uint32_t extension_size)
{
    info->chunk_count = gw_unit_count(info->len, info->chunk_log2);
    info->directory_offset = GW_FRAME_HEADER_SIZE + (uint64_t)extension_size;
    uint64_t end = info->directory_offset + GW_FRAME_ENTRY_SIZE * info->chunk_count;
    info->payload_offset = (end + 15) & ~(uint64_t)15;
}

/* Offset of the CHECKSUM part of the extension in the frame. */
static size_t crc_offset(const gw_gcomp_frame_info *info)
{
    return GW_FRAME_HEADER_SIZE + gw_frame_parts_size(info) - GW_FRAME_CRC_PART_SIZE;
}

void gw_frame_write_header(uint8_t *dst, const gw_gcomp_frame_info *info)
{
    uint32_t flags = (info->strict ? GW_FLAG_STRICT : 0u) |
                     (info->quantum_mode == GW_GCOMP_DERIVED ? GW_FLAG_DERIVED : 0u) |
                     (info->installed ? GW_FLAG_INSTALLED : 0u) | (info->checksum ? GW_FLAG_CHECKSUM : 0u) |
                     (info->constant ? GW_FLAG_CONSTANT : 0u) |
                     (info->quantum_mode == GW_GCOMP_CARRIED ? GW_FLAG_CARRIED : 0u);
    const uint32_t last =
        info->quantum_mode == GW_GCOMP_CARRIED ? info->block_log2 : (uint32_t)info->drop_offset;
    const gw_frame_header header = {GW_FRAME_CODEC_GCOMP,
                                    (uint8_t)info->dtype,
                                    (uint8_t)info->chunk_log2,
                                    (uint8_t)(gw_frame_parts_size(info) / GW_FRAME_UNIT_SIZE),
                                    flags,
                                    info->step | info->cap << 8 | last << 16,
                                    info->len,
                                    info->frame_size};
    gw_frame_header_write(dst, &header);
    uint8_t *at = dst + GW_FRAME_HEADER_SIZE;
    if (info->installed) {
        gw_store32(at, info->codebook_id);
        gw_store32(at + 4, info->codebook_generation);
        gw_store32(at + 8, info->codebook_crc);
        gw_store32(at + 12, 0);
        at += GW_FRAME_CODEBOOK_PART_SIZE;
    }
    if (has_map_fields(info)) {
        gw_store64(at, info->map_hash);
        gw_store32(at + 8, gw_bits_from_float(info->wire_scale));
        gw_store32(at + 12, 0);
        at += GW_FRAME_MAP_PART_SIZE;
    }
    if (info->checksum) {
        gw_store32(at, info->meta_crc);
        gw_store32(at + 4, 0);
    }
}

/* Rules 5 to 7 but for the extension: chunk_log2, CONSTANT, and the table of docs/format.md section 2. */
static int are_fields_allowed(const gw_gcomp_frame_info *info)
{
    const gw_traits *t = gw_traits_of((uint32_t)info->dtype);
    if (info->chunk_log2 < GW_CHUNK_LOG2_MIN || info->chunk_log2 > GW_CHUNK_LOG2_MAX) {
        return 0;
    }
    if (info->constant) {
        return info->quantum_mode == GW_GCOMP_DERIVED && info->step == 1 && info->cap <= t->derived_cap &&
               info->drop_offset == 0;
    }
    if (info->quantum_mode == GW_GCOMP_CARRIED) {
        return info->step == 1 && info->cap == t->derived_cap && info->block_log2 >= GW_BLOCK_LOG2_MIN &&
               info->block_log2 <= gw_min_u32(GW_BLOCK_LOG2_MAX, info->chunk_log2) && info->drop_offset == 0;
    }
    if (info->quantum_mode == GW_GCOMP_DERIVED) {
        return info->step < 8 && (t->derived_steps >> info->step & 1) != 0 && info->cap <= t->derived_cap &&
               info->cap % info->step == 0;
    }
    return info->step == t->explicit_step && info->cap <= t->explicit_cap && info->cap % info->step == 0 &&
           info->drop_offset == 0;
}

/* Rule 10. A reader of a stream makes room for frame_size bytes: a header must not announce more than its
 * values can need. */
static int is_size_allowed(const gw_gcomp_frame_info *info)
{
    return info->frame_size >= info->payload_offset &&
           info->frame_size - info->payload_offset <=
               gw_frame_payload_max((uint32_t)info->dtype, info->len, info->chunk_log2);
}

int gw_frame_is_info_valid(const gw_gcomp_frame_info *info)
{
    const size_t size = gw_dtype_size(info->dtype);
    const uint32_t flags = (uint32_t)info->strict | (uint32_t)info->checksum | (uint32_t)info->installed |
                           (uint32_t)info->constant;
    if (size == 0 || (uint32_t)info->quantum_mode > GW_GCOMP_CARRIED || flags > 1 ||
        info->drop_offset < INT16_MIN || info->drop_offset > INT16_MAX || !are_fields_allowed(info) ||
        !gw_frame_is_len_possible(info->len, info->chunk_log2) || info->len > SIZE_MAX / size) {
        return 0;
    }
    const uint64_t extension_size = info->directory_offset - GW_FRAME_HEADER_SIZE; /* huge if it is below */
    if (extension_size < gw_frame_parts_size(info) || extension_size > GW_FRAME_EXTENSION_SIZE_MAX ||
        extension_size % GW_FRAME_UNIT_SIZE != 0) {
        return 0;
    }
    gw_gcomp_frame_info placed = *info;
    gw_frame_place(&placed, (uint32_t)extension_size);
    return info->chunk_count == placed.chunk_count && info->payload_offset == placed.payload_offset &&
           is_size_allowed(info);
}

static gw_status read_header(gw_gcomp_frame_info *info, const uint8_t *src, size_t src_size,
                             uint64_t len_limit)
{
    gw_frame_header header;
    const gw_status status = gw_frame_header_read(&header, src, src_size, GW_FRAME_CODEC_GCOMP);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t flags = header.flags;
    if ((flags & ~(uint32_t)GW_FLAGS_KNOWN) != 0) {
        return GW_ERR_UNSUPPORTED;
    }
    info->dtype = (gw_dtype)header.dtype;
    info->chunk_log2 = header.unit_log2;
    info->strict = (flags & GW_FLAG_STRICT) != 0;
    info->quantum_mode = (flags & GW_FLAG_CARRIED) != 0   ? GW_GCOMP_CARRIED
                         : (flags & GW_FLAG_DERIVED) != 0 ? GW_GCOMP_DERIVED
                                                          : GW_GCOMP_EXPLICIT;
    const int is_contradictory = (flags & GW_FLAG_CARRIED) != 0 && (flags & GW_FLAG_DERIVED) != 0;
    info->installed = (flags & GW_FLAG_INSTALLED) != 0;
    info->checksum = (flags & GW_FLAG_CHECKSUM) != 0;
    info->constant = (flags & GW_FLAG_CONSTANT) != 0;
    info->step = header.codec_bytes & 0xff;
    info->cap = header.codec_bytes >> 8 & 0xff;
    if (info->quantum_mode == GW_GCOMP_CARRIED) {
        info->block_log2 = header.codec_bytes >> 16;
    } else {
        info->drop_offset = (int16_t)(header.codec_bytes >> 16);
    }
    info->len = header.len;
    info->frame_size = header.frame_size;
    const uint32_t extension_size = GW_FRAME_UNIT_SIZE * (uint32_t)header.extension_units;
    if (is_contradictory || !are_fields_allowed(info) || extension_size < gw_frame_parts_size(info)) {
        return GW_ERR_HEADER;
    }
    if (!gw_frame_is_len_possible(info->len, info->chunk_log2) || info->len > len_limit) {
        return GW_ERR_LIMIT;
    }
    gw_frame_place(info, extension_size);
    return GW_OK;
}

gw_status gw_frame_read_header(gw_gcomp_frame_info *info, const uint8_t *src, size_t src_size,
                               uint64_t len_limit, int is_whole)
{
    GW_MEMSET(info, 0, sizeof *info);
    gw_status status = read_header(info, src, src_size, len_limit);
    if (status == GW_OK && is_whole && info->frame_size > src_size) {
        status = GW_ERR_SHORT;
    }
    if (status == GW_OK && !is_size_allowed(info)) {
        status = GW_ERR_HEADER;
    }
    /* A peek needs the known parts only, however long the extension is. */
    if (status == GW_OK && src_size < GW_FRAME_HEADER_SIZE + gw_frame_parts_size(info)) {
        status = GW_ERR_SHORT;
    }
    /* Last, so that a 32-bit machine gives another status than others only for frames that those decode. */
    if (status == GW_OK && info->len > SIZE_MAX / gw_dtype_size(info->dtype)) {
        status = GW_ERR_LIMIT;
    }
    if (status != GW_OK) {
        GW_MEMSET(info, 0, sizeof *info);
        return status;
    }
    const uint8_t *at = src + GW_FRAME_HEADER_SIZE;
    if (info->installed) {
        info->codebook_id = gw_load32(at);
        info->codebook_generation = gw_load32(at + 4);
        info->codebook_crc = gw_load32(at + 8);
        at += GW_FRAME_CODEBOOK_PART_SIZE;
    }
    if (has_map_fields(info)) {
        info->map_hash = gw_load64(at);
        info->wire_scale = gw_float_from_bits(gw_load32(at + 8));
        at += GW_FRAME_MAP_PART_SIZE;
    }
    if (info->checksum) {
        info->meta_crc = gw_load32(at);
    }
    return GW_OK;
}

uint32_t gw_frame_chunk_len(const gw_gcomp_frame_info *info, uint64_t index)
{
    return (uint32_t)gw_min_u64(info->len - (index << info->chunk_log2), 1u << info->chunk_log2);
}

size_t gw_frame_raw_size(uint32_t dtype, size_t len)
{
    return gw_round16(len * gw_traits_of(dtype)->size);
}

int gw_frame_is_len_possible(uint64_t len, uint32_t chunk_log2)
{
    return len <= GW_FRAME_LEN_MAX && len <= GW_FRAME_CHUNKS_MAX << chunk_log2;
}

uint64_t gw_frame_payload_max(uint32_t dtype, uint64_t len, uint32_t chunk_log2)
{
    /* Only the last chunk may need padding. At most 2^50 bytes. */
    const uint64_t rest = len & (((uint64_t)1 << chunk_log2) - 1);
    return (len - rest) * gw_traits_of(dtype)->size + gw_frame_raw_size(dtype, (size_t)rest);
}

void gw_frame_write_entry(uint8_t *entry, uint64_t offset, uint32_t kind, uint32_t codebook, uint32_t crc)
{
    gw_store64(entry, offset | kind);
    gw_store32(entry + 8, codebook);
    gw_store32(entry + 12, crc);
}

static const uint8_t *entry_at(const uint8_t *src, const gw_gcomp_frame_info *info, uint64_t index)
{
    return src + info->directory_offset + GW_FRAME_ENTRY_SIZE * index;
}

gw_status gw_frame_read_entry(gw_gcomp_chunk *chunk, const uint8_t *src, const gw_gcomp_frame_info *info,
                              uint64_t index)
{
    const uint8_t *entry = entry_at(src, info, index);
    const uint64_t place = gw_load64(entry);
    const uint64_t end = index + 1 < info->chunk_count
                             ? gw_load64(entry + GW_FRAME_ENTRY_SIZE) & ~(uint64_t)15
                             : info->frame_size;
    const uint32_t kind = place & 15;
    chunk->offset = place & ~(uint64_t)15;
    chunk->codebook = gw_load32(entry + 8);
    chunk->crc = gw_load32(entry + 12);
    chunk->len = gw_frame_chunk_len(info, index);
    chunk->kind = (gw_gcomp_chunk_kind)kind;
    if (kind > GW_GCOMP_CHUNK_CODED || chunk->offset < info->payload_offset || end < chunk->offset ||
        end > info->frame_size || (end & 15) != 0) {
        return GW_ERR_HEADER;
    }
    chunk->size = end - chunk->offset;
    if (kind != GW_GCOMP_CHUNK_CODED || info->installed) {
        return chunk->codebook == 0 ? GW_OK : GW_ERR_HEADER;
    }
    return chunk->codebook <= index ? GW_OK : GW_ERR_HEADER;
}

/* A chunk that owns a codebook is CODED and names itself. */
static int is_owner(const uint8_t *src, const gw_gcomp_frame_info *info, uint32_t index)
{
    const uint8_t *entry = entry_at(src, info, index);
    return (entry[0] & 15) == GW_GCOMP_CHUNK_CODED && gw_load32(entry + 8) == index;
}

uint32_t gw_frame_meta_crc(const uint8_t *src, const gw_gcomp_frame_info *info, const gw_kernels *kernels)
{
    static const uint8_t zero[4] = {0, 0, 0, 0};
    const size_t at = crc_offset(info);
    uint32_t crc = kernels->crc32c(0, src, at);
    crc = kernels->crc32c(crc, zero, 4);
    return kernels->crc32c(crc, src + at + 4, (size_t)info->payload_offset - at - 4);
}

/* Each part of the extension ends with a word that is zero. */
static int are_reserved_words_zero(const uint8_t *src, const gw_gcomp_frame_info *info)
{
    const uint8_t *end = src + GW_FRAME_HEADER_SIZE;
    uint32_t words = 0;
    if (info->installed) {
        end += GW_FRAME_CODEBOOK_PART_SIZE;
        words |= gw_load32(end - 4);
    }
    if (has_map_fields(info)) {
        end += GW_FRAME_MAP_PART_SIZE;
        words |= gw_load32(end - 4);
    }
    if (info->checksum) {
        end += GW_FRAME_CRC_PART_SIZE;
        words |= gw_load32(end - 4);
    }
    return words == 0;
}

gw_status gw_frame_check_directory(const uint8_t *src, const gw_gcomp_frame_info *info,
                                   const gw_kernels *kernels)
{
    const size_t end = (size_t)(info->directory_offset + GW_FRAME_ENTRY_SIZE * info->chunk_count);
    if (!are_reserved_words_zero(src, info) ||
        !gw_are_ignorable_parts_valid(src, gw_frame_parts_size(info),
                                      (uint32_t)info->directory_offset - GW_FRAME_HEADER_SIZE) ||
        !gw_is_zero(src + end, (size_t)info->payload_offset - end)) {
        return GW_ERR_HEADER;
    }
    if (info->checksum && gw_frame_meta_crc(src, info, kernels) != info->meta_crc) {
        return GW_ERR_CHECKSUM;
    }
    uint64_t expected = info->payload_offset;
    for (uint64_t i = 0; i < info->chunk_count; i++) {
        gw_gcomp_chunk chunk;
        gw_status status = gw_frame_read_entry(&chunk, src, info, i);
        if (status != GW_OK || chunk.offset != expected || (!info->checksum && chunk.crc != 0)) {
            return GW_ERR_HEADER;
        }
        if (chunk.kind == GW_GCOMP_CHUNK_CODED && !info->installed && !is_owner(src, info, chunk.codebook)) {
            return GW_ERR_HEADER;
        }
        expected = chunk.offset + chunk.size;
    }
    return expected == info->frame_size ? GW_OK : GW_ERR_HEADER;
}
