/*
 * The stack that calls of the codecs need, for each backend of this machine and for all of them together:
 * every call runs on a thread whose stack is painted, and GW_STACK_SIZE_MAX (gradwire.h) holds. In builds
 * without optimisation and with sanitizers frames are larger: skipped.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "gradwire/classic.h"
#include "gradwire/collective.h"
#include "gradwire/thc.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define FRAMES_ARE_LARGER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                                   \
    __has_feature(undefined_behavior_sanitizer)
#define FRAMES_ARE_LARGER 1
#endif
#endif

/* What musl gives a thread by default. The lowest page is a guard. */
enum { THREAD_SIZE = 128 << 10, GUARD_SIZE = 4096, PAINT = 0x5C };
enum { LEN = (1 << 15) + 777, AREA_SIZE = 1 << 20, WORK_SIZE = 4 << 20 };

typedef struct job {
    uint32_t backends;
    float values[LEN], param[LEN], state[LEN], out[LEN];
    uint8_t map_bytes[LEN];
    uint32_t digest[16], patterns[LEN / 64 + 1];
    /* Objects of the caller: their bytes are not the library's. */
    gw_gcomp gcomp;
    gw_gcomp_histogram histogram;
    gw_gcomp_rate rate;
    gw_thc thc;
    gw_classic classic;
    uint8_t frame[AREA_SIZE], second[AREA_SIZE], work[WORK_SIZE];
    int bad;      /* line of a call that failed, 0 */
    size_t depth; /* bytes below the thread's own frame */
    uint8_t *stack;
} job;

static job shared;

#define GOOD(call)                                                                                           \
    do {                                                                                                     \
        if ((call) != GW_OK && j->bad == 0) {                                                                \
            j->bad = __LINE__;                                                                               \
        }                                                                                                    \
    } while (0)

static void call_maps(job *j, gw_gcomp_map *map)
{
    const gw_optimizer adam = {.kind = GW_OPTIMIZER_ADAMW,
                               .step = 9,
                               .lr = 1e-3,
                               .weight_decay = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8};
    const gw_optimizer_state state = {.param = j->param, .m = j->state, .v = j->param};
    gw_gcomp_map_rule rule;
    uint32_t top = 0;
    GOOD(gw_gcomp_map_rule_init(&adam, 1, NULL, &rule));
    GOOD(gw_gcomp_map_scan(&rule, &state, LEN, j->backends, &top));
    const uint32_t base = gw_gcomp_map_base(top);
    GOOD(gw_gcomp_map_build(&rule, &state, LEN, base, j->backends, j->map_bytes));
    GOOD(gw_gcomp_map_digest(j->map_bytes, LEN, 12, j->digest));
    *map = (gw_gcomp_map){.bytes = j->map_bytes,
                          .base = base,
                          .wire_scale = 1,
                          .len = LEN,
                          .digest = j->digest,
                          .chunk_log2 = 12};
}

/* Codebooks, rates and steps of a collective with this codec. */
static void call_rest(job *j, gw_gcomp *codec, const gw_gcomp_source *source, const gw_workspace *work)
{
    uint8_t codebook[GW_GCOMP_CODEBOOK_SIZE_MAX];
    gw_buffer dst = {codebook, sizeof codebook, 0};
    GOOD(gw_gcomp_histogram_init(&j->histogram, codec));
    GOOD(gw_gcomp_histogram_add(&j->histogram, codec, source, work));
    GOOD(gw_gcomp_codebook_build(&j->histogram, &dst));
    const gw_collective_shape shape = {.len = LEN, .rank_count = 1, .chunk_log2 = 12};
    gw_collective_layout layout;
    gw_collective_failure failure;
    GOOD(gw_collective_layout_init(&layout, &shape));
    const gw_collective_bucket bucket = {.layout = &layout, .codec = codec, .values = j->values};
    gw_buffer frame = {j->second, sizeof j->second, 0};
    gw_gcomp_target target = {.values = j->out, .capacity = LEN};
    if (source->quantum.map == NULL) {
        GOOD(gw_collective_reduce(&bucket, 0, NULL, &frame, &failure, work));
        GOOD(gw_collective_sum(&bucket, 0, NULL, &target, &failure, work));
    }
}

static void call_gcomp(job *j, const gw_gcomp_options *options, const gw_gcomp_map *map)
{
    gw_gcomp *const codec = &j->gcomp;
    GOOD(gw_gcomp_init(codec, options));
    const gw_workspace work = {j->work, gw_gcomp_workspace_size(codec)};
    const gw_gcomp_source source = {
        .values = j->values, .len = LEN, .quantum = gw_gcomp_quantum_of_map(map), .seed = 5};
    gw_buffer dst = {j->frame, sizeof j->frame, 0}, next = {j->second, sizeof j->second, 0};
    gw_gcomp_target target = {.values = j->out, .capacity = LEN};
    uint64_t bad;
    GOOD(gw_gcomp_encode(codec, &source, &dst, &work));
    const gw_gcomp_frame frame = {dst.data, dst.size, map};
    const gw_gcomp_frame both[2] = {frame, frame};
    GOOD(gw_gcomp_frame_check(codec, &frame, &bad, &work));
    GOOD(gw_gcomp_decode(codec, &frame, &target, &work));
    GOOD(gw_gcomp_decode_add(codec, &frame, &target, &work));
    GOOD(gw_gcomp_decode_add_frames(codec, both, 2, NULL, &target, &work));
    GOOD(gw_gcomp_decode_add_encode(codec, &frame, &source, &next, &bad, &work));
    call_rest(j, codec, &source, &work);
}

static void call_all_gcomp(job *j)
{
    gw_gcomp_map map;
    call_maps(j, &map);
    for (unsigned i = 0; i < 3u * 3 * 3 * 2; i++) {
        gw_gcomp_options options;
        const gw_gcomp_quantum_mode quantum_mode = (gw_gcomp_quantum_mode)(GW_GCOMP_EXPLICIT + i / 3 % 3);
        gw_gcomp_options_init(&options, (gw_dtype)(GW_FP32 + i % 3));
        options.quantum_mode = quantum_mode;
        options.rounding = (gw_gcomp_rounding)(GW_GCOMP_TRUNCATE + i / 9 % 3);
        options.preset = i >= 27 ? GW_GCOMP_SMALL : GW_GCOMP_FAST;
        options.chunk_log2 = 12;
        options.checksum = 1;
        options.backends = j->backends;
        if (quantum_mode != GW_GCOMP_EXPLICIT) {
            options.step = 1;
            options.cap = UINT32_MAX;
            options.dead_zone = (int)(i & 1);
        }
        if (quantum_mode == GW_GCOMP_CARRIED) {
            options.quantum = gw_gcomp_quantum_of_nmse(1e-3f);
        }
        call_gcomp(j, &options, quantum_mode == GW_GCOMP_DERIVED || i % 2 == 0 ? &map : NULL);
    }
    gw_gcomp_options options;
    gw_gcomp_options_init(&options, GW_FP32);
    options.quantum_mode = GW_GCOMP_DERIVED;
    options.chunk_log2 = 12;
    options.backends = j->backends;
    GOOD(gw_gcomp_init(&j->gcomp, &options));
    const gw_gcomp_source source = {
        .values = j->values, .len = LEN, .quantum = gw_gcomp_quantum_of_map(&map)};
    const gw_workspace work = {j->work, gw_gcomp_workspace_size(&j->gcomp)};
    GOOD(gw_gcomp_rate_init(&j->rate, GW_GCOMP_RATE_TOLERANCE));
    GOOD(gw_gcomp_rate_add(&j->rate, &j->gcomp, &source, &work));
}

static void call_thc(job *j)
{
    const gw_workspace work = {j->work, WORK_SIZE};
    for (uint32_t i = 0; i < 8; i++) {
        const gw_thc_goal goal = {.bits = 1 + i % 4, .worker_max = i < 4 ? 2000 : 4, .error_feedback = 1};
        gw_thc_options options;
        GOOD(gw_thc_options_init(&options, &goal, &work));
        options.backends = j->backends;
        options.block_log2 = i % 2 ? 13 : 6;
        GOOD(gw_thc_init(&j->thc, &options));
        const gw_thc_range range = {.len = LEN, .block_count = gw_thc_block_count(&j->thc, LEN)};
        gw_thc_source source = {.values = j->values, .error = j->state};
        uint64_t bad;
        GOOD(gw_thc_norms(&j->thc, &range, &source, j->patterns, &bad, &work));
        source.patterns = j->patterns;
        gw_buffer dst = {j->frame, sizeof j->frame, 0}, total = {j->second, sizeof j->second, 0};
        GOOD(gw_thc_frame_encode(&j->thc, &range, &source, &dst, &bad, &work));
        const gw_thc_frame frame = {dst.data, dst.size, LEN, j->backends};
        GOOD(gw_thc_frame_sum_init(&frame, 0, &total));
        GOOD(gw_thc_frame_sum_add(&total, &frame, &bad));
        const gw_thc_frame sum = {total.data, total.size, LEN, j->backends};
        gw_thc_target target = {.values = j->out, .capacity = LEN};
        GOOD(gw_thc_frame_decode(&sum, GW_THC_MEAN, &target, &work));
        GOOD(gw_thc_frame_decode(&frame, GW_THC_SUM, &target, &work));
    }
}

static void call_classic(job *j)
{
    for (uint32_t scheme = GW_CLASSIC_FP16; scheme <= GW_CLASSIC_TERNGRAD; scheme++) {
        for (uint32_t coding = 0; coding < 3; coding++) {
            const int has_coding = scheme == GW_CLASSIC_QSGD || scheme == GW_CLASSIC_TERNGRAD;
            gw_classic_options options;
            GOOD(gw_classic_options_init(&options, (gw_classic_scheme)scheme));
            options.backends = j->backends;
            options.checksum = 1;
            if (has_coding) {
                options.coding = (gw_classic_coding)(GW_CLASSIC_CODING_PACKED + coding);
            }
            if (scheme == GW_CLASSIC_TOPK || scheme == GW_CLASSIC_DGC || scheme == GW_CLASSIC_RANDK) {
                options.values = (gw_classic_values)(GW_CLASSIC_VALUES_FP32 + coding);
            }
            GOOD(gw_classic_init(&j->classic, &options));
            const uint32_t arrays = gw_classic_state_arrays(&j->classic);
            const gw_classic_step step = {.len = LEN, .keep_len = LEN / 10};
            const gw_classic_source source = {.values = j->values,
                                              .residual = arrays & GW_CLASSIC_RESIDUAL ? j->state : NULL,
                                              .momentum = arrays & GW_CLASSIC_MOMENTUM ? j->param : NULL};
            const gw_workspace work = {j->work, WORK_SIZE};
            gw_buffer dst = {j->frame, sizeof j->frame, 0};
            gw_classic_target target = {.values = j->out, .capacity = LEN};
            GOOD(gw_classic_encode(&j->classic, &step, &source, &dst, &work));
            const gw_classic_frame frame = {dst.data, dst.size, LEN, j->backends};
            GOOD(gw_classic_decode(&frame, &target, &work));
            GOOD(gw_classic_decode_add(&frame, &target, &work));
        }
    }
}

static void *run(void *argument)
{
    job *j = argument;
    uint8_t here;
    uint8_t *const top = (uint8_t *)((uintptr_t)&here & ~(uintptr_t)63);
    /* Below this frame and what memset() itself needs. */
    memset(j->stack + GUARD_SIZE, PAINT, (size_t)(top - 512 - (j->stack + GUARD_SIZE)));
    call_all_gcomp(j);
    call_thc(j);
    call_classic(j);
    const uint8_t *lowest = j->stack + GUARD_SIZE;
    while (*lowest == PAINT) {
        lowest++;
    }
    j->depth = (size_t)(top - lowest);
    return NULL;
}

/* Bytes of stack of the deepest call. */
static size_t measure(uint32_t backends)
{
    job *j = &shared;
    memset(j, 0, sizeof *j);
    j->backends = backends;
    uint32_t word = 1;
    for (size_t i = 0; i < LEN; i++) {
        word = word * 1664525u + 1013904223u;
        j->values[i] = ((float)(word >> 8) - 8388608.0f) * 1e-9f;
        j->param[i] = (float)(word >> 9) * 1e-8f;
    }
    j->stack = mmap(NULL, THREAD_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(j->stack != MAP_FAILED);
    assert_int_equal(mprotect(j->stack, GUARD_SIZE, PROT_NONE), 0);
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, j->stack, THREAD_SIZE), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    munmap(j->stack, THREAD_SIZE);
    if (j->bad != 0) {
        fail_msg("the call in line %d failed", j->bad);
    }
    return j->depth;
}

static void every_backend(void **state)
{
    (void)state;
#ifdef FRAMES_ARE_LARGER
    skip();
#endif
    const uint32_t available = gw_backends_available();
    for (uint32_t bit = 1; bit != 0 && bit <= available; bit <<= 1) {
        if (available & bit) {
            const size_t depth = measure(bit | GW_BACKEND_SCALAR);
            print_message("%-8s %6zu bytes of stack\n", gw_backend_name(bit), depth);
            assert_in_range(depth, 1000, GW_STACK_SIZE_MAX);
        }
    }
    const size_t depth = measure(GW_BACKEND_ALL);
    print_message("%-8s %6zu bytes of stack\n", "all", depth);
    assert_in_range(depth, 1000, GW_STACK_SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_backend)};
    return cmocka_run_group_tests_name("stack", tests, NULL, NULL);
}
