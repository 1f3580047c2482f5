/*
 * GCOMP: random tensors and damaged frames.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "gpu_check.h"

tensor make_tensor(gw_dtype dtype, size_t len, unsigned special, int has_map, uint32_t chunk_log2,
                   uint64_t *random)
{
    void *values = take(len * gw_dtype_size(dtype));
    uint8_t *map_bytes = has_map ? take(len) : NULL;
    fill(values, dtype, len, special, random);
    for (size_t i = 0; has_map && i < len; i++) {
        map_bytes[i] = (uint8_t)(next_random(random) % 160);
    }
    const gw_gcomp_map map = {map_bytes, NULL, dtype == GW_FP16 ? 420u : 380u, 1.0f, len, chunk_log2};
    return tensor_of(dtype, len, values, has_map ? &map : NULL);
}

/* Dead zone, carried frames with quanta of a map or of an error, zero masks: most values are 0. */
static void run_sparse(gw_dtype dtype, gw_gcomp_quantum_mode quantum_mode, size_t len, uint32_t chunk_log2,
                       uint64_t seed)
{
    for (int has_map = 0; has_map < 2; has_map++) {
        const size_t size = gw_dtype_size(dtype);
        gcomp_case c;
        uint64_t random = seed;
        gw_gcomp_options o;
        const tensor t = make_tensor(dtype, len, 0, has_map, chunk_log2, &random);
        for (size_t i = 0; i < len; i++) {
            if (next_random(&random) % 8 != 0) {
                memset(t.values + i * size, 0, size);
            }
        }
        gw_gcomp_options_init(&o, dtype);
        o.quantum_mode = quantum_mode;
        o.rounding = (gw_gcomp_rounding)(dtype % 3);
        o.dead_zone = quantum_mode != GW_GCOMP_EXPLICIT;
        o.block_log2 = 7;
        o.quantum = gw_gcomp_quantum_of_nmse(quantum_mode == GW_GCOMP_CARRIED ? 0.01f : 0);
        o.chunk_log2 = chunk_log2;
        o.checksum = has_map;
        o.backends = cpu_backends;
        must(gw_gcomp_init(&c.codec, &o), "gw_gcomp_init");
        snprintf(c.name, sizeof c.name, "sparse, dtype %u mode %u map %d chunk %u len %zu", (unsigned)dtype,
                 (unsigned)quantum_mode, has_map, 1u << chunk_log2, len);
        make_case(&c, t);
        compare_all(&c);
        drop_case(&c);
    }
}

/* all_chunk_log2: 0 for all four. */
void run_gcomp(size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    const size_t lens[] = {0, 1, 63, 4097, len, len + 77, len / 2 + 5};
    static const uint32_t chunk_log2s[] = {12, 13, 14, 15, 13, 14, 15};

    for (unsigned dtype = GW_FP32; dtype <= GW_FP16; dtype++) {
        for (int quantum_mode = 0; quantum_mode < 2; quantum_mode++) {
            for (int preset = 0; preset < 2; preset++) {
                for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
                    gcomp_case c;
                    uint64_t random = seed + i;
                    const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : chunk_log2s[i];
                    const int rounding = (int)((i + dtype) % 3), checksum = (int)(i & 1);
                    c.codec = make_codec((gw_dtype)dtype, (gw_gcomp_quantum_mode)quantum_mode,
                                         (gw_gcomp_preset)preset, (gw_gcomp_rounding)rounding, chunk_log2,
                                         checksum);
                    snprintf(c.name, sizeof c.name, "dtype %u mode %d preset %d rounding %d chunk %u len %zu",
                             dtype, quantum_mode, preset, rounding, 1u << chunk_log2, lens[i]);
                    make_case(&c, make_tensor((gw_dtype)dtype, lens[i], (unsigned)(i & 1), i != 2 && i != 4,
                                              chunk_log2, &random));
                    compare_all(&c);
                    drop_case(&c);
                }
            }
        }
        for (int quantum_mode = GW_GCOMP_EXPLICIT; quantum_mode <= GW_GCOMP_CARRIED; quantum_mode++) {
            const uint32_t chunk_log2 =
                all_chunk_log2 != 0 ? all_chunk_log2 : 12 + (dtype + (uint32_t)quantum_mode) % 4;
            run_sparse((gw_dtype)dtype, (gw_gcomp_quantum_mode)quantum_mode, len + 77, chunk_log2,
                       seed + dtype);
        }
    }
}

/* chunk_log2: 0 for all four. */
void run_hostile(unsigned long count, size_t len, uint32_t all_chunk_log2, uint64_t seed)
{
    uint64_t random = seed;

    for (unsigned long i = 0; i < count; i++) {
        gcomp_case c;
        const gw_dtype dtype = (gw_dtype)(1 + i % 3);
        const uint32_t chunk_log2 = all_chunk_log2 != 0 ? all_chunk_log2 : 12 + (uint32_t)(i / 3 % 4);
        c.codec = make_codec(dtype, (gw_gcomp_quantum_mode)(i / 2 % 2), (gw_gcomp_preset)(i / 4 % 2),
                             (gw_gcomp_rounding)1, chunk_log2, (int)(i / 5 % 2));
        snprintf(c.name, sizeof c.name, "hostile %lu", i);
        make_case(&c, make_tensor(dtype, len, (unsigned)(i & 1), 1, chunk_log2, &random));
        for (int turn = 0; turn < 8; turn++) {
            snprintf(c.name, sizeof c.name, "hostile %lu turn %d", i, turn);
            compare_damaged(&c, turn, &random);
        }
        drop_case(&c);
    }
}
