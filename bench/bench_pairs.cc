/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_pairs.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bench_data.h"

namespace
{

double now_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double quantile(const std::vector<double> &sorted, double q)
{
    return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

/* Flushes memory from all caches; except on x86, by reading more than the caches hold. */
void make_cold(const std::vector<Touched> &touched)
{
#if defined(__SSE2__)
    for (const Touched &t : touched) {
        const char *const end = static_cast<const char *>(t.data) + t.size;
        for (const char *line = static_cast<const char *>(t.data); line < end; line += 64) {
            _mm_clflush(line);
        }
    }
    _mm_mfence();
#else
    static std::vector<char> large(size_t{512} << 20, 1);
    (void)touched;
    for (size_t i = 0; i < large.size(); i += 64) {
        benchmark::DoNotOptimize(static_cast<volatile char *>(large.data())[i]);
    }
#endif
}

/* Processor seconds used since boot, and taken by a hypervisor. 0 if the system does not report them. */
struct Busy {
    double used = 0, stolen = 0;
};

Busy busy_now()
{
    std::ifstream file("/proc/stat");
    std::string head;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, stolen = 0;
    file >> head >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> stolen;
    const double hertz = static_cast<double>(sysconf(_SC_CLK_TCK));
    Busy busy;
    busy.used = (user + nice + system + irq + softirq) / hertz;
    busy.stolen = stolen / hertz;
    return busy;
}

/* Source and destination of memcpy: touched once, grown as needed. */
struct CopyBuffers {
    std::vector<char> from, to;
};

CopyBuffers &copy_buffers(size_t size)
{
    static CopyBuffers buffers;
    if (buffers.from.size() < size) {
        buffers.from.assign(size, 1);
        buffers.to.assign(size, 2);
    }
    return buffers;
}

double time_of(const std::function<void()> &body, size_t repeats, clockid_t clock)
{
    const double start = now_seconds(clock);
    for (size_t i = 0; i < repeats; i++) {
        body();
        benchmark::ClobberMemory();
    }
    return (now_seconds(clock) - start) / static_cast<double>(repeats);
}

/* As many runs as take 50 us, a thousand times the cost of reading the clock; 1 for cold work. */
size_t repeats_for(const Work &work, const std::function<void()> &body)
{
    size_t repeats = 1;
    while (!work.cold && repeats < (size_t{1} << 20) &&
           time_of(body, repeats, CLOCK_MONOTONIC) * static_cast<double>(repeats) < 50e-6) {
        repeats *= 2;
    }
    return repeats;
}

} // namespace

double budget_seconds()
{
    const char *text = std::getenv("GW_BENCH_SECONDS");
    return text != nullptr ? std::max(0.001, std::atof(text)) : 0.5;
}

void run_pairs(benchmark::State &state, const Work &work)
{
    enum { PAIRS_MIN = 9, PAIRS_MAX = 301 };
    CopyBuffers &copy = copy_buffers(work.size);
    const bool own_baseline = static_cast<bool>(work.baseline);
    /* One thread: its CPU time, which other programs on the core do not lengthen. */
    const clockid_t clock = own_baseline ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    const std::function<void()> baseline = own_baseline ? work.baseline : [&] {
        std::memcpy(copy.to.data(), copy.from.data(), work.size);
    };
    const std::vector<Touched> copied = {{copy.from.data(), work.size}, {copy.to.data(), work.size}};
    std::vector<double> ratios, times, baseline_times;
    const Busy busy_before = busy_now();
    const double wall_before = now_seconds(CLOCK_MONOTONIC),
                 own_before = now_seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (auto _ : state) {
        work.run();
        baseline();
        const size_t work_repeats = repeats_for(work, work.run),
                     baseline_repeats = repeats_for(work, baseline);
        const double end = now_seconds(CLOCK_MONOTONIC) + budget_seconds();
        while (times.size() < PAIRS_MIN || (now_seconds(CLOCK_MONOTONIC) < end && times.size() < PAIRS_MAX)) {
            double own = 0, other = 0;
            for (unsigned half = 0; half < 2; half++) {
                const bool is_work = (times.size() + half) % 2 != 0;
                if (work.cold) {
                    make_cold(is_work || own_baseline ? work.touched : copied);
                }
                (is_work ? own : other) =
                    time_of(is_work ? work.run : baseline, is_work ? work_repeats : baseline_repeats, clock);
            }
            times.push_back(own);
            baseline_times.push_back(other);
            ratios.push_back(other / own);
        }
        std::sort(times.begin(), times.end());
        std::sort(baseline_times.begin(), baseline_times.end());
        std::sort(ratios.begin(), ratios.end());
        state.SetIterationTime(quantile(times, 0.5));
    }
    const Busy busy = busy_now();
    const double wall = now_seconds(CLOCK_MONOTONIC) - wall_before,
                 own = now_seconds(CLOCK_PROCESS_CPUTIME_ID) - own_before;
    state.counters["others"] = (busy.used - busy_before.used - own) / wall;
    state.counters["stolen"] = (busy.stolen - busy_before.stolen) / wall;
    const double time = quantile(times, 0.5), size = static_cast<double>(work.size);
    const std::string ratio = own_baseline ? "speedup" : "vs_memcpy";
    state.counters["GBps"] = size * 1e-9 / time;
    state.counters["us"] = time * 1e6;
    state.counters[ratio] = quantile(ratios, 0.5);
    state.counters[ratio + "_p10"] = quantile(ratios, 0.1);
    state.counters[ratio + "_p90"] = quantile(ratios, 0.9);
    state.counters["pairs"] = static_cast<double>(times.size());
    if (!own_baseline) {
        state.counters["memcpy_GBps"] = size * 1e-9 / quantile(baseline_times, 0.5);
    }
    if (work.bits_per_value > 0) {
        state.counters["bits_per_value"] = work.bits_per_value;
    }
}

void run_kernel_pairs(benchmark::State &state, size_t len, const std::function<void()> &run)
{
    Work work;
    work.size = len * sizeof(float);
    work.run = run;
    run_pairs(state, work);
    state.counters["ns_per_value"] = state.counters["us"] * 1e3 / static_cast<double>(len);
}

void add_benchmark(const std::string &name, const std::function<void(benchmark::State &)> &body)
{
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
}

const std::vector<Size> kSizes = {{"64KiB", size_t{64} << 10},
                                  {"1MiB", size_t{1} << 20},
                                  {"25MiB", size_t{25} << 20},
                                  {"256MiB", size_t{256} << 20}};
const std::vector<Size> kSmallSizes = {{"1KiB", size_t{1} << 10},   {"2KiB", size_t{2} << 10},
                                       {"4KiB", size_t{4} << 10},   {"8KiB", size_t{8} << 10},
                                       {"16KiB", size_t{16} << 10}, {"32KiB", size_t{32} << 10},
                                       {"64KiB", size_t{64} << 10}};

const std::vector<std::string> &data_names()
{
    static const std::vector<std::string> names = {"resnet50-sgdm-step0400", "resnet50-adamw-step0400",
                                                   "bertbase-adamw-step0050"};
    return names;
}

std::vector<std::pair<uint32_t, std::string>> backends()
{
    std::vector<std::pair<uint32_t, std::string>> list;
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        if ((gw_backends_available() & bit) != 0) {
            list.emplace_back(bit | (bit - 1), gw_backend_name(bit));
        }
    }
    return list;
}

const gw_bench_data &data_of(const std::string &name, size_t bytes)
{
    static std::string loaded;
    static gw_bench_data data;
    const std::string wanted = name + "/" + std::to_string(bytes);
    if (loaded != wanted) {
        gw_bench_free(&data);
        loaded.clear();
        if (!gw_bench_load(&data, name.c_str(), bytes / sizeof(float))) {
            std::exit(1);
        }
        loaded = wanted;
    }
    return data;
}
