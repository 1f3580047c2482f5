/*
 * The segments of a source, in order.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_SEGMENTS_H
#define GW_SEGMENTS_H

#include "core/bytes.h"
#include "gradwire/gcomp.h"

/* 1 if the segments of a source have all of its values. */
static inline int gw_segments_cover(const gw_gcomp_source *source)
{
    uint64_t left = source->segment_offset + source->len;
    if (left < source->len || source->segments == NULL) {
        return 0;
    }
    for (size_t i = 0; i < source->segment_count; i++) {
        if (source->segments[i].len >= left) {
            return 1;
        }
        left -= source->segments[i].len;
    }
    return 0;
}

/* Where the next value is in the segments of a source; segments NULL: it has none. */
typedef struct gw_segment_place {
    const gw_gcomp_segment *segments; /* that of the next value, or one before it */
    uint64_t before;                  /* values from its start to the next value */
} gw_segment_place;

/* The next values that share a random stream, at most len > 0 of them: their seed, first element and number.
 * The place moves to the value after them. There are segments, and values left. */
static inline gw_gcomp_segment gw_segment_next(gw_segment_place *place, uint64_t len)
{
    while (place->before >= place->segments->len) {
        place->before -= place->segments->len;
        place->segments++;
    }
    gw_gcomp_segment part = *place->segments;
    part.first_element += place->before;
    part.len = gw_min_u64(len, part.len - place->before);
    place->before += part.len;
    return part;
}

/* The place len values further on. */
static inline gw_segment_place gw_segment_after(gw_segment_place place, uint64_t len)
{
    place.before += len;
    return place;
}

#endif
