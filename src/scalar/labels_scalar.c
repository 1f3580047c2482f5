/*
 * Labels before their codebook is known: counting them, then replacing them by ranks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "scalar/kernels_scalar.h"

void gw_count_scalar(uint32_t *count, const uint8_t *labels, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        count[labels[i]]++;
    }
}

void gw_rank_scalar(uint8_t *labels, size_t len, const uint8_t rank[GW_LABELS])
{
    for (size_t i = 0; i < len; i++) {
        labels[i] = rank[labels[i]];
    }
}
