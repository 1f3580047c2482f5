/*
 * Casts, signs and sums of the classic codecs: by classic/sign_values.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic/sign_values.h"
#include "scalar/kernels_scalar.h"

void gw_multiply_scalar(float *x, size_t len, float scale)
{
    gw_multiply_values(x, 0, len, scale);
}

void gw_accumulate_scalar(float *sum, const float *x, size_t len)
{
    gw_accumulate_values(sum, x, 0, len);
}

void gw_cast_scalar(void *dst, unsigned dst_dtype, const void *src, unsigned src_dtype, size_t len)
{
    gw_cast_values((uint8_t *)dst, dst_dtype, (const uint8_t *)src, src_dtype, 0, len);
}

uint32_t gw_sign_pack_scalar(uint8_t *bits, const void *src, unsigned dtype, size_t len)
{
    return gw_sign_pack_values(bits, (const uint8_t *)src, dtype, 0, len);
}

void gw_sign_sums_scalar(gw_sign_sums *sums, const float *x, size_t len)
{
    double negative[GW_SIGN_LANES] = {0.0}, positive[GW_SIGN_LANES] = {0.0};

    sums->negative_count = gw_sign_sum_values(negative, positive, x, 0, len);
    sums->negative = gw_sign_fold(negative);
    sums->positive = gw_sign_fold(positive);
}

void gw_sign_residual_scalar(float *residual, const float *x, size_t len, float positive, float negative)
{
    gw_sign_residual_values(residual, x, 0, len, positive, negative);
}

void gw_sign_momentum_scalar(float *dst, const float *momentum, const float *x, size_t len, float beta,
                             float rest)
{
    gw_sign_momentum_values(dst, momentum, x, 0, len, beta, rest);
}

void gw_sign_unpack_scalar(void *dst, unsigned size, const uint8_t *bits, unsigned first, size_t len,
                           uint32_t positive, uint32_t negative)
{
    const uint32_t values[2] = {positive, negative};
    gw_sign_unpack_values((uint8_t *)dst, size, bits, first, first + len, values);
}

void gw_sign_add_scalar(float *sum, const uint8_t *bits, unsigned first, size_t len, float positive,
                        float negative)
{
    const float values[2] = {positive, negative};
    gw_sign_add_values(sum, bits, first, first + len, values);
}

void gw_sign_votes_scalar(int32_t *lanes, const uint8_t *bits, size_t len)
{
    gw_sign_vote_values(lanes, bits, 0, len);
}

void gw_sign_majority_scalar(uint8_t *bits, const int32_t *lanes, const uint8_t *ties, size_t len)
{
    gw_sign_majority_values(bits, lanes, ties, 0, len);
}
