/*
 * Options of the THC subcommands.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#include "thc_options.h"

#include <math.h>
#include <string.h>

static int share_parse(const char *text, double *p)
{
    uint64_t number = 0;
    if (strncmp(text, "2^-", 3) == 0) {
        const int failed = gw_cli_parse_u64(text + 3, 1, 60, &number);
        *p = ldexp(1.0, -(int)number);
        return failed;
    }
    if (strchr(text, '/') != NULL) {
        const int failed =
            strncmp(text, "1/", 2) != 0 || gw_cli_parse_u64(text + 2, 2, UINT32_MAX, &number) != 0;
        *p = failed ? 0 : 1.0 / (double)number;
        return failed;
    }
    return gw_cli_parse_double(text, 0.0, 1.0, p) != 0 || *p <= 0.0 || *p >= 1.0;
}

void thc_p_parse(struct argp_state *state, const gw_option *option, const char *text, void *p)
{
    if (share_parse(text, p) != 0) {
        argp_error(state, "--%s: '%s' is not a share such as 1/32", option->name, text);
    }
}

void thc_must(const char *file, gw_status status, uint64_t block)
{
    const int code = status == GW_ERR_ARG || status == GW_ERR_OPTION ? GW_CLI_USAGE : GW_CLI_BAD_DATA;
    if (status != GW_OK && block != UINT64_MAX) {
        gw_cli_fail(code, file, "block %llu: %s (%s)", (unsigned long long)block, gw_status_message(status),
                    gw_status_name(status));
    }
    if (status != GW_OK) {
        gw_cli_fail(code, file, "%s (%s)", gw_status_message(status), gw_status_name(status));
    }
}

static void block_parse(struct argp_state *state, const gw_option *option, const char *text, void *block_log2)
{
    uint64_t value = 0;
    uint32_t log2 = 0;
    if (gw_cli_parse_u64(text, 64, 8192, &value) != 0) {
        argp_error(state, "--%s: '%s' is not a number from 64 to 8192", option->name, text);
    }
    while ((uint64_t)1 << log2 < value) {
        log2++;
    }
    if ((uint64_t)1 << log2 != value) {
        argp_error(state, "--%s: %s is not a power of two", option->name, text);
    }
    *(uint32_t *)block_log2 = log2;
}

static const char *const nonfinite_names[] = {"error", "propagate", "zero", NULL};

static const gw_option encode_options[] = {
    {"bits", "B", "Bits per index, 1 to 4 (default 4)", THC_NUMBER(bits, 1, GW_THC_BITS_MAX), .letter = 'b'},
    {"workers", "N", "Workers of the job (default 1)", THC_NUMBER(workers, 1, GW_THC_WORKERS_MAX),
     .letter = 'n'},
    {"rank", "I", "This worker, 0 to N-1 (default 0)", THC_NUMBER(rank, 0, GW_THC_WORKERS_MAX - 1),
     .letter = 'r'},
    {"seed", "S", "Key of signs and rounding; the same for all workers (default 0)",
     THC_NUMBER(seed, 0, UINT64_MAX), .letter = 'S'},
    {"round", "R", "Round, 0 to 2^32-1 (default 0)", THC_NUMBER(round, 0, UINT32_MAX), .letter = 'R'},
    {"job", "J", "Job number, 0 to 2^32-1 (default 0)", THC_NUMBER(job, 0, UINT32_MAX)},
    {"granularity", "G", "Grid steps of the table, up to 255 (default: by workers)",
     THC_NUMBER(granularity, 1, GW_THC_GRANULARITY_MAX)},
    {"p", "P", "Share of values clamped, such as 1/32 (default: by bits, workers and feedback)",
     GW_OTHER(thc_request, p, thc_p_parse)},
    {"lane", "W", "Lane width of sums: 8, 16 or 32 (default: by workers)", THC_NUMBER(lane_bits, 8, 32)},
    {"block", "LEN", "Block length, a power of two from 64 to 8192 (default 1024)",
     GW_OTHER(thc_request, block_log2, block_parse)},
    {"plain", NULL, "No rotation; minimum and maximum in place of the norm", GW_FLAG(thc_request, plain)},
    {"uniform", NULL, "The identity table (Algorithm 1 of the paper, with --plain)",
     GW_FLAG(thc_request, uniform)},
    {"nonfinite", "HOW", "NaN and infinity: error (default), propagate or zero",
     GW_CHOICE(thc_request, nonfinite, nonfinite_names), .wanted = "error, propagate or zero"},
    GW_BACKEND_ROW,
    {0},
};

const gw_option_group thc_encode_group = {.options = encode_options};

gw_request *thc_request_defaults(void)
{
    static thc_request request;
    request.common.backends = GW_BACKEND_ALL;
    request.common.len_max = UINT64_MAX;
    request.bits = 4;
    request.workers = 1;
    request.block_log2 = 10;
    request.mode = GW_THC_MEAN;
    return &request.common;
}

/* gw_thc_init(), with messages that name the command's options. */
static void init_handle(gw_thc *thc, const gw_thc_options *options, double p)
{
    const gw_status status = gw_thc_init(thc, options);
    if (status == GW_ERR_OVERFLOW) {
        gw_cli_fail(GW_CLI_USAGE, NULL,
                    "%u workers with granularity %u: the sum could exceed lanes of %u bits (--lane)",
                    options->worker_max, options->table.granularity, options->lane_bits);
    }
    if (status == GW_ERR_OPTION && options->error_feedback && options->transform == GW_THC_PLAIN) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "error feedback needs the rotation: --ef without --plain");
    }
    if (status == GW_ERR_OPTION && options->error_feedback && options->threshold_bits != 0) {
        gw_cli_fail(GW_CLI_USAGE, NULL,
                    "error feedback would grow without bound with %u bits and p %g: "
                    "use a larger --p or more --bits",
                    options->table.bits, p);
    }
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "no configuration of %u bits, granularity %u, p %g: %s",
                    options->table.bits, options->table.granularity, p, gw_status_message(status));
    }
}

void thc_request_init_handle(const thc_request *request, gw_dtype dtype, gw_thc *thc)
{
    const gw_thc_goal goal = {request->bits, request->workers, request->lane_bits,
                              request->state_path != NULL};
    gw_thc_design design;
    gw_status status = gw_thc_design_make(&design, &goal, thc_workspace());
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "no configuration for %u workers, %u bits, lanes of %u bits: %s",
                    request->workers, request->bits, request->lane_bits, gw_status_message(status));
    }
    gw_thc_options options = design.options;
    const double p = request->p > 0 ? request->p : design.p;
    const unsigned granularity = request->granularity != 0 ? request->granularity : options.table.granularity;
    if (request->uniform) {
        options.table = gw_thc_table_uniform(request->bits);
    } else if (request->granularity != 0 || request->p > 0) {
        status = gw_thc_table_solve(request->bits, granularity, p, &options.table, NULL, thc_workspace());
    }
    if (status != GW_OK) {
        gw_cli_fail(GW_CLI_USAGE, NULL, "no table of %u bits, granularity %u, p %g: %s", request->bits,
                    granularity, p, gw_status_message(status));
    }
    options.threshold_bits = request->plain ? 0 : gw_thc_threshold_bits(p);
    options.transform = request->plain ? GW_THC_PLAIN : GW_THC_ROTATED;
    options.nonfinite = request->nonfinite;
    options.block_log2 = request->block_log2;
    options.dtype = dtype;
    options.backends = request->common.backends;
    options.checksum = request->checksum;
    options.seed = request->seed;
    options.job = request->job;
    init_handle(thc, &options, p);
}

const gw_workspace *thc_workspace(void)
{
    static uint8_t memory[GW_THC_WORKSPACE_SIZE_MAX]; /* more than GW_THC_TABLE_WORKSPACE_SIZE */
    static const gw_workspace workspace = {memory, sizeof memory};
    return &workspace;
}

json_t *thc_table_json(const gw_thc_table *table)
{
    json_t *list = json_array();

    for (unsigned z = 0; z < 1u << table->bits; z++) {
        json_array_append_new(list, json_integer(table->value[z]));
    }
    return list;
}
