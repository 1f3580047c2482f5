/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp_shim.h"

#include <stdlib.h>

static void *alloc_aligned(size_t size)
{
    void *place = NULL;
    if (posix_memalign(&place, 256, size != 0 ? size : 1) != 0) {
        abort();
    }
    return place;
}

gw_cuda_result gcomp_shim_decode(const gw_gcomp *codec, const gcomp_shim_source *source, uint32_t mode, void *dst,
                                 uint64_t capacity, uint32_t shared_size_max)
{
    gw_gcomp_decode_params params;
    gw_cuda_plan plan;
    gw_cuda_result result;
    const gw_cuda_shape shape = {2, shared_size_max};
    memset(&params, 0, sizeof params);
    memset(&result, 0x77, sizeof result);
    gw_cuda_codec_fill(&params.codec, gw_codec_of(codec));
    gw_cuda_map_fill(&params.map, source->map, NULL);
    params.mode = mode;
    params.item_count = 1;
    void *frame = alloc_aligned(source->size);
    if (source->size != 0) {
        memcpy(frame, source->frame, source->size);
    }
    params.item.src = frame;
    params.item.src_size = source->size;
    params.item.dst = dst;
    params.item.addend = source->addend;
    params.item.dst_capacity = capacity;
    if (source->map != NULL) {
        params.item.levels = source->map->levels;
        params.item.digest = source->map->digest;
        params.item.map_len = source->map->len;
    }
    params.item.result = &result;
    const size_t workspace_size = gw_cuda_decode_workspace_size(1, capacity);
    void *workspace = alloc_aligned(workspace_size);
    memset(workspace, 0xa5, workspace_size);
    gw_cuda_plan_decode(&plan, &params, capacity, &shape, workspace);
    shim_plan_run(&plan, workspace);
    free(workspace);
    free(frame);
    return result;
}
