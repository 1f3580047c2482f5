/*
 * Any values, norms included, through encode, aggregation by index, by lanes and by raw words, and decode: no
 * crash, the three sums agree bit for bit, no decoded value leaves the range of the clamp, and the scalar
 * kernels give the same bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "fuzz_support.h"

#include "gradwire/thc.h"

#include <math.h>
#include <string.h>

enum { WORKERS = 3, LEN_MAX = 300, LANES_MAX = 512 };

static uint8_t scratch[GW_THC_WORKSPACE_SIZE_MAX];
static const gw_workspace workspace = {scratch, sizeof scratch};

/* The last worker's indices (where no error memory went into them) and the decoded values, again. */
static int is_same_by_scalar(const gw_thc_options *options, const gw_thc_range *range, const float *values,
                             const uint8_t *encoded, const uint8_t *lanes, const uint32_t *maxima,
                             const float *decoded)
{
    static uint8_t again[LANES_MAX / 2];
    static float out[LEN_MAX];
    static const uint32_t members[8] = {WORKERS, WORKERS, WORKERS, WORKERS,
                                        WORKERS, WORKERS, WORKERS, WORKERS};
    gw_thc_options scalar = *options;
    gw_thc thc;
    scalar.backends = GW_BACKEND_SCALAR;
    FUZZ_CHECK(gw_thc_init(&thc, &scalar) == GW_OK);
    size_t size = gw_thc_indices_size(&thc, range->len, 0, range->block_count);
    size_t lanes_size = gw_thc_lanes_size(&thc, range->len, 0, range->block_count);
    if (options->error_feedback == 0) {
        FUZZ_CHECK(gw_thc_encode(&thc, range, &(gw_thc_source){.values = values, .patterns = maxima},
                                 &(gw_buffer){again, size, 0}, NULL, &workspace) == GW_OK);
        if (memcmp(again, encoded, size) != 0) {
            return 0;
        }
    }
    FUZZ_CHECK(gw_thc_decode(&thc, range, &(gw_thc_sum){lanes, lanes_size, members, maxima}, GW_THC_MEAN,
                             &(gw_thc_target){.values = out, .capacity = sizeof out / sizeof out[0]},
                             &workspace) == GW_OK);
    return memcmp(out, decoded, (size_t)range->len * sizeof *out) == 0;
}

static float x[WORKERS][LEN_MAX], error[WORKERS][LEN_MAX];
static uint8_t indices[WORKERS][LANES_MAX / 2];

/* What worker w encodes. */
static gw_thc_source source_of(const gw_thc_options *options, unsigned w, const uint32_t *maxima)
{
    return (gw_thc_source){
        .values = x[w], .error = options->error_feedback ? error[w] : NULL, .patterns = maxima};
}

static void make_values(gw_fuzz_reader *reader, uint64_t *random, size_t len, int has_large)
{
    for (unsigned w = 0; w < WORKERS; w++) {
        for (size_t i = 0; i < len; i++) {
            uint32_t bits = gw_fuzz_u32(reader);
            if (reader->size == 0) {
                bits = (uint32_t)gw_fuzz_random(random) & (has_large ? 0xffffffffu : 0xbfffffffu);
            }
            memcpy(&x[w][i], &bits, sizeof bits);
            error[w][i] = 0;
        }
    }
}

/* The maxima of all workers' norms; 0 if a value is refused. */
static int make_maxima(const gw_thc *thc, gw_thc_range *range, uint32_t maxima[16])
{
    const gw_thc_options *options = gw_thc_options_of(thc);
    const size_t patterns = (size_t)range->block_count * gw_thc_patterns_per_block(thc);
    uint32_t own[16];
    FUZZ_CHECK(patterns <= 16);
    for (unsigned w = 0; w < WORKERS; w++) {
        const gw_thc_source source = source_of(options, w, NULL);
        range->rank = w;
        const gw_status status = gw_thc_norms(thc, range, &source, own, NULL, &workspace);
        if (status == GW_ERR_NONFINITE && options->nonfinite == GW_THC_NONFINITE_ERROR) {
            return 0;
        }
        FUZZ_CHECK(status == GW_OK);
        gw_thc_norms_max(maxima, own, patterns);
    }
    /* Maxima of patterns are patterns, of plain blocks too: magnitudes below 2^127 are never further apart
     * than fp32 can say. */
    FUZZ_CHECK(gw_thc_norms_check(thc, maxima, range->block_count, NULL) == GW_OK);
    return 1;
}

/* The sum of all workers by index; by lanes and by raw words it is the same. */
static void make_sums(const gw_thc *thc, gw_thc_range *range, const uint32_t *maxima, uint8_t *lanes,
                      uint8_t *reduced)
{
    static uint8_t tree[LANES_MAX * 4], part[LANES_MAX * 4], word[LANES_MAX * 4 + 64];
    const gw_thc_options *options = gw_thc_options_of(thc);
    const size_t indices_size = gw_thc_indices_size(thc, range->len, 0, range->block_count);
    const size_t lane_count = (size_t)gw_thc_range_lanes(thc, range->len, 0, range->block_count);
    const size_t lanes_size = gw_thc_lanes_size(thc, range->len, 0, range->block_count);
    const size_t reduced_size = gw_thc_reduced_size(thc, range->len, 0, range->block_count);
    gw_thc_agg agg;
    uint8_t set[8] = {0}, tree_set[8] = {0};
    const gw_thc_partial sum = {lanes, set, lane_count}, tree_sum = {tree, tree_set, lane_count};

    FUZZ_CHECK(lane_count <= LANES_MAX && reduced_size <= sizeof word);
    FUZZ_CHECK(gw_thc_agg_init(&agg, &(gw_thc_agg_options){options->table, WORKERS, options->lane_bits,
                                                           GW_BACKEND_ALL}) == GW_OK);
    memset(lanes, 0, lanes_size);
    memset(tree, 0, sizeof tree);
    memset(reduced, 0, reduced_size);
    for (unsigned w = 0; w < WORKERS; w++) {
        uint8_t part_set[8] = {0};
        const gw_thc_source source = source_of(options, w, maxima);
        range->rank = w;
        FUZZ_CHECK(gw_thc_encode(thc, range, &source, &(gw_buffer){indices[w], indices_size, 0}, NULL,
                                 &workspace) == GW_OK);
        FUZZ_CHECK(gw_thc_agg_add_indices(&agg, &sum, indices[w], w) == GW_OK);
        memset(part, 0, sizeof part);
        FUZZ_CHECK(gw_thc_agg_add_indices(&agg, &(gw_thc_partial){part, part_set, lane_count}, indices[w],
                                          w) == GW_OK);
        FUZZ_CHECK(gw_thc_agg_add_lanes(&agg, &tree_sum, part, part_set) == GW_OK);
        FUZZ_CHECK(gw_thc_expand(thc, range, &(gw_thc_indices){indices[w], indices_size, NULL},
                                 &(gw_buffer){word, sizeof word, 0}) == GW_OK);
        for (size_t i = 0; i < reduced_size; i += 4) {
            uint32_t a, b;
            memcpy(&a, reduced + i, 4);
            memcpy(&b, word + i, 4);
            a += b;
            memcpy(reduced + i, &a, 4);
        }
    }
    FUZZ_CHECK(memcmp(lanes, tree, lanes_size) == 0 && memcmp(lanes, reduced, lanes_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gw_fuzz_reader reader = {data, size};
    uint8_t choice = gw_fuzz_u8(&reader);
    uint8_t shape = gw_fuzz_u8(&reader);
    size_t len = gw_fuzz_u16(&reader) % LEN_MAX;
    uint64_t random = gw_fuzz_u32(&reader);
    gw_thc_options options;
    gw_thc thc;
    static float out[LEN_MAX], out2[LEN_MAX];
    static uint8_t lanes[LANES_MAX * 4], reduced[LANES_MAX * 4 + 64];
    static const uint32_t members[8] = {WORKERS, WORKERS, WORKERS, WORKERS,
                                        WORKERS, WORKERS, WORKERS, WORKERS};
    uint32_t maxima[16] = {0};

    const gw_thc_goal goal = {choice % 4u + 1, WORKERS, 0, choice >> 2 & 1};
    FUZZ_CHECK(gw_thc_options_init(&options, &goal, NULL) == GW_OK);
    options.block_log2 = 6 + shape % 4u;
    options.lane_bits = 8u << (shape >> 2) % 3;
    options.nonfinite = (gw_thc_nonfinite)((choice >> 3) % 3);
    options.seed = gw_fuzz_random(&random);
    if ((choice & 0x80) != 0 && options.error_feedback == 0) {
        options.transform = GW_THC_PLAIN;
        options.threshold_bits = 0;
    }
    FUZZ_CHECK(gw_thc_init(&thc, &options) == GW_OK);
    make_values(&reader, &random, len, (shape & 0x80) != 0);
    gw_thc_range range = {len, 0, gw_thc_block_count(&thc, len), (uint32_t)random, 0};
    if (!make_maxima(&thc, &range, maxima)) {
        return 0;
    }
    make_sums(&thc, &range, maxima, lanes, reduced);
    const gw_thc_sum sum = {lanes, gw_thc_lanes_size(&thc, len, 0, range.block_count), members, maxima};
    const gw_thc_sum raw = {reduced, gw_thc_reduced_size(&thc, len, 0, range.block_count), NULL, maxima};
    gw_thc_target target = {.values = out, .capacity = LEN_MAX},
                  target2 = {.values = out2, .capacity = LEN_MAX};
    FUZZ_CHECK(gw_thc_decode(&thc, &range, &sum, GW_THC_MEAN, &target, &workspace) == GW_OK);
    FUZZ_CHECK(gw_thc_decode_reduced(&thc, &range, &raw, GW_THC_MEAN, &target2, &workspace) == GW_OK);
    FUZZ_CHECK(memcmp(out, out2, len * sizeof *out) == 0);
    FUZZ_CHECK(is_same_by_scalar(&options, &range, x[WORKERS - 1], indices[WORKERS - 1], lanes, maxima, out));
    for (size_t i = 0; i < len && options.transform == GW_THC_ROTATED; i++) {
        float norm;
        memcpy(&norm, &maxima[i >> options.block_log2], sizeof norm);
        FUZZ_CHECK(isnan(norm) ? isnan(out[i]) : !(fabs((double)out[i]) > 4.001 * (double)norm));
    }
    return 0;
}
