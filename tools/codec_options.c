/*
 * Codec options on the command line.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "codec_options.h"
#include "cuda_run.h"

#include "cli_common.h"
#include "parallel_tasks.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* 0 for an unknown name. */
static gw_dtype dtype_from_name(const char *name)
{
    if (strcmp(name, "fp32") == 0 || strcmp(name, "f4") == 0 || strcmp(name, "float32") == 0) {
        return GW_FP32;
    }
    if (strcmp(name, "bf16") == 0 || strcmp(name, "bfloat16") == 0) {
        return GW_BF16;
    }
    if (strcmp(name, "fp16") == 0 || strcmp(name, "f2") == 0 || strcmp(name, "float16") == 0) {
        return GW_FP16;
    }
    return (gw_dtype)0;
}

uint32_t gw_dtype_mantissa_bits(gw_dtype dtype)
{
    return dtype == GW_FP32 ? 23 : (dtype == GW_BF16 ? 7 : 10);
}

const char *gw_codec_backend_name(uint32_t backends)
{
    const uint32_t on_device = gw_cuda_run_is_on() ? GW_BACKEND_CUDA : 0u;
    const uint32_t usable = (backends & (gw_backends_available() | on_device)) | GW_BACKEND_SCALAR;
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t mask = (uint32_t)1 << bit;
        const char *name = (usable & mask) != 0 ? gw_backend_name(mask) : NULL;
        if (name != NULL) {
            return name;
        }
    }
    return "scalar";
}

void gw_codec_request_print(const gw_codec_request *request)
{
    printf("%s, %u thread%s", gw_codec_backend_name(request->common.backends), request->threads,
           request->threads == 1 ? "" : "s");
}

/* ---- options ---- */

/* For --dtype, which takes only bf16 because files say what else they hold, and --convert. */
static gw_dtype dtype_parse(struct argp_state *state, const gw_option *option, const char *text)
{
    const gw_dtype dtype = dtype_from_name(text);
    if (dtype == 0) {
        argp_error(state, "--%s: '%s' is not one of fp32, bf16, fp16", option->name, text);
    }
    return dtype;
}

static void input_dtype_parse(struct argp_state *state, const gw_option *option, const char *text, void *u2)
{
    if (dtype_parse(state, option, text) != GW_BF16) {
        argp_error(state, "--dtype: only bf16 is accepted; the file names fp32 and fp16");
    }
    *(gw_npy_u2 *)u2 = GW_NPY_U2_BF16;
}

static void convert_parse(struct argp_state *state, const gw_option *option, const char *text, void *convert)
{
    *(gw_dtype *)convert = dtype_parse(state, option, text);
    if (*(gw_dtype *)convert == GW_FP32) {
        argp_error(state, "--convert: bf16 or fp16");
    }
}

/* A number, or 1/N. */
static void noise_parse(struct argp_state *state, const gw_option *option, const char *text, void *noise)
{
    double value = 0;
    const int is_share = strncmp(text, "1/", 2) == 0;
    if (gw_cli_parse_double(is_share ? text + 2 : text, 0x1p-8, 256, &value) == 0) {
        value = is_share ? 1 / value : value;
    }
    if (!(value >= 0x1p-8 && value <= 1)) {
        argp_error(state, "--%s: '%s' is not a number from 1/256 to 1", option->name, text);
    }
    *(float *)noise = (float)value;
}

static void cap_parse(struct argp_state *state, const gw_option *option, const char *text, void *cap)
{
    uint64_t value = UINT32_MAX;
    if (strcmp(text, "max") != 0 && gw_cli_parse_u64(text, 0, 23, &value) != 0) {
        argp_error(state, "--%s: '%s' is not an integer from 0 to 23", option->name, text);
    }
    *(uint32_t *)cap = (uint32_t)value;
}

static void optimizer_parse(struct argp_state *state, const gw_option *option, const char *text, void *kind)
{
    *(gw_optimizer_kind *)kind = gw_optimizer_from_name(text);
    if (*(gw_optimizer_kind *)kind == 0) {
        argp_error(state, "--%s: '%s' is not an optimizer", option->name, text);
    }
}

const char *const gw_quantum_mode_names[] = {"explicit", "derived", "carried", NULL};
const char *const gw_preset_names[] = {"fast", "small", NULL};
const char *const gw_rounding_names[] = {"truncate", "nearest", "stochastic", NULL};
const char *const gw_switch_names[] = {"off", "on", NULL};

#define HAS(member) .given = offsetof(gw_codec_request, member)

static const gw_option encode_options[] = {
    {"quantum-mode", "MODE",
     "How the receiver learns the quanta: explicit (default; any receiver decodes), derived (the receiver "
     "needs the same snapshot) or carried (one quantum per block; any receiver decodes, but no single "
     "parameter has a bound)",
     GW_CHOICE(gw_codec_request, options.quantum_mode, gw_quantum_mode_names)},
    {"dead-zone", "on|off",
     "A value below its quantum becomes 0 or one quantum. Default: on for carried quanta, and for derived "
     "quanta with --noise or with --tolerance-bits below 23 and an optimizer without a second moment",
     GW_CHOICE(gw_codec_request, options.dead_zone, gw_switch_names), HAS(has_dead_zone)},
    {"block-log2", "N", "Carried: values per quantum, 2^N, N = 6..14 (default 9)",
     GW_INTEGER(gw_codec_request, options.block_log2, 6, 14), HAS(has_block_log2)},
    {"target-nmse", "X",
     "Carried: choose the quanta from the values, for a squared error of X times their squares (at most 1)",
     GW_REAL(gw_codec_request, options.quantum.nmse, (double)FLT_MIN, 1),
     .wanted = "a number above 0 and at most 1"},
    {"drop-step", "BITS",
     "Granularity of drops; explicit: 6, 2, 3 for fp32, bf16, fp16; derived: 1, 2, 3, 6 (default 1)",
     GW_INTEGER(gw_codec_request, options.step, 1, 6)},
    {"cap", "BITS", "Largest drop; a multiple of the step (default: the largest allowed)",
     GW_OTHER(gw_codec_request, options.cap, cap_parse)},
    {"drop", "BITS", "Drop this many mantissa bits of every value instead of using the snapshot's map",
     GW_INTEGER(gw_codec_request, options.quantum.drop, 0, 23), HAS(has_drop)},
    {"strict", NULL, "Keep -0, subnormals and NaN payloads bit for bit",
     GW_FLAG(gw_codec_request, options.strict)},
    {"checksum", NULL, "Add CRC32C checksums", GW_FLAG(gw_codec_request, options.checksum)},
    {"preset", "NAME", "fast (default): a codebook per 2^17 values; small: one per chunk",
     GW_CHOICE(gw_codec_request, options.preset, gw_preset_names)},
    {"rounding", "MODE",
     "truncate, nearest or stochastic (default: stochastic with --noise or with --tolerance-bits below 23, "
     "else nearest)",
     GW_CHOICE(gw_codec_request, options.rounding, gw_rounding_names), HAS(has_rounding)},
    {"wire-scale", "S",
     "Value in the frame / gradient that the optimizer uses: N for a plain sum of N workers (default 1)",
     GW_REAL(gw_codec_request, wire_scale, (double)FLT_TRUE_MIN, (double)FLT_MAX),
     .wanted = "a positive fp32 number"},
    {"chunk-log2", "N", "Values per chunk, 2^N, N = 10..15 (default 14)",
     GW_INTEGER(gw_codec_request, options.chunk_log2, 10, 15)},
    {"seed", "N", "Seed of stochastic rounding (default 0)",
     GW_INTEGER(gw_codec_request, seed, 0, UINT64_MAX)},
    {"step-index", "N", "Training step, for stochastic rounding (default 0)",
     GW_INTEGER(gw_codec_request, step_index, 0, UINT32_MAX)},
    {"rank", "N", "Number of the worker, for stochastic rounding (default 0)",
     GW_INTEGER(gw_codec_request, rank, 0, UINT16_MAX)},
    {"hop", "N", "Hop, for stochastic rounding (default 0)",
     GW_INTEGER(gw_codec_request, hop, 0, UINT16_MAX)},
    {"first-element", "N", "Index in the tensor of the first value, for stochastic rounding (default 0)",
     GW_INTEGER(gw_codec_request, first_element, 0, UINT64_MAX)},
    {"dtype", "TYPE", "bf16: two-byte words ('<u2') of the input are bf16",
     GW_OTHER(gw_codec_request, u2, input_dtype_parse)},
    {"target-bits", "B",
     "Choose the largest tolerance with which the frame is predicted to have at most B bits a value",
     GW_REAL(gw_codec_request, target_bits, 1e-3, 64)},
    {"convert", "TYPE", "Round fp32 input to bf16 or fp16 (nearest even) first",
     GW_OTHER(gw_codec_request, convert, convert_parse)},
    {0},
};

static const gw_option run_options[] = {
    {"tolerance-bits", "T",
     "One encode moves no parameter by more than 2^-T of its size, T = 1..23 (default 23)",
     GW_INTEGER(gw_codec_request, options.tolerance_bits, 1, 23), HAS(has_tolerance)},
    {"noise", "ALPHA",
     "A quantum is at most ALPHA (2^-8 to 1, such as 0.25 or 1/4) times the root of the parameter's second "
     "moment. Without --tolerance-bits the only limit, else the smaller quantum counts",
     GW_OTHER(gw_codec_request, noise, noise_parse)},
    {"as", "OPTIMIZER", "Use another optimizer with the hyperparameters of the snapshot, e.g. sgd",
     GW_OTHER(gw_codec_request, as, optimizer_parse)},
    GW_BACKEND_ROW,
    GW_THREADS_ROW("Threads (default 1; 0 = all CPUs)"),
    GW_JSON_ROW("Print one JSON object instead of a table"),
    {0},
};

static void threads_end(struct argp_state *state, void *request)
{
    gw_codec_request *codec_request = request;
    (void)state;
    if (codec_request->threads == 0) {
        codec_request->threads = gw_parallel_cpu_count();
    }
}

const gw_option_group gw_codec_encode_group = {.options = encode_options};
const gw_option_group gw_codec_run_group = {.options = run_options, .end = threads_end};

/* ---- handle ---- */

void gw_codec_request_init(gw_codec_request *request)
{
    memset(request, 0, sizeof *request);
    gw_gcomp_options_init(&request->options, GW_FP32);
    request->wire_scale = 1.0f;
    request->common.backends = GW_BACKEND_ALL;
    request->common.len_max = request->options.len_max;
    request->threads = 1;
}

int gw_codec_request_uses_map(const gw_codec_request *request)
{
    return !request->has_drop && request->options.quantum.nmse == 0;
}

gw_gcomp_map_limits gw_codec_request_limits(const gw_codec_request *request)
{
    const int noise_only = request->noise > 0 && !request->has_tolerance;
    return (gw_gcomp_map_limits){request->options.tolerance_bits, request->noise, noise_only, 0};
}

/* What the library cannot see: options without effect or of another input. */
static const char *request_contradiction(const gw_codec_request *request, const gw_snapshot *snapshot)
{
    const gw_gcomp_options *options = &request->options;
    const int carried = options->quantum_mode == GW_GCOMP_CARRIED;
    const int has_limit = request->has_tolerance || request->noise > 0;
    if (has_limit && snapshot == NULL) {
        return "--tolerance-bits and --noise need a snapshot: an array has no precision map";
    }
    if (has_limit && !gw_codec_request_uses_map(request)) {
        return "--tolerance-bits and --noise limit the precision map, which --drop and --target-nmse replace";
    }
    if (request->noise > 0 && !gw_optimizer_has_second_moment(snapshot->optimizer.kind)) {
        return "--noise needs an optimizer with a second moment: adagrad, rmsprop, adam or adamw";
    }
    if (request->target_bits > 0 &&
        (has_limit || snapshot == NULL || request->has_drop || options->quantum_mode != GW_GCOMP_DERIVED)) {
        return "--target-bits needs a snapshot and --quantum-mode derived, without --drop; it chooses the "
               "tolerance, "
               "so --tolerance-bits and --noise do not go with it";
    }
    if (!carried && (options->quantum.nmse > 0 || request->has_block_log2)) {
        return "--target-nmse and --block-log2 need --quantum-mode carried";
    }
    if (carried && request->has_drop) {
        return "--drop needs explicit or derived quanta";
    }
    if (carried && snapshot == NULL && options->quantum.nmse == 0) {
        return "--quantum-mode carried needs quanta: the map of a snapshot, or --target-nmse";
    }
    if (options->dead_zone && options->quantum_mode == GW_GCOMP_EXPLICIT) {
        return "--dead-zone on needs derived or carried quanta";
    }
    if (options->dead_zone && !carried && (snapshot == NULL || request->has_drop)) {
        return "--dead-zone on needs quanta: the map of a snapshot, or carried quanta";
    }
    return NULL;
}

/* Whether more may be lost than the rounding of fp32 parameters hides. */
static int is_coarse(const gw_codec_request *request)
{
    return request->options.tolerance_bits < 23 || request->noise > 0 || request->target_bits > 0;
}

/* Dead zone where it was not requested. */
static int dead_zone_default(const gw_codec_request *request, const gw_snapshot *snapshot)
{
    const gw_gcomp_options *options = &request->options;
    if (options->quantum_mode == GW_GCOMP_CARRIED) {
        return 1;
    }
    const int is_possible = options->quantum_mode == GW_GCOMP_DERIVED && options->step <= 1 &&
                            options->cap == UINT32_MAX && !request->has_drop;
    return is_possible && snapshot != NULL &&
           (request->noise > 0 ||
            (is_coarse(request) && !gw_optimizer_has_second_moment(snapshot->optimizer.kind)));
}

void gw_codec_request_init_handle(const gw_codec_request *request, gw_dtype dtype,
                                  const gw_snapshot *snapshot, gw_gcomp *codec, gw_gcomp_options *options)
{
    *options = request->options;
    options->dtype = dtype;
    options->backends = request->common.backends;
    options->len_max = request->common.len_max;
    const char *contradiction = request_contradiction(request, snapshot);
    if (contradiction != NULL) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "%s", contradiction);
    }
    options->quantum = request->has_drop ? gw_gcomp_quantum_of_drop(request->options.quantum.drop)
                                         : gw_gcomp_quantum_of_nmse(request->options.quantum.nmse);
    if (!request->has_rounding && is_coarse(request)) {
        options->rounding = GW_GCOMP_STOCHASTIC;
    }
    if (!request->has_dead_zone) {
        options->dead_zone = dead_zone_default(request, snapshot);
    }
    static const uint32_t explicit_steps[3] = {6, 2, 3};
    const int is_explicit = options->quantum_mode == GW_GCOMP_EXPLICIT;
    const uint32_t step = options->step != 0 ? options->step : (is_explicit ? explicit_steps[dtype - 1] : 1);
    gw_status status = GW_ERR_OPTION;
    /* The library rounds the cap down to the step; here that would hide a mistake. */
    if (options->cap == UINT32_MAX || options->cap % step == 0) {
        status = gw_gcomp_init(codec, options);
    }
    if (status == GW_OK) {
        return;
    }
    if (!is_explicit && (options->dead_zone || options->quantum_mode == GW_GCOMP_CARRIED)) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "%s need step 1, the largest cap, and blocks within a chunk (%s)",
                    options->quantum_mode == GW_GCOMP_CARRIED ? "carried quanta" : "dead zones",
                    gw_status_message(status));
    }
    static const char *const steps[2][3] = {{"6", "2", "3"}, {"1, 2, 3, 6", "1, 2", "1, 3"}};
    static const char *const caps[2][3] = {{"18", "6", "9"}, {"23", "7", "10"}};
    gw_cli_fail(GW_CLI_USAGE, NULL,
                "%s frames of %s allow steps %s and caps that are multiples of the step, at most %s (%s)",
                gw_quantum_mode_names[options->quantum_mode], gw_dtype_name(dtype),
                steps[!is_explicit][dtype - 1], caps[!is_explicit][dtype - 1], gw_status_message(status));
}
