/*
 * What people use instead, on the same gradients: zstd -1 and lz4 on the fp32 bytes, zstd's Huffman coder on
 * the exponent bytes alone (which leaves 24 of 32 bits as they are), and a cast to bf16.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "bench_data.h"
#include "bench_pairs.h"

/*
 * Huffman of zstd 1.5.4, as Debian 12's libzstd.a exports it; its header is not installed. The round trip
 * before each timing would notice another version.
 */
#if ZSTD_VERSION_NUMBER == 10504
#define GW_BENCH_HUF 1
extern "C" {
size_t HUF_compress4X_repeat(void *dst, size_t dst_size, const void *src, size_t src_size,
                             unsigned max_symbol, unsigned table_log, void *workspace, size_t workspace_size,
                             size_t *table, int *repeat, int flags);
size_t HUF_decompress4X_hufOnly_wksp(uint32_t *table, void *dst, size_t dst_size, const void *src,
                                     size_t src_size, void *workspace, size_t workspace_size, int flags);
unsigned HUF_isError(size_t code);
}
#endif

extern "C" {
#define DECLARE_CASTS(isa)                                                                                   \
    void gw_bench_cast_down_##isa(uint16_t *dst, const float *src, size_t len);                              \
    void gw_bench_cast_up_##isa(float *dst, const uint16_t *src, size_t len)
DECLARE_CASTS(base);
#if defined(GW_HAVE_AVX2)
DECLARE_CASTS(avx2);
#endif
#if defined(GW_HAVE_AVX512)
DECLARE_CASTS(avx512);
#endif
}

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

#if defined(GW_BENCH_HUF)
/* Blocks of 128 KiB, the coder's largest, four streams each, a table in each. */
class Huffman
{
public:
    explicit Huffman(const gw_bench_data &data)
        : exponents(data.len), back(data.len, 1), packed(data.len + data.len / 8 + 4096)
    {
        for (size_t i = 0; i < data.len; i++) {
            uint32_t bits;
            std::memcpy(&bits, &data.values[i], 4);
            exponents[i] = static_cast<uint8_t>(bits >> 23);
        }
    }

    size_t Encode()
    {
        sizes.clear();
        size_t at = 0;
        for (size_t i = 0; i < exponents.size(); i += kBlock) {
            const size_t len = std::min(kBlock, exponents.size() - i);
            int repeat = 0;
            size_t size = HUF_compress4X_repeat(&packed[at], packed.size() - at, &exponents[i], len, 255, 11,
                                                workspace_, sizeof workspace_, codes_, &repeat, kBmi2);
            if (size <= 1 || HUF_isError(size)) { /* not compressible, or one symbol: as they are */
                std::memcpy(&packed[at], &exponents[i], len);
                size = len;
            }
            sizes.push_back(size);
            at += size;
        }
        return at;
    }

    bool Decode()
    {
        size_t at = 0, block = 0;
        for (size_t i = 0; i < exponents.size(); i += kBlock) {
            const size_t len = std::min(kBlock, exponents.size() - i), size = sizes[block++];
            if (size == len) {
                std::memcpy(&back[i], &packed[at], len);
            } else {
                table_[0] = 12 * 0x01000001u;
                if (HUF_decompress4X_hufOnly_wksp(table_, &back[i], len, &packed[at], size, workspace_,
                                                  sizeof workspace_, kBmi2) != len) {
                    return false;
                }
            }
            at += size;
        }
        return true;
    }

    std::vector<uint8_t> exponents, back, packed;
    std::vector<size_t> sizes;

private:
    static constexpr size_t kBlock = size_t{128} << 10;
    static constexpr int kBmi2 = 1;
    alignas(64) char workspace_[1 << 16];
    size_t codes_[512];
    uint32_t table_[1 + (1 << 12)];
};

void bench_huffman(benchmark::State &state, const gw_bench_data &data, bool decode, bool cold)
{
    const auto huffman = std::make_unique<Huffman>(data);
    const size_t packed_size = huffman->Encode();
    if (!huffman->Decode() || huffman->back != huffman->exponents) {
        return state.SkipWithError("no round trip");
    }
    run(state, data.len * sizeof(float),
        8.0 * static_cast<double>(packed_size) + 24.0 * static_cast<double>(data.len), cold,
        {{huffman->exponents.data(), data.len},
         {huffman->packed.data(), packed_size},
         {huffman->back.data(), data.len}},
        [&] {
            if (decode) {
                benchmark::DoNotOptimize(huffman->Decode());
            } else {
                benchmark::DoNotOptimize(huffman->Encode());
            }
        });
}
#endif

struct Cast {
    const char *name;
    uint32_t backend;
    void (*down)(uint16_t *, const float *, size_t);
    void (*up)(float *, const uint16_t *, size_t);
};

const Cast kCasts[] = {
    {"bf16_cast", GW_BACKEND_SCALAR, gw_bench_cast_down_base, gw_bench_cast_up_base},
#if defined(GW_HAVE_AVX2)
    {"bf16_cast_avx2", GW_BACKEND_AVX2, gw_bench_cast_down_avx2, gw_bench_cast_up_avx2},
#endif
#if defined(GW_HAVE_AVX512)
    {"bf16_cast_avx512", GW_BACKEND_AVX512, gw_bench_cast_down_avx512, gw_bench_cast_up_avx512},
#endif
};

void bench_cast(benchmark::State &state, const gw_bench_data &data, const Cast &cast, bool decode, bool cold)
{
    const size_t size = data.len * sizeof(float);
    std::vector<uint16_t> half(data.len, 1);
    std::vector<float> back(data.len, 1.0f);
    cast.down(half.data(), data.values, data.len);
    run(state, size, 16.0 * static_cast<double>(data.len), cold,
        {{data.values, decode ? 0 : size}, {half.data(), size / 2}, {back.data(), decode ? size : 0}}, [&] {
            if (decode) {
                cast.up(back.data(), half.data(), data.len);
            } else {
                cast.down(half.data(), data.values, data.len);
            }
        });
}

} // namespace

void add_peer_benchmarks()
{
    using Peer = std::function<void(benchmark::State &, const gw_bench_data &, bool, bool)>;
    std::vector<std::pair<std::string, Peer>> peers = {{"zstd1", bench_zstd}, {"lz4", bench_lz4}};
#if defined(GW_BENCH_HUF)
    peers.emplace_back("huffman_exponents", bench_huffman);
#endif
    for (const Cast &cast : kCasts) {
        if ((gw_backends_available() & cast.backend) != 0) {
            peers.emplace_back(cast.name, [&cast](benchmark::State &state, const gw_bench_data &data,
                                                  bool decode, bool cold) {
                bench_cast(state, data, cast, decode, cold);
            });
        }
    }
    for (const Size &size : kSizes) {
        for (const auto &name : data_names()) {
            for (const auto &peer : peers) {
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
