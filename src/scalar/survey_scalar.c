/*
 * Survey: counts bins. It needs no window, so it can run before the codebook's base is known.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/kernels.h"

void gw_survey_scalar(uint32_t *count, const uint16_t *bins, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        count[bins[i]]++;
    }
}
