/* THC against the CPU: norms, indices, sums, raw reductions, decodes. SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda_cases.h"

#include <stdlib.h>
#include <string.h>

thc_case make_thc(uint32_t workers, unsigned bits, unsigned block_log2, gw_dtype dtype, unsigned lane_bits,
                  gw_thc_transform transform, int error_feedback)
{
    thc_case j;
    memset(&j, 0, sizeof j);
    const gw_thc_goal goal = {bits, workers, lane_bits, error_feedback};
    const gw_workspace workspace = {take(GW_THC_TABLE_WORKSPACE_SIZE), GW_THC_TABLE_WORKSPACE_SIZE};
    must(gw_thc_options_init(&j.options, &goal, &workspace), "gw_thc_options_init");
    free(workspace.data);
    j.options.seed = 42;
    j.options.dtype = dtype;
    j.options.block_log2 = block_log2;
    j.options.backends = cpu_backends;
    j.options.transform = transform;
    if (transform == GW_THC_PLAIN) {
        j.options.threshold_bits = 0;
    }
    change_thc(&j);
    return j;
}

void change_thc(thc_case *j)
{
    must(gw_thc_init(&j->thc, &j->options), "gw_thc_init");
}

void set_range(thc_case *j, uint64_t count, uint64_t first, uint64_t blocks, uint32_t rank)
{
    j->range.len = count;
    j->range.block_first = first;
    j->range.block_count = blocks;
    j->range.round = 0xfffffff0u + rank;
    j->range.rank = rank;
    j->first_element = (size_t)(first << j->options.block_log2);
    uint64_t end = (first + blocks) << j->options.block_log2;
    end = end < count ? end : count;
    j->len = end > j->first_element ? (size_t)end - j->first_element : 0;
    j->patterns = (size_t)blocks * gw_thc_patterns_per_block(&j->thc);
}

gw_thc_agg make_agg(const thc_case *j)
{
    gw_thc_agg agg;
    must(gw_thc_agg_init(&agg, &(gw_thc_agg_options){j->options.table, j->options.worker_max,
                                                     j->options.lane_bits, cpu_backends}),
         "gw_thc_agg_init");
    return agg;
}

static size_t element_size(const thc_case *j)
{
    return gw_dtype_size((gw_dtype)j->options.dtype);
}

static size_t lane_count(const thc_case *j)
{
    return (size_t)gw_thc_range_lanes(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
}

static size_t indices_size_of(const thc_case *j)
{
    return gw_thc_indices_size(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
}

static gw_workspace new_workspace(void)
{
    return (gw_workspace){take(GW_THC_WORKSPACE_SIZE_MAX), GW_THC_WORKSPACE_SIZE_MAX};
}

/* ---- one worker ---------------------------------------------------------------------------------------- */

/* The other workers: maxima somewhat above the own patterns, one block's equal to them. */
static void raise_maxima(const thc_case *j, uint32_t *patterns, uint64_t *random)
{
    const int is_rotated = j->options.transform == GW_THC_ROTATED;
    const uint32_t mark = is_rotated ? GW_THC_NORM_NONFINITE : 0xffffffffu;
    for (size_t i = 0; i < j->patterns; i++) {
        const uint32_t r = (uint32_t)next_random(random);
        if (patterns[i] == mark || r % 4 == 0) {
            continue;
        }
        if (is_rotated && patterns[i] == 0) {
            patterns[i] = r % 3 == 0 ? 0 : 0x3f800000u; /* others have values where this one has none */
        } else if (patterns[i] < (is_rotated ? 0x7d000000u : 0xfd000000u)) {
            patterns[i] += r % 0x1000000u;
        }
    }
    for (size_t i = 0; !is_rotated && i < j->range.block_count; i++) {
        uint64_t bad;
        if (gw_thc_norms_check(&j->thc, patterns + 2 * i, 1, &bad) != GW_OK) {
            patterns[2 * i] = 0xc0000000u;
            patterns[2 * i + 1] = 0xc0000000u;
        }
    }
}

/* Norms of both sides; the CPU's status. `host` and `on` are the same arrays. */
static gw_status compare_norms(const thc_case *j, const gw_thc_source *host, const gw_thc_source *on,
                               uint32_t *own, uint32_t *device_own)
{
    const gw_workspace workspace = new_workspace();
    gw_cuda_result *result = new_result();
    uint64_t bad = 99;

    begin_case(j->name, "norms");
    const gw_status status = gw_thc_norms(&j->thc, &j->range, host, own, &bad, &workspace);
    must(gw_cuda_thc_norms(&cuda, &j->thc, &j->range, on, device_own,
                           &(gw_cuda_thc_request){NULL, GW_THC_SUM, result, NULL}),
         "gw_cuda_thc_norms");
    const gw_cuda_result r = fetch_result(result);
    expect(r.status == (uint32_t)status, "status of norms", j->name);
    expect(r.bad_index == (status == GW_OK ? UINT64_MAX : bad), "block of norms", j->name);
    expect(r.len == (status == GW_OK ? j->len : 0), "length of norms", j->name);
    if (status == GW_OK) {
        expect_bytes(device_own, own, 4 * j->patterns, "norms", j->name);
    }
    free(workspace.data);
    return status;
}

/* Indices of both sides and the error memory after it, with the key half the time from device memory. */
static void compare_indices(const thc_case *j, const gw_thc_source *host, gw_thc_source on, uint8_t *indices,
                            uint64_t *random)
{
    const size_t size = indices_size_of(j);
    const gw_workspace workspace = new_workspace();
    const gw_cuda_thc_key key = {j->options.seed, j->range.round, j->range.rank};
    uint8_t *device_indices = on_device(NULL, size);
    gw_cuda_result *result = new_result();
    gw_cuda_thc_request request = {NULL, GW_THC_SUM, result, NULL};
    gw_thc_range range = j->range;
    uint64_t bad;

    begin_case(j->name, "indices");
    if ((next_random(random) & 1) != 0) {
        request.key = on_device(&key, sizeof key);
        range.round ^= 0x5555; /* what the key replaces */
    }
    on.patterns = on_device(host->patterns, 4 * j->patterns);
    must(gw_thc_encode(&j->thc, &j->range, host, &(gw_buffer){indices, size, 0}, &bad, &workspace),
         "gw_thc_encode");
    must(gw_cuda_thc_encode(&cuda, &j->thc, &range, &on, &(gw_cuda_buffer){device_indices, size}, &request),
         "gw_cuda_thc_encode");
    expect(fetch_result(result).status == GW_OK, "status of encode", j->name);
    expect_bytes(device_indices, indices, size, "indices", j->name);
    if (host->error != NULL) {
        expect_bytes(on.error, host->error, 4 * j->len, "error memory", j->name);
    }
    free(workspace.data);
}

uint8_t *compare_thc_worker(const thc_case *j, const void *x, const float *error, uint32_t *maxima,
                            uint64_t *random, int own_given)
{
    const unsigned long mark = device_mark();
    const size_t size = element_size(j);
    uint32_t *own = take(4 * j->patterns), *device_own = on_device(NULL, 4 * j->patterns);
    float *cpu_error = error == NULL ? NULL : take(4 * j->len);
    uint8_t *indices = NULL;

    if (error != NULL) {
        memcpy(cpu_error, error, 4 * j->len);
    }
    gw_thc_source host = {.values = x, .error = cpu_error};
    gw_thc_source on = {.values = on_device_at(x, size * j->len, size * j->offset),
                        .error = error == NULL ? NULL : on_device_at(error, 4 * j->len, 4 * j->offset)};
    if (compare_norms(j, &host, &on, own, device_own) == GW_OK) {
        memcpy(maxima, own, 4 * j->patterns);
        raise_maxima(j, maxima, random);
        host.patterns = maxima;
        on.own_patterns = own_given ? device_own : NULL;
        indices = take(indices_size_of(j));
        compare_indices(j, &host, on, indices, random);
    }
    give_since(mark);
    free(own);
    free(cpu_error);
    return indices;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* The indices of WORKERS workers in device memory. */
typedef struct inputs {
    const uint8_t *source[WORKERS];
    uint32_t rank[WORKERS];
} inputs;

/* Sums of indices: two first, into memory with anything in it, the rest on top; lanes are the CPU's sum. */
static void compare_sum_indices(const thc_case *j, const inputs *in, const uint8_t *lanes, const uint8_t *set)
{
    const gw_thc_agg agg = make_agg(j);
    const size_t len = lane_count(j), lanes_size = len * (j->options.lane_bits / 8);
    uint8_t *sum = on_device(NULL, lanes_size), sum_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    const gw_thc_partial partial = {sum, sum_set, len};

    begin_case(j->name, "sum of indices");
    must(gw_cuda_thc_sum_indices(&cuda, &agg, &partial,
                                 &(gw_cuda_thc_inputs){in->source, in->rank, NULL, 2, 0}, NULL),
         "gw_cuda_thc_sum_indices");
    must(gw_cuda_thc_sum_indices(&cuda, &agg, &partial,
                                 &(gw_cuda_thc_inputs){in->source + 2, in->rank + 2, NULL, WORKERS - 2, 1},
                                 NULL),
         "gw_cuda_thc_sum_indices");
    expect(memcmp(sum_set, set, sizeof sum_set) == 0, "workers of a sum", j->name);
    expect_bytes(sum, lanes, lanes_size, "sum", j->name);
    expect(gw_cuda_thc_sum_indices(&cuda, &agg, &partial,
                                   &(gw_cuda_thc_inputs){in->source, in->rank, NULL, 1, 1},
                                   NULL) == GW_ERR_DUP,
           "status of a worker that is in the sum", j->name);
}

/* The same as partial sums of two and three; then with a lane that three workers cannot make, when nothing is
 * added. */
static void compare_sum_lanes(const thc_case *j, const inputs *in, const uint8_t *lanes, const uint8_t *set,
                              uint64_t *random)
{
    const gw_thc_agg agg = make_agg(j);
    const size_t len = lane_count(j), lane_size = j->options.lane_bits / 8, lanes_size = len * lane_size;
    uint8_t sets[2][GW_THC_SET_SIZE(WORKERS)] = {{0}}, sum_set[GW_THC_SET_SIZE(WORKERS)] = {0};
    uint8_t *partial[2] = {on_device(NULL, lanes_size), on_device(NULL, lanes_size)};
    const uint8_t *in_lanes[2] = {partial[0], partial[1]}, *in_sets[2] = {sets[0], sets[1]};
    const gw_cuda_thc_inputs both = {in_lanes, NULL, in_sets, 2, 0};
    const gw_cuda_thc_request request = {NULL, GW_THC_SUM, new_result(), NULL};
    uint8_t *sum = on_device(NULL, lanes_size), *untouched = take(lanes_size);

    begin_case(j->name, "sum of lanes");
    for (int h = 0; h < 2; h++) {
        must(gw_cuda_thc_sum_indices(
                 &cuda, &agg, &(gw_thc_partial){partial[h], sets[h], len},
                 &(gw_cuda_thc_inputs){in->source + 2 * h, in->rank + 2 * h, NULL, h == 0 ? 2 : 3, 0}, NULL),
             "gw_cuda_thc_sum_indices");
    }
    must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){sum, sum_set, len}, &both, &request),
         "gw_cuda_thc_sum_lanes");
    expect(fetch_result(request.result).status == GW_OK, "status of a sum of lanes", j->name);
    expect(memcmp(sum_set, set, sizeof sum_set) == 0, "workers of a sum of lanes", j->name);
    expect_bytes(sum, lanes, lanes_size, "sum of lanes", j->name);

    const uint32_t wrong = 3u * j->options.table.granularity + 1;
    if (len > 0 && (lane_size > 1 || wrong <= 255)) {
        const size_t at = (size_t)(next_random(random) % len) * lane_size;
        device_put(partial[1] + at, &wrong, lane_size); /* little-endian, as the device is */
        memset(sum_set, 0, sizeof sum_set);
        memset(untouched, 0x11, lanes_size);
        device_put(sum, untouched, lanes_size);
        must(gw_cuda_thc_sum_lanes(&cuda, &agg, &(gw_thc_partial){sum, sum_set, len}, &both, &request),
             "gw_cuda_thc_sum_lanes");
        const gw_cuda_result r = fetch_result(request.result);
        expect(r.status == GW_ERR_CORRUPT && r.bad_index == 1, "status of a wrong lane", j->name);
        expect_bytes(sum, untouched, lanes_size, "sum with a wrong lane", j->name);
    }
    free(untouched);
}

void compare_thc_decode(const thc_case *j, const gw_thc_sum *sum, gw_thc_mode mode)
{
    const unsigned long mark = device_mark();
    const size_t size = element_size(j) * j->len;
    const gw_workspace workspace = new_workspace();
    uint8_t *values = take(size);
    gw_thc_target target = {.values = values, .capacity = j->len};
    gw_status status;

    begin_case(j->name, "decode");
    memset(values, 0xa5, size);
    uint8_t *out = on_device_at(values, size, j->offset * element_size(j));
    const gw_cuda_thc_request request = {NULL, mode, new_result(), NULL};
    const gw_thc_sum on = {on_device(sum->data, sum->size), sum->size,
                           sum->members == NULL ? NULL
                                                : on_device(sum->members, 4 * (size_t)j->range.block_count),
                           on_device(sum->patterns, 4 * j->patterns)};
    if (sum->members != NULL) {
        status = gw_thc_decode(&j->thc, &j->range, sum, mode, &target, &workspace);
        must(gw_cuda_thc_decode(&cuda, &j->thc, &j->range, &on, &(gw_cuda_target){out, j->len}, &request),
             "gw_cuda_thc_decode");
    } else {
        status = gw_thc_decode_reduced(&j->thc, &j->range, sum, mode, &target, &workspace);
        must(gw_cuda_thc_decode_reduced(&cuda, &j->thc, &j->range, &on, &(gw_cuda_target){out, j->len},
                                        &request),
             "gw_cuda_thc_decode_reduced");
    }
    const gw_cuda_result r = fetch_result(request.result);
    expect(r.status == (uint32_t)status, "status of decode", j->name);
    expect(r.bad_index == target.bad_block && r.missing == target.missing, "blocks of decode", j->name);
    expect(r.len == (status == GW_OK ? j->len : 0), "length of decode", j->name);
    expect_bytes(out, values, size, "decoded values", j->name);
    give_since(mark);
    free(values);
    free(workspace.data);
}

/* A buffer for a raw all-reduce, and what is decoded from it. */
static void compare_reduced(thc_case *j, const uint8_t *indices, const uint32_t *maxima)
{
    const unsigned long mark = device_mark();
    const size_t indices_size = indices_size_of(j), offset = j->offset;
    const size_t size =
        gw_thc_reduced_size(&j->thc, j->range.len, j->range.block_first, j->range.block_count);
    uint8_t *reduced = take(size), *on = on_device(NULL, size);

    begin_case(j->name, "raw reduction");
    must(gw_thc_expand(&j->thc, &j->range, &(gw_thc_indices){indices, indices_size, NULL},
                       &(gw_buffer){reduced, size, 0}),
         "gw_thc_expand");
    must(gw_cuda_thc_expand(&cuda, &j->thc, &j->range,
                            &(gw_thc_indices){on_device(indices, indices_size), indices_size, NULL},
                            &(gw_cuda_buffer){on, size}, NULL),
         "gw_cuda_thc_expand");
    expect_bytes(on, reduced, size, "buffer for a raw reduction", j->name);
    j->offset = 0;
    compare_thc_decode(j, &(gw_thc_sum){reduced, size, NULL, maxima}, GW_THC_MEAN);
    j->offset = offset;
    give_since(mark);
    free(reduced);
}

/* Members, lanes and patterns at random. */
static void compare_hostile_decodes(const thc_case *j, uint8_t *lanes, size_t lanes_size,
                                    const uint32_t *maxima, uint64_t *random)
{
    uint32_t *members = take(4 * (size_t)j->range.block_count), *wrong = take(4 * j->patterns);
    for (int turn = 0; turn < 4 && lanes_size > 0; turn++) {
        memcpy(wrong, maxima, 4 * j->patterns);
        for (size_t b = 0; b < j->range.block_count; b++) {
            const uint64_t r = next_random(random);
            members[b] = r % 5 == 0   ? 0
                         : r % 7 == 0 ? (uint32_t)(r >> 32)
                                      : 1 + (uint32_t)(r >> 40) % WORKERS;
        }
        if (turn > 1) {
            lanes[next_random(random) % lanes_size] = (uint8_t)next_random(random);
            wrong[next_random(random) % j->patterns] = (uint32_t)next_random(random);
            wrong[next_random(random) % j->patterns] = 0;
        }
        compare_thc_decode(j, &(gw_thc_sum){lanes, lanes_size, members, wrong},
                           turn & 1 ? GW_THC_MEAN : GW_THC_SUM);
    }
    free(wrong);
    free(members);
}

static void compare_sums(thc_case *j, uint8_t *const indices[WORKERS], const uint32_t *maxima,
                         uint64_t *random)
{
    const unsigned long mark = device_mark();
    const gw_thc_agg agg = make_agg(j);
    const size_t len = lane_count(j), lanes_size = len * (j->options.lane_bits / 8);
    uint8_t *lanes = take(lanes_size), set[GW_THC_SET_SIZE(WORKERS)] = {0};
    uint32_t *members = take(4 * (size_t)j->range.block_count);
    const uint8_t *source[WORKERS];
    inputs in;

    memset(lanes, 0, lanes_size);
    for (uint32_t w = 0; w < WORKERS; w++) {
        source[w] = indices[w];
        in.source[w] = on_device(indices[w], indices_size_of(j));
        in.rank[w] = w;
    }
    must(gw_thc_agg_add_indices_many(&agg, &(gw_thc_partial){lanes, set, len}, source, in.rank, WORKERS),
         "gw_thc_agg_add_indices_many");
    compare_sum_indices(j, &in, lanes, set);
    compare_sum_lanes(j, &in, lanes, set, random);
    give_since(mark);
    for (size_t b = 0; b < j->range.block_count; b++) {
        members[b] = WORKERS;
    }
    for (int mode = GW_THC_SUM; mode <= GW_THC_MEAN; mode++) {
        compare_thc_decode(j, &(gw_thc_sum){lanes, lanes_size, members, maxima}, (gw_thc_mode)mode);
    }
    compare_reduced(j, indices[0], maxima);
    compare_hostile_decodes(j, lanes, lanes_size, maxima, random);
    free(members);
    free(lanes);
}

/* The values of a worker, the first block of worker 0 zeros. */
static void make_values(const thc_case *j, uint8_t *values, float *error, unsigned nonfinite_log2,
                        uint64_t *random)
{
    const size_t block = (size_t)1 << j->options.block_log2, zeros = j->len < block ? j->len : block;
    fill_widely(values, (gw_dtype)j->options.dtype, j->len, nonfinite_log2, random);
    if (j->range.rank == 0 && j->len > 3) {
        memset(values, 0, zeros * element_size(j));
    }
    if (error != NULL) {
        fill_widely(error, GW_FP32, j->len, 0, random);
        memset(error, 0, j->range.rank == 0 && j->len > 3 ? 4 * zeros : 0);
    }
}

void compare_thc(thc_case *j, uint64_t count, uint64_t first, uint64_t blocks, const void *x,
                 unsigned nonfinite_log2, uint64_t *random)
{
    uint8_t *indices[WORKERS] = {NULL};
    int all_encoded = 1; /* values near the end of the range are refused */

    set_range(j, count, first, blocks, 0);
    uint32_t *maxima = take(4 * j->patterns);
    uint8_t *values = take(element_size(j) * j->len);
    float *error = j->options.error_feedback != 0 ? take(4 * j->len) : NULL;
    for (uint32_t w = 0; w < WORKERS; w++) {
        set_range(j, count, first, blocks, w);
        make_values(j, values, error, nonfinite_log2, random);
        indices[w] = compare_thc_worker(j, x != NULL ? x : values, error, maxima, random, (int)(w & 1));
        all_encoded = all_encoded && indices[w] != NULL;
    }
    if (all_encoded) {
        compare_sums(j, indices, maxima, random);
    }
    for (int w = 0; w < WORKERS; w++) {
        free(indices[w]);
    }
    free(error);
    free(values);
    free(maxima);
}
