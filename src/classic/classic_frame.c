/*
 * The byte layout of classic frames: reading and writing side by side. Integers only.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/classic_frame.h"

#include "core/frame_tail.h"
#include "core/ignorable.h"

enum { /* bytes 0 to 31 are those of core/frame_header.h */
       AT_SEED = 32,
       AT_ELEMENT_FIRST = 40,
       AT_KEEP_LEN = 48,
       AT_ROUND = 56,
       AT_RANK = 60,
       AT_BLOCK_LEN = 64,
       AT_LEVEL_MAX = 68,
       AT_PAYLOAD_SIZE = 72
};

/* Bytes 32 to 79, the part of the extension that this version knows. */
enum { EXTENSION_UNITS = (GW_CLASSIC_FRAME_HEADER_SIZE - GW_FRAME_HEADER_SIZE) / GW_FRAME_UNIT_SIZE };

static gw_frame_tail tail_of(const gw_classic_frame_info *info)
{
    const gw_frame_tail tail = {info->payload_offset + info->payload_size, info->frame_size,
                                (info->flags & GW_CLASSIC_FLAG_CHECKSUM) != 0};
    return tail;
}

static uint64_t size_from(const gw_classic_frame_info *info)
{
    const gw_frame_tail tail = tail_of(info);
    return gw_frame_tail_size(tail.payload_end, tail.has_checksum);
}

void gw_classic_frame_place(gw_classic_frame_info *info)
{
    info->payload_offset = GW_CLASSIC_FRAME_HEADER_SIZE;
    info->frame_size = size_from(info);
}

size_t gw_classic_frame_size_of(size_t payload_size, int checksum)
{
    const size_t around = GW_CLASSIC_FRAME_HEADER_SIZE + (checksum != 0 ? 4u : 0u);
    return payload_size > SIZE_MAX - around - 15 ? SIZE_MAX : gw_round16(payload_size + around);
}

static void write_header(uint8_t *dst, const gw_classic_frame_info *info)
{
    const uint32_t codec_bytes = (uint32_t)info->scheme | (uint32_t)info->values << 8 |
                                 (uint32_t)info->coding << 16 | (uint32_t)info->norm << 24;
    const gw_frame_header header = {
        GW_FRAME_CODEC_CLASSIC, (uint8_t)info->dtype, 0, EXTENSION_UNITS, info->flags, codec_bytes, info->len,
        info->frame_size};

    gw_frame_header_write(dst, &header);
    gw_store64(dst + AT_SEED, info->seed);
    gw_store64(dst + AT_ELEMENT_FIRST, info->element_first);
    gw_store64(dst + AT_KEEP_LEN, info->keep_len);
    gw_store32(dst + AT_ROUND, info->round);
    gw_store32(dst + AT_RANK, info->rank);
    gw_store32(dst + AT_BLOCK_LEN, info->block_len);
    gw_store32(dst + AT_LEVEL_MAX, info->level_max);
    gw_store64(dst + AT_PAYLOAD_SIZE, info->payload_size);
}

void gw_classic_frame_seal(uint8_t *dst, const gw_classic_frame_info *info, const gw_kernels *kernels)
{
    const gw_frame_tail tail = tail_of(info);

    write_header(dst, info);
    gw_frame_tail_write(&tail, dst, kernels->crc32c);
}

static gw_status read_header(const uint8_t *src, size_t src_size, gw_classic_frame_info *info)
{
    gw_frame_header header;
    const gw_status status = gw_frame_header_read(&header, src, src_size, GW_FRAME_CODEC_CLASSIC);
    if (status != GW_OK) {
        return status;
    }
    info->dtype = (gw_dtype)header.dtype;
    info->flags = header.flags;
    info->scheme = (gw_classic_scheme)(header.codec_bytes & 255);
    info->values = (gw_classic_values)(header.codec_bytes >> 8 & 255);
    info->coding = (gw_classic_coding)(header.codec_bytes >> 16 & 255);
    info->norm = (gw_classic_norm)(header.codec_bytes >> 24);
    info->len = header.len;
    info->frame_size = header.frame_size;
    /* From the stated size: what follows the known part belongs to a later version. */
    info->payload_offset = GW_FRAME_HEADER_SIZE + GW_FRAME_UNIT_SIZE * (uint64_t)header.extension_units;
    if (header.unit_log2 != 0) {
        return GW_ERR_HEADER;
    }
    if ((info->flags & ~GW_CLASSIC_FLAGS_KNOWN) != 0 || gw_classic_family_of(info->scheme) == NULL) {
        return GW_ERR_UNSUPPORTED;
    }
    if (header.extension_units < EXTENSION_UNITS || info->len > GW_CLASSIC_LEN_MAX) {
        return GW_ERR_HEADER;
    }
    if (src_size < GW_CLASSIC_FRAME_HEADER_SIZE) {
        return GW_ERR_SHORT;
    }
    info->seed = gw_load64(src + AT_SEED);
    info->element_first = gw_load64(src + AT_ELEMENT_FIRST);
    info->keep_len = gw_load64(src + AT_KEEP_LEN);
    info->round = gw_load32(src + AT_ROUND);
    info->rank = gw_load32(src + AT_RANK);
    info->block_len = gw_load32(src + AT_BLOCK_LEN);
    info->level_max = gw_load32(src + AT_LEVEL_MAX);
    info->payload_size = gw_load64(src + AT_PAYLOAD_SIZE);
    /* Neither comparison overflows, and no sum of wire values comes before them. */
    if (info->element_first > UINT64_MAX - info->len || info->payload_size > info->frame_size) {
        return GW_ERR_HEADER;
    }
    if (info->frame_size > UINT64_MAX - 4096 || size_from(info) != info->frame_size) {
        return GW_ERR_HEADER;
    }
    if (info->len == 0 && info->payload_size != 0) {
        return GW_ERR_HEADER;
    }
    return gw_classic_family_of(info->scheme)->check_header(info);
}

gw_status gw_classic_frame_peek(const void *src, size_t src_size, gw_classic_frame_info *info)
{
    if (info == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(info, 0, sizeof *info);
    const gw_status status = src == NULL && src_size > 0 ? GW_ERR_ARG : read_header(src, src_size, info);
    if (status != GW_OK) {
        GW_MEMSET(info, 0, sizeof *info);
    }
    return status;
}

gw_status gw_classic_frame_open(const gw_classic_frame *frame, gw_classic_frame_info *info)
{
    if (frame == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_classic_frame_peek(frame->data, frame->size, info);
    if (status != GW_OK) {
        return status;
    }
    if (info->len > frame->len_max || info->frame_size > SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    const gw_frame_tail tail = tail_of(info);
    status = gw_frame_tail_check(&tail, frame->data, frame->size);
    if (status != GW_OK) {
        return status;
    }
    return gw_are_ignorable_parts_valid(frame->data, GW_FRAME_UNIT_SIZE * EXTENSION_UNITS,
                                        (uint32_t)info->payload_offset - GW_FRAME_HEADER_SIZE)
               ? GW_OK
               : GW_ERR_HEADER;
}

size_t gw_classic_decode_workspace_size(const gw_classic_frame_info *info)
{
    if (info == NULL || info->len == 0) {
        return 0;
    }
    const gw_classic_family *family = gw_classic_family_of(info->scheme);
    return family != NULL ? gw_classic_workspace_bytes(family->decode_workspace_size(info)) : 0;
}

gw_status gw_classic_reading_begin(gw_classic_reading *reading, const gw_classic_frame *frame,
                                   const gw_workspace *workspace)
{
    uint8_t *scratch;

    GW_MEMSET(reading, 0, sizeof *reading);
    gw_status status = gw_classic_frame_open(frame, &reading->info);
    if (status != GW_OK) {
        return status;
    }
    reading->family = gw_classic_family_of(reading->info.scheme);
    const size_t need = reading->info.len > 0 ? reading->family->decode_workspace_size(&reading->info) : 0;
    status = gw_classic_workspace_take(&scratch, workspace, need);
    if (status != GW_OK) {
        return status;
    }
    gw_kernels_init(&reading->kernels, frame->backends);
    reading->payload.info = &reading->info;
    reading->payload.kernels = &reading->kernels;
    reading->payload.data = (const uint8_t *)frame->data + reading->info.payload_offset;
    reading->payload.size = (size_t)reading->info.payload_size;
    reading->payload.workspace = scratch;
    return GW_OK;
}

gw_status gw_classic_reading_check(const gw_classic_reading *reading)
{
    const gw_frame_tail tail = tail_of(&reading->info);
    const uint8_t *src = reading->payload.data - reading->info.payload_offset;

    if (!gw_frame_tail_is_intact(&tail, src, reading->kernels.crc32c)) {
        return GW_ERR_CHECKSUM;
    }
    return reading->info.len > 0 ? reading->family->check(&reading->payload) : GW_OK;
}

gw_status gw_classic_reading_decode(const gw_classic_reading *reading, const gw_classic_sink *sink,
                                    const void *lanes, gw_classic_target *target)
{
    const uint64_t len = reading->info.len;
    const gw_status status = gw_classic_reading_check(reading);

    if (status != GW_OK) {
        if (!sink->is_sum && len > 0) {
            GW_MEMSET(target->values, 0, (size_t)len * gw_dtype_size((gw_dtype)sink->dtype));
        }
        return status;
    }
    if (len > 0 && lanes != NULL) {
        reading->family->sum_decode(lanes, &reading->payload, sink);
    } else if (len > 0) {
        reading->family->decode(&reading->payload, sink);
    }
    target->len = len;
    return GW_OK;
}

gw_status gw_classic_frame_check(const gw_classic_frame *frame, gw_classic_frame_info *info,
                                 const gw_workspace *workspace)
{
    gw_classic_reading reading;

    if (info == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_classic_reading_begin(&reading, frame, workspace);
    if (status == GW_OK) {
        status = gw_classic_reading_check(&reading);
    }
    GW_MEMSET(info, 0, sizeof *info);
    if (status == GW_OK) {
        *info = reading.info;
    }
    return status;
}
