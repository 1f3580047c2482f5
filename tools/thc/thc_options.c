/*
 * Options of the THC subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int thc_parse_p(const char *text, double *p)
{
    const char *slash = strchr(text, '/');
    double value;

    if (strncmp(text, "2^-", 3) == 0) {
        uint64_t k;
        if (gw_cli_parse_u64(text + 3, 1, 60, &k) != 0) {
            return -1;
        }
        *p = ldexp(1.0, -(int)k);
        return 0;
    }
    if (slash != NULL) {
        uint64_t below;
        if (slash - text != 1 || text[0] != '1' || gw_cli_parse_u64(slash + 1, 2, UINT32_MAX, &below) != 0) {
            return -1;
        }
        *p = 1.0 / (double)below;
        return 0;
    }
    if (gw_cli_parse_double(text, 0.0, 1.0, &value) != 0 || value <= 0.0 || value >= 1.0) {
        return -1;
    }
    *p = value;
    return 0;
}

int thc_fail(const char *file, gw_status status, uint64_t block)
{
    int code = status == GW_ERR_ARG || status == GW_ERR_OPTION ? GW_CLI_USAGE : GW_CLI_BAD_DATA;

    if (block != UINT64_MAX) {
        return gw_cli_error(code, file, "block %llu: %s (%s)", (unsigned long long)block,
                            gw_status_message(status), gw_status_name(status));
    }
    return gw_cli_error(code, file, "%s (%s)", gw_status_message(status), gw_status_name(status));
}

enum {
    KEY_GRANULARITY = 0x300,
    KEY_P,
    KEY_LANE,
    KEY_BLOCK,
    KEY_JOB,
    KEY_PLAIN,
    KEY_UNIFORM,
    KEY_NONFINITE,
    KEY_BACKEND
};

static const struct argp_option request_options[] = {
    {"bits", 'b', "B", 0, "Bits per index, 1 to 4 (default 4)", 0},
    {"workers", 'n', "N", 0, "Workers of the job (default 1)", 0},
    {"rank", 'r', "I", 0, "This worker, 0 to N-1 (default 0)", 0},
    {"seed", 'S', "S", 0, "Key of signs and rounding; the same for all workers (default 0)", 0},
    {"round", 'R', "R", 0, "Round, 0 to 2^32-1 (default 0)", 0},
    {"job", KEY_JOB, "J", 0, "Job number, 0 to 2^32-1 (default 0)", 0},
    {"granularity", KEY_GRANULARITY, "G", 0, "Grid steps of the table, up to 255 (default: by workers)", 0},
    {"p", KEY_P, "P", 0, "Share of values clamped, such as 1/32 (default: by bits, workers and feedback)", 0},
    {"lane", KEY_LANE, "W", 0, "Lane width of sums: 8, 16 or 32 (default: by workers)", 0},
    {"block", KEY_BLOCK, "LEN", 0, "Block length, a power of two from 64 to 8192 (default 1024)", 0},
    {"plain", KEY_PLAIN, NULL, 0, "No rotation; minimum and maximum in place of the norm", 0},
    {"uniform", KEY_UNIFORM, NULL, 0, "The identity table (Algorithm 1 of the paper, with --plain)", 0},
    {"nonfinite", KEY_NONFINITE, "HOW", 0, "NaN and infinity: error (default), propagate or zero", 0},
    {"backend", KEY_BACKEND, "NAME[,NAME]", 0, "Permitted backends (default: all that the machine has)", 0},
    {0},
};

static uint64_t number(const char *text, uint64_t min, uint64_t max, const char *name,
                       struct argp_state *state)
{
    uint64_t value = 0;

    if (gw_cli_parse_u64(text, min, max, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from %llu to %llu", name, text, (unsigned long long)min,
                   (unsigned long long)max);
    }
    return value;
}

static unsigned log2_of(uint64_t value)
{
    unsigned log2 = 0;

    while (((uint64_t)1 << log2) < value) {
        log2++;
    }
    return ((uint64_t)1 << log2) == value ? log2 : 0;
}

static error_t request_parse(int key, char *text, struct argp_state *state)
{
    thc_request *request = state->input;

    switch (key) {
    case 'b':
        request->bits = (unsigned)number(text, 1, GW_THC_BITS_MAX, "bits", state);
        break;
    case 'n':
        request->workers = (uint32_t)number(text, 1, GW_THC_WORKERS_MAX, "workers", state);
        break;
    case 'r':
        request->rank = (uint32_t)number(text, 0, GW_THC_WORKERS_MAX - 1, "rank", state);
        break;
    case 'S':
        request->seed = number(text, 0, UINT64_MAX, "seed", state);
        break;
    case 'R':
        request->round = (uint32_t)number(text, 0, UINT32_MAX, "round", state);
        break;
    case KEY_JOB:
        request->job = (uint32_t)number(text, 0, UINT32_MAX, "job", state);
        break;
    case KEY_GRANULARITY:
        request->granularity = (unsigned)number(text, 1, GW_THC_GRANULARITY_MAX, "granularity", state);
        break;
    case KEY_P:
        if (thc_parse_p(text, &request->p) != 0) {
            argp_error(state, "--p: '%s' is not a share such as 1/32", text);
        }
        break;
    case KEY_LANE:
        request->lane_bits = (unsigned)number(text, 8, 32, "lane", state);
        break;
    case KEY_BLOCK:
        request->block_log2 = log2_of(number(text, 64, 8192, "block", state));
        if (request->block_log2 == 0) {
            argp_error(state, "--block: %s is not a power of two", text);
        }
        break;
    case KEY_PLAIN:
        request->plain = 1;
        break;
    case KEY_UNIFORM:
        request->uniform = 1;
        break;
    case KEY_NONFINITE:
        if (strcmp(text, "error") == 0) {
            request->nonfinite = GW_THC_NONFINITE_ERROR;
        } else if (strcmp(text, "propagate") == 0) {
            request->nonfinite = GW_THC_NONFINITE_PROPAGATE;
        } else if (strcmp(text, "zero") == 0) {
            request->nonfinite = GW_THC_NONFINITE_ZERO;
        } else {
            argp_error(state, "--nonfinite: error, propagate or zero, not '%s'", text);
        }
        break;
    case KEY_BACKEND:
        gw_cli_parse_backends(state, text, &request->backends);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp thc_request_argp = {request_options, request_parse, NULL, NULL, NULL, NULL, NULL};

void thc_request_init(thc_request *request)
{
    memset(request, 0, sizeof *request);
    request->bits = 4;
    request->workers = 1;
    request->block_log2 = 10;
    request->backends = GW_BACKEND_ALL;
}

/* gw_thc_init(), with messages that name the command's options. */
static int init_handle(gw_thc *thc, const gw_thc_options *options, double p)
{
    gw_status status = gw_thc_init(thc, options);

    if (status == GW_OK) {
        return GW_CLI_OK;
    }
    if (status == GW_ERR_OVERFLOW) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "%u workers with granularity %u: the sum could exceed lanes of %u bits (--lane)",
                            options->worker_max, options->table.granularity, options->lane_bits);
    }
    if (status == GW_ERR_OPTION && options->error_feedback && options->transform == GW_THC_PLAIN) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "error feedback needs the rotation: --ef without --plain");
    }
    if (status == GW_ERR_OPTION && options->error_feedback && options->threshold_bits != 0) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "error feedback would grow without bound with %u bits and p %g: "
                            "use a larger --p or more --bits",
                            options->table.bits, p);
    }
    return gw_cli_error(GW_CLI_USAGE, NULL, "no configuration of %u bits, granularity %u, p %g: %s",
                        options->table.bits, options->table.granularity, p, gw_status_message(status));
}

int thc_request_init_handle(const thc_request *request, gw_dtype dtype, int error_feedback, gw_thc *thc)
{
    const gw_thc_goal goal = {request->bits, request->workers, request->lane_bits, error_feedback};
    gw_thc_plan plan;
    gw_status status = gw_thc_plan_make(&plan, &goal, thc_workspace());

    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL,
                            "no configuration for %u workers, %u bits, lanes of %u bits: %s",
                            request->workers, request->bits, request->lane_bits, gw_status_message(status));
    }
    gw_thc_options options = plan.options;
    double p = request->p > 0 ? request->p : plan.p;
    unsigned granularity = request->granularity != 0 ? request->granularity : options.table.granularity;
    if (request->uniform) {
        options.table = gw_thc_table_uniform(request->bits);
    } else if (request->granularity != 0 || request->p > 0) {
        status = gw_thc_table_solve(request->bits, granularity, p, &options.table, NULL, thc_workspace());
    }
    if (status != GW_OK) {
        return gw_cli_error(GW_CLI_USAGE, NULL, "no table of %u bits, granularity %u, p %g: %s",
                            request->bits, granularity, p, gw_status_message(status));
    }
    options.threshold_bits = request->plain ? 0 : gw_thc_threshold_bits(p);
    options.transform = request->plain ? GW_THC_PLAIN : GW_THC_ROTATED;
    options.nonfinite = request->nonfinite;
    options.block_log2 = request->block_log2;
    options.dtype = dtype;
    options.backends = request->backends;
    options.checksum = request->checksum;
    options.seed = request->seed;
    options.job = request->job;
    return init_handle(thc, &options, p);
}

const gw_workspace *thc_workspace(void)
{
    static uint8_t memory[GW_THC_WORKSPACE_SIZE_MAX]; /* more than GW_THC_TABLE_WORKSPACE_SIZE */
    static const gw_workspace workspace = {memory, sizeof memory};
    return &workspace;
}
