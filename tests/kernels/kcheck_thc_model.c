/* SPDX-License-Identifier: BSD-2-Clause */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

static int guarded(kc_test *t, kc_call *call, void *context, int flush_mode)
{
    if (flush_mode) {
        kc_flush_mode(1);
    }
    const int ok = kc_guarded(t, call, context);
    kc_flush_mode(0);
    return ok;
}

int kct_both(kc_test *t, kc_call *call, void *expected, void *got, int flush_mode)
{
    if (!guarded(t, call, expected, 0) || !guarded(t, call, got, flush_mode)) {
        return 0;
    }
    kc_check_memory(t);
    return 1;
}

size_t kct_len(const kc_test *t)
{
    return t->shape.len < KCT_LANES_MAX ? t->shape.len : KCT_LANES_MAX;
}

float *kct_place(kc_test *t, const uint8_t *src, size_t len, int in_place, const float **placed)
{
    if (in_place) {
        *placed = kct_f32(kc_inout(t, "src and dst", src, 4 * len, 0, t->shape.src, 4));
        return (float *)*placed;
    }
    *placed = kct_f32(kc_in(t, "src", src, 4 * len, 0, t->shape.src, 4));
    return kct_f32(kc_out(t, "dst", 4 * len, 0, t->shape.dst, 4));
}

double kct_double(uint32_t bits)
{
    const uint32_t e = bits >> 23 & 255, f = bits & 0x7fffff;
    const double sign = bits >> 31 != 0 ? -1.0 : 1.0;
    if (e == 255) {
        return f != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (e == 0 ? ldexp((double)f, -149) : ldexp((double)(f + 0x800000), (int)e - 150));
}

uint32_t kct_fp32(double x, int flush)
{
    const uint32_t sign = signbit(x) ? 0x80000000u : 0;
    const double magnitude = fabs(x);
    if (isnan(x)) {
        return 0x7fc00000u;
    }
    if (isinf(x)) {
        return sign | 0x7f800000u;
    }
    int exponent = -126;
    if (magnitude > 0.0) {
        frexp(magnitude, &exponent);
        exponent = exponent - 1 < -126 ? -126 : exponent - 1;
    }
    const uint64_t units = (uint64_t)nearbyint(ldexp(magnitude, 23 - exponent));
    const uint64_t bits = units + ((uint64_t)(exponent + 126) << 23);
    if (flush && bits < 0x800000) {
        return 0;
    }
    return sign | (bits >= 0x7f800000u ? 0x7f800000u : (uint32_t)bits);
}

double kct_widen_fp16(uint32_t h)
{
    const uint32_t e = h >> 10 & 31, f = h & 1023;
    const double sign = h >> 15 != 0 ? -1.0 : 1.0;
    if (e == 31) {
        return f != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (e == 0 ? ldexp((double)f, -24) : ldexp((double)(f + 1024), (int)e - 25));
}

uint32_t kct_narrow(double x, int m, int least, int top)
{
    const uint32_t sign = signbit(x) ? 0x8000u : 0, infinity = (uint32_t)top << m;
    if (isnan(x)) {
        return infinity | 1u << (m - 1);
    }
    if (isinf(x)) {
        return sign | infinity;
    }
    int exponent = least;
    if (x != 0.0) {
        frexp(x, &exponent);
        exponent = exponent - 1 < least ? least : exponent - 1;
    }
    const uint64_t bits =
        (uint64_t)nearbyint(ldexp(fabs(x), m - exponent)) + ((uint64_t)(exponent - least) << m);
    return sign | (bits >= infinity ? infinity : (uint32_t)bits);
}

void kct_equal_floats(kc_test *t, kc_failure kind, const char *name, const uint8_t *expected,
                      const uint8_t *got, size_t len)
{
    static uint8_t one[KC_ARRAY_SIZE_MAX], other[KC_ARRAY_SIZE_MAX];
    for (size_t i = 0; i < len; i++) {
        const uint32_t a = kct_load_bits(expected + 4 * i), b = kct_load_bits(got + 4 * i);
        kct_store_bits(one + 4 * i, (a & 0x7fffffff) > 0x7f800000u ? 0x7fc00000u : a);
        kct_store_bits(other + 4 * i, (b & 0x7fffffff) > 0x7f800000u ? 0x7fc00000u : b);
    }
    kc_equal(t, kind, name, one, other, len, 4);
}

void kct_floats(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern)
{
    kc_values(rng, dst, GW_FP32, len, pattern);
    for (size_t i = 0; i < len; i++) {
        kct_store_bits(dst + 4 * i, gw_load32(dst + 4 * i));
    }
}

uint32_t kct_loaded(kc_rng *rng, uint8_t *dst, size_t len, unsigned pattern, int finite)
{
    uint32_t largest = 1;
    kct_floats(rng, dst, len, pattern);
    for (size_t i = 0; i < len; i++) {
        uint32_t bits = kct_load_bits(dst + 4 * i);
        uint32_t e = bits >> 23 & 255;
        if (e == 255 && finite) {
            e = 1 + kc_below(rng, 254);
            bits = (bits & 0x807fffffu) | e << 23;
        }
        bits = e == 0 ? 0 : bits;
        largest = e > largest ? e : largest;
        kct_store_bits(dst + 4 * i, bits);
    }
    return largest;
}

void kct_stream(kc_rng *rng, gw_thc_stream *stream)
{
    /* Counters and keys whose parts are all ones or zero find carries and shifts in the wrong width. */
    static const uint32_t odd[4] = {0, 1, 0x7fffffffu, 0xffffffffu};
    stream->seed = kc_below(rng, 4) == 0 ? UINT64_MAX : kc_random(rng);
    stream->block = kc_below(rng, 4) == 0 ? odd[kc_below(rng, 4)] : (uint32_t)kc_random(rng);
    stream->round = kc_below(rng, 4) == 0 ? odd[kc_below(rng, 4)] : (uint32_t)kc_random(rng);
    stream->rank = kc_below(rng, 4) == 0 ? odd[kc_below(rng, 3)] : kc_below(rng, 65536);
}

uint32_t kct_philox(const gw_thc_stream *stream, uint32_t counter, uint32_t last, unsigned word)
{
    static gw_thc_stream known;
    static uint32_t known_counter, known_last;
    static uint64_t c[4];
    static int is_known;
    if (!is_known || known.seed != stream->seed || known.block != stream->block ||
        known.round != stream->round || known_counter != counter || known_last != last) {
        c[0] = counter;
        c[1] = stream->block;
        c[2] = stream->round;
        c[3] = last;
        for (uint64_t r = 0; r < 10; r++) {
            const uint64_t key0 = ((stream->seed & UINT32_MAX) + r * 0x9e3779b9u) & UINT32_MAX;
            const uint64_t key1 = ((stream->seed >> 32) + r * 0xbb67ae85u) & UINT32_MAX;
            const uint64_t a = 0xd2511f53u * c[0], b = 0xcd9e8d57u * c[2];
            const uint64_t next[4] = {b / 4294967296u ^ c[1] ^ key0, b % 4294967296u,
                                      a / 4294967296u ^ c[3] ^ key1, a % 4294967296u};
            memcpy(c, next, sizeof c);
        }
        known = *stream;
        known_counter = counter;
        known_last = last;
        is_known = 1;
    }
    return (uint32_t)c[word];
}

uint32_t kct_table(kc_rng *rng, uint8_t table[16], unsigned bits)
{
    const uint32_t last = (1u << bits) - 1;
    static const uint8_t usual[5] = {31, 30, 51, 63, 255};
    uint32_t g = kc_below(rng, 2) == 0 ? usual[kc_below(rng, 5)] : last + kc_below(rng, 256 - last);
    uint8_t is_value[256] = {0};
    memset(table, 0, 16);
    for (uint32_t chosen = 1; chosen < last;) { /* between 0 and g */
        const uint32_t x = 1 + kc_below(rng, g - 1);
        chosen += is_value[x] == 0;
        is_value[x] = 1;
    }
    is_value[g] = 1;
    for (uint32_t x = 1, z = 1; x <= g; x++) {
        if (is_value[x]) {
            table[z++] = (uint8_t)x;
        }
    }
    return g;
}

int kct_repeats(const kc_test *t)
{
    return t->quick && t->shape.len % 9 != 0;
}

size_t kct_power(const kc_test *t)
{
    return (size_t)64 << t->shape.config % 8;
}

size_t kct_lanes(const kc_test *t, size_t most)
{
    const size_t groups = t->shape.len < 130 ? t->shape.len % 20 : t->shape.len / 64;
    return 64 * groups < most ? 64 * groups : most;
}

uint32_t kct_lane(const uint8_t *lanes, size_t i, unsigned lane_bits)
{
    uint32_t value = 0;
    for (unsigned b = 0; b < lane_bits; b += 8) {
        value |= (uint32_t)lanes[i * (lane_bits / 8) + b / 8] << b;
    }
    return value;
}

void kct_put_lane(uint8_t *lanes, size_t i, unsigned lane_bits, uint32_t value)
{
    for (unsigned b = 0; b < lane_bits; b += 8) {
        lanes[i * (lane_bits / 8) + b / 8] = (uint8_t)(value >> b);
    }
}

unsigned kct_bit_place(unsigned i, unsigned bit, unsigned bits)
{
    switch (bits) {
    case 1:
        return 8 * (i % 8) + i / 8;
    case 2:
        return 8 * (i % 16) + 2 * (i / 16) + bit;
    case 3:
        return bit < 2 ? 8 * (i % 16) + 2 * (i / 16) + bit : 128 + 8 * (i % 8) + i / 8;
    default:
        return 8 * (i % 32) + 4 * (i / 32) + bit;
    }
}
