/*
 * gradwire_bench: throughput of the codecs, of their kernels, and of other codecs, each timed in turn with a
 * memcpy of the same fp32 bytes (bench_pairs.h).
 *
 *   gcomp_encode/<backend>/<data>/<mode>/<size>/<cold|hot>    also gcomp_decode, gcomp_decode_add, gcomp_hop
 *   thc_encode/<backend>/<data>/<mode>/<size>/<cold|hot>      also thc_norms, thc_sum, thc_decode
 *   classic_encode/<backend>/<data>/<way>/<size>/<cold|hot>   also classic_decode, classic_decode_add
 *   classic_clear/memset/none/none/<size>/<cold|hot>          what decoding a sparse frame cannot beat
 *   small_<one of gcomp, thc>/<backend>/<data>/<mode>/<size>  messages of 1 to 64 KiB, hot
 *   collective_encode/<backend>/<data>/<mode>/<size>          also collective_reduce, collective_decode: a
 * step of 4 ranks against the codec's calls (bench_collective.cc) kernel/<slot>/<backend> on the inputs of
 * tests/kernels, hot; also the steps between kernels (bench_core.h) peer/<name>/<data>/<size>/<cold|hot>
 *   <gcomp or thc call>/cuda/...                             bench_cuda.cc: timed on the device
 *   threads<N>_<gcomp call>/<backend>/<data>/<mode>/<size>    chunk ranges in N threads against one:
 *                                                             GW_BENCH_THREADS=N
 *
 * A benchmark is one iteration that contains all its pairs: GW_BENCH_SECONDS sets its length, not
 * --benchmark_min_time. GW_BENCH_COMMIT is recorded in the results as the commit they were built from.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "bench_cuda.h"
#include "bench_data.h"
#include "bench_pairs.h"

/* "model name" of the first processor of /proc/cpuinfo. */
static std::string cpu_name()
{
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(": ");
        if (line.compare(0, 10, "model name") == 0 && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "unknown processor";
}

/* Frequency governor of the first processor. */
static std::string governor()
{
    std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    std::string name;
    return file >> name ? name : "not visible";
}

int main(int argc, char **argv)
{
    const char *threads = std::getenv("GW_BENCH_THREADS");
    const char *commit = std::getenv("GW_BENCH_COMMIT");
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", budget_seconds());
    benchmark::AddCustomContext("data", gw_bench_data_kind());
    benchmark::AddCustomContext("cpu", cpu_name());
    benchmark::AddCustomContext("governor", governor());
    benchmark::AddCustomContext("seconds", seconds);
    benchmark::AddCustomContext("commit", commit != nullptr ? commit : "unknown");
    benchmark::AddCustomContext("compiler", GW_BENCH_COMPILER);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    add_gcomp_benchmarks();
    add_collective_benchmarks();
    add_thc_benchmarks();
    add_classic_benchmarks();
    add_kernel_benchmarks();
    add_core_benchmarks();
    add_peer_benchmarks();
    (void)add_cuda_benchmarks();
    if (threads != nullptr && std::atoi(threads) > 1) {
        add_gcomp_thread_benchmarks(static_cast<unsigned>(std::atoi(threads)));
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
