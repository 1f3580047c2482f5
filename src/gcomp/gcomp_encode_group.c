/*
 * Encode: what the steps of a group read: its values, the map bytes and quanta beside them, and the random
 * streams of its segments.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_encoding.h"
#include "gcomp/quanta.h"

gw_span gw_group_span(gw_encoding *e, const gw_group *group, size_t at, size_t len)
{
    const gw_gcomp_map *map = gw_source_map(e->source);
    const uint64_t first = (group->first << e->info.chunk_log2) + at;
    const uint8_t *values = group->values + at * gw_traits_of(e->rule.dtype)->size;
    gw_span span = {values, map == NULL ? NULL : map->bytes + first, len, group->element + at,
                    group->len - at - len};
    if (e->info.quantum_mode == GW_GCOMP_CARRIED) {
        const uint32_t log2 = e->info.block_log2;
        const gw_quanta quanta = {e->scratch.quanta + (at >> log2), log2, e->rule.dtype};
        e->rule.drop_offset = gw_quanta_expand(e->scratch.map_bytes, &quanta, len);
        span.map_bytes = e->scratch.map_bytes;
    }
    return span;
}

void gw_round_parts(gw_encoding *e, const gw_span *span, gw_segment_place *place, uint8_t *out)
{
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    for (size_t done = 0; done < span->len;) {
        const gw_gcomp_segment part = gw_segment_next(place, span->len - done);
        const gw_span rounded = gw_span_of_part(span, size, done, &part);
        e->rule.seed = part.seed;
        e->codec->kernels.gcomp.round(out + done * size, &rounded, &e->rule);
        done += (size_t)part.len;
    }
}

uint32_t gw_split_parts(gw_encoding *e, const gw_group *group, const gw_span *chunk, size_t at,
                        gw_digits *digits)
{
    const gw_scratch *s = &e->scratch;
    gw_split_fn *const split = e->codec->kernels.gcomp.split;
    if (group->part_count <= 1) {
        return split(s->rank_buffer[0], digits, chunk, &e->rule, s->ranker);
    }
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    gw_segment_place place = gw_segment_after(group->parts, at);
    uint32_t any = 0;
    for (size_t done = 0; done < chunk->len;) {
        const gw_gcomp_segment part = gw_segment_next(&place, chunk->len - done);
        const gw_span span = gw_span_of_part(chunk, size, done, &part);
        e->rule.seed = part.seed;
        any |= split(s->rank_buffer[0] + done, digits, &span, &e->rule, s->ranker);
        done += (size_t)part.len;
    }
    return any;
}

void gw_digits_begin(const gw_encoding *e, gw_digits *digits)
{
    GW_MEMSET(digits, 0, sizeof *digits);
    GW_MEMCPY(digits->plane, e->scratch.plane, sizeof digits->plane);
    digits->escape = e->scratch.escapes;
}

/* Each part costs additional kernel calls, in survey and in each of its chunks, so a group has at most about
 * one part per this many values. */
enum { PART_LEN_MIN = 16384 };

/* Takes the group's segments, if they are not too many for kernels to work on one after the other. */
static int take_parts(gw_encoding *e, gw_group *group, size_t parts_max)
{
    gw_segment_place place = e->segments;
    gw_gcomp_segment part = {0, 0, 0};
    size_t count = 0;
    for (uint64_t len = 0; len < group->len; len += part.len, count++) {
        if (count == parts_max) {
            return 0;
        }
        part = gw_segment_next(&place, group->len - len);
    }
    group->parts = e->segments;
    group->part_count = count;
    if (count == 1) { /* as if the source had no segments */
        e->rule.seed = part.seed;
        group->element = part.first_element;
    }
    e->segments = place;
    return 1;
}

void gw_group_begin(gw_encoding *e, gw_group *group, int is_whole)
{
    const size_t chunk_len = (size_t)1 << e->info.chunk_log2;
    if (e->info.quantum_mode == GW_GCOMP_CARRIED) {
        gw_group_quanta(e, group);
    }
    if (e->segments.segments == NULL || e->codec->options.rounding != GW_GCOMP_STOCHASTIC) {
        group->element = e->source->first_element + (group->first << e->info.chunk_log2);
        return;
    }
    e->rule.rounding = GW_GCOMP_STOCHASTIC;
    /* Explicit quanta would be those of values before they are rounded. */
    if (e->rule.derived && take_parts(e, group, is_whole ? 1 : 1 + group->len / PART_LEN_MIN)) {
        return;
    }
    /* The values of a hop are already in the array of sums, perhaps after those of other groups, and are
     * rounded in place. */
    const size_t size = gw_traits_of(e->rule.dtype)->size;
    const size_t first = (size_t)((uintptr_t)group->values - (uintptr_t)e->scratch.sums);
    uint8_t *out = e->scratch.sums + (first < size << GW_GROUP_LOG2 ? first : 0);
    for (size_t at = 0; at < group->len; at += chunk_len) {
        const gw_span chunk = gw_group_span(e, group, at, gw_min_size(group->len - at, chunk_len));
        gw_round_parts(e, &chunk, &e->segments, out + at * size);
    }
    e->rule.rounding = GW_GCOMP_TRUNCATE;
    group->values = out;
}
