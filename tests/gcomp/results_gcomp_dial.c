/*
 * Prints docs/results/gcomp-dial.tsv: bits a value and error of GCOMP by tolerance, noise limit and target
 * NMSE, beside simple versions of other ways to send gradients, for the snapshots on the command line.
 * bench/gcomp/results_gcomp_dial.py makes the page and the plot of it.
 *
 *   results_gcomp_dial SNAPSHOT.json...
 *
 * Every byte of a gradwire frame counts. Columns: nmse is the squared error over the sum of the squared
 * values of the whole snapshot, nmse_median the median of that over its tensors. v_mean and v_total relate
 * the squared error to the second moment v' = beta2 * v / (1 - beta2^step) of docs/numerics.md section 2.6:
 * mean over the parameters with v > 0 of error^2 / v', and sum of error^2 over sum of v'.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "gradwire/thc.h"
#include "results_snapshot.h"
#include "small_floats.h"

enum { CHUNK_LOG2 = 14, INT_BLOCK = 256, QSGD_BUCKET = 512, ENTROPY_LEN = 1 << CHUNK_LOG2 };

typedef struct subject {
    char name[256];
    const gw_snapshot *snapshot;
    const float *values;
    size_t len;
    uint64_t *tensor_len;
    double *tensor_nmse;
    size_t tensor_count;
    double v_scale; /* v' / v; 0: the optimizer has no second moment */
    float *decoded;
    int8_t *symbols;
    uint64_t random;
    gw_gcomp_map map;
    uint8_t *map_bytes;
    uint32_t *digest;
    uint8_t *quanta; /* of carried frames, if uses_quanta */
    int uses_quanta;
    gw_buffer frame;
    gw_workspace workspace;
} subject;

typedef struct outcome {
    double bits, nmse, nmse_median, v_mean, v_total;
} outcome;

/* ---- subject ------------------------------------------------------------------------------------------- */

/* "taken" of every tensor; one tensor if the description has none. */
static int tensors_read(subject *s)
{
    json_t *root = json_loadb((const char *)s->snapshot->json.data, s->snapshot->json.size, 0, NULL);
    const json_t *tensors = json_object_get(root, "tensors");
    const size_t count = json_array_size(tensors);
    s->tensor_count = count == 0 ? 1 : count;
    s->tensor_len = malloc(s->tensor_count * sizeof *s->tensor_len);
    s->tensor_nmse = malloc(s->tensor_count * sizeof *s->tensor_nmse);
    const int ok = s->tensor_len != NULL && s->tensor_nmse != NULL;
    if (ok) {
        s->tensor_len[0] = s->len;
    }
    for (size_t i = 0; ok && i < count; i++) {
        s->tensor_len[i] = (uint64_t)json_integer_value(json_object_get(json_array_get(tensors, i), "taken"));
    }
    json_decref(root);
    return ok;
}

static void subject_free(subject *s)
{
    free(s->tensor_len);
    free(s->tensor_nmse);
    free(s->decoded);
    free(s->symbols);
    free(s->map_bytes);
    free(s->digest);
    free(s->quanta);
    free(s->frame.data);
    free(s->workspace.data);
}

static int subject_make(subject *s, const gw_snapshot *snapshot, const char *path)
{
    memset(s, 0, sizeof *s);
    snapshot_name(path, s->name, sizeof s->name);
    s->snapshot = snapshot;
    s->values = (const float *)snapshot->array[GW_SNAPSHOT_GRAD].values;
    s->len = (size_t)snapshot->len;
    s->random = 1;
    if (snapshot->state.v != NULL) {
        const gw_optimizer *o = &snapshot->optimizer;
        s->v_scale = o->beta2 / (1.0 - pow(o->beta2, (double)o->step));
    }
    /* More than any frame of either codec needs. */
    s->frame.capacity = 5 * s->len + (1 << 20);
    s->workspace.size = 1 << 20;
    s->decoded = malloc(s->len * sizeof *s->decoded);
    s->symbols = malloc(s->len);
    s->map_bytes = malloc(s->len);
    s->digest = malloc((s->len / ENTROPY_LEN + 1) * sizeof *s->digest);
    s->quanta = malloc(s->len / 64 + 1);
    s->frame.data = malloc(s->frame.capacity);
    s->workspace.data = malloc(s->workspace.size);
    return tensors_read(s) && s->decoded != NULL && s->symbols != NULL && s->map_bytes != NULL &&
           s->digest != NULL && s->quanta != NULL && s->frame.data != NULL && s->workspace.data != NULL;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* What s->decoded is worth. Tensors of zeros alone do not count for the median. */
static outcome measure(const subject *s, double bits)
{
    outcome o = {bits, 0.0, 0.0, 0.0, 0.0};
    const float *v = s->v_scale > 0 ? s->snapshot->state.v : NULL;
    double error = 0.0, square = 0.0, sum_of_v = 0.0;
    size_t at = 0, counted = 0, tensors = 0;
    for (size_t t = 0; t < s->tensor_count; t++) {
        double tensor_error = 0.0, tensor_square = 0.0;
        for (const size_t end = at + (size_t)s->tensor_len[t]; at < end; at++) {
            const double x = (double)s->values[at], d = (double)s->decoded[at] - x;
            tensor_error += d * d;
            tensor_square += x * x;
            if (v != NULL && v[at] > 0) {
                sum_of_v += s->v_scale * (double)v[at];
                o.v_mean += d * d / (s->v_scale * (double)v[at]);
                counted++;
            }
        }
        error += tensor_error;
        square += tensor_square;
        if (tensor_square > 0) {
            s->tensor_nmse[tensors++] = tensor_error / tensor_square;
        }
    }
    qsort(s->tensor_nmse, tensors, sizeof *s->tensor_nmse, by_size);
    o.nmse = error / square;
    o.nmse_median = 0.5 * (s->tensor_nmse[(tensors - 1) / 2] + s->tensor_nmse[tensors / 2]);
    o.v_mean = counted == 0 ? -1.0 : o.v_mean / (double)counted;
    o.v_total = counted == 0 ? -1.0 : error / sum_of_v;
    return o;
}

static void print_row(const subject *s, const char *codec, const char *setting, const outcome *o)
{
    printf("%s\t%s\t%s\t%.4f\t%.4g\t%.4g\t", s->name, codec, setting, o->bits, o->nmse, o->nmse_median);
    if (o->v_mean < 0) {
        printf("-\t-\n");
    } else {
        printf("%.3g\t%.3g\n", o->v_mean, o->v_total);
    }
}

static void print_measured(const subject *s, const char *codec, const char *setting, double bits)
{
    const outcome o = measure(s, bits);
    print_row(s, codec, setting, &o);
}

/* ---- the dial ------------------------------------------------------------------------------------------ */

static int map_make(subject *s, const gw_gcomp_map_limits *limits)
{
    gw_gcomp_map_rule rule;
    uint32_t top;
    const gw_optimizer_state *state = &s->snapshot->state;
    if (gw_gcomp_map_rule_init(&s->snapshot->optimizer, 1.0f, limits, &rule) != GW_OK ||
        gw_gcomp_map_scan(&rule, state, s->len, GW_BACKEND_ALL, &top) != GW_OK) {
        return 0;
    }
    const gw_gcomp_map map = {s->map_bytes, s->digest, gw_gcomp_map_base(top), 1.0f, s->len, CHUNK_LOG2};
    s->map = map;
    return gw_gcomp_map_build(&rule, state, s->len, map.base, GW_BACKEND_ALL, s->map_bytes) == GW_OK &&
           gw_gcomp_map_digest(s->map_bytes, s->len, CHUNK_LOG2, s->digest) == GW_OK;
}

static int dial(subject *s, const gw_gcomp_options *options, outcome *result)
{
    gw_gcomp codec;
    const gw_gcomp_source source = {.values = s->values,
                                    .len = s->len,
                                    .quantum = s->uses_quanta ? gw_gcomp_quantum_of_blocks(s->quanta)
                                               : options->quantum.nmse > 0 ? gw_gcomp_quantum_of_nmse(0)
                                                                           : gw_gcomp_quantum_of_map(&s->map),
                                    .seed = 1,
                                    .step_index = (uint32_t)s->snapshot->optimizer.step};
    gw_gcomp_target target = {.values = s->decoded, .capacity = s->len};
    if (gw_gcomp_init(&codec, options) != GW_OK ||
        gw_gcomp_encode(&codec, &source, &s->frame, &s->workspace) != GW_OK ||
        gw_gcomp_decode(&codec,
                        &(gw_gcomp_frame){.data = s->frame.data, .size = s->frame.size, .map = &s->map},
                        &target, &s->workspace) != GW_OK) {
        return 0;
    }
    *result = measure(s, 8.0 * (double)s->frame.size / (double)s->len);
    return 1;
}

/* Stochastic, preset small, dead zone where the mode has it, tolerance 23. */
static gw_gcomp_options options_of(gw_gcomp_quantum_mode quantum_mode)
{
    gw_gcomp_options o;
    gw_gcomp_options_init(&o, GW_FP32);
    o.quantum_mode = quantum_mode;
    o.rounding = GW_GCOMP_STOCHASTIC;
    o.preset = GW_GCOMP_SMALL;
    o.dead_zone = quantum_mode != GW_GCOMP_EXPLICIT;
    o.chunk_log2 = CHUNK_LOG2;
    return o;
}

static int dial_row(subject *s, const char *codec, const char *setting, const gw_gcomp_options *options)
{
    outcome o;
    if (!dial(s, options, &o)) {
        return 0;
    }
    print_row(s, codec, setting, &o);
    return 1;
}

static int tolerance_rows(subject *s)
{
    static const uint32_t tolerances[] = {23, 20, 18, 16, 14, 12, 10, 8};
    int ok = map_make(s, NULL);
    for (size_t i = 0; ok && i < sizeof tolerances / sizeof tolerances[0]; i++) {
        char setting[32];
        snprintf(setting, sizeof setting, "t=%u", tolerances[i]);
        gw_gcomp_options o = options_of(GW_GCOMP_EXPLICIT);
        o.tolerance_bits = tolerances[i];
        ok = dial_row(s, "explicit", setting, &o);
        o = options_of(GW_GCOMP_DERIVED);
        o.tolerance_bits = tolerances[i];
        ok = ok && dial_row(s, "derived", setting, &o);
        o.preset = GW_GCOMP_FAST;
        ok = ok && dial_row(s, "derived fast", setting, &o);
        o.preset = GW_GCOMP_SMALL;
        o.dead_zone = 0;
        ok = ok && dial_row(s, "derived no cut", setting, &o);
    }
    return ok;
}

static int noise_rows(subject *s)
{
    int ok = 1;
    for (int octave = 0; ok && s->v_scale > 0 && octave <= 6; octave++) {
        const gw_gcomp_map_limits limits = {23, ldexpf(1.0f, -octave), 1, 0};
        char setting[32];
        snprintf(setting, sizeof setting, octave == 0 ? "alpha=1" : "alpha=1/%u", 1u << octave);
        gw_gcomp_options o = options_of(GW_GCOMP_DERIVED);
        ok = map_make(s, &limits) && dial_row(s, "derived", setting, &o);
        o.preset = GW_GCOMP_FAST;
        ok = ok && dial_row(s, "derived fast", setting, &o);
    }
    return ok;
}

/* Carried frames: quanta from the map by block, from a target NMSE, and one for the whole snapshot. */
static int carried_rows(subject *s)
{
    char setting[32];
    int ok = map_make(s, NULL);
    for (uint32_t block_log2 = 6; block_log2 <= 14; block_log2++) {
        gw_gcomp_options o = options_of(GW_GCOMP_CARRIED);
        o.block_log2 = block_log2;
        for (uint32_t t = 10; ok && t <= 14; t++) {
            o.tolerance_bits = t;
            snprintf(setting, sizeof setting, "block=%u t=%u", block_log2, t);
            ok = dial_row(s, "carried map", setting, &o);
        }
    }
    for (int rounding = GW_GCOMP_NEAREST; rounding <= GW_GCOMP_STOCHASTIC; rounding++) {
        gw_gcomp_options o = options_of(GW_GCOMP_CARRIED);
        o.rounding = (gw_gcomp_rounding)rounding;
        for (int half = 0; ok && half <= 12; half++) {
            o.quantum = gw_gcomp_quantum_of_nmse((float)pow(10.0, -0.5 * half));
            snprintf(setting, sizeof setting, "nmse=%.2g", (double)o.quantum.nmse);
            ok = dial_row(s, rounding == GW_GCOMP_NEAREST ? "carried nearest" : "carried stochastic", setting,
                          &o);
        }
    }
    double square = 0.0;
    for (size_t i = 0; i < s->len; i++) {
        square += (double)s->values[i] * (double)s->values[i];
    }
    const int exponent = (int)floor(0.5 * log2(square / (double)s->len));
    for (int above = -8; ok && above <= 4; above += 2) {
        gw_gcomp_options o = options_of(GW_GCOMP_CARRIED);
        o.rounding = GW_GCOMP_NEAREST;
        o.block_log2 = CHUNK_LOG2;
        memset(s->quanta, exponent + above + 127, s->len / 64 + 1);
        snprintf(setting, sizeof setting, "rms*2^%d", above);
        s->uses_quanta = 1;
        ok = dial_row(s, "one quantum", setting, &o);
        s->uses_quanta = 0;
    }
    return ok;
}

/* The smallest carried frame with at most the given error over the whole snapshot, by bisection of the
 * target. */
static int equal_error(subject *s, const gw_gcomp_options *options, double nmse, outcome *best)
{
    gw_gcomp_options o = *options;
    double low = log2(nmse) - 3.0, high = fmin(log2(nmse) + 3.0, 0.0);
    best->bits = 32.0;
    for (int i = 0; i < 9; i++) {
        const double middle = 0.5 * (low + high);
        outcome now;
        o.quantum = gw_gcomp_quantum_of_nmse((float)exp2(middle));
        if (!dial(s, &o, &now)) {
            return 0;
        }
        *(now.nmse <= nmse ? &low : &high) = middle;
        *best = now.nmse <= nmse && now.bits < best->bits ? now : *best;
    }
    return 1;
}

static int equal_error_rows(subject *s, const char *peer, double nmse)
{
    char setting[32];
    gw_gcomp_options o = options_of(GW_GCOMP_CARRIED);
    outcome best;
    if (!equal_error(s, &o, nmse, &best)) {
        return 0;
    }
    print_row(s, "equal stochastic", peer, &best);
    o.rounding = GW_GCOMP_NEAREST;
    for (o.block_log2 = 6; o.block_log2 <= 14; o.block_log2++) {
        if (!equal_error(s, &o, nmse, &best)) {
            return 0;
        }
        snprintf(setting, sizeof setting, "%s block=%u", peer, o.block_log2);
        print_row(s, "equal nearest", setting, &best);
    }
    return 1;
}

/* ---- other codecs -------------------------------------------------------------------------------------- */

/* Uniform in [0, 1): splitmix64. */
static double uniform(subject *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static double largest_of(const float *x, size_t len)
{
    float largest = 0.0f;
    for (size_t i = 0; i < len; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    return (double)largest;
}

/* Empirical entropy of symbols -127..127 in bits: less than any code of theirs needs. */
static double entropy(const int8_t *symbols, size_t len)
{
    uint32_t count[256] = {0};
    double bits = 0.0;
    for (size_t i = 0; i < len; i++) {
        count[symbols[i] + 128]++;
    }
    for (size_t i = 0; i < 256; i++) {
        bits += count[i] == 0 ? 0.0 : (double)count[i] * log2((double)len / (double)count[i]);
    }
    return bits;
}

/* Values [from, from + len) as multiples of a unit, with symbols. */
static void quantize(subject *s, size_t from, size_t len, double unit, int stochastic)
{
    for (size_t i = from; i < from + len; i++) {
        const double x = unit > 0 ? (double)s->values[i] / unit : 0.0;
        const double multiple = stochastic ? floor(x + uniform(s)) : rint(x);
        s->symbols[i] = (int8_t)multiple;
        s->decoded[i] = (float)(multiple * unit);
    }
}

/* Blocks of 256, one fp32 scale each: the largest value is 127 or 7. Returns the NMSE. */
static double int_blocks(subject *s, const char *setting, int bits, int stochastic)
{
    for (size_t at = 0; at < s->len; at += INT_BLOCK) {
        const size_t len = s->len - at < INT_BLOCK ? s->len - at : INT_BLOCK;
        quantize(s, at, len, largest_of(s->values + at, len) / ((1 << (bits - 1)) - 1), stochastic);
    }
    const outcome o = measure(s, bits + 32.0 / INT_BLOCK);
    print_row(s, bits == 8 ? "int8" : "int4", setting, &o);
    return o.nmse;
}

/* QSGD: buckets of 512 by their norm, entropy of every 2^14 symbols. */
static void qsgd(subject *s, int quantum_mode)
{
    double bits = 0.0;
    char setting[32];
    for (size_t at = 0; at < s->len; at += QSGD_BUCKET) {
        const size_t len = s->len - at < QSGD_BUCKET ? s->len - at : QSGD_BUCKET;
        double square = 0.0;
        for (size_t i = at; i < at + len; i++) {
            square += (double)s->values[i] * (double)s->values[i];
        }
        quantize(s, at, len, sqrt(square) / quantum_mode, 1);
        bits += 32.0;
    }
    for (size_t at = 0; at < s->len; at += ENTROPY_LEN) {
        bits += entropy(s->symbols + at, s->len - at < ENTROPY_LEN ? s->len - at : ENTROPY_LEN);
    }
    snprintf(setting, sizeof setting, "s=%d", quantum_mode);
    print_measured(s, "QSGD", setting, bits / (double)s->len);
}

/* TernGrad: the largest value of each tensor; its entropy. */
static void terngrad(subject *s)
{
    double bits = 0.0;
    size_t at = 0;
    for (size_t t = 0; t < s->tensor_count; at += (size_t)s->tensor_len[t++]) {
        const size_t len = (size_t)s->tensor_len[t];
        quantize(s, at, len, largest_of(s->values + at, len), 1);
        bits += 32.0 + entropy(s->symbols + at, len);
    }
    print_measured(s, "TernGrad", "-", bits / (double)s->len);
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The largest values of the snapshot as fp32; an index costs log2(n / k) + log2(e) bits. */
static void top_k(subject *s, const char *setting, double share)
{
    for (size_t i = 0; i < s->len; i++) {
        s->decoded[i] = fabsf(s->values[i]);
    }
    qsort(s->decoded, s->len, sizeof *s->decoded, by_value);
    const float least = s->decoded[s->len - (size_t)(share * (double)s->len)];
    for (size_t i = 0; i < s->len; i++) {
        s->decoded[i] = fabsf(s->values[i]) >= least ? s->values[i] : 0.0f;
    }
    print_measured(s, "top-k", setting, share * (32.0 + log2(1.0 / share) + 1.44));
}

/* With a scale per tensor the largest value of a tensor becomes that of the format. */
static void cast(subject *s, const char *codec, const small_float *format, int has_scale)
{
    size_t at = 0;
    for (size_t t = 0; t < s->tensor_count; t++) {
        const size_t end = at + (size_t)s->tensor_len[t];
        const double largest = largest_of(s->values + at, end - at);
        const double scale = has_scale && largest > 0 ? format->largest / largest : 1.0;
        for (; at < end; at++) {
            s->decoded[at] = (float)(small_float_round(format, (double)s->values[at] * scale) / scale);
        }
    }
    const double scales = has_scale ? 32.0 * (double)s->tensor_count / (double)s->len : 0.0;
    print_measured(s, codec, "-", format->bits + scales);
}

/* Blocks of 32 over the whole snapshot, one E8M0 scale each. */
static void mx(subject *s, const small_float *format)
{
    char codec[32];
    size_t blocks = 0;
    for (size_t at = 0; at < s->len; at += MX_BLOCK, blocks++) {
        const size_t len = s->len - at < MX_BLOCK ? s->len - at : MX_BLOCK;
        mx_block_round(format, s->values + at, len, s->decoded + at);
    }
    snprintf(codec, sizeof codec, "MXFP%d", format->bits);
    print_measured(s, codec, format->name, format->bits + MX_SCALE_BITS * (double)blocks / (double)s->len);
}

/* THC, 4 bits, as one worker sends it: the index frame with its norms. */
static int thc(subject *s)
{
    const gw_thc_goal goal = {.bits = 4, .worker_max = 1};
    gw_thc_options options;
    gw_thc codec;
    if (gw_thc_options_init(&options, &goal, NULL) != GW_OK || gw_thc_init(&codec, &options) != GW_OK) {
        return 0;
    }
    const gw_thc_range range = {.len = s->len, .block_count = gw_thc_block_count(&codec, s->len), .round = 1};
    uint32_t *patterns = malloc((size_t)range.block_count * sizeof *patterns);
    gw_thc_source source = {.values = s->values, .patterns = patterns};
    gw_thc_target target = {.values = s->decoded, .capacity = s->len};
    const int ok = patterns != NULL &&
                   gw_thc_norms(&codec, &range, &source, patterns, NULL, &s->workspace) == GW_OK &&
                   gw_thc_frame_encode(&codec, &range, &source, &s->frame, NULL, &s->workspace) == GW_OK &&
                   gw_thc_frame_decode(&(gw_thc_frame){s->frame.data, s->frame.size, s->len, GW_BACKEND_ALL},
                                       GW_THC_MEAN, &target, &s->workspace) == GW_OK;
    free(patterns);
    if (ok) {
        print_measured(s, "THC", "4 bits", 8.0 * (double)s->frame.size / (double)s->len);
    }
    return ok;
}

static int other_rows(subject *s)
{
    const double int8 = int_blocks(s, "nearest", 8, 0), int4 = int_blocks(s, "nearest", 4, 0);
    (void)int_blocks(s, "stochastic", 8, 1);
    (void)int_blocks(s, "stochastic", 4, 1);
    for (int quantum_mode = 1; quantum_mode <= 16; quantum_mode *= 4) {
        qsgd(s, quantum_mode);
    }
    terngrad(s);
    top_k(s, "1 %", 0.01);
    top_k(s, "10 %", 0.1);
    cast(s, "bf16", &small_floats[SMALL_FLOAT_BF16], 0);
    cast(s, "fp8 e4m3", &small_floats[SMALL_FLOAT_E4M3], 1);
    cast(s, "fp8 e5m2", &small_floats[SMALL_FLOAT_E5M2], 1);
    for (int kind = SMALL_FLOAT_E2M1; kind <= SMALL_FLOAT_E5M2; kind++) {
        mx(s, &small_floats[kind]);
    }
    return thc(s) && equal_error_rows(s, "int8", int8) && equal_error_rows(s, "int4", int4);
}

int main(int argc, char **argv)
{
    printf("snapshot\tcodec\tsetting\tbits\tnmse\tnmse_median\tv_mean\tv_total\n");
    for (int i = 1; i < argc; i++) {
        gw_snapshot snapshot;
        subject s;
        if (!snapshot_open(&snapshot, argv[i])) {
            return 1;
        }
        const int ok = subject_make(&s, &snapshot, argv[i]) && tolerance_rows(&s) && noise_rows(&s) &&
                       carried_rows(&s) && other_rows(&s);
        subject_free(&s);
        gw_snapshot_close(&snapshot);
        if (!ok) {
            fprintf(stderr, "results_gcomp_dial: %s failed\n", argv[i]);
            return 1;
        }
    }
    return argc > 1 ? 0 : 2;
}
