/*
 * The byte layout of THC frames: reading and writing side by side. Integers only.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_frame.h"

#include "core/ignorable.h"

enum { /* bytes 0 to 31 are those of core/frame_header.h */
       AT_BITS = 32,
       AT_GRANULARITY = 33,
       AT_LANE_BITS = 34,
       AT_ZERO = 35,
       AT_WORKER_MAX = 36,
       AT_RANK = 38,
       AT_THRESHOLD = 40,
       AT_BLOCK_FIRST = 44,
       AT_ROUND = 48,
       AT_JOB = 52,
       AT_SEED = 56,
       AT_TABLE = 64,
       AT_TAIL = 80
};

/* Bytes 32 to 95, the part of the extension that this version knows. */
enum { EXTENSION_UNITS = (GW_THC_FRAME_HEADER_SIZE - GW_FRAME_HEADER_SIZE) / GW_FRAME_UNIT_SIZE };

static unsigned payload_bits(const gw_thc_frame_info *info)
{
    return (info->flags & GW_THC_FLAG_SUM) != 0 ? info->options.lane_bits : info->options.table.bits;
}

size_t gw_thc_frame_block_offset(const gw_thc_frame_info *info, uint64_t i)
{
    return (size_t)(info->payload_offset + (i << info->options.block_log2) / 8 * payload_bits(info));
}

static gw_frame_tail tail_of(const gw_thc_frame_info *info)
{
    const gw_frame_tail tail = {info->payload_offset + info->payload_size, info->frame_size,
                                (info->flags & GW_THC_FLAG_CHECKSUM) != 0};
    return tail;
}

/* The best there is, NULL where none is needed. */
static gw_crc32c_fn *crc32c_of(const gw_frame_tail *tail)
{
    gw_kernels kernels = {.crc32c = NULL};

    if (tail->has_checksum) {
        gw_kernels_init(&kernels, GW_BACKEND_ALL);
    }
    return kernels.crc32c;
}

static void place_at(gw_thc_frame_info *info, uint64_t norms_offset)
{
    uint64_t patterns = gw_thc_pattern_count(&info->options);
    uint64_t blocks = info->block_count;
    uint64_t lanes = gw_thc_lanes_of(info->options.block_log2, info->len, 0, blocks);
    uint64_t sets = 0;

    if ((info->flags & GW_THC_FLAG_SUM) != 0) {
        sets = (info->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? blocks : 1;
    }
    info->norms_offset = norms_offset;
    info->sets_offset = info->norms_offset + blocks * patterns * 4;
    info->set_size = sets > 0 ? (info->options.worker_max + 63u) / 64u * 8u : 0;
    info->payload_offset = info->sets_offset + sets * info->set_size;
    info->payload_size = lanes / 8 * payload_bits(info);
    const gw_frame_tail tail = tail_of(info);
    info->frame_size = gw_frame_tail_size(tail.payload_end, tail.has_checksum);
}

void gw_thc_frame_place(gw_thc_frame_info *info)
{
    place_at(info, GW_THC_FRAME_HEADER_SIZE);
}

void gw_thc_frame_write_header(uint8_t *dst, const gw_thc_frame_info *info)
{
    const gw_thc_options *o = &info->options;
    const gw_frame_header header = {GW_FRAME_CODEC_THC, (uint8_t)o->dtype, (uint8_t)o->block_log2,
                                    EXTENSION_UNITS,    info->flags,       (uint32_t)info->block_count,
                                    info->len,          info->frame_size};

    GW_MEMSET(dst, 0, GW_THC_FRAME_HEADER_SIZE);
    gw_frame_header_write(dst, &header);
    dst[AT_BITS] = o->table.bits;
    dst[AT_GRANULARITY] = o->table.granularity;
    dst[AT_LANE_BITS] = (uint8_t)o->lane_bits;
    gw_store16(dst + AT_WORKER_MAX, (uint16_t)o->worker_max);
    gw_store16(dst + AT_RANK, (uint16_t)info->rank);
    gw_store32(dst + AT_THRESHOLD, o->threshold_bits);
    gw_store32(dst + AT_BLOCK_FIRST, (uint32_t)info->block_first);
    gw_store32(dst + AT_ROUND, info->round);
    gw_store32(dst + AT_JOB, o->job);
    gw_store64(dst + AT_SEED, o->seed);
    GW_MEMCPY(dst + AT_TABLE, o->table.value, sizeof o->table.value);
}

/* Bytes 0 to 31. */
static gw_status read_common(const uint8_t *src, size_t src_size, gw_thc_frame_info *info)
{
    gw_frame_header header;
    const gw_status status = gw_frame_header_read(&header, src, src_size, GW_FRAME_CODEC_THC);
    if (status != GW_OK) {
        return status;
    }
    info->options.dtype = (gw_dtype)header.dtype;
    info->options.block_log2 = header.unit_log2;
    info->flags = header.flags;
    info->block_count = header.codec_bytes;
    info->len = header.len;
    info->frame_size = header.frame_size;
    /* From the stated size: what follows the known part belongs to a later version. */
    info->norms_offset = GW_FRAME_HEADER_SIZE + GW_FRAME_UNIT_SIZE * (uint64_t)header.extension_units;
    unsigned log2 = info->options.block_log2;
    if (log2 < GW_THC_BLOCK_LOG2_MIN || log2 > GW_THC_BLOCK_LOG2_MAX) {
        return GW_ERR_HEADER;
    }
    if ((info->flags & ~GW_THC_FLAGS_KNOWN) != 0) {
        return GW_ERR_UNSUPPORTED;
    }
    if ((info->flags & GW_THC_FLAG_BLOCK_SETS) != 0 && (info->flags & GW_THC_FLAG_SUM) == 0) {
        return GW_ERR_HEADER;
    }
    if (header.extension_units < EXTENSION_UNITS) {
        return GW_ERR_HEADER;
    }
    /* No product of wire values comes before this. */
    if (info->block_count != gw_unit_count(info->len, log2)) {
        return GW_ERR_HEADER;
    }
    return src_size < GW_THC_FRAME_HEADER_SIZE ? GW_ERR_SHORT : GW_OK;
}

/* Bytes 32 to 95, and the sizes and offsets that follow. */
static gw_status read_extension(const uint8_t *src, gw_thc_frame_info *info)
{
    gw_thc_options *o = &info->options;
    int is_sum = (info->flags & GW_THC_FLAG_SUM) != 0;

    o->transform = (info->flags & GW_THC_FLAG_ROTATED) != 0 ? GW_THC_ROTATED : GW_THC_PLAIN;
    o->nonfinite =
        (info->flags & GW_THC_FLAG_NONFINITE) != 0 ? GW_THC_NONFINITE_PROPAGATE : GW_THC_NONFINITE_ERROR;
    o->checksum = (info->flags & GW_THC_FLAG_CHECKSUM) != 0;
    o->backends = GW_BACKEND_ALL;
    o->table.bits = src[AT_BITS];
    o->table.granularity = src[AT_GRANULARITY];
    o->lane_bits = src[AT_LANE_BITS];
    o->worker_max = gw_load16(src + AT_WORKER_MAX);
    info->rank = gw_load16(src + AT_RANK);
    o->threshold_bits = gw_load32(src + AT_THRESHOLD);
    info->block_first = gw_load32(src + AT_BLOCK_FIRST);
    info->round = gw_load32(src + AT_ROUND);
    o->job = gw_load32(src + AT_JOB);
    o->seed = gw_load64(src + AT_SEED);
    GW_MEMCPY(o->table.value, src + AT_TABLE, sizeof o->table.value);

    if (o->table.bits < 1 || o->table.bits > GW_THC_BITS_MAX) {
        return GW_ERR_HEADER;
    }
    if (src[AT_ZERO] != 0) {
        return GW_ERR_HEADER;
    }
    gw_status status = gw_thc_check_sum(o->worker_max, o->table.granularity, o->lane_bits);
    if (status != GW_OK) {
        return status == GW_ERR_OPTION ? GW_ERR_HEADER : status;
    }
    if (is_sum ? info->rank != 0 : info->rank >= o->worker_max) {
        return is_sum ? GW_ERR_HEADER : GW_ERR_DUP;
    }
    status = gw_thc_options_check(o);
    if (status != GW_OK) { /* the table, or the threshold: everything else was checked */
        return status == GW_ERR_OPTION ? GW_ERR_HEADER : status;
    }
    if (info->block_first + info->block_count > (uint64_t)1 << 32) {
        return GW_ERR_HEADER;
    }
    const uint64_t stated_size = info->frame_size;
    place_at(info, info->norms_offset);
    return info->frame_size == stated_size && gw_is_zero(src + AT_TAIL, GW_THC_FRAME_HEADER_SIZE - AT_TAIL)
               ? GW_OK
               : GW_ERR_HEADER;
}

gw_status gw_thc_frame_peek(const void *src, size_t src_size, gw_thc_frame_info *info)
{
    if (info == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(info, 0, sizeof *info);
    gw_status status = src == NULL && src_size > 0 ? GW_ERR_ARG : read_common(src, src_size, info);
    if (status == GW_OK) {
        status = read_extension(src, info);
    }
    if (status != GW_OK) {
        GW_MEMSET(info, 0, sizeof *info);
    }
    return status;
}

gw_status gw_thc_frame_open(const gw_thc_frame *frame, gw_thc_frame_info *info)
{
    if (frame == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = gw_thc_frame_peek(frame->data, frame->size, info);
    if (status != GW_OK) {
        return status;
    }
    info->options.backends = frame->backends;
    if (info->len > frame->len_max || info->frame_size > SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    const gw_frame_tail tail = tail_of(info);
    status = gw_frame_tail_check(&tail, frame->data, frame->size);
    if (status != GW_OK) {
        return status;
    }
    return gw_are_ignorable_parts_valid(frame->data, GW_FRAME_UNIT_SIZE * EXTENSION_UNITS,
                                        (uint32_t)info->norms_offset - GW_FRAME_HEADER_SIZE)
               ? GW_OK
               : GW_ERR_HEADER;
}

int gw_thc_frame_checksum_good(const uint8_t *src, const gw_thc_frame_info *info)
{
    const gw_frame_tail tail = tail_of(info);
    return gw_frame_tail_is_intact(&tail, src, crc32c_of(&tail));
}

void gw_thc_frame_seal(uint8_t *dst, const gw_thc_frame_info *info)
{
    const gw_frame_tail tail = tail_of(info);
    gw_frame_tail_write(&tail, dst, crc32c_of(&tail));
}

void gw_thc_frame_patterns(uint32_t patterns[2], const uint8_t *src, const gw_thc_frame_info *info,
                           uint64_t i)
{
    size_t per_block = gw_thc_pattern_count(&info->options);
    const uint8_t *at = src + info->norms_offset + (size_t)i * per_block * 4;

    patterns[0] = gw_load32(at);
    patterns[1] = per_block == 2 ? gw_load32(at + 4) : 0;
}

gw_thc_range gw_thc_frame_range(const gw_thc_frame_info *info)
{
    gw_thc_range range;

    range.len = (info->block_first << info->options.block_log2) + info->len;
    range.block_first = info->block_first;
    range.block_count = info->block_count;
    range.round = info->round;
    range.rank = info->rank;
    return range;
}

uint32_t gw_thc_frame_members(const void *src, const gw_thc_frame_info *info, uint64_t block)
{
    if ((info->flags & GW_THC_FLAG_SUM) == 0) {
        return 1;
    }
    return gw_thc_set_members((const uint8_t *)src + gw_thc_frame_set_offset(info, block),
                              info->options.worker_max);
}

gw_status gw_thc_frame_check_block(const gw_thc_state *thc, const uint8_t *src, const gw_thc_frame_info *info,
                                   uint64_t i)
{
    uint32_t patterns[2];
    gw_thc_block block = {.lanes = src + gw_thc_frame_block_offset(info, i),
                          .lane_count = gw_thc_frame_block_lanes(info, i),
                          .lane_bits = info->options.lane_bits,
                          .patterns = patterns};

    gw_thc_frame_patterns(patterns, src, info, i);
    gw_thc_block_kind kind = gw_thc_block_read(thc, patterns);
    if (kind == GW_THC_BLOCK_INVALID) {
        return GW_ERR_CORRUPT;
    }
    if ((info->flags & GW_THC_FLAG_SUM) == 0) {
        size_t size = block.lane_count / 8 * info->options.table.bits;
        return kind != GW_THC_BLOCK_CODED && !gw_is_zero(block.lanes, size) ? GW_ERR_CORRUPT : GW_OK;
    }
    block.members = gw_thc_frame_members(src, info, i);
    return block.members != UINT32_MAX ? gw_thc_block_check(thc, &block) : GW_ERR_DUP;
}

gw_status gw_thc_frame_check_empty(const uint8_t *src, const gw_thc_frame_info *info)
{
    if (info->block_count != 0 || info->set_size == 0) {
        return GW_OK;
    }
    return gw_thc_frame_members(src, info, 0) != UINT32_MAX ? GW_OK : GW_ERR_DUP;
}

static gw_status check_frame(const gw_thc_frame *frame, gw_thc_frame_info *info, uint64_t *bad_block)
{
    gw_thc_state thc;

    gw_status status = gw_thc_frame_open(frame, info);
    if (status != GW_OK) {
        return status;
    }
    if (!gw_thc_frame_checksum_good(frame->data, info)) {
        return GW_ERR_CHECKSUM;
    }
    status = gw_thc_frame_check_empty(frame->data, info);
    if (status == GW_OK) {
        status = gw_thc_state_init(&thc, &info->options);
    }
    for (uint64_t i = 0; status == GW_OK && i < info->block_count; i++) {
        status = gw_thc_frame_check_block(&thc, frame->data, info, i);
        if (status != GW_OK) {
            gw_thc_report_block(bad_block, i);
        }
    }
    return status;
}

gw_status gw_thc_frame_check(const gw_thc_frame *frame, gw_thc_frame_info *info, uint64_t *bad_block)
{
    gw_thc_report_block(bad_block, UINT64_MAX);
    const gw_status status = check_frame(frame, info, bad_block);
    if (status != GW_OK && info != NULL) {
        GW_MEMSET(info, 0, sizeof *info);
    }
    return status;
}
