/*
 * GW_TEST_CPU: tests run as on a machine with fewer instruction sets or with other quirks. In builds with
 * GW_TESTING only; elsewhere this file is empty and the library reads no environment.
 *
 *   GW_TEST_CPU=-avx512,-vpclmul,+slow_pdep
 *
 * -NAME clears a flag, +NAME sets a quirk. Instruction sets cannot be added, and scalar cannot be cleared.
 * Anything else, and any unknown name, aborts: a misspelt test must not pass.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"

#if defined(GW_TESTING)

#include <stdlib.h>
#include <string.h>

#include "gradwire/gradwire.h"

static const struct {
    const char *name;
    uint32_t flag;
} names[] = {
#define GW_CPU_BACKEND(bit, name, NAME, title) {#name, GW_BACKEND_##NAME},
#include "core/backends.def"
    {"pclmul", GW_CPU_PCLMUL},
    {"vpclmul", GW_CPU_VPCLMUL},
    {"arm_crc32", GW_CPU_ARM_CRC32},
    {"slow_pdep", GW_CPU_SLOW_PDEP},
};

enum { NAME_COUNT = sizeof names / sizeof names[0] };

static const uint32_t quirks = GW_CPU_SLOW_PDEP;

static uint32_t flag_of(const char *name, size_t size)
{
    for (unsigned i = 0; i < NAME_COUNT; i++) {
        if (strlen(names[i].name) == size && memcmp(names[i].name, name, size) == 0) {
            return names[i].flag;
        }
    }
    abort();
}

uint32_t gw_cpu_testing(uint32_t flags)
{
    const char *list = getenv("GW_TEST_CPU");
    while (list != NULL && *list != '\0') {
        const size_t size = strcspn(list, ",");
        const uint32_t flag = size > 0 ? flag_of(list + 1, size - 1) : 0;
        if (*list == '-' && flag != GW_BACKEND_SCALAR) {
            flags &= ~flag;
        } else if (*list == '+' && (flag & quirks) != 0) {
            flags |= flag;
        } else {
            abort();
        }
        list += size + (list[size] == ',');
    }
    return flags;
}

#else
typedef int gw_cpu_testing_not_built; /* a translation unit must not be empty */
#endif
