/*
 * Quantize and pack. The model rounds by the share of a gap in sixteen bits, u < floor(r / d + 1/2), and
 * moves single bits.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "kcheck_thc.h"

#include <math.h>
#include <string.h>

KC_SELECT_THC(quantize);
KC_SELECT_THC(pack);

/* ---- quantize ------------------------------------------------------------------------------------------ */

typedef struct quantize_call {
    gw_thc_quantize_fn *fn;
    uint8_t *index;
    const float *x;
    size_t len;
    gw_thc_quantizer quantizer;
    gw_thc_stream stream;
} quantize_call;

static void call_quantize(void *context)
{
    const quantize_call *c = (const quantize_call *)context;
    c->fn(c->index, c->x, c->len, &c->quantizer, &c->stream);
}

/* The largest z with table[z] <= cell, for all 256 cells as a context has them. */
static void fill_cells(uint8_t cell[256], const uint8_t table[16], unsigned index_max, uint32_t granularity)
{
    memset(cell, 0, 256);
    for (unsigned c = 0; c <= granularity; c++) {
        for (unsigned z = 0; z <= index_max; z++) {
            cell[c] = (uint8_t)(table[z] <= c ? z : cell[c]);
        }
    }
}

static uint32_t model_random(const gw_thc_stream *stream, size_t v)
{
    /* v = 128 b + 32 w + 16 h + l */
    const uint32_t counter = (uint32_t)(v / 128 * 16 + v % 16);
    const uint32_t word = kct_philox(stream, counter, 0x80000000u | stream->rank, (unsigned)(v / 32 % 4));
    return v / 16 % 2 != 0 ? word / 65536 : word % 65536;
}

static uint8_t model_quantize(double x, const gw_thc_quantizer *q, uint32_t granularity, uint32_t u)
{
    double position = kct_double(kct_fp32(x * (double)q->scale, 0));
    position = position > (double)q->high  ? (double)q->high
               : position < (double)q->low ? (double)q->low
                                           : position;
    position = trunc(position) + q->offset;
    unsigned z = 0;
    while (z < q->index_max && 65536.0 * q->table[z + 1] <= position) {
        z++;
    }
    if (q->table[z] == granularity) {
        return (uint8_t)z;
    }
    const double gap = (double)q->table[z + 1] - q->table[z];
    const double share = (position - 65536.0 * q->table[z]) / gap; /* of 65536; off a tie by 1/510 at least */
    return (uint8_t)(z + (u < floor(share + 0.5 + 1e-6)));
}

/* Both forms of quantizers that exist: around the middle for rotated blocks, from 0 on for plain ones. */
static uint32_t random_quantizer(kc_rng *rng, gw_thc_quantizer *q, uint8_t cell[256], uint8_t table[16],
                                 unsigned bits)
{
    const uint32_t g = kct_table(rng, table, bits);
    const int is_plain = kc_below(rng, 3) == 0;
    fill_cells(cell, table, (1u << bits) - 1, g);
    q->low = is_plain ? 0.0f : -32768.0f * (float)g;
    q->high = is_plain ? 65536.0f * (float)g : 32768.0f * (float)g;
    q->offset = is_plain ? 0 : (int32_t)(32768 * g);
    q->cell = cell;
    q->table = table;
    q->index_max = (1u << bits) - 1;
    q->scale = (float)ldexp(q->high * (1.0 + kc_below(rng, 1u << 20) * 0x1p-20), -(int)kc_below(rng, 7));
    if (kc_below(rng, 8) == 0) {
        q->scale = 0.0f;
    } else if (kc_below(rng, 8) == 0) {
        q->scale = (float)ldexp(1.0, (int)kc_below(rng, 140) - 126);
    }
    return g;
}

enum { X_PATTERNS = 8 };

static float random_x(kc_rng *rng, const gw_thc_quantizer *q, uint32_t granularity, unsigned pattern)
{
    const double unit = (double)kc_below(rng, UINT32_MAX) * 0x1p-32;
    const double span = q->scale == 0.0f ? 4.0 : ((double)q->high - (double)q->low) / (double)q->scale;
    const double start = q->scale == 0.0f ? -2.0 : (double)q->low / (double)q->scale;
    double x;
    switch (pattern) {
    case 0:
        return 0.0f;
    case 1: /* on table values and a little beside them */
        x = start + span * q->table[kc_below(rng, q->index_max + 1)] / granularity;
        x += ((double)kc_below(rng, 5) - 2.0) * span / (65536.0 * granularity);
        break;
    case 2: /* far outside */
        x = ldexp(unit - 0.5, 40);
        break;
    case 3: /* ends of the range */
        x = start + span * (kc_below(rng, 2) + (unit - 0.5) * 1e-4);
        break;
    case 4: /* all magnitudes that a window lets through */
        x = ldexp(unit - 0.5, 14 - (int)kc_below(rng, 90));
        break;
    case 5: /* halves of gaps in sixteen bits: where the comparison is close */
        x = start + span * (kc_below(rng, 65536u * granularity) + 0.5) / (65536.0 * granularity);
        break;
    default:
        x = start + span * unit;
        break;
    }
    const uint32_t bits = kct_fp32(x, 1);
    return gw_float_from_bits((bits & 0x7fffffff) >= 0x7f800000u ? 0x7f7fffffu : bits);
}

static void quantize_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned bits = 1 + s->config % 4;
    const int flush_mode = s->config / 4 != 0;
    const size_t len = kct_lanes(t, KCT_LANES_MAX);
    static uint8_t table[16];
    uint8_t *x = kc_plain(0);
    quantize_call expected;
    memset(&expected, 0, sizeof expected);
    const uint32_t g = random_quantizer(&t->rng, &expected.quantizer, kc_plain(1), table, bits);
    for (size_t i = 0; i < len; i++) {
        const float value = random_x(&t->rng, &expected.quantizer, g, s->pattern);
        memcpy(x + 4 * i, &value, 4);
    }
    kct_stream(&t->rng, &expected.stream);
    kc_describe(t, "%zu lanes, %u bits, granularity %u, flush mode %d, pattern %u", len, bits, g, flush_mode,
                s->pattern);

    expected.fn = (gw_thc_quantize_fn *)t->reference;
    expected.index = kc_plain(2);
    expected.x = kct_f32(x);
    expected.len = len;
    quantize_call got = expected;
    got.fn = (gw_thc_quantize_fn *)t->fn;
    got.x = kct_f32(kc_in(t, "x", x, 4 * len, 0, s->src, 4));
    got.index = kc_out(t, "index", len, 0, s->dst, 1);
    got.quantizer.cell = kc_in(t, "cell", kc_plain(1), 256, 0, kc_place_other(t), 1);
    got.quantizer.table = kc_in(t, "table", table, 16, 0, kc_place_other(t), 1);
    if (!kct_both(t, call_quantize, &expected, &got, flush_mode)) {
        return;
    }
    kc_equal(t, KC_OUTPUT, "index", expected.index, got.index, len, 1);
    if (t->is_reference) {
        uint8_t *model = kc_plain(3);
        for (size_t i = 0; i < len; i++) {
            model[i] = model_quantize(kct_double(kct_load_bits(x + 4 * i)), &expected.quantizer, g,
                                      model_random(&expected.stream, i));
        }
        kc_equal(t, KC_MODEL, "index", model, got.index, len, 1);
    }
}

static void test_quantize(kc_test *t)
{
    kc_walk(t, 8, X_PATTERNS, quantize_body);
}

static void bench_quantize(kc_test *t)
{
    static const uint8_t table[16] = {0, 3, 5, 7, 9, 11, 13, 15, 16, 18, 20, 22, 24, 26, 28, 31};
    kc_rng rng = {1};
    const float half = 32768.0f * 31.0f;
    quantize_call call = {(gw_thc_quantize_fn *)t->fn,
                          kc_plain(2),
                          kct_f32(kc_plain(0)),
                          t->kernel->bench_len,
                          {half / 3.0f, -half, half, 32768 * 31, kc_plain(1), table, 15},
                          {1, 2, 3, 4}};
    fill_cells(kc_plain(1), table, 15, 31);
    for (size_t i = 0; i < t->kernel->bench_len; i++) {
        const double x = kc_below(&rng, 1u << 24) + kc_below(&rng, 1u << 24) - 0x1p24;
        kct_store_bits(kc_plain(0) + 4 * i, kct_fp32(ldexp(x, -22), 1));
    }
    kc_bench(t, call_quantize, &call);
}

/* ---- pack ---------------------------------------------------------------------------------------------- */

typedef struct pack_call {
    gw_thc_pack_fn *fn;
    uint8_t *dst;
    const uint8_t *index;
    size_t len;
    unsigned bits;
} pack_call;

static void call_pack(void *context)
{
    const pack_call *c = (const pack_call *)context;
    c->fn(c->dst, c->index, c->len, c->bits);
}

static void pack_body(kc_test *t)
{
    const kc_shape *s = &t->shape;
    const unsigned bits = 1 + s->config % 4;
    const size_t len = kct_lanes(t, KC_LEN_MAX), size = len / 8 * bits;
    uint8_t *index = kc_plain(0);
    for (size_t i = 0; i < len; i++) {
        const uint32_t one = kc_below(&t->rng, 1u << bits);
        index[i] = (uint8_t)(s->pattern == 0   ? one
                             : s->pattern == 1 ? (1u << bits) - 1
                                               : (i + len) % (1u << bits));
    }
    kc_describe(t, "%zu lanes, %u bits, pattern %u", len, bits, s->pattern);

    pack_call expected = {(gw_thc_pack_fn *)t->reference, kc_plain(2), index, len, bits};
    pack_call got = expected;
    got.fn = (gw_thc_pack_fn *)t->fn;
    got.index = kc_in(t, "index", index, len, 0, s->src, 1);
    got.dst = kc_out(t, "dst", size, 0, s->dst, 1);
    if (!kc_guarded(t, call_pack, &expected) || !kc_guarded(t, call_pack, &got)) {
        return;
    }
    kc_check_memory(t);
    kc_equal(t, KC_OUTPUT, "dst", expected.dst, got.dst, size, 1);
    if (t->is_reference) {
        uint8_t *model = kc_plain(3);
        memset(model, 0, size);
        for (size_t i = 0; i < len; i++) {
            for (unsigned bit = 0; bit < bits; bit++) {
                const size_t at = i / 64 * 64 * bits + kct_bit_place((unsigned)(i % 64), bit, bits);
                model[at / 8] = (uint8_t)(model[at / 8] | ((uint32_t)index[i] >> bit & 1) << at % 8);
            }
        }
        kc_equal(t, KC_MODEL, "dst", model, got.dst, size, 1);
    }
}

static void test_pack(kc_test *t)
{
    kc_walk(t, 4, 3, pack_body);
}

static void bench_pack(kc_test *t)
{
    kc_rng rng = {1};
    for (size_t i = 0; i < t->kernel->bench_len; i++) {
        kc_plain(0)[i] = (uint8_t)kc_below(&rng, 16);
    }
    pack_call call = {(gw_thc_pack_fn *)t->fn, kc_plain(2), kc_plain(0), t->kernel->bench_len, 4};
    kc_bench(t, call_pack, &call);
}

const kc_kernel kc_thc_quantize_family[] = {
    {"thc_quantize", select_quantize, test_quantize, bench_quantize, 1024},
    {"thc_pack", select_pack, test_pack, bench_pack, 1024},
    {NULL, NULL, NULL, NULL, 0},
};
