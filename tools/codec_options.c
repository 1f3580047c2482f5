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

enum {
    KEY_LEVELS = 0x100,
    KEY_LEVEL_STEP,
    KEY_CAP,
    KEY_STRICT,
    KEY_CHECKSUM,
    KEY_WIRE_SCALE,
    KEY_TOLERANCE,
    KEY_NOISE,
    KEY_DEEP_CUT,
    KEY_BLOCK_LOG2,
    KEY_TARGET_NMSE,
    KEY_SEED,
    KEY_STEP_INDEX,
    KEY_RANK,
    KEY_HOP,
    KEY_FIRST_ELEMENT,
    KEY_PRESET,
    KEY_ROUNDING,
    KEY_CHUNK_LOG2,
    KEY_DROP,
    KEY_DTYPE,
    KEY_CONVERT,
    KEY_TARGET_BITS,
    KEY_AS,
    KEY_BACKEND,
    KEY_JSON
};

/* ---- names ---- */

gw_dtype gw_dtype_from_name(const char *name)
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
    printf("%s, %u thread%s", gw_codec_backend_name(request->backends), request->threads,
           request->threads == 1 ? "" : "s");
}

/* ---- parsers ---- */

static uint64_t u64_parse(struct argp_state *state, const char *option, const char *text, uint64_t min,
                          uint64_t max)
{
    uint64_t value = min;
    if (gw_cli_parse_u64(text, min, max, &value) != 0) {
        argp_error(state, "%s: '%s' is not an integer from %llu to %llu", option, text,
                   (unsigned long long)min, (unsigned long long)max);
    }
    return value;
}

static gw_dtype dtype_parse(struct argp_state *state, const char *option, const char *text)
{
    const gw_dtype dtype = gw_dtype_from_name(text);
    if (dtype == 0) {
        argp_error(state, "%s: '%s' is not one of fp32, bf16, fp16", option, text);
    }
    return dtype;
}

/* A number, or 1/N. */
static float noise_parse(struct argp_state *state, const char *text)
{
    double value = 0;
    const int is_share = strncmp(text, "1/", 2) == 0;
    if (gw_cli_parse_double(is_share ? text + 2 : text, 0x1p-8, 256, &value) == 0) {
        value = is_share ? 1 / value : value;
    }
    if (!(value >= 0x1p-8 && value <= 1)) {
        argp_error(state, "--noise: '%s' is not a number from 1/256 to 1", text);
    }
    return (float)value;
}

static const struct argp_option encode_options[] = {
    {"levels", KEY_LEVELS, "KIND", 0,
     "How the receiver learns the quanta: explicit (default; any receiver decodes), derived (the receiver "
     "needs the same snapshot) or carried (one quantum per block; any receiver decodes, but no single "
     "parameter has a bound)",
     0},
    {"deep-cut", KEY_DEEP_CUT, "on|off", 0,
     "A value below its quantum becomes 0 or one quantum. Default: on for carried levels, and for derived "
     "levels with --noise or with --tolerance-bits below 23 and an optimizer without a second moment",
     0},
    {"block-log2", KEY_BLOCK_LOG2, "N", 0, "Carried: values per quantum, 2^N, N = 6..14 (default 9)", 0},
    {"target-nmse", KEY_TARGET_NMSE, "X", 0,
     "Carried: choose the quanta from the values, for a squared error of X times their squares (at most 1)",
     0},
    {"level-step", KEY_LEVEL_STEP, "BITS", 0,
     "Granularity of drops; explicit: 6, 2, 3 for fp32, bf16, fp16; derived: 1, 2, 3, 6 (default 1)", 0},
    {"cap", KEY_CAP, "BITS", 0, "Largest drop; a multiple of the step (default: the largest allowed)", 0},
    {"drop", KEY_DROP, "BITS", 0,
     "Drop this many mantissa bits of every value instead of using the snapshot's map", 0},
    {"strict", KEY_STRICT, NULL, 0, "Keep -0, subnormals and NaN payloads bit for bit", 0},
    {"checksum", KEY_CHECKSUM, NULL, 0, "Add CRC32C checksums", 0},
    {"preset", KEY_PRESET, "NAME", 0, "fast (default): a codebook per 2^17 values; small: one per chunk", 0},
    {"rounding", KEY_ROUNDING, "MODE", 0,
     "truncate, nearest or stochastic (default: stochastic with --noise or with --tolerance-bits below 23, "
     "else nearest)",
     0},
    {"wire-scale", KEY_WIRE_SCALE, "S", 0,
     "Value in the frame / gradient that the optimizer uses: N for a plain sum of N workers (default 1)", 0},
    {"chunk-log2", KEY_CHUNK_LOG2, "N", 0, "Values per chunk, 2^N, N = 12..15 (default 14)", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of stochastic rounding (default 0)", 0},
    {"step-index", KEY_STEP_INDEX, "N", 0, "Training step, for stochastic rounding (default 0)", 0},
    {"rank", KEY_RANK, "N", 0, "Number of the worker, for stochastic rounding (default 0)", 0},
    {"hop", KEY_HOP, "N", 0, "Hop, for stochastic rounding (default 0)", 0},
    {"first-element", KEY_FIRST_ELEMENT, "N", 0,
     "Index in the tensor of the first value, for stochastic rounding (default 0)", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "bf16: two-byte words ('<u2') of the input are bf16", 0},
    {"target-bits", KEY_TARGET_BITS, "B", 0,
     "Choose the largest tolerance with which the frame is predicted to have at most B bits a value", 0},
    {"convert", KEY_CONVERT, "TYPE", 0, "Round fp32 input to bf16 or fp16 (nearest even) first", 0},
    {0},
};

/* Key and counter of stochastic rounding. */
static error_t random_parse(int key, const char *text, struct argp_state *state)
{
    gw_codec_request *request = state->input;
    switch (key) {
    case KEY_SEED:
        request->seed = u64_parse(state, "--seed", text, 0, UINT64_MAX);
        break;
    case KEY_STEP_INDEX:
        request->step_index = (uint32_t)u64_parse(state, "--step-index", text, 0, UINT32_MAX);
        break;
    case KEY_RANK:
        request->rank = (uint16_t)u64_parse(state, "--rank", text, 0, UINT16_MAX);
        break;
    case KEY_HOP:
        request->hop = (uint16_t)u64_parse(state, "--hop", text, 0, UINT16_MAX);
        break;
    case KEY_FIRST_ELEMENT:
        request->first_element = u64_parse(state, "--first-element", text, 0, UINT64_MAX);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Options of rounding and of the frame. */
static error_t format_parse(int key, char *text, struct argp_state *state)
{
    static const char *const presets[] = {"fast", "small", NULL};
    static const char *const roundings[] = {"truncate", "nearest", "stochastic", NULL};
    gw_codec_request *request = state->input;
    gw_gcomp_options *options = &request->options;
    double scale = 1;
    switch (key) {
    case KEY_STRICT:
        options->strict = 1;
        break;
    case KEY_CHECKSUM:
        options->checksum = 1;
        break;
    case KEY_PRESET:
        options->preset =
            gw_cli_parse_choice(state, "--preset", text, presets) == 0 ? GW_GCOMP_FAST : GW_GCOMP_SMALL;
        break;
    case KEY_ROUNDING:
        options->rounding = (gw_gcomp_rounding)gw_cli_parse_choice(state, "--rounding", text, roundings);
        request->has_rounding = 1;
        break;
    case KEY_WIRE_SCALE:
        if (gw_cli_parse_double(text, (double)FLT_TRUE_MIN, (double)FLT_MAX, &scale) != 0) {
            argp_error(state, "--wire-scale: '%s' is not a positive fp32 number", text);
        }
        request->wire_scale = (float)scale;
        break;
    case KEY_CHUNK_LOG2:
        options->chunk_log2 = (uint32_t)u64_parse(state, "--chunk-log2", text, 12, 15);
        break;
    case KEY_DTYPE:
        if (dtype_parse(state, "--dtype", text) != GW_BF16) {
            argp_error(state, "--dtype: only bf16 is accepted; the file names fp32 and fp16");
        }
        request->u2 = GW_NPY_U2_BF16;
        break;
    case KEY_TARGET_BITS:
        if (gw_cli_parse_double(text, 1e-3, 64, &request->target_bits) != 0) {
            argp_error(state, "--target-bits: '%s' is not a number from 0.001 to 64", text);
        }
        break;
    case KEY_CONVERT:
        request->convert = dtype_parse(state, "--convert", text);
        if (request->convert == GW_FP32) {
            argp_error(state, "--convert: bf16 or fp16");
        }
        break;
    default:
        return random_parse(key, text, state);
    }
    return 0;
}

static error_t encode_parse(int key, char *text, struct argp_state *state)
{
    static const char *const levels[] = {"explicit", "derived", "carried", NULL};
    static const char *const switches[] = {"off", "on", NULL};
    gw_codec_request *request = state->input;
    gw_gcomp_options *options = &request->options;
    double scale = 1;
    switch (key) {
    case KEY_LEVELS:
        options->levels = (gw_gcomp_levels)gw_cli_parse_choice(state, "--levels", text, levels);
        break;
    case KEY_DEEP_CUT:
        options->deep_cut = gw_cli_parse_choice(state, "--deep-cut", text, switches);
        request->has_deep_cut = 1;
        break;
    case KEY_BLOCK_LOG2:
        options->block_log2 = (uint32_t)u64_parse(state, "--block-log2", text, 6, 14);
        request->has_block_log2 = 1;
        break;
    case KEY_TARGET_NMSE:
        if (gw_cli_parse_double(text, (double)FLT_MIN, 1, &scale) != 0) {
            argp_error(state, "--target-nmse: '%s' is not a number above 0 and at most 1", text);
        }
        if (request->has_drop) {
            argp_error(state, "--drop and --target-nmse do not go together");
        }
        options->quantum = gw_gcomp_quantum_of_nmse((float)scale);
        break;
    case KEY_LEVEL_STEP:
        options->step = (uint32_t)u64_parse(state, "--level-step", text, 1, 6);
        break;
    case KEY_CAP:
        options->cap =
            strcmp(text, "max") == 0 ? UINT32_MAX : (uint32_t)u64_parse(state, "--cap", text, 0, 23);
        break;
    case KEY_DROP:
        if (options->quantum.kind == GW_GCOMP_QUANTUM_NMSE) {
            argp_error(state, "--drop and --target-nmse do not go together");
        }
        options->quantum = gw_gcomp_quantum_of_drop((uint32_t)u64_parse(state, "--drop", text, 0, 23));
        request->has_drop = 1;
        break;
    default:
        return format_parse(key, text, state);
    }
    return 0;
}

const struct argp gw_codec_encode_argp = {encode_options, encode_parse, NULL, NULL, NULL, NULL, NULL};

static const struct argp_option run_options[] = {
    {"tolerance-bits", KEY_TOLERANCE, "T", 0,
     "One encode moves no parameter by more than 2^-T of its size, T = 1..23 (default 23)", 0},
    {"noise", KEY_NOISE, "ALPHA", 0,
     "A quantum is at most ALPHA (2^-8 to 1, such as 0.25 or 1/4) times the root of the parameter's second "
     "moment. Without --tolerance-bits the only limit, else the smaller quantum counts",
     0},
    {"as", KEY_AS, "OPTIMIZER", 0, "Use another optimizer with the hyperparameters of the snapshot, e.g. sgd",
     0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {"threads", 'T', "N", 0, "Threads (default 1; 0 = all CPUs)", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of a table", 0},
    {0},
};

static error_t run_parse(int key, char *text, struct argp_state *state)
{
    gw_codec_request *request = state->input;
    switch (key) {
    case KEY_TOLERANCE:
        request->options.tolerance_bits = (uint32_t)u64_parse(state, "--tolerance-bits", text, 1, 23);
        request->has_tolerance = 1;
        break;
    case KEY_NOISE:
        request->noise = noise_parse(state, text);
        break;
    case KEY_AS:
        request->as = gw_optimizer_from_name(text);
        if (request->as == 0) {
            argp_error(state, "--as: '%s' is not an optimizer", text);
        }
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &request->backends);
        break;
    case 'T':
        request->threads = (unsigned)u64_parse(state, "--threads", text, 0, GW_CLI_THREADS_MAX);
        if (request->threads == 0) {
            request->threads = gw_parallel_cpu_count();
        }
        break;
    case KEY_JSON:
        request->json = 1;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp gw_codec_run_argp = {run_options, run_parse, NULL, NULL, NULL, NULL, NULL};

/* ---- handle ---- */

void gw_codec_request_init(gw_codec_request *request)
{
    memset(request, 0, sizeof *request);
    gw_gcomp_options_init(&request->options, GW_FP32);
    request->wire_scale = 1.0f;
    request->backends = GW_BACKEND_ALL;
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
    const int carried = options->levels == GW_GCOMP_CARRIED;
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
        (has_limit || snapshot == NULL || request->has_drop || options->levels != GW_GCOMP_DERIVED)) {
        return "--target-bits needs a snapshot and --levels derived, without --drop; it chooses the "
               "tolerance, "
               "so --tolerance-bits and --noise do not go with it";
    }
    if (!carried && (options->quantum.nmse > 0 || request->has_block_log2)) {
        return "--target-nmse and --block-log2 need --levels carried";
    }
    if (carried && request->has_drop) {
        return "--drop needs explicit or derived levels";
    }
    if (carried && snapshot == NULL && options->quantum.nmse == 0) {
        return "--levels carried needs quanta: the map of a snapshot, or --target-nmse";
    }
    if (options->deep_cut && options->levels == GW_GCOMP_EXPLICIT) {
        return "--deep-cut on needs derived or carried levels";
    }
    if (options->deep_cut && !carried && (snapshot == NULL || request->has_drop)) {
        return "--deep-cut on needs quanta: the map of a snapshot, or carried levels";
    }
    return NULL;
}

/* Whether more may be lost than the rounding of fp32 parameters hides. */
static int is_coarse(const gw_codec_request *request)
{
    return request->options.tolerance_bits < 23 || request->noise > 0 || request->target_bits > 0;
}

/* Deep cut where it was not requested. */
static int deep_cut_default(const gw_codec_request *request, const gw_snapshot *snapshot)
{
    const gw_gcomp_options *options = &request->options;
    if (options->levels == GW_GCOMP_CARRIED) {
        return 1;
    }
    const int is_possible = options->levels == GW_GCOMP_DERIVED && options->step <= 1 &&
                            options->cap == UINT32_MAX && !request->has_drop;
    return is_possible && snapshot != NULL &&
           (request->noise > 0 ||
            (is_coarse(request) && !gw_optimizer_has_second_moment(snapshot->optimizer.kind)));
}

int gw_codec_request_init_handle(const gw_codec_request *request, gw_dtype dtype, const gw_snapshot *snapshot,
                                 gw_gcomp *codec, gw_gcomp_options *options)
{
    *options = request->options;
    options->dtype = dtype;
    options->backends = request->backends;
    const char *contradiction = request_contradiction(request, snapshot);
    if (contradiction != NULL) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "%s", contradiction);
    }
    if (!request->has_rounding && is_coarse(request)) {
        options->rounding = GW_GCOMP_STOCHASTIC;
    }
    if (!request->has_deep_cut) {
        options->deep_cut = deep_cut_default(request, snapshot);
    }
    static const char *const levels[] = {"explicit", "derived", "carried"};
    static const uint32_t explicit_steps[3] = {6, 2, 3};
    const int is_explicit = options->levels == GW_GCOMP_EXPLICIT;
    const uint32_t step = options->step != 0 ? options->step : (is_explicit ? explicit_steps[dtype - 1] : 1);
    gw_status status = GW_ERR_OPTION;
    /* The library rounds the cap down to the step; here that would hide a mistake. */
    if (options->cap == UINT32_MAX || options->cap % step == 0) {
        status = gw_gcomp_init(codec, options);
    }
    if (status == GW_OK) {
        return GW_CLI_OK;
    }
    if (!is_explicit && (options->deep_cut || options->levels == GW_GCOMP_CARRIED)) {
        return gw_cli_error(
            GW_CLI_USAGE, NULL, "%s need step 1, the largest cap, and blocks within a chunk (%s)",
            options->levels == GW_GCOMP_CARRIED ? "carried levels" : "deep cuts", gw_status_message(status));
    }
    static const char *const steps[2][3] = {{"6", "2", "3"}, {"1, 2, 3, 6", "1, 2", "1, 3"}};
    static const char *const caps[2][3] = {{"18", "6", "9"}, {"23", "7", "10"}};
    return gw_cli_error(
        GW_CLI_USAGE, NULL,
        "%s frames of %s allow steps %s and caps that are multiples of the step, at most %s (%s)",
        levels[options->levels], gw_dtype_name(dtype), steps[!is_explicit][dtype - 1],
        caps[!is_explicit][dtype - 1], gw_status_message(status));
}
