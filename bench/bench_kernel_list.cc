/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_kernels.h"

#include <cstdlib>
#include <memory>

#include "bench_core.h"
#include "bench_pairs.h"

namespace
{

struct Timed {
    benchmark::State &state;
    size_t len;
};

void run_kernel(void *argument, void (*call)(void *), void *context)
{
    Timed &t = *static_cast<Timed *>(argument);
    run_kernel_pairs(t.state, t.len, [=] {
        call(context);
    });
}

void add_step(const gw_bench_step *step, uint32_t backend, const std::string &backend_name)
{
    add_benchmark("kernel/" + std::string(step->name) + "/" + backend_name, [=](benchmark::State &state) {
        const gw_bench_data &data = data_of(data_names()[0], GW_BENCH_CORE_LEN * sizeof(float));
        const std::unique_ptr<gw_bench_codebooks, void (*)(gw_bench_codebooks *)> codebooks(
            gw_bench_codebooks_new(&data, backend), gw_bench_codebooks_free);
        gw_status status = codebooks == nullptr ? GW_ERR_ARG : GW_OK;
        if (status == GW_OK) {
            run_kernel_pairs(state, step->len, [&] {
                const gw_status s = step->run(codebooks.get());
                status = s != GW_OK ? s : status;
            });
        }
        if (status != GW_OK) {
            state.SkipWithError(gw_status_message(status));
        }
    });
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

void add_core_benchmarks()
{
    for (size_t i = 0; gw_bench_step_at(i) != nullptr; i++) {
        const gw_bench_step *const step = gw_bench_step_at(i);
        for (const auto &backend : backends()) {
            if (step->has_kernels != 0 || backend.first == GW_BACKEND_SCALAR) {
                add_step(step, backend.first, backend.second);
            }
        }
    }
}
