/*
 * gradwire_bench: throughput of the codec, of its stages, and of what people use instead, each against a memcpy of the
 * same fp32 bytes that is timed in turn with it.
 *
 *   gcomp_encode/<backend>/<data>/<mode>      also _decode, _decode_add, _hop
 *   stage/<backend>/<stage>
 *   peer/<name>/<data>
 *
 * Counters: GBps (fp32 bytes a second), vs_memcpy (median of memcpy time / own time over the pairs; vs_memcpy_p10 and
 * _p90 the range), bits_per_value. All memory is touched before the first timing.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <benchmark/benchmark.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench_data.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMiB = size_t{1} << 20;

size_t values_per_buffer()
{
    const char *mib = std::getenv("GW_BENCH_MIB");
    return static_cast<size_t>(mib != nullptr ? std::max(1, std::atoi(mib)) : 25) * kMiB / sizeof(float);
}

const std::vector<std::string> &data_names()
{
    static const std::vector<std::string> names = {"resnet50-sgdm-step0400", "resnet50-adamw-step0400",
                                                   "bertbase-adamw-step0050"};
    return names;
}

const gw_bench_data &data_of(const std::string &name)
{
    static std::map<std::string, gw_bench_data> loaded;
    auto found = loaded.find(name);
    if (found == loaded.end()) {
        gw_bench_data data;
        if (!gw_bench_load(&data, name.c_str(), values_per_buffer())) {
            std::exit(1);
        }
        found = loaded.emplace(name, data).first;
    }
    return found->second;
}

double quantile(std::vector<double> sorted, double q)
{
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

/* Times work() in turn with a memcpy of `size` bytes. */
void run_pairs(benchmark::State &state, size_t size, double bits_per_value, const std::function<void()> &work)
{
    static std::vector<char> from, to;
    if (from.size() < size) {
        from.assign(size, 1);
        to.assign(size, 2);
    }
    std::vector<double> ratios;
    work();
    for (auto _ : state) {
        const auto start = Clock::now();
        std::memcpy(to.data(), from.data(), size);
        benchmark::ClobberMemory();
        const auto between = Clock::now();
        work();
        benchmark::ClobberMemory();
        const auto end = Clock::now();
        const double own = std::chrono::duration<double>(end - between).count();
        ratios.push_back(std::chrono::duration<double>(between - start).count() / own);
        state.SetIterationTime(own);
    }
    state.counters["GBps"] = benchmark::Counter(static_cast<double>(size) * 1e-9 * static_cast<double>(state.iterations()),
                                                benchmark::Counter::kIsRate);
    state.counters["vs_memcpy"] = quantile(ratios, 0.5);
    state.counters["vs_memcpy_p10"] = quantile(ratios, 0.1);
    state.counters["vs_memcpy_p90"] = quantile(ratios, 0.9);
    if (bits_per_value > 0) {
        state.counters["bits_per_value"] = bits_per_value;
    }
}

void fail(benchmark::State &state, const char *what, gw_status status)
{
    state.SkipWithError((std::string(what) + ": " + gw_status_message(status)).c_str());
}

struct Mode {
    const char *name;
    gw_gcomp_levels levels;
    gw_gcomp_preset preset;
    gw_gcomp_rounding rounding;
};

const Mode kModes[] = {
    {"explicit_fast", GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_NEAREST},
    {"explicit_small", GW_GCOMP_EXPLICIT, GW_GCOMP_SMALL, GW_GCOMP_NEAREST},
    {"derived1_fast", GW_GCOMP_DERIVED, GW_GCOMP_FAST, GW_GCOMP_NEAREST},
    {"explicit_fast_stochastic", GW_GCOMP_EXPLICIT, GW_GCOMP_FAST, GW_GCOMP_STOCHASTIC},
};

enum class Work { Encode, Decode, DecodeAdd, Hop };

void bench_codec(benchmark::State &state, Work work, uint32_t backend, const std::string &name, const Mode &mode)
{
    const gw_bench_data &data = data_of(name);
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.levels = mode.levels;
    options.preset = mode.preset;
    options.rounding = mode.rounding;
    options.backends = backend;
    auto codec = std::make_unique<gw_gcomp>();
    gw_status status = gw_gcomp_init(codec.get(), &options);
    if (status != GW_OK) {
        return fail(state, "init", status);
    }
    gw_gcomp_source source = {};
    source.values = data.values;
    source.len = data.len;
    source.map = &data.map;
    source.seed = 1;
    std::vector<char> workspace(gw_gcomp_workspace_size(codec.get()));
    std::vector<char> frame(gw_gcomp_bound(codec.get(), data.len)), hop(frame.size());
    std::vector<float> out(data.len, 1.0f);
    size_t size = 0, hop_size = 0;
    uint64_t len = 0;
    const auto encode = [&] {
        status = gw_gcomp_encode(codec.get(), &source, frame.data(), frame.size(), &size, workspace.data(),
                                 workspace.size());
    };
    encode();
    if (status != GW_OK) {
        return fail(state, "encode", status);
    }
    std::memset(hop.data(), 0, hop.size());
    const double bits = 8.0 * static_cast<double>(size) / static_cast<double>(data.len);
    run_pairs(state, data.len * sizeof(float), bits, [&] {
        switch (work) {
        case Work::Encode: encode(); break;
        case Work::Decode:
            status = gw_gcomp_decode(codec.get(), frame.data(), size, &data.map, out.data(), data.len, &len, nullptr,
                                     workspace.data(), workspace.size());
            break;
        case Work::DecodeAdd:
            status = gw_gcomp_decode_add(codec.get(), frame.data(), size, &data.map, out.data(), data.len, &len, nullptr,
                                         workspace.data(), workspace.size());
            break;
        case Work::Hop:
            status = gw_gcomp_decode_add_encode(codec.get(), frame.data(), size, &data.map, &source, hop.data(), hop.size(),
                                                &hop_size, nullptr, workspace.data(), workspace.size());
            break;
        }
    });
    if (status != GW_OK) {
        fail(state, "work", status);
    }
}

void bench_stage(benchmark::State &state, uint32_t backend, int stage)
{
    gw_bench_stages *stages = gw_bench_stages_new(&data_of(data_names()[0]), backend);
    if (stages == nullptr) {
        return state.SkipWithError("no memory");
    }
    run_pairs(state, (size_t{1} << 14) * sizeof(float), 0, [&] { gw_bench_stage_run(stages, stage); });
    gw_bench_stages_free(stages);
}

void bench_zstd(benchmark::State &state, const std::string &name, bool decode)
{
    const gw_bench_data &data = data_of(name);
    const size_t size = data.len * sizeof(float);
    std::vector<char> packed(ZSTD_compressBound(size)), back(size, 1);
    const size_t packed_size = ZSTD_compress(packed.data(), packed.size(), data.values, size, 1);
    run_pairs(state, size, 8.0 * static_cast<double>(packed_size) / static_cast<double>(data.len), [&] {
        if (decode) {
            benchmark::DoNotOptimize(ZSTD_decompress(back.data(), size, packed.data(), packed_size));
        } else {
            benchmark::DoNotOptimize(ZSTD_compress(packed.data(), packed.size(), data.values, size, 1));
        }
    });
}

void bench_lz4(benchmark::State &state, const std::string &name, bool decode)
{
    const gw_bench_data &data = data_of(name);
    const int size = static_cast<int>(data.len * sizeof(float));
    std::vector<char> packed(static_cast<size_t>(LZ4_compressBound(size))), back(static_cast<size_t>(size), 1);
    const char *values = reinterpret_cast<const char *>(data.values);
    const int packed_size = LZ4_compress_default(values, packed.data(), size, static_cast<int>(packed.size()));
    run_pairs(state, static_cast<size_t>(size), 8.0 * packed_size / static_cast<double>(data.len), [&] {
        if (decode) {
            benchmark::DoNotOptimize(LZ4_decompress_safe(packed.data(), back.data(), packed_size, size));
        } else {
            benchmark::DoNotOptimize(
                LZ4_compress_default(values, packed.data(), size, static_cast<int>(packed.size())));
        }
    });
}

/* Today's practice: fp32 cut to bf16, rounded to nearest even. */
void bench_bf16(benchmark::State &state, const std::string &name)
{
    const gw_bench_data &data = data_of(name);
    std::vector<uint16_t> half(data.len, 1);
    run_pairs(state, data.len * sizeof(float), 16, [&] {
        for (size_t i = 0; i < data.len; i++) {
            uint32_t bits;
            std::memcpy(&bits, &data.values[i], 4);
            half[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
    });
}

void register_all()
{
    const auto finish = [](benchmark::internal::Benchmark *b) { b->UseManualTime()->Unit(benchmark::kMillisecond); };
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        if ((gw_backends_available() & bit) == 0) {
            continue;
        }
        const std::string backend = gw_backend_name(bit);
        for (int s = 0; s < gw_bench_stage_count(); s++) {
            finish(benchmark::RegisterBenchmark(("stage/" + backend + "/" + gw_bench_stage_name(s)).c_str(),
                                                [=](benchmark::State &state) { bench_stage(state, bit, s); }));
        }
        for (const auto &name : data_names()) {
            for (const Mode &mode : kModes) {
                const auto add = [&](const char *what, Work work) {
                    const std::string full = std::string(what) + "/" + backend + "/" + name + "/" + mode.name;
                    finish(benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State &state) {
                        bench_codec(state, work, bit, name, mode);
                    }));
                };
                add("gcomp_encode", Work::Encode);
                add("gcomp_decode", Work::Decode);
                add("gcomp_decode_add", Work::DecodeAdd);
                add("gcomp_hop", Work::Hop);
            }
        }
    }
    for (const auto &name : data_names()) {
        const auto add = [&](const std::string &peer, const std::function<void(benchmark::State &)> &work) {
            finish(benchmark::RegisterBenchmark(("peer/" + peer + "/" + name).c_str(), work));
        };
        add("zstd1_encode", [=](benchmark::State &state) { bench_zstd(state, name, false); });
        add("zstd1_decode", [=](benchmark::State &state) { bench_zstd(state, name, true); });
        add("lz4_encode", [=](benchmark::State &state) { bench_lz4(state, name, false); });
        add("lz4_decode", [=](benchmark::State &state) { bench_lz4(state, name, true); });
        add("bf16_cast", [=](benchmark::State &state) { bench_bf16(state, name); });
    }
}

} // namespace

int main(int argc, char **argv)
{
    benchmark::AddCustomContext("data", gw_bench_folder());
    benchmark::AddCustomContext("compiler", GW_BENCH_COMPILER);
    benchmark::AddCustomContext("buffer_MiB", std::to_string(values_per_buffer() * sizeof(float) / kMiB));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    register_all();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
