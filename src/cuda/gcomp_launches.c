/* SPDX-License-Identifier: BSD-2-Clause */
#include "cuda/gcomp_launches.h"

enum { THREADS = 256, COUNT_SHARED_SIZE = 64 };

/* ---- what the caller gives ----------------------------------------------------------------------------- */

void gw_cuda_codec_fill(gw_cuda_codec *out, const gw_codec *codec)
{
    const gw_gcomp_options *o = &codec->options;
    GW_MEMSET(out, 0, sizeof *out);
    out->dtype = (uint32_t)o->dtype;
    out->quantum_mode = (uint32_t)o->quantum_mode;
    out->rounding = (uint32_t)o->rounding;
    out->preset = (uint32_t)o->preset;
    out->step = o->step;
    out->cap = o->cap;
    out->constant_drop = o->quantum.drop;
    out->tolerance_bits = o->tolerance_bits;
    out->dead_zone = (uint32_t)o->dead_zone;
    out->block_log2 = o->quantum_mode == GW_GCOMP_CARRIED ? o->block_log2 : 0;
    out->target_nmse = o->quantum.nmse;
    out->chunk_log2 = o->chunk_log2;
    out->strict = (uint32_t)o->strict;
    out->checksum = (uint32_t)o->checksum;
    out->encode_with = codec->encode_with;
    out->codebook_count = codec->installed_count;
    out->len_max = o->len_max;
    for (uint32_t i = 0; i < codec->installed_count; i++) {
        out->codebook[i].id = codec->installed[i].id;
        out->codebook[i].generation = codec->installed[i].generation;
        out->codebook[i].crc = codec->installed[i].crc;
        out->codebook[i].size = (uint32_t)gw_codebook_size(&codec->installed[i].codebook);
        gw_codebook_write(out->codebook[i].inline_bytes, &codec->installed[i].codebook);
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

/* How values are cut: with map bytes, their own or those of carried quanta, by up to `cap` bits, else all by
 * the constant drop. */
static void fill_rounding(gw_cuda_rounding *out, const gw_cuda_codec *codec, const gw_cuda_map *map)
{
    const uint32_t has_map = map->is_present || codec->quantum_mode == GW_GCOMP_CARRIED;
    out->nearest = codec->rounding == GW_GCOMP_NEAREST ? ~0u : 0;
    out->stochastic = codec->rounding == GW_GCOMP_STOCHASTIC ? ~0u : 0;
    out->strict = codec->strict;
    out->has_map = has_map;
    out->dead_zone = has_map && codec->dead_zone;
    out->cap = has_map ? codec->cap : codec->constant_drop;
    out->cap_steps = out->cap / gw_traits_of(codec->dtype)->explicit_step;
    out->step = codec->step;
    out->step_inverse = (256 + codec->step - 1) / codec->step;
}

/* ---- workspace ----------------------------------------------------------------------------------------- */

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

static void add_launch(gw_cuda_launches *launches, gw_cuda_kernel kernel, uint64_t grid, uint32_t shared_size,
                       const void *params, size_t params_size)
{
    gw_cuda_launch *launch = &launches->launch[launches->launch_count++];
    launch->kernel = kernel;
    launch->grid = (uint32_t)grid;
    launch->block = THREADS;
    launch->shared_size = shared_size;
    launch->params = params;
    launch->params_size = params_size;
}

/* At most `each` blocks a multiprocessor, which take chunks in turn. */
static uint64_t grid_of(const gw_cuda_shape *shape, uint64_t count, uint32_t each)
{
    return gw_min_u64(count, each * (uint64_t)shape->multiprocessors);
}

static uint32_t element_size(const gw_cuda_codec *codec)
{
    return codec->dtype == GW_FP32 ? 4 : 2;
}

/* The kernel of a dtype, of three, and that of a dtype and quantum mode, of six: launch.h. */
static gw_cuda_kernel of_dtype(gw_cuda_kernel first, const gw_cuda_codec *codec)
{
    return (gw_cuda_kernel)((uint32_t)first + (codec->dtype - GW_FP32));
}

static gw_cuda_kernel of_mode(gw_cuda_kernel first, const gw_cuda_codec *codec)
{
    return (gw_cuda_kernel)((uint32_t)first + 2 * (codec->dtype - GW_FP32) +
                            (codec->quantum_mode != GW_GCOMP_EXPLICIT));
}

/* ---- decode -------------------------------------------------------------------------------------------- */

/* What is cleared first, then the rest. */
static void carve_decode_zeros(gw_gcomp_decode_params *p, carver *c, uint32_t item_count)
{
    p->head = (gw_cuda_decode_head *)take(c, sizeof *p->head);
    p->frames = (gw_cuda_frame_state *)take(c, item_count * (uint64_t)sizeof *p->frames);
}

static void carve_decode(gw_gcomp_decode_params *p, carver *c, uint32_t item_count, uint64_t value_total)
{
    /* One slot of rank buffers for each possible chunk of 2^15 values: shorter ones fit shared
     * memory. */
    const uint32_t slots = (uint32_t)gw_min_u64((value_total >> 15) + item_count, GW_CUDA_LARGE_SLOTS_MAX);
    p->chunk_first = (uint64_t *)take(c, 8 * ((uint64_t)item_count + 1));
    p->chunk_total = (value_total >> GW_CHUNK_LOG2_MIN) + item_count;
    p->deferred = (uint64_t *)take(c, 8 * p->chunk_total);
    p->large_slots = slots;
    p->large = (uint8_t *)take(c, (uint64_t)slots * GW_CUDA_LARGE_SIZE);
}

size_t gw_cuda_decode_workspace_size(uint32_t item_count, uint64_t value_total)
{
    gw_gcomp_decode_params p;
    carver c = {NULL, 0};
    carve_decode_zeros(&p, &c, item_count);
    carve_decode(&p, &c, item_count, value_total);
    return c.used;
}

/* Shared memory of a decode but for the copy of the chunk: the state, two rank buffers, a zero mask. */
static uint32_t decode_shared_least(uint32_t chunk_log2)
{
    const uint32_t rank_buffer = GW_CUDA_RANK_BUFFER_SIZE(chunk_log2) < GW_CUDA_RANK_BUFFER_SIZE_MIN
                                     ? GW_CUDA_RANK_BUFFER_SIZE_MIN
                                     : GW_CUDA_RANK_BUFFER_SIZE(chunk_log2);
    return GW_CUDA_DECODE_FIXED_MAX + 2 * rank_buffer + (1u << chunk_log2) / 8;
}

/*
 * With a copy of the chunk, which is smaller than a RAW one. The rank buffers are for the handle's own
 * chunks, but at most 2^14 values; longer chunks use the workspace. Two blocks are to fit a multiprocessor
 * (1 KiB of each is the system's); what then does not fit the copy is read in place, which is slower.
 */
static uint32_t decode_shared_size(const gw_cuda_codec *codec, const gw_cuda_shape *shape)
{
    const uint32_t log2 = codec->chunk_log2 < 14 ? codec->chunk_log2 : 14;
    const uint32_t least = decode_shared_least(log2);
    const uint32_t most = least + (element_size(codec) << log2);
    const uint32_t half = ((shape->shared_size_max + 1024) / 2 - 1024) & ~15u;
    const uint32_t room = half >= least + 16 * 1024 ? half : shape->shared_size_max;
    return most < room ? most : room;
}

static void add_decode(gw_cuda_launches *launches, gw_gcomp_decode_params *p, uint64_t value_total,
                       const gw_cuda_shape *shape)
{
    const gw_cuda_codec *codec = &p->work.codec;
    const uint64_t chunks = (value_total >> codec->chunk_log2) + p->work.item_count;
    const uint64_t grid = grid_of(shape, chunks, 2);
    p->shared_size = decode_shared_size(codec, shape);
    p->slices = p->work.item_count > 1 ? 1 : (uint32_t)gw_min_u64(chunks / 512 + 1, 32);
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_check, (uint64_t)p->slices * p->work.item_count,
               GW_CUDA_CHECK_SHARED_SIZE, p, sizeof *p);
    add_launch(launches, of_dtype(GW_CUDA_KERNEL_gw_device_gcomp_decode_fp32, codec), grid, p->shared_size, p,
               sizeof *p);
    add_launch(launches, of_dtype(GW_CUDA_KERNEL_gw_device_gcomp_decode_rest_fp32, codec), grid,
               p->shared_size, p, sizeof *p);
}

void gw_cuda_launches_decode(gw_cuda_launches *launches, gw_gcomp_decode_params *p, uint64_t value_total,
                             const gw_cuda_shape *shape, void *workspace)
{
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    carve_decode_zeros(p, &c, p->work.item_count);
    launches->zero_size = c.used;
    carve_decode(p, &c, p->work.item_count, value_total);
    add_decode(launches, p, value_total, shape);
}

/* ---- sum of frames ------------------------------------------------------------------------------------- */

/* What is cleared before the first frame, then what is cleared before each one: returns where that begins. */
static size_t carve_sum(gw_gcomp_decode_params *p, carver *c, uint64_t capacity)
{
    p->sum.state = (gw_cuda_sum_state *)take(c, sizeof *p->sum.state);
    p->sum.marks = (uint8_t *)take(c, (capacity >> GW_CHUNK_LOG2_MIN) + 1);
    const size_t zero_offset = c->used;
    carve_decode_zeros(p, c, 1);
    return zero_offset;
}

static void carve_sum_rest(gw_gcomp_decode_params *p, carver *c, const gw_cuda_codec *codec,
                           uint64_t capacity)
{
    carve_decode(p, c, 1, capacity);
    p->work.item.result = (gw_cuda_result *)take(c, sizeof *p->work.item.result);
    p->sum.sums = (uint8_t *)take(c, element_size(codec) * capacity);
}

size_t gw_cuda_sum_workspace_size(const gw_cuda_codec *codec, uint64_t capacity)
{
    gw_gcomp_decode_params p;
    carver c = {NULL, 0};
    carve_sum(&p, &c, capacity);
    carve_sum_rest(&p, &c, codec, capacity);
    return c.used;
}

void gw_cuda_launches_sum(gw_cuda_launches *launches, gw_gcomp_decode_params *p, uint32_t frame_count,
                          const gw_cuda_shape *shape, void *workspace)
{
    const uint64_t capacity = p->work.item.dst_capacity;
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    p->work.items = NULL;
    p->work.item_count = 1;
    p->mode = GW_CUDA_DECODE_SUM;
    p->sum.values = (uint8_t *)p->work.item.dst;
    p->sum.capacity = capacity;
    p->sum.result = p->work.item.result;
    const size_t zero_offset = carve_sum(p, &c, capacity);
    launches->zero_offset = p->sum.index == 0 ? 0 : zero_offset;
    launches->zero_size = c.used - launches->zero_offset;
    carve_sum_rest(p, &c, &p->work.codec, capacity);
    p->work.item.dst = p->sum.sums;
    p->work.item.addend = p->sum.index == 0 ? p->sum.values : p->sum.sums;
    add_decode(launches, p, capacity, shape);
    if (p->sum.index == frame_count - 1) {
        const uint64_t chunks = (capacity >> GW_CHUNK_LOG2_MIN) + 1;
        add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_sum_store, grid_of(shape, chunks, 4), 0, p,
                   sizeof *p);
    }
}

/* ---- encode -------------------------------------------------------------------------------------------- */

static uint32_t group_log2(const gw_cuda_codec *codec)
{
    return codec->preset == GW_GCOMP_FAST ? (uint32_t)GW_GROUP_LOG2 : codec->chunk_log2;
}

/* How many units and groups the items have at most: every item may end with a short one, and has a unit
 * without values. */
static void count_units(gw_gcomp_encode_params *p, const gw_cuda_codec *codec, uint32_t item_count,
                        uint64_t value_total)
{
    if (p->work.items == NULL) {
        p->unit_total = gw_unit_count(value_total, codec->chunk_log2);
        p->unit_total += p->unit_total == 0;
        p->group_total = gw_unit_count(value_total, group_log2(codec));
    } else {
        p->unit_total = (value_total >> codec->chunk_log2) + item_count;
        p->group_total = (value_total >> group_log2(codec)) + item_count;
    }
}

static void carve_encode_zeros(gw_gcomp_encode_params *p, carver *c, const gw_cuda_codec *codec,
                               uint32_t item_count, uint64_t value_total)
{
    count_units(p, codec, item_count, value_total);
    p->head = (gw_cuda_encode_head *)take(c, sizeof *p->head);
    p->states = (gw_cuda_encode_state *)take(c, item_count * (uint64_t)sizeof *p->states);
    p->words = (gw_cuda_chunk_word *)take(c, p->unit_total * sizeof *p->words);
}

/* Quanta of carried frames. */
static void carve_quanta(gw_gcomp_encode_params *p, carver *c, const gw_cuda_codec *codec, uint64_t units)
{
    p->quanta = NULL;
    p->drop_offsets = NULL;
    if (codec->quantum_mode == GW_GCOMP_CARRIED) {
        p->quanta = (uint8_t *)take(c, units << (codec->chunk_log2 - codec->block_log2));
        p->drop_offsets = (int32_t *)take(c, units * sizeof *p->drop_offsets);
    }
}

static void carve_encode(gw_gcomp_encode_params *p, carver *c, const gw_cuda_codec *codec,
                         uint32_t item_count)
{
    p->unit_first = NULL;
    p->group_first = NULL;
    if (p->work.items != NULL) {
        p->unit_first = (uint64_t *)take(c, 8 * ((uint64_t)item_count + 1));
        p->group_first = (uint64_t *)take(c, 8 * ((uint64_t)item_count + 1));
    }
    p->codebooks = codec->encode_with >= 0
                       ? NULL
                       : (gw_cuda_group_codebook *)take(c, p->group_total * sizeof *p->codebooks);
    carve_quanta(p, c, codec, p->unit_total);
}

/* Stands for items that are not known yet, where only the size of launches is needed. */
static const gw_cuda_gcomp_item some_item;

size_t gw_cuda_encode_workspace_size(const gw_cuda_codec *codec, uint32_t item_count, uint64_t value_total)
{
    gw_gcomp_encode_params p;
    carver c = {NULL, 0};
    p.work.items = &some_item; /* a batch of one needs more than a call without arrays */
    carve_encode_zeros(&p, &c, codec, item_count, value_total);
    carve_encode(&p, &c, codec, item_count);
    return c.used;
}

/* Explicit frames are rounded once where there is room for the digits. */
static uint32_t encode_shared_size(const gw_cuda_codec *codec, const gw_cuda_shape *shape)
{
    const uint32_t least = GW_CUDA_ENCODE_SHARED_SIZE(codec->chunk_log2);
    const uint32_t more = GW_CUDA_ENCODE_SHARED_SIZE_ONCE(codec->chunk_log2, codec->dtype);
    return codec->quantum_mode == GW_GCOMP_EXPLICIT && more <= shape->shared_size_max ? more : least;
}

static void add_quanta(gw_cuda_launches *launches, gw_gcomp_encode_params *p, const gw_cuda_shape *shape)
{
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_quanta, grid_of(shape, p->unit_total, 4),
               GW_CUDA_QUANTA_SHARED_SIZE, p, sizeof *p);
}

static void add_encode(gw_cuda_launches *launches, gw_gcomp_encode_params *p, const gw_cuda_shape *shape)
{
    const gw_cuda_codec *codec = &p->work.codec;
    p->shared_size = encode_shared_size(codec, shape);
    fill_rounding(&p->work.rounding, codec, &p->work.map);
    if (codec->quantum_mode == GW_GCOMP_CARRIED) {
        add_quanta(launches, p, shape);
    }
    if (codec->encode_with < 0 && p->group_total != 0) {
        add_launch(launches, of_mode(GW_CUDA_KERNEL_gw_device_gcomp_codebook_fp32_explicit, codec),
                   grid_of(shape, p->group_total, 4), GW_CUDA_SURVEY_SHARED_SIZE, p, sizeof *p);
    }
    add_launch(launches, of_mode(GW_CUDA_KERNEL_gw_device_gcomp_encode_fp32_explicit, codec),
               grid_of(shape, p->unit_total, 2), p->shared_size, p, sizeof *p);
}

void gw_cuda_launches_encode(gw_cuda_launches *launches, gw_gcomp_encode_params *p, uint64_t value_total,
                             const gw_cuda_shape *shape, void *workspace)
{
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    carve_encode_zeros(p, &c, &p->work.codec, p->work.item_count, value_total);
    launches->zero_size = c.used;
    carve_encode(p, &c, &p->work.codec, p->work.item_count);
    if (p->work.items != NULL) {
        add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_count, 1, COUNT_SHARED_SIZE, p, sizeof *p);
    }
    add_encode(launches, p, shape);
}

/* ---- hop ----------------------------------------------------------------------------------------------- */

/* Workspace of hops: one if out->work.items is NULL, else a batch, whose arrays of items and sums `hops`
 * receives. Returns how much is to be cleared. */
static size_t carve_hops(gw_gcomp_hop_params *hops, gw_gcomp_decode_params *in, gw_gcomp_encode_params *out,
                         carver *c, const gw_cuda_codec *codec, uint32_t item_count, uint64_t value_total)
{
    const int is_batch = out->work.items != NULL;
    carve_decode_zeros(in, c, item_count);
    carve_encode_zeros(out, c, codec, item_count, value_total);
    const size_t zero_size = c->used;
    carve_decode(in, c, item_count, value_total);
    carve_encode(out, c, codec, item_count);
    hops->sums_size = element_size(codec) * value_total;
    if (is_batch) {
        gw_cuda_gcomp_item *items = (gw_cuda_gcomp_item *)take(c, 2 * (uint64_t)item_count * sizeof *items);
        hops->in_items = items;
        hops->out_items = items == NULL ? NULL : items + item_count;
        hops->sums_size += 16 * (uint64_t)item_count; /* sums of a hop begin at a multiple of 16 */
    }
    hops->between = (gw_cuda_result *)take(c, item_count * (uint64_t)sizeof *hops->between);
    hops->sums = (uint8_t *)take(c, hops->sums_size);
    return zero_size;
}

size_t gw_cuda_hop_workspace_size(const gw_cuda_codec *codec, uint32_t item_count, uint64_t value_total)
{
    gw_gcomp_hop_params hops;
    gw_gcomp_decode_params in;
    gw_gcomp_encode_params out;
    carver c = {NULL, 0};
    out.work.items = &some_item; /* a batch of one needs more than a call without arrays */
    carve_hops(&hops, &in, &out, &c, codec, item_count, value_total);
    return c.used;
}

void gw_cuda_launches_hop(gw_cuda_launches *launches, gw_gcomp_decode_params *in, gw_gcomp_encode_params *out,
                          const gw_cuda_shape *shape, void *workspace)
{
    const uint64_t len = out->work.item.src_size;
    gw_gcomp_hop_params hops;
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    in->work.items = out->work.items = NULL;
    launches->zero_size = carve_hops(&hops, in, out, &c, &out->work.codec, 1, len);
    in->mode = GW_CUDA_DECODE_SUM;
    in->work.item_count = out->work.item_count = 1;
    in->work.item.dst = hops.sums;
    in->work.item.dst_capacity = len;
    in->work.item.result = hops.between;
    in->exact_len = 1;
    out->work.item.src = hops.sums;
    out->work.item.after = hops.between;
    add_decode(launches, in, len, shape);
    add_encode(launches, out, shape);
}

void gw_cuda_launches_hop_batch(gw_cuda_launches *launches, gw_gcomp_hop_params *hops,
                                gw_gcomp_decode_params *in, gw_gcomp_encode_params *out, uint64_t value_total,
                                const gw_cuda_shape *shape, void *workspace)
{
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    out->work.items = &some_item; /* there will be some */
    launches->zero_size = carve_hops(hops, in, out, &c, &out->work.codec, out->work.item_count, value_total);
    in->work.items = hops->in_items;
    out->work.items = hops->out_items;
    hops->out = *out;
    in->work.item_count = out->work.item_count;
    in->mode = GW_CUDA_DECODE_SUM;
    in->exact_len = 1;
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_hop_items, 1, COUNT_SHARED_SIZE, hops, sizeof *hops);
    add_decode(launches, in, value_total, shape);
    add_encode(launches, out, shape);
}

/* ---- segments ------------------------------------------------------------------------------------------ */

static void carve_segments(gw_gcomp_segment_params *s, carver *c, const gw_cuda_codec *codec,
                           uint32_t segment_count, uint64_t len)
{
    s->result = (gw_cuda_result *)take(c, sizeof *s->result);
    s->starts = (uint64_t *)take(c, 8 * (uint64_t)segment_count);
    s->rounded = (uint8_t *)take(c, element_size(codec) * len);
    carve_quanta(&s->from, c, codec, gw_unit_count(len, codec->chunk_log2));
}

size_t gw_cuda_segments_workspace_size(const gw_cuda_codec *codec, uint32_t segment_count, uint64_t len)
{
    gw_gcomp_segment_params s;
    carver c = {NULL, 0};
    carve_segments(&s, &c, codec, segment_count, len);
    return c.used;
}

static void add_round(gw_cuda_launches *launches, gw_gcomp_segment_params *s, const gw_cuda_shape *shape)
{
    const uint64_t blocks = gw_unit_count(s->from.work.item.src_size, 11); /* 256 threads, 8 values each */
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_round, grid_of(shape, blocks, 8), 0, s, sizeof *s);
}

static void add_segments(gw_cuda_launches *launches, gw_gcomp_segment_params *s)
{
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_segments, 1, GW_CUDA_SEGMENTS_SHARED_SIZE, s,
               sizeof *s);
}

void gw_cuda_launches_segments(gw_cuda_launches *launches, gw_gcomp_segment_params *s,
                               gw_gcomp_encode_params *encode, gw_cuda_gcomp_item *first,
                               const gw_cuda_shape *shape, void *area)
{
    const gw_cuda_launches rest = *launches;
    const int is_hop = first != &encode->work.item;
    carver c = {(uint8_t *)area, 0};
    carve_segments(s, &c, &encode->work.codec, s->segment_count, encode->work.item.src_size);
    first->after = s->result;
    s->from = *encode;
    const int is_rounded =
        encode->work.codec.rounding == GW_GCOMP_STOCHASTIC && encode->work.item.src_size != 0;
    if (is_rounded) {
        s->rounded = is_hop ? (uint8_t *)(uintptr_t)encode->work.item.src : s->rounded;
        encode->work.item.src = s->rounded;
        encode->work.rounding.stochastic = 0;
    }
    launches->launch_count = 0;
    add_segments(launches, s);
    int is_added = !is_rounded;
    for (uint32_t i = 0; i < rest.launch_count; i++) {
        const gw_cuda_launch *launch = &rest.launch[i];
        const int is_quanta = launch->kernel == GW_CUDA_KERNEL_gw_device_gcomp_quanta;
        if (!is_added && launch->params == encode && !is_quanta) {
            add_round(launches, s, shape);
            is_added = 1;
        }
        launches->launch[launches->launch_count] = *launch;
        launches->launch[launches->launch_count++].params = is_quanta ? &s->from : launch->params;
    }
}

/* ---- codebooks ----------------------------------------------------------------------------------------- */

static size_t carve_histogram(gw_gcomp_histogram_params *p, carver *c, uint32_t item_count)
{
    p->head = (gw_cuda_encode_head *)take(c, sizeof *p->head);
    const size_t zero_size = c->used;
    p->chunk_first = NULL;
    p->chunks_before = NULL;
    if (p->work.items != NULL) {
        p->chunk_first = (uint64_t *)take(c, 8 * ((uint64_t)item_count + 1));
        p->chunks_before = (uint64_t *)take(c, 8 * (uint64_t)item_count);
    }
    return zero_size;
}

size_t gw_cuda_histogram_workspace_size(uint32_t item_count)
{
    gw_gcomp_histogram_params p;
    carver c = {NULL, 0};
    p.work.items = item_count == 0 ? NULL : &some_item;
    carve_histogram(&p, &c, item_count);
    return c.used;
}

void gw_cuda_launches_histogram(gw_cuda_launches *launches, gw_gcomp_histogram_params *p,
                                uint64_t value_total, const gw_cuda_shape *shape, void *workspace)
{
    uint64_t chunks;
    carver c = {(uint8_t *)workspace, 0};
    GW_MEMSET(launches, 0, sizeof *launches);
    launches->zero_size = carve_histogram(p, &c, p->work.item_count);
    fill_rounding(&p->work.rounding, &p->work.codec, &p->work.map);
    if (p->work.items == NULL) {
        p->work.item_count = 1;
        p->unit_total = gw_unit_count(value_total, p->work.codec.chunk_log2);
        p->unit_total += p->unit_total == 0;
        chunks = p->unit_total;
    } else {
        chunks = (value_total >> p->work.codec.chunk_log2) + p->work.item_count;
        add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_histogram_items, 1, COUNT_SHARED_SIZE, p,
                   sizeof *p);
    }
    add_launch(launches, of_mode(GW_CUDA_KERNEL_gw_device_gcomp_histogram_fp32_explicit, &p->work.codec),
               grid_of(shape, chunks, 4), GW_CUDA_SURVEY_SHARED_SIZE, p, sizeof *p);
}

void gw_cuda_launches_histogram_segments(gw_cuda_launches *launches, gw_gcomp_segment_params *s,
                                         gw_gcomp_histogram_params *p, const gw_cuda_shape *shape,
                                         void *workspace, void *area)
{
    gw_gcomp_encode_params *const from = &s->from;
    const uint64_t len = p->work.item.src_size;
    carver c = {(uint8_t *)area, 0};
    gw_cuda_launches_histogram(launches, p, len, shape, workspace);
    const gw_cuda_launch count = launches->launch[0];
    GW_MEMSET(from, 0, sizeof *from);
    carve_segments(s, &c, &p->work.codec, s->segment_count, len);
    p->work.item.after = s->result;
    from->work = p->work;
    from->unit_total = p->unit_total;
    launches->launch_count = 0;
    add_segments(launches, s);
    if (p->work.codec.rounding == GW_GCOMP_STOCHASTIC && len != 0) {
        if (from->quanta != NULL) { /* those of the values before they are rounded */
            add_quanta(launches, from, shape);
            p->work.item.map_bytes = from->quanta;
            p->work.map.is_present = 0;
        }
        add_round(launches, s, shape);
        p->work.item.src = s->rounded;
        p->work.rounding.stochastic = 0;
    }
    launches->launch[launches->launch_count++] = count;
}

void gw_cuda_launches_codebook_build(gw_cuda_launches *launches, gw_gcomp_codebook_build_params *p,
                                     uint32_t count)
{
    GW_MEMSET(launches, 0, sizeof *launches);
    add_launch(launches, GW_CUDA_KERNEL_gw_device_gcomp_codebook_build, count, GW_CUDA_SURVEY_SHARED_SIZE, p,
               sizeof *p);
}

/* ---- device entry points ------------------------------------------------------------------------------- */

void gw_cuda_device_codec_fill(gw_device_codec *out, const gw_codec *codec, const gw_gcomp_map *map,
                               const gw_cuda_gcomp_key *key)
{
    GW_MEMSET(out, 0, sizeof *out);
    gw_cuda_codec_fill(&out->codec, codec);
    gw_cuda_map_fill(&out->map, map, NULL);
    fill_rounding(&out->rounding, &out->codec, &out->map);
    out->key = *key;
}

uint32_t gw_cuda_decode_shared_size(const gw_cuda_codec *codec)
{
    return decode_shared_least(codec->chunk_log2) + (element_size(codec) << codec->chunk_log2);
}
