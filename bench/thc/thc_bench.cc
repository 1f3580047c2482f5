// Speed of THC's stages and calls by backend, beside a memcpy of the same values in the same run.
//
//   thc_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only=true [--benchmark_format=csv]
//
// Names are <stage or call>/<backend>. Stages run on 2^14 normal values, which stay in the L2 cache, calls
// on 2^20. Rates count the bytes of the fp32 values, whatever a stage reads and writes. scripts/thc_results
// makes docs/results/thc-speed.md. Large tensors, cold: gradwire_bench.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" {
#define restrict
#include "core/kernels.h"
}
#include "gradwire/thc.h"

namespace
{

constexpr std::size_t kLen = std::size_t{1} << 20;
constexpr std::size_t kHotLen = std::size_t{1} << 14;
constexpr std::size_t kBlock = 1024;
constexpr unsigned kSources = 8;

struct Job {
    gw_thc_config config;
    gw_thc thc;
    gw_thc feedback;
    gw_thc_agg agg;
    gw_thc_range range;
    std::vector<float> x, error, rotated, out;
    std::vector<std::uint32_t> own, maxima, wide, members;
    std::vector<std::vector<std::uint8_t>> indices;
    std::vector<std::uint8_t> index, lanes, lanes2;
    std::vector<float> workspace;
    gw_thc_quantizer quantizer;

    explicit Job(std::uint32_t backends)
        : x(kLen), error(kLen), rotated(kLen), out(kLen), own(kLen / kBlock), maxima(kLen / kBlock),
          wide(kLen / kBlock, 0x43000000u), // 128: with feedback the values change between runs
          members(kLen / kBlock, kSources), indices(kSources, std::vector<std::uint8_t>(kLen / 2)),
          index(kLen), lanes(kLen), lanes2(kLen), workspace(GW_THC_WORKSPACE_SIZE_MAX / sizeof(float))
    {
        std::mt19937_64 generator(1);
        std::normal_distribution<float> normal;
        for (float &value : x) {
            value = normal(generator);
        }
        Must(gw_thc_config_default(&config, nullptr, 4, kSources, 8, 0, nullptr, 0));
        Must(gw_thc_init(&thc, &config, backends));
        config.error_feedback = 1;
        Must(gw_thc_init(&feedback, &config, backends));
        Must(gw_thc_agg_init(&agg, &config.table, kSources, 8, backends));
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
        if (status != GW_OK) {
            std::abort();
        }
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
        return reinterpret_cast<const gw_thc_kernels *>(thc.kernels.bytes);
    }
    std::size_t workspace_size() const
    {
        return workspace.size() * sizeof(float);
    }
};

using Body = std::function<void(Job &)>;
using BlockBody = std::function<void(Job &, std::size_t at, std::size_t block, const gw_thc_stream &)>;

// One job at a time: backends follow each other.
Job &JobOf(std::uint32_t backends)
{
    static std::uint32_t current = 0;
    static std::unique_ptr<Job> job;
    if (job == nullptr || current != backends) {
        job.reset();
        job = std::make_unique<Job>(backends);
        current = backends;
    }
    return *job;
}

void Register(const std::string &name, std::uint32_t backends, std::size_t len, const Body &body)
{
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
        Job &job = JobOf(backends);
        for (auto _ : state) {
            body(job);
            benchmark::ClobberMemory();
        }
        state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                                static_cast<std::int64_t>(len * 4));
    });
}

Body Blocks(const BlockBody &body)
{
    return [=](Job &j) {
        for (std::size_t b = 0; b < kHotLen / kBlock; b++) {
            const gw_thc_stream stream = {1, static_cast<std::uint32_t>(b), 1, 0};
            body(j, b * kBlock, b, stream);
        }
    };
}

void RegisterStages(const std::string &end, std::uint32_t backends)
{
    const auto add = [&](const char *name, const Body &body) {
        Register(name + end, backends, kHotLen, body);
    };
    add("Memcpy", [](Job &j) {
        std::memcpy(j.out.data(), j.x.data(), kHotLen * 4);
    });
    add("StageLoad", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
            j.kernels()->load(&j.out[at], &j.x[at], GW_FP32, nullptr, kBlock, kBlock);
        }));
    add("StageNorm", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
            benchmark::DoNotOptimize(j.kernels()->norm(&j.x[at], kBlock));
        }));
    add("StageRotate", Blocks([](Job &j, std::size_t at, std::size_t b, const gw_thc_stream &stream) {
            j.kernels()->rotate(&j.out[at], &j.x[at], kBlock, j.own[b] >> 23, &stream);
        }));
    add("StageQuantize", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &stream) {
            j.kernels()->quantize(&j.index[at], &j.rotated[at], kBlock, &j.quantizer, &stream);
        }));
    add("StagePack", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
            j.kernels()->pack(&j.lanes2[at / 2], &j.index[at], kBlock, 4);
        }));
    add("StageAddIndices", [](Job &j) {
        j.kernels()->add_indices(j.lanes2.data(), j.indices[0].data(), kHotLen, 4, j.config.table.value, 8);
    });
    add("StageAddLanes", [](Job &j) {
        j.kernels()->add_lanes(j.lanes2.data(), j.lanes.data(), kHotLen, 8);
    });
    add("StageLaneMax", [](Job &j) {
        benchmark::DoNotOptimize(j.kernels()->lane_max(j.lanes.data(), kHotLen, 8));
    });
    add("StageUnpack", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &) {
            j.kernels()->unpack(&j.out[at], &j.lanes[at], kBlock, 8, 248, 0.01f);
        }));
    add("StageRotateBack", Blocks([](Job &j, std::size_t at, std::size_t, const gw_thc_stream &stream) {
            j.kernels()->unpack(&j.out[at], &j.lanes[at], kBlock, 8, 248, 0.01f);
            j.kernels()->rotate_back(&j.out[at], kBlock, 127, &stream);
        }));
}

void RegisterCalls(const std::string &end, std::uint32_t backends)
{
    const auto add = [&](const char *name, const Body &body) {
        Register(name + end, backends, kLen, body);
    };
    add("MemcpyLong", [](Job &j) {
        std::memcpy(j.out.data(), j.x.data(), kLen * 4);
    });
    add("CallNorms", [](Job &j) {
        Job::Must(gw_thc_norms(&j.thc, &j.range, j.x.data(), nullptr, j.own.data(), j.workspace.data(),
                               j.workspace_size(), nullptr));
    });
    add("CallPrepare", [](Job &j) {
        Job::Must(gw_thc_prepare(&j.thc, &j.range, j.x.data(), nullptr, j.own.data(), j.rotated.data(),
                                 j.workspace.data(), j.workspace_size(), nullptr));
    });
    add("CallEncode", [](Job &j) {
        Job::Must(gw_thc_encode(&j.thc, &j.range, j.x.data(), nullptr, j.maxima.data(), j.indices[0].data(),
                                kLen / 2, j.workspace.data(), j.workspace_size(), nullptr));
    });
    add("CallEncodePrepared", [](Job &j) {
        Job::Must(gw_thc_encode_prepared(&j.thc, &j.range, j.rotated.data(), j.own.data(), nullptr, nullptr,
                                         j.maxima.data(), j.indices[0].data(), kLen / 2, j.workspace.data(),
                                         j.workspace_size(), nullptr));
    });
    add("CallAggregate8", [](Job &j) {
        j.Sum();
    });
    add("CallDecode", [](Job &j) {
        Job::Must(gw_thc_decode(&j.thc, &j.range, j.lanes.data(), kLen, j.members.data(), j.maxima.data(),
                                GW_THC_MEAN, j.out.data(), kLen * 4, j.workspace.data(), j.workspace_size(),
                                nullptr, nullptr));
    });
    /* Last, because it changes indices and errors. */
    add("CallEncodeFeedback", [](Job &j) {
        Job::Must(gw_thc_encode(&j.feedback, &j.range, j.x.data(), j.error.data(), j.wide.data(),
                                j.indices[0].data(), kLen / 2, j.workspace.data(), j.workspace_size(),
                                nullptr));
    });
}

void RegisterTable(unsigned granularity)
{
    const std::string name = "TableSolve/" + std::to_string(granularity);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
        alignas(8) static std::uint8_t workspace[GW_THC_TABLE_WORKSPACE_SIZE];
        for (auto _ : state) {
            gw_thc_table table;
            Job::Must(
                gw_thc_table_solve(&table, nullptr, 4, granularity, 1 / 1024., workspace, sizeof workspace));
            benchmark::DoNotOptimize(table);
        }
    });
}

} // namespace

int main(int argc, char **argv)
{
    std::uint32_t mask = GW_BACKEND_SCALAR;
    for (const std::uint32_t bit : {
#define GW_CPU_BACKEND(bit, name, NAME, title) std::uint32_t{GW_BACKEND_##NAME},
#include "core/backends.def"
         }) {
        if ((gw_backends_available() & bit) == 0) {
            continue;
        }
        mask |= bit;
        const std::string end = std::string("/") + gw_backend_name(bit);
        RegisterStages(end, mask);
        RegisterCalls(end, mask);
    }
    RegisterTable(51);
    RegisterTable(255);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
