/* SPDX-License-Identifier: BSD-2-Clause */
#include "gcomp_support.h"

#include <math.h>

/* ---- random numbers ------------------------------------------------------------------------------------ */

uint64_t test_random_u64(test_random *random)
{
    uint64_t x = random->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t test_random_below(test_random *random, uint32_t end)
{
    return (uint32_t)((test_random_u64(random) >> 32) * end >> 32);
}

double test_random_unit(test_random *random)
{
    return (double)(test_random_u64(random) >> 11) * 0x1p-53;
}

double test_random_normal(test_random *random)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += test_random_unit(random);
    }
    return sum;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

typedef struct shape {
    unsigned size, mantissa, special, bias; /* special: exponent field of infinity; bias: to fp32's */
    uint32_t explicit_step;
} shape;

static shape shape_of(gw_dtype dtype)
{
    static const shape fp32 = {4, 23, 255, 0, 6}, bf16 = {2, 7, 255, 0, 2}, fp16 = {2, 10, 31, 112, 3};
    return dtype == GW_FP32 ? fp32 : dtype == GW_BF16 ? bf16 : fp16;
}

uint32_t test_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

float test_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

uint32_t test_get(const void *values, gw_dtype dtype, size_t index)
{
    const uint8_t *p = (const uint8_t *)values;
    if (dtype == GW_FP32) {
        p += 4 * index;
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    p += 2 * index;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

void test_put(void *values, gw_dtype dtype, size_t index, uint32_t bits)
{
    const unsigned size = shape_of(dtype).size;
    uint8_t *p = (uint8_t *)values + size * index;
    for (unsigned i = 0; i < size; i++) {
        p[i] = (uint8_t)(bits >> 8 * i);
    }
}

/* 2^n without libm. */
static double power_of_two(int n)
{
    double x = 1.0;
    for (; n > 0; n--) {
        x *= 2.0;
    }
    for (; n < 0; n++) {
        x *= 0.5;
    }
    return x;
}

double test_value(gw_dtype dtype, uint32_t bits)
{
    const shape s = shape_of(dtype);
    const uint32_t sign_bit = 1u << (8 * s.size - 1);
    const uint32_t exponent = (bits & (sign_bit - 1)) >> s.mantissa;
    const uint32_t mantissa = bits & ((1u << s.mantissa) - 1);
    double x;
    if (exponent == s.special) {
        x = (double)test_float_of_bits(mantissa != 0 ? 0x7fc00000u : 0x7f800000u);
    } else if (exponent == 0) {
        x = (double)mantissa * power_of_two(1 + (int)s.bias - 127 - (int)s.mantissa);
    } else {
        x = (double)(mantissa + (1u << s.mantissa)) *
            power_of_two((int)(exponent + s.bias) - 127 - (int)s.mantissa);
    }
    return (bits & sign_bit) != 0 ? -x : x;
}

/* fp32 to the dtype by cutting: only to make test data. */
static uint32_t cut_float(gw_dtype dtype, float x)
{
    const uint32_t bits = test_bits_of_float(x);
    if (dtype == GW_FP32) {
        return bits;
    }
    if (dtype == GW_BF16) {
        return bits >> 16;
    }
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t exponent = bits >> 23 & 255;
    if (exponent <= 112) { /* into the subnormals: 2^-24 steps */
        double y = (double)test_float_of_bits(bits & 0x7fffffff) * 0x1p24;
        return sign | (y < 1023.0 ? (uint32_t)y : 1023);
    }
    return exponent >= 143 ? sign | 0x7bff : sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
}

/* ---- values -------------------------------------------------------------------------------------------- */

static uint32_t special_value(gw_dtype dtype, test_random *random)
{
    const shape s = shape_of(dtype);
    const uint32_t sign = test_random_below(random, 2) << (8 * s.size - 1);
    const uint32_t infinity = s.special << s.mantissa;
    const uint32_t ones = (1u << s.mantissa) - 1;
    const uint32_t payload = (uint32_t)test_random_u64(random) & ones;
    switch (test_random_below(random, 10)) {
    case 0:
        return sign; /* zero of either sign */
    case 1:
        return sign | 1; /* smallest subnormal */
    case 2:
        return sign | ones; /* largest subnormal */
    case 3:
        return sign | (payload == 0 ? 1 : payload); /* any subnormal */
    case 4:
        return sign | infinity;
    case 5:
        return sign | infinity | 1; /* signalling NaN, lowest payload */
    case 6:
        return sign | infinity | 1u << (s.mantissa - 1); /* quiet NaN */
    case 7:
        return sign | infinity | (payload == 0 ? 1 : payload);
    case 8:
        return sign | (infinity - 1); /* largest finite value */
    default:
        return sign | 1u << s.mantissa; /* smallest normal value */
    }
}

static uint32_t gradient_value(gw_dtype dtype, test_random *random)
{
    if (test_random_below(random, 16) == 0) {
        return 0;
    }
    const double octaves = -4.0 - 12.0 * test_random_unit(random) * test_random_unit(random);
    return cut_float(dtype, (float)(test_random_normal(random) * power_of_two((int)octaves)));
}

void test_fill_values(void *values, gw_dtype dtype, size_t len, test_pattern pattern, uint64_t seed)
{
    test_random random = {seed * 1000003u + (uint64_t)pattern * 101u + (uint64_t)dtype};
    const shape s = shape_of(dtype);
    const uint32_t all = dtype == GW_FP32 ? 0xffffffffu : 0xffffu;
    for (size_t i = 0; i < len; i++) {
        uint32_t bits = 0;
        switch (pattern) {
        case PATTERN_GRADIENT:
            bits = gradient_value(dtype, &random);
            break;
        case PATTERN_BITS:
            bits = (uint32_t)test_random_u64(&random) & all;
            break;
        case PATTERN_SPARSE:
            if (i / 5000 % 7 == 3) {
                bits = gradient_value(dtype, &random);
            } else if (test_random_below(&random, 3000) == 0) {
                bits = special_value(dtype, &random);
            }
            break;
        case PATTERN_SPECIAL:
            bits = test_random_below(&random, 24) == 0 ? special_value(dtype, &random)
                                                       : gradient_value(dtype, &random);
            break;
        case PATTERN_ONE:
            bits = ((s.special / 2) << s.mantissa |
                    ((uint32_t)test_random_u64(&random) & ((1u << s.mantissa) - 1))) |
                   test_random_below(&random, 2) << (8 * s.size - 1);
            break;
        default:
            break;
        }
        test_put(values, dtype, i, bits);
    }
}

void test_map_make(test_map *map, gw_dtype dtype, size_t len, uint32_t chunk_log2, uint64_t seed)
{
    (void)dtype;
    test_random random = {seed};
    const size_t chunks = (len >> chunk_log2) + 1;
    map->bytes = malloc(len + 1);
    map->digest = malloc(chunks * 4);
    assert_non_null(map->bytes);
    assert_non_null(map->digest);
    /* Gradients of test_fill_values lie around quarter-octave 4 * 118; K + base - 1 - G then runs over all
     * drops. */
    map->map.base = 4 * 127 - 150;
    map->map.wire_scale = 8.0f;
    for (size_t i = 0; i < len; i++) {
        const uint32_t choice = test_random_below(&random, 20);
        map->bytes[i] = (uint8_t)(choice == 0 ? 0 : choice == 1 ? 255 : 60 + test_random_below(&random, 190));
    }
    assert_int_equal(gw_gcomp_map_digest(map->bytes, len, chunk_log2, map->digest), GW_OK);
    map->map.bytes = map->bytes;
    map->map.digest = map->digest;
    map->map.len = len;
    map->map.chunk_log2 = chunk_log2;
}

void test_map_free(test_map *map)
{
    free(map->bytes);
    free(map->digest);
}

/* ---- models -------------------------------------------------------------------------------------------- */

void test_philox(uint32_t out[4], uint64_t key, const uint32_t counter[4], int rounds)
{
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < rounds; round++) {
        const uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* floor(x / y) for y > 0. */
static int floor_div(int x, int y)
{
    return x >= 0 ? x / y : -((-x + y - 1) / y);
}

int test_model_quantum(const gw_gcomp_options *o, const gw_gcomp_source *source, size_t index)
{
    if (o->quantum_mode == GW_GCOMP_CARRIED) { /* quanta given by the caller, close enough to each other */
        const uint8_t exponent = source->quantum.blocks[index >> o->block_log2];
        const int most = o->dtype == GW_FP16 ? 142 : 254;
        return exponent == 0 ? TEST_NO_QUANTUM : exponent > most ? most : exponent;
    }
    const int k = source->quantum.map->bytes[index];
    /* 2^(floor(log2(ratio)) - t), the ratio being at least that of its quarter-octave */
    return k == 0 ? TEST_NO_QUANTUM
                  : floor_div(k + (int)source->quantum.map->base, 4) - (int)o->tolerance_bits;
}

/* Rounding of a value below its quantum to 0 or the quantum. Returns 0 if it is not such a value. */
static int model_dead_zone(uint32_t *rounded, const gw_gcomp_options *o, const gw_gcomp_source *source,
                           size_t index, uint32_t random)
{
    const shape s = shape_of(o->dtype);
    const uint32_t magnitude = test_get(source->values, o->dtype, index) & ((1u << (8 * s.size - 1)) - 1);
    const uint32_t field = magnitude >> s.mantissa;
    int quantum = test_model_quantum(o, source, index);
    if (quantum == TEST_NO_QUANTUM || field == s.special || magnitude == 0 ||
        (field == 0 && o->dtype != GW_FP16)) {
        return 0;
    }
    const int last = (int)s.special - 1 + (int)s.bias;
    quantum = quantum > last ? last : quantum;
    const int octaves = quantum - (int)(field == 0 ? 1 : field) - (int)s.bias;
    if (octaves <= 0) {
        return 0;
    }
    const double significand =
        (double)((magnitude & ((1u << s.mantissa) - 1)) + (field != 0 ? 1u << s.mantissa : 0));
    const double share = significand / power_of_two((int)s.mantissa + octaves);
    const int up = o->rounding == GW_GCOMP_STOCHASTIC ? (double)random < floor(share * 4294967296.0)
                   : o->rounding == GW_GCOMP_NEAREST  ? share > 0.5
                                                      : 0;
    *rounded = up ? (uint32_t)(quantum - (int)s.bias) << s.mantissa : 0;
    return 1;
}

static uint32_t model_drop(const gw_gcomp_options *o, const gw_gcomp_source *source, size_t index,
                           uint32_t magnitude)
{
    const shape s = shape_of(o->dtype);
    const uint32_t exponent = magnitude >> s.mantissa;
    if (exponent == s.special || (exponent == 0 && o->dtype != GW_FP16)) {
        return 0;
    }
    const int e = (int)((o->dtype == GW_FP16 && exponent == 0 ? 1 : exponent) + s.bias);
    if (o->quantum_mode != GW_GCOMP_EXPLICIT &&
        (o->quantum_mode == GW_GCOMP_CARRIED || source->quantum.map != NULL)) {
        const int quantum = test_model_quantum(o, source, index);
        const int n = quantum == TEST_NO_QUANTUM ? 0 : quantum + (int)s.mantissa - e;
        const uint32_t drop = n <= 0 ? 0 : (uint32_t)n < o->cap ? (uint32_t)n : o->cap;
        return drop / o->step * o->step;
    }
    if (source->quantum.map == NULL) {
        return o->quantum.drop;
    }
    const int k = source->quantum.map->bytes[index];
    const int top2 = (int)(magnitude >> (s.mantissa - 2) & 3);
    const int drop_offset =
        (int)source->quantum.map->base - 1 - 4 * ((int)o->tolerance_bits - (int)s.mantissa);
    const int n = floor_div(k + drop_offset - (4 * e + top2), 4);
    if (k == 0 || n <= 0) {
        return 0;
    }
    const uint32_t drop = (uint32_t)n < o->cap ? (uint32_t)n : o->cap;
    return drop / o->step * o->step;
}

uint32_t test_model_round(const gw_gcomp_options *o, const gw_gcomp_source *source, size_t index,
                          uint32_t *seen_drop)
{
    const shape s = shape_of(o->dtype);
    const uint32_t value = test_get(source->values, o->dtype, index);
    uint32_t sign = value >> (8 * s.size - 1);
    uint64_t magnitude = value & ((1u << (8 * s.size - 1)) - 1);
    if (seen_drop != NULL) {
        *seen_drop = 0;
    }
    if (o->dtype != GW_FP16 && magnitude >> s.mantissa == 0 && !o->strict) {
        return 0;
    }
    const uint32_t drop = model_drop(o, source, index, (uint32_t)magnitude);
    const uint64_t unit = (uint64_t)1 << drop;
    const uint64_t rest = magnitude % unit;
    uint64_t rounded = magnitude - rest;
    const uint64_t element = source->first_element + index;
    const uint32_t counter[4] = {(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), source->step_index,
                                 (uint32_t)source->rank << 16 | source->hop};
    uint32_t words[4], dead_zone = 0;
    test_philox(words, source->seed, counter, TEST_RANDOM_ROUNDS);
    uint32_t random = words[element % 4];
    if (element % 8 >= 4) {
        random = (random & 0xFFFF) << 16 | random >> 16;
    }
    if (o->rounding == GW_GCOMP_NEAREST) {
        if (2 * rest > unit || (2 * rest == unit && drop != 0 && rounded / unit % 2 == 1)) {
            rounded += unit;
        }
    } else if (o->rounding == GW_GCOMP_STOCHASTIC) {
        if (rest + (random * unit >> 32) >= unit) {
            rounded += unit;
        }
    }
    if (rounded >> s.mantissa == s.special && drop != 0) {
        rounded = magnitude - rest;
    }
    if (o->dead_zone && (source->quantum.map != NULL || o->quantum_mode == GW_GCOMP_CARRIED) &&
        model_dead_zone(&dead_zone, o, source, index, random)) {
        rounded = dead_zone;
        sign = dead_zone == 0 ? 0 : sign;
    }
    if (o->dtype == GW_FP16 && rounded == 0 && !o->strict) {
        sign = 0;
    }
    if (seen_drop != NULL) {
        *seen_drop = o->quantum_mode != GW_GCOMP_EXPLICIT &&
                             (source->quantum.map != NULL || o->quantum_mode == GW_GCOMP_CARRIED) && drop != 0
                         ? model_drop(o, source, index, (uint32_t)rounded)
                         : drop;
    }
    return sign << (8 * s.size - 1) | (uint32_t)rounded;
}

/* Round to nearest even of a finite double to fp16, by its definition: the nearest multiple of the local
 * unit. */
static uint32_t narrow_fp16(double x)
{
    const double magnitude = x < 0 ? -x : x;
    const uint32_t sign = x < 0 ? 0x8000 : 0;
    if (magnitude >= 65520.0) {
        return sign | 0x7c00;
    }
    int exponent = -14;
    while (magnitude >= power_of_two(exponent + 1)) {
        exponent++;
    }
    const double units = magnitude / power_of_two(exponent - 10); /* exact */
    uint32_t n = (uint32_t)units;
    const double rest = units - (double)n;
    if (rest > 0.5 || (rest == 0.5 && n % 2 == 1)) {
        n++;
    }
    /* n = 2^10 .. 2^11 in a normal octave, below 2^10 among the subnormals: fields follow by addition. */
    return sign | (uint32_t)((exponent + 14) * 1024 + (int)n);
}

static uint32_t flush32(uint32_t bits, int strict)
{
    return !strict && (bits & 0x7f800000u) == 0 ? 0 : bits;
}

uint32_t test_model_add(gw_dtype dtype, uint32_t a, uint32_t b, int strict)
{
    if (dtype == GW_FP16) {
        const double x = test_value(dtype, a), y = test_value(dtype, b);
        const double sum = x + y; /* exact in double, for all finite fp16 */
        if (sum != sum) {
            return 0x7e00;
        }
        if (sum > 1e9 || sum < -1e9) {
            return sum > 0 ? 0x7c00 : 0xfc00;
        }
        if (sum == 0.0) {
            return strict && a == 0x8000 && b == 0x8000 ? 0x8000 : 0;
        }
        return narrow_fp16(sum);
    }
    const unsigned shift = dtype == GW_BF16 ? 16 : 0;
    const float x = test_float_of_bits(flush32(a << shift, strict)),
                y = test_float_of_bits(flush32(b << shift, strict));
    volatile float sum = x + y;
    if (sum != sum) {
        return dtype == GW_BF16 ? 0x7fc0 : 0x7fc00000u;
    }
    const uint32_t bits = flush32(test_bits_of_float(sum), strict);
    if (dtype == GW_FP32) {
        return bits;
    }
    uint32_t high = bits >> 16;
    const uint32_t low = bits & 0xffff;
    if (low > 0x8000 || (low == 0x8000 && high % 2 == 1)) {
        high++;
    }
    return high;
}

/* ---- buffers ------------------------------------------------------------------------------------------- */

enum { CANARY_SIZE = 192, CANARY = 0xc7 };

void test_buffer_make(test_buffer *buffer, size_t size, unsigned misalign, uint8_t fill)
{
    buffer->size = size;
    buffer->block = malloc(size + 2 * CANARY_SIZE + 64);
    assert_non_null(buffer->block);
    memset(buffer->block, CANARY, size + 2 * CANARY_SIZE + 64);
    const uintptr_t address = (uintptr_t)buffer->block + CANARY_SIZE;
    buffer->at = buffer->block + CANARY_SIZE + (64 - address % 64 + misalign) % 64;
    memset(buffer->at, fill, size);
}

void test_buffer_check(const test_buffer *buffer)
{
    const uint8_t *end = buffer->block + buffer->size + 2 * CANARY_SIZE + 64;
    for (const uint8_t *p = buffer->block; p < end; p++) {
        if (p == buffer->at) {
            p += buffer->size;
        }
        if (*p != CANARY) {
            fail_msg("byte %td outside of a buffer of %zu was written", p - buffer->at, buffer->size);
        }
    }
}

void test_buffer_free(test_buffer *buffer)
{
    test_buffer_check(buffer);
    free(buffer->block);
    buffer->block = NULL;
}

void test_codec_make(test_codec *codec, const gw_gcomp_options *options)
{
    static const uint32_t cap_max[4][2] = {{0, 0}, {18, 23}, {6, 7}, {9, 10}};
    assert_int_equal(gw_gcomp_init(&codec->codec, options), GW_OK);
    codec->options = *options;
    gw_gcomp_options *o = &codec->options;
    if (o->step == 0) {
        o->step = o->quantum_mode != GW_GCOMP_EXPLICIT ? 1 : shape_of(o->dtype).explicit_step;
    }
    if (o->cap == UINT32_MAX) {
        o->cap = cap_max[o->dtype][o->quantum_mode != GW_GCOMP_EXPLICIT];
    }
    o->cap -= o->cap % o->step;
    o->quantum.drop = o->quantum.drop < o->cap ? o->quantum.drop : o->cap;
    o->quantum.drop -= o->quantum.drop % o->step;
    const size_t size = gw_gcomp_workspace_size(&codec->codec);
    assert_true(size > 0 && size <= (size_t)1 << 20);
    test_buffer_make(&codec->workspace, size, 1, 0x5a);
    codec->work = (gw_workspace){codec->workspace.at, size};
}

void test_codec_free(test_codec *codec)
{
    test_buffer_free(&codec->workspace);
}

gw_gcomp_source test_source(const void *values, size_t len, const gw_gcomp_map *map)
{
    gw_gcomp_source source;
    memset(&source, 0, sizeof source);
    source.values = values;
    source.len = len;
    source.quantum = gw_gcomp_quantum_of_map(map);
    source.seed = 0x0123456789abcdefu;
    source.first_element = 1001;
    source.step_index = 77;
    source.rank = 5;
    source.hop = 3;
    return source;
}

size_t test_encode(const test_codec *codec, const gw_gcomp_source *source, test_buffer *frame)
{
    const size_t bound = gw_gcomp_frame_bound(&codec->codec, source->len);
    assert_true(bound > 0);
    test_buffer_make(frame, bound, 3, 0xee);
    gw_buffer out = {frame->at, bound, 1};
    assert_int_equal(gw_gcomp_encode(&codec->codec, source, &out, &codec->work), GW_OK);
    assert_true(out.size <= bound);
    test_buffer_check(frame);
    test_buffer_check(&codec->workspace);
    return out.size;
}
