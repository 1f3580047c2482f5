/*
 * Other ways to send the same gradients: zstd -1 and lz4 on the fp32 bytes, byte planes with Huffman (as
 * ZipNN), a cast to bf16, and int8 with one scale per block.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_pairs.h"
#include "peer_loops.h"

/*
 * Huffman coder of zstd 1.5.4, as exported by Debian 12's libzstd.a; its header is not installed. The round
 * trip before each timing detects an incompatible version.
 */
#if ZSTD_VERSION_NUMBER == 10504
#define GW_BENCH_HUF 1
extern "C" {
size_t HUF_compress4X_repeat(void *dst, size_t dst_size, const void *src, size_t src_size,
                             unsigned max_symbol, unsigned table_log, void *workspace, size_t workspace_size,
                             size_t *table, int *repeat, int flags);
size_t HUF_decompress4X_hufOnly_wksp(uint32_t *table, void *dst, size_t dst_size, const void *src,
                                     size_t src_size, void *workspace, size_t workspace_size, int flags);
}
#endif

namespace
{

void run(benchmark::State &state, size_t bytes, double packed_bits, bool cold,
         const std::vector<Touched> &touched, const std::function<void()> &body)
{
    Work work;
    work.size = bytes;
    work.bits_per_value = packed_bits / (static_cast<double>(bytes) / sizeof(float));
    work.run = body;
    work.touched = touched;
    work.cold = cold;
    run_pairs(state, work);
}

void bench_zstd(benchmark::State &state, const gw_bench_data &data, bool decode, bool cold)
{
    const size_t size = data.len * sizeof(float);
    std::vector<char> packed(ZSTD_compressBound(size)), back(size, 1);
    ZSTD_CCtx *const compressor = ZSTD_createCCtx();
    ZSTD_DCtx *const decompressor = ZSTD_createDCtx();
    const size_t packed_size =
        ZSTD_compressCCtx(compressor, packed.data(), packed.size(), data.values, size, 1);
    if (ZSTD_decompressDCtx(decompressor, back.data(), size, packed.data(), packed_size) != size ||
        std::memcmp(back.data(), data.values, size) != 0) {
        state.SkipWithError("no round trip");
    } else {
        run(state, size, 8.0 * static_cast<double>(packed_size), cold,
            {{data.values, size}, {packed.data(), packed_size}, {back.data(), decode ? size : 0}}, [&] {
                if (decode) {
                    benchmark::DoNotOptimize(
                        ZSTD_decompressDCtx(decompressor, back.data(), size, packed.data(), packed_size));
                } else {
                    benchmark::DoNotOptimize(
                        ZSTD_compressCCtx(compressor, packed.data(), packed.size(), data.values, size, 1));
                }
            });
    }
    ZSTD_freeCCtx(compressor);
    ZSTD_freeDCtx(decompressor);
}

void bench_lz4(benchmark::State &state, const gw_bench_data &data, bool decode, bool cold)
{
    const int size = static_cast<int>(data.len * sizeof(float));
    const size_t bytes = data.len * sizeof(float);
    std::vector<char> packed(static_cast<size_t>(LZ4_compressBound(size))), back(bytes, 1);
    const char *const values = reinterpret_cast<const char *>(data.values);
    const int packed_size =
        LZ4_compress_default(values, packed.data(), size, static_cast<int>(packed.size()));
    if (LZ4_decompress_safe(packed.data(), back.data(), packed_size, size) != size ||
        std::memcmp(back.data(), values, bytes) != 0) {
        return state.SkipWithError("no round trip");
    }
    run(state, bytes, 8.0 * packed_size, cold,
        {{values, bytes},
         {packed.data(), static_cast<size_t>(packed_size)},
         {back.data(), decode ? bytes : 0}},
        [&] {
            if (decode) {
                benchmark::DoNotOptimize(LZ4_decompress_safe(packed.data(), back.data(), packed_size, size));
            } else {
                benchmark::DoNotOptimize(
                    LZ4_compress_default(values, packed.data(), size, static_cast<int>(packed.size())));
            }
        });
}

struct Loops {
    const char *suffix;
    uint32_t backend;
    const gw_peer_loops *loops;
};

/* Narrowest first. */
const Loops kLoops[] = {
    {"", GW_BACKEND_SCALAR, &gw_peer_loops_base},
#if defined(GW_HAVE_AVX2)
    {"_avx2", GW_BACKEND_AVX2, &gw_peer_loops_avx2},
#endif
#if defined(GW_HAVE_AVX512)
    {"_avx512", GW_BACKEND_AVX512, &gw_peer_loops_avx512},
#endif
};

#if defined(GW_BENCH_HUF)
/*
 * Bytes split into planes and each plane coded by Huffman, as ZipNN does with fp32: blocks of 64 Ki values, a
 * table and four streams per plane. A plane that does not shrink is stored; a constant one takes one byte.
 */
class ByteSplit
{
public:
    explicit ByteSplit(const gw_bench_data &data)
        : back(data.len, 1.0f), packed(data.len * sizeof(float) + 4096), data_(data), planes_(4 * kBlock)
    {
        for (const Loops &entry : kLoops) {
            loops_ = (gw_backends_available() & entry.backend) != 0 ? entry.loops : loops_;
        }
    }

    /* Returns the bytes in `packed`. Sizes of planes, 0.002 bits per value, are not counted. */
    size_t Encode()
    {
        sizes_.clear();
        size_t at = 0;
        for (size_t i = 0; i < data_.len; i += kBlock) {
            const size_t len = std::min(kBlock, data_.len - i);
            loops_->split(planes_.data(), data_.values + i, len);
            for (size_t p = 0; p < 4; p++) {
                const uint8_t *const plane = &planes_[p * len];
                int repeat = 0;
                size_t size =
                    HUF_compress4X_repeat(&packed[at], packed.size() - at, plane, len, 255, 11, workspace_,
                                          sizeof workspace_, codes_, &repeat, kBmi2 | kSampleFirst);
                if (size == 0 || size >= len) { /* incompressible, or an error */
                    std::memcpy(&packed[at], plane, len);
                    size = len;
                }
                sizes_.push_back(size);
                at += size;
            }
        }
        return at;
    }

    bool Decode()
    {
        size_t at = 0, index = 0;
        for (size_t i = 0; i < data_.len; i += kBlock) {
            const size_t len = std::min(kBlock, data_.len - i);
            const uint8_t *planes[4];
            for (size_t p = 0; p < 4; p++) {
                const size_t size = sizes_[index++];
                uint8_t *const plane = &planes_[p * len];
                planes[p] = size == len ? &packed[at] : plane;
                table_[0] = 12 * 0x01000001u;
                if (size == 1) {
                    std::memset(plane, packed[at], len);
                } else if (size != len &&
                           HUF_decompress4X_hufOnly_wksp(table_, plane, len, &packed[at], size, workspace_,
                                                         sizeof workspace_, kBmi2) != len) {
                    return false;
                }
                at += size;
            }
            loops_->unsplit(&back[i], planes, len);
        }
        return true;
    }

    std::vector<float> back;
    std::vector<uint8_t> packed;

private:
    static constexpr size_t kBlock = size_t{64} << 10;
    static constexpr int kBmi2 = 1, kSampleFirst = 8;
    const gw_bench_data &data_;
    const gw_peer_loops *loops_ = nullptr;
    std::vector<uint8_t> planes_;
    std::vector<size_t> sizes_;
    alignas(64) char workspace_[1 << 16];
    size_t codes_[512];
    uint32_t table_[1 + (1 << 12)];
};

void bench_byte_split(benchmark::State &state, const gw_bench_data &data, bool decode, bool cold)
{
    const size_t size = data.len * sizeof(float);
    const auto codec = std::make_unique<ByteSplit>(data);
    const size_t packed_size = codec->Encode();
    if (!codec->Decode() || std::memcmp(codec->back.data(), data.values, size) != 0) {
        return state.SkipWithError("no round trip");
    }
    run(state, size, 8.0 * static_cast<double>(packed_size), cold,
        {{data.values, decode ? 0 : size},
         {codec->packed.data(), packed_size},
         {codec->back.data(), decode ? size : 0}},
        [&] {
            if (decode) {
                benchmark::DoNotOptimize(codec->Decode());
            } else {
                benchmark::DoNotOptimize(codec->Encode());
            }
        });
}
#endif

void bench_cast(benchmark::State &state, const gw_bench_data &data, const gw_peer_loops &loops, bool decode,
                bool cold)
{
    const size_t size = data.len * sizeof(float);
    std::vector<uint16_t> half(data.len, 1);
    std::vector<float> back(data.len, 1.0f);
    loops.cast_down(half.data(), data.values, data.len);
    run(state, size, 16.0 * static_cast<double>(data.len), cold,
        {{data.values, decode ? 0 : size}, {half.data(), size / 2}, {back.data(), decode ? size : 0}}, [&] {
            if (decode) {
                loops.cast_up(back.data(), half.data(), data.len);
            } else {
                loops.cast_down(half.data(), data.values, data.len);
            }
        });
}

void bench_int8(benchmark::State &state, const gw_bench_data &data, const gw_peer_loops &loops, bool decode,
                bool cold)
{
    const size_t size = data.len * sizeof(float);
    std::vector<int8_t> bytes(data.len, 1);
    std::vector<float> scale((data.len + GW_PEER_INT8_BLOCK - 1) / GW_PEER_INT8_BLOCK), back(data.len, 1.0f);
    loops.int8_down(bytes.data(), scale.data(), data.values, data.len);
    loops.int8_up(back.data(), scale.data(), bytes.data(), data.len);
    for (size_t i = 0; i < data.len; i++) {
        /* Half a step, and rounding of the product and the scale. Tiny blocks become zero. */
        const float step = scale[i / GW_PEER_INT8_BLOCK];
        if (std::fabs(back[i] - data.values[i]) > 0.5001f * step && step > 0x1p-125f) {
            return state.SkipWithError("no round trip");
        }
    }
    const size_t scale_size = scale.size() * sizeof(float);
    run(state, size, 8.0 * static_cast<double>(data.len + scale_size), cold,
        {{data.values, decode ? 0 : size},
         {bytes.data(), data.len},
         {scale.data(), scale_size},
         {back.data(), decode ? size : 0}},
        [&] {
            if (decode) {
                loops.int8_up(back.data(), scale.data(), bytes.data(), data.len);
            } else {
                loops.int8_down(bytes.data(), scale.data(), data.values, data.len);
            }
        });
}

using Peer = std::function<void(benchmark::State &, const gw_bench_data &, bool decode, bool cold)>;

std::vector<std::pair<std::string, Peer>> peers()
{
    std::vector<std::pair<std::string, Peer>> list = {{"zstd1", bench_zstd}, {"lz4", bench_lz4}};
#if defined(GW_BENCH_HUF)
    list.emplace_back("byte_split", bench_byte_split);
#endif
    for (const Loops &entry : kLoops) {
        if ((gw_backends_available() & entry.backend) == 0) {
            continue;
        }
        const gw_peer_loops &loops = *entry.loops;
        list.emplace_back(
            std::string("bf16_cast") + entry.suffix,
            [&loops](benchmark::State &state, const gw_bench_data &data, bool decode, bool cold) {
                bench_cast(state, data, loops, decode, cold);
            });
        list.emplace_back(
            std::string("int8_blocks") + entry.suffix,
            [&loops](benchmark::State &state, const gw_bench_data &data, bool decode, bool cold) {
                bench_int8(state, data, loops, decode, cold);
            });
    }
    return list;
}

} // namespace

void add_peer_benchmarks()
{
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const auto &peer : peers()) {
                for (const bool decode : {false, true}) {
                    for (const bool cold : {true, false}) {
                        add_benchmark("peer/" + peer.first + (decode ? "_decode/" : "_encode/") + name + "/" +
                                          size.name + (cold ? "/cold" : "/hot"),
                                      [=](benchmark::State &state) {
                                          peer.second(state, data_of(name, size.bytes), decode, cold);
                                      });
                    }
                }
            }
        }
    }
}
