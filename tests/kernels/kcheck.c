/*
 * The harness: guarded memory, guarded calls, walk, reports, timing. See kcheck.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "kcheck.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* ---- random numbers ------------------------------------------------------------------------------------ */

/* splitmix64 */
uint64_t kc_random(kc_rng *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t kc_below(kc_rng *rng, uint32_t n)
{
    return (uint32_t)((kc_random(rng) >> 32) * n >> 32);
}

void kc_random_bytes(kc_rng *rng, void *dst, size_t size)
{
    uint8_t *p = (uint8_t *)dst;
    while (size > 0) {
        uint64_t x = kc_random(rng);
        size_t part = size < sizeof x ? size : sizeof x;
        memcpy(p, &x, part);
        p += part;
        size -= part;
    }
}

/* ---- versions ------------------------------------------------------------------------------------------ */

unsigned kc_versions(const kc_kernel *kernel, kc_version versions[KC_VERSIONS_MAX])
{
    static const uint32_t bits[] = {
#define GW_CPU_BACKEND(bit, name, NAME, title) GW_BACKEND_##NAME,
#include "core/backends.def"
    };
    unsigned count = 0;
    uint32_t mask = 0;
    _Static_assert(sizeof bits / sizeof bits[0] <= KC_VERSIONS_MAX, "one version for each backend");
    for (unsigned i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        if ((gw_backends_available() & bits[i]) == 0) {
            continue;
        }
        mask |= bits[i];
        const kc_fn fn = kernel->select(mask);
        int is_known = 0;
        for (unsigned v = 0; v < count; v++) {
            is_known |= versions[v].fn == fn;
        }
        if (!is_known) {
            versions[count].backend = gw_backend_name(bits[i]);
            versions[count].fn = fn;
            count++;
        }
    }
    return count;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

typedef struct mapping {
    uint8_t *start, *end; /* accessible; a page without access on both sides */
    uint8_t *before;      /* the watched range of the array before the call */
} mapping;

static mapping mappings[KC_ARRAYS_MAX];
static size_t page_size;
static uint8_t *plain[KC_PLAIN_MAX]; /* the arrays start plain_offset() after it */

/* In separate lines, and no two at the same offset of a page: loads stall on earlier stores whose
 * addresses agree in 12 bits, which would dominate the timing. */
static size_t plain_offset(unsigned index)
{
    return 9 * 64 * (size_t)index;
}

static int map_arrays(void)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    const size_t need = KC_ARRAY_SIZE_MAX + GW_SLOP + 2 * KC_MARGIN + 64;
    const size_t size = (need + page_size - 1) / page_size * page_size;
    for (unsigned i = 0; i < KC_ARRAYS_MAX; i++) {
        uint8_t *p = (uint8_t *)mmap(NULL, size + 2 * page_size, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p, page_size, PROT_NONE) != 0 ||
            mprotect(p + page_size + size, page_size, PROT_NONE) != 0) {
            return 0;
        }
        mappings[i].start = p + page_size;
        mappings[i].end = p + page_size + size;
        mappings[i].before = (uint8_t *)malloc(size);
        if (mappings[i].before == NULL) {
            return 0;
        }
    }
    for (unsigned i = 0; i < KC_PLAIN_MAX; i++) {
        const size_t plain_size = plain_offset(i) + KC_ARRAY_SIZE_MAX + GW_SLOP;
        plain[i] = (uint8_t *)aligned_alloc(64, plain_size);
        if (plain[i] == NULL) {
            return 0;
        }
        memset(plain[i], 0, plain_size);
    }
    return 1;
}

uint8_t *kc_plain(unsigned index)
{
    return plain[index] + plain_offset(index);
}

static uint8_t *place_array(kc_test *t, const char *name, const void *data, size_t size, size_t slop,
                            kc_place place, unsigned align, int writable)
{
    if (t->array_count == KC_ARRAYS_MAX || size > KC_ARRAY_SIZE_MAX) {
        fprintf(stderr, "kcheck: %s: no room for argument %s\n", t->kernel->name, name);
        abort();
    }
    const mapping *m = &mappings[t->array_count];
    kc_array *a = &t->arrays[t->array_count++];
    const size_t shift = place.shift / align * align;
    a->name = name;
    a->size = size;
    a->slop = slop;
    a->writable = writable ? size + slop : 0;
    switch (place.where) {
    case KC_AT_END:
        a->data = m->end - shift - slop - size;
        break;
    case KC_AT_START:
        a->data = m->start + shift;
        break;
    default:
        a->data = m->start + KC_MARGIN + shift;
        break;
    }
    a->low = (size_t)(a->data - m->start) > KC_MARGIN ? a->data - KC_MARGIN : m->start;
    a->high =
        (size_t)(m->end - a->data) - size - slop > KC_MARGIN ? a->data + size + slop + KC_MARGIN : m->end;

    kc_random_bytes(&t->rng, a->low, (size_t)(a->data - a->low));
    if (data != NULL) {
        if (size > 0) {
            memcpy(a->data, data, size);
        }
    } else {
        memset(a->data, (int)(kc_random(&t->rng) & 255), size);
    }
    kc_random_bytes(&t->rng, a->data + size, (size_t)(a->high - a->data) - size);
    memcpy(m->before, a->low, (size_t)(a->high - a->low));
    return a->data;
}

uint8_t *kc_in(kc_test *t, const char *name, const void *data, size_t size, size_t slop, kc_place place,
               unsigned align)
{
    return place_array(t, name, data, size, slop, place, align, 0);
}

uint8_t *kc_out(kc_test *t, const char *name, size_t size, size_t slop, kc_place place, unsigned align)
{
    return place_array(t, name, NULL, size, slop, place, align, 1);
}

uint8_t *kc_inout(kc_test *t, const char *name, const void *data, size_t size, size_t slop, kc_place place,
                  unsigned align)
{
    return place_array(t, name, data, size, slop, place, align, 1);
}

void kc_may_write(kc_test *t, const uint8_t *data, size_t size)
{
    for (unsigned i = 0; i < t->array_count; i++) {
        if (t->arrays[i].data == data && t->arrays[i].writable > size) {
            t->arrays[i].writable = size;
        }
    }
}

kc_place kc_place_other(kc_test *t)
{
    kc_place place = t->shape.src;
    if (place.where == KC_INSIDE) {
        place.shift = kc_below(&t->rng, 64);
    }
    return place;
}

void kc_check_memory(kc_test *t)
{
    for (unsigned i = 0; i < t->array_count; i++) {
        const kc_array *a = &t->arrays[i];
        const uint8_t *before = mappings[i].before;
        const size_t front = (size_t)(a->data - a->low);
        const size_t back = front + a->writable;
        const size_t watched = (size_t)(a->high - a->low);
        if (memcmp(a->low, before, front) == 0 && memcmp(a->low + back, before + back, watched - back) == 0) {
            continue;
        }
        for (size_t at = 0; at < watched; at++) {
            if ((at < front || at >= back) && a->low[at] != before[at]) {
                const ptrdiff_t index = (ptrdiff_t)at - (ptrdiff_t)front;
                kc_fail(t, KC_CANARY,
                        "%s: byte %td changed from %02x to %02x (array: %zu bytes, slop %zu, writable %zu)",
                        a->name, index, before[at], a->low[at], a->size, a->slop, a->writable);
                break;
            }
        }
    }
}

/* ---- guarded calls ------------------------------------------------------------------------------------- */

enum { TICK_US = 100000 };

static sigjmp_buf jump;
static volatile sig_atomic_t is_inside; /* a kernel is running */
static volatile sig_atomic_t caught;    /* signal that ended it */
static void *volatile fault_address;
static volatile sig_atomic_t ticks_left;
static int ticks_allowed;

static void on_crash(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (!is_inside) {
        signal(number, SIG_DFL); /* the harness itself: die as usual when the instruction is run again */
        return;
    }
    is_inside = 0;
    caught = number;
    fault_address = info->si_addr;
    siglongjmp(jump, 1);
}

static void on_tick(int number)
{
    if (is_inside && --ticks_left <= 0) {
        is_inside = 0;
        caught = number;
        siglongjmp(jump, 1);
    }
}

int kc_setup(double timeout_s)
{
    ticks_allowed = (int)(timeout_s * 1e6 / TICK_US) + 2;
    if (!map_arrays()) {
        return 0;
    }
    /* A kernel may also have used up the stack. */
    static uint8_t handler_stack[1 << 16];
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = handler_stack;
    stack.ss_size = sizeof handler_stack;
    /* SA_NODEFER: the jump leaves the handler without unblocking its signal. */
    struct sigaction crash;
    memset(&crash, 0, sizeof crash);
    crash.sa_sigaction = on_crash;
    crash.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    struct sigaction tick;
    memset(&tick, 0, sizeof tick);
    tick.sa_handler = on_tick;
    tick.sa_flags = SA_NODEFER | SA_RESTART;
    const struct itimerval period = {{0, TICK_US}, {0, TICK_US}};
    return sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, &crash, NULL) == 0 &&
           sigaction(SIGBUS, &crash, NULL) == 0 && sigaction(SIGILL, &crash, NULL) == 0 &&
           sigaction(SIGFPE, &crash, NULL) == 0 && sigaction(SIGPROF, &tick, NULL) == 0 &&
           setitimer(ITIMER_PROF, &period, NULL) == 0;
}

static const char *signal_name(int number)
{
    switch (number) {
    case SIGSEGV:
        return "segmentation fault";
    case SIGBUS:
        return "bus error";
    case SIGILL:
        return "illegal instruction";
    case SIGFPE:
        return "arithmetic exception";
    default:
        return "signal";
    }
}

static void report_crash(kc_test *t)
{
    if (caught == SIGPROF) {
        kc_fail(t, KC_TIMEOUT, "did not return");
        return;
    }
    const uint8_t *at = (const uint8_t *)fault_address;
    for (unsigned i = 0; i < t->array_count && caught != SIGILL; i++) {
        const mapping *m = &mappings[i];
        if (at >= m->start - page_size && at < m->end + page_size) {
            kc_fail(t, KC_CRASH, "%s at byte %td of %s (%zu bytes and %zu of slop)", signal_name(caught),
                    at - t->arrays[i].data, t->arrays[i].name, t->arrays[i].size, t->arrays[i].slop);
            return;
        }
    }
    kc_fail(t, KC_CRASH, "%s, address %p", signal_name(caught), fault_address);
}

/* Rounding, flush modes and traps of the floating-point unit; not its sticky flags. */
static uint64_t float_control(void)
{
#if defined(__SSE2__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__) && defined(__GNUC__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

int kc_guarded(kc_test *t, kc_call *call, void *context)
{
    const uint64_t control = float_control();
    if (sigsetjmp(jump, 0) != 0) {
        report_crash(t);
        return 0;
    }
    ticks_left = ticks_allowed;
    is_inside = 1;
    call(context);
    is_inside = 0;
    if (float_control() != control) {
        kc_flush_mode(0);
        kc_fail(t, KC_CANARY, "floating-point control changed from 0x%llx to 0x%llx",
                (unsigned long long)control, (unsigned long long)float_control());
    }
    return 1;
}

int kc_no_flush_modes;

void kc_flush_mode(int on)
{
    if (kc_no_flush_modes) {
        return;
    }
#if defined(__SSE2__)
    const unsigned both = 0x8040; /* FTZ and DAZ of MXCSR */
    _mm_setcsr(on ? _mm_getcsr() | both : _mm_getcsr() & ~both);
#elif defined(__aarch64__) && defined(__GNUC__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr = on ? fpcr | (uint64_t)1 << 24 : fpcr & ~((uint64_t)1 << 24);
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
#else
    (void)on;
#endif
}

/* ---- reports ------------------------------------------------------------------------------------------- */

static const char *where_name(kc_where where)
{
    return where == KC_AT_END ? "end-" : where == KC_AT_START ? "start+" : "inside+";
}

void kc_describe(kc_test *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->what, sizeof t->what, format, arguments);
    va_end(arguments);
}

void kc_fail(kc_test *t, kc_failure kind, const char *format, ...)
{
    enum { MESSAGES_MAX = 8 }; /* of one case */
    t->failures |= kind;
    if (t->log != NULL && t->case_messages++ < MESSAGES_MAX) {
        if (!t->case_failed) {
            const kc_shape *s = &t->shape;
            fprintf(
                t->log,
                "FAIL %s/%s: --seed=0x%016llx --kernel=%s --case=%lu%s: len %zu, src %s%u, dst %s%u, %s\n",
                t->kernel->name, t->backend, (unsigned long long)t->seed, t->kernel->name, s->number,
                t->quick ? " --quick" : "", s->len, where_name(s->src.where), s->src.shift,
                where_name(s->dst.where), s->dst.shift, t->what);
        }
        fputs("    ", t->log);
        va_list arguments;
        va_start(arguments, format);
        vfprintf(t->log, format, arguments);
        va_end(arguments);
        fputc('\n', t->log);
    }
    t->case_failed = 1;
}

static unsigned long long cell(const uint8_t *p, size_t i, size_t size)
{
    unsigned long long x = 0;
    for (size_t b = size; b-- > 0;) {
        x = x << 8 | p[i * size + b];
    }
    return x;
}

/* Rows of 64 cells from the first difference on: '.' equal, 'x' not. */
static void print_map(FILE *log, const uint8_t *expected, const uint8_t *got, size_t len, size_t size,
                      size_t first)
{
    const size_t start = first / 64 * 64;
    unsigned rows = 0;
    for (size_t row = start; row < len && rows < 4; row += 64, rows++) {
        fprintf(log, "    %8zu ", row);
        for (size_t i = row; i < len && i < row + 64; i++) {
            fputc(memcmp(expected + i * size, got + i * size, size) == 0 ? '.' : 'x', log);
        }
        fputc('\n', log);
    }
    unsigned shown = 0;
    for (size_t i = first; i < len && shown < 4; i++) {
        if (memcmp(expected + i * size, got + i * size, size) != 0) {
            fprintf(log, "    [%zu] expected %0*llx, got %0*llx\n", i, (int)(2 * size),
                    cell(expected, i, size), (int)(2 * size), cell(got, i, size));
            shown++;
        }
    }
}

int kc_equal(kc_test *t, kc_failure kind, const char *name, const void *expected, const void *got, size_t len,
             size_t cell_size)
{
    const uint8_t *e = (const uint8_t *)expected;
    const uint8_t *g = (const uint8_t *)got;
    if (len == 0 || memcmp(e, g, len * cell_size) == 0) {
        return 1;
    }
    size_t first = len, wrong = 0;
    for (size_t i = len; i-- > 0;) {
        if (memcmp(e + i * cell_size, g + i * cell_size, cell_size) != 0) {
            first = i;
            wrong++;
        }
    }
    kc_fail(t, kind, "%s: %zu of %zu differ from %s", name, wrong, len,
            kind == KC_MODEL ? "the model" : "scalar");
    if (t->log != NULL && t->case_messages <= 4) {
        print_map(t->log, e, g, len, cell_size, first);
    }
    return 0;
}

int kc_equal_number(kc_test *t, kc_failure kind, const char *name, uint64_t expected, uint64_t got)
{
    if (expected == got) {
        return 1;
    }
    kc_fail(t, kind, "%s: %s says %llu (0x%llx), got %llu (0x%llx)", name,
            kind == KC_MODEL ? "the model" : "scalar", (unsigned long long)expected,
            (unsigned long long)expected, (unsigned long long)got, (unsigned long long)got);
    return 0;
}

/* ---- walk ---------------------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    }
    return hash;
}

/* Returns 0 when enough has failed. */
static int run_case(kc_test *t, size_t len, unsigned config, unsigned pattern, kc_place src, kc_place dst,
                    kc_body *body)
{
    kc_shape *s = &t->shape;
    s->number++;
    if (t->only_case >= 0 && (unsigned long)t->only_case != s->number) {
        return 1;
    }
    s->len = len;
    s->config = config;
    s->pattern = pattern;
    s->src = src;
    s->dst = dst;
    kc_rng start = {t->seed ^ hash_name(t->kernel->name) ^ s->number * 0xd1342543de82ef95u};
    t->rng.state = kc_random(&start);
    t->what[0] = '\0';
    t->case_failed = 0;
    t->case_messages = 0;
    t->array_count = 0;
    body(t);
    t->cases++;
    t->failed_cases += (unsigned long)t->case_failed;
    return t->failed_cases < t->failed_cases_max;
}

/* Placements of the n-th case of a walk: mostly flush with a guard page, on either side, else somewhere
 * inside. Most arrays end at the guard page, where reading too far faults. */
static void places_of(unsigned long n, kc_rng *rng, kc_place *src, kc_place *dst)
{
    const kc_where where[4] = {KC_AT_END, KC_AT_START, KC_AT_END, KC_INSIDE};
    src->where = where[n % 4];
    dst->where = where[(n + n / 4) % 4];
    src->shift = src->where == KC_INSIDE ? kc_below(rng, 64) : 0;
    dst->shift = dst->where == KC_INSIDE ? kc_below(rng, 64) : 0;
}

void kc_walk(kc_test *t, unsigned config_count, unsigned pattern_count, kc_body *body)
{
    static const size_t primes[] = {131, 191, 257, 509, 1021, 2039, 4093};
    static const size_t chunks[] = {4096, 16384, 32767, 32768};
    const size_t short_count = 2 * 64 + 2, prime_count = sizeof primes / sizeof primes[0];
    const unsigned short_turns = t->quick ? 2 : pattern_count;
    const unsigned chunk_turns = t->quick ? 1 : 3;
    /* Scalar code has no vectors: steps of 7 reach every address modulo 8. */
    const unsigned shift_step = t->quick && t->is_reference ? 7 : 1;
    kc_rng rng = {t->seed ^ hash_name(t->kernel->name)};
    kc_place src, dst;
    unsigned long n = 0;
    unsigned pattern = 0;

    for (size_t i = 0; i < short_count + prime_count; i++) {
        const size_t len = i < short_count ? i : primes[i - short_count];
        for (unsigned config = 0; config < config_count; config++) {
            for (unsigned turn = 0; turn < short_turns; turn++, n++) {
                places_of(n + n / 97, &rng, &src, &dst);
                if (!run_case(t, len, config, pattern, src, dst, body)) {
                    return;
                }
                pattern = (pattern + 1) % pattern_count;
            }
        }
        /* Neither the patterns nor the placements of a config may stay the same from one length to the
         * next. */
        pattern =
            (pattern + 1 + (unsigned)(config_count * short_turns % pattern_count == pattern_count - 1)) %
            pattern_count;
        n++;
    }
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        for (unsigned config = 0; config < config_count; config++) {
            for (unsigned turn = 0; turn < chunk_turns; turn++, n++) {
                places_of(n + n / 97, &rng, &src, &dst);
                if (!run_case(t, chunks[i], config, kc_below(&rng, pattern_count), src, dst, body)) {
                    return;
                }
            }
        }
    }
    src.where = dst.where = KC_INSIDE;
    for (src.shift = 0; src.shift < 64; src.shift++) {
        for (dst.shift = 0; dst.shift < 64; dst.shift++) {
            const size_t len = 1 + kc_below(&rng, 260);
            const unsigned config = kc_below(&rng, config_count);
            pattern = kc_below(&rng, pattern_count);
            if (src.shift % shift_step != 0 || dst.shift % shift_step != 0) {
                t->shape.number++; /* cases have the same numbers in every run */
            } else if (!run_case(t, len, config, pattern, src, dst, body)) {
                return;
            }
        }
    }
}

void kc_run(kc_test *t)
{
    t->reference = t->kernel->select(GW_BACKEND_SCALAR);
    t->is_reference = t->fn == t->reference;
    memset(&t->shape, 0, sizeof t->shape);
    t->cases = t->failed_cases = 0;
    t->failures = 0;
    t->kernel->test(t);
    kc_flush_mode(0);
}

/* ---- timing -------------------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void kc_bench(kc_test *t, kc_call *call, void *context)
{
    enum { SAMPLES = 41 };
    double sample[SAMPLES];
    unsigned long repeats = 1;
    double elapsed = 0.0;
    if (t->bench_hook != NULL) {
        t->bench_hook(t, call, context);
        return;
    }
    /* Warm up, and find how often to repeat: half a millisecond is far above the clock's resolution. */
    while (elapsed < 500e3) {
        const double start = now_ns();
        for (unsigned long i = 0; i < repeats; i++) {
            call(context);
        }
        elapsed = now_ns() - start;
        repeats = elapsed < 500e3 ? 2 * repeats : repeats;
    }
    for (unsigned s = 0; s < SAMPLES; s++) {
        const double start = now_ns();
        for (unsigned long i = 0; i < repeats; i++) {
            call(context);
        }
        sample[s] = (now_ns() - start) / (double)repeats / (double)t->kernel->bench_len;
    }
    qsort(sample, SAMPLES, sizeof sample[0], compare_doubles);
    t->bench_ns = sample[SAMPLES / 2];
    t->bench_low = sample[SAMPLES / 4];
    t->bench_high = sample[SAMPLES * 3 / 4];
}
