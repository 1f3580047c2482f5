/*
 * Frames of QSGD and TERNGRAD: codings, damage, capacities, state on failure, shared norms, sums.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "level_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classic/classic_handle.h"
#include "classic/classic_mask.h"

/* ---- masks --------------------------------------------------------------------------------------------- */

static void check_mask(lt_rng *rng, size_t len, uint32_t one_in, const gw_kernels *kernels)
{
    const size_t size = gw_run_size(len, 1), size_max = gw_mask_size_max(len);
    gw_mask_scratch *scratch = (gw_mask_scratch *)lt_take(sizeof *scratch);
    uint8_t *bits = (uint8_t *)lt_take(size), *out = (uint8_t *)lt_take(size + GW_SLOP);
    uint8_t *coded = (uint8_t *)lt_take(size_max);
    for (size_t i = 0; i < len; i++) {
        const uint32_t bit = one_in == 0 ? 0 : lt_below(rng, one_in) == 0;
        bits[i / 8] = (uint8_t)(bits[i / 8] | bit << i % 8);
    }
    const size_t written = gw_mask_write(coded, bits, len, kernels, scratch);
    assert_true(written <= size_max && written % 4 == 0);
    memset(scratch, 0xa5, sizeof *scratch);
    assert_int_equal(gw_mask_read(out, len, coded, written, kernels, scratch), written);
    assert_memory_equal(bits, out, size);
    if (written > 0) {
        assert_int_equal(gw_mask_read(out, len, coded, written - 4, kernels, scratch), SIZE_MAX);
    }
    if (len >= 4096 && one_in > 1) {
        /* The entropy and 5 %; a bit for eight values at least; four deviations of the number of bits set. */
        const double p = 1.0 / one_in, entropy = -(p * log2(p) + (1 - p) * log2(1 - p));
        const double bits_a_value = 1.05 * entropy > 0.125 + 5 * p ? 1.05 * entropy : 0.125 + 5 * p;
        const double spread = 4 * sqrt((double)len * p) * 5;
        assert_true((double)written < (bits_a_value * (double)len + spread) / 8 + 32);
    }
    free(scratch);
    free(bits);
    free(out);
    free(coded);
}

static void test_masks(void **state)
{
    lt_rng rng = {1};
    (void)state;
    for (uint32_t bit = 0; bit < 5; bit++) {
        gw_kernels kernels;
        gw_kernels_init(&kernels, bit == 4 ? GW_BACKEND_ALL : 1u << bit);
        for (unsigned i = 0; i < 120; i++) {
            static const uint32_t one_in[8] = {0, 1, 2, 4, 7, 20, 100, 3000};
            const size_t len = i < 40 ? i : i % 3 == 0 ? 32768 : 1 + lt_below(&rng, 32768);
            check_mask(&rng, len, one_in[i % 8], &kernels);
        }
    }
}

/* ---- codings ------------------------------------------------------------------------------------------- */

/* Where most levels are 0, masks are the smallest, and never larger than packed levels but for the directory.
 */
static void test_codings(void **state)
{
    enum { LEN = 100000 };
    static float x[LEN];
    lt_rng rng = {2};
    (void)state;
    for (unsigned i = 0; i < 2 * LT_PATTERNS; i++) {
        size_t sizes[3];
        float *values[3];
        lt_values(&rng, x, GW_FP32, LEN, i / 2);
        for (int coding = 0; coding < 3; coding++) {
            gw_classic_options o =
                lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)coding, i % 2 == 0 ? 4 : 1, 512);
            const gw_classic classic = lt_handle(&o);
            const gw_classic_step step = {LEN, 0, 0, 0, 0};
            const gw_classic_source source = {x, NULL, NULL, NULL};
            const lt_frame frame = lt_encode(&classic, &step, &source);
            sizes[coding] = frame.size;
            values[coding] = lt_decode(&frame, LEN);
            free(frame.data);
        }
        assert_true(sizes[GW_CLASSIC_CODING_MASK] <= sizes[GW_CLASSIC_CODING_PACKED] + 16);
        assert_true(sizes[GW_CLASSIC_CODING_ELIAS] <= sizes[GW_CLASSIC_CODING_PACKED] + 16);
        if (i < 4) { /* normal and sparse values */
            assert_true(sizes[GW_CLASSIC_CODING_MASK] < sizes[GW_CLASSIC_CODING_PACKED] * 3 / 4);
            assert_true(i >= 2 || sizes[GW_CLASSIC_CODING_MASK] < sizes[GW_CLASSIC_CODING_ELIAS]);
        }
        for (int coding = 0; coding < 3; coding++) {
            assert_memory_equal(values[0], values[coding], LEN * sizeof(float));
        }
        for (int coding = 0; coding < 3; coding++) {
            free(values[coding]);
        }
    }
}

/* ---- targets ------------------------------------------------------------------------------------------- */

static gw_status decode_as(const lt_frame *frame, void *values, uint64_t len, float scale, int is_sum)
{
    const gw_classic_frame view = lt_view(frame);
    const gw_workspace workspace = lt_workspace(frame);
    gw_classic_target target = {values, len, 0, scale};
    const gw_status status = is_sum ? gw_classic_decode_add(&view, &target, &workspace)
                                    : gw_classic_decode(&view, &target, &workspace);
    assert_int_equal(target.len, status == GW_OK ? len : 0);
    free(workspace.data);
    return status;
}

/* Elements of every dtype, with and without a scale, are the fp32 values scaled and rounded. */
static void test_targets(void **state)
{
    enum { LEN = 5001 };
    static uint8_t x[4 * LEN], got[4 * LEN + 1];
    static float sum[LEN];
    lt_rng rng = {3};
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        gw_classic_options o = lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)(i / 3 % 3), 5, 512);
        o.dtype = (gw_dtype)(GW_FP32 + (int)(i % 3));
        const gw_classic classic = lt_handle(&o);
        const gw_classic_step step = {LEN, 0, 0, 0, 0};
        const gw_classic_source source = {x, NULL, NULL, NULL};
        lt_values(&rng, x, o.dtype, LEN, 0);
        const lt_frame frame = lt_encode(&classic, &step, &source);
        float *values = lt_decode(&frame, LEN);
        for (unsigned scaled = 0; scaled < 2; scaled++) {
            const float scale = scaled ? 0.3f : 1.0f;
            assert_int_equal(decode_as(&frame, got + 1, LEN, scale, 0), GW_OK); /* not aligned */
            for (size_t k = 0; k < LEN; k++) {
                const float exact = (float)((double)values[k] * (double)scale);
                const float element = lt_load(got + 1, o.dtype, k);
                const double unit = o.dtype == GW_FP32 ? 0 : o.dtype == GW_BF16 ? 0x1p-8 : 0x1p-11;
                assert_true(fabs((double)element - (double)exact) <=
                            unit * fabs((double)exact) + (unit > 0 ? 0x1p-25 : 0));
                sum[k] = 1.5f;
            }
            assert_int_equal(decode_as(&frame, sum, LEN, scale, 1), GW_OK);
            for (size_t k = 0; k < LEN; k++) {
                assert_true(sum[k] == 1.5f + (float)((double)values[k] * (double)scale));
            }
        }
        free(values);
        free(frame.data);
    }
}

/* ---- damage -------------------------------------------------------------------------------------------- */

/* 1 if the frame passes. Check and decode agree, and a frame that fails leaves nothing. */
static int try_damaged(const lt_frame *frame, size_t len)
{
    static gw_workspace workspace;
    const gw_classic_frame view = lt_view(frame);
    gw_classic_frame_info info;
    float *values = (float *)lt_take(len * sizeof(float));
    gw_classic_target target = {values, len, 0, 0};
    if (workspace.data == NULL) {
        workspace.size = 1 << 20;
        workspace.data = lt_take(workspace.size);
    }
    const gw_status checked = gw_classic_frame_check(&view, &info, &workspace);
    memset(values, 0xff, len * sizeof(float));
    const gw_status decoded = gw_classic_decode(&view, &target, &workspace);
    if (decoded == GW_ERR_DST || decoded == GW_ERR_LIMIT) {
        free(values);
        return 0; /* another len */
    }
    assert_int_equal(checked, decoded);
    size_t wrong = 0;
    for (size_t i = 0; i < len && decoded == GW_OK && info.dtype == GW_FP32 && info.len == len; i++) {
        wrong += isfinite(values[i]) ? 0 : 1;
    }
    for (size_t i = 0; i < len && decoded == GW_ERR_CORRUPT && info.len == len; i++) {
        wrong += values[i] == 0 ? 0 : 1;
    }
    assert_int_equal(wrong, 0);
    free(values);
    return decoded == GW_OK;
}

/* Every byte, in several ways, and every length. */
static void check_damage(const lt_frame *frame, size_t len)
{
    lt_frame copy = {(uint8_t *)malloc(frame->size), frame->size};
    assert_non_null(copy.data);
    memcpy(copy.data, frame->data, frame->size);
    assert_true(try_damaged(&copy, len));
    for (size_t i = 0; i < frame->size; i++) {
        static const uint8_t changes[] = {0x01, 0x80, 0xff, 0x10};
        for (size_t c = 0; c < sizeof changes; c++) {
            copy.data[i] = frame->data[i] ^ changes[c];
            try_damaged(&copy, len);
        }
        copy.data[i] = frame->data[i];
    }
    free(copy.data);
    for (size_t size = 0; size < frame->size; size += 1 + size / 50) {
        copy.data = (uint8_t *)malloc(size + 1); /* exact but for one byte, for the sanitizer */
        assert_non_null(copy.data);
        memcpy(copy.data, frame->data, size);
        copy.size = size;
        assert_false(try_damaged(&copy, len));
        free(copy.data);
    }
}

static void test_damage(void **state)
{
    static float x[40000];
    lt_rng rng = {4};
    (void)state;
    for (unsigned i = 0; i < 18; i++) {
        static const uint32_t s[6] = {1, 4, 2, 127, 3, 40};
        const size_t len = i < 15 ? 1 + lt_below(&rng, 700) : 33000;
        gw_classic_options o =
            lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)(i % 3), s[i % 6], 64u << i % 4);
        o.norm = (gw_classic_norm)(i / 3 % 2);
        const gw_classic classic = lt_handle(&o);
        const gw_classic_step step = {len, 0, 0, i, 0};
        const gw_classic_source source = {x, NULL, NULL, NULL};
        lt_values(&rng, x, GW_FP32, len, i < 15 ? i % 2 : 6);
        if (i >= 15) { /* two chunks, small */
            x[5] = 1.0f;
            x[32900] = -1.0f;
        }
        const lt_frame frame = lt_encode(&classic, &step, &source);
        check_damage(&frame, len);
        free(frame.data);
    }
}

/* A payload that changed since its check is decoded to anything, within the buffers; it is passed without a
 * check. */
static void test_unchecked(void **state)
{
    enum { LEN = 1500 };
    static float x[LEN];
    lt_rng rng = {5};
    (void)state;
    for (unsigned i = 0; i < 600; i++) {
        gw_classic_options o =
            lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)(i % 3), i % 2 == 0 ? 4 : 127, 64);
        const gw_classic classic = lt_handle(&o);
        const gw_classic_step step = {LEN, 0, 0, i, 0};
        const gw_classic_source source = {x, NULL, NULL, NULL};
        gw_classic_frame_info info;
        gw_kernels kernels;
        lt_values(&rng, x, GW_FP32, LEN, i / 6 % 2);
        const lt_frame frame = lt_encode(&classic, &step, &source);
        assert_int_equal(gw_classic_frame_peek(frame.data, frame.size, &info), GW_OK);
        const size_t size = (size_t)info.payload_size;
        uint8_t *data = (uint8_t *)malloc(size);
        assert_non_null(data);
        memcpy(data, frame.data + info.payload_offset, size);
        for (uint32_t k = lt_below(&rng, 20); k > 0; k--) {
            data[lt_below(&rng, (uint32_t)size)] = (uint8_t)lt_random(&rng);
        }
        gw_kernels_init(&kernels, i % 5 == 0 ? GW_BACKEND_SCALAR : GW_BACKEND_ALL);
        float *values = (float *)lt_take(LEN * sizeof(float));
        int32_t *lanes = (int32_t *)lt_take(LEN * sizeof(int32_t));
        uint8_t *workspace =
            (uint8_t *)aligned_alloc(64, (gw_classic_decode_workspace_size(&info) + 127) / 64 * 64);
        assert_non_null(workspace);
        const gw_classic_payload payload = {&info, &kernels, data, size, workspace};
        const gw_classic_sink sink = {values, GW_FP32, 0, 1};
        gw_classic_level.decode(&payload, &sink);
        gw_classic_level.sum_add(lanes, &payload);
        gw_classic_level.sum_decode(lanes, &payload, &sink);
        free(values);
        free(lanes);
        free(workspace);
        free(data);
        free(frame.data);
    }
}

/* ---- capacity and state -------------------------------------------------------------------------------- */

static void test_capacity(void **state)
{
    enum { LEN = 70000 };
    static float x[LEN], residual[LEN], before[LEN], expected[LEN];
    lt_rng rng = {6};
    (void)state;
    lt_values(&rng, x, GW_FP32, LEN, 0);
    lt_values(&rng, before, GW_FP32, LEN, 0);
    for (int coding = 0; coding < 3; coding++) {
        gw_classic_options o = lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)coding, 4, 512);
        o.error_feedback = 1;
        const gw_classic classic = lt_handle(&o);
        const gw_classic_step step = {LEN, 0, 0, 0, 0};
        const gw_classic_source source = {x, residual, NULL, NULL};
        lt_frame frame, exact;
        memcpy(residual, before, sizeof residual);
        frame = lt_encode(&classic, &step, &source);
        memcpy(expected, residual, sizeof residual);

        memcpy(residual, before, sizeof residual);
        assert_int_equal(lt_try_encode(&classic, &step, &source, frame.size, &exact), GW_OK);
        assert_int_equal(exact.size, frame.size);
        assert_memory_equal(exact.data, frame.data, frame.size);
        assert_memory_equal(residual, expected, sizeof residual);
        free(exact.data);

        memcpy(residual, before, sizeof residual);
        for (unsigned i = 0; i < 20; i++) {
            const size_t less = i == 0 ? frame.size - 1 : 1 + lt_below(&rng, (uint32_t)frame.size - 1);
            assert_int_equal(lt_try_encode(&classic, &step, &source, less, &exact), GW_ERR_DST);
        }
        assert_memory_equal(residual, before, sizeof residual);
        free(frame.data);
    }
}

static void test_untouched(void **state)
{
    enum { LEN = 70000 };
    static float x[LEN], residual[LEN], before[LEN];
    static float norms[LEN / 512 + 1];
    lt_rng rng = {7};
    lt_frame frame;
    (void)state;
    gw_classic_options o = lt_options(GW_CLASSIC_QSGD, GW_CLASSIC_CODING_MASK, 4, 512);
    o.error_feedback = 1;
    const gw_classic classic = lt_handle(&o);
    const gw_classic_step step = {LEN, 0, 0, 0, 0};
    gw_classic_source source = {x, residual, NULL, NULL};
    lt_values(&rng, x, GW_FP32, LEN, 0);
    lt_values(&rng, before, GW_FP32, LEN, 0);
    memcpy(residual, before, sizeof residual);
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f000000u};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        x[LEN - 1] = lt_float(bad[i]);
        assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &frame), GW_ERR_NONFINITE);
        x[LEN - 1] = 0;
        residual[LEN - 1] = lt_float(bad[i]);
        assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &frame), GW_ERR_NONFINITE);
        residual[LEN - 1] = before[LEN - 1];
    }
    /* Norms that are too small, or no norms. */
    const size_t size = gw_classic_workspace_size(&classic, &step);
    const gw_workspace workspace = {lt_take(size), size};
    assert_int_equal(gw_classic_norms(&classic, &step, &source, norms, &workspace), GW_OK);
    source.norms = norms;
    static const uint32_t wrong[] = {0x7f800000u, 0x7fc00000u, 0x7f000000u, 0x80000000u,
                                     0x00000001u, 0x0d7fffffu, 0xbf800000u};
    float *const last = &norms[LEN / 512];
    const float right = *last;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *last = lt_float(wrong[i]);
        assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &frame), GW_ERR_STATE);
    }
    *last = lt_float(lt_bits(right) - 1);
    assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &frame), GW_ERR_STATE);
    assert_memory_equal(residual, before, sizeof residual);
    *last = right;
    assert_int_equal(lt_try_encode(&classic, &step, &source, 0, &frame), GW_OK);
    free(frame.data);
    free(workspace.data);
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

enum { RANKS = 9, SUM_LEN = 40100 };

static void check_sum(lt_rng *rng, const gw_classic_options *o)
{
    static float x[RANKS][SUM_LEN], got[SUM_LEN];
    static int32_t lanes[SUM_LEN], model[SUM_LEN];
    const gw_classic classic = lt_handle(o);
    gw_classic_step step = {SUM_LEN, 77, 0, 3, 0};
    const size_t blocks = (size_t)gw_classic_block_count(&classic, SUM_LEN);
    const size_t size = gw_classic_workspace_size(&classic, &step);
    const gw_workspace workspace = {lt_take(size), size};
    float *shared = (float *)lt_take(blocks * sizeof(float)), *own = (float *)lt_take(blocks * sizeof(float));
    lt_frame frames[RANKS];
    gw_classic_frame first;
    gw_classic_frame_info info;
    gw_classic_sum sum = {lanes, sizeof lanes, 0};
    memset(lanes, 0, sizeof lanes);
    memset(model, 0, sizeof model);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const gw_classic_source source = {x[rank], NULL, NULL, NULL};
        lt_values(rng, x[rank], GW_FP32, SUM_LEN, rank % 3 == 2 ? 1 : 0);
        assert_int_equal(gw_classic_norms(&classic, &step, &source, own, &workspace), GW_OK);
        for (size_t b = 0; b < blocks; b++) {
            shared[b] = own[b] > shared[b] ? own[b] : shared[b];
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const gw_classic_source source = {x[rank], NULL, NULL, shared};
        lt_model levels;
        step.rank = rank;
        frames[rank] = lt_encode(&classic, &step, &source);
        assert_true(lt_model_make(&levels, o, &step, &source));
        for (size_t i = 0; i < SUM_LEN; i++) {
            model[i] += levels.levels[i];
        }
        lt_model_free(&levels);
    }
    first = lt_view(&frames[0]);
    assert_int_equal(gw_classic_frame_peek(first.data, first.size, &info), GW_OK);
    assert_int_equal(gw_classic_sum_size(&info), sizeof lanes);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const gw_classic_frame frame = lt_view(&frames[rank]);
        assert_int_equal(gw_classic_sum_add(&sum, &first, &frame, &workspace), GW_OK);
    }
    assert_int_equal(sum.members, RANKS);
    assert_memory_equal(lanes, model, sizeof lanes);
    gw_classic_target target = {got, SUM_LEN, 0, 0};
    assert_int_equal(gw_classic_sum_decode(&sum, &first, &target, &workspace), GW_OK);
    for (size_t i = 0; i < SUM_LEN; i++) {
        const float unit = shared[o->block_len == 0 ? 0 : i / o->block_len] / (float)o->level_max;
        assert_true(got[i] == (float)model[i] * unit);
        got[i] = 0;
    }
    /* The sum of decoded values but for their roundings. */
    double *values = (double *)lt_take(SUM_LEN * sizeof(double));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        float *decoded = lt_decode(&frames[rank], SUM_LEN);
        for (size_t i = 0; i < SUM_LEN; i++) {
            values[i] += (double)decoded[i];
        }
        free(decoded);
    }
    assert_int_equal(gw_classic_sum_decode(&sum, &first, &target, &workspace), GW_OK);
    for (size_t i = 0; i < SUM_LEN; i++) {
        const double norm = (double)shared[o->block_len == 0 ? 0 : i / o->block_len];
        assert_true(fabs((double)got[i] - values[i]) <= RANKS * norm * 0x1p-23);
    }
    /* Other norms do not fit, and frames without shared ones have no sum. */
    shared[blocks - 1] = shared[blocks - 1] * 2 + 1;
    const gw_classic_source source = {x[0], NULL, NULL, shared}, alone = {x[0], NULL, NULL, NULL};
    const lt_frame other = lt_encode(&classic, &step, &source), unshared = lt_encode(&classic, &step, &alone);
    const gw_classic_frame other_view = lt_view(&other), unshared_view = lt_view(&unshared);
    assert_int_equal(gw_classic_sum_add(&sum, &first, &other_view, &workspace), GW_ERR_MISMATCH);
    assert_int_equal(gw_classic_sum_add(&sum, &unshared_view, &unshared_view, &workspace), GW_ERR_OPTION);
    assert_int_equal(sum.members, RANKS);
    assert_memory_equal(lanes, model, sizeof lanes);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        free(frames[rank].data);
    }
    free(other.data);
    free(unshared.data);
    free(values);
    free(shared);
    free(own);
    free(workspace.data);
}

static void test_sums(void **state)
{
    lt_rng rng = {8};
    (void)state;
    for (int coding = 0; coding < 3; coding++) {
        gw_classic_options o =
            lt_options(GW_CLASSIC_QSGD, (gw_classic_coding)coding, coding == 0 ? 127 : 4, 512);
        check_sum(&rng, &o);
        o = lt_options(GW_CLASSIC_TERNGRAD, (gw_classic_coding)coding, 1, 0);
        check_sum(&rng, &o);
    }
}

/* Headers of frames that size_t may not hold (32-bit machines) are as good there: peek says what they are,
 * and the limit comes when the frame is opened. */
static void test_large_headers(void **state)
{
    const uint64_t len = (uint64_t)1 << 32, payload = 4 + len; /* 8 bits a level */
    const gw_classic_options o = lt_options(GW_CLASSIC_QSGD, GW_CLASSIC_CODING_PACKED, 127, 0);
    const gw_classic classic = lt_handle(&o);
    const gw_classic_step step = {0, 0, 0, 0, 0};
    const gw_classic_source source = {NULL, NULL, NULL, NULL};
    lt_frame frame = lt_encode(&classic, &step, &source);
    gw_classic_frame_info info;
    (void)state;
    gw_store64(frame.data + 16, len);
    gw_store64(frame.data + 24, (80 + payload + 15) / 16 * 16);
    gw_store64(frame.data + 72, payload);
    assert_int_equal(gw_classic_frame_peek(frame.data, frame.size, &info), GW_OK);
    assert_true(info.len == len && info.payload_size == payload);
    const gw_classic_frame view = {frame.data, frame.size, len, GW_BACKEND_ALL};
    assert_int_equal(gw_classic_frame_check(&view, &info, NULL),
                     payload > SIZE_MAX ? GW_ERR_LIMIT : GW_ERR_SHORT);
    gw_store64(frame.data + 72, payload + 4); /* more than the levels take */
    assert_int_equal(gw_classic_frame_peek(frame.data, frame.size, &info), GW_ERR_HEADER);
    free(frame.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),         cmocka_unit_test(test_codings),
        cmocka_unit_test(test_targets),       cmocka_unit_test(test_damage),
        cmocka_unit_test(test_unchecked),     cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_untouched),     cmocka_unit_test(test_sums),
        cmocka_unit_test(test_large_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
