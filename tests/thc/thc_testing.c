/*
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_testing.h"

#include <math.h>
#include <stdlib.h>

uint32_t rng_u32(test_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

uint32_t rng_below(test_rng *rng, uint32_t limit)
{
    return (uint32_t)(((uint64_t)rng_u32(rng) * limit) >> 32);
}

double rng_uniform(test_rng *rng)
{
    return ((double)rng_u32(rng) + 0.5) / 4294967296.0;
}

double rng_normal(test_rng *rng)
{
    double radius = sqrt(-2.0 * log(rng_uniform(rng)));
    return radius * cos(6.283185307179586 * rng_uniform(rng));
}

void fill_normal(test_rng *rng, float *x, size_t len, double scale)
{
    for (size_t i = 0; i < len; i++) {
        x[i] = (float)(scale * rng_normal(rng));
    }
}

gw_thc_options default_options(unsigned bits, uint32_t workers, int error_feedback)
{
    static uint8_t workspace[GW_THC_TABLE_WORKSPACE_SIZE];
    const gw_thc_goal goal = {bits, workers, 0, error_feedback};
    gw_thc_options options;

    assert_int_equal(gw_thc_options_init(&options, &goal, &(gw_workspace){workspace, sizeof workspace}),
                     GW_OK);
    return options;
}

gw_thc make_thc(const gw_thc_options *options)
{
    gw_thc thc;

    assert_int_equal(gw_thc_init(&thc, options), GW_OK);
    return thc;
}

void *take(size_t size)
{
    void *p = calloc(1, size > 0 ? size : 1);

    assert_non_null(p);
    return p;
}

gw_workspace any_workspace(void)
{
    static uint8_t memory[GW_THC_WORKSPACE_SIZE_MAX + 1];
    gw_workspace workspace = {memory + 1, GW_THC_WORKSPACE_SIZE_MAX}; /* not aligned, on purpose */
    return workspace;
}

gw_workspace take_workspace(const gw_thc *thc)
{
    gw_workspace workspace = {take(gw_thc_workspace_size(thc)), gw_thc_workspace_size(thc)};
    return workspace;
}

job_output run_job(const gw_thc *thc, const float *x, float *error, size_t len, uint32_t workers,
                   uint32_t round)
{
    job_output job;
    gw_workspace workspace = take_workspace(thc);
    size_t patterns = gw_thc_patterns_per_block(thc);

    job.blocks = gw_thc_block_count(thc, len);
    job.lanes = (size_t)gw_thc_range_lanes(thc, len, 0, job.blocks);
    job.lanes_size = gw_thc_lanes_size(thc, len, 0, job.blocks);
    job.indices_size = gw_thc_indices_size(thc, len, 0, job.blocks);
    job.maxima = take(job.blocks * patterns * sizeof *job.maxima);
    job.indices = take(job.indices_size * workers);
    uint32_t *own = take(job.blocks * patterns * sizeof *own);
    for (uint32_t rank = 0; rank < workers; rank++) {
        gw_thc_range range = {len, 0, job.blocks, round, rank};
        gw_thc_source source = {.values = x + rank * len, .error = error != NULL ? error + rank * len : NULL};
        assert_int_equal(gw_thc_norms(thc, &range, &source, own, NULL, &workspace), GW_OK);
        gw_thc_norms_max(job.maxima, own, job.blocks * patterns);
    }
    for (uint32_t rank = 0; rank < workers; rank++) {
        gw_thc_range range = {len, 0, job.blocks, round, rank};
        gw_thc_source source = {.values = x + rank * len,
                                .error = error != NULL ? error + rank * len : NULL,
                                .patterns = job.maxima};
        gw_buffer indices = {job.indices + rank * job.indices_size, job.indices_size, 0};
        assert_int_equal(gw_thc_encode(thc, &range, &source, &indices, NULL, &workspace), GW_OK);
        assert_int_equal(indices.size, job.indices_size);
    }
    free(own);
    free(workspace.data);
    return job;
}

void free_job(job_output *job)
{
    free(job->maxima);
    free(job->indices);
}

gw_status decode_all(const gw_thc *thc, const job_output *job, const uint8_t *lanes, uint32_t k,
                     gw_thc_mode mode, uint32_t round, size_t len, float *out)
{
    gw_workspace workspace = take_workspace(thc);
    uint32_t *members = take(job->blocks * sizeof *members);
    gw_thc_range range = {len, 0, job->blocks, round, 0};

    for (uint64_t i = 0; i < job->blocks; i++) {
        members[i] = k;
    }
    gw_thc_sum sum = {lanes, job->lanes_size, members, job->maxima};
    gw_thc_target target = {.values = out, .capacity = len};
    gw_status status = gw_thc_decode(thc, &range, &sum, mode, &target, &workspace);
    free(members);
    free(workspace.data);
    return status;
}
