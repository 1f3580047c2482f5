/*
 * CRC32C: known answers, a bit-by-bit model, and continuation over any cut.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_families.h"

#include <string.h>

KC_SELECT_MEMBER(crc32c, crc32c);

typedef struct crc_call {
    gw_crc32c_fn *fn;
    uint32_t crc;
    const uint8_t *src;
    size_t size;
    uint32_t result;
} crc_call;

static void call_crc(void *context)
{
    crc_call *c = (crc_call *)context;
    c->result = c->fn(c->crc, c->src, c->size);
}

/* Division by the polynomial, one bit at a time, most significant first, on reflected data. */
static uint32_t model_crc(uint32_t crc, const uint8_t *src, size_t size)
{
    crc = ~crc;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        const uint32_t feedback = (crc ^ (uint32_t)src[bit / 8] >> bit % 8) & 1;
        crc = crc >> 1 ^ (feedback != 0 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    uint8_t *src = kc_plain(0);
    switch (s->pattern) {
    case 0:
        memset(src, 0, s->len);
        break;
    case 1:
        memset(src, 255, s->len);
        break;
    default:
        kc_random_bytes(&t->rng, src, s->len);
        break;
    }
    const uint32_t start = s->config == 0 ? 0 : (uint32_t)kc_random(&t->rng);
    kc_describe(t, "crc %08x, pattern %u", start, s->pattern);

    crc_call expected = {(gw_crc32c_fn *)t->reference, start, src, s->len, 0};
    crc_call got = {(gw_crc32c_fn *)t->fn, start, kc_in(t, "src", src, s->len, 0, s->src, 1), s->len, 0};
    if (!kc_guarded(t, call_crc, &expected) || !kc_guarded(t, call_crc, &got)) {
        return;
    }
    kc_equal_number(t, KC_OUTPUT, "crc", expected.result, got.result);
    /* The same in two parts. */
    crc_call head = got, tail = got;
    head.size = kc_below(&t->rng, (uint32_t)s->len + 1);
    if (!kc_guarded(t, call_crc, &head)) {
        return;
    }
    tail.crc = head.result;
    tail.src = got.src + head.size;
    tail.size = s->len - head.size;
    if (!kc_guarded(t, call_crc, &tail)) {
        return;
    }
    kc_equal_number(t, KC_OUTPUT, "crc of two parts", expected.result, tail.result);
    kc_check_memory(t);
    if (t->is_reference && s->len <= 4096) {
        kc_equal_number(t, KC_MODEL, "crc", model_crc(start, src, s->len), got.result);
    }
}

/* RFC 3720 B.4, and the check value of the polynomial's catalogue entry. */
static void check_known(kc_test *t)
{
    uint8_t bytes[32];
    gw_crc32c_fn *fn = (gw_crc32c_fn *)t->fn;
    memset(&t->shape, 0, sizeof t->shape);
    t->array_count = 0;
    t->case_failed = 0;
    t->case_messages = 0;
    kc_describe(t, "known answers");
    memset(bytes, 0, sizeof bytes);
    crc_call call = {fn, 0, bytes, 32, 0};
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "32 bytes 00", 0x8a9136aau, call.result);
    }
    memset(bytes, 255, sizeof bytes);
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "32 bytes ff", 0x62a8ab43u, call.result);
    }
    for (unsigned i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "bytes 00..1f", 0x46dd794eu, call.result);
    }
    for (unsigned i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "bytes 1f..00", 0x113fdb5cu, call.result);
    }
    memcpy(bytes, "123456789", 9);
    call.size = 9;
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "\"123456789\"", 0xe3069283u, call.result);
    }
    call.src = NULL;
    call.size = 0;
    call.crc = 0x12345678;
    if (kc_guarded(t, call_crc, &call)) {
        kc_equal_number(t, KC_MODEL, "nothing", 0x12345678, call.result);
    }
    t->failed_cases += (unsigned long)t->case_failed;
    t->cases++;
}

static void test_crc32c(kc_test *t)
{
    check_known(t);
    kc_walk(t, 2, 4, body);
}

static void bench_crc32c(kc_test *t)
{
    kc_rng rng = {1};
    kc_random_bytes(&rng, kc_plain(0), t->kernel->bench_len);
    crc_call call = {(gw_crc32c_fn *)t->fn, 0, kc_plain(0), t->kernel->bench_len, 0};
    kc_bench(t, call_crc, &call);
}

const kc_kernel kc_crc32c_family[] = {
    {"crc32c", select_crc32c, test_crc32c, bench_crc32c, 65536},
    {NULL, NULL, NULL, NULL, 0},
};
