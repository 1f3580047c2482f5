/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_mask.h"

#include "gcomp/tree_runs.h"

static size_t counts_size(const gw_tree *tree)
{
    return gw_round4(2 * (size_t)tree->inner_count);
}

/* Writes counts and runs of area[0] to dst[0..limit). Returns their size, or 0 if they do not fit. */
static size_t write_tree(uint8_t *dst, size_t limit, size_t len, const gw_kernels *kernels,
                         gw_mask_scratch *s)
{
    const size_t counts = counts_size(&s->tree);
    if (counts > limit) {
        return 0;
    }
    GW_MEMSET(dst, 0, counts);
    gw_rank_mask(s->area[0], len, &s->tree, kernels);
    gw_run_writer writer = {kernels, dst, dst + counts, dst + limit};
    const gw_rank_array ranks = {s->area[0], s->area[1], len, 0};
    return gw_write_runs(&writer, &s->tree, &ranks) ? (size_t)(writer.dst - dst) : 0;
}

size_t gw_mask_write(uint8_t *dst, const uint8_t *bits, size_t len, const gw_kernels *kernels,
                     gw_mask_scratch *scratch)
{
    const size_t byte_len = (len + 7) / 8, raw_size = gw_run_size(len, 1);
    uint32_t count[GW_MASK_CLASSES] = {0};
    if (len == 0) {
        return 0;
    }
    GW_MEMCPY(scratch->area[0], bits, byte_len);
    gw_mask_count(count, bits, byte_len);
    gw_mask_depths(scratch->codebook.mask_depth, count, &scratch->codebook_scratch);
    gw_mask_tree_build(&scratch->tree, &scratch->codebook);
    const size_t size = write_tree(dst + GW_MASK_HEAD_SIZE, raw_size, byte_len, kernels, scratch);
    const int is_coded = size < raw_size && (size != 0 || scratch->tree.node_count == 1);
    GW_MEMSET(dst, 0, GW_MASK_HEAD_SIZE);
    if (!is_coded) {
        GW_MEMCPY(dst + GW_MASK_HEAD_SIZE, bits, raw_size);
        return GW_MASK_HEAD_SIZE + raw_size;
    }
    gw_mask_table_write(dst, scratch->codebook.mask_depth);
    return GW_MASK_HEAD_SIZE + size;
}

/* Reads counts and runs at src[0..size) into area[0]. Returns their size, or SIZE_MAX. */
static size_t read_tree(const uint8_t *src, size_t size, size_t len, const gw_kernels *kernels,
                        gw_mask_scratch *s)
{
    const size_t counts = counts_size(&s->tree), counts_end = 2 * (size_t)s->tree.inner_count;
    if (counts > size || !gw_is_zero(src + counts_end, counts - counts_end)) {
        return SIZE_MAX;
    }
    gw_part_cursor cursor = {src, size, counts, src};
    gw_tree_runs runs;
    gw_ahead nothing = {NULL, 0, 0, 0};
    uint8_t *const level[2] = {s->area[0], s->area[1]};
    if (!gw_find_runs(&runs, &s->tree, len, &cursor) || cursor.at > size ||
        gw_read_runs(kernels, &runs, level, &nothing) != GW_OK) {
        return SIZE_MAX;
    }
    return cursor.at;
}

size_t gw_mask_read(uint8_t *bits, size_t len, const uint8_t *src, size_t size, const gw_kernels *kernels,
                    gw_mask_scratch *scratch)
{
    const size_t byte_len = (len + 7) / 8, raw_size = gw_run_size(len, 1);
    if (len == 0) {
        return 0;
    }
    if (size < GW_MASK_HEAD_SIZE) {
        return SIZE_MAX;
    }
    const int classes = gw_mask_table_read(scratch->codebook.mask_depth, src);
    if (classes < 0 || !gw_is_zero(src + GW_MASK_TABLE_SIZE, GW_MASK_HEAD_SIZE - GW_MASK_TABLE_SIZE)) {
        return SIZE_MAX;
    }
    src += GW_MASK_HEAD_SIZE;
    size -= GW_MASK_HEAD_SIZE;
    if (classes == 0) {
        if (raw_size > size) {
            return SIZE_MAX;
        }
        GW_MEMCPY(bits, src, raw_size);
        return GW_MASK_HEAD_SIZE + raw_size;
    }
    gw_mask_tree_build(&scratch->tree, &scratch->codebook);
    const size_t tree_size = read_tree(src, size, byte_len, kernels, scratch);
    if (tree_size == SIZE_MAX) {
        return SIZE_MAX;
    }
    GW_MEMCPY(bits, scratch->area[0], byte_len);
    GW_MEMSET(bits + byte_len, 0, raw_size - byte_len);
    return GW_MASK_HEAD_SIZE + tree_size;
}
