/*
 * The device entry points in a kernel of their own, as a collective would use them: every block encodes its
 * chunks into slots, then decodes the slots and adds. In the shim, against a frame with an installed codebook
 * and a decode_add of the library.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "cuda/gcomp_device.cuh"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "gradwire/gcomp.h"

/* gcomp_shim.h, which is C and includes the inside of a handle. */
extern "C" {
void gcomp_shim_device_codec(gw_device_codec *out, const gw_gcomp *codec, const gw_gcomp_map *map,
                             const gw_cuda_gcomp_key *key);
uint32_t gcomp_shim_decode_shared_size(const gw_device_codec *codec);
}

struct fused_params {
    gw_device_codec codec;
    const float *values;
    const uint8_t *map_bytes;
    uint64_t len;
    uint8_t *slots;
    uint32_t slot_size, shared_size, encode_size;
    uint32_t *kind, *size, *status;
    float *sums;
};

template <bool DERIVED> GW_DEVICE void fused(const fused_params &p)
{
    unsigned char *shared = &GW_SHARED(unsigned char);
    const uint32_t log2 = p.codec.codec.chunk_log2;
    const uint64_t chunks = (p.len + ((1u << log2) - 1)) >> log2;
    const bool ready = gw_device_encode_begin<GW_FP32, DERIVED>(shared, p.encode_size, p.codec);
    for (uint64_t i = blockIdx.x; ready && i < chunks; i += gridDim.x) {
        const uint64_t first = i << log2;
        const uint32_t len = (uint32_t)(p.len - first < 1u << log2 ? p.len - first : 1u << log2);
        uint32_t kind;
        const uint32_t size =
            gw_device_encode_chunk<GW_FP32, DERIVED>(shared, p.codec, p.values + first, p.map_bytes + first,
                                                     len, first, p.slots + i * p.slot_size, &kind);
        if (threadIdx.x == 0) {
            p.kind[i] = kind;
            p.size[i] = size;
        }
    }
    __syncthreads();
    const bool decodes = gw_device_decode_begin<GW_FP32, DERIVED>(shared, p.codec);
    for (uint64_t i = blockIdx.x; decodes && i < chunks; i += gridDim.x) {
        const uint64_t first = i << log2;
        const uint32_t len = (uint32_t)(p.len - first < 1u << log2 ? p.len - first : 1u << log2);
        const gw_device_chunk chunk = {p.slots + i * p.slot_size, p.kind[i], p.size[i], p.map_bytes + first,
                                       len};
        const uint32_t status = gw_device_decode_chunk<GW_FP32, DERIVED>(
            shared, p.shared_size, p.codec, chunk, p.sums + first, p.sums + first);
        if (threadIdx.x == 0) {
            p.status[i] = status;
        }
    }
}

GW_KERNEL(fused_explicit, fused_params, 256, 1)
{
    fused<false>(p);
}

GW_KERNEL(fused_derived, fused_params, 256, 1)
{
    fused<true>(p);
}

#if !defined(__CUDACC__)
static int failures;

static void check(bool condition, const char *what)
{
    if (!condition) {
        failures++;
        printf("%s\n", what);
    }
}

/* zeros: percent of the values; many of them make a zero mask. */
static void test(bool derived, bool has_map, uint64_t len, int zeros, bool dead_zone)
{
    gw_gcomp_options options;
    gw_gcomp codec;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = derived ? GW_GCOMP_DERIVED : GW_GCOMP_EXPLICIT;
    options.rounding = GW_GCOMP_STOCHASTIC;
    options.chunk_log2 = 12;
    options.quantum = gw_gcomp_quantum_of_drop(6);
    options.dead_zone = dead_zone;
    if (gw_gcomp_init(&codec, &options) != GW_OK) {
        exit(2);
    }
    std::vector<float> values(len), expected(len), sums(len);
    std::vector<uint8_t> map_bytes(len), workspace(gw_gcomp_workspace_size(&codec));
    std::vector<uint32_t> digest(len / 4096 + 1);
    for (uint64_t i = 0; i < len; i++) {
        const uint32_t bits = ((uint32_t)rand() << 9 & 0x80000000u) | (uint32_t)(100 + rand() % 12) << 23 |
                              ((uint32_t)rand() & 0x7fffff);
        memcpy(&values[i], &bits, 4);
        values[i] = i / 4096 == 1 || rand() % 100 < zeros ? 0.0f : values[i];
        if (i / 4096 == 2) {
            const uint32_t noise = (uint32_t)rand() * 3u;
            memcpy(&values[i], &noise, 4);
        }
        map_bytes[i] = (uint8_t)(100 + rand() % 60);
        sums[i] = expected[i] = (float)(int)i;
    }
    if (gw_gcomp_map_digest(map_bytes.data(), len, 12, digest.data()) != GW_OK) {
        exit(2);
    }
    gw_gcomp_map map = {map_bytes.data(), digest.data(), 340, 1.0f, len, 12};
    gw_gcomp_source source = {};
    source.values = values.data();
    source.len = len;
    source.quantum = gw_gcomp_quantum_of_map(has_map ? &map : nullptr);
    source.seed = 77;
    gw_gcomp_histogram histogram;
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_buffer codebook_dst = {codebook, sizeof codebook, 0};
    const gw_workspace work = {workspace.data(), workspace.size()};
    if (gw_gcomp_histogram_init(&histogram, &codec) != GW_OK ||
        gw_gcomp_histogram_add(&histogram, &codec, &source, &work) != GW_OK ||
        gw_gcomp_codebook_build(&histogram, &codebook_dst) != GW_OK ||
        gw_gcomp_codebook_install(&codec, 1, 1, codebook, codebook_dst.size, 1) != GW_OK) {
        exit(2);
    }
    std::vector<uint8_t> frame(gw_gcomp_frame_bound(&codec, len));
    gw_gcomp_frame_info info;
    gw_buffer dst = {frame.data(), frame.size(), 0};
    if (gw_gcomp_encode(&codec, &source, &dst, &work) != GW_OK) {
        exit(2);
    }
    const gw_gcomp_frame in = {dst.data, dst.size, source.quantum.map};
    gw_gcomp_target target = {expected.data(), len, 0, 0, 0, 0};
    if (gw_gcomp_frame_parse(&codec, &in, &info) != GW_OK ||
        gw_gcomp_decode_add(&codec, &in, &target, &work) != GW_OK) {
        exit(2);
    }

    fused_params p = {};
    const gw_cuda_gcomp_key key = {source.seed, source.step_index, source.rank, source.hop};
    gcomp_shim_device_codec(&p.codec, &codec, source.quantum.map, &key);
    const uint64_t chunks = info.chunk_count;
    std::vector<uint32_t> kind(chunks), sizes(chunks), status(chunks, 9);
    std::vector<uint8_t> area(chunks * 16384 + 16);
    p.values = values.data();
    p.map_bytes = map_bytes.data();
    p.len = len;
    p.slots = area.data() + (16 - (uintptr_t)area.data() % 16) % 16;
    p.slot_size = 16384;
    p.shared_size = gcomp_shim_decode_shared_size(&p.codec);
    p.kind = kind.data();
    p.size = sizes.data();
    p.status = status.data();
    p.sums = sums.data();
    /* With and without a map, with much and with little shared memory. */
    p.encode_size = has_map ? GW_CUDA_ENCODE_SHARED_SIZE_ONCE(12, GW_FP32) : GW_CUDA_ENCODE_SHARED_SIZE(12);
    gw_shim_launch(derived ? fused_derived_run : fused_explicit_run, &p, 2, 256,
                   p.encode_size > p.shared_size ? p.encode_size : p.shared_size, 0);
    for (uint64_t i = 0; i < chunks; i++) {
        gw_gcomp_chunk chunk;
        if (gw_gcomp_frame_chunk(&in, &info, i, &chunk) != GW_OK) {
            exit(2);
        }
        check(chunk.kind == (gw_gcomp_chunk_kind)kind[i] && chunk.size == sizes[i], "another kind or size");
        check(memcmp(p.slots + i * p.slot_size, frame.data() + chunk.offset, chunk.size) == 0, "other bytes");
        check(status[i] == GW_OK, "a chunk is called bad");
    }
    check(memcmp(sums.data(), expected.data(), 4 * len) == 0, "other sums");
}

int main(void)
{
    srand(3);
    test(false, false, 20000, 33, false);
    test(false, true, 13000, 33, false);
    test(true, true, 20001, 33, false);
    test(true, false, 4096 * 3, 33, false);
    test(false, true, 13000, 90, false);
    test(true, true, 13000, 90, true);
    printf("%d failures\n", failures);
    return failures != 0;
}
#endif
