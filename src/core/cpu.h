/*
 * What the processor can do, and what it does slowly, as one word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CPU_H
#define GW_CPU_H

#include <stdint.h>

/*
 * Bits 0 to 7 are gw_backend bits: instruction sets that a whole backend is compiled for. The flags above
 * them are passed to the backends' init functions, which choose among versions of a kernel by them.
 */
typedef enum gw_cpu_flag {
    /* Instructions that single kernels need. Such a kernel is in a file of its own. */
    GW_CPU_PCLMUL =
        1 << 8, /* x86: 64-bit carry-less multiplication; SSE4.2's crc32 is in every x86 backend */
    GW_CPU_VPCLMUL = 1 << 9, /* the same on 256-bit registers, and on 512-bit ones where AVX-512 is usable */
    GW_CPU_ARM_CRC32 = 1 << 10, /* AArch64, ARMv8: crc32cb .. crc32cx */

    /* Quirks: instructions that exist but are slow. Kernels built on one are not chosen. */
    GW_CPU_SLOW_PDEP = 1 << 16, /* pdep and pext in microcode: time grows with the set bits of the mask */

    GW_CPU_DETECTED = 1 << 30 /* set in every result: 0 means not detected yet */
} gw_cpu_flag;

enum { GW_CPU_BACKENDS = 0xff };

/* Detects what the processor has and, on x86 through XGETBV, which registers the operating system saves.
 * GW_BACKEND_SCALAR is always set. Builds with GW_TESTING apply the environment variable GW_TEST_CPU to
 * the result: cpu_testing.c. */
uint32_t gw_cpu_detect(void);

/* The result of the first gw_cpu_detect() of the process: dispatch.c. */
uint32_t gw_cpu_flags(void);

/* What CPUID and XGETBV return on x86. A leaf that the processor does not have counts as zeros. */
typedef struct gw_cpu_words {
    uint32_t vendor[3]; /* leaf 0: ebx, edx, ecx */
    uint32_t leaf1_a, leaf1_c;
    uint32_t leaf7_b, leaf7_c;
    uint32_t ext1_c; /* leaf 0x80000001 */
    uint64_t xcr0;   /* 0 if the operating system has not enabled XGETBV */
} gw_cpu_words;

/* Pure decision logic, separated from CPUID so that tests can drive it with the words of other machines. */
uint32_t gw_cpu_flags_x86(const gw_cpu_words *words);

#if defined(GW_TESTING)
uint32_t gw_cpu_testing(uint32_t flags); /* cpu_testing.c: applies GW_TEST_CPU */
void gw_cpu_forget(void);                /* dispatch.c: the next call detects again */
#endif

#endif
