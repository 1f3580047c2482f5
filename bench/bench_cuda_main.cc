/*
 * The benchmarks of backend cuda alone, for the test that runs them with the fake driver, where times mean
 * nothing. Fails if nothing ran or anything failed.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <benchmark/benchmark.h>

#include "bench_cuda.h"

namespace
{

class Watcher : public benchmark::ConsoleReporter
{
public:
    Watcher() : ConsoleReporter(OO_None)
    {
    }

    void ReportRuns(const std::vector<Run> &runs) override
    {
        for (const Run &run : runs) {
            good += run.error_occurred ? 0 : 1;
            bad += run.error_occurred ? 1 : 0;
        }
        ConsoleReporter::ReportRuns(runs);
    }

    unsigned good = 0, bad = 0;
};

} // namespace

int main(int argc, char **argv)
{
    benchmark::Initialize(&argc, argv);
    if (!add_cuda_benchmarks()) {
        return 1;
    }
    Watcher watcher;
    benchmark::RunSpecifiedBenchmarks(&watcher);
    benchmark::Shutdown();
    return watcher.good > 0 && watcher.bad == 0 ? 0 : 1;
}
