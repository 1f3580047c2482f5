/*
 * Dispatch: this file and thc_dispatch.c are the only ones that name backends. Compiled without ISA flags, so
 * that nothing here can be an instruction that an old machine lacks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"
#include "core/gcomp_kernels.h"

#if !defined(GW_NO_ATOMICS) && !defined(__STDC_NO_ATOMICS__)
#include <stdatomic.h>
/* The only state of the library: gw_cpu_flag bits, 0 = not asked yet. Threads that ask at the same time store
 * the same word, and nothing else hangs on it, so relaxed order suffices. */
static _Atomic uint32_t detected;
#define DETECTED_LOAD()   atomic_load_explicit(&detected, memory_order_relaxed)
#define DETECTED_STORE(x) atomic_store_explicit(&detected, (x), memory_order_relaxed)
#else
/* Asked again every time: correct, and slow where a hypervisor traps CPUID. */
#define DETECTED_LOAD()   0u
#define DETECTED_STORE(x) ((void)(x))
#endif

typedef struct backend {
    uint32_t bit;
    const char *name;
    void (*init)(gw_kernels *kernels, uint32_t cpu); /* NULL: not in this build */
} backend;

/* From the widest use to the narrowest: later ones overwrite. */
static const backend backends_known[] = {
    {GW_BACKEND_SCALAR, "scalar", gw_kernels_init_scalar},
#if defined(GW_HAVE_AVX2)
    {GW_BACKEND_AVX2, "avx2", gw_kernels_init_avx2},
#else
    {GW_BACKEND_AVX2, "avx2", NULL},
#endif
#if defined(GW_HAVE_AVX512)
    {GW_BACKEND_AVX512, "avx512", gw_kernels_init_avx512},
#else
    {GW_BACKEND_AVX512, "avx512", NULL},
#endif
#if defined(GW_HAVE_NEON)
    {GW_BACKEND_NEON, "neon", gw_kernels_init_neon},
#else
    {GW_BACKEND_NEON, "neon", NULL},
#endif
    {GW_BACKEND_CUDA, "cuda", NULL},
};

enum { BACKEND_COUNT = sizeof backends_known / sizeof backends_known[0] };

uint32_t gw_cpu_flags(void)
{
    uint32_t flags = DETECTED_LOAD();
    if (flags == 0) {
        flags = gw_cpu_detect();
        DETECTED_STORE(flags);
    }
    return flags;
}

#if defined(GW_TESTING)
void gw_cpu_forget(void)
{
    DETECTED_STORE(0);
}
#endif

uint32_t gw_backends_available(void)
{
    const uint32_t cpu = gw_cpu_flags();
    uint32_t available = 0;
    for (unsigned i = 0; i < BACKEND_COUNT; i++) {
        if (backends_known[i].init != NULL) {
            available |= cpu & backends_known[i].bit;
        }
    }
    return available;
}

void gw_kernels_init(gw_kernels *kernels, uint32_t backends)
{
    const uint32_t cpu = gw_cpu_flags();
    const uint32_t use = (backends & cpu) | GW_BACKEND_SCALAR;
    for (unsigned i = 0; i < BACKEND_COUNT; i++) {
        if ((use & backends_known[i].bit) != 0 && backends_known[i].init != NULL) {
            backends_known[i].init(kernels, cpu);
        }
    }
}

const char *gw_backend_name(uint32_t backend_bit)
{
    for (unsigned i = 0; i < BACKEND_COUNT; i++) {
        if (backends_known[i].bit == backend_bit) {
            return backends_known[i].name;
        }
    }
    return NULL;
}

static int is_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

uint32_t gw_backend_from_name(const char *name)
{
    for (unsigned i = 0; name != NULL && i < BACKEND_COUNT; i++) {
        if (is_equal(name, backends_known[i].name)) {
            return backends_known[i].bit;
        }
    }
    return 0;
}

uint32_t gw_crc32c(uint32_t crc, const void *src, size_t size)
{
    gw_kernels kernels;
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    return kernels.crc32c(crc, (const uint8_t *)src, size);
}
