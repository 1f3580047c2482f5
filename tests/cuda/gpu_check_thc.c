/*
 * THC: norms to decode against the CPU, all block lengths and widths.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

gw_thc make_thc(unsigned workers, unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits,
                int is_rotated, int feedback)
{
    gw_thc thc;
    gw_thc_options config;
    const gw_thc_goal goal = {bits, workers, lane_bits, feedback};
    const gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    must(gw_thc_options_init(&config, &goal, &workspace), "gw_thc_options_init");
    free(workspace.data);
    config.seed = 42;
    config.dtype = dtype;
    config.block_log2 = block_log2;
    config.backends = cpu_backends;
    if (!is_rotated) {
        config.transform = GW_THC_PLAIN;
        config.threshold_bits = 0;
    }
    must(gw_thc_init(&thc, &config), "gw_thc_init");
    return thc;
}

/* One round of four equal workers but for their ranks: norms, encode with feedback, sum, decode. */
void compare_thc(const gw_thc *thc, const void *x, size_t len, const char *name)
{
    begin_case(name, "THC");
    const gw_thc_options *options = gw_thc_options_of(thc);
    const size_t value_size = len * gw_dtype_size(options->dtype);
    const uint64_t blocks = gw_thc_block_count(thc, len);
    const size_t patterns_size = 4 * (size_t)blocks * gw_thc_patterns_per_block(thc);
    const size_t indices_size = gw_thc_indices_size(thc, len, 0, blocks);
    const size_t lanes = (size_t)gw_thc_range_lanes(thc, len, 0, blocks);
    const size_t lanes_size = gw_thc_lanes_size(thc, len, 0, blocks);
    const int feedback = options->error_feedback;
    const gw_workspace workspace = {take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
    void *device_x = on_device(x, value_size);
    uint32_t *patterns = take(patterns_size), *device_patterns = on_device(NULL, patterns_size);
    uint8_t *indices = take(indices_size), *sum = take(lanes_size), *device_sum = on_device(NULL, lanes_size);
    float *error = take(4 * len), *device_error;
    gw_cuda_result *result = on_device(NULL, sizeof *result);
    uint8_t set[GW_THC_SET_SIZE(WORKERS)] = {0}, cpu_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const uint8_t *sources[WORKERS];
    uint8_t *device_indices[WORKERS];
    uint32_t ranks[WORKERS];
    gw_thc_agg agg;
    gw_thc_range range = {len, 0, blocks, 7, 0};

    memset(error, 0, 4 * len);
    device_error = on_device(error, 4 * len);
    memset(sum, 0, lanes_size);
    must(gw_thc_agg_init(&agg,
                         &(gw_thc_agg_options){options->table, WORKERS, options->lane_bits, cpu_backends}),
         "gw_thc_agg_init");
    must(gw_thc_norms(thc, &range, &(gw_thc_source){.values = x, .error = feedback ? error : NULL}, patterns,
                      NULL, &workspace),
         "gw_thc_norms");
    must(gw_cuda_thc_norms(&cuda, thc, &range,
                           &(gw_thc_source){.values = device_x,
                                            .error = (float *)(uintptr_t)feedback ? device_error : NULL},
                           device_patterns, &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
         "gw_cuda_thc_norms");
    expect(fetch_result(result).status == GW_OK, "status of norms", name);
    expect_bytes(device_patterns, patterns, patterns_size, "norms", name);
    for (uint32_t w = 0; w < WORKERS; w++) {
        range.rank = w;
        ranks[w] = w;
        device_indices[w] = on_device(NULL, indices_size);
        sources[w] = device_indices[w];
        memset(error, 0, 4 * len);
        (void)cuda_device_put(&device, device_error, error, 4 * len);
        must(gw_thc_encode(
                 thc, &range,
                 &(gw_thc_source){.values = x, .error = feedback ? error : NULL, .patterns = patterns},
                 &(gw_buffer){indices, indices_size, 0}, NULL, &workspace),
             "gw_thc_encode");
        /* One of them has its key in device memory, and a range with other values. */
        const gw_cuda_thc_key key = {options->seed, range.round, w};
        gw_cuda_thc_key *key_at = w == 2 ? on_device(&key, sizeof key) : NULL;
        gw_thc_range device_range = range;
        device_range.rank = w == 2 ? 0 : w;
        device_range.round = w == 2 ? 0 : range.round;
        must(gw_cuda_thc_encode(&cuda, thc, &device_range,
                                &(gw_thc_source){.values = device_x,
                                                 .error = feedback ? device_error : NULL,
                                                 .patterns = device_patterns,
                                                 .own_patterns = w & 1 ? device_patterns : NULL},
                                &(gw_cuda_buffer){device_indices[w], indices_size},
                                &(gw_cuda_thc_request){key_at, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_encode");
        expect(fetch_result(result).status == GW_OK, "status of encode", name);
        expect_bytes(device_indices[w], indices, indices_size, "indices", name);
        give(key_at);
        if (feedback) {
            expect_bytes(device_error, error, 4 * len, "error memory", name);
        }
        must(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){sum, cpu_set, lanes}, indices, w),
             "gw_thc_agg_add_indices");
    }
    must(gw_cuda_thc_sum_indices(&cuda, &agg, &(gw_thc_partial){device_sum, set, lanes},
                                 &(gw_cuda_thc_inputs){sources, ranks, NULL, WORKERS, 0}, NULL),
         "gw_cuda_thc_sum_indices");
    expect_bytes(device_sum, sum, lanes_size, "sum", name);

    /* The sum as a partial sum, sound and with a lane that four workers cannot make. */
    {
        const uint8_t *in_lanes[1] = {device_sum}, *in_sets[1] = {set};
        uint8_t *total = on_device(NULL, lanes_size), total_set[GW_THC_SET_SIZE(WORKERS)] = {0};
        must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){total, total_set, lanes},
                                   &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 1, 0},
                                   &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_sum_lanes");
        expect(fetch_result(result).status == GW_OK, "status of a sum of lanes", name);
        expect_bytes(total, sum, lanes_size, "sum of lanes", name);
        uint8_t *wrong = take(lanes_size);
        memcpy(wrong, sum, lanes_size);
        wrong[lanes_size - options->lane_bits / 8] = 255; /* above WORKERS * granularity of these tables */
        uint8_t *device_wrong = on_device(wrong, lanes_size);
        in_lanes[0] = device_wrong;
        memset(total_set, 0, sizeof total_set);
        must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){total, total_set, lanes},
                                   &(gw_cuda_thc_inputs){in_lanes, NULL, in_sets, 1, 0},
                                   &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
             "gw_cuda_thc_sum_lanes");
        const uint32_t wanted = WORKERS * options->table.granularity < 255 ? GW_ERR_CORRUPT : GW_OK;
        expect(fetch_result(result).status == wanted, "status of a sum of wrong lanes", name);
        free(wrong);
        give(device_wrong);
        give(total);
    }

    /* A buffer for a raw all-reduce, and what is decoded from it. */
    {
        const size_t reduced_size = gw_thc_reduced_size(thc, len, 0, blocks);
        uint8_t *reduced = take(reduced_size), *device_reduced = on_device(NULL, reduced_size);
        void *cpu_out = take(value_size), *reduced_out = on_device(NULL, value_size);
        must(gw_thc_expand(thc, &range, &(gw_thc_indices){indices, indices_size, NULL},
                           &(gw_buffer){reduced, reduced_size, 0}),
             "gw_thc_expand");
        must(gw_cuda_thc_expand(&cuda, thc, &range,
                                &(gw_thc_indices){device_indices[WORKERS - 1], indices_size, NULL},
                                &(gw_cuda_buffer){device_reduced, reduced_size}, NULL),
             "gw_cuda_thc_expand");
        expect_bytes(device_reduced, reduced, reduced_size, "buffer for a raw reduction", name);
        must(gw_thc_decode_reduced(thc, &range, &(gw_thc_sum){reduced, reduced_size, NULL, patterns},
                                   GW_THC_MEAN, &(gw_thc_target){.values = cpu_out, .capacity = len},
                                   &workspace),
             "gw_thc_decode_reduced");
        must(gw_cuda_thc_decode_reduced(&cuda, thc, &range,
                                        &(gw_thc_sum){device_reduced, reduced_size, NULL, device_patterns},
                                        &(gw_cuda_target){reduced_out, len},
                                        &(gw_cuda_thc_request){NULL, GW_THC_MEAN, result, NULL}),
             "gw_cuda_thc_decode_reduced");
        expect(fetch_result(result).status == GW_OK, "status of a raw reduction", name);
        expect_bytes(reduced_out, cpu_out, value_size, "values of a raw reduction", name);
        free(cpu_out);
        free(reduced);
        give(reduced_out);
        give(device_reduced);
    }
    uint32_t *members = take(4 * (size_t)blocks);
    for (uint64_t b = 0; b < blocks; b++) {
        members[b] = WORKERS;
    }
    uint32_t *device_members = on_device(members, 4 * (size_t)blocks);
    void *out = take(value_size), *device_out = on_device(NULL, value_size);
    for (int mode = GW_THC_SUM; mode <= GW_THC_MEAN; mode++) {
        must(gw_thc_decode(thc, &range, &(gw_thc_sum){sum, lanes_size, members, patterns}, (gw_thc_mode)mode,
                           &(gw_thc_target){.values = out, .capacity = len}, &workspace),
             "gw_thc_decode");
        must(gw_cuda_thc_decode(&cuda, thc, &range,
                                &(gw_thc_sum){device_sum, lanes_size, device_members, device_patterns},
                                &(gw_cuda_target){device_out, len},
                                &(gw_cuda_thc_request){NULL, (gw_thc_mode)mode, result, NULL}),
             "gw_cuda_thc_decode");
        expect(fetch_result(result).status == GW_OK, "status of decode", name);
        expect_bytes(device_out, out, value_size, "decoded values", name);
    }
    give(device_out);
    give(device_members);
    give(result);
    give(device_error);
    give(device_sum);
    give(device_patterns);
    give(device_x);
    for (int w = 0; w < WORKERS; w++) {
        give(device_indices[w]);
    }
    free(out);
    free(members);
    free(error);
    free(sum);
    free(indices);
    free(patterns);
    free(workspace.data);
}

void run_thc(size_t len, uint64_t seed)
{
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        for (unsigned bits = 1; bits <= 4; bits++) {
            for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
                const gw_dtype dtype = (gw_dtype)(1 + (bits + block_log2) % 3);
                const unsigned lane_bits = bits == 2 ? 16 : bits == 3 ? 32 : 8;
                const gw_thc thc =
                    make_thc(WORKERS, bits, block_log2, dtype, lane_bits, is_rotated, is_rotated && bits > 1);
                char name[96];
                uint64_t random = seed + block_log2;
                const size_t n = len + 5 * bits;
                void *x = take(n * gw_dtype_size(dtype));
                fill(x, dtype, n, 0, &random);
                snprintf(name, sizeof name, "thc bits %u block %u dtype %d rotated %d", bits,
                         1u << block_log2, dtype, is_rotated);
                compare_thc(&thc, x, n, name);
                free(x);
            }
        }
    }
}
