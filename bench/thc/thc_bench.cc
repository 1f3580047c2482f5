// Speed of THC's stages and calls on 2^20 normal values, beside a memcpy of the same values in the same run.
//
//   thc_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only=true [--benchmark_format=csv]
//
// Rates are bytes of fp32 values, whatever a stage reads and writes. scripts/thc_results makes
// docs/results/thc-speed.md.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
#define restrict
#include "core/thc_kernels.h"
}
#include "gradwire/thc.h"

namespace
{

constexpr std::size_t kLen = std::size_t{1} << 20;
constexpr std::size_t kBlock = 1024;
constexpr unsigned kSources = 8;

struct Job {
    gw_thc_config config;
    gw_thc thc;
    gw_thc feedback;
    gw_thc_agg agg;
    gw_thc_range range;
    std::vector<float> x, error, rotated, out;
    std::vector<std::uint32_t> own, maxima, members;
    std::vector<std::vector<std::uint8_t>> indices;
    std::vector<std::uint8_t> index, lanes, lanes2;
    std::vector<float> workspace;
    gw_thc_quantizer quantizer;

    Job()
        : x(kLen), error(kLen), rotated(kLen), out(kLen), own(kLen / kBlock), maxima(kLen / kBlock),
          members(kLen / kBlock, kSources), indices(kSources, std::vector<std::uint8_t>(kLen / 2)),
          index(kLen), lanes(kLen), lanes2(kLen), workspace(GW_THC_WORKSPACE_SIZE_MAX / sizeof(float))
    {
        std::mt19937_64 generator(1);
        std::normal_distribution<float> normal;
        for (float &value : x)
            value = normal(generator);
        Must(gw_thc_config_default(&config, nullptr, 4, kSources, 8, 0, nullptr, 0));
        Must(gw_thc_init(&thc, &config, GW_BACKEND_ALL));
        config.error_feedback = 1;
        Must(gw_thc_init(&feedback, &config, GW_BACKEND_ALL));
        Must(gw_thc_agg_init(&agg, &config.table, kSources, 8, GW_BACKEND_ALL));
        range = {kLen, 0, kLen / kBlock, 1, 0};
        Must(gw_thc_prepare(&thc, &range, x.data(), nullptr, own.data(), rotated.data(), workspace.data(),
                            workspace.size() * sizeof(float), nullptr));
        maxima = own;
        for (unsigned rank = 0; rank < kSources; rank++) {
            range.rank = rank;
            Must(gw_thc_encode(&thc, &range, x.data(), nullptr, maxima.data(), indices[rank].data(), kLen / 2,
                               workspace.data(), workspace.size() * sizeof(float), nullptr));
        }
        range.rank = 0;
        Sum();
        float t;
        std::memcpy(&t, &config.threshold_bits, sizeof t);
        const float half = 32768.0f * config.table.granularity;
        // Rotated values have a norm of 2 to 4 times sqrt(1024): any scale of that order times the same
        // number of steps.
        quantizer = {half / t / 3.0f,        -half, half, static_cast<std::int32_t>(half), thc.cell,
                     thc.config.table.value, 15};
    }

    static void Must(gw_status status)
    {
        if (status != GW_OK)
            std::abort();
    }

    void Sum()
    {
        std::uint8_t set[8] = {0};
        const std::uint8_t *sources[kSources];
        std::uint32_t ranks[kSources];
        for (unsigned rank = 0; rank < kSources; rank++) {
            sources[rank] = indices[rank].data();
            ranks[rank] = rank;
        }
        std::memset(lanes.data(), 0, lanes.size());
        Must(gw_thc_agg_add_indices_many(&agg, lanes.data(), set, kLen, sources, ranks, kSources));
    }

    const gw_thc_kernels *kernels() const
    {
        return static_cast<const gw_thc_kernels *>(thc.kernels);
    }
    std::size_t workspace_size() const
    {
        return workspace.size() * sizeof(float);
    }
};

Job &job()
{
    static Job instance;
    return instance;
}

template <typename F> void Run(benchmark::State &state, F &&body)
{
    Job &j = job();
    for (auto _ : state) {
        body(j);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                            static_cast<std::int64_t>(kLen * 4));
}

template <typename F> void Blocks(benchmark::State &state, F &&body)
{
    Run(state, [&](Job &j) {
        for (std::size_t b = 0; b < kLen / kBlock; b++) {
            const gw_thc_stream stream = {1, static_cast<std::uint32_t>(b), 1, 0};
            body(j, b * kBlock, b, stream);
        }
    });
}

void Memcpy(benchmark::State &s)
{
    Run(s, [](Job &j) { std::memcpy(j.out.data(), j.x.data(), kLen * 4); });
}
void StageNorm(benchmark::State &s)
{
    Blocks(s, [](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
        benchmark::DoNotOptimize(j.kernels()->norm(&j.x[at], kBlock));
    });
}
void StageRotate(benchmark::State &s)
{
    Blocks(s, [](Job &j, std::size_t at, std::size_t b, const gw_thc_stream &stream) {
        j.kernels()->rotate(&j.out[at], &j.x[at], kBlock, j.own[b] >> 23, &stream);
    });
}
void StageQuantize(benchmark::State &s)
{
    Blocks(s, [](Job &j, std::size_t at, std::size_t, const gw_thc_stream &stream) {
        j.kernels()->quantize(&j.index[at], &j.rotated[at], kBlock, &j.quantizer, &stream);
    });
}
void StagePack(benchmark::State &s)
{
    Blocks(s, [](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
        j.kernels()->pack(&j.lanes2[at / 2], &j.index[at], kBlock, 4);
    });
}
void StageAddIndices(benchmark::State &s)
{
    Run(s, [](Job &j) {
        j.kernels()->add_indices(j.lanes2.data(), j.indices[0].data(), kLen, 4, j.config.table.value, 8);
    });
}
void StageAddLanes(benchmark::State &s)
{
    Run(s, [](Job &j) { j.kernels()->add_lanes(j.lanes2.data(), j.lanes.data(), kLen, 8); });
}
void StageLaneMax(benchmark::State &s)
{
    Run(s, [](Job &j) { benchmark::DoNotOptimize(j.kernels()->lane_max(j.lanes.data(), kLen, 8)); });
}
void StageUnpack(benchmark::State &s)
{
    Blocks(s, [](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
        j.kernels()->unpack(&j.out[at], &j.lanes[at], kBlock, 8, 248, 0.01f);
    });
}
void StageRotateBack(benchmark::State &s)
{
    Job::Must(GW_OK);
    Blocks(s, [](Job &j, std::size_t at, std::size_t, const gw_thc_stream &stream) {
        j.kernels()->unpack(&j.out[at], &j.lanes[at], kBlock, 8, 248, 0.01f);
        j.kernels()->rotate_back(&j.out[at], kBlock, 127, &stream);
    });
}
void CallNorms(benchmark::State &s)
{
    Run(s, [](Job &j) {
        Job::Must(gw_thc_norms(&j.thc, &j.range, j.x.data(), nullptr, j.own.data(), j.workspace.data(),
                               j.workspace_size(), nullptr));
    });
}
void CallPrepare(benchmark::State &s)
{
    Run(s, [](Job &j) {
        Job::Must(gw_thc_prepare(&j.thc, &j.range, j.x.data(), nullptr, j.own.data(), j.rotated.data(),
                                 j.workspace.data(), j.workspace_size(), nullptr));
    });
}
void CallEncode(benchmark::State &s)
{
    Run(s, [](Job &j) {
        Job::Must(gw_thc_encode(&j.thc, &j.range, j.x.data(), nullptr, j.maxima.data(), j.indices[0].data(),
                                kLen / 2, j.workspace.data(), j.workspace_size(), nullptr));
    });
}
void CallEncodePrepared(benchmark::State &s)
{
    Run(s, [](Job &j) {
        Job::Must(gw_thc_encode_prepared(&j.thc, &j.range, j.rotated.data(), j.own.data(), nullptr, nullptr,
                                         j.maxima.data(), j.indices[0].data(), kLen / 2, j.workspace.data(),
                                         j.workspace_size(), nullptr));
    });
}
void CallEncodeFeedback(benchmark::State &s)
{
    Job &j = job();
    std::vector<std::uint32_t> wide(j.maxima.size(), 0x43000000u); // 128: the error changes between runs
    Run(s, [&](Job &k) {
        Job::Must(gw_thc_encode(&k.feedback, &k.range, k.x.data(), k.error.data(), wide.data(),
                                k.indices[0].data(), kLen / 2, k.workspace.data(), k.workspace_size(),
                                nullptr));
    });
    std::fill(j.error.begin(), j.error.end(), 0.0f);
}
void CallAggregate8(benchmark::State &s)
{
    Run(s, [](Job &j) { j.Sum(); });
}
void CallDecode(benchmark::State &s)
{
    job().Sum();
    Run(s, [](Job &j) {
        Job::Must(gw_thc_decode(&j.thc, &j.range, j.lanes.data(), kLen, j.members.data(), j.maxima.data(),
                                GW_THC_MEAN, j.out.data(), kLen * 4, j.workspace.data(), j.workspace_size(),
                                nullptr, nullptr));
    });
}

} // namespace

BENCHMARK(Memcpy);
BENCHMARK(StageNorm);
BENCHMARK(StageRotate);
BENCHMARK(StageQuantize);
BENCHMARK(StagePack);
BENCHMARK(StageAddIndices);
BENCHMARK(StageAddLanes);
BENCHMARK(StageLaneMax);
BENCHMARK(StageUnpack);
BENCHMARK(StageRotateBack);
BENCHMARK(CallNorms);
BENCHMARK(CallPrepare);
BENCHMARK(CallEncode);
BENCHMARK(CallEncodePrepared);
BENCHMARK(CallEncodeFeedback);
BENCHMARK(CallAggregate8);
BENCHMARK(CallDecode);
BENCHMARK_MAIN();
