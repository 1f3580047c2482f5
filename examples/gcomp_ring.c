/*
 * Ring all-reduce of RANKS gradients in one process: reduce-scatter with gw_gcomp_decode_add_encode(), then
 * the owner of a finished part decodes its own frame and all ranks forward those bytes, so that all replicas
 * stay equal bit for bit.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire/gcomp.h"

enum { RANKS = 4, PART = 20000, LEN = RANKS * PART };

static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s\n", what, gw_status_message(status));
        exit(1);
    }
}

int main(void)
{
    static float grad[RANKS][LEN], result[RANKS][LEN];
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < LEN; i++) {
            grad[r][i] = 1e-3f * (float)((i * 31 + r * 17) % 2001 - 1000) / 1000.0f;
        }
    }
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.rounding = GW_GCOMP_STOCHASTIC; /* unbiased however often it is repeated */
    /* a real job passes a map; its wire_scale is RANKS for plain sums */
    options.quantum = gw_gcomp_quantum_of_drop(12);
    gw_gcomp codec;
    must(gw_gcomp_init(&codec, &options), "init");
    const size_t capacity = gw_gcomp_frame_bound(&codec, PART);
    gw_workspace workspace = {.size = gw_gcomp_workspace_size(&codec)};
    workspace.data = malloc(workspace.size);
    gw_buffer out = {.data = malloc(capacity), .capacity = capacity};
    char *received = malloc(capacity);
    gw_gcomp_frame in = {.data = received};
    if (workspace.data == NULL || out.data == NULL || received == NULL) {
        return 1;
    }

    size_t sent = 0;
    for (int part = 0; part < RANKS; part++) { /* part p starts at rank p and ends, complete, at rank p - 1 */
        for (int hop = 0; hop < RANKS; hop++) {
            const int rank = (part + hop) % RANKS;
            const gw_gcomp_source source = {.values = grad[rank] + part * PART,
                                            .len = PART,
                                            .seed = 42,
                                            .first_element = (uint64_t)(part * PART),
                                            .rank = (uint16_t)rank,
                                            .hop = (uint16_t)hop};
            if (hop == 0) {
                must(gw_gcomp_encode(&codec, &source, &out, &workspace), "encode");
            } else {
                must(gw_gcomp_decode_add_encode(&codec, &in, &source, &out, NULL, &workspace), "hop");
            }
            memcpy(received, out.data, out.size); /* the wire */
            in.size = out.size;
            sent += out.size;
        }
        for (int rank = 0; rank < RANKS; rank++) { /* all-gather: the same bytes everywhere */
            gw_gcomp_target target = {.values = result[rank] + part * PART, .capacity = PART};
            must(gw_gcomp_decode(&codec, &in, &target, &workspace), "decode");
        }
        sent += (RANKS - 2) * in.size;
    }

    double error = 0.0, norm = 0.0;
    for (int i = 0; i < LEN; i++) {
        double exact = 0.0;
        for (int r = 0; r < RANKS; r++) {
            exact += grad[r][i];
        }
        error += (result[0][i] - exact) * (result[0][i] - exact);
        norm += exact * exact;
    }
    const int equal = memcmp(result[0], result[RANKS - 1], sizeof result[0]) == 0;
    printf("%d ranks: %.1f %% of the bytes of a plain ring, squared error %.1e of the sum's, replicas %s\n",
           RANKS, 100.0 * (double)sent / (2.0 * (RANKS - 1) * LEN * 4.0), error / norm,
           equal ? "equal" : "DIFFER");
    free(workspace.data);
    free(out.data);
    free(received);
    return equal && error / norm < 1e-5 ? 0 : 1;
}
