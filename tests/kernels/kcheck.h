/*
 * kcheck: every kernel of every backend against scalar, and scalar against slow models.
 *
 * One file per family of kernels (kcheck_*.c) says what the arguments of a kernel are and which inputs
 * matter; this harness brings the rest: lengths and placements, memory between guard pages, canaries, caught
 * crashes, a watchdog, reports with a map of the differing cells, timing. A new family is a new file and a
 * row in kcheck_families.c.
 *
 * A test walks over cases. Every case starts a random stream of its own from (seed, kernel, case number), the
 * same for every backend, so one case can be run again alone: --kernel=NAME --seed=S --case=N.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef GW_KCHECK_H
#define GW_KCHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/kernels.h"

/* ---- random numbers ------------------------------------------------------------------------------------ */

typedef struct kc_rng {
    uint64_t state;
} kc_rng;

uint64_t kc_random(kc_rng *rng);
/* Uniform in [0, n), n > 0. */
uint32_t kc_below(kc_rng *rng, uint32_t n);
void kc_random_bytes(kc_rng *rng, void *dst, size_t size);

/* ---- kernels under test -------------------------------------------------------------------------------- */

typedef void (*kc_fn)(void); /* any kernel; the family casts it back to its type */

typedef struct kc_test kc_test;

typedef struct kc_kernel {
    const char *name;
    kc_fn (*select)(uint32_t backends); /* the version that a mask of backends gets */
    void (*test)(kc_test *t);           /* compares t->fn with t->reference */
    void (*prepare_bench)(kc_test *t);  /* ends with kc_bench() */
    size_t bench_len;                   /* values that one benchmarked call works on */
} kc_kernel;

typedef struct kc_version {
    const char *backend;
    kc_fn fn;
} kc_version;

enum { KC_VERSIONS_MAX = 8 };

/* The distinct versions of a kernel on this machine, scalar first, each with the backend that brings it. */
unsigned kc_versions(const kc_kernel *kernel, kc_version versions[KC_VERSIONS_MAX]);

/* Families, each ended by a kernel without a name; the list ended by NULL. */
extern const kc_kernel *const kc_families[];

/* Defines select_NAME() for gw_kernels.member. */
#define KC_SELECT_MEMBER(name, member)                                                                       \
    static kc_fn select_##name(uint32_t backends)                                                            \
    {                                                                                                        \
        gw_kernels kernels;                                                                                  \
        gw_kernels_init(&kernels, backends);                                                                 \
        return (kc_fn)kernels.member;                                                                        \
    }                                                                                                        \
    _Static_assert(1, "a semicolon follows")
#define KC_SELECT(slot)         KC_SELECT_MEMBER(slot, gcomp.slot)
#define KC_SELECT_THC(slot)     KC_SELECT_MEMBER(slot, thc.slot)
#define KC_SELECT_CLASSIC(slot) KC_SELECT_MEMBER(slot, classic.slot)

/* ---- memory -------------------------------------------------------------------------------------------- */

enum {
    KC_ARRAYS_MAX = 16,
    KC_LEN_MAX = 32768, /* the longest chunk */
    KC_ARRAY_SIZE_MAX = 4 * KC_LEN_MAX,
    KC_MARGIN = 256, /* bytes on both sides of an array that must stay as they are */
    KC_PLAIN_MAX = 24
};

/* Where an array lies in its mapping. */
typedef enum kc_where {
    KC_AT_END,   /* its last byte (or that of its slop) is `shift` bytes before the guard page */
    KC_AT_START, /* its first byte is `shift` bytes after the guard page */
    KC_INSIDE    /* in the middle, at address `shift` modulo 64 */
} kc_where;

typedef struct kc_place {
    kc_where where;
    unsigned shift;
} kc_place;

/* One argument in guarded memory, as it was before the call. */
typedef struct kc_array {
    const char *name;
    uint8_t *data;
    size_t size, slop;
    size_t writable;     /* bytes from data on that the kernel may change */
    uint8_t *low, *high; /* watched range around it */
} kc_array;

/* ---- a test -------------------------------------------------------------------------------------------- */

typedef enum kc_failure {
    KC_OUTPUT = 1 << 0, /* another output than scalar */
    KC_MODEL = 1 << 1,  /* another output than the slow model */
    KC_CANARY = 1 << 2, /* bytes changed that the kernel must not write */
    KC_CRASH = 1 << 3,  /* a signal; reads across guard pages end here */
    KC_TIMEOUT = 1 << 4 /* did not return */
} kc_failure;

/* One case of the walk. */
typedef struct kc_shape {
    unsigned long number;
    size_t len;
    unsigned config;  /* meaning defined by the family */
    unsigned pattern; /* the same */
    kc_place src, dst;
} kc_shape;

struct kc_test {
    const kc_kernel *kernel;
    const char *backend;
    kc_fn fn, reference;
    int is_reference; /* fn is scalar: the models run, too */
    uint64_t seed;
    int quick;
    long only_case; /* -1: all */
    FILE *log;      /* NULL: quiet */
    unsigned failed_cases_max;

    /* results */
    unsigned long cases, failed_cases;
    unsigned failures; /* kc_failure bits seen */
    double bench_ns;   /* per value: median, then quartiles */
    double bench_low, bench_high;
    /* NULL: kc_bench() times the call; else it hands the call over, with this test. */
    void (*bench_hook)(kc_test *t, void (*call)(void *context), void *context);
    void *bench_hook_state;

    /* the running case */
    kc_shape shape;
    kc_rng rng;
    char what[192]; /* the family's description of it */
    int case_failed;
    unsigned case_messages;
    kc_array arrays[KC_ARRAYS_MAX];
    unsigned array_count;
};

/* Prepares guarded memory, signal handlers and the watchdog; a call that does not return within
 * `timeout_s` seconds of processor time is abandoned. Returns 0 if the system lacks what is needed. */
int kc_setup(double timeout_s);

/* Runs the test of one version of a kernel; t holds the settings and receives the results. */
void kc_run(kc_test *t);

/*
 * Calls body for every case:
 *   - every length 0..129 and some primes, with every config, patterns and placements in turn;
 *   - chunk lengths with every config;
 *   - all 64 x 64 alignments of source and destination with random configs and patterns, in quick runs
 *     of scalar kernels every seventh of both.
 */
typedef void kc_body(kc_test *t);
void kc_walk(kc_test *t, unsigned config_count, unsigned pattern_count, kc_body *body);

/* Puts an argument into guarded memory of its own. `slop` bytes after it are accessible and filled with
 * garbage (the content of an input's slop must not matter). kc_out() arrays are writable in [0, size +
 * slop); their content is garbage. Alignments of elements are respected: the shift is rounded to `align`
 * bytes. */
uint8_t *kc_in(kc_test *t, const char *name, const void *data, size_t size, size_t slop, kc_place place,
               unsigned align);
uint8_t *kc_out(kc_test *t, const char *name, size_t size, size_t slop, kc_place place, unsigned align);
uint8_t *kc_inout(kc_test *t, const char *name, const void *data, size_t size, size_t slop, kc_place place,
                  unsigned align);
/* Narrows the writable range once the results are known. */
void kc_may_write(kc_test *t, const uint8_t *data, size_t size);

/* Ordinary memory for masters and expected outputs: KC_ARRAY_SIZE_MAX bytes and GW_SLOP more, index <
 * KC_PLAIN_MAX. */
uint8_t *kc_plain(unsigned index);

/* A placement as random as the shape's, for arguments beyond the first two. */
kc_place kc_place_other(kc_test *t);

/* Calls call(context). 0 if it crashed or did not return; that is then reported. */
typedef void kc_call(void *context);
int kc_guarded(kc_test *t, kc_call *call, void *context);

/* Whether bytes around the arrays, and inputs, are as they were. */
void kc_check_memory(kc_test *t);

/* Compare outputs; differences are reported with a map of the cells. `kind` is KC_OUTPUT or KC_MODEL. */
int kc_equal(kc_test *t, kc_failure kind, const char *name, const void *expected, const void *got, size_t len,
             size_t cell_size);
int kc_equal_number(kc_test *t, kc_failure kind, const char *name, uint64_t expected, uint64_t got);

void kc_fail(kc_test *t, kc_failure kind, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Describes the running case for reports. */
void kc_describe(kc_test *t, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Flush-to-zero and denormals-are-zero of this thread, where the processor has them (else nothing
 * happens). Kernels must give the same results in both states. */
void kc_flush_mode(int on);

/* 1: kc_flush_mode() does nothing. For emulators that get the modes wrong: qemu 7.2 lets DAZ flush the fp16
 * subnormals that vcvtph2ps reads, where Intel and AMD say that DAZ is ignored. */
extern int kc_no_flush_modes;

/* ---- timing -------------------------------------------------------------------------------------------- */

/* Times call(context), kernel->bench_len values each, into t->bench_*. */
void kc_bench(kc_test *t, kc_call *call, void *context);

/* ---- values -------------------------------------------------------------------------------------------- */

enum { KC_VALUE_PATTERNS = 14, KC_LEVEL_PATTERNS = 5 };

const char *kc_value_pattern_name(unsigned pattern);
/* Fills dst with len elements of a dtype. */
void kc_values(kc_rng *rng, void *dst, uint32_t dtype, size_t len, unsigned pattern);
/* Map bytes. */
void kc_map_bytes(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern);

/* A rule with allowed step and cap. `near` is a value (bits of the dtype) whose drop should not be
 * trivial. */
void kc_round_rule(kc_rng *rng, gw_round_rule *rule, uint32_t dtype, uint32_t rounding, uint32_t derived,
                   uint32_t constant, uint32_t strict, uint32_t near);

/* A span of random values and map bytes under a random rule, in kc_plain(0) and kc_plain(1). Map bytes are
 * missing where the rule does not need them. */
gw_span kc_span(kc_rng *rng, gw_round_rule *rule, size_t len, uint32_t dtype, uint32_t derived,
                unsigned pattern);

/* Gradients and map bytes under an explicit nearest-even rule that cuts some of them, for timing. */
gw_span kc_bench_span(gw_round_rule *rule, size_t len);

/* The same span in guarded memory. */
gw_span kc_span_in(kc_test *t, const gw_span *span, const gw_round_rule *rule, kc_place place);

/* Rounding by a model that searches the neighbours on the coarser grid instead of adding and masking. */
typedef struct kc_rounded {
    uint32_t bits;
    uint16_t bin;
    uint8_t keep; /* M + 1 - drop; derived: of the rounded value */
} kc_rounded;

kc_rounded kc_model_round(const gw_round_rule *rule, const gw_span *span, size_t index);

/* What a codebook has for a bin with a label of its own: exponent field in place and kept bits (both 0 for
 * zero). Returns 0 for the other bins, which are always escaped. */
int kc_label_of_bin(uint32_t bin, uint32_t dtype, uint32_t derived, uint32_t *exponent, uint8_t *keep);

/* The sum of two values (docs/numerics.md section 5), by way of double. */
uint32_t kc_model_add(uint32_t a, uint32_t b, uint32_t dtype, uint32_t strict);

/* The only casts of arrays: kc_plain() and the placements are aligned for them. */
static inline uint32_t *kc_u32(uint8_t *p)
{
    return (uint32_t *)(void *)p;
}

static inline uint16_t *kc_u16(uint8_t *p)
{
    return (uint16_t *)(void *)p;
}

#endif
