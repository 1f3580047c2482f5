/*
 * Options of the classic codecs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic_request.h"

#include <float.h>
#include <string.h>

enum {
    KEY_FIRST = 0x300,
    KEY_RATIO = KEY_FIRST,
    KEY_KEEP,
    KEY_WARMUP,
    KEY_VALUES,
    KEY_CODING,
    KEY_NORM,
    KEY_LEVELS,
    KEY_BLOCK,
    KEY_BETA,
    KEY_NESTEROV,
    KEY_NO_MASK,
    KEY_CLIP,
    KEY_BIASED,
    KEY_RESIDUAL,
    KEY_MOMENTUM, /* the last one that not all schemes have */
    KEY_SCHEME,
    KEY_SEED,
    KEY_ROUND,
    KEY_RANK,
    KEY_FIRST_ELEMENT,
    KEY_CHECKSUM,
    KEY_DTYPE,
    KEY_BACKEND
};

static const struct argp_option request_options[] = {
    {"scheme", KEY_SCHEME, "NAME", 0,
     "fp16, bf16, topk, dgc, randk, signsgd, efsignsgd, signum, onebit, qsgd or terngrad", 0},
    {"ratio", KEY_RATIO, "R", 0, "Sparse: share of the values to send (default 0.01)", 0},
    {"keep", KEY_KEEP, "K", 0, "Sparse: number of values to send, in place of --ratio", 0},
    {"warmup", KEY_WARMUP, "STEPS", 0, "dgc: the ratio falls from 1 over so many rounds (default 0)", 0},
    {"values", KEY_VALUES, "KIND", 0, "Sparse: fp32 (default), fp16, gcomp", 0},
    {"coding", KEY_CODING, "NAME", 0,
     "qsgd, terngrad: packed, mask, elias (default: mask for qsgd, packed for terngrad)", 0},
    {"norm", KEY_NORM, "NAME", 0, "qsgd: l2 (default), max", 0},
    {"levels", KEY_LEVELS, "S", 0, "qsgd: levels of the norm, 1 to 127 (default 4)", 0},
    {"block", KEY_BLOCK, "LEN", 0,
     "qsgd, terngrad: values that share a norm, a multiple of 64 (default 512 for qsgd); onebit: values of a "
     "column; 0: all",
     0},
    {"beta", KEY_BETA, "M", 0, "dgc, signum: momentum, 0 to below 1 (default 0.9)", 0},
    {"nesterov", KEY_NESTEROV, NULL, 0, "dgc: Nesterov momentum", 0},
    {"no-mask", KEY_NO_MASK, NULL, 0, "dgc: keep the momentum of values that are sent", 0},
    {"clip", KEY_CLIP, "C", 0, "dgc: largest L2 norm; terngrad: in standard deviations (default 2.5); 0: not",
     0},
    {"biased", KEY_BIASED, NULL, 0, "randk: do not multiply by values / sent", 0},
    {"residual", KEY_RESIDUAL, "STATE.npy", 0,
     "Error feedback: added to the input, then replaced by what was not sent; made if absent", 0},
    {"momentum", KEY_MOMENTUM, "STATE.npy", 0, "dgc, signum: momentum, read and replaced; made if absent", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of random bits; the same for all ranks (default 0)", 0},
    {"round", KEY_ROUND, "N", 0, "Training step, 0 to 2^32-1 (default 0)", 0},
    {"rank", KEY_RANK, "N", 0, "Number of the rank, 0 to 2^32-1 (default 0)", 0},
    {"first-element", KEY_FIRST_ELEMENT, "N", 0, "Number of the first value (default 0)", 0},
    {"checksum", KEY_CHECKSUM, NULL, 0, "End the frame with a CRC32C", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "bf16: two-byte words ('<u2') of the input are bf16", 0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {0},
};

static const char *const values_names[] = {"fp32", "fp16", "gcomp", NULL};
static const char *const coding_names[] = {"packed", "mask", "elias", NULL};
static const char *const norm_names[] = {"l2", "max", NULL};

#define SCHEME(name) (1u << GW_CLASSIC_##name)
#define SPARSE       (SCHEME(TOPK) | SCHEME(DGC) | SCHEME(RANDK))
#define LEVELS       (SCHEME(QSGD) | SCHEME(TERNGRAD))

/* Schemes that have an option. */
static uint32_t schemes_of(int key)
{
    static const uint32_t schemes[] = {
        [KEY_RATIO - KEY_FIRST] = SPARSE,
        [KEY_KEEP - KEY_FIRST] = SPARSE,
        [KEY_WARMUP - KEY_FIRST] = SCHEME(DGC),
        [KEY_VALUES - KEY_FIRST] = SPARSE,
        [KEY_CODING - KEY_FIRST] = LEVELS,
        [KEY_NORM - KEY_FIRST] = SCHEME(QSGD),
        [KEY_LEVELS - KEY_FIRST] = SCHEME(QSGD),
        [KEY_BLOCK - KEY_FIRST] = LEVELS | SCHEME(ONEBIT),
        [KEY_BETA - KEY_FIRST] = SCHEME(DGC) | SCHEME(SIGNUM),
        [KEY_NESTEROV - KEY_FIRST] = SCHEME(DGC),
        [KEY_NO_MASK - KEY_FIRST] = SCHEME(DGC),
        [KEY_CLIP - KEY_FIRST] = SCHEME(DGC) | SCHEME(TERNGRAD),
        [KEY_BIASED - KEY_FIRST] = SCHEME(RANDK),
        [KEY_RESIDUAL - KEY_FIRST] = SPARSE | LEVELS | SCHEME(SIGNSGD) | SCHEME(EFSIGNSGD) | SCHEME(ONEBIT),
        [KEY_MOMENTUM - KEY_FIRST] = SCHEME(DGC) | SCHEME(SIGNUM),
    };
    return schemes[key - KEY_FIRST];
}

static uint64_t number(struct argp_state *state, const char *name, const char *text, uint64_t min,
                       uint64_t max)
{
    uint64_t value = 0;
    if (gw_cli_parse_u64(text, min, max, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from %llu to %llu", name, text, (unsigned long long)min,
                   (unsigned long long)max);
    }
    return value;
}

static double real(struct argp_state *state, const char *name, const char *text, double max)
{
    double value = 0;
    if (gw_cli_parse_double(text, 0, max, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from 0 to %g", name, text, max);
    }
    return value;
}

/* Usual options of the scheme. Options of its own come after it (late_apply_all()). */
static void scheme_set(struct argp_state *state, classic_request *request, const char *name)
{
    const gw_classic_scheme scheme = gw_classic_scheme_from_name(name);
    const gw_classic_options old = request->options;
    if (scheme == 0 || gw_classic_options_init(&request->options, scheme) != GW_OK) {
        argp_error(state, "--scheme: '%s' is not a scheme (see --help)", name);
        return;
    }
    request->options.seed = old.seed;
    request->options.backends = old.backends;
    request->options.checksum = old.checksum;
}

/* Options that only some schemes have. Values are kept as text until the scheme is known. */
typedef struct late_option {
    int is_set;
    const char *text;
} late_option;

static late_option late[KEY_MOMENTUM - KEY_FIRST + 1];

static void late_apply(struct argp_state *state, classic_request *request, int key, const char *text)
{
    gw_classic_options *o = &request->options;
    switch (key) {
    case KEY_RATIO:
        request->ratio = real(state, "ratio", text, 1);
        if (!(request->ratio > 0)) {
            argp_error(state, "--ratio: '%s' is not above 0", text);
        }
        break;
    case KEY_KEEP:
        request->keep_len = number(state, "keep", text, 1, (uint64_t)1 << 32);
        break;
    case KEY_WARMUP:
        request->warmup_steps = number(state, "warmup", text, 0, UINT32_MAX);
        break;
    case KEY_VALUES:
        o->values = (gw_classic_values)gw_cli_parse_choice(state, "--values", text, values_names);
        break;
    case KEY_CODING:
        o->coding = (gw_classic_coding)gw_cli_parse_choice(state, "--coding", text, coding_names);
        break;
    case KEY_NORM:
        o->norm = (gw_classic_norm)gw_cli_parse_choice(state, "--norm", text, norm_names);
        break;
    case KEY_LEVELS:
        o->level_max = (uint32_t)number(state, "levels", text, 1, 127);
        break;
    case KEY_BLOCK:
        o->block_len = (uint32_t)number(state, "block", text, 0, (uint64_t)1 << 30);
        break;
    case KEY_BETA:
        o->momentum = (float)real(state, "beta", text, 1);
        break;
    case KEY_NESTEROV:
        o->nesterov = 1;
        break;
    case KEY_NO_MASK:
        o->momentum_mask = 0;
        break;
    case KEY_CLIP:
        o->clip = (float)real(state, "clip", text, FLT_MAX);
        break;
    case KEY_BIASED:
        o->unbiased = 0;
        break;
    case KEY_RESIDUAL:
        request->residual_path = text;
        break;
    default:
        request->momentum_path = text;
        break;
    }
}

static const char *option_name(int key)
{
    const struct argp_option *option = request_options;
    while (option->key != key) {
        option++;
    }
    return option->name;
}

/* Values of the options that only some schemes have, once the scheme is known. */
static void late_apply_all(struct argp_state *state, classic_request *request)
{
    const gw_classic_scheme scheme = request->options.scheme;
    if (scheme == 0) {
        argp_error(state, "--scheme is missing");
        return;
    }
    for (int key = KEY_FIRST; key <= KEY_MOMENTUM; key++) {
        const late_option *option = &late[key - KEY_FIRST];
        if (!option->is_set) {
            continue;
        }
        if ((schemes_of(key) >> scheme & 1) == 0) {
            argp_error(state, "--%s: %s does not have it", option_name(key), gw_classic_scheme_name(scheme));
        }
        late_apply(state, request, key, option->text);
        request->given |= 1u << (key - KEY_FIRST);
    }
    const uint32_t both = 1u << (KEY_RATIO - KEY_FIRST) | 1u << (KEY_KEEP - KEY_FIRST);
    if ((request->given & both) == both || (request->warmup_steps != 0 && request->keep_len != 0)) {
        argp_error(state, "--keep excludes --ratio and --warmup");
    }
    if (request->residual_path != NULL && scheme == GW_CLASSIC_RANDK) {
        request->options.unbiased = 0; /* error feedback needs the values as they are */
    }
}

static error_t request_parse(int key, char *text, struct argp_state *state)
{
    classic_request *request = state->input;
    switch (key) {
    case KEY_SCHEME:
        scheme_set(state, request, text);
        break;
    case KEY_SEED:
        request->options.seed = number(state, "seed", text, 0, UINT64_MAX);
        break;
    case KEY_ROUND:
        request->round = (uint32_t)number(state, "round", text, 0, UINT32_MAX);
        break;
    case KEY_RANK:
        request->rank = (uint32_t)number(state, "rank", text, 0, UINT32_MAX);
        break;
    case KEY_FIRST_ELEMENT:
        request->element_first = number(state, "first-element", text, 0, UINT64_MAX);
        break;
    case KEY_CHECKSUM:
        request->options.checksum = 1;
        break;
    case KEY_DTYPE:
        if (strcmp(text, "bf16") != 0) {
            argp_error(state, "--dtype: bf16, not '%s'", text);
        }
        request->u2 = GW_NPY_U2_BF16;
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &request->options.backends);
        break;
    case ARGP_KEY_END:
        late_apply_all(state, request);
        break;
    default:
        if (key < KEY_FIRST || key > KEY_MOMENTUM) {
            return ARGP_ERR_UNKNOWN;
        }
        late[key - KEY_FIRST] = (late_option){1, text};
        break;
    }
    return 0;
}

const struct argp classic_request_argp = {request_options, request_parse, NULL, NULL, NULL, NULL, NULL};

void classic_request_init(classic_request *request)
{
    memset(request, 0, sizeof *request);
    request->options.backends = GW_BACKEND_ALL;
    request->ratio = 0.01;
}

int classic_request_step(const classic_request *request, const char *file, uint64_t len,
                         gw_classic_step *step)
{
    *step = (gw_classic_step){len, request->element_first, 0, request->round, request->rank};
    if (len > (uint64_t)1 << 32) {
        return gw_cli_error(GW_CLI_BAD_DATA, file, "has %llu values, a frame has at most 2^32",
                            (unsigned long long)len);
    }
    if (request->element_first > UINT64_MAX - len) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "--first-element: the last value would be beyond 2^64");
    }
    if (!classic_is_sparse(request->options.scheme) || len == 0) {
        return GW_CLI_OK;
    }
    if (request->keep_len > len) {
        return gw_cli_error(GW_CLI_USAGE, file, "--keep: there are only %llu values",
                            (unsigned long long)len);
    }
    const double ratio = gw_classic_warmup_ratio(request->ratio, request->round, request->warmup_steps);
    step->keep_len = request->keep_len != 0 ? request->keep_len : gw_classic_keep_len(len, ratio);
    return GW_CLI_OK;
}

int classic_is_sparse(gw_classic_scheme scheme)
{
    return (SPARSE >> scheme & 1) != 0;
}

const char *classic_values_name(gw_classic_values values)
{
    return values_names[values];
}

const char *classic_coding_name(gw_classic_coding coding)
{
    return coding_names[coding];
}

const char *classic_norm_name(gw_classic_norm norm)
{
    return norm_names[norm];
}

int classic_fail(const char *file, gw_status status)
{
    const int code = status == GW_ERR_ARG || status == GW_ERR_OPTION ? GW_CLI_USAGE : GW_CLI_BAD_DATA;
    return gw_cli_error(code, file, "%s (%s)", gw_status_message(status), gw_status_name(status));
}

int classic_peek(const gw_input_file *input, uint64_t len_max, gw_classic_frame_info *info)
{
    gw_status status = gw_classic_frame_peek(input->data, input->size, info);
    if (status == GW_OK && info->len > len_max) {
        status = GW_ERR_LIMIT;
    } else if (status == GW_OK && info->frame_size != input->size) {
        status = info->frame_size > input->size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    return status == GW_OK ? GW_CLI_OK : classic_fail(input->name, status);
}

void *classic_alloc(uint64_t len, size_t element_size)
{
    return gw_cli_alloc(len > SIZE_MAX / element_size ? SIZE_MAX : (size_t)len * element_size);
}

int classic_workspace(size_t size, gw_workspace *workspace)
{
    workspace->size = size;
    workspace->data = gw_cli_alloc(size);
    return workspace->data != NULL ? GW_CLI_OK : GW_CLI_IO;
}
