/*
 * THC: all block lengths and widths.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

void run_thc(size_t len, uint64_t seed)
{
    for (unsigned block_log2 = 6; block_log2 <= 13; block_log2++) {
        for (unsigned bits = 1; bits <= 4; bits++) {
            for (int transform = GW_THC_PLAIN; transform <= GW_THC_ROTATED; transform++) {
                const gw_dtype dtype = (gw_dtype)(1 + (bits + block_log2) % 3);
                const unsigned lane_bits = bits == 2 ? 16 : bits == 3 ? 32 : 8;
                /* At 1 bit the default table's errors diverge: no feedback. */
                thc_case j = make_thc(WORKERS, bits, block_log2, dtype, lane_bits,
                                      (gw_thc_transform)transform, transform == GW_THC_ROTATED && bits > 1);
                uint64_t random = seed + block_log2;
                const size_t n = len + 5 * bits;
                j.offset = bits & 1;
                snprintf(j.name, sizeof j.name, "thc bits %u block %u dtype %d transform %d", bits,
                         1u << block_log2, (int)dtype, transform);
                compare_thc(&j, n, 0, gw_thc_block_count(&j.thc, n), NULL, 0, &random);
            }
        }
    }
}
