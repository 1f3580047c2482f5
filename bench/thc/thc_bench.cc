// Speed of THC's stages and calls by backend, beside a memcpy of the same values in the same run.
//
//   thc_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only=true [--benchmark_format=csv]
//
// Names are <stage or call>/<backend>. Stages run on 2^14 normal values, which stay in the second cache,
// calls on 2^20; rates are bytes of fp32 values, whatever a stage reads and writes. bench/thc/thc_results
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
#include "thc/thc_handle.h"
}

namespace
{

constexpr std::size_t kLen = std::size_t{1} << 20;
constexpr std::size_t kHotLen = std::size_t{1} << 14;
constexpr std::size_t kBlock = 1024;
constexpr unsigned kSources = 8;

struct Job {
    gw_thc_options options;
    gw_thc thc;
    gw_thc feedback;
    gw_thc_agg agg;
    gw_thc_range range;
    std::vector<float> x, error, rotated, out;
    std::vector<std::uint32_t> own, maxima, wide, members;
    std::vector<std::vector<std::uint8_t>> indices;
    std::vector<std::uint8_t> index, lanes, lanes2, scratch;
    gw_workspace workspace;
    gw_thc_quantizer quantizer;

    explicit Job(std::uint32_t backends)
        : x(kLen), error(kLen), rotated(kLen), out(kLen), own(kLen / kBlock), maxima(kLen / kBlock),
          wide(kLen / kBlock, 0x43000000u), // 128: with feedback the values change between runs
          members(kLen / kBlock, kSources), indices(kSources, std::vector<std::uint8_t>(kLen / 2)),
          index(kLen), lanes(kLen), lanes2(kLen),
          scratch(GW_THC_WORKSPACE_SIZE_MAX), workspace{scratch.data(), scratch.size()}
    {
        std::mt19937_64 generator(1);
        std::normal_distribution<float> normal;
        for (float &value : x) {
            value = normal(generator);
        }
        const gw_thc_goal goal = {4, kSources, 8, 0};
        Must(gw_thc_options_init(&options, &goal, nullptr));
        options.backends = backends;
        Must(gw_thc_init(&thc, &options));
        options.error_feedback = 1;
        Must(gw_thc_init(&feedback, &options));
        const gw_thc_agg_options agg_options = {options.table, kSources, 8, backends};
        Must(gw_thc_agg_init(&agg, &agg_options));
        range = {kLen, 0, kLen / kBlock, 1, 0};
        Prepare();
        maxima = own;
        for (unsigned rank = 0; rank < kSources; rank++) {
            range.rank = rank;
            Encode(rank);
        }
        range.rank = 0;
        Sum();
        float t;
        std::memcpy(&t, &options.threshold_bits, sizeof t);
        const float half = 32768.0f * options.table.granularity;
        // Rotated values have a norm of 2 to 4 times sqrt(1024): any scale of that order times the same
        // number of steps.
        quantizer = {half / t / 3.0f,     -half, half, static_cast<std::int32_t>(half), state()->cell,
                     options.table.value, 15};
    }

    static void Must(gw_status status)
    {
        if (status != GW_OK) {
            std::abort();
        }
    }

    void Prepare()
    {
        const gw_thc_source source = {x.data(), nullptr, nullptr, nullptr, nullptr};
        gw_thc_prepared prepared = {own.data(), rotated.data(), 0};
        Must(gw_thc_prepare(&thc, &range, &source, &prepared, &workspace));
    }

    void Encode(unsigned rank)
    {
        const gw_thc_source source = {x.data(), nullptr, maxima.data(), nullptr, nullptr};
        Encode(thc, source, rank);
    }

    void Encode(const gw_thc &handle, const gw_thc_source &source, unsigned rank)
    {
        gw_buffer dst = {indices[rank].data(), indices[rank].size(), 0};
        Must(gw_thc_encode(&handle, &range, &source, &dst, nullptr, &workspace));
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
        const gw_thc_partial sum = {lanes.data(), set, kLen};
        Must(gw_thc_agg_add_indices_many(&agg, &sum, sources, ranks, kSources));
    }

    const gw_thc_state *state() const
    {
        return gw_thc_state_of(&thc);
    }
    const gw_thc_kernels *kernels() const
    {
        return &state()->kernels;
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
        j.kernels()->add_indices(j.lanes2.data(), j.indices[0].data(), kHotLen, 4, j.options.table.value, 8);
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
        const gw_thc_source source = {j.x.data(), nullptr, nullptr, nullptr, nullptr};
        Job::Must(gw_thc_norms(&j.thc, &j.range, &source, j.own.data(), nullptr, &j.workspace));
    });
    add("CallPrepare", [](Job &j) {
        j.Prepare();
    });
    add("CallEncode", [](Job &j) {
        j.Encode(0);
    });
    add("CallEncodePrepared", [](Job &j) {
        j.Encode(j.thc, {nullptr, nullptr, j.maxima.data(), j.rotated.data(), j.own.data()}, 0);
    });
    add("CallAggregate8", [](Job &j) {
        j.Sum();
    });
    add("CallDecode", [](Job &j) {
        const gw_thc_sum sum = {j.lanes.data(), kLen, j.members.data(), j.maxima.data()};
        gw_thc_target target = {j.out.data(), kLen, 0, 0, 0};
        Job::Must(gw_thc_decode(&j.thc, &j.range, &sum, GW_THC_MEAN, &target, &j.workspace));
    });
    /* Last: it changes indices and errors. */
    add("CallEncodeFeedback", [](Job &j) {
        j.Encode(j.feedback, {j.x.data(), j.error.data(), j.wide.data(), nullptr, nullptr}, 0);
    });
}

void RegisterTable(unsigned granularity)
{
    const std::string name = "TableSolve/" + std::to_string(granularity);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
        static std::uint8_t memory[GW_THC_TABLE_WORKSPACE_SIZE];
        const gw_workspace workspace = {memory, sizeof memory};
        for (auto _ : state) {
            gw_thc_table table;
            Job::Must(gw_thc_table_solve(4, granularity, 1 / 1024., &table, nullptr, &workspace));
            benchmark::DoNotOptimize(table);
        }
    });
}

} // namespace

int main(int argc, char **argv)
{
    static const std::uint32_t bits[] = {
#define GW_CPU_BACKEND(bit, name, NAME, title) GW_BACKEND_##NAME,
#include "core/backends.def"
    };
    std::uint32_t mask = 0;
    for (const std::uint32_t bit : bits) {
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
