/* SPDX-License-Identifier: BSD-2-Clause */
#include "cuda/gcomp_plan.h"

enum { THREADS = 256, CHECK_SHARED_SIZE = 1024 };

/* ---- what the caller gives ---------------------------------------------------------------------------------------- */

void gw_cuda_codec_fill(gw_cuda_codec *out, const gw_codec *codec)
{
    const gw_gcomp_options *o = &codec->options;
    GW_MEMSET(out, 0, sizeof *out);
    out->dtype = (uint32_t)o->dtype;
    out->levels = (uint32_t)o->levels;
    out->rounding = (uint32_t)o->rounding;
    out->preset = (uint32_t)o->preset;
    out->step = o->step;
    out->cap = o->cap;
    out->constant_drop = o->constant_drop;
    out->param_mantissa_bits = o->param_mantissa_bits;
    out->chunk_log2 = o->chunk_log2;
    out->strict = (uint32_t)o->strict;
    out->checksum = (uint32_t)o->checksum;
    out->encode_with = codec->encode_with;
    out->book_count = codec->installed_count;
    out->count_limit = o->count_limit;
    for (uint32_t i = 0; i < codec->installed_count; i++) {
        out->book[i].id = codec->installed[i].id;
        out->book[i].generation = codec->installed[i].generation;
        out->book[i].size = (uint32_t)gw_codebook_size(&codec->installed[i].book);
        gw_codebook_write(out->book[i].inline_bytes, &codec->installed[i].book);
    }
}

void gw_cuda_map_fill(gw_cuda_map *out, const gw_gcomp_map *map, const uint32_t *base_at)
{
    GW_MEMSET(out, 0, sizeof *out);
    if (map != NULL) {
        out->base_at = base_at;
        out->base = map->base;
        out->wire_scale = gw_bits_from_float(map->wire_scale);
        out->chunk_log2 = map->chunk_log2;
        out->is_present = 1;
    }
}

/* ---- workspace ---------------------------------------------------------------------------------------------------- */

/* Measuring and carving are one function, so that they cannot disagree: with base NULL it only counts. */
typedef struct carver {
    uint8_t *base;
    size_t used;
} carver;

static void *take(carver *c, uint64_t size)
{
    void *place = c->base == NULL ? NULL : c->base + c->used;
    c->used += (size_t)((size + 255) & ~(uint64_t)255);
    return place;
}

static void add_launch(gw_cuda_plan *plan, gw_cuda_kernel kernel, uint64_t grid, uint32_t shared_size, const void *params,
                       size_t params_size)
{
    gw_cuda_launch *launch = &plan->launch[plan->launch_count++];
    launch->kernel = kernel;
    launch->grid = (uint32_t)grid;
    launch->block = THREADS;
    launch->shared_size = shared_size;
    launch->params = params;
    launch->params_size = params_size;
}

static uint64_t at_most(uint64_t x, uint64_t limit)
{
    return x < limit ? x : limit;
}

/* ---- decode ------------------------------------------------------------------------------------------------------- */

static size_t carve_decode(gw_gcomp_decode_params *p, carver *c, uint32_t item_count, uint64_t value_total)
{
    /* One place for level arrays per chunk of 2^15 values that there may be: shorter ones fit shared memory. */
    const uint32_t slots = (uint32_t)at_most((value_total >> 15) + item_count, GW_CUDA_LARGE_SLOTS_MAX);
    p->head = (gw_cuda_decode_head *)take(c, sizeof *p->head);
    p->frames = (gw_cuda_frame_state *)take(c, item_count * (uint64_t)sizeof *p->frames);
    const size_t zero_size = c->used;
    p->chunk_first = (uint64_t *)take(c, 8 * ((uint64_t)item_count + 1));
    p->large_slots = slots;
    p->large = (uint8_t *)take(c, (uint64_t)slots * GW_CUDA_LARGE_SIZE);
    return zero_size;
}

size_t gw_cuda_decode_workspace_size(uint32_t item_count, uint64_t value_total)
{
    gw_gcomp_decode_params p;
    carver c = {NULL, 0};
    carve_decode(&p, &c, item_count, value_total);
    return c.used;
}

/*
 * Shared memory of a decode: the state, two level arrays, and a copy of the chunk, for three blocks on a multiprocessor with 228
 * KiB. The level arrays are for the handle's own chunks, but at most 2^14 values; longer chunks use the workspace.
 */
static uint32_t decode_shared_size(const gw_cuda_codec *codec, const gw_cuda_shape *shape)
{
    const uint32_t log2 = codec->chunk_log2 < 14 ? codec->chunk_log2 : 14;
    const uint32_t level = GW_CUDA_LEVEL_SIZE(log2) < GW_CUDA_LEVEL_SIZE_MIN ? GW_CUDA_LEVEL_SIZE_MIN : GW_CUDA_LEVEL_SIZE(log2);
    const uint32_t raw = (1u << log2) * (codec->dtype == GW_FP32 ? 4u : 2u);
    const uint32_t copy = raw < 24 * 1024 ? raw : 24 * 1024;
    const uint32_t size = GW_CUDA_DECODE_FIXED_MAX + 2 * level + copy;
    return size < shape->shared_size_max ? size : shape->shared_size_max;
}

void gw_cuda_plan_decode(gw_cuda_plan *plan, gw_gcomp_decode_params *p, uint64_t value_total, const gw_cuda_shape *shape,
                         void *workspace)
{
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(plan, 0, sizeof *plan);
    plan->zero_size = carve_decode(p, &c, p->item_count, value_total);
    p->shared_size = decode_shared_size(&p->codec, shape);
    const uint64_t chunks = (value_total >> p->codec.chunk_log2) + p->item_count;
    p->slices = p->item_count > 1 ? 1 : (uint32_t)at_most(chunks / 512 + 1, 32);
    const gw_cuda_kernel decode = p->codec.dtype == GW_FP32   ? GW_CUDA_KERNEL_gw_device_gcomp_decode_fp32
                                  : p->codec.dtype == GW_BF16 ? GW_CUDA_KERNEL_gw_device_gcomp_decode_bf16
                                                              : GW_CUDA_KERNEL_gw_device_gcomp_decode_fp16;
    add_launch(plan, GW_CUDA_KERNEL_gw_device_gcomp_check, (uint64_t)p->slices * p->item_count, CHECK_SHARED_SIZE, p,
               sizeof *p);
    add_launch(plan, decode, at_most(chunks, 3 * (uint64_t)shape->multiprocessors), p->shared_size, p, sizeof *p);
}
