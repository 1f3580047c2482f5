/*
 * Encode, carried frames: the quantum of every block, from a map, from the caller or from the values.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gcomp/gcomp_encoding.h"
#include "gcomp/quanta_choice.h"

/* The lower median of the map bytes of a block that are not 0. */
static uint8_t quantum_of_map(const uint8_t *map_bytes, size_t len, int32_t drop_offset, uint32_t dtype)
{
    uint32_t count[256] = {0};
    for (size_t i = 0; i < len; i++) {
        count[map_bytes[i]]++;
    }
    const size_t coded = len - count[0];
    size_t below = 0;
    uint32_t k = 0;
    while (2 * below < coded) {
        below += count[++k];
    }
    return k == 0 ? 0 : gw_quantum_stored(gw_quantum_exponent(k, drop_offset, dtype), dtype);
}

/* Quanta of the len values of a chunk, the first of which is value `first` of the map. */
static void quanta_of_map(const gw_encoding *e, const gw_gcomp_map *map, uint64_t first, size_t len,
                          uint8_t *quanta)
{
    const uint32_t log2 = e->info.block_log2, dtype = e->rule.dtype;
    const int32_t drop_offset = gw_drop_offset(e->codec, GW_GCOMP_CARRIED, map->base);
    for (size_t at = 0; at < len; at += (size_t)1 << log2) {
        quanta[at >> log2] = quantum_of_map(map->bytes + first + at, gw_min_size(len - at, (size_t)1 << log2),
                                            drop_offset, dtype);
    }
}

/* Nothing is cut in blocks whose quantum is too far below the largest of the chunk. */
static void clear_outside_window(uint8_t *quanta, size_t blocks)
{
    const uint32_t largest = gw_quanta_largest(quanta, blocks);
    for (size_t i = 0; i < blocks; i++) {
        quanta[i] = quanta[i] + (uint32_t)GW_QUANTA_WINDOW < largest ? 0 : quanta[i];
    }
}

void gw_group_quanta(gw_encoding *e, const gw_group *group)
{
    const uint32_t log2 = e->info.block_log2, dtype = e->rule.dtype;
    const size_t size = gw_traits_of(dtype)->size, chunk_len = (size_t)1 << e->info.chunk_log2;
    const gw_gcomp_source *source = e->source;
    const gw_gcomp_map *map = gw_source_map(source);
    const gw_gcomp_options *options = &e->codec->options;
    const gw_quanta_goal goal = {(double)options->quantum.nmse, (uint32_t)options->rounding,
                                 options->dead_zone, dtype, log2};
    const uint64_t first = group->first << e->info.chunk_log2;
    for (size_t at = 0; at < group->len; at += chunk_len) {
        const size_t len = gw_min_size(group->len - at, chunk_len), blocks = gw_block_count(len, log2);
        uint8_t *quanta = e->scratch.quanta + (at >> log2);
        if (map != NULL) {
            quanta_of_map(e, map, first + at, len, quanta);
        } else if (source->quantum.kind == GW_GCOMP_QUANTUM_BLOCKS) {
            for (size_t i = 0; i < blocks; i++) {
                quanta[i] = gw_quantum_stored(source->quantum.blocks[((first + at) >> log2) + i], dtype);
            }
        } else {
            gw_quanta_choose(&goal, group->values + at * size, len, quanta);
        }
        clear_outside_window(quanta, blocks);
    }
}
