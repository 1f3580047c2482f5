/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/level_layout.h"

gw_level_layout gw_level_layout_of(uint64_t len, uint32_t block_len, uint32_t level_max,
                                   gw_classic_coding coding)
{
    gw_level_layout layout;
    const uint64_t whole = len / GW_LEVEL_CHUNK_LEN;
    const size_t rest = (size_t)(len % GW_LEVEL_CHUNK_LEN);
    layout.len = len;
    layout.block_len = block_len == 0 || block_len > len ? len : block_len;
    layout.block_count = gw_classic_blocks(block_len, len);
    layout.chunk_count = whole + (rest != 0);
    layout.norms_size = 4 * layout.block_count;
    layout.directory_size = coding == GW_CLASSIC_CODING_PACKED ? 0 : 4 * layout.chunk_count;
    layout.chunks_size_max =
        whole * gw_level_packed_size(level_max, GW_LEVEL_CHUNK_LEN) + gw_level_packed_size(level_max, rest);
    return layout;
}

uint64_t gw_level_front_size(const gw_level_layout *layout)
{
    return layout->norms_size + layout->directory_size;
}

uint64_t gw_level_size_max(const gw_level_layout *layout)
{
    return gw_level_front_size(layout) + layout->chunks_size_max;
}
