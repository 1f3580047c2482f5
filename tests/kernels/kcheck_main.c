/*
 * Command line of kcheck.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _GNU_SOURCE
#include "core/cpu.h"
#include "kcheck.h"

#include <argp.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct settings {
    uint64_t seed;
    const char *kernel; /* wildcard */
    uint32_t backend;   /* 0: all */
    long only_case;
    int quick, bench, list;
} settings;

static const struct argp_option options[] = {
    {"seed", 's', "N", 0, "seed of the inputs (default: from the clock; it is printed)", 0},
    {"kernel", 'k', "GLOB", 0, "only kernels whose name matches", 0},
    {"backend", 'b', "NAME", 0, "only this backend", 0},
    {"case", 'c', "N", 0, "only this case of each kernel", 0},
    {"quick", 'q', NULL, 0, "fewer patterns per length", 0},
    {"bench", 'B', NULL, 0, "time the kernels instead of testing them", 0},
    {"no-flush-modes", 'F', NULL, 0, "do not switch FTZ and DAZ on: some emulators get them wrong", 0},
    {"list", 'l', NULL, 0, "list kernels and the backends that bring a version", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *s = (settings *)state->input;
    char *end = NULL;
    errno = 0;
    switch (key) {
    case 's':
        s->seed = strtoull(text, &end, 0);
        if (errno != 0 || end == text || *end != '\0') {
            argp_error(state, "--seed: '%s' is not a number", text);
        }
        return 0;
    case 'k':
        s->kernel = text;
        return 0;
    case 'b':
        s->backend = gw_backend_from_name(text);
        if (s->backend == 0) {
            argp_error(state, "--backend: no backend is called '%s'", text);
        }
        return 0;
    case 'c':
        s->only_case = strtol(text, &end, 10);
        if (errno != 0 || end == text || *end != '\0' || s->only_case < 0) {
            argp_error(state, "--case: '%s' is not a case number", text);
        }
        return 0;
    case 'q':
        s->quick = 1;
        return 0;
    case 'B':
        s->bench = 1;
        return 0;
    case 'F':
        kc_no_flush_modes = 1;
        return 0;
    case 'l':
        s->list = 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Dispatch: every mask gets a kernel, and masks without a backend's bit never get that backend's version. */
static int check_dispatch(const kc_kernel *kernel)
{
    int ok = 1;
    const kc_fn scalar = kernel->select(GW_BACKEND_SCALAR);
    for (uint32_t mask = 0; mask <= GW_CPU_BACKENDS; mask++) {
        const kc_fn fn = kernel->select(mask);
        const uint32_t usable = mask & gw_backends_available();
        const int wrong =
            fn == NULL || (usable == 0 && fn != scalar) || fn != kernel->select(usable | GW_BACKEND_SCALAR);
        if (wrong) {
            printf("FAIL %s: dispatch with mask 0x%x\n", kernel->name, mask);
            ok = 0;
        }
    }
    if (kernel->select(GW_BACKEND_ALL) != kernel->select(gw_backends_available())) {
        printf("FAIL %s: dispatch with all backends\n", kernel->name);
        ok = 0;
    }
    return ok;
}

static int is_chosen(const settings *s, const char *backend)
{
    return s->backend == 0 || strcmp(gw_backend_name(s->backend), backend) == 0;
}

static void prepare(kc_test *t, const settings *s, const kc_kernel *kernel, const kc_version *v)
{
    memset(t, 0, sizeof *t);
    t->kernel = kernel;
    t->backend = v->backend;
    t->fn = v->fn;
    t->reference = kernel->select(GW_BACKEND_SCALAR);
    t->seed = s->seed;
    t->quick = s->quick;
    t->only_case = s->only_case;
    t->log = stdout;
    t->failed_cases_max = 4;
}

/* Returns how many versions it tested; clears `ok` if one is wrong. */
static unsigned test_kernel(const settings *s, const kc_kernel *kernel, int *ok)
{
    static kc_test t;
    kc_version versions[KC_VERSIONS_MAX];
    const unsigned count = kc_versions(kernel, versions);
    unsigned tested = 0;
    *ok &= check_dispatch(kernel);
    for (unsigned v = 0; v < count; v++) {
        if (!is_chosen(s, versions[v].backend)) {
            continue;
        }
        prepare(&t, s, kernel, &versions[v]);
        const clock_t start = clock();
        kc_run(&t);
        printf("%-10s %-7s %8lu cases  %6.2f s  %s\n", kernel->name, t.backend, t.cases,
               (double)(clock() - start) / CLOCKS_PER_SEC, t.failed_cases == 0 ? "ok" : "FAILED");
        fflush(stdout);
        *ok &= t.failed_cases == 0;
        tested++;
    }
    return tested;
}

static unsigned bench_kernel(const settings *s, const kc_kernel *kernel)
{
    static kc_test t;
    kc_version versions[KC_VERSIONS_MAX];
    const unsigned count = kc_versions(kernel, versions);
    unsigned timed = 0;
    for (unsigned v = 0; v < count; v++) {
        if (!is_chosen(s, versions[v].backend)) {
            continue;
        }
        /* Scalar is timed again beside each version, so that disturbances affect both. */
        prepare(&t, s, kernel, &versions[0]);
        kernel->prepare_bench(&t);
        const double scalar = t.bench_ns;
        prepare(&t, s, kernel, &versions[v]);
        kernel->prepare_bench(&t);
        printf("%-10s %-7s %8.4f  %8.4f .. %-8.4f %7.2f\n", kernel->name, t.backend, t.bench_ns, t.bench_low,
               t.bench_high, scalar / t.bench_ns);
        fflush(stdout);
        timed++;
    }
    return timed;
}

static unsigned list_kernel(const kc_kernel *kernel)
{
    kc_version versions[KC_VERSIONS_MAX];
    const unsigned count = kc_versions(kernel, versions);
    printf("%-10s", kernel->name);
    for (unsigned v = 0; v < count; v++) {
        printf(" %s", versions[v].backend);
    }
    putchar('\n');
    return count;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options, parse,
        NULL,    "Runs every kernel of every backend against scalar, and scalar against slow models.",
        NULL,    NULL,
        NULL};
    settings s = {(uint64_t)time(NULL), "*", 0, -1, 0, 0, 0};
    int ok = 1;
    unsigned selected = 0; /* versions */
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    if (!kc_setup(20.0)) {
        fputs("kcheck: the system gives no guarded memory, signals or timer\n", stderr);
        return 2;
    }
    if (s.backend != 0 && (gw_backends_available() & s.backend) == 0) {
        fprintf(stderr, "kcheck: backend %s is not in this build or not on this machine\n",
                gw_backend_name(s.backend));
        return 1;
    }
    if (s.bench) {
        puts("kernel     backend  ns/value  quartiles            scalar / this");
    } else if (!s.list) {
        printf("seed 0x%016llx\n", (unsigned long long)s.seed);
    }
    for (const kc_kernel *const *family = kc_families; *family != NULL; family++) {
        for (const kc_kernel *kernel = *family; kernel->name != NULL; kernel++) {
            if (fnmatch(s.kernel, kernel->name, 0) != 0) {
                continue;
            }
            if (s.list) {
                selected += list_kernel(kernel);
            } else if (s.bench) {
                selected += bench_kernel(&s, kernel);
            } else {
                selected += test_kernel(&s, kernel, &ok);
            }
        }
    }
    if (selected == 0) {
        fprintf(stderr, "kcheck: no kernel that matches '%s' has a version for %s (see --list)\n", s.kernel,
                s.backend == 0 ? "this machine" : gw_backend_name(s.backend));
        return 1;
    }
    return ok ? 0 : 1;
}
