/*
 * The flags that follow from CPUID and XCR0 of other machines. The words are those that the machines report
 * (family and model from the vendors' tables, feature bits from their manuals); changed in single bits where
 * hypervisors and operating systems do that.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cpu.h"
#include "gradwire/gradwire.h"
#include "scalar/kernels_scalar.h"

#define AMD                                                                                                  \
    {                                                                                                        \
        0x68747541u, 0x69746e65u, 0x444d4163u                                                                \
    } /* "Auth" "enti" "cAMD" */
#define HYGON                                                                                                \
    {                                                                                                        \
        0x6f677948u, 0x6e65476eu, 0x656e6975u                                                                \
    } /* "Hygo" "nGen" "uine" */
#define INTEL                                                                                                \
    {                                                                                                        \
        0x756e6547u, 0x49656e69u, 0x6c65746eu                                                                \
    } /* "Genu" "ineI" "ntel" */
#define VIA                                                                                                  \
    {                                                                                                        \
        0x746e6543u, 0x48727561u, 0x736c7561u                                                                \
    } /* "Cent" "aurH" "auls" */

/* Bits of leaf 1 ecx: PCLMUL 1, SSSE3 9, SSE4.2 20, POPCNT 23, OSXSAVE 27, AVX 28, F16C 29. */
#define C1_V3      0x38900202u
#define C1_NEHALEM 0x00900200u
/* Leaf 7 ebx: BMI1 3, AVX2 5, BMI2 8, AVX512 F 16, DQ 17, BW 30, VL 31; ecx: VBMI 1, VBMI2 6, VPCLMUL
 * 10. */
#define B7_V3  0x00000128u
#define B7_V4  0xc0030128u
#define C7_ICE 0x00000542u
#define LZCNT  0x20u

enum {
    V2 = GW_BACKEND_SCALAR | GW_CPU_DETECTED,
    V3 = V2 | GW_BACKEND_AVX2 | GW_CPU_PCLMUL,
    ICE = V3 | GW_BACKEND_AVX512 | GW_CPU_VPCLMUL
};

typedef struct machine {
    const char *name;
    gw_cpu_words words;
    uint32_t flags;
} machine;

static const machine machines[] = {
    {"no CPUID", {{0, 0, 0}, 0, 0, 0, 0, 0, 0}, V2},
    {"Nehalem", {INTEL, 0x000106a5, C1_NEHALEM, 0, 0, 0, 0}, V2},
    {"Sandy Bridge", {INTEL, 0x000206a7, 0x18900202u, 0, 0, 0, 7}, V2},
    {"Haswell", {INTEL, 0x000306c3, C1_V3, B7_V3, 0, LZCNT, 7}, V3},
    {"Haswell, AVX not saved", {INTEL, 0x000306c3, C1_V3, B7_V3, 0, LZCNT, 3}, V2},
    {"Haswell, no XGETBV", {INTEL, 0x000306c3, C1_V3 & ~(1u << 27), B7_V3, 0, LZCNT, 0}, V2},
    {"Haswell, BMI2 masked", {INTEL, 0x000306c3, C1_V3, B7_V3 & ~(1u << 8), 0, LZCNT, 7}, V2},
    {"Haswell, BMI1 masked", {INTEL, 0x000306c3, C1_V3, B7_V3 & ~(1u << 3), 0, LZCNT, 7}, V2},
    {"Haswell, LZCNT masked", {INTEL, 0x000306c3, C1_V3, B7_V3, 0, 0, 7}, V2},
    {"Haswell, POPCNT masked", {INTEL, 0x000306c3, C1_V3 & ~(1u << 23), B7_V3, 0, LZCNT, 7}, V2},
    {"Haswell, F16C masked", {INTEL, 0x000306c3, C1_V3 & ~(1u << 29), B7_V3, 0, LZCNT, 7}, V2},
    {"Haswell, PCLMUL masked",
     {INTEL, 0x000306c3, C1_V3 & ~2u, B7_V3, 0, LZCNT, 7},
     V3 & ~(uint32_t)GW_CPU_PCLMUL},
    {"Skylake-X", {INTEL, 0x00050654, C1_V3, B7_V4, 0, LZCNT, 0xe7}, V3},
    {"Ice Lake server", {INTEL, 0x000606a6, C1_V3, B7_V4, C7_ICE, LZCNT, 0xe7}, ICE},
    {"Ice Lake, ZMM not saved",
     {INTEL, 0x000606a6, C1_V3, B7_V4, C7_ICE, LZCNT, 7},
     (ICE & ~(uint32_t)GW_BACKEND_AVX512)},
    {"Ice Lake, masks not saved",
     {INTEL, 0x000606a6, C1_V3, B7_V4, C7_ICE, LZCNT, 0xc7},
     (ICE & ~(uint32_t)GW_BACKEND_AVX512)},
    {"Ice Lake, VBMI2 masked",
     {INTEL, 0x000606a6, C1_V3, B7_V4, C7_ICE & ~0x40u, LZCNT, 0xe7},
     (ICE & ~(uint32_t)GW_BACKEND_AVX512)},
    {"Sapphire Rapids", {INTEL, 0x000806f8, C1_V3, B7_V4, C7_ICE, LZCNT, 0xe7}, ICE},
    {"Alder Lake", {INTEL, 0x00090672, C1_V3, B7_V3, 0x500, LZCNT, 7}, V3 | GW_CPU_VPCLMUL},
    {"Excavator", {AMD, 0x00660f01, C1_V3, B7_V3, 0, LZCNT, 7}, V3 | GW_CPU_SLOW_PDEP},
    {"Zen 2", {AMD, 0x00830f10, C1_V3, B7_V3, 0, LZCNT, 7}, V3 | GW_CPU_SLOW_PDEP},
    {"Hygon Dhyana", {HYGON, 0x00900f02, C1_V3, B7_V3, 0, LZCNT, 7}, V3 | GW_CPU_SLOW_PDEP},
    {"Zen 3", {AMD, 0x00a00f11, C1_V3, B7_V3, 0x400, LZCNT, 7}, V3 | GW_CPU_VPCLMUL},
    {"Zen 4", {AMD, 0x00a10f11, C1_V3, B7_V4, C7_ICE, LZCNT, 0xe7}, ICE},
    {"Zen 5", {AMD, 0x00b00f21, C1_V3, B7_V4, C7_ICE, LZCNT, 0xe7}, ICE},
    {"another vendor", {VIA, 0x000307b0, C1_V3, B7_V3, 0, LZCNT, 7}, V3},
};

static void machines_have_flags(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        const uint32_t flags = gw_cpu_flags_x86(&machines[i].words);
        if (flags != machines[i].flags) {
            fail_msg("%s: 0x%x instead of 0x%x", machines[i].name, flags, machines[i].flags);
        }
    }
}

/* Every bit that a backend's compiler flags rely on is required: without any one of them the backend is
 * off. */
static void every_bit_is_needed(void **state)
{
    (void)state;
    const gw_cpu_words full = {AMD, 0x00a10f11, C1_V3, B7_V4, C7_ICE, LZCNT, 0xe7};
    const uint32_t avx2_c1 = C1_V3 & ~2u, avx512_c7 = 0x42;
    for (unsigned bit = 0; bit < 32; bit++) {
        const uint32_t one = (uint32_t)1 << bit;
        gw_cpu_words words = full;
        words.leaf1_c &= ~one;
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX2) == 0, (avx2_c1 & one) != 0);
        words = full;
        words.leaf7_b &= ~one;
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX2) == 0, (B7_V3 & one) != 0);
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX512) == 0, (B7_V4 & one) != 0);
        words = full;
        words.leaf7_c &= ~one;
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX512) == 0, (avx512_c7 & one) != 0);
        words = full;
        words.xcr0 &= ~(uint64_t)one;
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX2) == 0, (0x06u & one) != 0);
        assert_int_equal((gw_cpu_flags_x86(&words) & GW_BACKEND_AVX512) == 0, (0xe6u & one) != 0);
    }
}

static void environment_masks(void **state)
{
    (void)state;
    const uint32_t here = gw_cpu_detect();
    static const char all[] =
#define GW_CPU_BACKEND(bit, name, NAME, title) "-" #name ","
#include "core/backends.def"
        ;
    assert_int_equal(setenv("GW_TEST_CPU", all + strlen("-scalar,"), 1), 0);
    gw_cpu_forget();
    assert_int_equal(gw_backends_available(), GW_BACKEND_SCALAR);
    gw_kernels kernels;
    gw_kernels_init(&kernels, GW_BACKEND_ALL);
    assert_true(kernels.gcomp.merge == gw_merge_scalar && kernels.thc.rotate == gw_thc_rotate_scalar);
    assert_int_equal(setenv("GW_TEST_CPU", "+slow_pdep,-pclmul", 1), 0);
    gw_cpu_forget();
    assert_int_equal(gw_cpu_flags(), (here & ~(uint32_t)GW_CPU_PCLMUL) | GW_CPU_SLOW_PDEP);
    assert_int_equal(unsetenv("GW_TEST_CPU"), 0);
    assert_int_equal(gw_cpu_flags(), (here & ~(uint32_t)GW_CPU_PCLMUL) | GW_CPU_SLOW_PDEP);
    gw_cpu_forget();
    assert_int_equal(gw_cpu_flags(), here);
}

enum { SLOTS = sizeof(gw_kernels) / sizeof(void (*)(void)) };

typedef void (*slots[SLOTS])(void);

static void slots_of(slots to, uint32_t backends)
{
    gw_kernels kernels;
    memset(&kernels, 0, sizeof kernels);
    gw_kernels_init(&kernels, backends);
    memcpy(to, &kernels, sizeof kernels);
}

/* A backend's kernels override those of the entries before it in backends.def. A slot that it does not
 * improve keeps the kernel that it has without the backend. */
static void later_backends_override(void **state)
{
    (void)state;
    slots scalar, alone, before, after;
    slots_of(scalar, GW_BACKEND_SCALAR);
    for (uint32_t bit = 2; bit < GW_CPU_BACKENDS; bit *= 2) {
        slots_of(alone, bit);
        for (uint32_t lower = 0; lower < bit; lower += 2) {
            slots_of(before, lower);
            slots_of(after, lower | bit);
            for (unsigned slot = 0; slot < SLOTS; slot++) {
                assert_true(after[slot] != NULL);
                assert_true(after[slot] == (alone[slot] != scalar[slot] ? alone : before)[slot]);
            }
        }
    }
}

static void names_go_both_ways(void **state)
{
    (void)state;
#define GW_CPU_BACKEND(bit, name, NAME, title)                                                               \
    assert_string_equal(gw_backend_name(GW_BACKEND_##NAME), #name);                                          \
    assert_int_equal(gw_backend_from_name(#name), GW_BACKEND_##NAME);
#define GW_DEVICE_BACKEND GW_CPU_BACKEND
#include "core/backends.def"
    assert_null(gw_backend_name(0));
    assert_null(gw_backend_name(3));
    assert_null(gw_backend_name((uint32_t)1 << 8)); /* flags are not backends */
    assert_int_equal(gw_backend_from_name(NULL), 0);
    assert_int_equal(gw_backend_from_name(""), 0);
    assert_int_equal(gw_backend_from_name("avx"), 0);
    assert_int_equal(gw_backend_from_name("avx5120"), 0);
    assert_true((gw_backends_available() & ~(uint32_t)GW_CPU_BACKENDS) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_have_flags), cmocka_unit_test(every_bit_is_needed),
        cmocka_unit_test(environment_masks),   cmocka_unit_test(later_backends_override),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
