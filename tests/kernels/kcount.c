/*
 * kcount: calls one kernel a given number of times, on the inputs of kcheck --bench. For emulators that count
 * instructions.
 *
 *   kcount KERNEL BACKEND LEN CALLS     LEN values a call; prints 1 if the backend has its own version, else
 *   0
 *   kcount                              prints the kernels
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck.h"

#include <stdlib.h>
#include <string.h>

static void call_often(kc_test *t, void (*call)(void *context), void *context)
{
    const unsigned long calls = *(const unsigned long *)t->bench_hook_state;
    for (unsigned long i = 0; i < calls; i++) {
        call(context);
    }
}

static const kc_kernel *find(const char *name)
{
    for (const kc_kernel *const *family = kc_families; *family != NULL; family++) {
        for (const kc_kernel *kernel = *family; kernel->name != NULL; kernel++) {
            if (name == NULL) {
                puts(kernel->name);
            } else if (strcmp(kernel->name, name) == 0) {
                return kernel;
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static kc_test t;
    if (argc == 1) {
        find(NULL);
        return 0;
    }
    const kc_kernel *kernel = argc == 5 ? find(argv[1]) : NULL;
    const uint32_t backend = argc == 5 ? gw_backend_from_name(argv[2]) : 0;
    const unsigned long len = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
    unsigned long calls = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    if (kernel == NULL || (backend & gw_backends_available()) == 0 || len == 0 || len > kernel->bench_len ||
        !kc_setup(1e6)) {
        fputs("usage: kcount KERNEL BACKEND LEN CALLS\n", stderr);
        return 2;
    }
    kc_kernel shorter = *kernel;
    shorter.bench_len = len;
    t.kernel = &shorter;
    t.backend = argv[2];
    t.fn = kernel->select(backend);
    t.reference = kernel->select(GW_BACKEND_SCALAR);
    t.seed = 1;
    t.only_case = -1;
    t.bench_hook = call_often;
    t.bench_hook_state = &calls;
    kernel->prepare_bench(&t);
    printf("%d\n", t.fn != t.reference);
    return 0;
}
