/*
 * How everything in gradwire_bench is timed: in turn with a memcpy of the same fp32 bytes.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_BENCH_PAIRS_H
#define GW_BENCH_PAIRS_H

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/gradwire.h"

/* Memory that one run reads or writes. */
struct Touched {
    const void *data;
    size_t size;
};

struct Work {
    size_t size = 0;           /* fp32 bytes that one run processes */
    double bits_per_value = 0; /* 0: not reported */
    std::function<void()> run;
    std::vector<Touched> touched;
    /* flush `touched`, and the memory of memcpy, from all caches before each run */
    bool cold = false;
    std::function<void()> baseline; /* compared with `run` instead of memcpy */
};

/*
 * Runs pairs of (memcpy, work), in alternating order, until GW_BENCH_SECONDS (default 0.5) have passed, at
 * least 9 and at most 301. Short work is repeated within one timing. Times are CPU times of the calling
 * thread, or wall time if there is a baseline. Counters:
 *   GBps            fp32 bytes per second, from the median time
 *   us              median time of one run in microseconds
 *   vs_memcpy       median of time of memcpy / time of work within a pair; vs_memcpy_p10 and vs_memcpy_p90:
 *                   its 10-90 % range (speedup, speedup_p10, speedup_p90 if there is a baseline)
 *   memcpy_GBps     from its median time
 *   bits_per_value, pairs
 *   others, stolen  processors used by other programs during the run, and taken by a hypervisor; 1 is one
 *                   processor all the time. The system counts in steps of 10 ms: imprecise for short runs.
 */
void run_pairs(benchmark::State &state, const Work &work);

/* Pairs for one call of a job: the buffers of a codec, with a status, Run(call) and TouchedBy(call). */
template <class Job, class Call>
void run_job(benchmark::State &state, Job &job, Call call, double bits_per_value, size_t bytes, bool cold)
{
    Work work;
    work.size = bytes;
    work.bits_per_value = bits_per_value;
    work.run = [&] {
        job.Run(call);
    };
    work.touched = job.TouchedBy(call);
    work.cold = cold;
    if (job.status == GW_OK) {
        run_pairs(state, work);
    }
    if (job.status != GW_OK) {
        state.SkipWithError(gw_status_message(job.status));
    }
}

/* The same for a part of a codec, len values per call, hot; also the counter ns_per_value. */
void run_kernel_pairs(benchmark::State &state, size_t len, const std::function<void()> &run);

/* GW_BENCH_SECONDS. */
double budget_seconds();

/* Registers a benchmark whose body calls run_pairs() once. */
void add_benchmark(const std::string &name, const std::function<void(benchmark::State &)> &body);

/* Sizes of the whole-codec benchmarks: text for the name, and bytes of fp32. */
struct Size {
    const char *name;
    size_t bytes;
};
extern const std::vector<Size> kSizes;
extern const std::vector<Size> kSmallSizes;

/* Data sets, and backends of this machine as (mask, name). The mask also permits the more generic backends,
 * which fill the slots that a backend leaves empty. */
const std::vector<std::string> &data_names();
std::vector<std::pair<uint32_t, std::string>> backends();

/* The gradient and map of a data set, repeated to a size. The result is valid until the next call. */
const struct gw_bench_data &data_of(const std::string &name, size_t bytes);

/* Register the benchmarks of each part; gradwire_bench.cc describes the names. */
void add_gcomp_benchmarks();
void add_gcomp_thread_benchmarks(unsigned threads);
void add_collective_benchmarks();
void add_thc_benchmarks();
void add_classic_benchmarks();
void add_kernel_benchmarks();
void add_core_benchmarks();
void add_peer_benchmarks();

#endif
