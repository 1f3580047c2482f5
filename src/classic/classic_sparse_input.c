/* SPDX-License-Identifier: BSD-2-Clause */
#include "classic/classic_sparse_input.h"

#include "classic/sparse_value.h"
#include "core/sqrt.h"

void gw_sparse_input_init(gw_sparse_input *input, const gw_classic_encoding *encoding, float *blocks)
{
    const gw_classic_options *const options = encoding->options;
    input->kernels = encoding->kernels;
    input->values = (const uint8_t *)encoding->source->values;
    input->dtype = (unsigned)options->dtype;
    input->element_size = gw_dtype_size(options->dtype);
    input->residual = options->error_feedback != 0 ? encoding->source->residual : NULL;
    input->momentum = options->scheme == GW_CLASSIC_DGC ? encoding->source->momentum : NULL;
    gw_sparse_step_make(&input->step, options->momentum, 1.0f, options->nesterov);
    for (size_t i = 0; i < 3; i++) {
        input->block[i] = blocks + i * GW_SPARSE_BLOCK_LEN;
    }
}

static const uint8_t *values_at(const gw_sparse_input *input, uint64_t first)
{
    return input->values + (size_t)first * input->element_size;
}

/* clip / sqrt(sum), sum > clip^2. The sum is s * 4^e with s in [1, 4): its root is that of s as fp32 times
 * 2^e. */
static float clip_factor(double sum, float clip)
{
    uint64_t bits;
    GW_MEMCPY(&bits, &sum, sizeof bits);
    const int exponent = (int)(bits >> 52) - 1023, half = exponent >= 0 ? exponent / 2 : (exponent - 1) / 2;
    const float s = (float)(sum * gw_f64_pow2(-2 * half));
    const double root = (double)gw_sqrt(s) * gw_f64_pow2(half);
    const double factor = (double)clip / root;
    return factor < 0x1p-126 ? 0.0f : (float)factor;
}

int gw_sparse_input_clip(gw_sparse_input *input, uint64_t len, float clip)
{
    double sums[GW_SPARSE_SUMS] = {0}, sum = 0;
    for (uint64_t first = 0; first < len; first += GW_SPARSE_BLOCK_LEN) {
        const size_t count = (size_t)gw_min_u64(len - first, GW_SPARSE_BLOCK_LEN);
        input->kernels->thc.load(input->block[0], values_at(input, first), input->dtype, NULL, count, count);
        input->kernels->classic.sparse_squares(sums, input->block[0], count);
    }
    for (size_t i = 0; i < GW_SPARSE_SUMS; i++) {
        sum += sums[i];
    }
    if (!(sum <= 0x1p+320)) { /* squares of finite values: at most 2^256 * 2^32 */
        return 0;
    }
    const float factor = sum > (double)clip * (double)clip ? clip_factor(sum, clip) : 1.0f;
    gw_sparse_step_make(&input->step, input->step.momentum, factor, input->step.nesterov);
    return 1;
}

const void *gw_sparse_input_read(const gw_sparse_input *input, uint64_t first, size_t len)
{
    const gw_kernels *const kernels = input->kernels;
    const uint8_t *const values = values_at(input, first);
    float *const block = input->block[0];
    if (input->momentum != NULL) {
        kernels->thc.load(input->block[1], values, input->dtype, NULL, len, len);
        kernels->classic.sparse_momentum(input->block[2], block, input->momentum + first,
                                         input->residual + first, input->block[1], len, &input->step);
        return block;
    }
    if (GW_IS_LITTLE_ENDIAN && input->dtype == GW_FP32 && input->residual == NULL) {
        return values;
    }
    kernels->thc.load(block, values, input->dtype, input->residual == NULL ? NULL : input->residual + first,
                      len, len);
    return block;
}

/* residual[0..len) becomes what gw_sparse_input_read() gave, all of it finite. */
static void add_values(const gw_sparse_input *input, float *residual, uint64_t first, size_t len)
{
    const uint8_t *const values = values_at(input, first);
    const float *x = (const float *)(const void *)values;
    if (!GW_IS_LITTLE_ENDIAN || input->dtype != GW_FP32 || (uintptr_t)values % sizeof(float) != 0) {
        input->kernels->thc.load(input->block[0], values, input->dtype, NULL, len, len);
        x = input->block[0];
    }
    input->kernels->classic.accumulate(residual, x, len);
}

void gw_sparse_input_commit(const gw_sparse_input *input, uint64_t len, const gw_sparse_sent *sent)
{
    uint64_t j = 0;
    if (input->residual == NULL) {
        return;
    }
    for (uint64_t first = 0; first < len; first += GW_SPARSE_BLOCK_LEN) {
        const size_t count = (size_t)gw_min_u64(len - first, GW_SPARSE_BLOCK_LEN);
        float *const residual = input->residual + first;
        if (input->momentum != NULL) {
            float *const momentum = input->momentum + first;
            input->kernels->thc.load(input->block[1], values_at(input, first), input->dtype, NULL, count,
                                     count);
            input->kernels->classic.sparse_momentum(momentum, residual, momentum, residual, input->block[1],
                                                    count, &input->step);
        } else {
            add_values(input, residual, first, count);
        }
        for (; j < sent->len && sent->positions[j] - first < count; j++) {
            const size_t i = (size_t)(sent->positions[j] - first);
            const float sum = gw_float_from_bits(gw_sparse_load(residual, i));
            gw_sparse_store(residual, i, gw_f32_flush(sum - sent->values[j]));
            if (sent->clear_momentum) {
                gw_sparse_store(input->momentum + first, i, 0.0f);
            }
        }
    }
}
