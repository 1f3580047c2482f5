/*
 * Prints docs/results/gcomp-hops.md: what 2 to 64 encodes one after the other do to a sum.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <stdio.h>

#include "ring.h"

static const char *const rounding_names[3] = {"truncate", "nearest", "stochastic"};

static int table(uint32_t drop, int same_sign)
{
    printf("| ranks |");
    for (int rounding = 0; rounding < 3; rounding++) {
        printf(" %s: bias |%s", rounding_names[rounding], drop == UINT32_MAX ? " worst error |" : "");
    }
    printf("\n|---|");
    for (int i = 0; i < (drop == UINT32_MAX ? 6 : 3); i++) {
        printf("---|");
    }
    printf("\n");
    for (uint32_t ranks = 2; ranks <= 64; ranks *= 2) {
        printf("| %u |", ranks);
        for (int rounding = 0; rounding < 3; rounding++) {
            const ring_setup s = {
                (gw_gcomp_rounding)rounding, GW_GCOMP_EXPLICIT, ranks, 200000, drop, same_sign, 2024};
            ring_result r;
            if (!ring_run(&s, &r)) {
                return 0;
            }
            printf(" %+.5f %% |", 100.0 * r.bias);
            if (drop == UINT32_MAX) {
                printf(" %.2f |", r.worst_budget);
            }
        }
        printf("\n");
    }
    printf("\n");
    return 1;
}

int main(void)
{
    printf("# GCOMP over several hops\n\n"
           "Made by `bench/gcomp/results_gcomp`. A ring is simulated in one process (tests/gcomp/ring.c): "
           "rank 0 "
           "encodes its\n"
           "gradient, every further rank decodes, adds its own and encodes (`gw_gcomp_decode_add_encode`), "
           "the last frame is\n"
           "decoded and compared with the sum in double. 200,000 values, explicit quanta, fp32. N ranks are "
           "N encodes.\n\n"
           "*bias* = sum of (result - exact)*sign(exact) over the sum of |exact|.\n\n"
           "## 18 bits dropped at every hop, gradients independent around a common mean\n\n");
    int ok = table(18, 0);
    printf("## 18 bits dropped at every hop, all gradients positive\n\n");
    ok = ok && table(18, 1);
    printf(
        "## Drops from the precision map of SGD (lr 0.01, theta of standard deviation 0.05, wire scale N)\n\n"
        "*worst error* = maximum of (|result - exact| less half an ulp of every partial sum, which the fp32 "
        "additions may\n"
        "round) in units of 2^-23 |num/(lr c)| on the wire. docs/numerics.md section 6 bounds it by N for "
        "truncation and\n"
        "stochastic rounding and by N/2 for nearest.\n\n");
    ok = ok && table(UINT32_MAX, 0);
    if (!ok) {
        fprintf(stderr, "results_gcomp_hops: a call failed\n");
        return 1;
    }
    return 0;
}
