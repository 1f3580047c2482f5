/*
 * Dispatch: which backends there are, and which kernel a slot gets. Compiled without ISA flags, so that
 * nothing here can be an instruction that an old machine lacks.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"
#include "core/kernels.h"

#if !defined(GW_NO_ATOMICS) && !defined(__STDC_NO_ATOMICS__)
#include <stdatomic.h>
/* The only state of the library: gw_cpu_flag bits, 0 = not detected yet. Threads that detect at the same
 * time store the same word, and no other data depends on it, so relaxed order suffices. */
static _Atomic uint32_t detected;
#define DETECTED_LOAD()   atomic_load_explicit(&detected, memory_order_relaxed)
#define DETECTED_STORE(x) atomic_store_explicit(&detected, (x), memory_order_relaxed)
#else
/* Detects at every call: correct, but slow where a hypervisor traps CPUID. */
#define DETECTED_LOAD()   0u
#define DETECTED_STORE(x) ((void)(x))
#endif

typedef struct backend {
    uint32_t bit;
    const char *name;
    void (*init)(gw_kernels *kernels, uint32_t cpu); /* NULL: a device, or not in this build */
} backend;

/* INIT_IF(GW_HAVE_X, f) is f if the build defines GW_HAVE_X as 1. Otherwise GW_HAVE_X stays a name,
 * HAVE_GW_HAVE_X is no macro, and the second argument of SECOND() is NULL. */
#define HAVE_1                   unused,
#define SECOND(first, init, ...) init
#define PICK(have, init)         SECOND(have init, NULL, unused)
#define INIT_IF_(have, init)     PICK(HAVE_##have, init)
#define INIT_IF(have, init)      INIT_IF_(have, init)
#define GW_HAVE_SCALAR           1

static const backend backends_known[] = {
#define GW_CPU_BACKEND(bit, name, NAME, title)                                                               \
    {GW_BACKEND_##NAME, #name, INIT_IF(GW_HAVE_##NAME, gw_backend_init_##name)},
#define GW_DEVICE_BACKEND(bit, name, NAME, title) {GW_BACKEND_##NAME, #name, NULL},
#include "core/backends.def"
};

#define CHECK_BIT(bit, NAME)                                                                                 \
    _Static_assert(GW_BACKEND_##NAME == 1 << (bit) && (GW_CPU_BACKENDS >> (bit)&1) == 1, "GW_"               \
                                                                                         "BACKEND_" #NAME);
#define GW_CPU_BACKEND(bit, name, NAME, title)    CHECK_BIT(bit, NAME)
#define GW_DEVICE_BACKEND(bit, name, NAME, title) CHECK_BIT(bit, NAME)
#include "core/backends.def"

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
