/*
 * Decode: frame -> unpack -> entropy -> join, chunk by chunk. Every byte of the frame may be hostile.
 *
 * Each count or offset is read once into a local variable, and that copy is checked and used. If the bytes of
 * the frame change meanwhile, values may be wrong, but no access leaves the buffers.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_codec.h"
#include "gcomp/quanta.h"
#include "gcomp/tree_runs.h"

/* ---- frame --------------------------------------------------------------------------------------------- */

gw_status gw_gcomp_frame_peek(const void *src, size_t src_size, uint64_t len_max, gw_gcomp_frame_info *info)
{
    if (info == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(info, 0, sizeof *info);
    if (src == NULL && src_size != 0) {
        return GW_ERR_ARG;
    }
    return gw_frame_read_header(info, (const uint8_t *)src, src_size, len_max, 0);
}

gw_status gw_gcomp_frame_chunk(const gw_gcomp_frame *frame, const gw_gcomp_frame_info *info, uint64_t index,
                               gw_gcomp_chunk *chunk)
{
    if (chunk == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(chunk, 0, sizeof *chunk);
    if (frame == NULL || frame->data == NULL || info == NULL || !gw_frame_is_info_valid(info) ||
        frame->size < info->frame_size || index >= info->chunk_count) {
        return GW_ERR_ARG;
    }
    if (gw_frame_read_entry(chunk, (const uint8_t *)frame->data, info, index) != GW_OK) {
        GW_MEMSET(chunk, 0, sizeof *chunk);
        return GW_ERR_ARG;
    }
    return GW_OK;
}

/* An installed codebook is one for the handle's quantum mode. */
static const gw_installed_codebook *find_installed(const gw_codec *codec, const gw_gcomp_frame_info *info)
{
    for (uint32_t i = 0; i < codec->installed_count; i++) {
        const gw_installed_codebook *codebook = &codec->installed[i];
        if (codebook->id == info->codebook_id && codebook->generation == info->codebook_generation &&
            codebook->crc == info->codebook_crc && codec->options.quantum_mode == info->quantum_mode &&
            !(info->constant && codebook->codebook.is_relative)) {
            return codebook;
        }
    }
    return NULL;
}

static gw_status check_map(const gw_codec *codec, const gw_gcomp_frame_info *info, const gw_gcomp_map *map)
{
    if (map == NULL || map->base > 1023 || map->len != info->len ||
        (info->len != 0 && (map->bytes == NULL || map->digest == NULL))) {
        return GW_ERR_MAP;
    }
    /* chunk_log2 first: the number of digests depends on it. */
    if (info->chunk_log2 != map->chunk_log2 ||
        gw_drop_offset(codec, GW_GCOMP_DERIVED, map->base) != info->drop_offset ||
        gw_bits_from_float(map->wire_scale) != gw_bits_from_float(info->wire_scale) ||
        gw_map_hash(info, map->digest, &codec->kernels) != info->map_hash) {
        return GW_ERR_MAP;
    }
    return GW_OK;
}

static gw_status check_frame(const gw_codec *codec, const gw_gcomp_frame *frame, gw_gcomp_frame_info *info)
{
    const uint8_t *src = (const uint8_t *)frame->data;
    gw_status status = gw_frame_read_header(info, src, frame->size, codec->options.len_max, 1);
    if (status != GW_OK) {
        return status;
    }
    if (info->frame_size < frame->size) {
        return GW_ERR_TRAILING;
    }
    status = gw_frame_check_directory(src, info, &codec->kernels);
    if (status != GW_OK) {
        return status;
    }
    if (info->dtype != codec->options.dtype) {
        return GW_ERR_OPTION;
    }
    if (info->installed && find_installed(codec, info) == NULL) {
        return GW_ERR_TABLE;
    }
    return gw_info_needs_map(info) ? check_map(codec, info, frame->map) : GW_OK;
}

gw_status gw_gcomp_frame_parse(const gw_gcomp *codec, const gw_gcomp_frame *frame, gw_gcomp_frame_info *info)
{
    if (info == NULL) {
        return GW_ERR_ARG;
    }
    GW_MEMSET(info, 0, sizeof *info);
    if (codec == NULL || frame == NULL || (frame->data == NULL && frame->size != 0)) {
        return GW_ERR_ARG;
    }
    const gw_codec *inside = gw_codec_of(codec);
    if (inside == NULL) {
        return GW_ERR_STATE;
    }
    const gw_status status = check_frame(inside, frame, info);
    if (status != GW_OK) {
        GW_MEMSET(info, 0, sizeof *info);
    }
    return status;
}

/* ---- chunk --------------------------------------------------------------------------------------------- */

gw_status gw_decoding_begin(gw_decoding *d, const gw_codec *codec, const gw_gcomp_frame *frame,
                            const gw_gcomp_frame_info *info, const gw_workspace *workspace)
{
    if (workspace == NULL || workspace->data == NULL) {
        return GW_ERR_ARG;
    }
    if (workspace->size < gw_scratch_size(codec)) {
        return GW_ERR_WORKSPACE;
    }
    GW_MEMSET(d, 0, sizeof *d);
    d->codec = codec;
    d->src = (const uint8_t *)frame->data;
    d->info = *info;
    d->map_bytes = gw_info_needs_map(info) ? frame->map->bytes : NULL;
    d->codebook_owner = UINT64_MAX;
    d->scale = 1;
    gw_scratch_carve(&d->scratch, codec, workspace->data);
    gw_joiner *joiner = d->scratch.joiner;
    GW_MEMSET(joiner, 0, sizeof *joiner);
    joiner->dtype = (uint32_t)info->dtype;
    joiner->derived = info->quantum_mode != GW_GCOMP_EXPLICIT;
    joiner->constant = (uint32_t)info->constant;
    joiner->cap = info->cap;
    joiner->drop_offset = info->drop_offset;
    joiner->strict = (uint32_t)codec->options.strict;
    gw_floor_table(joiner->floor, info->step);
    if (info->installed) {
        d->installed = find_installed(codec, info);
        return d->installed == NULL ? GW_ERR_TABLE : GW_OK;
    }
    return GW_OK;
}

gw_status gw_decoding_reopen(gw_decoding *d, const gw_codec *codec, const gw_gcomp_frame *frame,
                             const gw_gcomp_frame_info *checked, const gw_workspace *workspace)
{
    gw_gcomp_frame_info info;
    gw_status status =
        gw_frame_read_header(&info, (const uint8_t *)frame->data, frame->size, codec->options.len_max, 1);
    if (status == GW_OK && (info.len != checked->len || info.chunk_log2 != checked->chunk_log2 ||
                            info.dtype != checked->dtype || !gw_info_fits_map(&info, frame->map))) {
        status = GW_ERR_CORRUPT;
    }
    return status == GW_OK ? gw_decoding_begin(d, codec, frame, &info, workspace) : status;
}

static uint32_t is_derived(const gw_decoding *d)
{
    return d->info.quantum_mode != GW_GCOMP_EXPLICIT;
}

static void use_codebook(gw_decoding *d)
{
    const gw_scratch *s = &d->scratch;
    gw_tree_build(s->tree, s->codebook);
    if (s->codebook->is_masked) {
        gw_mask_tree_build(s->mask_tree, s->codebook);
    }
    s->joiner->window_start = s->codebook->window_start;
    s->joiner->relative = s->codebook->is_relative;
}

/* Builds the tree of the chunk's codebook: the installed one, or the one that chunk `owner` stores. */
static gw_status load_codebook(gw_decoding *d, uint64_t owner)
{
    if (d->codebook_owner == owner) {
        return GW_OK;
    }
    d->codebook_owner = UINT64_MAX;
    if (d->info.installed) {
        d->codebook_size = 0;
        d->codebook_crc = 0;
        *d->scratch.codebook = d->installed->codebook;
        use_codebook(d);
        d->codebook_owner = owner;
        return GW_OK;
    }
    gw_gcomp_chunk chunk;
    if (gw_frame_read_entry(&chunk, d->src, &d->info, owner) != GW_OK) {
        return GW_ERR_CORRUPT;
    }
    const uint8_t *bytes = d->src + chunk.offset;
    const gw_codebook_kind kind = {(uint32_t)d->info.dtype, is_derived(d),
                                   is_derived(d) && !d->info.constant};
    gw_status status =
        gw_codebook_read(d->scratch.codebook, &d->codebook_size, bytes, (size_t)chunk.size, kind);
    if (status != GW_OK) {
        return status;
    }
    d->codebook_crc = d->info.checksum ? d->codec->kernels.crc32c(0, bytes, d->codebook_size) : 0;
    use_codebook(d);
    d->codebook_owner = owner;
    return GW_OK;
}

/* The parts of a CODED chunk, found from its counts. */
typedef struct chunk_parts {
    size_t len;
    int is_masked;
    gw_tree_runs mask; /* of the bytes of the zero mask, if there is one */
    gw_tree_runs labels;
    size_t plane_len[GW_PLANES_MAX];
    const uint8_t *plane[GW_PLANES_MAX];
    size_t escape_len;
    const uint8_t *escape;
} chunk_parts;

static size_t plane_count(const gw_decoding *d)
{
    return is_derived(d) ? GW_PLANES_MAX : GW_DIGIT_PLANES;
}

/* Rules 21 and 22: the counts are possible and the parts fill data[0..size) except for the final padding. */
static gw_status find_parts(const gw_decoding *d, chunk_parts *parts, const uint8_t *data, size_t size,
                            size_t len)
{
    const gw_scratch *s = &d->scratch;
    const gw_traits *t = gw_traits_of((uint32_t)d->info.dtype);
    const size_t planes = plane_count(d);
    const size_t mask_counts = s->codebook->is_masked ? 1u + s->mask_tree->inner_count : 0;
    const size_t counts = 2 * (planes + 1 + mask_counts + s->tree->inner_count);
    const size_t header_size = gw_round4(counts);
    if (size < header_size || !gw_is_zero(data + counts, header_size - counts)) {
        return GW_ERR_CORRUPT;
    }
    gw_part_cursor c = {data, size, header_size, data};
    size_t coded_len = len;
    parts->len = len;
    parts->is_masked = s->codebook->is_masked;
    for (size_t p = 0; p < planes; p++) {
        parts->plane_len[p] = gw_next_count(&c);
        if (parts->plane_len[p] > len) {
            return GW_ERR_CORRUPT;
        }
    }
    parts->escape_len = gw_next_count(&c);
    if (parts->is_masked) {
        coded_len = gw_next_count(&c);
    }
    if (parts->escape_len > len || coded_len > len ||
        (parts->is_masked && !gw_find_runs(&parts->mask, s->mask_tree, (len + 7) / 8, &c)) ||
        !gw_find_runs(&parts->labels, s->tree, coded_len, &c)) {
        return GW_ERR_CORRUPT;
    }
    for (size_t p = 0; p < planes; p++) {
        parts->plane[p] = gw_next_part(&c, gw_run_size(parts->plane_len[p], gw_plane_width(t, p)));
    }
    const size_t escapes_size = parts->escape_len * t->size;
    const size_t escape_end = c.at + escapes_size;
    parts->escape = gw_next_part(&c, gw_round4(escapes_size));
    if (c.at > size || size - c.at >= 16) {
        return GW_ERR_CORRUPT;
    }
    return gw_is_zero(data + escape_end, size - escape_end) ? GW_OK : GW_ERR_CORRUPT;
}

/* The labels of a chunk's values, without those that the mask says are +0, and the mask. */
static gw_status read_labels(const gw_decoding *d, const chunk_parts *parts, gw_ahead *ahead)
{
    const gw_scratch *s = &d->scratch;
    const gw_kernels *k = &d->codec->kernels;
    if (parts->is_masked) {
        const size_t mask_len = (parts->len + 7) / 8;
        const gw_status status = gw_read_runs(k, &parts->mask, s->mask, ahead);
        if (status != GW_OK) {
            return status;
        }
        /* The mask is a run like that of an inner node. */
        GW_MEMSET(s->mask[0] + mask_len, 0, gw_run_size(parts->len, 1) - mask_len);
    }
    return gw_read_runs(k, &parts->labels, s->rank_buffer, ahead);
}

/* The digits of the planes, unpacked except for R1 (plane 6), of which the join reads the bits. */
static gw_status read_planes(const gw_decoding *d, const chunk_parts *parts, gw_ahead *ahead)
{
    const gw_scratch *s = &d->scratch;
    const gw_traits *t = gw_traits_of((uint32_t)d->info.dtype);
    for (size_t p = 0; p < plane_count(d); p++) {
        const size_t len = parts->plane_len[p];
        gw_ahead_step(ahead, len);
        if (p < GW_PLANE_R1) {
            if (!d->codec->kernels.gcomp.unpack(s->plane[p], parts->plane[p], len, gw_plane_width(t, p),
                                                NULL)) {
                return GW_ERR_CORRUPT;
            }
            s->plane[p][len] = 0; /* join reads one digit beyond the end of a plane */
        } else {
            const size_t size = gw_run_size(len, 1);
            GW_MEMCPY(s->plane[p], parts->plane[p], size);
            s->plane[p][size] = 0;
            if (len % 32 != 0 && gw_load32(s->plane[p] + size - 4) >> len % 32 != 0) {
                return GW_ERR_CORRUPT;
            }
        }
    }
    return GW_OK;
}

/* Rule 26: 1 if an encoder with this codebook would have to escape the value. */
static int is_escape_allowed(const gw_decoding *d, uint32_t bits, uint32_t k_byte)
{
    const uint32_t dtype = (uint32_t)d->info.dtype;
    const gw_traits *t = gw_traits_of(dtype);
    const gw_tree *tree = d->scratch.tree;
    const uint32_t magnitude = bits & (dtype == GW_FP32 ? 0x7fffffffu : 0x7fffu);
    const uint32_t exponent = magnitude >> t->mantissa_bits;
    if (bits == 0) {
        return tree->zero_rank == GW_NO_RANK && !d->scratch.codebook->is_masked;
    }
    if (exponent == t->exponent_mask) {
        return 1;
    }
    if (magnitude == 0 || (exponent == 0 && !t->keeps_subnormals)) {
        return d->info.strict;
    }
    if (is_derived(d)) {
        const gw_joiner *j = d->scratch.joiner;
        const uint32_t fp32_exponent =
            t->keeps_subnormals ? (exponent == 0 ? 1 : exponent) + t->exponent_bias : exponent;
        uint32_t drop = j->cap;
        if (!j->constant) {
            int32_t room = (int32_t)k_byte + j->drop_offset - (int32_t)(4 * fp32_exponent + 3);
            drop = k_byte == 0 || room < 4 ? 0 : j->floor[gw_min_u32((uint32_t)room >> 2, j->cap)];
        }
        if ((magnitude & ((1u << drop) - 1)) != 0) {
            return 0;
        }
        const uint32_t turn = j->relative ? gw_turn_of(k_byte, j->drop_offset, dtype) : 0;
        const uint32_t label = gw_label_of_bin(4 * gw_exponent_turn(exponent, turn, dtype), dtype, 1, 0);
        return tree->rank_of_label[label] == GW_NO_RANK;
    }
    for (uint32_t drop_steps = 0; drop_steps < 4; drop_steps++) {
        if ((magnitude & ((1u << drop_steps * t->explicit_step) - 1)) != 0) {
            break;
        }
        const uint32_t label =
            gw_label_of_bin(4 * exponent + drop_steps, dtype, 0, d->scratch.codebook->window_start);
        if (label == GW_LABEL_ESCAPE || tree->rank_of_label[label] == GW_NO_RANK) {
            return 1;
        }
    }
    return 0;
}

/* The input of a join: labels and map bytes (NULL: explicit quanta) of len values, and an array that gets the
 * positions of the escapes. */
typedef struct coded_values {
    const uint8_t *labels, *map_bytes;
    size_t len;
    uint16_t *place;
} coded_values;

/* Reads the escapes from the frame: their copies in dst may have been written with non-temporal stores. */
static gw_status check_escapes(const gw_decoding *d, const chunk_parts *parts, const coded_values *coded)
{
    const int wide = d->info.dtype == GW_FP32;
    for (size_t i = 0; i < parts->escape_len; i++) {
        const uint32_t bits = wide ? gw_load32(parts->escape + 4 * i) : gw_load16(parts->escape + 2 * i);
        const size_t at = coded->place[i];
        if (!is_escape_allowed(d, bits, coded->map_bytes == NULL ? 0 : coded->map_bytes[at])) {
            return GW_ERR_CORRUPT;
        }
    }
    return GW_OK;
}

/* Number of values that the kernels before the join process, over all nodes and planes. */
static size_t work_of(const gw_decoding *d, const chunk_parts *parts)
{
    size_t work = 0;
    for (uint32_t i = 0; i < d->scratch.tree->node_count; i++) {
        work += parts->labels.node_len[i];
    }
    for (uint32_t i = 0; parts->is_masked && i < d->scratch.mask_tree->node_count; i++) {
        work += parts->mask.node_len[i];
    }
    for (size_t p = 0; p < plane_count(d); p++) {
        work += parts->plane_len[p];
    }
    return work;
}

/* Joins labels and digits to values at dst. */
static gw_status join_values(const gw_decoding *d, const chunk_parts *parts, const coded_values *coded,
                             uint8_t *dst, const gw_joiner *joiner)
{
    gw_joined joined;
    const gw_join_input input = {coded->labels, d->scratch.plane,  coded->map_bytes,
                                 parts->escape, parts->escape_len, coded->len};
    d->codec->kernels.gcomp.join(dst, &joined, coded->place, &input, joiner);
    for (size_t p = 0; p < plane_count(d); p++) {
        if (joined.plane_len[p] != parts->plane_len[p]) {
            return GW_ERR_CORRUPT;
        }
    }
    if (joined.escape_len != parts->escape_len || joined.bad_zero) {
        return GW_ERR_CORRUPT;
    }
    return check_escapes(d, parts, coded);
}

/* Joins only the values that are not +0, a minority in a masked chunk, and then spreads them. */
static gw_status join_apart(const gw_decoding *d, const chunk_parts *parts, const coded_values *coded,
                            const uint8_t *map_bytes, uint8_t *dst)
{
    const gw_scratch *s = &d->scratch;
    const gw_kernels *k = &d->codec->kernels;
    if (k->gcomp.gather(s->rank_buffer[1], map_bytes, s->mask[0], parts->len) != coded->len) {
        return GW_ERR_CORRUPT;
    }
    gw_joiner alone = *s->joiner;
    alone.addend = NULL;
    alone.stream = 0;
    alone.next_size = 0;
    alone.beside_size = 0;
    const gw_status status = join_values(d, parts, coded, s->values, &alone);
    if (status == GW_OK) {
        k->gcomp.spread(dst, s->values, s->mask[0], parts->len, s->joiner);
    }
    return status;
}

/* Calls join_apart() if the positions of escapes fit after the values. If they do not (fp32, a chunk of more
 * than 2^14 values, most of them not +0), it joins all values, and +0 has the label zero. */
static gw_status join_masked(const gw_decoding *d, const chunk_parts *parts, const uint8_t *map_bytes,
                             uint8_t *dst)
{
    const gw_scratch *s = &d->scratch;
    const size_t coded_len = parts->labels.node_len[0];
    const size_t size = gw_traits_of((uint32_t)d->info.dtype)->size;
    const size_t at = (size * coded_len + GW_SLOP + 63) & ~(size_t)63;
    if (at + 2 * coded_len <= (size_t)4 << GW_CHUNK_LOG2_MAX) {
        const coded_values some = {s->rank_buffer[0], map_bytes != NULL ? s->rank_buffer[1] : NULL, coded_len,
                                   (uint16_t *)(void *)(s->values + at)};
        return join_apart(d, parts, &some, map_bytes, dst);
    }
    const gw_child zero = {NULL, GW_LABEL_ZERO}, labels = {s->rank_buffer[0], 0};
    const coded_values all = {s->rank_buffer[1], map_bytes, parts->len, s->place};
    return d->codec->kernels.gcomp.merge(s->rank_buffer[1], zero, labels, s->mask[0], parts->len) == coded_len
               ? join_values(d, parts, &all, dst, s->joiner)
               : GW_ERR_CORRUPT;
}

static gw_status decode_coded(gw_decoding *d, const uint8_t *data, size_t size, size_t len,
                              const uint8_t *map_bytes, uint8_t *dst)
{
    const gw_scratch *s = &d->scratch;
    chunk_parts parts;
    gw_status status = find_parts(d, &parts, data, size, len);
    if (status != GW_OK) {
        return status;
    }
    /* Half of the prefetch happens before the join, half during it. */
    const size_t early = d->beside_size / 2;
    gw_ahead ahead = gw_ahead_begin(d->beside, early, work_of(d, &parts));
    s->joiner->addend = d->addend;
    s->joiner->beside = d->beside == NULL ? NULL : d->beside + early;
    s->joiner->beside_size = d->beside_size - early;
    status = read_labels(d, &parts, &ahead);
    if (status == GW_OK) {
        status = read_planes(d, &parts, &ahead);
    }
    if (status != GW_OK) {
        return status;
    }
    const coded_values all = {s->rank_buffer[0], map_bytes, len, s->place};
    return parts.is_masked ? join_masked(d, &parts, map_bytes, dst)
                           : join_values(d, &parts, &all, dst, s->joiner);
}

/* Makes the map bytes of a carried chunk of len values from the quanta at the start of data[0..size). Returns
 * the size of the quanta, or 0 if they are invalid. */
static size_t expand_quanta(gw_decoding *d, const uint8_t *data, size_t size, size_t len)
{
    const gw_scratch *s = &d->scratch;
    const size_t blocks = gw_block_count(len, d->info.block_log2), quanta_size = gw_round4(blocks);
    if (size < quanta_size || !gw_is_zero(data + blocks, quanta_size - blocks)) {
        return 0;
    }
    GW_MEMCPY(s->quanta, data, blocks);
    const gw_quanta quanta = {s->quanta, d->info.block_log2, (uint32_t)d->info.dtype};
    if (!gw_quanta_are_valid(&quanta, len)) {
        return 0;
    }
    s->joiner->drop_offset = gw_quanta_expand(s->map_bytes, &quanta, len);
    return quanta_size;
}

static gw_status decode_chunk(gw_decoding *d, uint64_t index, uint8_t *dst)
{
    const gw_kernels *k = &d->codec->kernels;
    gw_gcomp_chunk chunk;
    if (gw_frame_read_entry(&chunk, d->src, &d->info, index) != GW_OK) {
        return GW_ERR_CORRUPT; /* only if the bytes changed after the check of the directory */
    }
    const size_t len = (size_t)chunk.len;
    const uint8_t *data = d->src + chunk.offset;
    size_t size = (size_t)chunk.size;
    /* The size of the next chunk is not known yet; it is probably about that of this one. */
    d->scratch.joiner->next = data + size;
    d->scratch.joiner->next_size = (size_t)gw_min_u64(size, d->info.frame_size - chunk.offset - size);
    const size_t raw_size = gw_frame_raw_size((uint32_t)d->info.dtype, len);
    const size_t value_size = len * gw_traits_of((uint32_t)d->info.dtype)->size;

    if (chunk.kind == GW_GCOMP_CHUNK_CODED) {
        /* The checksum of a chunk that owns a codebook covers its whole region and is checked before the
         * codebook is read. The checksum of any other chunk continues that of the codebook, whose length is
         * known only after it was read. */
        const int is_owner = !d->info.installed && chunk.codebook == index;
        if (is_owner && d->info.checksum && k->crc32c(0, data, size) != chunk.crc) {
            return GW_ERR_CHECKSUM;
        }
        gw_status status = load_codebook(d, chunk.codebook);
        if (status != GW_OK) {
            return status;
        }
        if (!is_owner && d->info.checksum && k->crc32c(d->codebook_crc, data, size) != chunk.crc) {
            return GW_ERR_CHECKSUM;
        }
        if (size >= raw_size) {
            return GW_ERR_CORRUPT;
        }
        if (is_owner) {
            if (size < d->codebook_size) {
                return GW_ERR_CORRUPT; /* only if the entry changed before load_codebook() read it again */
            }
            data += d->codebook_size;
            size -= d->codebook_size;
        }
        if (d->info.quantum_mode == GW_GCOMP_CARRIED) {
            const size_t quanta_size = expand_quanta(d, data, size, len);
            return quanta_size == 0 ? GW_ERR_CORRUPT
                                    : decode_coded(d, data + quanta_size, size - quanta_size, len,
                                                   d->scratch.map_bytes, dst);
        }
        const uint8_t *map_bytes = d->map_bytes == NULL ? NULL : d->map_bytes + (index << d->info.chunk_log2);
        return decode_coded(d, data, size, len, map_bytes, dst);
    }
    if (d->info.checksum && k->crc32c(0, data, size) != chunk.crc) {
        return GW_ERR_CHECKSUM;
    }
    if (chunk.kind == GW_GCOMP_CHUNK_ZERO) {
        if (size != 0) {
            return GW_ERR_CORRUPT;
        }
        GW_MEMSET(dst, 0, value_size);
    } else {
        if (size != raw_size || !gw_is_zero(data + value_size, raw_size - value_size)) {
            return GW_ERR_CORRUPT;
        }
        GW_MEMCPY(dst, data, value_size);
    }
    if (d->addend != NULL) {
        gw_add_values(d->codec, &d->info, dst, dst, d->addend, len);
    }
    return GW_OK;
}

gw_status gw_decode_chunk(gw_decoding *d, uint64_t index, uint8_t *dst)
{
    gw_status status = decode_chunk(d, index, dst);
    if (status == GW_OK && d->scale != 1) {
        gw_scale_values(d->codec, dst, d->info.dtype, gw_frame_chunk_len(&d->info, index), d->scale);
    }
    if (status != GW_OK) {
        GW_MEMSET(dst, 0,
                  (size_t)gw_frame_chunk_len(&d->info, index) * gw_traits_of((uint32_t)d->info.dtype)->size);
    }
    return status;
}

void gw_add_values(const gw_codec *codec, const gw_gcomp_frame_info *info, void *out, const void *accumulator,
                   const void *values, size_t len)
{
    gw_add_fn *add = info->dtype == GW_FP32   ? codec->kernels.gcomp.add_fp32
                     : info->dtype == GW_BF16 ? codec->kernels.gcomp.add_bf16
                                              : codec->kernels.gcomp.add_fp16;
    add(out, accumulator, values, len, (uint32_t)codec->options.strict);
}
