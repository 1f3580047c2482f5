/*
 * The codec handle: options, sizes, workspace.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"
#include "gcomp/quanta.h"

const gw_codec *gw_codec_of(const gw_gcomp *codec)
{
    const gw_codec *inside = (const gw_codec *)(const void *)codec;
    return inside != NULL && inside->tag == GW_CODEC_TAG ? inside : NULL;
}

void gw_gcomp_options_init(gw_gcomp_options *options, gw_dtype dtype)
{
    GW_MEMSET(options, 0, sizeof *options);
    options->dtype = dtype;
    options->quantum_mode = GW_GCOMP_EXPLICIT;
    options->rounding = GW_GCOMP_NEAREST;
    options->preset = GW_GCOMP_FAST;
    options->cap = UINT32_MAX;
    options->tolerance_bits = 23;
    options->block_log2 = 9;
    options->chunk_log2 = 14;
    options->backends = GW_BACKEND_ALL;
    options->len_max = GW_FRAME_LEN_MAX;
}

/* A normal number of at most 1. */
static int is_nmse(float x)
{
    const uint32_t bits = gw_bits_from_float(x);
    return bits >= 0x00800000u && bits <= 0x3f800000u;
}

/* Checks the quantum of sources that have none of their own, and clears the members that its kind does not
 * use: drop is 0 without a constant drop, nmse is 0 without a target. */
static gw_status resolve_quantum(gw_gcomp_options *o)
{
    const gw_gcomp_quantum given = o->quantum;
    const int carried = o->quantum_mode == GW_GCOMP_CARRIED;
    GW_MEMSET(&o->quantum, 0, sizeof o->quantum);
    o->quantum.kind = given.kind;
    switch (given.kind) {
    case GW_GCOMP_QUANTUM_DEFAULT:
        return GW_OK;
    case GW_GCOMP_QUANTUM_DROP:
        o->quantum.drop = gw_min_u32(given.drop, o->cap);
        o->quantum.drop -= o->quantum.drop % o->step;
        return carried ? GW_ERR_OPTION : GW_OK;
    case GW_GCOMP_QUANTUM_NMSE:
        o->quantum.nmse = given.nmse;
        return carried && is_nmse(given.nmse) ? GW_OK : GW_ERR_OPTION;
    default:
        return GW_ERR_OPTION;
    }
}

/* Replaces the defaults of step and cap and rounds cap and drop to what docs/format.md section 2 allows. */
static gw_status resolve(gw_gcomp_options *o)
{
    const gw_traits *t = gw_traits_of((uint32_t)o->dtype);
    if (t->size == 0 || (uint32_t)o->quantum_mode > GW_GCOMP_CARRIED ||
        (uint32_t)o->rounding > GW_GCOMP_STOCHASTIC || (uint32_t)o->preset > GW_GCOMP_SMALL ||
        o->chunk_log2 < GW_CHUNK_LOG2_MIN || o->chunk_log2 > GW_CHUNK_LOG2_MAX || (uint32_t)o->strict > 1 ||
        (uint32_t)o->checksum > 1 || (uint32_t)o->dead_zone > 1) {
        return GW_ERR_OPTION;
    }
    if (o->tolerance_bits < 1 || o->tolerance_bits > 23) {
        return GW_ERR_OPTION;
    }
    const int derived = o->quantum_mode != GW_GCOMP_EXPLICIT;
    const uint32_t cap_max = derived ? t->derived_cap : t->explicit_cap;
    if (o->step == 0) {
        o->step = derived ? 1 : t->explicit_step;
    }
    if (derived ? o->step >= 8 || (t->derived_steps >> o->step & 1) == 0 : o->step != t->explicit_step) {
        return GW_ERR_OPTION;
    }
    if (o->cap == UINT32_MAX) {
        o->cap = cap_max;
    }
    if (o->cap > cap_max) {
        return GW_ERR_OPTION;
    }
    o->cap -= o->cap % o->step;
    if ((o->dead_zone || o->quantum_mode == GW_GCOMP_CARRIED) &&
        (!derived || o->step != 1 || o->cap != cap_max)) {
        return GW_ERR_OPTION;
    }
    if (o->quantum_mode == GW_GCOMP_CARRIED &&
        (o->block_log2 < GW_BLOCK_LOG2_MIN || o->block_log2 > GW_BLOCK_LOG2_MAX ||
         o->block_log2 > o->chunk_log2)) {
        return GW_ERR_OPTION;
    }
    o->len_max = gw_min_u64(o->len_max, GW_FRAME_LEN_MAX);
    return resolve_quantum(o);
}

gw_status gw_gcomp_init(gw_gcomp *codec, const gw_gcomp_options *options)
{
    if (codec == NULL || options == NULL) {
        return GW_ERR_ARG;
    }
    gw_gcomp_options resolved = *options;
    gw_status status = resolve(&resolved);
    if (status != GW_OK) {
        return status;
    }
    GW_MEMSET(codec, 0, sizeof *codec);
    gw_codec *inside = (gw_codec *)(void *)codec;
    inside->options = resolved;
    inside->encode_with = -1;
    gw_kernels_init(&inside->kernels, resolved.backends);
    inside->tag = GW_CODEC_TAG;
    return GW_OK;
}

uint32_t gw_group_chunks(const gw_codec *codec)
{
    return codec->options.preset == GW_GCOMP_SMALL ? 1u : 1u << (GW_GROUP_LOG2 - codec->options.chunk_log2);
}

void gw_floor_table(uint8_t floor[32], uint32_t step)
{
    for (uint32_t n = 0; n < 32; n++) {
        floor[n] = (uint8_t)(n - n % step);
    }
}

int32_t gw_drop_offset(const gw_codec *codec, gw_gcomp_quantum_mode quantum_mode, uint32_t map_base)
{
    const int32_t w = gw_traits_of((uint32_t)codec->options.dtype)->mantissa_bits;
    const int32_t t = (int32_t)codec->options.tolerance_bits;
    /* Explicit quanta compare quarter-octaves, as the paper does; a quantum needs the octave only. */
    const int32_t quarters = quantum_mode == GW_GCOMP_EXPLICIT ? -1 : 3;
    return (int32_t)map_base + quarters - 4 * (t - w);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

size_t gw_gcomp_frame_bound(const gw_gcomp *codec, uint64_t len)
{
    const gw_codec *inside = gw_codec_of(codec);
    if (inside == NULL || !gw_frame_is_len_possible(len, inside->options.chunk_log2)) {
        return 0;
    }
    /* At most 2^48 * (4 + 16 / 2^10) bytes and a little: far below 2^64. */
    const uint32_t log2 = inside->options.chunk_log2;
    const uint64_t chunks = gw_gcomp_chunk_count(codec, len);
    const uint64_t front =
        (GW_FRAME_HEADER_SIZE + GW_FRAME_PARTS_SIZE_MAX + GW_FRAME_ENTRY_SIZE * chunks + 15) & ~(uint64_t)15;
    const uint64_t bound = front + gw_frame_payload_max((uint32_t)inside->options.dtype, len, log2);
    return bound <= SIZE_MAX ? (size_t)bound : 0;
}

uint64_t gw_gcomp_chunk_count(const gw_gcomp *codec, uint64_t len)
{
    const gw_codec *inside = gw_codec_of(codec);
    return inside != NULL ? gw_unit_count(len, inside->options.chunk_log2) : 0;
}

uint64_t gw_gcomp_range_align(const gw_gcomp *codec)
{
    const gw_codec *inside = gw_codec_of(codec);
    return inside == NULL ? 0 : gw_group_chunks(inside);
}

size_t gw_gcomp_range_bound(const gw_gcomp *codec, uint64_t len, const gw_gcomp_range *range)
{
    const gw_codec *inside = gw_codec_of(codec);
    const uint64_t chunks = gw_gcomp_chunk_count(codec, len);
    if (inside == NULL || range == NULL || !gw_frame_is_len_possible(len, inside->options.chunk_log2) ||
        range->chunk_first > chunks || range->chunk_count > chunks - range->chunk_first) {
        return 0;
    }
    const uint64_t raw =
        gw_traits_of((uint32_t)inside->options.dtype)->size * ((uint64_t)1 << inside->options.chunk_log2);
    const uint64_t bound = range->chunk_count * (GW_FRAME_ENTRY_SIZE + raw);
    return bound <= SIZE_MAX ? (size_t)bound : 0;
}

/* ---- workspace ----------------------------------------------------------------------------------------- */

/* One function both divides the workspace and computes its size, so the two cannot disagree. With base NULL
 * it only computes the size. */
typedef struct carver {
    uint8_t *base;
    size_t used;
} carver;

static void *take(carver *c, size_t size)
{
    void *place = c->base == NULL ? NULL : c->base + c->used;
    c->used += (size + GW_SLOP + 63) & ~(size_t)63;
    return place;
}

static void carve(gw_scratch *s, carver *c, const gw_codec *codec)
{
    /* Chunks of received frames may be longer than those that the handle encodes. */
    const size_t len = (size_t)1 << GW_CHUNK_LOG2_MAX;
    s->escapes = (uint8_t *)take(c, 4 * len);
    s->values = s->escapes;
    s->place = (uint16_t *)(void *)s->escapes;
    s->rank_buffer[0] = (uint8_t *)take(c, len + GW_LEAVES_MAX * GW_SLOP);
    s->rank_buffer[1] = (uint8_t *)take(c, len + GW_LEAVES_MAX * GW_SLOP);
    for (unsigned p = 0; p < GW_PLANES_MAX; p++) {
        s->plane[p] = (uint8_t *)take(c, len);
    }
    for (unsigned i = 0; i < 2; i++) {
        s->mask[i] = (uint8_t *)take(c, len / 8 + 2 * GW_MASK_CLASSES * GW_SLOP);
    }
    s->map_bytes = (uint8_t *)take(c, len);
    s->quanta = (uint8_t *)take(c, (size_t)1 << (GW_GROUP_LOG2 - GW_BLOCK_LOG2_MIN));
    s->bin_count = (uint32_t *)take(c, GW_BINS * sizeof(uint32_t));
    s->count = (uint32_t *)take(c, GW_LABELS * sizeof(uint32_t));
    s->codebook = (gw_codebook *)take(c, sizeof(gw_codebook));
    s->codebook_scratch = (gw_codebook_scratch *)take(c, sizeof(gw_codebook_scratch));
    s->tree = (gw_tree *)take(c, sizeof(gw_tree));
    s->mask_tree = (gw_tree *)take(c, sizeof(gw_tree));
    s->ranker = (gw_ranker *)take(c, sizeof(gw_ranker));
    s->joiner = (gw_joiner *)take(c, sizeof(gw_joiner));
    /* The sums of a hop come last. If a run has another number of set bits than the frame announces, a merge
     * reads at most one chunk beyond its array, which is then still workspace. */
    s->sums =
        (uint8_t *)take(c, ((size_t)1 << GW_GROUP_LOG2) * gw_traits_of((uint32_t)codec->options.dtype)->size);
}

size_t gw_scratch_size(const gw_codec *codec)
{
    gw_scratch scratch;
    carver c = {NULL, 0};
    carve(&scratch, &c, codec);
    return c.used + 63; /* the workspace may have any alignment */
}

void gw_scratch_carve(gw_scratch *scratch, const gw_codec *codec, void *workspace)
{
    const uintptr_t address = (uintptr_t)workspace;
    carver c = {(uint8_t *)workspace + ((64 - (address & 63)) & 63), 0};
    carve(scratch, &c, codec);
}

size_t gw_gcomp_workspace_size(const gw_gcomp *codec)
{
    const gw_codec *inside = gw_codec_of(codec);
    return inside == NULL ? 0 : gw_scratch_size(inside);
}
