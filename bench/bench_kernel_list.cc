/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_kernels.h"

#include <cstdlib>

#include "bench_pairs.h"

namespace {

struct Timed {
    benchmark::State &state;
    size_t len;
};

void run_kernel(void *argument, void (*call)(void *), void *context)
{
    Timed &t = *static_cast<Timed *>(argument);
    Work work;
    work.size = t.len * sizeof(float);
    work.run = [=] { call(context); };
    run_pairs(t.state, work);
    t.state.counters["ns_per_value"] = t.state.counters["us"] * 1e3 / static_cast<double>(t.len);
}

} // namespace

void add_kernel_benchmarks()
{
    for (size_t i = 0; gw_bench_kernel_at(i) != nullptr; i++) {
        const gw_bench_kernel *const kernel = gw_bench_kernel_at(i);
        const std::string name = std::string("kernel/") + kernel->slot + "/" + kernel->backend;
        add_benchmark(name, [=](benchmark::State &state) {
            static const bool ready = gw_bench_kernels_setup() != 0;
            if (!ready) {
                state.SkipWithError("the system gives no guarded memory");
                return;
            }
            Timed timed = {state, kernel->len};
            gw_bench_kernel_time(kernel, run_kernel, &timed);
        });
    }
}
