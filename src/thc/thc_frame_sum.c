/*
 * Sums of frames: lanes and contributor sets in a frame of their own, so that sums of sums are sums.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc/thc_aggregate.h"
#include "thc/thc_frame.h"

/* The header of an empty sum of frames like the one of *info. */
static void describe_sum(gw_thc_frame_info *sum, const gw_thc_frame_info *info, uint32_t flags)
{
    *sum = *info;
    sum->flags = (info->flags & (GW_THC_FLAG_ROTATED | GW_THC_FLAG_NONFINITE)) | GW_THC_FLAG_SUM | flags;
    sum->rank = 0;
    gw_thc_frame_place(sum);
}

gw_status gw_thc_frame_sum_init(const gw_thc_frame *like, uint32_t flags, gw_buffer *dst)
{
    gw_thc_frame_info info;
    gw_thc_frame_info sum;

    if (dst == NULL) {
        return GW_ERR_ARG;
    }
    dst->size = 0;
    if (dst->data == NULL) {
        return GW_ERR_ARG;
    }
    if ((flags & ~GW_THC_SUM_FLAGS) != 0) {
        return GW_ERR_OPTION;
    }
    gw_status status = gw_thc_frame_check(like, &info, NULL);
    if (status != GW_OK) {
        return status;
    }
    describe_sum(&sum, &info, flags);
    if (sum.frame_size > SIZE_MAX) {
        return GW_ERR_LIMIT;
    }
    if (sum.frame_size > dst->capacity) {
        return GW_ERR_DST;
    }
    uint8_t *out = dst->data;
    GW_MEMSET(out, 0, (size_t)sum.frame_size);
    gw_thc_frame_write_header(out, &sum);
    GW_MEMCPY(out + sum.norms_offset, (const uint8_t *)like->data + info.norms_offset,
              (size_t)(info.sets_offset - info.norms_offset));
    gw_thc_frame_seal(out, &sum);
    dst->size = (size_t)sum.frame_size;
    return GW_OK;
}

/* What frames of a sum have in common, in the order of comparison. Table values determine bits and
 * granularity: values after the last are zero. */
static const struct {
    const char *name;
    size_t offset, size; /* of a member of gw_thc_frame_info */
} fields[] = {
#define MEMBER(member) offsetof(gw_thc_frame_info, member), sizeof(((gw_thc_frame_info *)NULL)->member)
    [GW_THC_FIELD_NONE] = {"none", 0, 0},
    [GW_THC_FIELD_JOB] = {"job", MEMBER(options.job)},
    [GW_THC_FIELD_ROUND] = {"round", MEMBER(round)},
    [GW_THC_FIELD_DTYPE] = {"dtype", MEMBER(options.dtype)},
    [GW_THC_FIELD_BLOCK_LEN] = {"block length", MEMBER(options.block_log2)},
    [GW_THC_FIELD_TRANSFORM] = {"transform", MEMBER(options.transform)},
    [GW_THC_FIELD_NONFINITE] = {"policy for non-finite blocks", MEMBER(options.nonfinite)},
    [GW_THC_FIELD_LEN] = {"number of values", MEMBER(len)},
    [GW_THC_FIELD_BLOCK_FIRST] = {"first block", MEMBER(block_first)},
    [GW_THC_FIELD_LANE_BITS] = {"lane width", MEMBER(options.lane_bits)},
    [GW_THC_FIELD_WORKER_MAX] = {"number of workers", MEMBER(options.worker_max)},
    [GW_THC_FIELD_THRESHOLD] = {"threshold", MEMBER(options.threshold_bits)},
    [GW_THC_FIELD_SEED] = {"seed", MEMBER(options.seed)},
    [GW_THC_FIELD_TABLE] = {"table", MEMBER(options.table.value)},
    [GW_THC_FIELD_NORMS] = {"norms", 0, 0}, /* not in the header */
#undef MEMBER
};

/* The first difference between two frames of which *a and *b are the checked headers. */
static gw_thc_field compare(const uint8_t *sum, const gw_thc_frame_info *a, const uint8_t *frame,
                            const gw_thc_frame_info *b)
{
    for (uint32_t field = GW_THC_FIELD_JOB; field < GW_THC_FIELD_NORMS; field++) {
        const uint8_t *x = (const uint8_t *)(const void *)a + fields[field].offset;
        const uint8_t *y = (const uint8_t *)(const void *)b + fields[field].offset;
        for (size_t i = 0; i < fields[field].size; i++) {
            if (x[i] != y[i]) {
                return (gw_thc_field)field;
            }
        }
    }
    const uint64_t norms_size = a->sets_offset - a->norms_offset; /* equal: the geometry is */
    for (uint64_t i = 0; i < norms_size; i += 4) {
        if (gw_load32(sum + a->norms_offset + i) != gw_load32(frame + b->norms_offset + i)) {
            return GW_THC_FIELD_NORMS;
        }
    }
    return GW_THC_FIELD_NONE;
}

/* The header of a sum frame in memory; GW_ERR_STATE if it is not one. */
static gw_status open_sum(const gw_buffer *sum, gw_thc_frame_info *info)
{
    const gw_thc_frame frame = {sum->data, sum->size, UINT64_MAX, GW_BACKEND_ALL};

    return gw_thc_frame_open(&frame, info) == GW_OK && (info->flags & GW_THC_FLAG_SUM) != 0 ? GW_OK
                                                                                            : GW_ERR_STATE;
}

gw_thc_field gw_thc_frame_mismatch(const gw_buffer *sum, const gw_thc_frame *frame)
{
    gw_thc_frame_info a;
    gw_thc_frame_info b;

    if (sum == NULL || open_sum(sum, &a) != GW_OK || gw_thc_frame_open(frame, &b) != GW_OK) {
        return GW_THC_FIELD_NONE;
    }
    return compare(sum->data, &a, frame->data, &b);
}

const char *gw_thc_field_name(gw_thc_field field)
{
    return (uint32_t)field < sizeof fields / sizeof fields[0] ? fields[field].name : "unknown";
}

/* Sets of a frame against those of the sum: disjoint, or GW_ERR_DUP. */
static gw_status check_sets(const uint8_t *sum, const gw_thc_frame_info *a, const uint8_t *frame,
                            const gw_thc_frame_info *b, uint64_t *bad_block)
{
    uint64_t sets = (a->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? a->block_count : 1;

    for (uint64_t i = 0; i < sets; i++) {
        const uint8_t *own = sum + gw_thc_frame_set_offset(a, i);
        int meet = (b->flags & GW_THC_FLAG_SUM) != 0
                       ? gw_thc_sets_meet(own, frame + gw_thc_frame_set_offset(b, i), a->options.worker_max)
                       : gw_set_has(own, b->rank);
        if (meet) {
            gw_thc_report_block(bad_block, i);
            return GW_ERR_DUP;
        }
    }
    return GW_OK;
}

/* Lanes and sets of a frame that passed all checks. */
static void add_checked(uint8_t *sum, const gw_thc_frame_info *a, const uint8_t *frame,
                        const gw_thc_frame_info *b)
{
    gw_kernels kernels;
    const gw_thc_options *options = &a->options;
    int is_sum = (b->flags & GW_THC_FLAG_SUM) != 0;
    uint64_t sets = (a->flags & GW_THC_FLAG_BLOCK_SETS) != 0 ? a->block_count : 1;

    gw_kernels_init(&kernels, b->options.backends);
    for (uint64_t i = 0; i < a->block_count; i++) {
        uint8_t *lanes = sum + gw_thc_frame_block_offset(a, i);
        const uint8_t *payload = frame + gw_thc_frame_block_offset(b, i);
        size_t lane_count = gw_thc_frame_block_lanes(a, i);
        if (is_sum) {
            kernels.thc.add_lanes(lanes, payload, lane_count, options->lane_bits);
        } else {
            kernels.thc.add_indices(lanes, payload, lane_count, options->table.bits, options->table.value,
                                    options->lane_bits);
        }
    }
    for (uint64_t i = 0; i < sets; i++) {
        uint8_t *set = sum + gw_thc_frame_set_offset(a, i);
        if (is_sum) {
            gw_thc_set_join(set, frame + gw_thc_frame_set_offset(b, i), options->worker_max);
        } else {
            gw_set_put(set, b->rank);
        }
    }
    gw_thc_frame_seal(sum, a);
}

gw_status gw_thc_frame_sum_add(const gw_buffer *sum, const gw_thc_frame *frame, uint64_t *bad_block)
{
    gw_thc_frame_info a;
    gw_thc_frame_info b;

    gw_thc_report_block(bad_block, UINT64_MAX);
    if (sum == NULL || sum->data == NULL || frame == NULL || frame->data == NULL) {
        return GW_ERR_ARG;
    }
    gw_status status = open_sum(sum, &a);
    if (status == GW_OK) {
        status = gw_thc_frame_check(frame, &b, bad_block);
    }
    if (status == GW_OK) {
        gw_thc_field field = compare(sum->data, &a, frame->data, &b);
        if (field != GW_THC_FIELD_NONE) {
            status = field <= GW_THC_FIELD_ROUND ? GW_ERR_ROUND : GW_ERR_MISMATCH;
        }
    }
    if (status == GW_OK && (b.flags & GW_THC_FLAG_BLOCK_SETS) != 0 &&
        (a.flags & GW_THC_FLAG_BLOCK_SETS) == 0) {
        status = GW_ERR_OPTION;
    }
    if (status == GW_OK) {
        status = check_sets(sum->data, &a, frame->data, &b, bad_block);
    }
    if (status == GW_OK) {
        add_checked(sum->data, &a, frame->data, &b);
    }
    return status;
}
