/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp/gcomp_sum.h"

/* Two buffers that the sums of a step alternate between: decoding adds from one to the other. */
typedef struct sum_buffers {
    uint8_t *at[2]; /* the sums end in the first */
} sum_buffers;

/* A step has at most a group of values. One bit for each of its chunks says that it is bad. */
enum { STEP_CHUNKS_MAX = 1 << (GW_GROUP_LOG2 - GW_CHUNK_LOG2_MIN) };

typedef struct sum_step {
    uint64_t first; /* value; begins a chunk of the frames */
    size_t len;
    uint32_t bad[STEP_CHUNKS_MAX / 32];
    gw_workspace workspace;
} sum_step;

static int is_bad(const sum_step *step, size_t chunk)
{
    return (step->bad[chunk / 32] >> chunk % 32 & 1) != 0;
}

void gw_sum_begin(gw_sum *sum)
{
    sum->status = GW_OK;
    sum->bad_frame = 0;
    sum->bad_chunk = UINT64_MAX;
}

static size_t value_size(const gw_sum *sum)
{
    return gw_traits_of(sum->dtype)->size;
}

static void note_bad(gw_sum *sum, sum_step *step, size_t chunk, size_t frame, gw_status status)
{
    const uint64_t index = (step->first >> sum->chunk_log2) + chunk;
    step->bad[chunk / 32] |= 1u << chunk % 32;
    if (index < sum->bad_chunk) {
        sum->bad_chunk = index;
        sum->bad_frame = frame;
        sum->status = status;
    }
}

/* Prepares to decode a frame, whose header is checked again. */
static gw_status open_frame(const gw_sum *sum, size_t index, const gw_workspace *workspace, gw_decoding *d)
{
    const gw_gcomp_frame frame = {sum->frames[index].data, sum->frames[index].size, sum->map};
    const gw_gcomp_frame_info checked = {
        .len = sum->len, .chunk_log2 = sum->chunk_log2, .dtype = (gw_dtype)sum->dtype};
    return gw_decoding_reopen(d, sum->codec, &frame, &checked, workspace);
}

/* to[0..step->len) = from + frame, or the frame alone if from is NULL. Bad chunks become zeros. */
static void add_frame(gw_sum *sum, sum_step *step, size_t index, const uint8_t *from, uint8_t *to)
{
    const size_t size = value_size(sum), chunk_len = (size_t)1 << sum->chunk_log2;
    gw_decoding d;
    const gw_status opened = open_frame(sum, index, &step->workspace, &d);
    size_t chunk = 0;
    for (size_t at = 0; at < step->len; at += chunk_len, chunk++) {
        const size_t len = gw_min_size(step->len - at, chunk_len);
        gw_status status = opened;
        if (status == GW_OK && !is_bad(step, chunk)) {
            d.addend = from == NULL ? NULL : from + at * size;
            d.beside = d.addend;
            d.beside_size = from == NULL ? 0 : len * size;
            status = gw_decode_chunk(&d, (step->first >> sum->chunk_log2) + chunk, to + at * size);
        }
        if (status != GW_OK) {
            note_bad(sum, step, chunk, index, status);
        }
        if (is_bad(step, chunk)) {
            GW_MEMSET(to + at * size, 0, len * size);
        }
    }
}

/* The sums of a step in buffers->at[0]. There is at least one frame. */
static void add_step(gw_sum *sum, sum_step *step, const sum_buffers *buffers)
{
    const size_t size = value_size(sum);
    const uint8_t *own = sum->values + (size_t)step->first * size;
    /* Addition commutes, so own values that come first or second are what the first frame is added to. */
    const uint8_t *from = sum->own < 2 ? own : NULL;
    size_t left = sum->count - 1;
    for (size_t i = 0; i < sum->count; i++) {
        uint8_t *current = buffers->at[left & 1]; /* where the sum is so far, unless it is in `own` */
        if (i != sum->own) {
            left--;
            current = buffers->at[left & 1];
            add_frame(sum, step, i, from, current);
            from = current;
        } else if (i >= 2) {
            const gw_gcomp_frame_info info = {.dtype = (gw_dtype)sum->dtype};
            gw_add_values(sum->codec, &info, current, current, own, step->len);
        }
    }
}

/* Values per step of an encode: whole groups of the outgoing frame and whole chunks of the incoming ones.
 * Both lengths are powers of two (a group is 2^17 values or one chunk, a chunk 2^10 to 2^15), so the larger
 * is a multiple of the smaller. */
static size_t encode_step_len(const gw_sum *sum, const gw_encoding *e)
{
    const size_t group = (size_t)gw_group_chunks(e->codec) << e->info.chunk_log2;
    const size_t chunk = (size_t)1 << sum->chunk_log2;
    return group > chunk ? group : chunk;
}

gw_status gw_sum_encode(gw_sum *sum, gw_encoding *e, gw_buffer *dst, const gw_workspace *workspace)
{
    const size_t size = value_size(sum), step_len = encode_step_len(sum, e);
    const size_t group = (size_t)gw_group_chunks(e->codec) << e->info.chunk_log2;
    gw_encoding_aim(e, dst);
    for (uint64_t first = 0; first < sum->len; first += step_len) {
        sum_step step = {first, (size_t)gw_min_u64(step_len, sum->len - first), {0}, *workspace};
        const uint8_t *sums = sum->values + (size_t)first * size;
        if (sum->count > 1) {
            /* The rest of dst serves as a buffer: the bound of a frame leaves room there for all values that
             * are not encoded yet. */
            const sum_buffers buffers = {{e->scratch.sums, e->payload}};
            add_step(sum, &step, &buffers);
            sums = e->scratch.sums;
        }
        if (sum->status != GW_OK) {
            return sum->status;
        }
        for (size_t at = 0; at < step.len; at += group) {
            gw_encode_group(e, (first + at) >> e->info.chunk_log2, sums + at * size);
        }
    }
    e->info.frame_size = e->offset;
    gw_encoding_finish(e, dst);
    return GW_OK;
}

/* Stores the chunks of a step that are not bad. */
static void store_step(const gw_sum *sum, const sum_step *step, const uint8_t *sums, uint8_t *out,
                       float scale)
{
    const size_t size = value_size(sum), chunk_len = (size_t)1 << sum->chunk_log2;
    size_t chunk = 0;
    for (size_t at = 0; at < step->len; at += chunk_len, chunk++) {
        const size_t len = gw_min_size(step->len - at, chunk_len);
        if (!is_bad(step, chunk)) {
            GW_MEMMOVE(out + at * size, sums + at * size, len * size);
            if (scale != 1) {
                gw_scale_values(sum->codec, out + at * size, (gw_dtype)sum->dtype, len, scale);
            }
        }
    }
}

gw_status gw_sum_store(gw_sum *sum, uint8_t *out, float scale, const gw_workspace *workspace)
{
    const size_t size = value_size(sum), step_len = (size_t)1 << (GW_GROUP_LOG2 - 1);
    gw_scratch scratch;
    gw_scratch_carve(&scratch, sum->codec, workspace->data);
    const sum_buffers buffers = {{scratch.sums, scratch.sums + step_len * size}};
    for (uint64_t first = 0; first < sum->len; first += step_len) {
        const size_t at = (size_t)first * size;
        sum_step step = {first, (size_t)gw_min_u64(step_len, sum->len - first), {0}, *workspace};
        if (sum->count > 1) {
            add_step(sum, &step, &buffers);
        }
        store_step(sum, &step, sum->count > 1 ? scratch.sums : sum->values + at, out + at, scale);
    }
    return sum->status;
}
