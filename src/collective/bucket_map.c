/*
 * Maps of buckets: the maps of the parameters in a bucket, piece by piece, and their random streams.
 *
 * Every call checks all segments, not only those of its piece: a bad one fails on every piece alike, before
 * anything is written.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "collective/layout.h"
#include "core/bytes.h"
#include "core/kernels.h"
#include "gcomp/map_rule.h"

/* Stands for the arrays that the optimizer has not made yet: 4 KiB, which stay in the L1 cache. */
enum { ZERO_COUNT = 1024 };
static const float zeros[ZERO_COUNT];

static uint64_t end_of(const gw_collective_segment *segment)
{
    return segment->offset + segment->len;
}

/* A segment that starts at `end` or later, within the bucket, with a rule that can be applied. */
static int is_segment_valid(const gw_collective_segment *segment, uint64_t end, uint64_t bucket_len)
{
    const gw_gcomp_map_rule *rule = segment->rule;
    if (segment->offset < end || segment->offset > bucket_len ||
        segment->len > bucket_len - segment->offset) {
        return 0;
    }
    if (rule == NULL) {
        return 1;
    }
    return gw_map_rule_is_valid(rule) &&
           ((rule->limits & GW_MAP_TOLERANCE) == 0 || segment->len == 0 || segment->state.param != NULL);
}

/* Checks the segments; *wire_scale is that of their rules, 1 if there is none. */
static gw_status check_segments(const gw_collective_segments *segments, uint64_t bucket_len,
                                float *wire_scale)
{
    const gw_gcomp_map_rule *first = NULL;
    uint64_t end = 0;
    if (segments == NULL || (segments->count != 0 && segments->at == NULL)) {
        return GW_ERR_ARG;
    }
    for (size_t i = 0; i < segments->count; i++) {
        const gw_collective_segment *segment = &segments->at[i];
        if (!is_segment_valid(segment, end, bucket_len)) {
            return GW_ERR_ARG;
        }
        end = end_of(segment);
        if (segment->rule == NULL) {
            continue;
        }
        first = first != NULL ? first : segment->rule;
        if (gw_bits_from_float(segment->rule->wire_scale) != gw_bits_from_float(first->wire_scale)) {
            return GW_ERR_ARG;
        }
    }
    *wire_scale = first != NULL ? first->wire_scale : 1.0f;
    return GW_OK;
}

/* An array from element `at` on. One that the rule reads (`is_read`) and that is missing counts as zeros, of
 * which there are at most ZERO_COUNT. */
static const float *array_at(const float *array, uint64_t at, int is_read, uint64_t *len)
{
    if (array != NULL) {
        return array + (size_t)at;
    }
    if (!is_read) {
        return NULL;
    }
    *len = gw_min_u64(*len, ZERO_COUNT);
    return zeros;
}

/* The state of *len values of a segment, from value `at` of it on; *len shrinks where arrays are missing. */
static gw_optimizer_state state_at(const gw_collective_segment *segment, uint64_t at, uint64_t *len)
{
    const gw_optimizer_state *state = &segment->state;
    const uint32_t uses = segment->rule->uses;
    const gw_optimizer_state part = {
        .param = array_at(state->param, at, 0, len),
        .m = array_at(state->m, at, (uses & GW_MAP_USES_M) != 0, len),
        .v = array_at(state->v, at, (uses & GW_MAP_USES_V) != 0, len),
        .a = array_at(state->a, at, (uses & GW_MAP_USES_A) != 0, len),
    };
    return part;
}

static uint32_t largest_of(const uint8_t *map_bytes, size_t len)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < len; i++) {
        largest = map_bytes[i] > largest ? map_bytes[i] : largest;
    }
    return largest;
}

/* One pass over a piece. */
typedef struct map_pass {
    gw_gcomp_kernels kernels;
    uint8_t *map_bytes; /* of the bucket; NULL in the first pass */
    uint32_t base;
    uint32_t largest; /* first pass: quarter-octave, second: map byte */
} map_pass;

/* Values [from, to) of the bucket, which are all in the segment. */
static void pass_segment(map_pass *pass, const gw_collective_segment *segment, uint64_t from, uint64_t to)
{
    uint64_t len;
    for (uint64_t at = from; at < to; at += len) {
        uint32_t largest;
        len = to - at;
        const gw_optimizer_state state = state_at(segment, at - segment->offset, &len);
        if (pass->map_bytes == NULL) {
            largest = pass->kernels.map_scan(segment->rule, &state, (size_t)len);
        } else {
            uint8_t *map_bytes = pass->map_bytes + (size_t)at;
            pass->kernels.map_build(segment->rule, &state, (size_t)len, pass->base, map_bytes);
            largest = largest_of(map_bytes, (size_t)len);
        }
        pass->largest = largest > pass->largest ? largest : pass->largest;
    }
}

/* Values [first, end) of the bucket: those of segments with a rule; in the second pass zeros elsewhere. */
static void pass_piece(map_pass *pass, const gw_collective_segments *segments,
                       const gw_collective_piece *piece)
{
    const uint64_t end = piece->first + piece->len;
    if (pass->map_bytes != NULL && piece->len != 0) {
        GW_MEMSET(pass->map_bytes + (size_t)piece->first, 0, (size_t)piece->len);
    }
    for (size_t i = 0; i < segments->count; i++) {
        const gw_collective_segment *segment = &segments->at[i];
        const uint64_t from = segment->offset > piece->first ? segment->offset : piece->first;
        const uint64_t to = gw_min_u64(end_of(segment), end);
        if (segment->rule != NULL && from < to) {
            pass_segment(pass, segment, from, to);
        }
    }
}

static void pass_begin(map_pass *pass, uint32_t backends)
{
    gw_kernels kernels;
    gw_kernels_init(&kernels, backends);
    *pass = (map_pass){.kernels = kernels.gcomp};
}

uint64_t gw_collective_digest_len(const gw_collective_layout *layout)
{
    return gw_layout_is_valid(layout) ? (uint64_t)layout->piece_count * layout->piece_chunks : 0;
}

gw_status gw_collective_map_scan(const gw_collective_layout *layout, uint32_t piece,
                                 const gw_collective_segments *segments, uint32_t backends, uint32_t *top)
{
    gw_collective_piece place;
    float wire_scale;
    if (top == NULL || gw_collective_piece_at(layout, piece, &place) != GW_OK ||
        check_segments(segments, layout->shape.len, &wire_scale) != GW_OK) {
        return GW_ERR_ARG;
    }
    map_pass pass;
    pass_begin(&pass, backends);
    pass_piece(&pass, segments, &place);
    *top = pass.largest;
    return GW_OK;
}

gw_status gw_collective_map_build(const gw_collective_layout *layout, uint32_t piece,
                                  const gw_collective_segments *segments, uint32_t backends,
                                  gw_collective_map *map, uint32_t *map_byte_max)
{
    gw_collective_piece place;
    float wire_scale;
    if (map == NULL || map_byte_max == NULL || map->base == 0 || map->base > 1023 ||
        gw_collective_piece_at(layout, piece, &place) != GW_OK ||
        check_segments(segments, layout->shape.len, &wire_scale) != GW_OK ||
        gw_bits_from_float(map->wire_scale) != gw_bits_from_float(wire_scale)) {
        return GW_ERR_ARG;
    }
    if (place.len == 0) {
        *map_byte_max = 0;
        return GW_OK;
    }
    if (map->bytes == NULL || map->digest == NULL) {
        return GW_ERR_ARG;
    }
    map_pass pass;
    pass_begin(&pass, backends);
    pass.map_bytes = map->bytes;
    pass.base = map->base;
    pass_piece(&pass, segments, &place);
    *map_byte_max = pass.largest;
    return gw_gcomp_map_digest(map->bytes + (size_t)place.first, (size_t)place.len, layout->shape.chunk_log2,
                               map->digest + (size_t)place.digest_first);
}

/* Streams of the bucket in order: of padding, whose values depend on no random word, and of segments. With
 * streams NULL they are counted only. */
static size_t list_streams(const gw_collective_segments *segments, uint64_t bucket_len,
                           gw_gcomp_segment *streams)
{
    uint64_t end = 0;
    size_t count = 0;
    for (size_t i = 0; i <= segments->count; i++) {
        const gw_collective_segment *segment = i < segments->count ? &segments->at[i] : NULL;
        const uint64_t next = segment != NULL ? segment->offset : bucket_len;
        if (next > end) {
            if (streams != NULL) {
                streams[count] = (gw_gcomp_segment){.first_element = end, .len = next - end};
            }
            count++;
        }
        if (segment != NULL && segment->len != 0) {
            if (streams != NULL) {
                streams[count] = (gw_gcomp_segment){segment->seed, segment->first_element, segment->len};
            }
            count++;
        }
        end = segment != NULL ? end_of(segment) : bucket_len;
    }
    return count;
}

gw_status gw_collective_streams(const gw_collective_layout *layout, const gw_collective_segments *segments,
                                gw_gcomp_segment *streams, size_t capacity, size_t *stream_count)
{
    float wire_scale;
    if (stream_count == NULL) {
        return GW_ERR_ARG;
    }
    *stream_count = 0;
    if (!gw_layout_is_valid(layout) || check_segments(segments, layout->shape.len, &wire_scale) != GW_OK) {
        return GW_ERR_ARG;
    }
    const size_t count = list_streams(segments, layout->shape.len, NULL);
    if (count > capacity) {
        return GW_ERR_DST;
    }
    if (count != 0 && streams == NULL) {
        return GW_ERR_ARG;
    }
    *stream_count = count != 0 ? list_streams(segments, layout->shape.len, streams) : 0;
    return GW_OK;
}
