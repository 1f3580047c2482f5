/*
 * Detection. Vendor documents: Intel SDM volume 2 (CPUID), volume 1 section 13.3 (XCR0); AMD APM volume 3
 * appendix E.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "core/cpu.h"

#include "gradwire/gradwire.h"

/* Bits of CPUID leaves 1, 7 and 0x80000001; spelled out because compilers' <cpuid.h> differ in names. */
#define LEAF1_C_PCLMUL  (1u << 1)
#define LEAF1_C_SSSE3   (1u << 9)
#define LEAF1_C_SSE42   (1u << 20)
#define LEAF1_C_POPCNT  (1u << 23)
#define LEAF1_C_OSXSAVE (1u << 27)
#define LEAF1_C_AVX     (1u << 28)
#define LEAF1_C_F16C    (1u << 29)
#define LEAF7_B_BMI1    (1u << 3)
#define LEAF7_B_AVX2    (1u << 5)
#define LEAF7_B_BMI2    (1u << 8)
#define LEAF7_B_F       (1u << 16)
#define LEAF7_B_DQ      (1u << 17)
#define LEAF7_B_BW      (1u << 30)
#define LEAF7_B_VL      (1u << 31)
#define LEAF7_C_VBMI    (1u << 1)
#define LEAF7_C_VBMI2   (1u << 6)
#define LEAF7_C_VPCLMUL (1u << 10)
#define EXT1_C_LZCNT    (1u << 5)

/* XCR0: register state that the operating system saves. */
#define XCR0_YMM 0x06u              /* XMM, upper halves of YMM */
#define XCR0_ZMM (XCR0_YMM | 0xe0u) /* and masks, upper halves of ZMM0-15, all of ZMM16-31 */

static int has_all(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

/* The twelve letters of leaf 0. */
static int is_vendor(const gw_cpu_words *words, const char name[12])
{
    for (unsigned i = 0; i < 12; i++) {
        if ((words->vendor[i / 4] >> i % 4 * 8 & 0xff) != (uint8_t)name[i]) {
            return 0;
        }
    }
    return 1;
}

static uint32_t family_of(uint32_t signature)
{
    const uint32_t family = signature >> 8 & 15;
    return family == 15 ? family + (signature >> 20 & 255) : family;
}

static uint32_t quirks_of(const gw_cpu_words *words)
{
    /* Families: 0x15 Bulldozer to Excavator, 0x17 and 0x18 Zen to Zen 2, 0x19 Zen 3 and 4, 0x1a Zen 5. */
    const int is_amd = is_vendor(words, "AuthenticAMD") || is_vendor(words, "HygonGenuine");
    return is_amd && family_of(words->leaf1_a) < 0x19 ? (uint32_t)GW_CPU_SLOW_PDEP : 0;
}

uint32_t gw_cpu_flags_x86(const gw_cpu_words *words)
{
    uint32_t flags = GW_BACKEND_SCALAR | GW_CPU_DETECTED;
    /* Every instruction set that the backend's compiler flags enable (cmake/GradwireLibrary.cmake).
     * Hypervisors clear single bits, so none implies another. */
    const uint32_t leaf1_c =
        LEAF1_C_SSSE3 | LEAF1_C_SSE42 | LEAF1_C_POPCNT | LEAF1_C_OSXSAVE | LEAF1_C_AVX | LEAF1_C_F16C;
    const uint32_t leaf7_b = LEAF7_B_BMI1 | LEAF7_B_AVX2 | LEAF7_B_BMI2;
    if ((words->xcr0 & XCR0_YMM) != XCR0_YMM || !has_all(words->leaf1_c, leaf1_c) ||
        !has_all(words->leaf7_b, leaf7_b) || !has_all(words->ext1_c, EXT1_C_LZCNT)) {
        return flags;
    }
    flags |= GW_BACKEND_AVX2 | quirks_of(words);
    flags |= has_all(words->leaf1_c, LEAF1_C_PCLMUL) ? (uint32_t)GW_CPU_PCLMUL : 0;
    flags |= has_all(words->leaf7_c, LEAF7_C_VPCLMUL) ? (uint32_t)GW_CPU_VPCLMUL : 0;
    if ((words->xcr0 & XCR0_ZMM) == XCR0_ZMM &&
        has_all(words->leaf7_b, LEAF7_B_F | LEAF7_B_DQ | LEAF7_B_BW | LEAF7_B_VL) &&
        has_all(words->leaf7_c, LEAF7_C_VBMI | LEAF7_C_VBMI2)) {
        flags |= GW_BACKEND_AVX512;
    }
    return flags;
}

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#include <cpuid.h>

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    /* xgetbv; old assemblers lack the mnemonic. */
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static uint32_t detect(void)
{
    gw_cpu_words words = {{0, 0, 0}, 0, 0, 0, 0, 0, 0};
    uint32_t a, b, c, d;
    if (__get_cpuid(0, &a, &b, &c, &d) != 0) {
        words.vendor[0] = b;
        words.vendor[1] = d;
        words.vendor[2] = c;
    }
    if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
        words.leaf1_a = a;
        words.leaf1_c = c;
        if ((c & LEAF1_C_OSXSAVE) != 0) {
            words.xcr0 = read_xcr0();
        }
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        words.leaf7_b = b;
        words.leaf7_c = c;
    }
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d) != 0) {
        words.ext1_c = c;
    }
    return gw_cpu_flags_x86(&words);
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

static uint32_t detect(void)
{
    /* Advanced SIMD is part of the architecture */
    uint32_t flags = GW_BACKEND_SCALAR | GW_BACKEND_NEON | GW_CPU_DETECTED;
#if defined(__ARM_FEATURE_CRC32) || defined(__APPLE__)
    flags |= GW_CPU_ARM_CRC32; /* the compiler may use it everywhere; all of Apple's AArch64 has it */
#elif defined(__linux__)
    const unsigned long hwcap_crc32 = 1ul << 7;
    flags |= (getauxval(AT_HWCAP) & hwcap_crc32) != 0 ? (uint32_t)GW_CPU_ARM_CRC32 : 0;
#endif
    return flags;
}

#elif defined(__arm__) && defined(__linux__)
#include <sys/auxv.h>

static uint32_t detect(void)
{
    const unsigned long hwcap_neon = 1ul << 12;
    const unsigned long hwcap2_crc32 = 1ul << 4;
    uint32_t flags = GW_BACKEND_SCALAR | GW_CPU_DETECTED;
    if ((getauxval(AT_HWCAP) & hwcap_neon) != 0) {
        flags |= GW_BACKEND_NEON;
    }
    if ((getauxval(AT_HWCAP2) & hwcap2_crc32) != 0) {
        flags |= GW_CPU_ARM_CRC32;
    }
    return flags;
}

#else

static uint32_t detect(void)
{
    return GW_BACKEND_SCALAR | GW_CPU_DETECTED;
}

#endif

uint32_t gw_cpu_detect(void)
{
    uint32_t flags = detect();
#if defined(GW_SIMDE_NEON)
    flags |= GW_BACKEND_NEON | GW_CPU_ARM_CRC32; /* NEON code on x86, for tests */
#endif
#if defined(GW_TESTING)
    flags = gw_cpu_testing(flags);
#endif
    return flags;
}
