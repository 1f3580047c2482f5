/*
 * What the processor has and what it does badly, as one word.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_CPU_H
#define GW_CPU_H

#include <stdint.h>

/*
 * Bits 0 to 7 are gw_backend bits: instruction sets that a whole backend is compiled for. The bits below are
 * handed to the backends' init functions, which choose among their own versions of a kernel by them.
 */
typedef enum gw_cpu_flag {
    /* Instructions that only some kernels use. A kernel that needs one lies in a file of its own. */
    /* x86: 64-bit carry-less multiplication; SSE4.2's crc32 is in every x86 backend */
    GW_CPU_PCLMUL = 1 << 8,
    /* the same on 256-bit registers, and on 512-bit ones where AVX-512 is usable */
    GW_CPU_VPCLMUL = 1 << 9,
    GW_CPU_ARM_CRC32 = 1 << 10, /* AArch64, ARMv8: crc32cb .. crc32cx */
    /* 8 x 8 bit matrices times bytes; VEX and EVEX forms as far as AVX2, AVX-512 are */
    GW_CPU_GFNI = 1 << 11,

    /* Quirks: instructions that exist but are slow. A kernel built on one is left out. */
    GW_CPU_SLOW_GATHER = 1 << 16, /* no faster than loading elements one by one */
    /* pdep and pext in microcode: time grows with the set bits of the mask */
    GW_CPU_SLOW_PDEP = 1 << 17,
    /* compress with a memory operand: compress into a register, then store */
    GW_CPU_SLOW_COMPRESS_STORE = 1 << 18,

    GW_CPU_ASKED = 1 << 30 /* set in every result: 0 means that nobody has asked yet */
} gw_cpu_flag;

enum { GW_CPU_BACKENDS = 0xff };

/* Asks the processor and the operating system (on x86 through XGETBV, which registers are saved).
 * GW_BACKEND_SCALAR is always set. Builds with GW_TESTING apply the environment variable GW_TEST_CPU to the
 * result: cpu_testing.c. */
uint32_t gw_cpu_detect(void);

/* The result of the first gw_cpu_detect() of the process: dispatch.c. */
uint32_t gw_cpu_flags(void);

/* What CPUID and XGETBV say on x86. A leaf that the processor does not have counts as zeros. */
typedef struct gw_cpu_words {
    uint32_t vendor[3]; /* leaf 0: ebx, edx, ecx */
    uint32_t leaf1_a, leaf1_c;
    uint32_t leaf7_b, leaf7_c;
    uint32_t ext1_c; /* leaf 0x80000001 */
    uint64_t xcr0;   /* 0 if the operating system has not switched XGETBV on */
} gw_cpu_words;

/* The judgement, apart from the asking, so that tests can hand in the words of other machines. */
uint32_t gw_cpu_judge_x86(const gw_cpu_words *words);

#if defined(GW_TESTING)
uint32_t gw_cpu_testing(uint32_t flags); /* cpu_testing.c: GW_TEST_CPU applied */
void gw_cpu_forget(void);                /* dispatch.c: the next call detects again */
/* Name of one flag, and of one backend: how GW_TEST_CPU and reports call it. */
const char *gw_cpu_flag_name(uint32_t flag);
#endif

#endif
