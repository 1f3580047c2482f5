/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/cpu.h"

#include "gradwire/gradwire.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#include <cpuid.h>

/* XCR0: which register files the operating system saves. Written in bytes because assemblers of old machines lack the
 * mnemonic. */
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t gw_cpu_detect(void)
{
    uint32_t backends = GW_BACKEND_SCALAR;
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) {
        return backends;
    }
    const uint64_t xcr0 = read_xcr0();
    const uint64_t ymm = 6;      /* XMM and upper halves of YMM */
    const uint64_t zmm = 6 | 0xe0; /* and opmask, upper halves of ZMM0-15, ZMM16-31 */
    if ((xcr0 & ymm) != ymm || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) {
        return backends;
    }
    const uint32_t avx2 = bit_AVX2 | bit_BMI2;
    if ((b & avx2) == avx2) {
        backends |= GW_BACKEND_AVX2;
    }
    const uint32_t avx512_b = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const uint32_t avx512_c = bit_AVX512VBMI | bit_AVX512VBMI2;
    if ((backends & GW_BACKEND_AVX2) != 0 && (xcr0 & zmm) == zmm && (b & avx512_b) == avx512_b &&
        (c & avx512_c) == avx512_c) {
        backends |= GW_BACKEND_AVX512;
    }
    return backends;
}

#elif defined(__aarch64__)

uint32_t gw_cpu_detect(void)
{
    return GW_BACKEND_SCALAR | GW_BACKEND_NEON; /* Advanced SIMD is part of the base architecture */
}

#else

uint32_t gw_cpu_detect(void)
{
    return GW_BACKEND_SCALAR;
}

#endif
