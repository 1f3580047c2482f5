/*
 * Options of the classic codecs.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "classic_request.h"

#include <float.h>
#include <string.h>

const char *const classic_values_names[] = {"fp32", "fp16", "gcomp", NULL};
const char *const classic_coding_names[] = {"packed", "mask", "elias", NULL};
const char *const classic_norm_names[] = {"l2", "max", NULL};

/* Usual options of the scheme. Options of its own come after it. */
static void scheme_parse(struct argp_state *state, const gw_option *option, const char *text, void *options)
{
    const gw_classic_scheme scheme = gw_classic_scheme_from_name(text);
    if (scheme == 0 || gw_classic_options_init(options, scheme) != GW_OK) {
        argp_error(state, "--%s: '%s' is not a scheme (see --help)", option->name, text);
    }
}

static void ratio_parse(struct argp_state *state, const gw_option *option, const char *text, void *ratio)
{
    double value = 0;
    if (gw_cli_parse_double(text, 0, 1, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from 0 to 1", option->name, text);
    } else if (!(value > 0)) {
        argp_error(state, "--%s: '%s' is not above 0", option->name, text);
    }
    *(double *)ratio = value;
}

static void dtype_parse(struct argp_state *state, const gw_option *option, const char *text, void *u2)
{
    if (strcmp(text, "bf16") != 0) {
        argp_error(state, "--%s: bf16, not '%s'", option->name, text);
    }
    *(gw_npy_u2 *)u2 = GW_NPY_U2_BF16;
}

#define SCHEME(name) (1u << GW_CLASSIC_##name)
#define SPARSE       (SCHEME(TOPK) | SCHEME(DGC) | SCHEME(RANDK))
#define LEVELS       (SCHEME(QSGD) | SCHEME(TERNGRAD))
#define NUMBER(member, lowest, highest)                                                                      \
    GW_INTEGER(classic_request, member, lowest, highest), .noun = "a number"

/* `users` are the schemes that have an option, 0: all. The scheme comes first, because it sets the others. */
static const gw_option encode_options[] = {
    {"scheme", "NAME", "fp16, bf16, topk, dgc, randk, signsgd, efsignsgd, signum, onebit, qsgd or terngrad",
     GW_OTHER(classic_request, options, scheme_parse)},
    {"ratio", "R", "Sparse: share of the values to send (default 0.01)",
     GW_OTHER(classic_request, ratio, ratio_parse), .users = SPARSE,
     .given = offsetof(classic_request, has_ratio)},
    {"keep", "K", "Sparse: number of values to send, in place of --ratio",
     NUMBER(keep_len, 1, (uint64_t)1 << 32), .users = SPARSE},
    {"warmup", "STEPS", "dgc: the ratio falls from 1 over so many rounds (default 0)",
     NUMBER(warmup_steps, 0, UINT32_MAX), .users = SCHEME(DGC)},
    {"values", "KIND", "Sparse: fp32 (default), fp16, gcomp",
     GW_CHOICE(classic_request, options.values, classic_values_names), .users = SPARSE},
    {"coding", "NAME", "qsgd, terngrad: packed, mask, elias (default: mask for qsgd, packed for terngrad)",
     GW_CHOICE(classic_request, options.coding, classic_coding_names), .users = LEVELS},
    {"norm", "NAME", "qsgd: l2 (default), max", GW_CHOICE(classic_request, options.norm, classic_norm_names),
     .users = SCHEME(QSGD)},
    {"levels", "S", "qsgd: levels of the norm, 1 to 127 (default 4)", NUMBER(options.level_max, 1, 127),
     .users = SCHEME(QSGD)},
    {"block", "LEN",
     "qsgd, terngrad: values that share a norm, a multiple of 64 (default 512 for qsgd); onebit: values of a "
     "column; 0: all",
     NUMBER(options.block_len, 0, (uint64_t)1 << 30), .users = LEVELS | SCHEME(ONEBIT)},
    {"beta", "M", "dgc, signum: momentum, 0 to below 1 (default 0.9)",
     GW_REAL(classic_request, options.momentum, 0, 1), .users = SCHEME(DGC) | SCHEME(SIGNUM)},
    {"nesterov", NULL, "dgc: Nesterov momentum", GW_FLAG(classic_request, options.nesterov),
     .users = SCHEME(DGC)},
    {"no-mask", NULL, "dgc: keep the momentum of values that are sent",
     GW_SET(classic_request, options.momentum_mask, 0), .users = SCHEME(DGC)},
    {"clip", "C", "dgc: largest L2 norm; terngrad: in standard deviations (default 2.5); 0: not",
     GW_REAL(classic_request, options.clip, 0, (double)FLT_MAX), .users = SCHEME(DGC) | SCHEME(TERNGRAD)},
    {"biased", NULL, "randk: do not multiply by values / sent", GW_SET(classic_request, options.unbiased, 0),
     .users = SCHEME(RANDK)},
    {"residual", "STATE.npy",
     "Error feedback: added to the input, then replaced by what was not sent; made if absent",
     GW_TEXT(classic_request, residual_path),
     .users = SPARSE | LEVELS | SCHEME(SIGNSGD) | SCHEME(EFSIGNSGD) | SCHEME(ONEBIT)},
    {"momentum", "STATE.npy", "dgc, signum: momentum, read and replaced; made if absent",
     GW_TEXT(classic_request, momentum_path), .users = SCHEME(DGC) | SCHEME(SIGNUM)},
    {"seed", "N", "Seed of random bits; the same for all ranks (default 0)",
     NUMBER(options.seed, 0, UINT64_MAX)},
    {"round", "N", "Training step, 0 to 2^32-1 (default 0)", NUMBER(round, 0, UINT32_MAX)},
    {"rank", "N", "Number of the rank, 0 to 2^32-1 (default 0)", NUMBER(rank, 0, UINT32_MAX)},
    {"first-element", "N", "Number of the first value (default 0)", NUMBER(element_first, 0, UINT64_MAX)},
    {"checksum", NULL, "End the frame with a CRC32C", GW_FLAG(classic_request, options.checksum)},
    {"dtype", "TYPE", "bf16: two-byte words ('<u2') of the input are bf16",
     GW_OTHER(classic_request, u2, dtype_parse)},
    GW_BACKEND_ROW,
    {0},
};

static void scheme_check(struct argp_state *state, const gw_option *option, const void *request)
{
    const gw_classic_scheme scheme = ((const classic_request *)request)->options.scheme;
    if (option == &encode_options[0]) {
        return;
    }
    if (scheme == 0) {
        argp_error(state, "--scheme is missing");
    }
    if (option->users != 0 && (option->users >> scheme & 1) == 0) {
        argp_error(state, "--%s: %s does not have it", option->name, gw_classic_scheme_name(scheme));
    }
}

static void encode_end(struct argp_state *state, void *input)
{
    classic_request *request = input;
    if (request->options.scheme == 0) {
        argp_error(state, "--scheme is missing");
    }
    if (request->keep_len != 0 && (request->has_ratio || request->warmup_steps != 0)) {
        argp_error(state, "--keep excludes --ratio and --warmup");
    }
    if (request->residual_path != NULL && request->options.scheme == GW_CLASSIC_RANDK) {
        request->options.unbiased = 0; /* error feedback needs the values as they are */
    }
    request->options.backends = request->common.backends;
}

const gw_option_group classic_encode_group = {encode_options, 1, scheme_check, encode_end};

gw_request *classic_request_defaults(void)
{
    static classic_request request;
    request.common.backends = GW_BACKEND_ALL;
    request.common.len_max = (uint64_t)1 << 32;
    request.ratio = 0.01;
    return &request.common;
}

gw_classic_step classic_request_step(const classic_request *request, uint64_t len)
{
    gw_classic_step step = {len, request->element_first, 0, request->round, request->rank};
    const char *file = request->common.input;
    if (len > (uint64_t)1 << 32) {
        gw_cli_fail(GW_CLI_BAD_DATA, file, "has %llu values, a frame has at most 2^32",
                    (unsigned long long)len);
    }
    if (request->element_first > UINT64_MAX - len) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "--first-element: the last value would be beyond 2^64");
    }
    if (!classic_is_sparse(request->options.scheme) || len == 0) {
        return step;
    }
    if (request->keep_len > len) {
        gw_cli_fail(GW_CLI_USAGE, file, "--keep: there are only %llu values", (unsigned long long)len);
    }
    const double ratio = gw_classic_warmup_ratio(request->ratio, request->round, request->warmup_steps);
    step.keep_len = request->keep_len != 0 ? request->keep_len : gw_classic_keep_len(len, ratio);
    return step;
}

int classic_has_norms(gw_classic_scheme scheme)
{
    return (LEVELS >> scheme & 1) != 0;
}

int classic_is_sparse(gw_classic_scheme scheme)
{
    return (SPARSE >> scheme & 1) != 0;
}

void classic_must(const char *file, gw_status status)
{
    const int code = status == GW_ERR_ARG || status == GW_ERR_OPTION ? GW_CLI_USAGE : GW_CLI_BAD_DATA;
    if (status != GW_OK) {
        gw_cli_fail(code, file, "%s (%s)", gw_status_message(status), gw_status_name(status));
    }
}

gw_classic_frame_info classic_peek(const gw_input_file *input, uint64_t len_max)
{
    gw_classic_frame_info info;
    gw_status status = gw_classic_frame_peek(input->data, input->size, &info);
    if (status == GW_OK && info.len > len_max) {
        status = GW_ERR_LIMIT;
    } else if (status == GW_OK && info.frame_size != input->size) {
        status = info.frame_size > input->size ? GW_ERR_SHORT : GW_ERR_TRAILING;
    }
    classic_must(input->name, status);
    return info;
}
