/* SPDX-License-Identifier: BSD-2-Clause */
#include "level_testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------------- */

uint64_t lt_random(lt_rng *rng)
{
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t lt_below(lt_rng *rng, uint32_t n)
{
    return (uint32_t)(lt_random(rng) % n);
}

double lt_normal(lt_rng *rng)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += (double)lt_below(rng, UINT32_MAX) * 0x1p-32;
    }
    return sum;
}

void *lt_take(size_t size)
{
    void *memory = calloc(size + 1, 1);
    assert_non_null(memory);
    return memory;
}

float lt_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t lt_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? 0.0f : x;
}

static float widen_fp16(uint32_t h)
{
    const uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + (double)mantissa, (int)exponent - 25);
    return (float)(h >> 15 != 0 ? -magnitude : magnitude);
}

float lt_load(const void *src, gw_dtype dtype, size_t i)
{
    const uint8_t *p = (const uint8_t *)src;
    if (dtype == GW_FP32) {
        float x;
        memcpy(&x, p + 4 * i, sizeof x);
        return flush(x);
    }
    const uint32_t half = (uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8;
    return flush(dtype == GW_BF16 ? lt_float(half << 16) : widen_fp16(half));
}

/* ---- values -------------------------------------------------------------------------------------------- */

static float pattern_value(lt_rng *rng, unsigned pattern, size_t i)
{
    switch (pattern) {
    case 0:
        return (float)(1e-2 * lt_normal(rng));
    case 1: /* sparse */
        return lt_below(rng, 50) == 0 ? (float)lt_normal(rng) : 0.0f;
    case 2: /* many scales, with subnormals and -0 */
        return (float)ldexp(lt_normal(rng), (int)lt_below(rng, 40) - 20);
    case 3: /* all the same, and blocks of zeros */
        return i / 300 % 2 != 0 ? 0.0f : 0.75f;
    case 4: /* equal magnitudes */
        return lt_below(rng, 2) != 0 ? 1.5f : -1.5f;
    case 5: /* tiny numbers, with subnormals and -0 */
        return lt_float((lt_below(rng, 2) << 31) + lt_below(rng, 40u << 23));
    default:
        return 0.0f;
    }
}

static void store(uint8_t *dst, gw_dtype dtype, size_t i, float x)
{
    uint32_t bits = lt_bits(x);
    if (dtype == GW_FP32) {
        memcpy(dst + 4 * i, &bits, sizeof bits);
        return;
    }
    if (dtype == GW_BF16) {
        bits >>= 16;
    } else { /* truncated; some subnormals */
        const int exponent = (int)(bits >> 23 & 255) - 112;
        const uint32_t mantissa = bits >> 13 & 1023;
        bits = bits >> 16 & 0x8000;
        bits |= exponent >= 31 ? 0x7bffu : exponent > 0 ? (uint32_t)exponent << 10 | mantissa : mantissa % 5;
    }
    dst[2 * i] = (uint8_t)bits;
    dst[2 * i + 1] = (uint8_t)(bits >> 8);
}

void lt_values(lt_rng *rng, void *dst, gw_dtype dtype, size_t len, unsigned pattern)
{
    for (size_t i = 0; i < len; i++) {
        store((uint8_t *)dst, dtype, i, pattern_value(rng, pattern, i));
    }
}

/* ---- calls --------------------------------------------------------------------------------------------- */

gw_classic_options lt_options(gw_classic_scheme scheme, gw_classic_coding coding, uint32_t level_max,
                              uint32_t block_len)
{
    gw_classic_options options;
    assert_int_equal(gw_classic_options_init(&options, scheme), GW_OK);
    options.coding = coding;
    options.level_max = level_max;
    options.block_len = block_len;
    options.seed = 0x0123456789abcdefu;
    return options;
}

gw_classic lt_handle(const gw_classic_options *options)
{
    gw_classic classic;
    assert_int_equal(gw_classic_init(&classic, options), GW_OK);
    return classic;
}

gw_status lt_try_encode(const gw_classic *classic, const gw_classic_step *step,
                        const gw_classic_source *source, size_t capacity, lt_frame *frame)
{
    const size_t size = gw_classic_workspace_size(classic, step);
    const gw_workspace workspace = {lt_take(size), size};
    gw_buffer dst;
    memset(&dst, 0, sizeof dst);
    dst.capacity = capacity != 0 ? capacity : gw_classic_frame_bound(classic, step);
    dst.data = malloc(dst.capacity); /* exact, for the sanitizer */
    assert_non_null(dst.data);
    const gw_status status = gw_classic_encode(classic, step, source, &dst, &workspace);
    free(workspace.data);
    frame->data = (uint8_t *)dst.data;
    frame->size = dst.size;
    if (status != GW_OK) {
        assert_int_equal(dst.size, 0);
        free(frame->data);
        frame->data = NULL;
    }
    return status;
}

lt_frame lt_encode(const gw_classic *classic, const gw_classic_step *step, const gw_classic_source *source)
{
    lt_frame frame;
    assert_int_equal(lt_try_encode(classic, step, source, 0, &frame), GW_OK);
    return frame;
}

gw_classic_frame lt_view(const lt_frame *frame)
{
    gw_classic_frame view;
    memset(&view, 0, sizeof view);
    view.data = frame->data;
    view.size = frame->size;
    view.len_max = UINT64_MAX;
    view.backends = GW_BACKEND_ALL;
    return view;
}

gw_workspace lt_workspace(const lt_frame *frame)
{
    gw_classic_frame_info info;
    assert_int_equal(gw_classic_frame_peek(frame->data, frame->size, &info), GW_OK);
    const size_t size = gw_classic_decode_workspace_size(&info);
    const gw_workspace workspace = {lt_take(size), size};
    return workspace;
}

float *lt_decode(const lt_frame *frame, size_t len)
{
    const gw_classic_frame view = lt_view(frame);
    const gw_workspace workspace = lt_workspace(frame);
    gw_classic_target target;
    memset(&target, 0, sizeof target);
    target.values = lt_take(len * sizeof(float));
    target.capacity = len;
    assert_int_equal(gw_classic_decode_add(&view, &target, &workspace), GW_OK);
    assert_int_equal(target.len, len);
    free(workspace.data);
    return (float *)target.values;
}

/* ---- model --------------------------------------------------------------------------------------------- */

uint32_t lt_model_random(uint64_t seed, uint32_t round, uint32_t rank, uint64_t element)
{
    const uint64_t number = element / 128 * 16 + element % 16;
    uint64_t c[4] = {number % 4294967296u, number / 4294967296u + 0x20000000u, round, rank};
    for (uint64_t r = 0; r < 10; r++) {
        const uint64_t key0 = (seed + r * 0x9e3779b9u) % 4294967296u;
        const uint64_t key1 = (seed / 4294967296u + r * 0xbb67ae85u) % 4294967296u;
        const uint64_t a = 0xd2511f53u * c[0], b = 0xcd9e8d57u * c[2];
        const uint64_t next[4] = {b / 4294967296u ^ c[1] ^ key0, b % 4294967296u,
                                  a / 4294967296u ^ c[3] ^ key1, a % 4294967296u};
        memcpy(c, next, sizeof c);
    }
    const uint64_t word = c[element / 32 % 4];
    return (uint32_t)(element / 16 % 2 != 0 ? word / 65536 : word % 65536);
}

/* One of the sixteen sums of a piece, then those of all. */
static double piece_sum(const float *x, size_t len, size_t lane, size_t lanes, int is_square)
{
    double sum = 0;
    if (lanes < 16) {
        return piece_sum(x, len, lane, 2 * lanes, is_square) +
               piece_sum(x, len, lane + lanes, 2 * lanes, is_square);
    }
    for (size_t i = lane; i < len; i += 16) {
        sum += is_square ? (double)x[i] * (double)x[i] : (double)x[i];
    }
    return sum;
}

static double block_sum(const float *x, size_t len, int is_square)
{
    double sum = 0;
    for (size_t first = 0; first < len; first += 4096) {
        sum += piece_sum(x + first, len - first < 4096 ? len - first : 4096, 0, 1, is_square);
    }
    return sum;
}

/* The root of x, rounded to fp32 once before it and once after it. */
static float root(double x)
{
    int exponent;
    if (x <= 0) {
        return 0;
    }
    double m = frexp(x, &exponent) * 2; /* [1, 2) */
    exponent--;
    if (exponent % 2 != 0) {
        m *= 2;
        exponent--;
    }
    return (float)ldexp((double)sqrtf((float)m), exponent / 2);
}

static float model_norm(const gw_classic_options *options, const float *x, size_t len)
{
    float largest = 0;
    for (size_t i = 0; i < len; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const double n = (double)len, squares = block_sum(x, len, 1), sum = block_sum(x, len, 0);
    float norm = largest;
    if (options->scheme == GW_CLASSIC_TERNGRAD && options->clip > 0) {
        const double variance = (squares - sum * sum / n) / n;
        if (variance > squares / n * 0x1p-32) {
            const float limit = options->clip * root(variance);
            norm = limit < largest ? limit : largest;
        }
    } else if (options->scheme == GW_CLASSIC_QSGD && options->norm == GW_CLASSIC_NORM_L2) {
        norm = root(squares);
    }
    return norm < 0x1p-100f ? 0 : norm;
}

int lt_model_make(lt_model *model, const gw_classic_options *options, const gw_classic_step *step,
                  const gw_classic_source *source)
{
    const size_t len = (size_t)step->len, block_len = options->block_len == 0 ? len : options->block_len;
    const float s = (float)options->level_max;
    float *x = (float *)lt_take(len * sizeof *x);
    int has_norms = 1;
    model->norms = (float *)lt_take((len / 64 + 1) * sizeof(float));
    model->levels = (int8_t *)lt_take(len);
    model->values = (float *)lt_take(len * sizeof(float));
    model->residual = (float *)lt_take(len * sizeof(float));
    for (size_t i = 0; i < len; i++) {
        x[i] = lt_load(source->values, options->dtype, i);
        x[i] = source->residual != NULL ? flush(x[i] + flush(source->residual[i])) : x[i];
    }
    for (size_t first = 0; first < len; first += block_len) {
        const size_t end = len - first < block_len ? len : first + block_len;
        float *const norm = &model->norms[first / block_len];
        *norm = source->norms != NULL ? source->norms[first / block_len]
                                      : model_norm(options, x + first, end - first);
        has_norms &= *norm < 0x1p127f && (options->dtype != GW_FP16 || *norm <= 65504);
        const float scale = *norm > 0 ? s * 65536 / *norm : 0, unit = *norm / s;
        for (size_t i = first; i < end; i++) {
            const float product = fabsf(x[i]) * scale;
            const float shifted = product + 0.5f;
            const double position = shifted < s * 65536 ? floor((double)shifted) : (double)s * 65536;
            const uint32_t random =
                lt_model_random(options->seed, step->round, step->rank, step->element_first + i);
            const double level = floor((position + random) / 65536);
            model->levels[i] = (int8_t)(x[i] < 0 ? -level : level);
            model->values[i] = model->levels[i] == 0 ? 0 : (float)model->levels[i] * unit;
            model->residual[i] = flush(x[i] - model->values[i]);
        }
    }
    free(x);
    return has_norms;
}

void lt_model_free(lt_model *model)
{
    free(model->norms);
    free(model->levels);
    free(model->values);
    free(model->residual);
}
