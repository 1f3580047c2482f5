/*
 * GCOMP: scales, sums of several frames, sources with segments, codebooks of carried frames, against the CPU.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

enum { SEGMENTS = 500 };

/* The case's values in 500 segments, every second one empty; the source begins within the second. */
static void check_segments(gcomp_case *c, uint64_t *random)
{
    static gw_gcomp_segment segments[SEGMENTS];
    const uint64_t each = c->t.cpu.len / (SEGMENTS / 2) + 1;
    for (int i = 0; i < SEGMENTS; i++) {
        segments[i] = (gw_gcomp_segment){next_random(random), next_random(random), i % 2 == 0 ? 0 : each};
    }
    set_segments(&c->t, segments, SEGMENTS, each / 3);
    compare_segments(c);
}

static void check_frames(const gcomp_case *c, uint64_t *random)
{
    frame_list list;
    make_frames(&list, c, random);
    compare_frames(c, &list, c->t.len, 0.5f);
    damage_frame(&list, 1, 20);
    compare_frames(c, &list, c->t.len, 0.5f);
    drop_frames(&list);
}

void run_dial(size_t len, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_CARRIED; quantum_mode++) {
            const unsigned long mark = device_mark();
            const uint32_t chunk_log2 = 12 + dtype;
            const int has_map = quantum_mode != GW_GCOMP_CARRIED || dtype != GW_FP32;
            gcomp_case c;
            c.codec = make_dial_codec((gw_dtype)dtype, (gw_gcomp_quantum_mode)quantum_mode, chunk_log2);
            snprintf(c.name, sizeof c.name, "dial, dtype %u mode %d len %zu", dtype, quantum_mode, len);
            make_case(&c, make_tensor((gw_dtype)dtype, len, 1, has_map, chunk_log2, &random));
            compare_scaled(&c, c.frame, c.frame_size, 0, 1.0f / 3);
            compare_scaled(&c, c.frame, c.frame_size, 1, -0x1p-100f);
            check_frames(&c, &random);
            check_segments(&c, &random);
            drop_case(&c);
            give_since(mark);
        }
    }
}
