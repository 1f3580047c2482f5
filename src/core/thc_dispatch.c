/*
 * Which kernel table a THC context uses. Compiled without instruction-set flags; like dispatch.c it may name
 * backends.
 *
 * A backend takes part when CMake defines GW_HAVE_THC_<BACKEND>, which it does where
 * src/<backend>/thc_init_<backend>.c exists.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"
#include "core/thc_kernels.h"
#include "gradwire/gradwire.h"

const gw_thc_kernels *gw_thc_kernels_select(uint32_t backends)
{
    const uint32_t cpu = gw_cpu_flags();
    const uint32_t use = backends & cpu;
    (void)use;
#if defined(GW_HAVE_THC_AVX512)
    if ((use & GW_BACKEND_AVX512) != 0) {
        return gw_thc_kernels_avx512(cpu, use);
    }
#endif
#if defined(GW_HAVE_THC_AVX2)
    if ((use & GW_BACKEND_AVX2) != 0) {
        return gw_thc_kernels_avx2(cpu);
    }
#endif
#if defined(GW_HAVE_THC_NEON)
    if ((use & GW_BACKEND_NEON) != 0) {
        return gw_thc_kernels_neon(cpu);
    }
#endif
    return &gw_thc_kernels_scalar;
}
