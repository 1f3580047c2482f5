/*
 * Divides tensors into ranges of chunks, which threads encode or decode. The frames do not depend on the
 * ranges.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "codec_run.h"

#include "cli_output.h"
#include "cuda_run.h"
#include "parallel_tasks.h"

#include <stdlib.h>
#include <string.h>

/* Ranges per thread, so that chunks of unequal cost even out. */
#define RANGES_PER_THREAD 4u

/* Ranges of large tensors have about this many values, so that progress shows and memory is given back
 * early. */
#define RANGE_LEN       ((uint64_t)1 << 20)
#define RANGE_COUNT_MAX 4096u

/* From calloc: len elements and at least one. Ends the process with a message if there is no memory. */
static void *zeros(uint64_t len, size_t element_size)
{
    void *memory = len < SIZE_MAX ? calloc((size_t)len + 1, element_size) : NULL;
    if (memory == NULL) {
        gw_cli_fail(GW_CLI_IO, NULL, "out of memory");
    }
    return memory;
}

/* ---- precision map ---- */

/* Values per task; a multiple of every chunk length. */
#define MAP_RANGE_LEN ((uint64_t)1 << 20)

typedef struct map_task {
    const gw_gcomp_map_rule *rule;
    const gw_snapshot *snapshot;
    uint32_t backends;
    uint32_t chunk_log2;
    gw_map_run *run;
    uint32_t *tops;
    gw_status *statuses;
} map_task;

static uint64_t map_range(const map_task *task, uint64_t index, gw_optimizer_state *part)
{
    const uint64_t first = index * MAP_RANGE_LEN;
    const uint64_t left = task->snapshot->len - first;
    const gw_optimizer_state *state = &task->snapshot->state;
    part->param = state->param + first;
    part->m = state->m == NULL ? NULL : state->m + first;
    part->v = state->v == NULL ? NULL : state->v + first;
    part->a = state->a == NULL ? NULL : state->a + first;
    return left < MAP_RANGE_LEN ? left : MAP_RANGE_LEN;
}

/* Gives the pages of the state back that a task has read. */
static void map_release(const map_task *task, uint64_t index, uint64_t len)
{
    for (int slot = GW_SNAPSHOT_PARAM; slot <= GW_SNAPSHOT_A; slot++) {
        if (task->snapshot->len >= GW_CODEC_RUN_LARGE_LEN) {
            gw_npy_release(&task->snapshot->array[slot], index * MAP_RANGE_LEN, len);
        }
    }
}

static void map_scan_task(void *context, unsigned worker, uint64_t index)
{
    const map_task *task = context;
    gw_optimizer_state part;
    const uint64_t len = map_range(task, index, &part);
    (void)worker;
    task->statuses[index] =
        gw_gcomp_map_scan(task->rule, &part, (size_t)len, task->backends, &task->tops[index]);
    map_release(task, index, len);
}

static void map_build_task(void *context, unsigned worker, uint64_t index)
{
    const map_task *task = context;
    gw_optimizer_state part;
    const uint64_t len = map_range(task, index, &part);
    const uint64_t first = index * MAP_RANGE_LEN;
    gw_map_run *run = task->run;
    (void)worker;
    gw_status status =
        gw_gcomp_map_build(task->rule, &part, (size_t)len, run->map.base, task->backends, run->bytes + first);
    if (status == GW_OK) {
        status = gw_gcomp_map_digest(run->bytes + first, (size_t)len, task->chunk_log2,
                                     run->digest + (first >> task->chunk_log2));
    }
    map_release(task, index, len);
    task->statuses[index] = status;
}

static gw_status first_failure(const gw_status *statuses, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (statuses[i] != GW_OK) {
            return statuses[i];
        }
    }
    return GW_OK;
}

/* Both passes and the digests. */
static gw_status map_compute(map_task *task, uint64_t task_count, unsigned threads)
{
    gw_map_run *run = task->run;
    gw_parallel_tasks(threads, task_count, map_scan_task, task, 1);
    const gw_status status = first_failure(task->statuses, task_count);
    if (status != GW_OK) {
        return status;
    }
    uint32_t top = 0;
    for (uint64_t i = 0; i < task_count; i++) {
        top = task->tops[i] > top ? task->tops[i] : top;
    }
    run->map.bytes = run->bytes;
    run->map.digest = run->digest;
    run->map.len = task->snapshot->len;
    run->map.chunk_log2 = task->chunk_log2;
    run->map.base = gw_gcomp_map_base(top);
    gw_parallel_tasks(threads, task_count, map_build_task, task, 1);
    return first_failure(task->statuses, task_count);
}

void gw_map_run_make(gw_map_run *run, const gw_snapshot *snapshot, const gw_map_run_options *options)
{
    const uint64_t task_count = (snapshot->len + MAP_RANGE_LEN - 1) / MAP_RANGE_LEN;
    const uint64_t chunk_len = (uint64_t)1 << options->chunk_log2;
    memset(run, 0, sizeof *run);
    gw_gcomp_map_rule rule;
    gw_status status =
        gw_gcomp_map_rule_init(&snapshot->optimizer, options->wire_scale, &options->limits, &rule);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, snapshot->json.name, "%s: %s",
                    gw_optimizer_name(snapshot->optimizer.kind), gw_status_message(status));
    }
    run->map.wire_scale = options->wire_scale;
    run->bytes = zeros(snapshot->len, 1);
    run->digest = zeros((snapshot->len + chunk_len - 1) / chunk_len, sizeof *run->digest);
    map_task task = {.rule = &rule,
                     .snapshot = snapshot,
                     .backends = options->backends,
                     .chunk_log2 = options->chunk_log2,
                     .run = run,
                     .tops = zeros(task_count, sizeof *task.tops),
                     .statuses = zeros(task_count, sizeof *task.statuses)};
    gw_cli_timer timer = {.runs = 0, .is_once = options->is_once};
    gw_cli_progress_begin("map");
    while (status == GW_OK && gw_cli_timer_next(&timer)) {
        status = map_compute(&task, task_count, options->threads);
    }
    gw_cli_progress_end();
    run->seconds = gw_cli_timer_median(&timer);
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_BAD_DATA, snapshot->json.name, "precision map: %s", gw_status_message(status));
    }
    free(task.tops);
    free(task.statuses);
}

void gw_map_run_free(gw_map_run *run)
{
    free(run->bytes);
    free(run->digest);
    memset(run, 0, sizeof *run);
}

/* ---- ranges ---- */

/* Chooses how many chunks a range has, a multiple of `align`. */
static void ranges_choose(uint64_t len, uint64_t chunk_count, uint64_t align, unsigned threads,
                          uint64_t *range_len, uint64_t *range_count)
{
    *range_len = chunk_count;
    *range_count = 0;
    if (chunk_count == 0 || (threads <= 1 && len < GW_CODEC_RUN_LARGE_LEN)) {
        return;
    }
    const uint64_t count_min = (uint64_t)(threads > 8 ? threads : 8) * RANGES_PER_THREAD;
    const uint64_t count_large = len / RANGE_LEN < RANGE_COUNT_MAX ? len / RANGE_LEN : RANGE_COUNT_MAX;
    const uint64_t wanted = count_large > count_min ? count_large : count_min;
    const uint64_t unit_count = (chunk_count + align - 1) / align;
    *range_len = (unit_count + wanted - 1) / wanted * align;
    *range_count = (chunk_count + *range_len - 1) / *range_len;
}

static uint64_t range_chunks(uint64_t chunk_count, uint64_t range_len, uint64_t index)
{
    const uint64_t left = chunk_count - index * range_len;
    return left < range_len ? left : range_len;
}

/* ---- encode ---- */

static void encode_areas_init(gw_encode_run *run, uint64_t chunk_count)
{
    const uint64_t len = run->source->len;
    run->parts = zeros(run->range_count, sizeof *run->parts);
    run->statuses = zeros(run->range_count, sizeof *run->statuses);
    size_t size = 0;
    for (uint64_t i = 0; i < run->range_count; i++) {
        gw_gcomp_part *part = &run->parts[i];
        part->range.chunk_first = i * run->range_len;
        part->range.chunk_count = range_chunks(chunk_count, run->range_len, i);
        /* Areas do not share cache lines. */
        part->capacity = (gw_gcomp_range_bound(run->codec, len, &part->range) + 63) / 64 * 64;
        size += part->capacity;
    }
    run->areas = gw_cli_alloc(size);
    uint8_t *area = run->areas;
    for (uint64_t i = 0; i < run->range_count; i++) {
        run->parts[i].area = area;
        area += run->parts[i].capacity;
    }
}

void gw_encode_run_init(gw_encode_run *run, const gw_gcomp *codec, const gw_gcomp_source *source,
                        unsigned threads)
{
    memset(run, 0, sizeof *run);
    run->codec = codec;
    run->source = source;
    run->threads = threads;
    run->workspace_size = gw_gcomp_workspace_size(codec);
    run->workspaces = gw_cli_alloc_array(threads, run->workspace_size);
    run->frame_capacity = gw_gcomp_frame_bound(codec, source->len);
    run->frame = gw_cli_alloc(run->frame_capacity);
    const uint64_t chunk_count = gw_gcomp_chunk_count(codec, source->len);
    ranges_choose(source->len, chunk_count, gw_gcomp_range_align(codec), threads, &run->range_len,
                  &run->range_count);
    if (run->range_count != 0) {
        encode_areas_init(run, chunk_count);
    }
}

void gw_encode_run_free(gw_encode_run *run)
{
    free(run->workspaces);
    free(run->parts);
    free(run->statuses);
    free(run->areas);
    free(run->frame);
    memset(run, 0, sizeof *run);
}

static gw_workspace workspace_of(uint8_t *workspaces, size_t size, unsigned worker)
{
    return (gw_workspace){workspaces + worker * size, size};
}

static void encode_task(void *context, unsigned worker, uint64_t index)
{
    gw_encode_run *run = context;
    const gw_workspace workspace = workspace_of(run->workspaces, run->workspace_size, worker);
    run->statuses[index] = gw_gcomp_encode_range(run->codec, run->source, &run->parts[index], &workspace);
    if (run->released != NULL) {
        const uint64_t first = run->parts[index].range.chunk_first << run->chunk_log2;
        const uint64_t len = run->parts[index].range.chunk_count << run->chunk_log2;
        const uint64_t left = run->source->len - first;
        gw_npy_release(run->released, first, len < left ? len : left);
    }
}

static void join_task(void *context, unsigned worker, uint64_t index)
{
    gw_encode_run *run = context;
    (void)worker;
    const gw_buffer dst = {run->frame, run->frame_capacity, run->frame_size};
    run->statuses[index] = gw_gcomp_join_part(run->codec, run->source, run->parts, (size_t)run->range_count,
                                              (size_t)index, &dst);
    if (run->released != NULL) {
        gw_memory_release(run->parts[index].area, run->parts[index].capacity);
    }
}

void gw_encode_run_release(gw_encode_run *run, const gw_npy *input, uint32_t chunk_log2)
{
    run->released = run->source->len >= GW_CODEC_RUN_LARGE_LEN ? input : NULL;
    run->chunk_log2 = chunk_log2;
}

gw_status gw_encode_run_once(gw_encode_run *run, int progress)
{
    run->frame_size = 0;
    if (gw_cuda_run_is_on()) {
        return gw_cuda_run_encode(run->codec, run->source, run->frame, run->frame_capacity, &run->frame_size);
    }
    gw_buffer dst = {run->frame, run->frame_capacity, 0};
    if (run->range_count == 0) {
        const gw_workspace workspace = workspace_of(run->workspaces, run->workspace_size, 0);
        const gw_status status = gw_gcomp_encode(run->codec, run->source, &dst, &workspace);
        run->frame_size = dst.size;
        return status;
    }
    gw_parallel_tasks(run->threads, run->range_count, encode_task, run, progress);
    gw_status status = first_failure(run->statuses, run->range_count);
    if (status == GW_OK) {
        status = gw_gcomp_join_begin(run->codec, run->source, run->parts, (size_t)run->range_count, &dst);
        run->frame_size = dst.size;
    }
    if (status != GW_OK) {
        return status;
    }
    gw_parallel_tasks(run->threads, run->range_count, join_task, run, 0);
    return first_failure(run->statuses, run->range_count);
}

gw_status gw_encode_run_timed(gw_encode_run *run, gw_cli_timer *timer)
{
    gw_status status = GW_OK;
    gw_cli_progress_begin("encode");
    while (status == GW_OK && gw_cli_timer_next(timer)) {
        status = gw_encode_run_once(run, timer->runs == 0);
    }
    gw_cli_progress_end();
    return status;
}

/* ---- decode ---- */

void gw_decode_run_init(gw_decode_run *run, const gw_gcomp *codec, const gw_gcomp_frame *frame,
                        const gw_gcomp_frame_info *info, unsigned threads)
{
    memset(run, 0, sizeof *run);
    run->codec = codec;
    run->frame = *frame;
    run->info = *info;
    run->threads = threads;
    run->workspace_size = gw_gcomp_workspace_size(codec);
    run->workspaces = gw_cli_alloc_array(threads, run->workspace_size);
    run->dst = gw_cli_alloc_array(info->len, gw_dtype_size(info->dtype));
    ranges_choose(info->len, info->chunk_count, 1, threads, &run->range_len, &run->range_count);
    run->statuses = zeros(run->range_count, sizeof *run->statuses);
    run->targets = zeros(run->range_count, sizeof *run->targets);
}

void gw_decode_run_free(gw_decode_run *run)
{
    free(run->workspaces);
    free(run->dst);
    free(run->statuses);
    free(run->targets);
    memset(run, 0, sizeof *run);
}

static void decode_task(void *context, unsigned worker, uint64_t index)
{
    gw_decode_run *run = context;
    index += run->range_first;
    const gw_gcomp_range range = {index * run->range_len,
                                  range_chunks(run->info.chunk_count, run->range_len, index)};
    const uint64_t first_value = range.chunk_first << run->info.chunk_log2;
    const gw_workspace workspace = workspace_of(run->workspaces, run->workspace_size, worker);
    gw_gcomp_target *target = &run->targets[index];
    target->values = run->dst + first_value * gw_dtype_size(run->info.dtype);
    target->capacity = run->info.len - first_value;
    run->statuses[index] =
        gw_gcomp_decode_range(run->codec, &run->frame, &run->info, &range, target, &workspace);
    gw_gcomp_chunk first;
    gw_gcomp_chunk last;
    if (run->is_mapped && run->info.len >= GW_CODEC_RUN_LARGE_LEN &&
        gw_gcomp_frame_chunk(&run->frame, &run->info, range.chunk_first, &first) == GW_OK &&
        gw_gcomp_frame_chunk(&run->frame, &run->info, range.chunk_first + range.chunk_count - 1, &last) ==
            GW_OK) {
        gw_memory_release((const uint8_t *)run->frame.data + first.offset,
                          (size_t)(last.offset + last.size - first.offset));
    }
}

gw_status gw_decode_run_ranges(gw_decode_run *run, uint64_t first, uint64_t count, uint64_t *bad_chunk,
                               int progress)
{
    run->range_first = first;
    gw_parallel_tasks(run->threads, count, decode_task, run, progress);
    for (uint64_t i = first; i < first + count; i++) {
        if (run->statuses[i] != GW_OK) {
            *bad_chunk = run->targets[i].bad_chunk;
            return run->statuses[i];
        }
    }
    return GW_OK;
}

gw_status gw_decode_run_once(gw_decode_run *run, uint64_t *bad_chunk, int progress)
{
    *bad_chunk = UINT64_MAX;
    if (gw_cuda_run_is_on()) {
        uint64_t len = 0;
        return gw_cuda_run_decode(run->codec, run->frame.data, run->frame.size, run->frame.map, run->dst,
                                  run->info.len, &len, bad_chunk);
    }
    if (run->range_count == 0) {
        const gw_workspace workspace = workspace_of(run->workspaces, run->workspace_size, 0);
        gw_gcomp_target target = {.values = run->dst, .capacity = run->info.len};
        const gw_status status = gw_gcomp_decode(run->codec, &run->frame, &target, &workspace);
        *bad_chunk = target.bad_chunk;
        return status;
    }
    return gw_decode_run_ranges(run, 0, run->range_count, bad_chunk, progress);
}

gw_status gw_decode_run_timed(gw_decode_run *run, gw_cli_timer *timer, uint64_t *bad_chunk)
{
    gw_status status = GW_OK;
    gw_cli_progress_begin("decode");
    while (status == GW_OK && gw_cli_timer_next(timer)) {
        status = gw_decode_run_once(run, bad_chunk, timer->runs == 0);
    }
    gw_cli_progress_end();
    return status;
}
