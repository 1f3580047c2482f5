/*
 * Precision map: checks of the arguments, geometry of the launches.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/bytes.h"
#include "gcomp/gcomp_frame.h"
#include "gcomp/map_rule.h"
#include "cuda/cuda_handle.h"
#include "cuda/map_params.h"

static int is_array(const float *p, int is_used)
{
    return !is_used || (p != NULL && gw_cuda_is_aligned(p, 4));
}

static int is_state_complete(const gw_gcomp_map_rule *rule, const gw_optimizer_state *state)
{
    return is_array(state->param, (rule->limits & GW_MAP_TOLERANCE) != 0) &&
           is_array(state->m, (rule->uses & GW_MAP_USES_M) != 0) &&
           is_array(state->v, (rule->uses & GW_MAP_USES_V) != 0) &&
           is_array(state->a, (rule->uses & GW_MAP_USES_A) != 0);
}

static int may_read_vectors(const gw_optimizer_state *state)
{
    return gw_cuda_is_aligned(state->param, 16) && gw_cuda_is_aligned(state->m, 16) &&
           gw_cuda_is_aligned(state->v, 16) && gw_cuda_is_aligned(state->a, 16);
}

/* What both passes check, and their common parameters. */
static gw_status begin(gw_cuda_state **state, gw_cuda_map_params *params, gw_cuda *cuda,
                       const gw_cuda_gcomp_map_input *input, const uint32_t *top)
{
    if (cuda == NULL || input == NULL || input->rule == NULL || input->state == NULL || top == NULL ||
        !gw_map_rule_is_valid(input->rule) || !gw_cuda_is_aligned(top, 4) ||
        !gw_cuda_is_aligned(input->device_rule, 4) ||
        (input->len != 0 && !is_state_complete(input->rule, input->state))) {
        return GW_ERR_ARG;
    }
    *state = gw_cuda_state_of(cuda);
    if (*state == NULL) {
        return GW_ERR_STATE;
    }
    GW_MEMSET(params, 0, sizeof *params);
    params->rule = *input->rule;
    params->device_rule = input->device_rule;
    params->state = *input->state;
    params->len = input->len;
    params->is_aligned = may_read_vectors(input->state) ? 1 : 0;
    return GW_OK;
}

static gw_status run(gw_cuda_state *state, gw_cuda_kernel kernel, uint64_t blocks, uint32_t shared_size,
                     const void *params, size_t params_size, void *stream)
{
    const uint64_t resident = (uint64_t)state->info.multiprocessor_count * 8;
    const gw_cuda_launch launch = {
        kernel,     (uint32_t)gw_min_u64(blocks, resident), GW_CUDA_MAP_THREADS, shared_size, params,
        params_size};

    return gw_cuda_run(state, &launch, stream);
}

/* Blocks whose threads take four values each. */
static uint64_t blocks_of(uint64_t len)
{
    return len / (4 * GW_CUDA_MAP_THREADS) + 1;
}

gw_status gw_cuda_gcomp_map_scan(gw_cuda *cuda, const gw_cuda_gcomp_map_input *input, uint32_t *top,
                                 void *stream)
{
    gw_cuda_state *device;
    gw_cuda_map_params params;
    gw_status status = begin(&device, &params, cuda, input, top);

    if (status == GW_OK) {
        status = gw_cuda_clear(device, top, sizeof *top, stream);
    }
    if (status != GW_OK || input->len == 0) {
        return status;
    }
    params.top = top;
    return run(device, GW_CUDA_KERNEL_gw_device_map_scan, blocks_of(input->len), 0, &params, sizeof params,
               stream);
}

gw_status gw_cuda_gcomp_map_build(gw_cuda *cuda, const gw_cuda_gcomp_map_input *input, const uint32_t *top,
                                  uint8_t *map_bytes, uint32_t *base, void *stream)
{
    gw_cuda_state *device;
    gw_cuda_map_params params;
    gw_status status = begin(&device, &params, cuda, input, top);

    if (status == GW_OK && ((input->len != 0 && map_bytes == NULL) || !gw_cuda_is_aligned(base, 4))) {
        status = GW_ERR_ARG;
    }
    if (status != GW_OK) {
        return status;
    }
    params.top = (uint32_t *)(uintptr_t)top; /* only read */
    params.map_bytes = map_bytes;
    params.base = base;
    return run(device, GW_CUDA_KERNEL_gw_device_map_build, input->len / GW_CUDA_MAP_BUILD_LEN + 1, 0, &params,
               sizeof params, stream);
}

gw_status gw_cuda_gcomp_map_digest(gw_cuda *cuda, const uint8_t *map_bytes, uint64_t len, uint32_t chunk_log2,
                                   uint32_t *digest, void *stream)
{
    if (cuda == NULL || chunk_log2 < GW_CHUNK_LOG2_MIN || chunk_log2 > GW_CHUNK_LOG2_MAX ||
        (len != 0 && (map_bytes == NULL || digest == NULL || !gw_cuda_is_aligned(digest, 4)))) {
        return GW_ERR_ARG;
    }
    gw_cuda_state *device = gw_cuda_state_of(cuda);
    if (device == NULL || len == 0) {
        return device == NULL ? GW_ERR_STATE : GW_OK;
    }
    const gw_cuda_map_digest_params params = {map_bytes, len, chunk_log2, digest};
    const uint64_t chunk_len = gw_min_u64(len, (uint64_t)1 << chunk_log2);
    return run(device, GW_CUDA_KERNEL_gw_device_map_digest, ((len - 1) >> chunk_log2) + 1,
               8 * (uint32_t)sizeof(uint32_t) + (uint32_t)chunk_len, &params, sizeof params, stream);
}
