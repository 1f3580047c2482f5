/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench_kernels.h"

#include <string.h>
#include <sys/time.h>

#include "kcheck_families.h"

enum { KERNELS_MAX = 256 };

typedef struct hook {
    gw_bench_kernel_run *run;
    void *state;
} hook;

int gw_bench_kernels_setup(void)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    return kc_setup(1e6) &&
           setitimer(ITIMER_PROF, &never, NULL) == 0; /* no watchdog: its signals disturb timings */
}

static size_t list(gw_bench_kernel *kernels)
{
    kc_version versions[KC_VERSIONS_MAX];
    size_t count = 0;
    for (const kc_kernel *const *family = kc_families; *family != NULL; family++) {
        for (const kc_kernel *kernel = *family; kernel->name != NULL; kernel++) {
            const unsigned version_count = kc_versions(kernel, versions);
            for (unsigned v = 0; v < version_count && count < KERNELS_MAX; v++) {
                const gw_bench_kernel found = {kernel->name, versions[v].backend, kernel->bench_len, kernel,
                                               versions[v].fn};
                kernels[count++] = found;
            }
        }
    }
    return count;
}

const gw_bench_kernel *gw_bench_kernel_at(size_t index)
{
    static gw_bench_kernel kernels[KERNELS_MAX];
    static size_t count;
    if (count == 0) {
        count = list(kernels);
    }
    return index < count ? &kernels[index] : NULL;
}

static void run_hook(kc_test *t, kc_call *call, void *context)
{
    const hook *h = (const hook *)t->bench_hook_state;
    h->run(h->state, call, context);
}

void gw_bench_kernel_time(const gw_bench_kernel *kernel, gw_bench_kernel_run *run, void *state)
{
    static kc_test t;
    hook h = {run, state};
    memset(&t, 0, sizeof t);
    t.kernel = (const kc_kernel *)kernel->family_kernel;
    t.backend = kernel->backend;
    t.fn = kernel->fn;
    t.reference = t.kernel->select(GW_BACKEND_SCALAR);
    t.bench_hook = run_hook;
    t.bench_hook_state = &h;
    t.kernel->prepare_bench(&t);
}
